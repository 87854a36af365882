//! The upload, and what must come of it: for `make cluster`, and for the test.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use slipway_core::diagnostic::Diagnostic;
use slipway_core::keys;
use slipway_core::node::{BootstrapReport, BootstrapState, MachineArns};
use tokio::time::Instant;

use super::kubectl::Kubectl;
use super::room::{Room, Stores, adapted};
use crate::client::ACCOUNT;
use crate::narrator::{Ink, Narrator};
use crate::observe::Observed;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// How long a launch, or the end of a cluster, may take.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How often it looks what there is to tell.
const LOOK: Duration = Duration::from_secs(1);
const ENDS: [&str; 4] = ["Rollout Succeeded", "Rollout Failed", "Rollout Aborted", "Spec Rejected"];

/// A launch on virtual machines.
#[derive(Debug)]
pub struct Launch {
    room: Room,
    narrator: Narrator,
    cluster: String,
    /// The names of the API's endpoints.
    api_names: Vec<String>,
    spec: String,
    /// Role and instance of each machine that was told of, and what its report said last.
    reported: BTreeMap<(String, String), String>,
    kubectl: Option<Kubectl>,
}

impl Launch {
    /// Starts the embedded AWS, and reads the example.
    ///
    /// # Errors
    /// If the embedded AWS does not stand, or the example is refused.
    pub async fn set_up(stores: &Stores, example: &Path) -> Fallible<Self> {
        let narrator = Narrator::new(Instant::now());
        let example = std::fs::read_to_string(example)?;
        let spec = adapted(&example, &stores.kubernetes);
        let read = slipway_spec::parse(spec.as_bytes(), None).map_err(|findings| said(&findings))?;
        let cluster = read.cluster.name;
        let api_names: Vec<String> =
            read.cluster.api_endpoints.into_iter().map(|endpoint| endpoint.dns_name).collect();
        narrator.say(
            &narrator.ink(Ink::Title, "A cluster on virtual machines, in an AWS embedded on this machine."),
        );
        let room = Room::start(stores).await?;
        room.workshop().state.set_api_names(api_names.clone());
        let on = room.workshop().accelerator.name();
        narrator.line(
            "machines",
            Ink::Plain,
            &format!("QEMU by {on}; consoles in {}", room.folder().join("machines").display()),
        );
        Ok(Self { room, narrator, cluster, api_names, spec, reported: BTreeMap::new(), kubectl: None })
    }

    /// All that was started.
    #[must_use]
    pub fn room(&self) -> &Room {
        &self.room
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Prints a heading.
    pub fn title(&mut self, text: &str) {
        self.narrator.title(text);
    }

    /// Prints a line with its time.
    pub fn line(&self, who: &str, text: &str) {
        self.narrator.line(who, Ink::Plain, text);
    }

    /// Uploads the spec and prints what happens until the launch has ended: whether it succeeded.
    ///
    /// # Errors
    /// If the embedded AWS fails.
    pub async fn launch(&mut self) -> Fallible<bool> {
        self.narrator.title(&format!("Upload of clusters/{}/cluster.yaml", self.cluster));
        self.room.slipway().upload(&self.cluster, self.spec.clone()).await?;
        let end = self.ends_with(&ENDS).await?;
        Ok(end == ENDS[0])
    }

    /// Prints what happens until one of these events is published: which, or that none came in time.
    ///
    /// # Errors
    /// If the embedded AWS fails.
    pub async fn ends_with(&mut self, kinds: &[&str]) -> Fallible<String> {
        let begun = Instant::now();
        let deadline = begun + PATIENCE;
        let end = loop {
            let observer = self.room.slipway().world().observer();
            let found = self.narrator.follow(observer, LOOK, |seen| {
                let Observed::Event { bus, event } = &seen.what else { return None };
                let kind = event["detail-type"].as_str()?;
                (bus == "slipway" && kinds.contains(&kind)).then(|| kind.to_owned())
            });
            if let Some(end) = found.await {
                break end;
            }
            self.print_machines().await?;
            if Instant::now() > deadline {
                break "no end within an hour".to_owned();
            }
        };
        self.print_machines().await?;
        let ink = if kinds.first() == Some(&end.as_str()) { Ink::Good } else { Ink::Bad };
        self.narrator.line(
            &self.cluster,
            ink,
            &format!("{end} after {:.0} s", begun.elapsed().as_secs_f64()),
        );
        Ok(end)
    }

    /// What became of machines, and what they report of their bootstrap.
    async fn print_machines(&mut self) -> Fallible<()> {
        for (id, line) in self.room.workshop().story() {
            self.narrator.line(&id, Ink::Plain, &line);
        }
        for guest in self.room.workshop().state.guests() {
            let world = self.room.slipway().world();
            let arn = MachineArns::new(world.region(), ACCOUNT).arn_of(&guest.id);
            let key = keys::bootstrap_report(&self.cluster, &guest.role, &arn);
            let bytes = world.client().object(world.reference("AssetBucket")?, &key).await?;
            let Some(report) = bytes.and_then(|bytes| serde_json::from_slice::<BootstrapReport>(&bytes).ok())
            else {
                continue;
            };
            let failure =
                report.failure.as_ref().map(|failure| format!(": {}", failure.message)).unwrap_or_default();
            let step = report.step.as_deref().map(|step| format!(" at {step}")).unwrap_or_default();
            let line = format!("{} is {:?}{step}{failure}", guest.role, report.state);
            let place = (guest.role.clone(), guest.id.clone());
            if self.reported.insert(place, line.clone()).as_ref() != Some(&line) {
                let ink = if report.state == BootstrapState::Healthy { Ink::Good } else { Ink::Plain };
                self.narrator.line(&guest.id, ink, &line);
            }
        }
        Ok(())
    }

    /// Writes the administrator's kubeconfig, and asks Kubernetes who is there: whether every node is Ready.
    ///
    /// # Errors
    /// If the API does not answer.
    pub async fn show(&mut self) -> Fallible<bool> {
        self.narrator.title("Kubernetes");
        let kubectl = Kubectl::new(&self.room, &self.cluster, &self.api_names).await?;
        let nodes = kubectl.run(&["get", "nodes", "-o", "wide"]).await?;
        self.narrator.say(&nodes);
        self.narrator.say(&kubectl.run(&["get", "pods", "--all-namespaces"]).await?);
        let good =
            nodes.lines().skip(1).count() > 0 && nodes.lines().skip(1).all(|line| line.contains(" Ready"));
        self.kubectl = Some(kubectl);
        Ok(good)
    }

    /// kubectl, once the cluster was shown.
    #[must_use]
    pub fn kubectl(&self) -> Option<&Kubectl> {
        self.kubectl.as_ref()
    }

    /// Says how to look around.
    pub fn leave_running(&mut self) {
        self.narrator
            .title("The cluster runs on until you interrupt this (ctrl-c). In another terminal, as root:");
        if let Some(kubectl) = &self.kubectl {
            self.narrator.say(&format!("  {} get nodes", kubectl.script().display()));
        }
        let control = self.room.folder().join("control");
        self.narrator
            .say(&format!("  tests/cluster/on.sh {} etcd-0 journalctl --lines=20", control.display()));
    }
}

/// The findings of a spec that is refused, a line each.
fn said(findings: &[Diagnostic]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    format!("the spec is refused:\n{}", lines.join("\n"))
}
