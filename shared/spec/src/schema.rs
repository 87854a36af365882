//! The JSON Schema of `cluster.yaml`, from the types of the model.

use std::sync::LazyLock;

use serde_json::Value;

use super::model::Spec;

mod published;

/// Made once: it is the same for every spec.
static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = schemars::schema_for!(Spec).to_value();
    with_defaults(&mut schema);
    schema
});

/// The schema that editors and other tools may check a `cluster.yaml` with, as published in `infra/cluster.schema.json`.
///
/// It refuses nothing that [`super::parse`] accepts. So it also allows numbers where text is expected, and empty groups, which
/// the parser accepts without being told.
#[must_use]
pub fn schema() -> Value {
    published::published(&SCHEMA)
}

pub(super) fn root() -> &'static Value {
    &SCHEMA
}

/// Follows `$ref`, and the `anyOf` by which an optional value says "or null".
///
/// # Panics
/// If `root` is not the schema that `schema` is a part of.
#[must_use]
pub fn resolve<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    loop {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let target = name.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            schema = target.expect("a schema that we generate refers to its own definitions");
        } else if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            let choice = choices.iter().find(|choice| choice.get("type") != Some(&Value::from("null")));
            schema = choice.expect("an optional value is something or null");
        } else {
            return schema;
        }
    }
}

/// Whether there is a key at that place: names with dots between them, through no list.
pub(super) fn knows(place: &str) -> bool {
    let root = root();
    let mut at = root;
    place.split('.').all(|name| {
        if let Some(pointer) = at.get("$ref").and_then(Value::as_str) {
            at = pointer.strip_prefix('#').and_then(|pointer| root.pointer(pointer)).unwrap_or(&Value::Null);
        }
        at = at.get("properties").and_then(|known| known.get(name)).unwrap_or(&Value::Null);
        !at.is_null()
    })
}

/// Gives each key its `default` from the words of its description, `… unless given`, so that it is written once.
///
/// What stands before these words is a default if it is a number, a range or a word between backticks, and fits the key's
/// type. A test holds that leaving the key out is the same as writing it so.
fn with_defaults(schema: &mut Value) {
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    let mut groups: Vec<&mut Value> = Vec::new();
    if let Value::Object(root) = schema {
        for (key, value) in root.iter_mut() {
            match (key.as_str(), value) {
                ("$defs", Value::Object(named)) => {
                    groups.extend(named.values_mut().filter_map(|group| group.get_mut("properties")));
                }
                ("properties", value) => groups.push(value),
                _ => {}
            }
        }
    }
    for property in groups.into_iter().filter_map(Value::as_object_mut).flat_map(serde_json::Map::values_mut)
    {
        // `null` is no default: it says nothing that the missing key does not say.
        if let Some(property) = property.as_object_mut()
            && property.get("default") == Some(&Value::Null)
        {
            property.remove("default");
        }
        let word_given = property.get("description").and_then(Value::as_str).and_then(default_in);
        if let Some(default) = word_given.and_then(|word| typed(&word, property, &definitions))
            && let Some(property) = property.as_object_mut()
        {
            property.insert("default".to_owned(), default);
        }
    }
}

/// The word before `unless given`, if it is a literal value.
fn default_in(description: &str) -> Option<String> {
    let (before, _) = description.split_once(" unless given")?;
    let word = before.rsplit(' ').next()?;
    match word.strip_prefix('`').and_then(|word| word.strip_suffix('`')) {
        Some(word) if !word.contains(['<', '`']) => Some(word.to_owned()),
        Some(_) => None,
        None => word.starts_with(|letter: char| letter.is_ascii_digit()).then(|| word.to_owned()),
    }
}

/// `word` as a value of that property; `None` if it is none.
fn typed(word: &str, property: &Value, definitions: &Value) -> Option<Value> {
    let accepts = |kind: &str| match property.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    };
    if accepts("boolean") {
        return word.parse::<bool>().ok().map(Value::from);
    }
    if accepts("integer") {
        return word.parse::<u32>().ok().map(Value::from);
    }
    if accepts("string") {
        return Some(Value::from(word));
    }
    let choice = property.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let pointer = choice.chain([property]).find_map(|choice| choice.get("$ref")?.as_str())?;
    let definition = definitions.get(pointer.strip_prefix("#/$defs/")?)?;
    let words = definition.get("enum").and_then(Value::as_array).into_iter().flatten();
    let constants = definition.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let known =
        words.chain(constants.filter_map(|constant| constant.get("const"))).any(|known| known == word);
    // A count or a percentage is no choice, but has a form.
    let count = definition.get("pattern").is_some() && word.bytes().all(|byte| byte.is_ascii_digit());
    match (known, count) {
        (true, _) => Some(Value::from(word)),
        (false, true) => word.parse::<u32>().ok().map(Value::from),
        (false, false) => None,
    }
}
