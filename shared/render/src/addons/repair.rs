//! What the spec says of the repair of workers, for the node managers. It comes with the add-on that is never turned off, so a change reaches
//! them like a change of an add-on: it replaces no node.

use serde_json::{Value, json};
use slipway_core::repair::Settings;

use super::Kit;

/// The ConfigMap; none if all pools have what the node managers assume without it.
pub(super) fn objects(kit: &Kit<'_, '_>) -> Vec<Value> {
    let settings = settings(kit);
    if settings.pools.is_empty() {
        return Vec::new();
    }
    let text = serde_json::to_string(&settings).expect("settings have string keys only");
    vec![kit.config_map(Settings::NAME, json!({ Settings::KEY: text }))]
}

fn settings(kit: &Kit<'_, '_>) -> Settings {
    let pools = kit.context.cluster.pools.iter().filter(|pool| !pool.repair.is_default());
    Settings { pools: pools.map(|pool| (pool.name.clone(), pool.repair)).collect() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_core::cluster::Cluster;
    use slipway_core::release::StackKind;
    use slipway_core::repair::{Repair, RepairMode};

    use super::*;
    use crate::fixture::{cluster, rendered};

    fn config_map(cluster: &Cluster) -> Option<Value> {
        let access = rendered(cluster).addons.addons.remove(0);
        access.objects.into_iter().find(|object| object["metadata"]["name"] == Settings::NAME)
    }

    fn with(mode: RepairMode, after_minutes: u32) -> Cluster {
        let mut cluster = cluster();
        cluster.pools[1].repair = Repair { mode, after_minutes };
        cluster
    }

    /// Whether the controllers may report workers as unhealthy.
    fn may_repair(cluster: &Cluster) -> Option<Value> {
        let stacks = rendered(cluster).stacks;
        let stack = stacks.iter().find(|stack| stack.kind == StackKind::ControlPlane).unwrap();
        let template: Value = serde_json::from_str(&stack.body).unwrap();
        let statements = &template["Resources"]["ControllerRole"]["Properties"]["Policies"][0]["PolicyDocument"]
            ["Statement"];
        let found = statements.as_array().unwrap().iter();
        found.clone().find(|statement| statement["Sid"] == "ReplaceUnreadyWorkers").cloned()
    }

    #[test]
    fn node_managers_are_told_of_pools_that_differ_from_the_default_and_read_what_is_rendered() {
        assert_eq!(config_map(&cluster()), None);
        let cluster = with(RepairMode::On, 20);
        let object = config_map(&cluster).unwrap();
        assert_eq!(object["metadata"]["namespace"], Settings::NAMESPACE);
        let text = object["data"][Settings::KEY].as_str().unwrap();
        let name = &cluster.pools[1].name;
        assert_eq!(text, format!(r#"{{"pools":{{"{name}":{{"mode":"on","afterMinutes":20}}}}}}"#));
        let read: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(read.for_pool(name), cluster.pools[1].repair);
        assert_eq!(read.for_pool(&cluster.pools[0].name), Repair::default());
    }

    #[test]
    fn p13_controllers_may_mark_workers_of_their_own_cluster_only_if_a_pool_is_to_be_repaired() {
        assert_eq!(may_repair(&cluster()), None);
        assert_eq!(may_repair(&with(RepairMode::Warn, 30)), None);
        assert_eq!(may_repair(&with(RepairMode::Off, 15)), None);
        let statement = may_repair(&with(RepairMode::On, 15)).unwrap();
        assert_eq!(statement["Action"], json!(["autoscaling:SetInstanceHealth"]));
        let name = &cluster().name;
        let groups = statement["Resource"]["Fn::Sub"].as_str().unwrap();
        assert!(groups.ends_with(&format!(":autoScalingGroupName/{name}-pool-*")), "{groups}");
        let tags = json!({ "StringEquals": { "aws:ResourceTag/slipway:cluster": name } });
        assert_eq!(statement["Condition"], tags);
    }

    #[test]
    fn a_changed_setting_changes_no_node() {
        let nodes = |cluster: &Cluster| {
            let rendering = rendered(cluster);
            rendering.roles.into_values().map(|role| (role.config_digest, role.machine)).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&cluster()), nodes(&with(RepairMode::On, 20)));
    }
}
