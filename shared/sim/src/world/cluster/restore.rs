//! The restore of etcd from a snapshot, member by member, as `slipway-node etcd restore` answers it.

use jiff::Timestamp;
use slipway_core::node::{
    FailureCode, RestoreMark, RestoreOrder, RestoreStage, Restored, RestoredEtcd, Verb, VerbFailure,
    initial_cluster,
};

use super::super::World;
use super::super::machine::Machine;
use super::HELP;

/// A member's restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Restore {
    token: String,
    /// Whether its data were replaced. If not, they are only prepared.
    is_whole: bool,
}

impl World {
    /// A member that is restored restarts. That those with the old data have no majority any more after the first half is not modelled.
    pub(in crate::world) fn etcd_restore(
        &mut self,
        cluster: &str,
        machine: &Machine,
        verb: &Verb,
    ) -> Result<Restored, VerbFailure> {
        let Verb::EtcdRestore(order) = verb else {
            return Err(VerbFailure::permanent(FailureCode::Usage, "it is no restore", HELP));
        };
        let RestoreOrder { snapshot, token, members, bump, sha256, stage } = &**order;
        let role = machine.role();
        let mark = RestoreMark {
            sha256: self.hex(&format!("snapshot {cluster} {snapshot}")),
            bumped: true,
            bump: Some(*bump),
            started: *stage == RestoreStage::Whole,
            ..RestoreMark::new(snapshot.clone(), token.clone(), initial_cluster(members))
        };
        if let Some(wanted) = sha256.as_ref().filter(|wanted| **wanted != mark.sha256) {
            let message =
                format!("the snapshot holds a database with the SHA-256 {}, and not {wanted}", mark.sha256);
            return Err(VerbFailure::permanent(FailureCode::RestoreWrongSnapshot, message, HELP));
        }
        let etcd = self.etcd(cluster);
        if !etcd.snapshots.iter().any(|taken| time(*taken) == *snapshot) {
            let message = format!("no snapshot of {snapshot} can be read");
            return Err(VerbFailure::permanent(FailureCode::AwsMissing, message, HELP));
        }
        if !members.contains_key(role) {
            let message = format!("the list of members to restore lacks this member, {role}");
            return Err(VerbFailure::permanent(FailureCode::RestoreMembers, message, HELP));
        }
        let same = |restore: &&Restore| restore.token == *token;
        let found = etcd.restores.get(role).filter(same).map(|restore| restore.is_whole);
        let changed = *stage == RestoreStage::Whole && found != Some(true);
        if *stage == RestoreStage::Discard && found == Some(false) {
            etcd.restores.remove(role);
        }
        if matches!(stage, RestoreStage::Prepare | RestoreStage::Whole) && (changed || found.is_none()) {
            etcd.restores.insert(role.to_owned(), Restore { token: token.clone(), is_whole: changed });
        }
        let with = etcd.restores.values().filter(same).filter(|restore| restore.is_whole).count();
        let state = match stage {
            RestoreStage::Verify | RestoreStage::Prepare | RestoreStage::Discard => RestoredEtcd::Unchanged,
            RestoreStage::Whole if with > members.len() / 2 => RestoredEtcd::Serving,
            RestoreStage::Whole => RestoredEtcd::Waiting,
        };
        if changed {
            etcd.restored += 1;
            self.record(format!("{role} of {cluster} is restored from the snapshot of {snapshot}"));
            self.etcd_restarts(machine);
        }
        let kept_aside = changed.then(|| format!("/var/lib/etcd/data.before-{snapshot}-1"));
        Ok(Restored { changed, mark, kept_aside, etcd: state, reason: None })
    }
}

/// A snapshot's time, as it names the snapshot.
pub(crate) fn time(taken: Timestamp) -> String {
    taken.strftime("%Y%m%dT%H%M%SZ").to_string()
}
