//! Where a finding about the rewritten spec is in the spec that was read.

use slipway_core::diagnostic::Diagnostic;
use slipway_spec::{Kind, Node, Span};

/// The finding at the value of the old spec that it is about: `moved` has the old and new path of each value that was moved. A finding
/// about what only the new spec has is about the whole file.
pub(super) fn in_old(finding: Diagnostic, old: &Node, moved: &[(String, String)]) -> Diagnostic {
    let below = |to: &str| {
        let rest = finding.path.strip_prefix(to)?;
        (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
    };
    let was = moved.iter().find_map(|(from, to)| Some(format!("{from}{}", below(to)?)));
    let path = was.unwrap_or_else(|| finding.path.clone());
    let span = locate(old, &path).filter(|span| span.line > 0);
    Diagnostic {
        line: span.map_or(0, |span| span.line),
        column: span.map_or(0, |span| span.column),
        span: span.map(|span| (span.start, span.end)),
        path,
        ..finding
    }
}

/// The place of the value at `path`, or of the nearest key above it that is there; `None`: not even its first key.
fn locate(root: &Node, path: &str) -> Option<Span> {
    let (mut node, mut found) = (root, None);
    for part in path.split('.') {
        let mut pieces = part.split('[');
        let key = pieces.next().unwrap_or_default();
        let Kind::Map(entries) = &node.kind else { return found };
        let Some(entry) = entries.iter().find(|entry| entry.key == key) else { return found };
        node = &entry.value;
        found = Some(entry.key_span);
        for index in pieces {
            let Kind::List(items) = &node.kind else { return found };
            let item = index.trim_end_matches(']').parse::<usize>().ok().and_then(|index| items.get(index));
            let Some(item) = item else { return found };
            node = item;
            found = Some(item.span);
        }
    }
    if let Kind::Scalar { .. } = node.kind { Some(node.span) } else { found }
}
