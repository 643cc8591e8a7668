//! The pieces of a list that is not sent as it is stored.

use super::work::Pieces;
use super::{PIECE, yaml};
use crate::error::Result;
use crate::negotiate::{Format, Shape, Wanted};
use crate::registry::Resource;
use crate::storage::{in_version, parse};
use api::table::{IncludeObject, MetaVersion, Table};
use api::{Kind, Value};
use bytes::Bytes;
use jiff::Timestamp;
use listwatch::Object;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, json};
use std::fmt;
use std::io::{Error, Write};
use std::sync::Arc;

/// An object of a list.
pub enum Source {
    /// As the cache has it.
    Stored(Arc<Object>),
    /// As somebody else has converted it, with about its length.
    Converted(Value, usize),
}

impl Source {
    fn len(&self) -> usize {
        match self {
            Source::Stored(object) => object.as_json().len(),
            Source::Converted(_, length) => *length,
        }
    }
}

/// How objects of a resource are written for a request.
#[derive(Clone)]
pub struct Encoding {
    /// The resource.
    pub resource: Arc<Resource>,
    /// What the client wants.
    pub wanted: Wanted,
    /// What a table's rows carry.
    pub include: IncludeObject,
    /// For ages.
    pub now: Timestamp,
}

/// A list that is written piece by piece.
pub struct ListPieces {
    encoding: Encoding,
    /// Of the list itself.
    metadata: Value,
    sources: std::vec::IntoIter<Source>,
    has_begun: bool,
    is_over: bool,
}

impl ListPieces {
    /// A list of these.
    pub fn new(encoding: Encoding, metadata: Value, sources: Vec<Source>) -> ListPieces {
        ListPieces { encoding, metadata, sources: sources.into_iter(), has_begun: false, is_over: false }
    }

    /// How many bytes are to be read for all of it.
    pub fn bytes(&self) -> usize {
        self.sources.as_slice().iter().map(Source::len).sum()
    }

    /// All of it at once.
    ///
    /// # Errors
    /// If an object cannot be read.
    pub fn whole(mut self) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(self.bytes());
        self.write(&mut out, usize::MAX)?;
        Ok(out)
    }

    /// As much as `most` bytes of objects make, and one object at least.
    fn write(&mut self, out: &mut Vec<u8>, most: usize) -> Result<()> {
        let encoding = self.encoding.clone();
        let is_yaml = encoding.wanted.format == Format::Yaml;
        let table = (encoding.wanted.shape == Shape::Table).then(|| Table::new(&encoding.resource.kind));
        let mut is_first = !std::mem::replace(&mut self.has_begun, true);
        if is_first {
            self.begin(out, table.as_ref())?;
        }
        let (mut read, mut item) = (0, Vec::new());
        while let Some(source) = self.sources.as_slice().first() {
            if read > 0 && read + source.len() > most {
                return Ok(());
            }
            read += source.len();
            item.clear();
            let source = self.sources.next().expect("it was there");
            encoding.write_item(&mut item, source, table.as_ref())?;
            if is_yaml {
                yaml::write_item(out, &item).map_err(unreadable)?;
            } else {
                if !std::mem::take(&mut is_first) {
                    out.push(b',');
                }
                out.extend_from_slice(&item);
            }
        }
        if !is_yaml {
            out.extend_from_slice(b"]}");
        }
        self.is_over = true;
        Ok(())
    }

    /// What stands before the items.
    fn begin(&self, out: &mut Vec<u8>, table: Option<&Table<'_>>) -> Result<()> {
        let kind = &*self.encoding.resource.kind;
        let (metadata, meta) = (&self.metadata, self.encoding.wanted.meta);
        let mut opening = match (self.encoding.wanted.shape, table) {
            // Rows are its last member.
            (_, Some(table)) => meta.of(table.with_rows(metadata.clone(), Vec::new(), true)).to_string(),
            (Shape::Metadata, None) => {
                let version = meta.api_version();
                format!(
                    r#"{{"kind":"PartialObjectMetadataList","apiVersion":"{version}","metadata":{metadata},"items":[]}}"#
                )
            }
            (_, None) => {
                let (list_kind, version) = (json!(kind.list_kind), json!(kind.api_version()));
                format!(r#"{{"kind":{list_kind},"apiVersion":{version},"metadata":{metadata},"items":[]}}"#)
            }
        };
        if self.encoding.wanted.format == Format::Json {
            opening.truncate(opening.len() - "]}".len());
            out.extend_from_slice(opening.as_bytes());
            return Ok(());
        }
        yaml::write_document(out, opening.as_bytes()).map_err(unreadable)?;
        if !self.sources.as_slice().is_empty() {
            out.truncate(out.len() - " []\n".len());
            out.push(b'\n');
        }
        Ok(())
    }
}

impl Pieces for ListPieces {
    fn cost(&self) -> usize {
        let mut next = 0;
        for length in self.sources.as_slice().iter().map(Source::len) {
            next += length;
            if next >= PIECE {
                break;
            }
        }
        2 * next + 1024
    }

    fn next_piece(&mut self) -> Option<std::io::Result<Bytes>> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::new();
        Some(match self.write(&mut out, PIECE) {
            Ok(()) => Ok(out.into()),
            Err(error) => {
                self.is_over = true;
                Err(Error::other(error.message))
            }
        })
    }
}

impl Encoding {
    /// An object as a member of the list, in JSON.
    fn write_item(&self, out: &mut Vec<u8>, source: Source, table: Option<&Table<'_>>) -> Result<()> {
        let (kind, meta) = (&*self.resource.kind, self.wanted.meta);
        let object = match source {
            Source::Stored(object) => {
                if let Some(from) = self.resource.ready_made(object.as_json()) {
                    return self.write_stored(out, object.as_json(), from, table);
                }
                in_version(kind, parse(object.as_json())?)
            }
            Source::Converted(object, _) => object,
        };
        match (self.wanted.shape, table) {
            (_, Some(table)) => write_value(out, &meta.of(table.row(&object, self.include, self.now))),
            (Shape::Metadata, None) => write_value(out, &meta.of(api::table::partial_object(&object))),
            (_, None) => write_value(out, &as_item(kind, object)),
        }
        Ok(())
    }

    /// What is wanted of an object whose bytes are as they should be: `from` is where what follows kind and apiVersion begins.
    fn write_stored(
        &self,
        out: &mut Vec<u8>,
        json: &[u8],
        from: usize,
        table: Option<&Table<'_>>,
    ) -> Result<()> {
        match (self.wanted.shape, table) {
            (_, Some(table)) => {
                let object = Stored::read(json)?;
                out.extend_from_slice(b"{\"cells\":");
                write_value(out, &table.cells(&object.value, self.now));
                out.extend_from_slice(b",\"object\":");
                match self.include {
                    IncludeObject::None => out.extend_from_slice(b"null"),
                    IncludeObject::Metadata => write_metadata(out, self.wanted.meta, object.metadata),
                    IncludeObject::Object => out.extend_from_slice(json),
                }
                out.push(b'}');
            }
            (Shape::Metadata, None) => write_metadata(out, self.wanted.meta, metadata(json)?),
            (_, None) if self.resource.kind.custom.is_some() => out.extend_from_slice(json),
            (_, None) => {
                out.push(b'{');
                out.extend_from_slice(&json[from..]);
            }
        }
        Ok(())
    }
}

/// An object as an item of a list: of built-in kinds the list says what they are, so that they do not.
fn as_item(kind: &Kind, mut object: Value) -> Value {
    if kind.custom.is_none()
        && let Some(members) = object.as_object_mut()
    {
        members.remove("kind");
        members.remove("apiVersion");
    }
    object
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    serde_json::to_writer(out, value).expect("a value is always JSON");
}

fn write_metadata(out: &mut Vec<u8>, meta: MetaVersion, metadata: &str) {
    let version = meta.api_version();
    write!(out, r#"{{"kind":"PartialObjectMetadata","apiVersion":"{version}","metadata":{metadata}}}"#)
        .expect("writing to memory cannot fail");
}

fn unreadable(error: serde_json::Error) -> crate::error::ApiError {
    tracing::error!(%error, "a stored object is not JSON");
    crate::error::ApiError::internal("a stored object cannot be read; see the server's log")
}

/// The metadata of a stored object. It stands before all that is large, which is not read.
fn metadata(json: &[u8]) -> Result<&str> {
    struct Found<'a, 'de>(&'a mut Option<&'de RawValue>);

    impl<'de> Visitor<'de> for Found<'_, 'de> {
        type Value = ();

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> std::result::Result<(), A::Error> {
            while let Some(name) = members.next_key::<&str>()? {
                if name == "metadata" {
                    *self.0 = Some(members.next_value()?);
                    break;
                }
                members.next_value::<IgnoredAny>()?;
            }
            Ok(())
        }
    }

    let mut found = None;
    // It fails, since it does not read to the end.
    let read = serde_json::Deserializer::from_slice(json).deserialize_map(Found(&mut found));
    match (found, read) {
        (Some(metadata), _) => Ok(metadata.get()),
        (None, Ok(())) => Ok("{}"),
        (None, Err(error)) => Err(unreadable(error)),
    }
}

/// A stored object for those who print it: without managed fields, which are often the larger part of it and in no column.
struct Stored<'de> {
    value: Value,
    metadata: &'de str,
}

impl<'de> Stored<'de> {
    fn read(json: &'de [u8]) -> Result<Stored<'de>> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        StoredVisitor.deserialize(&mut reader).map_err(unreadable)
    }
}

struct StoredVisitor;

impl<'de> DeserializeSeed<'de> for StoredVisitor {
    type Value = Stored<'de>;

    fn deserialize<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> std::result::Result<Stored<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StoredVisitor {
    type Value = Stored<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> std::result::Result<Stored<'de>, A::Error> {
        let (mut read, mut metadata) = (Map::new(), "{}");
        while let Some(name) = members.next_key::<String>()? {
            if name != "metadata" {
                let value: Value = members.next_value()?;
                read.insert(name, value);
                continue;
            }
            metadata = members.next_value::<&RawValue>()?.get();
            let mut reader = serde_json::Deserializer::from_str(metadata);
            let shown = reader.deserialize_map(Shown).map_err(serde::de::Error::custom)?;
            read.insert(name, Value::Object(shown));
        }
        Ok(Stored { value: Value::Object(read), metadata })
    }
}

/// Metadata without managed fields.
struct Shown;

impl<'de> Visitor<'de> for Shown {
    type Value = Map<String, Value>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> std::result::Result<Self::Value, A::Error> {
        let mut shown = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if name == "managedFields" {
                members.next_value::<IgnoredAny>()?;
            } else {
                let value = members.next_value()?;
                shown.insert(name, value);
            }
        }
        Ok(shown)
    }
}
