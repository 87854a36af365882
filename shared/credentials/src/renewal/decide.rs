//! The decision: what to renew and what to announce.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::RolloutBeforeExpiry;
use slipway_core::deadline;
use slipway_core::digest::sha256_hex;

use super::announce::announce;
use super::certificate_state::standings;
use super::{
    CertificateState, CertificateStatus, DAY_S, Decision, Group, Observed, Renew, Renewal, SPREAD_DAYS,
    State, Urgent, days_before, seconds_before,
};
use crate::Origin;
use crate::manifest::BACKDATED;
use crate::rotation::due;

/// Decides. It never fails, whatever the inventory and the time are.
#[must_use]
pub fn decide(observed: &Observed<'_>, now: Timestamp) -> Decision {
    let (mut standings, mut findings) = standings(observed, now);
    let policy = observed.cluster.certificates.rollout_before_expiry;
    for standing in &mut standings {
        standing.renewed_from = policy.and_then(|policy| renewed_from(observed, standing, policy));
    }
    let renew = renewals(observed, &standings, now);
    let renewed: Vec<&str> =
        renew.iter().flat_map(|one| &one.certificates).map(|one| one.name.as_str()).collect();

    let due = due(observed.manifest, &observed.cluster.certificates, now);
    let (mut announcements, mut announced) = (Vec::new(), BTreeMap::new());
    for standing in &standings {
        // The expiry of a certificate that is being renewed now is not announced: the result of the renewal is.
        if renewed.contains(&standing.name.as_str()) && standing.first_end().2.is_none() {
            announced.extend(
                observed.state.announced.get_key_value(&standing.name).map(|(k, v)| (k.clone(), v.clone())),
            );
            continue;
        }
        let due = due.iter().find(|due| due.name == standing.name);
        let (announcement, now_announced) = announce(observed, standing, due, now);
        announcements.extend(announcement);
        announced.extend(now_announced.map(|now_announced| (standing.name.clone(), now_announced)));
    }
    findings.sort();
    findings.dedup();
    let next = State {
        format: State::FORMAT,
        at: now,
        announced,
        superseded: still_superseded(observed, &standings),
        urgent: deadline::lead(observed.cluster).and_then(|lead| urgent(lead, &standings, &renewed, now)),
        certificates: standings.iter().map(|one| (one.name.clone(), certificate_status(one))).collect(),
        findings: findings.clone(),
    };
    let unplanned = observed.planned.is_some_and(|planned| {
        planned.digests.iter().any(|(role, digest)| {
            observed.manifest.bundles.get(role).is_some_and(|bundle| bundle.digest != *digest)
        })
    });
    Decision { renew, announce: announcements, findings, standings, unplanned, next }
}

/// When a certificate that expires at `ends` is renewed in the cluster `name`, if it is issued for `issued_days` and renewed `days`
/// before.
#[must_use]
pub fn renewal_time(name: &str, ends: Timestamp, days: u32, issued_days: u32) -> Timestamp {
    // Never so early that a newly issued certificate would already be due.
    let room_s = i64::from(issued_days.saturating_sub(days)) * DAY_S / 2;
    let spread_s = (i64::from(SPREAD_DAYS) * DAY_S).min(room_s);
    // The cluster's share of the spread, in 65,536ths. It depends on the name only.
    let share = i64::from(u16::from_str_radix(&sha256_hex(name.as_bytes())[..4], 16).unwrap_or_default());
    seconds_before(days_before(ends, days), spread_s * share / 65_536)
}

/// Whether Slipway can renew it.
fn is_ours(standing: &CertificateState) -> bool {
    standing.group.is_some() && standing.origin == Origin::Generated
}

fn renewed_from(
    observed: &Observed<'_>,
    standing: &CertificateState,
    policy: RolloutBeforeExpiry,
) -> Option<Timestamp> {
    is_ours(standing).then(|| renewal_time(&observed.cluster.name, standing.ends, policy.days, standing.days))
}

fn is_requested(observed: &Observed<'_>, standing: &CertificateState) -> bool {
    let request = observed.request;
    // A certificate that was issued after the request answers it.
    let issued = standing.begins.saturating_add(BACKDATED).unwrap_or(standing.begins);
    let answered = request.at.is_some_and(|at| issued >= at);
    is_ours(standing) && !answered && (request.everything || request.certificates.contains(&standing.name))
}

fn renewals(observed: &Observed<'_>, standings: &[CertificateState], now: Timestamp) -> Vec<Renewal> {
    let mut renewals = Vec::new();
    for group in [Group::Etcd, Group::ControlPlane, Group::Administrator] {
        let ours: Vec<&CertificateState> =
            standings.iter().filter(|one| one.group == Some(group) && is_ours(one)).collect();
        let is_due = |one: &CertificateState| one.gains() && one.renewed_from.is_some_and(|from| from <= now);
        let any_due = ours.iter().any(|one| is_due(one));
        // Others of the group that have passed half of their life are renewed with it.
        let goes_along = |one: &CertificateState| {
            let half_life_s = i64::from(one.days) * DAY_S / 2;
            any_due && one.gains() && one.ends.as_second() - now.as_second() < half_life_s
        };
        let chosen = ours.iter().filter(|one| is_due(one) || goes_along(one) || is_requested(observed, one));
        let certificates: Vec<Renew> = chosen
            .map(|one| Renew {
                name: one.name.clone(),
                fingerprint: one.fingerprint.clone(),
                ends: one.ends,
                due: is_due(one),
            })
            .collect();
        if !certificates.is_empty() {
            renewals.push(Renewal { group, certificates });
        }
    }
    renewals
}

/// The certificate that expires first among those that nodes use until the newest ones arrive, if it expires so soon that its renewal
/// overrides windows and approval.
fn urgent(
    lead: SignedDuration,
    standings: &[CertificateState],
    renewed: &[&str],
    now: Timestamp,
) -> Option<Urgent> {
    let on_nodes = standings
        .iter()
        .filter(|one| is_ours(one) && matches!(one.group, Some(Group::Etcd | Group::ControlPlane)));
    let ends = on_nodes.flat_map(|one| {
        let own = renewed.contains(&one.name.as_str()).then_some(one.ends);
        let others = one.elsewhere.iter().map(|other| other.ends);
        own.into_iter().chain(others).map(|ends| (ends, &one.name))
    });
    let (ends, certificate) = ends.min()?;
    (ends.duration_since(now) <= lead).then(|| Urgent {
        certificate: certificate.clone(),
        ends,
        expired: ends <= now,
    })
}

/// The certificates that were renewed and may still be in use.
fn still_superseded(
    observed: &Observed<'_>,
    standings: &[CertificateState],
) -> BTreeMap<String, super::Superseded> {
    let in_use = |name: &String, fingerprint: &String| {
        let standing = standings.iter().find(|one| one.name == *name);
        standing.is_none_or(|one| {
            // Its renewal was planned and has not happened yet.
            one.fingerprint == *fingerprint || !one.elsewhere.is_empty()
        })
    };
    let kept = observed.state.superseded.iter().filter(|(name, before)| in_use(name, &before.fingerprint));
    kept.map(|(name, before)| (name.clone(), before.clone())).collect()
}

fn certificate_status(standing: &CertificateState) -> CertificateStatus {
    CertificateStatus {
        ends: standing.ends,
        group: standing.group,
        renewed_from: standing.renewed_from,
        older: standing.elsewhere.iter().map(|other| (other.place.clone(), other.ends)).collect(),
    }
}
