//! Small worlds: a rollout without faults, and every way in which its functions die or stop, and its events are lost, doubled, late or
//! reordered, up to a bound of such turns per life.
//!
//! A world is cloned before each invocation, and one clone continues for each turn that the invocation may take. A process dies only before
//! one of its calls that change something, because reads before its death make no difference to anybody. Before any event, a machine may
//! die or a person may interfere. If no machine dies, nothing breaks by itself, so the checker makes no allowance: at each moment all
//! members but one serve. If also nobody interferes, the rollout has to succeed at once.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use slipway_flows::rollout::Waker;
use slipway_rollout::Order;

use super::account::Woken;
use super::base::Base;
use super::check::Violation;
use super::engine::{Deed, Engine, Happening};
use super::meddle::Meddler;
use super::random::Random;
use super::trial::Trial;
use crate::mortal::Life;

/// Events that are due within this time of each other may come in any order.
const WINDOW: SignedDuration = SignedDuration::from_secs(30);
/// A late event comes after the tick that would have followed it.
const LATE: SignedDuration = SignedDuration::from_secs(70);
/// A doubled event comes again while the work that it started is in progress.
const AGAIN: SignedDuration = SignedDuration::from_secs(100);
/// A person resumes after this time.
const PAUSED: SignedDuration = SignedDuration::from_mins(30);
/// The maximum number of bad worlds that are kept.
const KEPT: usize = 20;

/// What happens to an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The function dies before its change with this number takes effect, and is retried as Lambda does it.
    Dies(u64),
    /// The function stops before that change, another invocation runs from its start to its end, and the function continues.
    Stands(u64),
    /// The event is lost.
    Lost,
    /// The event comes a second time later.
    Twice,
    /// The event is late.
    Late,
    /// The event comes after the next event.
    After,
    /// The machine with that number, among all machines, dies before the event.
    Death(usize),
    /// A person pauses before the event, and resumes half an hour later.
    Paused,
    /// A person aborts before the event.
    Aborted,
    /// A person has the machine with that number skipped before the event.
    Skipped(u64),
}

impl Turn {
    /// Whether the rollout does not have to succeed at once after this turn: it failed for a reason, or was told to end or to skip
    /// something.
    const fn excuses(self) -> bool {
        match self {
            Self::Death(_) | Self::Aborted | Self::Skipped(_) => true,
            Self::Dies(_)
            | Self::Stands(_)
            | Self::Lost
            | Self::Twice
            | Self::Late
            | Self::After
            | Self::Paused => false,
        }
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dies(change) => write!(f, "dies{change}"),
            Self::Stands(change) => write!(f, "stands{change}"),
            Self::Lost => f.write_str("lost"),
            Self::Twice => f.write_str("twice"),
            Self::Late => f.write_str("late"),
            Self::After => f.write_str("after"),
            Self::Death(machine) => write!(f, "death{machine}"),
            Self::Paused => f.write_str("paused"),
            Self::Aborted => f.write_str("aborted"),
            Self::Skipped(machine) => write!(f, "skipped{machine}"),
        }
    }
}

impl FromStr for Turn {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let split = text.find(|letter: char| letter.is_ascii_digit()).unwrap_or(text.len());
        let number = || text[split..].parse().map_err(|_| format!("{text} names no call and no machine"));
        Ok(match &text[..split] {
            "lost" => Self::Lost,
            "twice" => Self::Twice,
            "late" => Self::Late,
            "after" => Self::After,
            "paused" => Self::Paused,
            "aborted" => Self::Aborted,
            "dies" => Self::Dies(number()?),
            "stands" => Self::Stands(number()?),
            "skipped" => Self::Skipped(number()?),
            "death" => Self::Death(usize::try_from(number()?).unwrap_or_default()),
            _ => return Err(format!("{text} is not a turn")),
        })
    }
}

/// The turns of a life, each with the number of the invocation, counted from 1.
pub type Path = Vec<(usize, Turn)>;

/// The result of an exploration.
#[derive(Debug, Default)]
pub struct Found {
    /// The number of worlds that were run to their end.
    pub worlds: u64,
    /// The number of invocations in the longest world.
    pub longest: usize,
    /// The worlds that broke a promise, each with the first broken promise.
    pub wrong: Vec<(Path, Violation)>,
}

/// Which worlds are run.
#[derive(Debug, Clone, Copy)]
struct Depth {
    /// The maximum number of turns per life.
    bound: usize,
    /// Of the worlds with more than one turn, one in this number is run.
    one_in: u64,
}

impl Depth {
    /// Whether the world of `path` is run. All worlds with one turn are.
    fn includes(self, path: &Path) -> bool {
        let mixed = path.iter().flat_map(|(at, turn)| format!("{at}:{turn},").into_bytes());
        let mixed = mixed.fold(0, |number, byte| Random::new(number ^ u64::from(byte)).number());
        path.len() < 2 || Random::new(mixed).below(self.one_in) == 0
    }
}

/// All worlds that begin with one running cluster and one change.
#[derive(Debug)]
pub struct Small<'b> {
    base: &'b Base,
    trial: Trial,
    began: Timestamp,
    meddler: Option<&'b dyn Meddler>,
}

impl<'b> Small<'b> {
    /// All worlds that begin with `base`.
    #[must_use]
    pub fn new(base: &'b Base, meddler: Option<&'b dyn Meddler>) -> Self {
        // A rollout takes an hour or two; waiting for something that never comes takes longer.
        let trial = Trial { bound: SignedDuration::from_hours(12), most: 2_000, ..Trial::new(1, 0.0) };
        let began = trial.begins(base, None).now();
        Self { base, trial, began, meddler }
    }

    /// Runs every world with up to `bound` turns. Of the worlds with more than one turn, it runs one in `one_in`, chosen by their turns, so
    /// that the same call always runs the same worlds.
    #[must_use]
    pub fn explore(&self, bound: usize, one_in: u64) -> Found {
        let mut found = Found::default();
        let depth = Depth { bound, one_in };
        self.explore_from(self.trial.begins(self.base, self.meddler), 0, &mut Vec::new(), depth, &mut found);
        found
    }

    /// Runs the world of that path again, and returns its transcript and its broken promises.
    #[must_use]
    pub fn replay(&self, path: &[(usize, Turn)]) -> (Vec<(Timestamp, String)>, Vec<Violation>) {
        let mut engine = self.trial.begins(self.base, self.meddler);
        let mut brought = 0;
        while self.is_under_way(&engine) {
            let Some(happening) = next(&mut engine) else { continue };
            brought += 1;
            let turn = path.iter().find(|(at, _)| *at == brought).map(|(_, turn)| *turn);
            let heading = turn.map(|turn| format!("--- {brought} {turn}: {happening:?}"));
            let now = engine.now();
            engine.transcript.extend(heading.map(|heading| (now, heading)));
            bring(&mut engine, happening, turn);
        }
        self.ends(&mut engine, path);
        (engine.transcript, engine.checker.violations)
    }

    /// Whether anything is still on its way or open.
    fn is_under_way(&self, engine: &Engine<'_>) -> bool {
        let until = self.began + self.trial.bound;
        let open = || engine.account.rollout().is_none_or(|rollout| rollout.is_open());
        engine.checker.violations.is_empty()
            && engine.next_at().is_some_and(|at| at < until)
            && (!engine.is_quiet() || open())
    }

    fn ends(&self, engine: &mut Engine<'_>, path: &[(usize, Turn)]) {
        if engine.checker.violations.is_empty() {
            let (mut first, mut took) = (None, SignedDuration::ZERO);
            // The value only has to be above zero: nothing else goes wrong.
            let faults = if path.iter().any(|(_, turn)| turn.excuses()) { 1.0 } else { 0.0 };
            let trial = Trial { faults, ..self.trial };
            trial.ends_well(self.base, engine, &mut first, &mut took, self.began);
        }
    }

    fn explore_from(
        &self,
        mut engine: Engine<'_>,
        mut brought: usize,
        path: &mut Path,
        depth: Depth,
        found: &mut Found,
    ) {
        while self.is_under_way(&engine) {
            engine.transcript.clear();
            let Some(happening) = next(&mut engine) else { continue };
            brought += 1;
            let before = (path.len() < depth.bound).then(|| engine.fork());
            let changes = bring(&mut engine, happening.clone(), None);
            let Some(before) = before else { continue };
            for turn in turns(&before, &happening, changes) {
                path.push((brought, turn));
                if depth.includes(path) {
                    let mut other = before.fork();
                    bring(&mut other, happening.clone(), Some(turn));
                    self.explore_from(other, brought, path, depth, found);
                }
                path.pop();
            }
        }
        self.ends(&mut engine, path);
        found.worlds += 1;
        found.longest = found.longest.max(brought);
        let wrong = engine.checker.violations.into_iter().next();
        found.wrong.extend(wrong.filter(|_| found.wrong.len() < KEPT).map(|wrong| (path.clone(), wrong)));
    }
}

/// Advances the world until the next event is due; `None` if something else happens first.
fn next(engine: &mut Engine<'_>) -> Option<Happening> {
    let at = engine.next_at()?;
    engine.go_on(at);
    let entry = engine.queue.first_entry().filter(|entry| entry.key().0 <= at)?;
    Some(entry.remove())
}

/// The turns that the next event may take, if its function would make that many changes.
fn turns(engine: &Engine<'_>, happening: &Happening, changes: u64) -> Vec<Turn> {
    let Happening::Invoke { durable, tried, .. } = happening else { return Vec::new() };
    let mut turns: Vec<Turn> =
        (0..changes).flat_map(|change| [Turn::Dies(change), Turn::Stands(change)]).collect();
    if !durable && *tried == 0 {
        turns.push(Turn::Lost);
    }
    turns.extend([Turn::Twice, Turn::Late]);
    let soon = engine.now() + WINDOW;
    if engine.queue.keys().next().is_some_and(|(at, _)| *at <= soon) {
        turns.push(Turn::After);
    }
    let machines = engine.with_world(|world| world.machines().len());
    turns.extend((0..machines).flat_map(|machine| [Turn::Death(machine), Turn::Skipped(machine as u64)]));
    turns.extend([Turn::Paused, Turn::Aborted]);
    turns
}

/// Delivers an event with that turn. Returns how often its function changed something.
fn bring(engine: &mut Engine<'_>, happening: Happening, turn: Option<Turn>) -> u64 {
    let Happening::Invoke { who, tried, durable } = happening.clone() else {
        engine.happens(happening);
        return 0;
    };
    let life = match turn {
        Some(Turn::Lost) => return 0,
        Some(Turn::Death(machine)) => {
            engine.checker.breaks();
            engine.happens(Happening::Death { choice: machine as u64, zone: false });
            Life::unending()
        }
        Some(Turn::Paused) => {
            engine.does(Deed::Say(Order::Pause));
            engine.person_after(PAUSED, Deed::Say(Order::Resume));
            Life::unending()
        }
        Some(Turn::Aborted) => {
            engine.does(Deed::Say(Order::Abort { plan: None }));
            Life::unending()
        }
        Some(Turn::Skipped(machine)) => {
            engine.does(Deed::Skip(machine));
            Life::unending()
        }
        Some(Turn::Late) => {
            engine.after(LATE, happening);
            return 0;
        }
        Some(Turn::After) => {
            let next = engine
                .queue
                .keys()
                .next()
                .map_or(SignedDuration::ZERO, |(at, _)| at.duration_since(engine.now()));
            engine.after(next + SignedDuration::from_millis(1), happening);
            return 0;
        }
        Some(Turn::Twice) => {
            engine.after(AGAIN, happening);
            Life::unending()
        }
        Some(Turn::Dies(change)) => Life::until_change(change),
        Some(Turn::Stands(change)) => {
            let (twin, now) = (engine.account.handle(), engine.now());
            Life::standing_still(change, move || {
                // The result does not matter: Lambda would retry it, and so does the tick.
                drop(twin.invoke(&Woken::Rollout(Waker::Tick), &Life::unending(), now, None));
            })
        }
        None => Life::unending(),
    };
    engine.invoke_living(who, tried, durable, &life, SignedDuration::ZERO);
    life.changes()
}
