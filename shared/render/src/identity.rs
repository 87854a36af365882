//! The identity stack: AWS' trust in the cluster's service accounts, and a role for each of those that the spec or an
//! add-on names.
//!
//! Everything of it is named by the spec and the site alone, so that a role's ARN can be written into a manifest before
//! the role is there.

use serde_json::{Value, json};
use slipway_core::cluster::{IAM_PATH, IamRoles};
use slipway_core::digest::sha256_hex;
use slipway_core::oidc;

use super::cfn::{Resource, Template, logical_id, reference};
use super::context::Context;
use super::iam::policy;
use super::{RenderError, addons};

/// IAM's limit on a role's name.
const MOST_ROLE_NAME: usize = 64;
/// Hex digits at the end of each role's name. IAM is one for all regions, and hyphens join what has hyphens: only a hash
/// keeps every pair of clusters and roles apart.
const HASH_DIGITS: usize = 8;

/// A role that the pods of one service account take.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodRole {
    /// Unique within the cluster: the spec's, or `addon-<name>`.
    pub(super) name: String,
    /// Namespace of the service account.
    pub(super) namespace: String,
    /// The service account.
    pub(super) service_account: String,
    /// Managed policies.
    pub(super) managed_policy_arns: Vec<String>,
    /// Statements of its own; only what Slipway says itself (the spec names managed policies, which the installation lists).
    pub(super) statements: Vec<Value>,
}

/// Whether service accounts have roles: controllers make tokens under the issuer that AWS knows.
pub(super) fn is_on(context: &Context<'_>) -> bool {
    context.cluster.iam_roles.as_ref().is_some_and(|roles| roles.enabled)
}

/// The issuer of the cluster's tokens, where the spec speaks of it.
pub(super) fn issuer(context: &mut Context<'_>) -> Option<String> {
    context.cluster.iam_roles.as_ref()?;
    let issuer = oidc::issuer(context.cluster, context.site);
    if issuer.is_none() {
        context.errors.push(RenderError::NoIssuerBucket);
    }
    issuer
}

/// The name in IAM of the role called `name`.
pub(super) fn role_name(context: &Context<'_>, name: &str) -> String {
    let (cluster, region) = (&context.cluster.name, &context.cluster.region);
    let hash = sha256_hex(format!("{cluster}\n{region}\n{name}").as_bytes());
    let mut whole = format!("{cluster}-{name}");
    whole.truncate(MOST_ROLE_NAME - HASH_DIGITS - 1);
    format!("{whole}-{}", &hash[..HASH_DIGITS])
}

/// The ARN of the role called `name`, for a manifest: nothing needs to be asked of AWS.
pub(super) fn role_arn(context: &mut Context<'_>, name: &str) -> String {
    let arn = &context.site.kms_key_arn;
    let Some(account) = arn.split(':').nth(4).filter(|account| !account.is_empty()) else {
        context.errors.push(RenderError::NoAccount { arn: arn.clone() });
        return String::new();
    };
    format!("arn:{}:iam::{account}:role{IAM_PATH}{}", context.partition(), role_name(context, name))
}

/// The stack, where the cluster's issuer is in use.
pub(super) fn template(context: &mut Context<'_>) -> Option<Template> {
    let spec = context.cluster.iam_roles.as_ref().filter(|roles| roles.enabled)?;
    let issuer = issuer(context)?;
    let mut template =
        Template::new(format!("Service accounts of the Kubernetes cluster {}", context.cluster.name));
    // Without thumbprints: AWS checks the certificate of S3 by its own list of authorities.
    // https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html
    let provider = Resource::new("AWS::IAM::OIDCProvider")
        .set("Url", json!(issuer))
        .set("ClientIdList", json!([oidc::AUDIENCE]))
        .set("Tags", context.tags("service-accounts").list());
    let provider = template.add("Provider", provider);
    template.output("Issuer", "The issuer of the service accounts' tokens", json!(issuer));
    for role in roles(context, spec) {
        let id = logical_id("Role", &role.name);
        template.add(id, resource(context, &role, &issuer, &provider));
    }
    Some(template)
}

/// Every role of the cluster: the spec's and the add-ons'.
fn roles(context: &Context<'_>, spec: &IamRoles) -> Vec<PodRole> {
    let of_spec = spec.roles.iter().map(|role| PodRole {
        name: role.name.clone(),
        namespace: role.namespace.clone(),
        service_account: role.service_account.clone(),
        managed_policy_arns: role.managed_policy_arns.clone(),
        statements: Vec::new(),
    });
    of_spec.chain(addons::permissions(context)).collect()
}

fn resource(context: &Context<'_>, role: &PodRole, issuer: &str, provider: &str) -> Resource {
    // Condition keys name the issuer as the provider's ARN does: without the scheme.
    let claims = issuer.trim_start_matches("https://");
    let subject = format!("system:serviceaccount:{}:{}", role.namespace, role.service_account);
    let trust = json!({
        "Effect": "Allow",
        "Action": "sts:AssumeRoleWithWebIdentity",
        "Principal": { "Federated": reference(provider) },
        "Condition": { "StringEquals": {
            (format!("{claims}:aud")): oidc::AUDIENCE,
            (format!("{claims}:sub")): subject,
        } },
    });
    let mut managed_policies = role.managed_policy_arns.clone();
    managed_policies.sort();
    managed_policies.dedup();
    let inline = (!role.statements.is_empty())
        .then(|| json!([{ "PolicyName": "pod", "PolicyDocument": policy(role.statements.clone()) }]));
    Resource::new("AWS::IAM::Role")
        .set("Path", json!(IAM_PATH))
        .set("RoleName", json!(role_name(context, &role.name)))
        .set("AssumeRolePolicyDocument", policy(vec![trust]))
        .set_some("Policies", inline)
        .set_some("ManagedPolicyArns", (!managed_policies.is_empty()).then(|| json!(managed_policies)))
        .set("Tags", context.tags(&role.name).list())
}
