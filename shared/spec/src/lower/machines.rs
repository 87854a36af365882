//! What is known of instance types, the images that fit them, and GPUs.

use std::collections::BTreeMap;

use slipway_core::cluster::{Architecture, Image, Taint};

use super::Lowering;
use super::volumes::RootImage;
use crate::instance_types::{Accelerator, Processor, lookup, names};
use crate::model::{GpuSpec, ImageSpec, PoolSpec};
use crate::path::Path;

/// AWS' Deep Learning Base AMI on Amazon Linux 2023, with NVIDIA's open driver and container toolkit
/// (docs.aws.amazon.com/dlami, "AWS Deep Learning Base GPU AMI (Amazon Linux 2023)").
fn deep_learning(architecture: Architecture) -> String {
    let name = architecture.as_str();
    format!("/aws/service/deeplearning/ami/{name}/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id")
}

/// GPUs older than Turing, for which NVIDIA's open driver is not made
/// (github.com/NVIDIA/open-gpu-kernel-modules, "Compatible GPUs").
const BEFORE_OPEN_DRIVER: [&str; 6] = ["g2", "g3", "g3s", "p2", "p3", "p3dn"];

/// GPUs of AMD's (docs.aws.amazon.com/ec2/latest/instancetypes, "Accelerated computing").
const OF_AMD: [&str; 1] = ["g4ad"];

/// What NVIDIA's device plugin finds its nodes by (its chart's node affinity), and what the cluster autoscaler waits
/// for a GPU by (its README on AWS, "Using GPU nodes").
const GPU_LABELS: [(&str, &str); 2] =
    [("nvidia.com/gpu.present", "true"), ("k8s.amazonaws.com/accelerator", "nvidia")];

/// Labels and taints of nodes with GPUs. Those that the spec sets are kept.
pub(super) fn label_gpus(spec: &GpuSpec, labels: &mut BTreeMap<String, String>, taints: &mut Vec<Taint>) {
    for (key, value) in GPU_LABELS {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let taint = ["nvidia.com/gpu", "present", "NoSchedule"].map(str::to_owned);
    let [key, value, effect] = taint;
    if spec.nvidia.taint && !taints.iter().any(|other| other.key == key && other.effect == effect) {
        taints.push(Taint { key, value, effect });
    }
}

impl Lowering<'_, '_, '_> {
    /// Advises on an instance type whose syntax is right. One that is not known is taken: new ones appear all the time.
    pub(super) fn known_instance_type(&mut self, text: &str, path: &Path) {
        let Some(known) = lookup(text) else {
            // A slip seldom begins a word.
            let all: Vec<String> =
                names().filter(|name| name.as_bytes().first() == text.as_bytes().first()).collect();
            let help = self.report.nearest(text, all.iter().map(String::as_str)).map_or_else(
                || "check that EC2 has it; it is taken as it is written".to_owned(),
                |near| format!("did you mean `{near}`? It is taken as it is written"),
            );
            let message = format!("`{text}` is not an EC2 instance type that is known here");
            self.report.warning("instance-type", path, message, help);
            return;
        };
        if known.processor == Some(Processor::Mac) {
            let message = format!("`{text}` is a Mac, which runs no Linux");
            self.report.error("instance-type", path, message, "write one such as `m7g.large`");
        }
    }

    /// `gpu.nvidia` of a pool with those instance types.
    pub(super) fn nvidia(&mut self, spec: &PoolSpec, types: &[String], path: &Path) -> bool {
        let group = path.key("gpu").key("nvidia");
        let known = |name: &String| {
            Some((name.clone(), lookup(name).filter(|instance_type| instance_type.processor.is_some())?))
        };
        let accelerator = |wanted| {
            types
                .iter()
                .filter_map(known)
                .find(|(_, instance_type)| instance_type.accelerator == Some(wanted))
        };
        let enabled = spec.gpu.nvidia.enabled == Some(true);
        if enabled {
            let without = types.iter().find(|name| {
                let family = name.split('.').next().unwrap_or_default();
                OF_AMD.contains(&family)
                    || known(name).is_some_and(|(_, instance_type)| {
                        instance_type.accelerator != Some(Accelerator::Nvidia)
                    })
            });
            if let Some(name) = without {
                self.report.error(
                    "gpu-type",
                    &group.key("enabled"),
                    format!("`gpu.nvidia` is on, but `{name}` has no GPU of NVIDIA's"),
                    "choose instance types such as `g6.xlarge`, `g5g.xlarge` or `p5.48xlarge`, or remove `gpu`",
                );
            }
        } else if spec.gpu.nvidia.taint {
            let help = "add `enabled: true`, or write the taint among the pool's `taints`";
            let message = "`taint` has no meaning while `gpu.nvidia` is off";
            self.report.error("gpu-type", &group.key("taint"), message, help);
        } else if let Some((name, _)) =
            accelerator(Accelerator::Nvidia).filter(|_| spec.gpu.nvidia.enabled.is_none())
        {
            self.report.warning(
                "gpu-unused",
                &path.key("instanceType"),
                format!("`{name}` has GPUs that no pod can use"),
                "add `gpu: {nvidia: {enabled: true}}`, or `enabled: false` if you set the GPUs up in another way",
            );
        }
        let own_image = spec.ami_id.is_some() || spec.image.is_some() || !self.cluster_image_is_default();
        if let Some((name, _)) = accelerator(Accelerator::Neuron).filter(|_| !own_image) {
            self.report.warning(
                "accelerator-driver",
                &path.key("instanceType"),
                format!("`{name}` has accelerators whose driver Amazon Linux 2023 lacks"),
                "name AWS' Neuron AMI, or one of your own, by `image.ssmParameters.x86_64` of the pool",
            );
        }
        if let Some(name) = types.iter().find(|name| name.starts_with("a1.")).filter(|_| !own_image) {
            self.report.warning(
                "instance-type",
                &path.key("instanceType"),
                format!("`{name}` has a Graviton processor of the first generation, on which Amazon Linux 2023 does not run"),
                "choose a newer type such as `m7g.large`, or give the pool an `image` of your own",
            );
        }
        if enabled && !own_image {
            let old = types.iter().find(|name| {
                name.split('.').next().is_some_and(|family| BEFORE_OPEN_DRIVER.contains(&family))
            });
            if let Some(name) = old {
                self.report.error(
                    "gpu-image",
                    &group.key("enabled"),
                    format!("the GPUs of `{name}` are too old for the driver of AWS' image"),
                    "give the pool an `image` that has a driver for them, or choose a newer type such as `g6.xlarge`",
                );
            }
        }
        if enabled && spec.ami_id.is_none() && spec.image.is_none() && !self.cluster_image_is_default() {
            self.report.warning(
                "gpu-image",
                &group.key("enabled"),
                "the pool runs on the cluster's own image, which must bring NVIDIA's driver and container toolkit",
                "write `amiId` or `image` on the pool, even if it is the same image",
            );
        }
        enabled
    }

    /// The image of a pool with GPUs that names none, in a cluster that names none.
    pub(super) fn image_with_driver(&self, spec: &PoolSpec, nvidia: bool) -> Option<Image> {
        let named = spec.ami_id.is_some() || spec.image.is_some();
        let names = || [Architecture::Arm64, Architecture::X86_64].map(|one| (one, deep_learning(one)));
        (nvidia && !named && self.cluster_image_is_default()).then(|| Image::SsmParameter(names().into()))
    }

    /// What controllers and members are made of.
    pub(super) fn image_of_cluster(&self) -> RootImage {
        if self.cluster_image_is_default() { RootImage::AmazonLinux } else { RootImage::Own }
    }

    /// What the pool's nodes are made of.
    pub(super) fn image_of_pool(&self, spec: &PoolSpec, nvidia: bool) -> RootImage {
        if self.image_with_driver(spec, nvidia).is_some() {
            RootImage::Nvidia
        } else if spec.ami_id.is_some() || spec.image.is_some() {
            RootImage::Own
        } else {
            self.image_of_cluster()
        }
    }

    fn cluster_image_is_default(&self) -> bool {
        self.spec.ami_id.is_none() && self.spec.image.is_none()
    }

    /// `image.rootDeviceName` below `path`.
    pub(super) fn root_device(&mut self, image: Option<&ImageSpec>, path: &Path) -> Option<String> {
        let name = image?.root_device_name.as_deref()?;
        let device = name.strip_prefix("/dev/").unwrap_or_default();
        if device.is_empty() || !device.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            self.report.error(
                "device-name",
                &path.key("image").key("rootDeviceName"),
                format!("`{name}` is not a name of a root device"),
                "write what `aws ec2 describe-images` says of the image as `RootDeviceName`, such as `/dev/xvda`",
            );
        }
        Some(name.to_owned())
    }
}
