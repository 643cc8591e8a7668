//! GET with `watch`: the changes of a collection as they happen.
//!
//! A watch is a cursor into the cache's ring of events. It waits for news, for the time of the next bookmark and for
//! its own end, and sends bytes that all watchers share.

use crate::answer::{self, Answer};
use crate::body::Body;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::Shape;
use crate::registry::Resource;
use crate::server::Server;
use crate::storage::{in_version, parse};
use crate::verbs::get::parse_version;
use crate::verbs::list;
use api::{Value, table};
use bytes::{Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use listwatch::{Batch, Event, Since, WatchError, WatchOptions, Watcher};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::Instant;

/// How long a watch lasts where the client does not say: between this and twice this, so that not all end at once.
const SHORTEST_DEFAULT: Duration = Duration::from_secs(1800);
/// How often a watch without news says how far it is.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Begins a watch.
pub async fn handle(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call<'_>) -> Result<Answer> {
    let selector = list::selector(&resource.kind, call)?;
    let namespace = &*call.target.namespace;
    let namespace = (resource.kind.namespaced() && !namespace.is_empty()).then(|| namespace.to_owned());
    let since = since(server, call).await?;
    let is_streaming_list = matches!(since, Since::InitialEvents(_));
    let options = WatchOptions { namespace, selector, since };
    let watcher = resource.cache.watch(options).map_err(|error| match error {
        WatchError::TooOld { asked, oldest } => too_old(asked, oldest),
        WatchError::Future { asked, current } => store::Error::Future { asked, current }.into(),
    })?;
    let encoding = match call.wanted.shape {
        Shape::Object => Encoding::Object,
        Shape::Metadata => Encoding::Metadata,
        Shape::Table => Encoding::Table { include: answer::include_object(call)?, has_columns: false },
    };
    let seconds = call.query.int("timeoutSeconds")?.filter(|seconds| *seconds > 0);
    let lasts = seconds.map_or_else(default_duration, |seconds| Duration::from_secs(seconds as u64));
    let bookmarks = call.query.flag("allowWatchBookmarks");
    server.metrics.watches.fetch_add(1, Relaxed);
    let session = Session {
        server: server.clone(),
        resource: resource.clone(),
        watcher,
        encoding,
        wants_bookmarks: bookmarks || is_streaming_list,
        marks_end_of_initial_events: is_streaming_list,
        next_bookmark: Instant::now() + BOOKMARK_INTERVAL,
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
            Since::InitialEvents(0)
        }
        (Some(true), Some(text)) => Since::InitialEvents(parse_version(text)?),
        (Some(false), None) => {
            server.catch_up().await?;
            Since::Now
        }
        (None, None) => {
            server.catch_up().await?;
            Since::Any
        }
        (_, Some("0")) => Since::Any,
        (_, Some(text)) => Since::Revision(parse_version(text)?),
    })
}

fn too_old(asked: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
}

fn default_duration() -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as f64 / u128::MAX as f64;
    SHORTEST_DEFAULT.mul_f64(1.0 + random)
}

enum Encoding {
    /// The cached bytes.
    Object,
    /// Metadata only.
    Metadata,
    /// Rows of a table; the columns go with the first.
    Table { include: table::IncludeObject, has_columns: bool },
}

/// One watch, from its first byte to its last.
struct Session {
    server: Arc<Server>,
    resource: Arc<Resource>,
    watcher: Watcher,
    encoding: Encoding,
    wants_bookmarks: bool,
    marks_end_of_initial_events: bool,
    next_bookmark: Instant,
    ends: Instant,
    is_over: bool,
}

impl Session {
    /// The next bytes to send, or the end.
    async fn next(mut self) -> Option<(Bytes, Session)> {
        if self.is_over {
            return None;
        }
        let bytes = loop {
            let shutdown = self.server.shutdown.clone();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep_until(self.ends) => {
                    // A last bookmark lets the client resume from here without reading anything twice.
                    self.is_over = true;
                    if !self.wants_bookmarks {
                        return None;
                    }
                    break self.bookmark(false);
                }
                batch = self.watcher.next() => match batch {
                    None => return None,
                    Some(batch) => match self.encode(batch) {
                        Ok(bytes) if bytes.is_empty() => continue,
                        Ok(bytes) => break bytes,
                        Err(error) => {
                            self.is_over = true;
                            break error_event(&error);
                        }
                    },
                },
                () = tokio::time::sleep_until(self.next_bookmark), if self.wants_bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_INTERVAL;
                    break self.bookmark(false);
                }
            }
        };
        Some((bytes, self))
    }

    fn encode(&mut self, batch: Batch) -> Result<Bytes> {
        let ready_made = matches!(self.encoding, Encoding::Object);
        let bytes = match batch {
            Batch::Events(events) if ready_made && self.resource.kind.convert.is_none() && self.resource.kind.custom.is_none() => {
                events.bytes()
            }
            Batch::Events(events) => {
                let mut out = BytesMut::new();
                for event in events.iter() {
                    out.extend_from_slice(&self.encode_event(event)?);
                }
                out.freeze()
            }
            Batch::InitialEventsEnd => {
                let bytes = self.bookmark(self.marks_end_of_initial_events);
                self.marks_end_of_initial_events = false;
                bytes
            }
        };
        Ok(bytes)
    }

    fn encode_event(&mut self, event: &Event) -> Result<Bytes> {
        let kind = &self.resource.kind;
        if matches!(self.encoding, Encoding::Object) && self.resource.is_ready_made(&event.object.json) {
            return Ok(event.line());
        }
        let object = in_version(kind, parse(&event.object.json)?);
        let object = match &mut self.encoding {
            Encoding::Object => object,
            Encoding::Metadata => table::partial_object_metadata(&object),
            Encoding::Table { include, has_columns } => {
                let metadata = json!({ "resourceVersion": event.revision.to_string() });
                let mut table = table::table(kind, [&object].into_iter(), metadata, *include, jiff::Timestamp::now());
                if std::mem::replace(has_columns, true) {
                    table["columnDefinitions"] = json!([]);
                }
                table
            }
        };
        Ok(line(event.kind.as_str(), &object))
    }

    fn bookmark(&self, ends_initial_events: bool) -> Bytes {
        let kind = &self.resource.kind;
        let revision = self.watcher.revision();
        match &self.encoding {
            Encoding::Table { .. } => {
                let mut metadata = json!({ "resourceVersion": revision.to_string() });
                if ends_initial_events {
                    metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                }
                let object = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
                let row = json!({"cells": [], "object": object});
                let table = json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": revision.to_string()},
                    "columnDefinitions": [], "rows": [row],
                });
                line("BOOKMARK", &table)
            }
            Encoding::Metadata => listwatch::bookmark("PartialObjectMetadata", "meta.k8s.io/v1", revision, ends_initial_events),
            Encoding::Object => listwatch::bookmark(&kind.kind, &kind.api_version(), revision, ends_initial_events),
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

fn error_event(error: &ApiError) -> Bytes {
    line("ERROR", &error.status())
}
