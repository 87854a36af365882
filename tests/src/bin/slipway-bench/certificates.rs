//! Measures how fast certificates are read and checked, and how fast their page is written.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use slipway_credentials::manifest::profile;
use slipway_credentials::policy;
use slipway_crypto::AwsLc;
use slipway_crypto::timeline::{self, Row};
use slipway_crypto::verify::{self, File, FileContent};
use slipway_ports::{Crypto as _, Secret, Signer};

use super::{Anyhow, PRODUCTION, RUNS, measure, row};

/// The number of certificates in one measurement.
const MANY: usize = 10_000;
/// The number of certificates for which `slipway certs` should be fast.
const PAGE: usize = 1_000;

/// The certificates of the production example, read repeatedly.
pub(crate) fn rates() -> Anyhow<()> {
    let now = Timestamp::now();
    let pems = pems(now)?;
    let ders: Vec<Vec<u8>> = pems.iter().map(|(_, pem)| verify::der(pem)).collect::<Result<_, _>>()?;
    let mut findings = 0;
    let mut alone: Vec<Duration> = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        for der in ders.iter().cycle().take(MANY) {
            findings += verify::verify_single("a", der, Some((now, 30)))?.1.len();
        }
        alone.push(started.elapsed());
    }
    rate("certificates read and checked, each alone", MANY, &mut alone, "target 100,000 a second a core");

    let files: Vec<File> = (0..PAGE / pems.len() + 1)
        .flat_map(|copy| {
            pems.iter().map(move |(name, pem)| File {
                // A name of no known layout: no key is expected beside the certificate.
                path: format!("{copy}.{name}.pem"),
                found: FileContent::Bytes(Secret::new(pem.clone().into_bytes())),
                mode: 0o600,
                link: false,
            })
        })
        .collect();
    let mut surveyed = measure(|| {
        findings += verify::read_files(&files).verify(None, now, 30).len();
    });
    rate("the same out of PEM files, with every signature", files.len(), &mut surveyed, "");
    if findings > 0 {
        return Err(format!("{findings} findings about certificates that are fine").into());
    }

    let survey = verify::read_files(&files);
    let rows: Vec<Row> = survey
        .certificates
        .iter()
        .take(PAGE)
        .map(|one| Row::from_certificate(&one.name, one, String::new()))
        .collect();
    let mut bytes = 0;
    let mut page = measure(|| bytes = timeline::page("production", &rows, &[], now, 30).len());
    row(&format!("the page of {} certificates, {} KiB", rows.len(), bytes / 1024), &mut page, "");
    Ok(())
}

/// The certificates of the production example, by name.
fn pems(now: Timestamp) -> Anyhow<Vec<(String, String)>> {
    let cluster =
        slipway_spec::parse(PRODUCTION.as_bytes(), None).map_err(|found| format!("{found:?}"))?.cluster;
    let mut signers = std::collections::BTreeMap::new();
    let mut pems = Vec::new();
    for asset in policy::assets(&cluster) {
        let Some(profile) = profile(&asset) else { continue };
        let signer = profile.issuer.as_ref().and_then(|issuer| signers.get(issuer));
        let made = AwsLc.issue(profile, signer, now)?;
        let certificate = made.public.ok_or("a certificate has a public half")?;
        pems.push((asset.name.clone(), certificate.clone()));
        signers.insert(asset.name, Signer { certificate, key: made.private });
    }
    Ok(pems)
}

#[allow(clippy::print_stdout, reason = "a benchmark is for a person to read")]
fn rate(what: &str, count: usize, times: &mut [Duration], target: &str) {
    times.sort();
    let median = times[times.len() / 2];
    println!("{what:<58} {:>8.0} /s   {target}", count as f64 / median.as_secs_f64());
}
