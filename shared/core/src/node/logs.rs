//! The last log lines of a machine's units: `slipway-node logs`. Only people ask for them.
//!
//! Systems Manager keeps 24,000 bytes of what a command prints, and whoever may read a command's output reads the lines. So the agent
//! bounds them, and takes out what has the form of a secret before anything leaves the machine.

mod secrets;

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Word;
use crate::words::harmless;
use secrets::without_secrets;

/// The units whose logs are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogUnit {
    /// Slipway's agent: `slipway-manage`, `slipway-status` and so on, and user data.
    Agent,
    /// `kubelet.service`.
    Kubelet,
    /// `containerd.service`.
    Containerd,
    /// `etcd.service`.
    Etcd,
}

impl LogUnit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Agent, Self::Kubelet, Self::Containerd, Self::Etcd];

    /// Its name for people, documents and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Kubelet => "kubelet",
            Self::Containerd => "containerd",
            Self::Etcd => "etcd",
        }
    }

    /// The unit of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name() == name)
    }

    /// Its services. For a pattern that no unit in the journal matches, `journalctl` fails, so they are named one by one.
    #[must_use]
    pub const fn services(self) -> &'static [&'static str] {
        match self {
            // User data runs the first bootstrap, and cloud-init runs user data.
            Self::Agent => &[
                "slipway-bootstrap.service",
                "slipway-folders.service",
                "slipway-leave.service",
                "slipway-manage.service",
                "slipway-snapshot.service",
                "slipway-status.service",
                "slipway-storage.service",
                "cloud-final.service",
            ],
            Self::Kubelet => &["kubelet.service"],
            Self::Containerd => &["containerd.service"],
            Self::Etcd => &["etcd.service"],
        }
    }

    /// Those that a machine of that role has; of an unknown role, all.
    #[must_use]
    pub fn of_role(role: &str) -> &'static [Self] {
        match role.parse() {
            Ok(crate::role::Role::Etcd(_)) => &[Self::Agent, Self::Etcd],
            Ok(crate::role::Role::Controller | crate::role::Role::Pool(_)) => {
                &[Self::Agent, Self::Containerd, Self::Kubelet]
            }
            Ok(crate::role::Role::Admin) | Err(_) => &Self::ALL,
        }
    }
}

/// The value of the parameter `Unit` for all units of the machine.
pub const ALL_UNITS: &str = "all";
/// The most lines of a unit that can be asked for.
pub const MOST_LINES: u32 = 500;
/// The most characters of a line that are shown. Whoever reads the answer keeps some more (`answer::MOST_WORDS`).
const LINE_LENGTH: usize = 500;
/// The most characters of the name of a unit, or of its state.
const NAME_LENGTH: usize = 200;
/// How many bytes the lines of all units have together, as printed. The agent of Systems Manager cuts what a command prints after 24,000 bytes
/// (`ReadPrefix` in its `pluginutil`), and an answer that was cut cannot be read. The rest of the answer takes less than 2,000.
const MOST_PRINTED: usize = 22_000;

/// What `logs` prints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineLogs {
    /// As [`crate::role::Role`] writes itself. Empty: the machine does not know it yet.
    #[serde(default)]
    pub role: String,
    /// The units.
    pub units: Vec<UnitLog>,
}

/// The last log lines of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitLog {
    /// Which unit.
    pub unit: Word<LogUnit>,
    /// The state of its service, as systemd words it: `active (running)`; of several services, of those that run or have failed.
    #[serde(default)]
    pub state: String,
    /// How often systemd has restarted it.
    #[serde(default)]
    pub restarts: u32,
    /// Its last lines, the newest last.
    #[serde(default)]
    pub lines: Vec<LogLine>,
    /// How many of the lines that were asked for were left out, the oldest, because there is no room for them.
    #[serde(default)]
    pub left_out: usize,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogLine {
    /// When the journal received it.
    pub at: Timestamp,
    /// Which of several units wrote it: `slipway-bootstrap`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it says.
    pub text: String,
}

impl LogLine {
    /// How many bytes it has when it is printed.
    fn printed_length(&self) -> usize {
        serde_json::to_string(self).map_or(usize::MAX, |text| text.len() + 1)
    }
}

/// An entry of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When the journal received it.
    pub at: Timestamp,
    /// The unit that wrote it, or that systemd writes about.
    pub from: String,
    /// What it says. It may contain secrets.
    pub message: String,
}

impl UnitLog {
    /// The log of a unit, as it may leave the machine. `entries`: the oldest first.
    #[must_use]
    pub fn new(unit: LogUnit, state: &str, restarts: u32, entries: &[Entry]) -> Self {
        let mut by_writer: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, entry) in entries.iter().enumerate() {
            by_writer.entry(&entry.from).or_default().push(place);
        }
        let mut texts = vec![String::new(); entries.len()];
        for places in by_writer.values() {
            let messages: Vec<&str> = places.iter().map(|place| entries[*place].message.as_str()).collect();
            for (place, text) in places.iter().zip(without_secrets(&messages)) {
                texts[*place] = text;
            }
        }
        let line = |(entry, text): (&Entry, String)| {
            // Where all lines are of the same unit, naming it in each takes room.
            let from = (unit.services().len() > 1).then(|| shortened(&harmless(&entry.from), NAME_LENGTH));
            LogLine { at: entry.at, from, text: shortened(&text, LINE_LENGTH) }
        };
        let lines = entries.iter().zip(texts).map(line).collect();
        let state = shortened(&harmless(state), NAME_LENGTH);
        Self { unit: Word::Known(unit), state, restarts, lines, left_out: 0 }
    }
}

impl MachineLogs {
    /// The logs of all `units` that are shown, as far as they fit: the oldest lines of the longest log are left out first.
    #[must_use]
    pub fn new(role: String, mut units: Vec<UnitLog>) -> Self {
        let mut lengths: Vec<VecDeque<usize>> =
            units.iter().map(|unit| unit.lines.iter().map(LogLine::printed_length).collect()).collect();
        let mut sums: Vec<usize> = lengths.iter().map(|of_unit| of_unit.iter().sum()).collect();
        while sums.iter().sum::<usize>() > MOST_PRINTED {
            let Some(longest) = (0..sums.len()).max_by_key(|unit| sums[*unit]) else { break };
            sums[longest] -= lengths[longest].pop_front().unwrap_or_default();
            units[longest].left_out += 1;
        }
        for unit in &mut units {
            unit.lines.drain(..unit.left_out);
        }
        Self { role, units }
    }
}

fn shortened(text: &str, length: usize) -> String {
    let mut short: String = text.chars().take(length).collect();
    if text.chars().nth(length).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(from: &str, message: &str) -> Entry {
        Entry { at: Timestamp::UNIX_EPOCH, from: from.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn a_line_is_short_and_does_nothing_to_a_terminal() {
        let long = entry("etcd", &format!("a\u{1b}[2Jb\r{}", "é".repeat(2_000)));
        let log = UnitLog::new(LogUnit::Etcd, "active\u{1b} (running)", 3, &[long]);
        let line = &log.lines[0];
        assert!(line.text.starts_with("a [2Jb é") && line.text.ends_with("é…"), "{}", line.text);
        assert_eq!((line.text.chars().count(), line.from.as_ref()), (LINE_LENGTH + 1, None));
        assert_eq!((log.state.as_str(), log.restarts), ("active  (running)", 3));
    }

    #[test]
    fn p9_a_private_key_is_recognised_although_another_unit_writes_between_its_lines() {
        let entries = [
            entry("slipway-bootstrap", "-----BEGIN EC PRIVATE KEY-----"),
            entry("slipway-manage", "one pass"),
            entry("slipway-bootstrap", "c2hvcnQ="),
            entry("slipway-bootstrap", "-----END EC PRIVATE KEY-----"),
            entry("slipway-bootstrap", "next"),
        ];
        let log = UnitLog::new(LogUnit::Agent, "", 0, &entries);
        let texts: Vec<&str> = log.lines.iter().map(|line| line.text.as_str()).collect();
        let key = "(removed: a private key)";
        assert_eq!(texts, [key, "one pass", key, key, "next"]);
        assert_eq!(log.lines[1].from.as_deref(), Some("slipway-manage"));
    }

    #[test]
    fn the_newest_lines_are_kept_and_fit_into_what_systems_manager_keeps() {
        // Quotes and backslashes are printed as two characters, and these letters have four bytes.
        let lines = |number: usize| {
            let line =
                |one: usize| entry("slipway-bootstrap", &format!("{one} {}", "\"\\\u{1f980}".repeat(300)));
            (0..number).map(line).collect::<Vec<_>>()
        };
        let log = |unit, number| UnitLog::new(unit, &"s".repeat(500), u32::MAX, &lines(number));
        let units = LogUnit::ALL.map(|unit| log(unit, 500)).to_vec();
        let logs = MachineLogs::new("r".repeat(70), units);
        let printed = serde_json::to_string(&logs).unwrap_or_default();
        assert!((15_000..24_000).contains(&printed.len()), "{}", printed.len());
        for unit in &logs.units {
            assert_eq!(unit.lines.len() + unit.left_out, 500);
            assert!(unit.lines.last().is_some_and(|line| line.text.starts_with("499 ")), "{unit:?}");
        }
        // What one unit does not need is another one's.
        let (short, long) = (log(LogUnit::Agent, 1), log(LogUnit::Etcd, 500));
        let logs = MachineLogs::new(String::new(), vec![short, long]);
        let kept: Vec<usize> = logs.units.iter().map(|unit| unit.lines.len()).collect();
        let left_out: Vec<usize> = logs.units.iter().map(|unit| unit.left_out).collect();
        assert!(kept[0] == 1 && kept[1] > 10 && left_out == [0, 500 - kept[1]], "{kept:?} {left_out:?}");
    }

    #[test]
    fn each_unit_is_known_by_its_name_and_each_role_has_the_agents() {
        for unit in LogUnit::ALL {
            assert_eq!(LogUnit::named(unit.name()), Some(unit));
            assert_eq!(serde_json::to_value(unit).ok(), Some(unit.name().into()));
        }
        assert_eq!(LogUnit::named("sshd"), None);
        assert_eq!(LogUnit::of_role("etcd-1"), [LogUnit::Agent, LogUnit::Etcd]);
        for role in ["controller", "pool-a"] {
            assert_eq!(LogUnit::of_role(role), [LogUnit::Agent, LogUnit::Containerd, LogUnit::Kubelet]);
        }
        assert_eq!(LogUnit::of_role(""), LogUnit::ALL);
    }
}
