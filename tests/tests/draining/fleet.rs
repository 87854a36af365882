//! Nodes without machines: this module reports to the API server what a kubelet would report, and does nothing that a kubelet would do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_tests::kubernetes::{Caller, Kubernetes};
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// The time from scheduling a pod until it serves.
const STARTS_IN: Duration = Duration::from_millis(1200);
/// The time that a pod takes to stop.
const ENDS_IN: Duration = Duration::from_millis(700);
/// The interval between observations.
const LOOKS: Duration = Duration::from_millis(150);

/// The nodes, and the tasks that watch them.
pub(crate) struct Fleet {
    pub(crate) caller: Caller,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Fleet {
    /// Creates ready nodes with these names.
    pub(crate) async fn start(cluster: &Kubernetes, nodes: &[&str]) -> Self {
        let caller = cluster.node_manager();
        for name in nodes {
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
            });
            let made = caller.post("/api/v1/nodes", &node).await.unwrap();
            assert_eq!(made.status, 201, "{made:?}");
        }
        let stop = Arc::new(AtomicBool::new(false));
        let kubelet =
            kubelet(caller.clone(), nodes.iter().map(|&name| name.to_owned()).collect(), stop.clone());
        let fleet = Self { caller, stop, tasks: vec![tokio::spawn(kubelet)] };
        for name in nodes {
            // The node lifecycle controller removes the taint that admission added.
            fleet
                .until(&format!("{name} is schedulable"), async || {
                    fleet.node(name).await["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
                })
                .await;
        }
        fleet
    }

    pub(crate) async fn node(&self, name: &str) -> Value {
        self.caller.get(&format!("/api/v1/nodes/{name}")).await.unwrap().body
    }

    pub(crate) async fn make(&self, path: &str, object: &Value) -> Value {
        let made = self.caller.post(path, object).await.unwrap();
        assert_eq!(made.status, 201, "{made:?}");
        made.body
    }

    /// The pods of an application, or all pods of a namespace.
    pub(crate) async fn pods(&self, namespace: &str, app: Option<&str>) -> Vec<Value> {
        let selector = app.map(|app| format!("?labelSelector=app%3D{app}")).unwrap_or_default();
        let found = self.caller.get(&format!("/api/v1/namespaces/{namespace}/pods{selector}")).await.unwrap();
        found.body["items"].as_array().unwrap_or_else(|| panic!("{found:?}")).clone()
    }

    /// The pods that block the drain of a node.
    pub(crate) async fn on(&self, node: &str) -> BTreeSet<String> {
        let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}");
        let found = self.caller.get(&path).await.unwrap();
        found.body["items"].as_array().unwrap().iter().map(name).collect()
    }

    pub(crate) async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        let begun = std::time::Instant::now();
        while !holds().await {
            assert!(begun.elapsed() < Duration::from_secs(60), "this did not happen: {what}");
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Watches how many pods of an application serve, from the moment when all replicas do until it is stopped.
    pub(crate) async fn watch(&self, namespace: &str, app: &str, replicas: usize) -> Watch {
        let serving = async || self.pods(namespace, Some(app)).await.iter().filter(|pod| serves(pod)).count();
        self.until(&format!("{app} serves"), async || serving().await == replicas).await;
        let (caller, stop) = (self.caller.clone(), Arc::new(AtomicBool::new(false)));
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3D{app}");
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let mut seen = Observed { least: replicas, ending: BTreeMap::new(), looks: 0 };
            while !stopped.load(Ordering::Relaxed) {
                // A busy API server may close a connection.
                let Ok(found) = caller.get(&path).await else { continue };
                let found = found.body;
                let pods = found["items"].as_array().unwrap().clone();
                seen.looks += 1;
                seen.least = seen.least.min(pods.iter().filter(|pod| serves(pod)).count());
                for pod in pods.iter().filter(|pod| !pod["metadata"]["deletionTimestamp"].is_null()) {
                    seen.ending.entry(name(pod)).or_insert_with(Timestamp::now);
                }
                sleep(Duration::from_millis(50)).await;
            }
            seen
        });
        Watch { stop, task }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A running observation.
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Observed>,
}

/// The result of an observation.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The smallest number of pods that served at a time.
    pub(crate) least: usize,
    /// When each pod was first seen to be deleted.
    pub(crate) ending: BTreeMap<String, Timestamp>,
    /// The number of observations.
    pub(crate) looks: usize,
}

impl Watch {
    pub(crate) async fn end(self) -> Observed {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

pub(crate) fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn serves(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Reports the status of all nodes and their pods repeatedly, as kubelets do.
async fn kubelet(caller: Caller, nodes: Vec<String>, stop: Arc<AtomicBool>) {
    let mut since: BTreeMap<(String, bool), std::time::Instant> = BTreeMap::new();
    let mut said: Option<std::time::Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        if said.is_none_or(|said| said.elapsed() > Duration::from_secs(5)) {
            for node in &nodes {
                let _ = caller.merge(&format!("/api/v1/nodes/{node}/status"), &node_status()).await;
            }
            said = Some(std::time::Instant::now());
        }
        let Ok(found) = caller.get("/api/v1/pods").await else { continue };
        for pod in found.body["items"].as_array().into_iter().flatten() {
            let ours =
                pod["spec"]["nodeName"].as_str().is_some_and(|node| nodes.iter().any(|one| one == node));
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}", name(pod));
            let ending = !pod["metadata"]["deletionTimestamp"].is_null();
            let begun = since.entry((uid, ending)).or_insert_with(std::time::Instant::now).elapsed();
            if ours && ending && begun > ENDS_IN {
                let _ = caller.delete(&format!("{path}?gracePeriodSeconds=0")).await;
            } else if ours && !ending && begun > STARTS_IN && !serves(pod) {
                let _ = caller.merge(&format!("{path}/status"), &running()).await;
            }
        }
        sleep(LOOKS).await;
    }
}

fn node_status() -> Value {
    let now = Timestamp::now().to_string();
    let room = json!({ "cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "100Gi" });
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "it is",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    json!({ "status": { "capacity": room, "allocatable": room, "conditions": [ready] } })
}

fn running() -> Value {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    json!({ "status": { "phase": "Running", "startTime": now, "conditions": conditions } })
}
