//! What is read of the world before a decision: each of it is a call, and what is not read cannot be decided by.

use super::*;
use slipway_core::status::Status;
use slipway_rollout::fleet::TargetHealth;

/// What was read of that kind.
fn reads(shore: &Shore, kinds: &[&str]) -> Vec<String> {
    let mut log = shore.log();
    log.retain(|line| kinds.iter().any(|kind| line.starts_with(kind)));
    log
}

/// What the ARNs of all machines begin with.
const ARNS: &str = "arn:aws:ec2:eu-west-1:123456789012:instance/";

fn group(name: &str, machines: &[(&str, &str)]) -> Value {
    let machine = |lifecycle: &str| json!({"zone": "a", "lifecycle": lifecycle, "healthy": true, "weight": 1, "template": null});
    let machines: BTreeMap<&str, Value> = machines.iter().map(|(id, state)| (*id, machine(state))).collect();
    json!({
        "name": name, "desired": 1, "min": 1, "max": 2, "template": null, "machines": machines,
        "tags": {"slipway:cluster": "c"}, "targetGroups": ["arn"], "machineArns": ARNS,
    })
}

fn has_group(shore: &Shore, name: &str, machines: &[(&str, &str)]) {
    shore.has_group(serde_json::from_value(group(name, machines)).unwrap());
}

fn going() -> Rollout {
    let order = Given { order: Order::Destroy { without_snapshot: true }, at: at(0) };
    Rollout { outbox: Vec::new(), ..after_order(&idle(), &order, None, at(0)) }
}

fn desired() -> Desired {
    Desired {
        format: 1,
        spec_version: "v2".to_owned(),
        plan: "p".to_owned(),
        target: "t".to_owned(),
        deletion_protection: false,
        manual_since: None,
        accepted: None,
        snapshots: None,
        set_aside: None,
    }
}

/// One whose controllers are replaced.
fn controllers() -> Rollout {
    let mut state = rolling(json!("done"));
    let step = json!({
        "role": "controller", "stack": "c-control-plane", "group": "c-control-plane",
        "task": {"controllers": {"work": "replace", "size": 1, "phase": {"open": {"state": {"look": {}}}}}},
    });
    let active = state.active_mut().unwrap();
    active.nodes = serde_json::from_value(json!({"steps": [step]})).unwrap();
    state
}

#[tokio::test]
async fn a_stack_that_is_not_there_has_no_change_set_and_one_that_did_not_fail_no_failures() {
    for (status, expected) in [
        (None, &["stack c-network"][..]),
        (Some(StackStatus::CreateInProgress), &["stack c-network", "change set of c-network"]),
        (
            Some(StackStatus::RollbackComplete),
            &["stack c-network", "failures of arn:c-network", "change set of c-network"],
        ),
    ] {
        let shore = Shore::with(&rolling(json!("executing")));
        if let Some(status) = status {
            shore.has("c-network", status);
        }
        shore.wakes(Waker::Tick).await.unwrap();
        let log = reads(&shore, &["stack ", "change set ", "failures "]);
        assert_eq!(log[..expected.len()], *expected, "{status:?}");
    }
    for (status, asks) in [(StackStatus::DeleteInProgress, false), (StackStatus::DeleteFailed, true)] {
        let shore = Shore::with(&going());
        shore.has("c-pool-a", status);
        shore.wakes(Waker::Tick).await.unwrap();
        let log = reads(&shore, &["failures "]);
        assert_eq!(log.contains(&"failures of arn:c-pool-a".to_owned()), asks, "{status:?}: {log:?}");
    }
}

#[tokio::test]
async fn a_stack_that_was_left_is_forgotten_once_cloudformation_says_that_it_is_gone() {
    for (status, is_known) in
        [(Some(StackStatus::CreateComplete), true), (Some(StackStatus::DeleteComplete), false), (None, false)]
    {
        let orphaned = BTreeMap::from([("c-pool-b".to_owned(), "t".to_owned())]);
        let shore = Shore::with(&Rollout { orphaned, ..idle() });
        if let Some(status) = status {
            shore.has("c-pool-b", status);
        }
        shore.wakes(Waker::Event).await.unwrap();
        assert_eq!(shore.state().orphaned.contains_key("c-pool-b"), is_known, "{status:?}");
    }
}

#[tokio::test]
async fn p5_the_health_of_targets_is_asked_for_the_controllers_that_are_worked_on_and_for_nobody_else() {
    let machines = [("i-1", "inService"), ("i-2", "pending")];
    let shore = Shore::with(&controllers());
    has_group(&shore, "c-control-plane", &machines);
    shore.wakes(Waker::Tick).await.unwrap();
    assert!(reads(&shore, &["targets "]).contains(&"targets arn".to_owned()));
    let shore = Shore::with(&departing());
    has_group(&shore, "c-pool-a", &machines);
    has_group(&shore, "c-control-plane", &machines);
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(reads(&shore, &["targets "]), [""; 0]);
}

#[tokio::test]
async fn p5_each_load_balancer_of_the_controllers_is_asked() {
    let shore = Shore::with(&controllers());
    let mut view = group("c-control-plane", &[("i-1", "inService")]);
    view["targetGroups"] = json!(["arn", "inner"]);
    shore.has_group(serde_json::from_value(view).unwrap());
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(reads(&shore, &["targets "])[..2], ["targets arn", "targets inner"]);
}

#[tokio::test]
async fn p5_what_the_targets_are_is_part_of_what_is_seen() {
    let shore = Shore::with(&controllers());
    has_group(&shore, "c-control-plane", &[("i-1", "inService"), ("i-2", "inService")]);
    let seen =
        shore.run(async |ports| observe(ports, &wake_of(Waker::Tick), &controllers(), at(0)).await).await;
    let group = seen.unwrap().groups["c-control-plane"].clone().unwrap();
    let not = TargetHealth::NotHealthy("not registered in arn".to_owned());
    assert_eq!(group.machines["i-1"].target, TargetHealth::Healthy);
    assert_eq!(group.machines["i-2"].target, not);
}

/// Whoever judges an answer by what its machine's group shows takes that for newer: a member that answered, and whose machine went after
/// that, must not be taken for well. So no group is read before the last answer is.
#[tokio::test]
async fn p4_p5_groups_are_read_after_all_answers_so_that_no_answer_is_newer_than_what_is_seen_of_its_machine()
{
    let mut state = controllers();
    let asked = |id: &str| {
        let command = json!({"token": format!("of {id}"), "instance": id, "verb": "status"});
        json!({"role": "controller", "command": command, "at": at(0)})
    };
    let phase =
        json!({"open": {"state": {"check": {"machine": "i-1", "round": [asked("i-2"), asked("i-3")]}}}});
    let mut nodes = serde_json::to_value(&state.active().unwrap().nodes).unwrap();
    nodes["steps"][0]["task"]["controllers"]["phase"] = phase;
    state.active_mut().unwrap().nodes = serde_json::from_value(nodes).unwrap();
    state.departures = departing().departures;
    let shore = Shore::with(&state);
    for group in ["c-control-plane", "c-pool-a"] {
        has_group(&shore, group, &[("i-1", "inService"), ("i-2", "inService"), ("i-3", "inService")]);
    }
    shore.run(async |ports| observe(ports, &wake_of(Waker::Tick), &state, at(0)).await).await.unwrap();
    let log = reads(&shore, &["answer ", "group "]);
    let expected = ["answer of i-2", "answer of i-3", "group c-control-plane", "group c-pool-a"];
    assert_eq!(log, expected);
}

fn wake_of(by: Waker) -> Wake {
    Wake { cluster: "c".to_owned(), by }
}

/// Machines that boot are asked what they tell, and those in their hooks whether they ever served: of others nothing is read.
#[tokio::test]
async fn what_machines_told_is_read_of_those_that_boot_or_go_and_of_three_at_most() {
    let shore = Shore::with(&controllers());
    let boots = ["i-2", "i-3", "i-4", "i-5"].map(|id| (id, "pending"));
    has_group(&shore, "c-control-plane", &[&[("i-1", "inService")], &boots[..]].concat());
    shore
        .run(async |ports| observe(ports, &wake_of(Waker::Tick), &controllers(), at(0)).await)
        .await
        .unwrap();
    let told =
        |role: &str, id: &str| format!("get {}", keys::bootstrap_report("c", role, &format!("{ARNS}{id}")));
    let log = reads(&shore, &["get clusters/c/nodes/"]);
    assert_eq!(log, ["i-2", "i-3", "i-4"].map(|id| told("controller", id)));
}

#[tokio::test]
async fn p6_a_machine_in_its_hook_that_told_that_it_never_served_is_let_go_at_once_and_a_torn_report_holds_up_nobody()
 {
    let report = |served: bool| {
        json!({
            "format": 1, "instance": "i-1", "role": "pool-a", "config": "", "credentials": "", "agent": "1", "state": "given-up",
            "served": served, "at": at(0),
        })
    };
    for (told, goes) in [(report(false), true), (report(true), false), (json!("torn"), false)] {
        let shore = Shore::with(&idle());
        has_group(&shore, "c-pool-a", &[("i-1", "terminatingWait")]);
        shore.keeps(&keys::bootstrap_report("c", "pool-a", &format!("{ARNS}i-1")), &told);
        shore.wakes(Waker::Group { name: "c-pool-a".to_owned() }).await.unwrap();
        assert_eq!(shore.done().contains(&"complete i-1".to_owned()), goes, "{told}");
        assert!(shore.state().departures.contains_key("i-1"), "{told}");
    }
}

/// What is on its way, what is over, and what nobody wants any more: nothing of it is read, let alone lost.
#[tokio::test]
async fn p1_of_a_plan_that_is_executed_or_was_nothing_is_read_again() {
    let ended = json!({
        "plan": "p", "specVersion": "v2", "target": "t", "result": "failed", "message": "", "endedAt": at(0), "steps": [],
    });
    let over = Rollout { last: Some(serde_json::from_value(ended).unwrap()), ..idle() };
    for state in [rolling(json!("executing")), over, going()] {
        let shore = Shore::with(&state);
        shore.has("c-network", StackStatus::CreateInProgress);
        shore.keeps(&keys::desired("c"), &desired());
        shore.wakes(Waker::Event).await.unwrap();
        assert_eq!(
            reads(&shore, &["get clusters/c/plans", "get clusters/c/releases"]),
            [""; 0],
            "{:?}",
            state.activity
        );
    }
}

#[tokio::test]
async fn each_wake_tells_how_it_stands() {
    let shore = Shore::with(&rolling(json!("executing")));
    shore.has("c-network", StackStatus::CreateInProgress);
    let report = shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!((report.state.as_str(), shore.report()), ("running", Some(report.clone())));
    shore.log();
    shore.wakes(Waker::Tick).await.unwrap();
    assert_eq!(reads(&shore, &["put "]), [""; 0], "what is told already is not written again");
}

#[tokio::test]
async fn the_specs_that_a_destruction_makes_void_are_the_planned_one_and_the_one_that_was_refused_meanwhile()
{
    let shore = Shore::with(&going());
    let versions = async |state: &Rollout| newest(&shore, state, Some(&desired())).await.unwrap();
    assert_eq!(versions(&going()).await, BTreeSet::from(["v2".to_owned()]));
    let spec = json!({"version": "v3", "result": "rejected", "diagnostics": [], "failure": null, "plan": null, "summary": null});
    let mut status = serde_json::to_value(Status::new("c")).unwrap();
    status["spec"] = spec;
    shore.keeps(&keys::status("c"), &status);
    assert_eq!(versions(&going()).await, BTreeSet::from(["v2".to_owned(), "v3".to_owned()]));
    assert_eq!(versions(&idle()).await, BTreeSet::from(["v2".to_owned()]));
    // One that cannot be read holds nobody up.
    shore.keeps(&keys::status("c"), &"no status");
    assert_eq!(versions(&going()).await, BTreeSet::from(["v2".to_owned()]));
}

#[tokio::test]
async fn the_specs_that_a_destruction_makes_void_are_part_of_what_is_seen() {
    let shore = Shore::with(&going());
    shore.keeps(&keys::desired("c"), &desired());
    let seen = shore.run(async |ports| observe(ports, &wake_of(Waker::Tick), &going(), at(0)).await).await;
    assert_eq!(seen.unwrap().newest, BTreeSet::from(["v2".to_owned()]));
}

#[test]
fn a_clock_tells_what_time_it_is() {
    assert_eq!(format!("{:?}", Clock(&|| at(0))), "Clock(1970-01-12T13:46:40Z)");
}

/// An invocation that stood still says at last what it found, when another one has gone on.
#[tokio::test]
async fn p8_an_older_report_takes_the_place_of_no_newer_one() {
    for (decided, stays) in [(5, true), (4, false), (3, false)] {
        let shore = Shore::with(&Rollout { effects_decided: 4, ..idle() });
        let newer = Report { decided, message: "succeeded".to_owned(), ..Report::default() };
        let status = Status { rollout: Some(newer), ..Status::default() };
        shore.keeps(&keys::status("c"), &status);
        shore.wakes(Waker::Event).await.unwrap();
        assert_eq!(shore.report().unwrap().message == "succeeded", stays, "{decided}");
    }
}
