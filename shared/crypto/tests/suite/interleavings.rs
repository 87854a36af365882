//! Renders that issue the first credentials of a cluster concurrently, in every order of their calls on shared objects. In every order, and
//! if any of them die, there is one PKI in the end.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_credentials::{Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::{self, Credentials};
use slipway_flows::error::FlowResult;
use slipway_ports::{Condition, Objects as _};

use crate::common::{cluster, now};
use crate::flow::{MANIFEST, bundle, ensure, stored, with_san};
use crate::schedule::{Choices, End, Gate, Granularity, Step};
use crate::world::World;

const AUTHORITIES: [&str; 4] = ["ca", "kubelet-ca", "etcd-ca", "front-proxy-ca"];

/// Runs a render of each spec concurrently, in the order of `choices`.
fn run(
    world: &World,
    specs: &[Cluster],
    choices: &mut Choices,
    granularity: Granularity,
    deaths: usize,
) -> (Vec<End<FlowResult<Credentials>>>, Vec<Step>) {
    crate::schedule::run(specs.len(), choices, granularity, deaths, |index, gate: Gate| {
        let (world, spec) = (world.clone(), specs[index].clone());
        async move {
            let ports = crate::schedule::Gated { world, gate };
            let end = credentials::ensure(&ports, &ports, &AwsLc, &spec, now()).await;
            if end.is_ok() {
                // The result: the plan that should be executed.
                ports.put(&keys::desired("prod"), b"{}".to_vec(), Condition::Absent).await?;
            }
            end
        }
    })
}

/// The objects that a manifest and its bundles refer to.
fn referred(manifest: &Manifest) -> BTreeSet<String> {
    let halves = manifest.assets.iter().flat_map(|(name, entry)| {
        ["pem", "sealed"].map(|half| format!("clusters/prod/pki/{name}/{}.{half}", entry.fingerprint))
    });
    let bundles = manifest
        .bundles
        .iter()
        .map(|(role, bundle)| format!("clusters/prod/bundles/{role}/credentials-{}", bundle.digest));
    halves.chain(bundles).chain([MANIFEST.to_owned(), keys::desired("prod")]).collect()
}

/// What must hold once all renders have ended or died.
fn check(
    world: &World,
    specs: &[Cluster],
    ends: &[End<FlowResult<Credentials>>],
    steps: &[Step],
    order: &str,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    // Each object that two of them touched, except for the inventory and `desired.json`, was written by only one, and read by the other
    // only after the first had written the inventory that names it. So no other order of these calls is possible.
    let mut writers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut inventories = BTreeSet::new();
    for step in steps.iter().filter(|step| step.is_object()) {
        if step.key == MANIFEST {
            if step.wrote {
                inventories.insert(step.process);
            }
            continue;
        }
        // `desired.json` is read if there is no inventory, and written by the first render once there is one. The test with every single
        // call tries that order.
        if step.key == keys::desired("prod") {
            assert!(!step.wrote || !inventories.is_empty(), "{order}: desired.json without an inventory");
            continue;
        }
        if step.wrote {
            let writer = *writers.entry(&step.key).or_insert(step.process);
            assert_eq!(writer, step.process, "{order}: two wrote {}", step.key);
        } else if let Some(writer) = writers.get(step.key.as_str()).filter(|writer| **writer != step.process)
        {
            assert!(
                inventories.contains(writer),
                "{order}: {} was read before the inventory named it",
                step.key
            );
        }
    }
    let written = stored_if_any(world);
    let survivors: Vec<&Credentials> = ends
        .iter()
        .filter_map(|end| match end {
            End::Finished(result) => Some(result.as_ref().unwrap()),
            End::Died => None,
        })
        .collect();
    if let Some(manifest) = &written {
        for end in &survivors {
            for authority in AUTHORITIES {
                assert_eq!(
                    end.manifest.assets[authority], manifest.assets[authority],
                    "{order}: a second {authority}"
                );
            }
        }
    } else {
        assert!(survivors.is_empty(), "{order}: a render that ended has written the inventory");
    }
    if specs.iter().all(|spec| *spec == specs[0]) && written.is_some() {
        assert_eq!(world.bucket.versions(MANIFEST), 1, "{order}: one inventory, written once");
        let made = survivors.iter().filter(|end| !end.made.is_empty()).count();
        assert!(made <= 1 && survivors.iter().all(|end| Some(&end.manifest) == written.as_ref()), "{order}");
    }
    // Only a render that lost or died leaves unused objects: a render that wrote an inventory wrote only objects that the inventory names.
    if let Some(manifest) = &written {
        let named = referred(manifest);
        let winners: BTreeSet<usize> = inventories.clone();
        let lost: BTreeSet<usize> = steps
            .iter()
            .filter(|step| step.key == MANIFEST && step.operation == "put" && !step.wrote)
            .map(|step| step.process)
            .collect();
        for key in world.bucket.keys().into_iter().filter(|key| !named.contains(key)) {
            let writer = writers[key.as_str()];
            let died = matches!(ends[writer], End::Died);
            // The next winner may have replaced the controllers' bundle and the API server's certificate of this one.
            let replaced = specs.iter().any(|spec| *spec != specs[0]) && winners.contains(&writer);
            assert!(
                lost.contains(&writer) || died || replaced,
                "{order}: nothing refers to {key} of {writer}"
            );
        }
    }
    // Finally one render runs alone: everything exists or is issued, and can be opened.
    runtime.block_on(async {
        let end = ensure(world, &specs[0]).await.unwrap();
        if let Some(before) = &written {
            for authority in AUTHORITIES {
                assert_eq!(end.manifest.assets[authority], before.assets[authority], "{order}");
            }
        }
        for role in policy::roles(&specs[0]) {
            bundle(world, &end, &role).await;
        }
        assert_eq!(ensure(world, &specs[0]).await.unwrap().digests, end.digests);
    });
}

fn stored_if_any(world: &World) -> Option<Manifest> {
    world.bucket.peek(MANIFEST).map(|_| stored(world))
}

/// Runs every order, and returns their number.
fn explore(specs: &[Cluster], granularity: Granularity, deaths: usize) -> usize {
    let mut choices = Choices::default();
    let mut orders = 0;
    loop {
        let world = World::new();
        let (ends, steps) = run(&world, specs, &mut choices, granularity, deaths);
        check(&world, specs, &ends, &steps, &format!("{choices:?}"));
        orders += 1;
        assert!(orders < 20_000, "too many to try");
        if !choices.next() {
            return orders;
        }
    }
}

#[test]
fn p8_two_first_renders_of_one_spec_in_every_order_end_with_one_pki() {
    let orders = explore(&[cluster(), cluster()], Granularity::Shared, 0);
    assert!(orders >= 6, "{orders}");
}

#[test]
fn p8_two_first_renders_of_different_specs_in_every_order_end_with_one_pki() {
    let orders = explore(&[cluster(), with_san(&cluster())], Granularity::Shared, 0);
    assert!(orders >= 6, "{orders}");
}

#[test]
fn p8_two_first_renders_of_which_one_dies_anywhere_in_every_order_end_with_one_pki() {
    let orders = explore(&[cluster(), with_san(&cluster())], Granularity::Shared, 1);
    assert!(orders >= 20, "{orders}");
}

#[test]
fn p8_three_first_renders_in_every_order_end_with_one_pki() {
    let orders = explore(&[cluster(), cluster(), cluster()], Granularity::Shared, 0);
    assert!(orders >= 90, "{orders}");
}

/// The same without assuming which objects are shared: one is stopped at each of its calls, and the other runs to its end.
#[test]
fn p8_stopped_at_every_single_call_while_another_render_runs_both_end_with_one_pki() {
    let orders = explore(&[cluster(), cluster()], Granularity::OneSwitch, 0);
    assert!(orders > 60, "{orders}");
}
