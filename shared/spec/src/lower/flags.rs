//! Flags and feature gates of Kubernetes' programs: whether there are any of that name, and what their values are.

use std::collections::BTreeMap;

use slipway_core::cluster::{KubernetesVersion, NodePool};
use slipway_core::versions::RELEASES;

use super::{Lowering, flag_words};
use crate::duration::nanoseconds;
use crate::model::PoolSpec;
use crate::path::Path;
use crate::programs::{self, Flag, Type};

impl Lowering<'_, '_, '_> {
    /// Whether the program has the flag, and reads its value. What it does not know is only warned of: the table may lack what a later
    /// patch brought.
    pub(super) fn flag_value(&mut self, program: &str, name: &str, value: &str, path: &Path) {
        let kind = match programs::flag(program, name) {
            Flag::Unknown => {
                let help = self.report.nearest(name, programs::flags(program)).map_or_else(
                    || "remove it, or check the reference of that program: with a flag that it does not have it does not start".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("`{name}` is not a flag of {program} that is known here");
                self.report.warning("flag-unknown", &path.key("name"), message, help);
                return;
            }
            Flag::Known(kind) => kind,
        };
        // Elastic Load Balancing, "Health checks for Network Load Balancer target groups": targets that support only TLS 1.3 fail HTTPS checks.
        if (program, name, value) == ("kube-apiserver", "tls-min-version", "VersionTLS13") {
            self.report.warning(
                "tls-health-check",
                &path.key("value"),
                "health checks of a Network Load Balancer do not speak TLS 1.3: behind one, no controller is ever healthy, and the next roll of \
                 the controllers does not end",
                "keep `VersionTLS12`, unless the API has a load balancer of your own that checks otherwise",
            );
        }
        // As the package pflag reads them, in which these programs declare their flags.
        let (right, wanted) = match kind {
            Type::Bool => (
                ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"]
                    .contains(&value),
                "`true` or `false`",
            ),
            Type::Int32 | Type::Int64 => (is_number_of_go(value), "a whole number"),
            Type::Duration => {
                (nanoseconds(value).is_some(), "a duration such as `5m` or `1h30m`: there are no days")
            }
            Type::Text
            | Type::Uint32
            | Type::Float
            | Type::List
            | Type::Group
            | Type::Texts
            | Type::Other => (true, ""),
        };
        let wanted = if right { flag_words::wanted(name, value) } else { Some(wanted.to_owned()) };
        if let Some(wanted) = wanted {
            let message = format!("{program} does not accept `{value}` for `{name}` and would not start");
            self.report.error("flag-value", &path.key("value"), message, format!("write {wanted}"));
        }
    }

    /// Warns of gates that the source of a node's release does not have: its programs then do not start ("unrecognized feature gate").
    pub(super) fn gates_known(&mut self, cluster: Option<KubernetesVersion>, pools: &[NodePool]) {
        let Some(cluster) = cluster else { return };
        let spec = self.spec;
        let key = |path: &str| Path::parse(path).key("featureGates");
        let own = |pool: &PoolSpec| {
            let known = pools.iter().find(|known| pool.name.as_ref() == Some(&known.name));
            known.and_then(|pool| pool.kubernetes_version).unwrap_or(cluster)
        };
        let mut versions: Vec<KubernetesVersion> = vec![cluster];
        versions.extend(spec.worker.node_pools.iter().map(own));
        self.gates_of(&spec.kubernetes.feature_gates, &versions, &key("kubernetes"));
        self.gates_of(&spec.controller.feature_gates, &[cluster], &key("controller"));
        for (index, pool) in spec.worker.node_pools.iter().enumerate() {
            let path = Path::parse("worker").key("nodePools").index(index).key("featureGates");
            self.gates_of(&pool.feature_gates, &[own(pool)], &path);
        }
    }

    fn gates_of(&mut self, gates: &BTreeMap<String, bool>, versions: &[KubernetesVersion], path: &Path) {
        for name in gates.keys() {
            let path = path.key(name);
            if self.report.refused(&path) {
                continue;
            }
            let minors: Vec<u16> = programs::gate(name).collect();
            let without = versions.iter().find(|version| {
                let launched = RELEASES.iter().any(|release| release.minor == version.minor);
                launched && !minors.contains(&version.minor)
            });
            let Some(without) = without else { continue };
            let help = match minors.as_slice() {
                [] => self.report.nearest(name, programs::gates()).map_or_else(
                    || "remove it, or check the release's list of feature gates: programs do not start with one that they do not know".to_owned(),
                    |near| format!("did you mean `{near}`?"),
                ),
                [.., newest] if *newest < without.minor => {
                    "remove it: the feature is always enabled or was removed, and programs do not start with an unknown gate".to_owned()
                }
                _ => "remove it until the nodes have a release that knows it: programs do not start with a gate that they do not know".to_owned(),
            };
            let message =
                format!("`{name}` is not a feature gate of Kubernetes {without} that is known here");
            self.report.warning("feature-gate", &path, message, help);
        }
    }
}

/// A whole number as Go reads it for a flag (`strconv.ParseInt` with base 0): also `0x10`, `0o7`, `1_000`.
fn is_number_of_go(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text).to_ascii_lowercase();
    let (digits, radix) = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(start, radix)| Some((digits.strip_prefix(start)?, radix)))
        .unwrap_or((digits.as_str(), 10));
    !digits.is_empty() && digits.chars().all(|digit| digit == '_' || digit.is_digit(radix))
}
