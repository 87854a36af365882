//! Where nodes have their programs from.

use slipway_core::cluster::{Software, SoftwareSource};

use super::Lowering;
use super::volumes::RootImage;
use crate::model::SoftwareSourceSpec;
use crate::path::Path;
use crate::text::is_dns_name;

impl Lowering<'_, '_, '_> {
    pub(super) fn software(&mut self) -> Software {
        let spec = &self.spec.software;
        let path = Path::parse("software").key("baseURL");
        let source = match spec.source {
            None | Some(SoftwareSourceSpec::Release) => SoftwareSource::Release,
            Some(SoftwareSourceSpec::Image) => SoftwareSource::Image,
        };
        let base_url = spec.base_url.as_deref().and_then(|text| self.base_url(text, &path));
        if source == SoftwareSource::Image && spec.base_url.is_some() {
            self.report.error(
                "software-unused",
                &path,
                "nothing is fetched from there while `source` is `image`",
                "remove `baseURL`, or write `source: release`",
            );
        }
        // Controllers and members have the cluster's image. A patch may name another one.
        if source == SoftwareSource::Image && self.image_of_cluster() == RootImage::AmazonLinux {
            self.report.warning(
                "software-image",
                &Path::parse("software.source"),
                "the programs are to be in the image, and Amazon Linux 2023, which nodes run unless told otherwise, has none: no node would join",
                "name your image in `amiId` or `image`, or write `source: release`",
            );
        }
        let image_repository = self.image_repository(
            spec.image_repository.as_deref(),
            &Path::parse("software").key("imageRepository"),
        );
        Software { source, base_url, image_repository }
    }

    fn base_url(&mut self, text: &str, path: &Path) -> Option<String> {
        let word = |part: &str| {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            !part.is_empty() && part != "." && part != ".." && part.bytes().all(fits)
        };
        let trimmed = text.strip_suffix('/').unwrap_or(text);
        let place = ["https://", "s3://"].iter().find_map(|scheme| trimmed.strip_prefix(scheme));
        let (host, rest) =
            place.map(|place| place.split_once('/').unwrap_or((place, ""))).unwrap_or_default();
        let (name, port) = host.split_once(':').unwrap_or((host, "443"));
        let is_host = if trimmed.starts_with("s3://") {
            (3..=63).contains(&host.len())
                && host
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte))
        } else {
            is_dns_name(name) && port.parse::<u16>().is_ok()
        };
        if !is_host || !(rest.is_empty() || rest.split('/').all(word)) {
            let help = "write `https://` and a host, or `s3://` and a bucket, and perhaps a path: `s3://programs/slipway`";
            self.report.error("software-url", path, format!("`{text}` is not a place for programs"), help);
            return None;
        }
        Some(trimmed.to_owned())
    }
}
