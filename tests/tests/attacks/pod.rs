//! A pod on a worker.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slipway_tests::iam::{self, Decision, Request};
use slipway_tests::workshop::{Workshop, allowed, examples};

use crate::controller::roles;

/// What the role of a worker may do: read what its own boot needs, pull images, write its own reports, complete the hooks of its pool, and answer
/// commands. A new action here is one for every pod with `hostNetwork`.
/// `a_machine_reports_about_itself_alone` and `p9_a_node_reads_and_opens_its_own_bundles_alone` (shared/render/src/tests/security.rs) say of what.
const WORKERS: [&str; 20] = [
    "autoscaling:CompleteLifecycleAction",
    "autoscaling:RecordLifecycleActionHeartbeat",
    "ec2:DescribeVolumes",
    "ec2messages:AcknowledgeMessage",
    "ec2messages:DeleteMessage",
    "ec2messages:FailMessage",
    "ec2messages:GetEndpoint",
    "ec2messages:GetMessages",
    "ec2messages:SendReply",
    "ecr:BatchGetImage",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "kms:Decrypt",
    "s3:GetObject",
    "s3:PutObject",
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
];

/// A pod with `hostNetwork` reaches the metadata service, and so the role of its worker. With it, it makes and changes nothing in the account.
#[tokio::test]
async fn a_pod_in_the_network_of_its_worker_gets_a_role_that_changes_nothing_in_the_account() {
    let mut seen = BTreeSet::new();
    for example in examples() {
        let mut workshop = Workshop::for_example(&example);
        workshop.allowed = Some(allowed());
        let rendering = workshop.render(&example.text).await.rendering;
        for (name, properties) in roles(&rendering, &[]) {
            if !name.ends_with("/WorkerRole") && !name.contains("-pool-") {
                continue;
            }
            for policy in properties["Policies"].as_array().into_iter().flatten() {
                for statement in policy["PolicyDocument"]["Statement"].as_array().unwrap() {
                    if statement["Effect"] == "Deny" {
                        continue;
                    }
                    let actions = match &statement["Action"] {
                        Value::Array(all) => all.clone(),
                        one => vec![one.clone()],
                    };
                    seen.extend(actions.iter().map(|action| action.as_str().unwrap().to_owned()));
                }
            }
        }
    }
    let seen: Vec<&str> = seen.iter().map(String::as_str).collect();
    assert_eq!(seen, WORKERS);
}

/// The token of a pod is for its own service account, and a role is for one. So no pod takes the role of another, of an add-on, or of a cluster
/// whose issuer it has no token of.
#[tokio::test]
async fn a_pod_takes_the_role_of_its_own_service_account_alone() {
    let mut checked = 0;
    for example in examples() {
        let mut workshop = Workshop::for_example(&example);
        workshop.allowed = Some(allowed());
        let rendering = workshop.render(&example.text).await.rendering;
        for (name, properties) in roles(&rendering, &[]) {
            let mut trust = properties["AssumeRolePolicyDocument"].clone();
            let statements = trust["Statement"].as_array_mut().unwrap();
            if !statements.iter().any(|one| one["Action"] == "sts:AssumeRoleWithWebIdentity") {
                // Machines take the other roles, by EC2.
                let by_ec2 = |one: &Value| {
                    one["Action"] == "sts:AssumeRole"
                        && one["Principal"]["Service"]
                            .as_str()
                            .is_some_and(|by| by.starts_with("ec2.amazonaws.com"))
                };
                assert!(statements.iter().all(by_ec2), "{}: {name}: {trust}", example.name);
                continue;
            }
            let equals = statements[0]["Condition"]["StringEquals"].as_object().unwrap().clone();
            let (subject_key, subject) = equals.iter().find(|(key, _)| key.ends_with(":sub")).unwrap();
            let (audience_key, audience) = equals.iter().find(|(key, _)| key.ends_with(":aud")).unwrap();
            for statement in statements.iter_mut() {
                assert_eq!(statement["Principal"], json!({ "Federated": { "Ref": "Provider" } }), "{name}");
                statement["Principal"] = json!({ "Federated": "own" });
            }
            let statements = iam::parse(&trust).unwrap();
            let takes = |issuer: &str, subject: &str, audience: &str| {
                let claims = [(subject_key, subject), (audience_key, audience)];
                let context = claims.map(|(key, value)| (key.to_ascii_lowercase(), vec![value.to_owned()]));
                let asked = Request {
                    action: "sts:AssumeRoleWithWebIdentity".to_owned(),
                    context: context.into(),
                    ..Request::default()
                };
                matches!(
                    iam::decide_for(&statements, &format!("federated:{issuer}"), &asked),
                    Decision::Allowed(_)
                )
            };
            let (subject, audience) = (subject.as_str().unwrap(), audience.as_str().unwrap());
            assert!(takes("own", subject, audience), "{name}");
            assert!(!takes("another", subject, audience), "{name}: another cluster's issuer");
            for other in
                ["system:serviceaccount:default:default", "system:serviceaccount:kube-system:default", "*"]
            {
                assert!(!takes("own", other, audience), "{name}: {other}");
            }
            assert!(!takes("own", &format!("{subject}-2"), audience), "{name}");
            // A pod may ask the API server for a token of any audience.
            assert!(!takes("own", subject, "https://kubernetes.default.svc"), "{name}");
            checked += 1;
        }
    }
    assert!(checked > 3, "{checked} roles of pods");
}
