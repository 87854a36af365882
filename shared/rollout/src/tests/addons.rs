//! When the node managers are told of which add-ons.

use serde_json::json;
use slipway_core::release::Installed;

use super::decisions::{NOW, node, rolling};
use super::*;

/// A release with one add-on of that version.
fn with_addon(size: u32, version: &str) -> Rendering {
    let object = json!({ "kind": "Deployment", "metadata": { "name": "dns" }, "spec": { "image": version } });
    let dns = Installed { name: "dns".to_owned(), version: version.to_owned(), objects: vec![object] };
    let addons = AddonSet { digest: format!("digest-{version}"), addons: vec![dns] };
    Rendering { addons, ..rendering(size) }
}

fn baseline(state: &Rollout, releases: &[&Rendering]) -> Baseline {
    let releases = releases.iter().map(|release| (release.id(), (*release).clone())).collect();
    let stacks = Baseline::assemble("c", &state.deployed, &state.orphaned, &releases).unwrap();
    stacks.with_addons(state.addons_release(), &releases).unwrap()
}

fn launch(release: &Rendering, fake: &mut Fake) -> Rollout {
    let wanted = wanted(release, &Baseline::default(), Approval::Auto);
    let (state, _) = fake.run(Rollout::new("c"), &wanted, None, false);
    fake.log.clear();
    fake.change_sets.clear();
    state
}

#[test]
fn a_new_cluster_is_told_at_once_since_no_node_is_ready_without_its_network() {
    let (release, mut fake) = (with_addon(1, "v1"), Fake::default());
    let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
    let (state, report) = fake.run(Rollout::new("c"), &wanted, None, false);
    assert_eq!(fake.log[..3], ["arm", "Rollout Started", "add-ons digest-v1 of 1"]);
    assert_eq!(fake.log.iter().filter(|line| line.starts_with("add-ons")).count(), 1, "{:?}", fake.log);
    assert_eq!(
        report.message,
        "5 of 5 stacks are as planned; add-ons for the controllers to apply: dns new (v1)"
    );
    assert_eq!(state.addons_release(), Some(release.id().as_str()));
    assert!(plan(&baseline(&state, &[&release]), &release, &policy(Approval::Auto)).is_empty());
}

#[test]
fn p2_add_ons_alone_change_no_stack_and_are_switched_when_it_has_succeeded() {
    let (old, new, mut fake) = (with_addon(1, "v1"), with_addon(1, "v2"), Fake::default());
    let state = launch(&old, &mut fake);
    let wanted = wanted(&new, &baseline(&state, &[&old]), Approval::Auto);
    assert_eq!(wanted.plan.summary(), "no stack; nodes: none touched; add-ons: 1 changed");
    let (state, report) = fake.run(state, &wanted, None, true);
    assert_eq!(report.state.as_str(), "succeeded");
    assert_eq!(
        report.message,
        "no stack had to change; add-ons for the controllers to apply: dns changed (v1 → v2)"
    );
    let once = ["arm", "Rollout Started", "add-ons digest-v2 of 2", "Rollout Succeeded", "disarm"];
    assert_eq!(fake.log, [once, once].concat(), "every effect came twice");
    assert!(state.deployed.values().all(|release| release == &new.id()));
}

#[test]
fn p10_a_rollout_that_fails_leaves_the_add_ons_and_the_next_plan_says_what_still_changes() {
    let (old, new, mut fake) = (with_addon(1, "v1"), with_addon(2, "v2"), Fake::default());
    let state = launch(&old, &mut fake);
    fake.fails = Some("c-pool-a");
    let first = wanted(&new, &baseline(&state, &[&old]), Approval::Auto);
    let (state, report) = fake.run(state, &first, None, false);
    assert_eq!(report.state.as_str(), "failed");
    assert_eq!(state.addons_release(), Some(old.id().as_str()));
    assert!(!fake.log.iter().any(|line| line.starts_with("add-ons")), "{:?}", fake.log);

    let between = baseline(&state, &[&old, &new]);
    let again = plan(&between, &new, &policy(Approval::Auto));
    assert_eq!(again.addons.len(), 1);
    assert_eq!(again.addons[0].versions(), "v1 → v2");
    let back = plan(&between, &old, &policy(Approval::Auto));
    assert!(!back.is_empty() && back.addons.is_empty(), "back to what is applied: {:?}", back.addons);
}

#[test]
fn a_plan_that_was_made_before_other_add_ons_were_applied_is_not_begun() {
    let (old, new, mut fake) = (with_addon(1, "v1"), with_addon(1, "v2"), Fake::default());
    let state = launch(&old, &mut fake);
    let stale = wanted(&new, &baseline(&state, &[&old]), Approval::Auto);
    let moved = Rollout {
        addons: Some(AddonsPointer { release: "another".to_owned(), ..state.addons.clone().unwrap() }),
        ..state
    };
    let decision = decide(&moved, &fake.observe(&ToObserve::default(), Some(&stale)), Timestamp::UNIX_EPOCH);
    assert_eq!(decision.next, moved);
}

#[test]
fn a_state_of_before_goes_on_from_the_generation_that_the_node_managers_know() {
    let (release, mut fake) = (with_addon(1, "v1"), Fake::default());
    let state = launch(&release, &mut fake);
    let pointer = |generation| AddonsPointer { generation, ..state.addons.clone().unwrap() };
    for told in [None, Some(pointer(0)), Some(pointer(1))] {
        assert_eq!(state.clone().with_stored_generation(told.as_ref()), state);
    }
    let later = AddonsPointer { release: "another".to_owned(), ..pointer(7) };
    let with_stored_generation = state.clone().with_stored_generation(Some(&later));
    assert_eq!(
        (with_stored_generation.generation, &with_stored_generation.addons),
        (7, &Some(later.clone()))
    );
    assert_eq!(with_stored_generation.clone().with_stored_generation(Some(&later)), with_stored_generation);
    // A lost state knows no add-ons, and not which release they are from.
    let lost = Rollout::new("c").with_stored_generation(Some(&later));
    assert_eq!((lost.generation, lost.addons), (7, None));

    // A state that was restored while a rollout was open ends with a generation that node managers accept.
    let next = with_addon(2, "v2");
    let step = wanted(&next, &baseline(&state, &[&release]), Approval::Auto);
    let open = decide(&state, &fake.observe(&ToObserve::default(), Some(&step)), Timestamp::UNIX_EPOCH);
    let open = Rollout { outbox: Vec::new(), ..open.next };
    assert!(open.active().is_some());
    let (ended, report) = fake.run(open.with_stored_generation(Some(&later)), &step, None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    assert_eq!(ended.addons.map(|told| told.generation), Some(8));
    assert_eq!(ended.generation, 8);
}

#[test]
fn a_state_of_which_the_node_managers_know_goes_on_as_it_is_while_its_rollout_is_open() {
    let (release, mut fake) = (with_addon(1, "v1"), Fake::default());
    let state = launch(&release, &mut fake);
    let step = wanted(&with_addon(2, "v2"), &baseline(&state, &[&release]), Approval::Auto);
    let open = decide(&state, &fake.observe(&ToObserve::default(), Some(&step)), Timestamp::UNIX_EPOCH).next;
    assert_eq!((open.generation, open.active().is_some()), (2, true));
    let told = AddonsPointer { generation: 2, ..state.addons.unwrap() };
    assert_eq!(open.clone().with_stored_generation(Some(&told)), open);
}

#[test]
fn a_stack_that_is_made_anew_beside_a_control_plane_that_stands_tells_of_no_add_ons_before_the_end() {
    let (mut old, new, mut fake) = (with_addon(1, "v1"), with_addon(1, "v2"), Fake::default());
    old.stacks.retain(|stack| stack.name != "c-pool-b");
    let state = launch(&old, &mut fake);
    let step = wanted(&new, &baseline(&state, &[&old]), Approval::Auto);
    assert!(step.plan.stacks.iter().any(|stack| stack.action == slipway_plan::StackAction::Create));
    let (_, report) = fake.run(state, &step, None, false);
    assert_eq!(report.state.as_str(), "succeeded", "{}", report.message);
    let place = |what: &str| fake.log.iter().position(|line| line.starts_with(what)).unwrap();
    assert!(place("execute c-pool-b") < place("add-ons digest-v2"), "{:?}", fake.log);
}

#[test]
fn three_add_ons_are_told_by_name_and_more_by_their_number() {
    let told = |names: &[&str]| {
        let mut release = with_addon(1, "v1");
        let one = release.addons.addons[0].clone();
        let named = names.iter().map(|name| Installed { name: (*name).to_owned(), ..one.clone() });
        release.addons.addons = named.collect();
        let wanted = wanted(&release, &Baseline::default(), Approval::Auto);
        let observed = Observed { desired: Some(wanted), ..Observed::default() };
        let next = decide(&Rollout::new("c"), &observed, Timestamp::UNIX_EPOCH).next;
        next.active().unwrap().addons.clone().unwrap().words
    };
    assert_eq!(told(&["a", "b"]), "a new (v1), b new (v1)");
    assert_eq!(told(&["a", "b", "c"]), "a new (v1), b new (v1), c new (v1)");
    assert_eq!(told(&["a", "b", "c", "d"]), "4 new");
}

#[test]
fn p10_no_node_manager_is_told_of_add_ons_after_an_order_to_stop_although_only_the_look_is_left() {
    let looks = json!({"closing": {"groups": {}, "phase": {"open": {"state": {"check": []}}}}});
    let mut running = rolling(&[], &[node("controller", looks)]);
    let pointer = json!({"format": 1, "generation": 4, "release": "t", "digest": "d"});
    let step = json!({"pointer": pointer, "words": "dns new"});
    running.active_mut().unwrap().addons = Some(serde_json::from_value(step).unwrap());
    let paused = Rollout { switch: Some(Switch { paused: true, at: NOW }), ..running.clone() };
    let mut aborted = running.clone();
    aborted.active_mut().unwrap().aborted = Some(NOW);
    for (state, is_told) in [(running, true), (paused, false), (aborted, false)] {
        let decision = decide(&state, &Observed::default(), NOW);
        let tells = |effect: &Effect| matches!(effect, Effect::PointAddons(_));
        assert_eq!(decision.effects.iter().any(tells), is_told, "{}", decision.report.message);
    }
}
