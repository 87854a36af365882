//! Measures how long a cluster's whole PKI takes, from keys to sealed bundles, compared with OpenSSL for the same number of keys.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use slipway_core::cluster::{Cluster, KeyAlgorithm};
use slipway_credentials::{AssetKind, policy};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::ensure;
use slipway_sim::memory::{MemoryBucket, MemoryKeys};

use super::{Anyhow, PRODUCTION, RUNS, row};

/// The duration of an RSA key depends on luck with primes, so our keys and OpenSSL's are made alternately, this many times.
const ROUNDS: usize = 5;

/// The production example's PKI with the default keys, and with RSA keys.
pub(crate) async fn whole() -> Anyhow<()> {
    let mut cluster =
        slipway_spec::parse(PRODUCTION.as_bytes(), None).map_err(|found| format!("{found:?}"))?.cluster;
    let mut first = Vec::new();
    for _ in 0..RUNS {
        first.push(once(&cluster).await?);
    }
    row("the whole PKI alone, P-256, with seals", &mut first, "target ≤ 25 ms");

    cluster.certificates.key_algorithm = KeyAlgorithm::Rsa2048;
    let keys = policy::assets(&cluster)
        .iter()
        .filter(|asset| matches!(asset.kind, AssetKind::Certificate(_) | AssetKind::KeyPair(_)))
        .count();
    let (mut ours, mut openssl) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(once(&cluster).await?);
        let started = Instant::now();
        for _ in 0..keys {
            genpkey()?;
        }
        openssl.push(started.elapsed());
    }
    let ours = row("the whole PKI alone, RSA-2048, with seals", &mut ours, "");
    let peer = row(&format!("peer: openssl genpkey, {keys} times RSA-2048"), &mut openssl, "");
    let ratio = ours.as_secs_f64() / peer.as_secs_f64();
    super::ratio("RSA-2048 PKI / openssl", ratio, "target ≤ 1.1 ×");
    Ok(())
}

async fn once(cluster: &Cluster) -> Anyhow<Duration> {
    let (bucket, keys) = (MemoryBucket::new("assets", &cluster.region), MemoryKeys::new(1));
    let started = Instant::now();
    let made = ensure(&bucket, &keys, &AwsLc, cluster, Timestamp::now()).await?;
    let took = started.elapsed();
    if made.made.is_empty() { Err("an empty bucket gets credentials".into()) } else { Ok(took) }
}

fn genpkey() -> Anyhow<()> {
    let arguments = ["genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
    let done =
        Command::new("openssl").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if done.success() { Ok(()) } else { Err(format!("openssl genpkey ended with {done}").into()) }
}
