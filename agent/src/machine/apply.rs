//! Applies a role's [`Setup`]: files first, then units. Nothing that is up to date is touched.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::commands::Commands;
use super::files::{self, Owner};
use super::{Setup, Unit};
use crate::credentials::below;
use crate::failure::AgentResult;

pub const UNITS: &str = "/etc/systemd/system";

#[derive(Debug, Clone)]
pub struct Host<C> {
    /// The root of the file system, in tests another folder.
    pub root: PathBuf,
    pub commands: C,
}

impl<C: Commands> Host<C> {
    #[must_use]
    pub fn below(&self, path: &str) -> PathBuf {
        below(&self.root, path)
    }

    /// Writes files and units, and reloads systemd.
    pub async fn write(&self, setup: &Setup) -> AgentResult<()> {
        for file in &setup.files {
            files::write(&self.below(&file.path), file.mode, Owner::ROOT, file.content.as_bytes())?;
        }
        for unit in &setup.units {
            if let Some(content) = &unit.content {
                files::write(&self.unit(unit), 0o644, Owner::ROOT, content.as_bytes())?;
            }
        }
        // Always: an earlier run may have died between writing and reloading.
        self.commands.run_checked("systemctl", &["daemon-reload"]).await.map(drop)
    }

    /// Enables and starts the units of `setup`, which was written. A unit that has run since before its files were written is
    /// restarted, as the image may have started it at boot.
    pub async fn start(&self, setup: &Setup) -> AgentResult<()> {
        let paths = setup.files.iter().map(|file| self.below(&file.path));
        let shared = newest(paths);
        // A unit without `[Install]` is started by another one, such as a timer.
        for unit in setup.units.iter().filter(|unit| !unit.is_static()) {
            let own = newest(std::iter::once(self.unit(unit)));
            self.commands.run_checked("systemctl", &["enable", &unit.name]).await?;
            let since = self.active_since(&unit.name).await?;
            let is_mount = unit.name.ends_with(".mount");
            let verb = match since {
                Some(since) if since < shared.max(own) && !is_mount => "restart",
                Some(_) | None => "start",
            };
            // Wait for a mount. Do not wait for a service that needs other machines; its health is checked later.
            let arguments =
                if is_mount { vec![verb, &unit.name] } else { vec![verb, "--no-block", &unit.name] };
            self.commands.run_checked("systemctl", &arguments).await?;
        }
        Ok(())
    }

    /// When the unit became active, in Unix seconds; `None` if it is not active.
    async fn active_since(&self, unit: &str) -> AgentResult<Option<i64>> {
        let arguments = ["show", "--timestamp=unix", "--property=ActiveState,ActiveEnterTimestamp", unit];
        let shown = self.commands.run_checked("systemctl", &arguments).await?;
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

/// When the newest of these files was written, in Unix seconds; missing files do not count.
fn newest(paths: impl Iterator<Item = impl AsRef<Path>>) -> i64 {
    let times = paths.filter_map(|path| std::fs::metadata(path).ok().map(|found| found.mtime()));
    times.max().unwrap_or_default()
}
