//! Decoding's second half: does this JSON have the shape its kind says?
//!
//! As upstream's decoder does, the first value of a wrong type is an error, members nobody knows are dropped and
//! listed, and `null` means "not given". Strings that stand for something else (quantities, base64, times) must
//! be what they stand for; quantities become canonical, so that equal amounts are equal text from here on.

use super::{Format, Schema, Type, definitions};
use crate::place::Place;
use crate::quantity::Quantity;
use serde_json::Value;
use std::fmt;

/// A value that cannot be decoded, worded as Go's decoder words it, since tools and people know that wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeError {
    /// The path as Go's decoder has it, without indexes: `spec.containers.image`.
    pub path: String,
    /// The path as people need it: `spec.containers[0].image`.
    pub field: String,
    fault: Fault,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Fault {
    /// Another JSON type than the member's.
    Type { structure: String, found: &'static str, expected: String },
    /// A string that is not what it should stand for.
    Text(String),
}

impl TypeError {
    fn at(place: &Place<'_>, fault: Fault) -> TypeError {
        TypeError { path: place.path_of_members(), field: place.path(), fault }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Type { structure, found, expected } => {
                let path = &self.path;
                write!(
                    f,
                    "json: cannot unmarshal {found} into Go struct field {structure}.{path} of type {expected}"
                )
            }
            Fault::Text(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for TypeError {}

/// The path of a member that the schema does not have, such as `spec.containers[0].comand`.
pub type UnknownField = String;

impl Schema {
    /// Checks a decoded object, drops what is `null` or unknown, and lists the unknown.
    pub fn check(&self, value: &mut Value) -> Result<Vec<UnknownField>, TypeError> {
        self.check_as("", value)
    }

    /// [`Schema::check`], with the name that complaints about the object's own members give it.
    pub fn check_as(&self, structure: &str, value: &mut Value) -> Result<Vec<UnknownField>, TypeError> {
        let mut unknown = Vec::new();
        check(self, value, structure, &Place::root(), &mut unknown)?;
        Ok(unknown)
    }
}

/// Unknown fields beyond this many are dropped without being listed.
const MOST_UNKNOWN: usize = 100;

fn check(
    schema: &Schema,
    value: &mut Value,
    structure: &str,
    place: &Place<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), TypeError> {
    let wrong = |value: &Value| {
        let (structure, found, expected) = (structure.to_owned(), json_type(value), go_type(schema));
        Err(TypeError::at(place, Fault::Type { structure, found, expected }))
    };
    match &schema.ty {
        Type::Any => Ok(()),
        Type::Ref(index) => {
            let name = definitions().name(*index).rsplit('.').next().unwrap_or_default();
            let target = schema.resolve();
            // A struct gives its name to complaints about its members; an alias of a scalar does not.
            let structure = if matches!(target.ty, Type::Object { .. }) { name } else { structure };
            if matches!(target.ty, Type::Object { .. }) && !value.is_object() {
                return wrong(value);
            }
            check(target, value, structure, place, unknown)
        }
        Type::Object { .. } if !value.is_object() => wrong(value),
        Type::Object { .. } => check_members(schema, value, structure, place, unknown),
        Type::Array(element) => {
            let Some(items) = value.as_array_mut() else { return wrong(value) };
            for (index, item) in items.iter_mut().enumerate() {
                let place = place.index(index);
                zero_if_null(element, item);
                check(element, item, structure, &place, unknown)?;
            }
            Ok(())
        }
        Type::String(Format::Quantity) if value.is_number() || value.is_string() => {
            let text = value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
            match text.parse::<Quantity>() {
                Ok(quantity) => *value = Value::String(quantity.to_string()),
                Err(error) => {
                    return Err(TypeError::at(place, Fault::Text(error.to_string())));
                }
            }
            Ok(())
        }
        Type::String(format) if value.is_string() => match text_fault(*format, value) {
            Some(fault) => Err(TypeError::at(place, Fault::Text(fault))),
            None => Ok(()),
        },
        Type::Integer { wide: true } if value.is_i64() => Ok(()),
        Type::Integer { wide: false } if value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => Ok(()),
        Type::Number if value.is_number() => Ok(()),
        Type::Boolean if value.is_boolean() => Ok(()),
        Type::IntOrString
            if value.is_string() || value.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
        {
            Ok(())
        }
        _ => wrong(value),
    }
}

fn check_members(
    schema: &Schema,
    value: &mut Value,
    structure: &str,
    place: &Place<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), TypeError> {
    let (Type::Object { properties, additional }, Some(members)) = (&schema.ty, value.as_object_mut()) else {
        return Ok(());
    };
    let mut failed = Ok(());
    members.retain(|name, member| {
        if failed.is_err() || member.is_null() && additional.is_none() {
            return failed.is_err();
        }
        let place = place.name(name);
        match properties.get(name.as_str()).or(additional.as_deref()) {
            Some(schema) => {
                zero_if_null(schema, member);
                failed = check(schema, member, structure, &place, unknown);
                true
            }
            None if schema.preserve_unknown => true,
            None => {
                if unknown.len() < MOST_UNKNOWN {
                    unknown.push(place.path());
                }
                false
            }
        }
    });
    failed
}

/// A `null` among the values of a map or list, which cannot be left out, is the type's zero.
fn zero_if_null(schema: &Schema, value: &mut Value) {
    if value.is_null() {
        *value = match schema.resolve().ty {
            Type::Any => Value::Null,
            Type::Object { .. } => Value::Object(serde_json::Map::new()),
            Type::Array(_) => Value::Array(Vec::new()),
            Type::String(Format::Quantity) => "0".into(),
            Type::String(Format::DateTime) => Value::Null,
            Type::String(_) => "".into(),
            Type::Integer { .. } | Type::Number | Type::IntOrString => 0.into(),
            Type::Boolean => false.into(),
            Type::Ref(_) => Value::Null,
        };
    }
}

/// What is wrong with a string, given what it stands for.
fn text_fault(format: Format, value: &mut Value) -> Option<String> {
    let text = value.as_str().unwrap_or_default();
    match format {
        Format::Plain | Format::Quantity => None,
        Format::DateTime => match text.parse::<jiff::Timestamp>() {
            Ok(_) => None,
            Err(_) => Some(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
            )),
        },
        Format::Byte => {
            if let Some(at) = base64_fault(text.as_bytes()) {
                return Some(format!("illegal base64 data at input byte {at}"));
            }
            // Lines may be broken, but are not kept so.
            if text.contains(['\r', '\n']) {
                *value = Value::String(text.replace(['\r', '\n'], ""));
            }
            None
        }
    }
}

/// Where Go's decoder would stop in a base64 text.
fn base64_fault(text: &[u8]) -> Option<usize> {
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    let mut digits = 0;
    let mut bytes = text.iter().copied().enumerate().filter(|&(_, byte)| !is_break(byte));
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => digits += 1,
            b'=' if digits % 4 >= 2 => {
                if digits % 4 == 2 {
                    match bytes.next() {
                        None => return Some(text.len()),
                        Some((_, b'=')) => {}
                        Some((at, _)) => return Some(at - 1),
                    }
                }
                return bytes.next().map(|(at, _)| at);
            }
            _ => return Some(at),
        }
    }
    (digits % 4 != 0).then(|| text.len() - digits % 4)
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The Go type upstream declares for such a value.
fn go_type(schema: &Schema) -> String {
    match &schema.ty {
        Type::Any => "interface {}".into(),
        Type::Ref(index) => {
            let name = definitions().name(*index);
            let mut parts = name.rsplit('.');
            let (kind, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{version}.{kind}")
        }
        Type::Object { additional: Some(value), .. } => format!("map[string]{}", go_type(value)),
        Type::Object { .. } => "struct".into(),
        Type::Array(element) => format!("[]{}", go_type(element)),
        Type::String(Format::Plain) => "string".into(),
        Type::String(Format::Byte) => "[]uint8".into(),
        Type::String(Format::DateTime) => "v1.Time".into(),
        Type::String(Format::Quantity) => "resource.Quantity".into(),
        Type::Integer { wide: true } => "int64".into(),
        Type::Integer { wide: false } => "int32".into(),
        Type::Number => "float64".into(),
        Type::Boolean => "bool".into(),
        Type::IntOrString => "intstr.IntOrString".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: Value, value: Value, expected: Result<Value, &str>) {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {"x": schema}}));
        let mut object = json!({"x": value});
        let result =
            schema.check(&mut object).map(|_| object["x"].clone()).map_err(|error| error.to_string());
        assert_eq!(result, expected.map_err(str::to_owned));
    }

    #[test]
    fn strings_must_be_what_they_stand_for() {
        let quantity = || json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.api.resource.Quantity"});
        check(quantity(), json!(0.5), Ok(json!("500m")));
        check(quantity(), json!("1024Mi"), Ok(json!("1Gi")));
        let message =
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
        check(quantity(), json!("lots"), Err(message));
        let time = || json!({"type": "string", "format": "date-time"});
        check(time(), json!("2024-01-02T03:04:05Z"), Ok(json!("2024-01-02T03:04:05Z")));
        let message = r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#;
        check(time(), json!("now"), Err(message));
    }

    #[test]
    fn null_is_nothing() {
        let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
        check(map, json!({"a": null}), Ok(json!({"a": ""})));
        let list = json!({"type": "array", "items": {"type": "string"}});
        check(list, json!(["a", null]), Ok(json!(["a", ""])));
        check(json!({"type": "string"}), json!(null), Ok(json!(null)));
    }

    #[test]
    fn base64_stops_where_go_stops() {
        for (text, fault) in [
            ("", None),
            ("YWJj", None),
            ("YW\nJj", None),
            ("YWI=", None),
            ("YQ==", None),
            ("abc", Some(0)),
            ("YWJjZ", Some(4)),
            ("YW!j", Some(2)),
            ("Y===", Some(1)),
            ("YQ=", Some(3)),
            ("YQ==x", Some(4)),
            ("plain text", Some(5)),
        ] {
            assert_eq!(base64_fault(text.as_bytes()), fault, "{text:?}");
        }
        let byte = json!({"type": "string", "format": "byte"});
        check(byte.clone(), json!("YW\nJj"), Ok(json!("YWJj")));
        check(byte, json!("a b"), Err("illegal base64 data at input byte 1"));
    }
}
