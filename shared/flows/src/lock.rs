//! The lock: looks up versions, images and digests, and pins them. An upgrade looks them up anew, or puts earlier pins back.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use slipway_core::cluster::{Architecture, Cluster, Image};
use slipway_core::keys;
use slipway_core::members::{DeployedMembers, pin_members};
use slipway_core::pin::Pin;
use slipway_core::release::Rendering;
use slipway_ports::{Objects, Parameters, Registry};
use slipway_render::lock::Lock;
use slipway_render::software;

use crate::error::{FlowError, FlowResult, NotPrepared};
use crate::store::{self, TRIES};

/// [`keys::AGENT_MANIFEST`]: SHA-256 of the published agent, by architecture.
pub type Agent = BTreeMap<Architecture, String>;

/// An order to change pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// The kinds of pins that are meant.
    pub pins: BTreeSet<Pin>,
    /// What they change to.
    pub to: UpgradeTo,
    /// When it was given. Kinds for which the lock follows this order or a newer one stay as they are.
    pub at: Timestamp,
}

impl Upgrade {
    /// The kinds for which `lock` does not follow this order or a newer one yet.
    fn new_to(&self, lock: &Lock) -> BTreeSet<Pin> {
        let is_new = |pin: &&Pin| lock.upgraded.get(*pin).is_none_or(|at| *at < self.at);
        self.pins.iter().filter(is_new).copied().collect()
    }
}

/// What an upgrade changes pins to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeTo {
    /// What is newest.
    Newest,
    /// The pins of an earlier lock.
    Lock(Box<Lock>),
}

/// The lock of `cluster` with everything that it needs: what is pinned stays, and what is missing is looked up and stored. `etcd` tells
/// which members are deployed, `stands` which releases. `former_kms_key` is the KMS key that the cluster
/// moves away from. `upgrade` changes what is pinned. `check` may refuse the releases and the agents that
/// were found before anything else is looked up and before anything is stored.
///
/// # Errors
/// If `check` refuses, a parameter or image does not exist, or a call fails. A registry that cannot be reached is a transient failure,
/// because nothing is rendered with an image that is not pinned.
#[allow(clippy::too_many_arguments, reason = "where to look up, and for what")]
pub async fn resolve(
    assets: &impl Objects,
    parameters: &impl Parameters,
    registry: &impl Registry,
    cluster: &Cluster,
    etcd: &DeployedMembers,
    stands: &[&Rendering],
    former_kms_key: Option<&str>,
    upgrade: Option<&Upgrade>,
    now: Timestamp,
    check: impl Fn(&Lock) -> Result<(), NotPrepared> + Send,
) -> Result<Lock, NotPrepared> {
    let key = keys::lock(&cluster.name);
    for _ in 0..TRIES {
        let stored = store::load::<Lock>(assets, &key).await?;
        let old = stored.value.clone().unwrap_or_default();
        let pins = upgrade.map(|order| order.new_to(&old)).unwrap_or_default();
        let mut new = old.clone();
        let missing = match upgrade.map(|order| &order.to) {
            None => old.missing(cluster),
            Some(UpgradeTo::Newest) => old.outdated(cluster, &pins),
            Some(UpgradeTo::Lock(earlier)) => {
                new.put_back(&pins, earlier);
                new.missing(cluster)
            }
        };
        new.pin_known(&missing);
        new.etcd_members = pin_members(cluster, &old.etcd_members, etcd);
        new.pin_addon_credentials(cluster, stands.iter().copied());
        new.former_kms_keys.extend(former_kms_key.map(str::to_owned));
        pin_agents(assets, &missing.agent, &mut new).await?;
        check(&new)?;
        new.addon_images.extend(digests(registry, missing.addon_images).await?);
        new.program_files.extend(checksums(registry, missing.program_files).await?);
        pin_images(parameters, &cluster.region, &missing.parameters, &mut new).await?;
        if let Some(order) = upgrade {
            new.upgraded.extend(pins.iter().map(|pin| (*pin, order.at)));
            if order.to == UpgradeTo::Newest {
                new.looked_up.extend(pins.iter().map(|pin| (*pin, now)));
            }
        }
        // A kind that has a date has older pins, too.
        for pin in old.changes(&new) {
            new.looked_up.entry(pin).or_insert(now);
        }
        if new == old || store::save(assets, &key, &stored, new.clone()).await?.is_some() {
            return Ok(new);
        }
    }
    Err(FlowError::Race { key, tries: TRIES }.into())
}

/// The lock of `cluster` as it is, and as an upgrade of `pins` would leave it. Nothing is stored, and no digest is looked up.
///
/// # Errors
/// If a parameter does not exist, or a call fails.
pub async fn preview(
    assets: &impl Objects,
    parameters: &impl Parameters,
    cluster: &Cluster,
    pins: &BTreeSet<Pin>,
) -> FlowResult<(Lock, Lock)> {
    let old = store::load::<Lock>(assets, &keys::lock(&cluster.name)).await?.value.unwrap_or_default();
    let missing = old.outdated(cluster, pins);
    let mut new = old.clone();
    new.pin_known(&missing);
    pin_images(parameters, &cluster.region, &missing.parameters, &mut new).await?;
    pin_agents(assets, &missing.agent, &mut new).await?;
    Ok((old, new))
}

/// Pins the images behind `names`.
async fn pin_images(
    parameters: &impl Parameters,
    region: &str,
    names: &BTreeSet<String>,
    lock: &mut Lock,
) -> FlowResult<()> {
    for name in names {
        match parameters.value(name).await? {
            Some(image) if Image::is_id(&image) || image == Image::reference(name) => {
                lock.images.insert(name.clone(), image);
            }
            // The value may be anything, also a password: it is neither stored nor shown.
            Some(_) => {
                return Err(FlowError::Refused {
                    problem: format!(
                        "the SSM parameter {name} in {region} does not hold the id of an image (`ami-` and hexadecimal digits)"
                    ),
                    help: "name a parameter that holds one, or set amiId".to_owned(),
                });
            }
            // What is pinned still runs.
            None if lock.images.contains_key(name) => {
                tracing::warn!(
                    parameter = name,
                    "the SSM parameter does not exist any more; its image stays pinned"
                );
            }
            None => {
                let problem = format!("the SSM parameter {name} does not exist in {region}");
                return Err(FlowError::Refused {
                    problem,
                    help: "name an existing parameter, or set amiId".to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Pins the published agents of `architectures`.
async fn pin_agents(
    assets: &impl Objects,
    architectures: &BTreeSet<Architecture>,
    lock: &mut Lock,
) -> FlowResult<()> {
    if !architectures.is_empty()
        && let Some(agent) = store::load::<Agent>(assets, keys::AGENT_MANIFEST).await?.value
    {
        lock.agent.extend(agent.into_iter().filter(|(one, _)| architectures.contains(one)));
    }
    Ok(())
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
                    None => format!("{says}, which should contain the checksum of {url}, does not exist"),
                    Some(_) => format!("{says} does not contain a SHA-256 of {url}"),
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
                help: "set the `version` of the add-on to one that exists, or disable the add-on; the version of an image of Kubernetes itself follows kubernetesVersion".to_owned(),
            })?;
            Ok((reference, digest))
        })
        .buffer_unordered(store::AT_A_TIME)
        .try_collect()
        .await
}
