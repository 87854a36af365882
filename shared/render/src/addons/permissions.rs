//! What add-ons may do in AWS, and how their pods get credentials.
//!
//! If AWS trusts the cluster's service accounts, each add-on has an IAM role of its own. If not, it runs in the host network of
//! controllers and uses the controllers' role. Pods outside of the host network cannot reach the metadata service, which answers at the
//! first hop only, and workers have none of these permissions.
//!
//! A running cluster that gets such roles keeps using the controllers' role ([`Lock::pin_addon_credentials`]). The roles are created, but the
//! controllers' permissions are not removed before the add-ons can work without them. This grants nothing new: the statements, the hop
//! limit and the pods stay the same.
//!
//! [`Lock::pin_addon_credentials`]: crate::lock::Lock::pin_addon_credentials

use serde_json::{Value, json};
use slipway_core::cluster::{Existing, Vpc};
use slipway_core::oidc;

use super::Kit;
use super::object::{NAMESPACE, read_only};
use crate::cfn::sub;
use crate::context::{Context, existing};
use crate::iam::{allow, grant_to_ec2};
use crate::identity::{self, PodRole};
use crate::images as addons;
use crate::images::AddonName;

/// The IAM roles of the enabled add-ons.
pub(crate) fn permissions(context: &Context<'_>) -> Vec<PodRole> {
    addons::enabled(context.cluster).into_iter().filter_map(|addon| role(context, addon)).collect()
}

/// Whether add-ons use IAM roles of their own.
fn have_roles(context: &Context<'_>) -> bool {
    identity::is_on(context) && !context.lock.addons_through_controllers
}

/// The statements for the controllers' role; empty if add-ons use roles of their own.
pub(crate) fn instance_statements(context: &Context<'_>) -> Vec<Value> {
    if have_roles(context) {
        return Vec::new();
    }
    permissions(context).into_iter().flat_map(|role| role.statements).collect()
}

fn role(context: &Context<'_>, addon: AddonName) -> Option<PodRole> {
    let (name, service_account, statements) = match addon {
        AddonName::CloudControllerManager => {
            ("cloud-controller-manager", "cloud-controller-manager", cloud_controller_manager(context))
        }
        AddonName::EbsCsiDriver => {
            ("ebs-csi-controller", "ebs-csi-controller-sa", ebs_csi_controller(context))
        }
        AddonName::ClusterAutoscaler => {
            ("cluster-autoscaler", "cluster-autoscaler", cluster_autoscaler(context))
        }
        AddonName::ClusterAccess
        | AddonName::KubeProxy
        | AddonName::Flannel
        | AddonName::NetworkPolicy
        | AddonName::CoreDns
        | AddonName::NodeLocalDns
        | AddonName::MetricsServer => return None,
    };
    Some(PodRole {
        name: format!("addon-{name}"),
        namespace: NAMESPACE.to_owned(),
        service_account: service_account.to_owned(),
        managed_policy_arns: Vec::new(),
        statements,
    })
}

/// How an add-on's pods get AWS credentials.
#[derive(Debug)]
pub(super) enum Aws {
    /// From the role of the controller that they run on.
    Instance,
    /// By assuming their own role with their service account's token.
    Role {
        /// Its ARN.
        arn: String,
        /// The region whose security token service is called.
        region: String,
    },
}

impl Kit<'_, '_> {
    /// How the pods of the add-on `name` get AWS credentials.
    pub(super) fn aws(&mut self, name: &str) -> Aws {
        if !have_roles(self.context) {
            return Aws::Instance;
        }
        let arn = identity::role_arn(self.context, &format!("addon-{name}"));
        Aws::Role { arn, region: self.context.cluster.region.clone() }
    }
}

/// Where the token is mounted. EKS' webhook does the same, but is not needed here.
const TOKEN_FOLDER: &str = "/var/run/secrets/slipway/aws";

impl Aws {
    /// Configures the first container of the pods of `workload` for it.
    pub(super) fn apply(&self, mut workload: Value) -> Value {
        let pod = &mut workload["spec"]["template"]["spec"];
        match self {
            Self::Instance => {
                pod["hostNetwork"] = json!(true);
                // Names of services must be resolvable, which they are not by default for a pod in the host network.
                if pod.get("dnsPolicy").is_none() {
                    pod["dnsPolicy"] = json!("ClusterFirstWithHostNet");
                }
            }
            Self::Role { arn, region } => {
                let container = &mut pod["containers"][0];
                push(
                    container,
                    "env",
                    [
                        json!({ "name": "AWS_ROLE_ARN", "value": arn }),
                        json!({ "name": "AWS_WEB_IDENTITY_TOKEN_FILE", "value": format!("{TOKEN_FOLDER}/token") }),
                        json!({ "name": "AWS_STS_REGIONAL_ENDPOINTS", "value": "regional" }),
                    ],
                );
                let value = container["env"]
                    .as_array()
                    .is_some_and(|env| env.iter().any(|one| one["name"] == "AWS_REGION"));
                if !value {
                    push(container, "env", [json!({ "name": "AWS_REGION", "value": region })]);
                }
                push(container, "volumeMounts", [read_only("aws-token", TOKEN_FOLDER)]);
                push(
                    pod,
                    "volumes",
                    [json!({ "name": "aws-token", "projected": { "sources": [
                    { "serviceAccountToken": { "audience": oidc::AUDIENCE, "expirationSeconds": 86400, "path": "token" } },
                ] } })],
                );
            }
        }
        workload
    }
}

/// Appends to the list at `key`, and creates it if necessary.
fn push<const N: usize>(object: &mut Value, key: &str, items: [Value; N]) {
    match object[key].as_array_mut() {
        Some(list) => list.extend(items),
        None => object[key] = Value::from(items.to_vec()),
    }
}

/// The permissions in AWS' own prerequisites for services and nodes, except those of the in-tree volume plugin and for routes. Statements
/// that change resources are limited to those with the cluster's tag, which the manager puts on everything that it creates
/// (github.com/kubernetes/cloud-provider-aws, docs/prerequisites.md).
fn cloud_controller_manager(context: &Context<'_>) -> Vec<Value> {
    let tag = format!("kubernetes.io/cluster/{}", context.cluster.name);
    let own = json!({ "StringEquals": { (format!("aws:ResourceTag/{tag}")): "owned" } });
    let new = json!({ "StringEquals": { (format!("aws:RequestTag/{tag}")): "owned" } });
    let tags_of_new = json!({ "StringEquals": {
        (format!("aws:RequestTag/{tag}")): "owned",
        "elasticloadbalancing:CreateAction": ["CreateListener", "CreateLoadBalancer", "CreateTargetGroup"],
    } });
    let ec2 = |resource: &str| json!(format!("arn:{}:ec2:*:*:{resource}/*", context.partition()));
    vec![
        allow(
            "CloudLooks",
            &[
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeTags",
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeInstanceTopology",
                "ec2:DescribeInstances",
                "ec2:DescribeRegions",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
                // Elastic Load Balancing asks for it when a balancer gets security groups.
                "ec2:GetSecurityGroupsForVpc",
                "elasticloadbalancing:DescribeListeners",
                "elasticloadbalancing:DescribeLoadBalancerAttributes",
                "elasticloadbalancing:DescribeLoadBalancerPolicies",
                "elasticloadbalancing:DescribeLoadBalancers",
                "elasticloadbalancing:DescribeTargetGroupAttributes",
                "elasticloadbalancing:DescribeTargetGroups",
                "elasticloadbalancing:DescribeTargetHealth",
            ],
            json!("*"),
            Value::Null,
        ),
        allow(
            "CloudMakesItsOwn",
            &["elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateTargetGroup"],
            json!("*"),
            new.clone(),
        ),
        // The resource is the balancer, which has its tags by then; the listener's own tags are those of the request (service authorization
        // reference, "Elastic Load Balancing V2"; the manager gives listeners the same tags: cloud-provider-aws, pkg/providers/v1/aws_loadbalancer.go,
        // createListenerV2).
        allow(
            "CloudListensOnItsOwn",
            &["elasticloadbalancing:CreateListener"],
            json!(format!("arn:{}:elasticloadbalancing:*:*:loadbalancer/*", context.partition())),
            json!({ "StringEquals": {
                (format!("aws:RequestTag/{tag}")): "owned",
                (format!("aws:ResourceTag/{tag}")): "owned",
            } }),
        ),
        // ELB authorizes the tags of a new resource separately, before the resource has any ("ELB API permissions to tag resources during
        // creation", Elastic Load Balancing user guide). Both generations of ELB have the keys (service authorization reference).
        allow("CloudTagsBalancersItMakes", &["elasticloadbalancing:AddTags"], json!("*"), tags_of_new),
        allow("CloudMakesGroups", &["ec2:CreateSecurityGroup"], ec2("security-group"), new),
        make_groups_in_vpc(context, &own),
        allow(
            "CloudTagsWhatItMakes",
            &["ec2:CreateTags"],
            ec2("security-group"),
            json!({ "StringEquals": { "ec2:CreateAction": "CreateSecurityGroup" } }),
        ),
        allow(
            "CloudChangesItsOwn",
            &[
                "ec2:AuthorizeSecurityGroupIngress",
                "ec2:DeleteSecurityGroup",
                "ec2:RevokeSecurityGroupIngress",
                "elasticloadbalancing:AddTags",
                "elasticloadbalancing:ApplySecurityGroupsToLoadBalancer",
                "elasticloadbalancing:AttachLoadBalancerToSubnets",
                "elasticloadbalancing:ConfigureHealthCheck",
                "elasticloadbalancing:CreateLoadBalancerListeners",
                "elasticloadbalancing:CreateLoadBalancerPolicy",
                "elasticloadbalancing:DeleteListener",
                "elasticloadbalancing:DeleteLoadBalancer",
                "elasticloadbalancing:DeleteLoadBalancerListeners",
                "elasticloadbalancing:DeleteTargetGroup",
                "elasticloadbalancing:DeregisterInstancesFromLoadBalancer",
                "elasticloadbalancing:DeregisterTargets",
                "elasticloadbalancing:DetachLoadBalancerFromSubnets",
                "elasticloadbalancing:ModifyListener",
                "elasticloadbalancing:ModifyLoadBalancerAttributes",
                "elasticloadbalancing:ModifyTargetGroup",
                "elasticloadbalancing:ModifyTargetGroupAttributes",
                "elasticloadbalancing:RegisterInstancesWithLoadBalancer",
                "elasticloadbalancing:RegisterTargets",
                "elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer",
                "elasticloadbalancing:SetLoadBalancerPoliciesOfListener",
                "elasticloadbalancing:SetSecurityGroups",
            ],
            json!("*"),
            own,
        ),
    ]
}

/// Security groups are made in the cluster's VPC alone: `ec2:CreateSecurityGroup` knows the VPC as a resource, with `aws:ResourceTag` (service
/// authorization reference, "Amazon EC2"). The identity stack is made beside that of the network and does not know its VPC, which has the cluster's
/// tag. Subnets of balancers (`elasticloadbalancing:Subnet`) are known by their ids alone, and so cannot be named there.
fn make_groups_in_vpc(context: &Context<'_>, own: &Value) -> Value {
    let vpc = format!("arn:{}:ec2:*:*:vpc/", context.partition());
    let (resource, condition) = match &context.cluster.network.vpc {
        Vpc::Managed(_) => (json!(format!("{vpc}*")), own.clone()),
        Vpc::Existing { id: Existing::Id(id), .. } => (json!(format!("{vpc}{id}")), Value::Null),
        Vpc::Existing { id: id @ Existing::Export(_), .. } => {
            (json!({ "Fn::Sub": [format!("{vpc}${{Vpc}}"), { "Vpc": existing(id) }] }), Value::Null)
        }
    };
    allow("CloudMakesGroupsInVpc", &["ec2:CreateSecurityGroup"], resource, condition)
}

/// AWS' managed policy `AmazonEBSCSIDriverPolicyV2`, without snapshots, and limited to this cluster's volumes, which the driver tags
/// because of `--k8s-tag-cluster-id`. Both tags are required, because etcd's volumes have the cluster's tag as well.
fn ebs_csi_controller(context: &Context<'_>) -> Vec<Value> {
    let tag = format!("kubernetes.io/cluster/{}", context.cluster.name);
    let ec2 = |resource: &str| json!(format!("arn:{}:ec2:*:*:{resource}/*", context.partition()));
    const DRIVER_TAG: &str = "ebs.csi.aws.com/cluster";
    let own = json!({ "StringEquals": {
        (format!("aws:ResourceTag/{tag}")): "owned",
        (format!("aws:ResourceTag/{DRIVER_TAG}")): "true",
    } });
    // Members of etcd find their volume by this tag: a volume that has it may not come from here, nor get it when it is made.
    let not_etcds = json!({ "aws:RequestTag/slipway:volume": "true" });
    let new = json!({ "StringEquals": {
        (format!("aws:RequestTag/{tag}")): "owned",
        (format!("aws:RequestTag/{DRIVER_TAG}")): "true",
    }, "Null": not_etcds.clone() });
    let node = json!({ "StringEquals": { (format!("aws:ResourceTag/{tag}")): "owned" } });
    let region = &context.cluster.region;
    let keys = sub(format!("arn:{}:kms:{region}:${{AWS::AccountId}}:key/*", context.partition()));
    let via_ec2 = format!("ec2.{region}.{}", context.dns_suffix());
    vec![
        allow(
            "VolumesLook",
            &[
                "ec2:DescribeAvailabilityZones",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeInstances",
                "ec2:DescribeSnapshots",
                "ec2:DescribeTags",
                "ec2:DescribeVolumeStatus",
                "ec2:DescribeVolumes",
                "ec2:DescribeVolumesModifications",
            ],
            json!("*"),
            Value::Null,
        ),
        allow("VolumesMake", &["ec2:CreateVolume"], ec2("volume"), new),
        // Only from snapshots that have the cluster's tag: any other snapshot may hold another cluster's data. `ec2:CreateVolume` knows the
        // snapshot as a resource of its own, with `aws:ResourceTag` (service authorization reference, "Amazon EC2").
        allow("VolumesMakeFromSnapshots", &["ec2:CreateVolume"], ec2("snapshot"), node.clone()),
        allow(
            "VolumesTag",
            &["ec2:CreateTags"],
            ec2("volume"),
            json!({ "StringEquals": { "ec2:CreateAction": "CreateVolume" }, "Null": not_etcds }),
        ),
        allow(
            "VolumesChange",
            &["ec2:AttachVolume", "ec2:DeleteVolume", "ec2:DetachVolume", "ec2:ModifyVolume"],
            ec2("volume"),
            own,
        ),
        allow("VolumesAttach", &["ec2:AttachVolume", "ec2:DetachVolume"], ec2("instance"), node),
        // Volumes are encrypted, under AWS' own key or under another one that the account has chosen for EBS.
        allow(
            "VolumesEncrypt",
            &[
                "kms:Decrypt",
                "kms:DescribeKey",
                "kms:GenerateDataKeyWithoutPlaintext",
                "kms:ReEncryptFrom",
                "kms:ReEncryptTo",
            ],
            keys.clone(),
            json!({ "StringEquals": { "kms:ViaService": via_ec2 } }),
        ),
        grant_to_ec2(context, "VolumesGrant", keys),
    ]
}

/// The autoscaler may change the groups of this cluster's pools, which have its tag.
fn cluster_autoscaler(context: &Context<'_>) -> Vec<Value> {
    let name = &context.cluster.name;
    let owned = json!({ "StringEquals": {
        (format!("aws:ResourceTag/k8s.io/cluster-autoscaler/{name}")): "owned",
    } });
    vec![
        allow(
            "AutoscalerLooks",
            &[
                "autoscaling:DescribeAutoScalingGroups",
                "autoscaling:DescribeAutoScalingInstances",
                "autoscaling:DescribeScalingActivities",
                "autoscaling:DescribeTags",
                "ec2:DescribeImages",
                "ec2:DescribeInstanceTypes",
                "ec2:DescribeLaunchTemplateVersions",
                "ec2:GetInstanceTypesFromInstanceRequirements",
            ],
            json!("*"),
            Value::Null,
        ),
        allow(
            "AutoscalerScales",
            &["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
            json!("*"),
            owned,
        ),
    ]
}
