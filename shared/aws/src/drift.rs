//! What differs between the stacks of a cluster and what they deployed: for a person who asks. Nothing is changed.
//!
//! CloudFormation's drift detection begins by one call, takes "up to several minutes", and is asked for by others (botocore,
//! `DetectStackDrift`). It reads each resource with the permissions of whoever asks.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_autoscaling::types::AutoScalingGroup;
use aws_sdk_cloudformation::types::{
    DifferenceType, PropertyDifference, StackDriftDetectionStatus, StackResourceDrift,
    StackResourceDriftStatus,
};
use serde_json::Value;
use slipway_ports::{ErrorKind, PortError, PortResult};

use crate::Aws;
use crate::error::{code, port_error, words};

const DETECT: &str = "cloudformation:DetectStackDrift";
const STATUS: &str = "cloudformation:DescribeStackDriftDetectionStatus";
const DRIFTS: &str = "cloudformation:DescribeStackResourceDrifts";
const GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";

/// More pages of resources are not read: a stack has at most 500 resources, and a page 100.
const MOST_PAGES: u32 = 10;
/// "By default, you can include up to 50 names" (botocore, `DescribeAutoScalingGroups`).
const NAMES_AT_ONCE: usize = 50;

/// How a drift detection begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectionStart {
    /// It has begun: its id.
    Begun(String),
    /// Somebody else's is in progress, whose id nobody tells. "You can only run a single drift detection operation on a given stack at the
    /// same time" (CloudFormation user guide, "Detect drift on an entire CloudFormation stack").
    Busy,
}

/// How far a drift detection is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detection {
    /// It goes on.
    InProgress,
    /// It has ended for all resources that support it.
    Complete,
    /// It has failed for at least one resource; "results will be available for resources on which CloudFormation successfully completed
    /// drift detection".
    Failed(String),
}

/// What CloudFormation says of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriftStatus {
    /// It is as its template says.
    InSync,
    /// It differs.
    Modified,
    /// It was deleted.
    Deleted,
    /// It was not looked at.
    NotChecked,
    /// It could not be read.
    Unknown,
}

/// How a property differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    /// A list has a value that the template does not have.
    Added,
    /// The property is gone.
    Removed,
    /// It has another value.
    NotEqual,
}

/// A property that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `/SecurityGroupIngress/0/ToPort`.
    pub path: String,
    /// What the template says, as text; `None`: nothing.
    pub expected: Option<String>,
    /// What there is, as text; `None`: nothing.
    pub actual: Option<String>,
    /// How it differs.
    pub kind: DifferenceKind,
}

/// A resource that drift detection looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceDrift {
    /// Its name in the template.
    pub logical_id: String,
    /// Its type.
    pub kind: String,
    /// Its id or name in its service.
    pub physical_id: String,
    /// What CloudFormation says of it.
    pub status: DriftStatus,
    /// Why, if CloudFormation says so.
    pub reason: Option<String>,
    /// Its properties as the template has them, with all references resolved.
    pub expected: Option<Value>,
    /// The properties that differ, if it was modified.
    pub differences: Vec<Difference>,
}

/// The settings of an Auto Scaling group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSettings {
    /// `MinSize`.
    pub min: u32,
    /// `MaxSize`.
    pub max: u32,
    /// `DesiredCapacity`.
    pub desired: u32,
    /// The launch template that it uses, by id and version.
    pub template: Option<(String, String)>,
    /// The processes that are suspended, by a person or by AWS.
    pub suspended: BTreeSet<String>,
}

impl Aws {
    /// Begins to detect the drift of a stack. `cloudformation:DetectStackDrift`, and `cloudformation:DetectStackResourceDrift` beside it.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn detect_drift(&self, stack: &str) -> PortResult<DetectionStart> {
        match self.cloudformation().detect_stack_drift().stack_name(stack).send().await {
            Ok(begun) => match begun.stack_drift_detection_id {
                Some(id) => Ok(DetectionStart::Begun(id)),
                None => Err(unreadable(DETECT, stack, "an answer without an id")),
            },
            // CloudFormation has no code for it.
            Err(error)
                if code(&error) == "ValidationError"
                    && words(&error).contains("Drift detection is already in progress") =>
            {
                Ok(DetectionStart::Busy)
            }
            Err(error) => Err(port_error(DETECT, stack, &error)),
        }
    }

    /// How far the detection `id` of a stack is. `cloudformation:DescribeStackDriftDetectionStatus`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn drift_detection(&self, stack: &str, id: &str) -> PortResult<Detection> {
        let call = self.cloudformation().describe_stack_drift_detection_status();
        let response = call.stack_drift_detection_id(id).send().await;
        let response = response.map_err(|error| port_error(STATUS, stack, &error))?;
        match response.detection_status {
            Some(StackDriftDetectionStatus::DetectionInProgress) => Ok(Detection::InProgress),
            Some(StackDriftDetectionStatus::DetectionComplete) => Ok(Detection::Complete),
            Some(StackDriftDetectionStatus::DetectionFailed) => {
                let reason = response.detection_status_reason.filter(|reason| !reason.is_empty());
                Ok(Detection::Failed(reason.unwrap_or_else(|| "CloudFormation gave no reason".to_owned())))
            }
            other => {
                let status = other.map(|status| status.as_str().to_owned()).unwrap_or_default();
                Err(unreadable(
                    STATUS,
                    stack,
                    &format!("the detection is {status:?}, which this version does not know"),
                ))
            }
        }
    }

    /// What the last detection found of each resource of a stack that it looked at. `cloudformation:DescribeStackResourceDrifts`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn resource_drifts(&self, stack: &str) -> PortResult<Vec<ResourceDrift>> {
        let (mut drifts, mut token) = (Vec::new(), None);
        for _ in 0..MOST_PAGES {
            let call =
                self.cloudformation().describe_stack_resource_drifts().stack_name(stack).max_results(100);
            let page = call.set_next_token(token.take()).send().await;
            let page = page.map_err(|error| port_error(DRIFTS, stack, &error))?;
            drifts.extend(page.stack_resource_drifts.unwrap_or_default().into_iter().map(drift));
            token = page.next_token;
            if token.is_none() {
                return Ok(drifts);
            }
        }
        Err(unreadable(DRIFTS, stack, &format!("more than {MOST_PAGES} pages of resources")))
    }

    /// The template that a stack was deployed with, as it was given. `cloudformation:GetTemplate`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn deployed_template(&self, stack: &str) -> PortResult<String> {
        let told = self.cloudformation().get_template().stack_name(stack).send().await;
        let told = told.map_err(|error| port_error("cloudformation:GetTemplate", stack, &error))?;
        Ok(told.template_body.unwrap_or_default())
    }

    /// The settings of those of the groups that exist, by name. `autoscaling:DescribeAutoScalingGroups`.
    ///
    /// # Errors
    /// If Auto Scaling refuses, or cannot be reached.
    pub async fn group_settings(
        &self,
        names: &BTreeSet<String>,
    ) -> PortResult<BTreeMap<String, GroupSettings>> {
        let client = aws_sdk_autoscaling::Client::new(self.config());
        let names: Vec<&String> = names.iter().collect();
        let mut settings = BTreeMap::new();
        for some in names.chunks(NAMES_AT_ONCE) {
            let named = some.iter().map(|name| (*name).clone()).collect();
            let call = client.describe_auto_scaling_groups().set_auto_scaling_group_names(Some(named));
            let response = call
                .send()
                .await
                .map_err(|error| port_error(GROUPS, some.first().map_or("", |name| name.as_str()), &error))?;
            for group in response.auto_scaling_groups.unwrap_or_default() {
                let Some(name) = group.auto_scaling_group_name.clone() else { continue };
                let group = group_of(&group)
                    .ok_or_else(|| unreadable(GROUPS, &name, "an answer without the group's sizes"))?;
                settings.insert(name, group);
            }
        }
        Ok(settings)
    }
}

fn unreadable(operation: &'static str, subject: &str, message: &str) -> PortError {
    PortError {
        kind: ErrorKind::Invalid,
        operation,
        subject: subject.to_owned(),
        message: message.to_owned(),
    }
}

fn drift(one: StackResourceDrift) -> ResourceDrift {
    let status = match one.stack_resource_drift_status {
        Some(StackResourceDriftStatus::InSync) => DriftStatus::InSync,
        Some(StackResourceDriftStatus::Modified) => DriftStatus::Modified,
        Some(StackResourceDriftStatus::Deleted) => DriftStatus::Deleted,
        Some(StackResourceDriftStatus::NotChecked) => DriftStatus::NotChecked,
        // `UNKNOWN`, `UNSUPPORTED`, which is a word of drift-aware change sets, and what is new.
        Some(_) | None => DriftStatus::Unknown,
    };
    let expected = one.expected_properties.and_then(|text| serde_json::from_str(&text).ok());
    ResourceDrift {
        logical_id: one.logical_resource_id.unwrap_or_default(),
        kind: one.resource_type.unwrap_or_default(),
        physical_id: one.physical_resource_id.unwrap_or_default(),
        status,
        reason: one.drift_status_reason.filter(|reason| !reason.is_empty()),
        expected,
        differences: one.property_differences.unwrap_or_default().into_iter().map(difference).collect(),
    }
}

/// The side that has no value has the text `null`.
fn difference(one: PropertyDifference) -> Difference {
    let (kind, expected, actual) = match one.difference_type {
        Some(DifferenceType::Add) => (DifferenceKind::Added, None, one.actual_value),
        Some(DifferenceType::Remove) => (DifferenceKind::Removed, one.expected_value, None),
        Some(_) | None => (DifferenceKind::NotEqual, one.expected_value, one.actual_value),
    };
    Difference { path: one.property_path.unwrap_or_default(), expected, actual, kind }
}

fn group_of(group: &AutoScalingGroup) -> Option<GroupSettings> {
    let count = |value: Option<i32>| value.and_then(|value| u32::try_from(value).ok());
    let mixed = group.mixed_instances_policy().and_then(|policy| policy.launch_template());
    let template =
        group.launch_template().or_else(|| mixed.and_then(|mixed| mixed.launch_template_specification()));
    let template = template.and_then(|one| {
        // No version is the template's default one, by the API's own rule.
        Some((one.launch_template_id()?.to_owned(), one.version().unwrap_or("$Default").to_owned()))
    });
    let suspended = group.suspended_processes().iter().filter_map(|one| one.process_name());
    Some(GroupSettings {
        min: count(group.min_size())?,
        max: count(group.max_size())?,
        desired: count(group.desired_capacity())?,
        template,
        suspended: suspended.map(str::to_owned).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::Server;

    /// An answer of the query protocol. The server wants texts that live as long as the test.
    fn answer(action: &str, result: &str) -> &'static str {
        let text = format!("<{action}Response><{action}Result>{result}</{action}Result></{action}Response>");
        Box::leak(text.into_boxed_str())
    }

    #[tokio::test]
    async fn a_detection_in_progress_of_somebody_else_is_no_failure_and_one_that_is_denied_is() {
        let busy = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Drift detection is already in progress \
                    for stack [arn:aws:cloudformation:eu-west-1:1:stack/a/1]</Message></Error></ErrorResponse>";
        let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
        let begun = answer("DetectStackDrift", "<StackDriftDetectionId>d-1</StackDriftDetectionId>");
        let server = Server::new(&[(400, busy), (200, begun), (403, denied)]);
        let aws = server.aws();
        assert_eq!(aws.detect_drift("a").await.unwrap(), DetectionStart::Busy);
        assert_eq!(aws.detect_drift("a").await.unwrap(), DetectionStart::Begun("d-1".to_owned()));
        let error = aws.detect_drift("a").await.unwrap_err();
        assert_eq!((error.kind, error.operation), (ErrorKind::Denied, DETECT));
    }

    #[tokio::test]
    async fn a_detection_that_failed_for_a_resource_says_why() {
        let of = |status: &str, more: &str| {
            let result = format!(
                "<StackId>s</StackId><StackDriftDetectionId>d-1</StackDriftDetectionId><Timestamp>2026-11-27T12:00:00Z</Timestamp>\
                 <DetectionStatus>{status}</DetectionStatus>{more}"
            );
            answer("DescribeStackDriftDetectionStatus", &result)
        };
        let (running, complete) = (of("DETECTION_IN_PROGRESS", ""), of("DETECTION_COMPLETE", ""));
        let failed = of("DETECTION_FAILED", "<DetectionStatusReason>not authorized</DetectionStatusReason>");
        let new = of("DETECTION_PAUSED", "");
        let server = Server::new(&[(200, running), (200, complete), (200, failed), (200, new)]);
        let aws = server.aws();
        assert_eq!(aws.drift_detection("a", "d-1").await.unwrap(), Detection::InProgress);
        assert_eq!(aws.drift_detection("a", "d-1").await.unwrap(), Detection::Complete);
        assert_eq!(
            aws.drift_detection("a", "d-1").await.unwrap(),
            Detection::Failed("not authorized".to_owned())
        );
        assert!(aws.drift_detection("a", "d-1").await.unwrap_err().message.contains("DETECTION_PAUSED"));
        assert!(server.requests()[0].body.contains("StackDriftDetectionId=d-1"));
    }

    #[tokio::test]
    async fn each_difference_has_both_sides_where_there_are_two_and_all_pages_are_read() {
        let of = |id: &str, status: &str, more: &str| {
            format!(
                "<member><StackId>s</StackId><LogicalResourceId>{id}</LogicalResourceId><PhysicalResourceId>sg-1</PhysicalResourceId>\
                 <ResourceType>AWS::EC2::SecurityGroup</ResourceType><StackResourceDriftStatus>{status}</StackResourceDriftStatus>{more}\
                 <Timestamp>2026-11-27T12:00:00Z</Timestamp></member>"
            )
        };
        let difference = |path: &str, expected: &str, actual: &str, kind: &str| {
            format!(
                "<member><PropertyPath>{path}</PropertyPath><ExpectedValue>{expected}</ExpectedValue><ActualValue>{actual}</ActualValue>\
                 <DifferenceType>{kind}</DifferenceType></member>"
            )
        };
        let differences = [
            difference("/Ingress/1", "null", "{&quot;FromPort&quot;:22}", "ADD"),
            difference("/Name", "a", "null", "REMOVE"),
            difference("/Port", "443", "8443", "NOT_EQUAL"),
        ]
        .concat();
        let modified = format!(
            "<ExpectedProperties>{{\"Port\":\"443\"}}</ExpectedProperties><PropertyDifferences>{differences}</PropertyDifferences>"
        );
        let first = answer(
            "DescribeStackResourceDrifts",
            &format!(
                "<StackResourceDrifts>{}</StackResourceDrifts><NextToken>t</NextToken>",
                of("A", "MODIFIED", &modified)
            ),
        );
        let reason = "<DriftStatusReason>not authorized</DriftStatusReason>";
        let rest = [of("B", "DELETED", ""), of("C", "IN_SYNC", ""), of("D", "UNKNOWN", reason)].concat();
        let second = answer(
            "DescribeStackResourceDrifts",
            &format!("<StackResourceDrifts>{rest}</StackResourceDrifts>"),
        );
        let server = Server::new(&[(200, first), (200, second)]);
        let all = server.aws().resource_drifts("a").await.unwrap();
        let statuses: Vec<(&str, DriftStatus)> =
            all.iter().map(|one| (one.logical_id.as_str(), one.status)).collect();
        let expected = [
            ("A", DriftStatus::Modified),
            ("B", DriftStatus::Deleted),
            ("C", DriftStatus::InSync),
            ("D", DriftStatus::Unknown),
        ];
        assert_eq!(statuses, expected);
        let sides: Vec<(Option<&str>, Option<&str>)> =
            all[0].differences.iter().map(|one| (one.expected.as_deref(), one.actual.as_deref())).collect();
        assert_eq!(
            sides,
            [(None, Some("{\"FromPort\":22}")), (Some("a"), None), (Some("443"), Some("8443"))]
        );
        assert_eq!(all[0].expected.as_ref().unwrap()["Port"], "443");
        assert_eq!(all[3].reason.as_deref(), Some("not authorized"));
        assert!(server.requests()[1].body.contains("NextToken=t"));
    }

    #[tokio::test]
    async fn the_settings_of_a_group_name_its_template_and_all_processes_that_are_suspended() {
        let group = |name: &str, template: &str, processes: &str| {
            format!(
                "<member><AutoScalingGroupName>{name}</AutoScalingGroupName><MinSize>1</MinSize><MaxSize>3</MaxSize>\
                 <DesiredCapacity>2</DesiredCapacity>{template}<SuspendedProcesses>{processes}</SuspendedProcesses></member>"
            )
        };
        let plain =
            "<LaunchTemplate><LaunchTemplateId>lt-1</LaunchTemplateId><Version>7</Version></LaunchTemplate>";
        let mixed = "<MixedInstancesPolicy><LaunchTemplate><LaunchTemplateSpecification><LaunchTemplateId>lt-2</LaunchTemplateId>\
                     </LaunchTemplateSpecification></LaunchTemplate></MixedInstancesPolicy>";
        let processes = "<member><ProcessName>Launch</ProcessName></member><member><ProcessName>AZRebalance</ProcessName></member>";
        let groups = [group("a", plain, processes), group("b", mixed, "")].concat();
        let told =
            answer("DescribeAutoScalingGroups", &format!("<AutoScalingGroups>{groups}</AutoScalingGroups>"));
        let server = Server::new(&[(200, told)]);
        let names = ["a", "b", "c"].map(str::to_owned).into();
        let settings = server.aws().group_settings(&names).await.unwrap();
        assert_eq!(settings.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(settings["a"].template, Some(("lt-1".to_owned(), "7".to_owned())));
        assert_eq!(settings["a"].suspended, ["AZRebalance", "Launch"].map(str::to_owned).into());
        assert_eq!(settings["b"].template, Some(("lt-2".to_owned(), "$Default".to_owned())));
        assert_eq!((settings["b"].min, settings["b"].max, settings["b"].desired), (1, 3, 2));
    }
}
