//! The simulated CloudFormation and Scheduler on a fast clock, connected to the embedded AWS: their events go to moto's default bus, and
//! their ticks to the functions.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_sim::wire::{Clock, Options, serve};
use slipway_sim::{Config, Outgoing, World};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::bell::Bell;
use crate::client::{ACCOUNT, Client, ClientError};
use crate::deploy::Deployed;
use crate::iam::{self, Decision, Request};
use crate::lambda::{Caller, Lambda};
use crate::observe::{Observed, Observer};

/// The maximum number of entries in a PutEvents call.
const EVENTS_AT_ONCE: usize = 10;

/// The simulated services. Dropping this value stops them.
#[derive(Debug)]
pub struct Cloud {
    world: Arc<Mutex<World>>,
    endpoint: String,
    clock: Clock,
    held: watch::Sender<usize>,
    tasks: [JoinHandle<()>; 2],
}

/// While this value exists, the world's time is stopped.
#[derive(Debug)]
pub struct StoppedClock(watch::Sender<usize>);

impl StoppedClock {
    fn new(held: &watch::Sender<usize>) -> Self {
        held.send_modify(|count| *count += 1);
        Self(held.clone())
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// How the world's time passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tempo {
    /// Seconds of the world that pass in one.
    pub speed: f64,
    /// How long operations take, as a factor of their duration in AWS.
    pub pace: f64,
    /// Its time also passes while a function runs, because machines with a clock of their own are part of it.
    pub keeps_going: bool,
}

/// The parts of the embedded AWS that the world calls.
#[derive(Debug)]
pub struct Reach {
    /// Puts events on the bus.
    pub client: Client,
    /// Runs the targets of ticks.
    pub lambda: Lambda,
    /// Is told of calls that are not permitted.
    pub observer: Observer,
    /// Rung when there are events.
    pub bell: Bell,
    /// Roles that Scheduler assumes, by ARN.
    pub roles: BTreeMap<String, crate::deploy::Assumable>,
}

impl Reach {
    /// The parts that the world calls, from a deployed template.
    #[must_use]
    pub fn new(
        client: &Client,
        lambda: &Lambda,
        observer: &Observer,
        bell: Bell,
        deployed: &Deployed,
    ) -> Self {
        Self {
            client: client.clone(),
            lambda: lambda.clone(),
            observer: observer.clone(),
            bell,
            roles: deployed.roles.clone(),
        }
    }
}

impl Cloud {
    /// Starts a world. No time passes while a function runs or an event is on its way to one, unless the tempo keeps going. It reads templates
    /// from `s3`.
    ///
    /// # Errors
    /// If no port is available.
    pub async fn start(region: &str, tempo: Tempo, s3: &str, reach: Reach) -> io::Result<Self> {
        let config = Config {
            pace: tempo.pace,
            account: ACCOUNT.to_owned(),
            region: region.to_owned(),
            start: Timestamp::now(),
            ..Config::default()
        };
        let world = Arc::new(Mutex::new(World::new(config)));
        let options = Options { speed: tempo.speed, s3_endpoint: Some(s3.to_owned()) };
        let mut served = serve((Ipv4Addr::LOCALHOST, 0).into(), Arc::clone(&world), options).await?;
        let endpoint = served.endpoint();
        let clock = served.clock().clone();
        let (standing, lambda, mut rings) = (clock.clone(), reach.lambda.clone(), reach.bell.watch());
        let held = watch::Sender::new(0);
        let (mut holds, sending) = (held.subscribe(), held.clone());
        let pacer = tokio::spawn(async move {
            let mut open = lambda.watch();
            loop {
                let stands = [
                    *open.borrow_and_update() > 0,
                    *holds.borrow_and_update() > 0,
                    rings.borrow_and_update().open(),
                ];
                standing.stand(!tempo.keeps_going && stands.contains(&true));
                let changed = tokio::select! {
                    changed = open.changed() => changed,
                    changed = rings.changed() => changed,
                    changed = holds.changed() => changed,
                };
                if changed.is_err() {
                    return;
                }
            }
        });
        let sender = tokio::spawn(async move {
            while let Some(first) = served.outgoing.recv().await {
                let mut sent = vec![first];
                while let Ok(next) = served.outgoing.try_recv() {
                    sent.push(next);
                }
                let _held = StoppedClock::new(&sending);
                if let Err(error) = reach.send(sent).await {
                    let words = format!("what the simulated services send is lost: {error:?}");
                    reach.observer.record(Observed::Trouble(words));
                }
            }
        });
        Ok(Self { world, endpoint, clock, held, tasks: [pacer, sender] })
    }

    /// The clock of the world.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Stops the world's time, as while a function runs: for tests that really do what the world only simulates.
    #[must_use]
    pub fn hold(&self) -> StoppedClock {
        StoppedClock::new(&self.held)
    }

    /// The endpoint of CloudFormation and Scheduler.
    #[must_use]
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The world itself, to be read or made to fail.
    #[must_use]
    pub fn world(&self) -> Arc<Mutex<World>> {
        Arc::clone(&self.world)
    }

    /// Reads or changes the world.
    pub fn with<T>(&self, look: impl FnOnce(&mut World) -> T) -> T {
        look(&mut lock(&self.world))
    }
}

impl Drop for Cloud {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Reach {
    async fn send(&self, sent: Vec<Outgoing>) -> Result<(), ClientError> {
        let mut entries = Vec::new();
        for one in sent {
            match one {
                Outgoing::Event(event) => entries.push(entry(&event.envelope)),
                Outgoing::Invoke { schedule, target_arn, role_arn, input, at: _ } => {
                    self.tick(&schedule, &target_arn, &role_arn, &input);
                }
            }
        }
        for entries in entries.chunks(EVENTS_AT_ONCE) {
            self.client.json("events", "AWSEvents.PutEvents", json!({"Entries": entries})).await?;
        }
        if !entries.is_empty() {
            self.bell.ring();
        }
        Ok(())
    }

    /// Scheduler assumes the schedule's role and invokes its target, if role and target permit it.
    fn tick(&self, schedule: &str, target_arn: &str, role_arn: &str, input: &str) {
        let invoked = match self.roles.get(role_arn) {
            None => Err(format!("there is no role {role_arn}")),
            Some(role) if !role.trusts_scheduler() => Err(format!("{role_arn} does not trust Scheduler")),
            Some(role) => {
                let caller = Caller::Role { name: schedule.to_owned(), statements: role.statements.clone() };
                self.lambda.invoke(target_arn, &caller, input.as_bytes().to_vec())
            }
        };
        if let Err(reason) = invoked {
            self.observer.record(Observed::NotPermitted {
                caller: format!("schedule {schedule}"),
                function: target_arn.to_owned(),
                reason,
            });
        }
    }
}

impl crate::deploy::Assumable {
    fn trusts_scheduler(&self) -> bool {
        let context = [
            ("aws:sourceaccount".to_owned(), vec![ACCOUNT.to_owned()]),
            ("aws:sourcearn".to_owned(), self.schedule_groups.clone()),
        ];
        let request = Request {
            action: "sts:AssumeRole".to_owned(),
            resource: String::new(),
            context: BTreeMap::from(context),
        };
        matches!(
            iam::decide_for(&self.trusts, "service:scheduler.amazonaws.com", &request),
            Decision::Allowed(_)
        )
    }
}

fn entry(envelope: &Value) -> Value {
    json!({
        "Source": envelope["source"], "DetailType": envelope["detail-type"],
        "Detail": envelope["detail"].to_string(), "Resources": envelope["resources"],
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
