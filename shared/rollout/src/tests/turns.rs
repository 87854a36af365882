//! Which groups of pools are observed when, and which controllers get commands.

use serde_json::{Value, json};

use super::*;
use crate::fleet::GroupView;
use slipway_core::node::{Command, Verb};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn pool(number: usize) -> String {
    format!("c-pool-{number:02}")
}

/// A cluster with this number of pools.
fn of_pools(count: usize) -> Rollout {
    Rollout {
        deployed: (0..count).map(|number| (pool(number), "t".to_owned())).collect(),
        ..Rollout::new("c")
    }
}

/// The same during a rollout.
fn rolling(count: usize) -> Rollout {
    let active = json!({
        "plan": "p", "specVersion": "v1", "target": "t", "startedAt": at(0), "changeSet": "s", "steps": [],
        "nodesByHand": 0, "stacksByHand": [],
    });
    let active: Active = serde_json::from_value(active).unwrap();
    Rollout { activity: Activity::RollingOut(Box::new(active)), ..of_pools(count) }
}

const DAY: i64 = 86_400;

#[test]
fn p6_a_daily_look_comes_to_each_pool_in_its_turn_fifty_a_day() {
    for (second, first) in [(0, 0), (DAY - 1, 0), (DAY, 50), (2 * DAY - 1, 50), (2 * DAY, 40), (3 * DAY, 30)]
    {
        let found = of_pools(60).groups_to_observe(at(second));
        let expected: Vec<String> = (0..50).map(|more| pool((first + more) % 60)).collect();
        assert_eq!(found, expected, "{second}");
    }
    assert_eq!(of_pools(2).groups_to_observe(at(DAY)).len(), 2, "each once");
    assert_eq!(of_pools(0).groups_to_observe(at(DAY)), [""; 0]);
}

#[test]
fn p6_while_something_is_rolled_out_each_pool_has_its_turn_five_a_minute() {
    for (second, first) in [(0, 0), (59, 0), (60, 5), (120, 10), (180, 3)] {
        let found = to_observe(&rolling(12), None, at(second)).groups;
        let expected: BTreeSet<String> = (0..5).map(|more| pool((first + more) % 12)).collect();
        assert_eq!(found, expected, "{second}");
    }
    assert_eq!(to_observe(&rolling(2), None, at(60)).groups.len(), 2);
}

fn group(name: &str, machines: &[&str]) -> (String, Option<GroupView>) {
    let machine =
        json!({"zone": "a", "lifecycle": "inService", "healthy": true, "weight": 1, "template": null});
    let machines: BTreeMap<&str, &Value> = machines.iter().map(|id| (*id, &machine)).collect();
    let view = json!({
        "name": name, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/", "desired": 1, "min": 1, "max": 2, "template": null, "machines": machines,
        "tags": {"slipway:cluster": "c"}, "targetGroups": [],
    });
    (name.to_owned(), Some(serde_json::from_value(view).unwrap()))
}

#[test]
fn p6_a_worker_is_drained_by_the_controller_that_has_least_to_do() {
    for (busy, free) in [("i-cp1", "i-cp2"), ("i-cp2", "i-cp1")] {
        let verb = Verb::Drain { node: "i-1".to_owned(), for_s: 600, force_after_s: None };
        let command = Command { token: "1".to_owned(), instance: busy.to_owned(), verb };
        let sent = json!({"role": "controller", "at": at(0), "command": command});
        let departure = |drain: Value| -> Departure {
            let state = json!({"drain": {"drain": drain}});
            let one = json!({"role": "pool-00", "group": "c-pool-00", "cause": {"rollout": "replaced"}, "state": state, "since": at(0)});
            serde_json::from_value(one).unwrap()
        };
        let mut state = rolling(1);
        state.departures.insert("i-1".to_owned(), departure(json!({"sent": sent})));
        state.departures.insert("i-2".to_owned(), departure(json!({})));
        // Something is still to be done.
        let step = json!({"stack": "c-network", "kind": "network", "templateKey": "k", "tags": {}, "mayReplace": [], "state": "executing"});
        state.active_mut().unwrap().steps = vec![serde_json::from_value(step).unwrap()];
        let groups = [group("c-pool-00", &["i-1", "i-2"]), group("c-control-plane", &["i-cp1", "i-cp2"])];
        let decision = decide(&state, &Observed { groups: groups.into(), ..Observed::default() }, at(1));
        let mut sent = Vec::new();
        for effect in decision.effects {
            if let Effect::Send(command) = effect {
                sent.push(command.instance);
            }
        }
        assert_eq!(sent, [free]);
    }
}
