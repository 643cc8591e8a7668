//! What a request for a certificate asks for.

use base64::Engine;
use x509_parser::prelude::*;

/// The names that a request asks for.
#[derive(Default, Debug, PartialEq)]
pub struct Request {
    pub common_name: Vec<String>,
    pub serial_number: Vec<String>,
    /// The rest of the subject, with its titles.
    pub subject: Vec<(&'static str, Vec<String>)>,
    /// The alternative names, with their titles.
    pub names: Vec<(&'static str, Vec<String>)>,
}

/// Reads a request: PEM, in base64 once more.
pub fn read(text: &str) -> Option<Request> {
    let text = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&text).ok()?;
    let (_, request) = X509CertificationRequest::from_der(&pem.contents).ok()?;
    let subject = &request.certification_request_info.subject;
    let values = |oid: &Oid<'_>| -> Vec<String> {
        let found = subject.iter_attributes().filter(|attribute| attribute.attr_type() == oid);
        found.filter_map(|attribute| attribute.as_str().ok().map(str::to_owned)).collect()
    };
    use oid_registry::*;
    let mut read = Request {
        common_name: values(&OID_X509_COMMON_NAME),
        serial_number: values(&OID_X509_SERIALNUMBER),
        subject: vec![
            ("Organization", values(&OID_X509_ORGANIZATION_NAME)),
            ("Organizational Unit", values(&OID_X509_ORGANIZATIONAL_UNIT)),
            ("Country", values(&OID_X509_COUNTRY_NAME)),
            ("Locality", values(&OID_X509_LOCALITY_NAME)),
            ("Province", values(&OID_X509_STATE_OR_PROVINCE_NAME)),
            ("StreetAddress", values(&OID_X509_STREET_ADDRESS)),
            ("PostalCode", values(&OID_X509_POSTAL_CODE)),
        ],
        names: ["DNS Names", "Email Addresses", "URIs", "IP Addresses"]
            .map(|title| (title, Vec::new()))
            .into(),
    };
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else { continue };
        for name in &names.general_names {
            let (at, text) = match name {
                GeneralName::DNSName(name) => (0, (*name).to_owned()),
                GeneralName::RFC822Name(name) => (1, (*name).to_owned()),
                GeneralName::URI(name) => (2, (*name).to_owned()),
                GeneralName::IPAddress([a, b, c, d]) => (3, format!("{a}.{b}.{c}.{d}")),
                GeneralName::IPAddress(bytes) => match <[u8; 16]>::try_from(*bytes) {
                    Ok(bytes) => (3, std::net::Ipv6Addr::from(bytes).to_string()),
                    Err(_) => continue,
                },
                _ => continue,
            };
            read.names[at].1.push(text);
        }
    }
    Some(read)
}
