//! The paths of a plugin, whatever the method.

use super::{Site, SiteError};
use crate::api::{Failures, Refusal, log};
use crate::door::{self, json};
use crate::names::PodName;
use crate::wire::{self, Created, Generation, LogRequest, RetrievedPod};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::StatusCode;
use std::sync::Arc;

type Plugin = State<Arc<dyn Site>>;

/// All paths.
pub(super) fn router(site: Arc<dyn Site>) -> Router {
    Router::new()
        .route("/create", any(create))
        .route("/delete", any(delete))
        .route("/status", any(status))
        .route("/getLogs", any(logs))
        .with_state(site)
}

impl From<SiteError> for (StatusCode, String) {
    fn from(error: SiteError) -> (StatusCode, String) {
        let code = match &error {
            SiteError::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            SiteError::Unknown(_) => StatusCode::NOT_FOUND,
            SiteError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, error.to_string())
    }
}

fn bad(what: String) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, what)
}

async fn create(State(site): Plugin, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (generation, pods) = match RetrievedPod::decode(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(error.to_string()).into_response(),
    };
    let (mut made, mut failures) = (Vec::new(), Failures::default());
    for given in pods {
        match given {
            Err(error) => failures.bad(&error),
            Ok(given) => match take(&*site, given).await {
                Ok(created) => made.push(created),
                Err(refused) => failures.note(refused),
            },
        }
    }
    match failures.result() {
        Err(refused) => refused.into_response(),
        Ok(()) if generation == Generation::Objects => json(&serde_json::json!(made.pop())),
        Ok(()) => json(&serde_json::json!(made)),
    }
}

async fn take(site: &dyn Site, given: RetrievedPod) -> Result<Created, Refusal> {
    let name = PodName::of(&given.pod).map_err(bad)?;
    let job = site.create(&name, given).await?;
    tracing::info!(namespace = name.namespace, pod = name.name, job, "pod taken on");
    Ok(Created { uid: name.uid, job })
}

async fn delete(State(site): Plugin, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (_, pods) = match wire::decode_pods(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(error.to_string()).into_response(),
    };
    let mut failures = Failures::default();
    for pod in pods {
        let name = match &pod {
            Err(error) => Err(bad(error.to_string())),
            Ok(pod) => PodName::of(pod).map_err(bad),
        };
        let done = match name {
            Err(refused) => Err(refused),
            Ok(name) => site.delete(&name).await.map_err(Refusal::from),
        };
        match done {
            // What is not there is deleted.
            Ok(()) | Err((StatusCode::NOT_FOUND, _)) => {}
            Err(refused) => failures.note(refused),
        }
    }
    match failures.result() {
        Ok(()) => (StatusCode::OK, "Pods deleted").into_response(),
        Err(refused) => refused.into_response(),
    }
}

/// The statuses of the pods that are asked for, and are known. To ask for none is a ping.
async fn status(State(site): Plugin, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let (_, pods) = match wire::decode_pods(&read.bytes) {
        Ok(decoded) => decoded,
        Err(error) => return bad(error.to_string()).into_response(),
    };
    if pods.is_empty() {
        return match site.size().await {
            Some(pong) => json(&serde_json::json!(pong)),
            None => json(&serde_json::json!([])),
        };
    }
    let names = pods.iter().flatten().filter_map(|pod| PodName::of(pod).ok());
    let states: Vec<_> = names.filter_map(|name| site.state(&name)).collect();
    json(&wire::encode_states(&states))
}

async fn logs(State(site): Plugin, request: Request) -> Response {
    let read = match door::read(request).await {
        Ok(read) => read,
        Err(refused) => return refused,
    };
    let asked = match LogRequest::decode(&read.bytes) {
        Ok(asked) => asked,
        Err(error) => return bad(error.to_string()).into_response(),
    };
    drop(read);
    let name = PodName { namespace: asked.namespace, name: asked.pod_name, uid: asked.pod_uid };
    match site.logs(&name, &asked.container_name, &asked.opts).await {
        Ok(stream) => log(Body::from_stream(stream)),
        Err(error) => Refusal::from(error).into_response(),
    }
}
