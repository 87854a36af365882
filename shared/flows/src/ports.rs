//! What the flows need from AWS besides what lies in [`slipway_ports`]: one narrow trait a capability, each mirrored by the IAM
//! actions it costs.

use std::future::Future;

use slipway_core::event::Event;
use slipway_core::node::{Command, CommandView};
use slipway_ports::PortResult;
use slipway_rollout::fleet::{GroupView, Targets};
use slipway_rollout::{ChangeSetRequest, ChangeSetView, ResourceFailure, StackView};

/// The bus.
pub trait Bus: Send + Sync {
    /// Publishes all of `events`, in order, or fails. `events:PutEvents`.
    fn publish(&self, events: &[Event]) -> impl Future<Output = PortResult<()>> + Send;
}

/// CloudFormation.
pub trait Stacks: Send + Sync {
    /// The stack as it is now; `None` if there is none. `cloudformation:DescribeStacks`.
    fn stack(&self, name: &str) -> impl Future<Output = PortResult<Option<StackView>>> + Send;
    /// A change set; `None` if there is none. `cloudformation:DescribeChangeSet`.
    fn change_set(
        &self,
        stack: &str,
        name: &str,
    ) -> impl Future<Output = PortResult<Option<ChangeSetView>>> + Send;
    /// Begins a change set; one of that name that exists already is success. `cloudformation:CreateChangeSet`.
    fn create_change_set(&self, request: &ChangeSetRequest) -> impl Future<Output = PortResult<()>> + Send;
    /// Executes a change set under an idempotency token. One that cannot be executed (any more) is success, for it may
    /// have been executed by the same call before: the next look at it says what became of it.
    /// `cloudformation:ExecuteChangeSet`.
    fn execute_change_set(
        &self,
        stack: &str,
        name: &str,
        token: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes a change set; none, or one that was executed, is success. `cloudformation:DeleteChangeSet`.
    fn delete_change_set(&self, stack: &str, name: &str) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes a stack, named by its ARN so that it can be no later one: one that never came to be (`CREATE_IN_PROGRESS`,
    /// `ROLLBACK_COMPLETE`), or `stands`: one that does. `cloudformation:DeleteStack`.
    fn delete_stack(
        &self,
        id: &str,
        stands: bool,
        token: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Why the newest operation on the stack failed: the first failing resource first, without those that were
    /// only cancelled. `cloudformation:DescribeStackEvents`.
    fn failures(&self, name: &str) -> impl Future<Output = PortResult<Vec<ResourceFailure>>> + Send;
}

/// Auto Scaling, and the load balancers behind which it puts machines.
pub trait Groups: Send + Sync {
    /// The group as it is now; `None` if there is none. `autoscaling:DescribeAutoScalingGroups`.
    fn group(&self, name: &str) -> impl Future<Output = PortResult<Option<GroupView>>> + Send;
    /// How the load balancers that use it take the targets of a target group, named by its ARN; `None` if there is none.
    /// `elasticloadbalancing:DescribeTargetHealth`.
    fn targets(&self, target_group: &str) -> impl Future<Output = PortResult<Option<Targets>>> + Send;
    /// Has the group want that many machines at least. A level, so that twice is once, and no call where it wants as
    /// many already: somebody else may have made it larger. `autoscaling:SetDesiredCapacity`.
    fn raise_desired(&self, group: &str, desired: u32) -> impl Future<Output = PortResult<()>> + Send;
    /// Terminates a machine of the group, through its terminate hook. `then_desired`: where the group wants more machines than that, it wants
    /// one less from then on, and none is launched for it. One that is on its way out, or no longer in the group, is success, and
    /// nothing shrinks again. `autoscaling:TerminateInstanceInAutoScalingGroup`.
    fn terminate(
        &self,
        group: &str,
        instance: &str,
        then_desired: Option<u32>,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Ends a machine's terminate hook, by `CONTINUE`; one that does not wait is success. `autoscaling:CompleteLifecycleAction`.
    fn complete_termination(
        &self,
        group: &str,
        instance: &str,
    ) -> impl Future<Output = PortResult<()>> + Send;
    /// Prolongs a machine's terminate hook; one that does not wait is success. `autoscaling:RecordLifecycleActionHeartbeat`.
    fn prolong_termination(&self, group: &str, instance: &str)
    -> impl Future<Output = PortResult<()>> + Send;
}

/// Run Command, by the documents that name one verb of `slipway-node` each.
pub trait Commands: Send + Sync {
    /// Sends `command`, unless one of its token was sent before. Run Command's lists are late at times, so that it may be sent twice
    /// all the same. A machine that Run Command does not know, for it boots, is gone or has lost its agent, is
    /// [`slipway_ports::ErrorKind::Invalid`]. `ssm:ListCommands`, `ssm:SendCommand`.
    fn send(&self, command: &Command) -> impl Future<Output = PortResult<()>> + Send;
    /// What became of it; `None`: nobody knows of one with that token. `ssm:ListCommands`, `ssm:GetCommandInvocation`.
    fn answer(&self, command: &Command) -> impl Future<Output = PortResult<Option<CommandView>>> + Send;
    /// Takes `command` back: a machine that has not begun it never does, and one that is at it is told to stop. One that is over, or that
    /// nobody knows of, is success. `ssm:ListCommands`, `ssm:CancelCommand`.
    fn cancel(&self, command: &Command) -> impl Future<Output = PortResult<()>> + Send;
    /// The token of the command that Run Command calls `id`, or whatever else was written there; `None`: nobody knows of it, or
    /// nothing was. `ssm:ListCommands`.
    fn token(&self, id: &str) -> impl Future<Output = PortResult<Option<String>>> + Send;
}

/// The tick that wakes a rollout while it is open (EventBridge Scheduler).
pub trait Ticks: Send + Sync {
    /// Makes the tick of `cluster`, once a minute; one that exists is success. `scheduler:CreateSchedule`.
    fn arm(&self, cluster: &str) -> impl Future<Output = PortResult<()>> + Send;
    /// Deletes it; none is success. `scheduler:DeleteSchedule`.
    fn disarm(&self, cluster: &str) -> impl Future<Output = PortResult<()>> + Send;
}
