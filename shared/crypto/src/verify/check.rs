//! The checks of a single certificate.

use jiff::Timestamp;

use super::Finding;
use super::facts::{Facts, KeyType, Signature};
use super::files::Certificate;
use super::layout::{Expected, Need};

/// All problems of one certificate. Its path says what it is for. Its dates are checked against a time and a number of days ahead.
pub(super) fn check_certificate(
    certificate: &Certificate,
    expected: Option<&Expected>,
    at: Option<(Timestamp, u32)>,
    findings: &mut Vec<Finding>,
) {
    let mut found = CertificateFindings { at: || certificate.at(), findings };
    dates(&certificate.facts, at, &mut found);
    strength(&certificate.facts, &mut found);
    shape(&certificate.facts, &mut found);
    if let Some(expected) = expected {
        purpose(&certificate.facts, expected, &mut found);
        names(&certificate.facts, expected, &mut found);
    } else if !certificate.facts.authority && serves(&certificate.facts) {
        nameless(&certificate.facts, &mut found);
    }
}

struct CertificateFindings<'f, F> {
    at: F,
    findings: &'f mut Vec<Finding>,
}

impl<F: Fn() -> String> CertificateFindings<'_, F> {
    fn error(&mut self, code: &'static str, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding::new(&(self.at)(), code, message.into(), help.into()));
    }

    fn warning(&mut self, code: &'static str, message: impl Into<String>, help: impl Into<String>) {
        self.findings.push(Finding::warning(&(self.at)(), code, message.into(), help.into()));
    }
}

fn days(count: i64) -> String {
    format!("{count} day{}", if count == 1 { "" } else { "s" })
}

fn dates(
    facts: &Facts,
    at: Option<(Timestamp, u32)>,
    found: &mut CertificateFindings<'_, impl Fn() -> String>,
) {
    if facts.not_after < facts.not_before {
        found.error("dates", "it ends before it begins", "issue it anew");
        return;
    }
    let Some((now, soon_days)) = at else { return };
    let days_left = facts.days_left(now);
    if facts.not_after < now {
        let message = format!("it expired {} ago, at {}", days(-days_left), facts.not_after);
        found.error("expired", message, "issue it again: clients and servers reject it");
    } else if facts.not_before > now {
        let message = format!("it is not valid before {}", facts.not_before);
        found.error(
            "not-yet-valid",
            message,
            "wait, or set the clock: this machine's, or that of who issued it",
        );
    } else if days_left < i64::from(soon_days) {
        let message = format!("it expires in {}, at {}", days(days_left), facts.not_after);
        found.warning("expires-soon", message, "issue it anew before that day");
    }
}

fn strength(facts: &Facts, found: &mut CertificateFindings<'_, impl Fn() -> String>) {
    if let Some(weakness) = facts.key.weakness() {
        found.error("weak-key", weakness, "issue it anew with another key");
    }
    match facts.signature {
        Signature::Broken(name) => {
            let message = format!("it is signed by {name}, which can be forged; Go and OpenSSL refuse it");
            found.error("weak-signature", message, "issue it anew, signed with SHA-256");
        }
        Signature::Sound(_) => {}
    }
}

/// The rules of RFC 5280 for any certificate.
fn shape(facts: &Facts, found: &mut CertificateFindings<'_, impl Fn() -> String>) {
    if let Some(fault) = facts.serial_fault {
        let message = format!("its serial number {fault} (RFC 5280, 4.1.2.2)");
        found.warning("serial", message, "issue it anew with a random serial number");
    }
    if !facts.foreign.is_empty() {
        let message =
            format!("it has critical extensions that nobody here knows: {}", facts.foreign.join(", "));
        found.error("extension", message, "issue it anew without them");
    }
    let usage = facts.usage;
    if facts.authority {
        if usage.is_some_and(|usage| !usage.cert_sign) {
            let message = "it is an authority, and its key usage forbids to sign certificates (keyCertSign)";
            found.error("purpose", message, "issue it anew with keyCertSign");
        }
    } else if usage.is_some_and(|usage| usage.cert_sign) {
        let message = "its key usage lets it sign certificates, and it is not an authority";
        found.error("purpose", message, "issue it anew without keyCertSign");
    }
    let curve = matches!(facts.key, KeyType::Ecdsa(_) | KeyType::Ed25519);
    if curve && usage.is_some_and(|usage| usage.key_encipherment) {
        let message = "its key usage says keyEncipherment, which an elliptic curve key cannot do (RFC 8813)";
        found.warning("purpose", message, "issue it anew with digitalSignature alone");
    }
}

fn purpose(facts: &Facts, expected: &Expected, found: &mut CertificateFindings<'_, impl Fn() -> String>) {
    if expected.authority {
        if !facts.authority {
            let message = format!("its place is an authority's, and {} is none (CA:FALSE)", facts.subject);
            found.error("purpose", message, "put the authority's certificate there");
        }
        return;
    }
    if facts.authority {
        let message = format!("its place is a leaf's, and {} is an authority (CA:TRUE)", facts.subject);
        found.error(
            "purpose",
            message,
            "put the leaf's certificate there: an authority's key belongs on no node",
        );
        return;
    }
    if facts.usage.is_some_and(|usage| !usage.digital_signature) {
        let message = "its key usage lacks digitalSignature, which TLS 1.3 needs";
        found.error("purpose", message, "issue it anew with digitalSignature");
    }
    let extended = facts.extended;
    let can = |which: fn(super::Extended) -> bool| extended.is_none_or(which);
    for (need, can, says, role, other) in [
        (
            expected.server,
            can(|usage| usage.server),
            "serverAuth",
            "serve",
            "a client's certificate does not serve",
        ),
        (
            expected.client,
            can(|usage| usage.client),
            "clientAuth",
            "be a client",
            "that of a server is not for clients",
        ),
    ] {
        match need {
            Need::Must if !can => {
                let message = format!("it must {role}, and its extended key usage lacks {says}: {other}");
                found.error("purpose", message, format!("issue it anew with {says}"));
            }
            // A certificate without the extension may do anything; this is reported once, below.
            Need::Never if can && extended.is_some() => {
                let message = format!("it could {role} ({says}), which its place has no use for");
                found.warning("purpose", message, format!("issue it anew without {says}"));
            }
            Need::Must | Need::May | Need::Never => {}
        }
    }
    if extended.is_none() {
        let message = "it has no extended key usage, so that it is good for anything";
        found.warning("purpose", message, "issue it anew with serverAuth or clientAuth, as its place needs");
    }
}

fn serves(facts: &Facts) -> bool {
    facts.extended.is_some_and(|usage| usage.server)
}

fn nameless(facts: &Facts, found: &mut CertificateFindings<'_, impl Fn() -> String>) -> bool {
    let none = facts.sans.is_empty();
    if none {
        let message = "it serves, and has no subject alternative name: no client of today reads the CN";
        found.error("name", message, "issue it anew with the names that it is called by");
    }
    none
}

fn names(facts: &Facts, expected: &Expected, found: &mut CertificateFindings<'_, impl Fn() -> String>) {
    if expected.authority {
        return;
    }
    if expected.server == Need::Must && nameless(facts, found) {
        return;
    }
    let missing: Vec<&str> =
        expected.names.iter().filter(|name| !facts.sans.contains(name)).map(String::as_str).collect();
    if !missing.is_empty() {
        let message = format!("it lacks names that it is called by: {}", missing.join(", "));
        found.error("name", message, "issue it anew with them");
    }
    if expected.no_more {
        let more: Vec<&str> =
            facts.sans.iter().filter(|san| !expected.names.contains(*san)).map(String::as_str).collect();
        if !more.is_empty() {
            let message = format!("it has names that the spec does not give it: {}", more.join(", "));
            found.error("name", message, "issue it anew, or take the names into the spec");
        }
    }
    if let Some((common_name, organizations)) = &expected.subject {
        if facts.common_name.as_deref() != Some(common_name) {
            let is = facts.common_name.as_deref().unwrap_or("none");
            let message = format!("its CN is {is}, and should be {common_name}");
            found.error("name", message, "issue it anew");
        }
        if &facts.organizations != organizations {
            let words = |list: &[String]| if list.is_empty() { "none".to_owned() } else { list.join(", ") };
            let message = format!(
                "its O, which is its groups, is {}, and should be {}",
                words(&facts.organizations),
                words(organizations)
            );
            found.error("name", message, "issue it anew");
        }
    }
}
