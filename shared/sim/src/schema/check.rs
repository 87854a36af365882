//! Whether a value matches a schema: the part of JSON Schema that CloudFormation's resource schemas use.

use serde_json::{Map, Value};

use super::regexes;
use super::{ResourceType, UNKNOWN};

/// A problem, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `/CidrBlock`, below the properties; empty for the properties as a whole.
    pub(crate) path: String,
    /// The problem in CloudFormation's words.
    pub(crate) message: String,
}

/// All problems of the properties of a resource. Values that are known only after the change (`{{changeSet:KNOWN_AFTER_APPLY}}`)
/// count as correct.
pub(crate) fn check(kind: &ResourceType, properties: &Value) -> Vec<Finding> {
    let mut found = Vec::new();
    let context = Context { definitions: &kind.definitions };
    context.object("", &kind.schema, properties, &mut found);
    for path in &kind.read_only {
        let pointer = format!("/{}", path.replace('.', "/"));
        if !path.contains('*') && properties.pointer(&pointer).is_some() {
            found.push(Finding {
                message: format!("Encountered unsupported property {path}: it is read-only"),
                path: pointer,
            });
        }
    }
    found
}

struct Context<'a> {
    definitions: &'a Map<String, Value>,
}

impl Context<'_> {
    fn value(&self, path: &str, schema: &Value, value: &Value, found: &mut Vec<Finding>) {
        let Some(schema) = schema.as_object() else { return };
        self.object(path, schema, value, found);
    }

    fn object(&self, path: &str, schema: &Map<String, Value>, value: &Value, found: &mut Vec<Finding>) {
        if value.as_str().is_some_and(|text| text.contains(UNKNOWN)) {
            return;
        }
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let name = reference.trim_start_matches("#/definitions/");
            if let Some(definition) = self.definitions.get(name) {
                self.value(path, definition, value, found);
            }
        }
        let mut fault = |message: String| found.push(Finding { path: path.to_owned(), message });
        if let Some(wanted) = schema.get("type")
            && !types(wanted).iter().any(|kind| is_of(kind, value))
        {
            let wanted = types(wanted).join(" or ");
            fault(format!("Value of property must be of type {wanted}, found {}", kind_of(value)));
            return;
        }
        scalar(schema, value, &mut fault);
        self.choices(path, schema, value, found);
        match value {
            Value::Array(items) => self.items(path, schema, items, found),
            Value::Object(object) => self.members(path, schema, object, found),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn choices(&self, path: &str, schema: &Map<String, Value>, value: &Value, found: &mut Vec<Finding>) {
        let fits = |one: &Value| {
            let mut findings = Vec::new();
            self.value(path, one, value, &mut findings);
            findings.is_empty()
        };
        if let Some(Value::Array(any)) = schema.get("anyOf")
            && !any.iter().any(fits)
        {
            found.push(Finding { path: path.to_owned(), message: choice("at least one", any) });
        }
        if let Some(Value::Array(one)) = schema.get("oneOf")
            && one.iter().filter(|one| fits(one)).count() != 1
        {
            found.push(Finding { path: path.to_owned(), message: choice("exactly one", one) });
        }
    }

    fn items(&self, path: &str, schema: &Map<String, Value>, items: &[Value], found: &mut Vec<Finding>) {
        let mut fault = |message: String| found.push(Finding { path: path.to_owned(), message });
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        let count = items.len() as u64;
        if limit("minItems").is_some_and(|least| count < least) {
            fault(format!(
                "expected at least {} items, found {count}",
                limit("minItems").unwrap_or_default()
            ));
        }
        if limit("maxItems").is_some_and(|most| count > most) {
            fault(format!("expected at most {} items, found {count}", limit("maxItems").unwrap_or_default()));
        }
        let unknown = |item: &Value| item.to_string().contains(UNKNOWN);
        if schema.get("uniqueItems") == Some(&Value::Bool(true))
            && items.iter().enumerate().any(|(i, item)| !unknown(item) && items[..i].contains(item))
        {
            fault("array items are not unique".to_owned());
        }
        if let Some(schema) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.value(&format!("{path}/{index}"), schema, item, found);
            }
        }
    }

    fn members(
        &self,
        path: &str,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        found: &mut Vec<Finding>,
    ) {
        groups(path, schema, object, found);
        let properties = schema.get("properties").and_then(Value::as_object);
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        for (key, value) in object {
            let below = format!("{path}/{key}");
            if let Some(schema) = properties.and_then(|properties| properties.get(key)) {
                self.value(&below, schema, value, found);
                continue;
            }
            let pattern = patterns.and_then(|patterns| {
                patterns.iter().find(|(pattern, _)| regexes::matches(pattern, key) == Some(true))
            });
            match (pattern, schema.get("additionalProperties")) {
                (Some((_, schema)), _) => self.value(&below, schema, value, found),
                (None, Some(Value::Bool(false))) => found.push(Finding {
                    path: below,
                    message: format!("Encountered unsupported property {key}"),
                }),
                (None, Some(schema)) => self.value(&below, schema, value, found),
                (None, None) => {}
            }
        }
    }
}

/// The constraints on strings and numbers.
fn scalar(schema: &Map<String, Value>, value: &Value, fault: &mut impl FnMut(String)) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return,
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(Value::Array(allowed)) = schema.get("enum")
        && !allowed.iter().any(|one| plain(one) == text)
    {
        let allowed = allowed.iter().map(plain).collect::<Vec<_>>().join(", ");
        fault(format!("{text} is not a valid enum value: one of [{allowed}]"));
    }
    if let Some(Value::Array(allowed)) = schema.get("enumCaseInsensitive")
        && !allowed.iter().any(|one| plain(one).eq_ignore_ascii_case(&text))
    {
        fault(format!("{text} is not a valid enum value"));
    }
    if schema.get("const").is_some_and(|wanted| plain(wanted) != text) {
        fault(format!("{text} is not the constant that is asked for"));
    }
    if value.is_string() {
        let length = text.chars().count() as u64;
        let limit = |key: &str| schema.get(key).and_then(Value::as_u64);
        if limit("minLength").is_some_and(|least| length < least)
            || limit("maxLength").is_some_and(|most| length > most)
        {
            let (least, most) = (limit("minLength").unwrap_or(0), limit("maxLength"));
            let most = most.map_or_else(|| "any".to_owned(), |most| most.to_string());
            fault(format!("expected a length of {least} to {most}, found {length}"));
        }
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && regexes::matches(pattern, &text) == Some(false)
        {
            fault(format!(
                "failed validation constraint for keyword [pattern]: {text} does not match {pattern}"
            ));
        }
    }
    if let Ok(number) = text.parse::<f64>() {
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        if limit("minimum").is_some_and(|least| number < least)
            || limit("maximum").is_some_and(|most| number > most)
        {
            fault(format!("{text} is not in the range that is allowed"));
        }
    }
}

/// Which members must be there, alone or together.
fn groups(path: &str, schema: &Map<String, Value>, object: &Map<String, Value>, found: &mut Vec<Finding>) {
    let mut fault = |message: String| found.push(Finding { path: path.to_owned(), message });
    let names = |key: &str| list(schema.get(key));
    let present = |names: &[&str]| names.iter().filter(|name| object.contains_key(**name)).count();
    for name in names("required") {
        if !object.contains_key(name) {
            fault(format!("required key [{name}] not found"));
        }
    }
    let one = names("requiredXor");
    if !one.is_empty() && present(&one) != 1 {
        fault(format!("exactly one of [{}] must be specified", one.join(", ")));
    }
    let any = names("requiredOr");
    if !any.is_empty() && present(&any) == 0 {
        fault(format!("at least one of [{}] must be specified", any.join(", ")));
    }
    let dependent = |key: &str| schema.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, needs) in dependent("dependentRequired") {
        let missing =
            list(Some(&needs)).into_iter().find(|need| !object.contains_key(*need)).map(str::to_owned);
        if let (true, Some(missing)) = (object.contains_key(&name), missing) {
            fault(format!("property [{name}] needs property [{missing}]"));
        }
    }
    for (name, excludes) in dependent("dependentExcluded") {
        let clash =
            list(Some(&excludes)).into_iter().find(|other| object.contains_key(*other)).map(str::to_owned);
        if let (true, Some(clash)) = (object.contains_key(&name), clash) {
            fault(format!("property [{name}] excludes property [{clash}]"));
        }
    }
}

fn list(value: Option<&Value>) -> Vec<&str> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
}

fn types(wanted: &Value) -> Vec<&str> {
    wanted.as_str().map_or_else(|| list(Some(wanted)), |one| vec![one])
}

/// CloudFormation turns strings into numbers and booleans and back, so it takes either.
fn is_of(kind: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => match kind {
            "string" => true,
            "integer" => text.parse::<i64>().is_ok(),
            "number" => text.parse::<f64>().is_ok(),
            "boolean" => text == "true" || text == "false",
            _ => false,
        },
        Value::Number(number) => match kind {
            "string" | "number" => true,
            "integer" => number.is_i64() || number.is_u64(),
            _ => false,
        },
        Value::Bool(_) => kind == "boolean" || kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
        Value::Null => kind == "null",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn choice(how_many: &str, schemas: &[Value]) -> String {
    let required: Vec<String> =
        schemas.iter().map(|schema| format!("[{}]", list(schema.get("required")).join(", "))).collect();
    format!("{how_many} of {} must be specified", required.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::resource_type;
    use super::*;
    use serde_json::json;

    fn findings(kind: &str, properties: &Value) -> Vec<String> {
        check(resource_type(kind).unwrap(), properties)
            .into_iter()
            .map(|finding| format!("{} {}", finding.path, finding.message))
            .collect()
    }

    #[test]
    fn what_is_right_has_no_findings() {
        let subnet = json!({"VpcId": "vpc-1", "CidrBlock": "10.0.0.0/24", "MapPublicIpOnLaunch": "true"});
        assert_eq!(findings("AWS::EC2::Subnet", &subnet), [""; 0]);
        let listener = json!({"LoadBalancerArn": "arn", "Port": "443", "Protocol": "TCP",
            "DefaultActions": [{"Type": "forward", "TargetGroupArn": UNKNOWN}]});
        assert_eq!(findings("AWS::ElasticLoadBalancingV2::Listener", &listener), [""; 0]);
    }

    #[test]
    fn a_template_cannot_pass_by_being_ignored() {
        let bad = |kind: &str, properties: Value, wanted: &str| {
            let found = findings(kind, &properties);
            assert!(found.iter().any(|one| one.contains(wanted)), "{wanted}: {found:?}");
        };
        bad(
            "AWS::EC2::VPC",
            json!({"CidrBlock": "10.0.0.0/16", "Colour": "red"}),
            "/Colour Encountered unsupported property Colour",
        );
        bad("AWS::EC2::VPC", json!({}), "exactly one of [CidrBlock, Ipv4IpamPoolId]");
        bad(
            "AWS::EC2::VPC",
            json!({"CidrBlock": ["10.0.0.0/16"]}),
            "/CidrBlock Value of property must be of type string",
        );
        bad("AWS::EC2::VPC", json!({"CidrBlock": "10.0.0.0/16", "VpcId": "vpc-1"}), "read-only");
        bad("AWS::EC2::Subnet", json!({"CidrBlock": "10.0.0.0/24"}), "required key [VpcId] not found");
        bad(
            "AWS::EC2::LaunchTemplate",
            json!({"LaunchTemplateData": {"InstanceTyp": "m5.large"}}),
            "/LaunchTemplateData/InstanceTyp Encountered",
        );
        bad(
            "AWS::EC2::LaunchTemplate",
            json!({"LaunchTemplateData": {"BlockDeviceMappings": [{"Ebs": {"VolumeSize": "big"}}]}}),
            "/LaunchTemplateData/BlockDeviceMappings/0/Ebs/VolumeSize Value",
        );
        bad("AWS::ElasticLoadBalancingV2::TargetGroup", json!({"Protocol": "CARRIER-PIGEON"}), "enum");
        bad("AWS::IAM::InstanceProfile", json!({"Roles": ["a", "a"], "Path": "x y"}), "/Roles array items");
    }
}
