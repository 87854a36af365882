//! A plan as text.

use std::fmt::Write as _;

use slipway_core::keys;
use slipway_core::words::count as counted;

use super::exports::few;
use super::{
    AddonAction, AddonPlan, GroupEffect, MembershipAction, MembershipChange, NodeAction, NodePlan, Plan,
    Replacement, ResourceAction, ResourceChange, StackAction, StackPlan, words,
};

/// One line: the number of stacks and nodes by action.
pub(super) fn summary(plan: &Plan) -> String {
    let orphaned: Vec<&str> = plan.orphaned().map(|stack| stack.name.as_str()).collect();
    let orphaned =
        if orphaned.is_empty() { String::new() } else { format!("; orphaned: {}", orphaned.join(", ")) };
    if plan.is_empty() {
        return format!("nothing changes{orphaned}");
    }
    let stacks = |action| plan.stacks.iter().filter(|stack| stack.action == action).count();
    let mut parts = Vec::new();
    for (action, word) in [
        (StackAction::Create, "to create"),
        (StackAction::Update, "to update"),
        (StackAction::Delete, "to delete"),
    ] {
        let count = stacks(action);
        if count > 0 {
            parts.push(format!("{} {word}", counted(count, "stack")));
        }
    }
    let mut nodes = Vec::new();
    for (action, word) in [
        (NodeAction::Create, "new"),
        (NodeAction::Replace, "replaced"),
        (NodeAction::Refresh, "refreshed"),
        (NodeAction::Remove, "removed"),
    ] {
        let machines = plan.machines(action);
        if machines.any() {
            nodes.push(format!("{} {word}", machines.figure()));
        }
    }
    // For people who approve every plan, this line may be all that they read.
    let groups = |effect| -> Vec<String> {
        let has = |node: &&NodePlan| node.undrained.iter().any(|one| one.cause.effect() == effect);
        plan.nodes.iter().filter(has).map(|node| node.role.to_string()).collect()
    };
    let (loses, swaps) = (groups(GroupEffect::Terminates), groups(GroupEffect::Replaces));
    if nodes.is_empty() {
        let untouched = loses.is_empty() && swaps.is_empty();
        nodes.push(if untouched { "none touched" } else { "none replaced" }.to_owned());
    }
    for (does, roles) in
        [("some may go at once, undrained", loses), ("Auto Scaling may replace some by itself", swaps)]
    {
        let roles: Vec<&str> = roles.iter().map(String::as_str).collect();
        if !roles.is_empty() {
            nodes.push(format!("{does} ({})", few(&roles)));
        }
    }
    if parts.is_empty() {
        parts.push("no stack".to_owned());
    }
    let mut text = format!("{}; nodes: {}", parts.join(", "), nodes.join(", "));
    if let Some(deadline) = plan.deadline_in_words() {
        text.push_str(&format!("; {deadline}"));
    }
    let addons = addons(plan);
    if !addons.is_empty() {
        text.push_str(&format!("; add-ons: {addons}"));
    }
    let mut members = Vec::new();
    for (action, word) in MEMBERSHIP {
        let count = plan.membership.iter().filter(|change| change.action == action).count();
        if count > 0 {
            members.push(format!("{count} {word}"));
        }
    }
    if !members.is_empty() {
        text.push_str(&format!("; etcd's membership: {}", members.join(", ")));
    }
    text + &orphaned
}

/// The number of add-ons by action.
pub(super) fn addons(plan: &Plan) -> String {
    let mut parts = Vec::new();
    for (action, word) in
        [(AddonAction::Add, "new"), (AddonAction::Change, "changed"), (AddonAction::Remove, "removed")]
    {
        let count = plan.addons.iter().filter(|addon| addon.action == action).count();
        if count > 0 {
            parts.push(format!("{count} {word}"));
        }
    }
    parts.join(", ")
}

/// The words for what happens to a member.
const MEMBERSHIP: [(MembershipAction, &str); 4] = [
    (MembershipAction::Add, "joining"),
    (MembershipAction::Readdress, "readdressed"),
    (MembershipAction::Replace, "leaving and joining anew"),
    (MembershipAction::Remove, "leaving"),
];

/// For people who changed one of these keys and see that nothing changes.
pub(super) const LATER: &str = "Not in a plan, because they count from the next time: `certificatesConfiguration.keyAlgorithm`, \
     `tlsCertDurationDays` and `tlsCADurationDays` for certificates that are issued next, `rolloutBeforeExpiry` from the next scan, `rollout` \
     from the next plan.";

/// All stacks and roles, with what happens to them.
pub(super) fn whole(plan: &Plan) -> String {
    let mut text = format!("Plan {} for {}: {}\n\n", plan.id, plan.cluster, summary(plan));
    let refused = plan.not_executable();
    if let Some(why) = &refused {
        push(&mut text, format_args!("This plan is not executed: {why}\n"));
    }
    text.push_str("Stacks\n");
    for stack in &plan.stacks {
        stack_lines(plan, stack, &mut text);
    }
    text.push_str("\nNodes\n");
    for node in plan.in_order() {
        node_lines(plan, node, &mut text);
    }
    // What is not begun has no schedule.
    let conduct = if refused.is_some() { Vec::new() } else { plan.conduct() };
    if !conduct.is_empty() {
        text.push_str("\nHow it is rolled out\n");
        conduct.iter().for_each(|line| push(&mut text, format_args!("  {line}")));
    }
    if !plan.membership.is_empty() {
        text.push_str(match refused {
            Some(_) => "\nMembership of etcd, which stays as it is\n",
            None => "\nMembership of etcd, one change after the other\n",
        });
        for (index, change) in plan.membership.iter().enumerate() {
            member_lines(index + 1, change, &mut text);
        }
    }
    if !plan.addons.is_empty() {
        text.push_str("\nAdd-ons, which touch no node\n");
        for addon in &plan.addons {
            addon_lines(addon, &mut text);
        }
    }
    if plan.is_empty() {
        push(&mut text, format_args!("\n{LATER}"));
    }
    if let Some(where_else) = left_out(plan) {
        push(&mut text, format_args!("\n{where_else}"));
    }
    text
}

fn stack_lines(plan: &Plan, stack: &StackPlan, text: &mut String) {
    let (sign, word) = match stack.action {
        StackAction::Create => ('+', "create"),
        StackAction::Update => ('~', "update"),
        StackAction::Delete => ('-', "delete"),
        StackAction::Orphaned => ('!', "orphaned"),
        StackAction::Unchanged => (' ', "unchanged"),
    };
    let count = stack.resources.len();
    let resources = match stack.action {
        StackAction::Orphaned => format!(": {}", stack.deletion_help()),
        StackAction::Unchanged => String::new(),
        StackAction::Create | StackAction::Update | StackAction::Delete => {
            format!(" ({})", counted(count, "resource"))
        }
    };
    push(text, format_args!("  {sign} {} {word}{resources}", stack.name));
    let shown = match stack.action {
        StackAction::Update => true,
        StackAction::Create => !plan.from.is_empty(),
        StackAction::Delete | StackAction::Orphaned | StackAction::Unchanged => false,
    };
    if !shown {
        return;
    }
    for change in &stack.resources {
        resource_lines(change, text);
    }
    for line in stack.other.iter().flat_map(words::lines) {
        push(text, format_args!("      ~ {line}"));
    }
}

fn resource_lines(change: &ResourceChange, text: &mut String) {
    let sign = match (change.action, change.replacement) {
        (ResourceAction::Add, _) => "+",
        (ResourceAction::Remove, _) => "-",
        (ResourceAction::Modify, Replacement::Always) => "±",
        (ResourceAction::Modify, Replacement::Never | Replacement::Conditional) => "~",
    };
    let fate = match change.replacement {
        Replacement::Never => "",
        Replacement::Conditional => ", perhaps replaced",
        Replacement::Always => ", replaced",
    };
    push(text, format_args!("      {sign} {} ({}{fate})", change.logical_id, change.resource_type));
    for property in &change.properties {
        let found = &property.difference;
        if let Some(cause) = &property.because_of {
            push(text, format_args!("          {}: follows {cause}", found.path));
            continue;
        }
        for line in words::lines(found) {
            push(text, format_args!("          {line}"));
        }
    }
}

fn node_lines(plan: &Plan, node: &NodePlan, text: &mut String) {
    let (sign, word) = match node.action {
        NodeAction::Create => ('+', "created"),
        NodeAction::Replace => ('±', "replaced"),
        NodeAction::Refresh => ('~', "refreshed in place"),
        NodeAction::Untouched => (' ', "left alone"),
        NodeAction::Remove => ('-', "removed"),
        NodeAction::Orphaned => ('!', "orphaned"),
    };
    let count = if node.nodes.min == node.nodes.max {
        node.nodes.min.to_string()
    } else {
        format!("{}–{}", node.nodes.min, node.nodes.max)
    };
    let before: Vec<String> = plan.waits_for(node).iter().map(ToString::to_string).collect();
    let after = if before.is_empty() { String::new() } else { format!(", after {}", before.join(", ")) };
    push(text, format_args!("  {sign} {} ×{count}: {word}{after}", node.role));
    if node.action != NodeAction::Create {
        for reason in node.all_reasons() {
            push(text, format_args!("      {reason}"));
        }
    } else if !plan.from.is_empty() {
        // The reason for a new node is obvious, and what will run on it is not.
        for line in node.values.iter().flat_map(words::lines) {
            push(text, format_args!("      {line}"));
        }
    }
}

fn member_lines(number: usize, change: &MembershipChange, text: &mut String) {
    let (sign, word) = match change.action {
        MembershipAction::Add => ('+', "joins as a learner, then votes"),
        MembershipAction::Readdress => ('~', "gets another address"),
        MembershipAction::Replace => ('±', "leaves, and joins again with an empty volume"),
        MembershipAction::Remove => ('-', "leaves"),
    };
    push(text, format_args!("  {number}. {sign} {} {word}", change.member));
    push(text, format_args!("      {}", change.reason));
    push(text, format_args!("      {}", change.quorum));
}

fn addon_lines(addon: &AddonPlan, text: &mut String) {
    let (sign, word) = match addon.action {
        AddonAction::Add => ('+', "installed"),
        AddonAction::Change => ('~', "changed"),
        AddonAction::Remove => ('-', "removed"),
    };
    push(text, format_args!("  {sign} {}: {word}", addon.title()));
    // One line is enough for an add-on that is installed or removed.
    if addon.action == AddonAction::Change {
        for object in &addon.objects {
            push(text, format_args!("      {object}"));
        }
        for line in addon.values.iter().flat_map(words::lines) {
            push(text, format_args!("          {line}"));
        }
    }
}

/// Where to read what the text leaves out.
fn left_out(plan: &Plan) -> Option<String> {
    let properties = plan.stacks.iter().flat_map(|stack| &stack.resources).flat_map(|one| &one.properties);
    let stacks = plan.stacks.iter().flat_map(|stack| &stack.other);
    let nodes = plan.nodes.iter().flat_map(|node| &node.values);
    let addons = plan.addons.iter().flat_map(|addon| &addon.values);
    let own = properties.filter(|one| one.because_of.is_none()).map(|one| &one.difference);
    let mut all = own.chain(stacks).chain(nodes).chain(addons);
    let new = plan.addons.iter().any(|addon| addon.action == AddonAction::Add);
    let what = if plan.from.is_empty() && !plan.is_empty() {
        "Everything is new, so its values are not listed here."
    } else if new {
        "The objects of new add-ons are not listed here, and of long values only a part, with their size and digest."
    } else if all.any(words::is_cut) {
        "Of long values only a part is listed here, with their size and digest."
    } else {
        return None;
    };
    let page = keys::plan_page(&plan.cluster, &plan.id);
    Some(format!(
        "{what} To read all in full: {page} of the asset bucket (`slipway export`), or \
         `slipway plan` with `--html FILE` or `--output json`."
    ))
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
