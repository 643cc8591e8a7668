//! ConfigMaps and Secrets that pods of this node use, one watch each, shared, for as long as a pod uses them.
//!
//! A change wakes the workers of the pods that use the object; they bring their volumes up to date.

use crate::wake::Wake;
use client::Informers;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::runtime::watcher;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// How long somebody waits for an object that is asked for the first time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl Kind {
    /// As it is called.
    pub fn name(self) -> &'static str {
        match self {
            Kind::ConfigMap => "ConfigMap",
            Kind::Secret => "Secret",
        }
    }

    /// As errors call it.
    pub fn lower(self) -> &'static str {
        match self {
            Kind::ConfigMap => "configmap",
            Kind::Secret => "secret",
        }
    }
}

/// What an object holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Data {
    /// Text and bytes alike.
    pub data: BTreeMap<String, Vec<u8>>,
    /// Its type, of a Secret.
    pub secret_type: String,
    /// Which object of its name it is.
    pub uid: String,
}

type State = Option<Result<Option<Arc<Data>>, String>>;
type Key = (Kind, String, String);

struct Watched {
    state: watch::Sender<State>,
    users: Mutex<BTreeMap<String, Arc<Wake>>>,
    task: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// The objects in use.
pub struct Objects {
    informers: Option<Informers>,
    watched: Mutex<BTreeMap<Key, Arc<Watched>>>,
    shutdown: CancellationToken,
}

impl Objects {
    /// None yet.
    pub fn new(informers: Option<Informers>, shutdown: CancellationToken) -> Objects {
        Objects { informers, watched: Mutex::default(), shutdown }
    }

    /// An object of a pod's namespace; `None`: there is none. The pod is woken when it changes.
    pub async fn get(
        &self,
        pod: &Pod,
        kind: Kind,
        name: &str,
        wake: &Arc<Wake>,
    ) -> Result<Option<Arc<Data>>, String> {
        let Some(informers) = &self.informers else {
            return Err(format!(
                "{} \"{name}\" is not available: this kubelet has no apiserver",
                kind.lower()
            ));
        };
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let key = (kind, namespace, name.to_owned());
        let watched = {
            let mut all = self.watched.lock();
            let watched = all.entry(key.clone()).or_insert_with(|| {
                Arc::new(Watched {
                    state: watch::channel(None).0,
                    users: Mutex::default(),
                    task: Mutex::default(),
                })
            });
            watched.users.lock().insert(uid, wake.clone());
            let mut task = watched.task.lock();
            if task.is_none() {
                let follow = follow(informers.clone(), key, Arc::downgrade(watched), self.shutdown.clone());
                *task = Some(AbortOnDropHandle::new(tokio::spawn(follow)));
            }
            drop(task);
            watched.clone()
        };
        let mut state = watched.state.subscribe();
        let known = tokio::time::timeout(PATIENCE, state.wait_for(Option::is_some)).await;
        match known {
            Ok(Ok(state)) => state.clone().expect("waited for"),
            _ => Err(format!("failed to sync {} cache: timed out waiting for the condition", kind.lower())),
        }
    }

    /// A pod needs none of them any more.
    pub fn release(&self, uid: &str) {
        self.watched.lock().retain(|_, watched| {
            let mut users = watched.users.lock();
            users.remove(uid);
            !users.is_empty()
        });
    }
}

async fn follow(
    informers: Informers,
    key: Key,
    watched: std::sync::Weak<Watched>,
    shutdown: CancellationToken,
) {
    let (kind, namespace, name) = key;
    let fields = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let tell = |data: Option<Data>| {
        let Some(watched) = watched.upgrade() else { return };
        let new = Some(Ok(data.map(Arc::new)));
        let changed = watched.state.send_if_modified(|state| {
            let changed = *state != new;
            *state = new;
            changed
        });
        if changed {
            watched.users.lock().values().for_each(|wake| wake.object_changed());
        }
    };
    let complain = |error: watcher::Error| {
        tracing::debug!(%error, name, "watch {}", kind.lower());
        let Some(watched) = watched.upgrade() else { return };
        watched.state.send_if_modified(|state| {
            let first = state.is_none();
            if first {
                *state = Some(Err(format!("{} \"{name}\": {}", kind.lower(), crate::error::chain(&error))));
            }
            first
        });
    };
    let following = async {
        match kind {
            Kind::ConfigMap => {
                let api = Api::<ConfigMap>::namespaced(informers.client().clone(), &namespace);
                let stream = informers.results(api, &fields);
                each(stream, |object| tell(object.map(config_map)), complain).await;
            }
            Kind::Secret => {
                let api = Api::<Secret>::namespaced(informers.client().clone(), &namespace);
                let stream = informers.results(api, &fields);
                each(stream, |object| tell(object.map(secret)), complain).await;
            }
        }
    };
    tokio::select! { () = following => {}, () = shutdown.cancelled() => {} }
}

/// Follows one object: the present one, or that there is none.
async fn each<K>(
    stream: impl futures::Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    tell: impl Fn(Option<K>),
    complain: impl Fn(watcher::Error),
) {
    let mut stream = std::pin::pin!(stream);
    let mut listed = None;
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => listed = None,
            Ok(watcher::Event::InitApply(object)) => listed = Some(object),
            Ok(watcher::Event::InitDone) => tell(listed.take()),
            Ok(watcher::Event::Apply(object)) => tell(Some(object)),
            Ok(watcher::Event::Delete(_)) => tell(None),
            Err(error) => complain(error),
        }
    }
}

fn config_map(object: ConfigMap) -> Data {
    let mut data: BTreeMap<String, Vec<u8>> =
        object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes())).collect();
    data.extend(object.binary_data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)));
    Data { data, secret_type: String::new(), uid: object.metadata.uid.unwrap_or_default() }
}

fn secret(object: Secret) -> Data {
    let data = object.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
    let uid = object.metadata.uid.unwrap_or_default();
    Data { data, secret_type: object.type_.unwrap_or_default(), uid }
}
