//! The user's own files, units and ssh keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slipway_core::cluster::{Content, Custom, CustomUnit};
use slipway_core::node::NodeConfig;

use super::Bootstrap;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::accounts;
use crate::machine::apply::UNITS;
use crate::machine::commands::Commands;
use crate::machine::files;
use crate::machine::files::Owner;

/// Login users of the images: Amazon Linux, Ubuntu, Debian, Flatcar and Fedora CoreOS, Rocky.
const LOGINS: [&str; 5] = ["ec2-user", "ubuntu", "admin", "core", "rocky"];
const RUNTIME_UNITS: &str = "/run/systemd/system";

impl<C: Commands> Bootstrap<C> {
    fn custom(&self) -> &Custom {
        match &self.config {
            NodeConfig::Etcd(config) => &config.custom,
            NodeConfig::Controller(config) => &config.custom,
            NodeConfig::Worker(config) => &config.custom,
        }
    }

    /// Writes the user's files, units and keys. The role's own are written afterwards and win.
    pub(super) fn write_custom_files(&self) -> AgentResult<()> {
        self.authorize_keys()?;
        for file in &self.custom().files {
            let refused = |problem: &str| {
                AgentError::permanent(
                    FailureCode::CustomFile,
                    format!("customFiles: {}: {problem}", file.path),
                    "correct it in cluster.yaml, and upload that",
                )
            };
            let owner = accounts::owner(&self.host.root, &file.user, &file.group)?;
            let mode =
                u32::from_str_radix(&file.mode, 8).map_err(|_| refused("its mode is not an octal number"))?;
            let bytes = match &file.content {
                Content::Text(text) => text.clone().into_bytes(),
                Content::Base64(text) => {
                    STANDARD.decode(text).map_err(|_| refused("its content is not base64"))?
                }
            };
            files::write(&self.host.below(&file.path), mode, owner, &bytes)?;
        }
        for unit in &self.custom().units {
            let folder = if unit.runtime { RUNTIME_UNITS } else { UNITS };
            let drop_ins = unit.drop_ins.iter();
            let drop_ins = drop_ins.map(|one| (format!("{}.d/{}", unit.name, one.name), &one.content));
            let whole = unit.content.iter().map(|content| (unit.name.clone(), content));
            for (name, content) in whole.chain(drop_ins) {
                let path = self.host.below(&format!("{folder}/{name}"));
                files::write(&path, 0o644, Owner::ROOT, content.as_bytes())?;
            }
        }
        Ok(())
    }

    /// Enables and starts the user's units by their own commands. A unit that fails is reported and does not stop the bootstrap:
    /// it may be a unit that another image had.
    pub(super) async fn start_custom_units(&self) -> Vec<AgentError> {
        let mut failures = Vec::new();
        for CustomUnit { name, command, enable, runtime, .. } in &self.custom().units {
            let mut calls = Vec::new();
            if *enable {
                calls.push(if *runtime { vec!["enable", "--runtime", name] } else { vec!["enable", name] });
            }
            if let Some(command) = command {
                calls.push(vec![command, "--no-block", name]);
            }
            for arguments in calls {
                failures.extend(self.host.commands.run_checked("systemctl", &arguments).await.err());
            }
        }
        failures
    }

    /// Adds the spec's ssh keys to those of the image. Changed keys change the configuration and so replace the node, so none is
    /// removed here.
    fn authorize_keys(&self) -> AgentResult<()> {
        let wanted = &self.config.base().ssh_authorized_keys;
        if wanted.is_empty() {
            return Ok(());
        }
        for login in LOGINS {
            let Some(user) = accounts::user(&self.host.root, login)? else { continue };
            let path = self.host.below(&format!("{}/.ssh/authorized_keys", user.home));
            let text = files::read(&path)?.unwrap_or_default();
            let mut text = String::from_utf8_lossy(&text).into_owned();
            for key in wanted {
                if !text.lines().any(|line| line == key) {
                    if !text.is_empty() && !text.ends_with('\n') {
                        text.push('\n');
                    }
                    text.push_str(key);
                    text.push('\n');
                }
            }
            if let Some(folder) = path.parent() {
                files::folder(folder, 0o700, user.owner)?;
            }
            files::write(&path, 0o600, user.owner, text.as_bytes())?;
        }
        Ok(())
    }
}
