//! The node agent: one binary that needs only glibc and systemd from the image, and is fetched by its digest.
//!
//! Each verb does one thing, can be killed at any point and run again, and prints one JSON object: what it did, or a
//! [`failure::AgentError`]. The functions reach nodes only through Systems Manager documents, each of which names one of these
//! verbs.

#![allow(missing_docs, reason = "only the tests of this repository use this library")]

pub mod api;
pub mod aws;
pub mod bootstrap;
pub mod credentials;
pub mod drain;
pub mod etcd;
pub mod failure;
pub mod http;
mod image_credentials;
pub mod kube;
pub mod leave;
pub mod logs;
pub mod machine;
pub mod manage;
pub mod node_files;
mod passes;
pub mod refresh;
mod run_command;
mod sealed_bundle;
pub mod serves;
pub mod software;
pub mod static_pods;
pub mod status;
pub mod storage;
mod workers_seen;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use serde_json::{Value, json};
use slipway_core::node::answer::printed;

use aws::Endpoints;
use failure::{AgentResult, FailureCode};
use machine::apply::Host;
use machine::commands::System;

#[derive(Debug, Parser)]
#[command(name = "slipway-node", version, about = "Slipway's agent on a node")]
pub struct Arguments {
    /// Root of the machine's file system
    #[arg(long, global = true, hide = true, default_value = "/")]
    root: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make this machine the node that its user data describes
    Bootstrap {
        /// After a reboot: continues a launch whose hook is still pending; keeps an instance that was in service whatever happens
        #[arg(long)]
        after_reboot: bool,
    },
    /// On a worker: prepare its disks, at each boot before they are mounted
    Storage,
    /// Verbs of an etcd member
    #[command(subcommand)]
    Etcd(etcd::Verb),
    /// Show what this node serves, the health of its components, and what was applied
    Status {
        /// Also write the result to the asset bucket
        #[arg(long)]
        publish: bool,
    },
    /// Show the last log lines of this node's own units, without what has the form of a secret
    Logs(logs::Logs),
    /// On a controller: show whether etcd, the API, this node manager and the Nodes of all pools serve
    Serves {
        /// The machines whose Nodes do not count: their ids with commas between them, or `none`
        #[arg(long, default_value = "none", value_parser = machines)]
        without: Machines,
    },
    /// Install newer credentials, and wait until they are served
    Refresh {
        /// The digest of the bundle, as in the plan
        #[arg(long, value_parser = digest)]
        credentials: String,
        /// Whether processes that read some of these files only at their start may be restarted, one after the other
        #[arg(long, num_args = 0..=1, default_value = "never", default_missing_value = "allowed")]
        restart: Restart,
    },
    /// Print the agent's version
    Version,
    /// On a controller: drain a node under its pods' disruption budgets
    Drain(drain::Drain),
    /// On a controller: uncordon a node
    Uncordon(drain::Uncordon),
    /// On a controller: one pass over add-ons, certificate requests of kubelets, and the cluster's own ConfigMap and labels
    Manage,
    /// For the kubelet: print the password of a private registry of ECR, for the request on the standard input
    ImageCredentials,
    /// On etcd members and controllers: wait until the group terminates this instance, then shut down in order
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Restart {
    /// Credentials that need a restart are refused.
    Never,
    Allowed,
}

/// Whether the agent knows the verb in `words` and accepts its options; the error is the usage message.
pub fn understands(words: &[&str]) -> Result<(), String> {
    parse(words).map(|_| ())
}

/// Runs the verb in `words` in this process. Dropping the future stops it.
pub async fn answer(words: &[&str]) -> AgentResult<Value> {
    let arguments = parse(words)
        .map_err(|usage| failure::AgentError::permanent(FailureCode::Usage, usage, "see --help"))?;
    perform(&arguments.root, &Endpoints::read(|_| None), arguments.verb).await
}

fn parse(words: &[&str]) -> Result<Arguments, String> {
    let parsed = Arguments::try_parse_from(["slipway-node"].iter().chain(words));
    parsed.map_err(|error| error.to_string())
}

/// Runs the verb and prints one JSON object. The exit status is 0, or 1 after a failure.
pub async fn run(arguments: Arguments, endpoints: &Endpoints) -> ExitCode {
    let done = perform(&arguments.root, endpoints, arguments.verb).await;
    let status = if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let value = printed(&done.map_err(Into::into));
    // The reader of the pipe may be gone.
    let _ = writeln!(std::io::stdout(), "{value}");
    status
}

async fn perform(root: &Path, endpoints: &Endpoints, verb: Verb) -> AgentResult<Value> {
    match verb {
        Verb::Bootstrap { after_reboot } => bootstrap::perform(root, endpoints, after_reboot).await,
        Verb::Storage => storage::perform(root, endpoints).await,
        Verb::Etcd(verb) => etcd::perform(root, endpoints, verb).await,
        Verb::Status { publish: true } => Ok(etcd::answer(status::publish::publish(root, endpoints).await?)),
        Verb::Status { publish: false } => Ok(etcd::answer(status::status(root, endpoints).await?)),
        Verb::Logs(options) => Ok(etcd::answer(logs::logs(root, &System, &options).await?)),
        Verb::Serves { without } => Ok(etcd::answer(serves::serves(root, &without).await?)),
        Verb::Refresh { credentials, restart } => {
            let host = Host { root: root.to_owned(), commands: System };
            let restart = restart == Restart::Allowed;
            let order = refresh::Order { credentials, restart, ..refresh::Order::default() };
            Ok(etcd::answer(refresh::refresh(&host, endpoints, &order).await?))
        }
        Verb::Version => Ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
        Verb::Drain(options) => Ok(etcd::answer(drain::drain(root, &options).await?)),
        Verb::Uncordon(options) => Ok(etcd::answer(drain::uncordon(root, &options).await?)),
        Verb::ImageCredentials => image_credentials::perform(endpoints).await,
        Verb::Leave => leave::perform(root, endpoints).await,
        Verb::Manage => manage::manage(root, endpoints).await,
    }
}

/// The ids of machines.
type Machines = BTreeSet<String>;

fn machines(text: &str) -> Result<Machines, String> {
    Ok(slipway_core::node::machines(text))
}

/// A digest becomes part of a key and of a path, so nothing but 64 hex digits is accepted.
fn digest(text: &str) -> Result<String, String> {
    let is_one = text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_one { Ok(text.to_owned()) } else { Err("a digest has 64 lower-case hex digits".to_owned()) }
}

#[cfg(test)]
mod tests {
    /// The rollout functions tell an agent that is older than a verb by these words (`Invocation` in slipway-core). An agent that words it
    /// otherwise would be taken for one that failed.
    #[test]
    fn p11_what_the_agent_does_not_know_is_told_from_what_is_wrong() {
        let begins = |words: &[&str]| {
            let usage = super::understands(words).err().unwrap_or_default();
            usage.split('\'').next().unwrap_or_default().to_owned()
        };
        for verb in [&["frobnicate"][..], &["etcd", "frobnicate"], &["serve"], &["etcd", "healt"]] {
            assert_eq!(begins(verb), "error: unrecognized subcommand ", "{verb:?}");
        }
        assert_eq!(begins(&["serves", "--besides", "i-1"]), "error: unexpected argument ");
        assert_eq!(begins(&["refresh", "--credentials", "x"]), "error: invalid value ");
        assert_eq!(begins(&["serves", "--without"]), "error: a value is required for ");
    }
}
