//! The patches of a cluster, as they lie beside its spec.
//!
//! They are read as one set: what was listed is what was read, or it is listed again. Before a plan becomes the wish,
//! the set must still be there as it was read. An upload or a deletion that comes between has its own event, and the run
//! that follows it reads the new set: so this one may simply stop, as it does for a newer spec.

use std::collections::BTreeMap;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::keys::{self, PATCH_EXTENSION as EXTENSION};
use slipway_ports::{Listed, Listing, Objects};
use slipway_spec::patch::{self, MOST_BYTES, MOST_FILES, Patch};

use crate::error::{FlowError, FlowResult};
use crate::store::{AT_A_TIME, TRIES};

/// So many objects of the folder are looked at: one page of S3's. More than that many files are no patches of a person's.
const MOST_LISTED: usize = 1000;

/// The patches of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchSet {
    /// What lay there when they were read.
    listed: Vec<Listed>,
    /// The files, by name without folder.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Why some were not even read.
    pub errors: Vec<Diagnostic>,
    /// What lies there and is no patch, though somebody may think so.
    pub warnings: Vec<Diagnostic>,
}

impl PatchSet {
    /// Files that were read otherwise, such as from a person's directory.
    #[must_use]
    pub fn of_files(files: BTreeMap<String, Vec<u8>>, others: &[String]) -> Self {
        let warnings = others.iter().filter(|name| seems_a_patch(name)).map(|name| patch::not_read(name));
        Self { warnings: warnings.collect(), files, ..Self::default() }
    }

    /// Reads the patches of `cluster`.
    ///
    /// # Errors
    /// If a call fails, or the patches change each time that they are read.
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
            // One that is another by now was changed after the list was made.
            if let Some(read) = read.into_iter().collect::<Option<Vec<_>>>() {
                set.files.extend(read.into_iter().map(|(key, bytes)| (name(&key), bytes)));
                return Ok(Self { listed, ..set });
            }
        }
        Err(FlowError::Race { key: keys::patches(cluster), tries: TRIES })
    }

    /// The patches, or every finding about them.
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

    /// Whether the patches of `cluster` are still the ones that were read.
    ///
    /// # Errors
    /// If the call fails.
    pub async fn is_current(&self, specs: &impl Listing, cluster: &str) -> FlowResult<bool> {
        Ok(list(specs, cluster).await?.0 == self.listed)
    }
}

/// What lies in the folder: patches, and the names of the rest.
async fn list(specs: &impl Listing, cluster: &str) -> FlowResult<(Vec<Listed>, Vec<String>)> {
    let prefix = keys::patches(cluster);
    let listed = specs.list(&prefix, MOST_LISTED).await?;
    let (patches, others): (Vec<Listed>, Vec<Listed>) =
        listed.into_iter().partition(|one| keys::patch_name(cluster, &one.key).is_some());
    let relative = |one: Listed| one.key.strip_prefix(&prefix).unwrap_or(&one.key).to_owned();
    Ok((patches, others.into_iter().map(relative).collect()))
}

/// Whether a file that is not read looks as if it should be.
fn seems_a_patch(name: &str) -> bool {
    [EXTENSION, ".yml", ".json"].iter().any(|ending| name.ends_with(ending))
}
