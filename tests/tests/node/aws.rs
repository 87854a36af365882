//! The agent's calls to AWS: moto accepts them, botocore signs them in the same way, and refusals are distinguished.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_node::aws::{Aws, Endpoints, Hook, HookResult, Retry};
use slipway_node::failure::AgentError;
use slipway_ports::{ErrorKind, Keys as _};
use slipway_tests::imds::{self, Imds};
use slipway_tests::moto::Moto;
use slipway_tests::tools;
use tokio::net::TcpListener;

use crate::scripted::Scripted;

const REGION: &str = "eu-west-1";

/// A client of the endpoint `url`.
async fn client_of(url: &str) -> (Aws, Imds) {
    let imds = Imds::start("i-0123456789abcdef0", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
    let variables = BTreeMap::from([
        ("AWS_ENDPOINT_URL", url.to_owned()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url().to_owned()),
    ]);
    let endpoints = Endpoints::read(|name| variables.get(name).cloned());
    let retry = Retry { tries: 4, pause: Duration::from_millis(1) };
    (Aws::new(&endpoints, REGION).unwrap().with_retry(retry), imds)
}

#[tokio::test]
async fn an_instance_knows_itself_and_its_role() {
    let (aws, _imds) = client_of("http://127.0.0.1:9").await;
    let instance = aws.imds().instance().await.unwrap();
    assert_eq!(instance.id, "i-0123456789abcdef0");
    assert_eq!(instance.arn, "arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0");
    assert_eq!(
        (instance.availability_zone.as_str(), instance.local_ipv4.as_str()),
        ("eu-west-1a", "10.0.0.5")
    );
}

#[tokio::test]
async fn objects_go_to_the_bucket_and_come_back() {
    let moto = Moto::start(&[]).await.unwrap();
    moto.operator(REGION).create_bucket("assets").await;
    let (aws, _imds) = client_of(moto.url()).await;
    let bucket = aws.bucket("assets");
    let key = "clusters/a/nodes/etcd-0/arn:aws:ec2:i 1+2.json";
    assert_eq!(bucket.get(key).await.unwrap(), None);
    bucket.put(key, b"{}").await.unwrap();
    assert_eq!(bucket.get(key).await.unwrap().unwrap(), b"{}");

    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    let snapshot: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&from, &snapshot).unwrap();
    assert!(bucket.upload_new("clusters/a/etcd-snapshots/1.db", &from).await.unwrap());
    std::fs::write(&to, b"another member's").unwrap();
    assert!(!bucket.upload_new("clusters/a/etcd-snapshots/1.db", &to).await.unwrap(), "the name is taken");
    let download = |most| bucket.download("clusters/a/etcd-snapshots/1.db", &to, most);
    assert_eq!(download(3_000_000).await.unwrap(), 3_000_000);
    assert!(std::fs::read(&to).unwrap() == snapshot);
    let refused = download(2_999_999).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
    assert!(refused.message.contains("more than 2999999 bytes"), "{refused}");

    let error = aws.bucket("nobodys").get(key).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Missing, "{error}");
}

/// moto's S3, whose answer to the first upload is lost on the way.
async fn storage_that_loses_an_answer(moto: String) -> String {
    let uploads = Arc::new(AtomicUsize::new(0));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(async move |request: Request| {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        let is_lost = parts.method == Method::PUT && uploads.fetch_add(1, Ordering::Relaxed) == 0;
        let mut sent =
            reqwest::Client::new().request(parts.method, format!("{moto}{}", parts.uri)).body(body);
        for (name, value) in parts.headers.iter().filter(|(name, _)| *name != "host") {
            sent = sent.header(name, value);
        }
        let answer = sent.send().await.unwrap();
        if is_lost {
            return (StatusCode::SERVICE_UNAVAILABLE, HeaderMap::new(), Bytes::new());
        }
        (answer.status(), answer.headers().clone(), answer.bytes().await.unwrap())
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

#[tokio::test]
async fn an_upload_whose_answer_was_lost_counts_as_done_and_somebody_elses_does_not() {
    let moto = Moto::start(&[]).await.unwrap();
    moto.operator(REGION).create_bucket("assets").await;
    let (aws, _imds) = client_of(&storage_that_loses_an_answer(moto.url().to_owned()).await).await;
    let bucket = aws.bucket("assets");
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    std::fs::write(&from, b"a snapshot").unwrap();
    assert!(bucket.upload_new("clusters/a/etcd-snapshots/1.db", &from).await.unwrap(), "it is there");
    assert_eq!(bucket.get("clusters/a/etcd-snapshots/1.db").await.unwrap().unwrap(), b"a snapshot");
    // Another upload of the same bytes is another upload.
    assert!(!bucket.upload_new("clusters/a/etcd-snapshots/1.db", &from).await.unwrap(), "the name is taken");
}

#[tokio::test]
async fn p9_a_data_key_opens_under_its_own_context_alone_and_is_never_printed() {
    let moto = Moto::start(&[]).await.unwrap();
    let arn = moto.operator(REGION).create_key().await;
    let (aws, _imds) = client_of(moto.url()).await;
    let keys = aws.keys(Some(arn.clone()));
    let context = |role: &str| {
        BTreeMap::from([("cluster".to_owned(), "a".to_owned()), ("role".to_owned(), role.to_owned())])
    };
    let key = keys.generate(None, &context("etcd-0")).await.unwrap();
    assert_eq!((key.plain.expose().len(), key.wrapped_by.as_str()), (32, arn.as_str()));
    let opened = keys.unwrap(&key.wrapped, &context("etcd-0")).await.unwrap();
    assert_eq!(opened.expose(), key.plain.expose());
    let refused = keys.unwrap(&key.wrapped, &context("controller")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Invalid, "{refused}");
    let printed = format!("{key:?} {refused:?} {aws:?}");
    assert!(!printed.contains(imds::SECRET) && printed.contains("Secret(…)"), "{printed}");

    let none = aws.keys(None).generate(None, &context("etcd-0")).await.unwrap_err();
    assert!(none.message.contains("no KMS key is configured"), "{none}");
}

#[tokio::test]
async fn a_member_finds_its_volume_by_all_three_tags_and_attaches_it() {
    let moto = Moto::start(&[]).await.unwrap();
    let tags = |number: &str| {
        let tags = [("slipway:cluster", "a"), ("slipway:role", "etcd-0"), ("slipway:volume", number)];
        BTreeMap::from(tags.map(|(name, value)| (name.to_owned(), value.to_owned())))
    };
    let operator = moto.operator(REGION);
    let volume = operator.create_volume(8, &tags("etcd-data")).await;
    operator.create_volume(8, &tags("etcd-data-2")).await;
    let instance = operator.run_instance().await;
    let (volume, instance) = (volume.as_str(), instance.as_str());
    let (aws, _imds) = client_of(moto.url()).await;
    let found = aws.volumes(&tags("etcd-data")).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].id.as_str(), found[0].state.as_str()), (volume, "available"));
    assert_eq!(found[0].attachment, None);
    assert!(aws.attach(volume, instance, "/dev/sdf").await.unwrap());
    let found = aws.volumes(&tags("etcd-data")).await.unwrap();
    assert_eq!(found[0].attachment, Some((instance.to_owned(), "attached".to_owned())));
    assert_eq!(aws.volumes(&tags("etcd-data-3")).await.unwrap(), []);

    // EC2's error code; moto attaches the volume twice.
    let in_use = "<Response><Errors><Error><Code>VolumeInUse</Code><Message>vol-1 is already attached to an instance</Message></Error></Errors></Response>";
    let server = Scripted::start(&[(400, in_use)]).await;
    let (aws, _imds) = client_of(&server.url).await;
    assert!(!aws.attach(volume, instance, "/dev/sdf").await.unwrap());
}

#[tokio::test]
async fn a_member_sets_its_record_and_sets_it_again() {
    let moto = Moto::start(&[]).await.unwrap();
    let operator = moto.operator(REGION);
    let http = slipway_sim::wire::client();
    let url = format!("{}/2013-04-01/hostedzone", moto.url());
    let zone = operator.create_zone("etcd.a.internal").await;
    let zone = zone.as_str();
    let (aws, _imds) = client_of(moto.url()).await;
    for address in ["10.0.0.5", "10.0.0.9"] {
        aws.set_address(zone, "etcd-0.etcd.a.internal", address).await.unwrap();
        let records = http.get(format!("{url}/{zone}/rrset"));
        let records = records.header("authorization", operator.authorization("route53"));
        let records = records.send().await.unwrap().text().await.unwrap();
        let of_name = records.split("<ResourceRecordSet>").filter(|set| set.contains("etcd-0."));
        let of_name: Vec<&str> = of_name.collect();
        assert_eq!(of_name.len(), 1, "{records}");
        assert!(of_name[0].contains(&format!("<Value>{address}</Value>")), "{records}");
    }
    // It finds only records that members may have written. (moto also deletes records that do not exist.)
    let find = || async { aws.records(zone).await.unwrap() };
    aws.set_address(zone, "etcd-1.etcd.a.internal", "10.0.0.6").await.unwrap();
    let found = find().await;
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].name.as_str(), found[0].address.as_str()), ("etcd-0.etcd.a.internal", "10.0.0.9"));
    aws.delete_records(zone, &found).await.unwrap();
    assert_eq!(find().await, []);
    let error = aws.set_address("ZNONE", "etcd-0.etcd.a.internal", "10.0.0.5").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Missing, "{error}");
}

#[tokio::test]
async fn records_are_read_page_by_page_and_what_no_member_sets_is_passed_over() {
    let set =
        |name: &str, of: &str| format!("<ResourceRecordSet><Name>{name}</Name>{of}</ResourceRecordSet>");
    let value = |kind: &str, ttl: u32, address: &str| {
        format!(
            "<Type>{kind}</Type><TTL>{ttl}</TTL><ResourceRecords><ResourceRecord><Value>{address}</Value></ResourceRecord></ResourceRecords>"
        )
    };
    let alias = "<Type>A</Type><AliasTarget><DNSName>lb.</DNSName></AliasTarget>";
    let of = |sets: &[String], more: &str| {
        let sets = sets.concat();
        let space = "https://route53.amazonaws.com/doc/2013-04-01/";
        format!(
            "<ListResourceRecordSetsResponse xmlns=\"{space}\"><ResourceRecordSets>{sets}</ResourceRecordSets>{more}</ListResourceRecordSetsResponse>"
        )
    };
    let first = of(
        &[
            set("a.internal.", &value("NS", 30, "ns-1.")),
            set("\\052.a.internal.", &value("A", 10, "192.0.2.1")),
            set("api.a.internal.", alias),
            set("Etcd-0.a.internal.", &value("A", 30, "10.0.0.5")),
        ],
        "<IsTruncated>true</IsTruncated><NextRecordName>etcd-1.a.internal.</NextRecordName><NextRecordType>A</NextRecordType>",
    );
    let second = of(&[set("etcd-1.a.internal.", &value("A", 30, "10.0.0.6"))], "");
    let server = Scripted::start(&[(200, first.leak()), (200, second.leak())]).await;
    let (aws, _imds) = client_of(&server.url).await;
    let found = aws.records("/hostedzone/Z1").await.unwrap();
    let found: Vec<_> = found.iter().map(|one| (one.name.as_str(), one.address.as_str())).collect();
    assert_eq!(found, [("etcd-0.a.internal", "10.0.0.5"), ("etcd-1.a.internal", "10.0.0.6")]);
    let asked = server.received();
    assert_eq!(asked[0].path, "/2013-04-01/hostedzone/Z1/rrset?maxitems=300");
    assert_eq!(asked[1].path, "/2013-04-01/hostedzone/Z1/rrset?maxitems=300&name=etcd-1.a.internal.&type=A");
}

fn hook() -> Hook {
    Hook { group: "a-etcd-0".to_owned(), name: "launch".to_owned(), instance: "i-1".to_owned() }
}

#[tokio::test]
async fn a_node_settles_its_hook_once_and_an_old_one_is_no_failure() {
    let none = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>No active Lifecycle Action found with instance ID i-1</Message></Error></ErrorResponse>";
    let other = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>Group name not found</Message></Error></ErrorResponse>";
    let server = Scripted::start(&[(200, ""), (200, ""), (400, none), (400, other)]).await;
    let (aws, _imds) = client_of(&server.url).await;
    assert!(aws.heartbeat(&hook()).await.unwrap());
    assert!(aws.complete_hook(&hook(), HookResult::Continue).await.unwrap());
    assert!(!aws.complete_hook(&hook(), HookResult::Abandon).await.unwrap());
    assert!(aws.heartbeat(&hook()).await.is_err());
    let asked = server.received();
    let body = |at: usize| String::from_utf8(asked[at].body.to_vec()).unwrap();
    let of = "&Version=2011-01-01&AutoScalingGroupName=a-etcd-0&LifecycleHookName=launch&InstanceId=i-1";
    assert_eq!(body(0), format!("Action=RecordLifecycleActionHeartbeat{of}"));
    assert_eq!(body(1), format!("Action=CompleteLifecycleAction{of}&LifecycleActionResult=CONTINUE"));
    assert!(body(2).ends_with("=ABANDON"));
}

#[tokio::test]
async fn a_worker_is_reported_as_unhealthy_and_one_that_goes_already_is_no_failure() {
    let goes = "<ErrorResponse><Error><Type>Sender</Type><Code>ValidationError</Code><Message>it is terminating</Message></Error></ErrorResponse>";
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>";
    let server = Scripted::start(&[(200, ""), (400, goes), (403, denied)]).await;
    let (aws, _imds) = client_of(&server.url).await;
    assert_eq!(aws.report_unhealthy("i-1").await.unwrap(), Ok(()));
    let why = aws.report_unhealthy("i-1").await.unwrap().unwrap_err();
    assert!(why.contains("it is terminating"), "{why}");
    let failure = AgentError::from(aws.report_unhealthy("i-1").await.unwrap_err());
    assert!(failure.help.contains("ReplaceUnreadyWorkers"), "{failure:?}");
    let body = String::from_utf8(server.received()[0].body.to_vec()).unwrap();
    let expected = "Action=SetInstanceHealth&Version=2011-01-01&InstanceId=i-1&HealthStatus=Unhealthy&ShouldRespectGracePeriod=true";
    assert_eq!(body, expected);
}

#[tokio::test]
async fn what_is_throttled_is_tried_again_and_what_is_denied_says_which_statement_allows_it() {
    let throttled = "<Response><Errors><Error><Code>RequestLimitExceeded</Code><Message>slow</Message></Error></Errors></Response>";
    let denied = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized</Message></Error></ErrorResponse>";
    let server =
        Scripted::start(&[(503, throttled), (400, throttled), (500, "<html>"), (200, ""), (403, denied)])
            .await;
    let (aws, _imds) = client_of(&server.url).await;
    aws.heartbeat(&hook()).await.unwrap();
    assert_eq!(server.received().len(), 4);
    let error = aws.complete_hook(&hook(), HookResult::Continue).await.unwrap_err();
    assert_eq!((error.kind, server.received().len()), (ErrorKind::Denied, 5));
    let failure = AgentError::from(error);
    assert!(failure.help.contains("SettleOwnLifecycleHooks"), "{failure:?}");
    assert!(!failure.transient);
}

#[tokio::test]
async fn every_call_is_signed_as_botocore_signs_it() {
    let server = Scripted::start(&[(200, "<r><volumeSet/></r>")]).await;
    let (aws, _imds) = client_of(&server.url).await;
    let bucket = aws.bucket("assets");
    for key in ["a/b/c.json", "a/i 1+2=ü~.json"] {
        bucket.get(key).await.unwrap();
        bucket.put(key, b"some bytes").await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f"), b"more bytes").unwrap();
    bucket.upload_new("snapshots/1.db", &folder.path().join("f")).await.unwrap();
    // The answer has no key, because the test checks only the request.
    aws.keys(None).unwrap(b"wrapped", &BTreeMap::new()).await.unwrap_err();
    aws.volumes(&BTreeMap::from([("a:b c".to_owned(), "d&e".to_owned())])).await.unwrap();
    aws.set_address("Z1", "a.b", "10.0.0.1").await.unwrap();
    assert_eq!(aws.records("Z1").await.unwrap(), []);
    aws.complete_hook(&hook(), HookResult::Continue).await.unwrap();

    assert!(server.received().len() >= 9, "{:?}", server.received());
    signed_as_botocore_signs(&server);
}

/// Every request to `server` is signed as botocore signs it, with the credentials of [`Imds`].
pub(crate) fn signed_as_botocore_signs(server: &Scripted) {
    let asked: Vec<Value> = server
        .received()
        .iter()
        .map(|one| {
            json!({
                "method": one.method, "url": format!("{}{}", server.url, one.path), "headers": one.headers,
                "body": STANDARD.encode(&one.body), "secret": imds::SECRET, "token": "session+token/==",
            })
        })
        .collect();
    let mut check = Command::new(tools::python().unwrap());
    check.arg(tools::root().join("tests/scripts/check_signatures.py"));
    let mut check = check.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(json!(asked).to_string().as_bytes()).unwrap();
    let output = check.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
