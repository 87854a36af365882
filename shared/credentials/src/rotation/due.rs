//! When an authority should be rotated: as many days before its end as the spec says, and before a leaf would outlive it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::Certificates;
use slipway_core::role::ROTATABLE;

use super::Stage;
use crate::{Manifest, Origin};

const DAY: i64 = 86_400;
/// Time for three rollouts with their approvals.
const LEAD_DAYS: u32 = 30;
/// An authority that expires within this time is reported.
const SPOKEN_OF: SignedDuration = SignedDuration::from_hours(365 * 24);

/// An authority that expires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringAuthority {
    /// Its name in the inventory, such as `etcd-ca`.
    pub name: String,
    /// When it expires.
    pub ends: Timestamp,
    /// Why it is reported.
    pub why: ExpiryReason,
    /// Whether the policy is to start its rotation now.
    pub start: bool,
    /// Whether Slipway can rotate it: it cannot if the user provides the authority.
    pub ours: bool,
    /// Whether its rotation is in progress.
    pub under_way: bool,
}

/// Why an authority is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryReason {
    /// It expires within so many days, as `caRotationDays` says.
    Days(u32),
    /// A leaf is renewed soon and would outlive it.
    Leaves,
    /// It expires within a year.
    Year,
}

impl fmt::Display for ExpiringAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the authority {} ends {}", self.name, self.ends)?;
        match self.why {
            ExpiryReason::Days(days) => write!(f, ", within caRotationDays ({days} days)")?,
            ExpiryReason::Leaves => {
                f.write_str(", and certificates that it signs are renewed soon and would outlive it")?
            }
            ExpiryReason::Year => f.write_str(", within a year")?,
        }
        match (self.under_way, self.ours, self.start) {
            (true, ..) => f.write_str("; its rotation is under way"),
            (false, false, _) => {
                f.write_str("; you imported or provided it, and this version does not rotate it")
            }
            (false, true, true) => f.write_str("; its rotation begins now"),
            (false, true, false) => write!(f, "; rotate it: `slipway rotate-ca {}`", self.name),
        }
    }
}

/// The authorities that should be rotated now or within a year. None is rotated automatically unless `caRotationDays` is set.
#[must_use]
pub fn due(manifest: &Manifest, policy: &Certificates, now: Timestamp) -> Vec<ExpiringAuthority> {
    ROTATABLE.into_iter().filter_map(|name| expiring_authority(manifest, policy, name, now)).collect()
}

fn expiring_authority(
    manifest: &Manifest,
    policy: &Certificates,
    name: &str,
    now: Timestamp,
) -> Option<ExpiringAuthority> {
    let entry = manifest.assets.get(name)?;
    let ends = entry.certificate.as_ref()?.not_after;
    let within = |days: u32| ends.as_second() - now.as_second() <= i64::from(days) * DAY;
    let days = policy.ca_rotation_days.filter(|days| within(*days));
    let why = match days {
        Some(days) => ExpiryReason::Days(days),
        None if leaves_outlive(manifest, policy, name, ends, now) => ExpiryReason::Leaves,
        None if ends.duration_since(now) <= SPOKEN_OF => ExpiryReason::Year,
        None => return None,
    };
    let under_way = manifest.rotations.get(name).is_some_and(|one| one.stage != Stage::Drop);
    let ours = entry.origin == Origin::Generated;
    let wanted = policy.ca_rotation_days.is_some() && why != ExpiryReason::Year;
    Some(ExpiringAuthority {
        name: name.to_owned(),
        ends,
        why,
        start: wanted && ours && !under_way,
        ours,
        under_way,
    })
}

/// Whether one of its leaves is renewed before a rotation could be complete, and would then outlive it.
fn leaves_outlive(
    manifest: &Manifest,
    policy: &Certificates,
    name: &str,
    ends: Timestamp,
    now: Timestamp,
) -> bool {
    let renewed = policy.rollout_before_expiry.map_or(0, |renewal| renewal.days);
    let lead = LEAD_DAYS.min(policy.leaf_days / 4) + renewed;
    let (lead, life) = (i64::from(lead) * DAY, i64::from(policy.leaf_days) * DAY);
    let Some(authority) = manifest.assets.get(name) else { return false };
    let others = manifest.assets.values().filter(|entry| entry.fingerprint != authority.fingerprint);
    let signed = others.filter_map(|entry| entry.certificate.as_ref());
    let leaves = signed.filter(|facts| facts.issuer_fingerprint == authority.fingerprint);
    let mut renewals = leaves.map(|facts| facts.not_after.as_second() - lead);
    renewals.any(|renewal| renewal <= now.as_second()) && now.as_second() + life > ends.as_second()
}
