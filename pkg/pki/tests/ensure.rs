//! A data directory heals whatever happened to it, and keeps what all trust hangs on.

#![allow(clippy::unwrap_used)]

use jiff::Timestamp;
use pki::{Config, Facts, Kubeconfig, ensure};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

fn now() -> Timestamp {
    Timestamp::from_second(1_790_000_000).unwrap()
}

fn config() -> Config {
    Config {
        names: vec!["node-1".into(), "192.0.2.7".into(), "0.0.0.0".into()],
        service_ip: "10.96.0.1".parse().ok(),
    }
}

fn content(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
        .collect()
}

#[test]
fn everything_is_made_once() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("pki");
    let made = ensure(&dir, &config(), now()).unwrap();
    let before = content(&dir);
    let names: Vec<&str> = before.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "admin.crt",
            "admin.key",
            "apiserver-kubelet-client.crt",
            "apiserver-kubelet-client.key",
            "apiserver.crt",
            "apiserver.key",
            "ca.crt",
            "ca.key",
            "front-proxy-ca.crt",
            "front-proxy-ca.key",
            "front-proxy-client.crt",
            "front-proxy-client.key",
            "sa.key",
            "sa.pub",
        ]
    );
    for name in names {
        let mode = fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if name.ends_with(".key") { 0o600 } else { 0o644 }, "{name}");
    }
    let sans = Facts::from_pem(&made.serving.certificate).unwrap().sans;
    assert_eq!(
        sans,
        [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            "::1",
            "node-1",
            "192.0.2.7",
            "10.96.0.1",
        ]
    );
    let token = made.signer.sign(&json!({"sub": "x"})).unwrap();
    let again = ensure(&dir, &config(), now()).unwrap();
    assert_eq!(content(&dir), before);
    assert!(again.verifier().verify(&token).is_ok());
}

#[test]
fn any_half_written_state_heals() {
    let whole = tempfile::tempdir().unwrap();
    ensure(whole.path(), &config(), now()).unwrap();
    let files = content(whole.path());
    // Written in this order: a crash leaves any beginning of it. Afterwards anything but the authorities' keys may be lost or cut.
    for (name, text) in &files {
        for damaged in [None, Some(""), Some(&text[..text.len() / 2])] {
            let is_authority = name.ends_with("ca.key") || name.ends_with("ca.crt");
            let is_trusted = (is_authority || name == "sa.key") && damaged.is_some();
            if is_trusted || name.ends_with("ca.key") {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            for (other, text) in &files {
                fs::write(dir.path().join(other), text).unwrap();
            }
            match damaged {
                Some(text) => fs::write(dir.path().join(name), text).unwrap(),
                None => fs::remove_file(dir.path().join(name)).unwrap(),
            }
            let healed = ensure(dir.path(), &config(), now()).unwrap();
            let identity = &healed.serving;
            assert!(healed.authority.issued(&identity.certificate, &identity.key), "{name}");
            assert_eq!(healed.authority.key_pem(), files["ca.key"], "{name}");
            assert_eq!(content(dir.path()).len(), files.len(), "{name}");
        }
    }
}

#[test]
fn what_trust_hangs_on_is_never_replaced() {
    let check = |damage: &dyn Fn(&Path), expected: &str| {
        let dir = tempfile::tempdir().unwrap();
        ensure(dir.path(), &config(), now()).unwrap();
        damage(dir.path());
        let error = ensure(dir.path(), &config(), now()).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        let text = format!("{error}: {source}").replace(&format!("{}/", dir.path().display()), "");
        assert_eq!(text, expected);
    };
    check(&|dir| fs::remove_file(dir.join("ca.key")).unwrap(), "ca.key: no key of the authority found");
    check(&|dir| fs::write(dir.join("sa.key"), "").unwrap(), "sa.key: no private key found");
    check(
        &|dir| {
            fs::copy(dir.join("sa.key"), dir.join("ca.key")).unwrap();
        },
        "ca.crt: the certificate is not of this key",
    );
}

#[test]
fn certificates_are_renewed_before_they_expire_and_for_new_names() {
    let dir = tempfile::tempdir().unwrap();
    let first = ensure(dir.path(), &config(), now()).unwrap();
    let later = now() + Duration::from_secs(300 * 24 * 3600);
    let second = ensure(dir.path(), &config(), later).unwrap();
    assert_ne!(first.serving, second.serving);
    assert_ne!(first.admin, second.admin);
    assert_eq!(first.authority.pem(), second.authority.pem());
    let mut more = config();
    more.names.push("api.example".into());
    let third = ensure(dir.path(), &more, later).unwrap();
    assert_ne!(second.serving, third.serving);
    assert_eq!(second.admin, third.admin);
    // A server that is asked to answer to less keeps what it has.
    let fourth = ensure(dir.path(), &config(), later).unwrap();
    assert_eq!(third.serving, fourth.serving);
}

#[test]
fn the_admins_kubeconfig_is_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let made = ensure(dir.path(), &config(), now()).unwrap();
    let path = made.write_admin_kubeconfig("https://127.0.0.1:6443").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let read = Kubeconfig::parse(&fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(read.server, "https://127.0.0.1:6443");
    assert_eq!(read.ca_pem, made.authority.pem());
    let facts = Facts::from_pem(&read.client_cert_pem.unwrap()).unwrap();
    assert_eq!(facts.organizations, ["system:masters"]);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    made.write_admin_kubeconfig("https://127.0.0.1:6443").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}
