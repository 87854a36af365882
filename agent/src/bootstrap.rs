//! `bootstrap`: from the files that the user data left in `/var/lib/slipway` to a healthy node whose launch hook is completed.
//!
//! Each of a role's [`steps`] compares the machine and AWS with what is wanted and does what is missing, so a run that was killed
//! at any point can be repeated. Progress is written down only for people; no decision reads it.
//!
//! - [`Bootstrap`]: this node's identity and configuration. [`run`](Bootstrap::run) goes through the steps, retries failures that
//!   may pass, keeps the launch hook waiting meanwhile, and abandons the launch after any other failure.
//! - [`after_reboot`]: the same steps after a reboot, on a node in service or still in its launch.
//! - [`etcd`]: files and units of an etcd member. [`custom`]: the user's own files, units and keys.
//! - [`report`]: progress on the machine, and the report in the asset bucket.

mod after_reboot;
mod custom;
mod etcd;
mod health;
mod report;
mod steps;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use slipway_core::digest::sha256_hex;
use slipway_core::node::{BootstrapState, NodeConfig, NodeFile};
use tokio::time::Instant;

use crate::aws::{Aws, Endpoints, Hook, HookResult, Instance};
use crate::credentials::below;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::apply::Host;
use crate::machine::commands::{Commands, System};
use crate::machine::files;
use crate::node_files::HOME;
pub use etcd::{LABEL, founding_flags};
pub(crate) use health::is_up;
pub use steps::Step;

#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The whole bootstrap. An etcd member's launch hook waits half an hour, and heartbeats extend it.
    pub whole: Duration,
    /// A denied call is retried this long: IAM is eventually consistent.
    pub permissions: Duration,
    /// The first pause between two tries; it doubles up to `longest`.
    pub first: Duration,
    pub longest: Duration,
    pub heartbeat: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            whole: Duration::from_secs(2700),
            permissions: Duration::from_secs(600),
            first: Duration::from_millis(250),
            longest: Duration::from_secs(5),
            heartbeat: Duration::from_secs(60),
        }
    }
}

#[derive(Debug)]
pub struct Bootstrap<C> {
    node: NodeFile,
    config: NodeConfig,
    instance: Instance,
    aws: Aws,
    host: Host<C>,
    patience: Patience,
    /// Whether the node has been in service.
    served: bool,
}

/// The verb. `after_reboot` is set on a node in service.
pub async fn perform(root: &Path, endpoints: &Endpoints, after_reboot: bool) -> AgentResult<Value> {
    // The user data runs under a umask that would keep other users out of the programs' folders. Secret files get their mode
    // where they are written.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let node = node_file(root)?;
    let aws = Aws::new(endpoints, &node.region)?;
    let host = Host { root: root.to_owned(), commands: System };
    match Bootstrap::read(host, aws.clone(), Patience::default()).await {
        Ok(bootstrap) if after_reboot => bootstrap.run_after_reboot().await,
        Ok(bootstrap) => bootstrap.run().await,
        Err(failure) if after_reboot => Err(failure),
        Err(failure) => {
            report::report_unreadable(&aws, &node, &failure).await;
            Err(failure)
        }
    }
}

fn node_file(root: &Path) -> AgentResult<NodeFile> {
    let node: NodeFile = serde_json::from_str(&text(root, "node.json")?).map_err(|error| {
        damaged("node.json", &error.to_string(), "the user data writes it: replace this instance")
    })?;
    if node.format == NodeFile::FORMAT {
        return Ok(node);
    }
    let problem = format!("it has format {}, and this agent knows {}", node.format, NodeFile::FORMAT);
    Err(damaged("node.json", &problem, "publish the agent that belongs to it, then render the cluster again"))
}

fn text(root: &Path, name: &str) -> AgentResult<String> {
    let bytes = bytes(root, name)?;
    String::from_utf8(bytes).map_err(|_| {
        damaged(name, "it is not UTF-8 text", "run the instance's user data again, which fetches it")
    })
}

fn bytes(root: &Path, name: &str) -> AgentResult<Vec<u8>> {
    files::read(&below(root, &format!("{HOME}/{name}")))?
        .ok_or_else(|| damaged(name, "it is missing", "run the instance's user data, which fetches it"))
}

fn damaged(name: &str, problem: &str, help: &str) -> AgentError {
    AgentError::permanent(FailureCode::BootstrapInput, format!("{HOME}/{name}: {problem}"), help)
}

impl<C: Commands> Bootstrap<C> {
    /// Reads this node's identity and configuration. Changes nothing.
    pub async fn read(host: Host<C>, aws: Aws, patience: Patience) -> AgentResult<Self> {
        let node = node_file(&host.root)?;
        let config = text(&host.root, "config.json")?;
        let fetched = "remove it and run the instance's user data again, which fetches it";
        let digest = sha256_hex(config.as_bytes());
        if digest != node.config {
            let problem = format!("its SHA-256 is {digest}, and node.json says {}", node.config);
            return Err(damaged("config.json", &problem, fetched));
        }
        let config = NodeConfig::read(&config).map_err(|error| {
            damaged(
                "config.json",
                &error.to_string(),
                "publish the agent that belongs to it, then render the cluster again",
            )
        })?;
        let base = config.base();
        if (&base.role, &base.cluster) != (&node.role, &node.cluster) {
            let problem = format!(
                "it is for the role {} of the cluster {}, but node.json names another role or cluster",
                base.role, base.cluster
            );
            return Err(damaged("config.json", &problem, fetched));
        }
        let instance = aws.imds().instance().await?;
        Ok(Self { node, config, instance, aws, host, patience, served: false })
    }

    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        Step::of_role(&self.config)
    }

    /// Goes through all steps. On failure, the reason was reported and the launch abandoned.
    pub async fn run(&self) -> AgentResult<Value> {
        let steps = self.steps();
        match self.go_through_with_heartbeats(&steps).await {
            Ok(()) => Ok(self.report_healthy(&steps).await),
            Err((step, failure)) => {
                // Beside each other: where S3 does not answer, the group must not wait for the report before it launches another machine.
                let report = self.publish_report(BootstrapState::GivenUp, Some(step), Some(&failure));
                tokio::join!(report, self.give_up());
                Err(failure)
            }
        }
    }

    /// [`Self::go_through`], while heartbeats keep the launch hook waiting. They end with this function, so the hook times out if the agent
    /// dies.
    async fn go_through_with_heartbeats(&self, steps: &[Step]) -> Result<(), (Step, AgentError)> {
        let hook = self.hook();
        let heartbeats = async {
            loop {
                tokio::time::sleep(self.patience.heartbeat).await;
                // The next heartbeat makes up for a missed one.
                let _ = self.aws.heartbeat(&hook).await;
            }
        };
        tokio::select! {
            worked = self.go_through(steps) => worked,
            never = heartbeats => never,
        }
    }

    async fn go_through(&self, steps: &[Step]) -> Result<(), (Step, AgentError)> {
        let begun = Instant::now();
        for &step in steps {
            self.write_progress(BootstrapState::Working, Some(step), None);
            let mut pause = self.patience.first;
            let mut published = None;
            loop {
                let failure = match self.perform(step).await {
                    Ok(()) => break,
                    Err(failure) => failure,
                };
                // A new IAM role is not known everywhere at once, so a denied call may succeed in a minute.
                let settling =
                    failure.code == FailureCode::AwsDenied && begun.elapsed() < self.patience.permissions;
                if !(failure.transient || settling) || begun.elapsed() >= self.patience.whole {
                    return Err((step, failure));
                }
                self.write_progress(BootstrapState::Working, Some(step), Some(&failure));
                // Report a failure that lasts, once; skip those that pass quickly.
                if pause >= self.patience.longest && published.as_ref() != Some(&failure.message) {
                    self.publish_report(BootstrapState::Working, Some(step), Some(&failure)).await;
                    published = Some(failure.message);
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(self.patience.longest);
            }
        }
        Ok(())
    }

    fn hook(&self) -> Hook {
        let base = self.config.base();
        Hook {
            group: base.auto_scaling_group.clone(),
            name: base.launch_hook.clone(),
            instance: self.instance.id.clone(),
        }
    }

    /// Abandons the launch, so that the group replaces this instance. It has no effect on an instance in service, which only its
    /// group or a person may terminate.
    async fn give_up(&self) {
        // If the call fails, the hook's timeout abandons the launch.
        let _ = self.aws.complete_hook(&self.hook(), HookResult::Abandon).await;
    }
}
