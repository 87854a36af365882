//! Machines, and the keys of kube-aws.

use super::*;

#[test]
fn keys_that_kube_aws_had_and_we_do_not() {
    says!(with("containerRuntime: rkt\nreleaseChannel: stable\nexperimental:\n  kiamSupport:\n    enabled: false\n  kube2IamSupport:\n    enabled: true\naddons:\n  tiller: {}\n"), @r##"
    15:1 error retired-key at `containerRuntime`: `containerRuntime` is a key of kube-aws that Slipway does not take
        remove it: rkt and Docker are gone, nodes run containerd
    16:1 error retired-key at `releaseChannel`: `releaseChannel` is a key of kube-aws that Slipway does not take
        remove it: nodes run Amazon Linux 2023; choose another image with `amiId` or `image.ssmParameters`
    18:3 error retired-key at `experimental.kiamSupport`: `kiamSupport` is a key of kube-aws that Slipway does not take
        write `iamRolesForServiceAccounts: {enabled: true, roles: […]}`: pods take roles by their service account's token; a node's own role is `iam.role`
    20:3 error retired-key at `experimental.kube2IamSupport`: `kube2IamSupport` is a key of kube-aws that Slipway does not take
        write `iamRolesForServiceAccounts: {enabled: true, roles: […]}`: pods take roles by their service account's token; a node's own role is `iam.role`
    23:3 error retired-key at `addons.tiller`: `tiller` is a key of kube-aws that Slipway does not take
        remove it: Helm 3 and newer need no tiller
    "##);
}

#[test]
fn pool_keys_that_kube_aws_had_and_we_do_not() {
    says!(with("    kube2IamSupport:\n      enabled: true\n    createTimeout: PT15M\n"), @r##"
    15:5 error retired-key at `worker.nodePools[0].kube2IamSupport`: `kube2IamSupport` is a key of kube-aws that Slipway does not take
        write `iamRolesForServiceAccounts: {enabled: true, roles: […]}`: pods take roles by their service account's token; a node's own role is `iam.role`
    17:5 error retired-key at `worker.nodePools[0].createTimeout`: `createTimeout` is a key of kube-aws that Slipway does not take
        remove it: Slipway waits for nodes itself, with `rollout.failureBudget`
    "##);
}

#[test]
fn keys_that_have_a_modern_equal() {
    says!(with("    spotPrice: \"0.06\"\nuseCalico: true\netcd:\n  snapshot:\n    automated: true\n"), @r##"
    15:5 warning translated-key at `worker.nodePools[0].spotPrice`: `spotPrice` is a key of kube-aws, taken in its modern form
        write `mixedInstances`: spot never costs more than on demand, so the price cap is dropped
    16:1 warning translated-key at `useCalico`: `useCalico` is a key of kube-aws, taken in its modern form
        write `addons: {networkPolicy: {enabled: true}}`
    18:3 warning translated-key at `etcd.snapshot`: `snapshot` is a key of kube-aws, taken in its modern form
        remove it: a snapshot is always taken before an etcd member is touched
    "##);
}

#[test]
fn the_example_of_kube_aws_keys() {
    says!(told_of(include_str!("../../../../../examples/from-kube-aws.yaml")), @r##"
    8:1 warning translated-key at `externalDNSName`: `externalDNSName` is a key of kube-aws, taken in its modern form
        write `apiEndpoints: [{name: default, dnsName: …}]`
    9:1 warning translated-key at `hostedZoneId`: `hostedZoneId` is a key of kube-aws, taken in its modern form
        write `apiEndpoints[].loadBalancer.hostedZone.id`
    10:1 warning translated-key at `createRecordSet`: `createRecordSet` is a key of kube-aws, taken in its modern form
        write `apiEndpoints[].loadBalancer.recordSetManaged`; it is on wherever a hosted zone is given
    11:1 warning translated-key at `useCalico`: `useCalico` is a key of kube-aws, taken in its modern form
        write `addons: {networkPolicy: {enabled: true}}`
    38:9 warning translated-key at `worker.nodePools[0].autoScalingGroup.rollingUpdateMinInstancesInService`: `rollingUpdateMinInstancesInService` is a key of kube-aws, taken in its modern form
        remove it and write `rollout.maxUnavailable`: nodes are replaced by Slipway, not by CloudFormation
    45:7 warning translated-key at `worker.nodePools[1].spotFleet`: `spotFleet` is a key of kube-aws, taken in its modern form
        write `mixedInstances` with `overrides`: spot fleets are legacy, an Auto Scaling group carries the weights now
    55:7 warning translated-key at `worker.nodePools[2].spotPrice`: `spotPrice` is a key of kube-aws, taken in its modern form
        write `mixedInstances`: spot never costs more than on demand, so the price cap is dropped
    "##);
}

/// Each piece of YAML in the guide of kube-aws that the design grew from, put into a whole spec: accepted as it stands,
/// taken with a warning that names the key, or refused by name.
#[test]
fn what_the_guide_of_kube_aws_shows_is_taken_or_refused_by_name() {
    let pool = |keys: &str| format!("{BASE}{keys}");
    let accepted = [
        BASE.replace(
            "- name: default\n  dnsName: api.example.com\n",
            "- name: default\n  dnsName: kubernetes.staging.example.com\n  loadBalancer:\n    hostedZone:\n      id: A12BB3CDE422\n",
        ),
        pool("    subnets:\n    - name: private-a\n  - name: pool-2\n    subnets:\n    - name: private-c\n"),
        pool("    autoScalingGroup:\n      minSize: 1\n      maxSize: 3\n"),
        pool(
            "    subnets: [{name: private-a}]\n    autoScalingGroup:\n      minSize: 1\n      maxSize: 10\n    autoscaling:\n      \
             clusterAutoscaler:\n        enabled: true\n  - name: notScaled\n    autoScalingGroup:\n      minSize: 2\n      maxSize: 4\n\
             addons:\n  clusterAutoscaler:\n    enabled: true\n",
        ),
        pool("    iam:\n      role:\n        name: my-worker-role\ncontroller:\n  iam:\n    role:\n      name: my-controller-role\n"),
    ];
    for text in accepted {
        assert_eq!(told_of(&text), "", "{text}");
    }
    let translated = [
        (pool("useCalico: true\n"), "useCalico"),
        (pool("    spotFleet:\n      targetCapacity: 3\n"), "worker.nodePools[0].spotFleet"),
        (
            pool(
                "    autoScalingGroup:\n      minSize: 1\n      maxSize: 3\n      rollingUpdateMinInstanceInService: 1\n",
            ),
            "worker.nodePools[0].autoScalingGroup.rollingUpdateMinInstanceInService",
        ),
    ];
    for (text, path) in translated {
        let accepted = parse(text.as_bytes(), None).unwrap();
        let warned: Vec<_> =
            accepted.warnings.iter().map(|warning| (warning.code.as_str(), warning.path.as_str())).collect();
        assert_eq!(warned, [("translated-key", path)]);
    }
    let refused = [
        (pool("containerRuntime: rkt\nreleaseChannel: stable\n"), vec!["containerRuntime", "releaseChannel"]),
        (
            pool(
                "    kube2IamSupport:\n      enabled: true\nexperimental:\n  kiamSupport:\n    enabled: false\n  kube2IamSupport:\n    enabled: false\n",
            ),
            vec![
                "worker.nodePools[0].kube2IamSupport",
                "experimental.kiamSupport",
                "experimental.kube2IamSupport",
            ],
        ),
        (pool("s3URI: s3://my-kube-aws-assets-bucket/\n"), vec!["s3URI"]),
    ];
    for (text, paths) in refused {
        let errors = parse(text.as_bytes(), None).unwrap_err();
        let refused: Vec<_> = errors.iter().map(|error| (error.code.as_str(), error.path.as_str())).collect();
        assert_eq!(refused, paths.into_iter().map(|path| ("retired-key", path)).collect::<Vec<_>>());
    }
}

#[test]
fn spot_fleets_become_mixed_instances_with_their_weights() {
    let fleet = "    spotFleet:\n      targetCapacity: 5\n      launchSpecifications:\n      - {weightedCapacity: 1, instanceType: t2.medium}\n      - {weightedCapacity: 2, instanceType: m3.large}\n";
    let pool = parse(format!("{BASE}{fleet}").as_bytes(), None).unwrap().cluster.pools.remove(0);
    let mixed = pool.mixed_instances.unwrap();
    let types: Vec<_> = mixed.types.iter().map(|of| (of.instance_type.as_str(), of.weight)).collect();
    assert_eq!(types, [("t2.medium", Some(1)), ("m3.large", Some(2))]);
    assert_eq!((pool.size.min, pool.size.max), (5, 5));
    assert_eq!((mixed.on_demand_base, mixed.on_demand_percentage), (0, 0));
    assert_eq!(pool.instance_type, "t2.medium");
}

#[test]
fn defaults_are_those_of_kube_aws_made_modern() {
    let cluster = parse(
        b"clusterName: Mini\nregion: eu-west-1\nkubernetesVersion: 1.37\navailabilityZone: eu-west-1a\nexternalDNSName: api.example.com\nworker: {nodePools: [{name: a}]}\n",
        None,
    )
    .unwrap()
    .cluster;
    let ranges = (cluster.network.vpc.cidr(), cluster.network.pod_cidr, cluster.network.service_cidr);
    assert_eq!(
        format!("{ranges:?} {}", cluster.network.dns_service_ip),
        "(10.0.0.0/16, 10.2.0.0/16, 10.3.0.0/24) 10.3.0.10"
    );
    assert_eq!(cluster.network.subnets[0].name, "Subnet0");
    assert_eq!(
        (cluster.api_endpoints[0].name.as_str(), cluster.worker_api_endpoint.as_str()),
        ("default", "default")
    );
    assert_eq!(cluster.api_endpoints[0].load_balancer.subnets, ["Subnet0"]);
    assert_eq!((cluster.controller.count, cluster.controller.root_volume.kind.as_str()), (1, "gp3"));
    assert_eq!(cluster.etcd.members[0].dns_name, "etcd-0.mini.etcd.internal");
    assert_eq!((cluster.certificates.ca_days, cluster.certificates.leaf_days), (3650, 365));
    assert_eq!(cluster.certificates.rollout_before_expiry, None);
    assert_eq!((cluster.pools[0].size.min, cluster.pools[0].size.max), (1, 1));
    let image = format!("{:?}", cluster.image);
    assert!(
        image.contains("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"),
        "{image}"
    );
}

#[test]
fn old_and_new_keys_at_once() {
    says!(with("externalDNSName: a.example.com\nvpcId: vpc-0123456789abcdef0\nvpc: {id: vpc-0123456789abcdef1}\nvpcCIDR: 10.0.0.0/16\n"), @r##"
    15:1 warning translated-key at `externalDNSName`: `externalDNSName` is a key of kube-aws, taken in its modern form
        write `apiEndpoints: [{name: default, dnsName: …}]`
    15:18 error given-twice at `externalDNSName`: `externalDNSName` and `apiEndpoints` are both given
        keep `apiEndpoints`, with that name among them
    16:1 warning translated-key at `vpcId`: `vpcId` is a key of kube-aws, taken in its modern form
        write `vpc: {id: …}`
    16:8 error given-twice at `vpcId`: `vpcId` and `vpc.id` say the same
        keep `vpc.id`
    "##);
}

#[test]
fn no_controller() {
    says!(with("controller:\n  count: 0\n"), @r##"
    16:10 error no-controller at `controller.count`: a cluster without controllers has no API
        write 1 or more; 3 for an API that outlives a zone
    "##);
}

#[test]
fn counts_of_etcd() {
    says!([with("etcd:\n  count: 0\n"), with("etcd:\n  count: 2\n"), with("etcd:\n  count: 4\n"), with("etcd:\n  count: 7\n")].concat(), @r##"
    16:10 error etcd-count at `etcd.count`: a cluster without etcd has no memory
        write 1, 3 or 5
    16:10 error etcd-count at `etcd.count`: 2 etcd members survive no more failures than 1, and have one more to fail
        write 1, 3 or 5
    16:10 error etcd-count at `etcd.count`: 4 etcd members survive no more failures than 3, and have one more to fail
        write 1, 3 or 5
    16:10 error etcd-count at `etcd.count`: 7 etcd members are slower than 5, and hardly safer
        write 1, 3 or 5
    "##);
}

#[test]
fn etcd_that_one_zone_can_take_down() {
    says!([with("etcd:\n  count: 3\n  subnets:\n  - name: private-a\n"), with("etcd:\n  count: 3\n  subnets:\n  - name: private-a\n  - name: private-b\n"), with("etcd:\n  count: 3\n")].concat(), @r##"
    17:3 warning etcd-zones at `etcd.subnets`: 3 of 3 etcd members stand in eu-west-1a: without that zone the cluster has no quorum
        name subnets in three zones
    17:3 warning etcd-zones at `etcd.subnets`: 2 of 3 etcd members stand in eu-west-1a: without that zone the cluster has no quorum
        name subnets in three zones
    "##);
}

#[test]
fn versions_of_etcd() {
    says!([with("etcd: {version: 3.4.1}\n"), with("etcd: {version: newest}\n"), with("etcd: {version: 3.5.9}\n")].concat(), @r##"
    15:17 error etcd-version at `etcd.version`: `3.4.1` is no etcd release that is supported
        write one such as `3.7.3`, or remove the line
    15:17 error etcd-version at `etcd.version`: `newest` is no etcd release that is supported
        write one such as `3.7.3`, or remove the line
    15:17 warning etcd-version at `etcd.version`: etcd 3.5.9 is older than the 3.7.3 that this Kubernetes release is tested with
        remove the line, unless etcd is to be upgraded later
    "##);
}

#[test]
fn the_domain_of_etcd() {
    says!(with("etcd: {internalDomainName: internal}\n"), @r##"
    15:28 error dns-name at `etcd.internalDomainName`: `internal` is no domain for a private zone
        write a name such as `prod.etcd.internal`, which exists in this VPC alone
    "##);
}

#[test]
fn role_names_that_iam_does_not_take() {
    says!([with(&format!("controller: {{iam: {{role: {{name: {}}}}}}}\n", "r".repeat(46))), with("etcd: {iam: {role: {name: \"a b\"}}}\n")].concat(), @r##"
    15:33 error role-name at `controller.iam.role.name`: the role's whole name `base-control-plane-rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr` has 65 characters
        shorten it to 45: IAM takes 64 in all, or remove it and CloudFormation makes a name
    15:27 error role-name at `etcd.iam.role.name`: `a b` cannot end a role's name
        write letters, digits and `+=,.@_-` only
    "##);
}

#[test]
fn a_role_name_at_the_limit_is_taken() {
    says!(with(&format!("controller: {{iam: {{role: {{name: {}}}}}}}\n", "r".repeat(45))), @"");
}

#[test]
fn an_etcd_role_name_leaves_room_for_the_members_number() {
    let with_name =
        |length: usize| with(&format!("etcd: {{iam: {{role: {{name: {}}}}}}}\n", "r".repeat(length)));
    assert_eq!(with_name(64 - "base-etcd-".len() - "-0".len()), "");
    assert!(with_name(64 - "base-etcd-".len() - "-0".len() + 1).contains("role-name"));
}

#[test]
fn arns_that_are_none() {
    says!(with("controller:\n  iam:\n    role:\n      managedPolicies: [{arn: AdministratorAccess}, {}]\netcd:\n  iam:\n    instanceProfile: {arn: nodes}\n    role: {name: x}\n"), @r##"
    18:31 error arn-syntax at `controller.iam.role.managedPolicies[0].arn`: `AdministratorAccess` is no ARN of a policy
        write one such as `arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore`
    18:53 error missing-key at `controller.iam.role.managedPolicies[1].arn`: `controller.iam.role.managedPolicies[1]` lacks `arn`
        add `arn`: The policy's ARN.
    21:28 error arn-syntax at `etcd.iam.instanceProfile.arn`: `nodes` is no ARN of an instance profile
        write one such as `arn:aws:iam::111122223333:instance-profile/nodes`
    21:28 error given-twice at `etcd.iam.instanceProfile.arn`: both a role and an instance profile are given
        keep `role` for a role that is made, or `instanceProfile` for one that exists
    "##);
}

#[test]
fn p13_no_node_wears_a_profile_that_slipway_made_for_another_cluster() {
    says!(with("controller:\n  iam:\n    instanceProfile: {arn: 'arn:aws:iam::111122223333:instance-profile/slipway/prod-controller'}\netcd:\n  iam:\n    instanceProfile: {arn: 'arn:aws:iam::111122223333:instance-profile/slipway-of-ours'}\n"), @r##"
    17:28 error foreign-profile at `controller.iam.instanceProfile.arn`: `arn:aws:iam::111122223333:instance-profile/slipway/prod-controller` is a profile that Slipway made: it has the permissions of another role or cluster
        name a profile of your own, or leave `instanceProfile` out: the role's own is made for it
    "##);
}

#[test]
fn a_pool_in_several_zones_with_the_cluster_autoscaler() {
    says!([with("    subnets: [{name: private-a}, {name: private-b}]\n    autoscaling: {clusterAutoscaler: {enabled: true}}\naddons: {clusterAutoscaler: {enabled: true}}\n"), with("    autoscaling:\n      clusterAutoscaler:\n        enabled: true\n")].concat(), @r##"
    15:5 error autoscaler-zones at `worker.nodePools[0].subnets`: the cluster autoscaler cannot scale a pool that stands in several zones (eu-west-1a, eu-west-1b)
        make one pool for each zone, with `subnets` in that zone alone
    17:18 warning autoscaler-off at `worker.nodePools[0].autoscaling.clusterAutoscaler.enabled`: nothing scales this pool: the add-on is off
        add `addons: {clusterAutoscaler: {enabled: true}}`
    17:18 error autoscaler-zones at `worker.nodePools[0].autoscaling.clusterAutoscaler.enabled`: the cluster autoscaler cannot scale a pool that stands in several zones (eu-west-1a, eu-west-1b, eu-west-1c)
        make one pool for each zone, with `subnets` in that zone alone
    "##);
}

#[test]
fn sizes_of_pools() {
    says!([with("    autoScalingGroup:\n      minSize: 3\n      maxSize: 1\n"), with("    count: 0\n"), with("    count: 2\n    autoScalingGroup: {minSize: 1, maxSize: 3}\n")].concat(), @r##"
    16:16 error group-size at `worker.nodePools[0].autoScalingGroup.minSize`: `minSize` is 3, above the `maxSize` of 1
        write a `minSize` that is not above `maxSize`
    15:12 warning empty-pool at `worker.nodePools[0].count`: the pool never has a node
        give it a size, or remove the pool
    16:5 error given-twice at `worker.nodePools[0].autoScalingGroup`: `count` and `autoScalingGroup` both give the pool's size
        keep `autoScalingGroup: {minSize, maxSize}`, or `count` for a fixed size
    "##);
}

#[test]
fn names_of_pools() {
    says!([instead("- name: general", "- name: -general"), instead("- name: general", &format!("- name: {}", "g".repeat(64)))].concat(), @r##"
    14:11 error name-syntax at `worker.nodePools[0].name`: `-general` cannot be a pool's name
        begin with a letter, go on with letters, digits and hyphens, 63 at most: a stack is named after it
    14:11 error name-syntax at `worker.nodePools[0].name`: `gggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggggg` cannot be a pool's name
        begin with a letter, go on with letters, digits and hyphens, 63 at most: a stack is named after it
    "##);
}

#[test]
fn labels() {
    says!(with("    nodeLabels:\n      \"a b\": c\n      ok: \"not ok\"\n      node-role.kubernetes.io/worker: \"\"\n"), @r##"
    16:14 error label-syntax at `worker.nodePools[0].nodeLabels.a b`: `a b` cannot be a label's key
        write a name of 63 characters at most (letters, digits, `-_.`), perhaps with a DNS prefix: `example.com/name`
    17:11 error label-syntax at `worker.nodePools[0].nodeLabels.ok`: `not ok` cannot be a label's value
        write 63 characters at most: letters, digits, `-_.`, the first and last a letter or digit
    18:39 error label-reserved at `worker.nodePools[0].nodeLabels.node-role.kubernetes.io/worker`: the label `node-role.kubernetes.io/worker` is reserved by Kubernetes
        choose a prefix of your own, or `node.kubernetes.io/`: a kubelet that sets this one does not start
    "##);
}

#[test]
fn taints() {
    says!(with("    taints:\n    - {key: \"a b\", value: \"c d\", effect: NoSchedule}\n    - {key: a, effect: Never}\n    - {key: b, value: x, effect: NoExecute}\n    - {key: b, value: y, effect: NoExecute}\ncontroller: {taints: []}\n"), @r##"
    16:13 error taint-syntax at `worker.nodePools[0].taints[0].key`: `a b` cannot be a taint's key
        write a name of 63 characters at most (letters, digits, `-_.`), perhaps with a DNS prefix: `example.com/name`
    16:27 error taint-syntax at `worker.nodePools[0].taints[0].value`: `c d` cannot be a taint's value
        write 63 characters at most: letters, digits, `-_.`, the first and last a letter or digit
    17:24 error unknown-value at `worker.nodePools[0].taints[1].effect`: `Never` is none of `NoSchedule`, `PreferNoSchedule`, `NoExecute`
        write one of these words
    19:13 error duplicate-name at `worker.nodePools[0].taints[3].key`: the taint `b:NoExecute` is given twice
        keep one: a node has a key and an effect once, whatever the value
    20:14 error retired-key at `controller.taints`: `taints` is a key of kube-aws that Slipway does not take
        remove it: controllers carry the taint of Kubernetes' control plane, and no other
    "##);
}

#[test]
fn instance_types() {
    says!([with("    instanceType: large\n"), with("    mixedInstances: {overrides: [{instanceType: m7g.large}, {instanceType: m7i.large}, {instanceType: m7g.large}]}\n"), with("    mixedInstances: {instanceTypes: [big], overrides: [{instanceType: m7g.large}]}\n")].concat(), @r##"
    15:19 error instance-type at `worker.nodePools[0].instanceType`: `large` is no EC2 instance type
        write one such as `m7g.large`
    15:5 error mixed-architectures at `worker.nodePools[0].mixedInstances`: the pool's instance types have different architectures
        make one pool for Graviton and one for Intel and AMD: a pool has one image
    15:103 error duplicate-name at `worker.nodePools[0].mixedInstances.overrides[2].instanceType`: `m7g.large` is named twice
        name each instance type once
    15:5 error mixed-architectures at `worker.nodePools[0].mixedInstances`: the pool's instance types have different architectures
        make one pool for Graviton and one for Intel and AMD: a pool has one image
    15:38 error instance-type at `worker.nodePools[0].mixedInstances.instanceTypes[0]`: `big` is no EC2 instance type
        write one such as `m7g.large`
    15:44 error given-twice at `worker.nodePools[0].mixedInstances.overrides`: `instanceTypes` and `overrides` both name the instance types
        keep `overrides` if types have weights, else `instanceTypes`
    "##);
}

#[test]
fn several_ways_to_spot() {
    says!(with("    spotFleet: {targetCapacity: 3}\n    mixedInstances: {}\n"), @r##"
    15:5 error given-twice at `worker.nodePools[0].spotFleet`: `mixedInstances` and `spotFleet` both say how the pool is made up
        keep `mixedInstances`
    15:5 warning translated-key at `worker.nodePools[0].spotFleet`: `spotFleet` is a key of kube-aws, taken in its modern form
        write `mixedInstances` with `overrides`: spot fleets are legacy, an Auto Scaling group carries the weights now
    "##);
}

#[test]
fn volumes() {
    says!(with("    rootVolume: {type: gp2, iops: 300}\ncontroller: {rootVolume: {type: io2, throughput: 125, encrypted: false}}\netcd: {dataVolume: {iops: 200}, rootVolume: {type: gp4}}\n"), @r##"
    15:35 error volume at `worker.nodePools[0].rootVolume.iops`: gp2 takes no `iops`
        write `type: gp3`, or remove the line
    16:33 error volume at `controller.rootVolume.type`: io2 needs `iops`
        add `iops`, or write `type: gp3`
    16:50 error volume at `controller.rootVolume.throughput`: io2 takes no `throughput`
        write `type: gp3`, or remove the line
    16:66 error unencrypted-volume at `controller.rootVolume.encrypted`: a volume cannot be left unencrypted
        remove the line: every volume is encrypted
    17:27 error volume at `etcd.dataVolume.iops`: gp3 has at least 3000 operations a second
        write 3000 or more, or remove the line
    17:52 error unknown-value at `etcd.rootVolume.type`: `gp4` is none of `gp3`, `gp2`, `io1`, `io2`
        did you mean `gp3`?
    "##);
}

#[test]
fn rollouts_that_could_never_end() {
    says!(with("rollout:\n  maxUnavailable: 0\n  surge: 0%\n"), @r##"
    16:19 error rollout-stuck at `rollout.maxUnavailable`: no node could ever be replaced
        give one of `maxUnavailable` and `surge` at least 1
    "##);
}

#[test]
fn rollouts_that_are_amiss() {
    says!(with("rollout:\n  maxUnavailable: many\n  surge: 120%\n  windows:\n  - {start: \"25:00\", minutes: 10}\n  - {days: [someday], minutes: 10}\n"), @r##"
    16:19 error wrong-type at `rollout.maxUnavailable`: `many` is neither a number of nodes nor a percentage
        write one such as `2` or `25%`
    17:10 error wrong-type at `rollout.surge`: `120%` is neither a number of nodes nor a percentage
        write one such as `2` or `25%`
    19:13 error window at `rollout.windows[0].start`: `25:00` is no time of the day
        write hours and minutes in UTC, such as `"02:30"`
    20:5 error missing-key at `rollout.windows[1].start`: `rollout.windows[1]` lacks `start`
        add `start`: The time at which it opens, such as `02:30`.
    20:13 error unknown-value at `rollout.windows[1].days[0]`: `someday` is none of `mon`, `tue`, `wed`, `thu`, `fri`, `sat`, `sun`
        write one of these words
    "##);
}

#[test]
fn days_of_certificates() {
    says!([with("tlsCertDurationDays: 4000\n"), with("tlsCertDurationDays: 30\ncertificatesConfiguration:\n  rolloutBeforeExpiry: {enabled: true, days: 30}\n"), with("certificatesConfiguration:\n  rolloutBeforeExpiry: {enabled: true, emergencyDays: 8}\n")].concat(), @r##"
    15:22 error certificate-days at `tlsCertDurationDays`: certificates of 4000 days would outlive their authority of 3650
        write fewer days than `tlsCADurationDays`
    17:46 error certificate-days at `certificatesConfiguration.rolloutBeforeExpiry.days`: certificates of 30 days would be renewed 30 days before they expire, that is always
        write fewer days than `tlsCertDurationDays`
    16:55 error certificate-days at `certificatesConfiguration.rolloutBeforeExpiry.emergencyDays`: certificates are renewed 7 days before they expire: 8 days before, there is nothing to hurry
        write at most as many days as `days`
    "##);
    says!([with("tlsCADurationDays: 730\ncertificatesConfiguration:\n  caRotationDays: 730\n")].concat(), @r##"
    17:19 error certificate-days at `certificatesConfiguration.caRotationDays`: authorities of 730 days would be exchanged 730 days before they end, that is always
        write fewer days than `tlsCADurationDays`
    "##);
    let more = "certificatesConfiguration:\n  caRotationDays: 90\n";
    let cluster = crate::parse(format!("{BASE}{more}").as_bytes(), None).unwrap().cluster;
    assert_eq!(cluster.certificates.ca_rotation_days, Some(90));
}

#[test]
fn renewals_hurry_for_half_of_their_days_and_three_at_most() {
    let emergency_days = |more: &str| {
        let text =
            format!("{BASE}certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true{more}}}\n");
        let accepted = parse(text.as_bytes(), None).unwrap_or_else(|found| panic!("{found:?}"));
        accepted
            .cluster
            .certificates
            .rollout_before_expiry
            .map(|renewal| (renewal.days, renewal.emergency_days))
    };
    assert_eq!(emergency_days(""), Some((7, 3)));
    assert_eq!(emergency_days(", days: 30"), Some((30, 3)));
    assert_eq!(emergency_days(", days: 3"), Some((3, 1)));
    assert_eq!(emergency_days(", days: 2"), Some((2, 1)));
    assert_eq!(emergency_days(", emergencyDays: 0"), Some((7, 0)));
    assert_eq!(emergency_days(", days: 14, emergencyDays: 14"), Some((14, 14)));
}

#[test]
fn authorities_that_are_brought() {
    says!([
        with("certificatesConfiguration:\n  authorities:\n    ca: {certificate: a.pem}\n    etcd-ca: {source: provided, key: x.pem, certificate: ../a}\n    kubelet-ca: {source: provided}\n"),
        with("certificatesConfiguration:\n  authorities:\n    ca: {source: imported, passphraseParameter: /slipway/other/a}\n    etcd-ca: {source: imported, certificate: ca.pem}\n    etcdca: {}\n"),
    ].concat(), @r##"
    17:23 error own-ca at `certificatesConfiguration.authorities.ca.certificate`: nothing is read for ca: Slipway makes it
        write `source: imported` beside it, or take it out
    18:38 error own-ca at `certificatesConfiguration.authorities.etcd-ca.key`: the key of etcd-ca is not read: it is `provided`, and so is what it signs
        take it out, and keep the key where it is; or write `source: imported`
    18:58 error own-ca at `certificatesConfiguration.authorities.etcd-ca.certificate`: `../a` is no name of a file in `import/`
        write letters, digits, `-`, `_` and `.` alone, such as `etcd-ca.pem`
    19:26 error own-ca at `certificatesConfiguration.authorities.kubelet-ca.source`: kubelet-ca cannot come without its key: controllers sign kubelets with it, as they join
        write `imported`, or take it out and have Slipway make one, which signs kubelets and nothing else
    17:49 error own-ca at `certificatesConfiguration.authorities.ca.passphraseParameter`: `/slipway/other/a` is no parameter of this cluster's
        name an SSM SecureString below `/slipway/base/`, such as `/slipway/base/ca-passphrase`: others are not read
    18:46 error own-ca at `certificatesConfiguration.authorities.etcd-ca.certificate`: `ca.pem` is named twice, for ca and for etcd-ca
        give each authority a certificate and a key of its own: controllers hold the key of kubelet-ca, and no node may hold that of another
    19:5 error unknown-key at `certificatesConfiguration.authorities.etcdca`: `etcdca` is no key that is known here
        did you mean `etcd-ca`?
    "##);
}

#[test]
fn an_authority_that_is_brought_has_files_of_its_own_name() {
    let parsed = |text: &str| {
        crate::parse(format!("{}{text}", super::BASE).as_bytes(), None)
            .unwrap()
            .cluster
            .certificates
            .authorities
    };
    assert!(parsed("").is_empty());
    assert!(parsed("certificatesConfiguration: {authorities: {ca: {source: generated}}}\n").is_empty());
    let own = parsed(
        "certificatesConfiguration: {authorities: {etcd-ca: {source: imported, certificate: import/a.pem}}}\n",
    );
    assert_eq!(
        (own["etcd-ca"].certificate.as_str(), own["etcd-ca"].key.as_str()),
        ("a.pem", "etcd-ca-key.pem")
    );
}

#[test]
fn tags() {
    says!(with("stackTags:\n  aws:mine: x\n"), @r##"
    16:13 error tags at `stackTags.aws:mine`: `aws:mine` cannot be a tag's key
        write 1 to 128 characters, not beginning with `aws:`
    "##);
}

#[test]
fn names_in_certificates() {
    says!(with("kubernetes:\n  apiServer:\n    certSANs: [10.0.0.1, api.example.org, \"https://x\"]\n"), @r##"
    17:43 error dns-name at `kubernetes.apiServer.certSANs[2]`: `https://x` cannot stand in a certificate
        write a DNS name or an address, without scheme and port
    "##);
}

#[test]
fn a_cluster_without_workers() {
    says!(instead("worker:\n  nodePools:\n  - name: general\n", ""), @r##"
    0:0 warning no-pool at `worker.nodePools`: the cluster has no pool of workers
        add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one
    "##);
}

#[test]
fn target_groups() {
    says!(with("    targetGroup: {arns: [mine]}\n"), @r##"
    15:26 error arn-syntax at `worker.nodePools[0].targetGroup.arns[0]`: `mine` is no ARN of a target group
        write one such as `arn:aws:elasticloadbalancing:eu-west-1:111122223333:targetgroup/name/0123456789abcdef`
    "##);
}

#[test]
fn a_zone_in_which_no_subnet_lies() {
    says!(with("    availabilityZone: eu-west-1d\n"), @r##"
    15:5 warning translated-key at `worker.nodePools[0].availabilityZone`: `availabilityZone` is a key of kube-aws, taken in its modern form
        write `subnets` with the names of that zone's subnets
    15:23 error unknown-zone at `worker.nodePools[0].availabilityZone`: no subnet for nodes lies in `eu-west-1d`
        write `subnets` with the names of those that the pool is to stand in
    "##);
}

#[test]
fn two_pools_cannot_share_an_iam_role_by_their_names() {
    let pool = |name: &str, role: &str| format!("  - {{name: {name}, iam: {{role: {{name: {role}}}}}}}\n");
    let told = with(&format!("{}{}", pool("spot", "a-nodes"), pool("spot-a", "nodes")));
    assert!(told.contains("duplicate-name at `worker.nodePools[2].iam.role.name`"), "{told}");
    assert!(told.contains("two roles would be named `base-pool-spot-a-nodes`"), "{told}");
    assert_eq!(with(&format!("{}{}", pool("spot", "nodes"), pool("spot-a", "nodes"))), "");
}
