//! The dearest texts that we could think of: each is answered within 100 ms of work, whatever it asks for.
//!
//! `cargo test --release -p slipway-spec --test worst_cases -- --nocapture` prints the figures. Without `--release` the
//! texts are a sixteenth as long, and only what grows faster than its text is caught.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "the figures are what it is run for")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use slipway_spec::patch;

/// Processor time. The promise is that of an optimised build. Unoptimised, the dearest text takes 416 ms on a quiet machine, and took 657 ms where other tests shared
/// the two processors.
const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 800 } else { 100 });
const SHARE: usize = if cfg!(debug_assertions) { 16 } else { 1 };

/// What this thread works on `read`: the least of three, so that no other's work is counted.
fn work(read: impl Fn()) -> Duration {
    let worked = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let once = || {
        let begun = worked();
        read();
        worked() - begun
    };
    let first = once();
    if first < LIMIT { first } else { first.min(once()).min(once()) }
}

/// Measures each, prints the dearest, and fails if one is too dear.
fn measure(texts: impl IntoIterator<Item = (String, Vec<u8>)>, read: impl Fn(&[u8])) {
    let mut figures: Vec<(Duration, usize, String)> =
        texts.into_iter().map(|(name, text)| (work(|| read(&text)), text.len(), name)).collect();
    figures.sort();
    figures.reverse();
    for (took, length, name) in figures.iter().take(12) {
        println!("{:8.1} ms {length:8} bytes  {name}", took.as_secs_f64() * 1000.0);
    }
    let dear: Vec<_> = figures.iter().filter(|(took, ..)| *took > LIMIT).collect();
    assert!(dear.is_empty(), "more than {LIMIT:?}: {dear:#?}");
}

/// `part(0)`, `part(1)`, … as long as `length` bytes.
fn filled(length: usize, part: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::new();
    for number in 0.. {
        let next = part(number);
        if text.len() + next.len() > length {
            break;
        }
        text.push_str(&next);
    }
    text.into_bytes()
}

/// Texts that are dear as YAML, whatever they are uploaded as.
fn hostile(length: usize) -> Vec<(String, Vec<u8>)> {
    let half = length / 2;
    let named = |name: &str, text: Vec<u8>| (format!("{name}, {length} bytes"), text);
    let mut around = filled(half - 8, |_| "[".to_owned());
    around.extend(filled(half - 8, |_| "]".to_owned()));
    vec![
        named("open lists", filled(length, |_| "[".to_owned())),
        named("lists in lists", around),
        named("open maps", filled(length, |_| "{a: ".to_owned())),
        named("dashes", filled(length, |_| "- ".to_owned())),
        named("question marks", filled(length, |_| "? ".to_owned())),
        named("deeper and deeper", filled(length, |depth| format!("{}a:\n", " ".repeat(depth)))),
        named("anchors", filled(length, |number| format!("a{number}: &a{number} x\n"))),
        named("aliases", [b"a: &a x\n".to_vec(), filled(length - 8, |n| format!("b{n}: *a\n"))].concat()),
        named(
            "aliases of aliases",
            filled(length, |n| match n {
                0 => "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(),
                _ => format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 8].join(", ")),
            }),
        ),
        named("merges", filled(length, |n| format!("a{n}: &a{n}\n  <<: *a{}\n", n.saturating_sub(1)))),
        named("one long key", [filled(length - 8, |_| "k".to_owned()), b": x\n".to_vec()].concat()),
        named("long keys", filled(length, |n| format!("{n}{}: x\n", "k".repeat(900)))),
        named("keys", filled(length, |n| format!("k{n}: x\n"))),
        named("keys that are almost right", filled(length, |n| format!("clusterNam{n}: x\n"))),
        named("the same key", filled(length, |_| "a: x\n".to_owned())),
        named("documents", filled(length, |_| "---\n".to_owned())),
        named("tags", filled(length, |n| format!("a{n}: !b{n} x\n"))),
        named("comments", filled(length, |_| "#\n".to_owned())),
        named("a long scalar", filled(length, |_| "x ".to_owned())),
        named("a folded scalar", [b"a: >\n".to_vec(), filled(length - 8, |_| "  x\n\n".to_owned())].concat()),
        named("escapes", [b"a: \"".to_vec(), filled(length - 8, |_| "\\u00e9".to_owned())].concat()),
        named("letters of three bytes", filled(length, |_| "\u{20ac}".to_owned())),
        named("spaces", filled(length, |_| " ".to_owned())),
        named("zeroes", vec![0; length]),
        named("no text", vec![0xff; length]),
    ]
}

#[test]
fn whatever_is_uploaded_is_answered_in_time() {
    for length in [slipway_spec::MOST_BYTES / SHARE, slipway_spec::MOST_BYTES + 1, 1024 * 1024] {
        measure(hostile(length), |text| drop(slipway_spec::parse(text, None)));
    }
    for length in [patch::MOST_BYTES / SHARE, patch::MOST_BYTES + 1, 1024 * 1024] {
        measure(hostile(length), |text| {
            drop(patch::parse(&BTreeMap::from([("10-a.yaml".to_owned(), text.to_vec())])));
        });
    }
}

/// A collection of the schema: the way to it, and what one of its items is.
struct Collection<'s> {
    steps: Vec<Step>,
    /// `None` for a map of names.
    item: Option<&'s Value>,
}

#[derive(Clone)]
enum Step {
    Key(String),
    First,
}

/// Every list and every map of names in the schema, once by each way to it.
fn collections(schema: &Value) -> Vec<Collection<'_>> {
    fn walk<'s>(
        root: &'s Value,
        schema: &'s Value,
        steps: &[Step],
        met: &BTreeSet<&'s str>,
        all: &mut Vec<Collection<'s>>,
    ) {
        if let Some(name) = schema["$ref"].as_str() {
            let mut met = met.clone();
            if met.insert(name) {
                walk(root, root.pointer(name.strip_prefix('#').unwrap()).unwrap(), steps, &met, all);
            }
            return;
        }
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            walk(root, choice, steps, met, all);
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            walk(root, property, &[steps, &[Step::Key(name.clone())]].concat(), met, all);
        }
        if schema["additionalProperties"].is_object() {
            all.push(Collection { steps: steps.to_vec(), item: None });
        }
        if let Some(item) = schema.get("items") {
            all.push(Collection { steps: steps.to_vec(), item: Some(item) });
            walk(root, item, &[steps, &[Step::First]].concat(), met, all);
        }
    }
    let mut all = Vec::new();
    walk(schema, schema, &[], &BTreeSet::new(), &mut all);
    all
}

/// `whole` with `value` at the end of the way, and a name for every item on it.
fn put(whole: &mut Value, steps: &[Step], value: Value) {
    match steps.split_first() {
        None => *whole = value,
        Some((Step::Key(key), rest)) => {
            if !whole.is_object() {
                *whole = Value::Object(Map::new());
            }
            put(&mut whole[key.as_str()], rest, value);
        }
        Some((Step::First, rest)) => {
            if !whole.is_array() {
                *whole = json!([{"name": "first"}]);
            }
            put(&mut whole[0], rest, value);
        }
    }
}

/// A spec that fills one collection with as much as fits in.
fn crowded(collection: &Collection<'_>, item: &dyn Fn(usize) -> Value, length: usize) -> (String, Vec<u8>) {
    let mut spec = json!({
        "clusterName": "crowd", "region": "eu-west-1", "kubernetesVersion": "1.37", "availabilityZone": "eu-west-1a",
        "apiEndpoints": [{"name": "default", "dnsName": "api.crowd.example.com"}],
        "worker": {"nodePools": [{"name": "general"}]},
    });
    let mut room = length - 2048;
    let mut values = Vec::new();
    loop {
        let value = item(values.len());
        let bytes = value.to_string().len() + if collection.item.is_none() { 14 } else { 1 };
        if bytes > room {
            break;
        }
        room -= bytes;
        values.push(value);
    }
    let count = values.len();
    let values = match collection.item {
        Some(_) => Value::Array(values),
        None => values.into_iter().enumerate().map(|(n, value)| (format!("key-{n}"), value)).collect(),
    };
    put(&mut spec, &collection.steps, values);
    let way: String = collection.steps.iter().fold(String::new(), |way, step| match step {
        Step::Key(key) if way.is_empty() => key.clone(),
        Step::Key(key) => format!("{way}.{key}"),
        Step::First => format!("{way}[0]"),
    });
    (format!("{count} of {} in {way}", item(0)), spec.to_string().into_bytes())
}

#[test]
fn whatever_a_spec_has_too_many_of_is_answered_in_time() {
    let network = |n: usize| format!("10.{}.{}.{}/28", n / 4096 % 256, n / 16 % 256, n % 16 * 16);
    let subnet = |n: usize| json!({"name": format!("s{n}"), "availabilityZone": "eu-west-1a", "instanceCIDR": network(n)});
    let pool = |n: usize| json!({"name": format!("p{n}"), "instanceType": "c7g.large", "autoScalingGroup": {"minSize": 1, "maxSize": 2}});
    let words: [&dyn Fn(usize) -> Value; 5] = [
        &|n| json!(format!("x{n}")),
        &|n| json!(network(n)),
        &|n| json!(format!("arn:aws:iam::123456789012:role/r{n}")),
        &|n| json!(format!("sg-{n:017x}")),
        &|n| json!(format!("m{n}i.large")),
    ];
    let groups: [&dyn Fn(usize) -> Value; 5] = [
        &|n| json!({"name": format!("n{n}")}),
        &|n| json!({format!("k{n}"): "x"}),
        &|n| json!({"path": format!("/etc/d{n}"), "content": "x"}),
        &subnet,
        &pool,
    ];
    let schema = slipway_spec::schema();
    let collections = collections(&schema);
    assert!(collections.len() > 60, "only {} collections in the schema", collections.len());
    let length = slipway_spec::MOST_BYTES / SHARE;
    let texts = collections.iter().flat_map(|collection| {
        let grouped = collection.item.is_some_and(|item| item.get("$ref").is_some());
        let items: &[&dyn Fn(usize) -> Value] = if grouped { &groups } else { &words };
        items.iter().map(move |item| crowded(collection, *item, length))
    });
    measure(texts, |text| drop(slipway_spec::parse(text, None)));
}

/// Hundreds of pools that say all they can, taken; and the same with a mistake in each.
#[test]
fn a_large_cluster_is_read_in_time() {
    let pool = |n: usize, size: u32| {
        format!(
            "  - name: pool-{n}\n    instanceType: m7g.large\n    nodeLabels: {{team: t{n}, tier: web}}\n    \
             taints: [{{key: team, value: t{n}, effect: NoSchedule}}]\n    autoScalingGroup: {{minSize: 1, maxSize: {size}}}\n    \
             rootVolume: {{type: gp3, size: 100}}\n"
        )
    };
    let whole = |size: u32| {
        let head = "clusterName: large\nregion: eu-west-1\nkubernetesVersion: \"1.37\"\navailabilityZone: eu-west-1a\npodCIDR: 10.64.0.0/12\n\
                    apiEndpoints: [{name: default, dnsName: api.large.example.com}]\nworker:\n  nodePools:\n";
        [head.as_bytes().to_vec(), filled(slipway_spec::MOST_BYTES / 4 / SHARE, |n| pool(n, size))].concat()
    };
    let good = whole(9);
    assert_eq!(slipway_spec::parse(&good, None).err(), None);
    measure([("pools".to_owned(), good), ("pools with mistakes".to_owned(), whole(0))], |text| {
        drop(slipway_spec::parse(text, None));
    });
}
