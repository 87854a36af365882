//! What is no YAML, no known key, or of the wrong type.

use super::*;

#[test]
fn an_empty_file() {
    says!(findings_in(""), @r##"
    0:0 error empty-file at ``: the spec is empty
        write one with `slipway init`, or start from examples/minimal.yaml
    "##);
}

#[test]
fn bytes_that_are_no_text() {
    says!(findings_in(b"clusterName: a\nregion: \xc3\x28\n"), @r##"
    2:9 error not-text at ``: the spec is not a UTF-8 text
        upload the cluster.yaml itself, saved as UTF-8: this is something else
    "##);
}

#[test]
fn utf_16() {
    says!(findings_in(b"\xff\xfec\x00l\x00"), @r##"
    1:1 error not-text at ``: the spec is not a UTF-8 text
        it looks like UTF-16: save it as UTF-8
    "##);
}

#[test]
fn an_elf_binary() {
    says!(findings_in(b"\x7fELF\x02\x01\x01\x00"), @r##"
    1:1 error not-text at ``: there is a control character (U+007F) in the text
        remove it; if the file is full of them, it is not a text at all
    "##);
}

#[test]
fn a_zip() {
    says!(findings_in(b"PK\x03\x04\x14\x00\x08\x00"), @r##"
    1:3 error not-text at ``: there is a control character (U+0003) in the text
        remove it; if the file is full of them, it is not a text at all
    "##);
}

#[test]
fn values_that_were_left_out() {
    says!(findings_in("clusterName:\nregion: eu-west-1\nworker:\netcd:\nkubernetesVersion: 1.37\nsubnets:\n- \n- availabilityZone:\n"), @r##"
    0:0 error missing-key at `apiEndpoints`: nothing says under which name the API is reached
        add `apiEndpoints: [{name: default, dnsName: api.example.com}]`
    1:1 error empty-value at `clusterName`: `clusterName` has no value
        write a value after the colon, or remove the line
    3:1 warning no-pool at `worker.nodePools`: the cluster has no pool of workers
        add `worker: {nodePools: [{name: general, count: 2}]}`, unless pods are to wait for one
    7:3 error empty-value at `subnets[0]`: this item has no value
        write a value after the dash, or remove the line
    8:3 error missing-key at `subnets[1]`: the subnet has neither a range nor an id
        add `instanceCIDR` for a subnet to be made, or `id` for one that exists
    8:3 error empty-value at `subnets[1].availabilityZone`: `availabilityZone` has no value
        write a value after the colon, or remove the line
    "##);
}

#[test]
fn ten_megabytes() {
    says!(findings_in("a".repeat(10_000_000)), @r##"
    0:0 error too-large at ``: the spec has 10000000 bytes; 262144 are read at most
        upload the cluster.yaml itself: nobody needs so many keys
    "##);
}

#[test]
fn deep_nesting_in_brackets() {
    says!(findings_in(format!("a: {}", "[".repeat(100_000))), @r##"
    1:259 error too-deep at ``: values are nested more than 32 levels deep
        no key lies that deep: check the indentation and the brackets
    "##);
}

#[test]
fn deep_nesting_by_indentation() {
    says!(findings_in((0..300).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect::<String>()), @r##"
    33:33 error too-deep at ``: values are nested more than 32 levels deep
        no key lies that deep: check the indentation and the brackets
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
    assert_eq!((findings[0].line, findings[0].column), (14, 29), "{findings:?}");
    let (start, end) = findings[0].span.unwrap();
    assert_eq!(&text[start..end], "x");
}

#[test]
fn a_version_without_quotes_keeps_its_zero() {
    assert!(instead("\"1.37\"", "1.40").contains("Kubernetes 1.40 is"));
}
