//! Machines that boot for real: see `tests/src/machines.rs`. Run by `make test-machines`, as root; elsewhere they say that they did not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::{Duration, Instant};

use slipway_core::node::BootstrapState;
use slipway_tests::machines::{Rig, here};

/// Design §6, issue 5, run 1.
#[tokio::test(flavor = "multi_thread")]
async fn three_machines_boot_from_the_rendered_userdata_and_form_a_quorum() {
    if !here() {
        return;
    }
    let mut rig = Rig::start().await;
    let begun = Instant::now();
    for index in 0..3 {
        rig.boot(index).await;
    }
    for index in 0..3 {
        rig.settled(index, Duration::from_secs(120)).await;
    }
    let settled = begun.elapsed();
    println!(
        "three members healthy, and their launch hooks settled, {:.1} s after the first boot",
        settled.as_secs_f64()
    );
    for index in 0..3 {
        let report = rig.report(index).await;
        assert_eq!(report.state, BootstrapState::Healthy, "{report:?}");
        assert_eq!(rig.hook(index).as_deref(), Some("CONTINUE"));
    }
    let members = rig.etcd(0, "cluster/member/list", "{}").unwrap();
    assert_eq!(members["members"].as_array().unwrap().len(), 3, "{members}");
    // `key` and `value`, in base64.
    rig.etcd(0, "kv/put", r#"{"key": "a2V5", "value": "dmFsdWU="}"#).unwrap();
    for index in 0..3 {
        let found = rig.etcd(index, "kv/range", r#"{"key": "a2V5"}"#).unwrap();
        assert_eq!(found["kvs"][0]["value"], "dmFsdWU=", "member {index}: {found}");
    }
    assert!(rig.etcd_without_certificate(0).is_err(), "etcd let in somebody without a certificate");
    rig.assert_no_secret_was_told();
    // Half a minute is what it takes where nothing else runs; what is held here is that nobody waits for a pause or a timeout to end.
    assert!(settled < Duration::from_secs(120), "{settled:?}\n{}", rig.timeline());
    println!("{}", rig.timeline());

    // The same userdata on a machine that is there: nothing moves.
    let before = rig.run(1, "systemctl show --property=MainPID etcd.service");
    let again = rig.run(1, "sh /var/lib/cloud/instance/user-data.txt");
    assert!(again.contains("\"healthy\":true"), "{again}");
    assert_eq!(rig.run(1, "systemctl show --property=MainPID etcd.service"), before);
}
