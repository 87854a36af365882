//! `slipway renew --recover`: recovers a cluster whose certificates have expired and whose API is down.
//!
//! [`Recovery`] decides the order of the nodes. This module renews certificates, calls Run Command, and prints what happens.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::role::Role;
use slipway_credentials::Origin;
use slipway_credentials::renewal::RenewalRequest;
use slipway_credentials::renewal::recovery::{Node, Progress, Recovery, Stage};
use slipway_crypto::AwsLc;
use slipway_flows::credentials::rotation::Machines;
use slipway_flows::recovery;
use slipway_flows::scan::{self as scanning, ScanOutcome, ScanPorts};
use tokio::time::sleep;

use super::Args;
use crate::Exit;
use crate::cloud::Cloud;
use crate::commands::scan;
use crate::failure::CliError;
use crate::overview::plain;
use crate::printer::Printer;

/// The pause between two queries of Run Command.
const POLL_PAUSE: Duration = Duration::from_secs(3);

pub(super) async fn run(args: &Args, cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    let now = Timestamp::now();
    let looked = scan::foreseen(cloud, &RenewalRequest::default(), now).await?;
    let expired = looked.decision.standings.iter().filter(|one| one.ends <= now);
    let ours = expired.filter(|one| one.group.is_some() && one.origin == Origin::Generated);
    let names: Vec<String> = match args.names.as_slice() {
        [] => ours.map(|one| one.name.clone()).collect(),
        names => names.to_vec(),
    };
    let machines = recovery::machines(cloud.assets(), &cloud.groups(), &cloud.cluster).await?;
    if args.dry_run {
        let (text, machine) = would(cloud, &names, &machines);
        printer.result(&text, &machine);
        return Ok(Exit::Done);
    }
    let request = RenewalRequest { certificates: names, everything: false, at: Some(now) };
    let failed = renew(args, cloud, &looked.manifest.sealed_under, &request, printer).await?;
    let digests = super::inventory(cloud).await?.bundles.into_iter().map(|(role, one)| (role, one.digest));
    let run = format!("recover-{}", now.as_second());
    let mut recovery = Recovery::new(&run, &machines, &digests.collect(), now);
    bring_back(cloud, &mut recovery, printer).await?;
    let (text, machine) = result(cloud, &recovery, &failed);
    printer.result(&text, &machine);
    Ok(if recovery.is_well() && failed.is_empty() { Exit::Done } else { Exit::Findings })
}

/// Renews what has expired, as a scan does, and announces it on the bus, so that a plan is made too. Returns the failures.
async fn renew(
    args: &Args,
    cloud: &Cloud,
    sealed_under: &str,
    request: &RenewalRequest,
    printer: &Printer,
) -> Result<Vec<String>, CliError> {
    let (specs, bus) = (cloud.specs().await?, args.bus.open(cloud).await?);
    let (keys, groups) = (cloud.keys(sealed_under), cloud.groups());
    let (assets, crypto) = (cloud.assets(), &AwsLc);
    let ports = ScanPorts { specs: &specs, assets, groups: &groups, keys: &keys, bus: &bus, crypto };
    let scanned = match scanning::scan(&ports, &cloud.cluster, request, Timestamp::now()).await? {
        ScanOutcome::Scanned(scanned) => scanned,
        ScanOutcome::Nothing(why) => {
            return Err(CliError::refused(format!("{}: {why}", cloud.cluster), "upload its spec first"));
        }
    };
    let words = match scanned.renewed.as_slice() {
        [] => "no certificate was renewed: none of those in the store has expired".to_owned(),
        renewed => format!("renewed: {}", renewed.join(", ")),
    };
    printer.line(&words, &json!({ "renewed": scanned.renewed }));
    for failed in &scanned.failed {
        let words = format!("not renewed: {}: {}", failed.certificates.join(", "), plain(&failed.message));
        printer.line(&words, &json!({ "notRenewed": failed.certificates, "message": failed.message }));
    }
    Ok(scanned.failed.into_iter().flat_map(|failed| failed.certificates).collect())
}

async fn bring_back(cloud: &Cloud, recovery: &mut Recovery, printer: &Printer) -> Result<(), CliError> {
    let commands = cloud.commands();
    let mut words = String::new();
    loop {
        let now = Timestamp::now();
        let line = |text: &str| {
            let second = now.strftime("%Y-%m-%dT%H:%M:%SZ");
            printer.line(&format!("{second} {}", plain(text)), &json!({ "at": now, "message": text }));
        };
        for message in recovery::turn(&commands, recovery, now).await? {
            line(&message);
        }
        if recovery.stage() == Stage::Over {
            return Ok(());
        }
        let waits = recovery.words();
        if waits != words {
            line(&waits);
            words = waits;
        }
        sleep(POLL_PAUSE).await;
    }
}

fn would(cloud: &Cloud, names: &[String], machines: &Machines) -> (String, Value) {
    let list = |names: &[String]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    let mut text = format!("would be reissued: {}\nwould be refreshed, in this order:\n", list(names));
    let mut order = Vec::new();
    for (role, instances) in machines {
        let instances: Vec<String> = instances.iter().cloned().collect();
        text.push_str(&format!("  {role}: {}\n", list(&instances)));
        order.push(json!({ "role": role, "instances": instances }));
    }
    text.push_str("nothing was changed\n");
    (text, json!({ "ok": true, "cluster": cloud.cluster, "wouldRenew": names, "wouldRefresh": order }))
}

fn result(cloud: &Cloud, recovery: &Recovery, failed: &[String]) -> (String, Value) {
    let state = |node: &Node| match &node.progress {
        Progress::Done => ("back", None),
        Progress::Failed(why) => ("notBack", Some(why.clone())),
        Progress::Waiting(_) | Progress::RenewalRequest(_) => ("notAsked", None),
    };
    let mut counts: BTreeMap<&Role, (usize, usize)> = BTreeMap::new();
    for node in recovery.nodes() {
        let (back, all) = counts.entry(&node.role).or_default();
        *back += usize::from(node.progress == Progress::Done);
        *all += 1;
    }
    let counts: Vec<String> =
        counts.into_iter().map(|(role, (back, all))| format!("{role} {back} of {all}")).collect();
    let mut text = format!("back: {}\n", counts.join(", "));
    if let Some(why) = recovery.ended() {
        text.push_str(&format!("{}\n", plain(why)));
    }
    for node in recovery.nodes() {
        if let (_, Some(why)) = state(node) {
            text.push_str(&format!("{} ({}) is not: {}\n", node.instance, node.role, plain(&why)));
        }
    }
    let well = recovery.is_well() && failed.is_empty();
    text.push_str(&match well {
        true => format!("hand out kubeconfigs again: slipway kubeconfig --cluster {}\n", cloud.cluster),
        false => "once that is fixed, run this again: it continues from here\n".to_owned(),
    });
    let nodes: Vec<Value> = recovery
        .nodes()
        .iter()
        .map(|node| {
            let (state, why) = state(node);
            json!({ "instance": node.instance, "role": node.role, "state": state, "message": why })
        })
        .collect();
    let machine = json!({
        "ok": true, "cluster": cloud.cluster, "well": well, "nodes": nodes, "notRenewed": failed, "ended": recovery.ended(),
    });
    (text, machine)
}
