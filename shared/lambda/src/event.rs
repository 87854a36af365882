//! From an event on a bus to what a flow is asked.
//!
//! An event only wakes somebody up: it names a cluster, a version, a stack or a plan, and what is true of them is read
//! where it is kept. Its form is checked all the same, because what it names becomes part of a key.

use aws_lambda_events::eventbridge::EventBridgeEvent;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use slipway_core::renewal::Asked;
use slipway_driver::keys::{cluster_of_patch, cluster_of_spec};
use slipway_driver::launch::{Wake, Waker};
use slipway_driver::rendering::Upload;
use slipway_rollout::Order;

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
            let AboutCluster { cluster, plan, instance, without_snapshot } = detail(event)?;
            let order = match kind.as_str() {
                "Destroy Requested" => Order::Destroy { without_snapshot },
                kind => order(kind, plan, instance)?,
            };
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
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// As S3 sends it (Amazon S3 user guide, "EventBridge event message structure").
    fn object_created(key: &str) -> Value {
        json!({
            "version": "0", "id": "17793124-05d4-b198-2fde-7ededc63b103", "detail-type": "Object Created",
            "source": "aws.s3", "account": "123456789012", "time": "2026-11-20T12:00:00Z", "region": "eu-west-1",
            "resources": ["arn:aws:s3:::specs"],
            "detail": {
                "version": "0", "bucket": {"name": "specs"},
                "object": {"key": key, "size": 5, "etag": "b1", "version-id": "v7", "sequencer": "00617F08299329D189"},
                "request-id": "N4N7GDK58NMKJ12R", "requester": "123456789012", "reason": "PutObject"
            }
        })
    }

    /// Of a versioned bucket, whose deletion adds a marker (same page).
    fn object_deleted(key: &str) -> Value {
        json!({
            "version": "0", "id": "2ee9cc15-d022-99ea-1fb8-1b1bac4850f9", "detail-type": "Object Deleted",
            "source": "aws.s3", "account": "123456789012", "time": "2026-11-20T12:00:00Z", "region": "eu-west-1",
            "resources": ["arn:aws:s3:::specs"],
            "detail": {
                "version": "0", "bucket": {"name": "specs"},
                "object": {"key": key, "etag": "d41d8", "version-id": "v9", "sequencer": "0062E99A88DC407460"},
                "request-id": "0BH729840619AG5K", "requester": "123456789012", "reason": "DeleteObject",
                "deletion-type": "Delete Marker Created"
            }
        })
    }

    #[test]
    fn a_scan_is_of_one_cluster_or_of_all_and_a_renewal_of_one() {
        let event = |kind: &str, detail: Value| json!({"source": "slipway", "detail-type": kind, "detail": detail, "time": "2026-11-20T12:00:00Z"});
        // As the schedule sends it.
        let daily = json!({"source": "slipway", "detail-type": "Scan Requested", "detail": {}});
        assert_eq!(to_scan(daily).unwrap(), ToScan::Everything);
        let one = |asked: Asked| ToScan::Cluster { cluster: "prod".to_owned(), asked };
        for kind in ["Scan Requested", "Rollout Succeeded"] {
            assert_eq!(
                to_scan(event(kind, json!({"cluster": "prod", "plan": "1"}))).unwrap(),
                one(Asked::default())
            );
        }
        let at = Some("2026-11-20T12:00:00Z".parse().unwrap());
        let asked = json!({"cluster": "prod", "certificates": ["apiserver"]});
        let named = Asked { certificates: vec!["apiserver".to_owned()], everything: false, at };
        assert_eq!(to_scan(event("Renewal Requested", asked)).unwrap(), one(named));
        let everything = Asked { certificates: Vec::new(), everything: true, at };
        assert_eq!(to_scan(event("Renewal Requested", json!({"cluster": "prod"}))).unwrap(), one(everything));
        for (kind, detail) in [
            ("Renewal Requested", json!({})),
            ("Scan Requested", json!({"cluster": "../prod"})),
            ("Scan Requested", json!({"cluster": 7})),
            ("Plan Ready", json!({"cluster": "prod"})),
        ] {
            assert_eq!(self::kind(to_scan(event(kind, detail))), "Slipway.Event.Malformed", "{kind}");
        }
    }

    #[test]
    fn renewed_certificates_are_rendered() {
        let event = |cluster: &str| json!({"source": "slipway", "detail-type": "Certificate Renewed", "detail": {"cluster": cluster}});
        let changed = changed(event("prod"), "specs").unwrap();
        assert_eq!(changed, Some(Changed::Credentials("prod".to_owned())));
        assert_eq!(kind(super::changed(event("a/b"), "specs")), "Slipway.Event.Malformed");
    }

    fn kind<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        result.unwrap_err().kind().to_owned()
    }

    #[test]
    fn an_upload_is_its_folder_and_the_version_that_the_event_names() {
        let changed = changed(object_created("clusters/prod/cluster.yaml"), "specs").unwrap().unwrap();
        let upload = Upload { cluster: "prod".to_owned(), version: "v7".to_owned() };
        assert_eq!(changed, Changed::Spec(upload));
    }

    #[test]
    fn a_patch_that_comes_or_goes_is_its_cluster() {
        let patches = Some(Changed::Patches("prod".to_owned()));
        let key = "clusters/prod/patches/10-a.yaml";
        assert_eq!(changed(object_created(key), "specs").unwrap(), patches);
        assert_eq!(changed(object_deleted(key), "specs").unwrap(), patches);
        for other in ["clusters/prod/patches/sub/a.yaml", "clusters/prod/patches/notes.md"] {
            assert_eq!(changed(object_created(other), "specs").unwrap(), None);
        }
        // Taking the spec away changes nothing that runs.
        assert_eq!(changed(object_deleted("clusters/prod/cluster.yaml"), "specs").unwrap(), None);
        assert_eq!(kind(changed(object_deleted(key), "other")), "Slipway.Event.Malformed");
    }

    #[test]
    fn what_is_no_spec_is_left_alone_and_what_is_no_event_is_malformed() {
        assert_eq!(changed(object_created("clusters/a/b/cluster.yaml"), "specs").unwrap(), None);
        assert_eq!(
            kind(changed(object_created("clusters/a/cluster.yaml"), "other")),
            "Slipway.Event.Malformed"
        );
        assert_eq!(kind(changed(json!({"Records": []}), "specs")), "Slipway.Event.Malformed");
        assert_eq!(kind(changed(json!(null), "specs")), "Slipway.Event.Malformed");
        let mut unversioned = object_created("clusters/a/cluster.yaml");
        unversioned["detail"]["object"].as_object_mut().unwrap().remove("version-id");
        let failure = changed(unversioned, "specs").unwrap_err();
        assert!(failure.message().contains("turn versioning on"), "{failure:?}");
    }

    #[test]
    fn a_rollout_is_woken_by_requests_approvals_ticks_and_stacks() {
        let ours = |detail_type: &str, detail: Value| {
            woken(json!({"source": "slipway", "detail-type": detail_type, "detail": detail}))
        };
        let about = |by| Woken::Cluster(Wake { cluster: "prod".to_owned(), by });
        let named = json!({"cluster": "prod", "plan": "p1"});
        assert_eq!(ours("Rollout Requested", named.clone()).unwrap(), about(Waker::Event));
        let approves = Waker::Order { order: Order::Approve { plan: "p1".to_owned() }, at: None };
        assert_eq!(ours("Rollout Approved", named.clone()).unwrap(), about(approves));
        assert_eq!(ours("Rollout Tick", json!({"cluster": "prod"})).unwrap(), about(Waker::Tick));
        assert_eq!(kind(ours("Rollout Approved", json!({"cluster": "prod"}))), "Slipway.Event.Malformed");
        assert_eq!(kind(ours("Plan Ready", named)), "Slipway.Event.Malformed");

        let stack = |id: &str| {
            woken(json!({
                "source": "aws.cloudformation", "detail-type": "CloudFormation Stack Status Change",
                "detail": {"stack-id": id, "status-details": {"status": "CREATE_COMPLETE", "status-reason": ""}}
            }))
        };
        let id = "arn:aws:cloudformation:eu-west-1:123456789012:stack/prod-etcd/8f0a";
        assert_eq!(stack(id).unwrap(), Woken::Stack("prod-etcd".to_owned()));
        assert_eq!(kind(stack("prod-etcd")), "Slipway.Event.Malformed");
    }

    #[test]
    fn p10_orders_carry_the_time_at_which_they_were_put_on_the_bus() {
        let ours = |kind: &str, detail: Value| {
            woken(
                json!({"source": "slipway", "detail-type": kind, "detail": detail, "time": "2026-11-22T12:00:00Z"}),
            )
        };
        let at = Some("2026-11-22T12:00:00Z".parse().unwrap());
        let wakes =
            |order| Woken::Cluster(Wake { cluster: "prod".to_owned(), by: Waker::Order { order, at } });
        let prod = json!({"cluster": "prod"});
        let (p1, machine) = (Some("p1".to_owned()), "i-0abc123def4567890".to_owned());
        for (kind, detail, order) in [
            ("Rollout Pause", prod.clone(), Order::Pause),
            ("Rollout Resume", prod.clone(), Order::Resume),
            ("Rollout Abort", prod.clone(), Order::Abort { plan: None }),
            ("Destroy Requested", prod.clone(), Order::Destroy { without_snapshot: false }),
            (
                "Destroy Requested",
                json!({"cluster": "prod", "withoutSnapshot": true}),
                Order::Destroy { without_snapshot: true },
            ),
            ("Rollout Abort", json!({"cluster": "prod", "plan": "p1"}), Order::Abort { plan: p1 }),
            (
                "Rollout Skip",
                json!({"cluster": "prod", "instance": machine}),
                Order::Skip { instance: machine },
            ),
        ] {
            assert_eq!(ours(kind, detail).unwrap(), wakes(order), "{kind}");
        }
        for (kind, detail) in [
            ("Rollout Skip", prod),
            ("Rollout Skip", json!({"cluster": "prod", "instance": "etcd-0"})),
            ("Rollout Skip", json!({"cluster": "prod", "instance": "i-0/../../x"})),
            ("Rollout Pause", json!({})),
            ("Rollout Pause", json!({"cluster": "../prod"})),
        ] {
            assert_eq!(self::kind(ours(kind, detail)), "Slipway.Event.Malformed", "{kind}");
        }
    }

    /// As the user guides of Auto Scaling and Systems Manager show them.
    #[test]
    fn machines_and_commands_wake_and_what_cannot_be_used_wakes_nobody_and_is_no_error() {
        let told = |source: &str, kind: &str, detail: Value| {
            woken(json!({"source": source, "detail-type": kind, "detail": detail})).unwrap()
        };
        let machine = |group: Value| {
            let detail = json!({
                "LifecycleActionToken": "87654321-4321-4321-4321-210987654321", "AutoScalingGroupName": group,
                "LifecycleHookName": "terminate", "EC2InstanceId": "i-0abc123def4567890",
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
            });
            told("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action", detail)
        };
        assert_eq!(machine(json!("prod-etcd-0")), Woken::Group("prod-etcd-0".to_owned()));
        let command = |id: Value| {
            let detail = json!({
                "command-id": id, "document-name": "Slipway-Drain", "instance-id": "i-0abc123def4567890",
                "requested-date-time": "2026-11-22T12:00:00Z", "status": "Success",
            });
            told("aws.ssm", "EC2 Command Invocation Status-change Notification", detail)
        };
        let id = "e8d3c0e4-71f7-4491-898f-c9b35bee5f3b";
        assert_eq!(command(json!(id)), Woken::Command(id.to_owned()));
        for (woken, word) in [
            (machine(json!("../prod-control-plane")), "no group of ours"),
            (machine(json!("team group_7")), "no group of ours"),
            (machine(json!(7)), "cannot be read"),
            (command(json!("")), "no command's id"),
            (command(Value::Null), "cannot be read"),
        ] {
            assert!(matches!(&woken, Woken::Nobody(why) if why.contains(word)), "{woken:?}");
        }
    }

    #[test]
    fn a_name_that_leads_out_of_the_folder_is_refused() {
        for name in ["", "../other", "a/b", "a b", &"x".repeat(65)] {
            let event =
                json!({"source": "slipway", "detail-type": "Rollout Tick", "detail": {"cluster": name}});
            assert_eq!(kind(woken(event)), "Slipway.Event.Malformed", "{name}");
        }
    }
}
