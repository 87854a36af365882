//! `slipway logs`.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::json;
use slipway_core::node::logs::MOST_LINES;
use slipway_core::node::{
    BootstrapReport, BootstrapState, HowUnanswered, LogUnit, MachineLogs, Unanswered, UnitLog, Verb, Word,
    is_instance,
};
use slipway_core::role::Role;
use slipway_core::words::{count, moment};
use slipway_flows::recovery;
use slipway_flows::store::{self, NodeObject};

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs};
use crate::failure::CliError;
use crate::members::{self, NoAnswer, in_cloud};
use crate::overview::{plain, reporter};
use crate::printer::Printer;

/// Show what a machine of a cluster in AWS reported about its bootstrap, and the last log lines of its units.
///
/// The lines are read by the agent on the machine, through Run Command: those of the agent itself (`slipway-*`, and user data in `cloud-final`), and
/// of etcd, or of the kubelet and containerd. Logs of pods are not among them. What has the form of a secret is removed before it leaves the machine.
/// The report is shown even if the machine does not answer or is gone.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  shown
  1  there is no such cluster or machine, or the machine gave no logs: it is gone, does not answer, or has an older agent
  2  wrong usage, or NODE is neither an instance id nor a role
  3  something could not be read, or AWS refused

The IAM permissions for this are listed in docs/cli.md. Systems Manager keeps 24,000 bytes of an answer, so not all lines of all units may fit: --unit leaves
the room to one.

Examples:
  slipway logs i-0123456789abcdef0 --cluster prod
  slipway logs etcd-0 --cluster prod --unit etcd --lines 200
  slipway logs i-0123456789abcdef0 --cluster prod --output json | jq -r '.units[].lines[].text'")]
pub(crate) struct Args {
    /// The machine's instance id, or its role, such as `etcd-0`, if only one machine has it.
    #[arg(value_parser = node)]
    node: Whom,
    #[command(flatten)]
    cloud: CloudArgs,
    /// The unit. Default: all that the machine has.
    #[arg(long, value_parser = unit, value_name = "UNIT")]
    unit: Option<LogUnit>,
    /// How many lines of each unit, the newest.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LINES)))]
    lines: u32,
}

/// How a machine is named.
#[derive(Debug, Clone)]
enum Whom {
    Instance(String),
    Role(Role),
}

fn node(text: &str) -> Result<Whom, String> {
    if is_instance(text) {
        return Ok(Whom::Instance(text.to_owned()));
    }
    match text.parse::<Role>() {
        Ok(Role::Admin) | Err(_) => {
            Err("a machine is named by its instance id, such as i-0123456789abcdef0, or by its role: etcd-0, controller, pool-NAME".to_owned())
        }
        Ok(role) => Ok(Whom::Role(role)),
    }
}

fn unit(text: &str) -> Result<LogUnit, String> {
    let names = LogUnit::ALL.map(LogUnit::name).join(", ");
    LogUnit::named(text).ok_or_else(|| format!("the units are {names}"))
}

/// A machine, as far as it is known.
struct Machine {
    role: String,
    instance: String,
    /// Whether Auto Scaling lists it.
    stands: bool,
    /// The key of its report about its bootstrap.
    bootstrap: Option<String>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.as_str();
    let machine = machine(&cloud, &args.node).await?;
    let Machine { role, instance, stands, bootstrap } = &machine;
    let report = match bootstrap {
        Some(key) => {
            store::read_node_object::<BootstrapReport>(cloud.assets(), key, BootstrapReport::MOST_BYTES)
                .await
                .map_err(in_cloud)?
        }
        None => NodeObject::Missing,
    };
    let logs = if *stands {
        let verb = Verb::Logs { unit: args.unit, lines: args.lines };
        let token = format!("logs-{}", Timestamp::now().as_millisecond());
        members::answer::<MachineLogs>(&cloud, instance, verb, &token).await?.map_err(Some)
    } else {
        Err(None)
    };
    let mut text = format!("{instance} ({})\n{}", plain(role), of_bootstrap(&report));
    match &logs {
        Ok(logs) => logs.units.iter().for_each(|unit| text.push_str(&of_unit(unit))),
        Err(why) => {
            let (message, help) = in_words(why.as_ref(), name, instance);
            let _ = writeln!(text, "no logs: {}\n  {}", plain(&message), plain(&help));
        }
    }
    let found = match &report {
        NodeObject::Read(report) => Some(report),
        NodeObject::Missing | NodeObject::Unreadable(_) => None,
    };
    let machine = json!({
        "ok": logs.is_ok(), "cluster": name, "instance": instance, "role": role, "bootstrap": found,
        "units": logs.as_ref().map(|logs| &logs.units).unwrap_or(&Vec::new()),
        "error": logs.as_ref().err().map(|why| {
            let (message, help) = in_words(why.as_ref(), name, instance);
            json!({ "message": message, "help": help })
        }),
    });
    printer.result(&text, &machine);
    Ok(if logs.is_ok() { Exit::Done } else { Exit::Findings })
}

/// Why there are no logs, and what to do. `None`: the machine is gone.
fn in_words(why: Option<&NoAnswer>, cluster: &str, instance: &str) -> (String, String) {
    let Some(why) = why else {
        let help = format!("`slipway status --cluster {cluster}` shows the machines that there are");
        return ("Auto Scaling does not list it any more, so it is gone".to_owned(), help);
    };
    let help = match why {
        NoAnswer::Failed(failure) => return (failure.message.clone(), failure.help.clone()),
        NoAnswer::Unanswered(Unanswered { how: HowUnanswered::NotUnderstood, .. }) => {
            format!("`slipway publish-agent`, then `slipway upgrade agent --cluster {cluster}`")
        }
        NoAnswer::NotSent(_) => {
            "if the installation has no document Slipway-Logs, update it; if Systems Manager does not know the machine, its agent does not run: \
             its console may say why"
                .to_owned()
        }
        NoAnswer::Unanswered(_) | NoAnswer::OfAnotherVerb | NoAnswer::NotInTime => {
            format!("its console may say why: aws ec2 get-console-output --instance-id {instance}")
        }
    };
    (why.to_string(), help)
}

/// The machine that is meant.
async fn machine(cloud: &Cloud, whom: &Whom) -> Result<Machine, CliError> {
    let name = cloud.cluster.as_str();
    let machines =
        recovery::listed_machines(cloud.assets(), &cloud.groups(), name).await.map_err(in_cloud)?;
    let standing = |role: &Role, instance: &str| {
        let (role, instance) = (role.clone(), instance.to_owned());
        async move {
            let bootstrap = reporter(cloud, Some(&role), &instance).await?.and_then(|found| found.bootstrap);
            Ok(Machine { role: role.to_string(), instance, stands: true, bootstrap })
        }
    };
    match whom {
        Whom::Instance(instance) => {
            let listed = machines.iter().find(|(_, of_role)| of_role.contains(instance));
            if let Some((role, _)) = listed {
                return standing(role, instance).await;
            }
            let found = reporter(cloud, None, instance).await?.ok_or_else(|| {
                let problem = format!("{name} has no machine {instance}, and none of that id has reported");
                CliError::refused(problem, format!("`slipway status --cluster {name} --all` lists them"))
            })?;
            let (role, bootstrap) = (found.role, found.bootstrap);
            Ok(Machine { role, instance: instance.clone(), stands: false, bootstrap })
        }
        Whom::Role(role) => {
            let of_role: Vec<&String> = machines.get(role).into_iter().flatten().collect();
            match of_role.as_slice() {
                [one] => standing(role, one).await,
                [] => Err(CliError::refused(
                    format!("Auto Scaling has no machine of {role} of {name}"),
                    format!(
                        "`slipway status --cluster {name} --all` lists the machines, also former ones, by their instance ids"
                    ),
                )),
                many => {
                    let ids: Vec<&str> = many.iter().map(|id| id.as_str()).collect();
                    Err(CliError::refused(
                        format!("{role} has {}: {}", count(many.len(), "machine"), ids.join(", ")),
                        "name one of them by its instance id",
                    ))
                }
            }
        }
    }
}

fn of_bootstrap(report: &NodeObject<BootstrapReport>) -> String {
    let report = match report {
        NodeObject::Read(report) => report,
        NodeObject::Missing => return "bootstrap: it has not reported anything\n".to_owned(),
        NodeObject::Unreadable(why) => {
            return format!("bootstrap: its report cannot be read: {}\n", plain(why));
        }
    };
    let at = moment(report.at);
    let step = report.step.as_deref().map(plain).unwrap_or_default();
    let mut text = match report.state {
        BootstrapState::Healthy => format!("bootstrap: healthy at {at}"),
        BootstrapState::Working => format!("bootstrap: at the step {step} at {at}"),
        BootstrapState::GivenUp => format!("bootstrap: gave up at the step {step} at {at}"),
    };
    if let Some(failure) = &report.failure {
        let _ = write!(text, ": {}\n  {}", plain(&failure.message), plain(&failure.help));
    }
    text.push('\n');
    text
}

fn of_unit(log: &UnitLog) -> String {
    let name = match &log.unit {
        Word::Known(unit) => unit.name().to_owned(),
        Word::Other(other) => plain(other),
    };
    let mut text = format!("{name}: {}", plain(&log.state));
    if log.restarts > 0 {
        let _ = write!(text, ", restarted {}", count(u64::from(log.restarts), "time"));
    }
    text.push('\n');
    if log.left_out > 0 {
        let _ =
            writeln!(text, "  ({} left out: there is no room for more)", count(log.left_out, "earlier line"));
    }
    if log.lines.is_empty() {
        text.push_str("  (nothing in the journal)\n");
    }
    for line in &log.lines {
        let from = line.from.as_deref().map(|from| format!("{}: ", plain(from))).unwrap_or_default();
        let _ = writeln!(text, "  {} {from}{}", moment(line.at), plain(&line.text));
    }
    text
}
