//! What a recovery makes of answers that no simulated machine gives.

#![allow(clippy::wildcard_enum_match_arm, reason = "of the verbs two are meant")]

use slipway_core::node::{
    Command, CommandView, EtcdHealth, FailureCode, HowUnanswered, Refreshed, Unanswered, Verb, VerbFailure,
};

use super::{BTreeMap, BTreeSet, Role, SignedDuration, Timestamp};
use crate::renewal::recovery::{CommandReport, ETCD_MEETS, LOST, Progress, Recovery, Stage, TRIES};

fn failed(code: FailureCode, transient: bool) -> CommandReport {
    let failure = VerbFailure::transient(code, "it does not work", "look there");
    CommandReport::View(CommandView::Failed(VerbFailure { transient, ..failure }))
}

fn start(machines: &[(Role, &[&str])]) -> Recovery {
    start_at(machines, super::start())
}

fn start_at(machines: &[(Role, &[&str])], now: Timestamp) -> Recovery {
    let digests = machines.iter().map(|(role, _)| (role.clone(), format!("digest of {role}"))).collect();
    let machines = machines
        .iter()
        .map(|(role, machines)| (role.clone(), machines.iter().map(|id| (*id).to_owned()).collect()))
        .collect();
    Recovery::new("run", &machines, &digests, now)
}

/// Answers every command by `answer`, a minute after the other, until it is over; what was sent.
fn drive(recovery: &mut Recovery, answer: impl Fn(&Command) -> Option<CommandReport>) -> Vec<Command> {
    drive_and_listen(recovery, answer).0
}

/// The same, with all that it said, and all that it said that it waits for.
fn drive_and_listen(
    recovery: &mut Recovery,
    answer: impl Fn(&Command) -> Option<CommandReport>,
) -> (Vec<Command>, Vec<String>, Vec<String>) {
    let (mut sent, mut now, mut heard) = (Vec::<Command>::new(), super::start(), BTreeMap::new());
    let (mut said, mut words) = (Vec::new(), vec![recovery.words()]);
    for _ in 0..500 {
        let turn = recovery.next(&heard, now);
        sent.extend(turn.send);
        said.extend(turn.messages);
        words.push(recovery.words());
        if recovery.stage() == Stage::Over {
            words.dedup();
            return (sent, said, words);
        }
        let under_way = recovery.under_way();
        heard = under_way.iter().filter_map(|one| Some((one.token.clone(), answer(one)?))).collect();
        now = now.saturating_add(SignedDuration::from_mins(1)).unwrap();
    }
    panic!("it never ends: {}", recovery.words());
}

fn well(command: &Command) -> CommandReport {
    let refreshed = Refreshed {
        changed: true,
        credentials: String::new(),
        served: Vec::new(),
        restarted: Vec::new(),
        kubelet: None,
        published: true,
    };
    CommandReport::View(CommandView::Answered(match &command.verb {
        Verb::EtcdHealth => EtcdHealth { serving: true, ..EtcdHealth::default() }.into(),
        _ => refreshed.into(),
    }))
}

fn not_serving() -> CommandReport {
    let health = EtcdHealth { problems: vec!["no leader".to_owned()], ..EtcdHealth::default() };
    CommandReport::View(CommandView::Answered(health.into()))
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
        Verb::EtcdHealth => Some(CommandReport::View(CommandView::Unanswered(Unanswered {
            how: HowUnanswered::Succeeded,
            problem: Some("its answer cannot be understood".to_owned()),
        }))),
        _ => Some(well(command)),
    });
    assert!(sent.iter().all(|command| command.instance == "i-e0"));
    assert!(recovery.ended().unwrap().contains("etcd does not serve"), "{:?}", recovery.ended());
    let mut recovery = start(&machines);
    let sent = drive(&mut recovery, |command| match command.instance.as_str() {
        "i-c1" => Some(CommandReport::NotSent("it is not known".to_owned())),
        _ => Some(well(command)),
    });
    assert!(sent.iter().all(|command| command.instance != "i-w1"));
    assert!(recovery.ended().unwrap().contains("no controller"), "{:?}", recovery.ended());
}

const MEMBERS: [(Role, &[&str]); 3] =
    [(Role::Etcd(0), &["i-e0"]), (Role::Etcd(1), &["i-e1"]), (Role::Etcd(2), &["i-e2"])];

fn pool() -> (Role, &'static [&'static str]) {
    (Role::Pool("a".to_owned()), &["i-w1"])
}

#[test]
fn p7_each_stage_says_what_it_does_and_for_whom_it_waits() {
    let mut recovery = start(&[(Role::Etcd(0), &["i-e0"]), (Role::Controller, &["i-c1", "i-c2"]), pool()]);
    let (_, said, words) = drive_and_listen(&mut recovery, |command| {
        Some(match &command.verb {
            Verb::EtcdHealth if command.token.ends_with('0') => not_serving(),
            Verb::Refresh { .. } if command.token == "run/i-w1/1" => {
                CommandReport::NotSent("it is not known".to_owned())
            }
            _ => well(command),
        })
    });
    insta::assert_snapshot!(words.join("\n"), @"
    etcd's members take their credentials, one after the other; waits before they are asked again
    etcd's members take their credentials, one after the other; waits for i-e0 (etcd-0)
    waits for a majority of etcd to serve: nobody was asked yet
    waits for a majority of etcd to serve: i-e0 says: it does not serve: no leader
    controllers take theirs: API server, kubeconfigs, kubelet; waits for i-c1 (controller)
    controllers take theirs: API server, kubeconfigs, kubelet; waits for i-c2 (controller)
    workers' kubelets ask for another certificate; waits for i-w1 (pool-a)
    workers' kubelets ask for another certificate; waits before they are asked again
    workers' kubelets ask for another certificate; waits for i-w1 (pool-a)
    it is over
    ");
    insta::assert_snapshot!(said.join("\n"), @"
    i-e0 (etcd-0) is back with its new credentials
    etcd serves again
    i-c1 (controller) is back with its new credentials
    i-c2 (controller) is back with its new credentials
    the API is back on 2 of 2 controllers
    i-w1 (pool-a): it is not known; it is asked again
    i-w1 (pool-a) is back with its new credentials
    ");
}

#[test]
fn p7_a_recovery_goes_on_with_a_majority_of_etcds_members_and_ends_without_one() {
    let ended = |members: &[(Role, &[&str])], lost: &[&str]| {
        let mut machines = members.to_vec();
        machines.extend([(Role::Controller, ["i-c1"].as_slice()), pool()]);
        let mut recovery = start(&machines);
        let (sent, _, words) = drive_and_listen(&mut recovery, |command| {
            let is_lost = lost.contains(&command.instance.as_str());
            Some(if is_lost { failed(FailureCode::CredentialsMissing, false) } else { well(command) })
        });
        let went_on = sent.iter().any(|command| command.instance == "i-w1");
        assert_ne!(went_on, recovery.ended().is_some());
        assert!(!recovery.is_well(), "a member is not back");
        let last = words.last().unwrap().clone();
        assert_eq!(last, recovery.ended().map_or("it is over".to_owned(), |why| format!("it ended: {why}")));
        recovery.ended().map(str::to_owned)
    };
    assert_eq!(ended(&MEMBERS, &["i-e1"]), None);
    let why = |good, all| {
        Some(format!(
            "{good} of {all} members of etcd have the new credentials, and it takes 2 before anything else can come back"
        ))
    };
    assert_eq!(ended(&MEMBERS, &["i-e0", "i-e1"]), why(1, 3));
    assert_eq!(ended(&MEMBERS, &["i-e0", "i-e1", "i-e2"]), why(0, 3));
    // Half is no majority.
    assert_eq!(ended(&MEMBERS[..2], &["i-e0"]), why(1, 2));
}

#[test]
fn p7_a_recovery_skips_the_stages_that_have_no_machine() {
    let asked = |machines: &[(Role, &[&str])]| {
        let mut recovery = start(machines);
        let (sent, said, _) = drive_and_listen(&mut recovery, |command| Some(well(command)));
        assert!(recovery.is_well(), "{:?}", recovery.ended());
        let refreshes = sent.into_iter().filter(|command| matches!(command.verb, Verb::Refresh { .. }));
        (refreshes.map(|command| command.instance).collect::<Vec<_>>().join(" "), said.join("\n"))
    };
    let (sent, said) = asked(&[(Role::Controller, &["i-c1"]), pool()]);
    assert_eq!(sent, "i-c1 i-w1");
    assert!(said.contains("the API is back on 1 of 1 controllers") && !said.contains("etcd"), "{said}");
    let (sent, said) = asked(&[(Role::Etcd(0), &["i-e0"]), pool()]);
    assert_eq!(sent, "i-e0 i-w1");
    assert!(!said.contains("the API"), "{said}");
}

/// A recovery whose one member has its credentials at `now`, and the first question of how etcd is.
fn in_quorum(now: Timestamp) -> (Recovery, Command) {
    let mut recovery = start_at(&[(Role::Etcd(0), &["i-e0"]), (Role::Controller, &["i-c1"])], now);
    let refresh = recovery.next(&BTreeMap::new(), now).send.remove(0);
    let question = recovery.next(&[(refresh.token.clone(), well(&refresh))].into(), now).send.remove(0);
    assert_eq!((recovery.stage(), &question.verb), (Stage::Quorum, &Verb::EtcdHealth));
    (recovery, question)
}

#[test]
fn p7_etcd_has_ten_minutes_to_serve_and_not_a_second_more() {
    let begun = super::start();
    let (mut recovery, question) = in_quorum(begun);
    recovery.next(&[(question.token, not_serving())].into(), begun + ETCD_MEETS);
    assert_eq!((recovery.stage(), recovery.ended()), (Stage::Quorum, None));
    recovery.next(&BTreeMap::new(), begun + ETCD_MEETS + SignedDuration::from_secs(1));
    let why = "etcd does not serve 10 minutes after its members have the new credentials: i-e0 says: it does not serve: no leader";
    assert_eq!((recovery.stage(), recovery.ended()), (Stage::Over, Some(why)));
}

#[test]
fn p7_one_question_to_etcd_is_open_at_a_time_and_the_next_is_three_seconds_after() {
    // Whatever the clock says, the first one is asked at once.
    for begun in [super::start(), Timestamp::MIN] {
        let after = |seconds| begun + SignedDuration::from_secs(seconds);
        let (mut recovery, _) = in_quorum(begun);
        assert_eq!(recovery.next(&BTreeMap::new(), after(60)).send, [], "it is open");
        let (mut recovery, question) = in_quorum(begun);
        assert_eq!(recovery.next(&[(question.token, not_serving())].into(), after(2)).send, []);
        let sent = recovery.next(&BTreeMap::new(), after(3)).send;
        assert_eq!(sent.iter().map(|one| one.token.as_str()).collect::<Vec<_>>(), ["run/i-e0/health-1"]);
    }
}

#[test]
fn p7_a_command_that_run_command_does_not_know_is_lost_after_three_minutes() {
    let begun = super::start();
    let second = SignedDuration::from_secs(1);
    let mut recovery = start(&MEMBERS[..1]);
    recovery.next(&BTreeMap::new(), begun);
    assert_eq!(recovery.next(&BTreeMap::new(), begun + LOST - second).messages, Vec::<String>::new());
    assert_eq!(recovery.nodes()[0].progress, Progress::RenewalRequest(begun));
    let turn = recovery.next(&BTreeMap::new(), begun + LOST);
    let why = "Run Command does not say what became of it; it is asked again";
    assert_eq!(turn.messages, [format!("i-e0 (etcd-0): {why}")]);
    assert!(matches!(recovery.nodes()[0].progress, Progress::Waiting(_)));

    let (mut recovery, question) = in_quorum(begun);
    recovery.next(&BTreeMap::new(), begun + LOST - second);
    assert_eq!(recovery.under_way(), std::slice::from_ref(&question));
    let sent = recovery.next(&BTreeMap::new(), begun + LOST).send;
    assert!(sent.len() == 1 && sent[0].token != question.token, "{sent:?}");
    assert!(recovery.words().ends_with("Run Command does not say what became of the question"));
}
