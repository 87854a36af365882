//! The age of the answers behind a decision to take down, remove or restart a member or a controller (P12): each test that runs one of
//! these clusters checks all decisions with this module.

use super::*;
use slipway_core::node::Verb;

/// When the machines that stay were last asked about their health.
#[derive(Debug, Default)]
pub(super) struct LastAsks {
    members: Option<Timestamp>,
    controllers: Option<Timestamp>,
    /// When a snapshot was last requested.
    pub(super) snapshot: Option<Timestamp>,
    /// How many effects were checked.
    pub(super) held: usize,
}

impl LastAsks {
    /// For the machine or group with that name, which evidence about the others is needed, and when they were asked; `None` for a worker.
    fn needed_for(&self, name: &str) -> Option<(Seen, Option<Timestamp>)> {
        if name.contains("etcd") {
            Some((Seen::Members, self.members))
        } else {
            name.contains("control").then_some((Seen::Controllers, self.controllers))
        }
    }

    /// Compares a decision with the time of the last queries; `expired`: certificates have expired, so that a refresh does not wait for
    /// others.
    pub(super) fn hold(&mut self, decision: &Decision, expired: bool) {
        for Pending { effect, evidence, .. } in &decision.next.outbox {
            let found = match effect {
                Effect::Terminate { group, .. } => self.needed_for(group),
                Effect::Send(command) => match &command.verb {
                    Verb::EtcdRemove { .. } => Some((Seen::Members, self.members)),
                    // A machine that is not restarted stays healthy all the time.
                    Verb::Refresh { restart, .. } if *restart && !expired => {
                        self.needed_for(&command.instance)
                    }
                    Verb::Refresh { .. }
                    | Verb::Status
                    | Verb::Logs { .. }
                    | Verb::Serves { .. }
                    | Verb::EtcdHealth
                    | Verb::EtcdMoveLeader
                    | Verb::EtcdSnapshot
                    | Verb::EtcdRetire
                    | Verb::EtcdRestore { .. }
                    | Verb::EtcdDefragment
                    | Verb::Drain { .. }
                    | Verb::Uncordon { .. } => None,
                },
                Effect::CreateChangeSet(_)
                | Effect::ExecuteChangeSet { .. }
                | Effect::DeleteChangeSet { .. }
                | Effect::DeleteStack { .. }
                | Effect::PointAddons(_)
                | Effect::Cancel(_)
                | Effect::SetDesired { .. }
                | Effect::ProlongTermination { .. }
                | Effect::CompleteTermination { .. }
                | Effect::ArmTick
                | Effect::DisarmTick
                | Effect::Publish(_) => None,
            };
            let Some((seen, sent)) = found else { continue };
            let (evidence, sent) = (evidence.expect("it may grow old"), sent.expect("the others are asked"));
            let latest = sent + jiff::SignedDuration::from_mins(3);
            assert_eq!(evidence.seen, seen, "{effect:?}");
            assert!(evidence.until <= latest, "{effect:?}: {evidence:?}, and they were asked at {sent}");
            if seen == Seen::Members && !expired {
                let taken = self.snapshot.expect("a snapshot is taken first");
                let latest = taken + jiff::SignedDuration::from_mins(15);
                assert!(evidence.until <= latest, "{effect:?}: {evidence:?}, and the snapshot is of {taken}");
            }
            self.held += 1;
        }
        for Pending { effect, decided_at, .. } in &decision.next.outbox {
            match effect {
                Effect::Send(command) if command.verb == Verb::EtcdHealth => self.members = Some(*decided_at),
                Effect::Send(command) if command.verb == Verb::Status => self.controllers = Some(*decided_at),
                Effect::Send(command) if command.verb == Verb::EtcdSnapshot => {
                    self.snapshot = Some(*decided_at);
                }
                Effect::Send(_)
                | Effect::CreateChangeSet(_)
                | Effect::ExecuteChangeSet { .. }
                | Effect::DeleteChangeSet { .. }
                | Effect::DeleteStack { .. }
                | Effect::PointAddons(_)
                | Effect::Cancel(_)
                | Effect::SetDesired { .. }
                | Effect::Terminate { .. }
                | Effect::ProlongTermination { .. }
                | Effect::CompleteTermination { .. }
                | Effect::ArmTick
                | Effect::DisarmTick
                | Effect::Publish(_) => {}
            }
        }
    }
}
