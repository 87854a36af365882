//! A client of etcd over its gateway: JSON on the very port that serves gRPC, with mutual TLS.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wire::{Alarms, Members, Status};
use crate::failure::{Failure, FailureCode, Outcome};
use crate::http;

/// A call that answers from memory or from a majority; etcd itself gives up after 5 s and two election timeouts.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest words of etcd's that are passed on.
const WORDS: usize = 300;

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody answered in time, or not as etcd does.
    Unreachable(String),
    /// etcd said no, in these words.
    Refused(String),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

/// What a call gives.
pub type Answer<T> = Result<T, Refusal>;

/// Who calls: the member's own client certificate.
#[derive(Debug, Clone)]
pub struct Caller {
    http: reqwest::Client,
}

/// One member, by its address for clients.
#[derive(Debug, Clone)]
pub struct Endpoint {
    http: reqwest::Client,
    /// `https://…:2379`.
    pub url: String,
}

impl Caller {
    /// With the files in `pki`, as they are now.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn new(pki: &std::path::Path) -> Outcome<Self> {
        let identity = (pki.join("healthcheck-client.pem"), pki.join("healthcheck-client-key.pem"));
        let tls = http::mutual(&pki.join("etcd-ca.pem"), Some((&identity.0, &identity.1)))?;
        // Each call has its own patience.
        Ok(Self { http: http::client(tls, Duration::from_secs(24 * 3600))? })
    }

    /// The member at `url`.
    #[must_use]
    pub fn at(&self, url: &str) -> Endpoint {
        Endpoint { http: self.http.clone(), url: url.trim_end_matches('/').to_owned() }
    }
}

impl Endpoint {
    /// What it says of itself; it needs no majority.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn status(&self) -> Answer<Status> {
        self.call("maintenance/status", json!({}), PATIENCE).await
    }

    /// As [`Self::status`], of one that is asked in passing.
    ///
    /// # Errors
    /// If it does not answer in that time.
    pub async fn status_within(&self, patience: Duration) -> Answer<Status> {
        self.call("maintenance/status", json!({}), patience).await
    }

    /// Whether it serves: it reads through a majority.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn serves(&self) -> Answer<()> {
        // A key that nobody has.
        self.call::<Value>("kv/range", json!({ "key": "AA==", "limit": 1, "keys_only": true }), PATIENCE)
            .await
            .map(drop)
    }

    /// All members.
    ///
    /// # Errors
    /// If it does not answer; a learner never does.
    pub async fn members(&self) -> Answer<Members> {
        self.call("cluster/member/list", json!({}), PATIENCE).await
    }

    /// Adds a learner.
    ///
    /// # Errors
    /// If etcd refuses.
    pub async fn add_learner(&self, peer_url: &str) -> Answer<Members> {
        self.call("cluster/member/add", json!({ "peerURLs": [peer_url], "isLearner": true }), PATIENCE).await
    }

    /// Gives a learner a vote.
    ///
    /// # Errors
    /// If etcd refuses: it has not caught up.
    pub async fn promote(&self, id: u64) -> Answer<Members> {
        self.call("cluster/member/promote", json!({ "ID": id.to_string() }), PATIENCE).await
    }

    /// Takes a member out of the membership.
    ///
    /// # Errors
    /// If etcd refuses: too few of the others run.
    pub async fn remove(&self, id: u64) -> Answer<Members> {
        self.call("cluster/member/remove", json!({ "ID": id.to_string() }), PATIENCE).await
    }

    /// Every alarm in the cluster.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn alarms(&self) -> Answer<Alarms> {
        self.call("maintenance/alarm", json!({ "action": "GET" }), PATIENCE).await
    }

    /// Hands leadership to `to`; only the leader can.
    ///
    /// # Errors
    /// If etcd refuses.
    pub async fn move_leader(&self, to: u64) -> Answer<()> {
        let request = json!({ "targetID": to.to_string() });
        self.call::<Value>("maintenance/transfer-leadership", request, PATIENCE).await.map(drop)
    }

    /// Begins a snapshot: lines of JSON, each a piece. How long it may take is the caller's to say.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn snapshot(&self) -> Answer<reqwest::Response> {
        let request = self.http.post(format!("{}/v3/maintenance/snapshot", self.url)).json(&json!({}));
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    /// A gauge among its metrics.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn gauge(&self, name: &str) -> Answer<Option<u64>> {
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
    ) -> Answer<T> {
        let request = self.http.post(format!("{}/v3/{path}", self.url)).json(&body).timeout(patience);
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        response.json().await.map_err(|error| self.unreachable(&error))
    }

    async fn refusal(&self, response: reqwest::Response) -> Refusal {
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        let said: Value = serde_json::from_str(&text).unwrap_or_default();
        // 3.4 and 3.5 say it twice, newer ones once.
        let words = ["message", "error"].iter().find_map(|key| said[key].as_str());
        match words {
            Some(words) => Refusal::Refused(words.chars().take(WORDS).collect()),
            None => Refusal::Unreachable(format!("{} answered {status}, and not as etcd does", self.url)),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Refusal {
        // The innermost cause says what happened: "connection refused", not "error sending request".
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Refusal::Unreachable(format!("{} does not answer: {cause}", self.url))
    }
}

/// The value of a gauge without labels in Prometheus' text, which writes large ones as 2.147483648e+09.
fn gauge(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let value: f64 = value.trim().parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes, far below 2^53")]
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// As a verb tells it, if asking again may help.
#[must_use]
pub fn failed(refusal: &Refusal, doing: &str) -> Failure {
    match refusal {
        Refusal::Unreachable(why) => Failure::passing(
            FailureCode::EtcdUnreachable,
            format!("{doing}: {why}"),
            "see `systemctl status etcd` and `journalctl -u etcd` on the member, then run this again",
        ),
        Refusal::Refused(why) => Failure::passing(
            FailureCode::EtcdRefused,
            format!("{doing}: etcd says: {why}"),
            "see `slipway-node etcd health` on each member, then run this again",
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
