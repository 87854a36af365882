//! Rules about the repository that no other tool holds.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slipway_tests::tools;

/// A file that outgrows this is two ideas.
const LINES_AT_MOST: usize = 600;

/// What may lie at the top.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitattributes",
    ".gitignore",
    ".github",
    "CHANGELOG.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "cli",
    "clippy.toml",
    "deny.toml",
    "docs",
    "examples",
    "functions",
    "infra",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "shared",
    "tests",
];

/// What is made, not written, or not ours.
const MADE: &[&str] = &[".git", ".tools", ".demo", "target", "__pycache__", ".aws-sam", "dist"];

fn files() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            if MADE.iter().any(|made| name == *made) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                walk(&path, found);
            } else {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&tools::root(), &mut found);
    assert!(found.len() > 50, "the walk finds nothing");
    found
}

fn sources() -> impl Iterator<Item = (PathBuf, String)> {
    let rust = files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    rust.map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(tools::root()).unwrap().display().to_string()
}

#[test]
fn the_top_holds_what_it_should() {
    for entry in fs::read_dir(tools::root()).unwrap() {
        let name = entry.unwrap().file_name();
        let known = TOP.iter().chain(MADE).any(|known| name == *known);
        assert!(known, "{name:?} lies at the top: put it in a room, or name it here");
    }
}

#[test]
fn code_lies_in_rooms() {
    for (path, _) in sources() {
        let path = relative(&path);
        let mut parts = path.split('/');
        let room =
            (parts.next().unwrap(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let fits = match room {
            ("shared" | "functions", _, inside) => {
                ["src", "tests", "benches", "examples", "build.rs"].contains(&inside)
            }
            ("cli" | "node" | "tests", inside, _) => {
                ["src", "tests", "benches", "examples", "build.rs"].contains(&inside)
            }
            (_, _, _) => false,
        };
        assert!(fits, "{path} lies in no room");
    }
}

#[test]
fn files_are_read_in_one_sitting() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_AT_MOST, "{} has {lines} lines: it is two ideas", relative(&path));
    }
}

#[test]
fn every_file_says_what_it_is() {
    for (path, text) in sources() {
        let says = text.lines().find(|line| !line.is_empty()).is_some_and(|line| line.starts_with("//! "));
        assert!(says, "{} does not begin with `//! …`", relative(&path));
    }
}

#[test]
fn nothing_is_left_undone() {
    // Put together here, so that this file does not find itself.
    let undone = [
        ["todo", "!("].concat(),
        ["unimplemented", "!("].concat(),
        ["FIX", "ME"].concat(),
        ["#[ig", "nore]"].concat(),
    ];
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let found = undone.iter().find(|undone| line.contains(undone.as_str()));
            assert!(found.is_none(), "{}:{}: {}", relative(&path), number + 1, line.trim());
        }
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let homes = [["/wo", "rk/"].concat(), ["/ho", "me/"].concat(), ["/root", "/"].concat()];
    let text_files = ["rs", "toml", "md", "yaml", "yml", "py", "sh", "txt", ""];
    for path in files() {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        if !text_files.contains(&extension.as_str()) {
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let found = homes.iter().find(|home| line.contains(home.as_str()));
            assert!(found.is_none(), "{}:{}: {}", relative(&path), number + 1, line.trim());
        }
    }
}

#[test]
fn scripts_run_and_stop_at_the_first_error() {
    for path in files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let Some(first) = text.lines().next().filter(|line| line.starts_with("#!") && line.contains("sh"))
        else {
            continue;
        };
        assert!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o100 != 0,
            "{} begins with {first} and cannot be run",
            relative(&path)
        );
        let strict = text.lines().any(|line| line.trim_start().starts_with("set -e"));
        assert!(strict, "{} goes on after an error: `set -eu`", relative(&path));
    }
}
