//! Names of images and of what registries answer.

/// `registry.k8s.io/coredns/coredns:v1.14.6` in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference<'r> {
    pub(crate) host: &'r str,
    pub(crate) repository: &'r str,
    pub(crate) tag: &'r str,
}

impl<'r> Reference<'r> {
    pub(crate) fn parse(text: &'r str) -> Option<Self> {
        let (name, tag) = text.rsplit_once(':')?;
        let (host, repository) = name.split_once('/')?;
        (!host.is_empty() && !repository.is_empty() && !tag.is_empty() && !tag.contains('/'))
            .then_some(Self { host, repository, tag })
    }
}

/// Whether `text` is a digest that a manifest may name an image by.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    })
}

/// What a registry wants a token from: the parameters of `WWW-Authenticate: Bearer realm="…",service="…",scope="…"`
/// (distribution.github.io/distribution/spec/auth/token).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Challenge {
    realm: String,
    rest: Vec<(String, String)>,
}

impl Challenge {
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (scheme, mut text) = header.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut rest) = (None, Vec::new());
        // A quoted value may hold commas: `scope="repository:a:pull,push"`.
        while let Some((key, after)) = text.split_once('=') {
            let key = key.trim().trim_start_matches(',').trim().to_ascii_lowercase();
            let (value, remaining) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_once(',').unwrap_or((after, "")),
            };
            match key.as_str() {
                "realm" => realm = Some(value.to_owned()),
                "service" | "scope" => rest.push((key, value.to_owned())),
                _ => {}
            }
            text = remaining;
        }
        Some(Self { realm: realm?, rest })
    }

    /// Where the token is had.
    pub(crate) fn url(&self) -> String {
        let mut url = self.realm.clone();
        let mut mark = if url.contains('?') { '&' } else { '?' };
        for (key, value) in &self.rest {
            url.push(mark);
            url.push_str(key);
            url.push('=');
            url.push_str(&encoded(value));
            mark = '&';
        }
        url
    }
}

/// `text` as a query's value.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_reference_is_host_repository_and_tag() {
        let parsed = Reference::parse("registry.k8s.io/coredns/coredns:v1.14.6").unwrap();
        assert_eq!(
            (parsed.host, parsed.repository, parsed.tag),
            ("registry.k8s.io", "coredns/coredns", "v1.14.6")
        );
        let port = Reference::parse("localhost:5000/a:1").unwrap();
        assert_eq!((port.host, port.repository, port.tag), ("localhost:5000", "a", "1"));
        for wrong in ["coredns", "localhost:5000/a", "a/b", "a/b:", "/b:1"] {
            assert_eq!(Reference::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn challenges_of_real_registries_are_read() {
        let ghcr = r#"Bearer realm="https://ghcr.io/token",service="ghcr.io",scope="repository:flannel-io/flannel:pull""#;
        assert_eq!(
            Challenge::parse(ghcr).unwrap().url(),
            "https://ghcr.io/token?service=ghcr.io&scope=repository:flannel-io/flannel:pull"
        );
        let ecr = r#"Bearer realm="https://public.ecr.aws/token/",service="public.ecr.aws",scope="aws""#;
        assert_eq!(
            Challenge::parse(ecr).unwrap().url(),
            "https://public.ecr.aws/token/?service=public.ecr.aws&scope=aws"
        );
        let several = r#"bearer scope="repository:a:pull,push", realm="https://x/t?a=b""#;
        assert_eq!(
            Challenge::parse(several).unwrap().url(),
            "https://x/t?a=b&scope=repository:a:pull%2Cpush"
        );
        for other in [r#"Basic realm="private""#, "Bearer", r#"Bearer service="x""#, r#"Bearer realm="x"#] {
            assert_eq!(Challenge::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_digest_is_sha_256_in_lower_case() {
        assert!(is_digest(&format!("sha256:{}", "0a".repeat(32))));
        for wrong in ["", "sha256:", "sha256:abc"] {
            assert!(!is_digest(wrong));
        }
        assert!(!is_digest(&format!("sha256:{}", "0A".repeat(32))) && !is_digest(&"0".repeat(71)));
    }
}
