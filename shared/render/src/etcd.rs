//! The etcd stack. Each member has a group of one machine, and a data volume and a DNS name that outlive the machine: a replaced member
//! keeps its data and its name, and its clients need no change.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_core::cluster::{Architecture, EtcdMember, GroupSize};
use slipway_core::keys;
use slipway_core::members::{self, MemberRole, NameZone, VolumePin};
use slipway_core::node::SNAPSHOT_ROLE;
use slipway_core::release::{NodeRole, StackKind};
use slipway_core::role::Role;

use super::cfn::{Removal, Resource, Template, sub};
use super::context::{Context, export};
use super::groups::{Group, Hooks, Unspoken};
use super::iam::{self, Principal, allow, own_account};
use super::launch_template::{Machine, ebs, node_tags, root_device};
use super::node_config;
use super::userdata::Boot;

/// A new instance may have to wait until the old one has released the volume, so the launch hook has a longer timeout.
const HOOKS: Hooks = Hooks { launch_s: 1800, terminate_s: 600, unspoken: Unspoken::Terminate };

/// The prefix of a member's name if the spec names none.
const MEMBER_PREFIX: &str = "etcd-";

/// Renders the etcd stack and the roles of its members.
pub(super) fn template(context: &mut Context<'_>) -> (Template, Vec<(Role, NodeRole)>) {
    let cluster = context.cluster;
    let mut template = Template::new(format!("etcd of the Kubernetes cluster {}", cluster.name));
    let roles = cluster.etcd.members.iter().map(|found| member(context, &mut template, found)).collect();
    (template, roles)
}

fn member(context: &mut Context<'_>, template: &mut Template, member: &EtcdMember) -> (Role, NodeRole) {
    let cluster = context.cluster;
    let etcd = &cluster.etcd;
    let role = Role::Etcd(member.index);
    let stack = context.stack_name(StackKind::Etcd, "");
    let group = format!("{stack}-{}", member.index);
    let index = member.index.to_string();
    let architecture = Architecture::of_instance_type(&etcd.instance_type);
    let zone = context.etcd_zone();
    let pin = context.member_pin(member);

    let volume_id = volume_id(member, &pin.volume);
    template.add(&volume_id, data_volume(context, member, &role, &pin.volume));
    let principal = Principal {
        prefix: "Etcd",
        suffix: index.clone(),
        role: &role,
        stack: &stack,
        group: &group,
        iam: &etcd.iam,
    };
    let profile = iam::add(context, template, &principal, statements(context, member, &role));
    let machine = Machine {
        role: role.clone(),
        architecture,
        image_id: context.image_id(&role, &cluster.image, architecture),
        instance_types: vec![etcd.instance_type.clone()],
        root_device: root_device(&cluster.image, cluster.root_device.as_deref()),
        volumes: BTreeMap::new(),
        key_name: None,
        root_volume: etcd.root_volume.clone(),
        subnet: Some(member.subnet.clone()),
        security_group: export::ETCD_SECURITY_GROUP,
        security_group_ids: etcd.security_group_ids.clone(),
        profile,
        tenancy: etcd.tenancy,
    };
    let config = node_config::etcd(context, member, &pin, &group);
    let boot = Boot { config: &config, group: &group, zone: Some(zone) };
    let launch_template =
        machine.add_launch_template(context, template, format!("LaunchTemplate{index}"), &boot);
    let size = GroupSize { min: 1, max: 1 };
    let resource = Group {
        name: &group,
        role: &role,
        size,
        subnet_ids: context.subnet_ids(std::slice::from_ref(&member.subnet)),
        hooks: HOOKS,
    }
    .resource(context, Vec::new())
    .set("LaunchTemplate", launch_template)
    // The first instance looks for its volume when it boots.
    .depends_on(Some(&volume_id));
    template.add(format!("Group{index}"), resource);
    let version = context.etcd_version();
    let node_role = NodeRole {
        member: Some(MemberRole {
            peer_url: members::peer_url(member),
            volume_gib: member.data_volume.size_gib,
            pin,
            zone: NameZone::from_id(context.cluster.etcd.hosted_zone_id.as_deref()),
        }),
        ..machine.node_role(context, stack, size, config, version)
    };
    (role, node_role)
}

/// The logical id of a member's data volume. CloudFormation can neither move a volume nor change its key ("updates are not supported"),
/// so such a change makes it another resource.
fn volume_id(member: &EtcdMember, pin: &VolumePin) -> String {
    match pin.number {
        0 | 1 => format!("DataVolume{}", member.index),
        number => format!("DataVolume{}Number{number}", member.index),
    }
}

/// A snapshot is kept when the volume is deleted, so that a destroyed cluster can be restored without the cost of an unused volume.
fn data_volume(context: &Context<'_>, member: &EtcdMember, role: &Role, pin: &VolumePin) -> Resource {
    let cluster = context.cluster;
    let tags = node_tags(context, role)
        .with("Name", format!("{}-{role}-data", cluster.name))
        .with("slipway:volume", pin.tag())
        .list();
    let Value::Object(ebs) = ebs(&member.data_volume) else { unreachable!("a block device is an object") };
    let mut volume = Resource::new("AWS::EC2::Volume");
    for (name, value) in ebs {
        // `AWS::EC2::Volume` calls it `Size`.
        volume = volume.set(if name == "VolumeSize" { "Size" } else { &name }, value);
    }
    volume
        .set("AvailabilityZone", pin.availability_zone.as_str())
        .set("Tags", tags)
        .on_delete(Removal::Snapshot)
}

/// What a member needs in addition: to take and restore snapshots, to attach its volume, to write its own record, and to delete the
/// records of all members when the cluster is destroyed. Route 53's keys have several values, one of each change of a call, so they need
/// `ForAllValues`; names are in lower case, without the final dot (Route 53, "Using IAM policy conditions for fine-grained access control").
fn statements(context: &Context<'_>, member: &EtcdMember, role: &Role) -> Vec<Value> {
    let (partition, region) = (context.partition(), &context.cluster.region);
    let tagged = json!({ "StringEquals": {
        "aws:ResourceTag/slipway:cluster": context.cluster.name,
        "aws:ResourceTag/slipway:role": role.to_string(),
    } });
    // As `AWSEC2VssSnapshotPolicy` of AWS has it ("AWS managed policy reference"). `ec2:AttachVolume` knows `ec2:InstanceID` of the machine that the
    // volume is attached to (service authorization reference, "Amazon EC2").
    let mut to_itself = tagged.clone();
    to_itself["ArnLike"] =
        json!({ "ec2:SourceInstanceARN": format!("arn:{partition}:ec2:*:*:instance/${{ec2:InstanceID}}") });
    let ec2 = |kind: &str| sub(format!("arn:{partition}:ec2:{region}:${{AWS::AccountId}}:{kind}/*"));
    let object = |key: &str| format!("arn:{partition}:s3:::{}/{key}", context.site.asset_bucket);
    let zone = match &context.cluster.etcd.hosted_zone_id {
        Some(id) => json!(format!("arn:{partition}:route53:::hostedzone/{id}")),
        None => json!({ "Fn::Sub": [
            format!("arn:{partition}:route53:::hostedzone/${{Zone}}"),
            { "Zone": context.etcd_zone() },
        ] }),
    };
    let mut statements = vec![
        // Any member may take a snapshot and restore any snapshot. None may delete one, and the bucket's policy lets none overwrite one.
        allow(
            "KeepSnapshots",
            &["s3:GetObject", "s3:PutObject"],
            json!([
                object(&format!("{}*", keys::etcd_snapshots(&context.cluster.name))),
                object(&format!("{}*", keys::scheduled_snapshots(&context.cluster.name))),
            ]),
            own_account(),
        ),
        allow(
            "ReadSnapshotSchedule",
            &["s3:GetObject"],
            json!(object(&keys::snapshot_schedule(&context.cluster.name))),
            own_account(),
        ),
        allow(
            "SealOwnSnapshots",
            &["kms:Decrypt", "kms:GenerateDataKey"],
            json!(context.kms_key_arn()),
            iam::sealed_for(context, SNAPSHOT_ROLE),
        ),
        allow("FindOwnVolume", &["ec2:DescribeVolumes"], json!("*"), Value::Null),
        allow("AttachOwnVolume", &["ec2:AttachVolume"], ec2("volume"), tagged),
        allow("AttachToOwnMachine", &["ec2:AttachVolume"], ec2("instance"), to_itself),
        allow(
            "SetOwnRecord",
            &["route53:ChangeResourceRecordSets"],
            zone.clone(),
            json!({ "ForAllValues:StringEquals": {
                "route53:ChangeResourceRecordSetsNormalizedRecordNames": [member.dns_name.to_lowercase()],
                "route53:ChangeResourceRecordSetsRecordTypes": ["A"],
                "route53:ChangeResourceRecordSetsActions": ["UPSERT"],
            } }),
        ),
        allow("FindRecords", &["route53:ListResourceRecordSets"], zone.clone(), Value::Null),
        allow(
            "TakeRecordsBack",
            &["route53:ChangeResourceRecordSets"],
            zone,
            json!({
                "ForAllValues:StringLike": {
                    "route53:ChangeResourceRecordSetsNormalizedRecordNames": members_names(context),
                },
                "ForAllValues:StringEquals": {
                    "route53:ChangeResourceRecordSetsRecordTypes": ["A"],
                    "route53:ChangeResourceRecordSetsActions": ["DELETE"],
                },
            }),
        ),
    ];
    statements.extend(iam::open_former(context, "OpenFormerSnapshots", SNAPSHOT_ROLE));
    // To attach an encrypted volume, the member has to create a grant for EC2. The policy of AWS' own key for EBS allows this through EC2;
    // the account may have chosen another default key, which the spec does not name.
    let key = match &member.data_volume.kms_key_arn {
        Some(key) => json!(key),
        None => sub(format!("arn:{partition}:kms:{region}:${{AWS::AccountId}}:key/*")),
    };
    statements.push(iam::grant_to_ec2(context, "OpenOwnVolume", key));
    statements
}

/// IAM patterns for the DNS names that members have, may get and may have had, because a dead or removed member cannot delete its own
/// record. Names that the user chose are listed individually.
fn members_names(context: &Context<'_>) -> Vec<String> {
    let etcd = &context.cluster.etcd;
    let usual = |name: &str| name.starts_with(MEMBER_PREFIX);
    let domain = etcd.internal_domain.trim_end_matches('.').to_lowercase();
    let chosen = etcd.members.iter().map(|member| member.dns_name.to_lowercase()).filter(|name| !usual(name));
    std::iter::once(format!("{MEMBER_PREFIX}*.{domain}")).chain(chosen).collect()
}
