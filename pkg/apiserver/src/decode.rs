//! From a request's body to an object of its kind: JSON, YAML or protobuf, checked against the schema.

use crate::context::{Context, FieldValidation};
use crate::error::{ApiError, Result};
use api::schema::TypeError;
use api::{Kind, Value, decode, protobuf};
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde_saphyr::options::DuplicateKeyPolicy;

/// The media type of a body, without parameters; JSON where nothing is said.
pub fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .map(str::trim)
        .filter(|value| !value.is_empty())
        .unwrap_or("application/json")
}

/// A body as plain JSON, with the fields that stand twice in it.
pub fn document(headers: &HeaderMap, body: &[u8]) -> Result<decode::Decoded> {
    match media_type(headers) {
        "application/json" => json(body),
        "application/yaml" | "application/x-yaml" => yaml(body),
        protobuf::MEDIA_TYPE => {
            protobuf::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))
        }
        _ => Err(ApiError::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// The JSON text of a patch.
pub fn patch(body: &[u8]) -> Result<Value> {
    let decoded = decode::decode(body).map_err(|error| {
        let text = error.to_string();
        let why = text.rsplit_once("json parse error: ").map_or(&*text, |(_, why)| why);
        ApiError::bad_request(format!("error decoding patch: {why}"))
    })?;
    Ok(decoded.value)
}

/// JSON text.
pub fn json(body: &[u8]) -> Result<decode::Decoded> {
    decode::decode(body).map_err(|error| ApiError::bad_request(error.to_string()))
}

/// YAML text (of which JSON is a part, and decoded as such where it is).
pub fn yaml(body: &[u8]) -> Result<decode::Decoded> {
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
        && let Ok(decoded) = decode::decode(body)
    {
        return Ok(decoded);
    }
    let text = std::str::from_utf8(body)
        .map_err(|_| ApiError::bad_request("error converting YAML to JSON: not UTF-8"))?;
    let wrong = |error| ApiError::bad_request(format!("error converting YAML to JSON: {error}"));
    match serde_saphyr::from_str(text) {
        Ok(value) => Ok(decode::Decoded { value, duplicates: Vec::new() }),
        Err(error) => match stands_twice(&error) {
            // How bad that is, the request says. Of the two the last counts.
            Some(complaint) => {
                let last_wins = serde_saphyr::options! { duplicate_keys: DuplicateKeyPolicy::LastWins };
                let value = serde_saphyr::from_str_with_options(text, last_wins).map_err(wrong)?;
                Ok(decode::Decoded { value, duplicates: vec![complaint] })
            }
            None => Err(wrong(error)),
        },
    }
}

/// What upstream says of YAML in which a key stands twice, if that is what is wrong.
fn stands_twice(error: &serde_saphyr::Error) -> Option<String> {
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return None;
    };
    let key = key.as_deref().unwrap_or_default();
    Some(format!("{YAML_ERRORS}  line {}: key {key:?} already set in map", location.line()))
}

/// Before what is wrong with YAML, a line each.
const YAML_ERRORS: &str = "yaml: unmarshal errors:\n";

/// A body as an object of the kind: identity checked, shape checked, unknown fields dealt with.
pub fn object(kind: &Kind, headers: &HeaderMap, body: &[u8], context: &Context) -> Result<Value> {
    let decoded = document(headers, body)?;
    checked(kind, decoded, context)
}

/// A decoded document as an object of the kind.
pub fn checked(kind: &Kind, decoded: decode::Decoded, context: &Context) -> Result<Value> {
    let decode::Decoded { mut value, duplicates } = decoded;
    identify(kind, &mut value)?;
    let wrong_type = |error: TypeError| match &context.patch {
        Some(patch) => ApiError::invalid_patch(patch, &error.to_string()),
        // The sentence is upstream's, which may name no field at all.
        None => cannot_be_handled(kind, &error.to_string()).with_cause(
            "FieldValueInvalid",
            &error.to_string(),
            &error.field,
        ),
    };
    let unknown = match &kind.custom {
        Some(custom) => custom.check(&mut value).map_err(wrong_type)?,
        None => kind.schema().check_as(&kind.kind, &mut value).map_err(wrong_type)?,
    };
    let unknown = unknown.iter().map(|path| format!("unknown field {path:?}"));
    let complaints: Vec<String> = match &kind.custom {
        // What is unknown was refused as nobody's.
        _ if context.is_apply => duplicates,
        Some(_) => duplicates.into_iter().chain(unknown).collect(),
        None => unknown.chain(duplicates).collect(),
    };
    match context.field_validation {
        FieldValidation::Strict if !complaints.is_empty() => {
            let complaints = complaints.join(", ");
            let text = format!("strict decoding error: {complaints}");
            return Err(match &context.patch {
                Some(patch) => ApiError::invalid_patch(patch, &text),
                None if context.is_apply => ApiError::bad_request(format!(
                    "error strict decoding YAML: error converting YAML to JSON: {complaints}"
                )),
                None => cannot_be_handled(kind, &text),
            });
        }
        FieldValidation::Warn => {
            complaints.iter().flat_map(|text| warnings(text)).for_each(|text| context.warn(text));
        }
        _ => {}
    }
    Ok(value)
}

/// A complaint as warnings, which have one line each.
fn warnings(complaint: &str) -> impl Iterator<Item = &str> {
    complaint.strip_prefix(YAML_ERRORS).unwrap_or(complaint).lines().map(str::trim)
}

fn cannot_be_handled(kind: &Kind, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{0} in version {1:?} cannot be handled as a {0}: {why}",
        kind.kind, kind.version
    ))
}

/// Checks kind and apiVersion, and fills them in where they are left out.
fn identify(kind: &Kind, value: &mut Value) -> Result<()> {
    let Some(members) = value.as_object_mut() else {
        return Err(cannot_be_handled(
            kind,
            "json: cannot unmarshal into Go value: the body is not an object",
        ));
    };
    let api_version = kind.api_version();
    for (name, expected, words) in
        [("apiVersion", api_version.as_str(), "API version"), ("kind", kind.kind.as_str(), "kind")]
    {
        match members.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::String(given)) if given == expected => continue,
            Some(Value::String(given)) if given.is_empty() => {}
            Some(Value::String(given)) => {
                return Err(ApiError::bad_request(format!(
                    "the {words} in the data ({given}) does not match the expected {words} ({expected})"
                )));
            }
            Some(_) => {
                return Err(cannot_be_handled(
                    kind,
                    &format!("json: cannot unmarshal non-string into Go struct field .{name} of type string"),
                ));
            }
        }
        members.insert(name.to_owned(), expected.into());
    }
    Ok(())
}
