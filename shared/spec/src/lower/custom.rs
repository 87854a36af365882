//! `customFiles` and `customSystemdUnits`, the same for controllers, etcd members and pools.

use std::collections::BTreeSet;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use slipway_core::cluster::{Content, Custom, CustomFile, CustomUnit, DropIn};

use super::{Lowering, word};
use crate::model::{CustomFileSpec, CustomUnitSpec};
use crate::path::Path;
use crate::text::holds_private_key;

/// The most bytes of files and units of a role. A node fetches them at every launch, and the whole spec has
/// 256 KiB: what is larger belongs into an image, a package or a bucket.
const MOST_BYTES: usize = 64 * 1024;
/// Linux' limits on a path and a name (limits.h), systemd's on a unit's.
const MOST_PATH: usize = 4095;
const MOST_NAME: usize = 255;

/// What Slipway or the machine itself writes; a file of the user's there would be overwritten, or break the node.
const OWNED: [(&str, &str); 15] = [
    ("/etc/kubernetes", "put it below `/etc/kubernetes/custom/`, or elsewhere"),
    ("/etc/etcd", "choose another path: Slipway configures etcd"),
    ("/etc/slipway", "choose another path: Slipway keeps its own files there"),
    ("/etc/cni/net.d", "choose another path: Slipway configures the network of pods"),
    ("/etc/systemd/system", "write it in `customSystemdUnits`"),
    ("/opt/slipway", "choose another path: Slipway installs programs there; `software` says which"),
    ("/run", "choose another path: nothing there outlives a boot"),
    ("/var/lib/slipway", "choose another path: Slipway keeps its own files there"),
    ("/var/lib/etcd", "choose another path: etcd's data lie there"),
    ("/var/lib/kubelet", "choose another path, or write the setting in `kubernetes.kubelet`"),
    ("/var/lib/containerd", "choose another path: containerd's data lie there"),
    ("/proc", "choose another path: the kernel provides the files there"),
    ("/sys", "choose another path: the kernel provides the files there; write settings to `/etc/sysctl.d/`"),
    ("/dev", "choose another path: the kernel provides the files there"),
    ("/etc/fstab", "write a unit such as `data.mount` in `customSystemdUnits`"),
];
/// Files that may stay in a spec, because a node works with them, but have no effect: the agent writes its own after the user's, and a unit
/// in `/etc` hides the image's (systemd.unit(5), "Unit File Load Path").
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    (
        "/etc/containerd/config.toml",
        "write mirrors and certificates of registries below `/etc/containerd/certs.d/`, which this file points to",
    ),
    ("/usr/lib/systemd/system/etcd.service", "give `etcd.service` drop-ins in `customSystemdUnits`"),
    ("/usr/lib/systemd/system/kubelet.service", "give `kubelet.service` drop-ins in `customSystemdUnits`"),
];
/// The one place within [`OWNED`] that is the user's.
const CUSTOM: &str = "/etc/kubernetes/custom";
/// Units that Slipway writes or lives by. They may get drop-ins.
const OWNED_UNITS: [&str; 4] =
    ["amazon-ssm-agent.service", "containerd.service", "etcd.service", "kubelet.service"];
/// Kinds of unit that can be written as a file (systemd.unit(5); a scope cannot).
const SUFFIXES: [&str; 9] =
    ["service", "socket", "mount", "automount", "swap", "target", "path", "timer", "slice"];

impl Lowering<'_, '_, '_> {
    /// Files and units of the group of keys at `path`.
    pub(super) fn custom(
        &mut self,
        files: &[CustomFileSpec],
        units: &[CustomUnitSpec],
        path: &Path,
    ) -> Custom {
        let (files_path, units_path) = (path.key("customFiles"), path.key("customSystemdUnits"));
        let mut custom = Custom::default();
        let mut bytes = 0;
        for (index, spec) in files.iter().enumerate() {
            let path = files_path.index(index);
            if let Some((file, size)) = self.custom_file(spec, &path) {
                bytes += size;
                if custom.files.iter().any(|other| other.path == file.path) {
                    let message = format!("`{}` is written twice", file.path);
                    self.report.error("duplicate-name", &path.key("path"), message, "keep one of them");
                }
                custom.files.push(file);
            }
        }
        for (index, spec) in units.iter().enumerate() {
            let path = units_path.index(index);
            if let Some(unit) = self.custom_unit(spec, &path) {
                bytes += unit.content.as_ref().map_or(0, String::len);
                bytes += unit.drop_ins.iter().map(|part| part.content.len()).sum::<usize>();
                if custom.units.iter().any(|other| other.name == unit.name) {
                    let message = format!("the unit `{}` is given twice", unit.name);
                    self.report.error("duplicate-name", &path.key("name"), message, "keep one of them");
                }
                custom.units.push(unit);
            }
        }
        if bytes > MOST_BYTES {
            let place = if files.is_empty() { units_path } else { files_path };
            let message = format!("files and units of these nodes have {bytes} bytes in all");
            let help = format!(
                "keep {MOST_BYTES}: put what is larger into the image, or let a unit fetch it from a bucket"
            );
            self.report.error("custom-size", &place, message, help);
        }
        custom.files.sort_by(|a, b| a.path.cmp(&b.path));
        custom.units.sort_by(|a, b| a.name.cmp(&b.name));
        custom
    }

    /// A file and its size.
    fn custom_file(&mut self, spec: &CustomFileSpec, path: &Path) -> Option<(CustomFile, usize)> {
        let name = spec.path.as_deref()?;
        self.custom_path(name, &path.key("path"));
        if let Some((_, help)) = WITHOUT_EFFECT.iter().find(|(place, _)| *place == name) {
            let message = format!("`{name}` has no effect: Slipway writes its own in its place");
            self.report.warning("no-effect", &path.key("path"), message, *help);
        }
        let mode = match &spec.permissions {
            None => Some("0644".to_owned()),
            Some(mode) => self.mode(&mode.0, &path.key("permissions")),
        };
        let owner = spec.owner.as_deref().unwrap_or("root");
        let (user, group) = owner.split_once(':').unwrap_or((owner, owner));
        if !is_account(user) || !is_account(group) {
            let help = "write a user, or a user and a group, such as `root` or `root:adm`";
            self.report.error("file-owner", &path.key("owner"), format!("`{owner}` is not an owner"), help);
        }
        let content = self.content(spec, path)?;
        let size = match &content {
            Content::Text(text) => text.len(),
            Content::Base64(text) => text.len() / 4 * 3,
        };
        let (user, group) = (user.to_owned(), group.to_owned());
        Some((CustomFile { path: name.to_owned(), mode: mode?, user, group, content }, size))
    }

    pub(super) fn custom_path(&mut self, name: &str, path: &Path) {
        let help = "write it from the root, such as `/etc/sysctl.d/90-nodes.conf`";
        let clean = name.strip_prefix('/').is_some_and(|rest| {
            rest.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= MOST_NAME)
        });
        if !clean || name.len() > MOST_PATH || name.contains(char::is_control) {
            self.report.error("file-path", path, format!("`{name}` is not a path of a file"), help);
            return;
        }
        let within = |place: &str| {
            name.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if name.ends_with("/.ssh/authorized_keys") {
            let help = "write the keys in `sshAuthorizedKeys`";
            self.report.error("file-path", path, format!("`{name}` is written by Slipway"), help);
        } else if let Some((place, help)) = OWNED.iter().find(|(place, _)| within(place))
            && !(within(CUSTOM) && name.len() > CUSTOM.len())
        {
            let message = format!("`{name}` lies where no file of yours can be, in `{place}`");
            self.report.error("file-path", path, message, *help);
        }
    }

    /// A folder that a container sees must not contain Slipway's own files either.
    pub(super) fn above_ours(&mut self, name: &str, path: &Path) {
        let inside = |place: &str| place.strip_prefix(name).is_some_and(|rest| rest.starts_with('/'));
        if let Some((place, _)) = OWNED.iter().find(|(place, _)| inside(place)) {
            let message = format!("`{name}` holds `{place}`, which is Slipway's or the machine's");
            self.report.error("file-path", path, message, "name the folder below it that is needed");
        }
    }

    /// Octal digits, four of them.
    fn mode(&mut self, text: &str, path: &Path) -> Option<String> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        let number = u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o7777);
        let Some(mode) = number.filter(|_| (3..=5).contains(&digits.len())) else {
            let help = "write octal digits, such as `0644` or `0600`";
            self.report.error("file-mode", path, format!("`{text}` is not a mode of a file"), help);
            return None;
        };
        if mode & 0o400 == 0 {
            let help = "write a mode that lets its owner read it, such as `0600`";
            self.report.error("file-mode", path, format!("with `{text}` nobody could read the file"), help);
            return None;
        }
        Some(format!("{mode:04o}"))
    }

    fn content(&mut self, spec: &CustomFileSpec, path: &Path) -> Option<Content> {
        match (&spec.content, &spec.content_base64) {
            (Some(text), None) => {
                self.no_key(text, &path.key("content"));
                Some(Content::Text(text.clone()))
            }
            (None, Some(text)) => {
                let path = path.key("contentBase64");
                let text: String = text.split_whitespace().collect();
                let Ok(bytes) = BASE64_STANDARD.decode(&text) else {
                    let help = "write what `base64 <file>` prints";
                    self.report.error("base64", &path, "this is not base64", help);
                    return None;
                };
                self.no_key(&String::from_utf8_lossy(&bytes), &path);
                Some(match String::from_utf8(bytes) {
                    Ok(text) => Content::Text(text),
                    Err(_) => Content::Base64(text),
                })
            }
            (Some(_), Some(_)) => {
                let message = "`content` and `contentBase64` both say what is in the file";
                self.report.error("given-twice", &path.key("contentBase64"), message, "keep one of them");
                None
            }
            (None, None) => {
                let help = "add `content`, or `contentBase64` for what is not text; `content: \"\"` for an empty file";
                self.report.error("missing-key", path, "nothing says what is in this file", help);
                None
            }
        }
    }

    /// A node's configuration is read by many and sealed for nobody (P9).
    fn no_key(&mut self, text: &str, path: &Path) {
        if holds_private_key(text) {
            let help = "take it out and make a new one, for this one was readable; let the node fetch secrets with its role, from Secrets Manager for instance";
            self.report.error("secret-in-spec", path, "there is a private key in this", help);
        }
    }

    fn custom_unit(&mut self, spec: &CustomUnitSpec, path: &Path) -> Option<CustomUnit> {
        let name = spec.name.as_deref()?;
        if !is_unit(name) {
            let help = format!("write a name with a suffix of systemd's: `.{}`", SUFFIXES.join("`, `."));
            self.report.error(
                "unit-name",
                &path.key("name"),
                format!("`{name}` is not a valid name of a unit"),
                help,
            );
        }
        let owned = OWNED_UNITS.contains(&name) || name.starts_with("slipway-");
        if owned && (spec.content.is_some() || spec.command.is_some() || spec.enable) {
            let key = match (&spec.content, spec.command) {
                (Some(_), _) => "content",
                (None, Some(_)) => "command",
                (None, None) => "enable",
            };
            let message = format!("`{name}` is Slipway's to write and to start");
            let help = "give it `drop-ins` only, which take effect when Slipway starts it";
            self.report.error("unit-owned", &path.key(key), message, help);
        }
        if spec.content.is_none() && spec.drop_ins.is_empty() && spec.command.is_none() && !spec.enable {
            let help = "add `content`, `drop-ins`, `command` or `enable`, or remove it";
            self.report.error("missing-key", path, format!("nothing is done with `{name}`"), help);
        }
        if let Some(content) = &spec.content {
            self.no_key(content, &path.key("content"));
            if spec.enable && !content.lines().any(|line| line.trim() == "[Install]") {
                let message = format!("`{name}` is enabled, but nothing pulls it in at boot");
                let help = "add a section such as `[Install]` with `WantedBy=multi-user.target`";
                self.report.error("unit-install", &path.key("enable"), message, help);
            }
        }
        let mut seen = BTreeSet::new();
        let mut drop_ins = Vec::new();
        for (index, part) in spec.drop_ins.iter().enumerate() {
            let path = path.key("drop-ins").index(index);
            let (Some(name), Some(content)) = (&part.name, &part.content) else { continue };
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte);
            if !name.ends_with(".conf") || name.len() > MOST_NAME || !name.bytes().all(plain) {
                let help = "write one such as `10-proxy.conf`";
                self.report.error(
                    "unit-name",
                    &path.key("name"),
                    format!("`{name}` is not the name of a drop-in"),
                    help,
                );
            }
            if !seen.insert(name.as_str()) {
                let message = format!("the drop-in `{name}` is given twice");
                self.report.error("duplicate-name", &path.key("name"), message, "keep one of them");
            }
            self.no_key(content, &path.key("content"));
            drop_ins.push(DropIn { name: name.clone(), content: content.clone() });
        }
        drop_ins.sort_by(|a, b| a.name.cmp(&b.name));
        Some(CustomUnit {
            name: name.to_owned(),
            command: spec.command.map(word),
            enable: spec.enable,
            runtime: spec.runtime,
            content: spec.content.clone(),
            drop_ins,
        })
    }
}

/// The name or number of a user or group (useradd(8)).
fn is_account(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    (1..=32).contains(&text.len())
        && text.bytes().all(word)
        && (!text.starts_with(|letter: char| letter.is_ascii_digit() || letter == '-')
            || text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A unit's name (systemd.unit(5)).
fn is_unit(text: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    text.len() <= MOST_NAME
        && text.rsplit_once('.').is_some_and(|(stem, suffix)| {
            !stem.is_empty() && stem.bytes().all(letter) && SUFFIXES.contains(&suffix)
        })
}
