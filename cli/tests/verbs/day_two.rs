//! Changes of a cluster that runs, as data with what a plan says of each: `day_two.cases`.
//!
//! A case has a name and how the spec differs from `examples/production.yaml`: `- line` is taken away, and `+ line` takes its place or is
//! added at the end. What follows is the verdict. `UPDATE_CASES=1 cargo test -p slipway --test verbs day_two` writes the verdicts;
//! read `git diff` then, as somebody who sees them for the first time.

use std::fmt::Write as _;

use serde_json::Value;

use super::*;

const BASE: &str = include_str!("../../../examples/production.yaml");

/// The spec of a case.
fn edited(edits: &[&str]) -> String {
    let mut lines: Vec<&str> = BASE.lines().collect();
    let mut place = lines.len();
    for edit in edits {
        let line = edit.get(2..).unwrap_or_default();
        if edit.starts_with('-') {
            let from = if place == lines.len() { 0 } else { place };
            let found = lines[from..].iter().position(|other| *other == line);
            place = from + found.unwrap_or_else(|| panic!("`{line}` is not in the base there"));
            lines.remove(place);
        } else {
            lines.insert(place, line);
            place += 1;
        }
    }
    lines.iter().flat_map(|line| [line, "\n"]).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// What a plan says, without what only repeats the template.
fn verdict(run: &Run) -> String {
    let json = run.json();
    let mut said = format!("exit {}", run.code);
    if let Some(summary) = json["summary"].as_str() {
        let _ = write!(said, ", {summary}");
    }
    said.push('\n');
    if let Some(error) = json["error"]["message"].as_str() {
        let _ = writeln!(said, "error: {error}\n    {}", text(&json["error"]["help"]));
    }
    for found in json["diagnostics"].as_array().into_iter().flatten() {
        let (severity, code, path) = (text(&found["severity"]), text(&found["code"]), text(&found["path"]));
        // The sandbox has no registry to ask, and a folder has no agent.
        let of_the_sandbox = ["stand-in", "no-agent"].iter().any(|other| code.contains(other));
        if !of_the_sandbox {
            let (message, help) = (text(&found["message"]), text(&found["help"]));
            let _ = writeln!(said, "{severity} {code} at `{path}`: {message}\n    {help}");
        }
    }
    for node in json["plan"]["nodes"].as_array().into_iter().flatten() {
        let reasons = node["reasons"].as_array().into_iter().flatten().map(text);
        let undrained = node["undrained"].as_array().into_iter().flatten().map(|one| text(&one["words"]));
        let reasons: Vec<&str> = reasons.chain(undrained).collect();
        if node["action"] != "untouched" || !reasons.is_empty() {
            let _ = writeln!(said, "{} {}", text(&node["role"]), text(&node["action"]));
            reasons.iter().for_each(|reason| writeln!(said, "    {reason}").unwrap());
        }
    }
    if let Some(why) = json["notExecuted"].as_str() {
        let _ = writeln!(said, "not executed: {why}");
    }
    said
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the environment")]
fn each_change_has_its_verdict() {
    let update = std::env::var_os("UPDATE_CASES").is_some();
    let place = Place::new();
    place.write("cluster.yaml", BASE);
    let run = place.run("render cluster.yaml --out out");
    assert_eq!(run.code, 0, "{}", run.output());
    let path = format!("{}/tests/verbs/day_two.cases", env!("CARGO_MANIFEST_DIR"));
    let stored = std::fs::read_to_string(&path).unwrap();
    let mut pieces = stored.split("\n## ");
    let mut written = pieces.next().unwrap_or_default().to_owned();
    let (mut failed, mut count) = (Vec::new(), 0);
    for stored in pieces {
        let (name, rest) = stored.split_once('\n').unwrap();
        let edits: Vec<&str> = rest.lines().take_while(|line| line.starts_with(['+', '-'])).collect();
        place.write("cluster.yaml", edited(&edits));
        let run = place.run("plan cluster.yaml --against out --output json");
        let found = format!("{name}\n{}\n{}", edits.join("\n"), verdict(&run));
        if found != stored {
            failed.push(format!("day_two.cases says\n\n{stored}\nand the plan says:\n\n{found}"));
        }
        written.push_str("\n## ");
        written.push_str(&found);
        count += 1;
    }
    if update {
        std::fs::write(&path, written).unwrap();
    }
    assert!(update || failed.is_empty(), "{}", failed.join("\n"));
    assert!(count >= 20, "only {count} changes are tried");
}
