//! The identity stack: the OpenID Connect provider for the cluster's service accounts, and an IAM role for each service account that the
//! spec or an add-on names.
//!
//! All names follow from spec and installation, so that the ARN of a role can be written into a manifest before the role exists.

use serde_json::{Value, json};
use slipway_core::cluster::{IAM_PATH, IamRoles};
use slipway_core::digest::sha256_hex;
use slipway_core::oidc;

use super::RenderError;
use super::cfn::{Resource, Template, logical_id, reference};
use super::context::Context;
use super::iam::{boundary, policy};

/// IAM's limit on a role's name.
const MOST_ROLE_NAME: usize = 64;
/// Hex digits of a hash at the end of each role's name. IAM is global, and names with hyphens are joined by hyphens, so that only a hash
/// distinguishes all pairs of clusters and roles.
const HASH_DIGITS: usize = 8;

/// An IAM role that the pods of one service account assume.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PodRole {
    /// Unique within the cluster: the name in the spec, or `addon-<name>`.
    pub(super) name: String,
    /// Namespace of the service account.
    pub(super) namespace: String,
    /// The service account.
    pub(super) service_account: String,
    /// Managed policies.
    pub(super) managed_policy_arns: Vec<String>,
    /// Policy statements, for Slipway's own add-ons only. (The spec names managed policies, which the installation must list.)
    pub(super) statements: Vec<Value>,
}

/// Whether service accounts have roles: tokens are issued under the public issuer.
pub(super) fn is_on(context: &Context<'_>) -> bool {
    context.cluster.iam_roles.as_ref().is_some_and(|roles| roles.enabled)
}

/// The public issuer of the cluster's tokens, if the spec uses it.
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

/// The ARN of the role `name`, computed without a call, for a manifest.
pub(super) fn role_arn(context: &mut Context<'_>, name: &str) -> String {
    let arn = &context.site.kms_key_arn;
    let Some(account) = arn.split(':').nth(4).filter(|account| !account.is_empty()) else {
        context.errors.push(RenderError::NoAccount { arn: arn.clone() });
        return String::new();
    };
    format!("arn:{}:iam::{account}:role{IAM_PATH}{}", context.partition(), role_name(context, name))
}

/// The stack with the roles of the spec and of add-ons, if the public issuer is used.
pub(super) fn template(context: &mut Context<'_>, of_addons: Vec<PodRole>) -> Option<Template> {
    let spec = context.cluster.iam_roles.as_ref().filter(|roles| roles.enabled)?;
    let issuer = issuer(context)?;
    let mut template =
        Template::new(format!("Service accounts of the Kubernetes cluster {}", context.cluster.name));
    // Without thumbprints: AWS verifies S3's certificate with its own list of authorities.
    // https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateOpenIDConnectProvider.html
    let provider = Resource::new("AWS::IAM::OIDCProvider")
        .set("Url", json!(issuer))
        .set("ClientIdList", json!([oidc::AUDIENCE]))
        .set("Tags", context.tags("service-accounts").list());
    let provider = template.add("Provider", provider);
    template.output("Issuer", "The issuer of the service accounts' tokens", json!(issuer));
    for role in of_spec(spec).chain(of_addons) {
        let id = logical_id("Role", &role.name);
        template.add(id, resource(context, &role, &issuer, &provider));
    }
    Some(template)
}

/// The roles that the spec names.
fn of_spec(spec: &IamRoles) -> impl Iterator<Item = PodRole> {
    spec.roles.iter().map(|role| PodRole {
        name: role.name.clone(),
        namespace: role.namespace.clone(),
        service_account: role.service_account.clone(),
        managed_policy_arns: role.managed_policy_arns.clone(),
        statements: Vec::new(),
    })
}

fn resource(context: &Context<'_>, role: &PodRole, issuer: &str, provider: &str) -> Resource {
    // Condition keys contain the issuer in the form of the provider's ARN: without the scheme.
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
        .set_some("PermissionsBoundary", boundary(context, &role.managed_policy_arns))
        .set("Tags", context.tags(&role.name).list())
}
