//! The launch template of machines, and its description for plans.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, GroupSize, Image, Tenancy, Volume};
use slipway_core::diff::diff;
use slipway_core::release::NodeRole;
use slipway_core::role::Role;

use super::cfn::{Resource, Tags, Template, get_att, reference};
use super::context::Context;
use super::iam::Profile;
use super::node_config::Config;
use super::userdata::{Boot, userdata};

/// The hop limit of the metadata service. With one hop, only the instance and pods in its host network can reach it, so other pods cannot
/// use the node's role (P9).
const METADATA_HOPS: u32 = 1;

/// Everything in a launch template except the user data.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) role: Role,
    pub(super) architecture: Architecture,
    pub(super) image_id: String,
    /// The first type is the template's own; the others are in a mixed-instances policy.
    pub(super) instance_types: Vec<String>,
    pub(super) root_device: RootDevice,
    pub(super) root_volume: Volume,
    /// Volumes besides the root that are created and deleted with the machine, by device name.
    pub(super) volumes: BTreeMap<String, Volume>,
    /// The EC2 key pair that overrides the cluster's.
    pub(super) key_name: Option<String>,
    /// The subnet of an etcd member, which determines the zone of its volume. For other roles the group has the subnets.
    pub(super) subnet: Option<String>,
    /// The network stack's output with the role's security group.
    pub(super) security_group: &'static str,
    pub(super) security_group_ids: Vec<String>,
    pub(super) profile: Profile,
    pub(super) tenancy: Tenancy,
}

impl Machine {
    /// The description in [`super::NodeRole::machine`]. A node is outdated if it differs.
    ///
    /// It contains neither `stackTags`, since a tag is no reason to replace a node, nor etcd's data volume, which grows in place, nor
    /// settings of the group: sizes, subnets, weights, target groups.
    fn describe(&self, context: &Context<'_>) -> Value {
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
            "tags": node_tags(context, &self.role).map(),
        });
        let volumes: BTreeMap<&str, Value> =
            self.volumes.iter().map(|(device, volume)| (device.as_str(), describe_volume(volume))).collect();
        let optional = [
            ("keyName", self.key_name(context).map(Value::from)),
            // The usual root device follows from `imageId`.
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

    /// The nodes of this machine's role, in a group of `nodes`, with `version` of Kubernetes or etcd. For etcd members and weighted groups
    /// the caller sets the rest.
    pub(super) fn node_role(
        &self,
        context: &mut Context<'_>,
        stack: String,
        nodes: GroupSize,
        config: Config,
        version: String,
    ) -> NodeRole {
        NodeRole {
            stack,
            nodes,
            machine: self.describe(context),
            config: config.text,
            config_digest: config.digest,
            credentials_digest: context.credentials_digest(&self.role),
            version: Some(version),
            member: None,
            weighted: false,
        }
    }

    /// Adds the launch template with the logical id `id`, and returns how the group refers to it.
    pub(super) fn add_launch_template(
        &self,
        context: &mut Context<'_>,
        template: &mut Template,
        id: impl Into<String>,
        boot: &Boot<'_>,
    ) -> Value {
        let userdata = userdata(context, &self.role, self.architecture, boot);
        let id = template.add(id, self.launch_template(context, userdata));
        launch_template_specification(&id)
    }

    fn launch_template(&self, context: &Context<'_>, userdata: Value) -> Resource {
        let tags = node_tags(context, &self.role).with_all(&context.cluster.stack_tags).list();
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
                // Tags in the metadata allow no slash in keys, and Slipway's keys contain one.
                "InstanceMetadataTags": "disabled",
            },
            // CloudFormation's stack tags reach instances through their group, but not their volumes.
            "TagSpecifications": [
                { "ResourceType": "instance", "Tags": tags },
                { "ResourceType": "volume", "Tags": tags },
            ],
        });
        data["UserData"] = userdata;
        if let Some(key_name) = self.key_name(context) {
            data["KeyName"] = json!(key_name);
        }
        if let Some(tenancy) = self.tenancy() {
            data["Placement"] = json!({ "Tenancy": tenancy });
        }
        Resource::new("AWS::EC2::LaunchTemplate").set("LaunchTemplateData", data)
    }

    /// Only set if it is not the default of EC2.
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
}

/// Tags of a node, by which SSM documents, IAM conditions and Kubernetes find it.
pub(super) fn node_tags(context: &Context<'_>, role: &Role) -> Tags {
    let role = role.to_string();
    context.tags(&role).with("slipway:cluster", context.cluster.name.as_str()).with("slipway:role", role)
}

/// The properties of a volume that are the same in a launch template and in a resource.
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

/// The device name of an image's root volume. A mapping under another name would add a second volume and leave the root as small as the
/// image. Ubuntu's images use `/dev/sda1`; those of Amazon Linux, Debian and Flatcar `/dev/xvda`, which is also assumed for an image
/// given by its id. `image.rootDeviceName` overrides it.
pub(super) fn root_device(image: &Image, given: Option<&str>) -> RootDevice {
    let usual = match image {
        Image::Ami(_) => "/dev/xvda",
        Image::SsmParameter(names) if names.values().any(|name| name.contains("/canonical/")) => "/dev/sda1",
        Image::SsmParameter(_) => "/dev/xvda",
    };
    let name = given.unwrap_or(usual);
    RootDevice { name: name.to_owned(), unusual: name != usual }
}

/// The name of a root device.
#[derive(Debug)]
pub(super) struct RootDevice {
    pub(super) name: String,
    /// Whether it differs from the usual name for images of that origin.
    unusual: bool,
}

/// What patches changed in each role's machine: the paths below `LaunchTemplateData` with their new values. Tags are left out, because
/// they are no reason to replace a node.
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

/// The role of the nodes that a launch template launches.
fn role_of(launch_template: &Value) -> Option<Role> {
    let specifications =
        launch_template.pointer("/Properties/LaunchTemplateData/TagSpecifications")?.as_array()?;
    let tags = specifications.iter().filter_map(|one| one["Tags"].as_array()).flatten();
    let role = tags.into_iter().find(|tag| tag["Key"] == "slipway:role")?;
    role["Value"].as_str()?.parse().ok()
}

/// The launch template with its newest version according to the stack, so that new instances use the version of the stack's last update.
fn launch_template_specification(launch_template: &str) -> Value {
    json!({
        "LaunchTemplateId": reference(launch_template),
        "Version": get_att(launch_template, "LatestVersionNumber"),
    })
}
