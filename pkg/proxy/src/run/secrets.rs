//! The certificates of hosts: each Secret that an ingress names is followed by itself, so that nobody has to let a node
//! read the others.
//!
//! ```text
//! Ingress.spec.tls ──> names ── one watch each ──> pair ── does nginx take it? ──> certificates/<ns>.<name>.<hash>.crt
//! ```
//!
//! A pair has its own file names, so a renewed one is another configuration, and the last good one keeps its files.

use crate::web::{Web, WebError, write};
use client::Key;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
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
    /// Pairs that nginx has refused, by their files' stem, and why.
    refused: HashMap<String, String>,
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
            Ok(pair) => self.refused.get(&stem(key, pair)).cloned(),
            Err(trouble) => Some(trouble.clone()),
        }
    }

    /// Removes what no configuration names any more.
    pub fn sweep(&self, web: &Web, config: &str) {
        for entry in std::fs::read_dir(web.certificates()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
            if !config.contains(stem) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    /// The stem of a pair's files, once nginx has taken them.
    async fn store(&mut self, web: &Web, key: &Key, pair: &Pair) -> Option<String> {
        let stem = stem(key, pair);
        if self.refused.contains_key(&stem) {
            return None;
        }
        let path = |extension: &str| web.certificates().join(format!("{stem}.{extension}"));
        if path("crt").exists() && path("key").exists() {
            return Some(stem);
        }
        let stored = async {
            write(&path("key"), &pair.key)?;
            write(&path("crt"), &pair.certificate)?;
            web.takes_certificate(&path("crt"), &path("key")).await
        };
        match stored.await {
            Ok(()) => Some(stem),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, secret = %key, "this certificate is not used");
                let _ = (std::fs::remove_file(path("crt")), std::fs::remove_file(path("key")));
                if let WebError::Refused(said) = error {
                    self.refused.insert(stem, reason(&said));
                }
                None
            }
        }
    }
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
        let mut events = Box::pin(watcher::watcher(api.clone(), config.clone()));
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

    #[test]
    fn what_nginx_says_of_a_certificate() {
        let said = "2026/01/01 00:00:00 [emerg] 1#1: SSL_CTX_use_PrivateKey(\"/x/a.key\") failed (SSL: \
            error:05800074:x509 certificate routines::key values mismatch)\nnginx: configuration file test failed";
        assert_eq!(reason(said), "nginx does not take it: key values mismatch");
        assert_eq!(reason("no memory"), "nginx does not take it: no memory");
    }
}
