//! The paths of the API server, of both generations, whatever the method: published descriptions disagree about those.

use super::{ApiServer, Refusal, refusal};
use crate::door::{self, json};
use crate::wire::{self, Generation, LogRequest, Submission};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;

/// Until a log begins.
const LOG: Duration = Duration::from_secs(30);

type Server = State<Arc<ApiServer>>;

/// All paths.
pub(super) fn router(server: Arc<ApiServer>) -> Router {
    Router::new()
        .route("/create", any(create))
        .route("/delete", any(delete))
        .route("/status", any(status))
        .route("/getLogs", any(logs))
        .route("/ping", any(ping))
        .route("/pinglink", any(pinglink))
        .route("/setKubeCFG", any(set_kubeconfig))
        .route("/updateCache", any(update_cache))
        .with_state(server)
}

fn bad(error: &wire::BadBody) -> Response {
    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
}

async fn create(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (generation, pods) = match Submission::decode(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(&error),
    };
    let (mut made, mut failures) = (Vec::new(), Failures::default());
    for given in pods {
        match given {
            Err(error) => failures.bad(&error),
            Ok(given) => match server.create(given, generation).await {
                Ok(created) => made.push(serde_json::json!(created)),
                Err(refused) => failures.note(refused),
            },
        }
    }
    match failures.result() {
        Err((code, words)) => (code, words).into_response(),
        Ok(()) if generation == Generation::Objects => json(&made.pop().unwrap_or_default()),
        Ok(()) => json(&made.into()),
    }
}

async fn delete(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (generation, pods) = match wire::decode_pods(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(&error),
    };
    let mut failures = Failures::default();
    for pod in pods {
        match pod {
            Err(error) => failures.bad(&error),
            Ok(pod) => {
                if let Err(refused) = server.delete(&pod, generation).await {
                    failures.note(refused);
                }
            }
        }
    }
    match failures.result() {
        Ok(()) => (StatusCode::OK, "Pods deleted").into_response(),
        Err((code, words)) => (code, words).into_response(),
    }
}

/// What failed of a batch, where others may have gone well: the first failure gives the status, all of them the words.
#[derive(Default)]
pub(crate) struct Failures(Option<Refusal>);

impl Failures {
    /// One of a batch is not what it should be.
    pub fn bad(&mut self, error: &wire::BadBody) {
        self.note((StatusCode::BAD_REQUEST, error.to_string()));
    }

    /// One of a batch failed.
    pub fn note(&mut self, (code, words): Refusal) {
        match &mut self.0 {
            None => self.0 = Some((code, words)),
            Some((_, all)) => all.extend(["\n", &words]),
        }
    }

    /// All of it.
    pub fn result(self) -> Result<(), Refusal> {
        self.0.map_or(Ok(()), Err)
    }
}

async fn status(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (_, pods) = match wire::decode_pods(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(&error),
    };
    match server.status(&pods).await {
        Ok(states) => json(&wire::encode_states(&states)),
        Err((code, words)) => (code, words).into_response(),
    }
}

async fn logs(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let asked = match LogRequest::decode(&read.bytes) {
        Ok(asked) => asked,
        Err(error) => return bad(&error),
    };
    let body = asked.encode().to_string().into_bytes();
    match server.plugin.stream("/getLogs", Method::GET, body, LOG).await {
        Ok(incoming) => log(Body::from_stream(incoming.into_data_stream())),
        Err(error) => refusal(error).into_response(),
    }
}

/// A log, which people look at as it comes.
pub(crate) fn log(body: Body) -> Response {
    let mut answer = ([(http::header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response();
    answer.extensions_mut().insert(daemon::ForPeople);
    answer
}

/// The first generation's ping is about this server only.
async fn ping() -> Response {
    (StatusCode::OK, "OK").into_response()
}

/// The newer one's is about the plugin, too, and tells what it has.
async fn pinglink(State(server): Server) -> Response {
    match server.ping().await {
        Ok(Some(pong)) => json(&serde_json::json!(pong)),
        Ok(None) => json(&serde_json::json!({"status": "OK"})),
        Err((code, words)) => (code, words).into_response(),
    }
}

async fn set_kubeconfig(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    match server.credential.replace(&read.bytes).await {
        Ok(()) => (StatusCode::OK, "OK").into_response(),
        Err((code, words)) => (code, words).into_response(),
    }
}

/// A newer virtual node tells that it has forgotten a pod, by its uid.
async fn update_cache(State(server): Server, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let text = String::from_utf8_lossy(&read.bytes);
    // Only what was said of it: the pod itself is there until it is deleted.
    server.statuses.forget_answer(text.trim().trim_matches('"'));
    (StatusCode::OK, "Updated cache").into_response()
}
