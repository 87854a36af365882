//! Stops processes at every call of a port and lets them continue one by one in a chosen order; all orders are run one after the other.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Waker};

use slipway_ports::{Condition, Context, DataKey, Head, Keys, Object, Objects, PortResult, Put, Secret};

use crate::world::World;

/// The calls whose order is varied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granularity {
    /// Calls on the inventory; other processes cannot see what a process does to its own objects.
    Shared,
    /// Any call, once: the first process is stopped there, the others run to their end, and the first one continues.
    OneSwitch,
}

/// A call that was made.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) process: usize,
    /// `get`, `head`, `put`, `kms`.
    pub(crate) operation: &'static str,
    pub(crate) key: String,
    /// It took effect.
    pub(crate) wrote: bool,
}

impl Step {
    pub(crate) fn is_object(&self) -> bool {
        self.operation != "kms"
    }
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum End<T> {
    Finished(T),
    Died,
}

/// The decisions of one run and their numbers of options, so that the next run differs: a depth-first search.
#[derive(Debug, Default)]
pub(crate) struct Choices {
    taken: Vec<(usize, usize)>,
    at: usize,
}

impl Choices {
    fn choose(&mut self, of: usize) -> usize {
        if self.at == self.taken.len() {
            self.taken.push((0, of));
        }
        let (chosen, known) = self.taken[self.at];
        assert_eq!(known, of, "the same choices lead to the same place");
        self.at += 1;
        chosen
    }

    /// Advances to the next run; `false` if that was the last.
    pub(crate) fn next(&mut self) -> bool {
        self.at = 0;
        while let Some((chosen, of)) = self.taken.pop() {
            if chosen + 1 < of {
                self.taken.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    process: usize,
    call: usize,
    key: String,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    /// Calls that wait to continue; `true` once they may, and the waker to call then.
    waiting: BTreeMap<usize, (Waiting, bool, Option<Waker>)>,
    steps: Vec<Step>,
}

/// The place where the calls of one process wait.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    process: usize,
    state: Arc<Mutex<State>>,
}

impl Gate {
    async fn pass<T>(
        &self,
        operation: &'static str,
        key: &str,
        perform: impl Future<Output = PortResult<T>>,
        wrote: impl Fn(&T) -> bool,
    ) -> PortResult<T> {
        let call = {
            let mut state = self.state.lock().unwrap();
            let call = state.calls;
            state.calls += 1;
            let waiting = Waiting { process: self.process, call, key: key.to_owned() };
            state.waiting.insert(call, (waiting, false, None));
            call
        };
        std::future::poll_fn(|task| {
            let mut state = self.state.lock().unwrap();
            let (_, free, waker) = state.waiting.get_mut(&call).unwrap();
            if *free {
                state.waiting.remove(&call);
                Poll::Ready(())
            } else {
                *waker = Some(task.waker().clone());
                Poll::Pending
            }
        })
        .await;
        let done = perform.await;
        let wrote = done.as_ref().is_ok_and(wrote);
        let step = Step { process: self.process, operation, key: key.to_owned(), wrote };
        self.state.lock().unwrap().steps.push(step);
        done
    }
}

/// A world behind a gate.
#[derive(Debug, Clone)]
pub(crate) struct Gated {
    pub(crate) world: World,
    pub(crate) gate: Gate,
}

impl Objects for Gated {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        self.gate.pass("get", key, self.world.bucket.get(key), |_| false).await
    }

    async fn get_version(&self, key: &str, version: &str) -> PortResult<Option<Object>> {
        self.gate.pass("get", key, self.world.bucket.get_version(key, version), |_| false).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        self.gate.pass("head", key, self.world.bucket.head(key), |_| false).await
    }

    async fn put(&self, key: &str, bytes: Vec<u8>, condition: Condition) -> PortResult<Put> {
        let put = self.world.bucket.put(key, bytes, condition);
        self.gate.pass("put", key, put, |put| matches!(put, Put::Written(_))).await
    }

    fn url(&self, key: &str) -> String {
        self.world.bucket.url(key)
    }
}

impl Keys for Gated {
    fn name(&self, arn: Option<&str>) -> String {
        self.world.kms.name(arn)
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        self.gate.pass("kms", "kms", self.world.kms.generate(arn, context), |_| false).await
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.gate.pass("kms", "kms", self.world.kms.unwrap(wrapped, context), |_| false).await
    }
}

/// Runs `count` processes concurrently. Up to `deaths` of them die while they wait for the inventory.
pub(crate) fn run<T, F: Future<Output = T>>(
    count: usize,
    choices: &mut Choices,
    granularity: Granularity,
    deaths: usize,
    start: impl Fn(usize, Gate) -> F,
) -> (Vec<End<T>>, Vec<Step>) {
    let state = Arc::new(Mutex::new(State::default()));
    let gate = |process| Gate { process, state: Arc::clone(&state) };
    let mut running: Vec<Option<Pin<Box<F>>>> =
        (0..count).map(|process| Some(Box::pin(start(process, gate(process))))).collect();
    let mut ends: Vec<Option<End<T>>> = (0..count).map(|_| None).collect();
    let mut left = deaths;
    // For [`Granularity::OneSwitch`]: the position of the first process, and whether it is stopped.
    let mut stopped = None;
    let mut task = TaskContext::from_waker(Waker::noop());
    while ends.iter().any(Option::is_none) {
        for process in 0..count {
            let Some(future) = &mut running[process] else { continue };
            if let Poll::Ready(result) = future.as_mut().poll(&mut task) {
                ends[process] = Some(End::Finished(result));
                running[process] = None;
            }
        }
        let waiting: Vec<Waiting> = {
            let state = state.lock().unwrap();
            let still = state.waiting.values().filter(|(_, free, _)| !free);
            still.map(|(waiting, ..)| waiting.clone()).collect()
        };
        let free = |call: usize| {
            let mut state = state.lock().unwrap();
            let (_, free, waker) = state.waiting.get_mut(&call).unwrap();
            *free = true;
            waker.take().unwrap().wake();
        };
        match granularity {
            Granularity::Shared => {
                let (shared, own): (Vec<_>, Vec<_>) =
                    waiting.into_iter().partition(|waiting| waiting.key.ends_with("pki/manifest.json"));
                if !own.is_empty() {
                    own.iter().for_each(|waiting| free(waiting.call));
                    continue;
                }
                if shared.is_empty() {
                    continue;
                }
                let may_die = if left > 0 { shared.len() } else { 0 };
                let chosen = choices.choose(shared.len() + may_die);
                if let Some(waiting) = shared.get(chosen) {
                    free(waiting.call);
                } else {
                    let process = shared[chosen - shared.len()].process;
                    left -= 1;
                    running[process] = None;
                    ends[process] = Some(End::Died);
                    state.lock().unwrap().waiting.retain(|_, (waiting, ..)| waiting.process != process);
                }
            }
            Granularity::OneSwitch => {
                let (mine, others): (Vec<_>, Vec<_>) =
                    waiting.into_iter().partition(|waiting| waiting.process == 0);
                let others_run = stopped == Some(true) && ends[1..].iter().any(Option::is_none);
                if others_run {
                    if let Some(waiting) = others.first() {
                        free(waiting.call);
                    }
                } else if let Some(waiting) = mine.first() {
                    // Stop here, or continue and decide again at the next call.
                    if stopped.is_none() && choices.choose(2) == 0 {
                        stopped = Some(true);
                    } else {
                        free(waiting.call);
                    }
                } else if let Some(waiting) = others.first() {
                    free(waiting.call);
                }
            }
        }
    }
    let steps = std::mem::take(&mut state.lock().unwrap().steps);
    (ends.into_iter().flatten().collect(), steps)
}
