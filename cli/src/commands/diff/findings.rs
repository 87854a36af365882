//! The comparison: what was read of a cluster becomes findings. Nothing is asked here.

mod groups;
mod resources;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use slipway_aws::{GroupSettings, ResourceDrift};
use slipway_core::cluster::GroupSize;
use slipway_core::digest::sha256_hex;
use slipway_core::node::Base;
use slipway_core::release::{Rendering, StackKind};
use slipway_core::role::Role;
use slipway_rollout::{Rollout, RolloutResult};

/// What was read of a cluster.
#[derive(Debug)]
pub(super) struct ClusterRead {
    pub(super) cluster: String,
    pub(super) region: String,
    pub(super) course: Course,
    pub(super) stacks: Vec<StackRead>,
}

/// The state of the cluster's rollouts, so that their changes are not reported as manual changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// The last one succeeded, and none is open.
    Settled,
    /// None is open, and the last one may have left groups larger than planned.
    Unsettled,
    /// One is open: it changes stacks, templates and sizes.
    Rolling,
}

impl Course {
    pub(super) fn from_rollout(rollout: &Rollout) -> Self {
        if rollout.active().is_some() {
            return Self::Rolling;
        }
        let succeeded = rollout.last.as_ref().is_some_and(|last| last.result == RolloutResult::Succeeded);
        match succeeded && rollout.left_over.is_empty() {
            true => Self::Settled,
            false => Self::Unsettled,
        }
    }

    /// Before and after something: a rollout that was open at either time may have changed something meanwhile.
    pub(super) fn and_then(self, after: Self) -> Self {
        match (self, after) {
            (Self::Rolling, _) | (_, Self::Rolling) => Self::Rolling,
            (Self::Unsettled, _) | (_, Self::Unsettled) => Self::Unsettled,
            (Self::Settled, Self::Settled) => Self::Settled,
        }
    }
}

/// A stack that stands by the state of the rollout.
#[derive(Debug)]
pub(super) struct StackRead {
    pub(super) name: String,
    /// The id of the release that was rolled out for it.
    pub(super) release: String,
    /// `None`: that release is not stored any more, or does not have the stack.
    pub(super) wanted: Option<StackInRelease>,
    /// The address of the template in that release.
    pub(super) template_url: Option<String>,
    /// `None`: there is no such stack.
    pub(super) standing: Option<Standing>,
}

/// What a release says of a stack.
#[derive(Debug, Clone)]
pub(super) struct StackInRelease {
    pub(super) kind: StackKind,
    pub(super) template: Value,
    pub(super) sha256: String,
    pub(super) template_key: String,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) groups: Vec<GroupInRelease>,
}

/// What a release says of an Auto Scaling group.
#[derive(Debug, Clone)]
pub(super) struct GroupInRelease {
    pub(super) name: String,
    /// Its name in the template.
    pub(super) logical_id: String,
    pub(super) role: Role,
    /// The sizes in the template: the maximum has room for one more controller, and for the surge of a pool.
    pub(super) min: u32,
    pub(super) max: u32,
    /// The sizes that the spec asks for.
    pub(super) nodes: GroupSize,
}

const GROUP: &str = "AWS::AutoScaling::AutoScalingGroup";

impl StackInRelease {
    pub(super) fn from_release(release: &Rendering, name: &str) -> Option<Self> {
        let stack = release.stack(name)?;
        let template: Value = serde_json::from_str(&stack.body).ok()?;
        let groups =
            release.roles.iter().filter(|(_, node)| node.stack == name).filter_map(|(role, node)| {
                // The configuration is written by rendering, for the agent.
                let name = serde_json::from_str::<Base>(&node.config).ok()?.auto_scaling_group;
                let resources = template.get("Resources")?.as_object()?;
                let (logical_id, group) = resources.iter().find(|(_, one)| {
                    one["Type"] == GROUP && one["Properties"]["AutoScalingGroupName"] == name.as_str()
                })?;
                let size = |key: &str| group["Properties"][key].as_str()?.parse().ok();
                let (min, max) = (size("MinSize")?, size("MaxSize")?);
                let (logical_id, role, nodes) = (logical_id.clone(), role.clone(), node.nodes);
                Some(GroupInRelease { name, logical_id, role, min, max, nodes })
            });
        Some(Self {
            kind: stack.kind,
            sha256: stack.sha256.clone(),
            template_key: stack.template_key(&release.cluster),
            tags: stack.tags.clone(),
            groups: groups.collect(),
            template,
        })
    }

    /// Type of each resource, by its name in the template.
    fn resources(&self) -> impl Iterator<Item = (&str, &str)> {
        let resources = self.template.get("Resources").and_then(Value::as_object);
        resources
            .into_iter()
            .flatten()
            .map(|(id, one)| (id.as_str(), one.get("Type").and_then(Value::as_str).unwrap_or_default()))
    }
}

/// A stack as it is.
#[derive(Debug)]
pub(super) struct Standing {
    /// As CloudFormation names it.
    pub(super) status: String,
    /// Whether it is protected from deletion.
    pub(super) protected: bool,
    pub(super) tags: BTreeMap<String, String>,
    /// The template that it was deployed with.
    pub(super) template: String,
    pub(super) drift: Drift,
    /// Those of the groups of the release that exist, by name.
    pub(super) groups: BTreeMap<String, GroupSettings>,
}

/// What CloudFormation's drift detection found.
#[derive(Debug)]
pub(super) enum Drift {
    /// It has looked at the resources. `failure`: it could not read all of them, and why.
    Looked { drifts: Vec<ResourceDrift>, failure: Option<String> },
    /// The stack's status does not allow it.
    NotNow,
    /// CloudFormation refused, in its words.
    Refused(String),
    /// It has not ended in time.
    NotInTime,
    /// Somebody else's detection has not ended in time.
    SomebodyElses,
}

/// Whether CloudFormation detects drift in that status: "You can perform drift detection on stacks with the following statuses" (CloudFormation
/// user guide, "Detect unmanaged configuration changes to stacks and resources with drift detection").
pub(super) fn can_be_looked_at(status: &str) -> bool {
    ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_ROLLBACK_FAILED"]
        .contains(&status)
}

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Level {
    /// It is not as it was rolled out.
    Differs,
    /// It could not be compared.
    Unknown,
    /// Good to know, and no difference.
    Note,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Differs => "differs",
            Self::Unknown => "unknown",
            Self::Note => "note",
        }
    }
}

/// A property on both sides. `None`: there is nothing on that side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sides {
    pub(super) property: String,
    /// What was rolled out.
    pub(super) expected: Option<String>,
    /// What there is.
    pub(super) actual: Option<String>,
}

/// Something that is worth telling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    pub(super) level: Level,
    pub(super) stack: String,
    /// The stack, or a resource or group in it.
    pub(super) about: String,
    pub(super) message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) differences: Vec<Sides>,
    /// The way back. `None`: nothing has to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) help: Option<String>,
}

/// All findings about a cluster, the differences first, then in the order of its stacks.
pub(super) fn findings(read: &ClusterRead) -> Vec<Finding> {
    let mut all = Vec::new();
    for stack in &read.stacks {
        let about = About { read, stack };
        match (&stack.standing, &stack.wanted) {
            (None, wanted) => all.push(about.missing(wanted.as_ref())),
            (Some(_), None) => all.push(about.lost()),
            (Some(standing), Some(wanted)) => {
                all.extend(about.deployed(standing, wanted));
                all.extend(resources::of_stack(&about, standing, wanted));
                all.extend(groups::of_stack(&about, standing, wanted));
            }
        }
    }
    all.extend(of_protection(read));
    all.sort_by_key(|finding| finding.level);
    all
}

/// The stack that findings are about.
struct About<'r> {
    read: &'r ClusterRead,
    stack: &'r StackRead,
}

impl About<'_> {
    fn finding(
        &self,
        level: Level,
        about: &str,
        message: String,
        help: impl Into<Option<String>>,
    ) -> Finding {
        Finding {
            level,
            stack: self.stack.name.clone(),
            about: about.to_owned(),
            message,
            differences: Vec::new(),
            help: help.into(),
        }
    }

    /// A finding about the stack as a whole.
    fn of_stack(&self, level: Level, message: impl Into<String>, help: impl Into<Option<String>>) -> Finding {
        self.finding(level, &self.stack.name, message.into(), help)
    }

    /// The command that makes a drift-aware change set of the stack. `DeploymentMode: REVERT_DRIFT` exists since November 2025: it "brings actual
    /// resource states in line with template definitions" (botocore, `CreateChangeSet`).
    fn revert(&self) -> String {
        format!(
            "`aws cloudformation create-change-set --stack-name {} --change-set-name revert-drift --change-set-type UPDATE --use-previous-template \
             --deployment-mode REVERT_DRIFT --capabilities CAPABILITY_NAMED_IAM --region {}`",
            self.stack.name, self.read.region
        )
    }

    /// No stack of that name exists.
    fn missing(&self, wanted: Option<&StackInRelease>) -> Finding {
        let name = &self.stack.name;
        let recreate = format!(
            "an upload that changes something in this stack creates it again, and one that changes nothing does not: Slipway compares releases. To \
             create it as it was: {}",
            self.deploy("create-stack", wanted)
        );
        let help = match wanted.map(|wanted| wanted.kind) {
            Some(StackKind::Etcd) => format!(
                "the data of etcd went with it: docs/runbook.md, etcd, says how to restore a snapshot; {recreate}"
            ),
            Some(StackKind::Network | StackKind::Identity | StackKind::ControlPlane | StackKind::Pool)
            | None => recreate,
        };
        self.of_stack(Level::Differs, format!("there is no stack {name}, and it was rolled out"), help)
    }

    /// The command that deploys the recorded template.
    fn deploy(&self, verb: &str, wanted: Option<&StackInRelease>) -> String {
        let url = self.stack.template_url.as_deref().unwrap_or("URL");
        let tags: Vec<String> = wanted
            .map(|wanted| {
                wanted.tags.iter().map(|(key, value)| format!("'Key={key},Value={value}'")).collect()
            })
            .unwrap_or_default();
        let tags = if tags.is_empty() { String::new() } else { format!(" --tags {}", tags.join(" ")) };
        format!(
            "`aws cloudformation {verb} --stack-name {} --template-url {url} --capabilities CAPABILITY_NAMED_IAM{tags} --region {}`",
            self.stack.name, self.read.region
        )
    }

    /// The release that was rolled out is not stored.
    fn lost(&self) -> Finding {
        let key = format!("clusters/{}/releases/{}.json", self.read.cluster, self.stack.release);
        self.of_stack(
            Level::Unknown,
            format!("not compared: the release {} that was rolled out for it is not stored any more", self.stack.release),
            format!("bring back a version of {key} in the asset bucket, which keeps them; or upload a spec that changes this stack"),
        )
    }

    /// What was deployed: the status of the stack, its template and its tags.
    fn deployed(&self, standing: &Standing, wanted: &StackInRelease) -> Vec<Finding> {
        if self.read.course == Course::Rolling {
            let message = "a rollout is open, which changes stacks and sizes: its template, its tags and the sizes of its groups are not compared";
            return vec![self.of_stack(Level::Note, message, None)];
        }
        let mut all = Vec::new();
        // The order of keys and white space mean nothing in a template.
        let is_same = sha256_hex(standing.template.as_bytes()) == wanted.sha256
            || serde_json::from_str::<Value>(&standing.template)
                .is_ok_and(|template| template == wanted.template);
        if !is_same {
            let message = "somebody deployed another template than the one that was rolled out";
            let help = format!(
                "Slipway plans from the release that it rolled out, so `slipway apply` changes this stack only if the spec does. To bring the recorded \
                 template back: {}; look at a change set first if the stack has machines",
                self.deploy("update-stack", Some(wanted))
            );
            let sides = Sides {
                property: "template (SHA-256)".to_owned(),
                expected: Some(wanted.sha256.clone()),
                actual: Some(sha256_hex(standing.template.as_bytes())),
            };
            let finding = self.of_stack(Level::Differs, message, help);
            all.push(Finding { differences: vec![sides], ..finding });
        }
        let differences = of_tags(&wanted.tags, &standing.tags);
        if !differences.is_empty() {
            let help = format!("to set them back: {}", self.deploy("update-stack", Some(wanted)));
            let finding = self.of_stack(Level::Differs, "somebody changed the tags of the stack", help);
            all.push(Finding { differences, ..finding });
        }
        all
    }
}

fn of_tags(wanted: &BTreeMap<String, String>, there: &BTreeMap<String, String>) -> Vec<Sides> {
    let keys: BTreeSet<&String> = wanted.keys().chain(there.keys()).collect();
    let differ = keys.into_iter().filter(|key| wanted.get(*key) != there.get(*key));
    let sides = |key: &String| Sides {
        property: format!("tag {key}"),
        expected: wanted.get(key).cloned(),
        actual: there.get(key).cloned(),
    };
    differ.map(sides).collect()
}

/// Slipway sets no termination protection, so that it is off is normal. Whoever has protected stacks of a cluster wants to know which are not, and
/// what a destruction will meet.
fn of_protection(read: &ClusterRead) -> Vec<Finding> {
    let stands = |stack: &&StackRead| stack.standing.is_some();
    let is_on = |stack: &StackRead| stack.standing.as_ref().is_some_and(|standing| standing.protected);
    let (on, off): (Vec<&StackRead>, Vec<&StackRead>) =
        read.stacks.iter().filter(stands).partition(|stack| is_on(stack));
    if on.is_empty() {
        return Vec::new();
    }
    let mut all: Vec<Finding> = on
        .into_iter()
        .map(|stack| {
            let message = "termination protection is on: `slipway destroy` stops at this stack, and so does a rollout that deletes it";
            About { read, stack }.of_stack(Level::Note, message, None)
        })
        .collect();
    all.extend(off.into_iter().map(|stack| {
        let help = format!(
            "`aws cloudformation update-termination-protection --enable-termination-protection --stack-name {} --region {}`",
            stack.name, read.region
        );
        let message = "termination protection is off, and on for other stacks of this cluster";
        About { read, stack }.of_stack(Level::Note, message, help)
    }));
    all
}
