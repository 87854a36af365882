//! From an event on a bus to what a flow is asked.
//!
//! An event only wakes somebody up: it names a cluster, a version, a stack or a plan, and what is true of them is read
//! where it is kept. Its form is checked all the same, because what it names becomes part of a key.

use aws_lambda_events::eventbridge::EventBridgeEvent;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_core::keys::{cluster_of_patch, cluster_of_spec};
use slipway_credentials::renewal::Asked;
use slipway_flows::launch::{Wake, Waker};
use slipway_flows::rendering::Upload;
use slipway_rollout::{CLOCKS_APART, Order};

use crate::Failure;

/// Whom the rollout function is woken by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Woken {
    /// A request, an approval or the tick, about a cluster.
    Cluster(Wake),
    /// CloudFormation, about the stack of this name, which may be anybody's.
    Stack(String),
    /// Auto Scaling, about the group of this name, which may be anybody's.
    Group(String),
    /// Run Command, about the command that it calls so, which may be anybody's.
    Command(String),
    /// Nobody, and why.
    Nobody(String),
}

/// What there is to render anew for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// A spec was uploaded.
    Spec(Upload),
    /// A patch of this cluster was uploaded or deleted.
    Patches(String),
    /// Credentials of this cluster are others than its newest plan leads to.
    Credentials(String),
}

/// What the scan function is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToScan {
    /// Every cluster.
    Everything,
    /// One.
    Cluster {
        /// `clusterName`.
        cluster: String,
        /// What is to be renewed whatever its dates.
        asked: Asked,
    },
}

impl Changed {
    /// The cluster that it concerns.
    #[must_use]
    pub fn cluster(&self) -> &str {
        match self {
            Self::Spec(upload) => &upload.cluster,
            Self::Patches(cluster) | Self::Credentials(cluster) => cluster,
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

/// `detail` of what Auto Scaling tells.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MachineMoved {
    auto_scaling_group_name: String,
}

/// `detail` of what Run Command tells.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct CommandChange {
    command_id: String,
}

/// `detail` of our own events that wake a rollout.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AboutCluster {
    cluster: String,
    plan: Option<String>,
    instance: Option<String>,
    #[serde(default)]
    without_snapshot: bool,
    /// When an order was given. Whatever stands there, the order counts.
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

/// What the scan function is asked.
///
/// # Errors
/// If it is none of the events that the function's rules and its schedule let through, or names something that cannot be.
pub fn to_scan(event: Value) -> Result<ToScan, Failure> {
    let at = given_at(&event);
    let event = envelope(event)?;
    let asked = match (event.source.as_str(), event.detail_type.as_str()) {
        ("slipway", "Scan Requested" | "Rollout Succeeded") => None,
        ("slipway", "Renewal Requested") => Some(at),
        _ => return Err(unexpected(&event)),
    };
    let ScanDetail { cluster, certificates } = detail(event)?;
    match (cluster, asked) {
        (None, None) => Ok(ToScan::Everything),
        (None, Some(_)) => Err(Failure::malformed("a Renewal Requested event must name its cluster")),
        (Some(cluster), None) => Ok(ToScan::Cluster { cluster: checked(cluster)?, asked: Asked::default() }),
        (Some(cluster), Some(at)) => {
            let asked = Asked { everything: certificates.is_empty(), certificates, at };
            Ok(ToScan::Cluster { cluster: checked(cluster)?, asked })
        }
    }
}

/// What the render function is woken for: what S3 tells of, or credentials; `None` if what changed is neither spec nor patch (the rules' wildcards also let
/// `clusters/a/b/cluster.yaml` through), or a spec that was deleted.
///
/// # Errors
/// If it is no such event, or is about another bucket than `spec_bucket`, or about a bucket without versions.
pub fn changed(event: Value, spec_bucket: &str) -> Result<Option<Changed>, Failure> {
    let event = envelope(event)?;
    let created = match (event.source.as_str(), event.detail_type.as_str()) {
        ("slipway", "Certificate Renewed") => {
            let AboutCluster { cluster, .. } = detail(event)?;
            return Ok(Some(Changed::Credentials(checked(cluster)?)));
        }
        ("aws.s3", "Object Created") => true,
        ("aws.s3", "Object Deleted") => false,
        _ => return Err(unexpected(&event)),
    };
    let ObjectChanged { bucket, object } = detail(event)?;
    if bucket.name != spec_bucket {
        return Err(Failure::malformed(format!(
            "the event is about the bucket {:?}, and specs are in {spec_bucket:?}; mend the rule that sends it",
            bucket.name
        )));
    }
    if let Some(cluster) = cluster_of_patch(&object.key) {
        return Ok(Some(Changed::Patches(cluster.to_owned())));
    }
    let Some(cluster) = cluster_of_spec(&object.key).filter(|_| created) else { return Ok(None) };
    let version = object.version_id.ok_or_else(|| {
        Failure::malformed(format!(
            "the event names no version of {:?}: turn versioning on for the bucket {spec_bucket:?}, then upload again",
            object.key
        ))
    })?;
    Ok(Some(Changed::Spec(Upload { cluster: cluster.to_owned(), version })))
}

/// Whom the rollout function is woken by.
///
/// # Errors
/// If it is none of the events that the function's rules let through, or names something that cannot be.
pub fn woken(event: Value) -> Result<Woken, Failure> {
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
            let AboutCluster { cluster, plan, instance, without_snapshot, at: said } = detail(event)?;
            let order = match kind.as_str() {
                "Destroy Requested" => Order::Destroy { without_snapshot },
                kind => order(kind, plan, instance)?,
            };
            let at = at.map(|second| moment_of(&order, second, &said));
            Ok(Woken::Cluster(Wake { cluster: checked(cluster)?, by: Waker::Order { order, at } }))
        }
        ("aws.cloudformation", "CloudFormation Stack Status Change") => {
            let StackChange { stack_id } = detail(event)?;
            // arn:aws:cloudformation:eu-west-1:123456789012:stack/NAME/ID
            let name = stack_id.split_once(":stack/").and_then(|(_, rest)| rest.split('/').next());
            match name.filter(|name| !name.is_empty()) {
                Some(name) => Ok(Woken::Stack(name.to_owned())),
                None => Err(Failure::malformed(format!("{stack_id:?} is not the ARN of a stack"))),
            }
        }
        // What comes here is told as it happens, to anybody's rules, and is only a hint: one that cannot be used is not tried again.
        ("aws.autoscaling", _) => Ok(match detail::<MachineMoved>(event) {
            Ok(moved) if fits(&moved.auto_scaling_group_name, 255) => {
                Woken::Group(moved.auto_scaling_group_name)
            }
            Ok(moved) => Woken::Nobody(format!("{:?} is no group of ours", moved.auto_scaling_group_name)),
            Err(failure) => Woken::Nobody(failure.message().to_owned()),
        }),
        ("aws.ssm", _) => Ok(match detail::<CommandChange>(event) {
            Ok(change) if fits(&change.command_id, 36) => Woken::Command(change.command_id),
            Ok(change) => Woken::Nobody(format!("{:?} is no command's id", change.command_id)),
            Err(failure) => Woken::Nobody(failure.message().to_owned()),
        }),
        _ => Err(unexpected(&event)),
    }
}

/// What a person says by an event of that kind.
fn order(kind: &str, plan: Option<String>, instance: Option<String>) -> Result<Order, Failure> {
    Ok(match kind {
        "Rollout Pause" => Order::Pause,
        "Rollout Resume" => Order::Resume,
        "Rollout Abort" => Order::Abort { plan },
        "Rollout Skip" => {
            let instance = instance.filter(|instance| instance.starts_with("i-") && fits(instance, 19));
            Order::Skip {
                instance: instance.ok_or_else(|| {
                    Failure::malformed(
                        "a Rollout Skip event must name the machine that is left, by its id (i-…)",
                    )
                })?,
            }
        }
        _ => Order::Approve {
            plan: plan.ok_or_else(|| {
                Failure::malformed("a Rollout Approved event must name the plan that it approves")
            })?,
        },
    })
}

/// Whether it is a name or an id as ours are: what it becomes part of, it does not lead out of.
fn fits(name: &str, most: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !name.is_empty() && name.len() <= most && name.bytes().all(plain)
}

/// When `order` was given: events have whole seconds, so that `said`, what its detail says, tells two of one second apart. It counts only
/// where the clock of whoever gave it is right, since an abort that looks older than its rollout is not obeyed. Where it says none, a pause
/// counts as the last thing of its second: of orders of which nobody knows which came first the one that stops wins.
fn moment_of(order: &Order, second: Timestamp, said: &Value) -> Timestamp {
    let said = said.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let last = || match order {
        Order::Pause => second.saturating_add(LAST_OF_A_SECOND).unwrap_or(second),
        Order::Resume
        | Order::Abort { .. }
        | Order::Skip { .. }
        | Order::Destroy { .. }
        | Order::Approve { .. } => second,
    };
    said.filter(|at| at.duration_since(second).abs() <= CLOCKS_APART).unwrap_or_else(last)
}

/// From the beginning of a second to its end.
const LAST_OF_A_SECOND: SignedDuration = SignedDuration::from_nanos(999_999_999);

/// When the event was put on the bus.
fn given_at(event: &Value) -> Option<Timestamp> {
    event.get("time").and_then(Value::as_str).and_then(|time| time.parse().ok())
}

fn envelope(event: Value) -> Result<EventBridgeEvent<Value>, Failure> {
    serde_json::from_value(event)
        .map_err(|error| Failure::malformed(format!("this is no event of EventBridge: {error}")))
}

fn detail<T: DeserializeOwned>(event: EventBridgeEvent<Value>) -> Result<T, Failure> {
    serde_json::from_value(event.detail).map_err(|error| {
        Failure::malformed(format!("the detail of the {:?} event cannot be read: {error}", event.detail_type))
    })
}

fn unexpected(event: &EventBridgeEvent<Value>) -> Failure {
    Failure::malformed(format!(
        "an event {:?} of {:?} is none that this function is for; mend the rule that sends it",
        event.detail_type, event.source
    ))
}

/// A cluster's name as specs have it. Anyone in the account may put an event on the bus: a name that is a path would
/// lead out of the cluster's folder.
fn checked(cluster: String) -> Result<String, Failure> {
    if fits(&cluster, 64) {
        Ok(cluster)
    } else {
        Err(Failure::malformed(format!("{cluster:?} is not a cluster's name")))
    }
}

#[cfg(test)]
mod tests;
