//! What stands in an account of an installation: for a person who checks it. Nothing is changed, and nothing is decrypted.
//!
//! Each function is one question with one permission, so that a missing one leaves the others answered.

use std::collections::BTreeMap;

use aws_sdk_eventbridge::types::RuleState;
use aws_sdk_kms::types::{DataKeySpec, KeyState};
use aws_sdk_s3::types::{BucketVersioningStatus, ServerSideEncryption};
use aws_sdk_scheduler::types::ScheduleState;
use aws_sdk_sqs::types::QueueAttributeName;
use jiff::Timestamp;
use slipway_ports::{Context, ErrorKind, PortError, PortResult};

use crate::error::{code, port_error, words};
use crate::{Aws, S3Bucket};

/// A stack of CloudFormation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledStack {
    /// Its status, as CloudFormation names it.
    pub status: String,
    /// Why it has this status, if CloudFormation says so.
    pub reason: Option<String>,
    /// When it was created or updated last.
    pub changed_at: Option<Timestamp>,
    /// Its parameters.
    pub parameters: BTreeMap<String, String>,
    /// Its outputs.
    pub outputs: BTreeMap<String, String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// Whether it is protected from deletion.
    pub protected: bool,
}

/// A resource of a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledResource {
    /// Its name in the template.
    pub logical_id: String,
    /// Its type, such as `AWS::Events::Rule`.
    pub kind: String,
    /// Its id or name in its service.
    pub physical_id: String,
}

/// A schedule of EventBridge Scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledSchedule {
    /// Whether it is enabled.
    pub enabled: bool,
    /// When it fires.
    pub expression: String,
}

/// The default encryption of a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// `AES256`, `aws:kms` and so on. Empty: there is none.
    pub algorithm: String,
    /// The KMS key, if one is named.
    pub key: Option<String>,
}

/// The state of a KMS key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledKey {
    /// Whether it can be used.
    pub enabled: bool,
    /// Its state, as KMS names it.
    pub state: String,
}

impl Aws {
    /// The stack `name`; `None` if there is no such stack. `cloudformation:DescribeStacks`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn stack(&self, name: &str) -> PortResult<Option<InstalledStack>> {
        let described = match self.cloudformation().describe_stacks().stack_name(name).send().await {
            Ok(described) => described,
            Err(error) if crate::stacks::is_no_stack(code(&error), words(&error)) => return Ok(None),
            Err(error) => return Err(port_error("cloudformation:DescribeStacks", name, &error)),
        };
        let stack = described.stacks.unwrap_or_default().into_iter().next();
        Ok(stack.map(|stack| {
            let changed = stack.last_updated_time.or(stack.creation_time);
            let parameters = stack.parameters.unwrap_or_default().into_iter();
            let outputs = stack.outputs.unwrap_or_default().into_iter();
            let tags = stack.tags.unwrap_or_default().into_iter();
            InstalledStack {
                status: stack.stack_status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
                reason: stack.stack_status_reason,
                changed_at: changed.and_then(|at| Timestamp::from_second(at.secs()).ok()),
                parameters: parameters
                    .filter_map(|one| Some((one.parameter_key?, one.parameter_value.unwrap_or_default())))
                    .collect(),
                outputs: outputs.filter_map(|one| Some((one.output_key?, one.output_value?))).collect(),
                tags: tags.filter_map(|one| Some((one.key?, one.value?))).collect(),
                protected: stack.enable_termination_protection.unwrap_or_default(),
            }
        }))
    }

    /// The resources of the stack `name`. `cloudformation:ListStackResources`.
    ///
    /// # Errors
    /// If CloudFormation refuses, or cannot be reached.
    pub async fn stack_resources(&self, name: &str) -> PortResult<Vec<InstalledResource>> {
        let mut pages =
            self.cloudformation().list_stack_resources().stack_name(name).into_paginator().items().send();
        let mut resources = Vec::new();
        while let Some(one) = pages.next().await {
            let one = one.map_err(|error| port_error("cloudformation:ListStackResources", name, &error))?;
            let (Some(logical_id), Some(kind)) = (one.logical_resource_id, one.resource_type) else {
                continue;
            };
            let physical_id = one.physical_resource_id.unwrap_or_default();
            resources.push(InstalledResource { logical_id, kind, physical_id });
        }
        Ok(resources)
    }

    /// The rule `name` of the bus `bus`, without its targets; `None` if there is no such rule. `events:DescribeRule`.
    ///
    /// # Errors
    /// If EventBridge refuses, or cannot be reached.
    pub async fn rule_is_enabled(&self, bus: &str, name: &str) -> PortResult<Option<bool>> {
        match self.events().describe_rule().event_bus_name(bus).name(name).send().await {
            Ok(rule) => Ok(Some(rule.state.is_some_and(|state| state != RuleState::Disabled))),
            Err(error) if code(&error) == "ResourceNotFoundException" => Ok(None),
            Err(error) => Err(port_error("events:DescribeRule", format!("{bus}/{name}"), &error)),
        }
    }

    /// How many targets the rule `name` of the bus `bus` has; at most a hundred are counted. `events:ListTargetsByRule`.
    ///
    /// # Errors
    /// If EventBridge refuses, or cannot be reached.
    pub async fn targets_of_rule(&self, bus: &str, name: &str) -> PortResult<usize> {
        let listed = self.events().list_targets_by_rule().event_bus_name(bus).rule(name).send().await;
        let listed = listed
            .map_err(|error| port_error("events:ListTargetsByRule", format!("{bus}/{name}"), &error))?;
        Ok(listed.targets.unwrap_or_default().len())
    }

    /// The schedule `name` of the default group; `None` if there is no such schedule. `scheduler:GetSchedule`.
    ///
    /// # Errors
    /// If Scheduler refuses, or cannot be reached.
    pub async fn schedule(&self, name: &str) -> PortResult<Option<InstalledSchedule>> {
        let client = aws_sdk_scheduler::Client::new(self.config());
        match client.get_schedule().name(name).send().await {
            Ok(schedule) => Ok(Some(InstalledSchedule {
                enabled: schedule.state.is_some_and(|state| state == ScheduleState::Enabled),
                expression: schedule.schedule_expression.unwrap_or_default(),
            })),
            Err(error) if code(&error) == "ResourceNotFoundException" => Ok(None),
            Err(error) => Err(port_error("scheduler:GetSchedule", name, &error)),
        }
    }

    /// About how many messages wait in the queue at `url`; `None` if there is no such queue. `sqs:GetQueueAttributes`.
    ///
    /// # Errors
    /// If SQS refuses, or cannot be reached.
    pub async fn queue_depth(&self, url: &str) -> PortResult<Option<u64>> {
        const OPERATION: &str = "sqs:GetQueueAttributes";
        let client = aws_sdk_sqs::Client::new(self.config());
        let wanted = QueueAttributeName::ApproximateNumberOfMessages;
        let answer =
            match client.get_queue_attributes().queue_url(url).attribute_names(wanted.clone()).send().await {
                Ok(answer) => answer,
                Err(error)
                    if code(&error).ends_with("NonExistentQueue") || code(&error) == "QueueDoesNotExist" =>
                {
                    return Ok(None);
                }
                Err(error) => return Err(port_error(OPERATION, url, &error)),
            };
        let count = answer.attributes().and_then(|found| found.get(&wanted)?.parse().ok());
        count.map(Some).ok_or_else(|| PortError {
            kind: ErrorKind::Transient,
            operation: OPERATION,
            subject: url.to_owned(),
            message: "the answer has no number of messages".to_owned(),
        })
    }

    /// The state of the KMS key `arn`; `None` if there is no such key. `kms:DescribeKey`.
    ///
    /// # Errors
    /// If KMS refuses, or cannot be reached.
    pub async fn key(&self, arn: &str) -> PortResult<Option<InstalledKey>> {
        match self.kms().describe_key().key_id(arn).send().await {
            Ok(answer) => Ok(answer.key_metadata.map(|key| InstalledKey {
                enabled: key.key_state.as_ref().is_some_and(|state| *state == KeyState::Enabled),
                state: key.key_state.map(|state| state.as_str().to_owned()).unwrap_or_default(),
            })),
            Err(error) if code(&error) == "NotFoundException" => Ok(None),
            Err(error) => Err(port_error("kms:DescribeKey", arn, &error)),
        }
    }

    /// Whether the KMS key `arn` is rotated automatically. `kms:GetKeyRotationStatus`.
    ///
    /// # Errors
    /// If KMS refuses, or cannot be reached.
    pub async fn key_is_rotated(&self, arn: &str) -> PortResult<bool> {
        let answer = self.kms().get_key_rotation_status().key_id(arn).send().await;
        let answer = answer.map_err(|error| port_error("kms:GetKeyRotationStatus", arn, &error))?;
        Ok(answer.key_rotation_enabled)
    }

    /// The policy of the KMS key `arn`, as JSON. `kms:GetKeyPolicy`.
    ///
    /// # Errors
    /// If KMS refuses, or cannot be reached.
    pub async fn key_policy(&self, arn: &str) -> PortResult<String> {
        // "The only valid name is default" (KMS API reference, GetKeyPolicy).
        let answer = self.kms().get_key_policy().key_id(arn).policy_name("default").send().await;
        let answer = answer.map_err(|error| port_error("kms:GetKeyPolicy", arn, &error))?;
        Ok(answer.policy.unwrap_or_default())
    }

    /// Whether the caller may make a data key under the key `arn` in that context: `Ok` if so. KMS makes none, because "API calls that use
    /// DryRun always fail", with `DryRunOperationException` if the call would have succeeded (KMS developer guide, "Testing your
    /// permissions"). `kms:GenerateDataKey`.
    ///
    /// # Errors
    /// If KMS refuses, or cannot be reached.
    pub async fn may_generate_data_key(&self, arn: &str, context: &Context) -> PortResult<()> {
        let call = self.kms().generate_data_key().key_id(arn).key_spec(DataKeySpec::Aes256).dry_run(true);
        match call.set_encryption_context(Some(context.clone().into_iter().collect())).send().await {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == "DryRunOperationException" => Ok(()),
            Err(error) => Err(port_error("kms:GenerateDataKey", arn, &error)),
        }
    }
}

impl S3Bucket {
    /// Whether it keeps old versions. `s3:GetBucketVersioning`.
    ///
    /// # Errors
    /// If S3 refuses, or cannot be reached.
    pub async fn is_versioned(&self) -> PortResult<bool> {
        let answer = self.client().get_bucket_versioning().bucket(self.name()).send().await;
        let answer = answer.map_err(|error| port_error("s3:GetBucketVersioning", self.name(), &error))?;
        Ok(answer.status.is_some_and(|status| status == BucketVersioningStatus::Enabled))
    }

    /// Whether all four settings against public access are on. `s3:GetBucketPublicAccessBlock`.
    ///
    /// # Errors
    /// If S3 refuses, or cannot be reached.
    pub async fn blocks_public_access(&self) -> PortResult<bool> {
        match self.client().get_public_access_block().bucket(self.name()).send().await {
            Ok(answer) => Ok(answer.public_access_block_configuration.is_some_and(|block| {
                [
                    block.block_public_acls,
                    block.block_public_policy,
                    block.ignore_public_acls,
                    block.restrict_public_buckets,
                ]
                .iter()
                .all(|setting| *setting == Some(true))
            })),
            Err(error) if code(&error) == "NoSuchPublicAccessBlockConfiguration" => Ok(false),
            Err(error) => Err(port_error("s3:GetBucketPublicAccessBlock", self.name(), &error)),
        }
    }

    /// Its default encryption. `s3:GetEncryptionConfiguration`.
    ///
    /// # Errors
    /// If S3 refuses, or cannot be reached.
    pub async fn encryption(&self) -> PortResult<Encryption> {
        let answer = match self.client().get_bucket_encryption().bucket(self.name()).send().await {
            Ok(answer) => answer,
            Err(error) if code(&error) == "ServerSideEncryptionConfigurationNotFoundError" => {
                return Ok(Encryption { algorithm: String::new(), key: None });
            }
            Err(error) => return Err(port_error("s3:GetEncryptionConfiguration", self.name(), &error)),
        };
        let rules = answer.server_side_encryption_configuration.map(|one| one.rules).unwrap_or_default();
        let default = rules.into_iter().find_map(|rule| rule.apply_server_side_encryption_by_default);
        Ok(Encryption {
            algorithm: default.as_ref().map(|one| one.sse_algorithm.as_str().to_owned()).unwrap_or_default(),
            key: default
                .filter(|one| one.sse_algorithm != ServerSideEncryption::Aes256)
                .and_then(|one| one.kms_master_key_id),
        })
    }

    /// Whether its events go to EventBridge. `s3:GetBucketNotification`.
    ///
    /// # Errors
    /// If S3 refuses, or cannot be reached.
    pub async fn tells_event_bridge(&self) -> PortResult<bool> {
        let answer = self.client().get_bucket_notification_configuration().bucket(self.name()).send().await;
        let answer = answer.map_err(|error| port_error("s3:GetBucketNotification", self.name(), &error))?;
        Ok(answer.event_bridge_configuration.is_some())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::Server;

    const ANSWER: &str = r#"<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><DescribeStacksResult>
<Stacks><member><StackName>slipway</StackName><StackStatus>UPDATE_COMPLETE</StackStatus><CreationTime>2026-11-24T12:00:00Z</CreationTime>
<Parameters><member><ParameterKey>Approval</ParameterKey><ParameterValue>auto</ParameterValue></member>
<member><ParameterKey>MaintainerArns</ParameterKey><ParameterValue></ParameterValue></member></Parameters>
<Outputs><member><OutputKey>BusName</OutputKey><OutputValue>slipway</OutputValue></member></Outputs>
</member></Stacks></DescribeStacksResult></DescribeStacksResponse>"#;

    #[tokio::test]
    async fn a_stack_that_may_not_be_read_is_no_missing_one() {
        let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
        let server = Server::new(&[(403, denied)]);
        let error = server.aws().stack("slipway").await.unwrap_err();
        assert_eq!((error.kind, error.operation), (ErrorKind::Denied, "cloudformation:DescribeStacks"));
        assert!(server.requests()[0].body.contains("StackName=slipway"));
    }

    #[tokio::test]
    async fn a_stack_has_its_status_its_parameters_and_its_outputs_or_there_is_none() {
        let missing = r#"<ErrorResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/"><Error><Type>Sender</Type>
<Code>ValidationError</Code><Message>Stack with id none does not exist</Message></Error></ErrorResponse>"#;
        let server = Server::new(&[(200, ANSWER), (400, missing)]);
        let stack = server.aws().stack("slipway").await.unwrap().unwrap();
        assert_eq!((stack.status.as_str(), &*stack.parameters["Approval"]), ("UPDATE_COMPLETE", "auto"));
        assert_eq!((&*stack.parameters["MaintainerArns"], &*stack.outputs["BusName"]), ("", "slipway"));
        assert_eq!(stack.changed_at, Some("2026-11-24T12:00:00Z".parse().unwrap()));
        assert_eq!(server.aws().stack("none").await.unwrap(), None);
    }

    #[tokio::test]
    async fn what_is_not_there_is_an_answer_and_what_is_denied_names_the_permission() {
        let server = Server::new(&[
            (400, r#"{"__type":"ResourceNotFoundException"}"#),
            (404, r#"{"__type":"ResourceNotFoundException","Message":"none"}"#),
            (400, r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}"#),
            (400, r#"{"__type":"NotFoundException"}"#),
            (403, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>"),
        ]);
        let aws = server.aws();
        assert_eq!(aws.rule_is_enabled("slipway", "rule").await.unwrap(), None);
        assert_eq!(aws.schedule("daily").await.unwrap(), None);
        assert_eq!(aws.queue_depth(&format!("{}/1/letters", "http://127.0.0.1")).await.unwrap(), None);
        assert_eq!(aws.key("arn:key").await.unwrap(), None);
        let denied = aws.bucket("assets").is_versioned().await.unwrap_err();
        assert_eq!((denied.kind, denied.operation), (ErrorKind::Denied, "s3:GetBucketVersioning"));
    }

    /// The answers of KMS to a dry run, as its developer guide lists them.
    #[tokio::test]
    async fn a_dry_run_that_would_have_succeeded_is_permitted_and_asks_for_no_key() {
        let server = Server::new(&[
            (
                400,
                r#"{"__type":"DryRunOperationException","message":"The request would have succeeded, but the DryRun option is set."}"#,
            ),
            (400, r#"{"__type":"AccessDeniedException","message":"not authorized"}"#),
        ]);
        let aws = server.aws();
        let context = [("cluster".to_owned(), "a".to_owned())].into();
        aws.may_generate_data_key("arn:key", &context).await.unwrap();
        assert_eq!(aws.may_generate_data_key("arn:key", &context).await.unwrap_err().kind, ErrorKind::Denied);
        assert!(server.requests().iter().all(|request| request.body.contains(r#""DryRun":true"#)));
    }

    #[tokio::test]
    async fn a_bucket_is_encrypted_versioned_closed_and_tells_its_events_only_if_s3_says_so() {
        let versioned = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        let suspended = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
        let closed = "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls><IgnorePublicAcls>true</IgnorePublicAcls>\
                      <BlockPublicPolicy>true</BlockPublicPolicy><RestrictPublicBuckets>true</RestrictPublicBuckets></PublicAccessBlockConfiguration>";
        let half = "<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls></PublicAccessBlockConfiguration>";
        let by_kms = "<ServerSideEncryptionConfiguration><Rule><ApplyServerSideEncryptionByDefault><SSEAlgorithm>aws:kms</SSEAlgorithm>\
                      <KMSMasterKeyID>arn:theirs</KMSMasterKeyID></ApplyServerSideEncryptionByDefault></Rule></ServerSideEncryptionConfiguration>";
        let tells = "<NotificationConfiguration><EventBridgeConfiguration/></NotificationConfiguration>";
        let server = Server::new(&[
            (200, versioned),
            (200, suspended),
            (200, closed),
            (200, half),
            (200, by_kms),
            (200, tells),
            (200, "<NotificationConfiguration/>"),
        ]);
        let bucket = server.aws().bucket("assets");
        assert!(bucket.is_versioned().await.unwrap() && !bucket.is_versioned().await.unwrap());
        assert!(
            bucket.blocks_public_access().await.unwrap() && !bucket.blocks_public_access().await.unwrap()
        );
        let encryption = Encryption { algorithm: "aws:kms".to_owned(), key: Some("arn:theirs".to_owned()) };
        assert_eq!(bucket.encryption().await.unwrap(), encryption);
        assert!(bucket.tells_event_bridge().await.unwrap() && !bucket.tells_event_bridge().await.unwrap());
    }
}
