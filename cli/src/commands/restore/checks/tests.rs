//! The checks of a restore.

#![allow(clippy::unwrap_used, reason = "tests")]

use slipway_core::node::{EtcdMemberHealth, NodesReady, PartHealth, RestoreMark, RestoredEtcd};

use super::*;

fn role(number: u32) -> Role {
    Role::Etcd(number)
}

fn members(numbers: &[u32]) -> BTreeMap<Role, String> {
    numbers.iter().map(|number| (role(*number), format!("i-{number}"))).collect()
}

fn urls(numbers: &[u32]) -> BTreeMap<String, String> {
    numbers.iter().map(|number| (role(*number).to_string(), "https://e:2380".to_owned())).collect()
}

fn answered(sha256: &str, bumped: bool) -> Result<Restored, String> {
    let mark = RestoreMark::new("20261121T204500Z".to_owned(), "t".to_owned(), String::new());
    let mark = RestoreMark { sha256: sha256.to_owned(), bumped, started: true, ..mark };
    let kept_aside = Some("/var/lib/etcd/data.before-1".to_owned());
    Ok(Restored { changed: true, mark, kept_aside, etcd: RestoredEtcd::Serving, reason: None })
}

fn answers(list: Vec<Result<Restored, String>>) -> Answers {
    (0u32..).zip(list).map(|(number, answer)| (role(number), (format!("i-{number}"), answer))).collect()
}

#[test]
fn all_members_that_are_deployed_are_restored_or_none() {
    assert!(must_be_whole("prod", &members(&[0, 1, 2]), &urls(&[0, 1, 2])).is_ok());
    let refused = must_be_whole("prod", &members(&[0, 2]), &urls(&[0, 1, 2])).unwrap_err().to_string();
    assert!(refused.contains("etcd-1 has no machine"), "{refused}");
    let refused = must_be_whole("prod", &members(&[0, 1]), &urls(&[0])).unwrap_err().to_string();
    assert!(
        refused.contains("etcd-1 has a machine, but no deployed release contains this member"),
        "{refused}"
    );
}

#[test]
fn nothing_is_replaced_unless_all_members_have_unpacked_the_same_database() {
    let judge = |list| must_be_prepared("prod", &answers(list), false);
    assert!(judge(vec![answered("a", true), answered("a", true)]).is_ok());
    let refused = judge(vec![answered("a", true), Err("the volume is full".to_owned())]).unwrap_err();
    assert!(refused.to_string().contains("etcd-1 (i-1): the volume is full"), "{refused}");
    for other in [answered("b", true), answered("a", false)] {
        let refused = judge(vec![answered("a", true), other]).unwrap_err();
        assert!(refused.to_string().contains("different databases"), "{refused}");
    }
    // What is not raised is mistaken for the present history by whoever watches it.
    let old = || vec![answered("a", false), answered("a", false)];
    assert!(judge(old()).unwrap_err().to_string().contains("cannot raise revisions"));
    assert!(must_be_prepared("prod", &answers(old()), true).is_ok());
}

/// If two deployed members had never joined, they would be a majority of the restored cluster, and the third one of the present one.
#[test]
fn etcd_has_the_members_that_are_restored() {
    let member = |name: &str| EtcdMemberHealth { name: name.to_owned(), ..EtcdMemberHealth::default() };
    let judge = |names: &[&str]| {
        let members = names.iter().map(|name| member(name)).collect();
        let health = EtcdHealth { members, ..EtcdHealth::default() };
        must_be_members("prod", &role(0), &health, &urls(&[0, 1, 2])).map_err(|error| error.to_string())
    };
    assert_eq!(judge(&["etcd-2", "etcd-0", "etcd-1"]), Ok(()));
    for names in [&["etcd-0"][..], &["etcd-0", "etcd-1", "etcd-2", "etcd-3"], &[]] {
        assert!(judge(names).unwrap_err().contains("and deployed are etcd-0, etcd-1, etcd-2"), "{names:?}");
    }
}

/// Clients compare revisions, so those of a later restore have to be larger, whatever was written in between.
#[test]
fn each_restore_raises_revisions_by_more_than_the_one_before_and_what_was_written_since() {
    let at: Timestamp = "2026-11-27T12:00:00Z".parse().unwrap();
    let (first, second) = (bump(at.as_millisecond()), bump(at.as_millisecond() + 60_000));
    assert!(second - first > 5_000_000, "a minute later");
    assert!(second < (1 << 53) / 50 && second.to_string().len() <= 18, "{second}");
}

#[test]
fn a_restore_that_stops_half_way_says_which_members_are_done() {
    let half = answers(vec![answered("a", true), Err("etcd still runs".to_owned())]);
    let refused = must_be_restored("prod", &half).unwrap_err().to_string();
    assert!(refused.contains("only etcd-0 is restored: etcd-1 (i-1): etcd still runs"), "{refused}");
    let none = answers(vec![Err("a".to_owned()), Err("b".to_owned())]);
    let refused = must_be_restored("prod", &none).unwrap_err().to_string();
    assert!(refused.contains("no member is restored"), "{refused}");
}

#[test]
fn a_machine_that_joined_after_the_snapshot_is_missed() {
    let well = || PartHealth::new(None);
    let nodes = |registered: u32| NodesReady { registered, ready: registered, ..NodesReady::default() };
    let mut serves = ClusterServes {
        api_server: well(),
        controller_manager: well(),
        scheduler: well(),
        node_manager: well(),
        etcd: BTreeMap::from([("etcd-0".to_owned(), well())]),
        nodes: Some(BTreeMap::from([("controller".to_owned(), nodes(1)), ("pool-a".to_owned(), nodes(2))])),
    };
    let mut machines = Machines::from([
        (Role::Etcd(0), BTreeSet::from(["i-0".to_owned()])),
        (Role::Controller, BTreeSet::from(["i-1".to_owned()])),
        ("pool-a".parse().unwrap(), BTreeSet::from(["i-2".to_owned(), "i-3".to_owned()])),
    ]);
    let problems = |serves: Option<&ClusterServes>, machines: &Machines| {
        let answers = serves.map(|serves| ("i-1".to_owned(), serves.clone())).into_iter().collect();
        problems_of(&answers, &BTreeSet::from(["etcd-0".to_owned()]), machines)
    };
    assert_eq!(problems(Some(&serves), &machines), [""; 0]);
    machines.insert("pool-b".parse().unwrap(), BTreeSet::from(["i-4".to_owned()]));
    let found = problems(Some(&serves), &machines);
    assert!(found[0].starts_with("pool-b has 1 machines and 0 Nodes: "), "{found:?}");
    assert_eq!(problems(None, &machines), ["no controller is in service"]);
    serves.nodes = None;
    assert_eq!(problems(Some(&serves), &machines), ["the API server does not list the Nodes"]);
    serves.api_server = PartHealth::new(Some("it does not answer".to_owned()));
    serves.etcd.clear();
    let both = ["the API server on i-1 is not ready: it does not answer", "no member of etcd serves"];
    assert_eq!(problems(Some(&serves), &machines), both);
}

#[test]
fn the_result_says_where_the_previous_data_are_and_what_watchers_need() {
    let (text, machine) = result(
        "prod",
        "20261121T204500Z",
        Some("20261127T120000Z"),
        &answers(vec![answered("a", true)]),
        &[],
    );
    assert!(text.contains("etcd-0 (i-0): the previous data are in /var/lib/etcd/data.before-1"), "{text}");
    assert!(text.contains("it serves again") && !text.contains("restart everything"), "{text}");
    assert!(text.contains("to undo it: slipway restore 20261127T120000Z --cluster prod"), "{text}");
    assert_eq!((&machine["ok"], &machine["bumped"]), (&json!(true), &json!(true)));
    let problems = ["etcd-0: no leader".to_owned()];
    let old = answers(vec![answered("a", false)]);
    let (text, machine) = result("prod", "20261121T204500Z", None, &old, &problems);
    assert!(
        text.contains("restart everything else that watches") && text.contains("- etcd-0: no leader"),
        "{text}"
    );
    assert_eq!(machine["ok"], json!(false));
}

const TIME: &str = "20261121T204500Z";

fn record(key: &str, time: &str, sha256: &str) -> Vec<u8> {
    json!({"time": time, "key": key, "sha256": sha256}).to_string().into_bytes()
}

/// A record was a word about the snapshot beside it: whatever it said, and wherever it came from, that one counted as verified.
#[test]
fn the_record_of_another_snapshot_says_nothing_of_this_one() {
    let one = Snapshot::scheduled(TIME, "2026-11-21T20:45:09Z".parse().unwrap());
    let (good, other) = ("a1".repeat(32), "b2".repeat(32));
    let judge = |record: Option<&[u8]>, given: Option<&str>, unverified| {
        wanted("prod", &one, record, given, unverified).map_err(|error| error.to_string())
    };
    let said = |sha256: Option<&str>, by_person| {
        Ok(ExpectedDatabase { sha256: sha256.map(str::to_owned), by_person })
    };
    let true_record = record(&one.key, TIME, &good);
    assert_eq!(judge(Some(&true_record), None, false), said(Some(&good), false));
    // What a person says counts more.
    assert_eq!(judge(Some(&true_record), Some(&other), false), said(Some(&other), true));
    for false_record in [
        record(&keys::etcd_snapshot("prod", TIME), TIME, &good),
        record(&one.key, "20261120T204500Z", &good),
        record(&one.key, TIME, ""),
        record(&one.key, TIME, &"A1".repeat(32)),
        b"\0\0".to_vec(),
    ] {
        assert!(judge(Some(&false_record), None, false).unwrap_err().contains("is not of this snapshot"));
        assert_eq!(judge(Some(&false_record), None, true), said(None, false));
        assert_eq!(judge(Some(&false_record), Some(&good), false), said(Some(&good), true));
    }
    assert_eq!(judge(None, None, true), said(None, false));
}

#[test]
fn all_members_must_find_the_wanted_database_and_doubts_are_a_persons_to_settle() {
    let judge = |answer: Result<Restored, String>, sha256: Option<&str>, by_person| {
        let wanted = ExpectedDatabase { sha256: sha256.map(str::to_owned), by_person };
        must_be_wanted("prod", &answers(vec![answered("a", true), answer]), &wanted)
            .map_err(|error| error.to_string())
    };
    let doubted = || {
        let mut answer = answered("a", true).unwrap();
        answer.mark.doubts = vec!["it has no name".to_owned()];
        Ok(answer)
    };
    assert_eq!(judge(answered("a", true), None, false), Ok(()));
    assert_eq!(judge(answered("a", true), Some("a"), false), Ok(()));
    let other = judge(answered("b", true), Some("a"), true).unwrap_err();
    assert!(other.contains("etcd-1 has found a database with the SHA-256 b, and not a"), "{other}");
    for sha256 in [None, Some("a")] {
        let refused = judge(doubted(), sha256, false).unwrap_err();
        assert!(refused.contains("it has no name"), "{refused}");
    }
    assert_eq!(judge(doubted(), Some("a"), true), Ok(()));
}

#[test]
fn the_question_shows_what_the_database_must_be_and_who_says_so() {
    let one = Snapshot::scheduled(TIME, "2026-11-21T20:45:09Z".parse().unwrap());
    let shown = |sha256: Option<&str>, by_person| {
        let wanted = ExpectedDatabase { sha256: sha256.map(str::to_owned), by_person };
        about("prod", &one, &wanted, &members(&[0]), one.stored_at)
    };
    assert!(shown(Some("a1b2"), true).contains("the SHA-256 a1b2, as you say"));
    assert!(shown(Some("a1b2"), false).contains("the SHA-256 a1b2, as the record beside it says"));
    assert!(shown(None, false).contains("nobody says what its database must hold"));
}
