//! The steps, each with its check and its action.

use slipway_core::node::{BootstrapState, EtcdConfig, NodeConfig};
use slipway_core::release::{StackKind, stack_name};
use slipway_core::software::Program;
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};

use super::{Bootstrap, bytes, etcd};
use crate::aws::{HookResult, Instance, of_stack, zone_of};
use crate::credentials::{self, Bundle};
use crate::etcd::local_member::LocalMember;
use crate::failure::{AgentError, AgentResult, FailureCode};
use crate::kube::{self, Facts};
use crate::machine::accounts;
use crate::machine::commands::Commands;
use crate::machine::files::Owner;
use crate::machine::{File, Setup, disk, files};
use crate::sealed_bundle;
use crate::software::{self, Publisher};
use crate::static_pods;
use crate::storage::{self, Storage};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// The user that etcd runs as exists.
    Account,
    /// The member's volume is attached to this instance.
    Volume,
    /// The volume has a file system, which is mounted.
    FileSystem,
    /// A worker's other disks have file systems, which are mounted.
    Storage,
    /// The programs that the image lacks are installed.
    Software,
    /// The credentials are where the role reads them.
    Credentials,
    /// The member's DNS record points to this machine.
    Record,
    /// The files of the user and of the role are written.
    Files,
    Units,
    /// A unit repeats these steps after a reboot.
    Again,
    Healthy,
    /// The launch hook is completed.
    Hook,
}

impl Step {
    /// The steps of a role, in order.
    pub(super) fn of_role(config: &NodeConfig) -> Vec<Self> {
        let common = [
            Self::Software,
            Self::Credentials,
            Self::Files,
            Self::Units,
            Self::Again,
            Self::Healthy,
            Self::Hook,
        ];
        match config {
            NodeConfig::Etcd(_) => vec![
                Self::Account,
                Self::Volume,
                Self::FileSystem,
                Self::Software,
                Self::Credentials,
                Self::Record,
                Self::Files,
                Self::Units,
                Self::Again,
                Self::Healthy,
                Self::Hook,
            ],
            NodeConfig::Worker(worker) if storage::is_wanted(&worker.machine) => {
                [Self::Storage].into_iter().chain(common).collect()
            }
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => common.into(),
        }
    }

    /// The name in reports and answers.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::Volume => "volume",
            Self::FileSystem => "file-system",
            Self::Storage => "storage",
            Self::Software => "software",
            Self::Credentials => "credentials",
            Self::Record => "record",
            Self::Files => "files",
            Self::Units => "units",
            Self::Again => "again",
            Self::Healthy => "healthy",
            Self::Hook => "hook",
        }
    }
}

impl<C: Commands> Bootstrap<C> {
    /// Does what is missing for `step`. The failure says whether a retry may help.
    pub async fn perform(&self, step: Step) -> AgentResult<()> {
        match step {
            Step::Account => self.account().await,
            Step::Volume => self.volume().await,
            Step::FileSystem => self.file_system().await,
            Step::Storage => {
                let NodeConfig::Worker(worker) = &self.config else { return Ok(()) };
                let storage = Storage { host: &self.host, machine: &worker.machine, aws: &self.aws };
                storage.ensure_file_systems().await?;
                storage.mount().await
            }
            Step::Software => {
                let wanted = &self.config.base().software;
                let publisher = Publisher::new(&self.aws)?;
                for installed in software::install(&self.host.root, &publisher, wanted).await? {
                    software::check_that_it_runs(&self.host.commands, &installed).await?;
                }
                Ok(())
            }
            Step::Credentials => self.credentials().await,
            Step::Record => self.record().await,
            Step::Files => {
                self.write_custom_files()?;
                let (joining, release) = match &self.config {
                    NodeConfig::Etcd(config) => (
                        etcd::initial_cluster(&self.host.root, config).await?,
                        self.etcd_release(config).await?,
                    ),
                    NodeConfig::Controller(_) | NodeConfig::Worker(_) => (String::new(), None),
                };
                self.host.write(&self.setup(&joining, release)?).await
            }
            Step::Units => {
                // Only names of units and times of files matter here, not contents.
                self.host.start(&self.setup("", None)?).await?;
                for failure in self.start_custom_units().await {
                    self.write_progress(BootstrapState::Working, Some(step), Some(&failure));
                }
                Ok(())
            }
            Step::Again => self.enable_reboot_unit().await,
            Step::Healthy => self.healthy().await,
            Step::Hook => {
                self.report_that_it_may_serve().await?;
                // If no action is pending, the hook was completed before or timed out.
                self.aws.complete_hook(&self.hook(), HookResult::Continue).await?;
                Ok(())
            }
        }
    }

    async fn account(&self) -> AgentResult<()> {
        let accounts =
            Setup { files: vec![File::public(etcd::SYSUSERS, etcd::SYSUSERS_TEXT)], ..Setup::default() };
        for file in &accounts.files {
            files::write(&self.host.below(&file.path), file.mode, Owner::ROOT, file.content.as_bytes())?;
        }
        if self.etcd_user()?.is_none() {
            self.host.commands.run_checked("systemd-sysusers", &[etcd::SYSUSERS]).await?;
        }
        self.etcd_owner().map(drop)
    }

    fn etcd_user(&self) -> AgentResult<Option<accounts::User>> {
        accounts::user(&self.host.root, etcd::USER)
    }

    fn etcd_owner(&self) -> AgentResult<Owner> {
        let user = self.etcd_user()?.ok_or_else(|| {
            AgentError::transient(
                FailureCode::MachineAccount,
                format!("this machine has no user {}", etcd::USER),
                "systemd-sysusers creates it: see its messages with `journalctl -u systemd-sysusers`",
            )
        })?;
        Ok(user.owner)
    }

    /// Waits until the volume's device appears. The instance before this one may still hold the volume.
    async fn volume(&self) -> AgentResult<()> {
        let id = self.volume_id().await?;
        if self.device(&id).is_some() {
            return Ok(());
        }
        Err(AgentError::transient(
            FailureCode::VolumeDevice,
            format!("the volume {id} is attached, but its device has not appeared yet"),
            "wait: it appears within seconds (see `lsblk`)",
        ))
    }

    /// The volume's id, once it is attached to this instance.
    async fn volume_id(&self) -> AgentResult<String> {
        let settings = &self.etcd_config()?.data_volume;
        let tags: Vec<String> = settings.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut found = self.aws.volumes(&settings.tags).await?;
        found.retain(|volume| !["deleting", "deleted", "error"].contains(&volume.state.as_str()));
        let ids: Vec<&str> = found.iter().map(|volume| volume.id.as_str()).collect();
        if ids.is_empty() {
            return Err(AgentError::transient(
                FailureCode::VolumeAbsent,
                format!("no volume has the tags {}", tags.join(", ")),
                "CloudFormation creates it with the cluster's etcd stack: check that stack",
            ));
        }
        let stack = stack_name(&self.node.cluster, StackKind::Etcd, "");
        let Some(volume) = of_stack(&found, &stack) else {
            // It passes when a person corrects the tags; the member then continues.
            return Err(AgentError::transient(
                FailureCode::VolumeAmbiguous,
                format!(
                    "several volumes have the tags {}, and it cannot be told which of them is of the stack {stack}: {}",
                    tags.join(", "),
                    ids.join(", ")
                ),
                "remove the tag slipway:volume from the volumes that do not belong to this member",
            ));
        };
        let own = &self.instance.id;
        match &volume.attachment {
            Some((instance, state)) if instance == own && state == "attached" => Ok(volume.id.clone()),
            Some((instance, state)) => Err(AgentError::transient(
                FailureCode::VolumeBusy,
                format!("the volume {} is {state} to the instance {instance}", volume.id),
                "EC2 detaches it when that instance is terminated; the agent then attaches it here",
            )),
            None => {
                self.aws.attach(&volume.id, own, &settings.device).await?;
                Err(AgentError::transient(
                    FailureCode::VolumeAttaching,
                    format!("the volume {} is being attached", volume.id),
                    "wait: EC2 takes some seconds",
                ))
            }
        }
    }

    fn device(&self, volume: &str) -> Option<String> {
        let device = &self.etcd_config().ok()?.data_volume.device;
        disk::device(&self.host.root, volume, device)
    }

    async fn file_system(&self) -> AgentResult<()> {
        let settings = &self.etcd_config()?.data_volume;
        if settings.file_system != "ext4" {
            return Err(AgentError::permanent(
                FailureCode::VolumeFileSystem,
                format!("etcd's volume must have ext4, but the configuration says {}", settings.file_system),
                "remove the patch that changes the file system",
            ));
        }
        let id = self.volume_id().await?;
        let device = self.device(&id).ok_or_else(|| {
            AgentError::transient(
                FailureCode::VolumeDevice,
                format!("the device of the volume {id} has disappeared"),
                "see `lsblk`",
            )
        })?;
        let mount = etcd::mount(settings, &device);
        let name = mount.units.first().map(|unit| unit.name.clone()).unwrap_or_default();
        // A mounted file system is neither created nor checked.
        let active = self.host.commands.run("systemctl", &["is-active", "--quiet", &name]).await?;
        if active.status != Some(0) {
            self.host.format(&device, &format!("the volume {id}"), disk::Kind::Ext4, etcd::LABEL).await?;
            self.host.check(&device).await?;
        }
        self.host.write(&mount).await?;
        self.host.start(&mount).await?;
        // The volume may have been enlarged.
        self.host.commands.run_checked("resize2fs", &[&device]).await?;
        let owner = self.etcd_owner()?;
        let data = self.host.below(&LocalMember::data_path(self.etcd_config()?));
        files::folder(&data, 0o700, owner)?;
        files::chown_all(&data, owner)
    }

    async fn credentials(&self) -> AgentResult<()> {
        let (folder, owner) = match &self.config {
            NodeConfig::Etcd(_) => (ETCD_DIR, self.etcd_owner()?),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => (KUBERNETES_DIR, Owner::ROOT),
        };
        let sealed = bytes(&self.host.root, "credentials.sealed")?;
        let plain = sealed_bundle::open_own(&self.aws, &self.node, &sealed).await?;
        let bundle = static_pods::with_copies(Bundle::read(&plain)?, &self.config);
        files::folder(&self.host.below(folder), 0o700, owner)?;
        credentials::write(&self.host.root, &self.node.credentials, &bundle)?.remove_previous()
    }

    async fn record(&self) -> AgentResult<()> {
        let zone = zone_of(&self.node)?;
        let name = &self.etcd_config()?.etcd.dns_name;
        Ok(self.aws.set_address(zone, name, &self.instance.local_ipv4).await?)
    }

    /// The release of the etcd that this machine has: installed ones are as the configuration says, an image may have any.
    async fn etcd_release(&self, config: &EtcdConfig) -> AgentResult<Option<etcd::Release>> {
        if config.base.software.iter().any(|file| file.name == Program::Etcd) {
            return Ok(etcd::release(&config.etcd.version));
        }
        let program = software::find_program(&self.host.root, "etcd")?;
        let program = self.host.below(&program.to_string_lossy()).display().to_string();
        Ok(etcd::release(&self.host.commands.run_checked(&program, &["--version"]).await?))
    }

    /// The files and units of the role.
    fn setup(&self, joining: &str, release: Option<etcd::Release>) -> AgentResult<Setup> {
        match &self.config {
            NodeConfig::Etcd(config) => etcd::setup(&self.host.root, config, joining, release),
            NodeConfig::Controller(config) => {
                Ok(kube::restart_mark::keep_marks(&self.host.root, kube::controller(config, &self.facts()?)))
            }
            NodeConfig::Worker(config) => Ok(kube::worker(config, &self.facts()?)),
        }
    }

    fn facts(&self) -> AgentResult<Facts> {
        let Instance { id, availability_zone, local_ipv4, .. } = &self.instance;
        let address = local_ipv4.parse().map_err(|_| {
            AgentError::transient(
                FailureCode::BootstrapAddress,
                format!("the metadata service gives {local_ipv4:?} as this machine's address, which is not an IP address"),
                "report this: it is a defect",
            )
        })?;
        // The stub of systemd-resolved listens only on the node's loopback, which pods cannot reach.
        let resolv_conf = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"]
            .into_iter()
            .find(|path| self.host.below(path).exists())
            .unwrap_or("/etc/resolv.conf");
        Ok(Facts {
            instance_id: id.clone(),
            zone: availability_zone.clone(),
            address,
            resolv_conf: resolv_conf.to_owned(),
            root_ca: self.host.below(&format!("{KUBERNETES_DIR}/root-ca.pem")).exists(),
        })
    }

    fn etcd_config(&self) -> AgentResult<&EtcdConfig> {
        match &self.config {
            NodeConfig::Etcd(config) => Ok(config),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => Err(AgentError::permanent(
                FailureCode::BootstrapStep,
                format!("{} has no volume and no record", self.node.role),
                "report this: it is a defect",
            )),
        }
    }
}
