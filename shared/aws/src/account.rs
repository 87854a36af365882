//! What an account allows, has in use and gives an alarm for: for a person who checks it before and after an installation. Nothing is changed.
//!
//! Each function is one question. Its comment names the permission, and the answer is read as the API reference of its service has it.

use std::collections::{BTreeMap, BTreeSet};

use aws_sdk_elasticloadbalancingv2::types::LoadBalancerTypeEnum;
use jiff::{SignedDuration, Timestamp};
use roxmltree::{Document, Node};
use serde_json::json;
use slipway_ports::{ErrorKind, PortError, PortResult};

use crate::Aws;
use crate::error::port_error;
use crate::raw::{Parameters, Service, list, numbered, text, unreadable};

/// An alarm of CloudWatch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledAlarm {
    /// The alarm's name.
    pub name: String,
    /// What it means, and what to do.
    pub description: String,
    /// Whether its actions are performed.
    pub enabled: bool,
    /// What is notified when it goes into `ALARM`.
    pub actions: Vec<String>,
    /// `OK`, `ALARM` or `INSUFFICIENT_DATA`.
    pub state: String,
    /// Why it has this state, in CloudWatch's words.
    pub reason: String,
}

/// A quota of the account in the region.
#[derive(Debug, Clone, PartialEq)]
pub struct Quota {
    /// Its name, as Service Quotas shows it.
    pub name: String,
    /// How much the account may have.
    pub value: f64,
    /// Where CloudWatch says how much of it is used, if it does.
    pub usage: Option<UsageMetric>,
}

/// A metric of how much of a quota is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageMetric {
    namespace: String,
    name: String,
    dimensions: BTreeMap<String, String>,
    statistic: String,
}

/// Whoever signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The account.
    pub account: String,
    /// `arn:…:sts::ACCOUNT:assumed-role/ROLE/SESSION`, `arn:…:iam::ACCOUNT:user/NAME` and so on.
    pub arn: String,
}

/// How many alarms may be named in one call (CloudWatch API reference, DescribeAlarms, `AlarmNames`).
const ALARMS_AT_A_TIME: usize = 100;
/// More pages than this are not read.
const MOST_PAGES: usize = 100;
/// Usage is measured every minute (CloudWatch user guide, "CloudWatch usage metrics"); the newest values come late.
const USAGE_MINUTES: i64 = 15;

const QUOTAS: &str = "ServiceQuotasV20190624";

impl Aws {
    /// Those of the alarms `names` that exist. `cloudwatch:DescribeAlarms`.
    ///
    /// # Errors
    /// If CloudWatch refuses, or cannot be reached.
    pub async fn alarms(&self, names: &[&str]) -> PortResult<Vec<InstalledAlarm>> {
        const OPERATION: &str = "cloudwatch:DescribeAlarms";
        let mut alarms = Vec::new();
        for some in names.chunks(ALARMS_AT_A_TIME) {
            let subject = format!("{} alarms", some.len());
            let parameters = numbered("AlarmNames.member", some.iter().copied());
            let answer = self.query(Service::CloudWatch, OPERATION, &subject, &parameters).await?;
            let document = Document::parse(&answer).map_err(|_| unreadable(OPERATION, &subject))?;
            alarms.extend(list(document.root_element(), "MetricAlarms").into_iter().map(alarm));
        }
        Ok(alarms)
    }

    /// The quota `code` of `service`: what the account was granted, and else the default. `None`: there is no such quota in this region.
    /// `servicequotas:GetServiceQuota`, `servicequotas:GetAWSDefaultServiceQuota`.
    ///
    /// # Errors
    /// If Service Quotas refuses, or cannot be reached.
    pub async fn quota(&self, service: &str, code: &str) -> PortResult<Option<Quota>> {
        // "For some quotas, only the default values are available. If the applied quota value is not available for a quota, the quota is not
        // retrieved" (Service Quotas API reference, GetServiceQuota).
        let granted = self.quota_by("servicequotas:GetServiceQuota", service, code).await?;
        match granted {
            Some(quota) => Ok(Some(quota)),
            None => self.quota_by("servicequotas:GetAWSDefaultServiceQuota", service, code).await,
        }
    }

    async fn quota_by(
        &self,
        operation: &'static str,
        service: &str,
        code: &str,
    ) -> PortResult<Option<Quota>> {
        let subject = format!("{service}/{code}");
        let body = json!({ "ServiceCode": service, "QuotaCode": code });
        let answer = match self.json(Service::Quotas, QUOTAS, operation, &subject, &body).await {
            Ok(answer) => answer,
            Err(error) if error.kind == ErrorKind::Missing => return Ok(None),
            Err(error) => return Err(error),
        };
        let quota = &answer["Quota"];
        let value = quota["Value"].as_f64().ok_or_else(|| unreadable(operation, &subject))?;
        let metric = &quota["UsageMetric"];
        let field = |name: &str| metric[name].as_str().unwrap_or_default().to_owned();
        let usage = metric["MetricName"].is_string().then(|| UsageMetric {
            namespace: field("MetricNamespace"),
            name: field("MetricName"),
            dimensions: metric["MetricDimensions"]
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
                .collect(),
            statistic: field("MetricStatisticRecommendation"),
        });
        Ok(Some(Quota { name: quota["QuotaName"].as_str().unwrap_or_default().to_owned(), value, usage }))
    }

    /// How much is used by that metric; 0 if nothing was measured lately. `cloudwatch:GetMetricStatistics`.
    ///
    /// # Errors
    /// If CloudWatch refuses, or cannot be reached.
    pub async fn usage(&self, metric: &UsageMetric, now: Timestamp) -> PortResult<f64> {
        const OPERATION: &str = "cloudwatch:GetMetricStatistics";
        let statistic = if metric.statistic.is_empty() { "Maximum" } else { &metric.statistic };
        let begin = now - SignedDuration::from_mins(USAGE_MINUTES);
        let second = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut parameters: Parameters = [
            ("Namespace", metric.namespace.clone()),
            ("MetricName", metric.name.clone()),
            ("StartTime", second(begin)),
            ("EndTime", second(now)),
            ("Period", "60".to_owned()),
            ("Statistics.member.1", statistic.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for ((name, value), number) in metric.dimensions.iter().zip(1..) {
            parameters.push((format!("Dimensions.member.{number}.Name"), name.clone()));
            parameters.push((format!("Dimensions.member.{number}.Value"), value.clone()));
        }
        let answer = self.query(Service::CloudWatch, OPERATION, &metric.name, &parameters).await?;
        let document = Document::parse(&answer).map_err(|_| unreadable(OPERATION, &metric.name))?;
        let values = list(document.root_element(), "Datapoints").into_iter();
        let values = values.filter_map(|point| text(point, statistic)?.parse::<f64>().ok());
        Ok(values.fold(0.0, f64::max))
    }

    /// The vCPUs of the instance types `names`. A type that this region does not have is missing. `ec2:DescribeInstanceTypes`.
    ///
    /// # Errors
    /// If EC2 refuses, or cannot be reached.
    pub async fn vcpus(&self, names: &BTreeSet<String>) -> PortResult<BTreeMap<String, u32>> {
        const OPERATION: &str = "ec2:DescribeInstanceTypes";
        // With a filter, an unknown type is no error and does not hide the others.
        let mut parameters = vec![("Filter.1.Name".to_owned(), "instance-type".to_owned())];
        parameters.extend(numbered("Filter.1.Value", names.iter().map(String::as_str)));
        let mut found = BTreeMap::new();
        self.described(OPERATION, "instanceTypeSet", &parameters, |item| {
            let cores = item.children().find(|child| child.tag_name().name() == "vCpuInfo");
            let count = cores.and_then(|cores| text(cores, "defaultVCpus")?.parse().ok());
            if let (Some(name), Some(count)) = (text(item, "instanceType"), count) {
                found.insert(name.to_owned(), count);
            }
        })
        .await?;
        Ok(found)
    }

    /// How many Elastic IP addresses the account has. `ec2:DescribeAddresses`.
    ///
    /// # Errors
    /// If EC2 refuses, or cannot be reached.
    pub async fn elastic_addresses(&self) -> PortResult<usize> {
        let mut count = 0;
        self.described("ec2:DescribeAddresses", "addressesSet", &[], |_| count += 1).await?;
        Ok(count)
    }

    /// How many VPCs the account has. `ec2:DescribeVpcs`.
    ///
    /// # Errors
    /// If EC2 refuses, or cannot be reached.
    pub async fn vpcs(&self) -> PortResult<usize> {
        let mut count = 0;
        self.described("ec2:DescribeVpcs", "vpcSet", &[], |_| count += 1).await?;
        Ok(count)
    }

    /// How many NAT gateways count in each zone: "NAT gateways count toward your quota only in the pending, active, and deleting states"
    /// (Amazon VPC user guide, "Amazon VPC quotas"). `ec2:DescribeNatGateways`, `ec2:DescribeSubnets`.
    ///
    /// # Errors
    /// If EC2 refuses, or cannot be reached.
    pub async fn nat_gateways(&self) -> PortResult<BTreeMap<String, usize>> {
        let mut subnets = Vec::new();
        self.described("ec2:DescribeNatGateways", "natGatewaySet", &[], |item| {
            let counts = text(item, "state")
                .is_some_and(|state| ["pending", "available", "deleting"].contains(&state));
            subnets.extend(text(item, "subnetId").filter(|_| counts).map(str::to_owned));
        })
        .await?;
        let mut zones = BTreeMap::new();
        self.described("ec2:DescribeSubnets", "subnetSet", &[], |item| {
            if let (Some(id), Some(zone)) = (text(item, "subnetId"), text(item, "availabilityZone")) {
                zones.insert(id.to_owned(), zone.to_owned());
            }
        })
        .await?;
        let mut counts = BTreeMap::new();
        for zone in subnets.iter().filter_map(|subnet| zones.get(subnet)) {
            *counts.entry(zone.clone()).or_default() += 1;
        }
        Ok(counts)
    }

    /// Each element of the answer's set `name`, of all pages.
    async fn described(
        &self,
        operation: &'static str,
        name: &str,
        parameters: &[(String, String)],
        mut each: impl FnMut(Node<'_, '_>),
    ) -> PortResult<()> {
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let mut parameters = parameters.to_vec();
            parameters.extend(next.take().map(|token| ("NextToken".to_owned(), token)));
            let answer = self.query(Service::Ec2, operation, "all", &parameters).await?;
            let document = Document::parse(&answer).map_err(|_| unreadable(operation, "all"))?;
            let root = document.root_element();
            let sets = root.children().filter(|child| child.tag_name().name() == name);
            sets.flat_map(|set| set.children().filter(Node::is_element)).for_each(&mut each);
            match text(root, "nextToken").filter(|token| !token.is_empty()) {
                Some(token) => next = Some(token.to_owned()),
                None => return Ok(()),
            }
        }
        Err(too_many_pages(operation, "all"))
    }

    /// How many Network Load Balancers the account has. `elasticloadbalancing:DescribeLoadBalancers`.
    ///
    /// # Errors
    /// If Elastic Load Balancing refuses, or cannot be reached.
    pub async fn network_load_balancers(&self) -> PortResult<usize> {
        const OPERATION: &str = "elasticloadbalancing:DescribeLoadBalancers";
        let client = aws_sdk_elasticloadbalancingv2::Client::new(self.config());
        let mut pages = client.describe_load_balancers().into_paginator().items().send();
        let mut count = 0;
        while let Some(one) = pages.next().await {
            let one = one.map_err(|error| port_error(OPERATION, "all", &error))?;
            count += usize::from(one.r#type == Some(LoadBalancerTypeEnum::Network));
        }
        Ok(count)
    }

    /// Whoever signed in. "No permissions are required to perform this operation" (STS API reference, GetCallerIdentity).
    ///
    /// # Errors
    /// If STS refuses, or cannot be reached.
    pub async fn caller(&self) -> PortResult<Caller> {
        const OPERATION: &str = "sts:GetCallerIdentity";
        let answer = self.query(Service::Sts, OPERATION, "you", &[]).await?;
        let document = Document::parse(&answer).map_err(|_| unreadable(OPERATION, "you"))?;
        let field = |name: &str| {
            let node = document.descendants().find(|node| node.tag_name().name() == name);
            node.and_then(|node| node.text()).map(str::to_owned)
        };
        match (field("Account"), field("Arn")) {
            (Some(account), Some(arn)) => Ok(Caller { account, arn }),
            _ => Err(unreadable(OPERATION, "you")),
        }
    }

    /// The ARN of the IAM role `name`, whose path its sessions do not show; `None` if there is no such role. `iam:GetRole`.
    ///
    /// # Errors
    /// If IAM refuses, or cannot be reached.
    pub async fn role_arn(&self, name: &str) -> PortResult<Option<String>> {
        const OPERATION: &str = "iam:GetRole";
        let named = [("RoleName".to_owned(), name.to_owned())];
        let answer = match self.query(Service::Iam, OPERATION, name, &named).await {
            Ok(answer) => answer,
            Err(error) if error.kind == ErrorKind::Missing => return Ok(None),
            Err(error) => return Err(error),
        };
        let document = Document::parse(&answer).map_err(|_| unreadable(OPERATION, name))?;
        let arn = document.descendants().find(|node| node.tag_name().name() == "Arn");
        Ok(arn.and_then(|arn| arn.text()).map(str::to_owned))
    }

    /// Those of `actions` on `resources` that the policies of `principal` (a user or a role) do not allow. IAM simulates: nothing is called.
    /// `iam:SimulatePrincipalPolicy`.
    ///
    /// # Errors
    /// If IAM refuses, or cannot be reached.
    pub async fn not_allowed(
        &self,
        principal: &str,
        actions: &BTreeSet<&str>,
        resources: &BTreeSet<String>,
    ) -> PortResult<BTreeSet<(String, String)>> {
        const OPERATION: &str = "iam:SimulatePrincipalPolicy";
        let mut all = vec![("PolicySourceArn".to_owned(), principal.to_owned())];
        all.extend(numbered("ActionNames.member", actions.iter().copied()));
        all.extend(numbered("ResourceArns.member", resources.iter().map(String::as_str)));
        let (mut missing, mut marker) = (BTreeSet::new(), None::<String>);
        for _ in 0..MOST_PAGES {
            let mut parameters = all.clone();
            parameters.extend(marker.take().map(|marker| ("Marker".to_owned(), marker)));
            let answer = self.query(Service::Iam, OPERATION, principal, &parameters).await?;
            let document = Document::parse(&answer).map_err(|_| unreadable(OPERATION, principal))?;
            let root = document.root_element();
            let results = document.descendants().filter(|node| node.tag_name().name() == "EvaluationResults");
            for result in results.flat_map(|results| results.children().filter(Node::is_element)) {
                missing.extend(denials(result));
            }
            let more = root.descendants().find(|node| node.tag_name().name() == "Marker");
            match more.and_then(|more| more.text()).filter(|_| is_truncated(&document)) {
                Some(more) => marker = Some(more.to_owned()),
                None => return Ok(missing),
            }
        }
        Err(too_many_pages(OPERATION, principal))
    }
}

/// The rest was not read: a part would be taken for all of it.
fn too_many_pages(operation: &'static str, subject: &str) -> PortError {
    PortError {
        kind: ErrorKind::Invalid,
        operation,
        subject: subject.to_owned(),
        message: format!("more than {MOST_PAGES} pages"),
    }
}

fn is_truncated(document: &Document<'_>) -> bool {
    let node = document.descendants().find(|node| node.tag_name().name() == "IsTruncated");
    node.and_then(|node| node.text()) == Some("true")
}

/// What one result of a simulation does not allow. "To find the decision for a specific resource, use ResourceSpecificResults" (IAM API
/// reference, EvaluationResult): the result's own name is a template. Where an action knows no resources there is its own decision alone.
fn denials(result: Node<'_, '_>) -> Vec<(String, String)> {
    let action = text(result, "EvalActionName").unwrap_or_default();
    let each = list(result, "ResourceSpecificResults");
    if each.is_empty() {
        let resource = text(result, "EvalResourceName").unwrap_or("*");
        let allowed = text(result, "EvalDecision") == Some("allowed");
        return if allowed { Vec::new() } else { vec![(action.to_owned(), resource.to_owned())] };
    }
    each.into_iter()
        .filter(|one| text(*one, "EvalResourceDecision") != Some("allowed"))
        .map(|one| (action.to_owned(), text(one, "EvalResourceName").unwrap_or("*").to_owned()))
        .collect()
}

fn alarm(node: Node<'_, '_>) -> InstalledAlarm {
    let field = |name: &str| text(node, name).unwrap_or_default().to_owned();
    let actions = list(node, "AlarmActions").into_iter().filter_map(|action| action.text());
    InstalledAlarm {
        name: field("AlarmName"),
        description: field("AlarmDescription"),
        enabled: field("ActionsEnabled") != "false",
        actions: actions.map(str::to_owned).collect(),
        state: field("StateValue"),
        reason: field("StateReason"),
    }
}

#[cfg(test)]
mod tests;
