//! The way in: a call is understood, permitted, given a place in a pod, and answered.
//!
//! ```text
//! POST /functions/NAMESPACE/NAME[/PATH]   with a token        ──┐
//! POST …/namespaces/NS/functions/NAME/invoke   by the API server ┴─> Access ─> Fleet::call ─> exchange ─> answer
//! ```

use crate::access::Access;
use crate::answer;
use crate::controller::Shared;
use crate::definition::{Definition, Program};
use crate::exchange::{Seat, Sent, exchange};
use crate::fleet::{Granted, Place, Refusal};
use crate::metrics::{PHASES, phases};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use client::Key;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use parking_lot::RwLock;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Says whether a pod started for the call.
const COLD_START: HeaderName = HeaderName::from_static("x-cold-start");
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

/// Whoever connected: the API server, handing on who asks, or somebody with a token.
#[derive(Clone)]
pub struct Peer {
    /// By its certificate.
    pub is_front_proxy: bool,
    /// Who holds the connection, once that is known.
    pub holder: Arc<daemon::Peer>,
}

/// What every call needs. Clones share it.
#[derive(Clone)]
pub struct Activator {
    leading: Arc<RwLock<Option<Arc<Shared>>>>,
    access: Arc<Access>,
}

/// A call, on its way.
struct Call {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Body,
    came: Instant,
}

impl Activator {
    /// One that refuses calls until it leads.
    pub fn new(access: Access) -> Activator {
        Activator { leading: Arc::default(), access: Arc::new(access) }
    }

    /// It leads, or no more.
    pub fn leads(&self, shared: Option<Arc<Shared>>) {
        *self.leading.write() = shared;
    }

    /// The pod with this hash of its token has told that it listens.
    pub fn told(&self, token_hash: &str) {
        if let Ok(shared) = self.shared() {
            shared.told(token_hash);
        }
    }

    /// All paths.
    pub fn routes(self) -> Router {
        Router::new()
            .route("/functions/{namespace}/{name}", any(from_inside))
            .route("/functions/{namespace}/{name}/{*path}", any(from_inside))
            .route(
                "/apis/minik8s.io/v1/namespaces/{namespace}/functions/{name}/invoke",
                post(from_api_server),
            )
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(is_ready))
            .with_state(self)
    }

    fn shared(&self) -> Result<Arc<Shared>, Refusal> {
        self.leading.read().clone().ok_or_else(|| {
            let message = "this activator does not lead now: try again";
            Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "NotLeading", message)
        })
    }

    async fn answer(
        &self,
        function: Key,
        rest: String,
        request: Request,
        is_permitted: bool,
    ) -> Response<Body> {
        let came = Instant::now();
        let answered = self.try_answer(&function, rest, request, is_permitted, came).await;
        let response = answered.unwrap_or_else(|refusal| answer::refusal(&refusal));
        // What does not exist is not counted: anybody could make up names.
        if response.status() != StatusCode::NOT_FOUND
            && let Ok(shared) = self.shared()
        {
            shared.metrics.called(&function, response.status(), came.elapsed());
        }
        response
    }

    async fn try_answer(
        &self,
        function: &Key,
        rest: String,
        request: Request,
        is_permitted: bool,
        came: Instant,
    ) -> Result<Response<Body>, Refusal> {
        let shared = self.shared()?;
        let definition = shared.definition(function);
        let is_public = definition.as_ref().is_some_and(|definition| definition.function.spec.public);
        if !is_permitted && !is_public {
            let user = self.access.check(request.headers(), function).await?;
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.holder.is_user(&user);
            }
        }
        let definition = definition.ok_or_else(|| {
            let message = format!("functions.minik8s.io {:?} not found", function.name);
            Refusal::new(StatusCode::NOT_FOUND, "NotFound", message)
        })?;
        let program = definition
            .program()
            .map_err(|why| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "UnknownRuntime", why))?;
        let (parts, body) = request.into_parts();
        let path = path_and_query(&rest, &parts.uri);
        let call = Call { method: parts.method, path, headers: parts.headers, body, came };
        match program {
            Program::Source(_) if call.method != Method::POST => {
                let message = "a function is called by POST";
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message))
            }
            Program::Source(_) => to_source(&shared, definition, call).await,
            Program::Image(_) => to_image(&shared, definition, call).await,
        }
    }
}

async fn from_inside(
    State(activator): State<Activator>,
    Path(names): Path<Vec<String>>,
    request: Request,
) -> Response<Body> {
    let [namespace, name, rest @ ..] = names.as_slice() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let function = Key::new(namespace.clone(), name.clone());
    let rest = rest.first().cloned().unwrap_or_default();
    activator.answer(function, rest, request, false).await
}

async fn from_api_server(
    State(activator): State<Activator>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    if !request.extensions().get::<Peer>().is_some_and(|peer| peer.is_front_proxy) {
        let message = "only the API server calls this: others call /functions/NAMESPACE/NAME";
        return answer::refusal(&Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", message));
    }
    activator.answer(Key::new(namespace, name), String::new(), request, true).await
}

async fn is_ready(State(activator): State<Activator>) -> Response<Body> {
    match activator.shared() {
        Ok(_) => "ok".into_response(),
        Err(refusal) => answer::refusal(&refusal),
    }
}

fn path_and_query(rest: &str, uri: &Uri) -> String {
    match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    }
}

async fn to_source(
    shared: &Arc<Shared>,
    definition: Arc<Definition>,
    call: Call,
) -> Result<Response<Body>, Refusal> {
    let (most, _) = definition.most_bytes();
    let too_large = || {
        let message = format!("the body is larger than {most} bytes (limits.requestBytes)");
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestTooLarge", message)
    };
    let length =
        call.headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > most) {
        return Err(too_large());
    }
    let body = match tokio::time::timeout(BODY_PATIENCE, Limited::new(call.body, most).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return Err(too_large()),
        _ => return Err(Refusal::new(StatusCode::BAD_REQUEST, "BadRequest", "the body broke off")),
    };
    let passed_on: Vec<(HeaderName, HeaderValue)> = PASSED_ON
        .iter()
        .filter_map(|name| Some((HeaderName::from_static(name), call.headers.get(*name)?.clone())))
        .collect();
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
    *request.headers_mut() = call.headers;
    for name in NOT_PASSED_ON {
        request.headers_mut().remove(name);
    }
    let remote: Vec<HeaderName> =
        request.headers().keys().filter(|name| name.as_str().starts_with("x-remote-")).cloned().collect();
    remote.iter().for_each(|name| drop(request.headers_mut().remove(name)));
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("function"));
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
        Err(_) => Err(no_pod(definition, shared.why_not(&definition.key))),
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
