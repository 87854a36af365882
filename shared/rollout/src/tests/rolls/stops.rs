//! What people say in the midst of it, and what Auto Scaling does.

use super::*;

/// Whether a line of the log stops, empties or makes anything, or has a machine take something.
fn disrupts(line: &str) -> bool {
    ["goes", "drains", "wants", "takes new", "leads no more", "snapshot"]
        .iter()
        .any(|what| line.contains(what))
}

#[test]
fn p10_after_a_pause_at_any_minute_nothing_begins_and_a_resume_goes_on_to_the_end() {
    for at in 0..40 {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        (0..at).for_each(|_| yard.wake(None));
        yard.wake(Some(Order::Pause));
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        // What was drained when it was paused is let go of only by its hook.
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "paused at {at}: {after:?}");
        yard.wake(Some(Order::Resume));
        assert_eq!(yard.run(), "succeeded", "paused at {at}: {}", yard.report.message);
        let replaced = yard.groups.values().flat_map(|group| group.machines.values()).all(|one| one.current);
        assert!(replaced, "paused at {at}");
    }
}

#[test]
fn p10_after_an_abort_at_any_minute_nothing_begins_and_all_take_pods_again() {
    for at in 1..45 {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|_| true, &auto());
        yard.stuck.extend(["controller.1".to_owned(), "pool-a.1".to_owned()]);
        (0..at).for_each(|_| yard.wake(None));
        yard.wake(Some(Order::Abort { plan: None }));
        let before = yard.log.len();
        (0..25).for_each(|_| yard.wake(None));
        let after: Vec<&String> = yard.log[before..].iter().filter(|line| disrupts(line)).collect();
        assert!(after.is_empty(), "aborted at {at}: {after:?}");
        assert_eq!(yard.report.state, "aborted", "at {at}: {}", yard.report.message);
        assert!(yard.state.departures.is_empty() && !yard.state.is_open(), "at {at}");
        for (line, node) in yard.log.iter().filter_map(|line| Some((line, line.split_once(" drains ")?.1))) {
            let gone = yard.log.iter().any(|other| other.starts_with(&format!("{node} goes")));
            let back = yard.log.contains(&format!("{node} takes pods again"));
            assert!(gone || back, "at {at}: {line}");
        }
    }
}

#[test]
fn p10_a_machine_that_a_person_says_to_leave_is_left_and_the_others_are_replaced() {
    for left in ["etcd-1.0", "pool-a.1"] {
        let mut yard = Yard::new(&SMALL, Change::Machines, &|role| !is_controller(role), &auto());
        yard.wake(None);
        yard.wake(Some(Order::Skip { instance: left.to_owned() }));
        assert_eq!(yard.run(), "succeeded", "{left}: {}", yard.report.message);
        let old: Vec<String> = yard
            .groups
            .values()
            .flat_map(|group| &group.machines)
            .filter(|(_, one)| !one.current)
            .map(|(id, _)| id.clone())
            .collect();
        assert_eq!(old, [left]);
        assert!(yard.report.message.contains("left as they are, as told"), "{}", yard.report.message);
    }
}
