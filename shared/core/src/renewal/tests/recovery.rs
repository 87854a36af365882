//! What a recovery makes of answers that no simulated machine gives.

#![allow(clippy::wildcard_enum_match_arm, reason = "of the verbs two are meant")]

use crate::node::{
    Command, CommandView, EtcdHealth, Failure, FailureCode, HowUnanswered, Refreshed, Unanswered, Verb,
};
use crate::renewal::recovery::{Heard, Progress, Recovery, Stage, TRIES};

use super::{BTreeMap, BTreeSet, Role, SignedDuration};

fn failed(code: FailureCode, passing: bool) -> Heard {
    let failure = Failure::passing(code, "it does not work", "look there");
    Heard::View(CommandView::Failed(Failure { passing, ..failure }))
}

fn start(machines: &[(Role, &[&str])]) -> Recovery {
    let digests = machines.iter().map(|(role, _)| (role.clone(), format!("digest of {role}"))).collect();
    let machines = machines
        .iter()
        .map(|(role, machines)| (role.clone(), machines.iter().map(|id| (*id).to_owned()).collect()))
        .collect();
    Recovery::new("run", &machines, &digests, super::start())
}

/// Answers every command by `answer`, a minute after the other, until it is over; what was sent.
fn drive(recovery: &mut Recovery, answer: impl Fn(&Command) -> Option<Heard>) -> Vec<Command> {
    let (mut sent, mut now, mut heard) = (Vec::<Command>::new(), super::start(), BTreeMap::new());
    for _ in 0..500 {
        let turn = recovery.next(&heard, now);
        sent.extend(turn.send);
        if recovery.stage() == Stage::Over {
            return sent;
        }
        let under_way = recovery.under_way();
        heard = under_way.iter().filter_map(|one| Some((one.token.clone(), answer(one)?))).collect();
        now = now.saturating_add(SignedDuration::from_mins(1)).unwrap();
    }
    panic!("it never ends: {}", recovery.words());
}

fn well(command: &Command) -> Heard {
    let refreshed = Refreshed {
        changed: true,
        credentials: String::new(),
        served: Vec::new(),
        restarted: Vec::new(),
        kubelet: None,
        published: true,
    };
    Heard::View(CommandView::Answered(match &command.verb {
        Verb::EtcdHealth => EtcdHealth { serving: true, ..EtcdHealth::default() }.into(),
        _ => refreshed.into(),
    }))
}

#[test]
fn p7_a_member_is_restarted_for_nothing_a_controller_only_where_it_must_and_nobody_is_asked_twice() {
    let controllers: (Role, &[&str]) = (Role::Controller, &["i-c1", "i-c2"]);
    let pool: (Role, &[&str]) = (Role::Pool("a".to_owned()), &["i-w1", "i-w2"]);
    let mut recovery = start(&[
        (Role::Etcd(0), &["i-e0"]),
        (Role::Etcd(1), &["i-e1"]),
        (Role::Etcd(2), &["i-e2"]),
        controllers,
        pool,
    ]);
    let sent = drive(&mut recovery, |command| Some(well(command)));
    assert!(recovery.is_well());
    let refreshed: Vec<(&str, bool)> = sent
        .iter()
        .filter_map(|command| match &command.verb {
            Verb::Refresh { restart, .. } => Some((command.instance.as_str(), *restart)),
            _ => None,
        })
        .collect();
    let wanted = [
        ("i-e0", false),
        ("i-e1", false),
        ("i-e2", false),
        ("i-c1", true),
        ("i-c2", true),
        ("i-w1", false),
        ("i-w2", false),
    ];
    assert_eq!(refreshed, wanted);
    let tokens: BTreeSet<&String> = sent.iter().map(|command| &command.token).collect();
    assert_eq!(tokens.len(), sent.len());
    assert!(sent.iter().all(|command| command.token.len() <= 100));
}

#[test]
fn p7_a_kubelet_without_a_certificate_is_asked_again_and_what_will_not_pass_is_not() {
    let controllers: (Role, &[&str]) = (Role::Controller, &["i-c1", "i-c2"]);
    let mut recovery =
        start(&[(Role::Etcd(0), &["i-e0"]), controllers, (Role::Pool("a".to_owned()), &["i-w1"])]);
    let sent = drive(&mut recovery, |command| {
        Some(match command.instance.as_str() {
            "i-c1" => failed(FailureCode::RefreshKubelet, true),
            "i-w1" => failed(FailureCode::CredentialsMissing, false),
            _ => well(command),
        })
    });
    let asked = |instance: &str| sent.iter().filter(|command| command.instance == instance).count();
    assert_eq!((asked("i-c1"), asked("i-c2"), asked("i-w1")), (TRIES as usize, 1, 1));
    // The other controller did not wait for the first one's kubelet.
    let place = |instance: &str| sent.iter().position(|command| command.instance == instance).unwrap();
    assert!(place("i-w1") < sent.iter().rposition(|command| command.instance == "i-c1").unwrap());
    assert!(!recovery.is_well() && recovery.ended().is_none(), "the worker was asked all the same");
    let said: Vec<&Progress> = recovery.nodes().iter().map(|node| &node.progress).collect();
    let why = Progress::Failed("it does not work (look there)".to_owned());
    assert_eq!(said, [&Progress::Done, &why, &Progress::Done, &why]);
}

#[test]
fn p7_an_etcd_that_does_not_serve_holds_back_all_others_and_so_do_controllers_that_take_nothing() {
    let machines: [(Role, &[&str]); 3] =
        [(Role::Etcd(0), &["i-e0"]), (Role::Controller, &["i-c1"]), (Role::Pool("a".to_owned()), &["i-w1"])];
    let mut recovery = start(&machines);
    let sent = drive(&mut recovery, |command| match command.verb {
        // Nobody ever hears what became of some of the questions.
        Verb::EtcdHealth if command.token.ends_with('1') => None,
        Verb::EtcdHealth => Some(Heard::View(CommandView::Unanswered(Unanswered {
            how: HowUnanswered::Succeeded,
            problem: Some("its answer cannot be understood".to_owned()),
        }))),
        _ => Some(well(command)),
    });
    assert!(sent.iter().all(|command| command.instance == "i-e0"));
    assert!(recovery.ended().unwrap().contains("etcd does not serve"), "{:?}", recovery.ended());
    let mut recovery = start(&machines);
    let sent = drive(&mut recovery, |command| match command.instance.as_str() {
        "i-c1" => Some(Heard::NotSent("it is not known".to_owned())),
        _ => Some(well(command)),
    });
    assert!(sent.iter().all(|command| command.instance != "i-w1"));
    assert!(recovery.ended().unwrap().contains("no controller"), "{:?}", recovery.ended());
}
