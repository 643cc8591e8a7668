//! The certificate authority: who may say who somebody is.
//!
//! ```text
//! Authority ──issue──> server certificate (names), client certificate (user, groups)
//!           ──sign───> whatever a signing request asks for, with usages and lifetime of our choice
//! ```
//!
//! It decides nothing: whether a request may be signed is the approver's business.

use crate::certificate::{self, Request, San, Template, Usage, alternative_names, name};
use crate::key::PrivateKey;
use crate::{Error, pem};
use jiff::{SignedDuration, Timestamp};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::pem::SectionKind;
use std::time::Duration;

/// How long a new authority lives: ten years.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
/// How long a certificate that we issue for ourselves lives: one year.
pub const LEAF_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Clocks of machines differ: what is issued now counts from a little earlier on.
const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// A certificate and its key, both as PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// A certificate that may sign others, and its key.
#[derive(Debug)]
pub struct Authority {
    key: PrivateKey,
    pem: String,
    subject: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_after: Timestamp,
}

impl Authority {
    /// A new authority with a new key.
    pub fn create(common_name: &str, now: Timestamp) -> Result<Self, Error> {
        Self::self_sign(common_name, PrivateKey::generate()?, now)
    }

    /// A new authority with a key that is there already.
    pub fn self_sign(common_name: &str, key: PrivateKey, now: Timestamp) -> Result<Self, Error> {
        let subject = name(common_name, &[]);
        let spki = key.public().spki();
        let id = digest(&SHA256, &spki).as_ref()[..20].to_vec();
        let not_after = later(now, AUTHORITY_LIFETIME)?;
        let document = Template {
            issuer: &subject,
            subject: &subject,
            spki: &spki,
            // Upstream's kubeadm names its authority so too; some verifiers want a name.
            sans: &alternative_names(&[San::Dns(common_name.to_owned())]),
            usages: &[Usage::SIGNATURE, Usage::KEY_ENCIPHERMENT, Usage::Key(0x0400), Usage::Key(0x0200)],
            is_ca: true,
            subject_key_id: Some(&id),
            authority_key_id: None,
            serial: serial()?,
            not_before: earlier(now),
            not_after,
        }
        .sign(&key)?;
        let pem = pem::encode("CERTIFICATE", &document);
        Ok(Authority { key, pem, subject, key_id: Some(id), not_after })
    }

    /// An authority from its certificate and key.
    pub fn load(certificate_pem: &str, key_pem: &str) -> Result<Self, Error> {
        let key = PrivateKey::from_pem(key_pem)?;
        let document = pem::first(certificate_pem, SectionKind::Certificate, "certificate")?;
        let certificate = certificate::parse(&document)?;
        if !certificate.is_ca() {
            return Err(Error::Certificate("it is not of a certificate authority".to_owned()));
        }
        if !certificate::is_of(&certificate, key.public()) {
            return Err(Error::Mismatch);
        }
        let not_after = Timestamp::from_second(certificate.validity().not_after.timestamp())
            .map_err(|error| Error::Certificate(error.to_string()))?;
        Ok(Authority {
            subject: certificate.subject().as_raw().to_vec(),
            key_id: certificate::subject_key_id(&certificate),
            pem: certificate_pem.to_owned(),
            not_after,
            key,
        })
    }

    /// The certificate, as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The key, as PEM.
    pub fn key_pem(&self) -> &str {
        self.key.pem()
    }

    /// A certificate for a server of these names, with a new key.
    pub fn server(&self, common_name: &str, sans: &[San], now: Timestamp) -> Result<Identity, Error> {
        let usages = [Usage::SIGNATURE, Usage::KEY_ENCIPHERMENT, Usage::server_auth()];
        self.issue(&name(common_name, &[]), sans, &usages, now)
    }

    /// A certificate for a user of these groups, with a new key.
    pub fn client(&self, user: &str, groups: &[&str], now: Timestamp) -> Result<Identity, Error> {
        let usages = [Usage::SIGNATURE, Usage::KEY_ENCIPHERMENT, Usage::client_auth()];
        self.issue(&name(user, groups), &[], &usages, now)
    }

    /// Signs a request as it stands, for these usages and (at most) this long. The certificate, as PEM.
    pub fn sign(
        &self,
        request: &Request,
        usages: &[Usage],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, Error> {
        self.certify(&request.subject, &request.spki, &request.sans, usages, lifetime, now)
    }

    /// Whether the certificate is signed by this authority and of that key.
    pub fn issued(&self, certificate_pem: &str, key_pem: &str) -> bool {
        let Ok(key) = PrivateKey::from_pem(key_pem) else { return false };
        let Ok(document) = pem::first(certificate_pem, SectionKind::Certificate, "certificate") else {
            return false;
        };
        let Ok(own) = pem::first(&self.pem, SectionKind::Certificate, "certificate") else { return false };
        let (Ok(certificate), Ok(own)) = (certificate::parse(&document), certificate::parse(&own)) else {
            return false;
        };
        certificate::is_of(&certificate, key.public())
            && certificate.issuer().as_raw() == self.subject
            && certificate.verify_signature(Some(own.public_key())).is_ok()
    }

    fn issue(
        &self,
        subject: &[u8],
        sans: &[San],
        usages: &[Usage],
        now: Timestamp,
    ) -> Result<Identity, Error> {
        let key = PrivateKey::generate()?;
        let sans = alternative_names(sans);
        let certificate = self.certify(subject, &key.public().spki(), &sans, usages, LEAF_LIFETIME, now)?;
        Ok(Identity { certificate, key: key.pem().to_owned() })
    }

    fn certify(
        &self,
        subject: &[u8],
        spki: &[u8],
        sans: &[u8],
        usages: &[Usage],
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<String, Error> {
        let document = Template {
            issuer: &self.subject,
            subject,
            spki,
            sans,
            usages,
            is_ca: false,
            subject_key_id: None,
            authority_key_id: self.key_id.as_deref(),
            serial: serial()?,
            not_before: earlier(now),
            // Nothing outlives the one who vouches for it.
            not_after: later(now, lifetime)?.min(self.not_after),
        }
        .sign(&self.key)?;
        Ok(pem::encode("CERTIFICATE", &document))
    }
}

fn earlier(now: Timestamp) -> Timestamp {
    now.checked_sub(BACKDATE).unwrap_or(now)
}

fn later(now: Timestamp, lifetime: Duration) -> Result<Timestamp, Error> {
    now.checked_add(lifetime).map_err(|_| Error::Certificate("its lifetime is too long".to_owned()))
}

fn serial() -> Result<[u8; 16], Error> {
    let mut serial = [0; 16];
    SystemRandom::new().fill(&mut serial).map_err(|_| Error::Random)?;
    Ok(serial)
}
