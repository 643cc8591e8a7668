//! The pods that the apiserver has for this node.

use super::Told;
use client::Informers;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Follows them until the token is cancelled.
pub(crate) async fn run(
    informers: Informers,
    node: String,
    tell: mpsc::Sender<Told>,
    shutdown: CancellationToken,
) {
    let pods: Api<Pod> = Api::all(informers.client().clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let stream = informers.events(pods, &config);
    let mut stream = std::pin::pin!(stream);
    let mut listing = Vec::new();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            () = shutdown.cancelled() => return,
        };
        let told = match event {
            None => return,
            Some(watcher::Event::Init) => {
                listing.clear();
                continue;
            }
            Some(watcher::Event::InitApply(pod)) => {
                listing.push(Arc::new(slim(pod)));
                continue;
            }
            Some(watcher::Event::InitDone) => Told::Listed(std::mem::take(&mut listing)),
            Some(watcher::Event::Apply(pod)) => Told::Applied(Arc::new(slim(pod))),
            Some(watcher::Event::Delete(pod)) => Told::Deleted(Arc::new(slim(pod))),
        };
        if tell.send(told).await.is_err() {
            return;
        }
    }
}

/// Without what the kubelet never looks at.
fn slim(mut pod: Pod) -> Pod {
    pod.metadata.managed_fields = None;
    pod
}
