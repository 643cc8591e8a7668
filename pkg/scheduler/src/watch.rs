//! Watches: bytes become events, and what does not matter is never kept.
//!
//! ```text
//! all objects, as the first events of a watch ──> Restart, Set…, Complete ──> Set, Delete, … ──> ended: from where it was
//! ```
//!
//! One watch per kind, and one line at a time: a list of ten thousand pods is never in memory. A server that cannot begin
//! a watch with all objects (upstream's on an etcd before 3.5) is asked for them page by page.

use crate::scheduler::{Event, Kind, Object};
use crate::wire;
use futures::AsyncBufReadExt;
use kube::Client;
use kube::api::{ListMeta, ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";
/// The server ends a watch after this long, so that a connection that died unnoticed is replaced.
const WATCH_SECONDS: u32 = 290;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// How many objects a page has.
const PAGE: u32 = 500;

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

/// One page of a list.
#[derive(Deserialize)]
struct Page {
    metadata: ListMeta,
    items: Vec<serde_json::Value>,
}

/// How far a kind is known.
#[derive(Default)]
struct Position {
    /// Watched up to here; `None`: nothing is known.
    version: Option<String>,
    /// The server does not begin watches with all objects.
    lists: bool,
}

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("nobody listens any more")]
    Unheard,
    #[error("the server refuses: {} ({})", .0.message, .0.code)]
    Refused(Box<Status>),
    #[error("it ended before all objects were told")]
    Incomplete,
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
    let mut position = Position::default();
    let watching = async {
        loop {
            let at = &mut position;
            let ended = match kind {
                Kind::Pod => follow(&client, kind, path, at, &events, pod, |p| &p.metadata).await,
                Kind::Node => follow(&client, kind, path, at, &events, node, |n| &n.metadata).await,
                Kind::Namespace => {
                    follow(&client, kind, path, at, &events, Object::Namespace, |n| &n.metadata).await
                }
                Kind::Claim => follow(&client, kind, path, at, &events, Object::Claim, |c| &c.metadata).await,
                Kind::Volume => follow(&client, kind, path, at, &events, volume, |v| &v.metadata).await,
                Kind::StorageClass => {
                    follow(&client, kind, path, at, &events, Object::StorageClass, |c| &c.metadata).await
                }
                Kind::CsiNode => {
                    follow(&client, kind, path, at, &events, Object::CsiNode, |n| &n.metadata).await
                }
                _ => {
                    let object = |selecting| Object::Selecting(kind, selecting);
                    follow(&client, kind, path, at, &events, object, |s: &wire::Selecting| &s.metadata).await
                }
            };
            match ended {
                Ok(()) => {}
                Err(Ended::Unheard) => return,
                Err(error) => {
                    tracing::debug!(
                        kind = kind.name(),
                        error = &error as &dyn std::error::Error,
                        "a watch ended"
                    );
                    if !position.is_now_otherwise(&error) {
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                }
            }
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.cancelled() => {}
    }
}

impl Position {
    /// Whether an error says what to ask instead, at once.
    fn is_now_otherwise(&mut self, error: &Ended) -> bool {
        let (Ended::Refused(refusal) | Ended::Request(kube::Error::Api(refusal))) = error else {
            return false;
        };
        match (&self.version, refusal.code) {
            (Some(_), _) if client::must_list(refusal) => {
                self.version = None;
                true
            }
            // Nobody may ask, or nobody can answer now; anything else is about what was asked.
            (None, 401 | 403 | 404 | 429 | 503 | 504) => false,
            (None, _) if !self.lists => {
                self.lists = true;
                true
            }
            _ => false,
        }
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
    position: &mut Position,
    events: &mpsc::Sender<Event>,
    object: impl Fn(T) -> Object,
    meta: impl Fn(&T) -> &wire::Meta,
) -> Result<(), Ended> {
    if position.lists && position.version.is_none() {
        position.version = Some(list(client, kind, path, events, &object).await?);
    }
    let version = &mut position.version;
    let params = WatchParams {
        field_selector: selector(kind),
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
            // What was told is not all there is, and the next watch begins anew.
            return if is_complete { Ok(()) } else { Err(Ended::Incomplete) };
        }
        // An object that is not understood must not stop the rest.
        let parsed: Line<T> = match serde_json::from_slice(&line) {
            Ok(parsed) => parsed,
            Err(error) if error.is_eof() => return Err(error.into()),
            Err(error) => {
                if let Some(refusal) = refusal(&line) {
                    return Err(Ended::Refused(refusal));
                }
                tracing::warn!(kind = kind.name(), %error, "an object was not understood");
                continue;
            }
        };
        if let Some(refusal) = (parsed.change == "ERROR").then(|| refusal(&line)).flatten() {
            return Err(Ended::Refused(refusal));
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

/// Tells all objects, page by page. Gives back the version they are of.
async fn list<T: DeserializeOwned>(
    client: &Client,
    kind: Kind,
    path: &str,
    events: &mpsc::Sender<Event>,
    object: impl Fn(T) -> Object,
) -> Result<String, Ended> {
    let send = async |event| events.send(event).await.map_err(|_| Ended::Unheard);
    let mut params =
        ListParams { field_selector: selector(kind), limit: Some(PAGE), ..ListParams::default() };
    send(Event::Restart(kind)).await?;
    loop {
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page = client.request(request).await?;
        for item in page.items {
            match serde_json::from_value(item) {
                Ok(item) => send(Event::Set(object(item))).await?,
                Err(error) => tracing::warn!(kind = kind.name(), %error, "an object was not understood"),
            }
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            send(Event::Complete(kind)).await?;
            return Ok(page.metadata.resource_version.unwrap_or_default());
        }
    }
}

fn selector(kind: Kind) -> Option<String> {
    (kind == Kind::Pod).then(|| LIVING.to_owned())
}

/// What a line says that is an error.
fn refusal(line: &[u8]) -> Option<Box<Status>> {
    let line: Line<Box<Status>> = serde_json::from_slice(line).ok()?;
    (line.change == "ERROR").then_some(line.object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that answers each request by its path, one connection at a time.
    async fn serve(listener: TcpListener, answer: fn(&str) -> String) {
        loop {
            let (mut connection, _) = listener.accept().await.expect("a connection");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(connection.read_u8().await.expect("a request"));
            }
            let request = String::from_utf8(request).expect("text");
            let path = request.split(' ').nth(1).expect("a path");
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
            let text = format!("{head}{}", answer(path));
            connection.write_all(text.as_bytes()).await.expect("an answer");
        }
    }

    /// What is told of nodes, up to the change after all of them, by a server that answers so.
    async fn told_by(answer: fn(&str) -> String) -> Vec<String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = tokio::spawn(serve(listener, answer));
        let url = format!("http://{address}").parse().expect("a URL");
        let client = Client::try_from(kube::Config::new(url)).expect("a client");
        let (events, mut told) = mpsc::channel(16);
        let shutdown = CancellationToken::new();
        let watching = tokio::spawn(watch(client, Kind::Node, "/api/v1/nodes", events, shutdown.clone()));
        let mut seen = Vec::new();
        while seen.last().is_none_or(|last| last != "last") {
            seen.push(match told.recv().await.expect("an event") {
                Event::Restart(_) => "restart".to_owned(),
                Event::Complete(_) => "complete".to_owned(),
                Event::Set(Object::Node(node)) => node.metadata.name.clone(),
                _ => "something else".to_owned(),
            });
        }
        shutdown.cancel();
        watching.await.expect("it ends");
        server.abort();
        seen
    }

    /// Upstream's apiserver on an etcd before 3.5 answers so.
    #[tokio::test]
    async fn a_server_that_does_not_stream_lists_is_asked_for_pages() {
        let told = told_by(|path| {
            let node =
                |name: &str| format!("{{\"metadata\":{{\"name\":\"{name}\",\"resourceVersion\":\"8\"}}}}");
            let list = |token: &str, name: &str| {
                format!(
                    "{{\"metadata\":{{\"resourceVersion\":\"7\",\"continue\":\"{token}\"}},\"items\":[{}]}}",
                    node(name)
                )
            };
            match path {
                _ if path.contains("sendInitialEvents=true") => {
                    let status = "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"code\":500}";
                    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")
                }
                _ if path.contains("watch=true") && path.contains("resourceVersion=7") => {
                    format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", node("last"))
                }
                _ if path.contains("continue=more") => list("", "b"),
                _ => list("more", "a"),
            }
        });
        assert_eq!(told.await, ["restart", "restart", "a", "b", "complete", "last"]);
    }
}
