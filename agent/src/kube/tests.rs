//! What nodes are given: goldens, and what must hold in all of them.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use slipway_core::node::NodeConfig;
use slipway_core::role::Role;
use slipway_core::versions::RELEASES;

use super::*;
use crate::static_pods::{MANIFESTS, Program, copies};

fn facts() -> Facts {
    Facts {
        instance_id: "i-0a1b2c3d4e5f60718".to_owned(),
        zone: "eu-west-1b".to_owned(),
        address: "10.0.64.17".parse().unwrap(),
        resolv_conf: "/run/systemd/resolve/resolv.conf".to_owned(),
        root_ca: false,
    }
}

/// What the production example renders, but for the rules of its audit policy.
fn a_controller() -> ControllerConfig {
    match NodeConfig::read(include_str!("testdata/controller.json")).unwrap() {
        NodeConfig::Controller(config) => *config,
        NodeConfig::Etcd(_) | NodeConfig::Worker(_) => panic!("it is a controller's"),
    }
}

fn a_worker() -> WorkerConfig {
    match NodeConfig::read(include_str!("testdata/worker.json")).unwrap() {
        NodeConfig::Worker(config) => *config,
        NodeConfig::Etcd(_) | NodeConfig::Controller(_) => panic!("it is a worker's"),
    }
}

/// With something in every setting.
fn a_controller_with_every_setting() -> ControllerConfig {
    let mut config = a_controller();
    config.feature_gates = BTreeMap::from([("Alpha".to_owned(), true), ("Beta".to_owned(), false)]);
    config.kubelet.configuration = BTreeMap::from([("maxPods".to_owned(), json!(40))]);
    let plane = &mut config.control_plane;
    plane.authentication = Some(json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{ "issuer": { "url": "https://people.example.com", "audiences": ["k"] },
            "claimMappings": { "username": { "claim": "sub", "prefix": "" } } }],
    }));
    plane.admission = Some(json!({
        "enable": ["EventRateLimit", "NodeRestriction"], "disable": ["DefaultStorageClass"],
        "configuration": { "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": [] },
    }));
    plane.service_account_tokens = Some(slipway_core::node::ServiceAccountTokens {
        issuers: vec!["https://issuer.example.com".to_owned(), "https://kubernetes.default.svc".to_owned()],
        audiences: vec!["https://issuer.example.com".to_owned(), "https://kubernetes.default.svc".to_owned()],
        jwks_uri: Some("https://issuer.example.com/openid/v1/jwks".to_owned()),
    });
    for component in [&mut plane.api_server, &mut plane.controller_manager, &mut plane.scheduler] {
        *component = serde_json::from_value(json!({
            "flags": { "v": "4", "profiling": "true" },
            "resources": { "requests": { "memory": "1Gi" }, "limits": { "cpu": "2" } },
            "volumes": [{ "name": "theirs", "path": "/srv/theirs", "readOnly": true }],
        }))
        .unwrap();
    }
    config
}

fn text(setup: &Setup) -> String {
    let mut text = String::new();
    for File { path, mode, content } in &setup.files {
        let _ = writeln!(text, "=== {path} {mode:04o}\n{content}");
    }
    for unit in &setup.units {
        let content = unit.content.as_deref().unwrap_or("the image's own\n");
        let _ = writeln!(text, "=== {}\n{content}", unit.name);
    }
    text
}

fn file(setup: &Setup, path: &str) -> Value {
    let found = setup.files.iter().find(|file| file.path == path);
    serde_json::from_str(&found.unwrap_or_else(|| panic!("no {path}")).content).unwrap()
}

fn command(setup: &Setup, program: &str) -> Vec<String> {
    let pod = file(setup, &format!("{MANIFESTS}/{program}.json"));
    serde_json::from_value(pod["spec"]["containers"][0]["command"].clone()).unwrap()
}

/// The flags of every program of a node, without values.
fn flags(setup: &Setup) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut add = |program: &str, word: &str| {
        if let Some(flag) = word.strip_prefix("--") {
            found.insert((program.to_owned(), flag.split('=').next().unwrap().to_owned()));
        }
    };
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        if setup
            .files
            .iter()
            .any(|file| file.path.ends_with(&format!("/{program}.json")) && file.path.starts_with(MANIFESTS))
        {
            command(setup, program).iter().for_each(|word| add(program, word));
        }
    }
    for unit in setup.units.iter().filter(|unit| unit.name == "kubelet.service") {
        let unit = unit.content.as_ref().unwrap();
        let start = unit.find("ExecStart=/opt/slipway/bin/kubelet").unwrap();
        unit[start..].split_whitespace().for_each(|word| add("kubelet", word));
    }
    found
}

#[test]
fn a_controllers_machine() {
    insta::assert_snapshot!("controller", text(&controller(&a_controller(), &facts())));
}

#[test]
fn a_workers_machine() {
    insta::assert_snapshot!("worker", text(&worker(&a_worker(), &facts())));
}

#[test]
fn programs_of_the_image_are_named_alone_and_keep_their_units() {
    let mut config = a_worker();
    config.base.software.clear();
    let setup = worker(&config, &facts());
    let unit = |name: &str| setup.units.iter().find(|unit| unit.name == name).unwrap();
    assert_eq!(unit("containerd.service").content, None);
    assert!(unit("kubelet.service").content.as_ref().unwrap().contains("\nExecStart=kubelet "));
    assert!(!text(&setup).contains("/opt/slipway"));
}

#[test]
fn p1_the_same_configuration_and_machine_give_the_same_bytes() {
    for config in [a_controller(), a_controller_with_every_setting()] {
        assert_eq!(controller(&config, &facts()), controller(&config.clone(), &facts()));
    }
}

#[test]
fn what_the_spec_says_of_components_reaches_them() {
    let config = a_controller_with_every_setting();
    let setup = controller(&config, &facts());
    for program in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let words = command(&setup, program);
        for flag in ["--v=4", "--profiling=true", "--feature-gates=Alpha=true,Beta=false"] {
            assert_eq!(words.iter().filter(|word| *word == flag).count(), 1, "{program} {flag}: {words:#?}");
        }
        assert!(!words.iter().any(|word| word == "--profiling=false"));
        let pod = file(&setup, &format!("{MANIFESTS}/{program}.json"));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"]["memory"], "1Gi");
        assert!(container["resources"]["requests"]["cpu"].is_string(), "what is not said stays");
        assert_eq!(container["resources"]["limits"], json!({ "cpu": "2" }));
        let mounts = container["volumeMounts"].as_array().unwrap();
        let theirs = mounts.iter().find(|mount| mount["name"] == "theirs").unwrap();
        assert_eq!(theirs, &json!({ "name": "theirs", "mountPath": "/srv/theirs", "readOnly": true }));
    }
    let api = command(&setup, "kube-apiserver");
    let issuers: Vec<&String> =
        api.iter().filter(|word| word.starts_with("--service-account-issuer=")).collect();
    assert_eq!(
        issuers,
        [
            "--service-account-issuer=https://issuer.example.com",
            "--service-account-issuer=https://kubernetes.default.svc"
        ],
        "the first signs"
    );
    for flag in [
        "--api-audiences=https://issuer.example.com,https://kubernetes.default.svc",
        "--service-account-jwks-uri=https://issuer.example.com/openid/v1/jwks",
        "--enable-admission-plugins=EventRateLimit,NodeRestriction",
        "--disable-admission-plugins=DefaultStorageClass",
        "--admission-control-config-file=/etc/kubernetes/kube-apiserver/admission.json",
    ] {
        assert!(api.iter().any(|word| word == flag), "{flag}");
    }
    let authentication = file(&setup, "/etc/kubernetes/kube-apiserver/authentication.json");
    assert_eq!(authentication["jwt"][0]["issuer"]["url"], "https://people.example.com");
    assert_eq!(authentication["anonymous"]["conditions"].as_array().unwrap().len(), 3);
    let kubelet = file(&setup, "/etc/kubernetes/kubelet.json");
    assert_eq!((&kubelet["maxPods"], &kubelet["featureGates"]["Alpha"]), (&json!(40), &json!(true)));
}

#[test]
fn every_flag_is_known_to_the_program_of_that_minor() {
    let known: BTreeMap<u16, BTreeSet<(String, String)>> = include_str!("testdata/flags.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .fold(BTreeMap::new(), |mut known: BTreeMap<u16, BTreeSet<_>>, line| {
            let mut words = line.split_whitespace();
            let (program, flag) = (words.next().unwrap(), words.next().unwrap());
            for minor in words {
                known
                    .entry(minor.parse().unwrap())
                    .or_default()
                    .insert((program.to_owned(), flag.to_owned()));
            }
            known
        });
    for release in RELEASES {
        let version = format!("1.{}.{}", release.minor, release.patch);
        let mut config = a_controller_with_every_setting();
        config.kubernetes_version.clone_from(&version);
        let mut worker_config = a_worker();
        worker_config.kubernetes_version = version;
        let mut ours = flags(&controller(&config, &facts()));
        ours.extend(flags(&worker(&worker_config, &facts())));
        assert!(ours.len() > 60, "{ours:?}");
        let unknown: Vec<_> = ours.difference(&known[&release.minor]).collect();
        assert_eq!(unknown, Vec::<&(String, String)>::new(), "1.{}", release.minor);
    }
}

/// The paths of the bundle that the example's nodes of `role` receive.
fn bundle(role: &Role) -> BTreeSet<String> {
    let spec = include_bytes!("../../../examples/production.yaml");
    let cluster = slipway_spec::parse(spec, None).unwrap().cluster;
    let manifest = slipway_credentials::Manifest::default();
    let files = slipway_credentials::trust::bundle(&cluster, &manifest, role);
    files.into_iter().map(|file| file.path).collect()
}

/// The paths below `folder` that a text names.
fn named(text: &str, folder: &str) -> BTreeSet<String> {
    let folder = format!("{folder}/");
    let paths = text.match_indices(&folder).map(|(start, _)| &text[start..]);
    paths.map(|rest| rest.chars().take_while(|c| !matches!(c, '"' | '\n' | ' ' | ',')).collect()).collect()
}

#[test]
fn p9_what_is_named_is_in_the_bundle_and_what_is_secret_is_only_named() {
    for (role, setup) in [
        (Role::Controller, controller(&a_controller_with_every_setting(), &facts())),
        (Role::Pool("general-a".to_owned()), worker(&a_worker(), &facts())),
    ] {
        let mut received = bundle(&role);
        if role == Role::Controller {
            received.extend(bundle(&role).iter().flat_map(|path| copies(path)));
            received.extend(setup.files.iter().map(|file| file.path.clone()));
        }
        let all = text(&setup);
        let folders =
            [Program::ApiServer, Program::ControllerManager, Program::Scheduler].map(Program::folder);
        let named: BTreeSet<String> =
            folders.into_iter().chain([KUBERNETES_DIR]).flat_map(|folder| named(&all, folder)).collect();
        for path in &named {
            assert!(received.contains(path), "{role} does not receive {path}");
        }
        let wanted = if role == Role::Controller { 20 } else { 2 };
        assert!(named.len() >= wanted, "{named:?}");
        assert!(!all.contains("BEGIN") && !all.contains("PRIVATE"), "no PEM");
    }
}

#[test]
fn p9_a_static_pod_sees_the_credentials_that_it_reads_and_no_others() {
    let setup = controller(&a_controller(), &facts());
    let copied: BTreeSet<String> = bundle(&Role::Controller).iter().flat_map(|path| copies(path)).collect();
    let own: BTreeSet<&str> = setup.files.iter().map(|file| file.path.as_str()).collect();
    for program in [Program::ApiServer, Program::ControllerManager, Program::Scheduler] {
        let pod = file(&setup, &format!("{MANIFESTS}/{}.json", program.name()));
        let volumes = pod["spec"]["volumes"].as_array().unwrap().iter();
        let mounted = volumes.map(|volume| volume["hostPath"]["path"].as_str().unwrap());
        let mounted: Vec<&str> = mounted.filter(|path| path.starts_with("/etc/kubernetes")).collect();
        assert_eq!(mounted, [program.folder()]);
        let mut reads = named(&command(&setup, program.name()).join(" "), "/etc/kubernetes");
        let written = setup.files.iter().filter(|file| reads.contains(&file.path));
        let more: Vec<_> = written.map(|file| named(&file.content, "/etc/kubernetes")).collect();
        reads.extend(more.into_iter().flatten());
        let (written, credentials): (BTreeSet<_>, BTreeSet<_>) =
            reads.into_iter().partition(|path| own.contains(path.as_str()));
        let within = format!("{}/", program.folder());
        assert!(written.iter().all(|path| path.starts_with(&within)), "{written:?}");
        let seen: BTreeSet<String> =
            copied.iter().filter(|path| path.starts_with(&within)).cloned().collect();
        assert_eq!(credentials, seen, "{}", program.name());
    }
    let secrets = ["bootstrap-key", "bootstrap-token", "node-manager-key.pem"];
    for secret in secrets {
        assert_eq!(copies(&format!("{KUBERNETES_DIR}/{secret}")), [""; 0], "{secret}");
    }
}

#[test]
fn p9_a_static_pod_sees_the_users_folder_if_its_flags_name_a_file_there() {
    let mut config = a_controller();
    let flag = ("config".to_owned(), "/etc/kubernetes/custom/scheduler.yaml".to_owned());
    config.control_plane.scheduler.flags.extend([flag]);
    let setup = controller(&config, &facts());
    for (program, sees) in
        [("kube-apiserver", false), ("kube-controller-manager", false), ("kube-scheduler", true)]
    {
        let pod = file(&setup, &format!("{MANIFESTS}/{program}.json")).to_string();
        assert_eq!(pod.contains(r#""path":"/etc/kubernetes/custom""#), sees, "{program}: {pod}");
    }
}

#[test]
fn kubelet_ca_signs_kubelets_and_nobody_else() {
    let words = command(&controller(&a_controller(), &facts()), "kube-controller-manager");
    let signs = |word: &&String| word.starts_with("--cluster-signing-") && word.contains("-file=");
    let signers: Vec<&String> = words.iter().filter(signs).collect();
    assert_eq!(signers.len(), 4, "{signers:?}");
    assert!(
        signers.iter().all(|word| word.contains("-kubelet-") && word.contains("/kubelet-ca")),
        "{signers:?}"
    );
}

/// Nobody can take back a certificate whose key was copied. P7: a kubelet that begins to renew at 90 % of its life has three days left.
#[test]
fn p13_p7_certificates_of_kubelets_live_for_thirty_days() {
    let words = command(&controller(&a_controller(), &facts()), "kube-controller-manager");
    let lives: Vec<&String> =
        words.iter().filter(|word| word.starts_with("--cluster-signing-duration")).collect();
    assert_eq!(lives, ["--cluster-signing-duration=720h"]);
}

#[test]
fn pods_know_the_api_server_by_the_root_of_an_authority_that_was_brought() {
    let root = |root_ca| {
        let words =
            command(&controller(&a_controller(), &Facts { root_ca, ..facts() }), "kube-controller-manager");
        words.into_iter().find(|word| word.starts_with("--root-ca-file=")).unwrap()
    };
    assert_eq!(root(false), "--root-ca-file=/etc/kubernetes/kube-controller-manager/ca.pem");
    assert_eq!(root(true), "--root-ca-file=/etc/kubernetes/kube-controller-manager/root-ca.pem");
}

#[test]
fn a_log_on_standard_output_needs_no_folder_and_none_no_policy() {
    let mut config = a_controller();
    config.control_plane.audit_log = Some(json!({ "path": "-", "policy": { "kind": "Policy" } }));
    let setup = controller(&config, &facts());
    assert!(command(&setup, "kube-apiserver").iter().any(|word| word == "--audit-log-path=-"));
    assert!(!text(&setup).contains("slipway-audit-log"));
    config.control_plane.audit_log = None;
    let text = text(&controller(&config, &facts()));
    assert!(!text.contains("--audit") && !text.contains("audit-policy"), "{text}");
}

#[test]
fn pods_with_gpus_get_nvidias_runtime() {
    let mut config = a_worker();
    config.machine.gpu = Some("nvidia".to_owned());
    let setup = worker(&config, &facts());
    let containerd =
        &setup.files.iter().find(|file| file.path.starts_with("/etc/containerd")).unwrap().content;
    assert!(containerd.contains("default_runtime_name = \"nvidia\""), "{containerd}");
    assert!(containerd.contains("BinaryName = \"/usr/bin/nvidia-container-runtime\""), "{containerd}");
    assert_eq!(containerd.matches("SystemdCgroup = true").count(), 2, "{containerd}");
}
