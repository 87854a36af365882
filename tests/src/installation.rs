//! Slipway as `infra/template.yaml` installs it, and its users' actions: uploading a spec and reading the results.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use slipway_core::keys;

use crate::client::Version;
use crate::deploy::translate;
use crate::observe::{Observed, PATIENCE};
use crate::tools;
use crate::world::{Embedded, Settings, WorldError};

/// If nothing has happened for this long, nothing more will.
const QUIET: Duration = Duration::from_millis(400);

/// An embedded AWS with Slipway in it.
#[derive(Debug)]
pub struct Installation {
    world: Embedded,
}

/// Everything that must not change by itself: object versions in the asset bucket, by key.
pub type Assets = BTreeMap<String, Vec<String>>;

impl Installation {
    /// Installs Slipway from its template.
    ///
    /// # Errors
    /// If the embedded AWS does not start, or the template cannot be deployed.
    pub async fn start(settings: &Settings) -> Result<Self, WorldError> {
        let installation = Self::without_agent(settings).await?;
        let digest = "5a9e27b6c0f1d3846c7e90a1b2d4f8350617a9cbde42f37081e5b6c4d9a0f213";
        installation.publish_agent(digest).await?;
        Ok(installation)
    }

    /// As [`Installation::start`], before anybody has published a node agent.
    ///
    /// # Errors
    /// If something does not start.
    pub async fn without_agent(settings: &Settings) -> Result<Self, WorldError> {
        let world = Embedded::start(&tools::root().join("infra/template.yaml"), settings).await?;
        Ok(Self { world })
    }

    /// Names `digest` as the published node agent of both architectures, as `slipway publish-agent` does. The program itself is not there.
    ///
    /// # Errors
    /// If S3 refuses.
    pub async fn publish_agent(&self, digest: &str) -> Result<(), WorldError> {
        let manifest = json!({ "x86_64": digest, "arm64": digest }).to_string();
        self.world.upload("AssetBucket", keys::AGENT_MANIFEST, manifest.into_bytes()).await?;
        Ok(())
    }

    /// The embedded AWS.
    #[must_use]
    pub fn world(&self) -> &Embedded {
        &self.world
    }

    /// Uploads a cluster's spec. Returns the version id.
    ///
    /// # Errors
    /// If S3 refuses.
    pub async fn upload(&self, cluster: &str, spec: impl Into<Vec<u8>>) -> Result<String, WorldError> {
        self.world.upload("SpecBucket", &format!("clusters/{cluster}/cluster.yaml"), spec.into()).await
    }

    /// Moves the functions' clock ahead. AWS' own times do not change.
    pub fn set_clock_ahead(&self, ahead: SignedDuration) {
        if self.world.lambda().set_clock_ahead(ahead) {
            return;
        }
        for id in ["RenderFunction", "RolloutFunction", "ScanFunction"] {
            let Ok(name) = self.world.reference(id) else { continue };
            self.world.lambda().configure(name, |function| {
                let (variable, seconds) = ("SLIPWAY_CLOCK_AHEAD_S".to_owned(), ahead.as_secs().to_string());
                function.launch.environment.insert(variable, seconds);
            });
        }
    }

    /// Does what the daily schedule does: invokes its target with its input, as the template defines them.
    ///
    /// # Errors
    /// If the template has no such schedule, or the schedule has no function.
    pub async fn daily_scan(&self) -> Result<String, WorldError> {
        let template = translate(&tools::root().join("infra/template.yaml")).await?;
        let target = &template["Resources"]["DailyScan"]["Properties"]["Target"];
        let function = target.pointer("/Arn/Fn::GetAtt/0").and_then(Value::as_str).unwrap_or_default();
        let input = target["Input"].as_str().and_then(|input| serde_json::from_str(input).ok());
        let input: Value =
            input.ok_or_else(|| WorldError::NoSuch("schedule DailyScan with an input".to_owned()))?;
        self.world.invoke(function, &input)
    }

    /// Waits for the first event with one of these detail-types on Slipway's bus since `mark`. Returns its type and detail.
    pub async fn event(&self, mark: usize, kinds: &[&str], patience: Duration) -> Option<(String, Value)> {
        let found = self.world.observer().wait(mark, patience, |seen| {
            let Observed::Event { bus, event } = &seen.what else { return None };
            let kind = event["detail-type"].as_str()?;
            (bus == "slipway" && kinds.contains(&kind)).then(|| (kind.to_owned(), event["detail"].clone()))
        });
        found.await
    }

    /// Waits for the end of the rollout that began after `mark`, and until nothing happens after it. Returns the detail of its success
    /// event.
    ///
    /// # Errors
    /// How it ended otherwise, in words; or all events of the time, if it did not end.
    pub async fn rolled_out(&self, mark: usize) -> Result<Value, String> {
        let ends = ["Rollout Succeeded", "Rollout Failed", "Rollout Aborted", "Spec Rejected"];
        let Some((end, detail)) = self.event(mark, &ends, PATIENCE).await else {
            return Err(format!("no end of a rollout: {:#?}", self.world.observer().events(mark)));
        };
        if end != ends[0] {
            return Err(format!("{end}: {detail}"));
        }
        if !self.world.settle(QUIET, PATIENCE).await {
            return Err("what happens after the rollout does not end".to_owned());
        }
        Ok(detail)
    }

    /// A JSON document in a cluster's folder of the asset bucket; `None` if there is none.
    ///
    /// # Errors
    /// If S3 refuses. A document of another type counts as missing.
    pub async fn document<T: DeserializeOwned>(
        &self,
        cluster: &str,
        name: &str,
    ) -> Result<Option<T>, WorldError> {
        let bucket = self.world.reference("AssetBucket")?;
        let bytes = self.world.client().object(bucket, &format!("clusters/{cluster}/{name}")).await?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    /// All versions of all objects in the asset bucket except the status documents and those of scans, which contain the time of the last
    /// scan.
    ///
    /// # Errors
    /// If S3 refuses.
    pub async fn assets(&self) -> Result<Assets, WorldError> {
        let bucket = self.world.reference("AssetBucket")?;
        let mut assets = Assets::new();
        for Version { key, version, .. } in self.world.client().versions(bucket).await? {
            if !key.ends_with("/status.json") && !key.ends_with("/scan.json") {
                assets.entry(key).or_default().push(version);
            }
        }
        Ok(assets)
    }

    /// Problems of the wiring since the beginning: rules that delivered nothing, missing permissions, and failures of the embedded AWS
    /// itself. A tick or a retry may have hidden them.
    #[must_use]
    pub fn loose_ends(&self) -> Vec<String> {
        let mut ends = Vec::new();
        let mut used = BTreeSet::new();
        for seen in self.world.observer().since(0) {
            match seen.what {
                Observed::Routed { rule, .. } => {
                    used.insert(rule);
                }
                Observed::NotPermitted { caller, reason, .. } => ends.push(format!("{caller}: {reason}")),
                Observed::Trouble(what) => ends.push(what),
                Observed::Call(call) => ends.extend(call.refused),
                Observed::Event { .. }
                | Observed::Started(_)
                | Observed::Finished { .. }
                | Observed::DeadLettered { .. }
                | Observed::Log { .. } => {}
            }
        }
        // It may be that no command was sent to a machine, that none was interrupted, and that nobody ordered a destruction.
        let happened =
            |prefix: &str| self.world.observer().events(0).iter().any(|(kind, _)| kind.starts_with(prefix));
        let may_be_unused = [
            ("CommandEnded", "EC2 Command"),
            ("AskedToDestroy", "Destroy Requested"),
            ("MachineInterrupted", "EC2 Spot Instance Interruption Warning"),
        ]
        .map(|(rule, event)| (rule, !happened(event)));
        let rules = self.world.deployed().routes.iter().map(|route| &route.rule_arn);
        let rules =
            rules.filter(|rule| !may_be_unused.iter().any(|(name, unused)| *unused && rule.contains(name)));
        ends.extend(
            rules.filter(|rule| !used.contains(*rule)).map(|rule| format!("{rule} never brought an event")),
        );
        ends.dedup();
        ends
    }

    /// The number of messages in the dead-letter queues.
    ///
    /// # Errors
    /// If SQS refuses.
    pub async fn dead_letters(&self) -> Result<u64, WorldError> {
        let mut sum = 0;
        for id in ["RenderDeadLetters", "RolloutDeadLetters", "ScanDeadLetters"] {
            sum += self.world.client().depth(self.world.reference(id)?).await?;
        }
        Ok(sum)
    }
}
