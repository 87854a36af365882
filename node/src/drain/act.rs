//! What is done to a node and its pods.

use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions as OnlyIf};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use slipway_core::drain::{Answer, LAST_FORCED, STARTED, Target};

use super::observe::{SCALE_DOWN_DISABLED, SCALE_DOWN_IS_OURS, ScaleDown, Scene, unknown};
use crate::api::{failed, status, words};
use crate::failure::Outcome;

/// How many evictions are asked for at a time.
const AT_ONCE: usize = 8;
/// Why an eviction was refused, where it was because of a budget:
/// <https://kubernetes.io/docs/tasks/administer-cluster/safely-drain-node/#eviction-api>
const BY_BUDGET: &str = "DisruptionBudget";
/// What the API server says, besides 500, of a pod with two budgets; it has no reason of its own for that:
/// <https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/registry/core/pod/storage/eviction.go>
const TWO_BUDGETS: &str = "more than one PodDisruptionBudget";

/// Cordons the node, writes on it since when it is drained, and keeps the cluster autoscaler from terminating it meanwhile, in one patch.
/// `false`: the node was changed after it was looked at, and nothing was written.
pub(super) async fn begin(client: &Client, scene: &Scene, now: Timestamp) -> Outcome<bool> {
    match patch(client, &scene.node, &cordoned(scene, now)).await {
        Ok(()) => Ok(true),
        Err(error) => lost(&error).map_err(|()| unknown(&scene.node, &error)),
    }
}

/// The patch of [`begin`]. It names the version that was looked at, because a person may annotate the node at the same time.
pub(super) fn cordoned(scene: &Scene, now: Timestamp) -> Value {
    let mut annotations = json!({ STARTED: now.to_string() });
    match scene.scale_down {
        ScaleDown::Unset | ScaleDown::SetByDrain => {
            annotations[SCALE_DOWN_DISABLED] = json!("true");
            annotations[SCALE_DOWN_IS_OURS] = json!("true");
        }
        ScaleDown::SetByOthers => {}
    }
    json!({
        "metadata": { "resourceVersion": scene.version, "annotations": annotations },
        "spec": { "unschedulable": true },
    })
}

/// Lets pods come again, and removes what a drain wrote on the node. An annotation for the cluster autoscaler that somebody else wrote stays.
pub(super) async fn uncordon(client: &Client, name: &str) -> Outcome<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get(name).await.map_err(|error| unknown(name, &error))?;
    let change = uncordoned(ScaleDown::of(&node));
    patch(client, name, &change).await.map_err(|error| unknown(name, &error))
}

/// The patch of [`uncordon`].
pub(super) fn uncordoned(scale_down: ScaleDown) -> Value {
    let mut annotations = json!({ STARTED: null, LAST_FORCED: null });
    match scale_down {
        ScaleDown::SetByDrain => {
            annotations[SCALE_DOWN_DISABLED] = Value::Null;
            annotations[SCALE_DOWN_IS_OURS] = Value::Null;
        }
        ScaleDown::Unset | ScaleDown::SetByOthers => {}
    }
    json!({ "metadata": { "annotations": annotations }, "spec": { "unschedulable": null } })
}

async fn patch(client: &Client, node: &str, change: &Value) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(change)).await.map(|_| ())
}

/// Asks for the eviction of `targets`: with each, the answer; none if it is gone.
pub(super) async fn evict(client: &Client, targets: &[Target]) -> Outcome<Vec<(Target, Option<Answer>)>> {
    let asked = stream::iter(targets).map(async |target| {
        let answer = match ask(client, target).await {
            Ok(()) => Some(Answer::Accepted),
            Err(error) => {
                refusal(&error).map_err(|()| failed(&format!("evicting {}", target.name), &error))?
            }
        };
        Ok((target.clone(), answer))
    });
    asked.buffered(AT_ONCE).try_collect().await
}

/// kube's own `evict` writes its options under a name that the API server does not know, which then evicts whatever bears
/// the name: <https://github.com/kube-rs/kube/blob/5.0.0/kube-core/src/subresource.rs#L120>
async fn ask(client: &Client, target: &Target) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &target.name.namespace);
    let eviction = Eviction {
        metadata: ObjectMeta {
            name: Some(target.name.name.clone()),
            namespace: Some(target.name.namespace.clone()),
            ..ObjectMeta::default()
        },
        delete_options: Some(DeleteOptions {
            preconditions: Some(Preconditions { uid: Some(target.uid.clone()), resource_version: None }),
            ..DeleteOptions::default()
        }),
    };
    let _: Status =
        pods.create_subresource("eviction", &target.name.name, &PostParams::default(), &eviction).await?;
    Ok(())
}

/// What a refusal means; `Err`: the call did not come through.
pub(super) fn refusal(error: &Error) -> Result<Option<Answer>, ()> {
    let Error::Api(status) = error else { return Err(()) };
    let by_budget =
        || status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == BY_BUDGET);
    match status.code {
        // It is gone, or another bears its name.
        404 => Ok(None),
        429 if by_budget() => Ok(Some(Answer::Budget)),
        500 if status.message.contains(TWO_BUDGETS) => Ok(Some(Answer::TwoBudgets)),
        // A webhook that does not answer must not keep the other pods: 500 too.
        _ => Ok(Some(Answer::Refused(words(error)))),
    }
}

/// Deletes a pod though its budget forbids it: once that is written on the node, and only if the node is as it was when this
/// was decided. So two who drain one node never delete two pods within the interval. `false`: it was not.
pub(super) async fn force(client: &Client, scene: &Scene, target: &Target, now: Timestamp) -> Outcome<bool> {
    let change = json!({ "metadata": {
        "resourceVersion": scene.version,
        "annotations": { LAST_FORCED: now.to_string() },
    }});
    if let Err(error) = patch(client, &scene.node, &change).await {
        return lost(&error).map_err(|()| unknown(&scene.node, &error));
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &target.name.namespace);
    let that_one = OnlyIf { uid: Some(target.uid.clone()), resource_version: None };
    match pods.delete(&target.name.name, &DeleteParams::default().preconditions(that_one)).await {
        Ok(_) => Ok(true),
        Err(error) => lost(&error).map_err(|()| failed(&format!("deleting {}", target.name), &error)),
    }
}

/// Whether somebody else was first: what is to be done is decided anew.
fn lost(error: &Error) -> Result<bool, ()> {
    if matches!(status(error), Some(404 | 409)) { Ok(false) } else { Err(()) }
}
