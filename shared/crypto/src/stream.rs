//! Sealed streams for texts that are too large for memory: pieces of AES-256-GCM under a data key that is stored, wrapped, in the head.
//!
//! ```text
//! stream = head | salt, 32 bytes | piece, piece …
//! head   = "SLPS2" | u16 length | name of the wrapping key | u16 length | wrapped data key | u16 length | name of the stream
//! piece  = ciphertext of 64 KiB, of the last one of 1 byte to 64 KiB (an empty text is one empty piece) | tag of 16
//! ```
//!
//! This is the STREAM construction (Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015) in the form of age
//! (<https://age-encryption.org/v1>): the nonce of a piece is its number in 11 bytes, big-endian, and one byte that is 1 for the last
//! piece. So every omission, repetition, reordering or truncation of pieces is detected. The key of the pieces is derived with HKDF-SHA-256
//! from the data key, with the salt, and with the head and the context as JSON with sorted keys as `info`. So neither can be exchanged, and
//! even if a data key is used twice, no nonce is used twice.
//!
//! The name of the stream is the key of the object that it is stored at, so a copy at another key is not taken for another stream. Streams of the
//! format `SLPS1` have no name and are still read; whoever opens one has to know otherwise that it is the right one.

use std::io::{self, Read, Write};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use slipway_ports::{Context, DataKey, ErrorKind, PortError, PortResult, Secret};
use zeroize::Zeroizing;

use crate::{fill, refused};

const MAGIC: &[u8; 5] = b"SLPS2";
/// Of streams without a name.
const NAMELESS: &[u8; 5] = b"SLPS1";
const SALT_LEN: usize = 32;
const TAG_LEN: usize = 16;
const PIECE: usize = 64 * 1024;
const KEY_LEN: usize = 32;

/// Seals what is written to it. Without [`Sealer::finish`] nobody can open the output.
pub struct Sealer<W> {
    to: W,
    pieces: Pieces,
    /// At most one piece. A full piece is kept until more text comes or the stream ends, because the last piece has another nonce.
    held: Zeroizing<Vec<u8>>,
}

impl<W: Write> Sealer<W> {
    /// Writes the head to `to`. `name`: the key of the object that it will be.
    ///
    /// # Errors
    /// If the key does not have 32 bytes, there is no randomness, or writing to `to` fails.
    pub fn new(key: &DataKey, context: &Context, name: &str, to: W) -> PortResult<Self> {
        Self::begin(key, context, Some(name), to)
    }

    fn begin(key: &DataKey, context: &Context, name: Option<&str>, mut to: W) -> PortResult<Self> {
        let fail = |message: &str| refused("pki:SealStream", &describe(context), message.to_owned());
        let mut head = if name.is_some() { MAGIC } else { NAMELESS }.to_vec();
        let mut counted = |bytes: &[u8], what: &str| {
            let length = u16::try_from(bytes.len());
            let length = length.map_err(|_| fail(&format!("{what} has at most 65535 bytes")))?;
            head.extend(length.to_be_bytes());
            head.extend(bytes);
            Ok(())
        };
        if key.wrapped.is_empty() {
            return Err(fail("a wrapped data key has a byte at least"));
        }
        counted(key.wrapped_by.as_bytes(), "the name of a key")?;
        counted(&key.wrapped, "a wrapped data key")?;
        name.map_or(Ok(()), |name| counted(name.as_bytes(), "the name of a stream"))?;
        let mut salt = [0; SALT_LEN];
        fill(&mut salt)?;
        let pieces = Pieces::new(&key.plain, context, &head, &salt)?;
        let written = to.write_all(&head).and_then(|()| to.write_all(&salt));
        written.map_err(|error| failed("pki:SealStream", &error))?;
        Ok(Self { to, pieces, held: Zeroizing::new(Vec::with_capacity(PIECE + TAG_LEN)) })
    }

    /// Adds text.
    ///
    /// # Errors
    /// If writing fails.
    pub fn push(&mut self, mut text: &[u8]) -> PortResult<()> {
        while !text.is_empty() {
            if self.held.len() == PIECE {
                self.seal(false)?;
            }
            let (now, later) = text.split_at(text.len().min(PIECE - self.held.len()));
            self.held.extend_from_slice(now);
            text = later;
        }
        Ok(())
    }

    /// Seals the last piece, and returns the writer.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn finish(mut self) -> PortResult<W> {
        self.seal(true)?;
        self.to.flush().map_err(|error| failed("pki:SealStream", &error))?;
        Ok(self.to)
    }

    fn seal(&mut self, last: bool) -> PortResult<()> {
        let nonce = self.pieces.next(last)?;
        let fail = |_| refused("pki:SealStream", "a piece", "encryption failed".to_owned());
        // In place, so that no copy of the text remains.
        let tag = self.pieces.key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut self.held);
        let tag = tag.map_err(fail)?;
        let written = self.to.write_all(&self.held).and_then(|()| self.to.write_all(tag.as_ref()));
        written.map_err(|error| failed("pki:SealStream", &error))?;
        self.held.clear();
        Ok(())
    }
}

impl<W> std::fmt::Debug for Sealer<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sealer").finish_non_exhaustive()
    }
}

/// A sealed stream after its head was read.
#[derive(Debug)]
pub struct Sealed<R> {
    from: R,
    head: Vec<u8>,
    salt: [u8; SALT_LEN],
    /// The key that wrapped the data key. It is authenticated by a successful [`Self::open`].
    pub wrapped_by: String,
    /// The wrapped data key.
    pub wrapped: Vec<u8>,
    /// The key of the object that it was sealed as, authenticated in the same way. `None`: it has the format `SLPS1`.
    pub name: Option<String>,
}

impl<R: Read> Sealed<R> {
    /// Reads the head.
    ///
    /// # Errors
    /// If it is truncated or not a sealed stream.
    pub fn read(mut from: R) -> PortResult<Self> {
        let mut head = Vec::new();
        let mut take = |length: usize| {
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes).map_err(|error| {
                if error.kind() == io::ErrorKind::UnexpectedEof {
                    return damaged("truncated in its head");
                }
                failed("pki:OpenStream", &error)
            })?;
            head.extend_from_slice(&bytes);
            PortResult::Ok(bytes)
        };
        let magic = take(MAGIC.len())?;
        if magic != MAGIC && magic != NAMELESS {
            return Err(damaged("not sealed by Slipway: it does not start with SLPS2"));
        }
        let mut counted = || {
            let length = take(2)?;
            take(usize::from(u16::from_be_bytes([length[0], length[1]])))
        };
        let (wrapped_by, wrapped) = (counted()?, counted()?);
        let name = if magic == MAGIC { Some(counted()?) } else { None };
        let salt = take(SALT_LEN)?;
        head.truncate(head.len() - SALT_LEN);
        let salt = salt.try_into().expect("so many bytes were read");
        let text = |bytes| String::from_utf8(bytes).map_err(|_| damaged("a name in its head is not a text"));
        let (wrapped_by, name) = (text(wrapped_by)?, name.map(text).transpose()?);
        Ok(Self { from, head, salt, wrapped_by, wrapped, name })
    }

    /// Decrypts the whole stream into `to`. Every piece that is written is authentic, but only the end shows whether the stream is
    /// complete. So the output must not be used before.
    ///
    /// # Errors
    /// If the stream was changed or truncated, or sealed under another key or context; or if reading or writing fails.
    pub fn open(mut self, key: &Secret, context: &Context, to: &mut impl Write) -> PortResult<()> {
        let mut pieces = Pieces::new(key, context, &self.head, &self.salt)?;
        let (mut piece, mut next) = (self.piece()?, Zeroizing::new(Vec::new()));
        loop {
            if piece.len() == PIECE + TAG_LEN {
                next = self.piece()?;
            }
            let last = next.is_empty();
            let first = pieces.number == 0;
            let nonce = pieces.next(last)?;
            let opened = pieces.key.open_in_place(nonce, Aad::empty(), &mut piece);
            let text = opened
                .map_err(|_| damaged("tampered with, truncated, or sealed under another key or context"))?;
            if text.is_empty() && !first {
                return Err(damaged("tampered with: it ends in an empty piece"));
            }
            to.write_all(text).map_err(|error| failed("pki:OpenStream", &error))?;
            if last {
                return to.flush().map_err(|error| failed("pki:OpenStream", &error));
            }
            piece = std::mem::take(&mut next);
        }
    }

    /// Reads one piece, or what remains of the stream.
    fn piece(&mut self) -> PortResult<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(PIECE + TAG_LEN));
        let mut limited = (&mut self.from).take((PIECE + TAG_LEN) as u64);
        limited.read_to_end(&mut bytes).map_err(|error| failed("pki:OpenStream", &error))?;
        Ok(bytes)
    }
}

struct Pieces {
    key: LessSafeKey,
    number: u64,
}

impl Pieces {
    fn new(key: &Secret, context: &Context, head: &[u8], salt: &[u8; SALT_LEN]) -> PortResult<Self> {
        let fail = |message: &str| refused("pki:Stream", &describe(context), message.to_owned());
        if key.expose().len() != KEY_LEN {
            return Err(fail("a data key has 32 bytes"));
        }
        let info = [head, describe(context).as_bytes()].concat();
        let info = [info.as_slice()];
        let derived = Salt::new(HKDF_SHA256, salt).extract(key.expose());
        let derived = derived.expand(&info, &AES_256_GCM).map_err(|_| fail("no key can be derived"))?;
        Ok(Self { key: LessSafeKey::new(UnboundKey::from(derived)), number: 0 })
    }

    fn next(&mut self, last: bool) -> PortResult<Nonce> {
        let mut nonce = [0; NONCE_LEN];
        nonce[3..11].copy_from_slice(&self.number.to_be_bytes());
        nonce[11] = u8::from(last);
        self.number = self.number.checked_add(1).ok_or_else(|| damaged("too long"))?;
        Ok(Nonce::assume_unique_for_key(nonce))
    }
}

/// See `seal::describe`.
fn describe(context: &Context) -> String {
    serde_json::to_string(context).expect("a context has string keys only")
}

fn damaged(how: &str) -> PortError {
    refused("pki:OpenStream", "a sealed stream", how.to_owned())
}

fn failed(operation: &'static str, error: &io::Error) -> PortError {
    PortError {
        kind: ErrorKind::Transient,
        operation,
        subject: "a sealed stream".to_owned(),
        message: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn context(role: &str) -> Context {
        [("cluster", "a"), ("role", role)].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    fn key(byte: u8) -> DataKey {
        DataKey {
            wrapped_by: "arn:aws:kms:eu-west-1:1:key/k".to_owned(),
            plain: Secret::new(vec![byte; 32]),
            wrapped: vec![7; 184],
        }
    }

    fn text(length: usize) -> Vec<u8> {
        (0..length).map(|number| (number % 251) as u8).collect()
    }

    fn seal(plain: &[u8]) -> Vec<u8> {
        let mut sealer = Sealer::new(&key(1), &context("snapshot"), NAME, Vec::new()).unwrap();
        // Parts of odd sizes, as a network delivers them.
        for part in plain.chunks(32_771) {
            sealer.push(part).unwrap();
        }
        sealer.finish().unwrap()
    }

    const NAME: &str = "snapshots/1.db";

    fn open(sealed: &[u8]) -> Result<Vec<u8>, String> {
        let mut plain = Vec::new();
        let opened =
            Sealed::read(sealed).and_then(|it| it.open(&key(1).plain, &context("snapshot"), &mut plain));
        opened.map(|()| plain).map_err(|error| error.message)
    }

    const HEAD: usize = 5 + 2 + 29 + 2 + 184 + 2 + NAME.len() + SALT_LEN;
    const WHOLE: usize = PIECE + TAG_LEN;

    #[test]
    fn texts_of_every_length_come_back_and_are_sealed_otherwise_each_time() {
        for length in [0, 1, 31, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 17] {
            let plain = text(length);
            let sealed = seal(&plain);
            assert!(open(&sealed).unwrap() == plain, "{length}");
            let pieces = length.div_ceil(PIECE).max(1);
            assert_eq!(sealed.len(), HEAD + length + pieces * TAG_LEN, "{length}");
            assert_ne!(sealed, seal(&plain));
        }
        let sealed = seal(b"x");
        let head = Sealed::read(sealed.as_slice()).unwrap();
        assert_eq!(head.wrapped_by, "arn:aws:kms:eu-west-1:1:key/k");
        assert_eq!(head.name.as_deref(), Some(NAME));
    }

    /// Whoever copies a stream to another key may change the name in its head. It then opens no more, and not as one without a name either.
    #[test]
    fn a_stream_has_one_name_and_one_of_the_former_format_none() {
        let sealed = seal(b"x");
        let renamed = |name: &[u8]| {
            let end = HEAD - SALT_LEN - NAME.len() - 2;
            let length = u16::try_from(name.len()).unwrap().to_be_bytes();
            [&sealed[..end], &length, name, &sealed[HEAD - SALT_LEN..]].concat()
        };
        assert_eq!(open(&renamed(NAME.as_bytes())).unwrap(), b"x");
        for name in [&b"snapshots/2.db"[..], b"", b"snapshots/1.d"] {
            open(&renamed(name)).unwrap_err();
        }
        open(&[NAMELESS, &sealed[5..HEAD - SALT_LEN - NAME.len() - 2], &sealed[HEAD - SALT_LEN..]].concat())
            .unwrap_err();
        let mut sealer = Sealer::begin(&key(1), &context("snapshot"), None, Vec::new()).unwrap();
        sealer.push(b"of before").unwrap();
        let former = sealer.finish().unwrap();
        assert_eq!(Sealed::read(former.as_slice()).unwrap().name, None);
        assert_eq!(open(&former).unwrap(), b"of before");
    }

    #[test]
    fn what_is_cut_off_is_missed_wherever_it_is_cut() {
        let sealed = seal(&text(2 * PIECE + 100));
        for end in [
            0,
            4,
            6,
            HEAD - 1,
            HEAD,
            HEAD + 5,
            HEAD + WHOLE - 1,
            HEAD + WHOLE,
            HEAD + 2 * WHOLE,
            sealed.len() - 1,
        ] {
            open(&sealed[..end]).unwrap_err();
        }
        // A text of whole pieces ends with a whole piece.
        let whole = seal(&text(2 * PIECE));
        open(&whole[..HEAD + WHOLE]).unwrap_err();
    }

    #[test]
    fn pieces_cannot_be_moved_repeated_left_out_or_added() {
        let sealed = seal(&text(3 * PIECE));
        let (head, body) = sealed.split_at(HEAD);
        let piece = |number: usize| &body[number * WHOLE..(number + 1) * WHOLE];
        for order in
            [&[1, 0, 2][..], &[0, 0, 1, 2], &[0, 2], &[1, 2], &[0, 1], &[0, 1, 2, 2], &[0, 1, 1, 2], &[2]]
        {
            let mut other = head.to_vec();
            order.iter().for_each(|number| other.extend(piece(*number)));
            open(&other).unwrap_err();
        }
        // The pieces of another stream under the same key.
        let twin = seal(&text(3 * PIECE));
        let mixed = [&sealed[..HEAD + WHOLE], &twin[HEAD + WHOLE..]].concat();
        open(&mixed).unwrap_err();
        open(&[sealed.as_slice(), b"more"].concat()).unwrap_err();
    }

    #[test]
    fn every_byte_counts_and_so_do_key_and_context() {
        let sealed = seal(&text(PIECE + 40));
        let places = (0..HEAD).chain([HEAD, HEAD + PIECE, HEAD + WHOLE, sealed.len() - 1]);
        for place in places {
            let mut other = sealed.clone();
            other[place] ^= 1;
            open(&other).expect_err(&format!("byte {place}"));
        }
        let with = |key: &DataKey, context: &Context| {
            Sealed::read(sealed.as_slice()).unwrap().open(&key.plain, context, &mut Vec::new())
        };
        with(&key(1), &context("snapshot")).unwrap();
        with(&key(2), &context("snapshot")).unwrap_err();
        with(&key(1), &context("etcd-0")).unwrap_err();
        let short = DataKey { plain: Secret::new(vec![1; 16]), ..key(1) };
        Sealer::new(&short, &context("snapshot"), NAME, Vec::new()).unwrap_err();
    }
}
