//! What `Fn::GetAtt` returns beyond a resource's own properties.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::maker::Maker;
use super::resource::Resource;

/// The attributes of a new resource with the id `id`.
pub(super) fn for_resource(maker: &Maker<'_>, id: &str) -> BTreeMap<String, Value> {
    let config = maker.world.config();
    let region = &config.region;
    let hex = &maker.hex;
    let last = |text: &str| text.rsplit('|').next().unwrap_or_default().to_owned();
    let after =
        |text: &str, mark: &str| text.split_once(mark).map_or(String::new(), |(_, rest)| rest.to_owned());
    let value = match maker.resource.kind.as_str() {
        "AWS::AutoScaling::AutoScalingGroup" => json!({
            "AutoScalingGroupName": id,
            "AutoScalingGroupARN": maker.arn("autoscaling", &format!("autoScalingGroup:{}:autoScalingGroupName/{id}", uuid(hex))),
        }),
        "AWS::EC2::EIP" => json!({"PublicIp": id, "AllocationId": format!("eipalloc-0{}", &hex[16..32])}),
        "AWS::EC2::InternetGateway" => json!({"InternetGatewayId": id}),
        "AWS::EC2::LaunchTemplate" => json!({
            "LaunchTemplateId": id, "DefaultVersionNumber": "1", "LatestVersionNumber": "1",
        }),
        "AWS::EC2::NatGateway" => json!({"NatGatewayId": id, "EniId": format!("eni-0{}", &hex[16..32])}),
        "AWS::EC2::Route" => json!({"CidrBlock": last(id)}),
        "AWS::EC2::RouteTable" => json!({"RouteTableId": id}),
        "AWS::EC2::SecurityGroup" => json!({"Id": id, "GroupId": id}),
        "AWS::EC2::SecurityGroupEgress"
        | "AWS::EC2::SecurityGroupIngress"
        | "AWS::EC2::SubnetRouteTableAssociation"
        | "AWS::IAM::Policy"
        | "AWS::Route53::RecordSetGroup" => json!({"Id": id}),
        "AWS::EC2::Subnet" => json!({
            "SubnetId": id,
            "NetworkAclAssociationId": format!("aclassoc-0{}", &hex[16..32]),
            "Ipv6CidrBlocks": [],
            "AvailabilityZone": maker.text("AvailabilityZone").map_or_else(|| config.zones().remove(0), str::to_owned),
        }),
        "AWS::EC2::VPC" => json!({
            "VpcId": id,
            "DefaultSecurityGroup": format!("sg-0{}", &hex[16..32]),
            "DefaultNetworkAcl": format!("acl-0{}", &hex[32..48]),
            "CidrBlockAssociations": [format!("vpc-cidr-assoc-0{}", &hex[40..56])],
            "Ipv6CidrBlocks": [],
        }),
        "AWS::EC2::VPCEndpoint" => json!({"Id": id, "NetworkInterfaceIds": [], "DnsEntries": []}),
        "AWS::EC2::VPCGatewayAttachment" => json!({"AttachmentType": "IGW"}),
        "AWS::EC2::Volume" => json!({"VolumeId": id}),
        "AWS::ElasticLoadBalancingV2::Listener" => json!({"ListenerArn": id}),
        "AWS::ElasticLoadBalancingV2::LoadBalancer" => {
            let full = after(id, ":loadbalancer/");
            let name = full.split('/').nth(1).unwrap_or_default().to_owned();
            let network = full.starts_with("net/");
            let internal = if maker.text("Scheme") == Some("internal") { "internal-" } else { "" };
            let host = if network {
                format!("{name}-{}.elb.{region}.amazonaws.com", &hex[..16])
            } else {
                format!(
                    "{internal}{name}-{}.{region}.elb.amazonaws.com",
                    u32::from_str_radix(&hex[..7], 16).unwrap_or_default()
                )
            };
            json!({
                "LoadBalancerArn": id, "LoadBalancerName": name, "LoadBalancerFullName": full, "DNSName": host,
                "CanonicalHostedZoneID": format!("Z{}", &hex[..13].to_uppercase()),
            })
        }
        "AWS::ElasticLoadBalancingV2::TargetGroup" => {
            let full = after(id, ":targetgroup/");
            let name = full.split('/').next().unwrap_or_default().to_owned();
            json!({
                "TargetGroupArn": id, "TargetGroupName": name, "TargetGroupFullName": format!("targetgroup/{full}"),
                "LoadBalancerArns": [],
            })
        }
        "AWS::Events::Rule" => json!({
            "RuleName": last(id), "Arn": maker.arn("events", &format!("rule/{}", id.replace('|', "/"))),
        }),
        "AWS::IAM::InstanceProfile" => {
            json!({"Arn": maker.arn("iam", &format!("instance-profile{}{id}", maker.text("Path").unwrap_or("/")))})
        }
        "AWS::IAM::ManagedPolicy" => json!({
            "PolicyArn": id, "PolicyId": format!("ANPA{}", maker.random(17)), "DefaultVersionId": "v1", "IsAttachable": true,
        }),
        "AWS::IAM::OIDCProvider" => json!({"Arn": id}),
        "AWS::IAM::Role" => json!({
            "Arn": maker.arn("iam", &format!("role{}{id}", maker.text("Path").unwrap_or("/"))),
            "RoleId": format!("AROA{}", maker.random(17)),
        }),
        "AWS::KMS::Key" => json!({"KeyId": id, "Arn": maker.arn("kms", &format!("key/{id}"))}),
        "AWS::Route53::HostedZone" => json!({
            "Id": id, "NameServers": ["ns-1.awsdns-01.com", "ns-2.awsdns-02.net", "ns-3.awsdns-03.org", "ns-4.awsdns-04.co.uk"],
        }),
        "AWS::S3::Bucket" => json!({
            "Arn": maker.arn("s3", id),
            "DomainName": format!("{id}.s3.amazonaws.com"),
            "RegionalDomainName": format!("{id}.s3.{region}.amazonaws.com"),
            "DualStackDomainName": format!("{id}.s3.dualstack.{region}.amazonaws.com"),
            "WebsiteURL": format!("http://{id}.s3-website.{region}.amazonaws.com"),
        }),
        "AWS::SSM::Parameter" => {
            json!({"Arn": maker.arn("ssm", &format!("parameter/{}", id.trim_start_matches('/')))})
        }
        // Other types have no attributes.
        _ => json!({}),
    };
    value.as_object().cloned().unwrap_or_default().into_iter().collect()
}

/// Changes the attributes for an update in place: a launch template gets one more version.
pub(super) fn update(next: &mut Resource, current: &Resource) {
    if next.kind != "AWS::EC2::LaunchTemplate" {
        return;
    }
    let content = |resource: &Resource| {
        (
            resource.properties.get("LaunchTemplateData").cloned(),
            resource.properties.get("VersionDescription").cloned(),
        )
    };
    if content(next) == content(current) {
        return;
    }
    let latest = current.attributes.get("LatestVersionNumber").and_then(Value::as_str);
    let version = latest.and_then(|text| text.parse::<u64>().ok()).unwrap_or(1) + 1;
    next.attributes.insert("LatestVersionNumber".to_owned(), Value::String(version.to_string()));
}

fn uuid(hex: &str) -> String {
    format!("{}-{}-4{}-8{}-{}", &hex[32..40], &hex[40..44], &hex[45..48], &hex[49..52], &hex[52..64])
}
