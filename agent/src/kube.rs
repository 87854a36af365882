//! Kubernetes on a node, as data: from a node's configuration and facts of its machine to files and units. This module reads
//! nothing and calls nothing, so the same inputs give the same bytes.
//!
//! - [`kubelet`], [`containerd`]: on every node.
//! - [`api_server`], [`controller_manager`], [`scheduler`]: the static pods of a controller, made by [`static_pod`].
//! - [`flags`]: command-line flags.
//!
//! No secret passes through here. The files name the paths at which the bundle of credentials
//! ([`slipway_credentials::policy::bundle`]) puts its files.

mod api_server;
mod containerd;
mod controller_manager;
mod flags;
mod kubeconfig;
mod kubelet;
pub mod restart_mark;
mod scheduler;
mod static_pod;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde_json::Value;
use slipway_core::node::{Base, ControllerConfig, WorkerConfig};
use slipway_core::software::Program;
use slipway_credentials::policy::KUBERNETES_DIR;

use crate::machine::{File, Setup};
use crate::software::PROGRAMS;
use crate::static_pods::Program as StaticPod;
use crate::status::publish;
use crate::{leave, manage, run_command};

pub use crate::api::{KUBELET_KUBECONFIG, NODE_MANAGER_KUBECONFIG};

/// The folder of Kubernetes' files. The credentials are below it.
pub const DIR: &str = "/etc/kubernetes";

/// The kubeconfig of a static pod, in its folder.
const KUBECONFIG: &str = "kubeconfig";
/// The API server's client certificate for extension servers, and the name in it.
const FRONT_PROXY_CLIENT: &str = "front-proxy-client";

/// What the files and units depend on besides the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The instance's id, which is also the node's name. Unlike a private DNS name it is never reused, and rollouts know machines
    /// by it. The cloud provider finds the machine by `providerID`, which contains it.
    pub instance_id: String,
    pub zone: String,
    pub address: IpAddr,
    /// The resolver configuration for pods that use the node's DNS. Where systemd-resolved runs,
    /// `/run/systemd/resolve/resolv.conf`, as pods cannot reach its stub; else `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Whether the credentials contain `root-ca.pem`, as they do for an imported authority `ca`.
    pub root_ca: bool,
}

impl Facts {
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.instance_id
    }

    fn provider_id(&self) -> String {
        format!("aws:///{}/{}", self.zone, self.instance_id)
    }
}

/// Files and units of a controller. Its kubelet starts the static pods before any API answers, and registers when one does.
#[must_use]
pub fn controller(config: &ControllerConfig, facts: &Facts) -> Setup {
    let mut setup = containerd::setup(&config.base, None);
    for (path, folder, name) in [
        (
            StaticPod::ControllerManager.file(KUBECONFIG),
            StaticPod::ControllerManager.folder(),
            "controller-manager",
        ),
        (StaticPod::Scheduler.file(KUBECONFIG), StaticPod::Scheduler.folder(), "scheduler"),
        (NODE_MANAGER_KUBECONFIG.to_owned(), KUBERNETES_DIR, "node-manager"),
    ] {
        let content = kubeconfig::with_certificate(&config.api_server, folder, name);
        setup.files.push(File::private(path, content));
    }
    setup.files.extend(api_server::files(config));
    for pod in
        [api_server::pod(config, facts), controller_manager::pod(config, facts), scheduler::pod(config)]
    {
        let image = image(&config.base, pod.program.name()).to_owned();
        setup.files.push(pod.file(&image));
    }
    let settings = kubelet::Settings {
        program: program(&config.base, Program::Kubelet, "kubelet"),
        kubelet: &config.kubelet,
        feature_gates: &config.feature_gates,
        api_server: &config.api_server,
        static_pods: true,
    };
    let mut setup = merged(setup, kubelet::setup(&settings, facts));
    setup.units.extend(manage::units());
    setup.units.extend(publish::units());
    setup.units.push(leave::unit());
    setup.files.extend(run_command::files());
    setup
}

/// Files and units of a worker.
#[must_use]
pub fn worker(config: &WorkerConfig, facts: &Facts) -> Setup {
    let setup = containerd::setup(&config.base, config.machine.gpu.as_deref());
    let settings = kubelet::Settings {
        program: program(&config.base, Program::Kubelet, "kubelet"),
        kubelet: &config.kubelet,
        feature_gates: &config.feature_gates,
        api_server: &config.api_server,
        static_pods: false,
    };
    let mut setup = merged(setup, kubelet::setup(&settings, facts));
    setup.units.extend(publish::units());
    setup.files.extend(run_command::files());
    setup
}

fn merged(mut setup: Setup, more: Setup) -> Setup {
    setup.files.extend(more.files);
    setup.units.extend(more.units);
    setup
}

/// The image of that name. Reading a configuration checks that it has all of them.
fn image<'c>(base: &'c Base, name: &str) -> &'c str {
    base.images.get(name).map(String::as_str).unwrap_or_default()
}

/// The path of an installed program, or its bare name if the image has it: systemd searches `/usr/local/bin` and `/usr/bin`.
fn program(base: &Base, package: Program, name: &str) -> String {
    let installed = base.software.iter().any(|file| file.name == package);
    if installed { format!("/{PROGRAMS}/{name}") } else { name.to_owned() }
}

fn pki(name: &str) -> String {
    format!("{KUBERNETES_DIR}/{name}")
}

/// JSON with sorted keys. JSON is also YAML.
fn json(value: &Value) -> String {
    format!("{value:#}\n")
}
