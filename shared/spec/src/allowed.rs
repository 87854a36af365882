//! What a spec uses of the account must be allowed by the installation (P13). CloudFormation's role and the permissions boundaries hold the
//! same limits; here the finding has a place and says which parameter to set.

use slipway_core::allowed::{Allowed, AllowedZone, is_at_or_below};
use slipway_core::cluster::{Cluster, Existing, Iam};
use slipway_core::release::Site;

use crate::Objection;

/// The objections to `cluster` in the installation `site`. None without an installation, as on a person's machine.
#[must_use]
pub fn objections(cluster: &Cluster, site: &Site) -> Vec<Objection> {
    let Some(allowed) = &site.allowed else { return Vec::new() };
    let mut found = programs(cluster, allowed, &site.asset_bucket);
    found.extend(members(cluster, allowed));
    found.extend(endpoints(cluster, allowed));
    found.extend(role_names(cluster));
    found.extend(policies(cluster, allowed));
    found.extend(key(cluster, allowed, &site.kms_key_arn));
    found.extend(profiles(cluster, allowed));
    found
}

/// How an installation is deployed again (docs/upgrading.md). Without `--template-file` it would deploy the template of the folder that it is run in,
/// without `--stack-name` it asks for samconfig.toml, and without `--capabilities` CloudFormation refuses the roles. `ARCHITECTURE` is also a
/// variable of `make package`.
pub const DEPLOY: &str = "sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml --stack-name slipway --resolve-s3 --capabilities CAPABILITY_IAM";

/// The command that sets parameters of the installation and keeps all others.
fn command(parameters: &[(&str, Vec<&str>)]) -> String {
    let overrides: Vec<String> =
        parameters.iter().map(|(name, values)| format!("{name}={}", values.join(","))).collect();
    format!("{DEPLOY} --parameter-overrides {}", overrides.join(" "))
}

/// `listed` with `wanted` at its end.
fn and<'a>(listed: impl IntoIterator<Item = &'a String>, wanted: &'a str) -> Vec<&'a str> {
    listed.into_iter().map(String::as_str).chain([wanted]).collect()
}

fn programs(cluster: &Cluster, allowed: &Allowed, asset_bucket: &str) -> Vec<Objection> {
    let place = cluster.software.base_url.as_deref().and_then(|url| url.strip_prefix("s3://"));
    let Some(bucket) = place.map(|place| place.split('/').next().unwrap_or_default()) else {
        return Vec::new();
    };
    let (message, help) = if bucket == asset_bucket {
        (
            format!("`{bucket}` is the asset bucket: every node could read what belongs to other clusters"),
            "put the programs into a bucket of their own, and list that in the installation's parameter `ProgramBuckets`"
                .to_owned(),
        )
    } else if allowed.program_buckets.iter().any(|listed| listed == bucket) {
        return Vec::new();
    } else {
        let set = command(&[("ProgramBuckets", and(&allowed.program_buckets, bucket))]);
        (
            format!(
                "nodes may not read the bucket `{bucket}`: it is not in the installation's parameter `ProgramBuckets`"
            ),
            format!("use a bucket that is listed, or let an administrator of the installation run: {set}"),
        )
    };
    vec![Objection::error("program-bucket", vec!["software.baseURL".to_owned()], message, help)]
}

/// The command that lists one more zone.
fn list_zone(allowed: &Allowed, id: &str, domain: &str) -> String {
    let ids = and(allowed.hosted_zones.iter().map(|zone| &zone.id), id);
    let domains = and(allowed.hosted_zones.iter().map(|zone| &zone.domain), domain);
    command(&[("HostedZoneIds", ids), ("HostedZoneDomains", domains)])
}

fn zone_objection(path: String, message: String, set: &str) -> Objection {
    let help = format!("use a zone that is listed, or let an administrator of the installation run: {set}");
    Objection::error("hosted-zone", vec![path], message, help)
}

/// Where the parts of clusters begin in the domains of `PrivateDomains`: directly below these, as `CLUSTER.internal`, or as the default
/// `CLUSTER.etcd.internal`.
fn bases(private_domains: &[String]) -> Vec<String> {
    private_domains.iter().flat_map(|domain| [domain.clone(), format!("etcd.{domain}")]).collect()
}

/// The label of the cluster whose part of a private domain `domain` is: the one directly below the deepest of `bases`, so that each name is of
/// one cluster, whatever other labels it has. `None`: nobody's, because it is elsewhere or would hide the parts of several, or the names
/// that EC2 gives to machines (docs.aws.amazon.com/AWSEC2/latest/UserGuide/hostname-types.html).
fn owner<'d>(domain: &'d str, bases: &[String]) -> Option<&'d str> {
    let of_ec2 = ["compute.internal", "ec2.internal"].iter().any(|names| is_at_or_below(domain, names));
    let hides = bases.iter().any(|base| is_at_or_below(base, domain));
    let base = bases.iter().filter(|base| is_at_or_below(domain, base)).max_by_key(|base| base.len());
    let below = domain.strip_suffix(base?.as_str())?.strip_suffix('.')?;
    below.rsplit('.').next().filter(|_| !of_ec2 && !hides)
}

/// The domain that `PrivateDomains` would have to list, so that `domain` were the part of the cluster whose label is `own` (`prod.`). `None` if no
/// domain may be listed for it.
fn could_list<'d>(domain: &'d str, own: &str, private_domains: &[String]) -> Option<&'d str> {
    let of_ec2 = ["compute.internal", "ec2.internal"].iter().any(|names| is_at_or_below(domain, names));
    // Below these each label is a cluster's.
    let of_clusters =
        private_domains.iter().any(|private| is_at_or_below(domain, &format!("etcd.{private}")));
    let at = format!(".{domain}").find(&format!(".{own}")).filter(|_| !of_ec2 && !of_clusters)?;
    domain.get(at + own.len()..).filter(|rest| !private_domains.iter().any(|private| private == rest))
}

/// Members overwrite their own records in the zone, so each cluster has its own part of a zone that several may use.
fn members(cluster: &Cluster, allowed: &Allowed) -> Vec<Objection> {
    let domain = &cluster.etcd.internal_domain;
    let own = format!("{}.", cluster.name.to_ascii_lowercase());
    let Some(id) = &cluster.etcd.hosted_zone_id else {
        let label = cluster.name.to_ascii_lowercase();
        if owner(domain, &bases(&allowed.private_domains)) == Some(&label) {
            return Vec::new();
        }
        let (message, help) = match could_list(domain, &own, &allowed.private_domains) {
            Some(rest) => {
                let set = command(&[("PrivateDomains", and(&allowed.private_domains, rest))]);
                (
                    format!(
                        "`{domain}` is not this cluster's own part of a private domain: `{rest}` is not in the installation's parameter `PrivateDomains`"
                    ),
                    format!(
                        "write a name such as `{own}etcd.internal`, remove the key, or let an administrator of the installation run: {set}"
                    ),
                )
            }
            None => (
                format!(
                    "`{domain}` is not this cluster's own part of a private domain: the zone would hide others' names in its VPC"
                ),
                format!("write a name such as `{own}etcd.internal`, or remove the key"),
            ),
        };
        return vec![Objection::error(
            "hosted-zone",
            vec!["etcd.internalDomainName".to_owned()],
            message,
            help,
        )];
    };
    let zones: Vec<&AllowedZone> = allowed.hosted_zones.iter().filter(|zone| zone.id == *id).collect();
    if zones.is_empty() {
        let message = format!(
            "members may not write into the zone `{id}`: it is not in the installation's parameter `HostedZoneIds`"
        );
        let for_others = domain.strip_prefix(&own).unwrap_or(domain);
        return vec![zone_objection(
            "etcd.hostedZone.id".to_owned(),
            message,
            &list_zone(allowed, id, for_others),
        )];
    }
    if zones.iter().any(|zone| is_at_or_below(domain, &format!("{own}{}", zone.domain))) {
        return Vec::new();
    }
    let parts: Vec<String> = zones.iter().map(|zone| format!("`{own}{}`", zone.domain)).collect();
    let message = format!(
        "`{domain}` is not this cluster's part of the zone `{id}`: another cluster's members may have records there"
    );
    let help = format!("write {}, or a name below it", parts.join(" or "));
    vec![Objection::error("hosted-zone", vec!["etcd.internalDomainName".to_owned()], message, help)]
}

fn endpoints(cluster: &Cluster, allowed: &Allowed) -> Vec<Objection> {
    let one = |(index, endpoint): (usize, &slipway_core::cluster::ApiEndpoint)| {
        let zone = endpoint.load_balancer.hosted_zone_id.as_ref()?;
        let name = &endpoint.dns_name;
        let at = |key: &str| format!("apiEndpoints[{index}].{key}");
        // Which zone another stack exports is not known here; CloudFormation's role can write into the listed zones only.
        let (zones, what): (Vec<&AllowedZone>, String) = match zone {
            Existing::Id(id) => (
                allowed.hosted_zones.iter().filter(|one| one.id == *id).collect(),
                format!("the zone `{id}`"),
            ),
            Existing::Export(_) => (allowed.hosted_zones.iter().collect(), "any listed zone".to_owned()),
        };
        if let (true, Existing::Id(id)) = (zones.is_empty(), zone) {
            let message = format!(
                "no record may be made in the zone `{id}`: it is not in the installation's parameter `HostedZoneIds`"
            );
            let domain = name.split_once('.').map_or(name.as_str(), |(_, domain)| domain);
            let path = at("loadBalancer.hostedZone.id");
            return Some(zone_objection(path, message, &list_zone(allowed, id, domain)));
        }
        if zones.iter().any(|zone| zone.has(name)) {
            let (domain, owner) = part_of_another(name, &zones, &cluster.name)?;
            let message = format!(
                "the record `{name}` is in the part of the domain `{domain}` in which a cluster `{owner}` has the names of its etcd members"
            );
            let own = cluster.name.to_ascii_lowercase();
            let help = format!(
                "write a name directly below `{domain}`, such as `{own}.{domain}`, or one below `{own}.{domain}`; an administrator can list \
                 `{owner}.{domain}` in the installation's parameter `HostedZoneDomains`, with the same zone, if no cluster has that name"
            );
            return Some(Objection::error("hosted-zone", names(index), message, help));
        }
        let domains: Vec<String> = zones.iter().map(|zone| format!("`{}`", zone.domain)).collect();
        let message = format!("the record `{name}` is outside of what {what} is for");
        let help = match domains.is_empty() {
            true => format!(
                "let an administrator of the installation run, with the id of that zone: {}",
                list_zone(allowed, "ID", name.split_once('.').map_or(name.as_str(), |(_, domain)| domain))
            ),
            false => format!(
                "write a name below {}; an administrator can list more in the installation's parameters `HostedZoneIds` and `HostedZoneDomains`",
                domains.join(" or ")
            ),
        };
        Some(Objection::error("hosted-zone", names(index), message, help))
    };
    cluster.api_endpoints.iter().enumerate().filter_map(one).collect()
}

/// Where an endpoint's name is. The older keys of kube-aws are `externalDNSName` and `hostedZoneId`.
fn names(index: usize) -> Vec<String> {
    vec![format!("apiEndpoints[{index}].dnsName"), "externalDNSName".to_owned()]
}

/// The domain that a record is in, and the label of the other cluster in whose part of it: etcd's members have names of two labels or more below
/// the domain ([`members`]), and so has whatever could take one of theirs. `None`: it is nobody else's.
fn part_of_another<'n>(
    name: &'n str,
    zones: &[&'n AllowedZone],
    cluster: &str,
) -> Option<(&'n str, &'n str)> {
    let zone = zones.iter().filter(|zone| zone.has(name)).max_by_key(|zone| zone.domain.len())?;
    let name = name.trim_end_matches('.');
    let below = name.get(..name.len().checked_sub(zone.domain.len() + 1)?)?;
    let (_, owner) = below.rsplit_once('.')?;
    (!owner.eq_ignore_ascii_case(cluster)).then_some((zone.domain.as_str(), owner))
}

/// Names of roles are unique in the account, so a whole name could be that of another cluster's role, or of one that something else in the account
/// trusts by its name.
fn role_names(cluster: &Cluster) -> Vec<Objection> {
    let own = format!("{}-", cluster.name);
    let pools = cluster.pools.iter().enumerate();
    let pools = pools.map(|(index, pool)| (format!("worker.nodePools[{index}]"), &pool.iam));
    let all = [("controller".to_owned(), &cluster.controller.iam), ("etcd".to_owned(), &cluster.etcd.iam)];
    let foreign = all.into_iter().chain(pools).filter_map(|(path, iam)| {
        let name = iam.role_name.as_ref().filter(|name| iam.strict_name && !name.starts_with(&own))?;
        let message = format!("with `strictName` the role `{name}` could take the name of another cluster's role, or of another role of the account");
        let help = format!("write a name that begins with `{own}`, or remove `strictName`: the stack's name then goes before it");
        Some(Objection::error("role-name", vec![format!("{path}.iam.role.name")], message, help))
    });
    foreign.collect()
}

fn policies(cluster: &Cluster, allowed: &Allowed) -> Vec<Objection> {
    let policies_at = |path: &str, iam: &Iam| -> Vec<(String, String)> {
        let all = iam.managed_policy_arns.iter().enumerate();
        all.map(|(index, arn)| (format!("{path}.iam.role.managedPolicies[{index}].arn"), arn.clone()))
            .collect()
    };
    let mut named = policies_at("controller", &cluster.controller.iam);
    named.extend(policies_at("etcd", &cluster.etcd.iam));
    for (index, pool) in cluster.pools.iter().enumerate() {
        named.extend(policies_at(&format!("worker.nodePools[{index}]"), &pool.iam));
    }
    for (index, role) in cluster.iam_roles.iter().flat_map(|roles| &roles.roles).enumerate() {
        for (policy, arn) in role.managed_policy_arns.iter().enumerate() {
            let path = format!("iamRolesForServiceAccounts.roles[{index}].managedPolicies[{policy}].arn");
            named.push((path, arn.clone()));
        }
    }
    let unlisted = named.into_iter().filter(|(_, arn)| !allowed.managed_policy_arns.contains(arn));
    unlisted
        .map(|(path, arn)| {
            let set = command(&[("ManagedPolicyArns", and(&allowed.managed_policy_arns, &arn))]);
            let message = format!(
                "`{arn}` may not be attached: it is not in the installation's parameter `ManagedPolicyArns`"
            );
            let help = format!(
                "name a policy that is listed, or let an administrator of the installation run: {set}"
            );
            Objection::error("managed-policy", vec![path], message, help)
        })
        .collect()
}

/// Whether `arn` is what IAM means by `listed`: `*` stands for any text, and `?` for one character.
fn is_listed(arn: &str, listed: &str) -> bool {
    match listed.split_at_checked(1) {
        None => arn.is_empty(),
        Some(("*", rest)) => (0..=arn.len()).any(|at| arn.get(at..).is_some_and(|arn| is_listed(arn, rest))),
        Some((one, rest)) => arn
            .split_at_checked(1)
            .is_some_and(|(first, arn)| (one == "?" || one == first) && is_listed(arn, rest)),
    }
}

fn key(cluster: &Cluster, allowed: &Allowed, own: &str) -> Option<Objection> {
    let arn = cluster.kms_key_arn.as_ref().filter(|arn| *arn != own)?;
    let keys = allowed.cluster_key_arns.as_ref()?;
    if keys.iter().any(|listed| is_listed(arn, listed)) {
        return None;
    }
    let set = command(&[("ClusterKeyArns", and(keys, arn))]);
    let message = format!(
        "the functions may not use the key `{arn}`: it is not in the installation's parameter `ClusterKeyArns`"
    );
    let help = format!(
        "name a key that is listed, remove the key, or let an administrator of the installation run: {set}"
    );
    Some(Objection::error("kms-key", vec!["kmsKeyArn".to_owned()], message, help))
}

/// A profile's ARN does not say which role it has, so only an installation that lists no role at all certainly refuses it. IAM decides about each
/// role when CloudFormation passes it.
fn profiles(cluster: &Cluster, allowed: &Allowed) -> Vec<Objection> {
    if allowed.instance_role_arns.as_ref().is_none_or(|roles| !roles.is_empty()) {
        return Vec::new();
    }
    let pools = cluster.pools.iter().enumerate();
    let pools = pools.map(|(index, pool)| (format!("worker.nodePools[{index}]"), &pool.iam));
    let all = [("controller".to_owned(), &cluster.controller.iam), ("etcd".to_owned(), &cluster.etcd.iam)];
    let named = all.into_iter().chain(pools).filter_map(|(path, iam)| {
        let arn = iam.instance_profile_arn.as_ref()?;
        let message = format!("`{arn}` may not be used: no role is in the installation's parameter `InstanceRoleArns`");
        let help = format!(
            "remove the key, or let an administrator of the installation run, with the ARN of the profile's role: {}",
            command(&[("InstanceRoleArns", vec!["ROLE_ARN"])])
        );
        Some(Objection::error("instance-role", vec![format!("{path}.iam.instanceProfile.arn")], message, help))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_listed_as_iam_would_read_it() {
        let key = "arn:aws:kms:eu-west-1:111122223333:key/1";
        for (listed, expected) in [
            (key, true),
            ("*", true),
            ("arn:aws:kms:*:111122223333:key/*", true),
            ("arn:aws:kms:eu-west-?:111122223333:key/?", true),
            ("arn:aws:kms:eu-west-1:111122223333:key/", false),
            ("arn:aws:kms:eu-west-1:111122223333:key/12", false),
            ("arn:aws:kms:*:444455556666:key/*", false),
            ("", false),
        ] {
            assert_eq!(is_listed(key, listed), expected, "{listed}");
        }
    }

    #[test]
    fn p13_each_private_name_is_of_one_cluster_at_most() {
        let bases = bases(&["internal".to_owned(), "corp.internal".to_owned()]);
        for (domain, of) in [
            ("prod.internal", Some("prod")),
            ("prod.etcd.internal", Some("prod")),
            ("etcd.etcd.internal", Some("etcd")),
            ("etcd-0.prod.etcd.internal", Some("prod")),
            ("etcd-0.prod.corp.internal", Some("prod")),
            ("store.prod.internal", Some("prod")),
            ("internal", None),
            ("etcd.internal", None),
            ("corp.internal", None),
            ("ec2.internal", None),
            ("prod.eu-west-1.compute.internal", None),
            ("prod.example.net", None),
            ("prodinternal", None),
        ] {
            assert_eq!(owner(domain, &bases), of, "{domain}");
        }
    }
}
