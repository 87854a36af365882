//! The environment of an agent: moto's S3 and KMS and a metadata service; and the tasks of systemd and a kubelet.
#![allow(clippy::missing_panics_doc, reason = "a test's room may panic")]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::node::{NodeStatus, Refreshed};
use slipway_core::role::Role;
use slipway_credentials::manifest;
use slipway_crypto::AwsLc;
use slipway_node::aws::{Aws, Endpoints};
use slipway_node::failure::{AgentError, AgentResult, FailureCode};
use slipway_node::machine::apply::Host;
use slipway_node::machine::commands::{Commands, Ran};
use slipway_node::refresh::{Order, refresh};
use slipway_ports::{Crypto as _, Keys as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

use crate::client::machine_arn;
use crate::imds::Imds;
use crate::moto::Moto;

const REGION: &str = "eu-west-1";
const BUCKET: &str = "assets";
/// The cluster of the nodes.
const CLUSTER: &str = "production";
/// The instance id of every machine here; their roles distinguish them.
pub const INSTANCE: &str = "i-0123456789abcdef0";

/// The part of AWS that a node of the cluster `production` uses.
#[derive(Debug)]
pub struct Surroundings {
    moto: Moto,
    imds: Imds,
    /// The KMS key's ARN.
    pub key: String,
    aws: Aws,
}

impl Surroundings {
    /// Starts with an empty bucket.
    pub async fn start() -> Self {
        let moto = Moto::start(&[]).await.expect("nothing fails here");
        let imds =
            Imds::start(INSTANCE, "eu-west-1a", "10.0.0.5", "ASIANODE").await.expect("nothing fails here");
        let operator = moto.operator(REGION);
        operator.create_bucket(BUCKET).await;
        let key = operator.create_key().await;
        let variables: BTreeMap<String, String> = environment(&moto, &imds).into();
        let endpoints = Endpoints::read(|name| variables.get(name).cloned());
        Self { aws: Aws::new(&endpoints, REGION).expect("nothing fails here"), moto, imds, key }
    }

    /// Seals a bundle of `role` as rendering does, and stores it where the agent reads it. Returns its digest.
    pub async fn publish(&self, role: &Role, files: &BTreeMap<String, String>) -> String {
        let files = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        let plain = manifest::plaintext(&files);
        let digest = slipway_core::digest::keyed_hex(b"the cluster's digest key", &plain);
        self.seal(role, &digest, &plain).await;
        digest
    }

    /// As [`Surroundings::publish`], with the digest that rendering gave it.
    pub async fn publish_as(&self, role: &Role, digest: &str, files: &BTreeMap<String, String>) {
        let files = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        self.seal(role, digest, &manifest::plaintext(&files)).await;
    }

    /// Adds a sealing under another KMS key to a published bundle, as rendering does. Returns that key's ARN.
    pub async fn seal_anew(&self, role: &Role, digest: &str) -> String {
        let new = self.moto.operator(REGION).create_key().await;
        let key = keys::credentials(CLUSTER, &role.to_string(), digest);
        let context = slipway_ports::sealed::context(CLUSTER, &role.to_string());
        let mut sealed = self.object(&key).await;
        let plain =
            slipway_ports::sealed::open(&self.aws.keys(None), &AwsLc, CLUSTER, &role.to_string(), &sealed)
                .await
                .expect("nothing fails here");
        let data_key =
            self.aws.keys(Some(new.clone())).generate(None, &context).await.expect("nothing fails here");
        sealed.extend(AwsLc.seal(&data_key, &context, plain.expose()).expect("nothing fails here"));
        self.put(&key, &sealed).await;
        new
    }

    /// The environment of a machine whose role may generate data keys only under `key`, and open what any key sealed except `never`.
    pub async fn environment_with_key(&self, key: &str, never: Option<&str>) -> BTreeMap<String, String> {
        let allowed = AllowedKeys {
            moto: self.moto.url().to_owned(),
            seals: key.to_owned(),
            never: never.map(str::to_owned),
        };
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of the loopback is free");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let app = Router::new().fallback(guarded).with_state(Arc::new(allowed));
        tokio::spawn(async move {
            // The server ends with the test.
            let _ = axum::serve(listener, app).await;
        });
        let mut variables = self.environment();
        variables.insert("AWS_ENDPOINT_URL_KMS".to_owned(), url);
        variables
    }

    async fn seal(&self, role: &Role, digest: &str, plain: &[u8]) {
        let context = BTreeMap::from([
            ("cluster".to_owned(), CLUSTER.to_owned()),
            ("role".to_owned(), role.to_string()),
        ]);
        let data_key =
            self.aws.keys(Some(self.key.clone())).generate(None, &context).await.expect("nothing fails here");
        let sealed = AwsLc.seal(&data_key, &context, plain).expect("nothing fails here");
        let key = keys::credentials(CLUSTER, &role.to_string(), digest);
        self.aws.bucket(BUCKET).put(&key, &sealed).await.expect("nothing fails here");
    }

    /// The object with that key.
    pub async fn object(&self, key: &str) -> Vec<u8> {
        self.aws.bucket(BUCKET).get(key).await.expect("nothing fails here").expect("nothing fails here")
    }

    /// The published status of the node with that role.
    pub async fn status(&self, role: &Role) -> NodeStatus {
        let key = keys::node_status(CLUSTER, &role.to_string(), &machine_arn(INSTANCE));
        serde_json::from_slice(&self.object(&key).await).expect("nothing fails here")
    }

    /// Stores an object.
    pub async fn put(&self, key: &str, bytes: &[u8]) {
        self.aws.bucket(BUCKET).put(key, bytes).await.expect("nothing fails here");
    }

    /// Gives a machine its identity: its `config.json`, which is in the bucket, and its credentials.
    pub fn host(&self, root: &Path, role: &Role, credentials: &str) {
        let home = root.join("var/lib/slipway");
        let config = std::fs::read(home.join("config.json")).expect("it is configured");
        let node = json!({
            "format": 1, "cluster": CLUSTER, "role": role.to_string(), "region": REGION, "assetBucket": BUCKET,
            "agent": Value::Null, "config": slipway_core::digest::sha256_hex(&config), "credentials": credentials,
        });
        std::fs::write(home.join("node.json"), node.to_string()).expect("it can be written");
    }

    /// The environment variables by which an agent finds everything here.
    #[must_use]
    pub fn environment(&self) -> BTreeMap<String, String> {
        environment(&self.moto, &self.imds).into()
    }

    /// Refreshes the credentials of the machine at `root`. `played` is called to do systemd's work, with the unit to restart; and
    /// repeatedly with `None`, to do the work of programs that watch files.
    ///
    /// # Errors
    /// Those of the verb.
    pub async fn refresh(
        &self,
        root: &Path,
        order: &Order,
        mut played: impl AsyncFnMut(Option<&str>),
    ) -> AgentResult<Refreshed> {
        let variables = self.environment();
        let endpoints = Endpoints::read(|name| variables.get(name).cloned());
        let (asks, mut asked) = mpsc::unbounded_channel::<RestartRequest>();
        let host = Host { root: root.to_owned(), commands: Hands { asks } };
        let refreshing = refresh(&host, &endpoints, order);
        tokio::pin!(refreshing);
        loop {
            tokio::select! {
                done = &mut refreshing => return done,
                Some((unit, done)) = asked.recv() => {
                    played(Some(&unit)).await;
                    // The agent may have stopped waiting.
                    let _ = done.send(());
                }
                () = tokio::time::sleep(Duration::from_millis(100)) => played(None).await,
            }
        }
    }
}

/// What a role may do with KMS keys.
struct AllowedKeys {
    moto: String,
    /// The key under which it may generate data keys.
    seals: String,
    /// The key with which it may not even open anything.
    never: Option<String>,
}

/// KMS in front of moto's, which checks no permission.
async fn guarded(State(allowed): State<Arc<AllowedKeys>>, headers: HeaderMap, body: Bytes) -> Response {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let target = headers.get("x-amz-target").and_then(|target| target.to_str().ok()).unwrap_or_default();
    // moto's ciphertext begins with the key's id.
    let blob = STANDARD.decode(asked["CiphertextBlob"].as_str().unwrap_or_default()).unwrap_or_default();
    let is_under = |key: &String| blob.starts_with(key.rsplit('/').next().unwrap_or_default().as_bytes());
    let denied = match target {
        "TrentService.GenerateDataKey" => asked["KeyId"] != json!(allowed.seals),
        _ => allowed.never.as_ref().is_some_and(is_under),
    };
    if denied {
        let refusal = json!({ "__type": "AccessDeniedException", "Message": "not authorized" });
        return (StatusCode::BAD_REQUEST, refusal.to_string()).into_response();
    }
    let mut request = reqwest::Client::new().post(&allowed.moto).body(body);
    for name in ["content-type", "x-amz-target", "authorization", "x-amz-date"] {
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            request = request.header(name, value);
        }
    }
    let answer = request.send().await.expect("moto answers");
    let status = StatusCode::from_u16(answer.status().as_u16()).expect("it is a status");
    (status, answer.bytes().await.expect("moto answers")).into_response()
}

type RestartRequest = (String, oneshot::Sender<()>);

/// `systemctl restart`, done by the test.
#[derive(Debug)]
struct Hands {
    asks: mpsc::UnboundedSender<RestartRequest>,
}

impl Commands for Hands {
    async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
        let (("systemctl", ["restart", unit]), (done, is_done)) = ((program, arguments), oneshot::channel())
        else {
            return Err(AgentError::permanent(
                FailureCode::CommandFailed,
                format!("nobody plays {program} {arguments:?}"),
                "",
            ));
        };
        self.asks.send(((*unit).to_owned(), done)).expect("somebody plays");
        is_done.await.expect("somebody plays");
        Ok(Ran { status: Some(0), stdout: String::new(), stderr: String::new() })
    }
}

fn environment(moto: &Moto, imds: &Imds) -> [(String, String); 2] {
    [
        ("AWS_ENDPOINT_URL".to_owned(), moto.url().to_owned()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), imds.url().to_owned()),
    ]
}
