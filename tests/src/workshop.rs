//! Specs rendered by the real flow and real cryptography, over buckets and keys in memory: no process, no port.
#![allow(clippy::missing_panics_doc, clippy::wildcard_enum_match_arm, reason = "a test's room may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use jiff::Timestamp;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, Rendering, Site};
use slipway_core::role::Role;
use slipway_credentials::policy::{self, Part};
use slipway_credentials::{Manifest, manifest};
use slipway_crypto::AwsLc;
use slipway_flows::error::FlowResult;
use slipway_flows::rendering::{Outcome, RenderPorts, Upload, render_upload};
use slipway_flows::store;
use slipway_plan::Plan;
use slipway_ports::{Condition, Crypto as _, Made, Objects as _, Signer};
use slipway_render::lock::Lock;
use slipway_rollout::Rollout;
use slipway_sim::memory::{MemoryBucket, MemoryBus, MemoryKeys, MemoryParameters, MemoryRegistry, OWN_KEY};
use slipway_sim::mortal::Life;

use crate::tools;

/// A file of `examples/`.
#[derive(Debug)]
pub struct Example {
    /// `production`.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its patches, by name: an example with some is a folder.
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
        // What somebody brings lies in nobody's repository: cli/tests/verbs/own_ca.rs makes it.
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

/// The example of that name.
pub fn example(name: &str) -> String {
    examples()
        .into_iter()
        .find(|example| example.name == name)
        .expect("there is an example of that name")
        .text
}

/// The state of a cluster whose stacks and add-ons are at what `plan` leads to.
pub fn rolled_out(plan: &Plan) -> Rollout {
    let pointer = AddonsPointer {
        format: AddonsPointer::FORMAT,
        // For node managers, of whom there are none here: whoever plans goes by the release.
        digest: String::new(),
        release: plan.to.clone(),
        generation: 1,
    };
    let deployed = plan.stacks.iter().map(|stack| (stack.name.clone(), plan.to.clone())).collect();
    Rollout { generation: 1, deployed, addons: Some(pointer), ..Rollout::new(&plan.cluster) }
}

/// What a spec turned into.
#[derive(Debug)]
pub struct Rendered {
    /// The plan that leads there.
    pub plan: Plan,
    /// What it leads to.
    pub rendering: Rendering,
}

/// One cluster's buckets, and the region that it lies in.
#[derive(Debug)]
pub struct Workshop {
    /// `clusterName`.
    pub cluster: String,
    /// `region`.
    pub region: String,
    /// The asset bucket.
    pub assets: MemoryBucket,
    /// The issuer bucket.
    pub issuer: MemoryBucket,
    /// When everything happens.
    pub now: Timestamp,
    /// KMS.
    pub keys: MemoryKeys,
    specs: MemoryBucket,
    parameters: MemoryParameters,
    bus: MemoryBus,
}

impl Workshop {
    /// Empty buckets for the cluster of `text`, and an image under every parameter that it names.
    pub fn of(text: &str) -> Self {
        let cluster = slipway_spec::parse(text.as_bytes(), None).expect("the spec is valid").cluster;
        let bucket = |name| MemoryBucket::new(name, &cluster.region);
        let workshop = Self {
            assets: bucket("assets"),
            issuer: bucket("issuer"),
            specs: bucket("specs"),
            keys: MemoryKeys::new(1),
            parameters: MemoryParameters::new([]),
            bus: MemoryBus::new(),
            now: "2026-11-20T12:00:00Z".parse().expect("a timestamp"),
            region: cluster.region,
            cluster: cluster.name,
        };
        workshop.know_images(text);
        workshop
    }

    /// As [`Workshop::of`], with the example's patches.
    pub fn of_example(example: &Example) -> Self {
        let workshop = Self::of(&example.text);
        for (name, bytes) in &example.patches {
            workshop.specs.upload(&format!("{}{name}", keys::patches(&workshop.cluster)), bytes.clone());
        }
        workshop
    }

    /// An image under every parameter that `text` names.
    pub fn know_images(&self, text: &str) {
        let cluster = slipway_spec::parse(text.as_bytes(), None).expect("the spec is valid").cluster;
        for name in Lock::default().missing(&cluster).parameters {
            let digits = slipway_core::digest::sha256_hex(name.as_bytes());
            self.parameters.set(&name, &format!("ami-{}", &digits[..17]));
        }
    }

    /// Uploads `text`, which changes something, and takes what comes of it.
    pub async fn render(&self, text: &str) -> Rendered {
        let plan = match self.upload(text).await {
            Outcome::Planned(plan) => *plan,
            other => panic!("no plan of {} but {other:?}", self.cluster),
        };
        let release =
            self.assets.peek(&keys::release(&self.cluster, &plan.to)).expect("a plan's release is stored");
        Rendered { rendering: serde_json::from_slice(&release).expect("a release reads back"), plan }
    }

    /// Uploads `text`.
    pub async fn upload(&self, text: &str) -> Outcome {
        self.try_upload(text, &Life::unending()).await.expect("nothing fails in memory")
    }

    /// Uploads `text`, to be rendered by a process that lives so long.
    ///
    /// # Errors
    /// If it dies, or what is stored is damaged.
    pub async fn try_upload(&self, text: &str, life: &Life) -> FlowResult<Outcome> {
        let version = self.specs.upload(&keys::spec(&self.cluster), text);
        let ports = RenderPorts {
            specs: &life.of(&self.specs),
            assets: &life.of(&self.assets),
            issuer: Some(&life.of(&self.issuer)),
            keys: &life.of(&self.keys),
            parameters: &life.of(&self.parameters),
            registry: &life.of(&MemoryRegistry::default()),
            bus: &life.of(&self.bus),
            crypto: &AwsLc,
        };
        let site = Site {
            asset_bucket: "assets".to_owned(),
            kms_key_arn: OWN_KEY.to_owned(),
            region: None,
            issuer_bucket: Some("issuer".to_owned()),
        };
        let upload = Upload { cluster: self.cluster.clone(), version };
        render_upload(&ports, &site, &upload, self.now).await
    }

    /// The files of `role`'s bundle, opened as a node opens it.
    pub async fn bundle(&self, role: &Role) -> BTreeMap<String, String> {
        let digest = &self.manifest().bundles[role].digest;
        let key = keys::credentials(&self.cluster, &role.to_string(), digest);
        let sealed = self.assets.peek(&key).expect("it is stored");
        let plain =
            slipway_ports::sealed::open(&self.keys, &AwsLc, &self.cluster, &role.to_string(), &sealed).await;
        let plain = plain.expect("it opens under its own context");
        let value: serde_json::Value = serde_json::from_slice(plain.expose()).expect("a bundle is JSON");
        serde_json::from_value(value["files"].clone()).expect("a bundle has files")
    }

    /// The files of `role`'s bundle with every leaf certificate and its key anew, issued at `at` by the cluster's own authorities.
    pub async fn certified(&self, spec: &str, role: &Role, at: Timestamp) -> BTreeMap<String, String> {
        let cluster = slipway_spec::parse(spec.as_bytes(), None).expect("the spec is valid").cluster;
        let mut made: BTreeMap<String, Made> = BTreeMap::new();
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

    /// An authority with its key, out of the vault: what issuing anew would sign with.
    pub async fn authority(&self, asset: &str) -> Signer {
        let manifest = self.manifest();
        let fingerprint = &manifest.assets[asset].fingerprint;
        let public = self.assets.peek(&keys::public_half(&self.cluster, asset, fingerprint));
        let certificate = String::from_utf8(public.expect("it is stored")).expect("PEM is text");
        let sealed = self.assets.peek(&keys::private_half(&self.cluster, asset, fingerprint));
        let sealed = sealed.expect("it is stored");
        let of = (asset, fingerprint.as_str());
        let key = slipway_ports::sealed::open_private(&self.keys, &AwsLc, &self.cluster, of, &sealed).await;
        let key = key.expect("it opens under its own context");
        Signer { certificate, key }
    }

    /// The inventory of the credentials.
    pub fn manifest(&self) -> Manifest {
        let manifest = self.assets.peek(&keys::manifest(&self.cluster)).expect("there are credentials");
        serde_json::from_slice(&manifest).expect("an inventory reads back")
    }

    /// As if `plan` had been rolled out.
    pub async fn deployed(&self, plan: &Plan) {
        let rollout = store::json(&rolled_out(plan));
        self.assets
            .put(&keys::rollout(&self.cluster), rollout, Condition::Always)
            .await
            .expect("nothing fails in memory");
    }
}
