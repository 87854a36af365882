//! `serves`: whether the whole cluster serves, as a controller sees it (P11). It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use slipway_core::node::report::ComponentName;
use slipway_core::node::{ClusterServes, ControllerConfig, NodeConfig, NodesReady, PartHealth};
use slipway_credentials::policy::KUBERNETES_DIR;
use tokio::time::timeout;

use crate::api;
use crate::credentials::below;
use crate::etcd::client::EtcdClient;
use crate::etcd::wire::{Alarms, Member, hex};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::status::{self, listeners, registration};
use crate::{manage, node_files, passes};

/// A member that does not answer within this time does not serve.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(15);
/// All Nodes are listed within this time, or not at all. The verb has two minutes.
const NODES_TIMEOUT: Duration = Duration::from_secs(60);
/// A node manager passes every 20 s, and a pass that hangs is ended after five minutes (`manage::units`): twice that is no coincidence.
const PASSED: SignedDuration = SignedDuration::from_mins(10);

/// Whether the cluster of this controller serves. The Nodes of `without` do not count.
pub async fn serves(root: &Path, without: &BTreeSet<String>) -> AgentResult<ClusterServes> {
    let NodeConfig::Controller(config) = node_files::config(root)?.0 else {
        return Err(AgentError::permanent(
            FailureCode::Usage,
            "this node is not a controller, and cannot say whether the cluster serves",
            "run this on a controller",
        ));
    };
    let (api_server, controller_manager, scheduler, etcd, nodes) = tokio::join!(
        component(root, &config, ComponentName::ApiServer),
        component(root, &config, ComponentName::ControllerManager),
        component(root, &config, ComponentName::Scheduler),
        etcd(root, &config),
        nodes(root, &config, without)
    );
    Ok(ClusterServes {
        api_server,
        controller_manager,
        scheduler,
        node_manager: node_manager(
            passes::last_pass(root),
            passes::last_failure(root).map(|failed| failed.words),
            Timestamp::now(),
        ),
        etcd,
        nodes,
    })
}

/// Whether a component of this machine answers as healthy. A controller manager or scheduler that does not lead does, too: it is ready to
/// take over (Kubernetes `client-go/tools/leaderelection`, `LeaderElector.Check`).
async fn component(root: &Path, config: &ControllerConfig, name: ComponentName) -> PartHealth {
    let components = listeners::components(root, &NodeConfig::Controller(Box::new(config.clone())));
    match components.iter().find(|component| component.name == name) {
        Some(component) => PartHealth::new(status::component_health(component).await.problem),
        None => PartHealth::new(Some(format!("this node has no {name}"))),
    }
}

/// Whether a node manager works whose last pass in which everything succeeded ended at that time.
fn node_manager(passed: Result<Timestamp, String>, failure: Option<String>, now: Timestamp) -> PartHealth {
    let problem = match passed {
        // A clock that was set back makes a pass seem to come from the future.
        Ok(at) if now.duration_since(at) <= PASSED => return PartHealth::new(None),
        Ok(at) => format!("its last complete pass ended {} minutes ago", now.duration_since(at).as_mins()),
        Err(why) => format!("no complete pass has ended since the machine was started: {why}"),
    };
    // The reason comes first: what is too long is cut.
    PartHealth::new(Some(match failure {
        Some(failure) => format!("{failure}; {problem}"),
        None => problem,
    }))
}

/// The members of etcd, each asked to read through a majority, and one of them for the alarms; empty if nobody knows them.
async fn etcd(root: &Path, config: &ControllerConfig) -> BTreeMap<String, PartHealth> {
    let pki = below(root, KUBERNETES_DIR);
    let identity = (pki.join("apiserver-etcd-client.pem"), pki.join("apiserver-etcd-client-key.pem"));
    let Ok(client) = EtcdClient::with(&pki.join("etcd-ca.pem"), (&identity.0, &identity.1)) else {
        return BTreeMap::new();
    };
    let mut members = Vec::new();
    for url in &config.control_plane.etcd_servers {
        if let Ok(Ok(found)) = timeout(MEMBER_TIMEOUT, client.endpoint(url).members()).await {
            members = found.members;
            break;
        }
    }
    let queries = members.iter().map(|member| async {
        match member.client_urls.first() {
            None => Some("it has not started yet".to_owned()),
            Some(_) if member.is_learner => Some("it is a learner without a vote".to_owned()),
            Some(url) => match timeout(MEMBER_TIMEOUT, client.endpoint(url).serves()).await {
                Ok(answer) => answer.err().map(|why| why.to_string()),
                Err(_) => Some(format!("it did not answer within {} s", MEMBER_TIMEOUT.as_secs())),
            },
        }
    });
    let problems = join_all(queries).await;
    let members: Vec<(Member, Option<String>)> = members.into_iter().zip(problems).collect();
    let alarms = match members.iter().find(|(_, problem)| problem.is_none()) {
        None => Ok(Alarms::default()),
        Some((member, _)) => {
            let url = member.client_urls.first().map_or("", String::as_str);
            match timeout(MEMBER_TIMEOUT, client.endpoint(url).alarms()).await {
                Ok(answer) => answer.map_err(|why| why.to_string()),
                Err(_) => Err(format!("{url} did not answer within {} s", MEMBER_TIMEOUT.as_secs())),
            }
        }
    };
    with_alarms(members, alarms)
}

/// The members with their problems, and the alarms of the cluster.
///
/// While an alarm is raised, a member that reads does not serve. Each member knows all alarms, because they go through the log. With
/// NOSPACE of one member, every member refuses to write and still reads (etcd `server/etcdserver/apply`: `applierV3Capped` refuses `Put`,
/// `Txn` and `LeaseGrant`, and not `Range`); so does it with CORRUPT (`applierV3Corrupt`). An alarm outlives its member, and CORRUPT names
/// member 0 if etcd does not know who is corrupt (`TriggerCorruptAlarm(0)` in `corrupt.go`). So an alarm is a problem of every member.
fn with_alarms(
    members: Vec<(Member, Option<String>)>,
    alarms: Result<Alarms, String>,
) -> BTreeMap<String, PartHealth> {
    let name = |member: &Member| if member.name.is_empty() { hex(member.id) } else { member.name.clone() };
    let alarm = match alarms {
        Ok(alarms) => {
            let raised = alarms.alarms.iter().map(|alarm| {
                let alarmed_member = members.iter().find(|(member, _)| member.id == alarm.member);
                let alarmed_member =
                    alarmed_member.map_or_else(|| hex(alarm.member), |(member, _)| name(member));
                format!("the alarm {} of {alarmed_member} is raised", alarm.kind)
            });
            raised.collect::<Vec<_>>().join("; ")
        }
        Err(why) => format!("the alarms are not known: {why}"),
    };
    let alarm = (!alarm.is_empty()).then_some(alarm);
    let judged = members
        .iter()
        .map(|(member, problem)| (name(member), PartHealth::new(problem.clone().or_else(|| alarm.clone()))));
    judged.collect()
}

/// The Nodes by role; `None` if the API server does not list them.
async fn nodes(
    root: &Path,
    config: &ControllerConfig,
    without: &BTreeSet<String>,
) -> Option<BTreeMap<String, NodesReady>> {
    let nodes = timeout(NODES_TIMEOUT, list(root)).await.ok()??;
    Some(counted(nodes, config.pod_network.external, without))
}

async fn list(root: &Path) -> Option<Vec<Node>> {
    api::nodes(&api::client(root).await.ok()?).await.ok()
}

/// Counts Nodes by the role of their machines. Nodes of others, which no group of the cluster has, do not count.
fn counted(
    nodes: Vec<Node>,
    external_network: bool,
    without: &BTreeSet<String>,
) -> BTreeMap<String, NodesReady> {
    let counted = nodes.into_iter().filter_map(|node| {
        let labels = node.metadata.labels.as_ref()?;
        let role = match labels.get(api::POOL) {
            Some(pool) => format!("pool-{pool}"),
            None if labels.contains_key(manage::CONTROLLER_LABEL) => "controller".to_owned(),
            None => return None,
        };
        let name = node.metadata.name.clone().unwrap_or_default();
        let problem = registration::problem(&name, node, external_network);
        Some((role, name, problem))
    });
    NodesReady::by_role(counted, without)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, labels: Value, conditions: Value) -> Node {
        serde_json::from_value(
            json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}),
        )
        .unwrap()
    }

    #[test]
    fn p11_nodes_are_counted_by_pool_and_only_those_whose_pods_have_a_network_are_ready() {
        let ready = json!({"type": "Ready", "status": "True"});
        let network = json!({"type": "NetworkUnavailable", "status": "False"});
        let pool = || json!({"slipway/pool": "a"});
        let nodes = || {
            vec![
                node("i-1", pool(), json!([ready, network])),
                node("i-2", pool(), json!([ready])),
                node(
                    "i-3",
                    pool(),
                    json!([{"type": "Ready", "status": "Unknown", "message": "Kubelet stopped"}]),
                ),
                node("i-4", json!({"node-role.kubernetes.io/control-plane": ""}), json!([ready, network])),
                node("somebody-elses", json!({}), json!([])),
            ]
        };
        let seen = counted(nodes(), false, &BTreeSet::new());
        assert_eq!(seen.keys().collect::<Vec<_>>(), ["controller", "pool-a"]);
        assert_eq!((seen["controller"].registered, seen["controller"].ready), (1, 1));
        let workers = &seen["pool-a"];
        assert_eq!((workers.registered, workers.ready), (3, 1));
        let named: Vec<&str> = workers.not_ready.iter().map(|one| one.node.as_str()).collect();
        assert_eq!(named, ["i-2", "i-3"]);
        assert!(workers.not_ready[1].why.contains("Kubelet stopped"));
        // The user installs the pod network, and perhaps later; a kubelet that stopped is no matter of the network.
        assert_eq!(counted(nodes(), true, &BTreeSet::new())["pool-a"].ready, 2);
        let without = BTreeSet::from(["i-1".to_owned(), "i-3".to_owned()]);
        let others = &counted(nodes(), false, &without)["pool-a"];
        assert_eq!((others.registered, others.ready, others.not_ready.len()), (1, 0, 1));
    }

    #[test]
    fn p11_an_alarm_makes_etcd_read_only_so_that_no_member_serves() {
        let members = || {
            let member = |id, name: &str| Member { id, name: name.to_owned(), ..Member::default() };
            vec![(member(1, "etcd-0"), None), (member(26, "etcd-1"), Some("refused".to_owned()))]
        };
        let judged = |alarms: Result<Value, String>| {
            let alarms = alarms.map(|alarms| serde_json::from_value(alarms).unwrap());
            with_alarms(members(), alarms).into_values().map(|one| one.problem).collect::<Vec<_>>()
        };
        let refused = || Some("refused".to_owned());
        assert_eq!(judged(Ok(json!({}))), [None, refused()]);
        let alarm = |id: &str, kind: &str| json!({"alarms": [{"memberID": id, "alarm": kind}]});
        let full = "the alarm NOSPACE of etcd-1 is raised".to_owned();
        assert_eq!(judged(Ok(alarm("26", "NOSPACE"))), [Some(full), refused()]);
        let gone = "the alarm CORRUPT of ff is raised".to_owned();
        assert_eq!(judged(Ok(alarm("255", "CORRUPT"))), [Some(gone), refused()]);
        let unknown = "the alarms are not known: refused".to_owned();
        assert_eq!(judged(Err("refused".to_owned())), [Some(unknown), refused()]);
    }

    #[test]
    fn p11_a_node_manager_works_if_a_complete_pass_has_ended_within_ten_minutes() {
        let now = Timestamp::from_second(10_000).unwrap();
        let ago = |minutes| Ok(now - SignedDuration::from_mins(minutes));
        let failure = || Some("addons: refused".to_owned());
        assert!(node_manager(ago(10), None, now).healthy && node_manager(ago(-5), None, now).healthy);
        assert!(node_manager(ago(10), failure(), now).healthy, "a pass may fail now and then");
        let late = "its last complete pass ended 11 minutes ago";
        assert_eq!(node_manager(ago(11), None, now).problem.unwrap(), late);
        assert_eq!(
            node_manager(ago(11), failure(), now).problem.unwrap(),
            format!("addons: refused; {late}")
        );
        let never = node_manager(Err("no such file".to_owned()), failure(), now);
        assert!(!never.healthy && never.problem.unwrap().starts_with("addons: refused; "));
    }

    #[test]
    fn p11_a_pass_counts_only_if_no_part_of_it_failed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert!(passes::last_pass(root).is_err());
        std::fs::create_dir_all(root.join("run/slipway-manage")).unwrap();
        let at = |second| Timestamp::from_second(second).unwrap();
        let passes = |second, parts: Value| {
            manage::has_ended(root, at(second), &Ok(parts));
            (passes::last_pass(root), passes::last_failure(root).map(|failed| failed.words))
        };
        let fresh = || json!({"node": {"labels": "kept"}, "addons": {"state": "fresh"}});
        assert_eq!(passes(100, fresh()), (Ok(at(100)), None));
        let error = json!({"code": "manage.api", "message": "refused", "help": "", "transient": true});
        let ill = json!({"node": {"error": error.clone()}, "addons": {"state": "fresh"}});
        assert_eq!(passes(200, ill), (Ok(at(100)), Some("node: refused".to_owned())));
        let object = json!({"object": "DaemonSet kube-system/a", "error": error});
        let part = json!({"addons": {"state": "incomplete", "failures": [object]}});
        let told = "addons: DaemonSet kube-system/a: refused".to_owned();
        assert_eq!(passes(300, part), (Ok(at(100)), Some(told.clone())));
        // Nothing is tried for some minutes: that is no success, and why it failed stays known.
        let rests = || json!({"addons": {"state": "resting", "why": "see the last answer"}});
        assert_eq!(passes(400, rests()), (Ok(at(100)), Some(told)));
        let failure = AgentError::transient(FailureCode::Usage, "the API does not answer", "");
        manage::has_ended(root, at(500), &Err(failure));
        assert_eq!(passes::last_failure(root).unwrap().words, "the API does not answer");
        assert_eq!(passes(600, fresh()), (Ok(at(600)), None));
        assert_eq!(passes(700, rests()), (Ok(at(600)), Some("addons: the last try failed".to_owned())));
    }
}
