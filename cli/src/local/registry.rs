//! Registries of images and publishers of programs, asked or not.
//!
//! Which digest a tag or a program has only they know. With `--resolve` they are asked, and the answer is pinned in the lock
//! for good. Without, the lock pins a digest of zeros, which nothing has: a node that was given it would install nothing, and
//! `render` says so. It makes way as soon as somebody is asked.

use slipway_core::keys;
use slipway_flows::store;
use slipway_ports::{Objects, PortResult, Registry};
use slipway_registry::OciRegistry;
use slipway_render::lock::Lock;

use crate::failure::Failure;

/// The digest of no image.
const STAND_IN: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
/// The checksum of no program.
const STAND_IN_CHECKSUM: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Answers for registries.
#[derive(Debug)]
pub(crate) enum LocalRegistry {
    /// Nobody is asked.
    StandIn,
    /// Each registry is asked.
    Real(OciRegistry),
}

impl LocalRegistry {
    pub(crate) fn new(resolve: bool) -> Self {
        if resolve { Self::Real(OciRegistry::new(None)) } else { Self::StandIn }
    }

    /// Makes way for real digests, if registries are asked.
    pub(crate) async fn prepare(&self, objects: &impl Objects, cluster: &str) -> Result<(), Failure> {
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

/// How many images and programs are pinned by a digest that none has.
pub(crate) fn stand_ins(lock: &Lock) -> usize {
    let images = lock.addon_images.values().filter(|digest| *digest == STAND_IN);
    images.count() + lock.program_files.values().filter(|digest| *digest == STAND_IN_CHECKSUM).count()
}
