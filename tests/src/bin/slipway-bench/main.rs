//! `make bench`: measures costs, and compares each with the lowest possible cost, measured in the same run.
//!
//! `slipway-bench --scanning` measures only scans, and `slipway-bench --rolling` only rolls. All figures are medians, because machines are
//! noisy. `docs/benchmarks.md` has the last recorded figures.

#![allow(clippy::print_stdout, reason = "a benchmark is for a person to read")]

mod certificates;
mod functions;
mod issuing;
mod rolling;
mod scanning;

use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use slipway_core::cluster::{Cluster, KeyAlgorithm};
use slipway_core::release::Site;
use slipway_credentials::{AssetKind, policy};
use slipway_crypto::AwsLc;
use slipway_flows::rendering::RenderOutcome;
use slipway_ports::Crypto as _;
use slipway_render::lock::Lock;
use slipway_sim::memory::OWN_KEY;
use slipway_tests::workshop::Workshop;

type Anyhow<T> = Result<T, Box<dyn Error>>;

/// The argument to measure only scans.
const SCANNING: &str = "--scanning";
/// The argument to measure only rolls.
const ROLLING: &str = "--rolling";
/// The argument to upload so many times, and to do nothing else: `tests/scripts/count_instructions.py` compares the costs.
const UPLOADS: &str = "--uploads";
const PRODUCTION: &str = include_str!("../../../../examples/production.yaml");

#[tokio::main]
async fn main() -> Anyhow<()> {
    if let [_, asked, pools] = std::env::args().collect::<Vec<_>>().as_slice()
        && asked == ONE_RENDERING
    {
        return one_rendering(pools.parse()?);
    }
    if let [_, asked, clusters] = std::env::args().collect::<Vec<_>>().as_slice()
        && asked == scanning::FLEET
    {
        return scanning::one_fleet(clusters.parse()?).await;
    }
    if let [_, asked, uploads] = std::env::args().collect::<Vec<_>>().as_slice()
        && asked == UPLOADS
    {
        return upload(uploads.parse()?).await;
    }
    if std::env::args().nth(1).is_some_and(|asked| asked == SCANNING) {
        scanning::rates(jiff::Timestamp::now())?;
        return scanning::fleet();
    }
    if std::env::args().nth(1).is_some_and(|asked| asked == ROLLING) {
        return rolling::rolls();
    }
    let production = PRODUCTION.as_bytes();
    let accepted =
        slipway_spec::parse(production, Some(&slipway_spec::Expected { name: "production", region: None }))
            .map_err(|found| format!("{found:?}"))?;
    println!("slipway bench, medians of {RUNS} runs\n");

    let mut first = Vec::new();
    let mut unchanged = Vec::new();
    for _ in 0..RUNS {
        let workshop = Workshop::for_spec(PRODUCTION);
        let started = Instant::now();
        let outcome = workshop.outcome(PRODUCTION).await;
        first.push(started.elapsed());
        let RenderOutcome::Planned(plan) = outcome else {
            return Err("the first upload makes a plan".into());
        };
        workshop.deployed(&plan).await;
        let started = Instant::now();
        let outcome = workshop.outcome(PRODUCTION).await;
        unchanged.push(started.elapsed());
        assert_eq!(outcome, RenderOutcome::Unchanged, "the same bytes change nothing");
    }
    let first = row("first full render with all PKI (production.yaml)", &mut first, "target ≤ 60 ms");
    row("the same again", &mut unchanged, "target ≤ 5 ms");

    let keys = policy::assets(&accepted.cluster)
        .iter()
        .filter(|asset| matches!(asset.kind, AssetKind::Certificate(_) | AssetKind::KeyPair(_)))
        .count();
    let mut floor = measure(|| {
        for _ in 0..keys {
            AwsLc.make(&AssetKind::KeyPair(KeyAlgorithm::EcdsaP256)).expect("a P-256 key can be made");
        }
    });
    let floor = row(&format!("floor: its {keys} P-256 keys alone"), &mut floor, "");
    ratio("first render / floor", first.as_secs_f64() / floor.as_secs_f64(), "");
    println!();
    issuing::whole().await?;
    println!();
    pools()?;
    println!();
    certificates::rates()?;
    scanning::rates(jiff::Timestamp::now())?;
    scanning::fleet()?;
    println!();
    rolling::rolls()?;
    println!();
    functions::memory().await
}

/// The number of runs of which each figure is the median.
const RUNS: usize = 11;

/// Uploads the production spec `count` times, the first of which makes everything and is rolled out.
async fn upload(count: usize) -> Anyhow<()> {
    let workshop = Workshop::for_spec(PRODUCTION);
    // AWS-LC collects entropy from the processor's jitter once per process. That costs as much as half of a first render, and never the same twice.
    AwsLc.make(&AssetKind::KeyPair(KeyAlgorithm::EcdsaP256)).map_err(|error| error.to_string())?;
    for upload in 0..count {
        let outcome = workshop.outcome(PRODUCTION).await;
        if upload == 0
            && let RenderOutcome::Planned(plan) = &outcome
        {
            workshop.deployed(plan).await;
        } else if upload == 0 || outcome != RenderOutcome::Unchanged {
            return Err(format!("upload {upload}: {outcome}").into());
        }
    }
    Ok(())
}

/// Measures rendering alone, for growing numbers of pools.
fn pools() -> Anyhow<()> {
    let mut last: Option<(usize, Duration)> = None;
    for count in [1, 10, 50, 100] {
        let spec = with_pools(PRODUCTION, count);
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let started = Instant::now();
            parse_and_render(&spec)?;
            times.push(started.elapsed());
        }
        let time = row(&format!("parse and render with {count} pools"), &mut times, "");
        if let Some((fewer, before)) = last {
            let each = time.saturating_sub(before).as_secs_f64() * 1e3 / (count - fewer) as f64;
            println!("{:<58} {each:>8.3} ms   target ≤ 1 ms", "    each further pool");
        }
        last = Some((count, time));
    }
    // In a new process, which has done nothing else.
    let child = Command::new(std::env::current_exe()?).args([ONE_RENDERING, "100"]).output()?;
    let peak_kib: f64 = String::from_utf8(child.stdout)?.trim().parse()?;
    println!(
        "{:<58} {:>8.1} MiB  target ≤ 64 MiB",
        "peak memory of a process that renders 100 pools",
        peak_kib / 1024.0
    );
    Ok(())
}

/// The argument by which this program measures one rendering in a process of its own.
const ONE_RENDERING: &str = "--one-rendering";

/// Renders once, and prints the process' peak resident memory in KiB.
fn one_rendering(pools: usize) -> Anyhow<()> {
    parse_and_render(&with_pools(PRODUCTION, pools))?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel says no VmHWM")?;
    println!("{}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}

fn parse_and_render(spec: &str) -> Anyhow<()> {
    let site = Site {
        asset_bucket: "assets".to_owned(),
        kms_key_arn: OWN_KEY.to_owned(),
        region: None,
        issuer_bucket: Some("issuer".to_owned()),
        allowed: None,
    };
    let place = slipway_spec::Expected { name: "production", region: None };
    let cluster =
        slipway_spec::parse(spec.as_bytes(), Some(&place)).map_err(|found| format!("{found:?}"))?.cluster;
    let credentials = policy::roles(&cluster).into_iter().map(|role| (role, "0".repeat(64))).collect();
    slipway_render::render(&slipway_render::Inputs::new(&cluster, &lock(&cluster), &credentials, &site))
        .map_err(|errors| format!("{errors:?}"))?;
    Ok(())
}

/// The production spec with `count` pools like its first one.
fn with_pools(text: &str, count: usize) -> String {
    let (head, rest) = text.split_once("  nodePools:\n").expect("the example has pools");
    let tail = rest.find("\nkubernetes:").map(|at| &rest[at..]).expect("the example goes on after its pools");
    let pool = |number: usize| {
        format!(
            "    - name: pool-{number}\n      instanceType: m7i.xlarge\n      subnets:\n        - name: private-a\n      \
             autoScalingGroup:\n        minSize: 2\n        maxSize: 10\n"
        )
    };
    let pools: String = (0..count).map(pool).collect();
    format!("{head}  nodePools:\n{pools}{tail}")
}

/// A lock that pins everything that `cluster` needs.
fn lock(cluster: &Cluster) -> Lock {
    let mut lock = Lock { format: Lock::FORMAT, ..Lock::default() };
    let missing = lock.missing(cluster);
    lock.pin_known(&missing);
    let images = missing.parameters.into_iter().map(|name| (name, "ami-0123456789abcdef0".to_owned()));
    lock.images.extend(images);
    let digest = format!("sha256:{}", "0".repeat(64));
    lock.program_files.extend(missing.program_files.into_keys().map(|url| (url, "0".repeat(64))));
    lock.addon_images.extend(missing.addon_images.into_iter().map(|image| (image, digest.clone())));
    lock
}

fn measure(mut work: impl FnMut()) -> Vec<Duration> {
    (0..RUNS)
        .map(|_| {
            let started = Instant::now();
            work();
            started.elapsed()
        })
        .collect()
}

fn ratio(what: &str, ratio: f64, target: &str) {
    println!("{what:<58} {ratio:>8.2} ×    {target}");
}

/// Prints a line and returns the median.
fn row(what: &str, times: &mut [Duration], target: &str) -> Duration {
    times.sort();
    let median = times[times.len() / 2];
    println!("{what:<58} {:>8.2} ms   {target}", median.as_secs_f64() * 1e3);
    median
}
