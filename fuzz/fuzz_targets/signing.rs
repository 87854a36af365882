//! Any bytes as a request for a certificate, and any subject and names in a request that is signed with its own key: what the node manager approves
//! is a certificate of a machine that may have it, with that machine's name in its subject and nothing that is not the machine's.
//!
//! The machine is a controller that was started a minute ago, and nobody else has asked in its name. A renewal is approved for it as well.
#![no_main]

mod limit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use slipway_core::role::Role;
use slipway_credentials::bootstrap::{BOOTSTRAPPERS, group};
use slipway_crypto::certificate_request;
use slipway_node::manage::{Machine, OpenRequest, Registration, Verdict};

const CLUSTER: &str = "production";
const MACHINE: &str = "i-0abc";
const NAME: &str = "ip-10-0-0-1.eu-west-1.compute.internal";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING: &str = "kubernetes.io/kubelet-serving";

/// Known to all: nothing is protected by it.
static KEY: LazyLock<Ed25519KeyPair> =
    LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("32 bytes"));
static NOW: LazyLock<Timestamp> = LazyLock::new(|| "2026-11-25T12:00:00Z".parse().expect("a time"));

fn machine() -> Machine {
    Machine {
        state: "running".to_owned(),
        launched: Some(*NOW - SignedDuration::from_mins(1)),
        tags: [("slipway:cluster", CLUSTER), ("slipway:role", "controller")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        addresses: ["10.0.0.1".parse().expect("an address")].into(),
        names: BTreeSet::from([NAME.to_owned()]),
    }
}

/// DER: a tag, a length and the content.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let digits = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut whole = vec![tag];
    match content.len() {
        short @ ..0x80 => whole.push(short as u8),
        _ => whole.extend([&[0x80 | digits.len() as u8][..], digits].concat()),
    }
    whole.extend(content);
    whole
}

/// A request for what `subject` and `attributes` say, in PEM (RFC 2986, 4; RFC 8410).
fn signed(subject: &[u8], attributes: &[u8]) -> String {
    const ED25519: [u8; 7] = [0x30, 5, 6, 3, 0x2b, 0x65, 0x70];
    let bits = |content: &[u8]| der(3, &[&[0], content].concat());
    let key = der(0x30, &[&ED25519[..], &bits(KEY.public_key().as_ref())].concat());
    let info = der(0x30, &[&[2, 1, 0], subject, &key, &der(0xa0, attributes)].concat());
    let signature = bits(KEY.sign(&info).as_ref());
    let request = der(0x30, &[&info[..], &ED25519, &signature].concat());
    format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n",
        STANDARD.encode(request)
    )
}

/// As the API server lists a request of `user`.
fn listed(signer: &str, user: &str, groups: &[&str], usage: &str, pem: &str) -> Value {
    json!({
        "metadata": { "name": "csr-1", "creationTimestamp": "2026-11-25T11:59:30Z" },
        "spec": {
            "signerName": signer, "username": user, "groups": groups, "usages": [usage, "digital signature"],
            "request": STANDARD.encode(pem),
        },
    })
}

/// Judges it, and fails if it is approved and should not be.
fn judge(length: usize, request: &Value) {
    let Ok(typed) = serde_json::from_value(request.clone()) else { return };
    let open = limit::in_time(length, || OpenRequest::read(Clone::clone(&typed), *NOW));
    let verdict = |machines: BTreeMap<String, Machine>, registration, first| {
        open.verdict(&Ok(machines), registration, first, *NOW, CLUSTER)
    };
    let ours = || BTreeMap::from([(MACHINE.to_owned(), machine())]);
    let approved = |verdict: Verdict| match verdict {
        Verdict::Approve => true,
        Verdict::Deny(why) | Verdict::Leave(why) => {
            assert!(!why.is_empty(), "without a word");
            false
        }
    };
    let none = Registration::None;
    // A machine that EC2 does not know, or that is of another cluster.
    assert!(!approved(verdict(BTreeMap::new(), none, None)), "{request}");
    let foreign = Machine { tags: BTreeMap::new(), ..machine() };
    assert!(!approved(verdict(BTreeMap::from([(MACHINE.to_owned(), foreign)]), none, None)), "{request}");
    if !approved(verdict(ours(), none, None)) {
        return;
    }

    let spec = &request["spec"];
    let has =
        |list: &str, word: &str| spec[list].as_array().is_some_and(|all| all.iter().any(|one| one == word));
    let pem = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).expect("base64");
    let wanted = certificate_request(std::str::from_utf8(&pem).expect("text")).expect("it is signed");
    let node = format!("system:node:{MACHINE}");
    assert_eq!(wanted.common_names, [node.as_str()]);
    assert_eq!(wanted.organizations, ["system:nodes"]);
    assert!(!wanted.more_in_subject && wanted.other_names == 0, "{wanted:?}");
    if spec["signerName"] == CLIENT {
        assert!(has("usages", "client auth") && !has("usages", "server auth"), "{request}");
        assert!(wanted.dns_names.is_empty() && wanted.addresses.is_empty(), "{wanted:?}");
        let gone = Machine { state: "terminated".to_owned(), ..machine() };
        assert!(!approved(verdict(BTreeMap::from([(MACHINE.to_owned(), gone)]), none, None)), "{request}");
        if spec["username"].as_str().is_some_and(|user| user.starts_with("system:node:")) {
            assert!(spec["username"] == node.as_str() && has("groups", "system:nodes"), "{request}");
            return;
        }
        assert!(has("groups", BOOTSTRAPPERS) && has("groups", &group(&Role::Controller).expect("a token")));
        assert!(!approved(verdict(ours(), Registration::Active, None)), "its node has registered");
        assert!(!approved(verdict(ours(), none, Some("csr-0"))), "another request was first");
    } else {
        assert!(spec["username"] == node.as_str() && has("groups", "system:nodes"), "{request}");
        assert!(has("usages", "server auth") && !has("usages", "client auth"), "{request}");
        assert!(wanted.dns_names.iter().all(|name| [MACHINE, NAME].contains(&name.as_str())), "{wanted:?}");
        let own = &machine().addresses;
        assert!(wanted.addresses.iter().all(|address| own.contains(&address.to_canonical())), "{wanted:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = serde_json::from_slice::<Value>(bytes) {
        return judge(bytes.len(), &request);
    }
    // A subject, and behind it the attributes.
    let end = match bytes {
        [0x30, length @ ..0x80, ..] => (usize::from(*length) + 2).min(bytes.len()),
        _ => 0,
    };
    let (subject, attributes) = bytes.split_at(end);
    let pem = signed(subject, attributes);
    let node = format!("system:node:{MACHINE}");
    let (controllers, workers) = (group(&Role::Controller), group(&Role::Pool("general-a".to_owned())));
    for own in [controllers, workers].into_iter().flatten() {
        judge(
            bytes.len(),
            &listed(CLIENT, "system:bootstrap:abcdef", &[BOOTSTRAPPERS, &own], "client auth", &pem),
        );
    }
    judge(bytes.len(), &listed(CLIENT, &node, &["system:nodes"], "client auth", &pem));
    judge(bytes.len(), &listed(SERVING, &node, &["system:nodes"], "server auth", &pem));
});
