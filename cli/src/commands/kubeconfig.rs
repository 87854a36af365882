//! `slipway kubeconfig`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;
use slipway_core::cluster::Cluster;
use slipway_core::keys;
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_core::words::moment;
use slipway_credentials::Manifest;
use slipway_crypto::AwsLc;
use slipway_flows::error::FlowError;
use slipway_flows::store;
use slipway_ports::{Objects as _, Secret};
use zeroize::Zeroizing;

use crate::Exit;
use crate::cloud::{Cloud, CloudArgs, must_stand};
use crate::failure::CliError;
use crate::printer::Printer;

/// Write a kubeconfig for the administrator of a cluster in AWS, into a file that nobody else may read.
///
/// It contains the client certificate `admin`, which is renewed like the others. Anyone who has it can do anything in the cluster until
/// it expires.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes:
  0  written
  1  there is no such cluster or endpoint, or it was destroyed; its admin certificate has expired, or FILE exists
  2  wrong usage
  3  something could not be read, opened or written

The IAM permissions for this are listed in docs/cli.md.

Examples:
  slipway kubeconfig --cluster prod
  slipway kubeconfig --cluster prod --out ~/.kube/prod --force
  slipway kubeconfig --cluster prod --endpoint internal
  KUBECONFIG=prod.kubeconfig kubectl get nodes")]
pub(crate) struct Args {
    #[command(flatten)]
    cloud: CloudArgs,
    /// The file to write; `-` writes to the standard output. Default: NAME.kubeconfig in the current directory.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Overwrite an existing file.
    #[arg(long)]
    force: bool,
    /// The API endpoint to use, by its name in the spec. Default: one that is reachable from the internet, or else the first.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let cloud = args.cloud.named().await?;
    let name = cloud.cluster.clone();
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.kubeconfig")));
    let to_stdout = out == Path::new("-");
    if !to_stdout && !args.force && out.exists() {
        let problem = format!("{} is there already", out.display());
        return Err(CliError::refused(problem, "name another file with --out, or overwrite it with --force"));
    }
    cloud.known_rollout().await?.as_ref().map_or(Ok(()), must_stand)?;
    let manifest = manifest(&cloud).await.map_err(CliError::in_cloud)?;
    let end = admin_ends(&manifest);
    if let Some(end) = end.filter(|end| *end <= Timestamp::now()) {
        return Err(CliError::refused(
            format!("the certificate of the administrator of {name} expired at {}", moment(end)),
            format!("slipway certs renew admin --cluster {name} --apply --upload"),
        ));
    }
    let server = server(&cloud, args.endpoint.as_deref()).await.map_err(CliError::in_cloud)?;
    let files = opened(&cloud, &manifest).await.map_err(CliError::in_cloud)?;
    let text = kubeconfig(&name, &server, &files)?;
    if to_stdout {
        printer.raw(text.as_bytes());
        return Ok(Exit::Done);
    }
    write(&out, text.as_bytes()).map_err(|error| CliError::file("write", &out, &error))?;
    let until = end.map(|end| format!(", until {}", moment(end))).unwrap_or_default();
    let shown = out.display();
    let text = format!(
        "{shown}: administrator of {name} at {server}{until}\n  KUBECONFIG={shown} kubectl get nodes\n"
    );
    let machine = json!({
        "ok": true, "cluster": name, "file": shown.to_string(), "server": server, "notAfter": end,
    });
    printer.result(&text, &machine);
    Ok(Exit::Done)
}

async fn manifest(cloud: &Cloud) -> Result<Manifest, CliError> {
    let stored = store::load::<Manifest>(cloud.assets(), &keys::manifest(&cloud.cluster)).await?;
    stored.value.ok_or_else(|| {
        let problem = format!("the cluster {} has no credentials yet", cloud.cluster);
        CliError::refused(problem, format!("slipway status --cluster {} says why", cloud.cluster))
    })
}

fn admin_ends(manifest: &Manifest) -> Option<Timestamp> {
    Some(manifest.assets.get("admin")?.certificate.as_ref()?.not_after)
}

/// The URL of the API according to the last planned spec.
async fn server(cloud: &Cloud, wanted: Option<&str>) -> Result<String, CliError> {
    let name = &cloud.cluster;
    let desired = store::load::<Desired>(cloud.assets(), &keys::desired(name)).await?.value;
    let specs = cloud.specs().await?;
    let key = keys::spec(name);
    let object = match &desired {
        Some(desired) => specs.get_version(&key, &desired.spec_version).await,
        None => specs.get(&key).await,
    };
    let spec = object.map_err(FlowError::from)?;
    let cluster = spec.and_then(|spec| Some(slipway_spec::parse(&spec.bytes, None).ok()?.cluster));
    let cluster = cluster.ok_or_else(|| {
        let problem = format!("the spec of the newest plan of {name} is not in s3://{}", specs.name());
        CliError::refused(problem, "upload the spec again, and wait for its plan")
    })?;
    endpoint(&cluster, wanted)
}

fn endpoint(cluster: &Cluster, wanted: Option<&str>) -> Result<String, CliError> {
    let endpoints = &cluster.api_endpoints;
    let chosen = match wanted {
        Some(wanted) => endpoints.iter().find(|endpoint| endpoint.name == wanted),
        None => endpoints.iter().find(|endpoint| !endpoint.load_balancer.private).or(endpoints.first()),
    };
    let chosen = chosen.ok_or_else(|| {
        let names: Vec<&str> = endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
        let problem = format!("{} has no API endpoint {}", cluster.name, wanted.unwrap_or_default());
        CliError::refused(problem, format!("its endpoints are {}", names.join(", ")))
    })?;
    Ok(format!("https://{}", chosen.dns_name))
}

/// The files of a bundle, wiped when dropped.
struct Files(BTreeMap<String, Zeroizing<String>>);

/// The administrator's bundle, opened.
async fn opened(cloud: &Cloud, manifest: &Manifest) -> Result<Files, CliError> {
    #[derive(Deserialize)]
    struct Bundle {
        files: BTreeMap<String, String>,
    }
    let (name, role) = (cloud.cluster.as_str(), Role::Admin);
    let Some(bundle) = manifest.bundles.get(&role) else {
        let problem = format!("the cluster {name} has no bundle for its administrator");
        return Err(CliError::refused(problem, "upload the spec again, which makes what is missing"));
    };
    let key = keys::credentials(name, &role.to_string(), &bundle.digest);
    let corrupt = |problem: &str| FlowError::Corrupt {
        key: key.clone(),
        problem: problem.to_owned(),
        help: "upload the spec again, which seals it anew".to_owned(),
    };
    let sealed = cloud.assets().get(&key).await.map_err(FlowError::from)?;
    let sealed = sealed.ok_or_else(|| corrupt("is lost"))?;
    let keys = cloud.keys(&manifest.sealed_under);
    let opened: Secret = slipway_ports::sealed::open(&keys, &AwsLc, name, &role.to_string(), &sealed.bytes)
        .await
        .map_err(FlowError::from)?;
    // An error of the parser could quote secrets.
    let bundle: Bundle = serde_json::from_slice(opened.expose()).map_err(|_| corrupt("is not a bundle"))?;
    Ok(Files(bundle.files.into_iter().map(|(path, text)| (path, Zeroizing::new(text))).collect()))
}

fn kubeconfig(name: &str, server: &str, Files(files): &Files) -> Result<Zeroizing<String>, CliError> {
    let data = |file: &str| -> Result<Zeroizing<String>, CliError> {
        let text = files.get(file).ok_or_else(|| {
            let problem = format!("the administrator's bundle of {name} lacks {file}");
            CliError::refused(problem, "upload the spec again, which seals it anew")
        })?;
        Ok(Zeroizing::new(STANDARD.encode(text.as_bytes())))
    };
    let (ca, certificate, key) = (data("ca.pem")?, data("admin.pem")?, data("admin-key.pem")?);
    let user = format!("{name}-admin");
    // Formatted by hand, so that no copy of the key remains in a tree of values. Base64 and names need no escaping.
    Ok(Zeroizing::new(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: {user}\n\
         clusters:\n- name: {name}\n  cluster:\n    server: {server}\n    certificate-authority-data: {}\n\
         users:\n- name: {user}\n  user:\n    client-certificate-data: {}\n    client-key-data: {}\n\
         contexts:\n- name: {user}\n  context:\n    cluster: {name}\n    user: {user}\n",
        *ca, *certificate, *key
    )))
}

/// Replaces the file by a new one, so that it is never readable with an older file's permissions.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&draft);
    }
    written
}
