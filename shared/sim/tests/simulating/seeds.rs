//! Runs as many seeds as there is time for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use slipway_core::digest::sha256_hex;
use slipway_core::status::RolloutState;
use slipway_sim::year::{BASES, Base, Change, People, Rates, Surely, Trial, Verdict};

/// The base number `which`, made on first use.
pub(super) fn base(which: usize) -> &'static Base {
    static ALL: [OnceLock<Base>; BASES] = [const { OnceLock::new() }; BASES];
    ALL[which].get_or_init(|| Base::numbered(which))
}

/// Runs a trial.
fn run(trial: Trial) -> Verdict {
    trial.run(base(trial.base()), None)
}

/// The probability of faults in the trial of that seed: every eighth trial has none.
pub(super) fn trial(seed: u64) -> Trial {
    let faults = [0.0, 0.01, 0.02, 0.02, 0.05, 0.05, 0.1, 0.1][(seed % 8) as usize];
    Trial { people: people(), rates: rates(), ..Trial::new(seed, faults) }
}

/// What people do in every trial, if `SLIPWAY_PEOPLE` says so; otherwise the seed decides.
fn people() -> People {
    let all = [
        People::Pause,
        People::Abort,
        People::Skip,
        People::Newer,
        People::Back,
        People::Destroy,
        People::DestroyAndAbort,
    ];
    let Ok(named) = std::env::var("SLIPWAY_PEOPLE") else { return People::ByChance };
    let found = all.into_iter().find(|people| format!("{people:?}") == named);
    found.unwrap_or_else(|| panic!("SLIPWAY_PEOPLE is not one of {all:?}"))
}

/// The rates of the troubles; `SLIPWAY_RATES=none,hangs=4` sets them in the form of [`Rates`].
pub(super) fn rates() -> Rates {
    std::env::var("SLIPWAY_RATES").map_or_else(|_| Rates::default(), |text| text.parse().unwrap())
}

pub(super) fn number(name: &str) -> Option<f64> {
    std::env::var(name).ok()?.parse().ok()
}

/// A digest of everything that happened, to show that a change makes no difference to any transcript.
fn digest(verdict: &Verdict) -> String {
    let lines = verdict.transcript.iter().fold(String::new(), |mut all, (at, line)| {
        let _ = writeln!(all, "{at} {line}");
        all
    });
    sha256_hex(lines.as_bytes())
}

/// What was wrong, how to replay it, and what led to it.
pub(super) fn report(trial: Trial, verdict: &Verdict) -> String {
    report_on("", trial, verdict)
}

/// As [`report`]; `on` names the base, if it does not follow from the seed.
fn report_on(on: &str, trial: Trial, verdict: &Verdict) -> String {
    let people = match trial.people {
        People::ByChance => String::new(),
        people => format!("SLIPWAY_PEOPLE={people:?} "),
    };
    let mut text = format!(
        "seed {} with faults {}: `{on}{people}SLIPWAY_SEED={0} SLIPWAY_FAULTS={1} cargo test --locked --workspace --test simulating -- seeds::one --exact --nocapture`\n",
        trial.seed, trial.faults
    );
    for violation in &verdict.violations {
        let _ = writeln!(text, "  {} at {}: {}", violation.promise, violation.at, violation.what);
    }
    let transcript = &verdict.transcript;
    let lines = number("SLIPWAY_LINES").map_or(60, |lines| lines as usize);
    for (at, line) in transcript.iter().skip(transcript.len().saturating_sub(lines)) {
        let _ = writeln!(text, "    {at} {line}");
    }
    text
}

/// A trial, its base, and the additional variables of the command that replays it.
pub(super) struct Case<'b> {
    pub(super) trial: Trial,
    pub(super) base: &'b Base,
    pub(super) on: String,
}

/// Runs this number of trials from the first seed on, on all processors. Fails if one of them breaks a promise, or, if `succeeds` is set,
/// if one without faults does not succeed at once.
#[allow(clippy::print_stdout, reason = "the figures are part of what it is run for")]
pub(super) fn all_end_well<'b>(
    what: &str,
    usual: u64,
    succeeds: bool,
    case: impl Fn(u64) -> Case<'b> + Sync,
) {
    let most = number("SLIPWAY_SEEDS").map_or(usual, |seeds| seeds as u64);
    let first = number("SLIPWAY_FIRST").map_or(0, |seed| seed as u64);
    let (next, threads) =
        (AtomicU64::new(first), std::thread::available_parallelism().map_or(2, usize::from));
    let work = || {
        let (mut ends, mut wrong, mut digests) = (BTreeMap::<&str, u64>::new(), Vec::new(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + most {
                return (ends, wrong, digests);
            }
            let case = case(seed);
            let verdict = case.trial.run(case.base, None);
            *ends.entry(verdict.first.as_str()).or_default() += 1;
            digests.push((seed, digest(&verdict)));
            let failed = succeeds && case.trial.faults == 0.0 && verdict.first != RolloutState::Succeeded;
            if !verdict.violations.is_empty() || failed {
                wrong.push((case, verdict));
            }
        }
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut ends = BTreeMap::<&str, u64>::new();
    let (mut wrong, mut digests) = (Vec::new(), Vec::new());
    for (some, bad, all) in done {
        for (end, count) in some {
            *ends.entry(end).or_default() += count;
        }
        wrong.extend(bad);
        digests.extend(all);
    }
    digests.sort();
    let digests: String = digests.into_iter().map(|(_, digest)| digest).collect();
    println!(
        "{what}: {most} ended first as: {ends:?}; transcripts: {}",
        &sha256_hex(digests.as_bytes())[..20]
    );
    wrong.sort_by_key(|(case, _)| case.trial.seed);
    let mut text: String = wrong.iter().map(|(case, verdict)| in_a_line(case, verdict)).collect();
    text.extend(wrong.iter().take(2).map(|(case, verdict)| report_on(&case.on, case.trial, verdict)));
    assert!(wrong.is_empty(), "{what}: {} of {most}:\n{text}", wrong.len());
}

/// The first broken promise, in one line.
fn in_a_line(case: &Case<'_>, verdict: &Verdict) -> String {
    let (seed, faults) = (case.trial.seed, case.trial.faults);
    match verdict.violations.first() {
        Some(wrong) => {
            format!("  {}{seed}, {faults}: {} at {}: {}\n", case.on, wrong.promise, wrong.at, wrong.what)
        }
        None => format!("  {}{seed}, {faults}: it ended first as {}\n", case.on, verdict.first),
    }
}

#[test]
fn p2_p3_p4_p5_p6_p8_p10_every_seed_ends_well_and_breaks_no_promise() {
    all_end_well("every seed", 100, false, |seed| {
        let trial = trial(seed);
        Case { trial, base: base(trial.base()), on: String::new() }
    });
}

#[test]
fn one_seed_gives_one_transcript() {
    let trial = trial(14);
    let one = run(trial);
    assert!(one.transcript.len() > 20);
    // Also on a cluster with another launch.
    let anew = trial.run(&Base::anew(trial.base()), None);
    assert_eq!(one.transcript, anew.transcript);
}

#[test]
fn p4_while_an_alarm_of_etcd_is_raised_no_member_goes_and_the_rollout_says_why_it_waits() {
    for shape in [0, 1] {
        let trial = Trial { surely: Surely::Alarm, ..Trial::on(3, 0.0, shape, Change::Members) };
        let verdict = run(trial);
        assert_eq!(verdict.violations, [], "{}", report(trial, &verdict));
        // Each reason once, however often the members are asked meanwhile.
        let says = |line: &str| line.starts_with("bus: waiting") && line.contains("waits: the alarm");
        let said = verdict.transcript.iter().filter(|(_, line)| says(line)).count();
        assert!(
            said == 1 && verdict.first == RolloutState::Succeeded,
            "{shape}, {said}: {}",
            report(trial, &verdict)
        );
    }
}

/// The change with that name.
fn change(name: &str) -> Change {
    let found = Change::ALL.into_iter().find(|change| format!("{change:?}") == name);
    found.unwrap_or_else(|| panic!("{name} is not one of the changes {:?}", Change::ALL))
}

/// The shape and the change in a variable, such as `12/Workers`.
fn shape_and_change(variable: &str) -> Option<(usize, Change)> {
    let text = std::env::var(variable).ok()?;
    let (shape, name) = text.split_once('/').unwrap();
    Some((shape.parse().unwrap(), change(name)))
}

#[test]
fn one() {
    let Some(seed) = number("SLIPWAY_SEED") else { return };
    let seed = seed as u64;
    let faults = number("SLIPWAY_FAULTS").unwrap_or(trial(seed).faults);
    let mut trial = Trial { faults, ..trial(seed) };
    if let Some((shape, change)) = shape_and_change("SLIPWAY_ON") {
        trial.on = Trial::on(seed, faults, shape, change).on;
    }
    if number("SLIPWAY_STUCK").is_some() {
        trial.surely = Surely::Stuck;
    }
    let verdict = match shape_and_change("SLIPWAY_WITH") {
        Some((shape, change)) => trial.run(&Base::with(shape, change), None),
        None => run(trial),
    };
    for (at, line) in &verdict.transcript {
        println!("{at} {line}");
    }
    println!("first {}, {} s, {:?}", verdict.first, verdict.took.as_secs(), verdict.tally);
    assert!(verdict.violations.is_empty(), "{:#?}", verdict.violations);
}
