//! All state machines as one page: docs/states.md is written from their tables, whose moves debug builds hold ([`super::table`]). So it shows what
//! really happens.

use super::transitions::{ACTIVITY, LAST_SNAPSHOT, STACK, STACK_DELETION};
use super::{departures, nodes};

/// The page that draws all state machines.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# The states of a rollout\n\nThe test `every_state_is_drawn_as_its_table_has_it` writes this page from the tables in `shared/rollout/src` \
         (tests/tests/documents.rs,\n`UPDATE_DOCS=1 cargo test --workspace --test documents every_state`). A transition that no table \
         has fails\nevery test and every trial of the simulator. Besides the events that the tables name, the tick wakes every state once a \
         minute\nwhile anything is open, and the daily scan wakes a state that has lost its tick.\n\nA command may never be sent, because a \
         person stopped the rollout or because its evidence became too old. The state then returns to `look`,\nexcept for `verify`, which sends \
         its queries again. A resume does the same there, and returns to `look` from the states that only prepare: `snapshot`, `check`\nand `moveLeader`.\n",
    );
    let kinds = nodes::kinds();
    let all = [("A cluster", ACTIVITY), ("A stack of a rollout", STACK)];
    let rest = [
        ("A machine that is removed", departures::TRANSITIONS),
        ("A stack of a cluster that is destroyed", STACK_DELETION),
        ("The last snapshot of a cluster that is destroyed", LAST_SNAPSHOT),
    ];
    for (name, table) in all.into_iter().chain(kinds).chain(rest) {
        page.push_str(&format!("\n## {name}\n\n```mermaid\nstateDiagram-v2\n"));
        page.push_str(&format!("    [*] --> {}\n", table[0].from));
        for row in table {
            row.to.iter().for_each(|to| page.push_str(&format!("    {} --> {to}\n", row.from)));
            if row.to.is_empty() {
                page.push_str(&format!("    {} --> [*]\n", row.from));
            }
        }
        page.push_str("```\n\n| state | what it is | what wakes it |\n|---|---|---|\n");
        for row in table {
            let wakes: Vec<&str> = row.wakes.iter().map(|wakes| wakes.words()).collect();
            let ends = if row.to.is_empty() { "nothing: it is over" } else { "the tick" };
            let wakes = if wakes.is_empty() { ends.to_owned() } else { wakes.join("; ") };
            page.push_str(&format!("| `{}` | {} | {wakes} |\n", row.from, row.meaning));
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::super::transitions::{Transition, leads, step_name};
    use super::*;
    use crate::departures;
    use std::collections::BTreeSet;

    #[test]
    fn every_state_can_be_reached_and_leads_to_an_end() {
        let all = [ACTIVITY, STACK, STACK_DELETION, LAST_SNAPSHOT, departures::TRANSITIONS]
            .into_iter()
            .map(|table| ("", table));
        for (name, table) in nodes::kinds().into_iter().chain(all) {
            let known: BTreeSet<&str> = table.iter().map(|row| row.from).collect();
            let reached: BTreeSet<&str> = table.iter().flat_map(|row| row.to).copied().collect();
            assert!(reached.is_subset(&known), "{name}: {reached:?}");
            let unreached: Vec<&str> =
                table[1..].iter().map(|row| row.from).filter(|at| !reached.contains(at)).collect();
            assert_eq!(unreached, [""; 0], "{name}");
        }
        assert!(leads(STACK, "waiting", "changeSet") && !leads(STACK, "done", "waiting"));
    }

    #[test]
    fn each_state_bears_the_name_that_its_table_has() {
        use crate::destroy::{Inquiry, going_name, snapshot_name};
        use crate::{GoingState, LastSnapshot, Save, StepState, Which};
        let known = |table: &'static [Transition]| table.iter().map(|row| row.from).collect::<Vec<_>>();
        let (now, why) = (jiff::Timestamp::UNIX_EPOCH, || "no".to_owned());
        let steps = [
            StepState::Waiting,
            StepState::ChangeSet,
            StepState::Executing,
            StepState::Done,
            StepState::Failed(why()),
        ];
        assert_eq!(steps.each_ref().map(step_name), known(STACK)[..]);
        let going = [
            GoingState::Stands,
            GoingState::Deleting(now),
            GoingState::Gone,
            GoingState::NotOurs,
            GoingState::Failed(why()),
        ];
        assert_eq!(going.each_ref().map(going_name), known(STACK_DELETION)[..]);
        let key = || "key".to_owned();
        let wanted = |which, save| LastSnapshot::Wanted { which, save, earlier: None };
        let leader = || Save::Leader(Inquiry::new(now));
        let snapshots = [
            wanted(Which::First, leader()),
            LastSnapshot::Taken(key()),
            wanted(Which::Second, leader()),
            wanted(Which::Second, Save::Failed(why())),
            LastSnapshot::Complete(key()),
            LastSnapshot::Kept(key()),
            LastSnapshot::Declined,
            LastSnapshot::Needless,
        ];
        assert_eq!(snapshots.each_ref().map(snapshot_name), known(LAST_SNAPSHOT)[..]);
    }

    #[test]
    fn the_page_draws_each_table_with_what_wakes_its_states() {
        let page = page();
        let drawn = page.split("\n## ").find(|part| part.starts_with("A stack of a rollout\n")).unwrap();
        let expected = "A stack of a rollout

```mermaid
stateDiagram-v2
    [*] --> waiting
    waiting --> changeSet
    waiting --> executing
    waiting --> done
    waiting --> failed
    changeSet --> waiting
    changeSet --> executing
    changeSet --> done
    changeSet --> failed
    executing --> changeSet
    executing --> waiting
    executing --> done
    executing --> failed
    done --> [*]
    failed --> [*]
```

| state | what it is | what wakes it |
|---|---|---|
| `waiting` | it waits for its turn, or for the deletion of an earlier failed creation | the end of an operation on its stack |
| `changeSet` | CloudFormation creates its change set | the tick |
| `executing` | CloudFormation executes the change set | the end of an operation on its stack |
| `done` | the stack is as the plan says | nothing: it is over |
| `failed` | it failed: the rollout ends | nothing: it is over |
";
        assert_eq!(drawn, expected);
        for (state, wakes) in [
            ("leave", "a machine of its group that comes or goes"),
            ("withdraw", "the end of a command"),
            ("gone", "nothing: it is over"),
            ("destructionAborted", "an order, or another spec"),
        ] {
            let mut rows = page.lines().filter(|line| line.starts_with(&format!("| `{state}` |")));
            assert!(rows.any(|row| row.ends_with(&format!(" | {wakes} |"))), "{state}");
        }
        let drawn = page.matches("```mermaid").count();
        assert_eq!(drawn, nodes::kinds().len() + 5);
    }
}
