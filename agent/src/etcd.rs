//! The verbs of an etcd member: how it is, who leads, its snapshots, and how it joins.
//!
//! All speak to etcd's gateway ([`client`]), with the member's own client certificate; nothing of etcd's is linked.

mod checker;
pub mod client;
pub mod health;
pub mod join;
pub mod leader;
pub mod place;
pub mod remove;
pub mod restore;
pub mod retire;
pub mod snapshot;
pub mod wire;

use std::collections::BTreeMap;
use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;
use slipway_core::node::Answer;

use crate::aws::Endpoints;
use crate::failure::Outcome;
use crate::machine::commands::System;
use place::Place;
use restore::Request;

/// A token of the agent's making.
const AUTO: &str = "auto";
/// The members that a cluster was founded with.
const FOUNDERS: &str = "founders";

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// How this member is, and what it sees of the others
    Health,
    /// Hand leadership to another member, if this one has it
    MoveLeader,
    /// Take a snapshot into the asset bucket, sealed, and check it there
    Snapshot,
    /// Make this member's data out of a snapshot, and start it with them; the same on all members
    Restore {
        /// The snapshot's time, as `etcd snapshot` told it
        #[arg(long, value_parser = time)]
        snapshot: String,
        /// The new cluster's token, the same on all members and never one that was used; `auto`: made of cluster and snapshot
        #[arg(long, value_parser = token, default_value = AUTO)]
        token: String,
        /// Every member's peer URL, the same on all members; `founders`: those that founded the cluster
        #[arg(long, value_name = "NAME=URL,…", value_parser = members, default_value = FOUNDERS)]
        initial_cluster: BTreeMap<String, String>,
    },
    /// Have this member added to the cluster that it was told of, as a learner
    Join,
    /// Give this learner a vote, once it has caught up
    Promote,
    /// Take another member out of the membership
    Remove {
        /// Its name
        #[arg(long, value_name = "NAME", value_parser = name)]
        member: String,
    },
    /// Take back the DNS records of all members: their cluster is being taken away
    Retire,
}

/// Does what `verb` says.
///
/// # Errors
/// As each verb.
pub async fn perform(root: &Path, endpoints: &Endpoints, verb: Verb) -> Outcome<Value> {
    let place = Place::read(root)?;
    match verb {
        Verb::Health => Ok(answer(health::health(&place).await?)),
        Verb::Snapshot => Ok(answer(snapshot::snapshot(&place, endpoints).await?)),
        Verb::Restore { snapshot, token, initial_cluster } => {
            let token = Some(token).filter(|token| token != AUTO);
            let request = Request { snapshot, token, members: initial_cluster };
            Ok(json(&restore::restore(&place, endpoints, &System, &request).await?))
        }
        Verb::Join => Ok(json(&join::join(&place).await?)),
        Verb::Promote => Ok(json(&join::promote(&place).await?)),
        Verb::Remove { member } => Ok(answer(remove::remove(&place, &member).await?)),
        Verb::Retire => Ok(answer(retire::retire(&place, endpoints).await?)),
        Verb::MoveLeader => Ok(answer(leader::move_leader(&place).await?)),
    }
}

/// The answer of a verb that the functions ask for, as JSON: one of the contract's types.
pub(crate) fn answer(answer: impl Into<Answer>) -> Value {
    json(&answer.into())
}

/// The answer of a verb that a person, a unit or a timer runs, as JSON.
fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer has string keys only")
}

/// `20261121T204500Z`: it is part of a key.
fn time(text: &str) -> Result<String, String> {
    let fits = text.len() == 16
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if fits { Ok(text.to_owned()) } else { Err("a snapshot's time is as 20261121T204500Z".to_owned()) }
}

/// `etcd-4`.
fn name(text: &str) -> Result<String, String> {
    let number = text.strip_prefix("etcd-").unwrap_or_default();
    let fits = (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    if fits { Ok(text.to_owned()) } else { Err("a member's name is as etcd-4".to_owned()) }
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

/// None for the founders.
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
        Err("a member is as etcd-0=https://etcd-0.production.etcd.internal:2380".to_owned())
    }
}
