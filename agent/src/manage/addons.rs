//! The add-ons: applied in order, again and again, and deleted when they are no longer wanted.

use std::future::Future;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::Scope;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::{Value, json};
use slipway_core::digest::sha256_hex;
use slipway_core::keys;
use slipway_core::release::{AddonsPointer, Installed, is_for_earlier_agents};
use tokio::time::{Instant, timeout_at};

use super::ledger::{Ledger, Rest};
use super::objects::{kind, namespace_and_name, resource};
use super::sources::Library;
use super::stored::Record as _;
use super::{MANAGER, prune, stored};
use crate::api::failed;
use crate::failure::{AgentError, AgentResult, FailureCode};

/// How long after a complete run the next one starts, which also reverts changes that others made meanwhile.
const FRESH: SignedDuration = SignedDuration::from_mins(5);

/// How long a pass may take for the add-ons. Applying them is hundreds of calls, and a slow API server may take a minute for each. A pass that
/// takes longer than two minutes makes a gap in the watch of workers (slipway_core::repair), and systemd ends one of five minutes
/// (`TimeoutStartSec`) before it has written down that it failed. Requests for certificates wait meanwhile.
const AT_MOST: Duration = Duration::from_secs(60);
/// The most that a single object may take of that time, so that the objects after it are applied, too.
const OF_ONE: Duration = Duration::from_secs(30);
/// How long it may take after that to write down what failed.
const RECORD: Duration = Duration::from_secs(5);

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

impl AddonFile {
    /// What this agent applies, in that order. All else of these kinds that is ours is deleted.
    fn wanted(&self) -> Vec<&Value> {
        let objects = self.addons.iter().flat_map(|addon| &addon.objects);
        objects.filter(|object| !is_for_earlier_agents(object)).collect()
    }
}

/// Applies the add-ons that the pointer names, if that is due, and ends in time.
pub(super) async fn apply_all(client: &Client, library: &impl Library, cluster: &str) -> AgentResult<Value> {
    let end = Instant::now() + AT_MOST;
    // What takes long is bounded on its own, so that its failure is written down.
    let latest = end + RECORD + RECORD;
    within(latest, "the add-ons", apply_until(client, library, cluster, end)).await
}

/// The result of `work`, or a failure if it takes longer than until `end`. `what`: the object of the work, for the message.
async fn within<T>(end: Instant, what: &str, work: impl Future<Output = AgentResult<T>>) -> AgentResult<T> {
    timeout_at(end, work).await.unwrap_or_else(|_| {
        Err(AgentError::transient(
            FailureCode::KubernetesUnavailable,
            format!("{what}: not done in the time of a pass: the API server on this machine, a webhook that it asks, or S3 is slow"),
            "see `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations`, and the latency of the API server and of etcd; the \
             next pass goes on with it",
        ))
    })
}

async fn apply_until(
    client: &Client,
    library: &impl Library,
    cluster: &str,
    end: Instant,
) -> AgentResult<Value> {
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
    let objects = addon_file.wanted();

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

    let rest = kept.record.rest(&pointer.digest);
    let mut tried = apply_each(&objects, rest, end, |object| apply(client, object)).await;
    let mut gone = prune::Pruned::default();
    if tried.failures.is_empty() {
        let pruning = prune_until(client, &kept.record, &objects);
        match within(end, "objects that no add-on has any more", pruning).await {
            Ok(pruned) => gone = pruned,
            Err(failure) if Instant::now() >= end => {
                tried.rest.from = objects.len();
                tried.failures.push(json!({ "object": "what is to be deleted", "error": failure }));
            }
            Err(failure) => return Err(failure),
        }
    }
    if !tried.failures.is_empty() {
        // If another controller wrote it meanwhile, it has tried too.
        kept.record.record_failure(&pointer.digest, Timestamp::now(), tried.rest);
        // A slow API server may not take this in time, either. What failed is said all the same.
        if let Err(failure) = within(Instant::now() + RECORD, Ledger::NAME, kept.write(client)).await {
            tried.failures.push(json!({ "object": Ledger::NAME, "error": failure }));
        }
        return Ok(json!({ "state": INCOMPLETE, "digest": pointer.digest, "failures": tried.failures }));
    }
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
        "left": gone.kept,
    }))
}

/// A try to apply objects.
#[derive(Debug, Default)]
struct Tried {
    failures: Vec<Value>,
    /// What the next try has to apply, if there are failures.
    rest: Rest,
}

/// Applies the objects of `rest` in their order, until `end`.
async fn apply_each<'o, F>(
    objects: &[&'o Value],
    rest: Rest,
    end: Instant,
    apply: impl Fn(&'o Value) -> F,
) -> Tried
where
    F: Future<Output = AgentResult<()>>,
{
    let mut failures = Vec::new();
    for (index, object) in objects.iter().enumerate().skip(rest.from) {
        let (name, lacking) = (display_name(object), rest.lacking || !failures.is_empty());
        let applied = within(end.min(Instant::now() + OF_ONE), &name, apply(object)).await;
        let Err(failure) = applied else { continue };
        failures.push(json!({ "object": name, "error": failure }));
        if Instant::now() >= end {
            return Tried { failures, rest: Rest { from: index, lacking } };
        }
    }
    if rest.lacking && failures.is_empty() {
        let why = "the tries before could not apply all others, so the next one begins with the first";
        let failure =
            AgentError::transient(FailureCode::KubernetesUnavailable, why, "their answers say which");
        failures.push(json!({ "object": "the others", "error": failure }));
    }
    Tried { failures, rest: Rest::default() }
}

/// Deletes what no add-on has any more.
async fn prune_until(client: &Client, begun: &Ledger, objects: &[&Value]) -> AgentResult<prune::Pruned> {
    let newest = stored::read::<Ledger>(client).await?;
    if newest.record.generation > begun.generation {
        // A later generation decides what is wanted.
        return Ok(prune::Pruned::default());
    }
    prune::prune(client, &begun.kinds, objects).await
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
    AgentError::permanent(
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
        return Err(AgentError::transient(
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::cell::RefCell;

    use super::*;

    /// The names of what a try asked for, of what failed, and what the next one has to apply. `hangs`: these objects are never answered.
    async fn tried(
        rest: Rest,
        at_most: Duration,
        hangs: &[&str],
        fails: &[&str],
    ) -> (String, Vec<String>, Rest) {
        let objects: Vec<Value> = ["a", "b", "c", "d"]
            .map(|name| json!({ "apiVersion": "v1", "kind": "K", "metadata": { "name": name } }))
            .into();
        let objects: Vec<&Value> = objects.iter().collect();
        let asked = RefCell::new(String::new());
        let apply = |object: &Value| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            asked.borrow_mut().push_str(&name);
            let (hangs, fails) = (hangs.contains(&name.as_str()), fails.contains(&name.as_str()));
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
                let failure = || AgentError::transient(FailureCode::KubernetesRefused, "no", "none");
                if fails { Err(failure()) } else { Ok(()) }
            }
        };
        let tried = apply_each(&objects, rest, Instant::now() + at_most, apply).await;
        let named = tried.failures.iter().map(|one| one["object"].as_str().unwrap().to_owned());
        let said: Vec<String> = named.collect();
        if let [.., last] = tried.failures.as_slice()
            && hangs.iter().any(|name| last["object"] == format!("K {name}"))
        {
            let why = last["error"]["message"].as_str().unwrap();
            assert!(
                why.starts_with(last["object"].as_str().unwrap()) && why.contains("time of a pass"),
                "{why}"
            );
        }
        (asked.into_inner(), said, tried.rest)
    }

    /// By the binding in `cluster-access` that has the annotation, Kubernetes would approve renewals of certificates itself.
    #[test]
    fn what_only_agents_of_earlier_releases_need_is_not_applied_so_that_it_is_deleted() {
        let object = |name: &str, annotations: &Value| json!({ "metadata": { "name": name, "annotations": annotations } });
        let earlier = object("earlier", &json!({ slipway_core::release::EARLIER_AGENTS: "" }));
        let addon = |objects: &[&Value]| json!({ "name": "a", "version": "", "objects": objects });
        let kept = [object("one", &Value::Null), object("two", &json!({ "other": "" }))];
        let file = json!({ "format": 1, "addons": [addon(&[&kept[0], &earlier]), addon(&[&kept[1]])] });
        let file: AddonFile = serde_json::from_value(file).unwrap();
        assert_eq!(file.wanted(), kept.iter().collect::<Vec<_>>());
    }

    const SOON: Duration = Duration::from_millis(50);
    const LATER: Duration = Duration::from_secs(20);
    const ALL: Rest = Rest { from: 0, lacking: false };

    /// Each call may take a minute, and systemd ends a pass of five minutes before it has written down that it failed.
    #[tokio::test]
    async fn an_api_server_that_does_not_answer_ends_a_try_in_time_and_the_next_one_goes_on_there() {
        let rest = Rest { from: 2, lacking: false };
        assert_eq!(tried(ALL, SOON, &["c"], &[]).await, ("abc".to_owned(), vec!["K c".to_owned()], rest));
        assert_eq!(tried(rest, LATER, &[], &[]).await, ("cd".to_owned(), vec![], ALL));
        // What failed before the time was up is not forgotten: the list begins anew after its end.
        let (_, failed, rest) = tried(ALL, SOON, &["c"], &["a"]).await;
        assert_eq!(
            (failed, rest),
            (vec!["K a".to_owned(), "K c".to_owned()], Rest { from: 2, lacking: true })
        );
        assert_eq!(tried(rest, LATER, &[], &[]).await, ("cd".to_owned(), vec!["the others".to_owned()], ALL));
        // All were applied, and only what is to be deleted is left.
        let nothing = Rest { from: 4, lacking: false };
        assert_eq!(tried(nothing, LATER, &[], &[]).await, (String::new(), vec![], ALL));
    }

    #[tokio::test]
    async fn what_cannot_be_applied_keeps_nothing_else_from_being_applied() {
        let failed = vec!["K a".to_owned(), "K c".to_owned()];
        assert_eq!(tried(ALL, LATER, &[], &["a", "c"]).await, ("abcd".to_owned(), failed, ALL));
    }

    /// Two looks at the workers must not be further apart than slipway_core::repair allows.
    #[test]
    fn a_pass_ends_before_the_watch_of_workers_has_a_gap_and_before_systemd_ends_it() {
        assert!(OF_ONE < AT_MOST, "the next object has its turn");
        // The timer starts the next pass 20 s later, at the latest.
        assert!(AT_MOST + RECORD + RECORD + Duration::from_secs(20) < Duration::from_secs(100));
    }
}
