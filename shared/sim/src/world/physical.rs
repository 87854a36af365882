//! Physical ids in AWS' format; the same for the same seed, stack, resource and number of the creation.

use std::collections::BTreeMap;

use serde_json::Value;

use super::World;
use super::attributes;
use super::maker::Maker;
use super::resource::Resource;

/// The result of creating a resource.
pub(super) struct Made {
    /// The value of `Ref`.
    pub(super) id: String,
    pub(super) attributes: BTreeMap<String, Value>,
}

/// Makes the id and the attributes of a resource.
///
/// # Errors
/// AWS' message if the service would refuse a name.
pub(super) fn make(
    world: &World,
    stack_id: &str,
    resource: &Resource,
    generation: u64,
) -> Result<Made, String> {
    let stack_name = &world.stacks[stack_id].name;
    let hex = world.hex(&format!("{stack_id} {} {generation}", resource.logical_id));
    let maker = Maker { world, stack_name, resource, hex };
    let id = maker.id()?;
    let attributes = attributes::for_resource(&maker, &id);
    Ok(Made { id, attributes })
}

/// What must be unique in an account: usually the id, but some ids are only names within another resource.
pub(super) fn identity(kind: &str, id: &str, properties: &Value) -> String {
    let text = |key: &str| properties.get(key).and_then(Value::as_str).unwrap_or_default();
    match kind {
        "AWS::AutoScaling::LifecycleHook" => format!("{}|{id}", text("AutoScalingGroupName")),
        "AWS::Route53::RecordSet" => {
            let zone =
                if text("HostedZoneId").is_empty() { text("HostedZoneName") } else { text("HostedZoneId") };
            format!("{zone}|{id}|{}|{}", text("Type"), text("SetIdentifier"))
        }
        "AWS::EC2::LaunchTemplate" if !text("LaunchTemplateName").is_empty() => {
            text("LaunchTemplateName").to_owned()
        }
        "AWS::EC2::SecurityGroup" if !text("GroupName").is_empty() => {
            format!("{}|{}", text("VpcId"), text("GroupName"))
        }
        // An ARN ends with a name and a number; the name must be unique.
        "AWS::ElasticLoadBalancingV2::LoadBalancer" | "AWS::ElasticLoadBalancingV2::TargetGroup" => {
            id.rsplit('/').nth(1).unwrap_or(id).to_owned()
        }
        "AWS::EC2::VPCGatewayAttachment" => {
            format!("{id}|{}{}", text("InternetGatewayId"), text("VpnGatewayId"))
        }
        _ => id.to_owned(),
    }
}

/// Whether two descriptions mean the same resource. The id alone is not enough: a record in another zone has the same id.
pub(super) fn is_same(one: &Resource, other: &Resource) -> bool {
    let physical_id = |resource: &Resource| {
        let id = resource.physical_id.as_deref()?;
        Some((resource.kind.clone(), identity(&resource.kind, id, &resource.properties)))
    };
    one.physical_id == other.physical_id && physical_id(one) == physical_id(other)
}
