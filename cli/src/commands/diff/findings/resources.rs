//! What drift detection found of the resources of a stack.

use std::collections::BTreeSet;

use slipway_aws::{Difference, DifferenceKind, DriftStatus, ResourceDrift};

use super::{About, Course, Drift, Finding, GROUP, Level, Sides, StackInRelease, Standing};

pub(super) fn of_stack(about: &About<'_>, standing: &Standing, wanted: &StackInRelease) -> Vec<Finding> {
    let (drifts, failure) = match &standing.drift {
        Drift::Looked { drifts, failure } => (drifts, failure),
        Drift::NotNow | Drift::Refused(_) | Drift::NotInTime | Drift::SomebodyElses => {
            return vec![not_looked_at(about, standing)];
        }
    };
    let mut all: Vec<Finding> =
        drifts.iter().filter_map(|drift| of_resource(about, standing, wanted, drift)).collect();
    let unread = drifts.iter().any(|drift| drift.status == DriftStatus::Unknown);
    if let Some(reason) = failure.as_ref().filter(|_| !unread) {
        let help = "run it again; the reason is CloudFormation's".to_owned();
        all.push(about.of_stack(Level::Unknown, format!("the drift detection failed: {reason}"), help));
    }
    let looked_at: BTreeSet<&str> = drifts
        .iter()
        .filter(|drift| drift.status != DriftStatus::NotChecked)
        .map(|drift| drift.logical_id.as_str())
        .collect();
    let left_out: Vec<String> = wanted
        .resources()
        .filter(|(id, _)| !looked_at.contains(id))
        .map(|(id, kind)| format!("{id} ({kind})"))
        .collect();
    // A rollout may just be adding them.
    if !left_out.is_empty() && about.read.course != Course::Rolling {
        let message = format!("drift detection does not look at {}", left_out.join(", "));
        all.push(about.of_stack(Level::Note, message, None));
    }
    all
}

/// Why CloudFormation has not looked at the resources of a stack.
fn not_looked_at(about: &About<'_>, standing: &Standing) -> Finding {
    let (name, status) = (&about.stack.name, &standing.status);
    let cluster = &about.read.cluster;
    let (message, help) = match &standing.drift {
        Drift::NotNow if status.ends_with("_IN_PROGRESS") && about.read.course == Course::Rolling => {
            let message = format!("its resources are not compared: it is {status}, which the open rollout waits for");
            return about.of_stack(Level::Note, message, format!("slipway watch --cluster {cluster}"));
        }
        Drift::NotNow if status.ends_with("_IN_PROGRESS") => (
            format!("its resources are not compared: it is {status}, and no rollout is open"),
            format!(
                "somebody changes it: `aws cloudformation describe-stack-events --stack-name {name}` says what; run this again when it has ended"
            ),
        ),
        Drift::NotNow => (
            format!("its resources are not compared: it is {status}, and CloudFormation detects no drift in that status"),
            "docs/runbook.md, It failed, says what to do about a stack in that status".to_owned(),
        ),
        Drift::Refused(why) => {
            (format!("its resources are not compared: {why}"), "the words are CloudFormation's; run it again".to_owned())
        }
        Drift::NotInTime => (
            "its resources are not compared: the drift detection has not ended in time".to_owned(),
            "CloudFormation goes on with it: run this again later, or give it more time with --minutes".to_owned(),
        ),
        Drift::SomebodyElses | Drift::Looked { .. } => (
            "its resources are not compared: somebody else's drift detection of it has not ended in time, and a stack has one at a time"
                .to_owned(),
            "run this again later, or give it more time with --minutes".to_owned(),
        ),
    };
    about.of_stack(Level::Unknown, message, help)
}

fn of_resource(
    about: &About<'_>,
    standing: &Standing,
    wanted: &StackInRelease,
    drift: &ResourceDrift,
) -> Option<Finding> {
    let name = format!("{} {} ({})", about.stack.name, drift.logical_id, drift.kind);
    let place = if drift.physical_id.is_empty() { String::new() } else { format!(" {}", drift.physical_id) };
    match drift.status {
        DriftStatus::InSync | DriftStatus::NotChecked => None,
        DriftStatus::Unknown => {
            let why = drift.reason.as_deref().unwrap_or("CloudFormation gave no reason");
            let help = "CloudFormation reads resources with your permissions: docs/cli.md, Permissions, lists what diff needs";
            Some(about.finding(Level::Unknown, &name, format!("could not be read: {why}"), help.to_owned()))
        }
        DriftStatus::Deleted => {
            let message =
                format!("somebody deleted it:{}", if place.is_empty() { " it is gone" } else { &place });
            let lost = match drift.kind.as_str() {
                "AWS::EC2::Volume" => {
                    "the data of that etcd member went with it; the others still have theirs, and with a single member, restore a snapshot \
                     (docs/runbook.md). "
                }
                _ => "",
            };
            let help = format!(
                "{lost}CloudFormation makes it again by a drift-aware change set: {}; read the change set before you execute it",
                about.revert()
            );
            Some(about.finding(Level::Differs, &name, message, help))
        }
        DriftStatus::Modified => {
            let is_read = wanted.groups.iter().any(|group| {
                group.logical_id == drift.logical_id && standing.groups.contains_key(&group.name)
            });
            let is_group = drift.kind == GROUP && is_read;
            // Sizes and the launch template of a group are compared beside, with what is normal for them.
            let differences: Vec<Sides> = drift
                .differences
                .iter()
                .filter(|one| !(is_group && is_of_the_group(&one.path)))
                .map(sides)
                .collect();
            if differences.is_empty() {
                return None;
            }
            let message = format!("somebody changed it:{place}");
            let service = match drift.differences.iter().any(|one| one.kind == DifferenceKind::Added) {
                // "In certain cases, objects contained in property arrays will be reported as drift, when in actuality they are default values."
                true => "unless what was added are AWS' own default values, ",
                false => "",
            };
            let help = format!(
                "{service}set it back in its own service, or by a drift-aware change set: {}; read the change set before you execute it",
                about.revert()
            );
            Some(Finding { differences, ..about.finding(Level::Differs, &name, message, help) })
        }
    }
}

/// Whether a difference is about what the comparison of groups looks at.
fn is_of_the_group(path: &str) -> bool {
    let specification = path
        .strip_prefix("/MixedInstancesPolicy/LaunchTemplate/LaunchTemplateSpecification/")
        .or_else(|| path.strip_prefix("/LaunchTemplate/"));
    ["/MinSize", "/MaxSize", "/DesiredCapacity"].contains(&path)
        || specification.is_some_and(|rest| ["LaunchTemplateId", "Version"].contains(&rest))
}

fn sides(one: &Difference) -> Sides {
    Sides { property: one.path.clone(), expected: one.expected.clone(), actual: one.actual.clone() }
}
