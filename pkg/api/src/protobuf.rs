//! Kubernetes' protobuf, read: what typed clients (kubectl's generators among them) send as a request's body.
//!
//! ```text
//! "k8s\0" + Unknown{ apiVersion, kind, raw } ──> message named by both ──> members by number (fields.txt) ──> JSON
//! ```
//!
//! Inside the server objects are JSON, so that is what comes out, with the members that the same client would have
//! written as JSON: zero scalars that Go's types omit are left out, embedded messages are inlined. Answers are never
//! protobuf: every client that prefers it takes JSON as well. Custom kinds have no protobuf form.

mod wire;

use crate::decode::Decoded;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use wire::{Reader, Scalar};

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every body starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Schemas of custom kinds nest; other messages do not go nearly as deep.
const DEEPEST: usize = 100;

/// Why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Another encoding, or none.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// It ends too early, or a member is of another type than it should be.
    #[error("proto: {0}")]
    Malformed(&'static str),
    /// A kind that is not served, or that has no protobuf form.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The API version.
        api_version: String,
        /// The kind.
        kind: String,
    },
}

/// Reads a body.
pub fn decode(body: &[u8]) -> Result<Decoded, Error> {
    let unknown = body.strip_prefix(MAGIC).ok_or(Error::NoPrefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(unknown) {
        match field? {
            (1, scalar) => {
                for field in Reader::new(scalar.bytes()?) {
                    match field? {
                        (1, scalar) => api_version = scalar.text()?,
                        (2, scalar) => kind = scalar.text()?,
                        _ => {}
                    }
                }
            }
            (2, scalar) => raw = scalar.bytes()?,
            _ => {}
        }
    }
    let Some(message) = message_of(&api_version, &kind) else {
        return Err(Error::UnknownKind { api_version, kind });
    };
    let mut members = Map::new();
    members.insert("apiVersion".into(), api_version.into());
    members.insert("kind".into(), kind.into());
    read_message(message, raw, &mut members, 0)?;
    Ok(Decoded { value: Value::Object(members), duplicates: Vec::new() })
}

/// One message's members by number.
type Message = HashMap<u32, Member>;

/// A member of a message.
#[derive(Debug)]
struct Member {
    /// The name in JSON; `^` for one whose members are the parent's own.
    name: &'static str,
    shape: Shape,
    ty: Type,
    /// Whether it is kept when it is zero.
    keep_zero: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Shape {
    Single,
    List,
    Map,
}

/// What a value is, beyond protobuf's own types.
#[derive(Debug, PartialEq, Eq)]
enum Type {
    Text,
    Bytes,
    Integer,
    Boolean,
    Float,
    /// Seconds and nanoseconds; the zero time is "not given".
    Time,
    MicroTime,
    /// A message with one string.
    Quantity,
    IntOrString,
    /// A message with one piece of JSON text.
    Raw,
    /// A message with a list of strings (`ExtraValue`).
    Strings,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrStrings,
    Message(String),
}

fn messages() -> &'static HashMap<&'static str, Message> {
    static MESSAGES: LazyLock<HashMap<&'static str, Message>> =
        LazyLock::new(|| include_str!("protobuf/fields.txt").lines().filter_map(parse_line).collect());
    &MESSAGES
}

fn parse_line(line: &'static str) -> Option<(&'static str, Message)> {
    let mut words = line.split(' ');
    let message = words.next().filter(|word| !word.is_empty() && *word != "#")?;
    let (package, _) = message.rsplit_once('.')?;
    let members = words.filter_map(|word| {
        let (name, rest) = word.split_once('=')?;
        let (number, ty) = rest.split_once(':')?;
        let (ty, keep_zero) = ty.strip_suffix('!').map_or((ty, false), |ty| (ty, true));
        let (shape, ty) = match (ty.strip_prefix("[]"), ty.strip_prefix("{}")) {
            (Some(ty), _) => (Shape::List, ty),
            (_, Some(ty)) => (Shape::Map, ty),
            _ => (Shape::Single, ty),
        };
        Some((number.parse().ok()?, Member { name, shape, ty: parse_type(package, ty), keep_zero }))
    });
    Some((message, members.collect()))
}

fn parse_type(package: &str, word: &str) -> Type {
    match word {
        "s" => Type::Text,
        "y" => Type::Bytes,
        "i" => Type::Integer,
        "b" => Type::Boolean,
        "f" => Type::Float,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "raw" => Type::Raw,
        "strings" => Type::Strings,
        "schemaorbool" => Type::SchemaOrBool,
        "schemaorarray" => Type::SchemaOrArray,
        "schemaorstrings" => Type::SchemaOrStrings,
        name if name.contains('.') => Type::Message(name.to_owned()),
        name => Type::Message(format!("{package}.{name}")),
    }
}

/// The message of a kind. Packages are named after the first part of the group.
fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    // Options are sent under the version of what they are about.
    if kind == "DeleteOptions" {
        return messages().get("meta.v1.DeleteOptions");
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = match group {
        "core" | "apps" | "batch" | "autoscaling" | "policy" => group,
        "rbac.authorization.k8s.io" => "rbac",
        "flowcontrol.apiserver.k8s.io" => "flowcontrol",
        _ => group.strip_suffix(".k8s.io").filter(|first| !first.contains('.'))?,
    };
    messages().get(format!("{package}.{version}.{kind}").as_str())
}

fn read_message(
    message: &Message,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), Error> {
    if depth > DEEPEST {
        return Err(Error::Malformed("messages are nested too deeply"));
    }
    for field in Reader::new(bytes) {
        let (number, scalar) = field?;
        // A member that a newer client knows and this server does not.
        let Some(member) = message.get(&number) else { continue };
        if member.name == "^" {
            let Type::Message(name) = &member.ty else { continue };
            read_message(named(name)?, scalar.bytes()?, into, depth + 1)?;
            continue;
        }
        match member.shape {
            Shape::Single => {
                if let Some(value) = read_value(&member.ty, &scalar, depth)?
                    && (member.keep_zero || !is_zero(&value))
                {
                    into.insert(member.name.into(), value);
                }
            }
            Shape::List => {
                let list = into.entry(member.name).or_insert_with(|| Value::Array(Vec::new()));
                if let (Value::Array(list), Some(value)) = (list, read_value(&member.ty, &scalar, depth)?) {
                    list.push(value);
                }
            }
            Shape::Map => {
                let map = into.entry(member.name).or_insert_with(|| Value::Object(Map::new()));
                let (key, value) = read_entry(&member.ty, scalar.bytes()?, depth)?;
                if let (Value::Object(map), Some(value)) = (map, value) {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

fn named(name: &str) -> Result<&'static Message, Error> {
    messages().get(name).ok_or(Error::Malformed("a message of a type that is not known"))
}

/// Zero scalars only: an empty message was given, and an empty one is what it means.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Bool(flag) => !flag,
        _ => false,
    }
}

fn read_entry(ty: &Type, bytes: &[u8], depth: usize) -> Result<(String, Option<Value>), Error> {
    let (mut key, mut value) = (String::new(), None);
    for field in Reader::new(bytes) {
        match field? {
            (1, scalar) => key = scalar.text()?,
            (2, scalar) => value = read_value(ty, &scalar, depth)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn read_value(ty: &Type, scalar: &Scalar<'_>, depth: usize) -> Result<Option<Value>, Error> {
    Ok(Some(match ty {
        Type::Text => scalar.text()?.into(),
        Type::Bytes => STANDARD.encode(scalar.bytes()?).into(),
        Type::Integer => scalar.integer()?.into(),
        Type::Boolean => (scalar.integer()? != 0).into(),
        Type::Float => Number::from_f64(scalar.float()?).map_or(Value::Null, Value::Number),
        Type::Time => return time(scalar.bytes()?, false),
        Type::MicroTime => return time(scalar.bytes()?, true),
        Type::Quantity => text_member(scalar.bytes()?, 1)?.unwrap_or_else(|| "0".into()).into(),
        Type::IntOrString => int_or_string(scalar.bytes()?)?,
        Type::Raw => return raw(scalar.bytes()?),
        Type::Strings => strings(scalar.bytes()?, 1)?,
        Type::SchemaOrBool => either(scalar.bytes()?, 2, 1, depth)?,
        Type::SchemaOrArray => either(scalar.bytes()?, 1, 2, depth)?,
        Type::SchemaOrStrings => schema_or_strings(scalar.bytes()?, depth)?,
        Type::Message(name) => message(name, scalar.bytes()?, depth)?,
    }))
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, Error> {
    let mut members = Map::new();
    read_message(named(name)?, bytes, &mut members, depth + 1)?;
    Ok(Value::Object(members))
}

fn time(bytes: &[u8], micros: bool) -> Result<Option<Value>, Error> {
    let (mut seconds, mut nanos) = (0, 0);
    for field in Reader::new(bytes) {
        match field? {
            (1, scalar) => seconds = scalar.integer()?,
            (2, scalar) => nanos = scalar.integer()?,
            _ => {}
        }
    }
    if seconds == 0 && nanos == 0 {
        return Ok(None);
    }
    let nanos = i32::try_from(nanos).map_err(|_| Error::Malformed("a time out of range"))?;
    let time = jiff::Timestamp::new(seconds, nanos).map_err(|_| Error::Malformed("a time out of range"))?;
    Ok(Some(if micros { format!("{time:.6}") } else { format!("{time:.0}") }.into()))
}

fn text_member(bytes: &[u8], number: u32) -> Result<Option<String>, Error> {
    let mut text = None;
    for field in Reader::new(bytes) {
        if let (found, scalar) = field?
            && found == number
        {
            text = Some(scalar.text()?);
        }
    }
    Ok(text)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut integer, mut text) = (false, 0, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, scalar) => is_text = scalar.integer()? == 1,
            (2, scalar) => integer = scalar.integer()?,
            (3, scalar) => text = scalar.text()?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { integer.into() })
}

/// JSON within protobuf; nothing at all is "not given".
fn raw(bytes: &[u8]) -> Result<Option<Value>, Error> {
    match text_member(bytes, 1)?.as_deref() {
        None | Some("") => Ok(None),
        Some(text) => {
            let decoded =
                crate::decode::decode(text.as_bytes()).map_err(|_| Error::Malformed("wrong JSON within"))?;
            Ok(Some(decoded.value))
        }
    }
}

fn strings(bytes: &[u8], number: u32) -> Result<Value, Error> {
    let mut list = Vec::new();
    for field in Reader::new(bytes) {
        if let (found, scalar) = field?
            && found == number
        {
            list.push(Value::String(scalar.text()?));
        }
    }
    Ok(Value::Array(list))
}

const SCHEMA: &str = "apiextensions.v1.JSONSchemaProps";

/// A schema, or else a boolean or a list of schemas, in members of these numbers.
fn either(bytes: &[u8], schema_number: u32, other_number: u32, depth: usize) -> Result<Value, Error> {
    let (mut schema, mut flag, mut list) = (None, false, Vec::new());
    for field in Reader::new(bytes) {
        match field? {
            (number, scalar) if number == schema_number => {
                schema = Some(message(SCHEMA, scalar.bytes()?, depth)?)
            }
            (number, Scalar::Varint(value)) if number == other_number => flag = value != 0,
            (number, scalar) if number == other_number => list.push(message(SCHEMA, scalar.bytes()?, depth)?),
            _ => {}
        }
    }
    Ok(match schema {
        Some(schema) => schema,
        None if list.is_empty() => flag.into(),
        None => Value::Array(list),
    })
}

fn schema_or_strings(bytes: &[u8], depth: usize) -> Result<Value, Error> {
    for field in Reader::new(bytes) {
        if let (1, scalar) = field? {
            return message(SCHEMA, scalar.bytes()?, depth);
        }
    }
    strings(bytes, 2)
}

#[cfg(test)]
mod tests;
