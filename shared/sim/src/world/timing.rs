//! Usual durations in AWS in seconds, before the world's pace is applied.

use jiff::SignedDuration;

/// From `CREATE_PENDING` to a complete change set, for each resource of the template, in addition to [`CHANGE_SET_S`].
pub(super) const CHANGE_SET_PER_RESOURCE_S: f64 = 0.05;
/// From `CREATE_PENDING` to a complete change set.
pub(super) const CHANGE_SET_S: f64 = 4.0;
/// From a call to the first resource.
pub(super) const BEGIN_S: f64 = 2.0;
/// From `CREATE_IN_PROGRESS` to "Resource creation Initiated".
pub(super) const INITIATE_S: f64 = 1.0;

/// The time of a drift detection, which "can take up to several minutes, depending on the number of resources" (botocore,
/// `DetectStackDrift`), in addition to [`DRIFT_PER_RESOURCE_S`].
pub(super) const DRIFT_S: f64 = 10.0;
/// For each resource of the stack.
pub(super) const DRIFT_PER_RESOURCE_S: f64 = 2.0;

/// How often CloudFormation checks whether a group has stabilised.
pub(super) const STABILISES_S: f64 = 15.0;
/// CloudFormation's timeout for that: `handlers.create.timeoutInMinutes` and `handlers.delete.timeoutInMinutes` in the resource
/// schema of `AWS::AutoScaling::AutoScalingGroup`. A creation waits until the desired number of machines is in service.
pub(super) const CREATED_WITHIN: SignedDuration = SignedDuration::from_mins(360);
pub(super) const DELETED_WITHIN: SignedDuration = SignedDuration::from_mins(240);

/// The time to create a resource.
pub(super) fn create_s(kind: &str) -> f64 {
    match kind {
        "AWS::AutoScaling::AutoScalingGroup" => 20.0,
        "AWS::EC2::EIP" | "AWS::EC2::InternetGateway" => 16.0,
        "AWS::EC2::NatGateway" => 95.0,
        "AWS::EC2::VPC" => 12.0,
        "AWS::EC2::VPCEndpoint" => 60.0,
        "AWS::ElasticLoadBalancingV2::LoadBalancer" => 155.0,
        "AWS::IAM::InstanceProfile" => 122.0,
        "AWS::IAM::ManagedPolicy" | "AWS::IAM::Policy" | "AWS::IAM::Role" | "AWS::IAM::RolePolicy" => 18.0,
        "AWS::KMS::Key" | "AWS::S3::Bucket" => 20.0,
        "AWS::Route53::HostedZone" | "AWS::Route53::RecordSet" | "AWS::Route53::RecordSetGroup" => 33.0,
        "AWS::Events::Rule" => 61.0,
        _ => 5.0,
    }
}

/// The time to update a resource in place.
pub(super) fn update_s(kind: &str) -> f64 {
    match kind {
        "AWS::Route53::HostedZone" | "AWS::Route53::RecordSet" | "AWS::Route53::RecordSetGroup" => 33.0,
        "AWS::IAM::Role" | "AWS::IAM::Policy" | "AWS::IAM::ManagedPolicy" => 16.0,
        "AWS::EC2::Volume" => 60.0,
        _ => 3.0,
    }
}

/// The time to delete a resource.
pub(super) fn delete_s(kind: &str) -> f64 {
    match kind {
        "AWS::AutoScaling::AutoScalingGroup" => 75.0,
        "AWS::EC2::NatGateway" => 50.0,
        "AWS::EC2::VPCEndpoint" => 40.0,
        "AWS::Route53::HostedZone" | "AWS::Route53::RecordSet" | "AWS::Route53::RecordSetGroup" => 33.0,
        _ => 2.0,
    }
}
