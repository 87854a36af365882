//! `docs/from-kube-aws.md`: what became of each key of kube-aws.

use std::fmt::Write as _;

use serde_json::Value;

use slipway_spec::{legacy, resolve, schema, table_cell};

const KEYS: &str = include_str!("../data/kube-aws-keys.txt");

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Taken under the same name.
    Same,
    /// Taken, with a warning that says what to write.
    Translated(String),
    /// Refused, saying what to do.
    Retired(String),
    /// A group: each of its keys has a fate of its own.
    Group,
    /// There is no note about it.
    Unknown,
}

/// The keys of v0.16.4, then those of the releases before it.
pub(crate) fn keys() -> (Vec<&'static str>, Vec<&'static str>) {
    let (newest, before) = KEYS.split_once("\n# before\n").expect("the file has two parts");
    let lines =
        |text: &'static str| text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    (lines(newest), lines(before))
}

/// The fate of the key at `path`, from the schema and the notes.
pub(crate) fn fate(root: &Value, path: &str) -> Fate {
    let translated = |at: &str| {
        let note = legacy::TRANSLATED.iter().find(|note| note.pattern == at);
        Fate::Translated(note.map_or(String::new(), |note| note.help.to_owned()))
    };
    let (mut at, mut walked, mut fate) = (root, String::new(), Fate::Same);
    for step in path.split('.') {
        let name = step.trim_end_matches("[]");
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(name);
        let resolved = resolve(root, at);
        let Some(property) = resolved.get("properties").and_then(|known| known.get(name)) else {
            if resolved.get("additionalProperties").is_some_and(Value::is_object) {
                return fate;
            }
            return fate_by_notes(path, &walked);
        };
        if property.get("deprecated") == Some(&Value::Bool(true)) {
            fate = translated(&walked);
        }
        at = property;
        if step.ends_with("[]") {
            walked.push_str("[]");
            at = resolve(root, at).get("items").unwrap_or(&Value::Null);
        }
    }
    fate
}

/// The fate of a key of which the schema knows nothing after `walked`.
fn fate_by_notes(path: &str, walked: &str) -> Fate {
    let mut place = walked.to_owned();
    for step in std::iter::once("").chain(path[walked.len()..].split('.').filter(|step| !step.is_empty())) {
        let name = step.trim_end_matches("[]");
        if !name.is_empty() {
            place = format!("{place}.{name}");
        }
        if let Some(help) = legacy::replacement(&place) {
            return Fate::Retired(help.into_owned());
        }
        if step.ends_with("[]") {
            place.push_str("[]");
        }
    }
    if legacy::has_retired_below(&place) { Fate::Group } else { Fate::Unknown }
}

const HEAD: &str = "\
<!-- Generated: UPDATE_SCHEMAS=1 cargo test -p slipway-migrate --test page. From shared/migrate/data/kube-aws-keys.txt,
     the schema, and the notes in shared/spec/src/legacy. -->

# From kube-aws

Every key of kube-aws' `cluster.yaml`, and what became of it. `slipway migrate kube-aws DIR --out OUT` makes these changes for
you, and lists them; `slipway validate` names each key that it meets, with the same words.

- **same**: taken under the same name; [cluster-yaml.md](cluster-yaml.md) says what it means.
- **translated**: taken, with a warning; it works as the words say, and will be refused one day.
- **refused**: an error, with what to do instead.

A key that is not listed lies below one that is refused, and shares its answer. A node pool of kube-aws took every key of the
cluster, too; where those are the same as at the top, only the top is listed.
";

/// The text of `docs/from-kube-aws.md`.
#[must_use]
pub fn page() -> String {
    let root = &schema();
    let (newest, before) = keys();
    let mut text = HEAD.to_owned();
    for (title, keys) in [("Keys of v0.16.4", newest), ("Keys of the releases before", before)] {
        let rows: Vec<(&str, Fate)> = keys.iter().map(|key| (*key, fate(root, key))).collect();
        let count = |has_fate: fn(&Fate) -> bool| rows.iter().filter(|(_, fate)| has_fate(fate)).count();
        let (same, translated, refused) = (
            count(|fate| matches!(fate, Fate::Same)),
            count(|fate| matches!(fate, Fate::Translated(_))),
            count(|fate| matches!(fate, Fate::Retired(_))),
        );
        let _ = write!(
            text,
            "\n## {title}\n\n{same} are the same, {translated} are translated, {refused} are refused.\n\n\
             | key | | |\n|---|---|---|\n"
        );
        let mut answered: Option<&str> = None;
        for (key, fate) in &rows {
            let inside =
                |group: &str| key.strip_prefix(group).is_some_and(|rest| rest.starts_with(['.', '[']));
            if answered.is_some_and(inside) || repeats_the_top(&rows, key, fate) {
                continue;
            }
            let (word, help) = match fate {
                Fate::Same => ("same", String::new()),
                Fate::Translated(help) => ("translated", help.clone()),
                Fate::Retired(help) => ("refused", help.clone()),
                // A test holds that none is unknown.
                Fate::Group | Fate::Unknown => continue,
            };
            // A group that is refused or translated as a whole gets one row.
            answered = matches!(fate, Fate::Retired(_) | Fate::Translated(_)).then_some(key);
            let _ = writeln!(text, "| `{key}` | {word} | {} |", table_cell(&help));
        }
    }
    text
}

/// Whether a pool's key only repeats what is said at the top.
fn repeats_the_top(rows: &[(&str, Fate)], key: &str, fate: &Fate) -> bool {
    let Some(key) = key.strip_prefix("worker.nodePools[].") else { return false };
    let places = [key.to_owned(), format!("experimental.{key}"), format!("kubelet.{key}")];
    let top = rows.iter().find(|(top, _)| places.iter().any(|place| place == top));
    match (top, fate) {
        (Some((_, Fate::Retired(top))), Fate::Retired(here)) => top == here,
        (Some((place, Fate::Same | Fate::Translated(_) | Fate::Group)), Fate::Retired(here)) => {
            here.contains("at the top of the spec") || place.contains('.')
        }
        _ => false,
    }
}
