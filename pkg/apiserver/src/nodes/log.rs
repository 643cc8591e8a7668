//! `pods/log`.

use super::{Forwarded, connect, forward, location, websocket};
use crate::answer::{self, Answer};
use crate::error::{ApiError, Result};
use crate::request::Query;
use crate::server::Server;
use api::{Errors, Field, object};
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use std::sync::Arc;

/// More of an error's text is not read.
const LARGEST_ERROR: usize = 50_000;

/// Answers with what a container wrote.
pub async fn handle(server: &Arc<Server>, request: Forwarded<'_>) -> Result<Answer> {
    validate(request.query, &request.target.name)?;
    let pod = location::pod(server, request.target)?;
    let container = location::container(&pod, request.query.get("container").unwrap_or_default())?;
    if location::node_name(&pod).is_empty() {
        // Nobody has it yet, so it has written nothing.
        return Ok(answer::text(StatusCode::OK, ""));
    }
    let node = location::node_of(server, &pod)?;
    let path = location::log(&pod, &container, request.query);
    let answered = connect::send(server, &node, forward::get(&path)?).await;
    let answered = answered
        .map_err(|error| ApiError::untyped(format!("Get \"https://{}{path}\": {error}", node.authority())))?;
    let code = answered.status();
    if !code.is_success() {
        let body = Limited::new(answered.into_body(), LARGEST_ERROR).collect().await;
        let text =
            body.map(|body| String::from_utf8_lossy(&body.to_bytes()).into_owned()).unwrap_or_default();
        return Err(refused(code, text, object::name(&pod)));
    }
    if forward::is_upgrade(&request.parts.headers) {
        return websocket::send(server, request.parts, forward::pieces(answered.into_body()));
    }
    let mut response = http::Response::new(forward::stream(server, answered.into_body()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response.extensions_mut().insert(daemon::ForPeople);
    Ok(Answer(response))
}

/// What the kubelet says, as a `Status`.
fn refused(code: StatusCode, text: String, pod: &str) -> ApiError {
    match code {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError {
            message: format!("the server could not find the requested resource ( pods/log {pod})"),
            ..ApiError::no_such_path()
        }
        .with_cause("UnexpectedServerResponse", &text, ""),
        _ => ApiError::internal(text),
    }
}

fn validate(query: &Query, name: &str) -> Result<()> {
    let int = |name: &str| query.int(name);
    let (tail, limit, since) = (int("tailLines")?, int("limitBytes")?, int("sinceSeconds")?);
    let options = json!({
        "tailLines": tail, "limitBytes": limit, "sinceSeconds": since, "stream": query.get("stream").unwrap_or("All"),
    });
    let root = Field::root(&options);
    let mut errors = Errors::new();
    if tail.is_some_and(|tail| tail < 0) {
        root.get("tailLines").invalid("must be greater than or equal to 0", &mut errors);
    }
    if limit.is_some_and(|limit| limit < 1) {
        root.get("limitBytes").invalid("must be greater than 0", &mut errors);
    }
    match (since, query.get("sinceTime")) {
        (Some(_), Some(_)) => {
            root.forbidden("at most one of `sinceTime` or `sinceSeconds` may be specified", &mut errors);
        }
        (Some(since), None) if since < 1 => {
            root.get("sinceSeconds").invalid("must be greater than 0", &mut errors);
        }
        (None, Some(time)) if time.parse::<jiff::Timestamp>().is_err() => {
            return Err(ApiError::bad_request(format!(
                "parsing time {time:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {time:?} as \"2006\""
            )));
        }
        _ => {}
    }
    let stream = options["stream"].as_str().unwrap_or_default();
    if !["All", "Stdout", "Stderr"].contains(&stream) {
        root.get("stream").not_supported(&["All", "Stderr", "Stdout"], &mut errors);
    }
    if stream != "All" && tail.is_some() {
        root.forbidden("`tailLines` and specific `stream` are mutually exclusive for now", &mut errors);
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(&log_options(), name, errors.as_slice()))
}

/// Complaints are about the options, which are no kind of their own.
fn log_options() -> api::Kind {
    api::Kind { kind: "PodLogOptions".into(), ..api::Kind::new::<k8s_openapi::api::core::v1::Pod>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let check = |query: &str, expected: Option<&str>| {
            let found = validate(&Query::parse(Some(query)).unwrap(), "p").err().map(|error| error.message);
            assert_eq!(found.as_deref(), expected, "{query}");
        };
        check("tailLines=5&follow=true&limitBytes=1", None);
        check(
            "tailLines=-1",
            Some(
                "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
            ),
        );
        check(
            "sinceSeconds=0",
            Some("PodLogOptions \"p\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0"),
        );
    }
}
