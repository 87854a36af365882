//! Each kind of bad input with its place, code, message and cure.

use std::fmt::Write as _;

use super::super::{Diagnostic, Expected, Severity, parse};

/// Three zones, public and private; every test changes something of it.
const BASE: &str = "\
clusterName: base
region: eu-west-1
kubernetesVersion: \"1.37\"
apiEndpoints:
- name: default
  dnsName: api.example.com
subnets:
- {name: public-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.0.0/24}
- {name: private-a, availabilityZone: eu-west-1a, instanceCIDR: 10.0.1.0/24, private: true}
- {name: private-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.2.0/24, private: true}
- {name: private-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.3.0/24, private: true}
worker:
  nodePools:
  - name: general
";

fn findings(text: impl AsRef<[u8]>) -> Vec<Diagnostic> {
    match parse(text.as_ref(), None) {
        Ok(accepted) => accepted.warnings,
        Err(diagnostics) => diagnostics,
    }
}

/// One finding a line: place, gravity, code, path, message, cure.
fn told(diagnostics: &[Diagnostic]) -> String {
    let mut text = String::new();
    for finding in diagnostics {
        let grave = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Diagnostic { line, column, code, path, message, help, .. } = finding;
        write!(
            text,
            "{line}:{column} {grave} {code} at `{path}`: {message}\n    {}\n",
            help.as_deref().unwrap_or("NO CURE")
        )
        .unwrap();
    }
    text
}

fn told_of(text: impl AsRef<[u8]>) -> String {
    told(&findings(text))
}

/// [`BASE`] with more keys at its end.
fn with(more: &str) -> String {
    told_of(format!("{BASE}{more}"))
}

/// [`BASE`] with one piece replaced.
fn instead(old: &str, new: &str) -> String {
    assert!(BASE.contains(old), "{old:?} is not in the base");
    told_of(BASE.replacen(old, new, 1))
}

macro_rules! says {
    ($told:expr, @$wanted:literal) => {
        insta::assert_snapshot!($told, @$wanted)
    };
}

#[test]
fn the_base_itself_is_accepted() {
    assert_eq!(told_of(BASE), "");
}

mod aws;
mod control;
mod etcd;
mod identity;
mod network;
mod nodes;
mod pools;
mod relations;
mod renewal;
mod structure;
