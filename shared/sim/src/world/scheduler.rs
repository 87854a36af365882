//! EventBridge Scheduler: schedules that fire at a rate.

use jiff::Timestamp;

use super::World;
use super::error::{ApiError, ApiResult};
use super::events::Outgoing;
use super::task::Task;

/// A schedule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    pub(crate) group: String,
    pub(crate) name: String,
    pub(crate) arn: String,
    pub(crate) expression: String,
    pub(crate) every_s: f64,
    pub(crate) target_arn: String,
    pub(crate) role_arn: String,
    pub(crate) input: Option<String>,
    /// Stored and shown; the receiver of an invocation is called only once.
    pub(crate) retry_policy: Option<serde_json::Value>,
    pub(crate) description: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) created_at: Timestamp,
    pub(crate) token: Option<String>,
    /// Distinguishes the schedule from an earlier one with the same name.
    made: u64,
}

/// The parameters of `CreateSchedule`.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScheduleRequest {
    pub(crate) group: Option<String>,
    pub(crate) name: String,
    pub(crate) expression: String,
    pub(crate) target_arn: String,
    pub(crate) role_arn: String,
    pub(crate) input: Option<String>,
    /// Stored and shown; the receiver of an invocation is called only once.
    pub(crate) retry_policy: Option<serde_json::Value>,
    pub(crate) description: Option<String>,
    pub(crate) enabled: bool,
    pub(crate) token: Option<String>,
}

/// The group of schedules without a group.
const DEFAULT_GROUP: &str = "default";

impl World {
    /// `CreateSchedule`. Returns the schedule's ARN.
    pub(crate) fn create_schedule(&mut self, request: ScheduleRequest) -> ApiResult<String> {
        self.enter("CreateSchedule")?;
        let group = request.group.clone().unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        let key = (group.clone(), request.name.clone());
        if let Some(existing) = self.schedules.get(&key) {
            if request.token.is_some() && existing.token == request.token {
                return Ok(existing.arn.clone());
            }
            return Err(ApiError::conflict(format!("Schedule {} already exists.", request.name)));
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if request.name.is_empty() || request.name.len() > 64 || !request.name.chars().all(allowed) {
            return Err(ApiError::validation_exception(format!("Invalid schedule name {}.", request.name)));
        }
        for (what, arn) in [("Target.Arn", &request.target_arn), ("Target.RoleArn", &request.role_arn)] {
            if !arn.starts_with("arn:") {
                return Err(ApiError::validation_exception(format!(
                    "Provided {what} {arn} is not a valid ARN."
                )));
            }
        }
        // The expression is checked before anything is stored.
        rate_s(&request.expression)?;
        let name = request.name.clone();
        let (arn, made) = self.insert_schedule(request);
        // A rate fires first at its creation, and then at its rate.
        self.at_rate(0.0, Task::Fire { group, name, made });
        Ok(arn)
    }

    /// Stores a schedule, which fires once its task is queued. Returns its ARN and its number.
    pub(super) fn insert_schedule(&mut self, request: ScheduleRequest) -> (String, u64) {
        let group = request.group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
        self.sequence += 1;
        let made = self.sequence;
        let (region, account) = (&self.config.region, &self.config.account);
        let arn = format!("arn:aws:scheduler:{region}:{account}:schedule/{group}/{}", request.name);
        let key = (group.clone(), request.name.clone());
        let schedule = Schedule {
            group,
            name: request.name,
            arn: arn.clone(),
            every_s: rate_s(&request.expression).unwrap_or_default(),
            expression: request.expression,
            target_arn: request.target_arn,
            role_arn: request.role_arn,
            input: request.input,
            retry_policy: request.retry_policy,
            description: request.description,
            enabled: request.enabled,
            created_at: self.now,
            token: request.token,
            made,
        };
        self.schedules.insert(key, schedule);
        (arn, made)
    }

    /// `GetSchedule`.
    pub(crate) fn schedule(&mut self, group: Option<&str>, name: &str) -> ApiResult<&Schedule> {
        self.enter("GetSchedule")?;
        let key = (group.unwrap_or(DEFAULT_GROUP).to_owned(), name.to_owned());
        self.schedules.get(&key).ok_or_else(|| not_found(name))
    }

    /// `DeleteSchedule`.
    pub(crate) fn delete_schedule(&mut self, group: Option<&str>, name: &str) -> ApiResult<()> {
        self.enter("DeleteSchedule")?;
        let key = (group.unwrap_or(DEFAULT_GROUP).to_owned(), name.to_owned());
        self.schedules.remove(&key).map(|_| ()).ok_or_else(|| not_found(name))
    }

    /// Names of the schedules that exist, `group/name`.
    #[must_use]
    pub fn schedules(&self) -> Vec<String> {
        self.schedules.keys().map(|(group, name)| format!("{group}/{name}")).collect()
    }

    pub(super) fn fire(&mut self, group: String, name: String, made: u64) {
        let Some(schedule) = self.schedules.get(&(group.clone(), name.clone())) else { return };
        if schedule.made != made {
            return;
        }
        let every_s = schedule.every_s;
        if schedule.enabled {
            let invoke = Outgoing::Invoke {
                schedule: name.clone(),
                target_arn: schedule.target_arn.clone(),
                role_arn: schedule.role_arn.clone(),
                input: schedule.input.clone().unwrap_or_else(|| "{}".to_owned()),
                at: self.now,
            };
            self.outbox.push(invoke);
        }
        self.at_rate(every_s, Task::Fire { group, name, made });
    }

    /// A schedule's rate is in the world's time: the pace of operations does not change it.
    fn at_rate(&mut self, seconds: f64, task: Task) {
        self.sequence += 1;
        let at = self.now + jiff::SignedDuration::from_secs_f64(seconds);
        self.queue.insert((at, self.sequence), task);
    }
}

fn not_found(name: &str) -> ApiError {
    ApiError::resource_not_found(format!("Schedule {name} does not exist."))
}

/// Seconds between two firings of `rate(5 minutes)`.
fn rate_s(expression: &str) -> ApiResult<f64> {
    let invalid = || ApiError::validation_exception(format!("Invalid Schedule Expression {expression}."));
    if expression.starts_with("cron(") || expression.starts_with("at(") {
        let message = format!("{expression} is not modelled by the simulated Scheduler: rate() alone");
        return Err(ApiError::validation_exception(message));
    }
    let inside =
        expression.strip_prefix("rate(").and_then(|rest| rest.strip_suffix(')')).ok_or_else(invalid)?;
    let (count, unit) = inside.split_once(' ').ok_or_else(invalid)?;
    let count: u32 = count.parse().ok().filter(|count| *count > 0).ok_or_else(invalid)?;
    let unit_s = match unit {
        "minute" | "minutes" => 60,
        "hour" | "hours" => 3_600,
        "day" | "days" => 86_400,
        _ => return Err(invalid()),
    };
    Ok(f64::from(count) * f64::from(unit_s))
}
