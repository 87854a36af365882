//! Stages, gates and words, over an inventory with fingerprints that are counted instead of keys.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::RolloutBeforeExpiry;
use slipway_core::digest::sha256_hex;
use slipway_core::role::{CA, ETCD_CA, FRONT_PROXY_CA, KUBELET_CA, SERVICE_ACCOUNT, base};

use super::*;
use crate::trust::{bundle, recipients};
use crate::{BundleEntry, CertificateFacts, Entry, manifest};

mod peers;
mod pools;

fn sample() -> Cluster {
    slipway_spec::parse(include_bytes!("../testdata/cluster.yaml"), None).unwrap().cluster
}

fn start() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

fn days(count: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * count)
}

/// A cluster's inventory, with fingerprints that are counted instead of keys.
struct Vault {
    cluster: Cluster,
    manifest: Manifest,
    made: u32,
    now: Timestamp,
}

impl Vault {
    fn new() -> Self {
        let manifest = Manifest { format: manifest::FORMAT, ..Manifest::default() };
        let mut vault = Self { cluster: sample(), manifest, made: 0, now: start() };
        vault.make();
        vault.seal();
        vault
    }

    fn issue(&mut self, asset: &Asset) {
        self.made += 1;
        let fingerprint = sha256_hex(format!("{} {}", asset.name, self.made).as_bytes());
        let certificate = manifest::profile(asset).map(|profile| CertificateFacts {
            serial: format!("{:x}", self.made),
            not_before: self.now,
            not_after: manifest::not_after(self.now, profile.days).unwrap(),
            spki_sha256: String::new(),
            issuer_fingerprint: match &profile.issuer {
                Some(issuer) => self.manifest.assets[issuer].fingerprint.clone(),
                None => fingerprint.clone(),
            },
        });
        let entry = Entry {
            fingerprint,
            names: manifest::names(&asset.kind),
            certificate,
            roles: BTreeSet::new(),
            origin: asset.origin,
            chain: None,
        };
        self.manifest.assets.insert(asset.name.clone(), entry);
    }

    /// What a rendering makes; the names.
    fn make(&mut self) -> Vec<String> {
        let assets = policy::assets(&self.cluster);
        let list = manifest::to_make(&assets, &self.manifest, &BTreeMap::new(), self.now).unwrap();
        let list: Vec<Asset> = list.into_iter().map(|made| made.asset.clone()).collect();
        list.iter().for_each(|asset| self.issue(asset));
        list.into_iter().map(|asset| asset.name).collect()
    }

    /// Seals what changed; the roles.
    fn seal(&mut self) -> BTreeSet<Role> {
        let roles = manifest::to_seal(&self.cluster, &self.manifest).unwrap();
        let mut files = manifest::bundle_files(&self.cluster, &self.manifest).unwrap();
        for role in &roles {
            let files = files.remove(role).unwrap();
            let digest = sha256_hex(format!("{role} {files:?}").as_bytes());
            let bundle = BundleEntry { digest, files, sealed_under: String::new(), etag: String::new() };
            manifest::record(&mut self.manifest, role, bundle);
        }
        let roles = roles.into_iter().collect();
        record_present(&self.cluster, &mut self.manifest, &roles);
        roles
    }

    fn begin(&mut self, name: &str) -> Result<BTreeSet<Role>, PolicyError> {
        let assets = policy::assets(&self.cluster);
        let asset = to_start(&assets, &self.manifest, name, self.now)?;
        self.issue(&asset);
        begin(&mut self.manifest, name, self.now);
        Ok(self.settle_in(name))
    }

    fn abort(&mut self, name: &str) -> Result<bool, PolicyError> {
        let went = abort(&mut self.manifest, name, self.now)?;
        if went {
            self.make();
            self.settle_in(name);
        }
        Ok(went)
    }

    /// What is next, done; the roles whose bundle changed.
    fn step(&mut self, name: &str, seen: &KnownNodes) -> (Next, BTreeSet<Role>) {
        let next = next(&self.cluster, &self.manifest, name, seen, self.now).unwrap();
        let mut changed = BTreeSet::new();
        if step(&mut self.manifest, name, &next, self.now) && matches!(next, Next::Issue | Next::Drop) {
            self.make();
            changed = self.settle_in(name);
        }
        (next, changed)
    }

    fn settle_in(&mut self, name: &str) -> BTreeSet<Role> {
        let changed = self.seal();
        record_stage(&self.cluster, &mut self.manifest, name);
        changed
    }

    fn digest(&self, role: &Role) -> String {
        self.manifest.bundles[role].digest.clone()
    }

    /// Every node that there is has what the inventory has.
    fn all(&self) -> KnownNodes {
        let mut seen = KnownNodes::default();
        for role in policy::roles(&self.cluster) {
            let count = match &role {
                Role::Controller => self.cluster.controller.count,
                Role::Pool(_) => 3,
                Role::Etcd(_) => 1,
                Role::Admin => continue,
            };
            let digest = self.digest(&role);
            let node = |index: u32| (format!("i-{role}-{index}"), report(&digest, self.now));
            seen.nodes.insert(role.clone(), (0..count).map(node).collect());
            seen.boots_with.insert(role.clone(), BTreeSet::from([digest.clone()]));
        }
        seen
    }

    fn stage(&self, name: &str) -> Option<(Stage, bool)> {
        self.manifest.rotations.get(name).map(|rotation| (rotation.stage, rotation.aborted))
    }
}

fn report(digest: &str, at: Timestamp) -> NodeReport {
    NodeReport { at, credentials: Some(digest.to_owned()), matches_node_file: true, serves: BTreeMap::new() }
}

fn roles(names: &[&str]) -> BTreeSet<Role> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn an_inventory_without_a_rotation_says_nothing_of_rotations() {
    let vault = Vault::new();
    let text = serde_json::to_string(&vault.manifest).unwrap();
    assert!(!text.contains("otation"), "{text}");
    assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), vault.manifest);
    for role in policy::roles(&vault.cluster) {
        assert_eq!(bundle(&vault.cluster, &vault.manifest, &role), policy::bundle(&vault.cluster, &role));
    }
    assert_eq!(recipients(&vault.cluster, &vault.manifest), policy::recipients(&vault.cluster));
}

#[test]
fn p2_a_stage_changes_who_holds_what_changed_and_nobody_else() {
    let all = &["admin", "controller", "etcd-0", "etcd-1", "etcd-2", "pool-general"][..];
    let nodes = &["controller", "etcd-0", "etcd-1", "etcd-2", "pool-general"][..];
    let members = &["controller", "etcd-0", "etcd-1", "etcd-2"][..];
    let one = &["controller"][..];
    for (name, trust, issue, drop) in [
        (CA, all, &["admin", "controller"][..], all),
        (KUBELET_CA, nodes, one, nodes),
        (ETCD_CA, members, members, members),
        (FRONT_PROXY_CA, one, one, one),
        (SERVICE_ACCOUNT, one, one, one),
    ] {
        let mut vault = Vault::new();
        let before = vault.manifest.clone();
        assert_eq!(vault.begin(name).unwrap(), roles(trust), "{name}: trust");
        assert_eq!(vault.make(), Vec::<String>::new(), "{name}: a rendering makes nothing in passing");
        assert_eq!(vault.seal(), BTreeSet::new());
        let (next, changed) = vault.step(name, &vault.all());
        assert_eq!((next, changed), (Next::Issue, roles(issue)), "{name}: issue");
        for (asset, entry) in &before.assets {
            let of_it = entry
                .certificate
                .as_ref()
                .is_some_and(|facts| facts.issuer_fingerprint == before.assets[name].fingerprint);
            let stays = vault.manifest.assets[asset] == *entry;
            assert_eq!(stays, !of_it && asset != name, "{name}: {asset}");
        }
        assert_eq!(vault.make(), Vec::<String>::new(), "{name}: nothing is issued twice");
        if life(name) {
            assert_eq!(vault.step(name, &vault.all()).0, Next::Settle);
            vault.now += days(366);
        }
        let (next, changed) = vault.step(name, &vault.all());
        assert_eq!((next, changed), (Next::Drop, roles(drop)), "{name}: drop");
        assert_eq!(vault.step(name, &vault.all()).0, Next::End);
        assert!(vault.manifest.rotations.is_empty());
        let left: Vec<_> = vault.manifest.assets.keys().filter(|asset| base(asset) != *asset).collect();
        assert_eq!(left, Vec::<&String>::new());
        assert!(vault.manifest.assets[name] != before.assets[name]);
        // Another can begin.
        vault.begin(name).unwrap();
    }
}

/// Whether what it signs is not all in the inventory.
fn life(name: &str) -> bool {
    [KUBELET_CA, SERVICE_ACCOUNT].contains(&name)
}

#[test]
fn the_one_certificate_that_kubelets_are_signed_with_is_one() {
    let mut vault = Vault::new();
    vault.begin(KUBELET_CA).unwrap();
    let of = |vault: &Vault, role: &Role, path: &str| -> Vec<String> {
        let files = bundle(&vault.cluster, &vault.manifest, role);
        let file = files.into_iter().find(|file| file.path.ends_with(path)).unwrap();
        file.sources.into_iter().map(|source| source.asset).collect()
    };
    let worker = Role::Pool("general".to_owned());
    assert_eq!(of(&vault, &Role::Controller, "/kubelet-ca.pem"), ["kubelet-ca"]);
    assert_eq!(of(&vault, &Role::Controller, "/client-ca.pem"), ["ca", "kubelet-ca", "kubelet-ca-next"]);
    assert_eq!(of(&vault, &worker, "/kubelet-ca.pem"), ["kubelet-ca", "kubelet-ca-next"]);
    vault.step(KUBELET_CA, &vault.all());
    assert_eq!(of(&vault, &Role::Controller, "/kubelet-ca.pem"), ["kubelet-ca"]);
    assert_eq!(of(&vault, &Role::Controller, "/client-ca.pem"), ["ca", "kubelet-ca-previous", "kubelet-ca"]);
    assert_eq!(of(&vault, &worker, "/kubelet-ca.pem"), ["kubelet-ca-previous", "kubelet-ca"]);
    assert_eq!(of(&vault, &Role::Etcd(0), "/ca.pem"), ["ca"]);
}

#[test]
fn p9_no_bundle_gets_a_private_key_that_it_did_not_have() {
    for name in slipway_core::role::ROTATABLE {
        let mut vault = Vault::new();
        let secrets = |vault: &Vault| -> BTreeSet<(Role, String)> {
            let roles = policy::roles(&vault.cluster).into_iter();
            let all = roles.flat_map(|role| {
                let files = bundle(&vault.cluster, &vault.manifest, &role);
                let sources = files.into_iter().flat_map(|file| file.sources);
                sources.filter(|source| source.part.is_secret()).map(move |one| (role.clone(), one.asset))
            });
            all.collect()
        };
        let before = secrets(&vault);
        vault.begin(name).unwrap();
        assert_eq!(secrets(&vault), before);
        vault.step(name, &vault.all());
        assert_eq!(vault.stage(name), Some((Stage::Issue, false)));
        assert_eq!(secrets(&vault), before);
    }
}

#[test]
fn the_gate_is_closed_until_every_node_is_heard_of_and_says_who_is_missing() {
    let mut vault = Vault::new();
    let before = vault.all();
    vault.begin(CA).unwrap();
    let told = |vault: &Vault, seen: &KnownNodes| {
        let Some(Next::Wait(waits)) = next(&vault.cluster, &vault.manifest, CA, seen, vault.now) else {
            panic!("it is open")
        };
        waits.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let nobody = told(&vault, &KnownNodes::default());
    assert_eq!(nobody.len(), 5, "{nobody:#?}");
    assert!(nobody.contains(&"controller is in the spec and is not deployed yet: roll it out".to_owned()));
    // Nothing was rolled out.
    let old = told(&vault, &before);
    assert!(old.iter().any(|line| {
        line.starts_with("a new machine of pool-general would start with the previous credentials")
    }));
    assert!(
        old.iter()
            .any(|line| line.starts_with("the last report of i-etcd-1-0 of etcd-1, of 2026-11-20T12:00:00Z"))
    );

    let all = vault.all();
    let general = Role::Pool("general".to_owned());
    let mut one = all.clone();
    one.nodes.get_mut(&general).unwrap().get_mut("i-pool-general-2").unwrap().credentials =
        Some(vault.manifest.retired[&general].keys().next().unwrap().clone());
    assert_eq!(told(&vault, &one).len(), 1, "a worker that trusts the old one alone");
    // Auto Scaling says that it is gone.
    let there = ["i-pool-general-0", "i-pool-general-1"].map(str::to_owned);
    one.machines.insert(general.clone(), there.clone().into());
    assert_eq!(next(&vault.cluster, &vault.manifest, CA, &one, vault.now), Some(Next::Issue));
    // A machine that was never heard of.
    one.machines.get_mut(&general).unwrap().insert("i-new".to_owned());
    assert!(told(&vault, &one)[0].starts_with("i-new of pool-general was never heard of"));

    let mut one = all.clone();
    one.nodes.get_mut(&Role::Controller).unwrap().pop_last();
    assert_eq!(told(&vault, &one), ["2 of at least 3 nodes of controller were heard of"]);
    let mut one = all.clone();
    one.nodes.get_mut(&Role::Etcd(1)).unwrap().values_mut().for_each(|node| node.matches_node_file = false);
    assert!(told(&vault, &one)[0].contains("its update is in progress"));
    let mut one = all.clone();
    one.boots_with.insert(Role::Pool("old".to_owned()), BTreeSet::from(["x".to_owned()]));
    assert!(told(&vault, &one)[0].starts_with("pool-old is no longer in the spec and is still deployed"));
    assert_eq!(next(&vault.cluster, &vault.manifest, CA, &all, vault.now), Some(Next::Issue));
    // A machine whose report cannot be read may have anything, whether or not the machines are known.
    let mut one = vault.all();
    let node = one.nodes.get_mut(&general).unwrap().pop_last().unwrap().0;
    let torn = UnreadableReport { key: "status.json".to_owned(), problem: "torn".to_owned() };
    one.unreadable.insert(general.clone(), [(node.clone(), torn)].into());
    let words = format!("the last report of {node} of pool-general cannot be read");
    assert!(told(&vault, &one).iter().any(|wait| wait.starts_with(&words)), "{:?}", told(&vault, &one));
    let machines = one.nodes[&general].keys().cloned().chain([node]).collect();
    one.machines.insert(general.clone(), machines);
    let waits = told(&vault, &one);
    assert!(waits.len() == 1 && waits[0].starts_with(&words), "{waits:?}");
    one.machines.get_mut(&general).unwrap().pop_last();
    let gone = next(&vault.cluster, &vault.manifest, CA, &one, vault.now);
    assert_eq!(gone, Some(Next::Issue), "the machine is gone");
    let vouched = KnownNodes { vouched: true, ..KnownNodes::default() };
    assert_eq!(next(&vault.cluster, &vault.manifest, CA, &vouched, vault.now), Some(Next::Issue));
    assert_eq!(next(&vault.cluster, &vault.manifest, ETCD_CA, &all, vault.now), None);
}

#[test]
fn the_old_one_stays_while_somebody_serves_what_it_signed() {
    let mut vault = Vault::new();
    let old = vault.manifest.assets["apiserver"].fingerprint.clone();
    vault.begin(CA).unwrap();
    vault.step(CA, &vault.all());
    let mut seen = vault.all();
    let mut serve = |fingerprint: &String| {
        let nodes = seen.nodes.get_mut(&Role::Controller).unwrap();
        let served = BTreeMap::from([("kube-apiserver".to_owned(), fingerprint.clone())]);
        nodes.values_mut().for_each(|node| node.serves = served.clone());
        next(&vault.cluster, &vault.manifest, CA, &seen, vault.now).unwrap()
    };
    let Next::Wait(waits) = serve(&old) else { panic!("dropped") };
    assert_eq!(waits.len(), 3);
    assert!(waits[0].to_string().starts_with("kube-apiserver on i-controller-0 of controller serves"));
    assert_eq!(serve(&vault.manifest.assets["apiserver"].fingerprint), Next::Drop);
}

#[test]
fn what_nodes_signed_by_themselves_is_outlived_before_its_signer_goes() {
    for (name, flag, is_controller_manager) in [
        (KUBELET_CA, "cluster-signing-duration", true),
        (SERVICE_ACCOUNT, "service-account-max-token-expiration", false),
    ] {
        let mut vault = Vault::new();
        vault.begin(name).unwrap();
        vault.step(name, &vault.all());
        vault.now += days(3);
        assert_eq!(vault.step(name, &vault.all()).0, Next::Settle);
        vault.now += days(365);
        let (wait, _) = vault.step(name, &vault.all());
        let Next::Wait(waits) = wait else { panic!("{name}: {wait:?}") };
        assert!(waits[0].to_string().starts_with("until 2027-11-23T13:00:00Z "), "{}", waits[0]);
        // A rollback: some of them sign with the old one again, and the time is counted anew.
        let mut back = vault.all();
        back.nodes.get_mut(&Role::Controller).unwrap().values_mut().next().unwrap().credentials = None;
        assert!(matches!(vault.step(name, &back).0, Next::Unsettle(_)));
        assert_eq!(vault.step(name, &vault.all()).0, Next::Settle);
        vault.now += days(365) + SignedDuration::from_hours(1);
        assert_eq!(vault.step(name, &vault.all()).0, Next::Drop);

        // The spec may say that it is shorter; what the API server prolongs for pods it does not.
        let mut vault = Vault::new();
        let kubernetes = &mut vault.cluster.kubernetes;
        let component = if is_controller_manager {
            &mut kubernetes.controller_manager
        } else {
            &mut kubernetes.api_server
        };
        component.flags.insert(flag.to_owned(), "48h0m0s".to_owned());
        if !is_controller_manager {
            component.flags.insert("service-account-extend-token-expiration".to_owned(), "false".to_owned());
        }
        vault.begin(name).unwrap();
        vault.step(name, &vault.all());
        vault.step(name, &vault.all());
        vault.now += days(2);
        assert!(matches!(vault.step(name, &vault.all()).0, Next::Wait(_)));
        vault.now += SignedDuration::from_hours(1);
        assert_eq!(vault.step(name, &vault.all()).0, Next::Drop);
    }
}

#[test]
fn an_authority_that_has_ended_signed_nothing_that_lives() {
    let mut vault = Vault::new();
    vault.now = vault.manifest.assets[KUBELET_CA].certificate.as_ref().unwrap().not_after - days(10);
    vault.begin(KUBELET_CA).unwrap();
    vault.step(KUBELET_CA, &vault.all());
    vault.step(KUBELET_CA, &vault.all());
    vault.now += days(9);
    assert!(matches!(vault.step(KUBELET_CA, &vault.all()).0, Next::Wait(_)));
    vault.now += days(1);
    assert_eq!(vault.step(KUBELET_CA, &vault.all()).0, Next::Drop);
}

#[test]
fn gone_back_from_at_once_everything_is_as_it_was() {
    for name in slipway_core::role::ROTATABLE {
        let mut vault = Vault::new();
        let before = vault.manifest.clone();
        vault.begin(name).unwrap();
        assert!(vault.abort(name).unwrap());
        assert_eq!(vault.manifest.assets, before.assets);
        let digests = |manifest: &Manifest| -> Vec<String> {
            manifest.bundles.values().map(|bundle| bundle.digest.clone()).collect()
        };
        assert_eq!(digests(&vault.manifest), digests(&before), "no node changes that did not get it");
        assert!(!vault.abort(name).unwrap(), "twice is once");
        assert_eq!(vault.step(name, &vault.all()).0, Next::End);
        let error = vault.abort(name).unwrap_err();
        assert!(error.to_string().contains("it is not being rotated"), "{error}");
    }
}

#[test]
fn gone_back_from_while_the_new_one_issues_both_stay_until_nobody_presents_it() {
    let mut vault = Vault::new();
    let old = vault.manifest.assets[CA].fingerprint.clone();
    vault.begin(CA).unwrap();
    vault.step(CA, &vault.all());
    let seen = vault.all();
    assert!(vault.abort(CA).unwrap());
    assert_eq!(vault.stage(CA), Some((Stage::Trust, true)));
    assert_eq!(vault.manifest.assets[CA].fingerprint, old);
    let apiserver = vault.manifest.assets["apiserver"].certificate.clone().unwrap();
    assert_eq!(apiserver.issuer_fingerprint, old);
    assert!(matches!(vault.step(CA, &seen).0, Next::Wait(_)), "controllers present what the new one signed");
    assert_eq!(vault.step(CA, &vault.all()).0, Next::Drop);
    assert!(!vault.abort(CA).unwrap());
    assert_eq!(vault.step(CA, &vault.all()).0, Next::End);
}

#[test]
fn after_the_old_one_is_gone_there_is_no_way_back() {
    let mut vault = Vault::new();
    vault.begin(ETCD_CA).unwrap();
    vault.step(ETCD_CA, &vault.all());
    vault.step(ETCD_CA, &vault.all());
    let error = vault.abort(ETCD_CA).unwrap_err();
    assert!(
        error.to_string().contains("the old one is gone") && error.help().contains("new rotation"),
        "{error}"
    );
    // Which may begin before the last node has heard.
    vault.begin(ETCD_CA).unwrap();
}

#[test]
fn what_cannot_be_rotated_is_refused_with_what_to_do() {
    let mut vault = Vault::new();
    let refused = |vault: &mut Vault, name: &str| {
        let error = vault.begin(name).unwrap_err();
        (error.to_string(), error.help())
    };
    let (why, help) = refused(&mut vault, "kublet-ca");
    assert!(why.contains("did you mean kubelet-ca?") && help.contains("service-account"), "{why}; {help}");
    let (why, help) = refused(&mut vault, "apiserver");
    assert!(why.contains("not an authority") && help.contains("slipway certs renew"), "{why}; {help}");
    vault.begin(CA).unwrap();
    let (why, help) = refused(&mut vault, CA);
    assert!(why.contains("being rotated since 2026-11-20T12:00:00Z (stage trust)"), "{why}");
    assert!(help.contains("--abort"), "{help}");
    vault.manifest.assets.get_mut(ETCD_CA).unwrap().origin = Origin::Imported;
    let (why, _) = refused(&mut vault, ETCD_CA);
    assert!(why.contains("you imported or provided it"), "{why}");
    vault.manifest.assets.remove(FRONT_PROXY_CA);
    assert!(refused(&mut vault, FRONT_PROXY_CA).0.contains("never made"));
}

#[test]
fn an_authority_is_due_by_the_spec_or_when_leaves_would_outlive_it() {
    let mut vault = Vault::new();
    let mut policy = vault.cluster.certificates.clone();
    policy.rollout_before_expiry = None;
    let ends = vault.manifest.assets[CA].certificate.as_ref().unwrap().not_after;
    assert_eq!(due(&vault.manifest, &policy, start()), []);
    // As renewals go on.
    let renewed = |vault: &mut Vault, at: Timestamp| {
        for entry in vault.manifest.assets.values_mut() {
            if let Some(facts) =
                entry.certificate.as_mut().filter(|facts| facts.issuer_fingerprint != entry.fingerprint)
            {
                facts.not_after = at + days(365);
            }
        }
    };
    renewed(&mut vault, ends - days(370));
    assert_eq!(due(&vault.manifest, &policy, ends - days(366)), []);
    let told = due(&vault.manifest, &policy, ends - days(365));
    assert!(told.iter().all(|due| due.why == ExpiryReason::Year && !due.start && due.ours), "{told:?}");
    assert!(told[0].to_string().ends_with("within a year; rotate it: `slipway rotate-ca ca`"), "{}", told[0]);
    // Soon they are renewed, and would outlive it. kubelet-ca signs none that the inventory has.
    policy.rollout_before_expiry = Some(RolloutBeforeExpiry {
        days: 7,
        strategy: slipway_core::cluster::RenewalStrategy::Refresh,
        emergency_days: 3,
    });
    let soon = due(&vault.manifest, &policy, ends - days(5 + 37));
    let why: Vec<_> = soon.iter().map(|due| (due.name.as_str(), due.why, due.start)).collect();
    assert_eq!(
        why,
        [
            (CA, ExpiryReason::Leaves, false),
            (KUBELET_CA, ExpiryReason::Year, false),
            (ETCD_CA, ExpiryReason::Leaves, false),
            (FRONT_PROXY_CA, ExpiryReason::Leaves, false)
        ]
    );
    policy.ca_rotation_days = Some(90);
    let starts = |vault: &Vault, policy: &_, at| -> Vec<String> {
        due(&vault.manifest, policy, at).into_iter().filter(|due| due.start).map(|due| due.name).collect()
    };
    assert_eq!(starts(&vault, &policy, ends - days(91)), Vec::<String>::new());
    assert_eq!(starts(&vault, &policy, ends - days(90)), [CA, KUBELET_CA, ETCD_CA, FRONT_PROXY_CA]);
    vault.manifest.assets.get_mut(ETCD_CA).unwrap().origin = Origin::Imported;
    vault.begin(CA).unwrap();
    assert_eq!(starts(&vault, &policy, ends - days(90)), [KUBELET_CA, FRONT_PROXY_CA]);
    policy.ca_rotation_days = Some(1);
    assert_eq!(starts(&vault, &policy, ends - days(42)), [FRONT_PROXY_CA], "no leaf may outlive it");
}

#[test]
fn a_rotation_is_told_in_words() {
    let mut vault = Vault::new();
    assert!(words(&vault.manifest).is_empty());
    for name in slipway_core::role::ROTATABLE {
        let mut seen = BTreeSet::new();
        let mut note = |vault: &Vault| {
            let told = words(&vault.manifest).remove(name).unwrap();
            assert!(seen.insert((told.meaning.clone(), told.next.clone())), "{told:?}");
        };
        vault.begin(name).unwrap();
        note(&vault);
        vault.step(name, &vault.all());
        note(&vault);
        vault.abort(name).unwrap();
        note(&vault);
        if life(name) {
            vault.step(name, &vault.all());
            note(&vault);
            vault.now += days(366);
        }
        vault.step(name, &vault.all());
        note(&vault);
        vault.step(name, &vault.all());
        assert!(words(&vault.manifest).is_empty());
    }
}
