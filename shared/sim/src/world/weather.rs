//! Problems of a whole region or account: a service that is down for a while, and throttling of all calls.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::World;
use super::error::{ApiError, ApiResult};

/// The share of calls that are throttled in a storm.
const STORM: f64 = 0.5;

/// A service that an outage can affect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Operations on stacks continue; every call fails.
    CloudFormation,
    /// Groups continue to work; every call fails.
    AutoScaling,
    /// Load balancers continue to work; every call fails.
    LoadBalancing,
    /// Commands continue; none can be sent, and no answer can be read.
    RunCommand,
    /// Ticks are delivered; none can be created or deleted.
    Scheduler,
    /// S3: no object can be read or written, by a function or by a machine.
    Storage,
    /// KMS: no data key is made or decrypted, by a function or by a machine.
    Keys,
    /// Parameter Store: no parameter can be read.
    Parameters,
    /// EventBridge: no event can be sent, and those that AWS services send are delivered once the outage is over.
    Bus,
}

/// The end of each outage and of a storm.
#[derive(Debug, Clone, Default)]
pub(super) struct Weather {
    down: BTreeMap<Service, Timestamp>,
    storm: Option<Timestamp>,
}

/// The service of an action.
fn service(action: &str) -> Service {
    match action {
        "SendCommand" | "ListCommands" | "GetCommandInvocation" | "CancelCommand" => Service::RunCommand,
        "CreateSchedule" | "DeleteSchedule" | "GetSchedule" | "UpdateSchedule" | "ListSchedules" => {
            Service::Scheduler
        }
        "DescribeAutoScalingGroups"
        | "DescribeAutoScalingInstances"
        | "SetDesiredCapacity"
        | "TerminateInstanceInAutoScalingGroup"
        | "CompleteLifecycleAction"
        | "RecordLifecycleActionHeartbeat" => Service::AutoScaling,
        "DescribeTargetHealth" => Service::LoadBalancing,
        _ => Service::CloudFormation,
    }
}

impl World {
    /// A service is down for this time: every call fails with `ServiceUnavailable` (503; "Common Errors" of the API references).
    pub fn outage(&mut self, which: Service, long: SignedDuration) {
        self.record(format!("{which:?} is down for {} minutes", long.as_mins()));
        self.weather.down.insert(which, self.now + long);
    }

    /// The end of an outage of a service; `None` if there is none.
    #[must_use]
    pub fn down_until(&self, which: Service) -> Option<Timestamp> {
        self.weather.down.get(&which).copied().filter(|until| self.now < *until)
    }

    /// For this time, half of all calls to any service are throttled: the limits of an account apply to all its callers together.
    pub fn storm(&mut self, long: SignedDuration) {
        self.record(format!("half of all calls are throttled for {} minutes", long.as_mins()));
        self.weather.storm = Some(self.now + long);
    }

    /// Every service answers again.
    pub fn clear_weather(&mut self) {
        self.weather = Weather::default();
    }

    /// Whether a call reaches its service.
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
