//! Reads a folder with arbitrary content. Nothing in it causes a failure, and no file is skipped silently.

use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use slipway_crypto::verify::{File, FileContent, Survey, read_files};
use slipway_ports::Secret;

use crate::failure::CliError;

/// The largest file that is read as a certificate or key.
const MOST_BYTES: u64 = 1 << 20;
/// How deep folders are searched. kubeadm's are two levels deep, Slipway's three.
const MOST_DEPTH: usize = 6;
/// A folder with more files is taken for the wrong one.
const MOST_FILES: usize = 20_000;

/// Whether `slipway render` wrote `dir`.
pub(super) fn is_ours(dir: &Path) -> bool {
    dir.join("slipway.json").is_file() && dir.join("credentials").is_dir()
}

/// All files; in a directory of `slipway render` only those of its credentials.
pub(super) fn files(dir: &Path) -> Result<Vec<File>, CliError> {
    let root = if is_ours(dir) { dir.join("credentials") } else { dir.to_owned() };
    fs::read_dir(&root).map_err(|error| CliError::file("read", &root, &error))?;
    let mut files = Vec::new();
    walk(&root, "", 0, &mut files);
    if files.len() > MOST_FILES {
        let problem = format!("{} holds more than {MOST_FILES} files", dir.display());
        return Err(CliError::refused(problem, "name the folder with the certificates"));
    }
    Ok(files)
}

/// Analyses the files; it is an error if there is no certificate.
pub(super) fn inspect(place: &str, files: Vec<File>) -> Result<Survey, CliError> {
    let survey = read_files(&files);
    if survey.certificates.is_empty() && survey.findings.is_empty() {
        let problem = format!("there is no certificate in {place}");
        let help = "name a directory that `slipway render` wrote, or one with certificates in PEM";
        return Err(CliError::refused(problem, help));
    }
    Ok(survey)
}

fn walk(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<File>) {
    let mut entries: Vec<(String, PathBuf)> = Vec::new();
    match fs::read_dir(folder) {
        Ok(found) => {
            for entry in found {
                match entry {
                    Ok(entry) => {
                        entries.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
                    }
                    Err(error) => files.push(not(prefix.trim_end_matches('/'), error.to_string())),
                }
            }
        }
        Err(error) => files.push(not(prefix.trim_end_matches('/'), error.to_string())),
    }
    entries.sort();
    for (name, path) in entries {
        if files.len() > MOST_FILES {
            return;
        }
        let shown = format!("{prefix}{name}");
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            Err(error) => {
                files.push(not(&shown, error.to_string()));
                continue;
            }
        };
        let link = about.is_symlink();
        if about.is_dir() {
            if has_ending(&name) {
                files.push(not(&shown, "it is a folder".to_owned()));
            }
            if depth < MOST_DEPTH {
                walk(&path, &format!("{shown}/"), depth + 1, files);
            } else {
                files.push(not(&shown, "it is too deep in the folder to be read".to_owned()));
            }
            continue;
        }
        // For a link, the target is read, as its users read it.
        let (mode, found) =
            match fs::metadata(&path).and_then(|about| Ok((about.clone(), open(&path, &about)?))) {
                Ok((about, found)) => (about.permissions().mode() & 0o7777, found),
                Err(error) if link && error.kind() == io::ErrorKind::NotFound => {
                    let target = fs::read_link(&path).unwrap_or_default();
                    (
                        0,
                        FileContent::Unreadable(format!(
                            "it is a link to {}, which is not there",
                            target.display()
                        )),
                    )
                }
                Err(error) => (0, FileContent::Unreadable(error.to_string())),
            };
        files.push(File { path: shown, found, mode, link });
    }
}

fn open(path: &Path, about: &Metadata) -> io::Result<FileContent> {
    if about.is_dir() {
        return Ok(FileContent::Unreadable("it is a link to a folder, which is not followed".to_owned()));
    }
    // Reading a pipe could block for ever.
    if !about.is_file() {
        return Ok(FileContent::Unreadable("it is not a file".to_owned()));
    }
    if about.len() > MOST_BYTES {
        let size = about.len();
        return Ok(FileContent::Unreadable(format!("{size} bytes are more than any certificate or key has")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default() + 1);
    fs::File::open(path)?.take(MOST_BYTES).read_to_end(&mut bytes)?;
    Ok(FileContent::Bytes(Secret::new(bytes)))
}

fn has_ending(name: &str) -> bool {
    [".pem", ".crt", ".key"].iter().any(|ending| name.ends_with(ending))
}

fn not(path: &str, why: String) -> File {
    let path = if path.is_empty() { "." } else { path };
    File { path: path.to_owned(), found: FileContent::Unreadable(why), mode: 0, link: false }
}
