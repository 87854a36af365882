//! joserfc judges tokens that kube-apiserver would sign with our keys, given only the published documents.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use slipway_core::cluster::KeyAlgorithm;
use slipway_core::oidc::{self, VerificationKey};
use slipway_credentials::AssetKind;
use slipway_crypto::AwsLc;
use slipway_ports::{Crypto as _, NewAsset};

use crate::common::ALGORITHMS;

const ISSUER: &str = "https://issuer.s3.eu-west-1.amazonaws.com/clusters/production";

/// A service account key, as Slipway makes it.
struct Key {
    algorithm: KeyAlgorithm,
    made: NewAsset,
}

impl Key {
    fn new(algorithm: KeyAlgorithm) -> Self {
        Self { algorithm, made: AwsLc.make(&AssetKind::KeyPair(algorithm)).unwrap() }
    }

    fn pem(&self) -> &str {
        self.made.public.as_deref().unwrap()
    }

    fn public(&self) -> VerificationKey {
        AwsLc.verification_key(self.pem()).unwrap()
    }

    /// A token for a pod, as the API server signs it.
    fn token(&self, audience: &str) -> String {
        let public = self.public();
        let header = json!({ "alg": public.algorithm(), "kid": public.id });
        let claims = json!({
            "iss": ISSUER, "aud": [audience], "sub": "system:serviceaccount:ops:backup", "exp": 4_102_444_800u32,
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.sign(signed.as_bytes())))
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let pem = std::str::from_utf8(self.made.private.expose()).unwrap();
        let body: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        let der = STANDARD.decode(body).unwrap();
        let ecdsa = |kind| {
            let pair = EcdsaKeyPair::from_pkcs8(kind, &der).unwrap();
            pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
        };
        match self.algorithm {
            KeyAlgorithm::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            KeyAlgorithm::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            KeyAlgorithm::Rsa2048 | KeyAlgorithm::Rsa3072 | KeyAlgorithm::Rsa4096 => {
                let pair = RsaKeyPair::from_pkcs8(&der).unwrap();
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).unwrap();
                signature
            }
        }
    }
}

/// joserfc's result for `token`, given the documents of `published`: the claims, or the error.
fn judge(published: &[&Key], token: &str) -> Result<Value, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let python = Command::new(root.join("tests/scripts/tools.sh")).output().unwrap();
    assert!(python.status.success(), "{}", String::from_utf8_lossy(&python.stderr));
    let keys: Vec<VerificationKey> = published.iter().map(|key| key.public()).collect();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let told = json!({
        "issuer": ISSUER,
        "discovery": text(oidc::discovery(ISSUER, &keys)),
        "jwks": text(oidc::jwks(&keys)),
        "publicKeys": published.iter().map(|key| key.pem()).collect::<Vec<_>>(),
        "token": token,
    });
    let mut judge = Command::new(text(python.stdout).trim())
        .arg(root.join("tests/scripts/verify_token.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    judge.stdin.take().unwrap().write_all(told.to_string().as_bytes()).unwrap();
    let output = judge.wait_with_output().unwrap();
    if output.status.success() {
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    } else {
        Err(text(output.stderr))
    }
}

#[test]
fn a_token_of_every_kind_of_key_is_valid_by_what_is_published() {
    for algorithm in ALGORITHMS {
        let key = Key::new(algorithm);
        let claims =
            judge(&[&key], &key.token(oidc::AUDIENCE)).unwrap_or_else(|why| panic!("{algorithm:?}: {why}"));
        assert_eq!(claims["sub"], "system:serviceaccount:ops:backup", "{algorithm:?}");
    }
}

#[test]
fn while_keys_are_exchanged_tokens_of_both_are_valid_and_no_others() {
    let (old, new, foreign) = (
        Key::new(KeyAlgorithm::Rsa2048),
        Key::new(KeyAlgorithm::EcdsaP256),
        Key::new(KeyAlgorithm::EcdsaP256),
    );
    for key in [&old, &new] {
        judge(&[&old, &new], &key.token(oidc::AUDIENCE)).unwrap();
    }
    let why = judge(&[&new], &old.token(oidc::AUDIENCE)).unwrap_err();
    assert!(why.contains("InvalidKeyIdError") || why.contains("key"), "{why}");
    judge(&[&old, &new], &foreign.token(oidc::AUDIENCE)).unwrap_err();

    // A token with the id of a key that did not sign it, a changed token, and a token for another audience.
    let token = new.token(oidc::AUDIENCE);
    let forged =
        format!("{}.{}", token.rsplit_once('.').unwrap().0, URL_SAFE_NO_PAD.encode(foreign.sign(b"x")));
    let why = judge(&[&new], &forged).unwrap_err();
    assert!(why.contains("BadSignatureError"), "{why}");
    let why = judge(&[&new], &new.token("https://kubernetes.default.svc.cluster.local")).unwrap_err();
    assert!(why.contains("aud"), "{why}");
}

#[test]
fn what_is_no_public_key_of_tokens_is_refused_without_being_quoted() {
    let key = Key::new(KeyAlgorithm::EcdsaP256);
    let private = std::str::from_utf8(key.made.private.expose()).unwrap();
    let body = key.pem().lines().nth(1).unwrap();
    let truncated = key.pem().replace(body, &body[..32]);
    for pem in ["", "no PEM", private, truncated.as_str()] {
        let error = AwsLc.verification_key(pem).unwrap_err();
        assert!(!format!("{error:?}").contains(private.lines().nth(1).unwrap()), "{error}");
    }
}
