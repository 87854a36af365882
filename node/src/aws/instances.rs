//! EC2: the machine behind a node's name.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roxmltree::{Document, Node};
use slipway_driver::ports::{ErrorKind, PortResult};

use super::error::port_error;
use super::volumes::child;
use super::{Aws, code_of};

/// An instance, as far as its certificates name it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `running`, `terminated`, ….
    pub state: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// All addresses of all of its interfaces, public ones too.
    pub addresses: BTreeSet<IpAddr>,
    /// Its DNS names, by address and public.
    pub names: BTreeSet<String>,
}

impl Aws {
    /// The instance of that id; `None` if there is none. `ec2:DescribeInstances`.
    ///
    /// # Errors
    /// If EC2 refuses.
    pub async fn machine(&self, id: &str) -> PortResult<Option<Machine>> {
        const OPERATION: &str = "ec2:DescribeInstances";
        let parameters = [("InstanceId.1".to_owned(), id.to_owned())];
        let text = match self.ec2(OPERATION, id, &parameters).await {
            Ok(text) => text,
            Err(error) if code_of(&error).starts_with("InvalidInstanceID") => return Ok(None),
            Err(error) => return Err(error),
        };
        let unread = || port_error(OPERATION, id, ErrorKind::Transient, "the answer cannot be read");
        let document = Document::parse(&text).map_err(|_| unread())?;
        let found = document
            .descendants()
            .filter(|node| node.tag_name().name() == "instancesSet")
            .flat_map(|set| set.children().filter(Node::is_element))
            .find(|item| text_of(*item, "instanceId") == Some(id));
        Ok(found.map(machine))
    }
}

fn text_of<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name).and_then(|node| node.text())
}

fn machine(item: Node<'_, '_>) -> Machine {
    const ADDRESSES: [&str; 5] = ["privateIpAddress", "ipAddress", "publicIp", "ipv6Address", "carrierIp"];
    let tags = child(item, "tagSet").into_iter().flat_map(|set| set.children().filter(Node::is_element));
    let mut machine = Machine {
        state: child(item, "instanceState")
            .and_then(|state| text_of(state, "name"))
            .unwrap_or_default()
            .to_owned(),
        tags: tags
            .filter_map(|tag| {
                Some((text_of(tag, "key")?.to_owned(), text_of(tag, "value").unwrap_or_default().to_owned()))
            })
            .collect(),
        ..Machine::default()
    };
    for node in item.descendants() {
        let Some(text) = node.text() else { continue };
        let name = node.tag_name().name();
        if ADDRESSES.contains(&name) {
            machine.addresses.extend(text.parse::<IpAddr>());
        } else if (name == "privateDnsName" || name == "dnsName" || name == "publicDnsName")
            && !text.trim().is_empty()
        {
            machine.names.insert(text.to_owned());
        }
    }
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_the_names_and_addresses_of_all_its_interfaces() {
        // From <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html>, shortened.
        let text = "<item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState>\
            <privateDnsName>ip-10-0-0-1.eu-west-1.compute.internal</privateDnsName><dnsName/>\
            <privateIpAddress>10.0.0.1</privateIpAddress><ipAddress>203.0.113.5</ipAddress>\
            <tagSet><item><key>slipway:cluster</key><value>c</value></item><item><key>empty</key><value/></item></tagSet>\
            <networkInterfaceSet><item><privateIpAddressesSet>\
            <item><privateIpAddress>10.0.0.1</privateIpAddress></item><item><privateIpAddress>10.0.0.9</privateIpAddress></item>\
            </privateIpAddressesSet><ipv6AddressesSet><item><ipv6Address>fd00::1</ipv6Address></item></ipv6AddressesSet></item>\
            </networkInterfaceSet></item>";
        let document = Document::parse(text).unwrap_or_else(|error| panic!("{error}"));
        let found = machine(document.root_element());
        let addresses: Vec<_> = found.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["10.0.0.1", "10.0.0.9", "203.0.113.5", "fd00::1"]);
        assert_eq!(found.names, ["ip-10-0-0-1.eu-west-1.compute.internal".to_owned()].into());
        assert_eq!(found.state, "running");
        let tags: Vec<_> = found.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(tags, ["empty=", "slipway:cluster=c"]);
    }
}
