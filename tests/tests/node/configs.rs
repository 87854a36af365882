//! What an agent's config says, as the tests of several verbs need it.

use serde_json::{Value, json};

/// Of the first member of etcd of `cluster`, which is called `dns_name`, and where nothing listens.
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
