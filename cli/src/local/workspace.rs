//! The directory that a cluster is rendered into.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slipway_core::cluster::Cluster;
use slipway_core::release::{Rendering, Site};

use super::{Folder, exported, write_atomic};
use crate::failure::CliError;

/// `slipway.json`: the cluster of the directory, and the installation that its templates name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Marker {
    format: u32,
    cluster: String,
    site: Site,
}

const FORMAT: u32 = 1;
const MARKER: &str = "slipway.json";
const RELEASE: &str = "release.json";

/// The installation that the templates name. Given values are stored in the directory.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct SiteArgs {
    /// The asset bucket of the Slipway installation, for templates and user data. Default: a placeholder.
    #[arg(long, value_name = "NAME")]
    pub(crate) asset_bucket: Option<String>,
    /// The KMS key of the Slipway installation, for templates if the spec names no key. Default: a placeholder.
    #[arg(long, value_name = "ARN")]
    pub(crate) kms_key_arn: Option<String>,
    /// The issuer bucket of the Slipway installation, for `iamRolesForServiceAccounts`. Default: a placeholder.
    #[arg(long, value_name = "NAME")]
    pub(crate) issuer_bucket: Option<String>,
}

impl SiteArgs {
    /// The installation that the templates of `cluster` name: what is given here, else what is `kept` from before, else stand-ins.
    pub(crate) fn site(&self, cluster: &Cluster, kept: Option<&Site>) -> Site {
        let bucket = self.asset_bucket.clone().or_else(|| kept.map(|site| site.asset_bucket.clone()));
        let key = self.kms_key_arn.clone().or_else(|| kept.map(|site| site.kms_key_arn.clone()));
        let issuer = self.issuer_bucket.clone().or_else(|| kept.and_then(|site| site.issuer_bucket.clone()));
        Site {
            asset_bucket: bucket.unwrap_or_else(|| STAND_IN_BUCKET.to_owned()),
            kms_key_arn: key.unwrap_or_else(|| stand_in_key(&cluster.region)),
            region: None,
            issuer_bucket: Some(issuer.unwrap_or_else(|| STAND_IN_ISSUER.to_owned())),
            allowed: None,
        }
    }
}

/// A directory with its marker.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: PathBuf,
    marker: Option<Marker>,
    /// Held while writing, because two renderings at once would mix their files.
    _lock: Option<File>,
}

impl Workspace {
    /// Opens `root` for writing, creates it if necessary, and locks it.
    pub(crate) fn open(root: &Path) -> Result<Self, CliError> {
        fs::create_dir_all(root).map_err(|error| CliError::file("make", root, &error))?;
        let lock = File::open(root).map_err(|error| CliError::file("open", root, &error))?;
        if lock.try_lock().is_err() {
            let problem = format!("somebody else is rendering into {}", root.display());
            return Err(CliError::refused(problem, "wait for it, then try again"));
        }
        Ok(Self { root: root.to_owned(), marker: marker(root)?, _lock: Some(lock) })
    }

    /// As [`Workspace::open`], for a directory that must exist.
    pub(crate) fn open_existing(root: &Path) -> Result<Self, CliError> {
        fs::read_dir(root).map_err(|error| CliError::file("read", root, &error))?;
        Self::open(root)
    }

    /// Its bucket and cluster; `None` if nothing was rendered into it.
    pub(crate) fn bucket(&self) -> Option<(Folder, String)> {
        let cluster = self.marker.as_ref()?.cluster.clone();
        Some((Folder::new(&self.root, &cluster), cluster))
    }

    /// Opens `root`, which must exist, for reading only.
    pub(crate) fn open_read_only(root: &Path) -> Result<Self, CliError> {
        fs::read_dir(root).map_err(|error| CliError::file("read", root, &error))?;
        Ok(Self { root: root.to_owned(), marker: marker(root)?, _lock: None })
    }

    /// The cluster that was rendered here, and its bucket.
    pub(crate) fn folder(&self) -> Option<(&str, Folder)> {
        let cluster = self.marker.as_ref()?.cluster.as_str();
        Some((cluster, Folder::new(&self.root, cluster)))
    }

    /// Fails for the directory of another cluster; returns its bucket and the installation that templates name.
    pub(crate) fn claim(&self, cluster: &Cluster, args: &SiteArgs) -> Result<(Folder, Site), CliError> {
        if let Some(marker) = self.marker.as_ref().filter(|marker| marker.cluster != cluster.name) {
            let problem = format!(
                "{} belongs to the cluster {}, and the spec describes {}",
                self.root.display(),
                marker.cluster,
                cluster.name
            );
            return Err(CliError::refused(
                problem,
                "name another directory: credentials of clusters do not mix",
            ));
        }
        let kept = self.marker.as_ref().map(|marker| &marker.site);
        let site = args.site(cluster, kept);
        Ok((Folder::new(&self.root, &cluster.name), site))
    }

    /// Writes the marker.
    pub(crate) fn mark(&self, cluster: &Cluster, site: &Site) -> Result<(), CliError> {
        let marker = Marker { format: FORMAT, cluster: cluster.name.clone(), site: site.clone() };
        self.write(MARKER, &slipway_flows::store::json(&marker)).map(drop)
    }

    /// The release that was rendered last.
    pub(crate) fn release(&self) -> Result<Option<Rendering>, CliError> {
        let path = self.root.join(RELEASE);
        match fs::read(&path) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map(Some).map_err(|error| CliError::damaged(&path, &error))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(CliError::file("read", &path, &error)),
        }
    }

    /// Writes a file unless it has that content. Returns whether it was written.
    pub(crate) fn write(&self, relative: &str, bytes: &[u8]) -> Result<bool, CliError> {
        let path = self.root.join(relative);
        write_atomic(&path, bytes).map_err(|error| CliError::file("write", &path, &error))
    }

    /// Removes a file of an earlier rendering, if it exists. Returns whether it did.
    pub(crate) fn remove(&self, relative: &str) -> Result<bool, CliError> {
        let path = self.root.join(relative);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(CliError::file("remove", &path, &error)),
        }
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.root.join("credentials").join("local.key")
    }

    /// Whether credentials were made here.
    pub(crate) fn has_credentials(&self) -> bool {
        self.root.join("credentials").join("pki").join("manifest.json").exists()
    }
}

/// Whether templates name a placeholder installation.
pub(crate) fn is_stand_in(site: &Site, cluster: &Cluster) -> bool {
    let issuer = cluster.iam_roles.is_some() && site.issuer_bucket.as_deref() == Some(STAND_IN_ISSUER);
    issuer || site.asset_bucket == STAND_IN_BUCKET || site.kms_key_arn.contains(STAND_IN_ACCOUNT)
}

const STAND_IN_ISSUER: &str = "slipway-issuer-stand-in";
const STAND_IN_BUCKET: &str = "slipway-assets-stand-in";
/// An account id that AWS does not assign.
const STAND_IN_ACCOUNT: &str = ":000000000000:";

fn stand_in_key(region: &str) -> String {
    let partition = match region {
        china if china.starts_with("cn-") => "aws-cn",
        government if government.starts_with("us-gov-") => "aws-us-gov",
        _ => "aws",
    };
    format!("arn:{partition}:kms:{region}{STAND_IN_ACCOUNT}key/00000000-0000-0000-0000-000000000000")
}

fn marker(root: &Path) -> Result<Option<Marker>, CliError> {
    let path = root.join(MARKER);
    match fs::read(&path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| CliError::damaged(&path, &error))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && root.join(exported::MARKER).exists() => {
            let problem = format!("{} holds an export, which has no credentials", root.display());
            let help = "name another directory; for a cluster in AWS, `slipway plan cluster.yaml` needs none";
            Err(CliError::refused(problem, help))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CliError::file("read", &path, &error)),
    }
}
