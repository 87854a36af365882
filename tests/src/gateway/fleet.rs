//! Auto Scaling, Elastic Load Balancing and Run Command in terms of IAM: the groups and machines that a call concerns, and their tags.

use std::collections::BTreeMap;

use serde_json::Value;
use slipway_sim::ports::{SharedWorld, lock};

use super::needs::{Scope, add, need, text};
use crate::iam::Request;

/// The operations of Systems Manager that belong to Run Command.
pub(super) const OF_COMMANDS: [&str; 5] =
    ["SendCommand", "CancelCommand", "ListCommands", "ListCommandInvocations", "GetCommandInvocation"];

/// Whether `operation` of Systems Manager belongs to Run Command.
pub(super) fn is_of_commands(operation: &str) -> bool {
    OF_COMMANDS.contains(&operation)
}

/// The groups and machines of a simulated world; empty without a world.
#[derive(Debug, Clone, Default)]
pub(super) struct Fleet(Option<SharedWorld>);

/// What a call concerns.
pub(super) struct Needs {
    pub(super) needs: Vec<Request>,
    /// As in `Identified`.
    pub(super) about_nothing: bool,
}

impl Needs {
    /// For actions without resource types.
    fn of_all(action: &str) -> Self {
        Self { needs: vec![need(action, "*".to_owned())], about_nothing: false }
    }
}

type Tags = BTreeMap<String, String>;

impl Fleet {
    pub(super) fn from_world(world: SharedWorld) -> Self {
        Self(Some(world))
    }

    fn group_tags(&self, name: &str) -> Option<Tags> {
        lock(self.0.as_ref()?).group_tags(name).cloned()
    }

    fn machine(&self, id: &str) -> Option<(String, Tags)> {
        lock(self.0.as_ref()?).machine_tags(id).map(|(group, tags)| (group.to_owned(), tags.clone()))
    }
}

/// The service authorization reference lists no resource type for these two ("Actions, resources, and condition keys for
/// Elastic Load Balancing V2"): they concern all target groups and load balancers.
pub(super) fn elasticloadbalancing(body: &[u8]) -> Result<Request, String> {
    let action = form_urlencoded::parse(body).find(|(key, _)| key == "Action").map(|(_, value)| value);
    match action.as_deref() {
        Some(action @ ("DescribeTargetHealth" | "DescribeLoadBalancers")) => {
            Ok(need(&format!("elasticloadbalancing:{action}"), "*".to_owned()))
        }
        other => Err(format!("elasticloadbalancing {other:?} is not modelled by the gateway")),
    }
}

impl Scope<'_> {
    pub(super) fn autoscaling(&self, body: &[u8], fleet: &Fleet) -> Result<Needs, String> {
        let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        let action = format!("autoscaling:{}", field("Action"));
        let name = match field("Action") {
            "DescribeAutoScalingGroups" | "DescribeAutoScalingInstances" => {
                return Ok(Needs::of_all(&action));
            }
            "TerminateInstanceInAutoScalingGroup" | "SetInstanceHealth" => {
                fleet.machine(field("InstanceId")).map(|(group, _)| group).unwrap_or_default()
            }
            "SetDesiredCapacity" | "CompleteLifecycleAction" | "RecordLifecycleActionHeartbeat" => {
                field("AutoScalingGroupName").to_owned()
            }
            other => return Err(format!("autoscaling {other:?} is not modelled by the gateway")),
        };
        let resource = self.arn("autoscaling", &format!("autoScalingGroup:0:autoScalingGroupName/{name}"));
        let mut request = need(&action, resource);
        let tags = fleet.group_tags(&name);
        tagged(&mut request, &["aws:ResourceTag", "autoscaling:ResourceTag"], tags.as_ref());
        Ok(Needs { needs: vec![request], about_nothing: tags.is_none() })
    }

    pub(super) fn commands(&self, operation: &str, body: &Value, fleet: &Fleet) -> Result<Needs, String> {
        let action = format!("ssm:{operation}");
        if operation != "SendCommand" {
            return Ok(Needs::of_all(&action));
        }
        if body.get("Targets").is_some() {
            return Err("ssm SendCommand by targets is not modelled by the gateway".to_owned());
        }
        let document = match text(body, "DocumentName") {
            arn if arn.starts_with("arn:") => arn.to_owned(),
            name => self.arn("ssm", &format!("document/{name}")),
        };
        // Each of them must be allowed: the document, and every machine.
        let mut asked = Needs { needs: vec![need(&action, document)], about_nothing: false };
        for id in body["InstanceIds"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let mut request = need(&action, self.arn("ec2", &format!("instance/{id}")));
            let machine = fleet.machine(id);
            let tags = machine.as_ref().map(|(_, tags)| tags);
            tagged(&mut request, &["aws:ResourceTag", "ssm:resourceTag"], tags);
            asked.about_nothing |= machine.is_none();
            asked.needs.push(request);
        }
        Ok(asked)
    }
}

fn tagged(request: &mut Request, keys: &[&str], tags: Option<&Tags>) {
    for (tag, value) in tags.into_iter().flatten() {
        for key in keys {
            add(request, &format!("{key}/{tag}"), value);
        }
    }
}
