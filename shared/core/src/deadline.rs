//! Whether renewed certificates reach the nodes before the old ones expire (P7).
//!
//! [`Urgency`] is not stored. It is a function of when certificates expire, of how long the slowest roll takes, and of the clock, and
//! each decision computes it anew. `validate` uses the same figures to tell whether a spec leaves enough time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, Day, MaintenanceWindow, RenewalStrategy};
use crate::drain::lasting;
use crate::node::Verb;
use crate::role::Role;
use crate::words::moment;

/// How often certificates are scanned: once a day, within a time window of half an hour (`DailyScan` in `infra/template.yaml`).
pub const SCAN_EVERY: SignedDuration = SignedDuration::from_mins(24 * 60 + 30);

/// How long a rollout waits for one thing, such as a machine in service or a healthy etcd, before it fails.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(60);

/// How often the step of one machine is tried before the rollout fails.
pub const TRIES: u32 = 3;

/// The pauses between the tries. They cover a machine that was terminated outside of Auto Scaling: until the group's next health check,
/// some minutes later, it counts as in service but does not answer.
pub const BETWEEN_TRIES: [SignedDuration; TRIES as usize - 1] =
    [SignedDuration::from_mins(1), SignedDuration::from_mins(5)];

/// How long pods may block the drain of a controller. A controller has few pods, and their disruption budgets are those of the cluster's
/// own components.
pub const CONTROLLER_DRAIN: SignedDuration = SignedDuration::from_hours(4);

/// Allowed for the update of a stack's launch template, which usually takes a minute or two.
const STACK: SignedDuration = SignedDuration::from_mins(60);

/// How long CloudFormation waits for the machines of a group that it creates (`timeoutInMinutes` of the handlers in the resource schema of
/// `AWS::AutoScaling::AutoScalingGroup`).
const GROUP_STABILIZES: SignedDuration = SignedDuration::from_mins(360);

/// How long it usually takes to replace a machine: in the simulator it is about 16 minutes.
pub const USUALLY_REPLACED: SignedDuration = SignedDuration::from_mins(20);
/// How long it usually takes to refresh a machine in place.
pub const USUALLY_REFRESHED: SignedDuration = SignedDuration::from_mins(5);
/// How long the updates of stacks usually take.
pub const USUAL_STACKS: SignedDuration = SignedDuration::from_mins(10);

/// The machines that receive renewed certificates, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roll {
    /// Members of etcd.
    pub members: u32,
    /// Controllers.
    pub controllers: u32,
    /// Whether they are replaced, or refreshed in place.
    pub strategy: RenewalStrategy,
}

impl Roll {
    /// The roll of a renewal in `cluster`. `None`: the cluster renews nothing automatically.
    #[must_use]
    pub fn for_cluster(cluster: &Cluster) -> Option<Self> {
        let policy = cluster.certificates.rollout_before_expiry?;
        Some(Self {
            members: u32::try_from(cluster.etcd.members.len()).unwrap_or(u32::MAX),
            controllers: cluster.controller.count,
            strategy: policy.strategy,
        })
    }

    /// How many machines are processed, one after the other.
    #[must_use]
    pub const fn machines(self) -> u32 {
        self.members.saturating_add(self.controllers)
    }

    /// How long one machine usually takes.
    #[must_use]
    pub const fn usually_each(self) -> SignedDuration {
        match self.strategy {
            RenewalStrategy::Rollout => USUALLY_REPLACED,
            RenewalStrategy::Refresh => USUALLY_REFRESHED,
        }
    }

    /// How long the whole roll usually takes if nothing delays it.
    #[must_use]
    pub fn usual(self) -> SignedDuration {
        USUAL_STACKS + times(self.usually_each(), self.machines())
    }

    /// The longest that a roll takes without failing: the sum of all timeouts.
    #[must_use]
    pub fn longest(self) -> SignedDuration {
        let pauses = BETWEEN_TRIES.into_iter().sum::<SignedDuration>();
        let tries = |verb: Verb| times(verb.answers_within(), TRIES) + pauses;
        let refresh = tries(Verb::Refresh { credentials: String::new(), restart: true });
        let drain = Verb::Drain { node: String::new(), for_s: 0, force_after_s: None };
        // A controller: the others healthy, the surplus machine in service, its pods evicted (plus the drain command that is running when
        // the time is over), the machine terminated, and all healthy.
        let replaced_controller = times(PATIENCE, 4) + CONTROLLER_DRAIN + drain.answers_within();
        let (member, controller) = match self.strategy {
            // A member: the group in service, a snapshot, the others healthy, leadership moved; then its successor in service and all
            // healthy.
            RenewalStrategy::Rollout => (
                times(PATIENCE, 4) + tries(Verb::EtcdSnapshot) + tries(Verb::EtcdMoveLeader),
                replaced_controller,
            ),
            RenewalStrategy::Refresh => {
                (times(PATIENCE, 3) + tries(Verb::EtcdSnapshot) + refresh, times(PATIENCE, 3) + refresh)
            }
        };
        // The rollout that is open when the renewal is planned first ends what it has begun: a stack, or one machine. Drains of workers are
        // not waited for.
        let before = GROUP_STABILIZES.max(replaced_controller);
        before + times(STACK, 2) + times(member, self.members) + times(controller, self.controllers)
    }

    /// How long before the first certificate expires neither maintenance windows nor approval delay its renewal: `emergencyDays`, and at
    /// least as long as the slowest roll takes that begins at the next scan.
    #[must_use]
    pub fn lead(self, emergency_days: u32) -> SignedDuration {
        days(emergency_days).max(self.longest() + SCAN_EVERY)
    }
}

/// [`Roll::lead`] of `cluster`. `None`: the cluster renews nothing automatically.
#[must_use]
pub fn lead(cluster: &Cluster) -> Option<SignedDuration> {
    let policy = cluster.certificates.rollout_before_expiry?;
    Some(Roll::for_cluster(cluster)?.lead(policy.emergency_days))
}

/// Days of 24 hours.
#[must_use]
pub fn days(days: u32) -> SignedDuration {
    SignedDuration::from_hours(24 * i64::from(days))
}

/// A duration for people: `3 days 2h`, `26h`, `40m`.
#[must_use]
pub fn in_days(long: SignedDuration) -> String {
    let minutes = long.as_mins();
    if minutes < 48 * 60 {
        return lasting(SignedDuration::from_mins(minutes));
    }
    match minutes / 60 % 24 {
        0 => format!("{} days", minutes / 1_440),
        hours => format!("{} days {hours}h", minutes / 1_440),
    }
}

fn times(one: SignedDuration, count: u32) -> SignedDuration {
    SignedDuration::from_secs(one.as_secs().saturating_mul(i64::from(count)))
}

const WEEK_MIN: usize = 7 * 24 * 60;

/// How long `steps` steps take if each lasts `each` and begins only while one of `windows` is open, starting at the worst moment of the
/// week. `None`: no window ever opens.
#[must_use]
pub fn slowest_within(
    windows: &[MaintenanceWindow],
    steps: u32,
    each: SignedDuration,
) -> Option<SignedDuration> {
    let each_min = usize::try_from(each.as_mins()).unwrap_or_default().max(1);
    let waits = waits(windows)?;
    let ends = |from: usize| {
        (0..steps).fold(from, |at, _| {
            let waits = waits.get(at % WEEK_MIN).copied().unwrap_or_default();
            at.saturating_add(waits).saturating_add(each_min)
        })
    };
    let slowest = (0..WEEK_MIN).map(|from| ends(from) - from).max()?;
    let slowest = i64::try_from(slowest).unwrap_or(i64::MAX);
    Some(SignedDuration::from_mins(slowest.min(SignedDuration::MAX.as_mins())))
}

/// For each minute of the week, from Monday on: the number of minutes until a window is open.
fn waits(windows: &[MaintenanceWindow]) -> Option<Vec<usize>> {
    let mut open = vec![windows.is_empty(); WEEK_MIN];
    for window in windows {
        let days = Day::ALL.into_iter().enumerate();
        for (day, _) in days.filter(|(_, day)| window.opens_on(*day)) {
            let opens = day * 24 * 60 + usize::from(window.start_minute);
            for minute in opens..opens + usize::from(window.length_min) {
                if let Some(open) = open.get_mut(minute % WEEK_MIN) {
                    *open = true;
                }
            }
        }
    }
    if !open.contains(&true) {
        return None;
    }
    let (mut waits, mut wait) = (vec![0; WEEK_MIN], 0);
    // Twice around the week, so that the minutes at its end see the windows at its start.
    for at in (0..WEEK_MIN).rev().chain((0..WEEK_MIN).rev()) {
        wait = if open.get(at).copied().unwrap_or_default() { 0 } else { wait + 1 };
        if let Some(one) = waits.get_mut(at) {
            *one = wait;
        }
    }
    Some(waits)
}

/// How soon the certificates in use expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Nothing expires soon.
    None,
    /// They expire so soon that neither a maintenance window nor an approval delays the renewal. They are still valid, so the health of
    /// other nodes counts as usual (P4, P5).
    Due {
        /// When they expire.
        ends: Timestamp,
    },
    /// They have expired. That other nodes do not answer is what the renewal mends, so it does not wait for their health.
    Expired {
        /// When they expired.
        ends: Timestamp,
    },
}

impl Urgency {
    /// The urgency of certificates that expire at `ends`, if any do, and that must be replaced from `lead` before.
    #[must_use]
    pub fn new(ends: Option<Timestamp>, lead: SignedDuration, now: Timestamp) -> Self {
        match ends {
            Some(ends) if ends <= now => Self::Expired { ends },
            Some(ends) if ends.duration_since(now) <= lead => Self::Due { ends },
            Some(_) | None => Self::None,
        }
    }

    /// Whether the renewal ignores maintenance windows and approval.
    #[must_use]
    pub const fn overrides(self) -> bool {
        match self {
            Self::None => false,
            Self::Due { .. } | Self::Expired { .. } => true,
        }
    }

    /// Whether they have expired.
    #[must_use]
    pub const fn has_expired(self) -> bool {
        match self {
            Self::None | Self::Due { .. } => false,
            Self::Expired { .. } => true,
        }
    }

    /// When they expire. `None`: nothing is urgent.
    #[must_use]
    pub const fn ends(self) -> Option<Timestamp> {
        match self {
            Self::None => None,
            Self::Due { ends } | Self::Expired { ends } => Some(ends),
        }
    }

    /// A sentence that says so for people. `None`: nothing is urgent.
    #[must_use]
    pub fn words(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Due { ends } => Some(format!("certificates in use expire at {}", moment(ends))),
            Self::Expired { ends } => Some(format!("certificates in use expired at {}", moment(ends))),
        }
    }
}

/// When the certificates in use on each role's machines expire, if a plan brings newer ones.
///
/// It is looked up by the digest of the bundle that the machines were made with or were refreshed to, in the inventory that only the
/// functions write. What a node reports about itself does not count: otherwise whoever controls a node could override windows and
/// approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Deadline {
    /// When the first certificate of each role expires.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ends: BTreeMap<Role, Timestamp>,
    /// [`Roll::lead`], in seconds.
    #[serde(default)]
    pub lead_s: i64,
}

impl Deadline {
    /// Whether no role's certificates expire.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.ends.is_empty()
    }

    /// The first expiry among the roles for which `counts` holds.
    #[must_use]
    pub fn first(&self, counts: impl Fn(&Role) -> bool) -> Option<Timestamp> {
        self.ends.iter().filter(|(role, _)| counts(role)).map(|(_, ends)| *ends).min()
    }

    /// How urgent it is for the roles for which `counts` holds.
    #[must_use]
    pub fn urgency(&self, counts: impl Fn(&Role) -> bool, now: Timestamp) -> Urgency {
        Urgency::new(self.first(counts), SignedDuration::from_secs(self.lead_s), now)
    }

    /// From when on neither windows nor approval delay the renewal. `None`: nothing expires.
    #[must_use]
    pub fn urgent_from(&self, counts: impl Fn(&Role) -> bool) -> Option<Timestamp> {
        let ends = self.first(counts)?;
        Some(ends.saturating_sub(SignedDuration::from_secs(self.lead_s)).unwrap_or(Timestamp::MIN))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn window(days: &[Day], start_minute: u16, length_min: u16) -> MaintenanceWindow {
        MaintenanceWindow { days: days.to_vec(), start_minute, length_min }
    }

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    #[test]
    fn p7_the_override_starts_no_later_than_the_slowest_roll_and_a_scan_before() {
        for strategy in [RenewalStrategy::Rollout, RenewalStrategy::Refresh] {
            for (members, controllers) in [(1, 1), (3, 1), (3, 3), (5, 5), (7, 9)] {
                let roll = Roll { members, controllers, strategy };
                for emergency_days in [0, 1, 3, 30] {
                    let lead = roll.lead(emergency_days);
                    assert!(lead >= roll.longest() + SCAN_EVERY && lead >= days(emergency_days), "{roll:?}");
                }
                assert!(roll.usual() * 5 < roll.longest(), "{roll:?}");
            }
        }
        let roll = Roll { members: 3, controllers: 3, strategy: RenewalStrategy::Rollout };
        assert_eq!(roll.lead(30), days(30));
    }

    #[test]
    fn urgency_follows_the_clock_and_only_what_has_ended_has_expired() {
        let ends: Timestamp = "2027-11-20T12:00:00Z".parse().unwrap();
        let lead = SignedDuration::from_hours(48);
        let at = |hours: i64| Urgency::new(Some(ends), lead, ends - SignedDuration::from_hours(hours));
        assert_eq!(at(49), Urgency::None);
        assert_eq!((at(48), at(1)), (Urgency::Due { ends }, Urgency::Due { ends }));
        assert_eq!((at(0), at(-1)), (Urgency::Expired { ends }, Urgency::Expired { ends }));
        assert_eq!(Urgency::new(None, lead, ends), Urgency::None);
        assert!(!at(49).overrides() && at(48).overrides() && !at(1).has_expired() && at(0).has_expired());
    }

    /// Computed by hand from the constants, in minutes: 34 for each of three tries of a snapshot or a refresh, 9 for moving leadership,
    /// four hours and 19 for a drain, 6 for the pauses between the tries of one kind of command, and 60 for each of two stack updates. First a
    /// controller that an open rollout replaces, which takes longer than the 360 of a group that does not come up.
    #[test]
    fn p7_the_longest_roll_is_the_sum_of_all_that_a_rollout_may_wait_for() {
        let longest = |strategy, members, controllers| Roll { members, controllers, strategy }.longest();
        let (member, controller) = (4 * 60 + 3 * 34 + 3 * 9 + 2 * 6, 4 * 60 + 4 * 60 + 19);
        let before = controller;
        let replaced = before + 2 * 60 + 3 * member + 2 * controller;
        assert_eq!(replaced, 2_760);
        assert_eq!(longest(RenewalStrategy::Rollout, 3, 2), MINUTE * replaced);
        let (member, controller) = (3 * 60 + 3 * 34 + 3 * 34 + 2 * 6, 3 * 60 + 3 * 34 + 6);
        let refreshed = before + 2 * 60 + 3 * member + 2 * controller;
        assert_eq!(refreshed, 2_383);
        assert_eq!(longest(RenewalStrategy::Refresh, 3, 2), MINUTE * refreshed);
    }

    #[test]
    fn the_usual_roll_takes_each_machine_in_turn_after_the_stacks() {
        let usual = |strategy| Roll { members: 3, controllers: 2, strategy }.usual();
        assert_eq!(usual(RenewalStrategy::Rollout), MINUTE * (10 + 5 * 20));
        assert_eq!(usual(RenewalStrategy::Refresh), MINUTE * (10 + 5 * 5));
    }

    #[test]
    fn lengths_of_two_days_and_more_are_said_in_days() {
        let words = |minutes: i32| in_days(MINUTE * minutes);
        assert_eq!((words(40), words(26 * 60)), ("40m".to_owned(), "26h".to_owned()));
        assert_eq!((words(48 * 60 - 1), words(48 * 60)), ("47h 59m".to_owned(), "2 days".to_owned()));
        assert_eq!((words(48 * 60 + 1), words(74 * 60)), ("2 days".to_owned(), "3 days 2h".to_owned()));
    }

    #[test]
    fn a_deadline_is_none_where_nothing_ends_and_nothing_is_urgent_then() {
        let none = Deadline { lead_s: 3_600, ..Deadline::default() };
        assert!(none.is_none());
        assert_eq!(
            (none.urgent_from(|_| true), none.urgency(|_| true, Timestamp::MAX)),
            (None, Urgency::None)
        );
        let ends: Timestamp = "2027-11-20T12:00:00Z".parse().unwrap();
        let some = Deadline { ends: [(Role::Controller, ends)].into(), ..none };
        assert!(!some.is_none());
        let hour_before = ends - SignedDuration::from_hours(1);
        assert_eq!(some.urgent_from(|_| true), Some(hour_before));
        assert_eq!(some.urgency(|_| true, hour_before), Urgency::Due { ends });
    }

    #[test]
    fn without_windows_it_takes_as_long_as_the_steps_do() {
        assert_eq!(slowest_within(&[], 6, MINUTE * 20), Some(MINUTE * 120));
    }

    #[test]
    fn steps_that_take_longer_than_can_be_counted_take_as_long_as_can_be() {
        for steps in [1, 2, 61, 121] {
            let slowest = slowest_within(&[], steps, SignedDuration::MAX).unwrap();
            assert_eq!(slowest.as_mins(), SignedDuration::MAX.as_mins(), "{steps}");
        }
    }

    /// Compared with a simulation that advances minute by minute.
    #[test]
    fn the_worst_moment_of_the_week_is_found() {
        let walk = |windows: &[MaintenanceWindow], steps: u32, each: usize| {
            let open = |at: usize| {
                windows.iter().any(|window| {
                    (0..7).any(|day: usize| {
                        let opens = day * 1_440 + usize::from(window.start_minute);
                        let since = (at % WEEK_MIN + WEEK_MIN - opens % WEEK_MIN) % WEEK_MIN;
                        (window.days.is_empty() || window.days.contains(&Day::ALL[day]))
                            && since < usize::from(window.length_min)
                    })
                })
            };
            let from = |from: usize| {
                let mut at = from;
                for _ in 0..steps {
                    while !open(at) {
                        at += 1;
                    }
                    at += each;
                }
                at - from
            };
            // The worst moment is one at which a window has just closed for one of the steps.
            let closed = (1..=WEEK_MIN).filter(|at| open(at - 1) && !open(*at));
            closed
                .flat_map(|at| [0, each, 2 * each].map(|before| from(at + WEEK_MIN - before)))
                .max()
                .unwrap()
        };
        for windows in [
            vec![window(&[Day::Sun], 150, 60)],
            vec![window(&[Day::Sun], 150, 10)],
            vec![window(&[Day::Sat], 23 * 60, 180), window(&[], 12 * 60, 30)],
            vec![window(&[Day::Mon, Day::Wed, Day::Sat], 360, 300)],
        ] {
            let found = slowest_within(&windows, 3, MINUTE * 20).unwrap().as_mins();
            let walked = i64::try_from(walk(&windows, 3, 20)).unwrap();
            assert_eq!(found, walked, "{windows:?}");
        }
        // Three steps fit into an hour, one into ten minutes. A step that just misses the window waits for a week.
        let week = SignedDuration::from_hours(7 * 24);
        let hour = slowest_within(&[window(&[Day::Sun], 150, 60)], 3, MINUTE * 20).unwrap();
        assert_eq!(hour, week);
        let ten = slowest_within(&[window(&[Day::Sun], 150, 10)], 3, MINUTE * 20).unwrap();
        assert!(ten > week * 2 && ten < week * 3 + MINUTE * 21, "{ten}");
    }
}
