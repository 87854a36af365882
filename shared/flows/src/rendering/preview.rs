//! The plan that an upload would result in, without uploading: the same steps as [`super::render_upload`], in which nothing is made or
//! written.

use std::collections::BTreeSet;

use jiff::Timestamp;
use slipway_core::diagnostic::Diagnostic;
use slipway_core::keys;
use slipway_core::release::Site;
use slipway_core::role::Role;
use slipway_core::status::Desired;
use slipway_plan::Plan;
use slipway_ports::{Crypto, Keys, Listing, Objects, Parameters, Registry};
use slipway_rollout::Rollout;

use super::publish::compare;
use super::{NotPrepared, RenderPorts, Running, issue_and_render, name_is_taken, running};
use crate::error::FlowResult;
use crate::imports::Imports;
use crate::overlay::Overlay;
use crate::patches::PatchSet;
use crate::rollout::recall;
use crate::store;

/// In the place of the version that the upload would get: no rollout and no destruction is of it.
const NOT_UPLOADED: &str = "not uploaded";

/// [`Plan::id`] of a plan whose id is derived from credentials that are not made yet.
const NOT_KNOWN: &str = "(its id is known after the upload)";

/// What an upload would result in.
#[derive(Debug, Clone, PartialEq)]
pub enum Preview {
    /// The spec would be refused, for these reasons.
    Rejected(Vec<Diagnostic>),
    /// There would be a plan.
    Planned(Box<Foreseen>),
}

/// The plan that an upload would result in.
#[derive(Debug, Clone, PartialEq)]
pub struct Foreseen {
    /// The plan. Unless [`Self::is_exact`], it has no id yet, and digests in it differ from those of the upload's plan; nothing else does.
    pub plan: Plan,
    /// Whether nothing would have to be rolled out that is not being rolled out already.
    pub unchanged: bool,
    /// The certificates, keys and secrets that would be made.
    pub made: Vec<String>,
    /// The roles whose bundle would be sealed with new content. Its digest, and so the release's, is known only then.
    pub sealed: BTreeSet<Role>,
    /// Warnings about the spec.
    pub warnings: Vec<Diagnostic>,
}

impl Foreseen {
    /// Whether the plan is the upload's to the last digest.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.sealed.is_empty()
    }
}

/// The plan that an upload of `text` with `patches` and `imports` as the spec of `cluster` would result in. Objects and parameters are
/// read, registries are asked for digests that are not pinned yet, and nothing is written, decrypted or published.
///
/// # Errors
/// If a call fails.
#[allow(clippy::too_many_arguments, reason = "the world, and what would be uploaded")]
pub async fn preview<
    S: Objects + Listing,
    A: Objects,
    K: Keys,
    P: Parameters,
    R: Registry,
    B: Sync,
    C: Crypto,
>(
    ports: &RenderPorts<'_, S, A, K, P, R, B, C>,
    imports: &impl Imports,
    site: &Site,
    cluster: &str,
    text: &[u8],
    patches: &PatchSet,
    now: Timestamp,
) -> FlowResult<Preview> {
    let assets = &Overlay::new(ports.assets);
    let stored = store::load::<Rollout>(assets, &keys::rollout(cluster)).await?.value;
    if let Some(why) =
        stored.as_ref().and_then(|rollout| slipway_rollout::destruction_finding(rollout, NOT_UPLOADED))
    {
        return Ok(Preview::Rejected(vec![why]));
    }
    let rollout = recall(assets, cluster, stored.clone()).await?;
    let running = Running { is_preview: true, ..running(assets, cluster, stored).await? };
    if let Some(finding) = name_is_taken(ports.specs, assets, cluster).await? {
        return Ok(Preview::Rejected(vec![finding]));
    }
    let ports = RenderPorts {
        specs: ports.specs,
        assets,
        issuer: None,
        keys: ports.keys,
        parameters: ports.parameters,
        registry: ports.registry,
        bus: ports.bus,
        crypto: ports.crypto,
    };
    let prepared = match issue_and_render(&ports, imports, site, cluster, text, patches, &running, now).await
    {
        Ok(prepared) => prepared,
        Err(NotPrepared::Rejected(findings)) => return Ok(Preview::Rejected(findings)),
        Err(NotPrepared::Failed(error)) => return Err(error),
    };
    let desired = store::load::<Desired>(assets, &keys::desired(cluster)).await?.value;
    let compared = compare(
        ports.specs,
        assets,
        &prepared,
        &running.baseline,
        desired.as_ref(),
        &rollout,
        site,
        NOT_UPLOADED,
        now,
    )
    .await?;
    let mut plan = compared.plan;
    let sealed: BTreeSet<Role> = prepared.credentials.sealed.into_iter().collect();
    if !sealed.is_empty() {
        NOT_KNOWN.clone_into(&mut plan.id);
    }
    Ok(Preview::Planned(Box::new(Foreseen {
        plan,
        unchanged: compared.unchanged,
        made: prepared.credentials.made,
        sealed,
        warnings: prepared.warnings,
    })))
}
