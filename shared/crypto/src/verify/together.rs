//! The checks that need several certificates and keys: chains, keys, twins, serial numbers, the inventory.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Signature;
use super::files::{Certificate, KeyFile};
use super::layout::{Expectations, Layout, entry};
use super::{Finding, Survey, Twins};

/// Checks the issuer of every certificate.
pub(super) fn chains(
    survey: &Survey,
    current: &[&Certificate],
    expectations: &Expectations<'_>,
    findings: &mut Vec<Finding>,
) {
    let mut by_subject: BTreeMap<&[u8], Vec<&Certificate>> = BTreeMap::new();
    for certificate in &survey.certificates {
        by_subject.entry(&certificate.facts.subject_raw).or_default().push(certificate);
    }
    // Copies of a certificate in two files count once.
    for candidates in by_subject.values_mut() {
        let mut seen = BTreeSet::new();
        candidates.retain(|one| seen.insert(&one.facts.fingerprint));
    }
    // The keys of each name: there are several if an authority was renewed with a new key.
    let mut by_name: BTreeMap<String, BTreeSet<&String>> = BTreeMap::new();
    for one in current.iter().filter(|one| one.facts.authority) {
        for name in [one.name.clone(), survey.name_of(one)] {
            by_name.entry(name).or_default().insert(&one.facts.spki_sha256);
        }
    }
    let signers = |signed: &Certificate| -> Result<Option<&Certificate>, Unsigned> {
        let candidates = by_subject.get(signed.facts.issuer_raw.as_slice()).map_or(&[][..], Vec::as_slice);
        let mut unknown = false;
        for candidate in candidates {
            match signed.facts.signed_by(&candidate.facts) {
                Some(true) => return Ok(Some(candidate)),
                Some(false) => {}
                None => unknown = true,
            }
        }
        match candidates.first() {
            None => Ok(None),
            Some(_) if unknown => Err(Unsigned::Unknown),
            Some(first) => Err(Unsigned::Forged(first.at())),
        }
    };
    for certificate in current {
        let facts = &certificate.facts;
        let mut error = |code, message: String, help: &str| {
            findings.push(Finding::new(&certificate.at(), code, message, help.to_owned()));
        };
        let signer = match signers(certificate) {
            Ok(Some(signer)) => signer,
            // An authority may be a trust anchor although another certificate signed it.
            Ok(None) if facts.authority => continue,
            Ok(None) => {
                let message = format!("its issuer, {}, is not here", facts.issuer);
                error(
                    "chain",
                    message,
                    "put the issuer's certificate beside it, or look whether it belongs here",
                );
                continue;
            }
            // A broken signature algorithm is reported elsewhere.
            Err(Unsigned::Unknown) if matches!(facts.signature, Signature::Broken(_)) => continue,
            Err(Unsigned::Unknown) if facts.self_issued && facts.key.weakness().is_some() => continue,
            Err(Unsigned::Unknown) => {
                let message =
                    format!("its signature ({}) is of a kind that cannot be checked here", facts.signature);
                error("chain", message, "check it with openssl verify");
                continue;
            }
            Err(Unsigned::Forged(by)) if facts.self_issued => {
                let message =
                    "it names itself as its issuer, and its signature is not of its own key".to_owned();
                let _ = by;
                error("chain", message, "it is damaged or forged: bring the right one back");
                continue;
            }
            Err(Unsigned::Forged(by)) => {
                let message = format!(
                    "it says that {} signed it, and its signature is not of the key in {by}",
                    facts.issuer
                );
                error("chain", message, "one of the two is of another generation: bring the right one back");
                continue;
            }
        };
        if facts.self_issued {
            if !facts.authority {
                let message =
                    "it is signed by itself and is not an authority: nobody can trust it by another"
                        .to_owned();
                error("chain", message, "issue it by the cluster's authority");
            }
            continue;
        }
        if !signer.facts.authority {
            let message = format!("{} signed it, which is not an authority (CA:FALSE)", signer.at());
            error("chain", message, "issue it by an authority");
        }
        if facts.not_after > signer.facts.not_after {
            let message = format!(
                "it is valid until {}, longer than its issuer {}, which ends {}",
                facts.not_after,
                signer.at(),
                signer.facts.not_after
            );
            error(
                "outlives-issuer",
                message,
                "it is good for nothing after that day: renew the issuer, or shorten it",
            );
        }
        if let Some(expected) = expectations.expected_for(certificate).and_then(|expected| expected.issuer) {
            let wanted = expectations.path_of(&expected);
            let is = survey.name_of(signer);
            let right = [wanted, expected.clone()]
                .into_iter()
                .any(|name| by_name.get(&name).is_some_and(|keys| keys.contains(&signer.facts.spki_sha256)));
            if !right && !facts.authority {
                let message =
                    format!("{is} signed it, and should be {expected}: it is good for another purpose");
                error("chain", message, "issue it by the authority that its place needs");
            }
        }
        if facts.authority {
            path_length(certificate, signer, &signers, &mut error);
        }
    }
}

enum Unsigned {
    Forged(String),
    Unknown,
}

/// Checks the path length that an authority allows for the authorities below it.
fn path_length<'s>(
    certificate: &Certificate,
    signer: &'s Certificate,
    signers: &impl Fn(&Certificate) -> Result<Option<&'s Certificate>, Unsigned>,
    error: &mut impl FnMut(&'static str, String, &str),
) {
    let mut above = signer;
    for below in 1..=8 {
        if above.facts.path_length.is_some_and(|most| most < below) {
            let message = format!(
                "it is an authority, and {} lets {} of them stand below it (pathlen)",
                above.at(),
                above.facts.path_length.unwrap_or_default()
            );
            error("path-length", message, "whatever it signed is refused: issue that by the upper authority");
        }
        match signers(above) {
            Ok(Some(next))
                if !above.facts.self_issued && next.facts.fingerprint != certificate.facts.fingerprint =>
            {
                above = next;
            }
            Ok(_) | Err(_) => return,
        }
    }
}

/// Whether keys belong to the certificates beside them.
pub(super) fn keys(
    survey: &Survey,
    current: &[&Certificate],
    expectations: &Expectations<'_>,
    findings: &mut Vec<Finding>,
) {
    let mut by_name: BTreeMap<&str, Vec<&KeyFile>> = BTreeMap::new();
    for key in &survey.keys {
        by_name.entry(&key.name).or_default().push(key);
    }
    for certificate in current.iter().filter(|one| one.place <= 1) {
        let beside = by_name.get(certificate.name.as_str()).map_or(&[][..], Vec::as_slice);
        for key in beside {
            match &key.spki_sha256 {
                Some(spki) if *spki != certificate.facts.spki_sha256 => {
                    let message = format!("it is not the key of {}", certificate.at());
                    let help = "bring the right one back, or issue the certificate anew".to_owned();
                    findings.push(Finding::new(&key.file, "key-mismatch", message, help));
                }
                Some(_) => {}
                None => {
                    let message =
                        "it is under a passphrase: whether it belongs to its certificate cannot be seen";
                    let help = "open it with openssl pkey and compare, or leave it so".to_owned();
                    findings.push(Finding::warning(&key.file, "key-locked", message.to_owned(), help));
                }
            }
        }
        let wanted = expectations.expected_for(certificate).is_some_and(|expected| expected.with_key);
        let sealed = |other: &&super::OtherFile| {
            other.known && other.file.starts_with(&format!("{}-key.", certificate.name))
        };
        if wanted
            && !beside.iter().any(|key| key.private)
            && !survey.others.iter().any(|other| sealed(&other))
        {
            let message = "its private key is not beside it".to_owned();
            let help = "bring the key back, or issue the certificate anew".to_owned();
            findings.push(Finding::new(&certificate.at(), "key-missing", message, help));
        }
    }
    for (name, beside) in by_name {
        let halves = |private: bool| -> BTreeSet<&String> {
            let keys = beside.iter().filter(|key| key.private == private);
            keys.filter_map(|key| key.spki_sha256.as_ref()).collect()
        };
        let (private, public) = (halves(true), halves(false));
        // While the key of service accounts is rotated, a file has two public keys; one of them belongs to the key that signs.
        let pairs =
            private.len() <= 1 && (private.is_empty() || public.is_empty() || private.is_subset(&public));
        if !pairs && !current.iter().any(|one| one.name == name) {
            let message = "the private and the public key of that name are not one pair".to_owned();
            let help = "write the public key anew from the private one: openssl pkey -pubout".to_owned();
            findings.push(Finding::new(&beside[0].file, "key-mismatch", message, help));
        }
    }
}

/// No two certificates of an issuer have the same serial number.
pub(super) fn serials(current: &[&Certificate], findings: &mut Vec<Finding>) {
    let mut seen: BTreeMap<(&[u8], &str), &Certificate> = BTreeMap::new();
    for certificate in current {
        let facts = &certificate.facts;
        match seen.get(&(facts.issuer_raw.as_slice(), facts.serial.as_str())) {
            Some(other) if other.facts.fingerprint != facts.fingerprint => {
                let message = format!(
                    "it has the serial number of {}, by the same issuer: {}",
                    other.at(),
                    facts.serial
                );
                let help = "issue it anew with a random serial number: some clients refuse both".to_owned();
                findings.push(Finding::new(&certificate.at(), "serial", message, help));
            }
            Some(_) => {}
            None => {
                seen.insert((&facts.issuer_raw, &facts.serial), certificate);
            }
        }
    }
}

/// Compares the certificates with the inventory and with the spec.
pub(super) fn inventory(survey: &Survey, expectations: &Expectations<'_>, findings: &mut Vec<Finding>) {
    let Some(manifest) = survey.manifest.as_ref().filter(|_| survey.layout == Layout::Slipway) else {
        return;
    };
    let mut stored: BTreeSet<&str> = BTreeSet::new();
    // The chain of an authority to its root is not a credential of the cluster.
    for certificate in survey.certificates.iter().filter(|one| !one.name.ends_with(".chain")) {
        let Some((asset, listed)) = entry(manifest, certificate) else { continue };
        let facts = &certificate.facts;
        let named = certificate.name.rsplit('/').next().unwrap_or_default();
        // The chain of an imported authority begins with the authority itself.
        let named = named.strip_suffix(".chain").unwrap_or(named);
        if named != facts.fingerprint {
            let message = "it is not the certificate that its name says".to_owned();
            let help = "bring the file back: its name is the digest of what it held".to_owned();
            findings.push(Finding::new(&certificate.at(), "inventory", message, help));
            continue;
        }
        if listed.fingerprint != facts.fingerprint {
            continue;
        }
        stored.insert(asset);
        let same = listed.certificate.as_ref().is_some_and(|listed_certificate| {
            listed_certificate.serial == facts.serial
                && listed_certificate.spki_sha256 == facts.spki_sha256
                && listed_certificate.not_after == facts.not_after
        });
        if !same {
            let message = format!("the inventory says otherwise of {asset}: serial, key or dates differ");
            let help = "bring an earlier version of the inventory back".to_owned();
            findings.push(Finding::new(&certificate.at(), "inventory", message, help));
        }
    }
    let listed = manifest.assets.iter().filter(|(_, entry)| entry.certificate.is_some());
    for (asset, entry) in listed.filter(|(asset, _)| !stored.contains(asset.as_str())) {
        let message =
            format!("the inventory lists {asset}, and its certificate {} is not here", entry.fingerprint);
        let help = "bring the file back; without it nothing that needs it is rendered".to_owned();
        findings.push(Finding::new(&survey.inventory, "inventory", message, help));
    }
    for asset in expectations.demanded().filter(|asset| !manifest.assets.contains_key(*asset)) {
        let message = format!("the spec asks for {asset}, which was not made yet");
        findings.push(Finding::warning(
            &survey.inventory,
            "missing",
            message,
            "slipway render (in AWS, the next upload of the spec) makes it".to_owned(),
        ));
    }
}

/// See [`Survey::twins`].
pub(super) fn twins(survey: &Survey) -> Vec<Twins> {
    let mut certificates: BTreeMap<&str, Vec<&Certificate>> = BTreeMap::new();
    // The copy of a certificate in a kubeconfig comes last, because the file has the better name.
    let (files, embedded): (Vec<_>, Vec<_>) =
        survey.certificates.iter().filter(|one| !one.link).partition(|one| !one.name.contains('#'));
    for certificate in files.into_iter().chain(embedded) {
        certificates.entry(&certificate.facts.spki_sha256).or_default().push(certificate);
    }
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for key in survey.keys.iter().filter(|key| !key.link) {
        if let Some(spki) = &key.spki_sha256 {
            keys.entry(spki).or_default().insert(&key.name);
        }
    }
    let spkis: BTreeSet<&str> = certificates.keys().chain(keys.keys()).copied().collect();
    let mut found = Vec::new();
    for spki in spkis {
        let holders = certificates.get(spki).map_or(&[][..], Vec::as_slice);
        let mut names: BTreeSet<String> = BTreeSet::new();
        let (mut prints, mut subjects) = (BTreeSet::new(), BTreeSet::new());
        for one in holders {
            // Copies of one certificate count as one name, and so do those of an authority that was renewed with the same key.
            let renewed = one.facts.authority && subjects.contains(&one.facts.subject_raw);
            subjects.insert(&one.facts.subject_raw);
            if prints.insert(&one.facts.fingerprint) && !renewed {
                names.insert(survey.name_of(one));
            }
        }
        let own: BTreeSet<&str> = holders.iter().map(|one| one.name.as_str()).collect();
        let alone = keys.get(spki).into_iter().flatten().filter(|name| !own.contains(*name));
        names.extend(alone.map(|name| survey.short(name).to_owned()));
        if names.len() > 1 {
            found.push(Twins { spki_sha256: spki.to_owned(), names: names.into_iter().collect() });
        }
    }
    found
}
