//! `etcd retire`: deletes the DNS records of all members, because their cluster is being destroyed.
//!
//! The members set them, so no stack knows them, and Route 53 deletes no hosted zone that has records. One member deletes all:
//! others may be dead. Records that no member can have set are left alone.

use slipway_core::node::RecordsRetired;

use super::local_member::LocalMember;
use crate::aws::{Aws, Endpoints, Record, code_of, zone_of};
use crate::failure::AgentResult;
use crate::node_files::required_node;

/// Other members may delete them at the same time, which makes this list stale.
const TRIES: u32 = 5;

pub async fn retire(local: &LocalMember, endpoints: &Endpoints) -> AgentResult<RecordsRetired> {
    let node = required_node(&local.root)?;
    let aws = Aws::new(endpoints, &node.region)?;
    let zone = zone_of(&node)?.to_owned();
    let names = Names::read(local);
    let mut tries = 0;
    loop {
        tries += 1;
        let mut found = aws.records(&zone).await?;
        found.retain(|record| names.contain(record));
        if found.is_empty() {
            return Ok(RecordsRetired { zone, records: Vec::new() });
        }
        match aws.delete_records(&zone, &found).await {
            Ok(()) => {
                let records = found.into_iter().map(|record| record.name).collect();
                return Ok(RecordsRetired { zone, records });
            }
            Err(error) if tries < TRIES && code_of(&error) == "InvalidChangeBatch" => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// DNS names of members.
struct Names {
    /// Names in the configuration, including this member's own.
    known: Vec<String>,
    /// The domain of the default names, `etcd-N`.
    domain: String,
}

impl Names {
    fn read(local: &LocalMember) -> Self {
        let own = local.config.etcd.dns_name.to_ascii_lowercase();
        let domain = own.split_once('.').map(|(_, domain)| domain.to_owned()).unwrap_or_default();
        let host = |url: String| {
            let host = url.rsplit('/').next().unwrap_or_default();
            host.split(':').next().unwrap_or_default().to_ascii_lowercase()
        };
        let mut known: Vec<String> = local.known_client_urls().into_iter().map(host).collect();
        known.push(own);
        Self { known, domain }
    }

    fn contain(&self, record: &Record) -> bool {
        let label = record.name.strip_suffix(&self.domain).and_then(|rest| rest.strip_suffix('.'));
        self.known.contains(&record.name) || label.is_some_and(|label| super::name(label).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_members_are_taken_back() {
        let names = Names { known: vec!["cedar.a.internal".to_owned()], domain: "a.internal".to_owned() };
        let holds =
            |name: &str| names.contain(&Record { name: name.to_owned(), address: "10.0.0.5".to_owned() });
        assert!(holds("cedar.a.internal") && holds("etcd-0.a.internal") && holds("etcd-14.a.internal"));
        for other in
            ["\\052.a.internal", "etcd-x.a.internal", "etcd-0.b.internal", "www.a.internal", "a.internal"]
        {
            assert!(!holds(other), "{other}");
        }
    }
}
