//! Requests that no client library sends, and answers looked at as they are.

use crate::eventually::in_time;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// Sends requests as the user of a client. Paths are those of the server, such as `/api/v1/pods?limit=1`.
#[derive(Clone)]
pub struct Http(Client);

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub code: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub struct Event {
    /// ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.
    pub kind: String,
    /// What it is about.
    pub object: Value,
}

/// A watch: events as they come.
pub struct Watch {
    body: Body,
    received: BytesMut,
}

impl Http {
    /// Sends as this client's user.
    pub fn new(client: Client) -> Http {
        Http(client)
    }

    /// Sends any request at all.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let answer = self.try_send(method, path, headers, body).await;
        answer.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// As [`Http::send`], where it may be that nobody answers.
    pub async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> kube::Result<Answer> {
        let response = self.respond(method, path, headers, body.into()).await?;
        let (parts, body) = response.into_parts();
        let body = in_time("the whole answer", body.collect()).await?.to_bytes();
        Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, &JSON, body.to_string()).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send("PUT", path, &JSON, body.to_string()).await
    }

    /// PATCH of a kind: `json`, `merge`, `strategic-merge` or `apply`.
    pub async fn patch(&self, path: &str, kind: &str, body: &Value) -> Answer {
        let media_type = match kind {
            "json" => "application/json-patch+json".to_owned(),
            "apply" => "application/apply-patch+yaml".to_owned(),
            kind => format!("application/{kind}-patch+json"),
        };
        self.send("PATCH", path, &[("content-type", &media_type)], body.to_string()).await
    }

    /// DELETE, with options where they are not null.
    pub async fn delete(&self, path: &str, options: &Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.send("DELETE", path, &JSON, body).await
    }

    /// Begins a watch; the path has `watch=true` in its query.
    pub async fn watch(&self, path: &str) -> Watch {
        let response = self.respond("GET", path, &[], Bytes::new()).await;
        let response = response.unwrap_or_else(|error| panic!("watch {path}: {error}"));
        let code = response.status();
        let mut watch = Watch { body: response.into_body(), received: BytesMut::new() };
        if code != http::StatusCode::OK {
            while watch.more().await {}
            panic!("watch {path}: {code}: {}", String::from_utf8_lossy(&watch.received));
        }
        watch
    }

    async fn respond(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> kube::Result<Response<Body>> {
        let method: Method = method.parse().expect("a method");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_vec())).expect("a request");
        in_time(path, self.0.send(request)).await
    }
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

impl Answer {
    /// The body as JSON; null where it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The reason of a `Status`.
    pub fn reason(&self) -> String {
        self.json()["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// The message of a `Status`.
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    /// The body as JSON of an answer with this code; any other code fails the test.
    #[track_caller]
    pub fn expect(&self, code: u16) -> Value {
        let text: String = self.text().chars().take(2000).collect();
        assert_eq!(self.code, code, "{text}");
        self.json()
    }
}

impl Watch {
    /// The next event, or `None` at the end.
    pub async fn next(&mut self) -> Option<Event> {
        in_time("the next event", self.next_event()).await
    }

    /// Reads on until an event is what is looked for.
    pub async fn until(&mut self, what: &str, mut found: impl FnMut(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await.unwrap_or_else(|| panic!("the watch ended before: {what}"));
            if found(&event) {
                return event;
            }
        }
    }

    /// All events up to the end.
    pub async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
        }
        events
    }

    async fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line = self.received.split_to(end + 1);
                let mut event: Value = serde_json::from_slice(&line).expect("an event");
                let kind = event["type"].as_str().expect("a type").to_owned();
                return Some(Event { kind, object: event["object"].take() });
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn more(&mut self) -> bool {
        match self.body.frame().await {
            Some(Ok(frame)) => {
                self.received.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                true
            }
            Some(Err(_)) | None => false,
        }
    }
}

impl Event {
    /// The name of the object.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The resourceVersion of the object.
    pub fn version(&self) -> &str {
        self.object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }
}
