//! Nodes whose certificates have expired are brought back, with no API to ask (P7): `slipway_core::renewal::recovery` says in which order.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use slipway_core::node::Base;
use slipway_core::pki::Role;
use slipway_core::renewal::recovery::{Heard, Recovery};
use slipway_core::rollout::fleet::Lifecycle;

use crate::credentials::rotation::{Machines, standing_releases};
use crate::error::FlowResult;
use crate::ports::{Commands, ErrorKind, Groups, Objects, PortError};

/// The machines that each role of `cluster` has, as Auto Scaling says: those that are up, or on their way.
///
/// # Errors
/// If a port fails, or a release that is deployed is lost.
pub async fn machines(assets: &impl Objects, groups: &impl Groups, cluster: &str) -> FlowResult<Machines> {
    let mut names: BTreeMap<Role, BTreeSet<String>> = BTreeMap::new();
    for (stack, release) in standing_releases(assets, cluster).await? {
        for (role, node) in &release.roles {
            let stands = stack.as_ref().is_none_or(|stack| *stack == node.stack);
            // Rendering writes it, for the agent.
            let base = serde_json::from_str::<Base>(&node.config).ok().filter(|_| stands);
            names.entry(role.clone()).or_default().extend(base.map(|base| base.auto_scaling_group));
        }
    }
    let mut machines = Machines::new();
    for (role, names) in names {
        for name in names {
            let Some(group) = groups.group(&name).await? else { continue };
            // A group of that name that somebody else made is none of ours.
            if group.tags.get("slipway:cluster").is_none_or(|owner| owner != cluster) {
                continue;
            }
            let up = group.machines.into_iter().filter(|(_, machine)| match machine.lifecycle {
                Lifecycle::Pending | Lifecycle::InService => true,
                Lifecycle::TerminatingWait | Lifecycle::Terminating | Lifecycle::Elsewhere => false,
            });
            machines.entry(role.clone()).or_default().extend(up.map(|(instance, _)| instance));
        }
    }
    Ok(machines)
}

/// Asks what became of the commands under way, and sends those that are next; what has happened, in words.
///
/// # Errors
/// If a call is refused for good. One that only fails for now is made again with the next turn.
pub async fn turn(
    commands: &impl Commands,
    recovery: &mut Recovery,
    now: Timestamp,
) -> FlowResult<Vec<String>> {
    let mut heard = BTreeMap::new();
    for command in recovery.under_way() {
        match commands.answer(&command).await {
            Ok(view) => heard.extend(view.map(|view| (command.token, Heard::View(view)))),
            Err(error) if error.kind == ErrorKind::Transient => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut said = Vec::new();
    loop {
        let turn = recovery.next(&heard, now);
        said.extend(turn.said);
        heard.clear();
        for command in turn.send {
            match commands.send(&command).await {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Denied => return Err(error.into()),
                Err(error) => {
                    heard.insert(command.token, Heard::NotSent(not_sent(&error)));
                }
            }
        }
        if heard.is_empty() {
            return Ok(said);
        }
    }
}

fn not_sent(error: &PortError) -> String {
    format!("Run Command does not take it: {}", error.message)
}
