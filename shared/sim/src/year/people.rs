//! What people do, and from when on it counts.

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_flows::rollout::Waker;
use slipway_plan::Plan;
use slipway_rollout::Order;

use super::account::Woken;
use super::base::rules;
use super::engine::{Deed, Engine};
use crate::ports::lock;
use crate::world::MachineFacts;

impl Engine<'_> {
    /// An order that lets work continue counts from when it may have been received.
    pub(super) fn order_may_be_received(&mut self, who: &Woken) {
        let Woken::Rollout(Waker::Order { order, at }) = who else { return };
        match order {
            Order::Resume => self.checker.resumed(at.unwrap_or_else(|| self.now())),
            Order::Approve { plan } => self.checker.approved(plan),
            Order::Destroy { without_snapshot } => {
                self.checker.may_end(at.unwrap_or_else(|| self.now()), *without_snapshot);
            }
            // The acts of the invocation come after the order that it receives.
            Order::Pause | Order::Abort { .. } | Order::Skip { .. } => self.holds_up(order, *at),
        }
    }

    /// An order that stops something was given.
    fn holds_up(&mut self, order: &Order, at: Option<Timestamp>) {
        let at = at.unwrap_or_else(|| self.now());
        match order {
            Order::Pause => self.checker.paused(at),
            Order::Abort { .. } => {
                self.checker.aborted(at);
                self.checker.called_off(at);
            }
            Order::Skip { instance } => self.checker.skipped(instance),
            Order::Resume | Order::Approve { .. } | Order::Destroy { .. } => {}
        }
    }

    /// An order that stops something counts once it was received.
    pub(super) fn order_received(&mut self, who: &Woken) {
        let Woken::Rollout(Waker::Order { order, at }) = who else { return };
        match order {
            Order::Pause | Order::Abort { .. } => self.holds_up(order, *at),
            Order::Destroy { .. } => {
                let now = self.now();
                self.checker.ends(at.unwrap_or(now), now);
            }
            // An order to skip a machine counts since the beginning of the invocation. If the invocation has begun another rollout, the
            // order was about the one before.
            Order::Resume | Order::Approve { .. } | Order::Skip { .. } => {}
        }
    }

    /// Whether the newest plan waits for an approval, and `Plan Ready` was published: what `slipway approve` sees.
    fn waits_for_approval(&self) -> bool {
        let desired: Option<Desired> = self.account.read(&keys::desired(&self.account.name));
        let Some(desired) = desired else { return false };
        let plan: Option<Plan> = self.account.read(&keys::plan(&self.account.name, &desired.plan));
        let rollout = self.account.rollout();
        let begun = rollout.is_some_and(|one| {
            one.active().is_some_and(|active| active.target == desired.target)
                || one.last.as_ref().is_some_and(|last| {
                    last.plan == desired.plan && last.spec_version == desired.spec_version
                })
                || one.approved.as_ref() == Some(&desired.plan)
        });
        !begun && plan.is_some_and(|plan| plan.needs_approval() && !plan.is_empty())
    }

    /// The last workers of a pool, for example of one whose creation was called off, have pods that fit nowhere else. The status says so,
    /// and a person has to decide.
    fn takes_down(&mut self) {
        let mut world = lock(&self.account.world);
        let workers = world.machines().into_iter().filter(|one| one.role.starts_with("pool-"));
        let (leaving, staying): (Vec<_>, Vec<_>) = workers.partition(|one| one.leaving);
        for machine in leaving {
            let takes_its_pods = |other: &&MachineFacts| {
                other.ready && world.may_run_on(&self.account.name, &machine.role, &other.role)
            };
            if !staying.iter().any(|other| takes_its_pods(&other)) {
                world.kill_machine(&machine.id);
            }
        }
    }

    /// A person does something.
    pub(super) fn does(&mut self, deed: Deed) {
        let now = self.now();
        // The bus writes times in whole seconds.
        let at = Timestamp::from_second(now.as_second()).ok();
        let order = match deed {
            Deed::Upload(text) => {
                self.transcript.push((now, "a person uploads a spec".to_owned()));
                self.checker.rules.may_have_controllers_of(&rules(&text));
                let version = self.account.upload(&text);
                self.checker.uploaded();
                return self.send(Woken::Spec(version), true);
            }
            Deed::Again => {
                let key = keys::spec(&self.account.name);
                let Some(text) = self.account.specs.peek(&key) else { return };
                self.transcript.push((now, "a person uploads the spec again".to_owned()));
                let version = self.account.specs.upload(&key, text);
                self.checker.uploaded();
                return self.send(Woken::Spec(version), true);
            }
            Deed::TakeDown => return self.takes_down(),
            Deed::Say(order) => order,
            Deed::ApproveWaiting if !self.waits_for_approval() => return,
            Deed::Approve | Deed::ApproveWaiting => {
                let desired: Option<Desired> = self.account.read(&keys::desired(&self.account.name));
                let Some(desired) = desired else { return };
                Order::Approve { plan: desired.plan }
            }
            Deed::Skip(choice) => {
                let machines = lock(&self.account.world).machines();
                let at = usize::try_from(choice).unwrap_or_default() % machines.len().max(1);
                let Some(machine) = machines.get(at) else { return };
                Order::Skip { instance: machine.id.clone() }
            }
        };
        self.transcript.push((now, format!("a person says {order:?}")));
        self.send(Woken::Rollout(Waker::Order { order, at }), true);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::SignedDuration;

    use super::*;
    use crate::mortal::Life;
    use crate::year::acts::Act;
    use crate::year::base::Base;
    use crate::year::check::Knowledge;
    use crate::year::meddle::Meddler;
    use crate::year::shapes::Change;
    use crate::year::trial::Trial;

    /// A mistake: the function does not receive orders.
    #[derive(Debug)]
    struct Deaf;

    impl Meddler for Deaf {
        fn intercept_wake(&self, by: Waker, _: Option<&slipway_rollout::Rollout>) -> Option<Waker> {
            Some(if matches!(by, Waker::Order { .. }) { Waker::Event } else { by })
        }
    }

    /// A function dies before its change number `change`, when it has received a pause: whether it wrote its state by then, and whether
    /// somebody who begins something afterwards breaks the pause.
    fn dies_when_paused(base: &Base, minutes: i64, change: u64) -> Option<(bool, bool)> {
        let mut engine = Trial::new(1, 0.0).begins(base, Some(&Deaf));
        let later = engine.now() + SignedDuration::from_mins(minutes);
        engine.run_until(later);
        let before = engine.account.state_version();
        let order = Waker::Order { order: Order::Pause, at: Some(engine.now()) };
        let acts = engine.transcript.iter().filter(|(_, line)| line.starts_with("  ")).count();
        let life = Life::until_change(change);
        engine.invoke_living(Woken::Rollout(order), 0, true, &life, SignedDuration::ZERO);
        let acted = engine.transcript.iter().filter(|(_, line)| line.starts_with("  ")).count() > acts;
        let died = engine.transcript.iter().any(|(_, line)| line.contains("killed"));
        let wrote = engine.account.state_version() != before;
        let world = lock(&engine.account.world).clone();
        let act = Act::CreateChangeSet("trial-etcd".to_owned(), "another".to_owned());
        engine.checker.acts(&world, &[act], Knowledge::default());
        let seen = engine.checker.violations.iter().any(|one| one.what.ends_with("although it is paused"));
        (died && !acted).then_some((wrote, seen))
    }

    /// That the function wrote its state is enough, whatever it wrote: a function that forgets the order in this moment is seen.
    #[test]
    fn p10_a_pause_counts_from_the_first_write_of_the_function_that_received_it_although_it_died() {
        let base = Base::small(1, 1, Change::Members);
        let found: Vec<(bool, bool)> = (1..30)
            .step_by(4)
            .flat_map(|minutes| (0..4).map(move |change| (minutes, change)))
            .filter_map(|(minutes, change)| dies_when_paused(&base, minutes, change))
            .collect();
        for (wrote, seen) in &found {
            assert_eq!(wrote, seen, "{found:?}");
        }
        assert!(found.contains(&(true, true)) && found.contains(&(false, false)), "{found:?}");
    }
}
