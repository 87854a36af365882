//! Any bytes in the place of a verb's answer: an answer, a failure or why it is none, in time, with no text that is long or that does anything to a
//! terminal.
#![no_main]

mod limit;

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use slipway_core::node::answer::{self, Unreadable};
use slipway_core::node::{CommandStatus, CommandView, Invocation, RestoreOrder, RestoreStage, Verb};
use slipway_core::words::is_harmful;

/// How many characters are kept of a text, and of a list of texts together.
const WORDS: usize = 600;

/// The verb after `verb`. The compiler asks for a new one here.
fn next(verb: &Verb) -> Option<Verb> {
    let node = || "i-0abc".to_owned();
    Some(match verb {
        Verb::Status => Verb::Logs { unit: None, lines: 100 },
        Verb::Logs { .. } => Verb::Refresh { credentials: String::new(), restart: true },
        Verb::Refresh { .. } => Verb::Serves { without: BTreeSet::new() },
        Verb::Serves { .. } => Verb::EtcdHealth,
        Verb::EtcdHealth => Verb::EtcdMoveLeader,
        Verb::EtcdMoveLeader => Verb::EtcdSnapshot,
        Verb::EtcdSnapshot => Verb::EtcdRemove { member: "etcd-4".to_owned() },
        Verb::EtcdRemove { .. } => Verb::EtcdRetire,
        Verb::EtcdRetire => Verb::EtcdRestore(Box::new(RestoreOrder {
            snapshot: String::new(),
            token: String::new(),
            members: BTreeMap::new(),
            bump: 1_000_000_000,
            sha256: None,
            stage: RestoreStage::Whole,
        })),
        Verb::EtcdRestore { .. } => Verb::EtcdDefragment,
        Verb::EtcdDefragment => Verb::Drain { node: node(), for_s: 600, force_after_s: None },
        Verb::Drain { .. } => Verb::Uncordon { node: node() },
        Verb::Uncordon { .. } => return None,
    })
}

fn tame(text: &str, most: usize) {
    assert!(text.chars().count() <= most, "{} characters: {text:.200}", text.chars().count());
    assert!(!text.contains(is_harmful), "{text:?}");
}

/// Every text in it.
fn all_tame(value: &Value) {
    match value {
        Value::String(text) => tame(text, WORDS),
        Value::Array(items) => {
            // They are joined where they are shown.
            let texts = items.iter().filter_map(Value::as_str).map(|text| text.chars().count());
            assert!(texts.sum::<usize>() <= WORDS, "{value}");
            items.iter().for_each(all_tame);
        }
        Value::Object(object) => object.iter().for_each(|(key, value)| {
            tame(key, WORDS);
            all_tame(value);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    // Systems Manager hands over text.
    let printed = String::from_utf8_lossy(bytes);
    for verb in std::iter::successors(Some(Verb::Status), next) {
        let read = limit::in_time(printed.len(), || answer::read(&verb, &printed));
        match &read {
            Ok(outcome) => {
                let again = answer::printed(outcome);
                all_tame(&again);
                assert_eq!(
                    answer::read(&verb, &again.to_string()).as_ref(),
                    Ok(outcome),
                    "printed and read again"
                );
            }
            Err(Unreadable::NoJson) => {}
            Err(Unreadable::Unexpected(why)) => tame(why, WORDS),
        }
        for (status, response_code) in [(CommandStatus::Success, 0), (CommandStatus::Failed, 2)] {
            let invocation =
                Invocation { status, details: "Failed", response_code, printed: &printed, errors: &printed };
            match limit::in_time(printed.len(), || CommandView::read(&verb, &invocation)) {
                CommandView::Answered(answer) => {
                    assert!(status == CommandStatus::Success && read == Ok(Ok(answer)), "{verb:?}");
                }
                CommandView::Failed(failure) => assert_eq!(read, Ok(Err(failure)), "{verb:?}"),
                // The end of each of both outputs, and some words about them.
                CommandView::Unanswered(none) => tame(&none.to_string(), 2 * WORDS + 200),
                CommandView::Pending | CommandView::InProgress => panic!("it has ended"),
            }
        }
    }
});
