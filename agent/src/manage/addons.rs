//! The add-ons: applied in their order, again and again, and taken away when they are no longer wanted.

use jiff::{SignedDuration, Timestamp};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, Installed};

use super::cluster::Library;
use super::ledger::{self, Ledger};
use super::{MANAGER, prune};
use crate::api::failed;
use crate::failure::{Failure, FailureCode, Outcome};

/// How long what was applied is left alone: what somebody else changed of it meanwhile is put right then.
const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// `clusters/<name>/addons/<digest>.json`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shelf {
    format: u32,
    addons: Vec<Installed>,
}

/// Keeps the add-ons applied that the pointer names.
pub(super) async fn keep(client: &Client, library: &impl Library, cluster: &str) -> Outcome<Value> {
    let Some(pointer) = library.get(&keys::addons_pointer(cluster)).await? else {
        return Ok(json!({ "state": "none", "why": "no rollout has ended yet" }));
    };
    let pointer = read_pointer(&pointer)?;
    let mut kept = ledger::read(client).await?;
    if kept.ledger.generation > pointer.generation {
        let later = kept.ledger.generation;
        return Ok(json!({ "state": "left", "why": format!("generation {later} was begun meanwhile") }));
    }
    let now = Timestamp::now();
    if kept.ledger.is_fresh(&pointer.digest, now, FRESH) {
        return Ok(json!({ "state": "fresh", "digest": pointer.digest, "addons": kept.ledger.addons }));
    }
    if kept.ledger.rests(&pointer.digest, now, FRESH) {
        return Ok(
            json!({ "state": "resting", "digest": pointer.digest, "why": "the last try failed, see its answer" }),
        );
    }
    let shelf = shelf(library, cluster, &pointer.digest).await?;
    let objects: Vec<&Value> = shelf.addons.iter().flat_map(|addon| &addon.objects).collect();

    // Before the first is applied, so that whatever is, is looked through when it is no longer wanted.
    let begun = Ledger {
        generation: pointer.generation,
        digest: String::new(),
        kinds: kept.ledger.kinds.iter().cloned().chain(objects.iter().map(|object| kind(object))).collect(),
        ..kept.ledger.clone()
    };
    if kept.ledger.kinds != begun.kinds || kept.ledger.generation != begun.generation {
        kept.ledger = begun;
        if !kept.write(client).await? {
            return Ok(json!({ "state": "left", "why": "another controller is at it" }));
        }
    }

    let mut failures = Vec::new();
    for object in &objects {
        if let Err(failure) = apply(client, object).await {
            failures.push(json!({ "object": title(object), "error": failure }));
        }
    }
    if !failures.is_empty() {
        // Whoever else writes it now has tried too.
        kept.ledger.fails(&pointer.digest, Timestamp::now());
        kept.write(client).await?;
        return Ok(json!({ "state": "incomplete", "digest": pointer.digest, "failures": failures }));
    }
    let gone = match ledger::read(client).await? {
        // Whoever came later knows better what is wanted.
        later if later.ledger.generation > pointer.generation => prune::Gone::default(),
        _ => prune::prune(client, &kept.ledger.kinds, &objects).await?,
    };
    kept.ledger.digest.clone_from(&pointer.digest);
    kept.ledger.applied_at = Some(now);
    kept.ledger.failed = None;
    kept.ledger.addons =
        shelf.addons.iter().map(|addon| (addon.name.clone(), addon.version.clone())).collect();
    kept.write(client).await?;
    Ok(json!({
        "state": "applied",
        "digest": pointer.digest,
        "generation": pointer.generation,
        "addons": kept.ledger.addons,
        "objects": objects.len(),
        "pruned": gone.pruned,
        "left": gone.left,
    }))
}

fn read_pointer(bytes: &[u8]) -> Outcome<AddonsPointer> {
    let pointer: AddonsPointer =
        serde_json::from_slice(bytes).map_err(|error| damaged("addons.json", &error.to_string()))?;
    if pointer.format != AddonsPointer::FORMAT {
        return Err(damaged("addons.json", &format!("its format is {}", pointer.format)));
    }
    Ok(pointer)
}

async fn shelf(library: &impl Library, cluster: &str, digest: &str) -> Outcome<Shelf> {
    let key = keys::addons(cluster, digest);
    let bytes = library.get(&key).await?;
    let bytes = bytes.ok_or_else(|| damaged(&key, "it is missing, or this node's role may not read it"))?;
    let found = sha256_hex(&bytes);
    if found != digest {
        return Err(damaged(&key, &format!("its SHA-256 is {found}")));
    }
    let shelf: Shelf = serde_json::from_slice(&bytes).map_err(|error| damaged(&key, &error.to_string()))?;
    if shelf.format != slipway_core::release::AddonSet::FORMAT {
        return Err(damaged(&key, &format!("its format is {}", shelf.format)));
    }
    // Without any, everything would be taken away; no Slipway renders that.
    if shelf.addons.iter().all(|addon| addon.objects.is_empty()) {
        return Err(damaged(&key, "it holds nothing"));
    }
    Ok(shelf)
}

fn damaged(what: &str, problem: &str) -> Failure {
    Failure::lasting(
        FailureCode::ManageAddons,
        format!("{what}: {problem}"),
        "upload the cluster's specification again, which renders it; an older agent cannot read a newer format",
    )
}

/// `apiVersion` and `kind`.
pub(super) fn kind(object: &Value) -> (String, String) {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    (text("apiVersion"), text("kind"))
}

/// Namespace and name.
pub(super) fn place(object: &Value) -> (String, String) {
    let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

fn title(object: &Value) -> String {
    let ((_, kind), (namespace, name)) = (kind(object), place(object));
    if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
}

/// How objects of a kind are reached; `None`: the API server does not know the kind.
pub(super) async fn resource(
    client: &Client,
    (api_version, kind): &(String, String),
) -> Outcome<Option<(ApiResource, Scope)>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let wanted = GroupVersionKind::gvk(group, version, kind);
    match pinned_kind(client, &wanted).await {
        Ok((resource, capabilities)) => Ok(Some((resource, capabilities.scope))),
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(error) if crate::api::status(&error) == Some(404) => Ok(None),
        Err(error) => Err(failed(&format!("{api_version} {kind}"), &error)),
    }
}

async fn apply(client: &Client, object: &Value) -> Outcome<()> {
    let (kind, (namespace, name)) = (kind(object), place(object));
    let Some((resource, scope)) = resource(client, &kind).await? else {
        return Err(Failure::passing(
            FailureCode::ManageUnknownKind,
            format!("the API server knows no {} {}", kind.0, kind.1),
            "whatever defines the kind must be applied before; it is tried again with the next pass",
        ));
    };
    let api: Api<DynamicObject> = match scope {
        Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
        Scope::Cluster => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams::apply(MANAGER).force();
    let applied = api.patch(&name, &params, &Patch::Apply(object)).await;
    applied.map(|_| ()).map_err(|error| failed(&title(object), &error))
}
