//! Calls from inside of knative, with a name: of what was promised for later, and of workflows.
//!
//! ```text
//! Invocation {id, attempt} ── not the first attempt: does a pod hold what came of this id? ──> that answer
//!                          └─ otherwise ──> the way of every call: a place in a pod, sent once ──> Answer or CallError
//! ```

use crate::call::{self, Call};
use crate::controller::Shared;
use crate::exchange::Seat;
use crate::fleet::{Fault, Refusal};
use axum::body::Body;
use bytes::Bytes;
use client::Key;
use futures::future::join_all;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A pod that is asked what it holds and does not know of the call says so within this.
const HELD_TIMEOUT: Duration = Duration::from_secs(2);

/// Calls functions for other parts of knative. Clones share it.
#[derive(Clone)]
pub struct Invoker {
    shared: Arc<Shared>,
}

/// A call of a function, with a name.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// The function.
    pub function: Key,
    /// The call's name, of visible ASCII, new for each piece of work and the same for each attempt at it: the runtimes of
    /// sources answer a second call of the same name with what came of the first, as long as the pod lives and holds it (or when it has come of it, if it still works on it). What failed is
    /// not held: it is made again.
    pub id: String,
    /// Which attempt it is, from 1. The function sees it. From the second on, pods are asked first what they hold.
    pub attempt: u32,
    /// The parameters, as JSON; empty for none.
    pub body: Bytes,
    /// What else goes with it: `traceparent`, `tracestate` and `x-request-id` are passed on.
    pub headers: HeaderMap,
    /// No answer is waited for longer than this, in the queue and in the pod together.
    pub deadline: Duration,
}

/// What a function answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Of a source, JSON; of an image, whatever it says.
    pub body: Bytes,
    /// Whether a pod was started for it.
    pub is_cold: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}", fault.reason, fault.message)]
pub struct CallError {
    /// How HTTP says it.
    pub status: StatusCode,
    /// A word for programs (`Raised`, `ImportFailed`, `TimedOut`, `NoPodInTime`, …), and a sentence for people.
    pub fault: Fault,
    /// Whether the function may have begun: if not, the call can be made again without anybody noticing.
    pub has_begun: bool,
}

impl Invoker {
    /// Calls what this one leads.
    pub fn new(shared: Arc<Shared>) -> Invoker {
        Invoker { shared }
    }

    /// Calls a function, and waits for its answer.
    ///
    /// # Errors
    ///
    /// The function does not exist, has no pod in time, fails, or does not answer within the deadline.
    ///
    /// # Guarantees
    ///
    /// Sent to one pod once, or not at all. What may have been done without an answer (`has_begun`) is the caller's to decide on:
    /// with the same `id` and a higher `attempt` it gets the answer of before, where that pod still lives.
    pub async fn call(&self, invocation: Invocation) -> Result<Answer, CallError> {
        let deadline = invocation.deadline;
        let (name, answering) = (invocation.function.name.clone(), self.try_call(invocation));
        tokio::time::timeout(deadline, answering).await.unwrap_or_else(|_| {
            let message = format!("function {name:?} did not answer within {} s", deadline.as_secs());
            let fault = Fault::new("TimedOut", message);
            Err(CallError { status: StatusCode::GATEWAY_TIMEOUT, fault, has_begun: true })
        })
    }

    async fn try_call(&self, invocation: Invocation) -> Result<Answer, CallError> {
        let Invocation { function, id, attempt, body, headers, .. } = invocation;
        let definition = self.shared.next_definition(&function).ok_or_else(|| {
            let message = format!("functions.minik8s.io {:?} not found", function.name);
            CallError::from(Refusal::new(StatusCode::NOT_FOUND, "NotFound", message))
        })?;
        let (_, most) = definition.most_bytes();
        let id = (id, attempt);
        let held = if attempt > 1 { self.held(&function, &id).await } else { None };
        let response = match held {
            Some(response) => response,
            None => {
                let (came, body) = (Instant::now(), Body::from(body));
                let call = Call {
                    method: Method::POST,
                    path: "/".to_owned(),
                    headers,
                    body,
                    came,
                    id: Some(id),
                    upgrade: None,
                };
                let answered = call::make(&self.shared, definition, call).await?;
                self.shared.called(&function, answered.status(), came.elapsed());
                answered
            }
        };
        read(response, most).await
    }

    /// What came of an earlier attempt, if a pod knows of it.
    async fn held(&self, function: &Key, id: &(String, u32)) -> Option<Response<Body>> {
        let places = self.shared.event(|fleet, now| fleet.everywhere(function, now));
        let asking = places.into_iter().map(|granted| {
            let seat = Seat::new(self.shared.clone(), granted);
            async move { ask(&seat, id).await }
        });
        join_all(asking).await.into_iter().flatten().next()
    }
}

async fn ask(seat: &Seat, id: &(String, u32)) -> Option<Response<Body>> {
    let request = |path| {
        let mut request = seat.link.request(path, Bytes::new()).ok()?;
        request.headers_mut().extend(call::named(Some(id)));
        Some(request)
    };
    // Whether it knows the call is said at once; what came of it, when it is there.
    let (known, sender) =
        tokio::time::timeout(HELD_TIMEOUT, seat.link.send(request("/knows")?)).await.ok()?.ok()?;
    let is_known = known.status() == StatusCode::OK;
    known.into_body().collect().await.ok()?;
    seat.link.keep(sender);
    if !is_known {
        return None;
    }
    let (held, sender) = seat.link.send(request("/held")?).await.ok()?;
    let (head, body) = held.into_parts();
    let body = body.collect().await.ok()?.to_bytes();
    seat.link.keep(sender);
    (head.status != StatusCode::NOT_FOUND).then(|| Response::from_parts(head, Body::from(body)))
}

async fn read(response: Response<Body>, most: usize) -> Result<Answer, CallError> {
    let (head, body) = response.into_parts();
    let failed = |status, fault| CallError { status, fault, has_begun: true };
    let body = Limited::new(body, most).collect().await.map_err(|error| {
        let fault = match error.is::<http_body_util::LengthLimitError>() {
            true => Fault::new(
                "AnswerTooLarge",
                format!("the answer is larger than {most} bytes (limits.responseBytes)"),
            ),
            false => Fault::new(
                "ConnectionClosed",
                "the function's pod closed the connection in the middle of its answer",
            ),
        };
        failed(StatusCode::BAD_GATEWAY, fault)
    })?;
    let body = body.to_bytes();
    let is_cold = head.headers.get(call::COLD_START).is_some_and(|value| value == "true");
    match head.status.is_success() {
        true => Ok(Answer { body, is_cold }),
        false => Err(failed(head.status, fault(head.status, &body))),
    }
}

/// What a Status, a runtime or an image says of a failure.
fn fault(status: StatusCode, body: &Bytes) -> Fault {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    match (said["reason"].as_str(), said["message"].as_str(), said["error"].as_str()) {
        (Some(reason), Some(message), _) => Fault::new(reason, message),
        (None, _, Some(_)) => Fault::said(body),
        _ => {
            let text: String = String::from_utf8_lossy(body).chars().take(1000).collect();
            Fault::new("Status", format!("the function answered {status}: {text}"))
        }
    }
}

impl From<Refusal> for CallError {
    fn from(refusal: Refusal) -> CallError {
        CallError { status: refusal.status, fault: refusal.fault, has_begun: false }
    }
}
