//! Whether clients reach the API. Load balancers send requests only to targets that have passed their health checks.

use jiff::Timestamp;

use super::{Checker, GRACE};
use crate::world::ClusterFacts;

/// The number of API servers to which load balancers send requests.
pub(super) fn reached(facts: &ClusterFacts) -> usize {
    facts.api_servers.iter().filter(|id| facts.targets.contains(id)).count()
}

impl Checker {
    pub(super) fn note_targets(&mut self, facts: &ClusterFacts, now: Timestamp) {
        for machine in &facts.targets {
            self.last_target.insert(machine.clone(), now);
        }
        self.last_target.retain(|_, at| now.duration_since(*at) <= GRACE);
    }

    /// P5: a controller is taken down only while load balancers send requests to all controllers that have to stay. An additional one came
    /// before a controller is terminated, so that the full number stays. A controller that is only restarted is missing meanwhile, unless
    /// it is the only one.
    pub(super) fn takes_target(&mut self, id: &str, restart: bool, now: Timestamp) {
        let wanted = self.rules.controllers;
        let needed = if restart && wanted > 1 { wanted - 1 } else { wanted };
        let others = self.last_target.iter().filter(|(other, at)| {
            let stays = *other != id && !self.taken.iter().any(|taken| taken.machine == **other);
            stays && now.duration_since(**at) <= self.grace()
        });
        let count = others.count();
        if count < needed && !(restart && self.has_expired(now)) {
            let what = format!(
                "{id} is taken down while load balancers send to {count} other controllers, of {needed}"
            );
            self.wrong(now, "P5", what);
        }
    }

    /// In a world without faults, the required number of API servers is reachable at every moment. A load balancer whose targets have all
    /// failed their health checks sends requests to all of them (Elastic Load Balancing, Network Load Balancers, "Health checks for Network
    /// Load Balancer target groups").
    pub(super) fn reach(&mut self, facts: &ClusterFacts, needed: usize, now: Timestamp) {
        let reached = reached(facts);
        if reached < needed && !facts.fails_open {
            let wanted = self.rules.controllers;
            self.wrong(now, "P5", format!("load balancers send to {reached} of {wanted} API servers"));
        }
    }
}
