//! Watches: objects become events, and what does not matter of them is never kept.
//!
//! ```text
//! list, in pages ──> Restart, Set…, Complete ──> changes, over HTTP or Redis ──> Set, Delete, …
//! ```
//!
//! One informer per kind, of objects of which only what matters is decoded: a list of ten thousand pods is never in memory.

use crate::scheduler::{Event, Kind, Object};
use crate::wire;
use client::{Informers, Question, Version};
use futures::StreamExt;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

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

/// Watches one kind until the token is cancelled.
pub(crate) async fn watch(
    informers: Informers,
    kind: Kind,
    path: &'static str,
    events: mpsc::Sender<Event>,
    shutdown: CancellationToken,
) {
    let subject = Subject { informers, kind, path, events };
    let watching = async {
        match kind {
            Kind::Pod => subject.follow(|pod: wire::Pod| Object::Pod(Box::new(pod))).await,
            Kind::Node => subject.follow(|node: wire::Node| Object::Node(Box::new(node))).await,
            Kind::Namespace => subject.follow(Object::Namespace).await,
            Kind::Claim => subject.follow(Object::Claim).await,
            Kind::Volume => subject.follow(|volume| Object::Volume(Box::new(volume))).await,
            Kind::StorageClass => subject.follow(Object::StorageClass).await,
            Kind::CsiNode => subject.follow(Object::CsiNode).await,
            _ => subject.follow(|selecting| Object::Selecting(kind, selecting)).await,
        }
    };
    tokio::select! {
        () = watching => {}
        () = shutdown.cancelled() => {}
    }
}

/// What is watched, and who is told.
struct Subject {
    informers: Informers,
    kind: Kind,
    path: &'static str,
    events: mpsc::Sender<Event>,
}

impl Subject {
    /// Follows the objects until nobody listens any more.
    async fn follow<T>(&self, object: impl Fn(T) -> Object)
    where
        T: DeserializeOwned + wire::HasMeta + Send + 'static,
    {
        let question = Question {
            path: self.path.to_owned(),
            fields: (self.kind == Kind::Pod).then(|| LIVING.to_owned()),
            ..Question::default()
        };
        let version: Version<T> = |object| Some(object.meta().resource_version.as_str());
        let mut changes = std::pin::pin!(self.informers.slim(question, version));
        while let Some(change) = changes.next().await {
            let event = match change {
                Ok(watcher::Event::Init) => Event::Restart(self.kind),
                Ok(watcher::Event::InitApply(new) | watcher::Event::Apply(new)) => Event::Set(object(new)),
                Ok(watcher::Event::InitDone) => Event::Complete(self.kind),
                Ok(watcher::Event::Delete(gone)) => {
                    let of = gone.meta();
                    Event::Delete(self.kind, of.namespace.clone(), of.name.clone())
                }
                Err(_) => continue,
            };
            if self.events.send(event).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::Client;
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
        let informers = Informers::new(client, shutdown.clone());
        let watching = tokio::spawn(watch(informers, Kind::Node, "/api/v1/nodes", events, shutdown.clone()));
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

    #[tokio::test]
    async fn a_list_comes_in_pages_and_is_gone_on_from() {
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
                _ if path.contains("watch=true") && path.contains("resourceVersion=7") => {
                    format!("{{\"type\":\"ADDED\",\"object\":{}}}\n", node("last"))
                }
                _ if path.contains("continue=more") => list("", "b"),
                _ => list("more", "a"),
            }
        });
        assert_eq!(told.await, ["restart", "a", "b", "complete", "last"]);
    }
}
