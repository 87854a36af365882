//! EC2: a member finds its volume by tags, and attaches it.

use std::collections::BTreeMap;

use roxmltree::{Document, Node};
use slipway_ports::{ErrorKind, PortResult};

use super::endpoints::Service;
use super::error::port_error;
use super::{Aws, Body, Call, code_of, form};

const VERSION: &str = "2016-11-15";
/// A tag that CloudFormation gives to the resources of a stack.
const STACK_TAG: &str = "aws:cloudformation:stack-name";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    pub id: String,
    /// `available`, `in-use`, ….
    pub state: String,
    /// Instance and state of its attachment, including `attaching` and `detaching`.
    pub attachment: Option<(String, String)>,
    /// Name of the stack that it is a resource of. Nobody else can write this tag: "The `aws:` prefix is reserved for AWS use" (CloudFormation
    /// template reference, "CloudFormation resource tagging").
    pub stack: Option<String>,
}

/// Of volumes with the tags of a member, that of the stack, if it is the only one: whoever may tag volumes may have made the others. Which tags
/// of a stack its resources get "varies by resource type" (as above), so a volume without any is taken if there is no other. `None`: nothing tells
/// them apart.
#[must_use]
pub fn of_stack<'v>(volumes: &'v [Volume], stack: &str) -> Option<&'v Volume> {
    if let [only] = volumes {
        return Some(only);
    }
    let mut own = volumes.iter().filter(|volume| volume.stack.as_deref() == Some(stack));
    own.next().filter(|_| own.next().is_none())
}

impl Aws {
    /// `ec2:DescribeVolumes`: the volumes with all of `tags`.
    pub async fn volumes(&self, tags: &BTreeMap<String, String>) -> PortResult<Vec<Volume>> {
        const OPERATION: &str = "ec2:DescribeVolumes";
        let subject =
            tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",");
        let filters: Vec<(String, String)> = (1..)
            .zip(tags)
            .flat_map(|(number, (name, value))| {
                [
                    (format!("Filter.{number}.Name"), format!("tag:{name}")),
                    (format!("Filter.{number}.Value.1"), value.clone()),
                ]
            })
            .collect();
        let text = self.ec2(OPERATION, &subject, &filters).await?;
        let unread = || port_error(OPERATION, &subject, ErrorKind::Transient, "the answer cannot be read");
        let document = Document::parse(&text).map_err(|_| unread())?;
        let set = child(document.root_element(), "volumeSet").ok_or_else(unread)?;
        Ok(set.children().filter(Node::is_element).map(volume).collect())
    }

    /// `ec2:DescribeVolumes`: ids of the volumes attached to `instance`, by device name.
    pub async fn attachments(&self, instance: &str) -> PortResult<BTreeMap<String, String>> {
        const OPERATION: &str = "ec2:DescribeVolumes";
        let filter = [
            ("Filter.1.Name".to_owned(), "attachment.instance-id".to_owned()),
            ("Filter.1.Value.1".to_owned(), instance.to_owned()),
        ];
        let text = self.ec2(OPERATION, instance, &filter).await?;
        let unread = || port_error(OPERATION, instance, ErrorKind::Transient, "the answer cannot be read");
        let document = Document::parse(&text).map_err(|_| unread())?;
        let set = child(document.root_element(), "volumeSet").ok_or_else(unread)?;
        let attachments = set
            .children()
            .filter_map(|volume| child(volume, "attachmentSet"))
            .flat_map(|set| set.children().filter(Node::is_element));
        let text = |node: Node<'_, '_>, name: &str| {
            child(node, name).and_then(|node| node.text()).unwrap_or_default().to_owned()
        };
        // A volume with multi-attach has several attachments.
        let own = attachments.filter(|node| text(*node, "instanceId") == instance);
        Ok(own.map(|node| (text(node, "device"), text(node, "volumeId"))).collect())
    }

    /// `ec2:AttachVolume`: starts attaching `volume` to `instance` as `device`; `false` if it is attached already.
    pub async fn attach(&self, volume: &str, instance: &str, device: &str) -> PortResult<bool> {
        let parameters = [("VolumeId", volume), ("InstanceId", instance), ("Device", device)];
        let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let subject = format!("{volume} to {instance}");
        match self.ec2("ec2:AttachVolume", &subject, &parameters).await {
            Ok(_) => Ok(true),
            Err(error) if ["VolumeInUse", "IncorrectState"].contains(&code_of(&error)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn ec2(
        &self,
        operation: &'static str,
        subject: &str,
        parameters: &[(String, String)],
    ) -> PortResult<String> {
        let action = operation.trim_start_matches("ec2:");
        let mut pairs = vec![("Action", action), ("Version", VERSION)];
        pairs.extend(parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let body = form(&pairs);
        let call = Call {
            headers: vec![("content-type", "application/x-www-form-urlencoded".to_owned())],
            body: Body::Bytes(body.as_bytes()),
            ..Call::new(operation, subject, Service::Ec2, format!("{}/", self.base(Service::Ec2)))
        };
        self.text(&call).await
    }
}

fn volume(item: Node<'_, '_>) -> Volume {
    let text = |node: Node<'_, '_>, name: &str| {
        child(node, name).and_then(|node| node.text()).unwrap_or_default().to_owned()
    };
    let attachments = child(item, "attachmentSet");
    let attachment = attachments.and_then(|set| set.children().find(Node::is_element));
    let mut tags = child(item, "tagSet").into_iter().flat_map(|set| set.children().filter(Node::is_element));
    let stack = tags.find(|tag| text(*tag, "key") == STACK_TAG).map(|tag| text(tag, "value"));
    Volume {
        id: text(item, "volumeId"),
        state: text(item, "status"),
        attachment: attachment.map(|node| (text(node, "instanceId"), text(node, "status"))),
        stack,
    }
}

pub(super) fn child<'a, 'd>(node: Node<'a, 'd>, name: &str) -> Option<Node<'a, 'd>> {
    node.children().find(|child| child.tag_name().name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(tags: &str) -> Volume {
        let text = format!("<item><volumeId>vol-{tags}</volumeId><status>available</status>{tags}</item>");
        volume(Document::parse(&text).unwrap().root_element())
    }

    fn tagged(stack: &str) -> Volume {
        read(&format!(
            "<tagSet><item><key>slipway:volume</key><value>etcd-data</value></item>\
             <item><key>{STACK_TAG}</key><value>{stack}</value></item></tagSet>"
        ))
    }

    /// A member did not boot any more if somebody gave its tags to another volume.
    #[test]
    fn whoever_may_tag_volumes_keeps_no_member_from_its_own() {
        let (own, forged, other) = (tagged("c-etcd"), read(""), tagged("evil"));
        for volumes in [[&forged, &own, &other], [&own, &other, &forged]] {
            let volumes = volumes.map(Clone::clone);
            assert_eq!(of_stack(&volumes, "c-etcd"), Some(&own));
        }
        // Which of them is right is for a person to say.
        assert_eq!(of_stack(&[forged.clone(), read("<tagSet/>")], "c-etcd"), None);
        assert_eq!(of_stack(&[own.clone(), own.clone(), forged.clone()], "c-etcd"), None);
        assert_eq!(of_stack(&[], "c-etcd"), None);
        assert_eq!(of_stack(std::slice::from_ref(&forged), "c-etcd"), Some(&forged));
    }
}
