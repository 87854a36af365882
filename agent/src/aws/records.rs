//! Route 53: a member sets its own record, and deletes those of all members when their cluster is destroyed.

use std::fmt::Write as _;

use reqwest::Method;
use roxmltree::{Document, Node};
use slipway_core::node::NodeFile;
use slipway_ports::{ErrorKind, PortResult};

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call, encoded};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// Short, so that clients find a replaced member soon.
const TTL_S: u32 = 30;

/// An `A` record that a member may have set: one address, with the members' TTL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// In lower case, without the trailing dot, escaped as by Route 53.
    pub name: String,
    pub address: String,
}

pub(crate) fn zone_of(node: &NodeFile) -> AgentResult<&str> {
    node.zone.as_deref().ok_or_else(|| {
        AgentError::permanent(
            FailureCode::BootstrapZone,
            "node.json names no hosted zone for this member's record",
            "render the cluster again: the userdata of etcd members has it",
        )
    })
}

impl Aws {
    /// `route53:ChangeResourceRecordSets`: points `name` to `address`, whatever it pointed to before.
    pub async fn set_address(&self, zone: &str, name: &str, address: &str) -> PortResult<()> {
        let record = Record { name: name.to_owned(), address: address.to_owned() };
        self.change(zone, &format!("{name} in {zone}"), "UPSERT", &[record]).await
    }

    /// `route53:ListResourceRecordSets`: the records in `zone` that members may have set.
    pub async fn records(&self, zone: &str) -> PortResult<Vec<Record>> {
        const OPERATION: &str = "route53:ListResourceRecordSets";
        let mut records = Vec::new();
        let mut from = String::new();
        loop {
            let url = format!("{}?maxitems=300{from}", self.record_sets_url(zone));
            let call = Call { method: Method::GET, ..Call::new(OPERATION, zone, Service::Route53, url) };
            let text = self.text(&call).await?;
            let unread = |_| port_error(OPERATION, zone, ErrorKind::Transient, "the answer cannot be read");
            let document = Document::parse(&text).map_err(unread)?;
            let sets = document.descendants().filter(|node| node.tag_name().name() == "ResourceRecordSet");
            records.extend(sets.filter_map(record));
            let word = |name: &str| {
                let mut top = document.root_element().children();
                top.find(|node| node.tag_name().name() == name).and_then(|node| node.text())
            };
            let Some(name) = word("NextRecordName") else { return Ok(records) };
            from = format!("&name={}", encoded(name, false));
            for (key, value) in
                [("type", word("NextRecordType")), ("identifier", word("NextRecordIdentifier"))]
            {
                if let Some(value) = value {
                    let _ = write!(from, "&{key}={}", encoded(value, false));
                }
            }
        }
    }

    /// `route53:ChangeResourceRecordSets`: deletes all of `records` or none. Route 53 refuses if one of them is missing or
    /// differs.
    pub async fn delete_records(&self, zone: &str, records: &[Record]) -> PortResult<()> {
        self.change(zone, &format!("the members' names in {zone}"), "DELETE", records).await
    }

    async fn change(&self, zone: &str, subject: &str, action: &str, records: &[Record]) -> PortResult<()> {
        let changes: String = records
            .iter()
            .map(|Record { name, address }| {
                format!(
                    "<Change><Action>{action}</Action><ResourceRecordSet>\
                     <Name>{}</Name><Type>A</Type><TTL>{TTL_S}</TTL>\
                     <ResourceRecords><ResourceRecord><Value>{}</Value></ResourceRecord></ResourceRecords>\
                     </ResourceRecordSet></Change>",
                    escaped(name),
                    escaped(address)
                )
            })
            .collect();
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
             <ChangeResourceRecordSetsRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><ChangeBatch>\
             <Comment>Slipway: etcd members</Comment><Changes>{changes}</Changes></ChangeBatch></ChangeResourceRecordSetsRequest>"
        );
        let call = Call {
            headers: vec![("content-type", "application/xml".to_owned())],
            body: Body::Bytes(body.as_bytes()),
            ..Call::new(
                "route53:ChangeResourceRecordSets",
                subject,
                Service::Route53,
                format!("{}/", self.record_sets_url(zone)),
            )
        };
        self.send(&call).await.map(drop)
    }

    fn record_sets_url(&self, zone: &str) -> String {
        let zone = zone.rsplit('/').next().unwrap_or(zone);
        format!("{}/2013-04-01/hostedzone/{}/rrset", self.base(Service::Route53), encoded(zone, false))
    }
}

/// The record in a `ResourceRecordSet`, if a member may have set it.
fn record(set: Node<'_, '_>) -> Option<Record> {
    let text = |name: &str| {
        let mut found = set.children().filter(|node| node.tag_name().name() == name);
        found.next().and_then(|node| node.text())
    };
    let mut values = set.descendants().filter(|node| node.tag_name().name() == "Value");
    let address = values.next()?.text()?.to_owned();
    let is_ours = text("Type") == Some("A")
        && text("TTL").and_then(|ttl| ttl.parse().ok()) == Some(TTL_S)
        && text("SetIdentifier").is_none()
        && values.next().is_none();
    let name = text("Name")?.trim_end_matches('.').to_ascii_lowercase();
    is_ours.then_some(Record { name, address })
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
