//! All output of the CLI: results go to the standard output, everything else to the standard error, with colour only on a terminal.
//! Whatever a command prints, no text of a node or of an object does anything to the terminal ([`harmless`]).

mod harmless;
mod yaml;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource};
use serde::Serialize;
use serde_json::{Value, json};
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::words;

use crate::failure::CliError;
use crate::source::Source;

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

/// The stream for an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Results.
    Out,
    /// Everything else.
    Err,
}

/// A colour of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Yellow,
    Green,
    Cyan,
}

/// Writes results, findings and failures.
#[derive(Debug)]
pub(crate) struct Printer {
    format: Format,
    colour_out: bool,
    colour_err: bool,
    /// The first error when writing a result.
    lost: OnceLock<io::Error>,
}

/// Reports are wrapped at this column, so that they look the same on a terminal and in a pipe.
const WIDTH: usize = 110;
/// How many findings are shown. One mistake in the indentation can cause hundreds.
const MOST_FINDINGS: usize = 50;
/// A longer line is not quoted with its finding, because no person wrote it.
const LONGEST_LINE: usize = 400;

impl Printer {
    pub(crate) fn of_environment(format: Format) -> Self {
        // https://no-color.org: any value but the empty one.
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self {
            format,
            colour_out: wanted && io::stdout().is_terminal(),
            colour_err: wanted && io::stderr().is_terminal(),
            lost: OnceLock::new(),
        }
    }

    /// The result of a command, as text for people or as one JSON object for programs.
    pub(crate) fn result(&self, text: &str, machine: &impl Serialize) {
        match self.format {
            Format::Text => self.text(Stream::Out, text),
            Format::Json | Format::Yaml => self.document(machine),
        }
    }

    /// Output before or beside the result, for people.
    pub(crate) fn beside(&self, text: &str) {
        if self.format == Format::Text {
            self.text(Stream::Err, text);
        }
    }

    /// One of several results: a line of text or JSON.
    pub(crate) fn line(&self, text: &str, machine: &impl Serialize) {
        match self.format {
            Format::Text => self.text(Stream::Out, &format!("{text}\n")),
            Format::Json => {
                let line = serde_json::to_string(machine).expect("results have string keys only");
                self.write(Stream::Out, &format!("{}\n", harmless::document(&line)));
            }
            Format::Yaml => {
                self.write(Stream::Out, "---\n");
                self.document(machine);
            }
        }
    }

    /// Replaces the content of the terminal.
    pub(crate) fn redraw(&self, text: &str) {
        // The cursor goes to the top and the rest is cleared afterwards, which avoids flickering.
        let text = harmless::text(text, self.colour_out);
        let lines: String = text.lines().map(|line| format!("{line}\u{1b}[K\n")).collect();
        self.write(Stream::Out, &format!("\u{1b}[H{lines}\u{1b}[J"));
    }

    /// Whether the terminal is redrawn for a person who watches.
    pub(crate) fn is_watched(&self) -> bool {
        self.format == Format::Text && io::stdout().is_terminal()
    }

    /// Whether the output is for a program, so that no question may be asked.
    pub(crate) fn is_for_machines(&self) -> bool {
        self.format != Format::Text
    }

    /// Whether a person is there who can answer a question.
    pub(crate) fn can_ask(&self) -> bool {
        !self.is_for_machines() && io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// Asks a yes-or-no question. `help`: what to do where nobody can be asked.
    pub(crate) fn confirm(&self, question: &str, help: String) -> Result<bool, CliError> {
        let answer = self.answer(&format!("{question} [y/N] "), help)?;
        Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
    }

    /// Asks for a line of text. `help`: what to do where nobody can be asked.
    pub(crate) fn answer(&self, question: &str, help: String) -> Result<String, CliError> {
        if !self.can_ask() {
            let problem =
                "this needs a confirmation, which is possible only on a terminal and with text output";
            return Err(CliError::refused(problem, help));
        }
        self.beside(question);
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.map_err(|error| CliError::file("read", Path::new("the answer"), &error))?;
        Ok(answer.trim().to_owned())
    }

    /// Bytes that are the same in both formats.
    pub(crate) fn raw(&self, bytes: &[u8]) {
        self.out(bytes);
    }

    /// The error if a result could not be written completely, for example because the disk is full.
    pub(crate) fn lost(&self) -> Option<CliError> {
        self.lost.get().map(|why| CliError::file("write", Path::new("the standard output"), why))
    }

    /// Text in a colour, on a terminal only.
    pub(crate) fn paint(&self, colour: Colour, text: &str) -> String {
        if !self.colour_out {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
            Colour::Cyan => 36,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// A plan's text with coloured signs.
    pub(crate) fn coloured(&self, text: &str) -> String {
        if !self.colour_out {
            return text.to_owned();
        }
        let colour = |line: &str| match line.trim_start().chars().next() {
            Some('+') => Some("32"),
            Some('-') => Some("31"),
            Some('±') => Some("35"),
            Some('~') => Some("33"),
            Some(_) | None => None,
        };
        text.lines()
            .map(|line| match colour(line) {
                Some(code) => format!("\u{1b}[{code}m{line}\u{1b}[0m\n"),
                None => format!("{line}\n"),
            })
            .collect()
    }

    /// Findings for people, each with the lines of the source that it concerns. In JSON they are part of the result.
    pub(crate) fn findings(&self, stream: Stream, source: &Source, findings: &[Diagnostic]) {
        if self.is_for_machines() || findings.is_empty() {
            return;
        }
        let colour = match stream {
            Stream::Out => self.colour_out,
            Stream::Err => self.colour_err,
        };
        let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_links(false)
            .with_width(WIDTH)
            .with_break_words(false)
            .with_context_lines(1);
        let mut texts: BTreeMap<String, Arc<String>> = BTreeMap::new();
        let mut page = String::new();
        for finding in findings.iter().take(MOST_FINDINGS) {
            let (name, bytes) = source.file_of(finding);
            let read = || Arc::new(String::from_utf8_lossy(bytes).into_owned());
            let text = Arc::clone(texts.entry(name.clone()).or_insert_with(read));
            let shown = shown(&text, finding);
            let report = Report { finding, source: NamedSource::new(name, text), shown };
            // Writing into a String does not fail; a span that the handler cannot show is skipped.
            if handler.render_report(&mut page, &report).is_err() {
                page.push_str(&format!("{finding}\n"));
            }
            page.push('\n');
        }
        if findings.len() > MOST_FINDINGS {
            page.push_str(&format!("… and {} more; -o json lists all\n", findings.len() - MOST_FINDINGS));
        }
        page.push_str(&format!("{}: {}\n", source.name, tally(findings)));
        self.text(stream, &page);
    }

    /// Prints the findings of a refused spec, for a command whose result would have been something else.
    pub(crate) fn refused(&self, source: &Source, findings: &[Diagnostic]) {
        match self.format {
            Format::Text => self.findings(Stream::Err, source, findings),
            Format::Json | Format::Yaml => self.document(&json!({ "ok": false, "diagnostics": findings })),
        }
    }

    /// Prints why a command failed.
    pub(crate) fn failure(&self, failure: &CliError) {
        match self.format {
            Format::Text => {
                let (red, cyan, end) =
                    if self.colour_err { ("\u{1b}[31m", "\u{1b}[36m", "\u{1b}[0m") } else { ("", "", "") };
                let mut text = format!("{red}error:{end} {failure}\n");
                if let Some(help) = failure.help() {
                    text.push_str(&format!("{cyan} help:{end} {help}\n"));
                }
                self.text(Stream::Err, &text);
            }
            Format::Json | Format::Yaml => {
                let error = json!({ "message": failure.to_string(), "help": failure.help() });
                self.document(&json!({ "ok": false, "error": error }));
            }
        }
    }

    /// One document for programs.
    fn document(&self, value: &impl Serialize) {
        let value: Value = serde_json::to_value(value).expect("results have string keys only");
        let text = if self.format == Format::Yaml {
            yaml::document(&value)
        } else {
            serde_json::to_string_pretty(&value).expect("a JSON value is JSON") + "\n"
        };
        self.write(Stream::Out, &harmless::document(&text));
    }

    /// Text for people. It is painted for the standard output, wherever it is written to.
    fn text(&self, stream: Stream, text: &str) {
        self.write(stream, &harmless::text(text, self.colour_out || self.colour_err));
    }

    fn write(&self, stream: Stream, text: &str) {
        match stream {
            Stream::Out => self.out(text.as_bytes()),
            // There is nowhere left to report the error.
            Stream::Err => drop(io::stderr().write_all(text.as_bytes())),
        }
    }

    fn out(&self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        // A reader that closed the pipe is no error.
        if let Err(error) = out.write_all(bytes).and_then(|()| out.flush())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            // The first error is the one to report.
            let _ = self.lost.set(error);
        }
    }
}

/// A line about what is done, for a person who asked for it.
pub(crate) fn log(line: &str) {
    // There is nowhere left to report the error.
    let _ = writeln!(io::stderr(), "{}", harmless::text(line, false));
}

/// `2 errors, 1 warning`.
fn tally(findings: &[Diagnostic]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let parts = [(count(Severity::Error), "error"), (count(Severity::Warning), "warning")];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| words::count(count, word))
        .collect();
    parts.join(", ")
}

/// The span to underline, unless its lines are too long.
fn shown(text: &str, finding: &Diagnostic) -> Option<(usize, usize)> {
    let (start, end) = finding.span?;
    let line = usize::try_from(finding.line).ok()?;
    let around = text.lines().skip(line.saturating_sub(2)).take(3);
    around.map(str::len).all(|length| length <= LONGEST_LINE).then_some((start, end))
}

/// A finding as a miette diagnostic.
struct Report<'f> {
    finding: &'f Diagnostic,
    source: NamedSource<Arc<String>>,
    shown: Option<(usize, usize)>,
}

impl fmt::Debug for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.finding.fmt(f)
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without a quoted source, the place is part of the message.
        if self.shown.is_none() && (self.finding.line > 0 || self.finding.file.is_some()) {
            self.finding.fmt(f)
        } else {
            f.write_str(&self.finding.message)
        }
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(&self.finding.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.finding.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.finding.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn miette::SourceCode> {
        self.shown.is_some().then_some(&self.source as &dyn miette::SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let (start, end) = self.shown?;
        Some(Box::new(std::iter::once(LabeledSpan::underline(start..end))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_colour_on_a_terminal_alone() {
        let printer = |colour| Printer {
            format: Format::Text,
            colour_out: colour,
            colour_err: colour,
            lost: OnceLock::new(),
        };
        let text = "  + a create\n    b unchanged\n";
        assert_eq!(printer(false).coloured(text), text);
        assert_eq!(printer(true).coloured(text), "\u{1b}[32m  + a create\u{1b}[0m\n    b unchanged\n");
    }
}
