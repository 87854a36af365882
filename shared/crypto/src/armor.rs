//! PEM (RFC 7468) in buffers that are wiped. The usual libraries leave copies of private keys in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// The number of bytes in a line of 64 characters.
const LINE: usize = 48;

/// The maximum size of a text; a certificate with a hundred names has about 8 KiB.
const MAX_BYTES: usize = 256 * 1024;

/// Writes one block with the label `label`.
pub(crate) fn encode(label: &str, der: &[u8]) -> Zeroizing<String> {
    let lines = der.len().div_ceil(LINE);
    let mut text = Zeroizing::new(String::with_capacity(2 * label.len() + 34 + lines * 65));
    let mut line = Zeroizing::new([0u8; 64]);
    text.extend(["-----BEGIN ", label, "-----\n"]);
    for bytes in der.chunks(LINE) {
        let length = STANDARD.encode_slice(bytes, &mut line[..]).expect("48 bytes make 64 characters");
        text.push_str(std::str::from_utf8(&line[..length]).expect("base64 is ASCII"));
        text.push('\n');
    }
    text.extend(["-----END ", label, "-----\n"]);
    text
}

/// One block of a file.
#[derive(Debug)]
pub(crate) struct Block<'t> {
    /// The label.
    pub(crate) label: &'t str,
    /// The text between the first and the last line.
    inside: &'t str,
}

impl<'t> Block<'t> {
    /// The headers that OpenSSL used to write before the base64 (RFC 1421).
    pub(crate) fn headers(&self) -> Option<&'t str> {
        self.split().0
    }

    /// Headers and base64: an empty line separates them, and base64 has no colon.
    fn split(&self) -> (Option<&'t str>, &'t str) {
        if !self.inside.contains(':') {
            return (None, self.inside);
        }
        let inside = self.inside.trim_start();
        let mut at = 0;
        for line in inside.split_inclusive('\n') {
            at += line.len();
            if line.trim().is_empty() {
                break;
            }
        }
        (Some(&inside[..at]), &inside[at..])
    }

    /// The bytes of the block.
    pub(crate) fn der(&self) -> Result<Zeroizing<Vec<u8>>, String> {
        debase64(self.split().1)
    }
}

/// The blocks of a file in order. Text between them is ignored (RFC 7468, 2).
///
/// # Errors
/// If there is no block, or a block does not end with its own label. The message is for people and contains nothing of `text`.
pub(crate) fn blocks(text: &str) -> Result<Vec<Block<'_>>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes are too many for a PEM file of at most {MAX_BYTES}", text.len()));
    }
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once("-----BEGIN ") {
        let Some((label, after)) = begun.split_once("-----") else {
            return Err("it is truncated: a line with -----BEGIN does not end".to_owned());
        };
        let Some((inside, end)) = after.split_once("-----END ") else {
            return Err("it is truncated: -----END is missing".to_owned());
        };
        let Some(remaining) = end.strip_prefix(label).and_then(|end| end.strip_prefix("-----")) else {
            return Err("a PEM block ends as another than it began".to_owned());
        };
        found.push(Block { label, inside });
        rest = remaining;
    }
    if found.is_empty() { Err("it is not PEM: it has no -----BEGIN".to_owned()) } else { Ok(found) }
}

/// The bytes of the one block in `text`, if its label is one of `labels`.
///
/// # Errors
/// The message is for people and contains nothing of `text`.
pub(crate) fn decode(labels: &[&str], text: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes are too many for one PEM block of at most {MAX_BYTES}", text.len()));
    }
    let text = text.trim();
    let Some((label, rest)) = text.strip_prefix("-----BEGIN ").and_then(|text| text.split_once("-----"))
    else {
        return Err("it is not PEM: it does not start with -----BEGIN".to_owned());
    };
    if !labels.contains(&label) {
        return Err(format!("its PEM block is not a {}", labels.join(" or a ")));
    }
    let Some((body, end)) = rest.split_once("-----END ") else {
        return Err("it is truncated: -----END is missing".to_owned());
    };
    if end.strip_prefix(label) != Some("-----") {
        return Err("more than one PEM block, or one that ends as another than it began".to_owned());
    }
    debase64(body)
}

fn debase64(body: &str) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut body: Zeroizing<Vec<u8>> = Zeroizing::new({
        let mut bytes = Vec::with_capacity(body.len());
        body.split_ascii_whitespace().for_each(|line| bytes.extend_from_slice(line.as_bytes()));
        bytes
    });
    let mut der = Zeroizing::new(vec![0; body.len().div_ceil(4) * 3]);
    let length =
        STANDARD.decode_slice(&body[..], &mut der[..]).map_err(|_| "its base64 is damaged".to_owned())?;
    body.clear();
    der.truncate(length);
    Ok(der)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_armoured_is_read_back(der in proptest::collection::vec(any::<u8>(), 1..400)) {
            let text = encode("PRIVATE KEY", &der);
            prop_assert!(text.lines().all(|line| line.len() <= 64));
            prop_assert!(text.capacity() >= text.len() && text.capacity() < text.len() + 130, "it grew");
            prop_assert_eq!(&decode(&["PRIVATE KEY"], &text).unwrap()[..], &der[..]);
        }

        #[test]
        fn any_text_is_refused_in_peace(text in ".{0,300}") {
            prop_assert!(decode(&["CERTIFICATE"], &text).is_err());
        }
    }

    #[test]
    fn each_damage_is_called_by_its_name() {
        let text = encode("PRIVATE KEY", &[7; 100]);
        let error = |text: &str| decode(&["PRIVATE KEY", "EC PRIVATE KEY"], text).unwrap_err();
        assert!(error("").contains("not PEM"));
        assert!(error(&text[..80]).contains("truncated"));
        assert!(
            error(&text.replace("PRIVATE KEY", "CERTIFICATE"))
                .contains("not a PRIVATE KEY or a EC PRIVATE KEY")
        );
        assert!(error(&text.replacen("Bw", "!!", 1)).contains("damaged"));
        assert!(error(&format!("{}{}", *text, *text)).contains("more than one"));
        assert!(error(&"a".repeat(10 << 20)).contains("too many"));
    }
}
