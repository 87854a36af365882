//! Renews a certificate of a cluster in AWS.
//!
//! Only the stored credentials change, by the conditional writes of `slipway-flows`. Nodes get the certificate by a rollout, and a
//! rollout is planned when a spec is uploaded: the command says so, and uploads it on request.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::json;
use slipway_aws::S3Bucket;
use slipway_core::cluster::{Approval, Cluster};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::Rendering;
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_credentials::renewal::replaced;
use slipway_credentials::{Manifest, manifest, policy};
use slipway_crypto::AwsLc;
use slipway_flows::error::{FlowError, FlowResult};
use slipway_flows::{credentials, store};
use slipway_plan::{Baseline, NodeAction, Plan, RenewalPlan, plan};
use slipway_ports::{Condition, Object, Objects as _, Put};

use super::Args;
use crate::Exit;
use crate::cloud::Cloud;
use crate::failure::CliError;
use crate::printer::Printer;

/// What a renewal has to know of the cluster.
pub(in crate::commands) struct DeployedCluster {
    pub(in crate::commands) cluster: Cluster,
    release: Rendering,
    pub(in crate::commands) manifest: Manifest,
    /// The newest spec.
    pub(in crate::commands) spec: Object,
}

pub(super) async fn run(args: &Args, cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    renew(args, cloud, printer).await.map_err(CliError::in_cloud)
}

async fn renew(args: &Args, cloud: &Cloud, printer: &Printer) -> Result<Exit, CliError> {
    let specs = cloud.specs().await?;
    let standing = deployed_cluster(cloud, &specs).await?;
    let DeployedCluster { cluster, release, manifest, spec } = &standing;
    let now = Timestamp::now();
    let holders = reached(cluster, manifest, &args.name, now)?;
    let foreseen = foreseen(release, &holders, cluster, &args.name);
    let mut machine = json!({
        "ok": true,
        "cluster": cluster.name,
        "assetBucket": cloud.assets().name(),
        "applied": args.apply,
        "newKey": args.new_key,
        "roles": holders,
        "nodes": foreseen.nodes.iter().filter(|node| node.action != NodeAction::Untouched).collect::<Vec<_>>(),
        "stacks": touched(&foreseen),
        "notExecutable": foreseen.not_executable(),
    });
    if !args.apply {
        machine["wouldRenew"] = json!(args.name);
        printer.result(&would(args, &standing, &holders, &foreseen), &machine);
        return Ok(Exit::Done);
    }
    let kms = cloud.keys(&manifest.sealed_under);
    let done =
        credentials::renew(cloud.assets(), &kms, &AwsLc, cluster, &args.name, args.new_key, now).await?;
    let uploaded = match args.upload {
        true => Some(upload(cluster, &specs, spec).await.map_err(|error| only_uploading(&args.name, error))?),
        false => None,
    };
    let (serial, end) = facts(&done.manifest, &args.name);
    machine["renewed"] = json!(args.name);
    machine["serial"] = json!(serial);
    machine["notAfter"] = json!(end);
    machine["uploaded"] = json!(uploaded);
    let sealed: Vec<String> = done.sealed.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{} was issued anew with {}: serial {serial}, until {end}\nchanged credentials: {}\n",
        args.name,
        words_of_key(args),
        sealed.join(", ")
    );
    text.push_str(&next(uploaded, cluster, &specs, &foreseen));
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

/// The cluster as last planned. It fails if something was uploaded since, because neither a renewal nor a stage of a rotation may change
/// anything else.
pub(in crate::commands) async fn deployed_cluster(
    cloud: &Cloud,
    specs: &S3Bucket,
) -> Result<DeployedCluster, CliError> {
    let (assets, name) = (cloud.assets(), cloud.cluster.as_str());
    let Some(desired) = store::load::<Desired>(assets, &keys::desired(name)).await?.value else {
        let problem = format!("nothing was planned yet for the cluster {name}");
        return Err(CliError::refused(problem, "upload its spec, and look at its status.json"));
    };
    let key = keys::spec(name);
    let Some(spec) = specs.get(&key).await.map_err(FlowError::from)? else {
        let problem = format!("there is no s3://{}/{key}", specs.name());
        return Err(CliError::refused(problem, "upload the spec again, and wait for its plan"));
    };
    let cluster = slipway_spec::parse(&spec.bytes, None).map(|accepted| accepted.cluster);
    let planned = if spec.version == desired.spec_version {
        cluster.as_ref().ok().cloned()
    } else {
        let planned = specs.get_version(&key, &desired.spec_version).await.map_err(FlowError::from)?;
        planned.and_then(|planned| Some(slipway_spec::parse(&planned.bytes, None).ok()?.cluster))
    };
    let (Ok(cluster), Some(planned)) = (cluster, planned) else { return Err(not_planned(specs, &key)) };
    if planned != cluster {
        return Err(not_planned(specs, &key));
    }
    let key = keys::release(name, &desired.target);
    let release = store::load::<Rendering>(assets, &key).await?.value;
    let release = release.ok_or_else(|| lost(key, "upload the spec again"))?;
    let key = keys::manifest(name);
    let manifest = store::load::<Manifest>(assets, &key).await?.value;
    let manifest = manifest.ok_or_else(|| lost(key, "bring back its last version (the bucket keeps it)"))?;
    if let Some(wanted) = cluster.kms_key_arn.as_ref().filter(|wanted| **wanted != manifest.sealed_under) {
        let problem = format!(
            "the spec names {wanted}, and the credentials are sealed under {}",
            manifest.sealed_under
        );
        return Err(CliError::refused(
            problem,
            "upload the spec again, which seals them under that key first",
        ));
    }
    if !manifest.sealed_under.starts_with("arn:") {
        let problem =
            format!("the credentials are sealed under {}, which is not a key of KMS", manifest.sealed_under);
        return Err(CliError::refused(problem, "upload the spec, which seals them under a key of KMS first"));
    }
    Ok(DeployedCluster { cluster, release, manifest, spec })
}

fn not_planned(specs: &S3Bucket, key: &str) -> CliError {
    CliError::refused(
        format!(
            "s3://{}/{key} differs from what was planned last, and renewing a certificate changes nothing else",
            specs.name()
        ),
        "see its result in status.json: wait for its plan, or upload a spec that is accepted",
    )
}

fn lost(key: String, help: &str) -> CliError {
    let problem = "is lost, and the deployed cluster refers to it".to_owned();
    FlowError::Corrupt { key, problem, help: help.to_owned() }.into()
}

/// The roles whose bundles contain the certificate; fails as the renewal would.
fn reached(cluster: &Cluster, manifest: &Manifest, name: &str, now: Timestamp) -> FlowResult<BTreeSet<Role>> {
    let refused =
        |error: manifest::PolicyError| FlowError::Refused { problem: error.to_string(), help: error.help() };
    manifest::to_renew(&policy::assets(cluster), manifest, name, now).map_err(refused)?;
    let holders = policy::recipients(cluster).remove(name).unwrap_or_default();
    Ok(holders.into_iter().filter(|role| manifest.bundles.contains_key(role)).collect())
}

/// The plan of the next upload if nothing else changes: the same release with other credentials for `roles`.
fn foreseen(release: &Rendering, roles: &BTreeSet<Role>, cluster: &Cluster, name: &str) -> Plan {
    let mut renewed = release.clone();
    for (role, node) in renewed.roles.iter_mut().filter(|(role, _)| roles.contains(role)) {
        // The new digest is not known before the certificate is made.
        let other = sha256_hex(format!("{role} after {}", node.credentials_digest).as_bytes());
        for stack in renewed.stacks.iter_mut().filter(|stack| stack.name == node.stack) {
            stack.body = stack.body.replace(&node.credentials_digest, &other);
            stack.sha256 = sha256_hex(stack.body.as_bytes());
        }
        node.credentials_digest = other;
    }
    let plan = plan(&Baseline::single_release(Some(release.clone())), &renewed, &cluster.rollout);
    let renewed = roles.iter().map(|role| (role.clone(), vec![name.to_owned()])).collect();
    plan.with_renewal(&RenewalPlan { replaced: replaced(cluster, &renewed), ..RenewalPlan::default() })
}

fn touched(plan: &Plan) -> Vec<&str> {
    let touched = plan.stacks.iter().filter(|stack| !stack.resources.is_empty() || !stack.other.is_empty());
    touched.map(|stack| stack.name.as_str()).collect()
}

/// Uploads the spec unchanged, unless somebody uploaded another one meanwhile. The new version wakes the render function.
pub(in crate::commands) async fn upload(
    cluster: &Cluster,
    specs: &S3Bucket,
    spec: &Object,
) -> Result<bool, CliError> {
    let condition = Condition::Unchanged(spec.etag.clone());
    let put = specs.put(&keys::spec(&cluster.name), spec.bytes.clone(), condition).await;
    Ok(matches!(put.map_err(FlowError::from)?, Put::Written(_)))
}

/// An error after the renewal says that only the upload is missing, so that nobody renews again.
fn only_uploading(name: &str, error: CliError) -> CliError {
    match error.in_cloud() {
        CliError::Cloud { why, help } => {
            let help = help.unwrap_or_default();
            let help =
                format!("{name} was issued anew, and the same spec is still to be uploaded again; {help}");
            CliError::Cloud { why, help: Some(help) }
        }
        other @ (CliError::File { .. }
        | CliError::Refused { .. }
        | CliError::Usage { .. }
        | CliError::Flow(_)) => other,
    }
}

fn facts(manifest: &Manifest, name: &str) -> (String, String) {
    let facts = manifest.assets.get(name).and_then(|entry| entry.certificate.as_ref());
    facts.map(|facts| (facts.serial.clone(), facts.not_after.to_string())).unwrap_or_default()
}

fn words_of_key(args: &Args) -> &'static str {
    if args.new_key { "a new key" } else { "the key that it had" }
}

fn would(args: &Args, standing: &DeployedCluster, holders: &BTreeSet<Role>, foreseen: &Plan) -> String {
    let (serial, end) = facts(&standing.manifest, &args.name);
    let holders: Vec<String> = holders.iter().map(ToString::to_string).collect();
    let mut text = format!(
        "{} (serial {serial}, until {end}) would be issued anew with {}\ncredentials that would change: {}\n",
        args.name,
        words_of_key(args),
        holders.join(", "),
    );
    let _ = writeln!(text, "the rollout after it: {}", foreseen.summary());
    for node in foreseen.nodes.iter().filter(|node| node.action != NodeAction::Untouched) {
        let _ = writeln!(text, "  {} of {}: {}", node.role, node.stack, node.reasons.join("; "));
    }
    if let Some(why) = foreseen.not_executable() {
        let _ = writeln!(text, "that rollout would not begin: {why}");
    }
    text.push_str("nothing was changed; --apply issues it, and --apply --upload begins the rollout too\n");
    text
}

/// What has to happen until nodes have the certificate.
fn next(uploaded: Option<bool>, cluster: &Cluster, specs: &S3Bucket, foreseen: &Plan) -> String {
    let place = format!("s3://{}/{}", specs.name(), keys::spec(&cluster.name));
    let mut text = match uploaded {
        None => format!(
            "no node has it yet, and nothing brings it there by itself: upload the same spec again, which plans the rollout:\n  \
             aws s3 cp {place} cluster.yaml && aws s3 cp cluster.yaml {place}\n"
        ),
        Some(false) => format!(
            "{place} was changed meanwhile, so that it was not uploaded again: what is there plans the rollout, with this \
             certificate unless it was rendered a moment before; status.json says\n"
        ),
        Some(true) => format!("{place} was uploaded again, as it is: Slipway plans the rollout now\n"),
    };
    match (foreseen.not_executable(), cluster.rollout.approval) {
        (Some(why), _) => {
            let _ = writeln!(text, "that rollout will not begin: {why}");
        }
        (None, Approval::Manual) => text.push_str("it waits for an approval (Rollout Approved)\n"),
        (None, Approval::Auto) => {}
    }
    text.push_str(
        "the rollout hands the certificate to launch templates; a node of this version takes it when its machine is replaced: \
         drain it, then terminate it, one at a time. Until then nodes go on with the certificate that they have\n",
    );
    text
}
