//! Recovers nodes whose certificates have expired, without an API (P7); `slipway_credentials::renewal::recovery` decides the order.

use std::collections::BTreeMap;

use jiff::Timestamp;
use slipway_core::node::EtcdConfig;
use slipway_core::role::Role;
use slipway_credentials::renewal::recovery::{CommandReport, Recovery};
use slipway_ports::{ErrorKind, Objects, PortError};
use slipway_rollout::fleet::Lifecycle;

use crate::credentials::rotation::{self, Machines};
use crate::error::{FlowError, FlowResult};
use crate::ports::{Commands, Groups};

/// The machines of each role of `cluster`, as Auto Scaling lists them: those in service and those that are starting.
///
/// # Errors
/// If a port fails, or a deployed release is lost.
pub async fn machines(assets: &impl Objects, groups: &impl Groups, cluster: &str) -> FlowResult<Machines> {
    let standing = rotation::deployed_releases(assets, cluster).await?;
    let up = |lifecycle| match lifecycle {
        Lifecycle::Pending | Lifecycle::InService => true,
        Lifecycle::TerminatingWait | Lifecycle::Terminating | Lifecycle::Retained | Lifecycle::Elsewhere => {
            false
        }
    };
    rotation::machines(groups, cluster, &standing, up).await
}

/// As [`machines`], with those that are leaving or in standby: whatever may still answer.
///
/// # Errors
/// If a port fails, or a deployed release is lost.
pub async fn listed_machines(
    assets: &impl Objects,
    groups: &impl Groups,
    cluster: &str,
) -> FlowResult<Machines> {
    let standing = rotation::deployed_releases(assets, cluster).await?;
    rotation::machines(groups, cluster, &standing, |_| true).await
}

/// The peer URL of each member of etcd, by its name, as its deployed configuration has it.
///
/// # Errors
/// If a port fails, or a deployed release or configuration is lost.
pub async fn peer_urls(assets: &impl Objects, cluster: &str) -> FlowResult<BTreeMap<String, String>> {
    let mut urls = BTreeMap::new();
    for (stack, release) in rotation::deployed_releases(assets, cluster).await? {
        let of_stack = release.roles.iter().filter(|(role, node)| {
            matches!(role, Role::Etcd(_)) && stack.as_ref().is_some_and(|stack| *stack == node.stack)
        });
        for (role, node) in of_stack {
            let config: EtcdConfig =
                serde_json::from_str(&node.config).map_err(|error| FlowError::Corrupt {
                    key: format!("{role} in a release of {cluster}"),
                    problem: format!("its configuration cannot be read: {error}"),
                    help: "use the release of the command line that the installation has".to_owned(),
                })?;
            urls.insert(role.to_string(), config.etcd.peer_url());
        }
    }
    Ok(urls)
}

/// Queries the commands in progress and sends the next ones; returns what has happened, in words.
///
/// # Errors
/// If a call is refused permanently. A call that fails transiently is repeated in the next turn.
pub async fn turn(
    commands: &impl Commands,
    recovery: &mut Recovery,
    now: Timestamp,
) -> FlowResult<Vec<String>> {
    let mut heard = BTreeMap::new();
    for command in recovery.under_way() {
        match commands.answer(&command).await {
            Ok(view) => heard.extend(view.map(|view| (command.token, CommandReport::View(view)))),
            Err(error) if error.kind == ErrorKind::Transient => {}
            Err(error) => return Err(error.into()),
        }
    }
    let mut messages = Vec::new();
    loop {
        let turn = recovery.next(&heard, now);
        messages.extend(turn.messages);
        heard.clear();
        for command in turn.send {
            match commands.send(&command).await {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Denied => return Err(error.into()),
                Err(error) => {
                    heard.insert(command.token, CommandReport::NotSent(not_sent(&error)));
                }
            }
        }
        if heard.is_empty() {
            return Ok(messages);
        }
    }
}

/// Why a command could not be sent, in words.
#[must_use]
pub fn not_sent(error: &PortError) -> String {
    format!("Run Command refused the command: {}", error.message)
}
