//! Key pairs of rcgen over AWS-LC. Copies that rcgen makes are wiped.

use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize};
use slipway_core::cluster::KeyAlgorithm;
use slipway_ports::{PortResult, Secret};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{armor, refused};

/// A private key; its serialised form is wiped when it is dropped.
pub(crate) struct Key(KeyPair);

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Key {
    /// Generates a new key.
    pub(crate) fn generate(algorithm: KeyAlgorithm) -> PortResult<Self> {
        let rsa = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        let (name, made) = match algorithm {
            KeyAlgorithm::EcdsaP256 => ("ECDSA-P256", KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)),
            KeyAlgorithm::EcdsaP384 => ("ECDSA-P384", KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384)),
            KeyAlgorithm::Rsa2048 => ("RSA-2048", rsa(RsaKeySize::_2048)),
            KeyAlgorithm::Rsa3072 => ("RSA-3072", rsa(RsaKeySize::_3072)),
            KeyAlgorithm::Rsa4096 => ("RSA-4096", rsa(RsaKeySize::_4096)),
        };
        made.map(Self).map_err(|error| refused("pki:Make", name, error.to_string()))
    }

    /// Reads PKCS #8, SEC 1 or PKCS #1 in PEM. Error messages contain nothing of the key.
    pub(crate) fn from_pem(pem: &Secret) -> Result<Self, String> {
        let text = std::str::from_utf8(pem.expose()).map_err(|_| "the key is not PEM".to_owned())?;
        let der = armor::decode(&["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"], text)
            .map_err(|problem| format!("the key cannot be read: {problem}"))?;
        // The library's message is left out, because it might quote the key.
        KeyPair::try_from(&der[..])
            .map(Self)
            .map_err(|_| "the key cannot be read: neither ECDSA on P-256 or P-384 nor RSA".to_owned())
    }

    /// Reads PKCS #8.
    pub(crate) fn from_der(der: &[u8]) -> Option<Self> {
        KeyPair::try_from(der).ok().map(Self)
    }

    /// PKCS #8 in PEM.
    pub(crate) fn private_pem(&self) -> Secret {
        let mut text = armor::encode("PRIVATE KEY", self.0.serialized_der());
        Secret::new(std::mem::take(&mut *text).into_bytes())
    }

    /// SubjectPublicKeyInfo in PEM.
    pub(crate) fn public_pem(&self) -> String {
        let mut text: Zeroizing<String> = armor::encode("PUBLIC KEY", &self.0.subject_public_key_info());
        std::mem::take(&mut *text)
    }

    /// SubjectPublicKeyInfo in DER.
    pub(crate) fn public_der(&self) -> Vec<u8> {
        self.0.subject_public_key_info()
    }

    /// Whether it is an RSA key, which may also encipher.
    pub(crate) fn is_rsa(&self) -> bool {
        self.0.algorithm() == &rcgen::PKCS_RSA_SHA256
    }

    /// The key pair for rcgen.
    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }
}
