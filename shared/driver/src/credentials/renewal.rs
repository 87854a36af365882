//! One certificate issued anew by itself: everything else keeps its bytes (P2).

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_core::pki::{Manifest, manifest, policy};

use super::vault::{Half, Vault};
use super::{Credentials, bundles, credentials, record, refuse_other_format, refused, set_roles};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Crypto, Keys, Objects, PortResult, Signer};
use crate::{keys, store};

/// Issues the certificate `name` anew, with a new key or with the one that it has, and seals the bundles that hold it.
/// The others keep their digests.
///
/// # Errors
/// If there is no such certificate, or it is not renewed by itself (an authority, or one that is brought); otherwise as
/// [`super::ensure`].
pub async fn renew<O: Objects, K: Keys, C: Crypto>(
    objects: &O,
    keys: &K,
    crypto: &C,
    cluster: &Cluster,
    name: &str,
    new_key: bool,
    now: Timestamp,
) -> FlowResult<Credentials> {
    let key = keys::manifest(&cluster.name);
    for _ in 0..store::TRIES {
        let stored = store::load::<Manifest>(objects, &key).await?;
        let mut manifest = stored.value.clone().ok_or_else(|| FlowError::Refused {
            problem: format!("the cluster {} has no credentials yet", cluster.name),
            cure: "render its spec first".to_owned(),
        })?;
        refuse_other_format(&key, &manifest)?;
        let assets = policy::assets(cluster);
        let asset = manifest::to_renew(&assets, &manifest, name, now).map_err(refused)?;
        let mut vault = Vault::new(objects, keys, crypto, cluster);
        let issuer = manifest::profile(asset).and_then(|profile| profile.issuer.clone());
        let mut needs: BTreeSet<_> = issuer.iter().flat_map(|issuer| Half::both(issuer)).collect();
        if !new_key {
            needs.insert((name.to_owned(), Half::Private));
        }
        vault.load(&manifest, needs).await?;
        let new = issue(&vault, asset, issuer.as_deref(), new_key, now)?;
        record(&mut vault, &mut manifest, asset, new.into())?;
        // Only the renewed one: what else the spec would change is for a rendering to say.
        let stands = manifest::to_seal(cluster, &manifest).map_err(refused)?;
        let holders = policy::recipients(cluster).remove(name).unwrap_or_default();
        let roles: BTreeSet<_> = stands.into_iter().filter(|role| holders.contains(role)).collect();
        bundles::load(&mut vault, &manifest, &roles).await?;
        let made = vec![name.to_owned()];
        vault.store(&manifest, &made).await?;
        let mut astray = bundles::Astray::new();
        bundles::seal(&vault, &mut manifest, &roles, &mut astray).await?;
        set_roles(cluster, &mut manifest);
        if store::save(objects, &key, &stored, manifest.clone()).await?.is_some() {
            tracing::info!(cluster = cluster.name, renewed = name, new_key, "certificate renewed");
            let mut done = credentials(cluster, manifest, made, roles);
            done.healed = vault.healed;
            done.healed.extend(astray.into_values().flatten());
            return Ok(done);
        }
    }
    Err(FlowError::Race { key, tries: store::TRIES })
}

fn issue<O: Objects, K: Keys, C: Crypto>(
    vault: &Vault<'_, O, K, C>,
    asset: &slipway_core::pki::Asset,
    issuer: Option<&str>,
    new_key: bool,
    now: Timestamp,
) -> PortResult<crate::ports::Made> {
    let profile = manifest::profile(asset).expect("what is renewed has a profile");
    let signer = issuer.map(|issuer| Signer {
        certificate: vault.public(issuer).to_owned(),
        key: vault.private(issuer).clone(),
    });
    if new_key {
        vault.crypto.issue(profile, signer.as_ref(), now)
    } else {
        vault.crypto.certify(profile, vault.private(&asset.name), signer.as_ref(), now)
    }
}
