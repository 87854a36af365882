//! kubectl with the administrator's credentials, as `slipway kubeconfig` writes them: for tests, and as a script for people.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::network::BALANCER;
use super::room::{Room, RoomError};

/// The administrator's kubectl.
#[derive(Debug)]
pub struct Kubectl {
    program: PathBuf,
    arguments: Vec<String>,
    script: PathBuf,
}

impl Kubectl {
    /// Writes the kubeconfig of a cluster, whose API has these names.
    ///
    /// # Errors
    /// If `slipway kubeconfig` fails.
    pub async fn new(room: &Room, cluster: &str, api: &[String]) -> Result<Self, RoomError> {
        let config = room.folder().join("kubeconfig");
        output(room.command()?.args(["kubeconfig", "--force", "--cluster", cluster, "--out"]).arg(&config))
            .await?;
        // The name resolves inside the VPC alone.
        let mut arguments =
            vec![format!("--kubeconfig={}", config.display()), format!("--server=https://{BALANCER}:443")];
        arguments.extend(api.first().map(|name| format!("--tls-server-name={name}")));
        let (program, script) = (room.kubectl().to_owned(), room.folder().join("kubectl"));
        write(&script, &program, &arguments)?;
        Ok(Self { program, arguments, script })
    }

    /// A script that runs it from outside of the namespaces.
    #[must_use]
    pub fn script(&self) -> &Path {
        &self.script
    }

    /// Itself, for what does not end by itself.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).args(arguments).kill_on_drop(true);
        command
    }

    /// What it prints.
    ///
    /// # Errors
    /// Its own words, if it fails.
    pub async fn run(&self, arguments: &[&str]) -> io::Result<String> {
        output(&mut self.command(arguments)).await
    }
}

fn write(script: &Path, program: &Path, arguments: &[String]) -> io::Result<()> {
    // The process whose network it is, as the host knows it; see tests/cluster/run.sh.
    let pid = std::env::var("SLIPWAY_OUTER").unwrap_or_default();
    let text = format!(
        "#!/bin/sh\nexec nsenter --target \"$(cat '{pid}')\" --net -- '{}' {} \"$@\"\n",
        program.display(),
        arguments.join(" ")
    );
    std::fs::write(script, text)?;
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755))
}

async fn output(command: &mut Command) -> io::Result<String> {
    let output = command.stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
}
