//! The Auto Scaling groups of a stack: sizes, launch template, suspended processes.

use serde_json::Value;
use slipway_aws::{DriftStatus, GroupSettings};
use slipway_core::role::Role;

use super::{About, Course, Drift, Finding, GroupInRelease, Level, Sides, StackInRelease, Standing};

pub(super) fn of_stack(about: &About<'_>, standing: &Standing, wanted: &StackInRelease) -> Vec<Finding> {
    let mut all = Vec::new();
    for group in &wanted.groups {
        let Some(there) = standing.groups.get(&group.name) else {
            all.extend(missing(about, standing, group));
            continue;
        };
        all.extend(of_processes(about, group, there));
        if about.read.course != Course::Rolling {
            all.extend(of_sizes(about, group, there));
            all.extend(of_template(about, standing, group, there));
        }
    }
    all
}

fn name(about: &About<'_>, group: &GroupInRelease) -> String {
    format!("{} group {}", about.stack.name, group.name)
}

/// Auto Scaling has no such group. Drift detection says so as well, if it has looked.
fn missing(about: &About<'_>, standing: &Standing, group: &GroupInRelease) -> Option<Finding> {
    let reported_by_drift = match &standing.drift {
        Drift::Looked { drifts, .. } => drifts
            .iter()
            .any(|drift| drift.logical_id == group.logical_id && drift.status == DriftStatus::Deleted),
        Drift::NotNow | Drift::Refused(_) | Drift::NotInTime | Drift::SomebodyElses => false,
    };
    let help = format!("CloudFormation makes it again by a drift-aware change set: {}", about.revert());
    let message = "Auto Scaling has no such group, and it was rolled out".to_owned();
    (!reported_by_drift).then(|| about.finding(Level::Differs, &name(about, group), message, help))
}

/// Slipway suspends no process. AWS suspends some by itself, "for example, if the group has been trying to launch instances for over 24 hours but
/// has not succeeded" (EC2 Auto Scaling user guide, "Suspend and resume processes").
fn of_processes(about: &About<'_>, group: &GroupInRelease, there: &GroupSettings) -> Option<Finding> {
    if there.suspended.is_empty() {
        return None;
    }
    let processes: Vec<&str> = there.suspended.iter().map(String::as_str).collect();
    let launches = match there.suspended.contains("Launch") {
        true => ": no lost machine is replaced, and no rollout terminates one",
        false => "",
    };
    let message = format!("somebody, or AWS, has suspended {}{launches}", processes.join(", "));
    let help = format!(
        "`aws autoscaling resume-processes --auto-scaling-group-name {} --scaling-processes {} --region {}`",
        group.name,
        processes.join(" "),
        about.read.region
    );
    Some(about.finding(Level::Differs, &name(about, group), message, help))
}

/// The sizes. A desired capacity is an autoscaler's or a rollout's, as long as it is within what the spec asks for.
fn of_sizes(about: &About<'_>, group: &GroupInRelease, there: &GroupSettings) -> Option<Finding> {
    // A rollout that did not succeed may have left the machines that it had launched ahead.
    let most = match about.read.course {
        Course::Settled => group.nodes.max,
        Course::Unsettled | Course::Rolling => group.max,
    };
    let side = |property: &str, expected: String, actual: u32| Sides {
        property: property.to_owned(),
        expected: Some(expected),
        actual: Some(actual.to_string()),
    };
    let mut differences = Vec::new();
    if there.min != group.min {
        differences.push(side("MinSize", group.min.to_string(), there.min));
    }
    if there.max != group.max {
        differences.push(side("MaxSize", group.max.to_string(), there.max));
    }
    let is_normal = (group.min..=most).contains(&there.desired);
    if !is_normal {
        let expected = if group.min == most { most.to_string() } else { format!("{} to {most}", group.min) };
        differences.push(side("DesiredCapacity", expected, there.desired));
    }
    if differences.is_empty() {
        return None;
    }
    let surplus = there.desired > most;
    // A machine that Auto Scaling chooses is not drained before a controller is terminated; the rollout drains the one that it chooses.
    let by_rollout = surplus && group.role == Role::Controller;
    let desired = match is_normal || by_rollout {
        true => String::new(),
        false => format!(" --desired-capacity {}", there.desired.clamp(group.min, most)),
    };
    let sizes = there.min != group.min || there.max != group.max || !desired.is_empty();
    let command = format!(
        "`aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --min-size {} --max-size {}{desired} --region {}`",
        group.name, group.min, group.max, about.read.region
    );
    let mut help = Vec::new();
    if by_rollout {
        help.push("the next rollout of the controllers drains and removes the surplus one: do not lower the desired capacity by hand, which drains nothing".to_owned());
    }
    if sizes {
        help.push(format!("to set them back: {command}"));
    }
    if surplus && !by_rollout {
        help.push(
            "Auto Scaling then terminates what is too many, each through its terminate hook".to_owned(),
        );
    }
    help.push("to keep another size, write it into the spec and run `slipway apply`".to_owned());
    let message = "its sizes are not those that were rolled out".to_owned();
    let finding = about.finding(Level::Differs, &name(about, group), message, help.join("; "));
    Some(Finding { differences, ..finding })
}

/// The launch template, which the stack's template refers to at its newest version: what that is, CloudFormation says in what it expects.
fn of_template(
    about: &About<'_>,
    standing: &Standing,
    group: &GroupInRelease,
    there: &GroupSettings,
) -> Option<Finding> {
    let Drift::Looked { drifts, .. } = &standing.drift else { return None };
    let expected = drifts.iter().find(|drift| drift.logical_id == group.logical_id)?.expected.as_ref()?;
    let mixed = expected.pointer("/MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification");
    let specification = expected.get("LaunchTemplate").or(mixed)?;
    let text = |key: &str| match specification.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let (id, version) = (text("LaunchTemplateId")?, text("Version")?);
    let there = there.template.as_ref();
    if there.is_some_and(|there| (there.0.as_str(), there.1.as_str()) == (id.as_str(), version.as_str())) {
        return None;
    }
    let set = match mixed.is_some() {
        true => format!("by a drift-aware change set: {}", about.revert()),
        false => format!(
            "`aws autoscaling update-auto-scaling-group --auto-scaling-group-name {} --launch-template 'LaunchTemplateId={id},Version={version}' \
             --region {}`",
            group.name, about.read.region
        ),
    };
    let help = format!(
        "machines that it launches are not those of the release, and stay until they are replaced; to set it back: {set}"
    );
    let message = "it uses another launch template, or another version, than its stack".to_owned();
    let sides = Sides {
        property: "LaunchTemplate".to_owned(),
        expected: Some(format!("{id} version {version}")),
        actual: there.map(|(id, version)| format!("{id} version {version}")),
    };
    Some(Finding {
        differences: vec![sides],
        ..about.finding(Level::Differs, &name(about, group), message, help)
    })
}
