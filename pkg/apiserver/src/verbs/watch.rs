//! GET with `watch`: the changes of a collection as they happen.
//!
//! A watch is a cursor into the cache's ring of events. It waits for news, for the time of the next bookmark and for
//! its own end, and sends bytes that all watchers share.

use crate::answer::{self, Answer};
use crate::body::Body;
use crate::budget;
use crate::conversion::selects;
use crate::encoding;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::Shape;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{in_version, parse, set_revision};
use crate::verbs::get::{parse_version, wait_for};
use crate::verbs::list;
use api::selector::FieldSelector;
use api::table::{self, MetaVersion};
use api::{Kind, Value};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use listwatch::{Batch, Chunk, Event, EventType, Since, Watcher};
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use store::Revision;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// How long a watch lasts where the client does not say: between this and twice this, so that not all end at once.
const SHORTEST_DEFAULT: Duration = Duration::from_secs(1800);
/// How often a watch without news says how far it is.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Begins a watch.
pub async fn handle(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call<'_>) -> Result<Answer> {
    let mut scope = list::scope(&resource.kind, call)?;
    let fields;
    (scope.fields, fields) = resource.divide(scope.fields);
    let since = since(server, call).await;
    let watcher = match since.and_then(|since| Ok(resource.cache.watch(scope, since)?)) {
        Ok(watcher) => watcher,
        // Who asked may watch, and asked well: that they cannot go on from there is the first event, and the last.
        Err(error) if matches!(error.code, StatusCode::GONE | StatusCode::GATEWAY_TIMEOUT) => {
            return Ok(answer::json_bytes(StatusCode::OK, line("ERROR", &error.status())));
        }
        Err(error) => return Err(error),
    };
    let encoding = match call.wanted.shape {
        Shape::Object => Encoding::Object,
        Shape::Metadata => Encoding::Metadata(call.wanted.meta),
        Shape::Table => Encoding::Table {
            meta: call.wanted.meta,
            include: answer::include_object(call)?,
            has_columns: false,
        },
    };
    // It means nothing here, but must be a number.
    call.query.int("limit")?;
    let seconds = call.query.int("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let lasts = seconds.map_or_else(default_duration, |seconds| Duration::from_secs(seconds as u64));
    let bookmarks = call.query.flag("allowWatchBookmarks");
    server.metrics.watches.fetch_add(1, Relaxed);
    let session = Session {
        server: server.clone(),
        resource: resource.clone(),
        watcher,
        fields,
        pending: None,
        encoding,
        holder: budget::holder(&call.user).into(),
        wants_bookmarks: bookmarks,
        alarm: Box::pin(tokio::time::sleep(lasts.min(BOOKMARK_INTERVAL))),
        stopped: Box::pin(server.shutdown.clone().cancelled_owned()),
        ends: Instant::now() + lasts,
        is_over: false,
    };
    let body = Body::stream(stream::unfold(session, Session::next));
    Ok(answer::json_body(StatusCode::OK, body))
}

/// Where a watch begins.
async fn since(server: &Server, call: &Call<'_>) -> Result<Since> {
    let version = call.query.get("resourceVersion");
    let wants_initial = call.query.optional_flag("sendInitialEvents");
    if wants_initial.is_some() && call.query.get("resourceVersionMatch") != Some("NotOlderThan") {
        return Err(ApiError::unprocessable(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if wants_initial.is_none() && call.query.get("resourceVersionMatch").is_some() {
        return Err(ApiError::unprocessable(
            "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    Ok(match (wants_initial, version) {
        (Some(true), None | Some("0")) => {
            server.catch_up().await?;
            Since::InitialEvents
        }
        (Some(true), version) => {
            wait_for(server, version).await?;
            Since::InitialEvents
        }
        (Some(false), None) => {
            server.catch_up().await?;
            Since::Now
        }
        (None, None) => {
            server.catch_up().await?;
            Since::Any
        }
        (_, Some("0")) => Since::Any,
        (_, Some(text)) => {
            wait_for(server, version).await?;
            Since::Revision(parse_version(text)?)
        }
    })
}

fn default_duration() -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as f64 / u128::MAX as f64;
    SHORTEST_DEFAULT.mul_f64(1.0 + random)
}

#[derive(Clone)]
enum Encoding {
    /// The cached bytes.
    Object,
    /// Metadata only.
    Metadata(MetaVersion),
    /// Rows of a table; the columns go with the first.
    Table { meta: MetaVersion, include: table::IncludeObject, has_columns: bool },
}

/// One watch, from its first byte to its last.
struct Session {
    server: Arc<Server>,
    resource: Arc<Resource>,
    watcher: Watcher,
    /// What only converted objects can tell.
    fields: FieldSelector,
    /// What was told but not sent, while somebody is asked to convert it.
    pending: Option<Batch>,
    encoding: Encoding,
    /// Whose turn it is when something is encoded beside the runtime.
    holder: Arc<str>,
    wants_bookmarks: bool,
    /// When to look at the time: for the next bookmark, or for the end.
    alarm: Pin<Box<Sleep>>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    ends: Instant,
    is_over: bool,
}

impl Session {
    /// The next bytes to send, or the end.
    async fn next(mut self) -> Option<(Bytes, Session)> {
        if self.is_over {
            return None;
        }
        // However late it is, the present state is told to its end.
        if Instant::now() >= self.ends && self.watcher.revision().is_some() {
            return self.last_bookmark();
        }
        let bytes = tokio::select! {
            biased;
            bytes = news(
                &self.server,
                &self.resource,
                &mut self.watcher,
                &mut self.pending,
                &self.fields,
                &mut self.encoding,
                &self.holder,
            ) => match bytes {
                Ok(Some(bytes)) => bytes,
                // The watcher was too slow, or the cache was read anew: the client resumes from where it is.
                Ok(None) => return None,
                Err(error) => {
                    self.is_over = true;
                    line("ERROR", &error.status())
                }
            },
            () = &mut self.alarm => {
                let now = Instant::now();
                if now >= self.ends {
                    return self.last_bookmark();
                }
                self.alarm.as_mut().reset(self.ends.min(now + BOOKMARK_INTERVAL));
                self.bookmark().filter(|_| self.wants_bookmarks).unwrap_or_default()
            }
            () = &mut self.stopped => return None,
        };
        Some((bytes, self))
    }

    /// At the end, a bookmark lets the client resume from here without reading anything twice.
    fn last_bookmark(mut self) -> Option<(Bytes, Session)> {
        self.is_over = true;
        let bytes = self.bookmark().filter(|_| self.wants_bookmarks)?;
        Some((bytes, self))
    }

    /// How far the watch is; nothing while it is still telling the present state, or something is not yet sent.
    fn bookmark(&mut self) -> Option<Bytes> {
        let revision = self.watcher.revision().filter(|_| self.pending.is_none())?;
        Some(bookmark(&self.resource.kind, &self.encoding, revision, false))
    }
}

/// Waits for events and encodes them. Cancelled and called again, it loses nothing.
async fn news(
    server: &Server,
    resource: &Arc<Resource>,
    watcher: &mut Watcher,
    pending: &mut Option<Batch>,
    fields: &FieldSelector,
    encoding: &mut Encoding,
    holder: &Arc<str>,
) -> Result<Option<Bytes>> {
    // What the cache holds is what built-in kinds of the stored version are sent as.
    if matches!(encoding, Encoding::Object)
        && resource.kind.convert.is_none()
        && resource.kind.custom.is_none()
    {
        return Ok(match watcher.next_bytes().await {
            Ok(Chunk::Events(bytes)) => Some(bytes),
            Ok(Chunk::InitialEventsEnd(revision)) => Some(bookmark(&resource.kind, encoding, revision, true)),
            Err(_) => None,
        });
    }
    if pending.is_none() {
        let Ok(batch) = watcher.next().await else { return Ok(None) };
        *pending = Some(batch);
    }
    let bytes = match pending {
        Some(Batch::InitialEventsEnd(revision)) => bookmark(&resource.kind, encoding, *revision, true),
        Some(Batch::Events(events)) if resource.converter.is_some() => {
            converted(server, resource, events, fields, encoding).await?
        }
        Some(Batch::Events(events)) => {
            let (count, size) = next_piece(events);
            let (bytes, after) = encoded(server, resource, &events[..count], size, encoding, holder).await?;
            *encoding = after;
            events.drain(..count);
            if !events.is_empty() {
                return Ok(Some(bytes));
            }
            bytes
        }
        None => Bytes::new(),
    };
    *pending = None;
    Ok(Some(bytes))
}

/// Events as they are to somebody who sees converted objects, and of these the selected ones.
async fn converted(
    server: &Server,
    resource: &Resource,
    events: &[Arc<Event>],
    fields: &FieldSelector,
    encoding: &mut Encoding,
) -> Result<Bytes> {
    let states = events.iter().flat_map(|event| [Some(&event.object), event.previous.as_ref()]).flatten();
    let states = states.map(|object| parse(object.as_json())).collect::<Result<_>>()?;
    let mut states = resource.all_in_version(server, states).await?.into_iter();
    let mut out = BytesMut::new();
    for event in events {
        let object = states.next().unwrap_or_default();
        let previous = event.previous.as_ref().and_then(|_| states.next());
        let was_there = previous.as_ref().is_some_and(|previous| selects(fields, previous));
        let is_there = event.kind != EventType::Deleted && selects(fields, &object);
        let (kind, object) = match (was_there, is_there, previous) {
            (false, false, _) => continue,
            (false, true, _) => (EventType::Added, object),
            (true, false, Some(mut previous)) => {
                set_revision(&mut previous, event.revision);
                (EventType::Deleted, previous)
            }
            (true, ..) => (event.kind, object),
        };
        out.extend_from_slice(&encode(kind, event.revision, object, resource, encoding));
    }
    Ok(out.freeze())
}

/// How many events are encoded at a time, and the bytes of their objects.
fn next_piece(events: &[Arc<Event>]) -> (usize, usize) {
    let mut size = 0;
    for (count, event) in events.iter().enumerate() {
        let next = event.object.as_json().len();
        if count > 0 && size + next > encoding::PIECE {
            return (count, size);
        }
        size += next;
    }
    (events.len(), size)
}

/// Events as their watcher wants them, and how those after them are encoded. What is not small is not done by those who
/// answer requests.
async fn encoded(
    server: &Server,
    resource: &Arc<Resource>,
    events: &[Arc<Event>],
    size: usize,
    encoding: &Encoding,
    holder: &Arc<str>,
) -> Result<(Bytes, Encoding)> {
    if let [event] = events
        && matches!(encoding, Encoding::Object)
        && resource.is_ready_made(event.object.as_json())
    {
        return Ok((event.line(), Encoding::Object));
    }
    let (resource, events, mut encoding) = (resource.clone(), events.to_vec(), encoding.clone());
    let encode = move || {
        let mut out = Vec::with_capacity(size);
        for event in &events {
            encode_event(&mut out, event, &resource, &mut encoding)?;
        }
        Ok((out.into(), encoding))
    };
    if size <= encoding::SMALL {
        return encode();
    }
    let made = server.workers.run(holder, encode).await;
    made.unwrap_or_else(|| Err(ApiError::internal("an event could not be encoded; see the server's log")))
}

fn encode_event(
    out: &mut Vec<u8>,
    event: &Event,
    resource: &Arc<Resource>,
    encoding: &mut Encoding,
) -> Result<()> {
    if matches!(encoding, Encoding::Object) && resource.is_ready_made(event.object.as_json()) {
        out.extend_from_slice(&event.line());
        return Ok(());
    }
    let object = in_version(&resource.kind, parse(event.object.as_json())?);
    out.extend_from_slice(&encode(event.kind, event.revision, object, resource, encoding));
    Ok(())
}

fn encode(
    ty: EventType,
    revision: Revision,
    object: Value,
    resource: &Resource,
    encoding: &mut Encoding,
) -> Bytes {
    let kind = &resource.kind;
    let object = match encoding {
        Encoding::Object => object,
        Encoding::Metadata(meta) => meta.of(table::partial_object(&object)),
        Encoding::Table { meta, include, has_columns } => {
            let metadata = json!({ "resourceVersion": revision.to_string() });
            let table = table::Table::new(kind);
            let rows = vec![table.row(&object, *include, jiff::Timestamp::now())];
            meta.of(table.with_rows(metadata, rows, !std::mem::replace(has_columns, true)))
        }
    };
    line(ty.as_str(), &object)
}

fn bookmark(kind: &Kind, encoding: &Encoding, revision: Revision, ends_initial_events: bool) -> Bytes {
    match encoding {
        Encoding::Object => {
            listwatch::bookmark(&kind.api_version(), &kind.kind, revision, ends_initial_events)
        }
        Encoding::Metadata(meta) => {
            listwatch::bookmark(meta.api_version(), "PartialObjectMetadata", revision, ends_initial_events)
        }
        Encoding::Table { meta, .. } => {
            let mut metadata = json!({ "resourceVersion": revision.to_string() });
            let table_metadata = metadata.clone();
            if ends_initial_events {
                metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            }
            let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
            let row = json!({"cells": [], "object": object});
            let table = table::Table::new(kind).with_rows(table_metadata, vec![row], false);
            line("BOOKMARK", &meta.of(table))
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.metrics.watches.fetch_sub(1, Relaxed);
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n").into()
}
