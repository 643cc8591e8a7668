//! From a request to an answer: understand, identify, permit, dispatch.

use crate::answer::{self, Answer};
use crate::auth::{Attributes, User};
use crate::body::{self, Body};
use crate::budget::{self, Share};
use crate::context::Context;
use crate::deadline::Deadline;
use crate::encoding::{Gzip, Work};
use crate::error::{ApiError, Result};
use crate::negotiate::{self, Wanted};
use crate::nodes::{self, Forwarded, connect};
use crate::registry::Resource;
use crate::request::{self, Query, RequestInfo, Target};
use crate::server::{Connection, Server};
use crate::write::Part;
use crate::{
    apiservices, component_statuses, flowcontrol, health, identity, meta_paths, reviews, scope, subresources,
    verbs,
};
use api::kind::Verbs;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, HeaderValue, VARY};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A request that its user may make. The one value that both authorizers and those who answer read: what is served is
/// what was permitted.
pub struct PermittedRequest<'a> {
    info: RequestInfo<'a>,
    /// Who asks.
    pub user: Arc<User>,
}

impl<'a> PermittedRequest<'a> {
    /// Asks whether the user may.
    fn ask(server: &Server, info: RequestInfo<'a>, user: Arc<User>) -> Result<PermittedRequest<'a>> {
        authorize(server, &attributes(&user, &info))?;
        Ok(PermittedRequest { info, user })
    }

    /// What was asked of the authorizers.
    pub fn attributes(&self) -> Attributes<'_> {
        attributes(&self.user, &self.info)
    }

    /// Whether the user may do this to the same as well; the refusal if not.
    pub fn also(&self, server: &Server, verb: &'static str) -> Result<()> {
        authorize(server, &Attributes { verb, ..attributes(&self.user, &self.info) })
    }
}

impl<'a> Deref for PermittedRequest<'a> {
    type Target = RequestInfo<'a>;

    fn deref(&self) -> &RequestInfo<'a> {
        &self.info
    }
}

/// A request for a resource, understood and permitted.
pub struct Call<'a> {
    /// What it asks.
    pub info: &'a PermittedRequest<'a>,
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
        self.info.also(server, "create")
    }
}

/// Answers a request. Errors become answers too.
pub async fn handle(
    server: Arc<Server>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (mut parts, body) = request.into_parts();
    let mut asker = None;
    let answer = answer(&server, &connection, &mut asker, &mut parts, body).await;
    let mut response = answer.unwrap_or_else(|error| answer::error(&error)).0;
    if parts.method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    if let Some(asker) = asker {
        compress(&server, &asker.user, &parts.headers, &mut response);
        if let Some(waiting) = asker.waiting {
            daemon::keep_until_taken(&mut response, waiting);
        }
    }
    Ok(response)
}

/// Who asks, and what a request takes however little it asks for, until its answer is taken.
struct Asker {
    user: Arc<User>,
    waiting: Option<Share>,
}

/// About what a request takes of memory on its way.
const REQUEST: usize = 4096;

/// Over HTTP/2 one connection may carry many, of which none is ever taken. The cluster's own programs have thousands of
/// watches by right.
fn waiting(server: &Server, user: &Arc<User>, version: Version) -> Result<Option<Share>> {
    if version != Version::HTTP_2 || budget::is_of_the_cluster(user) {
        return Ok(None);
    }
    let mut share = server.waiting.share(user);
    if share.try_grow(REQUEST) { Ok(Some(share)) } else { Err(ApiError::overloaded()) }
}

async fn answer(
    server: &Arc<Server>,
    connection: &Connection,
    asker: &mut Option<Asker>,
    parts: &mut Parts,
    body: Incoming,
) -> Result<Answer> {
    let uri = parts.uri.clone();
    let (method, headers) = (&parts.method, &parts.headers);
    let path = &*request::decoded_path(uri.path())?;
    let query = Query::parse(uri.query())?;
    let info = RequestInfo::parse(method, path, &query)?;
    check_method(method, &info)?;
    let is_long_running = apiservices::is_long_running(&info, headers);
    let deadline = Deadline::new(&query, is_long_running, server.config.request_timeout)?;
    let user = identity::authenticate(server, connection, headers)?;
    connection.identify(&user);
    *asker = Some(Asker { user: user.clone(), waiting: waiting(server, &user, parts.version)? });
    let user = identity::impersonate(server, user, headers)?;
    let info = PermittedRequest::ask(server, info, user)?;
    if let Some(backend) = server.api_services.route(&info)? {
        if is_long_running {
            // A watch must get through to begin; how far it is after that, only the other server knows.
            if info.verb == "watch"
                && let Err(turned_away) = flowcontrol::admit(server, &info, 1, deadline).await
            {
                return Ok(turned_away.answer());
            }
            return backend.forward(server, &info, parts, body.boxed_unsync()).await;
        }
        let mut share = server.bodies.share(&info.user);
        let body = deadline.within(body::read(body, &mut share)).await?;
        let admitted = match flowcontrol::admit(server, &info, 1, deadline).await {
            Ok(admitted) => admitted,
            Err(turned_away) => return Ok(turned_away.answer()),
        };
        return admitted.mark(backend.forward(server, &info, parts, connect::whole(body)).await);
    }
    let Some(target) = &info.target else {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(ApiError::no_such_path());
        }
        let admitted = match flowcontrol::admit(server, &info, 1, deadline).await {
            Ok(admitted) => admitted,
            Err(turned_away) => return Ok(turned_away.answer()),
        };
        if let Some(answer) = health::handle(server, path, &query).await {
            return admitted.mark(Ok(answer));
        }
        let known = deadline.within(async {
            meta_paths::handle(server, path, headers).await.unwrap_or_else(|| Err(ApiError::no_such_path()))
        });
        return admitted.mark(known.await);
    };
    let resource = server
        .registry
        .get(target.group, target.version, target.resource)
        .ok_or_else(ApiError::no_such_path)?;
    scope::check(&resource.kind, target, &info, method)?;
    if nodes::is_forwarded(target) {
        let request = Forwarded { info: &info, target, query: &query, parts };
        return nodes::handle(server, &resource, request, body).await;
    }
    let wanted = Wanted::from_headers(headers, resource.kind.verbs != Verbs::CreateOnly);
    let user = info.user.clone();
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
    let seats = flowcontrol::width(resource, &call);
    let admitted = match flowcontrol::admit(server, call.info, seats, deadline).await {
        Ok(admitted) => admitted,
        Err(turned_away) => {
            resource.metrics.count(call.info.verb, turned_away.code(), Duration::ZERO);
            return Ok(turned_away.answer());
        }
    };
    let started = Instant::now();
    let answer = deadline.within(dispatch(server, resource, &call)).await;
    let code = answer.as_ref().map_or_else(|error| error.code, |answer| answer.0.status());
    resource.metrics.count(call.info.verb, code.as_u16(), started.elapsed());
    admitted.mark(match &resource.kind.deprecated {
        Some(warning) => answer.map(|answer| answer.with_warning(warning)),
        None => answer,
    })
}

/// Refuses methods that nobody answers.
fn check_method(method: &Method, info: &RequestInfo<'_>) -> Result<()> {
    let is_known = match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::PATCH | Method::DELETE => true,
        // A matter between the client and what it reaches through us.
        Method::OPTIONS => info.target.as_ref().is_some_and(nodes::is_forwarded),
        _ => false,
    };
    // What is discovered is read whole.
    let is_discovery =
        info.target.is_none() && ["/api", "/version"].iter().any(|at| info.path.starts_with(at));
    if is_known && !(is_discovery && method == Method::HEAD) {
        return Ok(());
    }
    let error = ApiError::bad_request(format!("the server does not support the method {method}"));
    Err(ApiError { code: http::StatusCode::METHOD_NOT_ALLOWED, reason: "MethodNotAllowed".into(), ..error })
}

async fn dispatch(server: &Arc<Server>, resource: &Arc<Resource>, call: &Call<'_>) -> Result<Answer> {
    let kind = &resource.kind;
    let target = call.target;
    match (kind.verbs, call.info.verb) {
        (Verbs::CreateOnly, "create") => return reviews::handle(server, resource, call).await,
        (Verbs::CreateOnly, verb) => return Err(ApiError::method_not_allowed(kind, verb)),
        (Verbs::ReadOnly, _) if kind.group.is_empty() => {
            return component_statuses::handle(server, resource, call).await;
        }
        (Verbs::ReadOnly, _) => return nodes::usage::handle(server, resource, call).await,
        (Verbs::All, _) if !target.subresource.is_empty() => {
            return subresources::handle(server, resource, call).await;
        }
        (Verbs::All, _) => {}
    }
    match call.info.verb {
        "get" => verbs::get::handle(server, resource, call).await,
        "list" => verbs::list::handle(server, resource, call).await,
        "watch" => verbs::watch::handle(server, resource, call).await,
        "create" if target.is_collection => verbs::create::handle(server, resource, call).await,
        "update" if !target.is_collection => verbs::update::handle(server, resource, call, Part::Main).await,
        "patch" if !target.is_collection => verbs::patch::handle(server, resource, call, Part::Main).await,
        "delete" => verbs::delete::handle(server, resource, call).await,
        "deletecollection" if kind.delete_collection => {
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
            namespace: target.namespace,
            name: &target.name,
            field_selector: info.fields_asked_for(),
            ..Attributes::resource(user, info.verb, target.group, target.resource)
        },
        None => Attributes::non_resource(user, info.verb, info.path),
    }
}

fn compress(server: &Server, user: &Arc<User>, headers: &HeaderMap, response: &mut Response<Body>) {
    if response.headers().contains_key(CONTENT_ENCODING) || !negotiate::compresses(headers, response.body()) {
        return;
    }
    *response.body_mut() = match std::mem::replace(response.body_mut(), Body::empty()) {
        Body::Work(work) => Body::Work(work.map(Gzip::new)),
        there => Body::Work(Work::new(Gzip::new(there), Arc::new(server.maker(user)))),
    };
    response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    response.headers_mut().insert(VARY, HeaderValue::from_static("Accept-Encoding"));
}
