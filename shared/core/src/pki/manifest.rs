//! What the inventory of a cluster's credentials says about what must be made and sealed.
//!
//! Only what is missing, or changed in name, is made anew; everything else keeps its bytes (design §5). A changed
//! key algorithm or lifetime shows in what is issued next, and an expiry is the scan's business, so that the day on
//! which a spec is rendered changes nothing (P1).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::cluster::Cluster;
use crate::digest::{keyed_hex, sha256_hex};

use super::policy::{self, BundleFile};
use super::{Asset, AssetKind, BundleEntry, CertificateProfile, Manifest, Role};

/// The current [`Manifest::format`].
pub const FORMAT: u32 = 1;

/// Backdating of not-before: a node whose clock is behind still accepts a certificate made this moment.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// An asset that must be made, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToMake<'a> {
    /// What.
    pub asset: &'a Asset,
    /// Why.
    pub reason: Reason,
}

/// Why an asset must be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The inventory does not list it.
    Missing,
    /// It was made for other names.
    NamesChanged,
    /// Its authority is another by now.
    IssuerChanged,
}

/// Policy that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A leaf would outlive its authority.
    #[error(
        "certificate {asset} would be valid until {not_after}, longer than its authority {issuer}, which ends {issuer_not_after}"
    )]
    OutlivesIssuer {
        /// The leaf.
        asset: String,
        /// When it would end.
        not_after: Timestamp,
        /// Its authority.
        issuer: String,
        /// When that ends.
        issuer_not_after: Timestamp,
        /// Days that the spec asks for.
        days: u32,
    },
    /// A lifetime that ends beyond the year 9999.
    #[error(
        "certificate {asset} cannot be valid for {days} days: the last date of a certificate is in the year 9999"
    )]
    TooLong {
        /// Which.
        asset: String,
        /// Days that the spec asks for.
        days: u32,
    },
    /// The inventory lacks what a bundle needs.
    #[error("asset {asset} of {role}'s bundle is not in the inventory")]
    Incomplete {
        /// The asset.
        asset: String,
        /// The role.
        role: Role,
    },
}

impl PolicyError {
    /// What a person can do about it.
    #[must_use]
    pub fn cure(&self) -> String {
        match self {
            Self::OutlivesIssuer { issuer, days, .. } => {
                format!("lower tlsCertDurationDays (now {days}), or rotate {issuer}")
            }
            Self::TooLong { .. } => "lower tlsCADurationDays or tlsCertDurationDays".to_owned(),
            Self::Incomplete { .. } => "bring back an earlier version of the inventory".to_owned(),
        }
    }
}

/// The end of validity of a certificate of so many days made at `now`, in whole seconds as X.509 has them.
///
/// `None` beyond the year 9999, where X.509 dates end (RFC 5280, 4.1.2.5.2).
#[must_use]
pub fn not_after(now: Timestamp, days: u32) -> Option<Timestamp> {
    let second = now.as_second().checked_add(i64::from(days) * 86_400)?;
    Timestamp::from_second(second).ok().filter(|end| *end < Timestamp::MAX)
}

/// What must be made, in this order: an authority comes before what it signs.
///
/// An authority that exists is never made anew here, whatever changed: that is a rotation, in stages.
///
/// # Errors
/// If one of them would outlive its authority.
pub fn to_make<'a>(
    assets: &'a [Asset],
    manifest: &Manifest,
    now: Timestamp,
) -> Result<Vec<ToMake<'a>>, PolicyError> {
    let mut made: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
    let mut list = Vec::new();
    for asset in assets {
        let issuer = profile(asset).and_then(|profile| profile.issuer.as_deref());
        let issuer_is_new = issuer.is_some_and(|issuer| made.contains_key(issuer));
        let Some(reason) = reason_to_make(asset, issuer, issuer_is_new, manifest) else { continue };
        let end = match profile(asset) {
            Some(profile) => {
                let end = not_after(now, profile.days)
                    .ok_or_else(|| PolicyError::TooLong { asset: asset.name.clone(), days: profile.days })?;
                refuse_to_outlive(asset, profile, end, &made, manifest)?;
                Some(end)
            }
            None => None,
        };
        made.insert(&asset.name, end);
        list.push(ToMake { asset, reason });
    }
    Ok(list)
}

fn reason_to_make(
    asset: &Asset,
    issuer: Option<&str>,
    issuer_is_new: bool,
    manifest: &Manifest,
) -> Option<Reason> {
    let Some(entry) = manifest.assets.get(&asset.name) else { return Some(Reason::Missing) };
    if profile(asset).is_some_and(|profile| profile.authority) {
        return None;
    }
    if entry.names != names(&asset.kind) {
        return Some(Reason::NamesChanged);
    }
    let issuer = issuer?;
    let signed_by = entry.certificate.as_ref().map(|facts| facts.issuer_fingerprint.as_str());
    let stands = manifest.assets.get(issuer).map(|issuer| issuer.fingerprint.as_str());
    (issuer_is_new || signed_by != stands).then_some(Reason::IssuerChanged)
}

fn refuse_to_outlive(
    asset: &Asset,
    profile: &CertificateProfile,
    end: Timestamp,
    made: &BTreeMap<&str, Option<Timestamp>>,
    manifest: &Manifest,
) -> Result<(), PolicyError> {
    let Some(issuer) = &profile.issuer else { return Ok(()) };
    let issuer_end = match made.get(issuer.as_str()) {
        Some(end) => *end,
        None => {
            manifest.assets.get(issuer).and_then(|entry| entry.certificate.as_ref()).map(|ca| ca.not_after)
        }
    };
    match issuer_end {
        Some(issuer_not_after) if end > issuer_not_after => Err(PolicyError::OutlivesIssuer {
            asset: asset.name.clone(),
            not_after: end,
            issuer: issuer.clone(),
            issuer_not_after,
            days: profile.days,
        }),
        _ => Ok(()),
    }
}

/// The profile of a certificate.
#[must_use]
pub fn profile(asset: &Asset) -> Option<&CertificateProfile> {
    match &asset.kind {
        AssetKind::Certificate(profile) => Some(profile),
        AssetKind::KeyPair(_) | AssetKind::BootstrapToken | AssetKind::RandomKey => None,
    }
}

/// Digest of what an asset is made for: all of a profile but the key's algorithm and the lifetime.
#[must_use]
pub fn names(kind: &AssetKind) -> String {
    #[derive(Serialize)]
    struct Names<'a> {
        issuer: &'a Option<String>,
        authority: bool,
        common_name: &'a str,
        organizations: &'a [String],
        server: bool,
        client: bool,
        sans: &'a BTreeSet<String>,
    }
    let text = match kind {
        AssetKind::Certificate(profile) => {
            // Taken apart, so that a new field asks here whether it is a name.
            let CertificateProfile {
                issuer,
                authority,
                common_name,
                organizations,
                server,
                client,
                sans,
                algorithm: _,
                days: _,
            } = profile;
            serde_json::to_string(&Names {
                issuer,
                authority: *authority,
                common_name,
                organizations,
                server: *server,
                client: *client,
                sans,
            })
            .expect("names have string keys only")
        }
        AssetKind::KeyPair(_) => "key-pair".to_owned(),
        AssetKind::BootstrapToken => "bootstrap-token".to_owned(),
        AssetKind::RandomKey => "random-key".to_owned(),
    };
    sha256_hex(text.as_bytes())
}

/// The fingerprint of a key pair: SHA-256 of its SubjectPublicKeyInfo. `None` if `pem` is no PEM.
#[must_use]
pub fn key_pair_fingerprint(pem: &str) -> Option<String> {
    let body: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body).ok()?;
    (!der.is_empty()).then(|| sha256_hex(&der))
}

/// The fingerprint of a secret, which tells nothing about it to whoever lacks the digest key.
#[must_use]
pub fn secret_fingerprint(digest_key: &[u8], secret: &[u8]) -> String {
    keyed_hex(digest_key, secret)
}

/// What stands behind each file of each role's bundle: `part:fingerprint`, several joined by `+`. While that is
/// unchanged, so is the bundle.
///
/// # Errors
/// If the inventory lacks an asset.
pub fn bundle_files(
    cluster: &Cluster,
    manifest: &Manifest,
) -> Result<BTreeMap<Role, BTreeMap<String, String>>, PolicyError> {
    let mut bundles = BTreeMap::new();
    for role in policy::roles(cluster) {
        let mut files = BTreeMap::new();
        for BundleFile { path, sources } in policy::bundle(cluster, &role) {
            let mut parts = Vec::with_capacity(sources.len());
            for source in sources {
                let entry = manifest.assets.get(&source.asset).ok_or_else(|| PolicyError::Incomplete {
                    asset: source.asset.clone(),
                    role: role.clone(),
                })?;
                parts.push(format!("{}:{}", source.part, entry.fingerprint));
            }
            files.insert(path, parts.join("+"));
        }
        bundles.insert(role, files);
    }
    Ok(bundles)
}

/// The roles whose bundle must be sealed: what it holds has changed.
///
/// # Errors
/// As [`bundle_files`].
pub fn to_seal(cluster: &Cluster, manifest: &Manifest) -> Result<Vec<Role>, PolicyError> {
    let mut roles = Vec::new();
    for (role, files) in bundle_files(cluster, manifest)? {
        let stands = manifest.bundles.get(&role).is_some_and(|bundle| bundle.files == files);
        if !stands {
            roles.push(role);
        }
    }
    Ok(roles)
}

/// The roles whose bundle is not sealed under the KMS key `key` yet. That rolls nobody: its digest is of what it holds.
#[must_use]
pub fn to_seal_under(cluster: &Cluster, manifest: &Manifest, key: &str) -> Vec<Role> {
    let stands = |role: &Role| manifest.bundles.get(role).is_some_and(|bundle| bundle.sealed_under == key);
    policy::roles(cluster).into_iter().filter(|role| !stands(role)).collect()
}

/// Records the bundle that `role` receives from now on; what it received before is retired.
pub fn record(manifest: &mut Manifest, role: &Role, bundle: BundleEntry) {
    if let Some(retired) = manifest.retired.get_mut(role) {
        retired.remove(&bundle.digest);
    }
    let digest = bundle.digest.clone();
    let before = manifest.bundles.insert(role.clone(), bundle);
    if let Some(before) = before.filter(|before| before.digest != digest) {
        let held = fingerprints(&before);
        manifest.retired.entry(role.clone()).or_default().insert(before.digest, held);
    }
    manifest.retired.retain(|_, digests| !digests.is_empty());
}

/// The fingerprints of what a bundle holds.
#[must_use]
pub fn fingerprints(bundle: &BundleEntry) -> BTreeSet<String> {
    let sources = bundle.files.values().flat_map(|sources| sources.split('+'));
    sources
        .filter_map(|source| source.split_once(':'))
        .map(|(_, fingerprint)| fingerprint.to_owned())
        .collect()
}

/// Whether the inventory knows the bundle `digest` of `role`, now or from before.
#[must_use]
pub fn knows(manifest: &Manifest, role: &Role, digest: &str) -> bool {
    manifest.bundles.get(role).is_some_and(|bundle| bundle.digest == digest)
        || manifest.retired.get(role).is_some_and(|retired| retired.contains_key(digest))
}

/// The plaintext of a bundle: canonical JSON, the same for the same files. It is as secret as they are.
///
/// How it is sealed is no part of it: another KMS key is no reason to roll a node.
#[must_use]
pub fn plaintext(files: &BTreeMap<String, &str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Plaintext<'a> {
        format: u32,
        files: &'a BTreeMap<String, &'a str>,
    }
    // Large enough from the start: a buffer that grows leaves copies of secrets behind. PEM escapes one byte in 65.
    let size: usize = files.iter().map(|(path, text)| path.len() + 2 * text.len() + 8).sum();
    let mut bytes = Vec::with_capacity(size + 64);
    serde_json::to_writer(&mut bytes, &Plaintext { format: FORMAT, files })
        .expect("writing strings to memory cannot fail");
    bytes
}

/// What the inventory lists and no longer goes anywhere. It is kept: a member or pool that comes back finds its own.
#[must_use]
pub fn unused(cluster: &Cluster, manifest: &Manifest) -> Unused {
    let assets: BTreeSet<_> = policy::assets(cluster).into_iter().map(|asset| asset.name).collect();
    let roles = policy::roles(cluster);
    Unused {
        assets: manifest.assets.keys().filter(|name| !assets.contains(*name)).cloned().collect(),
        roles: manifest.bundles.keys().filter(|role| !roles.contains(role)).cloned().collect(),
    }
}

/// See [`unused`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unused {
    /// Names of assets.
    pub assets: Vec<String>,
    /// Roles with a bundle.
    pub roles: Vec<Role>,
}
