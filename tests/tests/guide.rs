//! Compares docs/architecture.md with the code: its walks name functions that exist, its table has every room, and its picture is drawn from
//! cargo's metadata. Pages of docs/adr have the same headings.
//! `UPDATE_DOCS=1 cargo test --workspace --test guide` draws the picture again.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use slipway_tests::tools;

const BEGIN: &str = "<!-- dependencies -->\n";
const END: &str = "<!-- end of dependencies -->";

fn page() -> String {
    fs::read_to_string(tools::root().join("docs/architecture.md")).unwrap()
}

/// Each function that a walk links to, as (path of the function, file). Links have the form [`slipway_flows::scan::scan`](../shared/…).
fn steps(page: &str) -> Vec<(String, String)> {
    let links = page.split("[`slipway").skip(1);
    let read = |link: &str| {
        let (function, rest) = link.split_once("`](../")?;
        Some((format!("slipway{function}"), rest.split_once(')')?.0.to_owned()))
    };
    links.filter_map(read).collect()
}

#[test]
fn the_walks_lead_through_functions_that_exist() {
    let steps = steps(&page());
    for (function, file) in &steps {
        let text =
            fs::read_to_string(tools::root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let name = function.rsplit("::").next().unwrap();
        let defined = ["(", "<"].iter().any(|next| text.contains(&format!("fn {name}{next}")));
        assert!(defined, "docs/architecture.md walks through {function}, which is not in {file}");
    }
    assert!(steps.len() > 40, "{} steps: is the search broken?", steps.len());
}

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(tools::root().join("Cargo.toml"))
        .other_options(["--offline".to_owned(), "--locked".to_owned()])
        .exec()
        .unwrap()
}

/// The folders in the first column of the table of rooms.
fn rooms(page: &str) -> BTreeSet<String> {
    let (_, rest) = page.split_once("\n## The rooms\n").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let read = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_owned());
    table.lines().filter_map(read).collect()
}

#[test]
fn the_table_of_rooms_has_every_crate_and_nothing_that_is_not_there() {
    let rooms = rooms(&page());
    let root = tools::root();
    let metadata = metadata();
    for package in metadata.workspace_packages() {
        let folder = package.manifest_path.parent().unwrap().strip_prefix(&root).unwrap();
        let parent = folder.parent().map(|parent| format!("{parent}/*"));
        let found = rooms.contains(folder.as_str()) || parent.is_some_and(|parent| rooms.contains(&parent));
        assert!(found, "docs/architecture.md, The rooms, has no row for {folder}");
    }
    for room in ["fuzz", "infra", "examples", ".ci"] {
        assert!(rooms.contains(room), "docs/architecture.md, The rooms, has no row for {room}");
    }
    for room in &rooms {
        let folder = root.join(room.trim_end_matches("/*"));
        assert!(
            folder.is_dir(),
            "docs/architecture.md, The rooms, has a row for {room}, which does not exist"
        );
    }
}

#[test]
fn every_decision_has_the_same_headings() {
    let folder = tools::root().join("docs/adr");
    let mut pages = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == "README.md" {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
        let expected = ["Context", "Decision", "Alternatives considered", "Consequences"];
        assert_eq!(headings, expected, "{}", path.display());
        pages += 1;
    }
    assert!(pages > 30, "{pages} pages: is the search broken?");
}

/// The crates of the workspace, each with its direct dependencies in the workspace.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = metadata();
    let packages = metadata.workspace_packages();
    let ours: BTreeSet<String> = packages.iter().map(|package| package.name.to_string()).collect();
    let of = |package: &&cargo_metadata::Package| {
        let normal = package.dependencies.iter().filter(|below| below.kind == DependencyKind::Normal);
        let below = normal.map(|below| below.name.clone()).filter(|below| ours.contains(below));
        (package.name.to_string(), below.collect())
    };
    packages.iter().map(of).filter(|(name, _): &(String, _)| name != "slipway-tests").collect()
}

/// All direct and indirect dependencies of `from`.
fn reached(arrows: &BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let direct = &arrows[from];
    direct.iter().flat_map(|below| reached(arrows, below)).chain(direct.iter().cloned()).collect()
}

/// The picture as Mermaid, which GitHub draws. An arrow that follows from others is left out.
fn picture() -> String {
    let arrows = arrows();
    let mut lines = vec!["```mermaid".to_owned(), "graph TD".to_owned()];
    for (from, below) in &arrows {
        let implied: BTreeSet<String> = below.iter().flat_map(|to| reached(&arrows, to)).collect();
        let short = |name: &str| name.strip_prefix("slipway-").unwrap_or("cli").to_owned();
        lines.extend(below.difference(&implied).map(|to| format!("    {} --> {}", short(from), short(to))));
    }
    lines.push("```".to_owned());
    lines.join("\n") + "\n"
}

#[test]
fn the_picture_of_the_crates_is_cargos() {
    let page = page();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (stored, after) = rest.split_once(END).unwrap();
    let picture = picture();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let file = tools::root().join("docs/architecture.md");
        return fs::write(file, format!("{before}{BEGIN}{picture}{END}{after}")).unwrap();
    }
    assert!(stored == picture, "stale: run UPDATE_DOCS=1 cargo test --workspace --test guide");
}
