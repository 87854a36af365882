//! EC2: the instance that a node's name stands for.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use roxmltree::{Document, Node};
use slipway_ports::{ErrorKind, PortResult};

use super::Aws;
use super::error::port_error;
use super::volumes::child;

/// A filter takes 200 values, and fewer than 1000 instances come in one answer.
const VALUES_AT_MOST: usize = 200;

/// What the agent needs to know of an instance to judge its certificate requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Machine {
    /// `running`, `terminated`, ….
    pub state: String,
    /// When it was last started.
    pub launched: Option<Timestamp>,
    pub tags: BTreeMap<String, String>,
    /// All addresses of all interfaces, including public ones.
    pub addresses: BTreeSet<IpAddr>,
    /// Private and public DNS names.
    pub names: BTreeSet<String>,
}

const OPERATION: &str = "ec2:DescribeInstances";

impl Aws {
    /// `ec2:DescribeInstances`: the existing instances among `ids`, 200 in one call.
    pub async fn machines(&self, ids: &[&str]) -> PortResult<BTreeMap<String, Machine>> {
        let mut found = BTreeMap::new();
        for some in ids.chunks(VALUES_AT_MOST) {
            // With a filter, an unknown id is no error and does not hide the others.
            let parameters = filter(1, "instance-id", some);
            let subject = format!("{} instances", some.len());
            found.extend(self.described(&subject, &parameters).await?.0);
        }
        Ok(found)
    }

    /// `ec2:DescribeInstances`: the instances of `cluster` that were started in this hour of the clock, the one before, or the next, as
    /// the clock of this machine may be late.
    pub async fn started_lately(&self, cluster: &str, now: Timestamp) -> PortResult<Vec<Machine>> {
        // A wildcard is allowed: <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html>, `launch-time`.
        let hours = [-1, 0, 1].map(|hours| {
            let hour = now + SignedDuration::from_hours(hours);
            hour.strftime("%Y-%m-%dT%H:*").to_string()
        });
        let hours: Vec<&str> = hours.iter().map(String::as_str).collect();
        let parameters: Vec<_> = [
            filter(1, "tag:slipway:cluster", &[cluster]),
            filter(2, "instance-state-name", &["pending", "running"]),
            filter(3, "launch-time", &hours),
        ]
        .concat();
        let subject = format!("young instances of {cluster}");
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let mut parameters = parameters.clone();
            parameters.extend(next.take().map(|token| ("NextToken".to_owned(), token)));
            let (machines, more) = self.described(&subject, &parameters).await?;
            found.extend(machines.into_iter().map(|(_, machine)| machine));
            match more {
                Some(token) => next = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// The instances of one answer, and the token of the next one.
    async fn described(
        &self,
        subject: &str,
        parameters: &[(String, String)],
    ) -> PortResult<(Vec<(String, Machine)>, Option<String>)> {
        let text = self.ec2(OPERATION, subject, parameters).await?;
        let unread = || port_error(OPERATION, subject, ErrorKind::Transient, "the answer cannot be read");
        let document = Document::parse(&text).map_err(|_| unread())?;
        let sets = document.descendants().filter(|node| node.tag_name().name() == "instancesSet");
        let items = sets.flat_map(|set| set.children().filter(Node::is_element));
        let machines =
            items.filter_map(|item| Some((text_of(item, "instanceId")?.to_owned(), machine(item))));
        let next = text_of(document.root_element(), "nextToken").filter(|token| !token.is_empty());
        Ok((machines.collect(), next.map(str::to_owned)))
    }
}

/// The parameters of a filter.
fn filter(number: usize, name: &str, values: &[&str]) -> Vec<(String, String)> {
    let mut parameters = vec![(format!("Filter.{number}.Name"), name.to_owned())];
    let values = values.iter().zip(1..);
    parameters
        .extend(values.map(|(value, index)| (format!("Filter.{number}.Value.{index}"), (*value).to_owned())));
    parameters
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
        launched: text_of(item, "launchTime").and_then(|text| text.parse().ok()),
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
        let text = "<item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name></instanceState><launchTime>2026-11-21T20:45:00.000Z</launchTime>\
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
        assert_eq!(found.launched.map(|at| at.to_string()).as_deref(), Some("2026-11-21T20:45:00Z"));
        let tags: Vec<_> = found.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(tags, ["empty=", "slipway:cluster=c"]);
    }
}
