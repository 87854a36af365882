//! All of it: the embedded AWS with Slipway in it, and machines around it. Start reading here.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use axum::http::Method;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::conductor::{self, Workshop};
use super::depot::Depot;
use super::front::{self, Front};
use super::names::MIRROR;
use super::qemu::Accelerator;
use super::state::{State, domain};
use super::{balancer, control, dhcp, metadata, names, network};
use crate::deploy::translate;
use crate::installation::Installation;
use crate::tools;
use crate::world::{Settings, WorldError};

/// Of what CloudFormation takes in AWS: what it makes is not real, and nobody is to wait for it.
const PACE: f64 = 0.05;

/// Where things are that a room is made of, made by scripts of `tests/cluster/`.
#[derive(Debug, Clone)]
pub struct Stores {
    /// `image.sh`.
    pub image: PathBuf,
    /// `software.sh`.
    pub depot: PathBuf,
    /// `authority.sh`.
    pub authority: PathBuf,
    /// The release of Kubernetes that was built.
    pub kubernetes: String,
}

impl Stores {
    /// What `tests/cluster/run.sh` says; `None`: it was not it that started this.
    #[must_use]
    pub fn from_environment() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Some(Self {
            image: variable("SLIPWAY_IMAGE")?.into(),
            depot: variable("SLIPWAY_DEPOT")?.into(),
            authority: variable("SLIPWAY_AUTHORITY")?.into(),
            kubernetes: variable("SLIPWAY_KUBERNETES")?,
        })
    }
}

/// Why there is no room.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// The embedded AWS does not stand.
    #[error("the embedded AWS does not stand")]
    World(#[from] WorldError),
    /// Something of this machine fails.
    #[error("this machine refuses something")]
    Io(#[from] io::Error),
    /// Something was not built.
    #[error(transparent)]
    Absent(#[from] tools::Absent),
}

/// The embedded AWS, in which an EC2 instance is a virtual machine. All of it ends when dropped.
#[derive(Debug)]
pub struct Room {
    // Machines go before what they are in.
    tasks: Vec<JoinHandle<()>>,
    workshop: Arc<Workshop>,
    front: Arc<Front>,
    slipway: Arc<Installation>,
    kubectl: PathBuf,
    folder: tempfile::TempDir,
}

impl Room {
    /// Lays the network, installs Slipway with the agent that was built, and follows what groups launch.
    ///
    /// # Errors
    /// If there is no namespace of our own, or something does not start.
    pub async fn start(stores: &Stores) -> Result<Self, RoomError> {
        let folder = tempfile::tempdir()?;
        network::lay().await?;
        let depot = Depot::new(stores.depot.clone());
        let (mirror, mirroring) = depot.serve().await?;
        let settings = Settings {
            speed: 1.0,
            pace: PACE,
            time_scale: 1.0,
            real_machines: true,
            mirror: Some(mirror),
            ..Settings::default()
        };
        let slipway = Arc::new(Installation::start(&settings).await?);
        publish_agent(&slipway).await?;
        let volumes = folder.path().join("volumes");
        std::fs::create_dir_all(&volumes)?;
        let world = slipway.world();
        let state = State::new(world.cloud().world(), world.region(), volumes);
        let front = Arc::new(Front {
            state: Arc::clone(&state),
            gateway: world.gateway().url().to_owned(),
            moto: world.client().endpoint().to_owned(),
            depot,
            http: slipway_sim::wire::client(),
            seen: std::sync::Mutex::default(),
        });
        let (certificate, key) = certificate(&stores.authority, folder.path(), world.region()).await?;
        let workshop = Arc::new(Workshop {
            state: Arc::clone(&state),
            slipway: Arc::clone(&slipway),
            accelerator: Accelerator::probe(&stores.image).await,
            image: stores.image.clone(),
            folder: folder.path().join("machines"),
            documents: documents().await?,
            story: std::sync::Mutex::default(),
        });
        let tasks = vec![
            mirroring,
            dhcp::serve(domain(world.region())).await?,
            names::serve(Arc::clone(&state)).await?,
            metadata::serve(Arc::clone(&state)).await?,
            front::serve(Arc::clone(&front), &certificate, &key).await?,
            control::serve(Arc::clone(&state), &folder.path().join("control"))?,
            balancer::serve(state),
            conductor::follow(Arc::clone(&workshop)),
        ];
        Ok(Self { tasks, workshop, front, slipway, kubectl: stores.depot.join("kubectl"), folder })
    }

    /// Slipway, and the AWS that it is in.
    #[must_use]
    pub fn slipway(&self) -> &Installation {
        &self.slipway
    }

    /// The machines.
    #[must_use]
    pub fn workshop(&self) -> &Workshop {
        &self.workshop
    }

    /// What machines called.
    #[must_use]
    pub fn front(&self) -> &Front {
        &self.front
    }

    /// Slipway's own command, in this installation, as its operator.
    ///
    /// # Errors
    /// If it was not built.
    pub fn command(&self) -> Result<Command, RoomError> {
        let world = self.slipway.world();
        let mut command = Command::new(tools::binary("slipway")?);
        command
            .env("AWS_ENDPOINT_URL", world.gateway().url())
            .env("AWS_REGION", world.region())
            .env("AWS_ACCESS_KEY_ID", "operator")
            .env("AWS_SECRET_ACCESS_KEY", "operator");
        for (variable, id) in [
            ("SLIPWAY_SPEC_BUCKET", "SpecBucket"),
            ("SLIPWAY_ASSET_BUCKET", "AssetBucket"),
            ("SLIPWAY_BUS_NAME", "Bus"),
        ] {
            command.env(variable, world.reference(id)?);
        }
        Ok(command)
    }

    /// The kubectl of the Kubernetes that was built.
    #[must_use]
    pub fn kubectl(&self) -> &Path {
        &self.kubectl
    }

    /// Where consoles and volumes lie.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The spec of an example, with the keys that an air-gapped user sets: everything comes from the mirror. What cannot be had here is turned
/// off, and said in `turned_off`.
#[must_use]
pub fn adapted(example: &str, kubernetes: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut addons = false;
    let own = "  imageRepository: mirror.slipway.test\n  ebsCsiDriver: {enabled: false}\n  cloudControllerManager: {version: v1.36.2}\n  network: {version: v0.28.10}";
    for line in example.lines() {
        if line.starts_with("kubernetesVersion:") {
            lines.push(format!("kubernetesVersion: \"{kubernetes}\""));
            continue;
        }
        lines.push(line.to_owned());
        if line.trim_end() == "addons:" {
            addons = true;
            lines.push(own.to_owned());
        }
    }
    if !addons {
        lines.push(format!("addons:\n{own}"));
    }
    lines.push(format!("software:\n  baseURL: https://{MIRROR}\n  imageRepository: {MIRROR}"));
    if !example.contains("\nrollout:") {
        lines.push("rollout:\n  approval: auto".to_owned());
    }
    lines.join("\n") + "\n"
}

/// What each document has a shell do, by the template of the installation.
async fn documents() -> Result<BTreeMap<String, String>, RoomError> {
    let template = translate(&tools::root().join("infra/template.yaml")).await.map_err(WorldError::from)?;
    let resources = template["Resources"].as_object().into_iter().flat_map(|map| map.values());
    let documents = resources.filter(|resource| resource["Type"] == "AWS::SSM::Document");
    let line = |resource: &Value| {
        let properties = &resource["Properties"];
        let command = properties.pointer("/Content/mainSteps/0/inputs/runCommand/0")?.as_str()?;
        Some((properties["Name"].as_str()?.to_owned(), command.to_owned()))
    };
    Ok(documents.filter_map(line).collect())
}

/// Puts the agent where nodes fetch it, as `infra/package.sh` and its user do. Without KVM, one that is not optimised hashes and unpacks for minutes.
async fn publish_agent(slipway: &Installation) -> Result<(), RoomError> {
    let bytes = std::fs::read(tools::shipped_agent()?)?;
    let digest = sha256_hex(&bytes);
    let world = slipway.world();
    let bucket = world.reference("AssetBucket")?;
    let published = json!({ "x86_64": digest, "arm64": digest }).to_string();
    for (key, bytes) in [
        (format!("agent/{digest}/slipway-node"), bytes),
        (slipway_core::keys::AGENT_MANIFEST.to_owned(), published.into_bytes()),
    ] {
        let put = world.client().s3(Method::PUT, &format!("{bucket}/{key}"), "", bytes).await;
        put.map_err(WorldError::from)?;
    }
    Ok(())
}

/// A certificate for all names under which machines reach something, for two days.
async fn certificate(authority: &Path, folder: &Path, region: &str) -> io::Result<(PathBuf, PathBuf)> {
    let names = format!(
        "subjectAltName=DNS:*.{region}.amazonaws.com,DNS:*.s3.{region}.amazonaws.com,DNS:route53.amazonaws.com,DNS:sts.amazonaws.com,DNS:{MIRROR}"
    );
    let (key, certificate) = (folder.join("front-key.pem"), folder.join("front.pem"));
    let mut command = Command::new("openssl");
    command
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-CA",
        ])
        .arg(authority.join("authority.pem"))
        .arg("-CAkey")
        .arg(authority.join("authority-key.pem"))
        .args([
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-subj",
            "/CN=AWS of the tests",
            "-addext",
            &names,
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&certificate);
    run(&mut command).await?;
    Ok((certificate, key))
}

async fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output().await?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))))
}
