//! Whether certificates that are renewed reach etcd and the controllers before the old ones expire, given windows, days, approval and how
//! long a roll takes (P7).
//!
//! What nothing can bring about in time is an error. What is in time only because windows and approval do not hold it up at the end is a
//! warning with the figures.

use jiff::SignedDuration;
use slipway_core::cluster::{Approval, Certificates, RolloutPolicy};
use slipway_core::deadline::{Roll, SCAN_EVERY, days, in_days, slowest_within};

use super::Lowering;
use crate::path::Path;

/// A person who is to approve something has so long: a weekend.
const PERSON: SignedDuration = SignedDuration::from_hours(48);

/// The fewest whole days that are not shorter than `time`.
fn whole_days(time: SignedDuration) -> i64 {
    const DAY_S: i64 = 24 * 3_600;
    time.as_secs().max(0) / DAY_S + i64::from(time.as_secs() % DAY_S > 0)
}

impl Lowering<'_, '_, '_> {
    /// Of a cluster with so many members of etcd and controllers.
    pub(super) fn renewal_in_time(
        &mut self,
        certificates: &Certificates,
        rollout: &RolloutPolicy,
        members: usize,
        controllers: u32,
    ) {
        let Some(policy) = certificates.rollout_before_expiry else { return };
        let path = Path::parse("certificatesConfiguration.rolloutBeforeExpiry.days");
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let roll = Roll { members, controllers, strategy: policy.strategy };
        // What was refused already is not reported again.
        if self.report.refused(&path) || policy.days >= certificates.leaf_days {
            return;
        }
        let room = days(policy.days) - SCAN_EVERY;
        let machines = roll.machines();
        if room < roll.usual() {
            let message = format!(
                "certificates are renewed too late: {} before they expire, less the {} after which the daily scan finds it, is less than the \
                 {} that {machines} machines of etcd and the control plane take",
                in_days(days(policy.days)),
                in_days(SCAN_EVERY),
                in_days(roll.usual()),
            );
            let least = whole_days(SCAN_EVERY + roll.usual());
            return self.report.error(
                "renewal-too-late",
                &path,
                message,
                format!("write `days: {least}` or more"),
            );
        }
        if room < roll.longest() {
            let message = format!(
                "the slowest roll of {machines} machines takes {}, and a renewal has {}: it begins at once, whatever windows and approval \
                 say, and if all goes slowly certificates expire before its end",
                in_days(roll.longest()),
                in_days(room)
            );
            let help = format!("write `days: {}` or more", whole_days(SCAN_EVERY + roll.longest()));
            self.report.warning("renewal-late", &path, message, help);
        }
        let lead = roll.lead(policy.emergency_days);
        self.held_up(certificates, rollout, roll, (days(policy.days) - SCAN_EVERY - lead, lead));
    }

    /// Whether windows and approval leave a renewal enough time, up to the moment from which on they do not hold it up.
    fn held_up(
        &mut self,
        certificates: &Certificates,
        rollout: &RolloutPolicy,
        roll: Roll,
        (room, lead): (SignedDuration, SignedDuration),
    ) {
        let manual = rollout.approval == Approval::Manual;
        if !manual && rollout.windows.is_empty() {
            return;
        }
        let Some(in_windows) = slowest_within(&rollout.windows, roll.machines(), roll.usually_each()) else {
            return;
        };
        let needed = in_windows + if manual { PERSON } else { SignedDuration::ZERO };
        if needed <= room {
            return;
        }
        let has = if room > SignedDuration::ZERO { in_days(room) } else { "no time".to_owned() };
        let (needs, machines) = (in_days(needed), roll.machines());
        let (path, what) = match (manual, rollout.windows.is_empty()) {
            (true, true) => {
                ("rollout.approval", format!("needs {needs} (two days for a person to approve it)"))
            }
            (true, false) => (
                "rollout.windows",
                format!(
                    "of {machines} machines needs up to {needs} (two days for a person to approve it, then these windows)"
                ),
            ),
            (false, _) => {
                ("rollout.windows", format!("of {machines} machines needs up to {needs} in these windows"))
            }
        };
        let held = match (manual, rollout.windows.is_empty()) {
            (true, true) => "begins without approval",
            (true, false) => "begins without approval and outside of the windows",
            (false, _) => "goes on outside of the windows",
        };
        let message = format!(
            "a renewal {what}, and has {has}: the part that is not complete {} before the first certificate expires {held}",
            in_days(lead)
        );
        let enough = whole_days(needed + lead + SCAN_EVERY);
        let mut help = match enough < i64::from(certificates.leaf_days) {
            true => format!("write `certificatesConfiguration.rolloutBeforeExpiry.days: {enough}` or more"),
            false => String::new(),
        };
        if !rollout.windows.is_empty() {
            help.push_str(if help.is_empty() {
                "open longer or more windows"
            } else {
                ", or open longer or more windows"
            });
        } else if help.is_empty() {
            help.push_str("write `approval: auto`");
        }
        self.report.warning("renewal-held-up", &Path::parse(path), message, help);
    }
}
