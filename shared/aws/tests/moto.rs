//! The credentials flow over S3 and KMS as moto's server has them: races, encryption contexts, another key, what is collected. Of
//! Auto Scaling and Run Command what moto can be trusted with: no hooks, and no command that runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_s3::config::{Credentials as AccessKey, SharedCredentialsProvider};
use aws_sdk_s3::types::{BucketVersioningStatus, VersioningConfiguration};
use jiff::{SignedDuration, Timestamp};
use slipway_aws::{Aws, KmsKeys, S3Bucket};
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::node::{self, CommandView, HowUnanswered, Verb};
use slipway_core::role::Role;
use slipway_credentials::gc::{Referred, YOUNG};
use slipway_credentials::{Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::gc::{self, Nodes};
use slipway_flows::credentials::{self, Credentials};
use slipway_flows::ports::{Commands as _, Groups as _};
use slipway_flows::store;
use slipway_ports::{
    Condition, Context, Crypto as _, DataKey, ErrorKind, Keys, Listing as _, Objects as _, PortResult, Secret,
};
use slipway_rollout::fleet::{Lifecycle, MachineView, TargetHealth, TargetState};

/// A moto server, gone when dropped: it ends with its standard input.
struct Moto {
    process: Child,
    config: SdkConfig,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut process = Command::new(root.join(".tools/python/bin/python3"))
            .arg(root.join("tests/scripts/embedded_moto.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("moto's Python is there: run `make tools`");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let access = AccessKey::new("AKIDEXAMPLE", "secret", None, None, "test");
        let config = SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::new("eu-west-1"))
            .credentials_provider(SharedCredentialsProvider::new(access))
            .endpoint_url(url.trim())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .retry_config(RetryConfig::standard())
            .build();
        Self { process, config }
    }

    fn s3(&self) -> aws_sdk_s3::Client {
        let config = aws_sdk_s3::config::Builder::from(&self.config).force_path_style(true).build();
        aws_sdk_s3::Client::from_conf(config)
    }

    fn kms(&self) -> aws_sdk_kms::Client {
        aws_sdk_kms::Client::new(&self.config)
    }

    async fn key(&self) -> String {
        self.kms().create_key().send().await.unwrap().key_metadata.unwrap().arn.unwrap()
    }

    /// An empty, versioned bucket.
    async fn bucket(&self, name: &str) -> S3Bucket {
        let s3 = self.s3();
        let place = aws_sdk_s3::types::CreateBucketConfiguration::builder()
            .location_constraint(aws_sdk_s3::types::BucketLocationConstraint::EuWest1)
            .build();
        s3.create_bucket().bucket(name).create_bucket_configuration(place).send().await.unwrap();
        let enabled = VersioningConfiguration::builder().status(BucketVersioningStatus::Enabled).build();
        s3.put_bucket_versioning().bucket(name).versioning_configuration(enabled).send().await.unwrap();
        Aws::new(self.config.clone()).unwrap().bucket(name)
    }

    async fn versions(&self, bucket: &str, key: &str) -> usize {
        let listed = self.s3().list_object_versions().bucket(bucket).prefix(key).send().await.unwrap();
        listed.versions().len()
    }

    fn keys(&self, own: &str) -> Counted {
        let keys = Aws::new(self.config.clone()).unwrap().keys(own);
        Counted { keys, generated: Arc::default(), unwrapped: Arc::default() }
    }
}

/// KMS, each call counted.
#[derive(Clone)]
struct Counted {
    keys: KmsKeys,
    generated: Arc<AtomicUsize>,
    unwrapped: Arc<AtomicUsize>,
}

impl Counted {
    /// Calls since the last time: of GenerateDataKey, of Decrypt.
    fn calls(&self) -> (usize, usize) {
        (self.generated.swap(0, Ordering::SeqCst), self.unwrapped.swap(0, Ordering::SeqCst))
    }
}

impl Keys for Counted {
    fn name(&self, arn: Option<&str>) -> String {
        self.keys.name(arn)
    }

    async fn generate(&self, arn: Option<&str>, context: &Context) -> PortResult<DataKey> {
        self.generated.fetch_add(1, Ordering::SeqCst);
        self.keys.generate(arn, context).await
    }

    async fn unwrap(&self, wrapped: &[u8], context: &Context) -> PortResult<Secret> {
        self.unwrapped.fetch_add(1, Ordering::SeqCst);
        self.keys.unwrap(wrapped, context).await
    }
}

fn cluster() -> Cluster {
    let text = include_bytes!("../../credentials/src/testdata/cluster.yaml");
    slipway_spec::parse(text, None).unwrap().cluster
}

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

async fn sealed(bucket: &S3Bucket, end: &Credentials, cluster: &str, role: &Role) -> Vec<u8> {
    let key = keys::credentials(cluster, &role.to_string(), &end.digests[role]);
    bucket.get(&key).await.unwrap().unwrap().bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p8_sixteen_first_renders_at_once_end_with_one_pki_and_each_node_opens_its_own_with_one_call() {
    let moto = Moto::start();
    let (bucket, kms) = (moto.bucket("race").await, moto.keys(&moto.key().await));
    let renders: Vec<_> = (0..16)
        .map(|_| {
            let (bucket, kms) = (bucket.clone(), kms.clone());
            tokio::spawn(async move {
                credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap()
            })
        })
        .collect();
    let mut ends = Vec::new();
    for render in renders {
        ends.push(render.await.unwrap());
    }
    let stored = store::load::<Manifest>(&bucket, &keys::manifest("prod")).await.unwrap().value.unwrap();
    assert!(ends.iter().all(|end| end.manifest == stored), "everybody ends with the same");
    assert_eq!(ends.iter().filter(|end| !end.made.is_empty()).count(), 1, "one made it");
    assert_eq!(moto.versions("race", &keys::manifest("prod")).await, 1, "and wrote it once");
    kms.calls();
    for role in policy::roles(&cluster()) {
        let bytes = sealed(&bucket, &ends[0], "prod", &role).await;
        slipway_ports::sealed::open(&kms, &AwsLc, "prod", &role.to_string(), &bytes).await.unwrap();
        assert_eq!(kms.calls(), (0, 1), "{role}");
    }
}

#[tokio::test]
async fn p9_kms_refuses_a_bundle_of_another_role_or_cluster() {
    let moto = Moto::start();
    let (bucket, kms) = (moto.bucket("context").await, moto.keys(&moto.key().await));
    let end = credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap();
    assert_eq!(kms.calls(), (1 + end.digests.len(), 0), "a data key for the vault and one a bundle");
    credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap();
    assert_eq!(kms.calls(), (0, 0), "an unchanged spec makes no call");
    let bytes = sealed(&bucket, &end, "prod", &Role::Controller).await;
    for (cluster, role) in [("prod", "etcd-0"), ("prod", "vault"), ("prod", "admin"), ("other", "controller")]
    {
        let error = slipway_ports::sealed::open(&kms, &AwsLc, cluster, role, &bytes).await.unwrap_err();
        assert_eq!(
            (error.kind, error.operation),
            (ErrorKind::Invalid, "kms:Decrypt"),
            "{cluster} {role}: {error}"
        );
    }
    // KMS opens a data key under its own context alone; and what lies in the vault is no bundle's.
    let wrapped = AwsLc.sealings(&bytes).unwrap()[0].wrapped.to_vec();
    let bare = Context::from([("cluster".to_owned(), "prod".to_owned())]);
    assert_eq!(kms.unwrap(&wrapped, &bare).await.unwrap_err().kind, ErrorKind::Invalid);
    let vault = keys::private_half("prod", "ca", &end.manifest.assets["ca"].fingerprint);
    let vault = bucket.get(&vault).await.unwrap().unwrap().bytes;
    assert!(slipway_ports::sealed::open(&kms, &AwsLc, "prod", "controller", &vault).await.is_err());
}

#[tokio::test]
async fn p1_a_rotated_key_and_then_another_key_change_no_digest_and_nodes_ask_the_other_alone() {
    let moto = Moto::start();
    let (own, mine) = (moto.key().await, moto.key().await);
    let (bucket, kms) = (moto.bucket("roll").await, moto.keys(&own));
    let first = credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap();
    // The same ARN, other material: nothing to do, and what was sealed before opens.
    moto.kms().rotate_key_on_demand().key_id(&own).send().await.unwrap();
    kms.calls();
    let again = credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap();
    assert_eq!((again.manifest == first.manifest, kms.calls()), (true, (0, 0)));
    let bytes = sealed(&bucket, &first, "prod", &Role::Admin).await;
    slipway_ports::sealed::open(&kms, &AwsLc, "prod", "admin", &bytes).await.unwrap();

    let rolled = Cluster { kms_key_arn: Some(mine.clone()), ..cluster() };
    let second = credentials::ensure(&bucket, &kms, &AwsLc, &rolled, now()).await.unwrap();
    assert_eq!((second.digests == first.digests, second.made.len()), (true, 0));
    kms.calls();
    for role in policy::roles(&rolled) {
        let bytes = sealed(&bucket, &second, "prod", &role).await;
        let sealings = AwsLc.sealings(&bytes).unwrap();
        let names: Vec<&str> = sealings.iter().map(|one| one.wrapped_by).collect();
        assert_eq!(names, [&own, &mine]);
        // What a sealing says of its key is what KMS says.
        for sealing in &sealings {
            let wrapped = aws_sdk_kms::primitives::Blob::new(sealing.wrapped);
            let asked = moto.kms().decrypt().ciphertext_blob(wrapped);
            let asked =
                asked.encryption_context("cluster", "prod").encryption_context("role", role.to_string());
            assert_eq!(asked.send().await.unwrap().key_id().unwrap(), sealing.wrapped_by, "{role}");
        }
        slipway_ports::sealed::open(&kms, &AwsLc, "prod", &role.to_string(), &bytes).await.unwrap();
        assert_eq!(kms.calls(), (0, 1), "{role}");
    }
}

#[tokio::test]
async fn what_nobody_refers_to_is_taken_from_s3_and_its_versions_stay() {
    let moto = Moto::start();
    let (bucket, kms) = (moto.bucket("collect").await, moto.keys(&moto.key().await));
    let first = credentials::ensure(&bucket, &kms, &AwsLc, &cluster(), now()).await.unwrap();
    let mut wide = cluster();
    wide.kubernetes.extra_sans.push("k8s.example.com".to_owned());
    let second = credentials::ensure(&bucket, &kms, &AwsLc, &wide, now()).await.unwrap();
    bucket.put("clusters/prod/pki/notes.txt", b"mine".to_vec(), Condition::Absent).await.unwrap();
    let nobody = Nodes::Reported(Referred::default());
    let collect = async |at: Timestamp| {
        gc::collect(&bucket, "prod", || gc::referred(&bucket, "prod", &nobody), YOUNG, at).await.unwrap()
    };
    assert_eq!(collect(Timestamp::now()).await, [], "all of it is young");
    let in_three_days = Timestamp::now() + SignedDuration::from_hours(72);
    let gone: BTreeSet<String> =
        collect(in_three_days).await.into_iter().map(|verdict| verdict.name).collect();
    let old = |end: &Credentials| end.manifest.assets["apiserver"].fingerprint.clone();
    let expected = BTreeSet::from([
        format!("pki/apiserver/{}.pem", old(&first)),
        format!("pki/apiserver/{}.sealed", old(&first)),
        format!("bundles/controller/credentials-{}", first.digests[&Role::Controller]),
    ]);
    assert_eq!(gone, expected);
    let left = bucket.list("clusters/prod/", 1000).await.unwrap();
    assert!(gone.iter().all(|name| !left.iter().any(|one| one.key.ends_with(name))));
    for name in &gone {
        assert_eq!(
            moto.versions("collect", &format!("clusters/prod/{name}")).await,
            1,
            "S3 keeps what it was"
        );
    }
    let end = credentials::ensure(&bucket, &kms, &AwsLc, &wide, now()).await.unwrap();
    assert_eq!((end.digests == second.digests, end.healed), (true, vec![]));
}

/// A worker chooses the keys below the folder of its role, and one that no parser of XML reads must not hide the others.
#[tokio::test]
async fn p7_a_worker_cannot_make_a_list_unreadable() {
    let moto = Moto::start();
    let bucket = moto.bucket("worker").await;
    let mut all =
        ["a", "a b", "a+b", "a%2Bb", "a%", "\u{1b}[2J", "\u{1}", "\u{fffe}", "\u{ffff}", "é", "<&\">"]
            .map(|name| format!("clusters/c/nodes/pool-a/{name}/status.json"));
    for key in &all {
        bucket.put(key, b"{}".to_vec(), Condition::Absent).await.unwrap();
    }
    all.sort();
    let mut listed: Vec<String> =
        bucket.list("clusters/c/", 100).await.unwrap().into_iter().map(|one| one.key).collect();
    listed.sort();
    assert_eq!(listed, all);
    for key in &listed {
        assert!(bucket.get(key).await.unwrap().is_some(), "{key:?}");
    }
    let folders = bucket.folders("clusters/c/nodes/pool-a/").await.unwrap();
    let mut of_folders: Vec<String> =
        folders.iter().map(|folder| format!("clusters/c/nodes/pool-a/{folder}/status.json")).collect();
    of_folders.sort();
    assert_eq!(of_folders, all);
}

#[tokio::test]
async fn a_group_of_three_is_seen_grows_and_loses_the_machine_that_is_named() {
    let moto = Moto::start();
    let client = aws_sdk_autoscaling::Client::new(&moto.config);
    let launch = client.create_launch_configuration().launch_configuration_name("old");
    launch.image_id("ami-12c6146b").instance_type("t3.micro").send().await.unwrap();
    let tag = aws_sdk_autoscaling::types::Tag::builder().key("slipway:cluster").value("prod");
    let group = client.create_auto_scaling_group().auto_scaling_group_name("prod-pool-general");
    let group = group.launch_configuration_name("old").min_size(1).max_size(5).desired_capacity(3);
    let group = group.availability_zones("eu-west-1a").availability_zones("eu-west-1b");
    group.tags(tag.build()).send().await.unwrap();

    let groups = Aws::new(moto.config.clone()).unwrap().groups();
    let look = async || groups.group("prod-pool-general").await.unwrap().unwrap();
    let seen = look().await;
    assert_eq!((seen.desired, seen.min, seen.max, seen.machines.len()), (3, 1, 5, 3));
    assert_eq!((seen.tags["slipway:cluster"].as_str(), seen.template), ("prod", None));
    let ready = |machine: &MachineView| {
        machine.lifecycle == Lifecycle::InService
            && machine.healthy
            && machine.zone.starts_with("eu-west-1")
            && machine.template.is_none()
    };
    assert!(seen.machines.values().all(ready), "{:?}", seen.machines);

    groups.raise_desired("prod-pool-general", 4).await.unwrap();
    groups.raise_desired("prod-pool-general", 4).await.unwrap();
    assert_eq!(look().await.machines.len(), 4);
    let gone = seen.machines.keys().next().unwrap();
    for _ in 0..2 {
        groups.terminate("prod-pool-general", gone, Some(3)).await.unwrap();
        let seen = look().await;
        assert_eq!((seen.desired, seen.machines.contains_key(gone)), (3, false));
    }
    assert_eq!(groups.group("prod-pool-other").await.unwrap(), None);
}

/// moto takes every registered target for healthy.
#[tokio::test]
async fn p5_machines_are_seen_as_targets_of_the_target_groups_that_their_group_is_attached_to() {
    let moto = Moto::start();
    let template = r#"{"Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
        "Api": {"Type": "AWS::ElasticLoadBalancingV2::TargetGroup", "Properties": {
            "Name": "prod-api", "VpcId": {"Ref": "Vpc"}, "Protocol": "TCP", "Port": 6443, "TargetType": "instance"}}},
        "Outputs": {"Api": {"Value": {"Ref": "Api"}}}}"#;
    let stacks = aws_sdk_cloudformation::Client::new(&moto.config);
    stacks.create_stack().stack_name("prod").template_body(template).send().await.unwrap();
    let made = stacks.describe_stacks().stack_name("prod").send().await.unwrap();
    let arn = made.stacks()[0].outputs()[0].output_value().unwrap().to_owned();
    let client = aws_sdk_autoscaling::Client::new(&moto.config);
    let launch = client.create_launch_configuration().launch_configuration_name("old");
    launch.image_id("ami-12c6146b").instance_type("t3.micro").send().await.unwrap();
    let group = client.create_auto_scaling_group().auto_scaling_group_name("prod-control-plane");
    let group = group.launch_configuration_name("old").min_size(2).max_size(3).desired_capacity(2);
    group.availability_zones("eu-west-1a").target_group_arns(&arn).send().await.unwrap();

    let groups = Aws::new(moto.config.clone()).unwrap().groups();
    let seen = groups.group("prod-control-plane").await.unwrap().unwrap();
    assert_eq!(seen.target_groups, BTreeSet::from([arn.clone()]));
    let targets = groups.targets(&arn).await.unwrap().unwrap();
    assert_eq!(targets.keys().collect::<Vec<_>>(), seen.machines.keys().collect::<Vec<_>>());
    assert!(targets.values().all(|state| *state == TargetState::Healthy), "{targets:?}");
    let said = std::collections::BTreeMap::from([(arn.clone(), Some(targets))]);
    let seen = seen.with_target_health(&said);
    assert!(seen.machines.values().all(|machine| machine.target == TargetHealth::Healthy), "{seen:?}");
    let other = arn.replace("prod-api", "prod-inner");
    assert_eq!(groups.targets(&other).await.unwrap(), None);
}

#[tokio::test]
async fn p8_a_command_is_sent_once_a_token_and_found_again_among_others() {
    let moto = Moto::start();
    let client = aws_sdk_ssm::Client::new(&moto.config);
    let commands = Aws::new(moto.config.clone()).unwrap().commands();
    let command = |token: &str, verb: Verb| node::Command {
        token: token.to_owned(),
        instance: "i-0abc123def4567890".to_owned(),
        verb,
    };
    let drain = Verb::Drain { node: "i-0abc123def4567890".to_owned(), for_s: 600, force_after_s: None };
    let (status, drain) = (command("prod/7/status", Verb::Status), command("prod/7/drain", drain));
    assert_eq!(commands.answer(&drain).await.unwrap(), None);
    for _ in 0..3 {
        commands.send(&status).await.unwrap();
        commands.send(&drain).await.unwrap();
    }
    let sent = client.list_commands().send().await.unwrap();
    assert_eq!(sent.commands().len(), 2);
    let drained = sent.commands().iter().find(|one| one.comment() == Some("prod/7/drain")).unwrap();
    assert_eq!(drained.document_name(), Some("Slipway-Drain"));
    assert_eq!(drained.parameters().unwrap()["For"], ["600"]);
    let id = drained.command_id().unwrap();
    assert_eq!(commands.token(id).await.unwrap().as_deref(), Some("prod/7/drain"));
    // moto runs nothing: every command of it succeeds and prints nothing.
    let view = commands.answer(&drain).await.unwrap().unwrap();
    let CommandView::Unanswered(view) = view else { panic!("{view:?}") };
    assert_eq!(view.how, HowUnanswered::Succeeded);
    assert_eq!(view.problem.as_deref(), Some("it printed nothing"));
}
