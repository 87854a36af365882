//! From a kube-aws `cluster.yaml` to ours.
//!
//! Rules rewrite what has a modern form (`rules`); then the result is read as any spec is, and what is refused by name or
//! unknown is taken out, each with its note, until it is accepted. What is amiss in another way is for a person: then
//! nothing is made, and the findings say why.

mod components;
mod item;
mod rules;
#[cfg(test)]
mod tests;

use item::Item;
use serde::Serialize;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::versions::NEWEST;

use super::path::Path;
use super::{SCHEMA_FILE, SPEC, decode, legacy, parse, tree};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is said in its modern form.
    Translated,
    /// It is gone, and nothing of it is left to be said.
    Dropped,
    /// Something was chosen that a person should look at.
    Decision,
}

/// One thing that is different now.
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

/// A spec of ours, made from one of kube-aws.
#[derive(Debug, Clone, PartialEq)]
pub struct Migrated {
    /// The `cluster.yaml`, which is accepted.
    pub text: String,
    /// The cluster's name.
    pub cluster: String,
    /// What is different: translated, dropped, to be decided; each by its path.
    pub changes: Vec<Change>,
}

/// Why no spec was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Unmigrated {
    /// The text that the findings are about: the old one, or what became of it.
    pub text: String,
    /// What is wrong with it.
    pub findings: Vec<Diagnostic>,
}

/// What was changed so far.
#[derive(Default)]
struct Log {
    changes: Vec<Change>,
    /// From where to where values went as they were: what is refused there is the old key's.
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

    fn moved(&mut self, from: &str, to: &str) {
        self.translated(from, format!("written as `{to}`"));
        self.moved.push((from.to_owned(), to.to_owned()));
    }

    /// What was moved to `place` from the old key is gone again, and is not to be told as moved.
    fn taken_back(&mut self, from: &str, place: &str) {
        let whole = self.moved.iter().any(|(old, to)| old == from && to == place);
        self.changes
            .retain(|change| !(whole && change.kind == ChangeKind::Translated && change.path == from));
    }

    /// Takes what is at `from` to `to`, both below `prefix`; what is said there already stays.
    fn carry(&mut self, root: &mut Item, prefix: &str, from: &str, to: &str) {
        let Some(value) = root.take(from) else { return };
        let (from, place) = (format!("{prefix}{from}"), format!("{prefix}{to}"));
        if root.at(to).is_some_and(|there| !there.is_empty() && *there != value) {
            return self.dropped(&from, format!("`{place}` says otherwise, and stays"));
        }
        self.moved(&from, &place);
        root.put(to, value);
    }

    /// What is left of a group that has become another.
    fn left_over(&mut self, path: &str, group: &Item) {
        let mut leaves = Vec::new();
        group.leaves(path, &mut leaves);
        for leaf in leaves {
            let help = legacy::retired(&Path::of(&leaf).pattern());
            self.dropped(
                &leaf,
                help.map_or_else(|| "it has no equal".to_owned(), std::borrow::Cow::into_owned),
            );
        }
    }

    fn decision(&mut self, path: &str, message: &str) {
        self.add(ChangeKind::Decision, path, message.to_owned());
    }
}

/// So often is the result read again; each time at least one key goes.
const MOST_ROUNDS: usize = 60;

/// Findings about a single key, which goes with it.
const OF_ONE_KEY: &[&str] = &["unknown-key", "empty-value", "unknown-value", "out-of-range", "wrong-type"];

/// Makes a spec of ours from a kube-aws `cluster.yaml`.
///
/// # Errors
/// What stands in the way of it: the text is no YAML, or says something that only a person can put right.
pub fn migrate(bytes: &[u8]) -> Result<Migrated, Unmigrated> {
    let whole = |problems: Vec<super::report::Problem>| {
        let root = super::path::Path::default();
        let findings = problems.into_iter().map(|problem| problem.into_diagnostic(Severity::Error, &root));
        Unmigrated { text: String::from_utf8_lossy(bytes).into_owned(), findings: findings.collect() }
    };
    let text = decode(bytes, &SPEC).map_err(|problem| whole(vec![problem]))?;
    let node = tree::read(text, &SPEC).map_err(whole)?;
    let (mut root, mut log) = (Item::of(&node), Log::default());
    let mut empty = Vec::new();
    root.prune("", &mut empty);
    for path in empty {
        log.dropped(&path, "it said nothing".to_owned());
    }
    rules::apply(&mut root, &mut log);
    for _ in 0..MOST_ROUNDS {
        let mut text = head();
        root.write(0, &mut text);
        match parse(text.as_bytes(), None) {
            Ok(accepted) if !settle(&mut root, &accepted.warnings, &mut log) => {
                let mut changes = log.changes;
                changes.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
                return Ok(Migrated { text, cluster: accepted.cluster.name, changes });
            }
            Ok(_) => {}
            Err(findings) => {
                if !mend(&mut root, &findings, &mut log) {
                    return Err(Unmigrated { text, findings });
                }
            }
        }
    }
    let endless = "the spec is not accepted however much of it is taken out";
    Err(whole(vec![super::report::Problem::file("endless", endless)]))
}

fn head() -> String {
    format!(
        "# Made from a kube-aws cluster.yaml by `slipway migrate kube-aws`; the report beside it says what changed.\n\
         # yaml-language-server: $schema={SCHEMA_FILE}\n"
    )
}

/// Takes out what is accepted with a warning only to be ignored. Whether anything was.
fn settle(root: &mut Item, warnings: &[Diagnostic], log: &mut Log) -> bool {
    let mut changed = false;
    for warning in warnings.iter().rev() {
        let help = warning.help.clone().unwrap_or_default();
        let ignored = warning.code == "translated-key" && help.starts_with("remove it");
        if ignored && root.remove(&warning.path) {
            log.dropped(&warning.path, help);
            changed = true;
        }
    }
    changed
}

/// Takes out what is refused for itself. Whether anything was.
fn mend(root: &mut Item, findings: &[Diagnostic], log: &mut Log) -> bool {
    let mut changed = false;
    // The release first, by itself: what else is amiss may be so for an old release only.
    let release =
        |finding: &&Diagnostic| finding.code == "kubernetes-version" && finding.path == "kubernetesVersion";
    let findings = findings.iter().find(release).map_or(findings, std::slice::from_ref);
    // From behind, so that the indices of what is before stay true.
    for finding in findings.iter().rev().filter(|finding| finding.severity == Severity::Error) {
        let help = finding.help.clone().unwrap_or_default();
        match finding.code.as_str() {
            "kubernetes-version" if root.take("kubernetesVersion").is_some() => {
                root.put("kubernetesVersion", Item::Scalar { text: newest(), plain: false });
                let message = format!(
                    "{}: `{}` is written instead; move the workloads to a cluster of that release, or choose another",
                    finding.message,
                    newest()
                );
                log.decision("kubernetesVersion", &message);
                changed = true;
            }
            "missing-key" if finding.path == "kubernetesVersion" => {
                root.put("kubernetesVersion", Item::Scalar { text: newest(), plain: false });
                log.decision(
                    "kubernetesVersion",
                    &format!("kube-aws had one of its own; `{}` is written", newest()),
                );
                changed = true;
            }
            "wrong-type" if modern(root, &finding.path) => changed = true,
            "retired-key" if root.remove(&finding.path) => {
                log.dropped(&finding.path, help);
                changed = true;
            }
            code if OF_ONE_KEY.contains(&code) && root.remove(&finding.path) => {
                log.decision(&finding.path, &format!("removed: {}; {help}", finding.message));
                changed = true;
            }
            code => {
                let Some((from, place)) = refused(code, &finding.path, &log.moved) else { continue };
                if root.remove(&place) {
                    log.taken_back(&from, &place);
                    log.decision(&from, &format!("removed: {}; {help}", finding.message));
                    changed = true;
                }
            }
        }
    }
    changed
}

/// `yes` and `on` were booleans in the YAML of kube-aws' days, and `true` is what they mean. Whether it was one.
fn modern(root: &mut Item, path: &str) -> bool {
    let Some(item) = root.place(path) else { return false };
    let Some(on) = item.boolean().filter(|on| !item.is(&on.to_string())) else { return false };
    *item = Item::word(on.to_string());
    true
}

/// The old key and the place of what is refused where it was moved to, or as a flag that nobody may give.
fn refused(code: &str, path: &str, moved: &[(String, String)]) -> Option<(String, String)> {
    let item = |path: &str| path.rfind(']').map_or(path, |end| &path[..=end]).to_owned();
    if matches!(code, "flag-owned" | "flag-name") {
        return Some((item(path), item(path)));
    }
    let below =
        |to: &str| path.strip_prefix(to).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let (from, to, rest) = moved.iter().find_map(|(from, to)| Some((from, to, below(to)?)))?;
    // An item goes as a whole, and so does a group of which something that must be there is gone.
    let place = match rest {
        _ if code == "missing-key" => to.clone(),
        rest if rest.contains(']') => item(path),
        _ => path.to_owned(),
    };
    Some((from.clone(), place))
}

fn newest() -> String {
    format!("1.{}", NEWEST.minor)
}

/// Keys of kube-aws that are accepted with a warning and have another form, for a test that each is rewritten. What is to be
/// removed is, as its note says.
#[cfg(test)]
fn translated_keys() -> impl Iterator<Item = &'static str> {
    let rewritten = legacy::TRANSLATED.iter().filter(|note| !note.help.starts_with("remove it"));
    rewritten.map(|note| note.pattern)
}
