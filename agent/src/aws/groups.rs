//! Auto Scaling: a node completes its own lifecycle actions, and abandons its launch when it cannot become healthy.

use slipway_ports::{ErrorKind, PortResult};

use super::endpoints::Service;
use super::{Aws, Body, Call, code_of, form};

const VERSION: &str = "2011-01-01";

/// A pending lifecycle action of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub group: String,
    pub name: String,
    pub instance: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookResult {
    Continue,
    /// Terminates an instance that is launching.
    Abandon,
}

impl Aws {
    /// `autoscaling:CompleteLifecycleAction`; `false` if no lifecycle action is pending.
    pub async fn complete_hook(&self, hook: &Hook, result: HookResult) -> PortResult<bool> {
        let word = match result {
            HookResult::Continue => "CONTINUE",
            HookResult::Abandon => "ABANDON",
        };
        self.hook("autoscaling:CompleteLifecycleAction", hook, &[("LifecycleActionResult", word)]).await
    }

    /// `autoscaling:RecordLifecycleActionHeartbeat`: restarts the hook's timeout; `false` if no lifecycle action is pending.
    pub async fn heartbeat(&self, hook: &Hook) -> PortResult<bool> {
        self.hook("autoscaling:RecordLifecycleActionHeartbeat", hook, &[]).await
    }

    /// `autoscaling:SetInstanceHealth`: the group replaces the instance, through its terminate hook. The error says why it does not, for
    /// example because it terminates the instance already.
    ///
    /// Protection from scale-in does not protect from this. While the group's process `ReplaceUnhealthy` is suspended, the instance stays
    /// (user guide, "Using instance scale-in protection", "Health checks for Auto Scaling instances").
    pub async fn report_unhealthy(&self, instance: &str) -> PortResult<Result<(), String>> {
        let parameters =
            [("InstanceId", instance), ("HealthStatus", "Unhealthy"), ("ShouldRespectGracePeriod", "true")];
        match self.auto_scaling("autoscaling:SetInstanceHealth", instance, &parameters).await {
            Ok(()) => Ok(Ok(())),
            Err(error)
                if error.kind == ErrorKind::Invalid
                    && ["ValidationError", "ResourceContention"].contains(&code_of(&error)) =>
            {
                Ok(Err(error.message))
            }
            Err(error) => Err(error),
        }
    }

    async fn hook(&self, operation: &'static str, hook: &Hook, more: &[(&str, &str)]) -> PortResult<bool> {
        let mut parameters = vec![
            ("AutoScalingGroupName", hook.group.as_str()),
            ("LifecycleHookName", hook.name.as_str()),
            ("InstanceId", hook.instance.as_str()),
        ];
        parameters.extend(more);
        let subject = format!("{} of {} for {}", hook.name, hook.group, hook.instance);
        match self.auto_scaling(operation, &subject, &parameters).await {
            Ok(()) => Ok(true),
            // `No active Lifecycle Action found with instance ID …`: it was completed, it timed out, or the instance was launched
            // by hand.
            Err(error)
                if error.kind == ErrorKind::Invalid
                    && code_of(&error) == "ValidationError"
                    && error.message.contains("No active Lifecycle Action") =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn auto_scaling(
        &self,
        operation: &'static str,
        subject: &str,
        parameters: &[(&str, &str)],
    ) -> PortResult<()> {
        let action = operation.trim_start_matches("autoscaling:");
        let mut pairs = vec![("Action", action), ("Version", VERSION)];
        pairs.extend(parameters);
        let body = form(&pairs);
        let url = format!("{}/", self.base(Service::AutoScaling));
        let call = Call {
            headers: vec![("content-type", "application/x-www-form-urlencoded".to_owned())],
            body: Body::Bytes(body.as_bytes()),
            ..Call::new(operation, subject, Service::AutoScaling, url)
        };
        self.send(&call).await.map(drop)
    }
}
