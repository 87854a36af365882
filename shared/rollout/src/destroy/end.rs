//! The report and the end of a destruction.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::super::outbox::Effects;
use super::{Destroy, Destroyed, Going, GoingState, GoingWaits, LastSnapshot};
use crate::waits::Detail;
use crate::{Effect, Observed, Rollout};
use slipway_core::event::{ClusterDestroyed, Event};
use slipway_core::status::{Report, RolloutState};
use slipway_core::words::moment;

impl Rollout {
    /// That it is being destroyed and since when, or that the destruction has stopped half-way; `None` if it is not being destroyed.
    #[must_use]
    pub fn destruction_message(&self) -> Option<String> {
        let (open, cluster) = (self.destroy()?, &self.cluster);
        let since = moment(open.asked_at);
        Some(match open.has_stopped() {
            false => format!("{cluster} is being destroyed since {since}"),
            true => format!("{cluster} is being destroyed since {since}, and that has stopped half-way"),
        })
    }

    /// That it was destroyed and when, and that nothing was created since.
    #[must_use]
    pub fn destroyed_message(&self) -> Option<String> {
        self.was_destroyed().map(|gone| format!("{} was destroyed at {}", self.cluster, moment(gone.at)))
    }
}

/// Everything is gone.
pub(super) fn destroyed(
    next: &mut Rollout,
    open: &Destroy,
    observed: &Observed,
    now: Timestamp,
    listed: BTreeMap<String, String>,
    effects: &mut Effects,
) -> Report {
    let last = last_snapshot(next, open);
    let snapshot = next.last_snapshot.take();
    let message = format!(
        "all stacks are deleted{}{}; the objects in the buckets and the EC2 snapshots of etcd's volumes are kept",
        last.unwrap_or_default(),
        open.records.undeleted_words()
    );
    let event = ClusterDestroyed {
        cluster: next.cluster.clone(),
        message: message.clone(),
        snapshot: snapshot.clone(),
        id: String::new(),
    };
    effects.push(Effect::Publish(Event::ClusterDestroyed(event)));
    effects.push(Effect::DisarmTick);
    // The known state is useless for a cluster that is created again. The generation and the number of effects continue, because tokens,
    // add-ons and events are named by them.
    let empty = Rollout::new(&next.cluster);
    *next = Rollout {
        generation: next.generation,
        effects_decided: next.effects_decided,
        addons: next.addons.take(),
        switch: next.switch.take(),
        // Also orders that were given before the end and come after it.
        destroys_over: Some(open.asked_at.max(now)),
        etcd_gone_at: next.etcd_gone_at,
        last_snapshot: snapshot.clone(),
        ..empty
    };
    let (spec_versions, message_then) = (observed.newest.clone(), message.clone());
    next.record_destroyed(Destroyed { at: now, spec_versions, snapshot, message: message_then });
    Report {
        state: RolloutState::Destroyed,
        generation: next.generation,
        message,
        stacks: listed,
        ..Report::default()
    }
}

/// The place of the last snapshot of etcd, in words, if etcd is gone, wholly or half. It is also kept for a later destruction of the rest
/// of the cluster.
pub(super) fn last_snapshot(next: &mut Rollout, open: &Destroy) -> Option<String> {
    if next.has_etcd() {
        return None;
    }
    let misses = ", and what was written after it is lost";
    let (key, misses) = match &open.snapshot {
        LastSnapshot::Complete(key) => (Some(key.clone()), ""),
        // The deletion of etcd was requested by somebody else, or the order was to go without another one.
        LastSnapshot::Taken(key) | LastSnapshot::Kept(key) => (Some(key.clone()), misses),
        LastSnapshot::Wanted { earlier: Some(key), .. } => (Some(key.clone()), misses),
        // That of an earlier destruction, which deleted etcd wholly or half.
        LastSnapshot::Wanted { earlier: None, .. } | LastSnapshot::Needless | LastSnapshot::Declined => {
            (next.last_snapshot.take(), "")
        }
    };
    next.last_snapshot = key;
    next.last_snapshot.as_ref().map(|key| format!("; the last snapshot of etcd is stored at {key}{misses}"))
}

/// What a person does about a destruction that has stopped.
pub(super) fn help(open: &Destroy, cluster: &str, gone: usize, count: &str) -> String {
    let LastSnapshot::Wanted { earlier, .. } = &open.snapshot else {
        return format!("resolve that, then `slipway destroy --cluster {cluster}` continues; {count}");
    };
    let else_lost = match earlier {
        Some(key) => format!("; then what was written after the snapshot at {key} is lost"),
        None => String::new(),
    };
    let deleted = if gone == 0 { "nothing is deleted yet" } else { count };
    format!(
        "`slipway destroy --cluster {cluster}` tries again, and with `--without-snapshot` it continues without one{else_lost}; {deleted}"
    )
}

/// The states of all stacks that exist, existed or may exist. A stack that nobody knows of is included once CloudFormation has it.
pub(super) fn listed(open: &Destroy, waits: &BTreeMap<String, GoingWaits>) -> BTreeMap<String, String> {
    let in_words = |going: &Going| {
        let fallback = match &going.state {
            GoingState::Stands => GoingWaits::Stands,
            GoingState::Deleting(_) => GoingWaits::Deletes,
            GoingState::Gone => GoingWaits::Gone,
            GoingState::NotOurs => GoingWaits::NotOurs,
            GoingState::Failed(why) => GoingWaits::Failed(Detail(why.clone())),
        };
        (going.stack.clone(), waits.get(&going.stack).unwrap_or(&fallback).to_string())
    };
    let is_known = |going: &&Going| going.state != GoingState::Stands || !going.unsure;
    open.stacks.iter().filter(is_known).map(in_words).collect()
}
