//! A Lambda function for the harness' own tests: it does what its event says, in plain HTTP, without a runtime library.
//!
//! The event's `detail.do`: `answer` (with the environment's names and the invocation's headers), `fail`, `crash`,
//! `hang`, `put` (an object of `detail.key` into `PROBE_BUCKET`), `read` (`detail.key`).

use std::env;

use reqwest::Response;
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), reqwest::Error> {
    let runtime = env::var("AWS_LAMBDA_RUNTIME_API").unwrap_or_default();
    let base = format!("http://{runtime}/2018-06-01/runtime");
    let http = slipway_sim::wire::client();
    if env::var_os("PROBE_FAILS_INIT").is_some() {
        let body = json!({"errorType": "Probe.NotConfigured", "errorMessage": "PROBE_FAILS_INIT is set"});
        http.post(format!("{base}/init/error")).json(&body).send().await?;
        std::process::exit(1);
    }
    loop {
        let next = http.get(format!("{base}/invocation/next")).send().await?;
        let headers = headers(&next);
        let id = headers["lambda-runtime-aws-request-id"].as_str().unwrap_or_default().to_owned();
        let event: Value = next.json().await?;
        let detail = &event["detail"];
        let (place, body) = match detail["do"].as_str() {
            Some("fail") => ("error", json!({"errorType": "Probe.Asked", "errorMessage": "asked to fail"})),
            Some("crash") => std::process::exit(7),
            Some("hang") => std::future::pending().await,
            Some("put") => ("response", s3(http.put(object(detail)).body("probe")).await?),
            Some("read") => ("response", s3(http.get(object(detail))).await?),
            _ => {
                let names: Vec<String> = env::vars().map(|(name, _)| name).collect();
                ("response", json!({"event": event, "headers": headers, "environment": names}))
            }
        };
        http.post(format!("{base}/invocation/{id}/{place}")).json(&body).send().await?;
    }
}

fn headers(response: &Response) -> Value {
    let headers = response.headers().iter();
    headers.map(|(name, value)| (name.to_string(), json!(value.to_str().unwrap_or_default()))).collect()
}

fn object(detail: &Value) -> String {
    let variable = |name| env::var(name).unwrap_or_default();
    let key = detail["key"].as_str().unwrap_or_default();
    format!("{}/{}/{key}", variable("AWS_ENDPOINT_URL"), variable("PROBE_BUCKET"))
}

async fn s3(request: reqwest::RequestBuilder) -> Result<Value, reqwest::Error> {
    let variable = |name| env::var(name).unwrap_or_default();
    let (key, region) = (variable("AWS_ACCESS_KEY_ID"), variable("AWS_REGION"));
    let scope = format!("AWS4-HMAC-SHA256 Credential={key}/20260101/{region}/s3/aws4_request, Signature=0");
    let response = request.header("authorization", scope).send().await?;
    Ok(json!({"status": response.status().as_u16(), "body": response.text().await?}))
}
