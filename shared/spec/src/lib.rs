//! From the text of a `cluster.yaml` to a checked [`Cluster`](slipway_core::cluster::Cluster), or to diagnostics with line, column and help.

pub mod allowed;
mod check;
mod documents;
mod duration;
mod foreign;
pub mod instance_types;
pub mod legacy;
mod lower;
mod model;
pub mod patch;
pub(crate) mod path;
pub(crate) mod problem;
mod programs;
mod regions;
pub(crate) mod report;
mod schema;
pub(crate) mod shape;
mod shown;
mod starter;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;
pub(crate) mod tree;

use path::Path;
use problem::Problem;
use report::Report;
use slipway_core::cluster::Cluster;
use slipway_core::diagnostic::{Diagnostic, Severity};
use tree::Document;

pub use documents::{cluster_yaml, table_cell};
pub use problem::Span;
pub use schema::{resolve, schema};
pub use starter::{SCHEMA_FILE, Starter, starter};
pub use tree::{Entry, Kind, Node};

/// A spec that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// The checked cluster.
    pub cluster: Cluster,
    /// What a person should know: translated keys and the like. Never errors.
    pub warnings: Vec<Diagnostic>,
    /// Where each key is in the text, for findings that need more than the text.
    pub places: Places,
}

/// Where each key of a spec is in its text.
#[derive(Debug)]
pub struct Places(Node);

/// What a spec must agree with because of where it was uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected<'a> {
    /// The folder that the spec lies in, which must be the cluster's name.
    pub name: &'a str,
    /// The region of the installation, which makes all its clusters in it; `None` if none is known, as on a
    /// person's machine.
    pub region: Option<&'a str>,
}

/// The largest spec that is read, in bytes: hundreds of pools fit in, and an upload of 10 MB costs nothing.
pub const MOST_BYTES: usize = 256 * 1024;

/// What findings call a spec.
const SPEC: Document = Document {
    name: "the spec",
    other: "upload the cluster.yaml itself",
    empty: "write one with `slipway init`, or start from examples/minimal.yaml",
    several: "one file describes one cluster: put each into clusters/<name>/cluster.yaml of its own",
    tag: "a cluster.yaml holds plain values; CloudFormation functions such as !Ref belong in templates",
    most_bytes: MOST_BYTES,
};

/// Reads a `cluster.yaml`: syntax, keys and types, references and relations, all findings at once.
///
/// `expected` is what the place of the upload says; `None` where a spec has none.
///
/// # Errors
/// Every finding in the order of the text, warnings included, if at least one is an error.
pub fn parse(text: &[u8], expected: Option<&Expected<'_>>) -> Result<Accepted, Vec<Diagnostic>> {
    let tree = read_tree(text)?;
    let mut report = Report::new(&tree);
    let shaped = shape::read(schema::root(), &tree, &mut report);
    let cluster = match serde_json::from_value::<model::Spec>(shaped) {
        Ok(spec) => lower::lower(&spec, expected, &mut report),
        // Items that were refused leave holes that the types do not take: the findings so far are the answer.
        Err(error) => {
            if !report.refused(&Path::default()) {
                report.error(
                    "wrong-type",
                    &Path::default(),
                    error.to_string(),
                    "compare with the published schema",
                );
            }
            None
        }
    };
    let diagnostics = report.finish();
    match cluster {
        Some(cluster) if diagnostics.iter().all(|diagnostic| diagnostic.severity == Severity::Warning) => {
            Ok(Accepted { cluster, warnings: diagnostics, places: Places(tree) })
        }
        Some(_) | None => Err(diagnostics),
    }
}

/// Reads the YAML of a `cluster.yaml`, whatever its keys are.
///
/// # Errors
/// The findings about a text that is no YAML, too large, or has duplicate keys.
pub fn read_tree(text: &[u8]) -> Result<Node, Vec<Diagnostic>> {
    let text = decode(text, &SPEC).map_err(|problem| whole(vec![problem]))?;
    if let Some(problem) = foreign::of_another_tool(text) {
        return Err(whole(vec![problem]));
    }
    tree::read(text, &SPEC).map_err(whole)
}

/// What is wrong with a spec given something besides its text, such as the release that is deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objection {
    /// With an error the spec is refused.
    pub severity: Severity,
    /// A stable name, as of a [`slipway_core::diagnostic::Diagnostic`].
    pub code: &'static str,
    /// Paths of the keys that may be the cause, the most specific first.
    pub paths: Vec<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl Objection {
    /// An objection with which the spec is refused.
    #[must_use]
    pub fn error(code: &'static str, paths: Vec<String>, message: String, help: String) -> Self {
        Self { severity: Severity::Error, code, paths, message, help }
    }
}

/// What a person who writes a spec should consider, although it is accepted as it is: its certificates expire.
#[must_use]
pub fn advice(cluster: &Cluster, places: &Places) -> Vec<Diagnostic> {
    let certificates = &cluster.certificates;
    if certificates.rollout_before_expiry.is_some() {
        return Vec::new();
    }
    let message = format!(
        "nobody renews the certificates of this cluster: {} days after they were issued, its API and etcd stop",
        certificates.leaf_days
    );
    let help = "add `certificatesConfiguration: {rolloutBeforeExpiry: {enabled: true}}`".to_owned();
    let paths = ["certificatesConfiguration.rolloutBeforeExpiry.enabled", "certificatesConfiguration"];
    places.findings(vec![Objection {
        severity: Severity::Warning,
        code: "renewal-off",
        paths: paths.map(str::to_owned).into(),
        message,
        help,
    }])
}

impl Places {
    /// The findings for `objections`, each at its place in the text and in that order.
    #[must_use]
    pub fn findings(&self, objections: Vec<Objection>) -> Vec<Diagnostic> {
        let mut report = Report::new(&self.0);
        for Objection { severity, code, paths, message, help } in objections {
            // The first of the keys that the spec contains; the last, with its default, if it contains none.
            let paths: Vec<Path> = paths.iter().map(|path| Path::parse(path)).collect();
            let written = paths.iter().find(|path| report.has(path)).or(paths.last());
            let path = written.cloned().unwrap_or_default();
            match severity {
                Severity::Error => report.error(code, &path, message, help),
                Severity::Warning => report.warning(code, &path, message, help),
            }
        }
        report.finish()
    }
}

/// Findings about a text that is no spec at all.
fn whole(problems: Vec<Problem>) -> Vec<Diagnostic> {
    let mut diagnostics: Vec<Diagnostic> = problems
        .into_iter()
        .map(|problem| problem.into_diagnostic(Severity::Error, &Path::default()))
        .collect();
    diagnostics.sort_by_key(|diagnostic| (diagnostic.line, diagnostic.column));
    diagnostics
}

/// The finding about a spec that is too large to be read: it need not be fetched.
#[must_use]
pub fn too_large(length: usize) -> Diagnostic {
    oversize(length, &SPEC).into_diagnostic(Severity::Error, &Path::default())
}

pub(crate) fn oversize(length: usize, document: &Document) -> Problem {
    let Document { name, other, most_bytes, .. } = document;
    let message = format!("{name} has {length} bytes; {most_bytes} are read at most");
    Problem::file("too-large", message).help(format!("{other}: nobody needs so many keys"))
}

/// The text of a file, if it is text of a sensible size.
pub(crate) fn decode<'t>(bytes: &'t [u8], document: &Document) -> Result<&'t str, Problem> {
    if bytes.len() > document.most_bytes {
        return Err(oversize(bytes.len(), document));
    }
    let at = |text: &str, length: usize| {
        let line = text.matches('\n').count() + 1;
        let column = text.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Span {
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: u32::try_from(column).unwrap_or(u32::MAX),
            start: text.len(),
            end: text.len() + length,
        }
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let help = if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
                "it looks like UTF-16: save it as UTF-8".to_owned()
            } else {
                format!("{}, saved as UTF-8: this is something else", document.other)
            };
            return Err(Problem::at(
                at(good, 0),
                "not-text",
                format!("{} is not a UTF-8 text", document.name),
            )
            .help(help));
        }
    };
    let control = |letter: char| letter.is_control() && !matches!(letter, '\t' | '\n' | '\r' | '\u{85}');
    if let Some((start, letter)) = text.char_indices().find(|(_, letter)| control(*letter)) {
        let message = format!("there is a control character (U+{:04X}) in the text", u32::from(letter));
        let span = at(&text[..start], letter.len_utf8());
        return Err(Problem::at(span, "not-text", message)
            .help("remove it; if the file is full of them, it is not a text at all"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    mod defaults;
    mod examples;
    mod findings;
    mod fuzz;
    mod schema;
    mod secrets;
    mod seeds;
    mod worded_defaults;
}
