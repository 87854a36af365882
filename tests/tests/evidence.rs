//! docs/evidence.md says when each heavy check was last run as a whole. No entry may be much older than the code that it vouches for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::Command;

use slipway_tests::tools;

const PAGE: &str = "docs/evidence.md";
/// How much older than the newest change of its code an entry may be.
const DAYS_AT_MOST: i64 = 14;
const DAY_S: i64 = 86_400;

/// A line of the page's table.
struct Entry {
    check: String,
    command: String,
    paths: Vec<String>,
    commit: String,
}

fn entries(page: &str) -> Vec<Entry> {
    let lines = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>());
    cells
        .map(|cells| {
            let [check, command, paths, commit, _date, _figure] = cells[..] else {
                panic!("{PAGE}: a line with {} cells in place of 6: {cells:?}", cells.len());
            };
            let inside =
                |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
            let [command] = inside(command).try_into().unwrap();
            Entry { check: check.to_owned(), command, paths: inside(paths), commit: commit.to_owned() }
        })
        .collect()
}

/// What git prints; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(tools::root()).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

/// When the newest commit of `revision` that touches `paths` was made, in seconds.
fn committed(revision: &str, paths: &[String]) -> Option<i64> {
    let mut arguments = vec!["log", "-1", "--format=%ct", revision, "--"];
    arguments.extend(paths.iter().map(String::as_str));
    git(&arguments)?.parse().ok()
}

/// Issue 23, section 4.
#[test]
fn no_entry_is_two_weeks_older_than_the_code_that_it_vouches_for() {
    let entries = entries(&std::fs::read_to_string(tools::root().join(PAGE)).unwrap());
    assert!(entries.len() > 5, "{PAGE}: its table was not found");
    // A copy without git's history cannot be judged; neither can a shallow clone.
    if git(&["rev-parse", "--is-shallow-repository"]).as_deref() != Some("false") {
        return tools::not_tested("the ages of docs/evidence.md: there is no whole history of git here");
    }
    let mut stale = Vec::new();
    for Entry { check, command, paths, commit } in &entries {
        assert!(!paths.is_empty(), "{PAGE}: {check} vouches for nothing");
        let (Some(ran), Some(changed)) = (committed(commit, &[]), committed("HEAD", paths)) else {
            // A copy may have been made without the commits before it.
            tools::not_tested(&format!(
                "the age of `{check}` in {PAGE}: git knows no commit {commit}, or none of {paths:?}"
            ));
            continue;
        };
        let days = (changed - ran) / DAY_S;
        if days > DAYS_AT_MOST {
            stale.push(format!(
                "{check}: {days} days older than its code; run `{command}` and write down what it says"
            ));
        }
    }
    assert!(stale.is_empty(), "{PAGE}:\n{}", stale.join("\n"));
}
