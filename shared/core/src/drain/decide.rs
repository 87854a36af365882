//! The decision.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::rules::Treatment;
use super::{
    Answer, Cause, ObjectName, Observed, Owner, Pod, Policy, Skipped, Stays, Step, Target, Waiting, between,
    words,
};

/// How often the node is observed while a drain waits.
const LOOK: SignedDuration = SignedDuration::from_secs(5);
/// The pause after an eviction request, whose result decides the next step.
const SOON: SignedDuration = SignedDuration::from_secs(1);
/// How long a silent kubelet may take to say that a pod is gone. Nobody else can say so, and a drain would wait for as long as the machine is
/// silent. Whoever asked for the drain terminates the machine next, and with it whatever still runs there. The same rule and time as in
/// Cluster API (`drainNode` in its machine controller, `SkipWaitForDeleteTimeoutSeconds`).
const UNHEARD: SignedDuration = SignedDuration::from_mins(5);
/// How long a kubelet says that it can run no pods (Ready is `False`) before nobody waits any more for pods that it should have stopped
/// [`UNHEARD`] ago. It speaks, but while its container runtime hangs it cannot stop them: kubernetes/kubernetes 75065 and 93925, where pods
/// were still terminating after hours. A runtime that is only slow, or that starts again, should have come back by then.
const UNABLE: SignedDuration = SignedDuration::from_mins(15);
/// After so many retries the wait grows no more.
const DOUBLINGS: u32 = 4;

/// How long to wait after the n-th refusal: 5 s, then twice as long each time, up to 80 s.
#[must_use]
pub fn back_off(count: u32) -> SignedDuration {
    LOOK * (1 << count.saturating_sub(1).min(DOUBLINGS))
}

/// What to do next. The order of `observed.pods` does not matter.
#[must_use]
pub fn decide(observed: &Observed, policy: &Policy, now: Timestamp) -> Step {
    if !observed.node.cordoned || observed.node.started.is_none() {
        return Step { begin: true, look_again: Some(now), ..Step::default() };
    }
    let mut step = Step::default();
    let mut pods: Vec<&Pod> = observed.pods.iter().collect();
    pods.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
    for pod in pods {
        if let Some(why) = stays(observed, pod, now) {
            step.skipped.push(Skipped { pod: pod.name.clone(), why });
        } else {
            let (cause, why) = wait(observed, policy, pod, now, step.force.is_some());
            match cause {
                Cause::Evicting => step.evict.push(target(pod)),
                Cause::Forcing => step.force = Some(target(pod)),
                Cause::Terminating
                | Cause::Budget
                | Cause::TwoBudgets
                | Cause::Refused
                | Cause::Bare
                | Cause::EmptyDir => {}
            }
            step.waiting.push(Waiting { pod: pod.name.clone(), cause, why });
        }
    }
    step.done = step.waiting.is_empty();
    let pause = if step.evict.is_empty() && step.force.is_none() { LOOK } else { SOON };
    step.look_again = (!step.done).then(|| now.saturating_add(pause).unwrap_or(Timestamp::MAX));
    step
}

fn target(pod: &Pod) -> Target {
    Target { name: pod.name.clone(), uid: pod.uid.clone() }
}

/// Whether a pod may stay, and why.
fn stays(observed: &Observed, pod: &Pod, now: Timestamp) -> Option<Stays> {
    match pod.owner {
        Owner::DaemonSet => Some(Stays::DaemonSet),
        Owner::Kubelet => Some(Stays::Mirror),
        Owner::Controller | Owner::Nobody if pod.finished => Some(Stays::Finished),
        Owner::Controller | Owner::Nobody => is_not_waited_for(observed, pod, now).or_else(|| {
            let after = observed.node.started.is_some_and(|started| pod.created > started);
            (pod.tolerates_cordon && after).then_some(Stays::Returns)
        }),
    }
}

/// Whether the pod should have been gone for so long that its kubelet will not say so any more, because it is silent or cannot stop pods.
/// Only the Node is asked: a drain is not told whether its machine waits in a terminate hook or is to be replaced by a rollout, and either way
/// the machine is terminated next.
fn is_not_waited_for(observed: &Observed, pod: &Pod, now: Timestamp) -> Option<Stays> {
    let lasts =
        |since: Option<Timestamp>, long| since.is_some_and(|since: Timestamp| between(since, now) >= long);
    if !lasts(pod.terminating, UNHEARD) {
        None
    } else if lasts(observed.node.silent, UNHEARD) {
        Some(Stays::Silent)
    } else {
        lasts(observed.node.unable, UNABLE).then_some(Stays::Unable)
    }
}

/// What is done to a pod that must go, or why nothing is. `forcing`: another pod is deleted by force in this step.
fn wait(observed: &Observed, policy: &Policy, pod: &Pod, now: Timestamp, forcing: bool) -> (Cause, String) {
    if let Some(until) = pod.terminating {
        return (Cause::Terminating, terminating(until, now));
    }
    if pod.owner == Owner::Nobody && policy.bare == Treatment::Wait {
        let why = "no controller makes it again, and the policy is to wait for such pods: delete it";
        return (Cause::Bare, why.to_owned());
    }
    if pod.empty_dir && policy.empty_dir == Treatment::Wait {
        let why = "it has data in an emptyDir, and the policy is to wait for such pods: delete it";
        return (Cause::EmptyDir, why.to_owned());
    }
    let Some(last) = observed.tries.get(&pod.uid) else {
        return (Cause::Evicting, "it is asked to go".to_owned());
    };
    let allowed = last.answer == Answer::Budget && allowed(observed, pod);
    let patience = if allowed { LOOK } else { back_off(last.count) };
    if between(last.at, now) >= patience {
        return (
            Cause::Evicting,
            format!("it is asked to go, for the {}. time", last.count.saturating_add(1)),
        );
    }
    let (cause, refusal) = match &last.answer {
        // The API server does not report it as terminating yet.
        Answer::Accepted => return (Cause::Terminating, "its eviction was accepted".to_owned()),
        // No budget blocks it, and the rules for force are only for pods that a budget blocks.
        Answer::Refused(words) => return (Cause::Refused, format!("the API server refuses: {words}")),
        Answer::Budget if allowed => {
            return (Cause::Budget, "its budget forbade it, and allows it now: it is asked again".to_owned());
        }
        Answer::Budget => (Cause::Budget, words::budget(observed, pod)),
        Answer::TwoBudgets => (Cause::TwoBudgets, two_budgets(&pod.budgets)),
    };
    let Some(force) = &policy.force else {
        return (cause, format!("{refusal}; the spec allows no force (rollout.drain.forceAfterMinutes)"));
    };
    let unmet = force.unmet(observed, pod, now);
    if !unmet.is_empty() {
        return (cause, format!("{refusal}; {}", words::unmet(&unmet)));
    }
    if forcing {
        return (
            cause,
            format!("{refusal}; another pod is deleted by force now, this one's turn comes later"),
        );
    }
    (Cause::Forcing, format!("{refusal}; all rules for force hold, so it is deleted"))
}

/// Whether no budget forbids the eviction any more.
fn allowed(observed: &Observed, pod: &Pod) -> bool {
    pod.budgets.iter().all(|name| observed.budgets.get(name).is_none_or(|budget| budget.allowed > 0))
}

fn two_budgets(budgets: &BTreeSet<ObjectName>) -> String {
    format!(
        "{} disruption budgets select it ({}), and Kubernetes evicts no such pod: let one of them not select it",
        budgets.len(),
        words::budgets(budgets)
    )
}

/// `until` is when the API server expected the pod to be gone.
fn terminating(until: Timestamp, now: Timestamp) -> String {
    let late = between(until, now);
    if late > SignedDuration::ZERO {
        format!(
            "it should have been gone {} ago: its kubelet does not answer, or a finalizer holds it",
            words::lasting(late)
        )
    } else {
        format!("it terminates, and has {} left", words::lasting(between(now, until)))
    }
}
