//! Secrets other than the keys of certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_ports::{PortResult, Secret};
use zeroize::Zeroizing;

use crate::fill;

const TOKEN_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// `[a-z0-9]{6}.[a-z0-9]{16}`, each character equally likely: 113 bits.
/// <https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#token-format>
pub(crate) fn bootstrap_token() -> PortResult<Secret> {
    let mut token = Vec::with_capacity(23);
    let mut random = Zeroizing::new([0u8; 64]);
    while token.len() < 23 {
        fill(&mut random[..])?;
        // 252 is the largest multiple of 36. Bytes of 252 and more would make the first letters more likely.
        for byte in random.iter().filter(|byte| **byte < 252) {
            match token.len() {
                23 => break,
                6 => token.push(b'.'),
                _ => token.push(TOKEN_ALPHABET[usize::from(byte % 36)]),
            }
        }
    }
    Ok(Secret::new(token))
}

/// 32 random bytes in base64.
pub(crate) fn random_key() -> PortResult<Secret> {
    let mut random = Zeroizing::new([0u8; 32]);
    fill(&mut random[..])?;
    let mut text = vec![0; 44];
    STANDARD.encode_slice(&random[..], &mut text).expect("32 bytes make 44 characters");
    Ok(Secret::new(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn tokens_have_their_form_use_their_alphabet_and_never_repeat() {
        let mut seen = BTreeSet::new();
        let mut letters = BTreeSet::new();
        for _ in 0..500 {
            let token = String::from_utf8(bootstrap_token().unwrap().expose().to_vec()).unwrap();
            let (id, secret) = token.split_once('.').unwrap();
            assert_eq!((id.len(), secret.len()), (6, 16));
            letters.extend(id.bytes().chain(secret.bytes()));
            assert!(seen.insert(token.clone()));
        }
        assert_eq!(letters.into_iter().collect::<Vec<_>>(), {
            let mut all = TOKEN_ALPHABET.to_vec();
            all.sort_unstable();
            all
        });
    }

    #[test]
    fn a_random_key_is_thirty_two_bytes() {
        let key = random_key().unwrap();
        assert_eq!(STANDARD.decode(key.expose()).unwrap().len(), 32);
        assert_ne!(key.expose(), random_key().unwrap().expose());
    }
}
