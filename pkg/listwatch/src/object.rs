//! An object as it is served: its bytes, and what it can be selected by.

use crate::event::EventType;
use crate::resource::{DecodeError, Resource};
use api::selector::{Labels, Lookup};
use bytes::Bytes;
use std::sync::Arc;
use store::Revision;

/// One version of an object. Made once, shared by the cache, the window and all who read.
#[derive(Debug)]
pub struct Object {
    /// The key after the resource's prefix: `namespace/name`, or `name`.
    path: Arc<str>,
    /// Where the name begins in the path.
    name_at: u32,
    /// Of what type of event `line` is.
    kind: EventType,
    revision: Revision,
    /// The object inside the watch event that brought it: one buffer for both.
    line: Bytes,
    labels: Labels,
    fields: Fields,
}

impl Object {
    /// The namespace; empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.path[..self.name_at.saturating_sub(1) as usize]
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.path[self.name_at as usize..]
    }

    /// The store key after the resource's prefix: `namespace/name`, or `name`.
    pub fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// The resourceVersion.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The JSON as it is served, with its resourceVersion.
    pub fn json(&self) -> Bytes {
        self.line.slice(self.kind.head().len()..self.line.len() - TAIL.len())
    }

    /// [`Object::json`], borrowed.
    pub fn as_json(&self) -> &[u8] {
        &self.line[self.kind.head().len()..self.line.len() - TAIL.len()]
    }

    /// The labels.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The value of one of the resource's selectable fields.
    pub(crate) fn field(&self, index: usize) -> &str {
        self.fields.get(index)
    }

    /// A version of an object as it comes from the store, encoded for an event of this type.
    pub(crate) fn new(
        resource: &Resource,
        path: Arc<str>,
        stored: &Bytes,
        revision: Revision,
        kind: EventType,
    ) -> Result<Self, DecodeError> {
        let json = (resource.config.decode)(&format!("{}{path}", resource.config.prefix), stored)?;
        let (labels, fields) = resource.scanner.scan(&json)?;
        let line = encode(kind, json.len() + REVISION_BYTES, |out| {
            api::object::write_served(out, &json, revision);
        });
        let name_at = match path.find('/') {
            Some(slash) if resource.config.namespaced => slash as u32 + 1,
            _ => 0,
        };
        Ok(Object { path, name_at, kind, revision, line, labels, fields })
    }

    /// The same content under the revision at which it went away.
    pub(crate) fn deleted_at(&self, revision: Revision) -> Object {
        let kind = EventType::Deleted;
        let line = encode(kind, self.line.len() + REVISION_BYTES, |out| {
            write_with_revision(out, self.as_json(), revision);
        });
        let (labels, fields) = (self.labels.clone(), self.fields.clone());
        Object { path: self.path.clone(), name_at: self.name_at, kind, revision, line, labels, fields }
    }

    /// The line of a watch event of this type about this object; shared where it is the one the object came with.
    pub(crate) fn line(&self, kind: EventType) -> Bytes {
        if kind == self.kind {
            return self.line.clone();
        }
        encode(kind, self.line.len(), |out| out.extend_from_slice(self.as_json()))
    }

    /// Appends [`Object::line`].
    pub(crate) fn write_line(&self, out: &mut Vec<u8>, kind: EventType) {
        out.extend_from_slice(kind.head());
        out.extend_from_slice(self.as_json());
        out.extend_from_slice(TAIL);
    }

    /// How much memory it takes, about.
    pub(crate) fn cost(&self) -> usize {
        self.line.len() + OVERHEAD_BYTES
    }
}

/// What follows the object in the line of an event.
pub(crate) const TAIL: &[u8] = b"}\n";
/// Room for `"resourceVersion":"18446744073709551615",`.
const REVISION_BYTES: usize = 42;
/// Object, event, labels and fields, beside the bytes that are served.
const OVERHEAD_BYTES: usize = 400;

fn encode(kind: EventType, len: usize, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::with_capacity(kind.head().len() + len + TAIL.len());
    out.extend_from_slice(kind.head());
    write(&mut out);
    out.extend_from_slice(TAIL);
    // Objects live long: give back the room that was not needed.
    out.shrink_to_fit();
    Bytes::from(out)
}

/// Copies served JSON with another resourceVersion. Bytes of another shape are copied as they are.
fn write_with_revision(out: &mut Vec<u8>, json: &[u8], revision: Revision) {
    const BEFORE: &[u8] = b"\"metadata\":{\"resourceVersion\":\"";
    let Some(start) = json.windows(BEFORE.len()).position(|w| w == BEFORE) else {
        out.extend_from_slice(json);
        return;
    };
    let (before, old) = json.split_at(start + BEFORE.len());
    let digits = old.iter().take_while(|b| b.is_ascii_digit()).count();
    out.extend_from_slice(before);
    out.extend_from_slice(revision.to_string().as_bytes());
    out.extend_from_slice(&old[digits..]);
}

/// The values of the selectable fields, in the resource's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    text: Box<str>,
    ends: Box<[u32]>,
}

impl Fields {
    pub(crate) fn get(&self, index: usize) -> &str {
        let Some(&end) = self.ends.get(index) else { return "" };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start as usize..end as usize]
    }
}

impl<'a> FromIterator<&'a str> for Fields {
    fn from_iter<I: IntoIterator<Item = &'a str>>(values: I) -> Self {
        let mut text = String::new();
        let ends = values.into_iter().map(|value| {
            text.push_str(value);
            text.len() as u32
        });
        let ends = ends.collect();
        Fields { text: text.into(), ends }
    }
}

/// An object's fields by the names that selectors use.
pub(crate) struct ByName<'a>(pub(crate) &'a Object, pub(crate) &'a Resource);

impl Lookup for ByName<'_> {
    fn look_up(&self, name: &str) -> Option<&str> {
        match name {
            "metadata.name" => Some(self.0.name()),
            "metadata.namespace" => Some(self.0.namespace()),
            _ => self.1.field(name).map(|index| self.0.field(index)),
        }
    }
}
