//! What is no YAML, no known key, or of the wrong type.

use std::fmt::Write as _;

use super::*;

/// The billion laughs.
fn bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        writeln!(text, "a{level}: &a{level} [{aliases}]").unwrap();
    }
    text
}

#[test]
fn an_empty_file() {
    says!(told_of(""), @r##"
    0:0 error empty-file at ``: the spec is empty
        write one with `slipway init`, or start from examples/minimal.yaml
    "##);
}

#[test]
fn only_comments() {
    says!(told_of("# nothing\n"), @r##"
    0:0 error empty-file at ``: the spec is empty
        write one with `slipway init`, or start from examples/minimal.yaml
    "##);
}

#[test]
fn a_file_that_is_no_group_of_keys() {
    says!(told_of("just text\n"), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    0:0 error missing-key at `subnets`: the cluster has no subnet
        add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one
    0:0 warning no-pool at `worker.nodePools`: the cluster has no pool of workers
        add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one
    1:1 error wrong-type at ``: the spec must be a group of keys, but is `just text`
        write its keys below it, indented by two spaces, as `key: value`
    "##);
}

#[test]
fn a_list_instead_of_keys() {
    says!(told_of("- clusterName: a\n"), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    0:0 error missing-key at `subnets`: the cluster has no subnet
        add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one
    0:0 warning no-pool at `worker.nodePools`: the cluster has no pool of workers
        add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one
    1:1 error wrong-type at ``: the spec must be a group of keys, but is a list
        write its keys below it, indented by two spaces, as `key: value`
    "##);
}

#[test]
fn not_yaml() {
    says!(told_of("clusterName: a\nregion: [eu-west-1\nworker: }\n"), @r##"
    3:7 error yaml-syntax at ``: this is not YAML: illegal placement of ':' indicator
        check the indentation, the colons and the quotes here and on the line before
    "##);
}

#[test]
fn a_colon_too_many() {
    says!(told_of("clusterName: a\nregion: eu: west\n"), @r##"
    2:11 error yaml-syntax at ``: this is not YAML: mapping values are not allowed in this context
        check the indentation, the colons and the quotes here and on the line before
    "##);
}

#[test]
fn bytes_that_are_no_text() {
    says!(told_of(b"clusterName: a\nregion: \xc3\x28\n"), @r##"
    2:9 error not-text at ``: the spec is no UTF-8 text
        upload the cluster.yaml itself, saved as UTF-8: this is something else
    "##);
}

#[test]
fn utf_16() {
    says!(told_of(b"\xff\xfec\x00l\x00"), @r##"
    1:1 error not-text at ``: the spec is no UTF-8 text
        it looks like UTF-16: save it as UTF-8
    "##);
}

#[test]
fn an_elf_binary() {
    says!(told_of(b"\x7fELF\x02\x01\x01\x00"), @r##"
    1:1 error not-text at ``: there is a control character (U+007F) in the text
        remove it; if the file is full of them, it is no text at all
    "##);
}

#[test]
fn a_zip() {
    says!(told_of(b"PK\x03\x04\x14\x00\x08\x00"), @r##"
    1:3 error not-text at ``: there is a control character (U+0003) in the text
        remove it; if the file is full of them, it is no text at all
    "##);
}

#[test]
fn duplicate_keys_all_at_once() {
    says!(told_of("clusterName: a\nregion: eu-west-1\nclusterName: b\netcd:\n  count: 1\n  count: 3\n"), @r##"
    3:1 error duplicate-key at ``: `clusterName` is given twice
        it stands already on line 1: keep one of the two
    6:3 error duplicate-key at ``: `count` is given twice
        it stands already on line 5: keep one of the two
    "##);
}

#[test]
fn a_tab_as_indentation() {
    says!(told_of("clusterName: a\netcd:\n\tcount: 3\n"), @r##"
    3:1 error yaml-tab at ``: a tab is used for indentation
        YAML indents with spaces only: replace the tab by spaces
    "##);
}

#[test]
fn a_tab_after_spaces() {
    says!(told_of("etcd:\n  rootVolume:\n  \tsize: 3\n"), @r##"
    3:3 error yaml-tab at ``: a tab is used for indentation
        YAML indents with spaces only: replace the tab by spaces
    "##);
}

#[test]
fn unknown_keys_at_depths_one_three_and_five() {
    says!(with("clusterNam: b\netcd: {dataVolume: {sizes: 10}}\naddons: {clusterAutoscaler: {enabled: true}}\ncontroller: {iam: {role: {managedPolicies: [{arm: x}]}}}\n"), @r##"
    15:1 error unknown-key at `clusterNam`: `clusterNam` is no key that is known here
        did you mean `clusterName`?
    16:21 error unknown-key at `etcd.dataVolume.sizes`: `sizes` is no key that is known here
        did you mean `size`?
    18:45 error missing-key at `controller.iam.role.managedPolicies[0].arn`: `controller.iam.role.managedPolicies[0]` lacks `arn`
        add `arn`: The policy's ARN.
    18:46 error unknown-key at `controller.iam.role.managedPolicies[0].arm`: `arm` is no key that is known here
        did you mean `arn`?
    "##);
}

#[test]
fn an_unknown_key_that_is_like_none() {
    says!(with("zebra: 1\nrollout:\n  zebra: 1\n"), @r##"
    15:1 error unknown-key at `zebra`: `zebra` is no key that is known here
        remove it, or look it up in the published schema
    17:3 error unknown-key at `rollout.zebra`: `zebra` is no key that is known here
        remove it; the keys known here are `approval`, `drain`, `failureBudget`, `maxUnavailable`, `surge`, `windows`
    "##);
}

#[test]
fn a_key_in_the_wrong_place() {
    says!(with("nodePools: []\n"), @r##"
    15:1 error unknown-key at `nodePools`: `nodePools` is no key that is known here
        `worker.nodePools` is where that key belongs
    "##);
}

#[test]
fn wrong_types() {
    says!(with("controller:\n  count: three\netcd: [1]\naddons:\n  metricsServer:\n    enabled: yes\nstackTags: text\nsshAuthorizedKeys: ssh-rsa\nkeyName: {a: b}\n"), @r##"
    16:10 error wrong-type at `controller.count`: `controller.count` must be a whole number, but is `three`
        write digits only, without quotes
    17:7 error wrong-type at `etcd`: `etcd` must be a group of keys, but is a list
        write its keys below it, indented by two spaces, as `key: value`
    20:14 error wrong-type at `addons.metricsServer.enabled`: `addons.metricsServer.enabled` must be `true` or `false`, but is `yes`
        write `true` or `false`, without quotes
    21:12 error wrong-type at `stackTags`: `stackTags` must be a group of keys, but is `text`
        write its keys below it, indented by two spaces, as `key: value`
    22:20 error wrong-type at `sshAuthorizedKeys`: `sshAuthorizedKeys` must be a list, but is `ssh-rsa`
        begin each item with `- ` on a line of its own
    23:10 error wrong-type at `keyName`: `keyName` must be text, but is a group of keys
        write one value behind the colon; put text with `{`, `[` or `: ` into quotes
    "##);
}

#[test]
fn a_number_in_quotes_and_one_out_of_range() {
    says!(with("etcd:\n  count: \"3\"\ntlsCertDurationDays: 0\ncontroller:\n  count: -1\n"), @r##"
    16:10 error wrong-type at `etcd.count`: `etcd.count` must be a whole number, but is the text "3"
        write digits only, without quotes
    17:22 error out-of-range at `tlsCertDurationDays`: `tlsCertDurationDays` is 0
        write a number from 1 to 36500
    19:10 error out-of-range at `controller.count`: `controller.count` is -1
        write a number from 0 to 1000
    "##);
}

#[test]
fn words_that_an_enumeration_lacks() {
    says!(with("rollout:\n  approval: automatic\ncertificatesConfiguration:\n  keyAlgorithm: ECDSA-P265\n"), @r##"
    16:13 error unknown-value at `rollout.approval`: `automatic` is none of `auto`, `manual`
        did you mean `auto`?
    18:17 error unknown-value at `certificatesConfiguration.keyAlgorithm`: `ECDSA-P265` is none of `ECDSA-P256`, `ECDSA-P384`, `RSA-2048`, `RSA-3072`, `RSA-4096`
        did you mean `ECDSA-P256`?
    "##);
}

#[test]
fn values_that_were_left_out() {
    says!(told_of("clusterName:\nregion: eu-west-1\nworker:\netcd:\nkubernetesVersion: 1.37\nsubnets:\n- \n- availabilityZone:\n"), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    1:1 error empty-value at `clusterName`: `clusterName` has no value
        write a value behind the colon, or remove the line
    3:1 warning no-pool at `worker.nodePools`: the cluster has no pool of workers
        add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one
    7:3 error empty-value at `subnets[0]`: this item has no value
        write a value behind the dash, or remove the line
    8:3 error missing-key at `subnets[1]`: the subnet has neither a range nor an id
        add `instanceCIDR` for a subnet to be made, or `id` for one that exists
    8:3 error empty-value at `subnets[1].availabilityZone`: `availabilityZone` has no value
        write a value behind the colon, or remove the line
    "##);
}

#[test]
fn missing_keys() {
    says!(told_of("worker:\n  nodePools:\n  - count: 1\n    taints:\n    - key: a\n"), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    0:0 error missing-key at `clusterName`: the spec lacks `clusterName`
        add `clusterName`: The cluster's name: a letter, then letters, digits and hyphens; also the folder of the spec and the beginning of each stack's name.
    0:0 error missing-key at `kubernetesVersion`: the spec lacks `kubernetesVersion`
        add `kubernetesVersion`: The Kubernetes release, such as `1.37` (newest patch, pinned once) or `1.37.2`.
    0:0 error missing-key at `region`: the spec lacks `region`
        add `region`: The AWS region, such as `eu-west-1`.
    0:0 error missing-key at `subnets`: the cluster has no subnet
        add `subnets`, each with `availabilityZone` and `instanceCIDR`, or `availabilityZone` for a single one
    3:5 error missing-key at `worker.nodePools[0].name`: `worker.nodePools[0]` lacks `name`
        add `name`: The pool's name, unique in the cluster and the end of its stack's name.
    5:7 error missing-key at `worker.nodePools[0].taints[0].effect`: `worker.nodePools[0].taints[0]` lacks `effect`
        add `effect`: What the taint does to pods that do not tolerate it.
    "##);
}

#[test]
fn ten_megabytes() {
    says!(told_of("a".repeat(10_000_000)), @r##"
    0:0 error too-large at ``: the spec has 10000000 bytes; 262144 are read at most
        upload the cluster.yaml itself: nobody needs so many keys
    "##);
}

#[test]
fn an_anchor_bomb() {
    says!(told_of(bomb()), @r##"
    5:10 error too-many-values at ``: with its aliases expanded the spec has more than 20000 values
        nobody needs so many: look for anchors that repeat one another (`&a`, `*a`)
    "##);
}

#[test]
fn deep_nesting_in_brackets() {
    says!(told_of(format!("a: {}", "[".repeat(100_000))), @r##"
    1:259 error too-deep at ``: values are nested more than 32 levels deep
        no key lies that deep: check the indentation and the brackets
    "##);
}

#[test]
fn deep_nesting_by_indentation() {
    says!(told_of((0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>()), @r##"
    33:33 error too-deep at ``: values are nested more than 32 levels deep
        no key lies that deep: check the indentation and the brackets
    "##);
}

#[test]
fn several_documents() {
    says!(told_of("clusterName: a\n---\nclusterName: b\n"), @r##"
    2:1 error several-documents at ``: there is a second YAML document here
        one file describes one cluster: put each into clusters/<name>/cluster.yaml of its own
    "##);
}

#[test]
fn an_alias_inside_its_own_anchor() {
    says!(told_of("subnets: &a\n- *a\n"), @r##"
    2:3 error yaml-alias at ``: this alias stands inside its own anchor
        write the value out instead
    "##);
}

#[test]
fn an_unknown_anchor() {
    says!(told_of("clusterName: *name\n"), @r##"
    1:14 error yaml-alias at ``: no anchor of that name stands before this alias
        define it first (`&name`), or put text that begins with `*` into quotes
    "##);
}

#[test]
fn a_tag_of_cloudformation() {
    says!(told_of("clusterName: a\nregion: !Ref AWS::Region\n"), @r##"
    2:14 error yaml-tag at ``: the tag `!Ref` means nothing here
        a cluster.yaml holds plain values; CloudFormation functions such as !Ref belong into templates
    "##);
}

#[test]
fn a_key_that_is_a_list() {
    says!(told_of("{a: b}: c\n[x]: y\n"), @r##"
    1:1 error yaml-key at ``: a key must be a word, not a list or a group
        an unquoted `{` or `[` begins one: put text that has them into quotes
    2:1 error yaml-key at ``: a key must be a word, not a list or a group
        an unquoted `{` or `[` begins one: put text that has them into quotes
    "##);
}

#[test]
fn a_merge_of_what_is_no_group() {
    says!(told_of("etcd:\n  <<: 5\n"), @r##"
    2:3 error yaml-merge at ``: `<<` merges groups of keys, and this is none
        refer to a group of keys: `<<: *anchor`
    "##);
}

#[test]
fn anchors_aliases_and_merges_that_are_honest() {
    let text = BASE.replacen("worker:", "controller: {nodeLabels: &labels {a: b}}\nworker:", 1);
    let accepted =
        parse(format!("{text}    nodeLabels:\n      <<: *labels\n      c: d\n").as_bytes(), None).unwrap();
    let labels: Vec<_> =
        accepted.cluster.pools[0].node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["a=b", "c=d"]);
}

#[test]
fn line_ends_of_windows_and_a_byte_order_mark_change_nothing() {
    let plain = parse(BASE.as_bytes(), None).unwrap();
    let windows = parse(format!("\u{feff}{}", BASE.replace('\n', "\r\n")).as_bytes(), None).unwrap();
    assert_eq!((plain.cluster, plain.warnings), (windows.cluster, windows.warnings));
}

#[test]
fn columns_count_letters_and_spans_count_bytes() {
    let text = BASE.replacen("worker:", "stackTags: {é: ok, \"aws:é\": x}\nworker:", 1);
    let findings = findings(&text);
    assert_eq!((findings[0].line, findings[0].column), (12, 29), "{findings:?}");
    let (start, end) = findings[0].span.unwrap();
    assert_eq!(&text[start..end], "x");
}

#[test]
fn a_version_without_quotes_keeps_its_zero() {
    assert!(instead("\"1.37\"", "1.40").contains("Kubernetes 1.40 is"));
}
