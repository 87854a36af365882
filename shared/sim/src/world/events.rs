//! Stack events, and events for the default bus.

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_rollout::StackStatus;

use super::resource::ResourceStatus;
use super::stack::{StackEvent, status_name};
use super::{World, shown};

/// What the world sends to others.
#[derive(Debug, Clone, PartialEq)]
pub enum Outgoing {
    /// An event on the account's default bus.
    Event(BusEvent),
    /// EventBridge Scheduler invokes its target.
    Invoke {
        /// Name of the schedule.
        schedule: String,
        /// The target.
        target_arn: String,
        /// The role that it is invoked under.
        role_arn: String,
        /// The input, as it was given.
        input: String,
        /// When.
        at: Timestamp,
    },
}

/// An event as EventBridge delivers it.
#[derive(Debug, Clone, PartialEq)]
pub struct BusEvent {
    /// `detail-type`.
    pub detail_type: String,
    /// When.
    pub at: Timestamp,
    /// The whole envelope: version, id, source, account, time, region, resources, detail.
    pub envelope: Value,
}

impl World {
    /// Sets the status of a stack; stack events and the bus report it.
    pub(super) fn set_stack_status(&mut self, stack_id: &str, status: StackStatus, reason: Option<String>) {
        let at = self.now;
        let event_id = self.uuid();
        let stack = self.stack_mut(stack_id);
        stack.status = status;
        stack.reason.clone_from(&reason);
        let shown = stack.show(at);
        stack.shown.push(shown);
        if stack.shown.len() > shown::KEPT {
            stack.shown.remove(0);
        }
        let token = stack.operation.as_ref().and_then(|operation| operation.token.clone());
        stack.events.push(StackEvent {
            event_id,
            at,
            logical_id: stack.name.clone(),
            physical_id: stack.id.clone(),
            kind: "AWS::CloudFormation::Stack".to_owned(),
            status: status_name(status),
            reason: reason.clone(),
            properties: None,
            token: token.clone(),
        });
        let detail = json!({
            "stack-id": stack_id,
            "status-details": {"status": status_name(status), "status-reason": reason.unwrap_or_default()},
            "client-request-token": token.unwrap_or_default(),
        });
        self.send("CloudFormation Stack Status Change", stack_id, detail);
    }

    /// Records a new status of a resource. `physical_id` may be that of a replaced resource.
    pub(super) fn resource_event(
        &mut self,
        stack_id: &str,
        resource: &super::resource::Resource,
        status: ResourceStatus,
        reason: Option<&str>,
    ) {
        let at = self.now;
        let milliseconds = at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ");
        let event_id = format!("{}-{}-{milliseconds}", resource.logical_id, status.name());
        let stack = self.stack_mut(stack_id);
        let token = stack.operation.as_ref().and_then(|operation| operation.token.clone());
        let physical_id = resource.physical_id.clone().unwrap_or_default();
        stack.events.push(StackEvent {
            event_id,
            at,
            logical_id: resource.logical_id.clone(),
            physical_id: physical_id.clone(),
            kind: resource.kind.clone(),
            status: status.name().to_owned(),
            reason: reason.map(str::to_owned),
            properties: Some(resource.properties.to_string()),
            token: token.clone(),
        });
        let detail = json!({
            "stack-id": stack_id,
            "logical-resource-id": resource.logical_id,
            "physical-resource-id": physical_id,
            "resource-type": resource.kind,
            "status-details": {"status": status.name(), "status-reason": reason.unwrap_or_default()},
            "client-request-token": token.unwrap_or_default(),
        });
        self.send("CloudFormation Resource Status Change", stack_id, detail);
    }

    fn send(&mut self, detail_type: &str, stack_id: &str, detail: Value) {
        self.send_event("aws.cloudformation", detail_type, stack_id, detail);
    }

    /// Sends an event about `resource` to the account's default bus.
    pub(super) fn send_event(&mut self, source: &str, detail_type: &str, resource: &str, detail: Value) {
        let id = self.uuid();
        let envelope = json!({
            "version": "0",
            "id": id,
            "detail-type": detail_type,
            "source": source,
            "account": self.config.account,
            "time": self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "region": self.config.region,
            "resources": [resource],
            "detail": detail,
        });
        let event = BusEvent { detail_type: detail_type.to_owned(), at: self.now, envelope };
        self.outbox.push(Outgoing::Event(event));
    }
}
