//! Decoding's second half: does this JSON have the shape its kind says?
//!
//! As upstream's decoder does, the first value of a wrong type is an error, members nobody knows are dropped and
//! listed, and `null` means "not given".

use super::{Format, Schema, Type, definitions};
use serde_json::Value;
use std::fmt;

/// A value of the wrong type, worded as Go's decoder words it, since tools and people know that wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeError {
    /// The path, without indexes: `spec.replicas`.
    pub path: String,
    structure: String,
    found: &'static str,
    expected: String,
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeError { path, structure, found, expected } = self;
        write!(f, "json: cannot unmarshal {found} into Go struct field {structure}.{path} of type {expected}")
    }
}

impl std::error::Error for TypeError {}

/// The path of a member that the schema does not have, such as `spec.containers[0].comand`.
pub type UnknownField = String;

impl Schema {
    /// Checks a decoded object, drops what is `null` or unknown, and lists the unknown.
    pub fn check(&self, value: &mut Value) -> Result<Vec<UnknownField>, TypeError> {
        let mut unknown = Vec::new();
        let structure = Place { parent: None, segment: Segment::Root };
        check(self, value, "", &structure, &mut unknown)?;
        Ok(unknown)
    }
}

/// Unknown fields beyond this many are dropped without being listed.
const MOST_UNKNOWN: usize = 100;

#[derive(Clone, Copy)]
enum Segment<'a> {
    Root,
    Name(&'a str),
    Index(usize),
}

struct Place<'a> {
    parent: Option<&'a Place<'a>>,
    segment: Segment<'a>,
}

impl Place<'_> {
    fn path(&self, with_indexes: bool) -> String {
        let mut path = self.parent.map(|parent| parent.path(with_indexes)).unwrap_or_default();
        match self.segment {
            Segment::Name(name) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
            }
            Segment::Index(index) if with_indexes => path.push_str(&format!("[{index}]")),
            Segment::Root | Segment::Index(_) => {}
        }
        path
    }
}

fn check(
    schema: &Schema,
    value: &mut Value,
    structure: &str,
    place: &Place<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<(), TypeError> {
    let wrong = |value: &Value| {
        Err(TypeError {
            path: place.path(false),
            structure: structure.to_owned(),
            found: json_type(value),
            expected: go_type(schema),
        })
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
        Type::Object { properties, additional } => {
            let Some(members) = value.as_object_mut() else { return wrong(value) };
            let mut failed = Ok(());
            members.retain(|name, member| {
                if failed.is_err() || member.is_null() && additional.is_none() {
                    return failed.is_err();
                }
                let place = Place { parent: Some(place), segment: Segment::Name(name) };
                match properties.get(name.as_str()).or(additional.as_deref()) {
                    Some(schema) => {
                        failed = check(schema, member, structure, &place, unknown);
                        true
                    }
                    None if schema.preserve_unknown => true,
                    None => {
                        if unknown.len() < MOST_UNKNOWN {
                            unknown.push(place.path(true));
                        }
                        false
                    }
                }
            });
            failed
        }
        Type::Array(element) => {
            let Some(items) = value.as_array_mut() else { return wrong(value) };
            for (index, item) in items.iter_mut().enumerate() {
                let place = Place { parent: Some(place), segment: Segment::Index(index) };
                check(element, item, structure, &place, unknown)?;
            }
            Ok(())
        }
        Type::String(Format::Quantity) => match value {
            Value::Number(number) => {
                *value = Value::String(number.to_string());
                Ok(())
            }
            Value::String(_) => Ok(()),
            _ => wrong(value),
        },
        Type::String(_) if value.is_string() => Ok(()),
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
