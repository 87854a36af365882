//! Runs a shell's line on a machine: for tests, and for whoever looks around in a cluster that was left running (`tests/cluster/on.sh`).
//!
//! By the agent that Run Command has there, but past the simulated Run Command.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use super::state::State;

/// How long a line may take.
const LIMIT_S: u64 = 300;

impl State {
    /// Runs a line on a machine, as root: its exit status, and what it printed.
    ///
    /// # Errors
    /// If the machine does not answer.
    pub async fn run(&self, machine: &str, line: &str) -> io::Result<(i64, String)> {
        let (id, told) = self.waiting.expect();
        self.add_command(machine, json!({ "id": id, "lines": [line], "seconds": LIMIT_S }));
        let told = tokio::time::timeout(Duration::from_secs(LIMIT_S + 30), told).await;
        let told = told
            .map_err(|_| io::Error::other(format!("{machine} does not answer")))?
            .map_err(io::Error::other)?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        Ok((told["code"].as_i64().unwrap_or(-1), text("stdout") + &text("stderr")))
    }

    /// The id of a machine, by its id, its role or its address.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<String> {
        let guests = self.guests();
        let is_it = |guest: &&super::state::Guest| {
            guest.id == name || guest.role == name || guest.address.to_string() == name
        };
        guests.iter().find(is_it).map(|guest| guest.id.clone())
    }
}

/// Takes lines on a socket, `MACHINE LINE`, and answers with what was printed. Until the task is dropped.
///
/// # Errors
/// If there can be no socket.
pub fn serve(state: Arc<State>, socket: &Path) -> io::Result<JoinHandle<()>> {
    let listener = UnixListener::bind(socket)?;
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let state = Arc::clone(&state);
            tokio::spawn(async move {
                // Who asks sees that nothing came.
                let _ = answer(&state, stream).await;
            });
        }
    }))
}

async fn answer(state: &State, stream: UnixStream) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let asked = BufReader::new(reader).lines().next_line().await?.unwrap_or_default();
    let (name, line) = asked.split_once(' ').unwrap_or((asked.as_str(), "true"));
    let told = match state.find(name) {
        Some(id) => state.run(&id, line).await.map_or_else(|error| format!("{error}\n"), |(_, said)| said),
        None => {
            let guests = state.guests();
            let known: Vec<String> = guests
                .iter()
                .map(|guest| format!("{} {} {}\n", guest.id, guest.role, guest.address))
                .collect();
            format!("no machine {name:?}; there are\n{}", known.concat())
        }
    };
    writer.write_all(told.as_bytes()).await
}
