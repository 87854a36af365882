//! Rules of the repository that no other tool checks.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use slipway_tests::tools;

/// A longer file has two subjects.
const LINES_AT_MOST: usize = 600;

/// What is allowed at the top level.
const TOP: &[&str] = &[
    ".cargo",
    ".ci",
    ".gitattributes",
    ".gitignore",
    ".github",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "Makefile",
    "README.md",
    "agent",
    "cli",
    "clippy.toml",
    "deny.toml",
    "docs",
    "examples",
    "functions",
    "fuzz",
    "infra",
    "rust-toolchain.toml",
    "rustfmt.toml",
    "shared",
    "tests",
];

/// Files that are generated, or not ours.
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

/// Texts that people write: everything except data, snapshots and the lock file.
fn texts() -> impl Iterator<Item = (PathBuf, String)> {
    const WRITTEN: &[&str] = &["rs", "toml", "md", "yaml", "yml", "py", "sh", "txt", "in", ""];
    let written = files().into_iter().filter(|path| {
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        WRITTEN.contains(&extension.as_str())
    });
    written.filter_map(|path| fs::read_to_string(&path).ok().map(|text| (path, text)))
}

fn relative(path: &Path) -> String {
    path.strip_prefix(tools::root()).unwrap().display().to_string()
}

#[test]
fn the_top_holds_what_it_should() {
    for entry in fs::read_dir(tools::root()).unwrap() {
        let name = entry.unwrap().file_name();
        let known = TOP.iter().chain(MADE).any(|known| name == *known);
        assert!(known, "{name:?} is at the top level: move it to a room, or add it to `TOP`");
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
            ("agent" | "cli" | "tests", inside, _) => {
                ["src", "tests", "benches", "examples", "build.rs"].contains(&inside)
            }
            ("fuzz", inside, _) => inside == "fuzz_targets",
            (_, _, _) => false,
        };
        assert!(fits, "{path} is in no room");
    }
}

#[test]
fn files_are_read_in_one_sitting() {
    for (path, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_AT_MOST, "{} has {lines} lines: split it", relative(&path));
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
    // Assembled here, so that this file does not find itself.
    let undone = [
        ["todo", "!("].concat(),
        ["unimplemented", "!("].concat(),
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["XX", "X"].concat(),
        ["dbg", "!("].concat(),
        ["#[ig", "nore]"].concat(),
    ];
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            let found = undone.iter().find(|undone| line.contains(undone.as_str()));
            assert!(found.is_none(), "{}:{}: {}", relative(&path), number + 1, line.trim());
        }
    }
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    let homes = [["/wo", "rk/"].concat(), ["/ho", "me/"].concat(), ["/root", "/"].concat()];
    for (path, text) in texts() {
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
            let is_script = path.extension().is_some_and(|extension| extension == "sh");
            assert!(!is_script, "{} does not name its interpreter: begin with #!", relative(&path));
            continue;
        };
        assert!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o100 != 0,
            "{} begins with {first} and is not executable",
            relative(&path)
        );
        let strict = text.lines().any(|line| line.trim_start().starts_with("set -e"));
        assert!(strict, "{} continues after an error: add `set -eu`", relative(&path));
    }
}

#[test]
fn text_ends_with_one_newline_and_lines_with_none_but_that() {
    for (path, text) in texts() {
        let path = relative(&path);
        if text.is_empty() {
            continue;
        }
        let ends_well = text.ends_with('\n') && !text.ends_with("\n\n");
        assert!(ends_well, "{path} must end with exactly one newline");
        for (number, line) in text.lines().enumerate() {
            assert_eq!(line, line.trim_end(), "{path}:{}: blanks at the line's end", number + 1);
        }
    }
}

#[test]
fn every_example_says_what_it_is_for() {
    let folder = tools::root().join("examples");
    let mut count = 0;
    for path in files().into_iter().filter(|path| path.parent() == Some(folder.as_path())) {
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        let says = first.strip_prefix("# ").is_some_and(|words| words.split(' ').count() > 3);
        assert!(says, "{} must begin with a comment that says what it shows", relative(&path));
        count += 1;
    }
    assert!(count > 3, "the examples are gone");
}

#[test]
fn functions_are_thin() {
    // A `main` builds clients and passes them on; everything else can be tested where it belongs.
    const CODE_LINES_AT_MOST: usize = 64;
    let mains = sources().filter(|(path, _)| {
        let path = relative(path);
        path.starts_with("functions/") && path.ends_with("/src/main.rs")
    });
    let mut count = 0;
    for (path, text) in mains {
        let code = text.lines().filter(|line| !line.is_empty() && !line.trim_start().starts_with("//"));
        let lines = code.count();
        assert!(lines <= CODE_LINES_AT_MOST, "{} has {lines} lines of code", relative(&path));
        count += 1;
    }
    assert!(count >= 2, "the functions are gone");
}

#[test]
fn only_tests_may_unwrap() {
    // clippy finds each `unwrap`, unless the lint is allowed where it matters.
    let (allow, excuse) = (["clippy::unwrap", "_used"].concat(), ["clippy::expect", "_used"].concat());
    for (path, text) in sources() {
        let path = relative(&path);
        let is_test = path
            .split('/')
            .any(|part| ["tests", "tests.rs", "testing.rs", "fixture.rs", "examples"].contains(&part))
            && !path.starts_with("tests/src/");
        let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let allows = product.contains(&allow) || product.contains(&excuse);
        assert!(is_test || !allows, "{path} allows `unwrap` outside of tests");
    }
}

/// The references of a document in this repository: links, and paths in backquotes that begin with a room.
fn mentions(text: &str) -> Vec<String> {
    const ROOMS: &[&str] =
        &["shared/", "functions/", "tests/", "infra/", "docs/", "examples/", "cli/", "agent/", ".ci/"];
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links.filter(|link| !link.contains("://") && !link.starts_with(['#', '<']));
    let quoted = text.split('`').skip(1).step_by(2);
    let quoted = quoted.filter(|words| ROOMS.iter().any(|room| words.starts_with(room)));
    // A pattern or a placeholder is not a file.
    let quoted = quoted.filter(|words| !words.contains(['*', '<', '…', '{', ' ', '$']));
    links.chain(quoted).map(|found| found.split(['#', ':']).next().unwrap_or_default().to_owned()).collect()
}

#[test]
fn documents_mention_what_exists() {
    let mut count = 0;
    for (path, text) in texts().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "md")) {
        let beside = path.parent().unwrap();
        for mention in mentions(&text).into_iter().filter(|mention| !mention.is_empty()) {
            let found = beside.join(&mention).exists() || tools::root().join(&mention).exists();
            assert!(found, "{} mentions {mention}, which does not exist", relative(&path));
            count += 1;
        }
    }
    assert!(count > 3, "no document mentions anything: is the search broken?");
}

/// The lines of a page outside of its blocks of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !is_fence && !in_code
    })
}

/// The anchors of a page's headings as GitHub makes them: lower case, without punctuation, hyphens for spaces, a number for a repeated one.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(text)
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    let anchor = |heading: &str| {
        // Of a link only its words are shown.
        let after = |part: &'_ str| part.split_once(')').map_or("", |(_, rest)| rest).to_owned();
        let mut parts = heading.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        let shown = parts.fold(first, |shown, part| shown + &after(part));
        let kept = shown.trim().chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>().to_lowercase()
    };
    headings
        .map(|heading| {
            let anchor = anchor(heading);
            let count = seen.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

/// The links of a page to pages of this repository, with their anchors.
fn page_links(page: &Path, text: &str) -> Vec<(PathBuf, String)> {
    let of_line = |line: &str| -> Vec<String> {
        line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect()
    };
    let links = prose(text).flat_map(of_line).filter(|link| !link.contains("://") && !link.starts_with('<'));
    let resolved = links.filter_map(|link| {
        let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = if path.is_empty() { page.to_owned() } else { page.parent()?.join(path) };
        let target = target.canonicalize().ok()?;
        target.extension().is_some_and(|ending| ending == "md").then(|| (target, anchor.to_owned()))
    });
    resolved.collect()
}

#[test]
fn documents_link_to_headings_that_exist() {
    assert_eq!(
        anchors("# A `b` (c)\n## x\n```\n# no\n```\n## x\n## See [d](e.md#f)!\n#no"),
        ["a-b-c", "see-d", "x", "x-1"].map(str::to_owned).into()
    );
    let mut count = 0;
    for (path, text) in texts().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "md")) {
        for (target, anchor) in page_links(&path, &text).into_iter().filter(|(_, anchor)| !anchor.is_empty())
        {
            let found = anchors(&fs::read_to_string(&target).unwrap()).contains(&anchor);
            assert!(
                found,
                "{} links to #{anchor} of {}, which has no such heading",
                relative(&path),
                relative(&target)
            );
            count += 1;
        }
    }
    assert!(count > 50, "the documents link to {count} headings: is the search broken?");
}

#[test]
fn every_document_can_be_reached_from_the_readme() {
    let root = tools::root().canonicalize().unwrap();
    let (mut seen, mut todo) = (BTreeSet::new(), vec![root.join("README.md")]);
    while let Some(page) = todo.pop() {
        if seen.insert(page.clone()) {
            let text = fs::read_to_string(&page).unwrap();
            todo.extend(page_links(&page, &text).into_iter().map(|(target, _)| target));
        }
    }
    // The summary is for mdBook, and site.rs holds it against the pages.
    let pages = files()
        .into_iter()
        .filter(|path| relative(path).starts_with("docs/") && relative(path) != "docs/SUMMARY.md");
    let pages: Vec<PathBuf> =
        pages.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    for page in &pages {
        let reached = seen.contains(&page.canonicalize().unwrap());
        assert!(
            reached,
            "no page leads to {}: link it from README.md, or from a page that it belongs to",
            relative(page)
        );
    }
    assert!(pages.len() > 20, "{pages:?}");
}

#[test]
fn promises_name_tests_that_exist() {
    let promises = fs::read_to_string(tools::root().join("docs/promises.md")).unwrap();
    let functions: Vec<String> = sources()
        .flat_map(|(_, text)| {
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            names.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut count = 0;
    for name in promises.split('`').skip(1).step_by(2) {
        let is_test = name.matches('_').count() >= 3 || name.starts_with('p') && name.ends_with("_*");
        if !is_test {
            continue;
        }
        let found = match name.strip_suffix('*') {
            Some(beginning) => functions.iter().any(|function| function.starts_with(beginning)),
            None => functions.iter().any(|function| function == name),
        };
        assert!(found, "docs/promises.md names the test {name}, which does not exist");
        count += 1;
    }
    assert!(count > 20, "the promises name {count} tests: is the search broken?");
    for number in 1..=10 {
        assert!(
            promises.contains(&format!("P{number} ")),
            "docs/promises.md does not have P{number} any more"
        );
    }
}

/// `name==version` of a requirements file.
fn pins(file: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(tools::root().join(file)).unwrap();
    let lines = text.lines().filter_map(|line| line.split(['#', ';']).next()?.trim().split_once("=="));
    lines.map(|(name, version)| (name.to_lowercase(), version.trim().to_owned())).collect()
}

#[test]
fn tools_that_are_pinned_twice_are_pinned_the_same() {
    // The SAM CLI pins so many packages itself that it has its own environment; packages in both must have the same version.
    let locked = pins("tests/tools/requirements.txt");
    let mut shared = 0;
    for file in ["tests/tools/requirements.in", "tests/requirements-lint.txt"] {
        for (name, version) in pins(file) {
            let name = name.split('[').next().unwrap_or_default();
            if let Some((_, there)) = locked.iter().find(|(there, _)| there == name) {
                assert_eq!(
                    &version, there,
                    "{file} and tests/tools/requirements.txt have different versions of {name}"
                );
                shared += 1;
            }
        }
    }
    assert!(shared > 5, "the files share only {shared} pins: is the search broken?");
    // The schemas of the simulated CloudFormation and of the plan's rules come from the same release.
    let (_, linter) = locked.iter().find(|(name, _)| name == "cfn-lint").unwrap();
    for file in ["shared/sim/data/resource-types.json", "shared/plan/data/update-rules.json"] {
        let text = fs::read_to_string(tools::root().join(file)).unwrap();
        assert!(
            text.contains(&format!("\"cfn-lint {linter}\"")),
            "{file} was not made with cfn-lint {linter}: run make.py"
        );
    }
    // So does the table of instance types.
    let of = |wanted: &str| {
        locked.iter().find(|(name, _)| name == wanted).map(|(_, version)| version.clone()).unwrap()
    };
    let text = fs::read_to_string(tools::root().join("shared/spec/data/instance-types.txt")).unwrap();
    let source = format!("from botocore {}, moto {}\n", of("botocore"), of("moto"));
    assert!(text.contains(&source), "instance-types.txt was not made {source}: run instance_types.py");
}
