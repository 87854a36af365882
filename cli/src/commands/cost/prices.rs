//! Where in AWS' price list the price of a charge is, and which of the rates there it is.
//!
//! The attributes are those of AWS' price list; two public tools that look up the same charges agree on them: infracost
//! (`internal/resources/aws`) and a cost scanner; docs/aws.md has the facts. A usage type has a prefix in most regions: `EUW1-NatGateway-Hours`.

use std::collections::BTreeMap;

use slipway_aws::Product;
use slipway_plan::cost::Charge;

use super::money::Money;

/// AWS counts a month as 730 hours (AWS Pricing Calculator).
pub(super) const HOURS: u64 = 730;

/// What to ask the price list, and what to take of the answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    pub(super) service: &'static str,
    pub(super) filters: BTreeMap<&'static str, String>,
    /// The usage type without the region's prefix.
    usage: String,
    per: Per,
}

/// What a price is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Per {
    Hour,
    GibMonth,
    IopsMonth,
    MibpsMonth,
    Month,
}

impl Per {
    /// In AWS' words, and `None` where a month of one thing has a word of its own for each service.
    const fn unit(self) -> Option<&'static str> {
        match self {
            Self::Hour => Some("Hrs"),
            Self::GibMonth => Some("GB-Mo"),
            Self::IopsMonth => Some("IOPS-Mo"),
            // The list has the price of a GiB/s.
            Self::MibpsMonth => Some("GiBps-mo"),
            Self::Month => None,
        }
    }

    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Hour => "an hour",
            Self::GibMonth | Self::IopsMonth | Self::MibpsMonth | Self::Month => "a month",
        }
    }

    /// The price of a month of one.
    pub(super) fn monthly(self, price: Money) -> Money {
        match self {
            Self::Hour => price.times(HOURS),
            Self::GibMonth | Self::IopsMonth | Self::MibpsMonth | Self::Month => price,
        }
    }
}

/// A price of one hour or month of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Price {
    pub(super) amount: Money,
    pub(super) currency: String,
    pub(super) per: Per,
}

impl Lookup {
    pub(super) fn for_charge(charge: &Charge, region: &str) -> Self {
        let ebs = |volume_type: &str| {
            if volume_type == "io1" { "piops".to_owned() } else { volume_type.to_owned() }
        };
        let (service, filters, usage, per): (_, Vec<(&'static str, String)>, _, _) = match charge {
            Charge::Machine { instance_type, dedicated } => {
                let (tenancy, usage) =
                    if *dedicated { ("Dedicated", "DedicatedUsage") } else { ("Shared", "BoxUsage") };
                let filters = [
                    ("instanceType", instance_type.as_str()),
                    ("tenancy", tenancy),
                    ("operatingSystem", "Linux"),
                    ("preInstalledSw", "NA"),
                    ("licenseModel", "No License required"),
                    ("capacitystatus", "Used"),
                    ("marketoption", "OnDemand"),
                ];
                ("AmazonEC2", owned(&filters), format!("{usage}:{instance_type}"), Per::Hour)
            }
            Charge::Storage { volume_type } => {
                let filters = owned(&[("productFamily", "Storage"), ("volumeApiName", volume_type)]);
                ("AmazonEC2", filters, format!("EBS:VolumeUsage.{}", ebs(volume_type)), Per::GibMonth)
            }
            Charge::Iops { volume_type } => {
                let filters = owned(&[("productFamily", "System Operation"), ("volumeApiName", volume_type)]);
                ("AmazonEC2", filters, format!("EBS:VolumeP-IOPS.{}", ebs(volume_type)), Per::IopsMonth)
            }
            Charge::Throughput { volume_type } => {
                let filters =
                    owned(&[("productFamily", "Provisioned Throughput"), ("volumeApiName", volume_type)]);
                ("AmazonEC2", filters, format!("EBS:VolumeP-Throughput.{volume_type}"), Per::MibpsMonth)
            }
            Charge::NatGateway => {
                let filters = owned(&[("productFamily", "NAT Gateway")]);
                ("AmazonEC2", filters, "NatGateway-Hours".to_owned(), Per::Hour)
            }
            Charge::NetworkLoadBalancer => {
                let filters =
                    owned(&[("productFamily", "Load Balancer-Network"), ("locationType", "AWS Region")]);
                ("AWSELB", filters, "LoadBalancerUsage".to_owned(), Per::Hour)
            }
            Charge::PublicAddress => {
                let filters = owned(&[("group", "VPCPublicIPv4Address")]);
                ("AmazonVPC", filters, "PublicIPv4:InUseAddress".to_owned(), Per::Hour)
            }
            // The same everywhere, and so listed for no region.
            Charge::HostedZone => {
                let filters = owned(&[("productFamily", "DNS Zone")]);
                return Self {
                    service: "AmazonRoute53",
                    filters: filters.into_iter().collect(),
                    usage: "HostedZone".to_owned(),
                    per: Per::Month,
                };
            }
            Charge::Key => {
                let filters = owned(&[("productFamily", "Encryption Key")]);
                ("awskms", filters, "KMS-Keys".to_owned(), Per::Month)
            }
            Charge::Alarm => {
                let filters = owned(&[("productFamily", "Alarm")]);
                ("AmazonCloudWatch", filters, "CW:AlarmMonitorUsage".to_owned(), Per::Month)
            }
        };
        let region = [("regionCode", region.to_owned())];
        Self { service, filters: filters.into_iter().chain(region).collect(), usage, per }
    }

    /// The price among what was found: the one of the first units that cost anything. An error says why there is none, or more than one.
    pub(super) fn choose(&self, region: &str, products: &[Product]) -> Result<Price, String> {
        // In us-east-1 there is no prefix; where there is one, whatever has none is something else.
        let usages = |is_it: &dyn Fn(&str) -> bool| -> Vec<&Product> {
            products
                .iter()
                .filter(|one| one.attributes.get("usagetype").is_some_and(|usage| is_it(usage)))
                .collect()
        };
        let mut found = usages(&|usage| usage == self.usage);
        if found.is_empty() {
            found = usages(&|usage| {
                let prefix = usage.strip_suffix(&self.usage).and_then(|prefix| prefix.strip_suffix('-'));
                prefix.is_some_and(|prefix| prefix == region || !prefix.contains('-'))
            });
        }
        let mut prices: Vec<(Money, &str)> = Vec::new();
        for product in found {
            let rates = product
                .rates
                .iter()
                .filter(|rate| self.per.unit().is_none_or(|unit| rate.unit.eq_ignore_ascii_case(unit)));
            let mut tiers: Vec<(Money, Money, &str)> = Vec::new();
            for rate in rates {
                let (Ok(from), Ok(price)) = (rate.from.parse(), rate.price.parse()) else {
                    return Err(format!("AWS' price list has a price that cannot be read: {rate:?}"));
                };
                tiers.push((from, price, &rate.currency));
            }
            tiers.sort();
            // What is free at first is a free tier of the account, or none.
            prices.extend(tiers.iter().find(|tier| tier.1 > Money::default()).map(|tier| (tier.1, tier.2)));
        }
        prices.sort();
        prices.dedup();
        match prices.as_slice() {
            [(price, currency)] => {
                let amount = match self.per {
                    Per::MibpsMonth => price.over(1024),
                    Per::Hour | Per::GibMonth | Per::IopsMonth | Per::Month => *price,
                };
                Ok(Price { amount, currency: (*currency).to_owned(), per: self.per })
            }
            [] => Err(format!("AWS' price list has no price of {} in {region}", self.usage)),
            several => {
                Err(format!("AWS' price list has {} prices of {} in {region}", several.len(), self.usage))
            }
        }
    }
}

fn owned(filters: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    filters.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use slipway_aws::Rate;

    use super::*;

    fn product(usage: &str, rates: &[(&str, &str, &str)]) -> Product {
        let rates = rates.iter().map(|(unit, from, price)| Rate {
            unit: (*unit).to_owned(),
            from: (*from).to_owned(),
            currency: "USD".to_owned(),
            price: (*price).to_owned(),
        });
        let attributes = BTreeMap::from([("usagetype".to_owned(), usage.to_owned())]);
        Product { attributes, rates: rates.collect() }
    }

    fn chosen(charge: &Charge, region: &str, products: &[Product]) -> Result<String, String> {
        Lookup::for_charge(charge, region).choose(region, products).map(|price| price.amount.exact())
    }

    #[test]
    fn a_usage_type_is_its_own_with_or_without_the_regions_prefix() {
        let others = [
            product("EUW1-Outposts-LoadBalancerUsage", &[("Hrs", "0", "9")]),
            product("EUW1-TS-LoadBalancerUsage", &[("Hrs", "0", "8")]),
            product("EUW1-RegionalNatGateway-Hours", &[("Hrs", "0", "7")]),
            product("EUW1-LCUUsage", &[("LCU-Hrs", "0", "6")]),
        ];
        let with =
            |usage: &str, price: &str| [&others[..], &[product(usage, &[("Hrs", "0", price)])]].concat();
        let balancer = Charge::NetworkLoadBalancer;
        assert_eq!(
            chosen(&balancer, "eu-west-1", &with("EUW1-LoadBalancerUsage", "0.0252")),
            Ok("0.0252".to_owned())
        );
        assert_eq!(
            chosen(&balancer, "eu-west-1", &with("EU-LoadBalancerUsage", "0.0252")),
            Ok("0.0252".to_owned())
        );
        // There it has no prefix, and what has one is something else.
        let of_traffic = product("TS-LoadBalancerUsage", &[("Hrs", "0", "5")]);
        let there = [product("LoadBalancerUsage", &[("Hrs", "0", "0.0225")]), of_traffic];
        assert_eq!(chosen(&balancer, "us-east-1", &there), Ok("0.0225".to_owned()));
        assert_eq!(
            chosen(&Charge::NatGateway, "eu-west-1", &with("EU-NatGateway-Hours", "0.048")),
            Ok("0.048".to_owned())
        );
        let key = [product("eu-west-1-KMS-Keys", &[("Keys", "0", "1.0000000000")])];
        assert_eq!(chosen(&Charge::Key, "eu-west-1", &key), Ok("1.0".to_owned()));
        assert!(
            chosen(&Charge::NatGateway, "eu-west-1", &others)
                .unwrap_err()
                .contains("no price of NatGateway-Hours")
        );
    }

    #[test]
    fn the_first_units_that_cost_anything_set_the_price() {
        let zone = [product("HostedZone", &[("HostedZone", "25", "0.10"), ("HostedZone", "0", "0.50")])];
        assert_eq!(chosen(&Charge::HostedZone, "eu-west-1", &zone), Ok("0.5".to_owned()));
        let alarms = [product(
            "EU-CW:AlarmMonitorUsage",
            &[("Alarms", "0", "0.0000000000"), ("Alarms", "10", "0.1000000000")],
        )];
        assert_eq!(chosen(&Charge::Alarm, "eu-west-1", &alarms), Ok("0.1".to_owned()));
        // AWS lists the price of a GiB/s.
        let throughput = Charge::Throughput { volume_type: "gp3".to_owned() };
        let listed = [product("EU-EBS:VolumeP-Throughput.gp3", &[("GiBps-mo", "0", "45.056")])];
        assert_eq!(chosen(&throughput, "eu-west-1", &listed), Ok("0.044".to_owned()));
    }

    #[test]
    fn a_price_that_is_not_clear_is_none() {
        let nat = |rates: &[(&str, &str, &str)]| [product("NatGateway-Hours", rates)];
        let charge = Charge::NatGateway;
        assert!(
            chosen(&charge, "us-east-1", &nat(&[("GB", "0", "0.045")])).unwrap_err().contains("no price")
        );
        assert!(
            chosen(&charge, "us-east-1", &nat(&[("Hrs", "0", "free")]))
                .unwrap_err()
                .contains("cannot be read")
        );
        let two = [nat(&[("Hrs", "0", "0.045")]), nat(&[("Hrs", "0", "0.050")])].concat();
        assert!(chosen(&charge, "us-east-1", &two).unwrap_err().contains("2 prices"));
        let alike = [nat(&[("Hrs", "0", "0.045")]), nat(&[("Hrs", "0", "0.0450")])].concat();
        assert_eq!(chosen(&charge, "us-east-1", &alike), Ok("0.045".to_owned()));
    }

    #[test]
    fn machines_are_asked_for_by_what_they_run_on() {
        let machine = |dedicated| Charge::Machine { instance_type: "m7i.large".to_owned(), dedicated };
        let shared = Lookup::for_charge(&machine(false), "eu-west-1");
        assert_eq!((shared.service, shared.usage.as_str()), ("AmazonEC2", "BoxUsage:m7i.large"));
        assert_eq!(shared.filters["regionCode"], "eu-west-1");
        assert_eq!(shared.filters["tenancy"], "Shared");
        let dedicated = Lookup::for_charge(&machine(true), "eu-west-1");
        assert_eq!(
            (dedicated.filters["tenancy"].as_str(), dedicated.usage.as_str()),
            ("Dedicated", "DedicatedUsage:m7i.large")
        );
        assert!(!Lookup::for_charge(&Charge::HostedZone, "eu-west-1").filters.contains_key("regionCode"));
    }
}
