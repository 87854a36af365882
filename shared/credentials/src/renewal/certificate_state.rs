//! The state of each certificate: in the inventory, in the store, and on the nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::role::Role;

use super::{Finding, Group, Machines, Observed, REPORT_LIFE, Reported, Stored, Topology, group};
use crate::{Asset, CertificateFacts, CertificateProfile, Origin, manifest, policy};

/// How far two clocks may be apart: not-before is backdated by as much.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// The state of a certificate that is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateState {
    /// The asset.
    pub name: String,
    /// Its issuer. `None`: an authority, which is self-signed.
    pub issuer: Option<String>,
    /// Who makes it.
    pub origin: Origin,
    /// The group that it is renewed with. `None`: an authority.
    pub group: Option<Group>,
    /// The fingerprint in the inventory.
    pub fingerprint: String,
    /// Start of its validity.
    pub begins: Timestamp,
    /// When it is no longer valid: its own end or its authority's.
    pub ends: Timestamp,
    /// Where older certificates are still in use.
    pub elsewhere: Vec<Elsewhere>,
    /// When it is renewed automatically. `None`: it is not.
    pub renewed_from: Option<Timestamp>,
    /// When a certificate issued now would expire. `None`: none can be issued.
    pub next_end: Option<Timestamp>,
    /// The lifetime with which it is issued, in days.
    pub days: u32,
}

/// Where an older certificate is in use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Elsewhere {
    /// When it expires.
    pub ends: Timestamp,
    /// The fingerprint of the older certificate.
    pub fingerprint: String,
    /// Where it is in use: `kube-apiserver on i-0123 (controller)`.
    pub place: String,
}

impl CertificateState {
    /// The certificate in use that expires first: when, its fingerprint, and where, if it is not the inventory's.
    #[must_use]
    pub fn first_end(&self) -> (Timestamp, &str, Option<&str>) {
        match self.elsewhere.iter().min().filter(|other| other.ends < self.ends) {
            Some(other) => (other.ends, &other.fingerprint, Some(&other.place)),
            None => (self.ends, &self.fingerprint, None),
        }
    }

    /// Whether a certificate issued now would last longer.
    pub(super) fn gains(&self) -> bool {
        self.next_end.is_some_and(|end| end > self.ends)
    }
}

/// All certificates in use, in the order of the policy's table, and the findings about them.
pub(super) fn standings(observed: &Observed<'_>, now: Timestamp) -> (Vec<CertificateState>, Vec<Finding>) {
    let cluster = observed.cluster;
    let recipients = policy::recipients(cluster);
    let mut findings = Vec::new();
    let mut all: Vec<CertificateState> = Vec::new();
    for asset in &policy::assets(cluster) {
        let Some(profile) = manifest::profile(asset) else { continue };
        let facts = facts(observed, asset, now, &mut findings);
        let Some((fingerprint, facts)) = facts else { continue };
        // Authorities come before what they sign.
        let issuer = profile.issuer.as_deref().and_then(|issuer| all.iter().find(|one| one.name == issuer));
        let issuer_ends = issuer.map(|issuer| issuer.ends);
        let empty = BTreeSet::new();
        let holders = recipients.get(&asset.name).unwrap_or(&empty);
        all.push(CertificateState {
            name: asset.name.clone(),
            issuer: profile.issuer.clone(),
            origin: asset.origin,
            group: group(asset, &recipients, Topology::External),
            elsewhere: elsewhere(observed, &asset.name, &fingerprint, holders, now),
            begins: facts.not_before,
            ends: issuer_ends.map_or(facts.not_after, |end| end.min(facts.not_after)),
            renewed_from: None,
            next_end: next_end(profile, issuer_ends, now),
            days: profile.days,
            fingerprint,
        });
    }
    silent(observed, now, &mut findings);
    (all, findings)
}

fn next_end(
    profile: &CertificateProfile,
    issuer_ends: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    let end = manifest::not_after(now, profile.days)?;
    match issuer_ends {
        Some(issuer_ends) => manifest::capped_expiry(end, issuer_ends, now),
        None => Some(end),
    }
}

/// The content of a certificate: as read from the store, or else as recorded in the inventory.
fn facts(
    observed: &Observed<'_>,
    asset: &Asset,
    now: Timestamp,
    findings: &mut Vec<Finding>,
) -> Option<(String, CertificateFacts)> {
    let cluster = &observed.cluster.name;
    let inventory = format!("clusters/{cluster}/pki/manifest.json");
    let Some(entry) = observed.manifest.assets.get(&asset.name) else {
        findings.push(Finding {
            key: inventory,
            message: format!("the inventory has no {}, and the spec asks for it", asset.name),
            help: "upload the spec again; if that does not make it, status.json says why".to_owned(),
        });
        return None;
    };
    let Some(certificate) = &entry.certificate else {
        findings.push(Finding {
            key: inventory,
            message: format!("the inventory has no data about the certificate {}", asset.name),
            help: "bring back an earlier version of the inventory (the bucket keeps them)".to_owned(),
        });
        return None;
    };
    let facts = match observed.stored.get(&asset.name) {
        None => certificate,
        Some(Stored::Broken(finding)) => {
            findings.push(finding.clone());
            certificate
        }
        Some(Stored::Read { key, facts, flaws }) => {
            if (certificate.not_after, certificate.not_before, &certificate.serial)
                != (facts.not_after, facts.not_before, &facts.serial)
            {
                let message = format!(
                    "the inventory says that {} is valid from {} to {}, but the certificate says {} to {}",
                    asset.name,
                    certificate.not_before,
                    certificate.not_after,
                    facts.not_before,
                    facts.not_after
                );
                let help = "bring back an earlier version of the inventory (the bucket keeps them), then find out who wrote it";
                findings.push(Finding { key: inventory, message, help: help.to_owned() });
            }
            if facts.not_before > now.saturating_add(SKEW).unwrap_or(now) {
                findings.push(Finding {
                    key: key.clone(),
                    message: format!("{} is not valid before {}, and it is {now}", asset.name, facts.not_before),
                    help: "either the clock of the issuer or this one is wrong; if it was the issuer's, renew the certificate"
                        .to_owned(),
                });
            }
            findings.extend(flaws.iter().map(|(message, help)| Finding {
                key: key.clone(),
                message: format!("{}: {message}", asset.name),
                help: help.clone(),
            }));
            facts
        }
    };
    Some((entry.fingerprint.clone(), facts.clone()))
}

/// Since when a report counts as current.
fn current_since(now: Timestamp) -> Timestamp {
    now.saturating_sub(REPORT_LIFE).unwrap_or(Timestamp::MIN)
}

/// The newest report of each node, among the recent ones and those of machines that exist: what such a machine had last, it still has.
fn newest<'a>(observed: &Observed<'a>, now: Timestamp) -> Vec<&'a Reported> {
    let since = current_since(now);
    let exists = |node: &Reported| {
        observed.machines.of_role(&node.role).is_some_and(|machines| machines.contains_key(&node.instance))
    };
    let mut newest: BTreeMap<(&Role, &str), &Reported> = BTreeMap::new();
    for node in observed.nodes.iter().filter(|node| node.at >= since || exists(node)) {
        // An etcd member is one machine at a time, so the report of its predecessor is obsolete.
        let machine = if node.role.member().is_some() { "" } else { node.instance.as_str() };
        let kept = newest.entry((&node.role, machine)).or_insert(node);
        if (exists(node), node.at) > (exists(kept), kept.at) {
            *kept = node;
        }
    }
    newest.into_values().collect()
}

/// Where certificates other than `current` are in use.
fn elsewhere(
    observed: &Observed<'_>,
    asset: &str,
    current: &str,
    holders: &BTreeSet<Role>,
    now: Timestamp,
) -> Vec<Elsewhere> {
    let newest = newest(observed, now);
    let held = |node: &&&Reported| node.held.iter().any(|held| held.asset == asset);
    let reporting: Vec<&Reported> = newest.iter().filter(held).copied().collect();
    let mut found: Vec<Elsewhere> = reporting
        .iter()
        .flat_map(|node| node.held.iter().map(move |held| (node, held)))
        .filter(|(_, held)| held.asset == asset && held.fingerprint != current)
        .map(|(node, held)| Elsewhere {
            ends: held.ends,
            fingerprint: held.fingerprint.clone(),
            place: format!("{} on {} ({})", held.by, node.instance, node.role),
        })
        .collect();
    let superseded = observed.state.superseded.get(asset).filter(|before| before.fingerprint != current);
    if let Some(before) = superseded
        && found.iter().all(|other| other.fingerprint != before.fingerprint)
    {
        let places = unheard(observed, holders, &reporting);
        if !places.is_empty() {
            found.push(Elsewhere {
                ends: before.ends,
                fingerprint: before.fingerprint.clone(),
                place: format!("nodes that have not reported the new one yet ({})", some(&places)),
            });
        }
    }
    found.sort();
    found
}

/// How many places are named.
const MOST_NAMED: usize = 5;

fn some(places: &[String]) -> String {
    let more = places.len().saturating_sub(MOST_NAMED);
    let named = places[..places.len() - more].join(", ");
    if more == 0 { named } else { format!("{named} and {more} more") }
}

/// The nodes among the `holders` of a certificate that have not reported which one they have: machines, and roles whose machines were not
/// listed. `reporting`: those that have.
fn unheard(observed: &Observed<'_>, holders: &BTreeSet<Role>, reporting: &[&Reported]) -> Vec<String> {
    let nodes = || holders.iter().filter(|role| **role != Role::Admin);
    let has_reported = |role: &Role, machine: Option<&String>| {
        let is_it = |node: &&Reported| machine.is_none_or(|machine| node.instance == *machine);
        reporting.iter().filter(|node| node.role == *role).any(is_it)
    };
    let rolled_out = observed.planned.is_some_and(|planned| {
        let is_at = |role: &Role| {
            let bundle = observed.manifest.bundles.get(role).map(|bundle| &bundle.digest);
            bundle.is_some() && planned.digests.get(role) == bundle
        };
        planned.reached && nodes().all(is_at)
    });
    let is_known = |role: &Role| rolled_out || has_reported(role, None);
    let unheard = nodes().flat_map(|role| match observed.machines.of_role(role) {
        // A rollout proves nothing of them: a person may have skipped one, or put it into Standby.
        Some(machines) => machines
            .keys()
            .filter(|machine| !has_reported(role, Some(machine)))
            .map(|machine| format!("{machine} of {role}"))
            .collect(),
        None if *observed.machines != Machines::Unknown && is_known(role) => Vec::new(),
        None => vec![role.to_string()],
    });
    unheard.collect()
}

/// Reports a finding for each machine that has not reported for a day, and for each role whose machines were not listed, that reported once
/// and has been silent since.
fn silent(observed: &Observed<'_>, now: Timestamp, findings: &mut Vec<Finding>) {
    let since = current_since(now);
    let mut last: BTreeMap<(&Role, Option<&str>), &Reported> = BTreeMap::new();
    for node in observed.nodes {
        let is_listed = observed.machines.of_role(&node.role).is_some();
        let kept = last.entry((&node.role, is_listed.then_some(node.instance.as_str()))).or_insert(node);
        if node.at > kept.at {
            *kept = node;
        }
    }
    for role in &policy::roles(observed.cluster) {
        for (machine, key) in observed.machines.of_role(role).into_iter().flatten() {
            let last = last.get(&(role, Some(machine.as_str())));
            if last.is_some_and(|last| last.at >= since) {
                continue;
            }
            let what = last.map_or_else(
                || format!("there is no recent report of {machine} of {role}"),
                |last| format!("{machine} of {role} has not reported since {}", last.at),
            );
            findings.push(Finding {
                key: key.clone(),
                message: format!("{what}, so it is not known which certificates it serves"),
                help: "a running node reports each hour: see that it runs, that its clock is right, and that \
                       `/var/lib/slipway/slipway-node status --publish` works there; if that cannot be mended, replace the machine"
                    .to_owned(),
            });
        }
    }
    let silent = last.into_iter().filter(|((_, machine), last)| machine.is_none() && last.at < since);
    findings.extend(silent.map(|(_, node)| Finding {
        key: node.key.clone(),
        message: format!("no node of {} has reported since {} what it serves", node.role, node.at),
        help: format!(
            "ask it: the document Slipway-Status on {}; a running node reports each hour, if it may write there",
            node.instance
        ),
    }));
}
