//! `bootstrap`: from what userdata left in `/var/lib/slipway` to a healthy node whose launch hook is settled.
//!
//! A role is brought up in [`steps`]. Each looks at the machine and at AWS as they are and does what is missing, so that whoever is
//! killed anywhere and run again ends the same; what was done is written down to tell people, and decides nothing.
//!
//! - [`Bootstrap`]: who this node is, and what it takes. [`run`](Bootstrap::run) goes through the steps, tries again what may pass,
//!   keeps the launch hook waiting meanwhile, and gives the instance up for what does not pass.
//! - [`again`]: the same after a reboot, on a node that is in service.
//! - [`etcd`]: what a member wants on its machine. [`users`]: the user's own files, units and keys.
//! - [`telling`]: progress, and the report in the asset bucket.

mod again;
mod etcd;
mod health;
mod steps;
mod telling;
mod users;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use slipway_core::digest::sha256_hex;
use slipway_core::node::{BootstrapState, NodeConfig, NodeFile};
use tokio::time::Instant;

use crate::aws::{Aws, Endpoints, Hook, HookResult, Instance};
use crate::credentials::below;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::apply::Host;
use crate::machine::commands::{Commands, System};
use crate::machine::files;
pub use etcd::{LABEL, SERVICE as ETCD_SERVICE};
pub(crate) use health::is_up;
pub use steps::Step;

/// Where userdata puts what a node takes.
pub const HOME: &str = "/var/lib/slipway";

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// All of it; inside an etcd member's launch hook, which waits half an hour and is asked for more.
    pub whole: Duration,
    /// So long a permission may be on its way: IAM is eventually consistent.
    pub permissions: Duration,
    /// The first pause after something that may pass; they double up to `longest`.
    pub first: Duration,
    /// The longest pause.
    pub longest: Duration,
    /// Between two heartbeats of the launch hook.
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

/// A node on its way up.
#[derive(Debug)]
pub struct Bootstrap<C> {
    node: NodeFile,
    config: NodeConfig,
    instance: Instance,
    aws: Aws,
    host: Host<C>,
    patience: Patience,
    /// Whether it has been in service.
    served: bool,
}

/// The verb. `again`: on a node that is in service.
///
/// # Errors
/// What is in the way, once it does not pass.
pub async fn perform(root: &Path, endpoints: &Endpoints, again: bool) -> Outcome<Value> {
    // Userdata's closes all to others, and it would close the folders of programs to who runs them. Files that are nobody else's say so
    // where they are made.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let node = node_file(root)?;
    let aws = Aws::new(endpoints, &node.region)?;
    let host = Host { root: root.to_owned(), commands: System };
    match Bootstrap::read(host, aws.clone(), Patience::default()).await {
        Ok(bootstrap) if again => bootstrap.again().await,
        Ok(bootstrap) => bootstrap.run().await,
        Err(failure) if again => Err(failure),
        Err(failure) => {
            telling::unread(&aws, &node, &failure).await;
            Err(failure)
        }
    }
}

/// `node.json`.
fn node_file(root: &Path) -> Outcome<NodeFile> {
    let node: NodeFile = serde_json::from_str(&text(root, "node.json")?).map_err(|error| {
        damaged("node.json", &error.to_string(), "it comes with the userdata: let this instance be replaced")
    })?;
    if node.format == NodeFile::FORMAT {
        return Ok(node);
    }
    let problem = format!("it has format {}, and this agent knows {}", node.format, NodeFile::FORMAT);
    Err(damaged("node.json", &problem, "publish the agent that belongs to it, then render the cluster again"))
}

fn text(root: &Path, name: &str) -> Outcome<String> {
    let bytes = bytes(root, name)?;
    String::from_utf8(bytes).map_err(|_| {
        damaged(name, "it is no text", "run the instance's userdata again, which fetches it anew")
    })
}

fn bytes(root: &Path, name: &str) -> Outcome<Vec<u8>> {
    files::read(&below(root, &format!("{HOME}/{name}")))?
        .ok_or_else(|| damaged(name, "it is not there", "run the instance's userdata, which fetches it"))
}

fn damaged(name: &str, problem: &str, help: &str) -> Failure {
    Failure::lasting(FailureCode::BootstrapInput, format!("{HOME}/{name}: {problem}"), help)
}

impl<C: Commands> Bootstrap<C> {
    /// Reads who this node is. Nothing is touched.
    ///
    /// # Errors
    /// If what userdata left is damaged, or does not belong together.
    pub async fn read(host: Host<C>, aws: Aws, patience: Patience) -> Outcome<Self> {
        let node = node_file(&host.root)?;
        let config = text(&host.root, "config.json")?;
        let fetched = "remove it and run the instance's userdata again, which fetches it anew";
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
            let problem = format!("it is of {} in {}, and node.json says otherwise", base.role, base.cluster);
            return Err(damaged("config.json", &problem, fetched));
        }
        let instance = aws.imds().instance().await?;
        Ok(Self { node, config, instance, aws, host, patience, served: false })
    }

    /// The steps of this node's role, in their order.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        Step::of(&self.config)
    }

    /// Goes through all steps.
    ///
    /// # Errors
    /// What is in the way, once it does not pass: then the reason was told, and the instance given up.
    pub async fn run(&self) -> Outcome<Value> {
        let hook = self.hook();
        // The hook waits as long as somebody works, and not longer: this ends with us.
        let heartbeats = async {
            loop {
                tokio::time::sleep(self.patience.heartbeat).await;
                // One that is missed is made up for by the next.
                let _ = self.aws.heartbeat(&hook).await;
            }
        };
        let steps = self.steps();
        let worked = tokio::select! {
            worked = self.go_through(&steps) => worked,
            never = heartbeats => never,
        };
        match worked {
            Ok(()) => Ok(self.came_up(&steps).await),
            Err((step, failure)) => {
                self.tell(BootstrapState::GivenUp, Some(step), Some(&failure)).await;
                self.give_up().await;
                Err(failure)
            }
        }
    }

    async fn go_through(&self, steps: &[Step]) -> Result<(), (Step, Failure)> {
        let begun = Instant::now();
        for &step in steps {
            self.progress(BootstrapState::Working, Some(step), None);
            let mut pause = self.patience.first;
            let mut told = None;
            loop {
                let failure = match self.perform(step).await {
                    Ok(()) => break,
                    Err(failure) => failure,
                };
                // A role that was just made is not known everywhere yet: what is denied may be allowed in a minute.
                let settling =
                    failure.code == FailureCode::AwsDenied && begun.elapsed() < self.patience.permissions;
                if !(failure.passing || settling) || begun.elapsed() >= self.patience.whole {
                    return Err((step, failure));
                }
                self.progress(BootstrapState::Working, Some(step), Some(&failure));
                // What lasts is worth telling, once; what passes at once is not.
                if pause >= self.patience.longest && told.as_ref() != Some(&failure.message) {
                    self.tell(BootstrapState::Working, Some(step), Some(&failure)).await;
                    told = Some(failure.message);
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

    /// Has this instance replaced, while its launch hook waits. One that is in service already is for its group and for people to
    /// judge: whoever runs this again on it must not end it.
    async fn give_up(&self) {
        // Nobody is left to tell: the hook's own end abandons it.
        let _ = self.aws.settle(&self.hook(), HookResult::Abandon).await;
    }
}
