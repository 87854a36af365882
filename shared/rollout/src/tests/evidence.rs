//! How old the answers may be on which a member or a controller goes, is taken out, or is started anew (P12): each test that drives one of
//! these clusters holds all that is decided against it.

use super::*;
use slipway_core::node::Verb;

/// When those who stay were asked last how they are.
#[derive(Debug, Default)]
pub(super) struct LastAsks {
    members: Option<Timestamp>,
    controllers: Option<Timestamp>,
    /// How many effects were held against that.
    pub(super) held: usize,
}

impl LastAsks {
    /// What was seen of those who stay when a machine of that name or that group goes, and when they were asked; `None`: it is a worker's.
    fn of(&self, name: &str) -> Option<(Seen, Option<Timestamp>)> {
        if name.contains("etcd") {
            Some((Seen::Members, self.members))
        } else {
            name.contains("control").then_some((Seen::Controllers, self.controllers))
        }
    }

    /// Holds what was decided against when the others were asked; `expired`: certificates have, so that a refresh waits for nobody.
    pub(super) fn hold(&mut self, decision: &Decision, expired: bool) {
        for Pending { effect, evidence, .. } in &decision.next.outbox {
            let found = match effect {
                Effect::Terminate { group, .. } => self.of(group),
                Effect::Send(command) => match &command.verb {
                    Verb::EtcdRemove { .. } => Some((Seen::Members, self.members)),
                    // What is not started anew is well all the while.
                    Verb::Refresh { restart, .. } if *restart && !expired => self.of(&command.instance),
                    Verb::Refresh { .. }
                    | Verb::Status
                    | Verb::EtcdHealth
                    | Verb::EtcdMoveLeader
                    | Verb::EtcdSnapshot
                    | Verb::EtcdRetire
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
            let Some((seen, asked)) = found else { continue };
            let (evidence, asked) =
                (evidence.expect("it may grow old"), asked.expect("the others are asked"));
            let latest = asked + jiff::SignedDuration::from_mins(3);
            assert_eq!(evidence.seen, seen, "{effect:?}");
            assert!(evidence.until <= latest, "{effect:?}: {evidence:?}, and they were asked at {asked}");
            self.held += 1;
        }
        for Pending { effect, decided_at, .. } in &decision.next.outbox {
            match effect {
                Effect::Send(command) if command.verb == Verb::EtcdHealth => self.members = Some(*decided_at),
                Effect::Send(command) if command.verb == Verb::Status => self.controllers = Some(*decided_at),
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
