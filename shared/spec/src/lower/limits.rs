//! What AWS would refuse or ignore only when machines are launched: sizes, weights, security groups, key pairs.

use slipway_core::cluster::{Controller, MixedInstances, NodePool, SubnetSource};

use super::Lowering;
use super::network::Draft;
use crate::model::{IamSpec, PoolSpec};
use crate::path::Path;

/// AWS keeps the first four addresses and the last one of each subnet (docs.aws.amazon.com/vpc, "Subnet CIDR blocks").
const RESERVED_ADDRESSES: u64 = 5;
/// Security groups that a network interface may have unless the account's quota was raised, and the most that AWS grants
/// (docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html, "Security groups per network interface").
const GROUPS: usize = 5;
const MOST_GROUPS: usize = 16;
/// Rules for one direction of a security group (the same page), and managed policies of a role (IAM user guide, "IAM and AWS STS quotas"),
/// unless the account's quota was raised.
const RULES: usize = 60;
const POLICIES: usize = 10;
/// Slipway's own group of each role.
const OWN_GROUPS: usize = 1;

impl Lowering<'_, '_, '_> {
    /// Everything in this file, once the parts of the cluster are known.
    pub(super) fn limits(&mut self, controller: Option<&Controller>, pools: &[NodePool], network: &Draft) {
        let specs = self.spec;
        self.key_pair(specs.key_name.as_deref(), &Path::parse("keyName"));
        self.quotas();
        if let Some(controller) = controller {
            let path = Path::parse("controller");
            self.interface(controller.security_group_ids.len(), &path.key("securityGroupIds"));
            self.room(controller.count, controller.count, &controller.subnets, &path.key("subnets"), network);
        }
        self.interface(specs.etcd.security_group_ids.len(), &Path::parse("etcd.securityGroupIds"));
        for (index, spec) in specs.worker.node_pools.iter().enumerate() {
            let path = Path::parse("worker.nodePools").index(index);
            self.key_pair(spec.key_name.as_deref(), &path.key("keyName"));
            // One that was refused is missing here.
            let Some(pool) = spec.name.as_ref().and_then(|name| pools.iter().find(|pool| pool.name == *name))
            else {
                continue;
            };
            self.interface(pool.security_group_ids.len(), &path.key("securityGroupIds"));
            if let Some(mixed) = &pool.mixed_instances {
                self.mixed_limits(spec, pool, mixed, &path);
            }
            // Nobody knows how many machines the units of a group with weights are.
            if !pool.is_weighted() {
                self.room(pool.size.min, pool.size.max, &pool.subnets, &path.key("subnets"), network);
            }
        }
    }

    fn quotas(&mut self) {
        let spec = self.spec;
        let mut lists: Vec<(usize, usize, (&str, &str), Path)> = Vec::new();
        let rules = ("rules of a security group", "fewer, larger ranges");
        lists.push((
            spec.ssh_access_allowed_source_cidrs.len(),
            RULES,
            rules,
            Path::parse("sshAccessAllowedSourceCIDRs"),
        ));
        for (index, endpoint) in spec.api_endpoints.iter().enumerate() {
            let ranges = &endpoint.load_balancer.api_access_allowed_source_cidrs;
            let path = Path::parse("apiEndpoints")
                .index(index)
                .key("loadBalancer")
                .key("apiAccessAllowedSourceCIDRs");
            lists.push((ranges.as_ref().map_or(0, Vec::len), RULES, rules, path));
        }
        let policies = |iam: &IamSpec, path: Path| {
            let path = path.key("iam").key("role").key("managedPolicies");
            (
                iam.role.managed_policies.len(),
                POLICIES,
                ("managed policies of a role", "policies that hold what several hold"),
                path,
            )
        };
        lists.push(policies(&spec.controller.iam, Path::parse("controller")));
        lists.push(policies(&spec.etcd.iam, Path::parse("etcd")));
        for (index, pool) in spec.worker.node_pools.iter().enumerate() {
            lists.push(policies(&pool.iam, Path::parse("worker").key("nodePools").index(index)));
        }
        for (count, most, (what, fewer), path) in lists.into_iter().filter(|(count, most, ..)| count > most) {
            let message =
                format!("these are {count} {what}; AWS allows {most}, unless your quota was raised");
            let help = format!("name {most} at most: {fewer}");
            self.report.warning("too-many", &path, message, help);
        }
    }

    /// A key pair is known to EC2 by its name; a path or a public key is what people have at hand.
    fn key_pair(&mut self, name: Option<&str>, path: &Path) {
        let Some(name) = name else { return };
        let is_key = ["ssh-", "ecdsa-", "-----BEGIN"].iter().any(|start| name.starts_with(start));
        let is_path = name.starts_with(['~', '/', '.']);
        let help = "write the name that `aws ec2 describe-key-pairs` shows, or put the public key into `sshAuthorizedKeys`";
        if is_key || is_path {
            let what = if is_key { "a key" } else { "a path" };
            let message = format!("`keyName` is {what}, but must be the name of a key pair in EC2");
            self.report.error("key-name", path, message, help);
        } else if name.contains('/') || name.ends_with(".pem") || name.ends_with(".pub") {
            let message = format!("`{name}` looks like a file, and must be the name of a key pair in EC2");
            self.report.warning("key-name", path, message, help);
        }
    }

    /// `more`: the security groups besides Slipway's own.
    fn interface(&mut self, more: usize, path: &Path) {
        let all = more + OWN_GROUPS;
        if all > MOST_GROUPS {
            let message = format!(
                "with Slipway's own there are {all} security groups; an interface has {MOST_GROUPS} at most"
            );
            let help = format!("name {} at most, and merge their rules", MOST_GROUPS - OWN_GROUPS);
            self.report.error("too-many-groups", path, message, help);
        } else if all > GROUPS {
            let message = format!(
                "with Slipway's own there are {all} security groups; an interface has {GROUPS} at most, unless your quota was raised"
            );
            let help = format!(
                "name {} at most, or raise the quota \"Security groups per network interface\" first: machines could not be launched",
                GROUPS - OWN_GROUPS
            );
            self.report.warning("too-many-groups", path, message, help);
        }
    }

    fn mixed_limits(&mut self, spec: &PoolSpec, pool: &NodePool, mixed: &MixedInstances, path: &Path) {
        if let Some(name) = &spec.instance_type
            && !mixed.types.iter().any(|one| one.instance_type == *name)
        {
            let message = format!("no machine is a `{name}`, because `mixedInstances` names other types");
            let help = format!("remove `instanceType`, or add `{name}` to `mixedInstances`");
            self.report.warning("no-effect", &path.key("instanceType"), message, help);
        }
        let below = path.key("mixedInstances");
        let most = pool.size.max;
        for one in &mixed.types {
            let weight = one.weight.unwrap_or(1);
            if most > 0 && weight > most {
                let message = format!(
                    "one `{}` counts for {weight}, and the pool has {most} at most: sizes are in these units",
                    one.instance_type
                );
                let help = format!("write a `maxSize` of {weight} or more, or a smaller weight");
                self.report.warning("weight-above-size", &below, message, help);
            }
        }
        if mixed.on_demand_base > most {
            let message = format!(
                "`onDemandBaseCapacity` is {}, above the pool's maximum of {most}: no spot instance is ever launched",
                mixed.on_demand_base
            );
            let help = format!(
                "write less than {most}, or remove `mixedInstances` for a pool without spot instances"
            );
            self.report.warning("on-demand-base", &below.key("onDemandBaseCapacity"), message, help);
        }
    }

    /// Whether the subnets have addresses for that many machines. Of existing subnets the ranges are not known.
    fn room(&mut self, least: u32, most: u32, subnets: &[String], path: &Path, network: &Draft) {
        // None is known, because all were refused.
        if subnets.is_empty() {
            return;
        }
        let mut room = 0;
        for name in subnets {
            let Some(subnet) = network.subnet(name) else { return };
            let SubnetSource::Managed { cidr, .. } = &subnet.source else { return };
            room += (1_u64 << (32 - cidr.prefix_len())).saturating_sub(RESERVED_ADDRESSES);
        }
        let where_to = subnets.join("`, `");
        let help = "take larger subnets, or more of them: a /24 has 251 addresses, a /28 has 11, and load balancers need some as well";
        if u64::from(least) > room {
            let message = format!("`{where_to}` has {room} addresses for {least} machines");
            self.report.error("subnet-too-small", path, message, help);
        } else if u64::from(most) > room {
            let message = format!("`{where_to}` has {room} addresses, and there may be {most} machines");
            self.report.warning("subnet-too-small", path, message, help);
        }
    }
}
