//! SSM parameters in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use slipway_ports::{Parameters, PortResult, Secret, SecretParameter};

use super::faults::{Faults, Journal, call, lock};

/// A parameter store.
#[derive(Debug, Clone, Default)]
pub struct MemoryParameters {
    values: Arc<Mutex<BTreeMap<String, String>>>,
    /// The parameters of type SecureString.
    secrets: Arc<Mutex<BTreeMap<String, Secret>>>,
    /// The value of every other parameter.
    otherwise: Option<String>,
    journal: Journal,
    faults: Faults,
}

impl MemoryParameters {
    /// A store with these values.
    #[must_use]
    pub fn new<'a>(values: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let store = Self::default();
        for (name, value) in values {
            store.set(name, value);
        }
        store
    }

    /// A store in which every parameter has this value.
    #[must_use]
    pub fn always(value: &str) -> Self {
        Self { otherwise: Some(value.to_owned()), ..Self::default() }
    }

    /// Another store with the same values, and a journal and faults of its own.
    #[must_use]
    pub fn fork(&self) -> Self {
        let (values, secrets) = (lock(&self.values).clone(), lock(&self.secrets).clone());
        let (values, secrets) = (Arc::new(Mutex::new(values)), Arc::new(Mutex::new(secrets)));
        Self { values, secrets, otherwise: self.otherwise.clone(), ..Self::default() }
    }

    /// Sets a parameter, as its owner does.
    pub fn set(&self, name: &str, value: &str) {
        lock(&self.values).insert(name.to_owned(), value.to_owned());
    }

    /// Sets a SecureString, as its owner does.
    pub fn set_secret(&self, name: &str, value: &str) {
        lock(&self.secrets).insert(name.to_owned(), Secret::new(value.as_bytes().to_vec()));
    }

    /// The calls that the store received: `ssm:GetParameter`, by name.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Plans faults. The subject of a fault is a parameter's name.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Parameters for MemoryParameters {
    async fn value(&self, name: &str) -> PortResult<Option<String>> {
        call(&self.journal, &self.faults, "ssm:GetParameter", name, || {
            Ok(lock(&self.values).get(name).cloned().or_else(|| self.otherwise.clone()))
        })
    }

    async fn secret(&self, name: &str) -> PortResult<SecretParameter> {
        call(&self.journal, &self.faults, "ssm:GetParameter", name, || {
            let secret = lock(&self.secrets).get(name).cloned().map(SecretParameter::Secret);
            let plain = || lock(&self.values).contains_key(name);
            Ok(secret
                .unwrap_or_else(|| if plain() { SecretParameter::Plain } else { SecretParameter::Missing }))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn a_parameter_is_read_by_its_name() {
        let store = MemoryParameters::new([("/aws/image", "ami-1")]);
        assert_eq!(store.value("/aws/image").await.unwrap().as_deref(), Some("ami-1"));
        assert_eq!(store.value("/aws/none").await.unwrap(), None);
    }
}
