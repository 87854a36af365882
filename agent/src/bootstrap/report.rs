//! Progress for people: on the machine, and in the asset bucket for those who cannot sign in.

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::node::{BootstrapFailure, BootstrapReport, BootstrapState, NodeFile};

use super::{Bootstrap, Step};
use crate::aws::Aws;
use crate::failure::AgentError;
use crate::machine::commands::Commands;
use crate::machine::files::{self, Owner};
use crate::node_files::HOME;

fn report(
    node: &NodeFile,
    instance: &str,
    state: BootstrapState,
    served: bool,
    step: Option<String>,
    failure: Option<&AgentError>,
) -> BootstrapReport {
    BootstrapReport {
        format: BootstrapReport::FORMAT,
        instance: instance.to_owned(),
        role: node.role.clone(),
        config: node.config.clone(),
        credentials: node.credentials.clone(),
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        state,
        served,
        step,
        failure: failure.map(|failure| BootstrapFailure {
            code: failure.code.into(),
            message: failure.message.clone(),
            help: failure.help.clone(),
        }),
        at: Timestamp::now(),
    }
}

/// Reports a node whose files cannot be read. Its hook is not known, so the user data has the group replace it.
pub(super) async fn report_unreadable(aws: &Aws, node: &NodeFile, failure: &AgentError) {
    let Ok(instance) = aws.imds().instance().await else { return };
    let report = report(node, &instance.id, BootstrapState::GivenUp, false, None, Some(failure));
    let key = keys::bootstrap_report(&node.cluster, &node.role, &instance.id);
    let text = serde_json::to_vec(&report).unwrap_or_default();
    // A failure here cannot be reported anywhere.
    let _ = aws.bucket(&node.asset_bucket).put(&key, &text).await;
}

impl<C: Commands> Bootstrap<C> {
    fn report(
        &self,
        state: BootstrapState,
        step: Option<Step>,
        failure: Option<&AgentError>,
    ) -> BootstrapReport {
        let step = step.map(|step| step.name().to_owned());
        let served = self.served || state == BootstrapState::Healthy;
        report(&self.node, &self.instance.id, state, served, step, failure)
    }

    /// On the machine. Nothing depends on it, so errors are ignored.
    pub(super) fn write_progress(
        &self,
        state: BootstrapState,
        step: Option<Step>,
        failure: Option<&AgentError>,
    ) {
        let report = self.report(state, step, failure);
        let text = serde_json::to_vec_pretty(&report).unwrap_or_default();
        let path = self.host.below(&format!("{HOME}/progress.json"));
        let _ = files::write(&path, 0o600, Owner::ROOT, &text);
    }

    pub(super) async fn publish_report(
        &self,
        state: BootstrapState,
        step: Option<Step>,
        failure: Option<&AgentError>,
    ) {
        self.write_progress(state, step, failure);
        let text = serde_json::to_vec(&self.report(state, step, failure)).unwrap_or_default();
        let key = keys::bootstrap_report(&self.node.cluster, &self.node.role, &self.instance.id);
        // Retried for a healthy node: rollouts drain only machines that reported themselves healthy.
        let tries = if state == BootstrapState::Healthy { 5 } else { 1 };
        for again in 1..=tries {
            if self.aws.bucket(&self.node.asset_bucket).put(&key, &text).await.is_ok() || again == tries {
                return;
            }
            tokio::time::sleep(self.patience.longest).await;
        }
    }
}
