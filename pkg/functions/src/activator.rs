//! The way in: a call is understood, permitted, given a place in a pod, and answered.
//!
//! ```text
//! POST /functions/NAMESPACE/NAME[/PATH]   with a token        ──┐
//! POST …/namespaces/NS/functions/NAME/invoke   by the API server ┴─> Access ─> Fleet::call ─> exchange ─> answer
//! ```

use crate::access::Access;
use crate::answer;
use crate::call::{self, Call};
use crate::controller::Shared;
use crate::fleet::Refusal;
use crate::promised;
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use client::Key;
use http::{Response, StatusCode, Uri};
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// By which the API server says who asks.
const REMOTE_USER: &str = "x-remote-user";
/// Who has just begun leads before this; who does not is one of several.
const TO_LEAD: Duration = Duration::from_secs(5);

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
    leading: watch::Sender<Option<Arc<Shared>>>,
    access: Arc<Access>,
}

impl Activator {
    /// One that refuses calls until it leads.
    pub fn new(access: Access) -> Activator {
        Activator { leading: watch::Sender::new(None), access: Arc::new(access) }
    }

    /// It leads, or no more.
    pub fn leads(&self, shared: Option<Arc<Shared>>) {
        self.leading.send_replace(shared);
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
            .route("/apis/minik8s.io/v1/namespaces/{namespace}/functions/{name}/log", get(log))
            .route("/healthz", get(async || "ok"))
            .route("/readyz", get(is_ready))
            .with_state(self)
    }

    fn shared(&self) -> Result<Arc<Shared>, Refusal> {
        self.leading.borrow().clone().ok_or_else(|| {
            let message = "this activator does not lead now: try again";
            Refusal::for_now(StatusCode::SERVICE_UNAVAILABLE, "NotLeading", message)
        })
    }

    /// What leads, waited for while this one begins to.
    async fn leader(&self) -> Result<Arc<Shared>, Refusal> {
        let mut leading = self.leading.subscribe();
        let _ = tokio::time::timeout(TO_LEAD, leading.wait_for(Option::is_some)).await;
        self.shared()
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
        // What does not exist is not counted, since anybody could make up names; nor what was only promised.
        if response.status() != StatusCode::ACCEPTED
            && let Ok(shared) = self.shared()
            && shared.definition(&function).is_some()
        {
            shared.called(&function, response.status(), came.elapsed());
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
        let shared = self.leader().await?;
        let definition = shared.next_definition(function);
        let is_public = definition.as_ref().is_some_and(|definition| definition.function.spec.public);
        // What is kept for later belongs to somebody.
        let is_later = promised::is_wanted(request.headers());
        let user: Option<Arc<str>> = if is_permitted {
            request.headers().get(REMOTE_USER).and_then(|value| value.to_str().ok()).map(Arc::from)
        } else if !is_public || is_later {
            let user = self.access.check(request.headers(), function).await?;
            if let Some(peer) = request.extensions().get::<Peer>() {
                peer.holder.is_user(&user);
            }
            Some(user)
        } else {
            None
        };
        let definition = definition.ok_or_else(|| {
            let message = format!("functions.minik8s.io {:?} not found", function.name);
            Refusal::new(StatusCode::NOT_FOUND, "NotFound", message)
        })?;
        let (mut parts, body) = request.into_parts();
        let request_id = call::request_id(&mut parts.headers);
        let answered = if is_later {
            let (most, _) = definition.most_bytes();
            let body = call::whole(&parts.headers, body, most).await?;
            promised::accept(&shared, &definition, &parts.headers, &body, user.as_deref().unwrap_or_default())
                .await
        } else {
            let path = path_and_query(&rest, &parts.uri);
            let upgrade = parts.extensions.remove::<OnUpgrade>();
            let (method, headers) = (parts.method, parts.headers);
            let call = Call { method, path, headers, body, came, id: None, upgrade };
            call::make(&shared, definition, call).await
        };
        let mut response = answered.unwrap_or_else(|refusal| answer::refusal(&refusal));
        response.headers_mut().insert(call::REQUEST_ID, request_id);
        Ok(response)
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

/// Whoever is not the API server is told to go elsewhere.
fn check_front_proxy(request: &Request) -> Result<(), Refusal> {
    match request.extensions().get::<Peer>().is_some_and(|peer| peer.is_front_proxy) {
        true => Ok(()),
        false => {
            let message = "only the API server calls this: others call /functions/NAMESPACE/NAME";
            Err(Refusal::new(StatusCode::UNAUTHORIZED, "Unauthorized", message))
        }
    }
}

/// What a function's pods have written that are gone.
async fn log(
    State(activator): State<Activator>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    if let Err(refusal) = check_front_proxy(&request) {
        return answer::refusal(&refusal);
    }
    drop(request);
    match activator.leader().await {
        Ok(shared) => shared.logs.lock().of(&Key::new(namespace, name)).into_response(),
        Err(refusal) => answer::refusal(&refusal),
    }
}

async fn from_api_server(
    State(activator): State<Activator>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Response<Body> {
    if let Err(refusal) = check_front_proxy(&request) {
        return answer::refusal(&refusal);
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
