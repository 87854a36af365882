//! Machine images without SSM.
//!
//! Only AWS knows the image behind an SSM public parameter. `--image x86_64=ami-…` pins one. Without it, the lock contains
//! CloudFormation's dynamic reference `{{resolve:ssm:NAME}}`, which CloudFormation resolves when it executes a change. A cluster that is
//! rendered in AWS has the image id in its lock, so that the image does not change by itself. The reference is for viewing, and for
//! stacks that are deployed by hand.

use std::collections::BTreeMap;
use std::str::FromStr;

use slipway_core::cluster::{Architecture, Cluster, Image};
use slipway_core::keys;
use slipway_flows::store;
use slipway_ports::{Objects, Parameters, PortResult, SecretParameter};
use slipway_render::lock::Lock;

use crate::failure::CliError;

/// `ARCH=AMI`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImagePin {
    architecture: Architecture,
    id: String,
}

impl FromStr for ImagePin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (architecture, id) =
            text.split_once('=').ok_or("write ARCH=AMI, such as x86_64=ami-0123456789abcdef0")?;
        let architecture = match architecture {
            "x86_64" => Architecture::X86_64,
            "arm64" => Architecture::Arm64,
            other => return Err(format!("{other:?} is not an architecture: x86_64 or arm64")),
        };
        if !Image::is_id(id) {
            return Err(format!("{id:?} is not the id of an image, such as ami-0123456789abcdef0"));
        }
        Ok(Self { architecture, id: id.to_owned() })
    }
}

/// Returns references that CloudFormation resolves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalParameters;

impl Parameters for LocalParameters {
    async fn value(&self, name: &str) -> PortResult<Option<String>> {
        Ok(Some(Image::reference(name)))
    }

    async fn secret(&self, _: &str) -> PortResult<SecretParameter> {
        // Passphrases come from the environment or a prompt: see `imports`.
        Ok(SecretParameter::Missing)
    }
}

/// Writes the given images into the cluster's lock, replacing pinned ones.
pub(crate) async fn pin(
    objects: &impl Objects,
    cluster: &Cluster,
    pins: &[ImagePin],
) -> Result<(), CliError> {
    if pins.is_empty() {
        return Ok(());
    }
    let key = keys::lock(&cluster.name);
    let images =
        std::iter::once(&cluster.image).chain(cluster.pools.iter().filter_map(|pool| pool.image.as_ref()));
    let mut chosen: BTreeMap<&str, &str> = BTreeMap::new();
    for image in images {
        let Image::SsmParameter(names) = image else { continue };
        for pin in pins {
            chosen.extend(names.get(&pin.architecture).map(|name| (name.as_str(), pin.id.as_str())));
        }
    }
    store::update(objects, &key, |old: Option<&Lock>| {
        let mut lock = old.cloned().unwrap_or_default();
        lock.format = Lock::FORMAT;
        lock.images.extend(chosen.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())));
        Some(lock)
    })
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_an_architecture_and_an_id() {
        let pin: ImagePin = "arm64=ami-0123456789abcdef0".parse().expect("a pin");
        assert_eq!(pin.architecture, Architecture::Arm64);
        for wrong in ["ami-0123456789abcdef0", "mips=ami-0123456789abcdef0", "arm64=ubuntu", "arm64="] {
            assert!(wrong.parse::<ImagePin>().is_err(), "{wrong}");
        }
    }
}
