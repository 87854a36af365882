//! What no add-on has any more is deleted, but by nobody who has missed that a later rollout has begun.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Json;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_node::failure::AgentResult;
use slipway_node::manage::Library;
use tokio::net::TcpListener;

use crate::repairing::{Account, Controller, refused};

const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// An API server that has ConfigMaps only, one of which no add-on has any more.
#[derive(Debug, Default)]
struct ApiState {
    ledger: Option<Value>,
    version: u64,
    /// Another controller begins a later generation while this one applies its objects.
    is_overtaken: bool,
    applied: usize,
    deleted: Vec<String>,
}

impl ApiState {
    fn write(&mut self, mut map: Value) -> Value {
        self.version += 1;
        map["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.ledger = Some(map.clone());
        map
    }

    fn begin_the_next_generation(&mut self) {
        let mut map = self.ledger.clone().unwrap();
        let text = map["data"]["ledger.json"].as_str().unwrap();
        let mut ledger: Value = serde_json::from_str(text).unwrap();
        ledger["generation"] = json!(ledger["generation"].as_u64().unwrap() + 1);
        map["data"]["ledger.json"] = json!(ledger.to_string());
        self.write(map);
    }
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

async fn answer(State(api): State<Api>, request: Request) -> (StatusCode, Json<Value>) {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let mut held = api.lock().unwrap();
    let given = || serde_json::from_slice::<Value>(&body).unwrap();
    let name = parts.uri.path().strip_prefix(&format!("{MAPS}/"));
    let answer = match (parts.method.as_str(), parts.uri.path(), name) {
        ("GET", "/api/v1", _) => {
            let verbs = ["get", "list", "patch", "delete"];
            let maps = json!({ "name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": verbs });
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [maps] })
        }
        ("GET", "/api/v1/configmaps", _) => {
            let ours = json!({ "manager": "slipway", "operation": "Apply" });
            let metadata =
                json!({ "namespace": "kube-system", "name": "old", "uid": "u", "managedFields": [ours] });
            let old = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata });
            json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [old] })
        }
        ("GET", _, Some("slipway-addons")) => match held.ledger.clone() {
            None => return refused(404),
            Some(ledger) => ledger,
        },
        ("POST", MAPS, _) | ("PUT", _, Some("slipway-addons")) => {
            let version = held.ledger.as_ref().map(|ledger| ledger["metadata"]["resourceVersion"].clone());
            if version.unwrap_or_default() != given()["metadata"]["resourceVersion"] {
                return refused(409);
            }
            held.write(given())
        }
        ("PATCH", _, Some("wanted")) => {
            held.applied += 1;
            if held.is_overtaken {
                held.begin_the_next_generation();
            }
            given()
        }
        ("DELETE", _, Some(name)) => {
            held.deleted.push(name.to_owned());
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })
        }
        _ => return refused(404),
    };
    (StatusCode::OK, Json(answer))
}

/// The add-ons of the first generation.
struct Addons;

impl Library for Addons {
    async fn get(&self, key: &str) -> AgentResult<Option<Vec<u8>>> {
        let wanted = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "kube-system", "name": "wanted" } });
        let addon = json!({ "name": "a", "version": "", "objects": [wanted] });
        let file = json!({ "format": 1, "addons": [addon] }).to_string();
        let digest = sha256_hex(file.as_bytes());
        let pointer = json!({ "format": 1, "digest": digest, "release": "r", "generation": 1 });
        Ok(if key == keys::addons_pointer("c") {
            Some(pointer.to_string().into_bytes())
        } else {
            (key == keys::addons("c", &digest)).then(|| file.into_bytes())
        })
    }
}

#[tokio::test]
async fn a_controller_that_a_later_rollout_overtook_deletes_no_object() {
    for (is_overtaken, deleted) in [(false, vec!["old"]), (true, vec![])] {
        let (url, api) = start().await;
        api.lock().unwrap().is_overtaken = is_overtaken;
        let account = Account::with("pool-general");
        let said = Controller::new(&url, 0).part_with(&Addons, &account, "addons").await;
        let held = api.lock().unwrap();
        assert_eq!(
            (held.applied, held.deleted.iter().map(String::as_str).collect::<Vec<_>>()),
            (1, deleted),
            "{is_overtaken}: {said}"
        );
    }
}
