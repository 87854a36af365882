//! A spec that is being rewritten: its values in their order, and how they are written as YAML.

use std::fmt::Write as _;

use slipway_spec::{Kind, Node};

/// Groups that mean something even when they are empty.
const MEANINGFUL: &[&str] = &["mixedInstances", "ephemeralStorage"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// `plain` if the text stands without quotes.
    Scalar {
        text: String,
        plain: bool,
    },
    List(Vec<Item>),
    Map(Vec<(String, Item)>),
}

impl From<&Node> for Item {
    fn from(node: &Node) -> Self {
        match &node.kind {
            Kind::Scalar { text, plain } => Self::Scalar { text: text.clone(), plain: *plain },
            Kind::List(items) => Self::List(items.iter().map(|item| Self::from(&**item)).collect()),
            Kind::Map(entries) => {
                let entry = |entry: &slipway_spec::Entry| (entry.key.clone(), Self::from(&*entry.value));
                Self::Map(entries.iter().map(entry).collect())
            }
        }
    }
}

impl Item {
    pub(super) fn plain(text: impl Into<String>) -> Self {
        Self::Scalar { text: text.into(), plain: true }
    }

    pub(super) fn quoted(text: &str) -> Self {
        Self::Scalar { text: text.to_owned(), plain: false }
    }

    pub(super) fn map<const N: usize>(entries: [(&str, Self); N]) -> Self {
        Self::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.text() == Some(word)
    }

    pub(super) fn is_true(&self) -> bool {
        self.boolean() == Some(true)
    }

    /// The boolean that YAML 1.1, and so kube-aws, read there.
    pub(super) fn boolean(&self) -> Option<bool> {
        let Self::Scalar { text, plain: true } = self else { return None };
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        }
    }

    /// No value, or an empty group.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Scalar { text, plain } => *plain && matches!(text.as_str(), "" | "~" | "null"),
            Self::List(_) => false,
            Self::Map(entries) => entries.is_empty(),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Scalar { .. } | Self::List(_) => None,
        }
    }

    pub(super) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Map(entries) => entries.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value),
            Self::Scalar { .. } | Self::List(_) => None,
        }
    }

    /// The value at keys with dots between them.
    pub(super) fn at(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |item, key| item.get(key))
    }

    pub(super) fn items_mut(&mut self, key: &str) -> &mut [Self] {
        match self.get_mut(key) {
            Some(Self::List(items)) => items,
            Some(Self::Scalar { .. } | Self::Map(_)) | None => &mut [],
        }
    }

    /// Removes and returns the value at those keys; groups that are empty then go, too.
    pub(super) fn take(&mut self, path: &str) -> Option<Self> {
        let Self::Map(entries) = self else { return None };
        let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
        let index = entries.iter().position(|(name, _)| name == key)?;
        let Some(rest) = rest else { return Some(entries.remove(index).1) };
        let taken = entries[index].1.take(rest)?;
        if entries[index].1.is_empty() {
            entries.remove(index);
        }
        Some(taken)
    }

    /// Puts a value at those keys, unless there is one.
    pub(super) fn put_if_absent(&mut self, path: &str, value: Self) {
        if self.is_empty() {
            *self = Self::Map(Vec::new());
        }
        let Self::Map(entries) = self else { return };
        let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
        let index = entries.iter().position(|(name, _)| name == key);
        match (index, rest) {
            (Some(index), Some(rest)) => entries[index].1.put_if_absent(rest, value),
            (Some(index), None) => {
                if entries[index].1.is_empty() {
                    entries[index].1 = value;
                }
            }
            (None, Some(rest)) => {
                let mut below = Self::Map(Vec::new());
                below.put_if_absent(rest, value);
                entries.push((key.to_owned(), below));
            }
            (None, None) => entries.push((key.to_owned(), value)),
        }
    }

    /// Adds items to the list at those keys.
    pub(super) fn append(&mut self, path: &str, items: Vec<Self>) {
        let mut all = match self.take(path) {
            Some(Self::List(all)) => all,
            Some(Self::Scalar { .. } | Self::Map(_)) | None => Vec::new(),
        };
        all.extend(items);
        self.put_if_absent(path, Self::List(all));
    }

    /// The value at a finding's path, such as `worker.nodePools[1].name`; keys may contain dots themselves.
    pub(super) fn at_finding(&mut self, path: &str) -> Option<&mut Self> {
        if path.is_empty() {
            return Some(self);
        }
        match self {
            Self::Scalar { .. } => None,
            Self::List(items) => {
                let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
                items
                    .get_mut(index.parse::<usize>().ok()?)?
                    .at_finding(rest.strip_prefix('.').unwrap_or(rest))
            }
            Self::Map(entries) => entries.iter_mut().find_map(|(key, value)| {
                let rest = path.strip_prefix(key.as_str())?;
                match rest.strip_prefix('.') {
                    Some(rest) => value.at_finding(rest),
                    None if rest.is_empty() || rest.starts_with('[') => value.at_finding(rest),
                    None => None,
                }
            }),
        }
    }

    /// Adds the path of each scalar below to `found`, as findings write paths.
    pub(super) fn leaves(&self, path: &str, found: &mut Vec<String>) {
        match self {
            Self::Scalar { .. } => found.push(path.to_owned()),
            Self::List(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(index, item)| item.leaves(&format!("{path}[{index}]"), found));
            }
            Self::Map(entries) => {
                for (key, value) in entries {
                    value.leaves(&if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, found);
                }
            }
        }
    }

    /// Removes the value at a finding's path. Returns whether there was one.
    pub(super) fn remove(&mut self, path: &str) -> bool {
        match self {
            Self::Scalar { .. } => false,
            Self::List(items) => {
                let Some((index, rest)) = path.strip_prefix('[').and_then(|path| path.split_once(']')) else {
                    return false;
                };
                let Ok(index) = index.parse::<usize>() else { return false };
                let rest = rest.strip_prefix('.').unwrap_or(rest);
                if rest.is_empty() && index < items.len() {
                    items.remove(index);
                    return true;
                }
                items.get_mut(index).is_some_and(|item| item.remove(rest))
            }
            Self::Map(entries) => {
                if let Some(index) = entries.iter().position(|(key, _)| key == path) {
                    entries.remove(index);
                    return true;
                }
                let found = entries.iter_mut().position(|(key, value)| {
                    path.strip_prefix(key.as_str())
                        .and_then(|rest| rest.strip_prefix('.').or(rest.starts_with('[').then_some(rest)))
                        .is_some_and(|rest| value.remove(rest))
                });
                // A group that is empty now is removed, too.
                if let Some(index) = found
                    && entries[index].1.is_empty()
                    && !MEANINGFUL.contains(&entries[index].0.as_str())
                {
                    entries.remove(index);
                }
                found.is_some()
            }
        }
    }

    /// Removes every key without a value, and adds its path to `removed`.
    pub(super) fn remove_empty(&mut self, path: &str, removed: &mut Vec<String>) {
        match self {
            Self::Scalar { .. } => {}
            Self::List(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    item.remove_empty(&format!("{path}[{index}]"), removed);
                }
            }
            Self::Map(entries) => {
                entries.retain_mut(|(key, value)| {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    // An empty group may have a meaning: `mixedInstances: {}` is spot.
                    let empty = value.is_empty() && matches!(value, Self::Scalar { .. });
                    if empty {
                        removed.push(path);
                    } else {
                        value.remove_empty(&path, removed);
                    }
                    !empty
                });
            }
        }
    }

    /// Appends the value as block YAML.
    pub(super) fn write(&self, indent: usize, out: &mut String) {
        let pad = " ".repeat(indent);
        match self {
            Self::Scalar { .. } => {}
            Self::Map(entries) => {
                for (key, value) in entries {
                    let _ = write!(out, "{pad}{}:", word(key, true));
                    value.write_value(indent, out);
                }
            }
            Self::List(items) => {
                for item in items {
                    let mut below = String::new();
                    match item {
                        Self::Map(entries) if !entries.is_empty() => item.write(indent + 2, &mut below),
                        Self::Map(_) | Self::List(_) | Self::Scalar { .. } => {
                            below.push_str(&pad);
                            below.push(' ');
                            item.write_value(indent, &mut below);
                        }
                    }
                    // The first key of a group follows the dash.
                    let _ = write!(out, "{pad}- {}", below.get(indent + 2..).unwrap_or(&below));
                }
            }
        }
    }

    /// Appends what follows a colon or a dash, to the end of the line.
    fn write_value(&self, indent: usize, out: &mut String) {
        match self {
            Self::Map(entries) if entries.is_empty() => out.push_str(" {}\n"),
            Self::List(items) if items.is_empty() => out.push_str(" []\n"),
            Self::Map(_) | Self::List(_) => {
                out.push('\n');
                self.write(indent + 2, out);
            }
            Self::Scalar { text, .. } if is_block(text) => {
                let pad = " ".repeat(indent + 2);
                out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
                for line in text.lines() {
                    let _ = if line.is_empty() { writeln!(out) } else { writeln!(out, "{pad}{line}") };
                }
            }
            Self::Scalar { text, plain } => {
                let _ = writeln!(out, " {}", word(text, *plain));
            }
        }
    }
}

/// Whether a literal block (`|`) reads back as the same text.
fn is_block(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.ends_with("\n\n")
        && text.chars().all(|letter| letter == '\n' || !letter.is_control())
}

/// One line of text, in quotes where it would be read differently without.
fn word(text: &str, plain: bool) -> String {
    let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_./:+@ ()".contains(letter);
    let bare = plain
        && text.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '/')
        && text.chars().all(safe)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ");
    // A JSON string is a YAML string in double quotes.
    if bare { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}
