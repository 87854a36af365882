//! `docs/pki.md` has the table of the policy and its differences from kubeadm, each with the reason.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;
use slipway_credentials::manifest::profile;
use slipway_credentials::policy;
use slipway_tests::tools;
use slipway_tests::workshop::example;

/// A certificate as kubeadm describes it. Values that depend on the machine or the cluster are in angle brackets.
#[derive(Debug, Deserialize)]
struct Row {
    name: String,
    issuer: String,
    common_name: String,
    organization: String,
    purposes: String,
    sans: Vec<String>,
}

/// kubeadm's certificates and kubeconfigs since 1.29, by the names in our table:
/// <https://kubernetes.io/docs/setup/best-practices/certificates/> and its `certlist.go`. The columns are those of [`Row`].
fn kubeadm() -> Vec<Row> {
    serde_json::from_str(include_str!("pki_page/kubeadm.json")).unwrap()
}

/// The reasons of the differences: certificate, what differs, reason. A reason without a difference fails the test, and so does a
/// difference without a reason.
fn reasons() -> Vec<(String, String, String)> {
    serde_json::from_str(include_str!("pki_page/reasons.json")).unwrap()
}

/// A row of our table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Own {
    issuer: String,
    common_name: String,
    organization: String,
    purposes: String,
    sans: BTreeSet<String>,
    holders: String,
}

/// Our table for the production example, with values of its spec in angle brackets.
fn ours() -> BTreeMap<String, Own> {
    let cluster = slipway_spec::parse(example("production").as_bytes(), None).unwrap().cluster;
    let recipients = policy::recipients(&cluster);
    let member = |index: u32| cluster.etcd.members[index as usize].dns_name.clone();
    let general = |text: &str| {
        let mut text = text.to_owned();
        for index in 0..3 {
            text = text.replace(&member(index), "<member's DNS name>");
        }
        for endpoint in &cluster.api_endpoints {
            text = text.replace(&endpoint.dns_name, "<endpoint>");
        }
        text.replace(&cluster.api_service_ip().to_string(), "<service address>")
    };
    let mut rows = BTreeMap::new();
    for asset in policy::assets(&cluster) {
        let Some(profile) = profile(&asset) else { continue };
        let name = match asset.name.rsplit_once('-') {
            Some((family, index)) if index.parse::<u32>().is_ok() => format!("{family}-N"),
            _ => asset.name.clone(),
        };
        let purposes = [(profile.server, "server"), (profile.client, "client")];
        let purposes: Vec<&str> = purposes.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
        let holders: BTreeSet<String> = recipients
            .get(&asset.name)
            .into_iter()
            .flatten()
            .map(|role| match role {
                slipway_core::role::Role::Etcd(_) if name.ends_with("-N") => "that member".to_owned(),
                slipway_core::role::Role::Etcd(_) => "etcd".to_owned(),
                slipway_core::role::Role::Controller => "controllers".to_owned(),
                slipway_core::role::Role::Pool(_) => "workers".to_owned(),
                slipway_core::role::Role::Admin => "admin".to_owned(),
            })
            .collect();
        let sans = profile.sans.iter().map(|san| general(san)).collect();
        let row = Own {
            issuer: profile.issuer.clone().unwrap_or_default(),
            common_name: general(&profile.common_name),
            organization: profile.organizations.join(", "),
            purposes: purposes.join(", "),
            sans,
            holders: holders.into_iter().collect::<Vec<_>>().join(", "),
        };
        let before = rows.insert(name.clone(), row.clone());
        assert!(before.is_none_or(|before| before == row), "{name}: members differ by more than their names");
    }
    rows
}

/// The certificates and their differences, in the order of our names.
fn differences() -> Vec<(String, &'static str, String, String)> {
    let ours = ours();
    let mut found = Vec::new();
    let none = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    let join = |sans: &BTreeSet<String>| sans.iter().cloned().collect::<Vec<_>>().join(", ");
    let kubeadm = kubeadm();
    for row in &kubeadm {
        let Some(own) = ours.get(&row.name) else {
            found.push((row.name.clone(), "only kubeadm has it", none(&row.common_name), "none".to_owned()));
            continue;
        };
        let theirs: BTreeSet<String> = row.sans.iter().cloned().collect();
        let pairs = [
            ("issuer", row.issuer.clone(), own.issuer.clone()),
            ("CN", row.common_name.clone(), own.common_name.clone()),
            ("O", row.organization.clone(), own.organization.clone()),
            ("EKU", row.purposes.clone(), own.purposes.clone()),
            ("SANs", join(&theirs), join(&own.sans)),
        ];
        for (what, theirs, own) in pairs.into_iter().filter(|(_, theirs, own)| theirs != own) {
            found.push((row.name.clone(), what, none(&theirs), none(&own)));
        }
    }
    let known: BTreeSet<&str> = kubeadm.iter().map(|row| row.name.as_str()).collect();
    for (name, row) in ours.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        found.push((name.clone(), "only Slipway has it", "none".to_owned(), row.common_name.clone()));
    }
    found.sort();
    found
}

fn code(text: &str) -> String {
    match text {
        "" => String::new(),
        "none" => "none".to_owned(),
        _ => text.split(", ").map(|part| format!("`{part}`")).collect::<Vec<_>>().join(", "),
    }
}

fn tables() -> (String, String) {
    let mut table = "| name | CN | O | signed by | EKU | SANs | its certificate or key is held by |\n|---|---|---|---|---|---|---|\n".to_owned();
    for (name, own) in ours() {
        let signed = if own.issuer.is_empty() { "itself".to_owned() } else { code(&own.issuer) };
        let sans = code(&own.sans.into_iter().collect::<Vec<_>>().join(", "));
        let (common_name, organization) = (code(&own.common_name), code(&own.organization));
        let (purposes, holders) = (own.purposes, own.holders);
        table += &format!(
            "| `{name}` | {common_name} | {organization} | {signed} | {purposes} | {sans} | {holders} |\n"
        );
    }
    let mut difference =
        "| certificate | what | kubeadm | Slipway | why |\n|---|---|---|---|---|\n".to_owned();
    let reasons = reasons();
    for (name, what, theirs, own) in differences() {
        let why = reasons.iter().find(|(of, which, _)| *of == name && which == what).map(|(_, _, why)| why);
        let why = why
            .unwrap_or_else(|| panic!("{name}: {what} is {own}, and kubeadm's is {theirs}: add the reason"));
        difference += &format!("| `{name}` | {what} | {} | {} | {why} |\n", code(&theirs), code(&own));
    }
    (table, difference)
}

/// `UPDATE_DOCS=1 cargo test --workspace --test pki_page` writes the tables.
#[test]
fn docs_pki_holds_the_policys_table_and_what_differs_from_kubeadm() {
    let path = tools::root().join("docs/pki.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let (table, difference) = tables();
    for (mark, text) in [("table", table), ("kubeadm", difference)] {
        let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
        let start = page.find(&begin).unwrap_or_else(|| panic!("docs/pki.md has no {begin}")) + begin.len();
        let stop = page.find(&end).unwrap_or_else(|| panic!("docs/pki.md has no {end}"));
        page.replace_range(start..stop, &text);
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap();
    assert!(
        there == page,
        "docs/pki.md is out of date: run UPDATE_DOCS=1 cargo test --workspace --test pki_page"
    );
}

#[test]
fn no_reason_is_given_for_what_does_not_differ() {
    let found = differences();
    for (name, what, _) in reasons() {
        let differs = found.iter().any(|(of, which, ..)| *of == name && *which == what);
        assert!(differs, "{name}: {what} does not differ from kubeadm any more: delete the reason");
    }
}
