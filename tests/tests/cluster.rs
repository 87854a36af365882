//! A whole cluster on virtual machines: see `tests/src/cluster.rs`. Run by `make test-cluster`, as root; elsewhere it says that it did not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use slipway_tests::cluster::kubectl::Kubectl;
use slipway_tests::cluster::launch::Launch;
use slipway_tests::cluster::room::Stores;
use slipway_tests::leaks::{SECRETS_OF_MACHINE, Secrets};
use slipway_tests::tools;
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

/// How long anything but a launch may take on two processors without KVM.
const PATIENCE: Duration = Duration::from_mins(15);
const LOOK: Duration = Duration::from_secs(5);
/// How long a machine may take to answer.
const ANSWER: Duration = Duration::from_secs(60);
/// In tests/cluster/workload.yaml.
const NODE_PORT: u16 = 30_080;

/// One launch takes a quarter of an hour without KVM, so all that is shown is shown of one cluster.
#[tokio::test(flavor = "multi_thread")]
async fn the_development_example_launches_serves_survives_reboots_and_leaves_nothing() {
    let Some(stores) = Stores::from_environment() else {
        return tools::not_tested("a cluster on virtual machines: run `make test-cluster`, as root");
    };
    if std::env::var_os("SLIPWAY_KEEP").is_some() {
        stays_after_a_failure();
    }
    let example = tools::root().join("examples/development.yaml");
    let mut launch = Launch::set_up(&stores, &example).await.unwrap();
    assert!(launch.launch().await.unwrap(), "the launch failed, as told above");
    assert!(launch.show().await.unwrap(), "not every node is Ready");

    launch.title("A workload");
    serves(&launch).await;
    launch.title("What was written");
    p9_no_key_is_in_what_was_written(&launch).await;
    launch.title("A restore");
    is_restored(&launch).await;
    for role in ["etcd-0", "controller", "pool-spot"] {
        launch.title(&format!("A reboot of {role}"));
        comes_back(&launch, role).await;
    }
    launch.title("The power of a worker is cut");
    is_replaced(&mut launch).await;
    launch.title("The end");
    goes(&mut launch).await;
}

/// With `SLIPWAY_KEEP=1` the machines stay for two hours after a failure, so that `tests/cluster/on.sh` can look inside.
#[expect(clippy::print_stderr, reason = "what failed must show before the machines are waited for")]
fn stays_after_a_failure() {
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}\nthe machines stay for two hours: tests/cluster/on.sh looks inside");
        std::thread::sleep(Duration::from_hours(2));
    }));
}

/// Asks again until it holds. Says after how long.
async fn until(launch: &Launch, what: &str, holds: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "not within {} min: {what}", PATIENCE.as_secs() / 60);
        sleep(LOOK).await;
    }
    launch.line("kubernetes", &format!("{what} after {:.0} s", begun.elapsed().as_secs_f64()));
}

/// What kubectl prints; empty while the API does not answer.
async fn prints(kubectl: &Kubectl, arguments: &[&str]) -> String {
    kubectl.run(arguments).await.unwrap_or_default()
}

async fn all_pods_serve(kubectl: &Kubectl) -> bool {
    let ready = "jsonpath={.items[*].status.readyReplicas}";
    prints(kubectl, &["get", "deployments", "--all-namespaces", "-o", ready]).await == "2 2"
}

/// One of the workload's pods answers at that address: its name.
async fn answered(address: &str) -> Option<String> {
    let url = format!("http://{address}/hostname");
    let output = Command::new("curl").args(["-fsS", "--max-time", "20", &url]).output().await.unwrap();
    let name = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    name.starts_with("hello-").then_some(name)
}

/// Two replicas answer behind a service, by name from a pod of another node's DNS, on a node's port, and through the API.
async fn serves(launch: &Launch) {
    let kubectl = launch.kubectl().unwrap();
    let workload = tools::root().join("tests/cluster/workload.yaml");
    until(launch, "the workload is taken", async || {
        kubectl.run(&["apply", "-f", &workload.display().to_string()]).await.is_ok()
    })
    .await;
    until(launch, "two pods of it and two of CoreDNS serve", async || all_pods_serve(kubectl).await).await;

    let pods = prints(kubectl, &["get", "pods", "-l", "app=hello", "-o", "name"]).await;
    let pod = pods.lines().next().unwrap().to_owned();
    until(launch, "a pod finds the service by its name", async || {
        let connects = ["exec", &pod, "--", "/agnhost", "connect", "--timeout=20s", "hello:80"];
        kubectl.run(&connects).await.is_ok()
    })
    .await;
    let no_such = ["exec", &pod, "--", "/agnhost", "connect", "--timeout=20s", "nobody:80"];
    assert!(kubectl.run(&no_such).await.is_err(), "it finds a service that there is not");
    let log = kubectl.run(&["logs", &pod]).await.unwrap();
    assert!(log.contains("Started HTTP server on port 8080"), "{log}");
    let worker = launch.room().workshop().state.guests().into_iter().find(|guest| guest.role == "pool-spot");
    let address = format!("{}:{NODE_PORT}", worker.unwrap().address);
    until(launch, "a worker's port reaches it", async || answered(&address).await.is_some()).await;
    let mut forward =
        kubectl.command(&["port-forward", "service/hello", &format!("{NODE_PORT}:80")]).spawn().unwrap();
    let here = format!("127.0.0.1:{NODE_PORT}");
    until(launch, "kubectl's port-forward reaches it", async || answered(&here).await.is_some()).await;
    forward.kill().await.unwrap();
}

/// On a machine, with the lines of its secrets in `$keys`: how many these are, and how many lines of its journal, its logs, of what its processes were
/// started with, and of what lies in folders for temporary files have one of these.
const SECRETS_IN_LOGS: &str = r#"
wc -l < "$keys"
{
    journalctl --no-pager --output=cat
    find /var/log -type f -exec cat {} +
    find /tmp /root /run -xdev -type f -size -64M -exec cat {} + 2>/dev/null
    cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n'
} | grep --text -cFf "$keys"
rm "$keys"
"#;

/// P9: no secret of the cluster is in what the installation and its machines wrote.
async fn p9_no_key_is_in_what_was_written(launch: &Launch) {
    let (slipway, workshop) = (launch.room().slipway(), launch.room().workshop());
    let secrets = Secrets::open(slipway, launch.cluster()).await.unwrap();
    let mut searched = secrets.search(slipway).await.unwrap();
    for guest in workshop.state.guests() {
        let console = workshop.console(&guest.id);
        assert!(console.len() > 1_000, "{console}");
        let place = format!("the console of {}", guest.role);
        searched.findings.search(&secrets.scanner, &place, console.as_bytes());
        let search = format!(
            "root=; keys=$(mktemp -p /dev/shm); {{ {SECRETS_OF_MACHINE} }} | sort -u > \"$keys\"\n{SECRETS_IN_LOGS}"
        );
        let (_, counted) = workshop.state.run(&guest.id, &search).await.unwrap();
        let counted: Vec<usize> = counted.lines().map(|line| line.trim().parse().unwrap()).collect();
        let [lines, found] = counted[..] else { panic!("{}: {counted:?}", guest.role) };
        assert!(lines > 0, "{} has no secret", guest.role);
        assert_eq!(found, 0, "the logs of {} hold a secret", guest.role);
    }
    assert!(searched.findings.0.is_empty(), "{:#?}", searched.findings.0);
    let (of, pieces) = (secrets.scanner.len(), searched.pieces.values().sum::<usize>());
    launch.line("slipway", &format!("none of {of} secrets is in {pieces} objects, logs, events and calls"));
}

/// What was written before a snapshot is back after `slipway restore`, what was written later is gone, and everything serves without anybody's
/// help.
async fn is_restored(launch: &Launch) {
    let kubectl = launch.kubectl().unwrap();
    let slipway = async |arguments: &[&str]| {
        let mut command = launch.room().command().unwrap();
        let output = command.args(arguments).args(["--cluster", launch.cluster()]).output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    };
    let map = |name: &'static str| ["configmap", name];
    kubectl.run(&[&["create"][..], &map("earlier")].concat()).await.unwrap();
    slipway(&["snapshot"]).await;
    kubectl.run(&[&["delete"][..], &map("earlier")].concat()).await.unwrap();
    kubectl.run(&[&["create"][..], &map("later")].concat()).await.unwrap();
    let verified = slipway(&["restore", "latest", "--dry-run"]).await;
    assert!(verified.contains("nothing was changed"), "{verified}");
    assert!(
        kubectl.run(&[&["get"][..], &map("later")].concat()).await.is_ok(),
        "a rehearsal replaces nothing"
    );
    let begun = Instant::now();
    let restored = slipway(&["restore", "latest", "--yes"]).await;
    launch.line(
        "slipway",
        &format!("restored after {:.0} s: {}", begun.elapsed().as_secs_f64(), restored.trim()),
    );
    assert!(kubectl.run(&[&["get"][..], &map("earlier")].concat()).await.is_ok(), "it was in the snapshot");
    assert!(
        kubectl.run(&[&["get"][..], &map("later")].concat()).await.is_err(),
        "it was not in the snapshot"
    );
    until(launch, "all pods serve", async || all_pods_serve(kubectl).await).await;
    // The controllers work with what was restored: a Deployment gets a pod more.
    kubectl.run(&["scale", "deployment", "hello", "--replicas=3"]).await.unwrap();
    let replicas = "jsonpath={.status.readyReplicas}";
    until(launch, "a third pod serves", async || {
        prints(kubectl, &["get", "deployment", "hello", "-o", replicas]).await == "3"
    })
    .await;
    kubectl.run(&["scale", "deployment", "hello", "--replicas=2"]).await.unwrap();
    until(launch, "two pods serve again", async || all_pods_serve(kubectl).await).await;
}

/// A machine reboots, and everything serves as before without anybody's help.
async fn comes_back(launch: &Launch, role: &str) {
    let (kubectl, state) = (launch.kubectl().unwrap(), &launch.room().workshop().state);
    let machine = state.find(role).unwrap();
    // A command that its agent had taken when it went down is never answered.
    let boot =
        async || match timeout(ANSWER, state.run(&machine, "cat /proc/sys/kernel/random/boot_id")).await {
            Ok(Ok((_, id))) => id.trim().to_owned(),
            Ok(Err(_)) | Err(_) => String::new(),
        };
    let before = boot().await;
    assert!(!before.is_empty());
    state.run(&machine, "systemd-run --on-active=1 systemctl reboot").await.unwrap();
    until(launch, "its kernel is another one", async || {
        let now = boot().await;
        !now.is_empty() && now != before
    })
    .await;
    until(launch, "the API answers", async || prints(kubectl, &["get", "--raw", "/readyz"]).await == "ok")
        .await;
    let after = boot().await;
    if role != "etcd-0" {
        // A status from before the reboot may still call it Ready.
        until(launch, "its Node is of this boot, and Ready", async || {
            let of_node =
                "jsonpath={.status.nodeInfo.bootID} {.status.conditions[?(@.type==\"Ready\")].status}";
            prints(kubectl, &["get", "node", &machine, "-o", of_node]).await == format!("{after} True")
        })
        .await;
    }
    until(launch, "all pods serve", async || all_pods_serve(kubectl).await).await;
    let worker = state.guests().into_iter().find(|guest| guest.role == "pool-spot").unwrap();
    let address = format!("{}:{NODE_PORT}", worker.address);
    until(launch, "the workload answers", async || answered(&address).await.is_some()).await;
}

/// The group replaces a worker without power, and the workload serves on the other one.
async fn is_replaced(launch: &mut Launch) {
    let state = std::sync::Arc::clone(&launch.room().workshop().state);
    let old = state.guests().into_iter().find(|guest| guest.role == "pool-spot").unwrap();
    old.handle.cut_power().await.unwrap();
    until(launch, "another machine is started", async || {
        state.guests().iter().any(|guest| guest.role == "pool-spot" && guest.id != old.id)
    })
    .await;
    let new =
        state.guests().into_iter().find(|guest| guest.role == "pool-spot" && guest.id != old.id).unwrap();
    let kubectl = launch.kubectl().unwrap();
    until(launch, "its Node is Ready, and the old one's is gone", async || {
        let nodes = prints(kubectl, &["get", "nodes", "--no-headers"]).await;
        let ready = |line: &str| line.starts_with(&new.id) && line.contains(" Ready");
        nodes.lines().any(ready) && !nodes.contains(&old.id)
    })
    .await;
    until(launch, "all pods serve", async || all_pods_serve(kubectl).await).await;
    let address = format!("{}:{NODE_PORT}", new.address);
    until(launch, "the workload answers", async || answered(&address).await.is_some()).await;
}

/// `slipway destroy` leaves no stack and no machine.
async fn goes(launch: &mut Launch) {
    let mut destroy = launch.room().command().unwrap();
    let output = destroy.args(["destroy", "--yes", "--cluster", launch.cluster()]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let end = launch.ends_with(&["Cluster Destroyed", "Rollout Failed"]).await.unwrap();
    assert_eq!(end, "Cluster Destroyed");
    let workshop = launch.room().workshop();
    until(launch, "no machine is left", async || workshop.state.guests().is_empty()).await;
    let stacks = workshop.state.world().resources_of_type("AWS::AutoScaling::AutoScalingGroup");
    assert!(stacks.is_empty(), "{stacks:?}");
}
