//! Makes a role's furniture so: files first, then units. What stands already is not touched.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::accounts::Owner;
use super::commands::Commands;
use super::{Furniture, Unit, files};
use crate::credentials::below;
use crate::failure::Outcome;

/// Where units of ours lie.
pub const UNITS: &str = "/etc/systemd/system";

/// The machine that is furnished.
#[derive(Debug, Clone)]
pub struct Host<C> {
    /// Before every path.
    pub root: PathBuf,
    /// What runs programs on it.
    pub commands: C,
}

impl<C: Commands> Host<C> {
    /// `path` below the root.
    #[must_use]
    pub fn below(&self, path: &str) -> PathBuf {
        below(&self.root, path)
    }

    /// Writes the files and units of `furniture`, and lets systemd read them.
    ///
    /// # Errors
    /// If something cannot be written.
    pub async fn write(&self, furniture: &Furniture) -> Outcome<()> {
        for file in &furniture.files {
            files::write(&self.below(&file.path), file.mode, Owner::ROOT, file.content.as_bytes())?;
        }
        for unit in &furniture.units {
            if let Some(content) = &unit.content {
                files::write(&self.unit(unit), 0o644, Owner::ROOT, content.as_bytes())?;
            }
        }
        // Always: who died between writing and this left units that systemd has not read.
        self.commands.must("systemctl", &["daemon-reload"]).await.map(drop)
    }

    /// Enables and starts the units of `furniture`, which was written. One that has run since before its files were is started anew:
    /// an image may start it at boot.
    ///
    /// # Errors
    /// If systemd refuses.
    pub async fn start(&self, furniture: &Furniture) -> Outcome<()> {
        let paths = furniture.files.iter().map(|file| self.below(&file.path));
        let shared = newest(paths);
        // One that nothing installs is started by another: a timer's service.
        for unit in furniture.units.iter().filter(|unit| !unit.is_static()) {
            let own = newest(std::iter::once(self.unit(unit)));
            self.commands.must("systemctl", &["enable", &unit.name]).await?;
            let since = self.active_since(&unit.name).await?;
            let is_mount = unit.name.ends_with(".mount");
            let verb = match since {
                Some(since) if since < shared.max(own) && !is_mount => "restart",
                Some(_) | None => "start",
            };
            // A mount is done when it is there. A service that waits for its fellows is asked for its health later.
            let arguments =
                if is_mount { vec![verb, &unit.name] } else { vec![verb, "--no-block", &unit.name] };
            self.commands.must("systemctl", &arguments).await?;
        }
        Ok(())
    }

    /// Since when a unit is active, in seconds; `None` if it is not.
    async fn active_since(&self, unit: &str) -> Outcome<Option<i64>> {
        let arguments = ["show", "--timestamp=unix", "--property=ActiveState,ActiveEnterTimestamp", unit];
        let shown = self.commands.must("systemctl", &arguments).await?;
        let value = |name: &str| {
            shown.lines().find_map(|line| line.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')))
        };
        if value("ActiveState") != Some("active") {
            return Ok(None);
        }
        Ok(value("ActiveEnterTimestamp").and_then(|time| time.strip_prefix('@')?.trim().parse().ok()))
    }

    fn unit(&self, unit: &Unit) -> PathBuf {
        self.below(&format!("{UNITS}/{}", unit.name))
    }
}

/// When the newest of these files was written, in seconds; what is not there was never written.
fn newest(paths: impl Iterator<Item = impl AsRef<Path>>) -> i64 {
    let times = paths.filter_map(|path| std::fs::metadata(path).ok().map(|found| found.mtime()));
    times.max().unwrap_or_default()
}
