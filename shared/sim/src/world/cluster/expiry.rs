//! Expired certificates: processes keep running, but nobody accepts their certificates.

use slipway_credentials::policy::KUBERNETES_DIR;

use super::super::World;
use super::super::machine::Machine;
use super::super::task::ClusterTask;
use super::quota::NO_SPACE_LEFT;

impl World {
    /// Lets every certificate that a machine of `cluster` has now expire: members of etcd refuse each other, API servers do not
    /// reach etcd, and API servers refuse kubelets. Credentials that are installed later by `Slipway-Refresh` are valid.
    pub fn expire(&mut self, cluster: &str) {
        let ids: Vec<String> = self
            .fleet
            .machines
            .values()
            .filter(|machine| machine.cluster() == Some(cluster))
            .map(|machine| machine.id.clone())
            .collect();
        for id in ids {
            if let Some(machine) = self.fleet.machines.get_mut(&id) {
                let role = machine.role().to_owned();
                let member = role.starts_with("etcd-");
                // A worker has no certificate of ours; its kubelet requests its own.
                machine.expired = member || role == "controller";
                machine.locked_out = !member;
                if member {
                    self.etcd_stops(cluster, &role);
                }
            }
        }
        self.record(format!("every certificate of {cluster} has expired"));
    }

    /// `machine` has other credentials than the expired ones.
    pub(in crate::world) fn no_longer_expired(&mut self, machine: &Machine) {
        let Some(found) = self.fleet.machines.get_mut(&machine.id).filter(|machine| machine.expired) else {
            return;
        };
        found.expired = false;
        if machine.role().starts_with("etcd-") {
            // The other members accept the process, which has kept running.
            self.cluster_after_s(1.0, ClusterTask::EtcdReturns { machine: machine.id.clone() });
        }
    }

    /// A kubelet that is refused requests another certificate; `None` if its certificate is valid. The error is the agent's
    /// message.
    pub(in crate::world) fn kubelet_asks(&mut self, machine: &Machine) -> Option<Result<(), String>> {
        let cluster = machine.cluster()?.to_owned();
        if !self.fleet.machines.get(&machine.id)?.locked_out {
            return None;
        }
        if !self.api_serves(&cluster) {
            let file = format!("{KUBERNETES_DIR}/kubelet-ca.pem");
            return Some(Err(format!("no API server signs by {file} yet")));
        }
        if self.refuses_writes(&cluster) {
            return Some(Err(NO_SPACE_LEFT.to_owned()));
        }
        self.fleet.machines.get_mut(&machine.id)?.locked_out = false;
        Some(Ok(()))
    }
}
