//! IAM roles for service accounts.

use schemars::JsonSchema;
use serde::Deserialize;

use super::PolicySpec;

/// IAM roles that pods take by the token of their service account.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct IamRolesSpec {
    /// Whether tokens are issued under the cluster's public issuer; yes unless `false`. With `false` the issuer is accepted but not used, the step between when this is switched on or off in a running cluster.
    pub(crate) enabled: Option<bool>,
    /// The roles. Those of add-ons are made by themselves.
    pub(crate) roles: Vec<ServiceAccountRoleSpec>,
}

/// An IAM role that one service account may take.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["name", "namespace", "serviceAccount", "managedPolicies"]))]
pub(crate) struct ServiceAccountRoleSpec {
    /// The role's name within the cluster, part of its name in IAM: lower-case letters, digits and hyphens.
    pub(crate) name: Option<String>,
    /// The namespace of the service account.
    pub(crate) namespace: Option<String>,
    /// The service account.
    pub(crate) service_account: Option<String>,
    /// What the role may do. The policies must be among the installation's `ManagedPolicyArns`.
    pub(crate) managed_policies: Vec<PolicySpec>,
}
