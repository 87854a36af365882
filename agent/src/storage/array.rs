//! Several disks as one, by RAID 0: put together once, and found again afterwards.

use std::collections::BTreeSet;
use std::fs;

use crate::failure::{Failure, FailureCode, Outcome};
use crate::machine::apply::Host;
use crate::machine::commands::Commands;
use crate::machine::disk::{self, Content, Kind};
use crate::machine::files;

/// Disks that are or become one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Array<'a> {
    /// Its name, on each of its disks.
    pub(super) name: &'a str,
    /// In their order, which is a part of it.
    pub(super) disks: &'a [String],
    /// What is on it may go: an array of which a disk is new is made anew.
    pub(super) scratch: bool,
}

impl Array<'_> {
    /// Lets there be this array, and lets it run; its device.
    ///
    /// # Errors
    /// If the image has no `mdadm`, or something else is on one of the disks.
    pub(super) async fn bring_up<C: Commands>(&self, host: &Host<C>) -> Outcome<String> {
        // Before anything is touched.
        host.commands.must("mdadm", &["--version"]).await?;
        let mut contents = Vec::new();
        for disk in self.disks {
            let path = host.below(disk);
            let content = disk::look(&path, Kind::Member, self.name);
            contents.push(content.map_err(|error| files::failed(&path, &error))?);
        }
        let has = |content: Content| contents.contains(&content);
        if let Some(at) = contents.iter().position(|content| *content == Content::Foreign) {
            return Err(disk::foreign(&self.disks[at], &format!("a disk of the array {}", self.name)));
        }
        if has(Content::Empty) || has(Content::Begun) {
            // A disk that says so was empty before this array was first made, and no array is used before all its disks have ceased to.
            if has(Content::Ours) && !has(Content::Begun) && !self.scratch {
                return Err(Failure::lasting(
                    FailureCode::VolumeArray,
                    format!("of the array {} ({}), some disks are empty", self.name, self.disks.join(", ")),
                    "nothing was written. Bring the missing volumes back; where what was on them may go, let this instance be replaced",
                ));
            }
            self.make(host).await?;
        }
        if let Some(running) = self.running(host, true) {
            return Ok(running);
        }
        if let Some(half) = self.running(host, false) {
            host.commands.must("mdadm", &["--stop", &half]).await?;
        }
        let place = self.place();
        let arguments =
            ["--assemble", &place, "--run"].into_iter().map(str::to_owned).chain(self.paths(host));
        must(host, arguments.collect()).await?;
        self.started(host)
    }

    async fn make<C: Commands>(&self, host: &Host<C>) -> Outcome<()> {
        if let Some(running) = self.running(host, false) {
            host.commands.must("mdadm", &["--stop", &running]).await?;
        }
        for disk in self.disks {
            disk::begin(&host.below(disk))?;
        }
        let count = format!("--raid-devices={}", self.disks.len());
        let (place, name) = (self.place(), format!("--name={}", self.name));
        let words =
            ["--create", &place, "--run", "--level=0", "--metadata=1.2", "--homehost=any", &name, &count];
        must(host, words.into_iter().map(str::to_owned).chain(self.paths(host)).collect()).await?;
        for disk in self.disks {
            disk::finish(&host.below(disk))?;
        }
        Ok(())
    }

    fn place(&self) -> String {
        format!("/dev/md/{}", self.name)
    }

    fn paths<C>(&self, host: &Host<C>) -> Vec<String>
    where
        C: Commands,
    {
        self.disks.iter().map(|disk| host.below(disk).display().to_string()).collect()
    }

    fn started<C: Commands>(&self, host: &Host<C>) -> Outcome<String> {
        self.running(host, true).ok_or_else(|| {
            Failure::passing(
                FailureCode::VolumeArray,
                format!("the array {} was put together, and does not run yet", self.name),
                "see `cat /proc/mdstat` and `dmesg` on the node",
            )
        })
    }

    /// The kernel's device of the array that has these disks, all of them and running if it is to be `whole`: udev may have put it
    /// together before us, under a name of its own.
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

async fn must<C: Commands>(host: &Host<C>, arguments: Vec<String>) -> Outcome<String> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    host.commands.must("mdadm", &arguments).await
}
