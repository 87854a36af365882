//! A person's defaults: `~/.config/slipway/config.yaml`.
//!
//! An option counts before a variable of the environment, and that before this file.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use slipway_spec::{Entry, Kind, Span};

use crate::failure::CliError;

/// The defaults. All are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) cluster: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) stack: Option<String>,
    pub(crate) asset_bucket: Option<String>,
    pub(crate) spec_bucket: Option<String>,
    pub(crate) bus: Option<String>,
}

/// The variable with another path of the file.
const VARIABLE: &str = "SLIPWAY_CONFIG";
/// The keys of the file, in the order of the documentation.
const KEYS: [&str; 7] = ["cluster", "profile", "region", "stack", "assetBucket", "specBucket", "bus"];

impl Settings {
    /// The file's content; without a file there are no defaults.
    pub(crate) fn read() -> Result<Self, CliError> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let named = variable(VARIABLE);
        let is_named = named.is_some();
        let home = || Some(variable("HOME")?.join(".config"));
        let beside = || Some(variable("XDG_CONFIG_HOME").or_else(home)?.join("slipway/config.yaml"));
        let Some(path) = named.or_else(beside) else { return Ok(Self::default()) };
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(&path, &bytes),
            Err(error)
                if !is_named && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(Self::default())
            }
            Err(error) => Err(CliError::file("read", &path, &error)),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, CliError> {
        let refused = |span: Span, problem: &str, help: String| {
            let place = match span.line {
                0 => path.display().to_string(),
                line => format!("{}:{line}:{}", path.display(), span.column),
            };
            CliError::usage(format!("{place}: {problem}"), help)
        };
        let mut settings = Self::default();
        let is_content = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        if !String::from_utf8_lossy(bytes).lines().any(is_content) {
            return Ok(settings);
        }
        let known = || format!("it may have {}; see docs/cli.md", KEYS.join(", "));
        let tree = slipway_spec::read_tree(bytes).map_err(|findings| {
            let first = findings.into_iter().next();
            let (line, column) = first.as_ref().map_or((0, 0), |found| (found.line, found.column));
            let message = first.map(|found| found.message).unwrap_or_default();
            refused(Span { line, column, ..Span::default() }, &message, known())
        })?;
        let Kind::Map(entries) = tree.kind else {
            return Err(refused(tree.span, "this is not a mapping", known()));
        };
        for Entry { key, key_span, value } in entries {
            let Kind::Scalar { text, .. } = &value.kind else {
                return Err(refused(value.span, &format!("`{key}` must be a text"), known()));
            };
            if text.is_empty() {
                return Err(refused(
                    value.span,
                    &format!("`{key}` is empty"),
                    "give it a value, or remove the line".to_owned(),
                ));
            }
            let place = match key.as_str() {
                "cluster" => &mut settings.cluster,
                "profile" => &mut settings.profile,
                "region" => &mut settings.region,
                "stack" => &mut settings.stack,
                "assetBucket" => &mut settings.asset_bucket,
                "specBucket" => &mut settings.spec_bucket,
                "bus" => &mut settings.bus,
                _ => return Err(refused(key_span, &format!("`{key}` is not a key of this file"), known())),
            };
            *place = Some(text.clone());
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(text: &str) -> Result<Settings, CliError> {
        Settings::parse(Path::new("config.yaml"), text.as_bytes())
    }

    #[test]
    fn every_key_is_read_and_nothing_is_needed() {
        let text: String = KEYS.iter().map(|key| format!("{key}: a-{key}\n")).collect();
        let all = parse(&text).unwrap();
        let values =
            [all.cluster, all.profile, all.region, all.stack, all.asset_bucket, all.spec_bucket, all.bus];
        assert_eq!(values.map(Option::unwrap), KEYS.map(|key| format!("a-{key}")));
        for empty in ["", "\n", "# cluster: prod\n"] {
            assert_eq!(parse(empty).unwrap(), Settings::default());
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_place_and_what_to_do() {
        for (text, words) in [
            ("cluster: a\nclutser: b\n", "config.yaml:2:1: `clutser` is not a key of this file"),
            ("cluster: [a]\n", "config.yaml:1:10: `cluster` must be a text"),
            ("cluster: \"\"\n", "config.yaml:1:10: `cluster` is empty"),
            ("- a\n", "config.yaml:1:1: this is not a mapping"),
            ("cluster: a\ncluster: b\n", "config.yaml:2:1: "),
            ("cluster: \"a\n", "config.yaml:"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().starts_with(words), "{error}");
            assert!(error.help().is_some_and(|help| !help.is_empty()), "{error}");
            assert_eq!(error.code(), 2);
        }
    }
}
