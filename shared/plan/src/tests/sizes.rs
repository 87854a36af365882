//! How many machines a plan is about, in which order, and how long it takes.

use super::*;

#[test]
fn p3_of_a_group_that_grows_and_is_replaced_the_plan_counts_those_that_stand() {
    let of = |min, max, image: &str| {
        let mut node = role("c-pool-a", json!({ "imageId": image }), &json!({}), "k1");
        node.nodes = GroupSize { min, max };
        rendering(&network("10.0.0.0/16", true), &pool(5, image), node)
    };
    let grown = between(&of(3, 5, "ami-1"), &of(5, 9, "ami-2"));
    assert_eq!(grown.nodes[0].nodes, GroupSize { min: 3, max: 5 });
    assert_eq!(grown.machines(NodeAction::Replace), Machines { least: 3, most: 5 });
    assert_eq!(grown.machines(NodeAction::Create), Machines { least: 0, most: 2 });
    let why = "the group's size: 3–5 → 5–9; up to 2 machines are added, as many as it lacks of 5";
    assert!(grown.nodes[0].reasons.iter().any(|reason| reason == why), "{grown:?}");
    let shrunk = between(&of(5, 5, "ami-1"), &of(3, 3, "ami-2"));
    assert_eq!(shrunk.machines(NodeAction::Replace), Machines { least: 3, most: 3 });
}

#[test]
fn p3_a_group_that_only_grows_adds_machines() {
    let of = |role_name: Role, min, max| {
        let node =
            NodeRole { nodes: GroupSize { min, max }, ..role("c-pool-a", json!({}), &json!({}), "k1") };
        let group = pool(max, &format!("ami-{min}"));
        Rendering {
            roles: BTreeMap::from([(role_name, node)]),
            ..rendering(&json!({}), &group, self::node())
        }
    };
    let pool = || Role::Pool("a".to_owned());
    for (who, from, to, summary, headline, why) in [
        (
            Role::Controller,
            (3, 3),
            (5, 5),
            "1 stack to update; nodes: 2 new",
            "The cluster c changes: 2 machines are added.",
            "the group's size: 3 → 5; 2 machines are added",
        ),
        (
            pool(),
            (2, 10),
            (5, 10),
            "1 stack to update; nodes: 0–3 new",
            "The cluster c changes: up to 3 machines are added.",
            "the group's size: 2–10 → 5–10; up to 3 machines are added, as many as it lacks of 5",
        ),
        (
            pool(),
            (2, 3),
            (5, 10),
            "1 stack to update; nodes: 2–3 new",
            "The cluster c changes: 2 to 3 machines are added.",
            "the group's size: 2–3 → 5–10; 2 to 3 machines are added, as many as it lacks of 5",
        ),
    ] {
        let plan = between(&of(who.clone(), from.0, from.1), &of(who, to.0, to.1));
        assert_eq!(plan.summary(), summary);
        assert!(plan.to_html().contains(headline), "{headline}");
        assert_eq!(plan.nodes[0].reasons, [why]);
    }
}

#[test]
fn p3_what_stands_is_a_range_where_auto_scaling_chooses_and_of_weights_nothing_more_is_known() {
    let of = |image: &str, weighted| NodeRole {
        weighted,
        ..role("c-pool-a", json!({ "imageId": image }), &json!({}), "k1")
    };
    let whole = |node| rendering(&json!({}), &pool(5, "x"), node);
    let summary = |weighted| between(&whole(of("ami-1", weighted)), &whole(of("ami-2", weighted))).summary();
    assert_eq!(summary(false), "no stack; nodes: 3–5 replaced");
    // One machine may be three units.
    assert_eq!(summary(true), "no stack; nodes: 1–5 replaced");
}

#[test]
fn p3_a_plan_says_in_which_order_at_what_pace_and_how_long() {
    let roles = |image: &str| {
        let one = |stack: &str, size| {
            let node = role(stack, json!({ "imageId": image }), &json!({}), "k1");
            NodeRole { nodes: GroupSize { min: size, max: size }, ..node }
        };
        BTreeMap::from([
            (Role::Etcd(0), one("c-etcd", 1)),
            (Role::Etcd(1), one("c-etcd", 1)),
            (Role::Controller, one("c-control-plane", 2)),
            (Role::Pool("a".to_owned()), one("c-pool-a", 4)),
            (Role::Pool("b".to_owned()), one("c-pool-b", 3)),
        ])
    };
    let release =
        |image: &str| Rendering { roles: roles(image), ..rendering(&json!({}), &json!({}), node()) };
    let own = PoolRollout {
        after: vec!["b".to_owned()],
        surge: Some(CountOrPercent::Count(1)),
        ..PoolRollout::default()
    };
    let policy = RolloutPolicy { pools: BTreeMap::from([("a".to_owned(), own)]), ..policy() };
    let plan = plan(&Baseline::single_release(Some(release("1"))), &release("2"), &policy);
    let order: Vec<String> = plan.in_order().iter().map(|node| node.role.to_string()).collect();
    assert_eq!(order, ["etcd-0", "etcd-1", "controller", "pool-b", "pool-a"]);
    let conduct = plan.conduct();
    assert_eq!(
        conduct,
        [
            "order: etcd-0, etcd-1, controller, pool-b, pool-a",
            "etcd: one member at a time, while all others are healthy",
            "controllers: one at a time; its successor comes first if it is replaced",
            "pool-b: at most 1 missing at a time; the first is a canary: others follow when it serves",
            "pool-a: at most 1 missing at a time, up to 1 more first (surge); the first is a canary: others follow when it serves",
            "it stops when more than 1 replacement failed",
            // Ten minutes for stacks; four machines, three workers, then one and three in twos, each twenty minutes.
            "it usually takes about 3 h 30 min; slow drains come on top",
        ]
    );
    let page = plan.to_html();
    assert!(conduct.iter().all(|line| plan.to_text().contains(line) && page.contains(line)), "{page}");
    let rows: Vec<usize> = order.iter().filter_map(|role| page.find(&format!(">{role}</th>"))).collect();
    assert!(rows.len() == 5 && rows.is_sorted(), "{rows:?}");
}
