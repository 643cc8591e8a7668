//! What the server must ask others for: logs, exec, attach and port-forward of the kubelets, `proxy` of pods, services
//! and nodes, and the usage that `metrics.k8s.io` shows.
//!
//! ```text
//! request ─ location (host, port, path) ─> connect (TCP, TLS) ─> forward ─┬─ an answer, streamed
//!                                                                         └─ an upgrade: bytes both ways
//! metrics.k8s.io ─> usage ─ /stats/summary of each node, remembered for some seconds
//! ```
//!
//! It decides nothing about what goes through: a WebSocket is bytes. Nobody is asked anything before somebody asks us.

pub mod connect;
pub mod forward;
mod links;
mod location;
mod log;
mod metrics_kinds;
pub mod usage;
mod websocket;

pub use location::{Place, Scheme, endpoint_of, escaped, has_slices};
pub use metrics_kinds::kinds as metrics_kinds;
pub use usage::Usages;

use crate::admission::Operation;
use crate::admission::question::{self, Question};
use crate::answer::{self, Answer};
use crate::apiservices;
use crate::context::Context;
use crate::error::{ApiError, Result};
use crate::handler::PermittedRequest;
use crate::registry::Resource;
use crate::request::{Query, Target};
use crate::server::Server;
use api::Value;
use http::header::{HOST, HeaderValue, LOCATION};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use links::Links;
use std::sync::Arc;

/// Whether a request is for somebody else.
pub fn is_forwarded(target: &Target<'_>) -> bool {
    if is_of_functions(target) {
        return true;
    }
    target.group.is_empty()
        && matches!(
            (target.resource, target.subresource),
            ("pods", "log" | "exec" | "attach" | "portforward" | "proxy") | ("services" | "nodes", "proxy")
        )
}

fn is_of_functions(target: &Target<'_>) -> bool {
    target.group == "minik8s.io"
        && matches!(
            (target.resource, target.subresource),
            ("functions", "invoke" | "log") | ("workflows", "run") | ("workflowruns", "approve")
        )
}

/// A request for somebody else, understood and permitted.
pub struct Forwarded<'a> {
    /// What it asks.
    pub info: &'a PermittedRequest<'a>,
    /// Of what.
    pub target: &'a Target<'a>,
    /// With which parameters.
    pub query: &'a Query,
    /// As it came.
    pub parts: &'a mut Parts,
}

/// Answers with what others answer.
pub async fn handle(
    server: &Arc<Server>,
    resource: &Resource,
    request: Forwarded<'_>,
    body: Incoming,
) -> Result<Answer> {
    server.catch_up().await?;
    let target = request.target;
    if is_of_functions(target) {
        return match (target.subresource, request.info.verb) {
            ("invoke" | "run" | "approve", "create") | ("log", "get") => {
                apiservices::invoke(server, request, body).await
            }
            (_, verb) => Err(ApiError::method_not_allowed(&resource.kind, verb)),
        };
    }
    if target.subresource != "log" && request.query.all("dryRun").next().is_some() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    if target.subresource != "log" && !question::nobody_is_asked(server) {
        Box::pin(ask_others(server, resource, &request)).await?;
    }
    match (target.subresource, request.info.verb) {
        ("log", "get") => log::handle(server, request).await,
        ("exec" | "attach" | "portforward", "get" | "create") => stream(server, request).await,
        ("proxy", _) => proxy(server, request, body).await,
        (_, verb) => Err(ApiError::method_not_allowed(&resource.kind, verb)),
    }
}

/// Asks others whether the connection may be made.
async fn ask_others(server: &Server, resource: &Resource, request: &Forwarded<'_>) -> Result<()> {
    let (target, query) = (request.target, request.query);
    let context =
        Context::new(request.info.user.clone(), query, &request.parts.headers, jiff::Timestamp::now())?;
    let options = location::connect_options(target, query);
    let kind = options["kind"].as_str().unwrap_or_default().to_owned();
    let question = Question {
        subresource: target.subresource,
        takes: Some(("", "v1", &kind)),
        name: &target.name,
        namespace: target.namespace,
        ..Question::about(server, &context, Operation::Connect, &resource.kind, &Value::Null)
    };
    question::ask_all(&question, Some(&mut options.clone()), None).await
}

/// exec, attach and port-forward: whoever may only read may not begin one, although a WebSocket begins with a GET.
async fn stream(server: &Arc<Server>, request: Forwarded<'_>) -> Result<Answer> {
    request.info.also(server, "create")?;
    let pod = location::pod(server, request.target)?;
    let path = location::stream(&pod, request.target.subresource, request.query)?;
    let node = location::node_of(server, &pod)?;
    if !forward::is_upgrade(&request.parts.headers) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let sent = forward::request(request.parts, &path, None)?;
    let answer = connect::send(server, &node, sent).await;
    let answer = answer.map_err(|error| ApiError::internal(format!("error dialing backend: {error}")))?;
    let code = answer.status();
    // Where it sends the client, the client would go with its credentials.
    if code != StatusCode::SWITCHING_PROTOCOLS && code.as_u16() < 400 {
        return Err(ApiError::internal(format!("invalid upgrade response: status code {}", code.as_u16())));
    }
    Ok(forward::answer(server, request.parts, answer))
}

/// `proxy`: any request at all.
async fn proxy(server: &Arc<Server>, request: Forwarded<'_>, body: Incoming) -> Result<Answer> {
    let place = match request.target.resource {
        "pods" => location::pod_place(server, request.target)?,
        "services" => location::service_place(server, request.target)?,
        _ => location::node_place(server, request.target)?,
    };
    let (path, query) = (request.parts.uri.path(), request.parts.uri.query());
    let rest = request.target.rest(path);
    let is_read = matches!(request.parts.method, Method::GET | Method::HEAD);
    if rest.is_empty() && is_read && !forward::is_upgrade(&request.parts.headers) {
        return Ok(redirect(&with_query(&format!("{path}/"), query)));
    }
    // The slash that it begins with may have come encoded.
    let after = ["/", "%2F", "%2f"].iter().find_map(|slash| rest.strip_prefix(slash)).unwrap_or(rest);
    let wanted = with_query(&format!("/{after}"), query);
    let sent = forward::request(request.parts, &wanted, Some(body.boxed_unsync()))?;
    let answer = connect::send(server, &place, sent).await;
    let answer =
        answer.map_err(|error| ApiError::unavailable(format!("error trying to reach service: {error}")))?;
    if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(forward::answer(server, request.parts, answer));
    }
    let host = request.parts.headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (prefix, authority) = (&path[..path.len() - rest.len()], place.authority());
    let links = Links { prefix, hosts: [host, &authority] };
    Ok(forward::page(server, answer, &links).await)
}

fn with_query(path: &str, query: Option<&str>) -> String {
    match query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// Relative links in what is served at the root need a path that ends in a slash.
fn redirect(to: &str) -> Answer {
    let moved = answer::empty(StatusCode::MOVED_PERMANENTLY);
    match HeaderValue::from_str(to) {
        Ok(to) => moved.with_header(LOCATION, to),
        Err(_) => moved,
    }
}
