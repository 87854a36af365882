//! CloudFormation's behaviour, one test per rule.
#![allow(clippy::unwrap_used)]

mod changes;
mod deletion;
mod drift;
mod exports;
mod groups;
mod lifecycle;
mod refusals;
mod schedules;
mod troubles;

use serde_json::{Value, json};

use super::stack::StackEvent;
use super::{ApiResult, ChangeSetKind, Config, OnFailure, StackRequest, TemplateSource, World};

pub(super) fn world() -> World {
    World::new(Config::default())
}

/// A request for `resources`, with all capabilities.
pub(super) fn request(stack: &str, template: &Value) -> StackRequest {
    StackRequest {
        stack_name: stack.to_owned(),
        template: Some(TemplateSource { body: template.to_string(), from_url: true }),
        capabilities: ["CAPABILITY_NAMED_IAM".to_owned()].into(),
        ..StackRequest::default()
    }
}

/// A VPC, a subnet in it, and a security group.
pub(super) fn network(vpc: &str, subnet: &str) -> Value {
    json!({"Resources": {
        "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": vpc}},
        "Subnet": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": subnet}},
        "Group": {"Type": "AWS::EC2::SecurityGroup", "Properties": {
            "VpcId": {"Ref": "Vpc"}, "GroupDescription": "test"}},
    }})
}

/// A launch template and a group that follows its newest version.
pub(super) fn pool(image: &str, most: u32) -> Value {
    json!({"Resources": {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {
            "LaunchTemplateData": {"ImageId": image, "InstanceType": "m5.large"}}},
        "Nodes": {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {
            "MinSize": "1", "MaxSize": most.to_string(), "VPCZoneIdentifier": ["subnet-1"],
            "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"},
                "Version": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}}},
    }})
}

/// Creates a stack with a change set and waits until it settles.
pub(super) fn create(world: &mut World, stack: &str, template: &Value) {
    apply(world, stack, ChangeSetKind::Create, template);
}

/// Updates a stack with a change set and waits until it settles.
pub(super) fn update(world: &mut World, stack: &str, template: &Value) {
    apply(world, stack, ChangeSetKind::Update, template);
}

fn apply(world: &mut World, stack: &str, kind: ChangeSetKind, template: &Value) {
    let name = format!("apply-{}", world.sequence);
    make(world, stack, &name, kind, &request(stack, template)).unwrap();
    world.execute_change_set(Some(stack), &name, None).unwrap();
    world.settle();
}

/// Creates a change set and waits until it is complete.
pub(super) fn make(
    world: &mut World,
    _stack: &str,
    name: &str,
    kind: ChangeSetKind,
    request: &StackRequest,
) -> ApiResult<()> {
    world.create_change_set(name, kind, None, request)?;
    world.settle();
    Ok(())
}

pub(super) fn status(world: &World, stack: &str) -> String {
    world.stack_status(stack).unwrap_or_else(|| "none".to_owned())
}

/// `Logical STATUS reason`, oldest first.
pub(super) fn story(world: &mut World, stack: &str) -> Vec<String> {
    events(world, stack)
        .iter()
        .map(|event| {
            let reason = event.reason.as_deref().unwrap_or_default();
            format!("{} {} {reason}", event.logical_id, event.status).trim_end().to_owned()
        })
        .collect()
}

pub(super) fn events(world: &mut World, stack: &str) -> Vec<StackEvent> {
    let mut all = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        let (_, page, next) = world.events(stack, at).unwrap();
        all.extend(page.into_iter().cloned());
        from = next;
    }
    all.reverse();
    all
}

pub(super) fn with_on_failure(request: StackRequest, on_failure: OnFailure) -> StackRequest {
    StackRequest { on_failure: Some(on_failure), ..request }
}
