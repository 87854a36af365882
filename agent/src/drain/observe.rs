//! Reads a node, its pods and their budgets from the API server, as values to decide on.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod as KubePod, PodSpec, Toleration};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use kube::{Api, Client};
use slipway_core::drain::{
    Answer, Budget, LAST_FORCED, NodeState, ObjectName, Observed, Owner, Pod, STARTED, Sibling, Target, Try,
};

use crate::api::{failed, status};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// The annotation that keeps the cluster autoscaler from choosing a node for scale-down, if its value is `true`:
/// <https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#how-can-i-prevent-cluster-autoscaler-from-scaling-down-a-particular-node>
pub(super) const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";
/// The annotation of a node that says that a drain wrote [`SCALE_DOWN_DISABLED`], so that `uncordon` removes that too. The autoscaler
/// accepts no other value than `true`, so the value itself cannot name its author.
pub(super) const SCALE_DOWN_IS_OURS: &str = "slipway/scale-down-disabled";
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#kubernetes-io-config-mirror>
const MIRROR: &str = "kubernetes.io/config.mirror";
/// <https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-unschedulable>
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Marks a node that somebody had cordoned before its drain, and that stays cordoned after it.
pub(super) const WAS_CORDONED: &str = "slipway/was-cordoned";

pub(super) fn was_cordoned(node: &Node) -> bool {
    node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(WAS_CORDONED))
}

/// Evictions that this process tried, by the pod's UID.
#[derive(Debug, Default)]
pub(super) struct PastTries(BTreeMap<String, Try>);

impl PastTries {
    pub(super) fn remember(&mut self, target: &Target, at: Timestamp, answer: Answer) {
        let count = self.0.get(&target.uid).map_or(1, |last| last.count.saturating_add(1));
        self.0.insert(target.uid.clone(), Try { at, count, answer });
    }

    #[cfg(test)]
    pub(super) fn uids(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}

#[derive(Debug)]
pub(super) struct Observation {
    pub(super) observed: Observed,
    /// The node's name and its resource version.
    pub(super) node: String,
    pub(super) version: Option<String>,
    /// The status of the node's Ready condition, unless it is `True`. `Unknown` if its kubelet is silent.
    pub(super) not_ready: Option<String>,
    /// Who keeps the cluster autoscaler from terminating it.
    pub(super) scale_down: ScaleDown,
}

/// The annotation [`SCALE_DOWN_DISABLED`] of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleDown {
    /// The node does not have it.
    Unset,
    /// A drain wrote it.
    SetByDrain,
    /// Somebody else wrote it, with whatever value.
    SetByOthers,
}

impl ScaleDown {
    pub(super) fn from_node(node: &Node) -> Self {
        let has = |key| node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
        match (has(SCALE_DOWN_DISABLED), has(SCALE_DOWN_IS_OURS)) {
            (_, true) => Self::SetByDrain,
            (true, false) => Self::SetByOthers,
            (false, false) => Self::Unset,
        }
    }
}

pub(super) async fn observe(client: &Client, name: &str, tries: &mut PastTries) -> AgentResult<Observation> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get(name).await.map_err(|error| node_failure(name, &error))?;
    let of_node = ListParams::default().fields(&format!("spec.nodeName={name}"));
    let all_pods: Api<KubePod> = Api::all(client.clone());
    let pods = all_pods.list(&of_node).await.map_err(|error| failed("the node's pods", &error))?.items;
    let all_budgets: Api<PodDisruptionBudget> = Api::all(client.clone());
    let found = all_budgets.list(&ListParams::default()).await;
    let budgets = found.map_err(|error| failed("the disruption budgets", &error))?.items;

    let budgets = Budgets::new(&budgets);
    let pods: Vec<Pod> = pods.iter().map(|found| pod(found, &budgets)).collect();
    // Forget pods that are gone.
    tries.0.retain(|uid, _| pods.iter().any(|pod| &pod.uid == uid));
    let mut with_budget = BTreeMap::new();
    for name in pods.iter().filter(|pod| tries.0.contains_key(&pod.uid)).flat_map(|pod| &pod.budgets) {
        if !with_budget.contains_key(name) {
            with_budget.insert(name.clone(), budgets.with_siblings(client, name).await?);
        }
    }
    let scale_down = ScaleDown::from_node(&node);
    let observed = Observed { node: state(&node)?, pods, budgets: with_budget, tries: tries.0.clone() };
    let conditions = node.status.into_iter().flat_map(|status| status.conditions.unwrap_or_default());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    Ok(Observation {
        observed,
        node: name.to_owned(),
        version: node.metadata.resource_version,
        not_ready: ready.map(|ready| ready.status).filter(|status| status != "True"),
        scale_down,
    })
}

pub(super) fn node_failure(name: &str, error: &kube::Error) -> AgentError {
    if status(error) == Some(404) {
        return AgentError::permanent(
            FailureCode::DrainNoNode,
            format!("the cluster has no node `{name}`"),
            "check the name; if the machine and its node are gone, there is nothing to drain",
        );
    }
    failed(&format!("the node {name}"), error)
}

pub(super) fn state(node: &Node) -> AgentResult<NodeState> {
    let annotations = node.metadata.annotations.as_ref();
    let moment = |key: &str| {
        let Some(text) = annotations.and_then(|all| all.get(key)) else { return Ok(None) };
        // Guessing a deadline could force a pod too early.
        text.parse::<Timestamp>().map(Some).map_err(|_| {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            AgentError::permanent(
                FailureCode::DrainAnnotation,
                format!("the annotation {key} of the node {name} is not a time: `{text}`"),
                format!("remove it: kubectl annotate node {name} {key}-"),
            )
        })
    };
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    Ok(NodeState {
        cordoned,
        started: moment(STARTED)?,
        last_forced: moment(LAST_FORCED)?,
        silent: ready_since(node, "Unknown"),
        unable: ready_since(node, "False"),
    })
}

/// Since when the node's condition Ready has had this status, if it has it: `Unknown` is written by the node controller while the kubelet is
/// silent, `False` by the kubelet itself.
fn ready_since(node: &Node, status: &str) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let is_it = |condition: &&NodeCondition| condition.type_ == "Ready" && condition.status == status;
    conditions.iter().find(is_it)?.last_transition_time.as_ref().map(|at| at.0)
}

pub(super) fn pod(found: &KubePod, budgets: &Budgets<'_>) -> Pod {
    let spec = found.spec.as_ref();
    let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
    let volumes = spec.and_then(|spec| spec.volumes.as_ref()).into_iter().flatten();
    Pod {
        name: name(&found.metadata),
        uid: found.metadata.uid.clone().unwrap_or_default(),
        owner: owner(&found.metadata),
        created: created(&found.metadata),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
        terminating: found.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        empty_dir: { volumes }.any(|volume| volume.empty_dir.is_some()),
        tolerates_cordon: spec.is_some_and(tolerates_cordon),
        budgets: budgets.names_for(&found.metadata),
    }
}

fn name(metadata: &ObjectMeta) -> ObjectName {
    ObjectName::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The API server always sets it.
fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

fn owner(metadata: &ObjectMeta) -> Owner {
    if metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR)) {
        return Owner::Kubelet;
    }
    let controllers = metadata.owner_references.iter().flatten();
    match { controllers }.find(|reference| reference.controller == Some(true)) {
        None => Owner::Nobody,
        Some(reference) if reference.kind == "DaemonSet" => Owner::DaemonSet,
        Some(_) => Owner::Controller,
    }
}

/// The taint `unschedulable:NoSchedule` has no value.
fn tolerates_cordon(spec: &PodSpec) -> bool {
    let fits = |toleration: &Toleration| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (key, value) = (text(&toleration.key), text(&toleration.value));
        let (operator, effect) = (text(&toleration.operator), text(&toleration.effect));
        let same = match operator.as_str() {
            "Exists" => key.is_empty() || key == UNSCHEDULABLE,
            _ => key == UNSCHEDULABLE && value.is_empty(),
        };
        same && (effect.is_empty() || effect == "NoSchedule")
    };
    spec.tolerations.iter().flatten().any(fits)
}

pub(super) struct Budgets<'b>(Vec<(ObjectName, Selector, &'b PodDisruptionBudget)>);

impl<'b> Budgets<'b> {
    pub(super) fn new(found: &'b [PodDisruptionBudget]) -> Self {
        let known = found.iter().filter_map(|budget| {
            // A budget without a selector selects nothing; an empty selector selects the whole namespace.
            let selector = budget.spec.as_ref()?.selector.clone()?;
            Some((name(&budget.metadata), Selector::try_from(selector).ok()?, budget))
        });
        Self(known.collect())
    }

    fn names_for(&self, metadata: &ObjectMeta) -> BTreeSet<ObjectName> {
        let labels = metadata.labels.clone().unwrap_or_default();
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let selecting = self
            .0
            .iter()
            .filter(|(name, selector, _)| name.namespace == namespace && selector.matches(&labels));
        selecting.map(|(name, ..)| name.clone()).collect()
    }

    async fn with_siblings(&self, client: &Client, name: &ObjectName) -> AgentResult<Budget> {
        let Some((_, selector, budget)) = self.0.iter().find(|(known, ..)| known == name) else {
            return Ok(Budget::default());
        };
        let status = budget.status.as_ref();
        let allowed = status.map_or(0, |status| u32::try_from(status.disruptions_allowed).unwrap_or(0));
        let pods: Api<KubePod> = Api::namespaced(client.clone(), &name.namespace);
        let found = pods.list(&ListParams::default().labels_from(selector)).await;
        let found = found.map_err(|error| failed(&format!("the pods of the budget {name}"), &error))?;
        Ok(Budget { allowed, pods: found.items.iter().filter_map(sibling).collect() })
    }
}

/// `None` for a pod that has finished.
pub(super) fn sibling(found: &KubePod) -> Option<Sibling> {
    let status = found.status.as_ref();
    if matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed")) {
        return None;
    }
    let name = name(&found.metadata);
    if let Some(until) = &found.metadata.deletion_timestamp {
        let grace = SignedDuration::from_secs(found.metadata.deletion_grace_period_seconds.unwrap_or(0));
        let since = until.0.checked_sub(grace).unwrap_or(until.0);
        return Some(Sibling { name, healthy: false, since });
    }
    let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = { conditions }.find(|condition| condition.type_ == "Ready");
    Some(Sibling {
        name,
        healthy: ready.is_some_and(|ready| ready.status == "True"),
        since: ready
            .and_then(|ready| ready.last_transition_time.as_ref())
            .map_or_else(|| created(&found.metadata), |time| time.0),
    })
}
