//! Patches as they are written: every finding has its file, its place and its help.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn one(text: &str) -> Result<Vec<Patch>, Vec<Diagnostic>> {
    parse(&BTreeMap::from([("10-a.yaml".to_owned(), text.as_bytes().to_vec())]))
}

/// The findings as lines: place, code, message, help.
fn findings_text(text: &str) -> String {
    let findings = one(text).unwrap_err();
    let line = |found: &Diagnostic| {
        format!("{} {found}\n    {}\n", found.code, found.help.as_deref().unwrap_or_default())
    };
    findings.iter().map(line).collect()
}

fn merged(text: &str) -> Value {
    match one(text).unwrap().remove(0).change {
        Change::Merge(value, _) => value,
        Change::Operations(operations) => panic!("{operations:?}"),
    }
}

#[test]
fn values_are_what_yaml_says_and_quotes_make_text() {
    let value = merged(
        "target: { stack: network }\nmerge:\n  a: 1\n  b: -2.5\n  c: true\n  d: null\n  e: '1'\n  f: yes\n  \
         g: 2012-10-17\n  h: [1, \"true\", {x: ~}]\n  i: 10.0.0.0/16\n  j: |\n    1\n",
    );
    assert_eq!(
        value,
        serde_json::json!({
            "a": 1, "b": -2.5, "c": true, "d": null, "e": "1", "f": "yes", "g": "2012-10-17",
            "h": [1, "true", {"x": null}], "i": "10.0.0.0/16", "j": "1\n",
        })
    );
}

#[test]
fn a_number_that_json_would_write_otherwise_is_asked_back() {
    for text in
        ["012345678901", "1.30", "1e3", "+5", "0x1F", "0o17", ".5", "-0", "123456789012345678901234567890"]
    {
        let found = one(&format!("target: {{ stack: network }}\nmerge:\n  a: {text}\n")).unwrap_err();
        assert_eq!(
            (found[0].code.as_str(), found[0].line, found[0].column),
            ("ambiguous-number", 3, 6),
            "{text}"
        );
    }
    for text in ["1.2.3", "1e", "0xg", "e3", "10.0.0.1", "ami-1", "1_000"] {
        assert_eq!(merged(&format!("target: {{ stack: network }}\nmerge:\n  a: {text}\n"))["a"], text);
    }
}

#[test]
fn all_findings_of_all_files_are_told_at_once() {
    let files = BTreeMap::from([
        ("20-b.yaml".to_owned(), b"target: {nod: controller}\nmerge: {a: 1}\n".to_vec()),
        ("10-a.yaml".to_owned(), b"target: {stack: etcd}\nopps: []\n".to_vec()),
    ]);
    let found: Vec<String> =
        parse(&files).unwrap_err().iter().map(|found| format!("{} {found}", found.code)).collect();
    insta::assert_snapshot!(found.join("\n"));
}

#[test]
fn operations_are_checked_one_by_one() {
    insta::assert_snapshot!(findings_text(
        "target:\n  node: [controller, 7, {a: b}]\nops:\n  - op: ad\n    path: /a\n    value: 1\n  - op: add\n    path: a.b\n    value: 1\n  - op: remove\n    path: /a\n    value: 1\n  - op: add\n    path: /a\n  - op: move\n    path: /a~b\n    form: /b\n  - remove\n"
    ));
}

#[test]
fn what_is_no_patch_at_all_says_what_to_do() {
    let cases = [
        "",
        "- a\n",
        "target: {stack: network}\n",
        "target: {stack: network, node: etcd}\nmerge: {a: 1}\n",
        "target: {}\nmerge: {a: 1}\n",
        "target: {stack: []}\nmerge: {a: 1}\n",
        "target: {stack: network}\nmerge: {a: 1}\nops: [{op: remove, path: /a}]\n",
        "target: {stack: network}\nmerge: 1\n",
        "target: {stack: network}\nmerge: {}\n",
        "target: {stack: network}\nops: []\n",
        "target: {stack: network}\nmerge:\n  a: !Ref Group\n",
        "target: {stack: network}\nmerge:\n\ta: 1\n",
        "target: {stack: network}\nmerge: {a: 1}\n---\ntarget: {stack: etcd}\n",
    ];
    let told: Vec<String> = cases.iter().map(|text| format!("{text:?}\n{}", findings_text(text))).collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn p9_key_material_is_refused_before_anything_is_quoted() {
    use base64::Engine as _;
    let pem = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIGhunter2\n-----END EC PRIVATE KEY-----\n";
    let encoded = |before: &str| base64::engine::general_purpose::STANDARD.encode(format!("{before}{pem}"));
    for secret in [
        pem.replace('\n', "\\n"),
        encoded(""),
        encoded("x"),
        encoded("xx"),
        "{{resolve:secretsmanager:db:SecretString:password}}".to_owned(),
        "{{resolve:ssm-secure:/db/password:1}}".to_owned(),
    ] {
        let text = format!("target: {{stack: network}}\nunknown: 1\nmerge:\n  a: \"{secret}\"\n");
        let found = one(&text).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].code.as_str(), found[0].line, found[0].span), ("secret-in-patch", 4, None));
        assert!(!format!("{found:?}").contains("hunter2") && !format!("{found:?}").contains(&secret));
    }
    // YAML's escapes keep it out of the text, and not out of the value: in a value, a key, a list, behind an alias.
    for escaped in [
        r#"merge: {a: "{{resolve:secret\x73manager:db:SecretString:password}}"}"#,
        r#"merge: {a: "{{res\u006flve:ssm-secure:/db/password:1}}"}"#,
        r#"merge: {"{{resolve:secrets\x6danager:db}}": a}"#,
        r#"merge: {a: ["x", "-----BEGIN PRIVATE\x20KEY-----hunter2"]}"#,
        r#"ops: [{op: add, path: /a, value: {b: &b "{{resolve\x3asecretsmanager:db}}", c: *b}}]"#,
        "merge:\n  a: \"{{resolve:secrets\\\n    manager:db}}\"",
    ] {
        let text = format!("target: {{stack: network}}\n{escaped}\n");
        let found = one(&text).expect_err(escaped);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].code.as_str(), found[0].span), ("secret-in-patch", None), "{escaped}");
        assert!(!format!("{found:?}").contains("hunter2"));
    }
    // A certificate is no secret.
    let certificate = pem.replace("EC PRIVATE KEY", "CERTIFICATE").replace('\n', "\\n");
    one(&format!("target: {{stack: network}}\nmerge: {{a: \"{certificate}\"}}\n")).unwrap();
}

#[test]
fn count_and_size_are_bounded() {
    let text = b"target: {stack: network}\nmerge: {a: 1}\n".to_vec();
    let files = |count: usize| (0..count).map(|number| (format!("{number:03}.yaml"), text.clone())).collect();
    assert_eq!(parse(&files(MOST_FILES)).unwrap().len(), MOST_FILES);
    let found = parse(&files(MOST_FILES + 1)).unwrap_err();
    assert!(found[0].message.contains("51") && found[0].message.contains("50"), "{found:?}");
    let long =
        |length: usize| format!("target: {{stack: network}}\nmerge: {{a: 1}}\n{}", "#".repeat(length - 39));
    assert_eq!(long(MOST_BYTES).len(), MOST_BYTES);
    one(&long(MOST_BYTES)).unwrap();
    let found = one(&long(MOST_BYTES + 1)).unwrap_err();
    assert_eq!(found, [too_large("10-a.yaml", MOST_BYTES + 1)]);
    assert_eq!(found[0].to_string(), "patches/10-a.yaml: the patch has 65537 bytes; 65536 are read at most");
}

#[test]
fn any_bytes_get_an_answer() {
    use proptest::prelude::*;
    proptest!(ProptestConfig::with_cases(64), |(bytes in proptest::collection::vec(any::<u8>(), 0..400))| {
        let _ = parse(&BTreeMap::from([("a.yaml".to_owned(), bytes)]));
    });
}
