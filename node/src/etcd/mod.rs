//! The verbs of an etcd member: how it is, who leads, its snapshots, and how it joins.
//!
//! All speak to etcd's gateway ([`client`]), with the member's own client certificate; nothing of etcd's is linked.

pub mod client;
pub mod health;
pub mod leader;
pub mod place;
pub mod wire;

use std::path::Path;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use crate::failure::Outcome;
use place::Place;

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// How this member is, and what it sees of the others
    Health,
    /// Hand leadership to another member, if this one has it
    MoveLeader,
}

/// Does what `verb` says.
///
/// # Errors
/// As each verb.
pub async fn perform(root: &Path, verb: Verb) -> Outcome<Value> {
    let place = Place::read(root)?;
    match verb {
        Verb::Health => Ok(json(&health::health(&place).await?)),
        Verb::MoveLeader => Ok(json(&leader::move_leader(&place).await?)),
    }
}

/// An answer as JSON.
pub(crate) fn json(answer: &impl Serialize) -> Value {
    serde_json::to_value(answer).expect("an answer has string keys only")
}
