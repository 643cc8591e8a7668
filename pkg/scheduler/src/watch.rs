//! Watches: bytes become events, and what does not matter is never kept.
//!
//! ```text
//! all objects, as the first events of a watch ──> Restart, Set…, Complete ──> Set, Delete, … ──> ended: from where it was
//! ```
//!
//! One watch per kind, and one line at a time: a list of ten thousand pods is never in memory.

use crate::scheduler::{Event, Kind, Object};
use crate::wire;
use futures::AsyncBufReadExt;
use kube::Client;
use kube::api::WatchParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The server ends a watch after this long, so that a connection that died unnoticed is replaced.
const WATCH_SECONDS: u32 = 290;
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is watched, and where.
pub(crate) const SOURCES: &[(Kind, &str)] = &[
    (Kind::Node, "/api/v1/nodes"),
    (Kind::Pod, "/api/v1/pods"),
    (Kind::Namespace, "/api/v1/namespaces"),
    (Kind::Service, "/api/v1/services"),
    (Kind::ReplicaSet, "/apis/apps/v1/replicasets"),
    (Kind::StatefulSet, "/apis/apps/v1/statefulsets"),
    (Kind::ReplicationController, "/api/v1/replicationcontrollers"),
    (Kind::Budget, "/apis/policy/v1/poddisruptionbudgets"),
    (Kind::Claim, "/api/v1/persistentvolumeclaims"),
    (Kind::Volume, "/api/v1/persistentvolumes"),
    (Kind::StorageClass, "/apis/storage.k8s.io/v1/storageclasses"),
    (Kind::CsiNode, "/apis/storage.k8s.io/v1/csinodes"),
];

/// Pods that have ended need no place.
const LIVING: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// One line of a watch.
#[derive(Deserialize)]
struct Line<T> {
    #[serde(rename = "type")]
    change: String,
    object: T,
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("nobody listens any more")]
    Unheard,
    #[error("the server has forgotten what was asked for")]
    Expired,
    #[error("ask for a watch")]
    Request(#[from] kube::Error),
    #[error("read a watch")]
    Read(#[from] std::io::Error),
    #[error("understand a watch")]
    Understand(#[from] serde_json::Error),
}

/// Watches one kind until the token is cancelled.
pub(crate) async fn watch(
    client: Client,
    kind: Kind,
    path: &'static str,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let mut version = None;
    let watching = async {
        loop {
            let ended = match kind {
                Kind::Pod => follow(&client, kind, path, &mut version, &events, pod, |p| &p.metadata).await,
                Kind::Node => follow(&client, kind, path, &mut version, &events, node, |n| &n.metadata).await,
                Kind::Namespace => {
                    follow(&client, kind, path, &mut version, &events, Object::Namespace, |n| &n.metadata)
                        .await
                }
                Kind::Claim => {
                    follow(&client, kind, path, &mut version, &events, Object::Claim, |c| &c.metadata).await
                }
                Kind::Volume => {
                    follow(&client, kind, path, &mut version, &events, volume, |v| &v.metadata).await
                }
                Kind::StorageClass => {
                    follow(&client, kind, path, &mut version, &events, Object::StorageClass, |c| &c.metadata)
                        .await
                }
                Kind::CsiNode => {
                    follow(&client, kind, path, &mut version, &events, Object::CsiNode, |n| &n.metadata).await
                }
                _ => {
                    let object = |selecting| Object::Selecting(kind, selecting);
                    follow(&client, kind, path, &mut version, &events, object, |s: &wire::Selecting| {
                        &s.metadata
                    })
                    .await
                }
            };
            match ended {
                Ok(()) => {}
                Err(Ended::Unheard) => return,
                Err(Ended::Expired) => version = None,
                Err(error) => {
                    if let Ended::Request(kube::Error::Api(status)) = &error
                        && status.code == 410
                    {
                        version = None;
                    }
                    tracing::debug!(
                        kind = kind.name(),
                        error = &error as &dyn std::error::Error,
                        "a watch ended"
                    );
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.cancelled() => {}
    }
}

fn pod(pod: wire::Pod) -> Object {
    Object::Pod(Box::new(pod))
}

fn node(node: wire::Node) -> Object {
    Object::Node(Box::new(node))
}

fn volume(volume: wire::PersistentVolume) -> Object {
    Object::Volume(Box::new(volume))
}

/// One watch, from its beginning to its end.
async fn follow<T: DeserializeOwned>(
    client: &Client,
    kind: Kind,
    path: &str,
    version: &mut Option<String>,
    events: &mpsc::Sender<Event>,
    object: impl Fn(T) -> Object,
    meta: impl Fn(&T) -> &wire::Meta,
) -> Result<(), Ended> {
    let params = WatchParams {
        field_selector: (kind == Kind::Pod).then(|| LIVING.to_owned()),
        timeout: Some(WATCH_SECONDS),
        bookmarks: true,
        send_initial_events: version.is_none(),
        ..WatchParams::default()
    };
    let from = version.as_deref().unwrap_or_default();
    let request = Request::new(path).watch(&params, from).map_err(kube::Error::BuildRequest)?;
    let send = async |event| events.send(event).await.map_err(|_| Ended::Unheard);
    let mut lines = std::pin::pin!(client.request_stream(request).await?);
    let is_new = version.is_none();
    if is_new {
        send(Event::Restart(kind)).await?;
    }
    let mut is_complete = !is_new;
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = Duration::from_secs(u64::from(WATCH_SECONDS) + 30);
        let read = tokio::time::timeout(limit, lines.read_until(b'\n', &mut line)).await;
        let read = read.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??;
        if read == 0 {
            // Not complete: what was told is not all there is, and the next watch begins anew.
            if !is_complete {
                *version = None;
            }
            return Ok(());
        }
        // An object that is not understood must not stop the rest.
        let parsed: Line<T> = match serde_json::from_slice(&line) {
            Ok(parsed) => parsed,
            Err(error) if error.is_eof() => return Err(error.into()),
            Err(error) => {
                tracing::warn!(kind = kind.name(), %error, "an object was not understood");
                continue;
            }
        };
        if parsed.change == "ERROR" {
            return Err(Ended::Expired);
        }
        let of = meta(&parsed.object);
        let seen = of.resource_version.clone();
        match parsed.change.as_str() {
            "BOOKMARK" => {
                if of.annotations.contains_key(INITIAL_EVENTS_END) {
                    is_complete = true;
                    send(Event::Complete(kind)).await?;
                }
            }
            "DELETED" => send(Event::Delete(kind, of.namespace.clone(), of.name.clone())).await?,
            _ => send(Event::Set(object(parsed.object))).await?,
        }
        if is_complete {
            *version = Some(seen);
        }
    }
}
