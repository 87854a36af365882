//! The node managers of a cluster's controllers: what each reports of its passes, and from when on that is a matter for a person.
//!
//! Scan and `slipway status` read it. In a quiet cluster nothing else asks whether node managers work, and kubelets' certificates, add-ons and
//! repairs wait for them.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{FailureCode, Word};
use crate::words::moment;

/// How long no node manager of a cluster may complete a pass before a person is told.
///
/// Passes follow each other every 20 s. All of them fail while the API does not answer, as in a restore of etcd, which takes minutes. Controllers
/// report hourly and the scan is daily, so a person is told within 28 hours. The first certificate of a kubelet expires 72 hours after its
/// renewal was not approved (a tenth of 720 hours), so nearly two days are left.
pub const LATE: SignedDuration = SignedDuration::from_hours(2);

/// How many controllers, and how many failed parts of each, are named. What a node reports must not make a finding long.
const MOST: usize = 8;
/// How many characters of a word from a report are named.
const MOST_CHARACTERS: usize = 40;

/// What a controller reports of its node manager. All times are of its own clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeManagerStatus {
    /// When the last pass ended in which everything succeeded. `None`: none has since the machine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<Timestamp>,
    /// When the machine was started.
    pub started: Timestamp,
    /// What failed in the last pass. Empty: nothing did, or no pass has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<FailedPart>,
}

/// A part of a pass that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedPart {
    /// Such as `addons`, as in the answer of `slipway-node manage`; `all` if none was begun.
    pub part: String,
    /// Why. `None`: another controller has tried, and knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Word<FailureCode>>,
}

impl fmt::Display for FailedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&short(&self.part))?;
        self.code.iter().try_for_each(|code| write!(f, ": {}", short(&code.to_string())))
    }
}

fn short(word: &str) -> String {
    word.chars().take(MOST_CHARACTERS).collect()
}

impl NodeManagerStatus {
    /// Since when no pass has been complete and what fails, in words, if that was too long when the status was taken. How long ago that was
    /// does not count: the report is as old as it is, and the node manager may pass every 20 s.
    #[must_use]
    pub fn late(&self, taken_at: Timestamp) -> Option<String> {
        // A pass after that is of a clock that was set back since.
        let since = self.passed.filter(|passed| *passed <= taken_at).unwrap_or(self.started);
        if taken_at.duration_since(since) <= LATE {
            return None;
        }
        let failed: Vec<String> = self.failed.iter().take(MOST).map(FailedPart::to_string).collect();
        let failed = if failed.is_empty() { "no pass ends".to_owned() } else { failed.join(", ") };
        Some(format!("since {} ({failed})", moment(since)))
    }
}

/// What is said if no node manager passes. `controllers`: those that have reported lately, each with what [`NodeManagerStatus::late`] says. One that
/// passes does the work of all, and one that does not say (with an agent of an earlier release) may.
#[must_use]
pub fn problem<'a>(controllers: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> Option<String> {
    let late: Option<Vec<String>> = controllers
        .into_iter()
        .map(|(node, late)| late.map(|late| format!("{} {late}", short(node))))
        .collect();
    let late = late.filter(|late| !late.is_empty())?;
    let more = late.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    let named = late.iter().take(MOST).cloned().collect::<Vec<_>>().join("; ");
    Some(format!(
        "no node manager completes its passes: {named}{more}. Kubelets' certificates are perhaps not renewed, and expire three days after they should \
         have been; machines perhaps cannot join, and add-ons and repairs wait"
    ))
}

/// What to do about it. `node`: one of the controllers.
#[must_use]
pub fn help(cluster: &str, node: &str) -> String {
    format!(
        "slipway logs {} --cluster {cluster} --unit agent shows what slipway-manage says; then \"The node managers fail\" in docs/runbook.md",
        short(node)
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
    }

    fn failed(part: &str, code: Option<Word<FailureCode>>) -> FailedPart {
        FailedPart { part: part.to_owned(), code }
    }

    fn status(passed: Option<i64>, started: i64) -> NodeManagerStatus {
        NodeManagerStatus { passed: passed.map(at), started: at(started), failed: Vec::new() }
    }

    #[test]
    fn a_node_manager_is_late_two_hours_after_its_last_complete_pass_or_its_machines_start() {
        assert_eq!(status(Some(880), 0).late(at(1000)), None);
        assert!(status(Some(879), 0).late(at(1000)).is_some());
        assert_eq!(status(None, 880).late(at(1000)), None, "it has just been started");
        assert_eq!(status(None, 879).late(at(1000)).unwrap(), "since 2027-01-15T22:39:00Z (no pass ends)");
        // The clock was ahead, and was set right.
        assert!(status(Some(9000), 0).late(at(1000)).is_some());
        assert_eq!(status(Some(9000), 990).late(at(1000)), None);
    }

    #[test]
    fn it_says_what_failed_by_part_and_code_and_never_much() {
        let refused = Word::from(FailureCode::AwsDenied);
        let mut late = status(Some(0), -60);
        late.failed = vec![failed("addons", None), failed("requests", Some(refused))];
        assert_eq!(late.late(at(1000)).unwrap(), "since 2027-01-15T08:00:00Z (addons, requests: aws.denied)");
        let long = "x".repeat(10_000);
        late.failed = vec![failed(&long, Some(Word::Other(long.clone()))); 1000];
        assert!(late.late(at(1000)).unwrap().len() < 1000);
        let words = "w".to_owned();
        let many = vec![("i-1", Some(words.as_str())); 1000];
        let said = problem(many).unwrap();
        assert!(said.contains("i-1 w, and 992 more") && said.len() < 1000, "{said}");
    }

    #[test]
    fn one_controller_whose_node_manager_passes_or_does_not_say_is_enough() {
        assert_eq!(problem([]), None, "nobody has reported");
        assert_eq!(problem([("i-1", Some("since a")), ("i-2", None)]), None);
        let said = problem([("i-1", Some("since a")), ("i-2", Some("since b"))]).unwrap();
        assert!(
            said.starts_with("no node manager completes its passes: i-1 since a; i-2 since b. "),
            "{said}"
        );
    }

    #[test]
    fn it_is_read_back_as_it_is_written() {
        let text = r#"{"passed":"2026-11-27T08:00:00Z","started":"2026-11-20T08:00:00Z","failed":[{"part":"addons","code":"kubernetes.refused"},{"part":"requests","code":"newer.code"}]}"#;
        let read: NodeManagerStatus = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        assert_eq!(read.failed[0].code, Some(Word::from(FailureCode::KubernetesRefused)));
        assert_eq!(read.failed[1].to_string(), "requests: newer.code");
    }
}
