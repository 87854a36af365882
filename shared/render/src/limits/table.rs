//! Limits of single properties, as a table.

use serde_json::Value;

/// A limit of AWS on a property of a type of resource.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) kind: &'static str,
    /// The property below `Properties`, as a JSON pointer (RFC 6901).
    pub(super) pointer: &'static str,
    pub(super) what: &'static str,
    pub(super) measure: Measure,
    pub(super) limit: usize,
    pub(super) help: &'static str,
}

/// How the size of a property is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    /// Items of a list.
    Items,
    /// Characters of a text.
    Characters,
    /// Characters of a document as compact JSON.
    Document,
}

impl Measure {
    pub(super) fn size(self, value: &Value) -> usize {
        match self {
            Self::Items => value.as_array().map_or(0, Vec::len),
            // The length of an intrinsic function's result is not known.
            Self::Characters => value.as_str().map_or(0, |text| text.chars().count()),
            Self::Document if value.is_null() => 0,
            Self::Document => value.to_string().chars().count(),
        }
    }
}

const fn row(
    kind: &'static str,
    pointer: &'static str,
    what: &'static str,
    measure: Measure,
    limit: usize,
    help: &'static str,
) -> Row {
    Row { kind, pointer, what, measure, limit, help }
}

const GROUP: &str = "AWS::AutoScaling::AutoScalingGroup";
const SHORTER: &str = "shorten clusterName, or the name that the spec or a patch gives";

/// For a quota that AWS raises on request, the help says so.
pub(super) const ROWS: [Row; 15] = [
    // docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-quotas.html
    row(
        GROUP,
        "/TargetGroupARNs",
        "the number of target groups",
        Measure::Items,
        50,
        "have fewer apiEndpoints or targetGroup.arns: one target group can be behind several listeners",
    ),
    row(
        GROUP,
        "/LoadBalancerNames",
        "the number of classic load balancers",
        Measure::Items,
        50,
        "have fewer loadBalancer.names, or use target groups",
    ),
    row(
        GROUP,
        "/LifecycleHookSpecificationList",
        "the number of lifecycle hooks",
        Measure::Items,
        50,
        "have fewer hooks in patches",
    ),
    // docs.aws.amazon.com/autoscaling/ec2/APIReference/API_LaunchTemplate.html
    row(
        GROUP,
        "/MixedInstancesPolicy/LaunchTemplate/Overrides",
        "the number of instance types",
        Measure::Items,
        40,
        "name fewer in mixedInstances.instanceTypes, or make two pools of this one",
    ),
    // docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html
    row(GROUP, "/AutoScalingGroupName", "the name in characters", Measure::Characters, 255, SHORTER),
    // docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateLaunchTemplate.html
    row(
        "AWS::EC2::LaunchTemplate",
        "/LaunchTemplateName",
        "the name in characters",
        Measure::Characters,
        128,
        SHORTER,
    ),
    // docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html, API_CreateTargetGroup.html
    row(
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
        "/Name",
        "the name in characters",
        Measure::Characters,
        32,
        SHORTER,
    ),
    row(
        "AWS::ElasticLoadBalancingV2::TargetGroup",
        "/Name",
        "the name in characters",
        Measure::Characters,
        32,
        SHORTER,
    ),
    // docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    row(
        "AWS::IAM::Role",
        "/AssumeRolePolicyDocument",
        "the trust policy in characters",
        Measure::Document,
        2_048,
        "let fewer service accounts take one role, or have the quota \"Role trust policy length\" raised",
    ),
    row(
        "AWS::IAM::ManagedPolicy",
        "/ManagedPolicyName",
        "the name in characters",
        Measure::Characters,
        128,
        SHORTER,
    ),
    // docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
    row(
        "AWS::EC2::SecurityGroup",
        "/SecurityGroupEgress",
        "the number of outbound rules",
        Measure::Items,
        60,
        "name fewer, larger ranges, or have the quota raised",
    ),
    row(
        "AWS::EC2::VPCEndpoint",
        "/PolicyDocument",
        "the endpoint's policy in characters",
        Measure::Document,
        20_480,
        "shorten the policy in your patch",
    ),
    // docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html
    row(
        "AWS::SSM::Parameter",
        "/Value",
        "the value in characters",
        Measure::Characters,
        4_096,
        "put the value into a bucket and its address into the parameter",
    ),
    // docs.aws.amazon.com/kms/latest/APIReference/API_PutKeyPolicy.html
    row(
        "AWS::KMS::Key",
        "/KeyPolicy",
        "the key's policy in characters",
        Measure::Document,
        32_768,
        "shorten the policy in your patch, or use grants",
    ),
    // docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-policies.html
    row(
        "AWS::S3::BucketPolicy",
        "/PolicyDocument",
        "the bucket's policy in characters",
        Measure::Document,
        20_480,
        "shorten the policy in your patch",
    ),
];
