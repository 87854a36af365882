//! Scheduler's REST-JSON.

use axum::http::{HeaderValue, Method, Uri};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::query::{Query, decoded};
use super::{Service, respond};
use crate::world::{ApiError, ApiResult, Schedule, ScheduleRequest};

/// Answers a call.
pub(super) fn answer(service: &Service, method: &Method, uri: &Uri, body: &[u8]) -> Response {
    let request_id = service.now().request_id();
    match call(service, method, uri, body) {
        Ok(value) => respond(200, "application/json", value.to_string(), &request_id),
        Err(error) => {
            let text = json!({"Message": error.message}).to_string();
            let mut response = respond(error.http_status, "application/json", text, &request_id);
            // The Scheduler's name for CloudFormation's ValidationError.
            let code = match error.code {
                "ValidationError" => "ValidationException",
                "Throttling" => "ThrottlingException",
                "AccessDenied" => "AccessDeniedException",
                other => other,
            };
            response.headers_mut().insert("x-amzn-errortype", HeaderValue::from_static(code));
            response
        }
    }
}

fn call(service: &Service, method: &Method, uri: &Uri, body: &[u8]) -> ApiResult<Value> {
    let query = Query::parse(uri.query().unwrap_or_default());
    let name = uri.path().strip_prefix("/schedules/").map(decoded).filter(|name| !name.contains('/'));
    let name = name.ok_or_else(|| ApiError::not_modelled(&format!("{method} {}", uri.path())))?;
    match method.as_str() {
        "POST" => {
            query.finish()?;
            let request = request(name, body)?;
            Ok(json!({"ScheduleArn": service.now().create_schedule(request)?}))
        }
        "GET" => {
            let group = query.take("groupName");
            query.finish()?;
            Ok(shown(service.now().schedule(group, &name)?))
        }
        "DELETE" => {
            let group = query.take("groupName");
            query.take("clientToken");
            query.finish()?;
            service.now().delete_schedule(group, &name)?;
            Ok(json!({}))
        }
        other => Err(ApiError::not_modelled(&format!("{other} of a schedule"))),
    }
}

fn shown(schedule: &Schedule) -> Value {
    json!({
        "ActionAfterCompletion": "NONE",
        "Arn": schedule.arn,
        "CreationDate": schedule.created_at.as_millisecond() as f64 / 1_000.0,
        "LastModificationDate": schedule.created_at.as_millisecond() as f64 / 1_000.0,
        "Description": schedule.description,
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "GroupName": schedule.group,
        "Name": schedule.name,
        "ScheduleExpression": schedule.expression,
        "ScheduleExpressionTimezone": "UTC",
        "State": if schedule.enabled { "ENABLED" } else { "DISABLED" },
        "Target": {
            "Arn": schedule.target_arn, "RoleArn": schedule.role_arn, "Input": schedule.input,
            "RetryPolicy": schedule.retry_policy,
        },
    })
}

fn request(name: String, body: &[u8]) -> ApiResult<ScheduleRequest> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::validation_exception(format!("the body is not JSON: {error}")))?;
    let top = Part { path: "", object: object(&body, "the body")? };
    top.only(&[
        "ActionAfterCompletion",
        "ClientToken",
        "Description",
        "FlexibleTimeWindow",
        "GroupName",
        "ScheduleExpression",
        "ScheduleExpressionTimezone",
        "State",
        "Target",
    ])?;
    top.is("ActionAfterCompletion", "NONE")?;
    top.is("ScheduleExpressionTimezone", "UTC")?;
    let window = Part {
        path: "FlexibleTimeWindow.",
        object: object(&body["FlexibleTimeWindow"], "FlexibleTimeWindow")?,
    };
    window.only(&["Mode"])?;
    window.is("Mode", "OFF")?;
    let target = Part { path: "Target.", object: object(&body["Target"], "Target")? };
    target.only(&["Arn", "Input", "RetryPolicy", "RoleArn"])?;
    let enabled = match top.text("State").as_deref() {
        None | Some("ENABLED") => true,
        Some("DISABLED") => false,
        Some(other) => return Err(ApiError::validation_exception(format!("State {other} is not a state"))),
    };
    Ok(ScheduleRequest {
        group: top.text("GroupName"),
        name,
        expression: top.text("ScheduleExpression").unwrap_or_default(),
        target_arn: target.text("Arn").unwrap_or_default(),
        role_arn: target.text("RoleArn").unwrap_or_default(),
        input: target.text("Input"),
        retry_policy: target.object.get("RetryPolicy").cloned(),
        description: top.text("Description"),
        enabled,
        token: top.text("ClientToken"),
    })
}

/// A part of a request. Only keys that are modelled are accepted.
struct Part<'a> {
    path: &'static str,
    object: &'a Map<String, Value>,
}

fn object<'a>(value: &'a Value, what: &str) -> ApiResult<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| ApiError::validation_exception(format!("{what} must be a structure")))
}

impl Part<'_> {
    fn only(&self, known: &[&str]) -> ApiResult<()> {
        match self.object.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => Err(ApiError::not_modelled(&format!("The parameter {}{key}", self.path))),
        }
    }

    fn text(&self, key: &str) -> Option<String> {
        self.object.get(key).and_then(Value::as_str).map(str::to_owned)
    }

    /// The key is absent or has the one value that is modelled.
    fn is(&self, key: &str, only: &str) -> ApiResult<()> {
        match self.object.get(key) {
            None => Ok(()),
            Some(value) if value == only => Ok(()),
            Some(value) => Err(ApiError::not_modelled(&format!("{}{key} {value}", self.path))),
        }
    }
}
