//! The table: each key, a new value, and the expected effect.

mod addons;
mod network;
mod nodes;
mod policy;
mod pools;

use serde_json::{Value, json};

use super::case::{Case, case, each};

/// The cases in the order of the page.
pub(crate) fn cases() -> Vec<Case> {
    [policy::cases(), addons::cases(), network::cases(), nodes::cases(), pools::cases()].concat()
}

/// Keys without a row, and the reasons.
pub(crate) const LEFT_OUT: &[(&str, &str)] = &[
    ("clusterName", "another name is another cluster, in another folder"),
    ("region", "a cluster stays in its region; the installation refuses another"),
];

const ALL: &str = "etcd, control-plane, pools";
const ALL_REPLACED: &str = "etcd replaced, controller replaced, pools replaced";

/// The user's own files and units, which controllers, etcd members and pools accept in the same way.
fn custom(group: &str, stack: &'static str, nodes: &'static str) -> Vec<Case> {
    let file = json!({ "path": "/etc/motd.d/mine", "content": "one", "permissions": "0600" });
    let binary = json!({ "path": "/etc/motd.d/mine", "contentBase64": "b25l" });
    let unit =
        json!({ "name": "mine.service", "command": "start", "content": "[Service]\nExecStart=/bin/true\n" });
    let timer = json!({ "name": "mine.timer", "content": "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n" });
    let drop_in = json!({ "name": "containerd.service", "drop-ins": [{ "name": "10-mine.conf", "content": "[Service]\nNice=1\n" }] });
    let files = format!("{group}.customFiles[0]");
    let units = format!("{group}.customSystemdUnits[0]");
    let change =
        |group: &str, given: &Value, changes: Vec<(&str, Value)>| each(group, given, changes, stack, nodes);
    [
        change(
            &files,
            &file,
            vec![
                ("path", json!("/etc/motd.d/other")),
                ("content", json!("two")),
                ("permissions", json!("0644")),
                ("owner", json!("nobody:nogroup")),
            ],
        ),
        change(&files, &binary, vec![("contentBase64", json!("dHdv"))]),
        change(
            &units,
            &unit,
            vec![
                ("name", json!("other.service")),
                ("command", json!("restart")),
                ("content", json!("[Service]\nExecStart=/bin/false\n")),
                ("runtime", json!(true)),
            ],
        ),
        change(&units, &timer, vec![("enable", json!(true))]),
        change(
            &units,
            &drop_in,
            vec![
                ("drop-ins[0].name", json!("20-mine.conf")),
                ("drop-ins[0].content", json!("[Service]\nNice=2\n")),
            ],
        ),
    ]
    .concat()
}

/// Settings of kubelets, for all roles or for one.
fn kubelet(group: &str, stacks: &'static str, nodes: &'static str) -> Vec<Case> {
    let changes = vec![
        ("kubelet.maxPods", json!(58)),
        ("kubelet.podPidsLimit", json!(2048)),
        ("kubelet.systemReserved", json!("cpu=200m,memory=200Mi")),
        ("kubelet.kubeReserved", json!("cpu=200m,memory=200Mi")),
        ("kubelet.evictionHard", json!({ "memory.available": "300Mi" })),
        ("kubelet.config", json!({ "imageGCHighThresholdPercent": 90 })),
    ];
    changes.into_iter().map(|(key, to)| case(format!("{group}.{key}"), to, stacks, nodes)).collect()
}
