//! The announcements before certificates expire: one for each threshold, not one each day.

use jiff::Timestamp;

use super::{Announced, CertificateState, Observed, days_before, days_left};
use crate::rotation::{ExpiringAuthority, ExpiryReason};
use crate::{Origin, policy};

/// The thresholds for leaves, in days before they expire. At 0 they have expired.
pub const LEAF_DAYS: [u32; 6] = [30, 14, 7, 3, 1, 0];

/// The thresholds for authorities, which take longer to rotate.
pub const AUTHORITY_DAYS: [u32; 9] = [365, 180, 90, 30, 14, 7, 3, 1, 0];

/// An event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The asset.
    pub certificate: String,
    /// When it expires.
    pub ends: Timestamp,
    /// Whole days until then; negative once it has expired.
    pub days_left: i64,
    /// The threshold that was passed.
    pub threshold_days: u32,
    /// Where it is in use, if the inventory already has a newer one.
    pub place: Option<String>,
    /// When it is renewed automatically, if it is.
    pub renewed_from: Option<Timestamp>,
    /// The same in words.
    pub message: String,
    /// What the owner has to do.
    pub help: String,
}

/// The smallest threshold that `ends` has passed.
fn threshold(ends: Timestamp, thresholds: &[u32], now: Timestamp) -> Option<u32> {
    thresholds.iter().copied().filter(|days| days_before(ends, *days) <= now).min()
}

/// The thresholds for `standing`. An authority whose rotation is due but not automatic has one more: the day on which it is due.
fn thresholds(
    observed: &Observed<'_>,
    standing: &CertificateState,
    due: Option<&ExpiringAuthority>,
) -> Vec<u32> {
    if standing.group.is_some() {
        return LEAF_DAYS.to_vec();
    }
    let left_to_people = due.filter(|due| !due.start && !due.under_way);
    let more = left_to_people.and_then(|due| match due.why {
        ExpiryReason::Days(days) => Some(days),
        // It expires before a leaf that is issued now.
        ExpiryReason::Leaves => Some(observed.cluster.certificates.leaf_days),
        ExpiryReason::Year => None,
    });
    AUTHORITY_DAYS.into_iter().chain(more).collect()
}

/// The event about `standing` that was not published yet, if any, and what to remember as announced. `due`: its rotation is due, for an
/// authority.
pub(super) fn announce(
    observed: &Observed<'_>,
    standing: &CertificateState,
    due: Option<&ExpiringAuthority>,
    now: Timestamp,
) -> (Option<Announcement>, Option<Announced>) {
    let (ends, fingerprint, place) = standing.first_end();
    let Some(days) = threshold(ends, &thresholds(observed, standing, due), now) else { return (None, None) };
    let now_announced = Announced { fingerprint: fingerprint.to_owned(), days };
    let before = observed.state.announced.get(&standing.name);
    if let Some(before) = before.filter(|before| before.fingerprint == fingerprint && before.days <= days) {
        return (None, Some(before.clone()));
    }
    let remaining_days = days_left(ends, now);
    let name = &standing.name;
    let when = match remaining_days {
        _ if ends <= now => format!("expired at {ends}"),
        0 => format!("expires within a day, at {ends}"),
        1 => format!("expires in a day, at {ends}"),
        remaining_days => format!("expires in {remaining_days} days, at {ends}"),
    };
    let message = match place {
        None if due.is_some_and(|due| due.why == ExpiryReason::Leaves) => {
            format!("{name} {when}, and certificates that it signs are renewed soon and would outlive it")
        }
        None => format!("{name} {when}"),
        Some(place) => format!(
            "{name} is renewed in the store, and the one before it is still in use: {place}; that one {when}"
        ),
    };
    let announcement = Announcement {
        certificate: name.clone(),
        ends,
        days_left: remaining_days,
        threshold_days: days,
        place: place.map(str::to_owned),
        renewed_from: standing.renewed_from,
        message,
        help: help(observed, standing, due, place.is_some()),
    };
    (Some(announcement), Some(now_announced))
}

fn help(
    observed: &Observed<'_>,
    standing: &CertificateState,
    due: Option<&ExpiringAuthority>,
    elsewhere: bool,
) -> String {
    let (cluster, name) = (&observed.cluster.name, &standing.name);
    if elsewhere {
        return format!(
            "see what the rollout waits for (slipway status --cluster {cluster}); if none is open, upload the spec again, \
             or send Slipway-Refresh to the node"
        );
    }
    let rotates_by_itself =
        observed.cluster.certificates.ca_rotation_days.map(|days| days_before(standing.ends, days));
    match (standing.origin, standing.group) {
        (Origin::Generated, None) => match (due, rotates_by_itself) {
            (Some(due), _) if due.under_way => {
                format!("its rotation is under way; what that waits for: slipway rotate-ca {name} --cluster {cluster} --dry-run")
            }
            (Some(due), _) if due.start => "nothing: its rotation begins now".to_owned(),
            (_, Some(from)) => format!("nothing: its rotation begins by itself, at {from} at the latest"),
            (_, None) => format!("rotate it, in stages: slipway rotate-ca {name} --cluster {cluster}"),
        },
        (Origin::Imported | Origin::Provided, None) => {
            "you imported or provided it, and this version does not rotate it: build a cluster with another authority beside this one before it ends"
                .to_owned()
        }
        (Origin::Imported | Origin::Provided, Some(_)) => {
            let (certificate, key) = policy::import_files(name);
            format!(
                "you issue it: put the new certificate and its key into clusters/{cluster}/import/ as {certificate} and {key}, \
                 then upload the spec again"
            )
        }
        (Origin::Generated, Some(_)) => {
            let issuer = standing.issuer.as_deref().unwrap_or_default();
            match standing.renewed_from {
                _ if !standing.gains() => {
                    format!(
                        "no new one would last longer: its authority {issuer} ends. Rotate that: slipway rotate-ca {issuer} --cluster {cluster}"
                    )
                }
                Some(from) => format!("nothing: it is renewed by itself from {from}"),
                None => format!(
                    "set certificatesConfiguration.rolloutBeforeExpiry.enabled, or renew it by hand: slipway renew {name} \
                     --cluster {cluster}"
                ),
            }
        }
    }
}
