//! A plan as an HTML page: the summary first, the details below.
//!
//! maud escapes every value, so nothing from a spec becomes markup.

use maud::{Markup, html};
use serde_json::Value;
use slipway_core::diff::Difference;
use slipway_core::page::{self, clean};
use slipway_core::words::count;

use super::story::{self, Risk, Story};
use super::words::window;
use super::{
    AddonAction, AddonPlan, Machines, NodeAction, NodePlan, Plan, PropertyChange, Replacement,
    ResourceAction, ResourceChange, StackAction, StackPlan,
};

/// Of longer values, such as user data and policies, the page shows as much, and unfolds the rest.
const LONGEST: usize = 1500;

/// The page.
pub(super) fn page(plan: &Plan) -> String {
    let story = story::story(plan);
    let title = clean(&format!("Plan for {}", plan.cluster));
    let body = html! {
        (top(plan, &story, &title))
        (effects(plan, &story))
        (conduct(plan))
        (nodes(plan))
        (membership(plan))
        (addons(plan))
        (stacks(plan))
    };
    page::page(&title, "", &body, "from the plan of the same name")
}

fn top(plan: &Plan, story: &Story, title: &str) -> Markup {
    let tile = |number: Machines, what: &str, grave: bool| {
        html! { div class=(if grave && number.any() { "tile grave" } else { "tile" }) { b { (number.figure()) } span { (what) } } }
    };
    let machines = |action| plan.machines(action);
    let exactly = |number: usize| Machines::exactly(u32::try_from(number).unwrap_or(u32::MAX));
    let changes = |action| !matches!(action, StackAction::Unchanged | StackAction::Orphaned);
    let changed = plan.stacks.iter().filter(|stack| changes(stack.action)).count();
    let updated = || plan.stacks.iter().filter(|stack| stack.action == StackAction::Update);
    let lost = |change: &&ResourceChange| {
        change.action == ResourceAction::Remove || change.replacement == Replacement::Always
    };
    let replaced = updated().flat_map(|stack| &stack.resources).filter(lost).count();
    html! {
        header {
            h1 { (title) }
            p class="lead" { (clean(&story.headline)) }
            @if let Some(why) = plan.not_executable() {
                p class="lead" { b class="gone" { "This plan is not executed: " } (clean(&why)) "." }
            }
            p { span class={ "risk " (story.risk.word()) } { "Risk: " (story.risk.word()) } }
            @if !story.why.is_empty() {
                ul class="why" {
                    @for (risk, why) in once(&story.why).iter().filter(|(risk, _)| *risk == story.risk) {
                        li class=(risk.word()) { (clean(why)) }
                    }
                }
            }
            div class="tiles" {
                (tile(machines(NodeAction::Replace), "machines replaced", true))
                (tile(machines(NodeAction::Refresh), "refreshed in place", false))
                (tile(machines(NodeAction::Create), "machines added", false))
                (tile(machines(NodeAction::Remove), "machines removed", true))
                (tile(exactly(changed), "stacks changed", false))
                (tile(exactly(replaced), "resources replaced or deleted", true))
            }
            p class="small" {
                "Plan " code { (clean(&plan.id)) } " leads to release " code { (clean(&story::brief(&plan.to))) }
                @if plan.from.is_empty() { "; nothing is deployed yet." } @else { "." }
            }
        }
    }
}

/// Each entry once, in order.
fn once(list: &[(Risk, String)]) -> Vec<&(Risk, String)> {
    let mut seen = std::collections::BTreeSet::new();
    list.iter().filter(|(_, text)| seen.insert(text)).collect()
}

fn effects(plan: &Plan, story: &Story) -> Markup {
    html! {
        section {
            h2 { "What happens" }
            @if story.effects.is_empty() { p { (clean(&story.headline)) } }
            @if plan.is_empty() { p class="small" { (super::text::LATER.replace('`', "")) } }
            ul { @for effect in &story.effects { li { (clean(effect)) } } }
            h2 { "What is interrupted" }
            @if story.interrupted.is_empty() { p { "Nothing." } }
            ul { @for one in &story.interrupted { li class="high" { (clean(one)) } } }
        }
    }
}

fn conduct(plan: &Plan) -> Markup {
    // What is not begun has no schedule.
    let lines = if plan.not_executable().is_some() { Vec::new() } else { plan.conduct() };
    html! {
        @if !lines.is_empty() {
            section {
                h2 { "How it is rolled out" }
                ul { @for line in &lines { li { (clean(line)) } } }
            }
        }
    }
}

const fn fate(action: NodeAction) -> (&'static str, &'static str) {
    match action {
        NodeAction::Create => ("created", "add"),
        NodeAction::Replace => ("replaced", "gone"),
        NodeAction::Refresh => ("refreshed in place", "change"),
        NodeAction::Untouched => ("left alone", "same"),
        NodeAction::Remove => ("removed", "gone"),
        NodeAction::Orphaned => ("orphaned", "gone"),
    }
}

fn nodes(plan: &Plan) -> Markup {
    let line = |node: &NodePlan| {
        let (word, class) = fate(node.action);
        let (least, most) = (node.nodes.min, node.nodes.max);
        html! {
            tr {
                th scope="row" { (clean(&node.role.to_string())) }
                td class="word" { (least) @if most != least { "–" (most) } }
                td class={ "word " (class) } { (word) }
                td { @for reason in node.all_reasons() { div { (clean(reason)) } } }
            }
        }
    };
    html! {
        section {
            h2 { "Machines" }
            table {
                thead { tr { th { "Role" } th { "Machines" } th { "What happens" } th { "Why" } } }
                tbody { @for node in plan.in_order() { (line(node)) } }
            }
            @for node in plan.in_order() {
                @if !node.values.is_empty() {
                    details class="stack" {
                        summary { b { (clean(&node.role.to_string())) } " " span class="small" { "machine and configuration: " (count(node.values.len() as u64, "difference")) } }
                        (table(node.values.iter().map(|found| (found, None, false))))
                    }
                }
            }
        }
    }
}

fn membership(plan: &Plan) -> Markup {
    html! {
        @if !plan.membership.is_empty() {
            section {
                h2 { "Membership of etcd, one change after the other" }
                ol {
                    @for change in &plan.membership {
                        li {
                            b { (clean(&change.member.to_string())) } ": " (change.voters_before) " → "
                            (change.voters_after) " voters. " (clean(&change.reason)) ". " (clean(&change.quorum))
                        }
                    }
                }
            }
        }
    }
}

/// Changes of objects inside the cluster, for which no machine is replaced.
fn addons(plan: &Plan) -> Markup {
    let line = |addon: &AddonPlan| {
        let (word, class) = match addon.action {
            AddonAction::Add => ("installed", "add"),
            AddonAction::Change => ("changed", "change"),
            AddonAction::Remove => ("removed", "gone"),
        };
        html! {
            tr {
                th scope="row" { (clean(&addon.name)) }
                td class="word" { (clean(&addon.versions())) }
                td class={ "word " (class) } { (word) }
                // The name of an add-on that is installed or removed says enough.
                td { @if addon.action == AddonAction::Change {
                    @for object in &addon.objects { div { (clean(object)) } }
                } }
            }
        }
    };
    html! {
        @if !plan.addons.is_empty() {
            section {
                h2 { "Add-ons, which touch no machine" }
                table {
                    thead { tr { th { "Add-on" } th { "Version" } th { "What happens" } th { "Objects" } } }
                    tbody { @for addon in &plan.addons { (line(addon)) } }
                }
                @for addon in &plan.addons {
                    @if !addon.values.is_empty() {
                        details class="stack" {
                            summary { b { (clean(&addon.name)) } " " span class="small" { (count(addon.values.len() as u64, "difference")) } }
                            (table(addon.values.iter().map(|found| (found, None, false))))
                        }
                    }
                }
            }
        }
    }
}

fn stacks(plan: &Plan) -> Markup {
    html! {
        section {
            h2 { "Stacks" }
            @for stack in &plan.stacks { (self::stack(stack)) }
        }
    }
}

fn stack(stack: &StackPlan) -> Markup {
    let (word, class) = match stack.action {
        StackAction::Create => ("created", "add"),
        StackAction::Update => ("updated", "change"),
        StackAction::Delete => ("no longer asked for", "gone"),
        StackAction::Orphaned => ("orphaned", "gone"),
        StackAction::Unchanged => ("unchanged", "same"),
    };
    let title = html! {
        b { (clean(&stack.name)) } " " span class="small" { "(" (story::kind(stack.kind)) ")" } " "
        span class=(class) { (word) }
    };
    if matches!(stack.action, StackAction::Unchanged | StackAction::Orphaned) {
        return html! { p class="stack" { (title) } };
    }
    // Changes are unfolded. For a stack that is created or deleted the title says enough.
    let open = (stack.action == StackAction::Update).then_some("open");
    html! {
        details class="stack" open=[open] {
            summary { (title) }
            @for change in &stack.resources { (resource(change)) }
            @if !stack.other.is_empty() {
                div class="resource change" {
                    p { b { "Outputs, tags and description" } }
                    (table(stack.other.iter().map(|found| (found, None, false))))
                }
            }
        }
    }
}

fn resource(change: &ResourceChange) -> Markup {
    let (word, class) = match (change.action, change.replacement) {
        (ResourceAction::Add, _) => ("added", "add"),
        (ResourceAction::Remove, _) => ("deleted", "gone"),
        (ResourceAction::Modify, Replacement::Always) => ("replaced", "gone"),
        (ResourceAction::Modify, Replacement::Conditional) => ("perhaps replaced", "gone"),
        (ResourceAction::Modify, Replacement::Never) => ("changed in place", "change"),
    };
    let line = |one: &'_ PropertyChange| one.replacement != Replacement::Never;
    html! {
        div class={ "resource " (class) } {
            p {
                b { (clean(&change.logical_id)) } " " span class="small" { (clean(&change.resource_type)) } " "
                span class=(class) { (word) }
            }
            @if !change.properties.is_empty() {
                (table(change.properties.iter().map(|one| (&one.difference, one.because_of.as_deref(), line(one)))))
            }
        }
    }
}

/// A table of values before and after, by property. Changes that force a replacement are marked.
fn table<'p>(found: impl Iterator<Item = (&'p Difference, Option<&'p str>, bool)>) -> Markup {
    html! {
        table {
            thead { tr { th { "Property" } th { "Before" } th { "After" } } }
            tbody {
                @for (difference, because, replaces) in found {
                    tr class=[replaces.then_some("replaces")] {
                        th scope="row" { (clean(&difference.path)) }
                        @if let Some(cause) = because {
                            td colspan="2" { "follows " (clean(cause)) }
                        } @else {
                            (values(difference))
                        }
                    }
                }
            }
        }
    }
}

fn values(difference: &Difference) -> Markup {
    let [before, after] = [&difference.before, &difference.after].map(|side| side.as_ref().map(pretty));
    let from = match (&before, &after) {
        (Some(before), Some(after)) => window(before, after, LONGEST),
        _ => 0,
    };
    html! { td { (value(before.as_deref(), from)) } td { (value(after.as_deref(), from)) } }
}

fn value(text: Option<&str>, from: usize) -> Markup {
    let Some(text) = text else { return html! { i { "absent" } } };
    let length = text.chars().count();
    if length <= LONGEST {
        return html! { pre { (clean(text)) } };
    }
    let shown: String = text.chars().skip(from).take(LONGEST).collect();
    html! {
        pre { @if from > 0 { "…" } (clean(&shown)) @if from + LONGEST < length { "…" } }
        details { summary { span class="small" { "all " (length) " characters" } } pre { (clean(text)) } }
    }
}

fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            serde_json::to_string_pretty(value).unwrap_or_default()
        }
    }
}

#[cfg(test)]
mod tests;
