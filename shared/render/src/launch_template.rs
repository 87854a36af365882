//! What a machine is: the launch template, and its description for plans.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, Image, Tenancy, Volume};
use slipway_core::diff::diff;
use slipway_core::role::Role;

use super::cfn::{Resource, Tags};
use super::context::Context;
use super::iam::Profile;

/// Hops that an answer of the metadata service may take. One: it reaches the instance itself, and no pod that
/// has a network of its own, so pods cannot take the node's role (P9). Who needs it in a pod runs that pod on
/// the host network.
const METADATA_HOPS: u32 = 1;

/// Everything of a launch template but the userdata.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) role: Role,
    pub(super) architecture: Architecture,
    pub(super) image_id: String,
    /// The first is the template's own; the others stand in a mixed-instances policy.
    pub(super) instance_types: Vec<String>,
    pub(super) root_device: RootDevice,
    pub(super) root_volume: Volume,
    /// Volumes besides the root that come and go with the machine, by the name under which they are attached.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// An EC2 key pair instead of the cluster's.
    pub(super) key_name: Option<String>,
    /// The subnet of an etcd member, which fixes the zone of its volume. The groups of others spread over
    /// theirs.
    pub(super) subnet: Option<String>,
    /// Name of the network stack's output that has the role's security group.
    pub(super) security_group: &'static str,
    pub(super) security_group_ids: Vec<String>,
    pub(super) profile: Profile,
    pub(super) tenancy: Tenancy,
}

impl Machine {
    /// The description in [`super::NodeRole::machine`]: a node is outdated when this differs.
    ///
    /// `stackTags` are not in it: a tag is no reason to replace a node. Nor is etcd's data volume, which
    /// grows in place, nor anything of a group: sizes, subnets, weights, target groups.
    pub(super) fn describe(&self, context: &Context<'_>) -> Value {
        let mut instance_types = self.instance_types.clone();
        instance_types.sort();
        instance_types.dedup();
        let mut machine = json!({
            "imageId": self.image_id,
            "architecture": self.architecture.as_str(),
            "instanceTypes": instance_types,
            "rootVolume": describe_volume(&self.root_volume),
            "securityGroups": self.security_groups(|name| context.network_export(name).into()),
            "instanceProfile": self.profile.describe(),
            "metadata": { "tokens": "required", "hopLimit": METADATA_HOPS },
            "tags": self.tags(context).map(),
        });
        let volumes: BTreeMap<&str, Value> =
            self.volumes.iter().map(|(device, volume)| (device.as_str(), describe_volume(volume))).collect();
        let optional = [
            ("keyName", self.key_name(context).map(Value::from)),
            // What is usual for the image is in `imageId` already.
            ("rootDevice", self.root_device.unusual.then(|| self.root_device.name.clone().into())),
            ("volumes", (!volumes.is_empty()).then(|| json!(volumes))),
            ("agent", context.lock.agent.get(&self.architecture).cloned().map(Value::from)),
            ("subnet", self.subnet.clone().map(Value::from)),
            ("tenancy", self.tenancy().map(Value::from)),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                machine[key] = value;
            }
        }
        machine
    }

    /// The launch template.
    pub(super) fn launch_template(&self, context: &Context<'_>, userdata: Value) -> Resource {
        let tags = self.tags(context).with_all(&context.cluster.stack_tags).list();
        let mut root = ebs(&self.root_volume);
        root["DeleteOnTermination"] = json!(true);
        let mut mappings = vec![json!({ "DeviceName": self.root_device.name, "Ebs": root })];
        for (device, volume) in &self.volumes {
            let mut ebs = ebs(volume);
            ebs["DeleteOnTermination"] = json!(true);
            mappings.push(json!({ "DeviceName": device, "Ebs": ebs }));
        }
        let mut data = json!({
            "ImageId": self.image_id,
            "InstanceType": self.instance_types.first(),
            "IamInstanceProfile": { "Arn": self.profile.arn() },
            "SecurityGroupIds": self.security_groups(|name| context.network_value(name)),
            "BlockDeviceMappings": mappings,
            "MetadataOptions": {
                "HttpEndpoint": "enabled",
                "HttpTokens": "required",
                "HttpPutResponseHopLimit": METADATA_HOPS,
                // Tags in the metadata refuse keys with a slash, and ours have one.
                "InstanceMetadataTags": "disabled",
            },
            // CloudFormation's stack tags reach the instances through their group, but never their volumes.
            "TagSpecifications": [
                { "ResourceType": "instance", "Tags": tags },
                { "ResourceType": "volume", "Tags": tags },
            ],
            "UserData": userdata,
        });
        if let Some(key_name) = self.key_name(context) {
            data["KeyName"] = json!(key_name);
        }
        if let Some(tenancy) = self.tenancy() {
            data["Placement"] = json!({ "Tenancy": tenancy });
        }
        Resource::new("AWS::EC2::LaunchTemplate").set("LaunchTemplateData", data)
    }

    /// Said only where it is not what EC2 does anyway.
    fn tenancy(&self) -> Option<&'static str> {
        match self.tenancy {
            Tenancy::Default => None,
            Tenancy::Dedicated => Some("dedicated"),
        }
    }

    fn security_groups(&self, of_network: impl Fn(&str) -> Value) -> Vec<Value> {
        let mut given = self.security_group_ids.clone();
        given.sort();
        given.dedup();
        std::iter::once(of_network(self.security_group)).chain(given.into_iter().map(Value::from)).collect()
    }

    fn key_name<'c>(&'c self, context: &'c Context<'_>) -> Option<&'c str> {
        self.key_name.as_ref().or(context.cluster.key_name.as_ref()).map(String::as_str)
    }

    fn tags(&self, context: &Context<'_>) -> Tags {
        node_tags(context, &self.role)
    }
}

/// Tags of a node: what SSM documents, IAM conditions and Kubernetes find it by.
pub(super) fn node_tags(context: &Context<'_>, role: &Role) -> Tags {
    let role = role.to_string();
    context.tags(&role).with("slipway:cluster", context.cluster.name.as_str()).with("slipway:role", role)
}

/// The part that a volume has in common, whether in a launch template or as a resource of its own.
pub(super) fn ebs(volume: &Volume) -> Value {
    let mut ebs = json!({ "VolumeType": volume.kind, "VolumeSize": volume.size_gib, "Encrypted": true });
    if let Some(iops) = volume.iops {
        ebs["Iops"] = json!(iops);
    }
    if let Some(throughput) = volume.throughput {
        ebs["Throughput"] = json!(throughput);
    }
    if let Some(key) = &volume.kms_key_arn {
        ebs["KmsKeyId"] = json!(key);
    }
    ebs
}

fn describe_volume(volume: &Volume) -> Value {
    let mut described = json!({ "sizeGiB": volume.size_gib, "type": volume.kind });
    let optional = [
        ("iops", volume.iops.map(Value::from)),
        ("throughput", volume.throughput.map(Value::from)),
        ("kmsKeyArn", volume.kms_key_arn.clone().map(Value::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            described[key] = value;
        }
    }
    described
}

/// The name under which an image expects its root volume. A mapping under another name would add a second
/// volume, and leave the root as small as the image. Ubuntu's say `/dev/sda1`; those of Amazon Linux, Debian
/// and Flatcar `/dev/xvda`, which is assumed of an image that is given by its id alone.
/// `image.rootDeviceName` says it of others.
pub(super) fn root_device(image: &Image, said: Option<&str>) -> RootDevice {
    let usual = match image {
        Image::Ami(_) => "/dev/xvda",
        Image::SsmParameter(names) if names.values().any(|name| name.contains("/canonical/")) => "/dev/sda1",
        Image::SsmParameter(_) => "/dev/xvda",
    };
    let name = said.unwrap_or(usual);
    RootDevice { name: name.to_owned(), unusual: name != usual }
}

/// The name of a root device.
#[derive(Debug)]
pub(super) struct RootDevice {
    pub(super) name: String,
    /// Another than images of that origin mostly have.
    unusual: bool,
}

/// What patches changed of each role's machine: the paths below `LaunchTemplateData` with their new values. Tags are no
/// reason to replace a node.
pub(super) fn patched(before: &Value, after: &Value) -> Vec<(Role, Value)> {
    let resources = before["Resources"].as_object().into_iter().flatten();
    let templates = resources.filter(|(_, resource)| resource["Type"] == "AWS::EC2::LaunchTemplate");
    let data = |template: &Value, id: &str| {
        let mut data = template["Resources"][id]["Properties"]["LaunchTemplateData"].clone();
        if let Some(data) = data.as_object_mut() {
            data.remove("TagSpecifications");
        }
        data
    };
    let changed = templates.filter_map(|(id, _)| {
        let found = diff(&data(before, id), &data(after, id));
        let changes: serde_json::Map<String, Value> =
            found.into_iter().map(|found| (found.path, found.after.unwrap_or_default())).collect();
        let role = role_of(&before["Resources"][id])?;
        (!changes.is_empty()).then_some((role, Value::Object(changes)))
    });
    changed.collect()
}

/// The role whose nodes a launch template makes.
fn role_of(launch_template: &Value) -> Option<Role> {
    let specifications =
        launch_template.pointer("/Properties/LaunchTemplateData/TagSpecifications")?.as_array()?;
    let tags = specifications.iter().filter_map(|one| one["Tags"].as_array()).flatten();
    let role = tags.into_iter().find(|tag| tag["Key"] == "slipway:role")?;
    role["Value"].as_str()?.parse().ok()
}
