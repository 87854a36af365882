//! The kubelet's plugin for private images of Amazon ECR: reads one request from the standard input, and prints one answer
//! (k8s.io/kubelet, `pkg/apis/credentialprovider/v1/types.go`). The password is one of the machine's role.
//!
//! It does what `ecr-credential-provider` of cloud-provider-aws 1.36.2 does for private registries (`cmd/ecr-credential-provider/main.go`):
//! the image's host names the region, and the kubelet keeps a password for half of the time that it lasts. docs/adr/0027 says why it is not
//! that program. Images of public.ecr.aws are pulled without a password.

use std::io::Read as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::aws::{Aws, Endpoints};
use crate::failure::{AgentError, AgentResult, FailureCode};

/// The folder of the plugin, and its name there: the agent's own.
pub(crate) const FOLDER: &str = crate::node_files::HOME;
const PLUGIN: &str = "slipway-node";
/// The verb that the kubelet runs.
pub(crate) const VERB: &str = "image-credentials";
const API: &str = "credentialprovider.kubelet.k8s.io/v1";
/// Longer requests are none of the kubelet's: it sends the name of an image.
const MOST: u64 = 64 << 10;
/// The hosts of private registries in the partitions aws, aws-cn and aws-us-gov (`ecrPrivateHostPattern` in cloud-provider-aws, which has
/// more partitions), as patterns of the kubelet: a `*` stands for one label.
const HOSTS: [&str; 6] = [
    "*.dkr.ecr.*.amazonaws.com",
    "*.dkr.ecr.*.amazonaws.com.cn",
    "*.dkr.ecr-fips.*.amazonaws.com",
    "*.dkr-ecr.*.on.aws",
    "*.dkr-ecr.*.on.amazonwebservices.com.cn",
    "*.dkr-ecr-fips.*.on.aws",
];

/// `CredentialProviderConfig` of the kubelet.
pub(crate) fn configuration() -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [{
            "name": PLUGIN,
            "apiVersion": API,
            "args": [VERB],
            "matchImages": HOSTS,
            // Only for an answer that names no duration; ours does.
            "defaultCacheDuration": "0s",
        }],
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    api_version: String,
    image: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: &'static str,
    kind: &'static str,
    cache_key_type: &'static str,
    cache_duration: String,
    auth: Value,
}

/// Answers the request on the standard input.
pub(crate) async fn perform(endpoints: &Endpoints) -> AgentResult<Value> {
    let mut text = String::new();
    std::io::stdin().take(MOST).read_to_string(&mut text).map_err(|error| unread(&error.to_string()))?;
    let request: Request = serde_json::from_str(&text).map_err(|error| unread(&error.to_string()))?;
    if request.api_version != API {
        return Err(unread(&format!("it has the version {:?}, and not {API:?}", request.api_version)));
    }
    let host = request.image.split('/').next().unwrap_or_default();
    let region = region(host).ok_or_else(|| unread(&format!("{host:?} is not a private registry of ECR")))?;
    let login = Aws::new(endpoints, region)?.registry_login().await?;
    let answer = Answer {
        api_version: API,
        kind: "CredentialProviderResponse",
        cache_key_type: "Registry",
        cache_duration: kept_for(Timestamp::now(), login.expires),
        auth: json!({ host: { "username": login.user, "password": *login.password } }),
    };
    Ok(json!(answer))
}

fn unread(problem: &str) -> AgentError {
    AgentError::permanent(
        FailureCode::Usage,
        format!("the request on the standard input cannot be answered: {problem}"),
        "only the kubelet runs this verb, with a CredentialProviderRequest as JSON",
    )
}

/// The region in the host of a private registry: `123456789012.dkr.ecr.eu-west-1.amazonaws.com`. `None`: it is none.
fn region(host: &str) -> Option<&str> {
    let labels: Vec<&str> = host.split('.').collect();
    let fits = |pattern: &&str| {
        let pattern: Vec<&str> = pattern.split('.').collect();
        pattern.len() == labels.len()
            && pattern.iter().zip(&labels).all(|(pattern, label)| *pattern == "*" || pattern == label)
    };
    let pattern = HOSTS.iter().find(|pattern| fits(pattern))?;
    let place = pattern.split('.').skip(1).position(|label| label == "*")? + 1;
    labels.get(place).copied().filter(|region| !region.is_empty())
}

/// How long the kubelet may keep a password, as a duration of Go's.
fn kept_for(now: Timestamp, expires: Timestamp) -> String {
    format!("{}s", (expires.as_second() - now.as_second()).max(0) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_image_names_its_region() {
        for (host, expected) in [
            ("123456789012.dkr.ecr.eu-west-1.amazonaws.com", Some("eu-west-1")),
            ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("123456789012.dkr.ecr-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1")),
            ("123456789012.dkr-ecr.eu-west-1.on.aws", Some("eu-west-1")),
            ("public.ecr.aws", None),
            ("registry.k8s.io", None),
            ("123456789012.dkr.ecr.eu-west-1.amazonaws.com.evil.example", None),
            ("123456789012.dkr.ecr..amazonaws.com", None),
            ("", None),
        ] {
            assert_eq!(region(host), expected, "{host}");
        }
    }

    #[test]
    fn a_password_is_kept_for_half_of_its_time_and_an_expired_one_not_at_all() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(kept_for(at(1_000), at(44_200)), "21600s");
        assert_eq!(kept_for(at(1_000), at(1_000)), "0s");
        assert_eq!(kept_for(at(1_000), at(0)), "0s");
    }
}
