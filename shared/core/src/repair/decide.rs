//! The decision.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::{
    Begun, FEW, Ill, Ledger, MOST_PERCENT, MOST_REPAIRS, PATIENCE, PAUSE, RepairMode, Scope, Settings,
    Verdict, Wait, Watch, Worker,
};
use crate::node::WORKER_LAUNCH_S;

/// The workers that have not been Ready for longer than their pools allow, and what is done about each. At most one of each pool is to be
/// repaired. The order of `workers` does not matter.
#[must_use]
pub fn decide(
    workers: &[Worker],
    watch: &Watch,
    ledger: &Ledger,
    settings: &Settings,
    now: Timestamp,
) -> Vec<Ill> {
    let mut ill: Vec<(Ill, &Worker)> = workers
        .iter()
        .filter_map(|worker| {
            let repair = settings.for_pool(&worker.pool);
            let for_s = watch.unready_for_s(&worker.uid).filter(|long| *long >= repair.after_s())?;
            let verdict = match repair.mode {
                RepairMode::Off => return None,
                RepairMode::Warn => Verdict::Reported,
                RepairMode::On => match own_wait(worker, ledger, now).or_else(|| many(worker, workers)) {
                    Some(wait) => Verdict::Wait(wait),
                    None => Verdict::Repair,
                },
            };
            let (node, uid, pool) = (worker.name.clone(), worker.uid.clone(), worker.pool.clone());
            Some((Ill { node, uid, pool, for_s, verdict }, worker))
        })
        .collect();
    // Whoever has been ill longest comes first.
    ill.sort_by(|(one, _), (other, _)| (other.for_s, &one.node).cmp(&(one.for_s, &other.node)));
    let mut turns: BTreeSet<(String, String)> = BTreeSet::new();
    for (one, worker) in &mut ill {
        if one.verdict != Verdict::Repair {
            continue;
        }
        let first = turns.iter().find(|(pool, _)| *pool == one.pool).map(|(_, node)| node.clone());
        let begun = ledger.pools.get(&one.pool);
        let wait = begun.and_then(|begun| after(begun, worker, workers, now));
        match wait.or_else(|| first.map(|node| Wait::Turn { node })) {
            Some(wait) => one.verdict = Verdict::Wait(wait),
            None => _ = turns.insert((one.pool.clone(), one.node.clone())),
        }
    }
    ill.into_iter().map(|(ill, _)| ill).collect()
}

/// Why this worker is left alone, whatever the others do.
fn own_wait(worker: &Worker, ledger: &Ledger, now: Timestamp) -> Option<Wait> {
    if worker.leaving {
        let begun = ledger.pools.get(&worker.pool).filter(|begun| begun.uid == worker.uid);
        let stuck = begun.is_some_and(|begun| begun.age(now) >= PATIENCE);
        return Some(if stuck { Wait::Stuck } else { Wait::Leaving });
    }
    // Its machine is in its launch hook for as long.
    let young = now.duration_since(worker.created) < SignedDuration::from_secs(WORKER_LAUNCH_S.into());
    young.then_some(Wait::Young)
}

/// Whether so many workers are not Ready that the fault is not that of this machine.
fn many(worker: &Worker, workers: &[Worker]) -> Option<Wait> {
    let scopes = [
        Some((Scope::Cluster, 0)),
        Some((Scope::Pool(worker.pool.clone()), FEW)),
        worker.zone.clone().map(|zone| (Scope::Zone(zone), FEW)),
    ];
    scopes.into_iter().flatten().find_map(|(scope, few)| {
        let counts = |other: &&Worker| match &scope {
            Scope::Cluster => true,
            Scope::Pool(pool) => other.pool == *pool,
            Scope::Zone(zone) => other.zone.as_ref() == Some(zone),
        };
        let all = workers.iter().filter(counts).count();
        let unready = workers.iter().filter(counts).filter(|other| !other.ready).count();
        (unready > few && unready * 100 >= all * MOST_PERCENT).then_some(Wait::Many { scope, unready, all })
    })
}

/// Whether the last repair of its pool holds this worker.
fn after(begun: &Begun, worker: &Worker, workers: &[Worker], now: Timestamp) -> Option<Wait> {
    let node = begun.node.clone();
    let age = begun.age(now);
    if age < PAUSE {
        return Some(Wait::UnderWay { node });
    }
    if worker.uid == begun.uid {
        // Auto Scaling did not take it, or its drain has not begun: nothing here tells which, so Auto Scaling is told once more.
        return None;
    }
    if age < PATIENCE {
        if workers.iter().any(|other| other.uid == begun.uid) {
            return Some(Wait::UnderWay { node });
        }
        let came = |other: &Worker| other.pool == worker.pool && other.ready && other.created > begun.at;
        if !workers.iter().any(came) {
            return Some(Wait::Successor { node });
        }
    }
    // Whatever keeps the last one or its successor away for so long does not end by waiting.
    (begun.lately(now) >= MOST_REPAIRS).then_some(Wait::Often)
}
