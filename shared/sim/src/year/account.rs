//! A simulated account with Slipway in it: buckets, keys, a bus, the world with CloudFormation and Auto Scaling, and the real flows as its
//! functions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker as TaskWaker};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::json;
use slipway_core::allowed::Allowed;
use slipway_core::keys;
use slipway_core::node::BootstrapReport;
use slipway_core::release::{Rendering, Site};
use slipway_core::status::{Report, Status};
use slipway_credentials::renewal::RenewalRequest;
use slipway_flows::FlowResult;
use slipway_flows::rendering::{self, RenderPorts, UpgradeOrder, Upload, render_newest, render_upload};
use slipway_flows::rollout::{
    Clock, Interruption, RolloutPorts, Wake, Waker, wake, wake_by_command, wake_by_group,
    wake_by_interruption, wake_by_stack, wake_deciding,
};
use slipway_flows::scan::{self, ScanPorts, scan};
use slipway_ports::Crypto;
use slipway_rollout::Rollout;

use super::acts::{Journal, Watched};
use super::meddle::Meddler;
use crate::memory::{
    MemoryBucket, MemoryBus, MemoryKeys, MemoryParameters, MemoryRegistry, OWN_KEY, SeededCrypto,
};
use crate::mortal::Life;
use crate::ports::{SharedWorld, SimulatedCommands, SimulatedGroups, SimulatedStacks, SimulatedTicks, lock};
use crate::world::{Config, Service, World};

/// The image id of every image parameter in this account.
const IMAGE: &str = "ami-0123456789abcdef0";
/// The target of the tick.
pub const FUNCTION: &str = "arn:aws:lambda:eu-west-1:123456789012:function:slipway-rollout";

/// Why the render function is invoked.
#[derive(Debug, Clone, Copy)]
pub enum Cause<'a> {
    /// This version of the spec was uploaded.
    Version(&'a str),
    /// Something else changed than the spec.
    Newest,
    /// Somebody ordered an upgrade.
    Upgrade(&'a UpgradeOrder),
}

/// Which function is invoked, and by which event, as the rules of `infra/template.yaml` define it.
#[derive(Debug, Clone, PartialEq)]
pub enum Woken {
    /// The rollout function, for the cluster.
    Rollout(Waker),
    /// The rollout function, by CloudFormation's event about a stack.
    Stack(String),
    /// The rollout function, by Auto Scaling's event about a group.
    Group(String),
    /// The rollout function, by EC2's notice that it interrupts a machine.
    Interruption(Interruption),
    /// The rollout function, by Run Command's event about a command.
    Command(String),
    /// The render function, by S3's event about a version of the spec.
    Spec(String),
    /// The render function, because credentials were renewed.
    Credentials,
    /// The render function, by an order to upgrade.
    Pins(UpgradeOrder),
    /// The scan function, for every cluster.
    Scans,
    /// The scan function, for the cluster.
    Scan(RenewalRequest),
}

/// An account with one cluster. `C` makes its keys and certificates.
#[derive(Debug)]
pub struct Account<C = SeededCrypto> {
    /// `clusterName`.
    pub name: String,
    /// The spec bucket.
    pub specs: MemoryBucket,
    /// The asset bucket.
    pub assets: MemoryBucket,
    /// The issuer bucket.
    pub issuer: MemoryBucket,
    /// KMS.
    pub keys: MemoryKeys,
    /// The bus.
    pub bus: MemoryBus,
    /// CloudFormation, Auto Scaling, Run Command, Scheduler, and the machines.
    pub world: SharedWorld,
    /// The changes that the rollout function made to the world.
    pub journal: Journal,
    /// Parameter Store.
    pub parameters: MemoryParameters,
    /// The registries of images, and the download sites of programs.
    pub registry: MemoryRegistry,
    /// What the installation allows specs to use. `None`: nothing is checked.
    pub allowed: Option<Allowed>,
    crypto: C,
    /// The state of the rollouts as it was last read, by its version. It is cached because it is needed after every event.
    known: Mutex<Option<(String, Arc<Rollout>)>>,
    /// The releases that were read, by their key. The key follows from the content, so forks share this cache.
    releases: Arc<Mutex<BTreeMap<String, Arc<Rendering>>>>,
}

/// The digest of the node agent that an account's installation has published.
const AGENT: &str = "5a9e27b6c0f1d3846c7e90a1b2d4f8350617a9cbde42f37081e5b6c4d9a0f213";

/// Publishes the node agent with the digest `sha256` for both architectures, as `slipway publish-agent` does.
pub fn publish_agent(assets: &MemoryBucket, sha256: &str) {
    assets.upload(keys::AGENT_MANIFEST, json!({ "x86_64": sha256, "arm64": sha256 }).to_string());
}

impl Account {
    /// An account in `region` with an installation and no cluster. Everything follows from `seed`.
    #[must_use]
    pub fn new(name: &str, region: &str, seed: u64) -> Self {
        Self::with_crypto(name, region, seed, SeededCrypto::new(seed))
    }

    /// A copy of this account that develops independently. From here on everything random follows from `seed`.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        self.fork_with(seed, self.crypto.fork())
    }
}

impl<C: Crypto + Clone> Account<C> {
    /// As [`Account::new`], with cryptography of another kind.
    #[must_use]
    pub fn with_crypto(name: &str, region: &str, seed: u64, crypto: C) -> Self {
        let config = Config { region: region.to_owned(), seed, ..Config::default() };
        // Every parameter has the same image, whether a spec asks for AWS' own or the account's.
        let parameters = MemoryParameters::always(IMAGE);
        let assets = MemoryBucket::new("assets", region);
        publish_agent(&assets, AGENT);
        let journal = Journal::new(name, &assets);
        Self {
            name: name.to_owned(),
            specs: MemoryBucket::new("specs", region),
            assets,
            issuer: MemoryBucket::new("issuer", region),
            keys: MemoryKeys::new(seed),
            bus: MemoryBus::new(),
            world: Arc::new(Mutex::new(World::new(config))),
            journal,
            parameters,
            registry: MemoryRegistry::default(),
            allowed: None,
            crypto,
            known: Mutex::default(),
            releases: Arc::default(),
        }
    }

    /// As [`Account::fork`], with cryptography of the same kind.
    #[must_use]
    pub fn fork_with(&self, seed: u64, crypto: C) -> Self {
        let mut world = lock(&self.world).clone();
        world.reseed(seed);
        let assets = self.assets.fork();
        let journal = Journal::new(&self.name, &assets);
        Self {
            name: self.name.clone(),
            specs: self.specs.fork(),
            assets,
            issuer: self.issuer.fork(),
            keys: self.keys.fork(),
            bus: MemoryBus::new(),
            world: Arc::new(Mutex::new(world)),
            journal,
            parameters: self.parameters.fork(),
            registry: self.registry.clone(),
            allowed: self.allowed.clone(),
            crypto,
            known: Mutex::default(),
            releases: Arc::clone(&self.releases),
        }
    }

    /// A handle of the same account, for another invocation at the same time.
    #[must_use]
    pub(super) fn handle(&self) -> Self {
        Self {
            name: self.name.clone(),
            specs: self.specs.clone(),
            assets: self.assets.clone(),
            issuer: self.issuer.clone(),
            keys: self.keys.clone(),
            bus: self.bus.clone(),
            world: Arc::clone(&self.world),
            journal: self.journal.clone(),
            parameters: self.parameters.clone(),
            registry: self.registry.clone(),
            allowed: self.allowed.clone(),
            crypto: self.crypto.clone(),
            known: Mutex::default(),
            releases: Arc::clone(&self.releases),
        }
    }

    /// The time of the world.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        lock(&self.world).now()
    }

    /// The region of the account.
    #[must_use]
    pub fn region(&self) -> String {
        lock(&self.world).config().region.clone()
    }

    /// A person uploads a spec. Returns its version, which S3 reports to the render function.
    #[must_use]
    pub fn upload(&self, text: impl AsRef<[u8]>) -> String {
        self.specs.upload(&keys::spec(&self.name), text.as_ref())
    }

    /// S3, KMS, Parameter Store and the bus are down if the world says so. Their state does not change during one invocation.
    fn note_outages(&self) {
        let world = lock(&self.world);
        let is_down = |service: Service| world.down_until(service).is_some();
        for bucket in [&self.specs, &self.assets, &self.issuer] {
            bucket.faults().set_down(is_down(Service::Storage));
        }
        self.keys.faults().set_down(is_down(Service::Keys));
        self.parameters.faults().set_down(is_down(Service::Parameters));
        self.bus.faults().set_down(is_down(Service::Bus));
    }

    /// Invokes a function, which lives as long as `life` says. Returns its log message.
    ///
    /// # Errors
    /// Those of the flow.
    pub fn invoke(
        &self,
        who: &Woken,
        life: &Life,
        now: Timestamp,
        meddler: Option<&dyn Meddler>,
    ) -> FlowResult<String> {
        self.note_outages();
        match who {
            Woken::Rollout(_)
            | Woken::Stack(_)
            | Woken::Group(_)
            | Woken::Interruption(_)
            | Woken::Command(_) => {
                let report = block_on(self.roll(who, life, now, meddler))?;
                Ok(report.map_or_else(
                    || "no rollout of ours waits for that".to_owned(),
                    |report| format!("{}: {}", report.state, report.message),
                ))
            }
            Woken::Spec(version) => {
                Ok(block_on(self.render(Cause::Version(version), life, now))?.to_string())
            }
            Woken::Credentials => Ok(block_on(self.render(Cause::Newest, life, now))?.to_string()),
            Woken::Pins(order) => Ok(block_on(self.render(Cause::Upgrade(order), life, now))?.to_string()),
            Woken::Scans => {
                let (assets, bus) = (life.wrap(&self.assets), life.wrap(&self.bus));
                let count = block_on(scan::fan_out(&assets, &bus))?;
                Ok(format!("asked for {count} clusters"))
            }
            Woken::Scan(asked) => {
                self.take_scheduled_snapshot(now);
                Ok(block_on(self.scan(asked, life, now))?.to_string())
            }
        }
    }

    /// Invokes the render function.
    ///
    /// # Errors
    /// Those of the flow.
    pub async fn render(
        &self,
        cause: Cause<'_>,
        life: &Life,
        now: Timestamp,
    ) -> FlowResult<rendering::RenderOutcome> {
        let ports = RenderPorts {
            specs: &life.wrap(&self.specs),
            assets: &life.wrap(&self.assets),
            issuer: Some(&life.wrap(&self.issuer)),
            keys: &life.wrap(&self.keys),
            parameters: &life.wrap(&self.parameters),
            registry: &life.wrap(&self.registry),
            bus: &life.wrap(&self.bus),
            crypto: &self.crypto,
        };
        let site = Site {
            asset_bucket: self.assets.name().to_owned(),
            kms_key_arn: OWN_KEY.to_owned(),
            region: Some(self.region()),
            issuer_bucket: Some(self.issuer.name().to_owned()),
            allowed: self.allowed.clone(),
        };
        match cause {
            Cause::Version(version) => {
                let upload = Upload { cluster: self.name.clone(), version: version.to_owned() };
                render_upload(&ports, &site, &upload, now).await
            }
            Cause::Newest => render_newest(&ports, &site, &self.name, now).await,
            Cause::Upgrade(order) => rendering::upgrade(&ports, &site, &self.name, order, now).await,
        }
    }

    /// Invokes the scan function for the cluster.
    ///
    /// # Errors
    /// Those of the flow.
    pub async fn scan(
        &self,
        request: &RenewalRequest,
        life: &Life,
        now: Timestamp,
    ) -> FlowResult<scan::ScanOutcome> {
        let ports = ScanPorts {
            specs: &life.wrap(&self.specs),
            assets: &life.wrap(&self.assets),
            groups: &life.wrap(&SimulatedGroups::new(Arc::clone(&self.world))),
            keys: &life.wrap(&self.keys),
            bus: &life.wrap(&self.bus),
            crypto: &self.crypto,
        };
        scan(&ports, &self.name, request, now).await
    }

    /// What the timers of etcd's members have done until a scan looks, if there is a schedule. The timers themselves are not simulated.
    fn take_scheduled_snapshot(&self, now: Timestamp) {
        if self.assets.newest(&keys::snapshot_schedule(&self.name)).is_none() {
            return;
        }
        self.assets.set_clock(now);
        let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
        let key = keys::scheduled_snapshot(&self.name, &time);
        self.assets.upload(&key, "");
        self.assets.upload(&keys::snapshot_record(&key), "");
    }

    /// Invokes the rollout function.
    ///
    /// # Errors
    /// Those of the flow.
    pub async fn roll(
        &self,
        who: &Woken,
        life: &Life,
        now: Timestamp,
        meddler: Option<&dyn Meddler>,
    ) -> FlowResult<Option<Report>> {
        let stacks = SimulatedStacks::new(Arc::clone(&self.world), self.assets.clone());
        let groups = SimulatedGroups::new(Arc::clone(&self.world));
        let commands = SimulatedCommands::new(Arc::clone(&self.world));
        let ticks = SimulatedTicks::new(Arc::clone(&self.world), FUNCTION);
        let world = Arc::clone(&self.world);
        let clock = move || lock(&world).now();
        let ports = RolloutPorts {
            assets: &life.wrap(&self.assets),
            stacks: &life.wrap(&Watched::new(&stacks, &self.journal)),
            groups: &life.wrap(&Watched::new(&groups, &self.journal)),
            commands: &life.wrap(&Watched::new(&commands, &self.journal)),
            bus: &life.wrap(&Watched::new(&self.bus, &self.journal)),
            ticks: &life.wrap(&ticks),
            clock: Clock(&clock),
        };
        let cluster = || Wake { cluster: self.name.clone(), by: Waker::Event };
        if let Some(meddler) = meddler {
            let state = self.rollout();
            let by = match who {
                Woken::Rollout(by) => meddler.intercept_wake(by.clone(), state.as_deref()),
                // A deliberate mistake does not depend on who woke the function here.
                Woken::Stack(_) | Woken::Group(_) | Woken::Interruption(_) | Woken::Command(_) => {
                    Some(Waker::Event)
                }
                Woken::Spec(_) | Woken::Credentials | Woken::Pins(_) | Woken::Scans | Woken::Scan(_) => None,
            };
            let open = state.is_some_and(|rollout| rollout.is_open());
            let Some(by) = by.filter(|_| open || matches!(who, Woken::Rollout(_))) else { return Ok(None) };
            let decide = |rollout: &Rollout, observed: &_, now| meddler.decide(rollout, observed, now);
            return wake_deciding(&ports, &Wake { by, ..cluster() }, now, &decide).await.map(Some);
        }
        match who {
            Woken::Rollout(by) => wake(&ports, &Wake { by: by.clone(), ..cluster() }, now).await.map(Some),
            Woken::Stack(stack) => wake_by_stack(&ports, stack, now).await,
            Woken::Group(group) => wake_by_group(&ports, group, now).await,
            Woken::Interruption(notice) => wake_by_interruption(&ports, notice, now).await,
            Woken::Command(id) => wake_by_command(&ports, id, now).await,
            Woken::Spec(_) | Woken::Credentials | Woken::Pins(_) | Woken::Scans | Woken::Scan(_) => Ok(None),
        }
    }

    /// The state of the cluster's rollouts; `None` if there was none yet.
    #[must_use]
    pub fn rollout(&self) -> Option<Arc<Rollout>> {
        let key = keys::rollout(&self.name);
        let version = self.assets.version(&key)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, rollout)) = known.as_ref().filter(|(of, _)| *of == version) {
            return Some(Arc::clone(rollout));
        }
        let rollout: Arc<Rollout> = Arc::new(self.read(&key)?);
        *known = Some((version, Arc::clone(&rollout)));
        Some(rollout)
    }

    /// The version of the stored state of the rollouts: another version shows that somebody wrote it.
    #[must_use]
    pub(super) fn state_version(&self) -> Option<String> {
        self.assets.version(&keys::rollout(&self.name))
    }

    /// The content of `status.json`.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        self.read(&keys::status(&self.name))
    }

    /// The release with that id, for an observer; `None` if there is none.
    #[must_use]
    pub fn release(&self, id: &str) -> Option<Arc<Rendering>> {
        let key = keys::release(&self.name, id);
        let known = |all: &Mutex<BTreeMap<_, _>>| {
            all.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
        };
        if let Some(release) = known(&self.releases) {
            return Some(release);
        }
        let release: Arc<Rendering> = Arc::new(self.read(&key)?);
        self.releases.lock().unwrap_or_else(PoisonError::into_inner).insert(key, Arc::clone(&release));
        Some(release)
    }

    /// Writes the bootstrap reports of agents to the asset bucket.
    pub(super) fn keep_reports(&self, reports: Vec<(String, BootstrapReport)>) {
        let arns = lock(&self.world).machine_arns();
        for (cluster, report) in reports {
            let key = keys::bootstrap_report(&cluster, &report.role, &arns.arn_of(&report.instance));
            self.assets.upload(&key, serde_json::to_vec(&report).unwrap_or_default());
        }
    }

    /// A JSON object in the asset bucket; `None` if it is missing or has another type.
    #[must_use]
    pub fn read<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        serde_json::from_slice(&self.assets.newest(key)?.bytes).ok()
    }

    /// When the certificate of that key in the assets' bucket expires.
    pub fn not_after(&self, key: &str) -> Option<Timestamp> {
        let object = self.assets.newest(key)?;
        Some(self.crypto.facts(std::str::from_utf8(&object.bytes).ok()?).ok()?.0.not_after)
    }
}

/// Runs a flow. All ports answer at once, so there is nothing to wait for.
pub(super) fn block_on<T>(flow: impl Future<Output = T>) -> T {
    let mut flow = std::pin::pin!(flow);
    let mut context = Context::from_waker(TaskWaker::noop());
    loop {
        // A pending flow has yielded to other processes, and is ready when it is polled again.
        if let Poll::Ready(result) = flow.as_mut().poll(&mut context) {
            return result;
        }
    }
}
