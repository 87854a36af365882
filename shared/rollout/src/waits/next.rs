//! The next command about each waiting reason. A person who reads that something is waited for can run it.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::destruction::GoingWaits;
use super::{
    Boot, Danger, Departs, Gap, HeldBy, HowFar, Idle, Kept, RolloutWaits, StackWaits, Waits, WorkersWait,
};

/// How much a waiting reason needs a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// It goes on by itself.
    Nobody,
    /// It goes on by itself, and a person can look at it or hurry it.
    Can,
    /// It goes on only, or sooner, after a person did something.
    Must,
}

/// What a person can run about a waiting reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Next {
    need: Need,
    words: String,
}

impl Next {
    fn must(words: String) -> Self {
        Self { need: Need::Must, words }
    }

    fn can(words: String) -> Self {
        Self { need: Need::Can, words }
    }

    fn nothing(cluster: &str) -> Self {
        let words = format!("nothing has to be done; `slipway pause --cluster {cluster}` holds it");
        Self { need: Need::Nobody, words }
    }

    /// The state of each machine.
    fn status(cluster: &str) -> Self {
        Self::can(format!("`slipway status --cluster {cluster}` shows what each machine reports"))
    }

    /// Another spec.
    fn spec(cluster: &str, with: &str) -> Self {
        Self::can(format!("`slipway apply cluster.yaml --cluster {cluster}` with {with} ends the wait"))
    }

    /// The same spec again, after whatever failed was resolved.
    fn again(cluster: &str) -> Self {
        Self::must(format!("resolve that, then `slipway apply cluster.yaml --cluster {cluster}` continues"))
    }

    /// Whatever CloudFormation does with a stack.
    fn stack(name: &str) -> Self {
        Self::can(format!(
            "`aws cloudformation describe-stack-events --stack-name {name}` shows how far it is"
        ))
    }

    /// The one of several that needs a person most.
    fn first(all: impl IntoIterator<Item = Self>, cluster: &str) -> Self {
        // Of equals the first one, so that the same reasons have the same command.
        all.into_iter()
            .reduce(|best, next| if next.need > best.need { next } else { best })
            .unwrap_or_else(|| Self::nothing(cluster))
    }

    /// The sentence for people.
    pub(crate) fn words(self) -> String {
        self.words
    }
}

impl Waits {
    fn next(&self, cluster: &str) -> Next {
        match self {
            Self::Failed(_) => Next::again(cluster),
            Self::Boot(_, boots) => of_boots(boots, cluster),
            Self::Window { .. } => Next::spec(cluster, "other rollout.windows"),
            Self::AnotherTry(_) => Next::status(cluster),
            Self::Dangers(dangers) => Next::first(dangers.iter().map(|one| one.next(cluster)), cluster),
            Self::Serves(gaps) => Next::first(gaps.iter().map(|one| one.next(cluster)), cluster),
            Self::Departure(departs) => departs.next(cluster),
            Self::Workers(waits) => waits.next(cluster),
            Self::Removal { departs, idle, .. } => {
                let idle = idle.iter().map(|one| one.next(cluster));
                Next::first(departs.iter().map(|one| one.next(cluster)).chain(idle), cluster)
            }
            Self::Kept(kept) | Self::Deletion { kept: Some(kept), .. } => kept.next(),
            Self::Standby { group, machine } => Next::must(format!(
                "`aws autoscaling exit-standby --auto-scaling-group-name {group} --instance-ids {machine}` puts it back into service, so that it is \
                 drained; or terminate it"
            )),
            Self::Look(_)
            | Self::SecondLook(_)
            | Self::Snapshot
            | Self::Answers(_)
            | Self::Leader
            | Self::Replaced
            | Self::Credentials(_)
            | Self::MemberRemoval
            | Self::MemberThatStays
            | Self::Uncordon(_)
            | Self::ControllerLeaves
            | Self::OneMoreController
            | Self::StackBusy(_)
            | Self::DeletionBegins { .. }
            | Self::Deletion { kept: None, .. } => Next::nothing(cluster),
        }
    }
}

/// Machines boot. If the bootstrap of one failed, its group replaces it and the next one will probably fail, too.
fn of_boots(boots: &[Boot], cluster: &str) -> Next {
    match boots.iter().find(|boot| boot.failure.is_some()) {
        Some(boot) => Next::must(format!(
            "`aws ec2 get-console-output --latest --output text --instance-id {}` shows its bootstrap, and `slipway status --cluster {cluster}` what \
             helps",
            boot.machine
        )),
        None => Next::status(cluster),
    }
}

impl Danger {
    fn next(&self, cluster: &str) -> Next {
        match self {
            Self::CannotLaunch(group) => Next::must(format!(
                "`aws autoscaling resume-processes --auto-scaling-group-name {group} --scaling-processes Launch`"
            )),
            Self::LeadsOutOfService(_) => {
                Next::must("put its machine back into service (`aws autoscaling exit-standby`)".to_owned())
            }
            // Both end by themselves.
            Self::Lingers(_) | Self::StillToCome { .. } => Next::nothing(cluster),
            Self::TooFew { boots, .. } => of_boots(boots, cluster),
            Self::Behind { .. } | Self::Learner(_) | Self::LearnerInMembership(_) => Next::status(cluster),
            Self::NoTarget { machine, .. } => Next::can(format!(
                "`aws elbv2 describe-target-health --target-group-arn ARN` shows why the load balancer does not send requests to {machine}"
            )),
            Self::ReplacedByOthers(machine) => Next::can(format!(
                "`aws autoscaling describe-auto-scaling-instances --instance-ids {machine}` shows its health; if it stays, its group's process \
                 ReplaceUnhealthy may be suspended"
            )),
            Self::SilentMember { .. }
            | Self::SilentEtcd { .. }
            | Self::NotServing { .. }
            | Self::NoLeader(_)
            | Self::Membership { .. }
            | Self::Unreachable { .. }
            | Self::Alarm(_)
            | Self::TwoClusters
            | Self::NoneToSpare { .. }
            | Self::SilentController { .. }
            | Self::Component { .. }
            | Self::NoApiServer(_) => Next::must(format!(
                "`slipway status --cluster {cluster}` shows what each machine reports; the rollout goes on once it is resolved"
            )),
        }
    }
}

impl Gap {
    fn next(&self, cluster: &str) -> Next {
        match self {
            Self::Changed { .. } => Next::nothing(cluster),
            Self::Fewer { boots, .. } => of_boots(boots, cluster),
            Self::Nodes { not_ready, .. } => match not_ready.first() {
                Some(node) => Next::must(format!(
                    "`kubectl describe node {node}` shows why; or `slipway skip {node} --cluster {cluster}` leaves it out"
                )),
                None => Next::must(
                    "`kubectl get nodes --label-columns slipway/pool` shows which are missing".to_owned(),
                ),
            },
            Self::NodeManager { machine, .. } => Next::must(format!(
                "`slipway logs {machine} --cluster {cluster} --unit agent` shows what its node manager does (slipway-manage)"
            )),
            Self::NoController
            | Self::Silent { .. }
            | Self::ApiServer { .. }
            | Self::Component { .. }
            | Self::NoMember { .. }
            | Self::NoQuorum
            | Self::Member { .. }
            | Self::NoGroup { .. }
            | Self::NodesUnknown => Next::must(format!(
                "`slipway status --cluster {cluster}` shows what each machine reports; the rollout goes on once it is resolved"
            )),
        }
    }
}

impl Departs {
    fn next(&self, cluster: &str) -> Next {
        let machine = &self.machine;
        match &self.how {
            HowFar::Drains(Some(HeldBy::Pods(_))) => Next::must(format!(
                "`kubectl get pdb -A` shows the budgets; let one allow a disruption, or `slipway skip {machine} --cluster {cluster}` leaves the \
                 machine as it is"
            )),
            HowFar::Drains(Some(HeldBy::Failure(_))) => {
                Next::can(format!("`slipway skip {machine} --cluster {cluster}` leaves the machine as it is"))
            }
            HowFar::StaysCordoned(_) => {
                Next::must("`kubectl get nodes` shows whether the API answers".to_owned())
            }
            HowFar::Drains(None) | HowFar::Leaves | HowFar::Empty | HowFar::Interrupted | HowFar::Stays => {
                Next::nothing(cluster)
            }
        }
    }
}

impl WorkersWait {
    fn next(&self, cluster: &str) -> Next {
        let boots = self.whole.iter().map(|boots| of_boots(boots, cluster));
        let idle = self.idle.iter().map(|one| one.next(cluster));
        Next::first(self.departs.iter().map(|one| one.next(cluster)).chain(boots).chain(idle), cluster)
    }
}

impl Idle {
    fn next(&self, cluster: &str) -> Next {
        match self {
            Self::Window { .. } => Next::spec(cluster, "other rollout.windows"),
            Self::NoRoom { .. } => Next {
                need: Need::Must,
                ..Next::spec(cluster, "a larger maxSize or rollout.maxUnavailable: 1")
            },
            Self::NewerSpec | Self::Others => Next::nothing(cluster),
        }
    }
}

impl Kept {
    fn next(&self) -> Next {
        let Self { machine, .. } = self;
        Next::must(format!(
            "if it is not drained by itself: `kubectl drain`, then `aws autoscaling terminate-instance-in-auto-scaling-group --instance-id {machine} \
             --no-should-decrement-desired-capacity`"
        ))
    }
}

impl StackWaits {
    fn next(&self, stack: &str, cluster: &str) -> Next {
        match self {
            Self::Failed(_) => Next::again(cluster),
            Self::NotBegun => {
                Next::can(format!("`slipway apply cluster.yaml --cluster {cluster}` begins it again"))
            }
            Self::AtWork(_) | Self::SecondLook(_) | Self::Wreck | Self::CreationCancelled => {
                Next::stack(stack)
            }
            Self::Turn
            | Self::ChangeSet(_)
            | Self::Starts
            | Self::Executes
            | Self::Done(_)
            | Self::NothingToChange => Next::nothing(cluster),
        }
    }
}

impl RolloutWaits {
    /// The command about the waiting reason that needs a person most.
    pub(crate) fn next(&self, cluster: &str) -> Next {
        match self {
            Self::Nodes(nodes) => Next::first(nodes.values().map(|waits| waits.next(cluster)), cluster),
            Self::Stacks { waits, .. } => {
                Next::first(waits.iter().map(|(stack, waits)| waits.next(stack, cluster)), cluster)
            }
            Self::NextStack { .. } => Next::nothing(cluster),
        }
    }
}

impl GoingWaits {
    fn next(&self, stack: &str, cluster: &str) -> Next {
        match self {
            Self::Failed(_) => {
                Next::must(format!("resolve that, then `slipway destroy --cluster {cluster}` continues"))
            }
            Self::NotOurs => Next::must(format!(
                "delete it yourself, if it is not needed: `aws cloudformation delete-stack --stack-name {stack}`"
            )),
            Self::SnapshotHeld(_) => Next::can(format!(
                "`slipway destroy --cluster {cluster} --without-snapshot` does without a last snapshot"
            )),
            Self::RecordsHeld(_) => Next::status(cluster),
            Self::Told | Self::Deletes | Self::AtWork(_) => Next::stack(stack),
            Self::Stands
            | Self::Gone
            | Self::LooksForMembers
            | Self::NoEtcd
            | Self::Leader
            | Self::FirstSnapshot
            | Self::FirstTaken(_)
            | Self::Snapshot
            | Self::SnapshotTaken(_)
            | Self::Records
            | Self::RecordsBoot { .. } => Next::nothing(cluster),
        }
    }
}

/// The command about the stack of a destruction that needs a person most.
pub(crate) fn of_destruction<K: Display>(waits: &BTreeMap<K, GoingWaits>, cluster: &str) -> Next {
    Next::first(waits.iter().map(|(stack, waits)| waits.next(&stack.to_string(), cluster)), cluster)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;

    /// Examples of every waiting reason of nodes, by their JSON, with what each one needs.
    fn nodes() -> Vec<(Value, Need)> {
        let boot = |failure: Value| json!([{"machine": "i-1", "step": "kubelet", "failure": failure}]);
        let (well, ill) = (boot(Value::Null), boot(json!("no disk")));
        let departs = |how: Value| json!({"machine": "i-1", "how": how});
        let pods = json!({"drains": {"pods": [{"pod": "a/b", "cause": "budget", "why": "w"}]}});
        let workers = |departs: Value, whole: Value, idle: Value| json!({"workers": {"departs": departs, "inAll": null, "whole": whole, "idle": idle, "done": 0}});
        let kept = json!({"group": "g", "machine": "i-1"});
        let danger = |danger: Value| json!({"dangers": [danger]});
        let gap = |gap: Value| json!({"serves": [gap]});
        let unready = |nodes: Value| json!({"nodes": {"role": "pool-a", "wanted": 2, "registered": 2, "ready": 1, "not_ready": nodes, "why": null}});
        let silent = json!({"role": "etcd-0", "problem": "p"});
        let window = json!({"atMostUntil": Timestamp::UNIX_EPOCH});
        vec![
            (json!({"failed": "why"}), Need::Must),
            (json!({"look": "machine"}), Need::Nobody),
            (json!({"boot": ["own", well]}), Need::Can),
            (json!({"boot": [{"first": 2}, ill]}), Need::Must),
            (json!({"boot": ["successor", []]}), Need::Can),
            (json!({"secondLook": "one"}), Need::Nobody),
            (json!({"window": window}), Need::Can),
            (json!({"anotherTry": "why"}), Need::Can),
            (json!("snapshot"), Need::Nobody),
            (json!({"answers": "members"}), Need::Nobody),
            (gap(json!("noController")), Need::Must),
            (gap(json!({"changed": {"machine": "i-1"}})), Need::Nobody),
            (gap(json!({"silent": {"machine": "i-1", "problem": "p"}})), Need::Must),
            (gap(json!({"apiServer": {"machine": "i-1", "problem": null}})), Need::Must),
            (
                gap(json!({"component": {"machine": "i-1", "component": "kube-scheduler", "problem": null}})),
                Need::Must,
            ),
            (gap(json!({"nodeManager": {"machine": "i-1", "problem": null}})), Need::Must),
            (gap(json!({"noMember": {"member": "etcd-0"}})), Need::Must),
            (gap(json!("noQuorum")), Need::Must),
            (gap(json!({"member": {"member": "etcd-0", "problem": null}})), Need::Must),
            (gap(json!({"noGroup": {"group": "g"}})), Need::Must),
            (gap(json!({"fewer": {"role": "pool-a", "serve": 1, "desired": 2, "boots": []}})), Need::Can),
            (gap(unready(json!(["i-1"]))), Need::Must),
            (gap(unready(json!([]))), Need::Must),
            (gap(json!("nodesUnknown")), Need::Must),
            (danger(json!({"silentMember": silent})), Need::Must),
            (danger(json!({"silentEtcd": silent})), Need::Must),
            (danger(json!({"learner": "etcd-0"})), Need::Can),
            (danger(json!({"notServing": {"role": "etcd-0", "problems": []}})), Need::Must),
            (danger(json!({"behind": {"role": "etcd-0", "entries": 7, "limit": 5}})), Need::Can),
            (danger(json!({"noLeader": "etcd-0"})), Need::Must),
            (danger(json!({"membership": {"has": 2, "expected": 3}})), Need::Must),
            (danger(json!({"learnerInMembership": "m"})), Need::Can),
            (danger(json!({"unreachable": {"role": "etcd-0", "member": "m", "problem": null}})), Need::Must),
            (danger(json!({"alarm": "NOSPACE"})), Need::Must),
            (danger(json!("twoClusters")), Need::Must),
            (danger(json!({"noneToSpare": {"voters": 3}})), Need::Must),
            (danger(json!({"silentController": {"machine": "i-1", "problem": "p"}})), Need::Must),
            (
                danger(json!({"component": {"name": "kubelet", "machine": "i-1", "problem": null}})),
                Need::Must,
            ),
            (danger(json!({"noApiServer": "i-1"})), Need::Must),
            (danger(json!({"noTarget": {"machine": "i-1", "why": null}})), Need::Can),
            (danger(json!({"replacedByOthers": "i-1"})), Need::Can),
            (danger(json!({"tooFew": {"serve": 2, "size": 3, "boots": ill}})), Need::Must),
            (danger(json!({"cannotLaunch": "g"})), Need::Must),
            (danger(json!({"leadsOutOfService": "etcd-0"})), Need::Must),
            (danger(json!({"lingers": "i-1"})), Need::Nobody),
            (danger(json!({"stillToCome": {"group": "g", "desired": 4, "size": 3}})), Need::Nobody),
            (json!("leader"), Need::Nobody),
            (json!("replaced"), Need::Nobody),
            (json!({"credentials": ["i-1"]}), Need::Nobody),
            (json!("memberRemoval"), Need::Nobody),
            (json!("memberThatStays"), Need::Nobody),
            (json!({"uncordon": "i-1"}), Need::Nobody),
            (json!("controllerLeaves"), Need::Nobody),
            (json!("oneMoreController"), Need::Nobody),
            (json!({"departure": departs(json!({"drains": null}))}), Need::Nobody),
            (json!({"departure": departs(pods.clone())}), Need::Must),
            (json!({"departure": departs(json!({"drains": {"failure": "why"}}))}), Need::Can),
            (json!({"departure": departs(json!("leaves"))}), Need::Nobody),
            (json!({"departure": departs(json!("empty"))}), Need::Nobody),
            (json!({"departure": departs(json!("interrupted"))}), Need::Nobody),
            (json!({"departure": departs(json!("stays"))}), Need::Nobody),
            (json!({"departure": departs(json!({"staysCordoned": "why"}))}), Need::Must),
            (
                workers(json!([departs(json!("leaves")), departs(pods.clone())]), Value::Null, Value::Null),
                Need::Must,
            ),
            (workers(json!([]), ill, Value::Null), Need::Must),
            (workers(json!([]), Value::Null, json!("newerSpec")), Need::Nobody),
            (workers(json!([]), Value::Null, json!({"window": window})), Need::Can),
            (workers(json!([]), Value::Null, json!({"noRoom": {"group": "g", "max": 3}})), Need::Must),
            (workers(json!([]), Value::Null, json!("others")), Need::Nobody),
            (json!({"removal": {"departs": [departs(pods)], "idle": null, "empty": [0, 2]}}), Need::Must),
            (json!({"kept": kept}), Need::Must),
            (json!({"standby": kept}), Need::Must),
            (json!({"stackBusy": "UPDATE_IN_PROGRESS"}), Need::Nobody),
            (json!({"deletionBegins": {"emptied": true}}), Need::Nobody),
            (json!({"deletion": {"machines": 2, "kept": null}}), Need::Nobody),
            (json!({"deletion": {"machines": 2, "kept": kept}}), Need::Must),
        ]
    }

    fn stacks() -> Vec<(Value, Need)> {
        vec![
            (json!("turn"), Need::Nobody),
            (json!({"changeSet": "making"}), Need::Nobody),
            (json!({"atWork": "UPDATE_IN_PROGRESS"}), Need::Can),
            (json!("starts"), Need::Nobody),
            (json!("executes"), Need::Nobody),
            (json!("wreck"), Need::Can),
            (json!("creationCancelled"), Need::Can),
            (json!("notBegun"), Need::Can),
            (json!({"done": null}), Need::Nobody),
            (json!("nothingToChange"), Need::Nobody),
            (json!({"failed": "why"}), Need::Must),
        ]
    }

    fn going() -> Vec<(Value, Need)> {
        vec![
            (json!("stands"), Need::Nobody),
            (json!({"failed": "why"}), Need::Must),
            (json!("gone"), Need::Nobody),
            (json!("notOurs"), Need::Must),
            (json!("told"), Need::Can),
            (json!("deletes"), Need::Can),
            (json!({"atWork": "UPDATE_IN_PROGRESS"}), Need::Can),
            (json!("looksForMembers"), Need::Nobody),
            (json!("noEtcd"), Need::Nobody),
            (json!("leader"), Need::Nobody),
            (json!("firstSnapshot"), Need::Nobody),
            (json!({"firstTaken": "key"}), Need::Nobody),
            (json!("snapshot"), Need::Nobody),
            (json!({"snapshotTaken": "key"}), Need::Nobody),
            (json!({"snapshotHeld": "why"}), Need::Can),
            (json!("records"), Need::Nobody),
            (json!({"recordsBoot": {"machine": "i-1", "role": "etcd-0"}}), Need::Nobody),
            (json!({"recordsHeld": "why"}), Need::Can),
        ]
    }

    /// The names of the variants of an enum, from the source that declares it.
    fn variants(source: &str, name: &str) -> Vec<String> {
        let body =
            source.split_once(&format!("pub enum {name} {{\n")).unwrap().1.split_once("\n}").unwrap().0;
        let is_variant = |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
        let word = |line: &str| {
            let word: String = line.trim().chars().take_while(char::is_ascii_alphanumeric).collect();
            word[..1].to_lowercase() + &word[1..]
        };
        body.lines().filter(is_variant).map(word).collect()
    }

    #[test]
    fn every_waiting_reason_names_the_next_command() {
        let (waits, danger) = (include_str!("../waits.rs"), include_str!("danger.rs"));
        let (destroy, gap) = (include_str!("destruction.rs"), include_str!("gap.rs"));
        let all: Vec<Value> =
            [nodes(), stacks(), going()].concat().into_iter().map(|(example, _)| example).collect();
        let examples = Value::Array(all).to_string();
        for (source, name) in [
            (waits, "Waits"),
            (waits, "HowFar"),
            (waits, "HeldBy"),
            (waits, "Idle"),
            (waits, "StackWaits"),
            (danger, "Danger"),
            (gap, "Gap"),
            (destroy, "GoingWaits"),
        ] {
            let names = variants(source, name);
            assert!(names.len() > 1, "{name}");
            for variant in names {
                assert!(examples.contains(&format!("\"{variant}\"")), "no example of {name}::{variant}");
            }
        }
        let check = |next: Next, need: Need, example: &Value| {
            assert_eq!(next.need, need, "{example}");
            let words = next.words();
            let is_command =
                |part: &str| ["slipway ", "aws ", "kubectl "].iter().any(|program| part.starts_with(program));
            assert!(words.split('`').skip(1).step_by(2).any(is_command), "{example}: {words}");
        };
        for (example, need) in nodes() {
            let waits: Waits = serde_json::from_value(example.clone()).unwrap();
            check(waits.next("prod"), need, &example);
        }
        for (example, need) in stacks() {
            let waits: StackWaits = serde_json::from_value(example.clone()).unwrap();
            check(waits.next("prod-etcd", "prod"), need, &example);
        }
        for (example, need) in going() {
            let waits: GoingWaits = serde_json::from_value(example.clone()).unwrap();
            check(waits.next("prod-etcd", "prod"), need, &example);
        }
    }

    #[test]
    fn of_several_reasons_the_one_that_needs_a_person_names_the_command() {
        let held = json!({"departure": {"machine": "i-7", "how": {"drains": {"pods": []}}}});
        let nodes =
            json!({"nodes": {"pool-a": {"look": "machines"}, "pool-b": held, "pool-c": {"failed": "x"}}});
        let waits: RolloutWaits = serde_json::from_value(nodes).unwrap();
        let words = waits.next("prod").words();
        assert!(
            words.contains("`slipway skip i-7 --cluster prod`"),
            "the first of two that need somebody: {words}"
        );
        let calm: RolloutWaits =
            serde_json::from_value(json!({"nextStack": {"done": 1, "stack": "s"}})).unwrap();
        assert_eq!(
            calm.next("prod").words(),
            "nothing has to be done; `slipway pause --cluster prod` holds it"
        );
    }
}
