//! A key service: data keys under an encryption context.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};
use slipway_ports::{Context, DataKey, ErrorKind, Keys, PortError, PortResult, Secret};

use super::faults::{Faults, Journal, call, lock};

/// The ARN of Slipway's own key in this service.
pub const OWN_KEY: &str = "arn:aws:kms:eu-central-1:123456789012:key/0a1b2c3d-0000-4000-8000-000000000001";

/// KMS, as far as data keys are concerned. As in KMS, each call makes another key and another ciphertext, and a data key is
/// decrypted only under the encryption context that it was made with. Keys follow from a seed, so a run can be repeated; they
/// protect nothing.
#[derive(Debug, Clone)]
pub struct MemoryKeys {
    seed: u64,
    state: Arc<Mutex<State>>,
    journal: Journal,
    faults: Faults,
}

/// A plain key and its encryption context.
type Made = (Vec<u8>, Context);

#[derive(Debug, Clone, Default)]
struct State {
    made: u64,
    /// By wrapped key. Forks share it until one of them makes another key.
    keys: Arc<BTreeMap<Vec<u8>, Made>>,
    disabled: Vec<String>,
    /// How often each key was rotated.
    rotations: BTreeMap<String, u64>,
}

impl MemoryKeys {
    /// A key service whose keys follow from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, state: Arc::default(), journal: Journal::default(), faults: Faults::default() }
    }

    /// Another service with the same keys, which makes its next keys independently.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = lock(&self.state).clone();
        Self { state: Arc::new(Mutex::new(state)), ..Self::new(self.seed) }
    }

    /// The calls that the service received: `kms:GenerateDataKey`, `kms:Decrypt`, by encryption context.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Plans faults. The subject of a fault is an encryption context, `cluster=prod,role=etcd`.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Rotates the key `arn` (`None`: Slipway's own). As in KMS, data keys that were wrapped before can still be decrypted, and
    /// callers do not notice.
    pub fn rotate(&self, arn: Option<&str>) {
        *lock(&self.state).rotations.entry(arn.unwrap_or(OWN_KEY).to_owned()).or_default() += 1;
    }

    /// From now on the key `arn` (`None`: Slipway's own) encrypts and decrypts nothing.
    pub fn disable(&self, arn: Option<&str>) {
        lock(&self.state).disabled.push(arn.unwrap_or(OWN_KEY).to_owned());
    }
}

fn subject(context: &Context) -> String {
    context.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn error(kind: ErrorKind, operation: &'static str, subject: &str, message: String) -> PortError {
    PortError { kind, operation, subject: subject.to_owned(), message }
}

impl Keys for MemoryKeys {
    fn name(&self, arn: Option<&str>) -> String {
        arn.unwrap_or(OWN_KEY).to_owned()
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        const OPERATION: &str = "kms:GenerateDataKey";
        let subject = subject(context);
        call(&self.journal, &self.faults, OPERATION, &subject, || {
            let mut state = lock(&self.state);
            let arn = arn.unwrap_or(OWN_KEY);
            if state.disabled.iter().any(|disabled| disabled == arn) {
                let message = format!("DisabledException: {arn} is disabled.");
                return Err(error(ErrorKind::Denied, OPERATION, &subject, message));
            }
            state.made += 1;
            let plain = bytes(&format!("plain {} {}", self.seed, state.made));
            let mut wrapped = format!("{arn}\n").into_bytes();
            let material = state.rotations.get(arn).copied().unwrap_or_default();
            wrapped.extend(bytes(&format!("wrapped {} {} {material}", self.seed, state.made)));
            Arc::make_mut(&mut state.keys).insert(wrapped.clone(), (plain.clone(), context.clone()));
            Ok(DataKey { wrapped_by: arn.to_owned(), plain: Secret::new(plain), wrapped })
        })
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        const OPERATION: &str = "kms:Decrypt";
        let subject = subject(context);
        call(&self.journal, &self.faults, OPERATION, &subject, || {
            let state = lock(&self.state);
            let refused = |message: &str| error(ErrorKind::Invalid, OPERATION, &subject, message.to_owned());
            let (plain, made_under) = state.keys.get(wrapped).ok_or_else(|| {
                refused("InvalidCiphertextException: the ciphertext is not from this key service")
            })?;
            if made_under != context {
                return Err(refused("InvalidCiphertextException: the encryption context is another"));
            }
            if state.disabled.iter().any(|arn| wrapped.starts_with(format!("{arn}\n").as_bytes())) {
                let message = "DisabledException: the key is disabled.".to_owned();
                return Err(error(ErrorKind::Denied, OPERATION, &subject, message));
            }
            Ok(Secret::new(plain.clone()))
        })
    }
}

/// 32 bytes that follow from `label`.
fn bytes(label: &str) -> Vec<u8> {
    Sha256::digest(label.as_bytes()).to_vec()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn context(role: &str) -> Context {
        Context::from([("cluster".to_owned(), "prod".to_owned()), ("role".to_owned(), role.to_owned())])
    }

    #[tokio::test]
    async fn p9_a_data_key_comes_back_under_its_own_context_alone() {
        let keys = MemoryKeys::new(1);
        let made = keys.generate(None, &context("etcd")).await.unwrap();
        assert_eq!(made.plain.expose().len(), 32);
        let back = keys.unwrap(&made.wrapped, &context("etcd")).await.unwrap();
        assert_eq!(back.expose(), made.plain.expose());
        assert_eq!(
            keys.unwrap(&made.wrapped, &context("worker")).await.unwrap_err().kind,
            ErrorKind::Invalid
        );
        assert_eq!(keys.unwrap(b"other", &context("etcd")).await.unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(keys.journal().count("kms:Decrypt"), 3);
    }

    #[tokio::test]
    async fn each_call_makes_another_key_and_a_disabled_key_makes_none() {
        let keys = MemoryKeys::new(1);
        let first = keys.generate(None, &context("etcd")).await.unwrap();
        let second = keys.generate(None, &context("etcd")).await.unwrap();
        assert_ne!(first.wrapped, second.wrapped);
        keys.disable(None);
        assert_eq!(keys.generate(None, &context("etcd")).await.unwrap_err().kind, ErrorKind::Denied);
        assert_eq!(keys.unwrap(&first.wrapped, &context("etcd")).await.unwrap_err().kind, ErrorKind::Denied);
        assert!(keys.generate(Some("arn:other"), &context("etcd")).await.is_ok());
    }
}
