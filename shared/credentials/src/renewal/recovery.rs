//! Recovery of nodes whose certificates have expired, while the Kubernetes API is down and etcd has no majority (P7).
//!
//! The new credentials are stored already. What remains is a `refresh` on each node, in the order of their dependencies: etcd members
//! until a majority serves; controllers, whose API server, kubeconfigs and kubelet work again with them; workers, whose kubelets request
//! a new certificate from the API server. [`Recovery::next`] takes the answers of Run Command and returns the commands to send. Nothing
//! is stored: a repeated refresh changes nothing, so an interrupted recovery can start again.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use slipway_core::node::answer::VerbAnswer as _;
use slipway_core::node::{
    Answer, Command, CommandView, EtcdHealth, FailureCode, HowUnanswered, Refreshed, Verb,
};
use slipway_core::role::Role;

/// How often a node is asked before it counts as failed.
pub const TRIES: u32 = 6;
/// The pause between two tries, for example for a machine that boots or a controller manager that has not signed yet.
pub const PAUSE: SignedDuration = SignedDuration::from_secs(20);
/// How long a command may be missing from Run Command's lists before it counts as lost.
pub const LOST: SignedDuration = SignedDuration::from_mins(3);
/// How long etcd may take to form a majority once the members have their credentials.
pub const ETCD_MEETS: SignedDuration = SignedDuration::from_mins(10);
/// How many workers are asked at a time. Members and controllers are asked one after the other.
pub const AT_ONCE: usize = 10;

/// The stage of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// etcd members take their credentials.
    Etcd,
    /// A majority of the members has to serve again.
    Quorum,
    /// Controllers take their credentials, and their kubelets request certificates.
    Controllers,
    /// Workers' kubelets request certificates.
    Workers,
    /// The recovery has ended.
    Over,
}

/// The progress of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is to be asked at that time.
    Waiting(Timestamp),
    /// It was asked at that time.
    RenewalRequest(Timestamp),
    /// It is recovered.
    Done,
    /// It is not recovered and is not asked again.
    Failed(String),
}

/// A node to recover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its role.
    pub role: Role,
    /// The machine.
    pub instance: String,
    /// The digest of the credentials that it should have.
    pub credentials: String,
    /// How far it is.
    pub progress: Progress,
    /// Whether its credentials are in use, although its kubelet may still have no certificate.
    pub in_force: bool,
    tries: u32,
    /// The last known reason why it is not recovered.
    last_reason: String,
}

/// What Run Command reported about a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandReport {
    /// Its state.
    View(CommandView),
    /// It could not be sent, and why: for example, Run Command does not know the machine.
    NotSent(String),
}

/// What to do next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Turn {
    /// Commands to send.
    pub send: Vec<Command>,
    /// What has happened, in words.
    pub messages: Vec<String>,
}

/// A recovery in progress.
#[derive(Debug, Clone)]
pub struct Recovery {
    /// Part of every token, so that another run sends its own commands.
    run: String,
    nodes: Vec<Node>,
    stage: Stage,
    since: Timestamp,
    /// How often etcd's health was queried, and when last.
    asked_etcd: (u32, Timestamp),
    open: Option<Command>,
    etcd_serves: bool,
    etcd_says: String,
    ended: Option<String>,
}

impl Recovery {
    /// Starts the recovery of `machines`, each with the credentials that `digests` has for its role. `run` distinguishes this run from
    /// others and has at most 40 characters.
    #[must_use]
    pub fn new(
        run: &str,
        machines: &BTreeMap<Role, BTreeSet<String>>,
        digests: &BTreeMap<Role, String>,
        now: Timestamp,
    ) -> Self {
        let nodes = machines.iter().filter_map(|(role, machines)| {
            let credentials = digests.get(role)?;
            Some(machines.iter().map(move |instance| Node {
                role: role.clone(),
                instance: instance.clone(),
                credentials: credentials.clone(),
                progress: Progress::Waiting(now),
                in_force: false,
                tries: 0,
                last_reason: String::new(),
            }))
        });
        Self {
            run: run.to_owned(),
            nodes: nodes.flatten().collect(),
            stage: Stage::Etcd,
            since: now,
            asked_etcd: (0, Timestamp::MIN),
            open: None,
            etcd_serves: false,
            etcd_says: "nobody was asked yet".to_owned(),
            ended: None,
        }
    }

    /// The nodes and their progress.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Where it is.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Why it ended before every node was asked. `None`: it did not.
    #[must_use]
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Whether it has ended and every node is recovered.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.stage == Stage::Over && self.nodes.iter().all(|node| node.progress == Progress::Done)
    }

    /// The commands in progress, whose state has to be queried.
    #[must_use]
    pub fn under_way(&self) -> Vec<Command> {
        let refreshing =
            self.nodes.iter().filter(|node| matches!(node.progress, Progress::RenewalRequest(_)));
        refreshing.map(|node| self.refresh(node)).chain(self.open.clone()).collect()
    }

    /// What it does and waits for now, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let refreshing: Vec<String> = self
            .nodes
            .iter()
            .filter(|node| matches!(node.progress, Progress::RenewalRequest(_)))
            .map(|node| format!("{} ({})", node.instance, node.role))
            .collect();
        let waits = match refreshing.as_slice() {
            [] => "before they are asked again".to_owned(),
            refreshing => format!("for {}", refreshing.join(", ")),
        };
        match self.stage {
            Stage::Etcd => {
                format!("etcd's members take their credentials, one after the other; waits {waits}")
            }
            Stage::Quorum => format!("waits for a majority of etcd to serve: {}", self.etcd_says),
            Stage::Controllers => {
                format!("controllers take theirs: API server, kubeconfigs, kubelet; waits {waits}")
            }
            Stage::Workers => format!("workers' kubelets ask for another certificate; waits {waits}"),
            Stage::Over => match &self.ended {
                Some(why) => format!("it ended: {why}"),
                None => "it is over".to_owned(),
            },
        }
    }

    fn refresh(&self, node: &Node) -> Command {
        // An etcd member is not restarted, because the others may need it. On a controller, processes that read files only at start are.
        let restart = node.role == Role::Controller;
        let verb = Verb::Refresh { credentials: node.credentials.clone(), restart };
        Command {
            token: format!("{}/{}/{}", self.run, node.instance, node.tries),
            instance: node.instance.clone(),
            verb,
        }
    }

    /// Takes the states of the commands in progress, by token, and returns the commands to send. It never fails, whatever the answers and
    /// the time are.
    pub fn next(&mut self, heard: &BTreeMap<String, CommandReport>, now: Timestamp) -> Turn {
        let mut turn = Turn::default();
        for place in 0..self.nodes.len() {
            if let Progress::RenewalRequest(since) = self.nodes[place].progress {
                let token = self.refresh(&self.nodes[place]).token;
                self.nodes[place].take_report(heard.get(&token), since, now, &mut turn.messages);
            }
        }
        self.take_etcd_health(heard, now, &mut turn.messages);
        while self.stage != Stage::Over && self.is_past(now, &mut turn.messages) {}
        self.send(now, &mut turn.send);
        turn
    }

    fn of_stage(&self, stage: Stage) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| stage_of(&node.role) == stage)
    }

    /// Proceeds to the next stage if this one is done. A failure that blocks the stage for good ends the recovery.
    fn is_past(&mut self, now: Timestamp, messages: &mut Vec<String>) -> bool {
        let settled = self.of_stage(self.stage).all(|node| match node.progress {
            Progress::Done | Progress::Failed(_) => true,
            // A controller's kubelet that waits for its certificate is asked again during the workers' stage.
            Progress::Waiting(_) => self.stage == Stage::Controllers && node.in_force,
            Progress::RenewalRequest(_) => false,
        });
        let (all, good) = (
            self.of_stage(self.stage).count(),
            self.of_stage(self.stage).filter(|node| node.in_force).count(),
        );
        let next = match self.stage {
            Stage::Etcd if !settled => return false,
            Stage::Etcd if all > 0 && good <= all / 2 => {
                return self.end(format!(
                    "{good} of {all} members of etcd have the new credentials, and it takes {} before anything else can come back",
                    all / 2 + 1
                ));
            }
            Stage::Etcd => Stage::Quorum,
            Stage::Quorum if self.of_stage(Stage::Etcd).next().is_none() || self.etcd_serves => {
                Stage::Controllers
            }
            Stage::Quorum if now.duration_since(self.since) > ETCD_MEETS => {
                return self.end(format!(
                    "etcd does not serve {} minutes after its members have the new credentials: {}",
                    ETCD_MEETS.as_mins(),
                    self.etcd_says
                ));
            }
            Stage::Quorum => return false,
            Stage::Controllers if !settled => return false,
            Stage::Controllers if all > 0 && good == 0 => {
                return self
                    .end("no controller has the new credentials, so no kubelet can authenticate".to_owned());
            }
            Stage::Controllers => {
                if all > 0 {
                    messages.push(format!("the API is back on {good} of {all} controllers"));
                }
                Stage::Workers
            }
            Stage::Workers if self.nodes.iter().any(Node::is_open) => return false,
            Stage::Workers => Stage::Over,
            Stage::Over => return false,
        };
        (self.stage, self.since) = (next, now);
        true
    }

    fn end(&mut self, why: String) -> bool {
        (self.stage, self.ended) = (Stage::Over, Some(why));
        true
    }

    fn send(&mut self, now: Timestamp, send: &mut Vec<Command>) {
        match self.stage {
            Stage::Quorum => return self.ask_etcd(now, send),
            Stage::Over => return,
            Stage::Etcd | Stage::Controllers | Stage::Workers => {}
        }
        let most = if self.stage == Stage::Workers { AT_ONCE } else { 1 };
        let refreshing =
            self.nodes.iter().filter(|node| matches!(node.progress, Progress::RenewalRequest(_)));
        let mut room = most.saturating_sub(refreshing.count());
        let stage = self.stage;
        while room > 0 {
            // Nodes that were asked least come first, so that a kubelet that waits for others delays nobody.
            let due = |node: &&mut Node| {
                stage_of(&node.role) <= stage
                    && matches!(node.progress, Progress::Waiting(from) if from <= now)
            };
            let Some(node) = self.nodes.iter_mut().filter(due).min_by_key(|node| node.tries) else { break };
            node.tries += 1;
            node.progress = Progress::RenewalRequest(now);
            let node = node.clone();
            send.push(self.refresh(&node));
            room -= 1;
        }
    }

    fn ask_etcd(&mut self, now: Timestamp, send: &mut Vec<Command>) {
        let (times, last) = self.asked_etcd;
        if self.open.is_some() || (times > 0 && now.duration_since(last) < SignedDuration::from_secs(3)) {
            return;
        }
        let members: Vec<&Node> = self.of_stage(Stage::Etcd).filter(|node| node.in_force).collect();
        let Some(member) = members.get(times as usize % members.len().max(1)) else { return };
        let command = Command {
            token: format!("{}/{}/health-{times}", self.run, member.instance),
            instance: member.instance.clone(),
            verb: Verb::EtcdHealth,
        };
        self.asked_etcd = (times + 1, now);
        self.open = Some(command.clone());
        send.push(command);
    }

    fn take_etcd_health(
        &mut self,
        heard: &BTreeMap<String, CommandReport>,
        now: Timestamp,
        messages: &mut Vec<String>,
    ) {
        let Some(open) = self.open.clone() else { return };
        let says = match heard.get(&open.token) {
            Some(CommandReport::NotSent(why)) => Err(why.clone()),
            Some(CommandReport::View(view)) => match outcome(view) {
                None => return,
                Some(Ok(health)) => match health.and_then(EtcdHealth::from_answer) {
                    Some(health) if health.serving => Ok(()),
                    Some(health) => Err(format!("it does not serve: {}", health.problems.join("; "))),
                    None => Err("it gave no answer".to_owned()),
                },
                Some(Err((why, _))) => Err(why),
            },
            None if now.duration_since(self.asked_etcd.1) < LOST => return,
            None => Err("Run Command does not say what became of the question".to_owned()),
        };
        self.open = None;
        match says {
            Ok(()) => {
                messages.push("etcd serves again".to_owned());
                self.etcd_serves = true;
            }
            Err(why) => self.etcd_says = format!("{} says: {why}", open.instance),
        }
    }
}

/// The stage for nodes of `role`.
fn stage_of(role: &Role) -> Stage {
    match role {
        Role::Etcd(_) => Stage::Etcd,
        Role::Controller => Stage::Controllers,
        Role::Pool(_) => Stage::Workers,
        // This role has no machines.
        Role::Admin => Stage::Over,
    }
}

impl Node {
    /// Whether it is still to be asked or to answer.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.progress, Progress::Waiting(_) | Progress::RenewalRequest(_))
            && self.role != Role::Admin
    }

    fn take_report(
        &mut self,
        heard: Option<&CommandReport>,
        since: Timestamp,
        now: Timestamp,
        messages: &mut Vec<String>,
    ) {
        let name = format!("{} ({})", self.instance, self.role);
        let (why, is_transient) = match heard {
            None if now.duration_since(since) < LOST => return,
            None => ("Run Command does not say what became of it".to_owned(), true),
            Some(CommandReport::NotSent(why)) => (why.clone(), true),
            Some(CommandReport::View(view)) => match outcome(view) {
                None => return,
                Some(Ok(answer)) => {
                    (self.progress, self.in_force) = (Progress::Done, true);
                    let did = answer
                        .and_then(Refreshed::from_answer)
                        .map(|did| refresh_in_words(&did))
                        .unwrap_or_default();
                    messages.push(format!("{name} is back{did}"));
                    return;
                }
                Some(Err(failed)) => {
                    // Its credentials are in use; the kubelet still waits for a signer.
                    self.in_force |= view.failed_with(FailureCode::RefreshKubelet);
                    failed
                }
            },
        };
        if is_transient && self.tries < TRIES {
            if self.last_reason != why {
                messages.push(format!("{name}: {why}; it is asked again"));
                self.last_reason = why;
            }
            self.progress = Progress::Waiting(now.saturating_add(PAUSE).unwrap_or(now));
        } else {
            messages.push(format!("{name}: {why}"));
            self.progress = Progress::Failed(why);
        }
    }
}

/// The result of a refresh, in words.
fn refresh_in_words(did: &Refreshed) -> String {
    let mut words = match did.changed {
        true => vec!["with its new credentials".to_owned()],
        false => vec!["and had its credentials already".to_owned()],
    };
    if !did.restarted.is_empty() {
        words.push(format!("restarted: {}", did.restarted.join(", ")));
    }
    if did.kubelet.is_some() {
        words.push("its kubelet has another certificate".to_owned());
    }
    format!(" {}", words.join("; "))
}

/// The result of a command: its answer, as far as it can be read, or why it failed and whether to retry. `None`: it is in progress.
fn outcome(view: &CommandView) -> Option<Result<Option<&Answer>, (String, bool)>> {
    match view {
        CommandView::Pending | CommandView::InProgress => None,
        CommandView::Answered(answer) => Some(Ok(Some(answer))),
        CommandView::Failed(failure) => Some(Err((failure.with_help(), failure.transient))),
        CommandView::Unanswered(unanswered) => match unanswered.how {
            HowUnanswered::Succeeded => Some(Ok(None)),
            HowUnanswered::Undelivered
            | HowUnanswered::TimedOut
            | HowUnanswered::Failed
            | HowUnanswered::NotUnderstood => Some(Err((unanswered.to_string(), true))),
        },
    }
}
