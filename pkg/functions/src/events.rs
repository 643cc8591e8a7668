//! CloudEvents 1.0, as a function of a source gets them: what an event says of itself as headers, its data as the parameters.
//!
//! ```text
//! binary:     ce-id, ce-source, ce-type, … and a body ──────────────┐
//! structured: {"specversion": "1.0", "id": …, "data": …} ── unpack ──┴─> ce-… headers, parameters
//! ```

use crate::fleet::Refusal;
use base64::Engine as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// What begins the name of a header that an event has.
pub const PREFIX: &str = "ce-";
/// What every event says of itself.
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];
const VERSION: &str = "1.0";

/// The headers and the parameters of an event; of what is none, no headers, and the body as it is.
///
/// # Errors
///
/// It says that it is an event, and is none.
pub fn unpack(headers: &HeaderMap, body: Bytes) -> Result<(Vec<(HeaderName, HeaderValue)>, Bytes), Refusal> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media_type.as_str() {
        "application/cloudevents-batch+json" => {
            let message = "batches of events are not taken: send each event by itself";
            Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message))
        }
        "application/cloudevents+json" => structured(&body),
        _ => Ok((binary(headers)?, body)),
    }
}

fn binary(headers: &HeaderMap) -> Result<Vec<(HeaderName, HeaderValue)>, Refusal> {
    let own: Vec<(HeaderName, HeaderValue)> = headers
        .iter()
        .filter(|(name, _)| name.as_str().starts_with(PREFIX))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let text = |name: &str| headers.get(format!("{PREFIX}{name}")).and_then(|value| value.to_str().ok());
    // Other headers may begin so by chance.
    if text("specversion").is_some() {
        check(|name| text(name).map(str::to_owned))?;
    }
    Ok(own)
}

fn structured(body: &Bytes) -> Result<(Vec<(HeaderName, HeaderValue)>, Bytes), Refusal> {
    let event: Value =
        serde_json::from_slice(body).map_err(|error| wrong(format!("the event is not JSON: {error}")))?;
    check(|name| event[name].as_str().map(str::to_owned))?;
    let mut headers = Vec::new();
    for (name, value) in event.as_object().into_iter().flatten() {
        let text = match value {
            _ if matches!(name.as_str(), "data" | "data_base64") => continue,
            Value::String(text) => text.clone(),
            Value::Number(_) | Value::Bool(_) => value.to_string(),
            _ => {
                return Err(wrong(format!(
                    "the event's attribute {name:?} is neither text, number nor boolean"
                )));
            }
        };
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let header = HeaderName::try_from(format!("{PREFIX}{name}")).ok().filter(|_| is_name);
        let header = header.ok_or_else(|| wrong(format!("the event's attribute {name:?} is not a name")))?;
        headers
            .push((header, HeaderValue::try_from(encoded(&text)).map_err(|error| wrong(error.to_string()))?));
    }
    let data = match (&event["data"], event["data_base64"].as_str()) {
        (Value::Null, None) => Bytes::new(),
        (Value::Null, Some(text)) => base64::prelude::BASE64_STANDARD
            .decode(text)
            .map_err(|error| wrong(format!("the event's data_base64 is not base64: {error}")))?
            .into(),
        (data, None) => data.to_string().into(),
        (_, Some(_)) => return Err(wrong("the event has both data and data_base64".to_owned())),
    };
    Ok((headers, data))
}

fn check(attribute: impl Fn(&str) -> Option<String>) -> Result<(), Refusal> {
    for name in REQUIRED {
        match attribute(name) {
            Some(version) if name == "specversion" && version != VERSION => {
                return Err(wrong(format!("events are understood in version {VERSION}, not {version:?}")));
            }
            Some(text) if !text.is_empty() => {}
            _ => return Err(wrong(format!("the event has no {name}"))),
        }
    }
    Ok(())
}

/// As the protocol's HTTP binding writes text into headers.
fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' | b'"' | b'%' | 0..=0x20 | 0x7f..=0xff => drop(write!(encoded, "%{byte:02X}")),
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

fn wrong(message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "InvalidEvent", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn structured(event: &Value) -> Result<(Vec<(HeaderName, HeaderValue)>, Bytes), String> {
        let headers = headers(&[("content-type", "application/cloudevents+json; charset=utf-8")]);
        unpack(&headers, event.to_string().into()).map_err(|refusal| refusal.fault.message)
    }

    #[test]
    fn both_modes_are_the_same_to_a_function() {
        let event = json!({"specversion": "1.0", "id": "1", "source": "/a b", "type": "t", "level": 3, "data": {"x": 1}});
        let (own, data) = structured(&event).expect("an event");
        assert_eq!(data, r#"{"x":1}"#);
        let found: HeaderMap = own.into_iter().collect();
        assert_eq!(
            (&found["ce-source"], &found["ce-level"]),
            (&HeaderValue::from_static("/a%20b"), &HeaderValue::from(3))
        );
        let binary = headers(&[
            ("ce-specversion", "1.0"),
            ("ce-id", "1"),
            ("ce-source", "/a%20b"),
            ("ce-type", "t"),
            ("ce-level", "3"),
        ]);
        let (own, data) =
            unpack(&binary, Bytes::from_static(b"{}")).map_err(|refusal| refusal.fault).expect("an event");
        assert_eq!((own.into_iter().collect::<HeaderMap>(), data), (found, Bytes::from_static(b"{}")));
    }

    #[test]
    fn what_is_no_event_is_said() {
        let check = |event: &Value, expected: &str| {
            let said = structured(event).expect_err("no event");
            assert!(said.contains(expected), "{said}");
        };
        let event = |name: &str, value: Value| {
            let mut event = json!({"specversion": "1.0", "id": "1", "source": "s", "type": "t"});
            event[name] = value;
            event
        };
        check(&event("specversion", json!("0.3")), "version 1.0");
        check(&event("id", json!("")), "no id");
        check(&event("type", json!(null)), "no type");
        check(&event("Upper", json!("x")), "not a name");
        check(&event("list", json!([])), "neither");
        check(&event("data_base64", json!("?")), "not base64");
        let batch = headers(&[("content-type", "application/cloudevents-batch+json")]);
        assert!(unpack(&batch, Bytes::new()).is_err());
        assert!(unpack(&headers(&[("ce-specversion", "1.0")]), Bytes::new()).is_err());
        assert!(unpack(&headers(&[("content-type", "text/plain")]), Bytes::new()).is_ok());
    }
}
