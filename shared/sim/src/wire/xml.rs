//! A minimal XML writer.

use std::fmt::{Display, Write as _};

use jiff::Timestamp;

/// An element under construction.
#[derive(Debug, Default)]
pub(super) struct Xml(String);

impl Xml {
    /// Adds `<name>text</name>`.
    pub(super) fn leaf(&mut self, name: &str, text: impl Display) -> &mut Self {
        write!(self.0, "<{name}>{}</{name}>", escaped(&text.to_string())).expect("a String takes everything");
        self
    }

    /// As [`Xml::leaf`], if there is a text.
    pub(super) fn maybe(&mut self, name: &str, text: Option<impl Display>) -> &mut Self {
        if let Some(text) = text {
            self.leaf(name, text);
        }
        self
    }

    /// Adds a time.
    pub(super) fn time(&mut self, name: &str, at: Timestamp) -> &mut Self {
        self.leaf(name, at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ"))
    }

    /// Adds an element with other elements inside.
    pub(super) fn nest(&mut self, name: &str, fill: impl FnOnce(&mut Self)) -> &mut Self {
        write!(self.0, "<{name}>").expect("a String takes everything");
        fill(self);
        write!(self.0, "</{name}>").expect("a String takes everything");
        self
    }

    /// Adds a list, each item as a `<member>`.
    pub(super) fn list<T>(
        &mut self,
        name: &str,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.nest(name, |xml| {
            for item in items {
                xml.nest("member", |xml| fill(xml, item));
            }
        })
    }

    /// Adds a list of texts.
    pub(super) fn texts<T: Display>(&mut self, name: &str, items: impl IntoIterator<Item = T>) -> &mut Self {
        self.nest(name, |xml| {
            for item in items {
                xml.leaf("member", item);
            }
        })
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // A parser would turn it into a line feed.
            '\r' => out.push_str("&#13;"),
            '\n' | '\t' => out.push(c),
            // XML 1.0 allows no other control characters.
            c if c.is_control() => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
    out
}
