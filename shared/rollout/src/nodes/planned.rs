//! Makes the node steps of a plan, in their order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use slipway_core::node::NodeConfig;
use slipway_core::release::{NodeRole, Rendering};
use slipway_core::role::Role;
use slipway_plan::{MinorChange, NodeAction, NodePlan, Plan};

use super::super::Wanted;
use super::{
    Closing, Controllers, ControllersState, ControllersWork, Extra, Leaver, LeaverState, Member, MemberState,
    NodeStep, Nodes, Phase, PoolRefresh, PoolRefreshState, RefreshMember, Removal, RemovalState,
    ReplaceMember, Saver, SaverState, Task, Tries, Work, Workers, WorkersState,
};

/// What this version does to the nodes of a role by itself, according to `plan`.
fn executes(plan: &Plan, node: &NodePlan, weighted: bool) -> Option<Work> {
    match (node.action, &node.role) {
        (NodeAction::Untouched, Role::Controller) if node.fewer => Some(Work::Fewer),
        (NodeAction::Refresh, Role::Etcd(_) | Role::Controller | Role::Pool(_)) => Some(Work::Refresh),
        (NodeAction::Replace, Role::Etcd(_) | Role::Controller) => Some(Work::Replace),
        (NodeAction::Replace, Role::Pool(name)) => {
            plan.policy.pace(name).can_replace(weighted).then_some(Work::Replace)
        }
        (NodeAction::Replace | NodeAction::Refresh, Role::Admin)
        | (NodeAction::Create | NodeAction::Untouched | NodeAction::Remove | NodeAction::Orphaned, _) => None,
    }
}

/// The number of nodes that `plan` replaces or refreshes but a person has to handle.
pub(in super::super) fn nodes_for_a_person(wanted: &Wanted) -> u32 {
    let plan = &wanted.plan;
    let concerned = |node: &&NodePlan| {
        matches!(node.action, NodeAction::Replace | NodeAction::Refresh)
            && executes(plan, node, is_weighted(wanted, &node.role)).is_none()
    };
    plan.nodes.iter().filter(concerned).map(|node| node.nodes.min.max(1)).sum()
}

/// Puts each step after those of the pools that it comes after; otherwise the order stays.
fn in_turn(mut steps: Vec<NodeStep>) -> Vec<NodeStep> {
    let mut ordered: Vec<NodeStep> = Vec::new();
    while !steps.is_empty() {
        let free = |step: &NodeStep| !steps.iter().any(|other| step.after.contains(&other.role));
        // Pools never wait for each other in a circle; if they did, the first would be chosen.
        let at = steps.iter().position(free).unwrap_or_default();
        ordered.push(steps.remove(at));
    }
    ordered
}

fn is_weighted(wanted: &Wanted, role: &Role) -> bool {
    wanted.release.roles.get(role).is_some_and(|node| node.weighted)
}

/// The pools that `role` comes after.
fn after(plan: &Plan, role: &Role) -> Vec<Role> {
    let Role::Pool(name) = role else { return Vec::new() };
    let own = plan.policy.pools.get(name).into_iter().flat_map(|pool| &pool.after);
    own.map(|name| Role::Pool(name.clone())).collect()
}

/// The removal of a member. The name of its group follows from its stack, because the release does not have the member any more.
fn leaves(planned: &NodePlan) -> Option<NodeStep> {
    let index = planned.role.member().filter(|_| planned.action == NodeAction::Remove)?;
    let task = Leaver { tries: Tries::default(), phase: Phase::new(LeaverState::Look) };
    Some(step(planned, format!("{}-{index}", planned.stack), Task::Leaver(task)))
}

/// The snapshots before stacks are updated from which there is no other way back: members join an existing etcd (the step has the role of the
/// first existing member), or the template of controllers has another minor. From then on Auto Scaling may launch such a controller by itself,
/// and once its API server writes to etcd, the data may be readable only by that minor.
fn saves(plan: &Plan, release: &Rendering) -> Vec<NodeStep> {
    let exists = |planned: &&NodePlan| planned.action != NodeAction::Create;
    let (stay, join): (Vec<_>, Vec<_>) =
        plan.nodes.iter().filter(|planned| planned.role.member().is_some()).partition(exists);
    let joins = stay.first().filter(|_| !join.is_empty()).copied();
    let controllers = plan.nodes.iter().filter(exists).find(|planned| planned.role == Role::Controller);
    let minor = controllers.filter(|_| plan.minors.iter().any(|change| change.role == Role::Controller));
    let save = |planned: &NodePlan| {
        let node = release.roles.get(&planned.role)?;
        let task = Saver { tries: Tries::default(), phase: Phase::new(SaverState::Look) };
        Some(NodeStep {
            stack: node.stack.clone(),
            ..step(planned, group_of(&planned.role, node), Task::Saver(task))
        })
    };
    joins.into_iter().chain(minor).filter_map(save).collect()
}

/// The removal of a pool with its stack, which has the same name as its group.
fn goes(plan: &Plan, planned: &NodePlan) -> Option<NodeStep> {
    let Role::Pool(name) = &planned.role else { return None };
    let task = Removal {
        pace: plan.policy.pace(name),
        force_after_s: plan.policy.force_after_s(name),
        begun: BTreeSet::new(),
        empty: BTreeSet::new(),
        phase: Phase::new(RemovalState::Empty),
    };
    (planned.action == NodeAction::Remove).then(|| step(planned, planned.stack.clone(), Task::Removal(task)))
}

/// The look at the whole cluster, after all `others`. `None` for a release without controllers, as nobody could be asked.
fn closes(release: &Rendering, others: &[NodeStep]) -> Option<NodeStep> {
    let controllers = release.roles.get(&Role::Controller)?;
    let nodes = release.roles.iter().filter(|(role, _)| matches!(role, Role::Controller | Role::Pool(_)));
    let groups = nodes.map(|(role, node)| (role.clone(), group_of(role, node))).collect();
    let pools = others.iter().map(|step| &step.role).filter(|role| matches!(role, Role::Pool(_)));
    let pools: BTreeSet<Role> = pools.cloned().collect();
    Some(NodeStep {
        role: Role::Controller,
        stack: controllers.stack.clone(),
        group: group_of(&Role::Controller, controllers),
        after: pools.into_iter().collect(),
        minor: None,
        rounds: 0,
        task: Task::Closing(Closing::new(groups)),
    })
}

/// A step that has not begun.
fn step(planned: &NodePlan, group: String, task: Task) -> NodeStep {
    NodeStep {
        role: planned.role.clone(),
        stack: planned.stack.clone(),
        group,
        after: Vec::new(),
        minor: None,
        rounds: 0,
        task,
    }
}

/// The task for a role that stays.
fn task(plan: &Plan, planned: &NodePlan, node: &NodeRole, work: Work) -> Option<Task> {
    let credentials = || node.credentials_digest.clone();
    Some(match (&planned.role, work) {
        (Role::Etcd(_), Work::Refresh) => {
            let work = RefreshMember { credentials: credentials(), renewed: None };
            Task::MemberRefresh(member(work))
        }
        (Role::Etcd(_), Work::Replace) => Task::MemberReplace(member(ReplaceMember { replaced: false })),
        (Role::Controller, Work::Refresh) => {
            let work = ControllersWork::Refresh { credentials: credentials() };
            Task::Controllers(controllers(plan, work, node.nodes.min))
        }
        (Role::Controller, Work::Replace) => {
            Task::Controllers(controllers(plan, ControllersWork::Replace, node.nodes.min))
        }
        (Role::Controller, Work::Fewer) => {
            let work = ControllersWork::Fewer { before_stack: false };
            Task::Controllers(controllers(plan, work, node.nodes.min))
        }
        (Role::Pool(name), Work::Refresh) => Task::PoolRefresh(PoolRefresh {
            credentials: credentials(),
            pace: plan.policy.pace(name),
            tries: Tries::default(),
            done: BTreeSet::new(),
            phase: Phase::new(PoolRefreshState::Look { idle_since: None }),
        }),
        (Role::Pool(name), Work::Replace) => Task::Workers(Workers {
            size: node.nodes.min,
            most: node.nodes.max,
            pace: plan.policy.pace(name),
            weighted: node.weighted,
            force_after_s: plan.policy.force_after_s(name),
            extra: Extra::default(),
            done: BTreeSet::new(),
            given_up: BTreeMap::new(),
            proved: false,
            phase: Phase::new(WorkersState::Look { idle_since: None }),
        }),
        (Role::Etcd(_) | Role::Pool(_), Work::Fewer)
        | (_, Work::Save | Work::Leave | Work::Remove | Work::Look)
        | (Role::Admin, Work::Refresh | Work::Replace | Work::Fewer) => return None,
    })
}

fn member<W, A>(work: W) -> Member<W, A> {
    let phase = Phase::new(MemberState::Look { idle_since: None });
    Member { work, tries: Tries::default(), phase }
}

fn controllers(plan: &Plan, work: ControllersWork, size: u32) -> Controllers {
    Controllers {
        work,
        size,
        force_after_s: plan.policy.force_after_s(""),
        done: BTreeSet::new(),
        departs: None,
        tries: Tries::default(),
        phase: Phase::new(ControllersState::Look { idle_since: None }),
    }
}

/// The name of the group of `role`, as its agent knows it.
fn group_of(role: &Role, node: &NodeRole) -> String {
    NodeConfig::auto_scaling_group(&node.config).unwrap_or_else(|| match role {
        Role::Etcd(index) => format!("{}-{index}", node.stack),
        Role::Controller | Role::Pool(_) | Role::Admin => node.stack.clone(),
    })
}

impl Nodes {
    /// The members with the same kind of work whose turn comes after the step at `at`: those after it that are to be replaced or refreshed,
    /// or those before it that leave, because the newest one leaves first.
    pub(super) fn later_members(&self, at: usize) -> BTreeSet<Role> {
        let (role, leaves) = (&self.steps[at].role, self.steps[at].work() == Work::Leave);
        let is_later = |step: &&NodeStep| match leaves {
            true => step.work() == Work::Leave && step.role < *role,
            false => step.changes_member() && step.role > *role,
        };
        let open = self.steps.iter().filter(|step| !step.is_done());
        open.filter(is_later).map(|step| step.role.clone()).collect()
    }

    /// The credentials that the machines of `role` have installed in place; `None` if they did something else, or one was skipped.
    pub(in super::super) fn refreshed_to(&self, role: &Role) -> Option<&str> {
        let step = self.steps.iter().find(|step| step.role == *role && !step.is_final_check());
        step.filter(|step| !step.is_skipped()).and_then(NodeStep::refreshed_to)
    }

    /// The stacks of pools that are removed.
    pub(in super::super) fn removed_stacks(&self) -> impl Iterator<Item = &String> {
        self.steps.iter().filter(|step| step.work() == Work::Remove).map(|step| &step.stack)
    }

    /// Moves the work on a member before the step at `at`.
    pub(super) fn goes_first(&mut self, member: &Role, at: usize) {
        let is_work = |step: &NodeStep| step.changes_member() || step.work() == Work::Leave;
        let found = |step: &NodeStep| is_work(step) && step.role == *member;
        if let Some(from) = self.steps.iter().position(found).filter(|from| *from > at) {
            self.steps[at..=from].rotate_right(1);
        }
    }

    /// The steps of `wanted`.
    pub(in super::super) fn from_wanted(wanted: &Wanted) -> Self {
        let (plan, release): (&Plan, &Rendering) = (&wanted.plan, &wanted.release);
        let stays = |planned: &NodePlan, node: &NodeRole, task: Task| NodeStep {
            stack: node.stack.clone(),
            after: after(plan, &planned.role),
            minor: plan.minors.iter().find(|change| change.role == planned.role).map(MinorChange::words),
            ..step(planned, group_of(&planned.role, node), task)
        };
        let mut steps = saves(plan, release);
        let mut leaving = BTreeMap::new();
        for planned in &plan.nodes {
            let Some(node) = release.roles.get(&planned.role) else {
                steps.extend(goes(plan, planned));
                if let Some(one) = leaves(planned) {
                    leaving.insert(one.role.clone(), one.group.clone());
                    steps.push(one);
                }
                continue;
            };
            if planned.fewer {
                // Surplus controllers of an earlier rollout could exceed the maximum of the group when its stack is updated.
                let work = ControllersWork::Fewer { before_stack: true };
                let first = controllers(plan, work, node.nodes.max + 1);
                steps.push(NodeStep { minor: None, ..stays(planned, node, Task::Controllers(first)) });
            }
            let task =
                executes(plan, planned, node.weighted).and_then(|work| task(plan, planned, node, work));
            steps.extend(task.map(|task| stays(planned, node, task)));
        }
        // Removals come last, because pods may need the room until then.
        let pools =
            steps.iter().filter(|step| matches!(step.role, Role::Pool(_)) && step.work() != Work::Remove);
        let stay: Vec<Role> = pools.map(|step| step.role.clone()).collect();
        for step in steps.iter_mut().filter(|step| step.work() == Work::Remove) {
            step.after.clone_from(&stay);
        }
        // Of members to be removed, the newest comes first: controllers and people know the founders.
        let newest = |step: &NodeStep| step.role.member().filter(|_| step.work() == Work::Leave).map(Reverse);
        steps.sort_by(|a, b| (a.wave(), newest(a), &a.role).cmp(&(b.wave(), newest(b), &b.role)));
        let mut steps = in_turn(steps);
        steps.extend(closes(release, &steps));
        if steps.is_empty() {
            return Self::default();
        }
        let controllers = release.roles.get(&Role::Controller);
        let members = release.roles.iter().filter(|(role, _)| role.member().is_some());
        Self {
            steps,
            controllers: controllers.map(|node| group_of(&Role::Controller, node)),
            leaving,
            members: members.map(|(role, node)| (role.clone(), group_of(role, node))).collect(),
            snapshot_at: None,
            windows: plan.policy.windows.clone(),
            deadline: plan.renewal.deadline.clone(),
            overridden: BTreeMap::new(),
            budget: plan.policy.failure_budget,
            failures: 0,
        }
    }
}
