//! From the text of a patch to a [`Patch`], or to findings with line, column and help.

use json_patch::PatchOperation;
use serde_json::{Map, Value};
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::words::nearest;

use super::{Change, Operation, Patch, Pattern, Side, json, secrets};
use crate::path::Path;
use crate::problem::Problem;
use crate::report::Report;
use crate::tree::{self, Document, Kind, Node};

/// What findings call a patch.
pub(super) const PATCH: Document = Document {
    name: "the patch",
    other: "upload a patch",
    empty: "write `target:` and `merge:` or `ops:`, as in examples/patched/patches, or delete the file",
    several: "one file is one patch: put each into a file of its own",
    tag: "write CloudFormation's functions in full: `{ Ref: Group }`, `{ \"Fn::GetAtt\": [Group, Arn] }`",
    most_bytes: super::MOST_BYTES,
};

/// Reads one file.
pub(super) fn patch(file: &str, bytes: &[u8]) -> Result<Patch, Vec<Diagnostic>> {
    read(file, bytes).map_err(|mut findings| {
        for finding in &mut findings {
            finding.file = Some(file.to_owned());
        }
        findings
    })
}

fn read(file: &str, bytes: &[u8]) -> Result<Patch, Vec<Diagnostic>> {
    let whole = |problems: Vec<Problem>| -> Vec<Diagnostic> {
        let about = |problem: Problem| problem.into_diagnostic(Severity::Error, &Path::default());
        problems.into_iter().map(about).collect()
    };
    let text = crate::decode(bytes, &PATCH).map_err(|problem| whole(vec![problem]))?;
    // Without its span: a printer would show the line.
    let secret = |problem: Problem| -> Vec<Diagnostic> {
        whole(vec![problem]).into_iter().map(|found| Diagnostic { span: None, ..found }).collect()
    };
    // First of all, so that no other finding quotes from it.
    if let Some(problem) = secrets::in_text(text) {
        return Err(secret(problem));
    }
    let tree = tree::read(text, &PATCH).map_err(whole)?;
    if let Some(problem) = secrets::in_values(&tree) {
        return Err(secret(problem));
    }
    let mut report = Report::new(&tree);
    let parts = root(&tree, &mut report);
    let findings = report.finish();
    match parts {
        Some((side, targets, change)) if findings.is_empty() => {
            Ok(Patch { file: file.to_owned(), side, targets, change })
        }
        Some(_) | None => Err(findings),
    }
}

type Parts = (Side, Vec<Pattern>, Change);

fn root(tree: &Node, report: &mut Report<'_>) -> Option<Parts> {
    let top = Path::default();
    let keys = Keys::read(tree, &top, &["target", "merge", "ops"], report)?;
    let target = keys.required("target", "what is patched: `stack: control-plane` or `node: pool-*`", report);
    let target = target.and_then(|target| self::target(target, &top.key("target"), report));
    let change = match (keys.get("merge"), keys.get("ops")) {
        (Some(merge), None) => merge_patch(merge, &top.key("merge"), report),
        (None, Some(ops)) => operations(ops, &top.key("ops"), report),
        (Some(_), Some(_)) => {
            report.error(
                "both-keys",
                &top.key("ops"),
                "`merge` and `ops` are two ways to say one thing, and both are given",
                "keep one of them here, and put the other into a patch of its own",
            );
            None
        }
        (None, None) => {
            report.error(
                "missing-key",
                &top,
                "the patch lacks `merge` or `ops`",
                "add `merge:` with what is to be laid over the target, or `ops:` with operations of RFC 6902",
            );
            None
        }
    };
    let (side, targets) = target?;
    Some((side, targets, change?))
}

fn target(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<(Side, Vec<Pattern>)> {
    let keys = Keys::read(node, path, &["stack", "node"], report)?;
    let (side, name, list) = match (keys.get("stack"), keys.get("node")) {
        (Some(list), None) => (Side::Stack, "stack", list),
        (None, Some(list)) => (Side::Node, "node", list),
        (given, _) => {
            let (message, help) = match given {
                Some(_) => (
                    "a patch is for stacks or for nodes, and both are given",
                    "keep one of them here, and put the other into a patch of its own",
                ),
                None => (
                    "`target` lacks `stack` or `node`",
                    "add `stack: control-plane`, or `node: pool-*` for node configurations",
                ),
            };
            report.error("patch-target", path, message, help);
            return None;
        }
    };
    let path = path.key(name);
    let mut patterns = Vec::new();
    match &list.kind {
        Kind::List(items) => {
            for (index, item) in items.iter().enumerate() {
                patterns.extend(pattern(item, &path.index(index), report));
            }
            if items.is_empty() {
                report.error(
                    "empty-value",
                    &path,
                    "the list of targets is empty",
                    "name at least one target",
                );
            }
        }
        Kind::Scalar { .. } | Kind::Map(_) => patterns.extend(pattern(list, &path, report)),
    }
    (!patterns.is_empty()).then_some((side, patterns))
}

fn pattern(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Pattern> {
    match &node.kind {
        Kind::Scalar { text, .. } if !node.is_null() => {
            Some(Pattern { text: text.clone(), span: report.locate(path) })
        }
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => {
            let message = format!("`{path}` must be a name, but is {}", node.describe());
            report.error("wrong-type", path, message, "write one name, or a list of names, such as `pool-*`");
            None
        }
    }
}

fn merge_patch(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Change> {
    // RFC 7386 lets anything else take the place of the whole target.
    let Kind::Map(entries) = &node.kind else {
        let message = format!("`merge` must be a group of keys, but is {}", node.describe());
        report.error(
            "wrong-type",
            path,
            message,
            "write the keys that change below it; a key with the value `null` goes",
        );
        return None;
    };
    if entries.is_empty() {
        report.error("empty-value", path, "`merge` has no keys", "add what changes, or delete the file");
        return None;
    }
    let value = json::value(node, path, report)?;
    Some(Change::Merge(value, report.locate(path)))
}

fn operations(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Change> {
    let Kind::List(items) = &node.kind else {
        let message = format!("`ops` must be a list, but is {}", node.describe());
        report.error("wrong-type", path, message, "begin each operation with `- op: ` on a line of its own");
        return None;
    };
    if items.is_empty() {
        report.error("empty-value", path, "the list of operations is empty", "add one, or delete the file");
        return None;
    }
    let read = |(index, item): (usize, &std::sync::Arc<Node>)| operation(item, &path.index(index), report);
    let operations: Vec<Option<Operation>> = items.iter().enumerate().map(read).collect();
    operations.into_iter().collect::<Option<Vec<Operation>>>().map(Change::Operations)
}

/// The operations of RFC 6902, and what each needs besides `op` and `path`.
const OPERATIONS: [(&str, Option<&str>); 6] = [
    ("add", Some("value")),
    ("remove", None),
    ("replace", Some("value")),
    ("move", Some("from")),
    ("copy", Some("from")),
    ("test", Some("value")),
];

fn operation(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Operation> {
    let keys = Keys::read(node, path, &["op", "path", "value", "from"], report)?;
    let name = keys.required("op", "one of add, remove, replace, move, copy, test", report);
    let (name, needs) = name.and_then(|name| known_operation(name, &path.key("op"), report))?;
    let mut object = Map::from_iter([("op".to_owned(), Value::from(name))]);
    let mut fine = true;
    for key in ["path", "from"] {
        if key == "from" && needs != Some("from") {
            continue;
        }
        let about = "a place as RFC 6901 writes it, such as /Resources/Group/Properties/Tags/-";
        let pointer = keys.required(key, about, report);
        match pointer.and_then(|pointer| self::pointer(pointer, &path.key(key), report)) {
            Some(pointer) => drop(object.insert(key.to_owned(), Value::from(pointer))),
            None => fine = false,
        }
    }
    for key in ["value", "from"] {
        match (keys.present(key), needs == Some(key)) {
            (true, false) => {
                let message = format!("`{name}` takes no `{key}`");
                report.error("patch-operation", &path.key(key), message, "remove the line");
                fine = false;
            }
            (false, true) if key == "value" => {
                let message = format!("`{name}` lacks `value`");
                let help = "add `value:`; write `value: null` if that is meant";
                report.error("missing-key", &path.key(key), message, help);
                fine = false;
            }
            (true, true) if key == "value" => {
                let value = keys.node("value").and_then(|value| json::value(value, &path.key(key), report));
                match value {
                    Some(value) => drop(object.insert(key.to_owned(), value)),
                    None => fine = false,
                }
            }
            (true, true) | (false, false | true) => {}
        }
    }
    if !fine {
        return None;
    }
    match serde_json::from_value::<PatchOperation>(Value::Object(object)) {
        Ok(operation) => Some(Operation { operation, span: report.locate(path) }),
        Err(error) => {
            let help = "compare with RFC 6902";
            report.error("patch-operation", path, format!("this is not an operation: {error}"), help);
            None
        }
    }
}

fn known_operation(
    node: &Node,
    path: &Path,
    report: &mut Report<'_>,
) -> Option<(&'static str, Option<&'static str>)> {
    let text = match &node.kind {
        Kind::Scalar { text, .. } => text.as_str(),
        Kind::List(_) | Kind::Map(_) => "",
    };
    let known = OPERATIONS.into_iter().find(|(name, _)| *name == text);
    if known.is_none() {
        let names = OPERATIONS.map(|(name, _)| name);
        let help = match nearest(text, names.into_iter()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("write one of `{}`", names.join("`, `")),
        };
        report.error(
            "unknown-value",
            path,
            format!("{} is not an operation of RFC 6902", node.describe()),
            help,
        );
    }
    known
}

/// A JSON pointer; `~` must be `~0` or `~1`.
fn pointer(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<String> {
    let text = match &node.kind {
        Kind::Scalar { text, .. } if !node.is_null() => text,
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => {
            let message = format!("`{path}` must be a place, but is {}", node.describe());
            report.error("wrong-type", path, message, "write it as in /Resources/Group/Properties/MinSize");
            return None;
        }
    };
    if let Err(error) = json_patch::jsonptr::Pointer::parse(text) {
        let dotted = format!("/{}", text.replace('.', "/").trim_start_matches('/'));
        let help = if text.starts_with('/') {
            "write `~1` for a slash within a key, and `~0` for a `~`".to_owned()
        } else {
            format!("a place begins with a slash; did you mean `{dotted}`?")
        };
        report.error(
            "patch-path",
            path,
            format!("`{text}` is not a place as RFC 6901 writes it: {error}"),
            help,
        );
        return None;
    }
    Some(text.clone())
}

/// A group whose unknown keys were reported.
struct Keys<'n> {
    node: &'n Node,
    path: Path,
}

impl<'n> Keys<'n> {
    fn read(node: &'n Node, path: &Path, known: &[&str], report: &mut Report<'_>) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            let what = if path.0.is_empty() { "the patch".to_owned() } else { format!("`{path}`") };
            let message = format!("{what} must be a group of keys, but is {}", node.describe());
            report.key(
                Severity::Error,
                node.span,
                "wrong-type",
                path,
                message,
                format!("write `{}:` and what belongs there", known.join(":`, `")),
            );
            return None;
        };
        for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let help = match nearest(&entry.key, known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("remove it; the keys known here are `{}`", known.join("`, `")),
            };
            report.key(
                Severity::Error,
                entry.key_span,
                "unknown-key",
                &path.key(&entry.key),
                format!("`{}` is not a key of a patch here", entry.key),
                help,
            );
        }
        Some(Self { node, path: path.clone() })
    }

    fn present(&self, key: &str) -> bool {
        self.node.entry(key).is_some()
    }

    fn node(&self, key: &str) -> Option<&'n Node> {
        self.node.entry(key).map(|entry| entry.value.as_ref())
    }

    /// The value of `key`, unless it is empty.
    fn get(&self, key: &str) -> Option<&'n Node> {
        self.node(key).filter(|node| !node.is_null())
    }

    fn required(&self, key: &str, about: &str, report: &mut Report<'_>) -> Option<&'n Node> {
        let found = self.get(key);
        if found.is_none() {
            let what =
                if self.path.0.is_empty() { "the patch".to_owned() } else { format!("`{}`", self.path) };
            report.error(
                "missing-key",
                &self.path.key(key),
                format!("{what} lacks `{key}`"),
                format!("add `{key}`: {about}"),
            );
        }
        found
    }
}
