//! `slipway render`.

mod credentials_only;

use std::collections::BTreeMap;
use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value, json};
use slipway_core::diagnostic::Diagnostic;
use slipway_core::digest::sha256_hex;
use slipway_core::release::{Rendering, Site};
use slipway_crypto::AwsLc;
use slipway_flows::issuer;
use slipway_flows::rendering::{NotPrepared, Prepared, RenderPorts, Running, issue_and_render};
use slipway_plan::Baseline;
use slipway_ports::Objects;

use crate::Exit;
use crate::failure::CliError;
use crate::local::{
    ImagePin, LocalKeys, LocalParameters, LocalRegistry, SiteArgs, Workspace, is_stand_in, pin, stand_ins,
};
use crate::printer::{Printer, Stream};
use crate::source::{PatchArgs, Source, SpecArgs};

pub(super) use credentials_only::{Changed, Rendered};

/// Render a spec into a directory: stacks, user data, sealed credentials.
///
/// Credentials are made once, in DIR/credentials, and sealed under DIR/credentials/local.key. Keep that file secret, and do not lose it.
/// Rendering the same spec again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Images:
  --image pins the machine image of an architecture. Without it templates contain CloudFormation's
  reference {{resolve:ssm:NAME}}, which is resolved when a stack is deployed. In AWS the render
  function pins the image's id instead.

  --resolve queries the registries for the digests of add-on images, once, and pins them.
  Without it, digests of zeros are used as placeholders.

Own authorities:
  Authorities in `certificatesConfiguration.authorities` are read from import/ beside the spec, once. A key's passphrase
  is read from SLIPWAY_CA_KEY_PASSPHRASE (SLIPWAY_ETCD_CA_KEY_PASSPHRASE, …), or asked for on a terminal.

Exit codes:
  0  rendered
  1  the spec was refused, or DIR belongs to another cluster
  2  wrong usage
  3  something could not be read or written

Examples:
  slipway render cluster.yaml --out rendered
  slipway render cluster.yaml --out rendered --image x86_64=ami-0123456789abcdef0
  slipway render cluster.yaml --out rendered --asset-bucket my-assets --kms-key-arn arn:aws:kms:…")]
pub(crate) struct Args {
    #[command(flatten)]
    spec: SpecArgs,
    /// The directory; it is created if necessary.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    with: With,
}

/// What rendering needs besides the spec.
#[derive(Debug, clap::Args)]
pub(crate) struct With {
    /// The machine image of an architecture (x86_64 or arm64), for nodes whose spec names none; may be repeated.
    #[arg(long = "image", value_name = "ARCH=AMI")]
    pub(crate) images: Vec<ImagePin>,
    /// Query registries and publishers for digests. Without this, digests of zeros are used as placeholders.
    #[arg(long)]
    pub(crate) resolve: bool,
    #[command(flatten)]
    pub(crate) patches: PatchArgs,
    #[command(flatten)]
    pub(crate) site: SiteArgs,
}

pub(crate) async fn run(args: &Args, printer: &Printer) -> Result<Exit, CliError> {
    let source = Source::read(args.spec.path(), &args.with.patches)?;
    let cluster = match source.parse() {
        Ok(accepted) => accepted.cluster,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let workspace = Workspace::open(&args.out)?;
    let (folder, site) = workspace.claim(&cluster, &args.with.site)?;
    let keys = keys(&workspace)?;
    workspace.mark(&cluster, &site)?;
    pin(&folder, &cluster, &args.with.images).await?;
    let registry = LocalRegistry::new(args.with.resolve);
    let before = workspace.release()?;
    // The content of the directory stands for the running cluster. Nothing is planned, so its releases need no names.
    let baseline = Baseline { rendering: before, ..Baseline::default() };
    let prepared = match prepared(&folder, &keys, &registry, &site, &cluster.name, &source, &baseline).await?
    {
        Ok(prepared) => prepared,
        Err(findings) => {
            printer.refused(&source, &findings);
            return Ok(Exit::Findings);
        }
    };
    let documents =
        issuer::documents(&folder, &AwsLc, &cluster, &prepared.credentials.manifest, &site).await?;
    let before = baseline.rendering.as_ref();
    let Written { changed, release } = write(&workspace, before, &prepared.rendering, documents)?;
    printer.findings(Stream::Err, &source, &prepared.warnings);
    let machine = json!({
        "ok": true,
        "cluster": cluster.name,
        "directory": args.out.display().to_string(),
        "release": release,
        "stacks": prepared.rendering.stacks.iter().map(|stack| &stack.name).collect::<Vec<_>>(),
        "changed": changed,
        "credentialsMade": prepared.credentials.made,
        "standIns": is_stand_in(&site, &cluster),
        "standInDigests": stand_ins(&prepared.lock),
        "diagnostics": prepared.warnings,
    });
    printer.result(&report(args, &prepared, &release, &changed, &site), &machine);
    Ok(Exit::Done)
}

/// The directory's key file. A new key is made only if no credentials were made under an old one.
pub(super) fn keys(workspace: &Workspace) -> Result<LocalKeys<AwsLc>, CliError> {
    let path = workspace.key_file();
    match LocalKeys::read(AwsLc, &path)? {
        Some(keys) => Ok(keys),
        // If the whole credentials folder is lost, the release still shows that there were credentials.
        None if workspace.has_credentials() || workspace.release()?.is_some() => {
            let problem =
                format!("{} is gone, which opens the credentials that were made here", path.display());
            let help = "bring it back; if it is lost for good, render into a new directory, where new credentials are made: what \
                        runs with the old ones does not trust them";
            Err(CliError::refused(problem, help))
        }
        None => LocalKeys::to_create(AwsLc, &path),
    }
}

/// Runs the rendering of `slipway-flows` with local ports; returns the rendering, or why the spec is refused.
pub(crate) async fn prepared<O: Objects>(
    objects: &O,
    keys: &LocalKeys<AwsLc>,
    registry: &LocalRegistry,
    site: &Site,
    cluster: &str,
    source: &Source,
    against: &Baseline,
) -> Result<Result<Prepared, Vec<Diagnostic>>, CliError> {
    registry.drop_placeholders(objects, cluster).await?;
    // Rendering neither reads the spec bucket nor publishes events.
    let ports = RenderPorts {
        specs: &(),
        assets: objects,
        issuer: None,
        keys,
        parameters: &LocalParameters,
        registry,
        bus: &(),
        crypto: &AwsLc,
    };
    let running = Running { baseline: against.clone(), is_rehearsal: true, ..Running::default() };
    let (imports, now) = (source.imports(true), Timestamp::now());
    let prepared =
        issue_and_render(&ports, &imports, site, cluster, &source.bytes, &source.patches, &running, now)
            .await;
    match prepared {
        Ok(prepared) => Ok(Ok(prepared)),
        Err(NotPrepared::Rejected(findings)) => Ok(Err(findings)),
        Err(NotPrepared::Failed(error)) => Err(error.into()),
    }
}

/// What [`write`] did.
#[derive(Debug)]
pub(super) struct Written {
    /// The names of the changed files.
    pub(super) changed: Vec<String>,
    /// The id of the release.
    pub(super) release: String,
}

/// Writes the files for people, the release last, and removes files that only the previous release had.
pub(super) fn write(
    workspace: &Workspace,
    before: Option<&Rendering>,
    rendering: &Rendering,
    documents: Vec<(String, Vec<u8>)>,
) -> Result<Written, CliError> {
    let files = files(rendering);
    let mut changed = Vec::new();
    let prefix = format!("clusters/{}/", rendering.cluster);
    for (key, bytes) in documents {
        let name = format!("issuer/{}", key.strip_prefix(&prefix).unwrap_or(&key));
        if workspace.write(&name, &bytes)? {
            changed.push(name);
        }
    }
    for (name, bytes) in &files {
        if workspace.write(name, bytes)? {
            changed.push(name.clone());
        }
    }
    // The same release has the same files.
    let before = before.filter(|before| *before != rendering);
    for name in
        before.map(self::files).unwrap_or_default().into_keys().filter(|name| !files.contains_key(name))
    {
        if workspace.remove(&name)? {
            changed.push(name);
        }
    }
    let release = rendering.to_json();
    if workspace.write("release.json", release.as_bytes())? {
        changed.push("release.json".to_owned());
    }
    changed.sort();
    Ok(Written { changed, release: sha256_hex(release.as_bytes()) })
}

/// The files of a rendering with their content.
pub(super) fn files(rendering: &Rendering) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for stack in &rendering.stacks {
        let template: Value = serde_json::from_str(&stack.body).unwrap_or_default();
        files.insert(format!("stacks/{}.json", stack.name), slipway_flows::store::json(&template));
        let of_stack = rendering.roles.iter().filter(|(_, node)| node.stack == stack.name);
        let roles: Vec<String> = of_stack.map(|(role, _)| role.to_string()).collect();
        for script in scripts(&template) {
            let mark = |role: &str| format!("\"role\":\"{role}\"");
            if let Some(role) = roles.iter().find(|role| script.contains(&mark(role))) {
                files.insert(format!("userdata/{role}.sh"), script.into_bytes());
            }
        }
    }
    for (role, node) in &rendering.roles {
        files.insert(format!("nodes/{role}.json"), node.config.clone().into_bytes());
    }
    let addons: Value = serde_json::from_str(&rendering.addons.to_json()).unwrap_or_default();
    files.insert("addons.json".to_owned(), slipway_flows::store::json(&addons));
    files
}

/// The user data of each launch template. Values that only CloudFormation knows appear as `${…}`.
fn scripts(template: &Value) -> Vec<String> {
    let resources = template.get("Resources").and_then(Value::as_object);
    let script = |resource: &Value| {
        let userdata = resource.pointer("/Properties/LaunchTemplateData/UserData")?;
        let text = userdata.get("Fn::Base64")?;
        match text.pointer("/Fn::Join/1").and_then(Value::as_array) {
            Some(parts) => Some(
                parts
                    .iter()
                    .map(|part| part.as_str().map_or_else(|| format!("${{{part}}}"), str::to_owned))
                    .collect(),
            ),
            None => text.as_str().map(str::to_owned),
        }
    };
    resources.into_iter().flat_map(|resources| resources.values()).filter_map(script).collect()
}

fn report(args: &Args, prepared: &Prepared, release: &str, changed: &[String], site: &Site) -> String {
    let rendering = &prepared.rendering;
    let mut text = format!(
        "{} is rendered in {}: {} stacks, {} roles, release {}\n",
        rendering.cluster,
        args.out.display(),
        rendering.stacks.len(),
        rendering.roles.len(),
        &release[..12],
    );
    match prepared.credentials.made.len() {
        0 => {}
        made => text.push_str(&format!(
            "{made} credentials were made; keep credentials/local.key, and keep it secret\n"
        )),
    }
    match changed.len() {
        0 => text.push_str("nothing changed\n"),
        count => text.push_str(&format!("{count} files changed\n")),
    }
    if is_stand_in(site, &prepared.cluster) {
        text.push_str("the templates name a stand-in bucket or key: give --asset-bucket, --kms-key-arn and --issuer-bucket of your installation\n");
    }
    match stand_ins(&prepared.lock) {
        0 => {}
        count => text.push_str(&format!(
            "{count} images and programs have a stand-in for a digest, which no node will take: give --resolve to ask those who publish them\n"
        )),
    }
    text
}
