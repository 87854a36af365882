//! Files and units of an etcd member.

use std::path::Path;

use slipway_core::node::{DataVolume, EtcdConfig, InitialClusterState};
use slipway_credentials::policy::ETCD_DIR;

use crate::credentials::below;
use crate::etcd::SERVICE;
use crate::etcd::join::{self, FounderStart};
use crate::etcd::local_member::LocalMember;
use crate::etcd::scheduled;
use crate::failure::AgentResult;
use crate::machine::apply::UNITS;
use crate::machine::{Setup, Unit, disk, files};
use crate::status::publish;
use crate::{leave, run_command, software};

/// The user that etcd runs as.
pub(super) const USER: &str = "etcd";
/// The label of a member's file system: at most 16 bytes.
pub const LABEL: &str = "slipway-etcd";
/// The sysusers file that declares the user.
pub(super) const SYSUSERS: &str = "/etc/sysusers.d/slipway-etcd.conf";
pub(super) const SYSUSERS_TEXT: &str = "u etcd - \"etcd of Slipway\" /var/lib/etcd\n";

/// The mount of the member's volume. It is not in fstab, and no target that a boot must reach requires it: a machine without its
/// volume is no member, but people can still sign in.
pub(super) fn mount(settings: &DataVolume, device: &str) -> Setup {
    let content = format!(
        "[Unit]\nDescription=etcd's data\n\n\
         [Mount]\nWhat={device}\nWhere={}\nType={}\nOptions=noatime\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        settings.mount_point, settings.file_system
    );
    let name = disk::mount_unit(&settings.mount_point);
    Setup { files: Vec::new(), units: vec![Unit { name, content: Some(content) }] }
}

/// `--initial-cluster` of a member that joins a running cluster; empty for a founder, whose configuration has it, unless it was removed and
/// joins again. Once the member has data, the value stays the one in its unit, so that the unit does not change.
pub(super) async fn initial_cluster(root: &Path, config: &EtcdConfig) -> AgentResult<String> {
    let local = LocalMember { root: root.to_owned(), config: config.clone() };
    if local.data().join("member").is_dir() {
        let unit = files::read(&below(root, &format!("{UNITS}/{SERVICE}")))?.unwrap_or_default();
        return Ok(joined_by(&String::from_utf8_lossy(&unit)));
    }
    let start = match config.etcd.initial_cluster_state {
        None => join::check_founder(&local).await?,
        Some(InitialClusterState::Existing) => FounderStart::Joins,
    };
    match start {
        FounderStart::Founds => Ok(String::new()),
        FounderStart::Joins => Ok(join::join(&local).await?.initial_cluster),
    }
}

/// `--initial-cluster` in the unit of a member that joined; empty if it founded.
fn joined_by(unit: &str) -> String {
    let flag = |name: &str| {
        let value = unit.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_end_matches(" \\").to_owned()
    };
    if flag("--initial-cluster-state") == "existing" { flag("--initial-cluster") } else { String::new() }
}

/// The member's own files and units. `joining` is [`initial_cluster`].
pub(super) fn setup(
    root: &Path,
    config: &EtcdConfig,
    joining: &str,
    release: Option<Release>,
) -> AgentResult<Setup> {
    let program = software::find_program(root, "etcd")?;
    let program = program.display();
    let flags: Vec<String> = flags(config, joining, release)
        .into_iter()
        .map(|(flag, value)| format!("  --{flag}={value}"))
        .collect();
    let content = format!(
        "[Unit]\nDescription=etcd\nWants=network-online.target\nAfter=network-online.target\n\
         RequiresMountsFor={}\nStartLimitIntervalSec=0\n\n\
         [Service]\nType=notify\nUser={USER}\nExecStart={program} \\\n{}\n\
         Restart=always\nRestartSec=1\n\
         # Without a majority of the members, etcd is not ready.\nTimeoutStartSec=infinity\n\
         LimitNOFILE=65536\nOOMScoreAdjust=-999\nNice=-10\nIOSchedulingClass=best-effort\nIOSchedulingPriority=0\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        config.data_volume.mount_point,
        flags.join(" \\\n")
    );
    let mut units = vec![Unit { name: SERVICE.to_owned(), content: Some(content) }];
    units.extend(publish::units());
    units.extend(scheduled::units());
    units.push(leave::unit());
    Ok(Setup { files: run_command::files(), units })
}

/// Major and minor release of etcd.
pub(super) type Release = (u32, u32);

/// The release in the output of `etcd --version`, whose first line is `etcd Version: 3.5.16`, or in a bare version.
pub(super) fn release(text: &str) -> Option<Release> {
    let version = text.lines().next()?.rsplit(' ').next()?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Flags whose names depend on the release; none if it is unknown. kubeadm sets the same (kubernetes `cmd/kubeadm/app/phases/etcd/local.go`,
/// `getEtcdCommand`): a member compares its data with the others' before it serves, and reports progress to idle watches every five seconds,
/// without which the API server answers reads from its cache late. 3.6 gave both new names (etcd `server/features`,
/// `ExperimentalFlagToFeatureMap`), and 3.7 removed the old ones.
///
/// From 3.6, the leader also compares the members' hashes of each compacted revision, as etcd recommends in production ("Data Corruption" in its
/// operations guide); members that run then notice that their data differ. 3.5 knows this since 3.5.5, but some of its patches hash other keys than
/// others (etcd-io/etcd#15919, #18274): members of two patches, as there are in each upgrade, could raise `CORRUPT` without a reason. So it is
/// left off there (nobody reproduced this here).
fn release_flags(release: Option<Release>) -> Vec<(&'static str, String)> {
    let flags: &[(&str, &str)] = match release {
        None => &[],
        Some(release) if release >= (3, 6) => &[
            ("feature-gates", "InitialCorruptCheck=true,CompactHashCheck=true"),
            ("watch-progress-notify-interval", "5s"),
        ],
        Some(release) if release >= (3, 5) => &[
            ("experimental-initial-corrupt-check", "true"),
            ("experimental-watch-progress-notify-interval", "5s"),
        ],
        Some(_) => &[("experimental-initial-corrupt-check", "true")],
    };
    flags.iter().map(|(flag, value)| (*flag, (*value).to_owned())).collect()
}

/// The flags of a member that founds its cluster, apart from those that depend on etcd's release.
#[must_use]
pub fn founding_flags(config: &EtcdConfig) -> Vec<(&'static str, String)> {
    flags(config, "", None)
}

fn flags(config: &EtcdConfig, joining: &str, release: Option<Release>) -> Vec<(&'static str, String)> {
    let etcd = &config.etcd;
    let pki = |name: &str| format!("{ETCD_DIR}/{name}");
    let named = |port: u16| format!("https://{}:{port}", etcd.dns_name);
    // The address changes with the machine. The security group limits who can connect.
    let any = |port: u16| format!("https://0.0.0.0:{port}");
    let mut flags = vec![
        ("name", etcd.name.clone()),
        ("data-dir", LocalMember::data_path(config)),
        ("listen-client-urls", any(etcd.client_port)),
        ("advertise-client-urls", named(etcd.client_port)),
        ("listen-peer-urls", any(etcd.peer_port)),
        ("initial-advertise-peer-urls", named(etcd.peer_port)),
        ("initial-cluster-token", etcd.initial_cluster_token.clone()),
        ("client-cert-auth", "true".to_owned()),
        ("cert-file", pki("server.pem")),
        ("key-file", pki("server-key.pem")),
        ("trusted-ca-file", pki("etcd-ca.pem")),
        ("peer-client-cert-auth", "true".to_owned()),
        ("peer-cert-file", pki("peer.pem")),
        ("peer-key-file", pki("peer-key.pem")),
        ("peer-trusted-ca-file", pki("etcd-ca.pem")),
    ];
    if let Some(bytes) = etcd.quota_bytes {
        flags.push(("quota-backend-bytes", bytes.to_string()));
    }
    flags.extend(release_flags(release));
    // etcd reads these flags only while its data directory is empty.
    if !joining.is_empty() {
        flags.push(("initial-cluster", joining.to_owned()));
        flags.push(("initial-cluster-state", "existing".to_owned()));
        return flags;
    }
    match etcd.initial_cluster_state {
        None => {
            let all: Vec<String> =
                etcd.initial_cluster.iter().map(|(name, url)| format!("{name}={url}")).collect();
            flags.push(("initial-cluster", all.join(",")));
            flags.push(("initial-cluster-state", "new".to_owned()));
        }
        Some(InitialClusterState::Existing) => flags.push(("initial-cluster-state", "existing".to_owned())),
    }
    flags
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use serde_json::json;
    use slipway_core::node::{ETCD_FLAGS, ETCD_QUOTA_FLAG};

    use super::*;

    #[test]
    fn corruption_is_looked_for_by_the_flag_that_the_release_knows() {
        let names = |text: &str| {
            let flags = release_flags(release(text));
            flags.into_iter().map(|(flag, value)| format!("{flag}={value}")).collect::<Vec<_>>()
        };
        for new in
            ["3.6.16", "3.7.3", "3.10.0", "etcd Version: 3.6.5\nGit SHA: GitNotFound\nGo Version: go1.24\n"]
        {
            let expected = [
                "feature-gates=InitialCorruptCheck=true,CompactHashCheck=true",
                "watch-progress-notify-interval=5s",
            ];
            assert_eq!(names(new), expected, "{new}");
        }
        let old =
            ["experimental-initial-corrupt-check=true", "experimental-watch-progress-notify-interval=5s"];
        assert_eq!(names("etcd Version: 3.5.16\nGit SHA: GitNotFound\n"), old);
        assert_eq!(names("3.4.23"), ["experimental-initial-corrupt-check=true"]);
        // etcd does not start with a flag that it does not know.
        for unknown in ["", "etcd", "go1.24"] {
            assert_eq!(names(unknown), [""; 0], "{unknown}");
        }
    }

    fn member(changes: &serde_json::Value) -> EtcdConfig {
        let mut config = json!({
            "format": 1, "cluster": "c", "role": "etcd-0", "region": "eu-west-1", "sshAuthorizedKeys": [],
            "autoScalingGroup": "g", "launchHook": "l", "terminateHook": "t",
            "etcd": {
                "version": "3.6.16", "name": "etcd-0", "dnsName": "etcd-0.c.etcd.internal",
                "clientPort": 2379, "peerPort": 2380, "initialClusterToken": "c",
            },
            "dataVolume": { "tags": {}, "device": "/dev/sdf", "fileSystem": "ext4", "mountPoint": "/var/lib/etcd" },
        });
        for (key, value) in changes.as_object().unwrap() {
            config["etcd"][key] = value.clone();
        }
        serde_json::from_value(config).unwrap()
    }

    /// As it is told to by the runbook, where its data are damaged.
    #[test]
    fn a_founder_that_was_removed_joins_and_its_unit_stays_so() {
        let founder = member(&json!({ "initialCluster": { "etcd-0": "https://etcd-0:2380" } }));
        let start = |joining: &str| {
            let flags = flags(&founder, joining, None);
            let flags: Vec<_> = flags.iter().map(|(flag, value)| format!("  --{flag}={value}")).collect();
            flags.join(" \\\n")
        };
        let founds = start("");
        assert!(
            founds.contains("--initial-cluster=etcd-0=https://etcd-0:2380 \\\n  --initial-cluster-state=new")
        );
        assert_eq!(joined_by(&founds), "");
        let all = "etcd-0=https://etcd-0:2380,etcd-1=https://etcd-1:2380";
        let joins = start(all);
        assert!(joins.ends_with("--initial-cluster-state=existing"), "{joins}");
        assert_eq!(joined_by(&joins), all);
        assert_eq!(
            joined_by("  --initial-cluster-state=existing \\\n"),
            "",
            "it has data, and the machine is new"
        );
    }

    /// A spec is refused if a drop-in sets one of these by the environment, because etcd does not start then.
    #[test]
    fn the_spec_knows_every_flag_that_a_member_gets() {
        let mut given = BTreeSet::new();
        for release in [None, Some((3, 4)), Some((3, 5)), Some((3, 6)), Some((3, 7))] {
            for state in [json!({}), json!({ "initialClusterState": "existing", "quotaBytes": 1 })] {
                let all = flags(&member(&state), "etcd-0=https://etcd-0:2380", release);
                given.extend(all.into_iter().map(|(flag, _)| flag));
            }
        }
        assert!(given.remove(ETCD_QUOTA_FLAG));
        assert_eq!(given.into_iter().collect::<Vec<_>>(), ETCD_FLAGS);
    }

    #[test]
    fn the_quota_of_the_spec_reaches_etcd_and_without_one_its_own_holds() {
        let quota = |bytes: Option<u64>| {
            let config = member(&json!({ "quotaBytes": bytes }));
            flags(&config, "", None).into_iter().find(|(flag, _)| *flag == "quota-backend-bytes")
        };
        assert_eq!(quota(Some(8 << 30)), Some(("quota-backend-bytes", "8589934592".to_owned())));
        assert_eq!(quota(None), None);
    }
}
