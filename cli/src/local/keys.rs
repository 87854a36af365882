//! A local key file instead of KMS.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_credentials::AssetKind;
use slipway_ports::{Context, Crypto, DataKey, Keys, PortResult, Secret};

use super::folder::port_error;
use crate::failure::CliError;

/// Wraps data keys under the 32 bytes of a file that only its owner may read. The wrapped key is sealed, so the context is enforced as
/// KMS does. A key ARN in the spec has no effect here.
#[derive(Debug)]
pub(crate) struct LocalKeys<C> {
    crypto: C,
    key: Secret,
    /// The path and text of a new key, until something is sealed under it.
    unwritten: Mutex<Option<(PathBuf, Secret)>>,
}

/// The name of the key in sealed bytes.
const NAME: &str = "local.key";

impl<C: Crypto> LocalKeys<C> {
    /// Reads the key file.
    ///
    /// # Errors
    /// If it cannot be read, is no key, or is readable by others. `Ok(None)`: it does not exist.
    pub(crate) fn read(crypto: C, path: &Path) -> Result<Option<Self>, CliError> {
        let text = match fs::read(path) {
            Ok(text) => Secret::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(CliError::file("read", path, &error)),
        };
        let mode =
            fs::metadata(path).map_err(|error| CliError::file("read", path, &error))?.permissions().mode();
        if mode & 0o077 != 0 {
            let problem = format!("{} may be read by others (mode {:03o})", path.display(), mode & 0o777);
            return Err(CliError::refused(problem, "take the permission away: chmod 600"));
        }
        let key = decode(text.expose()).ok_or_else(|| {
            let problem = format!("{} is not a key file: 32 bytes in base64 are expected", path.display());
            CliError::refused(problem, "bring back the file that was made with these credentials")
        })?;
        Ok(Some(Self { crypto, key, unwritten: Mutex::default() }))
    }

    /// Makes a key, without writing it anywhere.
    pub(crate) fn make(crypto: C) -> Result<(Self, Secret), CliError> {
        let text = crypto.make(&AssetKind::RandomKey).map_err(|error| CliError::Flow(error.into()))?.private;
        let key = decode(text.expose()).expect("a random key is 32 bytes in base64");
        Ok((Self { crypto, key, unwritten: Mutex::default() }, text))
    }

    /// A new key, whose file is written only when something is sealed under it: an unused key would be in the way of the key that opens
    /// existing credentials.
    pub(crate) fn to_create(crypto: C, path: &Path) -> Result<Self, CliError> {
        let (keys, text) = Self::make(crypto)?;
        Ok(Self { unwritten: Mutex::new(Some((path.to_owned(), text))), ..keys })
    }

    /// Writes the file of a new key, readable by its owner only.
    fn write(&self) -> PortResult<()> {
        let mut unwritten = self.unwritten.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((path, text)) = unwritten.as_ref() {
            create(path, text).map_err(|error| port_error("write", path, &error))?;
            *unwritten = None;
        }
        Ok(())
    }
}

fn create(path: &Path, text: &Secret) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
        // Keeps the key out of version control if the directory is committed.
        fs::write(folder.join(".gitignore"), format!("{NAME}\n"))?;
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.expose())?;
    file.write_all(b"\n")?;
    // Without this file the credentials cannot be opened.
    file.sync_all()
}

fn decode(text: &[u8]) -> Option<Secret> {
    let key = Secret::new(STANDARD.decode(text.trim_ascii()).ok()?);
    (key.expose().len() == 32).then_some(key)
}

impl<C: Crypto> Keys for LocalKeys<C> {
    /// There is only one key, whatever the spec names.
    fn name(&self, _: Option<&str>) -> String {
        NAME.to_owned()
    }

    async fn generate(&self, _: Option<&str>, context: &Context) -> PortResult<DataKey> {
        self.write()?;
        let text = self.crypto.make(&AssetKind::RandomKey)?.private;
        let plain = decode(text.expose()).expect("a random key is 32 bytes in base64");
        let own = DataKey {
            wrapped_by: NAME.to_owned(),
            plain: self.key.clone(),
            wrapped: NAME.as_bytes().to_vec(),
        };
        let wrapped = self.crypto.seal(&own, context, plain.expose())?;
        Ok(DataKey { wrapped_by: NAME.to_owned(), plain, wrapped })
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.crypto.open(&self.key, context, wrapped)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_crypto::AwsLc;

    use super::*;

    fn context(role: &str) -> Context {
        Context::from([("cluster".to_owned(), "a".to_owned()), ("role".to_owned(), role.to_owned())])
    }

    #[tokio::test]
    async fn a_data_key_comes_back_under_its_own_context_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("credentials/local.key");
        let made = LocalKeys::to_create(AwsLc, &path).unwrap();
        assert!(!dir.path().join("credentials").exists(), "nothing is sealed yet");
        let data_key = made.generate(None, &context("controller")).await.unwrap();
        let read = LocalKeys::read(AwsLc, &path).unwrap().unwrap();
        let plain = read.unwrap(&data_key.wrapped, &context("controller")).await.unwrap();
        assert_eq!(plain.expose(), data_key.plain.expose());
        assert!(read.unwrap(&data_key.wrapped, &context("admin")).await.is_err());
        let (other, _) = LocalKeys::make(AwsLc).unwrap();
        assert!(other.unwrap(&data_key.wrapped, &context("controller")).await.is_err());
    }

    #[tokio::test]
    async fn p9_the_key_file_is_for_its_owner_alone_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.key");
        LocalKeys::to_create(AwsLc, &path).unwrap().generate(None, &context("a")).await.unwrap();
        let before = fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = LocalKeys::to_create(AwsLc, &path).unwrap();
        for _ in 0..2 {
            assert!(second.generate(None, &context("a")).await.is_err());
        }
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(LocalKeys::read(AwsLc, &path).unwrap_err().code(), 1);
    }

    /// A directory can be uploaded as a bucket, and its objects open with the key file only.
    #[tokio::test]
    async fn a_directory_that_is_uploaded_opens_with_its_key_file() {
        use slipway_flows::credentials::ensure;
        use slipway_ports::Listing as _;
        use slipway_ports::sealed::open;
        use slipway_sim::memory::MemoryBucket;

        let dir = tempfile::tempdir().unwrap();
        let folder = super::super::Folder::new(dir.path(), "prod");
        let text = include_bytes!("../../../shared/credentials/src/testdata/cluster.yaml");
        let cluster = slipway_spec::parse(text, None).unwrap().cluster;
        let now = "2026-11-20T12:00:00Z".parse().unwrap();
        let keys = LocalKeys::to_create(AwsLc, &dir.path().join("credentials/local.key")).unwrap();
        let made = ensure(&folder, &keys, &AwsLc, &cluster, now).await.unwrap();

        let bucket = MemoryBucket::new("assets", "eu-west-1");
        for part in ["pki", "bundles"] {
            for listed in folder.list(&format!("clusters/prod/{part}/"), 1000).await.unwrap() {
                let path = listed.key.replace("clusters/prod/", "credentials/");
                bucket.upload(&listed.key, fs::read(dir.path().join(path)).unwrap());
            }
        }
        let read = LocalKeys::read(AwsLc, &dir.path().join("credentials/local.key")).unwrap().unwrap();
        let there = ensure(&bucket, &read, &AwsLc, &cluster, now).await.unwrap();
        assert_eq!((&there.digests, there.made.len(), there.healed.len()), (&made.digests, 0, 0));
        let (other, _) = LocalKeys::make(AwsLc).unwrap();
        for (role, digest) in &made.digests {
            let key = slipway_core::keys::credentials("prod", &role.to_string(), digest);
            let sealed = bucket.peek(&key).unwrap();
            open(&read, &AwsLc, "prod", &role.to_string(), &sealed).await.unwrap();
            assert!(open(&other, &AwsLc, "prod", &role.to_string(), &sealed).await.is_err());
        }
    }

    #[test]
    fn p9_nothing_printed_shows_the_key() {
        let (keys, text) = LocalKeys::make(AwsLc).unwrap();
        assert!(!format!("{keys:?}").contains(std::str::from_utf8(text.expose()).unwrap()));
    }
}
