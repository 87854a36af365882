//! The public OpenID Connect issuer of a cluster's service accounts, through which AWS and others verify their tokens without access to
//! the API server.
//!
//! The issuer is a folder of the installation's issuer bucket with two public documents: the discovery document ([`discovery`]) and the
//! public keys that verify tokens ([`jwks`]). The same keys give the same bytes.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::release::{Rendering, Site};
use crate::role::Role;

/// The audience (`aud`) that a pod's token needs so that AWS accepts it.
pub const AUDIENCE: &str = "sts.amazonaws.com";

/// The issuer of a cluster whose spec names none.
pub const LOCAL_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Path of the discovery document below the issuer (OpenID Connect Discovery 1.0, section 4).
pub const DISCOVERY_PATH: &str = ".well-known/openid-configuration";

/// Path of the key set below the issuer; the API server uses the same.
pub const JWKS_PATH: &str = "openid/v1/jwks";

/// A public key that verifies tokens, in the form of RFC 7517 and 7518.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerificationKey {
    /// The `kid` of the tokens that it verifies, as kube-apiserver computes it: SHA-256 of the key's SubjectPublicKeyInfo in DER, in
    /// URL-safe base64 without padding.
    pub id: String,
    /// Its type and its numbers.
    pub numbers: KeyNumbers,
}

/// The numbers of a public key, each in URL-safe base64 without padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyNumbers {
    /// A point on P-256; coordinates of 32 bytes.
    P256 {
        /// First coordinate.
        x: String,
        /// Second coordinate.
        y: String,
    },
    /// A point on P-384; coordinates of 48 bytes.
    P384 {
        /// First coordinate.
        x: String,
        /// Second coordinate.
        y: String,
    },
    /// An RSA key; numbers without leading zeros.
    Rsa {
        /// Modulus.
        n: String,
        /// Exponent.
        e: String,
    },
}

impl VerificationKey {
    /// The `alg` of the tokens that it verifies, as kube-apiserver chooses it for the type of key.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self.numbers {
            KeyNumbers::P256 { .. } => "ES256",
            KeyNumbers::P384 { .. } => "ES384",
            KeyNumbers::Rsa { .. } => "RS256",
        }
    }

    fn jwk(&self) -> Value {
        let (id, algorithm) = (&self.id, self.algorithm());
        match &self.numbers {
            KeyNumbers::P256 { x, y } => {
                json!({ "kty": "EC", "crv": "P-256", "alg": algorithm, "use": "sig", "kid": id, "x": x, "y": y })
            }
            KeyNumbers::P384 { x, y } => {
                json!({ "kty": "EC", "crv": "P-384", "alg": algorithm, "use": "sig", "kid": id, "x": x, "y": y })
            }
            KeyNumbers::Rsa { n, e } => {
                json!({ "kty": "RSA", "alg": algorithm, "use": "sig", "kid": id, "n": n, "e": e })
            }
        }
    }
}

/// The issuers in a controller's configuration: tokens are issued under the first, and all are accepted. `None`: the configuration cannot
/// be read.
#[must_use]
pub fn issuers(config: &str) -> Option<Vec<String>> {
    let config: Value = serde_json::from_str(config).ok()?;
    let list = config.pointer("/controlPlane/serviceAccountTokens/issuers").and_then(Value::as_array);
    Some(list.into_iter().flatten().filter_map(|issuer| issuer.as_str().map(str::to_owned)).collect())
}

/// The issuer that tokens are issued under, if it is not the cluster's local issuer, which every controller accepts.
#[must_use]
pub fn public_issuer(issuers: &[String]) -> Option<&String> {
    issuers.first().filter(|issuer| *issuer != LOCAL_ISSUER)
}

/// Whether the controllers of a release issue tokens that AWS cannot verify. A configuration that cannot be read counts as such.
#[must_use]
pub fn signs_locally(release: &Rendering) -> bool {
    let controller = release.roles.get(&Role::Controller);
    controller
        .is_some_and(|node| issuers(&node.config).is_none_or(|issuers| public_issuer(&issuers).is_none()))
}

/// The public issuer (`iss`) of `cluster`'s tokens, without a trailing slash. `None`: the installation has no issuer bucket.
#[must_use]
pub fn issuer(cluster: &Cluster, site: &Site) -> Option<String> {
    let bucket = site.issuer_bucket.as_ref()?;
    let (region, suffix, name) = (&cluster.region, cluster.dns_suffix(), &cluster.name);
    Some(format!("https://{bucket}.s3.{region}.{suffix}/clusters/{name}"))
}

/// The discovery document of `issuer`, whose tokens `keys` verify.
#[must_use]
pub fn discovery(issuer: &str, keys: &[VerificationKey]) -> Vec<u8> {
    let mut algorithms: Vec<_> = keys.iter().map(VerificationKey::algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    document(&json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri(issuer),
        // Required by the specification but unused: only the API server issues tokens.
        "authorization_endpoint": "urn:kubernetes:programmatic_authorization",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
        "claims_supported": ["aud", "exp", "iat", "iss", "sub"],
    }))
}

/// The URL of `issuer`'s key set.
#[must_use]
pub fn jwks_uri(issuer: &str) -> String {
    format!("{issuer}/{JWKS_PATH}")
}

/// The key set, sorted by key id: every key that may have signed a token that is still valid.
#[must_use]
pub fn jwks(keys: &[VerificationKey]) -> Vec<u8> {
    let mut keys: Vec<_> = keys.iter().collect();
    keys.sort_by(|one, other| one.id.cmp(&other.id));
    keys.dedup();
    document(&json!({ "keys": keys.into_iter().map(VerificationKey::jwk).collect::<Vec<_>>() }))
}

/// Canonical JSON and a final newline.
fn document(value: &Value) -> Vec<u8> {
    let mut text = crate::canonical::canonical_json(value);
    text.push('\n');
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn key(id: &str) -> VerificationKey {
        let numbers = KeyNumbers::P256 { x: "eA".to_owned(), y: "eQ".to_owned() };
        VerificationKey { id: id.to_owned(), numbers }
    }

    fn rsa(id: &str) -> VerificationKey {
        let numbers = KeyNumbers::Rsa { n: "bg".to_owned(), e: "AQAB".to_owned() };
        VerificationKey { id: id.to_owned(), numbers }
    }

    #[test]
    fn while_keys_are_exchanged_both_are_there_in_an_order_of_their_own() {
        let set: Value = serde_json::from_slice(&jwks(&[key("b"), rsa("a"), key("b")])).unwrap();
        let ids: Vec<_> = set["keys"].as_array().unwrap().iter().map(|key| key["kid"].clone()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!(jwks(&[rsa("a"), key("b")]), jwks(&[key("b"), rsa("a")]));
    }

    #[test]
    fn the_discovery_says_the_algorithms_of_its_keys() {
        let read = |keys: &[VerificationKey]| -> Value {
            serde_json::from_slice(&discovery("https://host/clusters/a", keys)).unwrap()
        };
        let both = read(&[rsa("a"), key("b"), key("c")]);
        assert_eq!(both["id_token_signing_alg_values_supported"], json!(["ES256", "RS256"]));
        assert_eq!(both["issuer"], "https://host/clusters/a");
        assert_eq!(both["jwks_uri"], "https://host/clusters/a/openid/v1/jwks");
    }
}
