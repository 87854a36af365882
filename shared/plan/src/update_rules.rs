//! Which property changes make CloudFormation replace a resource.
//!
//! The rules come from AWS' resource schemas (`createOnlyProperties`, `conditionalCreateOnlyProperties`). `shared/sim/data/make.py`
//! extracts them from a pinned source.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;

use super::Replacement;

/// A resource type without known update rules; only a patch can have added it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the update rules of resource type {resource_type} are not known")]
pub struct UnknownType {
    /// `AWS::EC2::VPC`.
    pub resource_type: String,
}

#[derive(Deserialize)]
struct File {
    #[expect(dead_code, reason = "says where the file is from, to whoever reads it")]
    source: String,
    types: BTreeMap<String, Rules>,
}

/// Property paths, joined by dots; `*` stands for any element of an array.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    always: Vec<String>,
    conditional: Vec<String>,
}

static RULES: LazyLock<BTreeMap<String, Rules>> = LazyLock::new(|| {
    serde_json::from_str::<File>(include_str!("../data/update-rules.json"))
        .expect("update-rules.json is made by make.py and read by the tests")
        .types
});

/// The effect of a change of `property_path` (below `Properties`, keys joined by dots: `DnsOptions.PrivateDnsPreference`) on a resource
/// of `resource_type`.
///
/// A rule applies to its property, to the properties inside it, and to a property that contains it. In the last case only a part of the
/// change is under the rule (the whole of `DnsOptions` is added or removed), so the values decide: [`Replacement::Conditional`]. A
/// property without a rule is changed in place: [`Replacement::Never`].
///
/// # Errors
/// [`UnknownType`] for a type that Slipway does not render.
pub fn replacement(resource_type: &str, property_path: &str) -> Result<Replacement, UnknownType> {
    let rules =
        RULES.get(resource_type).ok_or_else(|| UnknownType { resource_type: resource_type.to_owned() })?;
    let strongest = |paths: &[String], within: Replacement| {
        paths
            .iter()
            .map(|rule| match overlap(rule, property_path) {
                Overlap::None => Replacement::Never,
                Overlap::Within => within,
                Overlap::Partly => Replacement::Conditional,
            })
            .max()
    };
    Ok(strongest(&rules.always, Replacement::Always)
        .max(strongest(&rules.conditional, Replacement::Conditional))
        .unwrap_or(Replacement::Never))
}

/// Whether the update rules of `resource_type` are known.
#[must_use]
pub fn knows(resource_type: &str) -> bool {
    RULES.contains_key(resource_type)
}

enum Overlap {
    None,
    /// The changed property is the rule's, or inside it.
    Within,
    /// The changed property contains the rule's.
    Partly,
}

fn overlap(rule: &str, changed: &str) -> Overlap {
    let mut changed = changed.split('.');
    for step in rule.split('.') {
        match changed.next() {
            None => return Overlap::Partly,
            Some(key) if key == step || step == "*" => {}
            Some(_) => return Overlap::None,
        }
    }
    Overlap::Within
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn p3_a_create_only_property_replaces() {
        assert_eq!(replacement("AWS::EC2::Subnet", "CidrBlock"), Ok(Replacement::Always));
        assert_eq!(replacement("AWS::ElasticLoadBalancingV2::TargetGroup", "Port"), Ok(Replacement::Always));
        assert_eq!(replacement("AWS::Route53::RecordSet", "Name"), Ok(Replacement::Always));
        assert_eq!(
            replacement("AWS::EC2::VPCEndpoint", "DnsOptions.PrivateDnsPreference"),
            Ok(Replacement::Always)
        );
    }

    #[test]
    fn p3_a_launch_template_and_a_group_keep_their_identity() {
        assert_eq!(
            replacement("AWS::EC2::LaunchTemplate", "LaunchTemplateData.ImageId"),
            Ok(Replacement::Never)
        );
        assert_eq!(replacement("AWS::AutoScaling::AutoScalingGroup", "MaxSize"), Ok(Replacement::Never));
        assert_eq!(
            replacement("AWS::AutoScaling::AutoScalingGroup", "LaunchTemplate.Version"),
            Ok(Replacement::Conditional)
        );
        assert_eq!(replacement("AWS::EC2::VPC", "InstanceTenancy"), Ok(Replacement::Conditional));
    }

    #[test]
    fn p3_a_change_around_a_rule_is_left_to_the_values() {
        assert_eq!(replacement("AWS::EC2::VPCEndpoint", "DnsOptions"), Ok(Replacement::Conditional));
        assert_eq!(
            replacement("AWS::EC2::VPCEndpoint", "DnsOptions.DnsRecordIpType"),
            Ok(Replacement::Never)
        );
        assert_eq!(replacement("AWS::EC2::Subnet", "CidrBlockOther"), Ok(Replacement::Never));
    }

    #[test]
    fn p3_an_unknown_type_is_said_to_be_unknown() {
        let unknown = replacement("AWS::Foo::Bar", "Name").unwrap_err();
        assert_eq!(unknown.resource_type, "AWS::Foo::Bar");
        assert!(!knows("AWS::Foo::Bar") && knows("AWS::EC2::VPC"));
    }
}
