//! The events about a scan: what expires, what could not be renewed, what was renewed.

use slipway_core::event::{CertificateExpiring, CertificateRenewed, Event, RenewalFailed};
use slipway_credentials::Manifest;
use slipway_credentials::renewal::{Announcement, Decision, Planned, Urgent};

/// The events about a scan that `decision` was made for. `renewed` and `failed` say what came of the renewals that it asked for.
pub(super) fn of_scan(
    cluster: &str,
    decision: &Decision,
    manifest: &Manifest,
    planned: Option<&Planned>,
    renewed: &[String],
    failed: &[RenewalFailed],
) -> Vec<Event> {
    let mut events: Vec<Event> = decision.announce.iter().map(|one| expiring(cluster, one)).collect();
    events.extend(failed.iter().cloned().map(Event::RenewalFailed));
    if !renewed.is_empty() || decision.unplanned {
        let lacks = |digests: &Planned| {
            let roles = manifest.bundles.iter().filter(|(role, bundle)| {
                digests.digests.get(*role).is_some_and(|digest| *digest != bundle.digest)
            });
            roles.map(|(role, _)| role.to_string()).collect()
        };
        let certificates = match renewed {
            // Renewed by an earlier scan, which may have died before it announced them.
            [] => decision.next.superseded.keys().cloned().collect(),
            renewed => renewed.to_vec(),
        };
        events.push(Event::CertificateRenewed(CertificateRenewed {
            cluster: cluster.to_owned(),
            certificates,
            roles: planned.map(lacks).unwrap_or_default(),
            urgent: decision.next.urgent.as_ref().map(Urgent::words),
        }));
    }
    events
}

fn expiring(cluster: &str, one: &Announcement) -> Event {
    Event::CertificateExpiring(CertificateExpiring {
        cluster: cluster.to_owned(),
        certificate: one.certificate.clone(),
        not_after: one.ends.to_string(),
        days_left: one.days_left,
        threshold_days: one.threshold_days,
        place: one.place.clone(),
        renewed_from: one.renewed_from.map(|from| from.to_string()),
        message: one.message.clone(),
        help: one.help.clone(),
    })
}
