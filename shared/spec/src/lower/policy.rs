//! Certificates, rollouts and tags.

use std::collections::BTreeMap;

use slipway_core::allowed::is_ownership_tag;
use slipway_core::cluster::{
    Approval, Certificates, CountOrPercent, KeyAlgorithm, MaintenanceWindow, NodePool, RenewalStrategy,
    RolloutBeforeExpiry, RolloutPolicy, Upgrades,
};

use slipway_core::pin::Pin;

use super::Lowering;
use super::network::Draft;
use crate::model::{CountText, WindowSpec};
use crate::path::Path;
use crate::text::is_tag_text;

const CA_DAYS: u32 = 3650;
const LEAF_DAYS: u32 = 365;
const RENEWAL_DAYS: u32 = 7;
const MOST_EMERGENCY_DAYS: u32 = 3;
/// CloudFormation takes 50 tags a stack; some are ours.
const MOST_TAGS: usize = 40;

impl Lowering<'_, '_, '_> {
    pub(super) fn certificates(&mut self) -> Certificates {
        let spec = &self.spec.certificates_configuration;
        let ca_days = self.spec.tls_ca_duration_days.unwrap_or(CA_DAYS);
        let leaf_days = self.spec.tls_cert_duration_days.unwrap_or(LEAF_DAYS);
        if leaf_days > ca_days {
            let message =
                format!("certificates of {leaf_days} days would outlive their authority of {ca_days}");
            let path = Path::parse("tlsCertDurationDays");
            let path = if self.report.has(&path) { path } else { Path::parse("tlsCADurationDays") };
            self.report.error(
                "certificate-days",
                &path,
                message,
                "write fewer days than `tlsCADurationDays`",
            );
        }
        let renewal = &spec.rollout_before_expiry;
        let days = renewal.days.unwrap_or(RENEWAL_DAYS);
        if renewal.enabled && days >= leaf_days {
            let path = Path::parse("certificatesConfiguration.rolloutBeforeExpiry.days");
            let message = format!(
                "certificates of {leaf_days} days would be renewed {days} days before they expire, and so at each scan"
            );
            self.report.error(
                "certificate-days",
                &path,
                message,
                "write fewer days than `tlsCertDurationDays`",
            );
        }
        let between = leaf_days.saturating_sub(days);
        if renewal.enabled && between > 0 && between <= leaf_days / 10 {
            let message = format!(
                "certificates of {leaf_days} days are renewed {days} days before they expire, and so every {between} days: each time all of etcd and the \
                 control plane gets the new ones"
            );
            let path = Path::parse("certificatesConfiguration.rolloutBeforeExpiry.days");
            self.report.warning(
                "certificate-days",
                &path,
                message,
                format!("write fewer days, such as {}", leaf_days / 3),
            );
        }
        if spec.ca_rotation_days.is_some_and(|days| days >= ca_days) {
            let path = Path::parse("certificatesConfiguration.caRotationDays");
            let days = spec.ca_rotation_days.unwrap_or_default();
            let message = format!(
                "authorities of {ca_days} days would be rotated {days} days before they expire, and so all the time"
            );
            self.report.error(
                "certificate-days",
                &path,
                message,
                "write fewer days than `tlsCADurationDays`",
            );
        }
        let emergency_days = renewal.emergency_days.unwrap_or((days / 2).min(MOST_EMERGENCY_DAYS));
        if renewal.enabled && emergency_days > days {
            let path = Path::parse("certificatesConfiguration.rolloutBeforeExpiry.emergencyDays");
            let message = format!(
                "certificates are renewed {days} days before they expire: `emergencyDays` cannot begin {emergency_days} days before"
            );
            self.report.error("certificate-days", &path, message, "write at most as many days as `days`");
        }
        let authorities = self.authorities();
        Certificates {
            authorities,
            ca_rotation_days: spec.ca_rotation_days,
            key_algorithm: spec.key_algorithm.unwrap_or(KeyAlgorithm::EcdsaP256),
            ca_days,
            leaf_days,
            rollout_before_expiry: renewal.enabled.then_some(RolloutBeforeExpiry {
                days,
                strategy: renewal.strategy.unwrap_or(RenewalStrategy::Rollout),
                emergency_days,
            }),
        }
    }

    pub(super) fn upgrades(&mut self) -> Option<Upgrades> {
        let spec = &self.spec.upgrades;
        let Some(every_days) = spec.every_days else {
            if !spec.pins.is_empty() {
                let path = Path::parse("upgrades.pins");
                let help =
                    "write `everyDays`, or leave out `upgrades`; `slipway upgrade` names the kinds itself";
                self.report.error("upgrades", &path, "nothing is looked up anew without `everyDays`", help);
            }
            return None;
        };
        let pins = if spec.pins.is_empty() { Pin::ALL.into() } else { spec.pins.iter().copied().collect() };
        Some(Upgrades { every_days, pins })
    }

    pub(super) fn rollout(&mut self, pools: &[NodePool], network: &Draft) -> Option<RolloutPolicy> {
        let spec = &self.spec.rollout;
        let path = Path::parse("rollout");
        let max_unavailable = self.share(spec.max_unavailable.as_ref(), 1, &path.key("maxUnavailable"));
        let surge = self.share(spec.surge.as_ref(), 0, &path.key("surge"));
        self.moves([max_unavailable, surge], &path);
        let windows: Vec<Option<MaintenanceWindow>> = spec
            .windows
            .iter()
            .enumerate()
            .map(|(index, window)| self.window(window, &path.key("windows").index(index)))
            .collect();
        let pools = self.pool_rollouts(pools, network, [max_unavailable, surge]);
        Some(RolloutPolicy {
            approval: spec.approval.unwrap_or(Approval::Auto),
            max_unavailable: max_unavailable?,
            surge: surge?,
            drain_force_after_min: spec.drain.force_after_minutes,
            failure_budget: spec.failure_budget.unwrap_or(1),
            windows: windows.into_iter().collect::<Option<_>>()?,
            pools,
        })
    }

    /// Whether a node could ever be replaced with those of `maxUnavailable` and `surge`.
    pub(super) fn moves(&mut self, shares: [Option<CountOrPercent>; 2], path: &Path) {
        let none = |share: &Option<CountOrPercent>| {
            matches!(share, Some(CountOrPercent::Count(0) | CountOrPercent::Percent(0)))
        };
        if shares.iter().all(none) {
            let help = "give one of `maxUnavailable` and `surge` at least 1";
            let message = "no node could ever be replaced";
            self.report.error("rollout-stuck", &path.key("maxUnavailable"), message, help);
        }
    }

    pub(super) fn share(
        &mut self,
        spec: Option<&CountText>,
        default: u32,
        path: &Path,
    ) -> Option<CountOrPercent> {
        let Some(CountText(text)) = spec else { return Some(CountOrPercent::Count(default)) };
        let share = match text.strip_suffix('%') {
            Some(digits) => {
                digits.parse().ok().filter(|percent| *percent <= 100).map(CountOrPercent::Percent)
            }
            None => text.parse().ok().map(CountOrPercent::Count),
        };
        if share.is_none() {
            let message = format!("`{text}` is neither a number of nodes nor a percentage");
            self.report.error("wrong-type", path, message, "write one such as `2` or `25%`");
        }
        share
    }

    fn window(&mut self, spec: &WindowSpec, path: &Path) -> Option<MaintenanceWindow> {
        let start = spec.start.as_deref()?;
        let digits = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        let two = |part: &str| digits(part).then(|| part.parse::<u16>().ok()).flatten();
        let time = start.split_once(':').and_then(|(hours, minutes)| Some((two(hours)?, two(minutes)?)));
        let Some((hours, minutes)) = time.filter(|(hours, minutes)| *hours < 24 && *minutes < 60) else {
            let help = "write hours and minutes in UTC, such as `\"02:30\"`";
            self.report.error(
                "window",
                &path.key("start"),
                format!("`{start}` is not a time of the day"),
                help,
            );
            return None;
        };
        let days = path.key("days");
        if spec.days.is_empty() && self.report.has(&days) {
            let help = "name the days, or remove the key if each day is meant; `approval: manual` lets no plan begin by itself";
            self.report.warning("empty-list", &days, "without a day the window opens every day", help);
        }
        let mut days = spec.days.clone();
        days.sort_unstable();
        days.dedup();
        Some(MaintenanceWindow { days, start_minute: hours * 60 + minutes, length_min: spec.minutes? })
    }

    pub(super) fn stack_tags(&mut self) -> BTreeMap<String, String> {
        let tags = &self.spec.stack_tags;
        let root = Path::parse("stackTags");
        if tags.len() > MOST_TAGS {
            let help = format!("keep {MOST_TAGS}: CloudFormation takes 50 a stack, and some are Slipway's");
            self.report.error("tags", &root, format!("there are {} tags", tags.len()), help);
        }
        for (key, value) in tags {
            let path = root.key(key);
            if key.is_empty() || key.chars().count() > 128 || key.to_ascii_lowercase().starts_with("aws:") {
                self.report.error(
                    "tags",
                    &path,
                    format!("`{key}` cannot be a tag's key"),
                    "write 1 to 128 characters, not beginning with `aws:`",
                );
            }
            if is_ownership_tag(key) {
                self.report.error(
                    "tags",
                    &path,
                    format!("`{key}` says which cluster a resource belongs to"),
                    "choose a key of your own: Slipway sets the tags of this cluster itself",
                );
            }
            // Names of tags are compared without case there ("Rules for tagging in IAM and AWS STS", IAM user guide).
            let same = tags.keys().find(|other| *other < key && other.to_lowercase() == key.to_lowercase());
            if let Some(other) = same {
                let message = format!("`{other}` and `{key}` differ in case only");
                let help =
                    "keep one of them: a role of IAM's, which has the stack's tags, takes no two of these";
                self.report.error("tags", &path, message, help);
            }
            for (what, text) in [("key", key), ("value", value)] {
                if !is_tag_text(text) {
                    let message = format!(
                        "the tag's {what} `{text}` has a character that IAM and load balancers refuse"
                    );
                    let help = "write letters, digits, spaces and `_.:/=+-@` only: roles and load balancers have the stack's tags, too";
                    self.report.error("tags", &path, message, help);
                }
            }
            if value.chars().count() > 256 {
                self.report.error(
                    "tags",
                    &path,
                    "the tag's value is too long",
                    "write 256 characters at most",
                );
            }
        }
        tags.clone()
    }
}
