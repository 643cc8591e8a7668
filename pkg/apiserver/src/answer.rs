//! Answers: objects in the shape the client wants, with warnings, and errors as `Status`.

use crate::body::Body;
use crate::context::Context;
use crate::encoding::{self, ListPieces, Maker, Work};
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::negotiate::{Format, Shape};
use crate::registry::Resource;
use api::{Value, table};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{Response, StatusCode};
use std::sync::Arc;

/// A response that is ready to go.
pub struct Answer(pub Response<Body>);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const YAML: HeaderValue = HeaderValue::from_static("application/yaml");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const NOT_CACHED: HeaderValue = HeaderValue::from_static("no-cache, private");
const WARNING: HeaderName = HeaderName::from_static("warning");
/// Headers are bounded too: warnings that have more characters than this together are cut.
const LONGEST_WARNINGS: usize = 4096;
/// How much is left of each then.
const CUT_WARNING: usize = 256;

impl Answer {
    fn new(code: StatusCode, content_type: HeaderValue, body: Body) -> Answer {
        let mut response = Response::new(body);
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, content_type);
        response.headers_mut().insert(CACHE_CONTROL, NOT_CACHED);
        Answer(response)
    }

    /// Adds what the context collected for the client.
    pub fn with_warnings(mut self, context: &Context) -> Answer {
        for warning in fitting(&context.warnings.lock()) {
            self = self.with_warning(&warning);
        }
        self
    }

    /// Adds one thing that the client should know.
    pub fn with_warning(mut self, warning: &str) -> Answer {
        let text: String = warning.chars().filter(|c| !c.is_control() && c.is_ascii()).collect();
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            self.0.headers_mut().append(WARNING, value);
        }
        self
    }

    /// Keeps something until the answer is taken.
    pub fn keeping(mut self, kept: impl std::any::Any + Send + Sync) -> Answer {
        daemon::keep_until_taken(&mut self.0, kept);
        self
    }

    /// Adds a header.
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Answer {
        self.0.headers_mut().insert(name, value);
        self
    }
}

/// Warnings as they are; where that is too much, the beginning of each, and of the first ones only.
fn fitting(warnings: &[String]) -> Vec<String> {
    let length = |text: &String| text.chars().count();
    if warnings.iter().map(length).sum::<usize>() <= LONGEST_WARNINGS {
        return warnings.to_vec();
    }
    let cut = warnings.iter().map(|warning| warning.chars().take(CUT_WARNING).collect::<String>());
    let mut written = 0;
    cut.take_while(|warning| {
        let fits = written < LONGEST_WARNINGS;
        written += length(warning);
        fits
    })
    .collect()
}

/// No body at all.
pub fn empty(code: StatusCode) -> Answer {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    Answer(response)
}

/// JSON bytes that are there already.
pub fn json_bytes(code: StatusCode, bytes: Bytes) -> Answer {
    Answer::new(code, JSON, Body::full(bytes))
}

/// JSON in pieces, or over time.
pub fn json_body(code: StatusCode, body: Body) -> Answer {
    Answer::new(code, JSON, body)
}

/// Bytes of no particular kind, in pieces.
pub fn octets(code: StatusCode, body: Body) -> Answer {
    Answer::new(code, HeaderValue::from_static("application/octet-stream"), body)
}

/// A value as JSON.
pub fn json(code: StatusCode, value: &Value) -> Answer {
    let bytes = serde_json::to_vec(value).expect("a value is always JSON");
    json_bytes(code, bytes.into())
}

/// Text.
pub fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    Answer::new(code, TEXT, Body::full(text.into()))
}

/// Bytes of any type.
pub fn typed(code: StatusCode, content_type: HeaderValue, bytes: Bytes) -> Answer {
    Answer::new(code, content_type, Body::full(bytes))
}

/// An error.
pub fn error(error: &ApiError) -> Answer {
    let mut answer = json(error.code, &error.status());
    if let Some(seconds) = error.retry_after_seconds {
        answer = answer.with_header(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if error.code == StatusCode::UNAUTHORIZED {
        answer = answer.with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"minik8s\""));
    }
    answer
}

/// One object in the shape and format the client wants.
pub fn object(
    resource: &Resource,
    call: &Call<'_>,
    code: StatusCode,
    object: Value,
    context: &Context,
) -> Result<Answer> {
    shaped(resource, call, code, object).map(|answer| answer.with_warnings(context))
}

/// As [`object`], for reads.
pub fn shaped(resource: &Resource, call: &Call<'_>, code: StatusCode, object: Value) -> Result<Answer> {
    let value = match call.wanted.shape {
        Shape::Object => object,
        Shape::Metadata => call.wanted.meta.of(table::partial_object(&object)),
        Shape::Table => {
            let metadata =
                serde_json::json!({ "resourceVersion": api::object::meta(&object, "resourceVersion") });
            call.wanted.meta.of(table::table(
                &resource.kind,
                [&object].into_iter(),
                metadata,
                include_object(call)?,
                jiff::Timestamp::now(),
            ))
        }
    };
    formatted(call, code, &value)
}

/// A value in the format the client wants.
pub fn formatted(call: &Call<'_>, code: StatusCode, value: &Value) -> Result<Answer> {
    match call.wanted.format {
        Format::Json => Ok(json(code, value)),
        Format::Yaml => yaml(code, &serde_json::to_vec(value).expect("a value is always JSON")),
    }
}

/// YAML of JSON bytes.
pub fn yaml(code: StatusCode, json: &[u8]) -> Result<Answer> {
    let mut text = Vec::with_capacity(json.len());
    encoding::yaml::write_document(&mut text, json).map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Answer::new(code, YAML, Body::full(text)))
}

/// A list in the format and the shape that the client wants: what is small at once, and the rest as it is sent.
pub fn list(call: &Call<'_>, pieces: ListPieces, maker: impl FnOnce() -> Maker) -> Result<Answer> {
    let content_type = match call.wanted.format {
        Format::Json => JSON,
        Format::Yaml => YAML,
    };
    let body = match pieces.bytes() <= encoding::SMALL {
        true => Body::full(pieces.whole()?),
        false => Body::Work(Work::new(pieces, Arc::new(maker()))),
    };
    Ok(Answer::new(StatusCode::OK, content_type, body))
}

/// How much of each object a table's rows carry.
pub fn include_object(call: &Call<'_>) -> Result<table::IncludeObject> {
    match call.query.get("includeObject") {
        None | Some("Metadata") => Ok(table::IncludeObject::Metadata),
        Some("None") => Ok(table::IncludeObject::None),
        Some("Object") => Ok(table::IncludeObject::Object),
        Some(other) => Err(ApiError::bad_request(format!(
            "includeObject: Unsupported value: {other:?}: supported values: \"Metadata\", \"None\", \"Object\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_cut_only_where_they_are_too_much() {
        let check = |lengths: &[usize], expected: &[usize]| {
            let warnings: Vec<String> = lengths.iter().map(|length| "x".repeat(*length)).collect();
            let found: Vec<usize> = fitting(&warnings).iter().map(String::len).collect();
            assert_eq!(found, expected, "{lengths:?}");
        };
        check(&[], &[]);
        check(&[1000, 3096], &[1000, 3096]);
        check(&[1000, 3097, 10], &[256, 256, 10]);
        check(&[5000; 100], &[256; 16]);
    }
}
