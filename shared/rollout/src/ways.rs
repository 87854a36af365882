//! The moves of the state machines: what each state is, what wakes it in addition to the tick, and where it leads.
//!
//! Debug builds, and so all tests and the simulator's trials, refuse moves that are not in a table.

/// What wakes a state earlier than the next tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// A command has ended.
    Command,
    /// Auto Scaling has launched or terminated a machine.
    Machine,
    /// CloudFormation has ended an operation on a stack.
    Stack,
    /// A person gives an order, or uploads a spec.
    Person,
}

impl Wakes {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Command => "the end of a command",
            Self::Machine => "a machine of its group that comes or goes",
            Self::Stack => "the end of an operation on its stack",
            Self::Person => "an order, or another spec",
        }
    }
}

/// A state of a state machine.
pub(crate) struct Way {
    /// The name of the state, as `docs/states.md` shows it.
    pub(crate) from: &'static str,
    /// What it is.
    pub(crate) is: &'static str,
    /// What wakes it, besides the tick.
    pub(crate) wakes: &'static [Wakes],
    /// The states that it leads to.
    pub(crate) to: &'static [&'static str],
}

impl Way {
    /// The work on nodes is complete.
    pub(crate) const DONE: Self = Self::new("done", "nothing is left to do", &[], &[]);
    /// The work on nodes that has failed.
    pub(crate) const FAILED: Self = Self::new("failed", "it failed: the rollout ends", &[], &[]);

    pub(crate) const fn new(
        from: &'static str,
        is: &'static str,
        wakes: &'static [Wakes],
        to: &'static [&'static str],
    ) -> Self {
        Self { from, is, wakes, to }
    }
}

/// Whether `ways` lead from one state to the other.
pub(crate) fn leads(ways: &[Way], from: &str, to: &str) -> bool {
    from == to || ways.iter().any(|way| way.from == from && way.to.contains(&to))
}

/// What a cluster does.
pub(crate) const DOING: &[Way] = &[
    Way::new("idle", "no rollout and no destruction is open", &[Wakes::Person], &["rolling", "going"]),
    Way::new("rolling", "a rollout is open", &[Wakes::Person], &["idle", "ending"]),
    Way::new(
        "ending",
        "the rollout is ending, and the destruction of the cluster follows",
        &[Wakes::Stack],
        &["going"],
    ),
    Way::new(
        "going",
        "it is being destroyed, or its destruction has stopped half-way",
        &[Wakes::Stack, Wakes::Command, Wakes::Person],
        &["gone", "calledOff", "idle"],
    ),
    Way::new("calledOff", "its destruction was aborted half-way", &[Wakes::Person], &["rolling", "going"]),
    Way::new("gone", "it was destroyed", &[Wakes::Person], &["rolling", "going", "idle"]),
];

/// What a stack's step does.
pub(crate) const STACK: &[Way] = &[
    Way::new(
        "waiting",
        "it waits for its turn, or for the deletion of an earlier failed creation",
        &[Wakes::Stack],
        &["changeSet", "executing", "done", "failed"],
    ),
    Way::new(
        "changeSet",
        "CloudFormation creates its change set",
        &[],
        &["waiting", "executing", "done", "failed"],
    ),
    Way::new(
        "executing",
        "CloudFormation executes the change set",
        &[Wakes::Stack],
        &["changeSet", "waiting", "done", "failed"],
    ),
    Way::new("done", "the stack is as the plan says", &[], &[]),
    Way::new("failed", "it failed: the rollout ends", &[], &[]),
];

/// The states of a stack that is being deleted.
pub(crate) const GOING: &[Way] = &[
    Way::new(
        "stands",
        "it exists, or it was not observed yet",
        &[Wakes::Stack, Wakes::Command],
        &["deleting", "gone", "notOurs", "failed"],
    ),
    Way::new(
        "deleting",
        "CloudFormation deletes it",
        &[Wakes::Stack],
        &["stands", "gone", "notOurs", "failed"],
    ),
    Way::new("gone", "it is deleted", &[], &[]),
    Way::new("notOurs", "it belongs to somebody else, and is left alone", &[Wakes::Person], &["stands"]),
    Way::new(
        "failed",
        "it could not be deleted; a person deletes it, or gives the order again",
        &[Wakes::Person],
        &["stands", "gone", "notOurs"],
    ),
];

/// The states of the last snapshot of a destruction.
pub(crate) const LAST_SNAPSHOT: &[Way] = &[
    Way::new(
        "first",
        "a snapshot is taken before anything is deleted: members say which one leads, and that one takes it",
        &[Wakes::Command],
        &["taken", "failed", "second", "kept", "declined", "needless"],
    ),
    Way::new(
        "taken",
        "the first one is taken, and stacks are deleted; the second one follows when no API server is left",
        &[Wakes::Stack, Wakes::Person],
        &["first", "second", "kept"],
    ),
    Way::new(
        "second",
        "no API server is left: the last snapshot is taken before etcd is deleted",
        &[Wakes::Command],
        &["complete", "failed", "first", "kept", "declined", "needless"],
    ),
    Way::new(
        "failed",
        "it cannot be taken: nothing is deleted until another order is given",
        &[Wakes::Person],
        &["first", "second", "kept", "declined"],
    ),
    Way::new("complete", "it has every write, and etcd may be deleted", &[], &["first"]),
    Way::new(
        "kept",
        "a person ordered to continue without a second snapshot",
        &[Wakes::Person],
        &["first", "second"],
    ),
    Way::new(
        "declined",
        "a person ordered to continue without any snapshot",
        &[Wakes::Person],
        &["first", "second"],
    ),
    Way::new("needless", "there never was an etcd", &[Wakes::Person], &["first", "second"]),
];

/// The name of a step's state in [`STACK`].
pub(crate) const fn step_name(state: &super::StepState) -> &'static str {
    match state {
        super::StepState::Waiting => "waiting",
        super::StepState::ChangeSet => "changeSet",
        super::StepState::Executing => "executing",
        super::StepState::Done => "done",
        super::StepState::Failed(_) => "failed",
    }
}
