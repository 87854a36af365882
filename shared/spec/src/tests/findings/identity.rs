//! `iamRolesForServiceAccounts`.

use super::super::super::parse;
use super::{BASE, with};

const BACKUP: &str = "
  - name: backup
    namespace: ops
    serviceAccount: backup
    managedPolicies: [{arn: 'arn:aws:iam::111122223333:policy/backup'}]
";

#[test]
fn a_group_of_its_own_is_on_and_one_that_is_not_there_is_not() {
    let of = |more: &str| parse(format!("{BASE}{more}").as_bytes(), None).unwrap().cluster.iam_roles;
    assert_eq!(of(""), None);
    assert!(of("iamRolesForServiceAccounts: {}").unwrap().enabled);
    assert!(!of("iamRolesForServiceAccounts: {enabled: false}").unwrap().enabled);
    let given = of(&format!("iamRolesForServiceAccounts:\n  roles:{BACKUP}")).unwrap();
    let [role] = &given.roles[..] else { panic!("{given:?}") };
    assert_eq!((role.name.as_str(), role.namespace.as_str()), ("backup", "ops"));
    assert_eq!(role.managed_policy_arns, ["arn:aws:iam::111122223333:policy/backup"]);
}

#[test]
fn roles_are_for_one_service_account_each() {
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{BACKUP}{}", BACKUP.replace("backup", "back-up").replacen("name: back-up", "name: backup", 1))), @r##"
    22:11 error duplicate-name at `iamRolesForServiceAccounts.roles[1].name`: the role `backup` is named twice
        give each a name of its own
    "##);
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{BACKUP}{}", BACKUP.replacen("name: backup", "name: other", 1))), @r##"
    24:21 error duplicate-name at `iamRolesForServiceAccounts.roles[1].serviceAccount`: the service account `ops/backup` already has the role `backup`
        name the policies of both in one role: its pods take one
    "##);
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{}", BACKUP.replacen("serviceAccount: backup", "serviceAccount: '*'", 1).replacen("ops", "kube-*", 1))), @r##"
    18:16 error name-syntax at `iamRolesForServiceAccounts.roles[0].namespace`: `kube-*` cannot be a namespace
        write lower-case letters, digits and hyphens, 63 at most; a role is for one namespace, without `*`
    19:21 error name-syntax at `iamRolesForServiceAccounts.roles[0].serviceAccount`: `*` cannot be a service account
        write lower-case letters, digits, hyphens and dots; a role is for one service account, without `*`
    "##);
}

#[test]
fn names_are_kubernetes_own_and_no_add_ons() {
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{}", BACKUP.replacen("name: backup", "name: addon-backup", 1))), @r##"
    17:11 error name-reserved at `iamRolesForServiceAccounts.roles[0].name`: the role `addon-backup` could be an add-on's
        choose a name that does not begin with `addon-`: add-ons' roles do
    "##);
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{}", BACKUP.replacen("name: backup", "name: Back_up", 1).replacen("ops", "Ops", 1))), @r##"
    17:11 error name-syntax at `iamRolesForServiceAccounts.roles[0].name`: `Back_up` cannot be a role's name
        write lower-case letters, digits and hyphens, 63 at most
    18:16 error name-syntax at `iamRolesForServiceAccounts.roles[0].namespace`: `Ops` cannot be a namespace
        write lower-case letters, digits and hyphens, 63 at most; a role is for one namespace, without `*`
    "##);
}

#[test]
fn a_role_needs_a_policy_that_exists() {
    says!(with("iamRolesForServiceAccounts:\n  roles:\n  - name: backup\n"), @r##"
    17:5 error missing-key at `iamRolesForServiceAccounts.roles[0].managedPolicies`: `iamRolesForServiceAccounts.roles[0]` lacks `managedPolicies`
        add `managedPolicies`: What the role may do. The policies must be among the installation's `ManagedPolicyArns`.
    17:5 error missing-key at `iamRolesForServiceAccounts.roles[0].namespace`: `iamRolesForServiceAccounts.roles[0]` lacks `namespace`
        add `namespace`: The namespace of the service account.
    17:5 error missing-key at `iamRolesForServiceAccounts.roles[0].serviceAccount`: `iamRolesForServiceAccounts.roles[0]` lacks `serviceAccount`
        add `serviceAccount`: The service account.
    "##);
    says!(with(&format!("iamRolesForServiceAccounts:\n  roles:{}", BACKUP.replacen("policy/backup", "role/backup", 1))), @r##"
    20:29 error arn-syntax at `iamRolesForServiceAccounts.roles[0].managedPolicies[0].arn`: `arn:aws:iam::111122223333:role/backup` is no ARN of a policy
        write one such as `arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore`
    "##);
    says!(with("iamRolesForServiceAccounts:\n  roles:\n  - {name: a, namespace: b, serviceAccount: c, managedPolicies: []}\n"), @r##"
    17:48 error role-empty at `iamRolesForServiceAccounts.roles[0].managedPolicies`: a role without a policy may do nothing
        name a managed policy that is among the installation's `ManagedPolicyArns`
    "##);
}

#[test]
fn a_step_between_makes_no_roles_and_says_so() {
    says!(with(&format!("iamRolesForServiceAccounts:\n  enabled: false\n  roles:{BACKUP}")), @r##"
    17:3 warning roles-off at `iamRolesForServiceAccounts.roles`: the roles are not made while `enabled` is `false`
        write `enabled: true` once every controller accepts the new issuer, or remove the roles
    "##);
}
