//! What exists already: named by its id, or by the name under which another stack exports that id.

use slipway_core::cluster::Existing;

use super::Lowering;
use crate::model::ExistingSpec;
use crate::path::Path;
use crate::text::is_id;

/// A pair of keys that name one thing, at most one of which may be given.
pub(super) struct Named<'s> {
    pub(super) id: Option<&'s str>,
    pub(super) id_path: Path,
    pub(super) export: Option<&'s str>,
    pub(super) export_path: Path,
}

impl<'s> Named<'s> {
    /// `id` and `idFromStackOutput` of the group at `path`.
    pub(super) fn at(path: &Path, id: &'s Option<String>, export: &'s Option<String>) -> Self {
        Self {
            id: id.as_deref(),
            id_path: path.key("id"),
            export: export.as_deref(),
            export_path: path.key("idFromStackOutput"),
        }
    }

    /// Whether either is given.
    pub(super) fn given(&self) -> bool {
        self.id.is_some() || self.export.is_some()
    }

    /// Where it is given.
    pub(super) fn path(&self) -> &Path {
        if self.id.is_some() { &self.id_path } else { &self.export_path }
    }
}

impl Lowering<'_, '_, '_> {
    /// The thing of EC2 that the group `key` names, or kube-aws' `old_key`.
    pub(super) fn existing_or(
        &mut self,
        spec: &ExistingSpec,
        key: &str,
        old: Option<&str>,
        old_key: &str,
        kind: &str,
    ) -> Option<Existing> {
        let named = Named::at(&Path::parse(key), &spec.id, &spec.id_from_stack_output);
        if old.is_some() && named.given() {
            let new = named.path();
            let message = format!("`{old_key}` and `{new}` say the same");
            self.report.error("given-twice", &Path::parse(old_key), message, format!("keep `{new}`"));
            return None;
        }
        let named =
            if old.is_some() { Named { id: old, id_path: Path::parse(old_key), ..named } } else { named };
        self.existing(&named, kind)
    }

    /// The thing of EC2 that `named` names, if it names one.
    pub(super) fn existing(&mut self, named: &Named<'_>, kind: &str) -> Option<Existing> {
        if let Some(id) = named.id.filter(|id| !is_id(id, kind)) {
            self.report.error(
                "id-syntax",
                &named.id_path,
                format!("`{id}` does not name one"),
                format!("write an id such as `{kind}-0123456789abcdef0`"),
            );
        }
        self.named(named)
    }

    /// The resource that `named` refers to, without a check of its id's form.
    pub(super) fn named(&mut self, named: &Named<'_>) -> Option<Existing> {
        let Some(export) = named.export else { return named.id.map(Existing::from) };
        if named.id.is_some() {
            let message = format!("`{}` and `{}` say the same", named.id_path, named.export_path);
            self.report.error(
                "given-twice",
                &named.export_path,
                message,
                format!("keep `{}`", named.id_path),
            );
        }
        let own = self.spec.cluster_name.as_deref().map(|cluster| format!("{cluster}-network-"));
        if !is_export_name(export) {
            self.report.error(
                "export-name",
                &named.export_path,
                format!("`{export}` cannot be the name of an export"),
                "write the `Export: {Name: …}` of the other stack's output: letters, digits, colons and hyphens, 255 at most",
            );
        } else if own.is_some_and(|own| export.starts_with(&own)) {
            self.report.error(
                "export-name",
                &named.export_path,
                format!("`{export}` is an export of this cluster's own network stack"),
                "name what another stack exports",
            );
        }
        Some(Existing::Export(export.to_owned()))
    }
}

/// docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/outputs-section-structure.html
fn is_export_name(text: &str) -> bool {
    (1..=255).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b':' || byte == b'-')
}
