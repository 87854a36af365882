//! From YAML text to a tree of values with their places.
//!
//! Types are left open: a scalar keeps its text, so that `kubernetesVersion: 1.30` stays `1.30` and what a
//! key expects decides how it is read (`shape`). Duplicate keys are refused, aliases and merge keys (`<<`) are
//! resolved under a budget, and nothing recurses over what a stranger wrote.

use std::collections::BTreeMap;
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Tag};

use super::problem::{Problem, Span};
use super::shown;

/// The most nodes of a spec with every alias expanded. The largest cluster that CloudFormation's limits
/// allow (200 pools) stays below a third of it.
pub(crate) const MAX_NODES: usize = 20_000;
/// The deepest key of the schema lies at depth 8; more than this is an attack or an accident.
const MAX_DEPTH: usize = 32;

/// A kind of file that is read: what findings call it, and where they send people.
#[derive(Debug)]
pub(crate) struct Document {
    /// `the spec`.
    pub(crate) name: &'static str,
    /// What to do about something that is no such file at all.
    pub(crate) other: &'static str,
    /// What to do about an empty one.
    pub(crate) empty: &'static str,
    /// What to do about two in one file.
    pub(crate) several: &'static str,
    /// What to do about a YAML tag.
    pub(crate) tag: &'static str,
    /// The largest that is read, in bytes.
    pub(crate) most_bytes: usize,
}

/// A value of a YAML document, and where it is.
#[derive(Debug)]
pub struct Node {
    /// Where it is.
    pub span: Span,
    /// What it is.
    pub kind: Kind,
    /// Nodes below and with this one, aliases expanded.
    size: usize,
    /// Levels below and with this one.
    height: usize,
}

/// What a value is. Aliases and merge keys are resolved.
#[derive(Debug)]
pub enum Kind {
    /// A scalar, which keeps its text.
    Scalar {
        /// The text, without quotes.
        text: String,
        /// Whether it had no quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Arc<Node>>),
    /// Keys and values in their order, each key once.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key is.
    pub key_span: Span,
    /// Its value.
    pub value: Arc<Node>,
}

impl Node {
    /// Nothing, `~` or `null` without quotes.
    pub(crate) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar { text, plain: true }
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// The entry of that key.
    pub(crate) fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key == key),
            Kind::Scalar { .. } | Kind::List(_) => None,
        }
    }

    /// What it is, for a message.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Scalar { .. } if self.is_null() => "empty".to_owned(),
            Kind::Scalar { text, plain } => {
                let shown = shown::value(text);
                if *plain { format!("`{shown}`") } else { format!("the text \"{shown}\"") }
            }
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "a group of keys".to_owned(),
        }
    }
}

/// A collection that is being read.
struct Frame {
    span: Span,
    anchor: usize,
    /// `Some` for a map, with the key that waits for its value.
    pending: Option<Pending>,
    items: Vec<Arc<Node>>,
    entries: Vec<Entry>,
    /// The index of each key in `entries`.
    keys: BTreeMap<String, usize>,
    merges: Vec<(Span, Arc<Node>)>,
}

impl Frame {
    fn push(&mut self, entry: Entry) {
        self.keys.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
    }
}

enum Pending {
    Nothing,
    Key(String, Span, bool),
    /// A key that is no text: its value is read and dropped.
    Refused,
}

/// Reads exactly one document.
///
/// # Errors
/// Everything that makes the text no usable YAML: the first syntax error, and all duplicate keys before it.
pub(crate) fn read(text: &str, document: &Document) -> Result<Node, Vec<Problem>> {
    let options = granit_parser::options! { emit_comments: false };
    let mut builder = Builder {
        document,
        problems: Vec::new(),
        anchors: BTreeMap::new(),
        stack: Vec::new(),
        root: None,
        total: 0,
        documents: 0,
        start: Span::default(),
    };
    for event in Parser::new_from_str_with_options(text, options) {
        match event {
            Ok((event, span)) => {
                let span = place(text, &span);
                if !builder.take(event, span) {
                    return Err(builder.problems);
                }
            }
            Err(error) => {
                builder.problems.push(syntax(text, &error));
                return Err(builder.problems);
            }
        }
    }
    let Builder { problems, root, .. } = builder;
    if !problems.is_empty() {
        return Err(problems);
    }
    match root {
        Some(node) if !node.is_null() => {
            Ok(Arc::try_unwrap(node).unwrap_or_else(|shared| clone_top(&shared)))
        }
        Some(_) | None => {
            Err(vec![Problem::file("empty-file", format!("{} is empty", document.name)).help(document.empty)])
        }
    }
}

/// The root, when an anchor still holds it: its children are shared, so this is one level.
fn clone_top(node: &Node) -> Node {
    let kind = match &node.kind {
        Kind::Scalar { text, plain } => Kind::Scalar { text: text.clone(), plain: *plain },
        Kind::List(items) => Kind::List(items.clone()),
        Kind::Map(entries) => Kind::Map(entries.clone()),
    };
    Node { span: node.span, kind, size: node.size, height: node.height }
}

struct Builder<'d> {
    document: &'d Document,
    problems: Vec<Problem>,
    anchors: BTreeMap<usize, Arc<Node>>,
    stack: Vec<Frame>,
    root: Option<Arc<Node>>,
    total: usize,
    documents: usize,
    /// Where the document begins.
    start: Span,
}

impl Builder<'_> {
    /// Takes one event; `false` ends the reading.
    fn take(&mut self, event: Event<'_>, span: Span) -> bool {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                self.start = span;
                true
            }
            // A separator at the end begins a document with nothing in it.
            Event::Scalar(text, ScalarStyle::Plain, 0, None)
                if self.documents > 1 && self.stack.is_empty() && matches!(&*text, "" | "~") =>
            {
                true
            }
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_)
                if self.documents > 1 =>
            {
                self.problems.push(
                    Problem::at(self.start, "several-documents", "there is a second YAML document here")
                        .help(self.document.several),
                );
                false
            }
            Event::Scalar(text, style, anchor, tag) => {
                let Some(quoted) = self.tag(tag.as_deref(), span) else { return false };
                let plain = style == ScalarStyle::Plain && !quoted;
                let node =
                    Node { span, kind: Kind::Scalar { text: text.into_owned(), plain }, size: 1, height: 1 };
                self.count(1, span) && self.place(Arc::new(node), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), span).is_some() && self.open(span, anchor, None)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), span).is_some() && self.open(span, anchor, Some(Pending::Nothing))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Alias(anchor) => {
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    self.problems.push(
                        Problem::at(span, "yaml-alias", "this alias stands inside its own anchor")
                            .help("write the value out instead"),
                    );
                    return false;
                };
                self.count(node.size, span) && self.depth(node.height, span) && self.place(node, 0)
            }
            // The rest says nothing about values: stream and document ends, comments (not asked for), anchors' names.
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) | _ => true,
        }
    }

    /// `Some(true)` if the tag makes a scalar text; `None` after refusing it.
    fn tag(&mut self, tag: Option<&Tag>, span: Span) -> Option<bool> {
        let Some(tag) = tag else { return Some(false) };
        match (tag.handle(), tag.suffix()) {
            ("tag:yaml.org,2002:", "str") => Some(true),
            ("tag:yaml.org,2002:", "int" | "bool" | "float" | "null" | "map" | "seq") => Some(false),
            (handle, suffix) => {
                self.problems.push(
                    Problem::at(span, "yaml-tag", format!("the tag `{handle}{suffix}` means nothing here"))
                        .help(self.document.tag),
                );
                None
            }
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> bool {
        self.total = self.total.saturating_add(nodes);
        if self.total <= MAX_NODES {
            return true;
        }
        self.problems.push(
            Problem::at(
                span,
                "too-many-values",
                format!("with its aliases expanded {} has more than {MAX_NODES} values", self.document.name),
            )
            .help("nobody needs so many: look for anchors that repeat one another (`&a`, `*a`)"),
        );
        false
    }

    fn depth(&mut self, height: usize, span: Span) -> bool {
        if self.stack.len() + height <= MAX_DEPTH {
            return true;
        }
        self.problems.push(
            Problem::at(span, "too-deep", format!("values are nested more than {MAX_DEPTH} levels deep"))
                .help("no key lies that deep: check the indentation and the brackets"),
        );
        false
    }

    fn open(&mut self, span: Span, anchor: usize, pending: Option<Pending>) -> bool {
        if !self.count(1, span) || !self.depth(1, span) {
            return false;
        }
        self.stack.push(Frame {
            span,
            anchor,
            pending,
            items: Vec::new(),
            entries: Vec::new(),
            keys: BTreeMap::new(),
            merges: Vec::new(),
        });
        true
    }

    fn close(&mut self) -> bool {
        let Some(mut frame) = self.stack.pop() else { return true };
        let kind = if frame.pending.is_some() {
            if !self.merge(&mut frame) {
                return false;
            }
            Kind::Map(frame.entries)
        } else {
            Kind::List(frame.items)
        };
        let (size, height) = match &kind {
            Kind::Scalar { .. } => (1, 1),
            Kind::List(items) => measure(items.iter()),
            Kind::Map(entries) => measure(entries.iter().map(|entry| &entry.value)),
        };
        self.place(Arc::new(Node { span: frame.span, kind, size, height }), frame.anchor)
    }

    /// Adds what `<<` brings, where the map does not say it itself.
    fn merge(&mut self, frame: &mut Frame) -> bool {
        for (span, source) in std::mem::take(&mut frame.merges) {
            let sources: Vec<&Node> = match &source.kind {
                Kind::Map(_) => vec![&source],
                Kind::List(items) => items.iter().map(Arc::as_ref).collect(),
                Kind::Scalar { .. } => Vec::new(),
            };
            if sources.is_empty() || sources.iter().any(|node| !matches!(node.kind, Kind::Map(_))) {
                self.problems.push(
                    Problem::at(span, "yaml-merge", "`<<` merges groups of keys, and this is none")
                        .help("refer to a group of keys: `<<: *anchor`"),
                );
                continue;
            }
            for node in sources {
                let Kind::Map(entries) = &node.kind else { continue };
                for entry in entries {
                    if frame.keys.contains_key(&entry.key) {
                        continue;
                    }
                    if !self.count(entry.value.size, span) {
                        return false;
                    }
                    frame.push(entry.clone());
                }
            }
        }
        true
    }

    /// Puts a finished node where it belongs.
    fn place(&mut self, node: Arc<Node>, anchor: usize) -> bool {
        if anchor > 0 {
            self.anchors.insert(anchor, Arc::clone(&node));
        }
        let Some(frame) = self.stack.last_mut() else {
            self.root = Some(node);
            return true;
        };
        let Some(pending) = frame.pending.as_mut() else {
            frame.items.push(node);
            return true;
        };
        match std::mem::replace(pending, Pending::Nothing) {
            Pending::Nothing => match &node.kind {
                Kind::Scalar { text, plain } => *pending = Pending::Key(text.clone(), node.span, *plain),
                Kind::List(_) | Kind::Map(_) => {
                    self.problems.push(
                        Problem::at(node.span, "yaml-key", "a key must be a word, not a list or a group")
                            .help("an unquoted `{` or `[` begins one: put text that has them into quotes"),
                    );
                    *pending = Pending::Refused;
                }
            },
            Pending::Refused => {}
            Pending::Key(key, span, true) if key == "<<" => frame.merges.push((span, node)),
            Pending::Key(key, key_span, _) => {
                if let Some(first) = frame.keys.get(&key).and_then(|index| frame.entries.get(*index)) {
                    self.problems.push(
                        Problem::at(key_span, "duplicate-key", format!("`{key}` is given twice")).help(
                            format!("it stands already on line {}: keep one of the two", first.key_span.line),
                        ),
                    );
                } else {
                    frame.push(Entry { key, key_span, value: node });
                }
            }
        }
        true
    }
}

fn measure<'n>(children: impl Iterator<Item = &'n Arc<Node>>) -> (usize, usize) {
    let (size, height) = children
        .fold((0_usize, 0), |(size, height), node| (size.saturating_add(node.size), height.max(node.height)));
    (size.saturating_add(1), height + 1)
}

fn place(text: &str, span: &granit_parser::Span) -> Span {
    let range = span.byte_range().unwrap_or(0..0);
    // A block scalar's range runs past its last line, a plain one's may hold the line break: neither is underlined.
    let shown = text.get(range.clone()).map_or(0, |slice| slice.trim_end().len());
    Span {
        line: count32(span.start.line()),
        column: count32(span.start.col()).saturating_add(1),
        start: range.start,
        end: range.start + shown,
    }
}

fn count32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The finding about a syntax error.
fn syntax(text: &str, error: &ScanError) -> Problem {
    let marker = error.marker();
    let line = marker.line().max(1);
    if let Some(tab) = tab_near(text, line) {
        return Problem::at(tab, "yaml-tab", "a tab is used for indentation")
            .help("YAML indents with spaces only: replace the tab by spaces");
    }
    let start = marker.byte_offset().unwrap_or(0).min(text.len());
    let span =
        Span { line: count32(line), column: count32(marker.col()).saturating_add(1), start, end: start };
    let deep = matches!(error.kind(), ErrorKind::RecursionLimitExceeded);
    if deep {
        return Problem::at(span, "too-deep", format!("values are nested more than {MAX_DEPTH} levels deep"))
            .help("no key lies that deep: check the indentation and the brackets");
    }
    if matches!(error.kind(), ErrorKind::UnknownAnchor) {
        return Problem::at(span, "yaml-alias", "no anchor of that name stands before this alias")
            .help("define it first (`&name`), or put text that begins with `*` into quotes");
    }
    Problem::at(span, "yaml-syntax", format!("this is not YAML: {}", error.info()))
        .help("check the indentation, the colons and the quotes here and on the line before")
}

/// A tab in the indentation of the line that the parser stumbled over, or of the one before or after: it may read to the end of a line
/// before it finds out.
fn tab_near(text: &str, line: usize) -> Option<Span> {
    let mut start = 0;
    for (number, content) in (1..=line + 1).zip(text.split_inclusive('\n')) {
        if number + 1 >= line {
            let blank = content.len() - content.trim_start_matches([' ', '\t']).len();
            if let Some(at) = content[..blank].find('\t') {
                return Some(Span {
                    line: count32(number),
                    column: count32(at).saturating_add(1),
                    start: start + at,
                    end: start + at + 1,
                });
            }
        }
        start += content.len();
    }
    None
}
