//! What the gateway itself answers: who calls, what IAM simulates for them, and the quotas and prices that moto does not have.
//!
//! Only the gateway knows its callers and their policies. moto has neither `SimulatePrincipalPolicy` nor quotas of another service than
//! `vpc`, and its `GetCallerIdentity` names the same user for all.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::{OPERATOR, Principal, Rules, prices};
use crate::client::ACCOUNT;
use crate::iam::{self, Decision, Request};

/// The quotas of EC2 and Elastic Load Balancing that are known here, with AWS' default (docs/tutorial.md, Quotas) and, for vCPUs, the class of
/// the metric of their use.
const QUOTAS: [(&str, &str, &str, f64, Option<&str>); 4] = [
    (
        "ec2",
        "L-1216C47A",
        "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
        5.0,
        Some("Standard/OnDemand"),
    ),
    ("ec2", "L-DB2E81BA", "Running On-Demand G and VT instances", 0.0, Some("G/OnDemand")),
    ("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", 5.0, None),
    ("elasticloadbalancing", "L-69A177A2", "Network Load Balancers per Region", 50.0, None),
];

/// The answer to a call that moto does not answer; `None`: moto does. `granted`: quotas that differ from the default.
pub(super) fn answer(
    action: &str,
    caller: Option<&Principal>,
    rules: &Rules,
    granted: &BTreeMap<String, f64>,
    body: &[u8],
) -> Option<Response> {
    let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
    Some(match action {
        "sts:GetCallerIdentity" => caller_identity(caller),
        "iam:GetRole" => role(form.get("RoleName").map_or("", String::as_str)),
        "iam:SimulatePrincipalPolicy" => simulation(rules, &form),
        "pricing:GetProducts" => {
            let asked: Value = serde_json::from_slice(body).unwrap_or_default();
            typed(StatusCode::OK, "application/x-amz-json-1.1", prices::answer(&asked).to_string())
        }
        "servicequotas:GetServiceQuota" | "servicequotas:GetAWSDefaultServiceQuota" => {
            let asked: Value = serde_json::from_slice(body).unwrap_or_default();
            if asked["ServiceCode"] == "vpc" && !granted.contains_key(text(&asked, "QuotaCode")) {
                return None;
            }
            quota(action.ends_with("GetServiceQuota") && !action.contains("Default"), granted, &asked)
        }
        _ => return None,
    })
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

/// As the STS API reference has it: of a role its session.
fn caller_identity(caller: Option<&Principal>) -> Response {
    let arn = match caller {
        None => format!("arn:aws:iam::{ACCOUNT}:user/{OPERATOR}"),
        Some(principal) => match principal.arn.split_once(":role/") {
            Some((_, role)) => {
                let name = role.rsplit('/').next().unwrap_or_default();
                format!("arn:aws:sts::{ACCOUNT}:assumed-role/{name}/session")
            }
            None => principal.arn.clone(),
        },
    };
    xml(&format!(
        "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult><Arn>{arn}</Arn>\
         <UserId>AIDA</UserId><Account>{ACCOUNT}</Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
    ))
}

fn role(name: &str) -> Response {
    let arn = format!("arn:aws:iam::{ACCOUNT}:role/{name}");
    xml(&format!(
        "<GetRoleResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><GetRoleResult><Role><Path>/</Path><Arn>{arn}</Arn>\
         <RoleName>{name}</RoleName></Role></GetRoleResult></GetRoleResponse>"
    ))
}

/// Each action for each resource, by the policies that the gateway holds the principal to. The operator may do everything. As the IAM API
/// reference has it ("SimulatePrincipalPolicy", "EvaluationResult", "ResourceSpecificResult").
fn simulation(rules: &Rules, form: &BTreeMap<String, String>) -> Response {
    let of = |prefix: &str| -> Vec<&String> {
        let numbered = |number| form.get(&format!("{prefix}.member.{number}"));
        (1..).map_while(numbered).collect()
    };
    let source = form.get("PolicySourceArn").map_or("", String::as_str);
    let principal = rules.principals.values().find(|principal| principal.arn == source);
    let decide = |action: &str, resource: &str| {
        let asked =
            Request { action: action.to_owned(), resource: resource.to_owned(), ..Request::default() };
        match principal.map(|principal| iam::decide(&principal.statements, &asked)) {
            None | Some(Decision::Allowed(_)) => "allowed",
            Some(Decision::Denied(_)) => "explicitDeny",
            Some(Decision::NotGranted) => "implicitDeny",
        }
    };
    let mut results = String::new();
    for action in of("ActionNames") {
        let decisions = of("ResourceArns").into_iter().map(|resource| (resource, decide(action, resource)));
        let each: String = decisions
            .clone()
            .map(|(resource, decision)| {
                format!(
                    "<member><EvalResourceName>{resource}</EvalResourceName><EvalResourceDecision>{decision}</EvalResourceDecision></member>"
                )
            })
            .collect();
        let worst = decisions.map(|(_, decision)| decision).find(|decision| *decision != "allowed");
        let decision = worst.unwrap_or("allowed");
        results.push_str(&format!(
            "<member><EvalActionName>{action}</EvalActionName><EvalResourceName>*</EvalResourceName><EvalDecision>{decision}</EvalDecision>\
             <ResourceSpecificResults>{each}</ResourceSpecificResults></member>"
        ));
    }
    xml(&format!(
        "<SimulatePrincipalPolicyResponse xmlns=\"https://iam.amazonaws.com/doc/2010-05-08/\"><SimulatePrincipalPolicyResult>\
         <IsTruncated>false</IsTruncated><EvaluationResults>{results}</EvaluationResults></SimulatePrincipalPolicyResult>\
         </SimulatePrincipalPolicyResponse>"
    ))
}

/// "If the applied quota value is not available for a quota, the quota is not retrieved" (Service Quotas API reference, GetServiceQuota).
fn quota(is_applied: bool, granted: &BTreeMap<String, f64>, asked: &Value) -> Response {
    let (service, code) = (text(asked, "ServiceCode"), text(asked, "QuotaCode"));
    let value = granted.get(code).copied();
    let known = QUOTAS.iter().find(|known| (known.0, known.1) == (service, code));
    let (name, default, class) = known.map_or(("", 0.0, None), |known| (known.2, known.3, known.4));
    let value = if is_applied { value } else { known.map(|_| default) };
    let Some(value) = value else {
        let none = json!({ "__type": "NoSuchResourceException", "Message": "The request failed because the specified resource doesn't exist." });
        return typed(StatusCode::BAD_REQUEST, "application/x-amz-json-1.1", none.to_string());
    };
    let mut quota = json!({ "ServiceCode": service, "QuotaCode": code, "QuotaName": name, "Value": value, "Unit": "None",
        "Adjustable": true, "GlobalQuota": false });
    if let Some(class) = class {
        quota["UsageMetric"] = json!({ "MetricNamespace": "AWS/Usage", "MetricName": "ResourceCount",
            "MetricDimensions": { "Class": class, "Resource": "vCPU", "Service": "EC2", "Type": "Resource" },
            "MetricStatisticRecommendation": "Maximum" });
    }
    typed(StatusCode::OK, "application/x-amz-json-1.1", json!({ "Quota": quota }).to_string())
}

fn xml(text: &str) -> Response {
    typed(StatusCode::OK, "text/xml", text.to_owned())
}

fn typed(status: StatusCode, content_type: &'static str, text: String) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static(content_type));
    (status, headers, text).into_response()
}
