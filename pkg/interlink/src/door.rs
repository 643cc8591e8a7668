//! The servers' side of a hop: connections are taken in bounds, whoever is not known is refused, and the rest is a router's.
//!
//! ```text
//! socket ──> Doors ──> (TLS) ──> Guard: token, certificate or same user? ──> room for the body ──> Router
//! ```
//!
//! Bodies are read only of those who may speak, and all that are read at once share one bound.

use crate::secure::{Guard, is_same_user};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use daemon::{Connection, ConnectionLimits, Doors, Watched};
use http::{Request, StatusCode, header::CONTENT_LENGTH};
use hyper::body::Incoming;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

/// A body is no larger.
const LARGEST_BODY: usize = 32 << 20;
/// All bodies that are read at once, in units of 64 KiB.
const UNIT: usize = 64 << 10;
const ALL_BODIES: usize = (64 << 20) / UNIT;
/// A body is there in this time.
const BODY_PATIENCE: Duration = Duration::from_secs(60);

static ROOM: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(ALL_BODIES)));

/// Serves until shutdown.
pub async fn serve(listener: TcpListener, guard: Guard, router: Router, shutdown: CancellationToken) {
    let doors = Doors::new(ConnectionLimits::small());
    let guard = Arc::new(guard);
    let tasks = TaskTracker::new();
    while let Some(connection) = doors.accept(&listener, &shutdown).await {
        let (guard, router, shutdown) = (guard.clone(), router.clone(), shutdown.clone());
        tasks.spawn(async move { take(connection, guard, router, &shutdown).await });
    }
    tasks.close();
    tasks.wait().await;
}

async fn take(
    connection: Connection<Watched>,
    guard: Arc<Guard>,
    router: Router,
    shutdown: &CancellationToken,
) {
    let ends = connection.io().addresses().ok();
    let is_own = ends.is_some_and(|(own, peer)| !guard.lets_anybody_in() || is_same_user(own, peer));
    let peer = connection.peer().clone();
    let handle = {
        let guard = guard.clone();
        move |request: Request<Incoming>| {
            let (guard, router, peer) = (guard.clone(), router.clone(), peer.clone());
            async move {
                if let Some(refused) = refuse(&guard, is_own, &request) {
                    return refused;
                }
                peer.is_user("interlink");
                let Ok(answer) = router.oneshot(request.map(Body::new)).await;
                answer
            }
        }
    };
    match guard.server_config() {
        Ok(None) => connection.serve(handle, shutdown).await,
        Ok(Some(config)) => {
            if let Some(secured) = connection.secure(&TlsAcceptor::from(config)).await {
                secured.serve(handle, shutdown).await;
            }
        }
        Err(error) => tracing::error!(error = kubelet::error::chain(&error), "no certificate to show"),
    }
}

/// The answer to whoever may not speak; none: it may.
fn refuse<B>(guard: &Guard, is_own: bool, request: &Request<B>) -> Option<Response> {
    let answer = |code: StatusCode, why: &'static str| Some((code, why).into_response());
    if !is_own {
        let why = "without a token or client certificates only processes of the same user are answered";
        return answer(StatusCode::FORBIDDEN, why);
    }
    match guard.admits(request.headers()) {
        Ok(true) => None,
        Ok(false) => answer(StatusCode::UNAUTHORIZED, "Unauthorized: the bearer token is missing or wrong"),
        Err(error) => {
            tracing::error!(error = kubelet::error::chain(&error), "no token to compare with");
            answer(StatusCode::INTERNAL_SERVER_ERROR, "the server has no token to compare with")
        }
    }
}

/// A body that was read, and its share of the room.
pub struct Read {
    /// Itself.
    pub bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

/// Reads the body of a request.
pub async fn read(request: axum::extract::Request) -> Result<Read, Response> {
    let too_large = || {
        (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {LARGEST_BODY} bytes"))
            .into_response()
    };
    let said =
        request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let most = said.unwrap_or(LARGEST_BODY);
    if most > LARGEST_BODY {
        return Err(too_large());
    }
    let units = u32::try_from(most / UNIT + 1).unwrap_or(1);
    let room = ROOM
        .clone()
        .acquire_many_owned(units)
        .await
        .map_err(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())?;
    let read =
        tokio::time::timeout(BODY_PATIENCE, axum::body::to_bytes(request.into_body(), LARGEST_BODY)).await;
    match read {
        Ok(Ok(bytes)) => Ok(Read { bytes, _room: room }),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the body did not come").into_response()),
    }
}

/// An answer in JSON.
pub fn json(value: &serde_json::Value) -> Response {
    ([(http::header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
