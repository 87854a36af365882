//! Route 53, as far as members of etcd use it: they change and list records of addresses (`ChangeResourceRecordSets`,
//! `ListResourceRecordSets`, version 2013-04-01). A change of anything else is refused.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use roxmltree::{Document, Node};

use super::state::{Record, State};

const SPACE: &str = "https://route53.amazonaws.com/doc/2013-04-01/";

/// Answers a call.
pub fn answer(state: &State, method: &Method, path: &str, body: &[u8]) -> Response {
    let zone = path
        .strip_prefix("/2013-04-01/hostedzone/")
        .and_then(|rest| rest.strip_suffix("/rrset").or(rest.strip_suffix("/rrset/")));
    let Some(zone) = zone else { return refused(&format!("{method} {path} is not modelled here")) };
    if !state.world().resources_of_type("AWS::Route53::HostedZone").contains_key(zone) {
        return (
            StatusCode::NOT_FOUND,
            error("NoSuchHostedZone", &format!("No hosted zone found with ID: {zone}")),
        )
            .into_response();
    }
    if *method == Method::GET {
        return listed(state, zone).into_response();
    }
    let text = String::from_utf8_lossy(body);
    let changes = Document::parse(&text).ok().and_then(|document| changes(&document));
    let Some(changes) = changes else { return refused("the change is not modelled here") };
    for (action, name, record) in changes {
        let there = state.records(zone).get(name.trim_end_matches('.')).cloned();
        match action.as_str() {
            "UPSERT" => state.set_record(zone, &name, Some(record)),
            "DELETE" if there.as_ref() == Some(&record) => state.set_record(zone, &name, None),
            // "If the batch contains an invalid change, Route 53 performs none": members delete one by one what they have listed.
            _ => {
                return refused(&format!(
                    "Tried to {action} resource record set {name} but it was not found"
                ));
            }
        }
    }
    format!("<ChangeResourceRecordSetsResponse xmlns=\"{SPACE}\"><ChangeInfo><Id>/change/C1</Id><Status>INSYNC</Status></ChangeInfo></ChangeResourceRecordSetsResponse>")
        .into_response()
}

type Change = (String, String, Record);

fn changes(document: &Document<'_>) -> Option<Vec<Change>> {
    let text = |node: Node<'_, '_>, name: &str| {
        node.descendants()
            .find(|child| child.tag_name().name() == name)
            .and_then(|node| node.text().map(str::to_owned))
    };
    let change = |node: Node<'_, '_>| {
        let values = node.descendants().filter(|child| child.tag_name().name() == "Value");
        let addresses: Option<Vec<_>> = values.map(|value| value.text()?.parse().ok()).collect();
        (text(node, "Type")? == "A").then_some(())?;
        let record = Record { ttl_s: text(node, "TTL")?.parse().ok()?, addresses: addresses? };
        Some((text(node, "Action")?, text(node, "Name")?, record))
    };
    document.descendants().filter(|node| node.tag_name().name() == "Change").map(change).collect()
}

fn listed(state: &State, zone: &str) -> String {
    let sets = state.records(zone).into_iter().map(|(name, record)| {
        let values: String =
            record.addresses.iter().map(|address| format!("<ResourceRecord><Value>{address}</Value></ResourceRecord>")).collect();
        format!(
            "<ResourceRecordSet><Name>{name}.</Name><Type>A</Type><TTL>{}</TTL><ResourceRecords>{values}</ResourceRecords></ResourceRecordSet>",
            record.ttl_s
        )
    });
    format!(
        "<ListResourceRecordSetsResponse xmlns=\"{SPACE}\"><ResourceRecordSets>{}</ResourceRecordSets><IsTruncated>false</IsTruncated>\
         <MaxItems>300</MaxItems></ListResourceRecordSetsResponse>",
        sets.collect::<String>()
    )
}

fn refused(words: &str) -> Response {
    (StatusCode::BAD_REQUEST, error("InvalidChangeBatch", words)).into_response()
}

fn error(code: &str, words: &str) -> String {
    format!(
        "<ErrorResponse xmlns=\"{SPACE}\"><Error><Type>Sender</Type><Code>{code}</Code><Message>{words}</Message></Error></ErrorResponse>"
    )
}
