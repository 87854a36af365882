//! The content of the world, as XML.

use super::xml::Xml;
use crate::schema::Recreation;
use crate::world::{
    Change, ChangeSet, Detail, Detection, DriftInformation, Resource, ResourceDrift, Revision, Stack,
    StackEvent, Validated, status_name,
};

/// The present revision of the stack, or the target while the stack is being created.
fn shown(stack: &Stack) -> Option<&Revision> {
    stack.revision.as_ref().or_else(|| stack.operation_target())
}

fn parameters(xml: &mut Xml, revision: &Revision) {
    xml.list("Parameters", &revision.parameters, |xml, (key, value)| {
        let hidden = revision.template.parameters.get(key).is_some_and(|declared| declared.no_echo);
        xml.leaf("ParameterKey", key).leaf("ParameterValue", if hidden { "****" } else { value });
    });
}

fn tags(xml: &mut Xml, revision: &Revision) {
    xml.list("Tags", &revision.tags, |xml, (key, value)| {
        xml.leaf("Key", key).leaf("Value", value);
    });
}

pub(super) fn stack(xml: &mut Xml, (stack, drift): (&Stack, DriftInformation)) {
    xml.leaf("StackId", &stack.id)
        .leaf("StackName", &stack.name)
        .maybe("ChangeSetId", stack.change_set_id.as_ref());
    if let Some(revision) = shown(stack) {
        xml.maybe("Description", revision.template.description.as_ref());
        parameters(xml, revision);
        xml.texts("Capabilities", &revision.capabilities);
        tags(xml, revision);
    }
    xml.time("CreationTime", stack.created_at);
    if let Some(at) = stack.updated_at {
        xml.time("LastUpdatedTime", at);
    }
    if let Some(at) = stack.deleted_at {
        xml.time("DeletionTime", at);
    }
    xml.leaf("StackStatus", status_name(stack.status)).maybe("StackStatusReason", stack.reason.as_ref());
    xml.nest("RollbackConfiguration", |_| {}).leaf("DisableRollback", false).nest("NotificationARNs", |_| {});
    xml.list("Outputs", &stack.outputs, |xml, (key, output)| {
        xml.leaf("OutputKey", key).leaf("OutputValue", &output.value);
        xml.maybe("Description", output.description.as_ref()).maybe("ExportName", output.export.as_ref());
    });
    xml.maybe("RoleARN", stack.role_arn.as_ref()).leaf("EnableTerminationProtection", stack.protected);
    xml.nest("DriftInformation", |xml| {
        let (status, at) = drift;
        xml.leaf("StackDriftStatus", status);
        if let Some(at) = at {
            xml.time("LastCheckTimestamp", at);
        }
    });
}

pub(super) fn stack_summary(xml: &mut Xml, stack: &Stack) {
    xml.leaf("StackId", &stack.id).leaf("StackName", &stack.name).time("CreationTime", stack.created_at);
    xml.maybe(
        "TemplateDescription",
        shown(stack).and_then(|revision| revision.template.description.as_ref()),
    );
    if let Some(at) = stack.updated_at {
        xml.time("LastUpdatedTime", at);
    }
    if let Some(at) = stack.deleted_at {
        xml.time("DeletionTime", at);
    }
    xml.leaf("StackStatus", status_name(stack.status)).maybe("StackStatusReason", stack.reason.as_ref());
}

pub(super) fn event(xml: &mut Xml, stack: &Stack, event: &StackEvent) {
    xml.leaf("StackId", &stack.id).leaf("StackName", &stack.name).leaf("EventId", &event.event_id);
    xml.leaf("LogicalResourceId", &event.logical_id).leaf("PhysicalResourceId", &event.physical_id);
    xml.leaf("ResourceType", &event.kind).time("Timestamp", event.at).leaf("ResourceStatus", &event.status);
    xml.maybe("ResourceStatusReason", event.reason.as_ref())
        .maybe("ResourceProperties", event.properties.as_ref());
    xml.maybe("ClientRequestToken", event.token.as_ref());
}

pub(super) fn resource(xml: &mut Xml, stack: &Stack, one: &Resource) {
    xml.leaf("StackId", &stack.id).leaf("StackName", &stack.name).leaf("LogicalResourceId", &one.logical_id);
    xml.maybe("PhysicalResourceId", one.physical_id.as_ref()).leaf("ResourceType", &one.kind);
    xml.time("Timestamp", one.changed_at).leaf("ResourceStatus", one.status.name());
    xml.maybe("ResourceStatusReason", one.reason.as_ref());
}

pub(super) fn resource_summary(xml: &mut Xml, one: &Resource) {
    xml.leaf("LogicalResourceId", &one.logical_id).maybe("PhysicalResourceId", one.physical_id.as_ref());
    xml.leaf("ResourceType", &one.kind).time("LastUpdatedTimestamp", one.changed_at);
    xml.leaf("ResourceStatus", one.status.name()).maybe("ResourceStatusReason", one.reason.as_ref());
}

pub(super) fn change_set_summary(xml: &mut Xml, stack: &Stack, one: &ChangeSet) {
    xml.leaf("StackId", &stack.id).leaf("StackName", &stack.name).leaf("ChangeSetId", &one.id);
    xml.leaf("ChangeSetName", &one.name)
        .leaf("Status", one.status)
        .maybe("StatusReason", one.reason.as_ref());
    xml.leaf("ExecutionStatus", one.execution_status.name()).time("CreationTime", one.created_at);
    xml.maybe("Description", one.description.as_ref());
}

/// A change set without its changes.
pub(super) fn change_set(xml: &mut Xml, stack: &Stack, one: &ChangeSet) {
    change_set_summary(xml, stack, one);
    parameters(xml, &one.target);
    tags(xml, &one.target);
    xml.texts("Capabilities", &one.target.capabilities);
    xml.nest("NotificationARNs", |_| {})
        .nest("RollbackConfiguration", |_| {})
        .leaf("IncludeNestedStacks", false);
    xml.maybe("OnStackFailure", one.on_failure.map(|on_failure| on_failure.name()));
}

/// A change. Its values are included only on request (`IncludePropertyValues`).
pub(super) fn change(xml: &mut Xml, change: &Change, values: bool) {
    xml.leaf("Type", "Resource").nest("ResourceChange", |xml| {
        xml.maybe("PolicyAction", change.policy_action).leaf("Action", change.action.name());
        xml.leaf("LogicalResourceId", &change.logical_id);
        xml.maybe("PhysicalResourceId", change.physical_id.as_ref()).leaf("ResourceType", &change.kind);
        xml.maybe("Replacement", change.replacement).texts("Scope", &change.scope);
        xml.list("Details", &change.details, |xml, one| detail(xml, one, values));
        if values {
            let context = |value: &serde_json::Value| serde_json::json!({"Properties": value}).to_string();
            xml.maybe("BeforeContext", change.before.as_ref().map(context));
            xml.maybe("AfterContext", change.after.as_ref().map(context));
        }
    });
}

fn detail(xml: &mut Xml, one: &Detail, values: bool) {
    xml.nest("Target", |xml| {
        xml.leaf("Attribute", one.attribute);
        if one.attribute == "Properties" {
            xml.maybe("Name", one.name.as_ref());
        }
        xml.leaf(
            "RequiresRecreation",
            match one.recreation {
                Recreation::Never => "Never",
                Recreation::Conditionally => "Conditionally",
                Recreation::Always => "Always",
            },
        );
        if values {
            let text =
                |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            xml.maybe("Path", one.path.as_ref()).leaf("AttributeChangeType", one.change_type());
            xml.maybe("BeforeValue", one.before.as_ref().map(text))
                .maybe("AfterValue", one.after.as_ref().map(text));
        }
    });
    xml.leaf("Evaluation", if one.known { "Static" } else { "Dynamic" }).leaf("ChangeSource", one.source);
    xml.maybe("CausingEntity", one.causing_entity.as_ref());
}

/// An answer of `DescribeStackDriftDetectionStatus`.
pub(super) fn detection(xml: &mut Xml, id: &str, one: &Detection) {
    xml.leaf("StackId", &one.stack).leaf("StackDriftDetectionId", id);
    xml.leaf("StackDriftStatus", one.stack_status()).leaf("DetectionStatus", one.status);
    xml.maybe("DetectionStatusReason", one.reason.as_ref()).maybe("DriftedStackResourceCount", one.drifted);
    xml.time("Timestamp", one.began_at);
}

pub(super) fn resource_drift(xml: &mut Xml, stack_id: &str, one: &ResourceDrift) {
    xml.leaf("StackId", stack_id).leaf("LogicalResourceId", &one.logical_id);
    xml.leaf("PhysicalResourceId", &one.physical_id).leaf("ResourceType", &one.kind);
    xml.maybe("ExpectedProperties", one.expected.as_ref()).maybe("ActualProperties", one.actual.as_ref());
    xml.list("PropertyDifferences", &one.differences, |xml, one| {
        xml.leaf("PropertyPath", &one.path).leaf("ExpectedValue", &one.expected);
        xml.leaf("ActualValue", &one.actual).leaf("DifferenceType", one.kind);
    });
    xml.leaf("StackResourceDriftStatus", one.status).maybe("DriftStatusReason", one.reason.as_ref());
    xml.time("Timestamp", one.at);
}

pub(super) fn validated(xml: &mut Xml, validated: &Validated) {
    xml.list("Parameters", &validated.template.parameters, |xml, (key, declared)| {
        xml.leaf("ParameterKey", key).maybe("DefaultValue", declared.default.as_ref());
        xml.leaf("NoEcho", declared.no_echo).maybe("Description", declared.description.as_ref());
    });
    xml.maybe("Description", validated.template.description.as_ref());
    if let Some(capability) = validated.capability {
        xml.texts("Capabilities", [capability]);
        let reason = "The following resource(s) require capabilities: [AWS::IAM]";
        xml.leaf("CapabilitiesReason", reason);
    }
}
