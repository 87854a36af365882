//! Sealed bytes: AES-256-GCM under a data key that is stored, wrapped, together with the text.
//!
//! ```text
//! object  = sealing, sealing …
//! sealing = "SLPW2" | u16 length | name of the wrapping key | u16 length | wrapped data key | nonce, 12 bytes
//!         | u32 length of the rest | ciphertext, tag of 16
//! ```
//!
//! An object contains the same text once for each KMS key that it was ever sealed under. Whoever may use any of these keys can open it:
//! sealing it under another key adds a sealing and removes none.
//!
//! Numbers are big-endian. The additional authenticated data are everything before the nonce and then the context as JSON with sorted keys,
//! so that neither a key's name, nor the wrapped key, nor the context can be exchanged. A data key seals few objects, far less than the 2³²
//! at which random nonces become a risk (NIST SP 800-38D, 8.3).

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use slipway_ports::{Context, DataKey, PortResult, Sealing, Secret};
use zeroize::Zeroizing;

use crate::{fill, refused};

const MAGIC: &[u8; 5] = b"SLPW2";
const TAG_LEN: usize = 16;

/// The parts of a sealing.
#[derive(Debug)]
struct Parts<'a> {
    /// Everything before the nonce.
    head: &'a [u8],
    wrapped_by: &'a str,
    wrapped: &'a [u8],
    nonce: [u8; NONCE_LEN],
    /// Ciphertext and tag.
    body: &'a [u8],
}

impl<'a> Parts<'a> {
    /// The first sealing of `sealed`, and what comes after it.
    ///
    /// # Errors
    /// If `sealed` is truncated, or not of this format.
    fn first(sealed: &'a [u8]) -> PortResult<(Self, &'a [u8])> {
        let truncated =
            || refused("pki:Open", "sealed bytes", format!("truncated after {} bytes", sealed.len()));
        let foreign =
            |why: &str| refused("pki:Open", "sealed bytes", format!("not sealed by Slipway: {why}"));
        if !sealed.starts_with(&MAGIC[..sealed.len().min(MAGIC.len())]) {
            return Err(foreign("they do not start with SLPW2"));
        }
        let rest = sealed.get(MAGIC.len()..).ok_or_else(truncated)?;
        let (name, rest) = counted(rest).ok_or_else(truncated)?;
        let (wrapped, rest) = counted(rest).ok_or_else(truncated)?;
        let (nonce, rest) = rest.split_first_chunk::<NONCE_LEN>().ok_or_else(truncated)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(truncated)?;
        let length = u32::from_be_bytes(*length) as usize;
        if wrapped.is_empty() || length < TAG_LEN {
            return Err(foreign("a length in their head is too small"));
        }
        let (body, rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
        let wrapped_by =
            std::str::from_utf8(name).map_err(|_| foreign("the name of their key is not text"))?;
        let head = &sealed[..MAGIC.len() + 2 + name.len() + 2 + wrapped.len()];
        Ok((Self { head, wrapped_by, wrapped, nonce: *nonce, body }, rest))
    }
}

/// Bytes with a length of two bytes before them, and the rest.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

pub(crate) fn sealings(sealed: &[u8]) -> PortResult<Vec<Sealing<'_>>> {
    let mut found = Vec::new();
    let mut remaining = sealed;
    loop {
        let (parts, rest) = Parts::first(remaining)?;
        let bytes = &remaining[..remaining.len() - rest.len()];
        found.push(Sealing { wrapped_by: parts.wrapped_by, wrapped: parts.wrapped, bytes });
        if rest.is_empty() {
            return Ok(found);
        }
        remaining = rest;
    }
}

pub(crate) fn seal(key: &DataKey, context: &Context, plain: &[u8]) -> PortResult<Vec<u8>> {
    let fail = |message: &str| refused("pki:Seal", &describe(context), message.to_owned());
    let name = u16::try_from(key.wrapped_by.len());
    let name = name.map_err(|_| fail("the name of a key has at most 65535 bytes"))?;
    let wrapped = u16::try_from(key.wrapped.len()).ok().filter(|length| *length > 0);
    let wrapped = wrapped.ok_or_else(|| fail("a wrapped data key has between 1 and 65535 bytes"))?;
    let length = plain.len().checked_add(TAG_LEN).and_then(|length| u32::try_from(length).ok());
    let length = length.ok_or_else(|| fail("4 GiB are too many"))?;

    let mut nonce = [0; NONCE_LEN];
    fill(&mut nonce)?;
    let head = MAGIC.len() + 2 + key.wrapped_by.len() + 2 + key.wrapped.len();
    let mut sealed = Vec::with_capacity(head + NONCE_LEN + 4 + plain.len() + TAG_LEN);
    sealed.extend_from_slice(MAGIC);
    sealed.extend_from_slice(&name.to_be_bytes());
    sealed.extend_from_slice(key.wrapped_by.as_bytes());
    sealed.extend_from_slice(&wrapped.to_be_bytes());
    sealed.extend_from_slice(&key.wrapped);
    let additional = additional(&sealed, context);
    sealed.extend_from_slice(&nonce);
    sealed.extend_from_slice(&length.to_be_bytes());
    let body = sealed.len();
    // Encrypted in place, so that no copy of the plain text remains.
    sealed.extend_from_slice(plain);
    let tag = cipher(&key.plain)
        .ok_or_else(|| fail("a data key has 32 bytes"))?
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(additional),
            &mut sealed[body..],
        )
        .map_err(|_| fail("encryption failed"))?;
    sealed.extend_from_slice(tag.as_ref());
    Ok(sealed)
}

pub(crate) fn open(key: &Secret, context: &Context, sealing: &[u8]) -> PortResult<Secret> {
    let (parts, rest) = Parts::first(sealing)?;
    if !rest.is_empty() {
        let more = "not sealed by Slipway: they are longer than their head says";
        return Err(refused("pki:Open", "sealed bytes", more.to_owned()));
    }
    let fail = |message: &str| refused("pki:Open", &describe(context), message.to_owned());
    let mut bytes = Zeroizing::new(parts.body.to_vec());
    let length = cipher(key)
        .ok_or_else(|| fail("a data key has 32 bytes"))?
        .open_in_place(
            Nonce::assume_unique_for_key(parts.nonce),
            Aad::from(additional(parts.head, context)),
            &mut bytes[..],
        )
        .map_err(|_| fail("tampered with, or sealed under another key or context"))?
        .len();
    bytes.truncate(length);
    Ok(Secret::new(std::mem::take(&mut *bytes)))
}

fn cipher(key: &Secret) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key.expose()).ok().map(LessSafeKey::new)
}

fn additional(head: &[u8], context: &Context) -> Vec<u8> {
    let mut bytes = head.to_vec();
    bytes.extend_from_slice(describe(context).as_bytes());
    bytes
}

/// The context as JSON with sorted keys. It is authenticated, and errors show it. It contains no secret.
fn describe(context: &Context) -> String {
    serde_json::to_string(context).expect("a context has string keys only")
}
