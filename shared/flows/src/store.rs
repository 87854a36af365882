//! JSON objects in a bucket, read and conditionally written.

use serde::Serialize;
use serde::de::DeserializeOwned;
use slipway_core::keys;
use slipway_core::status::Status;
use slipway_ports::{Bounded, Condition, ErrorKind, MOST_OBJECT_BYTES, Objects, Put};
use slipway_rollout::Rollout;

use crate::error::{FlowError, FlowResult};

/// How often a lost race is retried before the invocation fails and Lambda retries later.
pub const TRIES: u32 = 5;

/// How many calls of one kind run at the same time. A first render writes some seventy objects.
pub const AT_A_TIME: usize = 16;

/// A JSON object that was read, with what a conditional write needs.
#[derive(Debug, Clone)]
pub struct Stored<T> {
    /// Its value; `None` if it does not exist.
    pub value: Option<T>,
    etag: Option<String>,
}

/// Reads the JSON object `key`.
///
/// # Errors
/// If the port fails, or the object is not the JSON of a `T`.
pub async fn load<T: DeserializeOwned>(objects: &impl Objects, key: &str) -> FlowResult<Stored<T>> {
    let Some(object) = objects.get(key).await? else {
        return Ok(Stored { value: None, etag: None });
    };
    let value = serde_json::from_slice(&object.bytes).map_err(|error| corrupt(key, &object.bytes, &error))?;
    Ok(Stored { value: Some(value), etag: Some(object.etag) })
}

/// The object at `key`, which must have that SHA-256. Keys are named by digests, but whoever may write into the bucket can write
/// anything under them.
///
/// # Errors
/// If the port fails, or the object is lost or another one.
pub async fn verified(objects: &impl Objects, key: &str, sha256: &str) -> FlowResult<Vec<u8>> {
    let wrong = |problem: &str| {
        FlowError::Corrupt {
        key: key.to_owned(),
        problem: problem.to_owned(),
        help: "bring back an earlier version of the object (the bucket keeps them); then find out who wrote it: only the render function may"
            .to_owned(),
    }
    };
    let object = objects.get(key).await?.ok_or_else(|| wrong("is lost"))?;
    match slipway_core::digest::sha256_hex(&object.bytes) == sha256 {
        true => Ok(object.bytes),
        false => Err(wrong("is not what its digest says, and was not used")),
    }
}

/// An object that has to be there is not.
#[must_use]
pub fn missing_object(key: &str) -> FlowError {
    FlowError::Corrupt {
        key: key.to_owned(),
        problem: "is lost".to_owned(),
        help: "bring back a version of the object (the bucket keeps them), or upload the spec again"
            .to_owned(),
    }
}

/// As [`load`], for an object that no decision depends on: one that cannot be read counts as missing, and the next [`save`] overwrites
/// it. The second value says what was wrong with it.
///
/// # Errors
/// If the port fails.
pub async fn load_or_none<T: DeserializeOwned>(
    objects: &impl Objects,
    key: &str,
) -> FlowResult<(Stored<T>, Option<String>)> {
    let Some(object) = objects.get(key).await? else {
        return Ok((Stored { value: None, etag: None }, None));
    };
    Ok(match serde_json::from_slice(&object.bytes) {
        Ok(value) => (Stored { value: Some(value), etag: Some(object.etag) }, None),
        Err(error) => {
            let problem = format!("it cannot be read ({} bytes): {error}", object.bytes.len());
            (Stored { value: None, etag: Some(object.etag) }, Some(problem))
        }
    })
}

/// What a node wrote at a key of its own.
#[derive(Debug)]
pub enum NodeObject<T> {
    /// There is no object.
    Missing,
    /// It could be read.
    Read(T),
    /// It is there, and cannot be read: what is wrong with it.
    Unreadable(String),
}

/// The most that is kept of a node's report, because a node can write the reports of all machines of its role. Digests and fingerprints have 64
/// bytes each, and a node has fewer than ten.
pub(crate) const MOST_KEPT_BYTES: usize = 4 * 1024;

/// The most of a problem's words that is kept: errors of a parser quote what a node wrote.
const MOST_WORDS: usize = 300;

/// The JSON object `key`, which a node writes. A node may be compromised, so no object there makes a function fail or fills its memory: of more
/// than `most` bytes nothing is kept. S3 refuses to give out an object that its writer encrypted with a key of its own, or put into an archive
/// ("InvalidRequest", "AccessDenied" and "InvalidObjectState" in the API reference of GetObject), so a refusal is no failure either.
///
/// # Errors
/// If the port fails, and may work later.
pub async fn read_node_object<T: DeserializeOwned>(
    objects: &impl Objects,
    key: &str,
    most: u64,
) -> FlowResult<NodeObject<T>> {
    let problem = match objects.get_at_most(key, most).await {
        Ok(None) => return Ok(NodeObject::Missing),
        Ok(Some(Bounded::Read(object))) => match serde_json::from_slice(&object.bytes) {
            Ok(value) => return Ok(NodeObject::Read(value)),
            Err(error) => format!("{error} ({} bytes)", object.bytes.len()),
        },
        Ok(Some(Bounded::TooLarge { .. })) => format!("it has more than {most} bytes, and was not read"),
        Err(error) if error.kind == ErrorKind::Transient => return Err(error.into()),
        Err(error) => error.to_string(),
    };
    Ok(NodeObject::Unreadable(clipped(&problem)))
}

/// The beginning of words that a node may have written.
#[must_use]
pub fn clipped(words: &str) -> String {
    words.chars().take(MOST_WORDS).collect()
}

pub(crate) fn corrupt(key: &str, bytes: &[u8], error: &serde_json::Error) -> FlowError {
    #[derive(serde::Deserialize)]
    struct Format {
        format: u64,
    }
    let format = serde_json::from_slice::<Format>(bytes).map(|object| object.format);
    // A state with nothing open can be read by the release that wrote it and by later ones, but not by earlier ones.
    let until = match &format {
        Ok(format) if key.ends_with("/rollout.json") && *format < u64::from(Rollout::FORMAT) => {
            " until nothing is open: no rollout, no node on its way out, no destruction"
        }
        _ => "",
    };
    let help = match format {
        Ok(format) => format!(
            "if another version of Slipway wrote it (its format is {format}), deploy that version again{until}; else repair it by \
             hand, with its earlier versions beside you (the bucket keeps them)"
        ),
        Err(_) => {
            "repair it by hand, with its earlier versions beside you (the bucket keeps them)".to_owned()
        }
    };
    FlowError::Corrupt {
        key: key.to_owned(),
        problem: format!("cannot be read ({} bytes): {error}", bytes.len()),
        help,
    }
}

/// Writes `value` if the object is still the one that `stored` was read from. `None`: it was changed meanwhile.
///
/// # Errors
/// If the port fails.
pub async fn save<T: Serialize>(
    objects: &impl Objects,
    key: &str,
    stored: &Stored<T>,
    value: T,
) -> FlowResult<Option<Stored<T>>> {
    let condition = stored.etag.clone().map_or(Condition::Absent, Condition::Unchanged);
    Ok(match objects.put(key, json(&value), condition).await? {
        Put::Written(etag) => Some(Stored { value: Some(value), etag: Some(etag) }),
        Put::Lost => None,
    })
}

/// The content of an object that functions read whole.
///
/// # Errors
/// If it is larger than what they read ([`MOST_OBJECT_BYTES`]).
pub(crate) fn readable(key: &str, bytes: Vec<u8>) -> FlowResult<Vec<u8>> {
    if bytes.len() as u64 <= MOST_OBJECT_BYTES {
        return Ok(bytes);
    }
    let problem = format!(
        "{key} would have {} bytes, and the functions read no more than {MOST_OBJECT_BYTES}: nothing was changed",
        bytes.len()
    );
    let help = "make the spec smaller: fewer node pools, customFiles and patches (docs/scale.md)".to_owned();
    Err(FlowError::Refused { problem, help })
}

/// Writes a content-addressed object unless it exists; an existing one is the same. Returns whether it was written.
///
/// # Errors
/// If the port fails, or other writers of the same key were met [`TRIES`] times and none of them has written it.
pub async fn keep(objects: &impl Objects, key: &str, bytes: impl Into<Vec<u8>>) -> FlowResult<bool> {
    let bytes = bytes.into();
    for _ in 0..TRIES {
        if objects.head(key).await?.is_some() {
            return Ok(false);
        }
        // What is lost to a write that is under way (409) is not there if that one fails.
        if let Put::Written(_) = objects.put(key, bytes.clone(), Condition::Absent).await? {
            return Ok(true);
        }
    }
    Err(FlowError::Race { key: key.to_owned(), tries: TRIES })
}

/// Reads `key`, computes the new value with `change` (`None`: leave it), writes it, and starts again if somebody else was first.
///
/// # Errors
/// If the port fails, the object is corrupt, or the race was lost [`TRIES`] times.
pub async fn update<T: Serialize + DeserializeOwned + PartialEq>(
    objects: &impl Objects,
    key: &str,
    change: impl Fn(Option<&T>) -> Option<T> + Send,
) -> FlowResult<()> {
    for _ in 0..TRIES {
        let stored = load::<T>(objects, key).await?;
        let Some(new) = change(stored.value.as_ref()) else { return Ok(()) };
        if stored.value.as_ref() == Some(&new) || save(objects, key, &stored, new).await?.is_some() {
            return Ok(());
        }
    }
    Err(FlowError::Race { key: key.to_owned(), tries: TRIES })
}

/// Changes `status.json` unless it has that content, and starts again if somebody else was first. No decision depends on it, so one that
/// cannot be read is overwritten.
///
/// # Errors
/// If the port fails, or the race was lost [`TRIES`] times.
pub async fn update_status(
    objects: &impl Objects,
    cluster: &str,
    change: impl Fn(Status) -> Status + Send,
) -> FlowResult<()> {
    let key = keys::status(cluster);
    for _ in 0..TRIES {
        let object = objects.get(&key).await?;
        let old: Option<Status> =
            object.as_ref().and_then(|object| serde_json::from_slice(&object.bytes).ok());
        let stored = Stored { value: old, etag: object.map(|object| object.etag) };
        let new = change(stored.value.clone().unwrap_or_else(|| Status::new(cluster)));
        if stored.value.as_ref() == Some(&new) || save(objects, &key, &stored, new).await?.is_some() {
            return Ok(());
        }
    }
    Err(FlowError::Race { key, tries: TRIES })
}

/// Indented JSON with a final newline, because people read these objects.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("our states have string keys only");
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With some 1,400 pools, a release was written that no function could read.
    #[test]
    fn p8_an_object_that_no_function_could_read_is_refused_before_it_is_written() {
        let most = usize::try_from(MOST_OBJECT_BYTES).unwrap_or(usize::MAX);
        assert!(readable("clusters/c/releases/r.json", vec![0; most]).is_ok());
        let refused =
            readable("clusters/c/releases/r.json", vec![0; most + 1]).map_err(|error| error.to_string());
        assert!(
            refused.is_err_and(
                |why| why.contains("would have 16777217 bytes") && why.contains("fewer node pools")
            )
        );
    }
}
