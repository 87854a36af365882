//! Which assets must be made and which bundles sealed, according to the inventory.
//!
//! Only assets that are missing or whose names changed are made anew; all others keep their bytes. A changed key algorithm or lifetime
//! takes effect when the asset is next issued, and expiry is handled by the scan, so the day on which a spec is rendered changes nothing
//! (P1).

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_core::cluster::Cluster;
use slipway_core::digest::{keyed_hex, sha256_hex};
use slipway_core::role::Role;

use super::policy::{self, BundleFile, Part};
use super::{Asset, AssetKind, BundleEntry, CertificateProfile, Manifest, Origin, trust};

/// The current [`Manifest::format`].
pub const FORMAT: u32 = 1;

/// How much not-before is backdated, so that nodes whose clock is slow accept a new certificate.
pub const BACKDATED: SignedDuration = SignedDuration::from_mins(5);

/// The minimum lifetime of a leaf: a shorter one would have to be replaced before it reaches its nodes.
pub const LEAST_LIFE: SignedDuration = SignedDuration::from_hours(1);

/// An asset that must be made, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToMake<'a> {
    /// The asset.
    pub asset: &'a Asset,
    /// Why.
    pub reason: Reason,
}

/// Why an asset must be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The inventory does not list it.
    Missing,
    /// Its names changed.
    NamesChanged,
    /// Its issuer changed.
    IssuerChanged,
    /// The user provided another one.
    Brought,
}

/// An asset that the user provided and that was found valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brought {
    /// The fingerprint for the inventory.
    pub fingerprint: String,
    /// When it expires.
    pub not_after: Timestamp,
}

/// Why the policy cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// The issuer of a leaf expires so soon that no useful leaf can be issued.
    #[error("certificate {asset} cannot be issued at {now}: its authority {issuer} ends {issuer_not_after}")]
    OutlivesIssuer {
        /// The leaf.
        asset: String,
        /// When it was to be issued.
        now: Timestamp,
        /// Its issuer.
        issuer: String,
        /// When the issuer expires.
        issuer_not_after: Timestamp,
    },
    /// The certificate would expire after the year 9999.
    #[error(
        "certificate {asset} cannot be valid for {days} days: the last date of a certificate is in the year 9999"
    )]
    TooLong {
        /// The certificate.
        asset: String,
        /// The lifetime in the spec, in days.
        days: u32,
    },
    /// An existing authority has another origin than the spec says.
    #[error("the cluster's authority {asset} is {current_origin}, but the spec wants {spec_origin}")]
    Rotation {
        /// The authority.
        asset: String,
        /// The origin of the existing one.
        current_origin: Origin,
        /// The origin in the spec.
        spec_origin: Origin,
    },
    /// The user provided another authority than the existing one.
    #[error("the authority {asset} that was brought is another than the cluster's")]
    AnotherAuthority {
        /// The authority.
        asset: String,
    },
    /// A certificate that the user has to provide is missing.
    #[error("certificate {asset} is brought by you, and was not")]
    NotBrought {
        /// The certificate.
        asset: String,
    },
    /// There is no certificate of that name.
    #[error("there is no certificate {name}{}", suggestion.as_ref().map(|name| format!("; did you mean {name}?")).unwrap_or_default())]
    Unknown {
        /// The name.
        name: String,
        /// A similar name.
        suggestion: Option<String>,
        /// The existing names.
        names: Vec<String>,
    },
    /// An asset cannot be rotated, at all or at this time.
    #[error("{name} cannot be rotated: {why}")]
    NotRotatable {
        /// The asset.
        name: String,
        /// Why.
        why: String,
        /// What to do.
        help: String,
    },
    /// A certificate cannot be renewed individually.
    #[error("{name} cannot be renewed by itself: {why}")]
    NotRenewable {
        /// The certificate.
        name: String,
        /// Why.
        why: &'static str,
        /// What to do.
        help: &'static str,
    },
    /// The inventory lacks an asset of a bundle.
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
    pub fn help(&self) -> String {
        match self {
            Self::OutlivesIssuer { issuer, .. } => format!("rotate {issuer}: slipway rotate-ca {issuer}"),
            Self::TooLong { .. } => "lower tlsCADurationDays or tlsCertDurationDays".to_owned(),
            Self::Rotation { asset, current_origin, .. } => format!(
                "write `source: {current_origin}` at certificatesConfiguration.authorities.{asset} (or nothing, for generated): an existing authority is not replaced by one of another kind"
            ),
            Self::AnotherAuthority { .. } => {
                "put the old file back, or take it away: an existing authority that you provided is not replaced, because this version \
                 rotates only those that it makes itself"
                    .to_owned()
            }
            Self::NotBrought { asset } => {
                let (certificate, key) = policy::import_files(asset);
                format!("put import/{certificate} and import/{key} beside the spec, then upload the spec again")
            }
            Self::Unknown { names, .. } => format!("the certificates are {}", names.join(", ")),
            Self::NotRenewable { help, .. } => (*help).to_owned(),
            Self::NotRotatable { help, .. } => help.clone(),
            Self::Incomplete { .. } => "bring back an earlier version of the inventory".to_owned(),
        }
    }
}

/// The end of validity of a certificate with that lifetime made at `now`, in whole seconds as X.509 has them.
///
/// `None` after the year 9999, where X.509 dates end (RFC 5280, 4.1.2.5.2).
#[must_use]
pub fn not_after(now: Timestamp, days: u32) -> Option<Timestamp> {
    let second = now.as_second().checked_add(i64::from(days) * 86_400)?;
    Timestamp::from_second(second).ok().filter(|end| *end < Timestamp::MAX)
}

/// The assets that must be made, in order: authorities come before what they sign.
///
/// An existing authority is never made anew here, whatever changed: that is a rotation, in stages. `brought` contains the assets that the
/// user provided.
///
/// # Errors
/// If an authority expires too soon for a leaf; if an existing authority is not the one that the spec asks for; if an asset that the user
/// has to provide is missing.
pub fn to_make<'a>(
    assets: &'a [Asset],
    manifest: &Manifest,
    brought: &BTreeMap<String, Brought>,
    now: Timestamp,
) -> Result<Vec<ToMake<'a>>, PolicyError> {
    let mut made: BTreeMap<&str, Option<Timestamp>> = BTreeMap::new();
    let mut list = Vec::new();
    for asset in assets {
        let issuer = profile(asset).and_then(|profile| profile.issuer.as_deref());
        let issuer_is_new = issuer.is_some_and(|issuer| made.contains_key(issuer));
        let own = brought.get(&asset.name);
        refuse_another_authority(asset, own, manifest)?;
        let Some(reason) = reason_to_make(asset, issuer, issuer_is_new, own, manifest) else { continue };
        let end = match (asset.origin, profile(asset)) {
            (Origin::Generated, Some(profile)) => {
                let end = not_after(now, profile.days)
                    .ok_or_else(|| PolicyError::TooLong { asset: asset.name.clone(), days: profile.days })?;
                Some(cut_at_issuer(asset, profile, end, &made, manifest, now)?)
            }
            (Origin::Generated, None) => None,
            (Origin::Imported | Origin::Provided, _) => match own {
                Some(own) => Some(own.not_after),
                None => return Err(PolicyError::NotBrought { asset: asset.name.clone() }),
            },
        };
        made.insert(&asset.name, end);
        list.push(ToMake { asset, reason });
    }
    Ok(list)
}

fn refuse_another_authority(
    asset: &Asset,
    own: Option<&Brought>,
    manifest: &Manifest,
) -> Result<(), PolicyError> {
    let Some(entry) = manifest.assets.get(&asset.name) else { return Ok(()) };
    if !profile(asset).is_some_and(|profile| profile.authority) {
        return Ok(());
    }
    if entry.origin != asset.origin {
        let (current_origin, spec_origin) = (entry.origin, asset.origin);
        return Err(PolicyError::Rotation { asset: asset.name.clone(), current_origin, spec_origin });
    }
    match own {
        Some(own) if own.fingerprint != entry.fingerprint => {
            Err(PolicyError::AnotherAuthority { asset: asset.name.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

fn reason_to_make(
    asset: &Asset,
    issuer: Option<&str>,
    issuer_is_new: bool,
    own: Option<&Brought>,
    manifest: &Manifest,
) -> Option<Reason> {
    let Some(entry) = manifest.assets.get(&asset.name) else { return Some(Reason::Missing) };
    if profile(asset).is_some_and(|profile| profile.authority) {
        return None;
    }
    if entry.names != names(&asset.kind) {
        return Some(Reason::NamesChanged);
    }
    if own.is_some_and(|own| own.fingerprint != entry.fingerprint) {
        return Some(Reason::Brought);
    }
    let issuer = issuer?;
    let signed_by = entry.certificate.as_ref().map(|facts| facts.issuer_fingerprint.as_str());
    let stands = manifest.assets.get(issuer).map(|issuer| issuer.fingerprint.as_str());
    (issuer_is_new || signed_by != stands).then_some(Reason::IssuerChanged)
}

/// The end of a leaf: at most that of its authority, which may be earlier than the lifetime in the spec.
fn cut_at_issuer(
    asset: &Asset,
    profile: &CertificateProfile,
    end: Timestamp,
    made: &BTreeMap<&str, Option<Timestamp>>,
    manifest: &Manifest,
    now: Timestamp,
) -> Result<Timestamp, PolicyError> {
    let Some(issuer) = &profile.issuer else { return Ok(end) };
    let issuer_end = match made.get(issuer.as_str()) {
        Some(end) => *end,
        None => {
            manifest.assets.get(issuer).and_then(|entry| entry.certificate.as_ref()).map(|ca| ca.not_after)
        }
    };
    let Some(issuer_not_after) = issuer_end else { return Ok(end) };
    capped_expiry(end, issuer_not_after, now).ok_or_else(|| PolicyError::OutlivesIssuer {
        asset: asset.name.clone(),
        now,
        issuer: issuer.clone(),
        issuer_not_after,
    })
}

/// When a leaf that would expire at `end` expires under an authority that expires at `issuer_end`. `None`: so soon that it would be
/// useless.
#[must_use]
pub fn capped_expiry(end: Timestamp, issuer_end: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let least = now.checked_add(LEAST_LIFE).ok()?;
    (issuer_end >= least).then(|| end.min(issuer_end))
}

/// The certificate `name`, if it can be renewed individually.
///
/// # Errors
/// If it does not exist or cannot be renewed individually; if its authority expires too soon.
pub fn to_renew<'a>(
    assets: &'a [Asset],
    manifest: &Manifest,
    name: &str,
    now: Timestamp,
) -> Result<&'a Asset, PolicyError> {
    let renewable = |asset: &&Asset| profile(asset).is_some_and(|profile| !profile.authority);
    let Some(asset) = assets.iter().find(|asset| asset.name == name) else {
        let names: Vec<String> = assets.iter().filter(renewable).map(|asset| asset.name.clone()).collect();
        let suggestion =
            slipway_core::words::nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
        return Err(PolicyError::Unknown { name: name.to_owned(), suggestion, names });
    };
    let refused = |why, help| Err(PolicyError::NotRenewable { name: name.to_owned(), why, help });
    let profile = match &asset.kind {
        AssetKind::Certificate(profile) if profile.authority => {
            return refused(
                "it is an authority, and every node that trusts it would have to trust both for a while",
                "rotate it, in stages: `slipway rotate-ca` with its name",
            );
        }
        AssetKind::KeyPair(_) => {
            return refused(
                "tokens that it signed would be refused from one moment to the next",
                "rotate it, in stages: `slipway rotate-ca service-account`",
            );
        }
        AssetKind::RandomKey => {
            return refused("it is a secret, no certificate", "name a certificate");
        }
        AssetKind::Certificate(profile) => profile,
    };
    if asset.origin == Origin::Provided {
        return refused(
            "you bring it, and its authority's key is not here",
            "put the new certificate and its key into import/, then upload the spec again",
        );
    }
    if !manifest.assets.contains_key(name) {
        return refused("it was never made", "render the spec first");
    }
    let end = not_after(now, profile.days)
        .ok_or_else(|| PolicyError::TooLong { asset: asset.name.clone(), days: profile.days })?;
    cut_at_issuer(asset, profile, end, &BTreeMap::new(), manifest, now)?;
    Ok(asset)
}

/// The profile of a certificate.
#[must_use]
pub fn profile(asset: &Asset) -> Option<&CertificateProfile> {
    match &asset.kind {
        AssetKind::Certificate(profile) => Some(profile),
        AssetKind::KeyPair(_) | AssetKind::RandomKey => None,
    }
}

/// Digest of the names that an asset is made for: its profile without key algorithm and lifetime.
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
            // Destructured, so that adding a field forces a decision whether it is a name.
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
        AssetKind::RandomKey => "random-key".to_owned(),
    };
    sha256_hex(text.as_bytes())
}

/// The fingerprint of a key pair: SHA-256 of its SubjectPublicKeyInfo. `None`: `pem` is not PEM.
#[must_use]
pub fn key_pair_fingerprint(pem: &str) -> Option<String> {
    let body: String = pem.lines().map(str::trim).filter(|line| !line.starts_with("-----")).collect();
    let der = base64::engine::general_purpose::STANDARD.decode(body).ok()?;
    (!der.is_empty()).then(|| sha256_hex(&der))
}

/// The fingerprint of a secret. It reveals nothing about the secret without the digest key.
#[must_use]
pub fn secret_fingerprint(digest_key: &[u8], secret: &[u8]) -> String {
    keyed_hex(digest_key, secret)
}

/// The fingerprints in each file of a role's bundle: `part:fingerprint`, joined by `+`. While they are unchanged, so is the bundle.
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
        for BundleFile { path, sources } in trust::bundle(cluster, manifest, &role) {
            let mut parts = Vec::with_capacity(sources.len());
            for source in sources {
                let incomplete =
                    || PolicyError::Incomplete { asset: source.asset.clone(), role: role.clone() };
                let entry = manifest.assets.get(&source.asset).ok_or_else(incomplete)?;
                let fingerprint = match source.part {
                    Part::Intermediates | Part::Chain => &entry.chain.as_ref().ok_or_else(incomplete)?.sha256,
                    Part::Certificate
                    | Part::PrivateKey
                    | Part::PublicKey
                    | Part::Secret
                    | Part::RoleToken
                    | Part::EncryptionConfig
                    | Part::EncryptionConfigOff => &entry.fingerprint,
                };
                parts.push(format!("{}:{fingerprint}", source.part));
            }
            files.insert(path, parts.join("+"));
        }
        bundles.insert(role, files);
    }
    Ok(bundles)
}

/// The roles whose bundle must be sealed because its content changed.
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

/// The roles whose bundle is not sealed under the KMS key `key` yet. Sealing it replaces no node, because the digest depends on the
/// content only.
#[must_use]
pub fn to_seal_under(cluster: &Cluster, manifest: &Manifest, key: &str) -> Vec<Role> {
    let stands = |role: &Role| manifest.bundles.get(role).is_some_and(|bundle| bundle.sealed_under == key);
    policy::roles(cluster).into_iter().filter(|role| !stands(role)).collect()
}

/// Records the new bundle of `role` and retires the previous one.
pub fn record(manifest: &mut Manifest, role: &Role, bundle: BundleEntry) {
    if let Some(retired) = manifest.retired.get_mut(role) {
        retired.remove(&bundle.digest);
    }
    let digest = bundle.digest.clone();
    if let Some(end) = first_end(manifest, &bundle) {
        manifest.ends.entry(role.clone()).or_default().insert(digest.clone(), end);
    }
    for rotation in manifest.rotations.values_mut() {
        rotation.digests.entry(role.clone()).or_default().insert(digest.clone());
    }
    let before = manifest.bundles.insert(role.clone(), bundle);
    if let Some(before) = before.filter(|before| before.digest != digest) {
        let held = fingerprints(&before);
        manifest.retired.entry(role.clone()).or_default().insert(before.digest, held);
    }
    manifest.retired.retain(|_, digests| !digests.is_empty());
    forget_ends(manifest);
}

/// When the first leaf in `bundle` expires. `None`: it contains no leaf. No leaf outlives its authority.
fn first_end(manifest: &Manifest, bundle: &BundleEntry) -> Option<Timestamp> {
    let held = fingerprints(bundle);
    let leaves = manifest.assets.values().filter(|entry| held.contains(&entry.fingerprint));
    let ends = leaves.filter_map(|entry| {
        let facts = entry.certificate.as_ref()?;
        let authority = entry.chain.is_some() || facts.issuer_fingerprint == entry.fingerprint;
        (!authority).then_some(facts.not_after)
    });
    ends.min()
}

/// Removes the ends of bundles that the inventory no longer lists.
pub(super) fn forget_ends(manifest: &mut Manifest) {
    let (bundles, retired) = (&manifest.bundles, &manifest.retired);
    for (role, digests) in &mut manifest.ends {
        digests.retain(|digest, _| {
            bundles.get(role).is_some_and(|bundle| bundle.digest == *digest)
                || retired.get(role).is_some_and(|retired| retired.contains_key(digest))
        });
    }
    manifest.ends.retain(|_, digests| !digests.is_empty());
}

/// The fingerprints of a bundle's content.
#[must_use]
pub fn fingerprints(bundle: &BundleEntry) -> BTreeSet<String> {
    let sources = bundle.files.values().flat_map(|sources| sources.split('+'));
    sources
        .filter_map(|source| source.split_once(':'))
        .map(|(_, fingerprint)| fingerprint.to_owned())
        .collect()
}

/// Whether the inventory lists the bundle `digest` of `role`, as current or retired.
#[must_use]
pub fn lists_bundle(manifest: &Manifest, role: &Role, digest: &str) -> bool {
    manifest.bundles.get(role).is_some_and(|bundle| bundle.digest == digest)
        || manifest.retired.get(role).is_some_and(|retired| retired.contains_key(digest))
}

/// The plaintext of a bundle: canonical JSON, which depends on the files only. It is as secret as they are.
///
/// It does not contain the KMS key, because another KMS key is no reason to replace a node.
#[must_use]
pub fn plaintext(files: &BTreeMap<String, &str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Plaintext<'a> {
        format: u32,
        files: &'a BTreeMap<String, &'a str>,
    }
    // Allocated at full size: a growing buffer leaves copies of secrets in memory. PEM escapes one byte in 65.
    let size: usize = files.iter().map(|(path, text)| path.len() + 2 * text.len() + 8).sum();
    let mut bytes = Vec::with_capacity(size + 64);
    serde_json::to_writer(&mut bytes, &Plaintext { format: FORMAT, files })
        .expect("writing strings to memory cannot fail");
    bytes
}

/// The assets and bundles that no role receives any more. They are kept for a member or pool that comes back.
#[must_use]
pub fn unused(cluster: &Cluster, manifest: &Manifest) -> Unused {
    let assets: BTreeSet<_> = policy::assets(cluster).into_iter().map(|asset| asset.name).collect();
    let roles = policy::roles(cluster);
    Unused {
        assets: manifest
            .assets
            .keys()
            .filter(|name| !assets.contains(slipway_core::role::base(name)))
            .cloned()
            .collect(),
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
