//! The load balancer in front of the API: forwards TCP from the listener's port to the targets of its group, which it checks as the
//! target group says (Elastic Load Balancing, "Health checks for Network Load Balancer target groups").
//!
//! Targets are what the simulated Auto Scaling has in service. A check is really made, and the world learns what came of it
//! (`World::machine_answers`), from which it counts thresholds as ever. Where no target is healthy it sends to all of them.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::network::BALANCER;
use super::state::State;

const LISTENER: &str = "AWS::ElasticLoadBalancingV2::Listener";
const TARGETS: &str = "AWS::ElasticLoadBalancingV2::TargetGroup";
/// The role whose machines are targets.
const CONTROLLER: &str = "controller";
/// How often it looks whether there is a listener.
const LOOKS: Duration = Duration::from_secs(2);
/// botocore, `CreateTargetGroup`: what is checked by if nothing is said.
const INTERVAL_S: u64 = 30;
const PASSES: u32 = 5;
const FAILURES: u32 = 2;

/// A target's last checks.
#[derive(Debug, Clone, Copy, Default)]
struct Checked {
    healthy: bool,
    passed: u32,
    failed: u32,
}

type Health = Arc<Mutex<BTreeMap<String, Checked>>>;

/// Balances from when a listener exists, until the task is dropped.
#[must_use]
pub fn serve(state: Arc<State>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let port = loop {
            let listeners = state.world().resources_of_type(LISTENER);
            if let Some(port) = listeners.values().find_map(|listener| number(&listener["Port"])) {
                break port;
            }
            tokio::time::sleep(LOOKS).await;
        };
        let health = Health::default();
        let Ok(port) = u16::try_from(port) else { return };
        let Ok(listener) = TcpListener::bind((BALANCER, port)).await else { return };
        tokio::join!(check(&state, &health), forward(&state, &health, listener));
    })
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn settings(state: &State) -> Value {
    state.world().resources_of_type(TARGETS).into_values().next().unwrap_or_default()
}

/// The controllers that are in service: id and address.
fn targets(state: &State) -> Vec<(String, Ipv4Addr)> {
    let machines = state.world().machines();
    let serving = machines.iter().filter(|machine| machine.role == CONTROLLER && machine.serves);
    serving.filter_map(|machine| Some((machine.id.clone(), state.guest(&machine.id)?.address))).collect()
}

async fn check(state: &State, health: &Health) {
    loop {
        let group = settings(state);
        let interval = number(&group["HealthCheckIntervalSeconds"]).unwrap_or(INTERVAL_S);
        let threshold = |name: &str, default: u32| {
            number(&group[name]).and_then(|count| u32::try_from(count).ok()).unwrap_or(default)
        };
        let (passes, failures) =
            (threshold("HealthyThresholdCount", PASSES), threshold("UnhealthyThresholdCount", FAILURES));
        let port = number(&group["HealthCheckPort"]).or(number(&group["Port"])).unwrap_or_default();
        let path = group["HealthCheckPath"].as_str().unwrap_or("/").to_owned();
        let targets = targets(state);
        health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|id, _| targets.iter().any(|(one, _)| one == id));
        for (id, address) in targets {
            let answers = answers(&format!("https://{address}:{port}{path}")).await;
            state.world().machine_answers(&id, answers);
            let mut health = health.lock().unwrap_or_else(PoisonError::into_inner);
            let checked = health.entry(id).or_default();
            (checked.passed, checked.failed) =
                if answers { (checked.passed + 1, 0) } else { (0, checked.failed + 1) };
            checked.healthy =
                if checked.healthy { checked.failed < failures } else { checked.passed >= passes };
        }
        tokio::time::sleep(Duration::from_secs(interval)).await;
    }
}

/// A check asks for no certificate that it knows, and takes 200 to 399 for an answer.
async fn answers(url: &str) -> bool {
    let mut command = Command::new("curl");
    command.args(["-sk", "-m", "5", "-o", "/dev/null", "-w", "%{http_code}", url]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true).output().await;
    output.is_ok_and(|output| output.stdout.starts_with(b"2") || output.stdout.starts_with(b"3"))
}

async fn forward(state: &Arc<State>, health: &Health, listener: TcpListener) {
    let mut turn = 0_usize;
    loop {
        let Ok((mut from, _)) = listener.accept().await else { continue };
        let all = targets(state);
        let healthy: Vec<_> = {
            let health = health.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter()
                .filter(|(id, _)| health.get(id).is_some_and(|checked| checked.healthy))
                .cloned()
                .collect()
        };
        let open = if healthy.is_empty() { all } else { healthy };
        let Some((_, address)) = open.get(turn % open.len().max(1)).cloned() else { continue };
        turn = turn.wrapping_add(1);
        let port = number(&settings(state)["Port"]).and_then(|port| u16::try_from(port).ok()).unwrap_or(6443);
        tokio::spawn(async move {
            let forwarded: io::Result<()> = async {
                let mut to = TcpStream::connect((address, port)).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await.map(drop)
            }
            .await;
            // Whoever connected sees that it ended.
            drop(forwarded);
        });
    }
}
