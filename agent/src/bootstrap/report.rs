//! Progress for people: on the machine, and in the asset bucket for those who cannot sign in.

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::node::{BootstrapFailure, BootstrapReport, BootstrapState, NodeFile};
use slipway_ports::{ErrorKind, PortResult};

use super::{Bootstrap, Step};
use crate::aws::Aws;
use crate::failure::{AgentError, AgentResult};
use crate::machine::commands::Commands;
use crate::machine::files::{self, Owner};
use crate::node_files::HOME;
use crate::status::late_report;

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
    let key = keys::bootstrap_report(&node.cluster, &node.role, &instance.arn);
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
        // A machine whose hook is being completed may be in service before it hears of that.
        let may_serve = state == BootstrapState::Working && step == Some(Step::Hook);
        let served = self.served || state == BootstrapState::Healthy || may_serve;
        let step = step.map(|step| step.name().to_owned());
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
        let tries = if state == BootstrapState::Healthy { 5 } else { 1 };
        for attempt in 1..=tries {
            if self.put(&text).await.is_ok() {
                return late_report::forget(&self.host.root);
            }
            if attempt < tries {
                tokio::time::sleep(self.patience.longest).await;
            }
        }
        if state == BootstrapState::Healthy {
            late_report::keep(&self.host.root, &text);
        }
    }

    /// Reports that the machine may serve from now on, before it can: a report that it is still working would have it terminated without a
    /// drain. So the launch hook waits while S3 does not answer.
    pub(super) async fn report_that_it_may_serve(&self) -> AgentResult<()> {
        let report = self.report(BootstrapState::Working, Some(Step::Hook), None);
        fail_if_transient(self.put(&serde_json::to_vec(&report).unwrap_or_default()).await)
    }

    async fn put(&self, report: &[u8]) -> PortResult<()> {
        let key = keys::bootstrap_report(&self.node.cluster, &self.node.role, &self.instance.arn);
        self.aws.bucket(&self.node.asset_bucket).put(&key, report).await
    }
}

/// A report that S3 could not take may be taken later. A machine that may not write to the bucket at all has not reported anything, and is
/// drained for that reason.
fn fail_if_transient(result: PortResult<()>) -> AgentResult<()> {
    match result {
        Err(error) if error.kind == ErrorKind::Transient => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_ports::PortError;

    use super::*;

    fn refused(kind: ErrorKind) -> PortResult<()> {
        let (subject, message) = ("the bucket".to_owned(), "503".to_owned());
        Err(PortError { kind, operation: "s3:PutObject", subject, message })
    }

    #[test]
    fn p6_a_launch_hook_waits_while_s3_cannot_be_told_that_the_machine_may_serve() {
        let failure = fail_if_transient(refused(ErrorKind::Transient)).unwrap_err();
        assert!(failure.transient, "{failure:?}");
        assert!(fail_if_transient(Ok(())).is_ok());
        assert!(fail_if_transient(refused(ErrorKind::Denied)).is_ok());
    }
}
