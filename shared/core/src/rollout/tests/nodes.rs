//! Nodes that are refreshed and replaced, against machines of a few lines.

use super::*;

#[test]
fn the_reasons_of_five_hundred_resources_fit_into_an_event() {
    let release = rendering(1);
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let look = to_observe(&Rollout::new("c"), Some(&wanted), None, Timestamp::UNIX_EPOCH);
    let observed = Fake::default().observe(&look, Some(&wanted), None);
    let begun = decide(&Rollout::new("c"), &observed, Timestamp::UNIX_EPOCH).next;
    let refused = begun.refused("c-network", &"é".repeat(300_000));
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
