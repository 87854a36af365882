//! The records of etcd's members are deleted before etcd is deleted.

use super::*;

/// The commands about records, from the deletion of the control plane to that of etcd.
fn between(quay: &Quay) -> Vec<&str> {
    let at = |what: &str| quay.log.iter().position(|line| line == what).unwrap();
    let lines = quay.log[at("delete c-control-plane") + 1..at("delete c-etcd")].iter().map(String::as_str);
    lines.filter(|line| line.contains("Retire on ")).collect()
}

#[test]
fn a_member_takes_the_records_of_all_back_before_etcd_goes() {
    let mut quay = Quay::new();
    let report = quay.run(ordered(0, false));
    assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
    assert!(!report.message.contains("A records"), "{}", report.message);
    let all = ["Slipway-EtcdRetire on i-0", "Slipway-EtcdRetire on i-1", "Slipway-EtcdRetire on i-2"];
    assert_eq!(between(&quay), all);

    // Deleted records may be there again after a pause.
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    while !quay.log.iter().any(|line| line.contains("Retire")) {
        quay.wake(None);
    }
    for order in [Order::Pause, Order::Resume] {
        let minute = quay.minute;
        quay.wake(Some(Given { order, at: at(minute) }));
        assert!(!quay.deletions().contains(&"c-etcd"));
    }
    while !quay.deletions().contains(&"c-etcd") {
        quay.wake(None);
    }
    let sent = between(&quay);
    assert!(sent.starts_with(&all) && sent.ends_with(&all) && sent.len() == 6, "{sent:?}");
}

#[test]
fn records_are_taken_back_once_every_member_has_booted_and_a_boot_that_never_ends_is_not_waited_for() {
    for (until, most) in [(20, 30), (10_000, 80)] {
        // The booting machine would write its record after another member deleted it.
        let mut quay = Quay { booting: Some((3, until)), ..Quay::new() };
        let report = quay.run(ordered(0, false));
        assert_eq!(report.state.as_str(), "destroyed", "{}", report.message);
        assert!(quay.minute < most, "{}", quay.minute);
        let first = quay.log.iter().position(|line| line.contains("Retire")).unwrap();
        assert!(!quay.log[..first].contains(&"delete c-etcd".to_owned()));
        assert!(quay.minute > until.min(60), "{}", quay.minute);
    }
    // A machine is launched after the members got the command: they get it again.
    let mut quay = Quay::new();
    quay.wake(Some(ordered(0, false)));
    while !quay.log.iter().any(|line| line.contains("Retire")) {
        quay.wake(None);
    }
    quay.booting = Some((0, quay.minute + 3));
    let report = quay.wake(None);
    assert!(report.message.contains("waits until i-new-0 of etcd-0 has booted"), "{}", report.message);
    while !quay.deletions().contains(&"c-etcd") {
        quay.wake(None);
    }
    assert_eq!(between(&quay).len(), 6);
}

#[test]
fn a_destruction_does_not_wait_for_ever_for_records_that_nobody_can_take_back() {
    for (members, sent, why) in [(3, 9, "etcd-1: AccessDenied"), (0, 0, "no member of etcd has a machine")] {
        let mut quay = Quay { members, retires: None, ..Quay::new() };
        let report = quay.run(ordered(0, true));
        assert_eq!((report.state.as_str(), quay.deletions().len()), ("destroyed", 5), "{}", report.message);
        assert!(report.message.contains(why), "{}", report.message);
        assert_eq!(between(&quay).len(), sent, "{:?}", quay.log);
        assert!(quay.minute < 20, "{}", quay.minute);
    }
}
