//! Volumes: which settings go together, and how large a root must be.

use slipway_core::cluster::Volume;

use super::{Lowering, word};
use crate::model::{VolumeKind, VolumeSpec};
use crate::path::Path;

pub(super) const ROOT_GIB: u32 = 30;
/// With NVIDIA's driver: that image brings several releases of CUDA.
const NVIDIA_ROOT_GIB: u32 = 100;
/// Amazon Linux 2023's snapshot: EC2 makes no smaller volume of it (docs.aws.amazon.com/linux/al2023).
const AL2023_GIB: u32 = 8;
/// About the Deep Learning Base AMI's snapshot. AWS documents no figure, and it grows with the releases of CUDA.
const NVIDIA_IMAGE_GIB: u32 = 75;

/// gp3 is at least as fast as this, however small (docs.aws.amazon.com/ebs, "General Purpose SSD volumes").
const GP3_IOPS: u32 = 3000;
/// The same page: 0.25 MiB a second for each operation a second.
const GP3_IOPS_PER_MIB: u32 = 4;

/// What a root volume is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RootImage {
    /// Amazon Linux 2023, which the lock finds.
    AmazonLinux,
    /// The same with NVIDIA's driver.
    Nvidia,
    /// The user's own, of which nothing is known.
    Own,
}

/// What EBS takes of a kind: docs.aws.amazon.com/ebs, "Amazon EBS volume types", and for gp3 "General Purpose SSD volumes" as of
/// September 2025 (64 TiB, 80,000 operations). In a launch template nobody checks it until a machine is to start.
struct Bounds {
    gib: std::ops::RangeInclusive<u32>,
    /// `None`: it takes no `iops`.
    iops: Option<u32>,
    iops_per_gib: u32,
}

fn bounds(kind: VolumeKind) -> Bounds {
    match kind {
        VolumeKind::Gp3 => Bounds { gib: 1..=65_536, iops: Some(80_000), iops_per_gib: 500 },
        VolumeKind::Gp2 => Bounds { gib: 1..=16_384, iops: None, iops_per_gib: 0 },
        VolumeKind::Io1 => Bounds { gib: 4..=16_384, iops: Some(64_000), iops_per_gib: 50 },
        VolumeKind::Io2 => Bounds { gib: 4..=65_536, iops: Some(256_000), iops_per_gib: 1000 },
    }
}

impl Lowering<'_, '_, '_> {
    /// The root volume of machines of that image.
    pub(super) fn root_volume(&mut self, spec: &VolumeSpec, image: RootImage, path: &Path) -> Option<Volume> {
        let default = if image == RootImage::Nvidia { NVIDIA_ROOT_GIB } else { ROOT_GIB };
        let size = spec.size.unwrap_or(default);
        let place = path.key("size");
        match image {
            RootImage::AmazonLinux if size < AL2023_GIB => {
                let message = format!("Amazon Linux 2023 does not fit on {size} GiB: no machine would start");
                let help =
                    format!("write {AL2023_GIB} or more; {ROOT_GIB} GiB leaves room for container images");
                self.report.error("volume", &place, message, help);
            }
            RootImage::Nvidia if size < NVIDIA_IMAGE_GIB => {
                let message = format!(
                    "the image with NVIDIA's driver needs more than {size} GiB: EC2 would start no machine"
                );
                let help = format!("write {NVIDIA_ROOT_GIB}, or remove the line");
                self.report.warning("volume", &place, message, help);
            }
            RootImage::AmazonLinux | RootImage::Nvidia | RootImage::Own => {}
        }
        self.volume(spec, default, path)
    }

    /// A volume of `default` GiB unless it says otherwise.
    pub(super) fn volume(&mut self, spec: &VolumeSpec, default: u32, path: &Path) -> Option<Volume> {
        let kind = spec.kind.unwrap_or(VolumeKind::Gp3);
        let name = word(kind);
        if spec.encrypted == Some(false) {
            let help = "remove the line: every volume is encrypted";
            self.report.error(
                "unencrypted-volume",
                &path.key("encrypted"),
                "a volume cannot be left unencrypted",
                help,
            );
        }
        if spec.iops.is_some() && kind == VolumeKind::Gp2 {
            self.report.error(
                "volume",
                &path.key("iops"),
                "gp2 takes no `iops`",
                "write `type: gp3`, or remove the line",
            );
        }
        if spec.iops.is_none() && matches!(kind, VolumeKind::Io1 | VolumeKind::Io2) {
            self.report.error(
                "volume",
                &path.key("type"),
                format!("{name} needs `iops`"),
                "add `iops`, or write `type: gp3`",
            );
        }
        if spec.iops.is_some_and(|iops| iops < 3000) && kind == VolumeKind::Gp3 {
            self.report.error(
                "volume",
                &path.key("iops"),
                "gp3 has at least 3000 operations a second",
                "write 3000 or more, or remove the line",
            );
        }
        if spec.throughput.is_some() && kind != VolumeKind::Gp3 {
            self.report.error(
                "volume",
                &path.key("throughput"),
                format!("{name} takes no `throughput`"),
                "write `type: gp3`, or remove the line",
            );
        }
        if let Some(key) = &spec.kms_key_arn {
            self.kms_key_arn(key, &path.key("kmsKeyArn"));
        }
        let size = spec.size.unwrap_or(default);
        self.bounds(spec, kind, &name, size, path);
        Some(Volume {
            size_gib: size,
            kind: name,
            iops: spec.iops,
            throughput: spec.throughput,
            kms_key_arn: spec.kms_key_arn.clone(),
        })
    }

    /// Size, operations and throughput within what EBS makes, and in its proportions.
    fn bounds(&mut self, spec: &VolumeSpec, kind: VolumeKind, name: &str, size: u32, path: &Path) {
        let Bounds { gib, iops: most, iops_per_gib } = bounds(kind);
        // Kinds that have `mounted_volume` to themselves come without one, and with a size that was looked at.
        if spec.kind.is_some() && size != 0 && !gib.contains(&size) {
            let message = format!("{name} has {} to {} GiB, not {size}", gib.start(), gib.end());
            self.report.error("volume", &path.key("size"), message, "write a size within, or another `type`");
        }
        if let (Some(iops), Some(most)) = (spec.iops, most) {
            let of_size =
                size.saturating_mul(iops_per_gib).max(if kind == VolumeKind::Gp3 { GP3_IOPS } else { 0 });
            if iops > most {
                let message = format!("{name} has at most {most} operations a second, not {iops}");
                self.report.error("volume", &path.key("iops"), message, format!("write {most} or less"));
            } else if size != 0 && iops > of_size {
                let message = format!(
                    "{iops} operations a second are too many for {size} GiB of {name}, which has at most {iops_per_gib} for each GiB"
                );
                let help = format!(
                    "write a `size` of {} or more, or `iops: {of_size}` at most",
                    iops.div_ceil(iops_per_gib)
                );
                self.report.error("volume", &path.key("iops"), message, help);
            }
        }
        if let Some(throughput) = spec.throughput.filter(|_| kind == VolumeKind::Gp3) {
            let iops = spec.iops.unwrap_or(GP3_IOPS).max(GP3_IOPS);
            if throughput > iops / GP3_IOPS_PER_MIB {
                let message = format!(
                    "{throughput} MiB a second need {} operations a second, and the volume has {iops}",
                    throughput * GP3_IOPS_PER_MIB
                );
                let help = format!(
                    "add `iops: {}`, or write `throughput: {}` at most",
                    throughput * GP3_IOPS_PER_MIB,
                    iops / GP3_IOPS_PER_MIB
                );
                self.report.error("volume", &path.key("throughput"), message, help);
            }
        }
    }
}
