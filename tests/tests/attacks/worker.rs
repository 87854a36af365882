//! A compromised worker. It has the permissions of its role, and whatever they grant by a mistake.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_credentials::rotation::Stage;
use slipway_crypto::AwsLc;
use slipway_flows::credentials::rotation;
use slipway_flows::ports::Groups as _;
use slipway_flows::rendering::RenderOutcome;
use slipway_flows::rollout::Waker;
use slipway_sim::mortal::Life;
use slipway_sim::ports::{SimulatedGroups, lock};
use slipway_sim::world::MachineFacts;
use slipway_sim::year::{Cause, Woken};
use slipway_tests::client::{ACCOUNT, Client, machine_arn};
use slipway_tests::gateway::Principal;
use slipway_tests::iam::{self, Decision};
use slipway_tests::workshop::{Workshop, example};

use crate::controller::statements_with;
use crate::{UNREADABLE, WRITES, installation, installation_of, request, scanned, spoil, workshop};

/// What the functions execute and nodes run: written by the render function alone.
pub(crate) const EXECUTED: [&str; 4] = [
    "clusters/minimal/templates/minimal-network/0.json",
    "clusters/minimal/releases/0.json",
    "clusters/minimal/bundles/controller/config-0",
    "clusters/minimal/addons/0.json",
];

/// What decides which of it is used.
pub(crate) const DECISIVE: [&str; 3] =
    ["clusters/minimal/plans/0.json", "clusters/minimal/addons.json", "clusters/minimal/desired.json"];

/// The pins, and the state with its approvals and destructions. Maintainers repair both.
pub(crate) const PINS: &str = "clusters/minimal/lock.json";
pub(crate) const ROLLOUT: &str = "clusters/minimal/rollout.json";

/// The node agent, which people publish with their own permissions.
pub(crate) const AGENT: &str = "agent/0/slipway-node";

/// Credentials, the state of scans, and the schedule of snapshots. Maintainers repair them.
pub(crate) const STATE: [&str; 5] = [
    "clusters/minimal/bundles/controller/credentials-0",
    "clusters/minimal/pki/manifest.json",
    "clusters/minimal/pki/ca/0.sealed",
    "clusters/minimal/scan.json",
    "clusters/minimal/snapshots.json",
];

/// Whoever may write these is an administrator: of the cluster, and of what CloudFormation may make. The bucket's policy denies it, whatever
/// the caller's own policy says.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_write_into_the_bucket_still_writes_nothing_that_is_executed() {
    let world = installation().await;
    let bucket = world.deployed().arns["AssetBucket"].clone();
    let policy = world.gateway().policy_of(&bucket).unwrap();
    let denied = |who: &str, action: &str, key: &str| {
        let asked = request(action, &format!("{bucket}/{key}"), &[("aws:PrincipalArn", who)]);
        matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
    };
    let worker = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-pool-general-WorkerRole-1A2B");
    let person = format!("arn:aws:iam::{ACCOUNT}:role/developer");
    let function = |id: &str| world.deployed().arns[id].clone();
    let (render, rollout, scan) = (function("RenderRole"), function("RolloutRole"), function("ScanRole"));
    let everybody = [&worker, &person, &scan, &render, &rollout];
    for action in WRITES {
        let only = |writers: &[&String], key: &str| {
            for who in everybody {
                assert_eq!(denied(who, action, key), !writers.contains(&who), "{who} {action} {key}");
            }
        };
        for key in EXECUTED {
            only(&[&render], key);
        }
        for key in DECISIVE {
            only(&[&render, &rollout], key);
        }
        only(&[&render], PINS);
        only(&[&rollout], ROLLOUT);
        for key in STATE {
            only(&[&render, &scan], key);
        }
        // Every machine runs it as root. Nobody publishes any until the installation names who may.
        only(&[], AGENT);
        only(&[], "agent/manifest.json");
    }
    assert!(!denied(&worker, "s3:GetObject", EXECUTED[0]), "reading is for IAM to decide");
}

/// What a node reports holds up rotations and drains, so nobody else writes it, whatever the caller's own policy says.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_but_a_machine_reports_about_a_node() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let person = format!("arn:aws:iam::{ACCOUNT}:role/developer");
    let worker = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-pool-general-WorkerRole-1A2B");
    let machine = ("ec2:SourceInstanceArn", "arn:aws:ec2:eu-west-1:123456789012:instance/i-1");
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let bucket = world.deployed().arns["AssetBucket"].clone();
        let policy = world.gateway().policy_of(&bucket).unwrap();
        let denied = |who: &str, action: &str, key: &str, more: &[(&str, &str)]| {
            let context = [&[("aws:PrincipalArn", who)], more].concat();
            let asked = request(action, &format!("{bucket}/{key}"), &context);
            matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
        };
        for key in [
            keys::node_status("minimal", "pool-general", &machine_arn("i-1")),
            keys::bootstrap_report("minimal", "pool-general", &machine_arn("i-1")),
        ] {
            for action in WRITES {
                assert!(!denied(&worker, action, &key, &[machine]), "{action} {key}");
                // With the credentials of a pod, or those that somebody took off a machine and used elsewhere: the key is not in the request.
                assert!(denied(&worker, action, &key, &[]), "{action} {key}");
                assert!(denied(&person, action, &key, &[]), "{action} {key}");
                for function in ["RenderRole", "RolloutRole", "ScanRole"] {
                    assert!(
                        denied(&world.deployed().arns[function], action, &key, &[]),
                        "{function} {action} {key}"
                    );
                }
                assert_eq!(denied(&maintainer, action, &key, &[]), maintainers.is_none(), "{action} {key}");
            }
            assert!(!denied(&person, "s3:GetObject", &key, &[]), "{key}");
        }
    }
}

/// A worker could write the reports of all machines of its role: that another one never served, so that it was terminated without a drain, or
/// nothing that can be read, so that a rotation waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_reports_about_itself_alone() {
    let world = installation().await;
    let bucket = world.reference("AssetBucket").unwrap();
    let text = example("minimal");
    let workshop = workshop(&text);
    let rendering = workshop.render(&text).await.rendering;
    let (own, other) = (machine_arn("i-0a"), machine_arn("i-0b"));
    for (id, role) in
        [("WorkerRole", "pool-general"), ("ControllerRole", "controller"), ("EtcdRole0", "etcd-0")]
    {
        let statements = statements_with(&rendering, id, &[(workshop.assets.name(), bucket)]);
        let arn = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-{id}-1A2B");
        let (access_key, name) = (format!("ASIA{}", id.to_uppercase()), "i-0a".to_owned());
        world.gateway().know(&access_key, Principal { name, arn, statements: statements.clone() });
        let machine = Client::new(world.gateway().url(), world.region(), &access_key);
        let elsewhere = if role == "controller" { "pool-general" } else { "controller" };
        for (key, may) in [
            (keys::node_status("minimal", role, &own), true),
            (keys::bootstrap_report("minimal", role, &own), true),
            (keys::node_status("minimal", role, &other), false),
            (keys::bootstrap_report("minimal", role, &other), false),
            (keys::node_status("minimal", elsewhere, &own), false),
            (keys::node_status("another", role, &own), false),
            (format!("{}{own}/flood", keys::nodes_of("minimal", role)), false),
        ] {
            let put = machine.put_object(bucket, &key, b"{}".to_vec()).await;
            assert_eq!(put.is_ok(), may, "{key}: {put:?}");
            // With these credentials elsewhere, as a pod or a thief has them, the request names no machine.
            let asked = request(
                "s3:PutObject",
                &format!("arn:aws:s3:::{bucket}/{key}"),
                &[("aws:ResourceAccount", ACCOUNT)],
            );
            assert_eq!(iam::decide(&statements, &asked), Decision::NotGranted, "{key}");
        }
    }
}

/// With a role of the account's own that may write the whole bucket, as an instance profile of the spec's may have it: the bucket's policy decides.
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_with_any_role_reports_about_itself_alone() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let theirs = format!("arn:aws:iam::{ACCOUNT}:role/everything");
    let own = machine_arn("i-0a");
    for maintainers in [None, Some(&maintainer)] {
        let world = installation_of(maintainers).await;
        let bucket = world.deployed().arns["AssetBucket"].clone();
        let policy = world.gateway().policy_of(&bucket).unwrap();
        let denied = |who: &str, action: &str, key: &str| {
            let context = [
                ("aws:PrincipalArn", who),
                ("ec2:SourceInstanceArn", own.as_str()),
                ("s3:if-none-match", "*"),
            ];
            let asked = request(action, &format!("{bucket}/{key}"), &context);
            matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
        };
        for action in WRITES {
            for role in ["pool-general", "controller"] {
                let key = |machine: &str| keys::node_status("minimal", role, &machine_arn(machine));
                assert!(!denied(&theirs, action, &key("i-0a")), "{action}");
                assert!(denied(&theirs, action, &key("i-0b")), "{action}");
                // The beginning of an id is another machine's, and so is what only ends with its own.
                assert!(
                    denied(&theirs, action, &key("i-0a1")) && denied(&theirs, action, &key("i-0")),
                    "{action}"
                );
                assert_eq!(denied(&maintainer, action, &key("i-0b")), maintainers.is_none(), "{action}");
            }
            assert!(denied(&theirs, action, "clusters/minimal/status.json"), "{action}: functions write it");
            let flood = format!("{}{own}/0.json", keys::nodes_of("minimal", "controller"));
            assert!(denied(&theirs, action, &flood), "{action}");
        }
        for folder in ["0", "controller/0", "0/0"] {
            let flood = format!("clusters/minimal/nodes/controller/{folder}/{own}/status.json");
            assert!(denied(&theirs, "s3:PutObject", &flood), "{flood}");
        }
        for key in ["clusters/minimal/etcd-snapshots/1.db", "scheduled-snapshots/minimal/1.db"] {
            assert!(!denied(&theirs, "s3:PutObject", key), "{key}");
        }
        assert!(
            !denied(&theirs, "s3:GetObject", "clusters/minimal/status.json"),
            "reading is for IAM to decide"
        );
    }
}

/// With `MaintainerArns`, the agents are theirs alone, and the state is theirs and the functions'.
#[tokio::test(flavor = "multi_thread")]
async fn only_maintainers_publish_agents_and_repair_state() {
    let maintainer = format!("arn:aws:iam::{ACCOUNT}:role/maintainer");
    let world = installation_of(Some(&maintainer)).await;
    let bucket = world.deployed().arns["AssetBucket"].clone();
    let policy = world.gateway().policy_of(&bucket).unwrap();
    let denied = |who: &str, key: &str| {
        let asked = request("s3:PutObject", &format!("{bucket}/{key}"), &[("aws:PrincipalArn", who)]);
        matches!(iam::decide_for(&policy, "*", &asked), Decision::Denied(_))
    };
    for key in STATE.iter().chain([&AGENT, &PINS, &ROLLOUT]) {
        assert!(denied(&format!("arn:aws:iam::{ACCOUNT}:role/developer"), key), "{key}");
        assert!(!denied(&maintainer, key), "{key}");
    }
    for key in STATE {
        for id in ["RenderRole", "ScanRole"] {
            assert!(!denied(&world.deployed().arns[id], key), "{id} {key}");
        }
    }
    for id in ["RenderRole", "RolloutRole", "ScanRole"] {
        assert!(denied(&world.deployed().arns[id], AGENT), "{id} publishes no agent");
    }
    assert!(denied(&maintainer, EXECUTED[0]), "not even they write templates");
}

/// Whoever gets past the bucket's policy still needs a second preimage: templates and releases are used by their digest only.
#[tokio::test]
async fn a_template_or_a_release_that_somebody_wrote_is_not_used() {
    let text = example("minimal");
    for tampered in ["template", "release"] {
        let workshop = workshop(&text);
        let rendered = workshop.render(&text).await;
        let network = &rendered.rendering.stacks[0];
        let key = match tampered {
            "template" => network.template_key(&workshop.name),
            _ => keys::release(&workshop.name, &rendered.plan.to),
        };
        let mut forged: Value = serde_json::from_slice(&workshop.assets.peek(&key).unwrap()).unwrap();
        if tampered == "template" {
            forged["Resources"]["Mine"] = json!({ "Type": "AWS::EC2::SecurityGroup" });
        } else {
            forged["stacks"][0]["body"] = json!("{}");
        }
        workshop.assets.upload(&key, forged.to_string());
        let now = lock(&workshop.world).now();
        let rolled = workshop.roll(&Woken::Rollout(Waker::Event), &Life::unending(), now, None).await;
        let error = rolled.unwrap_err().to_string();
        assert!(error.contains(&key) && error.contains("is not what its digest says"), "{tampered}: {error}");
        assert_eq!(lock(&workshop.world).stack_status(&network.name), None, "{tampered}");
    }
}

/// The rollout function reads what machines told of their boot. A worker that wrote something else and powered itself off had each look at its
/// group fail, and with it everything else in its cluster.
#[tokio::test]
async fn a_report_that_nobody_can_read_holds_up_no_rollout() {
    for how in UNREADABLE {
        let mut workshop = Workshop::launched(&example("production")).await;
        workshop.world = workshop.fleet(1).await;
        let machines = lock(&workshop.world).machines();
        let worker = machines.into_iter().find(|one| one.role == "pool-general-a").unwrap();
        let key = keys::bootstrap_report(&workshop.name, &worker.role, &machine_arn(&worker.id));
        spoil(&workshop, &key, how);
        SimulatedGroups::new(Arc::clone(&workshop.world))
            .terminate(&worker.group, &worker.id, None)
            .await
            .unwrap();
        let now = lock(&workshop.world).now() + SignedDuration::from_mins(1);
        lock(&workshop.world).advance(now);
        let woken = Woken::Rollout(Waker::Group { name: worker.group.clone() });
        let rolled = workshop.roll(&woken, &Life::unending(), now, None).await;
        assert!(rolled.is_ok(), "{how}: {rolled:?}");
        let read = |call: &slipway_sim::memory::Call| call.operation == "s3:GetObject" && call.subject == key;
        assert!(workshop.assets.journal().calls().iter().any(read), "{how}: it was looked at");
        // It may have served, so its pods are moved first.
        let state: slipway_rollout::Rollout = workshop.read(&keys::rollout(&workshop.name)).unwrap();
        assert!(state.departures.contains_key(&worker.id), "{how}: {:?}", state.departures);
        let left = lock(&workshop.world).machines();
        assert!(left.iter().any(|one| one.id == worker.id), "{how}: it is drained, and not let go at once");
    }
}

/// A cluster whose authority `ca` is being rotated, and whose machines have not reported since.
async fn rotating(now: Timestamp) -> (Workshop, Vec<MachineFacts>) {
    let text = example("production");
    let mut workshop = Workshop::launched(&text).await;
    workshop.world = workshop.fleet(1).await;
    let machines = lock(&workshop.world).machines();
    let cluster = slipway_spec::parse(text.as_bytes(), None).unwrap().cluster;
    let start = rotation::Request::Start;
    rotation::change(&workshop.assets, &workshop.keys, &AwsLc, &cluster, "ca", now, start).await.unwrap();
    let RenderOutcome::Planned(plan) =
        (*workshop).render(Cause::Newest, &Life::unending(), now).await.unwrap()
    else {
        panic!("a rotation is rolled out")
    };
    workshop.deployed(&plan).await;
    (workshop, machines)
}

fn stage_of(workshop: &Workshop) -> Option<Stage> {
    workshop.manifest().rotations.get("ca").map(|rotation| rotation.stage)
}

/// The machine reports the present credentials of its role.
fn report(workshop: &Workshop, machine: &MachineFacts, at: Timestamp) -> Value {
    let role: Role = machine.role.parse().unwrap();
    let digest = &workshop.manifest().bundles[&role].digest;
    let status = json!({"format": 1, "at": at, "cluster": workshop.name, "role": machine.role,
        "instance": {"id": machine.id, "availabilityZone": "eu-west-1a", "privateAddress": "10.0.0.9"},
        "applied": {"matchesNodeFile": true, "credentials": digest}, "components": [], "healthy": true, "served": []});
    let key = keys::node_status(&workshop.name, &machine.role, &machine_arn(&machine.id));
    workshop.assets.upload(&key, status.to_string());
    status
}

/// A node whose report cannot be read may have any credentials: the rotation waits for it, and a person is told which one it is.
#[tokio::test]
async fn a_rotation_waits_for_a_node_whose_report_nobody_can_read_and_names_it() {
    let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
    let (workshop, machines) = rotating(now).await;
    for machine in &machines {
        report(&workshop, machine, now);
    }
    let worker = machines.iter().find(|one| one.role == "pool-general-a").unwrap();
    let key = keys::node_status(&workshop.name, &worker.role, &machine_arn(&worker.id));
    let honest = report(&workshop, worker, now);
    // What is kept of a report is bounded too: a worker may write that of every machine of its role.
    let with = |change: fn(&mut Value)| {
        let mut status = honest.clone();
        change(&mut status);
        status.to_string()
    };
    let lies = [
        with(|status| status["applied"]["credentials"] = json!("a".repeat(9_000))),
        with(|status| status["role"] = json!("controller")),
        with(|status| status["instance"]["id"] = json!("i-another")),
        "torn".to_owned(),
    ];
    for how in UNREADABLE.into_iter().chain(lies.iter().map(String::as_str)) {
        match UNREADABLE.contains(&how) {
            true => spoil(&workshop, &key, how),
            false => drop(workshop.assets.upload(&key, how)),
        }
        let result = scanned(&workshop, now).await;
        let how = &how[..how.len().min(300)];
        assert_eq!(stage_of(&workshop), Some(Stage::Trust), "{how}");
        let found = result.findings.iter().find(|finding| finding.key == key);
        let found = found.unwrap_or_else(|| panic!("{how}: {:#?}", result.findings));
        assert!(found.message.contains(&worker.id) && found.message.len() < 1_000, "{how}: {found:?}");
    }
    report(&workshop, worker, now);
    let findings = scanned(&workshop, now).await.findings;
    assert!(findings.iter().all(|finding| finding.key != key), "{findings:#?}");
    assert_eq!(stage_of(&workshop), Some(Stage::Issue));
}

/// All reports of a cluster were listed together, up to a limit: whoever filled one folder hid the nodes of all roles after it.
#[tokio::test]
async fn a_flood_of_reports_holds_up_no_rotation() {
    let now: Timestamp = "2026-12-01T12:00:00Z".parse().unwrap();
    let (workshop, machines) = rotating(now).await;
    for machine in &machines {
        report(&workshop, machine, now);
    }
    for flood in 0..100_000 {
        workshop
            .assets
            .upload(&keys::node_status(&workshop.name, "pool-general-a", &format!("a{flood}")), "");
    }
    scanned(&workshop, now).await;
    assert_eq!(stage_of(&workshop), Some(Stage::Issue));
}
