//! The steps, each by what it looks at and what it does about it.

use slipway_core::node::{BootstrapState, NodeConfig};
use slipway_credentials::policy::{ETCD_DIR, KUBERNETES_DIR};
use slipway_crypto::AwsLc;

use super::{Bootstrap, bytes, etcd};
use crate::aws::{HookResult, Instance, zone_of};
use crate::credentials::{self, Bundle};
use crate::etcd::place::Place;
use crate::failure::{Failure, FailureCode, Outcome};
use crate::kube::{self, Facts};
use crate::machine::accounts::{self, Owner};
use crate::machine::commands::Commands;
use crate::machine::{File, Furniture, disk, files};
use crate::software::{self, Publisher};
use crate::storage::{self, Storage};

/// A step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// There is the user that etcd runs as.
    Account,
    /// The member's volume is attached here, and nowhere else.
    Volume,
    /// It has a file system, which is mounted.
    FileSystem,
    /// A worker's other disks have file systems, and are mounted.
    Storage,
    /// The programs are there that the image lacks.
    Software,
    /// The credentials lie where the role reads them.
    Credentials,
    /// The member's name is this machine's address.
    Record,
    /// What the user and the role want on the machine is written.
    Files,
    /// Their units are enabled and started.
    Units,
    /// All of this is gone through again after a reboot.
    Again,
    /// The node is healthy.
    Healthy,
    /// The launch hook knows.
    Hook,
}

impl Step {
    /// The steps of a role.
    pub(super) fn of(config: &NodeConfig) -> Vec<Self> {
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

    /// For people.
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
    /// Does what is missing of `step`.
    ///
    /// # Errors
    /// What is in its way, which may pass.
    pub async fn perform(&self, step: Step) -> Outcome<()> {
        match step {
            Step::Account => self.account().await,
            Step::Volume => self.volume().await,
            Step::FileSystem => self.file_system().await,
            Step::Storage => {
                let NodeConfig::Worker(worker) = &self.config else { return Ok(()) };
                let storage = Storage { host: &self.host, machine: &worker.machine, aws: &self.aws };
                storage.prepare().await?;
                storage.mount().await
            }
            Step::Software => {
                let wanted = &self.config.base().software;
                let publisher = Publisher::new(&self.aws)?;
                software::install(&self.host.root, &publisher, wanted).await.map(drop)
            }
            Step::Credentials => self.credentials().await,
            Step::Record => self.record().await,
            Step::Files => {
                self.users_files()?;
                let joining = match &self.config {
                    NodeConfig::Etcd(config) => etcd::initial_cluster(&self.host.root, config).await?,
                    NodeConfig::Controller(_) | NodeConfig::Worker(_) => String::new(),
                };
                self.host.write(&self.furniture(&joining)?).await
            }
            Step::Units => {
                // By name and by when its files were written: what is in them does not matter any more.
                self.host.start(&self.furniture("")?).await?;
                for failure in self.users_units().await {
                    self.progress(BootstrapState::Working, Some(step), Some(&failure));
                }
                Ok(())
            }
            Step::Again => self.come_again().await,
            Step::Healthy => self.healthy().await,
            Step::Hook => {
                // One that waits for nothing was settled before, or timed out: the node is healthy either way.
                self.aws.settle(&self.hook(), HookResult::Continue).await?;
                Ok(())
            }
        }
    }

    async fn account(&self) -> Outcome<()> {
        let accounts = Furniture {
            files: vec![File::public(etcd::SYSUSERS, etcd::SYSUSERS_TEXT)],
            ..Furniture::default()
        };
        for file in &accounts.files {
            files::write(&self.host.below(&file.path), file.mode, Owner::ROOT, file.content.as_bytes())?;
        }
        if self.etcd_user()?.is_none() {
            self.host.commands.must("systemd-sysusers", &[etcd::SYSUSERS]).await?;
        }
        self.etcd_owner().map(drop)
    }

    fn etcd_user(&self) -> Outcome<Option<accounts::User>> {
        accounts::user(&self.host.root, etcd::USER)
    }

    fn etcd_owner(&self) -> Outcome<Owner> {
        let user = self.etcd_user()?.ok_or_else(|| {
            Failure::passing(
                FailureCode::MachineAccount,
                format!("this machine has no user {}", etcd::USER),
                "systemd-sysusers makes it: see why it does not",
            )
        })?;
        Ok(user.owner)
    }

    /// Waits until the volume is attached here: the instance before this one may still hold it.
    async fn volume(&self) -> Outcome<()> {
        let id = self.volume_id().await?;
        if self.device(&id).is_some() {
            return Ok(());
        }
        Err(Failure::passing(
            FailureCode::VolumeDevice,
            format!("the volume {id} is attached, and its device is not there yet"),
            "the kernel shows it within seconds; see `lsblk`",
        ))
    }

    /// The volume's id, once it is attached here.
    async fn volume_id(&self) -> Outcome<String> {
        let settings = &self.etcd_config()?.data_volume;
        let tags: Vec<String> = settings.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut found = self.aws.volumes(&settings.tags).await?;
        found.retain(|volume| !["deleting", "deleted", "error"].contains(&volume.state.as_str()));
        let volume = match found.as_slice() {
            [volume] => volume,
            [] => {
                return Err(Failure::passing(
                    FailureCode::VolumeAbsent,
                    format!("there is no volume with the tags {}", tags.join(", ")),
                    "CloudFormation makes it with the cluster's etcd stack: see that it stands",
                ));
            }
            several => {
                let ids: Vec<&str> = several.iter().map(|volume| volume.id.as_str()).collect();
                // Until somebody has told them apart; whoever has makes this member go on.
                return Err(Failure::passing(
                    FailureCode::VolumeAmbiguous,
                    format!("several volumes have the tags {}: {}", tags.join(", "), ids.join(", ")),
                    "take the tag slipway:volume off those that are not this member's",
                ));
            }
        };
        let own = &self.instance.id;
        match &volume.attachment {
            Some((instance, state)) if instance == own && state == "attached" => Ok(volume.id.clone()),
            Some((instance, state)) => Err(Failure::passing(
                FailureCode::VolumeBusy,
                format!("the volume {} is {state} at {instance}", volume.id),
                "the instance that has it must end first; EC2 lets go of its volume then",
            )),
            None => {
                self.aws.attach(&volume.id, own, &settings.device).await?;
                Err(Failure::passing(
                    FailureCode::VolumeAttaching,
                    format!("the volume {} is about to be attached", volume.id),
                    "it takes EC2 some seconds",
                ))
            }
        }
    }

    fn device(&self, volume: &str) -> Option<String> {
        let device = &self.etcd_config().ok()?.data_volume.device;
        disk::device(&self.host.root, volume, device)
    }

    async fn file_system(&self) -> Outcome<()> {
        let settings = &self.etcd_config()?.data_volume;
        if settings.file_system != "ext4" {
            return Err(Failure::lasting(
                FailureCode::VolumeFileSystem,
                format!("etcd's data lie on ext4, and the configuration says {}", settings.file_system),
                "take the patch away that changes it",
            ));
        }
        let id = self.volume_id().await?;
        let device = self.device(&id).ok_or_else(|| {
            Failure::passing(FailureCode::VolumeDevice, format!("the device of {id} is gone"), "see `lsblk`")
        })?;
        let mount = etcd::mount(settings, &device);
        let name = mount.units.first().map(|unit| unit.name.clone()).unwrap_or_default();
        // A file system that is mounted is neither made nor checked.
        let active = self.host.commands.run("systemctl", &["is-active", "--quiet", &name]).await?;
        if active.status != Some(0) {
            self.host.format(&device, &format!("the volume {id}"), disk::Kind::Ext4, etcd::LABEL).await?;
            self.host.check(&device).await?;
        }
        self.host.write(&mount).await?;
        self.host.start(&mount).await?;
        // A volume that was enlarged in place.
        self.host.commands.must("resize2fs", &[&device]).await?;
        let owner = self.etcd_owner()?;
        let data = self.host.below(&Place::data_path(self.etcd_config()?));
        files::folder(&data, 0o700, owner)?;
        files::give_all(&data, owner)
    }

    async fn credentials(&self) -> Outcome<()> {
        let (folder, owner) = match &self.config {
            NodeConfig::Etcd(_) => (ETCD_DIR, self.etcd_owner()?),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => (KUBERNETES_DIR, Owner::ROOT),
        };
        let sealed = bytes(&self.host.root, "credentials.sealed")?;
        let (cluster, role) = (&self.node.cluster, &self.node.role);
        let keys = self.aws.keys(None);
        let plain = slipway_ports::sealed::open(&keys, &AwsLc, cluster, role, &sealed).await?;
        let bundle = Bundle::read(&plain)?;
        files::folder(&self.host.below(folder), 0o700, owner)?;
        credentials::write(&self.host.root, &self.node.credentials, &bundle)?.settle()
    }

    async fn record(&self) -> Outcome<()> {
        let zone = zone_of(&self.node)?;
        let name = &self.etcd_config()?.etcd.dns_name;
        Ok(self.aws.set_address(zone, name, &self.instance.local_ipv4).await?)
    }

    /// What the role wants on its machine.
    fn furniture(&self, joining: &str) -> Outcome<Furniture> {
        match &self.config {
            NodeConfig::Etcd(config) => etcd::furniture(&self.host.root, config, joining),
            NodeConfig::Controller(config) => {
                Ok(kube::restarted::kept(&self.host.root, kube::controller(config, &self.facts()?)))
            }
            NodeConfig::Worker(config) => Ok(kube::worker(config, &self.facts()?)),
        }
    }

    /// What Kubernetes must know of the machine.
    fn facts(&self) -> Outcome<Facts> {
        let Instance { id, availability_zone, local_ipv4 } = &self.instance;
        let address = local_ipv4.parse().map_err(|_| {
            Failure::passing(
                FailureCode::BootstrapAddress,
                format!("the metadata service calls {local_ipv4:?} this machine's address"),
                "report this: it is a defect",
            )
        })?;
        // The stub of systemd-resolved listens on the node's own loopback, which pods do not have.
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

    fn etcd_config(&self) -> Outcome<&slipway_core::node::EtcdConfig> {
        match &self.config {
            NodeConfig::Etcd(config) => Ok(config),
            NodeConfig::Controller(_) | NodeConfig::Worker(_) => Err(Failure::lasting(
                FailureCode::BootstrapStep,
                format!("{} has no volume and no record", self.node.role),
                "report this: it is a defect",
            )),
        }
    }
}
