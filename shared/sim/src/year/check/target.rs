//! What a rollout has to achieve, read from the release that was made from the spec, from the machines, and from CloudFormation. The plan
//! is not used: it contains what the render function believes to have changed, and the decision follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;

use super::tries::Tried;
use super::{CLOCKS, Checker, Stops};
use crate::world::{ClusterFacts, MachineFacts, World};

/// A rollout that has begun, as the bus reports it.
#[derive(Debug, Clone)]
pub struct Begun {
    /// The plan's id, by which a person approves it. Nothing else is taken from the plan.
    pub plan: String,
    /// The version of the spec.
    pub spec_version: String,
    /// The id of the release.
    pub target: String,
    /// The release.
    pub release: Arc<Rendering>,
}

/// What a rollout may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    Everything,
    /// Nobody has approved it although the spec asks for that, but certificates expire soon.
    Renew,
    /// Nobody has approved it although the spec asks for that: it may only look whether the cluster serves.
    Look,
}

/// How a rollout ended, as the bus reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Succeeded,
    /// A newer plan follows.
    Superseded,
    /// It failed, or a person aborted it.
    Stopped,
}

/// A rollout that is open.
#[derive(Debug, Clone)]
pub(super) struct Target {
    begun: Begun,
    may: May,
    /// Stacks that differ from the release in CloudFormation, or are missing there.
    changed: BTreeSet<String>,
    /// Those of them whose change was requested, and whether it has ended.
    executed: BTreeMap<String, bool>,
    /// The first of them that failed, and since when this has been visible.
    failed: Option<(String, Timestamp)>,
    /// For each pool, its canary.
    canaries: BTreeMap<String, Canary>,
    /// The members of etcd when it began.
    pub(super) members_before: BTreeSet<String>,
}

/// The first worker of a pool that is replaced.
#[derive(Debug, Clone)]
struct Canary {
    machine: String,
    /// The rollout terminated it.
    terminated: bool,
    /// It was replaced, and the pool was whole afterwards.
    proved: bool,
}

impl Canary {
    fn new(machine: &MachineFacts) -> Self {
        Self { machine: machine.id.clone(), terminated: false, proved: false }
    }
}

/// What an invocation knew, and when.
#[derive(Debug, Default)]
pub(in super::super) struct Knowledge {
    /// The acts that were decided when only these earlier orders were known.
    pub(in super::super) unheard: Option<(BTreeSet<usize>, Stops)>,
    /// Acts for the rollout before the one that the invocation starts.
    pub(in super::super) earlier: Option<Earlier>,
}

/// A rollout that is superseded during an invocation.
#[derive(Debug)]
pub(in super::super) struct Earlier {
    /// The number of acts for it.
    pub(super) until: usize,
    pub(super) target: Target,
}

/// The ids of plans.
#[derive(Debug, Clone, Default)]
pub(super) struct Approvals {
    /// Those that a person approved.
    approved: BTreeSet<String>,
    /// Those that have begun.
    begun: BTreeSet<String>,
}

/// The rollouts that did not succeed.
#[derive(Debug, Clone, Default)]
pub(super) struct Spent {
    plans: BTreeSet<String>,
    uploads: Vec<SpentUpload>,
    /// The stacks that one of them changed: whether a stack has the change is known only once another change set was asked for.
    stacks: BTreeSet<String>,
    /// Certificates were about to expire while one of them was open, and none has succeeded since: which machines have new ones is known
    /// only once it was completed.
    hurried: bool,
}

/// What a rollout did not achieve.
#[derive(Debug, Clone)]
struct SpentUpload {
    spec_version: String,
    target: String,
    release: Arc<Rendering>,
    /// A person aborted it.
    aborted: bool,
    at: Timestamp,
    /// A person has uploaded a spec since.
    uploaded: bool,
}

/// A renewal that failed is tried again by the next daily scan; functions' clocks may differ.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_hours(11);

/// Whether a release differs from another one in credentials alone.
fn differ_in_credentials(one: &Rendering, other: &Rendering) -> bool {
    let has_role = |(role, node): (&Role, &NodeRole)| {
        other.roles.get(role).is_some_and(|before| {
            (&before.machine, &before.config_digest, before.nodes)
                == (&node.machine, &node.config_digest, node.nodes)
        })
    };
    let body = |release: &Rendering, name: &str| {
        let stack = release.stack(name)?;
        let nodes = release.roles.values().filter(|node| node.stack == name);
        let body = nodes
            .fold(stack.body.clone(), |body, node| body.replace(&node.credentials_digest, "credentials"));
        Some((body, stack.tags.clone()))
    };
    one.roles.len() == other.roles.len()
        && one.stacks.len() == other.stacks.len()
        && one.addons.digest == other.addons.digest
        && one.roles.iter().all(has_role)
        && one.stacks.iter().all(|stack| body(one, &stack.name) == body(other, &stack.name))
}

impl Spent {
    /// What a rollout may do if one of its upload did not succeed before, and no person has it begin again; `None`: nothing. `is_wanted`: a person
    /// has to approve, and approved exactly this plan. `is_hurried`: certificates are about to expire, so that what runs is renewed.
    fn limits(&self, begun: &Begun, is_wanted: bool, is_hurried: bool, now: Timestamp) -> Option<May> {
        let of_upload = self.uploads.iter().rev();
        let mut of_upload = of_upload.filter(|spent| {
            spent.spec_version == begun.spec_version && differ_in_credentials(&spent.release, &begun.release)
        });
        let Some(spent) = of_upload.next() else { return Some(May::Everything) };
        // The approval of another plan of the same spec allows it to begin.
        if is_wanted && !self.plans.contains(&begun.plan) || is_hurried && spent.uploaded {
            return Some(May::Everything);
        }
        let is_same = spent.target == begun.target;
        let renews = match (spent.aborted, is_same) {
            (false, false) => true,
            (false, true) => is_hurried && now.duration_since(spent.at) >= TRIED_AGAIN,
            (true, _) => is_hurried && !is_same,
        };
        renews.then_some(May::Renew)
    }
}

impl Target {
    fn role(&self, role: &str) -> Option<&NodeRole> {
        let roles = self.begun.release.roles.iter();
        roles.into_iter().find(|(one, _)| one.to_string() == role).map(|(_, node)| node)
    }

    /// The roles whose machines are Nodes, and the stacks of their groups.
    pub(super) fn node_groups(&self) -> BTreeMap<String, String> {
        let roles = self.begun.release.roles.iter();
        let nodes = roles.filter(|(role, _)| matches!(role, Role::Controller | Role::Pool(_)));
        nodes.map(|(role, node)| (role.to_string(), node.stack.clone())).collect()
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

    /// The minor that machines of a role should run.
    pub(super) fn minor(&self, role: &str) -> Option<u16> {
        self.role(role)?.version.as_deref()?.split('.').nth(1)?.parse().ok()
    }

    /// Whether a machine differs from the release: it has another configuration, or was launched as another machine.
    fn is_outdated(&self, world: &World, machine: &MachineFacts) -> bool {
        let Some(node) = self.role(&machine.role) else { return true };
        let launched = |template: Option<&_>| template.and_then(|template| world.launched_as(template));
        let now = world.group_facts(&machine.group).and_then(|group| group.template);
        // A machine of an update that was rolled back may equal a machine of the repeated update, but the decision sees only version
        // numbers, by which the two differ.
        let again = machine.template.as_ref().zip(now.as_ref());
        machine.config != node.config_digest
            || launched(machine.template.as_ref()) != launched(now.as_ref())
            || again.is_some_and(|(was, is)| world.changed_between(was, is))
    }

    /// Whether these are the credentials that the release has for a role.
    pub(super) fn wants(&self, role: &str, credentials: &str) -> bool {
        self.role(role).is_some_and(|node| node.credentials_digest == credentials)
    }

    /// Whether a machine uses other credentials than the release has for it.
    pub(super) fn renews(&self, machine: &MachineFacts) -> bool {
        self.role(&machine.role).is_some_and(|node| node.credentials_digest != machine.credentials)
    }
}

impl Begun {
    /// Stacks that differ from the release in CloudFormation, or are missing there.
    fn changes_in(&self, world: &World) -> impl Iterator<Item = String> {
        let changed = self.release.stacks.iter().filter(|stack| {
            // A stack that was never created, or is partly deleted, also has a template.
            let status = world.stack_status(&stack.name).unwrap_or_default();
            let stands =
                status == "CREATE_COMPLETE" || status.starts_with("UPDATE_") && !status.ends_with("_FAILED");
            let source = world.stack_source(&stack.name).filter(|_| stands);
            source.is_none_or(|(body, tags)| body != stack.body || *tags != stack.tags)
        });
        changed.map(|stack| stack.name.clone())
    }
}

impl Checker {
    /// The acts of an invocation for the open rollout before the invocation starts another one.
    pub(in super::super) fn until(&self, until: usize) -> Option<Earlier> {
        Some(Earlier { until, target: self.target.clone()? })
    }

    /// A person approved a plan, and the order may have been received.
    pub fn approved(&mut self, plan: &str) {
        self.approvals.approved.insert(plan.to_owned());
    }

    /// A rollout has begun.
    pub fn begun(&mut self, world: &World, begun: Option<Begun>) {
        let now = world.now();
        self.begun_at = Some(now);
        self.aborted = false;
        self.skipped.clear();
        self.surges.begun();
        self.tried = Tried::default();
        let Some(begun) = begun else {
            self.wrong(now, "P3", "a rollout begins of which there is no plan, or no release".to_owned());
            return;
        };
        self.approvals.begun.insert(begun.plan.clone());
        let is_approved = self.approvals.approved.contains(&begun.plan);
        let is_hurried = self.was_hurried(now) || self.spent.hurried;
        let may = match self.rules.manual && !is_approved {
            false => May::Everything,
            true if is_hurried => May::Renew,
            true => May::Look,
        };
        let may = match self.spent.limits(&begun, is_approved && self.rules.manual, is_hurried, now) {
            Some(May::Renew) if may == May::Everything => May::Renew,
            Some(_) => may,
            None => {
                let what = "what was aborted, or failed, begins again, and nobody has uploaded a spec since";
                self.wrong(now, "P10", what.to_owned());
                may
            }
        };
        let unknown = self.spent.stacks.iter().cloned();
        let changed = begun.changes_in(world).chain(unknown).collect();
        let joins = begun.release.roles.keys().filter(|role| role.member().is_some());
        self.may_join.extend(joins.map(ToString::to_string));
        self.target = Some(Target {
            begun,
            may,
            changed,
            executed: BTreeMap::new(),
            failed: None,
            canaries: BTreeMap::new(),
            members_before: self.facts.iter().flat_map(|facts| facts.members.keys()).cloned().collect(),
        });
    }

    /// The rollout that has begun was decided while the world changed to `present`.
    pub fn begun_in(&mut self, present: &World) {
        if let Some(target) = &mut self.target {
            target.changed.extend(target.begun.changes_in(present));
        }
    }

    /// A person has uploaded a spec.
    pub(in super::super) fn uploaded(&mut self) {
        self.spent.uploads.iter_mut().for_each(|spent| spent.uploaded = true);
    }

    /// The rollout has ended.
    pub fn ended(&mut self, world: &World, end: End) {
        match end {
            End::Stopped => self.ending_stopped(world),
            End::Superseded => self.superseded(world.now()),
            End::Succeeded => {}
        }
        let well = end != End::Stopped;
        // An aborted rollout did not succeed, whatever is reported.
        let well = well && !self.aborted;
        if well {
            self.surges.ended();
            self.spent.stacks.clear();
            self.spent.hurried = false;
        } else {
            let in_it = self.hurried_at.zip(self.begun_at).is_some_and(|(hurried, begun)| hurried >= begun);
            self.spent.hurried |= in_it;
        }
        if let Some(target) = self.target.take().filter(|_| !well) {
            let Begun { plan, spec_version, target: to, release } = target.begun;
            let (at, aborted) = (world.now(), self.aborted);
            self.spent.uploads.retain(|spent| (&spent.spec_version, &spent.target) != (&spec_version, &to));
            self.spent.uploads.push(SpentUpload {
                spec_version,
                target: to,
                release,
                aborted,
                at,
                uploaded: false,
            });
            self.spent.plans.insert(plan);
            self.spent.stacks.extend(target.executed.into_keys());
        }
        self.aborted = false;
    }

    /// A newer plan ends the rollout: where a person has to approve, one has approved a plan that did not begin yet.
    fn superseded(&mut self, now: Timestamp) {
        if self.rules.manual
            && self.approvals.approved.is_subset(&self.approvals.begun)
            && !self.was_hurried(now)
        {
            let what = "a newer plan ends the rollout, and nobody has approved it";
            self.wrong(now, "P3", what.to_owned());
        }
    }

    /// Whether a machine may be terminated: it differs from the release, it is one too many, or its certificates are renewed and the spec
    /// replaces machines for that.
    pub(super) fn may_go(&self, world: &World, machine: &MachineFacts) -> bool {
        let Some(target) = &self.target else { return false };
        let Some(node) = target.role(&machine.role) else { return false };
        // A machine that Auto Scaling has just begun to terminate is still in service by a late answer.
        let mine = |id: &str| self.taken.iter().any(|taken| taken.machine == id);
        let serves =
            |one: &&MachineFacts| !one.leaving || !mine(&one.id) && self.counts_as_well(&one.id, world.now());
        let of_role = self.machines.values().filter(|one| one.role == machine.role);
        let has = of_role.filter(serves).count();
        let replaces = target.is_outdated(world, machine) || target.renews(machine) && !self.rules.in_place;
        replaces || has > node.nodes.min as usize && !machine.role.starts_with("etcd-")
    }

    /// Whether any machine of a group may be terminated because it differs from the release.
    pub(super) fn is_replaced(&self, world: &World, group: &str) -> bool {
        let Some(target) = &self.target else { return false };
        let of_group = self.machines.values().filter(|one| one.group == group && !one.leaving);
        of_group
            .into_iter()
            .any(|one| target.is_outdated(world, one) || target.renews(one) && !self.rules.in_place)
    }

    /// Whether a rollout has terminated that machine.
    pub(super) fn has_terminated(&self, id: &str) -> bool {
        self.taken.iter().any(|taken| taken.machine == id && taken.restart.is_none())
    }

    /// Whether the spec no longer has the pool of a machine.
    pub(super) fn is_to_go(&self, role: &str) -> bool {
        role.starts_with("pool-") && self.target.as_ref().is_some_and(|target| !target.has(role))
    }

    /// Whether it is a controller more than the spec has, which an earlier rollout launched and did not take back.
    fn is_surplus(&self, machine: &MachineFacts) -> bool {
        let others = self.machines.values().filter(|one| one.id != machine.id && !one.leaving);
        machine.role == "controller"
            && others.filter(|one| one.role == "controller").count() >= self.rules.controllers
    }

    /// A machine is told to do something: a rollout that nobody approved may at most renew, and take back what an earlier one added.
    /// `refreshes`: it is told to install the credentials of the release, which it may have already.
    pub(super) fn touches(&mut self, machine: &MachineFacts, refreshes: bool, now: Timestamp) {
        let allowed = self.target.as_ref().is_none_or(|target| match target.may {
            May::Everything => true,
            May::Renew => refreshes || target.renews(machine) || self.is_surplus(machine),
            May::Look => false,
        });
        if !allowed {
            let what = format!(
                "{}, a {}, is touched without approval, and renews nothing that expires soon",
                machine.id, machine.role
            );
            self.wrong(now, "P3", what);
        }
    }

    /// A stack is told to change.
    pub(super) fn changes(&mut self, stack: &str, executes: bool, now: Timestamp) {
        let Some(target) = &mut self.target else { return };
        // Where machines are replaced to renew, their stacks have new launch templates.
        if target.may == May::Look {
            let what = format!("{stack} is changed without approval, and the spec asks for that");
            return self.wrong(now, "P3", what);
        }
        if !target.changed.contains(stack) {
            let what = format!("{stack} is changed, and CloudFormation has it as the spec wants it");
            return self.wrong(now, "P3", what);
        }
        if executes {
            target.executed.insert(stack.to_owned(), false);
        }
    }

    /// Notes the results of stacks that were told to change.
    pub(super) fn note_stacks(&mut self, world: &World, now: Timestamp) {
        let Some(target) = &mut self.target else { return };
        for (stack, ended) in target.executed.iter_mut().filter(|(_, ended)| !**ended) {
            let status = world.stack_status(stack).unwrap_or_default();
            let ill = status.ends_with("_FAILED") || status.ends_with("ROLLBACK_COMPLETE");
            if ill && target.failed.is_none() {
                target.failed = Some((stack.clone(), now));
            }
            *ended = ill || status.ends_with("_COMPLETE");
        }
    }

    /// What has failed in this rollout, a stack or the work on a machine, so long ago that the decision knew it.
    pub(super) fn known_failure(&self, now: Timestamp) -> Option<&str> {
        let stack = self.target.as_ref().and_then(|target| target.failed.as_ref());
        let machine = self.tried.failed.as_ref().filter(|(machine, _)| !self.skipped.contains(machine));
        [stack, machine].into_iter().flatten().find_map(|(what, at)| {
            (now.duration_since(*at) > self.grace().max(CLOCKS)).then_some(what.as_str())
        })
    }

    /// Notes which pools are whole again after their canary was replaced.
    pub(super) fn note_canaries(&mut self, world: &World, now: Timestamp) {
        let Some(target) = &self.target else { return };
        let open = target.canaries.iter().filter(|(_, canary)| !canary.proved);
        let gone =
            open.filter(|(_, canary)| self.machines.get(&canary.machine).is_none_or(|one| one.leaving));
        let whole = gone.map(|(role, _)| role.clone()).filter(|role| self.is_whole(world, role, now));
        let whole: Vec<String> = whole.collect();
        let canaries = self.target.iter_mut().flat_map(|target| &mut target.canaries);
        for (_, canary) in canaries.filter(|(role, _)| whole.contains(role)) {
            canary.proved = true;
        }
    }

    /// Whether as many workers of a pool serve as its group wants, as far as a decision could know.
    fn is_whole(&self, world: &World, role: &str, now: Timestamp) -> bool {
        let of_role = || self.machines.values().filter(|one| one.role == role);
        let serve = of_role().filter(|one| !one.leaving && self.counts_as_well(&one.id, now)).count();
        let group = of_role().next().and_then(|one| world.group_facts(&one.group));
        group.is_some_and(|group| serve >= group.desired as usize)
    }

    /// Whether the canary of a pool was replaced, and the pool was whole afterwards.
    pub(super) fn has_proved(&self, role: &str) -> bool {
        self.target.as_ref().and_then(|target| target.canaries.get(role)).is_some_and(|canary| canary.proved)
    }

    /// Somebody else, such as a cluster autoscaler, terminates the canary of a pool while its drain begins. Its successor, or a surge
    /// machine, proves the same: that a machine of the new release serves.
    pub(super) fn others_take_the_canary(&mut self, machine: &MachineFacts) {
        if let Some(target) = self.target.as_mut().filter(|_| machine.role.starts_with("pool-")) {
            target.canaries.entry(machine.role.clone()).or_insert_with(|| Canary::new(machine));
        }
    }

    /// The canary of a pool is replaced alone: the others follow once it was replaced and its pool is whole again. `terminates`: the machine
    /// is terminated now, and not drained.
    pub(super) fn is_canary(
        &mut self,
        facts: &ClusterFacts,
        machine: &MachineFacts,
        terminates: bool,
        now: Timestamp,
    ) {
        if !machine.role.starts_with("pool-") || self.is_to_go(&machine.role) {
            return;
        }
        let Some(target) = &mut self.target else { return };
        let canary = target.canaries.entry(machine.role.clone()).or_insert_with(|| Canary::new(machine));
        if canary.machine == machine.id {
            canary.terminated |= terminates;
            return;
        }
        if canary.proved {
            return;
        }
        // A canary that died, was uncordoned, for example because a person skipped it, or is interrupted by EC2, proves nothing, so another
        // machine becomes the canary. One that the rollout terminated is waited for.
        let first = canary.machine.clone();
        let ended = self
            .machines
            .get(&first)
            .is_none_or(|one| one.goes_anyway() || !one.ready || !facts.cordoned.contains(&one.id));
        if ended && !canary.terminated && (self.faults || self.skipped.contains(&first)) {
            *canary = Canary { terminated: terminates, ..Canary::new(machine) };
            return;
        }
        let what = format!("{} goes before {first}, the first of {}, was replaced", machine.id, machine.role);
        self.wrong(now, "P6", what);
    }
}
