//! The place of certificates: a folder, or the buckets of an installation.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use slipway_crypto::verify::{File, Survey};

use super::folder;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;

/// A folder, or a cluster in AWS.
#[derive(Debug, clap::Args)]
pub(super) struct PlaceArgs {
    /// A directory that `slipway render` wrote, or one with certificates.
    #[arg(default_value = ".", conflicts_with = "cluster")]
    dir: PathBuf,
    #[command(flatten)]
    cloud: CloudArgs,
}

/// Where the certificates are.
#[derive(Debug)]
pub(super) enum Place {
    Folder(PathBuf),
    Cloud(Box<Cloud>),
}

impl PlaceArgs {
    pub(super) async fn find(&self) -> Result<Place, CliError> {
        Place::open(&self.dir, &self.cloud).await
    }
}

impl Place {
    /// The cluster in AWS, if one was named; otherwise `dir`.
    pub(super) async fn open(dir: &Path, cloud: &CloudArgs) -> Result<Self, CliError> {
        Ok(match cloud.cluster().await? {
            Some(cloud) => Self::Cloud(Box::new(cloud)),
            None => Self::Folder(dir.to_owned()),
        })
    }

    /// Every file that may be a certificate or a key.
    pub(super) async fn files(&self) -> Result<Vec<File>, CliError> {
        match self {
            Self::Folder(dir) => folder::files(dir),
            Self::Cloud(cloud) => cloud.files().await,
        }
    }

    /// Analyses the files.
    pub(super) fn survey(&self, files: Vec<File>) -> Result<Survey, CliError> {
        folder::inspect(&self.to_string(), files)
    }

    /// Adds the place to a result.
    pub(super) fn name_in(&self, machine: &mut Value) {
        match self {
            Self::Folder(dir) => machine["directory"] = json!(dir.display().to_string()),
            Self::Cloud(cloud) => {
                machine["cluster"] = json!(cloud.cluster);
                machine["assetBucket"] = json!(cloud.assets().name());
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(dir) => dir.display().fmt(f),
            Self::Cloud(cloud) => f.write_str(&cloud.place()),
        }
    }
}
