//! What every machine and every role of nodes must and must not have.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use slipway_core::cluster::Oidc;
use slipway_core::release::Rendering;
use slipway_core::role::Role;

use super::of_type;
use crate::fixture::{cluster, credentials, lock, pinned, rendered, site};
use crate::lock::Lock;
use crate::{Inputs, render};

#[test]
fn no_group_has_an_update_policy_or_a_desired_capacity_and_all_take_the_newest_template() {
    for stack in &rendered(&cluster()).stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        for group in of_type(&template, "AWS::AutoScaling::AutoScalingGroup") {
            assert!(group["UpdatePolicy"].is_null() && group["Properties"]["DesiredCapacity"].is_null());
            let policy =
                &group["Properties"]["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"];
            let own = &group["Properties"]["LaunchTemplate"];
            let version = if own.is_null() { &policy["Version"] } else { &own["Version"] };
            assert_eq!(version["Fn::GetAtt"][1], "LatestVersionNumber");
        }
        for launch in of_type(&template, "AWS::EC2::LaunchTemplate") {
            let data = &launch["Properties"]["LaunchTemplateData"];
            assert_eq!(data["MetadataOptions"]["HttpTokens"], "required");
            assert_eq!(data["MetadataOptions"]["HttpPutResponseHopLimit"], 1);
            assert_eq!(data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"], true);
        }
        for volume in of_type(&template, "AWS::EC2::Volume") {
            assert_eq!(volume["Properties"]["Encrypted"], true);
            assert_eq!(volume["DeletionPolicy"], "Snapshot");
        }
    }
}

#[test]
fn nodes_may_read_the_bucket_of_programs_that_the_spec_names_and_no_other() {
    let mut with = cluster();
    with.software.base_url = Some("s3://programs/slipway".to_owned());
    for (name, policy) in policies(&rendered(&with)) {
        let text = policy.to_string();
        assert!(text.contains(r#""arn:aws:s3:::programs/slipway/*""#), "{name}: {text}");
    }
    let mut mirrored = cluster();
    mirrored.software.base_url = Some("https://mirror.example.com".to_owned());
    for (name, policy) in policies(&rendered(&mirrored)) {
        assert!(!policy.to_string().contains("ReadPrograms"), "{name}");
    }
}

/// Every node's role, with its role's name, over all stacks.
fn policies(rendering: &Rendering) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    for stack in &rendering.stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        for role in of_type(&template, "AWS::IAM::Role") {
            let tags = role["Properties"]["Tags"].as_array().unwrap();
            let name = tags.iter().find(|tag| tag["Key"] == "Name").unwrap()["Value"].as_str().unwrap();
            let document = role["Properties"]["Policies"][0]["PolicyDocument"].clone();
            found.push((name.trim_start_matches("prod-").to_owned(), document));
        }
    }
    found
}

#[test]
fn p9_a_node_reads_and_opens_its_own_bundles_alone() {
    let policies = policies(&rendered(&cluster()));
    assert_eq!(policies.len(), 7);
    for (role, document) in policies {
        let statements = document["Statement"].as_array().unwrap();
        let of = |action: &str| -> Vec<&Value> {
            let all = statements.iter();
            all.filter(|one| one["Action"].as_array().unwrap().iter().any(|listed| listed == action))
                .collect()
        };
        let bucket = "arn:aws:s3:::slipway-assets-example";
        let [read, addons @ ..] = &of("s3:GetObject")[..] else { panic!("{role}") };
        // The node manager reads what it is to apply, members what they restore from; nobody else has any use for either.
        let addons: Vec<&Value> = addons.iter().map(|one| &one["Resource"]).collect();
        let of_addons = json!([
            format!("{bucket}/clusters/prod/addons.json"),
            format!("{bucket}/clusters/prod/addons/*"),
        ]);
        let snapshots = json!([
            format!("{bucket}/clusters/prod/etcd-snapshots/*"),
            format!("{bucket}/scheduled-snapshots/prod/*"),
        ]);
        let schedule = json!(format!("{bucket}/clusters/prod/snapshots.json"));
        let more = match role.as_str() {
            "controller" => vec![&of_addons],
            member if member.starts_with("etcd-") => vec![&snapshots, &schedule],
            _ => Vec::new(),
        };
        assert_eq!(addons, more, "{role}");
        let own = format!("{bucket}/clusters/prod/bundles/{role}/*");
        assert_eq!(read["Resource"], json!([format!("{bucket}/agent/*"), own]));
        let mut contexts = vec![role.as_str()];
        contexts.extend(role.starts_with("etcd-").then_some("etcd-snapshot"));
        // Not those for volumes, which EC2 alone opens.
        let mut opens = of("kms:Decrypt");
        opens.retain(|one| one["Condition"]["StringEquals"]["kms:ViaService"].is_null());
        assert_eq!(opens.len(), contexts.len(), "{role}");
        for (open, role) in opens.into_iter().zip(contexts) {
            let context =
                json!({ "kms:EncryptionContext:cluster": "prod", "kms:EncryptionContext:role": role });
            assert_eq!(open["Condition"], json!({ "StringEquals": context }));
            assert_eq!(open["Resource"], site().kms_key_arn);
        }
        let actions = statements.iter().flat_map(|one| one["Action"].as_array().unwrap());
        assert!(actions.into_iter().all(|action| !action.as_str().unwrap().contains('*')), "{role}");
    }
}

#[test]
fn p7_nodes_still_open_what_the_cluster_sealed_before_it_moved_to_another_kms_key_and_seal_nothing_under_it()
{
    let own = site().kms_key_arn;
    let (first, second) =
        ("arn:aws:kms:eu-west-1:111122223333:key/first", "arn:aws:kms:eu-west-1:111122223333:key/second");
    let mut moved = cluster();
    moved.kms_key_arn = Some(second.to_owned());
    // The present one is among them after a cluster went back to it.
    let former_kms_keys = [first, second, &own].map(str::to_owned).into();
    let lock = Lock { former_kms_keys, ..pinned(&moved, lock()) };
    let rendering = render(&Inputs::new(&moved, &lock, &credentials(&moved), &site())).unwrap();
    for (role, document) in policies(&rendering) {
        let of = |action: &str, context: &str| -> BTreeSet<String> {
            let statements = document["Statement"].as_array().unwrap().iter();
            let asked = json!({
                "kms:EncryptionContext:cluster": "prod", "kms:EncryptionContext:role": context,
            });
            let of_role = statements
                .filter(|one| one["Action"].as_array().unwrap().contains(&json!(action)))
                .filter(|one| one["Condition"]["StringEquals"] == asked);
            let resources = of_role.flat_map(|one| {
                let all = one["Resource"].as_array().cloned();
                all.unwrap_or_else(|| vec![one["Resource"].clone()])
            });
            resources.map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let all = BTreeSet::from([first, second, &own].map(str::to_owned));
        assert_eq!(of("kms:Decrypt", &role), all, "{role}");
        let (opens, seals) = match role.starts_with("etcd-") {
            true => (all, BTreeSet::from([second.to_owned()])),
            false => (BTreeSet::new(), BTreeSet::new()),
        };
        assert_eq!(of("kms:Decrypt", "etcd-snapshot"), opens, "{role}");
        assert_eq!(of("kms:GenerateDataKey", "etcd-snapshot"), seals, "{role}");
    }
    // No machine differs.
    let before = rendered(&moved);
    assert_eq!(rendering.roles, before.roles);
}

#[test]
fn p9_nothing_rendered_looks_like_a_secret() {
    let rendering = rendered(&cluster());
    // The one field that is called so and is none: etcd's name for the cluster that a member founds.
    let text = rendering.to_json().replace("initialClusterToken", "");
    for word in ["PRIVATE KEY", "password", "secretKey", "bootstrapToken\"", "privateKey", "AKIA", "eyJ"] {
        assert!(!text.contains(word), "{word}");
    }
    for role in rendering.roles.values() {
        // The audit policy names two kinds of resource whose contents are not to be written down.
        let config = ["initialclustertoken", "serviceaccounts/token", "tokenreviews"]
            .iter()
            .fold(role.config.to_lowercase(), |config, name| config.replace(name, ""));
        assert!(!config.contains("token"), "{}", role.config);
    }
}

/// Every description of a security group and of a rule in a template, wherever the rule stands.
fn group_descriptions(template: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for group in of_type(template, "AWS::EC2::SecurityGroup") {
        let properties = &group["Properties"];
        found.push(properties["GroupDescription"].as_str().unwrap());
        for key in ["SecurityGroupIngress", "SecurityGroupEgress"] {
            let rules = properties[key].as_array().into_iter().flatten();
            found.extend(rules.map(|rule| rule["Description"].as_str().unwrap()));
        }
    }
    for kind in ["AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"] {
        let rules = of_type(template, kind).into_iter();
        found.extend(rules.map(|rule| rule["Properties"]["Description"].as_str().unwrap()));
    }
    found
}

#[test]
fn ec2_takes_every_description_of_a_security_group_and_of_a_rule() {
    for text in super::examples() {
        let mut seen = 0;
        for stack in &super::example(&text).stacks {
            let template: Value = serde_json::from_str(&stack.body).unwrap();
            for description in group_descriptions(&template) {
                // CreateSecurityGroup, IpRange: at most 255 characters of this set.
                let allowed = |c: char| c.is_ascii_alphanumeric() || " ._-:/()#,@[]+=&;{}!$*".contains(c);
                assert!(description.len() <= 255 && description.chars().all(allowed), "{description}");
                seen += 1;
            }
        }
        assert!(seen >= 16, "{seen}");
    }
}

#[test]
fn a_member_whose_volume_is_under_a_key_of_the_users_may_let_ec2_use_that_key() {
    let grants = |cluster: &slipway_core::cluster::Cluster| -> Vec<Value> {
        let of_etcd = policies(&rendered(cluster)).into_iter().filter(|(role, _)| role.starts_with("etcd"));
        let all = of_etcd.flat_map(|(_, document)| document["Statement"].as_array().unwrap().clone());
        all.filter(|statement| statement["Action"] == json!(["kms:CreateGrant"])).collect()
    };
    let mut cluster = cluster();
    let of_account = json!({ "Fn::Sub": "arn:aws:kms:eu-west-1:${AWS::AccountId}:key/*" });
    assert!(grants(&cluster).iter().all(|statement| statement["Resource"] == of_account));
    let key = "arn:aws:kms:eu-west-1:111122223333:key/mine";
    for member in &mut cluster.etcd.members {
        member.data_volume.kms_key_arn = Some(key.to_owned());
    }
    let found = grants(&cluster);
    assert_eq!(found.len(), cluster.etcd.members.len());
    for statement in found {
        assert_eq!(statement["Resource"], key);
        assert_eq!(
            statement["Condition"],
            json!({
                "Bool": { "kms:GrantIsForAWSResource": "true" },
                "StringEquals": { "kms:ViaService": "ec2.eu-west-1.amazonaws.com" },
            })
        );
    }
}

/// kube-apiserver 1.36.3 takes these two expressions, and says of a wrong one that its compilation failed.
#[test]
fn nobody_signs_in_by_a_provider_with_a_name_of_kubernetes_own() {
    let mut with = cluster();
    with.kubernetes.oidc = Some(Oidc {
        issuer_url: "https://accounts.example.com".to_owned(),
        client_id: "kubernetes".to_owned(),
        username_claim: "email".to_owned(),
        username_prefix: String::new(),
        groups: Some(("groups".to_owned(), String::new())),
        required_claims: BTreeMap::new(),
        certificate_authority: None,
    });
    let release = rendered(&with);
    let config: Value = serde_json::from_str(&release.roles[&Role::Controller].config).unwrap();
    let rules = &config["controlPlane"]["authentication"]["jwt"][0]["userValidationRules"];
    let expressions: Vec<&Value> = rules.as_array().unwrap().iter().map(|rule| &rule["expression"]).collect();
    assert_eq!(
        expressions,
        ["!user.username.startsWith('system:')", "user.groups.all(group, !group.startsWith('system:'))"]
    );
}
