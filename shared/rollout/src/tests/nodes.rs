//! Nodes that are refreshed and replaced, against machines of a few lines.

use super::*;

#[test]
fn the_reasons_of_five_hundred_resources_fit_into_an_event() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let look = to_observe(&Rollout::new("c"), Some(&wanted), Timestamp::UNIX_EPOCH);
    let observed = Fake::default().observe(&look, Some(&wanted));
    let begun = decide(&Rollout::new("c"), &observed, Timestamp::UNIX_EPOCH).next;
    let refused = refused(begun, "c-network", &"é".repeat(300_000));
    let decision = decide(&refused, &Observed::default(), Timestamp::UNIX_EPOCH);
    assert_eq!(decision.report.message.chars().count(), 300_000);
    let mut said = decision.effects.iter().filter_map(|effect| match effect {
        Effect::Publish(event) => Some(event.to_wire()),
        Effect::CreateChangeSet(_)
        | Effect::ExecuteChangeSet { .. }
        | Effect::DeleteChangeSet { .. }
        | Effect::DeleteStack { .. }
        | Effect::PointAddons(_)
        | Effect::Send(_)
        | Effect::Cancel(_)
        | Effect::SetDesired { .. }
        | Effect::Terminate { .. }
        | Effect::ProlongTermination { .. }
        | Effect::CompleteTermination { .. }
        | Effect::ArmTick
        | Effect::DisarmTick => None,
    });
    let (detail_type, detail) = said.next().expect("a failure is said");
    assert_eq!(detail_type, "Rollout Failed");
    assert!(detail.len() < 32 * 1024, "{} bytes", detail.len());
}

/// A snapshot and answers of before a pause count as old as they are, however short a time after the resume they are looked at.
#[test]
fn p4_nothing_that_was_seen_before_a_pause_counts_after_the_resume() {
    let step = |state: &str| {
        serde_json::json!({
            "role": "etcd-0", "stack": "c-etcd", "group": "c-etcd-0", "work": "replace", "credentials": "x", "size": 1,
            "state": state, "since": "2026-01-01T00:00:00Z", "machine": "i-1", "round": 4,
            "asked": [{
                "role": "etcd-1",
                "command": {"token": "c/etcd-0/4/x", "instance": "i-2", "verb": "etcdSnapshot"},
                "at": "2026-01-01T00:00:00Z",
            }],
        })
    };
    let resumed: Timestamp = "2026-01-01T00:40:00Z".parse().unwrap();
    for (state, looks_anew) in
        [("snapshot", true), ("check", true), ("leader", true), ("refresh", false), ("after", false)]
    {
        let mut nodes: Nodes = serde_json::from_value(serde_json::json!({"steps": [step(state)]})).unwrap();
        nodes.resumed(resumed);
        let step = &nodes.steps[0];
        assert_eq!((step.since, step.round, step.machine.as_deref()), (Some(resumed), 4, Some("i-1")));
        assert_eq!(step.state == NodeState::Waiting && step.asked.is_empty(), looks_anew, "{step:?}");
        assert!(step.asked.iter().all(|asked| asked.at == resumed), "{step:?}");
    }
}
