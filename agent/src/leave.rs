//! `leave`: shuts down an etcd member or a controller in order while its terminate hook waits.
//!
//! A unit runs it all the time and polls the metadata service for this instance's target state. Only after two readings, some
//! seconds apart and of the same instance, say `Terminated`, it acts: a member hands over leadership and stops etcd, so that its
//! volume is free and clean for the next machine; a controller's kubelet ends its static pods. Then the hook is completed before
//! its timeout.
//!
//! **A member without which etcd has no majority stays** until its hook times out: another member may come back meanwhile. A
//! worker's hook is completed by the rollout that drains it.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_core::node::{EtcdConfig, EtcdHealth, NodeConfig, NodeFile};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::aws::{Aws, Endpoints, Hook, HookResult};
use crate::credentials::below;
use crate::etcd::SERVICE as ETCD_SERVICE;
use crate::etcd::health::health;
use crate::etcd::leader::move_leader;
use crate::etcd::local_member::LocalMember;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::Unit;
use crate::machine::apply::Host;
use crate::machine::commands::{Commands, System};
use crate::machine::disk;
use crate::node_files::HOME;
use crate::static_pods::{MANIFESTS, STATIC_PODS};

/// The lifecycle state that the group intends for this instance.
const TARGET: &str = "autoscaling/target-lifecycle-state";
/// Exists only during the two minutes before EC2 reclaims a spot instance.
const SPOT: &str = "spot/instance-action";
/// Where the manifests of stopped pods are moved.
const STOPPED: &str = "/var/lib/slipway/stopped";

#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Between two polls.
    pub pause: Duration,
    /// The two readings must agree.
    pub between_readings: Duration,
    /// For the load balancer to stop sending requests here.
    pub balancer: Duration,
    /// For the API server to stop.
    pub ending: Duration,
}

impl Default for Patience {
    /// Well below the hooks' timeouts: 600 s for a member, 900 s for a controller.
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(5),
            between_readings: Duration::from_secs(2),
            balancer: Duration::from_secs(30),
            ending: Duration::from_secs(120),
        }
    }
}

#[derive(Debug)]
pub struct Leaving<C> {
    config: NodeConfig,
    aws: Aws,
    host: Host<C>,
    patience: Patience,
}

/// The verb. It returns when the node has left. Workers are refused.
pub async fn perform(root: &Path, endpoints: &Endpoints) -> AgentResult<Value> {
    let node: NodeFile =
        serde_json::from_str(&read(root, "node.json")?).map_err(|error| unreadable(&error))?;
    let host = Host { root: root.to_owned(), commands: System };
    let patience = Patience::default();
    let leaving = Leaving::read(host, Aws::new(endpoints, &node.region)?, patience)?;
    let mut printed = None;
    loop {
        match leaving.pass().await {
            Ok(Some(lifecycle)) => return Ok(lifecycle),
            Ok(None) => {}
            // Log each failure once.
            Err(failure) if printed.as_ref() != Some(&failure.message) => {
                let _ = writeln!(std::io::stderr(), "{}: {}", failure.message, failure.help);
                printed = Some(failure.message);
            }
            Err(_) => {}
        }
        sleep(patience.pause).await;
    }
}

fn read(root: &Path, name: &str) -> AgentResult<String> {
    fs::read_to_string(below(root, &format!("{HOME}/{name}"))).map_err(|error| unreadable(&error))
}

fn unreadable(problem: &dyn std::fmt::Display) -> AgentError {
    AgentError::permanent(
        FailureCode::LeaveUnreadable,
        format!("this node's configuration cannot be read: {problem}"),
        "the user data writes it: replace this instance",
    )
}

/// The unit that runs it on etcd members and controllers.
#[must_use]
pub fn unit() -> Unit {
    let content = "[Unit]\nDescription=Slipway: leave when the group takes this node away\n\
                   After=network-online.target\nWants=network-online.target\nStartLimitIntervalSec=0\n\n\
                   [Service]\nExecStart=/var/lib/slipway/slipway-node leave\n\
                   # After a success there is nothing more to do.\nRestart=on-failure\nRestartSec=10\nNice=5\n\n\
                   [Install]\nWantedBy=multi-user.target\n";
    Unit { name: "slipway-leave.service".to_owned(), content: Some(content.to_owned()) }
}

impl<C: Commands> Leaving<C> {
    pub fn read(host: Host<C>, aws: Aws, patience: Patience) -> AgentResult<Self> {
        let text = read(&host.root, "config.json")?;
        let config = NodeConfig::read(&text).map_err(|error| unreadable(&error))?;
        match config {
            NodeConfig::Worker(_) => Err(AgentError::permanent(
                FailureCode::LeaveWorker,
                "a worker's terminate hook is completed by the rollout that drains it, not by this verb",
                "run this on an etcd member or a controller",
            )),
            NodeConfig::Etcd(_) | NodeConfig::Controller(_) => Ok(Self { config, aws, host, patience }),
        }
    }

    /// One poll. Returns what was done if this node has left. After an error the next poll tries again.
    pub async fn pass(&self) -> AgentResult<Option<Value>> {
        let Some(instance) = self.terminated().await? else {
            if let NodeConfig::Etcd(config) = &self.config
                && self.aws.imds().find(SPOT).await?.is_some()
            {
                // EC2 stops a spot instance itself; until then another member should lead.
                move_leader(&self.local(config)).await?;
            }
            return Ok(None);
        };
        sleep(self.patience.between_readings).await;
        if self.terminated().await?.as_ref() != Some(&instance) {
            return Ok(None);
        }
        match &self.config {
            NodeConfig::Etcd(config) => self.stop_member(config).await?,
            NodeConfig::Controller(config) => self.stop_control_plane(config.control_plane.bind_port).await?,
            NodeConfig::Worker(_) => return Ok(None),
        }
        let base = self.config.base();
        let hook = Hook {
            group: base.auto_scaling_group.clone(),
            name: base.terminate_hook.clone(),
            instance: instance.clone(),
        };
        // If no action is pending, the hook timed out and the instance is terminated anyway.
        let waited = self.aws.complete_hook(&hook, HookResult::Continue).await?;
        Ok(Some(json!({ "instance": instance, "role": base.role, "left": true, "hookWaited": waited })))
    }

    /// This instance's id, if it is about to be terminated.
    async fn terminated(&self) -> AgentResult<Option<String>> {
        let target = self.aws.imds().find(TARGET).await?;
        if target.as_deref().map(str::trim) != Some("Terminated") {
            return Ok(None);
        }
        Ok(Some(self.aws.imds().instance().await?.id))
    }

    fn local(&self, config: &EtcdConfig) -> LocalMember {
        LocalMember { root: self.host.root.clone(), config: config.clone() }
    }

    async fn stop_member(&self, config: &EtcdConfig) -> AgentResult<()> {
        let local = self.local(config);
        // A member that does not answer does not count for the majority.
        if let Ok(health) = health(&local).await {
            refuse_without_majority(&health)?;
            // If this fails, the others elect a leader after a timeout.
            let _ = move_leader(&local).await;
        }
        self.host.commands.run_checked("systemctl", &["stop", ETCD_SERVICE]).await?;
        // Even if the mount is busy: the data are synced, and EC2 detaches the volume of a terminated instance.
        let mount = disk::mount_unit(&config.data_volume.mount_point);
        self.host.commands.run("systemctl", &["stop", &mount]).await.map(drop)
    }

    /// The kubelet gracefully ends pods whose manifest is gone.
    async fn stop_control_plane(&self, port: u16) -> AgentResult<()> {
        sleep(self.patience.balancer).await;
        let (from, to) = (self.host.below(MANIFESTS), self.host.below(STOPPED));
        let failed = |error: std::io::Error| {
            AgentError::transient(
                FailureCode::LeaveFiles,
                format!("{}: {error}", to.display()),
                "see that the disk has room and is mounted writable",
            )
        };
        fs::create_dir_all(&to).map_err(failed)?;
        for name in STATIC_PODS {
            let file = format!("{name}.json");
            match fs::rename(from.join(&file), to.join(&file)) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
        let begun = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        // Continue even if the pod does not end: no requests arrive here any more.
        while begun.elapsed() < self.patience.ending {
            let connected = timeout(Duration::from_secs(1), TcpStream::connect(address)).await;
            if !connected.is_ok_and(|connected| connected.is_ok()) {
                break;
            }
            sleep(Duration::from_millis(500).min(self.patience.ending)).await;
        }
        Ok(())
    }
}

/// Refuses if this member serves and the others alone have no majority.
fn refuse_without_majority(health: &EtcdHealth) -> AgentResult<()> {
    let voters: Vec<_> = health.members.iter().filter(|member| !member.learner).collect();
    let own = health.id.as_ref();
    let is_voter = voters.iter().any(|member| Some(&member.id) == own);
    let others = voters.iter().filter(|member| Some(&member.id) != own && member.reachable).count();
    // A single member has no others to wait for.
    if !health.serving || !is_voter || voters.len() < 2 || others > voters.len() / 2 {
        return Ok(());
    }
    Err(AgentError::transient(
        FailureCode::LeaveNoMajority,
        format!(
            "without {} the etcd cluster has no majority: only {others} of its {} voters can be reached besides it",
            health.name,
            voters.len()
        ),
        "the member stays until its terminate hook times out: bring the other members back meanwhile",
    ))
}

#[cfg(test)]
mod tests {
    use slipway_core::node::EtcdMemberHealth;

    use super::*;

    fn health(serving: bool, reachable: &[bool]) -> EtcdHealth {
        let member = |(number, reachable): (usize, &bool)| EtcdMemberHealth {
            id: number.to_string(),
            reachable: *reachable,
            ..EtcdMemberHealth::default()
        };
        EtcdHealth {
            id: Some("0".to_owned()),
            serving,
            members: reachable.iter().enumerate().map(member).collect(),
            ..EtcdHealth::default()
        }
    }

    #[test]
    fn p4_a_member_goes_only_where_the_others_are_a_majority() {
        assert!(refuse_without_majority(&health(true, &[true, true, true])).is_ok());
        for last in [&[true, true, false][..], &[true, true], &[true, true, true, false, false]] {
            assert!(
                refuse_without_majority(&health(true, last)).is_err_and(|failure| failure.transient),
                "{last:?}"
            );
        }
        // A single member, and one that does not serve.
        assert!(refuse_without_majority(&health(true, &[true])).is_ok());
        assert!(refuse_without_majority(&health(false, &[true, false, false])).is_ok());
    }

    #[test]
    fn p4_a_learner_is_no_part_of_the_majority() {
        let mut three = health(true, &[true, true, true]);
        three.members[2].learner = true;
        assert!(refuse_without_majority(&three).is_err());
    }
}
