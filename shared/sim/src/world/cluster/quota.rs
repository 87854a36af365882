//! What a cluster cannot do while etcd refuses writes, because a member has raised `NOSPACE`.
//!
//! "If the keyspace for any member exceeds the space quota, etcd raises a cluster-wide alarm that puts the cluster into a maintenance mode
//! that only accepts key reads and deletes" (etcd documentation, "Maintenance", "Space quota"). etcd's `applierV3Capped` refuses `Put`,
//! `LeaseGrant`, and each `Txn` that puts a key (etcd-io/etcd, `server/etcdserver/apply`). So an API server refuses everything except
//! reads and final deletions: no node registers or is cordoned, no pod is created, scheduled or evicted (an eviction writes the pod's
//! `deletionTimestamp`), and no certificate is requested. The membership of etcd can still change, and snapshots can be taken. The leases
//! of kubelets are not renewed, but the node controller cannot write that a node is not ready either.

use slipway_core::node::defragment::NO_SPACE;

use super::super::World;

/// The error of an API server whose etcd refuses a write.
pub(super) const NO_SPACE_LEFT: &str = "etcdserver: mvcc: database space exceeded";

impl World {
    /// Whether etcd of a cluster accepts no new keys.
    pub(in crate::world) fn refuses_writes(&self, cluster: &str) -> bool {
        let etcd = self.fleet.clusters.get(cluster).map(|found| &found.etcd);
        etcd.and_then(|etcd| etcd.alarm.as_ref()).is_some_and(|(_, kind)| *kind == NO_SPACE)
    }

    /// The alarm is disarmed: what controllers and schedulers could not write, they write now.
    pub(in crate::world) fn accepts_writes(&mut self, cluster: &str) {
        self.replenish(cluster);
        self.schedule_pods(cluster);
    }
}
