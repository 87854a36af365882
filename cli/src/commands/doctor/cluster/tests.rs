//! Each mistake of a cluster and of a spec is a finding with its cure, and a sound cluster has none.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::commands::doctor::findings::Unread;

fn now() -> Timestamp {
    "2026-11-26T12:00:00Z".parse().unwrap()
}

fn ago_h(hours: i64) -> Timestamp {
    now() - SignedDuration::from_hours(hours)
}

fn row(kind: Pin, to: &str) -> Row {
    let (from, to) = (Some("1".to_owned()), Some(to.to_owned()));
    Row { kind, name: "n".to_owned(), from, to, looked_up: Some(ago_h(72)) }
}

fn sound() -> ClusterRead {
    ClusterRead {
        name: "prod".to_owned(),
        state: Ok(StateRead {
            rollout: RolloutState::Succeeded,
            since: Some(ago_h(100)),
            serving: Serving { state: ServingState::Serves, reasons: Vec::new() },
            findings: Vec::new(),
            first: Some(("apiserver".to_owned(), 300)),
        }),
        backups: Some(Ok(Backups { every_hours: Some(6), newest: Some(ago_h(5)), since: Some(ago_h(100)) })),
        pins: Some(Ok(vec![row(Pin::Images, "1"), row(Pin::Agent, "1")])),
    }
}

fn lines(findings: &[Finding]) -> Vec<String> {
    findings
        .iter()
        .map(|one| {
            format!(
                "{} {}: {} | {}",
                one.level.word(),
                one.about,
                one.message,
                one.help.as_deref().unwrap_or("-")
            )
        })
        .collect()
}

fn wrong(read: &ClusterRead) -> Vec<String> {
    let all = of_cluster(read, now());
    lines(&all.into_iter().filter(|one| one.level != Level::Ok).collect::<Vec<_>>())
}

fn state(read: &mut ClusterRead) -> &mut StateRead {
    read.state.as_mut().unwrap()
}

#[test]
fn a_sound_cluster_has_no_finding_that_needs_anybody() {
    assert_eq!(wrong(&sound()), Vec::<String>::new());
    let all = lines(&of_cluster(&sound(), now()));
    for words in [
        "prod: rollout: succeeded since 2026-11-22",
        "apiserver ends first, in 300 d",
        "stored 5 h ago",
        "pins of images: nothing is newer; looked up 3 d ago",
    ] {
        assert!(all.iter().any(|line| line.contains(words)), "{words}: {all:#?}");
    }
}

/// What is changed in a sound cluster; the words of the one finding.
type Case = (fn(&mut ClusterRead), &'static [&'static str]);

fn tell(read: &mut ClusterRead, gravity: Gravity, about: &str) {
    let (about, message, help) =
        (about.to_owned(), "it is so".to_owned(), "slipway resume --cluster prod".to_owned());
    state(read).findings.push(overview::Finding { gravity, about, message, help });
}

fn backups(read: &mut ClusterRead) -> &mut Backups {
    read.backups.as_mut().unwrap().as_mut().unwrap()
}

const CASES: &[Case] = &[
    (
        |read| tell(read, Gravity::Wrong, "rollout"),
        &["problem prod: rollout: it is so | slipway resume --cluster prod"],
    ),
    (|read| tell(read, Gravity::Notice, "rollout"), &["warning prod: rollout: it is so"]),
    (
        |read| {
            state(read).serving =
                Serving { state: ServingState::Down, reasons: vec!["etcd: no quorum".to_owned()] }
        },
        &["problem prod: serving: down: etcd: no quorum", "slipway status --cluster prod"],
    ),
    (
        |read| {
            state(read).serving =
                Serving { state: ServingState::Unknown, reasons: vec!["none reported".to_owned()] }
        },
        &["unknown prod: serving: not known whether it serves: none reported"],
    ),
    (
        |read| backups(read).newest = Some(ago_h(13)),
        &["problem prod: snapshots: ", "stored 13 h ago", "slipway snapshot --cluster prod"],
    ),
    (|read| backups(read).newest = None, &["problem prod: snapshots: there is no verified snapshot"]),
    (
        |read| backups(read).every_hours = None,
        &["warning prod: snapshots: ", "none is taken on a schedule", "etcd.snapshots"],
    ),
    (
        |read| read.pins = Some(Ok(vec![row(Pin::Agent, "2")])),
        &["warning prod: pins of agent: n 1 → 2; looked up 3 d ago", "slipway upgrade agent --cluster prod"],
    ),
    (
        |read| {
            read.pins = Some(Err(Unread {
                why: "denied".to_owned(),
                help: "allow ssm:GetParameter".to_owned(),
                denied: true,
            }));
        },
        &["unknown prod: pins: not checked: denied | allow ssm:GetParameter"],
    ),
];

#[test]
fn each_mistake_of_a_cluster_is_one_finding_with_its_cure() {
    for (change, expected) in CASES {
        let mut read = sound();
        change(&mut read);
        let wrong = wrong(&read);
        assert_eq!(wrong.len(), 1, "{expected:?}: {wrong:#?}");
        for words in *expected {
            assert!(wrong[0].contains(words), "{words}: {}", wrong[0]);
        }
    }
}

#[test]
fn a_new_cluster_misses_no_snapshot_and_a_destroyed_one_nothing_at_all() {
    let mut read = sound();
    *backups(&mut read) = Backups { every_hours: Some(6), newest: None, since: Some(ago_h(5)) };
    assert_eq!(wrong(&read), Vec::<String>::new());
    state(&mut read).serving = Serving { state: ServingState::Gone, reasons: Vec::new() };
    (read.backups, read.pins) = (None, None);
    assert_eq!(lines(&of_cluster(&read, now())).len(), 1);
}

#[test]
fn what_a_spec_may_not_use_and_what_its_parameters_lack_are_problems() {
    let sound = || SpecRead {
        about: "cluster.yaml".to_owned(),
        apply: "slipway apply cluster.yaml".to_owned(),
        cluster: None,
        diagnostics: Vec::new(),
        objections: Some(Ok(Vec::new())),
        images: [("/aws/image".to_owned(), Ok(Some("ami-0a1b2c3d4e5f60718".to_owned())))].into(),
        no_agent: BTreeSet::new(),
    };
    let all = lines(&of_spec(&sound()));
    assert!(all.len() == 1 && all[0].starts_with("ok cluster.yaml: accepted"), "{all:?}");

    let diagnostic = |severity| {
        let mut one = Diagnostic::for_whole_spec("zone", "hosted zone Z1 is not listed");
        one.severity = severity;
        one.help = Some("sam deploy HostedZoneIds=Z1".to_owned());
        one
    };
    let with = |change: &dyn Fn(&mut SpecRead)| {
        let mut spec = sound();
        change(&mut spec);
        let all = lines(&of_spec(&spec));
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    };
    let refused = with(&|spec| spec.objections = Some(Ok(vec![diagnostic(Severity::Error)])));
    assert_eq!(refused, "problem cluster.yaml: hosted zone Z1 is not listed | sam deploy HostedZoneIds=Z1");
    assert!(with(&|spec| spec.diagnostics.push(diagnostic(Severity::Warning))).starts_with("warning "));
    let missing = with(&|spec| drop(spec.images.insert("/aws/image".to_owned(), Ok(None))));
    assert!(
        missing.contains("/aws/image of its image does not exist") && missing.contains("amiId"),
        "{missing}"
    );
    let secret =
        with(&|spec| drop(spec.images.insert("/aws/image".to_owned(), Ok(Some("hunter2".to_owned())))));
    assert!(secret.starts_with("problem ") && !secret.contains("hunter2"), "{secret}");
    let agent = with(&|spec| spec.no_agent = BTreeSet::from([Architecture::Arm64]));
    assert!(
        agent.contains("arm64") && agent.contains("slipway publish-agent dist/arm64/slipway-node"),
        "{agent}"
    );
}
