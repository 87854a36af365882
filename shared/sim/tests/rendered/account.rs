//! The templates that Slipway renders, in a simulated account.

use std::sync::{Arc, Mutex};

use slipway_core::cluster::Cluster;
use slipway_core::digest::sha256_hex;
use slipway_core::release::{Rendering, Site};
use slipway_core::role::Role;
use slipway_render::lock::Lock;
use slipway_render::{Inputs, render};
use slipway_sim::memory::MemoryBucket;
use slipway_sim::ports::{SharedWorld, SimulatedStacks};
use slipway_sim::{Config, World};
use slipway_spec::patch::Patch;

pub(crate) fn cluster(text: &str) -> Cluster {
    slipway_spec::parse(text.as_bytes(), None).unwrap().cluster
}

/// `cluster` with all versions pinned, and with credentials for every role.
pub(crate) fn rendering(cluster: &Cluster) -> Rendering {
    patched_rendering(cluster, &[])
}

pub(crate) fn patched_rendering(cluster: &Cluster, patches: &[Patch]) -> Rendering {
    let mut pinned = Lock { format: Lock::FORMAT, ..Lock::default() };
    let missing = pinned.missing(cluster);
    pinned.pin_known(&missing);
    pinned
        .images
        .extend(missing.parameters.into_iter().map(|name| (name, "ami-0123456789abcdef0".to_owned())));
    pinned.program_files.extend(missing.program_files.into_keys().map(|url| {
        let digest = sha256_hex(url.as_bytes());
        (url, digest)
    }));
    pinned.addon_images.extend(missing.addon_images.into_iter().map(|reference| {
        let digest = format!("sha256:{}", sha256_hex(reference.as_bytes()));
        (reference, digest)
    }));
    let members = cluster.etcd.members.iter().map(|member| Role::Etcd(member.index));
    let pools = cluster.pools.iter().map(|pool| Role::Pool(pool.name.clone()));
    let roles = members.chain([Role::Controller]).chain(pools);
    let credentials = roles.map(|role| (role.clone(), sha256_hex(role.to_string().as_bytes()))).collect();
    let site = Site {
        asset_bucket: "assets".to_owned(),
        kms_key_arn: "arn:aws:kms:eu-west-1:111122223333:key/0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0".to_owned(),
        region: None,
        issuer_bucket: Some("issuer".to_owned()),
        allowed: None,
    };
    render(&Inputs { patches, ..Inputs::new(cluster, &pinned, &credentials, &site) }).unwrap()
}

pub(crate) struct Account {
    pub(crate) world: SharedWorld,
    pub(crate) stacks: SimulatedStacks,
}

impl Account {
    pub(crate) fn new(region: &str) -> Self {
        let config = Config { region: region.to_owned(), ..Config::default() };
        let mut world = World::new(config);
        world.let_machines_go();
        let world = Arc::new(Mutex::new(world));
        let stacks = SimulatedStacks::new(Arc::clone(&world), MemoryBucket::new("assets", region));
        Self { world, stacks }
    }

    pub(crate) async fn launch(text: &str) -> (Self, Rendering) {
        let cluster = cluster(text);
        let account = Self::new(&cluster.region);
        let rendering = rendering(&cluster);
        for stack in &rendering.stacks {
            account.stacks.bring(stack).await;
        }
        (account, rendering)
    }
}
