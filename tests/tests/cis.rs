//! `docs/cis.md` has the result of every check of the CIS Kubernetes benchmark against the flags and files of a cluster whose spec says nothing
//! about them, and a reason for each that does not hold.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;
use slipway_core::node::NodeConfig;
use slipway_core::role::Role;
use slipway_credentials::policy::KUBERNETES_DIR;
use slipway_node::bootstrap::founding_flags;
use slipway_node::kube::{self, Facts};
use slipway_node::machine::Setup;
use slipway_node::static_pods::MANIFESTS;
use slipway_tests::workshop::{Workshop, example};

const BEGIN: &str = "<!-- table: begin -->\n";
/// What encrypts secrets in etcd, in the file of `--encryption-provider-config`.
const PROVIDER: &str = "provider";
const END: &str = "<!-- table: end -->";

/// The fields of the lines of a table, without its comments.
fn lines<const N: usize>(text: &'static str) -> Vec<[&'static str; N]> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.splitn(N, " | ").collect::<Vec<_>>().try_into().unwrap()).collect()
}

/// What a cluster sets: by place and name. A flag that is given twice has both values, with a comma.
struct Cluster {
    settings: BTreeMap<&'static str, BTreeMap<String, String>>,
    files: BTreeMap<String, u32>,
}

fn flags<'a>(arguments: impl IntoIterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut flags: BTreeMap<String, String> = BTreeMap::new();
    for argument in arguments {
        let Some((name, value)) = argument.split_once('=').filter(|(name, _)| name.starts_with("--")) else {
            continue;
        };
        let before = flags.remove(name);
        let value = before.map_or_else(|| value.to_owned(), |before| format!("{before},{value}"));
        flags.insert(name.to_owned(), value);
    }
    flags
}

/// The fields of a configuration, as `.a.b`.
fn fields(value: &Value, path: &str, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(object) => {
            for (key, below) in object {
                fields(below, &format!("{path}.{key}"), found);
            }
        }
        Value::String(text) => _ = found.insert(path.to_owned(), text.clone()),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let words: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            found.insert(path.to_owned(), words.join(","));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            found.insert(path.to_owned(), value.to_string());
        }
    }
}

fn file<'s>(setup: &'s Setup, path: &str) -> &'s str {
    &setup.files.iter().find(|file| file.path == path).unwrap().content
}

impl Cluster {
    async fn by_default() -> Self {
        let spec = example("minimal");
        let workshop = Workshop::for_spec(&spec);
        let rendering = workshop.render(&spec).await.rendering;
        let bundle = workshop.bundle(&Role::Controller).await;
        let read = |role: Role| NodeConfig::read(&rendering.roles[&role].config).unwrap();
        let facts = Facts {
            instance_id: "i-0a1b2c3d4e5f60718".to_owned(),
            zone: "eu-west-1a".to_owned(),
            address: "192.0.2.10".parse().unwrap(),
            resolv_conf: "/etc/resolv.conf".to_owned(),
            root_ca: false,
        };
        let NodeConfig::Controller(controller) = read(Role::Controller) else { panic!("no controller") };
        let NodeConfig::Worker(worker) = read(Role::Pool("general".to_owned())) else { panic!("no worker") };
        let NodeConfig::Etcd(etcd) = read(Role::Etcd(0)) else { panic!("no member") };
        let (controller, worker) = (kube::controller(&controller, &facts), kube::worker(&worker, &facts));

        let mut settings = BTreeMap::new();
        for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            let pod: Value =
                serde_json::from_str(file(&controller, &format!("{MANIFESTS}/{program}.json"))).unwrap();
            let command = pod["spec"]["containers"][0]["command"].as_array().unwrap();
            settings.insert(program, flags(command.iter().filter_map(Value::as_str)));
        }
        let encryption = &bundle[&format!("{KUBERNETES_DIR}/encryption-config.yaml")];
        let (_, providers) = encryption.split_once("providers:\n").unwrap();
        // The first one writes; all of them read.
        let provider = providers.trim_start_matches([' ', '-']).split(':').next().unwrap();
        let server = settings.get_mut("kube-apiserver").unwrap();
        server.insert(PROVIDER.to_owned(), provider.to_owned());
        let founding = founding_flags(&etcd);
        settings
            .insert("etcd", founding.into_iter().map(|(name, value)| (format!("--{name}"), value)).collect());
        // Controllers and workers must agree in what is checked: the values of both.
        let mut kubelet: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for setup in [&controller, &worker] {
            let unit = setup.units.iter().find(|unit| unit.name == "kubelet.service").unwrap();
            let mut own = flags(unit.content.as_deref().unwrap().split_whitespace());
            let configuration = serde_json::from_str(file(setup, "/etc/kubernetes/kubelet.json")).unwrap();
            fields(&configuration, "", &mut own);
            for (name, value) in own {
                kubelet.entry(name).or_default().insert(value);
            }
        }
        let kubelet = kubelet
            .into_iter()
            .map(|(name, values)| (name, values.into_iter().collect::<Vec<_>>().join(",")));
        settings.insert("kubelet", kubelet.collect());
        let mut proxy = BTreeMap::new();
        let addon = rendering.addons.addon("kube-proxy").unwrap();
        for object in addon.objects.iter().filter(|object| object["kind"] == "ConfigMap") {
            for text in object["data"].as_object().unwrap().values().filter_map(Value::as_str) {
                let Ok(configuration) = serde_json::from_str(text) else { continue };
                fields(&configuration, "", &mut proxy);
            }
        }
        assert!(proxy.contains_key(".metricsBindAddress"), "kube-proxy's configuration is somewhere else");
        settings.insert("kube-proxy", proxy);
        let files = controller.files.iter().chain(&worker.files).map(|file| (file.path.clone(), file.mode));
        Self { settings, files: files.collect() }
    }

    /// Whether a rule holds; `None` if it cannot be read from flags and files.
    fn holds(&self, place: &str, rule: &str) -> Option<bool> {
        if place == "files" {
            let words: Vec<&str> = rule.split(' ').collect();
            let [what, path, _, value] = words.as_slice() else { return None };
            let mode = path
                .starts_with('/')
                .then(|| self.files.get(*path).unwrap_or_else(|| panic!("no {path}")))?;
            // The agent writes all of them as root: `slipway_node::machine::File`.
            return Some(*what == "owner" || mode & !u32::from_str_radix(value, 8).unwrap() == 0);
        }
        let settings = self.settings.get(place).unwrap_or_else(|| panic!("nothing is known of {place}"));
        if !rule.trim_start_matches('!').starts_with(['-', '.']) && !rule.starts_with(PROVIDER) {
            return None;
        }
        let item = |item: &str| is_met(settings, item);
        Some(if rule.contains(" and ") {
            rule.split(" and ").all(item)
        } else {
            rule.split(" or ").any(item)
        })
    }
}

fn is_met(settings: &BTreeMap<String, String>, item: &str) -> bool {
    if let Some(name) = item.strip_prefix('!') {
        return !settings.contains_key(name);
    }
    let words: Vec<&str> = item.splitn(3, ' ').collect();
    let Some(found) = settings.get(words[0]) else { return false };
    let elements: BTreeSet<&str> = found.split(',').collect();
    match words[1..] {
        [] => true,
        ["=", value] => elements == BTreeSet::from([value]),
        ["!=", value] => !elements.contains(value),
        // An address may have a port.
        ["~", value] => elements.iter().any(|one| *one == value || one.starts_with(&format!("{value}:"))),
        ["!~", value] => !elements.contains(value),
        [">=", value] => elements.iter().all(|one| one.parse::<i64>().unwrap() >= value.parse().unwrap()),
        ["<", value] => elements.is_subset(&value.split(',').collect()),
        _ => panic!("the rule cannot be read: {item}"),
    }
}

#[tokio::test]
async fn every_check_of_the_cis_benchmark_holds_or_has_a_reason() {
    let cluster = Cluster::by_default().await;
    let reasons = lines::<3>(include_str!("cis/reasons.txt"));
    let mut by_id: BTreeMap<&str, (&str, &str)> =
        reasons.iter().map(|[id, kind, reason]| (*id, (*kind, *reason))).collect();
    assert_eq!(by_id.len(), reasons.len(), "a check has two reasons");
    let checks = lines::<4>(include_str!("cis/checks.txt"));
    assert_eq!(checks.len(), 92, "the benchmark's checks of control plane, etcd and nodes");
    let mut table = "| check | | where | rule | result | |\n|---|---|---|---|---|---|\n".to_owned();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for [id, kind, place, rule] in checks {
        let (result, why) = match (cluster.holds(place, rule), by_id.remove(id)) {
            (Some(true), None) => ("holds", ""),
            (Some(true), Some(_)) => panic!("{id} holds, and has a reason why it does not"),
            (Some(false) | None, None) => panic!("{id} ({place}: {rule}) does not hold, and nobody says why"),
            (_, Some(("fails", why))) => ("**does not hold**", why),
            (_, Some(("not ours", why))) => ("does not apply", why),
            (None, Some(("held", why))) => ("holds", why),
            // The rule looks for flags, and something else does it.
            (Some(false), Some(("held", why))) => ("holds otherwise", why),
            (_, Some((kind, _))) => panic!("{id}: `{kind}` is not a kind of reason"),
        };
        *counts.entry(result).or_default() += 1;
        let kind = if kind == "A" { "automatic" } else { "manual" };
        let rule = rule.split(',').take(3).collect::<Vec<_>>().join(",")
            + if rule.matches(',').count() > 2 { ",…" } else { "" };
        writeln!(table, "| {id} | {kind} | {place} | `{rule}` | {result} | {why} |").unwrap();
    }
    assert!(by_id.is_empty(), "reasons of checks that are none: {by_id:?}");
    let counts: Vec<String> = counts.iter().map(|(result, count)| format!("{result}: {count}")).collect();
    writeln!(table, "\n{}.", counts.join(", ")).unwrap();

    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cis.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(BEGIN).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let wanted = format!("{head}{BEGIN}{table}{END}{tail}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    assert!(
        written == wanted,
        "docs/cis.md is not what the checks say: run UPDATE_DOCS=1 cargo test --workspace --test cis"
    );
}

#[test]
fn a_rule_is_met_by_what_it_names_alone() {
    let settings = flags(["--a=x,y", "--n=30", "--no=false", "kube-apiserver"]);
    for met in
        ["--a", "!--b", "--a ~ x", "--a !~ z", "--n >= 30", "--no = false", "--no != true", "--a < x,y,z"]
    {
        assert!(is_met(&settings, met), "{met}");
    }
    for unmet in [
        "--b",
        "!--a",
        "--a ~ z",
        "--a !~ x",
        "--n >= 31",
        "--no = true",
        "--b = false",
        "--b !~ x",
        "--a < x",
    ] {
        assert!(!is_met(&settings, unmet), "{unmet}");
    }
}
