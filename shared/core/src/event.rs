//! The events on the bus `slipway`: one Rust type for each detail-type.
//!
//! An event only wakes its receiver. The receiver reads the state and trusts that, not the event. Details carry no secrets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::pin::Pin;

/// `source` of every event that Slipway publishes.
pub const SOURCE: &str = "slipway";

/// The JSON Schema of each detail, by detail-type, as stored in `infra/events/`.
#[must_use]
pub fn schemas() -> BTreeMap<&'static str, schemars::Schema> {
    BTreeMap::from([
        ("Spec Rejected", schemars::schema_for!(SpecRejected)),
        ("Plan Ready", schemars::schema_for!(PlanReady)),
        ("Plan Unchanged", schemars::schema_for!(PlanUnchanged)),
        ("Rollout Requested", schemars::schema_for!(PlanReference)),
        ("Rollout Approved", schemars::schema_for!(RolloutApproved)),
        ("Rollout Pause", schemars::schema_for!(ClusterReference)),
        ("Rollout Resume", schemars::schema_for!(ClusterReference)),
        ("Rollout Abort", schemars::schema_for!(RolloutAbort)),
        ("Rollout Skip", schemars::schema_for!(RolloutSkip)),
        ("Destroy Requested", schemars::schema_for!(DestroyRequested)),
        ("Cluster Destroyed", schemars::schema_for!(ClusterDestroyed)),
        ("Order Ignored", schemars::schema_for!(RolloutReport)),
        ("Rollout Started", schemars::schema_for!(RolloutStarted)),
        ("Rollout Step", schemars::schema_for!(RolloutReport)),
        ("Rollout Waiting", schemars::schema_for!(RolloutReport)),
        ("Rollout Succeeded", schemars::schema_for!(RolloutReport)),
        ("Rollout Failed", schemars::schema_for!(RolloutReport)),
        ("Rollout Superseded", schemars::schema_for!(RolloutReport)),
        ("Rollout Paused", schemars::schema_for!(RolloutReport)),
        ("Rollout Aborted", schemars::schema_for!(RolloutReport)),
        ("Scan Requested", schemars::schema_for!(ScanRequested)),
        ("Renewal Requested", schemars::schema_for!(RenewalRequested)),
        ("Upgrade Requested", schemars::schema_for!(UpgradeRequested)),
        ("Certificate Expiring", schemars::schema_for!(CertificateExpiring)),
        ("Certificate Renewed", schemars::schema_for!(CertificateRenewed)),
        ("Renewal Failed", schemars::schema_for!(RenewalFailed)),
    ])
}

/// The events that Slipway publishes, and those that it receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "detail-type", content = "detail")]
pub enum Event {
    /// A spec was refused; the cluster stays as it was.
    #[serde(rename = "Spec Rejected")]
    SpecRejected(SpecRejected),
    /// There is a plan.
    #[serde(rename = "Plan Ready")]
    PlanReady(PlanReady),
    /// A spec was uploaded that changes nothing.
    #[serde(rename = "Plan Unchanged")]
    PlanUnchanged(PlanUnchanged),
    /// Asks to execute a plan. The render function sends it where approval is `auto`.
    #[serde(rename = "Rollout Requested")]
    RolloutRequested(PlanReference),
    /// A person approves a waiting plan.
    #[serde(rename = "Rollout Approved")]
    RolloutApproved(RolloutApproved),
    /// A person asks that nothing new be started, in this rollout and in later ones.
    #[serde(rename = "Rollout Pause")]
    RolloutPause(ClusterReference),
    /// A person resumes a paused cluster.
    #[serde(rename = "Rollout Resume")]
    RolloutResume(ClusterReference),
    /// A person asks to end the open rollout.
    #[serde(rename = "Rollout Abort")]
    RolloutAbort(RolloutAbort),
    /// A person asks that the open rollout leave a machine as it is.
    #[serde(rename = "Rollout Skip")]
    RolloutSkip(RolloutSkip),
    /// A person asks to delete a cluster.
    #[serde(rename = "Destroy Requested")]
    DestroyRequested(DestroyRequested),
    /// A cluster was deleted.
    #[serde(rename = "Cluster Destroyed")]
    ClusterDestroyed(ClusterDestroyed),
    /// A person's order came too late and was ignored.
    #[serde(rename = "Order Ignored")]
    OrderIgnored(RolloutReport),
    /// A rollout has begun.
    #[serde(rename = "Rollout Started")]
    RolloutStarted(RolloutStarted),
    /// A step was taken.
    #[serde(rename = "Rollout Step")]
    RolloutStep(RolloutReport),
    /// A rollout waits. Published once for each reason.
    #[serde(rename = "Rollout Waiting")]
    RolloutWaiting(RolloutReport),
    /// A rollout has reached its target.
    #[serde(rename = "Rollout Succeeded")]
    RolloutSucceeded(RolloutReport),
    /// A rollout failed.
    #[serde(rename = "Rollout Failed")]
    RolloutFailed(RolloutReport),
    /// A rollout ended between two steps because a newer spec takes its place.
    #[serde(rename = "Rollout Superseded")]
    RolloutSuperseded(RolloutReport),
    /// A rollout was paused by a person: nothing new starts.
    #[serde(rename = "Rollout Paused")]
    RolloutPaused(RolloutReport),
    /// A person ended a rollout.
    #[serde(rename = "Rollout Aborted")]
    RolloutAborted(RolloutReport),
    /// Asks to scan the certificates of a cluster, or of every cluster if none is named.
    #[serde(rename = "Scan Requested")]
    ScanRequested(ScanRequested),
    /// Asks to renew certificates now.
    #[serde(rename = "Renewal Requested")]
    RenewalRequested(RenewalRequested),
    /// Asks to look up anew what the lock pins, or to put earlier pins back.
    #[serde(rename = "Upgrade Requested")]
    UpgradeRequested(UpgradeRequested),
    /// A certificate in use expires soon, or has expired. Published once for each threshold.
    #[serde(rename = "Certificate Expiring")]
    CertificateExpiring(CertificateExpiring),
    /// The inventory has credentials that the newest plan lacks.
    #[serde(rename = "Certificate Renewed")]
    CertificateRenewed(CertificateRenewed),
    /// A certificate that is due for renewal was not renewed.
    #[serde(rename = "Renewal Failed")]
    RenewalFailed(RenewalFailed),
}

/// Detail of `Scan Requested`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScanRequested {
    /// `clusterName`; left out: every cluster, one event each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// Detail of `Renewal Requested`. What was issued after the event is the answer to it: the event may come twice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewalRequested {
    /// `clusterName`.
    pub cluster: String,
    /// Names of certificates; left out: every leaf that Slipway can issue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
}

/// Detail of `Upgrade Requested`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRequested {
    /// `clusterName`.
    pub cluster: String,
    /// The kinds of pins that are meant; left out: all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub pins: BTreeSet<Pin>,
    /// Id of a plan that succeeded, to put back the pins that it had; left out: the newest versions are looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back_to: Option<String>,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Detail of `Certificate Expiring`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateExpiring {
    /// `clusterName`.
    pub cluster: String,
    /// Name of the certificate.
    pub certificate: String,
    /// When it ends, in RFC 3339.
    pub not_after: String,
    /// Whole days until then; negative once it has ended.
    pub days_left: i64,
    /// The threshold that was passed: 30, 14, 7, 3, 1 or 0 days; for an authority also 365, 180 and 90.
    pub threshold_days: u32,
    /// Where it is in use, if it was renewed in the store and is still in use there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// When its automatic renewal begins; left out if it is not renewed automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_from: Option<String>,
    /// The same in words.
    pub message: String,
    /// What its owner has to do.
    pub help: String,
}

/// Detail of `Certificate Renewed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateRenewed {
    /// `clusterName`.
    pub cluster: String,
    /// The certificates that were renewed and that the nodes do not have yet.
    pub certificates: Vec<String>,
    /// The roles whose credentials the newest plan does not have yet.
    pub roles: Vec<String>,
    /// Why the renewal may not be delayed, if it is urgent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub urgent: Option<String>,
}

/// Detail of `Renewal Failed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewalFailed {
    /// `clusterName`.
    pub cluster: String,
    /// The certificates that could not be renewed.
    pub certificates: Vec<String>,
    /// When the first of them expires, in RFC 3339.
    pub not_after: String,
    /// Why the renewal failed, and what to do.
    pub message: String,
}

/// Detail of `Spec Rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpecRejected {
    /// The folder under `clusters/`.
    pub cluster: String,
    /// Version id of the refused object.
    pub spec_version: String,
    /// The findings, `line:column: message` with their help; the first fifty.
    pub diagnostics: Vec<String>,
    /// How many there are in all.
    pub total: usize,
}

/// Detail of `Plan Ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReady {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan: `plans/<id>.json`.
    pub plan: String,
    /// Version id of the spec that it was made from.
    pub spec_version: String,
    /// Whether it waits for `Rollout Approved`.
    pub needs_approval: bool,
    /// One line for a person.
    pub summary: String,
}

/// Detail of `Plan Unchanged`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanUnchanged {
    /// `clusterName`.
    pub cluster: String,
    /// Version id of the spec.
    pub spec_version: String,
}

/// Names a plan of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanReference {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
}

/// Detail of `Rollout Approved`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutApproved {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Names a cluster. What was asked last counts, by the time at which it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterReference {
    /// `clusterName`.
    pub cluster: String,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Detail of `Rollout Abort`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutAbort {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan whose rollout is meant; left out: the one that was open when the event was put on the bus.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Detail of `Rollout Skip`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSkip {
    /// `clusterName`.
    pub cluster: String,
    /// The machine's id, `i-…`.
    pub instance: String,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Detail of `Destroy Requested`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DestroyRequested {
    /// `clusterName`.
    pub cluster: String,
    /// Whether the destruction does without a last snapshot, for an etcd that cannot take one.
    #[serde(default)]
    pub without_snapshot: bool,
    /// When the order was given, by the sender's clock, in RFC 3339 with a fraction of a second: it counts if it is within five seconds of the
    /// event's own `time`, which has whole seconds. Left out: that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub at: Option<Timestamp>,
}

/// Detail of `Cluster Destroyed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDestroyed {
    /// `clusterName`.
    pub cluster: String,
    /// What was deleted and what was kept, in words.
    pub message: String,
    /// Key of the last snapshot of etcd in the asset bucket; left out: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// The id of this event: two events with the same id are the same event. Empty before it is published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

/// Detail of the `Rollout …` events that report, and of `Order Ignored`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
    /// What was done, or what is waited for, in words.
    pub message: String,
    /// While something is waited for: the command that a person can run about it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The id of this event: two events with the same id are the same event. Empty before it is published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

impl RolloutReport {
    /// A report without an id; it gets one when it is published.
    #[must_use]
    pub fn new(cluster: &str, plan: &str, message: String) -> Self {
        Self { cluster: cluster.to_owned(), plan: plan.to_owned(), message, next: None, id: String::new() }
    }

    /// The same report with the next command.
    #[must_use]
    pub fn with_next(self, next: Option<String>) -> Self {
        Self { next, ..self }
    }
}

/// Detail of `Rollout Started`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStarted {
    /// `clusterName`.
    pub cluster: String,
    /// Id of the plan.
    pub plan: String,
    /// The id of this event: two events with the same id are the same event. Empty before it is published.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
}

impl RolloutStarted {
    /// A detail without an id; it gets one when it is published.
    #[must_use]
    pub fn new(cluster: &str, plan: &str) -> Self {
        Self { cluster: cluster.to_owned(), plan: plan.to_owned(), id: String::new() }
    }
}

impl Event {
    /// Sets the id of an event that reports on a cluster's rollouts. After a crash between publishing and recording it is published
    /// again, with the same id. Other events have no id and stay as they are.
    pub fn identify(&mut self, id: String) {
        match self {
            Self::RolloutStarted(detail) => detail.id = id,
            Self::RolloutStep(detail)
            | Self::RolloutWaiting(detail)
            | Self::RolloutSucceeded(detail)
            | Self::RolloutFailed(detail)
            | Self::RolloutSuperseded(detail)
            | Self::RolloutPaused(detail)
            | Self::RolloutAborted(detail)
            | Self::OrderIgnored(detail) => detail.id = id,
            Self::ClusterDestroyed(detail) => detail.id = id,
            Self::SpecRejected(_)
            | Self::PlanReady(_)
            | Self::PlanUnchanged(_)
            | Self::RolloutRequested(_)
            | Self::RolloutApproved(_)
            | Self::RolloutPause(_)
            | Self::RolloutResume(_)
            | Self::RolloutAbort(_)
            | Self::RolloutSkip(_)
            | Self::DestroyRequested(_)
            | Self::ScanRequested(_)
            | Self::RenewalRequested(_)
            | Self::UpgradeRequested(_)
            | Self::CertificateExpiring(_)
            | Self::CertificateRenewed(_)
            | Self::RenewalFailed(_) => {}
        }
    }

    /// The event with the time at which a person gave the order; other events are returned unchanged.
    #[must_use]
    pub fn given(mut self, at: Timestamp) -> Self {
        if let Some(given) = self.at_mut() {
            *given = Some(at);
        }
        self
    }

    /// When a person gave the order. `None`: the event is no order, or does not say.
    #[must_use]
    pub fn given_at(&self) -> Option<Timestamp> {
        self.clone().at_mut().and_then(|given| *given)
    }

    fn at_mut(&mut self) -> Option<&mut Option<Timestamp>> {
        match self {
            Self::RolloutApproved(detail) => Some(&mut detail.at),
            Self::UpgradeRequested(detail) => Some(&mut detail.at),
            Self::RolloutPause(detail) | Self::RolloutResume(detail) => Some(&mut detail.at),
            Self::RolloutAbort(detail) => Some(&mut detail.at),
            Self::RolloutSkip(detail) => Some(&mut detail.at),
            Self::DestroyRequested(detail) => Some(&mut detail.at),
            Self::SpecRejected(_)
            | Self::PlanReady(_)
            | Self::PlanUnchanged(_)
            | Self::RolloutRequested(_)
            | Self::ClusterDestroyed(_)
            | Self::OrderIgnored(_)
            | Self::RolloutStarted(_)
            | Self::RolloutStep(_)
            | Self::RolloutWaiting(_)
            | Self::RolloutSucceeded(_)
            | Self::RolloutFailed(_)
            | Self::RolloutSuperseded(_)
            | Self::RolloutPaused(_)
            | Self::RolloutAborted(_)
            | Self::ScanRequested(_)
            | Self::RenewalRequested(_)
            | Self::CertificateExpiring(_)
            | Self::CertificateRenewed(_)
            | Self::RenewalFailed(_) => None,
        }
    }

    /// The `detail-type` and the `detail` as they are put on the bus.
    #[must_use]
    pub fn to_wire(&self) -> (String, String) {
        let value = serde_json::to_value(self).expect("events have string keys only");
        let text = |key: &str| value.get(key).cloned().unwrap_or_default();
        (text("detail-type").as_str().unwrap_or_default().to_owned(), text("detail").to_string())
    }

    /// The cluster that the event is about; empty if it is about all.
    #[must_use]
    pub fn cluster(&self) -> &str {
        match self {
            Self::SpecRejected(detail) => &detail.cluster,
            Self::PlanReady(detail) => &detail.cluster,
            Self::PlanUnchanged(detail) => &detail.cluster,
            Self::RolloutRequested(detail) => &detail.cluster,
            Self::RolloutApproved(detail) => &detail.cluster,
            Self::RolloutStarted(detail) => &detail.cluster,
            Self::RolloutPause(detail) | Self::RolloutResume(detail) => &detail.cluster,
            Self::RolloutAbort(detail) => &detail.cluster,
            Self::RolloutSkip(detail) => &detail.cluster,
            Self::DestroyRequested(detail) => &detail.cluster,
            Self::ClusterDestroyed(detail) => &detail.cluster,
            Self::RolloutStep(detail)
            | Self::RolloutWaiting(detail)
            | Self::RolloutSucceeded(detail)
            | Self::RolloutFailed(detail)
            | Self::RolloutSuperseded(detail)
            | Self::RolloutPaused(detail)
            | Self::OrderIgnored(detail)
            | Self::RolloutAborted(detail) => &detail.cluster,
            Self::ScanRequested(detail) => detail.cluster.as_deref().unwrap_or_default(),
            Self::RenewalRequested(detail) => &detail.cluster,
            Self::UpgradeRequested(detail) => &detail.cluster,
            Self::CertificateExpiring(detail) => &detail.cluster,
            Self::CertificateRenewed(detail) => &detail.cluster,
            Self::RenewalFailed(detail) => &detail.cluster,
        }
    }
}
