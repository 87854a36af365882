//! The checks of an installation: what was read becomes findings.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;
use slipway_aws::{Encryption, InstalledKey, InstalledSchedule, InstalledStack};
use slipway_core::cluster::Architecture;
use slipway_core::keys;
use slipway_core::words::{count, moment};
use slipway_ports::Listed;
use slipway_spec::allowed::DEPLOY;

use super::alarms::{AlarmsRead, of_alarms};
use super::findings::{Finding, Level, Read, finding, ok, problem, recreate_help, unknown, warning};
use crate::overview::ago;

/// What was read of an installation. `None`: what it depends on could not be read, which is a finding of its own.
#[derive(Debug)]
pub(super) struct InstallationRead {
    /// The name of its stack.
    pub(super) stack_name: String,
    pub(super) stack: Read<InstalledStack>,
    /// The release and commit of this command.
    pub(super) ours: String,
    pub(super) buckets: Vec<BucketRead>,
    pub(super) rules: Option<Read<Vec<RuleRead>>>,
    pub(super) schedules: Option<Vec<ScheduleRead>>,
    pub(super) alarms: Option<AlarmsRead>,
    pub(super) queues: Vec<QueueRead>,
    pub(super) key: Option<KeyRead>,
    pub(super) agent: Option<AgentRead>,
}

/// A bucket.
#[derive(Debug)]
pub(super) struct BucketRead {
    /// `asset bucket`, `spec bucket`.
    pub(super) about: &'static str,
    pub(super) name: String,
    pub(super) versioned: Read<bool>,
    pub(super) closed: Read<bool>,
    pub(super) encryption: Read<Encryption>,
    /// Whether its events go to EventBridge, if they have to.
    pub(super) tells: Option<Read<bool>>,
}

/// A rule of the stack.
#[derive(Debug)]
pub(super) struct RuleRead {
    /// Its name in the template.
    pub(super) id: String,
    pub(super) bus: String,
    pub(super) name: String,
    /// Whether it is enabled; `None`: it does not exist.
    pub(super) enabled: Read<Option<bool>>,
    pub(super) targets: Read<usize>,
}

/// A schedule of the stack.
#[derive(Debug)]
pub(super) struct ScheduleRead {
    /// Its name in the template.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) schedule: Read<Option<InstalledSchedule>>,
}

/// A dead-letter queue.
#[derive(Debug)]
pub(super) struct QueueRead {
    /// The output of the stack with its URL.
    pub(super) output: String,
    pub(super) url: String,
    pub(super) depth: Read<Option<u64>>,
}

/// The KMS key.
#[derive(Debug)]
pub(super) struct KeyRead {
    pub(super) arn: String,
    pub(super) key: Read<Option<InstalledKey>>,
    pub(super) rotated: Read<bool>,
    /// Its policy, as JSON.
    pub(super) policy: Read<String>,
    /// A dry run of what sealing a credential needs.
    pub(super) usable: Read<()>,
}

/// The published node agent.
#[derive(Debug)]
pub(super) struct AgentRead {
    /// What the manifest names.
    pub(super) published: Read<BTreeMap<Architecture, String>>,
    /// The objects below `agent/`.
    pub(super) stored: Read<Vec<Listed>>,
}

/// The output of the template with its release.
pub(super) const RELEASE: &str = "Release";

/// All findings, in the order in which they are shown.
pub(super) fn findings(read: &InstallationRead, now: Timestamp) -> Vec<Finding> {
    let mut all = Vec::new();
    match &read.stack {
        Ok(stack) => {
            all.push(of_stack(&read.stack_name, stack));
            all.push(of_release(stack.outputs.get(RELEASE).map(String::as_str), &read.ours));
            all.extend(of_parameters(&stack.parameters));
        }
        Err(unread) => all.push(unknown("stack", unread)),
    }
    all.extend(read.buckets.iter().flat_map(of_bucket));
    match &read.rules {
        Some(Ok(rules)) => all.extend(of_rules(&read.stack_name, rules)),
        Some(Err(unread)) => all.push(unknown("rules, schedule and alarms", unread)),
        None => {}
    }
    if let Some(schedules) = &read.schedules {
        all.extend(of_schedules(&read.stack_name, schedules));
    }
    all.extend(read.queues.iter().map(of_queue));
    let changed_at = read.stack.as_ref().ok().and_then(|stack| stack.changed_at);
    all.extend(read.alarms.iter().flat_map(|alarms| of_alarms(&read.stack_name, alarms, changed_at, now)));
    all.extend(read.key.iter().flat_map(of_key));
    all.extend(read.agent.iter().flat_map(|agent| of_agent(agent, now)));
    all
}

/// Statuses as the CloudFormation user guide explains them ("Understand CloudFormation stack creation events", stack status codes).
fn of_stack(name: &str, stack: &InstalledStack) -> Finding {
    let reason = stack.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let status = stack.status.as_str();
    let events = format!("aws cloudformation describe-stack-events --stack-name {name} says why");
    match status {
        "CREATE_COMPLETE" | "UPDATE_COMPLETE" | "IMPORT_COMPLETE" => {
            let since = stack.changed_at.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
            ok("stack", format!("{name} is {status}{since}"))
        }
        "UPDATE_ROLLBACK_COMPLETE" => warning(
            "stack",
            format!("the last update of {name} failed and was rolled back{reason}"),
            format!("{events}; then deploy again: {DEPLOY}"),
        ),
        _ if status.ends_with("IN_PROGRESS") => warning(
            "stack",
            format!("{name} is {status}: it is being changed"),
            "run this again when that has ended",
        ),
        _ => problem(
            "stack",
            format!("{name} is {status}{reason}"),
            format!("{events}; docs/upgrading.md says how an update that failed is continued"),
        ),
    }
}

/// `installed` and `ours` are `RELEASE (commit COMMIT)`.
fn of_release(installed: Option<&str>, ours: &str) -> Finding {
    let deploy = format!("build and deploy both from one commit: make package && {DEPLOY}");
    let Some(installed) = installed else {
        let message = format!(
            "the template of the installation is older than this command ({ours}), and does not say its release"
        );
        return warning("release", message, deploy);
    };
    let release = |text: &str| text.split(" (").next().unwrap_or_default().to_owned();
    let is_unknown = |text: &str| text.contains("(commit unknown)");
    if installed == ours {
        return ok("release", format!("the installation and this command are {ours}"));
    }
    if release(installed) == release(ours) && (is_unknown(installed) || is_unknown(ours)) {
        let message = format!(
            "the installation and this command are release {}; one of them does not say its commit",
            release(ours)
        );
        return ok("release", message);
    }
    let message = format!(
        "the installation is {installed} and this command is {ours}: what plan and upgrade show may differ from what the functions do"
    );
    warning("release", message, deploy)
}

/// Managed policies with which a node could read the credentials of every cluster (docs/upgrading.md).
const POWERFUL: [&str; 4] = ["AdministratorAccess", "PowerUserAccess", "IAMFullAccess", "AmazonS3FullAccess"];
/// Top-level domains that belong to nobody: RFC 2606 section 2, RFC 6762 appendix G, and `internal`, which ICANN reserved in 2024.
const NOBODYS: [&str; 11] = [
    "internal",
    "test",
    "example",
    "invalid",
    "localhost",
    "local",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
];

fn of_parameters(parameters: &BTreeMap<String, String>) -> Vec<Finding> {
    let values = |name: &str| -> Option<Vec<&str>> {
        let value = parameters.get(name)?;
        Some(value.split(',').map(str::trim).filter(|part| !part.is_empty()).collect())
    };
    let set = |parameter: &str| format!("{DEPLOY} --parameter-overrides {parameter}");
    let about = |name: &str| format!("parameter {name}");
    let mut all = Vec::new();
    if values("MaintainerArns").is_some_and(|arns| arns.is_empty()) {
        all.push(warning(
            about("MaintainerArns"),
            "it is empty: nobody can publish a node agent, without which no cluster is launched, or repair credentials and state by hand",
            set("MaintainerArns=ROLE-ARN,ROLE-ARN"),
        ));
    }
    if values("AlarmTopicArn").is_some_and(|arns| arns.is_empty()) {
        let help = format!("docs/integrations.md makes a topic; then {}", set("AlarmTopicArn=TOPIC-ARN"));
        all.push(warning(about("AlarmTopicArn"), "it is empty: the alarms notify nobody", help));
    }
    match values("PrivateDomains") {
        Some(domains) if domains.is_empty() => all.push(warning(
            about("PrivateDomains"),
            "it is empty: every spec without `etcd.hostedZone` is refused",
            set("PrivateDomains=internal"),
        )),
        Some(domains) => {
            let wide = |domain: &&&str| !domain.contains('.') && !NOBODYS.contains(*domain);
            all.extend(domains.iter().filter(wide).map(|domain| {
                let message = format!(
                    "a spec may make a private zone for any name below {domain}, in the VPC of its cluster"
                );
                warning(about("PrivateDomains"), message, set("PrivateDomains=internal"))
            }));
        }
        None => {}
    }
    let powerful = |arn: &&str| POWERFUL.iter().any(|name| arn.ends_with(&format!("/{name}")));
    for arn in values("ManagedPolicyArns").unwrap_or_default().into_iter().filter(powerful) {
        all.push(warning(
            about("ManagedPolicyArns"),
            format!("whoever writes a spec can have a machine or a pod with {arn}, which may read the credentials of every cluster"),
            "list policies that do less, and deploy again",
        ));
    }
    if all.is_empty() {
        let approval =
            parameters.get("Approval").map(|value| format!("; Approval is {value}")).unwrap_or_default();
        all.push(ok("parameters", format!("none gives away more than it has to{approval}")));
    }
    all
}

fn of_bucket(bucket: &BucketRead) -> Vec<Finding> {
    let BucketRead { about, name, .. } = bucket;
    let about = *about;
    let mut all = Vec::new();
    let mut check = |read: &Read<bool>, message: &str, help: String| match read {
        Ok(true) => {}
        Ok(false) => all.push(problem(about, format!("{name} {message}"), help)),
        Err(unread) => all.push(unknown(about, unread)),
    };
    check(
        &bucket.versioned,
        "does not keep old versions: what is overwritten or deleted is lost",
        format!("aws s3api put-bucket-versioning --bucket {name} --versioning-configuration Status=Enabled"),
    );
    check(
        &bucket.closed,
        "does not block public access",
        format!(
            "aws s3api put-public-access-block --bucket {name} --public-access-block-configuration \
             BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true"
        ),
    );
    if let Some(tells) = &bucket.tells {
        check(
            tells,
            "does not send its events to EventBridge: no upload of a spec is noticed",
            format!(
                "aws s3api put-bucket-notification-configuration --bucket {name} --notification-configuration '{{\"EventBridgeConfiguration\": {{}}}}'"
            ),
        );
    }
    match &bucket.encryption {
        Ok(encryption) if encryption.algorithm == "AES256" => {}
        Ok(encryption) => {
            let by = match (encryption.algorithm.as_str(), &encryption.key) {
                ("", _) => "nothing".to_owned(),
                (algorithm, None) => algorithm.to_owned(),
                (algorithm, Some(key)) => format!("{algorithm} under {key}"),
            };
            // The template grants nobody a key for the buckets.
            all.push(warning(
                about,
                format!("{name} is encrypted with {by} and not with AES256 as in the template: functions and nodes may lack that key"),
                format!(
                    "aws s3api put-bucket-encryption --bucket {name} --server-side-encryption-configuration \
                     '{{\"Rules\": [{{\"ApplyServerSideEncryptionByDefault\": {{\"SSEAlgorithm\": \"AES256\"}}}}]}}'"
                ),
            ));
        }
        Err(unread) => all.push(unknown(about, unread)),
    }
    if all.is_empty() {
        let tells = if bucket.tells.is_some() { ", and sends its events to EventBridge" } else { "" };
        all.push(ok(about, format!("{name} keeps old versions, blocks public access and encrypts{tells}")));
    }
    all
}

fn of_rules(stack: &str, rules: &[RuleRead]) -> Vec<Finding> {
    let mut all = Vec::new();
    for RuleRead { id, bus, name, enabled, targets } in rules {
        let about = format!("rule {id}");
        match enabled {
            Ok(None) => {
                let message =
                    format!("{name} does not exist on the bus {bus}: nothing is woken by its events");
                all.push(problem(about, message, recreate_help(stack)));
                continue;
            }
            Ok(Some(false)) => all.push(problem(
                about.clone(),
                format!("{name} on the bus {bus} is disabled: nothing is woken by its events"),
                format!("aws events enable-rule --name {name} --event-bus-name {bus}"),
            )),
            Ok(Some(true)) => {}
            Err(unread) => all.push(unknown(about.clone(), unread)),
        }
        match targets {
            Ok(0) => {
                let message = format!("{name} on the bus {bus} has no target: its events go nowhere");
                all.push(problem(about, message, recreate_help(stack)));
            }
            Ok(_) => {}
            Err(unread) => all.push(unknown(about, unread)),
        }
    }
    if rules.is_empty() {
        let message = format!("the stack {stack} has no rules: nothing is woken by uploads and orders");
        all.push(problem("rules", message, format!("deploy Slipway's template: {DEPLOY}")));
    } else if all.is_empty() {
        all.push(ok("rules", format!("{}, all enabled and with targets", count(rules.len(), "rule"))));
    }
    all
}

fn of_schedules(stack: &str, schedules: &[ScheduleRead]) -> Vec<Finding> {
    let schedule_finding = |ScheduleRead { id, name, schedule }: &ScheduleRead| {
        let about = format!("schedule {id}");
        let harm = "no certificate is renewed by itself, and nobody is told of one that expires";
        match schedule {
            Ok(Some(schedule)) if schedule.enabled => {
                ok(about, format!("{name} is enabled: {}", schedule.expression))
            }
            Ok(Some(_)) => problem(
                about,
                format!("{name} is disabled: {harm}"),
                format!(
                    "aws scheduler update-schedule --name {name} --state ENABLED, with its other settings as aws scheduler get-schedule --name {name} shows them"
                ),
            ),
            Ok(None) => problem(about, format!("{name} does not exist: {harm}"), recreate_help(stack)),
            Err(unread) => unknown(about, unread),
        }
    };
    if schedules.is_empty() {
        let message = format!("the stack {stack} has no schedule: no certificate is renewed by itself");
        return vec![problem("schedule", message, format!("deploy Slipway's template: {DEPLOY}"))];
    }
    schedules.iter().map(schedule_finding).collect()
}

fn of_queue(queue: &QueueRead) -> Finding {
    let QueueRead { output, url, depth } = queue;
    let about = output.trim_end_matches("Url");
    let (what, then) = match about {
        "RenderDeadLetters" => ("uploads that were not rendered", "upload the spec again: slipway apply"),
        "RolloutDeadLetters" => ("events that woke no rollout", "`slipway scan --all` wakes every rollout"),
        _ => ("scans that did not run", "`slipway scan --all` runs them"),
    };
    match depth {
        Ok(Some(0)) => ok(about, "the dead-letter queue is empty"),
        Ok(Some(depth)) => problem(
            about,
            format!("about {} in the dead-letter queue: {what}", count(*depth, "message")),
            format!(
                "read what failed: aws sqs receive-message --queue-url {url}; cure that, then {then}; then aws sqs purge-queue --queue-url {url}"
            ),
        ),
        Ok(None) => problem(
            about,
            format!("the dead-letter queue {url} does not exist: {what} are lost"),
            "deploy the template again",
        ),
        Err(unread) => unknown(about, unread),
    }
}

fn of_key(key: &KeyRead) -> Vec<Finding> {
    let KeyRead { arn, .. } = key;
    let lost = "nothing that it sealed can be opened, and no machine gets its credentials";
    let mut all = Vec::new();
    let mut enabled = false;
    match &key.key {
        Ok(Some(found)) if found.enabled => enabled = true,
        Ok(Some(found)) => {
            let help = match found.state.as_str() {
                "PendingDeletion" => format!(
                    "at once: aws kms cancel-key-deletion --key-id {arn} && aws kms enable-key --key-id {arn}"
                ),
                _ => format!("aws kms enable-key --key-id {arn}"),
            };
            all.push(problem("key", format!("{arn} is {}: {lost}", found.state), help));
        }
        Ok(None) => {
            let help = "it cannot be brought back: every cluster needs new credentials (docs/pki.md)";
            all.push(problem("key", format!("{arn} does not exist: {lost}"), help));
            return all;
        }
        Err(unread) => all.push(unknown("key", unread)),
    }
    match &key.rotated {
        Ok(true) => {}
        Ok(false) => all.push(warning(
            "key",
            format!("{arn} is not rotated each year"),
            format!("aws kms enable-key-rotation --key-id {arn}"),
        )),
        Err(unread) => all.push(unknown("key", unread)),
    }
    match &key.policy {
        Ok(policy) if lets_iam_decide(policy) => {}
        Ok(_) => all.push(problem(
            "key",
            format!("the policy of {arn} does not let IAM decide who may use it: functions and nodes may not"),
            format!("aws kms put-key-policy --key-id {arn} --policy-name default --policy POLICY, with the statement AccountDecidesByIam of infra/template.yaml"),
        )),
        Err(unread) => all.push(unknown("key", unread)),
    }
    match &key.usable {
        Ok(()) => {}
        // A key that is disabled is told of above.
        Err(_) if !enabled => {}
        Err(unread) if unread.denied => all.push(finding(
            Level::Warning,
            "key",
            format!("you may not seal credentials with {arn}: {}", unread.why),
            "only who runs `slipway renew --recover` or issues certificates needs kms:GenerateDataKey on it (docs/cli.md, docs/pki.md)",
        )),
        Err(unread) => all.push(unknown("key", unread)),
    }
    if all.is_empty() {
        all.push(ok(
            "key",
            format!("{arn} is enabled and rotated; IAM policies control its use, and allow you to use it"),
        ));
    }
    all
}

/// Whether a statement allows the account everything, so that IAM policies grant permissions: "Unless the key policy explicitly allows it,
/// you cannot use IAM policies to allow access to a KMS key" (KMS developer guide, "Default key policy").
fn lets_iam_decide(policy: &str) -> bool {
    let listed = |value: &Value| -> Vec<String> {
        match value {
            Value::String(text) => vec![text.clone()],
            Value::Array(texts) => texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => Vec::new(),
        }
    };
    let Ok(policy) = serde_json::from_str::<Value>(policy) else { return false };
    let statements = match policy["Statement"].as_array() {
        Some(statements) => statements.clone(),
        None => vec![policy["Statement"].clone()],
    };
    // The account is written as its root, or as its number alone (IAM user guide, "AWS JSON policy elements: Principal").
    let is_account = |principal: &String| {
        principal.ends_with(":root")
            || (principal.len() == 12 && principal.bytes().all(|byte| byte.is_ascii_digit()))
    };
    statements.iter().any(|statement| {
        statement["Effect"] == "Allow"
            && statement["Condition"].is_null()
            && listed(&statement["Principal"]["AWS"]).iter().any(is_account)
            && listed(&statement["Action"]).iter().any(|action| action == "kms:*")
    })
}

fn of_agent(agent: &AgentRead, now: Timestamp) -> Vec<Finding> {
    let published = match &agent.published {
        Ok(published) => published,
        Err(unread) => return vec![unknown("agent", unread)],
    };
    let publish = |architecture: &str| {
        format!(
            "make package ARCHITECTURE={architecture}, then: slipway publish-agent dist/{architecture}/slipway-node"
        )
    };
    if published.is_empty() {
        return vec![problem(
            "agent",
            "no node agent is published: a spec is refused until there is one",
            publish("arm64"),
        )];
    }
    let stored = match &agent.stored {
        Ok(stored) => stored,
        Err(unread) => return vec![unknown("agent", unread)],
    };
    let agent_finding = |(architecture, sha256): (&Architecture, &String)| {
        let (architecture, short) = (architecture.as_str(), sha256.chars().take(12).collect::<String>());
        let key = keys::agent(sha256);
        match stored.iter().find(|object| object.key == key) {
            Some(object) => {
                ok("agent", format!("{architecture}: {short}, published {}", ago(object.modified, now)))
            }
            None => problem(
                "agent",
                format!(
                    "the manifest names {short} for {architecture}, and {key} does not exist: new machines cannot fetch their agent"
                ),
                publish(architecture),
            ),
        }
    };
    published.iter().map(agent_finding).collect()
}

#[cfg(test)]
mod tests;
