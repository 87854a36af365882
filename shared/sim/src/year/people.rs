//! What people do, and from when on it counts.

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::status::Desired;
use slipway_flows::launch::Waker;
use slipway_plan::Plan;
use slipway_rollout::Order;

use super::account::Woken;
use super::engine::{Deed, Engine};
use crate::ports::lock;

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
                let rollout = self.account.rollout();
                let active = rollout.as_ref().and_then(|rollout| rollout.active());
                let taken = active.is_some_and(|active| active.aborted.is_some());
                self.checker.aborted(at, taken);
                self.checker.called_off(at);
            }
            Order::Skip { instance } => self.checker.skipped(instance),
            Order::Resume | Order::Approve { .. } | Order::Destroy { .. } => {}
        }
    }

    /// Whether the state shows that an order that stops something was received. The function may have died after that.
    pub(super) fn is_stored(&self, who: &Woken) -> bool {
        let (Woken::Rollout(Waker::Order { order, at }), Some(rollout)) = (who, self.account.rollout())
        else {
            return false;
        };
        match order {
            Order::Pause => {
                rollout.switch.as_ref().is_some_and(|switch| switch.paused && Some(switch.at) == *at)
            }
            Order::Abort { .. } => {
                rollout.active().is_some_and(|active| active.aborted.is_some())
                    || rollout.destroy().is_some_and(|destroy| destroy.aborted.is_some())
            }
            Order::Skip { instance } => {
                rollout.active().is_some_and(|active| active.skipped.contains(instance))
            }
            Order::Resume | Order::Approve { .. } | Order::Destroy { .. } => false,
        }
    }

    /// If a destruction was in progress and is not any more, the abort was received, even if the function died afterwards.
    pub(super) fn may_have_stopped(&mut self, who: &Woken) {
        let Woken::Rollout(Waker::Order { order: Order::Abort { .. }, at: Some(at) }) = who else { return };
        if self.account.rollout().is_some_and(|rollout| rollout.destroy().is_none()) {
            self.checker.stopped_ending(*at);
        }
    }

    /// An order that stops something counts once it was received.
    pub(super) fn order_received(&mut self, who: &Woken) {
        let Woken::Rollout(Waker::Order { order, at }) = who else { return };
        match order {
            Order::Pause | Order::Abort { .. } => self.holds_up(order, *at),
            // An order that was given before the rollout began, and was received in the invocation that began the rollout, is about
            // nothing.
            Order::Skip { .. } => {
                if self.is_stored(who) {
                    self.holds_up(order, *at);
                }
            }
            Order::Destroy { .. } => {
                let now = self.now();
                self.checker.ends(at.unwrap_or(now), now);
            }
            Order::Resume | Order::Approve { .. } => {}
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

    /// The last workers of a cluster, for example of a pool whose creation rolls back, have pods that fit nowhere else. The status says so,
    /// and a person has to decide.
    fn takes_down(&mut self) {
        let mut world = lock(&self.account.world);
        let workers: Vec<_> =
            world.machines().into_iter().filter(|one| one.role.starts_with("pool-")).collect();
        if workers.iter().any(|one| one.ready && !one.leaving) {
            return;
        }
        for machine in workers.iter().filter(|one| one.leaving) {
            world.kill_machine(&machine.id);
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
                let version = self.account.upload(&text);
                return self.send(Woken::Spec(version), true);
            }
            Deed::Again => {
                let key = keys::spec(&self.account.name);
                let Some(text) = self.account.specs.peek(&key) else { return };
                self.transcript.push((now, "a person uploads the spec again".to_owned()));
                let version = self.account.specs.upload(&key, text);
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
