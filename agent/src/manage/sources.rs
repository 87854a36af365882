//! What a pass reads besides the API server: add-ons from S3, instances from EC2. Traits, so that tests replace them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

use jiff::Timestamp;
use slipway_ports::{ErrorKind, PortError};

use super::judge::{Machine, role_of};
use crate::aws::{Aws, BucketOfAssets};
use crate::failure::{AgentError, AgentResult, FailureCode};

pub trait Library: Sync {
    /// The object at `key`; `None` if it is missing or denied.
    fn get(&self, key: &str) -> impl Future<Output = AgentResult<Option<Vec<u8>>>> + Send;
}

pub trait Cloud: Sync {
    /// The existing instances among `ids`.
    fn machines(&self, ids: &[&str]) -> impl Future<Output = AgentResult<BTreeMap<String, Machine>>> + Send;

    /// The roles of the instances of `cluster` that were started lately, as their tags name them.
    fn starting_roles(
        &self,
        cluster: &str,
        now: Timestamp,
    ) -> impl Future<Output = AgentResult<BTreeSet<String>>> + Send;

    /// Tells Auto Scaling that an instance is unhealthy. The inner error says why it does not take that.
    fn report_unhealthy(&self, id: &str) -> impl Future<Output = AgentResult<Result<(), String>>> + Send;
}

impl Library for BucketOfAssets {
    async fn get(&self, key: &str) -> AgentResult<Option<Vec<u8>>> {
        match BucketOfAssets::get(self, key).await {
            Ok(found) => Ok(found),
            // A node may not list the bucket, so S3 denies it missing objects.
            Err(error) if error.kind == ErrorKind::Denied => Ok(None),
            Err(error) => Err(failure(&error)),
        }
    }
}

impl Cloud for Aws {
    async fn machines(&self, ids: &[&str]) -> AgentResult<BTreeMap<String, Machine>> {
        Aws::machines(self, ids).await.map_err(|error| failure(&error))
    }

    async fn starting_roles(&self, cluster: &str, now: Timestamp) -> AgentResult<BTreeSet<String>> {
        let started = Aws::started_lately(self, cluster, now).await.map_err(|error| failure(&error))?;
        Ok(started
            .iter()
            .filter_map(|machine| role_of(machine, cluster))
            .map(|role| role.to_string())
            .collect())
    }

    async fn report_unhealthy(&self, id: &str) -> AgentResult<Result<(), String>> {
        Aws::report_unhealthy(self, id).await.map_err(|error| failure(&error))
    }
}

fn failure(error: &PortError) -> AgentError {
    let message = error.to_string();
    if error.kind == ErrorKind::Transient {
        return AgentError::transient(FailureCode::ManageAws, message, "the next pass tries again");
    }
    AgentError::permanent(
        FailureCode::ManageAws,
        message,
        "the controllers' role must allow it: update the cluster's stacks",
    )
}
