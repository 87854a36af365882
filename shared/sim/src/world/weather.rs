//! What a whole region or account suffers: a service that is down for a while, and throttling that strikes everything at once.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::World;
use super::error::{ApiError, ApiResult};

/// How many calls are throttled in a storm.
const STORM: f64 = 0.5;

/// A service, as an outage takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Stacks go on with what they are at; nothing can be asked or begun.
    CloudFormation,
    /// Groups go on as they are; nothing can be asked or begun.
    AutoScaling,
    /// Load balancers go on as they are; nothing can be asked.
    LoadBalancing,
    /// Commands go on; none can be sent, and no answer read.
    RunCommand,
    /// Ticks come; none can be armed or disarmed.
    Scheduler,
    /// S3: no object can be read or written, by a function or by a machine.
    Storage,
    /// KMS: no data key is made or opened, by a function or by a machine.
    Keys,
    /// Parameter Store: no parameter can be read.
    Parameters,
    /// EventBridge: no event can be sent, and those that AWS services send are delivered once the outage is over.
    Bus,
}

/// Until when what is not as it should be.
#[derive(Debug, Clone, Default)]
pub(super) struct Weather {
    down: BTreeMap<Service, Timestamp>,
    storm: Option<Timestamp>,
}

/// Whose action that is.
fn service(action: &str) -> Service {
    match action {
        "SendCommand" | "ListCommands" | "GetCommandInvocation" | "CancelCommand" => Service::RunCommand,
        "CreateSchedule" | "DeleteSchedule" | "GetSchedule" | "UpdateSchedule" | "ListSchedules" => {
            Service::Scheduler
        }
        "DescribeAutoScalingGroups"
        | "SetDesiredCapacity"
        | "TerminateInstanceInAutoScalingGroup"
        | "CompleteLifecycleAction"
        | "RecordLifecycleActionHeartbeat" => Service::AutoScaling,
        "DescribeTargetHealth" => Service::LoadBalancing,
        _ => Service::CloudFormation,
    }
}

impl World {
    /// A service is down for so long: every call of it fails with `ServiceUnavailable` (503; "Common Errors" of the API references).
    pub fn outage(&mut self, which: Service, long: SignedDuration) {
        self.tell(format!("{which:?} is down for {} minutes", long.as_mins()));
        self.weather.down.insert(which, self.now + long);
    }

    /// Until when a service is down; `None`: it is not.
    #[must_use]
    pub fn down_until(&self, which: Service) -> Option<Timestamp> {
        self.weather.down.get(&which).copied().filter(|until| self.now < *until)
    }

    /// For so long every other call is throttled, whatever service it is of: an account's calls share their limits with whoever else calls.
    pub fn storm(&mut self, long: SignedDuration) {
        self.tell(format!("half of all calls are throttled for {} minutes", long.as_mins()));
        self.weather.storm = Some(self.now + long);
    }

    /// Every service answers again.
    pub fn clear_weather(&mut self) {
        self.weather = Weather::default();
    }

    /// Whether a call gets through to its service.
    pub(super) fn gets_through(&mut self, action: &str) -> ApiResult<()> {
        let now = self.now;
        if self.down_until(service(action)).is_some() {
            return Err(ApiError::unavailable());
        }
        if self.weather.storm.is_some_and(|until| now < until) && self.chance("storm", STORM) {
            return Err(ApiError::throttling());
        }
        Ok(())
    }
}
