//! What an operator creates in AWS before a test begins. The functions panic if AWS refuses.
#![allow(clippy::missing_panics_doc, reason = "a test may panic")]

use std::collections::BTreeMap;

use axum::http::Method;
use serde_json::json;

use crate::client::Client;

const FINE: &str = "nothing fails here";

impl Client {
    /// Creates a bucket in the region, which must not be `us-east-1`.
    pub async fn create_bucket(&self, name: &str) {
        let place = format!(
            "<CreateBucketConfiguration><LocationConstraint>{}</LocationConstraint></CreateBucketConfiguration>",
            self.region()
        );
        self.s3(Method::PUT, name, "", place.into_bytes()).await.expect(FINE);
    }

    /// Enables the versioning of a bucket.
    pub async fn keep_versions(&self, bucket: &str) {
        let versions = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        self.s3(Method::PUT, bucket, "versioning", versions.into()).await.expect(FINE);
    }

    /// Creates a KMS key. Returns its ARN.
    pub async fn create_key(&self) -> String {
        let made = self.json("kms", "TrentService.CreateKey", json!({})).await.expect(FINE);
        made["KeyMetadata"]["Arn"].as_str().expect(FINE).to_owned()
    }

    /// Creates a hosted zone. Returns its id.
    pub async fn create_zone(&self, domain: &str) -> String {
        let body = format!(
            "<CreateHostedZoneRequest xmlns=\"https://route53.amazonaws.com/doc/2013-04-01/\"><Name>{domain}</Name><CallerReference>1</CallerReference></CreateHostedZoneRequest>"
        );
        between(&self.post("route53", "/2013-04-01/hostedzone", body).await, "<Id>/hostedzone/").to_owned()
    }

    /// Creates a volume with this number of GiB in the region's first zone. Returns its id.
    pub async fn create_volume(&self, size: u32, tags: &BTreeMap<String, String>) -> String {
        let mut asked = format!(
            "CreateVolume&AvailabilityZone={}a&Size={size}&TagSpecification.1.ResourceType=volume",
            self.region()
        );
        for (number, (name, value)) in (1..).zip(tags) {
            let tag = format!("TagSpecification.1.Tag.{number}");
            asked += &format!("&{tag}.Key={}&{tag}.Value={value}", name.replace(':', "%3A"));
        }
        between(&self.ec2(&asked).await, "<volumeId>").to_owned()
    }

    /// Launches an instance of any image. Returns its id.
    pub async fn run_instance(&self) -> String {
        let images = self.ec2("DescribeImages&MaxResults=5").await;
        let image = between(&images, "<imageId>");
        let run = self.ec2(&format!("RunInstances&ImageId={image}&MinCount=1&MaxCount=1")).await;
        between(&run, "<instanceId>").to_owned()
    }

    /// Calls EC2. `call` is the action with its parameters. Returns the answer's text.
    pub async fn ec2(&self, call: &str) -> String {
        self.post("ec2", "/", format!("Version=2016-11-15&Action={call}")).await
    }

    async fn post(&self, service: &str, path: &str, body: String) -> String {
        let kind = if service == "ec2" { "application/x-www-form-urlencoded" } else { "application/xml" };
        let request = slipway_sim::wire::client().post(format!("{}{path}", self.endpoint()));
        let request =
            request.header("authorization", self.authorization(service)).header("content-type", kind);
        let answer = request.body(body.clone()).send().await.expect(FINE);
        assert!(answer.status().is_success(), "{body}: {}", answer.text().await.expect(FINE));
        answer.text().await.expect(FINE)
    }
}

/// The text between `before` and the next `<`.
pub fn between<'a>(text: &'a str, before: &str) -> &'a str {
    let rest = text.split(before).nth(1).unwrap_or_else(|| panic!("no {before} in {text}"));
    rest.split('<').next().unwrap_or_default()
}
