//! Whether renewed certificates reach their machines in time, computed from days, windows, approval and how many machines there are.

use super::*;

/// Three members of etcd and three controllers that renew so, and roll out so.
fn renewing(before_expiry: &str, rollout: &str) -> String {
    with(&format!(
        "controller: {{count: 3}}\netcd: {{count: 3}}\ncertificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true{before_expiry}}}\n{rollout}"
    ))
}

const WEEKLY: &str = "rollout:\n  windows: [{days: [sun], start: \"02:30\", minutes: 60}]\n";
const TEN_MINUTES: &str = "rollout:\n  windows: [{days: [sun], start: \"02:30\", minutes: 10}]\n";
const NIGHTLY: &str = "rollout:\n  windows: [{start: \"02:30\", minutes: 120}]\n";
const MANUAL: &str = "rollout: {approval: manual}\n";

#[test]
fn p7_what_is_too_late_whatever_is_overridden_is_refused() {
    says!(renewing(", days: 1", ""), @r##"
    20:46 error renewal-too-late at `certificatesConfiguration.rolloutBeforeExpiry.days`: certificates are renewed too late: 24h before they expire, less the 24h 30m after which the daily scan finds it, is less than the 2h 10m that 6 machines of etcd and the control plane take
        write `days: 2` or more
    "##);
    says!(with("tlsCertDurationDays: 3\ncertificatesConfiguration:\n  rolloutBeforeExpiry: {enabled: true, days: 1}\n"), @r##"
    19:46 error renewal-too-late at `certificatesConfiguration.rolloutBeforeExpiry.days`: certificates are renewed too late: 24h before they expire, less the 24h 30m after which the daily scan finds it, is less than the 50m that 2 machines of etcd and the control plane take
        write `days: 2` or more
    "##);
}

#[test]
fn p7_what_is_in_time_only_since_it_is_overridden_is_a_warning_with_the_figures() {
    says!(renewing("", WEEKLY), @r##"
    22:3 warning renewal-held-up at `rollout.windows`: a renewal of 6 machines needs up to 14 days in these windows, and has 2 days 16h: the part that is not complete 3 days 6h before the first certificate expires goes on outside of the windows
        write `certificatesConfiguration.rolloutBeforeExpiry.days: 19` or more, or open longer or more windows
    "##);
    says!(renewing(", days: 30", TEN_MINUTES), @r##"
    22:3 warning renewal-held-up at `rollout.windows`: a renewal of 6 machines needs up to 42 days in these windows, and has 25 days 16h: the part that is not complete 3 days 6h before the first certificate expires goes on outside of the windows
        write `certificatesConfiguration.rolloutBeforeExpiry.days: 47` or more, or open longer or more windows
    "##);
    says!(renewing("", "rollout:\n  approval: manual\n  windows: [{days: [sun], start: \"02:30\", minutes: 60}]\n"), @r##"
    23:3 warning renewal-held-up at `rollout.windows`: a renewal of 6 machines needs up to 16 days (two days for a person to approve it, then these windows), and has 2 days 16h: the part that is not complete 3 days 6h before the first certificate expires begins without approval and outside of the windows
        write `certificatesConfiguration.rolloutBeforeExpiry.days: 21` or more, or open longer or more windows
    "##);
    says!(renewing(", days: 2, emergencyDays: 2", MANUAL), @r##"
    20:46 warning renewal-late at `certificatesConfiguration.rolloutBeforeExpiry.days`: the slowest roll of 6 machines takes 2 days 6h, and a renewal has 23h 30m: it begins at once, whatever windows and approval say, and if all goes slowly certificates expire before its end
        write `days: 4` or more
    21:21 warning renewal-held-up at `rollout.approval`: a renewal needs 2 days 2h (two days for a person to approve it), and has no time: the part that is not complete 3 days 6h before the first certificate expires begins without approval
        write `certificatesConfiguration.rolloutBeforeExpiry.days: 7` or more
    "##);
    says!(with("tlsCertDurationDays: 20\ncertificatesConfiguration:\n  rolloutBeforeExpiry: {enabled: true, days: 7}\nrollout:\n  windows: [{days: [sun], start: \"02:30\", minutes: 10}]\n"), @r##"
    21:3 warning renewal-held-up at `rollout.windows`: a renewal of 2 machines needs up to 14 days in these windows, and has 2 days 23h: the part that is not complete 3 days before the first certificate expires goes on outside of the windows
        write `certificatesConfiguration.rolloutBeforeExpiry.days: 19` or more, or open longer or more windows
    "##);
}

#[test]
fn p7_what_is_in_time_by_itself_is_said_nothing_of() {
    for (days, rollout) in
        [("", ""), (", days: 30", WEEKLY), (", days: 30", NIGHTLY), ("", NIGHTLY), (", days: 7", MANUAL)]
    {
        assert_eq!(renewing(days, rollout), "", "{days} {rollout}");
    }
    assert_eq!(
        with(&format!(
            "certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: false, days: 1}}\n{WEEKLY}"
        )),
        ""
    );
}
