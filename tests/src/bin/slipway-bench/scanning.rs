//! Measures the cost of reading certificates: of each one, compared with other programs, and of a fleet of clusters.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use slipway_core::keys;
use slipway_credentials::manifest::{self, names};
use slipway_credentials::renewal::RenewalRequest;
use slipway_credentials::{Entry, Manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::scan::{ScanOutcome, ScanPorts, fan_out, scan};
use slipway_flows::store;
use slipway_ports::{
    Condition, Crypto as _, Folders, Head, Listed, Listing, Object, Objects, PortResult, Put, Removal, Signer,
};
use slipway_sim::memory::{MemoryBus, MemoryKeys};
use slipway_sim::ports::SimulatedGroups;
use slipway_sim::world::{Config, World};
use slipway_sim::year::prices;
use slipway_tests::tools;

use super::{Anyhow, PRODUCTION, RUNS, row};

/// The number of certificates in one measurement.
const MANY: usize = 20_000;
/// The number of openssl processes in one measurement; each reads one certificate.
const PROCESSES: usize = 100;
/// The number of clusters in the fleet. Each has 23 certificates, the most that a spec may need, so that the fleet has as many certificates
/// as 10,000 clusters with 25.
const CLUSTERS: usize = 10_870;
/// The argument by which this program scans a fleet in a process of its own.
pub(crate) const FLEET: &str = "--fleet";

/// Python's cryptography package on one core: reads each certificate and the fields that a scan needs.
const PYTHON: &str = "
import sys, time
from cryptography import x509
from cryptography.hazmat.primitives import hashes
pems = sys.stdin.buffer.read().split(b'\\0')
many = int(sys.argv[1])
started = time.process_time()
for index in range(many):
    one = x509.load_pem_x509_certificate(pems[index % len(pems)])
    one.serial_number, one.not_valid_before_utc, one.not_valid_after_utc, one.fingerprint(hashes.SHA256())
print(time.process_time() - started)
";

/// The processor time of this thread, which does not depend on other load.
fn processor() -> Anyhow<Duration> {
    let spent = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let spent = spent.split_whitespace().next().ok_or("the kernel says nothing of this thread")?;
    Ok(Duration::from_nanos(spent.parse()?))
}

/// Reads certificates one after the other, like the scan and like other programs.
pub(crate) fn rates(now: Timestamp) -> Anyhow<()> {
    let fleet = Fleet::new(now)?;
    let pems: Vec<&[u8]> =
        fleet.objects.values().filter(|bytes| bytes.starts_with(b"-----BEGIN")).map(Vec::as_slice).collect();
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let started = processor()?;
        for pem in pems.iter().cycle().take(MANY) {
            let seen = AwsLc.examine("a", pem).map_err(|flaw| flaw.message)?;
            if !seen.flaws.is_empty() {
                return Err(format!("flaws of a certificate that is fine: {:?}", seen.flaws).into());
            }
        }
        times.push(processor()?.saturating_sub(started));
    }
    times.sort();
    let ours = MANY as f64 / times[RUNS / 2].as_secs_f64();
    rate("certificates out of PEM, looked at as a scan does", ours, "target ≥ 100,000 a second a core");

    let mut child = Command::new(tools::python()?)
        .args(["-c", PYTHON, &MANY.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or("a pipe")?.write_all(&pems.join(&0))?;
    let output = child.wait_with_output()?;
    let seconds: f64 = String::from_utf8(output.stdout)?.trim().parse()?;
    rate("    the same by Python's cryptography", MANY as f64 / seconds, "");

    let started = Instant::now();
    for pem in pems.iter().cycle().take(PROCESSES) {
        let mut child = Command::new("openssl")
            .args(["x509", "-noout", "-serial", "-dates", "-fingerprint", "-sha256"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        child.stdin.take().ok_or("a pipe")?.write_all(pem)?;
        child.wait()?;
    }
    rate(
        "    the same by openssl x509, a process each",
        PROCESSES as f64 / started.elapsed().as_secs_f64(),
        "",
    );
    Ok(())
}

fn rate(what: &str, rate: f64, target: &str) {
    println!("{what:<58} {rate:>8.0} /s   {target}");
}

/// Scans a fleet in a process that does nothing else.
pub(crate) fn fleet() -> Anyhow<()> {
    let mut peaks = Vec::new();
    for clusters in [CLUSTERS / 10, CLUSTERS] {
        let child = Command::new(std::env::current_exe()?).args([FLEET, &clusters.to_string()]).output()?;
        let said = String::from_utf8(child.stdout)?;
        let numbers: Vec<f64> = said.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [seconds, peak_kib, certificates, reads, lists, writes] = numbers[..] else {
            return Err(format!("a fleet says {said:?}: {}", String::from_utf8_lossy(&child.stderr)).into());
        };
        peaks.push(peak_kib);
        if clusters < CLUSTERS {
            continue;
        }
        let each = Duration::from_secs_f64(seconds / clusters as f64);
        row(&format!("a scan of {certificates:.0} certificates, store in memory"), &mut [each], "");
        println!(
            "{:<58} {:>8.1} MiB  target ≤ 64 MiB; {:.1} MiB after a tenth of them",
            format!("peak memory after {clusters} clusters"),
            peaks[1] / 1024.0,
            peaks[0] / 1024.0
        );
        dollars(each, reads, lists, writes);
    }
    Ok(())
}

/// The monthly cost in eu-west-1, by AWS' prices of November 2026 and the counted calls.
fn dollars(each: Duration, reads: f64, lists: f64, writes: f64) {
    let scans = CLUSTERS as f64 * 30.0;
    // 256 MB get a seventh of the core that this was measured on. S3 answers in some 30 ms, and sixteen calls run in parallel.
    let busy_s = each.as_secs_f64() * 7.0 + 0.030 * (6.0 + reads / 16.0);
    let lambda = scans * (0.25 * busy_s * prices::GIGABYTE_SECOND + prices::INVOCATION);
    let s3 = scans * (reads * prices::S3_READ + (lists + writes) * prices::S3_WRITE);
    let events = scans * prices::EVENT;
    let metrics = scans * 4.0 * prices::METRIC_HOUR;
    println!(
        "{:<58} {:>8.2} $    Lambda {lambda:.2} ({busy_s:.2} s each), S3 {s3:.2} ({reads:.0} reads, {lists:.0} lists, {writes:.0} writes each), \
         EventBridge {events:.2}",
        format!("a month of daily scans of {CLUSTERS} clusters"),
        lambda + s3 + events,
    );
    println!(
        "{:<58} {metrics:>8.2} $    four metrics a cluster, one hour a day",
        "    and their metrics in CloudWatch, at most"
    );
}

/// Scans this many clusters one after the other, and prints the seconds, the peak memory in KiB, and the calls per cluster.
pub(crate) async fn one_fleet(clusters: usize) -> Anyhow<()> {
    let now = Timestamp::now();
    let fleet = Fleet { clusters, ..Fleet::new(now)? };
    let (keys, bus) = (MemoryKeys::new(1), MemoryBus::new());
    // No authority is rotated, so no machine is queried.
    let groups = SimulatedGroups::new(Arc::new(Mutex::new(World::new(Config::default()))));
    let ports =
        ScanPorts { specs: &fleet, assets: &fleet, groups: &groups, keys: &keys, bus: &bus, crypto: &AwsLc };
    let (mut certificates, started) = (0, Instant::now());
    for index in 0..clusters {
        let outcome =
            scan(&ports, &name(index), &RenewalRequest::default(), now + SignedDuration::from_hours(24))
                .await?;
        let ScanOutcome::Scanned(scanned) = outcome else { return Err(format!("{outcome}").into()) };
        if !scanned.findings.is_empty() || !scanned.renewed.is_empty() {
            return Err(format!("{scanned:?}").into());
        }
        certificates = scanned.standings.len();
        drop(bus.drain());
    }
    let seconds = started.elapsed().as_secs_f64();
    let counted = *lock(&fleet.counted);
    let asked = fan_out(&fleet, &Forgetful).await?;
    if asked != clusters {
        return Err(format!("asked for {asked} of {clusters} clusters").into());
    }
    let status = std::fs::read_to_string("/proc/self/status")?;
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel says no VmHWM")?;
    let each = |count: usize| count as f64 / clusters as f64;
    let [reads, lists, writes] = counted.map(each);
    println!("{seconds} {} {certificates} {reads} {lists} {writes}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}

fn name(index: usize) -> String {
    format!("fleet-{index:05}")
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A bus that discards events.
struct Forgetful;

impl slipway_flows::ports::Bus for Forgetful {
    async fn publish(&self, _: &[slipway_core::event::Event]) -> PortResult<()> {
        Ok(())
    }
}

/// Buckets with any number of equal clusters. Writes are discarded.
struct Fleet {
    clusters: usize,
    /// The objects of each cluster, by the key below its folder.
    objects: BTreeMap<String, Vec<u8>>,
    spec: String,
    /// The numbers of reads, lists and writes.
    counted: Mutex<[usize; 3]>,
}

impl Fleet {
    fn new(now: Timestamp) -> Anyhow<Self> {
        // The largest number of members that a spec may have.
        let spec = PRODUCTION.replacen("etcd:\n  count: 3\n", "etcd:\n  count: 5\n", 1);
        let cluster =
            slipway_spec::parse(spec.as_bytes(), None).map_err(|found| format!("{found:?}"))?.cluster;
        let (mut objects, mut signers) = (BTreeMap::new(), BTreeMap::<String, Signer>::new());
        let mut inventory = Manifest { format: manifest::FORMAT, ..Manifest::default() };
        for asset in policy::assets(&cluster) {
            let mut entry = Entry {
                fingerprint: "0".repeat(64),
                names: names(&asset.kind),
                certificate: None,
                roles: Default::default(),
                origin: asset.origin,
                chain: None,
            };
            if let Some(profile) = manifest::profile(&asset) {
                let signer = profile.issuer.as_ref().and_then(|issuer| signers.get(issuer));
                let made = AwsLc.issue(profile, signer, now)?;
                let pem = made.public.ok_or("a certificate has a public half")?;
                let (facts, fingerprint) = AwsLc.facts(&pem)?;
                (entry.certificate, entry.fingerprint) = (Some(facts), fingerprint);
                objects.insert(
                    format!("pki/{}/{}.pem", asset.name, entry.fingerprint),
                    pem.clone().into_bytes(),
                );
                signers.insert(asset.name.clone(), Signer { certificate: pem, key: made.private });
            }
            inventory.assets.insert(asset.name, entry);
        }
        objects.insert("pki/manifest.json".to_owned(), store::json(&inventory));
        Ok(Self { clusters: 0, objects, spec, counted: Mutex::default() })
    }

    fn count(&self, what: usize) {
        lock(&self.counted)[what] += 1;
    }

    fn read(&self, key: &str) -> Option<Vec<u8>> {
        let (cluster, rest) = key.strip_prefix(keys::CLUSTERS)?.split_once('/')?;
        if rest == "cluster.yaml" {
            return Some(
                self.spec.replace("clusterName: production", &format!("clusterName: {cluster}")).into_bytes(),
            );
        }
        self.objects.get(rest).cloned()
    }
}

impl Objects for Fleet {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        self.count(0);
        Ok(self.read(key).map(|bytes| Object { bytes, etag: "e".to_owned(), version: "v".to_owned() }))
    }

    async fn get_version(&self, key: &str, _: &str) -> PortResult<Option<Object>> {
        self.get(key).await
    }

    async fn head(&self, key: &str) -> PortResult<Option<Head>> {
        self.count(0);
        let head =
            |bytes: Vec<u8>| Head { version: "v".to_owned(), size: bytes.len() as u64, etag: "e".to_owned() };
        Ok(self.read(key).map(head))
    }

    async fn put(&self, _: &str, _: Vec<u8>, _: Condition) -> PortResult<Put> {
        self.count(2);
        Ok(Put::Written("e".to_owned()))
    }

    fn url(&self, key: &str) -> String {
        key.to_owned()
    }
}

impl Listing for Fleet {
    async fn list(&self, prefix: &str, most: usize) -> PortResult<Vec<Listed>> {
        self.count(1);
        let Some((folder, rest)) = prefix.strip_prefix(keys::CLUSTERS).and_then(|key| key.split_once('/'))
        else {
            return Ok(Vec::new());
        };
        let found = self.objects.iter().filter(|(key, _)| key.starts_with(rest)).take(most);
        Ok(found
            .map(|(key, bytes)| Listed {
                key: format!("{}{folder}/{key}", keys::CLUSTERS),
                etag: "e".to_owned(),
                size: bytes.len() as u64,
                modified: Timestamp::UNIX_EPOCH,
            })
            .collect())
    }
}

impl Removal for Fleet {
    async fn remove(&self, _: &str) -> PortResult<()> {
        Ok(())
    }
}

impl Folders for Fleet {
    async fn folders_after(&self, _: &str, after: Option<&str>) -> PortResult<Vec<String>> {
        const PAGE: usize = 1_000;
        let next = after
            .and_then(|after| after.strip_prefix("fleet-")?.parse::<usize>().ok())
            .map_or(0, |last| last + 1);
        Ok((next..self.clusters.min(next + PAGE)).map(name).collect())
    }
}
