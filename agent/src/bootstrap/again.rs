//! After a reboot: the same steps again, on a node that is in service.
//!
//! Units keep what they know running; this sees to what they do not know: programs, files, records and disks that somebody or
//! something changed, and whether the node came up. It judges nobody: a node in service is for its group and for people to give up.

use serde_json::{Value, json};
use slipway_core::node::BootstrapState;

use super::{Bootstrap, Step};
use crate::failure::Outcome;
use crate::machine::commands::Commands;
use crate::machine::{Furniture, Unit};
use crate::status::publish;

/// Enabled, and started by a boot alone: whoever writes it is doing the same at that moment.
const SERVICE: &str = "slipway-bootstrap.service";

/// Of `exec` and not of `oneshot`, so that no target waits for it: it waits itself for units that such a target wants. What failed is
/// tried again, as long as the machine runs.
fn furniture() -> Furniture {
    let content = "[Unit]\nDescription=Slipway: this node's bootstrap, again after a reboot\n\
                   Wants=network-online.target\nAfter=network-online.target\nStartLimitIntervalSec=0\n\n\
                   [Service]\nType=exec\nRemainAfterExit=yes\n\
                   ExecStart=/var/lib/slipway/slipway-node bootstrap --again\n\
                   Restart=on-failure\nRestartSec=300\n\n\
                   [Install]\nWantedBy=multi-user.target\n";
    let unit = Unit { name: SERVICE.to_owned(), content: Some(content.to_owned()) };
    Furniture { files: Vec::new(), units: vec![unit] }
}

impl<C: Commands> Bootstrap<C> {
    /// Lets the next boot go through all this again.
    pub(super) async fn come_again(&self) -> Outcome<()> {
        self.host.write(&furniture()).await?;
        self.host.commands.must("systemctl", &["enable", SERVICE]).await.map(drop)
    }

    /// Goes through the steps of a node in service. Its launch hook is not asked and not told anything, and the instance is kept
    /// whatever comes of it.
    ///
    /// # Errors
    /// What is in the way, once it does not pass: then the reason was told.
    pub async fn again(mut self) -> Outcome<Value> {
        self.served = true;
        let steps: Vec<Step> = self.steps().into_iter().filter(|step| *step != Step::Hook).collect();
        match self.go_through(&steps).await {
            Ok(()) => Ok(self.came_up(&steps).await),
            Err((step, failure)) => {
                self.tell(BootstrapState::Working, Some(step), Some(&failure)).await;
                Err(failure)
            }
        }
    }

    /// Tells that the node is healthy, and what it serves.
    pub(super) async fn came_up(&self, steps: &[Step]) -> Value {
        self.tell(BootstrapState::Healthy, None, None).await;
        // What is not told here is told by the timer.
        let _ = publish::told(&self.host.root, &self.aws, &self.node).await;
        let steps: Vec<&str> = steps.iter().map(|step| step.name()).collect();
        json!({
            "instance": self.instance.id, "role": self.node.role, "config": self.node.config,
            "credentials": self.node.credentials, "steps": steps, "healthy": true,
        })
    }
}
