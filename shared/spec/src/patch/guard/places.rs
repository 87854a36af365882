//! The places of rendered things that patches may not change, and why.

/// A place that stays as it was rendered, and why.
pub(super) struct Fixed {
    /// Below the resource, or from the top of a node's configuration.
    pub(super) pointer: &'static str,
    pub(super) help: &'static str,
}

const fn fixed(pointer: &'static str, help: &'static str) -> Fixed {
    Fixed { pointer, help }
}

const SIZE: &str = "the plan counts nodes by it: say it in the spec (`autoScalingGroup`, `count`)";
const MACHINE: &str = "the plan tells outdated nodes by it: say it in the spec";

/// Auto Scaling groups.
const GROUP: [Fixed; 15] = [
    fixed(
        "/UpdatePolicy",
        "CloudFormation would replace nodes itself, undrained; the rollout replaces them, one by one",
    ),
    fixed("/CreationPolicy", "nodes report through their lifecycle hooks, and nobody would send the signals"),
    fixed("/DeletionPolicy", "a group that outlives its stack runs nodes that nobody knows of"),
    fixed("/Properties/AutoScalingGroupName", "a node's role is limited to the group of this name"),
    fixed("/Properties/MinSize", SIZE),
    fixed("/Properties/MaxSize", SIZE),
    fixed(
        "/Properties/DesiredCapacity",
        "each update would set it again and terminate nodes undrained; the autoscaler and the rollout own it",
    ),
    fixed("/Properties/LaunchTemplate", MACHINE),
    fixed("/Properties/LaunchConfigurationName", MACHINE),
    fixed("/Properties/InstanceId", MACHINE),
    fixed("/Properties/MixedInstancesPolicy/LaunchTemplate", MACHINE),
    fixed(
        "/Properties/HealthCheckType",
        "while etcd is down no controller is ready, and a balancer's health would have all of them terminated",
    ),
    fixed(
        "/Properties/InstanceLifecyclePolicy",
        "a worker whose drain nobody finished must stay, for its pods were not evicted",
    ),
    fixed(
        "/Properties/VPCZoneIdentifier",
        "say it in the spec (`subnets`), which checks routes, zones and where volumes lie",
    ),
    fixed(
        "/Properties/MaxInstanceLifetime",
        "Auto Scaling would replace nodes by the clock, all of them at once and no rollout in between",
    ),
];

/// Launch templates.
const LAUNCH_TEMPLATE: [Fixed; 8] = [
    fixed(
        "/Properties/LaunchTemplateData/UserData",
        "it fetches and checks the node agent; use `customFiles` and `customSystemdUnits` in the spec for what a node should have besides",
    ),
    fixed("/Properties/LaunchTemplateData/ImageId", MACHINE),
    fixed("/Properties/LaunchTemplateData/InstanceType", MACHINE),
    fixed("/Properties/LaunchTemplateData/InstanceRequirements", MACHINE),
    fixed(
        "/Properties/LaunchTemplateData/IamInstanceProfile",
        "a node without its role cannot read its bundles; say `iam` in the spec",
    ),
    fixed(
        "/Properties/LaunchTemplateData/MetadataOptions",
        "the hop limit of 1 and required tokens keep pods from the node's role; run pods that need the role with `hostNetwork`",
    ),
    fixed("/Properties/LaunchTemplateData/SecurityGroupIds", "say it in the spec (`securityGroupIds`)"),
    fixed(
        "/Properties/LaunchTemplateData/NetworkInterfaces",
        "they bring security groups and subnets of their own; say `subnets` and `securityGroupIds` in the spec",
    ),
];

/// Volumes that outlive their nodes.
const VOLUME: [Fixed; 5] = [
    fixed("/Properties/Encrypted", "volumes are encrypted"),
    fixed(
        "/Properties/AvailabilityZone",
        "the volume must lie where its member does; say it in the spec (`subnets`)",
    ),
    fixed(
        "/Properties/Size",
        "volumes never shrink, which is checked in the spec (`etcd.dataVolume.size`): say it there",
    ),
    fixed(
        "/Properties/KmsKeyId",
        "a volume is not encrypted anew; say it in the spec (`etcd.dataVolume.kmsKeyArn`)",
    ),
    fixed("/Properties/SnapshotId", FOREIGN_DATA),
];

/// Security groups.
const SECURITY_GROUP: [Fixed; 2] = [
    fixed("/Properties/GroupName", "the group would be made anew while nodes are in it"),
    fixed("/Properties/SecurityGroupEgress", EGRESS),
];

/// Rules of security groups.
const RULE: [Fixed; 8] = [
    fixed("/Properties/GroupId", WAY),
    fixed("/Properties/GroupName", WAY),
    fixed("/Properties/IpProtocol", WAY),
    fixed("/Properties/FromPort", WAY),
    fixed("/Properties/ToPort", WAY),
    fixed("/Properties/SourceSecurityGroupId", WAY),
    fixed("/Properties/SourceSecurityGroupName", WAY),
    fixed("/Properties/CidrIp", WAY),
];
const WAY: &str = "nodes reach each other by it; add a rule of your own under another name";

/// Hosted zones.
const ZONE: [Fixed; 2] = [
    fixed("/Properties/Name", "etcd members are found in it"),
    fixed("/Properties/VPCs", "etcd members are found in it, from the cluster's VPC"),
];

/// Records.
const RECORD: [Fixed; 3] = [
    fixed("/Properties/Name", "it would be somebody else's name; say it in the spec (`apiEndpoints`)"),
    fixed("/Properties/Type", "it would be somebody else's record; say it in the spec (`apiEndpoints`)"),
    fixed(
        "/Properties/SetIdentifier",
        "it would be somebody else's record; say it in the spec (`apiEndpoints`)",
    ),
];

/// Why nothing is made of a snapshot.
pub(super) const FOREIGN_DATA: &str =
    "a snapshot may hold another cluster's data: nodes start with empty volumes";
/// Why Slipway's groups have no rules for what goes out.
pub(super) const EGRESS: &str = "the first such rule ends that nodes reach etcd, the API and AWS; only groups that the patch itself brings may have some";

/// Node configurations.
pub(super) const NODE: [Fixed; 32] = [
    fixed("/format", "the node agent reads the configuration by it"),
    fixed("/cluster", "the node is found by it"),
    fixed("/role", "the node reads its bundles by it"),
    fixed("/region", "the node lies there"),
    fixed("/autoScalingGroup", "the node settles the hooks of this group"),
    fixed("/launchHook", "without it the node would be terminated as never healthy"),
    fixed("/terminateHook", "without it the node would go undrained"),
    fixed("/kubernetesVersion", "version skew is checked by the spec's `kubernetesVersion`: say it there"),
    fixed("/etcd/version", "say it in the spec (`etcd.version`)"),
    fixed("/etcd/name", "the member is known to its fellows by it"),
    fixed("/etcd/dnsName", "the member's certificates carry it"),
    fixed("/etcd/initialClusterState", "the spec (`etcd.count`) adds and removes members, one at a time"),
    fixed("/etcd/initialClusterToken", "members know their cluster by it"),
    fixed("/etcd/joinEndpoints", "the spec (`etcd.count`) adds and removes members, one at a time"),
    fixed("/etcd/initialCluster", "the spec (`etcd.count`) adds and removes members, one at a time"),
    fixed("/etcd/clientPort", PORT),
    fixed("/etcd/peerPort", PORT),
    fixed("/dataVolume", "the member finds its data by it"),
    fixed(
        "/custom",
        "say it in the spec (`customFiles`, `customSystemdUnits`), which checks paths and names",
    ),
    fixed("/apiServer", "kubelets give their token to this address: say it in the spec (`apiEndpoints`)"),
    fixed(
        "/kubelet/configuration",
        "say it in the spec (`kubelet`), which knows the fields that are Slipway's: who may call the kubelet is one of them",
    ),
    fixed("/controlPlane/auditLog", "say it in the spec (`kubernetes.apiServer.auditLog`)"),
    fixed(
        "/controlPlane/admission",
        "say it in the spec (`kubernetes.apiServer`), which keeps NodeRestriction: without it a node can label itself as another",
    ),
    fixed("/controlPlane/bindPort", PORT),
    fixed("/controlPlane/etcdServers", "API servers with other members would serve another cluster, or none"),
    fixed(
        "/controlPlane/serviceCidr",
        "certificates carry an address of it: say it in the spec (`serviceCIDR`)",
    ),
    fixed(
        "/controlPlane/encryptionAtRest",
        "API servers that disagree cannot read secrets: say it in the spec",
    ),
    fixed(
        "/controlPlane/serviceAccountTokens",
        "tokens of pods would be refused, or somebody else's accepted: say it in the spec",
    ),
    fixed(
        "/controlPlane/authentication",
        "who may sign in is said in the spec (`kubernetes`), which checks it",
    ),
    fixed("/controlPlane/apiServer", FLAGS),
    fixed("/controlPlane/controllerManager", FLAGS),
    fixed("/controlPlane/scheduler", FLAGS),
];
const PORT: &str = "security groups, load balancers and the other nodes know this port";
const FLAGS: &str = "say it in the spec (`kubernetes`), which knows the flags and paths that are Slipway's";
/// The keys below a place that may change, where all others may not.
pub(super) struct Free {
    pub(super) below: &'static str,
    pub(super) keys: &'static [&'static str],
    /// And these of workers.
    pub(super) of_workers: &'static [&'static str],
}

const GROUP_FREE: [Free; 1] = [Free {
    below: "/Properties",
    keys: &[
        "Cooldown",
        "DefaultInstanceWarmup",
        "HealthCheckGracePeriod",
        "LifecycleHookSpecificationList",
        "MetricsCollection",
        "Tags",
    ],
    of_workers: &[
        "CapacityRebalance",
        "InstanceMaintenancePolicy",
        "MixedInstancesPolicy",
        "NewInstancesProtectedFromScaleIn",
        "PlacementGroup",
        "TerminationPolicies",
    ],
}];

const LAUNCH_TEMPLATE_FREE: [Free; 2] = [
    Free {
        below: "/Properties",
        keys: &["LaunchTemplateData", "TagSpecifications", "VersionDescription"],
        of_workers: &[],
    },
    Free {
        below: "/Properties/LaunchTemplateData",
        keys: &[
            "BlockDeviceMappings",
            "CpuOptions",
            "CreditSpecification",
            "DisableApiTermination",
            "EbsOptimized",
            "Monitoring",
            "TagSpecifications",
        ],
        of_workers: &[
            "CapacityReservationSpecification",
            "EnclaveOptions",
            "InstanceMarketOptions",
            "LicenseSpecifications",
            "MaintenanceOptions",
            "Placement",
        ],
    },
];

const VOLUME_FREE: [Free; 1] = [Free {
    below: "/Properties",
    keys: &["AutoEnableIO", "Iops", "Tags", "Throughput", "VolumeType"],
    of_workers: &[],
}];

/// The way to the API: who ends its TLS reads every token.
const LISTENER_FREE: [Free; 1] =
    [Free { below: "/Properties", keys: &["ListenerAttributes"], of_workers: &[] }];

const LOAD_BALANCER_FREE: [Free; 1] =
    [Free { below: "/Properties", keys: &["LoadBalancerAttributes", "Tags"], of_workers: &[] }];

/// Attributes of load balancers that may change. Those of logs name buckets, and any of the account that takes logs of load balancers
/// would do ("LoadBalancerAttribute", Elastic Load Balancing API reference).
pub(super) const BALANCER_ATTRIBUTES: [&str; 4] = [
    "deletion_protection.enabled",
    "dns_record.client_routing_policy",
    "load_balancing.cross_zone.enabled",
    "zonal_shift.config.enabled",
];

const TARGET_GROUP_FREE: [Free; 1] = [Free {
    below: "/Properties",
    keys: &[
        "HealthCheckIntervalSeconds",
        "HealthCheckTimeoutSeconds",
        "HealthyThresholdCount",
        "Tags",
        "TargetGroupAttributes",
        "UnhealthyThresholdCount",
    ],
    of_workers: &[],
}];

/// Places that stay in resources of a type.
pub(super) fn kept(kind: &str) -> &'static [Fixed] {
    match kind {
        "AWS::AutoScaling::AutoScalingGroup" => &GROUP,
        "AWS::EC2::LaunchTemplate" => &LAUNCH_TEMPLATE,
        "AWS::EC2::Volume" => &VOLUME,
        "AWS::EC2::SecurityGroup" => &SECURITY_GROUP,
        "AWS::EC2::SecurityGroupIngress" => &RULE,
        "AWS::Route53::HostedZone" => &ZONE,
        "AWS::Route53::RecordSet" => &RECORD,
        _ => &[],
    }
}

/// What alone may change in resources of a type; none: all but what stays.
pub(super) fn free(kind: &str) -> &'static [Free] {
    match kind {
        "AWS::AutoScaling::AutoScalingGroup" => &GROUP_FREE,
        "AWS::EC2::LaunchTemplate" => &LAUNCH_TEMPLATE_FREE,
        "AWS::EC2::Volume" => &VOLUME_FREE,
        "AWS::ElasticLoadBalancingV2::Listener" => &LISTENER_FREE,
        "AWS::ElasticLoadBalancingV2::LoadBalancer" => &LOAD_BALANCER_FREE,
        "AWS::ElasticLoadBalancingV2::TargetGroup" => &TARGET_GROUP_FREE,
        _ => &[],
    }
}
