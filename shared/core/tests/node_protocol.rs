//! What the functions ask of the node agent and what it prints: the same text as ever, read back whole; and `docs/nodes.md`, which lists
//! it. `UPDATE_DOCS=1 cargo test -p slipway-core --test node_protocol` writes that list anew.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test reads files and the environment")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slipway_core::drain::{Cause, ObjectName, Skipped, Stays, Step, Waiting};
use slipway_core::node::answer::{self, Unreadable, VerbOutcome};
use slipway_core::node::{
    Answer, ClusterServes, DrainRecord, FailureCode, LogUnit, NodesReady, PartHealth, RestoreOrder,
    RestoreStage, Verb, VerbFailure, Word,
};

/// One of each verb, and what the agent of Slipway 0.1.0 prints for it: every field, some twice where there are two forms.
fn printed() -> Vec<(Verb, &'static str)> {
    let node = || "i-0abc".to_owned();
    vec![
        (
            Verb::Status,
            r#"{"applied":{"agent":"a1","config":"c1","credentials":"d1","matchesNodeFile":true},"at":"2026-11-21T20:45:00Z","cluster":"prod","components":[{"healthy":false,"name":"etcd","problem":"it does not answer"}],"etcd":{"alarms":[],"clusterId":"c","dbSize":9,"dbSizeInUse":8,"format":1,"healthy":true,"id":"1","leader":"1","leads":true,"learner":false,"members":[],"name":"etcd-0","problems":[],"raftAppliedIndex":5,"raftIndex":5,"raftLag":0,"revision":4,"serving":true,"term":3,"version":"3.6.5"},"format":1,"healthy":false,"held":[{"fingerprint":"f","issuer":"CN=ca","notAfter":"2027-01-01T00:00:00Z","notBefore":"2026-01-01T00:00:00Z","path":"/etc/etcd/pki/a.pem","serial":"01","subject":"CN=a"}],"instance":{"availabilityZone":"eu-west-1a","id":"i-0abc","privateAddress":"10.0.0.4"},"role":"etcd-0","served":[{"address":"127.0.0.1:2379","certificate":{"fingerprint":"f","issuer":"CN=ca","notAfter":"2027-01-01T00:00:00Z","notBefore":"2026-01-01T00:00:00Z","serial":"01","subject":"CN=etcd-0","verifies":true},"name":"etcd-client","problem":"expired","verifiable":true}]}"#,
        ),
        (
            Verb::Status,
            r#"{"applied":{"matchesNodeFile":true},"at":"2026-11-21T20:45:00Z","cluster":"prod","components":[{"healthy":true,"name":"kubelet"}],"format":1,"healthy":true,"node":{"name":"i-0abc","problem":"it is not Ready: cni plugin not initialized","ready":false,"registered":true},"role":"pool-a","served":[]}"#,
        ),
        (
            Verb::Status,
            r#"{"applied":{"matchesNodeFile":true},"at":"2026-11-27T20:45:00Z","cluster":"prod","components":[],"format":1,"healthy":true,"nodeManager":{"failed":[{"part":"addons"},{"code":"manage.aws","part":"requests"}],"passed":"2026-11-27T08:00:00Z","started":"2026-11-20T08:00:00Z"},"role":"controller","served":[]}"#,
        ),
        (
            Verb::Logs { unit: Some(LogUnit::Etcd), lines: 20 },
            r#"{"role":"etcd-0","units":[{"leftOut":2,"lines":[{"at":"2026-11-21T20:45:00Z","text":"ready to serve"}],"restarts":1,"state":"active (running)","unit":"etcd"}]}"#,
        ),
        (
            Verb::Logs { unit: None, lines: 500 },
            r#"{"role":"","units":[{"leftOut":0,"lines":[{"at":"2026-11-21T20:45:00Z","from":"slipway-bootstrap","text":"a"}],"restarts":0,"state":"failed (failed)","unit":"agent"}]}"#,
        ),
        (
            Verb::Serves { without: BTreeSet::from(["i-0abc".to_owned(), "i-0abd".to_owned()]) },
            r#"{"apiServer":{"healthy":true},"controllerManager":{"healthy":true},"etcd":{"etcd-0":{"healthy":true},"etcd-1":{"healthy":false,"problem":"it does not answer"}},"nodeManager":{"healthy":false,"problem":"its last complete pass ended 20 minutes ago"},"nodes":{"pool-a":{"notReady":[{"node":"i-0abc","why":"it is not Ready: cni plugin not initialized"}],"notReadyMore":0,"ready":2,"registered":3}},"scheduler":{"healthy":true}}"#,
        ),
        (
            Verb::Refresh { credentials: "d2".repeat(32), restart: true },
            r#"{"changed":true,"credentials":"d2","kubelet":{"refused":"it has expired","serial":"0a"},"published":true,"restarted":["etcd"],"served":[]}"#,
        ),
        (
            Verb::Refresh { credentials: "d2".repeat(32), restart: false },
            r#"{"changed":false,"credentials":"d2","published":false,"restarted":[],"served":[]}"#,
        ),
        (
            Verb::EtcdHealth,
            r#"{"alarms":[{"kind":"NOSPACE","member":"1"}],"clusterId":"c","dbQuota":10,"dbSize":9,"dbSizeInUse":8,"format":1,"healthy":false,"id":"1","leader":"1","leads":true,"learner":false,"members":[{"clientUrls":["https://a:2379"],"id":"2","leads":false,"learner":true,"name":"etcd-1","peerUrls":["https://a:2380"],"problem":"slow","raftLag":2,"reachable":true}],"name":"etcd-0","problems":["the alarm NOSPACE of 1 is raised"],"raftAppliedIndex":5,"raftIndex":5,"raftLag":0,"revision":4,"serving":true,"term":3,"version":"3.6.5"}"#,
        ),
        (Verb::EtcdMoveLeader, r#"{"leader":"8e9e05c52164694d","moved":true}"#),
        (Verb::EtcdMoveLeader, r#"{"leader":"8e9e","moved":false,"reason":"another member leads"}"#),
        (Verb::EtcdMoveLeader, r#"{"leader":"8e9e","moved":false,"reason":"no other member has a vote"}"#),
        (
            Verb::EtcdSnapshot,
            r#"{"key":"clusters/prod/etcd-snapshots/20261121T204500Z","revision":7,"sealedUnder":"arn:aws:kms:k","seconds":3,"sha256":"aa","size":9,"time":"20261121T204500Z","version":"3.6.5"}"#,
        ),
        (Verb::EtcdRemove { member: "etcd-4".to_owned() }, r#"{"id":"5","members":3,"removed":true}"#),
        (Verb::EtcdRemove { member: "etcd-4".to_owned() }, r#"{"members":3,"removed":false}"#),
        (Verb::EtcdRetire, r#"{"records":["etcd-0.prod.etcd.internal"],"zone":"Z1"}"#),
        (
            restore(RestoreStage::Whole),
            r#"{"bumped":true,"changed":true,"doubts":["it has no name"],"etcd":"waiting","initialCluster":"etcd-0=https://a:2380","keptAside":"data.before-1","ofEarlierEtcd":true,"reason":"it has no leader","sha256":"aa","snapshot":"20261121T204500Z","started":true,"token":"prod-1","tokensBefore":["prod-0"]}"#,
        ),
        (
            restore(RestoreStage::Prepare),
            r#"{"bumped":false,"changed":false,"etcd":"unchanged","initialCluster":"etcd-0=https://a:2380","sha256":"aa","snapshot":"20261121T204500Z","started":false,"token":"prod-1"}"#,
        ),
        (
            Verb::EtcdDefragment,
            r#"{"alarm":"disarmed","compacted":7,"inUse":2,"quota":10,"seconds":4,"sizeAfter":3,"sizeBefore":9}"#,
        ),
        (
            Verb::EtcdDefragment,
            r#"{"alarm":"still raised","inUse":2,"seconds":4,"sizeAfter":3,"sizeBefore":9}"#,
        ),
        (
            Verb::Drain { node: node(), for_s: 3_000, force_after_s: Some(600) },
            r#"{"done":false,"evicted":{"count":2,"last":["shop/web-1","shop/web-0"]},"forced":{"count":1,"last":["shop/db-0"]},"node":"i-0abc","notReady":"False","since":"2026-11-21T20:45:00Z","skipped":{"daemon-set":2,"mirror":1},"waiting":[{"cause":"two-budgets","pod":"shop/api-0","why":"two budgets select it"}],"waitingMore":0}"#,
        ),
        (
            Verb::Drain { node: node(), for_s: 3_000, force_after_s: None },
            r#"{"done":true,"evicted":{"count":0,"last":[]},"forced":{"count":0,"last":[]},"node":"i-0abc","notReady":null,"since":null,"skipped":{},"waiting":[],"waitingMore":0}"#,
        ),
        (Verb::Uncordon { node: node() }, r#"{"cordoned":false,"node":"i-0abc"}"#),
    ]
}

fn restore(stage: RestoreStage) -> Verb {
    let url = |name: &str| (name.to_owned(), format!("https://{name}.example:2380"));
    Verb::EtcdRestore(Box::new(RestoreOrder {
        snapshot: "20261121T204500Z".to_owned(),
        token: "prod-1".to_owned(),
        members: BTreeMap::from(["etcd-0", "etcd-1"].map(url)),
        bump: 1_000_000_000,
        sha256: Some("ab".repeat(32)),
        stage,
    }))
}

const FAILURE: &str = r#"{"error":{"code":"kubernetes.unavailable","help":"look","message":"the node i-1: no answer","transient":true}}"#;

#[test]
fn what_an_agent_has_ever_printed_is_read_and_printed_again_byte_for_byte() {
    for (verb, text) in printed() {
        let read = answer::read(&verb, text).unwrap();
        assert!(read.is_ok(), "{text}");
        assert_eq!(answer::printed(&read).to_string(), text);
        // The next release may say more.
        let more = text.replacen('{', r#"{"more":{"new":1},"#, 1);
        assert_eq!(answer::read(&verb, &more).unwrap(), read, "{text}");
        let failed = answer::read(&verb, FAILURE).unwrap();
        assert!(failed.as_ref().is_err_and(|failure| failure.is(FailureCode::KubernetesUnavailable)));
        assert_eq!(answer::printed(&failed).to_string(), FAILURE);
    }
}

#[test]
fn each_verb_is_read_back_from_its_document_and_parameters() {
    let mut documents = BTreeSet::new();
    for (verb, _) in printed() {
        documents.insert(verb.document());
        let parameters = verb.parameters();
        assert_eq!(Verb::read(verb.document(), &parameters), Ok(verb.clone()));
        for name in parameters.keys() {
            let mut less = parameters.clone();
            less.remove(name);
            assert!(Verb::read(verb.document(), &less).unwrap_err().contains(name.as_str()), "{verb:?}");
        }
    }
    assert_eq!(documents.len(), Answer::VERBS, "`printed` has each verb");
    let mut drain = Verb::Drain { node: "a".to_owned(), for_s: 1, force_after_s: None }.parameters();
    drain.insert("ForceAfter".to_owned(), "soon".to_owned());
    assert!(Verb::read("Slipway-Drain", &drain).is_err());
    assert!(Verb::read("Slipway-Sleep", &drain).is_err());
}

#[test]
fn an_answer_of_another_verb_and_one_without_what_decisions_need_are_none() {
    let all = printed();
    for (verb, _) in &all {
        for (other, text) in all.iter().filter(|(other, _)| other.document() != verb.document()) {
            let read = answer::read(verb, text);
            assert!(matches!(read, Err(Unreadable::Unexpected(_))), "{verb:?} reads {other:?}: {read:?}");
        }
        for nonsense in ["", "Killed", "[]", "1", r#"{"done":"#] {
            assert_eq!(answer::read(verb, nonsense), Err(Unreadable::NoJson), "{nonsense}");
        }
        assert!(answer::read(verb, r#"{"error":"it failed"}"#).is_err());
    }
    // What one must know, and no more: an agent of another release may say less.
    let least = [
        (
            Verb::Refresh { credentials: String::new(), restart: false },
            r#"{"changed":true,"credentials":"d"}"#,
        ),
        (Verb::Logs { unit: None, lines: 1 }, r#"{"units":[]}"#),
        (Verb::EtcdSnapshot, r#"{"time":"t","key":"k"}"#),
        (Verb::EtcdRemove { member: String::new() }, r#"{"removed":true}"#),
        (Verb::EtcdRetire, r#"{"records":[]}"#),
        (
            restore(RestoreStage::Whole),
            r#"{"changed":true,"etcd":"waiting","snapshot":"s","token":"t","initialCluster":"i","sha256":"a","bumped":true}"#,
        ),
        (Verb::EtcdDefragment, r#"{"sizeBefore":2,"sizeAfter":1}"#),
        (
            Verb::Serves { without: BTreeSet::new() },
            r#"{"apiServer":{"healthy":true},"controllerManager":{"healthy":true},"scheduler":{"healthy":true},"nodeManager":{"healthy":true},"etcd":{}}"#,
        ),
        (Verb::Drain { node: String::new(), for_s: 1, force_after_s: None }, r#"{"node":"i","done":true}"#),
    ];
    for (verb, text) in least {
        assert!(answer::read(&verb, text).unwrap().is_ok(), "{text}");
        let value: Value = serde_json::from_str(text).unwrap();
        for name in value.as_object().unwrap().keys() {
            let mut less = value.clone();
            less.as_object_mut().unwrap().remove(name);
            assert!(answer::read(&verb, &less.to_string()).is_err(), "{name} may be missing in {text}");
        }
    }
}

#[test]
fn words_of_a_newer_agent_are_kept_and_decide_nothing() {
    let newer = r#"{"error":{"code":"drain.asleep","help":"","message":"m","transient":false}}"#;
    let read = answer::read(&Verb::Status, newer).unwrap();
    let failure = read.as_ref().unwrap_err();
    assert_eq!(failure.code, Word::Other("drain.asleep".to_owned()));
    assert!(FailureCode::ALL.iter().all(|code| !failure.is(*code)));
    assert_eq!(answer::printed(&read).to_string(), newer);
    let (drain, text) = printed().into_iter().find(|(verb, _)| verb.drains().is_some()).unwrap();
    let newer = text.replace("two-budgets", "three-budgets").replace("daemon-set", "asleep");
    let read = answer::read(&drain, &newer).unwrap();
    assert_eq!(answer::printed(&read).to_string().len(), newer.len());
    assert!(matches!(&read, Ok(Answer::Drain(drained)) if !drained.done), "{read:?}");
}

#[test]
fn each_failure_code_has_one_word_that_reads_back() {
    let words: BTreeSet<&str> = FailureCode::ALL.iter().map(|code| code.word()).collect();
    assert_eq!(words.len(), FailureCode::ALL.len());
    assert!(FailureCode::ALL.is_sorted_by_key(|code| code.word()), "in the order of their words");
    for code in FailureCode::ALL {
        let outcome: VerbOutcome = Err(VerbFailure::permanent(*code, "m", "h"));
        let text = answer::printed(&outcome).to_string();
        assert!(text.contains(&format!(r#""code":"{}""#, code.word())), "{text}");
        assert_eq!(answer::read(&Verb::Status, &text), Ok(outcome));
    }
}

#[test]
fn a_drain_tells_what_was_done_and_fits_into_what_systems_manager_keeps() {
    let name = |n: usize| ObjectName::new("n".repeat(63), format!("{}{n}", "p".repeat(60)));
    let waiting = |n| Waiting { pod: name(n), cause: Cause::Budget, why: "w".repeat(5_000) };
    let skipped = [Stays::DaemonSet, Stays::Mirror, Stays::DaemonSet];
    let step = Step {
        waiting: (0..500).map(waiting).collect(),
        skipped: skipped.into_iter().map(|why| Skipped { pod: name(0), why }).collect(),
        ..Step::default()
    };
    let mut record = DrainRecord::new("node-1");
    record.see(None, Some("Unknown"), &step);
    for n in 0..40 {
        record.evicted(&name(n));
    }
    record.forced(&name(7));
    let told = record.answer(false);
    assert_eq!((told.done, told.waiting.len(), told.waiting_more), (false, 30, 470));
    assert_eq!(
        (told.evicted.count, told.evicted.last.len(), &told.evicted.last[0]),
        (40, 30, &name(39).to_string())
    );
    assert_eq!(
        (told.forced.count, told.node.as_str(), told.not_ready.as_deref()),
        (1, "node-1", Some("Unknown"))
    );
    assert_eq!(told.skipped[&Stays::DaemonSet.into()], 2);
    let text = answer::printed(&Ok(Answer::from(told.clone()))).to_string();
    assert!(text.len() < 24_000, "{}", text.len());
    let verb = Verb::Drain { node: "node-1".to_owned(), for_s: 1, force_after_s: None };
    // The reader keeps as many names as fit into 600 characters; the count stays.
    let mut read = told;
    read.evicted.last.truncate(4);
    assert_eq!(answer::read(&verb, &text).unwrap(), Ok(read.into()));
}

#[test]
fn what_a_controller_says_of_a_large_cluster_fits_into_what_systems_manager_keeps() {
    let why = "é".repeat(5_000);
    let node =
        |n: usize| (format!("pool-{}{}", n % 60, "p".repeat(40)), format!("i-{n:017x}"), Some(why.clone()));
    let nodes = NodesReady::by_role(
        (0..2_000).map(node).chain([("controller".to_owned(), "i-1".to_owned(), None)]),
        &BTreeSet::new(),
    );
    assert_eq!((nodes["controller"].registered, nodes["controller"].ready), (1, 1));
    let named: usize = nodes.values().map(|pool| pool.not_ready.len()).sum();
    let more: u32 = nodes.values().map(|pool| pool.not_ready_more).sum();
    assert_eq!((nodes.len(), named, more), (61, 50, 1_950));
    let part = || PartHealth::new(Some(why.clone()));
    let serves = ClusterServes {
        api_server: part(),
        controller_manager: part(),
        scheduler: part(),
        node_manager: part(),
        etcd: (0..9).map(|n| (format!("etcd-{n}"), part())).collect(),
        nodes: Some(nodes),
    };
    let text = answer::printed(&Ok(Answer::from(serves))).to_string();
    assert!(text.chars().count() < 24_000, "{}", text.chars().count());
}

/// The tables of `docs/nodes.md`.
fn tables() -> String {
    let mut text = "| document | parameters | its answer, an object of |\n|---|---|---|\n".to_owned();
    let mut verbs: Vec<(Verb, BTreeSet<String>)> = Vec::new();
    for (verb, printed) in printed() {
        let value: Value = serde_json::from_str(printed).unwrap();
        let fields: BTreeSet<String> = value.as_object().unwrap().keys().cloned().collect();
        match verbs.iter_mut().find(|(known, _)| known.document() == verb.document()) {
            Some((_, known)) => known.extend(fields),
            None => verbs.push((verb, fields)),
        }
    }
    let code = |names: Vec<String>| match names.as_slice() {
        [] => "none".to_owned(),
        _ => names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "),
    };
    let mut row = |document: &str, parameters: Vec<String>, fields: BTreeSet<String>| {
        let (parameters, fields) = (code(parameters), code(fields.into_iter().collect()));
        text.push_str(&format!("| `{document}` | {parameters} | {fields} |\n"));
    };
    for (verb, fields) in verbs {
        row(verb.document(), verb.parameters().into_keys().collect(), fields);
    }
    text.push_str("\n| code | what it says |\n|---|---|\n");
    for code in FailureCode::ALL {
        text.push_str(&format!("| `{}` | {} |\n", code.word(), code.meaning()));
    }
    text
}

#[test]
fn the_docs_list_every_document_answer_and_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/nodes.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (begin, end) = ("<!-- protocol -->\n", "<!-- end of protocol -->");
    let start = page.find(begin).expect("docs/nodes.md has the mark where the tables begin") + begin.len();
    let stop = page.find(end).expect("docs/nodes.md has the mark where the tables end");
    let fresh = format!("{}{}{}", &page[..start], tables(), &page[stop..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &fresh).unwrap();
    }
    let page = std::fs::read_to_string(path).unwrap();
    assert!(
        page == fresh,
        "docs/nodes.md is stale: run UPDATE_DOCS=1 cargo test -p slipway-core --test node_protocol"
    );
}
