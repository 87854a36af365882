//! The status page for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use slipway_core::node::BootstrapState;
use slipway_core::status::{RolloutState, SpecResult};

use super::nodes::{Node, NodeState, OutdatedPart, Serves};
use super::words::{ago, plain, remaining, version};
use super::{Gravity, Overview};
use crate::printer::{Colour, Printer};

/// How many nodes are listed. If there are more, only the notable ones are.
const MOST_NODES: usize = 40;
/// How many certificates are listed.
const MOST_CERTIFICATES: usize = 5;
/// How many findings about a spec are listed.
const MOST_DIAGNOSTICS: usize = 10;

/// How an [`Overview`] is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page<'a> {
    pub(crate) printer: &'a Printer,
    /// Whether all nodes and certificates are shown, including former nodes.
    pub(crate) all: bool,
}

impl Page<'_> {
    pub(crate) fn text(&self, view: &Overview) -> String {
        let mut text = String::new();
        self.spec(&mut text, view);
        self.rollout(&mut text, view);
        self.serving(&mut text, view);
        self.nodes(&mut text, view);
        self.certificates(&mut text, view);
        self.findings(&mut text, view);
        text
    }

    fn spec(&self, text: &mut String, view: &Overview) {
        let head = |words: &str| format!("{:<13}{words}\n", "spec");
        let Some(spec) = &view.spec else {
            text.push_str(&head("none was processed yet"));
            return;
        };
        if view.spec_is_past {
            text.push_str(&head(&format!(
                "of the cluster that was destroyed (version {})",
                version(&spec.version)
            )));
            return;
        }
        let (colour, result) = match spec.result {
            SpecResult::Accepted => (Colour::Green, "accepted"),
            SpecResult::Rejected => (Colour::Red, "refused"),
            SpecResult::Failed => (Colour::Red, "not rendered"),
        };
        let mut words =
            format!("{} (version {})", self.printer.paint(colour, result), version(&spec.version));
        if let Some(failure) = &spec.failure {
            let _ = write!(words, ": {}", plain(failure));
        }
        if let (Some(plan), Some(summary)) = (&spec.plan, &spec.summary) {
            let _ = write!(words, ", plan {plan}: {}", plain(summary));
        }
        text.push_str(&head(&words));
        for found in spec.diagnostics.iter().take(MOST_DIAGNOSTICS) {
            let _ = writeln!(text, "{:13}{}", "", plain(&found.to_string()));
            if let Some(help) = &found.help {
                let _ = writeln!(text, "{:13}  help: {}", "", plain(help));
            }
        }
        if spec.diagnostics.len() > MOST_DIAGNOSTICS {
            let more = spec.diagnostics.len() - MOST_DIAGNOSTICS;
            let _ = writeln!(text, "{:13}… and {more} more; -o json lists all", "");
        }
    }

    fn rollout(&self, text: &mut String, view: &Overview) {
        let rollout = &view.rollout;
        let colour = match rollout.state {
            RolloutState::Succeeded | RolloutState::Idle => Colour::Green,
            RolloutState::Failed | RolloutState::Stuck | RolloutState::Aborted => Colour::Red,
            RolloutState::Running => Colour::Cyan,
            RolloutState::AboutToBegin
            | RolloutState::WaitingForApproval
            | RolloutState::Paused
            | RolloutState::Aborting
            | RolloutState::Superseded
            | RolloutState::Destroying
            | RolloutState::Destroyed => Colour::Yellow,
        };
        let mut words = self.printer.paint(colour, rollout.state.as_str());
        if rollout.generation > 0 {
            let _ = write!(words, " (generation {})", rollout.generation);
        }
        let moment = rollout.started_at.map(|at| ("began", at)).or(rollout.ended_at.map(|at| ("ended", at)));
        if let Some((what, at)) = moment {
            let _ = write!(words, ", {what} {}", ago(at, view.at));
        }
        if let Some(since) = rollout.paused_since.filter(|_| rollout.state != RolloutState::Paused) {
            let paused = self.printer.paint(Colour::Yellow, &format!("paused {}", ago(since, view.at)));
            let _ = write!(words, "; {paused}");
        }
        let _ = writeln!(text, "{:<13}{words}", "rollout");
        let _ = writeln!(text, "{:13}{}", "", plain(&rollout.message));
        for next in
            rollout.command.iter().map(|command| format!("next: {command}")).chain(rollout.next.clone())
        {
            let _ = writeln!(text, "{:13}{}", "", plain(&next));
        }
        if let Some(progress) = &rollout.progress {
            let _ = writeln!(text, "{:13}{}", "", progress.words());
        }
        let width = rollout.stacks.keys().map(String::len).max().unwrap_or_default();
        for (stack, words) in &rollout.stacks {
            let _ = writeln!(text, "{:13}  {stack:<width$}  {}", "", plain(words));
        }
        if !rollout.orphaned.is_empty() {
            let _ = writeln!(
                text,
                "{:13}still deployed, but no longer in the spec: {}",
                "",
                rollout.orphaned.join(", ")
            );
        }
    }

    fn serving(&self, text: &mut String, view: &Overview) {
        let colour = if view.serving.is_well() { Colour::Green } else { Colour::Red };
        let _ = writeln!(text, "{:<13}{}", "serves", self.printer.paint(colour, view.serving.words()));
        for reason in &view.serving.reasons {
            let _ = writeln!(text, "{:13}{}", "", plain(reason));
        }
    }

    fn nodes(&self, text: &mut String, view: &Overview) {
        if view.nodes.is_empty() {
            let _ = writeln!(text, "{:<13}none has reported", "nodes");
            return;
        }
        let mut counts: BTreeMap<NodeState, usize> = BTreeMap::new();
        view.nodes.iter().for_each(|node| *counts.entry(node.standing).or_default() += 1);
        let counts: Vec<String> =
            counts.iter().rev().map(|(standing, count)| format!("{count} {}", word(*standing))).collect();
        let _ = writeln!(text, "{:<13}{}", "nodes", counts.join(", "));
        let shown = self.shown(&view.nodes);
        let rows: Vec<[String; 5]> = shown.iter().map(|node| row(node, view)).collect();
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let (role, instance, state, heard) = (width(0), width(1), width(2), width(3));
        for (node, row) in shown.iter().zip(&rows) {
            let [a, b, c, d, e] = row;
            let c = self.printer.paint(colour(node), &format!("{c:<state$}"));
            let line = format!("{:13}  {a:<role$}  {b:<instance$}  {c}  {d:<heard$}  {e}", "");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let hidden = view.nodes.len() - shown.len();
        if hidden > 0 {
            let _ = writeln!(text, "{:13}  not listed: {hidden} that are up or former; --all lists them", "");
        }
        if view.nodes_unread > 0 {
            let _ = writeln!(text, "{:13}  {} older reports were not read", "", view.nodes_unread);
        }
    }

    /// The nodes to show; if there are too many, the notable ones first.
    fn shown<'n>(&self, nodes: &'n [Node]) -> Vec<&'n Node> {
        if self.all {
            return nodes.iter().collect();
        }
        let there = nodes.iter().filter(|node| node.standing != NodeState::Earlier);
        let (note, rest): (Vec<&Node>, Vec<&Node>) = there.partition(|node| is_of_note(node));
        let room = MOST_NODES.saturating_sub(note.len());
        let mut shown: Vec<&Node> =
            note.into_iter().take(MOST_NODES).chain(rest.into_iter().take(room)).collect();
        shown.sort_by(|one, other| (&one.role, &one.instance).cmp(&(&other.role, &other.instance)));
        shown
    }

    fn certificates(&self, text: &mut String, view: &Overview) {
        if view.certificates.is_empty() {
            let _ = writeln!(text, "{:<13}none were made yet", "certificates");
            return;
        }
        let most = if self.all { usize::MAX } else { MOST_CERTIFICATES };
        let words = if view.certificates.len() > most { ", those that end first:" } else { "" };
        let _ = writeln!(text, "{:<13}{}{words}", "certificates", view.certificates.len());
        for one in view.certificates.iter().take(most) {
            let colour = match one.days_left {
                ..0 => Colour::Red,
                0..30 => Colour::Yellow,
                _ => Colour::Green,
            };
            let days = format!("{:>16}", remaining(one.not_after, view.at));
            let _ = writeln!(text, "{:13}  {}  {}", "", self.printer.paint(colour, &days), one.name);
        }
    }

    fn findings(&self, text: &mut String, view: &Overview) {
        if view.findings.is_empty() {
            text.push_str("nothing needs attention\n");
            return;
        }
        text.push('\n');
        for found in &view.findings {
            let (colour, sign) = match found.gravity {
                Gravity::Wrong => (Colour::Red, "wrong"),
                Gravity::Notice => (Colour::Yellow, "note"),
            };
            let sign = self.printer.paint(colour, &format!("{sign:<6}"));
            let _ = writeln!(text, "{sign}{}", plain(&found.message));
            if !found.help.is_empty() {
                let _ = writeln!(text, "      {}", self.printer.paint(Colour::Cyan, &plain(&found.help)));
            }
        }
    }
}

fn is_of_note(node: &Node) -> bool {
    let well = node.status.as_ref().is_none_or(|status| status.healthy && status.matches_node_file);
    node.standing != NodeState::Up || node.outdated.is_some() || !well
}

fn word(standing: NodeState) -> &'static str {
    match standing {
        NodeState::GivenUp => "given up",
        NodeState::Silent => "silent",
        NodeState::Working => "coming up",
        NodeState::Up => "up",
        NodeState::Earlier => "former",
    }
}

fn colour(node: &Node) -> Colour {
    let well = node.status.as_ref().is_none_or(|status| status.healthy);
    match node.standing {
        NodeState::GivenUp => Colour::Red,
        NodeState::Up if !well => Colour::Red,
        NodeState::Silent | NodeState::Earlier => Colour::Yellow,
        NodeState::Working => Colour::Cyan,
        NodeState::Up => Colour::Green,
    }
}

/// Role, instance, state, time of the last report, and remarks.
fn row(node: &Node, view: &Overview) -> [String; 5] {
    let boot = node.bootstrap.as_ref();
    let step = boot.and_then(|boot| boot.step.as_deref()).map(plain);
    let unwell = node.status.as_ref().is_some_and(|status| !status.healthy);
    let working = boot.is_some_and(|boot| boot.state == BootstrapState::Working);
    let state = match (node.standing, step) {
        (NodeState::Up, _) if unwell => "not healthy".to_owned(),
        (NodeState::GivenUp, Some(step)) => format!("gave up at {step}"),
        (NodeState::Working, Some(step)) => format!("at {step}"),
        (NodeState::Silent, Some(step)) if working => format!("hangs at {step}"),
        (standing, _) => word(standing).to_owned(),
    };
    let mut more = Vec::new();
    if let Some(one) = node.status.as_ref().and_then(Serves::nearest) {
        more.push(format!("{} ({})", remaining(one.not_after, view.at), plain(one.place)));
    }
    match node.outdated {
        Some(OutdatedPart::Configuration) => more.push("runs an earlier configuration".to_owned()),
        Some(OutdatedPart::Credentials) => more.push("has earlier credentials".to_owned()),
        None => {}
    }
    [plain(&node.role), plain(&node.instance), state, ago(node.heard, view.at), more.join(", ")]
}
