//! From a spec as written to a [`Cluster`]: applies defaults, translates old keys, resolves references. Errors are reported on
//! the way and each part continues without the refused value, so that one run finds everything.

mod access;
mod addons;
mod admission;
mod agreement;
mod audit;
mod authorities;
mod balancers;
mod corefile;
mod custom;
mod deadline;
mod endpoints;
mod etcd;
mod etcd_environment;
mod existing;
mod flag_words;
mod flags;
mod identity;
mod kubelet;
mod kubelet_reserved;
mod kubelet_values;
mod kubernetes;
mod limits;
mod machines;
mod mixed;
mod network;
mod nodes;
mod order;
mod policy;
mod pools;
mod software;
mod storage;
mod subnets;
mod volumes;

use std::collections::BTreeSet;

use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;
use serde_json::Value;
use slipway_core::cluster::Cluster;

use super::Expected;
use super::model::Spec;
use super::path::Path;
use super::report::Report;

/// What the parts share while a spec is lowered.
pub(crate) struct Lowering<'s, 'r, 't> {
    pub(crate) spec: &'s Spec,
    pub(crate) report: &'r mut Report<'t>,
    /// The names of IAM roles that were given so far: an account has each once.
    pub(crate) role_names: BTreeSet<String>,
}

/// The cluster, if nothing that it needs was refused.
pub(crate) fn lower(
    spec: &Spec,
    expected: Option<&Expected<'_>>,
    report: &mut Report<'_>,
) -> Option<Cluster> {
    let mut lowering = Lowering { spec, report, role_names: BTreeSet::new() };
    let name = lowering.name(expected.map(|place| place.name));
    let region = lowering.region(expected.and_then(|place| place.region));
    let kubernetes_version = lowering.kubernetes_version();
    let image = lowering.image();
    let root_device = lowering.root_device(spec.image.as_ref(), &Path::default());
    let network = lowering.network(region.as_deref());
    let api_endpoints = lowering.endpoints(&network);
    let admin_api_endpoint = lowering.endpoint_for_admin(&api_endpoints);
    let worker_api_endpoint = lowering.endpoint_for_workers(&api_endpoints);
    let controller = lowering.controller(name.as_deref(), &network);
    if let Some(controller) = &controller {
        lowering.balancers_reach(&api_endpoints, controller, &network);
    }
    let etcd = lowering.etcd(name.as_deref(), kubernetes_version, &network);
    let pools = lowering.pools(name.as_deref(), kubernetes_version, &network, &api_endpoints);
    lowering.workers_let_in(&api_endpoints, worker_api_endpoint.as_deref(), &pools, &network);
    lowering.kubelets_know(kubernetes_version, &pools);
    lowering.kubelets_agree();
    lowering.pods_fit(controller.as_ref(), &pools, &network);
    lowering.limits(controller.as_ref(), &pools, &network);
    lowering.architectures(&image, controller.as_ref(), etcd.as_ref(), &pools);
    let kms_key_arn = lowering.kms_key();
    let ssh_authorized_keys = lowering.ssh_keys();
    let kubernetes = lowering.kubernetes();
    let software = lowering.software();
    let addons = lowering.addons();
    if let Some(controller) = &controller {
        lowering.replicas_fit(&addons, controller.count);
    }
    lowering.gates_known(kubernetes_version, &pools);
    let iam_roles = lowering.iam_roles();
    let certificates = lowering.certificates();
    let rollout = lowering.rollout(&pools, &network);
    if let (Some(rollout), Some(etcd), Some(controller)) = (&rollout, &etcd, &controller) {
        lowering.renewal_in_time(&certificates, rollout, etcd.members.len(), controller.count);
    }
    let stack_tags = lowering.stack_tags();
    let upgrades = lowering.upgrades();
    Some(Cluster {
        name: name?,
        region: region?,
        kubernetes_version: kubernetes_version?,
        image: image?,
        root_device,
        key_name: spec.key_name.clone(),
        ssh_authorized_keys,
        kms_key_arn,
        api_endpoints,
        admin_api_endpoint: admin_api_endpoint?,
        worker_api_endpoint: worker_api_endpoint?,
        network: network.finish()?,
        controller: controller?,
        etcd: etcd?,
        pools,
        kubernetes,
        software,
        addons,
        iam_roles,
        certificates,
        rollout: rollout?,
        upgrades,
        deletion_protection: spec.deletion_protection,
        stack_tags,
    })
}

impl Lowering<'_, '_, '_> {
    /// A range in CIDR notation whose address is its first one.
    fn cidr(&mut self, text: &str, path: &Path) -> Option<Ipv4Net> {
        let help = "write an IPv4 range such as `10.0.0.0/16`";
        if text.split(',').any(|part| part.trim().parse::<Ipv6Net>().is_ok()) {
            let message = format!("`{text}` is an IPv6 range, and clusters are IPv4 only for now");
            self.report.error("ipv6", path, message, help);
            return None;
        }
        let Ok(net) = text.parse::<Ipv4Net>() else {
            self.report.error("cidr-syntax", path, format!("`{text}` is not an IPv4 range"), help);
            return None;
        };
        if net.addr() != net.network() {
            self.report.error(
                "cidr-syntax",
                path,
                format!("`{text}` does not begin its range"),
                format!("did you mean `{}`?", net.trunc()),
            );
            return None;
        }
        Some(net)
    }

    /// A range of an allowed size.
    fn cidr_sized(
        &mut self,
        text: &str,
        path: &Path,
        sizes: std::ops::RangeInclusive<u8>,
        why: &str,
    ) -> Option<Ipv4Net> {
        let net = self.cidr(text, path)?;
        if sizes.contains(&net.prefix_len()) {
            return Some(net);
        }
        self.report.error(
            "cidr-size",
            path,
            format!("`{text}` has the wrong size"),
            format!("write a prefix from /{} to /{}: {why}", sizes.start(), sizes.end()),
        );
        None
    }

    /// Says which names are taken twice; `fold` is what must differ.
    fn unique<'n>(
        &mut self,
        names: impl Iterator<Item = (&'n str, Path)>,
        what: &str,
        fold: impl Fn(&str) -> String,
    ) {
        let mut seen: Vec<(String, String)> = Vec::new();
        for (name, path) in names {
            let folded = fold(name);
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == folded) {
                let help = if first == name {
                    "give each a name of its own".to_owned()
                } else {
                    format!("it differs from `{first}` in hyphens or case only, which is not enough")
                };
                self.report.error(
                    "duplicate-name",
                    &path,
                    format!("the {what} `{name}` is named twice"),
                    help,
                );
            }
            seen.push((folded, name.to_owned()));
        }
    }
}

/// The word that the spec has for a value of an enumeration.
fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        other => unreachable!("an enumeration of words is written as text: {other:?}"),
    }
}

/// Letters and digits of a name in lower case: what tells logical ids and exports apart.
fn fold(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase()).collect()
}
