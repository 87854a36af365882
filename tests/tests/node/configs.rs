//! Configurations of the agent for the tests of several verbs.

use serde_json::{Value, json};

/// The configuration of the first etcd member of `cluster` with the DNS name `dns_name`, at which nothing listens.
pub(crate) fn member(cluster: &str, dns_name: &str) -> Value {
    json!({
        "format": 1, "cluster": cluster, "role": "etcd-0", "region": "eu-west-1", "sshAuthorizedKeys": [],
        "autoScalingGroup": "own", "launchHook": "launch", "terminateHook": "terminate",
        "etcd": {
            "version": "3.7.3", "name": "etcd-0", "dnsName": dns_name, "clientPort": 9, "peerPort": 9,
            "initialCluster": {}, "initialClusterToken": cluster,
        },
        "dataVolume": { "tags": {}, "device": "/dev/sdf", "fileSystem": "ext4", "mountPoint": "/var/lib/etcd" },
    })
}
