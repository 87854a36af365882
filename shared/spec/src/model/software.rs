//! Where nodes have their programs from.

use schemars::JsonSchema;
use serde::Deserialize;

/// Where nodes get the programs from that run Kubernetes and etcd.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SoftwareSpec {
    /// Whether nodes download them (`release`) or the image contains them (`image`); `release` unless given.
    pub(crate) source: Option<SoftwareSourceSpec>,
    /// A copy of the publishers' sites, for nodes that reach no other: `https://mirror.example.com/slipway`, or `s3://bucket/prefix`, which nodes read by their own role. A file lies below it under host and path (`dl.k8s.io/release/v1.37.2/bin/linux/amd64/kubelet`).
    #[serde(rename = "baseURL")]
    pub(crate) base_url: Option<String>,
    /// A registry, perhaps with a path, that holds copies of the images of the control plane and of pods' pause container under `<registry>/<repository>`, as `addons.imageRepository` does those of add-ons.
    pub(crate) image_repository: Option<String>,
}

/// Who puts programs onto a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) enum SoftwareSourceSpec {
    /// The node agent: kubelet, containerd, runc, the plugins of CNI and etcd as their projects publish them, by SHA-256. The digests are read from the publishers once, and pinned in the lock.
    Release,
    /// Whoever made the image: the agent installs nothing, and says which program is missing.
    Image,
}
