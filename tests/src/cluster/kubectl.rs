//! kubectl with the administrator's credentials, as `slipway kubeconfig` writes them: for tests, and as a script for people.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::network::BALANCER;
use super::room::{Room, RoomError};
use crate::tools;

/// The administrator's kubectl.
#[derive(Debug)]
pub struct Kubectl {
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
        let world = room.slipway().world();
        let mut command = Command::new(tools::binary("slipway")?);
        command
            .args(["kubeconfig", "--force", "--cluster", cluster, "--out"])
            .arg(&config)
            .env("AWS_ENDPOINT_URL", world.gateway().url())
            .env("AWS_REGION", world.region())
            .env("AWS_ACCESS_KEY_ID", "operator")
            .env("AWS_SECRET_ACCESS_KEY", "operator")
            .env("SLIPWAY_SPEC_BUCKET", world.reference("SpecBucket")?)
            .env("SLIPWAY_ASSET_BUCKET", world.reference("AssetBucket")?)
            .env("SLIPWAY_BUS_NAME", world.reference("Bus")?);
        output(&mut command).await?;
        // The name resolves inside the VPC alone.
        let mut arguments =
            vec![format!("--kubeconfig={}", config.display()), format!("--server=https://{BALANCER}:443")];
        arguments.extend(api.first().map(|name| format!("--tls-server-name={name}")));
        let script = room.folder().join("kubectl");
        write(&script, &arguments)?;
        Ok(Self { arguments, script })
    }

    /// A script that runs it from outside of the namespaces.
    #[must_use]
    pub fn script(&self) -> &Path {
        &self.script
    }

    /// What it prints.
    ///
    /// # Errors
    /// Its own words, if it fails.
    pub async fn run(&self, arguments: &[&str]) -> io::Result<String> {
        output(Command::new("kubectl").args(&self.arguments).args(arguments)).await
    }
}

fn write(script: &Path, arguments: &[String]) -> io::Result<()> {
    // The process whose network it is, as the host knows it; see tests/cluster/run.sh.
    let pid = std::env::var("SLIPWAY_OUTER").unwrap_or_default();
    let text = format!(
        "#!/bin/sh\nexec nsenter --target \"$(cat '{pid}')\" --net -- kubectl {} \"$@\"\n",
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
