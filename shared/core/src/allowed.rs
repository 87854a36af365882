//! What an installation allows the specs of its clusters to use in the account, besides what Slipway makes (P13). Each field is a parameter
//! of `infra/template.yaml`, and everything is empty unless an administrator lists it.

use serde::{Deserialize, Serialize};

use crate::cluster::Approval;

/// The part of Route 53 that specs may write records in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedZone {
    /// The id of the hosted zone.
    pub id: String,
    /// Records must have this name or one below it: the zone's domain, or a part of it. Lower case, without a final dot.
    pub domain: String,
}

impl AllowedZone {
    /// Whether a record of that name may be in the zone.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        is_at_or_below(name, &self.domain)
    }
}

/// Whether the DNS name `name` is `domain`, or lies below it.
#[must_use]
pub fn is_at_or_below(name: &str, domain: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Whether machines, groups, volumes or load balancers are found by a tag with this key, or permissions depend on it: no user may set it.
/// Tags that describe a node group to the cluster autoscaler are no such tags (its AWS documentation, "Auto-Discovery Setup").
///
/// In any case: a condition on `aws:ResourceTag/slipway:cluster` also matches the tag `SLIPWAY:cluster` ("Key names are not case-sensitive", IAM
/// user guide, "IAM JSON policy elements: Condition").
#[must_use]
pub fn is_ownership_tag(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let owned = ["slipway:", "kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/", "ebs.csi.aws.com/"];
    owned.iter().any(|prefix| key.starts_with(prefix))
        && !key.starts_with("k8s.io/cluster-autoscaler/node-template/")
}

/// What an installation allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Allowed {
    /// `ProgramBuckets`: buckets that `software.baseURL` may name.
    #[serde(default)]
    pub program_buckets: Vec<String>,
    /// `HostedZoneIds` with `HostedZoneDomains`.
    #[serde(default)]
    pub hosted_zones: Vec<AllowedZone>,
    /// `PrivateDomains`: domains below which the private zones may be that Slipway makes.
    #[serde(default)]
    pub private_domains: Vec<String>,
    /// `ManagedPolicyArns`: policies that roles of nodes and of service accounts may have attached.
    #[serde(default)]
    pub managed_policy_arns: Vec<String>,
    /// `ClusterKeyArns`: KMS keys that `kmsKeyArn` may name besides the installation's own, as IAM writes resources. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_key_arns: Option<Vec<String>>,
    /// `InstanceRoleArns`: the roles whose instance profiles specs may name. `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_role_arns: Option<Vec<String>>,
    /// `Approval`: with `manual`, every plan waits for a person, whatever its spec says.
    pub approval: Approval,
    /// The permissions boundaries of the roles that are made for clusters.
    pub boundaries: Boundaries,
}

/// The permissions boundaries of the roles that are made for clusters. CloudFormation's role can make no role without one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Boundaries {
    /// The ARN of the boundary of roles that have Slipway's own statements only.
    pub own: String,
    /// The ARN of the boundary of roles with managed policies. `None`: the installation allows no managed policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_managed_policies: Option<String>,
}

impl Boundaries {
    /// The boundary of a role, which has managed policies or has none.
    #[must_use]
    pub fn for_role(&self, has_managed_policies: bool) -> &str {
        match &self.with_managed_policies {
            Some(wide) if has_managed_policies => wide,
            Some(_) | None => &self.own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a condition, `aws:ResourceTag/slipway:cluster` is also the tag `SLIPWAY:Cluster`.
    #[test]
    fn p13_a_tag_in_other_letters_is_an_ownership_tag_too() {
        for key in
            ["slipway:cluster", "SLIPWAY:cluster", "Kubernetes.io/cluster/prod", "EBS.csi.aws.com/cluster"]
        {
            assert!(is_ownership_tag(key), "{key}");
        }
        for key in ["slipway", "cost-centre", "k8s.io/cluster-autoscaler/node-template/label/x"] {
            assert!(!is_ownership_tag(key), "{key}");
        }
    }

    #[test]
    fn a_name_lies_below_a_domain_only_at_a_dot() {
        let zone = AllowedZone { id: "Z1".to_owned(), domain: "k8s.example.com".to_owned() };
        for name in ["k8s.example.com", "api.k8s.example.com", "API.K8S.example.com.", "a.b.k8s.example.com"]
        {
            assert!(zone.has(name), "{name}");
        }
        for name in ["example.com", "notk8s.example.com", "k8s.example.com.evil.net", "", "."] {
            assert!(!zone.has(name), "{name}");
        }
    }
}
