//! What holds of every drain: of any world at one moment, and of a world that is drained to its end.

use proptest::prelude::*;

use super::*;

/// A policy with rules of some seconds each, so that worlds near their edges are common.
fn policy() -> impl Strategy<Value = Policy> {
    let treatment = || prop_oneof![3 => Just(Treatment::Evict), 1 => Just(Treatment::Wait)];
    let seconds = || (0i64..40).prop_map(SignedDuration::from_secs);
    let force = (seconds(), seconds(), seconds(), seconds(), seconds()).prop_map(
        |(after, pod_age, healthy_for, unhealthy_for, interval)| Force {
            after,
            pod_age,
            healthy_for,
            unhealthy_for,
            interval,
        },
    );
    (prop::option::weighted(0.9, force), treatment(), treatment())
        .prop_map(|(force, empty_dir, bare)| Policy { force, empty_dir, bare })
}

fn moment() -> impl Strategy<Value = Timestamp> {
    (-60i64..5).prop_map(at)
}

/// Around the time after which a silent kubelet is not waited for.
fn long_ago() -> impl Strategy<Value = Timestamp> {
    (-600i64..5).prop_map(at)
}

fn any_pod(index: usize) -> impl Strategy<Value = Pod> {
    let owner = prop_oneof![
        5 => Just(Owner::Controller),
        1 => Just(Owner::DaemonSet),
        1 => Just(Owner::Kubelet),
        1 => Just(Owner::Nobody),
    ];
    let budgets = prop::collection::btree_set((0..3usize).prop_map(|n| named(&format!("budget-{n}"))), 0..3);
    let rarely = || prop::bool::weighted(0.1);
    (owner, moment(), prop::option::weighted(0.2, long_ago()), budgets, rarely(), rarely(), rarely())
        .prop_map(move |(owner, created, terminating, budgets, finished, empty_dir, tolerates_cordon)| Pod {
            owner,
            created,
            terminating,
            budgets,
            finished,
            empty_dir,
            tolerates_cordon,
            ..pod(&format!("pod-{index}"))
        })
}

fn any_try() -> impl Strategy<Value = Try> {
    let answer = prop_oneof![
        1 => Just(Answer::Accepted),
        5 => Just(Answer::Budget),
        2 => Just(Answer::TwoBudgets),
        1 => Just(Answer::Refused("no".to_owned())),
    ];
    (moment(), 1u32..9, answer).prop_map(|(at, count, answer)| Try { at, count, answer })
}

fn world() -> impl Strategy<Value = Observed> {
    let pods = prop::collection::vec((any::<u8>(), prop::option::weighted(0.8, any_try())), 0..6)
        .prop_flat_map(|tries| {
            let pods: Vec<_> = (0..tries.len()).map(any_pod).collect();
            (pods, Just(tries.into_iter().map(|(_, one)| one).collect::<Vec<_>>()))
        });
    let sibling = (0..9usize, prop::bool::ANY, moment())
        .prop_map(|(n, healthy, since)| sibling(&format!("pod-{n}"), healthy, since));
    let budget = (prop_oneof![4 => Just(0u32), 1 => Just(1)], prop::collection::vec(sibling, 0..4))
        .prop_map(|(allowed, pods)| Budget { allowed, pods });
    let node = (
        prop::bool::weighted(0.9),
        prop::option::weighted(0.9, moment()),
        prop::option::of(moment()),
        prop::option::of(long_ago()),
        prop::option::of(long_ago()),
    )
        .prop_map(|(cordoned, started, last_forced, silent, unable)| NodeState {
            cordoned,
            started,
            last_forced,
            silent,
            unable,
        });
    (pods, prop::collection::vec(budget, 3), node).prop_map(|((pods, tries), budgets, node)| Observed {
        tries: pods.iter().zip(tries).filter_map(|(pod, one)| Some((pod.uid.clone(), one?))).collect(),
        budgets: (0..3).map(|n| named(&format!("budget-{n}"))).zip(budgets).collect(),
        pods,
        node,
    })
}

/// The rules of force, written once more: from the text of facts.md, not from the code.
fn may_be_forced(world: &Observed, policy: &Policy, target: &Target, now: Timestamp) -> bool {
    let (Some(force), Some(pod)) = (&policy.force, world.pods.iter().find(|pod| pod.uid == target.uid))
    else {
        return false;
    };
    let for_long = |since: Timestamp, long: SignedDuration| since.checked_add(long).unwrap() <= now;
    let siblings = pod.budgets.iter().flat_map(|name| &world.budgets[name].pods);
    let tolerable = siblings.filter(|other| other.name != pod.name).all(|other| {
        for_long(other.since, if other.healthy { force.healthy_for } else { force.unhealthy_for })
    });
    let by_budget = match world.tries.get(&pod.uid).map(|last| &last.answer) {
        Some(Answer::Budget) => pod.budgets.iter().any(|name| world.budgets[name].allowed == 0),
        Some(Answer::TwoBudgets) => true,
        Some(Answer::Accepted | Answer::Refused(_)) | None => false,
    };
    world.node.cordoned
        && world.node.started.is_some_and(|started| for_long(started, force.after))
        && for_long(pod.created, force.pod_age)
        && tolerable
        && world.node.last_forced.is_none_or(|last| for_long(last, force.interval))
        && by_budget
        && pod.terminating.is_none()
        && !pod.finished
        && matches!(pod.owner, Owner::Controller | Owner::Nobody)
        && (pod.owner != Owner::Nobody || policy.bare == Treatment::Evict)
        && (!pod.empty_dir || policy.empty_dir == Treatment::Evict)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn p6_nothing_is_forced_unless_all_rules_hold(world in world(), policy in policy()) {
        let step = decide(&world, &policy, at(0));
        if let Some(target) = &step.force {
            prop_assert!(may_be_forced(&world, &policy, target, at(0)), "{target:?}");
        }
        for target in &step.evict {
            let pod = world.pods.iter().find(|pod| pod.uid == target.uid).unwrap();
            prop_assert!(matches!(pod.owner, Owner::Controller | Owner::Nobody) && pod.terminating.is_none());
        }
    }

    #[test]
    fn every_pod_is_accounted_for_and_done_means_that_none_is_waited_for(world in world(), policy in policy()) {
        let step = decide(&world, &policy, at(0));
        if step.begin {
            prop_assert_eq!(step, Step { begin: true, look_again: Some(at(0)), ..Step::default() });
        } else {
            prop_assert_eq!(step.waiting.len() + step.skipped.len(), world.pods.len());
            prop_assert_eq!(step.done, step.waiting.is_empty());
            prop_assert_eq!(step.done, step.look_again.is_none());
            prop_assert!(step.waiting.iter().all(|waiting| !waiting.why.is_empty()));
        }
    }

    #[test]
    fn the_order_in_which_pods_are_listed_changes_nothing(
        (world, shuffled) in world().prop_flat_map(|world| {
            let pods = Just(world.pods.clone()).prop_shuffle();
            (Just(world), pods)
        }),
        policy in policy(),
    ) {
        let other = Observed { pods: shuffled, ..world.clone() };
        prop_assert_eq!(decide(&world, &policy, at(0)), decide(&other, &policy, at(0)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn p6_a_drain_ends_never_below_its_budget_and_by_force_only_where_nothing_else_ends_it(
        apps in prop::collection::vec((1u32..5, 0u32..6, 1i64..90), 1..4),
        forced in prop::bool::ANY,
        killed_every in 1u32..9,
    ) {
        let policy = if forced { Policy::with(Some(quick())) } else { gentle() };
        let ended = Apps::new(&apps).drain(&policy, killed_every);
        let blocked = apps.iter().filter(|(replicas, demanded, _)| demanded >= replicas).count();
        prop_assert_eq!(ended.done, forced || blocked == 0, "{:?}", ended);
        if !forced || blocked == 0 {
            prop_assert!(ended.forced.is_empty(), "{:?}", ended);
        }
        for gap in ended.forced.windows(2) {
            prop_assert!(gap[1] - gap[0] >= 30);
        }
        prop_assert!(ended.forced.first().is_none_or(|first| *first >= 600));
    }
}

fn quick() -> Force {
    let seconds = SignedDuration::from_secs;
    Force {
        after: seconds(600),
        pod_age: seconds(60),
        healthy_for: seconds(20),
        unhealthy_for: seconds(60),
        interval: seconds(30),
    }
}

/// Deployments with a budget each, all of their pods on the node at first; those that go come back elsewhere after some seconds.
struct Apps {
    world: Observed,
    /// How many must be healthy, and how long one takes to become it.
    rules: Vec<(u32, i64)>,
    /// Pods elsewhere, by their application: since when they are healthy, or when they will be.
    elsewhere: Vec<(usize, i64)>,
}

#[derive(Debug)]
struct Ended {
    done: bool,
    forced: Vec<i64>,
}

impl Apps {
    fn new(apps: &[(u32, u32, i64)]) -> Self {
        let mut world = Observed::default();
        for (app, (replicas, ..)) in apps.iter().enumerate() {
            let budget = named(&format!("app-{app}"));
            let pods = (0..*replicas)
                .map(|n| Pod { budgets: [budget.clone()].into(), ..pod(&format!("app-{app}-{n}")) });
            world.pods.extend(pods);
        }
        let rules = apps.iter().map(|(_, demanded, slow)| (*demanded, *slow)).collect();
        Self { world, rules, elsewhere: Vec::new() }
    }

    fn app(&self, pod: &Pod) -> usize {
        let name = &pod.budgets.first().unwrap().name;
        name.trim_start_matches("app-").parse().unwrap()
    }

    fn healthy(&self, app: usize, now: i64) -> u32 {
        let here = self.world.pods.iter().filter(|pod| self.app(pod) == app).count();
        let there = self.elsewhere.iter().filter(|(of, at)| *of == app && *at <= now).count();
        u32::try_from(here + there).unwrap()
    }

    fn update_budgets(&mut self, now: i64) {
        for (app, (demanded, slow)) in self.rules.clone().into_iter().enumerate() {
            let here = self.world.pods.iter().filter(|pod| self.app(pod) == app);
            let here = here.map(|pod| Sibling { name: pod.name.clone(), healthy: true, since: pod.created });
            let there = self.elsewhere.iter().enumerate().filter(|(_, (of, _))| *of == app);
            let there = there.map(|(n, (_, from))| {
                let healthy = *from <= now;
                sibling(&format!("new-{n}"), healthy, at(if healthy { *from } else { *from - slow }))
            });
            let pods = here.chain(there).collect();
            let allowed = self.healthy(app, now).saturating_sub(demanded);
            self.world.budgets.insert(named(&format!("app-{app}")), Budget { allowed, pods });
        }
    }

    fn remove_pod(&mut self, target: &Target, now: i64) {
        let position = self.world.pods.iter().position(|pod| pod.uid == target.uid).unwrap();
        let pod = self.world.pods.remove(position);
        let app = self.app(&pod);
        self.elsewhere.push((app, now + self.rules[app].1));
    }

    fn evict(&mut self, target: &Target, now: i64) -> Answer {
        let pod = self.world.pods.iter().find(|pod| pod.uid == target.uid).unwrap();
        let app = self.app(pod);
        if self.healthy(app, now) <= self.rules[app].0 {
            return Answer::Budget;
        }
        self.remove_pod(target, now);
        assert!(self.healthy(app, now) >= self.rules[app].0, "below the budget");
        Answer::Accepted
    }

    /// Looks each second; every so often the process dies, and what it only remembered is gone.
    fn drain(mut self, policy: &Policy, killed_every: u32) -> Ended {
        let mut forced = Vec::new();
        for now in 0..2000 {
            if u32::try_from(now).unwrap() % (killed_every * 60) == 0 {
                self.world.tries.clear();
            }
            self.update_budgets(now);
            let step = decide(&self.world, policy, at(now));
            if step.done {
                return Ended { done: true, forced };
            }
            if step.begin {
                self.world.node.cordoned = true;
                self.world.node.started = Some(at(now));
            }
            for target in &step.evict {
                let count = self.world.tries.get(&target.uid).map_or(1, |last| last.count + 1);
                let answer = self.evict(target, now);
                self.world.tries.insert(target.uid.clone(), Try { at: at(now), count, answer });
            }
            if let Some(target) = &step.force {
                self.world.node.last_forced = Some(at(now));
                self.remove_pod(target, now);
                forced.push(now);
            }
        }
        Ended { done: false, forced }
    }
}
