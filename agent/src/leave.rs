//! `leave`: what an etcd member and a controller do when their group takes them away, while their terminate hook waits.
//!
//! A unit runs it all the time; it asks the metadata service what is to become of this instance. Only where that says twice, some
//! seconds apart and of the same instance, that it is to be terminated, anything is stopped: a member hands leadership on and stops
//! etcd, so that its volume is free and clean when the next one wants it; a controller's API server ends as its kubelet ends it. Then
//! the hook goes on, instead of waiting for its time.
//!
//! **A member without which there is no majority stays**: its hook's whole time is time in which another may come back. A worker's
//! hook is not ours: whoever drains the node settles it.

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
use crate::bootstrap::{ETCD_SERVICE, HOME};
use crate::credentials::below;
use crate::etcd::health::health;
use crate::etcd::leader::move_leader;
use crate::etcd::place::Place;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::kube::{MANIFESTS, STATIC_PODS};
use crate::machine::Unit;
use crate::machine::apply::Host;
use crate::machine::commands::{Commands, System};
use crate::machine::disk;

/// What becomes of this instance, once its group has decided.
const TARGET: &str = "autoscaling/target-lifecycle-state";
/// There only when EC2 takes a spot instance back, two minutes before.
const SPOT: &str = "spot/instance-action";
/// Where manifests go whose pods are to end.
const STOPPED: &str = "/var/lib/slipway/stopped";

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Between two looks.
    pub pause: Duration,
    /// Between the two that must agree.
    pub again: Duration,
    /// For a load balancer to send nobody here any more.
    pub balancer: Duration,
    /// For the API server to end.
    pub ending: Duration,
}

impl Default for Patience {
    /// Well inside of a member's hook, 600 s, and a controller's, 900 s.
    fn default() -> Self {
        Self {
            pause: Duration::from_secs(5),
            again: Duration::from_secs(2),
            balancer: Duration::from_secs(30),
            ending: Duration::from_secs(120),
        }
    }
}

/// A node that may have to go.
#[derive(Debug)]
pub struct Leaving<C> {
    config: NodeConfig,
    aws: Aws,
    host: Host<C>,
    patience: Patience,
}

/// The verb: it ends when the node has left.
///
/// # Errors
/// If this node has no hook to settle.
pub async fn perform(root: &Path, endpoints: &Endpoints) -> Outcome<Value> {
    let node: NodeFile =
        serde_json::from_str(&read(root, "node.json")?).map_err(|error| unreadable(&error))?;
    let host = Host { root: root.to_owned(), commands: System };
    let patience = Patience::default();
    let leaving = Leaving::read(host, Aws::new(endpoints, &node.region)?, patience)?;
    let mut told = None;
    loop {
        match leaving.pass().await {
            Ok(Some(left)) => return Ok(left),
            Ok(None) => {}
            // Into the journal, once.
            Err(failure) if told.as_ref() != Some(&failure.message) => {
                let _ = writeln!(std::io::stderr(), "{}: {}", failure.message, failure.help);
                told = Some(failure.message);
            }
            Err(_) => {}
        }
        sleep(patience.pause).await;
    }
}

fn read(root: &Path, name: &str) -> Outcome<String> {
    fs::read_to_string(below(root, &format!("{HOME}/{name}"))).map_err(|error| unreadable(&error))
}

fn unreadable(problem: &dyn std::fmt::Display) -> Failure {
    Failure::lasting(
        FailureCode::LeaveUnreadable,
        format!("what this node was told cannot be read: {problem}"),
        "it comes with the userdata: let this instance be replaced",
    )
}

/// What runs it on etcd members and controllers.
#[must_use]
pub fn unit() -> Unit {
    let content = "[Unit]\nDescription=Slipway: leave when the group takes this node away\n\
                   After=network-online.target\nWants=network-online.target\nStartLimitIntervalSec=0\n\n\
                   [Service]\nExecStart=/var/lib/slipway/slipway-node leave\n\
                   # Once it has left, nothing is to be done any more.\nRestart=on-failure\nRestartSec=10\nNice=5\n\n\
                   [Install]\nWantedBy=multi-user.target\n";
    Unit { name: "slipway-leave.service".to_owned(), content: Some(content.to_owned()) }
}

impl<C: Commands> Leaving<C> {
    /// Reads who this node is.
    ///
    /// # Errors
    /// If its configuration cannot be read, or it is a worker.
    pub fn read(host: Host<C>, aws: Aws, patience: Patience) -> Outcome<Self> {
        let text = read(&host.root, "config.json")?;
        let config = NodeConfig::read(&text).map_err(|error| unreadable(&error))?;
        match config {
            NodeConfig::Worker(_) => Err(Failure::lasting(
                FailureCode::LeaveWorker,
                "a worker does not settle its terminate hook: whoever drains it does",
                "run this on an etcd member or a controller",
            )),
            NodeConfig::Etcd(_) | NodeConfig::Controller(_) => Ok(Self { config, aws, host, patience }),
        }
    }

    /// Looks once; what was done, if this node has left.
    ///
    /// # Errors
    /// If something cannot be asked for or done: it is tried again with the next.
    pub async fn pass(&self) -> Outcome<Option<Value>> {
        let Some(instance) = self.terminated().await? else {
            if let NodeConfig::Etcd(config) = &self.config
                && self.aws.imds().find(SPOT).await?.is_some()
            {
                // It goes without asking, and stopping it is EC2's: somebody else leads until then.
                move_leader(&self.place(config)).await?;
            }
            return Ok(None);
        };
        sleep(self.patience.again).await;
        if self.terminated().await?.as_ref() != Some(&instance) {
            return Ok(None);
        }
        match &self.config {
            NodeConfig::Etcd(config) => self.member_goes(config).await?,
            NodeConfig::Controller(config) => self.controller_goes(config.control_plane.bind_port).await?,
            NodeConfig::Worker(_) => return Ok(None),
        }
        let base = self.config.base();
        let hook = Hook {
            group: base.auto_scaling_group.clone(),
            name: base.terminate_hook.clone(),
            instance: instance.clone(),
        };
        // One that waits for nothing has timed out: the instance goes all the same.
        let waited = self.aws.settle(&hook, HookResult::Continue).await?;
        Ok(Some(json!({ "instance": instance, "role": base.role, "left": true, "hookWaited": waited })))
    }

    /// This instance's id, if it is to be terminated.
    async fn terminated(&self) -> Outcome<Option<String>> {
        let target = self.aws.imds().find(TARGET).await?;
        if target.as_deref().map(str::trim) != Some("Terminated") {
            return Ok(None);
        }
        Ok(Some(self.aws.imds().instance().await?.id))
    }

    fn place(&self, config: &EtcdConfig) -> Place {
        Place { root: self.host.root.clone(), config: config.clone() }
    }

    async fn member_goes(&self, config: &EtcdConfig) -> Outcome<()> {
        let place = self.place(config);
        // One that does not answer is no part of a majority.
        if let Ok(health) = health(&place).await {
            refuse_last(&health)?;
            // Who cannot hand it on leaves an election behind.
            let _ = move_leader(&place).await;
        }
        self.host.commands.must("systemctl", &["stop", ETCD_SERVICE]).await?;
        // Busy or not: the data are synced, and EC2 detaches the volume from what has ended.
        let mount = disk::mount_unit(&config.data_volume.mount_point);
        self.host.commands.run("systemctl", &["stop", &mount]).await.map(drop)
    }

    /// The kubelet ends the pods of manifests that are gone, gracefully.
    async fn controller_goes(&self, port: u16) -> Outcome<()> {
        sleep(self.patience.balancer).await;
        let (from, to) = (self.host.below(MANIFESTS), self.host.below(STOPPED));
        let failed = |error: std::io::Error| {
            Failure::passing(
                FailureCode::LeaveFiles,
                format!("{}: {error}", to.display()),
                "see that the disk has room and is no read-only one",
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
        // It goes even if the pod does not end: nobody is sent here any more.
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

/// A member that serves, and whose fellows alone are no majority.
fn refuse_last(health: &EtcdHealth) -> Outcome<()> {
    let voters: Vec<_> = health.members.iter().filter(|member| !member.learner).collect();
    let own = health.id.as_ref();
    let is_voter = voters.iter().any(|member| Some(&member.id) == own);
    let others = voters.iter().filter(|member| Some(&member.id) != own && member.reachable).count();
    // The only one there is has nobody to wait for.
    if !health.serving || !is_voter || voters.len() < 2 || others > voters.len() / 2 {
        return Ok(());
    }
    Err(Failure::passing(
        FailureCode::LeaveMajority,
        format!(
            "without {} the cluster has no majority: {others} others of {} can be reached",
            health.name,
            voters.len()
        ),
        "it stays until its terminate hook has waited its time: bring the others back meanwhile",
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
        assert!(refuse_last(&health(true, &[true, true, true])).is_ok());
        for last in [&[true, true, false][..], &[true, true], &[true, true, true, false, false]] {
            assert!(refuse_last(&health(true, last)).is_err_and(|failure| failure.passing), "{last:?}");
        }
        // There is nothing to lose.
        assert!(refuse_last(&health(true, &[true])).is_ok());
        assert!(refuse_last(&health(false, &[true, false, false])).is_ok());
    }
}
