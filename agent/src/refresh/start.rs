//! Files that a process reads only at its start, so that it needs a restart to use new ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use slipway_core::node::NodeConfig;
use slipway_core::node::report::ComponentName;

use crate::credentials::{self, Bundle};
use crate::static_pods::Program;
use crate::status::credentials_folder;

/// A process that reads credentials, in the order of restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Process {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
}

impl Process {
    /// The name in statuses, units and manifests.
    #[must_use]
    pub(super) fn name(self) -> &'static str {
        self.component().as_str()
    }

    #[must_use]
    pub(super) const fn component(self) -> ComponentName {
        match self {
            Self::Etcd => ComponentName::Etcd,
            Self::ApiServer => ComponentName::ApiServer,
            Self::ControllerManager => ComponentName::ControllerManager,
            Self::Scheduler => ComponentName::Scheduler,
            Self::Kubelet => ComponentName::Kubelet,
        }
    }

    /// The folder of the credentials that it reads.
    fn folder(self, config: &NodeConfig) -> &'static str {
        match self {
            Self::Etcd | Self::Kubelet => credentials_folder(config),
            Self::ApiServer => Program::ApiServer.folder(),
            Self::ControllerManager => Program::ControllerManager.folder(),
            Self::Scheduler => Program::Scheduler.folder(),
        }
    }

    /// The processes of a role.
    #[must_use]
    pub(super) fn all_of(config: &NodeConfig) -> &'static [Self] {
        match config {
            NodeConfig::Etcd(_) => &[Self::Etcd],
            NodeConfig::Controller(_) => {
                &[Self::ApiServer, Self::ControllerManager, Self::Scheduler, Self::Kubelet]
            }
            NodeConfig::Worker(_) => &[Self::Kubelet],
        }
    }

    /// The files that it reads only at its start. etcd: the authority of its clients and peers (etcd #11555). The API server: the
    /// authorities of etcd and kubelets, keys of service accounts. The controller manager: the key that signs
    /// tokens, and the authority that pods get. Clients with a kubeconfig: the API server's authority, before Kubernetes 1.36
    /// (client-go's `ClientsAllowCARotation`). All other files are watched or read at each handshake.
    fn files_read_at_start(self) -> &'static [&'static str] {
        match self {
            Self::Etcd => &["etcd-ca.pem"],
            Self::ApiServer => &[
                // It verifies kubelets by this file, read once; clients it verifies by the watched content.
                "client-ca.pem",
                "etcd-ca.pem",
                "service-account-key.pem",
                "service-account.pub.pem",
            ],
            Self::ControllerManager => &["ca.pem", "root-ca.pem", "service-account-key.pem"],
            Self::Scheduler | Self::Kubelet => &["ca.pem"],
        }
    }
}

/// The processes that must restart for `bundle`, each with the first changed file. Compared with the files in force, and with the
/// previous ones while a change is not settled: a run that died may have restarted nothing.
#[must_use]
pub(super) fn needs_restart(root: &Path, config: &NodeConfig, bundle: &Bundle) -> BTreeMap<Process, String> {
    let processes = Process::all_of(config).iter().filter_map(|process| {
        let folder = process.folder(config);
        let reads_another = |path: &String| {
            let stands = credentials::in_force(root, folder, path);
            bundle.text(path).is_some_and(|comes| stands.iter().any(|stands| !same_content(stands, comes)))
        };
        let mut paths = process.files_read_at_start().iter().map(|name| format!("{folder}/{name}"));
        Some((*process, paths.find(reads_another)?))
    });
    processes.collect()
}

/// Whether two files have the same certificates or keys, in any order.
fn same_content(one: &str, other: &str) -> bool {
    parts(one) == parts(other)
}

fn parts(text: &str) -> BTreeSet<&str> {
    text.split_inclusive("-----END ").flat_map(|part| part.split("-----BEGIN ")).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;
    use slipway_credentials::policy::KUBERNETES_DIR;
    use slipway_ports::Secret;

    use super::*;
    use crate::credentials::{below, write};
    use crate::static_pods;

    fn bundle(files: &[(&str, &str)]) -> Bundle {
        let files: BTreeMap<String, &str> =
            files.iter().map(|(name, text)| (format!("{KUBERNETES_DIR}/{name}"), *text)).collect();
        let bundle = Secret::new(json!({ "format": 1, "files": files }).to_string().into_bytes());
        Bundle::read(&bundle).unwrap().with_copies(static_pods::copies)
    }

    fn names(due: &BTreeMap<Process, String>) -> Vec<&'static str> {
        due.keys().map(|process| process.name()).collect()
    }

    #[test]
    fn who_reads_at_its_start_what_changes_is_started_anew_and_nobody_else() {
        let root = tempfile::tempdir().unwrap();
        let controller = NodeConfig::read(include_str!("../kube/testdata/controller.json")).unwrap();
        let worker = NodeConfig::read(include_str!("../kube/testdata/worker.json")).unwrap();
        for name in ["apiserver.pem", "etcd-ca.pem", "ca.pem", "service-account-key.pem"] {
            let path = format!("{KUBERNETES_DIR}/{name}");
            for path in static_pods::copies(&path).into_iter().chain([path]) {
                let file = below(root.path(), &path);
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(file, "one").unwrap();
            }
        }
        let due = |config: &NodeConfig, files: &[(&str, &str)]| {
            names(&needs_restart(root.path(), config, &bundle(files)))
        };
        assert_eq!(due(&controller, &[("apiserver.pem", "two"), ("etcd-ca.pem", "one")]), [""; 0]);
        assert_eq!(due(&controller, &[("etcd-ca.pem", "two")]), ["kube-apiserver"]);
        let signing = [("service-account-key.pem", "two")];
        assert_eq!(due(&controller, &signing), ["kube-apiserver", "kube-controller-manager"]);
        let authority = [("ca.pem", "two")];
        assert_eq!(due(&controller, &authority), ["kube-controller-manager", "kube-scheduler", "kubelet"]);
        assert_eq!(due(&worker, &authority), ["kubelet"]);
        assert_eq!(due(&worker, &[("bootstrap-token", "two")]), [""; 0], "it is read when it is used");
    }

    #[test]
    fn p8_a_swap_that_nobody_settled_is_not_taken_for_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let config = NodeConfig::read(include_str!("../kube/testdata/controller.json")).unwrap();
        let (one, two) = (bundle(&[("etcd-ca.pem", "one")]), bundle(&[("etcd-ca.pem", "two")]));
        write(root.path(), "a1", &one).unwrap().remove_previous().unwrap();
        // Died before it restarted anybody.
        drop(write(root.path(), "a2", &two).unwrap());
        for bundle in [&one, &two] {
            assert_eq!(names(&needs_restart(root.path(), &config, bundle)), ["kube-apiserver"]);
        }
        write(root.path(), "a2", &two).unwrap().remove_previous().unwrap();
        assert_eq!(names(&needs_restart(root.path(), &config, &two)), [""; 0]);
    }

    #[test]
    fn the_order_of_authorities_says_nothing() {
        let pem = |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let (a, b) = (pem("QUE="), pem("QkI="));
        assert!(same_content(&format!("{a}{b}"), &format!("{b}{a}")));
        assert!(!same_content(&a, &format!("{a}{b}")) && !same_content(&a, &b));
        assert!(!same_content("token-1,user", "token-2,user"));
    }
}
