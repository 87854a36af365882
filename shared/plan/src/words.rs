//! Values and their differences in lines: each value that is added or changes is there whole, or, if it is long, with its size and digest.
//!
//! Whoever approves a plan as text relies on this: nothing that will run may hide behind a number of settings or of digests.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use slipway_core::diff::{Difference, is_intrinsic};
use slipway_core::digest::sha256_hex;
use slipway_core::words::is_harmful;

/// How many characters of a value are shown.
const LONGEST: usize = 200;
/// How many of a list or of an object: it is shown whole or value by value.
const LONGEST_DEEP: usize = 600;
/// How many characters are shown before the first difference of two long values, as context.
const LEAD: usize = 20;
/// How many keys of something that is dropped are named.
const NAMED: usize = 3;
/// The keys that name the elements of a list.
const NAMES: [&str; 7] = ["name", "Name", "path", "id", "key", "DeviceName", "Sid"];

/// One line for each value that differs, with its path.
pub(super) fn lines(found: &Difference) -> Vec<String> {
    let path = |leaf: &Leaf<'_>| Shown::new(&Value::from(leaf.path.as_str())).shown;
    leaves(found).iter().map(|leaf| format!("{}: {}", path(leaf), change(leaf.before, leaf.after))).collect()
}

/// Whether [`lines`] shows a value in part only.
pub(super) fn is_cut(found: &Difference) -> bool {
    let long = |value: &Value| Shown::new(value).is_long();
    leaves(found).iter().flat_map(|leaf| [leaf.before, leaf.after]).flatten().any(|value| match value {
        Value::Array(list) => list.iter().any(long),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => long(value),
    })
}

/// A value in one short line.
pub(super) fn short(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), |value| Shown::new(value).cut(0))
}

/// A value that differs. A list of single values is one.
struct Leaf<'v> {
    path: String,
    before: Option<&'v Value>,
    after: Option<&'v Value>,
}

fn leaves(found: &Difference) -> Vec<Leaf<'_>> {
    let mut leaves = Vec::new();
    walk(found.path.clone(), found.before.as_ref(), found.after.as_ref(), &mut leaves);
    leaves
}

fn walk<'v>(path: String, before: Option<&'v Value>, after: Option<&'v Value>, leaves: &mut Vec<Leaf<'v>>) {
    if before == after {
        return;
    }
    if let (Some(old), Some(new)) = (before, after)
        && let Some((old, new)) = same_function(old, new)
    {
        return walk(path, Some(old), Some(new), leaves);
    }
    let known = leaves.len();
    // What is new and short stays in one line.
    let deep = after.filter(|after| before.is_some() || Shown::new(after).is_long());
    match deep {
        Some(Value::Object(new)) if has_settings(new) => {
            let old = before.and_then(Value::as_object).filter(|old| has_settings(old));
            if old.is_none() && before.is_some() {
                leaves.push(Leaf { path: path.clone(), before, after: None });
            }
            let keys: BTreeSet<&String> = old.into_iter().flat_map(Map::keys).chain(new.keys()).collect();
            for key in keys {
                let below = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                walk(below, old.and_then(|old| old.get(key)), new.get(key), leaves);
            }
        }
        Some(Value::Array(new)) if new.iter().any(is_deep) => {
            let old = before.and_then(Value::as_array);
            if old.is_none() && before.is_some() {
                leaves.push(Leaf { path: path.clone(), before, after: None });
            }
            list(&path, old.map_or(&[], Vec::as_slice), new, leaves);
        }
        Some(_) | None => {}
    }
    if leaves.len() == known {
        leaves.push(Leaf { path, before, after });
    }
}

/// The elements of a list that differ: by their names, or by their places if not all have one.
fn list<'v>(path: &str, old: &'v [Value], new: &'v [Value], leaves: &mut Vec<Leaf<'v>>) {
    if let Some(key) = NAMES.iter().find(|key| are_named(old, key) && are_named(new, key)) {
        let text_of = |value: &'v Value| value[*key].as_str().unwrap_or_default();
        for value in new {
            let before = old.iter().find(|other| text_of(other) == text_of(value));
            walk(format!("{path}[{}]", text_of(value)), before, Some(value), leaves);
        }
        let gone = old.iter().filter(|value| !new.iter().any(|other| text_of(other) == text_of(value)));
        leaves.extend(gone.map(|value| {
            let path = format!("{path}[{}]", text_of(value));
            Leaf { path, before: Some(value), after: None }
        }));
        return;
    }
    let (dropped, added) = moved(old, new);
    let pairs = dropped.len() == added.len();
    for (number, (index, value)) in added.iter().enumerate() {
        let before = dropped.get(number).copied().filter(|_| pairs);
        walk(format!("{path}[{index}]"), before, Some(value), leaves);
    }
    if !pairs {
        leaves.extend(dropped.iter().map(|value| Leaf {
            path: path.to_owned(),
            before: Some(value),
            after: None,
        }));
    }
}

/// Whether all elements have a text at `key`, each another one.
fn are_named(list: &[Value], key: &str) -> bool {
    let names: BTreeSet<&str> = list.iter().filter_map(|value| value.get(key)?.as_str()).collect();
    names.len() == list.len()
}

/// The elements that went, and those that came with their places.
fn moved<'v>(old: &'v [Value], new: &'v [Value]) -> (Vec<&'v Value>, Vec<(usize, &'v Value)>) {
    let mut dropped: Vec<&Value> = old.iter().collect();
    let mut added = Vec::new();
    for (index, value) in new.iter().enumerate() {
        match dropped.iter().position(|other| *other == value) {
            Some(place) => drop(dropped.remove(place)),
            None => added.push((index, value)),
        }
    }
    (dropped, added)
}

/// Whether the values in it are shown one by one.
fn has_settings(keys: &Map<String, Value>) -> bool {
    !keys.is_empty() && !is_intrinsic(keys) && tag(keys).is_none()
}

fn is_deep(value: &Value) -> bool {
    match value {
        Value::Object(keys) => has_settings(keys),
        Value::Array(_) => true,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The arguments of two intrinsic functions of the same name, such as the user data in `Fn::Base64`.
fn same_function<'v>(before: &'v Value, after: &'v Value) -> Option<(&'v Value, &'v Value)> {
    let argument = |value: &'v Value| {
        let keys = value.as_object().filter(|keys| is_intrinsic(keys))?;
        keys.iter().next()
    };
    let ((one, before), (other, after)) = (argument(before)?, argument(after)?);
    (one == other && one != "Ref").then_some((before, after))
}

/// How `before` became `after`: for lists the added and removed elements, for long texts the place of the first difference.
fn change(before: Option<&Value>, after: Option<&Value>) -> String {
    let (Some(before), Some(after)) = (before, after) else {
        return match (before, after) {
            (Some(before), None) => format!("{} → (absent)", dropped(before)),
            // Each element of a long list is shown by itself, so that none is cut off.
            (None, Some(Value::Array(list))) if Shown::new(&Value::Array(list.clone())).is_long() => {
                adds(list)
            }
            (_, after) => format!("(absent) → {}", short(after)),
        };
    };
    if let (Value::Array(before), Value::Array(after)) = (before, after)
        && let Some(words) = elements(before, after)
    {
        return words;
    }
    let (before, after) = (Shown::new(before), Shown::new(after));
    if after.is_long() && masked(&before.shown) == masked(&after.shown) {
        return format!("only runs of hexadecimal digits in it differ {}", after.size());
    }
    let from = window(&before.shown, &after.shown, LONGEST);
    format!("{} → {}", before.cut(from), after.cut(from))
}

/// The shortest run of hexadecimal digits that is taken for a digest.
const DIGEST: usize = 32;

/// The text with `…` in the place of each digest.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut run = String::new();
    for letter in text.chars().map(Some).chain([None]) {
        if let Some(digit) = letter.filter(char::is_ascii_hexdigit) {
            run.push(digit);
            continue;
        }
        masked.push_str(if run.len() >= DIGEST { "…" } else { &run });
        run.clear();
        masked.extend(letter);
    }
    masked
}

/// The first character to show of two texts, of which `longest` characters are shown, so that their difference is visible.
pub(super) fn window(before: &str, after: &str, longest: usize) -> usize {
    let long = |text: &str| text.chars().nth(longest).is_some();
    if !long(before) && !long(after) {
        return 0;
    }
    let same = before.chars().zip(after.chars()).take_while(|(left, right)| left == right).count();
    // If they differ within the first characters, showing the beginning is best.
    if same + LEAD < longest { 0 } else { same - LEAD }
}

/// The added and removed elements, if any element stayed. A change of the order only has no such words.
fn elements(before: &[Value], after: &[Value]) -> Option<String> {
    let (gone, came) = moved(before, after);
    let anything = !came.is_empty() || !gone.is_empty();
    // A short list that has nothing of the old one is read best as a whole.
    let is_short = |list: &[Value]| !Shown::new(&Value::Array(list.to_vec())).is_long();
    let other = !before.is_empty() && gone.len() == before.len() && is_short(before) && is_short(after);
    if !anything || other {
        return None;
    }
    let came: Vec<Value> = came.into_iter().map(|(_, value)| value.clone()).collect();
    let gone: Vec<String> = gone.into_iter().map(dropped).collect();
    let words = [
        (!came.is_empty()).then(|| adds(&came)),
        (!gone.is_empty()).then(|| format!("drops {}", gone.join(", "))),
    ];
    Some(words.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

fn adds(list: &[Value]) -> String {
    let values: Vec<String> = list.iter().map(|value| short(Some(value))).collect();
    format!("adds {}", values.join(", "))
}

/// What goes, which does not run any more: what would have to be cut is described instead.
fn dropped(value: &Value) -> String {
    let shown = Shown::new(value);
    match value {
        Value::Object(keys) if shown.is_long() => {
            let names: Vec<&str> = keys.keys().take(NAMED).map(String::as_str).collect();
            let more = keys.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("settings of {}{more}", names.join(", "))
        }
        Value::Array(list) if shown.is_long() => slipway_core::words::count(list.len() as u64, "value"),
        Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Array(_)
        | Value::Object(_) => shown.cut(0),
    }
}

/// `key=value` of a tag of AWS.
fn tag(keys: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| keys.get(key)?.as_str();
    let known = keys.keys().all(|key| matches!(key.as_str(), "Key" | "Value" | "PropagateAtLaunch"));
    known.then(|| Some(format!("{}={}", text("Key")?, text("Value")?))).flatten()
}

/// A value, and how it is written in one line.
struct Shown {
    value: String,
    shown: String,
    most: usize,
}

impl Shown {
    fn new(value: &Value) -> Self {
        let tag = value.as_object().and_then(tag);
        let Some(text) = tag.or_else(|| value.as_str().map(str::to_owned)) else {
            let text = value.to_string();
            return Self { value: text.clone(), shown: text, most: LONGEST_DEEP };
        };
        // A value cannot look like the words around it, or like another line.
        let odd = text.contains(is_harmful) || text.contains('→') || text.starts_with(['(', '…', '"']);
        let shown = if odd { Value::from(text.as_str()).to_string() } else { text.clone() };
        Self { value: text, shown, most: LONGEST }
    }

    fn is_long(&self) -> bool {
        self.shown.chars().nth(self.most).is_some()
    }

    /// How long it is, and the digest that `sha256sum` prints of it.
    fn size(&self) -> String {
        format!("({} characters, sha256 {})", self.value.chars().count(), sha256_hex(self.value.as_bytes()))
    }

    /// It from its character `from`, truncated.
    fn cut(&self, from: usize) -> String {
        if !self.is_long() {
            return self.shown.clone();
        }
        let shown: String = self.shown.chars().skip(from).take(LONGEST).collect();
        let before = if from > 0 { "…" } else { "" };
        let after = if self.shown.chars().nth(from + LONGEST).is_some() { "…" } else { "" };
        format!("{before}{shown}{after} {}", self.size())
    }
}

#[cfg(test)]
mod tests;
