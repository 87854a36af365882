//! The verbs of an etcd member: health, leadership, membership, snapshots, defragmentation.
//!
//! All speak to etcd's JSON gateway ([`client`]) with the member's own client certificate. No code of etcd is linked.

mod checker;
pub mod client;
pub mod defragment;
pub mod health;
pub mod join;
pub mod leader;
pub mod local_member;
pub mod remove;
pub mod restore;
pub mod retire;
pub mod scheduled;
pub mod snapshot;
pub mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;
use slipway_core::node::{ANY, Answer, RestoreStage, is_sha256};

use crate::aws::Endpoints;
use crate::failure::AgentResult;
use crate::machine::commands::System;
use local_member::LocalMember;
use restore::Request;

/// The systemd unit of etcd.
pub const SERVICE: &str = "etcd.service";
/// The token is derived from the cluster's name and the snapshot.
const AUTO: &str = "auto";
const FOUNDERS: &str = "founders";

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show the health of this member, and what it sees of the others
    Health,
    /// Hand leadership to another member, if this one leads
    MoveLeader,
    /// Take a snapshot, store it sealed in the asset bucket, and verify it there
    Snapshot {
        /// For a timer: take one only if the cluster's schedule asks this member for it now
        #[arg(long)]
        scheduled: bool,
    },
    /// Replace this member's data by a snapshot and start it; run it with the same options on all members
    Restore {
        /// The snapshot's time, as in the answer of `etcd snapshot`
        #[arg(long, value_parser = time)]
        snapshot: String,
        /// Token of the new cluster: the same on all members, and never used before; `auto`: made of the cluster's name and the
        /// snapshot
        #[arg(long, value_parser = token, default_value = AUTO)]
        token: String,
        /// Peer URL of every member, the same on all of them; `founders`: the members that founded the cluster
        #[arg(long, value_name = "NAME=URL,…", value_parser = members, default_value = FOUNDERS)]
        initial_cluster: BTreeMap<String, String>,
        /// Number added to all revisions: the same on all members, and greater than at any earlier restore
        #[arg(long, value_name = "REVISIONS", default_value_t = 1_000_000_000)]
        bump: u64,
        /// SHA-256 of the database that the snapshot must hold; `any`: whatever it holds, if nothing speaks against it
        #[arg(long, value_name = "HEX", value_parser = sha256, default_value = ANY)]
        sha256: String,
        /// `verify`: download, verify and unpack the snapshot, then delete what was unpacked; `prepare`: the same, but keep it; `whole`:
        /// replace the data, too; `discard`: delete what `prepare` kept
        #[arg(long, value_parser = stage, default_value = RestoreStage::Whole.word())]
        stage: RestoreStage,
    },
    /// Add this member to the cluster as a learner
    Join,
    /// Wait until this learner has caught up, and give it a vote
    Promote,
    /// Remove another member from the cluster
    Remove {
        /// The member's name
        #[arg(long, value_name = "NAME", value_parser = name)]
        member: String,
    },
    /// Delete the DNS records of all members, because their cluster is being destroyed
    Retire,
    /// Shrink this member's database file, and disarm its alarm NOSPACE; refused unless all members are well
    Defragment,
}

pub async fn perform(root: &Path, endpoints: &Endpoints, verb: Verb) -> AgentResult<Value> {
    let local = LocalMember::read(root)?;
    match verb {
        Verb::Health => Ok(answer(health::health(&local).await?)),
        Verb::Snapshot { scheduled: false } => Ok(answer(snapshot::snapshot(&local, endpoints).await?)),
        Verb::Snapshot { scheduled: true } => Ok(json(&scheduled::run(&local, endpoints).await?)),
        Verb::Restore { snapshot, token, initial_cluster, bump, sha256, stage } => {
            let token = Some(token).filter(|token| token != AUTO);
            let sha256 = Some(sha256).filter(|sha256| sha256 != ANY);
            let request = Request { snapshot, token, members: initial_cluster, bump, sha256, stage };
            Ok(answer(restore::restore(&local, endpoints, &System, &request).await?))
        }
        Verb::Join => Ok(json(&join::join(&local).await?)),
        Verb::Promote => Ok(json(&join::promote(&local).await?)),
        Verb::Remove { member } => Ok(answer(remove::remove(&local, &member).await?)),
        Verb::Retire => Ok(answer(retire::retire(&local, endpoints).await?)),
        Verb::Defragment => Ok(answer(defragment::defragment(&local).await?)),
        Verb::MoveLeader => Ok(answer(leader::move_leader(&local).await?)),
    }
}

/// The answer of a verb that the functions run, as one of the contract's types, in JSON.
pub(crate) fn answer(answer: impl Into<Answer>) -> Value {
    json(&answer.into())
}

/// The answer of a verb that a person, a unit or a timer runs, in JSON.
fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer has string keys only")
}

/// `20261121T204500Z`. It becomes part of a key.
fn time(text: &str) -> Result<String, String> {
    let fits = text.len() == 16
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if fits { Ok(text.to_owned()) } else { Err("a snapshot's time looks like 20261121T204500Z".to_owned()) }
}

fn sha256(text: &str) -> Result<String, String> {
    let fits = text == ANY || is_sha256(text);
    if fits { Ok(text.to_owned()) } else { Err("a SHA-256 has 64 hexadecimal digits".to_owned()) }
}

/// `etcd-4`.
fn name(text: &str) -> Result<String, String> {
    let number = text.strip_prefix("etcd-").unwrap_or_default();
    let fits = (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    if fits { Ok(text.to_owned()) } else { Err("a member's name looks like etcd-4".to_owned()) }
}

fn token(text: &str) -> Result<String, String> {
    let fits = (1..=128).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
        && !text.starts_with('-');
    if fits {
        Ok(text.to_owned())
    } else {
        Err("a token has up to 128 letters, digits, dots and hyphens".to_owned())
    }
}

fn stage(text: &str) -> Result<RestoreStage, String> {
    RestoreStage::named(text).ok_or_else(|| "a stage is verify, prepare, whole or discard".to_owned())
}

/// Empty for the founders.
fn members(text: &str) -> Result<BTreeMap<String, String>, String> {
    if text == FOUNDERS { Ok(BTreeMap::new()) } else { text.split(',').map(member).collect() }
}

fn member(text: &str) -> Result<(String, String), String> {
    let (name, url) = text.split_once('=').ok_or("a member is NAME=URL")?;
    let host = url.strip_prefix("https://").unwrap_or_default();
    let plain = |text: &str, more: &[u8]| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
    };
    if plain(name, b"-") && plain(host, b"-.:") {
        Ok((name.to_owned(), url.to_owned()))
    } else {
        Err("a member looks like etcd-0=https://etcd-0.production.etcd.internal:2380".to_owned())
    }
}
