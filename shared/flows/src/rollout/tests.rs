//! The flow around the decision, against ports of a few lines: what is stored, performed and told, in which order, and what a call that
//! fails leaves behind.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod looking;
mod orders;
mod performing;
mod plans;
mod shore;
mod waking;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use shore::{Shore, TEMPLATE_KEY, at};
use slipway_core::event::{Event, RolloutReport};
use slipway_core::node::{Command, Verb};
use slipway_core::status::Desired;
use slipway_ports::ErrorKind;
use slipway_rollout::{
    Active, Activity, Departure, Effect, EffectOutcome, Evidence, Given, Order, Pending, Rollout, Seen,
    StackStatus, after_order,
};

use super::received::is_meant;
use super::*;

/// A rollout that is open, with one stack in that state.
fn rolling(state: Value) -> Rollout {
    let step = json!({
        "stack": "c-network", "kind": "network", "templateKey": TEMPLATE_KEY, "tags": {"slipway:cluster": "c"}, "mayReplace": [], "state": state,
    });
    let active = json!({
        "plan": "p", "specVersion": "v1", "target": "t", "startedAt": at(0), "changeSet": "slipway-1-p",
        "steps": [step], "nodesByHand": 0, "stacksByHand": [], "nodes": {"steps": []},
    });
    let active: Active = serde_json::from_value(active).unwrap();
    Rollout {
        activity: Activity::RollingOut(Box::new(active)),
        generation: 1,
        effects_decided: 100,
        ..Rollout::new("c")
    }
}

/// A cluster that stands, of which nothing is rolled out.
fn idle() -> Rollout {
    let deployed = BTreeMap::from([("c-pool-a".to_owned(), "t".to_owned())]);
    Rollout { generation: 1, effects_decided: 100, deployed, ..Rollout::new("c") }
}

/// One whose worker is on its way out.
fn departing() -> Rollout {
    let departure = json!({
        "role": "pool-a", "group": "c-pool-a", "cause": "autoScaling", "state": {"drain": {"drain": {}}}, "since": at(0),
    });
    let departure: Departure = serde_json::from_value(departure).unwrap();
    Rollout { departures: BTreeMap::from([("i-1".to_owned(), departure)]), ..idle() }
}

fn pending(id: u64, effect: Effect, second: i64) -> Pending {
    let evidence = Some(Evidence::new(Seen::World, at(second)));
    Pending { id, effect, decided_at: at(second), evidence }
}

fn wants(group: &str, desired: u32) -> Effect {
    Effect::SetDesired { group: group.to_owned(), desired }
}

fn terminates(id: &str) -> Effect {
    Effect::Terminate { group: "c-pool-a".to_owned(), instance: id.to_owned(), then_desired: None }
}

fn completes(id: &str) -> Effect {
    Effect::CompleteTermination { group: "c-pool-a".to_owned(), instance: id.to_owned() }
}

fn prolongs(id: &str) -> Effect {
    Effect::ProlongTermination { group: "c-pool-a".to_owned(), instance: id.to_owned() }
}

fn executes(stack: &str) -> Effect {
    Effect::ExecuteChangeSet { stack: stack.to_owned(), name: "n".to_owned(), token: "t".to_owned() }
}

fn command(verb: Verb) -> Command {
    Command { token: "c/x/1/0".to_owned(), instance: "i-1".to_owned(), verb }
}

fn step_event() -> Effect {
    Effect::Publish(Event::RolloutStep(RolloutReport::new("c", "p", "it goes on".to_owned())))
}
