//! The state that the last scan of certificates stored, and the rotations in progress.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use slipway_credentials::Manifest;
use slipway_credentials::renewal::State;
use slipway_credentials::rotation::{self, RotationStatus};

use super::findings::{Finding, Gravity, finding};
use super::words::{ago, plain};

/// The scan is daily. If one fails, the next one makes up for it.
const LATE: SignedDuration = SignedDuration::from_hours(50);

/// The last scan, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScanView {
    pub(crate) at: Timestamp,
    findings: Vec<slipway_credentials::renewal::Finding>,
    /// The certificate that cannot wait, in words.
    urgent: Option<String>,
}

impl ScanView {
    pub(super) fn new(scan: &State) -> Self {
        let urgent = scan.urgent.as_ref().map(slipway_credentials::renewal::Urgent::words);
        Self { at: scan.at, findings: scan.findings.clone(), urgent }
    }
}

/// The state of each rotation, with the command that continues it.
pub(super) fn of_rotations(cluster: &str, manifest: &Manifest) -> Vec<Finding> {
    let as_view = |(name, rotation): (&String, &rotation::Rotation)| {
        let RotationStatus { stage, meaning, next, .. } = rotation::rotation_status(name, rotation);
        let you = rotation::manual_steps(name, rotation.stage)
            .map(|you| format!("; you: {you}"))
            .unwrap_or_default();
        let message = format!("{name} is being rotated, at the stage {stage}: {meaning}; {next}{you}");
        let help = format!(
            "what it waits for: slipway rotate-ca {name} --cluster {cluster} --dry-run; without --dry-run and with --upload it goes on"
        );
        finding(Gravity::Notice, name, message, help)
    };
    manifest.rotations.iter().map(as_view).collect()
}

/// The findings of the last scan, except those about nodes, whose reports are read directly.
pub(super) fn of_scan(cluster: &str, scan: &State, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    let nodes = slipway_core::keys::nodes(cluster);
    for found in scan.findings.iter().filter(|found| !found.key.starts_with(&nodes)) {
        let message = format!("{}: {} (scanned {})", found.key, plain(&found.message), ago(scan.at, now));
        findings.push(finding(Gravity::Wrong, &found.key, message, plain(&found.help)));
    }
    if let Some(urgent) = &scan.urgent {
        let help = format!("slipway watch --cluster {cluster} shows the rollout that brings the new ones");
        findings.push(finding(Gravity::Wrong, &urgent.certificate, urgent.words(), help));
    }
    if now.duration_since(scan.at) > LATE {
        let message =
            format!("certificates were last looked at {}, and should be each day", ago(scan.at, now));
        let help =
            format!("slipway scan --cluster {cluster}; then see the schedule and the scan function's log");
        findings.push(finding(Gravity::Notice, "certificates", message, help));
    }
    findings
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;

    use slipway_credentials::renewal::{self, CertificateStatus as Certificate};
    use slipway_credentials::rotation::{Rotation, Stage};

    use super::super::certificates::fate;
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_rotation_shows_its_stage_what_comes_next_and_the_command() {
        let mut manifest = Manifest::default();
        let rotation = Rotation {
            stage: Stage::Trust,
            aborted: false,
            begun: at("2026-11-20T12:00:00Z"),
            since: at("2026-11-20T12:00:00Z"),
            settled: None,
            digests: BTreeMap::new(),
        };
        manifest.rotations.insert("ca".to_owned(), rotation);
        let found = of_rotations("prod", &manifest);
        for words in ["at the stage trust", "once every node has it", "distribute new kubeconfigs"] {
            assert!(found[0].message.contains(words), "{}", found[0].message);
        }
        assert!(found[0].help.contains("slipway rotate-ca ca --cluster prod"), "{}", found[0].help);
    }

    #[test]
    fn what_a_scan_found_shows_with_its_age_and_what_its_owner_does() {
        let (now, then) = (at("2026-11-22T12:00:00Z"), at("2026-11-19T12:00:00Z"));
        let mut scan = State::new(then);
        let found = |key: &str| renewal::Finding {
            key: key.to_owned(),
            message: "it is lost".to_owned(),
            help: "bring it back".to_owned(),
        };
        scan.findings = vec![
            found("clusters/prod/pki/apiserver/0.pem"),
            found("clusters/prod/nodes/etcd-0/i-0/status.json"),
        ];
        let scanned = of_scan("prod", &scan, now);
        assert_eq!(scanned.len(), 2, "a node's report is read itself: {scanned:?}");
        assert!(
            scanned[0].message.contains("it is lost (scanned 3 d ago)") && scanned[0].help == "bring it back"
        );
        assert!(
            scanned[1].message.contains("last looked at 3 d ago") && scanned[1].help.contains("slipway scan")
        );

        let ends = at("2026-12-10T12:00:00Z");
        for (renewed_from, words, well) in [
            (Some(at("2026-12-03T12:00:00Z")), "by itself from 2026-12-03", true),
            (Some(at("2026-11-21T12:00:00Z")), "was to be renewed from 2026-11-21", false),
            (None, "rolloutBeforeExpiry.enabled", false),
        ] {
            let certificate = Certificate { ends, group: None, renewed_from, older: BTreeMap::new() };
            scan.certificates.insert("apiserver".to_owned(), certificate);
            let fate = fate("prod", "apiserver", None, Some(&scan), now);
            assert_eq!(fate.is_ok(), well);
            let message = fate.unwrap_or_else(|message| message);
            assert!(message.contains(words), "{message}");
        }
    }
}
