//! Why a node is outdated, in words: releases by name and number, no digests, no cut JSON.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_core::diff::{Difference, diff};

use super::words::lines;

/// What people call a part of a machine. Other parts are called by their path.
const MACHINE: [(&str, &str); 9] = [
    ("architecture", "architecture"),
    ("imageId", "image"),
    ("instanceTypes", "instance type"),
    ("instanceProfile", "instance profile"),
    ("keyName", "SSH key"),
    ("rootVolume.sizeGiB", "size of the root volume in GiB"),
    ("rootVolume.type", "type of the root volume"),
    ("securityGroups", "security groups"),
    ("subnet", "subnet"),
];

/// A difference of two machines, in one line for each value.
pub(super) fn of_machine(found: &Difference) -> Vec<String> {
    let [before, after] = [&found.before, &found.after].map(|side| side.as_ref().map(in_short));
    let path = match MACHINE.iter().find(|(path, _)| *path == found.path) {
        Some((_, name)) => (*name).to_owned(),
        None => format!("machine {}", found.path),
    };
    lines(&Difference { path, before, after })
}

/// A list of one instance type as that type, and a reference to a parameter, as only a folder has, as the end of its name.
fn in_short(value: &Value) -> Value {
    let text = match value {
        Value::Array(list) => match list.as_slice() {
            [Value::String(one)] => one,
            _ => return value.clone(),
        },
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => return value.clone(),
    };
    let parameter = text.strip_prefix("{{resolve:ssm:").and_then(|rest| rest.strip_suffix("}}"));
    let name = parameter.and_then(|name| name.rsplit('/').find(|part| *part != "ami-id"));
    Value::from(name.unwrap_or(text))
}

/// The differences of two configurations of nodes. `same_machines`: they are of one architecture; otherwise each program is another build.
pub(super) fn of_config(before: &str, after: &str, same_machines: bool) -> Vec<String> {
    let (Ok(mut before), Ok(mut after)) =
        (serde_json::from_str::<Value>(before), serde_json::from_str::<Value>(after))
    else {
        // An old configuration that is not JSON: the digests differ, and nothing more can be said.
        return vec!["its configuration differs".to_owned()];
    };
    let mut reasons = Vec::new();
    let releases = releases(&mut before, &mut after, &mut reasons);
    software(&mut before, &mut after, &releases, same_machines, &mut reasons);
    images(&mut before, &mut after, &releases, &mut reasons);
    reasons.extend(diff(&before, &after).into_iter().flat_map(|found| {
        let path = format!("config {}", found.path);
        lines(&Difference { path, ..found })
    }));
    if reasons.is_empty() && same_machines {
        reasons.push("its configuration differs".to_owned());
    }
    reasons
}

/// The release of Kubernetes or of etcd before and after.
type Release = (String, String);

/// Says which releases change, and takes them out of both.
fn releases(before: &mut Value, after: &mut Value, reasons: &mut Vec<String>) -> Vec<Release> {
    let mut found = Vec::new();
    for (pointer, name) in [("/kubernetesVersion", "Kubernetes"), ("/etcd/version", "etcd")] {
        let (Some(old), Some(new)) = (text_at(before, pointer), text_at(after, pointer)) else { continue };
        if old == new {
            continue;
        }
        reasons.push(format!("{name} {old} → {new}"));
        for side in [&mut *before, &mut *after] {
            if let Some(value) = side.pointer_mut(pointer) {
                *value = Value::Null;
            }
        }
        found.push((old, new));
    }
    found
}

fn text_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer)?.as_str().map(str::to_owned)
}

/// One of the programs that a node fetches.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    version: String,
    url: String,
    digest: String,
}

/// Says which programs change, and takes the programs out of both.
fn software(
    before: &mut Value,
    after: &mut Value,
    releases: &[Release],
    same_machines: bool,
    reasons: &mut Vec<String>,
) {
    let (Some(old), Some(new)) = (programs(before), programs(after)) else { return };
    for side in [before, after] {
        side.as_object_mut().map(|keys| keys.remove("software"));
    }
    for (name, now) in &new {
        let Some(was) = old.get(name) else {
            reasons.push(format!("{name} {} is installed, from {}", now.version, now.url));
            continue;
        };
        // The versions are in the addresses, and so is the architecture.
        let elsewhere = if same_machines {
            was.url.replace(&was.version, &now.version) != now.url
        } else {
            host(&was.url) != host(&now.url)
        };
        if elsewhere {
            reasons.push(format!("{name} {} is fetched from {}", now.version, now.url));
        }
        if was.version != now.version {
            let follows = releases.iter().any(|(old, new)| *old == was.version && *new == now.version);
            if !follows {
                reasons.push(format!("{name} {} → {}", was.version, now.version));
            }
        } else if !same_machines {
            // The architecture says it for all of them.
        } else if was.digest != now.digest {
            reasons.push(format!("{name} {} is another build, with another checksum", now.version));
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    reasons.extend(gone.map(|name| format!("{name} is not installed any more")));
}

/// Scheme and host.
fn host(url: &str) -> Vec<&str> {
    url.splitn(4, '/').take(3).collect()
}

/// `None`: this is not the list that is known.
fn programs(config: &Value) -> Option<BTreeMap<String, Program>> {
    let list = config.get("software")?.as_array()?;
    list.iter()
        .map(|one| {
            let text = |key: &str| one.get(key).and_then(Value::as_str).map(str::to_owned);
            let program = Program { version: text("version")?, url: text("url")?, digest: text("sha256")? };
            Some((text("name")?, program))
        })
        .collect()
}

/// Says which container images change, and takes the images out of both.
fn images(before: &mut Value, after: &mut Value, releases: &[Release], reasons: &mut Vec<String>) {
    let named = |config: &Value| -> Option<BTreeMap<String, String>> {
        serde_json::from_value(config.get("images")?.clone()).ok()
    };
    let (Some(old), Some(new)) = (named(before), named(after)) else { return };
    for side in [before, after] {
        side.as_object_mut().map(|keys| keys.remove("images"));
    }
    for (name, now) in &new {
        let Some(was) = old.get(name) else {
            reasons.push(format!("image {name} is new: {now}"));
            continue;
        };
        let ((old_place, old_tag), (place, tag)) = (parts(was), parts(now));
        if was == now {
            continue;
        }
        if old_place != place {
            reasons.push(format!("image {name} {tag} comes from {place}"));
        } else if old_tag == tag {
            reasons.push(format!("image {name} {tag} is another build, with another digest"));
        } else if !releases
            .iter()
            .any(|(old, new)| old_tag.trim_start_matches('v') == old && tag.trim_start_matches('v') == new)
        {
            reasons.push(format!("image {name} {old_tag} → {tag}"));
        }
    }
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    reasons.extend(gone.map(|name| format!("image {name} is not used any more")));
}

/// Repository and tag of `repository:tag@digest`.
fn parts(image: &str) -> (&str, &str) {
    let tagged = image.split('@').next().unwrap_or(image);
    // A colon before the last slash belongs to the registry's port.
    let name_at = tagged.rfind('/').unwrap_or(0);
    match tagged[name_at..].find(':') {
        Some(colon) => (&tagged[..name_at + colon], &tagged[name_at + colon + 1..]),
        None => (tagged, ""),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(kubernetes: &str, containerd: (&str, &str), pause: &str) -> String {
        let digest = |letter: &str| letter.repeat(64);
        json!({
            "kubernetesVersion": kubernetes,
            "images": {
                "kube-apiserver": format!("registry.k8s.io/kube-apiserver:v{kubernetes}@sha256:{}", digest("a")),
                "pause": pause,
            },
            "software": [
                {"name": "containerd", "version": containerd.0, "url": "https://x", "sha256": digest(containerd.1)},
                {"name": "kubelet", "version": kubernetes, "url": format!("https://x/{kubernetes}"), "sha256": digest(kubernetes)},
            ],
        })
        .to_string()
    }

    #[test]
    fn p3_a_release_is_said_once_by_name_and_number() {
        let (pause, other) = ("registry.k8s.io/pause:3.10@sha256:1", "registry.k8s.io/pause:3.10@sha256:2");
        let old = node("1.36.1", ("2.4.2", "c"), pause);
        let reasons = |new: String| of_config(&old, &new, true);
        assert_eq!(reasons(node("1.37.2", ("2.4.2", "c"), pause)), ["Kubernetes 1.36.1 → 1.37.2"]);
        assert_eq!(
            reasons(node("1.36.1", ("2.4.3", "d"), other)),
            ["containerd 2.4.2 → 2.4.3", "image pause 3.10 is another build, with another digest"]
        );
        assert_eq!(
            reasons(node("1.36.1", ("2.4.2", "d"), "mirror:5000/pause:3.10@sha256:1")),
            [
                "containerd 2.4.2 is another build, with another checksum",
                "image pause 3.10 comes from mirror:5000/pause"
            ]
        );
    }

    #[test]
    fn p3_etcds_release_is_said_once() {
        let member = |version: &str| {
            let program = json!({"name": "etcd", "version": version, "url": version, "sha256": version});
            json!({"etcd": {"name": "etcd-0", "version": version}, "software": [program]}).to_string()
        };
        assert_eq!(of_config(&member("3.6.16"), &member("3.7.3"), true), ["etcd 3.6.16 → 3.7.3"]);
    }

    #[test]
    fn p3_what_is_not_known_is_said_by_its_path() {
        let config = |value: Value| json!({"kubelet": {"maxPods": value}, "software": 1}).to_string();
        assert_eq!(
            of_config(&config(json!(58)), &config(json!(59)), true),
            ["config kubelet.maxPods: 58 → 59"]
        );
        assert_eq!(of_config("x", "{}", true), ["its configuration differs"]);
    }
}
