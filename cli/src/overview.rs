//! The state of a cluster in AWS, from its folder in the asset bucket, with an assessment. No node is queried, and nothing is written.

mod certificates;
mod findings;
mod nodes;
mod progress;
mod reports;
mod scanned;
mod serving;
mod space;
mod text;
mod words;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_core::cluster::Approval;
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::status::{Desired, RolloutState, SpecStatus, Status};
use slipway_core::words::moment;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::State;
use slipway_credentials::rotation::{self, RotationStatus};
use slipway_flows::error::FlowError;
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_rollout::Rollout;

use crate::cloud::Cloud;
use crate::failure::CliError;

pub(crate) use certificates::Expiry;
pub(crate) use findings::{Finding, Gravity};
pub(crate) use nodes::Node;
use nodes::NodeState;
pub(crate) use progress::Progress;
pub(crate) use reports::{Reports, has_reported, reporter};
pub(crate) use scanned::ScanView;
pub(crate) use serving::{Serving, ServingState};
pub(crate) use text::Page;
pub(crate) use words::{ago, plain};

/// The state of a cluster.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Overview {
    /// Whether the command succeeded.
    ok: bool,
    /// Whether nothing is wrong.
    pub(crate) well: bool,
    /// Whether the cluster serves, as far as its machines say.
    pub(crate) serving: Serving,
    pub(crate) cluster: String,
    asset_bucket: String,
    pub(crate) at: Timestamp,
    pub(crate) spec: Option<SpecStatus>,
    /// Whether the newest spec belongs to a destroyed cluster, or was refused during its destruction, so that it needs no correction.
    pub(crate) spec_is_past: bool,
    pub(crate) rollout: RolloutView,
    pub(crate) nodes: Vec<Node>,
    /// How many reports of nodes were not read because there are too many; the oldest are skipped.
    nodes_unread: usize,
    pub(crate) certificates: Vec<Expiry>,
    /// The rotations in progress, by asset.
    pub(crate) rotations: BTreeMap<String, RotationStatus>,
    /// The state that the last scan stored. `None`: there was no scan.
    pub(crate) scan: Option<ScanView>,
    pub(crate) findings: Vec<Finding>,
}

/// The current or last rollout.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RolloutView {
    /// As [`slipway_core::status::Report::state`].
    pub(crate) state: RolloutState,
    pub(crate) generation: u64,
    pub(crate) plan: Option<String>,
    pub(crate) message: String,
    pub(crate) stacks: BTreeMap<String, String>,
    pub(crate) orphaned: Vec<String>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// The summary of a plan that waits for approval.
    pub(crate) waits: Option<String>,
    /// Whether a rollout is in progress.
    pub(crate) running: bool,
    /// Whether the newest plan was requested and will start with the next wake.
    pub(crate) pending: bool,
    /// Since when nothing new may start, by order of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused_since: Option<Timestamp>,
    /// The plan that waits until the present rollout has ended, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// While something is waited for: the command that a person can run about it, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// The progress of the machines, while the rollout is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Progress>,
}

/// The documents of which a cluster has one each.
struct Documents {
    status: Option<Status>,
    rollout: Option<Rollout>,
    desired: Option<Desired>,
    manifest: Option<Manifest>,
    scan: Option<State>,
    plan: Option<Plan>,
    release: Option<Rendering>,
    /// Findings about documents that cannot be read.
    unread: Vec<Finding>,
}

impl Overview {
    /// Reads the state. `reports` caches the reports of nodes, so that another call reads only new ones.
    pub(crate) async fn read(cloud: &Cloud, reports: &mut Reports, now: Timestamp) -> Result<Self, CliError> {
        let documents = Documents::read(cloud).await?;
        let heard = reports.read_all(cloud).await?;
        let mut findings = documents.unread.clone();
        findings.extend(heard.unreadable.iter().map(findings::unreadable));
        let mut nodes = nodes::nodes(&heard.reports, documents.release.as_ref(), now);
        let stands = documents.state().was_destroyed().is_none();
        if !stands {
            nodes.iter_mut().for_each(|node| node.standing = NodeState::Earlier);
        }
        let certificates = documents.manifest.as_ref().map(|manifest| certificates::expiries(manifest, now));
        let certificates = certificates.unwrap_or_default();
        let mut rollout = documents.rollout_view(now);
        let active = documents.rollout.as_ref().and_then(|rollout| rollout.active());
        rollout.progress = active.and_then(|active| progress::progress(&nodes, active));
        let spec = documents.status.as_ref().and_then(|status| status.spec.clone());
        let name = &cloud.cluster;
        let spec_is_past = spec.as_ref().is_some_and(|spec| documents.is_past(spec));
        if !spec_is_past {
            findings.extend(findings::of_spec(name, spec.as_ref()));
        }
        findings.extend(findings::of_rollout(name, &rollout));
        let ignored = documents.rollout.as_ref().and_then(|rollout| rollout.ignored.as_ref());
        findings.extend(ignored.and_then(|ignored| findings::of_order(ignored, now)));
        findings.extend(findings::of_nodes(&nodes, now));
        let departures = documents.rollout.as_ref().map(|rollout| &rollout.departures);
        findings.extend(findings::of_workers(&nodes, departures.unwrap_or(&BTreeMap::new()), now));
        findings.extend(findings::of_use(name, &nodes, documents.manifest.as_ref(), now));
        let (manifest, scan) = (documents.manifest.as_ref(), documents.scan.as_ref());
        if stands {
            findings.extend(space::of_etcd(name, &nodes));
            findings.extend(findings::of_node_managers(name, &nodes));
            findings.extend(findings::of_pause(name, &rollout, &certificates, now));
            findings.extend(findings::of_certificates(name, &certificates, manifest, scan, now));
            findings.extend(manifest.into_iter().flat_map(|manifest| scanned::of_rotations(name, manifest)));
            findings.extend(scan.into_iter().flat_map(|scan| scanned::of_scan(name, scan, now)));
        }
        let standing = documents.state().existing_releases();
        let stacks = standing.keys().map(String::as_str).collect();
        let serving = match stands && !documents.state().is_going() {
            true => serving::serving(documents.release.as_ref(), &stacks, &nodes),
            false => Serving::gone(),
        };
        findings.sort_by_key(|finding| finding.gravity);
        Ok(Self {
            ok: true,
            well: findings.iter().all(|finding| finding.gravity != Gravity::Wrong),
            serving,
            cluster: name.clone(),
            asset_bucket: cloud.assets().name().to_owned(),
            at: now,
            spec,
            spec_is_past,
            rollout,
            nodes,
            nodes_unread: heard.unread,
            certificates,
            rotations: manifest.map(rotation::words).unwrap_or_default(),
            scan: scan.map(ScanView::new),
            findings,
        })
    }
}

impl Documents {
    /// A document that cannot be parsed is a finding; a failed call is an error.
    async fn read(cloud: &Cloud) -> Result<Self, CliError> {
        let (name, mut unread) = (cloud.cluster.as_str(), Vec::new());
        let (status, rollout, desired, manifest, scan) = tokio::join!(
            document::<Status>(cloud, keys::status(name)),
            document::<Rollout>(cloud, keys::rollout(name)),
            document::<Desired>(cloud, keys::desired(name)),
            document::<Manifest>(cloud, keys::manifest(name)),
            document::<State>(cloud, keys::scan(name)),
        );
        let desired = value_or_finding(desired?, &mut unread);
        let (plan, release) = match &desired {
            Some(desired) => {
                let (plan, release) = tokio::join!(
                    document::<Plan>(cloud, keys::plan(name, &desired.plan)),
                    document::<Rendering>(cloud, keys::release(name, &desired.target)),
                );
                (value_or_finding(plan?, &mut unread), value_or_finding(release?, &mut unread))
            }
            None => (None, None),
        };
        Ok(Self {
            status: value_or_finding(status?, &mut unread),
            rollout: value_or_finding(rollout?, &mut unread),
            manifest: value_or_finding(manifest?, &mut unread),
            scan: value_or_finding(scan?, &mut unread),
            desired,
            plan,
            release,
            unread,
        })
    }

    fn rollout_view(&self, now: Timestamp) -> RolloutView {
        let report = self.status.as_ref().and_then(|status| status.rollout.clone());
        let mut view = match report {
            Some(report) => RolloutView {
                state: report.state,
                generation: report.generation,
                plan: report.plan,
                message: report.message,
                command: report.next,
                stacks: report.stacks,
                orphaned: report.orphaned,
                ..RolloutView::default()
            },
            None => RolloutView {
                state: RolloutState::Idle,
                message: "nothing was rolled out yet".to_owned(),
                ..RolloutView::default()
            },
        };
        let rollout = self.state();
        // The report is written after the state, so a report of another generation is out of date.
        let lags = view.generation != rollout.generation;
        match (rollout.active(), &rollout.last) {
            (Some(active), _) => {
                view.started_at = Some(active.started_at);
                if lags {
                    view.state = RolloutState::Running;
                    view.message = format!("plan {} has begun", active.plan);
                    view.command = None;
                    view.plan = Some(active.plan.clone());
                    view.stacks.clear();
                }
            }
            (None, Some(last)) if !rollout.is_going() => {
                view.ended_at = Some(last.ended_at);
                if lags
                    || matches!(
                        view.state,
                        RolloutState::Running | RolloutState::Aborting | RolloutState::Paused
                    )
                {
                    view.state = last.result.into();
                    view.message.clone_from(&last.message);
                    view.command = None;
                    view.plan = Some(last.plan.clone());
                }
            }
            (None, Some(_) | None) => {}
        }
        if rollout.active().is_none() {
            show_destruction(&mut view, &rollout, lags);
        }
        view.generation = rollout.generation;
        let stands = !rollout.is_going() && rollout.was_destroyed().is_none();
        view.paused_since = rollout.paused_since().filter(|_| stands);
        view.running =
            rollout.active().is_some() || rollout.destroy().is_some_and(|open| !open.has_stopped());
        // No wake reports that a plan waits, so this is derived here.
        if let (Some(desired), Some(plan)) = (&self.desired, &self.plan)
            && is_due(&rollout, desired, plan)
        {
            view.plan = Some(plan.id.clone());
            view.ended_at = None;
            view.stacks.clear();
            if plan.policy.approval == Approval::Manual && rollout.approved.as_ref() != Some(&plan.id) {
                view.state = RolloutState::WaitingForApproval;
                view.message = format!("plan {} waits for an approval: {}", plan.id, plan.summary());
                view.waits = Some(plan.summary());
                view.command =
                    Some(format!("`slipway approve --cluster {}` shows and starts it", rollout.cluster));
            } else if let Some(since) = rollout.paused_since() {
                view.state = RolloutState::Paused;
                let since = moment(since);
                view.message = format!("plan {} waits: everything was paused at {since}", plan.id);
                view.command = Some(format!("`slipway resume --cluster {}` continues", rollout.cluster));
            } else {
                view.state = RolloutState::AboutToBegin;
                view.message = format!("plan {} was asked for: {}", plan.id, plan.summary());
                view.command = None;
                view.pending = true;
            }
        }
        if let (Some(desired), Some(plan)) = (&self.desired, &self.plan) {
            let is_new = !plan.is_empty() && !rollout.was_rolled_out(desired) && !rollout.is_going();
            let ended_now = || {
                let last = rollout.last.as_ref().filter(|_| rollout.active().is_none());
                last.is_some_and(|last| now.duration_since(last.ended_at) < REPLANNED_WITHIN)
            };
            if is_new && rollout.active().is_some_and(|active| active.plan != plan.id) {
                let summary = plan.summary();
                view.next = Some(format!("plan {} begins when this rollout has ended: {summary}", plan.id));
            } else if is_new && !is_due(&rollout, desired, plan) && ended_now() {
                view.plan = Some(plan.id.clone());
                view.state = RolloutState::AboutToBegin;
                view.message =
                    format!("plan {} is computed again, because the previous rollout has ended", plan.id);
                view.command = None;
                view.stacks.clear();
                view.pending = true;
            }
        }
        // The state is printed before the message, which repeats it.
        if let Some(rest) = view.message.strip_prefix(&format!("{}: ", view.state)) {
            view.message = rest.to_owned();
        }
        view
    }

    /// Whether `spec` belongs to a destroyed cluster, and nothing was created since.
    fn is_past(&self, spec: &SpecStatus) -> bool {
        let refused = || spec.diagnostics.iter().any(|found| found.code == "destroyed");
        let rollout = self.rollout.as_ref();
        let gone = rollout.and_then(Rollout::was_destroyed);
        gone.is_some_and(|gone| gone.spec_versions.contains(&spec.version) || refused())
    }

    fn state(&self) -> Rollout {
        self.rollout.clone().unwrap_or_else(|| {
            let cluster = self.status.as_ref().map(|status| status.cluster.as_str());
            Rollout::new(cluster.unwrap_or_default())
        })
    }
}

/// How long it takes at most until a plan that waited for another rollout is made anew: the function is woken every minute.
const REPLANNED_WITHIN: SignedDuration = SignedDuration::from_mins(3);

/// Whether the desired plan `plan` will start once it is requested.
fn is_due(rollout: &Rollout, desired: &Desired, plan: &Plan) -> bool {
    let free = rollout.active().is_none() && !rollout.is_going();
    free && rollout.is_start_of(plan) && !plan.is_empty() && !rollout.was_rolled_out(desired)
}

/// A cluster that is being destroyed, or was.
fn show_destruction(view: &mut RolloutView, rollout: &Rollout, lags: bool) {
    if let Some(open) = rollout.destroy() {
        let reports_destruction = matches!(
            view.state,
            RolloutState::Destroying
                | RolloutState::Paused
                | RolloutState::Aborting
                | RolloutState::Failed
                | RolloutState::Stuck
        );
        if lags || !reports_destruction || (view.state == RolloutState::Failed && !open.has_stopped()) {
            view.state = RolloutState::Destroying;
            "its destruction was ordered".clone_into(&mut view.message);
            view.stacks.clear();
        }
        view.plan = None;
        view.started_at = Some(open.asked_at);
        view.ended_at = None;
    } else if let Some(gone) = rollout.was_destroyed() {
        view.state = RolloutState::Destroyed;
        view.message.clone_from(&gone.message);
        view.plan = None;
        view.ended_at = Some(gone.at);
    } else if let Some(off) = rollout.aborted_destruction() {
        view.state = RolloutState::Aborted;
        view.message.clone_from(&off.message);
        view.plan = None;
        view.ended_at = Some(off.at);
    }
}

/// One document: its content, `None` if it does not exist, or what is wrong with it.
async fn document<T: DeserializeOwned>(
    cloud: &Cloud,
    key: String,
) -> Result<Result<Option<T>, Finding>, CliError> {
    match store::load::<T>(cloud.assets(), &key).await {
        Ok(stored) => Ok(Ok(stored.value)),
        Err(FlowError::Corrupt { key, problem, help }) => Ok(Err(Finding {
            gravity: Gravity::Wrong,
            about: key.clone(),
            message: format!("{key} {problem}"),
            help,
        })),
        Err(error) => Err(CliError::from(error).in_cloud()),
    }
}

fn value_or_finding<T>(document: Result<Option<T>, Finding>, unread: &mut Vec<Finding>) -> Option<T> {
    document.unwrap_or_else(|finding| {
        unread.push(finding);
        None
    })
}

/// Views for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A view in which only the rollout is known.
    pub(crate) fn view(state: RolloutState, generation: u64, message: &str) -> Overview {
        let rollout = RolloutView {
            state,
            generation,
            plan: Some(message.to_owned()),
            message: message.to_owned(),
            running: state == RolloutState::Running,
            ..RolloutView::default()
        };
        Overview {
            ok: true,
            well: true,
            serving: Serving::gone(),
            cluster: "c".to_owned(),
            asset_bucket: "assets".to_owned(),
            at: Timestamp::UNIX_EPOCH,
            spec: None,
            spec_is_past: false,
            rollout,
            nodes: Vec::new(),
            nodes_unread: 0,
            certificates: Vec::new(),
            rotations: BTreeMap::new(),
            scan: None,
            findings: Vec::new(),
        }
    }

    /// The same with these stacks, which are done.
    pub(crate) fn with_stacks(mut view: Overview, stacks: &[&str]) -> Overview {
        view.rollout.stacks = stacks.iter().map(|stack| ((*stack).to_owned(), "done".to_owned())).collect();
        view
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn documents(rollout: Value, report: Option<Value>) -> Documents {
        let status = json!({"format": 1, "cluster": "c", "spec": null, "rollout": report});
        Documents {
            status: serde_json::from_value(status).unwrap(),
            rollout: serde_json::from_value(rollout).unwrap(),
            desired: None,
            manifest: None,
            scan: None,
            plan: None,
            release: None,
            unread: Vec::new(),
        }
    }

    fn rollout(active: bool, last: &str) -> Value {
        let activity = active.then(|| {
            json!({"rollingOut": {
                "plan": "p2", "specVersion": "v", "target": "t", "startedAt": "2026-11-22T12:00:00Z", "changeSet": "s",
                "steps": [], "nodesByHand": 0, "stacksByHand": [],
            }})
        });
        let activity = activity.unwrap_or_else(|| json!("idle"));
        json!({
            "format": 3, "cluster": "c", "generation": 2, "deployed": {}, "activity": activity, "outbox": [],
            "approved": null, "published": null,
            "last": {
                "plan": "p2", "specVersion": "v", "target": "t", "result": last, "message": "as it ended",
                "endedAt": "2026-11-22T12:10:00Z", "steps": [],
            },
        })
    }

    fn report(state: &str, generation: u64) -> Option<Value> {
        Some(
            json!({"state": state, "generation": generation, "plan": "p", "message": "as it was told", "stacks": {}}),
        )
    }

    #[test]
    fn a_cluster_that_is_being_destroyed_or_was_says_so_whatever_was_reported_before() {
        let mut going = rollout(false, "succeeded");
        going["activity"] = json!({"destroying": {
            "askedAt": "2026-11-22T13:00:00Z", "attempt": 1, "stacks": [],
            "snapshot": {"wanted": {"which": "first", "save": {"leader": {"since": "2026-11-22T13:00:00Z"}}}},
        }});
        for (reported, state) in
            [("succeeded", "destroying"), ("destroying", "destroying"), ("paused", "paused")]
        {
            let seen = documents(going.clone(), report(reported, 2)).rollout_view(Timestamp::UNIX_EPOCH);
            assert_eq!((seen.state.as_str(), seen.running, seen.plan), (state, true, None), "{reported}");
        }
        let mut gone = rollout(false, "succeeded");
        gone["last"] = Value::Null;
        gone["activity"] = json!({"destroyed": {
            "at": "2026-11-22T14:00:00Z", "message": "destroyed: every stack is gone", "specVersions": ["v9"],
        }});
        let documents = documents(gone, report("destroying", 2));
        let seen = documents.rollout_view(Timestamp::UNIX_EPOCH);
        assert_eq!((seen.state.as_str(), seen.running), ("destroyed", false));
        assert_eq!(seen.message, "every stack is gone", "the state is said once");
        // A spec needs attention only if it is newer and has another problem.
        for (version, code, past) in
            [("v9", "unknown-key", true), ("v10", "destroyed", true), ("v10", "unknown-key", false)]
        {
            let found = json!({ "severity": "error", "code": code, "line": 0, "column": 0, "path": "", "message": "", "help": null });
            let spec = json!({ "version": version, "result": "rejected", "diagnostics": [found] });
            assert_eq!(documents.is_past(&serde_json::from_value(spec).unwrap()), past, "{version} {code}");
        }
    }

    #[test]
    fn a_plan_that_waits_for_another_rollout_is_shown_until_it_begins() {
        use slipway_plan::Baseline;
        let release = |name: &str| -> Rendering {
            let stack = json!({ "name": name, "kind": "pool", "body": "{}", "sha256": "0", "tags": {} });
            let stack = serde_json::from_value(stack).unwrap();
            let cluster = "c".to_owned();
            let stacks = vec![stack];
            Rendering { format: 1, cluster, stacks, roles: BTreeMap::new(), addons: Default::default() }
        };
        let policy = json!({
            "approval": "auto", "max_unavailable": {"count": 1}, "surge": {"count": 0}, "drain_force_after_min": null,
            "failure_budget": 1, "windows": [],
        });
        let policy = serde_json::from_value(policy).unwrap();
        let plan = slipway_plan::plan(&Baseline::single_release(Some(release("a"))), &release("b"), &policy);
        let desired = Desired {
            format: 1,
            spec_version: "v2".to_owned(),
            plan: plan.id.clone(),
            target: plan.to.clone(),
            deletion_protection: false,
            manual_since: None,
            accepted: None,
            snapshots: None,
            set_aside: None,
        };
        let documents_of = |active| Documents {
            desired: Some(desired.clone()),
            plan: Some(plan.clone()),
            ..documents(rollout(active, "superseded"), None)
        };
        let ended: Timestamp = "2026-11-22T12:10:00Z".parse().unwrap();
        let shown = documents_of(true).rollout_view(ended);
        assert!(shown.running && shown.next.unwrap().starts_with(&format!("plan {} begins when", plan.id)));
        // The other one has ended, and the plan is made anew with the next wake.
        let shown = documents_of(false).rollout_view(ended + SignedDuration::from_mins(1));
        assert_eq!((shown.state.as_str(), shown.pending), ("about-to-begin", true));
        let shown = documents_of(false).rollout_view(ended + SignedDuration::from_mins(9));
        assert_eq!((shown.state.as_str(), shown.pending), ("superseded", false));
    }

    #[test]
    fn a_report_that_lags_behind_the_state_is_not_believed() {
        for (rollout, report, state, message) in [
            (rollout(true, "succeeded"), report("running", 2), "running", "as it was told"),
            (rollout(true, "succeeded"), report("stuck", 2), "stuck", "as it was told"),
            (rollout(true, "succeeded"), report("succeeded", 1), "running", "plan p2 has begun"),
            (rollout(true, "succeeded"), None, "running", "plan p2 has begun"),
            (rollout(false, "succeeded"), report("running", 2), "succeeded", "as it ended"),
            (rollout(false, "failed"), report("running", 2), "failed", "as it ended"),
            (rollout(false, "failed"), report("succeeded", 1), "failed", "as it ended"),
            (rollout(false, "aborted"), report("aborting", 2), "aborted", "as it ended"),
            (rollout(false, "aborted"), report("paused", 2), "aborted", "as it ended"),
            (rollout(true, "succeeded"), report("aborting", 2), "aborting", "as it was told"),
            (rollout(false, "succeeded"), report("succeeded", 2), "succeeded", "as it was told"),
        ] {
            let seen = documents(rollout, report.clone()).rollout_view(Timestamp::UNIX_EPOCH);
            assert_eq!((seen.state.as_str(), seen.message.as_str()), (state, message), "{report:?}");
        }
    }
}
