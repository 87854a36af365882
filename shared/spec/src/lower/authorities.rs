//! Authorities that somebody brings.

use std::collections::BTreeMap;

use slipway_core::cluster::{OwnAuthority, OwnSource};
use slipway_core::role::{CA, ETCD_CA, FRONT_PROXY_CA, KUBELET_CA};

use super::Lowering;
use crate::model::{AuthoritySourceSpec, AuthoritySpec};
use crate::path::Path;

/// The longest name of an SSM parameter that ends below our path.
const LONGEST_PARAMETER: usize = 1011;

impl Lowering<'_, '_, '_> {
    pub(super) fn authorities(&mut self) -> BTreeMap<String, OwnAuthority> {
        let spec = &self.spec.certificates_configuration.authorities;
        let all = [
            (CA, &spec.ca),
            (KUBELET_CA, &spec.kubelet_ca),
            (ETCD_CA, &spec.etcd_ca),
            (FRONT_PROXY_CA, &spec.front_proxy_ca),
        ];
        let root = Path::parse("certificatesConfiguration.authorities");
        let mut authorities = BTreeMap::new();
        let mut files: BTreeMap<String, &str> = BTreeMap::new();
        for (name, authority) in all {
            let path = root.key(name);
            let Some(own) = self.authority(name, authority, &path) else { continue };
            let mut used = vec![("certificate", &own.certificate)];
            if own.source == OwnSource::Imported {
                used.push(("key", &own.key));
            }
            for (key, file) in used {
                if let Some(other) = files.insert(file.clone(), name) {
                    self.report.error(
                        "own-ca",
                        &path.key(key),
                        format!("`{file}` is named twice, for {other} and for {name}"),
                        "give each authority a certificate and a key of its own: controllers hold the key of kubelet-ca, and no node may hold that of another",
                    );
                }
            }
            authorities.insert(name.to_owned(), own);
        }
        authorities
    }

    /// `None`: Slipway makes it.
    fn authority(&mut self, name: &str, spec: &AuthoritySpec, path: &Path) -> Option<OwnAuthority> {
        let source = match spec.source {
            None | Some(AuthoritySourceSpec::Generated) => {
                let given = [
                    ("certificate", &spec.certificate),
                    ("key", &spec.key),
                    ("passphraseParameter", &spec.passphrase_parameter),
                ];
                for (key, _) in given.into_iter().filter(|(_, value)| value.is_some()) {
                    self.report.error(
                        "own-ca",
                        &path.key(key),
                        format!("nothing is read for {name}: Slipway makes it"),
                        "write `source: imported` beside it, or take it out",
                    );
                }
                return None;
            }
            Some(AuthoritySourceSpec::Imported) => OwnSource::Imported,
            Some(AuthoritySourceSpec::Provided) => OwnSource::Provided,
        };
        if source == OwnSource::Provided && name == KUBELET_CA {
            self.report.error(
                "own-ca",
                &path.key("source"),
                "kubelet-ca cannot come without its key: controllers sign kubelets with it, as they join",
                "write `imported`, or take it out and have Slipway make one, which signs kubelets and nothing else",
            );
        }
        if source == OwnSource::Provided && spec.key.is_some() {
            self.report.error(
                "own-ca",
                &path.key("key"),
                format!("the key of {name} is not read: it is `provided`, and so is what it signs"),
                "take it out, and keep the key where it is; or write `source: imported`",
            );
        }
        let certificate =
            self.import_file(spec.certificate.as_ref(), &format!("{name}.pem"), &path.key("certificate"));
        let key = self.import_file(spec.key.as_ref(), &format!("{name}-key.pem"), &path.key("key"));
        let passphrase_parameter = spec.passphrase_parameter.clone();
        if let Some(parameter) = &passphrase_parameter {
            self.passphrase_parameter(parameter, &path.key("passphraseParameter"));
        }
        Some(OwnAuthority { source, certificate, key, passphrase_parameter })
    }

    fn import_file(&mut self, given: Option<&String>, default: &str, path: &Path) -> String {
        let Some(file) = given else { return default.to_owned() };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let name = file.strip_prefix("import/").unwrap_or(file);
        if name.is_empty() || name.len() > 128 || name.starts_with('.') || !name.bytes().all(plain) {
            self.report.error(
                "own-ca",
                path,
                format!("`{file}` is not a name of a file in `import/`"),
                format!("write letters, digits, `-`, `_` and `.` alone, such as `{default}`"),
            );
        }
        name.to_owned()
    }

    /// The render function may read its own parameters alone, and a cluster's spec names its own alone.
    fn passphrase_parameter(&mut self, parameter: &str, path: &Path) {
        let cluster = self.spec.cluster_name.clone().unwrap_or_default();
        let root = format!("/slipway/{cluster}/");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
        let below = parameter
            .strip_prefix(&root)
            .is_some_and(|rest| rest.split('/').all(|part| !part.is_empty()) && rest.bytes().all(plain));
        if !below || parameter.len() > LONGEST_PARAMETER {
            self.report.error(
                "own-ca",
                path,
                format!("`{parameter}` is not a parameter of this cluster"),
                format!("name an SSM SecureString below `{root}`, such as `{root}ca-passphrase`: others are not read"),
            );
        }
    }
}
