//! The IAM role of nodes: read the bundles of their role, decrypt under their role's context, answer Run Command, write their status, and
//! complete their own lifecycle hooks. Further permissions are added by the roles that need them.

use serde_json::{Value, json};
use slipway_core::cluster::{IAM_PATH, Iam};
use slipway_core::keys;
use slipway_core::role::Role;

use super::cfn::{Resource, Template, get_att, reference, sub};
use super::context::Context;

/// An instance profile: made by the stack (its logical id), or the user's (its ARN).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Profile {
    Own(String),
    Given(String),
}

impl Profile {
    /// Its ARN.
    pub(super) fn arn(&self) -> Value {
        match self {
            Self::Own(id) => get_att(id, "Arn"),
            Self::Given(arn) => json!(arn),
        }
    }

    /// Its description for plans: `own`, or the user's ARN.
    pub(super) fn describe(&self) -> &str {
        match self {
            Self::Own(_) => "own",
            Self::Given(arn) => arn,
        }
    }
}

/// The names of one role's nodes in IAM.
pub(super) struct Principal<'a> {
    /// Logical ids are `<prefix>Role<suffix>` and `<prefix>Profile<suffix>`.
    pub(super) prefix: &'a str,
    /// The index of an etcd member; otherwise empty.
    pub(super) suffix: String,
    /// The nodes' role.
    pub(super) role: &'a Role,
    /// Their stack.
    pub(super) stack: &'a str,
    /// Their Auto Scaling group.
    pub(super) group: &'a str,
    /// The IAM settings of the spec.
    pub(super) iam: &'a Iam,
}

/// Adds role and instance profile, unless the spec provides a profile.
pub(super) fn add(
    context: &Context<'_>,
    template: &mut Template,
    principal: &Principal<'_>,
    extra: Vec<Value>,
) -> Profile {
    if let Some(arn) = &principal.iam.instance_profile_arn {
        return Profile::Given(arn.clone());
    }
    let name = principal.iam.role_name.as_ref().map(|name| {
        let whole =
            if principal.iam.strict_name { name.clone() } else { format!("{}-{name}", principal.stack) };
        match principal.suffix.as_str() {
            "" => whole,
            member => format!("{whole}-{member}"),
        }
    });
    let mut statements = base_statements(context, principal);
    statements.extend(extra);
    let mut managed_policies = principal.iam.managed_policy_arns.clone();
    managed_policies.sort();
    managed_policies.dedup();
    let service = format!("ec2.{}", context.dns_suffix());
    let role = Resource::new("AWS::IAM::Role")
        .set("Path", json!(IAM_PATH))
        .set_some("RoleName", name)
        .set(
            "AssumeRolePolicyDocument",
            policy(vec![json!({
                "Effect": "Allow",
                "Action": "sts:AssumeRole",
                "Principal": { "Service": service },
            })]),
        )
        .set("Policies", json!([{ "PolicyName": "node", "PolicyDocument": policy(statements) }]))
        .set_some("ManagedPolicyArns", (!managed_policies.is_empty()).then(|| json!(managed_policies)))
        .set_some("PermissionsBoundary", boundary(context, &principal.iam.managed_policy_arns))
        .set("Tags", context.tags(&principal.role.to_string()).list());
    let role_id = template.add(format!("{}Role{}", principal.prefix, principal.suffix), role);
    let profile = Resource::new("AWS::IAM::InstanceProfile")
        .set("Path", json!(IAM_PATH))
        .set("Roles", json!([reference(&role_id)]));
    Profile::Own(template.add(format!("{}Profile{}", principal.prefix, principal.suffix), profile))
}

/// The permissions boundary of a role with those managed policies, if an installation makes the role.
pub(super) fn boundary(context: &Context<'_>, managed_policy_arns: &[String]) -> Option<Value> {
    let allowed = context.site.allowed.as_ref()?;
    Some(json!(allowed.boundaries.for_role(!managed_policy_arns.is_empty())))
}

/// A policy with these statements.
pub(super) fn policy(statements: Vec<Value>) -> Value {
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// Lets EC2 use keys for volumes that the role attaches, and nobody else ("Requirements for Amazon EBS encryption", EBS user guide). That page
/// names four more actions, without saying for which call. Of them a caller needs `Decrypt` and `GenerateDataKeyWithoutPlaintext` to make
/// a volume, and a grant to attach it (kubernetes/kubernetes, issue 62171; `grantAttachVolume` of aws/aws-cdk, aws-ec2/lib/volume.ts).
pub(super) fn grant_to_ec2(context: &Context<'_>, sid: &str, keys: Value) -> Value {
    let service = format!("ec2.{}.{}", context.cluster.region, context.dns_suffix());
    let condition = json!({
        "Bool": { "kms:GrantIsForAWSResource": "true" },
        "StringEquals": { "kms:ViaService": service },
    });
    allow(sid, &["kms:CreateGrant"], keys, condition)
}

/// The condition that a bucket is this account's: names of buckets are global, and a deleted one can be somebody else's tomorrow. No action
/// of S3 is among those without the key; EventBridge's and `ec2:CreateVolume` are ("AWS global condition context keys", IAM user guide).
pub(super) fn own_account() -> Value {
    json!({ "StringEquals": { "aws:ResourceAccount": reference("AWS::AccountId") } })
}

/// One `Allow` statement; `condition` may be null.
pub(super) fn allow(sid: &str, actions: &[&str], resources: Value, condition: Value) -> Value {
    let mut statement = json!({ "Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources });
    if !condition.is_null() {
        statement["Condition"] = condition;
    }
    statement
}

/// Private images of ECR, for the kubelet's plugin. A token opens all registries that the role may read, and their policies decide on
/// those of other accounts. These are the actions of AWS' own `AmazonEC2ContainerRegistryPullOnly` for images ("AWS managed policies for Amazon ECR").
pub(super) fn pull_images(context: &Context<'_>) -> [Value; 2] {
    let repositories = format!("arn:{}:ecr:*:*:repository/*", context.partition());
    [
        // It has no resource-level permissions.
        allow("LogInToRegistries", &["ecr:GetAuthorizationToken"], json!("*"), Value::Null),
        allow(
            "PullImages",
            &["ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            json!(repositories),
            Value::Null,
        ),
    ]
}

/// The statements that every node needs.
fn base_statements(context: &Context<'_>, principal: &Principal<'_>) -> Vec<Value> {
    let cluster = &context.cluster.name;
    let role = principal.role.to_string();
    let bucket = format!("arn:{}:s3:::{}", context.partition(), context.site.asset_bucket);
    let own = keys::OWN_MACHINE_ARN;
    let own_reports = [keys::bootstrap_report(cluster, &role, own), keys::node_status(cluster, &role, own)];
    let mirror = context.cluster.software.base_url.as_deref().and_then(|url| url.strip_prefix("s3://"));
    let programs = mirror.map(|place| {
        let objects = format!("arn:{}:s3:::{place}/*", context.partition());
        // Not `own_account`: a bucket of programs may be another account's, and `ProgramBuckets` lists names. Somebody who creates a deleted bucket again
        // gains nothing by it, as nodes verify each program by the digest that the lock pins.
        allow("ReadPrograms", &["s3:GetObject"], json!([objects]), Value::Null)
    });
    let mut statements = vec![
        allow(
            "ReadOwnBundles",
            &["s3:GetObject"],
            json!([format!("{bucket}/agent/*"), format!("{bucket}/clusters/{cluster}/bundles/{role}/*")]),
            own_account(),
        ),
        // Its status, and why its bootstrap failed: both keys, of its own machine alone.
        allow(
            "ReportOwnState",
            &["s3:PutObject"],
            json!(own_reports.map(|key| format!("{bucket}/{key}"))),
            own_account(),
        ),
        // KMS matches the context exactly, so a bundle of another role cannot be decrypted even by a node that has its bytes.
        allow(
            "OpenOwnCredentials",
            &["kms:Decrypt"],
            json!(context.kms_key_arn()),
            sealed_for(context, &role),
        ),
        // The SSM agent's part of Run Command. Of these actions only `ssm:UpdateInstanceInformation` knows machines as resources (service
        // authorization reference), and no policy variable is the id of the caller's machine alone. AWS' managed policy would also
        // allow reading every parameter of the account.
        allow(
            "AnswerRunCommand",
            &[
                "ec2messages:AcknowledgeMessage",
                "ec2messages:DeleteMessage",
                "ec2messages:FailMessage",
                "ec2messages:GetEndpoint",
                "ec2messages:GetMessages",
                "ec2messages:SendReply",
                "ssm:UpdateInstanceInformation",
                "ssmmessages:CreateControlChannel",
                "ssmmessages:CreateDataChannel",
                "ssmmessages:OpenControlChannel",
                "ssmmessages:OpenDataChannel",
            ],
            json!("*"),
            Value::Null,
        ),
        allow(
            "SettleOwnLifecycleHooks",
            &["autoscaling:CompleteLifecycleAction", "autoscaling:RecordLifecycleActionHeartbeat"],
            sub(format!(
                "arn:{}:autoscaling:{}:${{AWS::AccountId}}:autoScalingGroup:*:autoScalingGroupName/{}",
                context.partition(),
                context.cluster.region,
                principal.group
            )),
            Value::Null,
        ),
    ];
    statements.extend(programs);
    // The sealed bundle on the disk of a running machine stays as it was when the machine booted.
    statements.extend(open_former(context, "OpenFormerCredentials", &role));
    statements
}

/// KMS matches the encryption context exactly.
pub(super) fn sealed_for(context: &Context<'_>, role: &str) -> Value {
    json!({ "StringEquals": {
        "kms:EncryptionContext:cluster": context.cluster.name,
        "kms:EncryptionContext:role": role,
    } })
}

/// Permission to open, but not to seal, objects for `role` that were sealed under the cluster's previous KMS keys.
pub(super) fn open_former(context: &Context<'_>, sid: &str, role: &str) -> Option<Value> {
    let former = context.former_kms_key_arns();
    (!former.is_empty()).then(|| allow(sid, &["kms:Decrypt"], json!(former), sealed_for(context, role)))
}
