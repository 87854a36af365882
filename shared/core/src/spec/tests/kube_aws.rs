//! Each key of kube-aws has a fate here: taken under its name, taken in another form, or refused by name with what to do.

use serde_json::Value;

use super::super::{legacy, parse, schema};

const KEYS: &str = include_str!("../../../data/kube-aws-keys.txt");

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fate {
    /// Taken under the same name.
    Same,
    /// Taken, with a warning that says what to write.
    Translated(String),
    /// Refused, saying what to do.
    Retired(String),
    /// Nothing by itself: the keys below have each their fate.
    Group,
    /// Nobody said anything about it yet.
    Unknown,
}

/// The keys of v0.16.4, then those of the releases before it.
pub(super) fn keys() -> (Vec<&'static str>, Vec<&'static str>) {
    let (newest, before) = KEYS.split_once("\n# before\n").expect("the file has two parts");
    let lines =
        |text: &'static str| text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    (lines(newest), lines(before))
}

pub(super) fn resolve<'s>(root: &'s Value, mut schema: &'s Value) -> &'s Value {
    loop {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            schema = root.pointer(&name[1..]).expect("our own definition");
        } else if let Some(choices) = schema.get("anyOf").and_then(Value::as_array) {
            schema = choices.iter().find(|choice| choice["type"] != "null").expect("something or null");
        } else {
            return schema;
        }
    }
}

/// What becomes of the key at `path`, from the schema and the notes.
pub(super) fn fate(root: &Value, path: &str) -> Fate {
    let translated = |at: &str| {
        let note = legacy::TRANSLATED.iter().find(|note| note.pattern == at);
        Fate::Translated(note.map_or(String::new(), |note| note.help.to_owned()))
    };
    let (mut at, mut walked, mut fate) = (root, String::new(), Fate::Same);
    for step in path.split('.') {
        let name = step.trim_end_matches("[]");
        if !walked.is_empty() {
            walked.push('.');
        }
        walked.push_str(name);
        let resolved = resolve(root, at);
        let Some(property) = resolved.get("properties").and_then(|known| known.get(name)) else {
            if resolved.get("additionalProperties").is_some_and(Value::is_object) {
                return fate;
            }
            return below(path, &walked);
        };
        if property.get("deprecated") == Some(&Value::Bool(true)) {
            fate = translated(&walked);
        }
        at = property;
        if step.ends_with("[]") {
            walked.push_str("[]");
            at = resolve(root, at).get("items").unwrap_or(&Value::Null);
        }
    }
    fate
}

/// The fate of what the schema does not know from `walked` on.
fn below(path: &str, walked: &str) -> Fate {
    let mut place = walked.to_owned();
    for step in std::iter::once("").chain(path[walked.len()..].split('.').filter(|step| !step.is_empty())) {
        let name = step.trim_end_matches("[]");
        if !name.is_empty() {
            place = format!("{place}.{name}");
        }
        if let Some(help) = legacy::retired(&place) {
            return Fate::Retired(help.into_owned());
        }
        if step.ends_with("[]") {
            place.push_str("[]");
        }
    }
    if legacy::retired_inside(&place) { Fate::Group } else { Fate::Unknown }
}

/// What is about to be taken or refused by name, each with all that is below it. Shrinks to nothing.
const OPEN: &[&str] = &[
    // Network.
    "sshAccessAllowedSourceCIDRs",
    "openICMP",
    // etcd.
    "etcd.volumeMounts",
    "etcd.instanceTags",
    "etcd.userSuppliedArgs",
    // Control plane.
    "controller.instanceTags",
    "controller.volumeMounts",
    "controller.featureGates",
    "customApiServerSettings",
    "experimental.oidc",
    "experimental.nodeMonitorGracePeriod",
    "kubelet",
    "kubernetes.kubeScheduler",
    "kubernetes.kubelet",
    "kubernetes.apiserver",
    "kubernetes.apiServer",
    // Pools.
    "worker.nodePools[].instanceTags",
    "worker.nodePools[].featureGates",
    "worker.nodePools[].nodeStatusUpdateFrequency",
    "worker.nodePools[].gpu",
    "worker.nodePools[].nodePoolRollingStrategy",
    "worker.nodePools[].targetGroup",
    // Add-ons.
    "kubeProxy",
    "kubernetes.kubeProxy",
    "experimental.containerStorageInterface",
];

fn is_open(key: &str) -> bool {
    let covers = |key: &str| {
        OPEN.iter().any(|open| {
            key.strip_prefix(open)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || rest.starts_with('['))
        })
    };
    let pool = key.strip_prefix("worker.nodePools[].").unwrap_or(key);
    covers(key)
        || covers(pool)
        || covers(&format!("experimental.{pool}"))
        || covers(&format!("kubelet.{pool}"))
        || ["systemReserved", "kubeReserved", "kubeconfig", "mounts", "flags"]
            .iter()
            .any(|key| pool.starts_with(key))
}

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
    let forgotten: Vec<&str> = newest
        .into_iter()
        .chain(before)
        .filter(|key| fate(&root, key) == Fate::Unknown && !is_open(key))
        .collect();
    assert!(forgotten.is_empty(), "take it, or add a note to spec/legacy: {forgotten:#?}");
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
        if group || is_open(key) {
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
        .chain(legacy::notes())
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
