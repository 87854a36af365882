//! The metrics of a scan, in CloudWatch's embedded metric format: a JSON object on standard output becomes a metric without a call.
//!
//! Metrics are billed by name and dimension for the hours in which they are written. So each cluster has one metric for the certificate
//! that expires first, and a certificate has its own only when it expires soon.

use std::io::Write as _;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_flows::scan::Scanned;

/// The namespace of Slipway's metrics.
const NAMESPACE: &str = "Slipway";
/// A certificate in use that expires within so many days is logged by each scan, for the alarm `ScanNeedsPersonAlarm`: the threshold of
/// `DaysToExpiryAlarm`, which acts only once for all clusters ("Alarm actions", Amazon CloudWatch User Guide).
const ALARM_DAYS: f64 = 3.0;
/// A certificate has its own metric if it expires within so many days.
const NEAR_DAYS: f64 = 60.0;
/// How many certificates of a cluster have their own metric at most: those that expire first.
const MOST: usize = 50;

/// Writes the metrics of `scanned`, and a line for each finding, which the alarm `ScanNeedsPerson` counts.
pub fn report(scanned: &Scanned, now: Timestamp) {
    let mut out = std::io::stdout().lock();
    for line in lines(scanned, now) {
        // If standard output is closed there is nobody to report to.
        let _ = writeln!(out, "{line}");
    }
    drop(out);
    for finding in &scanned.findings {
        tracing::error!(
            errorType = "Slipway.Finding",
            key = finding.key,
            help = finding.help,
            "{}",
            finding.message
        );
    }
    if let Some((days, name)) = first(scanned, now).filter(|(days, _)| *days <= ALARM_DAYS) {
        tracing::error!(
            errorType = "Slipway.Expiring",
            certificate = name,
            help = "`slipway certs show --cluster` says where it is in use, and `slipway status` why it is not renewed",
            "a certificate in use of {} expires in {days:.1} days",
            scanned.cluster
        );
    }
    for failed in &scanned.failed {
        tracing::error!(errorType = "Slipway.Renewal", certificates = ?failed.certificates, "{}", failed.message);
    }
}

/// Writes that a scan of so many clusters was requested. The alarm `ScanSilentAlarm` misses it.
pub fn report_requested(clusters: usize, now: Timestamp) {
    // If standard output is closed there is nobody to report to.
    let _ = writeln!(std::io::stdout(), "{}", requested(clusters, now));
}

fn requested(clusters: usize, now: Timestamp) -> Value {
    // Also counts where there is no cluster yet.
    embedded(json!({"ScansRequested": 1, "Clusters": clusters}), &[&[]], &["ScansRequested"], now)
}

/// Days until each certificate in use expires, the first one first.
fn days(scanned: &Scanned, now: Timestamp) -> Vec<(f64, &str)> {
    let days_left = |end: Timestamp| (end.as_second() - now.as_second()) as f64 / 86_400.0;
    let mut days: Vec<(f64, &str)> =
        scanned.standings.iter().map(|one| (days_left(one.first_end().0), one.name.as_str())).collect();
    days.sort_by(|one, other| one.0.total_cmp(&other.0));
    days
}

fn first(scanned: &Scanned, now: Timestamp) -> Option<(f64, &str)> {
    days(scanned, now).first().copied()
}

/// The metrics of a scan, one object each.
#[must_use]
pub fn lines(scanned: &Scanned, now: Timestamp) -> Vec<Value> {
    let days = days(scanned, now);
    let cluster = &scanned.cluster;
    let mut whole = json!({
        "Cluster": cluster,
        "Findings": scanned.findings.len(),
        "RenewalsFailed": scanned.failed.len(),
        "Renewed": scanned.renewed.len(),
    });
    let mut names = vec!["Findings", "RenewalsFailed", "Renewed"];
    if let Some((first, _)) = days.first() {
        whole["DaysToExpiry"] = json!(first);
        names.push("DaysToExpiry");
    }
    if let Some(newest) = scanned.newest_snapshot {
        whole["SnapshotAgeHours"] = json!((now.as_second() - newest.as_second()) as f64 / 3_600.0);
        names.push("SnapshotAgeHours");
    }
    if let Some(percent) = scanned.etcd_quota_percent {
        whole["EtcdQuotaPercent"] = json!(percent);
        names.push("EtcdQuotaPercent");
    }
    let near = days.iter().take_while(|(days_left, _)| *days_left <= NEAR_DAYS).take(MOST);
    let near = near.map(|(days_left, name)| {
        let one = json!({"Cluster": cluster, "Certificate": name, "DaysToExpiry": days_left});
        embedded(one, &[&["Cluster", "Certificate"]], &["DaysToExpiry"], now)
    });
    let whole = embedded(whole, &[&[], &["Cluster"]], &names, now);
    std::iter::once(whole).chain(near).collect()
}

fn embedded(mut line: Value, dimensions: &[&[&str]], names: &[&str], now: Timestamp) -> Value {
    let metrics: Vec<Value> = names.iter().map(|name| json!({"Name": name, "Unit": "None"})).collect();
    line["_aws"] = json!({
        "Timestamp": now.as_millisecond(),
        "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": dimensions, "Metrics": metrics}],
    });
    line
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use slipway_credentials::Origin;
    use slipway_credentials::renewal::{CertificateState, Elsewhere, Group};

    use super::*;

    const TEMPLATE: &str = include_str!("../../../infra/template.yaml");

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn scanned() -> Scanned {
        let now = now();
        let at = |days: i64| now + jiff::SignedDuration::from_hours(24 * days);
        let standing = |name: &str, days: i64, elsewhere: Option<i64>| CertificateState {
            name: name.to_owned(),
            issuer: None,
            origin: Origin::Generated,
            group: Some(Group::Etcd),
            fingerprint: "a".to_owned(),
            begins: now,
            ends: at(days),
            elsewhere: Vec::from_iter(elsewhere.map(|days| Elsewhere {
                ends: at(days),
                fingerprint: "b".to_owned(),
                place: "etcd-client on i-1 (etcd-0)".to_owned(),
            })),
            renewed_from: None,
            next_end: None,
            days: 365,
        };
        Scanned {
            cluster: "prod".to_owned(),
            standings: vec![
                standing("ca", 3000, None),
                standing("apiserver", 20, None),
                standing("etcd-peer-0", 364, Some(2)),
            ],
            renewed: vec!["etcd-peer-0".to_owned()],
            failed: Vec::new(),
            announced: Vec::new(),
            findings: Vec::new(),
            newest_snapshot: Some(now - jiff::SignedDuration::from_hours(3)),
            etcd_quota_percent: Some(81),
        }
    }

    /// The words in the template between each `before` and the next `end`.
    fn words(before: &str, end: &str) -> Vec<&'static str> {
        TEMPLATE.split(before).skip(1).filter_map(|after| Some(after.split_once(end)?.0)).collect()
    }

    /// Alarms and dashboard refer only to metrics that a scan writes, with the dimensions that it writes.
    #[test]
    fn alarms_and_dashboard_look_at_what_a_scan_writes() {
        let mut written: BTreeSet<(Vec<String>, String)> = BTreeSet::new();
        for line in lines(&scanned(), now()).into_iter().chain([requested(2, now())]) {
            let directive = &line["_aws"]["CloudWatchMetrics"][0];
            assert_eq!(directive["Namespace"], NAMESPACE);
            let sets: Vec<Vec<String>> = serde_json::from_value(directive["Dimensions"].clone()).unwrap();
            for metric in directive["Metrics"].as_array().unwrap() {
                let name = metric["Name"].as_str().unwrap();
                written.extend(sets.iter().map(|set| (set.clone(), name.to_owned())));
            }
        }
        // Metrics that CloudWatch derives from the logs.
        let counted = words("MetricNamespace: Slipway, MetricName: ", ",");
        written.extend(counted.iter().map(|name| (Vec::new(), (*name).to_owned())));

        let mut shown: BTreeSet<(Vec<String>, String)> = BTreeSet::new();
        for search in words("SEARCH('{Slipway,", "\\\"', ") {
            let (dimensions, name) = search.split_once("} MetricName=\\\"").unwrap();
            shown.insert((dimensions.split(',').map(str::to_owned).collect(), name.to_owned()));
        }
        shown.extend(words("[\"Slipway\", \"", "\"]").iter().map(|name| (Vec::new(), (*name).to_owned())));
        // Alarms name no dimension, because they cover the whole installation.
        for alarm in words("      Namespace: Slipway\n      MetricName: ", "TreatMissingData") {
            let (name, rest) = alarm.split_once('\n').unwrap();
            assert!(!rest.contains("Dimensions"), "{alarm}");
            shown.insert((Vec::new(), name.to_owned()));
        }
        let of = |name: &str| shown.iter().filter(|(_, shown)| shown == name).count();
        assert_eq!((of("DaysToExpiry"), of("RenewalsFailed"), of("ScanNeedsPerson")), (3, 1, 1), "{shown:?}");
        assert_eq!(of("EtcdQuotaPercent"), 1, "the alarm EtcdQuotaAlarm: {shown:?}");
        assert_eq!(of("ScansRequested"), 1, "the alarm ScanSilentAlarm: {shown:?}");
        let missing: Vec<_> = shown.difference(&written).collect();
        assert!(missing.is_empty(), "nobody writes {missing:?}; written are {written:?}");
    }

    #[test]
    fn p7_the_certificate_that_expires_first_is_that_of_the_alarm() {
        assert_eq!(first(&scanned(), now()), Some((2.0, "etcd-peer-0")));
        let threshold = words("      MetricName: DaysToExpiry\n", "TreatMissingData")[0];
        assert!(threshold.contains(&format!("Threshold: {ALARM_DAYS}\n")), "{threshold}");
    }

    #[test]
    fn each_cluster_has_a_metric_and_a_certificate_only_near_its_end() {
        let lines = lines(&scanned(), now());
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["DaysToExpiry"], 2.0, "what a node still has counts");
        assert_eq!(lines[0]["SnapshotAgeHours"], 3.0);
        assert_eq!(lines[0]["EtcdQuotaPercent"], 81);
        assert_eq!(lines[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"], json!([[], ["Cluster"]]));
        assert_eq!(lines[0]["_aws"]["Timestamp"], 1_795_176_000_000_i64);
        assert_eq!(
            (&lines[1]["Certificate"], &lines[1]["DaysToExpiry"]),
            (&json!("etcd-peer-0"), &json!(2.0))
        );
        assert_eq!(
            lines[2]["_aws"]["CloudWatchMetrics"][0]["Dimensions"],
            json!([["Cluster", "Certificate"]])
        );
        // Each declared name is present, as CloudWatch requires.
        for line in &lines {
            let directive = &line["_aws"]["CloudWatchMetrics"][0];
            let metrics = directive["Metrics"].as_array().unwrap().iter().map(|one| &one["Name"]);
            let dimensions =
                directive["Dimensions"].as_array().unwrap().iter().flat_map(|set| set.as_array().unwrap());
            for name in metrics.chain(dimensions) {
                assert!(line.get(name.as_str().unwrap()).is_some(), "{name} of {line}");
            }
        }
    }
}
