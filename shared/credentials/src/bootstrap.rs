//! Bootstrap tokens: with them a kubelet requests its first certificate.
//!
//! Each role has a token of its own, which is derived from the cluster's bootstrap key. Controllers hold the key, so the node manager can
//! make the token of a pool that is new without new credentials for controllers. Other roles hold their token alone.
//!
//! Tokens are [bootstrap tokens](https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/) of Kubernetes: objects in
//! `kube-system` that the API server reads whenever it authenticates, each with a group.

use slipway_core::digest::keyed_hex;
use slipway_core::role::Role;

/// The group of whoever has a bootstrap token. It may request a kubelet's certificate.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The file with the bootstrap key on controllers, below [`crate::policy::KUBERNETES_DIR`].
pub const KEY_FILE: &str = "bootstrap-key";

/// Letters and digits of tokens, `[a-z0-9]`. 32 of them, so that each byte of the digest gives one with the same probability.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The length of a token's id and secret: `BootstrapTokenPattern` in kubernetes `staging/src/k8s.io/cluster-bootstrap/token/api/types.go`.
const LENGTHS: (usize, usize) = (6, 16);

/// The token of one role.
pub struct RoleToken {
    /// It names the object in `kube-system`, and is no secret.
    pub id: String,
    /// The secret part.
    pub secret: String,
}

impl RoleToken {
    /// Derives the token of `role` from the text of the cluster's bootstrap key.
    #[must_use]
    pub fn derive(key: &str, role: &Role) -> Self {
        let digest = keyed_hex(key.trim().as_bytes(), format!("bootstrap-token {role}").as_bytes());
        let digits = digest.as_bytes().chunks_exact(2).map(|pair| {
            let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as usize;
            char::from(ALPHABET[(value(pair[0]) << 4 | value(pair[1])) % ALPHABET.len()])
        });
        let (id, secret) = LENGTHS;
        let text: String = digits.take(id + secret).collect();
        let (id, secret) = text.split_at(id);
        Self { id: id.to_owned(), secret: secret.to_owned() }
    }

    /// As a client presents it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// The group of the token of `role`, which no other token has. `None`: nodes of this role are no nodes of Kubernetes.
///
/// Kubernetes takes groups of `[a-z0-9:-]` that end with a letter or digit (`BootstrapGroupPattern`, in the file named above). Names of
/// pools have letters, digits and hyphens, and differ in more than case and hyphens.
#[must_use]
pub fn group(role: &Role) -> Option<String> {
    let name = match role {
        Role::Controller | Role::Pool(_) => role.to_string().to_ascii_lowercase(),
        Role::Etcd(_) | Role::Admin => return None,
    };
    Some(format!("{BOOTSTRAPPERS}:slipway:{}", name.trim_end_matches('-')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_a_token_of_its_own_in_the_form_that_kubernetes_takes() {
        let roles = [Role::Controller, Role::Pool("a".to_owned()), Role::Pool("b".to_owned())];
        let tokens: Vec<String> = roles.iter().map(|role| RoleToken::derive("key", role).text()).collect();
        for token in &tokens {
            let (id, secret) = token.split_once('.').unwrap_or_default();
            assert_eq!((id.len(), secret.len()), (6, 16), "{token}");
            assert!(token.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.')), "{token}");
        }
        assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2]);
        // Nodes keep theirs: it may not change by itself.
        assert_eq!(tokens[0], RoleToken::derive("key\n", &Role::Controller).text());
        assert_ne!(tokens[0], RoleToken::derive("another", &Role::Controller).text());
    }

    #[test]
    fn each_group_is_one_that_kubernetes_takes() {
        let pool_group = |name: &str| group(&Role::Pool(name.to_owned()));
        assert_eq!(group(&Role::Controller).as_deref(), Some("system:bootstrappers:slipway:controller"));
        assert_eq!(pool_group("General-A").as_deref(), Some("system:bootstrappers:slipway:pool-general-a"));
        assert_eq!(pool_group("odd-").as_deref(), Some("system:bootstrappers:slipway:pool-odd"));
        assert_eq!(group(&Role::Etcd(0)).or(group(&Role::Admin)), None);
    }
}
