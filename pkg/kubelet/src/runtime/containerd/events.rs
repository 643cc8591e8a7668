//! What happens, as it happens: containerd's own events. Nothing is asked for again and again.
//!
//! The stream also does what an end makes necessary: it is written down, and mounts and control group are given back.
//! And it keeps the logger: should that be killed, another is started and given all streams again.

use super::super::{Event, PodRef};
use super::Engine;
use super::logger::Answered;
use super::record::{self, ContainerRecord, KIND_LABEL, SandboxRecord, is_sandbox};
use containerd_client::events::{TaskExit, TaskOom};
use containerd_client::services::v1 as api;
use containerd_client::tonic::Streaming;
use containerd_client::types::Envelope;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;

/// Our own event, by which we learn that a subscription has begun.
const READY: &str = "/minik8s/ready";
/// How often it is sent until it comes.
const READY_AGAIN: Duration = Duration::from_millis(10);
/// How soon, and how late, we look for containerd while it is away.
const AWAY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The last lines of a container are in its log within this time, or it has processes that still write.
const DRAINED: Duration = Duration::from_millis(200);
/// More ends than this at a time wait for each other.
const MOST_AT_ONCE: usize = 128;

/// What goes on besides listening ends with whom it is about, if somebody must be told.
type Done = Option<(PodRef, Option<api::Container>)>;

struct Events {
    engine: Arc<Engine>,
    subscription: Option<Streaming<Envelope>>,
    logger: Option<Answered>,
    /// Goes on whether or not anybody listens: an answer that is not read to its end takes room of the one connection,
    /// until there is none for anybody's.
    work: JoinSet<Done>,
    pause: Duration,
}

/// The stream, which never ends.
pub(super) fn stream(engine: Arc<Engine>) -> BoxStream<'static, Event> {
    let events = Events { engine, subscription: None, logger: None, work: JoinSet::new(), pause: AWAY.0 };
    futures::stream::unfold(events, |mut events| async {
        let event = events.next().await;
        Some((event, events))
    })
    .boxed()
}

impl Events {
    async fn next(&mut self) -> Event {
        loop {
            let Some(subscription) = &mut self.subscription else {
                match subscribe(&self.engine).await {
                    Some(subscription) => {
                        self.subscription = Some(subscription);
                        self.pause = AWAY.0;
                        self.work.spawn(catch_up(self.engine.clone()));
                        return Event::Lost;
                    }
                    None => {
                        tokio::time::sleep(self.pause).await;
                        self.pause = (self.pause * 2).min(AWAY.1);
                        continue;
                    }
                }
            };
            let has_room = self.work.len() < MOST_AT_ONCE;
            tokio::select! {
                Some(done) = self.work.join_next() => {
                    if let Ok(Some((pod, container))) = done {
                        if let Some(container) = container {
                            self.work.spawn(settle(self.engine.clone(), container));
                        }
                        return Event::Changed(pod);
                    }
                }
                message = subscription.message(), if has_room => match message {
                    Ok(Some(envelope)) => {
                        if let Some(event) = self.take(&envelope) {
                            return event;
                        }
                    }
                    ended => {
                        tracing::warn!(?ended, "containerd's events ended; waiting for it");
                        self.subscription = None;
                    }
                },
                () = held(&self.engine, &mut self.logger) => {
                    self.logger = None;
                    self.work.spawn(catch_up(self.engine.clone()));
                }
            }
        }
    }

    fn take(&mut self, envelope: &Envelope) -> Option<Event> {
        let mut event = envelope.event.clone()?;
        if envelope.topic.starts_with("/images/") {
            return Some(Event::Images);
        }
        // containerd leaves out the slash that the library looks for.
        event.type_url = format!("/{}", event.type_url);
        let id = match envelope.topic.as_str() {
            "/tasks/exit" => {
                let exit: TaskExit = event.to_msg().ok()?;
                // What was executed in a container has an id of its own.
                (exit.id == exit.container_id).then_some(exit.container_id)
            }
            "/tasks/oom" => event.to_msg::<TaskOom>().ok().map(|oom| oom.container_id),
            _ => None,
        }?;
        let is_exit = envelope.topic == "/tasks/exit";
        self.work.spawn(changed(self.engine.clone(), id, is_exit));
        None
    }
}

/// Returns when the logger has ended; until then it is held.
async fn held(engine: &Engine, logger: &mut Option<Answered>) {
    loop {
        if let Some(connection) = logger {
            // It says nothing more: all that comes is the end.
            let _ = connection.read_u8().await;
            return;
        }
        match engine.logger.hold().await {
            Ok(connection) => *logger = Some(connection),
            Err(error) => {
                tracing::warn!(%error, "no logger");
                tokio::time::sleep(AWAY.1).await;
            }
        }
    }
}

/// Subscribes, and returns when it is certain that no event is missed from now on.
async fn subscribe(engine: &Engine) -> Option<Streaming<Envelope>> {
    let namespace = &engine.config.namespace;
    let topics = ["topic==\"/tasks/exit\"", "topic==\"/tasks/oom\"", "topic~=\"^/images/\""];
    let mut filters: Vec<String> =
        topics.iter().map(|topic| format!("namespace==\"{namespace}\",{topic}")).collect();
    filters.push(format!("namespace==\"{namespace}\",topic==\"{READY}\""));
    let mut client = engine.connection.events();
    let mut subscribing = std::pin::pin!(client.subscribe(api::SubscribeRequest { filters }));
    // containerd says nothing before the first event; so there is one.
    let mut publisher = engine.connection.events();
    loop {
        let mut ready = api::PublishRequest { topic: READY.to_owned(), ..Default::default() };
        ready.event.get_or_insert_default().type_url = "minik8s.io/ready".to_owned();
        let publish = async {
            let published = publisher.publish(ready).await;
            tokio::time::sleep(READY_AGAIN).await;
            published.is_ok()
        };
        tokio::select! {
            biased;
            subscribed = &mut subscribing => return subscribed.ok().map(|response| response.into_inner()),
            is_published = publish => if !is_published { return None },
        }
    }
}

/// Something happened to a container: says whose it is, when its last lines are in its log.
async fn changed(engine: Arc<Engine>, id: String, is_exit: bool) -> Option<(PodRef, Option<api::Container>)> {
    let container = engine.container(&id).await.ok()??;
    if is_sandbox(&container) {
        return Some((record::read::<SandboxRecord>(&container)?.pod, None));
    }
    let record: ContainerRecord = record::read(&container)?;
    if !is_exit {
        return Some((record.pod, None));
    }
    if engine.io_folder(&id).exists() {
        // Whatever comes later is written as well.
        let _ = tokio::time::timeout(DRAINED, engine.logger.ask(&["drain", &id])).await;
    }
    Some((record.pod, Some(container)))
}

async fn settle(engine: Arc<Engine>, container: api::Container) -> Option<(PodRef, Option<api::Container>)> {
    if let Err(error) = engine.settle(&container).await {
        // It is done again when the container is removed, or when we start again.
        tracing::debug!(container = container.id, %error, "not settled");
    }
    None
}

/// Does for all containers what events would have made us do while we were away.
async fn catch_up(engine: Arc<Engine>) -> Option<(PodRef, Option<api::Container>)> {
    let containers = engine.containers(format!("labels.\"{KIND_LABEL}\"")).await.ok()?;
    for container in containers.iter().filter(|container| record::exit(container).is_none()) {
        let Some(record) = record::read::<ContainerRecord>(container) else { continue };
        if let Err(error) = engine.settle(container).await {
            tracing::debug!(container = container.id, %error, "not settled");
        }
        // Those that run go on writing; the others have nothing more to write.
        if engine.io_folder(&container.id).exists()
            && let Err(error) = engine.open_log(&container.id, &record).await
        {
            tracing::warn!(container = container.id, %error, "its log is not written");
        }
    }
    engine.remove_orphaned_roots(&containers, Duration::ZERO).await;
    None
}
