//! Any JSON as the event that wakes a function: what to do, in time, with names that lead into no other folder, or a refusal that raises the alarm.
#![no_main]

mod limit;

use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use slipway_flows::rollout::{Interruption, Wake, Waker};
use slipway_lambda::InvocationError;
use slipway_lambda::event::{Changed, ToScan, Woken, changed, to_scan, woken};
use slipway_rollout::{CLOCKS_APART, Order};

/// Whether it can become part of a key, whoever chose it.
fn fits(name: &str, most: usize) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=most).contains(&name.len()) && name.bytes().all(plain)
}

fn refused(failure: &InvocationError) {
    assert_eq!(failure.kind(), "Slipway.Event.Malformed");
    assert!(!failure.message().is_empty(), "refused without a word");
}

fn order(order: &Order, at: Option<Timestamp>, sent: Option<Timestamp>) {
    match order {
        Order::Approve { plan } | Order::Abort { plan: Some(plan) } => assert!(fits(plan, 64), "{plan:?}"),
        Order::Skip { instance } => assert!(fits(instance, 19), "{instance:?}"),
        Order::Pause | Order::Resume | Order::Abort { plan: None } | Order::Destroy { .. } => {}
    }
    assert_eq!(at.is_some(), sent.is_some());
    let apart = at.zip(sent).map(|(at, sent)| at.duration_since(sent).abs());
    assert!(apart.is_none_or(|apart| apart <= CLOCKS_APART), "an order of {at:?} in an event of {sent:?}");
}

fuzz_target!(|bytes: &[u8]| {
    // Lambda's runtime hands over nothing but JSON.
    let Ok(event) = serde_json::from_slice::<Value>(bytes) else { return };
    let now: Timestamp = "2026-11-25T12:00:00Z".parse().expect("a time");
    let sent = event.get("time").and_then(Value::as_str).and_then(|time| time.parse::<Timestamp>().ok());

    match limit::in_time(bytes.len(), || changed(event.clone(), "specs", now)) {
        Ok(None) => {}
        Ok(Some(Changed::Spec(upload))) => {
            assert!(!upload.cluster.is_empty() && !upload.cluster.contains('/'))
        }
        Ok(Some(Changed::Patches(cluster))) => assert!(!cluster.is_empty() && !cluster.contains('/')),
        Ok(Some(Changed::Credentials(cluster))) => assert!(fits(&cluster, 64), "{cluster:?}"),
        Ok(Some(Changed::Pins { cluster, order })) => {
            assert!(fits(&cluster, 64), "{cluster:?}");
            assert!(!order.pins.is_empty() && order.at <= now, "{order:?}");
            assert!(order.back_to.is_none_or(|plan| fits(&plan, 64)));
        }
        Err(failure) => refused(&failure),
    }
    match limit::in_time(bytes.len(), || to_scan(event.clone(), now)) {
        Ok(ToScan::Everything) => {}
        Ok(ToScan::Cluster { cluster, request }) => {
            assert!(fits(&cluster, 64), "{cluster:?}");
            assert!(request.at.is_none_or(|at| at <= now), "{request:?}");
            assert!(!request.everything || request.certificates.is_empty(), "{request:?}");
        }
        Err(failure) => refused(&failure),
    }
    match limit::in_time(bytes.len(), || woken(event.clone())) {
        Ok(Woken::Cluster(Wake { cluster, by })) => {
            assert!(fits(&cluster, 64), "{cluster:?}");
            match by {
                Waker::Order { order: given, at } => order(&given, at, sent),
                Waker::Event | Waker::Tick | Waker::Look => {}
                Waker::Group { .. } | Waker::Interruption { .. } => {
                    panic!("no event names a cluster's group")
                }
            }
        }
        Ok(Woken::Stack(name)) => assert!(fits(&name, 128), "{name:?}"),
        Ok(Woken::Group(name)) => assert!(fits(&name, 255), "{name:?}"),
        Ok(Woken::Interruption(Interruption { instance, at })) => {
            assert!(fits(&instance, 19) && Some(at) == sent, "{instance:?} {at}");
        }
        Ok(Woken::Command(id)) => assert!(fits(&id, 36), "{id:?}"),
        Ok(Woken::Nobody(why)) => assert!(!why.is_empty(), "nobody is woken without a word"),
        Err(failure) => refused(&failure),
    }
});
