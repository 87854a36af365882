//! What happens to machines and to the rollout when a service refuses a call permanently, and when a call is dropped because its evidence
//! is too old.

use super::*;
use crate::departures::DepartureState;

const WHY: &str = "Auto Scaling refuses it: ValidationError";

impl Yard {
    /// One minute passes. The effects are performed and recorded as the flows do it: a call that `fate` refuses or drops is not performed,
    /// and after a refusal nothing begins. Returns the number of refused or dropped calls.
    fn meets(&mut self, fate: &mut dyn FnMut(&Effect) -> EffectOutcome) -> usize {
        let decision = self.decides(None);
        let (mut performed, mut outcomes, mut refused, mut met) = (Vec::new(), Vec::new(), false, 0);
        for Pending { id, effect, .. } in &decision.next.outbox {
            let outcome = if refused && effect.starts_work() { EffectOutcome::Dropped } else { fate(effect) };
            match outcome {
                EffectOutcome::Done => performed.push(effect.clone()),
                EffectOutcome::Refused(_) | EffectOutcome::Dropped => met += 1,
            }
            refused |= matches!(outcome, EffectOutcome::Refused(_)) && !matches!(effect, Effect::Send(_));
            outcomes.push((*id, outcome));
        }
        self.performs(performed);
        self.state = decision.next.recorded(&outcomes);
        assert!(self.state.outbox.is_empty(), "{:?}", self.state.outbox);
        self.report = decision.report;
        met
    }

    /// Runs until it ends; every call that `which` selects is refused.
    fn run_refusing(&mut self, which: &dyn Fn(&Effect) -> bool) -> &'static str {
        let mut fate = |effect: &Effect| match which(effect) {
            true => EffectOutcome::Refused(WHY.to_owned()),
            false => EffectOutcome::Done,
        };
        for _ in 0..400 {
            self.meets(&mut fate);
            if self.state.active().is_none() && self.state.departures.is_empty() {
                return self.report.state.as_str();
            }
        }
        panic!("it never ends: {}", self.report.message);
    }

    fn last_message(&self) -> &str {
        &self.state.last.as_ref().unwrap().message
    }

    fn count(&self, what: &str) -> usize {
        self.log.iter().filter(|line| line.contains(what)).count()
    }

    /// Machines that were drained, were not terminated, and were not uncordoned afterwards.
    fn cordoned(&self) -> Vec<&str> {
        let at = |line: &String| self.log.iter().rposition(|other| other == line);
        let drained = self.log.iter().filter_map(|line| Some((line, line.split_once(" drains ")?.1)));
        let back = |id: &str| at(&format!("{id} takes pods again"));
        let stays = |id: &str| self.groups.values().any(|group| group.machines.contains_key(id));
        drained.filter(|(line, id)| stays(id) && back(id) < at(line)).map(|(_, id)| id).collect()
    }
}

fn terminates(effect: &Effect) -> bool {
    matches!(effect, Effect::Terminate { .. })
}

fn sends(effect: &Effect, document: &str) -> bool {
    matches!(effect, Effect::Send(command) if command.verb.document() == document)
}

#[test]
fn p6_a_worker_that_auto_scaling_will_not_terminate_takes_pods_again_and_ends_the_roll() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    assert_eq!(yard.run_refusing(&terminates), "failed");
    assert!(yard.last_message().contains(&format!("pool-a: {WHY}")), "{}", yard.last_message());
    assert_eq!((yard.count("drains"), yard.count("goes")), (1, 0), "no other machine begins: {:?}", yard.log);
    assert_eq!(yard.log.last().unwrap(), "pool-a.0 takes pods again");
    assert!(yard.cordoned().is_empty() && !yard.state.is_open());
}

#[test]
fn p6_a_worker_that_auto_scaling_will_not_terminate_within_the_budget_stays_and_the_others_are_replaced() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    let stays =
        |effect: &Effect| matches!(effect, Effect::Terminate { instance, .. } if instance == "pool-a.1");
    assert_eq!(yard.run_refusing(&stays), "succeeded", "{}", yard.report.message);
    let old = yard.groups["c-pool-a"].machines.iter().filter(|(_, one)| !one.current);
    assert_eq!(old.map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["pool-a.1"]);
    assert!(yard.cordoned().is_empty(), "{:?}", yard.log);
}

#[test]
fn p6_a_surplus_worker_that_may_not_go_with_a_smaller_group_is_drained_again_and_replaced() {
    let surging = RolloutPolicy {
        surge: CountOrPercent::Count(1),
        max_unavailable: CountOrPercent::Count(0),
        ..auto()
    };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging);
    let shrinks = |effect: &Effect| matches!(effect, Effect::Terminate { then_desired: Some(_), .. });
    assert_eq!(yard.run_refusing(&shrinks), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.count("none comes"), 0, "{:?}", yard.log);
    assert!(yard.groups["c-pool-a"].machines.values().all(|one| one.current), "{:?}", yard.log);
    assert_eq!(yard.count("takes pods again"), 0, "it is empty already, and is terminated: {:?}", yard.log);
}

#[test]
fn p5_a_controller_that_auto_scaling_will_not_terminate_takes_pods_again_and_ends_the_roll() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_controller, &auto());
    assert_eq!(yard.run_refusing(&terminates), "failed");
    assert!(yard.last_message().contains(&format!("controller: {WHY}")), "{}", yard.last_message());
    assert_eq!((yard.count("drains"), yard.count("goes")), (1, 0), "{:?}", yard.log);
    assert_eq!(yard.log.last().unwrap(), "controller.0 takes pods again");
    assert!(yard.cordoned().is_empty() && !yard.state.is_open());
}

#[test]
fn p4_a_member_that_auto_scaling_will_not_terminate_ends_the_roll_and_the_others_stay() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_member, &auto());
    assert_eq!(yard.run_refusing(&terminates), "failed");
    assert!(yard.last_message().contains(&format!("etcd-0: {WHY}")), "{}", yard.last_message());
    assert_eq!(yard.count("goes"), 0, "{:?}", yard.log);
    assert!(!yard.state.is_open());
}

#[test]
fn p5_p6_where_a_group_may_not_want_one_more_nobody_is_drained_and_the_roll_ends() {
    let surging = RolloutPolicy {
        surge: CountOrPercent::Count(1),
        max_unavailable: CountOrPercent::Count(0),
        ..auto()
    };
    for (whom, role) in [(&is_worker as Whom<'_>, "pool-a"), (&is_controller, "controller")] {
        let mut yard = Yard::new(&SMALL, Change::Machines, whom, &surging);
        let raises = |effect: &Effect| matches!(effect, Effect::SetDesired { .. });
        assert_eq!(yard.run_refusing(&raises), "failed");
        assert!(yard.last_message().contains(&format!("{role}: {WHY}")), "{}", yard.last_message());
        assert_eq!((yard.count("drains"), yard.count("goes")), (0, 0), "{:?}", yard.log);
        assert!(!yard.last_message().contains("machine more"), "none came: {}", yard.last_message());
    }
}

/// A surge that was never launched was remembered as surplus: if a cluster autoscaler had made the pool larger than its minimum, the next
/// rollout removed a machine that the pool wants.
#[test]
fn p6_what_a_group_was_refused_to_want_is_not_taken_away_by_the_next_rollout() {
    let surging = RolloutPolicy { surge: CountOrPercent::Count(1), ..auto() };
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &surging);
    let group = yard.groups.get_mut("c-pool-a").unwrap();
    group.desired = 4;
    yard.time_goes_by();
    assert_eq!(yard.run_refusing(&|effect| matches!(effect, Effect::SetDesired { .. })), "failed");
    assert!(yard.state.left_over.is_empty(), "{:?}", yard.state.left_over);
    yard.wanted.desired.spec_version = "v3".to_owned();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(yard.groups["c-pool-a"].desired, 4, "{:?}", yard.log);
}

#[test]
fn p6_a_hook_that_auto_scaling_will_not_end_or_prolong_is_told_so_again_and_its_worker_stays_empty() {
    // Also if that pool is the one that is rolled: the refusal is of a machine that the rollout may not have chosen.
    for whom in [&is_member as Whom<'_>, &is_worker] {
        let mut yard = Yard::new(&SMALL, Change::Machines, whom, &auto());
        let group = yard.groups.get_mut("c-pool-a").unwrap();
        group.machines.get_mut("pool-a.2").unwrap().lifecycle = Lifecycle::TerminatingWait;
        let (mut completions, mut prolonged) = (0, 0);
        let mut fate = |effect: &Effect| {
            let ends = matches!(effect, Effect::CompleteTermination { .. }) && completions < 3;
            let prolongs = matches!(effect, Effect::ProlongTermination { .. }) && prolonged < 1;
            completions += u32::from(ends);
            prolonged += u32::from(prolongs);
            if ends || prolongs { EffectOutcome::Refused(WHY.to_owned()) } else { EffectOutcome::Done }
        };
        let mut ended = "";
        for _ in 0..200 {
            yard.meets(&mut fate);
            if let Some(one) = yard.state.departures.get("pool-a.2") {
                let goes = matches!(one.state, DepartureState::Drain { .. } | DepartureState::Leave { .. });
                assert!(goes, "its departure is not withdrawn: {:?}", one.state);
            }
            if ended.is_empty() && yard.state.active().is_none() {
                ended = yard.report.state.as_str();
            }
        }
        assert_eq!((completions, prolonged, ended), (3, 1, "succeeded"), "{:?}", yard.log);
        assert_eq!(yard.count("pool-a.2 is let go"), 1, "{:?}", yard.log);
        assert_eq!(yard.count("pool-a.2 takes pods again"), 0, "{:?}", yard.log);
        assert!(yard.state.departures.is_empty());
    }
}

#[test]
fn p10_what_run_command_will_not_send_ends_the_roll_with_its_reason_and_nobody_goes_or_stays_cordoned() {
    let machines = Change::Machines;
    for (change, whom, document) in [
        (machines, &is_member as Whom<'_>, "Slipway-EtcdHealth"),
        (machines, &is_member, "Slipway-EtcdSnapshot"),
        (machines, &is_controller, "Slipway-Status"),
        (machines, &is_controller, "Slipway-Drain"),
        (machines, &is_worker, "Slipway-Drain"),
        (Change::Credentials, &is_member, "Slipway-Refresh"),
        (Change::Credentials, &is_controller, "Slipway-Refresh"),
        (Change::Credentials, &is_worker, "Slipway-Refresh"),
    ] {
        let mut yard = Yard::new(&SMALL, change, whom, &auto());
        assert_eq!(yard.run_refusing(&|effect| sends(effect, document)), "failed", "{document}");
        assert!(yard.last_message().contains(WHY), "{document}: {}", yard.last_message());
        assert_eq!(yard.count("goes"), 0, "{document}: {:?}", yard.log);
        assert!(yard.cordoned().is_empty() && !yard.state.is_open(), "{document}: {:?}", yard.log);
    }
}

#[test]
fn p10_a_machine_stays_known_until_run_command_sends_that_it_takes_pods_again() {
    let mut yard = Yard::new(&SMALL, Change::Machines, &is_worker, &auto());
    let mut refused = 0;
    let mut fate = |effect: &Effect| {
        let uncordons = sends(effect, "Slipway-Uncordon");
        refused += usize::from(uncordons);
        let no = terminates(effect) || uncordons && refused <= 5;
        if no { EffectOutcome::Refused(WHY.to_owned()) } else { EffectOutcome::Done }
    };
    for _ in 0..40 {
        yard.meets(&mut fate);
    }
    assert_eq!(yard.log.last().unwrap(), "pool-a.0 takes pods again", "{:?}", yard.log);
    assert!(refused == 6 && yard.state.departures.is_empty(), "{refused}");
}

/// Whether the rollout itself decides about the call.
fn is_dropped_once(effect: &Effect) -> bool {
    match effect {
        Effect::SetDesired { .. }
        | Effect::Terminate { .. }
        | Effect::CompleteTermination { .. }
        | Effect::ProlongTermination { .. }
        | Effect::Send(_) => true,
        Effect::CreateChangeSet(_)
        | Effect::ExecuteChangeSet { .. }
        | Effect::DeleteChangeSet { .. }
        | Effect::DeleteStack { .. }
        | Effect::PointAddons(_)
        | Effect::Cancel(_)
        | Effect::ArmTick
        | Effect::DisarmTick
        | Effect::Publish(_) => false,
    }
}

/// A call that was too old when its turn came is not a failed try, and does not count as done.
#[test]
fn p12_whatever_is_dropped_as_too_old_is_decided_anew_and_the_roll_ends_well() {
    let surging = RolloutPolicy {
        surge: CountOrPercent::Count(1),
        max_unavailable: CountOrPercent::Count(0),
        ..auto()
    };
    for change in [Change::Machines, Change::Credentials] {
        let whole = {
            let mut yard = Yard::new(&SMALL, change, &|_| true, &surging);
            assert_eq!(yard.run(), "succeeded");
            yard
        };
        // Each call in turn is dropped five times, whatever it is.
        for nth in 0..60 {
            let mut yard = Yard::new(&SMALL, change, &|_| true, &surging);
            let (mut seen, mut dropped) = (0, 0);
            let mut fate = |effect: &Effect| {
                let counts = is_dropped_once(effect);
                seen += usize::from(counts);
                if counts && seen > nth && dropped < 5 {
                    dropped += 1;
                    return EffectOutcome::Dropped;
                }
                EffectOutcome::Done
            };
            for _ in 0..400 {
                yard.meets(&mut fate);
                if yard.state.active().is_none() && yard.state.departures.is_empty() {
                    break;
                }
            }
            assert_eq!(yard.report.state.as_str(), "succeeded", "at {nth}: {}", yard.report.message);
            let sizes = |yard: &Yard| -> Vec<(String, u32, usize)> {
                let groups = yard.groups.iter();
                groups.map(|(name, one)| (name.clone(), one.desired, one.machines.len())).collect()
            };
            assert_eq!(sizes(&yard), sizes(&whole), "at {nth}: {:?}", yard.log);
        }
    }
}

#[test]
fn p12_a_command_that_was_dropped_is_decided_anew_within_two_looks() {
    let machines = Change::Machines;
    for (change, whom, document) in [
        (machines, &is_member as Whom<'_>, "Slipway-EtcdHealth"),
        (machines, &is_member, "Slipway-EtcdSnapshot"),
        (machines, &is_controller, "Slipway-Drain"),
        (machines, &is_worker, "Slipway-Drain"),
        (machines, &is_worker, "Slipway-Uncordon"),
        (Change::Credentials, &is_member, "Slipway-Refresh"),
        (Change::Credentials, &is_worker, "Slipway-Refresh"),
    ] {
        let mut yard = Yard::new(&SMALL, change, whom, &auto());
        let mut looks = Vec::new();
        for look in 0..30 {
            yard.meets(&mut |effect| {
                if terminates(effect) {
                    return EffectOutcome::Refused(WHY.to_owned());
                }
                let counts = sends(effect, document) && looks.len() < 2;
                let is_first = counts && looks.is_empty();
                looks.extend(counts.then_some(look));
                if is_first { EffectOutcome::Dropped } else { EffectOutcome::Done }
            });
        }
        assert_eq!(looks.len(), 2, "{document}");
        assert!(looks[1] - looks[0] <= 2, "{document}: {looks:?}");
    }
}
