//! The acts of the demo: the uploads and the year that passes, and the expected result of each.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use slipway_core::release::StackKind;
use slipway_core::role::Role;
use slipway_core::status::Status;
use slipway_core::words;
use slipway_credentials::Manifest;
use slipway_plan::{NodeAction, Plan, StackAction};
use slipway_tests::client::Event;
use slipway_tests::installation::Installation;
use slipway_tests::observe::{Call, Observation, Observed, PATIENCE};
use slipway_tests::tools;
use slipway_tests::world::Settings;
use tokio::time::Instant;

use slipway_tests::narrator::{Ink, Narrator, resources, stack_of};

const CLUSTER: &str = "production";
/// The patch of act 4.
const PATCH: &str = include_str!("drain.yaml");
const QUIET: Duration = Duration::from_millis(400);

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The state of the demo.
#[derive(Debug)]
pub(crate) struct Demo {
    slipway: Installation,
    narrator: Narrator,
    begun: Instant,
    spec: String,
    launched_s: f64,
    /// The pool stacks that the third upload changes.
    updated: BTreeSet<String>,
    /// The results that were not as expected.
    broken: Vec<String>,
}

impl Demo {
    pub(crate) async fn set_up(speed: f64) -> Fallible<Self> {
        let begun = Instant::now();
        let narrator = Narrator::new(begun);
        let spec = std::fs::read_to_string(tools::root().join("examples/production.yaml"))?;
        narrator.say(
            &narrator.ink(Ink::Title, "Slipway, in an AWS embedded on this machine: no account, no Docker."),
        );
        narrator.say("S3, KMS, SSM parameters, EventBridge and SQS are moto's; CloudFormation and Scheduler are simulated.");
        narrator.say("The functions are the binaries that Lambda would run, held to the IAM policies of infra/template.yaml.\n");
        let slipway =
            Installation::start(&Settings { speed, one_clock: true, ..Settings::default() }).await?;
        let deployed = slipway.world().deployed();
        let count = format!("infra/template.yaml deployed: {}", resources(deployed.references.len()));
        narrator.line("installation", Ink::Good, &count);
        for (id, what) in
            [("SpecBucket", "specs go here"), ("AssetBucket", "whatever is made of them lies here")]
        {
            narrator.line(
                "installation",
                Ink::Plain,
                &format!("s3://{}: {what}", slipway.world().reference(id)?),
            );
        }
        Ok(Self {
            slipway,
            narrator,
            begun,
            spec,
            launched_s: 0.0,
            updated: BTreeSet::new(),
            broken: Vec::new(),
        })
    }

    /// Act 1: the upload launches the cluster.
    pub(crate) async fn launch(&mut self) -> Fallible<()> {
        self.narrator.title(
            "1. Upload examples/production.yaml: three controllers, three etcd members, three node pools",
        );
        let begun = Instant::now();
        let mark = self.mark();
        self.slipway.upload(CLUSTER, self.spec.clone()).await?;
        let Some(plan) = self.plan().await? else { return Ok(()) };
        let manifest: Value = self.slipway.document(CLUSTER, "pki/manifest.json").await?.unwrap_or_default();
        let credentials = manifest.as_object().into_iter().flat_map(|map| map.values()).map(entries).max();
        let text =
            format!("{} credentials made, each key its own, sealed by role", credentials.unwrap_or_default());
        self.narrator.line("credentials", Ink::Plain, &text);
        for stack in &plan.stacks {
            let text = format!("+ {} with {}", stack.name, resources(stack.resources.len()));
            self.narrator.line("plan", Ink::Plain, &text);
        }
        self.rolled_out("the launch").await;
        self.launched_s = begun.elapsed().as_secs_f64();
        let world = self.slipway.world();
        let made: usize = plan
            .stacks
            .iter()
            .map(|stack| world.cloud().with(|cloud| cloud.physical_ids(&stack.name).len()))
            .sum();
        self.narrator.line(
            "CloudFormation",
            Ink::Good,
            &format!("{} exist in {} stacks", resources(made), plan.stacks.len()),
        );
        let planned: usize = plan.stacks.iter().map(|stack| stack.resources.len()).sum();
        self.promise(
            made == planned && made > 0,
            &format!("{planned} resources were planned and {made} exist"),
        );
        let keys = self.calls(mark, "kms:").len();
        self.promise(keys > 0, "credentials are sealed under KMS");
        Ok(())
    }

    /// Act 2: an upload of the same bytes changes nothing (P1).
    pub(crate) async fn unchanged(&mut self) -> Fallible<()> {
        self.narrator
            .title("2. Upload the same bytes again, then order an upgrade: nothing is newer, nothing moves");
        self.settle().await;
        let before = self.slipway.assets().await?;
        let mark = self.mark();
        self.slipway.upload(CLUSTER, self.spec.clone()).await?;
        let end = self.until(&["Plan Unchanged", "Plan Ready", "Spec Rejected"]).await;
        self.promise(
            end.is_some_and(|(kind, _)| kind == "Plan Unchanged"),
            "the same bytes are found unchanged",
        );
        self.settle().await;
        let after = self.slipway.assets().await?;
        let new: usize =
            after.values().map(Vec::len).sum::<usize>() - before.values().map(Vec::len).sum::<usize>();
        for (count, what) in [
            (self.calls(mark, "kms:").len(), "calls of KMS"),
            (new, "new objects or versions in the asset bucket"),
            (
                self.calls(mark, "cloudformation:").iter().filter(|call| call.is_write()).count(),
                "changes asked of CloudFormation",
            ),
        ] {
            let ink = if count == 0 { Ink::Good } else { Ink::Bad };
            self.narrator.line("counted", ink, &format!("{count} {what}"));
            self.promise(count == 0, &format!("an unchanged upload costs {count} {what}"));
        }
        // What the lock pins moves only by an order, and nothing is newer today.
        let order = Event {
            source: "slipway".to_owned(),
            detail_type: "Upgrade Requested".to_owned(),
            detail: json!({ "cluster": CLUSTER }),
            resources: Vec::new(),
        };
        let world = self.slipway.world();
        world.client().put_event(world.reference("Bus")?, &order).await?;
        let end = self.until(&["Plan Unchanged", "Plan Ready", "Order Ignored"]).await;
        self.promise(
            end.is_some_and(|(kind, _)| kind == "Plan Unchanged"),
            "an upgrade where nothing is newer changes nothing",
        );
        self.settle().await;
        Ok(())
    }

    /// Act 3: the upload gives one pool another `maxSize`.
    pub(crate) async fn resized(&mut self) -> Fallible<()> {
        let (before, after) = ("maxSize: 10", "maxSize: 12");
        self.narrator.title(&format!("3. Upload with the first pool's {before} made {after}"));
        if !self.spec.contains(before) {
            return Err(format!("examples/production.yaml has no `{before}` any more: adapt the demo").into());
        }
        let mark = self.mark();
        self.slipway.upload(CLUSTER, self.spec.replacen(before, after, 1)).await?;
        let Some(plan) = self.plan().await? else { return Ok(()) };
        self.show(&plan);
        let touched: Vec<_> =
            plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged).collect();
        let alone = touched.len() == 1
            && touched
                .iter()
                .all(|stack| stack.kind == StackKind::Pool && stack.action == StackAction::Update);
        self.updated.extend(touched.iter().map(|stack| stack.name.clone()));
        self.promise(alone, "the plan touches that pool's stack alone");
        let still = plan.nodes.iter().all(|node| node.action == NodeAction::Untouched);
        self.promise(still, "the plan replaces no node");
        self.rolled_out("the update").await;
        let asked = self.calls(mark, "cloudformation:");
        let stacks: BTreeSet<_> =
            asked.iter().filter(|call| call.is_write()).map(|call| stack_of(&call.resource)).collect();
        let wanted: BTreeSet<_> = self.updated.clone();
        self.promise(stacks == wanted, &format!("CloudFormation was asked to change {stacks:?}"));
        let text =
            format!("asked to change {} and no other", wanted.into_iter().collect::<Vec<_>>().join(", "));
        self.narrator.line("CloudFormation", if stacks.len() == 1 { Ink::Good } else { Ink::Bad }, &text);
        Ok(())
    }

    /// Act 4: the upload is a patch of a stack, beside the spec.
    pub(crate) async fn patched(&mut self) -> Fallible<()> {
        self.narrator.title("4. Upload patches/drain.yaml: nodes of one pool may take two hours to drain");
        self.settle().await;
        let key = format!("clusters/{CLUSTER}/patches/drain.yaml");
        self.slipway.world().upload("SpecBucket", &key, PATCH.into()).await?;
        let Some(plan) = self.plan().await? else { return Ok(()) };
        self.show(&plan);
        let touched: Vec<_> =
            plan.stacks.iter().filter(|stack| stack.action != StackAction::Unchanged).collect();
        let alone = touched.len() == 1 && touched[0].name.ends_with("-general-b");
        self.promise(alone, "a patch of one pool's stack touches that stack alone");
        self.updated.extend(touched.iter().map(|stack| stack.name.clone()));
        self.rolled_out("the patch").await;
        Ok(())
    }

    /// Act 5: a year passes, and the daily scan renews certificates.
    pub(crate) async fn renewed(&mut self) -> Fallible<()> {
        self.narrator.title("5. Six days before the first certificates expire: the daily scan runs");
        self.settle().await;
        let leaf_ends = self.leaf_ends().await?;
        let Some(first) = leaf_ends.values().min().copied() else {
            return Err("there are no certificates".into());
        };
        let now = first - SignedDuration::from_hours(24 * 6);
        self.slipway.set_clock_ahead(now.duration_since(self.slipway.world().cloud().clock().now()));
        self.narrator.line(
            "the clock",
            Ink::Plain,
            &format!("says {now:.0}; the first certificate ends {first:.0}"),
        );
        self.slipway.daily_scan().await?;
        let Some(plan) = self.plan().await? else { return Ok(()) };
        self.show_nodes(&plan);
        let workers = plan.nodes.iter().filter(|node| matches!(node.role, Role::Pool(_)));
        let untouched =
            workers.clone().count() > 0 && workers.clone().all(|node| node.action == NodeAction::Untouched);
        self.promise(untouched, "a renewal leaves the workers untouched");
        let rolled = plan.nodes.iter().filter(|node| node.action == NodeAction::Replace);
        let roles: BTreeSet<String> = rolled.map(|node| node.role.to_string()).collect();
        let wanted = ["controller", "etcd-0", "etcd-1", "etcd-2"].map(str::to_owned);
        self.promise(
            roles == wanted.into(),
            &format!("a renewal rolls etcd and the control plane alone, not {roles:?}"),
        );
        let touched = plan.stacks.iter().filter(|stack| stack.action == StackAction::Update);
        self.updated.extend(touched.map(|stack| stack.name.clone()));
        self.rolled_out("the renewal").await;
        let renewed = self.leaf_ends().await?;
        let newer =
            renewed.iter().all(|(name, ends)| leaf_ends.get(name).is_some_and(|before| ends > before));
        self.promise(newer, "every leaf is renewed");
        let next = renewed.values().min().copied().unwrap_or(first);
        self.narrator.line(
            "certificates",
            Ink::Good,
            &format!("{} renewed; the first now ends {next:.0}", renewed.len()),
        );
        Ok(())
    }

    /// The expiry of each leaf of the cluster.
    async fn leaf_ends(&self) -> Fallible<BTreeMap<String, Timestamp>> {
        let manifest: Manifest =
            self.slipway.document(CLUSTER, "pki/manifest.json").await?.unwrap_or_default();
        let authority = |name: &str| name == "ca" || name.ends_with("-ca");
        let ends = manifest.assets.into_iter().filter(|(name, _)| !authority(name));
        Ok(ends.filter_map(|(name, entry)| Some((name, entry.certificate?.not_after))).collect())
    }

    /// Act 6: the upload has a typing error.
    pub(crate) async fn refused(&mut self) -> Fallible<()> {
        let (before, after) = ("instanceType:", "instanceTyp:");
        self.narrator.title(&format!("6. Upload with a typing error, {after}"));
        self.settle().await;
        let assets = self.slipway.assets().await?;
        self.slipway.upload(CLUSTER, self.spec.replacen(before, after, 1)).await?;
        let end = self.until(&["Spec Rejected", "Plan Ready", "Plan Unchanged"]).await;
        let rejected = end.filter(|(kind, _)| kind == "Spec Rejected");
        self.promise(rejected.is_some(), "a spec with a typing error is refused");
        for line in
            rejected.iter().flat_map(|(_, detail)| detail["diagnostics"].as_array().into_iter().flatten())
        {
            self.narrator.line("clusters/production", Ink::Bad, line.as_str().unwrap_or_default());
        }
        self.settle().await;
        self.promise(self.slipway.assets().await? == assets, "a refused spec leaves everything as it was");
        Ok(())
    }

    /// Simulates the next 400 days of the cluster, with machines that die and calls that fail.
    pub(crate) async fn simulated(&mut self) -> Fallible<()> {
        let picture = tools::root().join(".demo/year.html");
        std::fs::create_dir_all(tools::root().join(".demo"))?;
        let asked = ["simulate", "examples/production.yaml", "--seed", "3", "--faults", "0.02", "--html"];
        self.narrator
            .title(&format!("7. Its next 400 days, simulated: slipway {} .demo/year.html", asked.join(" ")));
        let mut command = tokio::process::Command::new(tools::binary("slipway")?);
        let ended =
            command.args(asked).arg(&picture).current_dir(tools::root()).kill_on_drop(true).output().await?;
        let told = String::from_utf8_lossy(&ended.stdout);
        for line in told.lines() {
            let line: String = line.chars().take(140).collect();
            self.narrator.say(&format!("            | {line}"));
        }
        self.promise(ended.status.success(), "the simulated year keeps every promise");
        self.narrator.say(&format!("            its picture: {}", picture.display()));
        Ok(())
    }

    /// Prints a table of the promises that a newcomer understands. Returns whether all were kept.
    pub(crate) async fn summary(&mut self) -> Fallible<bool> {
        self.narrator.title("What stands now");
        let plan: Option<Plan> = self.newest_plan().await?;
        let mut table = String::new();
        for stack in plan.iter().flat_map(|plan| &plan.stacks) {
            let (status, count) = self
                .slipway
                .world()
                .cloud()
                .with(|cloud| (cloud.stack_status(&stack.name), cloud.physical_ids(&stack.name).len()));
            let status = status.unwrap_or_else(|| "does not exist".to_owned());
            let updated = self.updated.contains(&stack.name);
            let wanted = if updated { "UPDATE_COMPLETE" } else { "CREATE_COMPLETE" };
            self.promise(status == wanted, &format!("{} is {status}, not {wanted}", stack.name));
            writeln!(table, "  {:<28} {status:<18} {}", stack.name, resources(count))?;
        }
        self.narrator.say(table.trim_end());
        let dead = self.slipway.dead_letters().await?;
        self.promise(dead == 0, &format!("{dead} events were given up"));
        for end in self.slipway.loose_ends() {
            self.promise(false, &end);
        }
        let ticks = self.slipway.world().cloud().with(|cloud| cloud.schedules());
        self.promise(ticks.is_empty(), &format!("ticks go on when nothing rolls: {ticks:?}"));
        self.narrator.say(&format!(
            "\n  {} dead letters, {} schedules left; launched in {:.1} s, all in {:.1} s.",
            dead,
            ticks.len(),
            self.launched_s,
            self.begun.elapsed().as_secs_f64()
        ));
        if self.broken.is_empty() {
            self.narrator.say(&self.narrator.ink(
                Ink::Good,
                "\nOne upload planned and launched a cluster; the same upload changed nothing; a small change and a\n\
                 patch moved one stack each and no node; a year later its certificates were renewed and no worker touched; a mistake\n\
                 was refused with its line. Read docs/architecture.md for how.",
            ));
            return Ok(true);
        }
        self.narrator.say(&self.narrator.ink(Ink::Bad, "\nNot as promised:"));
        for broken in &self.broken {
            self.narrator.say(&self.narrator.ink(Ink::Bad, &format!("  - {broken}")));
        }
        for seen in self.slipway.world().observer().since(0) {
            if let Observed::Log { function, line } = seen.what
                && line.contains("ERROR")
            {
                self.narrator.say(&format!("    {function}: {line}"));
            }
        }
        Ok(false)
    }

    /// Prints how to inspect the embedded AWS that keeps running.
    pub(crate) fn leave_running(&mut self) {
        self.narrator.title("The embedded AWS runs on; Ctrl-C ends it. To point the AWS CLI at it:");
        let world = self.slipway.world();
        self.narrator.say(&format!("  export AWS_ENDPOINT_URL={}", world.gateway().url()));
        self.narrator.say(&format!("  export AWS_REGION={0} AWS_DEFAULT_REGION={0}", world.region()));
        self.narrator.say("  export AWS_ACCESS_KEY_ID=operator AWS_SECRET_ACCESS_KEY=operator");
        let [specs, assets, bus] = ["SpecBucket", "AssetBucket", "Bus"].map(|id| world.reference(id));
        if let (Ok(specs), Ok(assets), Ok(bus)) = (specs, assets, bus) {
            self.narrator.say(&format!(
                "  export SLIPWAY_SPEC_BUCKET={specs} SLIPWAY_ASSET_BUCKET={assets} SLIPWAY_BUS_NAME={bus}"
            ));
            self.narrator.say(&format!("  aws s3 ls --recursive s3://{assets}/"));
            self.narrator.say(&format!(
                "  aws s3 cp examples/minimal.yaml s3://{specs}/clusters/minimal/cluster.yaml"
            ));
        }
        self.narrator.say("  aws cloudformation describe-stacks");
        self.narrator.say("  slipway status --cluster production");
        self.narrator.say(
            "slipway is target/debug/slipway. That world is a year ahead of your clock: what is as old as your orders, such as one to destroy, \
             is not obeyed there.",
        );
    }

    /// Whether all results so far were as expected.
    pub(crate) fn is_whole(&self) -> bool {
        self.broken.is_empty()
    }

    fn mark(&self) -> usize {
        self.slipway.world().observer().mark()
    }

    fn calls(&self, mark: usize, service: &str) -> Vec<Call> {
        let calls = self.slipway.world().observer().calls(mark).into_iter();
        calls.filter(|call| call.action.starts_with(service)).collect()
    }

    fn promise(&mut self, held: bool, what: &str) {
        if !held {
            self.broken.push(what.to_owned());
        }
    }

    /// Prints what happens until an event of one of these types, or until an event is given up.
    async fn until(&mut self, kinds: &[&str]) -> Option<(String, Value)> {
        let observer = self.slipway.world().observer().clone();
        let found = self.narrator.follow(&observer, PATIENCE, |seen| {
            if let Observed::DeadLettered { error_type, .. } = &seen.what {
                return Some(Err(error_type.clone()));
            }
            slipway_event(seen, kinds).map(Ok)
        });
        found.await.and_then(Result::ok)
    }

    /// The plan of the last upload.
    async fn plan(&mut self) -> Fallible<Option<Plan>> {
        let end = self.until(&["Plan Ready", "Plan Unchanged", "Spec Rejected"]).await;
        let Some((_, detail)) = end.filter(|(kind, _)| kind == "Plan Ready") else {
            self.broken.push("the upload leads to no plan".to_owned());
            return Ok(None);
        };
        let status: Option<Status> = self.slipway.document(CLUSTER, "status.json").await?;
        let findings = status.and_then(|status| status.spec).map_or(0, |spec| spec.diagnostics.len());
        let warnings = words::count(u32::try_from(findings).unwrap_or(u32::MAX), "warning");
        self.narrator.line("cluster.yaml", Ink::Good, &format!("accepted, with {warnings}"));
        let id = detail["plan"].as_str().unwrap_or_default();
        Ok(self.slipway.document(CLUSTER, &format!("plans/{id}.json")).await?)
    }

    async fn newest_plan(&self) -> Fallible<Option<Plan>> {
        let desired: Value = self.slipway.document(CLUSTER, "desired.json").await?.unwrap_or_default();
        let id = desired["plan"].as_str().unwrap_or_default();
        Ok(self.slipway.document(CLUSTER, &format!("plans/{id}.json")).await?)
    }

    async fn rolled_out(&mut self, what: &str) {
        let observer = self.slipway.world().observer().clone();
        let end = self.narrator.follow(&observer, PATIENCE, |seen| {
            if let Observed::DeadLettered { .. } = &seen.what {
                return Some("given up".to_owned());
            }
            slipway_event(seen, &["Rollout Succeeded", "Rollout Failed"]).map(|(kind, _)| kind)
        });
        let succeeded = end.await.is_some_and(|end| end == "Rollout Succeeded");
        self.promise(succeeded, &format!("{what} does not succeed"));
    }

    /// Prints what happens to each role's nodes. For a renewal, the templates show only that a digest changes.
    fn show_nodes(&self, plan: &Plan) {
        let text = plan.to_text();
        for line in text.lines().skip_while(|line| *line != "Nodes") {
            self.narrator.say(&format!("            | {line}"));
        }
    }

    fn show(&self, plan: &Plan) {
        for line in plan.to_text().lines() {
            self.narrator.say(&format!("            | {line}"));
        }
    }

    /// Prints what happens until nothing happens any more.
    async fn settle(&mut self) {
        if !self.slipway.world().settle(QUIET, PATIENCE).await {
            self.broken.push("it does not come to rest".to_owned());
        }
        let observer = self.slipway.world().observer().clone();
        self.narrator.follow(&observer, Duration::ZERO, |_| None::<()>).await;
    }
}

fn slipway_event(seen: &Observation, kinds: &[&str]) -> Option<(String, Value)> {
    let Observed::Event { bus, event } = &seen.what else { return None };
    let kind = event["detail-type"].as_str()?;
    (bus == "slipway" && kinds.contains(&kind)).then(|| (kind.to_owned(), event["detail"].clone()))
}

fn entries(value: &Value) -> usize {
    value.as_object().map(serde_json::Map::len).or(value.as_array().map(Vec::len)).unwrap_or_default()
}
