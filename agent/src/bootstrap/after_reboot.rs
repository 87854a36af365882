//! After a reboot: the same steps again.
//!
//! A machine that rebooted during its launch, while its launch hook still waits, goes on with the launch: heartbeats, the hook, and the end
//! of the launch if it fails.
//!
//! On a node in service units restart what they know. This repairs what they do not know: programs, files, records and disks that were
//! changed meanwhile. It never abandons the instance: only its group or a person terminates a node in service.

use serde_json::{Value, json};
use slipway_core::node::BootstrapState;
use slipway_ports::ErrorKind;

use super::{Bootstrap, Step};
use crate::failure::AgentResult;
use crate::machine::commands::Commands;
use crate::machine::{Setup, Unit};
use crate::status::publish;

/// Enabled but not started: only a boot starts it, as the run that writes it is doing the same work.
const SERVICE: &str = "slipway-bootstrap.service";

/// `exec` and not `oneshot`: targets wait for a oneshot unit, and this one waits for units of such targets. It is restarted until
/// it succeeds.
fn setup() -> Setup {
    let content = "[Unit]\nDescription=Slipway: bootstrap after a reboot\n\
                   Wants=network-online.target\nAfter=network-online.target\nStartLimitIntervalSec=0\n\n\
                   [Service]\nType=exec\nRemainAfterExit=yes\n\
                   ExecStart=/var/lib/slipway/slipway-node bootstrap --after-reboot\n\
                   Restart=on-failure\nRestartSec=300\n\n\
                   [Install]\nWantedBy=multi-user.target\n";
    let unit = Unit { name: SERVICE.to_owned(), content: Some(content.to_owned()) };
    Setup { files: Vec::new(), units: vec![unit] }
}

/// What is known of this instance's launch hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Launch {
    /// The hook waits: the machine rebooted during its launch.
    Pending,
    /// No launch action is pending: the node is in service, or was abandoned.
    Settled,
    /// Auto Scaling did not answer. Heartbeats and the hook are tried, which have no effect on a node in service, and the instance is kept. A
    /// failure ends this process, and its unit starts it again, which asks again.
    Unknown,
}

impl<C: Commands> Bootstrap<C> {
    /// Enables the unit that runs the steps after each boot.
    pub(super) async fn enable_reboot_unit(&self) -> AgentResult<()> {
        self.host.write(&setup()).await?;
        self.host.commands.run_checked("systemctl", &["enable", SERVICE]).await.map(drop)
    }

    /// Goes on with the launch if the launch hook still waits, as [`run`](Self::run) does. Otherwise goes through the steps of a node in
    /// service: the launch hook is left alone and the instance kept; a failure was reported.
    pub async fn run_after_reboot(mut self) -> AgentResult<Value> {
        let mut steps = self.steps();
        let launch = self.launch().await;
        // Where nobody knows, the report says that pods may run here, so that the machine is drained before anybody terminates it.
        self.served = launch != Launch::Pending;
        let worked = match launch {
            Launch::Pending => return self.run().await,
            Launch::Settled => {
                steps.retain(|step| *step != Step::Hook);
                self.go_through(&steps).await
            }
            Launch::Unknown => self.go_through_with_heartbeats(&steps).await,
        };
        match worked {
            Ok(()) => Ok(self.report_healthy(&steps).await),
            Err((step, failure)) => {
                self.publish_report(BootstrapState::Working, Some(step), Some(&failure)).await;
                Err(failure)
            }
        }
    }

    /// Asks Auto Scaling by a heartbeat, which a node may send, and which it refuses if no lifecycle action is pending.
    async fn launch(&self) -> Launch {
        match self.aws.heartbeat(&self.hook()).await {
            Ok(true) => Launch::Pending,
            Ok(false) => Launch::Settled,
            Err(error) => match error.kind {
                ErrorKind::Transient => Launch::Unknown,
                // Its group is gone, or the call is denied, and the hook's completion would be denied as well.
                ErrorKind::Denied | ErrorKind::Missing | ErrorKind::Invalid => Launch::Settled,
            },
        }
    }

    /// Reports that the node is healthy, and what it serves.
    pub(super) async fn report_healthy(&self, steps: &[Step]) -> Value {
        self.publish_report(BootstrapState::Healthy, None, None).await;
        // If this fails, the hourly timer publishes it.
        let _ = publish::publish_with(&self.host.root, &self.aws, &self.node).await;
        let steps: Vec<&str> = steps.iter().map(|step| step.name()).collect();
        json!({
            "instance": self.instance.id, "role": self.node.role, "config": self.node.config,
            "credentials": self.node.credentials, "steps": steps, "healthy": true,
        })
    }
}
