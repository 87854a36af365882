//! What an agent finds around its machine: S3 and KMS of moto's, and a metadata service.

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::{Value, json};
use slipway_core::pki::{Role, manifest};
use slipway_driver::keys;
use slipway_driver::ports::{Crypto as _, Keys as _};
use slipway_node::aws::{Aws, Endpoints};
use slipway_pki::AwsLc;
use slipway_tests::client::Client;
use slipway_tests::imds::Imds;
use slipway_tests::moto::Moto;

use super::machine::Machine;

const REGION: &str = "eu-west-1";
const BUCKET: &str = "assets";
const CLUSTER: &str = "production";

pub(crate) struct Cloud {
    moto: Moto,
    imds: Imds,
    pub(crate) key: String,
    aws: Aws,
}

impl Cloud {
    pub(crate) async fn start() -> Self {
        let moto = Moto::start(&[]).await.unwrap();
        let imds = Imds::start("i-0123456789abcdef0", "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap();
        let operator = Client::new(moto.url(), REGION, "OPERATOR");
        let place = b"<CreateBucketConfiguration><LocationConstraint>eu-west-1</LocationConstraint></CreateBucketConfiguration>";
        operator.s3(Method::PUT, BUCKET, "", place.to_vec()).await.unwrap();
        let made = operator.json("kms", "TrentService.CreateKey", json!({})).await.unwrap();
        let key = made["KeyMetadata"]["Arn"].as_str().unwrap().to_owned();
        let variables: BTreeMap<String, String> = environment(&moto, &imds).into();
        let endpoints = Endpoints::read(|name| variables.get(name).cloned());
        Self { aws: Aws::new(&endpoints, REGION).unwrap(), moto, imds, key }
    }

    /// Seals a bundle of `role` as rendering does, and puts it where the agent looks; its digest.
    pub(crate) async fn publish(&self, role: &Role, files: &BTreeMap<String, String>) -> String {
        let files = files.iter().map(|(path, text)| (path.clone(), text.as_str())).collect();
        let plain = manifest::plaintext(&files);
        let digest = slipway_core::digest::keyed_hex(b"the cluster's digest key", &plain);
        let context = BTreeMap::from([
            ("cluster".to_owned(), CLUSTER.to_owned()),
            ("role".to_owned(), role.to_string()),
        ]);
        let data_key = self.aws.keys(Some(self.key.clone())).generate(None, &context).await.unwrap();
        let sealed = AwsLc.seal(&data_key, &context, &plain).unwrap();
        let key = keys::credentials(CLUSTER, &role.to_string(), &digest);
        self.aws.bucket(BUCKET).put(&key, &sealed).await.unwrap();
        digest
    }

    /// What lies there.
    pub(crate) async fn object(&self, key: &str) -> Vec<u8> {
        self.aws.bucket(BUCKET).get(key).await.unwrap().unwrap()
    }

    /// Puts something there.
    pub(crate) async fn put(&self, key: &str, bytes: &[u8]) {
        self.aws.bucket(BUCKET).put(key, bytes).await.unwrap();
    }

    /// Lets the machine know who it is, and its agent where everything answers.
    pub(crate) fn host(&self, machine: &mut Machine, role: &Role, credentials: &str) {
        let config = std::fs::read(machine.member.dir.join("var/lib/slipway/config.json")).unwrap();
        machine.write("node.json", &json!({
            "format": 1, "cluster": CLUSTER, "role": role.to_string(), "region": REGION, "assetBucket": BUCKET,
            "agent": Value::Null, "config": slipway_core::digest::sha256_hex(&config), "credentials": credentials,
        }));
        machine.environment = environment(&self.moto, &self.imds).into();
    }
}

fn environment(moto: &Moto, imds: &Imds) -> [(String, String); 2] {
    [
        ("AWS_ENDPOINT_URL".to_owned(), moto.url().to_owned()),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), imds.url().to_owned()),
    ]
}
