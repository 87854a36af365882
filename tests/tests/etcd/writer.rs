//! A client that writes steadily while members come and go, and remembers the acknowledged writes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_node::failure::AgentResult;
use slipway_node::http;
use tokio::task::JoinHandle;

use super::member::Member;

/// The timeout of one write before the next endpoint is tried.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);
const PREFIX: &str = "writer/";

/// The result. `acknowledged` has the writes that etcd acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Value by key.
    acknowledged: BTreeMap<String, String>,
    /// The number of failed tries, after which the same key was written to the next endpoint.
    pub(crate) retried: usize,
    /// The longest time without an acknowledgement.
    pub(crate) gap: Duration,
    /// The revision of the last acknowledgement.
    pub(crate) revision: u64,
}

pub(crate) struct Writer {
    done: Arc<AtomicBool>,
    task: JoinHandle<Record>,
}

/// A client with a new connection for each call, so that each certificate is used in many handshakes.
pub(crate) fn client(pki: &Path) -> AgentResult<reqwest::Client> {
    let identity = (pki.join("healthcheck-client.pem"), pki.join("healthcheck-client-key.pem"));
    let mut tls = http::mutual(&pki.join("etcd-ca.pem"), Some((&identity.0, &identity.1)))?;
    tls.resumption = rustls::client::Resumption::disabled();
    let builder = reqwest::Client::builder().use_preconfigured_tls(tls).timeout(PATIENCE).no_proxy();
    Ok(builder.pool_max_idle_per_host(0).build().unwrap())
}

impl Writer {
    /// Starts to write to whichever of `members` answers, with the client certificate in `pki`.
    pub(crate) fn start(pki: &Path, members: impl Iterator<Item = String>) -> Self {
        let (urls, done) = (members.collect::<Vec<_>>(), Arc::new(AtomicBool::new(false)));
        let task = tokio::spawn(write(pki.to_owned(), urls, Arc::clone(&done)));
        Self { done, task }
    }

    /// Stops after an acknowledged write.
    pub(crate) async fn stop(self) -> Record {
        self.done.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

async fn write(pki: PathBuf, urls: Vec<String>, done: Arc<AtomicBool>) -> Record {
    let (mut record, mut at, mut last) = (Record::default(), 0, Instant::now());
    let mut client = self::client(&pki).unwrap();
    for number in 0_u32.. {
        let (key, value) = (format!("{PREFIX}{number:08}"), format!("value of {number}"));
        let body = json!({ "key": STANDARD.encode(&key), "value": STANDARD.encode(&value) });
        loop {
            // The present files, because the node beside it may be refreshed. The files may be swapped between two reads.
            if let Ok(newer) = self::client(&pki) {
                client = newer;
            }
            let request = client.post(format!("{}/v3/kv/put", urls[at % urls.len()])).json(&body);
            let answer = async { request.send().await?.error_for_status()?.json::<Value>().await }.await;
            let revision = answer.ok().and_then(|answer| answer["header"]["revision"].as_str()?.parse().ok());
            if let Some(revision) = revision {
                record.revision = revision;
                break;
            }
            record.retried += 1;
            at += 1;
            tokio::time::sleep(PAUSE).await;
        }
        record.gap = record.gap.max(last.elapsed());
        last = Instant::now();
        record.acknowledged.insert(key, value);
        if done.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    record
}

impl Record {
    pub(crate) fn writes(&self) -> usize {
        self.acknowledged.len()
    }

    /// The acknowledged writes that `member` does not have.
    pub(crate) async fn lost(&self, member: &Member) -> Vec<String> {
        let end = format!("{}0", PREFIX.trim_end_matches('/'));
        let body = json!({ "key": STANDARD.encode(PREFIX), "range_end": STANDARD.encode(end) });
        let url = format!("{}/v3/kv/range", member.client_url());
        let answer = client(&member.pki)
            .unwrap()
            .post(url)
            .json(&body)
            .timeout(Duration::from_secs(20))
            .send()
            .await
            .unwrap();
        let answer: Value = answer.json().await.unwrap();
        let text =
            |value: &Value| String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap();
        let kvs = answer["kvs"].as_array().cloned().unwrap_or_default();
        let found: BTreeMap<String, String> =
            kvs.iter().map(|one| (text(&one["key"]), text(&one["value"]))).collect();
        let lost = self.acknowledged.iter().filter(|(key, value)| found.get(*key) != Some(*value));
        lost.map(|(key, _)| key.clone()).collect()
    }
}
