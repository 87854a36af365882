//! RAID 0 arrays: created once, and assembled again at each boot.

use std::collections::BTreeSet;
use std::fs;

use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::disk::{self, Content, Kind};
use crate::machine::files;

#[derive(Debug, Clone, Copy)]
pub(super) struct Array<'a> {
    /// The name, which each of its disks carries.
    pub(super) name: &'a str,
    /// In order: the order is part of the array.
    pub(super) disks: &'a [String],
    /// Its data may be lost: an array with a new disk is created again.
    pub(super) scratch: bool,
}

impl Array<'_> {
    /// Ensures that this array exists and runs; returns its device. Refuses disks with other content.
    pub(super) async fn ensure_running<C: Commands>(&self, host: &Host<C>) -> AgentResult<String> {
        // Fail before anything is changed.
        host.commands.run_checked("mdadm", &["--version"]).await?;
        let mut contents = Vec::new();
        for disk in self.disks {
            let path = host.below(disk);
            let content = disk::content(&path, Kind::Member, self.name);
            contents.push(content.map_err(|error| files::failed(&path, &error))?);
        }
        let has = |content: Content| contents.contains(&content);
        if let Some(at) = contents.iter().position(|content| *content == Content::Foreign) {
            return Err(disk::foreign(&self.disks[at], &format!("a disk of the array {}", self.name)));
        }
        if has(Content::Empty) || has(Content::Begun) {
            // A marked disk was empty when this array was first created, and no array is used before all marks are cleared.
            if has(Content::Ours) && !has(Content::Begun) && !self.scratch {
                return Err(AgentError::permanent(
                    FailureCode::VolumeArray,
                    format!("some disks of the array {} ({}) are empty", self.name, self.disks.join(", ")),
                    "nothing was written. Attach the missing volumes again; if their data are not needed, replace this instance",
                ));
            }
            self.create(host).await?;
        }
        if let Some(running) = self.running(host, true) {
            return Ok(running);
        }
        if let Some(half) = self.running(host, false) {
            host.commands.run_checked("mdadm", &["--stop", &half]).await?;
        }
        let place = self.device_path();
        let arguments =
            ["--assemble", &place, "--run"].into_iter().map(str::to_owned).chain(self.paths(host));
        mdadm(host, arguments.collect()).await?;
        self.started(host)
    }

    async fn create<C: Commands>(&self, host: &Host<C>) -> AgentResult<()> {
        if let Some(running) = self.running(host, false) {
            host.commands.run_checked("mdadm", &["--stop", &running]).await?;
        }
        for disk in self.disks {
            disk::mark_begun(&host.below(disk))?;
        }
        let count = format!("--raid-devices={}", self.disks.len());
        let (place, name) = (self.device_path(), format!("--name={}", self.name));
        let words =
            ["--create", &place, "--run", "--level=0", "--metadata=1.2", "--homehost=any", &name, &count];
        mdadm(host, words.into_iter().map(str::to_owned).chain(self.paths(host)).collect()).await?;
        for disk in self.disks {
            disk::clear_mark(&host.below(disk))?;
        }
        Ok(())
    }

    fn device_path(&self) -> String {
        format!("/dev/md/{}", self.name)
    }

    fn paths<C>(&self, host: &Host<C>) -> Vec<String>
    where
        C: Commands,
    {
        self.disks.iter().map(|disk| host.below(disk).display().to_string()).collect()
    }

    fn started<C: Commands>(&self, host: &Host<C>) -> AgentResult<String> {
        self.running(host, true).ok_or_else(|| {
            AgentError::transient(
                FailureCode::VolumeArray,
                format!("the array {} was assembled, but does not run yet", self.name),
                "see `cat /proc/mdstat` and `dmesg` on the node",
            )
        })
    }

    /// The kernel's device of the array with these disks; if `whole`, only one that has all of them and runs. udev may have
    /// assembled it under another name.
    fn running<C: Commands>(&self, host: &Host<C>, whole: bool) -> Option<String> {
        let name =
            |path: std::path::PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let disks: BTreeSet<String> =
            self.disks.iter().filter_map(|disk| name(fs::canonicalize(host.below(disk)).ok()?)).collect();
        for entry in fs::read_dir(host.below("/sys/block")).ok()?.flatten() {
            let array = entry.file_name().to_string_lossy().into_owned();
            let Ok(slaves) = fs::read_dir(entry.path().join("slaves")) else { continue };
            if !array.starts_with("md") {
                continue;
            }
            let slaves: BTreeSet<String> =
                slaves.flatten().map(|slave| slave.file_name().to_string_lossy().into_owned()).collect();
            let state = fs::read_to_string(entry.path().join("md/array_state")).unwrap_or_default();
            let runs = !matches!(state.trim(), "" | "inactive" | "clear") && slaves == disks;
            if if whole { runs } else { !slaves.is_disjoint(&disks) } {
                return Some(format!("/dev/{array}"));
            }
        }
        None
    }
}

async fn mdadm<C: Commands>(host: &Host<C>, arguments: Vec<String>) -> AgentResult<String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    host.commands.run_checked("mdadm", &arguments).await
}
