//! What is issued is believed by others: rustls verifies the chains, rcgen makes requests, OpenSSL made the keys.

#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use pki::{Authority, Facts, Identity, PrivateKey, PublicKey, Request, San, Usage};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use std::sync::Arc;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap()
}

fn at(time: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(time.as_second() as u64))
}

fn roots(authority: &Authority) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap()).unwrap();
    Arc::new(roots)
}

fn server_is_believed(authority: &Authority, certificate: &str, name: &str, when: Timestamp) -> bool {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(authority), default_provider().into())
        .build()
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    verifier.verify_server_cert(&certificate, &[], &name, &[], at(when)).is_ok()
}

fn client_is_believed(authority: &Authority, certificate: &str, when: Timestamp) -> bool {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(authority), default_provider().into())
        .build()
        .unwrap();
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    verifier.verify_client_cert(&certificate, &[], at(when)).is_ok()
}

fn key(file: &str) -> PrivateKey {
    PrivateKey::from_pem(match file {
        "rsa-pkcs1" => include_str!("testdata/rsa-pkcs1.pem"),
        "rsa-pkcs8" => include_str!("testdata/rsa-pkcs8.pem"),
        "p256-sec1" => include_str!("testdata/p256-sec1.pem"),
        _ => include_str!("testdata/p384-sec1.pem"),
    })
    .unwrap()
}

#[test]
fn a_server_is_believed_by_its_names_for_its_time() {
    let authority = Authority::create("kubernetes", now()).unwrap();
    let sans = [San::Dns("kubernetes.default".into()), San::parse("10.96.0.1"), San::parse("::1")];
    let Identity { certificate, .. } = authority.server("kube-apiserver", &sans, now()).unwrap();
    let check = |name: &str, when: Timestamp, expected| {
        assert_eq!(server_is_believed(&authority, &certificate, name, when), expected, "{name} at {when}");
    };
    check("kubernetes.default", now(), true);
    check("10.96.0.1", now(), true);
    check("::1", now(), true);
    check("kubernetes.other", now(), false);
    check("10.96.0.2", now(), false);
    check("10.96.0.1", now() - Duration::from_secs(120), true);
    check("10.96.0.1", now() - HOUR, false);
    check("10.96.0.1", now() + pki::LEAF_LIFETIME + HOUR, false);
    assert!(!client_is_believed(&authority, &certificate, now()), "a server is no client");
    let other = Authority::create("kubernetes", now()).unwrap();
    assert!(!server_is_believed(&other, &certificate, "10.96.0.1", now()), "of another authority");
}

#[test]
fn a_user_may_be_in_several_groups() {
    let authority = Authority::create("kubernetes", now()).unwrap();
    let identity = authority.client("jane", &["dev", "ops"], now()).unwrap();
    assert!(client_is_believed(&authority, &identity.certificate, now()));
    let facts = Facts::from_pem(&identity.certificate).unwrap();
    assert_eq!(facts.to_string(), "O=dev, O=ops, CN=jane, until 2027-09-21T14:13:20Z");
    assert_eq!((facts.common_name.as_str(), facts.organizations), ("jane", vec!["dev".into(), "ops".into()]));
    assert_eq!(facts.subject, "O=dev, O=ops, CN=jane");
    assert_eq!(facts.issuer, "CN=kubernetes");
    assert!(!facts.is_ca);
}

#[test]
fn any_key_can_be_an_authority() {
    for file in ["rsa-pkcs1", "rsa-pkcs8", "p256-sec1", "p384-sec1"] {
        let made = Authority::self_sign("kubernetes", key(file), now()).unwrap();
        let authority = Authority::load(made.pem(), key(file).pem()).unwrap();
        let identity = authority.server("s", &[San::Dns("s".into())], now()).unwrap();
        assert!(server_is_believed(&authority, &identity.certificate, "s", now()), "{file}");
        assert!(authority.issued(&identity.certificate, &identity.key), "{file}");
        assert!(!authority.issued(&identity.certificate, key("p256-sec1").pem()), "{file}");
    }
    let made = Authority::create("kubernetes", now()).unwrap();
    assert!(matches!(Authority::load(made.pem(), key("rsa-pkcs8").pem()), Err(pki::Error::Mismatch)));
    let leaf = made.client("x", &[], now()).unwrap();
    assert!(matches!(Authority::load(&leaf.certificate, &leaf.key), Err(pki::Error::Certificate(_))));
}

#[test]
fn key_ids_are_as_openssl_says() {
    // openssl … -pubout -outform DER | openssl dgst -sha256 -binary, as unpadded base64url.
    assert_eq!(key("rsa-pkcs1").public().id(), "OzcRvSTVDIhIq_mvFaPvVB_wSgU44pM3JWaLheIBm9M");
    assert_eq!(key("p256-sec1").public().id(), "KfbwNcln5-KMFXtGnAV37o_AzohGEJnq4XNFrxn9wm0");
    for file in ["rsa-pkcs1", "p256-sec1", "p384-sec1"] {
        let key = key(file);
        let expected = vec![key.public().clone()];
        assert_eq!(PublicKey::all_from_pem(&key.public().pem()).unwrap(), expected);
        assert_eq!(PublicKey::all_from_pem(key.pem()).unwrap(), expected);
        let signature = key.sign(b"message").unwrap();
        assert!(key.public().verify(b"message", &signature) && !key.public().verify(b"other", &signature));
    }
    let jwk = key("rsa-pkcs1").public().jwk();
    assert_eq!((jwk["e"].as_str(), jwk["n"].as_str().map(str::len)), (Some("AQAB"), Some(342)));
}

#[test]
fn a_request_is_signed_as_it_stands_for_what_we_choose() {
    let authority = Authority::create("kubernetes", now()).unwrap();
    let key = PrivateKey::generate().unwrap();
    let text = pki::request(&key, "system:node:n1", &["system:nodes"], &[San::parse("10.0.0.1")]).unwrap();
    let request = Request::from_pem(&text).unwrap();
    assert_eq!(request.facts.common_name, "system:node:n1");
    assert_eq!(request.facts.organizations, ["system:nodes"]);
    assert_eq!(request.facts.sans, ["10.0.0.1"]);
    let usages: Vec<Usage> =
        ["digital signature", "client auth"].iter().filter_map(|name| Usage::parse(name)).collect();
    let certificate = authority.sign(&request, &usages, HOUR, now()).unwrap();
    assert!(authority.issued(&certificate, key.pem()));
    assert!(client_is_believed(&authority, &certificate, now()));
    assert!(!client_is_believed(&authority, &certificate, now() + 2 * HOUR));
    assert!(!server_is_believed(&authority, &certificate, "10.0.0.1", now()), "not asked for");
}

#[test]
fn nothing_outlives_its_authority() {
    let authority = Authority::create("kubernetes", now()).unwrap();
    let key = PrivateKey::generate().unwrap();
    let request = Request::from_pem(&pki::request(&key, "x", &[], &[]).unwrap()).unwrap();
    let certificate = authority.sign(&request, &[], 20 * pki::AUTHORITY_LIFETIME, now()).unwrap();
    let until = |pem: &str| Facts::from_pem(pem).unwrap().not_after;
    assert_eq!(until(&certificate), until(authority.pem()));
}

#[test]
fn requests_of_others_are_read_and_forged_ones_refused() {
    let pair = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "web");
    let text = params.serialize_request(&pair).unwrap().pem().unwrap();
    let request = Request::from_pem(&text).unwrap();
    assert_eq!(request.facts.sans, ["web.example"]);
    let authority = Authority::create("kubernetes", now()).unwrap();
    let certificate = authority.sign(&request, &[Usage::server_auth()], HOUR, now()).unwrap();
    assert!(server_is_believed(&authority, &certificate, "web.example", now()));

    let mut other = rcgen::CertificateParams::new(vec!["web.example".to_owned()]).unwrap();
    other.distinguished_name.push(rcgen::DnType::CommonName, "admin");
    let der = other.serialize_request(&pair).unwrap().der().to_vec();
    let mut forged = der.clone();
    let place = forged.windows(5).position(|w| w == b"admin").unwrap();
    forged[place..place + 5].copy_from_slice(b"adult");
    let pem = |der: &[u8]| {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let body = BASE64_STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
    };
    assert!(Request::from_pem(&pem(&der)).is_ok());
    assert!(matches!(Request::from_pem(&pem(&forged)), Err(pki::Error::Request(_))));
    assert!(matches!(Request::from_pem("rubbish"), Err(pki::Error::Missing { .. })));
    // It asks for O=system:masters in letters of two bytes, which some read and others do not.
    let odd = Request::from_pem(include_str!("testdata/bmp-subject.csr"));
    assert!(matches!(odd, Err(pki::Error::Request(why)) if why.contains("unusual")));
}
