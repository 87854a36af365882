//! Applies patches to what was rendered.

use json_patch::{PatchErrorKind, PatchOperation};
use serde_json::Value;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::role::Role;
use slipway_core::words::nearest;

use super::guard::{self, Refusal};
use super::{Change, FindingText, Operation, Patch, Pattern, Side};
use crate::problem::Span;

/// Something rendered that a patch can be for.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A stack's template, by the stack's name without the cluster's.
    Stack(&'a str),
    /// The configuration of a role's nodes.
    Node(&'a Role),
}

impl Target<'_> {
    const fn side(self) -> Side {
        match self {
            Self::Stack(_) => Side::Stack,
            Self::Node(_) => Side::Node,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Stack(name) => name.to_owned(),
            Self::Node(role) => role.to_string(),
        }
    }

    /// For messages.
    fn shown(self) -> String {
        match self {
            Self::Stack(name) => format!("the stack `{name}`"),
            Self::Node(role) => format!("the configuration of `{role}` nodes"),
        }
    }

    fn is_named(self, pattern: &Pattern) -> bool {
        // `etcd` is every member, as it is one stack.
        let every_member = matches!(self, Self::Node(Role::Etcd(_))) && pattern.text == "etcd";
        every_member || matches(&pattern.text, &self.name())
    }
}

/// Whether `pattern`, in which `*` matches any letters, matches `name`.
fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        match rest.split_once(piece) {
            Some((_, following)) => rest = following,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The patches of a rendering under way.
#[derive(Debug)]
pub struct Applied<'a> {
    patches: &'a [Patch],
    /// Whether `test` operations are skipped.
    skips_tests: bool,
    used: Vec<Used>,
    stacks: Vec<String>,
    nodes: Vec<String>,
    errors: Vec<Diagnostic>,
    /// Warnings about keys that do nothing.
    idle: Vec<Diagnostic>,
}

/// What is known of a patch so far.
#[derive(Debug, Clone)]
struct Used {
    /// Whether each of its targets was met.
    met: Vec<bool>,
    changed: bool,
    failed: bool,
}

impl<'a> Applied<'a> {
    /// Those of a cluster, with nothing applied yet.
    #[must_use]
    pub fn new(patches: &'a [Patch]) -> Self {
        let unused =
            |patch: &Patch| Used { met: vec![false; patch.targets.len()], changed: false, failed: false };
        Self {
            used: patches.iter().map(unused).collect(),
            skips_tests: false,
            patches,
            stacks: Vec::new(),
            nodes: Vec::new(),
            errors: Vec::new(),
            idle: Vec::new(),
        }
    }

    /// As [`Applied::new`], with every `test` operation taken for granted: for a rendering without its values.
    pub fn without_tests(patches: &'a [Patch]) -> Self {
        Self { skips_tests: true, ..Self::new(patches) }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// Whether a patch is for one of `targets`. If none is, they count as rendered, and [`Applied::apply`] is not needed.
    pub fn concern(&mut self, targets: &[Target<'_>]) -> bool {
        let is_for = |patch: &Patch, target: &Target<'_>| {
            patch.side == target.side() && patch.targets.iter().any(|pattern| target.is_named(pattern))
        };
        let concerned = self.patches.iter().any(|patch| targets.iter().any(|target| is_for(patch, target)));
        if !concerned {
            targets.iter().for_each(|target| self.note(*target));
        }
        concerned
    }

    fn note(&mut self, target: Target<'_>) {
        match target.side() {
            Side::Stack => self.stacks.push(target.name()),
            Side::Node => self.nodes.push(target.name()),
        }
    }

    /// Applies the patches of `target` to `value`, in order. A patch that fails or is forbidden is reported, and changes nothing.
    pub fn apply(&mut self, target: Target<'_>, value: &mut Value) {
        self.note(target);
        for (patch, used) in self.patches.iter().zip(&mut self.used) {
            if patch.side != target.side() {
                continue;
            }
            let mut meant = false;
            for (pattern, met) in patch.targets.iter().zip(&mut used.met) {
                if target.is_named(pattern) {
                    (meant, *met) = (true, true);
                }
            }
            if !meant {
                continue;
            }
            let mut after = value.clone();
            let refused = match attempt(patch, target, self.skips_tests, &mut after) {
                Some(found) => vec![found],
                None => refusals(patch, target, value, &after),
            };
            if refused.is_empty() {
                self.idle.extend(idle(patch, target, value, &after));
                used.changed |= *value != after;
                *value = after;
            } else {
                used.failed = true;
                self.errors.extend(refused);
            }
        }
    }

    /// The errors and warnings about the patches.
    pub fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let Self { patches, skips_tests: _, used, stacks, nodes, mut errors, idle: mut warnings } = self;
        // Of roles that a pattern names, each has the same finding.
        warnings.dedup();
        for (patch, used) in patches.iter().zip(used) {
            let (what, names) = match patch.side {
                Side::Stack => ("stack", &stacks),
                Side::Node => ("node", &nodes),
            };
            for (pattern, _) in patch.targets.iter().zip(&used.met).filter(|(_, met)| !**met) {
                let any = pattern.text.contains('*');
                let found = unmet(patch, what, pattern, names, any);
                if any { warnings.push(found) } else { errors.push(found) }
            }
            if !used.changed && !used.failed && used.met.contains(&true) {
                let text = FindingText {
                    path: None,
                    message: "this patch changes nothing: its target already has these values".to_owned(),
                    help: "delete the file, or look whether its target is the one that you mean".to_owned(),
                };
                warnings.push(patch.finding(Severity::Warning, patch.place(), "idle-patch", text));
            }
        }
        (errors, warnings)
    }
}

fn unmet(patch: &Patch, what: &str, pattern: &Pattern, names: &[String], any: bool) -> Diagnostic {
    let name = &pattern.text;
    let help = match nearest(name, names.iter().map(String::as_str)).filter(|_| !any) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!("this cluster has `{}`", names.join("`, `")),
    };
    let text = FindingText {
        path: Some(format!("target.{what}")),
        message: match what {
            "stack" => format!("this cluster has no stack `{name}`"),
            _ => format!("this cluster has no nodes `{name}`"),
        },
        help,
    };
    let severity = if any { Severity::Warning } else { Severity::Error };
    patch.finding(severity, pattern.span, "unknown-target", text)
}

/// The finding that keeps the patch from being applied, if any; `value` must then not be used.
fn attempt(patch: &Patch, target: Target<'_>, skips_tests: bool, value: &mut Value) -> Option<Diagnostic> {
    match &patch.change {
        Change::Merge(change, _) => json_patch::merge(value, change),
        Change::Operations(operations) => {
            for (index, Operation { operation, span }) in operations.iter().enumerate() {
                if skips_tests && matches!(operation, PatchOperation::Test(_)) {
                    continue;
                }
                // One at a time, so that an error describes the value as it was before the operation.
                if let Err(error) = json_patch::patch(value, std::slice::from_ref(operation)) {
                    return Some(does_not_apply(patch, target, value, index, operation, *span, &error.kind));
                }
            }
        }
    }
    None
}

fn does_not_apply(
    patch: &Patch,
    target: Target<'_>,
    value: &Value,
    index: usize,
    operation: &PatchOperation,
    span: Span,
    kind: &PatchErrorKind,
) -> Diagnostic {
    let (name, from) = match operation {
        PatchOperation::Add(_) => ("add", None),
        PatchOperation::Remove(_) => ("remove", None),
        PatchOperation::Replace(_) => ("replace", None),
        PatchOperation::Move(one) => ("move", Some(one.from.as_str())),
        PatchOperation::Copy(one) => ("copy", Some(one.from.as_str())),
        PatchOperation::Test(_) => ("test", None),
    };
    let path = operation.path().as_str();
    let (why, help) = match kind {
        PatchErrorKind::TestFailed => (
            format!("`{path}` is not what it expects"),
            match value.pointer(path) {
                Some(found) => {
                    format!(
                        "the present value is `{found}`: check whether the patch still does what you want"
                    )
                }
                None => "look whether the patch still does what you want".to_owned(),
            },
        ),
        PatchErrorKind::CannotMoveInsideItself => (
            format!("`{path}` lies inside what it moves"),
            "copy it instead, or choose another place".to_owned(),
        ),
        PatchErrorKind::InvalidFromPointer => missing(value, from.unwrap_or_default(), false),
        // The kinds are not exhaustive; whatever else goes wrong, goes wrong at the path.
        PatchErrorKind::InvalidPointer | _ => missing(value, path, name == "add" || from.is_some()),
    };
    let number = index + 1;
    let text = FindingText {
        path: Some(format!("ops[{index}]")),
        message: format!("operation {number} (`{name}`) does not apply to {}: {why}", target.shown()),
        help,
    };
    patch.finding(Severity::Error, span, "patch-does-not-apply", text)
}

/// Where `path` leaves the value, and what is there instead. With `parent`, the last step may be missing.
fn missing(value: &Value, path: &str, parent: bool) -> (String, String) {
    let mut here = value;
    let mut way = String::new();
    let steps: Vec<&str> = path.split('/').skip(1).collect();
    for (number, step) in steps.iter().enumerate() {
        let last = number + 1 == steps.len();
        let key = step.replace("~1", "/").replace("~0", "~");
        let next = match here {
            Value::Object(object) => object.get(&key),
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        if let Some(next) = next {
            way = format!("{way}/{step}");
            here = next;
            continue;
        }
        let place = if way.is_empty() { "the top".to_owned() } else { format!("`{way}`") };
        return match here {
            Value::Object(object) => {
                let help = match nearest(&key, object.keys().map(String::as_str)) {
                    Some(name) => {
                        format!("did you mean `{way}/{}`?", name.replace('~', "~0").replace('/', "~1"))
                    }
                    None if parent => {
                        format!("add what is missing below {place} in an operation before this one")
                    }
                    None => format!("look at what `slipway render` writes: {place} has no such key"),
                };
                (format!("there is no `{way}/{step}`"), help)
            }
            Value::Array(items) => {
                let (count, fine) = (items.len(), last && parent);
                let range = match (count, fine) {
                    (0, false) => "it is empty".to_owned(),
                    (_, false) => format!("write a number from 0 to {}", count - 1),
                    (_, true) => format!("write a number from 0 to {count}, or `-` for the end"),
                };
                (format!("the list `{way}` has no item `{step}`"), format!("it has {count} items; {range}"))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (
                format!("{place} is neither a group of keys nor a list"),
                "nothing lies below it: shorten the path".to_owned(),
            ),
        };
    }
    (format!("nothing can be done at `{path}`"), "choose another place".to_owned())
}

/// Warnings about what the patch sets and no agent reads.
fn idle(patch: &Patch, target: Target<'_>, before: &Value, after: &Value) -> Vec<Diagnostic> {
    let Target::Node(role) = target else { return Vec::new() };
    let about = |path: String| {
        let text = FindingText {
            path: None,
            message: format!(
                "the agent does not know `{path}`: it does nothing, and nodes are replaced for it"
            ),
            help: "remove it, or compare with docs/nodes.md; what a kubelet takes is said by `kubelet` in the spec"
                .to_owned(),
        };
        patch.finding(Severity::Warning, patch.place(), "idle-patch", text)
    };
    guard::idle_keys(role, before, after).into_iter().map(about).collect()
}

/// The findings about changes that this patch must not make.
fn refusals(patch: &Patch, target: Target<'_>, before: &Value, after: &Value) -> Vec<Diagnostic> {
    if before == after {
        return Vec::new();
    }
    let found = match target {
        Target::Stack(name) => guard::stack(name, before, after),
        Target::Node(role) => guard::node(role, before, after),
    };
    let about = |Refusal { what, help }: Refusal| {
        let message = format!("this patch may not change {}: {what}", target.shown());
        let text = FindingText { path: None, message, help };
        patch.finding(Severity::Error, patch.place(), "patch-refused", text)
    };
    found.into_iter().map(about).collect()
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, name) in [
            ("pool-*", "pool-a"),
            ("*", "network"),
            ("pool-*-b", "pool-x-y-b"),
            ("*-a-*", "pool-a-1"),
            ("etcd", "etcd"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("pool", "pool-a"), ("pool-*-b", "pool-b"), ("", "a"), ("*-a-*", "pool-b-1"), ("etcd", "etcd-0")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
