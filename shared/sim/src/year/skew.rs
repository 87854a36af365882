//! Version skew, read from the machines (kubernetes.io/releases/version-skew-policy). The configuration that a machine was launched with
//! says which version it runs; no plan is used.

use std::collections::BTreeMap;

use slipway_core::release::Rendering;

use crate::world::{MachineFacts, Power};

/// How many minors a kubelet may be older than an API server.
const KUBELETS: u16 = 3;

/// The minor of every configuration that ever existed.
#[derive(Debug, Clone, Default)]
pub struct Skew {
    minors: BTreeMap<String, u16>,
}

impl Skew {
    /// Records the versions of a release's configurations.
    pub fn knows(&mut self, release: &Rendering) {
        let read = |version: &str| version.split('.').nth(1)?.parse().ok();
        let of_roles = release.roles.values();
        self.minors.extend(
            of_roles.filter_map(|node| Some((node.config_digest.clone(), read(node.version.as_deref()?)?))),
        );
    }

    /// The minors of the running machines whose role has the prefix `role`, by machine.
    fn running<'m>(
        &'m self,
        machines: impl Iterator<Item = &'m MachineFacts> + Clone,
        role: &'static str,
    ) -> impl Iterator<Item = (&'m str, u16)> + Clone {
        machines
            .filter(move |one| one.role.starts_with(role) && one.ready && one.power == Power::Up)
            .filter_map(|one| Some((one.id.as_str(), *self.minors.get(&one.config)?)))
    }

    /// Whether there are machines of that role, and each of them runs another minor.
    pub(super) fn is_another<'m>(
        &self,
        machines: impl Iterator<Item = &'m MachineFacts>,
        role: &str,
        minor: u16,
    ) -> bool {
        let of_role = machines.filter(|one| one.role == role);
        let minors: Vec<u16> = of_role.filter_map(|one| self.minors.get(&one.config).copied()).collect();
        !minors.is_empty() && !minors.contains(&minor)
    }

    /// The violations of the skew policy among the running machines.
    pub(super) fn amiss<'m>(
        &'m self,
        machines: impl Iterator<Item = &'m MachineFacts> + Clone,
    ) -> Vec<(&'static str, String)> {
        let mut amiss = Vec::new();
        let servers = self.running(machines.clone(), "controller");
        if let Some((oldest, newest)) = bounds(servers) {
            if newest > oldest + 1 {
                amiss.push(("P5", format!("API servers of 1.{oldest} and 1.{newest} serve together")));
            }
            for (id, minor) in self.running(machines.clone(), "pool-") {
                if minor > oldest {
                    amiss.push((
                        "P5",
                        format!("the kubelet of {id} is of 1.{minor}, and an API server of 1.{oldest}"),
                    ));
                } else if minor + KUBELETS < newest {
                    amiss.push((
                        "P5",
                        format!("the kubelet of {id} is of 1.{minor}, and an API server of 1.{newest}"),
                    ));
                }
            }
        }
        if let Some((oldest, newest)) = bounds(self.running(machines, "etcd-"))
            && newest > oldest + 1
        {
            amiss.push(("P4", format!("members of etcd of minors {oldest} and {newest} run together")));
        }
        amiss
    }
}

/// The lowest and the highest of them; `None` if there are none.
fn bounds<'m>(versions: impl Iterator<Item = (&'m str, u16)> + Clone) -> Option<(u16, u16)> {
    Some((versions.clone().map(|(_, minor)| minor).min()?, versions.map(|(_, minor)| minor).max()?))
}
