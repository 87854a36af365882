//! What a rollout is to bring about, read off the release that was made from the spec, off the machines, and off what CloudFormation
//! holds. A plan is no part of it: it says what the render function believes to have changed, and the decision follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use jiff::Timestamp;
use slipway_core::release::{NodeRole, Rendering};

use super::refreshes::Refreshes;
use super::{CLOCKS, Checker, Stops};
use crate::world::{ClusterFacts, MachineFacts, World};

/// What has begun, as the bus says it.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The plan's id: by it a person approves, and nothing else is taken from the plan.
    pub plan: String,
    /// The version of the spec.
    pub spec_version: String,
    /// The release that was made from it, by its id.
    pub target: String,
    /// That release.
    pub release: Arc<Rendering>,
}

/// A rollout that is open.
#[derive(Debug, Clone)]
pub(super) struct Target {
    begun: Begun,
    /// Nobody has approved it, and its spec asks for that: nothing but renewals may be in it.
    unapproved: bool,
    /// Stacks that CloudFormation holds otherwise than the release has them, or not at all.
    changed: BTreeSet<String>,
    /// Those of them that were told to change, and have not come to an end.
    executing: BTreeSet<String>,
    /// The first of them that failed, and since when that can be seen.
    failed: Option<(String, Timestamp)>,
    /// Of each pool, the machine that goes first; `true`: it was replaced, and its pool whole after it.
    canaries: BTreeMap<String, (String, bool)>,
}

/// What an invocation had been told, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Told {
    /// Those acts of which who did them knew no more than what stopped them then.
    pub(in super::super) unheard: Option<(Range<usize>, Stops)>,
    /// Those acts that were done for the rollout before the one that it starts.
    pub(in super::super) earlier: Option<Earlier>,
}

/// A rollout that makes way for another in the midst of an invocation.
#[derive(Debug)]
pub(in super::super) struct Earlier {
    /// So many acts are for it.
    pub(super) until: usize,
    pub(super) target: Target,
}

/// What was rolled out, and did not end well.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    plans: BTreeSet<String>,
    /// By the version of the spec, and the release that was made from it.
    specs: BTreeSet<(String, String)>,
}

impl Spent {
    /// Whether a plan may not begin; `is_wanted`: a person approved that very plan, and has to.
    fn has(&self, begun: &Begun, is_wanted: bool) -> bool {
        let spec = (begun.spec_version.clone(), begun.target.clone());
        // Another plan of that spec, which a person approves, is a word to go on.
        self.specs.contains(&spec) && (self.plans.contains(&begun.plan) || !is_wanted)
    }
}

impl Target {
    fn role(&self, role: &str) -> Option<&NodeRole> {
        let roles = self.begun.release.roles.iter();
        roles.into_iter().find(|(one, _)| one.to_string() == role).map(|(_, node)| node)
    }

    /// Whether the release has a member, a pool or the controllers.
    pub(super) fn has(&self, role: &str) -> bool {
        self.role(role).is_some()
    }

    /// How many members of etcd the release has.
    pub(super) fn members(&self) -> usize {
        self.begun.release.roles.keys().filter(|role| role.member().is_some()).count()
    }

    /// Whether the release has a stack.
    pub(super) fn has_stack(&self, stack: &str) -> bool {
        self.begun.release.stack(stack).is_some()
    }

    /// The minor that machines of a role are to run.
    pub(super) fn minor(&self, role: &str) -> Option<u16> {
        self.role(role)?.version.as_deref()?.split('.').nth(1)?.parse().ok()
    }

    /// Whether a machine is another than the release has it: it was told another configuration, or launched as another machine.
    fn is_outdated(&self, world: &World, machine: &MachineFacts) -> bool {
        let Some(node) = self.role(&machine.role) else { return true };
        let launched = |template: Option<&_>| template.and_then(|template| world.launched_as(template));
        let now = world.group_facts(&machine.group).and_then(|group| group.template);
        // One that was launched by an update that was rolled back is the same as the update that is made again launches, and by no number
        // that whoever decides is told.
        let again = machine.template.as_ref().zip(now.as_ref());
        machine.config != node.config_digest
            || launched(machine.template.as_ref()) != launched(now.as_ref())
            || again.is_some_and(|(was, is)| world.changed_between(was, is))
    }

    /// Whether those are the credentials that the release has for a role.
    pub(super) fn wants(&self, role: &str, credentials: &str) -> bool {
        self.role(role).is_some_and(|node| node.credentials_digest == credentials)
    }

    /// Whether a machine has other credentials in force than the release has for it.
    pub(super) fn renews(&self, machine: &MachineFacts) -> bool {
        self.role(&machine.role).is_some_and(|node| node.credentials_digest != machine.credentials)
    }
}

impl Checker {
    /// What an invocation does for the rollout that is open: its first acts, so many, before it starts another.
    pub(in super::super) fn until(&self, until: usize) -> Option<Earlier> {
        Some(Earlier { until, target: self.target.clone()? })
    }

    /// A rollout has begun.
    pub fn begun(&mut self, world: &World, begun: Option<Begun>) {
        let now = world.now();
        self.begun_at = Some(now);
        self.aborted = false;
        self.skipped.clear();
        self.surges.begun();
        self.refreshes = Refreshes::default();
        let Some(begun) = begun else {
            self.wrong(now, "P3", "a rollout begins of which there is no plan, or no release".to_owned());
            return;
        };
        let is_approved = self.approved.contains(&begun.plan);
        let unapproved = self.rules.manual && !is_approved;
        if unapproved && !self.was_hurried(now) {
            self.wrong(
                now,
                "P3",
                "a rollout begins that nobody has approved, and the spec asks for that".to_owned(),
            );
        }
        if self.spent.has(&begun, is_approved && self.rules.manual) {
            let what = "what was aborted, or failed, begins again, and nobody has uploaded a spec since";
            self.wrong(now, "P10", what.to_owned());
        }
        let changed = begun.release.stacks.iter().filter(|stack| {
            // What never came to be, or is half gone, has a template all the same.
            let status = world.stack_status(&stack.name).unwrap_or_default();
            let stands =
                status == "CREATE_COMPLETE" || status.starts_with("UPDATE_") && !status.ends_with("_FAILED");
            let source = world.stack_source(&stack.name).filter(|_| stands);
            source.is_none_or(|(body, tags)| body != stack.body || *tags != stack.tags)
        });
        let changed = changed.map(|stack| stack.name.clone()).collect();
        let joins = begun.release.roles.keys().filter(|role| role.member().is_some());
        self.may_join.extend(joins.map(ToString::to_string));
        self.target = Some(Target {
            begun,
            unapproved,
            changed,
            executing: BTreeSet::new(),
            failed: None,
            canaries: BTreeMap::new(),
        });
    }

    /// It has ended; `well`: as it was meant to, or to make way for a newer spec.
    pub fn ended(&mut self, well: bool) {
        if !well {
            self.ending_stopped();
        }
        // What was aborted did not end well, whatever is said of it.
        let well = well && !self.aborted;
        if well {
            self.surges.ended();
        }
        if let Some(target) = self.target.take().filter(|_| !well) {
            self.spent.specs.insert((target.begun.spec_version, target.begun.target));
            self.spent.plans.insert(target.begun.plan);
        }
        self.aborted = false;
    }

    /// Whether a machine may be told to go: it is another than the release has it, or one too many; or its certificates are renewed, and
    /// the spec has machines replaced for that.
    pub(super) fn may_go(&self, world: &World, machine: &MachineFacts) -> bool {
        let Some(target) = &self.target else { return false };
        let Some(node) = target.role(&machine.role) else { return false };
        let has = self.machines.values().filter(|one| one.role == machine.role && !one.leaving).count();
        let replaces = target.is_outdated(world, machine) || target.renews(machine) && !self.rules.in_place;
        replaces || has > node.nodes.min as usize && !machine.role.starts_with("etcd-")
    }

    /// Whether any machine of a group may be told to go because it is another than the release has it.
    pub(super) fn is_replaced(&self, world: &World, group: &str) -> bool {
        let Some(target) = &self.target else { return false };
        let of_group = self.machines.values().filter(|one| one.group == group && !one.leaving);
        of_group
            .into_iter()
            .any(|one| target.is_outdated(world, one) || target.renews(one) && !self.rules.in_place)
    }

    /// Whether the spec has no longer what a pool's machine is of.
    pub(super) fn is_to_go(&self, role: &str) -> bool {
        role.starts_with("pool-") && self.target.as_ref().is_some_and(|target| !target.has(role))
    }

    /// Of a rollout that nobody approved, since certificates end soon, nothing but renewals is to be done.
    pub(super) fn only_renews(&mut self, machine: &MachineFacts, now: Timestamp) {
        let only = self.target.as_ref().is_some_and(|target| target.unapproved && !target.renews(machine));
        if only {
            let what = format!(
                "{}, a {}, is touched without approval, and renews nothing",
                machine.id, machine.role
            );
            self.wrong(now, "P3", what);
        }
    }

    /// A stack is told to change.
    pub(super) fn changes(&mut self, stack: &str, executes: bool, now: Timestamp) {
        let Some(target) = &mut self.target else { return };
        if !target.changed.contains(stack) {
            let what = format!("{stack} is changed, and CloudFormation has it as the spec wants it");
            return self.wrong(now, "P3", what);
        }
        if executes {
            target.executing.insert(stack.to_owned());
        }
    }

    /// What became of stacks that were told to change.
    pub(super) fn note_stacks(&mut self, world: &World, now: Timestamp) {
        let Some(target) = self.target.as_mut().filter(|target| !target.executing.is_empty()) else { return };
        let failed = &mut target.failed;
        target.executing.retain(|stack| {
            let status = world.stack_status(stack).unwrap_or_default();
            let ill = status.ends_with("_FAILED") || status.ends_with("ROLLBACK_COMPLETE");
            if ill && failed.is_none() {
                *failed = Some((stack.clone(), now));
            }
            !ill && !status.ends_with("_COMPLETE")
        });
    }

    /// What has failed in this rollout, a stack or the work on a machine, so long ago that whoever decides knew it.
    pub(super) fn known_failure(&self, now: Timestamp) -> Option<&str> {
        let stack = self.target.as_ref().and_then(|target| target.failed.as_ref());
        let machine = self.refreshes.failed.as_ref().filter(|(machine, _)| !self.skipped.contains(machine));
        [stack, machine].into_iter().flatten().find_map(|(what, at)| {
            (now.duration_since(*at) > self.grace().max(CLOCKS)).then_some(what.as_str())
        })
    }

    /// Which pools are whole again after their first machine was replaced.
    pub(super) fn note_canaries(&mut self, world: &World, now: Timestamp) {
        let Some(target) = &self.target else { return };
        let open = target.canaries.iter().filter(|(_, (_, proved))| !proved);
        let gone = open.filter(|(_, (first, _))| self.machines.get(first).is_none_or(|one| one.leaving));
        let whole = gone.map(|(role, _)| role.clone()).filter(|role| self.is_whole(world, role, now));
        let whole: Vec<String> = whole.collect();
        let canaries = self.target.iter_mut().flat_map(|target| &mut target.canaries);
        for (_, (_, proved)) in canaries.filter(|(role, _)| whole.contains(role)) {
            *proved = true;
        }
    }

    /// Whether as many workers of a pool serve as its group wants, as far as anybody could know.
    fn is_whole(&self, world: &World, role: &str, now: Timestamp) -> bool {
        let of_role = || self.machines.values().filter(|one| one.role == role);
        let serve = of_role().filter(|one| !one.leaving && self.counts_as_well(&one.id, now)).count();
        let group = of_role().next().and_then(|one| world.group_facts(&one.group));
        group.is_some_and(|group| serve >= group.desired as usize)
    }

    /// Somebody else, such as a cluster autoscaler, terminates the first machine of a pool while its drain begins. Its successor, or a machine
    /// of the surge, proves the same: that one of the new release serves.
    pub(super) fn others_take_the_canary(&mut self, machine: &MachineFacts) {
        if let Some(target) = self.target.as_mut().filter(|_| machine.role.starts_with("pool-")) {
            target.canaries.entry(machine.role.clone()).or_insert_with(|| (machine.id.clone(), false));
        }
    }

    /// The first machine of a pool goes alone: the others follow once it was replaced, and its pool is whole again.
    pub(super) fn is_canary(&mut self, facts: &ClusterFacts, machine: &MachineFacts, now: Timestamp) {
        if !machine.role.starts_with("pool-") || self.is_to_go(&machine.role) {
            return;
        }
        let Some(target) = &mut self.target else { return };
        let (first, proved) =
            target.canaries.entry(machine.role.clone()).or_insert_with(|| (machine.id.clone(), false));
        if *proved || *first == machine.id {
            return;
        }
        // One that died, or was let go of, proves nothing: another is the first.
        let ended = self
            .machines
            .get(first)
            .is_none_or(|one| one.leaving || !one.ready || !facts.cordoned.contains(&one.id));
        if ended && self.faults {
            first.clone_from(&machine.id);
            return;
        }
        let what = format!("{} goes before {first}, the first of {}, was replaced", machine.id, machine.role);
        self.wrong(now, "P6", what);
    }
}
