//! Specs that must be refused: each with a diagnostic that names the place and the solution, on the bus and in `status.json`, while
//! everything else stays unchanged.

#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm)]

use std::fmt::Write as _;
use std::time::Duration;

use slipway_core::status::{SpecResult, Status};
use slipway_tests::installation::Installation;
use slipway_tests::observe::PATIENCE;
use slipway_tests::tools;
use slipway_tests::world::Settings;

/// A spec, the place of its first diagnostic, and words that the diagnostic or its help must contain.
struct Bad {
    name: &'static str,
    spec: String,
    /// `line:`; empty if there is no line to point at.
    place: String,
    words: &'static [&'static str],
}

fn good() -> String {
    std::fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap()
}

/// The number of the line of the good spec that begins with `begins`, from 1.
fn line(begins: &str) -> usize {
    good().lines().position(|line| line.starts_with(begins)).unwrap() + 1
}

fn cases() -> Vec<Bad> {
    let good = good();
    let with = |more: &str| format!("{good}{more}");
    let mut bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned();
    for (here, there) in "bcdefghi".chars().zip("abcdefgh".chars()) {
        writeln!(
            bomb,
            "{here}: &{here} [*{there},*{there},*{there},*{there},*{there},*{there},*{there},*{there}]"
        )
        .unwrap();
    }
    let place = |line: usize| format!("{line}:");
    // The line after the good spec, where text is added.
    let end = good.lines().count();
    let nowhere = String::new;
    vec![
        Bad { name: "an empty file", spec: String::new(), place: nowhere(), words: &["empty"] },
        Bad {
            name: "not YAML",
            spec: "clusterName: [minimal\nregion: x".to_owned(),
            place: nowhere(),
            words: &[],
        },
        Bad {
            name: "prose",
            spec: "Dear operator,\nplease make me a cluster.\n".to_owned(),
            place: place(1),
            words: &[],
        },
        Bad {
            name: "duplicate keys",
            spec: with("clusterName: minimal\n"),
            place: place(end + 1),
            words: &["clusterName", "twice"],
        },
        Bad { name: "tabs", spec: with("controller:\n\tcount: 3\n"), place: place(end + 2), words: &["tab"] },
        Bad {
            name: "an unknown key at the top",
            spec: with("contoller:\n  count: 3\n"),
            place: place(end + 1),
            words: &["contoller", "controller"],
        },
        Bad {
            name: "an unknown key deep down",
            spec: with("controller:\n  rootVolume:\n    sizes: 30\n"),
            place: place(end + 3),
            words: &["sizes", "size"],
        },
        Bad {
            name: "a wrong type",
            spec: with("controller:\n  count: many\n"),
            place: place(end + 2),
            words: &["count", "number"],
        },
        Bad {
            name: "ten megabytes",
            spec: with(&"# padding\n".repeat(1_048_576)),
            place: nowhere(),
            words: &["bytes"],
        },
        Bad { name: "an anchor bomb", spec: bomb, place: nowhere(), words: &[] },
        Bad {
            name: "CIDRs that overlap",
            spec: with("vpcCIDR: 10.0.0.0/16\npodCIDR: 10.0.128.0/17\n"),
            place: place(end + 2),
            words: &["10.0.128.0/17", "overlap"],
        },
        Bad {
            name: "a region that does not exist",
            spec: good.replace("region: eu-west-1", "region: eu-west-9").replace("eu-west-1a", "eu-west-9a"),
            place: place(line("region")),
            words: &["eu-west-9"],
        },
        Bad {
            name: "a name that is not its folder's",
            spec: good.replace("clusterName: minimal", "clusterName: maximal"),
            place: place(line("clusterName")),
            words: &["maximal", "minimal"],
        },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_spec_is_refused_with_its_place_and_cure_and_nothing_moves() {
    let slipway = Installation::start(&Settings::default()).await.unwrap();
    let observer = slipway.world().observer();
    // A good spec is rolled out, so that the test can see that it stays unchanged.
    let mark = observer.mark();
    slipway
        .upload("minimal", good().replace("clusterName", "rollout: {approval: manual}\nclusterName"))
        .await
        .unwrap();
    let ready = slipway.event(mark, &["Plan Ready", "Spec Rejected"], PATIENCE).await;
    assert_eq!(ready.as_ref().map(|(kind, _)| kind.as_str()), Some("Plan Ready"), "{ready:?}");
    assert!(slipway.world().settle(Duration::from_millis(600), PATIENCE).await);
    let before = slipway.assets().await.unwrap();
    assert!(before.len() > 20, "{:?}", before.keys());

    let mut wrong = Vec::new();
    for bad in cases() {
        let mark = observer.mark();
        let version = slipway.upload("minimal", bad.spec.clone()).await.unwrap();
        let Some((_, detail)) = slipway.event(mark, &["Spec Rejected"], PATIENCE).await else {
            panic!("{}: no Spec Rejected: {:#?}", bad.name, observer.since(mark));
        };
        assert!(slipway.world().settle(Duration::from_millis(150), PATIENCE).await);
        assert_eq!(detail["specVersion"], version, "{}", bad.name);
        let findings: Vec<&str> =
            detail["diagnostics"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
        let all = findings.join("\n  ");
        let placed = findings.iter().any(|finding| finding.starts_with(&bad.place));
        if !placed || !bad.words.iter().all(|word| all.contains(word)) {
            wrong.push(format!("{}: wanted {}… with {:?}, got {all}", bad.name, bad.place, bad.words));
        }
        let status: Status = slipway.document("minimal", "status.json").await.unwrap().unwrap();
        let spec = status.spec.unwrap();
        assert_eq!((spec.version, spec.result), (version, SpecResult::Rejected), "{}", bad.name);
        assert!(!spec.diagnostics.is_empty());
        assert_eq!(slipway.assets().await.unwrap(), before, "{}: something else was written", bad.name);
        let others = observer.calls(mark).into_iter().filter(|call| {
            call.is_write() && call.action != "events:PutEvents" && !call.resource.ends_with("/status.json")
        });
        assert_eq!(others.collect::<Vec<_>>(), [], "{}", bad.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(slipway.dead_letters().await.unwrap(), 0, "a refused spec is not an error of the function");
}
