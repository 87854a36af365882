//! Workers that are not Ready: who they are, and the report to Auto Scaling that one of them is unhealthy. `slipway_core::repair` decides.
//!
//! Auto Scaling then terminates the machine through its terminate hook, as it does with one that EC2 finds dead, and launches another one.
//! The rollout function drains what waits in that hook. So nothing else has to know of repairs.
//!
//! **Who may be replaced** is said by EC2, not by the Node: a kubelet may write labels on its own Node, and those of a controller could name a
//! pool. The machine must have the tags of the pool, and the role of the controllers reaches groups of pools only. A worker that calls itself one
//! of another pool also takes no turn in that pool: it would keep the workers there from being repaired. **Nor does a Node whose machine is
//! gone**, Ready or not ([`gone`]): one that is not Ready would look like a repair that never ends, and one that somebody keeps Ready with a copied
//! key like a healthy worker, or like the successor of a repaired one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{Api, Client};
use serde_json::{Value, json};
use slipway_core::drain::STARTED;
use slipway_core::node::is_instance;
use slipway_core::repair::{Ill, Ledger, Settings, Verdict, Wait, Worker, decide};
use slipway_core::role::Role;

use super::judge::{Machine, ROLE};
use super::sources::Cloud;
use super::stored::{self, Record, Stored};
use super::{CONTROLLER_LABEL, Site, terminated_nodes};
use crate::api::{self, failed};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::workers_seen::WorkerRecord;

/// The cluster autoscaler removes the node (kubernetes/autoscaler, `cluster-autoscaler/utils/taints`, `ToBeDeletedTaint`).
const AUTOSCALER_REMOVES: &str = "ToBeDeletedByClusterAutoscaler";
const ZONE: &str = "topology.kubernetes.io/zone";
const CLUSTER: &str = "slipway:cluster";

impl Record for Ledger {
    const NAME: &'static str = "slipway-repairs";
    const CODE: FailureCode = FailureCode::ManageRepair;
    const HELP: &'static str =
        "delete the ConfigMap: the pause after the last repair of each pool is then forgotten";
}

/// Whether a pass found other workers not to be Ready than the one before.
pub(super) fn has_news(pass: &Value) -> bool {
    pass["repair"]["news"] == true
}

/// Looks at the workers if that is due, and has one of each pool replaced at most.
pub(super) async fn repair(
    client: &Client,
    cloud: &impl Cloud,
    site: &Site,
    uptime_s: AgentResult<u64>,
) -> AgentResult<Value> {
    let uptime_s = uptime_s?;
    let before = WorkerRecord::read(&site.root);
    if !before.watch.is_due(uptime_s) {
        return Ok(json!({ "state": "rests" }));
    }
    let listed = list_workers(client).await;
    if listed.is_err() {
        // Nobody knows what happened meanwhile.
        WorkerRecord::forget(&site.root);
    }
    let (workers, settings) = listed?;
    let mut seen = WorkerRecord { watch: before.watch.clone(), unready: Vec::new() };
    seen.watch.record(&workers, uptime_s);
    let now = Timestamp::now();
    let mut begun = Ledger::default();
    let mut ill = decide(&workers, &seen.watch, &begun, &settings, now);
    let mut repaired = Vec::new();
    if ill.iter().any(|one| one.verdict != Verdict::Reported) {
        let mut stored = stored::read::<Ledger>(client).await?;
        let mut counted = workers;
        let mut aside = split_off_terminated(cloud, &mut counted, ill).await?;
        loop {
            ill = decide(&counted, &seen.watch, &stored.record, &settings, now);
            let found = split_off_foreign(cloud, &site.cluster, &mut ill).await?;
            if found.is_empty() {
                break;
            }
            counted.retain(|worker| found.iter().all(|one| one.uid != worker.uid));
            aside.extend(found);
        }
        ill.extend(aside);
        for one in ill.iter_mut().filter(|one| one.verdict == Verdict::Repair) {
            match replace(client, cloud, &site.cluster, one, &mut stored, now).await? {
                Ok(()) => repaired.push(one.node.clone()),
                Err(why) => one.verdict = Verdict::Wait(Wait::Machine { why }),
            }
        }
        begun = stored.record;
    }
    seen.unready = ill.iter().map(|one| one.report(&begun, now)).collect();
    seen.write(&site.root)?;
    let news = !seen.says_the_same(&before);
    Ok(json!({ "state": "looked", "unready": seen.unready, "repaired": repaired, "news": news }))
}

/// Takes the Nodes out of `workers` whose machines EC2 no longer has. Returns those of them that are ill.
async fn split_off_terminated(
    cloud: &impl Cloud,
    workers: &mut Vec<Worker>,
    ill: Vec<Ill>,
) -> AgentResult<Vec<Ill>> {
    // If there are more than EC2 is asked about, those that are not Ready come first.
    let (ready, unready): (Vec<&Worker>, Vec<&Worker>) = workers.iter().partition(|worker| worker.ready);
    let asked =
        terminated_nodes::ask(cloud, unready.into_iter().chain(ready).map(|worker| worker.name.as_str()))
            .await?;
    let gone: BTreeSet<String> = asked.gone().map(str::to_owned).collect();
    workers.retain(|worker| !gone.contains(&worker.name));
    let gone = ill.into_iter().filter(|one| gone.contains(&one.node)).map(|one| {
        let why = format!(
            "its machine is gone: if no controller deletes its Node within the hour, kubectl delete node {}",
            one.node
        );
        Ill { verdict: Verdict::Wait(Wait::Machine { why }), ..one }
    });
    Ok(gone.collect())
}

/// Takes those out of `ill` that would be repaired, and whose machines EC2 calls another pool's.
async fn split_off_foreign(cloud: &impl Cloud, cluster: &str, ill: &mut Vec<Ill>) -> AgentResult<Vec<Ill>> {
    let (chosen, others): (Vec<Ill>, Vec<Ill>) =
        std::mem::take(ill).into_iter().partition(|one| one.verdict == Verdict::Repair);
    *ill = others;
    let ids: Vec<&str> = chosen.iter().map(|one| one.node.as_str()).collect();
    let machines = match ids.as_slice() {
        [] => BTreeMap::new(),
        ids => cloud.machines(ids).await?,
    };
    let mut strangers = Vec::new();
    for mut one in chosen {
        match machines.get(&one.node).map(|machine| has_tags_of(machine, cluster, &one.pool)) {
            Some(Err(why)) => {
                one.verdict = Verdict::Wait(Wait::Machine { why });
                strangers.push(one);
            }
            Some(Ok(())) | None => ill.push(one),
        }
    }
    Ok(strangers)
}

/// Has this worker replaced. The inner error says why it is not.
async fn replace(
    client: &Client,
    cloud: &impl Cloud,
    cluster: &str,
    ill: &Ill,
    stored: &mut Stored<Ledger>,
    now: Timestamp,
) -> AgentResult<Result<(), String>> {
    let machine = cloud.machines(&[&ill.node]).await?.remove(&ill.node);
    if let Err(why) = is_of_the_pool(machine.as_ref(), cluster, &ill.pool) {
        return Ok(Err(why));
    }
    // Before Auto Scaling is told: a controller that dies in between costs a pause, and two that decide at once cost nothing.
    stored.record.begin(ill, now);
    if !stored.write(client).await? {
        return Ok(Err("another controller was first to repair a worker".to_owned()));
    }
    cloud.report_unhealthy(&ill.node).await
}

/// The workers, and what the spec says of their pools.
async fn list_workers(client: &Client) -> AgentResult<(Vec<Worker>, Settings)> {
    let nodes = api::nodes(client).await.map_err(|error| failed("the Nodes", &error))?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), Settings::NAMESPACE);
    let what = format!("{}/{}", Settings::NAMESPACE, Settings::NAME);
    let map = maps.get_opt(Settings::NAME).await.map_err(|error| failed(&what, &error))?;
    let text = map.and_then(|map| map.data?.remove(Settings::KEY));
    let settings = text.map_or_else(|| Ok(Settings::default()), |text| serde_json::from_str(&text));
    let settings = settings.map_err(|error| {
        let help = "the next application of the add-ons writes it anew; if it stays, roll the controllers";
        AgentError::permanent(FailureCode::ManageRepair, format!("{what} cannot be read: {error}"), help)
    })?;
    Ok((nodes.into_iter().filter_map(worker).collect(), settings))
}

/// The Node, if it is a worker's.
fn worker(node: Node) -> Option<Worker> {
    let mut labels = node.metadata.labels.unwrap_or_default();
    let name = node.metadata.name?;
    if labels.contains_key(CONTROLLER_LABEL) || !is_instance(&name) {
        return None;
    }
    let spec = node.spec.unwrap_or_default();
    let is_tainted = spec.taints.iter().flatten().any(|taint| taint.key == AUTOSCALER_REMOVES);
    let is_drained = node.metadata.annotations.iter().flatten().any(|(key, _)| key == STARTED);
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    Some(Worker {
        pool: labels.remove(api::POOL)?,
        zone: labels.remove(ZONE),
        ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
        created: node.metadata.creation_timestamp?.0,
        leaving: spec.unschedulable == Some(true)
            || is_tainted
            || is_drained
            || node.metadata.deletion_timestamp.is_some(),
        uid: node.metadata.uid?,
        name,
    })
}

/// Whether EC2 says that this machine runs in that pool. The error says why not.
fn is_of_the_pool(machine: Option<&Machine>, cluster: &str, pool: &str) -> Result<(), String> {
    let machine = machine.ok_or("EC2 has no such instance")?;
    has_tags_of(machine, cluster, pool)?;
    match machine.state.as_str() {
        "running" => Ok(()),
        // Auto Scaling replaces it by itself.
        state => Err(format!("its machine is {state}")),
    }
}

/// Whether a machine has the tags of that pool. The error says that it has not.
fn has_tags_of(machine: &Machine, cluster: &str, pool: &str) -> Result<(), String> {
    let role = Role::Pool(pool.to_owned()).to_string();
    let tag = |key: &str| machine.tags.get(key).map(String::as_str);
    if (tag(CLUSTER), tag(ROLE)) != (Some(cluster), Some(role.as_str())) {
        return Err(format!("its machine is not tagged as one of the pool {pool} of this cluster"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn node(change: impl FnOnce(&mut Value)) -> Node {
        let mut node = json!({
            "metadata": {
                "name": "i-0a1b2c3d4e5f60718", "uid": "u", "creationTimestamp": "2026-11-25T12:00:00Z",
                "labels": { "slipway/pool": "general", "topology.kubernetes.io/zone": "eu-west-1a" },
            },
            "spec": {},
            "status": { "conditions": [
                { "type": "MemoryPressure", "status": "False" },
                { "type": "Ready", "status": "True" },
            ] },
        });
        change(&mut node);
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_worker_is_what_its_node_says_and_controllers_and_nodes_of_others_are_none() {
        let found = worker(node(|_| {})).unwrap();
        let expected = Worker {
            name: "i-0a1b2c3d4e5f60718".to_owned(),
            uid: "u".to_owned(),
            pool: "general".to_owned(),
            zone: Some("eu-west-1a".to_owned()),
            ready: true,
            created: "2026-11-25T12:00:00Z".parse().unwrap(),
            leaving: false,
        };
        assert_eq!(found, expected);
        // A taken kubelet of a controller gives its own Node the label of a pool.
        assert_eq!(worker(node(|node| node["metadata"]["labels"][CONTROLLER_LABEL] = json!(""))), None);
        assert_eq!(worker(node(|node| node["metadata"]["labels"] = json!({}))), None);
        assert_eq!(worker(node(|node| node["metadata"]["name"] = json!("virtual-kubelet"))), None);
    }

    #[test]
    fn only_true_is_ready() {
        for status in ["False", "Unknown"] {
            let found = worker(node(|node| node["status"]["conditions"][1]["status"] = json!(status)));
            assert!(!found.unwrap().ready, "{status}");
        }
        assert!(!worker(node(|node| node["status"] = json!({}))).unwrap().ready);
    }

    #[test]
    fn a_worker_that_somebody_cordoned_drains_deletes_or_scales_down_is_leaving() {
        let leaves = |change: &dyn Fn(&mut Value)| worker(node(change)).unwrap().leaving;
        assert!(leaves(&|node| node["spec"]["unschedulable"] = json!(true)));
        assert!(leaves(&|node| node["metadata"]["annotations"] = json!({ STARTED: "2026-11-25T12:00:00Z" })));
        assert!(leaves(&|node| node["metadata"]["deletionTimestamp"] = json!("2026-11-25T12:00:00Z")));
        let tainted = |key: &str| json!([{ "key": key, "effect": "NoSchedule" }]);
        assert!(leaves(&|node| node["spec"]["taints"] = tainted(AUTOSCALER_REMOVES)));
        // As every node that is not Ready has it.
        assert!(!leaves(&|node| node["spec"]["taints"] = tainted("node.kubernetes.io/unreachable")));
        assert!(!leaves(&|node| node["spec"]["unschedulable"] = json!(false)));
    }

    #[test]
    fn p13_the_machine_must_run_with_the_tags_of_the_pool_whatever_its_node_says() {
        let machine = |cluster: &str, role: &str, state: &str| Machine {
            state: state.to_owned(),
            tags: [(CLUSTER.to_owned(), cluster.to_owned()), (ROLE.to_owned(), role.to_owned())].into(),
            ..Machine::default()
        };
        let may = |cluster, role, state| {
            is_of_the_pool(Some(&machine(cluster, role, state)), "c", "general").is_ok()
        };
        assert!(may("c", "pool-general", "running"));
        assert!(!may("other", "pool-general", "running"));
        for role in ["pool-other", "controller", "etcd-0", ""] {
            assert!(!may("c", role, "running"), "{role}");
        }
        for state in ["pending", "stopped", "shutting-down", "terminated"] {
            assert!(!may("c", "pool-general", state), "{state}");
        }
        assert!(is_of_the_pool(None, "c", "general").is_err());
    }

    #[test]
    fn a_pass_says_whether_something_is_new() {
        assert!(has_news(&json!({ "repair": { "news": true } })) && !has_news(&json!({ "repair": {} })));
    }
}
