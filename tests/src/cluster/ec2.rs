//! EC2, as far as nodes and the cloud controller manager ask it: machines and volumes of the simulated world, whose disks are files.
//!
//! Shapes by EC2's API reference (`DescribeInstances`, `DescribeVolumes`, `AttachVolume`, version 2016-11-15). An action, or a filter, that
//! is not known is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::state::{Guest, State};
use crate::client::ACCOUNT;

const VOLUME: &str = "AWS::EC2::Volume";

const LAUNCH_TIME: &str = "%Y-%m-%dT%H:%M:%S.000Z";

type Form = BTreeMap<String, String>;

/// A refusal: its code, and its words.
struct Refusal(&'static str, String);

/// Answers a call.
pub async fn answer(state: &State, body: &[u8]) -> Response {
    let form: Form = form_urlencoded::parse(body).into_owned().collect();
    let action = form.get("Action").cloned().unwrap_or_default();
    let result = match action.as_str() {
        "AttachVolume" => attach(state, &form).await,
        "DescribeVolumes" => volumes(state, &form),
        "DescribeInstances" => instances(state, &form),
        "DescribeAvailabilityZones" => Ok(zones(state)),
        "CreateTags" => Ok("<return>true</return>".to_owned()),
        other => Err(Refusal("InvalidAction", format!("The action {other} is not modelled here"))),
    };
    match result {
        Ok(inside) => {
            let text = format!(
                "<{action}Response xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>{inside}</{action}Response>"
            );
            ([("content-type", "text/xml;charset=UTF-8")], text).into_response()
        }
        Err(Refusal(code, words)) => {
            let text = format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>{words}</Message></Error></Errors><RequestID>r</RequestID></Response>"
            );
            (StatusCode::BAD_REQUEST, text).into_response()
        }
    }
}

/// The filters of a call: name and values.
fn filters(form: &Form) -> Vec<(String, Vec<String>)> {
    let values = |number: usize| {
        let value = |index: usize| form.get(&format!("Filter.{number}.Value.{index}")).cloned();
        (1..).map_while(value).collect::<Vec<_>>()
    };
    (1..)
        .map_while(|number| Some((form.get(&format!("Filter.{number}.Name"))?.clone(), values(number))))
        .collect()
}

fn tags_of(properties: &Value) -> BTreeMap<String, String> {
    let tags = properties["Tags"].as_array().into_iter().flatten();
    let text = |tag: &Value, name: &str| tag[name].as_str().map(str::to_owned);
    tags.filter_map(|tag| Some((text(tag, "Key")?, text(tag, "Value")?))).collect()
}

fn tag_set(tags: &BTreeMap<String, String>) -> String {
    let items =
        tags.iter().map(|(key, value)| format!("<item><key>{key}</key><value>{value}</value></item>"));
    format!("<tagSet>{}</tagSet>", items.collect::<String>())
}

fn volumes(state: &State, form: &Form) -> Result<String, Refusal> {
    let filters = filters(form);
    let known = state.world().resources_of_type(VOLUME);
    let mut inside = String::new();
    for (id, properties) in known {
        let (tags, attached) = (tags_of(&properties), state.attachment(&id));
        let mut fits = true;
        for (name, values) in &filters {
            let found = match name.strip_prefix("tag:") {
                Some(tag) => tags.get(tag),
                None if name == "attachment.instance-id" => attached.as_ref().map(|(instance, _)| instance),
                None if name == "volume-id" => Some(&id),
                None => {
                    return Err(Refusal(
                        "InvalidParameterValue",
                        format!("The filter {name} is not modelled here"),
                    ));
                }
            };
            fits &= found.is_some_and(|found| values.contains(found));
        }
        if !fits {
            continue;
        }
        let attachment = attached.as_ref().map(|(instance, device)| {
            format!(
                "<item><volumeId>{id}</volumeId><instanceId>{instance}</instanceId><device>{device}</device><status>attached</status></item>"
            )
        });
        let status = if attached.is_some() { "in-use" } else { "available" };
        let _ = write!(
            inside,
            "<item><volumeId>{id}</volumeId><size>{}</size><status>{status}</status><attachmentSet>{}</attachmentSet>{}</item>",
            gib(&properties),
            attachment.unwrap_or_default(),
            tag_set(&tags)
        );
    }
    Ok(format!("<volumeSet>{inside}</volumeSet>"))
}

fn gib(properties: &Value) -> u64 {
    let size = &properties["Size"];
    size.as_u64().or_else(|| size.as_str()?.parse().ok()).unwrap_or(1)
}

async fn attach(state: &State, form: &Form) -> Result<String, Refusal> {
    let field = |name: &str| form.get(name).cloned().unwrap_or_default();
    let (volume, instance, device) = (field("VolumeId"), field("InstanceId"), field("Device"));
    let known = state.world().resources_of_type(VOLUME);
    let Some(properties) = known.get(&volume) else {
        return Err(Refusal("InvalidVolume.NotFound", format!("The volume '{volume}' does not exist.")));
    };
    let Some(guest) = state.guest(&instance) else {
        return Err(Refusal(
            "InvalidInstanceID.NotFound",
            format!("The instance ID '{instance}' does not exist"),
        ));
    };
    if !state.attach(&volume, &instance, &device) {
        return Err(Refusal("VolumeInUse", format!("{volume} is already attached to an instance")));
    }
    if let Err(error) = plug(state, &guest, &volume, gib(properties)).await {
        state.detach(&volume);
        return Err(Refusal("InternalError", error.to_string()));
    }
    Ok(format!(
        "<volumeId>{volume}</volumeId><instanceId>{instance}</instanceId><device>{device}</device><status>attaching</status>"
    ))
}

/// A volume's file outlives its machines.
async fn plug(state: &State, guest: &Guest, volume: &str, gib: u64) -> io::Result<()> {
    let file = state.folder.join(format!("{volume}.raw"));
    OpenOptions::new().create(true).append(true).open(&file)?.set_len(gib << 30)?;
    guest.handle.attach(&file, &volume.replace('-', ""), 0).await
}

fn instances(state: &State, form: &Form) -> Result<String, Refusal> {
    let filters = filters(form);
    let ids: Vec<String> =
        (1..).map_while(|number| form.get(&format!("InstanceId.{number}")).cloned()).collect();
    let guests = state.guests();
    if let Some(id) = ids.iter().find(|id| guests.iter().all(|guest| guest.id != **id)) {
        return Err(Refusal("InvalidInstanceID.NotFound", format!("The instance ID '{id}' does not exist")));
    }
    let mut inside = String::new();
    for guest in guests.iter().filter(|guest| ids.is_empty() || ids.contains(&guest.id)) {
        let name = guest.dns_name(&state.region);
        let mut fits = true;
        for (filter, values) in &filters {
            fits &= match filter.as_str() {
                "instance-id" => values.contains(&guest.id),
                "instance-state-name" => values.iter().any(|value| value == "running"),
                "launch-time" => values.iter().any(|value| {
                    guest
                        .launched_at
                        .strftime(LAUNCH_TIME)
                        .to_string()
                        .starts_with(value.trim_end_matches('*'))
                }),
                "private-dns-name" => values.contains(&name),
                "tag-key" => values.iter().any(|key| guest.tags.contains_key(key)),
                other => match other.strip_prefix("tag:") {
                    Some(tag) => guest.tags.get(tag).is_some_and(|value| values.contains(value)),
                    None => {
                        return Err(Refusal(
                            "InvalidParameterValue",
                            format!("The filter {other} is not modelled here"),
                        ));
                    }
                },
            };
        }
        if fits {
            inside.push_str(&instance(guest, &name));
        }
    }
    Ok(format!("<reservationSet>{inside}</reservationSet>"))
}

fn instance(guest: &Guest, name: &str) -> String {
    let Guest { id, address, zone, subnet, instance_type, launched_at, .. } = guest;
    let interface = format!(
        "<item><networkInterfaceId>eni-0{}</networkInterfaceId><subnetId>{subnet}</subnetId><vpcId>vpc-0123456789abcdef0</vpcId>\
         <status>in-use</status><privateIpAddress>{address}</privateIpAddress><privateDnsName>{name}</privateDnsName>\
         <attachment><deviceIndex>0</deviceIndex><status>attached</status></attachment><privateIpAddressesSet><item>\
         <privateIpAddress>{address}</privateIpAddress><privateDnsName>{name}</privateDnsName><primary>true</primary></item>\
         </privateIpAddressesSet></item>",
        id.trim_start_matches("i-0")
    );
    format!(
        "<item><reservationId>r-{id}</reservationId><ownerId>{ACCOUNT}</ownerId><instancesSet><item><instanceId>{id}</instanceId>\
         <imageId>ami-0123456789abcdef0</imageId><instanceState><code>16</code><name>running</name></instanceState>\
         <privateDnsName>{name}</privateDnsName><dnsName/><instanceType>{instance_type}</instanceType>\
         <launchTime>{}</launchTime><placement><availabilityZone>{zone}</availabilityZone></placement><subnetId>{subnet}</subnetId>\
         <vpcId>vpc-0123456789abcdef0</vpcId><privateIpAddress>{address}</privateIpAddress><sourceDestCheck>true</sourceDestCheck>\
         <architecture>x86_64</architecture>{}<networkInterfaceSet>{interface}</networkInterfaceSet></item></instancesSet></item>",
        launched_at.strftime(LAUNCH_TIME),
        tag_set(&guest.tags)
    )
}

fn zones(state: &State) -> String {
    let zones = state.world().config().zones();
    let item = |(number, zone): (usize, String)| {
        format!(
            "<item><zoneName>{zone}</zoneName><zoneState>available</zoneState><regionName>{}</regionName><zoneId>euw1-az{}</zoneId>\
             <zoneType>availability-zone</zoneType></item>",
            state.region,
            number + 1
        )
    };
    format!(
        "<availabilityZoneInfo>{}</availabilityZoneInfo>",
        zones.into_iter().enumerate().map(item).collect::<String>()
    )
}
