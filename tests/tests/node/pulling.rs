//! The kubelet's plugin for private images of ECR, as the kubelet runs it: the agent's binary with a request on its standard input.

use std::process::Stdio;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_tests::imds::Imds;
use slipway_tests::moto::Moto;
use slipway_tests::tools;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::scripted::Scripted;

const IMAGE: &str = "123456789012.dkr.ecr.us-west-2.amazonaws.com/team/shop:1.0";
const HOST: &str = "123456789012.dkr.ecr.us-west-2.amazonaws.com";

fn request(image: &str) -> String {
    json!({
        "kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "image": image,
    })
    .to_string()
}

/// Runs the verb with `input`, with ECR at `ecr`: exit status, and what it printed.
async fn ask(ecr: &str, input: &str) -> (i32, Value) {
    let imds = Imds::start("i-0123456789abcdef0", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
    let mut agent = Command::new(tools::binary("slipway-node").unwrap());
    agent.arg("image-credentials").env_clear();
    agent.env("AWS_ENDPOINT_URL_ECR", ecr).env("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url());
    let mut agent =
        agent.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    agent.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = agent.wait_with_output().await.unwrap();
    let printed =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code().unwrap(), printed)
}

/// Issue 19, section 3, defect 6.
#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_kubelet_gets_the_password_of_a_private_registry_of_another_region() {
    let moto = Moto::start(&[]).await.unwrap();
    let (code, answer) = ask(moto.url(), &request(IMAGE)).await;
    assert_eq!(code, 0, "{answer}");
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"], &answer["cacheKeyType"]),
        (
            &json!("credentialprovider.kubelet.k8s.io/v1"),
            &json!("CredentialProviderResponse"),
            &json!("Registry")
        )
    );
    let login = &answer["auth"][HOST];
    assert_eq!(login["username"], "AWS", "{answer}");
    assert!(login["password"].as_str().is_some_and(|password| !password.is_empty()), "{answer}");

    // The region is that of the image's registry, not the node's, and the call is of ECR's own protocol.
    let token = STANDARD.encode("AWS:secret");
    let told =
        format!(r#"{{"authorizationData":[{{"authorizationToken":"{token}","expiresAt":4102444800.5}}]}}"#);
    let ecr = Scripted::start(&[(200, told.leak())]).await;
    let (code, answer) = ask(&ecr.url, &request(IMAGE)).await;
    assert_eq!((code, &answer["auth"][HOST]["password"]), (0, &json!("secret")), "{answer}");
    let [call] = &ecr.received()[..] else { panic!("one call") };
    assert_eq!(call.headers["x-amz-target"], "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken");
    assert!(call.headers["authorization"].contains("/us-west-2/ecr/aws4_request"), "{:?}", call.headers);
}

/// Whoever asks for what is not ECR's gets no call to AWS; whom AWS denies is told which statement is missing, without a password.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_private_image_gets_no_password() {
    let ecr = Scripted::start(&[(400, r#"{"__type":"AccessDeniedException","Message":"no"}"#)]).await;
    let other =
        json!({ "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1", "image": IMAGE }).to_string();
    for input in [
        request("registry.k8s.io/pause:3.10"),
        request("evil.example/123456789012.dkr.ecr.us-west-2.amazonaws.com/x"),
        request(&format!("{HOST}.evil.example/x")),
        other,
        String::new(),
        "{".to_owned(),
    ] {
        let (code, answer) = ask(&ecr.url, &input).await;
        assert_eq!((code, &answer["error"]["code"]), (1, &json!("usage")), "{input}: {answer}");
    }
    assert!(ecr.received().is_empty(), "nobody was asked");
    let (code, answer) = ask(&ecr.url, &request(IMAGE)).await;
    assert_eq!((code, &answer["error"]["code"]), (1, &json!("aws.denied")), "{answer}");
    assert!(
        answer["error"]["help"].as_str().is_some_and(|help| help.contains("LogInToRegistries")),
        "{answer}"
    );
}
