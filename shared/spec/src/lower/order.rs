//! When each pool is rolled, and how.

use std::collections::{BTreeMap, BTreeSet};

use slipway_core::cluster::{CountOrPercent, NodePool, PoolRollout};

use super::Lowering;
use super::network::Draft;
use crate::model::PoolStrategySpec;
use crate::path::Path;

/// A pool, its strategy, and its zones in order.
struct Turn<'p> {
    name: &'p str,
    strategy: PoolStrategySpec,
    zones: BTreeSet<&'p str>,
}

impl Lowering<'_, '_, '_> {
    /// The rollout settings of each pool that differ from `rollout`, whose shares are `general`.
    pub(super) fn pool_rollouts(
        &mut self,
        pools: &[NodePool],
        network: &Draft,
        general: [Option<CountOrPercent>; 2],
    ) -> BTreeMap<String, PoolRollout> {
        let worker = &self.spec.worker;
        let strategy = worker.node_pool_rolling_strategy.unwrap_or(PoolStrategySpec::Parallel);
        let position =
            |name: &str| worker.node_pools.iter().position(|spec| spec.name.as_deref() == Some(name));
        let turns: Vec<Turn<'_>> = pools
            .iter()
            .map(|pool| {
                let own =
                    position(&pool.name).and_then(|at| worker.node_pools[at].node_pool_rolling_strategy);
                let subnets = pool.subnets.iter().filter_map(|name| network.subnet(name));
                Turn {
                    name: &pool.name,
                    strategy: own.unwrap_or(strategy),
                    zones: subnets.map(|subnet| subnet.availability_zone.as_str()).collect(),
                }
            })
            .collect();
        let mut rollouts = BTreeMap::new();
        for (index, pool) in pools.iter().enumerate() {
            let mut rollout = PoolRollout { after: after(&turns, index), ..PoolRollout::default() };
            if let Some(at) = position(&pool.name) {
                let spec = &worker.node_pools[at].rollout;
                let path = Path::parse("worker.nodePools").index(at).key("rollout");
                rollout.drain_force_after_min = spec.drain.force_after_minutes;
                let mut own = |text: Option<_>, key: &str| {
                    text.and_then(|text| self.share(Some(text), 0, &path.key(key)))
                };
                rollout.max_unavailable = own(spec.max_unavailable.as_ref(), "maxUnavailable");
                rollout.surge = own(spec.surge.as_ref(), "surge");
                if rollout.max_unavailable.is_some() || rollout.surge.is_some() {
                    let [max_unavailable, surge] = general;
                    self.moves([rollout.max_unavailable.or(max_unavailable), rollout.surge.or(surge)], &path);
                }
            }
            if rollout != PoolRollout::default() {
                rollouts.insert(pool.name.clone(), rollout);
            }
        }
        rollouts
    }
}

/// The pools that the one at `index` waits for. Those that follow zones wait for one another only, in the order of the zones;
/// those that follow the spec's order wait for the pools before them, so no pool waits for itself.
fn after(turns: &[Turn<'_>], index: usize) -> Vec<String> {
    let this = &turns[index];
    let names = |turns: &mut dyn Iterator<Item = &Turn<'_>>| turns.map(|turn| turn.name.to_owned()).collect();
    match this.strategy {
        PoolStrategySpec::Parallel => Vec::new(),
        PoolStrategySpec::Sequential => names(&mut turns[..index].iter()),
        // Zones compare as words do, those of a pool in several one after the other.
        PoolStrategySpec::AvailabilityZone => names(&mut turns.iter().filter(|other| {
            other.strategy == PoolStrategySpec::AvailabilityZone && other.zones < this.zones
        })),
    }
}
