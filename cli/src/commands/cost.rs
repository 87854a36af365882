//! `slipway cost`.

mod money;
mod prices;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use slipway_aws::Aws;
use slipway_crypto::AwsLc;
use slipway_flows::error::FlowError;
use slipway_plan::Baseline;
use slipway_plan::cost::{Amount, Charge, Choice, Counted, Item, count};
use slipway_sim::memory::MemoryBucket;

use super::render::prepared;
use crate::Exit;
use crate::failure::CliError;
use crate::local::{LocalKeys, LocalRegistry, SiteArgs};
use crate::printer::{Colour, Printer};
use crate::session::SessionArgs;
use crate::settings::Settings;
use crate::source::{PatchArgs, Source, SpecArgs};
use money::Money;
use prices::{HOURS, Lookup, Price};

/// Show what a cluster costs by the month, at AWS' list prices on demand: its machines, volumes, NAT gateways, load balancers, addresses and zones, with its groups at their smallest and at their largest sizes; and Slipway itself.
///
/// Everything is counted in the templates that the spec renders to, with its patches. The prices are those of AWS' price list, for the
/// region of the spec. Nothing is uploaded, and no installation is needed.
///
/// Not counted is what depends on use: data transfer and what NAT gateways and load balancers process, requests, logs, snapshots, Lambda, CPU
/// credits, and what pods make, such as volumes and load balancers. Neither are taxes, discounts, reservations and free tiers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown
  1  the spec was refused, or something could not be counted or has no price, so that the sum is not complete
  2  wrong usage
  3  the spec could not be read, or AWS could not be asked for prices

The IAM permission for this is pricing:GetProducts.

Examples:
  slipway cost cluster.yaml
  slipway cost cluster.yaml --output json | jq .cluster.together")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    #[command(flatten)]
    patches: PatchArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// What an installation has that is charged by the month: its key and its alarms. A test compares it with infra/template.yaml.
const INSTALLATION: [(Charge, u64); 2] = [(Charge::Key, 1), (Charge::Alarm, 13)];

/// How many prices are asked for at a time.
const AT_A_TIME: usize = 4;

/// What was found for each charge: its price, or why there is none.
type Prices = BTreeMap<Charge, Result<Price, String>>;

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.patches)?;
    let cluster = match source.parse() {
        Ok(accepted) => accepted.cluster,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let nothing = MemoryBucket::new("rendered", &cluster.region);
    let (keys, _) = LocalKeys::make(AwsLc)?;
    let site = SiteArgs::default().site(&cluster, None);
    let registry = LocalRegistry::new(false);
    let rendered =
        prepared(&nothing, &keys, &registry, &site, &cluster.name, &source, &Baseline::single_release(None))
            .await?;
    let rendering = match rendered {
        Ok(prepared) => prepared.rendering,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let counted = count(&rendering);
    let settings = Settings::read()?;
    let settings =
        Settings { region: settings.region.clone().or_else(|| Some(cluster.region.clone())), ..settings };
    let aws = args.session.sign_in(&settings).await?;
    let charges = charges(&counted);
    let prices = ask(&aws, &cluster.region, &charges).await?;

    let installation = Counted {
        items: INSTALLATION.map(|(charge, number)| installed(charge, number)).to_vec(),
        ..Counted::default()
    };
    let (of_cluster, of_slipway) = (Bill::new(&counted, &prices), Bill::new(&installation, &prices));
    let complete = of_cluster.missing.is_empty() && of_slipway.missing.is_empty();
    let machine = json!({
        "ok": true,
        "complete": complete,
        "name": cluster.name,
        "region": cluster.region,
        "hours": HOURS,
        "cluster": of_cluster.machine(),
        "slipway": of_slipway.machine(),
    });
    let title = format!(
        "{} in {}: a month of {HOURS} hours at AWS' list prices on demand, with the groups at their smallest and largest sizes\n",
        cluster.name, cluster.region
    );
    let text = title
        + &of_cluster.text(printer)
        + "\nSlipway itself, once for all clusters\n"
        + &of_slipway.text(printer);
    printer.result(&text, &machine);
    Ok(if complete { Exit::Done } else { Exit::Findings })
}

fn installed(charge: Charge, number: u64) -> Item {
    let choices = vec![Choice { charge, amount: Amount::fixed(number) }];
    Item { stack: "slipway".to_owned(), choices, spot: false }
}

fn charges(counted: &Counted) -> BTreeSet<Charge> {
    let of_items = counted.items.iter().flat_map(|item| &item.choices).map(|choice| choice.charge.clone());
    of_items.chain(INSTALLATION.map(|(charge, _)| charge)).collect()
}

async fn ask(aws: &Aws, region: &str, charges: &BTreeSet<Charge>) -> Result<Prices, CliError> {
    let each = charges.iter().map(|charge| async move {
        let lookup = Lookup::for_charge(charge, region);
        let filters = lookup.filters.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let products = aws.products(lookup.service, &filters).await?;
        Ok((charge.clone(), lookup.choose(region, &products)))
    });
    let found: Result<Prices, _> = stream::iter(each).buffered(AT_A_TIME).try_collect().await;
    found.map_err(|error| CliError::from(FlowError::Port(error)).in_cloud())
}

/// An item with what a month of it costs.
struct Line<'a> {
    item: &'a Item,
    /// The price of each choice, and the sums at the smallest and at the largest sizes.
    price: Option<(Vec<&'a Price>, Money, Money)>,
}

/// What some stacks cost.
struct Bill<'a> {
    lines: Vec<Line<'a>>,
    currency: String,
    least: Money,
    most: Money,
    /// What is not in the sums, and why.
    missing: Vec<String>,
}

impl<'a> Bill<'a> {
    fn new(counted: &'a Counted, prices: &'a Prices) -> Self {
        let (mut least, mut most) = (Money::default(), Money::default());
        let mut missing: Vec<String> = counted
            .uncounted
            .iter()
            .map(|one| format!("{} of {}: {}", one.resource, one.stack, one.why))
            .collect();
        let mut lines = Vec::new();
        // In each stack machines come first, then their volumes.
        let mut items: Vec<&Item> = counted.items.iter().collect();
        let stacks: Vec<&str> = items.iter().map(|item| item.stack.as_str()).collect();
        let place = |item: &Item| stacks.iter().position(|stack| *stack == item.stack);
        items.sort_by(|one, other| {
            let [first, second] = [one, other].map(|item| item.choices.first().map(|choice| &choice.charge));
            place(one).cmp(&place(other)).then_with(|| first.cmp(&second))
        });
        for item in items {
            let of_choices = item.choices.iter().map(|choice| match prices.get(&choice.charge) {
                Some(Ok(price)) => Ok(price),
                Some(Err(why)) => Err(why.clone()),
                None => Err("it was not asked for".to_owned()),
            });
            let price = match of_choices.collect::<Result<Vec<&Price>, String>>() {
                Ok(each) => {
                    let sums = |amount_of: fn(&Amount) -> u64| {
                        let pairs = item.choices.iter().zip(&each);
                        pairs.map(move |(choice, price)| {
                            price.per.monthly(price.amount).times(amount_of(&choice.amount))
                        })
                    };
                    let cheapest = sums(|amount| amount.least).min().unwrap_or_default();
                    let dearest = sums(|amount| amount.most).max().unwrap_or_default();
                    (least, most) = (least + cheapest, most + dearest);
                    Some((each, cheapest, dearest))
                }
                Err(why) => {
                    missing.push(format!("{} of {}: {why}", words(item), item.stack));
                    None
                }
            };
            lines.push(Line { item, price });
        }
        let found = lines.iter().filter_map(|line| line.price.as_ref()?.0.first().copied());
        let currency = found.map(|price| price.currency.clone()).next().unwrap_or_default();
        Self { lines, currency, least, most, missing }
    }

    fn text(&self, printer: &Printer) -> String {
        let mut rows: Vec<[String; 3]> = Vec::new();
        let mut stack = "";
        for line in &self.lines {
            if line.item.stack != stack {
                stack = &line.item.stack;
                rows.push([stack.to_owned(), String::new(), String::new()]);
            }
            let (least, most) = match &line.price {
                Some((_, least, most)) => (least.to_string(), most.to_string()),
                None => ("?".to_owned(), "?".to_owned()),
            };
            let unit = line.price.as_ref().map(|(each, ..)| unit_prices(each)).unwrap_or_default();
            rows.push([format!("  {}{unit}", words(line.item)), least, most]);
        }
        let sum = format!("together, {} a month", self.currency);
        rows.push([sum, self.least.to_string(), self.most.to_string()]);
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
        let (first, second, third) = (width(0), width(1), width(2));
        let mut text = String::new();
        for [what, least, most] in &rows {
            let row = format!("{what:<first$}  {least:>second$}  {most:>third$}");
            let _ = writeln!(text, "{}", row.trim_end());
        }
        if self.lines.iter().any(|line| line.item.spot) {
            text.push_str(
                "Spot instances are counted at the price on demand, which they cost at most; their own price changes.\n",
            );
        }
        for missing in &self.missing {
            let _ = writeln!(text, "{}  {missing}", printer.paint(Colour::Yellow, "not counted"));
        }
        text
    }

    fn machine(&self) -> Value {
        let lines = self.lines.iter().map(|line| {
            let choices = line.item.choices.iter().enumerate().map(|(index, choice)| {
                let price = line.price.as_ref().and_then(|(each, ..)| each.get(index).copied());
                json!({
                    "charge": choice.charge,
                    "amount": choice.amount,
                    "price": price.map(|price| price.amount.exact()),
                    "per": price.map(|price| price.per.words()),
                })
            });
            json!({
                "stack": line.item.stack,
                "spot": line.item.spot,
                "choices": choices.collect::<Vec<_>>(),
                "least": line.price.as_ref().map(|(_, least, _)| least.to_string()),
                "most": line.price.as_ref().map(|(.., most)| most.to_string()),
            })
        });
        json!({
            "currency": self.currency,
            "items": lines.collect::<Vec<_>>(),
            "together": { "least": self.least.to_string(), "most": self.most.to_string() },
            "notCounted": self.missing,
        })
    }
}

/// `2 to 5 m7i.large`; of several types each with its own number.
fn words(item: &Item) -> String {
    let each = item.choices.iter().map(|choice| {
        let Amount { least, most } = choice.amount;
        let number = if least == most { least.to_string() } else { format!("{least} to {most}") };
        format!("{number} {}", thing(&choice.charge, most == 1))
    });
    let all = each.collect::<Vec<_>>().join(", or ");
    if item.spot { format!("spot: {all}") } else { all }
}

fn thing(charge: &Charge, single: bool) -> String {
    let plural = |one: &str, several: &str| if single { one.to_owned() } else { several.to_owned() };
    match charge {
        Charge::Machine { instance_type, dedicated: false } => instance_type.clone(),
        Charge::Machine { instance_type, dedicated: true } => {
            format!("{instance_type} on dedicated hardware")
        }
        Charge::Storage { volume_type } => format!("GiB of {volume_type}"),
        Charge::Iops { volume_type } => format!("IOPS of {volume_type}"),
        Charge::Throughput { volume_type } => format!("MiB/s of {volume_type}"),
        Charge::NatGateway => plural("NAT gateway", "NAT gateways"),
        Charge::NetworkLoadBalancer => plural("Network Load Balancer", "Network Load Balancers"),
        Charge::PublicAddress => plural("public IPv4 address", "public IPv4 addresses"),
        Charge::HostedZone => plural("hosted zone", "hosted zones"),
        Charge::Key => plural("KMS key", "KMS keys"),
        Charge::Alarm => plural("alarm", "alarms"),
    }
}

/// What one of each choice costs.
fn unit_prices(each: &[&Price]) -> String {
    let prices: Vec<String> =
        each.iter().map(|price| format!("{} {}", price.amount.exact(), price.per.words())).collect();
    format!(" ({})", prices.join(", or "))
}
