//! What an etcd member wants on its machine.

use std::path::Path;

use slipway_core::node::{DataVolume, EtcdConfig, InitialClusterState};
use slipway_credentials::policy::ETCD_DIR;

use crate::credentials::below;
use crate::etcd::join;
use crate::etcd::place::Place;
use crate::failure::Outcome;
use crate::machine::apply::UNITS;
use crate::machine::{Furniture, Unit, disk, files};
use crate::status::publish;
use crate::{leave, software};

/// Its unit.
pub const SERVICE: &str = "etcd.service";
/// Whom etcd runs as.
pub(super) const USER: &str = "etcd";
/// The label of a member's file system: 16 bytes at most.
pub const LABEL: &str = "slipway-etcd";
/// Where the user is asked for.
pub(super) const SYSUSERS: &str = "/etc/sysusers.d/slipway-etcd.conf";
/// A user without a shell and without a home of its own.
pub(super) const SYSUSERS_TEXT: &str = "u etcd - \"etcd of Slipway\" /var/lib/etcd\n";

/// The mount of the member's volume. Not by fstab, and wanted by no target that a machine must reach: without its volume a member is
/// no member, but somebody may still sign in and look.
pub(super) fn mount(settings: &DataVolume, device: &str) -> Furniture {
    let content = format!(
        "[Unit]\nDescription=etcd's data\n\n\
         [Mount]\nWhat={device}\nWhere={}\nType={}\nOptions=noatime\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        settings.mount_point, settings.file_system
    );
    let name = disk::mount_unit(&settings.mount_point);
    Furniture { files: Vec::new(), units: vec![Unit { name, content: Some(content) }] }
}

/// `--initial-cluster` of a member that joins (a founder's stands in its configuration): what those say that stand, and once it has data what it was started with, so that its
/// unit stays as it is.
///
/// # Errors
/// If the cluster does not take it.
pub(super) async fn initial_cluster(root: &Path, config: &EtcdConfig) -> Outcome<String> {
    let place = Place { root: root.to_owned(), config: config.clone() };
    if config.etcd.initial_cluster_state.is_none() {
        if !place.data().join("member").is_dir() {
            join::founds(&place).await?;
        }
        return Ok(String::new());
    }
    if !place.data().join("member").is_dir() {
        return Ok(join::join(&place).await?.initial_cluster);
    }
    let unit = files::read(&below(root, &format!("{UNITS}/{SERVICE}")))?.unwrap_or_default();
    let unit = String::from_utf8_lossy(&unit).into_owned();
    let line = unit.lines().find_map(|line| line.trim().strip_prefix("--initial-cluster="));
    Ok(line.unwrap_or_default().trim_end_matches(" \\").to_owned())
}

/// The member itself. `joining`: [`initial_cluster`] of one that joins.
pub(super) fn furniture(root: &Path, config: &EtcdConfig, joining: &str) -> Outcome<Furniture> {
    let program = software::find(root, "etcd")?;
    let program = program.display();
    let flags: Vec<String> =
        flags(config, joining).into_iter().map(|(flag, value)| format!("  --{flag}={value}")).collect();
    let content = format!(
        "[Unit]\nDescription=etcd\nWants=network-online.target\nAfter=network-online.target\n\
         RequiresMountsFor={}\nStartLimitIntervalSec=0\n\n\
         [Service]\nType=notify\nUser={USER}\nExecStart={program} \\\n{}\n\
         Restart=always\nRestartSec=1\n\
         # A member without its fellows is not ready until they are.\nTimeoutStartSec=infinity\n\
         LimitNOFILE=65536\nOOMScoreAdjust=-999\nNice=-10\nIOSchedulingClass=best-effort\nIOSchedulingPriority=0\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        config.data_volume.mount_point,
        flags.join(" \\\n")
    );
    let mut units = vec![Unit { name: SERVICE.to_owned(), content: Some(content) }];
    units.extend(publish::units());
    units.push(leave::unit());
    Ok(Furniture { files: Vec::new(), units })
}

fn flags(config: &EtcdConfig, joining: &str) -> Vec<(&'static str, String)> {
    let etcd = &config.etcd;
    let pki = |name: &str| format!("{ETCD_DIR}/{name}");
    let named = |port: u16| format!("https://{}:{port}", etcd.dns_name);
    // The address changes with the machine; the security group says who comes.
    let any = |port: u16| format!("https://0.0.0.0:{port}");
    let mut flags = vec![
        ("name", etcd.name.clone()),
        ("data-dir", Place::data_path(config)),
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
    // Read with an empty folder alone; a member that has data knows its fellows from there.
    match etcd.initial_cluster_state {
        None => {
            let all: Vec<String> =
                etcd.initial_cluster.iter().map(|(name, url)| format!("{name}={url}")).collect();
            flags.push(("initial-cluster", all.join(",")));
            flags.push(("initial-cluster-state", "new".to_owned()));
        }
        Some(InitialClusterState::Existing) => {
            if !joining.is_empty() {
                flags.push(("initial-cluster", joining.to_owned()));
            }
            flags.push(("initial-cluster-state", "existing".to_owned()));
        }
    }
    flags
}
