//! Keys and roles of the account that the installation does not list.

use slipway_flows::rendering::RenderOutcome;
use slipway_tests::workshop::example;

use super::{minimal, with};
use crate::{refused, says, workshop};

/// IAM refuses them, too, but then a stack has failed, or a credential could not be sealed.
#[tokio::test]
async fn a_key_and_a_profile_that_the_installation_does_not_list_are_refused() {
    let mut workshop = workshop(&example("minimal"));
    let allowed = workshop.allowed.as_mut().unwrap();
    allowed.cluster_key_arns = Some(vec!["arn:aws:kms:eu-west-1:111122223333:key/1".to_owned()]);
    allowed.instance_role_arns = Some(Vec::new());
    let command = "sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml --stack-name slipway --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides";
    let key = "arn:aws:kms:eu-west-1:111122223333:key/0a1b2c3d-0a1b-2c3d-4e5f-0a1b2c3d4e5f";
    let spec = minimal(&format!("kmsKeyArn: {key}"));
    let set = format!("{command} ClusterKeyArns=arn:aws:kms:eu-west-1:111122223333:key/1,{key}");
    says(&refused(&workshop, &spec).await, "kms-key", &["kmsKeyArn", "`ClusterKeyArns`", &set]);

    let profile = "iam: {instanceProfile: {arn: 'arn:aws:iam::111122223333:instance-profile/payroll'}}";
    let set = format!("{command} InstanceRoleArns=ROLE_ARN");
    for place in ["controller", "etcd"] {
        let findings = refused(&workshop, &minimal(&format!("{place}: {{{profile}}}"))).await;
        let path = format!("{place}.iam.instanceProfile.arn");
        says(&findings, "instance-role", &[&path, "`InstanceRoleArns`", &set]);
    }
    let of_pool = with(&example("minimal"), "- name: general", &format!("- name: general\n      {profile}"));
    says(
        &refused(&workshop, &of_pool).await,
        "instance-role",
        &["worker.nodePools[0].iam.instanceProfile.arn"],
    );

    // What is listed is taken, and so is everything by an installation whose template does not say yet.
    workshop.allowed.as_mut().unwrap().cluster_key_arns = None;
    assert!(matches!(workshop.outcome(&spec).await, RenderOutcome::Planned(_)));
    let allowed = workshop.allowed.as_mut().unwrap();
    allowed.cluster_key_arns = Some(vec!["arn:aws:kms:eu-west-1:111122223333:key/*".to_owned()]);
    allowed.instance_role_arns = Some(vec!["arn:aws:iam::111122223333:role/payroll".to_owned()]);
    assert!(matches!(workshop.outcome(&spec).await, RenderOutcome::Unchanged | RenderOutcome::Planned(_)));
    assert!(matches!(workshop.outcome(&of_pool).await, RenderOutcome::Planned(_)));
}
