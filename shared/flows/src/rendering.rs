//! Rendering: from an uploaded spec, or a change of its patches or credentials, to a plan on the bus or to findings.
//!
//! The *version* of the spec that the event names is rendered, and only while it is the newest: of two uploads that overtake each other
//! the newer is rendered, once. The same holds for the patches, which are read as one set. An upload that changes nothing makes no KMS
//! call and writes no object (P1).

mod findings;
mod preview;
mod publish;
mod renew;
mod standing;
mod upgrade;

use std::fmt;

use findings::{healed, no_agent};
use jiff::Timestamp;
pub use preview::{Foreseen, Preview, preview};
use publish::{is_newest, publish_plan, reject, update_spec_status};
pub(crate) use renew::HeldUp;
use slipway_core::cluster::Cluster;
use slipway_core::diagnostic::{Diagnostic, Severity};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::{Rendering, Site};
use slipway_core::status::{Desired, SpecResult, SpecStatus};
use slipway_credentials::Manifest;
use slipway_plan::{Baseline, Plan};
use slipway_ports::{Crypto, Keys, Listing, Objects, Parameters, Registry};
use slipway_render::lock::Lock;
use slipway_render::{Inputs, RenderError};
use slipway_rollout::Rollout;
use slipway_spec::Places;
use slipway_spec::patch::Patch;
pub(crate) use standing::{newest_accepted, renews_as};
pub use upgrade::{UpgradeOrder, earlier_pins, upgrade};

use crate::credentials::{self, Constraints, Credentials, NodeBundles};
use crate::error::FlowResult;
pub use crate::error::NotPrepared;
use crate::imports::{self, BucketImports, Imports};
use crate::lock::Upgrade;
use crate::patches::PatchSet;
use crate::ports::Bus;
use crate::rollout::{baseline, recall};
use crate::store::{self, TRIES};
use crate::{issuer, lock};

/// The ports that rendering needs.
#[derive(Debug)]
pub struct RenderPorts<'a, S, A, K, P, R, B, C> {
    /// The spec bucket.
    pub specs: &'a S,
    /// The asset bucket.
    pub assets: &'a A,
    /// The public issuer bucket; `None` if the installation has none.
    pub issuer: Option<&'a A>,
    /// KMS.
    pub keys: &'a K,
    /// SSM parameters.
    pub parameters: &'a P,
    /// Registries of add-on images.
    pub registry: &'a R,
    /// The bus.
    pub bus: &'a B,
    /// Keys, certificates, sealing.
    pub crypto: &'a C,
}

/// The ports that rendering needs, as one type parameter: [`RenderPorts`] with any implementations.
pub trait RenderWorld: Sync {
    /// The spec bucket.
    type Specs: Objects + Listing;
    /// The asset bucket, and the issuer bucket.
    type Assets: Objects;
    /// KMS.
    type Keys: Keys;
    /// SSM parameters.
    type Parameters: Parameters;
    /// Registries of the add-ons' images.
    type Registry: Registry;
    /// The bus.
    type Bus: Bus;
    /// Keys, certificates, sealing.
    type Crypto: Crypto;

    /// The ports.
    fn ports(&self) -> PortsOf<'_, Self>;
}

/// The ports of a world.
pub type PortsOf<'a, W> = RenderPorts<
    'a,
    <W as RenderWorld>::Specs,
    <W as RenderWorld>::Assets,
    <W as RenderWorld>::Keys,
    <W as RenderWorld>::Parameters,
    <W as RenderWorld>::Registry,
    <W as RenderWorld>::Bus,
    <W as RenderWorld>::Crypto,
>;

impl<S: Objects + Listing, A: Objects, K: Keys, P: Parameters, R: Registry, B: Bus, C: Crypto> RenderWorld
    for RenderPorts<'_, S, A, K, P, R, B, C>
{
    type Specs = S;
    type Assets = A;
    type Keys = K;
    type Parameters = P;
    type Registry = R;
    type Bus = B;
    type Crypto = C;

    fn ports(&self) -> PortsOf<'_, Self> {
        let Self { specs, assets, issuer, keys, parameters, registry, bus, crypto } = *self;
        RenderPorts { specs, assets, issuer, keys, parameters, registry, bus, crypto }
    }
}

/// An uploaded object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// The folder under `clusters/`.
    pub cluster: String,
    /// Version id.
    pub version: String,
}

/// The result of an upload.
#[derive(Debug, Clone, PartialEq)]
pub enum RenderOutcome {
    /// A newer version exists (or the object is gone), or the patches changed meanwhile: another event takes care of that.
    Superseded,
    /// Patches changed of a cluster without a spec.
    NoSpec,
    /// The spec has errors; nothing changed.
    Rejected(Vec<Diagnostic>),
    /// An order to upgrade that cannot be carried out, and why.
    NotUpgraded(String),
    /// Nothing changes.
    Unchanged,
    /// There is a plan.
    Planned(Box<Plan>),
}

impl fmt::Display for RenderOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpec => f.write_str("patches of a cluster without a spec: left alone"),
            Self::Superseded => f.write_str("superseded by a newer version"),
            Self::Rejected(findings) => write!(f, "rejected with {} findings", findings.len()),
            Self::NotUpgraded(why) => f.write_str(why),
            Self::Unchanged => f.write_str("unchanged"),
            Self::Planned(plan) => write!(f, "planned {}", plan.id),
        }
    }
}

/// What a spec is compared with: what is deployed, and what is being deployed.
#[derive(Debug, Clone, Default)]
pub struct Running {
    /// What is deployed.
    pub baseline: Baseline,
    /// Whether a rollout is in progress.
    pub in_progress: bool,
    /// The target of the rollout in progress.
    pub target: Option<Rendering>,
    /// Whether the spec is the one that was rolled out last, or that is being rolled out. What the installation no longer allows is then a
    /// warning: its certificates have to be renewed all the same.
    pub is_in_use: bool,
    /// Whether no machine boots from the rendering, as it is only written into a directory. A node agent that was not published is then a
    /// warning.
    pub is_rehearsal: bool,
    /// What changes in the lock.
    pub upgrade: Option<Upgrade>,
    /// Whether missing credentials are only foreseen ([`credentials::preview_credentials`]) and not made.
    pub is_preview: bool,
}

impl Running {
    /// The releases that are deployed or being deployed.
    fn deployed_renderings(&self) -> impl Iterator<Item = &Rendering> {
        [&self.baseline.rendering, &self.target].into_iter().flatten()
    }

    /// The bundles that nodes have or will have.
    fn node_bundles(&self) -> NodeBundles {
        let roles = self.deployed_renderings().flat_map(|rendering| &rendering.roles);
        let mut digests = NodeBundles::default();
        for (role, node) in roles {
            digests.entry(role.clone()).or_default().insert(node.credentials_digest.clone());
        }
        digests
    }
}

/// A rendered spec, before it is compared with what is deployed.
#[derive(Debug)]
pub struct Prepared {
    /// The checked spec.
    pub cluster: Cluster,
    /// SHA-256 of its text.
    pub text_sha256: String,
    /// Warnings about it.
    pub warnings: Vec<Diagnostic>,
    /// What the spec was rendered into.
    pub rendering: Rendering,
    /// The credentials in it.
    pub credentials: Credentials,
    /// The pinned versions and digests.
    pub lock: Lock,
}

/// Turns an uploaded spec into a plan on the bus.
///
/// # Errors
/// If a call fails. `status.json` then says so if it can be written, and the cluster stays as it was.
pub async fn render_upload(
    world: &impl RenderWorld,
    site: &Site,
    upload: &Upload,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    render_with(world, site, upload, None, now).await
}

async fn render_with(
    world: &impl RenderWorld,
    site: &Site,
    upload: &Upload,
    order: Option<&UpgradeOrder>,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let mut upload = upload.clone();
    for _ in 0..TRIES {
        match render_once(ports, site, &upload, order, now).await? {
            // The pointer may name an upload that was outdated when it was written, because the run for the newer upload looked before.
            RenderOutcome::Superseded if is_desired(ports.assets, &upload).await? => {
                let Some(head) = ports.specs.head(&keys::spec(&upload.cluster)).await? else { break };
                upload.version = head.version;
            }
            outcome @ (RenderOutcome::Superseded
            | RenderOutcome::NoSpec
            | RenderOutcome::NotUpgraded(_)
            | RenderOutcome::Rejected(_)
            | RenderOutcome::Unchanged
            | RenderOutcome::Planned(_)) => return Ok(outcome),
        }
    }
    Ok(RenderOutcome::Superseded)
}

/// Whether `desired.json` points to a plan of that upload.
async fn is_desired(assets: &impl Objects, upload: &Upload) -> FlowResult<bool> {
    let desired = store::load::<Desired>(assets, &keys::desired(&upload.cluster)).await?.value;
    Ok(desired.is_some_and(|desired| desired.spec_version == upload.version))
}

async fn render_once(
    world: &impl RenderWorld,
    site: &Site,
    upload: &Upload,
    order: Option<&UpgradeOrder>,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let result = render_version(ports, site, upload, order, now).await;
    if let Err(error) = &result
        && is_newest(ports.specs, upload, None).await.unwrap_or(true)
    {
        let failed = SpecStatus {
            version: upload.version.clone(),
            result: SpecResult::Failed,
            diagnostics: Vec::new(),
            failure: Some(format!("{}: {error}", error.kind())),
            plan: None,
            summary: None,
        };
        // The first error is the one to report.
        let _ = update_spec_status(ports.assets, &upload.cluster, failed).await;
    }
    result
}

/// Turns the newest spec of `cluster` into a plan on the bus, after a change of its patches or credentials.
///
/// # Errors
/// As [`render_upload`].
pub async fn render_newest(
    world: &impl RenderWorld,
    site: &Site,
    cluster: &str,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    newest_with(world, site, cluster, None, now).await
}

async fn newest_with(
    world: &impl RenderWorld,
    site: &Site,
    cluster: &str,
    order: Option<&UpgradeOrder>,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let outcome = match ports.specs.head(&keys::spec(cluster)).await? {
        None => Ok(RenderOutcome::NoSpec),
        Some(head) => {
            let upload = Upload { cluster: cluster.to_owned(), version: head.version };
            render_with(ports, site, &upload, order, now).await
        }
    };
    // Credentials may have been renewed for the spec that was accepted last.
    let has_no_plan = match &outcome {
        Ok(RenderOutcome::NoSpec | RenderOutcome::Rejected(_)) => true,
        Ok(
            RenderOutcome::Superseded
            | RenderOutcome::NotUpgraded(_)
            | RenderOutcome::Unchanged
            | RenderOutcome::Planned(_),
        ) => false,
        Err(error) => !error.is_transient(),
    };
    if has_no_plan && order.is_none() {
        let renewed = renew::renew_what_runs(ports, cluster, now).await;
        // The first error is the one to report.
        return outcome.and_then(|outcome| renewed.map(|()| outcome));
    }
    outcome
}

async fn render_version(
    world: &impl RenderWorld,
    site: &Site,
    upload: &Upload,
    order: Option<&UpgradeOrder>,
    now: Timestamp,
) -> FlowResult<RenderOutcome> {
    let ports = &world.ports();
    let key = keys::spec(&upload.cluster);
    let Some(head) = ports.specs.head(&key).await?.filter(|head| head.version == upload.version) else {
        return Ok(RenderOutcome::Superseded);
    };
    let size = usize::try_from(head.size).unwrap_or(usize::MAX);
    if size > slipway_spec::MOST_BYTES {
        return reject(ports, upload, None, vec![slipway_spec::too_large(size)]).await;
    }
    let Some(text) = ports.specs.get_version(&key, &upload.version).await? else {
        return Ok(RenderOutcome::Superseded);
    };

    let rollout = store::load::<Rollout>(ports.assets, &keys::rollout(&upload.cluster)).await?.value;
    let upgrade = match order {
        None => None,
        Some(order) => match upgrade::change_of_pins(ports.assets, rollout.as_ref(), order).await? {
            Ok(upgrade) => Some(upgrade),
            Err(why) => return Ok(RenderOutcome::NotUpgraded(why)),
        },
    };
    if let Some(why) =
        rollout.as_ref().and_then(|rollout| slipway_rollout::destruction_finding(rollout, &upload.version))
    {
        return reject(ports, upload, None, vec![why]).await;
    }
    let in_use = rollout.as_ref().is_some_and(|rollout| rollout.uses_spec(&upload.version));
    let running =
        Running { is_in_use: in_use, upgrade, ..running(ports.assets, &upload.cluster, rollout).await? };
    if let Some(finding) = name_is_taken(ports.specs, ports.assets, &upload.cluster).await? {
        return reject(ports, upload, None, vec![finding]).await;
    }
    let patches = PatchSet::read(ports.specs, &upload.cluster).await?;
    let imports =
        BucketImports { cluster: &upload.cluster, specs: ports.specs, parameters: ports.parameters };
    let prepared =
        issue_and_render(ports, &imports, site, &upload.cluster, &text.bytes, &patches, &running, now).await;
    let prepared = match prepared {
        Ok(prepared) => prepared,
        // The spec was accepted when it was uploaded, and stays so.
        Err(NotPrepared::Rejected(diagnostics)) if order.is_some() => {
            let first = diagnostics.first().map(ToString::to_string).unwrap_or_default();
            return Ok(RenderOutcome::NotUpgraded(format!("nothing was upgraded: {first}")));
        }
        Err(NotPrepared::Rejected(diagnostics)) => {
            return reject(ports, upload, Some(&patches), diagnostics).await;
        }
        Err(NotPrepared::Failed(error)) => return Err(error),
    };
    if let Some(bucket) = ports.issuer {
        let (cluster, manifest) = (&prepared.cluster, &prepared.credentials.manifest);
        let documents = issuer::documents(ports.assets, ports.crypto, cluster, manifest, site).await?;
        issuer::publish(bucket, documents).await?;
    }
    let outcome = publish_plan(ports, upload, &patches, &prepared, running, site, now).await?;
    if let RenderOutcome::Planned(plan) = &outcome
        && renew::is_held_up(ports.assets, plan, &upload.cluster, now).await?
    {
        renew::renew_what_runs(ports, &upload.cluster, now).await?;
    }
    Ok(outcome)
}

/// The most objects of the spec bucket that are looked through for names of clusters.
const MOST_NAMES: usize = 100_000;

/// The finding about the name of a cluster that is new, if another one has the same name but for the case of letters. DNS knows no case: both
/// would have the same part of a hosted zone.
async fn name_is_taken(
    specs: &impl Listing,
    assets: &impl Objects,
    cluster: &str,
) -> FlowResult<Option<Diagnostic>> {
    if assets.head(&keys::desired(cluster)).await?.is_some() {
        return Ok(None);
    }
    for listed in specs.list(keys::CLUSTERS, MOST_NAMES).await? {
        let rest = listed.key.strip_prefix(keys::CLUSTERS).unwrap_or_default();
        let Some((other, "cluster.yaml")) = rest.trim_start_matches('/').split_once('/') else { continue };
        let is_same = other != cluster && other.eq_ignore_ascii_case(cluster);
        // Whoever was accepted first keeps the name.
        if is_same && assets.head(&keys::desired(other)).await?.is_some() {
            return Ok(Some(Diagnostic {
                help: Some("choose a name that differs in more than upper and lower case".to_owned()),
                ..Diagnostic::for_whole_spec(
                    "cluster-name-taken",
                    format!(
                        "a cluster `{other}` exists, and DNS ignores case: both clusters would have the same names in a hosted zone"
                    ),
                )
            }));
        }
    }
    Ok(None)
}

/// A spec with its patches, checked as far as possible without calls.
#[derive(Debug)]
pub struct Checked {
    /// The checked spec.
    pub cluster: Cluster,
    /// Warnings about both.
    pub warnings: Vec<Diagnostic>,
    /// Where each key of the spec is in its text.
    pub places: Places,
    /// The patches, in the order in which they are applied.
    pub patches: Vec<Patch>,
}

/// Checks a spec and its patches.
///
/// # Errors
/// All findings in both.
pub fn check(
    text: &[u8],
    expected: Option<&slipway_spec::Expected<'_>>,
    patches: &PatchSet,
) -> Result<Checked, Vec<Diagnostic>> {
    let (slipway_spec::Accepted { cluster, mut warnings, places }, read) =
        match (slipway_spec::parse(text, expected), patches.parse()) {
            (Ok(accepted), Ok(read)) => (accepted, read),
            (Ok(slipway_spec::Accepted { warnings: mut found, .. }), Err(more))
            | (Err(mut found), Err(more)) => {
                found.extend(more);
                return Err(found);
            }
            (Err(found), Ok(_)) => return Err(found),
        };
    warnings.extend(patches.warnings.clone());
    if !read.is_empty() {
        let (errors, more) = slipway_render::check_patches(&cluster, &read);
        warnings.extend(more);
        if !errors.is_empty() {
            return Err(errors.into_iter().chain(warnings).collect());
        }
    }
    Ok(Checked { cluster, warnings, places, patches: read })
}

/// What is deployed, and what is being deployed.
async fn running(assets: &impl Objects, cluster: &str, rollout: Option<Rollout>) -> FlowResult<Running> {
    let rollout = recall(assets, cluster, rollout).await?;
    let baseline = baseline(assets, &rollout).await?;
    let target = match rollout.active() {
        Some(active) => {
            store::load::<Rendering>(assets, &keys::release(cluster, &active.target)).await?.value
        }
        None => None,
    };
    Ok(Running { baseline, in_progress: rollout.active().is_some(), target, ..Running::default() })
}

/// Checks a spec by itself and against what is deployed, makes the missing credentials, and renders.
///
/// # Errors
/// Findings, or a call that failed.
#[allow(clippy::too_many_arguments, reason = "the world, and what is rendered of it")]
pub async fn issue_and_render<S, A: Objects, K: Keys, P: Parameters, R: Registry, B, C: Crypto>(
    ports: &RenderPorts<'_, S, A, K, P, R, B, C>,
    imports: &impl Imports,
    site: &Site,
    cluster_name: &str,
    text: &[u8],
    patches: &PatchSet,
    running: &Running,
    now: Timestamp,
) -> Result<Prepared, NotPrepared> {
    let expected = slipway_spec::Expected { name: cluster_name, region: site.region.as_deref() };
    let Checked { cluster, mut warnings, places, patches } =
        check(text, Some(&expected), patches).map_err(NotPrepared::Rejected)?;
    let mut refused = places.findings(slipway_spec::allowed::objections(&cluster, site));
    if running.is_in_use {
        refused.iter_mut().for_each(|finding| finding.severity = Severity::Warning);
        warnings.append(&mut refused);
    }
    if !refused.is_empty() {
        return Err(NotPrepared::Rejected(refused.into_iter().chain(warnings).collect()));
    }
    let update = |lock: &Lock| match &running.baseline.rendering {
        Some(rendering) => {
            slipway_plan::skew::check_update(&places, &cluster, lock, rendering, &running.baseline.earlier)
        }
        None => Vec::new(),
    };
    // Machines without an agent boot, and do nothing. For a spec that is in use this is only a warning: its certificates are renewed on the
    // machines that it has.
    let agent_severity =
        if running.is_in_use || running.is_rehearsal { Severity::Warning } else { Severity::Error };
    let without_agent = |lock: &Lock| {
        let missing = lock.missing(&cluster).agent;
        missing.into_iter().map(|one| no_agent(one, agent_severity)).collect::<Vec<_>>()
    };
    let check = |lock: &Lock| {
        let found = [update(lock), without_agent(lock)].concat();
        let grave = found.iter().any(|finding| finding.severity == Severity::Error);
        if grave { Err(NotPrepared::Rejected(found)) } else { Ok(()) }
    };
    // Before anything is stored: a spec whose imports are refused changes nothing.
    let manifest = store::load::<Manifest>(ports.assets, &keys::manifest(&cluster.name)).await?;
    let manifest = manifest.value.unwrap_or_default();
    let imported = imported(ports, imports, &places, &cluster, &manifest, now).await?;
    let present = ports.keys.name(cluster.kms_key_arn.as_deref());
    let former_key = Some(manifest.sealed_under.as_str()).filter(|key| !key.is_empty() && *key != present);
    let etcd = running.baseline.etcd(running.in_progress);
    let stands: Vec<&Rendering> = running.deployed_renderings().collect();
    let upgrade = running.upgrade.as_ref();
    let lock = lock::resolve(
        ports.assets,
        ports.parameters,
        ports.registry,
        &cluster,
        &etcd,
        &stands,
        former_key,
        upgrade,
        now,
        check,
    )
    .await?;
    warnings.extend(update(&lock));
    warnings.extend(without_agent(&lock));
    let known = running.node_bundles();
    let given = Constraints { known: &known, imported: &imported };
    let credentials = match running.is_preview {
        true => credentials::preview_credentials(ports.assets, &cluster, &given, now).await?,
        false => {
            credentials::ensure_with(ports.assets, ports.keys, ports.crypto, &cluster, &given, now).await?
        }
    };
    warnings.extend(credentials.healed.iter().map(healed));
    let inputs = Inputs { patches: &patches, ..Inputs::new(&cluster, &lock, &credentials.digests, site) };
    let rendering = slipway_render::render(&inputs)
        .map_err(|errors| NotPrepared::Rejected(errors.iter().map(RenderError::diagnostic).collect()))?;
    Ok(Prepared { cluster, text_sha256: sha256_hex(text), warnings, rendering, credentials, lock })
}

/// The assets that the spec says are provided and that the cluster does not have yet.
async fn imported<S, A: Objects, K, P, R, B, C: Crypto>(
    ports: &RenderPorts<'_, S, A, K, P, R, B, C>,
    imports: &impl Imports,
    places: &Places,
    cluster: &Cluster,
    manifest: &Manifest,
    now: Timestamp,
) -> Result<credentials::Imported, NotPrepared> {
    let (imported, objections) =
        imports::read(imports, ports.assets, ports.crypto, cluster, manifest, now).await?;
    if objections.is_empty() { Ok(imported) } else { Err(NotPrepared::Rejected(places.findings(objections))) }
}
