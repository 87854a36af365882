//! How effects are called in the log.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Keeps the fields of the last line.
#[derive(Clone, Default)]
struct LastLine(Arc<Mutex<BTreeMap<String, String>>>);

impl Visit for LastLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.lock().unwrap().insert(field.name().to_owned(), value.to_owned());
    }
}

impl Subscriber for LastLine {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().clear();
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn what_is_given_up_has_a_type_that_the_alarms_count() {
    let line = LastLine::default();
    let error = PortError {
        kind: ErrorKind::Invalid,
        operation: "events:PutEvents",
        subject: "slipway".to_owned(),
        message: "1 entries were refused, InvalidArgument: no".to_owned(),
    };
    tracing::subscriber::with_default(line.clone(), || left_undone("c", &Effect::ArmTick, &error));
    let line = line.0.lock().unwrap();
    // The filter counts `Slipway.*`, but for `*Transient`.
    assert_eq!(line.get("errorType").map(String::as_str), Some("Slipway.LeftUndone"), "{line:?}");
    assert_eq!((line["cluster"].as_str(), line["effect"].as_str()), ("c", "ArmTick"));
}

#[test]
fn an_effect_is_called_in_the_log_what_it_is_called_in_the_state() {
    let (group, instance) = ("c-pool-a".to_owned(), "i-1".to_owned());
    for effect in [
        Effect::ArmTick,
        Effect::DisarmTick,
        Effect::SetDesired { group: group.clone(), desired: 1 },
        Effect::Terminate { group: group.clone(), instance: instance.clone(), then_desired: None },
        Effect::ProlongTermination { group: group.clone(), instance: instance.clone() },
        Effect::CompleteTermination { group, instance },
        Effect::DeleteChangeSet { stack: "c-etcd".to_owned(), name: "n".to_owned() },
    ] {
        let written = format!("{effect:?}");
        let own = written.split([' ', '{', '(']).next();
        assert_eq!(own, Some(name(&effect)));
    }
}
