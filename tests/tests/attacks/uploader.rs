//! Somebody who may upload specs and patches of one cluster, and wants more.

mod parameters;
mod renewals;
mod scans;

use serde_json::{Value, json};
use slipway_core::allowed::AllowedZone;
use slipway_core::cluster::Approval;
use slipway_core::keys;
use slipway_flows::rendering::RenderOutcome;
use slipway_flows::store;
use slipway_sim::mortal::Life;
use slipway_tests::client::ACCOUNT;
use slipway_tests::iam;
use slipway_tests::workshop::{Workshop, allowed, example, examples};

use crate::{installation, is_allowed, refused, request, role, says, workshop};

/// The cluster of `examples/minimal.yaml` with `more` at its end.
fn minimal(more: &str) -> String {
    format!("{}\n{more}\n", example("minimal"))
}

/// `text` with `old` replaced, which it must contain.
fn with(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "the example no longer has {old:?}");
    text.replace(old, new)
}

#[tokio::test]
async fn p13_every_example_is_taken_by_an_installation_that_lists_what_it_uses() {
    for example in examples() {
        let mut workshop = Workshop::for_example(&example);
        workshop.allowed = Some(allowed());
        let outcome = workshop.outcome(&example.text).await;
        assert!(matches!(outcome, RenderOutcome::Planned(_)), "{}: {outcome:?}", example.name);
    }
}

#[tokio::test]
async fn p13_a_machine_cannot_wear_the_role_of_another_clusters_controllers() {
    let text = example("minimal");
    let profile = |rest: &str| format!("arn:aws:iam::{ACCOUNT}:instance-profile/{rest}");
    let arn = profile("slipway/prod-control-plane-ControllerProfile");
    let workshop = workshop(&text);
    // Also where AWS might find a profile by its name alone, which is unique in an account.
    for (arn, code) in [
        (arn.clone(), "foreign-profile"),
        (profile("/slipway/prod-control-plane-ControllerProfile-1A2B3C4D5E6F"), "arn-syntax"),
        (profile("prod-control-plane-ControllerProfile-1A2B3C4D5E6F"), "foreign-profile"),
        (profile("mine/PROD-etcd-etcdprofile0-1a2b3c4d5e6f"), "foreign-profile"),
        (profile("prod-pool-general-WorkerProfile-1A2B3C4D5E6F"), "foreign-profile"),
    ] {
        for place in ["controller", "etcd"] {
            let spec = minimal(&format!("{place}: {{iam: {{instanceProfile: {{arn: '{arn}'}}}}}}"));
            says(&refused(&workshop, &spec).await, code, &[&format!("{place}.iam.instanceProfile.arn")]);
        }
    }
    let of_pool = with(
        &text,
        "- name: general",
        &format!("- name: general\n      iam: {{instanceProfile: {{arn: '{arn}'}}}}"),
    );
    says(
        &refused(&workshop, &of_pool).await,
        "foreign-profile",
        &["worker.nodePools[0].iam.instanceProfile.arn", "another role or cluster"],
    );
    // Nor by a patch.
    let patch = format!(
        "target: {{stack: pool-general}}\nmerge:\n  Resources: {{LaunchTemplate: {{Properties: {{LaunchTemplateData: {{IamInstanceProfile: {{Arn: '{arn}'}}}}}}}}}}\n"
    );
    workshop.specs.upload(&format!("{}wear.yaml", keys::patches(&workshop.name)), patch.into_bytes());
    let findings = refused(&workshop, &text).await;
    let told = format!("{findings:?}");
    assert!(told.contains("IamInstanceProfile"), "{told}");
}

#[tokio::test]
async fn p13_nodes_read_no_bucket_that_the_installation_does_not_list() {
    let workshop = workshop(&example("minimal"));
    let from = |place: &str| minimal(&format!("software: {{baseURL: 's3://{place}'}}"));
    for place in ["payroll", "payroll/2026", "programs-of-others"] {
        says(
            &refused(&workshop, &from(place)).await,
            "program-bucket",
            &[
                "software.baseURL",
                "`ProgramBuckets`",
                "sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml --stack-name slipway --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides ProgramBuckets=programs,",
            ],
        );
    }
    let asset_bucket = workshop.assets.name().to_owned();
    let mut careless = allowed();
    careless.program_buckets.push(asset_bucket.clone());
    let mut workshop = workshop;
    workshop.allowed = Some(careless);
    let findings = refused(&workshop, &from(&format!("{asset_bucket}/clusters"))).await;
    says(&findings, "program-bucket", &["is the asset bucket"]);
    let outcome = workshop.outcome(from("programs/slipway")).await;
    assert!(matches!(outcome, RenderOutcome::Planned(_)), "{outcome:?}");
}

#[tokio::test]
async fn p13_records_are_made_only_in_listed_zones_and_below_their_domains() {
    let production = example("production");
    let workshop_of_production = workshop(&production);
    let zone = "Z0123456789ABCDEFGHIJ";
    let elsewhere = with(&production, zone, "ZPAYROLL0000000000000");
    says(
        &refused(&workshop_of_production, &elsewhere).await,
        "hosted-zone",
        &[
            "ZPAYROLL0000000000000",
            "`HostedZoneIds`",
            "sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml --stack-name slipway --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides HostedZoneIds=",
            "HostedZoneDomains=",
        ],
    );
    let outside = with(&production, "dnsName: api.production.example.com", "dnsName: mail.example.net");
    says(
        &refused(&workshop_of_production, &outside).await,
        "hosted-zone",
        &["mail.example.net", "`example.com`"],
    );
    // A name that only ends like the domain.
    let alike = with(&production, "dnsName: api.production.example.com", "dnsName: api.notexample.com");
    says(&refused(&workshop_of_production, &alike).await, "hosted-zone", &["api.notexample.com"]);
    // Which zone another stack exports is not known: the name must fit one of the listed zones.
    let imported = example("imported-ids");
    let workshop_of_imported = workshop(&imported);
    let outside = with(&imported, "dnsName: api.imported-ids.example.com", "dnsName: mail.example.net");
    says(&refused(&workshop_of_imported, &outside).await, "hosted-zone", &["mail.example.net"]);
    // kube-aws' older keys.
    let older = example("from-kube-aws");
    let outside = with(&older, "my-cluster-endpoint.example.com", "mail.example.net");
    says(
        &refused(&workshop(&older), &outside).await,
        "hosted-zone",
        &["mail.example.net", "externalDNSName"],
    );
}

/// A record with the name of another cluster's member keeps that member from launching, or is overwritten by it.
#[tokio::test]
async fn p13_an_api_endpoint_takes_no_name_of_another_clusters_member() {
    let production = example("production");
    let workshop = workshop(&production);
    let named =
        |name: &str| with(&production, "dnsName: api.production.example.com", &format!("dnsName: {name}"));
    for others in ["etcd-3.victim.example.com", "a.b.victim.example.com", "production.victim.example.com"] {
        let findings = refused(&workshop, &named(others)).await;
        says(&findings, "hosted-zone", &[others, "`victim`", "`production.example.com`"]);
    }
    for own in [
        "a.production.example.com",
        "a.b.Production.example.com",
        "production.example.com",
        "api.example.com",
    ] {
        let outcome = workshop.outcome(named(own)).await;
        assert!(matches!(outcome, RenderOutcome::Planned(_)), "{own}: {outcome:?}");
    }
    // The label below the deepest listed domain counts, so no cluster has the parts of all by the name of a domain.
    let mut deeper = workshop;
    let mut more = allowed();
    more.hosted_zones.push(AllowedZone {
        id: more.hosted_zones[0].id.clone(),
        domain: "production.example.com".to_owned(),
    });
    deeper.allowed = Some(more);
    let findings = refused(&deeper, &named("etcd-3.victim.production.example.com")).await;
    says(&findings, "hosted-zone", &["`victim`", "`production.production.example.com`"]);
}

/// The names of roles are unique in an account, whatever their path: with another's name, the other stack fails, or who trusts the name lets the
/// machine in.
#[tokio::test]
async fn p13_a_role_takes_no_name_of_another_clusters_role() {
    let text = example("own-iam");
    let workshop = workshop(&text);
    for (name, place) in
        [("own-iam-controllers", "controller.iam.role.name"), ("own-iam-etcd", "etcd.iam.role.name")]
    {
        for others in ["victim-addon-ebs-csi-controller-12345678", "administrator", "own-iam", "own-iams-x"] {
            let findings =
                refused(&workshop, &with(&text, &format!("name: {name}"), &format!("name: {others}"))).await;
            says(&findings, "role-name", &[others, place, "`own-iam-`"]);
        }
    }
    let pool = "{name: administrator, strictName: true}";
    let of_pool = with(
        &example("minimal"),
        "- name: general",
        &format!("- name: general\n      iam: {{role: {pool}}}"),
    );
    let minimal_workshop = crate::workshop(&of_pool);
    says(
        &refused(&minimal_workshop, &of_pool).await,
        "role-name",
        &["worker.nodePools[0].iam.role.name", "`minimal-`"],
    );
    // Without `strictName` the stack's name, and so the cluster's, goes before it.
    let outcome = minimal_workshop.outcome(with(&of_pool, ", strictName: true", "")).await;
    assert!(matches!(outcome, RenderOutcome::Planned(_)), "{outcome:?}");
}

/// Members set their records by UPSERT, so that a name of another cluster would be taken over, and with it its clients.
#[tokio::test]
async fn p13_members_write_into_their_own_clusters_part_of_a_zone() {
    let text = example("etcd-own-names");
    let workshop = workshop(&text);
    for other in ["production.corp.internal", "corp.internal"] {
        let spec = with(&text, "own-names.corp.internal", other);
        let findings = refused(&workshop, &spec).await;
        says(&findings, "hosted-zone", &["`own-names.corp.internal`"]);
    }
    let elsewhere = with(&text, "Z9876543210ZYXWVUTSRQ", "ZPAYROLL0000000000000");
    says(&refused(&workshop, &elsewhere).await, "hosted-zone", &["ZPAYROLL0000000000000", "`HostedZoneIds`"]);
    // A zone that Slipway makes hides the names below it from its whole VPC: it is private, and the cluster's own.
    let minimal_workshop = crate::workshop(&example("minimal"));
    let own = minimal("etcd: {internalDomainName: minimal.example.net}");
    says(
        &refused(&minimal_workshop, &own).await,
        "hosted-zone",
        &["`minimal.example.net`", "PrivateDomains=internal,example.net"],
    );
    for others in
        ["eu-west-1.compute.internal", "minimal.ec2.internal", "payroll.corp.internal", "notminimal.internal"]
    {
        let spec = minimal(&format!("etcd: {{internalDomainName: {others}}}"));
        says(&refused(&minimal_workshop, &spec).await, "hosted-zone", &[others, "`minimal.etcd.internal`"]);
    }
    // A cluster whose name is a label of another one's names: in the default domain of `production`, or above it.
    for (name, others) in [
        ("etcd", "etcd-0.production.etcd.internal"),
        ("etcd", "production.etcd.internal"),
        ("etcd", "etcd.internal"),
        ("etcd-0", "etcd-0.production.etcd.internal"),
        ("production", "production.minimal.internal"),
    ] {
        let spec = with(
            &minimal(&format!("etcd: {{internalDomainName: {others}}}")),
            "clusterName: minimal",
            &format!("clusterName: {name}"),
        );
        says(&refused(&crate::workshop(&spec), &spec).await, "hosted-zone", &[others, "own part"]);
    }
    let deeper = minimal("etcd: {internalDomainName: store.minimal.corp.internal}");
    says(
        &refused(&minimal_workshop, &deeper).await,
        "hosted-zone",
        &["PrivateDomains=internal,corp.internal"],
    );
    for own in ["minimal.etcd.internal", "minimal.internal", "store.minimal.internal"] {
        let spec = minimal(&format!("etcd: {{internalDomainName: {own}}}"));
        let outcome = crate::workshop(&example("minimal")).outcome(&spec).await;
        assert!(matches!(outcome, RenderOutcome::Planned(_)), "{own}: {outcome:?}");
    }
    let of_etcd = with(&example("minimal"), "clusterName: minimal", "clusterName: etcd");
    let outcome = crate::workshop(&of_etcd).outcome(&of_etcd).await;
    assert!(matches!(outcome, RenderOutcome::Planned(_)), "the default is `etcd.etcd.internal`: {outcome:?}");
}

#[tokio::test]
async fn p13_policies_that_are_not_listed_are_refused_before_any_stack() {
    let text = example("own-iam");
    let administrator = with(&text, "policy/AmazonSSMManagedInstanceCore", "policy/AdministratorAccess");
    says(
        &refused(&workshop(&text), &administrator).await,
        "managed-policy",
        &[
            "AdministratorAccess",
            "sam deploy --template-file dist/${ARCHITECTURE:-arm64}/template.yaml --stack-name slipway --resolve-s3 --capabilities CAPABILITY_IAM --parameter-overrides ManagedPolicyArns=",
        ],
    );
}

/// An installation that was just updated lists nothing yet. What runs is rendered again all the same, as a renewal needs it; an upload is not.
#[tokio::test]
async fn p7_what_runs_is_renewed_although_the_installation_does_not_list_it() {
    let text = example("production");
    let mut workshop = workshop(&text);
    let plan = workshop.render(&text).await.plan;
    workshop.uses_newest_spec(&plan);
    workshop.allowed.as_mut().unwrap().hosted_zones.clear();
    let again = workshop.rendered(None, &Life::unending()).await.unwrap();
    assert!(matches!(again, RenderOutcome::Unchanged), "{again:?}");
    let upload = format!("{text}\n# The same again.\n");
    says(&refused(&workshop, &upload).await, "hosted-zone", &["`HostedZoneIds`"]);
}

#[tokio::test]
async fn an_upload_does_not_waive_its_own_review() {
    let automatic = example("minimal");
    let manual = minimal("rollout: {approval: manual}");
    let bigger = |text: &str| {
        with(text, "name: general", "name: general\n      nodeLabels: {example.com/evil: 'true'}")
    };
    let mut workshop = workshop(&manual);
    let first = workshop.render(&manual).await.plan;
    assert!(first.waits_for_approval(workshop.now));
    workshop.uses_newest_spec(&first);
    // The next upload brings a change, and takes the approval out.
    drop(workshop.take_event_types());
    let second = workshop.render(bigger(&automatic)).await.plan;
    assert!(second.waits_for_approval(workshop.now), "the spec that is rolled out says manual");
    assert!(!workshop.take_event_types().contains(&"Rollout Requested".to_owned()));
    // Twice, too.
    let again = workshop.render(with(&bigger(&automatic), "evil: 'true'", "evil: 'more'")).await.plan;
    assert!(again.waits_for_approval(workshop.now));
    // Once a person has approved it, the spec decides.
    assert_eq!((again.policy.approval, again.approval_of_spec()), (Approval::Manual, Approval::Auto));
    workshop.uses_newest_spec(&again);
    let third = workshop.render(with(&bigger(&automatic), "evil: 'true'", "evil: 'less'")).await.plan;
    assert!(!third.waits_for_approval(workshop.now));
    // Unless the installation says otherwise.
    workshop.uses_newest_spec(&third);
    workshop.allowed.as_mut().unwrap().approval = Approval::Manual;
    let fourth = workshop.render(with(&bigger(&automatic), "evil: 'true'", "evil: 'never'")).await.plan;
    assert!(fourth.waits_for_approval(workshop.now), "the floor of the installation");
}

/// The uploader decides with `emergencyDays` how soon a renewal waits for no person. Its rollout counted as the approval of the spec that took
/// the review out.
#[tokio::test]
async fn an_upload_does_not_waive_its_own_review_by_a_renewal_that_nobody_approves() {
    let (automatic, manual) = (example("minimal"), minimal("rollout: {approval: manual}"));
    let bigger =
        with(&automatic, "name: general", "name: general\n      nodeLabels: {example.com/evil: 'true'}");
    for (approved, waits) in [(false, true), (true, false)] {
        let workshop = workshop(&manual);
        let first = workshop.render(&manual).await.plan;
        workshop.uses_newest_spec(&first);
        // The review is taken out, by itself, and a plan of that spec is rolled out.
        assert_eq!(workshop.outcome(&automatic).await, RenderOutcome::Unchanged);
        let renewal = first.with_spec_approval(Approval::Auto);
        workshop.assets.upload(&keys::plan(&workshop.name, &renewal.id), store::json(&renewal));
        workshop.uses_spec_of(&renewal, approved);
        let next = workshop.render(&bigger).await.plan;
        assert_eq!(next.waits_for_approval(workshop.now), waits, "approved: {approved}");
    }
}

/// Both would have the same part of a hosted zone.
#[tokio::test]
async fn p13_a_cluster_cannot_take_the_name_of_another_in_other_letters() {
    let spec = example("minimal");
    let workshop = workshop(&spec);
    let other = "MINIMAL";
    workshop.specs.upload(&keys::spec(other), spec.replace("clusterName: minimal", "clusterName: MINIMAL"));
    // A spec that was never accepted keeps nobody from his name.
    let first = workshop.fork();
    first.render(&spec).await;
    workshop.assets.upload(&keys::desired(other), "{}");
    let RenderOutcome::Rejected(findings) = workshop.outcome(&spec).await else { panic!("it was accepted") };
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert_eq!(findings[0].code, "cluster-name-taken");
    assert!(findings[0].message.contains(other), "{findings:?}");
    // Who had it first goes on.
    first.assets.upload(&keys::desired(other), "{}");
    first.render(minimal("rollout: {approval: manual}\nstackTags: {a: b}")).await;
}

/// It changes nothing that is rolled out, so no rollout brings it: it holds from the upload on.
#[tokio::test]
async fn an_upload_that_only_turns_the_review_on_holds_for_the_next_one() {
    let automatic = example("minimal");
    let label = |value: &str| {
        let name = format!("name: general\n      nodeLabels: {{example.com/evil: '{value}'}}");
        with(&automatic, "name: general", &name)
    };
    let workshop = workshop(&automatic);
    let first = workshop.render(&automatic).await.plan;
    workshop.uses_newest_spec(&first);
    let manual = minimal("rollout: {approval: manual}");
    assert_eq!(workshop.outcome(&manual).await, RenderOutcome::Unchanged);
    // Whoever takes it out again, with a change or in two steps, waits for a person.
    assert_eq!(workshop.outcome(&automatic).await, RenderOutcome::Unchanged);
    drop(workshop.take_event_types());
    for value in ["true", "more"] {
        let plan = workshop.render(label(value)).await.plan;
        assert!(plan.waits_for_approval(workshop.now), "an accepted spec says manual");
        assert!(!workshop.take_event_types().contains(&"Rollout Requested".to_owned()));
    }
    // An approved plan takes it off.
    let approved = workshop.render(label("less")).await.plan;
    workshop.uses_newest_spec(&approved);
    let next = workshop.render(label("fine")).await.plan;
    assert!(!next.waits_for_approval(workshop.now));
    workshop.uses_newest_spec(&next);
    // On once more, by itself: the approval that was given before does not count for it.
    workshop.uses_newest_spec(&approved);
    assert_eq!(
        workshop
            .outcome(with(&label("less"), "clusterName", "rollout: {approval: manual}\nclusterName"))
            .await,
        RenderOutcome::Unchanged
    );
    assert!(workshop.render(label("evil")).await.plan.waits_for_approval(workshop.now));
    // What is said twice is written once (P1).
    let before = workshop.desired().unwrap();
    workshop.render(label("evil")).await;
    let after = workshop.desired().unwrap();
    assert_eq!((after.plan, after.manual_since), (before.plan, before.manual_since));
}

/// Even with a template that no render function made, CloudFormation's role writes no other record and makes no unbounded role.
#[tokio::test(flavor = "multi_thread")]
async fn p13_cloudformation_makes_no_record_elsewhere_and_no_role_without_a_boundary() {
    let world = installation().await;
    let statements = role(&world, "CloudFormationRole");
    let may = |action: &str, resource: &str, context: &[(&str, &str)]| {
        is_allowed(&iam::decide(statements, &request(action, resource, context)))
    };
    let names = "route53:ChangeResourceRecordSetsNormalizedRecordNames";
    let kinds = "route53:ChangeResourceRecordSetsRecordTypes";
    let change = "route53:ChangeResourceRecordSets";
    let zone = |id: &str| format!("arn:aws:route53:::hostedzone/{id}");
    let listed = zone("Z0123456789ABCDEFGHIJ");
    assert!(may(change, &listed, &[(names, "api.production.example.com"), (kinds, "A")]));
    assert!(!may(change, &zone("ZPAYROLL"), &[(names, "api.production.example.com"), (kinds, "A")]));
    assert!(!may(change, &listed, &[(names, "mail.example.net"), (kinds, "A")]));
    assert!(!may(change, &listed, &[(names, "api.notexample.com"), (kinds, "A")]));
    let both = [(names, "api.example.com"), (names, "mail.example.net"), (kinds, "A")];
    assert!(!may(change, &listed, &both), "one of two");
    assert!(!may(change, &listed, &[(names, "api.example.com"), (kinds, "MX")]));

    let own = world.reference("ClusterBoundary").unwrap();
    let wide = world.reference("ManagedPoliciesBoundary").unwrap();
    let made = format!("arn:aws:iam::{ACCOUNT}:role/slipway/minimal-general");
    let boundary = "iam:PermissionsBoundary";
    for action in ["iam:CreateRole", "iam:PutRolePermissionsBoundary"] {
        for allowed in [own, wide] {
            assert!(may(action, &made, &[(boundary, allowed)]), "{action}");
        }
        assert!(!may(action, &made, &[]), "{action} without a boundary");
        assert!(
            !may(action, &made, &[(boundary, "arn:aws:iam::aws:policy/AdministratorAccess")]),
            "{action}"
        );
        let elsewhere = format!("arn:aws:iam::{ACCOUNT}:role/payroll");
        assert!(!may(action, &elsewhere, &[(boundary, own)]), "{action} outside of the path");
    }
    assert!(!may("iam:DeleteRolePermissionsBoundary", &made, &[(boundary, own)]));
    // The boundary itself cannot be changed either.
    for action in ["iam:CreatePolicyVersion", "iam:SetDefaultPolicyVersion", "iam:DeletePolicy"] {
        assert!(!may(action, own, &[]), "{action}");
    }
    let pass = [("iam:PassedToService", "ec2.amazonaws.com")];
    assert!(!may("iam:PassRole", &format!("arn:aws:iam::{ACCOUNT}:role/administrator"), &pass));
}

/// The same for every example: nothing that it asks for is refused.
#[tokio::test(flavor = "multi_thread")]
async fn cloudformation_may_make_the_records_and_roles_of_every_example() {
    let world = installation().await;
    let statements = role(&world, "CloudFormationRole");
    let (mut records, mut roles) = (0, 0);
    for example in examples() {
        let mut workshop = Workshop::for_example(&example);
        let mut here = allowed();
        here.boundaries.own = world.reference("ClusterBoundary").unwrap().to_owned();
        here.boundaries.with_managed_policies =
            Some(world.reference("ManagedPoliciesBoundary").unwrap().to_owned());
        workshop.allowed = Some(here);
        for stack in workshop.render(&example.text).await.rendering.stacks {
            let template: Value = serde_json::from_str(&stack.body).unwrap();
            for (id, resource) in template["Resources"].as_object().unwrap() {
                let properties = &resource["Properties"];
                let asked = match resource["Type"].as_str().unwrap() {
                    "AWS::Route53::RecordSet" => {
                        records += 1;
                        let zone = properties["HostedZoneId"].as_str().unwrap_or("Z0123456789ABCDEFGHIJ");
                        let name = properties["Name"].as_str().unwrap().trim_end_matches('.').to_lowercase();
                        request(
                            "route53:ChangeResourceRecordSets",
                            &format!("arn:aws:route53:::hostedzone/{zone}"),
                            &[
                                ("route53:ChangeResourceRecordSetsNormalizedRecordNames", &name),
                                (
                                    "route53:ChangeResourceRecordSetsRecordTypes",
                                    properties["Type"].as_str().unwrap(),
                                ),
                            ],
                        )
                    }
                    "AWS::IAM::Role" => {
                        roles += 1;
                        assert_ne!(properties["PermissionsBoundary"], json!(null), "{}: {id}", example.name);
                        request(
                            "iam:CreateRole",
                            &format!("arn:aws:iam::{ACCOUNT}:role/slipway/{id}"),
                            &[(
                                "iam:PermissionsBoundary",
                                properties["PermissionsBoundary"].as_str().unwrap(),
                            )],
                        )
                    }
                    _ => continue,
                };
                let decision = iam::decide(statements, &asked);
                assert!(is_allowed(&decision), "{}: {id}: {asked:?}", example.name);
            }
        }
    }
    assert!(records > 5 && roles > 100, "{records} records, {roles} roles");
}

/// What a spec is refused, a patch is refused, too.
#[tokio::test]
async fn a_patch_takes_no_guard_off_that_a_spec_cannot_take_off() {
    let text = example("minimal");
    for (patch, place) in [
        (
            "target: {node: pool-general}\nmerge: {kubelet: {configuration: {authentication: {anonymous: {enabled: true}}, authorization: {mode: AlwaysAllow}}}}\n",
            "/kubelet/configuration",
        ),
        (
            "target: {node: controller}\nmerge: {controlPlane: {admission: {disable: [NodeRestriction]}}}\n",
            "/controlPlane/admission",
        ),
        (
            "target: {node: controller}\nmerge: {controlPlane: {auditLog: {path: /dev/null}}}\n",
            "/controlPlane/auditLog",
        ),
        ("target: {node: pool-general}\nmerge: {apiServer: 'https://evil.example.net'}\n", "/apiServer"),
        (
            "target: {stack: pool-general}\nmerge:\n  Resources:\n    Leak:\n      Type: AWS::EC2::SecurityGroup\n      Properties:\n        \
             GroupDescription: {'Fn::Join': ['', ['{{resolve:secrets', 'manager:payroll}}']]}\n",
            "a reference to a secret that is put together from pieces",
        ),
        (
            "target: {stack: pool-general}\nmerge:\n  Resources:\n    Leak:\n      Type: AWS::EC2::SecurityGroup\n      Properties:\n        \
             GroupDescription: {'Fn::Join': ['', {'Fn::Split': ['|', '{{resolve:|secretsmanager:payroll}}']}]}\n",
            "a reference to a secret that is put together from pieces",
        ),
        (
            "target: {stack: pool-general}\nmerge:\n  Resources:\n    Leak:\n      Type: AWS::EC2::SecurityGroup\n      Properties:\n        \
             GroupDescription: {'Fn::Join': ['', ['{{resolve:', {'Fn::Select': [1, ['decoy', 'secretsmanager']]}, ':payroll}}']]}\n",
            "a reference to a secret that is put together from pieces",
        ),
    ] {
        let workshop = workshop(&text);
        workshop
            .specs
            .upload(&format!("{}evil.yaml", keys::patches(&workshop.name)), patch.as_bytes().to_vec());
        let told = format!("{:?}", refused(&workshop, &text).await);
        assert!(told.contains(place), "{place}: {told}");
    }
}

/// Permissions of controllers and of the functions depend on these tags.
#[tokio::test]
async fn p13_a_stack_takes_no_tag_of_another_cluster() {
    let workshop = workshop(&example("minimal"));
    for key in [
        "kubernetes.io/cluster/prod",
        "slipway:cluster",
        "k8s.io/cluster-autoscaler/prod",
        "ebs.csi.aws.com/cluster",
        // IAM compares keys of tags without their case.
        "Kubernetes.io/cluster/prod",
        "SLIPWAY:cluster",
    ] {
        let findings = refused(&workshop, &minimal(&format!("stackTags: {{'{key}': owned}}"))).await;
        says(&findings, "tags", &[key, "which cluster a resource belongs to"]);
    }
}

/// A parameter's value becomes part of plans, which more people read than may read the parameter.
#[tokio::test]
async fn a_parameter_that_holds_no_image_is_neither_stored_nor_shown() {
    let spec = minimal("image: {ssmParameters: {x86_64: /payroll/password, arm64: /payroll/password}}");
    for value in ["hunter2hunter2", "ami-hunter2hunter2", "ami-0123456789abcdef0,ami-hunter2", "hunter2\n"] {
        let workshop = workshop(&spec);
        workshop.parameters.set("/payroll/password", value);
        let error = workshop.try_upload(&spec, &Life::unending()).await.unwrap_err();
        assert!(error.to_string().contains("/payroll/password"), "{error}");
        assert_eq!(error.kind(), "Slipway.Refused");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        for key in workshop.assets.keys() {
            let bytes = workshop.assets.peek(&key).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains("hunter2"), "{key}");
        }
    }
}
