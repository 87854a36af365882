//! What the inventory has during a rotation: two authorities or keys under one name, and which nodes trust both of them.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::Cluster;
use slipway_core::role::{KUBELET_CA, ROTATABLE, Role, SERVICE_ACCOUNT, predecessor, successor};

use super::policy::{self, BundleFile, KUBERNETES_DIR, Part, Source};
use super::{Entry, Manifest};

/// The name of the second of the two that are trusted. `None`: there is only one.
#[must_use]
pub fn second_trusted_name(manifest: &Manifest, name: &str) -> Option<String> {
    [predecessor(name), successor(name)].into_iter().find(|other| manifest.assets.contains_key(other))
}

/// The entry of the inventory whose objects are stored in the folder `asset` under `fingerprint`.
#[must_use]
pub fn stored<'m>(manifest: &'m Manifest, asset: &str, fingerprint: &str) -> Option<(&'m String, &'m Entry)> {
    let names = [asset.to_owned(), successor(asset), predecessor(asset)];
    let found = names.iter().filter_map(|name| manifest.assets.get_key_value(name));
    found.into_iter().find(|(_, entry)| entry.fingerprint == fingerprint)
}

/// The assets whose public key may verify a token that is still valid.
#[must_use]
pub fn service_account_keys(manifest: &Manifest) -> Vec<String> {
    let other = second_trusted_name(manifest, SERVICE_ACCOUNT);
    std::iter::once(SERVICE_ACCOUNT.to_owned()).chain(other).collect()
}

/// The files that `role` receives, sorted by path: [`policy::bundle`], plus the second trusted authority during a rotation.
///
/// The older of the two always comes first. So roles that hold neither's key nor a certificate signed by either have the same bytes in
/// both stages.
#[must_use]
pub fn bundle(cluster: &Cluster, manifest: &Manifest, role: &Role) -> Vec<BundleFile> {
    let mut files = policy::bundle(cluster, role);
    for file in &mut files {
        if !is_signer(role, &file.path) {
            let sources = std::mem::take(&mut file.sources);
            file.sources = sources.into_iter().flat_map(|source| trusted(manifest, source)).collect();
        }
    }
    files
}

/// Whether the file is the signer of kube-controller-manager, which takes one certificate only. The authorities that kubelet certificates
/// may be signed by are in another file, with all client authorities.
fn is_signer(role: &Role, path: &str) -> bool {
    *role == Role::Controller && path.strip_prefix(KUBERNETES_DIR) == Some(&format!("/{KUBELET_CA}.pem"))
}

fn trusted(manifest: &Manifest, source: Source) -> Vec<Source> {
    let shown = match source.part {
        Part::Certificate | Part::PublicKey => ROTATABLE.contains(&source.asset.as_str()),
        Part::Chain
        | Part::Intermediates
        | Part::PrivateKey
        | Part::Secret
        | Part::RoleToken
        | Part::EncryptionConfig
        | Part::EncryptionConfigOff => false,
    };
    if !shown {
        return vec![source];
    }
    let part_of = |asset: String| Source { asset, part: source.part };
    let (older, newer) = (predecessor(&source.asset), successor(&source.asset));
    if manifest.assets.contains_key(&older) {
        vec![part_of(older), source]
    } else if manifest.assets.contains_key(&newer) {
        vec![source.clone(), part_of(newer)]
    } else {
        vec![source]
    }
}

/// The roles that receive a part of each asset, as [`policy::recipients`] returns them, plus the second trusted authority during a
/// rotation.
#[must_use]
pub fn recipients(cluster: &Cluster, manifest: &Manifest) -> BTreeMap<String, BTreeSet<Role>> {
    let mut recipients: BTreeMap<String, BTreeSet<Role>> = BTreeMap::new();
    for role in policy::roles(cluster) {
        for source in bundle(cluster, manifest, &role).into_iter().flat_map(|file| file.sources) {
            recipients.entry(source.asset).or_default().insert(role.clone());
        }
    }
    recipients
}
