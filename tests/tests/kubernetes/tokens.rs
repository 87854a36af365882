//! Tokens of service accounts, as the real API server signs them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::oidc::AUDIENCE;
use slipway_credentials::policy::KUBERNETES_DIR;
use slipway_tests::kubernetes::Kubernetes;
use slipway_tests::tools;
use slipway_tests::workshop::example;

use super::who;

/// A token for the service account `default` in `default`.
async fn token(cluster: &Kubernetes, audience: Option<&str>) -> String {
    let audiences: Vec<&str> = audience.into_iter().collect();
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": { "audiences": audiences, "expirationSeconds": 3600 },
    });
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let admin = cluster.admin();
    cluster
        .until("kube-controller-manager", "makes the default account", async || {
            admin.get(path.trim_end_matches("/token")).await.unwrap().status == 200
        })
        .await;
    let answer = admin.post(path, &request).await.unwrap();
    answer.body["status"]["token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// joserfc's result, given only the published documents: the claims, or the error.
fn judge(cluster: &Kubernetes, issuer: &str, token: &str) -> Result<Value, String> {
    let published = |key: String| {
        let bytes = cluster.workshop.issuer.peek(&key).unwrap_or_else(|| panic!("{key} is not published"));
        String::from_utf8(bytes).unwrap()
    };
    let name = &cluster.workshop.name;
    let public =
        std::fs::read_to_string(cluster.path(KUBERNETES_DIR).join("service-account.pub.pem")).unwrap();
    let told = json!({
        "issuer": issuer,
        "discovery": published(keys::discovery(name)),
        "jwks": published(keys::jwks(name)),
        "publicKeys": [public],
        "token": token,
    });
    let mut judge = Command::new(tools::python().unwrap())
        .arg(tools::root().join("tests/scripts/verify_token.py"))
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
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_accounts_tokens_verify_against_what_is_published_and_open_the_api_only_if_made_for_it() {
    let Some(cluster) = Kubernetes::start(&example("iam-roles")).await else { return };
    let tokens =
        cluster.config.control_plane.service_account_tokens.clone().expect("the example has an issuer");
    let issuer = &tokens.issuers[0];
    assert!(issuer.starts_with("https://"), "{issuer}");

    let for_aws = token(&cluster, Some(AUDIENCE)).await;
    let claims = judge(&cluster, issuer, &for_aws).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(claims["sub"], "system:serviceaccount:default:default");
    assert_eq!(&claims["iss"], issuer.as_str());
    assert_eq!(cluster.bearer(Some(&for_aws)).get("/api").await.unwrap().status, 401, "it is for AWS");

    let for_the_api = token(&cluster, None).await;
    assert_eq!(who(&cluster.bearer(Some(&for_the_api))).await, "system:serviceaccount:default:default");
    let why = judge(&cluster, issuer, &for_the_api).unwrap_err();
    assert!(why.contains("aud"), "it is for the API: {why}");
    let (signed, signature) = for_the_api.rsplit_once('.').unwrap();
    let other = if signature.starts_with('A') { "B" } else { "A" };
    let changed = format!("{signed}.{other}{}", &signature[1..]);
    assert_eq!(cluster.bearer(Some(&changed)).get("/api").await.unwrap().status, 401);

    // The API server itself serves the same keys that are published.
    let served = cluster.admin().get("/openid/v1/jwks").await.unwrap().body;
    let published = cluster.workshop.issuer.peek(&keys::jwks(&cluster.workshop.name)).unwrap();
    let published: Value = serde_json::from_slice(&published).unwrap();
    assert_eq!(served["keys"][0]["kid"], published["keys"][0]["kid"]);
}
