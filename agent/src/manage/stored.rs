//! Records in ConfigMaps that all controllers share, each written back under the resource version that was read: of several controllers one
//! is first.

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{failed, status};
use crate::failure::{AgentError, AgentResult, FailureCode};

const NAMESPACE: &str = "kube-system";
const KEY: &str = "ledger.json";

/// What such a record holds; the default is that of a cluster that has none yet.
pub(super) trait Record: Default + Serialize + DeserializeOwned {
    /// The name of its ConfigMap.
    const NAME: &'static str;
    /// The code of the failure if it cannot be read, and what to do then.
    const CODE: FailureCode;
    const HELP: &'static str;
}

/// A record with the resource version under which it must be written back.
#[derive(Debug)]
pub(super) struct Stored<T> {
    pub(super) record: T,
    version: Option<String>,
}

fn maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), NAMESPACE)
}

/// The stored record, or an empty one.
pub(super) async fn read<T: Record>(client: &Client) -> AgentResult<Stored<T>> {
    let what = format!("{NAMESPACE}/{}", T::NAME);
    let found = maps(client).get_opt(T::NAME).await.map_err(|error| failed(&what, &error))?;
    let Some(found) = found else { return Ok(Stored { record: T::default(), version: None }) };
    let text = found.data.unwrap_or_default().remove(KEY).unwrap_or_default();
    let record = serde_json::from_str(&text).map_err(|error| {
        AgentError::permanent(T::CODE, format!("the ConfigMap {what} cannot be read: {error}"), T::HELP)
    })?;
    Ok(Stored { record, version: found.metadata.resource_version })
}

impl<T: Record> Stored<T> {
    /// Writes it back; `false` if another controller was first.
    pub(super) async fn write(&mut self, client: &Client) -> AgentResult<bool> {
        let text = serde_json::to_string_pretty(&self.record).expect("a record has string keys only");
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(T::NAME.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                resource_version: self.version.clone(),
                ..ObjectMeta::default()
            },
            data: Some([(KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        };
        let written = match &self.version {
            None => maps(client).create(&PostParams::default(), &map).await,
            Some(_) => maps(client).replace(T::NAME, &PostParams::default(), &map).await,
        };
        match written {
            Ok(written) => {
                self.version = written.metadata.resource_version;
                Ok(true)
            }
            Err(error) if matches!(status(&error), Some(404 | 409)) => Ok(false),
            Err(error) => Err(failed(&format!("{NAMESPACE}/{}", T::NAME), &error)),
        }
    }
}
