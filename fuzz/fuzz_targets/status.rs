//! Any bytes where a node writes its status, as the scan and a rotation read them: no failure, and nothing about another machine, of the future, or
//! longer than what is kept.
#![no_main]

mod limit;

use std::sync::LazyLock;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::node::NodeStatus;
use slipway_core::role::Role;
use slipway_flows::credentials::rotation::report;
use slipway_flows::scan::nodes;
use slipway_flows::store::NodeObject;
use slipway_ports::{Condition, Head, Listed, Listing, Object, Objects, PortResult, Put};

/// Whose folder it is. Of a worker the scan reads nothing.
const ROLES: [&str; 3] = ["controller", "etcd-0", "pool-general-a"];
const MACHINE: &str = "i-0abc";
const MACHINE_ARN: &str = "arn:aws:ec2:eu-west-1:123456789012:instance/i-0abc";
/// The most that is kept of one, and that is told of one.
const KEPT_BYTES: usize = 4 * 1024;
const TOLD_CHARACTERS: usize = 800;

/// The bucket in which the machine of each role has written the same.
struct Written<'b> {
    keys: [String; 3],
    bytes: &'b [u8],
    at: Timestamp,
}

impl Objects for Written<'_> {
    async fn get(&self, key: &str) -> PortResult<Option<Object>> {
        let found = self.keys.iter().any(|one| one == key);
        Ok(found.then(|| Object { bytes: self.bytes.to_vec(), etag: String::new(), version: String::new() }))
    }

    async fn get_version(&self, _: &str, _: &str) -> PortResult<Option<Object>> {
        panic!("the newest report counts")
    }

    async fn head(&self, _: &str) -> PortResult<Option<Head>> {
        panic!("a report is read")
    }

    async fn put(&self, _: &str, _: Vec<u8>, _: Condition) -> PortResult<Put> {
        panic!("nobody but a node writes there")
    }

    fn url(&self, key: &str) -> String {
        key.to_owned()
    }
}

impl Listing for Written<'_> {
    async fn list(&self, prefix: &str, _: usize) -> PortResult<Vec<Listed>> {
        let found = self.keys.iter().filter(|key| key.starts_with(prefix)).cloned();
        let size = self.bytes.len() as u64;
        Ok(found.map(|key| Listed { key, etag: String::new(), size, modified: self.at }).collect())
    }
}

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let spec = include_bytes!("../../examples/production.yaml");
    slipway_spec::parse(spec, None).expect("an example").cluster
});

/// Whether a status says that it is of that role and of that machine, or of none.
fn is_of(status: Option<&NodeStatus>, role: &str) -> bool {
    status.is_some_and(|status| {
        status.role == role && status.instance.as_ref().is_none_or(|instance| instance.id == MACHINE)
    })
}

fuzz_target!(|bytes: &[u8]| {
    let written: Timestamp = "2026-11-25T12:00:00Z".parse().expect("a time");
    let keys = ROLES.map(|role| keys::node_status(&CLUSTER.name, role, MACHINE_ARN));
    let bucket = Written { keys, bytes, at: written };
    let status: Option<NodeStatus> = serde_json::from_slice(bytes).ok();

    let (found, findings) = limit::in_time(bytes.len(), || {
        let mut findings = Vec::new();
        let read = nodes(&bucket, &CLUSTER, written, &mut findings).now_or_never();
        let (found, _, _) = read.expect("memory does not wait").expect("no report fails a scan");
        (found, findings)
    });
    for one in &found {
        assert!(one.instance == MACHINE && is_of(status.as_ref(), &one.role.to_string()), "{one:?}");
        assert!(one.at <= written, "{one:?}");
        let kept = one.held.iter().map(|held| held.asset.len() + held.fingerprint.len() + held.by.len());
        assert!(kept.sum::<usize>() <= KEPT_BYTES, "{one:?}");
    }
    for one in &findings {
        assert!(bucket.keys.contains(&one.key) && !one.help.is_empty(), "{one:?}");
        assert!(one.message.chars().count() <= TOLD_CHARACTERS, "{one:?}");
    }

    for name in ROLES {
        let role: Role = name.parse().expect("a role");
        let key = keys::node_status(&CLUSTER.name, name, MACHINE_ARN);
        let told = limit::in_time(bytes.len(), || {
            let read = report(&bucket, &role, MACHINE, &key).now_or_never();
            read.expect("memory does not wait").expect("no report fails a rotation")
        });
        match told {
            NodeObject::Missing => panic!("there is one"),
            NodeObject::Read(report) => {
                assert!(is_of(status.as_ref(), name), "{report:?}");
                let serves = report.serves.iter().map(|(name, fingerprint)| name.len() + fingerprint.len());
                let kept = serves.sum::<usize>() + report.credentials.as_ref().map_or(0, String::len);
                assert!(kept <= KEPT_BYTES, "{report:?}");
            }
            NodeObject::Unreadable(why) => {
                assert!(!why.is_empty() && why.chars().count() <= TOLD_CHARACTERS, "{why}");
            }
        }
    }
});
