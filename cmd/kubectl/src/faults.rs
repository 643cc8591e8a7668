//! What the server's refusal says of an object's fields, for somebody who has the file before them.
//!
//! ```text
//! Refusal, in the words of Go's decoders and of typed patches ──faults_of──> [field, what is wrong, what may have been meant]
//! ```

use crate::connection::Refusal;
use crate::yaml;
use serde_json::Value;

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field's path, such as `spec.containers[0].env[1].value`.
    pub field: String,
    /// What is wrong.
    pub kind: FaultKind,
}

/// What can be wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// The kind has no such field.
    Unknown,
    /// The value is of another type; what it should be, and what is there.
    Type(&'static str, Value),
    /// The text is not what it should stand for.
    Text(String),
    /// The server has said it.
    Said,
}

impl Fault {
    /// For people: the field, and what is wrong with it where the server has not said enough.
    pub fn text(&self) -> String {
        let field = &self.field;
        match &self.kind {
            FaultKind::Unknown => format!("unknown field {field:?}"),
            FaultKind::Type(expected, found) => {
                let hint = match (*expected, found) {
                    (TEXT, Value::Bool(_) | Value::Number(_)) => format!(": quote it: \"{found}\""),
                    (NUMBER | BOOLEAN, Value::String(text)) if is(expected, text) => {
                        format!(": write it without quotes: {text}")
                    }
                    _ => String::new(),
                };
                format!("{field}: expected {expected}, found {}{hint}", shown(found))
            }
            FaultKind::Text(why) => format!("{field}: {why}"),
            FaultKind::Said => field.clone(),
        }
    }

    /// Whether its text says all that the refusal does, in better words.
    pub fn replaces_the_refusal(&self, refusal: &Refusal) -> bool {
        match self.kind {
            FaultKind::Unknown => refusal.message.contains(UNTYPED),
            FaultKind::Type(..) | FaultKind::Text(_) => true,
            FaultKind::Said => false,
        }
    }
}

const TEXT: &str = "a text";
const NUMBER: &str = "a number";
const BOOLEAN: &str = "true or false";
const FIELDS: &str = "fields";
const LIST: &str = "a list";

/// How typed patches begin that do not fit the schema.
const UNTYPED: &str = "failed to create typed patch object";
/// How the server says that a kind has no such field.
const UNKNOWN: [&str; 2] = ["unknown field \"", ": field not declared in schema"];
const QUANTITY: &str = "quantities must match the regular expression";
const BASE64: &str = "illegal base64 data at input byte ";

/// What a refusal of an object is about.
pub fn faults_of(refusal: &Refusal, object: &Value) -> Vec<Fault> {
    let causes: Vec<(&str, &str)> = refusal.details["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cause| Some((cause["field"].as_str()?, cause["message"].as_str().unwrap_or_default())))
        .filter(|(field, _)| !field.is_empty())
        .collect();
    let mut faults: Vec<Fault> = causes
        .iter()
        .map(|(field, message)| Fault { field: (*field).to_owned(), kind: decoded(message, field, object) })
        .collect();
    for part in refusal.message.split(UNKNOWN[0]).skip(1) {
        let field = part.split('"').next().unwrap_or_default().to_owned();
        faults.push(Fault { field, kind: FaultKind::Unknown });
    }
    faults.extend(refusal.message.lines().filter_map(|line| untyped(line, object)));
    // Servers that say no more than the message: Go struct field ConfigMap.data.a of type string
    if causes.is_empty()
        && let Some((_, rest)) = refusal.message.split_once("Go struct field ")
        && let Some((_, path)) = rest.split(" of type").next().and_then(|path| path.split_once('.'))
    {
        let field = path.to_owned();
        faults.push(Fault { kind: decoded(&refusal.message, &field, object), field });
    }
    faults.dedup();
    faults
}

/// What a decoder's word about a field means.
fn decoded(message: &str, field: &str, object: &Value) -> FaultKind {
    let found = at(object, field).cloned();
    if let Some((_, expected)) = message.split_once(" of type ")
        && message.contains("cannot unmarshal")
        && let (Some(expected), Some(found)) = (named(expected), found.clone())
    {
        return FaultKind::Type(expected, found);
    }
    let found = found.map(|found| shown(&found)).unwrap_or_default();
    if message.contains(QUANTITY) {
        return FaultKind::Text(format!("{found} is not a quantity, such as 500m, 1.5 or 200Mi"));
    }
    if let Some((_, byte)) = message.split_once(BASE64) {
        let plain = if field.starts_with("data.") { " (plain text goes into stringData)" } else { "" };
        return FaultKind::Text(format!("{found} is not base64: wrong at byte {byte}{plain}"));
    }
    FaultKind::Said
}

/// What a line of a typed patch says: `.a[name="x"].b: expected string, got …`, or that there is no such field.
fn untyped(line: &str, object: &Value) -> Option<Fault> {
    if let Some((before, _)) = line.split_once(UNKNOWN[1]) {
        let field = indexed(before.rsplit_once(": ").map_or(before, |(_, path)| path).trim(), object);
        return Some(Fault { field, kind: FaultKind::Unknown });
    }
    let (before, after) = line.split_once(": expected ")?;
    let path = before.rsplit_once(": ").map_or(before, |(_, path)| path).trim();
    let field = path.starts_with('.').then(|| indexed(path, object))?;
    let found = at(object, &field).cloned().unwrap_or_default();
    Some(Fault { kind: FaultKind::Type(named(after.split(", got").next()?)?, found), field })
}

/// A type of Go's, or of a schema, in words.
fn named(expected: &str) -> Option<&'static str> {
    Some(match expected.trim() {
        "string" => TEXT,
        "numeric (int or float)" | "integer" | "int32" | "int64" | "float64" => NUMBER,
        "bool" | "boolean" => BOOLEAN,
        "list" => LIST,
        list if list.starts_with("[]") => LIST,
        "map" | "struct" => FIELDS,
        map if map.starts_with("map[") || map.starts_with('v') => FIELDS,
        _ => return None,
    })
}

fn is(expected: &str, text: &str) -> bool {
    match expected {
        NUMBER => text.parse::<f64>().is_ok(),
        _ => matches!(text, "true" | "false"),
    }
}

/// The value at a path; a path without places in lists is that of the first that has such a field.
fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    fn find<'a>(value: &'a Value, steps: &[String]) -> Option<&'a Value> {
        let Some((step, rest)) = steps.split_first() else { return Some(value) };
        match value {
            Value::Array(items) => match step.parse::<usize>() {
                Ok(index) => find(items.get(index)?, rest),
                Err(_) => items.iter().find_map(|item| find(item, steps)),
            },
            value => find(value.get(step.as_str())?, rest),
        }
    }
    find(object, &yaml::steps(path))
}

/// A path of a typed patch with places instead of keys: `.a[name="x"].b` is `a[1].b`.
fn indexed(path: &str, object: &Value) -> String {
    let (mut plain, mut at) = (String::new(), object);
    for step in yaml::raw_steps(path) {
        let place = match at.as_array() {
            Some(items) if step.contains('=') => {
                let keys = keys(&step);
                let is_it = |item: &Value| {
                    keys.iter().all(|(key, value)| value == if key.is_empty() { item } else { &item[key] })
                };
                Some(items.iter().position(is_it).unwrap_or_default())
            }
            Some(_) => step.parse().ok(),
            None => None,
        };
        match place {
            Some(place) => {
                plain.push_str(&format!("[{place}]"));
                at = &at[place];
            }
            None => {
                if !plain.is_empty() {
                    plain.push('.');
                }
                plain.push_str(&step);
                at = &at[&step];
            }
        }
    }
    plain
}

/// The keys of a step such as `containerPort=80,protocol="TCP"`.
fn keys(step: &str) -> Vec<(&str, Value)> {
    let (mut keys, mut rest) = (Vec::new(), step);
    while let Some((key, after)) = rest.split_once('=') {
        let mut values = serde_json::Deserializer::from_str(after).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else { break };
        rest = after[values.byte_offset()..].trim_start_matches(',');
        keys.push((key, value));
    }
    keys
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match value {
        Value::Object(_) => "fields".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Null => "nothing".to_owned(),
        _ if text.chars().count() > 40 => text.chars().take(40).collect::<String>() + "…",
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(message: &str, details: Value, object: Value, expected: &[(&str, &str)]) {
        let (code, reason) = (400, "BadRequest".to_owned());
        let refusal = Refusal { code, reason, message: message.to_owned(), details };
        let found: Vec<String> = faults_of(&refusal, &object).iter().map(Fault::text).collect();
        let text = |(field, text): &(&str, &str)| match *text {
            "unknown field" => format!("unknown field {field:?}"),
            "" => (*field).to_owned(),
            text => format!("{field}: {text}"),
        };
        assert_eq!(found, expected.iter().map(text).collect::<Vec<String>>(), "{message}");
    }

    #[test]
    fn fields_that_nobody_knows() {
        let strict = "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \"spec.replica\", unknown field \"spec.x\"";
        let unknown = "unknown field";
        check(strict, Value::Null, Value::Null, &[("spec.replica", unknown), ("spec.x", unknown)]);
        let object = json!({"spec": {"containers": [{"name": "a"}, {"name": "c"}]}});
        let undeclared = "failed to create typed patch object (default/x; v1, Kind=Pod): errors:\n  \
            .spec.replica: field not declared in schema\n  .spec.containers[name=\"c\"].imagee: field not declared in schema";
        let expected = [("spec.replica", unknown), ("spec.containers[1].imagee", unknown)];
        check(undeclared, Value::Null, object.clone(), &expected);
        let one = "failed to create typed patch object (default/x; v1, Kind=Pod): .spec.replica: field not declared in schema";
        check(one, Value::Null, object, &[("spec.replica", unknown)]);
    }

    #[test]
    fn values_of_another_type() {
        let env = json!({"spec": {"containers": [{"name": "c", "env": [{"name": "a", "value": "x"}, {"name": "b.c", "value": true}]}]}});
        let quote = "expected a text, found true: quote it: \"true\"";
        check(
            "failed to create typed patch object (default/x; v1, Kind=Pod): \
             .spec.containers[name=\"c\"].env[name=\"b.c\"].value: expected string, got &value.valueUnstructured{Value:true}",
            Value::Null,
            env.clone(),
            &[("spec.containers[0].env[1].value", quote)],
        );
        let go = "Pod in version \"v1\" cannot be handled as a Pod: json: cannot unmarshal bool into Go struct field \
            EnvVar.spec.containers.env.value of type string";
        let cause = json!({"causes": [{"field": "spec.containers[0].env[1].value", "message": go}]});
        check(go, cause, env, &[("spec.containers[0].env[1].value", quote)]);
        let ports = json!({"spec": {"ports": [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": "80", "protocol": "TCP"}]}});
        let bare = "expected a number, found \"80\": write it without quotes: 80";
        check(
            "failed to create typed patch object (default/x; v1, Kind=Pod): \
             .spec.ports[containerPort=\"80\",protocol=\"TCP\"].containerPort: expected numeric (int or float), got &value.valueUnstructured{Value:\"80\"}",
            Value::Null,
            ports,
            &[("spec.ports[1].containerPort", bare)],
        );
        // As other servers say it.
        let other = "json: cannot unmarshal number into Go struct field ConfigMap.data.a of type string";
        check(
            other,
            Value::Null,
            json!({"data": {"a": 8080}}),
            &[("data.a", "expected a text, found 8080: quote it: \"8080\"")],
        );
    }

    #[test]
    fn texts_that_do_not_stand_for_what_they_should() {
        let of = |field: &str, message: &str| json!({"causes": [{"field": field, "message": message}]});
        let quantity = "quantities must match the regular expression '^…$'";
        let field = "spec.containers[0].resources.limits.memory";
        let object = json!({"spec": {"containers": [{"resources": {"limits": {"memory": "lots"}}}]}});
        let expected = "\"lots\" is not a quantity, such as 500m, 1.5 or 200Mi";
        check(quantity, of(field, quantity), object, &[(field, expected)]);
        let base64 = "illegal base64 data at input byte 4";
        let expected = "\"plain text\" is not base64: wrong at byte 4 (plain text goes into stringData)";
        check(base64, of("data.a", base64), json!({"data": {"a": "plain text"}}), &[("data.a", expected)]);
        let causes = json!({"causes": [{"field": "spec.replicas", "message": "bad"}, {"message": "x"}]});
        check("bad", causes, Value::Null, &[("spec.replicas", "")]);
    }
}
