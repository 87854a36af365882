//! The steps of a plan, their order, and what a person has to handle.

use super::super::upgrades::of_versions;
use super::*;
use crate::nodes::{Controllers, ControllersWork, nodes_for_a_person};
use slipway_core::cluster::PoolRollout;

fn steps(yard: &Yard) -> Vec<NodeStep> {
    let steps = Nodes::from_wanted(&yard.wanted).steps;
    // The look at the whole cluster comes last in every rollout.
    let (last, others) = steps.split_last().unwrap();
    assert!(last.is_final_check() && !others.iter().any(NodeStep::is_final_check), "{steps:?}");
    others.to_vec()
}

fn roles(steps: &[NodeStep]) -> Vec<String> {
    steps.iter().map(|step| step.role.to_string()).collect()
}

/// With pools of these names that are like pool a.
fn with_pools(mut release: Rendering, names: &[&str]) -> Rendering {
    let node = release.roles[&Role::Pool("a".to_owned())].clone();
    release.stacks.retain(|stack| stack.name != "c-pool-b");
    let of_a = release.stacks.iter().find(|stack| stack.name == node.stack).unwrap().clone();
    for name in names {
        let stack = format!("c-pool-{name}");
        release.stacks.push(Stack { name: stack.clone(), ..of_a.clone() });
        release.roles.insert(Role::Pool((*name).to_owned()), NodeRole { stack, ..node.clone() });
    }
    release
}

#[test]
fn p5_where_there_are_to_be_fewer_controllers_one_leaves_before_their_stack_is_updated_and_one_after_it() {
    let three = Size { controllers: 3, ..SMALL };
    let yard = Yard::between(&release(&three, None), release(&SMALL, None), &|_| false, &auto());
    let controllers = steps(&yard).into_iter().map(|step| {
        let Task::Controllers(Controllers { work, size, .. }) = step.task else { panic!("{step:?}") };
        (work, size)
    });
    let fewer = |before_stack| ControllersWork::Fewer { before_stack };
    // The group may have one more than its two machines, and before its update another one.
    assert_eq!(controllers.collect::<Vec<_>>(), [(fewer(true), 4), (fewer(false), 2)]);
    assert_eq!(nodes_for_a_person(&yard.wanted), 0);
}

#[test]
fn each_role_is_told_which_minor_release_it_goes_to_and_no_others() {
    let (before, mut after) = (of_versions(1, "1.36.2", "3.6.4", 30), of_versions(1, "1.37.0", "3.7.3", 30));
    after.roles.values_mut().for_each(|node| node.machine = json!({"ImageId": "ami-2"}));
    let yard = Yard::between(&before, after, &|_| false, &auto());
    let minors: Vec<(String, Option<String>)> =
        steps(&yard).into_iter().map(|step| (step.role.to_string(), step.minor)).collect();
    let etcd = Some("etcd 3.6 → 3.7".to_owned());
    assert_eq!(
        minors,
        [
            ("etcd-0".to_owned(), etcd.clone()),
            ("etcd-1".to_owned(), etcd.clone()),
            ("etcd-2".to_owned(), etcd),
            // A snapshot is taken before their stack is updated.
            ("controller".to_owned(), None),
            ("controller".to_owned(), Some("Kubernetes 1.36 → 1.37".to_owned())),
            ("pool-a".to_owned(), None),
        ]
    );
}

#[test]
fn p6_workers_that_cannot_be_replaced_one_by_one_are_counted_for_a_person_and_no_others() {
    // No machine may be missing: an additional one would have to come first, and nobody knows how many machines a capacity unit is.
    let policy = RolloutPolicy {
        max_unavailable: CountOrPercent::Count(0),
        surge: CountOrPercent::Count(1),
        ..auto()
    };
    for (weighted, nodes_by_hand, worked_on) in [(false, 0, &["pool-a"][..]), (true, 3, &[])] {
        let of = |mut release: Rendering| {
            release.roles.values_mut().for_each(|node| node.weighted = weighted);
            release
        };
        let after = of(release(&SMALL, Some((Change::Machines, &is_worker))));
        let yard = Yard::between(&of(release(&SMALL, None)), after, &is_worker, &policy);
        assert_eq!(nodes_for_a_person(&yard.wanted), nodes_by_hand, "{weighted}");
        assert_eq!(roles(&steps(&yard)), worked_on, "{weighted}");
    }
}

#[test]
fn p6_pools_come_after_those_that_they_are_to_follow_and_one_that_goes_after_all_that_stay() {
    let follows = |pool: &str, first: &[&str]| {
        let after = first.iter().map(|name| (*name).to_owned()).collect();
        (pool.to_owned(), PoolRollout { after, ..PoolRollout::default() })
    };
    let pools = BTreeMap::from([follows("a", &["c"]), follows("c", &["d"])]);
    let before = with_pools(release(&SMALL, None), &["b", "c", "d", "e"]);
    let mut after = with_pools(release(&SMALL, Some((Change::Machines, &is_worker))), &["c", "d", "e"]);
    // Controllers are replaced as well; they are no pool that another pool waits for.
    let controllers = after.roles.get_mut(&Role::Controller).unwrap();
    controllers.machine = json!({"InstanceType": "m7i.xlarge"});
    let yard = Yard::between(&before, after, &is_worker, &RolloutPolicy { pools, ..auto() });
    let steps = steps(&yard);
    assert_eq!(roles(&steps), ["controller", "pool-d", "pool-c", "pool-a", "pool-e", "pool-b"]);
    let after: Vec<Vec<String>> =
        steps.iter().map(|step| step.after.iter().map(ToString::to_string).collect()).collect();
    let stay = ["pool-a", "pool-c", "pool-d", "pool-e"].map(str::to_owned);
    assert_eq!(after[..3], [vec![], vec![], vec!["pool-d".to_owned()]]);
    assert_eq!(after[3..], [vec!["pool-c".to_owned()], vec![], stay.to_vec()]);
}
