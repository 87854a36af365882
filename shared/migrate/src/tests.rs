//! What `migrate` makes of whole specs.

mod fates;
mod keys;

use super::*;

/// A spec with `keys`, and what it needs besides.
fn spec(keys: &str) -> String {
    let mut text = "clusterName: old\nregion: us-west-1\n".to_owned();
    text.push_str(keys);
    for (key, rest) in [
        ("kubernetesVersion:", "kubernetesVersion: \"1.37\"\n"),
        ("apiEndpoints:", "apiEndpoints: [{name: default, dnsName: api.example.com}]\n"),
        ("subnets:", "availabilityZone: us-west-1a\n"),
        ("worker:", "worker: {nodePools: [{name: a}]}\n"),
    ] {
        let given = text.lines().any(|line| line.starts_with(key));
        let legacy = key == "apiEndpoints:" && text.contains("externalDNSName:");
        if !given && !legacy {
            text.push_str(rest);
        }
    }
    text
}

const SUBNETS: &str = "subnets:\n- {name: a, availabilityZone: us-west-1a, instanceCIDR: 10.0.0.0/24}\n- {availabilityZone: us-west-1c, instanceCIDR: 10.0.1.0/24}\n";

/// Specs that are accepted with warnings as they stand: one or more for each key that is translated.
fn accepted() -> Vec<(&'static str, String)> {
    let pool = |keys: &str| spec(&format!("{SUBNETS}worker:\n  nodePools:\n  - name: a\n{keys}"));
    let balancer = |keys: &str| {
        spec(&format!("apiEndpoints:\n- name: default\n  dnsName: api.example.com\n  loadBalancer:\n{keys}"))
    };
    vec![
        ("externalDNSName", spec("externalDNSName: api.example.com\n")),
        ("hostedZoneId", spec("externalDNSName: api.example.com\nhostedZoneId: Z123\n")),
        (
            "createRecordSet",
            spec("externalDNSName: api.example.com\nhostedZoneId: Z123\ncreateRecordSet: false\n"),
        ),
        (
            "createRecordSet",
            spec("externalDNSName: api.example.com\nhostedZoneId: Z123\ncreateRecordSet: true\n"),
        ),
        ("vpcId", spec("vpcId: vpc-0abc1234\nvpcCIDR: 10.0.0.0/16\ninternetGatewayId: igw-0abc1234\n")),
        (
            "internetGatewayId",
            spec("vpcId: vpc-0abc1234\nvpcCIDR: 10.0.0.0/16\ninternetGatewayId: igw-0abc1234\n"),
        ),
        (
            "routeTableId",
            spec(&format!(
                "vpcId: vpc-0abc1234\nvpcCIDR: 10.0.0.0/16\nrouteTableId: rtb-0abc1234\n{SUBNETS}"
            )),
        ),
        (
            "mapPublicIPs",
            spec(&format!(
                "vpcId: vpc-0abc1234\nvpcCIDR: 10.0.0.0/16\nrouteTableId: rtb-0abc1234\nmapPublicIPs: false\napiEndpoints: [{{name: default, dnsName: api.example.com, loadBalancer: {{private: true}}}}]\n{SUBNETS}"
            )),
        ),
        ("mapPublicIPs", spec("mapPublicIPs: true\n")),
        ("routeTableId", spec("vpcId: vpc-0abc1234\nvpcCIDR: 10.0.0.0/16\nrouteTableId: rtb-0abc1234\n")),
        ("useCalico", spec("useCalico: true\n")),
        ("apiEndpoints[].loadBalancer.hostedZoneId", balancer("    hostedZoneId: Z123\n")),
        (
            "apiEndpoints[].loadBalancer.createRecordSet",
            balancer("    hostedZoneId: Z123\n    createRecordSet: false\n"),
        ),
        (
            "apiEndpoints[].loadBalancer.recordSetTTL",
            balancer("    hostedZone: {id: Z123}\n    recordSetTTL: 300\n"),
        ),
        ("etcd.memberIdentityProvider", spec("etcd: {memberIdentityProvider: eni}\n")),
        ("etcd.snapshot", spec("etcd: {count: 3, snapshot: {automated: true}}\n")),
        ("etcd.disasterRecovery", spec("etcd: {disasterRecovery: {automated: true}}\n")),
        ("worker.nodePools[].availabilityZone", pool("    availabilityZone: us-west-1c\n")),
        (
            "worker.nodePools[].availabilityZone",
            spec("worker: {nodePools: [{name: a, availabilityZone: us-west-1a}]}\n"),
        ),
        ("worker.nodePools[].spotFleet", pool("    spotFleet: {targetCapacity: 3}\n")),
        (
            "worker.nodePools[].spotFleet",
            pool(
                "    spotFleet:\n      targetCapacity: 5\n      launchSpecifications:\n      - {weightedCapacity: 1, instanceType: t2.medium}\n      - {weightedCapacity: 2, instanceType: m4.large}\n",
            ),
        ),
        ("worker.nodePools[].spotPrice", pool("    spotPrice: \"0.06\"\n    instanceType: m5.large\n")),
        (
            "worker.nodePools[].autoScalingGroup.mixedInstances",
            pool(
                "    autoScalingGroup:\n      minSize: 1\n      maxSize: 4\n      mixedInstances: {enabled: true, instanceTypes: [m5.large, m4.large], onDemandBaseCapacity: 1}\n",
            ),
        ),
        (
            "worker.nodePools[].autoScalingGroup.mixedInstances",
            pool(
                "    autoScalingGroup:\n      minSize: 1\n      maxSize: 4\n      mixedInstances: {enabled: false, instanceTypes: [m5.large, m4.large]}\n",
            ),
        ),
        (
            "worker.nodePools[].ephemeralImageStorage",
            pool("    instanceType: m5d.large\n    ephemeralImageStorage: {enabled: true}\n"),
        ),
        ("worker.nodePools[].ephemeralImageStorage", pool("    ephemeralImageStorage: {enabled: false}\n")),
        (
            "worker.nodePools[].autoScalingGroup.rollingUpdateMinInstancesInService",
            pool("    autoScalingGroup: {minSize: 1, maxSize: 3, rollingUpdateMinInstancesInService: 1}\n"),
        ),
        (
            "worker.nodePools[].autoScalingGroup.rollingUpdateMinInstanceInService",
            pool("    autoScalingGroup: {minSize: 1, maxSize: 3, rollingUpdateMinInstanceInService: 1}\n"),
        ),
    ]
}

#[test]
fn what_is_translated_means_the_same_and_needs_no_translation_any_more() {
    let examples = [
        include_str!("../../../examples/from-kube-aws.yaml"),
        include_str!("../../../examples/production.yaml"),
        include_str!("../../../examples/existing-vpc.yaml"),
    ];
    let texts = accepted().into_iter().map(|(_, text)| text).chain(examples.map(str::to_owned));
    for text in texts {
        let old = parse(text.as_bytes(), None).unwrap_or_else(|findings| panic!("{findings:#?}\n{text}"));
        let migrated = migrate(text.as_bytes()).unwrap_or_else(|findings| panic!("{findings:#?}\n{text}"));
        let new = parse(migrated.text.as_bytes(), None).expect("what is made is accepted");
        assert!(old.cluster == new.cluster, "another cluster:\n{text}\nbecame\n{}", migrated.text);
        let left: Vec<_> = new.warnings.iter().filter(|warning| warning.code == "translated-key").collect();
        assert!(left.is_empty(), "{left:#?}\n{}", migrated.text);
        // Once more changes nothing.
        let again = migrate(migrated.text.as_bytes()).expect("ours is taken too");
        assert_eq!((again.text, again.changes), (migrated.text, Vec::new()));
    }
}

#[test]
fn every_translated_key_is_rewritten_in_a_test() {
    let accepted = accepted();
    // Keys that the parser tells people to remove need no rule.
    let rewritten = legacy::TRANSLATED.iter().filter(|note| !note.help.starts_with("remove it"));
    let missing: Vec<&str> = rewritten
        .map(|note| note.pattern)
        .filter(|key| !accepted.iter().any(|(tested, _)| tested == key))
        .collect();
    assert!(missing.is_empty(), "give each a rule in src/rules.rs and a spec above: {missing:#?}");
    for (key, text) in &accepted {
        let warned = parse(text.as_bytes(), None).expect("it is accepted").warnings;
        assert!(warned.iter().any(|warning| pattern(&warning.path) == **key), "{key} is not in\n{text}");
    }
}

/// A whole `cluster.yaml` as kube-aws v0.16.4 has it, with nearly every key that it knows.
const FULL: &str = include_str!("testdata/kube-aws-full.yaml");

#[test]
fn a_full_spec_of_kube_aws_is_taken() {
    let migrated = migrate(FULL.as_bytes()).unwrap_or_else(|findings| panic!("{findings:#?}"));
    // What could be kept is kept, in its modern form.
    for piece in [
        "clusterName: mycluster",
        "kubernetesVersion: \"1.37\"",
        "maxSize: 10",
        "weightedCapacity: 2",
        "eipAllocationId: eipalloc-0123abcd",
        "kube-aws.coreos.com/role: worker",
        "my.host.example.com",
        "issuerURL: \"https://accounts.example.com\"",
        "enableAdmissionPlugins",
        "imageGCLowThresholdPercent: 50",
        "nodeStatusUpdateFrequency",
    ] {
        assert!(migrated.text.contains(piece), "{piece} is not in\n{}", migrated.text);
    }
    for gone in ["spotFleet", "amiId", "hyperkubeImage", "kube2Iam", "standard", "rollingUpdate", "v1.15"] {
        assert!(!migrated.text.contains(gone), "{gone} is still in\n{}", migrated.text);
    }
    // Nothing goes without a word: each key of the old spec is in the new one or in the report.
    let told =
        |path: &str| migrated.changes.iter().any(|change| change.path == path && change.message.len() > 10);
    for path in [
        "s3URI",
        "amiId",
        "kubernetesVersion",
        "worker.nodePools[1].spotFleet",
        "etcd.version",
        "hostOS",
        "kubeProxy.ipvsMode",
    ] {
        assert!(told(path), "{path} is not reported: {:#?}", migrated.changes);
    }
    let parsed = parse(migrated.text.as_bytes(), None).expect("what is made is accepted");
    assert_eq!(parsed.cluster.name, "mycluster");
    assert_eq!(parsed.cluster.controller.count, 3, "as many as its group had");
    assert_eq!(parsed.cluster.etcd.members.len(), 3);
    assert_eq!(parsed.cluster.pools[1].size.max, 10);
}

#[test]
fn the_range_of_an_existing_vpc_is_kube_awss_unless_given() {
    for vpc in ["vpcId: vpc-0abc1234\n", "vpc: {idFromStackOutput: shared-Vpc}\n"] {
        let keys = format!("{vpc}internetGatewayId: igw-0abc1234\n");
        let migrated =
            migrate(spec(&keys).as_bytes()).unwrap_or_else(|refused| panic!("{:#?}", refused.findings));
        assert!(migrated.text.contains("10.0.0.0/16"), "{vpc}{}", migrated.text);
        assert!(migrated.changes.iter().any(|change| change.path == "vpcCIDR"), "{vpc}");
    }
}

#[test]
fn what_only_a_person_can_put_right_is_said_and_nothing_made() {
    let findings = migrate(spec("podCIDR: 10.0.0.0/8\n").as_bytes()).expect_err("ranges overlap").findings;
    assert!(findings.iter().any(|finding| finding.path == "podCIDR"), "{findings:#?}");
    let findings = migrate(b"clusterName: [").expect_err("no YAML").findings;
    assert_eq!(findings.len(), 1);
}

#[test]
fn an_error_is_at_the_line_of_the_old_spec_that_it_is_about() {
    // The new spec has `kubernetes.kubelet`, and other lines.
    let text = spec("podCIDR: 10.0.0.0/8\n");
    let refused = migrate(text.as_bytes()).expect_err("ranges overlap");
    assert_eq!(refused.text, text);
    let lines: Vec<&str> = text.lines().collect();
    // A finding about a value that the old spec does not have is about the whole file.
    for finding in refused.findings.iter().filter(|finding| finding.line > 0) {
        let line = lines[usize::try_from(finding.line).unwrap() - 1];
        let key = finding.path.rsplit(['.', ']']).next().unwrap();
        assert!(line.contains(key), "{finding:#?}\n{text}");
        let (start, end) = finding.span.unwrap();
        assert!(line.contains(&text[start..end]), "{finding:#?}");
    }
    assert!(refused.findings.iter().any(|finding| (finding.path.as_str(), finding.line) == ("podCIDR", 3)));
}

#[test]
fn etcds_quota_in_bytes_becomes_one_in_gib() {
    for (bytes, gib) in [("8589934592", 8), ("2147483648", 2), ("2147483649", 3)] {
        let text = spec(&format!(
            "etcd:\n  dataVolume: {{size: 30}}\n  userSuppliedArgs: {{quotaBackendBytes: {bytes}}}\n"
        ));
        let migrated = migrate(text.as_bytes()).unwrap_or_else(|refused| panic!("{:#?}", refused.findings));
        let cluster = parse(migrated.text.as_bytes(), None).expect("what is made is accepted").cluster;
        assert_eq!(cluster.etcd.quota_gib, Some(gib), "{}", migrated.text);
        let said =
            migrated.changes.iter().find(|change| change.path == "etcd.userSuppliedArgs.quotaBackendBytes");
        assert!(said.unwrap().message.contains("etcd.quota"), "{:#?}", migrated.changes);
        assert!(!migrated.text.contains("userSuppliedArgs"), "{}", migrated.text);
    }
}

#[test]
fn a_feature_gate_that_the_new_release_does_not_have_is_dropped_and_said() {
    let keys =
        "kubernetes:\n  featureGates: {PodShareProcessNamespace: true, InPlacePodVerticalScaling: true}\n";
    let migrated = migrate(spec(keys).as_bytes()).unwrap_or_else(|refused| panic!("{:#?}", refused.findings));
    let gates = parse(migrated.text.as_bytes(), None).expect("what is made is accepted").cluster;
    let gates: Vec<&String> = gates.kubernetes.feature_gates.keys().collect();
    assert_eq!(gates, ["InPlacePodVerticalScaling"], "{}", migrated.text);
    let gone = "kubernetes.featureGates.PodShareProcessNamespace";
    let said = migrated.changes.iter().find(|change| change.path == gone).expect("it is said");
    assert_eq!(said.kind, ChangeKind::Dropped);
}

#[test]
fn an_empty_hosted_zone_is_no_zone() {
    for keys in [
        "externalDNSName: api.example.com\nhostedZoneId: \"\"\n".to_owned(),
        "apiEndpoints:\n- name: default\n  dnsName: api.example.com\n  loadBalancer: {hostedZoneId: \"\"}\n"
            .to_owned(),
    ] {
        let migrated =
            migrate(spec(&keys).as_bytes()).unwrap_or_else(|refused| panic!("{:#?}", refused.findings));
        assert!(!migrated.text.contains("ostedZone"), "{}", migrated.text);
        let said = migrated.changes.iter().any(|change| change.path.ends_with("hostedZoneId"));
        assert!(said, "{:#?}", migrated.changes);
    }
}

#[test]
fn texts_of_all_kinds_are_written_as_they_were() {
    for text in
        ["a\nb\n", "a\nb", " a\nb", "a\n\nb\n", "a\n\n", "true", "0600", "{x}", "a: b", "#", "é\t", ""]
    {
        let item = Item::map([
            ("a", Item::quoted(text)),
            ("b", Item::List(vec![Item::map([("c", Item::quoted(text))])])),
        ]);
        let mut written = String::new();
        item.write(0, &mut written);
        let read = Item::from(&read_tree(written.as_bytes()).expect("it is YAML"));
        let value = |item: &Item| item.at("a").and_then(Item::text).map(str::to_owned);
        assert_eq!(value(&read), value(&item), "{written}");
    }
}
