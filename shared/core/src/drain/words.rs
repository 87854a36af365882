//! The reasons for which a pod is waited for, in words.

use std::collections::BTreeSet;

use jiff::SignedDuration;

use super::rules::{Rule, Unmet};
use super::{ObjectName, Observed, Pod};
use crate::words::moment;

/// How many pods of the budget are named.
const SIBLINGS_NAMED: usize = 3;

/// A duration for people: `6h`, `1h 30m`, `45s`.
#[must_use]
pub fn lasting(long: SignedDuration) -> String {
    let seconds = long.as_secs().max(0);
    let parts = [(seconds / 3600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let words: Vec<_> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if words.is_empty() { "0s".to_owned() } else { words.join(" ") }
}

pub(super) fn budgets(names: &BTreeSet<ObjectName>) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// Which budgets forbid the eviction, with the healthy pods of the first.
pub(super) fn budget(observed: &Observed, pod: &Pod) -> String {
    if pod.budgets.is_empty() {
        return "a disruption budget allows no eviction now".to_owned();
    }
    let counts = pod.budgets.iter().filter_map(|name| observed.budgets.get(name)).map(|budget| {
        let healthy = budget.pods.iter().filter(|pod| pod.healthy).count();
        format!(": {healthy} of its {} pods are healthy", budget.pods.len())
    });
    format!(
        "the disruption budget {} allows no eviction now{}",
        budgets(&pod.budgets),
        counts.take(1).collect::<String>()
    )
}

/// The rules that must hold before force may be used, and when each will.
pub(super) fn unmet(unmet: &[Unmet]) -> String {
    let mut siblings = 0;
    let mut parts = Vec::new();
    for Unmet { at, what } in unmet {
        let words = match what {
            Rule::Drain(long) => format!("the drain has lasted {}", lasting(*long)),
            Rule::PodAge(long) => format!("it is {} old", lasting(*long)),
            Rule::Healthy(name, long) => {
                siblings += 1;
                format!("{name} has been healthy for {}", lasting(*long))
            }
            Rule::Unhealthy(name, long) => {
                siblings += 1;
                format!("{name} has been unhealthy for {}", lasting(*long))
            }
            Rule::Interval(long) => {
                format!("no pod of the node has been deleted by force for {}", lasting(*long))
            }
        };
        let of_sibling = matches!(what, Rule::Healthy(..) | Rule::Unhealthy(..));
        if !of_sibling || siblings <= SIBLINGS_NAMED {
            parts.push(format!("{words} (at {})", moment(*at)));
        }
    }
    if siblings > SIBLINGS_NAMED {
        parts.push(format!(
            "{} more pods of the same disruption budget have been unchanged long enough",
            siblings - SIBLINGS_NAMED
        ));
    }
    format!("it may be deleted by force when all of these hold: {}", parts.join("; "))
}
