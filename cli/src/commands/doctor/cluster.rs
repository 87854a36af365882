//! The checks of a cluster and of a spec: what was read becomes findings.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::{Architecture, Cluster, Image};
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::pin::Pin;
use slipway_core::status::RolloutState;
use slipway_core::words::moment;

use super::super::upgrade::{Row, short};
use super::findings::{Finding, Level, Read, finding, ok, problem, unknown, warning};
use crate::overview::{self, Gravity, Serving, ServingState, ago, plain};

/// What was read of a cluster.
#[derive(Debug)]
pub(super) struct ClusterRead {
    pub(super) name: String,
    pub(super) state: Read<StateRead>,
    /// `None`: it was destroyed, or nothing of it is deployed.
    pub(super) backups: Option<Read<Backups>>,
    pub(super) pins: Option<Read<Vec<Row>>>,
}

impl ClusterRead {
    /// Whether the cluster is deployed, as far as its status tells.
    pub(super) fn is_deployed(&self) -> bool {
        self.state.as_ref().is_ok_and(|state| match state.serving.state {
            ServingState::Gone | ServingState::NotDeployed => false,
            ServingState::Serves | ServingState::Unknown | ServingState::Degraded | ServingState::Down => {
                true
            }
        })
    }
}

/// The state of a cluster, as `slipway status` shows it.
#[derive(Debug, Clone)]
pub(super) struct StateRead {
    /// `succeeded`, `running` and so on.
    pub(super) rollout: RolloutState,
    /// When the open rollout began, or the last one ended.
    pub(super) since: Option<Timestamp>,
    pub(super) serving: Serving,
    pub(super) findings: Vec<overview::Finding>,
    /// The certificate that ends first, and in how many days.
    pub(super) first: Option<(String, i64)>,
}

/// The snapshots of a cluster's etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backups {
    /// The schedule. `None`: the spec takes none.
    pub(super) every_hours: Option<u32>,
    /// When the newest verified one of the present etcd was stored.
    pub(super) newest: Option<Timestamp>,
    /// Since when there could be one: the first successful rollout that is recorded.
    pub(super) since: Option<Timestamp>,
}

/// A spec, its own file or the newest one of a cluster.
#[derive(Debug)]
pub(super) struct SpecRead {
    /// `prod: spec`, or the file.
    pub(super) about: String,
    /// The command by which a corrected spec is uploaded.
    pub(super) apply: String,
    /// The cluster that it describes; `None`: it is refused.
    pub(super) cluster: Option<Box<Cluster>>,
    /// Errors and warnings of the spec itself.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// What the installation does not let it use; `None`: the spec is refused anyway.
    pub(super) objections: Option<Read<Vec<Diagnostic>>>,
    /// The SSM parameters of its images, with what they hold.
    pub(super) images: BTreeMap<String, Read<Option<String>>>,
    /// The processors for which it needs a node agent that nobody has published or pinned.
    pub(super) no_agent: BTreeSet<Architecture>,
}

/// The findings about a cluster.
pub(super) fn of_cluster(read: &ClusterRead, now: Timestamp) -> Vec<Finding> {
    let name = &read.name;
    let state = match &read.state {
        Ok(state) => state,
        Err(unread) => return vec![unknown(name, unread)],
    };
    let mut all: Vec<Finding> = state.findings.iter().map(|found| of_overview(name, found)).collect();
    all.extend(of_state(name, state));
    match &read.backups {
        Some(Ok(backups)) => all.push(of_backups(name, *backups, now)),
        Some(Err(unread)) => all.push(unknown(format!("{name}: snapshots"), unread)),
        None => {}
    }
    match &read.pins {
        Some(Ok(rows)) => all.extend(of_pins(name, rows, now)),
        Some(Err(unread)) => all.push(unknown(format!("{name}: pins"), unread)),
        None => {}
    }
    all
}

fn of_overview(cluster: &str, overview_finding: &overview::Finding) -> Finding {
    let level = match overview_finding.gravity {
        Gravity::Wrong => Level::Problem,
        Gravity::Notice => Level::Warning,
    };
    let about = format!("{cluster}: {}", overview_finding.about);
    finding(level, about, overview_finding.message.clone(), overview_finding.help.clone())
}

fn of_state(cluster: &str, state: &StateRead) -> Vec<Finding> {
    let about = format!("{cluster}: rollout");
    let mut all = Vec::new();
    let wrong = state.findings.iter().any(|found| found.about == "rollout");
    if !wrong {
        let since = state.since.map(|at| format!(" since {}", moment(at))).unwrap_or_default();
        all.push(ok(about, format!("{}{since}", state.rollout)));
    }
    let serving = &state.serving;
    let level = match serving.state {
        ServingState::Serves => Level::Ok,
        ServingState::Gone => return all,
        ServingState::Unknown => Level::Unknown,
        ServingState::NotDeployed => Level::Warning,
        ServingState::Degraded | ServingState::Down => Level::Problem,
    };
    let about = format!("{cluster}: serving");
    let reasons = serving.reasons.iter().map(|reason| plain(reason)).collect::<Vec<_>>().join("; ");
    if level == Level::Ok {
        all.push(ok(about, serving.word()));
    } else {
        let help = format!("slipway status --cluster {cluster}");
        all.push(finding(level, about, format!("{}: {reasons}", serving.word()), help));
    }
    if let Some((first, days)) = &state.first
        && !state.findings.iter().any(|found| found.about == *first || found.about == "certificates")
    {
        all.push(ok(format!("{cluster}: certificates"), format!("{first} ends first, in {days} d")));
    }
    all
}

/// How many intervals may pass without a snapshot before one is missed.
const MISSED: i64 = 2;

fn of_backups(cluster: &str, backups: Backups, now: Timestamp) -> Finding {
    let about = format!("{cluster}: snapshots");
    let newest = match backups.newest {
        Some(at) => format!("the newest verified snapshot of etcd was stored {}", ago(at, now)),
        None => "there is no verified snapshot of etcd".to_owned(),
    };
    let take = format!("slipway snapshot --cluster {cluster} takes one now");
    let Some(every) = backups.every_hours else {
        let help = format!(
            "remove `etcd.snapshots.enabled: false` from the spec, then: slipway apply cluster.yaml --cluster {cluster}; {take}"
        );
        return warning(about, format!("{newest}, and none is taken on a schedule"), help);
    };
    let limit = SignedDuration::from_hours(MISSED * i64::from(every));
    let missed = backups.newest.or(backups.since).is_some_and(|at| now.duration_since(at) > limit);
    if missed {
        let help = format!(
            "{take}, or says why it cannot; the log of slipway-snapshot.service on the members says why none was taken"
        );
        return problem(about, format!("{newest}, and one should be taken every {every} h"), help);
    }
    match backups.newest {
        Some(_) => ok(about, newest),
        None => ok(about, format!("{newest} yet; the first is taken within {every} h of the launch")),
    }
}

/// One finding for each kind of pins that the cluster uses.
fn of_pins(cluster: &str, rows: &[Row], now: Timestamp) -> Vec<Finding> {
    let mut kinds: BTreeMap<Pin, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        kinds.entry(row.kind).or_default().push(row);
    }
    let pins_finding = |(kind, rows): (Pin, Vec<&Row>)| {
        let about = format!("{cluster}: pins of {kind}");
        let age = rows.iter().find_map(|row| row.looked_up).map_or_else(
            || "looked up before dates were recorded".to_owned(),
            |at| format!("looked up {}", ago(at, now)),
        );
        let shown = |value: &Option<String>| value.as_deref().map_or_else(|| "none".to_owned(), short);
        let newer: Vec<String> = rows
            .iter()
            .filter(|row| row.changes())
            .map(|row| format!("{} {} → {}", row.name, shown(&row.from), shown(&row.to)))
            .collect();
        match newer.is_empty() {
            true => ok(about, format!("nothing is newer; {age}")),
            false => warning(
                about,
                format!("{}; {age}", newer.join(", ")),
                format!("slipway upgrade {kind} --cluster {cluster} --watch"),
            ),
        }
    };
    kinds.into_iter().map(pins_finding).collect()
}

/// The findings about a spec.
pub(super) fn of_spec(spec: &SpecRead) -> Vec<Finding> {
    let SpecRead { about, apply, .. } = spec;
    let mut all: Vec<Finding> = spec.diagnostics.iter().map(|one| of_diagnostic(spec, one)).collect();
    match &spec.objections {
        Some(Ok(objections)) => all.extend(objections.iter().map(|one| of_diagnostic(spec, one))),
        Some(Err(unread)) => all.push(unknown(format!("{about}, what it may use"), unread)),
        None => {}
    }
    for architecture in &spec.no_agent {
        let architecture = architecture.as_str();
        all.push(problem(
            about,
            format!("it has machines with {architecture} processors, for which no node agent is published"),
            format!("make package ARCHITECTURE={architecture}, then: slipway publish-agent dist/{architecture}/slipway-node"),
        ));
    }
    for (parameter, value) in &spec.images {
        let name = format!("the SSM parameter {parameter}");
        match value {
            Ok(Some(image)) if Image::is_id(image) || *image == Image::reference(parameter) => {}
            // The value may be anything, also a password.
            Ok(Some(_)) => all.push(problem(
                about,
                format!("{name} does not hold the id of an image"),
                format!("name a parameter that holds one, or set amiId; then: {apply}"),
            )),
            Ok(None) => all.push(problem(
                about,
                format!("{name} of its image does not exist"),
                format!("name a parameter that exists, or set amiId; then: {apply}"),
            )),
            Err(unread) => all.push(unknown(about, unread)),
        }
    }
    if all.is_empty() {
        all.push(ok(about, "accepted, and the installation lets it use what it names"));
    }
    all
}

fn of_diagnostic(spec: &SpecRead, one: &Diagnostic) -> Finding {
    let level = match one.severity {
        Severity::Error => Level::Problem,
        Severity::Warning => Level::Warning,
    };
    let help = match &one.help {
        Some(help) => plain(help),
        None => format!("correct it, then: {}", spec.apply),
    };
    finding(level, &spec.about, plain(&one.to_string()), help)
}

#[cfg(test)]
mod tests;
