//! Kubernetes on a node, as data: from what a node is told and what its machine is to files and units. Nothing here reads, asks or
//! decides anything else, so that the same inputs give the same bytes.
//!
//! - [`kubelet`], [`containerd`]: every node has them.
//! - [`api_server`], [`controller_manager`], [`scheduler`]: a controller's static pods, made by [`static_pod`].
//! - [`flags`]: what they are all told by.
//!
//! No secret comes through here. The files name where the credentials' bundle puts its own
//! ([`slipway_credentials::policy::bundle`]), and whoever starts reads them there.

mod api_server;
mod containerd;
mod controller_manager;
mod flags;
mod kubeconfig;
mod kubelet;
pub mod restarted;
mod scheduler;
mod static_pod;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde_json::Value;
use slipway_core::node::{Base, ControllerConfig, WorkerConfig};
use slipway_core::software::Program;
use slipway_credentials::policy::KUBERNETES_DIR;

use crate::machine::{File, Furniture};
use crate::software::PROGRAMS;
use crate::status::publish;
use crate::{leave, manage};

pub use flags::STATIC_PODS;
pub use static_pod::MANIFESTS;

/// What is Kubernetes' own; the credentials lie below it.
pub const DIR: &str = "/etc/kubernetes";
/// By which the node manager speaks to the API server beside it.
pub const NODE_MANAGER_KUBECONFIG: &str = "/etc/kubernetes/node-manager.kubeconfig";
/// Written by the kubelet, once it is somebody.
pub const KUBELET_KUBECONFIG: &str = kubelet::KUBECONFIG;

/// The certificate that the API server's own requests to extensions carry, and the name in it.
const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// What a machine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The instance, and so the node's name: unlike a private DNS name it never comes back as another machine's, and whoever
    /// replaces machines knows them by it. The cloud provider finds the machine by `providerID`, which holds it too.
    pub instance_id: String,
    /// Its availability zone.
    pub zone: String,
    /// Its first private address.
    pub address: IpAddr,
    /// What pods with the node's own DNS resolve by: where systemd-resolved runs, `/run/systemd/resolve/resolv.conf`, as its
    /// stub is reached from the node alone; else `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Whether the credentials hold a file `root-ca.pem`, as they do where the authority `ca` was brought.
    pub root_ca: bool,
}

impl Facts {
    /// The name under which the kubelet registers its node.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.instance_id
    }

    fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.instance_id)
    }
}

/// What a controller wants on its machine. Its kubelet starts the static pods before any API answers, and registers when one does.
#[must_use]
pub fn controller(config: &ControllerConfig, facts: &Facts) -> Furniture {
    let mut furniture = containerd::furniture(&config.base, None);
    for (name, credentials) in [
        ("controller-manager", "controller-manager"),
        ("scheduler", "scheduler"),
        ("node-manager", "node-manager"),
    ] {
        let content = kubeconfig::with_certificate(&config.api_server, credentials);
        furniture.files.push(File::public(format!("{DIR}/{name}.kubeconfig"), content));
    }
    furniture.files.extend(api_server::files(config));
    for pod in
        [api_server::pod(config, facts), controller_manager::pod(config, facts), scheduler::pod(config)]
    {
        let image = image(&config.base, pod.program.name()).to_owned();
        furniture.files.push(pod.file(&image));
    }
    let settings = kubelet::Settings {
        program: program(&config.base, Program::Kubelet, "kubelet"),
        kubelet: &config.kubelet,
        feature_gates: &config.feature_gates,
        api_server: &config.api_server,
        static_pods: true,
    };
    let mut furniture = joined(furniture, kubelet::furniture(&settings, facts));
    furniture.units.extend(manage::units());
    furniture.units.extend(publish::units());
    furniture.units.push(leave::unit());
    furniture
}

/// What a worker wants on its machine.
#[must_use]
pub fn worker(config: &WorkerConfig, facts: &Facts) -> Furniture {
    let furniture = containerd::furniture(&config.base, config.machine.gpu.as_deref());
    let settings = kubelet::Settings {
        program: program(&config.base, Program::Kubelet, "kubelet"),
        kubelet: &config.kubelet,
        feature_gates: &config.feature_gates,
        api_server: &config.api_server,
        static_pods: false,
    };
    let mut furniture = joined(furniture, kubelet::furniture(&settings, facts));
    furniture.units.extend(publish::units());
    furniture
}

fn joined(mut furniture: Furniture, more: Furniture) -> Furniture {
    furniture.files.extend(more.files);
    furniture.units.extend(more.units);
    furniture
}

/// The image of that name, which every configuration that can be read has.
fn image<'c>(base: &'c Base, name: &str) -> &'c str {
    base.images.get(name).map(String::as_str).unwrap_or_default()
}

/// How a unit names a program: where the agent installs it, or by its name alone where the image has it, for systemd to find
/// below `/usr/local/bin` and `/usr/bin`.
fn program(base: &Base, of: Program, name: &str) -> String {
    let installed = base.software.iter().any(|file| file.name == of);
    if installed { format!("/{PROGRAMS}/{name}") } else { name.to_owned() }
}

/// A file of the credentials.
fn pki(name: &str) -> String {
    format!("{KUBERNETES_DIR}/{name}")
}

/// JSON, which is YAML too, with its keys in order.
fn json(value: &Value) -> String {
    format!("{value:#}\n")
}
