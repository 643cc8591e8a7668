//! A call, on its way: its body, a place in a pod, the exchange, and how long what took.

use crate::controller::Shared;
use crate::definition::{Definition, Program};
use crate::events;
use crate::exchange::{CallersEnd, Seat, Sent, exchange};
use crate::fleet::{Granted, Place, Refusal};
use crate::metrics::{PHASES, phases};
use axum::body::Body;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::upgrade::OnUpgrade;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Says whether a pod started for the call.
pub const COLD_START: HeaderName = HeaderName::from_static("x-cold-start");
/// Says how long what took, in milliseconds.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
/// Headers of a call that a source's runtime sees.
const PASSED_ON: [&str; 3] = ["traceparent", "tracestate", "x-request-id"];
/// Headers that are between two neighbours, or that nobody but us is to see.
const NOT_PASSED_ON: [&str; 10] = [
    "authorization",
    "connection",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "x-function-token",
];
/// A call whose pod turns out not to be there looks for another one so often.
const MOST_TRIES: usize = 5;
/// A body that is not there after this is not waited for.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

/// By which a call is found in logs.
pub const REQUEST_ID: &str = "x-request-id";
const LONGEST_ID: usize = 128;
/// By which a runtime knows a call again. Nobody from outside can say it.
pub const CALL_ID: &str = "x-function-call";
/// Which attempt it is.
pub const ATTEMPT: &str = "x-function-attempt";

/// A call, on its way.
pub struct Call {
    /// How it was asked.
    pub method: Method,
    /// What an image is asked for.
    pub path: String,
    /// What came with it.
    pub headers: HeaderMap,
    /// Its parameters.
    pub body: Body,
    /// When it came.
    pub came: Instant,
    /// Its name and which attempt it is, if it has a name.
    pub id: Option<(String, u32)>,
    /// Its connection, should the image go on in another protocol.
    pub upgrade: Option<OnUpgrade>,
}

/// Makes a call, and gives back what is to be answered.
///
/// # Errors
///
/// Why it was not made.
pub async fn make(
    shared: &Arc<Shared>,
    definition: Arc<Definition>,
    call: Call,
) -> Result<Response<Body>, Refusal> {
    let program = definition
        .program()
        .map_err(|why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UnknownRuntime", why))?;
    match program {
        Program::Source(_) if call.method != Method::POST => {
            let message = "a function is called by POST";
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message))
        }
        Program::Source(_) => to_source(shared, definition, call).await,
        Program::Image(_) => to_image(shared, definition, call).await,
    }
}

async fn to_source(
    shared: &Arc<Shared>,
    definition: Arc<Definition>,
    call: Call,
) -> Result<Response<Body>, Refusal> {
    let (most, _) = definition.most_bytes();
    let body = whole(&call.headers, call.body, most).await?;
    let (event, body) = events::unpack(&call.headers, body)?;
    let passed_on = PASSED_ON
        .iter()
        .filter_map(|name| Some((HeaderName::from_static(name), call.headers.get(*name)?.clone())));
    let passed_on: Vec<(HeaderName, HeaderValue)> =
        passed_on.chain(event).chain(named(call.id.as_ref())).collect();
    for _ in 0..MOST_TRIES {
        let seat = place(shared, &definition, call.came).await?;
        let timing = timing(&seat, call.came);
        let mut request = seat.link.request("/call", body.clone()).map_err(|error| {
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", error.to_string())
        })?;
        request.headers_mut().extend(passed_on.iter().cloned());
        let (sent_at, is_cold) = (Instant::now(), seat.is_cold);
        if let Sent::Answered(response) = exchange(seat, request, definition.clone(), true).await {
            return Ok(timed(response, timing, is_cold, sent_at));
        }
    }
    Err(no_pod(&definition, None))
}

/// A body, once all of it is there.
///
/// # Errors
///
/// It is larger than so many bytes, or broke off.
pub async fn whole(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body is larger than {most} bytes (limits.requestBytes)");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLarge", message)
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_PATIENCE, Limited::new(body, most).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        _ => Err(Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", "the body broke off")),
    }
}

/// The id by which a call is found in logs: its caller's, if that can be one, or a new one.
pub fn request_id(headers: &mut HeaderMap) -> HeaderValue {
    let is_id = |value: &HeaderValue| {
        let bytes = value.as_bytes();
        (1..=LONGEST_ID).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
    };
    if let Some(own) = headers.get(REQUEST_ID).filter(|value| is_id(value)) {
        return own.clone();
    }
    let id = HeaderValue::try_from(format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..)))
        .expect("digits are a header's value");
    headers.insert(REQUEST_ID, id.clone());
    id
}

async fn to_image(
    shared: &Arc<Shared>,
    definition: Arc<Definition>,
    call: Call,
) -> Result<Response<Body>, Refusal> {
    let mut request = http::Request::new(call.body);
    *request.method_mut() = call.method;
    *request.uri_mut() = call.path.parse().map_err(|error: http::uri::InvalidUri| {
        Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", error.to_string())
    })?;
    let protocol = wanted_protocol(&call.headers);
    *request.headers_mut() = call.headers;
    for name in NOT_PASSED_ON {
        request.headers_mut().remove(name);
    }
    match (protocol, call.upgrade) {
        (Some(protocol), Some(upgrade)) => {
            request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
            request.headers_mut().insert(header::UPGRADE, protocol);
            request.extensions_mut().insert(CallersEnd(upgrade));
        }
        _ => drop(request.headers_mut().remove(header::UPGRADE)),
    }
    let remote: Vec<HeaderName> =
        request.headers().keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    remote.iter().for_each(|name| drop(request.headers_mut().remove(name)));
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("function"));
    [CALL_ID, ATTEMPT].into_iter().for_each(|name| drop(request.headers_mut().remove(name)));
    request.headers_mut().extend(named(call.id.as_ref()));
    for _ in 0..MOST_TRIES {
        let seat = place(shared, &definition, call.came).await?;
        let (timing, is_cold, sent_at) = (timing(&seat, call.came), seat.is_cold, Instant::now());
        match exchange(seat, request, definition.clone(), false).await {
            Sent::Answered(response) => return Ok(timed(response, timing, is_cold, sent_at)),
            Sent::NotSent(unsent) => request = unsent,
        }
    }
    Err(no_pod(&definition, None))
}

/// The protocol that a call wants to go on in, such as WebSocket.
fn wanted_protocol(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut words = connection.flat_map(|value| value.split(','));
    let is_wanted = words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"));
    headers.get(header::UPGRADE).filter(|_| is_wanted).cloned()
}

/// How a call with a name says it.
pub fn named(id: Option<&(String, u32)>) -> Vec<(HeaderName, HeaderValue)> {
    let Some((id, attempt)) = id else { return Vec::new() };
    let id = HeaderValue::from_str(id).ok().map(|id| (HeaderName::from_static(CALL_ID), id));
    let attempt = (HeaderName::from_static(ATTEMPT), HeaderValue::from(*attempt));
    id.into_iter().chain([attempt]).collect()
}

/// A place in a pod, waited for as long as the function says.
async fn place(shared: &Arc<Shared>, definition: &Arc<Definition>, came: Instant) -> Result<Seat, Refusal> {
    let receiver = match shared.event(|fleet, now| fleet.call(definition, now))? {
        Place::Granted(granted) => return Ok(Seat::new(shared.clone(), granted)),
        Place::Waiting(receiver) => receiver,
    };
    let mut waiting = Waiting { shared, receiver };
    let until = came + definition.patience();
    match tokio::time::timeout_at(until, &mut waiting.receiver).await {
        Ok(Ok(granted)) => Ok(Seat::new(shared.clone(), granted?)),
        Ok(Err(_)) => Err(no_pod(definition, None)),
        Err(_) => Err(no_pod(definition, shared.why_not(&definition.desk))),
    }
}

fn no_pod(definition: &Definition, why: Option<String>) -> Refusal {
    let seconds = definition.patience().as_secs();
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    let message = format!(
        "no pod of function {:?} could take the call within {seconds} s (limits.queueSeconds){why}",
        definition.key.name
    );
    Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "NoPodInTime", message)
}

/// A place in the queue; what is granted to a caller who has left is given back.
struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    receiver: oneshot::Receiver<Result<Granted, Refusal>>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        if let Ok(Ok(granted)) = self.receiver.try_recv() {
            drop(Seat::new(self.shared.clone(), granted));
        }
    }
}

/// How long the call waited, and for what.
fn timing(seat: &Seat, came: Instant) -> String {
    let mut text = format!("queue;dur={:.1}", milliseconds(came.elapsed()));
    if seat.is_cold
        && let Some(phases) = phases(&seat.link.times.lock())
    {
        for (phase, took) in PHASES.iter().zip(phases) {
            let _ = write!(text, ", {phase};dur={:.1}", milliseconds(took));
        }
    }
    text
}

fn timed(mut response: Response<Body>, timing: String, is_cold: bool, sent_at: Instant) -> Response<Body> {
    let text = format!("{timing}, answer;dur={:.1}", milliseconds(sent_at.elapsed()));
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    let is_cold = HeaderValue::from_static(if is_cold { "true" } else { "false" });
    response.headers_mut().insert(COLD_START, is_cold);
    response
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
