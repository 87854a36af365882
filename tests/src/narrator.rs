//! Prints observations as they happen: short lines, each with its time and its subject.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use crate::observe::{Call, Observation, Observed, Observer, Outcome};
use serde_json::Value;
use tokio::time::Instant;

/// The width of the column with the subject.
const WHO: usize = 24;

/// A colour, if there is a terminal to show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    /// No colour.
    Plain,
    /// Details.
    Dim,
    /// A success.
    Good,
    /// A failure.
    Bad,
    /// A heading.
    Title,
}

/// Writes the story to standard output.
#[derive(Debug)]
pub struct Narrator {
    begun: Instant,
    colour: bool,
    next: usize,
    /// The calls of one function since the last line, each kind with its number.
    run: Option<(String, Vec<(String, usize)>)>,
    /// The events that were printed since the last title, because an event may be delivered more than once.
    told: BTreeSet<String>,
    /// The number of completed resources by stack.
    resources: BTreeMap<String, usize>,
}

impl Narrator {
    /// A narrator whose times count from `begun`.
    #[must_use]
    pub fn new(begun: Instant) -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { begun, colour, next: 0, run: None, told: BTreeSet::new(), resources: BTreeMap::new() }
    }

    /// `text` in that colour.
    #[must_use]
    pub fn ink(&self, ink: Ink, text: &str) -> String {
        let code = match ink {
            Ink::Dim => "2",
            Ink::Good => "32",
            Ink::Bad => "31",
            Ink::Title => "1",
            Ink::Plain => return text.to_owned(),
        };
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints a line without a time.
    pub fn say(&self, text: &str) {
        // If the reader has closed our output, it needs nothing more.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Prints a heading.
    pub fn title(&mut self, text: &str) {
        self.told.clear();
        self.say(&format!("\n{}", self.ink(Ink::Title, text)));
    }

    /// Prints a line with its time.
    pub fn line(&self, who: &str, ink: Ink, text: &str) {
        let seconds = format!("{:6.1} s", self.begun.elapsed().as_secs_f64());
        self.say(&format!("{}  {who:<WHO$} {}", self.ink(Ink::Dim, &seconds), self.ink(ink, text)));
    }

    /// Prints what happens until `end` returns a value; `None` after `patience`.
    pub async fn follow<T>(
        &mut self,
        observer: &Observer,
        patience: Duration,
        mut end: impl FnMut(&Observation) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + patience;
        loop {
            for observation in observer.since(self.next) {
                self.next += 1;
                self.narrate(&observation);
                if let Some(found) = end(&observation) {
                    self.flush();
                    return Some(found);
                }
            }
            if tokio::time::timeout_at(deadline, observer.more(self.next)).await.is_err() {
                self.flush();
                return None;
            }
        }
    }

    fn narrate(&mut self, observation: &Observation) {
        match &observation.what {
            Observed::Call(call) => {
                if let Some((who, what)) = words_for_call(call) {
                    self.count(who, what);
                }
            }
            Observed::Event { event, .. } => self.event(event),
            Observed::Finished { attempt, outcome: Outcome::Failed { error_type, message }, .. } => {
                self.flush();
                let what = format!("failed, try {}: {error_type}: {message}", attempt.number);
                self.line(&attempt.function, Ink::Bad, &what);
            }
            Observed::DeadLettered { attempt, error_type, .. } => {
                self.flush();
                self.line(&attempt.function, Ink::Bad, &format!("gave up: {error_type}; dead-lettered"));
            }
            Observed::NotPermitted { caller, reason, .. } => {
                self.flush();
                self.line("EventBridge", Ink::Bad, &format!("{caller}: {reason}"));
            }
            Observed::Trouble(what) => {
                self.flush();
                self.line("embedded AWS", Ink::Bad, what);
            }
            Observed::Routed { .. }
            | Observed::Started(_)
            | Observed::Finished { .. }
            | Observed::Log { .. } => {}
        }
    }

    fn event(&mut self, event: &Value) {
        let detail = &event["detail"];
        let text = |name: &str| detail[name].as_str().unwrap_or_default().to_owned();
        match event["detail-type"].as_str().unwrap_or_default() {
            "Object Created" => {
                self.flush();
                let key = detail["object"]["key"].as_str().unwrap_or_default();
                let version = detail["object"]["version-id"].as_str().unwrap_or_default();
                self.line("S3", Ink::Plain, &format!("Object Created: {key}, version {}", short(version)));
            }
            "CloudFormation Resource Status Change" => {
                let done = detail["status-details"]["status"].as_str().unwrap_or_default();
                if done == "CREATE_COMPLETE" || done == "UPDATE_COMPLETE" {
                    *self.resources.entry(stack_of(&text("stack-id"))).or_default() += 1;
                }
            }
            "CloudFormation Stack Status Change" => {
                self.flush();
                self.stack(&stack_of(&text("stack-id")), &detail["status-details"]);
            }
            // Published at every wake for people who watch a stack; here CloudFormation's own events show the progress.
            "Rollout Waiting" => {}
            kind if event["source"] == "slipway" => {
                if !self.told.insert(format!("{kind}{detail}")) {
                    return;
                }
                self.flush();
                let ink = match kind {
                    "Rollout Succeeded" | "Plan Unchanged" => Ink::Good,
                    "Rollout Failed" | "Spec Rejected" => Ink::Bad,
                    "Rollout Step" => Ink::Dim,
                    _ => Ink::Plain,
                };
                let renewed = detail["certificates"].as_array().map(Vec::len).unwrap_or_default();
                let renewed = match kind {
                    "Certificate Renewed" => format!("{renewed} certificates, for the nodes to take"),
                    "Scan Requested" => text("cluster"),
                    _ => String::new(),
                };
                let words =
                    [text("summary"), text("message"), renewed].into_iter().find(|words| !words.is_empty());
                let plan = text("plan");
                let plan = if plan.is_empty() { String::new() } else { format!("plan {}", short(&plan)) };
                self.line(kind, ink, &words.unwrap_or(plan));
            }
            _ => {}
        }
    }

    fn stack(&mut self, stack: &str, details: &Value) {
        let status = details["status"].as_str().unwrap_or_default();
        let reason = details["status-reason"].as_str().unwrap_or_default();
        if status == "REVIEW_IN_PROGRESS" || status.ends_with("CLEANUP_IN_PROGRESS") {
            return;
        }
        let ink = match status {
            "CREATE_COMPLETE" | "UPDATE_COMPLETE" => Ink::Good,
            _ if status.contains("FAILED") || status.contains("ROLLBACK") => Ink::Bad,
            _ => Ink::Dim,
        };
        let done = self.resources.remove(stack).filter(|_| !status.ends_with("IN_PROGRESS"));
        let count = done.map_or_else(String::new, |count| format!(", {}", resources(count)));
        let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        self.line(stack, ink, &format!("{status}{count}{reason}"));
    }

    fn count(&mut self, who: String, what: String) {
        if self.run.as_ref().is_some_and(|(same, _)| *same != who) {
            self.flush();
        }
        let (_, kinds) = self.run.get_or_insert_with(|| (who, Vec::new()));
        match kinds.iter_mut().find(|(same, _)| *same == what) {
            Some((_, count)) => *count += 1,
            None => kinds.push((what, 1)),
        }
    }

    fn flush(&mut self) {
        if let Some((who, kinds)) = self.run.take() {
            for (what, count) in kinds {
                let times = if count > 1 { format!(" ({count} calls)") } else { String::new() };
                self.line(&who, Ink::Plain, &format!("{what}{times}"));
            }
        }
    }
}

/// The text for a call; `None` for reads that are not interesting.
fn words_for_call(call: &Call) -> Option<(String, String)> {
    let who = call.caller.clone();
    if let Some(reason) = &call.refused {
        return Some((who, format!("refused: {reason}")));
    }
    let what = match call.action.as_str() {
        "ssm:GetParameter" => "asks for the newest image, once; the answer is pinned in lock.json".to_owned(),
        "kms:GenerateDataKey" => "takes a data key from KMS".to_owned(),
        "s3:PutObject" => format!("writes {}", kind_of_object(&call.resource)?),
        "scheduler:CreateSchedule" => "arms the tick that wakes it while the rollout is open".to_owned(),
        "scheduler:DeleteSchedule" => "disarms the tick".to_owned(),
        _ => return None,
    };
    Some((who, what))
}

fn kind_of_object(arn: &str) -> Option<&'static str> {
    let kinds = [
        ("/pki/manifest.json", "the inventory of credentials"),
        ("/pki/", "credentials: certificates plain, keys sealed"),
        ("/bundles/", "what each role's nodes receive, secrets sealed"),
        ("/templates/", "CloudFormation templates"),
        ("/plans/", "the plan"),
        ("/lock.json", "the lock"),
    ];
    // State documents (status, rollout, desired) are written at every step; the events describe the steps better.
    kinds.iter().find(|(part, _)| arn.contains(part)).map(|(_, kind)| *kind)
}

/// The stack's name in a stack's ARN.
#[must_use]
pub fn stack_of(arn: &str) -> String {
    arn.split('/').nth(1).unwrap_or(arn).to_owned()
}

/// The beginning of an id, enough to distinguish it from others.
#[must_use]
pub fn short(id: &str) -> &str {
    id.get(..8).unwrap_or(id)
}

/// `count` resources, in words.
#[must_use]
pub fn resources(count: usize) -> String {
    if count == 1 { "1 resource".to_owned() } else { format!("{count} resources") }
}
