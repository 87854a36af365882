//! What a pool's machines have besides processor, memory and root volume: volumes, disks, GPUs, classic balancers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A volume with a file system. It is always encrypted, and goes with its machine.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["size", "device", "path"]))]
pub(crate) struct VolumeMountSpec {
    /// The kind; `gp3` unless given.
    #[serde(rename = "type")]
    pub(crate) kind: Option<MountKind>,
    /// Size in GiB.
    #[schemars(range(min = 1, max = 65536))]
    pub(crate) size: Option<u32>,
    /// Provisioned operations a second, for gp3, io1 and io2.
    #[schemars(range(min = 100, max = 256_000))]
    pub(crate) iops: Option<u32>,
    /// MiB a second, for gp3.
    #[schemars(range(min = 125, max = 2000))]
    pub(crate) throughput: Option<u32>,
    /// The name under which it is attached, from `/dev/xvdf` to `/dev/xvdz`; the node finds it whatever its kernel calls it.
    pub(crate) device: Option<String>,
    /// Where it is mounted.
    pub(crate) path: Option<String>,
    /// Its file system; `xfs` unless given.
    pub(crate) filesystem: Option<FileSystemSpec>,
    /// Whether it gets a folder `tmp` that everyone may write to.
    pub(crate) create_tmp: bool,
    /// A KMS key of yours, as for `rootVolume`.
    pub(crate) kms_key_arn: Option<String>,
    /// Whether it is encrypted; it always is.
    pub(crate) encrypted: Option<bool>,
}

/// Equal volumes, put together by RAID 0: faster than one, and lost with any of them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("required" = ["size", "devices", "path"]))]
pub(crate) struct Raid0MountSpec {
    /// The kind of each; `gp3` unless given.
    #[serde(rename = "type")]
    pub(crate) kind: Option<MountKind>,
    /// Size of each in GiB.
    #[schemars(range(min = 1, max = 65536))]
    pub(crate) size: Option<u32>,
    /// Provisioned operations a second of each, for gp3, io1 and io2.
    #[schemars(range(min = 100, max = 256_000))]
    pub(crate) iops: Option<u32>,
    /// MiB a second of each, for gp3.
    #[schemars(range(min = 125, max = 2000))]
    pub(crate) throughput: Option<u32>,
    /// The names under which they are attached, two or more from `/dev/xvdf` to `/dev/xvdz`.
    pub(crate) devices: Vec<String>,
    /// Where the whole is mounted.
    pub(crate) path: Option<String>,
    /// Its file system; `xfs` unless given.
    pub(crate) filesystem: Option<FileSystemSpec>,
    /// Whether it gets a folder `tmp` that everyone may write to.
    pub(crate) create_tmp: bool,
    /// A KMS key of yours, as for `rootVolume`.
    pub(crate) kms_key_arn: Option<String>,
    /// Whether they are encrypted; they always are.
    pub(crate) encrypted: Option<bool>,
}

/// The kind of a volume that is not the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MountKind {
    /// General purpose.
    Gp3,
    /// General purpose, the generation before.
    Gp2,
    /// Provisioned operations.
    Io1,
    /// Provisioned operations, durable.
    Io2,
    /// Hard disks for throughput.
    St1,
    /// Hard disks for what is seldom read.
    Sc1,
    /// Hard disks of the first generation.
    Standard,
}

/// A file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FileSystemSpec {
    /// XFS.
    Xfs,
    /// Ext4.
    Ext4,
}

/// The machine's own NVMe disks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EphemeralStorageSpec {
    /// Whether they are used; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Whether several are combined into one by RAID 0, which they are unless this is `false`; then each is mounted at `<path>/0`, `<path>/1`, ….
    pub(crate) raid0: Option<bool>,
    /// The path at which they are mounted for pods; unless given, they store container images, logs and the pods' scratch space.
    pub(crate) path: Option<String>,
    /// Their file system; `xfs` unless given.
    pub(crate) filesystem: Option<FileSystemSpec>,
}

/// The machine's own disks, as kube-aws used them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct EphemeralImageStorageSpec {
    /// Whether they are used.
    pub(crate) enabled: bool,
    /// A device's name; the node finds its disks by itself.
    pub(crate) disk: Option<String>,
    /// Their file system; `xfs` unless given.
    pub(crate) filesystem: Option<FileSystemSpec>,
}

/// GPUs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct GpuSpec {
    /// GPUs of NVIDIA's.
    pub(crate) nvidia: NvidiaSpec,
}

/// GPUs of NVIDIA's.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NvidiaSpec {
    /// Whether pods may use them: containerd gets NVIDIA's runtime, nodes the label `nvidia.com/gpu.present`, and the image
    /// is AWS' Deep Learning Base AMI, which has the driver, unless another is given; the root volume then has 100 GiB unless
    /// `rootVolume.size` says otherwise. Install NVIDIA's device plugin in the cluster.
    pub(crate) enabled: Option<bool>,
    /// Whether nodes carry the taint `nvidia.com/gpu=present:NoSchedule`, so that pods without need of a GPU stay away.
    pub(crate) taint: bool,
}

/// Classic load balancers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ClassicLoadBalancerSpec {
    /// Whether they are used; `true` unless given.
    pub(crate) enabled: Option<bool>,
    /// Their names.
    pub(crate) names: Vec<String>,
    /// Security groups that let the balancers' traffic in; the nodes get them besides `securityGroupIds`.
    pub(crate) security_group_ids: Vec<String>,
}
