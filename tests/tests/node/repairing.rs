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
use slipway_node::failure::{AgentError, AgentResult, FailureCode};
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
    /// The Nodes that were deleted, with the UID that they had to have.
    deleted: Vec<(String, Value)>,
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

pub(crate) fn refused(code: u16) -> (StatusCode, Json<Value>) {
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
        ("DELETE", path, _) => {
            let name = path.strip_prefix("/api/v1/nodes/").unwrap();
            let Some(at) = held.nodes.iter().position(|node| node["metadata"]["name"] == name) else {
                return refused(404);
            };
            let gone = held.nodes.remove(at);
            let uid = given()["preconditions"]["uid"].clone();
            assert_eq!(uid, gone["metadata"]["uid"], "of one that was registered anew nothing is known");
            held.deleted.push((name.to_owned(), uid));
            (StatusCode::OK, Json(gone))
        }
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
pub(crate) struct Account {
    role: &'static str,
    /// A machine that is of another pool.
    stranger: Option<&'static str>,
    /// A machine that EC2 does not have, or shows as terminated.
    gone: Option<(&'static str, Gone)>,
    /// The state of all other machines.
    state: &'static str,
    /// EC2 has no machine whose id begins with this.
    lacks: Option<&'static str>,
    /// EC2 does not answer.
    silent: bool,
    reported: Mutex<Vec<String>>,
    /// How many machines EC2 was asked about, in each call.
    asked: Mutex<Vec<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    Unknown,
    Terminated,
}

impl Account {
    pub(crate) fn with(role: &'static str) -> Self {
        let (reported, asked) = (Mutex::default(), Mutex::default());
        let state = "running";
        Self { role, stranger: None, gone: None, state, lacks: None, silent: false, reported, asked }
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
            let state = if self.gone == Some((id, Gone::Terminated)) { "terminated" } else { self.state };
            Machine {
                state: state.to_owned(),
                tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
                ..Machine::default()
            }
        };
        self.asked.lock().unwrap().push(ids.len());
        if self.silent {
            return Err(AgentError::transient(FailureCode::ManageAws, "EC2 does not answer", "wait"));
        }
        let known = ids.iter().filter(|id| self.gone != Some((id, Gone::Unknown)));
        let known = known.filter(|id| self.lacks.is_none_or(|lacks| !id.starts_with(lacks)));
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
pub(crate) struct Controller {
    root: tempfile::TempDir,
}

impl Controller {
    pub(crate) fn new(url: &str, unready_s: u64) -> Self {
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

    /// Its last look for Nodes whose machines are gone, which found this one, was so many seconds ago.
    fn found_gone(&self, name: &str, seconds_ago: u64) {
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up: f64 = up.split(' ').next().unwrap().parse().unwrap();
        let at = (up as u64).saturating_sub(seconds_ago);
        let seen = json!({ "lookedS": at, "goneS": { name: at } });
        let path = self.root.path().join("run/slipway-manage/terminated_nodes.json");
        std::fs::write(path, seen.to_string()).unwrap();
    }

    fn seen(&self) -> bool {
        Path::new(self.root.path()).join("run/slipway-manage/workers.json").exists()
    }

    async fn pass(&self, account: &Account) -> Value {
        self.part(account, "repair").await
    }

    /// That part of what a pass says.
    async fn part(&self, account: &Account, part: &str) -> Value {
        self.part_with(&Empty, account, part).await
    }

    /// The same with these add-ons.
    pub(crate) async fn part_with(&self, addons: &impl Library, account: &Account, part: &str) -> Value {
        let site = Site {
            root: self.root.path().to_owned(),
            cluster: "c".to_owned(),
            node: "i-0a1b2c3d4e5f60701".to_owned(),
        };
        pass(&site, addons, account).await.unwrap()[part].take()
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

/// Auto Scaling replaces such a one by itself, and the pause after a repair would begin for nothing.
#[tokio::test]
async fn a_machine_that_does_not_run_is_not_reported() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    let account = Account { state: "stopped", ..Account::with("pool-general") };
    let said = Controller::new(&url, 3600).pass(&account).await;
    assert_eq!((&said["repaired"], account.reported().len()), (&json!([]), 0), "{said}");
    assert_eq!(said["unready"][0]["why"], "its machine is stopped", "{said}");
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
        let why = format!(
            "its machine is gone: if no controller deletes its Node within the hour, kubectl delete node {}",
            WORKERS[0]
        );
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

/// Somebody who copied its kubelet's key keeps the Node of a machine that is gone Ready.
#[tokio::test]
async fn p13_a_node_whose_machine_is_gone_passes_neither_for_a_healthy_worker_nor_for_a_successor() {
    for gone in [Gone::Unknown, Gone::Terminated] {
        // With it, two of four workers are not Ready. Without it, two of three: too many to blame the machines.
        let (url, api) = start().await;
        one_is_silent(&api, "on");
        {
            let mut held = api.lock().unwrap();
            held.nodes.push(node("i-0a1b2c3d4e5f60714", "Unknown"));
        }
        let watched = [(WORKERS[0], 7200), ("i-0a1b2c3d4e5f60714", 3600)];
        let account = Account { gone: Some((WORKERS[2], gone)), ..Account::with("pool-general") };
        let said = Controller::that_saw(&url, &watched).pass(&account).await;
        assert_eq!(account.reported(), [""; 0], "{said}");
        let why = said["unready"][0]["why"].as_str().unwrap();
        assert!(why.starts_with("2 of 3 workers of "), "{why}");
        let account = Account::with("pool-general");
        let said = Controller::that_saw(&url, &watched).pass(&account).await;
        assert_eq!(account.reported(), [WORKERS[0]], "with a machine behind it, it counts: {said}");

        // Its Node is younger than the last repair, and no other is.
        let before = |minutes| json!(Timestamp::now() - jiff::SignedDuration::from_mins(minutes));
        let (url, api) = start().await;
        one_is_silent(&api, "on");
        {
            let mut held = api.lock().unwrap();
            held.nodes[2]["metadata"]["creationTimestamp"] = before(20);
            let begun = json!({ "node": "i-0a1b2c3d4e5f60715", "uid": "uid-before", "at": before(30) });
            let text = json!({ "pools": { "general": begun } }).to_string();
            let ledger = json!({
                "kind": "ConfigMap", "apiVersion": "v1",
                "metadata": { "name": "slipway-repairs", "namespace": "kube-system", "resourceVersion": "7" },
                "data": { "ledger.json": text },
            });
            held.maps.insert("slipway-repairs".to_owned(), ledger);
        }
        let account = Account { gone: Some((WORKERS[2], gone)), ..Account::with("pool-general") };
        let said = Controller::new(&url, 3600).pass(&account).await;
        assert_eq!(account.reported(), [""; 0], "{said}");
        let why = said["unready"][0]["why"].as_str().unwrap();
        assert!(why.starts_with("no successor of i-0a1b2c3d4e5f60715"), "{why}");
        let account = Account::with("pool-general");
        Controller::new(&url, 3600).pass(&account).await;
        assert_eq!(account.reported(), [WORKERS[0]]);
    }
}

#[tokio::test]
async fn if_ec2_does_not_answer_no_worker_is_taken_for_one_whose_machine_is_gone() {
    let (url, api) = start().await;
    one_is_silent(&api, "on");
    let account = Account { silent: true, ..Account::with("pool-general") };
    let controller = Controller::new(&url, 3600);
    let said = controller.pass(&account).await;
    assert_eq!(said["error"]["message"], "EC2 does not answer", "{said}");
    controller.found_gone(WORKERS[2], 700);
    let said = controller.part(&account, "goneNodes").await;
    assert_eq!(said["error"]["message"], "EC2 does not answer", "{said}");
    assert_eq!((account.reported().len(), api.lock().unwrap().deleted.len()), (0, 0));
}

/// The cloud controller manager deletes such Nodes only if they are not Ready.
#[tokio::test]
async fn p13_a_node_that_is_ready_is_deleted_if_its_machine_is_gone_in_two_looks_ten_minutes_apart() {
    for gone in [Gone::Unknown, Gone::Terminated] {
        let (url, api) = start().await;
        one_is_silent(&api, "warn");
        api.lock().unwrap().nodes.push(node("ip-10-0-0-1", "True"));
        let account = Account { gone: Some((WORKERS[2], gone)), ..Account::with("pool-general") };
        let controller = Controller::new(&url, 0);
        let said = controller.part(&account, "goneNodes").await;
        assert_eq!(said, json!({ "state": "looked", "gone": [WORKERS[2]], "deleted": [] }));
        // All at once, with the controller itself.
        assert_eq!(*account.asked.lock().unwrap(), [4]);
        assert_eq!(controller.part(&account, "goneNodes").await, json!({ "state": "rests" }));
        controller.found_gone(WORKERS[2], 590);
        assert_eq!(controller.part(&account, "goneNodes").await, json!({ "state": "rests" }));
        controller.found_gone(WORKERS[2], 610);
        // It was registered anew in between.
        api.lock().unwrap().nodes[2]["metadata"]["uid"] = json!("another");
        let said = controller.part(&account, "goneNodes").await;
        assert_eq!(said, json!({ "state": "looked", "gone": [WORKERS[2]], "deleted": [WORKERS[2]] }));
        assert_eq!(api.lock().unwrap().deleted, [(WORKERS[2].to_owned(), json!("another"))]);
        // Another one was gone before, and is there again.
        controller.found_gone(WORKERS[1], 610);
        let said = controller.part(&account, "goneNodes").await;
        assert_eq!(said, json!({ "state": "looked", "gone": [], "deleted": [] }));
        assert_eq!(api.lock().unwrap().deleted.len(), 1);
    }
}

/// Such as one of another account, or of another region.
#[tokio::test]
async fn an_answer_of_ec2_without_the_controller_that_asks_deletes_no_node() {
    let (url, api) = start().await;
    one_is_silent(&api, "warn");
    let account = Account { lacks: Some("i-"), ..Account::with("pool-general") };
    let controller = Controller::new(&url, 0);
    controller.found_gone(WORKERS[2], 610);
    let said = controller.part(&account, "goneNodes").await;
    let why = said["error"]["message"].as_str().unwrap();
    assert!(
        why.starts_with("EC2 answers that this controller, i-0a1b2c3d4e5f60701, does not exist"),
        "{why}"
    );
    assert!(api.lock().unwrap().deleted.is_empty());
}

/// A pool of a hundred machines was scaled down, and there is no cloud controller manager.
#[tokio::test]
async fn one_look_deletes_five_nodes_at_most() {
    let (url, api) = start().await;
    one_is_silent(&api, "warn");
    let controller = Controller::new(&url, 0);
    let names: Vec<String> = (0..8).map(|number| format!("i-0a1b2c3d4e5f6079{number}")).collect();
    api.lock().unwrap().nodes.extend(names.iter().map(|name| node(name, "Unknown")));
    controller.found_gone(&names[0], 610);
    let path = controller.root.path().join("run/slipway-manage/terminated_nodes.json");
    let mut seen: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let at = seen["lookedS"].clone();
    for name in &names {
        seen["goneS"][name] = at.clone();
    }
    std::fs::write(&path, seen.to_string()).unwrap();
    let account = Account { lacks: Some("i-0a1b2c3d4e5f6079"), ..Account::with("pool-general") };
    let said = controller.part(&account, "goneNodes").await;
    assert_eq!(said["gone"].as_array().unwrap().len(), 8, "{said}");
    assert_eq!(said["deleted"], json!(names[..5]), "{said}");
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
