//! Who is repaired, and who is not.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::{SignedDuration, Timestamp};

use super::*;

fn now() -> Timestamp {
    "2026-11-26T12:00:00Z".parse().unwrap()
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

/// A cluster, as one controller has watched it.
struct Scene {
    workers: Vec<Worker>,
    watch: Watch,
    ledger: Ledger,
    settings: Settings,
    /// Seconds since that controller was started.
    at_s: u64,
}

impl Scene {
    /// Pools of these sizes, all Ready, with `repair.mode` on.
    fn new(pools: &[(&str, usize)]) -> Self {
        let worker = |pool: &str, index: usize| Worker {
            name: format!("{pool}-{index}"),
            uid: format!("uid-{pool}-{index}"),
            pool: pool.to_owned(),
            zone: Some(["a", "b", "c"][index % 3].to_owned()),
            ready: true,
            created: now() - SignedDuration::from_hours(100),
            leaving: false,
        };
        let workers = pools.iter().flat_map(|(pool, size)| (0..*size).map(|index| worker(pool, index)));
        let on = Repair { mode: RepairMode::On, after_minutes: 15 };
        let settings = Settings { pools: pools.iter().map(|(pool, _)| ((*pool).to_owned(), on)).collect() };
        let mut scene = Self {
            workers: workers.collect(),
            watch: Watch::default(),
            ledger: Ledger::default(),
            settings,
            at_s: 1000,
        };
        scene.look();
        scene
    }

    fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.iter_mut().find(|worker| worker.name == name).unwrap()
    }

    fn falls_silent(&mut self, names: &[&str]) {
        for name in names {
            self.worker(name).ready = false;
        }
        self.look();
    }

    fn look(&mut self) {
        self.watch.record(&self.workers, self.at_s);
    }

    /// The controller looks every 20 s.
    fn watches(&mut self, seconds: u64) {
        let end = self.at_s + seconds;
        while self.at_s < end {
            self.at_s += 20.min(end - self.at_s);
            self.look();
        }
    }

    fn ill(&self) -> Vec<(String, Verdict)> {
        self.ill_at(now())
    }

    fn ill_at(&self, now: Timestamp) -> Vec<(String, Verdict)> {
        let found = decide(&self.workers, &self.watch, &self.ledger, &self.settings, now);
        found.into_iter().map(|ill| (ill.node, ill.verdict)).collect()
    }

    fn repaired(&self) -> Vec<String> {
        let repaired = self.ill().into_iter().filter(|(_, verdict)| *verdict == Verdict::Repair);
        repaired.map(|(node, _)| node).collect()
    }

    fn begun(&mut self, pool: &str, node: &str, minutes_ago: i64) {
        let begun = Begun {
            node: node.to_owned(),
            uid: format!("uid-{node}"),
            at: now() - minutes(minutes_ago),
            earlier: Vec::new(),
        };
        self.ledger.pools.insert(pool.to_owned(), begun);
    }
}

fn wait(node: &str, wait: Wait) -> (String, Verdict) {
    (node.to_owned(), Verdict::Wait(wait))
}

#[test]
fn a_worker_is_repaired_after_the_time_of_its_pool_and_not_before() {
    let mut scene = Scene::new(&[("a", 3)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(15 * 60 - 1);
    assert_eq!(scene.ill(), []);
    scene.watches(1);
    assert_eq!(scene.ill(), [("a-1".to_owned(), Verdict::Repair)]);
    let for_s = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now())[0].for_s;
    assert_eq!(for_s, 15 * 60);
}

#[test]
fn a_worker_that_was_ready_for_a_moment_has_its_whole_time_again() {
    let mut scene = Scene::new(&[("a", 3)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(14 * 60);
    scene.worker("a-1").ready = true;
    scene.look();
    scene.falls_silent(&["a-1"]);
    scene.watches(15 * 60 - 1);
    assert_eq!(scene.ill(), []);
    scene.watches(1);
    assert_eq!(scene.repaired(), ["a-1"]);
}

/// The API server was away, or this controller was: all kubelets look silent then, some for hours.
#[test]
fn a_controller_that_did_not_look_for_a_while_waits_for_the_whole_time_again() {
    for gap_s in [121, 7200] {
        let mut scene = Scene::new(&[("a", 3)]);
        scene.falls_silent(&["a-1"]);
        scene.watches(20 * 60);
        scene.at_s += gap_s;
        scene.look();
        assert_eq!(scene.ill(), [], "after {gap_s} s");
        scene.watches(15 * 60 - 1);
        assert_eq!(scene.ill(), []);
        scene.watches(1);
        assert_eq!(scene.repaired(), ["a-1"]);
    }
    let mut scene = Scene::new(&[("a", 3)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(20 * 60);
    scene.at_s += 120;
    scene.look();
    assert_eq!(scene.repaired(), ["a-1"], "a slow pass is not a gap");
    // It was restarted, and what it saw before was not lost.
    scene.at_s = 30;
    scene.look();
    assert_eq!(scene.ill(), []);
    // A look failed, so what was seen before is forgotten.
    scene.watches(20 * 60);
    scene.watch = Watch::default();
    scene.look();
    assert_eq!(scene.ill(), []);
}

#[test]
fn a_node_that_was_made_anew_under_the_same_name_has_its_own_time() {
    let mut scene = Scene::new(&[("a", 3)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(20 * 60);
    scene.worker("a-1").uid = "another".to_owned();
    scene.look();
    assert_eq!(scene.ill(), []);
}

#[test]
fn a_pool_is_told_about_unless_the_spec_says_otherwise_and_off_is_silent() {
    let mut scene = Scene::new(&[("a", 3)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(20 * 60);
    scene.settings = Settings::default();
    assert_eq!(scene.ill(), [("a-1".to_owned(), Verdict::Reported)]);
    let off = Repair { mode: RepairMode::Off, after_minutes: 15 };
    scene.settings.pools.insert("a".to_owned(), off);
    assert_eq!(scene.ill(), []);
    let late = Repair { mode: RepairMode::On, after_minutes: 21 };
    scene.settings.pools.insert("a".to_owned(), late);
    assert_eq!(scene.ill(), []);
    scene.watches(60);
    assert_eq!(scene.repaired(), ["a-1"]);
}

#[test]
fn one_worker_of_a_pool_is_repaired_at_a_time_the_one_that_was_silent_first() {
    let mut scene = Scene::new(&[("a", 6), ("b", 6)]);
    scene.falls_silent(&["a-4", "b-0"]);
    scene.watches(60);
    scene.falls_silent(&["a-1", "a-2"]);
    scene.watches(20 * 60);
    let turn = || Wait::Turn { node: "a-4".to_owned() };
    let expected = [
        ("a-4".to_owned(), Verdict::Repair),
        ("b-0".to_owned(), Verdict::Repair),
        wait("a-1", turn()),
        wait("a-2", turn()),
    ];
    assert_eq!(scene.ill(), expected);
    // Whatever the order in which they are listed.
    scene.workers.reverse();
    assert_eq!(scene.ill(), expected);
}

#[test]
fn the_next_one_of_a_pool_waits_until_the_last_one_is_gone_and_its_successor_is_ready() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0", "a-1"]);
    scene.watches(20 * 60);
    let under_way = wait("a-1", Wait::UnderWay { node: "a-0".to_owned() });
    // It is being drained.
    scene.worker("a-0").leaving = true;
    for minutes_ago in [0, 14, 16, 60 * 6 - 1] {
        scene.begun("a", "a-0", minutes_ago);
        assert!(scene.ill().contains(&under_way), "after {minutes_ago} minutes");
    }
    scene.begun("a", "a-0", 30);
    scene.workers.retain(|worker| worker.name != "a-0");
    let successor = || wait("a-1", Wait::Successor { node: "a-0".to_owned() });
    assert_eq!(scene.ill(), [successor()]);
    let new = Worker {
        name: "a-9".to_owned(),
        uid: "new".to_owned(),
        created: now() - minutes(20),
        ready: false,
        ..scene.workers[0].clone()
    };
    scene.workers.push(new);
    assert_eq!(scene.ill(), [successor()]);
    scene.worker("a-9").ready = true;
    assert_eq!(scene.repaired(), ["a-1"]);
    // A worker that was there before is no successor, nor is one of another pool.
    scene.worker("a-9").created = now() - minutes(31);
    assert_eq!(scene.repaired(), [""; 0]);
    scene.worker("a-9").created = now() - minutes(20);
    scene.worker("a-9").pool = "b".to_owned();
    assert_eq!(scene.repaired(), [""; 0]);
    // The pool may have become smaller.
    scene.begun("a", "a-0", 60 * 6);
    assert_eq!(scene.repaired(), ["a-1"]);
}

/// A drain that does not end may last for 48 hours, and begin again after that.
#[test]
fn a_worker_that_does_not_go_holds_its_pool_for_six_hours_and_people_are_told_of_it() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0", "a-1"]);
    scene.watches(20 * 60);
    scene.worker("a-0").leaving = true;
    let told = |scene: &Scene| {
        let ill = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now());
        let report = ill.iter().find(|one| one.node == "a-0").unwrap().report(&scene.ledger, now());
        (report.repair, report.why)
    };
    scene.begun("a", "a-0", 60 * 6 - 1);
    assert_eq!(scene.repaired(), [""; 0]);
    assert_eq!(told(&scene), (RepairState::Begun.into(), None));
    scene.begun("a", "a-0", 60 * 6);
    assert_eq!(scene.ill(), [wait("a-0", Wait::Stuck), ("a-1".to_owned(), Verdict::Repair)]);
    let why = "Auto Scaling was told to replace it more than 6 hours ago, and it is still there";
    assert_eq!(told(&scene), (RepairState::Waits.into(), Some(why.to_owned())));
    // The repair of the next one is noted instead.
    scene.begun("a", "a-1", 0);
    assert_eq!(told(&scene).0, RepairState::Waits.into());
}

#[test]
fn two_repairs_of_a_pool_are_a_quarter_of_an_hour_apart_although_the_successor_is_quick() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-1"]);
    scene.watches(20 * 60);
    scene.begun("a", "a-7", 14);
    scene.worker("a-2").created = now() - minutes(10);
    assert_eq!(scene.repaired(), [""; 0]);
    scene.begun("a", "a-7", 15);
    assert_eq!(scene.repaired(), ["a-1"]);
    // The clock of another controller is ahead of this one's.
    scene.begun("a", "a-7", -14);
    assert_eq!(scene.repaired(), [""; 0]);
    scene.begun("a", "a-7", -60 * 24 * 365);
    assert_eq!(scene.repaired(), ["a-1"], "it holds nobody for a year");
}

/// A bad DaemonSet, or a leak: each successor becomes Ready, and fails after a while.
#[test]
fn after_three_repairs_of_a_pool_within_six_hours_the_next_one_waits_for_a_person() {
    let mut scene = Scene::new(&[("a", 6), ("b", 6)]);
    scene.falls_silent(&["a-5", "b-5"]);
    scene.watches(20 * 60);
    // A successor is always Ready.
    scene.worker("a-4").created = now() - minutes(1);
    let ill = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now());
    let gone = |number: usize| Ill { uid: format!("gone-{number}"), ..ill[0].clone() };
    for (number, minutes_ago) in [359, 200, 100].into_iter().enumerate() {
        assert_eq!(scene.repaired(), ["a-5", "b-5"], "after {number} repairs");
        scene.ledger.begin(&gone(number), now() - minutes(minutes_ago));
    }
    let often = wait("a-5", Wait::Often);
    assert_eq!(scene.ill(), [often, ("b-5".to_owned(), Verdict::Repair)], "the other pool is not held");
    let Verdict::Wait(why) = &scene.ill()[0].1 else { panic!("it waits") };
    assert!(
        why.to_string().starts_with("3 workers of the same pool were replaced in the last 6 hours"),
        "{why}"
    );
    // The first one is six hours ago.
    assert_eq!(scene.ill_at(now() + minutes(1))[0], ("a-5".to_owned(), Verdict::Repair));
    scene.ledger.begin(&gone(3), now() + minutes(1));
    assert_eq!(scene.ledger.pools["a"].earlier, [now() - minutes(200), now() - minutes(100)]);
}

/// Auto Scaling is told of it each quarter of an hour, and nothing is replaced.
#[test]
fn a_worker_that_auto_scaling_does_not_take_counts_as_one_repair() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-5"]);
    scene.watches(20 * 60);
    let ill = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now());
    for minutes_ago in [75, 60, 45, 30, 15] {
        scene.ledger.begin(&ill[0], now() - minutes(minutes_ago));
    }
    assert_eq!((scene.repaired(), scene.ledger.pools["a"].earlier.len()), (vec!["a-5".to_owned()], 0));
}

/// Somebody suspended `ReplaceUnhealthy`, or the controller died before it told Auto Scaling.
#[test]
fn auto_scaling_is_told_again_of_a_worker_that_it_did_not_take() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0", "a-1"]);
    scene.watches(20 * 60);
    scene.begun("a", "a-0", 15);
    let under_way = wait("a-1", Wait::UnderWay { node: "a-0".to_owned() });
    assert_eq!(scene.ill(), [("a-0".to_owned(), Verdict::Repair), under_way]);
    // It has come back by itself, but Auto Scaling may be replacing it: its drain may not have begun.
    scene.worker("a-0").ready = true;
    scene.look();
    assert_eq!(scene.repaired(), [""; 0]);
    scene.begun("a", "a-0", 60 * 6);
    assert_eq!(scene.repaired(), ["a-1"]);
}

#[test]
fn none_is_repaired_while_most_workers_of_the_cluster_the_pool_or_the_zone_are_not_ready() {
    let held = |scene: &Scene, scope: &Scope| {
        let ill = scene.ill();
        assert!(!ill.is_empty());
        ill.iter()
            .all(|(_, verdict)| matches!(verdict, Verdict::Wait(Wait::Many { scope: found, .. }) if found == scope))
    };
    let silent = |pools: &[(&str, usize)], names: &[&str]| {
        let mut scene = Scene::new(pools);
        scene.falls_silent(names);
        scene.watches(20 * 60);
        scene
    };
    // Of the cluster.
    assert!(held(&silent(&[("a", 1)], &["a-0"]), &Scope::Cluster), "the only worker");
    assert!(held(&silent(&[("a", 3)], &["a-0", "a-1"]), &Scope::Cluster));
    assert!(held(&silent(&[("a", 2), ("b", 2)], &["a-0", "a-1", "b-0"]), &Scope::Cluster));
    assert_eq!(silent(&[("a", 2)], &["a-0"]).repaired(), ["a-0"]);
    let many: Vec<String> = (0..11).map(|index| format!("a-{index}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(held(&silent(&[("a", 20)], &many), &Scope::Cluster), "55 %");
    // Of a pool.
    assert!(held(&silent(&[("a", 5), ("b", 9)], &["a-0", "a-1", "a-2"]), &Scope::Pool("a".to_owned())));
    assert_eq!(silent(&[("a", 6), ("b", 9)], &["a-0", "a-1", "a-2"]).repaired(), ["a-0"], "half");
    assert_eq!(silent(&[("a", 2), ("b", 9)], &["a-0", "a-1"]).repaired(), ["a-0"], "two are few");
    // Of a zone: each third worker is in the zone a.
    let zone = silent(&[("a", 9), ("b", 5)], &["a-0", "a-3", "b-0"]);
    assert!(held(&zone, &Scope::Zone("a".to_owned())));
    let text = zone.ill()[0].1.clone();
    let Verdict::Wait(wait) = text else { panic!("{text:?}") };
    assert!(wait.to_string().starts_with("3 of 5 workers of the zone a are not Ready"), "{wait}");
}

/// Otherwise a pool that fills up for the first time would count as well.
#[test]
fn workers_that_boot_count_as_not_ready() {
    let mut scene = Scene::new(&[("a", 4)]);
    scene.falls_silent(&["a-0"]);
    scene.watches(20 * 60);
    assert_eq!(scene.repaired(), ["a-0"]);
    scene.falls_silent(&["a-1", "a-2"]);
    assert_eq!(scene.repaired(), [""; 0]);
}

#[test]
fn a_worker_that_somebody_removes_or_cordoned_or_that_still_boots_is_left_alone() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0", "a-1"]);
    scene.watches(20 * 60);
    scene.worker("a-0").leaving = true;
    scene.worker("a-1").created = now() - minutes(30) + SignedDuration::from_secs(1);
    assert_eq!(scene.ill(), [wait("a-0", Wait::Leaving), wait("a-1", Wait::Young)]);
    assert_eq!(scene.ill_at(now() + SignedDuration::from_secs(1))[1], ("a-1".to_owned(), Verdict::Repair));
}

#[test]
fn people_are_told_since_when_and_what_is_done_and_why_not() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0", "a-1"]);
    scene.watches(20 * 60);
    let report = |scene: &Scene| -> Vec<_> {
        let ill = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now());
        let told = ill.iter().map(|one| one.report(&scene.ledger, now()));
        told.map(|one| (one.node, one.since, one.repair, one.why)).collect()
    };
    let line = |node: &str, repair: RepairState, why: Option<&str>| {
        (node.to_owned(), now() - minutes(20), repair.into(), why.map(str::to_owned))
    };
    let turn = "a-0 of the same pool comes first";
    let expected = [line("a-0", RepairState::Begun, None), line("a-1", RepairState::Waits, Some(turn))];
    assert_eq!(report(&scene), expected);
    // It is being drained because of that.
    scene.begun("a", "a-0", 20);
    scene.worker("a-0").leaving = true;
    let under_way = "a-0 of the same pool is being repaired";
    let expected = [line("a-0", RepairState::Begun, None), line("a-1", RepairState::Waits, Some(under_way))];
    assert_eq!(report(&scene), expected);
    scene.settings = Settings::default();
    assert_eq!(report(&scene)[1], line("a-1", RepairState::Told, None));
}

#[test]
fn what_was_seen_and_begun_outlives_a_process() {
    let mut scene = Scene::new(&[("a", 6)]);
    scene.falls_silent(&["a-0"]);
    scene.watches(20 * 60);
    let text = serde_json::to_string(&scene.watch).unwrap();
    assert_eq!(serde_json::from_str::<Watch>(&text).unwrap(), scene.watch);
    let ill = decide(&scene.workers, &scene.watch, &scene.ledger, &scene.settings, now());
    scene.ledger.begin(&ill[0], now());
    let text = serde_json::to_string(&scene.ledger).unwrap();
    assert_eq!(text, r#"{"pools":{"a":{"node":"a-0","uid":"uid-a-0","at":"2026-11-26T12:00:00Z"}}}"#);
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), scene.ledger);
    assert_eq!(scene.repaired(), [""; 0], "another controller does not begin it again");
    scene.ledger.begin(&Ill { uid: "another".to_owned(), ..ill[0].clone() }, now() + minutes(60));
    let text = serde_json::to_string(&scene.ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), scene.ledger);
    assert_eq!(scene.ledger.pools["a"].earlier, [now()]);
}
