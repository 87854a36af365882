//! When an authority should be rotated: the spec says how many days before its end, and no leaf may outlive it.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use slipway_core::cluster::Certificates;
use slipway_core::role::ROTATABLE;

use super::Stage;
use crate::{Manifest, Origin};

const DAY: i64 = 86_400;
/// Three rollouts, and somebody who approves them, take a while.
const LEAD_DAYS: u32 = 30;
/// An authority that ends within this is spoken of.
const SPOKEN_OF: SignedDuration = SignedDuration::from_hours(365 * 24);

/// An authority that ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Its name.
    pub name: String,
    /// When it ends.
    pub ends: Timestamp,
    /// Why it is spoken of.
    pub why: Why,
    /// Whether the policy says to rotate it now.
    pub start: bool,
    /// Whether it can be: what was brought is exchanged by whoever brings it.
    pub ours: bool,
    /// Its rotation is under way.
    pub under_way: bool,
}

/// Why an authority is spoken of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It ends within so many days, as `caRotationDays` says.
    Days(u32),
    /// A certificate that it signed is renewed soon, and would outlive it.
    Leaves,
    /// It ends within a year.
    Year,
}

impl fmt::Display for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the authority {} ends {}", self.name, self.ends)?;
        match self.why {
            Why::Days(days) => write!(f, ", within caRotationDays ({days} days)")?,
            Why::Leaves => {
                f.write_str(", and certificates that it signs are renewed soon and would outlive it")?
            }
            Why::Year => f.write_str(", within a year")?,
        }
        match (self.under_way, self.ours, self.start) {
            (true, ..) => f.write_str("; its rotation is under way"),
            (false, false, _) => f.write_str("; you brought it, and this version does not exchange it"),
            (false, true, true) => f.write_str("; its rotation begins now"),
            (false, true, false) => write!(f, "; rotate it: `slipway rotate-ca {}`", self.name),
        }
    }
}

/// The authorities that should be rotated, or will have to be within a year. While `caRotationDays` is not given, none is rotated by
/// itself.
#[must_use]
pub fn due(manifest: &Manifest, policy: &Certificates, now: Timestamp) -> Vec<Due> {
    ROTATABLE.into_iter().filter_map(|name| one(manifest, policy, name, now)).collect()
}

fn one(manifest: &Manifest, policy: &Certificates, name: &str, now: Timestamp) -> Option<Due> {
    let entry = manifest.assets.get(name)?;
    let ends = entry.certificate.as_ref()?.not_after;
    let within = |days: u32| ends.as_second() - now.as_second() <= i64::from(days) * DAY;
    let days = policy.ca_rotation_days.filter(|days| within(*days));
    let why = match days {
        Some(days) => Why::Days(days),
        None if leaves_outlive(manifest, policy, name, ends, now) => Why::Leaves,
        None if ends.duration_since(now) <= SPOKEN_OF => Why::Year,
        None => return None,
    };
    let under_way = manifest.rotations.get(name).is_some_and(|one| one.stage != Stage::Drop);
    let ours = entry.origin == Origin::Generated;
    let wanted = policy.ca_rotation_days.is_some() && why != Why::Year;
    Some(Due { name: name.to_owned(), ends, why, start: wanted && ours && !under_way, ours, under_way })
}

/// Whether a certificate that it signed comes up for renewal before a rotation could be through, and would outlive it then.
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
