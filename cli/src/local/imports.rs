//! `import/` beside a local spec, with passphrases from the environment or a terminal.

use std::io::{self, IsTerminal as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use slipway_core::cluster::OwnAuthority;
use slipway_flows::imports::{ImportFile, Imports, MOST_BYTES, Passphrase, trimmed};
use slipway_ports::{ErrorKind, Flaw, PortError, PortResult, Secret};

/// The folder's name beside the spec.
pub(crate) const FOLDER: &str = "import";

/// The files of a folder.
#[derive(Debug)]
pub(crate) struct LocalImports {
    folder: PathBuf,
    /// Whether a person may be asked.
    asks: bool,
}

impl LocalImports {
    /// `import/` beside `spec`; if that is the standard input, `import/` in the working directory.
    pub(crate) fn beside(spec: &Path, asks: bool) -> Self {
        let folder = if spec == Path::new("-") { PathBuf::from(FOLDER) } else { spec.with_file_name(FOLDER) };
        Self { folder, asks: asks && io::stdin().is_terminal() && io::stderr().is_terminal() }
    }

    /// Whether there is such a folder.
    pub(crate) fn is_there(&self) -> bool {
        self.folder.is_dir()
    }

    fn failed(path: &Path, error: &io::Error) -> PortError {
        PortError {
            kind: ErrorKind::Missing,
            operation: "fs:Read",
            subject: path.display().to_string(),
            message: error.to_string(),
        }
    }
}

/// `SLIPWAY_CA_KEY_PASSPHRASE`, `SLIPWAY_ETCD_CA_KEY_PASSPHRASE`, ….
fn variable(authority: &str) -> String {
    format!("SLIPWAY_{}_KEY_PASSPHRASE", authority.to_ascii_uppercase().replace('-', "_"))
}

impl Imports for LocalImports {
    async fn file(&self, name: &str) -> PortResult<Option<ImportFile>> {
        let path = self.folder.join(name);
        let about = match std::fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Self::failed(&path, &error)),
        };
        if about.len() > MOST_BYTES {
            return Ok(Some(ImportFile { bytes: Secret::new(Vec::new()), exposed: None }));
        }
        let bytes = std::fs::read(&path).map_err(|error| Self::failed(&path, &error))?;
        let mode = about.permissions().mode() & 0o777;
        let exposed = (mode & 0o077 != 0).then(|| Flaw {
            message: format!("the private key in {} may be read by others (mode {mode:03o})", path.display()),
            help: "take the permission away: chmod 600; and encrypt it before it goes to the spec bucket"
                .to_owned(),
        });
        Ok(Some(ImportFile { bytes: Secret::new(bytes), exposed }))
    }

    async fn passphrase(&self, name: &str, _: &OwnAuthority) -> PortResult<Passphrase> {
        let variable = variable(name);
        if let Some(text) = std::env::var_os(&variable).filter(|text| !text.is_empty()) {
            return Ok(Passphrase::Known(Secret::new(text.into_encoded_bytes())));
        }
        if self.asks {
            let prompt = format!("Passphrase of the key of {name}: ");
            let typed = rpassword::prompt_password(prompt);
            let text = typed.map_err(|error| Self::failed(Path::new("the terminal"), &error))?;
            return Ok(Passphrase::Known(trimmed(&Secret::new(text.into_bytes()))));
        }
        Ok(Passphrase::None(Flaw {
            message: format!("its key is encrypted, and {variable} is not set"),
            help: format!("set {variable}, or run this on a terminal, where it asks"),
        }))
    }
}
