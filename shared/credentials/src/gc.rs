//! Which stored credentials nothing refers to any more.
//!
//! An old generation is kept as long as a deployed or planned release, or a node, refers to its bundle, and with the bundle everything in
//! it. Young objects are kept too, because a render may be about to refer to them. So is everything that is not known to be Slipway's or
//! not known to be unused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use super::manifest::fingerprints;
use super::{Manifest, trust};

/// The minimum age of an object that is deleted. It is much longer than a render takes, which ends after 15 minutes at the latest.
pub const YOUNG: SignedDuration = SignedDuration::from_hours(24);

/// The digests of credentials and configurations that are in use, by role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Referred {
    /// Digests of bundles of credentials.
    pub credentials: BTreeMap<Role, BTreeSet<String>>,
    /// Digests of configurations.
    pub configs: BTreeMap<Role, BTreeSet<String>>,
}

impl Referred {
    /// Adds the digests with which the nodes of a release boot.
    pub fn add_release(&mut self, rendering: &Rendering) {
        for (role, node) in &rendering.roles {
            self.add_node(role, &node.config_digest, &node.credentials_digest);
        }
    }

    /// Adds the digests that a node reports.
    pub fn add_node(&mut self, role: &Role, config: &str, credentials: &str) {
        self.configs.entry(role.clone()).or_default().insert(config.to_owned());
        self.credentials.entry(role.clone()).or_default().insert(credentials.to_owned());
    }
}

/// An object in the cluster's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its key below `clusters/<name>/`.
    pub name: String,
    /// When it was written last.
    pub modified: Timestamp,
    /// Size in bytes.
    pub size: u64,
}

/// Whether an object is deleted, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// Its key below `clusters/<name>/`.
    pub name: String,
    /// Whether it is deleted.
    pub goes: bool,
    /// Why.
    pub reason: Reason,
    /// Size in bytes.
    pub size: u64,
}

/// Why an object is kept or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The inventory names it.
    Current,
    /// A deployed or planned release, or a node, refers to it.
    InUse,
    /// A bundle that is kept contains it, or may contain it.
    HeldByBundle,
    /// It was written a short while ago.
    Young,
    /// It is no kind of object that Slipway knows.
    Unknown,
    /// Nothing refers to it.
    Unused,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "the inventory names it",
            Self::InUse => "a release or a node refers to it",
            Self::HeldByBundle => "a bundle that stays holds it, or may hold it",
            Self::Young => "it was written a short while ago",
            Self::Unknown => "not known to be ours to remove",
            Self::Unused => "nobody refers to it",
        })
    }
}

/// The kind of an object, by its name.
enum Kind {
    /// A half of an asset: the asset and the fingerprint.
    Half(String, String),
    Credentials(Role, String),
    Config(Role, String),
    Other,
}

impl Kind {
    fn parse(name: &str) -> Self {
        let parts: Vec<&str> = name.split('/').collect();
        match parts[..] {
            ["pki", asset, file] => {
                let suffixes = [".chain.pem", ".pem", ".sealed"];
                let fingerprint = suffixes.iter().find_map(|suffix| file.strip_suffix(suffix));
                match fingerprint.filter(|fingerprint| is_digest(fingerprint)) {
                    Some(fingerprint) => Self::Half(asset.to_owned(), fingerprint.to_owned()),
                    None => Self::Other,
                }
            }
            ["bundles", role, file] => {
                let Ok(role) = role.parse::<Role>() else { return Self::Other };
                match file.split_once('-') {
                    Some(("credentials", digest)) if is_digest(digest) => {
                        Self::Credentials(role, digest.to_owned())
                    }
                    Some(("config", digest)) if is_digest(digest) => Self::Config(role, digest.to_owned()),
                    Some(_) | None => Self::Other,
                }
            }
            _ => Self::Other,
        }
    }
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn has(map: &BTreeMap<Role, BTreeSet<String>>, role: &Role, digest: &str) -> bool {
    map.get(role).is_some_and(|digests| digests.contains(digest))
}

/// Decides about each of `stored`, in the same order. Objects younger than `young` are kept.
#[must_use]
pub fn decide(
    manifest: &Manifest,
    stored: &[Stored],
    referred: &Referred,
    young: SignedDuration,
    now: Timestamp,
) -> Vec<Verdict> {
    let is_young = |object: &Stored| now.duration_since(object.modified) < young;
    let current =
        |role: &Role, digest: &str| manifest.bundles.get(role).is_some_and(|bundle| bundle.digest == digest);
    // A role that the spec no longer has keeps its bundle, which may contain what others use.
    let mut held = KeptContent {
        fingerprints: manifest.bundles.values().flat_map(fingerprints).collect(),
        ..KeptContent::default()
    };
    for (role, digests) in &referred.credentials {
        digests.iter().for_each(|digest| held.add(manifest, role, digest));
    }
    for object in stored.iter().filter(|object| is_young(object)) {
        if let Kind::Credentials(role, digest) = Kind::parse(&object.name) {
            held.add(manifest, &role, &digest);
        }
    }
    let reason = |object: &Stored| match Kind::parse(&object.name) {
        Kind::Half(asset, fingerprint) => {
            if trust::stored(manifest, &asset, &fingerprint).is_some() {
                Reason::Current
            } else if held.holds(&fingerprint) {
                Reason::HeldByBundle
            } else if is_young(object) {
                Reason::Young
            } else {
                Reason::Unused
            }
        }
        Kind::Credentials(role, digest) => {
            if current(&role, &digest) {
                Reason::Current
            } else if has(&referred.credentials, &role, &digest) {
                Reason::InUse
            } else if is_young(object) {
                Reason::Young
            } else {
                Reason::Unused
            }
        }
        Kind::Config(role, digest) => {
            if has(&referred.configs, &role, &digest) {
                Reason::InUse
            } else if is_young(object) {
                Reason::Young
            } else {
                Reason::Unused
            }
        }
        Kind::Other => Reason::Unknown,
    };
    let verdict = |object: &Stored| {
        let reason = reason(object);
        Verdict { name: object.name.clone(), goes: reason == Reason::Unused, reason, size: object.size }
    };
    stored.iter().map(verdict).collect()
}

/// What the bundles that are kept contain, besides what the inventory names.
#[derive(Default)]
struct KeptContent {
    fingerprints: BTreeSet<String>,
    /// A bundle is kept whose content is unknown.
    anything: bool,
}

impl KeptContent {
    fn add(&mut self, manifest: &Manifest, role: &Role, digest: &str) {
        if manifest.bundles.get(role).is_some_and(|bundle| bundle.digest == digest) {
            return;
        }
        // A digest that was added by hand to allow a return has no fingerprints.
        let known = manifest.retired.get(role).and_then(|retired| retired.get(digest));
        match known.filter(|fingerprints| !fingerprints.is_empty()) {
            Some(fingerprints) => self.fingerprints.extend(fingerprints.iter().cloned()),
            None => self.anything = true,
        }
    }

    fn holds(&self, fingerprint: &str) -> bool {
        self.anything || self.fingerprints.contains(fingerprint)
    }
}

/// The inventory without earlier bundles that are deleted and that nothing refers to.
#[must_use]
pub fn without_deleted_bundles(
    manifest: &Manifest,
    referred: &Referred,
    standing: &BTreeSet<String>,
) -> Manifest {
    let mut manifest = manifest.clone();
    for (role, digests) in &mut manifest.retired {
        digests.retain(|digest, _| {
            has(&referred.credentials, role, digest)
                || standing.contains(&format!("bundles/{role}/credentials-{digest}"))
        });
    }
    manifest.retired.retain(|_, digests| !digests.is_empty());
    super::manifest::forget_ends(&mut manifest);
    manifest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::super::{BundleEntry, Entry, Origin, manifest as inventory};
    use super::*;

    fn digest(number: u8) -> String {
        format!("{number:064x}")
    }

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn bundle(number: u8, held: &[u8]) -> BundleEntry {
        BundleEntry {
            digest: digest(number),
            files: held
                .iter()
                .map(|held| (format!("/{held}.pem"), format!("certificate:{}", digest(*held))))
                .collect(),
            sealed_under: "key".to_owned(),
            etag: String::new(),
        }
    }

    fn entry(number: u8) -> Entry {
        Entry {
            fingerprint: digest(number),
            names: String::new(),
            certificate: None,
            roles: BTreeSet::new(),
            origin: Origin::default(),
            chain: None,
        }
    }

    fn object(name: String, hours: i64) -> Stored {
        Stored { name, modified: now() - SignedDuration::from_hours(hours), size: 1 }
    }

    /// Three generations of a controller's bundle, 1 to 3, that contain asset `a` as 11 to 13.
    fn generations() -> Manifest {
        let mut manifest = Manifest::default();
        for number in 1..=3 {
            manifest.assets.insert("a".to_owned(), entry(10 + number));
            inventory::record(&mut manifest, &Role::Controller, bundle(number, &[10 + number]));
        }
        manifest
    }

    fn names(numbers: std::ops::RangeInclusive<u8>, hours: i64) -> Vec<Stored> {
        let each = |number: u8| {
            [
                object(format!("pki/a/{}.pem", digest(10 + number)), hours),
                object(format!("pki/a/{}.sealed", digest(10 + number)), hours),
                object(format!("bundles/controller/credentials-{}", digest(number)), hours),
                object(format!("bundles/controller/config-{}", digest(20 + number)), hours),
            ]
        };
        numbers.flat_map(each).collect()
    }

    fn going(manifest: &Manifest, stored: &[Stored], referred: &Referred) -> Vec<String> {
        let verdicts = decide(manifest, stored, referred, YOUNG, now());
        verdicts.into_iter().filter(|verdict| verdict.goes).map(|verdict| verdict.name).collect()
    }

    #[test]
    fn an_old_generation_stays_while_a_release_or_node_refers_to_it_and_then_goes() {
        let (manifest, stored) = (generations(), names(1..=3, 48));
        let mut referred = Referred::default();
        referred.add_node(&Role::Controller, &digest(23), &digest(3));
        referred.add_node(&Role::Controller, &digest(22), &digest(2));
        let first: Vec<String> = names(1..=1, 0).into_iter().map(|object| object.name).collect();
        assert_eq!(going(&manifest, &stored, &referred), first);
        let mut one = Referred::default();
        one.add_node(&Role::Controller, &digest(23), &digest(3));
        let both: Vec<String> = names(1..=2, 0).into_iter().map(|object| object.name).collect();
        assert_eq!(going(&manifest, &stored, &one), both);
        // The same digests of another role are no reference.
        let mut other = one.clone();
        other.add_node(&Role::Admin, &digest(21), &digest(1));
        assert!(
            going(&manifest, &stored, &other)
                .contains(&format!("bundles/controller/credentials-{}", digest(1)))
        );
    }

    #[test]
    fn what_is_young_or_unknown_stays_and_so_does_what_a_young_bundle_may_hold() {
        let manifest = generations();
        assert_eq!(going(&manifest, &names(1..=3, 23), &Referred::default()), Vec::<String>::new());
        let mut stored = names(1..=3, 48);
        for name in [
            "pki/manifest.json",
            "pki/a/notes.txt",
            "pki/a/b/c.pem",
            "bundles/controller/other",
            "bundles/nobody/credentials-00",
            "status.json",
            "pki/a/0.sealed",
            "../pki/a",
        ] {
            stored.push(object(name.to_owned(), 1000));
        }
        let going_now = going(&manifest, &stored, &Referred::default());
        assert_eq!(
            going_now.len(),
            2 * 4 + 1,
            "the third is the inventory's, its configuration nobody's: {going_now:?}"
        );
        // A new bundle of unknown content that the inventory does not name yet.
        stored.push(object(format!("bundles/controller/credentials-{}", digest(9)), 1));
        let going_now = going(&manifest, &stored, &Referred::default());
        assert!(going_now.iter().all(|name| name.starts_with("bundles/")), "{going_now:?}");
    }

    #[test]
    fn a_chain_goes_with_the_certificate_that_it_completes() {
        let chain = |number: u8| object(format!("pki/a/{}.chain.pem", digest(number)), 48);
        let stored = [chain(11), chain(13)];
        assert_eq!(going(&generations(), &stored, &Referred::default()), [chain(11).name]);
    }

    #[test]
    fn a_lost_retired_bundle_is_forgotten_once_nobody_refers_to_it() {
        let manifest = generations();
        let mut referred = Referred::default();
        referred.add_node(&Role::Controller, "", &digest(2));
        assert_eq!(
            without_deleted_bundles(&manifest, &referred, &BTreeSet::new()).retired[&Role::Controller].len(),
            1
        );
        let standing = BTreeSet::from([format!("bundles/controller/credentials-{}", digest(1))]);
        assert_eq!(without_deleted_bundles(&manifest, &referred, &standing), manifest);
        assert!(
            without_deleted_bundles(&manifest, &Referred::default(), &BTreeSet::new()).retired.is_empty()
        );
    }

    proptest! {
        /// For any listing: what the inventory names, what a release or node refers to, what such a bundle contains, and what is young is
        /// never deleted. Everything else is.
        #[test]
        fn nothing_that_anybody_refers_to_ever_goes(
            history in proptest::collection::vec((0u8..3, 1u8..40, proptest::collection::vec(1u8..40, 0..4)), 0..12),
            refers in proptest::collection::btree_set((0u8..3, 1u8..40), 0..6),
            ages in proptest::collection::vec(0i64..72, 1..8),
        ) {
            let role = |number: u8| [Role::Controller, Role::Etcd(0), Role::Admin][usize::from(number)].clone();
            let mut manifest = Manifest::default();
            let mut contents: BTreeMap<(Role, String), BTreeSet<String>> = BTreeMap::new();
            for (of, number, held) in &history {
                let entry_of = bundle(*number, held);
                let key = (role(*of), entry_of.digest.clone());
                // A digest stands for its content.
                if contents.get(&key).is_some_and(|known| *known != inventory::fingerprints(&entry_of)) {
                    continue;
                }
                contents.insert(key, inventory::fingerprints(&entry_of));
                for held in held {
                    manifest.assets.insert(format!("a{}", held % 5), entry(*held));
                }
                inventory::record(&mut manifest, &role(*of), entry_of);
            }
            let mut referred = Referred::default();
            for (of, number) in &refers {
                referred.add_node(&role(*of), &digest(*number), &digest(*number));
            }
            let mut stored = Vec::new();
            for number in 1u8..40 {
                let mut ages = ages.iter().cycle().skip(usize::from(number));
                let mut add = |name: String| stored.push(object(name, *ages.next().unwrap()));
                for asset in 0..5 {
                    add(format!("pki/a{asset}/{}.sealed", digest(number)));
                }
                for of in 0..3 {
                    add(format!("bundles/{}/credentials-{}", role(of), digest(number)));
                    add(format!("bundles/{}/config-{}", role(of), digest(number)));
                }
            }
            let verdicts = decide(&manifest, &stored, &referred, YOUNG, now());
            prop_assert_eq!(verdicts.len(), stored.len());
            for (object, verdict) in stored.iter().zip(&verdicts) {
                let young = now().duration_since(object.modified) < YOUNG;
                if young {
                    prop_assert!(!verdict.goes);
                }
                match Kind::parse(&object.name) {
                    Kind::Credentials(of, digest) => {
                        let named = manifest.bundles.get(&of).is_some_and(|bundle| bundle.digest == digest);
                        let in_use = has(&referred.credentials, &of, &digest);
                        prop_assert_eq!(verdict.goes, !(named || in_use || young), "{}", object.name);
                    }
                    Kind::Config(of, digest) => {
                        prop_assert_eq!(verdict.goes, !(has(&referred.configs, &of, &digest) || young));
                    }
                    Kind::Half(asset, fingerprint) => {
                        if manifest.assets.get(&asset).is_some_and(|entry| entry.fingerprint == fingerprint) {
                            prop_assert!(!verdict.goes, "the inventory names {}", object.name);
                        }
                        let current = manifest.bundles.values().any(|one| inventory::fingerprints(one).contains(&fingerprint));
                        prop_assert!(!(current && verdict.goes), "a bundle holds {}", object.name);
                        for (of, digests) in &referred.credentials {
                            for used in digests {
                                let held = contents.get(&(of.clone(), used.clone()));
                                if held.is_none_or(|held| held.contains(&fingerprint)) {
                                    prop_assert!(!verdict.goes, "{} holds {}", used, object.name);
                                }
                            }
                        }
                    }
                    Kind::Other => prop_assert!(!verdict.goes),
                }
            }
            // After the deletion, the inventory forgets what is gone, and a second run finds nothing more.
            let kept: Vec<Stored> = stored
                .iter()
                .zip(&verdicts)
                .filter(|(_, verdict)| !verdict.goes)
                .map(|(object, _)| object.clone())
                .collect();
            let standing: BTreeSet<String> = kept.iter().map(|object| object.name.clone()).collect();
            let lean = without_deleted_bundles(&manifest, &referred, &standing);
            prop_assert_eq!(&lean.bundles, &manifest.bundles);
            for (of, digests) in &referred.credentials {
                for used in digests {
                    prop_assert_eq!(inventory::lists_bundle(&lean, of, used), inventory::lists_bundle(&manifest, of, used));
                }
            }
            prop_assert!(decide(&lean, &kept, &referred, YOUNG, now()).iter().all(|verdict| !verdict.goes));
        }
    }
}
