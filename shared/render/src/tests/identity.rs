//! IAM roles for service accounts: the stack, the controllers' configuration, and what a switch touches.

use serde_json::{Value, json};
use slipway_core::cluster::{Cluster, IamRoles, ServiceAccountRole};
use slipway_core::release::{Rendering, Site, StackKind};
use slipway_core::role::Role;

use super::of_type;
use crate::fixture::{cluster, credentials, lock, rendered, site};
use crate::lock::Lock;
use crate::{Inputs, RenderError, render};

const ISSUER: &str = "slipway-issuer-example.s3.eu-west-1.amazonaws.com/clusters/prod";

fn with_issuer() -> Site {
    Site { issuer_bucket: Some("slipway-issuer-example".to_owned()), ..site() }
}

fn role(name: &str) -> ServiceAccountRole {
    ServiceAccountRole {
        name: name.to_owned(),
        namespace: "ops".to_owned(),
        service_account: name.to_owned(),
        managed_policy_arns: vec![format!("arn:aws:iam::111122223333:policy/{name}")],
    }
}

fn cluster_with(enabled: bool, roles: &[&str]) -> Cluster {
    let roles = roles.iter().map(|name| role(name)).collect();
    Cluster { iam_roles: Some(IamRoles { enabled, roles }), ..cluster() }
}

fn rendered_at(cluster: &Cluster, site: &Site) -> Result<Rendering, Vec<RenderError>> {
    render(&Inputs::new(cluster, &lock(), &credentials(cluster), site))
}

fn on(roles: &[&str]) -> Rendering {
    rendered_at(&cluster_with(true, roles), &with_issuer()).unwrap()
}

fn identity(rendering: &Rendering) -> Value {
    let stack = rendering.stacks.iter().find(|stack| stack.kind == StackKind::Identity).unwrap();
    serde_json::from_str(&stack.body).unwrap()
}

fn tokens(rendering: &Rendering) -> Value {
    let config: Value = serde_json::from_str(&rendering.roles[&Role::Controller].config).unwrap();
    config["controlPlane"]["serviceAccountTokens"].clone()
}

#[test]
fn the_stack_trusts_the_issuer_and_gives_each_service_account_its_role() {
    let template = identity(&on(&["backup"]));
    let [provider] = &of_type(&template, "AWS::IAM::OIDCProvider")[..] else { panic!() };
    assert_eq!(provider["Properties"]["Url"], format!("https://{ISSUER}"));
    assert_eq!(provider["Properties"]["ClientIdList"], json!(["sts.amazonaws.com"]));
    let roles = of_type(&template, "AWS::IAM::Role");
    let of = |account: &str| {
        let role = roles.iter().find(|role| {
            role["Properties"]["AssumeRolePolicyDocument"]["Statement"][0]["Condition"]["StringEquals"]
                [format!("{ISSUER}:sub")]
                == format!("system:serviceaccount:{account}")
        });
        &role.unwrap()["Properties"]
    };
    assert_eq!(roles.len(), 4);
    for (account, inline, managed) in [
        ("ops:backup", false, json!(["arn:aws:iam::111122223333:policy/backup"])),
        ("kube-system:cluster-autoscaler", true, Value::Null),
        ("kube-system:cloud-controller-manager", true, Value::Null),
        ("kube-system:ebs-csi-controller-sa", true, Value::Null),
    ] {
        let role = of(account);
        let trust = &role["AssumeRolePolicyDocument"]["Statement"];
        assert_eq!(trust.as_array().unwrap().len(), 1);
        assert_eq!(trust[0]["Action"], "sts:AssumeRoleWithWebIdentity");
        assert_eq!(trust[0]["Principal"], json!({ "Federated": { "Ref": "Provider" } }));
        let conditions = trust[0]["Condition"].as_object().unwrap();
        assert_eq!(conditions.keys().collect::<Vec<_>>(), ["StringEquals"]);
        assert_eq!(conditions["StringEquals"][format!("{ISSUER}:aud")], "sts.amazonaws.com");
        assert_eq!(role["Path"], "/slipway/");
        assert_eq!((role.get("Policies").is_some(), &role["ManagedPolicyArns"]), (inline, &managed));
    }
}

#[test]
fn the_stack_itself() {
    insta::assert_json_snapshot!(identity(&on(&["backup"])));
}

#[test]
fn what_the_autoscaler_may_do_is_its_own_and_no_longer_the_controllers() {
    let scales = |rendering: &Rendering, kind: StackKind| {
        let stack = rendering.stacks.iter().find(|stack| stack.kind == kind).unwrap();
        stack.body.contains("autoscaling:SetDesiredCapacity")
    };
    assert!(scales(&rendered(&cluster()), StackKind::ControlPlane));
    assert!(!scales(&on(&[]), StackKind::ControlPlane) && scales(&on(&[]), StackKind::Identity));
    // What is not in use yet gives nobody anything.
    let between = rendered_at(&cluster_with(false, &["backup"]), &with_issuer()).unwrap();
    assert!(scales(&between, StackKind::ControlPlane));
    assert!(between.stacks.iter().all(|stack| stack.kind != StackKind::Identity));
}

#[test]
fn the_new_issuer_is_accepted_before_it_is_used_and_the_old_one_after() {
    let local = "https://kubernetes.default.svc.cluster.local";
    let public = format!("https://{ISSUER}");
    assert_eq!(tokens(&rendered(&cluster())), Value::Null);
    let between = rendered_at(&cluster_with(false, &[]), &with_issuer()).unwrap();
    assert_eq!(tokens(&between), json!({ "issuers": [local, public], "audiences": [local, public] }));
    assert_eq!(
        tokens(&on(&[])),
        json!({
            "issuers": [public, local], "audiences": [local, public], "jwksUri": format!("{public}/openid/v1/jwks"),
        })
    );
}

#[test]
fn p2_the_switch_rolls_controllers_alone_and_a_role_rolls_nobody() {
    let machines = |rendering: &Rendering| -> Vec<(String, String)> {
        let roles = rendering.roles.iter();
        roles.map(|(role, node)| (role.to_string(), format!("{}{}", node.machine, node.config))).collect()
    };
    let changed = |before: &Rendering, after: &Rendering| -> (Vec<String>, Vec<String>) {
        let nodes = machines(before).into_iter().zip(machines(after));
        let stacks = after
            .stacks
            .iter()
            .filter(|stack| before.stack(&stack.name).is_none_or(|before| before.sha256 != stack.sha256));
        (
            nodes.filter(|(before, after)| before != after).map(|((role, _), _)| role).collect(),
            stacks.map(|stack| stack.name.clone()).collect(),
        )
    };
    let off = rendered_at(&cluster(), &with_issuer()).unwrap();
    assert_eq!(off, rendered(&cluster()), "a cluster that does not ask for roles has nothing of the bucket");
    let (nodes, stacks) = changed(&off, &on(&[]));
    assert_eq!(
        (nodes, stacks),
        (vec!["controller".to_owned()], vec!["prod-identity".to_owned(), "prod-control-plane".to_owned()])
    );
    let (nodes, stacks) = changed(&on(&[]), &on(&["backup"]));
    assert_eq!((nodes, stacks), (vec![], vec!["prod-identity".to_owned()]));
}

#[test]
fn names_of_roles_are_distinct_and_short_enough_wherever_the_cluster_lies() {
    let name = |cluster: &str, region: &str, role: &str| {
        let mut spec = cluster_with(true, &[role]);
        (spec.name, spec.region) = (cluster.to_owned(), region.to_owned());
        for addon in [
            &mut spec.addons.cluster_autoscaler,
            &mut spec.addons.cloud_controller_manager,
            &mut spec.addons.ebs_csi_driver,
        ] {
            addon.enabled = false;
        }
        let template = identity(&rendered_at(&spec, &with_issuer()).unwrap());
        of_type(&template, "AWS::IAM::Role")[0]["Properties"]["RoleName"].as_str().unwrap().to_owned()
    };
    let names = [
        name("a-b", "eu-west-1", "c"),
        name("a", "eu-west-1", "b-c"),
        name("a", "eu-central-1", "b-c"),
        name(&"c".repeat(56), "eu-west-1", &"r".repeat(63)),
        name(&"c".repeat(56), "eu-west-1", &format!("{}s", "r".repeat(62))),
    ];
    for (at, one) in names.iter().enumerate() {
        assert!(one.len() <= 64, "{one}");
        assert!(!names[..at].contains(one), "{one}");
    }
}

#[test]
fn an_installation_without_the_bucket_says_what_to_do() {
    let errors = rendered_at(&cluster_with(true, &["backup"]), &site()).unwrap_err();
    assert_eq!(errors, [RenderError::NoIssuerBucket]);
    // Also why it may have none: where the account blocks public policies, the bucket's cannot be made.
    for words in
        ["ServiceAccountIssuer=public", "S3 Block Public Access", "remove iamRolesForServiceAccounts"]
    {
        assert!(errors[0].to_string().contains(words), "{}", errors[0]);
    }
}

/// The lock of `cluster`, as it is when `stands` is deployed.
fn settled(before: &Lock, cluster: &Cluster, stands: Option<&Rendering>) -> Lock {
    let mut lock = before.clone();
    lock.pin_addon_credentials(cluster, stands);
    lock
}

#[test]
fn a_running_clusters_addons_keep_their_way_to_aws_when_service_accounts_get_roles() {
    let rendered_with = |cluster: &Cluster, lock: &Lock| {
        render(&Inputs::new(cluster, lock, &credentials(cluster), &with_issuer())).unwrap()
    };
    let statements = |rendering: &Rendering| {
        let stack = rendering.stacks.iter().find(|stack| stack.kind == StackKind::ControlPlane).unwrap();
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        template["Resources"]["ControllerRole"]["Properties"]["Policies"].clone()
    };
    let [off, step, on] = [cluster(), cluster_with(false, &["backup"]), cluster_with(true, &["backup"])];
    let lock = settled(&lock(), &off, None);
    let plain = rendered_with(&off, &lock);
    let between = rendered_with(&step, &settled(&lock, &step, Some(&plain)));
    let switched = rendered_with(&on, &settled(&lock, &on, Some(&between)));
    assert!(statements(&plain).to_string().contains("ec2:AttachVolume"));
    for rendering in [&between, &switched] {
        // No right goes, none comes, and the pods that have them are the same.
        assert_eq!(statements(rendering), statements(&plain));
        assert_eq!(rendering.addons, plain.addons);
    }
    // The roles are there for whoever takes the old way away later, and for the spec's own service accounts.
    assert_eq!(of_type(&identity(&switched), "AWS::IAM::Role").len(), 4);
    assert_eq!(tokens(&switched)["issuers"][0], format!("https://{ISSUER}"));
    let policies = statements(&switched);
    insta::assert_json_snapshot!("controllers-of-a-switched-cluster", policies);

    // The same spec once more, when it runs, and when it is taken back.
    let again = settled(&lock, &on, Some(&switched));
    assert_eq!(rendered_with(&on, &again).id(), switched.id());
    assert_eq!(rendered_with(&off, &settled(&again, &off, Some(&switched))).id(), plain.id());
}

#[test]
fn how_addons_come_to_aws_is_settled_once() {
    let (off, on) = (cluster(), cluster_with(true, &[]));
    let born = settled(&lock(), &on, None);
    assert_eq!(born, lock());
    let running = rendered_at(&on, &with_issuer()).unwrap();
    assert_eq!(settled(&born, &on, Some(&running)), lock());
    assert!(!serde_json::to_string(&born).unwrap().contains("addonsThroughControllers"));

    // The lock does not say it: the release that runs does, also one that accepts the issuer and no more.
    let between = rendered_at(&cluster_with(false, &[]), &with_issuer()).unwrap();
    for stands in [&rendered(&off), &between] {
        let pinned = settled(&lock(), &on, Some(stands));
        assert!(pinned.addons_through_controllers);
        assert!(settled(&pinned, &on, Some(&running)).addons_through_controllers);
    }
    let mut unread = running;
    unread.roles.get_mut(&Role::Controller).unwrap().config = "of another time".to_owned();
    assert!(settled(&lock(), &on, Some(&unread)).addons_through_controllers);
}
