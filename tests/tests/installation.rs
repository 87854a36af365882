//! `infra/template.yaml` itself, deployed into the embedded AWS.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use slipway_tests::tools;
use slipway_tests::world::{Embedded, Settings};

#[tokio::test(flavor = "multi_thread")]
async fn the_template_deploys_resource_by_resource() {
    let world =
        Embedded::start(&tools::root().join("infra/template.yaml"), &Settings::default()).await.unwrap();
    for id in ["SpecBucket", "AssetBucket", "Key", "Bus", "RenderFunction", "RolloutFunction"] {
        assert!(!world.reference(id).unwrap().is_empty(), "{id}");
    }
    assert_eq!(world.reference("Bus").unwrap(), "slipway");
    // Every rule leads to a function that lets it in, and says where what it cannot deliver goes.
    let deployed = world.deployed();
    assert!(deployed.routes.len() >= 3, "{:#?}", deployed.routes);
    for route in &deployed.routes {
        let letters = route.dead_letters.as_ref().unwrap_or_else(|| panic!("{route:#?}"));
        assert!(!letters.policy.is_empty(), "EventBridge may not write to {}", letters.arn);
    }
    for (id, kind, _) in &deployed.recorded {
        let deliberate = ["AWS::CloudWatch::Alarm", "AWS::Logs::", "AWS::Scheduler::ScheduleGroup"];
        assert!(deliberate.iter().any(|known| kind.starts_with(known)), "{id} of type {kind}");
    }
}
