//! What a certificate says, how one is encoded, and what a signing request asks for.
//!
//! Encoded here and not by a general library, since Kubernetes reads a user's groups from the organizations of
//! a subject: there may be several, and a subject that a request brings must come out byte for byte.

use crate::key::{PrivateKey, PublicKey};
use crate::{Error, der, pem};
use jiff::Timestamp;
use rustls::pki_types::pem::SectionKind;
use std::fmt;
use std::net::IpAddr;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension, X509Extension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ORGANIZATION: &[u8] = &[0x55, 0x04, 0x0a];
const SUBJECT_KEY_ID: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_ID: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const EXTENSION_REQUEST: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09, 0x0e];
/// `id-kp`, under which most purposes stand.
const PURPOSE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03];

/// A name that a server answers to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum San {
    /// A host name.
    Dns(String),
    /// An address.
    Ip(IpAddr),
}

impl San {
    /// An address if it reads as one, a host name otherwise.
    pub fn parse(name: &str) -> San {
        name.parse().map_or_else(|_| San::Dns(name.to_owned()), San::Ip)
    }

    fn encode(&self) -> Vec<u8> {
        match self {
            San::Dns(name) => der::tlv(0x82, name.as_bytes()),
            San::Ip(IpAddr::V4(address)) => der::tlv(0x87, &address.octets()),
            San::Ip(IpAddr::V6(address)) => der::tlv(0x87, &address.octets()),
        }
    }
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            San::Dns(name) => f.write_str(name),
            San::Ip(address) => address.fmt(f),
        }
    }
}

/// What a certificate may be used for, by the names that CertificateSigningRequests use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// A bit of the key usage extension; 0x8000 is the first.
    Key(u16),
    /// A purpose of the extended key usage extension, by its OID.
    Purpose(Vec<u8>),
}

impl Usage {
    /// Signatures.
    pub const SIGNATURE: Usage = Usage::Key(0x8000);
    /// Wrapping of keys, as TLS 1.2 with RSA does.
    pub const KEY_ENCIPHERMENT: Usage = Usage::Key(0x2000);

    /// Being a TLS server.
    pub fn server_auth() -> Usage {
        purpose(1)
    }

    /// Being a TLS client.
    pub fn client_auth() -> Usage {
        purpose(2)
    }

    /// The usage of a name such as `digital signature` or `server auth`.
    pub fn parse(name: &str) -> Option<Usage> {
        Some(match name {
            "signing" | "digital signature" => Usage::Key(0x8000),
            "content commitment" => Usage::Key(0x4000),
            "key encipherment" => Usage::Key(0x2000),
            "data encipherment" => Usage::Key(0x1000),
            "key agreement" => Usage::Key(0x0800),
            "cert sign" => Usage::Key(0x0400),
            "crl sign" => Usage::Key(0x0200),
            "encipher only" => Usage::Key(0x0100),
            "decipher only" => Usage::Key(0x0080),
            "any" => Usage::Purpose(vec![0x55, 0x1d, 0x25, 0x00]),
            "server auth" => purpose(1),
            "client auth" => purpose(2),
            "code signing" => purpose(3),
            "email protection" | "s/mime" => purpose(4),
            "ipsec end system" => purpose(5),
            "ipsec tunnel" => purpose(6),
            "ipsec user" => purpose(7),
            "timestamping" => purpose(8),
            "ocsp signing" => purpose(9),
            "microsoft sgc" => {
                Usage::Purpose(vec![0x2b, 0x06, 0x01, 0x04, 0x01, 0x82, 0x37, 0x0a, 0x03, 0x03])
            }
            "netscape sgc" => Usage::Purpose(vec![0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x04, 0x01]),
            _ => return None,
        })
    }
}

fn purpose(number: u8) -> Usage {
    Usage::Purpose([PURPOSE, &[number]].concat())
}

/// All that goes into a certificate but its signature.
pub(crate) struct Template<'a> {
    pub(crate) issuer: &'a [u8],
    pub(crate) subject: &'a [u8],
    pub(crate) spki: &'a [u8],
    /// The content of the subject alternative name extension; empty for none.
    pub(crate) sans: &'a [u8],
    pub(crate) usages: &'a [Usage],
    pub(crate) is_ca: bool,
    pub(crate) subject_key_id: Option<&'a [u8]>,
    pub(crate) authority_key_id: Option<&'a [u8]>,
    pub(crate) serial: [u8; 16],
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Template<'_> {
    /// The certificate, signed.
    pub(crate) fn sign(&self, key: &PrivateKey) -> Result<Vec<u8>, Error> {
        let algorithm = key.public().algorithm().signature_identifier();
        let mut serial = self.serial;
        // Positive, and of full length, whatever the random bytes are.
        serial[0] = serial[0] & 0x7f | 0x40;
        let body = der::sequence(&[
            der::explicit(0, &der::integer(&[2])),
            der::integer(&serial),
            algorithm.clone(),
            self.issuer.to_vec(),
            der::sequence(&[der::time(self.not_before), der::time(self.not_after)]),
            self.subject.to_vec(),
            self.spki.to_vec(),
            der::explicit(3, &der::sequence(&self.extensions())),
        ]);
        let signature = key.sign_der(&body)?;
        Ok(der::sequence(&[body, algorithm, der::bit_string(&signature)]))
    }

    fn extensions(&self) -> Vec<Vec<u8>> {
        let bits = self.usages.iter().fold(0, |bits, usage| match usage {
            Usage::Key(bit) => bits | bit,
            Usage::Purpose(_) => bits,
        });
        let purposes: Vec<Vec<u8>> = self
            .usages
            .iter()
            .filter_map(|usage| match usage {
                Usage::Key(_) => None,
                Usage::Purpose(purpose) => Some(der::oid(purpose)),
            })
            .collect();
        let mut extensions = Vec::new();
        if bits != 0 {
            extensions.push(extension(KEY_USAGE, true, &der::named_bits(bits)));
        }
        if !purposes.is_empty() {
            extensions.push(extension(EXTENDED_KEY_USAGE, false, &der::sequence(&purposes)));
        }
        let constraints = if self.is_ca { vec![der::tlv(der::BOOLEAN, &[0xff])] } else { Vec::new() };
        extensions.push(extension(BASIC_CONSTRAINTS, true, &der::sequence(&constraints)));
        if let Some(id) = self.subject_key_id {
            extensions.push(extension(SUBJECT_KEY_ID, false, &der::tlv(der::OCTET_STRING, id)));
        }
        if let Some(id) = self.authority_key_id {
            extensions.push(extension(AUTHORITY_KEY_ID, false, &der::sequence(&[der::tlv(0x80, id)])));
        }
        if !self.sans.is_empty() {
            // Names that stand nowhere else must be understood.
            let critical = self.subject == name("", &[]);
            extensions.push(extension(SUBJECT_ALT_NAME, critical, self.sans));
        }
        extensions
    }
}

/// A subject: the organizations, then the common name.
pub(crate) fn name(common_name: &str, organizations: &[&str]) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &str| {
        der::set(vec![der::sequence(&[der::oid(kind), der::tlv(der::UTF8_STRING, value.as_bytes())])])
    };
    let mut parts: Vec<Vec<u8>> = organizations.iter().map(|value| attribute(ORGANIZATION, value)).collect();
    if !common_name.is_empty() {
        parts.push(attribute(COMMON_NAME, common_name));
    }
    der::sequence(&parts)
}

/// The content of a subject alternative name extension; empty for no names.
pub(crate) fn alternative_names(sans: &[San]) -> Vec<u8> {
    if sans.is_empty() {
        return Vec::new();
    }
    der::sequence(&sans.iter().map(San::encode).collect::<Vec<_>>())
}

/// A request for a certificate of this subject and these names, as PEM, signed by the key it is for.
pub fn request(
    key: &PrivateKey,
    common_name: &str,
    organizations: &[&str],
    sans: &[San],
) -> Result<String, Error> {
    let attributes = match alternative_names(sans) {
        names if names.is_empty() => Vec::new(),
        names => der::sequence(&[
            der::oid(EXTENSION_REQUEST),
            der::set(vec![der::sequence(&[extension(SUBJECT_ALT_NAME, false, &names)])]),
        ]),
    };
    let body = der::sequence(&[
        der::integer(&[0]),
        name(common_name, organizations),
        key.public().spki(),
        der::explicit(0, &attributes),
    ]);
    let signature = key.sign_der(&body)?;
    let algorithm = key.public().algorithm().signature_identifier();
    let request = der::sequence(&[body, algorithm, der::bit_string(&signature)]);
    Ok(pem::encode("CERTIFICATE REQUEST", &request))
}

/// What a signing request asks for. Its signature has been verified.
pub struct Request {
    /// The subject, byte for byte.
    pub(crate) subject: Vec<u8>,
    /// The key, byte for byte.
    pub(crate) spki: Vec<u8>,
    /// The content of the subject alternative name extension; empty for none.
    pub(crate) sans: Vec<u8>,
    /// What it says, for those who decide whether to sign.
    pub facts: Facts,
}

impl Request {
    /// Reads and verifies a PEM `CERTIFICATE REQUEST`.
    pub fn from_pem(request: &str) -> Result<Request, Error> {
        let document = pem::first(request, SectionKind::Csr, "certificate request")?;
        let malformed = |error: String| Error::Request(error);
        let (_, request) =
            X509CertificationRequest::from_der(&document).map_err(|error| malformed(error.to_string()))?;
        request.verify_signature().map_err(|_| malformed("its signature is wrong".to_owned()))?;
        let info = &request.certification_request_info;
        // The subject is signed as it stands: who decides about it must have read all that others would read.
        let mut attributes = info.subject.iter_common_name().chain(info.subject.iter_organization());
        if attributes.any(|attribute| text(attribute).is_none()) {
            return Err(malformed("its subject has text of an unusual type: use UTF8String".to_owned()));
        }
        let sans = info
            .iter_attributes()
            .filter_map(|attribute| match attribute.parsed_attribute() {
                ParsedCriAttribute::ExtensionRequest(asked) => Some(&asked.extensions),
                _ => None,
            })
            .flatten()
            .find(|extension| extension.oid.as_bytes() == SUBJECT_ALT_NAME);
        let facts = Facts {
            common_name: common_name(&info.subject),
            organizations: organizations(&info.subject),
            subject: info.subject.to_string(),
            sans: sans.map(names).unwrap_or_default(),
            ..Facts::default()
        };
        Ok(Request {
            subject: info.subject.as_raw().to_vec(),
            spki: info.subject_pki.raw.to_vec(),
            sans: sans.map(|extension| extension.value.to_vec()).unwrap_or_default(),
            facts,
        })
    }
}

/// `sha256:` and the hash of the public key of the first certificate of a PEM text, by which a machine that joins knows
/// the cluster's authority.
pub fn public_key_hash(text: &str) -> Result<String, Error> {
    let document = pem::first(text, SectionKind::Certificate, "certificate")?;
    let hash = ring::digest::digest(&ring::digest::SHA256, parse(&document)?.public_key().raw);
    Ok(hash.as_ref().iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}")))
}

/// What a certificate (or a request for one) says, for people and for decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// The whole subject, as `O=system:nodes, CN=system:node:n1`.
    pub subject: String,
    /// The subject's common name: a user's name.
    pub common_name: String,
    /// The subject's organizations: a user's groups.
    pub organizations: Vec<String>,
    /// Host names, addresses, mail addresses and URIs.
    pub sans: Vec<String>,
    /// The whole subject of the issuer.
    pub issuer: String,
    /// From when on it counts, in seconds since 1970.
    pub not_before: i64,
    /// Until when it counts, in seconds since 1970.
    pub not_after: i64,
    /// Whether it may sign others.
    pub is_ca: bool,
}

impl Facts {
    /// The facts of the first certificate of a PEM text.
    pub fn from_pem(text: &str) -> Result<Facts, Error> {
        Facts::from_der(&pem::first(text, SectionKind::Certificate, "certificate")?)
    }

    /// The facts of a certificate.
    pub fn from_der(document: &[u8]) -> Result<Facts, Error> {
        let certificate = parse(document)?;
        let sans =
            certificate.extensions().iter().find(|extension| extension.oid.as_bytes() == SUBJECT_ALT_NAME);
        Ok(Facts {
            subject: certificate.subject().to_string(),
            common_name: common_name(certificate.subject()),
            organizations: organizations(certificate.subject()),
            sans: sans.map(names).unwrap_or_default(),
            issuer: certificate.issuer().to_string(),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            is_ca: certificate.is_ca(),
        })
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.subject)?;
        if !self.sans.is_empty() {
            write!(f, ", for {}", self.sans.join(", "))?;
        }
        match Timestamp::from_second(self.not_after) {
            Ok(at) if self.not_after != 0 => write!(f, ", until {at}"),
            _ => Ok(()),
        }
    }
}

/// Reads a certificate.
pub(crate) fn parse(document: &[u8]) -> Result<X509Certificate<'_>, Error> {
    x509_parser::parse_x509_certificate(document)
        .map(|(_, certificate)| certificate)
        .map_err(|error| Error::Certificate(error.to_string()))
}

/// The subject key id of a certificate, where it has one.
pub(crate) fn subject_key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}

/// Whether the certificate is of that key.
pub(crate) fn is_of(certificate: &X509Certificate<'_>, key: &PublicKey) -> bool {
    certificate.public_key().raw == key.spki()
}

fn extension(kind: &[u8], critical: bool, content: &[u8]) -> Vec<u8> {
    let mut parts = vec![der::oid(kind)];
    if critical {
        parts.push(der::tlv(der::BOOLEAN, &[0xff]));
    }
    parts.push(der::tlv(der::OCTET_STRING, content));
    der::sequence(&parts)
}

fn common_name(subject: &X509Name<'_>) -> String {
    // The last one counts, as in Go.
    subject.iter_common_name().filter_map(text).last().unwrap_or_default()
}

fn organizations(subject: &X509Name<'_>) -> Vec<String> {
    subject.iter_organization().filter_map(text).collect()
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    attribute.as_str().ok().map(str::to_owned)
}

fn names(extension: &X509Extension<'_>) -> Vec<String> {
    let ParsedExtension::SubjectAlternativeName(sans) = extension.parsed_extension() else {
        return Vec::new();
    };
    sans.general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
                Some((*name).to_owned())
            }
            GeneralName::IPAddress(bytes) => address(bytes).map(|address| address.to_string()),
            _ => None,
        })
        .collect()
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}
