//! A node that its group terminates: only a state that is read twice for this very instance stops anything; then the node completes its own
//! hook.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use slipway_node::aws::{Aws, Endpoints, Retry};
use slipway_node::failure::{AgentResult, FailureCode};
use slipway_node::leave::{Leaving, Patience};
use slipway_node::machine::apply::Host;
use slipway_node::machine::commands::{Commands, Ran};
use slipway_tests::imds::Imds;

use crate::configs::member;
use crate::scripted::Scripted;

const TARGET: &str = "autoscaling/target-lifecycle-state";
const INSTANCE: &str = "i-0123456789abcdef0";

/// A systemd that records its calls.
#[derive(Debug, Clone, Default)]
struct Recorder {
    calls: Arc<Mutex<Vec<String>>>,
    /// The call that fails.
    refuses: Option<&'static str>,
}

impl Commands for Recorder {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let call = format!("{program} {}", arguments.join(" "));
        let status = Some(i32::from(self.refuses == Some(&call)));
        self.calls.lock().unwrap().push(call);
        Ok(Ran { status, stdout: String::new(), stderr: String::new() })
    }
}

struct Site {
    imds: Imds,
    groups: Scripted,
    systemd: Recorder,
    folder: tempfile::TempDir,
    between_readings: Duration,
    balancer: Duration,
}

impl Site {
    async fn start(config: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("var/lib/slipway");
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("config.json"), config.to_string()).unwrap();
        Self {
            imds: Imds::start(INSTANCE, "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap(),
            groups: Scripted::start(&[(200, "")]).await,
            systemd: Recorder::default(),
            folder,
            between_readings: Duration::ZERO,
            balancer: Duration::ZERO,
        }
    }

    fn leaving(&self) -> AgentResult<Leaving<Recorder>> {
        let variables = BTreeMap::from([
            ("AWS_ENDPOINT_URL", self.groups.url.as_str()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", self.imds.url()),
        ]);
        let endpoints = Endpoints::read(|name| variables.get(name).map(|&value| value.to_owned()));
        let aws = Aws::new(&endpoints, "eu-west-1").unwrap();
        let host = Host { root: self.folder.path().to_owned(), commands: self.systemd.clone() };
        let patience = Patience {
            between_readings: self.between_readings,
            balancer: self.balancer,
            ending: Duration::from_millis(10),
            ..Patience::default()
        };
        let retry = Retry { tries: 1, pause: Duration::ZERO };
        Leaving::read(host, aws.with_retry(retry), patience)
    }

    fn ran(&self) -> Vec<String> {
        self.systemd.calls.lock().unwrap().clone()
    }

    /// The hooks that were completed.
    fn settled(&self) -> Vec<String> {
        let asked = self.groups.received();
        asked.iter().map(|one| String::from_utf8(one.body.to_vec()).unwrap()).collect()
    }
}

fn testdata(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/src/kube/testdata").join(name);
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_member_that_is_terminated_stops_etcd_frees_its_volume_and_lets_its_hook_go_on() {
    let site = Site::start(&member("production", "127.0.0.1")).await;
    let leaving = site.leaving().unwrap();
    // No state, or none that means termination.
    for state in [None, Some("InService"), Some("Standby"), Some("Detached"), Some("Warmed:Stopped")] {
        site.imds.set(TARGET, state);
        assert_eq!(leaving.pass().await.unwrap(), None, "{state:?}");
    }
    assert_eq!((site.ran().len(), site.settled().len()), (0, 0));
    site.imds.set(TARGET, Some("Terminated"));
    let left = leaving.pass().await.unwrap().unwrap();
    assert_eq!((&left["instance"], &left["left"]), (&json!(INSTANCE), &json!(true)));
    assert_eq!(site.ran(), ["systemctl stop etcd.service", "systemctl stop var-lib-etcd.mount"]);
    let settled = site.settled();
    assert_eq!(settled.len(), 1, "{settled:?}");
    for part in [
        "Action=CompleteLifecycleAction",
        "AutoScalingGroupName=own",
        "LifecycleHookName=terminate",
        "LifecycleActionResult=CONTINUE",
        &format!("InstanceId={INSTANCE}"),
    ] {
        assert!(settled[0].split('&').any(|pair| pair == part), "{part}: {settled:?}");
    }
}

#[tokio::test]
async fn what_is_said_once_or_of_another_instance_stops_nothing() {
    let mut site = Site::start(&member("production", "127.0.0.1")).await;
    site.between_readings = Duration::from_millis(300);
    for (path, value) in [(TARGET, Some("InService")), (TARGET, None), ("instance-id", Some("i-2"))] {
        site.imds.set("instance-id", Some(INSTANCE));
        site.imds.set(TARGET, Some("Terminated"));
        let leaving = site.leaving().unwrap();
        let meanwhile = async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            site.imds.set(path, value);
        };
        let (passed, ()) = tokio::join!(leaving.pass(), meanwhile);
        assert_eq!(passed.unwrap(), None, "{path}: {value:?}");
    }
    assert_eq!((site.ran().len(), site.settled().len()), (0, 0));
}

/// Its successor would take the volume from it while etcd writes.
#[tokio::test]
async fn p4_a_member_whose_etcd_does_not_stop_keeps_its_hook_open() {
    let mut site = Site::start(&member("production", "127.0.0.1")).await;
    site.systemd.refuses = Some("systemctl stop etcd.service");
    site.imds.set(TARGET, Some("Terminated"));
    assert!(site.leaving().unwrap().pass().await.is_err());
    assert_eq!(site.settled(), [""; 0]);
    // The next poll tries again.
    site.systemd.refuses = None;
    assert!(site.leaving().unwrap().pass().await.unwrap().is_some());
    assert_eq!(site.settled().len(), 1);
}

#[tokio::test]
async fn p5_a_controller_serves_until_the_load_balancer_sends_no_more_requests() {
    let mut site = Site::start(&testdata("controller.json")).await;
    site.balancer = Duration::from_millis(600);
    let manifest = site.folder.path().join("etc/kubernetes/manifests/kube-apiserver.json");
    fs::create_dir_all(manifest.parent().unwrap()).unwrap();
    fs::write(&manifest, "{}").unwrap();
    site.imds.set(TARGET, Some("Terminated"));
    let leaving = site.leaving().unwrap();
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        manifest.exists()
    };
    let (passed, serves) = tokio::join!(leaving.pass(), meanwhile);
    assert!(passed.unwrap().is_some() && serves && !manifest.exists());
}

#[tokio::test]
async fn a_controller_ends_its_control_plane_by_its_kubelet_and_a_worker_is_left_to_whoever_drains_it() {
    let site = Site::start(&testdata("controller.json")).await;
    let manifests = site.folder.path().join("etc/kubernetes/manifests");
    fs::create_dir_all(&manifests).unwrap();
    let names = ["kube-apiserver.json", "kube-controller-manager.json", "kube-scheduler.json", "users.yaml"];
    for name in names {
        fs::write(manifests.join(name), name).unwrap();
    }
    site.imds.set(TARGET, Some("Terminated"));
    assert!(site.leaving().unwrap().pass().await.unwrap().is_some());
    let left: Vec<_> = fs::read_dir(&manifests)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left, ["users.yaml"], "the user's own static pods stay");
    assert_eq!((site.ran().len(), site.settled().len()), (0, 1));

    let worker = Site::start(&testdata("worker.json")).await;
    assert_eq!(worker.leaving().unwrap_err().code, FailureCode::LeaveWorker);
}
