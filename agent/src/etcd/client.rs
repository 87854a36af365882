//! A client of etcd over its JSON gateway, on the same port as gRPC, with mutual TLS.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Alarms, Members, Status};
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::http;

/// Longer than etcd's own limit: 5 s and two election timeouts.
const PATIENCE: Duration = Duration::from_secs(10);
const MESSAGE_LENGTH: usize = 300;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// No answer in time, or not one of etcd's.
    Unreachable(String),
    /// etcd's own message.
    Refused(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

pub type CallResult<T> = Result<T, CallError>;

/// A client with the member's own client certificate.
#[derive(Debug, Clone)]
pub struct EtcdClient {
    http: reqwest::Client,
}

#[derive(Debug, Clone)]
pub struct Endpoint {
    http: reqwest::Client,
    pub url: String,
}

impl EtcdClient {
    /// Reads the certificates in `pki` once.
    pub fn new(pki: &std::path::Path) -> AgentResult<Self> {
        let identity = (pki.join("healthcheck-client.pem"), pki.join("healthcheck-client-key.pem"));
        Self::with(&pki.join("etcd-ca.pem"), (&identity.0, &identity.1))
    }

    /// A client with another certificate and its key, such as the API server's.
    pub fn with(
        authority: &std::path::Path,
        identity: (&std::path::Path, &std::path::Path),
    ) -> AgentResult<Self> {
        let tls = http::mutual(authority, Some(identity))?;
        // Each call sets its own timeout.
        Ok(Self { http: http::client(tls, Duration::from_secs(24 * 3600))? })
    }

    #[must_use]
    pub fn endpoint(&self, url: &str) -> Endpoint {
        Endpoint { http: self.http.clone(), url: url.trim_end_matches('/').to_owned() }
    }
}

impl Endpoint {
    /// The member's own status; needs no majority.
    pub async fn status(&self) -> CallResult<Status> {
        self.call("maintenance/status", json!({}), PATIENCE).await
    }

    pub async fn status_within(&self, patience: Duration) -> CallResult<Status> {
        self.call("maintenance/status", json!({}), patience).await
    }

    /// Reads through a majority, so it succeeds only if the member serves.
    pub async fn serves(&self) -> CallResult<()> {
        // The key does not exist.
        self.call::<Value>("kv/range", json!({ "key": "AA==", "limit": 1, "keys_only": true }), PATIENCE)
            .await
            .map(drop)
    }

    /// All members. A learner does not answer.
    pub async fn members(&self) -> CallResult<Members> {
        self.call("cluster/member/list", json!({}), PATIENCE).await
    }

    pub async fn add_learner(&self, peer_url: &str) -> CallResult<Members> {
        self.call("cluster/member/add", json!({ "peerURLs": [peer_url], "isLearner": true }), PATIENCE).await
    }

    /// Gives a learner a vote. etcd refuses until it has caught up.
    pub async fn promote(&self, id: u64) -> CallResult<Members> {
        self.call("cluster/member/promote", json!({ "ID": id.to_string() }), PATIENCE).await
    }

    /// Removes a member. etcd refuses if too few of the others run.
    pub async fn remove(&self, id: u64) -> CallResult<Members> {
        self.call("cluster/member/remove", json!({ "ID": id.to_string() }), PATIENCE).await
    }

    pub async fn alarms(&self) -> CallResult<Alarms> {
        self.call("maintenance/alarm", json!({ "action": "GET" }), PATIENCE).await
    }

    /// Disarms the alarm `NOSPACE` of that member. One that is not raised is no error.
    pub async fn disarm_no_space(&self, member: u64) -> CallResult<()> {
        let request = json!({ "action": "DEACTIVATE", "memberID": member.to_string(), "alarm": "NOSPACE" });
        self.call::<Value>("maintenance/alarm", request, PATIENCE).await.map(drop)
    }

    /// Deletes the history before `revision` on all members, and waits until it is deleted on this one.
    pub async fn compact(&self, revision: u64, patience: Duration) -> CallResult<()> {
        let request = json!({ "revision": revision.to_string(), "physical": true });
        self.call::<Value>("kv/compaction", request, patience).await.map(drop)
    }

    /// Defragments this member, which does not serve meanwhile.
    pub async fn defragment(&self, patience: Duration) -> CallResult<()> {
        self.call::<Value>("maintenance/defragment", json!({}), patience).await.map(drop)
    }

    /// Hands leadership to `to`. Only the leader can.
    pub async fn move_leader(&self, to: u64) -> CallResult<()> {
        let request = json!({ "targetID": to.to_string() });
        self.call::<Value>("maintenance/transfer-leadership", request, PATIENCE).await.map(drop)
    }

    /// Starts a snapshot, which arrives as lines of JSON. The caller limits the time.
    pub async fn snapshot(&self) -> CallResult<reqwest::Response> {
        let request = self.http.post(format!("{}/v3/maintenance/snapshot", self.url)).json(&json!({}));
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    pub async fn gauge(&self, name: &str) -> CallResult<Option<u64>> {
        let request = self.http.get(format!("{}/metrics", self.url)).timeout(PATIENCE);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        let text = response.text().await.map_err(|error| self.unreachable(&error))?;
        Ok(gauge(&text, name))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        path: &str,
        body: impl Serialize,
        patience: Duration,
    ) -> CallResult<T> {
        let request = self.http.post(format!("{}/v3/{path}", self.url)).json(&body).timeout(patience);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        response.json().await.map_err(|error| self.unreachable(&error))
    }

    async fn refusal(&self, response: reqwest::Response) -> CallError {
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        // etcd 3.4 and 3.5 have both keys.
        let words = ["message", "error"].iter().find_map(|key| answer[key].as_str());
        match words {
            Some(words) => CallError::Refused(words.chars().take(MESSAGE_LENGTH).collect()),
            None => CallError::Unreachable(format!("{} answered {status}, and not as etcd does", self.url)),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> CallError {
        let cause = http::innermost_cause(error);
        CallError::Unreachable(format!("{} does not answer: {cause}", self.url))
    }
}

/// A gauge without labels in Prometheus' text format, where large values look like 2.147483648e+09.
fn gauge(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let value: f64 = value.trim().parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, far below 2^53")]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

#[must_use]
pub fn failed(refusal: &CallError, doing: &str) -> AgentError {
    match refusal {
        CallError::Unreachable(why) => AgentError::transient(
            FailureCode::EtcdUnreachable,
            format!("{doing}: {why}"),
            "see `systemctl status etcd` and `journalctl -u etcd` on the member, then run this again",
        ),
        CallError::Refused(why) => AgentError::transient(
            FailureCode::EtcdRefused,
            format!("{doing}: etcd says: {why}"),
            "see `/var/lib/slipway/slipway-node etcd health` on each member, then run this again",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::gauge;

    #[test]
    fn a_gauge_is_found_by_its_whole_name() {
        let text = "# TYPE a gauge\nab 3\na 2.147483648e+09\na{x=\"1\"} 5\n";
        assert_eq!(gauge(text, "a"), Some(2_147_483_648));
        assert_eq!(gauge(text, "b"), None);
        assert_eq!(gauge("a NaN\n", "a"), None);
    }
}
