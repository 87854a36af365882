//! Renders specs with the real flow and real cryptography, with buckets and keys in memory: no process, no port.
#![allow(clippy::missing_panics_doc, clippy::wildcard_enum_match_arm, reason = "a test's room may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};
use slipway_core::allowed::{Allowed, AllowedZone, Boundaries};
use slipway_core::cluster::Approval;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, Rendering};
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_credentials::policy::{self, Part};
use slipway_credentials::{Manifest, manifest};
use slipway_crypto::AwsLc;
use slipway_flows::error::FlowResult;
use slipway_flows::rendering::{RenderOutcome, UpgradeOrder};
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_ports::{Crypto as _, NewAsset, Signer};
use slipway_render::lock::Lock;
use slipway_rollout::{RollbackTarget, Rollout, Upload};
use slipway_sim::memory::MemoryParameters;
use slipway_sim::mortal::Life;
use slipway_sim::ports::{SharedWorld, SimulatedStacks, lock};
use slipway_sim::world::{Config, World};
use slipway_sim::year::{Account, Cause};

use crate::client::ACCOUNT;
use crate::tools;

/// A file of `examples/`.
#[derive(Debug)]
pub struct Example {
    /// `production`.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its patches by name; an example with patches is a folder.
    pub patches: BTreeMap<String, Vec<u8>>,
}

/// Every example, by name.
pub fn examples() -> Vec<Example> {
    let folder = fs::read_dir(tools::root().join("examples")).expect("the repository has examples");
    let mut examples: Vec<Example> = folder
        .map(|entry| entry.expect("the examples can be listed").path())
        .filter(|path| path.is_dir() || path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| {
            let spec = if path.is_dir() { path.join("cluster.yaml") } else { path.clone() };
            Example {
                name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                text: fs::read_to_string(spec).expect("an example can be read"),
                patches: patches(&path.join(slipway_core::keys::PATCHES)),
            }
        })
        // The files of an import are not in the repository; cli/tests/verbs/own_ca.rs makes them.
        .filter(|example: &Example| !example.text.contains("source: imported"))
        .collect();
    examples.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(examples.len() > 5, "the examples are gone");
    examples
}

fn patches(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    let paths = entries.map(|entry| entry.expect("the patches can be listed").path());
    paths
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            (name, fs::read(&path).expect("a patch can be read"))
        })
        .collect()
}

/// The example with that name.
pub fn example(name: &str) -> String {
    examples()
        .into_iter()
        .find(|example| example.name == name)
        .expect("there is an example of that name")
        .text
}

/// What an installation must allow, so that every example can be uploaded to it.
pub fn allowed() -> Allowed {
    let zone = |id: &str, domain: &str| AllowedZone { id: id.to_owned(), domain: domain.to_owned() };
    let boundary = |name: &str| format!("arn:aws:iam::{ACCOUNT}:policy/slipway-boundary/{name}");
    Allowed {
        program_buckets: vec!["programs".to_owned()],
        hosted_zones: vec![
            zone("Z0123456789ABCDEFGHIJ", "example.com"),
            zone("Z0123456789ABCDEFGHIJ", "example.internal"),
            zone("Z9876543210ABCDEFGHIJ", "example.com"),
            zone("Z9876543210ZYXWVUTSRQ", "corp.internal"),
            zone("ZBN159WIK8JJD", "example.com"),
        ],
        private_domains: vec!["internal".to_owned()],
        managed_policy_arns: vec![
            "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore".to_owned(),
            "arn:aws:iam::111122223333:policy/write-backups".to_owned(),
            "arn:aws:iam::111122223333:policy/change-records".to_owned(),
        ],
        cluster_key_arns: Some(vec![
            "arn:aws:kms:us-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f".to_owned(),
            // In the region of the embedded AWS.
            "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f".to_owned(),
            "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9".to_owned(),
        ]),
        instance_role_arns: Some(vec!["arn:aws:iam::111122223333:role/workers".to_owned()]),
        approval: Approval::Auto,
        boundaries: Boundaries {
            own: boundary("own"),
            with_managed_policies: Some(boundary("with-managed-policies")),
        },
    }
}

/// The state of a cluster whose stacks and add-ons are as after `plan`.
pub fn rolled_out(plan: &Plan) -> Rollout {
    let pointer = AddonsPointer {
        format: AddonsPointer::FORMAT,
        // The digest is for node managers, which do not exist here; planning uses the release.
        digest: String::new(),
        release: plan.to.clone(),
        generation: 1,
    };
    let deployed = plan.stacks.iter().map(|stack| (stack.name.clone(), plan.to.clone())).collect();
    Rollout { generation: 1, deployed, addons: Some(pointer), ..Rollout::new(&plan.cluster) }
}

/// The result of rendering a spec.
#[derive(Debug)]
pub struct Rendered {
    /// The plan.
    pub plan: Plan,
    /// The rendering.
    pub rendering: Rendering,
}

/// An account with one cluster and real cryptography. Its functions run when a test calls them.
#[derive(Debug)]
pub struct Workshop {
    account: Account<AwsLc>,
    /// The time of everything.
    pub now: Timestamp,
}

impl Deref for Workshop {
    type Target = Account<AwsLc>;

    fn deref(&self) -> &Self::Target {
        &self.account
    }
}

impl DerefMut for Workshop {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.account
    }
}

impl Workshop {
    /// Empty buckets for the cluster of `text`, and an image for every parameter that it names.
    pub fn for_spec(text: &str) -> Self {
        let cluster = slipway_spec::parse(text.as_bytes(), None).expect("the spec is valid").cluster;
        let mut account = Account::with_crypto(&cluster.name, &cluster.region, 1, AwsLc);
        account.parameters = MemoryParameters::default();
        let workshop = Self { account, now: "2026-11-20T12:00:00Z".parse().expect("a timestamp") };
        workshop.know_images(text);
        workshop
    }

    /// As [`Workshop::for_spec`], with the patches of the example.
    pub fn for_example(example: &Example) -> Self {
        let workshop = Self::for_spec(&example.text);
        for (name, bytes) in &example.patches {
            workshop.specs.upload(&format!("{}{name}", keys::patches(&workshop.name)), bytes.clone());
        }
        workshop
    }

    /// As [`Workshop::for_spec`], with `text` uploaded, rendered and rolled out.
    pub async fn launched(text: &str) -> Self {
        let workshop = Self::for_spec(text);
        workshop.assets.set_clock(workshop.now);
        workshop.deployed(&workshop.render(text).await.plan).await;
        drop(workshop.bus.drain());
        workshop
    }

    /// The machines of the cluster, as launched by the newest plan.
    pub async fn fleet(&self, seed: u64) -> SharedWorld {
        let config = Config { region: self.region(), seed, ..Config::default() };
        let cloud = Arc::new(Mutex::new(World::new(config)));
        let stacks = SimulatedStacks::new(Arc::clone(&cloud), self.assets.clone());
        let target = self.desired().expect("there is a plan").target;
        for stack in &self.release(&target).expect("it is stored").stacks {
            stacks.bring(stack).await;
        }
        let up = lock(&cloud).now() + SignedDuration::from_mins(30);
        lock(&cloud).advance(up);
        let machines = lock(&cloud).machines();
        assert!(machines.iter().all(|machine| machine.ready), "{machines:?}");
        cloud
    }

    /// A copy of the account with its present content.
    pub fn fork(&self) -> Self {
        Self { account: self.account.fork_with(1, AwsLc), now: self.now }
    }

    /// Sets an image for every parameter that `text` names.
    pub fn know_images(&self, text: &str) {
        let cluster = slipway_spec::parse(text.as_bytes(), None).expect("the spec is valid").cluster;
        for name in Lock::default().missing(&cluster).parameters {
            let digits = slipway_core::digest::sha256_hex(name.as_bytes());
            self.parameters.set(&name, &format!("ami-{}", &digits[..17]));
        }
    }

    /// Uploads `text`, which must change something, and returns the result.
    pub async fn render(&self, text: impl AsRef<[u8]>) -> Rendered {
        let plan = match self.outcome(text).await {
            RenderOutcome::Planned(plan) => *plan,
            other => panic!("no plan of {} but {other:?}", self.name),
        };
        let rendering = self.read(&keys::release(&self.name, &plan.to)).expect("a plan's release is stored");
        Rendered { rendering, plan }
    }

    /// Uploads `text` and returns the outcome.
    pub async fn outcome(&self, text: impl AsRef<[u8]>) -> RenderOutcome {
        self.try_upload(text, &Life::unending()).await.expect("nothing fails in memory")
    }

    /// Uploads `text` and renders it in a process with the given life.
    ///
    /// # Errors
    /// If the process dies, or a stored object is damaged.
    pub async fn try_upload(&self, text: impl AsRef<[u8]>, life: &Life) -> FlowResult<RenderOutcome> {
        let version = self.upload(text);
        self.rendered(Some(&version), life).await
    }

    /// Invokes the render function with the event of that version of the spec, or with `None` of a patch.
    ///
    /// # Errors
    /// As [`Workshop::try_upload`].
    pub async fn rendered(&self, version: Option<&str>, life: &Life) -> FlowResult<RenderOutcome> {
        let cause = version.map_or(Cause::Newest, Cause::Version);
        self.account.render(cause, life, self.now).await
    }

    /// Invokes the render function with an order to upgrade.
    ///
    /// # Errors
    /// As [`Workshop::try_upload`].
    pub async fn upgrade(&self, order: &UpgradeOrder, life: &Life) -> FlowResult<RenderOutcome> {
        self.account.render(Cause::Upgrade(order), life, self.now).await
    }

    /// The files of `role`'s bundle, opened as a node opens it.
    pub async fn bundle(&self, role: &Role) -> BTreeMap<String, String> {
        let digest = &self.manifest().bundles[role].digest;
        let key = keys::credentials(&self.name, &role.to_string(), digest);
        let sealed = self.assets.peek(&key).expect("it is stored");
        let plain =
            slipway_ports::sealed::open(&self.keys, &AwsLc, &self.name, &role.to_string(), &sealed).await;
        let plain = plain.expect("it opens under its own context");
        let value: serde_json::Value = serde_json::from_slice(plain.expose()).expect("a bundle is JSON");
        serde_json::from_value(value["files"].clone()).expect("a bundle has files")
    }

    /// The files of `role`'s bundle with every leaf certificate and its key issued again at `at` by the cluster's own authorities.
    pub async fn certified(&self, spec: &str, role: &Role, at: Timestamp) -> BTreeMap<String, String> {
        let cluster = slipway_spec::parse(spec.as_bytes(), None).expect("the spec is valid").cluster;
        let mut made: BTreeMap<String, NewAsset> = BTreeMap::new();
        for asset in policy::assets(&cluster) {
            let Some(profile) = manifest::profile(&asset) else { continue };
            if let Some(issuer) = &profile.issuer {
                let signer = self.authority(issuer).await;
                let issued = AwsLc.issue(profile, Some(&signer), at).expect("it can be issued");
                made.insert(asset.name, issued);
            }
        }
        let mut files = self.bundle(role).await;
        for file in policy::bundle(&cluster, role) {
            let [source] = file.sources.as_slice() else { continue };
            let Some(made) = made.get(&source.asset) else { continue };
            let text = match source.part {
                Part::Certificate => made.public.clone().expect("a certificate is public"),
                Part::PrivateKey => String::from_utf8(made.private.expose().to_vec()).expect("PEM is text"),
                other => panic!("{} has no {other}", source.asset),
            };
            files.insert(file.path, text);
        }
        files
    }

    /// An authority with its key from the vault, as issuing uses it.
    pub async fn authority(&self, asset: &str) -> Signer {
        let manifest = self.manifest();
        let fingerprint = &manifest.assets[asset].fingerprint;
        let public = self.assets.peek(&keys::public_half(&self.name, asset, fingerprint));
        let certificate = String::from_utf8(public.expect("it is stored")).expect("PEM is text");
        let sealed = self.assets.peek(&keys::private_half(&self.name, asset, fingerprint));
        let sealed = sealed.expect("it is stored");
        let of = (asset, fingerprint.as_str());
        let key = slipway_ports::sealed::open_private(&self.keys, &AwsLc, &self.name, of, &sealed).await;
        let key = key.expect("it opens under its own context");
        Signer { certificate, key }
    }

    /// The inventory of the credentials.
    pub fn manifest(&self) -> Manifest {
        self.read(&keys::manifest(&self.name)).expect("there are credentials")
    }

    /// The pointer to the newest plan.
    pub fn desired(&self) -> Option<Desired> {
        self.read(&keys::desired(&self.name))
    }

    /// The newest plan.
    pub fn desired_plan(&self) -> Plan {
        let desired = self.desired().expect("there is a plan");
        self.read(&keys::plan(&self.name, &desired.plan)).expect("it is stored")
    }

    /// The types of the events since the last call.
    pub fn take_event_types(&self) -> Vec<String> {
        self.bus.drain().iter().map(|event| event.to_wire().0).collect()
    }

    /// Makes `plan` count as rolled out.
    pub async fn deployed(&self, plan: &Plan) {
        self.assets.upload(&keys::rollout(&self.name), store::json(&rolled_out(plan)));
    }

    /// As [`Self::deployed`]; the spec that was uploaded last is the one that was rolled out, and a person has approved the plan if it asked for
    /// that.
    pub fn uses_newest_spec(&self, plan: &Plan) {
        self.uses_spec_of(plan, plan.needs_approval());
    }

    /// As [`Self::uses_newest_spec`]; `approved`: whether a person has approved the plan.
    pub fn uses_spec_of(&self, plan: &Plan, approved: bool) {
        let mut state = rolled_out(plan);
        let spec_version = self.desired().map(|desired| desired.spec_version).unwrap_or_default();
        let upload = Upload { spec_version: spec_version.clone(), plan: plan.id.clone() };
        state.uploads.insert(plan.to.clone(), upload);
        state.rollback_targets.push(RollbackTarget {
            generation: 1,
            spec_version,
            plan: plan.id.clone(),
            target: plan.to.clone(),
            approved,
            started_at: self.now,
            ended_at: self.now,
        });
        self.assets.upload(&keys::rollout(&self.name), store::json(&state));
    }
}
