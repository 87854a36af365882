//! The page of a plan: well-formed, alone, and not to be broken out of.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use roxmltree::{Document, ParsingOptions};
use serde_json::json;
use slipway_core::cluster::{Approval, GroupSize};
use slipway_core::release::{AddonSet, Installed, NodeRole};

use super::super::*;
use crate::tests::stack;

fn policy() -> RolloutPolicy {
    RolloutPolicy { approval: Approval::Manual, ..crate::tests::policy() }
}

fn role(stack: &str, nodes: u32, image: &str) -> NodeRole {
    NodeRole {
        stack: stack.to_owned(),
        nodes: GroupSize { min: nodes, max: nodes },
        machine: json!({ "imageId": image }),
        config_digest: "0".repeat(64),
        config: "{}".to_owned(),
        credentials_digest: "0".repeat(64),
        version: None,
        member: None,
        weighted: false,
    }
}

/// Two stacks; `cidr` is in the network, `image` and `note` in the pool.
fn rendering(members: u32, cidr: &str, image: &str, note: &str) -> Rendering {
    let network = json!({ "Description": note, "Resources": {
        "Vpc": { "Type": "AWS::EC2::VPC", "Properties": { "CidrBlock": cidr } },
    } });
    let pool = json!({ "Resources": {
        "LaunchTemplate": { "Type": "AWS::EC2::LaunchTemplate", "Properties": { "LaunchTemplateData": { "ImageId": image } } },
        "Group": { "Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": { "Cooldown": note } },
    } });
    let mut roles: BTreeMap<Role, NodeRole> =
        (0..members).map(|index| (Role::Etcd(index), role("c-etcd", 1, image))).collect();
    roles.insert(Role::Controller, role("c-control-plane", 1, image));
    roles.insert(Role::Pool("general".to_owned()), role("c-pool-general", 4, image));
    Rendering {
        format: Rendering::FORMAT,
        cluster: "c".to_owned(),
        stacks: vec![
            stack("c-network", StackKind::Network, &network),
            stack("c-etcd", StackKind::Etcd, &json!({ "Resources": {} })),
            stack("c-control-plane", StackKind::ControlPlane, &json!({ "Resources": {} })),
            stack("c-pool-general", StackKind::Pool, &pool),
        ],
        roles,
        addons: Default::default(),
    }
}

fn between(old: &Rendering, new: &Rendering) -> Plan {
    plan(&Baseline::single_release(Some(old.clone())), new, &policy())
}

/// The text of the page without its tags, and the page as a tree: it must be XML.
fn text_of(page: &str) -> String {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let tree = Document::parse_with_options(page, options).unwrap_or_else(|error| panic!("{error}\n{page}"));
    let body = tree.descendants().find(|node| node.has_tag_name("body")).unwrap();
    body.descendants()
        .filter(|node| node.is_text())
        .filter_map(|node| node.text())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Nothing on the page is fetched, run or sent: no such element, no such attribute.
fn stands_alone(page: &str) {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let tree = Document::parse_with_options(page, options).unwrap();
    const KNOWN: [&str; 33] = [
        "html", "head", "meta", "title", "style", "body", "main", "footer", "header", "section", "h1", "h2",
        "p", "span", "ul", "ol", "li", "div", "b", "i", "code", "pre", "table", "thead", "tbody", "tr", "th",
        "td", "details", "summary", "svg", "path", "br",
    ];
    for node in tree.descendants().filter(roxmltree::Node::is_element) {
        assert!(KNOWN.contains(&node.tag_name().name()), "{node:?}");
        for attribute in node.attributes() {
            let fine =
                ["lang", "class", "open", "scope", "colspan", "charset", "name", "content", "http-equiv"];
            assert!(fine.contains(&attribute.name()), "{attribute:?}");
        }
    }
    let policy = tree.descendants().find(|node| node.attribute("http-equiv").is_some()).unwrap();
    assert_eq!(policy.attribute("content"), Some("default-src 'none'; style-src 'unsafe-inline'"));
    let styles = tree.descendants().filter(|node| node.has_tag_name("style"));
    let styles: Vec<&str> = styles.filter_map(|node| node.text()).collect();
    assert_eq!(styles, [slipway_core::page::STYLE]);
    assert!(
        !slipway_core::page::STYLE.contains("url(") && !slipway_core::page::STYLE.contains("@import"),
        "the style loads something"
    );
}

#[test]
fn p3_a_page_reads_well() {
    let old = rendering(3, "10.0.0.0/16", "ami-1", "a");
    let mut new = rendering(3, "10.9.0.0/16", "ami-2", "b");
    new.roles.get_mut(&Role::Controller).unwrap().machine = json!({ "imageId": "ami-1" });
    let page = between(&old, &new).to_html();
    stands_alone(&page);
    let text = text_of(&page);
    for said in [
        "The cluster c changes: 7 machines are replaced.",
        "Risk: high",
        "Vpc (AWS::EC2::VPC) of c-network is replaced",
        "one after the other (etcd-0, etcd-1, etcd-2)",
        "4 workers of pool-general are replaced: each is drained",
        "image: ami-1 → ami-2",
        "10.0.0.0/16",
        "10.9.0.0/16",
        "Nothing begins before a person approves this plan.",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    insta::assert_snapshot!(page);
}

fn with_addons(size: &[(&str, &str)]) -> Rendering {
    let installed = |(name, version): &(&str, &str)| {
        let object =
            json!({ "kind": "Deployment", "metadata": { "name": name }, "spec": { "image": version } });
        let account = json!({ "kind": "ServiceAccount", "metadata": { "name": name } });
        let objects = vec![object, account];
        Installed { name: (*name).to_owned(), version: (*version).to_owned(), objects }
    };
    let addons = AddonSet { digest: format!("{size:?}"), addons: size.iter().map(installed).collect() };
    Rendering { addons, ..rendering(3, "10.0.0.0/16", "ami-1", "a") }
}

#[test]
fn p3_add_ons_are_shown_by_what_becomes_of_each_and_those_that_stay_are_not() {
    let old = with_addons(&[("coredns", "v1.14.5"), ("flannel", "v0.28.9"), ("kube-proxy", "v1.37.2")]);
    let new = with_addons(&[("coredns", "v1.14.6"), ("kube-proxy", "v1.37.2"), ("metrics-server", "v0.9.0")]);
    let page = between(&old, &new).to_html();
    stands_alone(&page);
    let text = text_of(&page);
    for said in [
        "Add-ons, which touch no machine",
        "coredns v1.14.5 → v1.14.6 changed ~ Deployment coredns",
        "metrics-server v0.9.0 installed",
        "flannel v0.28.9 removed",
        "The add-on flannel (v0.28.9) is removed, and what relies on it stops working.",
    ] {
        assert!(text.contains(said), "{said:?} is not in\n{text}");
    }
    assert!(!text.contains("kube-proxy") && !text.contains("ServiceAccount coredns"), "{text}");
    assert!(text.contains("Deployment coredns.spec.image v1.14.5 v1.14.6"), "{text}");
    assert!(!text_of(&between(&old, &old).to_html()).contains("Add-ons"));
}

#[test]
fn what_is_interrupted_is_said_and_only_that() {
    let old = rendering(1, "10.0.0.0/16", "ami-1", "a");
    let page = |new: &Rendering| text_of(&between(&old, new).to_html());
    let only_member = page(&rendering(1, "10.0.0.0/16", "ami-2", "a"));
    assert!(
        only_member.contains("The Kubernetes API, for the minutes") && only_member.contains("Risk: high")
    );
    let nothing = page(&old);
    assert!(nothing.contains("Nothing changes in the cluster c.") && nothing.contains("Risk: none"));
    let in_place = page(&rendering(1, "10.0.0.0/16", "ami-1", "b"));
    assert!(in_place.contains("Risk: low") && in_place.contains("no machine is replaced"), "{in_place}");
    let three = rendering(3, "10.0.0.0/16", "ami-1", "a");
    let quorum = text_of(&between(&three, &rendering(3, "10.0.0.0/16", "ami-2", "a")).to_html());
    assert!(quorum.contains("Risk: medium") && !quorum.contains("The Kubernetes API"), "{quorum}");
    let first = plan(&Baseline::default(), &three, &policy());
    let first_text = text_of(&first.to_html());
    assert!(
        first_text.contains("The cluster c is created, with 8 machines") && first_text.contains("Risk: none")
    );
}

#[test]
fn p1_equal_plans_are_equal_pages() {
    let (old, new) = (rendering(3, "10.0.0.0/16", "ami-1", "a"), rendering(3, "10.0.0.0/16", "ami-2", "b"));
    assert_eq!(between(&old, &new).to_html(), between(&old, &new).to_html());
}

#[test]
fn p9_what_stands_in_a_spec_cannot_break_out_of_the_page() {
    for hostile in [
        "</script><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "</pre></td></tr></table></body></html>",
        "<!-- ",
        "]]>",
        "&lt;b&gt; &amp; &#0; &",
        "</style><style>@import url(//evil)</style>",
        "\u{0}\u{1}\u{b}\u{7f}\u{85}\u{fffe}\u{202e}",
    ] {
        let mut new = rendering(3, hostile, hostile, hostile);
        new.cluster = hostile.to_owned();
        for stack in &mut new.stacks {
            stack.tags.insert(hostile.to_owned(), hostile.to_owned());
        }
        new.roles.insert(Role::Pool(hostile.to_owned()), role(hostile, 2, hostile));
        let mut plan = between(&rendering(3, "10.0.0.0/16", "ami-1", "a"), &new);
        for resource in plan.stacks.iter_mut().flat_map(|stack| &mut stack.resources) {
            resource.logical_id = hostile.to_owned();
            resource.resource_type = hostile.to_owned();
        }
        let page = plan.to_html();
        stands_alone(&page);
        assert_eq!(
            text_of(&page).contains(hostile),
            slipway_core::page::clean(hostile) == hostile,
            "{hostile:?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_text_leaves_the_page_well_formed(text in any::<String>(), other in "[<>&\"'/a-z\\-!\\[\\]]{0,40}") {
        let old = rendering(3, &other, &text, &other);
        let page = between(&old, &rendering(3, &text, &other, &text)).to_html();
        stands_alone(&page);
    }
}
