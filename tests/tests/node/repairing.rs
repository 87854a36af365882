//! A worker that is not Ready: which calls the node managers make, against an API server of ours that knows resource versions. What a real
//! API server shows of Nodes is in `tests/kubernetes`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Json;
use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::repair::Settings;
use slipway_node::failure::AgentResult;
use slipway_node::manage::{Cloud, Library, Machine, Site, pass};
use tokio::net::TcpListener;

const WORKERS: [&str; 3] = ["i-0a1b2c3d4e5f60711", "i-0a1b2c3d4e5f60712", "i-0a1b2c3d4e5f60713"];
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// What the API server holds.
#[derive(Debug, Default)]
struct ApiState {
    nodes: Vec<Value>,
    maps: BTreeMap<String, Value>,
    version: u64,
    /// Another controller writes each ConfigMap after this one has read it.
    contended: bool,
    /// Nodes cannot be listed.
    broken: bool,
}

type Api = Arc<Mutex<ApiState>>;

async fn start() -> (String, Api) {
    let api = Api::default();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(answer).with_state(Arc::clone(&api));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, api)
}

fn refused(code: u16) -> (StatusCode, Json<Value>) {
    let reason = match code {
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let said = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": "no", "reason": reason });
    (StatusCode::from_u16(code).unwrap(), Json(said))
}

async fn answer(State(api): State<Api>, request: Request) -> (StatusCode, Json<Value>) {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut held = api.lock().unwrap();
    let path = parts.uri.path().to_owned();
    let given = || serde_json::from_slice::<Value>(&body).unwrap();
    let list = |kind: &str, items: &[Value]| json!({ "kind": kind, "apiVersion": "v1", "metadata": {}, "items": items });
    let name = path.strip_prefix(&format!("{MAPS}/")).map(str::to_owned);
    match (parts.method.as_str(), path.as_str(), name) {
        ("GET", "/api/v1/nodes", _) if held.broken => refused(500),
        ("GET", "/api/v1/nodes", _) => (StatusCode::OK, Json(list("NodeList", &held.nodes))),
        ("GET", _, Some(name)) => {
            let found = held.maps.get(&name).cloned();
            found.map_or_else(|| refused(404), |map| (StatusCode::OK, Json(map)))
        }
        ("POST", MAPS, _) | ("PUT", _, Some(_)) => {
            let mut map = given();
            let name = map["metadata"]["name"].as_str().unwrap().to_owned();
            let version = |map: &Value| map["metadata"]["resourceVersion"].clone();
            let is_current = held.maps.get(&name).map_or(Value::Null, version) == version(&map);
            if held.contended || !is_current {
                return refused(409);
            }
            held.version += 1;
            map["metadata"]["resourceVersion"] = json!(held.version.to_string());
            held.maps.insert(name, map.clone());
            (StatusCode::OK, Json(map))
        }
        ("PATCH", ..) => (StatusCode::OK, Json(given())),
        ("GET", path, _) if path.ends_with("certificatesigningrequests") => {
            (StatusCode::OK, Json(list("CertificateSigningRequestList", &[])))
        }
        _ => refused(404),
    }
}

fn node(name: &str, ready: &str) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {
            "name": name, "uid": format!("uid-{name}"), "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { "slipway/pool": "general" },
        },
        "spec": {},
        "status": { "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": "2026-11-01T00:00:00Z" }] },
    })
}

fn settings(mode: &str) -> Value {
    let text = json!({ "pools": { "general": { "mode": mode, "afterMinutes": 15 } } }).to_string();
    json!({
        "kind": "ConfigMap", "apiVersion": "v1",
        "metadata": { "name": Settings::NAME, "namespace": Settings::NAMESPACE, "resourceVersion": "1" },
        "data": { Settings::KEY: text },
    })
}

/// EC2 and Auto Scaling.
#[derive(Debug)]
struct Account {
    role: &'static str,
    /// A machine that is of another pool.
    stranger: Option<&'static str>,
    /// A machine that EC2 does not have, or shows as terminated.
    gone: Option<(&'static str, Gone)>,
    reported: Mutex<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Unknown,
    Terminated,
}

impl Account {
    fn with(role: &'static str) -> Self {
        Self { role, stranger: None, gone: None, reported: Mutex::default() }
    }

    fn reported(&self) -> Vec<String> {
        self.reported.lock().unwrap().clone()
    }
}

impl Cloud for Account {
    async fn machines(&self, ids: &[&str]) -> AgentResult<BTreeMap<String, Machine>> {
        let machine = |id: &str| {
            let role = if self.stranger == Some(id) { "pool-other" } else { self.role };
            let tags = [("slipway:cluster", "c"), ("slipway:role", role)];
            let state = if self.gone == Some((id, Gone::Terminated)) { "terminated" } else { "running" };
            Machine {
                state: state.to_owned(),
                tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                ..Machine::default()
            }
        };
        let known = ids.iter().filter(|id| self.gone != Some((id, Gone::Unknown)));
        Ok(known.map(|id| ((*id).to_owned(), machine(id))).collect())
    }

    async fn starting_roles(&self, _: &str, _: Timestamp) -> AgentResult<BTreeSet<String>> {
        Ok(BTreeSet::new())
    }

    async fn report_unhealthy(&self, id: &str) -> AgentResult<Result<(), String>> {
        self.reported.lock().unwrap().push(id.to_owned());
        Ok(Ok(()))
    }
}

/// A bucket without add-ons.
struct Empty;

impl Library for Empty {
    async fn get(&self, _: &str) -> AgentResult<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// A controller that has seen for so many seconds that the first worker is not Ready, and last looked 50 s ago.
struct Controller {
    root: tempfile::TempDir,
}

impl Controller {
    fn new(url: &str, unready_s: u64) -> Self {
        Self::that_saw(url, &[(WORKERS[0], unready_s)])
    }

    /// One that has seen for so many seconds that these are not Ready.
    fn that_saw(url: &str, unready: &[(&str, u64)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: String| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "a",
            "clusters": [{ "name": "a", "cluster": { "server": url } }],
            "users": [{ "name": "a", "user": {} }],
            "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        });
        write("etc/kubernetes/node-manager.kubeconfig", kubeconfig.to_string());
        let up: f64 =
            std::fs::read_to_string("/proc/uptime").unwrap().split(' ').next().unwrap().parse().unwrap();
        let up = up as u64;
        let since = |(name, seconds): &(&str, u64)| (format!("uid-{name}"), up.saturating_sub(*seconds));
        let unready: BTreeMap<String, u64> = unready.iter().map(since).collect();
        let watch = json!({ "lookedS": up.saturating_sub(50), "unreadyS": unready });
        let seen = json!({ "watch": watch, "unready": [] });
        write("run/slipway-manage/workers.json", seen.to_string());
        Self { root }
    }

    fn seen(&self) -> bool {
        Path::new(self.root.path()).join("run/slipway-manage/workers.json").exists()
    }

    async fn pass(&self, account: &Account) -> Value {
        let site = Site {
            root: self.root.path().to_owned(),
            cluster: "c".to_owned(),
            node: "i-0a1b2c3d4e5f60701".to_owned(),
        };
        pass(&site, &Empty, account).await.unwrap()["repair"].take()
    }
}

/// The first worker is silent, the others are Ready.
fn one_is_silent(api: &Api, mode: &str) {
    let mut held = api.lock().unwrap();
    held.nodes = vec![node(WORKERS[0], "Unknown"), node(WORKERS[1], "True"), node(WORKERS[2], "True")];
    held.maps.insert(Settings::NAME.to_owned(), settings(mode));
}

#[tokio::test]
async fn of_two_controllers_one_reports_a_worker_that_was_silent_for_long_enough_and_none_reports_another_meanwhile()
 {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    let account = Account::with("pool-general");
    let said = Controller::new(&url, 15 * 60 - 60).pass(&account).await;
    assert_eq!((&said["state"], &said["unready"]), (&json!("looked"), &json!([])), "{said}");
    assert_eq!(account.reported(), [""; 0]);

    let first = Controller::new(&url, 15 * 60 + 60);
    let said = first.pass(&account).await;
    assert_eq!((&said["repaired"], &said["news"]), (&json!([WORKERS[0]]), &json!(true)), "{said}");
    assert_eq!(said["unready"][0]["repair"], "begun", "{said}");
    assert_eq!(account.reported(), [WORKERS[0]]);
    // Its next pass comes 20 s later.
    assert_eq!(first.pass(&account).await, json!({ "state": "rests" }));

    // The other one knows.
    let said = Controller::new(&url, 15 * 60 + 60).pass(&account).await;
    assert_eq!((&said["repaired"], &said["unready"][0]["repair"]), (&json!([]), &json!("begun")), "{said}");
    assert_eq!(account.reported(), [WORKERS[0]]);
}

#[tokio::test]
async fn a_controller_that_another_one_forestalls_reports_nothing() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    api.lock().unwrap().contended = true;
    let account = Account::with("pool-general");
    let said = Controller::new(&url, 3600).pass(&account).await;
    assert_eq!(said["unready"][0]["repair"], "waits", "{said}");
    assert_eq!(account.reported(), [""; 0]);
}

#[tokio::test]
async fn without_a_word_of_the_spec_a_worker_is_named_and_left_alone() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    api.lock().unwrap().maps.clear();
    let account = Account::with("pool-general");
    let said = Controller::new(&url, 3600).pass(&account).await;
    assert_eq!((&said["unready"][0]["repair"], &said["repaired"]), (&json!("told"), &json!([])), "{said}");
    one_is_silent(&api, "off");
    let said = Controller::new(&url, 3600).pass(&account).await;
    assert_eq!((&said["unready"], &said["repaired"]), (&json!([]), &json!([])), "{said}");
    assert_eq!(account.reported(), [""; 0]);
}

#[tokio::test]
async fn a_machine_that_ec2_calls_another_pools_or_a_controller_is_not_reported() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    for role in ["pool-other", "controller", "etcd-0"] {
        let account = Account::with(role);
        let said = Controller::new(&url, 3600).pass(&account).await;
        assert_eq!(said["unready"][0]["repair"], "waits", "{said}");
        assert_eq!(account.reported(), [""; 0], "{role}");
    }
}

/// A kubelet may write the label of another pool on its own Node. It was first in that pool for ever, and nothing there was repaired.
#[tokio::test]
async fn a_worker_that_calls_itself_one_of_another_pool_takes_no_turn_there() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    {
        let mut held = api.lock().unwrap();
        held.nodes[1] = node(WORKERS[1], "Unknown");
        held.nodes.extend(["i-0a1b2c3d4e5f60714", "i-0a1b2c3d4e5f60715"].map(|name| node(name, "True")));
    }
    let account = Account { stranger: Some(WORKERS[0]), ..Account::with("pool-general") };
    let said = Controller::that_saw(&url, &[(WORKERS[0], 7200), (WORKERS[1], 3600)]).pass(&account).await;
    assert_eq!(
        (account.reported(), &said["repaired"]),
        (vec![WORKERS[1].to_owned()], &json!([WORKERS[1]])),
        "{said}"
    );
    let named: Vec<&Value> = said["unready"].as_array().unwrap().iter().map(|one| &one["node"]).collect();
    assert!(named.contains(&&json!(WORKERS[0])), "{said}");
}

/// With `cloudControllerManager.enabled: false` nobody deletes its Node, which its drain has cordoned and annotated.
#[tokio::test]
async fn a_repaired_worker_that_is_gone_does_not_hold_its_pool_because_its_node_is_still_listed() {
    for gone in [Gone::Unknown, Gone::Terminated] {
        let (url, api) = start().await;
        one_is_silent(&api, "on");
        let account = Account::with("pool-general");
        Controller::new(&url, 3600).pass(&account).await;
        assert_eq!(account.reported(), [WORKERS[0]]);
        {
            let mut held = api.lock().unwrap();
            // Half an hour later it was drained and terminated, its successor has come, and another one hangs.
            let begun = &mut held.maps.get_mut("slipway-repairs").unwrap()["data"]["ledger.json"];
            let mut ledger: Value = serde_json::from_str(begun.as_str().unwrap()).unwrap();
            let before = |minutes| json!(Timestamp::now() - jiff::SignedDuration::from_mins(minutes));
            ledger["pools"]["general"]["at"] = before(30);
            *begun = json!(ledger.to_string());
            held.nodes[0]["spec"]["unschedulable"] = json!(true);
            held.nodes[0]["metadata"]["annotations"] = json!({ "slipway/drain-started": before(29) });
            held.nodes[1] = node(WORKERS[1], "Unknown");
            let mut successor = node("i-0a1b2c3d4e5f60714", "True");
            successor["metadata"]["creationTimestamp"] = before(20);
            held.nodes.push(successor);
        }
        let watched = [(WORKERS[0], 7200), (WORKERS[1], 3600)];
        let said = Controller::that_saw(&url, &watched).pass(&account).await;
        assert_eq!(said["repaired"], json!([]), "its machine still runs: {said}");
        let account = Account { gone: Some((WORKERS[0], gone)), ..Account::with("pool-general") };
        let said = Controller::that_saw(&url, &watched).pass(&account).await;
        assert_eq!(
            (account.reported(), &said["repaired"]),
            (vec![WORKERS[1].to_owned()], &json!([WORKERS[1]])),
            "{said}"
        );
        // Whoever reads the status can delete the Node.
        let of_gone =
            said["unready"].as_array().unwrap().iter().find(|one| one["node"] == WORKERS[0]).unwrap();
        let why = format!("its machine is gone, and its Node is not: kubectl delete node {}", WORKERS[0]);
        assert_eq!((&of_gone["repair"], &of_gone["why"]), (&json!("waits"), &json!(why)), "{said}");
    }
}

/// Two of three workers are too many to blame the machines, and one of two is not.
#[tokio::test]
async fn nodes_whose_machines_are_gone_do_not_count_as_workers_that_are_not_ready() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    {
        let mut held = api.lock().unwrap();
        held.nodes = vec![node(WORKERS[0], "Unknown"), node(WORKERS[1], "Unknown"), node(WORKERS[2], "True")];
    }
    let watched = [(WORKERS[0], 7200), (WORKERS[1], 3600)];
    let account = Account::with("pool-general");
    let said = Controller::that_saw(&url, &watched).pass(&account).await;
    assert_eq!(account.reported(), [""; 0], "{said}");
    let account = Account { gone: Some((WORKERS[0], Gone::Unknown)), ..Account::with("pool-general") };
    let said = Controller::that_saw(&url, &watched).pass(&account).await;
    assert_eq!(account.reported(), [WORKERS[1]], "{said}");
}

#[tokio::test]
async fn a_look_that_fails_begins_the_time_of_every_worker_anew() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    api.lock().unwrap().broken = true;
    let account = Account::with("pool-general");
    let controller = Controller::new(&url, 3600);
    let said = controller.pass(&account).await;
    assert!(said["error"]["message"].as_str().unwrap().contains("the Nodes"), "{said}");
    assert!(!controller.seen());
    api.lock().unwrap().broken = false;
    let said = controller.pass(&account).await;
    assert_eq!(said["unready"], json!([]), "{said}");
    assert_eq!(account.reported(), [""; 0]);
}
