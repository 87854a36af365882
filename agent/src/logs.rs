//! `logs`: the last lines that the units of this machine wrote into the journal.

use std::path::Path;

use clap::Args;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use slipway_core::node::logs::{ALL_UNITS, Entry, MOST_LINES};
use slipway_core::node::{LogUnit, MachineLogs, UnitLog};

use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::commands::Commands;
use crate::node_files::node;

/// The options of `logs`.
#[derive(Debug, Args)]
pub struct Logs {
    /// The unit: agent, kubelet, containerd or etcd; `all`: all that this node has
    #[arg(long, default_value = ALL_UNITS, value_parser = unit)]
    unit: Chosen,
    /// How many lines of each, the newest
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LINES)))]
    lines: u32,
}

/// One unit, or all.
#[derive(Debug, Clone, Copy)]
struct Chosen(Option<LogUnit>);

fn unit(text: &str) -> Result<Chosen, String> {
    if text == ALL_UNITS {
        return Ok(Chosen(None));
    }
    let named = LogUnit::named(text).map(|unit| Chosen(Some(unit)));
    named.ok_or_else(|| {
        format!("the units are {} and {ALL_UNITS}", LogUnit::ALL.map(LogUnit::name).join(", "))
    })
}

/// An entry of the journal as `journalctl` prints it (systemd.journal-fields(7)).
#[derive(Deserialize)]
struct Printed {
    /// Microseconds since 1970.
    #[serde(rename = "__REALTIME_TIMESTAMP")]
    at_us: String,
    /// A text; a list of bytes, if it is no UTF-8; null, if it is longer than 4096 bytes (systemd, `JSON_THRESHOLD` in logs-show.c).
    #[serde(rename = "MESSAGE", default)]
    message: Value,
    /// The unit that systemd itself writes about.
    #[serde(rename = "UNIT", default)]
    about: Option<String>,
    /// The unit that writes.
    #[serde(rename = "_SYSTEMD_UNIT", default)]
    written_by: Option<String>,
}

/// The last lines of the units of this machine.
pub async fn logs(root: &Path, commands: &impl Commands, options: &Logs) -> AgentResult<MachineLogs> {
    // A machine whose user data was never written has no role yet, and is shown with whatever it has.
    let role = node(root).ok().flatten().map(|node| node.role).unwrap_or_default();
    let of_role = LogUnit::of_role(&role);
    let units: Vec<LogUnit> = match options.unit {
        Chosen(None) => of_role.to_vec(),
        Chosen(Some(unit)) if of_role.contains(&unit) => vec![unit],
        Chosen(Some(unit)) => {
            return Err(AgentError::permanent(
                FailureCode::Usage,
                format!("{role} has no {}", unit.name()),
                format!(
                    "its units are {}",
                    of_role.iter().map(|unit| unit.name()).collect::<Vec<_>>().join(", ")
                ),
            ));
        }
    };
    let mut shown = Vec::new();
    for unit in &units {
        shown.push(log(commands, *unit, options.lines).await?);
    }
    Ok(MachineLogs::new(role, shown))
}

async fn log(commands: &impl Commands, unit: LogUnit, lines: u32) -> AgentResult<UnitLog> {
    let count = lines.to_string();
    let mut arguments =
        vec!["--lines", &count, "--output=json", "--output-fields=MESSAGE,UNIT,_SYSTEMD_UNIT"];
    arguments.extend(["--no-pager", "--quiet"]);
    for service in unit.services() {
        arguments.extend(["--unit", service]);
    }
    let journal = commands.run_checked("journalctl", &arguments).await?;
    let printed = journal.lines().filter_map(|line| serde_json::from_str::<Printed>(line).ok());
    let entries: Vec<Entry> = printed.filter_map(entry).collect();
    let mut arguments = vec!["show", "--property=Id,ActiveState,SubState,NRestarts"];
    arguments.extend(unit.services());
    let (state, restarts) = states(&commands.run("systemctl", &arguments).await?.stdout);
    Ok(UnitLog::new(unit, &state, restarts, &entries))
}

/// The state of one service, or those of several that run or have failed, as `systemctl show` prints them; and the number of restarts.
fn states(shown: &str) -> (String, u32) {
    let services: Vec<(String, String, u32)> = shown
        .split("\n\n")
        .map(|service| {
            let property = |name: &str| {
                let value = service.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                value.unwrap_or_default().trim().to_owned()
            };
            let state = format!("{} ({})", property("ActiveState"), property("SubState"));
            (
                property("Id").trim_end_matches(".service").to_owned(),
                state,
                property("NRestarts").parse().unwrap_or_default(),
            )
        })
        .collect();
    let restarts = services.iter().map(|(_, _, restarts)| *restarts).fold(0, u32::saturating_add);
    if let [(_, state, _)] = services.as_slice() {
        return (state.clone(), restarts);
    }
    let others = services.iter().filter(|(_, state, _)| !state.starts_with("inactive"));
    let others: Vec<String> = others.map(|(name, state, _)| format!("{name} {state}")).collect();
    let state = if others.is_empty() { "no unit runs or has failed".to_owned() } else { others.join(", ") };
    (state, restarts)
}

fn entry(printed: Printed) -> Option<Entry> {
    let at = Timestamp::from_microsecond(printed.at_us.parse().ok()?).ok()?;
    let message = match printed.message {
        Value::String(text) => text,
        Value::Array(bytes) => {
            let bytes =
                bytes.iter().filter_map(|byte| u8::try_from(byte.as_u64()?).ok()).collect::<Vec<u8>>();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        Value::Null => "(longer than 4096 bytes)".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => return None,
    };
    let from = printed.about.or(printed.written_by).unwrap_or_default();
    Some(Entry { at, from: from.trim_end_matches(".service").to_owned(), message })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;

    use super::*;
    use crate::machine::commands::Ran;

    /// A machine with this journal.
    struct Machine {
        journal: &'static str,
        status: i32,
        ran: Mutex<Vec<String>>,
    }

    impl Commands for Machine {
        async fn run(&self, program: &str, arguments: &[&str]) -> AgentResult<Ran> {
            self.ran.lock().unwrap().push(format!("{program} {}", arguments.join(" ")));
            let stdout = match program {
                "journalctl" => self.journal.to_owned(),
                _ if arguments.contains(&"etcd.service") => {
                    "Id=etcd.service\nNRestarts=3\nActiveState=activating\nSubState=auto-restart\n".to_owned()
                }
                _ => concat!(
                    "Id=slipway-manage.service\nNRestarts=0\nActiveState=failed\nSubState=failed\n\n",
                    "Id=slipway-status.service\nNRestarts=2\nActiveState=inactive\nSubState=dead\n"
                )
                .to_owned(),
            };
            Ok(Ran { status: Some(self.status), stdout, stderr: "no journal\n".to_owned() })
        }
    }

    fn machine(journal: &'static str, status: i32) -> Machine {
        Machine { journal, status, ran: Mutex::default() }
    }

    fn root(role: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("var/lib/slipway/node.json");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let node = serde_json::json!({
            "format": 1, "cluster": "prod", "role": role, "region": "eu-west-1", "assetBucket": "a",
            "config": "c", "credentials": "d",
        });
        std::fs::write(file, node.to_string()).unwrap();
        folder
    }

    /// As journalctl 252 prints them.
    const JOURNAL: &str = concat!(
        r#"{"__REALTIME_TIMESTAMP":"1795727100000000","__CURSOR":"s","_SYSTEMD_UNIT":"slipway-manage.service","MESSAGE":"{\"a\":1}","_BOOT_ID":"b"}"#,
        "\n",
        r#"{"__REALTIME_TIMESTAMP":"1795727101000000","_SYSTEMD_UNIT":"init.scope","UNIT":"slipway-bootstrap.service","MESSAGE":[97,27,91,50,74,255]}"#,
        "\n",
        r#"{"__REALTIME_TIMESTAMP":"1795727102000000","_SYSTEMD_UNIT":"slipway-status.service","MESSAGE":null}"#,
        "\nnonsense\n",
        r#"{"__REALTIME_TIMESTAMP":"x","MESSAGE":"of no time"}"#,
        "\n",
        r#"{"__REALTIME_TIMESTAMP":"1795727103000000","_SYSTEMD_UNIT":"slipway-status.service","MESSAGE":"token abcdef.0123456789abcdef"}"#,
        "\n",
        r#"{"__REALTIME_TIMESTAMP":"1795727104000000","_SYSTEMD_UNIT":"slipway-status.service","MESSAGE":"-----BEGIN EC PRIVATE KEY-----"}"#,
        "\n",
        r#"{"__REALTIME_TIMESTAMP":"1795727105000000","_SYSTEMD_UNIT":"slipway-status.service","MESSAGE":"c2hvcnQ="}"#,
        "\n",
    );

    #[tokio::test]
    async fn p9_the_journal_is_shown_clean_and_without_secrets() {
        let (folder, machine) = (root("etcd-0"), machine(JOURNAL, 0));
        let options = Logs { unit: Chosen(None), lines: 7 };
        let shown = logs(folder.path(), &machine, &options).await.unwrap();
        assert_eq!((shown.role.as_str(), shown.units.len()), ("etcd-0", 2));
        let agent = &shown.units[0];
        assert_eq!(
            (agent.state.as_str(), agent.restarts, agent.left_out),
            ("slipway-manage failed (failed)", 2, 0)
        );
        let lines: Vec<(&str, &str)> =
            agent.lines.iter().map(|line| (line.from.as_deref().unwrap(), line.text.as_str())).collect();
        assert_eq!(
            lines,
            [
                ("slipway-manage", r#"{"a":1}"#),
                ("slipway-bootstrap", "a [2J\u{fffd}"),
                ("slipway-status", "(longer than 4096 bytes)"),
                ("slipway-status", "token (removed)"),
                ("slipway-status", "(removed: a private key)"),
                ("slipway-status", "(removed: a private key)"),
            ]
        );
        assert_eq!(agent.lines[0].at.to_string(), "2026-11-26T21:05:00Z");
        assert_eq!(
            (shown.units[1].state.as_str(), shown.units[1].restarts),
            ("activating (auto-restart)", 3)
        );
        assert!(shown.units[1].lines.iter().all(|line| line.from.is_none()), "they are all of etcd.service");
        let ran = machine.ran.lock().unwrap().clone();
        assert!(
            ran[0].starts_with("journalctl --lines 7 --output=json ")
                && ran[0].contains(" --unit slipway-manage.service --unit "),
            "{ran:?}"
        );
        assert!(ran.last().unwrap().ends_with(" etcd.service"), "{ran:?}");
    }

    #[tokio::test]
    async fn what_cannot_be_shown_is_said() {
        let folder = root("pool-a");
        let of_etcd = Logs { unit: unit("etcd").unwrap(), lines: 1 };
        let refused = logs(folder.path(), &machine("", 0), &of_etcd).await.unwrap_err();
        assert!(refused.code == FailureCode::Usage && refused.message == "pool-a has no etcd", "{refused:?}");
        let of_kubelet = Logs { unit: unit("kubelet").unwrap(), lines: 1 };
        let failed = logs(folder.path(), &machine("", 1), &of_kubelet).await.unwrap_err();
        assert!(
            failed.code == FailureCode::CommandFailed && failed.message.contains("no journal"),
            "{failed:?}"
        );
        // The user data has not come to write its file: whatever there is, is shown.
        let empty = tempfile::tempdir().unwrap();
        let shown =
            logs(empty.path(), &machine("", 0), &Logs { unit: Chosen(None), lines: 1 }).await.unwrap();
        assert_eq!((shown.role.as_str(), shown.units.len()), ("", 4));
        for bad in ["sshd", "", "etcd.service", "*", "--all"] {
            assert!(unit(bad).is_err(), "{bad}");
        }
    }

    /// Whoever adds a unit to the agent adds it to those whose logs are shown.
    #[test]
    fn each_unit_that_the_agent_writes_is_shown() {
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut found = std::collections::BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("logs.rs") {
                    let text = std::fs::read_to_string(path).unwrap();
                    let names = text.split("\"slipway-").skip(1).filter_map(|rest| rest.split_once('"'));
                    found.extend(
                        names
                            .map(|(name, _)| format!("slipway-{name}"))
                            .filter(|name| name.ends_with(".service")),
                    );
                }
            }
        }
        let found: Vec<&str> = found.iter().map(String::as_str).collect();
        let shown: Vec<&str> =
            LogUnit::Agent.services().iter().copied().filter(|name| name.starts_with("slipway-")).collect();
        assert_eq!(found, shown);
    }
}
