//! For tests of findings, here and in other crates: a spec to begin with, and findings as text.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, clippy::must_use_candidate, reason = "tests")]

use std::fmt::Write as _;

use slipway_core::diagnostic::{Diagnostic, Severity};

/// Three zones, public and private; every test changes something of it.
pub const BASE: &str = "\
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
- {name: front-b, availabilityZone: eu-west-1b, instanceCIDR: 10.0.240.0/24}
- {name: front-c, availabilityZone: eu-west-1c, instanceCIDR: 10.0.241.0/24}
worker:
  nodePools:
  - name: general
";

/// Findings as text: place, severity, code, path and message in one line, the help in the next.
pub fn findings_text(diagnostics: &[Diagnostic]) -> String {
    let mut text = String::new();
    for finding in diagnostics {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Diagnostic { line, column, code, path, message, help, .. } = finding;
        write!(
            text,
            "{line}:{column} {severity} {code} at `{path}`: {message}\n    {}\n",
            help.as_deref().unwrap_or("NO HELP")
        )
        .unwrap();
    }
    text
}
