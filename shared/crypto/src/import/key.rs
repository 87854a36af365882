//! Reads a private key in PEM, possibly encrypted with a passphrase: PKCS #8, SEC 1, PKCS #1, and OpenSSL's old encryption of the latter
//! two (headers of RFC 1421, a key derived with MD5).

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeyPair as RsaKeyPair;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt as _, InnerIvInit, KeyInit, KeyIvInit as _};
use md5::{Digest as _, Md5};
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::pkcs5::EncryptionScheme;
use slipway_core::digest::sha256_hex;
use slipway_ports::{BroughtKey, Flaw, Secret};
use zeroize::{Zeroize as _, Zeroizing};

use super::flaw;
use crate::armor::{self, Block};

/// A command that encrypts a key in a form that we can read, with any OpenSSL since 1.0.
const ENCRYPT: &str = "openssl pkcs8 -topk8 -v2 aes-256-cbc -in OLD -out NEW";

/// This number of PBKDF2 rounds takes a minute in a small Lambda function; OWASP recommends 600,000.
const MOST_ROUNDS: u32 = 10_000_000;
/// The maximum memory of scrypt in bytes; OpenSSL's default needs 16 MiB.
const MOST_SCRYPT: u64 = 64 << 20;

/// Whether the file's key is encrypted.
pub(crate) fn is_locked(text: &Secret) -> bool {
    let text = std::str::from_utf8(text.expose()).unwrap_or_default();
    text.contains("-----BEGIN ENCRYPTED PRIVATE KEY-----") || text.contains("Proc-Type: 4,ENCRYPTED")
}

/// Reads the only key of a file.
pub(crate) fn key(text: &Secret, passphrase: Option<&Secret>) -> Result<BroughtKey, Flaw> {
    const HELP: &str = "write it with `openssl pkey -in FILE -aes256`: one key, in PEM";
    let text = std::str::from_utf8(text.expose()).map_err(|_| flaw("it is not PEM: it is not text", HELP))?;
    let blocks = armor::blocks(text).map_err(|problem| flaw(problem, HELP))?;
    let mut keys = blocks.iter().filter(|block| block.label.ends_with("PRIVATE KEY"));
    let Some(block) = keys.next() else {
        let label = blocks.first().map_or("", |block| block.label);
        return Err(flaw(format!("it holds no private key, but a {label}"), HELP));
    };
    match keys.count() {
        0 => {}
        more => {
            let message = format!("it holds {} private keys", more + 1);
            return Err(flaw(message, "keep the one that belongs to the certificate, alone in its file"));
        }
    }
    let der = match (block.label, block.headers()) {
        ("ENCRYPTED PRIVATE KEY", _) => pkcs8(&body(block)?, passphrase)?,
        (_, Some(headers)) => old_openssl(headers, &body(block)?, passphrase)?,
        ("PRIVATE KEY" | "EC PRIVATE KEY" | "RSA PRIVATE KEY", None) => body(block)?,
        (other, None) => {
            let message = format!("it holds a {other}, which is neither PKCS #8 nor SEC 1 nor PKCS #1");
            return Err(flaw(message, format!("convert it with `{ENCRYPT}`")));
        }
    };
    let locked = block.label.starts_with("ENCRYPTED") || block.headers().is_some();
    normal(&der, locked)
}

fn body(block: &Block<'_>) -> Result<Zeroizing<Vec<u8>>, Flaw> {
    block.der().map_err(|problem| flaw(problem, "bring the file as it was written, not a part of it"))
}

/// The key in our format: PKCS #8, with its public half checked against its private half.
fn normal(der: &[u8], locked: bool) -> Result<BroughtKey, Flaw> {
    let ecdsa = [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING]
        .into_iter()
        .find_map(|algorithm| EcdsaKeyPair::from_private_key_der(algorithm, der).ok());
    let bytes = if let Some(pair) = ecdsa {
        pair.to_pkcs8v1().ok().map(|document| Zeroizing::new(document.as_ref().to_vec()))
    } else {
        let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der));
        pair.ok()
            .and_then(|pair| pair.as_der().ok())
            .map(|document| Zeroizing::new(document.as_ref().to_vec()))
    };
    let read = bytes.and_then(|bytes| crate::keys::Key::from_der(&bytes));
    let Some(key) = read else {
        // A wrong passphrase may produce text with valid padding by chance.
        if locked && !der.starts_with(&[0x30]) {
            return Err(wrong_passphrase());
        }
        return Err(flaw(
            "its key is neither ECDSA on P-256 or P-384 nor RSA of 2048 to 8192 bits, or it is damaged",
            "bring an authority with such a key",
        ));
    };
    Ok(BroughtKey { pem: key.private_pem(), spki_sha256: sha256_hex(&key.public_der()) })
}

fn wrong_passphrase() -> Flaw {
    flaw(
        "the passphrase does not open it",
        "try it with `openssl pkey -in FILE -noout`; a parameter or a variable may end in a line break that is part of it",
    )
}

fn no_passphrase() -> Flaw {
    flaw("it is encrypted, and no passphrase is known", "name one")
}

fn pkcs8(der: &[u8], passphrase: Option<&Secret>) -> Result<Zeroizing<Vec<u8>>, Flaw> {
    let unknown = |what: &str| {
        flaw(
            format!("it is encrypted by {what}"),
            format!("encrypt it by PBES2: `{ENCRYPT}`, where OLD is the file as it is"),
        )
    };
    let damaged = || {
        flaw(
            "it is encrypted by a scheme that is not known here, or damaged",
            format!("encrypt it anew: `{ENCRYPT}`"),
        )
    };
    let info = EncryptedPrivateKeyInfoRef::try_from(der).map_err(|_| damaged())?;
    let EncryptionScheme::Pbes2(parameters) = &info.encryption_algorithm else {
        return Err(unknown("PBES1, which is broken"));
    };
    if parameters.kdf.pbkdf2().is_some_and(|kdf| kdf.iteration_count > MOST_ROUNDS) {
        return Err(unknown(&format!("more than {MOST_ROUNDS} rounds of PBKDF2")));
    }
    let scrypt = parameters.kdf.scrypt().map(|kdf| {
        let (cost, block) = (kdf.cost_parameter, u64::from(kdf.block_size));
        cost.saturating_mul(block).saturating_mul(128).saturating_mul(u64::from(kdf.parallelization))
    });
    if scrypt.is_some_and(|bytes| bytes > MOST_SCRYPT) {
        return Err(unknown(&format!("scrypt with more than {} MiB", MOST_SCRYPT >> 20)));
    }
    let passphrase = passphrase.ok_or_else(no_passphrase)?;
    let mut buffer = Zeroizing::new(info.encrypted_data.as_bytes().to_vec());
    let length = match info.encryption_algorithm.decrypt_in_place(passphrase.expose(), &mut buffer) {
        Ok(plain) => plain.len(),
        Err(pkcs8::pkcs5::Error::UnsupportedAlgorithm { .. }) => {
            return Err(unknown("an algorithm that is not known here"));
        }
        Err(_) => return Err(wrong_passphrase()),
    };
    buffer.truncate(length);
    Ok(buffer)
}

/// `DEK-Info: AES-256-CBC,0123…`, as OpenSSL's PEM_do_header reads it.
fn old_openssl(headers: &str, body: &[u8], passphrase: Option<&Secret>) -> Result<Zeroizing<Vec<u8>>, Flaw> {
    let help = format!("encrypt it anew: `{ENCRYPT}`");
    let info = headers.lines().find_map(|line| line.trim().strip_prefix("DEK-Info:"));
    let (cipher, salt) = info
        .and_then(|info| info.trim().split_once(','))
        .ok_or_else(|| flaw("its headers do not say how it is encrypted (DEK-Info)", help.clone()))?;
    let salt = from_hex(salt.trim()).ok_or_else(|| flaw("its DEK-Info is damaged", help.clone()))?;
    let (key_len, block_len) = match cipher {
        "AES-128-CBC" => (16, 16),
        "AES-192-CBC" => (24, 16),
        "AES-256-CBC" => (32, 16),
        "DES-EDE3-CBC" => (24, 8),
        _ => {
            let message = "it is encrypted by a cipher other than AES-CBC and triple DES (DEK-Info)";
            return Err(flaw(message, help));
        }
    };
    if salt.len() != block_len {
        return Err(flaw("its DEK-Info is damaged", help));
    }
    let passphrase = passphrase.ok_or_else(no_passphrase)?;
    let key = derive(passphrase.expose(), &salt[..8], key_len);
    let mut buffer = Zeroizing::new(body.to_vec());
    let length = match (block_len, key_len) {
        (8, _) => cbc::<des::TdesEde3>(&key, &salt, &mut buffer),
        (_, 16) => cbc::<aes::Aes128>(&key, &salt, &mut buffer),
        (_, 24) => cbc::<aes::Aes192>(&key, &salt, &mut buffer),
        (_, _) => cbc::<aes::Aes256>(&key, &salt, &mut buffer),
    };
    buffer.truncate(length.ok_or_else(wrong_passphrase)?);
    Ok(buffer)
}

fn cbc<C>(key: &[u8], iv: &[u8], buffer: &mut [u8]) -> Option<usize>
where
    C: BlockCipherDecrypt + KeyInit,
    cbc::Decryptor<C>: InnerIvInit<Inner = C>,
{
    let cipher = cbc::Decryptor::<C>::new_from_slices(key, iv).ok()?;
    cipher.decrypt_padded::<Pkcs7>(buffer).ok().map(<[u8]>::len)
}

/// OpenSSL's EVP_BytesToKey with MD5 and one round: each block is the digest of the one before, passphrase and salt.
fn derive(passphrase: &[u8], salt: &[u8], length: usize) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::with_capacity(length + 16));
    let mut block = Zeroizing::new(Vec::with_capacity(16));
    while key.len() < length {
        let mut digest = Md5::new();
        digest.update(&block[..]);
        digest.update(passphrase);
        digest.update(salt);
        block.clear();
        let mut output = digest.finalize();
        block.extend_from_slice(&output);
        output.as_mut_slice().zeroize();
        key.extend_from_slice(&block);
    }
    key.truncate(length);
    key
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}
