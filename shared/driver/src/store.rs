//! JSON objects in a bucket: read, and written under the condition that nobody else wrote meanwhile.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{FlowError, FlowResult};
use crate::ports::{Condition, Objects, Put};

/// How often a lost race is tried again before the invocation gives up and Lambda tries later.
pub const TRIES: u32 = 5;

/// Calls of one kind under way at a time: a first render writes some seventy objects.
pub const AT_A_TIME: usize = 16;

/// A JSON object as read, with what a conditional write needs.
#[derive(Debug, Clone)]
pub struct Stored<T> {
    /// Its value; `None` if there is no such object.
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
    let value = serde_json::from_slice(&object.bytes).map_err(|error| FlowError::Corrupt {
        key: key.to_owned(),
        problem: format!("cannot be read ({} bytes): {error}", object.bytes.len()),
        cure: "bring back an earlier version of the object (the bucket keeps them)".to_owned(),
    })?;
    Ok(Stored { value: Some(value), etag: Some(object.etag) })
}

/// Writes `value` if the object is still the one that `stored` was read from. `None`: somebody else was first.
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

/// Writes a content-addressed object, unless it is there already: what is there is the same.
///
/// # Errors
/// If the port fails.
pub async fn keep(objects: &impl Objects, key: &str, bytes: impl Into<Vec<u8>>) -> FlowResult<bool> {
    if objects.head(key).await?.is_some() {
        return Ok(false);
    }
    Ok(matches!(objects.put(key, bytes.into(), Condition::Absent).await?, Put::Written(_)))
}

/// Reads `key`, lets `change` make the new value (`None`: leave it), writes it, and starts over when somebody else
/// was first.
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

/// Pretty JSON with a last newline: people read these objects.
pub fn json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("our states have string keys only");
    bytes.push(b'\n');
    bytes
}
