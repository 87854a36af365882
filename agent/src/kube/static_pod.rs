//! A component of the control plane as a static pod: on the host network, with the highest priority and read-only credentials.
//! The probes are kubeadm's.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::Component;

use super::flags::Flags;
use super::json as text;
use crate::machine::File;
use crate::static_pods::{MANIFESTS, Program};

/// Files of the user's for the components. A pod whose flags name the folder sees it.
const CUSTOM: &str = "/etc/kubernetes/custom";

/// The endpoints of its probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Probes {
    pub(super) port: u16,
    /// `/livez`, or the component's older path.
    pub(super) live: &'static str,
    pub(super) ready: Option<&'static str>,
}

/// A folder or file of the machine, mounted at the same path in the pod.
#[derive(Debug)]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) read_only: bool,
    /// Whether a missing folder is created; else the pod waits for it.
    pub(super) made: bool,
}

impl Volume {
    pub(super) fn folder(name: &str, path: &str, read_only: bool) -> Self {
        Self { name: name.to_owned(), path: path.to_owned(), read_only, made: true }
    }
}

pub(super) struct StaticPod<'c> {
    pub(super) program: Program,
    pub(super) flags: Flags,
    pub(super) probes: Probes,
    /// The CPU request, unless the spec sets another.
    pub(super) cpu: &'static str,
    pub(super) volumes: Vec<Volume>,
    pub(super) component: &'c Component,
}

impl StaticPod<'_> {
    pub(super) fn file(mut self, image: &str) -> File {
        // A bind mount of a single file would keep the old file after a replacement.
        let own = Volume::folder("slipway-kubernetes", self.program.folder(), true);
        self.volumes.insert(0, Volume { made: false, ..own });
        if self.component.flags.values().any(|value| value.contains(CUSTOM)) {
            let custom = Volume::folder("slipway-custom", CUSTOM, true);
            self.volumes.push(Volume { made: false, ..custom });
        }
        self.volumes.extend(self.component.volumes.iter().map(|volume| Volume {
            name: volume.name.clone(),
            path: volume.path.clone(),
            read_only: volume.read_only,
            made: false,
        }));
        let name = self.program.name();
        let manifest = text(&self.manifest(image));
        File { path: format!("{MANIFESTS}/{name}.json"), mode: 0o600, content: manifest }
    }

    fn manifest(&self, image: &str) -> Value {
        let name = self.program.name();
        let mut command = vec![name.to_owned()];
        command.extend(self.flags.arguments());
        let mut container = json!({
            "name": name,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": command,
            "ports": [{ "name": "probe-port", "containerPort": self.probes.port, "protocol": "TCP" }],
            "resources": self.resources(),
            // With period 10: a component that loads much data is slow, not dead.
            "startupProbe": self.probe(self.probes.live, 24, 10),
            "livenessProbe": self.probe(self.probes.live, 8, 10),
            "volumeMounts": self.volumes.iter().map(|volume| json!({
                "name": volume.name, "mountPath": volume.path, "readOnly": volume.read_only,
            })).collect::<Vec<_>>(),
        });
        if let Some(ready) = self.probes.ready {
            container["readinessProbe"] = self.probe(ready, 3, 1);
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "kube-system",
                "labels": { "component": name, "tier": "control-plane" },
            },
            "spec": {
                "hostNetwork": true,
                "priority": 2_000_001_000,
                "priorityClassName": "system-node-critical",
                "securityContext": { "seccompProfile": { "type": "RuntimeDefault" } },
                "containers": [container],
                "volumes": self.volumes.iter().map(|volume| {
                    let kind = if volume.made { "DirectoryOrCreate" } else { "" };
                    json!({ "name": volume.name, "hostPath": { "path": volume.path, "type": kind } })
                }).collect::<Vec<_>>(),
            },
        })
    }

    fn probe(&self, path: &str, failures: u32, period: u32) -> Value {
        json!({
            "httpGet": { "host": "127.0.0.1", "path": path, "port": "probe-port", "scheme": "HTTPS" },
            "failureThreshold": failures,
            "periodSeconds": period,
            "timeoutSeconds": 15,
        })
    }

    fn resources(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        let mut resources = self.component.resources.clone();
        let requests = resources.entry("requests".to_owned()).or_default();
        requests.entry("cpu".to_owned()).or_insert_with(|| self.cpu.to_owned());
        resources
    }
}
