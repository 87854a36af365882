//! Who is asked besides the API server: S3 for the add-ons, EC2 for the machines behind nodes.

use std::collections::BTreeMap;
use std::future::Future;

use slipway_ports::{ErrorKind, PortError};

use super::judge::Machine;
use crate::aws::{Aws, BucketOfAssets};
use crate::failure::{Failure, FailureCode, Outcome};

/// Where documents are.
pub trait Library: Sync {
    /// The document of that key; `None` if there is none, or none for us.
    fn get(&self, key: &str) -> impl Future<Output = Outcome<Option<Vec<u8>>>> + Send;
}

/// Who knows machines.
pub trait Cloud: Sync {
    /// The machines of those ids that there are.
    fn machines(&self, ids: &[&str]) -> impl Future<Output = Outcome<BTreeMap<String, Machine>>> + Send;
}

impl Library for BucketOfAssets {
    async fn get(&self, key: &str) -> Outcome<Option<Vec<u8>>> {
        match BucketOfAssets::get(self, key).await {
            Ok(found) => Ok(found),
            // A node may not list, and S3 tells it of what is absent as of what is forbidden.
            Err(error) if error.kind == ErrorKind::Denied => Ok(None),
            Err(error) => Err(failure(&error)),
        }
    }
}

impl Cloud for Aws {
    async fn machines(&self, ids: &[&str]) -> Outcome<BTreeMap<String, Machine>> {
        Aws::machines(self, ids).await.map_err(|error| failure(&error))
    }
}

fn failure(error: &PortError) -> Failure {
    let message = error.to_string();
    if error.kind == ErrorKind::Transient {
        return Failure::passing(FailureCode::ManageAws, message, "it is tried again with the next pass");
    }
    Failure::lasting(
        FailureCode::ManageAws,
        message,
        "the controllers' role must allow it: launch the cluster's stacks as they are rendered now",
    )
}
