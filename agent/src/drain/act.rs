//! Changes to a node and its pods.

use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions as OnlyIf};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use slipway_core::drain::{Answer, LAST_FORCED, STARTED, Target};

use super::observe::{
    Observation, SCALE_DOWN_DISABLED, SCALE_DOWN_IS_OURS, ScaleDown, WAS_CORDONED, node_failure, was_cordoned,
};
use crate::api::{failed, status, words};
use crate::failure::AgentResult;

const AT_ONCE: usize = 8;
/// The cause in a refusal by a disruption budget:
/// <https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/#eviction-api>
const BY_BUDGET: &str = "DisruptionBudget";
/// The message of the 500 for a pod with two budgets, which has no reason of its own:
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/registry/core/pod/storage/eviction.go>
const TWO_BUDGETS: &str = "more than one PodDisruptionBudget";

/// Cordons the node, writes on it since when it is drained, and keeps the cluster autoscaler from terminating it meanwhile, in one patch.
/// `false`: the node was changed after it was looked at, and nothing was written.
pub(super) async fn begin(client: &Client, observation: &Observation, now: Timestamp) -> AgentResult<bool> {
    match patch(client, &observation.node, &cordoned(observation, now)).await {
        Ok(()) => Ok(true),
        Err(error) => lost_race(&error).map_err(|()| node_failure(&observation.node, &error)),
    }
}

/// The patch of [`begin`]. It names the version that was looked at, because a person may annotate the node at the same time.
pub(super) fn cordoned(observation: &Observation, now: Timestamp) -> Value {
    let mut annotations = json!({ STARTED: now.to_string() });
    match observation.scale_down {
        ScaleDown::Unset | ScaleDown::SetByDrain => {
            annotations[SCALE_DOWN_DISABLED] = json!("true");
            annotations[SCALE_DOWN_IS_OURS] = json!("true");
        }
        ScaleDown::SetByOthers => {}
    }
    let state = &observation.observed.node;
    if !state.cordoned {
        // Also one that a person has uncordoned since.
        annotations[WAS_CORDONED] = Value::Null;
    } else if state.started.is_none() {
        annotations[WAS_CORDONED] = json!("true");
    }
    json!({
        "metadata": { "resourceVersion": observation.version, "annotations": annotations },
        "spec": { "unschedulable": true },
    })
}

/// Lets pods come again, and removes what a drain wrote on the node. What somebody else wrote stays: an annotation for the cluster autoscaler, and
/// a cordon from before the drain.
pub(super) async fn uncordon(client: &Client, name: &str) -> AgentResult<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get(name).await.map_err(|error| node_failure(name, &error))?;
    let change = uncordoned(ScaleDown::from_node(&node), was_cordoned(&node));
    patch(client, name, &change).await.map_err(|error| node_failure(name, &error))
}

/// The patch of [`uncordon`].
pub(super) fn uncordoned(scale_down: ScaleDown, was_cordoned: bool) -> Value {
    let mut annotations = json!({ STARTED: null, LAST_FORCED: null, WAS_CORDONED: null });
    match scale_down {
        ScaleDown::SetByDrain => {
            annotations[SCALE_DOWN_DISABLED] = Value::Null;
            annotations[SCALE_DOWN_IS_OURS] = Value::Null;
        }
        ScaleDown::Unset | ScaleDown::SetByOthers => {}
    }
    let mut change = json!({ "metadata": { "annotations": annotations } });
    if !was_cordoned {
        change["spec"] = json!({ "unschedulable": null });
    }
    change
}

async fn patch(client: &Client, node: &str, change: &Value) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await.map(|_| ())
}

/// The answer to the request to evict a pod; `None` if the pod is gone, and a failure if no answer arrived.
pub(super) type Evicted = (Target, AgentResult<Option<Answer>>);

/// Requests the eviction of `targets`. Each has its answer, whatever became of the others.
pub(super) async fn evict(client: &Client, targets: &[Target]) -> Vec<Evicted> {
    let evictions = stream::iter(targets).map(async |target| {
        let answer = match request_eviction(client, target).await {
            Ok(()) => Ok(Some(Answer::Accepted)),
            Err(error) => refusal(&error).map_err(|()| failed(&format!("evicting {}", target.name), &error)),
        };
        (target.clone(), answer)
    });
    evictions.buffered(AT_ONCE).collect().await
}

async fn request_eviction(client: &Client, target: &Target) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &target.name.namespace);
    let params = PostParams::default();
    let _: Status =
        pods.create_subresource("eviction", &target.name.name, &params, &eviction(target)).await?;
    Ok(())
}

/// The eviction of that very pod, and not of a successor with its name.
///
/// Not by kube's own `evict`: it sends its options under a name that the API server does not know, and so loses the UID
/// precondition: <https://github.com/kube-rs/kube/blob/5.0.0/kube-core/src/subresource.rs#L120>
pub(super) fn eviction(target: &Target) -> Eviction {
    Eviction {
        metadata: ObjectMeta {
            name: Some(target.name.name.clone()),
            namespace: Some(target.name.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    }
}

/// Classifies a refusal; `Err` if no answer arrived.
pub(super) fn refusal(error: &Error) -> Result<Option<Answer>, ()> {
    let Error::Api(status) = error else { return Err(()) };
    let by_budget =
        || status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == BY_BUDGET);
    match status.code {
        // The pod is gone, or another has its name.
        404 => Ok(None),
        429 if by_budget() => Ok(Some(Answer::Budget)),
        500 if status.message.contains(TWO_BUDGETS) => Ok(Some(Answer::TwoBudgets)),
        // Also a 500, of a webhook for example: it must not stop the eviction of other pods.
        _ => Ok(Some(Answer::Refused(words(error)))),
    }
}

/// Deletes a pod although its budget forbids it. The time is first recorded on the node under the version that the decision was
/// based on, so two concurrent drains never force two pods within the interval. `false` if the node or the pod changed meanwhile.
pub(super) async fn force(
    client: &Client,
    observation: &Observation,
    target: &Target,
    now: Timestamp,
) -> AgentResult<bool> {
    if let Err(error) = patch(client, &observation.node, &forced(observation, now)).await {
        return lost_race(&error).map_err(|()| node_failure(&observation.node, &error));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &target.name.namespace);
    let that_one = OnlyIf { uid: Some(target.uid.clone()), resource_version: None };
    match pods.delete(&target.name.name, &DeleteParams::default().preconditions(that_one)).await {
        Ok(_) => Ok(true),
        Err(error) => lost_race(&error).map_err(|()| failed(&format!("deleting {}", target.name), &error)),
    }
}

/// The patch by which [`force`] records its time, under the version that was looked at.
pub(super) fn forced(observation: &Observation, now: Timestamp) -> Value {
    json!({ "metadata": {
        "resourceVersion": observation.version,
        "annotations": { LAST_FORCED: now.to_string() },
    }})
}

/// `Ok(false)` if another writer was first: the next step decides again.
fn lost_race(error: &Error) -> Result<bool, ()> {
    if matches!(status(error), Some(404 | 409)) { Ok(false) } else { Err(()) }
}
