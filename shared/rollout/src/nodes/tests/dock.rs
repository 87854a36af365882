//! One node step and its observation, both written by hand, for tests that go from look to look.

use slipway_core::node::{
    Answer, CommandView, EtcdHealth, EtcdMemberHealth, FailureCode, SnapshotTaken, VerbFailure,
};

use super::*;
use crate::outbox::Pending;

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A state that was entered at that second.
pub(super) fn since(second: i64, state: Value) -> Value {
    json!({"open": {"state": state, "since": at(second)}})
}

/// A command to the machine with that number at that second; its token is the machine's name.
pub(super) fn asks(number: u32, verb: &Value, second: i64) -> Value {
    let command = json!({"token": format!("i-{number}"), "instance": format!("i-{number}"), "verb": verb});
    json!({"role": format!("etcd-{number}"), "command": command, "at": at(second)})
}

/// A round that asked all members about their health at that second.
pub(super) fn round(second: i64) -> Value {
    (0..3).map(|number| asks(number, &json!("etcdHealth"), second)).collect()
}

/// A machine in service with the old launch template, and one with the present template of its group.
pub(super) const OLD: (&str, &str) = ("inService", "1");
pub(super) const NEW: (&str, &str) = ("inService", "2");

/// A group whose launch template has version 2, and its machines, each with its lifecycle state and version.
pub(super) fn group(name: &str, machines: &[(&str, (&str, &str))]) -> GroupView {
    let machine = |(id, (lifecycle, version)): &(&str, (&str, &str))| {
        let template = json!({"id": "lt-1", "version": version});
        let one =
            json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": template});
        ((*id).to_owned(), one)
    };
    let machines: serde_json::Map<String, Value> = machines.iter().map(machine).collect();
    serde_json::from_value(json!({
        "name": name, "desired": 1, "min": 1, "max": 2, "template": {"id": "lt-1", "version": "2"},
        "machines": machines, "tags": {"slipway:cluster": "c"}, "machineArns": "arn:aws:ec2:eu-west-1:123456789012:instance/",
    }))
    .unwrap()
}

/// The answer of a healthy member with healthy other members.
pub(super) fn well(number: u32) -> EtcdHealth {
    let member = |number: u32| EtcdMemberHealth {
        name: format!("etcd-{number}"),
        reachable: true,
        raft_lag: Some(0),
        ..EtcdMemberHealth::default()
    };
    EtcdHealth {
        name: format!("etcd-{number}"),
        healthy: true,
        serving: true,
        cluster_id: Some("c".to_owned()),
        raft_lag: Some(0),
        members: (0..3).map(member).collect(),
        ..EtcdHealth::default()
    }
}

/// A step and its observation.
pub(super) struct Dock {
    pub(super) active: Active,
    pub(super) departures: BTreeMap<String, Departure>,
    pub(super) observed: Observed,
    /// Whether a newer spec waits.
    pub(super) newer: bool,
    /// The effects of the last look.
    pub(super) done: Vec<Pending>,
}

impl Dock {
    pub(super) fn with_step(step: NodeStep) -> Self {
        let active = json!({
            "plan": "p", "specVersion": "v1", "target": "t", "startedAt": NOW, "changeSet": "s", "steps": [],
            "nodesByHand": 0, "stacksByHand": [], "nodes": nodes_with(vec![step]),
        });
        Self {
            active: serde_json::from_value(active).unwrap(),
            departures: BTreeMap::new(),
            observed: Observed::default(),
            newer: false,
            done: Vec::new(),
        }
    }

    /// A step of etcd-0 in a cluster of three members, whose machines i-0 to i-2 are old. The members of [`round`] say that all are
    /// healthy.
    pub(super) fn of_etcd_0(task: Value) -> Self {
        let mut dock = Self::with_step(step("etcd-0", task));
        for number in 0..3 {
            let (name, machine) = (format!("c-etcd-{number}"), format!("i-{number}"));
            dock.active.nodes.members.insert(Role::Etcd(number), name.clone());
            dock.sees(&name, &[(&machine, OLD)]);
            dock.set_answer(&machine, well(number));
        }
        dock
    }

    /// A snapshot was begun at that second.
    pub(super) fn saved(mut self, second: i64) -> Self {
        self.active.nodes.snapshot_at = Some(at(second));
        self
    }

    /// The certificates of etcd-0 expired at time zero.
    pub(super) fn expired(mut self) -> Self {
        self.active.nodes.deadline = Deadline { ends: [(Role::Etcd(0), NOW)].into(), lead_s: 0 };
        self
    }

    /// Sets the machines of a group.
    pub(super) fn sees(&mut self, name: &str, machines: &[(&str, (&str, &str))]) {
        self.observed.groups.insert(name.to_owned(), Some(group(name, machines)));
    }

    /// Sets the answer of the command with that token.
    pub(super) fn set_answer(&mut self, token: &str, answer: impl Into<Answer>) {
        let view = CommandView::Answered(answer.into());
        self.observed.answers.insert(token.to_owned(), Some(view));
    }

    /// Makes the command with that token fail.
    pub(super) fn fails(&mut self, token: &str) {
        let view = CommandView::Failed(VerbFailure::transient(FailureCode::AwsDenied, "no", "look"));
        self.observed.answers.insert(token.to_owned(), Some(view));
    }

    /// The token of the only command that it waits for.
    pub(super) fn token(&self) -> String {
        let [sent] = self.step().commands() else { panic!("{:?}", self.step()) };
        sent.command.token.clone()
    }

    /// The snapshot that it waits for was taken.
    pub(super) fn takes_snapshot(&mut self) {
        let (token, taken) = (self.token(), json!({"time": "t", "key": "clusters/c/etcd-snapshots/t"}));
        self.set_answer(&token, serde_json::from_value::<SnapshotTaken>(taken).unwrap());
    }

    pub(super) fn step(&self) -> &NodeStep {
        &self.active.nodes.steps[0]
    }

    /// Its task in its stored form.
    pub(super) fn task(&self) -> Value {
        let task = serde_json::to_value(&self.step().task).unwrap();
        task.as_object().unwrap().values().next().unwrap().clone()
    }

    /// Looks at it at that second. Returns its state and what it waits for.
    pub(super) fn advance_at(&mut self, second: i64) -> (Place, Option<Waits>) {
        let (active, departures) = (&mut self.active, &mut self.departures);
        let (effects, waits) =
            advance(active, departures, "c", &self.observed, at(second), self.newer, false);
        let mut rollout = Rollout::new("c");
        rollout.enqueue(effects);
        self.done = rollout.outbox;
        (self.step().place(), waits.get(&self.step().role).cloned())
    }

    /// The effects of the last look.
    pub(super) fn effects(&self) -> Vec<Effect> {
        self.done.iter().map(|pending| pending.effect.clone()).collect()
    }

    /// The commands of the last look by machine.
    pub(super) fn commands_sent(&self) -> Vec<(String, Verb)> {
        let mut sent = Vec::new();
        for effect in self.effects() {
            if let Effect::Send(command) = effect {
                sent.push((command.instance, command.verb));
            }
        }
        sent
    }
}

/// Queries about the health of all members.
pub(super) fn health_commands() -> Vec<(String, Verb)> {
    (0..3).map(|number| (format!("i-{number}"), Verb::EtcdHealth)).collect()
}

/// The command for a snapshot on one machine.
pub(super) fn asks_snapshot(machine: &str) -> Vec<(String, Verb)> {
    vec![(machine.to_owned(), Verb::EtcdSnapshot)]
}
