//! Run Command's JSON.

use std::collections::BTreeMap;

use axum::response::Response;
use serde_json::{Map, Value, json};

use super::{Service, respond};
use crate::world::{ApiError, ApiResult, CommandRequest, PRINTED_AT_MOST, Sent, World};

const JSON: &str = "application/x-amz-json-1.1";
const SERVICE: &str = "AmazonSSM.";
/// Commands on a page at most.
const PAGE: usize = 50;

/// Answers a call whose header `X-Amz-Target` is `target`.
pub(super) fn answer(service: &Service, target: &str, body: &[u8]) -> Response {
    let action = target.strip_prefix(SERVICE).unwrap_or_default();
    let mut world = service.now();
    let request_id = world.request_id();
    match call(&mut world, target, action, body) {
        Ok(value) => respond(200, JSON, value.to_string(), &request_id),
        Err(error) => {
            let code = match error.code {
                "ValidationError" => "ValidationException",
                "Throttling" => "ThrottlingException",
                "AccessDenied" => "AccessDeniedException",
                other => other,
            };
            let text = json!({"__type": code, "message": error.message}).to_string();
            respond(400, JSON, text, &request_id)
        }
    }
}

fn call(world: &mut World, target: &str, action: &str, body: &[u8]) -> ApiResult<Value> {
    let body: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::validation_exception(format!("the body is not JSON: {error}")))?;
    let body =
        body.as_object().ok_or_else(|| ApiError::validation_exception("the body is not a structure"))?;
    match action {
        "SendCommand" => send(world, body),
        "CancelCommand" => {
            only(body, &["CommandId", "InstanceIds"])?;
            world.cancel_command(required(body, "CommandId")?)?;
            Ok(json!({}))
        }
        "ListCommands" => list(world, body),
        "GetCommandInvocation" => {
            only(body, &["CommandId", "InstanceId"])?;
            let sent =
                world.command_invocation(required(body, "CommandId")?, required(body, "InstanceId")?)?;
            Ok(invocation(sent))
        }
        _ => Err(ApiError::not_modelled(&format!("The action {target}"))),
    }
}

fn send(world: &mut World, body: &Map<String, Value>) -> ApiResult<Value> {
    only(body, &["Comment", "DocumentName", "InstanceIds", "Parameters", "TimeoutSeconds"])?;
    let instances = body.get("InstanceIds").and_then(Value::as_array);
    let [instance] = instances.map(Vec::as_slice).unwrap_or_default() else {
        return Err(ApiError::not_modelled("A command to other than one instance"));
    };
    let mut parameters = BTreeMap::new();
    for (name, values) in body.get("Parameters").and_then(Value::as_object).into_iter().flatten() {
        let [Value::String(value)] = values.as_array().map(Vec::as_slice).unwrap_or_default() else {
            return Err(ApiError::not_modelled("A parameter with other than one value"));
        };
        parameters.insert(name.clone(), value.clone());
    }
    let timeout_s = body.get("TimeoutSeconds").and_then(Value::as_u64).unwrap_or(3_600);
    let request = CommandRequest {
        document: required(body, "DocumentName")?.to_owned(),
        parameters,
        instance: instance.as_str().unwrap_or_default().to_owned(),
        comment: body.get("Comment").and_then(Value::as_str).unwrap_or_default().to_owned(),
        timeout_s: u32::try_from(timeout_s).unwrap_or(u32::MAX),
    };
    let instance = request.instance.clone();
    let id = world.send_command(request)?;
    let sent = world.sent(&id, &instance);
    Ok(json!({"Command": sent.map(command)}))
}

fn list(world: &mut World, body: &Map<String, Value>) -> ApiResult<Value> {
    only(body, &["CommandId", "Filters", "InstanceId", "MaxResults", "NextToken"])?;
    let mut document = None;
    for filter in body.get("Filters").and_then(Value::as_array).into_iter().flatten() {
        match (filter["key"].as_str(), filter["value"].as_str()) {
            (Some("DocumentName"), Some(name)) => document = Some(name),
            (key, _) => return Err(ApiError::not_modelled(&format!("The filter {key:?}"))),
        }
    }
    let most = body.get("MaxResults").and_then(Value::as_u64).map_or(PAGE, |most| most as usize);
    if !(1..=PAGE).contains(&most) {
        return Err(ApiError::validation_exception("Value at 'maxResults' is not between 1 and 50"));
    }
    let from: usize = match body.get("NextToken").and_then(Value::as_str) {
        None => 0,
        Some(token) => token.parse().map_err(|_| ApiError::validation_exception("Invalid NextToken"))?,
    };
    let mut found = world.list_commands(body.get("InstanceId").and_then(Value::as_str), document)?;
    if let Some(id) = body.get("CommandId").and_then(Value::as_str) {
        found.retain(|sent| sent.id == id);
    }
    let page: Vec<Value> = found.iter().skip(from).take(most).map(|sent| command(sent)).collect();
    let next = from + most;
    let mut answer = json!({"Commands": page});
    if next < found.len() {
        answer["NextToken"] = json!(next.to_string());
    }
    Ok(answer)
}

fn command(sent: &Sent) -> Value {
    let parameters: BTreeMap<&String, [&String; 1]> =
        sent.parameters.iter().map(|(name, value)| (name, [value])).collect();
    let over = u32::from(sent.details.is_over());
    json!({
        "CommandId": sent.id,
        "Comment": sent.comment,
        "CompletedCount": over,
        "DocumentName": sent.document,
        "InstanceIds": [sent.instance],
        "Parameters": parameters,
        "RequestedDateTime": sent.sent_at.as_millisecond() as f64 / 1_000.0,
        "Status": sent.details.status(),
        "StatusDetails": sent.details.name(),
        "TargetCount": 1,
        "TimeoutSeconds": sent.timeout_s,
    })
}

fn invocation(sent: &Sent) -> Value {
    let started = sent.started_at.map(|at| at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string());
    json!({
        "CommandId": sent.id,
        "Comment": sent.comment,
        "DocumentName": sent.document,
        "ExecutionStartDateTime": started.unwrap_or_default(),
        "InstanceId": sent.instance,
        "ResponseCode": sent.response_code,
        "StandardErrorContent": "",
        "StandardOutputContent": sent.output.chars().take(PRINTED_AT_MOST).collect::<String>(),
        "Status": sent.details.status(),
        "StatusDetails": sent.details.name(),
    })
}

fn required<'a>(body: &'a Map<String, Value>, key: &str) -> ApiResult<&'a str> {
    body.get(key).and_then(Value::as_str).ok_or_else(|| {
        ApiError::validation_exception(format!(
            "1 validation error detected: Value null at '{key}' failed to satisfy constraint: Member must not be null"
        ))
    })
}

/// Refuses what is not modelled.
fn only(body: &Map<String, Value>, known: &[&str]) -> ApiResult<()> {
    match body.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(ApiError::not_modelled(&format!("The parameter {key}"))),
    }
}
