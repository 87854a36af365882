//! The spec that a command was given.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use slipway_core::spec::{Accepted, Diagnostic, Expected, parse};

use crate::failure::Failure;

/// A spec as read.
pub(crate) struct Source {
    /// For messages.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// The folder's name, where the file lies in `clusters/<name>/cluster.yaml` as in the bucket.
    expected_name: Option<String>,
}

impl Source {
    /// Reads `path`; `-` is the standard input.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            let mut bytes = Vec::new();
            std::io::stdin()
                .read_to_end(&mut bytes)
                .map_err(|error| Failure::file("read", Path::new("the standard input"), &error))?;
            return Ok(Self { name: "<stdin>".to_owned(), bytes, expected_name: None });
        }
        let bytes = std::fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
        Ok(Self { name: path.display().to_string(), bytes, expected_name: folder_of(path) })
    }

    /// A text that was made for `path`, but is perhaps not there yet.
    pub(crate) fn made(path: &Path, text: String) -> Self {
        Self { name: path.display().to_string(), bytes: text.into_bytes(), expected_name: None }
    }

    /// The spec, or what is wrong with it.
    pub(crate) fn parse(&self) -> Result<Accepted, Vec<Diagnostic>> {
        // Which installation it goes to is not known here, nor its region.
        let expected = self.expected_name.as_deref().map(|name| Expected { name, region: None });
        parse(&self.bytes, expected.as_ref())
    }
}

fn folder_of(path: &Path) -> Option<String> {
    let path: PathBuf = std::path::absolute(path).ok()?;
    let folder = path.parent()?;
    let as_in_bucket = path.file_name()? == "cluster.yaml" && folder.parent()?.file_name()? == "clusters";
    as_in_bucket.then(|| folder.file_name()?.to_str().map(str::to_owned)).flatten()
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
