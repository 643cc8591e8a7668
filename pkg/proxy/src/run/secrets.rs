//! The certificates of hosts: each Secret that an ingress names is followed by itself, so that nobody has to let a node
//! read the others.
//!
//! ```text
//! Ingress.spec.tls ──> names ── one watch each ──> pair ── does nginx take it? ──> certificates/<ns>.<name>.<hash>.crt
//! ```
//!
//! A pair has its own file names, so a renewed one is another configuration, and the last good one keeps its files. It
//! has them only once nginx has taken it: until then both end with `.new`, and nobody believes them.

use crate::web::{Web, WebError, write_durably};
use client::Key;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long to wait after a failure: the apiserver may not know yet that this node needs the Secret.
const RETRY: Duration = Duration::from_secs(2);

/// A certificate and its key, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    certificate: String,
    key: String,
}

/// The Secrets that are followed.
pub struct Secrets {
    client: Client,
    followed: HashMap<Key, DropGuard>,
    known: Arc<Mutex<HashMap<Key, Result<Pair, String>>>>,
    changed: Arc<Notify>,
    shutdown: CancellationToken,
    /// What nginx has refused last of each: the stem of its files, and why.
    refused: HashMap<Key, (String, String)>,
}

impl Secrets {
    /// None yet.
    pub fn new(client: Client, shutdown: CancellationToken) -> Secrets {
        Secrets {
            client,
            followed: HashMap::new(),
            known: Arc::default(),
            changed: Arc::default(),
            shutdown,
            refused: HashMap::new(),
        }
    }

    /// Waits until one of them is another than before.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Follows these, and no others.
    pub fn follow(&mut self, wanted: &BTreeSet<Key>) {
        self.followed.retain(|key, _| wanted.contains(key));
        self.known.lock().retain(|key, _| wanted.contains(key));
        self.refused.retain(|key, _| wanted.contains(key));
        for key in wanted {
            if !self.followed.contains_key(key) {
                let stop = self.shutdown.child_token();
                let following =
                    follow(self.client.clone(), key.clone(), self.known.clone(), self.changed.clone());
                let stopped = stop.clone();
                tokio::spawn(async move {
                    tokio::select! { () = following => {}, () = stopped.cancelled() => {} }
                });
                self.followed.insert(key.clone(), stop.drop_guard());
            }
        }
    }

    /// The files of those that there are: certificate and key. One that cannot be read, or that nginx does not take,
    /// keeps the files it had.
    pub async fn files(&mut self, web: &Web, wanted: &BTreeSet<Key>) -> HashMap<Key, (PathBuf, PathBuf)> {
        let mut found = HashMap::new();
        for key in wanted {
            let known = self.known.lock().get(key).cloned();
            let stem = match known {
                Some(Ok(pair)) => self.store(web, key, &pair).await,
                Some(Err(_)) | None => None,
            };
            if let Some(stem) = stem.or_else(|| newest(web, key)) {
                let path = |extension: &str| web.certificates().join(format!("{stem}.{extension}"));
                found.insert(key.clone(), (path("crt"), path("key")));
            }
        }
        found
    }

    /// What is wrong with one of them.
    pub fn trouble(&self, key: &Key) -> Option<String> {
        match self.known.lock().get(key)? {
            Ok(pair) => self.why_refused(key, &stem(key, pair)).cloned(),
            Err(trouble) => Some(trouble.clone()),
        }
    }

    fn why_refused(&self, key: &Key, stem: &str) -> Option<&String> {
        self.refused.get(key).filter(|(refused, _)| refused == stem).map(|(_, why)| why)
    }

    /// Removes what no configuration names any more.
    pub fn sweep(&self, web: &Web, config: &str) {
        for entry in std::fs::read_dir(web.certificates()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
            // What was not finished is of somebody who was killed at it.
            if !config.contains(stem) || name.ends_with(".new") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The stem of a pair's files, once nginx has taken them.
    async fn store(&mut self, web: &Web, key: &Key, pair: &Pair) -> Option<String> {
        let stem = stem(key, pair);
        if self.why_refused(key, &stem).is_some() {
            return None;
        }
        let path = |extension: &str| web.certificates().join(format!("{stem}.{extension}"));
        if path("crt").exists() && path("key").exists() {
            return Some(stem);
        }
        let (new_key, new_certificate) = (path("key.new"), path("crt.new"));
        let stored = async {
            write_durably(&new_key, &pair.key)?;
            write_durably(&new_certificate, &pair.certificate)?;
            web.takes_certificate(&new_certificate, &new_key).await?;
            rename(&new_key, &path("key"))?;
            // The last step: where there is a certificate, the pair was tested.
            rename(&new_certificate, &path("crt"))
        };
        match stored.await {
            Ok(()) => Some(stem),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, secret = %key, "this certificate is not used");
                let _ = (std::fs::remove_file(new_certificate), std::fs::remove_file(new_key));
                if let WebError::Refused(said) = error {
                    self.refused.insert(key.clone(), (stem, reason(&said)));
                }
                None
            }
        }
    }
}

fn rename(from: &Path, to: &Path) -> Result<(), WebError> {
    let failed = |source| WebError::Io { what: format!("write {}", to.display()), source };
    std::fs::rename(from, to).map_err(failed)
}

/// Until it is dropped.
async fn follow(
    client: Client,
    key: Key,
    known: Arc<Mutex<HashMap<Key, Result<Pair, String>>>>,
    changed: Arc<Notify>,
) {
    let api: Api<Secret> = Api::namespaced(client, &key.namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
    loop {
        let mut events = Box::pin(client::watcher(api.clone(), config.clone()));
        let mut found = false;
        while let Some(event) = events.next().await {
            let pair = match event {
                Ok(Event::Apply(secret) | Event::InitApply(secret)) => {
                    found = true;
                    read(secret)
                }
                Ok(Event::Delete(_)) => Err("it is gone; the certificate it had stays in use".to_owned()),
                Ok(Event::InitDone) if !found => Err("not found".to_owned()),
                Ok(Event::Init) => {
                    found = false;
                    continue;
                }
                Ok(Event::InitDone) => continue,
                Err(error) => {
                    tracing::debug!(%error, secret = %key, "a secret cannot be followed");
                    break;
                }
            };
            if let Err(error) = &pair {
                tracing::warn!(error, secret = %key, "no new certificate");
            }
            known.lock().insert(key.clone(), pair);
            changed.notify_one();
        }
        tokio::time::sleep(RETRY).await;
    }
}

fn read(secret: Secret) -> Result<Pair, String> {
    let mut data = secret.data.unwrap_or_default();
    let mut text = |name: &str| -> Result<String, String> {
        let bytes = data.remove(name).ok_or_else(|| format!("it has no {name}"))?;
        String::from_utf8(bytes.0).map_err(|_| format!("its {name} is not text"))
    };
    Ok(Pair { certificate: text("tls.crt")?, key: text("tls.key")? })
}

/// What of nginx's words is about the certificate: `… failed (SSL: error:05800074:x509 …::key values mismatch)`.
fn reason(said: &str) -> String {
    let detail = said.rsplit_once("::").and_then(|(_, rest)| rest.split_once(')'));
    let detail = detail.map_or(said, |(detail, _)| detail);
    format!("nginx does not take it: {detail}")
}

/// `<namespace>.<name>.<hash>`: namespaces and hashes have no dots.
fn stem(key: &Key, pair: &Pair) -> String {
    let digest = digest(&SHA256, format!("{}\n{}", pair.certificate, pair.key).as_bytes());
    let hash: String = digest.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}.{}.{hash}", key.namespace, key.name)
}

/// The pair of a Secret that was written last.
fn newest(web: &Web, key: &Key) -> Option<String> {
    let prefix = format!("{}.{}.", key.namespace, key.name);
    let entries = std::fs::read_dir(web.certificates()).ok()?.flatten();
    let pairs = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".crt")?;
        let hash = stem.strip_prefix(&prefix)?;
        let whole = web.certificates().join(format!("{stem}.key")).exists();
        (whole && !hash.contains('.')).then_some((entry.metadata().ok()?.modified().ok()?, stem.to_owned()))
    });
    pairs.max().map(|(_, stem)| stem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    /// What is known of one Secret, by somebody who begins.
    fn knowing(key: &Key, pair: &Pair) -> Secrets {
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let secrets = Secrets::new(Client::try_from(nowhere).unwrap(), CancellationToken::new());
        secrets.known.lock().insert(key.clone(), Ok(pair.clone()));
        secrets
    }

    fn pair() -> Pair {
        let made = pki::Authority::create("a", jiff::Timestamp::now()).unwrap();
        Pair { certificate: made.pem().to_owned(), key: made.key_pem().to_owned() }
    }

    fn names(web: &Web) -> BTreeSet<String> {
        let entries = std::fs::read_dir(web.certificates()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn only_a_pair_that_was_tested_is_believed() {
        let dir = tempfile::tempdir().unwrap();
        let web = Web::new(dir.path()).unwrap();
        let key = Key::new("ns", "safe");
        let wanted = BTreeSet::from([key.clone()]);
        let good = pair();
        let bad = Pair { key: pair().key, ..good.clone() };
        // Killed as soon as it waits for nginx to say what it thinks of it.
        let killed = knowing(&key, &bad).files(&web, &wanted).now_or_never();
        assert!(killed.is_none() && !names(&web).is_empty(), "{killed:?} {:?}", names(&web));

        let mut secrets = knowing(&key, &bad);
        assert!(secrets.files(&web, &wanted).await.is_empty());
        assert_eq!(secrets.trouble(&key).as_deref(), Some("nginx does not take it: key values mismatch"));
        assert_eq!(names(&web), BTreeSet::new());

        assert!(knowing(&key, &good).files(&web, &wanted).now_or_never().is_none());
        let mut secrets = knowing(&key, &good);
        let files = secrets.files(&web, &wanted).await;
        let stem = stem(&key, &good);
        let path = |extension: &str| web.certificates().join(format!("{stem}.{extension}"));
        assert_eq!(files[&key], (path("crt"), path("key")));
        // Of another one that was killed.
        std::fs::write(path("crt.new"), "").unwrap();
        std::fs::write(path("key.new"), "").unwrap();
        secrets.sweep(&web, &path("crt").display().to_string());
        assert_eq!(names(&web), BTreeSet::from([format!("{stem}.crt"), format!("{stem}.key")]));
        assert_eq!(knowing(&key, &good).files(&web, &wanted).await, files);
    }

    #[test]
    fn what_nginx_says_of_a_certificate() {
        let said = "2026/01/01 00:00:00 [emerg] 1#1: SSL_CTX_use_PrivateKey(\"/x/a.key\") failed (SSL: \
            error:05800074:x509 certificate routines::key values mismatch)\nnginx: configuration file test failed";
        assert_eq!(reason(said), "nginx does not take it: key values mismatch");
        assert_eq!(reason("no memory"), "nginx does not take it: no memory");
    }
}
