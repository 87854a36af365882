//! What was applied, written where every controller sees it.
//!
//! It says three things. **When** the add-ons were last applied, so that of several controllers one does it. **Of which
//! generation** they are: a controller that still holds an older pointer in its hand must not undo what a later one brought. And
//! **which kinds** were ever applied, as those alone are looked through for what is no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};

use crate::api::{failed, status};
use crate::failure::{Failure, FailureCode, Outcome};

const NAME: &str = "slipway-addons";
const NAMESPACE: &str = "kube-system";
const KEY: &str = "ledger.json";

/// The ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ledger {
    /// The rollout that switched to what was begun last.
    pub(super) generation: u64,
    /// The digest of what was applied last, whole; empty while something is missing.
    pub(super) digest: String,
    /// When that was.
    pub(super) applied_at: Option<Timestamp>,
    /// `apiVersion` and `kind`, of all that was ever applied.
    pub(super) kinds: BTreeSet<(String, String)>,
    /// The add-ons and their versions.
    pub(super) addons: BTreeMap<String, String>,
    /// What was tried last, while something of it cannot be applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<Failed>,
}

/// A try that brought not all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Failed {
    /// Of what.
    pub(super) digest: String,
    /// How many there were.
    pub(super) tries: u32,
    /// When the last one ended.
    pub(super) at: Timestamp,
}

/// The first pause after a try that failed; they double up to as long as what was applied is left alone.
const PAUSE: SignedDuration = SignedDuration::from_secs(10);

impl Ledger {
    /// Whether what is of `digest` failed so lately that it is not tried again yet: each try is hundreds of calls, for all that is
    /// well too.
    pub(super) fn rests(&self, digest: &str, now: Timestamp, longest: SignedDuration) -> bool {
        self.failed.as_ref().filter(|failed| failed.digest == digest).is_some_and(|failed| {
            let doubled = 2_i32.saturating_pow(failed.tries.saturating_sub(1).min(10));
            let pause = PAUSE.saturating_mul(doubled).min(longest);
            let age = now.duration_since(failed.at);
            // As in `is_fresh`, of a clock that was ahead.
            age < pause && age > -pause
        })
    }

    /// One more try of `digest` that failed.
    pub(super) fn fails(&mut self, digest: &str, at: Timestamp) {
        let before = self.failed.as_ref().filter(|failed| failed.digest == digest);
        let tries = before.map_or(0, |failed| failed.tries).saturating_add(1);
        self.failed = Some(Failed { digest: digest.to_owned(), tries, at });
    }

    /// Whether what is of `digest` was applied less than `ago` before `now`.
    pub(super) fn is_fresh(&self, digest: &str, now: Timestamp, ago: SignedDuration) -> bool {
        // A clock that was ahead must not keep the others from it.
        let age = self.applied_at.map(|at| now.duration_since(at));
        self.digest == digest && age.is_some_and(|age| age < ago && age > -ago)
    }
}

/// The ledger as read, to be written back under the same version.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) ledger: Ledger,
    version: Option<String>,
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// Reads it; an empty one if there is none.
pub(super) async fn read(client: &Client) -> Outcome<Kept> {
    let what = format!("{NAMESPACE}/{NAME}");
    let found = maps(client).get_opt(NAME).await.map_err(|error| failed(&what, &error))?;
    let Some(found) = found else { return Ok(Kept { ledger: Ledger::default(), version: None }) };
    let text = found.data.unwrap_or_default().remove(KEY).unwrap_or_default();
    let ledger = serde_json::from_str(&text).map_err(|error| {
        Failure::lasting(
            FailureCode::ManageLedger,
            format!("the ConfigMap {what} cannot be read: {error}"),
            "delete it: what it no longer names is left in the cluster, all else is applied again",
        )
    })?;
    Ok(Kept { ledger, version: found.metadata.resource_version })
}

impl Kept {
    /// Writes it back. `false`: somebody else was first.
    pub(super) async fn write(&mut self, client: &Client) -> Outcome<bool> {
        let text = serde_json::to_string_pretty(&self.ledger).expect("a ledger is JSON");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(NAME.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let written = match &self.version {
            None => maps(client).create(&PostParams::default(), &map).await,
            Some(_) => maps(client).replace(NAME, &PostParams::default(), &map).await,
        };
        match written {
            Ok(written) => {
                self.version = written.metadata.resource_version;
                Ok(true)
            }
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(failed(&format!("{NAMESPACE}/{NAME}"), &error)),
        }
    }
}
