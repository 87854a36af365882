//! Each key of kube-aws has a fate here: taken under its name, taken in another form, or refused by name with what to do.

use slipway_spec::{legacy, parse, schema};

use crate::page::{Fate, fate, keys};

#[test]
fn every_key_has_a_fate() {
    let (newest, before) = keys();
    assert!(
        newest.len() > 1000 && before.len() > 50,
        "the list is cut: {} and {}",
        newest.len(),
        before.len()
    );
    let root = schema();
    let forgotten: Vec<&str> =
        newest.into_iter().chain(before).filter(|key| fate(&root, key) == Fate::Unknown).collect();
    assert!(forgotten.is_empty(), "take it, or add a note to shared/spec/src/legacy: {forgotten:#?}");
}

/// A spec in which nothing stands but the key, with a word as its value.
fn with(path: &str) -> String {
    let (mut text, mut close) = (String::new(), String::new());
    for step in path.split('.') {
        text.push_str("{\"");
        text.push_str(step.trim_end_matches("[]"));
        text.push_str("\": ");
        close.insert(0, '}');
        if step.ends_with("[]") {
            text.push('[');
            close.insert(0, ']');
        }
    }
    format!("{text}word{close}\n")
}

#[test]
fn the_parser_says_of_every_key_what_its_fate_is() {
    let (newest, before) = keys();
    let root = schema();
    for key in newest.iter().chain(&before) {
        let group = newest.iter().chain(&before).any(|other| {
            other.strip_prefix(key).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
        });
        if group {
            continue;
        }
        let diagnostics = parse(with(key).as_bytes(), None).expect_err("no spec holds one key only");
        let place = key.replace("[]", "[0]");
        // A group that was refused answers for what is below it, and a translated one for what it holds.
        let of_it = |code: &str| {
            diagnostics
                .iter()
                .find(|diagnostic| {
                    diagnostic.code == code
                        && place.strip_prefix(&diagnostic.path).is_some_and(|rest| {
                            rest.is_empty() || rest.starts_with('.') || rest.starts_with('[')
                        })
                })
                .and_then(|diagnostic| diagnostic.help.clone())
        };
        assert_eq!(of_it("unknown-key"), None, "{key}");
        match fate(&root, key) {
            Fate::Same => {
                assert_eq!(of_it("retired-key"), None, "{key}");
                assert_eq!(of_it("translated-key"), None, "{key}");
            }
            Fate::Translated(help) => assert_eq!(of_it("translated-key"), Some(help), "{key}"),
            Fate::Retired(help) => assert_eq!(of_it("retired-key"), Some(help), "{key}"),
            Fate::Group | Fate::Unknown => panic!("{key} is neither taken nor refused"),
        }
    }
}

#[test]
fn every_note_is_about_a_key_of_kube_aws() {
    let (newest, before) = keys();
    let known = |pattern: &str| {
        newest.iter().chain(&before).any(|key| key.replace("[]", "") == pattern.replace("[]", ""))
    };
    let strange: Vec<&str> = legacy::TRANSLATED
        .iter()
        .chain(legacy::retired_keys())
        .map(|note| note.pattern)
        .filter(|pattern| !known(pattern) && !GUESSES.contains(pattern))
        .collect();
    assert!(strange.is_empty(), "neither in data/kube-aws-keys.txt nor guessed: {strange:#?}");
}

/// What kube-aws never knew, but people write.
const GUESSES: &[&str] = &[
    "ipFamily",
    "ipFamilies",
    "dualStack",
    "ipv6",
    "ipv6CIDR",
    "vpcIPv6CIDR",
    "podIPv6CIDR",
    "serviceIPv6CIDR",
    "egressOnlyInternetGateway",
    "vpc.ipv6CIDR",
    "subnets[].ipv6CIDR",
    "subnets[].assignIpv6AddressOnCreation",
    "apiEndpoints[].loadBalancer.ipAddressType",
    "etcd.nodes[].dataVolume.ephemeral",
    "worker.nodePools[].autoscaling.customMetrics",
    "worker.nodePools[].mixedInstances.onDemandAllocationStrategy",
    "worker.nodePools[].mixedInstances.spotInstancePools",
    "worker.nodePools[].mixedInstances.spotMaxPrice",
    "kiam",
    "kiamSupport",
    "kube2IamSupport",
    "tiller",
    "heapster",
];
