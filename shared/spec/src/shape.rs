//! Holds the tree against the published JSON Schema: unknown keys, wrong types, missing keys, all of them.
//!
//! What fits comes out as JSON that the model deserializes; what does not is reported and left out. So the editor's
//! schema and this check can never say different things.

use serde_json::{Map, Value};
use slipway_core::diagnostic::Severity;

use super::legacy;
use super::path::Path;
use super::report::Report;
use super::tree::{Entry, Kind, Node};
use crate::patch::json_value;
use crate::schema::resolve;

/// Reads `node` as the schema's root says.
pub(crate) fn read(root: &Value, node: &Node, report: &mut Report<'_>) -> Value {
    let walk = Walk { root };
    walk.value(root, node, &Path::default(), report).unwrap_or_else(|| Value::Object(Map::new()))
}

struct Walk<'s> {
    root: &'s Value,
}

impl<'s> Walk<'s> {
    fn value(&self, schema: &'s Value, node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
        let schema = resolve(self.root, schema);
        if let Some(choices) = choices(schema) {
            return choice(&choices, node, path, report);
        }
        let accepts = |name: &str| match schema.get("type") {
            Some(Value::String(kind)) => kind == name,
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == name),
            _ => false,
        };
        if accepts("object") {
            self.object(schema, node, path, report)
        } else if accepts("array") {
            self.list(schema, node, path, report)
        } else if accepts("string") {
            text(node, path, report)
        } else if accepts("boolean") {
            boolean(node, path, report)
        } else {
            number(schema, node, path, report)
        }
    }

    fn object(&self, schema: &'s Value, node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
        let Kind::Map(entries) = &node.kind else {
            if node.is_null() && !path.0.is_empty() {
                return None;
            }
            let names: Vec<&str> = schema
                .get("properties")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(_, property)| property.get("deprecated") != Some(&Value::Bool(true)))
                .map(|(name, _)| name.as_str())
                .collect();
            let mut help = "write its keys below it, indented by two spaces, as `key: value`".to_owned();
            if (1..=MOST_SHOWN).contains(&names.len()) {
                help.push_str(&format!("; they are `{}`", names.join("`, `")));
            }
            wrong(node, path, "a group of keys", &help, report);
            return None;
        };
        let mut object = Map::new();
        let known = schema.get("properties").and_then(Value::as_object);
        for entry in entries {
            let below = path.key(&entry.key);
            match known.and_then(|known| known.get(&entry.key)) {
                Some(property) => {
                    if property.get("deprecated") == Some(&Value::Bool(true)) {
                        translated(entry, &below, report);
                    }
                    if let Some(value) = self.entry(property, entry, &below, report) {
                        object.insert(entry.key.clone(), value);
                    }
                }
                None => match schema.get("additionalProperties") {
                    Some(free @ Value::Object(_)) => {
                        if let Some(value) = self.entry(free, entry, &below, report) {
                            object.insert(entry.key.clone(), value);
                        }
                    }
                    // Any value: the code that uses it knows the keys.
                    Some(Value::Bool(true)) => {
                        if let Some(value) = json_value(&entry.value, &below, report) {
                            object.insert(entry.key.clone(), value);
                        }
                    }
                    _ => unknown(known, entry, &below, report),
                },
            }
        }
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if node.entry(name).is_none() {
                let group = if path.0.is_empty() { "the spec".to_owned() } else { format!("`{path}`") };
                let about =
                    known.and_then(|known| known.get(name)).and_then(|property| property.get("description"));
                let about =
                    about.and_then(Value::as_str).unwrap_or_default().lines().next().unwrap_or_default();
                report.error(
                    "missing-key",
                    &path.key(name),
                    format!("{group} lacks `{name}`"),
                    format!("add `{name}`: {about}"),
                );
            }
        }
        Some(Value::Object(object))
    }

    /// The value of a key. Only a group or a list may be empty.
    fn entry(&self, schema: &'s Value, entry: &Entry, path: &Path, report: &mut Report<'_>) -> Option<Value> {
        let kind = resolve(self.root, schema).get("type");
        let collection = kind == Some(&Value::from("object")) || kind == Some(&Value::from("array"));
        if entry.value.is_null() && !collection {
            report.key(
                Severity::Error,
                entry.key_span,
                "empty-value",
                path,
                format!("`{}` has no value", entry.key),
                "write a value after the colon, or remove the line",
            );
            return None;
        }
        self.value(schema, &entry.value, path, report)
    }

    fn list(&self, schema: &'s Value, node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
        let Kind::List(items) = &node.kind else {
            if node.is_null() {
                return None;
            }
            wrong(node, path, "a list", "begin each item with `- ` on a line of its own", report);
            return None;
        };
        let schema = schema.get("items")?;
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = path.index(index);
            if item.is_null() {
                report.error(
                    "empty-value",
                    &path,
                    "this item has no value",
                    "write a value after the dash, or remove the line",
                );
            }
            // An item that was refused leaves a hole rather than move those behind it: paths must stay true.
            let value = self.value(schema, item, &path, report);
            list.push(value.unwrap_or_else(|| placeholder(resolve(self.root, schema))));
        }
        Some(Value::Array(list))
    }
}

/// A placeholder for a refused item, so that the items after it keep their index. The spec is refused anyway.
fn placeholder(schema: &Value) -> Value {
    if let Some(first) = choices(schema).and_then(|words| words.first().copied()) {
        return Value::from(first);
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("object") => Value::Object(Map::new()),
        Some(_) | None => Value::String(String::new()),
    }
}

/// The words of an enumeration.
fn choices(schema: &Value) -> Option<Vec<&str>> {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return Some(words.iter().filter_map(Value::as_str).collect());
    }
    let variants = schema.get("oneOf").and_then(Value::as_array)?;
    Some(variants.iter().filter_map(|variant| variant.get("const")?.as_str()).collect())
}

fn choice(choices: &[&str], node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    let one_of = choices.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let Kind::Scalar { text, .. } = &node.kind else {
        wrong(node, path, &format!("one of {one_of}"), "write one of these words", report);
        return None;
    };
    if choices.contains(&text.as_str()) {
        return Some(Value::String(text.clone()));
    }
    let help = report
        .nearest(text, choices.iter().copied())
        .map_or_else(|| "write one of these words".to_owned(), |word| format!("did you mean `{word}`?"));
    report.error("unknown-value", path, format!("{} is none of {one_of}", node.describe()), help);
    None
}

fn text(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match &node.kind {
        Kind::Scalar { text, .. } if !node.is_null() => Some(Value::String(text.clone())),
        Kind::Scalar { .. } => None,
        Kind::List(_) | Kind::Map(_) => {
            wrong(
                node,
                path,
                "text",
                "write one value after the colon; put text with `{`, `[` or `: ` into quotes",
                report,
            );
            None
        }
    }
}

fn boolean(node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    match &node.kind {
        Kind::Scalar { text, plain: true } if text == "true" => Some(Value::Bool(true)),
        Kind::Scalar { text, plain: true } if text == "false" => Some(Value::Bool(false)),
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => {
            wrong(node, path, "`true` or `false`", "write `true` or `false`, without quotes", report);
            None
        }
    }
}

fn number(schema: &Value, node: &Node, path: &Path, report: &mut Report<'_>) -> Option<Value> {
    let limit =
        |key: &str, otherwise: u32| schema.get(key).and_then(Value::as_u64).unwrap_or(u64::from(otherwise));
    let (least, most) = (limit("minimum", 0), limit("maximum", u32::MAX));
    let parsed = match &node.kind {
        Kind::Scalar { text, plain: true } => text.parse::<i64>().ok(),
        Kind::Scalar { .. } | Kind::List(_) | Kind::Map(_) => None,
    };
    let Some(number) = parsed else {
        wrong(node, path, "a whole number", "write digits only, without quotes", report);
        return None;
    };
    match u64::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Some(Value::from(number)),
        Ok(_) | Err(_) => {
            report.error(
                "out-of-range",
                path,
                format!("`{path}` is {number}"),
                format!("write a number from {least} to {most}"),
            );
            None
        }
    }
}

fn wrong(node: &Node, path: &Path, wanted: &str, help: &str, report: &mut Report<'_>) {
    let what = if path.0.is_empty() { "the spec".to_owned() } else { format!("`{path}`") };
    report.key(
        Severity::Error,
        node.span,
        "wrong-type",
        path,
        format!("{what} must be {wanted}, but is {}", node.describe()),
        help,
    );
}

/// A key of kube-aws that we take in another form.
fn translated(entry: &Entry, path: &Path, report: &mut Report<'_>) {
    let note = legacy::TRANSLATED.iter().find(|note| note.pattern == path.pattern());
    let help = note.map_or("see the schema for the key that replaces it", |note| note.help);
    report.key(
        Severity::Warning,
        entry.key_span,
        "translated-key",
        path,
        format!("`{}` is a key of kube-aws, taken in its modern form", entry.key),
        help,
    );
}

/// The most keys that a help text lists.
const MOST_SHOWN: usize = 12;

/// A key that the schema does not know: retired by name, or mistyped.
fn unknown(known: Option<&Map<String, Value>>, entry: &Entry, path: &Path, report: &mut Report<'_>) {
    let pattern = path.pattern();
    let refuse = |report: &mut Report<'_>, help: &str| {
        // kube-aws knew no second family of addresses.
        let whose = if help == legacy::IPV4 { "of dual-stack clusters" } else { "of kube-aws" };
        let message = format!("`{}` is a key {whose} that Slipway does not take", entry.key);
        report.key(Severity::Error, entry.key_span, "retired-key", path, message, help);
    };
    if let Some(help) = legacy::replacement(&pattern) {
        return refuse(report, &help);
    }
    // A group that is retired as a whole, but whose members have each an answer of their own.
    if legacy::has_retired_below(&pattern) {
        match &entry.value.kind {
            Kind::Map(entries) if !entries.is_empty() => {
                for below in entries {
                    unknown(None, below, &path.key(&below.key), report);
                }
                return;
            }
            Kind::Map(_) => return refuse(report, "remove it: it says nothing"),
            Kind::Scalar { .. } if entry.value.is_null() => {
                return refuse(report, "remove it: it says nothing");
            }
            Kind::Scalar { .. } | Kind::List(_) => {}
        }
    }
    let current = |property: &Value| property.get("deprecated") != Some(&Value::Bool(true));
    let names: Vec<&str> = known
        .into_iter()
        .flatten()
        .filter(|(_, property)| current(property))
        .map(|(name, _)| name.as_str())
        .collect();
    let nearest = || report.nearest(&entry.key, names.iter().copied());
    let known_place = elsewhere(&entry.key).map(|place| format!("`{place}` is where that key belongs"));
    let help = synonym(&pattern, &entry.key)
        .or(known_place)
        .or_else(|| nearest().map(|name| format!("did you mean `{name}`?")))
        .unwrap_or_else(|| match names.len() {
            0 => "remove it".to_owned(),
            count if count > MOST_SHOWN => "remove it, or look it up in the published schema".to_owned(),
            _ => format!("remove it; the keys known here are `{}`", names.join("`, `")),
        });
    report.key(
        Severity::Error,
        entry.key_span,
        "unknown-key",
        path,
        format!("`{}` is not a known key", entry.key),
        help,
    );
}

/// What other tools call a key of ours, which no likeness of letters would find: of the spec itself, and of a pool. Keys are compared in
/// lower case without hyphens and underscores.
const SYNONYMS: [(&str, &[&str], &str); 32] = [
    ("", &["name", "metadata"], "write `clusterName`"),
    ("", &["version", "k8sversion"], "write `kubernetesVersion`"),
    (
        "",
        &["nodegroups", "managednodegroups", "nodepools", "workers", "pools"],
        "write the pools below `worker: {nodePools: […]}`",
    ),
    ("", &["masters", "master", "controlplane", "controllers"], "write `controller`"),
    ("", &["zones", "availabilityzones", "azs"], "write `subnets`, each with its `availabilityZone`"),
    ("", &["tags"], "write `stackTags`"),
    (
        "",
        &["sshkey", "sshkeyname", "keypair"],
        "write `keyName` with the name of a key pair in EC2, or `sshAuthorizedKeys` with public keys",
    ),
    ("", &["instancetype"], "write it on `controller`, on `etcd` and on each of `worker.nodePools`"),
    (
        "",
        &["network", "networking"],
        "write `vpcCIDR`, `podCIDR`, `serviceCIDR` and `subnets` beside `clusterName`",
    ),
    ("", &["dnsname", "endpoint", "apiendpoint"], "write `apiEndpoints: [{name: default, dnsName: …}]`"),
    ("pool", &["labels"], "write `nodeLabels`"),
    (
        "pool",
        &["spot", "spotinstances", "capacitytype"],
        "write `mixedInstances: {onDemandBaseCapacity: 0, onDemandPercentageAboveBaseCapacity: 0}` for a pool of spot instances",
    ),
    (
        "pool",
        &["instancetypes"],
        "write `instanceType` for one type, `mixedInstances: {instanceTypes: […]}` for several",
    ),
    ("pool", &["machinetype", "instancesize", "flavor"], "write `instanceType`"),
    (
        "pool",
        &["desiredcapacity", "desiredsize", "replicas", "size", "number", "nodes"],
        "write `count` for a fixed size, or `autoScalingGroup: {minSize: …, maxSize: …}`",
    ),
    (
        "pool",
        &["min", "max", "minsize", "maxsize", "mincount", "maxcount", "minnodes", "maxnodes"],
        "write `autoScalingGroup: {minSize: …, maxSize: …}`",
    ),
    ("pool", &["volumesize", "disksize", "rootvolumesize", "disk"], "write `rootVolume: {size: …}`, in GiB"),
    ("pool", &["volumetype"], "write `rootVolume: {type: …}`"),
    ("pool", &["ami"], "write `amiId`"),
    ("pool", &["securitygroups", "sgids"], "write `securityGroupIds`"),
    (
        "pool",
        &["subnetids"],
        "write `subnets: [{name: …}]` with names of the spec's own `subnets`, which may have an `id`",
    ),
    (
        "pool",
        &["zones", "availabilityzones"],
        "write `subnets: [{name: …}]` with the names of subnets in these zones",
    ),
    ("pool", &["tags"], "write `stackTags` for the whole cluster"),
    ("pool", &["maxpods", "maxpodspernode"], "write `kubelet: {maxPods: …}`"),
    (
        "pool",
        &["kubeletconfig", "kubeletextraconfig", "kubeletconfiguration"],
        "write `kubelet`, with fields of KubeletConfiguration",
    ),
    (
        "pool",
        &["instanceprofile", "iamrole"],
        "write `iam: {instanceProfile: {arn: …}}`, or `iam: {role: …}`",
    ),
    (
        "pool",
        &["userdata", "prebootstrapcommands", "bootstrapcommands"],
        "write `customFiles` and `customSystemdUnits`",
    ),
    ("controller", &["labels"], "write `nodeLabels`"),
    ("controller", &["replicas", "size", "number", "nodes"], "write `count`"),
    ("etcd", &["replicas", "size", "members", "number", "nodes"], "write `count`"),
    (
        "rollout.windows[]",
        &["end", "until", "to", "duration", "length"],
        "write `minutes`: for how long the window is open",
    ),
    (
        "certificatesConfiguration",
        &["renewal", "renew", "autorenew", "enabled"],
        "write `rolloutBeforeExpiry: {enabled: true}`",
    ),
];

/// What to write for a key of `pattern` that another tool calls so.
fn synonym(pattern: &str, key: &str) -> Option<String> {
    let group = match pattern.rsplit_once('.').map_or("", |(group, _)| group) {
        "worker.nodePools[]" => "pool",
        other => other,
    };
    let word: String = key
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .map(|letter| letter.to_ascii_lowercase())
        .collect();
    let found = SYNONYMS
        .iter()
        .find(|(synonym_group, words, _)| *synonym_group == group && words.contains(&word.as_str()));
    found.map(|(_, _, help)| (*help).to_owned())
}

/// Keys that people put one level too high or too low.
fn elsewhere(key: &str) -> Option<&'static str> {
    const PLACES: [(&str, &str); 6] = [
        ("nodePools", "worker.nodePools"),
        ("rolloutBeforeExpiry", "certificatesConfiguration.rolloutBeforeExpiry"),
        ("hostedZone", "apiEndpoints[].loadBalancer.hostedZone"),
        ("dnsName", "apiEndpoints[].dnsName"),
        ("minSize", "worker.nodePools[].autoScalingGroup.minSize"),
        ("maxSize", "worker.nodePools[].autoScalingGroup.maxSize"),
    ];
    PLACES.iter().find(|(name, _)| *name == key).map(|(_, place)| *place)
}
