//! The tables of permissions in docs/pki.md and docs/cli.md: with all rows the verbs work, and without any one of them they say which
//! permission is missing.

use std::path::Path;

use serde_json::{Value, json};
use slipway_core::keys;
use slipway_tests::client::ACCOUNT;
use slipway_tests::gateway::Principal;
use slipway_tests::iam;
use slipway_tests::installation::Installation;
use slipway_tests::tools;
use slipway_tests::world::Settings;

use crate::agent::program;
use crate::{
    ADMINISTRATOR, CLUSTER, PATIENCE, QUIET, Run, certs, installation, installation_of, maintained, run,
    spec, stand_stack,
};

/// One action of a row.
#[derive(Debug, Clone, PartialEq)]
struct Grant {
    /// For each verb, the words that its command line must contain; empty: every verb.
    verbs: Vec<Vec<String>>,
    /// When the row's permission is needed, if the row says so.
    only: String,
    action: String,
    on: String,
}

impl Grant {
    fn is_for(&self, arguments: &str) -> bool {
        let has = |word: &String| arguments.split_whitespace().any(|given| given == word);
        self.verbs.is_empty() || self.verbs.iter().any(|verb| verb.iter().all(has))
    }
}

impl Grant {
    fn is_recovery(&self) -> bool {
        self.verbs.concat().contains(&"--recover".to_owned())
    }

    /// Whether it is for that verb alone.
    fn is_only_for(&self, verb: &str) -> bool {
        self.verbs == [[verb]]
    }
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn table(page: &str) -> Vec<Grant> {
    let page = std::fs::read_to_string(tools::root().join(page)).unwrap();
    let (_, table) = page.split_once("| verb | action | on |\n|---|---|---|\n").unwrap();
    let mut grants = Vec::new();
    for row in table.lines().take_while(|line| line.starts_with('|')) {
        let [verbs, actions, on] = row.trim_matches('|').split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let only = verbs.rsplit('`').next().unwrap();
        let only = only.trim().trim_start_matches("every verb").trim_start_matches(", ").to_owned();
        let verbs: Vec<Vec<String>> =
            quoted(verbs).iter().map(|verb| verb.split_whitespace().map(str::to_owned).collect()).collect();
        for action in quoted(actions) {
            let on = on.trim().to_owned();
            grants.push(Grant { verbs: verbs.clone(), only: only.clone(), action, on });
        }
    }
    assert!(grants.len() > 9, "{grants:?}");
    grants
}

/// The resources that the third column means in this installation.
fn resources(slipway: &Installation, on: &str) -> Vec<String> {
    let world = slipway.world();
    let bucket = |id: &str| format!("arn:aws:s3:::{}", world.reference(id).unwrap());
    let below = |id: &str| -> Vec<String> {
        quoted(on).iter().map(|path| format!("{}/{}", bucket(id), path.replace("NAME", CLUSTER))).collect()
    };
    match on {
        "the asset bucket" => vec![bucket("AssetBucket")],
        "the spec bucket" => vec![bucket("SpecBucket")],
        "the key that seals the cluster's credentials" => {
            vec![world.deployed().arns["Key"].clone()]
        }
        "the installation's stack" => {
            vec![format!("arn:aws:cloudformation:{}:{ACCOUNT}:stack/slipway/*", world.region())]
        }
        "the cluster's stacks" => {
            vec![format!("arn:aws:cloudformation:{}:{ACCOUNT}:stack/{CLUSTER}-*/*", world.region())]
        }
        "the parameters of images" => {
            vec![format!("arn:aws:ssm:{}::parameter/aws/service/*", world.region())]
        }
        "`*`: this action accepts no narrower resource"
        | "`*`: these actions accept no narrower resource" => vec!["*".to_owned()],
        "the cluster's machines" => {
            let machines = world.cloud().with(|cloud| cloud.machines());
            let arn = |id: &str| format!("arn:aws:ec2:{}:{ACCOUNT}:instance/{id}", world.region());
            machines.iter().map(|machine| arn(&machine.id)).collect()
        }
        _ if on.starts_with("the documents ") => {
            let arn = |name: &String| format!("arn:aws:ssm:{}:{ACCOUNT}:document/{name}", world.region());
            quoted(on).iter().map(arn).collect()
        }
        "the installation's key" => vec![world.deployed().arns["Key"].clone()],
        "the installation's rules" => {
            world.deployed().routes.iter().map(|route| route.rule_arn.clone()).collect()
        }
        "the installation's schedule" => {
            let name = world.reference("DailyScan").unwrap();
            vec![format!("arn:aws:scheduler:{}:{ACCOUNT}:schedule/default/{name}", world.region())]
        }
        "the installation's dead-letter queues" => {
            ["RenderDeadLetters", "RolloutDeadLetters", "ScanDeadLetters"]
                .map(|id| world.deployed().arns[id].clone())
                .into()
        }
        "your own role or user" => vec![format!("arn:aws:iam::{ACCOUNT}:role/somebody")],
        "the bus" => vec![world.deployed().arns["Bus"].clone()],
        "the bus `slipway-destroy`" => vec![world.deployed().arns["DestroyBus"].clone()],
        _ if on.ends_with("` of the asset bucket") => below("AssetBucket"),
        _ if on.ends_with("` of the spec bucket") => below("SpecBucket"),
        _ => panic!("unknown resource {on:?}"),
    }
}

/// Runs a command with only these permissions.
async fn as_one_with(slipway: &Installation, grants: &[Grant], arguments: &str, named: bool) -> Run {
    let statements: Vec<_> = grants
        .iter()
        .map(|grant| json!({ "Effect": "Allow", "Action": grant.action, "Resource": resources(slipway, &grant.on) }))
        .collect();
    let statements = iam::parse(&json!({ "Statement": statements })).unwrap();
    let arn = format!("arn:aws:iam::{ACCOUNT}:role/somebody");
    let principal = Principal { name: "somebody".to_owned(), arn, statements };
    slipway.world().gateway().know("AKIASOMEBODY", principal);
    let bucket = |id: &str| slipway.world().reference(id).unwrap();
    let buckets = [
        ("SLIPWAY_ASSET_BUCKET", bucket("AssetBucket")),
        ("SLIPWAY_SPEC_BUCKET", bucket("SpecBucket")),
        ("SLIPWAY_BUS_NAME", bucket("Bus")),
    ];
    run(slipway, "AKIASOMEBODY", arguments, if named { &buckets } else { &[] }).await
}

fn assert_names_missing(run: &Run, grant: &Grant) {
    assert!(run.code == 3 && run.stderr.contains(&grant.action), "without {grant:?}: {run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_of_permissions_grants_what_is_needed_and_nothing_more() {
    let settings = maintained(Settings { hours_ago: 48, ..Settings::default() });
    let slipway = installation_of(&settings).await;
    let table = table("docs/pki.md");
    let folder = tempfile::tempdir().unwrap();
    let agent = folder.path().join("slipway-node");
    let publish = format!("publish-agent {}", agent.display());
    let mut serial = 0;
    // Prepares what each run needs to have something to do.
    let mut prepare = async |arguments: &str| {
        serial += 1;
        std::fs::write(&agent, program(62, &serial.to_string())).unwrap();
        if arguments.contains("gc") {
            for _ in 0..2 {
                let run = certs(&slipway, ADMINISTRATOR, "renew apiserver --cluster minimal --apply").await;
                assert_eq!(run.code, 0, "{run:?}");
            }
        }
    };
    let mut held = Vec::new();
    for arguments in [
        "certs show --cluster minimal",
        "certs verify --cluster minimal",
        "certs verify --cluster minimal --open",
        "certs renew apiserver --cluster minimal",
        "certs renew apiserver --cluster minimal --apply --new-key",
        "certs gc --cluster minimal",
        "certs gc --cluster minimal --apply",
        &publish,
        "rotate-ca etcd-ca --cluster minimal",
        "certs renew apiserver --cluster minimal --apply --upload",
    ] {
        let mut grants: Vec<Grant> = table.iter().filter(|grant| grant.is_for(arguments)).cloned().collect();
        // Permissions that are only sometimes needed come last, because a verb that has begun is not begun again.
        grants.sort_by_key(|grant| !grant.only.is_empty());
        for without in &grants {
            let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
            if arguments.ends_with("--upload") && !without.verbs.concat().contains(&"--upload".to_owned()) {
                // The same as without the option, above; and an upload begins a rollout.
                continue;
            }
            prepare(arguments).await;
            let run = as_one_with(&slipway, &others, arguments, true).await;
            if without.only.is_empty() {
                assert_names_missing(&run, without);
                held.push(without.clone());
            } else {
                assert_eq!(run.code, 0, "{arguments} needs {without:?}: {run:?}");
            }
        }
        prepare(arguments).await;
        let run = as_one_with(&slipway, &grants, arguments, true).await;
        assert_eq!(run.code, 0, "{arguments}: {run:?}");
    }

    // Rows that say when the permission is needed.
    let mut when = async |only: &str, arguments: &str, named: bool, code: i32, words: &str| {
        let grants: Vec<Grant> = table.iter().filter(|grant| grant.is_for(arguments)).cloned().collect();
        let without = grants.iter().find(|grant| grant.only.starts_with(only)).unwrap();
        let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
        assert_names_missing(&as_one_with(&slipway, &others, arguments, named).await, without);
        let run = as_one_with(&slipway, &grants, arguments, named).await;
        assert!(run.code == code && (run.stderr + &run.out).contains(words), "{arguments}: {code} {words}");
        held.push(without.clone());
    };
    // There is no CloudFormation stack with that name; a caller who may query it is told so.
    when("unless", "certs show --cluster minimal", false, 1, "there is no CloudFormation stack slipway")
        .await;
    let renew = "certs renew apiserver --cluster minimal";
    let version = slipway.upload(CLUSTER, spec().replacen("1.37", "0.1", 1)).await.unwrap();
    when("if the newest", renew, true, 1, "differs from what was planned last").await;
    let place = format!("clusters/{CLUSTER}/cluster.yaml");
    slipway.world().remove("SpecBucket", &place, &version).await.unwrap();
    let bucket = slipway.world().reference("SpecBucket").unwrap();
    for version in slipway.world().client().versions(bucket).await.unwrap() {
        slipway.world().remove("SpecBucket", &version.key, &version.version).await.unwrap();
    }
    when("to be told", "certs verify --cluster minimal", true, 0, "there is no s3://").await;
    for grant in &table {
        assert!(held.contains(grant), "nothing holds {grant:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_command_line_grants_what_is_needed_and_nothing_more() {
    let slipway = installation(0).await;
    let table = table("docs/cli.md");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let out = folder.path().join("kubeconfig");
    let wide =
        |name: &str| format!("{}\nkubernetes:\n  apiServer:\n    certSANs: [{name}.example.com]\n", spec());
    std::fs::write(&file, format!("{}rollout:\n  approval: manual\n", wide("a"))).unwrap();
    let (file, out) = (file.display(), out.display());
    let mut held = Vec::new();
    let grants = |arguments: &str| -> Vec<Grant> {
        table.iter().filter(|grant| grant.is_for(arguments)).cloned().collect()
    };
    for arguments in [
        "status --cluster minimal",
        "list",
        "snapshots --cluster minimal",
        "watch --cluster minimal",
        &format!("kubeconfig --cluster minimal --out {out}"),
        &format!("apply {file} --cluster minimal --yes"),
        &format!("apply {file} --cluster minimal --yes --prune"),
        "pause --cluster minimal",
        "resume --cluster minimal",
        "approve --cluster minimal --yes",
        "scan --cluster minimal --dry-run",
        "renew scheduler --cluster minimal",
    ] {
        let grants = grants(arguments);
        if arguments.starts_with("resume") {
            // Events have whole seconds, and of a pause and a resume in the same second the pause counts.
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        if arguments.starts_with("approve") {
            // The plan that waits for approval, of the spec that was applied above.
            assert!(slipway.world().settle(QUIET, PATIENCE).await);
        }
        for without in &grants {
            if arguments.contains("--prune") && !without.verbs.concat().contains(&"--prune".to_owned()) {
                // The same as without the option, above.
                continue;
            }
            if arguments.contains("--prune") {
                let patch = format!("clusters/{CLUSTER}/patches/90-other.yaml");
                let text = b"target:\n  stack: network\nmerge:\n  Description: patched\n".to_vec();
                slipway.world().upload("SpecBucket", &patch, text).await.unwrap();
            }
            let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
            if without.only.is_empty() {
                assert_names_missing(&as_one_with(&slipway, &others, arguments, true).await, without);
                held.push(without.clone());
            } else if without.only.starts_with("unless") && arguments.starts_with("status") {
                let run = as_one_with(&slipway, &others, arguments, true).await;
                assert_eq!(run.code, 0, "{arguments} needs {without:?}: {run:?}");
            }
        }
        let run = as_one_with(&slipway, &grants, arguments, true).await;
        assert_eq!(run.code, 0, "{arguments}: {run:?}");
    }
    // The deployed spec replaces the refused one.
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let refused = slipway.upload(CLUSTER, spec().replacen("1.37", "0.1", 1)).await.unwrap();
    let back = "rollback --cluster minimal --yes";
    let needed = grants(back);
    for without in needed.iter().filter(|grant| grant.only.is_empty()) {
        let others: Vec<Grant> = needed.iter().filter(|grant| *grant != without).cloned().collect();
        assert_names_missing(&as_one_with(&slipway, &others, back, true).await, without);
        held.push(without.clone());
    }
    let run = as_one_with(&slipway, &needed, &format!("{back} --output json"), true).await;
    assert_eq!(run.code, 0, "{run:?}");
    let version = run.json()["broughtBack"].as_str().unwrap().to_owned();
    let place = format!("clusters/{CLUSTER}/cluster.yaml");
    let versions = slipway.world().client().versions(slipway.world().reference("SpecBucket").unwrap());
    let versions = versions.await.unwrap().into_iter().filter(|one| one.key == place);
    assert!(version != refused && versions.map(|one| one.version).any(|one| one == version));
    let again = as_one_with(&slipway, &needed, back, true).await;
    assert!(again.code == 1 && again.stderr.contains("is what it was when generation "), "{again:?}");

    // Rows that say when. There is no CloudFormation stack with that name, and a spec has just been uploaded.
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    slipway.upload(CLUSTER, wide("b")).await.unwrap();
    // The spec that was rolled out says that a person approves, so the next one waits for that, too.
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let approve = "approve --cluster minimal --yes";
    let run = as_one_with(&slipway, &grants(approve), approve, true).await;
    assert_eq!(run.code, 0, "{run:?}");
    for (only, arguments, named, code) in
        [("unless", "status --cluster minimal", false, 1), ("if a spec", "watch --cluster minimal", true, 0)]
    {
        let grants = grants(arguments);
        let without = grants.iter().find(|grant| grant.only.starts_with(only)).unwrap();
        let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
        assert_names_missing(&as_one_with(&slipway, &others, arguments, named).await, without);
        let run = as_one_with(&slipway, &grants, arguments, named).await;
        assert_eq!(run.code, code, "{arguments}: {run:?}");
        held.push(without.clone());
    }
    // An order to destroy needs its own bus.
    let destroy = "destroy --cluster minimal --yes";
    let all = grants(destroy);
    let order = all.iter().find(|grant| grant.on.contains("slipway-destroy")).unwrap();
    let others: Vec<Grant> = all.iter().filter(|grant| *grant != order).cloned().collect();
    assert_names_missing(&as_one_with(&slipway, &others, destroy, true).await, order);
    held.push(order.clone());
    for grant in table.iter().filter(|grant| {
        // Nobody can be asked here whether to approve a plan.
        let asks = grant.only.starts_with("if you approve");
        let elsewhere = [
            "cost",
            "diff",
            "doctor",
            "export",
            "history",
            "logs",
            "upgrade",
            "snapshot",
            "restore",
            "defragment",
            "plan",
        ]
        .iter()
        .any(|verb| grant.is_only_for(verb));
        !grant.is_recovery() && !elsewhere && !asks
    }) {
        assert!(held.contains(grant), "nothing holds {grant:?}");
    }

    // With the page's permissions a person destroys the cluster, and the functions use those of the template.
    let mark = slipway.world().observer().mark();
    let run = as_one_with(&slipway, &all, destroy, true).await;
    assert_eq!(run.code, 0, "{run:?}");
    let ended = slipway.event(mark, &["Cluster Destroyed", "Rollout Failed"], PATIENCE).await;
    assert_eq!(ended.as_ref().map(|(kind, _)| kind.as_str()), Some("Cluster Destroyed"));
    assert!(slipway.world().settle(QUIET, PATIENCE).await);
    let run = as_one_with(&slipway, &grants("status"), "status --cluster minimal --output json", true).await;
    assert_eq!(run.json()["rollout"]["state"], "destroyed", "{run:?}");
}

/// Runs `command` without each of its permissions, and then with all of them and `option`. `own`: how many rows are for its verb alone.
async fn needs_what_the_page_says(slipway: &Installation, command: &str, own: usize, option: &str) -> Run {
    let arguments = format!("{command} --cluster minimal");
    let verb = command.split(' ').next().unwrap();
    let grants = table("docs/cli.md").into_iter().filter(|grant| grant.is_for(&arguments));
    let grants: Vec<Grant> = grants.filter(|grant| !grant.only.starts_with("unless")).collect();
    assert_eq!(grants.iter().filter(|grant| grant.is_only_for(verb)).count(), own, "{grants:?}");
    for without in &grants {
        let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
        assert_names_missing(&as_one_with(slipway, &others, &arguments, true).await, without);
    }
    let run = as_one_with(slipway, &grants, &format!("{arguments} {option}"), true).await;
    assert_eq!(run.code, 0, "{run:?}");
    run
}

/// The permissions that `upgrade` needs, for a cluster whose agent is not the newest.
pub(crate) async fn an_upgrade_needs_what_the_page_says_and_nothing_more(slipway: &Installation) {
    needs_what_the_page_says(slipway, "upgrade", 3, "--dry-run").await;
}

/// The permission that `cost` needs.
pub(crate) async fn a_price_needs_what_the_page_says_and_nothing_more(slipway: &Installation, file: &Path) {
    let grants = all_for("cost");
    let grants: Vec<Grant> = grants.into_iter().filter(|grant| grant.is_only_for("cost")).collect();
    assert_eq!(grants.len(), 1, "{grants:?}");
    let command = format!("cost {}", file.display());
    assert_names_missing(&as_one_with(slipway, &[], &command, true).await, &grants[0]);
    let run = as_one_with(slipway, &grants, &command, true).await;
    assert_eq!(run.code, 0, "{run:?}");
}

/// The permissions that `export` needs.
pub(crate) async fn an_export_needs_what_the_page_says_and_nothing_more(slipway: &Installation, out: &str) {
    needs_what_the_page_says(slipway, &format!("export --out {out}"), 3, "").await;
}

/// The permissions that `logs` needs.
pub(crate) async fn logs_need_what_the_page_says_and_nothing_more(slipway: &Installation, instance: &str) {
    needs_what_the_page_says(slipway, &format!("logs {instance}"), 7, "").await;
}

/// The permissions that `diff` needs, for a cluster in which nothing was changed by hand.
pub(crate) async fn a_diff_needs_what_the_page_says_and_nothing_more(slipway: &Installation) {
    needs_what_the_page_says(slipway, "diff", 10, "").await;
}

/// The permissions that `history` needs.
pub(crate) async fn a_history_needs_what_the_page_says_and_nothing_more(slipway: &Installation) {
    needs_what_the_page_says(slipway, "history", 2, "").await;
}

/// A snapshot is taken, and what it needs is what the page says. Returns what was printed about it.
pub(crate) async fn a_snapshot_needs_what_the_page_says_and_nothing_more(slipway: &Installation) -> Value {
    let taken = needs_what_the_page_says(slipway, "snapshot", 5, "--output json").await.json();
    assert_eq!(taken["role"], "etcd-0", "{taken}");
    assert!(taken["key"].as_str().unwrap().starts_with("clusters/minimal/etcd-snapshots/"), "{taken}");
    taken
}

/// etcd is restored from that snapshot, and what it needs is what the page says. `taken`: one that the simulated etcd has; its object is
/// stored here, as a scheduled one.
pub(crate) async fn a_restore_needs_what_the_page_says_and_nothing_more(
    slipway: &Installation,
    taken: &Value,
) {
    let snapshot = taken["time"].as_str().unwrap();
    let none =
        as_one_with(slipway, &all_for("restore"), "restore latest --cluster minimal --yes", true).await;
    assert!(
        none.code == 1 && none.stderr.contains("has no verified snapshot of its present etcd"),
        "{none:?}"
    );
    let unsure = as_one_with(slipway, &all_for("restore"), "restore latest --yes", false).await;
    assert!(unsure.code == 2 && unsure.stderr.contains("no cluster is named"), "{unsure:?}");
    let key = keys::scheduled_snapshot("minimal", snapshot);
    let record = json!({ "key": key, "time": snapshot, "sha256": taken["sha256"] });
    for (key, bytes) in
        [(key.clone(), vec![0; 9]), (keys::snapshot_record(&key), record.to_string().into_bytes())]
    {
        slipway.world().upload("AssetBucket", &key, bytes).await.unwrap();
    }
    // A person who knows another one is believed, and the members find that it is not.
    let other = format!("restore {snapshot} --cluster minimal --dry-run --sha256 {}", "0f".repeat(32));
    let other = as_one_with(slipway, &all_for("restore"), &other, true).await;
    assert!(other.code == 1 && other.stderr.contains("and not 0f0f"), "{other:?}");
    let restored = || slipway.world().cloud().with(|cloud| cloud.cluster_facts("minimal")).unwrap().restored;
    let dry = format!("restore {snapshot} --cluster minimal --dry-run --output json");
    let dry = as_one_with(slipway, &all_for("restore"), &dry, true).await.json();
    assert_eq!((&dry["verified"], &dry["restored"]), (&json!(true), &json!(false)), "{dry}");
    let asked = as_one_with(slipway, &all_for("restore"), "restore latest --cluster minimal", true).await;
    assert!(asked.code == 1 && asked.stderr.contains("needs a confirmation"), "{asked:?}");
    assert_eq!(restored(), 0, "nothing was replaced");
    let done = needs_what_the_page_says(slipway, "restore latest --yes --stable-for 1", 6, "--output json")
        .await
        .json();
    assert_eq!(
        (&done["ok"], &done["problems"], &done["snapshot"]),
        (&json!(true), &json!([]), &json!(snapshot)),
        "{done}"
    );
    let member = &done["members"][0];
    assert_eq!((&member["role"], &member["changed"]), (&json!("etcd-0"), &json!(true)), "{done}");
    assert_eq!(restored(), 1, "once, with all permissions");
    assert!(
        done["undo"].as_str().is_some_and(|time| time != snapshot),
        "the present data are saved first: {done}"
    );
}

/// All members are defragmented, and what it needs is what the page says.
pub(crate) async fn a_defragmentation_needs_what_the_page_says_and_nothing_more(slipway: &Installation) {
    let done = needs_what_the_page_says(slipway, "defragment", 6, "--output json").await.json();
    let member = &done["members"][0];
    assert_eq!((&member["role"], &member["led"]), (&json!("etcd-0"), &json!(true)), "{done}");
    assert!(member["sizeAfter"].as_u64() < member["sizeBefore"].as_u64(), "{done}");
    assert_eq!((&done["ok"], &done["alarms"]), (&json!(true), &json!([])), "{done}");
    let again = as_one_with(slipway, &all_for("defragment"), "defragment --cluster minimal", true).await;
    assert!(again.code == 0 && again.out.contains("all 1 members of minimal are defragmented"), "{again:?}");
    assert!(again.stderr.contains("etcd-0 is defragmented, and does not serve meanwhile"), "{again:?}");
}

/// Without any one of its permissions `doctor` says which one is missing, and goes on; with all of them it finds no problem. `file`: a spec
/// of a new cluster with NAT gateways.
pub(crate) async fn a_check_needs_what_the_page_says_and_nothing_more(slipway: &Installation, file: &str) {
    let grants: Vec<Grant> =
        all_for("doctor").into_iter().filter(|grant| !grant.only.starts_with("unless")).collect();
    assert!(grants.iter().filter(|grant| grant.is_only_for("doctor")).count() > 25, "{grants:?}");
    for without in &grants {
        let others: Vec<Grant> = grants.iter().filter(|grant| *grant != without).cloned().collect();
        let with_spec = without.only.starts_with("with a spec");
        let command = if with_spec { format!("doctor {file}") } else { "doctor".to_owned() };
        let run = as_one_with(slipway, &others, &command, true).await;
        // Whoever may only look need not be able to seal credentials.
        let (code, level) =
            if without.only.is_empty() || with_spec { (1, "unknown") } else { (0, "warning") };
        let mut lines = run.out.lines();
        let told = lines.any(|line| line.starts_with(level) && line.contains(&without.action));
        assert!(run.code == code && told, "without {without:?}: {run:?}");
    }
    let run = as_one_with(slipway, &grants, &format!("doctor {file}"), true).await;
    assert!(run.code == 0 && run.out.contains("0 problems, 0 unknown, "), "{run:?}");
    // Whoever may only check may run no other verb, which IAM says.
    for words in [
        "assumed-role/somebody/session may not run abort, approve, pause, resume, skip, upgrade on other: ",
        "not allowed are events:PutEvents on arn:aws:events:eu-west-1:123456789012:event-bus/slipway",
        "assumed-role/somebody/session may run history, list",
    ] {
        assert!(run.out.contains(words), "{words}: {run:?}");
    }
}

/// What the page grants for a verb, whatever is named.
fn all_for(verb: &str) -> Vec<Grant> {
    table("docs/cli.md").into_iter().filter(|grant| grant.is_for(verb)).collect()
}

/// The permissions that `renew --recover` needs in addition to those of `renew`, which the test above checks, for a cluster in which
/// nothing has expired.
pub(crate) async fn a_recovery_needs_what_the_page_says_and_nothing_more(slipway: &Installation) {
    let renews = "renew --recover scheduler --cluster minimal";
    let grants = table("docs/cli.md").into_iter().filter(|grant| grant.is_for(renews));
    let grants: Vec<Grant> = grants.collect();
    let (recovery, others): (Vec<Grant>, Vec<Grant>) = grants.iter().cloned().partition(Grant::is_recovery);
    assert_eq!(recovery.len(), 8, "{recovery:?}");
    for without in &recovery {
        let rest = recovery.iter().filter(|grant| *grant != without).chain(&others).cloned();
        // The output names what cannot be issued, and machines get the stored credentials. Nothing else is issued.
        let issues = without.action.starts_with("kms:");
        let arguments = if issues { renews } else { "renew --recover --cluster minimal" };
        let run = as_one_with(slipway, &rest.collect::<Vec<_>>(), arguments, true).await;
        let (code, said) = if issues { (1, &run.out) } else { (3, &run.stderr) };
        assert!(run.code == code && said.contains(&without.action), "without {without:?}: {run:?}");
    }
    let run = as_one_with(slipway, &grants, renews, true).await;
    assert_eq!(run.code, 0, "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_needs_what_the_page_says_and_nothing_of_the_upload() {
    let slipway = installation(0).await;
    stand_stack(&slipway);
    // An image that the lock does not have, and a patch that is there already.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    std::fs::write(&file, format!("{}      instanceType: m7g.large\n", spec())).unwrap();
    let patch = format!("clusters/{CLUSTER}/patches/90-other.yaml");
    let text = b"target:\n  stack: network\nmerge:\n  Description: patched\n".to_vec();
    slipway.world().upload("SpecBucket", &patch, text).await.unwrap();
    assert!(slipway.world().settle(QUIET, PATIENCE).await);

    let mark = slipway.world().observer().mark();
    let plan = format!("plan {} --keep-patches", file.display());
    let run = needs_what_the_page_says(&slipway, &plan, 7, "--output json").await.json();
    assert_eq!((&run["ok"], &run["executable"]), (&json!(true), &json!(true)), "{run}");
    let calls = slipway.world().observer().calls(mark);
    assert!(calls.iter().all(|call| !call.is_write() && !call.action.starts_with("kms:")), "{calls:?}");

    // A person who may upload, and may not read the settings of the installation, sees why there is no plan, and the files as before.
    let apply = format!("apply {} --cluster minimal --keep-patches", file.display());
    let grants: Vec<Grant> = table("docs/cli.md")
        .into_iter()
        .filter(|grant| grant.is_for(&apply) && grant.only.is_empty())
        .collect();
    let run = as_one_with(&slipway, &grants, &apply, true).await;
    for words in ["cloudformation:DescribeStacks", "cannot be shown now", "instanceType: m7g.large"] {
        assert!(run.code == 1 && run.stderr.contains(words), "{words}: {run:?}");
    }
}
