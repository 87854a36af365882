//! `iamRolesForServiceAccounts`.

use super::super::super::parse;
use super::BASE;

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
