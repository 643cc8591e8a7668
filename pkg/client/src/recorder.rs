//! Events: what happened to an object, for people to read. Nobody waits for them, and nothing depends on them.
//!
//! ```text
//! event(…) ──by object──> one of a few lanes: bounded queue ──> Correlator ──> create or count, one request at a time
//! ```
//!
//! [`Recorder::event`] returns at once. What is told of an object is sent in order, since it stays in one lane; lanes do not
//! wait for each other. A note that finds its queue full is dropped and counted.

use crate::correlate::{Correlator, Note, Verdict};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// So many requests are under way at once.
const LANES: usize = 8;
/// So many notes wait in each lane: a few seconds of bindings at full speed, and some megabytes at most.
const QUEUE: usize = 2048;
/// A longer message is refused by the apiserver.
const LONGEST_MESSAGE: usize = 1024;
/// What is still in the queue when the program ends has so long.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Whether an event is worth worrying about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// For information.
    Normal,
    /// Something is not right.
    Warning,
}

impl EventType {
    fn name(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// Takes events. Clones share the queue.
#[derive(Clone)]
pub struct Recorder {
    component: &'static str,
    lanes: Arc<[mpsc::Sender<Note>]>,
    dropped: Arc<AtomicU64>,
}

impl Recorder {
    /// A recorder, and the task that sends what it takes, until the token is cancelled.
    pub fn new(
        client: Client,
        component: &'static str,
        host: String,
        shutdown: CancellationToken,
    ) -> (Recorder, impl Future<Output = ()> + Send + 'static) {
        let dropped = Arc::new(AtomicU64::new(0));
        let lane = |_| {
            let (lane, notes) = mpsc::channel(QUEUE);
            let sender = Sender {
                client: client.clone(),
                host: host.clone(),
                dropped: dropped.clone(),
                correlator: Correlator::default(),
            };
            (lane, sender.run(notes, shutdown.clone()))
        };
        let (lanes, sending): (Vec<_>, Vec<_>) = (0..LANES).map(lane).unzip();
        let recorder = Recorder { component, lanes: lanes.into(), dropped };
        (recorder, async { drop(join_all(sending).await) })
    }

    /// The same, in the name of another component.
    pub fn named(&self, component: &'static str) -> Recorder {
        Recorder { component, ..self.clone() }
    }

    /// Tells that something happened to an object.
    pub fn event(
        &self,
        regarding: ObjectReference,
        event_type: EventType,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) {
        let mut message = message.into();
        if message.len() > LONGEST_MESSAGE {
            let end = (0..=LONGEST_MESSAGE).rev().find(|end| message.is_char_boundary(*end));
            message.truncate(end.unwrap_or(0));
        }
        let note = Note {
            component: self.component,
            regarding,
            event_type: event_type.name(),
            reason: reason.into(),
            message,
            at: Timestamp::now(),
        };
        if self.lane(&note.regarding).try_send(note).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many events were not sent; it goes on counting.
    pub fn dropped(&self) -> Arc<AtomicU64> {
        self.dropped.clone()
    }

    fn lane(&self, object: &ObjectReference) -> &mpsc::Sender<Note> {
        let mut hasher = DefaultHasher::new();
        (&object.kind, &object.namespace, &object.name).hash(&mut hasher);
        let number = hasher.finish() % LANES as u64;
        &self.lanes[usize::try_from(number).unwrap_or(0)]
    }
}

/// What an event of a node's own programs is about. As upstream's: the uid of a node in such events is its name.
pub fn node_reference(node: &str) -> ObjectReference {
    let (kind, name) = (Some("Node".to_owned()), Some(node.to_owned()));
    ObjectReference { kind, uid: name.clone(), name, ..ObjectReference::default() }
}

/// Refers to an object, as events do.
pub fn reference<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: object.meta().name.clone(),
        namespace: object.namespace(),
        uid: object.uid(),
        resource_version: object.resource_version(),
        field_path: None,
    }
}

struct Sender {
    client: Client,
    host: String,
    dropped: Arc<AtomicU64>,
    correlator: Correlator,
}

impl Sender {
    async fn run(mut self, mut notes: mpsc::Receiver<Note>, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                note = notes.recv() => match note {
                    Some(note) => self.send(&note).await,
                    None => return,
                },
                () = shutdown.cancelled() => break,
            }
        }
        let rest = async {
            while let Ok(note) = notes.try_recv() {
                self.send(&note).await;
            }
        };
        // What is not sent by then is lost, as it is when a machine fails.
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    }

    async fn send(&mut self, note: &Note) {
        let verdict = self.correlator.observe(note);
        let namespace = note.regarding.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let sent = match &verdict {
            Verdict::Drop => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Verdict::Create { name, message } => self.create(&events, note, name, message, 1, note.at).await,
            Verdict::Count { name, message, count, first } => {
                let patch = json!({"count": count, "message": message, "lastTimestamp": Time(note.at)});
                match events.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                    // It has expired.
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        self.create(&events, note, name, message, *count, *first).await
                    }
                    sent => sent.map(drop),
                }
            }
        };
        if let Err(error) = sent {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, reason = note.reason, "an event was not sent");
        }
    }

    async fn create(
        &self,
        events: &Api<Event>,
        note: &Note,
        name: &str,
        message: &str,
        count: i32,
        first: Timestamp,
    ) -> kube::Result<()> {
        let namespace = note.regarding.namespace.clone().unwrap_or_else(|| "default".into());
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace),
                ..ObjectMeta::default()
            },
            involved_object: note.regarding.clone(),
            type_: Some(note.event_type.to_owned()),
            reason: Some(note.reason.clone()),
            message: Some(message.to_owned()),
            source: Some(EventSource {
                component: Some(note.component.to_owned()),
                host: (!self.host.is_empty()).then(|| self.host.clone()),
            }),
            reporting_component: Some(note.component.to_owned()),
            reporting_instance: Some(self.host.clone()),
            first_timestamp: Some(Time(first)),
            last_timestamp: Some(Time(note.at)),
            count: Some(count),
            ..Event::default()
        };
        events.create(&PostParams::default(), &event).await.map(drop)
    }
}
