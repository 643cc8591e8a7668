//! Reading and writing single objects: consistent reads from the caches, compare-and-swap writes to the store.
//!
//! *Read-modify-write*: [`Server::modify`] decides on the cached state first, since that is nearly always the present
//! one. The store's compare-and-swap catches the case where it is not, and so does looking again before an error or
//! "nothing to do" is believed.

use crate::encryption::Keys;
use crate::error::{ApiError, Result};
use crate::registry::Resource;
use crate::server::Server;
use api::{Kind, Value, object};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use store::{Entry, Expect, Revision, Write};

/// An object as it stands in the store, in the version of the resource it was read through.
pub struct Current {
    /// With its resourceVersion.
    pub object: Value,
    /// The revision that wrote it.
    pub revision: Revision,
}

/// What to do with an object.
pub enum Change {
    /// Store this, together with other writes that must happen with it or not at all.
    Put(Box<Value>, Vec<Write>),
    /// Take it out, likewise.
    Remove(Vec<Write>),
    /// Leave it as it is.
    Keep,
}

/// What came of it.
pub enum Outcome {
    /// The object as it is stored now (or would be, in a dry run).
    Stored(Value),
    /// The last state of an object that is gone.
    Removed(Value),
}

impl Outcome {
    /// The object either way.
    pub fn into_object(self) -> Value {
        match self {
            Outcome::Stored(object) | Outcome::Removed(object) => object,
        }
    }
}

/// A write of a new object.
pub struct Inserted {
    /// Its revision.
    pub revision: Revision,
    /// The object as it is served from now on, where that is as it was stored: it was encoded already.
    pub json: Option<Bytes>,
}

/// A key that was to be new and is not.
pub struct TakenKey(pub String);

/// The largest object that is kept: what etcd takes by default, less some room for keys. The embedded engine takes
/// more, but objects must be able to move between the engines.
const LARGEST_OBJECT: usize = 1536 * 1024 - 8 * 1024;

/// Conflicts in a row before a writer is told to come back later.
const MOST_ATTEMPTS: usize = 64;
/// How long a write waits for the caches to show it.
const CACHE_TIMEOUT: Duration = Duration::from_secs(5);
/// Kinds whose objects decide about others.
const READ_BY_ADMISSION: [(&str, &str); 11] = [
    ("", "limitranges"),
    ("", "namespaces"),
    ("", "resourcequotas"),
    ("", "serviceaccounts"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
    ("networking.k8s.io", "ingressclasses"),
    ("scheduling.k8s.io", "priorityclasses"),
    ("storage.k8s.io", "storageclasses"),
];

impl Server {
    /// Waits until the caches show everything that was acknowledged, by any apiserver, before now.
    pub async fn catch_up(&self) -> Result<()> {
        let revision = self.store.revision().await?;
        self.registry.hub().wait(revision).await;
        Ok(())
    }

    /// The object now, or 404.
    pub async fn read(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Current> {
        self.catch_up().await?;
        self.cached(resource, namespace, name).await?.ok_or_else(|| ApiError::not_found(&resource.kind, name))
    }

    /// The object as the cache shows it.
    pub async fn cached(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Option<Current>> {
        let Some(cached) = resource.cache.get(namespace, name) else { return Ok(None) };
        let object = resource.in_version(self, parse(cached.as_json())?).await?;
        Ok(Some(Current { object, revision: cached.revision() }))
    }

    /// Writes a new object, together with other writes that must happen with it or not at all. What was in the way
    /// comes back as the key that was taken.
    pub async fn insert(
        &self,
        resource: &Resource,
        object: &Value,
        mut writes: Vec<Write>,
    ) -> Result<Result<Inserted, TakenKey>> {
        let kind = &*resource.kind;
        let key = kind.key(object::namespace(object), object::name(object));
        let value = self.sealed(resource, &key, object).await?;
        let is_as_stored = kind.convert.is_none() && kind.stored_version.is_none() && !is_secret(kind);
        let plain = is_as_stored.then(|| value.clone());
        writes.insert(0, Write { key, expect: Expect::Absent, value: Some(value) });
        match self.store.commit(writes).await {
            Ok(revision) => {
                self.written(kind, revision).await;
                let json = plain.map(|plain| object::served(&plain, revision).into());
                Ok(Ok(Inserted { revision, json }))
            }
            Err(store::Error::Conflict { key, .. }) => Ok(Err(TakenKey(key))),
            Err(error) => Err(error.into()),
        }
    }

    /// Changes one object as `decide` says, again and again until nobody interferes. `decide` sees the object with
    /// its resourceVersion and must not have effects of its own.
    pub async fn modify(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
        dry_run: bool,
        mut decide: impl FnMut(&Value) -> Result<Change>,
    ) -> Result<Outcome> {
        let mut attempt = self.attempt(resource, namespace, name, dry_run).await?;
        loop {
            let decision = attempt.current().and_then(&mut decide);
            if let Some(outcome) = attempt.settle(decision).await? {
                return Ok(outcome);
            }
        }
    }

    /// Begins to change one object: [`Server::modify`], step by step, for decisions that others must be asked for.
    pub async fn attempt<'a>(
        &'a self,
        resource: &'a Resource,
        namespace: &'a str,
        name: &'a str,
        dry_run: bool,
    ) -> Result<Attempt<'a>> {
        let current = self.cached(resource, namespace, name).await?;
        Ok(Attempt { server: self, resource, namespace, name, dry_run, current, is_fresh: false, settled: 0 })
    }

    /// What admission reads is in its cache before the write is answered: whoever has set a limit finds it kept.
    async fn written(&self, kind: &Kind, revision: Revision) {
        if READ_BY_ADMISSION.contains(&(kind.group.as_str(), kind.plural.as_str())) {
            // It is written all the same if the caches are behind for long.
            let _ = tokio::time::timeout(CACHE_TIMEOUT, self.registry.hub().wait(revision)).await;
        }
    }

    /// [`Server::seal`], after whatever conversion it takes.
    async fn sealed(&self, resource: &Resource, key: &str, object: &Value) -> Result<Bytes> {
        let converted = resource.to_stored(self, object).await?;
        self.seal(&resource.kind, key, converted.as_ref().unwrap_or(object))
    }

    /// The bytes to store for an object: in the stored version, without resourceVersion, sealed if it is secret.
    pub fn seal(&self, kind: &Kind, key: &str, object: &Value) -> Result<Bytes> {
        let plain = match (kind.convert, &kind.stored_version) {
            (Some((_, to_stored)), _) => object::stored(&to_stored(object.clone())),
            (None, Some(version)) => {
                let mut object = object.clone();
                object["apiVersion"] = format!("{}/{version}", kind.group).into();
                object::stored(&object)
            }
            (None, None) => object::stored(object),
        };
        if plain.len() > LARGEST_OBJECT {
            return Err(ApiError::too_large(format!("Request entity too large: limit is {LARGEST_OBJECT}")));
        }
        if !is_secret(kind) {
            return Ok(plain.into());
        }
        self.encryption.seal(key, &plain).map(Bytes::from).map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, key, "cannot encrypt a value");
            ApiError::internal("the object cannot be encrypted; see the server's log")
        })
    }

    /// An entry of the store as an object.
    pub async fn opened(&self, resource: &Resource, entry: &Entry) -> Result<Current> {
        let plain = self.encryption.open(&entry.key, &entry.value).map_err(|error| {
            tracing::error!(%error, key = entry.key, "cannot open a stored value");
            ApiError::internal("a stored object cannot be decrypted; see the server's log")
        })?;
        let mut object = parse(&object::served(&plain.value, entry.modified))?;
        if let Some(versions) = &resource.kind.versions {
            versions.read(&mut object);
        }
        Ok(Current { object: resource.in_version(self, object).await?, revision: entry.modified })
    }
}

/// An object that is about to be changed.
pub struct Attempt<'a> {
    server: &'a Server,
    resource: &'a Resource,
    namespace: &'a str,
    name: &'a str,
    dry_run: bool,
    current: Option<Current>,
    /// Whether `current` is known to be no older than the attempt.
    is_fresh: bool,
    settled: usize,
}

impl Attempt<'_> {
    /// The object to decide upon, with its resourceVersion.
    pub fn current(&self) -> Result<&Value> {
        let current = self.current.as_ref().map(|current| &current.object);
        current.ok_or_else(|| ApiError::not_found(&self.resource.kind, self.name))
    }

    /// Does what was decided. Nothing comes back where the object has changed meanwhile: it is to be decided anew.
    pub async fn settle(&mut self, decision: Result<Change>) -> Result<Option<Outcome>> {
        let (server, kind) = (self.server, &*self.resource.kind);
        self.settled += 1;
        if self.settled > MOST_ATTEMPTS {
            let why = "too many writers are changing the object at the same time; please try again";
            return Err(ApiError::conflict(kind, self.name, why));
        }
        if !self.is_fresh && matches!(decision, Err(_) | Ok(Change::Keep)) {
            self.is_fresh = true;
            let before = self.current.as_ref().map(|current| current.revision);
            server.catch_up().await?;
            let latest = server.cached(self.resource, self.namespace, self.name).await?;
            if latest.as_ref().map(|latest| latest.revision) != before {
                self.current = latest;
                return Ok(None);
            }
        }
        let (value, writes) = match decision? {
            Change::Keep => return Ok(Some(Outcome::Stored(self.present().object.clone()))),
            Change::Put(value, writes) => (Some(value), writes),
            Change::Remove(writes) => (None, writes),
        };
        if self.dry_run {
            return Ok(Some(match value {
                Some(value) => Outcome::Stored(*value),
                None => Outcome::Removed(self.present().object.clone()),
            }));
        }
        let key = kind.key(self.namespace, self.name);
        let sealed = match &value {
            Some(value) => Some(server.sealed(self.resource, &key, value).await?),
            None => None,
        };
        let expect = Expect::Revision(self.present().revision);
        let mut all = vec![Write { key: key.clone(), expect, value: sealed }];
        all.extend(writes);
        match server.store.commit(all).await {
            Ok(revision) => {
                server.written(kind, revision).await;
                Ok(Some(match value {
                    Some(mut value) => {
                        set_revision(&mut value, revision);
                        Outcome::Stored(*value)
                    }
                    None => {
                        let mut gone = self.present().object.clone();
                        set_revision(&mut gone, revision);
                        Outcome::Removed(gone)
                    }
                }))
            }
            Err(store::Error::Conflict { key: on, current: entry }) if on == key => {
                self.current = match entry {
                    Some(entry) => Some(server.opened(self.resource, &entry).await?),
                    None => None,
                };
                self.is_fresh = true;
                Ok(None)
            }
            // Something that had to be written along was taken by somebody else: decide anew.
            Err(store::Error::Conflict { .. }) => {
                server.catch_up().await?;
                self.current = server.cached(self.resource, self.namespace, self.name).await?;
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn present(&self) -> &Current {
        self.current.as_ref().expect("decided upon")
    }
}

/// Whether objects of the kind are sealed in the store.
/// Whether what its objects hold is for few.
pub(crate) fn is_secret(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "secrets"
}

/// Turns stored bytes into JSON, for the caches.
pub fn decoder(keys: Arc<Keys>) -> listwatch::Decode {
    Arc::new(move |key, stored| {
        // Nearly everything is plain, and needs no copy.
        if stored.first() == Some(&b'{') {
            return Ok(stored.clone());
        }
        Ok(keys.open(key, stored).map(|opened| Bytes::from(opened.value))?)
    })
}

/// An object of the stored version in the version of `kind`.
pub fn in_version(kind: &Kind, object: Value) -> Value {
    let mut object = match kind.convert {
        Some((from_stored, _)) => from_stored(object),
        None => object,
    };
    object["apiVersion"] = kind.api_version().into();
    object
}

/// Bytes of our own making, as an object.
pub fn parse(json: &[u8]) -> Result<Value> {
    serde_json::from_slice(json).map_err(|error| {
        tracing::error!(%error, "a stored object is not JSON");
        ApiError::internal("a stored object cannot be read; see the server's log")
    })
}

/// Puts the resourceVersion into an object.
pub fn set_revision(object: &mut Value, revision: Revision) {
    object::object_mut(object, "metadata").insert("resourceVersion".into(), revision.to_string().into());
}
