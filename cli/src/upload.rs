//! What an upload consists of besides the spec, and the plan that it would result in. For `slipway plan` and `slipway apply`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use jiff::Timestamp;
use slipway_core::cluster::OwnAuthority;
use slipway_crypto::AwsLc;
use slipway_flows::environment::IMAGE_MIRROR;
use slipway_flows::imports::{ImportFile, Imports, Passphrase};
use slipway_flows::patches::PatchSet;
use slipway_flows::rendering::{Foreseen, Preview, RenderPorts, preview};
use slipway_ports::{Flaw, PortResult, Secret};
use slipway_registry::OciRegistry;

use crate::cloud::Cloud;
use crate::failure::CliError;
use crate::local::LocalImports;
use crate::printer::Printer;
use crate::source::Source;

/// What happens to patches in the spec bucket that are not beside the spec.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct OtherPatches {
    /// Delete patches in the spec bucket that are not beside FILE.
    #[arg(long, conflicts_with = "keep_patches")]
    prune: bool,
    /// Keep patches in the spec bucket that are not beside FILE.
    #[arg(long)]
    keep_patches: bool,
}

/// The patches that an upload leaves in the spec bucket.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    /// All of them.
    pub(crate) set: PatchSet,
    /// The names of those to upload.
    pub(crate) new: Vec<String>,
    /// The names of those to delete.
    pub(crate) pruned: Vec<String>,
    /// The names of those that are not beside the spec and stay.
    pub(crate) kept: Vec<String>,
}

impl OtherPatches {
    /// The patches after an upload of `source`.
    pub(crate) async fn after_upload(&self, cloud: &Cloud, source: &Source) -> Result<Patches, CliError> {
        let name = cloud.cluster.as_str();
        let mut there = PatchSet::read(&cloud.specs().await?, name).await?.files;
        let beside = &source.patches.files;
        let new = beside.iter().filter(|(patch, bytes)| there.get(*patch) != Some(*bytes));
        let mut patches = Patches {
            set: source.patches.clone(),
            new: new.map(|(patch, _)| patch.clone()).collect(),
            ..Patches::default()
        };
        there.retain(|patch, _| !beside.contains_key(patch));
        let others: Vec<String> = there.keys().cloned().collect();
        match (others.is_empty(), self.prune, self.keep_patches) {
            (true, _, _) => {}
            (false, true, _) => patches.pruned = others,
            (false, false, true) => {
                patches.kept = others;
                patches.set.files.extend(there);
            }
            (false, false, false) => {
                let problem = format!(
                    "the spec bucket has patches of {name} that are not beside {}: {}",
                    source.name,
                    others.join(", ")
                );
                return Err(CliError::refused(problem, "--prune deletes them, --keep-patches keeps them"));
            }
        }
        Ok(patches)
    }
}

/// `import/` beside the spec, to be uploaded to a bucket that is not for secrets (P9). Remembers which files were read.
#[derive(Debug)]
pub(crate) struct Going {
    local: LocalImports,
    read: Mutex<BTreeMap<String, Secret>>,
}

impl Going {
    /// The files beside `source`. `asks`: a person may be asked for passphrases.
    pub(crate) fn beside(source: &Source, asks: bool) -> Self {
        Self { local: source.imports(asks), read: Mutex::default() }
    }

    /// Whether there are any.
    pub(crate) fn is_there(&self) -> bool {
        self.local.is_there()
    }

    /// The files that were read.
    pub(crate) fn into_read(self) -> BTreeMap<String, Secret> {
        self.read.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Imports for Going {
    async fn file(&self, name: &str) -> PortResult<Option<ImportFile>> {
        let Some(file) = self.local.file(name).await? else { return Ok(None) };
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        read.insert(name.to_owned(), file.bytes.clone());
        let flaw = Flaw {
            message: format!(
                "the private key in import/{name} is not encrypted, and would be stored unencrypted in the spec bucket"
            ),
            help: format!(
                "encrypt it with `openssl pkcs8 -topk8 -v2 aes-256-cbc -in {name} -out {name}.enc`, put that at import/{name}, \
                 and the passphrase into the SSM SecureString that passphraseParameter names"
            ),
        };
        Ok(Some(ImportFile { bytes: file.bytes, exposed: Some(flaw) }))
    }

    async fn passphrase(&self, name: &str, own: &OwnAuthority) -> PortResult<Passphrase> {
        self.local.passphrase(name, own).await
    }
}

/// The plan that the render function would publish after an upload. Nothing is written, and no key is made or asked for.
pub(crate) async fn foresee(
    cloud: &Cloud,
    source: &Source,
    patches: &PatchSet,
    imports: &impl Imports,
) -> Result<Preview, CliError> {
    let settings = cloud.render_settings().await?;
    let registry = OciRegistry::by_mirror(IMAGE_MIRROR, settings.image_mirror.as_deref());
    let registry = registry.map_err(|problem| cloud.bad_settings(&problem))?;
    let ports = RenderPorts {
        specs: &cloud.specs().await?,
        assets: cloud.assets(),
        issuer: None,
        keys: &cloud.keys(&settings.kms_key_arn),
        parameters: &cloud.parameters(),
        registry: &registry,
        bus: &(),
        crypto: &AwsLc,
    };
    let (site, now) = (settings.site(), Timestamp::now());
    let found = preview(&ports, imports, &site, &cloud.cluster, &source.bytes, patches, now).await;
    found.map_err(|error| CliError::from(error).in_cloud())
}

/// The page of a plan for a person who has not uploaded yet: the plan's own, and what would happen to it.
pub(crate) fn page(foreseen: &Foreseen, printer: &Printer) -> String {
    let plan = &foreseen.plan;
    let mut text = printer.coloured(&plan.to_text());
    if !foreseen.made.is_empty() {
        let _ = writeln!(text, "credentials to make: {}", foreseen.made.join(", "));
    }
    text.push_str(match (foreseen.unchanged, plan.is_empty()) {
        (true, true) => "",
        (true, false) => "it is being rolled out already\n",
        (false, true) => "the upload lets the rollout check the whole cluster again\n",
        (false, false) if plan.not_executable().is_some() => "",
        (false, false) if plan.waits_for_approval(Timestamp::now()) => {
            "after the upload it waits for an approval\n"
        }
        (false, false) => "after the upload it begins by itself\n",
    });
    text
}
