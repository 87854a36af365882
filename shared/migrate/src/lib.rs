//! From a kube-aws `cluster.yaml` to one of Slipway.
//!
//! 1. [`rules`] rewrites every key that has a modern form.
//! 2. The result is parsed as any spec is. What the parser refuses for itself is removed, with a note in the report, and the
//!    result is parsed again until it is accepted.
//! 3. If a finding needs a person, nothing is made, and the findings are the answer.
//!
//! [`page`] makes `docs/from-kube-aws.md`. Only the command line uses this crate. What `slipway validate` says about a key of
//! kube-aws is part of the spec: [`slipway_spec::legacy`].

mod item;
mod page;
mod places;
mod rules;
#[cfg(test)]
mod tests;

use item::Item;
use serde::Serialize;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::versions::NEWEST;
use slipway_spec::{SCHEMA_FILE, legacy, parse, read_tree};

pub use page::page;

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is written in its modern form.
    Translated,
    /// It is gone, and nothing replaces it.
    Dropped,
    /// A value was chosen or removed, and a person should check it.
    Decision,
}

/// One difference between the old spec and the new one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The key in the old spec.
    pub path: String,
    /// What became of it, or what to decide.
    pub message: String,
}

/// A spec that was made from one of kube-aws.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// The new `cluster.yaml`, which [`parse`] accepts.
    pub text: String,
    /// The cluster's name.
    pub cluster: String,
    /// All differences, ordered by kind and path.
    pub changes: Vec<Change>,
}

/// Why no spec was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Unmigrated {
    /// The old spec, which the findings are about.
    pub text: String,
    /// What is wrong with it.
    pub findings: Vec<Diagnostic>,
}

/// The changes so far.
#[derive(Default)]
struct Log {
    changes: Vec<Change>,
    /// Old and new path of each value that was moved unchanged. A finding at the new path is about the old key.
    moved: Vec<(String, String)>,
}

impl Log {
    fn add(&mut self, kind: ChangeKind, path: &str, message: String) {
        let change = Change { kind, path: path.to_owned(), message };
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }

    fn translated(&mut self, path: &str, message: String) {
        self.add(ChangeKind::Translated, path, message);
    }

    fn dropped(&mut self, path: &str, message: String) {
        self.add(ChangeKind::Dropped, path, message);
    }

    fn decision(&mut self, path: &str, message: &str) {
        self.add(ChangeKind::Decision, path, message.to_owned());
    }

    fn moved(&mut self, from: &str, to: &str) {
        self.translated(from, format!("written as `{to}`"));
        self.moved.push((from.to_owned(), to.to_owned()));
    }

    /// Forgets that `from` was moved to `to`, because the value was removed there.
    fn retract_move(&mut self, from: &str, to: &str) {
        let moved = self.moved.iter().any(|(old, new)| old == from && new == to);
        self.changes
            .retain(|change| !(moved && change.kind == ChangeKind::Translated && change.path == from));
    }

    /// Moves the value at `from` to `to`, both below `prefix`. A value that is there already stays.
    fn move_value(&mut self, root: &mut Item, prefix: &str, from: &str, to: &str) {
        let Some(value) = root.take(from) else { return };
        let (old, new) = (format!("{prefix}{from}"), format!("{prefix}{to}"));
        if root.at(to).is_some_and(|there| !there.is_empty() && *there != value) {
            return self.dropped(&old, format!("`{new}` says otherwise, and stays"));
        }
        self.moved(&old, &new);
        root.put_if_absent(to, value);
    }

    /// Notes each value of a group that the rules had no use for.
    fn drop_rest(&mut self, path: &str, group: &Item) {
        let mut leaves = Vec::new();
        group.leaves(path, &mut leaves);
        for leaf in leaves {
            let help = legacy::replacement(&pattern(&leaf)).unwrap_or_else(|| "it has no equal".into());
            self.dropped(&leaf, help.into_owned());
        }
    }
}

/// A path without its indices, as [`legacy`] names keys: `worker.nodePools[].name`.
fn pattern(path: &str) -> String {
    let mut pieces = path.split('[');
    let mut pattern = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        pattern.push('[');
        pattern.push_str(piece.trim_start_matches(|letter: char| letter.is_ascii_digit()));
    }
    pattern
}

/// The result is parsed at most so often. Each time at least one key is removed.
const MOST_ROUNDS: usize = 60;

/// Findings about a single key: removing the key resolves them.
const ABOUT_ONE_KEY: &[&str] = &["unknown-key", "empty-value", "unknown-value", "out-of-range", "wrong-type"];

/// Makes a spec of Slipway from a kube-aws `cluster.yaml`.
///
/// # Errors
/// The findings that prevent it: the text is no YAML, or contains something that only a person can correct.
pub fn migrate(bytes: &[u8]) -> Result<Migrated, Unmigrated> {
    let unmigrated = |findings| Unmigrated { text: String::from_utf8_lossy(bytes).into_owned(), findings };
    let old = read_tree(bytes).map_err(unmigrated)?;
    let (mut root, mut log) = (Item::from(&old), Log::default());
    let mut empty = Vec::new();
    root.remove_empty("", &mut empty);
    for path in empty {
        log.dropped(&path, "it said nothing".to_owned());
    }
    rules::apply(&mut root, &mut log);
    for _ in 0..MOST_ROUNDS {
        let mut text = header();
        root.write(0, &mut text);
        match parse(text.as_bytes(), None) {
            Ok(accepted) if !remove_ignored(&mut root, &accepted.warnings, &mut log) => {
                let mut changes = log.changes;
                changes.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
                return Ok(Migrated { text, cluster: accepted.cluster.name, changes });
            }
            Ok(_) => {}
            Err(findings) => {
                if !remove_refused(&mut root, &findings, &mut log) {
                    let findings =
                        findings.into_iter().map(|finding| places::in_old(finding, &old, &log.moved));
                    return Err(unmigrated(findings.collect()));
                }
            }
        }
    }
    let endless = "the spec is not accepted however much of it is taken out";
    Err(unmigrated(vec![Diagnostic::for_whole_spec("endless", endless)]))
}

fn header() -> String {
    format!(
        "# Made from a kube-aws cluster.yaml by `slipway migrate kube-aws`; the report beside it says what changed.\n\
         # yaml-language-server: $schema={SCHEMA_FILE}\n"
    )
}

/// Removes the keys that are accepted with a warning and then ignored, and feature gates that the target's release does not have, with which
/// its programs do not start. Returns whether there were any.
fn remove_ignored(root: &mut Item, warnings: &[Diagnostic], log: &mut Log) -> bool {
    let mut changed = false;
    for warning in warnings.iter().rev() {
        let help = warning.help.clone().unwrap_or_default();
        let ignored = warning.code == "translated-key" && help.starts_with("remove it");
        if ignored && root.remove(&warning.path) {
            log.dropped(&warning.path, help);
            changed = true;
        } else if warning.code == "feature-gate" && root.remove(&warning.path) {
            log.dropped(&warning.path, format!("{}: programs would not start with it", warning.message));
            changed = true;
        }
    }
    changed
}

/// Removes or replaces the values that the parser refuses for themselves. Returns whether there were any.
fn remove_refused(root: &mut Item, findings: &[Diagnostic], log: &mut Log) -> bool {
    let mut changed = false;
    // A release that is too old causes other findings, so it is replaced alone.
    let release =
        |finding: &&Diagnostic| finding.code == "kubernetes-version" && finding.path == "kubernetesVersion";
    let findings = findings.iter().find(release).map_or(findings, std::slice::from_ref);
    // From the end, so that removing an item does not change the indices in the findings that follow.
    for finding in findings.iter().rev().filter(|finding| finding.severity == Severity::Error) {
        changed |= remove_one(root, finding, log);
    }
    changed
}

/// Removes or replaces the value that `finding` is about. Returns whether it did.
fn remove_one(root: &mut Item, finding: &Diagnostic, log: &mut Log) -> bool {
    let Diagnostic { path, message, .. } = finding;
    let help = finding.help.as_deref().unwrap_or_default();
    match finding.code.as_str() {
        "kubernetes-version" if root.take("kubernetesVersion").is_some() => {
            let newest = put_newest_version(root);
            let message = format!(
                "{message}: `{newest}` is written instead; move the workloads to a cluster of that release, or choose another"
            );
            log.decision("kubernetesVersion", &message);
        }
        "missing-key" if path == "kubernetesVersion" => {
            let newest = put_newest_version(root);
            log.decision(path, &format!("kube-aws had one of its own; `{newest}` is written"));
        }
        "wrong-type" if write_boolean(root, path) => {}
        "retired-key" if root.remove(path) => log.dropped(path, help.to_owned()),
        code if ABOUT_ONE_KEY.contains(&code) && root.remove(path) => {
            log.decision(path, &format!("removed: {message}; {help}"));
        }
        code => {
            let Some((old, place)) = old_key_and_place(code, path, &log.moved) else { return false };
            if !root.remove(&place) {
                return false;
            }
            log.retract_move(&old, &place);
            log.decision(&old, &format!("removed: {message}; {help}"));
        }
    }
    true
}

/// Writes the newest release that Slipway knows, and returns it.
fn put_newest_version(root: &mut Item) -> String {
    let newest = format!("1.{}", NEWEST.minor);
    root.put_if_absent("kubernetesVersion", Item::quoted(&newest));
    newest
}

/// Writes `true` for `yes` and `on`, and `false` for their opposites: kube-aws read YAML 1.1. Returns whether it did.
fn write_boolean(root: &mut Item, path: &str) -> bool {
    let Some(item) = root.at_finding(path) else { return false };
    let Some(on) = item.boolean().filter(|on| !item.is(&on.to_string())) else { return false };
    *item = Item::plain(on.to_string());
    true
}

/// The old key of a refused value, and the path to remove: for a value that was moved, or a flag that nobody may set.
fn old_key_and_place(code: &str, path: &str, moved: &[(String, String)]) -> Option<(String, String)> {
    let item = |path: &str| path.rfind(']').map_or(path, |end| &path[..=end]).to_owned();
    if matches!(code, "flag-owned" | "flag-name") {
        return Some((item(path), item(path)));
    }
    let below =
        |to: &str| path.strip_prefix(to).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let (from, to, rest) = moved.iter().find_map(|(from, to)| Some((from, to, below(to)?)))?;
    // An item of a list is removed whole, and so is a group that lacks a key it must have.
    let place = match rest {
        _ if code == "missing-key" => to.clone(),
        rest if rest.contains(']') => item(path),
        _ => path.to_owned(),
    };
    Some((from.clone(), place))
}
