//! Credentials in folders: readers always see one whole bundle, also when a writer dies at any point.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use slipway_ports::Secret;

use super::{Bundle, applied, write};
use crate::failure::FailureCode;

const DIR: &str = "/etc/etcd/pki";

fn bundle(files: &[(&str, &str)]) -> Bundle {
    let files: serde_json::Map<_, _> =
        files.iter().map(|(name, text)| (format!("{DIR}/{name}"), json!(text))).collect();
    Bundle::read(&Secret::new(json!({ "format": 1, "files": files }).to_string().into_bytes())).unwrap()
}

fn text(root: &Path, name: &str) -> Option<String> {
    fs::read_to_string(root.join("etc/etcd/pki").join(name)).ok()
}

fn generations(root: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(root.join("etc/etcd/pki")).unwrap().map(Result::unwrap);
    let folders = entries.filter(|entry| entry.file_type().unwrap().is_dir());
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn what_is_written_can_be_read_by_its_owner_alone_and_is_written_once() {
    let root = tempfile::tempdir().unwrap();
    let first = bundle(&[("a.pem", "A1"), ("a-key.pem", "K1")]);
    let written = write(root.path(), "d1", &first).unwrap();
    assert!(written.changed);
    written.remove_previous().unwrap();
    assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A1"));
    let found = fs::metadata(root.path().join("etc/etcd/pki/a-key.pem")).unwrap();
    assert_eq!((found.mode() & 0o777, found.is_file()), (0o600, true));
    assert_eq!(applied(root.path(), DIR).unwrap().as_deref(), Some("d1"));

    let again = write(root.path(), "d1", &first).unwrap();
    assert!(!again.changed, "the same is not a change");
    again.remove_previous().unwrap();
    assert_eq!(
        fs::metadata(root.path().join("etc/etcd/pki/a-key.pem")).unwrap().ino(),
        found.ino(),
        "nor touched"
    );
}

#[test]
fn another_bundle_takes_the_place_of_the_first_and_the_way_back_leads_to_it() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "d1", &bundle(&[("a.pem", "A1"), ("gone.pem", "G")]))
        .unwrap()
        .remove_previous()
        .unwrap();
    // A file that another program put there.
    fs::write(root.path().join("etc/etcd/pki/theirs.txt"), "T").unwrap();
    let second = bundle(&[("a.pem", "A2"), ("new.pem", "N")]);
    let written = write(root.path(), "d2", &second).unwrap();
    assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A2"));
    assert_eq!(text(root.path(), "new.pem").as_deref(), Some("N"));
    assert!(fs::symlink_metadata(root.path().join("etc/etcd/pki/gone.pem")).is_err());
    written.undo().unwrap();
    assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A1"));
    assert_eq!(text(root.path(), "gone.pem").as_deref(), Some("G"));
    assert!(fs::symlink_metadata(root.path().join("etc/etcd/pki/new.pem")).is_err());
    assert_eq!(generations(root.path()), BTreeSet::from([".d1".to_owned()]));

    write(root.path(), "d2", &second).unwrap().remove_previous().unwrap();
    assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A2"));
    assert_eq!(text(root.path(), "theirs.txt").as_deref(), Some("T"));
    assert_eq!(generations(root.path()), BTreeSet::from([".d2".to_owned()]), "no old key stays behind");
}

#[test]
fn whoever_dies_after_the_swap_leaves_the_way_back_to_the_next() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "d1", &bundle(&[("a.pem", "A1")])).unwrap().remove_previous().unwrap();
    let second = bundle(&[("a.pem", "A2")]);
    // Dropped: neither settled nor undone.
    drop(write(root.path(), "d2", &second).unwrap());
    let next = write(root.path(), "d2", &second).unwrap();
    assert!(!next.changed);
    next.undo().unwrap();
    assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A1"));
}

#[test]
fn files_that_were_damaged_half_written_or_opened_to_others_are_written_again() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("etc/etcd/pki");
    // Left by a run that died while writing.
    fs::create_dir_all(folder.join(".d1")).unwrap();
    fs::write(folder.join(".d1/a.pem"), "A").unwrap();
    let first = bundle(&[("a.pem", "A1"), ("a-key.pem", "K1")]);
    write(root.path(), "d1", &first).unwrap().remove_previous().unwrap();
    assert_eq!(text(root.path(), "a-key.pem").as_deref(), Some("K1"));

    // In force, and written over or opened by hand. Twice, as the second name may be the one in force.
    for (name, damage) in [("a.pem", true), ("a-key.pem", false)] {
        let path = folder.join(name);
        if damage {
            fs::write(&path, "mine").unwrap();
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        let mended = write(root.path(), "d1", &first).unwrap();
        assert!(mended.changed, "{name}");
        mended.remove_previous().unwrap();
        assert_eq!(text(root.path(), "a.pem").as_deref(), Some("A1"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(applied(root.path(), DIR).unwrap().as_deref(), Some("d1"));
        assert_eq!(generations(root.path()).len(), 1);
    }
}

#[test]
fn a_reader_through_one_look_at_the_link_never_sees_halves_of_two_bundles() {
    let root = tempfile::tempdir().unwrap();
    let [one, two] = ["1", "2"].map(|n| bundle(&[("a.pem", n), ("a-key.pem", n)]));
    write(root.path(), "d1", &one).unwrap();
    let (folder, done) = (root.path().join("etc/etcd/pki"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut pairs = 0_u32;
            while !done.load(Ordering::Relaxed) {
                let current = folder.join(fs::read_link(folder.join(".current")).unwrap());
                let read = |name: &str| fs::read_to_string(current.join(name)).unwrap();
                assert_eq!(read("a.pem"), read("a-key.pem"));
                // There is always something at the path itself.
                assert_eq!(fs::read_to_string(folder.join("a.pem")).unwrap().len(), 1);
                pairs += 1;
            }
            pairs
        });
        for _ in 0..200 {
            drop(write(root.path(), "d2", &two).unwrap());
            drop(write(root.path(), "d1", &one).unwrap());
        }
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn a_bundle_that_would_write_elsewhere_or_is_none_is_refused_without_a_word_of_it() {
    for path in [
        "/usr/lib/a",
        "/etc/passwd",
        "/etc/../usr/a",
        "etc/etcd/a",
        "/etc/etcd/pki/",
        "/etc/etcd/.current/a",
        "/etc//a",
    ] {
        let plain = json!({ "format": 1, "files": { path: "secret" } }).to_string();
        let refused = Bundle::read(&Secret::new(plain.into_bytes())).unwrap_err();
        assert_eq!(refused.code, FailureCode::CredentialsPath, "{path}");
    }
    let refused = Bundle::read(&Secret::new(br#"{"format":1,"files":{"/etc/a/b":{"secret":1}}}"#.to_vec()));
    let refused = refused.unwrap_err();
    assert_eq!(refused.code, FailureCode::CredentialsDamaged);
    assert!(!format!("{refused:?}").contains("secret"));
    let newer = Bundle::read(&Secret::new(br#"{"format":2,"parts":[]}"#.to_vec())).unwrap_err();
    assert_eq!(newer.code, FailureCode::CredentialsFormat);
    let root = tempfile::tempdir().unwrap();
    let digest = write(root.path(), "../x", &bundle(&[("a.pem", "A")])).unwrap_err();
    assert_eq!(digest.code, FailureCode::CredentialsDigest);
    assert!(fs::read_dir(root.path()).unwrap().next().is_none(), "nothing was written");
}

#[test]
fn copies_change_with_the_bundle_and_go_back_with_it_beside_what_else_is_in_their_folder() {
    let root = tempfile::tempdir().unwrap();
    let copied = |files: &[(&str, &str)]| {
        bundle(files).with_copies(|path| {
            let name = path.strip_prefix("/etc/etcd/pki/a").map(|rest| format!("/etc/pod/a{rest}"));
            name.into_iter().collect()
        })
    };
    let of_pod = |name: &str| fs::read_to_string(root.path().join("etc/pod").join(name)).ok();
    write(root.path(), "d1", &copied(&[("a.pem", "A1"), ("a-key.pem", "K1"), ("b.pem", "B")]))
        .unwrap()
        .remove_previous()
        .unwrap();
    assert_eq!(of_pod("a.pem").as_deref(), Some("A1"));
    assert_eq!(of_pod("b.pem"), None, "what is not copied is not seen");
    let key = fs::metadata(root.path().join("etc/pod/a-key.pem")).unwrap();
    assert_eq!(key.mode() & 0o777, 0o600);
    fs::write(root.path().join("etc/pod/kubeconfig"), "its own").unwrap();

    let second = copied(&[("a.pem", "A2"), ("b.pem", "B")]);
    let written = write(root.path(), "d2", &second).unwrap();
    assert!(written.changed);
    assert_eq!((of_pod("a.pem").as_deref(), of_pod("a-key.pem")), (Some("A2"), None));
    written.undo().unwrap();
    assert_eq!((of_pod("a.pem").as_deref(), of_pod("a-key.pem").as_deref()), (Some("A1"), Some("K1")));

    // A copy that somebody damaged is made again, though the bundle is the same.
    fs::write(root.path().join("etc/pod/a.pem"), "damaged").unwrap();
    write(root.path(), "d1", &copied(&[("a.pem", "A1"), ("a-key.pem", "K1"), ("b.pem", "B")]))
        .unwrap()
        .remove_previous()
        .unwrap();
    assert_eq!(of_pod("a.pem").as_deref(), Some("A1"));
    assert_eq!(of_pod("kubeconfig").as_deref(), Some("its own"));
}
