//! PEM: what keys and certificates look like in files.

use crate::Error;
use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::pki_types::pem::{PemObject, SectionKind};

const LINE: usize = 64;

/// One section of a file.
pub(crate) struct Section {
    pub(crate) kind: SectionKind,
    pub(crate) der: Vec<u8>,
}

/// A section as text.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for line in text.as_bytes().chunks(LINE) {
        out.extend(line.iter().map(|&byte| byte as char));
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// All sections of a text, in order. Sections of unknown kinds are skipped, as OpenSSL's `EC PARAMETERS` are.
pub(crate) fn decode(text: &str) -> Result<Vec<Section>, Error> {
    <(SectionKind, Vec<u8>)>::pem_slice_iter(text.as_bytes())
        .map(|section| {
            section.map(|(kind, der)| Section { kind, der }).map_err(|error| Error::Pem(error.to_string()))
        })
        .collect()
}

/// The first section of a kind.
pub(crate) fn first(text: &str, kind: SectionKind, what: &'static str) -> Result<Vec<u8>, Error> {
    let found = decode(text)?.into_iter().find(|section| section.kind == kind);
    found.map(|section| section.der).ok_or(Error::Missing { what })
}
