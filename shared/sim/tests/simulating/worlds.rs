//! Small worlds: every way in which functions die or stop, and events are lost, late, doubled or reordered.
//!
//! `SLIPWAY_WORLDS=2` runs those with up to two such turns, of which `SLIPWAY_ONE_IN=500` takes one in five hundred; `make worlds` runs
//! more clusters; `SLIPWAY_WORLD` replays one.

use std::sync::atomic::{AtomicUsize, Ordering};

use slipway_flows::rollout::Waker;
use slipway_rollout::{Rollout, StepState};
use slipway_sim::year::{Base, Change, Found, Meddler, Path, Small};

use super::seeds::number;

/// The numbers of members and controllers, and the change.
type Cluster = (u32, u32, Change);

/// The clusters of a test run: only the smallest one.
const FEW: [Cluster; 1] = [(1, 1, Change::Controllers)];

const SIZES: [(u32, u32); 6] = [(1, 1), (1, 2), (1, 3), (3, 1), (3, 2), (3, 3)];
const CHANGES: [Change; 5] =
    [Change::Members, Change::Controllers, Change::Workers, Change::Refresh, Change::All];

fn named(cluster: Cluster) -> String {
    format!("{}/{}/{:?}", cluster.0, cluster.1, cluster.2)
}

fn written(path: &Path) -> String {
    let turns: Vec<String> = path.iter().map(|(at, turn)| format!("{at}:{turn}")).collect();
    turns.join(",")
}

/// The cluster and the turns in `3/1/Members 12:dies3,14:lost`.
fn read(text: &str) -> (Cluster, Path) {
    let (cluster, path) = text.split_once(' ').unwrap_or((text, ""));
    let found = SIZES.iter().flat_map(|size| CHANGES.map(|change| (size.0, size.1, change)));
    let cluster = found.into_iter().find(|one| named(*one) == cluster).unwrap();
    let turns = path.split(',').filter(|turn| !turn.is_empty()).map(|turn| {
        let (at, turn) = turn.split_once(':').unwrap();
        (at.parse().unwrap(), turn.parse().unwrap())
    });
    (cluster, turns.collect())
}

/// What was wrong, how to replay it, and what led to it.
fn report(cluster: Cluster, small: &Small<'_>, found: &Found) -> String {
    let tell = |(path, wrong): &(Path, _)| {
        let path = written(path);
        format!("SLIPWAY_WORLD='{} {path}': {wrong:?}\n", named(cluster))
    };
    let mut text: String = found.wrong.iter().map(tell).collect();
    if let Some((path, _)) = found.wrong.first() {
        let (transcript, violations) = small.replay(path);
        text.extend(transcript.iter().map(|(at, line)| format!("    {at} {line}\n")));
        text.push_str(&format!("{violations:#?}\n"));
    }
    text
}

#[test]
fn p4_p5_p6_p8_every_small_world_ends_well_and_breaks_no_promise() {
    let bound = number("SLIPWAY_WORLDS").map_or(1, |bound| bound as usize);
    let one_in = number("SLIPWAY_ONE_IN").map_or(1, |number| number as u64);
    let of = std::env::var("SLIPWAY_OF").unwrap_or_default();
    let all = SIZES.iter().flat_map(|size| CHANGES.map(|change| (size.0, size.1, change)));
    let clusters: Vec<Cluster> = match of.is_empty() {
        true => FEW.to_vec(),
        false => all.filter(|one| of == "all" || named(*one).contains(&of)).collect(),
    };
    let next = AtomicUsize::new(0);
    let work = || {
        let mut told_of = String::new();
        while let Some(cluster) = clusters.get(next.fetch_add(1, Ordering::Relaxed)) {
            let base = Base::small(cluster.0, cluster.1, cluster.2);
            let small = Small::new(&base, None);
            let found = small.explore(bound, one_in);
            println!(
                "{}: {} worlds with up to {bound} turns, of {} events at most, {} of them wrong",
                named(*cluster),
                found.worlds,
                found.longest,
                found.wrong.len()
            );
            assert!(found.worlds > 100, "only {} worlds were run", found.worlds);
            told_of.push_str(&report(*cluster, &small, &found));
        }
        told_of
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let told_of: String = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(told_of.is_empty(), "{told_of}");
}

/// A mistake: ticks are ignored once the stacks are done. It shows only if an event is lost.
#[derive(Debug)]
struct NoTickForNodes;

impl Meddler for NoTickForNodes {
    fn intercept_wake(&self, by: Waker, state: Option<&Rollout>) -> Option<Waker> {
        let active = state.and_then(|state| state.active());
        let at_nodes = active.is_some_and(|one| one.steps.iter().all(|step| step.state == StepState::Done));
        (by != Waker::Tick || !at_nodes).then_some(by)
    }
}

#[test]
fn a_mistake_that_only_a_lost_event_shows_is_seen_in_a_small_world() {
    let base = Base::small(1, 1, Change::Workers);
    let small = Small::new(&base, Some(&NoTickForNodes));
    assert_eq!(small.explore(0, 1).wrong, []);
    let found = small.explore(1, 1);
    let lost = found.wrong.iter().find(|(path, _)| written(path).ends_with(":lost"));
    assert_eq!(lost.map(|(_, wrong)| wrong.promise), Some("liveness"), "{found:#?}");
}

#[test]
fn one_world() {
    let Ok(text) = std::env::var("SLIPWAY_WORLD") else { return };
    let (cluster, path) = read(&text);
    let base = Base::small(cluster.0, cluster.1, cluster.2);
    let (transcript, violations) = Small::new(&base, None).replay(&path);
    for (at, line) in &transcript {
        println!("{at} {line}");
    }
    assert_eq!(violations, []);
}
