//! The API itself: pages of a list, and the lines of a watch.

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{AsyncBufRead, AsyncBufReadExt};
use kube::Client;
use kube::api::{ListMeta, ListParams, WatchParams};
use kube::core::{Request, Status};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::Instant;

use super::question::Question;

/// A list comes in pages of so many, so that it is never whole in memory twice.
const PAGE: u32 = 500;
/// The server ends a watch after this long.
const WATCH_SECONDS: u32 = 290;
/// It says at the end how far it is: who only has to know that asks for a short one.
const SHORT_WATCH_SECONDS: u32 = 1;
/// One that says nothing for this long was cut off by somebody in between.
const LONGEST_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 30);
/// A watch that ends at once is not asked for again at once.
const SHORTEST: Duration = Duration::from_millis(500);

type Lines = Pin<Box<dyn AsyncBufRead + Send>>;

/// One page of a list.
#[derive(Deserialize)]
pub(super) struct Page<T> {
    pub metadata: ListMeta,
    /// Some servers have no list where they have nothing.
    pub items: Option<Vec<T>>,
}

/// A watch, from when it is asked for to its end. Whatever is cancelled goes on with the next call.
pub(super) enum Watch {
    Opening(BoxFuture<'static, kube::Result<Lines>>),
    Open {
        lines: Lines,
        line: Vec<u8>,
        since: Instant,
        /// When it has said nothing for too long.
        silent_at: Instant,
    },
}

/// What a watch says.
#[derive(Debug)]
pub(super) enum Said {
    /// ADDED, MODIFIED.
    Applied(Bytes),
    /// DELETED.
    Deleted(Bytes),
    /// Everything up to here was said.
    Bookmark(u64),
    /// It is over, as watches are after a while.
    Ended,
    /// It cannot go on.
    Refused(Box<Status>),
}

/// Why a watch broke.
pub(super) enum Broken {
    Start(kube::Error),
    Read(io::Error),
    Understand(serde_json::Error),
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The least of an object: its place in the history.
#[derive(Deserialize)]
struct Placed {
    #[serde(default)]
    metadata: PlacedMetadata,
}

#[derive(Deserialize, Default)]
struct PlacedMetadata {
    #[serde(default, rename = "resourceVersion")]
    resource_version: String,
}

/// The resourceVersion of an object.
pub(super) fn revision_of(object: &[u8]) -> u64 {
    let placed = serde_json::from_slice::<Placed>(object);
    placed.ok().and_then(|placed| placed.metadata.resource_version.parse().ok()).unwrap_or(0)
}

/// A page of the list.
pub(super) async fn list<T: DeserializeOwned>(
    client: &Client,
    question: &Question,
    token: Option<String>,
) -> kube::Result<Page<T>> {
    let params = ListParams {
        label_selector: question.labels.clone(),
        field_selector: question.fields.clone(),
        limit: Some(PAGE),
        continue_token: token,
        ..ListParams::default()
    };
    let request = Request::new(&question.path).list(&params).map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

impl Watch {
    /// Asks for what happens after a revision, in a moment; or only for what has happened.
    pub fn open(
        client: &Client,
        question: &Question,
        from: u64,
        is_short: bool,
        in_a_moment: Duration,
    ) -> Watch {
        let params = WatchParams {
            label_selector: question.labels.clone(),
            field_selector: question.fields.clone(),
            timeout: Some(if is_short { SHORT_WATCH_SECONDS } else { WATCH_SECONDS }),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = Request::new(&question.path).watch(&params, &from.to_string());
        let client = client.clone();
        Watch::Opening(Box::pin(async move {
            tokio::time::sleep(in_a_moment).await;
            let request = request.map_err(kube::Error::BuildRequest)?;
            let lines = client.request_stream(request).await?;
            Ok(Box::pin(lines) as Lines)
        }))
    }

    /// What it says next. Cancelled and called again, it loses nothing.
    pub async fn next(&mut self) -> Result<Said, Broken> {
        loop {
            match self {
                Watch::Opening(opening) => {
                    let lines = opening.await.map_err(Broken::Start)?;
                    let since = Instant::now();
                    *self =
                        Watch::Open { lines, line: Vec::new(), since, silent_at: since + LONGEST_SILENCE };
                }
                Watch::Open { lines, line, since, silent_at } => {
                    let reading = tokio::time::timeout_at(*silent_at, lines.read_until(b'\n', line));
                    let read = match reading.await {
                        Ok(read) => read.map_err(Broken::Read)?,
                        Err(_) => return Ok(Said::Ended),
                    };
                    if read == 0 || line.last() != Some(&b'\n') {
                        tokio::time::sleep_until(*since + SHORTEST).await;
                        return Ok(Said::Ended);
                    }
                    *silent_at = Instant::now() + LONGEST_SILENCE;
                    let line = std::mem::take(line);
                    if let Some(said) = understand(line)? {
                        return Ok(said);
                    }
                }
            }
        }
    }
}

/// A line as API servers write it, without reading the object.
fn split(line: &Bytes) -> Option<(&str, Bytes)> {
    let rest = line.strip_prefix(b"{\"type\":\"")?;
    let end = rest.iter().take(16).position(|byte| *byte == b'"')?;
    let object = rest[end..].strip_prefix(b"\",\"object\":")?.strip_suffix(b"}\n")?;
    Some((std::str::from_utf8(&rest[..end]).ok()?, line.slice_ref(object)))
}

fn understand(line: Vec<u8>) -> Result<Option<Said>, Broken> {
    let line = Bytes::from(line);
    let (kind, object) = match split(&line) {
        Some((kind, object)) => (kind, object),
        None => {
            let parsed: Line<'_> = serde_json::from_slice(&line).map_err(Broken::Understand)?;
            (parsed.kind, line.slice_ref(parsed.object.get().as_bytes()))
        }
    };
    Ok(Some(match kind {
        "ADDED" | "MODIFIED" => Said::Applied(object),
        "DELETED" => Said::Deleted(object),
        "BOOKMARK" => Said::Bookmark(revision_of(&object)),
        "ERROR" => Said::Refused(serde_json::from_slice(&object).map_err(Broken::Understand)?),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let check = |line: &str, expected: &str| {
            let said = understand(line.as_bytes().to_vec()).unwrap_or(None);
            assert!(format!("{said:?}").starts_with(expected), "{said:?}");
        };
        check("{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n", "Some(Applied(b\"{\\\"a\\\":1}\"");
        check("{ \"type\": \"ADDED\", \"object\": {} }\n", "Some(Applied(b\"{}\"");
        check("{\"object\":{},\"type\":\"DELETED\"}\n", "Some(Deleted(b\"{}\"");
        check(
            "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"7\"}}}\n",
            "Some(Bookmark(7",
        );
        check("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n", "Some(Refused");
        check("{\"type\":\"LATER\",\"object\":{}}\n", "None");
    }
}
