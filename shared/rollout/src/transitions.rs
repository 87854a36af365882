//! The transitions of the state machines: what each state is, what wakes it in addition to the tick, and where it leads.
//!
//! Debug builds, and so all tests and the simulator's trials, refuse transitions that are not in a table.

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

/// A row of a state machine's table: a state, and the transitions from it.
pub(crate) struct Transition {
    /// The name of the state, as `docs/states.md` shows it.
    pub(crate) from: &'static str,
    /// What the state means.
    pub(crate) meaning: &'static str,
    /// What wakes it, besides the tick.
    pub(crate) wakes: &'static [Wakes],
    /// The states that it leads to.
    pub(crate) to: &'static [&'static str],
}

impl Transition {
    /// The work on nodes is complete.
    pub(crate) const DONE: Self = Self::new("done", "nothing is left to do", &[], &[]);
    /// The work on nodes that has failed.
    pub(crate) const FAILED: Self = Self::new("failed", "it failed: the rollout ends", &[], &[]);

    pub(crate) const fn new(
        from: &'static str,
        meaning: &'static str,
        wakes: &'static [Wakes],
        to: &'static [&'static str],
    ) -> Self {
        Self { from, meaning, wakes, to }
    }
}

/// Whether `table` leads from one state to the other.
pub(crate) fn leads(table: &[Transition], from: &str, to: &str) -> bool {
    from == to || table.iter().any(|row| row.from == from && row.to.contains(&to))
}

/// What a cluster does.
pub(crate) const ACTIVITY: &[Transition] = &[
    Transition::new(
        "idle",
        "no rollout and no destruction is open",
        &[Wakes::Person],
        &["rollingOut", "destroying"],
    ),
    Transition::new("rollingOut", "a rollout is open", &[Wakes::Person], &["idle", "endingRollout"]),
    Transition::new(
        "endingRollout",
        "the rollout is ending, and the destruction of the cluster follows",
        &[Wakes::Stack],
        &["destroying"],
    ),
    Transition::new(
        "destroying",
        "it is being destroyed, or its destruction has stopped half-way",
        &[Wakes::Stack, Wakes::Command, Wakes::Person],
        &["destroyed", "destructionAborted", "idle"],
    ),
    Transition::new(
        "destructionAborted",
        "its destruction was aborted half-way",
        &[Wakes::Person],
        &["rollingOut", "destroying"],
    ),
    Transition::new("destroyed", "it was destroyed", &[Wakes::Person], &["rollingOut", "destroying", "idle"]),
];

/// What a stack's step does.
pub(crate) const STACK: &[Transition] = &[
    Transition::new(
        "waiting",
        "it waits for its turn, or for the deletion of an earlier failed creation",
        &[Wakes::Stack],
        &["changeSet", "executing", "done", "failed"],
    ),
    Transition::new(
        "changeSet",
        "CloudFormation creates its change set",
        &[],
        &["waiting", "executing", "done", "failed"],
    ),
    Transition::new(
        "executing",
        "CloudFormation executes the change set",
        &[Wakes::Stack],
        &["changeSet", "waiting", "done", "failed"],
    ),
    Transition::new("done", "the stack is as the plan says", &[], &[]),
    Transition::new("failed", "it failed: the rollout ends", &[], &[]),
];

/// The states of a stack that is being deleted.
pub(crate) const STACK_DELETION: &[Transition] = &[
    Transition::new(
        "stands",
        "it exists, or it was not observed yet",
        &[Wakes::Stack, Wakes::Command],
        &["deleting", "gone", "notOurs", "failed"],
    ),
    Transition::new(
        "deleting",
        "CloudFormation deletes it",
        &[Wakes::Stack],
        &["stands", "gone", "notOurs", "failed"],
    ),
    Transition::new("gone", "it is deleted", &[], &[]),
    Transition::new(
        "notOurs",
        "it belongs to somebody else, and is left alone",
        &[Wakes::Person],
        &["stands"],
    ),
    Transition::new(
        "failed",
        "it could not be deleted; a person deletes it, or gives the order again",
        &[Wakes::Person],
        &["stands", "gone", "notOurs"],
    ),
];

/// The states of the last snapshot of a destruction.
pub(crate) const LAST_SNAPSHOT: &[Transition] = &[
    Transition::new(
        "first",
        "a snapshot is taken before anything is deleted: members say which one leads, and that one takes it",
        &[Wakes::Command],
        &["taken", "failed", "second", "kept", "declined", "needless"],
    ),
    Transition::new(
        "taken",
        "the first one is taken, and stacks are deleted; the second one follows when no API server is left",
        &[Wakes::Stack, Wakes::Person],
        &["first", "second", "kept"],
    ),
    Transition::new(
        "second",
        "no API server is left: the last snapshot is taken before etcd is deleted",
        &[Wakes::Command],
        &["complete", "failed", "first", "kept", "declined", "needless"],
    ),
    Transition::new(
        "failed",
        "it cannot be taken: nothing is deleted until another order is given",
        &[Wakes::Person],
        &["first", "second", "kept", "declined"],
    ),
    Transition::new("complete", "it has every write, and etcd may be deleted", &[], &["first"]),
    Transition::new(
        "kept",
        "a person ordered to continue without a second snapshot",
        &[Wakes::Person],
        &["first", "second"],
    ),
    Transition::new(
        "declined",
        "a person ordered to continue without any snapshot",
        &[Wakes::Person],
        &["first", "second"],
    ),
    Transition::new("needless", "there never was an etcd", &[Wakes::Person], &["first", "second"]),
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
