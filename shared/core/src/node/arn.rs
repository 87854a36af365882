//! The ARNs of machines. The keys of a machine's reports contain its ARN, because a policy of IAM can compare that with the caller's own
//! (`${ec2:SourceInstanceARN}`), and not a machine's id alone.

use serde::{Deserialize, Serialize};

use super::is_instance;
use crate::cluster::partition_of;

/// What the ARNs of all machines of a region of an account begin with: `arn:aws:ec2:eu-west-1:123456789012:instance/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MachineArns(String);

impl MachineArns {
    /// Those of `region` of `account`.
    #[must_use]
    pub fn new(region: &str, account: &str) -> Self {
        Self(format!("arn:{}:ec2:{region}:{account}:instance/", partition_of(region)))
    }

    /// Those of the region and the account of another resource, by its ARN; `None` if that names none.
    #[must_use]
    pub fn from_resource_arn(arn: &str) -> Option<Self> {
        let [region, account] = region_and_account(arn)?;
        Some(Self::new(region, account))
    }

    /// The ARN of the machine with that id.
    #[must_use]
    pub fn arn_of(&self, instance: &str) -> String {
        format!("{}{instance}", self.0)
    }
}

/// The id of the machine with that ARN; `None` for any other text. Nodes choose the keys that they write to, so nothing else may be taken for
/// an ARN.
#[must_use]
pub fn instance_of_arn(arn: &str) -> Option<&str> {
    let (_, instance) = arn.rsplit_once('/')?;
    let is_its = is_instance(instance) && MachineArns::from_resource_arn(arn)?.arn_of(instance) == arn;
    is_its.then_some(instance)
}

fn region_and_account(arn: &str) -> Option<[&str; 2]> {
    let mut parts = arn.splitn(6, ':');
    let ("arn", _, _, region, account) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?)
    else {
        return None;
    };
    parts.next()?;
    let is_region = !region.is_empty()
        && region.len() <= 32
        && region.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    let is_account = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    (is_region && is_account).then_some([region, account])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_arn_is_that_of_ec2_in_its_partition() {
        let arn = |region: &str| MachineArns::new(region, "123456789012").arn_of("i-0a1b2c3d4e5f60718");
        assert_eq!(arn("eu-west-1"), "arn:aws:ec2:eu-west-1:123456789012:instance/i-0a1b2c3d4e5f60718");
        assert!(arn("cn-north-1").starts_with("arn:aws-cn:ec2:cn-north-1:"));
        let group = "arn:aws:autoscaling:eu-west-1:123456789012:autoScalingGroup:0a-1b:autoScalingGroupName/prod-pool-a";
        assert_eq!(
            MachineArns::from_resource_arn(group),
            Some(MachineArns::new("eu-west-1", "123456789012"))
        );
        // A bucket is of no region, and a role of none.
        for other in
            ["", "arn:aws:s3:::assets", "arn:aws:iam::123456789012:role/a", "arn:aws:ec2:eu-west-1:1"]
        {
            assert_eq!(MachineArns::from_resource_arn(other), None, "{other}");
        }
    }

    #[test]
    fn nothing_but_a_machines_arn_names_a_machine() {
        let arn = "arn:aws:ec2:eu-west-1:123456789012:instance/i-0a1b";
        assert_eq!(instance_of_arn(arn), Some("i-0a1b"));
        for other in [
            "",
            "i-0a1b",
            "instance/i-0a1b",
            "arn:aws:ec2:eu-west-1:123456789012:volume/i-0a1b",
            "arn:aws:ec2:eu-west-1:123456789012:instance/instance/i-0a1b",
            "arn:aws:ec2:eu-west-1:123456789012:instance/i-0a1b/i-0a1b",
            "arn:aws:ec2:eu-west-1:123456789012:instance/vol-1",
            "arn:aws:s3:eu-west-1:123456789012:instance/i-0a1b",
            "arn:aws-cn:ec2:eu-west-1:123456789012:instance/i-0a1b",
            "arn:aws:ec2:eu-west-1\u{1b}[2J:123456789012:instance/i-0a1b",
            "arn:aws:ec2:eu-west-1:12345678901\u{663}:instance/i-0a1b",
            "arn:aws:ec2::123456789012:instance/i-0a1b",
            "ARN:aws:ec2:eu-west-1:123456789012:instance/i-0a1b",
        ] {
            assert_eq!(instance_of_arn(other), None, "{other:?}");
        }
    }
}
