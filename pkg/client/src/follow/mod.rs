//! The objects of a resource and their changes, over whichever transport: HTTP watches, and Redis where there is one.
//!
//! ```text
//! list ──> HTTP watch ──(a message is linked to what is known)──> Redis alone
//!   ^           ^                                                    │
//!   └── 410 ────┴── a gap, an overflow, Redis gone or silent ────────┘
//! ```
//!
//! # Guarantees
//! Whoever follows hears every object's changes in order and each once, and what is known in the end is what the API lists.
//! Redis is only believed where its word is linked to what is known ([`place`]); everything else is asked of the API, from the
//! last revision on, and as a list only where that is history.

mod bus;
mod http;
mod inbox;
mod metrics;
mod place;
mod question;

use self::http::{Broken, Said, Watch, revision_of};
use self::inbox::{Inbox, Signal};
use self::metrics::METRICS;
use self::place::{Heard, Missing, Place};
use self::question::Subject;
use crate::must_list;
use ::bus::{Message, MessageType};
use bytes::Bytes;
use futures::{Stream, stream};
use kube::Client;
use kube::runtime::watcher::{Error, Event, Result};
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub use self::bus::{Bus, RedisIdentity};
pub use self::metrics::render_transport;
pub use self::question::Question;

/// The resourceVersion of an object.
pub type Version<T> = fn(&T) -> Option<&str>;

/// Those who lose Redis together do not all ask at the same moment.
const SPREAD: Duration = Duration::from_millis(300);

/// All objects that are asked for, and then their changes, for ever. An error is told, and then it goes on; where what was
/// seen is no help any more, with [`Event::Init`] and a new list. Wait a while after an error before asking for more.
pub(crate) fn follow<T>(
    client: Client,
    question: Question,
    version: Version<T>,
    bus: Option<&Bus>,
) -> impl Stream<Item = Result<Event<T>>> + Send + use<T>
where
    T: DeserializeOwned + Send + 'static,
{
    let follower = Follower::new(client, question, version, bus);
    stream::unfold(follower, |mut follower| async move { Some((follower.next().await, follower)) })
}

/// One who follows.
struct Follower<T> {
    client: Client,
    question: Question,
    version: Version<T>,
    redis: Option<Redis>,
    stage: Stage,
    place: Place,
    ready: VecDeque<Event<T>>,
    /// Whether the watch under way is a short one: to learn how far the API is, where messages wait for that.
    is_short: bool,
    /// Whether it is counted among those that hear over Redis.
    transport: Transport,
}

/// What Redis tells of the question.
struct Redis {
    subject: Subject,
    inbox: Arc<Inbox>,
}

enum Stage {
    /// Nothing is known.
    Empty,
    /// Pages come; this is the next one's token.
    Listing(Option<String>),
    /// Changes come over HTTP, and over Redis as soon as its word is linked.
    Watching(Watch),
    /// Changes come over Redis alone.
    Hearing,
}

/// Counts an informer by its transport.
struct Transport {
    over_redis: bool,
}

/// What comes first.
enum Came {
    Said(std::result::Result<Said, Broken>),
    Heard(Signal),
}

impl<T: DeserializeOwned + Send + 'static> Follower<T> {
    fn new(client: Client, question: Question, version: Version<T>, bus: Option<&Bus>) -> Follower<T> {
        let redis = bus.zip(question.subject()).map(|(bus, subject)| {
            let inbox = bus.subscribe(subject.channel.clone());
            Redis { subject, inbox }
        });
        METRICS.over_http.fetch_add(1, Relaxed);
        let transport = Transport { over_redis: false };
        let (place, ready) = Default::default();
        Follower {
            client,
            question,
            version,
            redis,
            stage: Stage::Empty,
            place,
            ready,
            is_short: false,
            transport,
        }
    }

    async fn next(&mut self) -> Result<Event<T>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(event);
            }
            match &mut self.stage {
                Stage::Empty => {
                    METRICS.lists.fetch_add(1, Relaxed);
                    self.place = Place::default();
                    self.stage = Stage::Listing(None);
                    self.ready.push_back(Event::Init);
                }
                Stage::Listing(token) => {
                    let token = token.take();
                    self.list(token).await?;
                }
                Stage::Watching(watch) => {
                    let came = match &self.redis {
                        None => Came::Said(watch.next().await),
                        Some(redis) => tokio::select! {
                            said = watch.next() => Came::Said(said),
                            signal = redis.inbox.next() => Came::Heard(signal),
                        },
                    };
                    match came {
                        Came::Said(said) => self.said(said)?,
                        Came::Heard(signal) => self.heard(signal),
                    }
                }
                Stage::Hearing => {
                    let Some(redis) = &self.redis else {
                        self.watch(Duration::ZERO);
                        continue;
                    };
                    let signal = redis.inbox.next().await;
                    self.heard(signal);
                }
            }
        }
    }

    async fn list(&mut self, token: Option<String>) -> Result<()> {
        let page = http::list::<T>(&self.client, &self.question, token).await;
        let page = page.map_err(|error| {
            self.stage = Stage::Empty;
            Error::InitialListFailed(error)
        })?;
        self.ready.extend(page.items.into_iter().flatten().map(Event::InitApply));
        if let Some(token) = page.metadata.continue_.filter(|token| !token.is_empty()) {
            self.stage = Stage::Listing(Some(token));
            return Ok(());
        }
        let version = page.metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        let Some(version) = version else {
            self.stage = Stage::Empty;
            self.ready.clear();
            return Err(Error::NoResourceVersion);
        };
        self.ready.push_back(Event::InitDone);
        self.place = Place::at(version);
        self.watch(Duration::ZERO);
        Ok(())
    }

    /// Asks the API for what comes after what is known.
    fn watch(&mut self, in_a_moment: Duration) {
        self.transport.set(false);
        self.is_short = self.place.is_waiting();
        let from = self.place.position();
        let watch = Watch::open(&self.client, &self.question, from, self.is_short, in_a_moment);
        self.stage = Stage::Watching(watch);
    }

    /// The API said something.
    fn said(&mut self, said: std::result::Result<Said, Broken>) -> Result<()> {
        match said {
            Ok(Said::Applied(object)) => self.changed(&object, Event::Apply),
            Ok(Said::Deleted(object)) => self.changed(&object, Event::Delete),
            Ok(Said::Bookmark(revision)) => {
                let heard = self.place.advance(revision);
                self.take(heard);
                Ok(())
            }
            Ok(Said::Ended) => {
                self.watch(Duration::ZERO);
                Ok(())
            }
            Ok(Said::Refused(status)) => {
                self.refused(must_list(&status));
                Err(Error::WatchError(status))
            }
            Err(Broken::Start(error)) => {
                self.refused(matches!(&error, kube::Error::Api(status) if must_list(status)));
                Err(Error::WatchStartFailed(error))
            }
            Err(Broken::Read(error)) => {
                self.refused(false);
                Err(Error::WatchFailed(kube::Error::ReadEvents(error)))
            }
            Err(Broken::Understand(error)) => Err(Error::WatchFailed(kube::Error::SerdeError(error))),
        }
    }

    fn refused(&mut self, must_list: bool) {
        match must_list {
            true => {
                self.transport.set(false);
                self.stage = Stage::Empty;
            }
            false => self.watch(Duration::ZERO),
        }
    }

    fn changed(&mut self, object: &Bytes, event: fn(T) -> Event<T>) -> Result<()> {
        let understood = serde_json::from_slice::<T>(object);
        let version = understood.as_ref().ok().and_then(|object| (self.version)(object)?.parse().ok());
        let revision = version.unwrap_or_else(|| revision_of(object));
        if revision <= self.place.told() {
            return Ok(());
        }
        // An object that is not understood is told of, and does not stop the rest.
        let told = match understood {
            Ok(object) => {
                self.ready.push_back(event(object));
                Ok(())
            }
            Err(error) => Err(Error::WatchFailed(kube::Error::SerdeError(error))),
        };
        let heard = self.place.advance(revision);
        self.take(heard);
        told
    }

    /// Redis said something.
    fn heard(&mut self, signal: Signal) {
        match signal {
            Signal::Lost => {
                self.place.forget();
                if matches!(self.stage, Stage::Hearing) {
                    METRICS.catch_ups.fetch_add(1, Relaxed);
                    self.watch(SPREAD.mul_f64(fastrand::f64()));
                }
            }
            Signal::Message(message) => {
                let heard = self.place.hear(message);
                self.take(heard);
            }
        }
    }

    /// Tells what is next, and goes over to the transport that is enough for what comes.
    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Known => {}
            Heard::Missing(missing) => self.missing(missing),
            Heard::Next(messages) => {
                for message in messages {
                    if !self.tell(&message) {
                        return;
                    }
                }
                if self.place.is_waiting() {
                    self.missing(Missing::Gap);
                } else {
                    self.transport.set(true);
                    self.stage = Stage::Hearing;
                }
            }
        }
    }

    fn missing(&mut self, missing: Missing) {
        match self.stage {
            Stage::Hearing => {
                METRICS.missed(missing);
                METRICS.catch_ups.fetch_add(1, Relaxed);
                self.watch(Duration::ZERO);
            }
            // Redis is there again. A quiet watch says only once a minute how far it is.
            Stage::Watching(_) if !self.is_short => self.watch(Duration::ZERO),
            _ => {}
        }
    }

    /// Tells a message. One that cannot be understood is no good, nor is any other of this channel: the API is asked, from
    /// before it, for good.
    fn tell(&mut self, message: &Message) -> bool {
        let Some(redis) = &self.redis else { return false };
        let object = message.object.as_deref().unwrap_or_default();
        let Some(kind) = redis.subject.sift(message) else { return true };
        let event = match redis.subject.is_of_version(object) {
            true => serde_json::from_slice::<T>(object),
            false => Err(serde::de::Error::custom("it is of another version")),
        };
        match event {
            Ok(object) if kind == MessageType::Deleted => self.ready.push_back(Event::Delete(object)),
            Ok(object) => self.ready.push_back(Event::Apply(object)),
            Err(error) => {
                let channel = redis.subject.channel.to_string();
                tracing::debug!(%error, channel, key = message.key, "not understood over Redis; followed over HTTP");
                self.redis = None;
                self.place = Place::at(message.after.min(message.revision.saturating_sub(1)));
                self.watch(Duration::ZERO);
                return false;
            }
        }
        true
    }
}

impl Transport {
    fn set(&mut self, over_redis: bool) {
        if self.over_redis == over_redis {
            return;
        }
        self.over_redis = over_redis;
        let (from, to) = match over_redis {
            true => (&METRICS.over_http, &METRICS.over_redis),
            false => (&METRICS.over_redis, &METRICS.over_http),
        };
        from.fetch_sub(1, Relaxed);
        to.fetch_add(1, Relaxed);
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.set(false);
        METRICS.over_http.fetch_sub(1, Relaxed);
    }
}
