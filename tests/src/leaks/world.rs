//! What a whole installation wrote: objects, logs, events, calls, answers, and what CloudFormation was told.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use slipway_crypto::AwsLc;
use slipway_ports::{Context, Crypto as _, Secret};

use super::{Findings, Scanner, has_private_key};
use crate::installation::Installation;
use crate::observe::Observed;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// The secrets of a cluster, opened with KMS by an operator who may do everything.
#[derive(Debug)]
pub struct Secrets {
    /// Searches for the private half of each asset, and for the data keys that seal them.
    pub scanner: Scanner,
    /// What the bundle of each role holds.
    pub bundles: BTreeMap<String, Vec<u8>>,
}

/// What was searched.
#[derive(Debug, Default)]
pub struct Searched {
    /// The secrets that were found, by place.
    pub findings: Findings,
    /// How many pieces of each kind were searched.
    pub pieces: BTreeMap<&'static str, usize>,
}

impl Secrets {
    /// Opens the secrets of `cluster`.
    ///
    /// # Errors
    /// If S3 or KMS refuses, or something cannot be opened.
    pub async fn open(slipway: &Installation, cluster: &str) -> Fallible<Self> {
        let world = slipway.world();
        let bucket = world.reference("AssetBucket")?;
        let (mut scanner, mut bundles) = (Scanner::default(), BTreeMap::new());
        let keys: BTreeSet<String> =
            world.client().versions(bucket).await?.into_iter().map(|version| version.key).collect();
        for key in keys {
            let parts: Vec<&str> = key.split('/').collect();
            let (role, object) = match parts[..] {
                ["clusters", of, "pki", asset, file] if of == cluster && file.ends_with(".sealed") => {
                    ("vault", Some(format!("{asset}/{}", file.trim_end_matches(".sealed"))))
                }
                ["clusters", of, "bundles", role, file]
                    if of == cluster && file.starts_with("credentials-") =>
                {
                    (role, None)
                }
                _ => continue,
            };
            let sealed = world.client().object(bucket, &key).await?.ok_or("an object is gone")?;
            let context: Context = [("cluster", cluster), ("role", role)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into();
            for sealing in AwsLc.sealings(&sealed)? {
                let asked =
                    json!({"CiphertextBlob": STANDARD.encode(sealing.wrapped), "EncryptionContext": context});
                let answer = world.client().json("kms", "TrentService.Decrypt", asked).await?;
                let plain = answer["Plaintext"].as_str().ok_or("KMS opened nothing")?;
                let data_key = Secret::new(STANDARD.decode(plain)?);
                let mut context = context.clone();
                context.extend(object.clone().map(|object| ("object".to_owned(), object)));
                let opened = AwsLc.open(&data_key, &context, sealing.bytes)?;
                scanner.add(&format!("{key}: data key"), data_key.expose());
                match &object {
                    Some(object) => {
                        let name = object.split('/').next().unwrap_or(object);
                        let kind = if opened.expose().starts_with(b"-----BEGIN") { "key" } else { "secret" };
                        scanner.add(&format!("{name} {kind}"), opened.expose());
                    }
                    None => drop(bundles.insert(role.to_owned(), opened.expose().to_vec())),
                }
            }
        }
        Ok(Self { scanner, bundles })
    }

    /// Searches all that the installation has written, logged, published and told CloudFormation.
    ///
    /// # Errors
    /// If an object cannot be read.
    pub async fn search(&self, slipway: &Installation) -> Fallible<Searched> {
        let world = slipway.world();
        let mut searched = Searched::default();
        for bucket in ["SpecBucket", "AssetBucket", "IssuerBucket"] {
            let Ok(bucket) = world.reference(bucket) else { continue };
            for version in world.client().versions(bucket).await? {
                let (key, query) = (&version.key, format!("versionId={}", version.version));
                let place = format!("{bucket}/{key}");
                let (_, bytes) = world.client().s3(Method::GET, &place, &query, Vec::new()).await?;
                self.look(&mut searched, "objects", &place, &bytes);
                if has_private_key(&bytes) {
                    searched.findings.0.entry(place).or_default().insert("a private key".to_owned());
                }
            }
        }
        for seen in world.observer().since(0) {
            let kind = match &seen.what {
                Observed::Call(_) => "calls",
                Observed::Event { .. } => "events",
                Observed::Log { .. } => "logs",
                Observed::Finished { .. } => "answers",
                Observed::Started(_)
                | Observed::DeadLettered { .. }
                | Observed::Routed { .. }
                | Observed::NotPermitted { .. }
                | Observed::Trouble(_) => "others",
            };
            let text = if let Observed::Log { line, .. } = &seen.what {
                line.clone()
            } else if let Observed::Event { event, .. } = &seen.what {
                event.to_string()
            } else {
                format!("{:?}", seen.what)
            };
            self.look(&mut searched, kind, kind, text.as_bytes());
        }
        // Templates, change sets, schedules: all inputs of CloudFormation and other services.
        let told = world.cloud().with(|cloud| format!("{cloud:?}"));
        assert!(told.contains("AWS::EC2::LaunchTemplate") && told.len() > 100_000, "{} bytes", told.len());
        self.look(&mut searched, "told", "the cloud", told.as_bytes());
        Ok(searched)
    }

    fn look(&self, searched: &mut Searched, kind: &'static str, place: &str, bytes: &[u8]) {
        *searched.pieces.entry(kind).or_default() += 1;
        searched.findings.search(&self.scanner, place, bytes);
    }
}
