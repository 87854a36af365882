//! Which member or controller is unsafe to take down, and why (P4, P5). Everything that takes a machine down asks this module first.
//!
//! Decisions are based on recent answers of machines about themselves and each other. A machine that did not answer is not healthy.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::report::ComponentName;
use slipway_core::node::{EtcdHealth, EtcdMemberHealth, NodeStatus, Word};
use slipway_core::role::Role;

use super::super::fleet::{MachineView, TargetHealth};
use super::super::waits::{Danger, Detail};

/// The number of entries that a voter may lack compared with its leader. A voter that keeps up lacks none or a few. With more, it would
/// have to catch up before it could replace the member that is taken down.
pub(super) const LAG: u64 = 10;

/// The maximum age of the newest snapshot when a member is taken down (P4).
pub(super) const SNAPSHOT_AGE: SignedDuration = SignedDuration::from_mins(15);

/// Each member's answer, or why there is none.
pub(super) type Answers = BTreeMap<Role, Result<EtcdHealth, NoAnswer>>;

/// Why no answer of a member counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// It gave none that can be read; the reason.
    Silent(String),
    /// Auto Scaling is about to replace this machine, `i-…`. The member may serve until then.
    ReplacedByOthers(String),
}

impl From<String> for NoAnswer {
    fn from(problem: String) -> Self {
        Self::Silent(problem)
    }
}

/// Why `target` may not be taken down now; empty if it may. With `None`: why the members are not all healthy.
pub(super) fn of_member(target: Option<&Role>, answers: &Answers) -> Vec<Danger> {
    let mut dangers = BTreeSet::new();
    let mut clusters = BTreeSet::new();
    for (role, answer) in answers.iter().filter(|(role, _)| Some(*role) != target) {
        match answer {
            Err(NoAnswer::Silent(problem)) => {
                dangers.insert(Danger::SilentMember { role: role.clone(), problem: Detail(problem.clone()) });
            }
            Err(NoAnswer::ReplacedByOthers(machine)) => {
                dangers.insert(Danger::ReplacedByOthers(machine.clone()));
            }
            Ok(health) => {
                clusters.extend(health.cluster_id.as_ref());
                dangers.extend(of_itself(role, health));
                dangers.extend(of_its_fellows(role, health, target, answers.len()));
            }
        }
    }
    // The member to be taken down may see more than the others, because it may have answered last. Its answer counts as long as it serves.
    // A member that is cut off reaches nobody, and is replaced for that reason.
    if let Some((role, Ok(own))) =
        target.and_then(|target| answers.get_key_value(target)).filter(|_| answers.len() > 1)
        && own.serving
    {
        let others = own.members.iter().filter(|member| member.name != role.to_string());
        dangers.extend(others.filter_map(|member| unreachable(role, member)));
    }
    // An alarm concerns the whole cluster, whichever member reports it; a single member reports it itself.
    let alarms = answers.values().flatten().flat_map(|health| &health.alarms);
    dangers.extend(alarms.map(|alarm| Danger::Alarm(alarm.kind.to_string())));
    // No other member reports on a single member either: if it does not answer, it may have an alarm, or its answer may only be late.
    if answers.len() == 1
        && let Some((role, Err(NoAnswer::Silent(problem)))) =
            target.and_then(|target| answers.get_key_value(target))
    {
        dangers.insert(Danger::SilentEtcd { role: role.clone(), problem: Detail(problem.clone()) });
    }
    if clusters.len() > 1 {
        dangers.insert(Danger::TwoClusters);
    }
    // Taking down a single member takes down the whole of etcd: it comes back with its data, and a snapshot is enough.
    let (voters, others) = (answers.len(), answers.len().saturating_sub(1));
    if target.is_some() && voters > 1 && others < voters / 2 + 1 {
        dangers.insert(Danger::NoneToSpare { voters });
    }
    dangers.into_iter().collect()
}

/// What is not healthy in a member's answer about itself.
fn of_itself(role: &Role, health: &EtcdHealth) -> Vec<Danger> {
    let mut dangers = Vec::new();
    if health.learner {
        dangers.push(Danger::Learner(role.clone()));
    } else if !health.serving {
        dangers.push(Danger::NotServing { role: role.clone(), problems: Detail(health.problems.clone()) });
    }
    match health.raft_lag {
        Some(entries) if entries > LAG => {
            let (role, entries) = (role.clone(), Detail(entries));
            dangers.push(Danger::Behind { role, entries, limit: LAG });
        }
        Some(_) => {}
        None => dangers.push(Danger::NoLeader(role.clone())),
    }
    dangers
}

/// What is not healthy in a member's answer about the others, with `expected` members in all; `target` is the member to be taken down.
fn of_its_fellows(role: &Role, health: &EtcdHealth, target: Option<&Role>, expected: usize) -> Vec<Danger> {
    let mut dangers = Vec::new();
    if health.members.len() != expected {
        dangers.push(Danger::Membership { has: health.members.len(), expected });
    }
    for member in &health.members {
        if member.learner {
            dangers.push(Danger::LearnerInMembership(member.name.clone()));
        }
        if target.is_none_or(|target| target.to_string() != member.name) {
            dangers.extend(unreachable(role, member));
        }
    }
    dangers
}

fn unreachable(role: &Role, member: &EtcdMemberHealth) -> Option<Danger> {
    let (member, problem) =
        (!member.reachable).then(|| (member.name.clone(), Detail(member.problem.clone())))?;
    Some(Danger::Unreachable { role: role.clone(), member, problem })
}

/// Whether a snapshot of the time `at` still counts.
pub(super) fn is_fresh_snapshot(at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_some_and(|at| now.duration_since(at) <= SNAPSHOT_AGE)
}

/// Until when it counts.
pub(super) fn counts_until(at: Option<Timestamp>) -> Option<Timestamp> {
    at.map(|at| at.saturating_add(SNAPSHOT_AGE).unwrap_or(Timestamp::MAX))
}

/// Why no controller may be taken down now: `others` are all that stay, by machine. Empty if one may.
pub(super) fn of_controller(others: &BTreeMap<String, Result<NodeStatus, String>>) -> Vec<Danger> {
    let mut dangers = Vec::new();
    for (machine, answer) in others {
        let status = match answer {
            Ok(status) => status,
            Err(problem) => {
                let (machine, problem) = (machine.clone(), Detail(problem.clone()));
                dangers.push(Danger::SilentController { machine, problem });
                continue;
            }
        };
        let ill = status.components.iter().filter(|component| !component.healthy);
        dangers.extend(ill.map(|component| Danger::Component {
            name: component.name.clone(),
            machine: machine.clone(),
            problem: Detail(component.problem.clone()),
        }));
        if !status.components.iter().any(|component| component.name == Word::Known(ComponentName::ApiServer))
        {
            dangers.push(Danger::NoApiServer(machine.clone()));
        }
    }
    dangers
}

/// Why no controller may be taken down now, according to the load balancers' view of `others`, all that serve and stay: a controller that
/// receives no requests yet replaces none (P5).
pub(super) fn of_targets<'a>(
    others: impl Iterator<Item = (&'a String, &'a MachineView)>,
) -> impl Iterator<Item = Danger> {
    others.filter_map(|(machine, view)| match &view.target {
        TargetHealth::Healthy | TargetHealth::NoTargetGroup => None,
        TargetHealth::NotHealthy(why) => {
            Some(Danger::NoTarget { machine: machine.clone(), why: Some(Detail(why.clone())) })
        }
        TargetHealth::NotAsked => Some(Danger::NoTarget { machine: machine.clone(), why: None }),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use slipway_core::node::EtcdAlarm;

    use super::*;

    fn dangers_of(target: Option<&Role>, answers: &Answers) -> Vec<String> {
        of_member(target, answers).iter().map(ToString::to_string).collect()
    }

    fn well(index: u32, of: u32) -> EtcdHealth {
        let member = |index: u32| EtcdMemberHealth {
            name: Role::Etcd(index).to_string(),
            reachable: true,
            raft_lag: Some(0),
            ..EtcdMemberHealth::default()
        };
        EtcdHealth {
            name: Role::Etcd(index).to_string(),
            healthy: true,
            serving: true,
            cluster_id: Some("c".to_owned()),
            raft_lag: Some(0),
            members: (0..of).map(member).collect(),
            ..EtcdHealth::default()
        }
    }

    fn all(of: u32) -> Answers {
        (0..of).map(|index| (Role::Etcd(index), Ok(well(index, of)))).collect()
    }

    fn change(answers: &mut Answers, index: u32, change: impl FnOnce(&mut EtcdHealth)) {
        change(answers.get_mut(&Role::Etcd(index)).unwrap().as_mut().unwrap());
    }

    #[test]
    fn p4_a_member_goes_only_while_every_other_voter_is_well() {
        let target = Role::Etcd(0);
        for of in [1, 3, 5] {
            assert_eq!(dangers_of(Some(&target), &all(of)), Vec::<String>::new(), "{of}");
        }
        assert_eq!(dangers_of(Some(&target), &all(2)), ["none of the 2 members may be missing"]);
        type Spoil = fn(&mut EtcdHealth);
        let cases: [(Spoil, &str); 7] = [
            (|one| one.learner = true, "etcd-1 is a learner, and has no vote yet"),
            (|one| one.serving = false, "etcd-1 does not serve: "),
            (|one| one.raft_lag = Some(48), "etcd-1 has to catch up (raft index 48 behind, limit 10)"),
            (|one| one.raft_lag = None, "etcd-1 knows of no leader that answers"),
            (
                |one| one.alarms.push(EtcdAlarm { member: "1".to_owned(), kind: "NOSPACE".to_owned() }),
                "the alarm NOSPACE is raised",
            ),
            (|one| one.members[2].reachable = false, "etcd-1 cannot reach etcd-2: it does not say why"),
            (|one| one.cluster_id = Some("another".to_owned()), "the members belong to different clusters"),
        ];
        for (spoil, reason) in cases {
            let mut answers = all(3);
            change(&mut answers, 1, spoil);
            assert_eq!(dangers_of(Some(&target), &answers), [reason]);
            assert_eq!(dangers_of(None, &answers), [reason]);
        }
        let mut answers = all(3);
        answers.insert(Role::Etcd(2), Err("it is gone".to_owned().into()));
        assert_eq!(dangers_of(Some(&target), &answers), ["etcd-2 does not answer: it is gone"]);
        // A member that is not in the release, for example a learner.
        let mut answers = all(3);
        for index in 0..3 {
            change(&mut answers, index, |one| {
                let new =
                    EtcdMemberHealth { name: "etcd-3".to_owned(), learner: true, ..one.members[0].clone() };
                one.members.push(new);
            });
        }
        let reasons = dangers_of(Some(&target), &answers);
        assert_eq!(
            reasons,
            ["the membership has 4 members, and the cluster 3", "the membership has a learner, etcd-3"]
        );
    }

    #[test]
    fn p4_a_single_member_that_does_not_answer_stays_and_one_of_three_may_go() {
        for (of, reasons) in [(1, &["etcd-0, the only member of etcd, does not answer: lost"][..]), (3, &[])]
        {
            let mut answers = all(of);
            answers.insert(Role::Etcd(0), Err("lost".to_owned().into()));
            assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), reasons, "{of}");
        }
    }

    /// A single member is the whole cluster: other members in its list do not count.
    #[test]
    fn p4_a_single_member_goes_although_it_cannot_reach_somebody_whom_the_cluster_does_not_have() {
        let mut answers = all(1);
        change(&mut answers, 0, |own| {
            own.members.push(EtcdMemberHealth { reachable: false, ..well(1, 2).members.remove(1) });
        });
        assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), Vec::<String>::new());
    }

    #[test]
    fn p4_no_member_goes_while_an_alarm_is_raised_whoever_tells_of_it() {
        let alarm = |one: &mut EtcdHealth| {
            one.alarms.push(EtcdAlarm { member: "0".to_owned(), kind: "CORRUPT".to_owned() });
        };
        for of in [1, 3] {
            let mut answers = all(of);
            change(&mut answers, 0, alarm);
            assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), ["the alarm CORRUPT is raised"], "{of}");
        }
    }

    #[test]
    fn p4_what_the_member_that_is_to_go_says_of_its_fellows_counts_as_long_as_it_serves() {
        let mut answers = all(3);
        change(&mut answers, 0, |own| own.members[1].reachable = false);
        let reasons = ["etcd-0 cannot reach etcd-1: it does not say why"];
        assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), reasons);
        change(&mut answers, 0, |own| own.serving = false);
        assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), Vec::<String>::new());
    }

    #[test]
    fn p4_a_member_that_is_ill_itself_may_be_replaced_and_none_beside_it() {
        let mut answers = all(3);
        answers.insert(Role::Etcd(0), Err("it is gone".to_owned().into()));
        for index in 1..3 {
            change(&mut answers, index, |one| one.members[0].reachable = false);
        }
        assert_eq!(dangers_of(Some(&Role::Etcd(0)), &answers), Vec::<String>::new());
        assert!(!dangers_of(Some(&Role::Etcd(1)), &answers).is_empty());
        assert!(!dangers_of(None, &answers).is_empty());
    }

    #[test]
    fn p4_a_snapshot_counts_for_fifteen_minutes() {
        let now = Timestamp::from_second(100_000).unwrap();
        let before = |minutes| Some(now - SignedDuration::from_mins(minutes));
        assert!(is_fresh_snapshot(before(15), now));
        assert!(!is_fresh_snapshot(before(16), now));
        assert!(!is_fresh_snapshot(None, now));
    }

    /// A controller with these components.
    fn status(components: &[(&str, bool)]) -> NodeStatus {
        let component = |(name, healthy): &(&str, bool)| json!({"name": name, "healthy": healthy});
        let components: Vec<_> = components.iter().map(component).collect();
        serde_json::from_value(json!({
            "format": 1, "at": "1970-01-01T00:00:00Z", "cluster": "c", "role": "controller", "healthy": true,
            "applied": {"matchesNodeFile": true}, "served": [], "held": [], "components": components,
        }))
        .unwrap()
    }

    #[test]
    fn p5_a_controller_goes_only_while_every_component_of_each_other_is_well() {
        let reasons_of = |answer: Result<NodeStatus, String>| -> Vec<String> {
            let well = || Ok(status(&[("kube-apiserver", true)]));
            let others = BTreeMap::from([("i-1".to_owned(), answer), ("i-2".to_owned(), well())]);
            of_controller(&others).iter().map(ToString::to_string).collect()
        };
        let [api, manager, scheduler, kubelet] =
            ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet"];
        let all = [api, manager, scheduler, kubelet];
        assert_eq!(reasons_of(Ok(status(&all.map(|name| (name, true))))), [""; 0]);
        // Including a component that this code does not know.
        for ill in [api, manager, scheduler, kubelet, "kube-vip"] {
            let mut components: Vec<(&str, bool)> = all.iter().map(|name| (*name, *name != ill)).collect();
            if !all.contains(&ill) {
                components.push((ill, false));
            }
            let reason = format!("{ill} on i-1 is not healthy: it does not say why");
            assert_eq!(reasons_of(Ok(status(&components))), [reason], "{ill}");
        }
        let two = reasons_of(Ok(status(&[(api, true), (manager, false), (scheduler, false)])));
        assert_eq!(two.len(), 2, "{two:?}");
        let none = "i-1 reports no kube-apiserver";
        assert_eq!(reasons_of(Ok(status(&[]))), [none]);
        assert_eq!(reasons_of(Ok(status(&[(manager, true), (scheduler, true), (kubelet, true)]))), [none]);
        assert_eq!(reasons_of(Err("lost".to_owned())), ["i-1 does not answer: lost"]);
        assert_eq!(of_controller(&BTreeMap::new()), []);
    }
}
