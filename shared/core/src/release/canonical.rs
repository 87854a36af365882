//! The canonical JSON of a rendering and of its add-ons, written without a copy of templates and manifests. Each type here has its
//! fields in the order of their names, because Serde writes them as they are declared.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{AddonSet, Installed, Rendering, Stack, StackKind};
use crate::canonical::Canonical;

#[derive(Serialize)]
struct CanonicalRendering<'a> {
    addons: CanonicalAddonSet<'a>,
    cluster: &'a str,
    format: u32,
    roles: BTreeMap<&'a str, Canonical<'a>>,
    stacks: Vec<CanonicalStack<'a>>,
}

#[derive(Serialize)]
struct CanonicalStack<'a> {
    body: &'a str,
    kind: StackKind,
    name: &'a str,
    sha256: &'a str,
    tags: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct CanonicalAddonSet<'a> {
    addons: Vec<CanonicalAddon<'a>>,
    digest: &'a str,
}

#[derive(Serialize)]
struct CanonicalAddon<'a> {
    name: &'a str,
    objects: Vec<Canonical<'a>>,
    version: &'a str,
}

/// An add-on set as an object of its own, whose digest is its name.
#[derive(Serialize)]
struct CanonicalAddons<'a> {
    addons: Vec<CanonicalAddon<'a>>,
    format: u32,
}

pub(super) fn rendering(rendering: &Rendering) -> String {
    let Rendering { format, cluster, stacks, roles, addons: AddonSet { digest, addons: installed } } =
        rendering;
    let json = |node| serde_json::to_value(node).expect("a role has string keys only");
    let roles: BTreeMap<String, Value> =
        roles.iter().map(|(role, node)| (role.to_string(), json(node))).collect();
    written(&CanonicalRendering {
        addons: CanonicalAddonSet { addons: addons(installed), digest },
        cluster,
        format: *format,
        roles: roles.iter().map(|(role, node)| (role.as_str(), Canonical(node))).collect(),
        stacks: stacks.iter().map(stack).collect(),
    })
}

pub(super) fn addon_set(format: u32, installed: &[Installed]) -> String {
    written(&CanonicalAddons { addons: addons(installed), format })
}

fn stack(Stack { name, kind, body, sha256, tags }: &Stack) -> CanonicalStack<'_> {
    CanonicalStack { body, kind: *kind, name, sha256, tags }
}

fn addons(installed: &[Installed]) -> Vec<CanonicalAddon<'_>> {
    installed.iter().map(addon).collect()
}

fn addon(Installed { name, version, objects }: &Installed) -> CanonicalAddon<'_> {
    CanonicalAddon { name, objects: objects.iter().map(Canonical).collect(), version }
}

fn written(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("a rendering has string keys only")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::canonical::canonical_json;

    #[test]
    fn p1_a_rendering_and_its_add_ons_are_written_with_every_field_in_the_order_of_names() {
        let role = json!({
            "stack": "a-etcd", "nodes": { "min": 1, "max": 1 }, "machine": { "z": 1, "a": { "y": [], "b": null } },
            "config": "{}", "configDigest": "c", "credentialsDigest": "d", "version": "3.6.16", "weighted": true,
            "member": {
                "peerUrl": "https://a:2380", "volumeGib": 8, "zone": "made",
                "pin": { "joins": true, "joinEndpoints": ["https://b:2379"], "volume": { "number": 1, "availabilityZone": "a" } },
            },
        });
        let stack = json!({ "name": "a-etcd", "kind": "etcd", "body": "{\"é\":\"\\n\"}", "sha256": "s", "tags": { "b": "1", "a": "2" } });
        let addon =
            json!({ "name": "dns", "version": "1", "objects": [{ "kind": "b", "apiVersion": "a" }, {}] });
        let whole = json!({
            "format": 1, "cluster": "a", "stacks": [stack],
            // By name, etcd-10 comes before etcd-2.
            "roles": { "etcd-2": role, "etcd-10": role, "controller": role, "pool-x": role },
            "addons": { "digest": "e", "addons": [addon] },
        });
        let rendering: Rendering = serde_json::from_value(whole.clone()).expect("every field is there");
        assert_eq!(serde_json::to_value(&rendering).ok(), Some(whole.clone()), "no field is left out");
        assert_eq!(rendering.to_json(), canonical_json(&whole));
        let set = json!({ "format": AddonSet::FORMAT, "addons": whole["addons"]["addons"] });
        assert_eq!(rendering.addons.to_json(), canonical_json(&set));
    }
}
