//! Nodes whose machines are gone: which they are, by EC2, and that they are deleted.
//!
//! **A Node that is Ready proves no machine.** Whoever was root on a worker and copied its kubelet's key keeps the Node Ready from anywhere, for
//! as long as the certificate is valid. The cloud controller manager deletes Nodes of instances that are gone, but asks only about those that are
//! not Ready (`MonitorNodes` in kubernetes `staging/src/k8s.io/cloud-provider/controllers/nodelifecycle/node_lifecycle_controller.go`), and by
//! the `providerID` that a kubelet writes itself. So the node manager asks about all, by their names, which are ids that AWS never gives again.
//! "Gone" means what it means there: terminated, or unknown to EC2 (`InstanceExistsByProviderID` in kubernetes/cloud-provider-aws
//! `pkg/providers/v1/aws.go`).
//!
//! **A wrong answer must not eat a cluster.** A Node is deleted only if its controller has found it gone in two looks that are ten minutes apart,
//! and only a few at a time. An answer counts only if this controller is in it, so that one for another account or region proves nothing.

use std::collections::BTreeMap;
use std::path::Path;

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Preconditions};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slipway_core::node::is_instance;

use super::Site;
use super::judge::Machine;
use super::sources::Cloud;
use crate::api::{self, failed, status};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::workers_seen::unkept;

/// What was found gone. It is lost with a restart of the machine, as it should be.
const SEEN: &str = "/run/slipway-manage/terminated_nodes.json";
/// Seconds between two looks, and so from the first look that finds a Node's machine gone to the one that deletes it.
const LOOK_S: u64 = 600;
/// Nodes that EC2 is asked about in one look, in 25 calls of 200. Kubernetes supports no more:
/// <https://kubernetes.io/docs/setup/best-practices/cluster-large/>
const ASKED_AT_MOST: usize = 5000;
/// Nodes that one look deletes.
const DELETED_AT_MOST: usize = 5;
/// The state of an instance that never comes back. EC2 shows it for about an hour (EC2 user guide, "Terminate Amazon EC2 instances").
const TERMINATED: &str = "terminated";

/// The machines of these Nodes, or of the first ones if there are more than EC2 is asked about at once.
pub(super) async fn ask<'n>(
    cloud: &impl Cloud,
    nodes: impl IntoIterator<Item = &'n str>,
) -> AgentResult<Asked<'n>> {
    let ids: Vec<&str> = nodes.into_iter().take(ASKED_AT_MOST).collect();
    let found = if ids.is_empty() { BTreeMap::new() } else { cloud.machines(&ids).await? };
    Ok(Asked { ids, found })
}

/// What EC2 said about some Nodes.
pub(super) struct Asked<'n> {
    ids: Vec<&'n str>,
    found: BTreeMap<String, Machine>,
}

impl Asked<'_> {
    /// The Nodes whose machines are gone.
    pub(super) fn gone(&self) -> impl Iterator<Item = &str> {
        let machine = |id: &str| self.found.get(id);
        let gone = move |id: &&str| machine(id).is_none_or(|machine| machine.state == TERMINATED);
        self.ids.iter().copied().filter(gone)
    }
}

/// What one controller has found gone, by a clock that only goes forward.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    /// The time of its last look, in seconds since the machine was started.
    looked_s: Option<u64>,
    /// Since when the machine of each Node has been gone in each look. By name and not by UID: whoever has a kubelet's key registers its Node
    /// again in no time.
    gone_s: BTreeMap<String, u64>,
}

impl Seen {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, path: &Path) -> AgentResult<()> {
        let text = serde_json::to_string(self).expect("it has string keys only");
        let parent = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        parent.and_then(|()| std::fs::write(path, text)).map_err(|error| unkept(path, &error))
    }

    fn is_due(&self, now_s: u64) -> bool {
        self.looked_s.is_none_or(|last| now_s < last || now_s - last >= LOOK_S)
    }

    /// Notes a look that found these gone. Those that were gone ten minutes ago and ever since are returned.
    fn look<'n>(&mut self, gone: impl Iterator<Item = &'n str>, now_s: u64) -> Vec<String> {
        let before = std::mem::take(&mut self.gone_s);
        // A machine that was restarted counts from zero.
        let since = |name: &str| before.get(name).copied().filter(|since| *since <= now_s).unwrap_or(now_s);
        self.gone_s = gone.map(|name| (name.to_owned(), since(name))).collect();
        self.looked_s = Some(now_s);
        let long = self.gone_s.iter().filter(|(_, since)| now_s - **since >= LOOK_S);
        long.map(|(name, _)| name.clone()).collect()
    }
}

/// Looks at all Nodes if that is due, and deletes a few of those whose machines have been gone for long enough.
pub(super) async fn delete(
    client: &Client,
    cloud: &impl Cloud,
    site: &Site,
    uptime_s: AgentResult<u64>,
) -> AgentResult<Value> {
    let (now_s, path) = (uptime_s?, below(&site.root, SEEN));
    let mut seen = Seen::read(&path);
    if !seen.is_due(now_s) {
        return Ok(json!({ "state": "rests" }));
    }
    let nodes = api::nodes(client).await.map_err(|error| failed("the Nodes", &error))?;
    let nodes: BTreeMap<String, Option<String>> = nodes
        .into_iter()
        .filter_map(|node| Some((node.metadata.name.filter(|name| is_instance(name))?, node.metadata.uid)))
        .collect();
    let mut gone = Vec::new();
    if !nodes.is_empty() {
        // An error is no look: the next pass asks again, and nothing that was seen is forgotten.
        let own = site.node.as_str();
        let others = nodes.keys().map(String::as_str).filter(|name| *name != own);
        let asked = ask(cloud, [own].into_iter().chain(others)).await?;
        if asked.gone().any(|name| name == own) {
            return Err(AgentError::transient(
                FailureCode::ManageAws,
                format!(
                    "EC2 answers that this controller, {own}, does not exist, so its answers about other Nodes are ignored"
                ),
                "the next pass asks again; if it stays, see what answers for EC2's endpoint in this network",
            ));
        }
        gone.extend(asked.gone().map(str::to_owned));
    }
    let long = seen.look(gone.iter().map(String::as_str), now_s);
    seen.write(&path)?;
    let all = Api::<Node>::all(client.clone());
    let mut deleted = Vec::new();
    for name in long.into_iter().take(DELETED_AT_MOST) {
        let uid = nodes.get(&name).cloned().flatten();
        let that_one = Preconditions { uid, resource_version: None };
        match all.delete(&name, &DeleteParams::default().preconditions(that_one)).await {
            Ok(_) => deleted.push(name),
            // Another controller was first.
            Err(error) if matches!(status(&error), Some(404 | 409)) => {}
            Err(error) => return Err(failed(&format!("the node {name}"), &error)),
        }
    }
    Ok(json!({ "state": "looked", "gone": gone, "deleted": deleted }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_gone_for_long_enough_in_the_second_of_two_looks_ten_minutes_apart() {
        let mut seen = Seen::default();
        let mut look = |gone: &[&str], now_s| {
            assert!(seen.is_due(now_s), "{now_s}");
            let long = seen.look(gone.iter().copied(), now_s);
            assert!(!seen.is_due(now_s) && !seen.is_due(now_s + LOOK_S - 1), "{now_s}");
            long
        };
        assert_eq!(look(&["i-1"], 1000), [""; 0]);
        // Another one is gone since.
        assert_eq!(look(&["i-1", "i-2"], 1600), ["i-1"]);
        // EC2 knows it again: a wrong answer in between.
        assert_eq!(look(&["i-2"], 2200), ["i-2"]);
        assert_eq!(look(&["i-1", "i-2"], 2800), ["i-2"]);
        // The controller was restarted, and what was left of the folder is older than that.
        assert_eq!(look(&["i-1", "i-2"], 50), [""; 0]);
    }

    #[test]
    fn what_cannot_be_read_was_not_seen() {
        let root = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = below(root.path(), SEEN);
        assert_eq!(Seen::read(&path), Seen::default());
        let mut seen = Seen::default();
        seen.look(["i-1"].into_iter(), 7);
        assert!(seen.write(&path).is_ok());
        assert_eq!(Seen::read(&path), seen);
        assert!(std::fs::write(&path, "no JSON").is_ok());
        assert_eq!(Seen::read(&path), Seen::default());
    }
}
