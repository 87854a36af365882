//! An event bus in memory.

use std::sync::{Arc, Mutex};

use slipway_core::event::Event;
use slipway_flows::ports::Bus;
use slipway_ports::PortResult;

use super::faults::{Faults, Journal, call, lock};

/// A bus that keeps published events until they are taken.
#[derive(Debug, Clone, Default)]
pub struct MemoryBus {
    events: Arc<Mutex<Vec<Event>>>,
    journal: Journal,
    faults: Faults,
}

impl MemoryBus {
    /// An empty bus.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The events that were published and not taken yet, oldest first.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).clone()
    }

    /// Takes the published events, oldest first.
    #[must_use]
    pub fn drain(&self) -> Vec<Event> {
        std::mem::take(&mut lock(&self.events))
    }

    /// The calls that the bus received: `events:PutEvents`, with the cluster of the first event.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Plans faults. The subject of a fault is the cluster of the first event.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.faults
    }
}

impl Bus for MemoryBus {
    async fn publish(&self, events: &[Event]) -> PortResult<()> {
        let Some(first) = events.first() else { return Ok(()) };
        call(&self.journal, &self.faults, "events:PutEvents", first.cluster(), || {
            lock(&self.events).extend_from_slice(events);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_core::event::PlanUnchanged;
    use slipway_ports::ErrorKind;

    use super::super::Fault;
    use super::*;

    #[tokio::test]
    async fn what_was_published_comes_out_once_in_order() {
        let event = |version: &str| {
            Event::PlanUnchanged(PlanUnchanged { cluster: "prod".into(), spec_version: version.into() })
        };
        let bus = MemoryBus::new();
        bus.publish(&[event("1"), event("2")]).await.unwrap();
        bus.faults().plan("events:PutEvents", "prod", Fault::Before(ErrorKind::Transient), 1);
        bus.publish(&[event("3")]).await.unwrap_err();
        bus.publish(&[]).await.unwrap();
        assert_eq!(bus.drain(), [event("1"), event("2")]);
        assert!(bus.drain().is_empty());
        assert_eq!(bus.journal().count("events:PutEvents"), 2);
    }
}
