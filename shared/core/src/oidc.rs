//! The public identity of a cluster's service accounts: OpenID Connect discovery, by which AWS (or anyone else) checks
//! the tokens that the API server signs, without a way to the API server.
//!
//! The issuer is a folder of the installation's issuer bucket. Who trusts it fetches two documents from there: what the
//! issuer is ([`discovery`]), and the public halves of the keys that sign ([`jwks`]). The same keys give the same bytes.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::release::{Rendering, Site};
use crate::role::Role;

/// For whom a pod's token must be made out, so that AWS takes it (`aud`).
pub const AUDIENCE: &str = "sts.amazonaws.com";

/// The issuer of a cluster whose spec does not speak of one.
pub const LOCAL_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Where [`discovery`] lies below the issuer (OpenID Connect Discovery 1.0, section 4).
pub const DISCOVERY_PATH: &str = ".well-known/openid-configuration";

/// Where [`jwks`] lies below the issuer: as the API server itself has it.
pub const JWKS_PATH: &str = "openid/v1/jwks";

/// The public half of a key that signs tokens, as RFC 7517 and 7518 write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerificationKey {
    /// The `kid` of a token that it signed: as kube-apiserver has it, SHA-256 of the key's SubjectPublicKeyInfo in DER,
    /// in base64 for URLs without padding.
    pub id: String,
    /// Its kind and its numbers.
    pub numbers: KeyNumbers,
}

/// A public key in numbers, each in base64 for URLs without padding.
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
    /// The `alg` of tokens that it signed: what kube-apiserver uses for a key of that kind.
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

/// What a controller's configuration says of issuers: the first makes tokens, all are accepted. `None`: it cannot be read.
#[must_use]
pub fn issuers(config: &str) -> Option<Vec<String>> {
    let config: Value = serde_json::from_str(config).ok()?;
    let list = config.pointer("/controlPlane/serviceAccountTokens/issuers").and_then(Value::as_array);
    Some(list.into_iter().flatten().filter_map(|issuer| issuer.as_str().map(str::to_owned)).collect())
}

/// Who makes tokens, if that is not the cluster's own issuer, which every controller accepts.
#[must_use]
pub fn signs(issuers: &[String]) -> Option<&String> {
    issuers.first().filter(|issuer| *issuer != LOCAL_ISSUER)
}

/// Whether the controllers of a release make tokens that AWS cannot check. What cannot be read is taken to.
#[must_use]
pub fn signs_locally(release: &Rendering) -> bool {
    let controller = release.roles.get(&Role::Controller);
    controller.is_some_and(|node| issuers(&node.config).is_none_or(|issuers| signs(&issuers).is_none()))
}

/// The issuer of `cluster`'s tokens (`iss`), where the installation has a bucket for it. Without a slash at its end.
#[must_use]
pub fn issuer(cluster: &Cluster, site: &Site) -> Option<String> {
    let bucket = site.issuer_bucket.as_ref()?;
    let (region, suffix, name) = (&cluster.region, cluster.dns_suffix(), &cluster.name);
    Some(format!("https://{bucket}.s3.{region}.{suffix}/clusters/{name}"))
}

/// The discovery document of `issuer`, whose tokens `keys` sign.
#[must_use]
pub fn discovery(issuer: &str, keys: &[VerificationKey]) -> Vec<u8> {
    let mut algorithms: Vec<_> = keys.iter().map(VerificationKey::algorithm).collect();
    algorithms.sort_unstable();
    algorithms.dedup();
    document(&json!({
        "issuer": issuer,
        "jwks_uri": jwks_uri(issuer),
        // Nobody logs in here: tokens are made by the API server alone.
        "authorization_endpoint": "urn:kubernetes:programmatic_authorization",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
        "claims_supported": ["aud", "exp", "iat", "iss", "sub"],
    }))
}

/// Where the keys of `issuer` are read.
#[must_use]
pub fn jwks_uri(issuer: &str) -> String {
    format!("{issuer}/{JWKS_PATH}")
}

/// The key set: every key that may have signed a token that is still valid. In the order of their ids.
#[must_use]
pub fn jwks(keys: &[VerificationKey]) -> Vec<u8> {
    let mut keys: Vec<_> = keys.iter().collect();
    keys.sort_by(|one, other| one.id.cmp(&other.id));
    keys.dedup();
    document(&json!({ "keys": keys.into_iter().map(VerificationKey::jwk).collect::<Vec<_>>() }))
}

/// Canonical JSON with a last newline.
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
