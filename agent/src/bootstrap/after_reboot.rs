//! After a reboot: the same steps again, on a node in service.
//!
//! Units restart what they know. This repairs what they do not know: programs, files, records and disks that were changed
//! meanwhile. It never abandons the instance: only its group or a person terminates a node in service.

use serde_json::{Value, json};
use slipway_core::node::BootstrapState;

use super::{Bootstrap, Step};
use crate::failure::Outcome;
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
                   ExecStart=/var/lib/slipway/slipway-node bootstrap --again\n\
                   Restart=on-failure\nRestartSec=300\n\n\
                   [Install]\nWantedBy=multi-user.target\n";
    let unit = Unit { name: SERVICE.to_owned(), content: Some(content.to_owned()) };
    Setup { files: Vec::new(), units: vec![unit] }
}

impl<C: Commands> Bootstrap<C> {
    /// Enables the unit that runs the steps after each boot.
    pub(super) async fn enable_reboot_unit(&self) -> Outcome<()> {
        self.host.write(&setup()).await?;
        self.host.commands.run_checked("systemctl", &["enable", SERVICE]).await.map(drop)
    }

    /// Goes through the steps of a node in service. The launch hook is left alone and the instance kept; a failure was reported.
    pub async fn again(mut self) -> Outcome<Value> {
        self.served = true;
        let steps: Vec<Step> = self.steps().into_iter().filter(|step| *step != Step::Hook).collect();
        match self.go_through(&steps).await {
            Ok(()) => Ok(self.report_healthy(&steps).await),
            Err((step, failure)) => {
                self.publish_report(BootstrapState::Working, Some(step), Some(&failure)).await;
                Err(failure)
            }
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
