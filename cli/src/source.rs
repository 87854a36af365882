//! The spec that a command was given, and the patches beside it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use slipway_core::diagnostic::Diagnostic;
use slipway_core::keys::{PATCHES as FOLDER, is_patch};
use slipway_flows::patches::PatchSet;
use slipway_flows::rendering::{Checked, check};
use slipway_spec::{Expected, Kind};

use crate::failure::CliError;
use crate::local::LocalImports;

/// Where the patches are.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PatchArgs {
    /// The folder of the cluster's patches. Default: `patches` beside the spec, if it exists.
    #[arg(long, value_name = "DIR")]
    patches: Option<PathBuf>,
}

/// The spec's file.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SpecArgs {
    /// The spec; `-` reads the standard input.
    #[arg(value_name = "FILE", required_unless_present = "spec_option")]
    file: Option<PathBuf>,
    /// The same as FILE.
    #[arg(id = "spec_option", short = 'f', long = "file", value_name = "FILE", conflicts_with = "file")]
    option: Option<PathBuf>,
}

impl SpecArgs {
    pub(crate) fn path(&self) -> &Path {
        self.file.as_deref().or(self.option.as_deref()).unwrap_or(Path::new("-"))
    }
}

/// A spec that was read, with its patches.
#[derive(Debug)]
pub(crate) struct Source {
    /// Where it was read from.
    path: PathBuf,
    /// Its name in messages.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// The user's changes of rendered stacks and configurations.
    pub(crate) patches: PatchSet,
    /// The folder of the patches.
    folder: PathBuf,
    /// The expected cluster name, if the file is at `clusters/<name>/cluster.yaml` as in the bucket.
    expected_name: Option<String>,
}

impl Source {
    /// Reads `path` and the patches. `-` is the standard input, which has no patches.
    pub(crate) fn read(path: &Path, args: &PatchArgs) -> Result<Self, CliError> {
        let stdin = path == Path::new("-");
        let beside = || (!stdin).then(|| path.with_file_name(FOLDER)).filter(|folder| folder.is_dir());
        let folder = args.patches.clone().or_else(beside);
        let patches = folder.as_deref().map(read_patches).transpose()?.unwrap_or_default();
        let folder = folder.unwrap_or_default();
        if path == Path::new("-") {
            let bytes = read(std::io::stdin())
                .map_err(|error| CliError::file("read", Path::new("the standard input"), &error))?;
            let name = "<stdin>".to_owned();
            return Ok(Self { path: path.to_owned(), name, bytes, patches, folder, expected_name: None });
        }
        let bytes =
            std::fs::File::open(path).and_then(read).map_err(|error| CliError::file("read", path, &error))?;
        let name = path.display().to_string();
        let expected_name = folder_of(path);
        Ok(Self { path: path.to_owned(), name, bytes, patches, folder, expected_name })
    }

    /// A text for `path` that may not be written yet.
    pub(crate) fn made(path: &Path, text: String) -> Self {
        Self {
            path: path.to_owned(),
            name: path.display().to_string(),
            bytes: text.into_bytes(),
            patches: PatchSet::default(),
            folder: PathBuf::new(),
            expected_name: None,
        }
    }

    /// The files in `import/` beside it. `asks`: a person may be asked for passphrases.
    pub(crate) fn imports(&self, asks: bool) -> LocalImports {
        LocalImports::beside(&self.path, asks)
    }

    /// The file that a finding is about: its name and content.
    pub(crate) fn file_of(&self, finding: &Diagnostic) -> (String, &[u8]) {
        let Some(file) = &finding.file else { return (self.name.clone(), &self.bytes) };
        let name = file.strip_prefix(FOLDER).unwrap_or(file).trim_start_matches('/');
        let bytes = self.patches.files.get(name).map_or(&[][..], Vec::as_slice);
        (self.folder.join(name).display().to_string(), bytes)
    }

    /// The text of a key at the top of the spec, such as `clusterName`, if it can be read.
    pub(crate) fn text_of(&self, key: &str) -> Option<String> {
        let Kind::Map(entries) = slipway_spec::read_tree(&self.bytes).ok()?.kind else { return None };
        let found = entries.into_iter().find(|entry| entry.key == key)?;
        match &found.value.kind {
            Kind::Scalar { text, .. } => Some(text.clone()).filter(|text| !text.is_empty()),
            Kind::List(_) | Kind::Map(_) => None,
        }
    }

    /// The checked spec for a cluster of an installation, or its findings.
    pub(crate) fn parse_for(&self, cluster: &str, region: &str) -> Result<Checked, Vec<Diagnostic>> {
        let expected = Expected { name: cluster, region: Some(region) };
        check(&self.bytes, Some(&expected), &self.patches)
    }

    /// The checked spec with its patches, or the findings about them.
    pub(crate) fn parse(&self) -> Result<Checked, Vec<Diagnostic>> {
        // The installation and its region are not known here.
        let expected = self.expected_name.as_deref().map(|name| Expected { name, region: None });
        check(&self.bytes, expected.as_ref(), &self.patches)
    }
}

/// The patches in a folder, and the names of other files.
fn read_patches(folder: &Path) -> Result<PatchSet, CliError> {
    let failed = |error: std::io::Error| CliError::file("read", folder, &error);
    let mut files = BTreeMap::new();
    let mut others = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !is_patch(&name) {
            others.push(name);
            continue;
        }
        match std::fs::read(&path) {
            Ok(bytes) => drop(files.insert(name, bytes)),
            Err(error) if error.kind() == ErrorKind::IsADirectory => others.push(name),
            Err(error) => return Err(CliError::file("read", &path, &error)),
        }
    }
    others.sort();
    Ok(PatchSet::of_files(files, &others))
}

fn folder_of(path: &Path) -> Option<String> {
    let path: PathBuf = std::path::absolute(path).ok()?;
    let folder = path.parent()?;
    let as_in_bucket = path.file_name()? == "cluster.yaml" && folder.parent()?.file_name()? == "clusters";
    as_in_bucket.then(|| folder.file_name()?.to_str().map(str::to_owned)).flatten()
}

/// Reads a spec, and not more than is needed to say how much too large it is.
fn read(from: impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(64 * slipway_spec::MOST_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_as_in_the_bucket_gives_the_name() {
        assert_eq!(folder_of(Path::new("/x/clusters/prod/cluster.yaml")).as_deref(), Some("prod"));
        for other in ["/x/clusters/prod/spec.yaml", "/x/prod/cluster.yaml", "/cluster.yaml"] {
            assert_eq!(folder_of(Path::new(other)), None, "{other}");
        }
    }
}
