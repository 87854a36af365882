//! The look at the whole cluster, in whole rollouts.

use super::*;

const READY: &str =
    "the API server on controller.0 is not ready: 503; the API server on controller.1 is not ready: 503";

/// The members of etcd get new credentials: the pool is not touched, so that only the look concerns it.
fn yard() -> Yard {
    Yard::new(&SMALL, Change::Credentials, &is_member, &auto())
}

/// [`yard`], one minute after its last step has begun.
fn looking(prepare: impl FnOnce(&mut Yard)) -> Yard {
    let mut yard = yard();
    prepare(&mut yard);
    for _ in 0..60 {
        yard.wake(None);
        if yard.state.active().is_some_and(|active| active.nodes.is_closing()) {
            yard.wake(None);
            return yard;
        }
    }
    panic!("it never looks: {}", yard.report.message);
}

impl Yard {
    /// That release is uploaded as that version of the spec, and planned from the present state.
    pub(super) fn uploads(&mut self, release: Rendering, version: &str, policy: &RolloutPolicy) {
        let members = super::release(&SMALL, Some((Change::Credentials, &is_member)));
        let old = [super::release(&SMALL, None), members, self.wanted.release.clone(), release.clone()];
        let releases = old.into_iter().map(|one| (one.id(), one)).collect();
        let baseline =
            Baseline::assemble("c", &self.state.deployed, &self.state.orphaned, &releases).unwrap();
        let baseline = baseline.with_addons(self.state.addons_release(), &releases).unwrap();
        let plan = plan(&baseline, &release, policy);
        assert!(self.state.is_start_of(&plan));
        self.wanted.desired.plan.clone_from(&plan.id);
        self.wanted.desired.target.clone_from(&plan.to);
        version.clone_into(&mut self.wanted.desired.spec_version);
        self.wanted = Wanted { desired: self.wanted.desired.clone(), plan, release };
        self.fake.change_sets.clear();
        self.fake.log.clear();
    }

    /// The spec of the last rollout is uploaded again.
    fn uploads_again(&mut self, version: &str, policy: &RolloutPolicy) {
        self.uploads(self.wanted.release.clone(), version, policy);
        assert!(self.wanted.plan.is_empty());
    }

    pub(super) fn last_is(&self, result: RolloutResult) -> bool {
        self.state.last.as_ref().is_some_and(|last| last.result == result)
    }

    fn published(&self, what: &str) -> usize {
        self.fake.log.iter().filter(|line| *line == what).count()
    }
}

/// The release of [`yard`] with newer credentials for the controllers.
fn renewed() -> Rendering {
    let mut release = release(&SMALL, Some((Change::Credentials, &is_member)));
    release.roles.get_mut(&Role::Controller).unwrap().credentials_digest = "newer".to_owned();
    release
}

#[test]
fn p11_a_rollout_waits_with_a_reason_while_a_controller_says_no_and_then_succeeds() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    let sent = yard.sent;
    (0..30).for_each(|_| yard.wake(None));
    assert_eq!(yard.report.state.as_str(), "running");
    assert!(
        yard.report.message.contains(&format!("waits until the cluster serves: {READY}")),
        "{}",
        yard.report.message
    );
    assert!(yard.report.next.as_ref().is_some_and(|next| next.contains("slipway ")), "{:?}", yard.report);
    assert!(yard.report.nodes["cluster"].contains("503"), "{:?}", yard.report.nodes);
    assert!(yard.sent > sent + 2 * 10, "it asks both again and again: {}", yard.sent - sent);
    yard.api_down = None;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(!yard.state.must_check_again("v3"));

    // A pool that the rollout does not touch counts, too.
    let mut yard = looking(|yard| yard.unready.extend(["pool-a.1".to_owned()]));
    yard.wake(None);
    assert!(yard.report.message.contains("not Ready: pool-a.1 (no network)"), "{}", yard.report.message);
    yard.unready.clear();
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p11_after_an_hour_it_fails_with_what_does_not_serve_and_undoes_nothing() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    let (began, lines) = (yard.now, yard.log.len());
    let groups = format!("{:?}", yard.groups);
    assert_eq!(yard.run(), "failed");
    let minutes = (yard.now - began) / 60;
    assert!((58..=62).contains(&minutes), "{minutes}");
    assert!(
        yard.report.message.contains(&format!("does not serve after 60 minutes: {READY}. Nothing is undone")),
        "{}",
        yard.report.message
    );
    assert!(yard.report.message.contains("`slipway apply cluster.yaml --cluster c` looks again"));
    assert_eq!((&yard.log[lines..], format!("{:?}", yard.groups)), (&[][..], groups));
    assert!(yard.state.deployed.values().all(|release| release == &yard.wanted.release.id()));
    assert!(yard.state.earlier.is_empty());
    assert!(
        yard.state.rollback_targets.iter().all(|good| good.spec_version != "v2"),
        "it is not a good spec"
    );
    assert_eq!(yard.published("Rollout Failed"), 1);
}

#[test]
fn p11_the_next_upload_of_the_same_spec_looks_again_once_and_nothing_else_does() {
    for (policy, what) in [(auto(), "auto"), (policy(Approval::Manual), "manual")] {
        let mut yard = looking(|yard| yard.api_down = Some("503"));
        assert_eq!(yard.run(), "failed");
        let lines = yard.log.len();
        // The daily scan plans the same version anew. It must not fail again each day.
        yard.uploads_again("v2", &policy);
        let sent = yard.sent;
        (0..90).for_each(|_| yard.wake(None));
        assert_eq!((yard.sent, yard.published("Rollout Started")), (sent, 0), "{what}");

        yard.uploads_again("v3", &policy);
        (0..100).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "failed", "{what}: {}", yard.report.message);
        let sent = yard.sent;
        (0..90).for_each(|_| yard.wake(None));
        assert_eq!((yard.sent, yard.published("Rollout Failed")), (sent, 1), "{what}: it loops");

        yard.api_down = None;
        yard.uploads_again("v4", &policy);
        assert_eq!(yard.run(), "succeeded", "{what}: {}", yard.report.message);
        assert_eq!(yard.published("Rollout Succeeded"), 1, "{what}");
        assert_eq!(yard.log.len(), lines, "{what}: it only looked");
        yard.uploads_again("v5", &policy);
        let sent = yard.sent;
        (0..10).for_each(|_| yard.wake(None));
        assert_eq!(yard.sent, sent, "{what}: it serves, and an empty plan begins nothing any more");
    }
}

#[test]
fn p11_a_pause_holds_the_look_and_its_hour_and_a_resume_asks_anew() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    (0..50).for_each(|_| yard.wake(None));
    yard.wake(Some(Order::Pause));
    let (sent, lines) = (yard.sent, yard.log.len());
    yard.api_down = None;
    (0..90).for_each(|_| yard.wake(None));
    assert_eq!((yard.report.state.as_str(), yard.sent, yard.log.len()), ("paused", sent, lines));
    yard.api_down = Some("503");
    yard.wake(Some(Order::Resume));
    (0..50).for_each(|_| yard.wake(None));
    assert_eq!(yard.report.state.as_str(), "running", "{}", yard.report.message);
    yard.api_down = None;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p11_an_abort_ends_the_look_and_the_next_upload_looks_again() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    yard.wake(Some(Order::Abort { plan: None }));
    assert_eq!(yard.report.state.as_str(), "aborted", "{}", yard.report.message);
    assert!(!yard.state.is_open());
    yard.api_down = None;
    yard.uploads_again("v3", &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(yard.last_is(RolloutResult::Succeeded));
}

#[test]
fn p11_a_machine_that_a_person_skips_does_not_count() {
    // A worker whose Node is not Ready, a controller whose command never ends, and a member of etcd that is down.
    type Ill = fn(&mut Yard);
    let cases: [(&str, Ill); 3] = [
        ("pool-a.1", |yard| yard.unready.extend(["pool-a.1".to_owned()])),
        ("controller.1", |yard| yard.hanging.extend(["controller.1".to_owned()])),
        ("etcd-1.0", |yard| yard.members_down.extend(["etcd-1".to_owned()])),
    ];
    for (left, ill) in cases {
        let mut yard = looking(ill);
        (0..3).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "running", "{left}");
        yard.wake(Some(Order::Skip { instance: left.to_owned() }));
        (0..3).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "succeeded", "{left}: {}", yard.report.message);
        assert!(!yard.report.message.contains("not known"), "{left}: {}", yard.report.message);
    }
    // If nobody is left to ask, the success says that it knows nothing.
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    for number in 0..2 {
        yard.wake(Some(Order::Skip { instance: format!("controller.{number}") }));
    }
    assert_eq!(yard.run(), "succeeded");
    let words = "it is not known whether the cluster serves, because all controllers were skipped";
    assert!(yard.report.message.contains(words), "{}", yard.report.message);
}

#[test]
fn p11_the_node_of_a_machine_that_is_skipped_or_leaves_does_not_stand_in_for_one_that_is_missing() {
    // A worker without a Node is missed, although its pool's other worker, which is Ready, was skipped.
    let mut yard = looking(|yard| yard.unregistered.extend(["pool-a.1".to_owned()]));
    yard.wake(Some(Order::Skip { instance: "pool-a.0".to_owned() }));
    assert_eq!(yard.run(), "failed", "{}", yard.report.message);
    assert!(yard.report.message.contains("pool-a: 1 Nodes are Ready"), "{}", yard.report.message);
    // Or although one more, whose Node is still Ready, is being terminated.
    let mut yard = looking(|yard| {
        yard.unregistered.extend(["pool-a.1".to_owned()]);
        let pool = yard.groups.get_mut("c-pool-a").unwrap();
        let mut leaves = pool.machines["pool-a.0"].clone();
        leaves.lifecycle = Lifecycle::Terminating;
        pool.machines.insert("pool-a.9".to_owned(), leaves);
    });
    assert_eq!(yard.run(), "failed", "{}", yard.report.message);
    assert!(yard.report.message.contains("pool-a: 2 Nodes are Ready"), "{}", yard.report.message);
}

#[test]
fn p11_an_agent_that_does_not_know_the_question_is_left_out_and_the_success_says_so() {
    let mut yard = yard();
    yard.unanswered.insert("controller.0".to_owned(), HowUnanswered::NotUnderstood);
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    let words = "it is not known whether the cluster serves, because the node agent is older than that question: controller.0";
    assert!(yard.report.message.ends_with(words), "{}", yard.report.message);
    // What the other one says counts.
    let mut yard = looking(|yard| {
        yard.unanswered.insert("controller.0".to_owned(), HowUnanswered::NotUnderstood);
        yard.api_down = Some("503");
    });
    assert_eq!(yard.run(), "failed", "{}", yard.report.message);
}

#[test]
fn p11_a_command_that_was_not_delivered_is_no_answer_and_is_sent_again() {
    for how in [HowUnanswered::Undelivered, HowUnanswered::Failed, HowUnanswered::TimedOut] {
        let mut yard = looking(|yard| {
            yard.unanswered.insert("controller.0".to_owned(), how);
        });
        (0..30).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "running", "{how:?}: {}", yard.report.message);
        assert!(yard.report.message.contains("the controller controller.0 does not answer"), "{how:?}");
        yard.unanswered.clear();
        (0..3).for_each(|_| yard.wake(None));
        assert_eq!(yard.report.state.as_str(), "succeeded", "{how:?}: {}", yard.report.message);
        assert!(!yard.report.message.contains("older"), "{how:?}: {}", yard.report.message);
    }
}

#[test]
fn p11_answers_that_are_too_old_are_asked_for_again() {
    // It asked when the cluster served, and the next wake comes a quarter of an hour later, when it does not.
    let mut yard = yard();
    while !yard.state.active().is_some_and(|active| active.nodes.is_closing()) {
        yard.wake(None);
    }
    let sent = yard.sent;
    assert!(sent > 0 && yard.report.state.as_str() == "running", "{}", yard.report.message);
    yard.api_down = Some("503");
    yard.pace = 15;
    yard.wake(None);
    assert_eq!((yard.report.state.as_str(), yard.sent), ("running", sent + 2), "{}", yard.report.message);
    yard.pace = 1;
    yard.wake(None);
    assert!(yard.report.message.contains(READY), "{}", yard.report.message);
    // It is the other way round: a "no" from long ago fails no rollout.
    yard.api_down = None;
    yard.pace = 70;
    yard.wake(None);
    assert_eq!(yard.report.state.as_str(), "running", "{}", yard.report.message);
    yard.pace = 1;
    yard.wake(None);
    assert_eq!(yard.report.state.as_str(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p11_a_newer_plan_takes_over_while_the_look_waits() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    yard.uploads(release(&SMALL, Some((Change::Machines, &is_worker))), "v3", &auto());
    yard.wake(None);
    assert!(yard.last_is(RolloutResult::Superseded), "{}", yard.report.message);
    yard.api_down = None;
    yard.uploads(yard.wanted.release.clone(), "v3", &auto());
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert!(yard.last_is(RolloutResult::Succeeded) && yard.state.rollback_targets[0].spec_version == "v3");
}

/// P7: neither an open look nor one that has failed holds it, nor the approval that nobody gives.
#[test]
fn p11_an_urgent_renewal_is_not_held_behind_a_look() {
    for ended in [false, true] {
        let mut yard = looking(|yard| yard.api_down = Some("503"));
        if ended {
            assert_eq!(yard.run(), "failed");
        }
        let machines = yard.groups.get_mut("c-control-plane").unwrap().machines.values_mut();
        machines.for_each(|one| one.current = false);
        // The scan renews: the same version of the spec.
        let left_h = (yard.now - 1_000_000) / 3_600 + 10;
        yard.uploads(renewed(), "v2", &policy(Approval::Manual));
        yard = yard.ends_in(left_h);
        assert!(yard.wanted.plan.is_renewal());
        yard.wake(None);
        if !ended {
            assert!(yard.last_is(RolloutResult::Superseded), "{}", yard.report.message);
            yard.uploads(renewed(), "v2", &policy(Approval::Manual));
            yard = yard.ends_in(left_h);
        }
        (0..20).for_each(|_| yard.wake(None));
        let takes = |role: &str| {
            yard.log.iter().filter(|line| line.starts_with(role) && line.contains("takes new")).count()
        };
        let (controllers, members) = (takes("controller"), takes("etcd"));
        assert_eq!((controllers, members), (2, 3), "ended: {ended}: {:?} {}", yard.log, yard.report.message);
        yard.api_down = None;
        assert_eq!(yard.run(), "succeeded", "ended: {ended}: {}", yard.report.message);
    }
}

#[test]
fn p11_the_add_ons_are_handed_over_once_and_before_the_look() {
    let mut after = release(&SMALL, Some((Change::Credentials, &is_member)));
    after.addons.digest = "digest-v2".to_owned();
    let mut yard = Yard::between(&release(&SMALL, None), after, &is_member, &auto());
    yard.api_down = Some("503");
    let told = |yard: &Yard| -> Vec<String> {
        yard.fake.log.iter().filter(|line| line.starts_with("add-ons")).cloned().collect()
    };
    while !yard.report.message.contains("waits until the cluster serves") {
        yard.wake(None);
    }
    assert_eq!(told(&yard), ["add-ons digest-v2 of 2"]);
    yard.api_down = None;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
    assert_eq!(told(&yard), ["add-ons digest-v2 of 2"]);
}

#[test]
fn p11_a_call_that_is_refused_for_a_controller_that_leaves_does_not_end_the_look() {
    let mut yard = looking(|yard| yard.api_down = Some("503"));
    let effect = Effect::ProlongTermination {
        group: "c-control-plane".to_owned(),
        instance: "controller.7".to_owned(),
    };
    let pending = Pending { id: u64::MAX, effect, decided_at: Timestamp::UNIX_EPOCH, evidence: None };
    yard.state.outbox = vec![pending];
    yard.state =
        yard.state.clone().recorded(&[(u64::MAX, EffectOutcome::Refused("no such hook".to_owned()))]);
    yard.api_down = None;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p11_a_group_that_has_fewer_machines_than_it_wants_is_waited_for() {
    let mut yard = looking(|yard| {
        yard.launches = false;
        yard.groups.get_mut("c-pool-a").unwrap().desired += 1;
    });
    yard.wake(None);
    assert!(yard.report.message.contains("pool-a: 3 of 4 wanted are in service"), "{}", yard.report.message);
    yard.launches = true;
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}

#[test]
fn p11_the_next_upload_looks_again_only_if_all_stacks_were_as_planned() {
    let yard = looking(|_| {});
    for (state, unserved) in [("done", true), ("executing", false)] {
        let step = json!({"stack": "c-etcd", "kind": "etcd", "templateKey": "", "tags": {}, "mayReplace": [], "state": state});
        let mut active = yard.state.active().unwrap().clone();
        active.steps.push(serde_json::from_value(step).unwrap());
        for result in [RolloutResult::Failed, RolloutResult::Aborted] {
            assert_eq!(
                crate::end::record_result(&mut yard.state.clone(), &active, result),
                unserved,
                "{state}"
            );
        }
        assert!(!crate::end::record_result(&mut yard.state.clone(), &active, RolloutResult::Superseded));
    }
}

#[test]
fn p11_while_machines_come_and_go_all_the_time_it_neither_succeeds_nor_fails_without_a_gap() {
    let mut yard = looking(|_| {});
    for number in 10..100 {
        let pool = yard.groups.get_mut("c-pool-a").unwrap();
        let comes = Machine { lifecycle: Lifecycle::Pending, ..pool.machines["pool-a.0"].clone() };
        pool.machines.retain(|_, one| one.lifecycle != Lifecycle::Pending);
        pool.machines.insert(format!("pool-a.{number}"), comes);
        yard.wake(None);
        assert_eq!(yard.report.state.as_str(), "running", "{number}: {}", yard.report.message);
    }
    assert_eq!(yard.run(), "succeeded", "{}", yard.report.message);
}
