//! How a plan is rolled out: in which order, at what pace, and how long that usually takes.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use slipway_core::cluster::{Approval, CountOrPercent, Day, MaintenanceWindow};
use slipway_core::deadline::{USUAL_STACKS, USUALLY_REFRESHED, USUALLY_REPLACED};
use slipway_core::role::Role;
use slipway_core::words::count;

use super::{NodeAction, NodePlan, Plan};

impl Plan {
    /// The roles in the order in which their nodes are worked on: etcd, controllers, pools, and last the pools that are removed. A pool comes
    /// after those that it waits for.
    #[must_use]
    pub fn in_order(&self) -> Vec<&NodePlan> {
        let stage = |node: &NodePlan| match (&node.role, node.action) {
            (Role::Etcd(_), _) => 0,
            (Role::Controller, _) => 1,
            (
                Role::Pool(_) | Role::Admin,
                NodeAction::Create | NodeAction::Replace | NodeAction::Refresh | NodeAction::Untouched,
            ) => 2,
            (Role::Pool(_) | Role::Admin, NodeAction::Remove | NodeAction::Orphaned) => 3,
        };
        let mut rest: Vec<&NodePlan> = self.nodes.iter().collect();
        // Of members that leave, the newest goes first.
        rest.sort_by_key(|node| {
            let newest = node.role.member().filter(|_| node.action == NodeAction::Remove);
            (stage(node), newest.map(std::cmp::Reverse), &node.role)
        });
        let mut ordered: Vec<&NodePlan> = Vec::new();
        while !rest.is_empty() {
            let is_free = |node: &&NodePlan| {
                let before = self.waits_for(node);
                !rest.iter().any(|other| before.contains(&&other.role))
            };
            // Pools never wait for each other in a circle; if they did, the first would be chosen.
            let at = rest.iter().position(is_free).unwrap_or_default();
            ordered.push(rest.remove(at));
        }
        ordered
    }

    /// How it is rolled out, one line each. Empty: no machine is replaced or refreshed.
    #[must_use]
    pub fn conduct(&self) -> Vec<String> {
        let rolled: Vec<&NodePlan> = self.in_order().into_iter().filter(|node| is_rolled(node)).collect();
        if rolled.is_empty() {
            return Vec::new();
        }
        let names: Vec<String> = rolled.iter().map(|node| node.role.to_string()).collect();
        let mut lines = vec![format!("order: {}{}", names.join(", "), self.at_once(&rolled))];
        let any = |which: fn(&Role) -> bool| rolled.iter().any(|node| which(&node.role));
        if any(|role| role.member().is_some()) {
            lines.push("etcd: one member at a time, while all others are healthy".to_owned());
        }
        if any(|role| *role == Role::Controller) {
            lines.push("controllers: one at a time; its successor comes first if it is replaced".to_owned());
        }
        for node in &rolled {
            if let Role::Pool(name) = &node.role {
                lines.push(format!("{}: {}", node.role, self.pace_in_words(name, node)));
            }
        }
        lines.push(match self.policy.failure_budget {
            0 => "it stops at the first machine whose replacement fails".to_owned(),
            budget => format!("it stops when more than {} failed", count(budget, "replacement")),
        });
        if !self.policy.windows.is_empty() {
            let windows: Vec<String> = self.policy.windows.iter().map(window).collect();
            lines
                .push(format!("machines are taken down only in these windows (UTC): {}", windows.join("; ")));
        }
        if self.policy.approval == Approval::Manual {
            lines.push("it begins when somebody has approved it".to_owned());
        }
        lines.push(format!("it usually takes {}", self.usual_in_words(&rolled)));
        lines
    }

    /// Says if pools do not wait for each other.
    fn at_once(&self, rolled: &[&NodePlan]) -> &'static str {
        let free = |node: &&&NodePlan| matches!(node.role, Role::Pool(_)) && self.waits_for(node).is_empty();
        if rolled.iter().filter(free).count() > 1 {
            "; pools that wait for no other one are rolled at the same time"
        } else {
            ""
        }
    }

    fn pace_in_words(&self, pool: &str, node: &NodePlan) -> String {
        let pace = self.policy.pace(pool);
        let number = |value: CountOrPercent| match value {
            CountOrPercent::Count(count) => count.to_string(),
            CountOrPercent::Percent(share) => format!("{share} %"),
        };
        let mut words = format!("at most {} missing at a time", number(pace.max_unavailable));
        if !node.weighted && pace.max_surge(100) > 0 {
            words.push_str(&format!(", up to {} more first (surge)", number(pace.surge)));
        }
        words.push_str(match node.action {
            NodeAction::Replace => "; the first is a canary: others follow when it serves",
            NodeAction::Create
            | NodeAction::Refresh
            | NodeAction::Untouched
            | NodeAction::Remove
            | NodeAction::Orphaned => "",
        });
        match self.policy.force_after_s(pool).filter(|_| node.action == NodeAction::Replace) {
            Some(seconds) => format!("{words}; drains are forced after {} min", seconds / 60),
            None => words,
        }
    }

    /// How long it usually takes for the least and for the most machines that there may be.
    fn usual_in_words(&self, rolled: &[&NodePlan]) -> String {
        let [least, most] = [false, true].map(|most| self.usual(rolled, most));
        let long = if least == most {
            format!("about {}", duration(least))
        } else {
            format!("{} to {}, depending on how many machines there are", duration(least), duration(most))
        };
        let windows = if self.policy.windows.is_empty() { "" } else { ", and windows" };
        format!("{long}; slow drains{windows} come on top")
    }

    fn usual(&self, rolled: &[&NodePlan], most: bool) -> SignedDuration {
        let mut one_by_one = SignedDuration::ZERO;
        // When each pool is through, from the beginning of the first.
        let mut pools: BTreeMap<&Role, SignedDuration> = BTreeMap::new();
        for node in rolled {
            let machines = if most { node.machines().most } else { node.machines().least };
            let each = match node.action {
                NodeAction::Replace => USUALLY_REPLACED,
                NodeAction::Refresh => USUALLY_REFRESHED,
                NodeAction::Create | NodeAction::Untouched | NodeAction::Remove | NodeAction::Orphaned => {
                    continue;
                }
            };
            let Role::Pool(name) = &node.role else {
                one_by_one += each.saturating_mul(i32::try_from(machines).unwrap_or(i32::MAX));
                continue;
            };
            let pace = self.policy.pace(name);
            let surge = if node.weighted { 0 } else { pace.max_surge(machines) };
            let at_a_time = (pace.max_missing(machines) + surge).max(1);
            // The canary goes alone.
            let rounds = if machines > 1 { 1 + (machines - 1).div_ceil(at_a_time) } else { machines };
            let own = each.saturating_mul(i32::try_from(rounds).unwrap_or(i32::MAX));
            let begins = self.waits_for(node).iter().filter_map(|role| pools.get(role)).max().copied();
            pools.insert(&node.role, begins.unwrap_or_default().saturating_add(own));
        }
        USUAL_STACKS + one_by_one + pools.values().max().copied().unwrap_or_default()
    }
}

const fn is_rolled(node: &NodePlan) -> bool {
    matches!(node.action, NodeAction::Replace | NodeAction::Refresh)
}

fn window(window: &MaintenanceWindow) -> String {
    let day = |day: &Day| match day {
        Day::Mon => "Mon",
        Day::Tue => "Tue",
        Day::Wed => "Wed",
        Day::Thu => "Thu",
        Day::Fri => "Fri",
        Day::Sat => "Sat",
        Day::Sun => "Sun",
    };
    let days: Vec<&str> = window.days.iter().map(day).collect();
    let days = if days.is_empty() { "every day".to_owned() } else { days.join(", ") };
    let (hour, minute) = (window.start_minute / 60, window.start_minute % 60);
    format!("{days} from {hour:02}:{minute:02} for {} min", window.length_min)
}

/// `40 min`, `2 h 20 min`.
fn duration(length: SignedDuration) -> String {
    let minutes = length.as_mins();
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}
