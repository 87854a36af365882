//! The inputs of physical ids and attributes.

use serde_json::Value;

use super::World;
use super::resource::Resource;

/// The inputs of an id.
pub(super) struct Maker<'a> {
    pub(super) world: &'a World,
    pub(super) stack_name: &'a str,
    pub(super) resource: &'a Resource,
    /// 64 hex digits.
    pub(super) hex: String,
}

impl Maker<'_> {
    pub(super) fn text(&self, property: &str) -> Option<&str> {
        self.resource.properties.get(property).and_then(Value::as_str)
    }

    /// `prefix` and seventeen hex digits, as in EC2.
    fn ec2(&self, prefix: &str) -> String {
        format!("{prefix}-0{}", &self.hex[..16])
    }

    pub(super) fn arn(&self, service: &str, rest: &str) -> String {
        let config = &self.world.config;
        let region = if service == "iam" || service == "s3" { "" } else { &config.region };
        let account = if service == "s3" { "" } else { &config.account };
        format!("arn:aws:{service}:{region}:{account}:{rest}")
    }

    /// Random upper-case letters and digits.
    pub(super) fn random(&self, length: usize) -> String {
        const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let letter = |pair: &[u8]| {
            let digit = |byte: u8| {
                usize::try_from((byte as char).to_digit(16).unwrap_or_default()).unwrap_or_default()
            };
            LETTERS[(digit(pair[0]) * 16 + digit(pair[1])) % LETTERS.len()] as char
        };
        self.hex.as_bytes().chunks(2).map(letter).take(length).collect()
    }

    /// The name that the template gives, or the one that CloudFormation generates: stack, logical id, random.
    pub(super) fn name(&self, property: &str, longest: usize) -> Result<String, String> {
        if let Some(name) = self.text(property) {
            if name.len() > longest {
                return Err(format!(
                    "1 validation error detected: Value at '{property}' failed to satisfy constraint: Member must have length less than or equal to {longest}: {name} has {}",
                    name.len()
                ));
            }
            return Ok(name.to_owned());
        }
        let random = self.random(12);
        let room = longest - random.len() - 2;
        let logical = &self.resource.logical_id[..self.resource.logical_id.len().min(room / 2)];
        let stack = &self.stack_name[..self.stack_name.len().min(room - logical.len())];
        Ok(format!("{stack}-{logical}-{random}"))
    }

    pub(super) fn id(&self) -> Result<String, String> {
        let elb = |kind: &str, name: &str| {
            let family = match self.text("Type") {
                Some("network") => "net",
                Some("gateway") => "gwy",
                _ => "app",
            };
            let id = &self.hex[..16];
            match kind {
                "loadbalancer" => {
                    self.arn("elasticloadbalancing", &format!("loadbalancer/{family}/{name}/{id}"))
                }
                _ => self.arn("elasticloadbalancing", &format!("targetgroup/{name}/{id}")),
            }
        };
        Ok(match self.resource.kind.as_str() {
            "AWS::AutoScaling::AutoScalingGroup" => self.name("AutoScalingGroupName", 255)?,
            "AWS::AutoScaling::LifecycleHook" => self.name("LifecycleHookName", 255)?,
            "AWS::EC2::EIP" => {
                let byte = |at: usize| u8::from_str_radix(&self.hex[at..at + 2], 16).unwrap_or_default();
                format!("18.{}.{}.{}", 192 | (byte(0) & 63), byte(2), byte(4))
            }
            "AWS::EC2::InternetGateway" => self.ec2("igw"),
            "AWS::EC2::LaunchTemplate" => self.ec2("lt"),
            "AWS::EC2::NatGateway" => self.ec2("nat"),
            "AWS::EC2::Route" => {
                let to = ["DestinationCidrBlock", "DestinationIpv6CidrBlock", "DestinationPrefixListId"];
                let to = to.iter().find_map(|key| self.text(key)).ok_or("Route needs a destination")?;
                format!("{}|{to}", self.text("RouteTableId").unwrap_or_default())
            }
            "AWS::EC2::RouteTable" => self.ec2("rtb"),
            "AWS::EC2::SecurityGroup" => self.ec2("sg"),
            "AWS::EC2::SecurityGroupEgress" | "AWS::EC2::SecurityGroupIngress" => self.ec2("sgr"),
            "AWS::EC2::Subnet" => self.ec2("subnet"),
            "AWS::EC2::SubnetRouteTableAssociation" => self.ec2("rtbassoc"),
            "AWS::EC2::VPC" => self.ec2("vpc"),
            "AWS::EC2::VPCEndpoint" => self.ec2("vpce"),
            "AWS::EC2::VPCGatewayAttachment" => format!("IGW|{}", self.text("VpcId").unwrap_or_default()),
            "AWS::EC2::Volume" => self.ec2("vol"),
            "AWS::ElasticLoadBalancingV2::Listener" => {
                let balancer = self.text("LoadBalancerArn").unwrap_or_default();
                format!("{}/{}", balancer.replacen(":loadbalancer/", ":listener/", 1), &self.hex[..16])
            }
            "AWS::ElasticLoadBalancingV2::LoadBalancer" => elb("loadbalancer", &self.name("Name", 32)?),
            "AWS::ElasticLoadBalancingV2::TargetGroup" => elb("targetgroup", &self.name("Name", 32)?),
            "AWS::Events::Rule" => match self.text("EventBusName") {
                None | Some("default") => self.name("Name", 64)?,
                Some(bus) => format!("{bus}|{}", self.name("Name", 64)?),
            },
            "AWS::IAM::InstanceProfile" => self.name("InstanceProfileName", 128)?,
            "AWS::IAM::ManagedPolicy" => {
                let path = self.text("Path").unwrap_or("/");
                self.arn("iam", &format!("policy{path}{}", self.name("ManagedPolicyName", 128)?))
            }
            "AWS::IAM::OIDCProvider" => {
                let url = self.text("Url").unwrap_or_default();
                self.arn("iam", &format!("oidc-provider/{}", url.trim_start_matches("https://")))
            }
            "AWS::IAM::Policy" => self.name("", 128)?,
            "AWS::IAM::Role" => self.name("RoleName", 64)?,
            "AWS::IAM::RolePolicy" => {
                format!(
                    "{}|{}",
                    self.text("PolicyName").unwrap_or_default(),
                    self.text("RoleName").unwrap_or_default()
                )
            }
            "AWS::KMS::Alias" => self.text("AliasName").unwrap_or_default().to_owned(),
            "AWS::KMS::Key" => {
                let hex = &self.hex;
                format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
            }
            "AWS::Route53::HostedZone" => format!("Z{}", self.random(20)),
            "AWS::Route53::RecordSet" => {
                self.text("Name").unwrap_or_default().trim_end_matches('.').to_owned()
            }
            "AWS::Route53::RecordSetGroup" => self.name("", 128)?,
            "AWS::S3::Bucket" => self.name("BucketName", 63)?.to_lowercase(),
            "AWS::S3::BucketPolicy" => self.text("Bucket").unwrap_or_default().to_owned(),
            "AWS::SSM::Parameter" => self.name("Name", 1_011)?,
            other => return Err(format!("{other} is not modelled by the simulated CloudFormation")),
        })
    }
}
