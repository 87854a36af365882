//! Translates events of the bus into calls of the flows.
//!
//! An event only wakes a function: it names a cluster, a version, a stack or a plan, and the state is then read from where it is stored.
//! The form of the names is checked nevertheless, because they become part of keys.

use std::collections::BTreeSet;

use aws_lambda_events::eventbridge::EventBridgeEvent;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_core::event::UpgradeRequested;
use slipway_core::keys::{cluster_of_patch, cluster_of_spec};
use slipway_core::pin::Pin;
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::rendering::{UpgradeOrder, Upload};
use slipway_flows::rollout::{Interruption, Wake, Waker};
use slipway_rollout::{CLOCKS_APART, Order};

use crate::InvocationError;

/// Why the rollout function is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// By a request, an approval or the tick, for a cluster.
    Cluster(Wake),
    /// By CloudFormation, for the stack of this name. It may belong to anybody.
    Stack(String),
    /// By Auto Scaling, for the group of this name. It may belong to anybody.
    Group(String),
    /// By EC2, which interrupts a Spot machine. It may belong to anybody.
    Interruption(Interruption),
    /// By Run Command, for the command with this id. It may belong to anybody.
    Command(String),
    /// By something that needs no work, and why it needs none.
    Nobody(String),
}

/// Why the render function is woken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// A spec was uploaded.
    Spec(Upload),
    /// A patch of this cluster was uploaded or deleted.
    Patches(String),
    /// This cluster's credentials are not those that its newest plan results in.
    Credentials(String),
    /// Somebody ordered an upgrade.
    Pins {
        /// `clusterName`.
        cluster: String,
        /// What was ordered.
        order: UpgradeOrder,
    },
}

/// What the scan function is asked to scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToScan {
    /// Every cluster.
    Everything,
    /// One.
    Cluster {
        /// `clusterName`.
        cluster: String,
        /// Certificates to renew whatever their dates.
        request: RenewalRequest,
    },
}

impl Changed {
    /// The name of the cluster; empty for all.
    #[must_use]
    pub fn cluster(&self) -> &str {
        match self {
            Self::Spec(upload) => &upload.cluster,
            Self::Patches(cluster) | Self::Credentials(cluster) | Self::Pins { cluster, .. } => cluster,
        }
    }
}

/// `detail` of `Object Created` and `Object Deleted`.
#[derive(Deserialize)]
struct ObjectChanged {
    bucket: Bucket,
    object: Object,
}

#[derive(Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    key: String,
    version_id: Option<String>,
}

/// `detail` of `CloudFormation Stack Status Change`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct StackChange {
    stack_id: String,
}

/// `detail` of an event of Auto Scaling.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MachineMoved {
    auto_scaling_group_name: String,
}

/// `detail` of `EC2 Spot Instance Interruption Warning`. Its `instance-action` is not read: whether EC2 terminates, stops or hibernates the
/// machine, its pods are lost.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SpotInterruption {
    instance_id: String,
}

/// `detail` of an event of Run Command.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CommandChange {
    command_id: String,
}

/// `detail` of Slipway's own events that wake a rollout.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AboutCluster {
    cluster: String,
    plan: Option<String>,
    instance: Option<String>,
    #[serde(default)]
    without_snapshot: bool,
    /// When an order was given. A malformed value does not invalidate the order.
    #[serde(default)]
    at: Value,
}

/// `detail` of `Scan Requested` and `Renewal Requested`.
#[derive(Deserialize)]
struct ScanDetail {
    cluster: Option<String>,
    #[serde(default)]
    certificates: Vec<String>,
}

/// Reads an event for the scan function that arrived at `now`.
///
/// # Errors
/// If it is none of the events that the function's rules and schedule let through, or contains an invalid name.
pub fn to_scan(event: Value, now: Timestamp) -> Result<ToScan, InvocationError> {
    let at = given_at(&event);
    let event = envelope(event)?;
    let renewal_at = match (event.source.as_str(), event.detail_type.as_str()) {
        ("slipway", "Scan Requested" | "Rollout Succeeded") => None,
        ("slipway", "Renewal Requested") => Some(at.map(|at| not_of_the_future(at, now)).transpose()?),
        _ => return Err(unexpected(&event)),
    };
    let ScanDetail { cluster, certificates } = detail(event)?;
    match (cluster, renewal_at) {
        (None, None) => Ok(ToScan::Everything),
        (None, Some(_)) => Err(InvocationError::malformed("a Renewal Requested event must name its cluster")),
        (Some(cluster), None) => {
            Ok(ToScan::Cluster { cluster: checked(cluster)?, request: RenewalRequest::default() })
        }
        (Some(cluster), Some(at)) => {
            let request = RenewalRequest { everything: certificates.is_empty(), certificates, at };
            Ok(ToScan::Cluster { cluster: checked(cluster)?, request })
        }
    }
}

/// The time of a request to renew, which whoever puts it on the bus chooses. A certificate that was issued after it answers it, so a request of
/// the future would never be answered: each retry of the function, and whoever sends it once more, would renew everything again.
fn not_of_the_future(at: Timestamp, now: Timestamp) -> Result<Timestamp, InvocationError> {
    if at.duration_since(now) > CLOCKS_APART {
        return Err(InvocationError::malformed(format!(
            "the Renewal Requested event is of {at}, which is in the future: leave its time out, so that EventBridge sets it"
        )));
    }
    Ok(at.min(now))
}

/// Reads an event for the render function that arrived at `now`. `None`: what changed is neither spec nor patch (the rules' wildcards also match
/// `clusters/a/b/cluster.yaml`), or the spec was deleted.
///
/// # Errors
/// If it is no such event, or is about another bucket than `spec_bucket` or about an unversioned bucket.
pub fn changed(event: Value, spec_bucket: &str, now: Timestamp) -> Result<Option<Changed>, InvocationError> {
    let at = given_at(&event);
    let event = envelope(event)?;
    let created = match (event.source.as_str(), event.detail_type.as_str()) {
        ("slipway", "Certificate Renewed") => {
            let AboutCluster { cluster, .. } = detail(event)?;
            return Ok(Some(Changed::Credentials(checked(cluster)?)));
        }
        ("slipway", "Upgrade Requested") => return upgrade(event, at, now).map(Some),
        ("aws.s3", "Object Created") => true,
        ("aws.s3", "Object Deleted") => false,
        _ => return Err(unexpected(&event)),
    };
    let ObjectChanged { bucket, object } = detail(event)?;
    if bucket.name != spec_bucket {
        return Err(InvocationError::malformed(format!(
            "the event is about the bucket {:?}, and specs are in {spec_bucket:?}; correct the rule that sends it",
            bucket.name
        )));
    }
    if let Some(cluster) = cluster_of_patch(&object.key) {
        return Ok(Some(Changed::Patches(cluster.to_owned())));
    }
    let Some(cluster) = cluster_of_spec(&object.key).filter(|_| created) else { return Ok(None) };
    let version = object.version_id.ok_or_else(|| {
        InvocationError::malformed(format!(
            "the event names no version of {:?}: turn versioning on for the bucket {spec_bucket:?}, then upload again",
            object.key
        ))
    })?;
    Ok(Some(Changed::Spec(Upload { cluster: cluster.to_owned(), version })))
}

/// Reads `Upgrade Requested`. Whoever puts it on the bus chooses its time, so the order is never newer than `now`.
fn upgrade(
    event: EventBridgeEvent<Value>,
    at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Changed, InvocationError> {
    let UpgradeRequested { cluster, pins, back_to, at: given } = detail(event)?;
    let second = at.unwrap_or(now);
    let at = close(given, second).unwrap_or(second).min(now);
    let pins = if pins.is_empty() { BTreeSet::from(Pin::ALL) } else { pins };
    let back_to = back_to.map(plan_id).transpose()?;
    Ok(Changed::Pins { cluster: checked(cluster)?, order: UpgradeOrder { pins, back_to, at } })
}

/// Reads an event for the rollout function.
///
/// # Errors
/// If it is none of the events that the function's rules let through, or contains an invalid name.
pub fn woken(event: Value) -> Result<Woken, InvocationError> {
    let at = given_at(&event);
    let event = envelope(event)?;
    match (event.source.as_str(), event.detail_type.as_str()) {
        ("slipway", "Rollout Requested") => {
            let AboutCluster { cluster, .. } = detail(event)?;
            Ok(Woken::Cluster(Wake { cluster: checked(cluster)?, by: Waker::Event }))
        }
        ("slipway", "Scan Requested") => match detail::<ScanDetail>(event)?.cluster {
            Some(cluster) => Ok(Woken::Cluster(Wake { cluster: checked(cluster)?, by: Waker::Look })),
            None => Ok(Woken::Nobody("each cluster's scan is asked for by an event of its own".to_owned())),
        },
        ("slipway", "Rollout Tick") => {
            let AboutCluster { cluster, .. } = detail(event)?;
            Ok(Woken::Cluster(Wake { cluster: checked(cluster)?, by: Waker::Tick }))
        }
        (
            "slipway",
            kind @ ("Rollout Approved" | "Rollout Pause" | "Rollout Resume" | "Rollout Abort"
            | "Rollout Skip" | "Destroy Requested"),
        ) => {
            let kind = kind.to_owned();
            let AboutCluster { cluster, plan, instance, without_snapshot, at: given } = detail(event)?;
            let order = match kind.as_str() {
                "Destroy Requested" => Order::Destroy { without_snapshot },
                kind => order(kind, plan, instance)?,
            };
            let at = at.map(|second| moment_of(&order, second, &given));
            Ok(Woken::Cluster(Wake { cluster: checked(cluster)?, by: Waker::Order { order, at } }))
        }
        ("aws.cloudformation", "CloudFormation Stack Status Change") => {
            let StackChange { stack_id } = detail(event)?;
            // arn:aws:cloudformation:eu-west-1:123456789012:stack/NAME/ID
            let name = stack_id.split_once(":stack/").and_then(|(_, rest)| rest.split('/').next());
            // Names of stacks have at most 128 characters (API reference of CreateStack, `StackName`).
            match name.filter(|name| fits(name, 128)) {
                Some(name) => Ok(Woken::Stack(name.to_owned())),
                None => Err(InvocationError::malformed(format!("{stack_id:?} is not the ARN of a stack"))),
            }
        }
        // These events are sent for resources of the whole account and are only hints, so one that cannot be used is ignored and not
        // retried.
        ("aws.autoscaling", _) => Ok(match detail::<MachineMoved>(event) {
            Ok(moved) if fits(&moved.auto_scaling_group_name, 255) => {
                Woken::Group(moved.auto_scaling_group_name)
            }
            Ok(moved) => Woken::Nobody(format!("{:?} is not a group of ours", moved.auto_scaling_group_name)),
            Err(failure) => Woken::Nobody(failure.message().to_owned()),
        }),
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => Ok(match (detail(event), at) {
            (Ok(SpotInterruption { instance_id: instance }), Some(at))
                if slipway_core::node::is_instance(&instance) =>
            {
                Woken::Interruption(Interruption { instance, at })
            }
            (Ok(notice), _) => {
                Woken::Nobody(format!("a notice of {:?} without a machine or a time", notice.instance_id))
            }
            (Err(failure), _) => Woken::Nobody(failure.message().to_owned()),
        }),
        ("aws.ssm", _) => Ok(match detail::<CommandChange>(event) {
            Ok(change) if fits(&change.command_id, 36) => Woken::Command(change.command_id),
            Ok(change) => Woken::Nobody(format!("{:?} is not a command's id", change.command_id)),
            Err(failure) => Woken::Nobody(failure.message().to_owned()),
        }),
        _ => Err(unexpected(&event)),
    }
}

/// The order that an event of that kind gives.
fn order(kind: &str, plan: Option<String>, instance: Option<String>) -> Result<Order, InvocationError> {
    let plan = plan.map(plan_id).transpose()?;
    Ok(match kind {
        "Rollout Pause" => Order::Pause,
        "Rollout Resume" => Order::Resume,
        "Rollout Abort" => Order::Abort { plan },
        "Rollout Skip" => {
            let instance = instance.filter(|instance| slipway_core::node::is_instance(instance));
            Order::Skip {
                instance: instance.ok_or_else(|| {
                    InvocationError::malformed(
                        "a Rollout Skip event must name the machine that is left, by its id (i-…)",
                    )
                })?,
            }
        }
        _ => Order::Approve {
            plan: plan.ok_or_else(|| {
                InvocationError::malformed("a Rollout Approved event must name the plan that it approves")
            })?,
        },
    })
}

/// Whether it has the form of a name or id of Slipway's, so that it cannot lead out of the key that it becomes part of.
fn fits(name: &str, most: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= most && name.bytes().all(plain)
}

/// When `order` was given. The `time` of an event has whole seconds, so `said`, the time in its detail, orders two events of the same
/// second. It counts only if it is close to the event's time, because an abort that seems older than its rollout is ignored. Without it,
/// a pause counts as the last event of its second: if the order is unknown, the one that stops wins.
fn moment_of(order: &Order, second: Timestamp, given: &Value) -> Timestamp {
    let given = given.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let last = || match order {
        Order::Pause => second.saturating_add(LAST_OF_A_SECOND).unwrap_or(second),
        Order::Resume
        | Order::Abort { .. }
        | Order::Skip { .. }
        | Order::Destroy { .. }
        | Order::Approve { .. } => second,
    };
    close(given, second).unwrap_or_else(last)
}

/// The time in an event's detail, if it is close to the event's own.
fn close(given: Option<Timestamp>, second: Timestamp) -> Option<Timestamp> {
    given.filter(|at| at.duration_since(second).abs() <= CLOCKS_APART)
}

/// The difference between the beginning of a second and its end.
const LAST_OF_A_SECOND: SignedDuration = SignedDuration::from_nanos(999_999_999);

/// When the event was put on the bus.
fn given_at(event: &Value) -> Option<Timestamp> {
    event.get("time").and_then(Value::as_str).and_then(|time| time.parse().ok())
}

fn envelope(event: Value) -> Result<EventBridgeEvent<Value>, InvocationError> {
    serde_json::from_value(event)
        .map_err(|error| InvocationError::malformed(format!("this is not an event of EventBridge: {error}")))
}

fn detail<T: DeserializeOwned>(event: EventBridgeEvent<Value>) -> Result<T, InvocationError> {
    serde_json::from_value(event.detail).map_err(|error| {
        InvocationError::malformed(format!(
            "the detail of the {:?} event cannot be read: {error}",
            event.detail_type
        ))
    })
}

fn unexpected(event: &EventBridgeEvent<Value>) -> InvocationError {
    InvocationError::malformed(format!(
        "this function does not handle the event {:?} of {:?}; correct the rule that sends it",
        event.detail_type, event.source
    ))
}

/// Checks that it is a valid cluster name. Anyone in the account may put events on the bus, and a name that is a path would lead out of
/// the cluster's folder.
fn checked(cluster: String) -> Result<String, InvocationError> {
    if fits(&cluster, 64) {
        Ok(cluster)
    } else {
        Err(InvocationError::malformed(format!("{cluster:?} is not a cluster's name")))
    }
}

/// Checks that it can be the id of a plan, which becomes part of a key, too.
fn plan_id(plan: String) -> Result<String, InvocationError> {
    if fits(&plan, 64) {
        Ok(plan)
    } else {
        Err(InvocationError::malformed(format!("{plan:?} is not the id of a plan")))
    }
}

#[cfg(test)]
mod tests;
