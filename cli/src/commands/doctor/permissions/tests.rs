//! The table is that of the page, and what IAM does not allow is told by the verbs that lack it.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::commands::doctor::findings::Level;

const PAGE: &str = include_str!("../../../../../docs/cli.md");

fn places() -> Places {
    Places {
        region: "eu-west-1".to_owned(),
        account: "123456789012".to_owned(),
        stack: "slipway".to_owned(),
        asset_bucket: "assets".to_owned(),
        spec_bucket: "specs".to_owned(),
        bus: "slipway".to_owned(),
        key: "arn:aws:kms:eu-west-1:123456789012:key/k".to_owned(),
        cluster: "prod".to_owned(),
    }
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// The third column of the page.
fn words(on: On) -> String {
    match on {
        On::Stack => "the installation's stack".to_owned(),
        On::ClusterStacks => "the cluster's stacks".to_owned(),
        On::AssetBucket => "the asset bucket".to_owned(),
        On::SpecBucket => "the spec bucket".to_owned(),
        On::Assets(paths) => format!("{} of the asset bucket", quoted(paths)),
        On::Specs(paths) => format!("{} of the spec bucket", quoted(paths)),
        On::Bus => "the bus".to_owned(),
        On::DestroyBus => "the bus `slipway-destroy`".to_owned(),
        On::Key => "the key that seals the cluster's credentials".to_owned(),
        On::Images => "the parameters of images".to_owned(),
        On::Machines => "the cluster's machines".to_owned(),
        On::Documents(names) => {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            match names.as_slice() {
                [first @ .., last] if !first.is_empty() => {
                    format!("the documents {} and {last}", first.join(", "))
                }
                names => format!("the documents {}", names.concat()),
            }
        }
        On::Everything => "`*`: these actions accept no narrower resource".to_owned(),
    }
}

#[test]
fn the_table_is_that_of_the_page() {
    let (_, table) = PAGE.split_once("| verb | action | on |\n|---|---|---|\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    // What is needed only sometimes has words beside the verbs' names.
    let always = |line: &&str| {
        let verbs = line.trim_start_matches("| ").split(" | ").next().unwrap();
        verbs.split(", ").all(|verb| verb.starts_with('`') && verb.ends_with('`') && verb != "`doctor`")
    };
    let page: Vec<&str> = rows.filter(always).collect();
    let ours = TABLE
        .iter()
        .map(|row| format!("| {} | {} | {} |", quoted(row.verbs), quoted(row.actions), words(row.on)));
    assert_eq!(page, ours.collect::<Vec<_>>());
}

#[test]
fn a_caller_is_a_user_a_role_or_nobody_whom_iam_can_be_asked_about() {
    for (arn, expected) in [
        ("arn:aws:iam::1:user/a/b", Principal::User("arn:aws:iam::1:user/a/b".to_owned())),
        ("arn:aws-cn:sts::1:assumed-role/admin/me@example.com", Principal::Role("admin".to_owned())),
        ("arn:aws:iam::1:root", Principal::Root),
        ("arn:aws:sts::1:federated-user/me", Principal::Other),
        ("", Principal::Other),
    ] {
        assert_eq!(principal(arn), expected, "{arn}");
    }
}

fn read(missing: &[(&str, &str)]) -> PermissionsRead {
    let missing = missing.iter().map(|(action, on)| ((*action).to_owned(), (*on).to_owned())).collect();
    PermissionsRead {
        caller: Ok(Caller {
            account: "123456789012".to_owned(),
            arn: "arn:aws:sts::123456789012:assumed-role/ops/me".to_owned(),
        }),
        places: Some(places()),
        missing: Some(Ok(missing)),
    }
}

#[test]
fn verbs_that_lack_the_same_are_one_warning_and_the_others_may_be_run() {
    let [all] = &of_permissions(&read(&[]))[..] else { panic!() };
    assert!(all.level == Level::Ok && all.message.contains("may run every verb on prod"), "{all:?}");

    let bus = "arn:aws:events:eu-west-1:123456789012:event-bus/slipway";
    let key = "arn:aws:kms:eu-west-1:123456789012:key/k";
    // The same action on another bus is not that of `destroy`.
    let found = of_permissions(&read(&[("events:PutEvents", bus), ("kms:Decrypt", key)]));
    let levels: Vec<Level> = found.iter().map(|finding| finding.level).collect();
    assert_eq!(levels, [Level::Ok, Level::Warning, Level::Warning], "{found:?}");
    assert!(found[0].message.contains("destroy") && !found[0].message.contains("approve"), "{:?}", found[0]);
    let told = |verbs: &str, lacking: &str| {
        found.iter().any(|one| {
            one.message.contains(&format!("may not run {verbs} on prod"))
                && one.message.ends_with(lacking)
                && one.help.as_deref().unwrap().contains("docs/cli.md, Permissions")
        })
    };
    let on_bus = format!("events:PutEvents on {bus}");
    assert!(told("abort, approve, pause, renew, resume, skip, upgrade", &on_bus), "{found:?}");
    assert!(told("kubeconfig, renew --recover", &format!("kms:Decrypt on {key}")), "{found:?}");
}

#[test]
fn who_cannot_be_asked_about_is_told_with_the_reason() {
    let with = |arn: &str| {
        let caller = Caller { account: "1".to_owned(), arn: arn.to_owned() };
        let [finding] =
            &of_permissions(&PermissionsRead { caller: Ok(caller), missing: None, ..read(&[]) })[..]
        else {
            panic!("{arn}")
        };
        finding.clone()
    };
    assert!(with("arn:aws:iam::1:root").level == Level::Warning);
    let other = with("arn:aws:sts::1:federated-user/me");
    assert!(
        other.level == Level::Unknown && other.message.contains("simulates no policies for arn:aws:sts::1"),
        "{other:?}"
    );
    let gone = with("arn:aws:sts::1:assumed-role/ops/me");
    assert!(gone.level == Level::Unknown && gone.help.unwrap().contains("does not exist any more"));
    let unread = Unread { why: "denied".to_owned(), help: "allow it".to_owned(), denied: true };
    let denied = of_permissions(&PermissionsRead { missing: Some(Err(unread)), ..read(&[]) });
    assert!(denied[0].message == "not checked: denied" && denied.len() == 1, "{denied:?}");
}
