//! The documents of Systems Manager that an installation has, as `infra/template.yaml` defines them.

use std::collections::BTreeMap;

use slipway_core::node::logs::{ALL_UNITS, MOST_LINES};
use slipway_core::node::{ANY, LogUnit, RestoreStage, Verb, is_sha256};

use super::super::error::{ApiError, ApiResult};

/// A parameter's name; its default (`None`: it is required); whether a value is valid.
type Parameter = (&'static str, Option<&'static str>, fn(&str) -> bool);

/// A document.
struct Document {
    name: &'static str,
    parameters: &'static [Parameter],
    /// `timeoutSeconds` of its step.
    timeout_s: u32,
    /// The usual duration of its verb.
    takes_s: (f64, f64),
}

/// A document, as the sender of a command sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentFacts {
    /// The document's name.
    pub name: &'static str,
    /// The names of its parameters, in the order of the template, and their defaults.
    pub parameters: Vec<(&'static str, Option<&'static str>)>,
    /// `timeoutSeconds` of its step.
    pub timeout_s: u32,
}

/// The documents that the simulated Systems Manager has.
pub fn documents() -> impl Iterator<Item = DocumentFacts> {
    DOCUMENTS.iter().map(|document| DocumentFacts {
        name: document.name,
        parameters: document.parameters.iter().map(|(name, default, _)| (*name, *default)).collect(),
        timeout_s: document.timeout_s,
    })
}

const DOCUMENTS: [Document; 13] = [
    Document { name: "Slipway-Status", parameters: &[], timeout_s: 120, takes_s: (0.5, 3.0) },
    Document {
        name: "Slipway-Logs",
        parameters: &[("Unit", Some("all"), is_unit), ("Lines", Some("50"), is_lines)],
        timeout_s: 120,
        takes_s: (0.5, 3.0),
    },
    Document {
        name: "Slipway-Refresh",
        parameters: &[("Credentials", None, is_digest), ("Restart", Some("never"), is_restart)],
        timeout_s: 1_800,
        takes_s: (2.0, 70.0),
    },
    Document {
        name: "Slipway-Serves",
        parameters: &[("Without", Some("none"), is_machines)],
        timeout_s: 120,
        takes_s: (0.5, 4.0),
    },
    Document { name: "Slipway-EtcdDefragment", parameters: &[], timeout_s: 1_800, takes_s: (2.0, 30.0) },
    Document { name: "Slipway-EtcdHealth", parameters: &[], timeout_s: 120, takes_s: (0.2, 1.5) },
    Document { name: "Slipway-EtcdMoveLeader", parameters: &[], timeout_s: 300, takes_s: (0.3, 2.0) },
    Document {
        name: "Slipway-EtcdRemove",
        parameters: &[("Member", None, is_member)],
        timeout_s: 300,
        takes_s: (0.3, 2.0),
    },
    Document { name: "Slipway-EtcdRetire", parameters: &[], timeout_s: 120, takes_s: (0.5, 3.0) },
    Document {
        name: "Slipway-EtcdRestore",
        parameters: &[
            ("Snapshot", None, is_snapshot),
            ("Token", Some("auto"), is_token),
            ("InitialCluster", Some("founders"), is_initial_cluster),
            ("Bump", Some("1000000000"), is_bump),
            ("Sha256", Some(ANY), is_database),
            ("Stage", Some("whole"), is_stage),
        ],
        timeout_s: 3_600,
        takes_s: (5.0, 40.0),
    },
    Document { name: "Slipway-EtcdSnapshot", parameters: &[], timeout_s: 1_800, takes_s: (5.0, 40.0) },
    Document {
        name: "Slipway-Drain",
        parameters: &[
            ("Node", None, is_node),
            ("For", Some("600"), is_seconds),
            ("ForceAfter", Some("never"), is_force),
        ],
        timeout_s: 900,
        takes_s: (1.0, 1.0),
    },
    Document {
        name: "Slipway-Uncordon",
        parameters: &[("Node", None, is_node)],
        timeout_s: 120,
        takes_s: (0.3, 2.0),
    },
];

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_unit(text: &str) -> bool {
    text == ALL_UNITS || LogUnit::named(text).is_some()
}

fn is_lines(text: &str) -> bool {
    !text.starts_with('0') && text.parse().is_ok_and(|lines| (1..=MOST_LINES).contains(&lines))
}

fn is_restart(text: &str) -> bool {
    matches!(text, "allowed" | "never")
}

fn is_machines(text: &str) -> bool {
    let is_id = |id: &str| {
        let hex = id.strip_prefix("i-").unwrap_or_default();
        (8..=17).contains(&hex.len()) && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    text == "none" || text.split(',').all(is_id)
}

fn is_node(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !text.is_empty() && text.len() <= 253 && text.chars().all(fits) && !text.starts_with(['-', '.'])
}

fn is_member(text: &str) -> bool {
    let number = text.strip_prefix("etcd-").unwrap_or_default();
    (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_snapshot(text: &str) -> bool {
    text.len() == 16
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        })
}

fn is_token(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && !text.starts_with(['.', '-'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
}

fn is_initial_cluster(text: &str) -> bool {
    let is_pair = |pair: &str| {
        pair.split_once('=').is_some_and(|(name, url)| is_member(name) && url.starts_with("https://"))
    };
    text == "founders" || text.split(',').all(is_pair)
}

fn is_bump(text: &str) -> bool {
    !text.starts_with('0') && text.len() <= 18 && text.parse::<u64>().is_ok()
}

fn is_database(text: &str) -> bool {
    text == ANY || is_sha256(text)
}

fn is_stage(text: &str) -> bool {
    RestoreStage::named(text).is_some()
}

fn is_seconds(text: &str) -> bool {
    !text.starts_with('0') && text.len() <= 5 && text.parse::<u32>().is_ok()
}

fn is_force(text: &str) -> bool {
    text == "never" || (!text.starts_with('0') && text.len() <= 6 && text.parse::<u32>().is_ok())
}

fn find(name: &str) -> Option<&'static Document> {
    DOCUMENTS.iter().find(|document| document.name == name)
}

/// The verb that a command of that document runs. Refuses parameters that the document does not accept.
pub(super) fn verb(name: &str, parameters: &BTreeMap<String, String>) -> ApiResult<Verb> {
    let document = find(name).ok_or_else(|| ApiError::invalid_document(name))?;
    for given in parameters.keys() {
        if !document.parameters.iter().any(|(known, ..)| known == given) {
            return Err(ApiError::invalid_parameters(format!("Invalid parameter name {given} for {name}")));
        }
    }
    let mut filled = BTreeMap::new();
    for (known, default, fits) in document.parameters {
        let value = parameters.get(*known).map(String::as_str).or(*default);
        let value =
            value.ok_or_else(|| ApiError::invalid_parameters(format!("Parameter {known} is required")))?;
        if !fits(value) {
            return Err(ApiError::invalid_parameters(format!(
                "Parameter {known} does not match its pattern"
            )));
        }
        filled.insert((*known).to_owned(), value.to_owned());
    }
    Verb::read(name, &filled).map_err(ApiError::invalid_parameters)
}

/// The execution timeout of a command of that document.
pub(super) fn timeout_s(name: &str) -> u32 {
    find(name).map_or(120, |document| document.timeout_s)
}

/// The usual duration of a command of that document.
pub(super) fn takes_s(name: &str) -> (f64, f64) {
    find(name).map_or((1.0, 1.0), |document| document.takes_s)
}
