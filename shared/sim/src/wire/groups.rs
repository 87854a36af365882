//! Auto Scaling's actions.

use super::query::{Query, page_token};
use super::xml::Xml;
use crate::world::{ApiError, ApiResult, HookResult, ShownGroup, Termination, World};

pub(super) fn perform(world: &mut World, action: &str, query: &Query) -> ApiResult<Xml> {
    let mut xml = Xml::default();
    match action {
        "DescribeAutoScalingGroups" => describe(world, query, &mut xml)?,
        "DescribeAutoScalingInstances" => describe_machines(world, query, &mut xml)?,
        "SetDesiredCapacity" => {
            let (name, desired) =
                (query.required("AutoScalingGroupName")?, query.required("DesiredCapacity")?);
            // Cooldowns are not modelled, so a caller must not ask to honor them.
            query.never("HonorCooldown")?;
            query.finish()?;
            let desired =
                desired.parse().map_err(|_| ApiError::validation(format!("{desired} is not a capacity")))?;
            world.set_desired_capacity(name, desired)?;
        }
        "TerminateInstanceInAutoScalingGroup" => {
            let instance = query.required("InstanceId")?.to_owned();
            let shrink = query.required("ShouldDecrementDesiredCapacity")? == "true";
            query.finish()?;
            world.terminate_instance(&Termination { instance: instance.clone(), shrink })?;
            let id = world.request_id();
            xml.nest("Activity", |xml| {
                xml.leaf("ActivityId", id)
                    .leaf("Cause", "instance was taken out of service in response to a user request")
                    .leaf("Description", format!("Terminating EC2 instance: {instance}"))
                    .leaf("StatusCode", "InProgress")
                    .leaf("Progress", 0);
            });
        }
        "CompleteLifecycleAction" => {
            let (group, hook) = hook(query)?;
            let instance = query.required("InstanceId")?.to_owned();
            let result = match query.required("LifecycleActionResult")? {
                "CONTINUE" => HookResult::Continue,
                "ABANDON" => HookResult::Abandon,
                other => {
                    return Err(ApiError::validation(format!(
                        "Lifecycle action result {other} is not one of CONTINUE, ABANDON"
                    )));
                }
            };
            query.finish()?;
            world.complete_lifecycle_action(&group, &hook, &instance, result)?;
        }
        "RecordLifecycleActionHeartbeat" => {
            let (group, hook) = hook(query)?;
            let instance = query.required("InstanceId")?.to_owned();
            query.finish()?;
            world.record_heartbeat(&group, &hook, &instance)?;
        }
        other => return Err(ApiError::not_modelled(&format!("The action {other} of Auto Scaling"))),
    }
    Ok(xml)
}

fn hook(query: &Query) -> ApiResult<(String, String)> {
    let group = query.required("AutoScalingGroupName")?.to_owned();
    Ok((group, query.required("LifecycleHookName")?.to_owned()))
}

fn describe(world: &mut World, query: &Query, xml: &mut Xml) -> ApiResult<()> {
    let names: Vec<String> =
        query.list("AutoScalingGroupNames").unwrap_or_default().into_iter().map(str::to_owned).collect();
    let most: usize = match query.take("MaxRecords") {
        None => 50,
        Some(text) => text.parse().map_err(|_| ApiError::validation(format!("{text} is not a number")))?,
    };
    let from = query.page()?;
    query.finish()?;
    let (region, account) = (world.config().region.clone(), world.config().account.clone());
    let found = world.groups(&names)?;
    let next = from + most;
    let more = next < found.len();
    xml.list("AutoScalingGroups", found.iter().skip(from).take(most), |xml, group| {
        shown(xml, &format!("arn:aws:autoscaling:{region}:{account}"), group);
    });
    xml.maybe("NextToken", more.then(|| page_token(next)));
    Ok(())
}

/// The answer leaves out a machine that is in no group.
fn describe_machines(world: &mut World, query: &Query, xml: &mut Xml) -> ApiResult<()> {
    let ids = query.list("InstanceIds").unwrap_or_default();
    let &[id] = ids.as_slice() else {
        return Err(ApiError::not_modelled("DescribeAutoScalingInstances for more or less than one machine"));
    };
    query.finish()?;
    let found = world.machine_in_group(id)?;
    xml.list("AutoScalingInstances", found, |xml, (group, machine)| {
        xml.leaf("InstanceId", &machine.id)
            .leaf("AutoScalingGroupName", group)
            .leaf("AvailabilityZone", &machine.zone)
            .leaf("LifecycleState", machine.state.name())
            .leaf("HealthStatus", if machine.healthy { "HEALTHY" } else { "UNHEALTHY" })
            .leaf("ProtectedFromScaleIn", machine.protected);
    });
    Ok(())
}

fn shown(xml: &mut Xml, arn: &str, shown: &ShownGroup) {
    let (group, machines) = (&shown.group, &shown.machines);
    let name = &group.name;
    xml.leaf("AutoScalingGroupName", name)
        .leaf("AutoScalingGroupARN", format!("{arn}:autoScalingGroup:0:autoScalingGroupName/{name}"));
    if let Some(template) = &group.template {
        xml.nest("LaunchTemplate", |xml| {
            xml.leaf("LaunchTemplateId", &template.id).leaf("Version", &template.version);
        });
    }
    xml.leaf("MinSize", group.min)
        .leaf("MaxSize", group.max)
        .leaf("DesiredCapacity", group.desired)
        .leaf("DefaultCooldown", 300)
        .texts("AvailabilityZones", &group.zones)
        .texts("TargetGroupARNs", &group.target_groups)
        .leaf("HealthCheckType", "EC2")
        .leaf("HealthCheckGracePeriod", 0)
        .list("Instances", machines, |xml, machine| {
            xml.leaf("InstanceId", &machine.id)
                .leaf("AvailabilityZone", &machine.zone)
                .leaf("LifecycleState", machine.state.name())
                .leaf("HealthStatus", if machine.healthy { "Healthy" } else { "Unhealthy" });
            // Only groups with weights have it (botocore, `Instance.WeightedCapacity`).
            if !group.weights.is_empty() {
                xml.leaf("WeightedCapacity", machine.weight);
            }
            if let Some(template) = &machine.template {
                xml.nest("LaunchTemplate", |xml| {
                    xml.leaf("LaunchTemplateId", &template.id).leaf("Version", &template.version);
                });
            }
            xml.leaf("ProtectedFromScaleIn", machine.protected);
        })
        .time("CreatedTime", group.created_at)
        .list("SuspendedProcesses", &group.suspended, |xml, process| {
            xml.leaf("ProcessName", process.name()).leaf("SuspensionReason", "User suspended");
        })
        .leaf("CapacityRebalance", group.replaces_spot)
        .list("Tags", &group.tags, |xml, (key, value)| {
            xml.leaf("ResourceId", name)
                .leaf("ResourceType", "auto-scaling-group")
                .leaf("Key", key)
                .leaf("Value", value)
                .leaf("PropagateAtLaunch", true);
        })
        .leaf("NewInstancesProtectedFromScaleIn", false);
}
