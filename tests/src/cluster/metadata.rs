//! The metadata service as all machines see it, each by its own address; and below a path of its own what Systems Manager and its agent
//! tell each other (`tests/cluster/image/ssm-agent.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State as Extract};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use slipway_sim::Ended;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::network::{METADATA, mac};
use super::state::{Guest, State};
use crate::client::ACCOUNT;
use crate::imds::SECRET;

const TOKEN: &str = "a-session-token-of-imds";
const COMMANDS: &str = "/slipway-tests/run-command/";
/// How long an agent waits for something to do.
const LONG_POLL: Duration = Duration::from_secs(20);

/// Answers at EC2's own address, until the task is dropped.
///
/// # Errors
/// If the port cannot be had.
pub async fn serve(state: Arc<State>) -> io::Result<JoinHandle<()>> {
    let listener = TcpListener::bind((METADATA, 80)).await?;
    let app = Router::new().fallback(answer).with_state(state);
    Ok(tokio::spawn(async move {
        // It ends with the task.
        let _ = axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await;
    }))
}

async fn answer(
    Extract(state): Extract<Arc<State>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let IpAddr::V4(address) = peer.ip() else { return StatusCode::NOT_FOUND.into_response() };
    let Some(guest) = state.guest_at(address) else { return StatusCode::NOT_FOUND.into_response() };
    if let Some(what) = uri.path().strip_prefix(COMMANDS) {
        return commands(&state, &guest, what, &body).await;
    }
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if method == Method::PUT && uri.path() == "/latest/api/token" {
        return match header("x-aws-ec2-metadata-token-ttl-seconds") {
            // cloud-init wants its own header back.
            Some(ttl) => ([("x-aws-ec2-metadata-token-ttl-seconds", ttl.to_owned())], TOKEN).into_response(),
            None => StatusCode::BAD_REQUEST.into_response(),
        };
    }
    // Version 1 is off, as our launch templates have it.
    if header("x-aws-ec2-metadata-token") != Some(TOKEN) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    // Whatever version is asked for.
    let path = uri.path().trim_start_matches('/').split_once('/').map_or("", |(_, path)| path);
    match path {
        "user-data" => guest.userdata.into_response(),
        "dynamic/instance-identity/document" => identity(&state, &guest).to_string().into_response(),
        "dynamic" | "dynamic/" => "instance-identity/".into_response(),
        "dynamic/instance-identity" | "dynamic/instance-identity/" => "document".into_response(),
        _ => match path
            .strip_prefix("meta-data")
            .and_then(|path| metadata_at(&state, &guest, path.trim_start_matches('/')))
        {
            Some(text) => text.into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

/// The access key of a machine's credentials: each machine has its own.
pub(super) fn access_key(machine: &str) -> String {
    format!("ASIA{}", machine.trim_start_matches("i-").to_ascii_uppercase())
}

fn identity(state: &State, guest: &Guest) -> Value {
    json!({
        "accountId": ACCOUNT, "architecture": "x86_64", "availabilityZone": guest.zone, "imageId": "ami-0123456789abcdef0",
        "instanceId": guest.id, "instanceType": guest.instance_type, "privateIp": guest.address.to_string(),
        "region": state.region, "version": "2017-09-30",
    })
}

/// What is told at `path`: a value, or what is in a folder.
fn metadata_at(state: &State, guest: &Guest, path: &str) -> Option<String> {
    let facts = facts(state, guest);
    if let Some(value) = facts.get(path) {
        return Some(value.clone());
    }
    let folder = if path.is_empty() || path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
    let inside: BTreeSet<String> = facts
        .keys()
        .filter_map(|name| name.strip_prefix(&folder))
        .filter(|rest| !rest.is_empty())
        .map(|rest| rest.split_once('/').map_or_else(|| rest.to_owned(), |(first, _)| format!("{first}/")))
        .collect();
    (!inside.is_empty()).then(|| inside.into_iter().collect::<Vec<_>>().join("\n"))
}

fn facts(state: &State, guest: &Guest) -> BTreeMap<String, String> {
    let (address, name, mac) = (guest.address.to_string(), guest.dns_name(&state.region), mac(guest.address));
    let credentials = json!({
        "Code": "Success", "Type": "AWS-HMAC", "AccessKeyId": access_key(&guest.id), "SecretAccessKey": SECRET,
        "Token": "session+token/==", "LastUpdated": "2026-11-20T12:00:00Z", "Expiration": "2099-01-01T00:00:00Z",
    });
    let mut facts: BTreeMap<String, String> = [
        ("ami-id", "ami-0123456789abcdef0".to_owned()),
        ("hostname", name.clone()),
        ("iam/security-credentials/", guest.node_role.clone()),
        ("instance-id", guest.id.clone()),
        ("instance-life-cycle", if guest.is_spot { "spot" } else { "on-demand" }.to_owned()),
        ("instance-type", guest.instance_type.clone()),
        ("local-hostname", name.clone()),
        ("local-ipv4", address.clone()),
        ("mac", mac.clone()),
        ("placement/availability-zone", guest.zone.clone()),
        ("placement/region", state.region.clone()),
        ("reservation-id", "r-0123456789abcdef0".to_owned()),
        ("services/domain", "amazonaws.com".to_owned()),
        ("services/partition", "aws".to_owned()),
    ]
    .map(|(path, value)| (path.to_owned(), value))
    .into();
    facts.insert(format!("iam/security-credentials/{}", guest.node_role), credentials.to_string());
    for (path, value) in [
        ("device-number", "0".to_owned()),
        ("interface-id", format!("eni-0{}", guest.id.trim_start_matches("i-0"))),
        ("local-hostname", name),
        ("local-ipv4s", address),
        ("mac", mac.clone()),
        ("owner-id", ACCOUNT.to_owned()),
        ("subnet-id", guest.subnet.clone()),
        ("subnet-ipv4-cidr-block", "10.0.0.0/16".to_owned()),
        ("vpc-id", "vpc-0123456789abcdef0".to_owned()),
        ("vpc-ipv4-cidr-block", "10.0.0.0/16".to_owned()),
        ("vpc-ipv4-cidr-blocks", "10.0.0.0/16".to_owned()),
    ] {
        facts.insert(format!("network/interfaces/macs/{mac}/{path}"), value);
    }
    facts
}

/// What the agent of a machine asks, and what it tells.
async fn commands(state: &State, guest: &Guest, what: &str, body: &[u8]) -> Response {
    match what {
        "next" => {
            state.world().machine_is_up(&guest.id);
            let rung = state.command_added.notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let mut commands = state.take_commands(&guest.id);
            if commands.is_empty() {
                let _ = tokio::time::timeout(LONG_POLL, rung).await;
                commands = state.take_commands(&guest.id);
            }
            json!({ "commands": commands }).to_string().into_response()
        }
        "ended" => {
            let told: Value = serde_json::from_slice(body).unwrap_or_default();
            if state.waiting.take(&told) {
                return "{}".into_response();
            }
            let ended = Ended {
                code: told["code"].as_i64().and_then(|code| i32::try_from(code).ok()).unwrap_or(-1),
                output: told["stdout"].as_str().unwrap_or_default().to_owned(),
                timed_out: told["timedOut"] == true,
            };
            state.world().command_ended(told["id"].as_str().unwrap_or_default(), ended);
            "{}".into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}
