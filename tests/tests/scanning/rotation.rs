//! An authority is exchanged by the scan: a stage at a time, and none before every machine of every group has told that it has the last.

use serde_json::json;
use slipway_credentials::rotation::Stage;
use slipway_flows::credentials::rotation;
use slipway_flows::ports::Groups as _;
use slipway_sim::ports::lock;
use slipway_sim::world::MachineFacts;

use super::recovery::{facts, fleet};
use super::*;

fn role(machine: &MachineFacts) -> Role {
    machine.role.parse().unwrap()
}

impl World {
    /// The machine tells that the credentials are in force which its role has now.
    fn tells(&self, machine: &MachineFacts, manifest: &Manifest, at: Timestamp) {
        let status = json!({"format": 1, "at": at, "cluster": NAME, "role": machine.role,
            "applied": {"asAsked": true, "credentials": manifest.bundles[&role(machine)].digest},
            "components": [], "healthy": true, "served": []});
        self.assets.upload(&keys::node_status(NAME, &machine.role, &machine.id), status.to_string());
    }

    /// Where the rotation of `ca` is; `None`: it is over.
    fn stage(&self) -> Option<Stage> {
        self.manifest().rotations.get("ca").map(|rotation| rotation.stage)
    }
}

#[tokio::test]
async fn p7_a_stage_of_an_exchange_follows_when_every_machine_of_every_group_has_told_of_the_last() {
    let mut world = World::launched(PRODUCTION).await;
    world.cloud = fleet(&world, 1).await;
    // One more than the spec asks for: only Auto Scaling knows of it.
    let pool = facts(&world.cloud).into_iter().find(|one| one.role == "pool-general-a").unwrap();
    let groups = SimulatedGroups::new(Arc::clone(&world.cloud));
    groups.raise_desired(&pool.group, 3).await.unwrap();
    let later = lock(&world.cloud).now() + SignedDuration::from_mins(30);
    lock(&world.cloud).advance(later);
    let (machines, mut now) = (facts(&world.cloud), launch() + days(10));
    assert_eq!(machines.iter().filter(|one| one.group == pool.group).count(), 3, "{machines:?}");

    let cluster = slipway_spec::parse(PRODUCTION.as_bytes(), None).unwrap().cluster;
    // A machine that is gone told something else, and is waited for by nobody.
    let gone = MachineFacts { id: "i-gone".to_owned(), ..pool.clone() };
    world.tells(&gone, &world.manifest(), now);
    let mut before = world.manifest();
    rotation::change(&world.assets, &world.keys, &AwsLc, &cluster, "ca", now, rotation::Request::Start)
        .await
        .unwrap();

    for (stage, next) in
        [(Stage::Trust, Some(Stage::Issue)), (Stage::Issue, Some(Stage::Drop)), (Stage::Drop, None)]
    {
        now += days(1);
        assert_eq!(world.stage(), Some(stage));
        let manifest = world.manifest();
        // What the launch templates carry is waited for too, whatever machines tell.
        for machine in &machines {
            world.tells(machine, &manifest, now);
        }
        world.scan(now).await;
        assert_eq!(world.stage(), Some(stage), "templates have what was before");
        let plan = world.planned(now).await.unwrap();
        world.deployed(&plan).await;

        // One machine of any role holds it up, the last that came included: never heard of, or with what was before.
        let last: BTreeMap<&str, &MachineFacts> =
            machines.iter().map(|machine| (machine.role.as_str(), machine)).collect();
        for machine in last.into_values() {
            let key = keys::node_status(NAME, &machine.role, &machine.id);
            world.assets.purge(&key);
            world.scan(now).await;
            assert_eq!(world.stage(), Some(stage), "{machine:?} was never heard of");
            // The last stage is in force where its bundle is the same.
            if before.bundles[&role(machine)].digest != manifest.bundles[&role(machine)].digest {
                world.tells(machine, &before, now);
                world.scan(now).await;
                assert_eq!(world.stage(), Some(stage), "{machine:?} has what was before");
            }
            world.tells(machine, &manifest, now);
        }
        world.scan(now).await;
        assert_eq!(world.stage(), next, "every machine has told");
        before = manifest;
    }
    assert!(!world.manifest().assets.contains_key("ca-previous"));
}
