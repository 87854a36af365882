//! The Price List Query API, which moto does not have: `GetProducts`, in the form of the example in AWS' API reference (botocore's
//! `pricing/2017-10-15/examples-1.json`). The prices are none of AWS': round numbers, by which a test can tell what was multiplied.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A product: service, the attributes by which it can be found besides the region, usage type, and unit, range and price of its rates.
struct Listed {
    service: &'static str,
    attributes: Vec<(&'static str, String)>,
    usage: String,
    rates: Vec<(&'static str, &'static str, String)>,
}

/// What an instance type costs an hour; types that are not here are in no list.
const MACHINES: [(&str, &str); 8] = [
    ("t3.small", "0.02"),
    ("t3.medium", "0.04"),
    ("t3.large", "0.08"),
    ("m6a.large", "0.09"),
    ("m6i.large", "0.10"),
    ("m6i.xlarge", "0.20"),
    ("m7i.large", "0.11"),
    ("m7i.xlarge", "0.22"),
];

fn product(
    service: &'static str,
    attributes: &[(&'static str, &str)],
    usage: &str,
    unit: &'static str,
    price: &str,
) -> Listed {
    Listed {
        service,
        attributes: attributes.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        usage: usage.to_owned(),
        rates: vec![(unit, "0", price.to_owned())],
    }
}

/// The list: what is asked for, and what AWS lists beside it under the same attributes.
fn list() -> Vec<Listed> {
    let mut list = Vec::new();
    for (name, price) in MACHINES {
        for (tenancy, usage) in [("Shared", "BoxUsage"), ("Dedicated", "DedicatedUsage")] {
            for (status, price) in [("Used", price), ("AllocatedCapacityReservation", "0")] {
                let attributes = [
                    ("instanceType", name),
                    ("tenancy", tenancy),
                    ("operatingSystem", "Linux"),
                    ("preInstalledSw", "NA"),
                    ("licenseModel", "No License required"),
                    ("capacitystatus", status),
                    ("marketoption", "OnDemand"),
                ];
                list.push(product("AmazonEC2", &attributes, &format!("{usage}:{name}"), "Hrs", price));
            }
        }
    }
    let gp3 = |family| [("productFamily", family), ("volumeApiName", "gp3")];
    list.push(product("AmazonEC2", &gp3("Storage"), "EBS:VolumeUsage.gp3", "GB-Mo", "0.1"));
    list.push(product("AmazonEC2", &gp3("System Operation"), "EBS:VolumeP-IOPS.gp3", "IOPS-Mo", "0.005"));
    list.push(product(
        "AmazonEC2",
        &gp3("Provisioned Throughput"),
        "EBS:VolumeP-Throughput.gp3",
        "GiBps-mo",
        "40.96",
    ));
    let nat = [("productFamily", "NAT Gateway")];
    list.push(product("AmazonEC2", &nat, "NatGateway-Hours", "Hrs", "0.05"));
    list.push(product("AmazonEC2", &nat, "NatGateway-Bytes", "GB", "0.06"));
    let balancer = [("productFamily", "Load Balancer-Network"), ("locationType", "AWS Region")];
    list.push(product("AWSELB", &balancer, "LoadBalancerUsage", "Hrs", "0.03"));
    list.push(product("AWSELB", &balancer, "LCUUsage", "LCU-Hrs", "0.007"));
    let address = [("group", "VPCPublicIPv4Address")];
    list.push(product("AmazonVPC", &address, "PublicIPv4:InUseAddress", "Hrs", "0.005"));
    list.push(product("AmazonVPC", &address, "PublicIPv4:IdleAddress", "Hrs", "0.006"));
    let mut zone =
        product("AmazonRoute53", &[("productFamily", "DNS Zone")], "HostedZone", "HostedZone", "0.5");
    zone.rates.push(("HostedZone", "25", "0.1".to_owned()));
    list.push(zone);
    list.push(product("awskms", &[("productFamily", "Encryption Key")], "KMS-Keys", "Keys", "1"));
    let alarm = [("productFamily", "Alarm")];
    list.push(product("AmazonCloudWatch", &alarm, "CW:AlarmMonitorUsage", "Alarms", "0.1"));
    list.push(product("AmazonCloudWatch", &alarm, "CW:HighResAlarmMonitorUsage", "Alarms", "0.3"));
    list
}

/// As AWS writes usage types in a region: `EU-` in eu-west-1, nothing in us-east-1; KMS has the region's name.
fn usage_in(region: &str, service: &str, usage: &str) -> String {
    match (region, service) {
        ("", _) | ("us-east-1", _) => usage.to_owned(),
        (region, "awskms") => format!("{region}-{usage}"),
        _ => format!("EU-{usage}"),
    }
}

/// The answer to `GetProducts`.
pub(super) fn answer(asked: &Value) -> Value {
    let filters: BTreeMap<&str, &str> = asked["Filters"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|filter| filter["Type"] == "TERM_MATCH")
        .filter_map(|filter| Some((filter["Field"].as_str()?, filter["Value"].as_str()?)))
        .collect();
    let region = filters.get("regionCode").copied().unwrap_or_default();
    let fits = |one: &&Listed| {
        // A zone belongs to no region.
        let is_everywhere = one.service == "AmazonRoute53";
        let has = |name: &str, value: &str| {
            let own = one.attributes.iter().any(|(own, has)| *own == name && has == value);
            own || (name == "regionCode" && !is_everywhere)
        };
        asked["ServiceCode"] == one.service && filters.iter().all(|(name, value)| has(name, value))
    };
    let all = list();
    let found: Vec<Value> = all
        .iter()
        .filter(fits)
        .enumerate()
        .map(|(at, one)| item(one, region, at).to_string().into())
        .collect();
    json!({ "FormatVersion": "aws_v1", "PriceList": found })
}

fn item(one: &Listed, region: &str, at: usize) -> Value {
    let mut attributes: BTreeMap<&str, String> = one.attributes.iter().cloned().collect();
    let family = attributes.remove("productFamily");
    attributes.insert("usagetype", usage_in(region, one.service, &one.usage));
    let sku = format!("SKU{at}");
    let dimensions: BTreeMap<String, Value> = (1..)
        .zip(&one.rates)
        .map(|(number, (unit, from, price))| {
            let code = format!("{sku}.JRTCKXETXF.{number}");
            let rate = json!({ "unit": unit, "beginRange": from, "endRange": "Inf", "rateCode": code, "appliesTo": [],
                "description": "a price of a test", "pricePerUnit": { "USD": price } });
            (code, rate)
        })
        .collect();
    json!({
        "product": { "productFamily": family, "attributes": attributes, "sku": sku },
        "serviceCode": one.service,
        "terms": { "OnDemand": { format!("{sku}.JRTCKXETXF"): { "priceDimensions": dimensions, "sku": sku,
            "offerTermCode": "JRTCKXETXF", "effectiveDate": "2026-11-01T00:00:00Z", "termAttributes": {} } } },
        "version": "20261101000000",
        "publicationDate": "2026-11-01T00:00:00Z",
    })
}
