//! `etcd retire`: the DNS records of all members are taken back, since their cluster is taken away.
//!
//! Members set them themselves, so that no stack knows of them, and Route 53 deletes no hosted zone that holds any. One member does it for all:
//! others may be dead, or have left long ago. What no member can have set stays as it is.

use slipway_core::node::RecordsRetired;

use super::place::Place;
use super::snapshot::node;
use crate::aws::{Aws, Endpoints, Record, code_of, zone_of};
use crate::failure::Outcome;

/// Other members may be at the same at the same time: who comes second finds that its list is not true any more, and looks again.
const TRIES: u32 = 5;

/// Takes the records of all members back.
///
/// # Errors
/// If Route 53 refuses.
pub async fn retire(place: &Place, endpoints: &Endpoints) -> Outcome<RecordsRetired> {
    let node = node(place)?;
    let aws = Aws::new(endpoints, &node.region)?;
    let zone = zone_of(&node)?.to_owned();
    let names = Names::of(place);
    let mut tries = 0;
    loop {
        tries += 1;
        let mut found = aws.records(&zone).await?;
        found.retain(|record| names.hold(record));
        if found.is_empty() {
            return Ok(RecordsRetired { zone, records: Vec::new() });
        }
        match aws.take_back(&zone, &found).await {
            Ok(()) => {
                let records = found.into_iter().map(|record| record.name).collect();
                return Ok(RecordsRetired { zone, records });
            }
            Err(error) if tries < TRIES && code_of(&error) == "InvalidChangeBatch" => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The names of members.
struct Names {
    /// Those that this member was told of, its own among them.
    told: Vec<String>,
    /// Where members have the names that nobody chose.
    domain: String,
}

impl Names {
    fn of(place: &Place) -> Self {
        let own = place.config.etcd.dns_name.to_ascii_lowercase();
        let domain = own.split_once('.').map(|(_, domain)| domain.to_owned()).unwrap_or_default();
        let host = |url: String| {
            let host = url.rsplit('/').next().unwrap_or_default();
            host.split(':').next().unwrap_or_default().to_ascii_lowercase()
        };
        let mut told: Vec<String> = place.told().into_iter().map(host).collect();
        told.push(own);
        Self { told, domain }
    }

    fn hold(&self, record: &Record) -> bool {
        let label = record.name.strip_suffix(&self.domain).and_then(|rest| rest.strip_suffix('.'));
        self.told.contains(&record.name) || label.is_some_and(|label| super::name(label).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_members_are_taken_back() {
        let names = Names { told: vec!["cedar.a.internal".to_owned()], domain: "a.internal".to_owned() };
        let holds =
            |name: &str| names.hold(&Record { name: name.to_owned(), address: "10.0.0.5".to_owned() });
        assert!(holds("cedar.a.internal") && holds("etcd-0.a.internal") && holds("etcd-14.a.internal"));
        for other in
            ["\\052.a.internal", "etcd-x.a.internal", "etcd-0.b.internal", "www.a.internal", "a.internal"]
        {
            assert!(!holds(other), "{other}");
        }
    }
}
