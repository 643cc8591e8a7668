//! From a request to an answer: understand, identify, permit, dispatch.

use crate::answer::{self, Answer};
use crate::auth::{Attributes, User};
use crate::body::{self, Body};
use crate::context::Context;
use crate::deadline::Deadline;
use crate::error::{ApiError, Result};
use crate::negotiate::{self, Wanted};
use crate::nodes::{self, Forwarded, connect};
use crate::registry::Resource;
use crate::request::{Query, RequestInfo, Target};
use crate::server::{Connection, Server};
use crate::write::Part;
use crate::{apiservices, health, identity, meta_paths, reviews, subresources, verbs};
use api::kind::Verbs;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::time::Instant;

/// A request for a resource, understood and permitted.
pub struct Call<'a> {
    /// What it asks.
    pub info: &'a RequestInfo<'a>,
    /// Of what.
    pub target: &'a Target<'a>,
    /// With which parameters.
    pub query: &'a Query,
    /// With which headers.
    pub headers: &'a HeaderMap,
    /// With which body; empty for reads.
    pub body: Bytes,
    /// Who asks.
    pub user: Arc<User>,
    /// How the answer should look.
    pub wanted: Wanted,
}

impl Call<'_> {
    /// What a write carries beside its object.
    pub fn context(&self) -> Result<Context> {
        Context::new(self.user.clone(), self.query, self.headers, jiff::Timestamp::now())
    }

    /// Whether the user may also create what an update or a patch did not find.
    pub fn may_create(&self, server: &Server) -> Result<()> {
        authorize(server, &Attributes { verb: "create", ..attributes(&self.user, self.info) })
    }
}

/// Answers a request. Errors become answers too.
pub async fn handle(
    server: Arc<Server>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let answer = answer(&server, &connection, &mut parts, body).await;
    let mut response = answer.unwrap_or_else(|error| answer::error(&error)).0;
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    compress(&parts.headers, &mut response);
    Ok(response)
}

async fn answer(
    server: &Arc<Server>,
    connection: &Connection,
    parts: &mut Parts,
    body: Incoming,
) -> Result<Answer> {
    let uri = parts.uri.clone();
    let (method, path, headers) = (&parts.method, uri.path(), &parts.headers);
    let query = Query::parse(uri.query())?;
    let info = RequestInfo::parse(method, path, &query);
    check_method(method, &info)?;
    let is_long_running = apiservices::is_long_running(&info, headers);
    let deadline = Deadline::new(&query, is_long_running, server.config.request_timeout)?;
    let user = identity::authenticate(server, connection, headers)?;
    connection.identify(&user);
    let user = identity::impersonate(server, user, headers)?;
    authorize(server, &attributes(&user, &info))?;
    if let Some(backend) = server.api_services.route(&info) {
        if is_long_running {
            return backend.forward(server, &info, &user, parts, body.boxed_unsync()).await;
        }
        let mut share = server.bodies.share(&user);
        let body = deadline.within(body::read(body, &mut share)).await?;
        let _permit = Permit::take(server, info.verb)?;
        return backend.forward(server, &info, &user, parts, connect::whole(body)).await;
    }
    let Some(target) = &info.target else {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(ApiError::no_such_path());
        }
        if let Some(answer) = health::handle(server, path, &query).await {
            return Ok(answer);
        }
        let known = deadline.within(async { Ok(meta_paths::handle(server, path, headers).await) });
        return known.await?.ok_or_else(ApiError::no_such_path)?;
    };
    let resource = server
        .registry
        .get(target.group, target.version, target.resource)
        .ok_or_else(ApiError::no_such_path)?;
    if nodes::is_forwarded(target) {
        let request = Forwarded { info: &info, target, query: &query, parts, user: &user };
        return nodes::handle(server, &resource, request, body).await;
    }
    let wanted = Wanted::from_headers(headers, resource.kind.verbs != Verbs::CreateOnly);
    let call =
        Call { info: &info, target, query: &query, headers, body: Bytes::new(), user, wanted: wanted? };
    answer_call(server, &resource, call, deadline, body).await
}

/// Answers a request for a resource: first it must be whole, and only then it takes its place among those that are
/// worked on, so that whoever never ends a request holds up nobody.
async fn answer_call(
    server: &Arc<Server>,
    resource: &Arc<Resource>,
    mut call: Call<'_>,
    deadline: Deadline,
    body: Incoming,
) -> Result<Answer> {
    // What is held of the body is given back when the answer is there.
    let mut share = server.bodies.share(&call.user);
    if !matches!(call.info.verb, "get" | "list" | "watch") {
        call.body = deadline.within(body::read(body, &mut share)).await?;
    }
    let _permit = Permit::take(server, call.info.verb)?;
    let started = Instant::now();
    let answer = deadline.within(dispatch(server, resource, &call)).await;
    let code = answer.as_ref().map_or_else(|error| error.code, |answer| answer.0.status());
    resource.metrics.count(call.info.verb, code.as_u16(), started.elapsed());
    match &resource.kind.deprecated {
        Some(warning) => answer.map(|answer| answer.with_warning(warning)),
        None => answer,
    }
}

/// Refuses methods that nobody answers.
fn check_method(method: &Method, info: &RequestInfo<'_>) -> Result<()> {
    let is_known = match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::PATCH | Method::DELETE => true,
        // A matter between the client and what it reaches through us.
        Method::OPTIONS => info.target.as_ref().is_some_and(nodes::is_forwarded),
        _ => false,
    };
    if is_known {
        return Ok(());
    }
    let error = ApiError::bad_request(format!("the server does not support the method {method}"));
    Err(ApiError { code: http::StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed".into(), ..error })
}

async fn dispatch(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call<'_>) -> Result<Answer> {
    let kind = &resource.kind;
    let target = call.target;
    if kind.verbs == Verbs::CreateOnly {
        return match call.info.verb {
            "create" if target.name.is_empty() => reviews::handle(server, resource, call).await,
            verb => Err(ApiError::method_not_allowed(kind, verb)),
        };
    }
    if kind.verbs == Verbs::ReadOnly {
        return nodes::usage::handle(server, resource, call).await;
    }
    if !kind.namespaced() && !target.namespace.is_empty() && target.resource != "namespaces" {
        return Err(ApiError::no_such_path());
    }
    if !target.subresource.is_empty() {
        return subresources::handle(server, resource, call).await;
    }
    let needs_namespace = kind.namespaced() && target.namespace.is_empty();
    match call.info.verb {
        "get" if !needs_namespace => verbs::get::handle(server, resource, call).await,
        "list" => verbs::list::handle(server, resource, call).await,
        "watch" => verbs::watch::handle(server, resource, call).await,
        "create" if target.name.is_empty() && !needs_namespace => {
            verbs::create::handle(server, resource, call).await
        }
        "update" if !target.name.is_empty() && !needs_namespace => {
            verbs::update::handle(server, resource, call, Part::Main).await
        }
        "patch" if !target.name.is_empty() && !needs_namespace => {
            verbs::patch::handle(server, resource, call, Part::Main).await
        }
        "delete" if !needs_namespace => verbs::delete::handle(server, resource, call).await,
        "deletecollection" if !needs_namespace && kind.delete_collection => {
            verbs::delete::handle_collection(server, resource, call).await
        }
        verb => Err(ApiError::method_not_allowed(kind, verb)),
    }
}

/// Whether somebody may; the refusal if not.
pub fn authorize(server: &Server, attributes: &Attributes<'_>) -> Result<()> {
    let decision = server.auth.authorize(attributes);
    if decision.allowed { Ok(()) } else { Err(identity::forbidden(attributes, &decision.reason.to_string())) }
}

/// What a request wants, as authorizers see it.
pub fn attributes<'a>(user: &'a User, info: &'a RequestInfo<'a>) -> Attributes<'a> {
    match &info.target {
        Some(target) => Attributes {
            version: target.version,
            subresource: target.subresource,
            namespace: &target.namespace,
            name: &target.name,
            field_selector: &info.fields,
            ..Attributes::resource(user, info.verb, target.group, target.resource)
        },
        None => Attributes::non_resource(user, info.verb, info.path),
    }
}

/// A place among the requests being answered. Watches take none: they wait, they do not work.
struct Permit<'a>(&'a AtomicI64);

impl<'a> Permit<'a> {
    fn take(server: &'a Server, verb: &str) -> Result<Option<Permit<'a>>> {
        let (counter, most) = match verb {
            "watch" => return Ok(None),
            "get" | "head" | "list" => {
                (&server.metrics.reads_in_flight, server.config.max_requests_in_flight)
            }
            _ => (&server.metrics.writes_in_flight, server.config.max_mutating_requests_in_flight),
        };
        let permit = Permit(counter);
        if counter.fetch_add(1, Relaxed) >= most as i64 {
            server.metrics.rejected.fetch_add(1, Relaxed);
            return Err(ApiError::overloaded());
        }
        Ok(Some(permit))
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn compress(headers: &HeaderMap, response: &mut Response<Body>) {
    let Some(bytes) = response.body().bytes() else { return };
    if response.headers().contains_key(CONTENT_ENCODING) || !negotiate::compress(headers, bytes) {
        return;
    }
    let body = std::mem::replace(response.body_mut(), Body::empty());
    *response.body_mut() = negotiate::gzip(body);
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}
