//! Changes only the credentials in a rendered directory. It fails if the spec would change anything else.

use std::path::Path;

use slipway_core::cluster::Cluster;
use slipway_core::release::{Rendering, Site};
use slipway_credentials::Manifest;
use slipway_crypto::AwsLc;
use slipway_flows::issuer;
use slipway_flows::overlay::Overlay;
use slipway_flows::rendering::Prepared;
use slipway_plan::Baseline;
use slipway_ports::Objects;

use crate::failure::CliError;
use crate::local::{Folder, LocalKeys, LocalRegistry, SiteArgs, Workspace};
use crate::printer::Printer;
use crate::source::{PatchArgs, Source};

/// A rendered directory with its spec.
#[derive(Debug)]
pub(in crate::commands) struct Rendered {
    pub(in crate::commands) cluster: Cluster,
    pub(in crate::commands) folder: Folder,
    source: Source,
    workspace: Workspace,
    site: Site,
    before: Rendering,
}

/// The result of a change.
#[derive(Debug)]
pub(in crate::commands) struct Changed<T> {
    pub(in crate::commands) done: T,
    /// The inventory after it.
    pub(in crate::commands) manifest: Manifest,
    /// Names of the other files that changed.
    pub(in crate::commands) files: Vec<String>,
}

impl Rendered {
    /// Reads the directory `out` and the spec `file`; `None`: the spec was refused and the findings were printed. Nothing is written.
    pub(in crate::commands) fn find(
        file: &Path,
        patches: &PatchArgs,
        out: &Path,
        printer: &Printer,
    ) -> Result<Option<Self>, CliError> {
        let source = Source::read(file, patches)?;
        let cluster = match source.parse() {
            Ok(accepted) => accepted.cluster,
            Err(findings) => {
                printer.refused(&source, &findings);
                return Ok(None);
            }
        };
        // Read before it is opened, because opening creates a directory.
        let before = Workspace::open_read_only(out)?.release()?.ok_or_else(|| {
            let problem = format!("nothing was rendered into {}", out.display());
            CliError::refused(problem, "name the directory that `slipway render` wrote")
        })?;
        let workspace = Workspace::open(out)?;
        let (folder, site) = workspace.claim(&cluster, &SiteArgs::default())?;
        Ok(Some(Self { cluster, folder, source, workspace, site, before }))
    }

    /// Changes credentials with `act`, and renders the result. It fails if the spec differs from what was rendered, because `what`, such
    /// as "renewing a certificate", changes nothing else. `None`: the spec was refused and the findings were printed.
    pub(in crate::commands) async fn change<T>(
        &self,
        what: &str,
        printer: &Printer,
        act: impl AsyncFnOnce(&Folder, &LocalKeys<AwsLc>) -> Result<T, CliError>,
    ) -> Result<Option<Changed<T>>, CliError> {
        let keys = super::keys(&self.workspace)?;
        // In memory first: a refused change has no effect.
        let (folder, _) = self.workspace.claim(&self.cluster, &SiteArgs::default())?;
        let Some(first) = self.prepared(&Overlay::new(&folder), &keys, printer).await? else {
            return Ok(None);
        };
        if first.rendering.id() != self.before.id() {
            return Err(CliError::refused(
                format!("the spec differs from what was rendered, and {what} changes nothing else"),
                "run `slipway render` first, and look at what it changes with `slipway plan`",
            ));
        }
        let done = act(&self.folder, &keys).await?;
        let Some(prepared) = self.prepared(&self.folder, &keys, printer).await? else { return Ok(None) };
        let manifest = prepared.credentials.manifest;
        let documents = issuer::documents(&self.folder, &AwsLc, &self.cluster, &manifest, &self.site).await?;
        let written = super::write(&self.workspace, Some(&self.before), &prepared.rendering, documents)?;
        Ok(Some(Changed { done, manifest, files: written.changed }))
    }

    async fn prepared<O: Objects>(
        &self,
        objects: &O,
        keys: &LocalKeys<AwsLc>,
        printer: &Printer,
    ) -> Result<Option<Prepared>, CliError> {
        let registry = LocalRegistry::new(false);
        let baseline = Baseline::single_release(Some(self.before.clone()));
        let (site, cluster, source) = (&self.site, &self.cluster.name, &self.source);
        match super::prepared(objects, keys, &registry, site, cluster, source, &baseline).await? {
            Ok(prepared) => Ok(Some(prepared)),
            Err(findings) => {
                printer.refused(source, &findings);
                Ok(None)
            }
        }
    }
}
