//! What the flows need from AWS in addition to [`slipway_ports`]: one narrow trait for each capability, with the IAM actions that it
//! needs.

use std::future::Future;

use slipway_core::event::Event;
use slipway_core::node::{Command, CommandView};
use slipway_ports::{ErrorKind, PortError, PortResult};
use slipway_rollout::fleet::{GroupView, Targets};
use slipway_rollout::{ChangeSetRequest, ChangeSetStatus, ChangeSetView, ResourceFailure, StackView};

/// The bus.
pub trait Bus: Send + Sync {
    /// Publishes all of `events`, in order, or fails. `events:PutEvents`.
    fn publish(&self, events: &[Event]) -> impl Future<Output = PortResult<()>> + Send;
}

/// CloudFormation.
pub trait Stacks: Send + Sync {
    /// The present state of the stack; `None` if it does not exist. `cloudformation:DescribeStacks`.
    fn stack(&self, name: &str) -> impl Future<Output = PortResult<Option<StackView>>> + Send;
    /// A change set; `None` if it does not exist. `cloudformation:DescribeChangeSet`; why it failed: `cloudformation:DescribeEvents`.
    fn change_set(
        &self,
        stack: &str,
        name: &str,
    ) -> impl Future<Output = PortResult<Option<ChangeSetView>>> + Send;
    /// Creates a change set; it succeeds if one of that name exists already. `cloudformation:CreateChangeSet`.
    fn create_change_set(&self, request: &ChangeSetRequest) -> impl Future<Output = PortResult<()>> + Send;
    /// Executes a change set under an idempotency token. It succeeds for one that cannot be executed (any more), because an earlier
    /// attempt of the same call may have executed it; the next observation shows the result. `cloudformation:ExecuteChangeSet`.
    fn execute_change_set(
        &self,
        stack: &str,
        name: &str,
        token: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes a change set; it succeeds if it does not exist or was executed. `cloudformation:DeleteChangeSet`.
    fn delete_change_set(&self, stack: &str, name: &str) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes a stack, named by its ARN so that it cannot be a later one of the same name: one that was never created
    /// (`CREATE_IN_PROGRESS`, `ROLLBACK_COMPLETE`), or with `stands` an existing one. `cloudformation:DeleteStack`.
    fn delete_stack(
        &self,
        id: &str,
        stands: bool,
        token: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// A refusal of one of these calls. It is not final while CloudFormation is at work on the stack, which somebody began after the stack was
    /// observed ("… is in UPDATE_IN_PROGRESS state and can not be updated").
    fn final_unless_busy(&self, stack: &str, refusal: PortError) -> impl Future<Output = PortError> + Send {
        async move {
            if refusal.kind != ErrorKind::Invalid {
                return refusal;
            }
            match self.stack(stack).await {
                Ok(Some(now)) if now.status.is_in_progress() => {
                    PortError { kind: ErrorKind::Transient, ..refusal }
                }
                Ok(_) | Err(_) => refusal,
            }
        }
    }
    /// Why the newest operation on the stack failed: the failed resources, the first one first, without those that were only cancelled.
    /// `cloudformation:DescribeStackEvents`.
    fn failures(&self, name: &str) -> impl Future<Output = PortResult<Vec<ResourceFailure>>> + Send;
}

/// What the refusal to execute a change set means, by what the change set is now; `None`: it was executed before.
#[must_use]
pub const fn why_not_executed(now: ChangeSetStatus) -> Option<ErrorKind> {
    match now {
        ChangeSetStatus::Executing | ChangeSetStatus::Executed | ChangeSetStatus::ExecuteFailed => None,
        // It is not ready yet, or what is seen of it is a little old.
        ChangeSetStatus::Pending | ChangeSetStatus::Ready => Some(ErrorKind::Transient),
        // Something else has changed the stack since it was observed: it is made anew.
        ChangeSetStatus::Obsolete => Some(ErrorKind::Missing),
        ChangeSetStatus::NoChanges | ChangeSetStatus::Failed => Some(ErrorKind::Invalid),
    }
}

/// Auto Scaling, and the load balancers with which it registers machines.
pub trait Groups: Send + Sync {
    /// The present state of the group; `None` if it does not exist. `autoscaling:DescribeAutoScalingGroups`.
    fn group(&self, name: &str) -> impl Future<Output = PortResult<Option<GroupView>>> + Send;
    /// The name of the group that the machine is in; `None` if it is in none. `autoscaling:DescribeAutoScalingInstances`.
    fn group_of(&self, instance: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
    /// The health of the targets of a target group, named by its ARN, as the load balancers see it; `None` if it does not exist.
    /// `elasticloadbalancing:DescribeTargetHealth`.
    fn targets(&self, target_group: &str) -> impl Future<Output = PortResult<Option<Targets>>> + Send;
    /// Raises the group's desired capacity to `desired`. It may be repeated, and makes no call if the capacity is as high already, since
    /// somebody else may have raised it further. `autoscaling:SetDesiredCapacity`.
    fn raise_desired(&self, group: &str, desired: u32) -> impl Future<Output = PortResult<()>> + Send;
    /// Terminates a machine of the group, through its terminate hook. If the desired capacity is above `then_desired`, it is decremented,
    /// and the machine gets no successor. It succeeds if the machine is terminating or no longer in the group, and does not decrement
    /// again. `autoscaling:TerminateInstanceInAutoScalingGroup`.
    fn terminate(
        &self,
        group: &str,
        instance: &str,
        then_desired: Option<u32>,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Completes a machine's terminate hook with `CONTINUE`; it succeeds if the hook is not waiting.
    /// `autoscaling:CompleteLifecycleAction`.
    fn complete_termination(
        &self,
        group: &str,
        instance: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Extends the timeout of a machine's terminate hook; it succeeds if the hook is not waiting.
    /// `autoscaling:RecordLifecycleActionHeartbeat`.
    fn prolong_termination(&self, group: &str, instance: &str)
    -> impl Future<Output = PortResult<()>> + Send;
}

/// Run Command with Slipway's documents, each of which runs one verb of `slipway-node`.
pub trait Commands: Send + Sync {
    /// Sends `command`, unless one with its token was sent already. Run Command's lists may lag, so it may still be sent twice. A machine
    /// that Run Command does not know, because it is booting, is gone or has lost its agent, is [`slipway_ports::ErrorKind::Invalid`].
    /// `ssm:ListCommands`, `ssm:SendCommand`.
    fn send(&self, command: &Command) -> impl Future<Output = PortResult<()>> + Send;
    /// The state of the command; `None`: no command with that token is known. `ssm:ListCommands`, `ssm:GetCommandInvocation`.
    fn answer(&self, command: &Command) -> impl Future<Output = PortResult<Option<CommandView>>> + Send;
    /// Cancels `command`: a machine that has not begun it never will, and one that is running it is told to stop. It succeeds if the
    /// command has ended or is not known. `ssm:ListCommands`, `ssm:CancelCommand`.
    fn cancel(&self, command: &Command) -> impl Future<Output = PortResult<()>> + Send;
    /// The comment of the command with that id, which is the token of Slipway's commands; `None`: the command is not known or has no
    /// comment. `ssm:ListCommands`.
    fn token(&self, id: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
}

/// The tick that wakes an open rollout (EventBridge Scheduler).
pub trait Ticks: Send + Sync {
    /// Creates the tick of `cluster`, once a minute; it succeeds if it exists. `scheduler:CreateSchedule`, and `scheduler:GetSchedule` if it
    /// exists.
    fn arm(&self, cluster: &str) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes the tick; it succeeds if it does not exist. `scheduler:DeleteSchedule`.
    fn disarm(&self, cluster: &str) -> impl Future<Output = PortResult<()>> + Send;
}
