//! The lock: looks up versions, images and digests, and pins them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::cluster::{Architecture, Cluster};
use slipway_core::keys;
use slipway_core::members::{DeployedMembers, settle};
use slipway_core::node::OWN_BOOTSTRAP_TOKENS;
use slipway_core::release::Rendering;
use slipway_ports::{Objects, Parameters, Registry};
use slipway_render::lock::Lock;
use slipway_render::software;

use crate::error::{FlowError, FlowResult};
use crate::rendering::NotPrepared;
use crate::store::{self, TRIES};

/// [`keys::AGENT_MANIFEST`]: SHA-256 of the published agent, by architecture.
pub type Agent = BTreeMap<Architecture, String>;

/// The lock of `cluster` with everything that it needs: what is pinned stays, and what is missing is looked up and stored. `etcd` tells
/// which members are deployed, `stands` which releases. `check` may refuse the releases that were found before anything is stored.
///
/// If `check` refuses, a parameter or image does not exist, or a call fails. A registry that cannot be reached is a transient failure,
/// because nothing is rendered with an image that is not pinned.
/// transient failure: nothing is ever rendered with an image that is not pinned.
pub async fn resolve(
    assets: &impl Objects,
    parameters: &impl Parameters,
    registry: &impl Registry,
    cluster: &Cluster,
    etcd: &DeployedMembers,
    stands: &[&Rendering],
    check: impl Fn(&Lock) -> Result<(), NotPrepared> + Send,
) -> Result<Lock, NotPrepared> {
    let key = keys::lock(&cluster.name);
    for _ in 0..TRIES {
        let stored = store::load::<Lock>(assets, &key).await?;
        let old = stored.value.clone().unwrap_or_default();
        let missing = old.missing(cluster);
        let mut new = old.clone();
        new.pin_known(&missing);
        new.etcd_members = settle(cluster, &old.etcd_members, etcd);
        new.settle_way_to_aws(cluster, stands.iter().copied());
        check(&new)?;
        new.addon_images.extend(digests(registry, missing.addon_images).await?);
        new.program_files.extend(checksums(registry, missing.program_files).await?);
        for name in missing.parameters {
            let image = parameters.value(&name).await?.ok_or_else(|| FlowError::Refused {
                problem: format!("the SSM parameter {name} does not exist in {}", cluster.region),
                help: "name one that does, or set amiId".to_owned(),
            })?;
            new.images.insert(name, image);
        }
        if !missing.agent.is_empty()
            && let Some(agent) = store::load::<Agent>(assets, keys::AGENT_MANIFEST).await?.value
        {
            new.agent.extend(agent.into_iter().filter(|(one, _)| missing.agent.contains(one)));
        }
        if new == old || store::save(assets, &key, &stored, new.clone()).await?.is_some() {
            return Ok(new);
        }
    }
    Err(FlowError::Race { key, tries: TRIES }.into())
}

/// [`keys::AGENT_ABILITIES`]: what published agents can do, by digest.
pub type Abilities = BTreeMap<String, BTreeSet<String>>;

/// Whether all agents that `lock` pins give each role a bootstrap token of its own. An agent that was published by an older `slipway` is
/// not listed, and does not.
///
/// # Errors
/// If the list cannot be read.
pub async fn agents_know_own_tokens(assets: &impl Objects, lock: &Lock) -> FlowResult<bool> {
    if lock.agent.is_empty() {
        return Ok(true);
    }
    let abilities = store::load::<Abilities>(assets, keys::AGENT_ABILITIES).await?.value.unwrap_or_default();
    let knows = |digest: &String| abilities.get(digest).is_some_and(|all| all.contains(OWN_BOOTSTRAP_TOKENS));
    Ok(lock.agent.values().all(knows))
}

/// The digest of each of `files`, from the checksum files of their publishers.
async fn checksums(
    registry: &impl Registry,
    files: BTreeMap<String, String>,
) -> FlowResult<BTreeMap<String, String>> {
    stream::iter(files)
        .map(|(url, says)| async move {
            let text = registry.text(&says).await?;
            let digest = text.as_deref().and_then(|text| software::checksum(text, &url));
            let digest = digest.ok_or_else(|| FlowError::Refused {
                problem: match text {
                    None => format!("nothing is published at {says}, which is to say the checksum of {url}"),
                    Some(_) => format!("{says} says no SHA-256 of {url}"),
                },
                help: "name a release that exists (kubernetesVersion, etcd.version), or write software.source: image"
                    .to_owned(),
            })?;
            Ok((url, digest))
        })
        .buffer_unordered(store::AT_A_TIME)
        .try_collect()
        .await
}

/// The digest of each of `references`.
async fn digests(
    registry: &impl Registry,
    references: BTreeSet<String>,
) -> FlowResult<BTreeMap<String, String>> {
    stream::iter(references)
        .map(|reference| async move {
            let digest = registry.digest(&reference).await?.ok_or_else(|| FlowError::Refused {
                problem: format!("the image {reference} does not exist in its registry"),
                help: "give the add-on a `version` that does, or turn it off; one of Kubernetes itself goes with kubernetesVersion".to_owned(),
            })?;
            Ok((reference, digest))
        })
        .buffer_unordered(store::AT_A_TIME)
        .try_collect()
        .await
}
