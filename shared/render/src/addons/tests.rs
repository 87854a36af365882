//! What holds for every add-on's manifests.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use slipway_core::canonical::canonical_json;
use slipway_core::cluster::{Cluster, Mount, NetworkProvider, ProxyMode};
use slipway_core::release::ADDON_LABEL;
use slipway_core::role::Role;

use super::*;
use crate::Inputs;
use crate::fixture::{self, cluster, lock, rendered};

fn set(cluster: &Cluster) -> AddonSet {
    rendered(cluster).addons
}

fn objects(set: &AddonSet) -> impl Iterator<Item = (&Installed, &Value)> {
    set.addons.iter().flat_map(|addon| addon.objects.iter().map(move |object| (addon, object)))
}

/// The pod of each workload.
fn pods(set: &AddonSet) -> Vec<(&str, &Value)> {
    objects(set)
        .filter_map(|(_, object)| {
            Some((object["metadata"]["name"].as_str()?, object.pointer("/spec/template/spec")?))
        })
        .collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"].into_iter().flat_map(|key| pod[key].as_array()).flatten()
}

#[test]
fn goldens_of_every_addon() {
    for addon in set(&cluster()).addons {
        insta::assert_json_snapshot!(format!("addon-{}", addon.name), addon);
    }
}

#[test]
fn every_object_has_a_name_of_its_own_and_the_label_that_it_is_pruned_by() {
    let set = set(&cluster());
    let mut seen = BTreeSet::new();
    for (addon, object) in objects(&set) {
        let metadata = &object["metadata"];
        assert_eq!(metadata["labels"][ADDON_LABEL], addon.name, "{object}");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        assert!(
            seen.insert((text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]))),
            "{object}"
        );
    }
    assert_eq!(set.addons.len(), 10);
}

/// Pod Security Admission enforces a standard elsewhere, and some of them need the node.
#[test]
fn every_pod_is_in_the_namespace_that_is_exempt_from_pod_security() {
    let rendering = rendered(&cluster());
    let config: Value = serde_json::from_str(&rendering.roles[&Role::Controller].config).unwrap();
    let plugins = config["controlPlane"]["admission"]["configuration"]["plugins"].as_array().unwrap();
    let plugin = plugins.iter().find(|plugin| plugin["name"] == "PodSecurity").unwrap();
    let exempt = &plugin["configuration"]["exemptions"]["namespaces"];
    let with_pods: Vec<_> = objects(&rendering.addons)
        .filter(|(_, object)| object.pointer("/spec/template/spec").is_some())
        .map(|(_, object)| &object["metadata"]["namespace"])
        .collect();
    assert!(with_pods.len() > 9, "{with_pods:?}");
    for namespace in with_pods {
        assert_eq!(*exempt, serde_json::json!([namespace]));
    }
}

#[test]
fn p1_every_image_is_the_one_that_the_lock_pins() {
    let (cluster, lock) = (cluster(), lock());
    let set = set(&cluster);
    let mut used = BTreeSet::new();
    for (name, pod) in pods(&set) {
        for container in containers(pod) {
            let image = container["image"].as_str().unwrap();
            let (reference, digest) = image.split_once('@').unwrap_or_else(|| panic!("{name}: {image}"));
            assert_eq!(lock.addon_images.get(reference).map(String::as_str), Some(digest), "{name}");
            used.insert(reference.to_owned());
        }
    }
    let pinned: BTreeSet<String> = crate::images::references(&cluster, &lock).into_iter().collect();
    assert_eq!(used, pinned, "an image is pinned and not used, or the other way round");
}

#[test]
fn a_mirror_is_pulled_from_and_pins_nothing_anew() {
    let mut cluster = cluster();
    cluster.addons.image_repository = Some("mirror.example.com/k8s".to_owned());
    let with = render_all(&cluster);
    for (name, pod) in pods(&with) {
        for container in containers(pod) {
            assert!(container["image"].as_str().unwrap().starts_with("mirror.example.com/k8s/"), "{name}");
        }
    }
    assert!(lock().missing(&cluster).addon_images.is_empty());
}

fn render_all(cluster: &Cluster) -> AddonSet {
    crate::render(&Inputs::new(cluster, &lock(), &fixture::credentials(cluster), &fixture::site()))
        .unwrap()
        .addons
}

#[test]
fn a_version_that_is_asked_for_needs_a_digest_of_its_own() {
    let mut cluster = cluster();
    cluster.addons.core_dns.version = Some("v1.13.1".to_owned());
    let missing = lock().missing(&cluster).addon_images;
    assert_eq!(missing.into_iter().collect::<Vec<_>>(), ["registry.k8s.io/coredns/coredns:v1.13.1"]);
    let errors =
        crate::render(&Inputs::new(&cluster, &lock(), &fixture::credentials(&cluster), &fixture::site()))
            .unwrap_err();
    assert!(
        errors[0]
            .to_string()
            .contains("pins no digest for the image registry.k8s.io/coredns/coredns:v1.13.1")
    );
}

#[test]
fn p1_a_newer_slipway_moves_no_version_that_is_pinned() {
    let mut lock = lock();
    lock.addon_versions.get_mut("1.34").unwrap().insert("coredns".to_owned(), "v1.0.0".to_owned());
    assert!(lock.missing(&cluster()).addon_versions.is_empty());
    assert_eq!(lock.addon_version(&cluster(), crate::images::Image::CoreDns.name()), Some("v1.0.0"));
}

#[test]
fn workloads_select_their_own_pods_and_no_others() {
    let set = set(&cluster());
    let mut selectors = BTreeSet::new();
    for (_, object) in objects(&set).filter(|(_, object)| object["spec"].get("template").is_some()) {
        let selector = object["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let labels = &object["spec"]["template"]["metadata"]["labels"];
        for (key, value) in selector {
            assert_eq!(&labels[key], value, "{}", object["metadata"]["name"]);
        }
        assert!(selectors.insert(canonical_json(&object["spec"]["selector"])), "{selector:?} is used twice");
    }
}

#[test]
fn pods_have_a_priority_requests_and_no_more_rights_than_they_must() {
    // They change the node itself.
    let privileged = ["kube-proxy", "kube-proxy-controllers", "kube-network-policies", "ebs-csi-node"];
    for (name, pod) in pods(&set(&cluster())) {
        assert!(pod["priorityClassName"].as_str().unwrap().starts_with("system-"), "{name}");
        assert!(pod["serviceAccountName"].is_string(), "{name}");
        for container in containers(pod) {
            let security = &container["securityContext"];
            if security["privileged"] == true {
                assert!(privileged.contains(&name), "{name} is privileged");
            } else {
                assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
                assert_eq!(security["capabilities"]["drop"], serde_json::json!(["ALL"]), "{name}");
                assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            }
            assert!(
                container["resources"]["requests"]["memory"].is_string(),
                "{name}: {}",
                container["name"]
            );
        }
    }
}

#[test]
fn rbac_has_no_wildcard_and_reads_no_secret() {
    let set = set(&cluster());
    for (_, object) in objects(&set) {
        for rule in object["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            assert!(
                !text.contains('*') && !text.contains("secrets"),
                "{}: {text}",
                object["metadata"]["name"]
            );
        }
    }
}

#[test]
fn every_account_that_a_pod_names_is_made_and_bound() {
    let set = set(&cluster());
    let named = |kind: &str| -> BTreeSet<String> {
        objects(&set)
            .filter(|(_, object)| object["kind"] == kind)
            .map(|(_, object)| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let accounts = named("ServiceAccount");
    for (name, pod) in pods(&set) {
        assert!(accounts.contains(pod["serviceAccountName"].as_str().unwrap()), "{name}");
    }
    for (_, binding) in objects(&set).filter(|(_, object)| object["subjects"].is_array()) {
        let subject = &binding["subjects"][0];
        // Who a group is, the certificates say: see `cluster_access`.
        let group = subject["kind"] == "Group";
        assert!(group || accounts.contains(subject["name"].as_str().unwrap()), "{binding}");
        let (kind, role) =
            (binding["roleRef"]["kind"].as_str().unwrap(), binding["roleRef"]["name"].as_str().unwrap());
        let built_in = [
            "system:node-proxier",
            "system:auth-delegator",
            "extension-apiserver-authentication-reader",
            "cluster-admin",
            "system:kubelet-api-admin",
            "system:node-bootstrapper",
            "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
            "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        ];
        assert!(named(kind).contains(role) || built_in.contains(&role), "{role}");
    }
}

#[test]
fn what_uses_aws_stands_on_controllers_and_its_role_is_told() {
    let cluster = cluster();
    let set = set(&cluster);
    let pods = pods(&set);
    let (lock, credentials, site) = (lock(), fixture::credentials(&cluster), fixture::site());
    let context = fixture::context(&cluster, &lock, &credentials, &site);
    let roles = permissions::permissions(&context);
    assert_eq!(roles.len(), 3);
    for role in roles {
        let (name, pod) =
            pods.iter().find(|(_, pod)| pod["serviceAccountName"] == role.service_account).unwrap();
        assert_eq!(pod["nodeSelector"][object::CONTROL_PLANE], "", "{name}");
        assert_eq!(pod["hostNetwork"], true, "{name} cannot reach the metadata service");
        assert_eq!(role.namespace, "kube-system");
        assert!(!role.statements.is_empty());
    }
}

#[test]
fn with_roles_for_service_accounts_each_addon_has_its_own_and_controllers_none() {
    let mut cluster = cluster();
    cluster.iam_roles = Some(slipway_core::cluster::IamRoles { enabled: true, roles: Vec::new() });
    let site =
        slipway_core::release::Site { issuer_bucket: Some("issuers-example".to_owned()), ..fixture::site() };
    let (lock, credentials) = (lock(), fixture::credentials(&cluster));
    let rendering = crate::render(&Inputs::new(&cluster, &lock, &credentials, &site)).unwrap();
    let context = fixture::context(&cluster, &lock, &credentials, &site);
    assert!(instance_statements(&context).is_empty());
    for role in permissions::permissions(&context) {
        let pods = pods(&rendering.addons);
        let (name, pod) =
            pods.iter().find(|(_, pod)| pod["serviceAccountName"] == role.service_account).unwrap();
        let env = pod["containers"][0]["env"].as_array().unwrap();
        let of = |name: &str| env.iter().find(|one| one["name"] == name).map(|one| &one["value"]);
        let own = crate::identity::role_name(&context, &role.name);
        assert!(
            of("AWS_ROLE_ARN").unwrap().as_str().unwrap().ends_with(&format!(":role/slipway/{own}")),
            "{name}"
        );
        assert_eq!(of("AWS_REGION").unwrap(), "eu-west-1");
        let token =
            pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "aws-token").unwrap();
        assert_eq!(token["projected"]["sources"][0]["serviceAccountToken"]["audience"], "sts.amazonaws.com");
        let identity = rendering.stacks.iter().find(|stack| stack.name == "prod-identity").unwrap();
        assert!(identity.body.contains(&own), "no role {own} is made");
    }
}

#[test]
fn a_network_of_ones_own_leaves_flannel_out() {
    let mut cluster = cluster();
    cluster.addons.network = NetworkProvider::None;
    cluster.addons.kube_proxy.enabled = false;
    let names: Vec<String> = set(&cluster).addons.into_iter().map(|addon| addon.name).collect();
    assert!(!names.contains(&"flannel".to_owned()) && !names.contains(&"kube-proxy".to_owned()), "{names:?}");
}

#[test]
fn settings_reach_the_manifests() {
    let mut cluster = cluster();
    cluster.addons.kube_proxy_mode = ProxyMode::Nftables;
    cluster.addons.node_local_dns.enabled = false;
    cluster.addons.core_dns.replicas = Some(4);
    let limits = BTreeMap::from([("memory".to_owned(), "512Mi".to_owned())]);
    cluster.addons.core_dns.resources.insert("limits".to_owned(), limits);
    let requests = BTreeMap::from([("memory".to_owned(), "1Gi".to_owned())]);
    cluster.addons.ebs_csi_driver.resources.insert("requests".to_owned(), requests);
    cluster.addons.core_dns_extra = Some("rewrite name a b".to_owned());
    cluster.addons.core_dns_zones = Some("corp.example.com:53 {\n    forward . 10.9.9.9\n}".to_owned());
    cluster.addons.cluster_autoscaler_options.insert("expander".to_owned(), "priority".to_owned());
    let json = set(&cluster).to_json();
    for text in [
        r#"\"mode\":\"nftables\""#,
        r#"\"EnableNFTables\":true"#,
        r#""replicas":4"#,
        // One of a pair leaves our default of the other no say: the pod would be refused where they contradict.
        r#""resources":{"limits":{"memory":"512Mi"},"requests":{"cpu":"100m"}}"#,
        r#""resources":{"requests":{"cpu":"10m","memory":"1Gi"}}"#,
        r"    rewrite name a b\n",
        r"corp.example.com:53 {\n    forward . 10.9.9.9\n}\n",
        r#""--expander=priority""#,
    ] {
        assert!(json.contains(text), "{text}");
    }
    assert!(!json.contains("least-waste"));
}

#[test]
fn a_single_controller_gets_single_replicas_and_no_budget_that_holds_up_its_drain() {
    let mut cluster = cluster();
    cluster.controller.count = 1;
    let set = set(&cluster);
    let driver = set.addon("aws-ebs-csi-driver").unwrap();
    let controller = driver.objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    assert_eq!(controller["spec"]["replicas"], 1);
    assert!(driver.objects.iter().all(|object| object["kind"] != "PodDisruptionBudget"));
}

/// At a hop limit of 1 the driver cannot count a machine's volumes, and pods would be placed where their volumes cannot be attached.
#[test]
fn volumes_of_the_machine_are_reserved_in_what_the_driver_says_a_node_takes() {
    let argument = |cluster: &Cluster| {
        let set = set(cluster);
        let driver = set.addon("aws-ebs-csi-driver").unwrap();
        let node = driver.objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap();
        let arguments = node["spec"]["template"]["spec"]["containers"][0]["args"].as_array().unwrap();
        let mut found = arguments
            .iter()
            .filter_map(|argument| argument.as_str()?.strip_prefix("--reserved-volume-attachments="));
        found.next().map(str::to_owned)
    };
    let mut cluster = cluster();
    cluster.pools.iter_mut().for_each(|pool| pool.storage.mounts.clear());
    assert_eq!(argument(&cluster), None, "the driver assumes the root volume");
    let mount = |path: &str, devices: &[&str]| Mount {
        path: path.to_owned(),
        devices: devices.iter().map(|device| (*device).to_owned()).collect(),
        volume: cluster.controller.root_volume.clone(),
        file_system: "ext4".to_owned(),
        create_tmp: false,
    };
    let mounts = vec![mount("/data", &["/dev/xvdf", "/dev/xvdg"]), mount("/more", &["/dev/xvdh"])];
    cluster.pools[0].storage.mounts = mounts;
    assert_eq!(argument(&cluster).as_deref(), Some("4"));
}
