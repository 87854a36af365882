//! How long the whole PKI of a cluster takes, from keys to sealed bundles: `issue_all SPEC [ROUNDS]` prints one JSON
//! object, the median of ROUNDS (7) in milliseconds for each key algorithm. `make bench` calls it.
#![allow(clippy::print_stdout, reason = "its output is its purpose")]

use std::time::Instant;

use jiff::Timestamp;
use slipway_core::cluster::{Cluster, KeyAlgorithm};
use slipway_core::pki::policy;
use slipway_core::spec;
use slipway_driver::credentials::ensure;
use slipway_pki::AwsLc;
use slipway_sim::memory::{MemoryBucket, MemoryKeys};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("which spec? For one, examples/production.yaml")?;
    let rounds: usize = arguments.next().map_or(Ok(7), |text| text.parse())?;
    let parsed = spec::parse(&std::fs::read(&path)?, None);
    let mut cluster = parsed.map_err(|findings| format!("{path} is refused: {findings:?}"))?.cluster;

    let mut figures = serde_json::Map::new();
    figures.insert("assets".to_owned(), policy::assets(&cluster).len().into());
    figures.insert("bundles".to_owned(), policy::roles(&cluster).len().into());
    for (name, algorithm) in [("P-256", KeyAlgorithm::EcdsaP256), ("RSA-2048", KeyAlgorithm::Rsa2048)] {
        cluster.certificates.key_algorithm = algorithm;
        let (mut first_ms, mut unchanged_ms) = (Vec::new(), Vec::new());
        for _ in 0..rounds.max(1) {
            let (first, unchanged) = round(&cluster).await?;
            first_ms.push(first);
            unchanged_ms.push(unchanged);
        }
        figures.insert(
            name.to_owned(),
            serde_json::json!({ "first_ms": median(first_ms), "unchanged_ms": median(unchanged_ms) }),
        );
    }
    println!("{}", serde_json::Value::Object(figures));
    Ok(())
}

/// A first run and an unchanged one over a bucket in memory, in milliseconds.
async fn round(cluster: &Cluster) -> Outcome<(f64, f64)> {
    let (bucket, keys) = (MemoryBucket::new("assets", &cluster.region), MemoryKeys::new(1));
    let start = Instant::now();
    let made = ensure(&bucket, &keys, &AwsLc, cluster, Timestamp::now()).await?;
    let first = start.elapsed();
    let start = Instant::now();
    let again = ensure(&bucket, &keys, &AwsLc, cluster, Timestamp::now()).await?;
    let unchanged = start.elapsed();
    if made.made.is_empty() || !again.made.is_empty() {
        return Err("the first run must make everything, the second nothing".into());
    }
    Ok((first.as_secs_f64() * 1e3, unchanged.as_secs_f64() * 1e3))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2] * 1000.0).round() / 1000.0
}
