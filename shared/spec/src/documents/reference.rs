//! `docs/cluster-yaml.md`: the reference of the spec.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::table_cell;
use crate::schema::resolve;

const HEAD: &str = "\
<!-- Generated from the types: UPDATE_SCHEMAS=1 cargo test -p slipway-spec --test cluster_schema. -->

# cluster.yaml

Every key of a cluster's specification, as in `infra/cluster.schema.json`. An editor with the YAML language server completes and
checks specs with that file (`slipway init` writes the line that names it), and `slipway validate` also checks what no schema can
express. Keys of kube-aws that have another form now are left out here:
[from-kube-aws.md](from-kube-aws.md) says what became of each.

A key in **bold** is required whenever the group that contains it is given. A key without a default is absent unless it is given.
";

/// A group that is used in so many places has a section of its own; what is used once is written where it is used.
const SHARED: usize = 2;
/// But a group with so few keys is always written out.
const SMALL: usize = 2;

struct Page<'s> {
    root: &'s Value,
    /// How many keys hold each group.
    uses: BTreeMap<String, usize>,
    text: String,
}

/// The page.
pub(super) fn page(root: &Value) -> String {
    let mut uses = BTreeMap::new();
    for group in groups(root) {
        for (_, property) in current(group) {
            if let Some(name) = name_of(property).or_else(|| name_of(resolve(root, property).get("items")?)) {
                *uses.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
    }
    let mut page = Page { root, uses, text: HEAD.to_owned() };
    page.top();
    page.shared();
    page.text
}

/// The root and every definition that has keys.
fn groups(root: &Value) -> impl Iterator<Item = &Value> {
    let named = root.get("$defs").and_then(Value::as_object).into_iter().flat_map(Map::values);
    std::iter::once(root).chain(named)
}

/// The keys of a group that are not there for kube-aws' sake.
fn current(group: &Value) -> impl Iterator<Item = (&String, &Value)> {
    group
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter(|(_, property)| property.get("deprecated") != Some(&Value::Bool(true)))
}

/// The definition that a property refers to.
fn name_of(property: &Value) -> Option<&str> {
    let choice = property.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    std::iter::once(property).chain(choice).find_map(|at| at.get("$ref")?.as_str()?.strip_prefix("#/$defs/"))
}

/// `VolumeSpec` is `Volume` to people.
fn title(name: &str) -> &str {
    name.strip_suffix("Spec").unwrap_or(name)
}

impl<'s> Page<'s> {
    fn top(&mut self) {
        self.text.push_str("\n## The cluster\n\n");
        let mut sections: Vec<(&str, &Value)> = Vec::new();
        let mut plain: Vec<(&str, &Value)> = Vec::new();
        for (key, property) in current(self.root) {
            let resolved = resolve(self.root, property);
            let inner = resolved.get("items").map_or(resolved, |items| resolve(self.root, items));
            let group = inner.get("properties").is_some()
                && !name_of(property).is_some_and(|name| self.is_shared(name));
            if group { sections.push((key, property)) } else { plain.push((key, property)) }
        }
        self.begin();
        for (key, property) in plain {
            self.row(self.root, key, key, property);
        }
        for (key, property) in sections {
            let resolved = resolve(self.root, property);
            let (path, inner) = match resolved.get("items") {
                Some(items) => (format!("{key}[]"), resolve(self.root, items)),
                None => (key.to_owned(), resolved),
            };
            let _ = write!(self.text, "\n## {path}\n\n{}\n\n", described(property));
            self.begin();
            self.rows(inner, "");
        }
    }

    fn shared(&mut self) {
        let Some(named) = self.root.get("$defs").and_then(Value::as_object) else { return };
        for (name, group) in named {
            if self.is_shared(name) {
                let _ = write!(self.text, "\n## {}\n\n{}\n\n", title(name), described(group));
                self.begin();
                self.rows(group, "");
            }
        }
    }

    fn is_shared(&self, name: &str) -> bool {
        let keys = self
            .root
            .get("$defs")
            .and_then(|named| named.get(name))
            .map_or(0, |group| current(group).count());
        keys > SMALL && self.uses.get(name).is_some_and(|uses| *uses >= SHARED)
    }

    fn begin(&mut self) {
        self.text.push_str("| key | type | default | meaning |\n|---|---|---|---|\n");
    }

    fn rows(&mut self, group: &'s Value, prefix: &str) {
        for (key, property) in current(group) {
            self.row(group, key, &format!("{prefix}{key}"), property);
        }
    }

    /// The row of a key, and those of the keys in it.
    fn row(&mut self, group: &'s Value, key: &str, path: &str, property: &'s Value) {
        let required = group
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.iter().any(|name| name == key));
        let shown = if required { format!("**`{path}`**") } else { format!("`{path}`") };
        let default = match property.get("default") {
            Some(value @ (Value::Bool(_) | Value::Number(_))) => format!("`{value}`"),
            Some(Value::String(text)) if !text.is_empty() => format!("`{text}`"),
            Some(Value::String(_) | Value::Null | Value::Array(_) | Value::Object(_)) | None => String::new(),
        };
        let _ = writeln!(
            self.text,
            "| {shown} | {} | {default} | {} |",
            table_cell(&self.kind(property)),
            table_cell(&described(property))
        );
        let resolved = resolve(self.root, property);
        let (inside, prefix, name) = match resolved.get("items") {
            Some(items) => (resolve(self.root, items), format!("{path}[]."), name_of(items)),
            None => (resolved, format!("{path}."), name_of(property)),
        };
        if inside.get("properties").is_some() && !name.is_some_and(|name| self.is_shared(name)) {
            self.rows(inside, &prefix);
        }
    }

    /// The type in words, with its constraints.
    fn kind(&self, property: &Value) -> String {
        if let Some(name) = name_of(property)
            && self.is_shared(name)
        {
            return format!("[{0}](#{1})", title(name), title(name).to_lowercase());
        }
        let schema = resolve(self.root, property);
        if let Some(words) = words(schema) {
            return words;
        }
        let kinds: Vec<&str> = match schema.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) => {
                kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect()
            }
            _ => Vec::new(),
        };
        let mut types: Vec<String> = Vec::new();
        for kind in kinds {
            types.push(match kind {
                "array" => {
                    let items =
                        schema.get("items").map_or_else(|| "anything".to_owned(), |items| self.kind(items));
                    format!("list of {items}")
                }
                "object" => match schema.get("additionalProperties") {
                    Some(free @ Value::Object(_)) => format!("map of names to {}", self.kind(free)),
                    _ => "group".to_owned(),
                },
                "integer" => range(property, schema),
                "string" => "text".to_owned(),
                other => other.to_owned(),
            });
        }
        let mut text = if types.is_empty() { "anything".to_owned() } else { types.join(" or ") };
        if let Some(pattern) =
            property.get("pattern").or_else(|| schema.get("pattern")).and_then(Value::as_str)
        {
            let _ = write!(text, ", `{pattern}`");
        }
        text
    }
}

/// The words of an enumeration, those that kube-aws had left out nowhere: each is valid.
fn words(schema: &Value) -> Option<String> {
    let plain = schema.get("enum").and_then(Value::as_array).into_iter().flatten();
    let constants = schema.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<String> = plain
        .chain(constants.filter_map(|constant| constant.get("const")))
        .filter_map(Value::as_str)
        .map(|word| format!("`{word}`"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn range(property: &Value, schema: &Value) -> String {
    let limit = |name: &str| property.get(name).or_else(|| schema.get(name)).and_then(Value::as_u64);
    match (limit("minimum"), limit("maximum")) {
        (least, Some(most)) => format!("number, {} to {most}", least.unwrap_or(0)),
        (Some(least), None) if least > 0 => format!("number from {least}"),
        (Some(_) | None, None) => "number".to_owned(),
    }
}

fn described(property: &Value) -> String {
    property.get("description").and_then(Value::as_str).unwrap_or_default().to_owned()
}
