//! The node agent: one binary that needs nothing of the image but glibc and systemd, fetched by its digest.
//!
//! Each verb does one thing, may be killed anywhere and run again, and prints one JSON object: what it did, or a
//! [`failure::Failure`]. The functions reach nodes only through Systems Manager documents that name one of these verbs.

pub mod api;
pub mod aws;
pub mod bootstrap;
pub mod credentials;
pub mod drain;
pub mod etcd;
pub mod failure;
pub mod http;
pub mod kube;
pub mod leave;
pub mod machine;
pub mod manage;
pub mod refresh;
pub mod software;
pub mod status;
pub mod storage;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use slipway_core::node::answer::printed;

use aws::Endpoints;
use failure::{FailureCode, Outcome};
use machine::apply::Host;
use machine::commands::System;

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "slipway-node", version, about = "Slipway's agent on a node")]
pub struct Arguments {
    /// Where the machine's files are
    #[arg(long, global = true, hide = true, default_value = "/")]
    root: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make this machine the node that its userdata says it is
    Bootstrap {
        /// On a node in service, after a reboot: its launch hook is left alone, and the instance is kept whatever comes of it
        #[arg(long)]
        again: bool,
    },
    /// On a worker: let its disks have their file systems, at each boot before they are mounted
    Storage,
    /// What an etcd member does
    #[command(subcommand)]
    Etcd(etcd::Verb),
    /// What this node serves, how its components are, and what was applied
    Status {
        /// Put it into the asset bucket, too
        #[arg(long)]
        publish: bool,
    },
    /// Put newer credentials in place, and wait until they are served
    Refresh {
        /// The digest of the bundle, as the plan names it
        #[arg(long, value_parser = digest)]
        credentials: String,
        /// Whether what reads some of them at its start alone may be restarted, once and one after the other
        #[arg(long, num_args = 0..=1, default_value = "never", default_missing_value = "allowed")]
        restart: Restart,
    },
    /// Which agent this is
    Version,
    /// On a controller: empty a node of its pods, under their disruption budgets
    Drain(drain::Drain),
    /// On a controller: let pods come to a node again
    Uncordon(drain::Uncordon),
    /// On a controller: one pass over the add-ons, the nodes' certificates and what the cluster is told of its own
    Manage,
    /// On etcd members and controllers: wait until the group takes this node away, then go in good order
    Leave,
}

/// Whether a process may be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// What would need it is refused.
    Never,
    /// What needs it has it.
    Allowed,
}

/// Whether the agent knows the verb in `words` and takes its options.
///
/// # Errors
/// With what it says to whoever calls it so.
pub fn understands(words: &[&str]) -> Result<(), String> {
    parse(words).map(|_| ())
}

/// What the verb in `words` answers; it ends where the caller drops it.
///
/// # Errors
/// As the verb, or if there is no such verb.
pub async fn ask(words: &[&str]) -> Outcome<Value> {
    let asked =
        parse(words).map_err(|said| failure::Failure::lasting(FailureCode::Usage, said, "see --help"))?;
    perform(&asked.root, &Endpoints::read(|_| None), asked.verb).await
}

fn parse(words: &[&str]) -> Result<Arguments, String> {
    let asked = Arguments::try_parse_from(["slipway-node"].iter().chain(words));
    asked.map_err(|error| error.to_string())
}

/// Does what `arguments` say; prints one JSON object. The status is 0, or 1 after a failure.
pub async fn run(arguments: Arguments, endpoints: &Endpoints) -> ExitCode {
    let done = perform(&arguments.root, endpoints, arguments.verb).await;
    let status = if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let value = printed(&done.map_err(Into::into));
    // Whoever asked may be gone.
    let _ = writeln!(std::io::stdout(), "{value}");
    status
}

async fn perform(root: &Path, endpoints: &Endpoints, verb: Verb) -> Outcome<Value> {
    match verb {
        Verb::Bootstrap { again } => bootstrap::perform(root, endpoints, again).await,
        Verb::Storage => storage::perform(root, endpoints).await,
        Verb::Etcd(verb) => etcd::perform(root, endpoints, verb).await,
        Verb::Status { publish: true } => Ok(etcd::answer(status::publish::publish(root, endpoints).await?)),
        Verb::Status { publish: false } => Ok(etcd::answer(status::status(root, endpoints).await?)),
        Verb::Refresh { credentials, restart } => {
            let host = Host { root: root.to_owned(), commands: System };
            let restart = restart == Restart::Allowed;
            let order = refresh::Order { credentials, restart, ..refresh::Order::default() };
            Ok(etcd::answer(refresh::refresh(&host, endpoints, &order).await?))
        }
        Verb::Version => Ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
        Verb::Drain(options) => Ok(etcd::answer(drain::drain(root, &options).await?)),
        Verb::Uncordon(options) => Ok(etcd::answer(drain::uncordon(root, &options).await?)),
        Verb::Leave => leave::perform(root, endpoints).await,
        Verb::Manage => manage::manage(root, endpoints).await,
    }
}

/// A digest names an object and a folder: nothing but 64 hex digits is one.
fn digest(text: &str) -> Result<String, String> {
    let is_one = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_one { Ok(text.to_owned()) } else { Err("a digest has 64 lower-case hex digits".to_owned()) }
}
