//! A versioned bucket with conditional writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use slipway_core::digest::sha256_hex;
use slipway_ports::{
    Bounded, Condition, ErrorKind, Folders, Head, Listed, Listing, MOST_OBJECT_BYTES, Object, Objects,
    PortError, PortResult, Put, Removal,
};

use super::faults::{Faults, Journal, Meanwhile, call, lock};

/// A versioned bucket. As in S3, the etag follows from the content: an object that is overwritten with the same bytes keeps its
/// etag and gets a new version.
#[derive(Debug, Clone)]
pub struct MemoryBucket {
    name: String,
    region: String,
    state: Arc<Mutex<State>>,
    journal: Journal,
    faults: Faults,
    meanwhile: Meanwhile,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// Forks share an object until one of them writes it.
    objects: BTreeMap<Arc<str>, Arc<Versions>>,
    /// The time of the bucket's clock.
    now: Timestamp,
    writes: u64,
    /// What another writer writes right before the next write of that key.
    rivals: Vec<(String, Vec<u8>)>,
    /// Keys whose next write is performed twice.
    repeated: Vec<String>,
    /// Keys whose next write meets another one.
    conflicts: Vec<String>,
}

/// The versions of one key.
#[derive(Debug, Clone, Default)]
struct Versions {
    /// Oldest first; there is at least one.
    all: Vec<Arc<Object>>,
    /// The time of the last write.
    modified: Timestamp,
    /// Whether the newest version is a delete marker (docs.aws.amazon.com/AmazonS3/latest/userguide/DeleteMarker.html): the key is not
    /// found, and its versions are.
    deleted: bool,
}

impl MemoryBucket {
    /// An empty bucket.
    #[must_use]
    pub fn new(name: &str, region: &str) -> Self {
        Self {
            name: name.to_owned(),
            region: region.to_owned(),
            state: Arc::default(),
            journal: Journal::default(),
            faults: Faults::default(),
            meanwhile: Meanwhile::default(),
        }
    }

    /// Another bucket with the present content of this one, and a journal of its own.
    #[must_use]
    pub fn fork(&self) -> Self {
        let state = lock(&self.state).clone();
        Self { state: Arc::new(Mutex::new(state)), ..Self::new(&self.name, &self.region) }
    }

    /// The bucket's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The calls that the bucket received: `s3:GetObject`, `s3:GetObjectVersion`, `s3:HeadObject`, `s3:ListObjectsV2`,
    /// `s3:PutObject`.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Plans faults. The subject of a fault is a key.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Right before the next write of `key` through the port, another writer writes `bytes`. Several calls add several such writes,
    /// one before each write through the port.
    pub fn race(&self, key: &str, bytes: impl Into<Vec<u8>>) {
        lock(&self.state).rivals.push((key.to_owned(), bytes.into()));
    }

    /// The next write of `key` through the port is performed twice, as when an answer is lost and the SDK retries. The writer gets
    /// the second answer.
    pub fn repeat(&self, key: &str) {
        lock(&self.state).repeated.push(key.to_owned());
    }

    /// The next write of `key` through the port meets another one that is under way and fails later: S3 refuses it with 409, "On a 409 failure
    /// you should retry the upload" (`IfNoneMatch` of PutObject in the API reference), and nobody has written.
    pub fn conflict(&self, key: &str) {
        lock(&self.state).conflicts.push(key.to_owned());
    }

    /// Runs `happens` right after the next call of `operation` whose subject contains `subject`, before the caller continues.
    pub fn meanwhile(&self, operation: &'static str, subject: &str, happens: impl FnOnce() + Send + 'static) {
        self.meanwhile.plan(operation, subject, Box::new(happens));
    }

    /// Writes as a person at a console does: no condition, no fault, no journal. Returns the id of the new version.
    pub fn upload(&self, key: &str, bytes: impl Into<Vec<u8>>) -> String {
        lock(&self.state).write(&self.name, key, bytes.into()).version.clone()
    }

    /// Sets the bucket's clock, which is otherwise at the beginning of time. Later writes get this time.
    pub fn set_clock(&self, now: Timestamp) {
        lock(&self.state).now = now;
    }

    /// Deletes every version of `key`, as a person at a console might.
    pub fn purge(&self, key: &str) {
        lock(&self.state).objects.remove(key);
    }

    /// The newest version of `key`, without faults and without an entry in the journal.
    #[must_use]
    pub fn peek(&self, key: &str) -> Option<Vec<u8>> {
        self.newest(key).map(|object| object.bytes.clone())
    }

    /// As [`MemoryBucket::peek`], without a copy.
    #[must_use]
    pub fn newest(&self, key: &str) -> Option<Arc<Object>> {
        lock(&self.state).newest(key).cloned()
    }

    /// The id of the newest version of `key`, read like [`MemoryBucket::peek`].
    #[must_use]
    pub fn version(&self, key: &str) -> Option<String> {
        lock(&self.state).newest(key).map(|object| object.version.clone())
    }

    /// Every key, sorted.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        lock(&self.state).from("").map(|(key, _)| key.to_string()).collect()
    }

    /// The number of versions of `key`.
    #[must_use]
    pub fn versions(&self, key: &str) -> usize {
        lock(&self.state).objects.get(key).map_or(0, |versions| versions.all.len())
    }

    /// The number of writes that took effect, including those of others. If it is equal before and after, nothing was written.
    #[must_use]
    pub fn writes(&self) -> u64 {
        lock(&self.state).writes
    }

    /// The host of the bucket's virtual-hosted URLs.
    #[must_use]
    pub fn host(&self) -> String {
        format!("{}.s3.{}.amazonaws.com", self.name, self.region)
    }

    fn call<T>(
        &self,
        operation: &'static str,
        key: &str,
        perform: impl FnOnce(&mut State) -> T,
    ) -> PortResult<T> {
        let done = call(&self.journal, &self.faults, operation, key, || Ok(perform(&mut lock(&self.state))));
        self.meanwhile.strike(operation, key);
        done
    }
}

impl State {
    /// The keys from `key` on that are found.
    fn from(&self, key: &str) -> impl Iterator<Item = (&Arc<str>, &Arc<Versions>)> {
        let all = self.objects.range::<str, _>((Bound::Included(key), Bound::Unbounded));
        all.filter(|(_, versions)| !versions.deleted)
    }

    fn newest(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key).filter(|versions| !versions.deleted).and_then(|versions| versions.all.last())
    }

    fn write(&mut self, bucket: &str, key: &str, bytes: Vec<u8>) -> Arc<Object> {
        self.writes += 1;
        let etag = format!("\"{}\"", &sha256_hex(&bytes)[..32]);
        let version = sha256_hex(format!("{bucket}/{key}/{}", self.writes).as_bytes())[..32].to_owned();
        let object = Arc::new(Object { bytes, etag, version });
        if !self.objects.contains_key(key) {
            self.objects.insert(Arc::from(key), Arc::default());
        }
        if let Some(versions) = self.objects.get_mut(key).map(Arc::make_mut) {
            versions.all.push(Arc::clone(&object));
            (versions.modified, versions.deleted) = (self.now, false);
        }
        object
    }

    fn put(&mut self, bucket: &str, key: &str, bytes: Vec<u8>, condition: &Condition) -> Put {
        if let Some(index) = self.conflicts.iter().position(|met| met == key) {
            self.conflicts.remove(index);
            return Put::Lost;
        }
        if let Some(index) = self.rivals.iter().position(|(raced, _)| raced == key) {
            let (_, rival) = self.rivals.remove(index);
            self.write(bucket, key, rival);
        }
        if let Some(index) = self.repeated.iter().position(|repeated| repeated == key) {
            self.repeated.remove(index);
            self.put(bucket, key, bytes.clone(), condition);
        }
        let holds = match (condition, self.newest(key)) {
            (Condition::Always, _) | (Condition::Absent, None) => true,
            (Condition::Absent, Some(_)) | (Condition::Unchanged(_), None) => false,
            (Condition::Unchanged(etag), Some(object)) => &object.etag == etag,
        };
        if holds { Put::Written(self.write(bucket, key, bytes).etag.clone()) } else { Put::Lost }
    }
}

/// The object, unless it is larger than what a function reads.
fn read(operation: &'static str, key: &str, object: &Arc<Object>) -> PortResult<Object> {
    let length = object.bytes.len() as u64;
    if length > MOST_OBJECT_BYTES {
        return Err(PortError {
            kind: ErrorKind::Invalid,
            operation,
            subject: key.to_owned(),
            message: format!("the object has {length} bytes; more than {MOST_OBJECT_BYTES} are not read"),
        });
    }
    Ok(Object::clone(object))
}

impl Objects for MemoryBucket {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        const OPERATION: &str = "s3:GetObject";
        let object = self.call(OPERATION, key, |state| state.newest(key).cloned())?;
        object.map(|object| read(OPERATION, key, &object)).transpose()
    }

    async fn get_at_most(&self, key: &str, most: u64) -> PortResult<Option<Bounded>> {
        let object = self.call("s3:GetObject", key, |state| state.newest(key).cloned())?;
        Ok(object.map(|object| match object.bytes.len() as u64 > most {
            true => Bounded::TooLarge { etag: object.etag.clone() },
            false => Bounded::Read(Object::clone(&object)),
        }))
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        const OPERATION: &str = "s3:GetObjectVersion";
        let object = self.call(OPERATION, key, |state| {
            let versions = &state.objects.get(key)?.all;
            versions.iter().find(|object| object.version == version).cloned()
        })?;
        object.map(|object| read(OPERATION, key, &object)).transpose()
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        self.call("s3:HeadObject", key, |state| {
            let object = state.newest(key)?;
            Some(Head {
                version: object.version.clone(),
                size: object.bytes.len() as u64,
                etag: object.etag.clone(),
            })
        })
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        self.call("s3:PutObject", key, |state| state.put(&self.name, key, bytes, &condition))
    }

    fn url(&self, key: &str) -> String {
        format!("https://{}/{key}", self.host())
    }
}

impl Listing for MemoryBucket {
    async fn list(&self, prefix: &str, most: usize) -> PortResult<Vec<Listed>> {
        let listed = |(key, versions): (&Arc<str>, &Arc<Versions>)| {
            let newest = versions.all.last()?;
            Some(Listed {
                key: key.to_string(),
                etag: newest.etag.clone(),
                size: newest.bytes.len() as u64,
                modified: versions.modified,
            })
        };
        self.call("s3:ListObjectsV2", prefix, |state| {
            let from = state.from(prefix);
            from.take_while(|(key, _)| key.starts_with(prefix)).filter_map(listed).take(most).collect()
        })
    }
}

impl Folders for MemoryBucket {
    /// Pages of a thousand, as S3 gives them.
    async fn folders_after(&self, prefix: &str, after: Option<&str>) -> PortResult<Vec<String>> {
        const PAGE: usize = 1_000;
        self.call("s3:ListObjectsV2", prefix, |state| {
            let mut found: Vec<String> = Vec::new();
            let mut from = after.map_or_else(|| prefix.to_owned(), |after| format!("{prefix}{after}0"));
            while found.len() < PAGE {
                let Some((key, _)) = state.from(&from).next() else { break };
                let Some(rest) = key.strip_prefix(prefix) else { break };
                match rest.split_once('/') {
                    Some((folder, _)) => {
                        from = format!("{prefix}{folder}0");
                        found.push(folder.to_owned());
                    }
                    None => from = format!("{key}\0"),
                }
            }
            found
        })
    }
}

impl Removal for MemoryBucket {
    async fn remove(&self, key: &str) -> PortResult<()> {
        self.call("s3:DeleteObject", key, |state| {
            if let Some(versions) = state.objects.get_mut(key) {
                Arc::make_mut(versions).deleted = true;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Fault;
    use super::*;

    fn bucket() -> MemoryBucket {
        MemoryBucket::new("assets", "eu-central-1")
    }

    #[tokio::test]
    async fn p8_of_two_writers_under_one_etag_one_wins() {
        let bucket = bucket();
        assert!(matches!(bucket.put("a", b"1".to_vec(), Condition::Absent).await.unwrap(), Put::Written(_)));
        assert_eq!(bucket.put("a", b"2".to_vec(), Condition::Absent).await.unwrap(), Put::Lost);
        let etag = bucket.get("a").await.unwrap().unwrap().etag;
        let under = Condition::Unchanged(etag);
        assert!(matches!(bucket.put("a", b"3".to_vec(), under.clone()).await.unwrap(), Put::Written(_)));
        assert_eq!(bucket.put("a", b"4".to_vec(), under).await.unwrap(), Put::Lost);
        assert_eq!(bucket.peek("a").unwrap(), b"3");
        let gone = Condition::Unchanged("\"0\"".to_owned());
        assert_eq!(bucket.put("b", Vec::new(), gone).await.unwrap(), Put::Lost);
    }

    #[tokio::test]
    async fn every_version_stays_readable_and_an_etag_is_of_the_content() {
        let bucket = bucket();
        let first = bucket.upload("a", "same");
        let second = bucket.upload("a", "other");
        let third = bucket.upload("a", "same");
        let read = async |version: &str| bucket.get_version("a", version).await.unwrap().unwrap();
        assert_eq!(read(&first).await.bytes, b"same");
        assert_eq!(read(&second).await.bytes, b"other");
        assert_eq!(read(&first).await.etag, read(&third).await.etag);
        assert_ne!(first, third);
        let etag = read(&third).await.etag;
        assert_eq!(bucket.head("a").await.unwrap().unwrap(), Head { version: third, size: 4, etag });
        assert!(bucket.get_version("a", "none").await.unwrap().is_none());
    }

    #[tokio::test]
    async fn no_more_is_read_than_of_a_real_bucket() {
        let bucket = bucket();
        bucket.upload("large", vec![b'x'; 16 << 20]);
        let version = bucket.upload("larger", vec![b'x'; (16 << 20) + 1]);
        assert_eq!(bucket.get("large").await.unwrap().unwrap().bytes.len(), 16 << 20);
        assert_eq!(bucket.get("larger").await.unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(bucket.get_version("larger", &version).await.unwrap_err().kind, ErrorKind::Invalid);
        bucket.upload("small", "four");
        assert!(matches!(bucket.get_at_most("small", 4).await.unwrap(), Some(Bounded::Read(_))));
        for key in ["small", "larger"] {
            let etag = bucket.newest(key).unwrap().etag.clone();
            assert_eq!(bucket.get_at_most(key, 3).await.unwrap(), Some(Bounded::TooLarge { etag }));
        }
        assert_eq!(bucket.get_at_most("none", 3).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_list_is_of_the_newest_versions_in_order_of_keys() {
        let bucket = bucket();
        for key in ["a/2", "a/1", "b/1", "a/3", "a"] {
            bucket.upload(key, "old");
        }
        bucket.upload("a/2", "newer");
        let keys = async |most: usize| -> Vec<(String, u64)> {
            let listed = bucket.list("a/", most).await.unwrap();
            listed.into_iter().map(|one| (one.key, one.size)).collect()
        };
        assert_eq!(keys(9).await, [("a/1".to_owned(), 3), ("a/2".to_owned(), 5), ("a/3".to_owned(), 3)]);
        assert_eq!(keys(2).await.len(), 2);
        let etag = bucket.get("a/2").await.unwrap().unwrap().etag;
        assert_eq!(bucket.list("a/2", 9).await.unwrap()[0].etag, etag);
    }

    #[tokio::test]
    async fn folders_come_in_the_order_of_their_keys_and_none_twice() {
        let bucket = bucket();
        for key in ["c/a/1", "c/a/2", "c/a-b/1", "c/a0/1", "c/loose", "c/z/1", "d/x/1"] {
            bucket.upload(key, "");
        }
        let after = async |after: Option<&str>| bucket.folders_after("c/", after).await.unwrap();
        assert_eq!(after(None).await, ["a-b", "a", "a0", "z"]);
        assert_eq!(after(Some("a-b")).await, ["a", "a0", "z"]);
        assert_eq!(after(Some("a")).await, ["a0", "z"]);
        assert_eq!(after(Some("z")).await, [""; 0]);
    }

    #[tokio::test]
    async fn p8_a_rival_comes_between_read_and_write_once() {
        let bucket = bucket();
        bucket.upload("a", "old");
        let etag = bucket.get("a").await.unwrap().unwrap().etag;
        bucket.race("a", "rival");
        assert_eq!(bucket.put("a", b"mine".to_vec(), Condition::Unchanged(etag)).await.unwrap(), Put::Lost);
        let etag = bucket.get("a").await.unwrap().unwrap().etag;
        let put = bucket.put("a", b"mine".to_vec(), Condition::Unchanged(etag)).await.unwrap();
        assert!(matches!(put, Put::Written(_)));
    }

    #[tokio::test]
    async fn p8_a_lost_answer_has_written_and_a_refusal_has_not() {
        let bucket = bucket();
        bucket.faults().plan("s3:PutObject", "a", Fault::After, 1);
        let error = bucket.put("a", b"1".to_vec(), Condition::Absent).await.unwrap_err();
        assert_eq!((error.kind, bucket.versions("a")), (ErrorKind::Transient, 1));
        bucket.faults().plan("s3:PutObject", "b", Fault::Before(ErrorKind::Denied), 1);
        assert!(bucket.faults().pending());
        let error = bucket.put("b", b"1".to_vec(), Condition::Absent).await.unwrap_err();
        assert_eq!((error.kind, bucket.versions("b")), (ErrorKind::Denied, 0));
        assert!(!bucket.faults().pending());
        assert_eq!(bucket.journal().count("s3:PutObject"), 2);
    }
}
