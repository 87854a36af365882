//! The tick: an EventBridge schedule that wakes the rollout function.

use aws_sdk_scheduler::types::{
    FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, ScheduleState, Target,
};
use serde_json::json;
use slipway_core::event::SOURCE;
use slipway_flows::ports::Ticks;
use slipway_ports::{ErrorKind, PortError, PortResult};

use crate::error::{code, port_error};

/// Schedules of EventBridge, in a group of their own.
#[derive(Debug, Clone)]
pub struct Schedules {
    client: aws_sdk_scheduler::Client,
    group: String,
    role_arn: String,
    target_arn: String,
}

impl Schedules {
    pub(crate) fn new(
        client: aws_sdk_scheduler::Client,
        group: String,
        role_arn: String,
        target_arn: String,
    ) -> Self {
        Self { client, group, role_arn, target_arn }
    }

    /// The name of a cluster's schedule. IAM lets the function make such names alone.
    fn name(cluster: &str) -> String {
        format!("slipway-{cluster}")
    }

    fn subject(&self, cluster: &str) -> String {
        format!("schedule/{}/{}", self.group, Self::name(cluster))
    }

    /// Scheduler refused with a conflict: the schedule exists, or is just being changed (Scheduler's API reference: "Updating or deleting the
    /// resource can cause an inconsistent state"). Succeeds if it exists and wakes this function. Another one, which a person
    /// disabled or an earlier installation left, is deleted.
    async fn must_wake(&self, cluster: &str) -> PortResult<()> {
        const OPERATION: &str = "scheduler:GetSchedule";
        let found = self.client.get_schedule().group_name(&self.group).name(Self::name(cluster)).send().await;
        let changing = |message: &str| {
            Err(PortError {
                kind: ErrorKind::Transient,
                operation: OPERATION,
                subject: self.subject(cluster),
                message: message.to_owned(),
            })
        };
        let found = match found {
            Ok(found) => found,
            Err(error) if code(&error) == "ResourceNotFoundException" => {
                return changing("the schedule is just being deleted");
            }
            Err(error) => return Err(port_error(OPERATION, self.subject(cluster), &error)),
        };
        let is_ours = |target: &Target| target.arn() == self.target_arn && target.role_arn() == self.role_arn;
        if found.state() != Some(&ScheduleState::Disabled) && found.target().is_some_and(is_ours) {
            return Ok(());
        }
        self.disarm(cluster).await?;
        changing("the schedule was disabled or woke something else; it is deleted, and made anew next time")
    }
}

/// The schedule exists, or another request is just changing it.
const CONFLICT: &str = "ConflictException";

impl Ticks for Schedules {
    async fn arm(&self, cluster: &str) -> PortResult<()> {
        const OPERATION: &str = "scheduler:CreateSchedule";
        let input = json!({"source": SOURCE, "detail-type": "Rollout Tick", "detail": {"cluster": cluster}});
        // A tick that is late is worth nothing, since the next one comes: neither retried nor kept. This is about the way to Lambda's queue; the function
        // itself lets a tick that failed count as done (`wake_or_leave` in shared/flows/src/rollout/wakes.rs).
        let retries =
            RetryPolicy::builder().maximum_retry_attempts(0).maximum_event_age_in_seconds(60).build();
        let target = Target::builder()
            .arn(&self.target_arn)
            .role_arn(&self.role_arn)
            .input(input.to_string())
            .retry_policy(retries)
            .build()
            .expect("a target has an ARN and a role");
        let window = FlexibleTimeWindow::builder()
            .mode(FlexibleTimeWindowMode::Off)
            .build()
            .expect("a window has a mode");
        let created = self
            .client
            .create_schedule()
            .group_name(&self.group)
            .name(Self::name(cluster))
            .description("Wakes the rollout of this cluster while it is open; deleted when it ends")
            .schedule_expression("rate(1 minutes)")
            .flexible_time_window(window)
            .target(target)
            .send()
            .await;
        match created {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == CONFLICT => self.must_wake(cluster).await,
            Err(error) => Err(port_error(OPERATION, self.subject(cluster), &error)),
        }
    }

    async fn disarm(&self, cluster: &str) -> PortResult<()> {
        let deleted =
            self.client.delete_schedule().group_name(&self.group).name(Self::name(cluster)).send().await;
        match deleted {
            Ok(_) => Ok(()),
            Err(error) if code(&error) == "ResourceNotFoundException" => Ok(()),
            Err(error) => {
                let is_changing = code(&error) == CONFLICT;
                let error = port_error("scheduler:DeleteSchedule", self.subject(cluster), &error);
                Err(if is_changing { PortError { kind: ErrorKind::Transient, ..error } } else { error })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_ports::ErrorKind;

    use super::*;
    use crate::testing::Server;

    #[tokio::test]
    async fn p8_arming_and_disarming_twice_is_doing_it_once() {
        let server = Server::new(&[
            (200, r#"{"ScheduleArn":"arn"}"#),
            (409, r#"{"__type":"ConflictException","Message":"exists"}"#),
            (200, r#"{"State":"ENABLED","Target":{"Arn":"arn:function","RoleArn":"arn:role"}}"#),
            (200, "{}"),
            (404, r#"{"__type":"ResourceNotFoundException","Message":"none"}"#),
            (403, r#"{"__type":"AccessDeniedException","Message":"no"}"#),
        ]);
        let ticks = server.aws().ticks("slipway", "arn:role", "arn:function");
        ticks.arm("prod").await.unwrap();
        ticks.arm("prod").await.unwrap();
        ticks.disarm("prod").await.unwrap();
        ticks.disarm("prod").await.unwrap();
        assert_eq!(ticks.arm("prod").await.unwrap_err().kind, ErrorKind::Denied);

        let request = &server.requests()[0];
        assert!(request.line.starts_with("POST /schedules/slipway-prod"), "{}", request.line);
        let body: serde_json::Value = serde_json::from_str(&request.body).unwrap();
        assert_eq!(body["GroupName"], "slipway");
        assert_eq!(body["ScheduleExpression"], "rate(1 minutes)");
        assert_eq!(body["Target"]["Arn"], "arn:function");
        assert_eq!(body["Target"]["RoleArn"], "arn:role");
        let input: serde_json::Value =
            serde_json::from_str(body["Target"]["Input"].as_str().unwrap()).unwrap();
        assert_eq!(
            input,
            json!({"source": "slipway", "detail-type": "Rollout Tick", "detail": {"cluster": "prod"}})
        );
    }

    #[tokio::test]
    async fn p8_a_schedule_that_wakes_nothing_is_not_taken_for_a_tick() {
        let conflict = (409, r#"{"__type":"ConflictException","Message":"exists"}"#);
        let cases: [(&[(u16, &'static str)], &str); 4] = [
            (&[(404, r#"{"__type":"ResourceNotFoundException","Message":"none"}"#)], "just being deleted"),
            (
                &[
                    (200, r#"{"State":"DISABLED","Target":{"Arn":"arn:function","RoleArn":"arn:role"}}"#),
                    (200, "{}"),
                ],
                "made anew",
            ),
            (
                &[
                    (200, r#"{"State":"ENABLED","Target":{"Arn":"arn:other","RoleArn":"arn:role"}}"#),
                    (200, "{}"),
                ],
                "made anew",
            ),
            (
                &[
                    (200, r#"{"State":"ENABLED","Target":{"Arn":"arn:function","RoleArn":"arn:old"}}"#),
                    (200, "{}"),
                ],
                "made anew",
            ),
        ];
        for (answers, words) in cases {
            let server = Server::new(&[&[conflict], answers].concat());
            let refused =
                server.aws().ticks("slipway", "arn:role", "arn:function").arm("prod").await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Transient, "{refused:?}");
            assert!(refused.message.contains(words), "{refused:?}");
            assert_eq!(server.requests().len(), 1 + answers.len());
        }
        let server = Server::new(&[conflict]);
        let refused =
            server.aws().ticks("slipway", "arn:role", "arn:function").disarm("prod").await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Transient, "it is deleted with the next try");
    }
}
