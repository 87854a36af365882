//! Registries of images and publishers of programs, which may or may not be queried.
//!
//! Only they know the digest of a tag or a program. With `--resolve` they are queried and the digests pinned in the lock. Without it, the
//! lock contains digests of zeros, with which a node would install nothing, and `render` says so. These are replaced by the first
//! rendering with `--resolve`.

use slipway_core::keys;
use slipway_flows::store;
use slipway_ports::{Objects, PortResult, Registry};
use slipway_registry::OciRegistry;
use slipway_render::lock::Lock;

use crate::failure::CliError;

/// A digest that no image has.
const STAND_IN: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
/// A checksum that no program has.
const STAND_IN_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The registries.
#[derive(Debug)]
pub(crate) enum LocalRegistry {
    /// They are not queried.
    StandIn,
    /// They are queried.
    Real(OciRegistry),
}

impl LocalRegistry {
    pub(crate) fn new(resolve: bool) -> Self {
        if resolve { Self::Real(OciRegistry::new(None)) } else { Self::StandIn }
    }

    /// Removes placeholder digests from the lock, if registries are queried.
    pub(crate) async fn drop_placeholders(
        &self,
        objects: &impl Objects,
        cluster: &str,
    ) -> Result<(), CliError> {
        if matches!(self, Self::StandIn) {
            return Ok(());
        }
        store::update(objects, &keys::lock(cluster), |old: Option<&Lock>| {
            let mut lock = old?.clone();
            lock.addon_images.retain(|_, digest| digest != STAND_IN);
            lock.program_files.retain(|_, digest| digest != STAND_IN_CHECKSUM);
            Some(lock)
        })
        .await?;
        Ok(())
    }
}

impl Registry for LocalRegistry {
    async fn digest(&self, reference: &str) -> PortResult<Option<String>> {
        match self {
            Self::StandIn => Ok(Some(STAND_IN.to_owned())),
            Self::Real(registry) => registry.digest(reference).await,
        }
    }

    async fn text(&self, url: &str) -> PortResult<Option<String>> {
        match self {
            Self::StandIn => Ok(Some(STAND_IN_CHECKSUM.to_owned())),
            Self::Real(registry) => registry.text(url).await,
        }
    }
}

/// How many images and programs have a placeholder digest.
pub(crate) fn stand_ins(lock: &Lock) -> usize {
    let images = lock.addon_images.values().filter(|digest| *digest == STAND_IN);
    images.count() + lock.program_files.values().filter(|digest| *digest == STAND_IN_CHECKSUM).count()
}
