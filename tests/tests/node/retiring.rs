//! `slipway-node etcd retire` as a whole: the binary on a member of a cluster that is being destroyed, with a hosted zone that answers like
//! Route 53.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use slipway_tests::imds::Imds;
use slipway_tests::tools;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::configs::member;

/// The page size, so that there are several pages.
const PAGE: usize = 2;
const SPACE: &str = "https://route53.amazonaws.com/doc/2013-04-01/";

/// A record of the zone: its name, type, TTL and value.
type Set = (&'static str, &'static str, u32, &'static str);

/// A hosted zone.
#[derive(Debug, Default)]
struct Zone {
    sets: Vec<Set>,
    /// What others do to the zone before each change, in order.
    meanwhile: Vec<Vec<Set>>,
    /// Members are refused in the short form, whose error code is the document's name; Route 53 uses both forms.
    short: bool,
    denied: bool,
    changes: usize,
}

type Shared = Arc<Mutex<Zone>>;

impl Zone {
    fn list(&self, query: &str) -> String {
        let name = query.split('&').find_map(|part| part.strip_prefix("name=")).unwrap_or_default();
        let from = self.sets.iter().position(|set| set.0 == name).unwrap_or_default();
        let page: String = self.sets[from..].iter().take(PAGE).map(xml).collect();
        let more = self.sets.get(from + PAGE).map_or_else(
            || "<IsTruncated>false</IsTruncated>".to_owned(),
            |next| {
                format!(
                    "<IsTruncated>true</IsTruncated><NextRecordName>{}</NextRecordName><NextRecordType>{}</NextRecordType>",
                    next.0, next.1
                )
            },
        );
        format!(
            "<ListResourceRecordSetsResponse xmlns=\"{SPACE}\"><ResourceRecordSets>{page}</ResourceRecordSets>{more}</ListResourceRecordSetsResponse>"
        )
    }

    /// A batch succeeds or fails as a whole: each record must exist exactly as given, except for the dot at the end of its name.
    fn change(&mut self, body: &str) -> (u16, String) {
        self.changes += 1;
        if !self.meanwhile.is_empty() {
            self.sets = self.meanwhile.remove(0);
        }
        if self.denied {
            let denied = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>";
            return (403, denied.to_owned());
        }
        let deleted = body.split("<Change>").skip(1);
        let mut left = self.sets.clone();
        for change in deleted {
            assert!(change.starts_with("<Action>DELETE</Action>"), "{change}");
            let same = |set: &Set| change.contains(&xml(set).replace(".</Name>", "</Name>"));
            let Some(at) = left.iter().position(same) else {
                let words = "Tried to delete resource record set but it was not found";
                let refused = match self.short {
                    true => format!(
                        "<InvalidChangeBatch xmlns=\"{SPACE}\"><Messages><Message>{words}</Message></Messages></InvalidChangeBatch>"
                    ),
                    false => format!(
                        "<ErrorResponse xmlns=\"{SPACE}\"><Error><Type>Sender</Type><Code>InvalidChangeBatch</Code><Message>[{words}]</Message></Error></ErrorResponse>"
                    ),
                };
                return (400, refused);
            };
            left.remove(at);
        }
        self.sets = left;
        let info = "<ChangeInfo><Id>/change/C1</Id><Status>PENDING</Status></ChangeInfo>";
        (
            200,
            format!(
                "<ChangeResourceRecordSetsResponse xmlns=\"{SPACE}\">{info}</ChangeResourceRecordSetsResponse>"
            ),
        )
    }
}

fn xml((name, kind, ttl, value): &Set) -> String {
    format!(
        "<ResourceRecordSet><Name>{name}</Name><Type>{kind}</Type><TTL>{ttl}</TTL>\
         <ResourceRecords><ResourceRecord><Value>{value}</Value></ResourceRecord></ResourceRecords></ResourceRecordSet>"
    )
}

async fn answer(State(zone): State<Shared>, request: Request) -> (StatusCode, String) {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    assert_eq!(parts.uri.path().trim_end_matches('/'), "/2013-04-01/hostedzone/Z1/rrset");
    let mut zone = zone.lock().unwrap();
    let (status, text) = match parts.method {
        Method::GET => (200, zone.list(parts.uri.query().unwrap_or_default())),
        _ => zone.change(std::str::from_utf8(&body).unwrap()),
    };
    (StatusCode::from_u16(status).unwrap(), text)
}

/// Records that do not belong to members.
const OTHERS: [Set; 3] = [
    ("a.internal.", "NS", 172_800, "ns-1."),
    ("\\052.a.internal.", "A", 30, "192.0.2.1"),
    ("www.a.internal.", "A", 30, "192.0.2.2"),
];
const MEMBERS: [Set; 3] = [
    ("etcd-0.a.internal.", "A", 30, "10.0.0.5"),
    ("etcd-1.a.internal.", "A", 30, "10.0.0.6"),
    ("etcd-2.a.internal.", "A", 30, "10.0.0.7"),
];

fn with(members: &[Set]) -> Vec<Set> {
    OTHERS.iter().chain(members).copied().collect()
}

/// Runs the verb on a member of a cluster with that zone. Returns the exit code, the output, and the zone afterwards.
async fn retire(zone: Zone) -> (i32, Value, Zone) {
    let zone = Arc::new(Mutex::new(zone));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(Arc::clone(&zone));
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let imds = Imds::start("i-0123456789abcdef0", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("var/lib/slipway");
    fs::create_dir_all(&home).unwrap();
    let config = member("a", "etcd-0.a.internal");
    let node = json!({
        "format": 1, "cluster": "a", "role": "etcd-0", "region": "eu-west-1", "assetBucket": "assets", "agent": null,
        "config": "0", "credentials": "0", "zone": "Z1",
    });
    fs::write(home.join("config.json"), config.to_string()).unwrap();
    fs::write(home.join("node.json"), node.to_string()).unwrap();
    let mut agent = Command::new(tools::binary("slipway-node").unwrap());
    agent.arg("--root").arg(folder.path()).args(["etcd", "retire"]).env_clear();
    agent.env("AWS_ENDPOINT_URL_ROUTE_53", url).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url());
    let output = agent.output().await.unwrap();
    server.abort();
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let zone = std::mem::take(&mut *zone.lock().unwrap());
    (output.status.code().unwrap(), said, zone)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_records_of_members_are_taken_back_all_at_once_and_nobody_elses() {
    let (code, said, zone) = retire(Zone { sets: with(&MEMBERS), ..Zone::default() }).await;
    let names = json!(["etcd-0.a.internal", "etcd-1.a.internal", "etcd-2.a.internal"]);
    assert_eq!((code, &said["zone"], &said["records"]), (0, &json!("Z1"), &names), "{said}");
    assert_eq!((zone.sets.as_slice(), zone.changes), (&OTHERS[..], 1));
    // A second time, as Run Command may do it.
    let (code, said, zone) = retire(zone).await;
    assert_eq!((code, &said["records"], zone.changes), (0, &json!([]), 1), "{said}");
}

/// Other members get the same command at the same time, and the second one lists the records again.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_finds_its_list_untrue_looks_again_and_gives_up_on_nothing_but_a_refusal() {
    for short in [false, true] {
        // One record was deleted by another member; then a member boots and writes its new address; then the zone is as listed.
        let fewer = with(&MEMBERS[..2]);
        let moved = with(&[MEMBERS[0], ("etcd-1.a.internal.", "A", 30, "10.0.0.9")]);
        let meanwhile = vec![fewer, moved];
        let (code, said, zone) =
            retire(Zone { sets: with(&MEMBERS), meanwhile, short, ..Zone::default() }).await;
        assert_eq!(
            (code, &said["records"]),
            (0, &json!(["etcd-0.a.internal", "etcd-1.a.internal"])),
            "{said}"
        );
        assert_eq!((zone.sets.as_slice(), zone.changes), (&OTHERS[..], 3));

        // All records were deleted.
        let meanwhile = vec![OTHERS.to_vec()];
        let (code, said, zone) =
            retire(Zone { sets: with(&MEMBERS), meanwhile, short, ..Zone::default() }).await;
        assert_eq!((code, &said["records"], zone.changes), (0, &json!([]), 1), "{said}");

        // The zone differs every time: the verb gives up after the fifth time, and deletes nothing in part.
        let turns = [&MEMBERS[..1], &MEMBERS[..2], &MEMBERS[..1], &MEMBERS[..2], &MEMBERS[..1]];
        let meanwhile = turns.map(|members| with(&members[members.len() - 1..])).to_vec();
        let (code, said, zone) =
            retire(Zone { sets: with(&MEMBERS), meanwhile, short, ..Zone::default() }).await;
        let why = said["error"]["message"].as_str().unwrap_or_default();
        assert!(code != 0 && why.contains("InvalidChangeBatch"), "{said}");
        assert_eq!((zone.sets, zone.changes), (with(&MEMBERS[..1]), 5));
    }
    let (code, said, zone) = retire(Zone { sets: with(&MEMBERS), denied: true, ..Zone::default() }).await;
    assert!(code != 0 && said["error"]["help"].as_str().unwrap().contains("TakeRecordsBack"), "{said}");
    assert_eq!((zone.sets, zone.changes), (with(&MEMBERS), 1));
}
