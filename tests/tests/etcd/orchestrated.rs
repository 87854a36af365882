//! The functions roll real members: commands for a member's machine in the simulated AWS are executed by the real agent, on a real etcd,
//! with the credentials that the render function sealed. Auto Scaling and the boots of machines are simulated.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_crypto::AwsLc;
use slipway_sim::{Delegated, MachineFacts, Power};
use slipway_tests::client::Version;
use slipway_tests::deploy::translate;
use slipway_tests::imds::Imds;
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Observed, Outcome, PATIENCE};
use slipway_tests::surroundings::INSTANCE;
use slipway_tests::tools;
use slipway_tests::world::Settings;

use super::machine::{Machine, bare, releases};
use super::member::put;
use super::writer::Writer;

const CLUSTER: &str = "production";
const LOOK: Duration = Duration::from_millis(5);
const AGENT: &str = "exec /var/lib/slipway/slipway-node ";

fn spec(kind: &str) -> String {
    let spec = fs::read_to_string(tools::root().join("examples/minimal.yaml")).unwrap();
    let spec = spec.replace("clusterName: minimal", &format!("clusterName: {CLUSTER}"));
    format!("{spec}etcd:\n  count: 3\n  instanceType: {kind}\nrollout:\n  approval: auto\n")
}

/// The command line of each document in the installation's template.
async fn documents() -> BTreeMap<String, String> {
    let template = translate(&tools::root().join("infra/template.yaml")).await.unwrap();
    let resources = template["Resources"].as_object().unwrap().values();
    let documents = resources.filter(|resource| resource["Type"] == "AWS::SSM::Document").map(|resource| {
        let properties = &resource["Properties"];
        let command = properties.pointer("/Content/mainSteps/0/inputs/runCommand/0").unwrap();
        (properties["Name"].as_str().unwrap().to_owned(), command.as_str().unwrap().to_owned())
    });
    documents.collect()
}

/// Real members in place of the simulated ones.
struct Stage<'a> {
    slipway: &'a Installation,
    imds: Imds,
    documents: BTreeMap<String, String>,
    machines: Vec<Machine>,
    /// The simulated machine of each member.
    on: Vec<Option<String>>,
    /// The documents that were executed.
    done: BTreeSet<String>,
    /// The smallest number of members that ran at a time, since all of them ran.
    fewest: usize,
}

impl Stage<'_> {
    /// A member boots; the first time with the credentials that the render function sealed for it.
    async fn boots(&mut self, index: usize, on: &MachineFacts) {
        let is_first = self.on[index].is_none();
        if is_first {
            self.settles(index, &on.credentials).await;
        }
        self.on[index] = Some(on.id.clone());
        self.machines[index].member.start();
        if is_first {
            return;
        }
        // A real boot also takes some seconds, which would be hours in the simulated world.
        let _held = self.slipway.world().cloud().hold();
        self.machines[index].serves().await;
    }

    /// Writes what the agent's bootstrap would write.
    async fn settles(&mut self, index: usize, digest: &str) {
        let world = self.slipway.world();
        let role = Role::Etcd(u32::try_from(index).unwrap()).to_string();
        let bucket = world.reference("AssetBucket").unwrap();
        let key = keys::credentials(CLUSTER, &role, digest);
        let sealed = world.client().object(bucket, &key).await.unwrap().unwrap();
        let aws = slipway_aws::Aws::emulated(world.client().endpoint(), world.region(), "OPERATOR").unwrap();
        let plain =
            slipway_ports::sealed::open(&aws.keys(""), &AwsLc, CLUSTER, &role, &sealed).await.unwrap();
        let plain: Value = serde_json::from_slice(plain.expose()).unwrap();
        let machine = &mut self.machines[index];
        for (path, text) in plain["files"].as_object().unwrap() {
            put(&machine.member.pki, path.rsplit('/').next().unwrap(), text.as_str().unwrap());
        }
        let config = fs::read(machine.member.dir.join("var/lib/slipway/config.json")).unwrap();
        let node = json!({
            "format": 1, "cluster": CLUSTER, "role": role, "region": world.region(), "assetBucket": bucket,
            "agent": Value::Null, "config": slipway_core::digest::sha256_hex(&config), "credentials": digest,
        });
        machine.write("node.json", &node);
        machine.environment = BTreeMap::from([
            ("AWS_ENDPOINT_URL".to_owned(), world.client().endpoint().to_owned()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT".to_owned(), self.imds.url().to_owned()),
        ]);
    }

    /// Starts and stops members together with their simulated machines.
    async fn follows(&mut self, machines: &[MachineFacts]) {
        let up: Vec<_> = (0..self.machines.len())
            .map(|index| {
                let role = format!("etcd-{index}");
                machines.iter().find(|one| one.role == role && one.power == Power::Up)
            })
            .collect();
        for (index, up) in up.iter().enumerate() {
            if self.on[index].is_some() && up.map(|one| &one.id) != self.on[index].as_ref() {
                self.machines[index].member.stop().await;
            }
        }
        let run = self.machines.iter().filter(|machine| machine.member.process().is_some()).count();
        self.fewest = self.fewest.min(run);
        for (index, up) in up.into_iter().enumerate() {
            if let Some(up) = up.filter(|up| self.on[index].as_ref() != Some(&up.id)) {
                self.boots(index, up).await;
            }
        }
    }

    /// The agent executes a document's command, as the shell would.
    async fn carries_out(&mut self, asked: &Delegated) -> Result<Value, Value> {
        let mut line = self.documents[&asked.document].clone();
        for (name, value) in &asked.parameters {
            line = line.replace(&format!("{{{{ {name} }}}}"), value);
        }
        let words = line.strip_prefix(AGENT).unwrap_or_else(|| panic!("{line}")).split_whitespace();
        let words: Vec<&str> = words.map(|word| word.trim_matches('\'')).collect();
        let machine = self.machines.iter().find(|machine| machine.member.name == asked.role).unwrap();
        let (done, answer) = machine.agent(&words).await;
        self.done.insert(asked.document.clone());
        if done { Ok(answer) } else { Err(answer) }
    }

    /// Runs until the rollout that began after `mark` ends and every member runs. Returns the type and the text of the end.
    async fn plays(&mut self, mark: usize) -> (String, String) {
        let kinds = ["Rollout Succeeded", "Rollout Failed", "Spec Rejected"];
        let slipway = self.slipway;
        let end = slipway.event(mark, &kinds, PATIENCE);
        tokio::pin!(end);
        let mut ended = None;
        loop {
            tokio::select! {
                end = &mut end, if ended.is_none() => ended = Some(end.expect("it ends")),
                () = tokio::time::sleep(LOOK) => {}
            }
            let cloud = slipway.world().cloud();
            let (machines, asked) = cloud.with(|world| (world.machines(), world.delegated()));
            self.follows(&machines).await;
            for asked in asked {
                let _held = cloud.hold();
                let answer = self.carries_out(&asked).await;
                cloud.with(|world| world.answer(&asked.id, answer));
            }
            // At a launch, machines may start later than their group.
            if let Some((kind, detail)) = &ended
                && (kind != "Rollout Succeeded" || self.processes().iter().all(Option::is_some))
            {
                return (kind.clone(), detail.to_string());
            }
        }
    }

    async fn ids(&self) -> Vec<Option<String>> {
        let mut ids = Vec::new();
        for machine in &self.machines {
            ids.push(machine.is_healthy().await.id);
        }
        ids
    }

    fn processes(&self) -> Vec<Option<u32>> {
        self.machines.iter().map(|machine| machine.member.process()).collect()
    }
}

/// The errors of the functions.
fn failures(slipway: &Installation) -> Vec<String> {
    let seen = slipway.world().observer().since(0).into_iter().map(|seen| seen.what);
    let failed = seen.filter(|what| {
        let is_failed =
            matches!(what, Observed::Finished { outcome, .. } if matches!(outcome, Outcome::Failed { .. }));
        is_failed || matches!(what, Observed::DeadLettered { .. })
    });
    failed.map(|what| format!("{what:?}")).collect()
}

/// P4, P5: each member's machine is replaced by another that takes over its volume, one at a time, after a snapshot, and never the leader.
/// No acknowledged write is lost.
#[tokio::test(flavor = "multi_thread")]
async fn p4_the_functions_roll_real_members_and_no_write_is_lost() {
    let Some(release) = releases().into_iter().find(|release| release.version.starts_with("3.6")) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { time_scale: 0.001, one_clock: true, ..Settings::default() };
    let slipway = Installation::start(&settings).await.unwrap();
    // The time is stopped until the credentials are made: etcd uses this machine's clock, by which they would not be valid yet.
    let held = slipway.world().cloud().hold();
    slipway.world().cloud().with(|world| world.delegate(&["etcd-0", "etcd-1", "etcd-2"]));
    let mut stage = Stage {
        slipway: &slipway,
        imds: Imds::start(INSTANCE, "eu-west-1a", "10.0.0.5", "ASIANODE").await.unwrap(),
        documents: documents().await,
        machines: bare(&release, dir.path(), 3),
        on: vec![None; 3],
        done: BTreeSet::new(),
        fewest: 0,
    };

    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec("m7i.large")).await.unwrap();
    let (kind, words) = slipway.event(mark, &["Plan Ready", "Spec Rejected"], PATIENCE).await.unwrap();
    assert_eq!(kind, "Plan Ready", "{words}");
    drop(held);
    let (kind, words) = stage.plays(mark).await;
    assert_eq!(kind, "Rollout Succeeded", "{words}");
    let (before, old) = (stage.ids().await, stage.processes());
    for machine in &stage.machines {
        let asked = machine.read("node.json");
        machine.does(&["refresh", "--credentials", asked["credentials"].as_str().unwrap()]).await;
    }

    stage.fewest = 3;
    let urls = stage.machines.iter().map(|machine| machine.member.client_url());
    let writer = Writer::start(&stage.machines[0].member.pki, urls);
    let mark = slipway.world().observer().mark();
    slipway.upload(CLUSTER, spec("m7i.xlarge")).await.unwrap();
    let (kind, words) = stage.plays(mark).await;
    assert_eq!(kind, "Rollout Succeeded", "{words}");
    let record = writer.stop().await;

    assert_eq!(stage.ids().await, before, "the same members");
    assert!(stage.processes().iter().zip(&old).all(|(new, old)| new.is_some() && new != old));
    assert_eq!(stage.fewest, 2, "one at a time");
    for machine in &stage.machines {
        assert_eq!(record.lost(&machine.member).await, Vec::<String>::new(), "{}", machine.member.name);
    }
    println!("{} writes, {} retried, longest gap {:?}", record.writes(), record.retried, record.gap);
    for document in ["Slipway-EtcdHealth", "Slipway-EtcdSnapshot", "Slipway-EtcdMoveLeader"] {
        assert!(stage.done.contains(document), "{document}: {:?}", stage.done);
    }
    let bucket = slipway.world().reference("AssetBucket").unwrap();
    let prefix = format!("clusters/{CLUSTER}/etcd-snapshots/");
    let stored = slipway.world().client().versions(bucket).await.unwrap();
    assert!(stored.iter().any(|Version { key, .. }| key.starts_with(&prefix)), "the snapshot is there");
    assert!(slipway.world().settle(Duration::from_millis(500), PATIENCE).await);
    assert_eq!(slipway.dead_letters().await.unwrap(), 0, "{:#?}", failures(&slipway));
}
