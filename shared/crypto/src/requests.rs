//! The content of a certificate request (PKCS #10), for a caller that decides about it.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::oid_registry::{OID_X509_COMMON_NAME, OID_X509_ORGANIZATION_NAME};
use x509_parser::prelude::FromDer as _;

use crate::armor;

/// A request that is signed with its own key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CertificateRequest {
    /// The CNs of the subject.
    pub common_names: Vec<String>,
    /// The Os of the subject.
    pub organizations: Vec<String>,
    /// Whether the subject has other attributes.
    pub more_in_subject: bool,
    /// The requested DNS names.
    pub dns_names: Vec<String>,
    /// The requested addresses.
    pub addresses: Vec<IpAddr>,
    /// The number of names of other kinds, such as e-mail addresses or URIs.
    pub other_names: usize,
}

/// Reads a request in PEM.
///
/// # Errors
/// If it is not a request, or is not signed with its own key. The message is for people.
pub fn certificate_request(pem: &str) -> Result<CertificateRequest, String> {
    let der = armor::decode(&["CERTIFICATE REQUEST"], pem)?;
    let unreadable = || "it is not a PKCS #10 request".to_owned();
    let (rest, parsed) = X509CertificationRequest::from_der(&der).map_err(|_| unreadable())?;
    if !rest.is_empty() {
        return Err("something comes after the request".to_owned());
    }
    parsed.verify_signature().map_err(|_| "its signature is not by its own key".to_owned())?;
    let mut read = CertificateRequest::default();
    for attribute in parsed.certification_request_info.subject.iter_attributes() {
        let value = || attribute.as_str().map(str::to_owned).map_err(|_| unreadable());
        if *attribute.attr_type() == OID_X509_COMMON_NAME {
            read.common_names.push(value()?);
        } else if *attribute.attr_type() == OID_X509_ORGANIZATION_NAME {
            read.organizations.push(value()?);
        } else {
            read.more_in_subject = true;
        }
    }
    for extension in parsed.requested_extensions().into_iter().flatten() {
        // The signer may leave out everything else. Kubernetes' own signer takes only names, and sets the usages itself.
        if let ParsedExtension::SubjectAlternativeName(names) = extension {
            for name in &names.general_names {
                read.add(name);
            }
        }
    }
    Ok(read)
}

impl CertificateRequest {
    fn add(&mut self, name: &GeneralName<'_>) {
        if let GeneralName::DNSName(name) = name {
            self.dns_names.push((*name).to_owned());
        } else if let GeneralName::IPAddress(bytes) = name
            && let Some(address) = address(bytes)
        {
            self.addresses.push(address);
        } else {
            self.other_names += 1;
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

    use super::*;

    fn request(change: impl FnOnce(&mut CertificateParams)) -> String {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:i-1");
        change(&mut params);
        params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
    }

    #[test]
    fn a_request_is_read_whole() {
        let pem = request(|params| {
            params.subject_alt_names = vec![
                SanType::DnsName("ip-10-0-0-1".try_into().unwrap()),
                SanType::IpAddress("10.0.0.1".parse().unwrap()),
                SanType::IpAddress("fd00::1".parse().unwrap()),
                SanType::URI("spiffe://a/b".try_into().unwrap()),
                SanType::Rfc822Name("a@b.example".try_into().unwrap()),
            ];
            params.distinguished_name.push(DnType::CountryName, "DE");
        });
        let expected = CertificateRequest {
            common_names: vec!["system:node:i-1".to_owned()],
            organizations: vec!["system:nodes".to_owned()],
            more_in_subject: true,
            dns_names: vec!["ip-10-0-0-1".to_owned()],
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            other_names: 2,
        };
        assert_eq!(certificate_request(&pem), Ok(expected));
        let plain = certificate_request(&request(|_| {})).unwrap();
        assert!(!plain.more_in_subject && plain.dns_names.is_empty() && plain.addresses.is_empty());
    }

    #[test]
    fn what_was_changed_after_it_was_signed_is_no_request() {
        let pem = request(|_| {});
        let der = armor::decode(&["CERTIFICATE REQUEST"], &pem).unwrap();
        let at = der.windows(3).position(|window| window == b"i-1").unwrap();
        let mut changed = der.to_vec();
        changed[at + 2] = b'2';
        let changed = armor::encode("CERTIFICATE REQUEST", &changed);
        assert_eq!(certificate_request(&changed).unwrap_err(), "its signature is not by its own key");
        for bad in
            ["", "hello", "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"]
        {
            assert!(certificate_request(bad).is_err(), "{bad}");
        }
    }
}
