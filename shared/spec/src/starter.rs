//! The `cluster.yaml` that `slipway init` writes: a good cluster, with a comment on what one will want to change.

use std::fmt::Write as _;

use slipway_core::versions::NEWEST;

/// The arguments of `slipway init`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Starter {
    /// `clusterName`.
    pub cluster_name: String,
    /// `region`.
    pub region: String,
    /// One public and one private subnet is laid out in each; three or more make a cluster that outlives a zone.
    pub availability_zones: Vec<String>,
    /// The API's DNS name.
    pub dns_name: String,
    /// The Route 53 hosted zone in which its record is made.
    pub hosted_zone_id: Option<String>,
    /// An EC2 key pair for ssh.
    pub key_name: Option<String>,
    /// The KMS key that seals the credentials.
    pub kms_key_arn: Option<String>,
}

/// The text. It is not checked: [`super::parse`] reports errors in what the person gave.
#[must_use]
pub fn starter(starter: &Starter) -> String {
    let zones = &starter.availability_zones;
    let spread = zones.len() >= 3;
    let mut text = String::new();
    head(&mut text, starter);
    subnets(&mut text, zones);
    machines(&mut text, spread);
    pools(&mut text, zones);
    text.push_str(POLICY);
    text
}

/// Writing into a `String` cannot fail, so its result says nothing.
macro_rules! put {
    ($text:expr, $($line:tt)*) => {
        writeln!($text, $($line)*).expect("writing to a String cannot fail")
    };
}

fn head(text: &mut String, starter: &Starter) {
    put!(
        text,
        "# A Kubernetes cluster for Slipway. Check it: `slipway validate cluster.yaml`; launch it: upload it to"
    );
    put!(text, "# clusters/{}/cluster.yaml in the spec bucket.", plain(&starter.cluster_name));
    put!(text, "# yaml-language-server: $schema={SCHEMA_FILE}");
    put!(text, "clusterName: {}", scalar(&starter.cluster_name));
    put!(text, "region: {}", scalar(&starter.region));
    put!(text, "# A minor release: its newest patch is pinned once. Go up one minor at a time.");
    put!(text, "kubernetesVersion: \"1.{}\"", NEWEST.minor);
    put!(text, "");
    put!(
        text,
        "# Who may log in by ssh, and which KMS key seals the credentials (Slipway's own unless given)."
    );
    optional(text, "keyName", starter.key_name.as_deref(), "my-key-pair");
    optional(text, "kmsKeyArn", starter.kms_key_arn.as_deref(), "arn:aws:kms:…:key/…");
    put!(text, "");
    put!(text, "# The name of the API, which is also the name in its certificate.");
    put!(text, "apiEndpoints:");
    put!(text, "  - name: default");
    put!(text, "    dnsName: {}", scalar(&starter.dns_name));
    put!(text, "    loadBalancer:");
    match &starter.hosted_zone_id {
        Some(id) => {
            put!(text, "      # The record is made in this Route 53 zone.");
            put!(text, "      hostedZone:");
            put!(text, "        id: {}", scalar(id));
        }
        None => {
            put!(
                text,
                "      # Without `hostedZone: {{id: Z…}}` you create the record: an alias or CNAME of the load balancer."
            );
            put!(text, "      recordSetManaged: false");
        }
    }
    put!(text, "      # Narrow this to where you work from.");
    put!(text, "      apiAccessAllowedSourceCIDRs:");
    put!(text, "        - 0.0.0.0/0");
}

fn optional(text: &mut String, key: &str, value: Option<&str>, example: &str) {
    match value {
        Some(value) => put!(text, "{key}: {}", scalar(value)),
        None => put!(text, "# {key}: {example}"),
    }
}

/// Public /24s from the beginning of the VPC, private /19s from 10.0.32.0 on: room for seven zones.
fn subnets(text: &mut String, zones: &[String]) {
    put!(text, "");
    put!(
        text,
        "# Load balancers and NAT gateways stand in the public subnets, machines in the private ones."
    );
    put!(text, "vpcCIDR: 10.0.0.0/16");
    put!(text, "podCIDR: 10.2.0.0/16");
    put!(text, "serviceCIDR: 10.3.0.0/24");
    put!(text, "subnets:");
    for (index, zone) in zones.iter().enumerate() {
        put!(text, "  - name: public-{}", index + 1);
        put!(text, "    availabilityZone: {}", scalar(zone));
        put!(text, "    instanceCIDR: 10.0.{index}.0/24");
    }
    for (index, zone) in zones.iter().enumerate() {
        put!(text, "  - name: private-{}", index + 1);
        put!(text, "    availabilityZone: {}", scalar(zone));
        put!(text, "    instanceCIDR: 10.0.{}.0/19", (index + 1) * 32);
        put!(text, "    private: true");
    }
}

fn machines(text: &mut String, spread: bool) {
    let (count, why) = if spread {
        (3, "Three of each, one in each zone: the cluster outlives the loss of any one.")
    } else {
        (1, "One of each. Three need subnets in three zones to outlive the loss of one.")
    };
    put!(text, "");
    put!(text, "# {why}");
    put!(text, "controller:");
    put!(text, "  count: {count}");
    put!(text, "  instanceType: t3.medium");
    put!(text, "etcd:");
    put!(text, "  count: {count}");
    put!(text, "  instanceType: t3.medium");
}

fn pools(text: &mut String, zones: &[String]) {
    put!(text, "");
    put!(text, "# One pool for each zone: the cluster autoscaler cannot choose a zone inside a pool.");
    put!(text, "worker:");
    put!(text, "  nodePools:");
    for index in 1..=zones.len() {
        put!(text, "    - name: general-{index}");
        put!(text, "      instanceType: t3.large");
        put!(text, "      subnets:");
        put!(text, "        - name: private-{index}");
        put!(text, "      autoScalingGroup:");
        put!(text, "        minSize: 1");
        put!(text, "        maxSize: 3");
        put!(text, "      autoscaling:");
        put!(text, "        clusterAutoscaler:");
        put!(text, "          enabled: true");
    }
}

/// The schema that the starter points editors at, in the folder of the spec.
pub const SCHEMA_FILE: &str = "cluster.schema.json";

const POLICY: &str = "
addons:
  clusterAutoscaler:
    enabled: true
  metricsServer:
    enabled: true

# Pods take AWS roles by the token of their service account; add-ons have theirs without being named here.
iamRolesForServiceAccounts:
  enabled: true
  roles: []
  # - name: backup
  #   namespace: operations
  #   serviceAccount: backup
  #   managedPolicies:
  #     - arn: arn:aws:iam::…:policy/…  # among the installation's ManagedPolicyArns

# Certificates are renewed before they expire, node by node. Authorities live ten years, everything else one.
tlsCADurationDays: 3650
tlsCertDurationDays: 365
certificatesConfiguration:
  rolloutBeforeExpiry:
    enabled: true
    days: 7
    strategy: rollout

# `manual` lets each plan wait for `slipway approve`.
rollout:
  approval: auto
  maxUnavailable: 1
";

/// A YAML scalar that reads as exactly this text.
fn scalar(text: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let word = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric()) && text.bytes().all(safe);
    // YAML's double quotes take every escape of JSON's.
    if word { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// For a comment, which must stay on its line.
fn plain(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::{Expected, parse};

    fn starter_for(zones: &[&str]) -> Starter {
        Starter {
            cluster_name: "first".to_owned(),
            region: "eu-west-1".to_owned(),
            availability_zones: zones.iter().map(|zone| (*zone).to_owned()).collect(),
            dns_name: "api.first.example.com".to_owned(),
            ..Starter::default()
        }
    }

    #[test]
    fn what_init_writes_is_accepted_without_a_warning() {
        for zones in
            [&["eu-west-1a"][..], &["eu-west-1a", "eu-west-1b"], &["eu-west-1a", "eu-west-1b", "eu-west-1c"]]
        {
            let plain = starter_for(zones);
            let full = Starter {
                hosted_zone_id: Some("Z123".to_owned()),
                key_name: Some("key pair: 1 # of 2".to_owned()),
                kms_key_arn: Some("arn:aws:kms:eu-west-1:111122223333:key/a".to_owned()),
                ..plain.clone()
            };
            for answers in [plain, full] {
                let accepted =
                    parse(starter(&answers).as_bytes(), Some(&Expected { name: "first", region: None }))
                        .unwrap();
                assert_eq!(accepted.warnings, []);
                assert_eq!(accepted.cluster.key_name, answers.key_name);
                assert!(accepted.cluster.certificates.rollout_before_expiry.is_some());
                assert_eq!(accepted.cluster.pools.len(), zones.len());
            }
        }
    }

    #[test]
    fn what_a_person_gives_cannot_become_other_keys() {
        let told =
            Starter { dns_name: "a\nregion: us-east-1 # \"'{".to_owned(), ..starter_for(&["eu-west-1a"]) };
        let errors = parse(starter(&told).as_bytes(), None).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:#?}");
        assert_eq!(errors[0].code, "dns-name");
    }

    #[test]
    fn the_starter_for_three_zones() {
        let zones = ["eu-west-1a", "eu-west-1b", "eu-west-1c"];
        insta::assert_snapshot!(starter(&Starter {
            hosted_zone_id: Some("Z123".to_owned()),
            ..starter_for(&zones)
        }));
    }
}
