//! Imports authorities as a person does: uploads `import/`, renders, and reads the objections.

use jiff::Timestamp;
use slipway_core::cluster::Cluster;
use slipway_crypto::AwsLc;
use slipway_crypto::testing::Own;
use slipway_flows::credentials::{self, Constraints, Credentials, NodeBundles};
use slipway_flows::error::FlowResult;
use slipway_flows::imports;
use slipway_sim::memory::{MemoryBucket, MemoryParameters};

use crate::flow::stored;
use crate::world::World;

pub(crate) const PASSPHRASE: &str = "correct horse";
pub(crate) const PARAMETER: &str = "/slipway/prod/ca-passphrase";

/// A spec bucket with the `import/` of a directory, and a parameter with the passphrase.
pub(crate) fn uploaded(own: &Own) -> (MemoryBucket, MemoryParameters) {
    let specs = MemoryBucket::new("specs", "eu-west-1");
    for (name, bytes) in own.files() {
        specs.upload(&format!("clusters/prod/import/{name}"), bytes);
    }
    let parameters = MemoryParameters::default();
    parameters.set_secret(PARAMETER, &format!("{PASSPHRASE}\n"));
    (specs, parameters)
}

/// The result of a render: credentials, or the code and message of each objection.
pub(crate) async fn render(
    world: &World,
    (specs, parameters): &(MemoryBucket, MemoryParameters),
    cluster: &Cluster,
    now: Timestamp,
) -> Result<FlowResult<Credentials>, Vec<String>> {
    let beside = imports::BucketImports { cluster: "prod", specs, parameters };
    let manifest = world.bucket.peek(crate::flow::MANIFEST).map(|_| stored(world)).unwrap_or_default();
    let (imported, found) =
        imports::read(&beside, &world.bucket, &AwsLc, cluster, &manifest, now).await.unwrap();
    for objection in &found {
        assert!(!objection.help.is_empty(), "{objection:?}");
        let all = format!("{objection:?}");
        assert!(!all.contains(PASSPHRASE) && !all.contains("MII"), "{all}");
    }
    if !found.is_empty() {
        return Err(found.into_iter().map(|one| format!("{}: {}", one.code, one.message)).collect());
    }
    let given = Constraints { known: &NodeBundles::new(), imported: &imported };
    Ok(credentials::ensure_with(&world.bucket, &world.kms, &AwsLc, cluster, &given, now).await)
}

pub(crate) async fn accepted(
    world: &World,
    uploads: &(MemoryBucket, MemoryParameters),
    cluster: &Cluster,
) -> Credentials {
    render(world, uploads, cluster, Timestamp::now())
        .await
        .unwrap_or_else(|found| panic!("{found:#?}"))
        .unwrap()
}

/// The single objection of a first render.
pub(crate) async fn objection(own: &Own, cluster: &Cluster) -> String {
    objection_at(own, cluster, Timestamp::now()).await
}

pub(crate) async fn objection_at(own: &Own, cluster: &Cluster, now: Timestamp) -> String {
    let world = World::new();
    let found = render(&world, &uploaded(own), cluster, now).await.unwrap_err();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(world.bucket.keys().is_empty(), "something was stored");
    found.into_iter().next().unwrap()
}
