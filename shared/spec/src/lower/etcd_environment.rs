//! Environment variables that a drop-in of `etcd.service` gives to etcd besides the flags of Slipway.
//!
//! etcd takes each setting as a flag or as an `ETCD_…` variable, and exits if it has both, also if the variable is empty: "conflicting
//! environment variable is shadowed by corresponding command-line flag" (etcd `pkg/flags/flag.go`, `verifyEnv`). A member with such a drop-in
//! would never start, so it is found here.
//!
//! A unit is read as systemd.syntax(7) and systemd.exec(5) describe, as far as `Environment=`, `EnvironmentFile=` and `UnsetEnvironment=` need
//! it. Files are known if they are among `customFiles`.

use std::collections::BTreeSet;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use slipway_core::node::{ETCD_FLAGS, ETCD_QUOTA_FLAG, flag_of_variable};

use super::Lowering;
use crate::model::{CustomFileSpec, EtcdSpec};
use crate::path::Path;

const UNIT: &str = "etcd.service";

/// What the drop-ins of a unit say of its environment.
#[derive(Default)]
struct Environment {
    /// The names of variables, and where they are given.
    variables: Vec<(String, Path)>,
    /// Files that have more of them.
    files: Vec<String>,
    /// The names of variables that are taken away in the end.
    unset: BTreeSet<String>,
    /// Whether the command line is another than Slipway's, so that nothing is known of its flags.
    own_command: bool,
}

impl Environment {
    /// Adds what the drop-in `text`, which is at `path`, says. An empty value takes back what earlier drop-ins said.
    fn read(&mut self, text: &str, path: &Path) {
        for (key, value) in service_settings(text) {
            let words = words(&value);
            match key.as_str() {
                "ExecStart" => self.own_command |= !words.is_empty(),
                "Environment" if words.is_empty() => self.variables.clear(),
                "Environment" => {
                    let names = words.iter().filter_map(|word| word.split_once('=')).map(|(name, _)| name);
                    self.variables.extend(names.map(|name| (name.to_owned(), path.clone())));
                }
                "EnvironmentFile" if value.is_empty() => self.files.clear(),
                "EnvironmentFile" => self.files.push(value.trim_start_matches('-').to_owned()),
                "UnsetEnvironment" if words.is_empty() => self.unset.clear(),
                "UnsetEnvironment" => self.unset.extend(words),
                _ => {}
            }
        }
    }
}

impl Lowering<'_, '_, '_> {
    /// Refuses variables that etcd would not start with.
    pub(super) fn etcd_environment(&mut self, spec: &EtcdSpec, path: &Path) {
        let mut environment = Environment::default();
        for (index, unit) in spec.custom_systemd_units.iter().enumerate() {
            if unit.name.as_deref() != Some(UNIT) {
                continue;
            }
            let drop_ins = path.key("customSystemdUnits").index(index).key("drop-ins");
            let mut parts: Vec<_> = unit.drop_ins.iter().enumerate().collect();
            // systemd reads them by name.
            parts.sort_by_key(|(_, part)| part.name.clone());
            for (index, part) in parts {
                let text = part.content.as_deref().unwrap_or_default();
                environment.read(text, &drop_ins.index(index).key("content"));
            }
        }
        if environment.own_command {
            return;
        }
        let mut variables = environment.variables;
        for (index, file) in spec.custom_files.iter().enumerate() {
            let is_read =
                |file: &CustomFileSpec| environment.files.iter().any(|name| Some(name) == file.path.as_ref());
            if is_read(file) {
                let (key, text) = content(file);
                let path = path.key("customFiles").index(index).key(key);
                variables.extend(names_in_file(&text).map(|name| (name.to_owned(), path.clone())));
            }
        }
        let mut reported = BTreeSet::new();
        for (name, path) in variables {
            let Some(flag) = flag_of_variable(&name) else { continue };
            let quota = flag == ETCD_QUOTA_FLAG && spec.quota.is_some();
            if environment.unset.contains(&name) || !(quota || ETCD_FLAGS.contains(&flag.as_str())) {
                continue;
            }
            if reported.insert((name.clone(), path.to_string())) {
                let message = format!(
                    "`{name}` names what Slipway gives to etcd by the flag `--{flag}`, and etcd does not start with both"
                );
                let help =
                    if quota { "remove the variable: `etcd.quota` says it" } else { "remove the variable" };
                self.report.error("etcd-environment", &path, message, help);
            }
        }
    }
}

/// The key of a file's content, and the content as text.
fn content(file: &CustomFileSpec) -> (&'static str, String) {
    match (&file.content, &file.content_base64) {
        (Some(text), _) => ("content", text.clone()),
        (None, text) => {
            let text: String = text.iter().flat_map(|text| text.split_whitespace()).collect();
            // What is no base64 is a finding of its own.
            let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
            ("contentBase64", String::from_utf8_lossy(&bytes).into_owned())
        }
    }
}

/// The names of variables in a file that `EnvironmentFile=` names.
fn names_in_file(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(str::trim_start).filter(|line| !line.starts_with(['#', ';']));
    lines.filter_map(|line| line.split_once('=')).map(|(name, _)| name.trim_end())
}

/// The settings of the section `[Service]`, in order. A backslash at the end of a line continues it on the next, past comments.
fn service_settings(text: &str) -> Vec<(String, String)> {
    let (mut settings, mut in_service, mut line) = (Vec::new(), false, String::new());
    for part in text.lines().map(str::trim) {
        if part.starts_with(['#', ';']) {
            continue;
        }
        if let Some(part) = part.strip_suffix('\\') {
            line.push_str(part);
            line.push(' ');
            continue;
        }
        line.push_str(part);
        let whole = std::mem::take(&mut line);
        if whole.starts_with('[') {
            in_service = whole.trim_end() == "[Service]";
        } else if in_service && let Some((key, value)) = whole.split_once('=') {
            settings.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    settings
}

/// Words as systemd separates them: by blanks outside of quotes, which are removed. A backslash takes the next character as it is.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            (' ' | '\t', None) => words.extend(word.take()),
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (_, Some(open)) if open == character => quote = None,
            ('\\', _) => word.get_or_insert_default().extend(characters.next()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let mut environment = Environment::default();
        environment.read(text, &Path::parse("etcd"));
        environment.variables.into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn variables_are_found_as_systemd_reads_a_unit() {
        let unit = "[Unit]\nEnvironment=ETCD_A=1\n[Service]\n# Environment=ETCD_B=1\n\
                    Environment = ETCD_C=1 \"ETCD_D=a ETCD_E=b\" 'ETCD_F=1'\\\n; no\n  ETCD_G=1\n";
        assert_eq!(names(unit), ["ETCD_C", "ETCD_D", "ETCD_F", "ETCD_G"]);
        assert_eq!(
            names("[Service]\nEnvironment=ETCD_A=1\nEnvironment=\nEnvironment=ETCD_B=1\n"),
            ["ETCD_B"]
        );
        assert_eq!(words("a\"b c\" '' \\\"d"), ["ab c", "", "\"d"]);
        assert_eq!(names("[Service]\nEnvironment='ETCD_A"), [""; 0], "half a unit");
    }

    #[test]
    fn a_file_of_variables_has_one_in_a_line() {
        let names: Vec<_> = names_in_file("# ETCD_A=1\n ETCD_B=1\nnothing\n;ETCD_C=1\nETCD_D=\n").collect();
        assert_eq!(names, ["ETCD_B", "ETCD_D"]);
    }
}
