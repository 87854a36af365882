//! Searches everything that was written, logged or published for secrets (P9): the bytes of each key as they are, in hex, in base64, across
//! line breaks, and inside base64 or gzip.

mod world;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;

use base64::Engine as _;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

pub use world::{Searched, Secrets};

/// The maximum nesting of base64 and gzip that is followed.
const DEPTH: usize = 4;
/// The number of bytes by which a secret is found before it is compared as a whole.
const WINDOW: usize = 8;
/// A shorter text is no secret of ours, and would be found everywhere.
const SHORTEST: usize = 16;
/// The maximum number of bytes that are unpacked from one gzip stream.
const MOST: u64 = 16 << 20;

/// On a machine, whose root is `$root`: the secrets that it holds, a line each. Lines of private keys; bootstrap tokens, and the key that they are made
/// of; tokens and keys within kubeconfigs; the key that encrypts Secrets in etcd; tokens of service accounts.
pub const SECRETS_OF_MACHINE: &str = r#"
grep -rlsI 'PRIVATE KEY' "$root/etc" "$root/var/lib" | xargs -r cat | grep -v -- '-----' | awk 'length >= 40'
find "$root/etc" -type f -name 'bootstrap-*' -exec grep -hsxE '[a-z0-9]{6}\.[a-z0-9]{16}|[A-Za-z0-9+/_-]{32,}={0,2}' {} +
grep -rhosE '(token|secret|client-key-data)"?: *"?[A-Za-z0-9+][A-Za-z0-9+/._-]{15,}={0,2}' "$root/etc" "$root/var/lib/kubelet" | sed -E 's/^[^:]*: *"?//'
grep -rhosE 'eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{16,}' "$root/etc" "$root/var/lib/kubelet"
"#;

/// Secrets to look for.
#[derive(Debug, Default)]
pub struct Scanner {
    /// The forms of the secrets by their first bytes: the whole form, and the index of the secret.
    forms: HashMap<[u8; WINDOW], Vec<(Vec<u8>, usize)>>,
    names: Vec<String>,
}

impl Scanner {
    /// Searches for `secret` from now on, and reports it as `name`. For a private key in PEM, its DER and its private number are searched
    /// for, too.
    ///
    /// # Panics
    /// If it is so short that it would be found by chance.
    pub fn add(&mut self, name: &str, secret: &[u8]) {
        let text = secret.trim_ascii();
        assert!(text.len() >= SHORTEST, "{name} is too short to look for");
        let owner = self.names.len();
        self.names.push(name.to_owned());
        self.add_forms(owner, text);
        let Ok(text) = std::str::from_utf8(text) else { return };
        let body: String = text.lines().filter(|line| !line.starts_with("-----")).collect();
        let Ok(der) = engine(false).decode(body.trim()) else { return };
        if der.len() < SHORTEST {
            return;
        }
        self.add_forms(owner, &der);
        // The private number of an elliptic curve key in the ECPrivateKey of RFC 5915: version 1, then an octet string.
        let scalar = der.windows(4).position(|window| window == [0x02, 0x01, 0x01, 0x04]);
        if let Some((&length, rest)) = scalar.and_then(|at| der[at + 4..].split_first())
            && let Some(scalar) = rest.get(..usize::from(length)).filter(|scalar| scalar.len() >= SHORTEST)
        {
            self.add_forms(owner, scalar);
        }
    }

    /// The number of secrets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no secrets to search for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn add_forms(&mut self, owner: usize, bytes: &[u8]) {
        let lower: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut forms =
            BTreeSet::from([bytes.to_vec(), lower.to_uppercase().into_bytes(), lower.into_bytes()]);
        for url in [false, true] {
            for shift in 0..3 {
                forms.insert(in_base64(bytes, shift, url));
            }
        }
        for form in forms {
            let Some(window) = form.first_chunk::<WINDOW>() else { continue };
            self.forms.entry(*window).or_default().push((form, owner));
        }
    }

    /// The names of the secrets that are found in `bytes`.
    #[must_use]
    pub fn find(&self, bytes: &[u8]) -> BTreeSet<&str> {
        let mut found = BTreeSet::new();
        self.search(bytes, DEPTH, &mut found);
        found.into_iter().map(|owner| self.names[owner].as_str()).collect()
    }

    fn search(&self, bytes: &[u8], depth: usize, found: &mut BTreeSet<usize>) {
        self.compare(bytes, found);
        let joined = joined(bytes);
        if joined.len() != bytes.len() {
            self.compare(&joined, found);
        }
        if depth == 0 {
            return;
        }
        for inner in unzipped(bytes).into_iter().chain(decoded(&joined)) {
            self.search(&inner, depth - 1, found);
        }
    }

    fn compare(&self, bytes: &[u8], found: &mut BTreeSet<usize>) {
        for (at, window) in bytes.windows(WINDOW).enumerate() {
            let Some(forms) = window.first_chunk().and_then(|window| self.forms.get(window)) else {
                continue;
            };
            let here = forms.iter().filter(|(form, _)| bytes[at..].starts_with(form));
            found.extend(here.map(|(_, owner)| *owner));
        }
    }
}

fn engine(url: bool) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(if url { &URL_SAFE } else { &STANDARD }, config)
}

/// The base64 characters that depend only on `bytes`, if these begin `shift` bytes after a boundary.
fn in_base64(bytes: &[u8], shift: usize, url: bool) -> Vec<u8> {
    let text = engine(url).encode([&vec![0; shift][..], bytes].concat());
    let first = (shift * 8).div_ceil(6);
    let last = (shift + bytes.len()) * 8 / 6;
    text.as_bytes()[first..last].to_vec()
}

/// The text without line breaks and blanks, plain or escaped as in JSON.
fn joined(bytes: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        match (first, after.first()) {
            (b' ' | b'\n' | b'\r' | b'\t', _) => rest = after,
            (b'\\', Some(b'n' | b'r' | b't' | b'\\')) => rest = &after[1..],
            _ => {
                joined.push(first);
                rest = after;
            }
        }
    }
    joined
}

/// Whether a private key in PEM is in the bytes, whosever it is; the words for one, which are in each program that reads keys, are none.
fn has_private_key(bytes: &[u8]) -> bool {
    const HEADER: &[u8] = b"PRIVATEKEY-----";
    let joined = joined(bytes);
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/".contains(byte);
    let mut headers = joined.windows(HEADER.len() + SHORTEST).filter(|window| window.starts_with(HEADER));
    headers.any(|window| window[HEADER.len()..].iter().all(is_base64))
}

/// The content of each gzip stream that begins anywhere in the bytes.
fn unzipped(bytes: &[u8]) -> Vec<Vec<u8>> {
    let begins = bytes.windows(3).enumerate().filter(|(_, window)| *window == [0x1f, 0x8b, 0x08]);
    let open = |(at, _): (usize, &[u8])| {
        let mut inside = Vec::new();
        // A truncated stream is used as far as it goes.
        let _ = flate2::read::GzDecoder::new(&bytes[at..]).take(MOST).read_to_end(&mut inside);
        (!inside.is_empty()).then_some(inside)
    };
    begins.filter_map(open).collect()
}

/// The decoded content of each longer run of base64.
fn decoded(bytes: &[u8]) -> Vec<Vec<u8>> {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(byte);
    let runs = bytes.split(|byte| !is_base64(byte)).filter(|run| run.len() >= 2 * SHORTEST);
    let decode = |run: &[u8]| {
        let url = run.iter().any(|byte| b"-_".contains(byte));
        // A single leftover character is not a whole byte.
        let whole = if run.len() % 4 == 1 { &run[..run.len() - 1] } else { run };
        engine(url).decode(whole).ok()
    };
    runs.filter_map(decode).collect()
}

/// The secrets that were found, by place.
#[derive(Debug, Default)]
pub struct Findings(pub BTreeMap<String, BTreeSet<String>>);

impl Findings {
    /// Searches `bytes`, which were found at `place`.
    pub fn search(&mut self, scanner: &Scanner, place: &str, bytes: &[u8]) {
        let found = scanner.find(bytes);
        if !found.is_empty() {
            let names = found.into_iter().map(str::to_owned);
            self.0.entry(place.to_owned()).or_default().extend(names);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Command;

    use std::io::Write as _;

    use slipway_core::cluster::KeyAlgorithm;
    use slipway_credentials::AssetKind;
    use slipway_crypto::AwsLc;
    use slipway_ports::Crypto as _;

    use super::*;

    fn zipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn p9_a_secret_is_found_in_whatever_form_it_shows() {
        let secret: Vec<u8> = (0..32u8).map(|byte| byte.wrapping_mul(37) ^ 0xa5).collect();
        let mut scanner = Scanner::default();
        scanner.add("it", &secret);
        scanner.add("another", b"abcdef.0123456789abcdef");
        let url = engine(true);
        let plain = engine(false);
        for shift in 0..7 {
            let inside = [&vec![b'x'; shift][..], &secret, b"after"].concat();
            let hex: String = inside.iter().map(|byte| format!("{byte:02X}")).collect();
            let text = plain.encode(&inside);
            let lines: Vec<&str> =
                text.as_bytes().chunks(19).map(|line| std::str::from_utf8(line).unwrap()).collect();
            for (form, shown) in [
                ("raw", inside.clone()),
                ("hex", hex.to_lowercase().into_bytes()),
                ("HEX", hex.clone().into_bytes()),
                ("base64", text.clone().into_bytes()),
                ("url", url.encode(&inside).into_bytes()),
                ("lines", lines.join("\n").into_bytes()),
                ("JSON", serde_json::json!({ "pem": lines.join("\n") }).to_string().into_bytes()),
                ("gzip", zipped(&inside)),
                ("gzip of base64", zipped(text.as_bytes())),
                ("base64 of gzip", plain.encode(zipped(&inside)).into_bytes()),
                ("base64 of base64", plain.encode(&text).into_bytes()),
                (
                    "base64 of gzip of hex",
                    [b"UserData: ", plain.encode(zipped(hex.as_bytes())).as_bytes()].concat(),
                ),
            ] {
                assert_eq!(scanner.find(&shown), BTreeSet::from(["it"]), "{form}, {shift} bytes in");
            }
        }
        assert!(scanner.find(&secret[..31]).is_empty() && scanner.find(b"").is_empty());
        assert!(scanner.find(&zipped(b"nothing")).is_empty());
    }

    #[test]
    fn p9_anybodys_private_key_is_found_and_the_words_for_one_are_not() {
        let made = AwsLc.make(&AssetKind::KeyPair(KeyAlgorithm::EcdsaP256)).unwrap();
        let pem = std::str::from_utf8(made.private.expose()).unwrap();
        let found =
            [pem.to_owned(), serde_json::json!({ "key": pem }).to_string(), pem.replace('\n', "\r\n    ")];
        for text in found {
            assert!(has_private_key(text.as_bytes()), "{}", text.len());
        }
        for words in
            ["-----BEGIN PRIVATE KEY-----", "EC PRIVATE KEYCERTIFICATE-----BEGIN -----END -----\0\x01", ""]
        {
            assert!(!has_private_key(words.as_bytes()), "{words}");
        }
    }

    #[test]
    fn p9_a_private_key_is_found_by_its_number_alone() {
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384] {
            let made = AwsLc.make(&AssetKind::KeyPair(algorithm)).unwrap();
            let mut scanner = Scanner::default();
            scanner.add("key", made.private.expose());
            let text = std::str::from_utf8(made.private.expose()).unwrap();
            let der = engine(false)
                .decode(text.lines().filter(|l| !l.starts_with('-')).collect::<String>())
                .unwrap();
            let at = der.windows(4).position(|window| window == [2, 1, 1, 4]).unwrap();
            let scalar = &der[at + 5..at + 5 + usize::from(der[at + 4])];
            assert!(scalar.len() >= 32);
            for shown in [
                text.as_bytes().to_vec(),
                text.replace('\n', "\\n").into_bytes(),
                der.clone(),
                [b"d=", scalar].concat(),
                engine(true).encode(scalar).into_bytes(),
            ] {
                assert_eq!(scanner.find(&shown).len(), 1);
            }
            assert!(
                scanner.find(made.public.unwrap().as_bytes()).is_empty(),
                "the public half is not a secret"
            );
        }
    }

    /// The search on machines knew private keys alone.
    #[test]
    fn a_machine_is_searched_for_every_kind_of_secret_that_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let (line, jwt) = ("a1B2".repeat(16), format!("eyJ{0}.eyJ{0}.{0}", "a1B2".repeat(8)));
        let (token, key) = ("abcdef.0123456789abcdef", "c2VjcmV0".repeat(6));
        for (path, text) in [
            (
                "etc/etcd/pki/a-key.pem",
                format!("-----BEGIN PRIVATE KEY-----\n{line}\n-----END PRIVATE KEY-----\n"),
            ),
            ("etc/kubernetes/pki/ca.pem", format!("-----BEGIN CERTIFICATE-----\n{}\n", "Q".repeat(64))),
            ("etc/kubernetes/pki/bootstrap-token", format!("{token}\n")),
            ("etc/kubernetes/pki/bootstrap-key", "f".repeat(44)),
            (
                "etc/kubernetes/bootstrap-kubeconfig",
                "apiVersion: v1\ntokenFile: /etc/kubernetes/pki/bootstrap-token\n".to_owned(),
            ),
            ("etc/kubernetes/encryption-config.yaml", format!("keys:\n- name: key\n  secret: {key}=\n")),
            ("var/lib/kubelet/admin.conf", format!("user:\n  client-key-data: \"{}\"\n", "k".repeat(40))),
            ("var/lib/kubelet/pods/1/volumes/token/token", jwt.clone()),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let script = format!("root={}; {SECRETS_OF_MACHINE}", folder.path().display());
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: BTreeSet<&str> = printed.lines().collect();
        let (made_of, key, data) = ("f".repeat(44), format!("{key}="), "k".repeat(40));
        assert_eq!(printed, BTreeSet::from([&*line, token, &*made_of, &*key, &*data, &*jwt]));
    }
}
