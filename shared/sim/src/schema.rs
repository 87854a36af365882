//! The resource types, as AWS' own schemas describe them (`data/make.py` names the sources).

mod check;
mod regexes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use check::check;

/// The placeholder for a value that is known only after the change, in CloudFormation's own words.
pub(crate) const UNKNOWN: &str = "{{changeSet:KNOWN_AFTER_APPLY}}";

/// A resource type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ResourceType {
    /// Schemas that other schemas refer to.
    pub(crate) definitions: Map<String, Value>,
    /// Paths (`A.B`); changing one of them replaces the resource.
    pub(crate) create_only: Vec<String>,
    /// Paths; changing one of them may replace the resource, depending on the values.
    pub(crate) conditional_create_only: Vec<String>,
    /// Properties that cannot be changed.
    pub(crate) not_updatable: Vec<String>,
    /// Paths that AWS sets. `Fn::GetAtt` returns them.
    pub(crate) read_only: Vec<String>,
    /// Paths that the service takes and never returns.
    pub(crate) write_only: Vec<String>,
    /// The property that receives the stack's tags, if the type takes tags.
    pub(crate) tag_property: Option<String>,
    /// `Fn::GetAtt` returns every property.
    pub(crate) every_property_is_attribute: bool,
    /// Everything else: the schema of the properties.
    #[serde(flatten)]
    pub(crate) schema: Map<String, Value>,
}

/// How a change of a property acts on the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Recreation {
    /// Changed in place.
    Never,
    /// It depends on the values.
    Conditionally,
    /// Replaced.
    Always,
}

#[derive(Deserialize)]
struct File {
    types: BTreeMap<String, ResourceType>,
}

static TYPES: LazyLock<BTreeMap<String, ResourceType>> = LazyLock::new(|| {
    serde_json::from_str::<File>(include_str!("../data/resource-types.json"))
        .expect("resource-types.json is made by make.py and read by the tests")
        .types
});

/// The type with that name, if it is modelled.
pub(crate) fn resource_type(name: &str) -> Option<&'static ResourceType> {
    TYPES.get(name)
}

/// The names of all types that are modelled.
pub fn type_names() -> impl Iterator<Item = &'static str> {
    TYPES.keys().map(String::as_str)
}

impl ResourceType {
    /// The names that `Fn::GetAtt` accepts.
    pub(crate) fn attributes(&self) -> BTreeSet<&str> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        let every = properties.into_iter().flat_map(|map| map.keys().map(String::as_str));
        let read_only = self.read_only.iter().map(String::as_str);
        every.filter(|_| self.every_property_is_attribute).chain(read_only).collect()
    }

    /// The effect of a change at `path` (keys and indexes below the properties).
    pub(crate) fn recreation(&self, path: &[String]) -> Recreation {
        let under = |rules: &[String]| rules.iter().any(|rule| within(rule, path));
        if under(&self.create_only) {
            Recreation::Always
        } else if under(&self.conditional_create_only) {
            Recreation::Conditionally
        } else {
            Recreation::Never
        }
    }
}

/// Whether `path` is the property that `rule` names, or is inside it.
pub(crate) fn within(rule: &str, path: &[String]) -> bool {
    let mut keys = path.iter();
    rule.split('.').all(|step| keys.next().is_some_and(|key| step == "*" || step == key))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn every_type_that_slipway_renders_is_here_with_its_rules() {
        assert_eq!(type_names().count(), 35);
        let subnet = resource_type("AWS::EC2::Subnet").unwrap();
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(subnet.recreation(&path("CidrBlock")), Recreation::Always);
        assert_eq!(subnet.recreation(&path("MapPublicIpOnLaunch")), Recreation::Never);
        assert!(subnet.attributes().contains("AvailabilityZone") && subnet.attributes().contains("SubnetId"));
        let group = resource_type("AWS::AutoScaling::AutoScalingGroup").unwrap();
        assert_eq!(group.recreation(&path("LaunchTemplate.Version")), Recreation::Conditionally);
        assert!(!resource_type("AWS::IAM::Role").unwrap().attributes().contains("RoleName"));
        assert!(resource_type("AWS::Foo::Bar").is_none());
    }

    #[test]
    fn p3_the_plan_and_this_world_go_by_the_same_rules() {
        use slipway_plan::Replacement;
        use slipway_plan::update_rules::replacement;
        for name in type_names() {
            let kind = resource_type(name).unwrap();
            for rule in kind.create_only.iter().chain(&kind.conditional_create_only) {
                let path: Vec<String> = rule.split('.').map(str::to_owned).collect();
                let ours = match kind.recreation(&path) {
                    Recreation::Never => Replacement::Never,
                    Recreation::Conditionally => Replacement::Conditional,
                    Recreation::Always => Replacement::Always,
                };
                assert_eq!(replacement(name, rule), Ok(ours), "{name} {rule}");
            }
        }
    }
}
