//! Pins what the outside world decides, once.

use std::collections::BTreeMap;

use slipway_core::cluster::{Architecture, Cluster};
use slipway_core::lock::Lock;
use slipway_core::members::{Standing, settle};

use crate::error::FlowError;
use crate::keys;
use crate::ports::{Objects, Parameters};
use crate::rendering::NotPrepared;
use crate::store::{self, TRIES};

/// `agent/manifest.json`: SHA-256 of the published agent, by architecture.
type Agent = BTreeMap<Architecture, String>;

/// The lock of `cluster`, with everything that it needs: what is pinned stays, what is missing is looked up and
/// stored. `etcd` is how etcd stands; `check` may refuse the releases that were found before anything is stored.
///
/// # Errors
/// If `check` refuses, a parameter does not exist, or a call fails.
pub async fn resolve(
    assets: &impl Objects,
    parameters: &impl Parameters,
    cluster: &Cluster,
    etcd: &Standing,
    check: impl Fn(&Lock) -> Result<(), NotPrepared> + Send,
) -> Result<Lock, NotPrepared> {
    let key = keys::lock(&cluster.name);
    for _ in 0..TRIES {
        let stored = store::load::<Lock>(assets, &key).await?;
        let old = stored.value.clone().unwrap_or_default();
        let missing = old.missing(cluster);
        let mut new = Lock { format: Lock::FORMAT, ..old.clone() };
        new.kubernetes.extend(missing.kubernetes);
        new.etcd.extend(missing.etcd);
        new.etcd_members = settle(cluster, &old.etcd_members, etcd);
        check(&new)?;
        for name in missing.parameters {
            let image = parameters.value(&name).await?.ok_or_else(|| FlowError::Refused {
                problem: format!("the SSM parameter {name} does not exist in {}", cluster.region),
                cure: "name one that does, or set amiId".to_owned(),
            })?;
            new.images.insert(name, image);
        }
        if missing.agent
            && let Some(agent) = store::load::<Agent>(assets, keys::AGENT_MANIFEST).await?.value
        {
            new.agent = agent;
        }
        if new == old || store::save(assets, &key, &stored, new.clone()).await?.is_some() {
            return Ok(new);
        }
    }
    Err(FlowError::Race { key, tries: TRIES }.into())
}
