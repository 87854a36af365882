//! Slipway's templates in the simulated AWS: every example is created, stays unchanged without a change, is updated after a change, and is
//! deleted; and its machines boot, are terminated, and are replaced.
#![allow(clippy::unwrap_used)]

mod account;
mod machines;

use account::{Account, cluster, patched_rendering, rendering};
use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::release::Stack;
use slipway_core::role::Role;
use slipway_flows::ports::Stacks as _;
use slipway_sim::ports::lock;
use slipway_spec::patch::{self, Patch};

const PRODUCTION: &str = include_str!("../../../../examples/production.yaml");

/// The text of every example that is a single file.
fn examples() -> Vec<String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut specs: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "yaml")).collect();
    specs.sort();
    assert!(specs.len() > 25, "{specs:?}");
    let texts = specs.iter().map(|path| std::fs::read_to_string(path).unwrap());
    // Imports from stacks of others need these stacks: tests/tests/templates makes them.
    texts.filter(|text| !text.contains("idFromStackOutput")).collect()
}

#[tokio::test]
async fn p1_every_example_comes_to_be_and_the_same_again_changes_nothing() {
    for text in examples() {
        let (account, rendering) = Account::launch(&text).await;
        for stack in &rendering.stacks {
            assert_eq!(account.stacks.bring(stack).await, None, "{}", stack.name);
        }
    }
}

#[tokio::test]
async fn every_example_can_be_deleted_and_leaves_only_what_it_means_to_keep() {
    for text in examples() {
        let (account, rendering) = Account::launch(&text).await;
        for stack in rendering.stacks.iter().rev() {
            // No stack deletes the records that members wrote.
            lock(&account.world).clear_records();
            lock(&account.world).delete(&stack.name).unwrap();
            lock(&account.world).settle();
            let left = account.stacks.failures(&stack.name).await.unwrap();
            assert_eq!(lock(&account.world).stack_status(&stack.name), None, "{}: {left:#?}", stack.name);
        }
        let kept = lock(&account.world).existing();
        let odd: Vec<_> = kept.iter().filter(|(kind, _)| kind != "AWS::EC2::Volume").collect();
        assert!(odd.is_empty(), "{}: {odd:?}", rendering.cluster);
    }
}

/// The example with patches in its folder.
fn patched() -> (Cluster, Vec<Patch>) {
    let files = [
        ("10-monitoring.yaml", include_str!("../../../../examples/patched/patches/10-monitoring.yaml")),
        ("20-office.yaml", include_str!("../../../../examples/patched/patches/20-office.yaml")),
        ("30-hooks.yaml", include_str!("../../../../examples/patched/patches/30-hooks.yaml")),
        ("40-nodes.yaml", include_str!("../../../../examples/patched/patches/40-nodes.yaml")),
    ];
    let files = files.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).into();
    (cluster(include_str!("../../../../examples/patched/cluster.yaml")), patch::parse(&files).unwrap())
}

#[tokio::test]
async fn a_running_cluster_takes_its_patches_and_lets_go_of_them() {
    let (cluster, patches) = patched();
    let (plain, patched) = (rendering(&cluster), patched_rendering(&cluster, &patches));
    let account = Account::new(&cluster.region);
    for stack in &plain.stacks {
        account.stacks.bring(stack).await;
    }
    let mut changed = Vec::new();
    for stack in &patched.stacks {
        match account.stacks.bring(stack).await {
            Some(replaced) => {
                assert_eq!(replaced, Vec::<String>::new(), "{}", stack.name);
                changed.push(stack.name.as_str());
            }
            None => assert!(plain.stacks.contains(stack), "{}", stack.name),
        }
    }
    assert_eq!(changed, ["patched-network", "patched-pool-general", "patched-pool-batch"]);
    let took_away = account.stacks.bring(plain.stack("patched-network").unwrap()).await;
    assert_eq!(took_away, Some(vec!["OfficeSecurityGroup".to_owned()]), "the removed resources are reported");
}

#[tokio::test]
async fn p2_a_pools_size_changes_that_pool_alone_and_replaces_nothing() {
    let mut target = cluster(PRODUCTION);
    let (account, old) = Account::launch(PRODUCTION).await;
    target.pools[0].size.max += 1;
    let new = rendering(&target);
    let changed: Vec<&Stack> = new.stacks.iter().filter(|stack| !old.stacks.contains(stack)).collect();
    assert_eq!(changed.len(), 1);
    assert_eq!(account.stacks.bring(changed[0]).await, Some(Vec::new()));
}

#[tokio::test]
async fn p2_new_credentials_of_a_controller_replace_no_resource() {
    let (account, old) = Account::launch(PRODUCTION).await;
    let mut new = old.clone();
    for stack in &mut new.stacks {
        let digest = &old.roles[&Role::Controller].credentials_digest;
        stack.body = stack.body.replace(digest.as_str(), &"f".repeat(digest.len()));
        stack.sha256 = sha256_hex(stack.body.as_bytes());
    }
    let changed: Vec<&Stack> = new.stacks.iter().filter(|stack| !old.stacks.contains(stack)).collect();
    let names: Vec<&str> = changed.iter().map(|stack| stack.name.as_str()).collect();
    assert_eq!(names, ["production-control-plane"]);
    assert_eq!(account.stacks.bring(changed[0]).await, Some(Vec::new()));
}
