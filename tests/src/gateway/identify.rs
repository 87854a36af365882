//! A request to AWS in terms of IAM: caller, action, resource and condition keys.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, Method, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::fleet::{self, Fleet};
use super::needs::{Scope, add, need, text};
use crate::client::ACCOUNT;
use crate::iam::Request;

/// A request to AWS that was understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identified {
    /// The access key of its signature.
    pub(super) access_key: String,
    /// The session token, which identifies the execution environment of a function.
    pub(super) session: String,
    /// The signing name of the service.
    pub(super) service: String,
    /// What must be allowed: usually one action; sometimes also passing a role, or reading a template.
    pub(super) needs: Vec<Request>,
    /// It names a machine or a group that does not exist: there are no tags to check, and the service reports the error.
    pub(super) about_nothing: bool,
}

/// Reads a request. The error names the part that is not understood.
pub(super) fn identify(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    fleet: &Fleet,
) -> Result<Identified, String> {
    let credential = headers
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split_once("Credential="))
        .and_then(|(_, rest)| rest.split([',', ' ']).next())
        .ok_or("the request is not signed")?;
    let [access_key, _, region, service, _] = credential.split('/').collect::<Vec<_>>()[..] else {
        return Err(format!("credential scope `{credential}`"));
    };
    let scope = Scope { region };
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let operation = target.and_then(|target| target.split_once('.')).map(|(_, operation)| operation);
    let mut about_nothing = false;
    let mut needs = match (service, operation) {
        ("s3", _) => vec![s3(method, uri, headers)?],
        ("cloudformation", _) => scope.cloudformation(body)?,
        ("scheduler", _) => scope.scheduler(method, uri, body)?,
        ("kms", Some(operation)) => vec![scope.kms(operation, &parse(body)?)],
        ("events", Some(operation)) => scope.events(operation, &parse(body)?),
        ("autoscaling", None) => {
            let asked = scope.autoscaling(body, fleet)?;
            about_nothing = asked.about_nothing;
            asked.needs
        }
        ("sns", None) => vec![sns(body)],
        ("elasticloadbalancing", None) => vec![fleet::elasticloadbalancing(body)?],
        ("ssm", Some(operation)) if fleet::is_of_commands(operation) => {
            let asked = scope.commands(operation, &parse(body)?, fleet)?;
            about_nothing = asked.about_nothing;
            asked.needs
        }
        ("ssm", Some(operation)) => scope.ssm(operation, &parse(body)?),
        ("sqs", Some(operation)) => vec![scope.sqs(operation, &parse(body)?)],
        (service, Some(operation)) => vec![need(&format!("{service}:{operation}"), "*".to_owned())],
        // What is asked of these in the query protocol knows no resources, except of IAM.
        ("ec2" | "iam" | "monitoring" | "sts", None) => vec![query_api(service, body)?],
        (service, None) => vec![need(&format!("{service}:{method}"), "*".to_owned())],
    };
    for need in &mut needs {
        // The gateway takes the place of the TLS endpoint.
        add(need, "aws:SecureTransport", "true");
        add(need, "s3:TlsVersion", "1.3");
        add(need, "aws:RequestedRegion", region);
        // There is one account here, and every resource is its own.
        add(need, "aws:ResourceAccount", ACCOUNT);
    }
    let session = headers.get("x-amz-security-token").and_then(|value| value.to_str().ok());
    Ok(Identified {
        access_key: access_key.to_owned(),
        session: session.unwrap_or_default().to_owned(),
        service: service.to_owned(),
        needs,
        about_nothing,
    })
}

fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(body).map_err(|error| format!("body is not JSON: {error}"))
}

fn query(uri: &Uri) -> BTreeMap<String, String> {
    form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned().collect()
}

/// Percent-decoding. Unlike a form parser, it keeps `+`.
fn decode(path: &str) -> String {
    form_urlencoded::parse(path.replace('+', "%2B").replace('&', "%26").replace('=', "%3D").as_bytes())
        .map(|(key, _)| key.into_owned())
        .collect()
}

fn sns(body: &[u8]) -> Request {
    let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    need(&format!("sns:{}", field("Action")), field("TopicArn"))
}

/// EC2, IAM, CloudWatch and STS. Their names in IAM are those of their signatures, but for CloudWatch.
fn query_api(service: &str, body: &[u8]) -> Result<Request, String> {
    let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
    let action = form.get("Action").ok_or_else(|| format!("{service} without an Action"))?;
    let service = if service == "monitoring" { "cloudwatch" } else { service };
    let role = form.get("RoleName").map(|name| format!("arn:aws:iam::{ACCOUNT}:role/{name}"));
    let resource = role.or_else(|| form.get("PolicySourceArn").cloned()).unwrap_or_else(|| "*".to_owned());
    Ok(need(&format!("{service}:{action}"), resource))
}

/// S3 in path style, which SDKs use with an IP address.
fn s3(method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Request, String> {
    let path = decode(uri.path().trim_start_matches('/'));
    let query = query(uri);
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    // Parameters that do not change the meaning of a call; any other parameter makes it a different call.
    let tuning = [
        "x-id",
        "list-type",
        "prefix",
        "delimiter",
        "encoding-type",
        "max-keys",
        "continuation-token",
        "start-after",
        "versionId",
    ];
    let special =
        query.keys().find(|name| !tuning.contains(&name.as_str()) && !name.starts_with("response-"));
    let versioned = query.contains_key("versionId");
    let action = match (method.as_str(), key.is_empty(), special.map(String::as_str)) {
        ("GET" | "HEAD", true, None) => "s3:ListBucket",
        ("GET", true, Some("versions")) => "s3:ListBucketVersions",
        ("GET", true, Some("location")) => "s3:GetBucketLocation",
        ("GET", true, Some("versioning")) => "s3:GetBucketVersioning",
        ("GET", true, Some("publicAccessBlock")) => "s3:GetBucketPublicAccessBlock",
        ("GET", true, Some("encryption")) => "s3:GetEncryptionConfiguration",
        ("GET", true, Some("notification")) => "s3:GetBucketNotification",
        ("GET" | "HEAD", false, None) if versioned => "s3:GetObjectVersion",
        ("GET" | "HEAD", false, None) => "s3:GetObject",
        ("DELETE", false, None) if versioned => "s3:DeleteObjectVersion",
        ("DELETE", false, None) => "s3:DeleteObject",
        ("PUT", false, None) if !headers.contains_key("x-amz-copy-source") => "s3:PutObject",
        (verb, _, special) => {
            return Err(format!("s3 {verb} {} with {special:?} is not modelled by the gateway", uri.path()));
        }
    };
    let resource = if key.is_empty() {
        format!("arn:aws:s3:::{bucket}")
    } else {
        format!("arn:aws:s3:::{bucket}/{key}")
    };
    let mut need = need(action, resource);
    // S3 user guide, "Enforce conditional writes on Amazon S3 buckets".
    for header in ["if-none-match", "if-match"] {
        if let Some(value) = headers.get(header).filter(|_| action == "s3:PutObject") {
            add(&mut need, &format!("s3:{header}"), value.to_str().unwrap_or_default());
        }
    }
    Ok(need)
}

impl Scope<'_> {
    fn kms(&self, operation: &str, body: &Value) -> Request {
        let named = text(body, "KeyId");
        // A symmetric ciphertext names its key; in moto it begins with the key's id.
        let inside = STANDARD
            .decode(text(body, "CiphertextBlob"))
            .ok()
            .and_then(|blob| blob.get(..36).map(|id| String::from_utf8_lossy(id).into_owned()));
        let resource = match (named, inside) {
            ("", Some(id)) => self.arn("kms", &format!("key/{id}")),
            ("", None) => "*".to_owned(),
            (arn, _) if arn.starts_with("arn:") => arn.to_owned(),
            (alias, _) if alias.starts_with("alias/") => self.arn("kms", alias),
            (id, _) => self.arn("kms", &format!("key/{id}")),
        };
        let mut request = need(&format!("kms:{operation}"), resource);
        for (key, value) in body["EncryptionContext"].as_object().into_iter().flatten() {
            add(&mut request, &format!("kms:EncryptionContext:{key}"), value.as_str().unwrap_or_default());
            add(&mut request, "kms:EncryptionContextKeys", key);
        }
        request
    }

    fn events(&self, operation: &str, body: &Value) -> Vec<Request> {
        if let "DescribeRule" | "ListTargetsByRule" = operation {
            let name = match operation {
                "DescribeRule" => text(body, "Name"),
                _ => text(body, "Rule"),
            };
            // The ARN of a rule on the default bus does not name it (service authorization reference, "Amazon EventBridge": resource types
            // rule-on-default-event-bus and rule-on-custom-event-bus).
            let rule = match text(body, "EventBusName") {
                "" | "default" => format!("rule/{name}"),
                bus => format!("rule/{bus}/{name}"),
            };
            return vec![need(&format!("events:{operation}"), self.arn("events", &rule))];
        }
        if operation != "PutEvents" {
            return vec![need(&format!("events:{operation}"), "*".to_owned())];
        }
        // One for each bus, with the values of all its entries: both keys are `ArrayOfString` (service authorization reference, "Amazon
        // EventBridge"). Whether AWS decides for each entry or for the call is not documented; a policy that allows the call allows
        // each entry.
        let mut needs: Vec<Request> = Vec::new();
        for entry in body["Entries"].as_array().into_iter().flatten() {
            let bus = match text(entry, "EventBusName") {
                "" => self.arn("events", "event-bus/default"),
                arn if arn.starts_with("arn:") => arn.to_owned(),
                name => self.arn("events", &format!("event-bus/{name}")),
            };
            let at = needs.iter().position(|need| need.resource == bus).unwrap_or_else(|| {
                needs.push(need("events:PutEvents", bus));
                needs.len() - 1
            });
            add(&mut needs[at], "events:source", text(entry, "Source"));
            add(&mut needs[at], "events:detail-type", text(entry, "DetailType"));
        }
        needs
    }

    fn ssm(&self, operation: &str, body: &Value) -> Vec<Request> {
        let names = body["Names"].as_array().into_iter().flatten().chain(body.get("Name"));
        names
            .filter_map(Value::as_str)
            .map(|name| {
                // Public parameters belong to no account.
                let account = if name.starts_with("/aws/service/") { "" } else { ACCOUNT };
                let resource = format!(
                    "arn:aws:ssm:{}:{account}:parameter/{}",
                    self.region,
                    name.trim_start_matches('/')
                );
                need(&format!("ssm:{operation}"), resource)
            })
            .collect()
    }

    fn sqs(&self, operation: &str, body: &Value) -> Request {
        let queue = text(body, "QueueUrl").rsplit('/').next().unwrap_or_default();
        need(&format!("sqs:{operation}"), self.arn("sqs", queue))
    }

    fn pass_role(role: &str, service: &str) -> Request {
        let mut request = need("iam:PassRole", role.to_owned());
        add(&mut request, "iam:PassedToService", service);
        request
    }

    fn cloudformation(&self, body: &[u8]) -> Result<Vec<Request>, String> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let action = form.get("Action").ok_or("cloudformation without an Action")?;
        let stack = match field("StackName") {
            "" => "*".to_owned(),
            arn if arn.starts_with("arn:") => arn.to_owned(),
            // The caller does not know the id behind the name; permissions are for `stack/name/*`.
            name => self.arn("cloudformation", &format!("stack/{name}/0")),
        };
        let mut request = need(&format!("cloudformation:{action}"), stack.clone());
        let mut more = Vec::new();
        if action == "DetectStackDrift" {
            // "In order to successfully perform drift detection on a stack, a user must have the following permissions" (CloudFormation user guide,
            // "Detect unmanaged configuration changes to stacks and resources with drift detection"). Those to read each resource are not modelled.
            more.push(need("cloudformation:DetectStackResourceDrift", stack.clone()));
            more.push(need("cloudformation:BatchDescribeTypeConfigurations", "*".to_owned()));
        }
        let role = field("RoleARN");
        if !role.is_empty() {
            add(&mut request, "cloudformation:RoleArn", role);
            more.push(Self::pass_role(role, "cloudformation.amazonaws.com"));
        }
        let change_set = field("ChangeSetName");
        if !change_set.is_empty() {
            add(&mut request, "cloudformation:ChangeSetName", change_set);
        }
        let url = field("TemplateURL");
        if !url.is_empty() {
            add(&mut request, "cloudformation:TemplateUrl", url);
            // CloudFormation reads the template with its caller's permission.
            more.push(need("s3:GetObject", object_of(url)?));
        }
        if form.keys().any(|key| key.starts_with("Tags.member.")) {
            more.push(need("cloudformation:TagResource", stack));
        }
        more.insert(0, request);
        Ok(more)
    }

    fn scheduler(&self, method: &Method, uri: &Uri, body: &[u8]) -> Result<Vec<Request>, String> {
        let query = query(uri);
        let path = decode(uri.path());
        let name = path
            .strip_prefix("/schedules/")
            .ok_or_else(|| format!("scheduler {method} {path} is not modelled by the gateway"))?;
        let body = if body.is_empty() { Value::Null } else { parse(body)? };
        let group =
            query.get("groupName").map(String::as_str).or(body["GroupName"].as_str()).unwrap_or("default");
        let action = match method.as_str() {
            "POST" => "scheduler:CreateSchedule",
            "PUT" => "scheduler:UpdateSchedule",
            "GET" => "scheduler:GetSchedule",
            "DELETE" => "scheduler:DeleteSchedule",
            other => return Err(format!("scheduler {other} is not modelled by the gateway")),
        };
        let mut needs = vec![need(action, self.arn("scheduler", &format!("schedule/{group}/{name}")))];
        if let Some(role) = body["Target"]["RoleArn"].as_str() {
            needs.push(Self::pass_role(role, "scheduler.amazonaws.com"));
        }
        Ok(needs)
    }
}

/// The ARN of the object at an https URL of S3 in either style.
pub(super) fn object_of(url: &str) -> Result<String, String> {
    let rest = url.strip_prefix("https://").ok_or_else(|| format!("TemplateURL `{url}` is not https"))?;
    let (host, path) = rest.split_once('/').ok_or_else(|| format!("TemplateURL `{url}` names no object"))?;
    let path = decode(path.split('?').next().unwrap_or_default());
    match host.split_once(".s3.").or_else(|| host.split_once(".s3-")) {
        Some((bucket, _)) => Ok(format!("arn:aws:s3:::{bucket}/{path}")),
        None if host.starts_with("s3.") => Ok(format!("arn:aws:s3:::{path}")),
        None => Err(format!("TemplateURL `{url}` is not S3's")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn headers(service: &str) -> HeaderMap {
        let scope =
            format!("AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu-central-1/{service}/aws4_request, X=1");
        HeaderMap::from_iter([(axum::http::header::AUTHORIZATION, scope.parse().unwrap())])
    }

    fn needs(method: Method, uri: &str, service: &str, body: &str) -> Vec<(String, String)> {
        let identified =
            identify(&method, &uri.parse().unwrap(), &headers(service), body.as_bytes(), &Fleet::default())
                .unwrap();
        identified.needs.into_iter().map(|need| (need.action, need.resource)).collect()
    }

    #[test]
    fn s3_calls_are_named_as_iam_names_them() {
        let one = |method, uri| needs(method, uri, "s3", "").remove(0);
        assert_eq!(
            one(Method::GET, "/b/clusters/a%20b/cluster.yaml?versionId=3&x-id=GetObject"),
            ("s3:GetObjectVersion".to_owned(), "arn:aws:s3:::b/clusters/a b/cluster.yaml".to_owned())
        );
        assert_eq!(one(Method::HEAD, "/b/k+1").1, "arn:aws:s3:::b/k+1");
        assert_eq!(one(Method::GET, "/b?list-type=2").0, "s3:ListBucket");
        assert_eq!(one(Method::GET, "/b?encryption").0, "s3:GetEncryptionConfiguration");
        let odd =
            identify(&Method::PUT, &"/b/k?acl".parse().unwrap(), &headers("s3"), b"", &Fleet::default());
        assert!(odd.unwrap_err().contains("not modelled"));
    }

    #[test]
    fn events_of_one_call_are_judged_together() {
        let body = r#"{"Entries": [
            {"EventBusName": "slipway", "Source": "slipway", "DetailType": "Plan Ready"},
            {"EventBusName": "other", "Source": "slipway", "DetailType": "Plan Ready"},
            {"EventBusName": "slipway", "Source": "slipway", "DetailType": "Rollout Requested"}
        ]}"#;
        let scope = Scope { region: "eu-central-1" };
        let needs = scope.events("PutEvents", &parse(body.as_bytes()).unwrap());
        assert_eq!(needs.len(), 2);
        assert_eq!(needs[0].resource, "arn:aws:events:eu-central-1:123456789012:event-bus/slipway");
        assert_eq!(needs[0].context["events:detail-type"], ["Plan Ready", "Rollout Requested"]);
    }

    #[test]
    fn a_rule_is_named_with_its_bus_unless_that_is_the_default_one() {
        let scope = Scope { region: "eu-central-1" };
        let resource = |operation: &str, body: &str| {
            scope.events(operation, &parse(body.as_bytes()).unwrap()).remove(0).resource
        };
        let of_default = resource("DescribeRule", r#"{"Name": "r", "EventBusName": "default"}"#);
        assert_eq!(of_default, "arn:aws:events:eu-central-1:123456789012:rule/r");
        let of_ours = resource("ListTargetsByRule", r#"{"Rule": "r", "EventBusName": "slipway"}"#);
        assert_eq!(of_ours, "arn:aws:events:eu-central-1:123456789012:rule/slipway/r");
    }

    #[test]
    fn a_change_set_needs_its_role_and_its_template() {
        let body = "Action=CreateChangeSet&StackName=prod-network&RoleARN=arn%3Arole\
                    &TemplateURL=https%3A%2F%2Fbucket.s3.eu-central-1.amazonaws.com%2Fclusters%2Ft.json";
        assert_eq!(
            needs(Method::POST, "/", "cloudformation", body),
            [
                (
                    "cloudformation:CreateChangeSet".to_owned(),
                    "arn:aws:cloudformation:eu-central-1:123456789012:stack/prod-network/0".to_owned()
                ),
                ("iam:PassRole".to_owned(), "arn:role".to_owned()),
                ("s3:GetObject".to_owned(), "arn:aws:s3:::bucket/clusters/t.json".to_owned()),
            ]
        );
    }
}
