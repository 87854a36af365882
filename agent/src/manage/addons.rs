//! The add-ons: applied in order, again and again, and deleted when they are no longer wanted.

use jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::Scope;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, Installed};

use super::ledger::Ledger;
use super::objects::{kind, namespace_and_name, resource};
use super::sources::Library;
use super::{MANAGER, prune, stored};
use crate::api::failed;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// How long after a complete run the next one starts, which also reverts changes that others made meanwhile.
const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// The state of a run in which objects could not be applied, and of the passes before the next try.
pub(super) const INCOMPLETE: &str = "incomplete";
pub(super) const RESTING: &str = "resting";

/// The object `clusters/<name>/addons/<digest>.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddonFile {
    format: u32,
    addons: Vec<Installed>,
}

/// Applies the add-ons that the pointer names, if that is due.
pub(super) async fn apply_all(client: &Client, library: &impl Library, cluster: &str) -> AgentResult<Value> {
    let Some(pointer) = library.get(&keys::addons_pointer(cluster)).await? else {
        return Ok(json!({ "state": "none", "why": "no rollout has ended yet" }));
    };
    let pointer = read_pointer(&pointer)?;
    let mut kept = stored::read::<Ledger>(client).await?;
    if kept.record.generation > pointer.generation {
        let later = kept.record.generation;
        return Ok(json!({ "state": "left", "why": format!("generation {later} was begun meanwhile") }));
    }
    let now = Timestamp::now();
    if kept.record.is_fresh(&pointer.digest, now, FRESH) {
        return Ok(json!({ "state": "fresh", "digest": pointer.digest, "addons": kept.record.addons }));
    }
    if kept.record.is_backing_off(&pointer.digest, now, FRESH) {
        return Ok(
            json!({ "state": RESTING, "digest": pointer.digest, "why": "the last try failed, see its answer" }),
        );
    }
    let addon_file = read_addons(library, cluster, &pointer.digest).await?;
    let objects: Vec<&Value> = addon_file.addons.iter().flat_map(|addon| &addon.objects).collect();

    // Recorded before the first object is applied, so that pruning covers its kind even if this run dies.
    let begun = Ledger {
        generation: pointer.generation,
        digest: String::new(),
        kinds: kept.record.kinds.iter().cloned().chain(objects.iter().map(|object| kind(object))).collect(),
        ..kept.record.clone()
    };
    if kept.record.kinds != begun.kinds || kept.record.generation != begun.generation {
        kept.record = begun;
        if !kept.write(client).await? {
            return Ok(json!({ "state": "left", "why": "another controller is at it" }));
        }
    }

    let mut failures = Vec::new();
    for object in &objects {
        if let Err(failure) = apply(client, object).await {
            failures.push(json!({ "object": display_name(object), "error": failure }));
        }
    }
    if !failures.is_empty() {
        // If another controller wrote it meanwhile, it has tried too.
        kept.record.record_failure(&pointer.digest, Timestamp::now());
        kept.write(client).await?;
        return Ok(json!({ "state": INCOMPLETE, "digest": pointer.digest, "failures": failures }));
    }
    let gone = match stored::read::<Ledger>(client).await? {
        // A later generation decides what is wanted.
        later if later.record.generation > pointer.generation => prune::Pruned::default(),
        _ => prune::prune(client, &kept.record.kinds, &objects).await?,
    };
    kept.record.digest.clone_from(&pointer.digest);
    kept.record.applied_at = Some(now);
    kept.record.failed = None;
    kept.record.addons =
        addon_file.addons.iter().map(|addon| (addon.name.clone(), addon.version.clone())).collect();
    kept.write(client).await?;
    Ok(json!({
        "state": "applied",
        "digest": pointer.digest,
        "generation": pointer.generation,
        "addons": kept.record.addons,
        "objects": objects.len(),
        "pruned": gone.pruned,
        "left": gone.left,
    }))
}

fn read_pointer(bytes: &[u8]) -> AgentResult<AddonsPointer> {
    let pointer: AddonsPointer =
        serde_json::from_slice(bytes).map_err(|error| damaged("addons.json", &error.to_string()))?;
    if pointer.format != AddonsPointer::FORMAT {
        return Err(damaged("addons.json", &format!("its format is {}", pointer.format)));
    }
    Ok(pointer)
}

async fn read_addons(library: &impl Library, cluster: &str, digest: &str) -> AgentResult<AddonFile> {
    let key = keys::addons(cluster, digest);
    let bytes = library.get(&key).await?;
    let bytes = bytes.ok_or_else(|| damaged(&key, "it is missing, or this node's role may not read it"))?;
    let found = sha256_hex(&bytes);
    if found != digest {
        return Err(damaged(&key, &format!("its SHA-256 is {found}")));
    }
    let addon_file: AddonFile =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&key, &error.to_string()))?;
    if addon_file.format != slipway_core::release::AddonSet::FORMAT {
        return Err(damaged(&key, &format!("its format is {}", addon_file.format)));
    }
    // An empty list would delete everything, and is never rendered.
    if addon_file.addons.iter().all(|addon| addon.objects.is_empty()) {
        return Err(damaged(&key, "it contains no object"));
    }
    Ok(addon_file)
}

fn damaged(what: &str, problem: &str) -> AgentError {
    AgentError::lasting(
        FailureCode::ManageAddons,
        format!("{what}: {problem}"),
        "upload cluster.yaml again, which renders the add-ons again; if the format is newer than this agent, roll the controllers",
    )
}

fn display_name(object: &Value) -> String {
    let ((_, kind), (namespace, name)) = (kind(object), namespace_and_name(object));
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

async fn apply(client: &Client, object: &Value) -> AgentResult<()> {
    let (kind, (namespace, name)) = (kind(object), namespace_and_name(object));
    let Some((resource, scope)) = resource(client, &kind).await? else {
        return Err(AgentError::passing(
            FailureCode::ManageUnknownKind,
            format!("the API server knows no {} {}", kind.0, kind.1),
            "the add-on that defines the kind must be applied first; the next pass tries again",
        ));
    };
    let api: Api<DynamicObject> = match scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.map(|_| ()).map_err(|error| failed(&display_name(object), &error))
}
