//! The site that `make docs` builds: what it is made of, and the check of its links. mdBook itself runs in `make docs` and in `.ci/run`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use slipway_tests::tools;

/// The pages in a folder and in those inside it.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => pages(&path),
            false => {
                vec![path].into_iter().filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
            }
        })
        .collect()
}

fn script(name: &str, arguments: &[&Path]) -> Output {
    Command::new(tools::root().join("docs/site").join(name)).args(arguments).output().unwrap()
}

#[test]
fn every_page_is_in_the_summary_once() {
    let root = tools::root().canonicalize().unwrap();
    let docs = root.join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let mut listed: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for target in summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        *listed.entry(docs.join(target).canonicalize().unwrap()).or_default() += 1;
    }
    let mut expected = pages(&docs);
    expected.retain(|page| !page.ends_with("docs/SUMMARY.md"));
    expected.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)));
    for page in &expected {
        let count = listed.remove(page).unwrap_or_default();
        assert_eq!(count, 1, "docs/SUMMARY.md lists {} {count} times", page.display());
    }
    assert!(listed.is_empty(), "docs/SUMMARY.md lists what is no page: {listed:?}");
}

#[test]
fn a_link_to_a_file_of_the_repository_leads_to_its_text_on_the_site() {
    let folder = tempfile::tempdir().unwrap();
    let done = script("build.py", &[Path::new("--sources"), folder.path()]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let read = |path: &str| fs::read_to_string(folder.path().join("src").join(path)).unwrap();
    let walks = read("docs/architecture.md");
    assert!(walks.contains("](../shared/rollout/src/decide.rs.html)"), "a file");
    assert!(walks.contains("](promises.md)"), "another page stays as it is");
    assert!(read("README.md").contains("](examples/index.html)"), "a folder");
    let summary = read("SUMMARY.md");
    assert!(summary.contains("](docs/tutorial.md)") && summary.contains("](README.md)"), "{summary}");
}

#[test]
fn a_dead_link_or_anchor_of_the_site_is_found() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("sub")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "a.html",
        "<h1 id=\"x\">x</h1><a href=\"sub/b.html#y\">b</a> <a href=\"#x\">x</a> <a href=\"https://a.example/#no\">out</a>",
    );
    write("sub/b.html", "<h1 id=\"y\">y</h1><a href=\"../a.html\">a</a>");
    let good = script("check_links.py", &[folder.path()]);
    assert!(good.status.success(), "{good:?}");
    assert_eq!(String::from_utf8(good.stdout).unwrap(), "3 links, none of them dead\n");

    for (link, why) in [
        ("c.html", "no such file"),
        ("b.html#x", "no such anchor"),
        ("#z", "no such anchor"),
        ("../../a.html", "no such file"),
        ("../sub", "no such file"),
    ] {
        write("sub/b.html", &format!("<h1 id=\"y\">y</h1><a href=\"{link}\">a</a>"));
        let bad = script("check_links.py", &[folder.path()]);
        let said = String::from_utf8(bad.stdout).unwrap();
        assert_eq!((bad.status.code(), said), (Some(1), format!("sub/b.html links to {link}: {why}\n")));
    }
    fs::remove_dir_all(folder.path().join("sub")).unwrap();
    fs::remove_file(folder.path().join("a.html")).unwrap();
    assert_eq!(
        script("check_links.py", &[folder.path()]).status.code(),
        Some(1),
        "an empty site is no good site"
    );
}
