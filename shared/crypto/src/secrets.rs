//! Secrets other than the keys of certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_ports::{PortResult, Secret};
use zeroize::Zeroizing;

use crate::fill;

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
    use super::*;

    #[test]
    fn a_random_key_is_thirty_two_bytes() {
        let key = random_key().unwrap();
        assert_eq!(STANDARD.decode(key.expose()).unwrap().len(), 32);
        assert_ne!(key.expose(), random_key().unwrap().expose());
    }
}
