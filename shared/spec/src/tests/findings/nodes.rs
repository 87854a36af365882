//! Machines, and the keys of kube-aws.

use super::*;

#[test]
fn the_example_of_kube_aws_keys() {
    says!(findings_in(include_str!("../../../../../examples/from-kube-aws.yaml")), @r##"
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
        assert_eq!(findings_in(&text), "", "{text}");
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
fn an_etcd_role_name_leaves_room_for_the_members_number() {
    let with_name =
        |length: usize| with(&format!("etcd: {{iam: {{role: {{name: {}}}}}}}\n", "r".repeat(length)));
    assert_eq!(with_name(64 - "base-etcd-".len() - "-0".len()), "");
    assert!(with_name(64 - "base-etcd-".len() - "-0".len() + 1).contains("role-name"));
}

#[test]
fn p13_no_node_wears_a_profile_that_slipway_made_for_another_cluster() {
    says!(with("controller:\n  iam:\n    instanceProfile: {arn: 'arn:aws:iam::111122223333:instance-profile/slipway/prod-controller'}\netcd:\n  iam:\n    instanceProfile: {arn: 'arn:aws:iam::111122223333:instance-profile/slipway-of-ours'}\n"), @r##"
    19:28 error foreign-profile at `controller.iam.instanceProfile.arn`: `arn:aws:iam::111122223333:instance-profile/slipway/prod-controller` is a profile that Slipway made: it has the permissions of another role or cluster
        name a profile of your own, or leave `instanceProfile` out: the role's own is made for it
    "##);
}

/// EC2 may find a profile by the last part of its ARN, as names are unique in an account whatever their paths.
#[test]
fn p13_no_node_wears_a_profile_by_the_name_that_cloudformation_gave_it() {
    let of = |rest: &str| {
        with(&format!(
            "controller:\n  iam:\n    instanceProfile: {{arn: 'arn:aws:iam::111122223333:instance-profile/{rest}'}}\n"
        ))
    };
    for name in [
        "prod-control-plane-ControllerProfile-1A2B3C4D5E6F",
        "ours/prod-control-plane-ControllerProfile-1A2B3C4D5E6F",
        "prod-etcd-EtcdProfile0-1A2B3C4D5E6F",
        "prod-pool-general-a-WorkerProfile-1A2B3C4D5E6F",
        "PROD-pool-general-workerprofile-1a2b3c4d5e6f",
        "slipway/of-ours",
    ] {
        assert!(of(name).contains("error foreign-profile at"), "{name}: {}", of(name));
    }
    for path in ["/slipway/prod-controller", "ours//nodes", "ours/", ""] {
        assert!(of(path).contains("error arn-syntax at"), "{path}: {}", of(path));
    }
    for own in
        ["nodes", "ours/nodes", "shop-WorkerProfile-1A2B3C4D5E6F", "shop-control-plane-ControllerProfile"]
    {
        assert_eq!(of(own), "", "{own}");
    }
}

#[test]
fn days_of_certificates() {
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
fn two_pools_cannot_share_an_iam_role_by_their_names() {
    let pool = |name: &str, role: &str| format!("  - {{name: {name}, iam: {{role: {{name: {role}}}}}}}\n");
    let told = with(&format!("{}{}", pool("spot", "a-nodes"), pool("spot-a", "nodes")));
    assert!(told.contains("duplicate-name at `worker.nodePools[2].iam.role.name`"), "{told}");
    assert!(told.contains("two roles would be named `base-pool-spot-a-nodes`"), "{told}");
    assert_eq!(with(&format!("{}{}", pool("spot", "nodes"), pool("spot-a", "nodes"))), "");
}
