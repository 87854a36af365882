//! What findings must not say: values as long as the spec likes, and keys that were pasted to the wrong place.

use super::super::{Diagnostic, parse};

const BASE: &str = "clusterName: base\nregion: eu-west-1\nkubernetesVersion: \"1.37\"\n";
/// Made up: no key, but the shape of one.
const BODY: &str = "MHcCAQEEIBkg4LVWM9nuwNSk3yByxZpYRTBnVJk5oTq0J9rhzxLhoAoGCCqGSM49";

fn findings(text: &str) -> Vec<Diagnostic> {
    parse(text.as_bytes(), None).unwrap_err()
}

/// As it goes to the bus and into `status.json`.
fn sent(findings: &[Diagnostic]) -> String {
    serde_json::to_string(findings).unwrap()
}

fn pem() -> String {
    format!("-----BEGIN EC PRIVATE KEY-----\\n{BODY}\\n{BODY}\\n-----END EC PRIVATE KEY-----\\n")
}

#[test]
fn a_value_of_100_kb_is_clipped() {
    let long = "x".repeat(100_000);
    for spec in [
        format!("{BASE}controller:\n  count: {long}\n"),
        format!("{BASE}controller:\n  count: \"{long}\"\n"),
        format!("{BASE}vpcCIDR: {long}\n"),
        format!("{BASE}{long}: 1\n").replace(&long, &long[..1000]),
        format!("{BASE}controller:\n  ? {long}\n  : 1\n"),
        format!("{BASE}region: {long}\n").replacen("region: eu-west-1\n", "", 1),
        format!("{BASE}a: !{long} 1\n"),
    ] {
        let findings = findings(&spec);
        assert!(!findings.is_empty());
        for found in &findings {
            assert!(!found.message.contains(&long[..100]), "{}", found.message);
            assert!(sent(std::slice::from_ref(found)).len() < 1000, "{found:?}");
        }
    }
}

#[test]
fn p9_a_pasted_private_key_is_never_repeated() {
    let (quoted, indented) = (pem(), pem().replace("\\n", "\n    "));
    for (spec, code) in [
        // Where a number is wanted.
        (format!("{BASE}controller:\n  count: \"{quoted}\"\n"), "wrong-type"),
        (format!("{BASE}controller:\n  count: |\n    {indented}\n"), "wrong-type"),
        (format!("{BASE}controller:\n  count: {BODY}\n"), "wrong-type"),
        // Under a key that is not known, and where a word or a range is wanted.
        (format!("{BASE}privateKey: \"{quoted}\"\n"), "unknown-key"),
        (format!("{BASE}rollout:\n  approval: \"{quoted}\"\n"), "unknown-value"),
        (format!("{BASE}vpcCIDR: \"{quoted}\"\n"), "cidr-syntax"),
        (format!("{BASE}vpcCIDR: \"`{quoted}`\"\n"), "cidr-syntax"),
        (format!("{BASE}sshAuthorizedKeys:\n- \"{quoted}\"\n"), "ssh-key"),
        // As a key, at the top and further down, and without a value.
        (format!("{BASE}\"{quoted}\": 1\n"), "unknown-key"),
        (format!("{BASE}controller:\n  \"{quoted}\": {{}}\n"), "unknown-key"),
        (format!("{BASE}{BODY}: 1\n{BODY}: 2\n"), "duplicate-key"),
        (format!("{BASE}stackTags:\n  \"{quoted}\":\n"), "empty-value"),
        // As it comes out of the file, without quotes.
        (format!("{BASE}controller:\n  count:\n{}", pem().replace("\\n", "\n")), "yaml-syntax"),
    ] {
        let findings = findings(&spec);
        let sent = sent(&findings);
        assert!(findings.iter().any(|found| found.code == code), "no {code}: {sent}");
        for part in ["PRIVATE KEY-----", &BODY[..20], &BODY[40..]] {
            assert!(!sent.contains(part), "{code} repeats {part}: {sent}");
        }
    }
}

#[test]
fn fifty_findings_with_the_longest_names_stay_far_below_an_events_256_kib() {
    // A letter of four bytes, and one that JSON escapes.
    for letter in ["\u{1F680}", "\\\""] {
        let keys: String =
            (0..50).map(|number| format!("  \"{number}{}\": 1\n", letter.repeat(400))).collect();
        let findings = findings(&format!("{BASE}controller:\n{keys}"));
        let unknown = findings.iter().filter(|found| found.code == "unknown-key").count();
        assert_eq!(unknown, 50);
        assert!(sent(&findings).len() < 64 * 1024, "{}", sent(&findings).len());
    }
}
