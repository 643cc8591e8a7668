//! Private and public keys: ECDSA on P-256 and P-384, and RSA.
//!
//! New keys are P-256. The others are for keys that people bring along, in any of the forms that OpenSSL
//! writes (PKCS#8, PKCS#1, SEC1).

use crate::{Error, der, pem};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::pem::SectionKind;
use serde_json::{Value, json};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];
const NULL: &[u8] = &[0x05, 0x00];

/// What a key is, and so how it signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
}

impl Algorithm {
    /// The name that JWTs and JWKs use.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Rs256 => "RS256",
        }
    }

    /// `AlgorithmIdentifier` of a signature in a certificate.
    pub(crate) fn signature_identifier(self) -> Vec<u8> {
        match self {
            Algorithm::Es256 => der::sequence(&[der::oid(ECDSA_SHA256)]),
            Algorithm::Es384 => der::sequence(&[der::oid(ECDSA_SHA384)]),
            Algorithm::Rs256 => der::sequence(&[&der::oid(RSA_SHA256)[..], NULL]),
        }
    }

    /// `AlgorithmIdentifier` of the key itself.
    fn key_identifier(self) -> Vec<u8> {
        match self {
            Algorithm::Es256 => der::sequence(&[der::oid(EC_PUBLIC_KEY), der::oid(P256)]),
            Algorithm::Es384 => der::sequence(&[der::oid(EC_PUBLIC_KEY), der::oid(P384)]),
            Algorithm::Rs256 => der::sequence(&[&der::oid(RSA)[..], NULL]),
        }
    }

    fn ecdsa_signing(self) -> Option<&'static signature::EcdsaSigningAlgorithm> {
        match self {
            Algorithm::Es256 => Some(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            Algorithm::Es384 => Some(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            Algorithm::Rs256 => None,
        }
    }

    fn verification(self) -> &'static dyn signature::VerificationAlgorithm {
        match self {
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        }
    }
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

/// A key that signs. Its `Debug` shows the public part only.
pub struct PrivateKey {
    pair: Pair,
    pem: String,
    public: PublicKey,
}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrivateKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl PrivateKey {
    /// A new ECDSA P-256 key.
    pub fn generate() -> Result<Self, Error> {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&signature::ECDSA_P256_SHA256_FIXED_SIGNING, &random)
            .map_err(|_| Error::Random)?;
        Self::from_pkcs8(document.as_ref(), pem::encode("PRIVATE KEY", document.as_ref()))
    }

    /// The first private key of a PEM text: PKCS#8, PKCS#1 (RSA) or SEC1 (EC).
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        for section in pem::decode(text)? {
            match section.kind {
                SectionKind::PrivateKey => return Self::from_pkcs8(&section.der, text.to_owned()),
                SectionKind::RsaPrivateKey => {
                    let pair = RsaKeyPair::from_der(&section.der).map_err(unusable)?;
                    return Ok(Self::from_rsa(pair, text.to_owned()));
                }
                SectionKind::EcPrivateKey => return Self::from_sec1(&section.der, text.to_owned()),
                _ => {}
            }
        }
        Err(Error::Missing { what: "private key" })
    }

    /// The key as PEM, as it was read.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The part that may be shown.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// A signature as JWTs carry it: ECDSA as the two numbers side by side.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(pair) => pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature).map(|()| signature)
            }
        }
        .map_err(|_| Error::Random)
    }

    /// A signature as certificates carry it: ECDSA as a sequence of two integers.
    pub(crate) fn sign_der(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature = self.sign(message)?;
        Ok(match self.pair {
            Pair::Ecdsa(_) => {
                let (r, s) = signature.split_at(signature.len() / 2);
                der::sequence(&[der::integer(r), der::integer(s)])
            }
            Pair::Rsa(_) => signature,
        })
    }

    fn from_pkcs8(document: &[u8], pem: String) -> Result<Self, Error> {
        for algorithm in [Algorithm::Es256, Algorithm::Es384] {
            if let Some(signing) = algorithm.ecdsa_signing()
                && let Ok(pair) = EcdsaKeyPair::from_pkcs8(signing, document, &SystemRandom::new())
            {
                let public = PublicKey::new(algorithm, pair.public_key().as_ref().to_vec());
                return Ok(PrivateKey { pair: Pair::Ecdsa(pair), pem, public });
            }
        }
        let pair = RsaKeyPair::from_pkcs8(document).map_err(unusable)?;
        Ok(Self::from_rsa(pair, pem))
    }

    /// ring reads EC keys in PKCS#8 only, which is SEC1 in an envelope that names the curve.
    fn from_sec1(document: &[u8], pem: String) -> Result<Self, Error> {
        for algorithm in [Algorithm::Es256, Algorithm::Es384] {
            let envelope = der::sequence(&[
                der::integer(&[0]),
                algorithm.key_identifier(),
                der::tlv(der::OCTET_STRING, document),
            ]);
            if let Ok(key) = Self::from_pkcs8(&envelope, pem.clone()) {
                return Ok(key);
            }
        }
        Err(Error::Key("an EC key must be on P-256 or P-384 and carry its public key".to_owned()))
    }

    fn from_rsa(pair: RsaKeyPair, pem: String) -> Self {
        let public = PublicKey::new(Algorithm::Rs256, pair.public().as_ref().to_vec());
        PrivateKey { pair: Pair::Rsa(pair), pem, public }
    }
}

/// A key that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// The point (EC) or the `RSAPublicKey`.
    raw: Vec<u8>,
    id: String,
}

impl PublicKey {
    fn new(algorithm: Algorithm, raw: Vec<u8>) -> Self {
        let mut key = PublicKey { algorithm, raw, id: String::new() };
        key.id = BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &key.spki()));
        key
    }

    /// All keys of a PEM text: public keys, private keys (their public part) and certificates.
    pub fn all_from_pem(text: &str) -> Result<Vec<Self>, Error> {
        let mut keys = Vec::new();
        for section in pem::decode(text)? {
            match section.kind {
                SectionKind::PublicKey => keys.push(Self::from_spki(&section.der)?),
                SectionKind::Certificate => {
                    let (_, certificate) = x509_parser::parse_x509_certificate(&section.der)
                        .map_err(|error| Error::Certificate(error.to_string()))?;
                    keys.push(Self::from_spki(certificate.public_key().raw)?);
                }
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                    let label = match section.kind {
                        SectionKind::RsaPrivateKey => "RSA PRIVATE KEY",
                        SectionKind::EcPrivateKey => "EC PRIVATE KEY",
                        _ => "PRIVATE KEY",
                    };
                    keys.push(PrivateKey::from_pem(&pem::encode(label, &section.der))?.public);
                }
                _ => {}
            }
        }
        if keys.is_empty() { Err(Error::Missing { what: "public key" }) } else { Ok(keys) }
    }

    /// The key of a `SubjectPublicKeyInfo`.
    pub fn from_spki(spki: &[u8]) -> Result<Self, Error> {
        let (_, info) =
            SubjectPublicKeyInfo::from_der(spki).map_err(|error| Error::Key(error.to_string()))?;
        let raw = info.subject_public_key.data.to_vec();
        let algorithm = [Algorithm::Es256, Algorithm::Es384, Algorithm::Rs256]
            .into_iter()
            .find(|algorithm| der::sequence(&[algorithm.key_identifier(), der::bit_string(&raw)]) == info.raw)
            .ok_or_else(|| Error::Key("a key must be RSA, or EC on P-256 or P-384".to_owned()))?;
        let uncompressed = |length| raw.len() == length && raw[0] == 4;
        let whole = match algorithm {
            Algorithm::Es256 => uncompressed(65),
            Algorithm::Es384 => uncompressed(97),
            Algorithm::Rs256 => true,
        };
        if !whole {
            return Err(Error::Key("the point of an EC key must be whole and uncompressed".to_owned()));
        }
        Ok(PublicKey::new(algorithm, raw))
    }

    /// How this key verifies.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The id that tokens and key sets use: the unpadded base64url of the SHA-256 of [`PublicKey::spki`].
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The key as `SubjectPublicKeyInfo`.
    pub fn spki(&self) -> Vec<u8> {
        der::sequence(&[self.algorithm.key_identifier(), der::bit_string(&self.raw)])
    }

    /// The key as PEM.
    pub fn pem(&self) -> String {
        pem::encode("PUBLIC KEY", &self.spki())
    }

    /// Whether the signature, as JWTs carry it, is of the message and by this key.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(self.algorithm.verification(), &self.raw).verify(message, signature).is_ok()
    }

    /// The key as a member of a JSON Web Key Set.
    pub fn jwk(&self) -> Value {
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = json!({"use": "sig", "kid": self.id, "alg": self.algorithm.name()});
        match self.algorithm {
            Algorithm::Rs256 => {
                let spki = self.spki();
                let parsed = SubjectPublicKeyInfo::from_der(&spki).ok();
                if let Some(Parsed::RSA(rsa)) = parsed.as_ref().and_then(|(_, info)| info.parsed().ok()) {
                    let trim = |bytes: &[u8]| {
                        encode(&bytes[bytes.iter().position(|&b| b != 0).unwrap_or(bytes.len())..])
                    };
                    jwk["kty"] = json!("RSA");
                    jwk["n"] = json!(trim(rsa.modulus));
                    jwk["e"] = json!(trim(rsa.exponent));
                }
            }
            Algorithm::Es256 | Algorithm::Es384 => {
                // An uncompressed point: 4, x, y.
                let (x, y) = self.raw[1..].split_at((self.raw.len() - 1) / 2);
                jwk["kty"] = json!("EC");
                jwk["crv"] = json!(if self.algorithm == Algorithm::Es256 { "P-256" } else { "P-384" });
                jwk["x"] = json!(encode(x));
                jwk["y"] = json!(encode(y));
            }
        }
        jwk
    }
}

fn unusable(error: ring::error::KeyRejected) -> Error {
    Error::Key(error.to_string())
}
