//! A virtual node: its pods run behind an interLink API, of whichever generation.
//!
//! ```text
//! kubelet ── create, update, delete ──> Table ──> work ──> POST /create, DELETE /delete ──┐
//!         <── changes ── statuses <── Asking ──> GET /status, every 5 s ─────────────────├──> interLink API
//!         <── describe ── Link ──> /pinglink or /ping, every 10 s ── size, taints ───────┘
//! ```
//!
//! What is decided is in [`table`], [`status`] and [`crate::asking`]; here it is carried out.

mod credential;
mod link;
mod start;
mod status;
mod table;
mod work;

pub use start::{NodeOptions, run};

use crate::asking::Asking;
use crate::caller::Caller;
use crate::wire::{LogOptions, LogRange, LogRequest as WireLog};
use async_trait::async_trait;
use bytes::Bytes;
use client::{EventType, Recorder};
use credential::Handover;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::Method;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::Client;
use kubelet::host::Capacity;
use kubelet::local::Outbox;
use kubelet::node::{Machine, Pressure};
use kubelet::provider::{Change, Described, Log, LogRequest, PodProvider, Running};
use kubelet::runtime::{Error, ExecSpec, PodRef, Session};
use link::Link;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use table::{Stage, Table};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Until a log begins.
const LOG: Duration = Duration::from_secs(30);
/// A line without an end grows no further.
const LONGEST_LINE: usize = 1 << 20;

/// The node.
pub struct VirtualNode {
    name: String,
    /// The address by which the node's own API is reached.
    address: String,
    api: Caller,
    client: Client,
    recorder: Recorder,
    handover: Option<Handover>,
    /// Its size, unless the other side tells.
    size: Capacity,
    link: Link,
    table: Mutex<Table>,
    asking: Mutex<Asking>,
    outbox: Arc<Outbox>,
    wake: Notify,
    /// All pods that there were at the start have been named.
    is_settled: RwLock<bool>,
    /// The Node as it is in the API.
    seen: RwLock<Option<Arc<Node>>>,
}

impl VirtualNode {
    fn event(&self, pod: &Pod, kind: EventType, reason: &str, message: &str) {
        self.recorder.event(client::reference(pod), kind, reason, message);
    }

    /// Tells the kubelet how a pod is now.
    fn tell(&self, uid: &str, finished: bool) {
        let told = self.table.lock().get(uid).map(|entry| (entry.pod.clone(), entry.status.clone()));
        if let Some((pod, status)) = told {
            self.outbox.put(Change::Status { pod, status: Box::new(status), finished });
        }
    }
}

fn uid_of(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

#[async_trait]
impl PodProvider for VirtualNode {
    async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let all = async {
            tokio::join!(link::keep(self.clone()), work::keep(self.clone()), work::ask(self.clone()));
        };
        tokio::select! { () = all => {}, () = shutdown.cancelled() => {} }
    }

    fn create(&self, pod: Arc<Pod>) {
        let uid = uid_of(&pod);
        let maybe = !*self.is_settled.read();
        let stage = {
            let mut table = self.table.lock();
            table.insert(&uid, pod, maybe);
            table.get(&uid).map(|entry| entry.stage)
        };
        if stage == Some(Stage::Given) {
            self.asking.lock().want(&uid);
        }
        self.wake.notify_waiters();
    }

    fn update(&self, pod: Arc<Pod>) {
        self.table.lock().update(&uid_of(&pod), pod);
        self.wake.notify_waiters();
    }

    fn delete(&self, pod: Arc<Pod>) {
        let uid = uid_of(&pod);
        if self.table.lock().gone(&uid) {
            self.outbox.put(Change::Gone(uid));
        }
        self.wake.notify_waiters();
    }

    /// Whatever else there is behind the API may be another node's.
    fn retain(&self, _uids: BTreeSet<String>) {
        *self.is_settled.write() = true;
    }

    fn list(&self) -> Vec<Arc<Pod>> {
        let table = self.table.lock();
        let uids: Vec<&String> = table.entries().map(|(uid, _)| uid).collect();
        uids.into_iter().filter_map(|uid| table.shown(uid)).collect()
    }

    fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.table.lock().shown(uid)
    }

    fn status(&self, uid: &str) -> Option<PodStatus> {
        self.table.lock().get(uid).map(|entry| entry.status.clone())
    }

    fn changes(&self) -> BoxStream<'static, Change> {
        let outbox = self.outbox.clone();
        futures::stream::unfold(outbox, |outbox| async { Some((outbox.clone().next().await, outbox)) })
            .boxed()
    }

    fn health(&self) -> Result<(), String> {
        Ok(())
    }

    async fn describe(&self) -> Described {
        let size = self.link.size(&self.size);
        Described {
            machine: Machine { os_image: "interLink".into(), ..Machine::default() },
            labels: BTreeMap::new(),
            capacity: size.clone(),
            allocatable: size,
            pressure: Pressure::default(),
            runtime: self.link.state().map(|()| "interlink://1".into()),
            network: Ok(()),
            handlers: BTreeMap::new(),
            images: Vec::new(),
        }
    }

    async fn node_seen(&self, node: Option<Arc<Node>>) {
        *self.seen.write() = node;
    }

    async fn logs(&self, pod: &PodRef, container_id: &str, asked: LogRequest) -> Result<Log, Error> {
        let (container, previous) = status::of_id(container_id);
        // To the protocol no lines are all lines.
        let is_none = asked.tail_lines == Some(0);
        if is_none && !asked.follow {
            return Ok(Log::Stream(futures::stream::empty().boxed()));
        }
        let range = LogRange {
            tail: asked.tail_lines.filter(|lines| *lines > 0),
            since_time: is_none.then(Timestamp::now),
            ..LogRange::default()
        };
        let mut opts = LogOptions::of(range);
        (opts.timestamps, opts.follow, opts.previous) = (true, asked.follow, previous);
        let request = WireLog {
            namespace: pod.namespace.clone(),
            pod_uid: pod.uid.clone(),
            pod_name: pod.name.clone(),
            container_name: container.to_owned(),
            opts,
        };
        let body = request.encode().to_string().into_bytes();
        let answer = self.api.stream("/getLogs", Method::GET, body, LOG).await;
        let answer = answer.map_err(|error| match error.code() {
            Some(404) => Error::NotFound(format!("log of container {container}: {error}")),
            _ => Error::Container(format!("log of container {container}: {error}")),
        })?;
        Ok(Log::Stream(in_cri_format(answer.into_data_stream()).boxed()))
    }

    async fn exec(&self, _pod: &PodRef, _container: &str, _spec: &ExecSpec) -> Result<Session, Error> {
        Err(Error::Container(
            "executing commands is not supported on this node: interLink's protocol has no request for it"
                .into(),
        ))
    }

    async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error> {
        let table = self.table.lock();
        let runs = table.entries().filter(|(_, entry)| entry.stage == Stage::Given).map(|(uid, entry)| {
            let meta = &entry.pod.metadata;
            let pod = PodRef {
                namespace: meta.namespace.clone().unwrap_or_default(),
                name: meta.name.clone().unwrap_or_default(),
                uid: uid.clone(),
            };
            let statuses = entry.status.container_statuses.iter().flatten();
            let running =
                statuses.filter(|it| it.state.as_ref().is_some_and(|state| state.running.is_some()));
            (pod, running.map(|it| (it.name.clone(), it.image.clone())).collect())
        });
        Ok(runs.collect())
    }
}

/// Lines of a log in the format that the kubelet's own have.
fn in_cri_format<E>(
    pieces: impl futures::Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> impl futures::Stream<Item = std::io::Result<Bytes>> + Send + 'static
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let state = (Box::pin(pieces), Vec::new(), false);
    futures::stream::unfold(state, |(mut pieces, mut rest, is_over)| async move {
        if is_over {
            return None;
        }
        match pieces.next().await {
            Some(Ok(piece)) => {
                let now = Timestamp::now();
                let mut said = Vec::new();
                for byte_line in piece.split_inclusive(|byte| *byte == b'\n') {
                    rest.extend_from_slice(byte_line);
                    if rest.ends_with(b"\n") || rest.len() > LONGEST_LINE {
                        cri_line(&rest, now, &mut said);
                        rest.clear();
                    }
                }
                Some((Ok(said.into()), (pieces, rest, false)))
            }
            Some(Err(error)) => Some((Err(std::io::Error::other(error)), (pieces, rest, true))),
            None if rest.is_empty() => None,
            None => {
                let mut said = Vec::new();
                cri_line(&rest, Timestamp::now(), &mut said);
                Some((Ok(said.into()), (pieces, Vec::new(), true)))
            }
        }
    })
}

/// `time stream tag text`. Who sends no time, though asked for it, wrote it now.
fn cri_line(line: &[u8], now: Timestamp, said: &mut Vec<u8>) {
    let is_whole = line.ends_with(b"\n");
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let space = text.iter().position(|byte| *byte == b' ').unwrap_or(text.len());
    let time = std::str::from_utf8(&text[..space]).ok().and_then(|text| text.parse::<Timestamp>().ok());
    let (time, text) = match time {
        Some(time) => (time, text.get(space + 1..).unwrap_or_default()),
        None => (now, text),
    };
    let tag = if is_whole { "F" } else { "P" };
    said.extend_from_slice(format!("{time:.9} stdout {tag} ").as_bytes());
    said.extend_from_slice(text);
    said.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_come_out_as_the_kubelet_reads_them() {
        let pieces = ["2026-01-01T00:00:00.5Z on", "e\nplain", "\n\n2026-01-01T00:00:01Z last"];
        let pieces = pieces.map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        let all: Vec<_> = in_cri_format(futures::stream::iter(pieces)).collect().await;
        let text: Vec<u8> = all.into_iter().flat_map(|piece| piece.unwrap().to_vec()).collect();
        let text = String::from_utf8(text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "2026-01-01T00:00:00.500000000Z stdout F one");
        assert!(lines[1].ends_with("stdout F plain"), "{text}");
        assert!(lines[2].ends_with("stdout F "), "{text}");
        assert_eq!(lines[3], "2026-01-01T00:00:01.000000000Z stdout P last");
    }
}
