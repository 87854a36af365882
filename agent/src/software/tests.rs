//! Programs that are fetched, unpacked and linked: whole or not at all, and nothing of others' is touched.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use slipway_core::digest::sha256_hex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::aws::{Aws, Endpoints};
use crate::failure::FailureCode;
use crate::machine::commands::Ran;

/// A site that answers every request with `bytes`; how often it was asked.
async fn site(bytes: Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", bytes.len());
            let _ = stream.write_all(&[head.as_bytes(), &bytes].concat()).await;
        }
    });
    (url, asked)
}

fn publisher() -> Publisher {
    let aws = Aws::new(&Endpoints::default(), "eu-west-1").unwrap();
    Publisher::with_http(
        crate::http::client(crate::http::public().unwrap(), std::time::Duration::from_secs(5)).unwrap(),
        &aws,
    )
}

/// A `tar.gz` of files with their modes.
fn archive(files: &[(&str, u32, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (path, mode, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(*mode);
        // As it is, `..` and all.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        builder.append(&header, text.as_bytes()).unwrap();
    }
    let mut gzip = builder.into_inner().unwrap();
    gzip.flush().unwrap();
    gzip.finish().unwrap()
}

fn etcd(version: &str, url: &str, bytes: &[u8]) -> ProgramFile {
    let url = format!("{url}/etcd-v{version}.tar.gz");
    ProgramFile { name: Program::Etcd, version: version.to_owned(), url, sha256: sha256_hex(bytes) }
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test]
async fn a_release_is_fetched_once_and_the_next_takes_its_place() {
    let root = tempfile::tempdir().unwrap();
    let one = archive(&[
        ("etcd-v1/etcd", 0o755, "one"),
        ("etcd-v1/etcdctl", 0o755, "ctl"),
        ("etcd-v1/README", 0o644, "no"),
    ]);
    let (url, asked) = site(one.clone()).await;
    let first = [etcd("1", &url, &one)];
    assert!(install(root.path(), &publisher(), &first).await.unwrap()[0].fetched);
    assert!(!install(root.path(), &publisher(), &first).await.unwrap()[0].fetched);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert_eq!(read(root.path(), "opt/slipway/bin/etcd"), "one");
    assert!(!root.path().join("opt/slipway/bin/README").exists());
    assert_eq!(find_program(root.path(), "etcd").unwrap(), Path::new("/opt/slipway/bin/etcd"));

    let two = archive(&[("x/etcd", 0o755, "two"), ("x/etcdctl", 0o755, "ctl")]);
    let (url, _) = site(two.clone()).await;
    install(root.path(), &publisher(), &[etcd("2", &url, &two)]).await.unwrap();
    assert_eq!(read(root.path(), "opt/slipway/bin/etcd"), "two");
    // What runs of the first goes on to have its files.
    let releases = fs::read_dir(root.path().join(RELEASES)).unwrap().count();
    assert_eq!(releases, 2, "drafts are left behind");
}

#[tokio::test]
async fn what_is_not_what_its_digest_says_is_not_installed() {
    let root = tempfile::tempdir().unwrap();
    let right = archive(&[("etcd", 0o755, "right"), ("etcdctl", 0o755, "ctl")]);
    let (url, asked) = site(archive(&[("etcd", 0o755, "wrong"), ("etcdctl", 0o755, "ctl")])).await;
    let failure = install(root.path(), &publisher(), &[etcd("1", &url, &right)]).await.unwrap_err();
    assert_eq!((failure.code, failure.transient), (FailureCode::SoftwareDigest, true));
    assert_eq!(asked.load(Ordering::SeqCst), 3, "a mirror may be at work");
    assert!(
        find_program(root.path(), "etcd").is_err_and(|failure| failure.code == FailureCode::SoftwareMissing)
    );
    assert_eq!(fs::read_dir(root.path().join(RELEASES)).unwrap().count(), 0);
}

#[tokio::test]
async fn an_archive_does_not_say_where_its_files_go() {
    let root = tempfile::tempdir().unwrap();
    let evil =
        archive(&[("../../../../etc/etcd", 0o755, "in its place"), ("/usr/bin/etcdctl", 0o755, "ctl")]);
    let (url, _) = site(evil.clone()).await;
    install(root.path(), &publisher(), &[etcd("1", &url, &evil)]).await.unwrap();
    assert_eq!(read(root.path(), "opt/slipway/bin/etcd"), "in its place");
    assert!(!root.path().join("usr").exists() && !root.path().join("etc").exists());
    for (bad_layout, why) in [
        (archive(&[("etcd", 0o755, "alone")]), "etcdctl is not in it"),
        (archive(&[("a/etcd", 0o755, "1"), ("b/etcd", 0o755, "2")]), "two programs etcd"),
        (b"<html>please sign in</html>".to_vec(), "cannot be unpacked"),
    ] {
        let (url, _) = site(bad_layout.clone()).await;
        let failure = install(root.path(), &publisher(), &[etcd("3", &url, &bad_layout)]).await.unwrap_err();
        assert!(failure.message.contains(why) && !failure.transient, "{failure:?}");
    }
    assert_eq!(read(root.path(), "opt/slipway/bin/etcd"), "in its place", "what runs stays");
}

#[tokio::test]
async fn what_an_image_or_an_add_on_brought_is_not_written_over() {
    let root = tempfile::tempdir().unwrap();
    let plugins = root.path().join(PLUGINS);
    fs::create_dir_all(&plugins).unwrap();
    fs::write(plugins.join("portmap"), "the image's").unwrap();
    let names = ["bridge", "host-local", "loopback", "portmap"];
    let files: Vec<_> = names.iter().map(|name| (*name, 0o755, "published")).collect();
    let bytes = archive(&files);
    let (url, _) = site(bytes.clone()).await;
    let file = ProgramFile {
        name: Program::CniPlugins,
        version: "1".to_owned(),
        url: format!("{url}/cni.tgz"),
        sha256: sha256_hex(&bytes),
    };
    install(root.path(), &publisher(), &[file]).await.unwrap();
    assert_eq!(read(root.path(), "opt/cni/bin/portmap"), "the image's");
    assert_eq!(read(root.path(), "opt/cni/bin/bridge"), "published");
}

#[tokio::test]
async fn a_site_that_does_not_answer_is_named() {
    let root = tempfile::tempdir().unwrap();
    let file = ProgramFile {
        name: Program::Runc,
        version: "1".to_owned(),
        url: "http://127.0.0.1:9/runc".to_owned(),
        sha256: sha256_hex(b""),
    };
    let failure = install(root.path(), &publisher(), &[file]).await.unwrap_err();
    assert!(failure.transient && failure.message.contains("127.0.0.1:9/runc"), "{failure:?}");
}

/// A machine on which each program ends with that status.
struct Ends(Option<i32>);

impl Commands for Ends {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        assert_eq!((program, arguments), ("/opt/slipway/bin/kubelet", &["--version"][..]));
        let stderr = "version `GLIBC_2.38' not found\n".to_owned();
        Ok(Ran { status: self.0, stdout: String::new(), stderr })
    }
}

/// It would look like a node that is only ill, and be replaced by another one with the same image.
#[tokio::test]
async fn a_program_that_cannot_run_on_this_image_is_named_with_its_own_words() {
    let installed = |name| Installed { name, version: "1.36.3".to_owned(), fetched: true };
    check_that_it_runs(&Ends(Some(0)), &installed(Program::Kubelet)).await.unwrap();
    for (status, ends) in [(Some(1), "status 1"), (None, "a signal")] {
        let error = check_that_it_runs(&Ends(status), &installed(Program::Kubelet)).await.unwrap_err();
        assert_eq!((error.code, error.transient), (FailureCode::SoftwareCannotRun, false));
        let words = format!("kubelet 1.36.3 ends with {ends}: version `GLIBC_2.38' not found");
        assert!(error.to_string().contains(&words), "{error}");
    }
    // Plugins are run by containerd alone.
    check_that_it_runs(&Ends(Some(1)), &installed(Program::CniPlugins)).await.unwrap();
}
