//! P7 for any windows, days and approval of a spec: simulated from the launch until after the first certificates expire.

use slipway_sim::year::{Chronicle, Year};

const WEEKLY: &str = "{days: [sun], start: \"02:30\", minutes: 60}";
const TWICE: &str = "{days: [tue, fri], start: \"22:00\", minutes: 120}";
const NIGHTLY: &str = "{start: \"01:00\", minutes: 90}";
const A_QUARTER: &str = "{days: [sun], start: \"02:30\", minutes: 15}";

/// A cluster whose certificates are valid for three weeks longer than the time until their renewal.
fn spec(days: u32, windows: &str, approval: &str, strategy: &str) -> String {
    let rollout = match windows {
        "" => format!("rollout: {{approval: {approval}}}\n"),
        windows => format!("rollout:\n  approval: {approval}\n  windows: [{windows}]\n"),
    };
    format!(
        "clusterName: waits\nregion: eu-west-1\nkubernetesVersion: \"1.37\"\nkeyName: operations\n\
         apiEndpoints:\n- name: default\n  dnsName: api.example.com\n  loadBalancer: {{type: network, hostedZone: {{id: Z0123456789ABCDEFGHIJ}}}}\n\
         subnets:\n\
         - {{name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}}\n\
         - {{name: public-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.1.0/24}}\n\
         - {{name: public-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.2.0/24}}\n\
         - {{name: private-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.32.0/19, private: true}}\n\
         - {{name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.64.0/19, private: true}}\n\
         - {{name: private-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.96.0/19, private: true}}\n\
         controller: {{count: 3}}\netcd: {{count: 3}}\n\
         worker:\n  nodePools:\n  - {{name: general, autoScalingGroup: {{minSize: 1, maxSize: 2}}}}\n\
         tlsCertDurationDays: {}\n\
         certificatesConfiguration:\n  rolloutBeforeExpiry: {{enabled: true, days: {days}, strategy: {strategy}}}\n{rollout}",
        days + 21
    )
}

/// Simulates the cluster from its launch until the first certificates have expired, without any person.
fn live(days: u32, windows: &str, approval: &str, strategy: &str, faults: f64) -> Chronicle {
    live_with(days, windows, approval, strategy, faults, None)
}

/// The same, if a person makes that change in the spec a week after the launch, and nobody approves it.
fn live_with(
    days: u32,
    windows: &str,
    approval: &str,
    strategy: &str,
    faults: f64,
    change: Option<(&str, &str)>,
) -> Chronicle {
    let spec = spec(days, windows, approval, strategy);
    let upload = change.map(|(from, to)| {
        assert!(spec.contains(from), "{from}");
        (7, spec.replace(from, to))
    });
    let year = Year { spec, days: days + 24, seed: 3, faults, unattended: true, upload }.live().unwrap();
    let told: Vec<String> = year.events.iter().map(|(at, line)| format!("{at} {line}")).collect();
    let what = format!("days: {days}, {windows}, {approval}, {strategy}: {told:#?}; {:?}", year.status);
    assert_eq!(year.violations, [], "{what}");
    assert!(year.rollouts["succeeded"] >= 2 && year.rollouts.len() == 1, "{what}");
    year
}

fn has_event(year: &Chronicle, words: &str) -> bool {
    year.events.iter().any(|(_, line)| line.contains(words))
}

/// The nine specs of the issue; in five of them controllers had expired certificates.
#[test]
fn p7_nine_specs_of_days_and_weekly_windows_renew_in_time() {
    std::thread::scope(|scope| {
        for windows in [WEEKLY, TWICE, NIGHTLY] {
            scope.spawn(move || {
                for days in [2, 7, 30] {
                    live(days, windows, "auto", "rollout", 0.0);
                }
            });
        }
    });
}

/// A few machines a week are enough, because certificates are renewed thirty days before they expire.
#[test]
fn p7_a_window_of_a_quarter_of_an_hour_a_week_is_enough_for_a_renewal_thirty_days_before() {
    live(30, A_QUARTER, "auto", "rollout", 0.0);
}

/// An upload waits for an approval that nobody gives, and would be part of each renewal.
#[test]
fn p7_an_upload_that_nobody_approves_holds_up_no_renewal() {
    for (windows, strategy, change) in [
        ("", "rollout", ("maxSize: 2", "maxSize: 3")),
        (WEEKLY, "refresh", ("controller: {count: 3}", "controller: {count: 3, instanceType: m5.xlarge}")),
    ] {
        let year = live_with(7, windows, "manual", strategy, 0.0, Some(change));
        let begun = "begun without approval, since certificates in use expire at";
        assert!(has_event(&year, begun), "{:#?}", year.events);
    }
}

/// Nobody ever approves it; other plans that wait for approval keep waiting.
#[test]
fn p7_a_renewal_that_nobody_approves_begins_in_time_and_that_is_said() {
    for (windows, strategy) in [("", "rollout"), (WEEKLY, "refresh")] {
        let year = live(7, windows, "manual", strategy, 0.0);
        assert!(
            has_event(&year, "begun without approval, since certificates in use expire at"),
            "{:#?}",
            year.events
        );
    }
}
