//! A bucket and a key service that yield between calls, and that die when they are told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slipway_ports::{
    Condition, Context, DataKey, ErrorKind, Head, Keys, Object, Objects, PortError, PortResult, Put, Secret,
};
use slipway_sim::memory::{MemoryBucket, MemoryKeys};

/// The two ports of the flow, seen by one process. Clones are other processes on the same world.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) bucket: MemoryBucket,
    pub(crate) kms: MemoryKeys,
    life: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    calls: AtomicU64,
    /// The process dies at this call, before or after it takes effect.
    last: u64,
    after: bool,
    /// How often each call yields first, from a seed.
    seed: u64,
    /// A write of such a key takes effect, and its answer says that it was lost.
    deaf: Option<&'static str>,
}

#[derive(PartialEq)]
enum Fate {
    Lives,
    DiesBefore,
    DiesAfter,
}

impl World {
    pub(crate) fn new() -> Self {
        let bucket = MemoryBucket::new("assets", "eu-west-1");
        Self { bucket, kms: MemoryKeys::new(1), life: life(u64::MAX, false, 0, None) }
    }

    /// Another process, which dies at its `last` call (counted from 0), before or after it took effect.
    pub(crate) fn mortal(&self, last: u64, after: bool) -> Self {
        Self { life: life(last, after, 0, None), ..self.clone() }
    }

    /// Another process, which is interrupted as `seed` says.
    pub(crate) fn interrupted(&self, seed: u64) -> Self {
        Self { life: life(u64::MAX, false, seed, None), ..self.clone() }
    }

    /// Another process, whose writes of `key` succeed and seem lost, as when the network swallows an answer and the
    /// SDK repeats the call.
    pub(crate) fn deaf(&self, key: &'static str) -> Self {
        Self { life: life(u64::MAX, false, 0, Some(key)), ..self.clone() }
    }

    /// How many calls this process made.
    pub(crate) fn calls(&self) -> u64 {
        self.life.calls.load(Ordering::SeqCst)
    }

    async fn enter(&self) -> PortResult<Fate> {
        let call = self.life.calls.fetch_add(1, Ordering::SeqCst);
        let mut random =
            (self.life.seed ^ call.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        random ^= random >> 31;
        for _ in 0..random % 4 {
            tokio::task::yield_now().await;
        }
        match call.cmp(&self.life.last) {
            std::cmp::Ordering::Less => Ok(Fate::Lives),
            std::cmp::Ordering::Equal if self.life.after => Ok(Fate::DiesAfter),
            std::cmp::Ordering::Equal => Ok(Fate::DiesBefore),
            std::cmp::Ordering::Greater => Err(death()),
        }
    }

    async fn call<T>(&self, perform: impl Future<Output = PortResult<T>>) -> PortResult<T> {
        match self.enter().await? {
            Fate::Lives => perform.await,
            Fate::DiesBefore => Err(death()),
            Fate::DiesAfter => perform.await.and_then(|_| Err(death())),
        }
    }
}

fn life(last: u64, after: bool, seed: u64, deaf: Option<&'static str>) -> Arc<Life> {
    Arc::new(Life { calls: AtomicU64::new(0), last, after, seed, deaf })
}

fn death() -> PortError {
    PortError {
        kind: ErrorKind::Transient,
        operation: "test:Die",
        subject: "the process".to_owned(),
        message: "killed".to_owned(),
    }
}

impl Objects for World {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        self.call(self.bucket.get(key)).await
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        self.call(self.bucket.get_version(key, version)).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        self.call(self.bucket.head(key)).await
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        let put = self.call(self.bucket.put(key, bytes, condition)).await?;
        Ok(if self.life.deaf.is_some_and(|deaf| key.ends_with(deaf)) { Put::Lost } else { put })
    }

    fn url(&self, key: &str) -> String {
        self.bucket.url(key)
    }
}

impl Keys for World {
    fn name(&self, arn: Option<&str>) -> String {
        self.kms.name(arn)
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        self.call(self.kms.generate(arn, context)).await
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.call(self.kms.unwrap(wrapped, context)).await
    }
}
