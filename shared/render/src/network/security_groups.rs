//! Security groups of etcd, controllers and workers, and the traffic between them.
//!
//! Rules are separate resources, because groups refer to each other. There is a rule for ssh only if the spec names ranges; Session
//! Manager needs none.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::cfn::{Resource, Template, get_att, logical_id};
use crate::context::{Context, export};
use crate::ports;

/// Traffic that a group accepts from another one.
struct Rule {
    to: &'static str,
    from: &'static str,
    protocol: &'static str,
    port: u16,
    why: &'static str,
}

const ETCD: &str = export::ETCD_SECURITY_GROUP;
const CONTROLLER: &str = export::CONTROLLER_SECURITY_GROUP;
const WORKER: &str = export::WORKER_SECURITY_GROUP;

const fn tcp(to: &'static str, from: &'static str, port: u16, why: &'static str) -> Rule {
    Rule { to, from, protocol: "tcp", port, why }
}

const fn udp(to: &'static str, from: &'static str, port: u16, why: &'static str) -> Rule {
    Rule { to, from, protocol: "udp", port, why }
}

const RULES: &[Rule] = &[
    tcp(ETCD, CONTROLLER, ports::ETCD_CLIENT, "API servers use etcd"),
    // Snapshots, moves of leadership and health checks of the whole cluster are requests from one member to the others.
    tcp(ETCD, ETCD, ports::ETCD_CLIENT, "Members ask the health of each other"),
    tcp(ETCD, ETCD, ports::ETCD_PEER, "Members replicate"),
    tcp(CONTROLLER, CONTROLLER, ports::API_SERVER, "Controllers and pods on them use the API"),
    // Pods reach the API through the service `kubernetes`, whose endpoints are the controllers.
    tcp(CONTROLLER, WORKER, ports::API_SERVER, "Pods on workers use the API"),
    tcp(CONTROLLER, CONTROLLER, ports::KUBELET, "API servers use the kubelet: logs, exec, metrics"),
    tcp(WORKER, CONTROLLER, ports::KUBELET, "API servers use the kubelet: logs, exec, metrics"),
    // metrics-server runs on any worker and queries every kubelet.
    tcp(CONTROLLER, WORKER, ports::KUBELET, "metrics-server uses the kubelet"),
    tcp(WORKER, WORKER, ports::KUBELET, "metrics-server uses the kubelet"),
    udp(CONTROLLER, CONTROLLER, ports::POD_NETWORK, "Pod network"),
    udp(CONTROLLER, WORKER, ports::POD_NETWORK, "Pod network"),
    udp(WORKER, CONTROLLER, ports::POD_NETWORK, "Pod network"),
    udp(WORKER, WORKER, ports::POD_NETWORK, "Pod network"),
];

/// Adds the groups, their rules and their exports.
pub(super) fn add(context: &Context<'_>, template: &mut Template, vpc_id: &Value) {
    for (id, name, what) in [
        (ETCD, "etcd", "etcd members"),
        (CONTROLLER, "controller", "controllers"),
        (WORKER, "worker", "workers"),
    ] {
        let description = format!("The {what} of the Kubernetes cluster {}", context.cluster.name);
        let group = Resource::new("AWS::EC2::SecurityGroup")
            .set("VpcId", vpc_id.clone())
            .set("GroupDescription", description.as_str())
            .set("Tags", context.tags(name).list());
        template.add(id, group);
        template.export(id, description, get_att(id, "GroupId"), context.network_export(id));
    }
    for rule in RULES {
        let ingress = Resource::new("AWS::EC2::SecurityGroupIngress")
            .set("GroupId", get_att(rule.to, "GroupId"))
            .set("SourceSecurityGroupId", get_att(rule.from, "GroupId"))
            .set("IpProtocol", rule.protocol)
            .set("FromPort", rule.port)
            .set("ToPort", rule.port)
            .set("Description", rule.why);
        let short = |group: &str| group.trim_end_matches("SecurityGroup").to_owned();
        let protocol = if rule.protocol == "tcp" { "Tcp" } else { "Udp" };
        template.add(format!("{}From{}{protocol}{}", short(rule.to), short(rule.from), rule.port), ingress);
    }
    for cidr in ssh_sources(context) {
        for group in [ETCD, CONTROLLER, WORKER] {
            let ingress = Resource::new("AWS::EC2::SecurityGroupIngress")
                .set("GroupId", get_att(group, "GroupId"))
                .set("CidrIp", cidr.as_str())
                .set("IpProtocol", "tcp")
                .set("FromPort", ports::SSH)
                .set("ToPort", ports::SSH)
                .set("Description", "sshAccessAllowedSourceCIDRs");
            template
                .add(logical_id(&format!("{}Ssh", group.trim_end_matches("SecurityGroup")), &cidr), ingress);
        }
    }
}

/// Each range once, because EC2 refuses duplicate rules.
fn ssh_sources(context: &Context<'_>) -> BTreeSet<String> {
    context.cluster.network.ssh_source_cidrs.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever runs an agent in the host network looks there before they look for a fault.
    #[test]
    fn the_page_about_nodes_lists_every_port_that_machines_accept() {
        let page = include_str!("../../../../docs/nodes.md");
        let section = page.split("## Which ports machines accept").nth(1).unwrap_or_default();
        let rows: Vec<&str> = section
            .split("\n## ")
            .next()
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with("| "))
            .collect();
        for rule in RULES {
            let name = |group: &str| match group {
                ETCD => "members",
                CONTROLLER => "controllers",
                _ => "workers",
            };
            let port = format!("{} {} ", rule.protocol.to_uppercase(), rule.port);
            let is_listed = rows.iter().any(|row| {
                let cells: Vec<&str> = row.split('|').map(str::trim).collect();
                let [_, to, what, from, ..] = cells[..] else { return false };
                to.contains(name(rule.to)) && what.starts_with(&port) && from.contains(name(rule.from))
            });
            assert!(is_listed, "{} from {}: {port}", rule.to, rule.from);
        }
    }
}
