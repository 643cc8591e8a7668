//! What the owner of a [`Hub`](crate::Hub) says about a resource.

use crate::scan::Scanner;
use bytes::Bytes;
use std::sync::Arc;

/// Why stored bytes could not be turned into JSON.
pub type DecodeError = Box<dyn std::error::Error + Send + Sync>;

/// Turns the stored bytes of a key into the object's JSON, such as by decrypting them.
pub type Decode = Arc<dyn Fn(&str, &Bytes) -> Result<Bytes, DecodeError> + Send + Sync>;

/// A resource: the objects under one key prefix.
#[derive(Clone)]
pub struct ResourceConfig {
    /// Where its objects are in the store, ending in `/`.
    pub prefix: String,
    /// Whether keys go on as `namespace/name`, or just as `name`.
    pub namespaced: bool,
    /// From stored bytes to JSON as [`api::object::stored`] makes it.
    pub decode: Decode,
    /// What field selectors may name beyond `metadata.name` and `metadata.namespace`.
    pub fields: Vec<SelectableField>,
    /// How much of the past is kept.
    pub window: Window,
}

impl ResourceConfig {
    /// A resource whose objects are stored as plain JSON.
    pub fn new(prefix: impl Into<String>, namespaced: bool) -> Self {
        ResourceConfig {
            prefix: prefix.into(),
            namespaced,
            decode: Arc::new(|_, stored| Ok(stored.clone())),
            fields: Vec::new(),
            window: Window::default(),
        }
    }
}

/// A field that field selectors may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectableField {
    /// What selectors call it.
    pub name: String,
    /// Where its value is, as dotted paths: the first that leads to one counts.
    pub paths: Vec<String>,
    /// Its value in objects that have none: upstream shows `false` and `0` for booleans and numbers.
    pub absent: &'static str,
    /// Whether objects are indexed by it, so that a list of those with one value does not look at the others.
    pub indexed: bool,
}

impl SelectableField {
    /// Looks for the value at these paths instead of at its name.
    pub fn at(mut self, paths: &[&str]) -> Self {
        self.paths = paths.iter().map(|&path| path.to_owned()).collect();
        self
    }

    /// Gives it a value where objects have none.
    pub fn absent(mut self, value: &'static str) -> Self {
        self.absent = value;
        self
    }

    /// Indexes objects by it.
    pub fn indexed(mut self) -> Self {
        self.indexed = true;
        self
    }
}

/// A field whose name is its path.
impl From<&str> for SelectableField {
    fn from(path: &str) -> Self {
        SelectableField { name: path.into(), paths: vec![path.into()], absent: "", indexed: false }
    }
}

/// How many changes are kept, whichever bound is reached first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// By number.
    pub events: usize,
    /// By their size in memory.
    pub bytes: usize,
}

impl Default for Window {
    fn default() -> Self {
        Window { events: 8192, bytes: 16 << 20 }
    }
}

/// A [`ResourceConfig`] made ready for use.
pub(crate) struct Resource {
    pub(crate) config: ResourceConfig,
    pub(crate) scanner: Scanner,
}

impl Resource {
    pub(crate) fn new(config: ResourceConfig) -> Self {
        let scanner = Scanner::new(&config.fields);
        Resource { config, scanner }
    }

    /// Which of the selectable fields has this name.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.config.fields.iter().position(|field| field.name == name)
    }
}
