//! What Auto Scaling does by itself once the stack of a group is updated: the plan says it before.

use super::*;

const IN_ZONES: [(&str, &str); 4] = [("A", "a"), ("A2", "a"), ("B", "b"), ("C", "c")];

/// A role whose group stands in these subnets, and the network's four.
fn release(who: &Role, size: (u32, u32), subnets: &[&str], policy: Option<&Value>) -> Rendering {
    let mut release = exporting(&[], subnets);
    let resources: serde_json::Map<String, Value> = IN_ZONES
        .iter()
        .map(|(id, zone)| {
            let subnet = json!({"Type": "AWS::EC2::Subnet", "Properties": {"AvailabilityZone": zone}});
            ((*id).to_owned(), subnet)
        })
        .collect();
    let outputs: serde_json::Map<String, Value> = IN_ZONES
        .iter()
        .map(|(id, _)| {
            let export = json!({"Value": {"Ref": id}, "Export": {"Name": format!("c-network-{id}")}});
            ((*id).to_owned(), export)
        })
        .collect();
    let network = json!({"Resources": resources, "Outputs": outputs});
    release.stacks[0] = stack("c-network", StackKind::Network, &network);
    if let Some(policy) = policy {
        let mut group: Value = serde_json::from_str(&release.stacks[1].body).unwrap();
        group["Resources"]["Group"]["Properties"]["MixedInstancesPolicy"] = policy.clone();
        release.stacks[1] = stack("c-pool-a", StackKind::Pool, &group);
    }
    let node = role("c-pool-a", json!({}), &json!({}), "x");
    release.roles.insert(who.clone(), NodeRole { nodes: GroupSize { min: size.0, max: size.1 }, ..node });
    release
}

fn worker() -> Role {
    Role::Pool("a".to_owned())
}

fn split(base: u32, percentage: u32) -> Value {
    json!({"InstancesDistribution": {"OnDemandBaseCapacity": base, "OnDemandPercentageAboveBaseCapacity": percentage}})
}

#[test]
fn p3_a_changed_share_of_spot_instances_is_said_to_replace_nodes() {
    let of = |policy: Option<&Value>| release(&worker(), (3, 5), &["A", "B"], policy);
    let (spot, half, all) = (split(0, 0), split(0, 50), split(2, 100));
    for (before, after, words) in [
        (Some(&spot), Some(&half), "from all Spot to 50 % on demand. "),
        (Some(&half), Some(&spot), "from 50 % on demand to all Spot. "),
        (Some(&spot), Some(&split(2, 0)), "from all Spot to 2 and 0 % of the others on demand. "),
        (None, Some(&spot), "from all on demand to all Spot. "),
        (Some(&half), None, "from 50 % on demand to all on demand. "),
    ] {
        let plan = between(&of(before), &of(after));
        let node = &plan.nodes[0];
        assert_eq!(node.action, NodeAction::Untouched);
        let said: Vec<&str> = node.all_reasons().collect();
        let [said] = said.as_slice() else { panic!("{said:?}") };
        assert!(said.contains(words), "{said}");
        assert_eq!(said.contains("at two minutes' notice"), after == Some(&spot), "{said}");
        assert!(plan.to_text().contains(said), "{}", plan.to_text());
        assert!(plan.to_html().contains("Risk: high"));
        assert_eq!(
            plan.summary(),
            "1 stack to update; nodes: none replaced, Auto Scaling may replace some by itself (pool-a)"
        );
        assert_eq!(plan.not_executable(), None);
    }
    // Whatever the base is: all were and are on demand.
    let plan = between(&of(None), &of(Some(&all)));
    assert_eq!((plan.nodes[0].all_reasons().count(), plan.summary().contains("none touched")), (0, true));
}

#[test]
fn p3_a_group_that_gains_a_zone_is_said_to_be_rebalanced() {
    for (who, size, before, after, words) in [
        (worker(), (3, 5), &["A"][..], &["A", "B"][..], Some("the group gains c-network-B: ")),
        (worker(), (0, 5), &["A"], &["A", "B", "C"], Some("the group gains c-network-B, c-network-C: ")),
        (Role::Controller, (3, 4), &["A"], &["A", "B"], Some("it launches controllers there first")),
        // It has that zone already.
        (worker(), (3, 5), &["A"], &["A", "A2"], None),
        // One machine is in balance.
        (worker(), (1, 1), &["A"], &["A", "B"], None),
        (Role::Controller, (1, 2), &["A"], &["A", "B"], None),
        (worker(), (0, 0), &["A"], &["A", "B"], None),
    ] {
        let plan = between(&release(&who, size, before, None), &release(&who, size, after, None));
        assert_eq!(plan.nodes[0].action, NodeAction::Untouched);
        let said = plan.nodes[0].all_reasons().collect::<Vec<_>>().join("\n");
        match words {
            Some(words) => assert!(said.contains(words) && plan.to_html().contains("Risk: high"), "{said}"),
            None => assert_eq!(said, "", "{after:?}"),
        }
        assert_eq!(plan.summary().contains("Auto Scaling may replace some by itself"), words.is_some());
        assert_eq!(plan.not_executable(), None);
    }
}
