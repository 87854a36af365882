//! The rules for a worker that a node manager reports to Auto Scaling as unhealthy (docs/nodes.md, "Repair of workers"). They are judged by the
//! facts of the world; the node managers' own judgement is not used.

use jiff::SignedDuration;

use super::Checker;
use crate::world::{Reported, World};

/// For how long the node of a worker has not been Ready, and how long ago another one of its pool was reported, at least.
const UNREADY: SignedDuration = SignedDuration::from_mins(15);
const APART: SignedDuration = SignedDuration::from_mins(15);

impl Checker {
    /// Checks the workers that were reported since the last call.
    pub(super) fn note_reported(&mut self, world: &World) {
        let all = world.reported(&self.cluster);
        for (index, one) in all.iter().enumerate().skip(self.reported) {
            let before = all[..index].iter().rev().find(|before| before.role == one.role);
            self.reported(one, before);
        }
        self.reported = all.len();
    }

    fn reported(&mut self, one: &Reported, before: Option<&Reported>) {
        let id = &one.machine;
        let long = one.unready_since.map(|since| one.at.duration_since(since));
        let why = if !one.role.starts_with("pool-") {
            format!("it is a {}", one.role)
        } else if long.is_none_or(|long| long < UNREADY) {
            "its node was not ready for less than a quarter of an hour".to_owned()
        } else if one.cordoned {
            "its node is cordoned".to_owned()
        } else if one.unready == one.all || one.unready * 100 >= one.all * 55 {
            format!("{} of {} workers are not ready", one.unready, one.all)
        } else if !one.others.is_empty() {
            format!("{} of its pool is still being replaced", one.others.join(", "))
        } else if before.is_some_and(|before| one.at.duration_since(before.at) < APART) {
            "another one of its pool was, less than a quarter of an hour ago".to_owned()
        } else {
            return;
        };
        self.wrong(one.at, "P6", format!("{id} is reported as unhealthy although {why}"));
    }
}
