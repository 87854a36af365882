//! The machines of an Auto Scaling group, with their volumes and addresses.

use serde_json::Value;

use super::{Amount, Charge, Choice, Count, Volume, number};

/// A type that a group may run, and the capacity units that one machine of it counts for.
struct Kind {
    instance_type: String,
    weight: u64,
}

impl Count<'_> {
    pub(super) fn group(&mut self, id: &str, properties: &Value) {
        let policy = &properties["MixedInstancesPolicy"];
        let launch = if policy.is_null() {
            &properties["LaunchTemplate"]
        } else {
            &policy["LaunchTemplate"]["LaunchTemplateSpecification"]
        };
        let template = launch["LaunchTemplateId"]["Ref"].as_str().unwrap_or_default();
        let data = &self.template["Resources"][template]["Properties"]["LaunchTemplateData"];
        let (Some(least), Some(most)) = (number(&properties["MinSize"]), number(&properties["MaxSize"]))
        else {
            return self.unknown(id, "its sizes are not numbers".to_owned());
        };
        let units = Amount { least, most: self.largest.map_or(most, |largest| most.min(largest)) };
        let Some(kinds) = kinds(policy, data) else {
            return self.unknown(id, "its launch template names no instance type".to_owned());
        };
        let dedicated = match data["Placement"]["Tenancy"].as_str() {
            None | Some("default") => false,
            Some("dedicated") => true,
            Some(other) => {
                return self.unknown(id, format!("machines of tenancy {other} are charged by the host"));
            }
        };
        let on_demand = on_demand(policy, units);
        let spot = Amount { least: units.least - on_demand.least, most: units.most - on_demand.most };
        for (units, spot) in [(on_demand, false), (spot, true)] {
            let choices = kinds.iter().map(|kind| Choice {
                charge: Charge::Machine { instance_type: kind.instance_type.clone(), dedicated },
                amount: machines(units, kind),
            });
            self.add_any(choices.collect(), spot);
        }
        let each = kinds.iter().map(|kind| machines(units, kind));
        let number = Amount {
            least: each.clone().map(|amount| amount.least).min().unwrap_or_default(),
            most: each.map(|amount| amount.most).max().unwrap_or_default(),
        };
        for mapping in data["BlockDeviceMappings"].as_array().into_iter().flatten() {
            if let Some(ebs) = mapping.get("Ebs") {
                self.volume(id, Volume::from_properties(ebs, "VolumeSize"), number);
            }
        }
        self.addresses(id, properties, number);
    }

    /// Machines have a public address where their subnet gives one.
    fn addresses(&mut self, id: &str, properties: &Value, number: Amount) {
        let subnets = properties["VPCZoneIdentifier"].as_array();
        let is_public = |subnet: &Value| {
            // A subnet that exists already is named by its id.
            subnet["Fn::ImportValue"].as_str().and_then(|export| self.subnets.get(export)).copied()
        };
        let each: Vec<Option<bool>> = subnets.into_iter().flatten().map(is_public).collect();
        if each.contains(&None) {
            return self.unknown(
                id,
                "whether its machines have public addresses depends on subnets that exist already".to_owned(),
            );
        }
        let public = each.iter().filter(|public| **public == Some(true)).count();
        let amount = match public {
            0 => return,
            all if all == each.len() => number,
            _ => Amount { least: 0, most: number.most },
        };
        self.add(Charge::PublicAddress, amount);
    }
}

/// The types of a group; `None`: none is named.
fn kinds(policy: &Value, data: &Value) -> Option<Vec<Kind>> {
    let overrides = policy["LaunchTemplate"]["Overrides"].as_array().filter(|list| !list.is_empty());
    let own = &data["InstanceType"];
    match overrides {
        None => Some(vec![Kind { instance_type: own.as_str()?.to_owned(), weight: 1 }]),
        Some(overrides) => overrides
            .iter()
            .map(|one| {
                let instance_type = one["InstanceType"].as_str().or(own.as_str())?.to_owned();
                let weight = number(&one["WeightedCapacity"]).filter(|weight| *weight > 0).unwrap_or(1);
                Some(Kind { instance_type, weight })
            })
            .collect(),
    }
}

/// How many machines of one type reach that many capacity units.
fn machines(units: Amount, kind: &Kind) -> Amount {
    Amount { least: units.least.div_ceil(kind.weight), most: units.most.div_ceil(kind.weight) }
}

/// The on-demand part of `units`: the base, then a percentage of the rest, rounded up (Auto Scaling user guide, "Set up a mixed instances
/// group"; the defaults are those of its API reference, InstancesDistribution).
fn on_demand(policy: &Value, units: Amount) -> Amount {
    let distribution = &policy["InstancesDistribution"];
    let base = number(&distribution["OnDemandBaseCapacity"]).unwrap_or(0);
    let percentage = number(&distribution["OnDemandPercentageAboveBaseCapacity"]).unwrap_or(100).min(100);
    let units_on_demand = |units: u64| {
        let base = base.min(units);
        base + ((units - base) * percentage).div_ceil(100)
    };
    Amount { least: units_on_demand(units.least), most: units_on_demand(units.most) }
}
