//! `/containerLogs`: what a container wrote, from its file in CRI format, or from wherever its pod runs.
//!
//! ```text
//! options ─ status ─> which file ─ tail ─> where to begin ─ lines ─> filter ─> client
//!                                              ▲ inotify, container events │
//!                                              └───────── follow ──────────┘
//! ```

mod filter;
mod follow;
mod options;
mod stream;
mod tail;

use super::Server;
use super::answer::{self, Answer, Refusal};
use super::pods;
use super::route::{PodPath, Query};
use crate::provider::{Log, LogRequest, PodProvider};
use crate::runtime::Error;
use bytes::Bytes;
use filter::Filter;
use futures::Stream;
use futures::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
pub use options::{Options, Since};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Pieces on their way to the client.
const PIECES: usize = 8;

/// Answers with a container's log.
pub async fn handle(server: &Arc<Server>, path: &PodPath, query: &Query) -> Result<Answer, Refusal> {
    let options = Options::parse(query)?;
    let pod = pods::named(server, &path.namespace, &path.pod);
    let pod = pod.ok_or_else(|| (StatusCode::NOT_FOUND, format!("pod {:?} does not exist", path.pod)))?;
    let (receiver, copying) = open(&server.provider, &pod, &path.container, &options).await?;
    let shutdown = server.shutdown.clone();
    server.streams.spawn(async move {
        tokio::select! { () = copying => {}, () = shutdown.cancelled() => {} }
    });
    Ok(answer::stream(receiver))
}

/// A container's log for whoever is not the node's API, as far as its end, or as long as somebody takes it.
pub async fn container_log(
    provider: &Arc<dyn PodProvider>,
    pod: &Pod,
    container: &str,
    options: Options,
) -> Result<impl Stream<Item = std::io::Result<Bytes>> + Send + use<>, Refusal> {
    let (receiver, copying) = open(provider, pod, container, &options).await?;
    let copying = AbortOnDropHandle::new(tokio::spawn(copying));
    Ok(futures::stream::unfold((receiver, copying), |(mut receiver, copying)| async {
        let piece = receiver.recv().await?;
        Some((Ok(piece), (receiver, copying)))
    }))
}

/// Where a log comes out, and what brings it there.
type Opened = (mpsc::Receiver<Bytes>, BoxFuture<'static, ()>);

async fn open(
    provider: &Arc<dyn PodProvider>,
    pod: &Pod,
    container: &str,
    options: &Options,
) -> Result<Opened, Refusal> {
    if !has_container(pod, container) {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        return Err((StatusCode::NOT_FOUND, format!("container {container:?} not found in pod {name:?}")));
    }
    let id = choose(pod, container, options.previous).map_err(|why| (StatusCode::BAD_REQUEST, why))?;
    let asked = LogRequest { follow: options.follow, tail_lines: options.tail_lines };
    let log = provider.logs(&pods::reference(pod), &id, asked).await.map_err(|error| match error {
        Error::NotFound(_) => unreadable(&id),
        other => pods::failed(&other),
    })?;
    let (pieces, receiver) = mpsc::channel(PIECES);
    let filter = Filter::new(options, Timestamp::now());
    let follow = options.follow;
    let copying: BoxFuture<'static, std::io::Result<()>> = match log {
        Log::Stream(lines) => {
            let pieces = pieces.clone();
            Box::pin(async move { stream::copy(lines, filter, &pieces).await })
        }
        Log::File(log) => {
            // A file that cannot be read is an answer of its own; what fails later only ends the stream.
            let reader = follow::Reader::open(&log.path, options.tail_lines).await.map_err(|error| {
                tracing::warn!(%error, container = id, path = %log.path.display(), "cannot read a log");
                unreadable(&id)
            })?;
            let pieces = pieces.clone();
            Box::pin(async move { follow::copy(log, reader, filter, follow, &pieces).await })
        }
    };
    let copying = async move {
        tokio::select! {
            ended = copying => {
                if let Err(error) = ended {
                    tracing::warn!(%error, "a log ended early");
                }
            }
            () = pieces.closed() => {}
        }
    };
    Ok((receiver, Box::pin(copying)))
}

fn unreadable(id: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("unable to retrieve container logs for containerd://{id}"))
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
        .any(|container| container.name == name)
        || spec.ephemeral_containers.iter().flatten().any(|container| container.name == name)
}

/// The container whose log is meant: the one that runs, the one that ended, or the one before.
fn choose(pod: &Pod, name: &str, previous: bool) -> Result<String, String> {
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    let about = |what: &str| format!("container {name:?} in pod {pod_name:?} is {what}");
    let Some(status) = pods::statuses(pod).find(|status| status.name == name) else {
        return Err(about("not available"));
    };
    let state = status.state.clone().unwrap_or_default();
    let last = status.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    let last = last.map(|last| last.container_id.clone().unwrap_or_default());
    let is_known = |id: &String| !id.is_empty();
    let found = if previous {
        let missing = || format!("previous terminated container {name:?} in pod {pod_name:?} not found");
        last.filter(is_known).ok_or_else(missing)?
    } else if state.running.is_some() {
        own_id(status)
    } else if let Some(terminated) = state.terminated {
        let own = terminated.container_id.filter(is_known);
        own.or(last.filter(is_known)).ok_or_else(|| about("terminated"))?
    } else if let Some(last) = last {
        Some(last).filter(is_known).ok_or_else(|| about("terminated"))?
    } else if let Some(waiting) = state.waiting {
        return Err(about(&match waiting.reason.as_deref().unwrap_or_default() {
            "ErrImagePull" => "waiting to start: image can't be pulled".to_owned(),
            "ImagePullBackOff" => "waiting to start: trying and failing to pull image".to_owned(),
            reason => format!("waiting to start: {reason}"),
        }));
    } else {
        return Err(about("waiting to start - no logs yet"));
    };
    Ok(found.rsplit("://").next().unwrap_or_default().to_owned())
}

fn own_id(status: &ContainerStatus) -> String {
    status.container_id.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(state: Value, last: Value, previous: bool, expected: Result<&str, &str>) {
        let pod = json!({
            "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]},
            "status": {"containerStatuses": [{
                "name": "c", "image": "", "imageID": "", "ready": true, "restartCount": 0,
                "containerID": "containerd://now", "state": state, "lastState": last,
            }]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let found = choose(&pod, "c", previous);
        assert_eq!(found.as_deref().map_err(String::as_str), expected);
    }

    #[test]
    fn the_log_is_that_of_the_container_that_the_status_names() {
        let ended = |id: &str| json!({"terminated": {"exitCode": 1, "containerID": id}});
        check(json!({"running": {}}), json!({}), false, Ok("now"));
        check(json!({"running": {}}), ended("containerd://before"), true, Ok("before"));
        check(
            json!({"running": {}}),
            json!({}),
            true,
            Err("previous terminated container \"c\" in pod \"p\" not found"),
        );
        check(ended("containerd://then"), json!({}), false, Ok("then"));
        check(ended(""), ended("containerd://before"), false, Ok("before"));
        check(ended(""), json!({}), false, Err("container \"c\" in pod \"p\" is terminated"));
        check(
            json!({"waiting": {"reason": "CrashLoopBackOff"}}),
            ended("containerd://before"),
            false,
            Ok("before"),
        );
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        check(
            waiting("ContainerCreating"),
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: ContainerCreating"),
        );
        check(
            waiting("ErrImagePull"),
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start: image can't be pulled"),
        );
        check(
            json!({}),
            json!({}),
            false,
            Err("container \"c\" in pod \"p\" is waiting to start - no logs yet"),
        );
    }
}
