//! The patches of a cluster, stored beside its spec.
//!
//! They are read as one consistent set: the folder is listed again until what was read is what was listed. Before a plan becomes the
//! desired one, the set must be unchanged. If it changed, this run stops, as it does for a newer spec: the change has its own event,
//! whose run reads the new set.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::keys::{self, PATCH_EXTENSION as EXTENSION};
use slipway_ports::{Listed, Listing, Objects};
use slipway_spec::patch::{self, MOST_BYTES, MOST_FILES, Patch};

use crate::error::{FlowError, FlowResult};
use crate::store::{AT_A_TIME, TRIES};

/// How many objects of the folder are listed: one page of S3's. Nobody has more patches than that.
const MOST_LISTED: usize = 1000;

/// The patches of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchSet {
    /// The objects in the folder when they were read.
    listed: Vec<Listed>,
    /// The files, by name without folder.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Findings about files that were not read.
    pub errors: Vec<Diagnostic>,
    /// Warnings about files that are no patches but look like some.
    pub warnings: Vec<Diagnostic>,
}

impl PatchSet {
    /// A set of files from elsewhere, such as a local directory.
    #[must_use]
    pub fn of_files(files: BTreeMap<String, Vec<u8>>, others: &[String]) -> Self {
        let warnings = others.iter().filter(|name| seems_a_patch(name)).map(|name| patch::not_read(name));
        Self { warnings: warnings.collect(), files, ..Self::default() }
    }

    /// Reads the patches of `cluster`.
    ///
    /// # Errors
    /// If a call fails, or the patches change every time that they are read.
    pub async fn read(specs: &(impl Objects + Listing), cluster: &str) -> FlowResult<Self> {
        for _ in 0..TRIES {
            let (listed, others) = list(specs, cluster).await?;
            let mut set = Self::of_files(BTreeMap::new(), &others);
            if listed.len() > MOST_FILES {
                set.errors.push(patch::too_many(listed.len()));
                return Ok(Self { listed, ..set });
            }
            let name = |key: &str| keys::patch_name(cluster, key).unwrap_or_default().to_owned();
            let size = |one: &Listed| usize::try_from(one.size).unwrap_or(usize::MAX);
            let (small, large): (Vec<&Listed>, Vec<&Listed>) =
                listed.iter().partition(|one| size(one) <= MOST_BYTES);
            set.errors.extend(large.into_iter().map(|one| patch::too_large(&name(&one.key), size(one))));
            let read = stream::iter(small)
                .map(|one| async move {
                    let object = specs.get(&one.key).await?;
                    let same = object.filter(|object| object.etag == one.etag);
                    FlowResult::Ok(same.map(|object| (one.key.clone(), object.bytes)))
                })
                .buffer_unordered(AT_A_TIME)
                .try_collect::<Vec<Option<(String, Vec<u8>)>>>()
                .await?;
            // A file that changed after the listing has another etag; then everything is listed again.
            if let Some(read) = read.into_iter().collect::<Option<Vec<_>>>() {
                set.files.extend(read.into_iter().map(|(key, bytes)| (name(&key), bytes)));
                return Ok(Self { listed, ..set });
            }
        }
        Err(FlowError::Race { key: keys::patches(cluster), tries: TRIES })
    }

    /// The parsed patches, or all findings about them.
    ///
    /// # Errors
    /// All findings, warnings included.
    pub fn parse(&self) -> Result<Vec<Patch>, Vec<Diagnostic>> {
        let mut findings = self.errors.clone();
        match patch::parse(&self.files) {
            Ok(patches) if findings.is_empty() => return Ok(patches),
            Ok(_) => {}
            Err(found) => findings.extend(found),
        }
        findings.extend(self.warnings.clone());
        Err(findings)
    }

    /// Whether the patches of `cluster` are still those that were read.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn is_current(&self, specs: &impl Listing, cluster: &str) -> FlowResult<bool> {
        Ok(list(specs, cluster).await?.0 == self.listed)
    }
}

/// The patches in the folder, and the names of other files.
async fn list(specs: &impl Listing, cluster: &str) -> FlowResult<(Vec<Listed>, Vec<String>)> {
    let prefix = keys::patches(cluster);
    let listed = specs.list(&prefix, MOST_LISTED).await?;
    let (patches, others): (Vec<Listed>, Vec<Listed>) =
        listed.into_iter().partition(|one| keys::patch_name(cluster, &one.key).is_some());
    let relative = |one: Listed| one.key.strip_prefix(&prefix).unwrap_or(&one.key).to_owned();
    Ok((patches, others.into_iter().map(relative).collect()))
}

/// Whether a file that is not a patch looks as if it were meant to be one.
fn seems_a_patch(name: &str) -> bool {
    [EXTENSION, ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}
