//! Objects by the value of one field.

use crate::object::Object;
use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// The paths of all objects, by the value of a selectable field.
pub(crate) struct Index {
    /// Which of the resource's fields.
    pub(crate) field: usize,
    paths: HashMap<Box<str>, BTreeSet<Arc<str>>>,
}

impl Index {
    pub(crate) fn new(field: usize) -> Self {
        Index { field, paths: HashMap::new() }
    }

    pub(crate) fn clear(&mut self) {
        self.paths.clear();
    }

    /// Puts `next` in the place of the version before it.
    pub(crate) fn replace(&mut self, previous: Option<&Object>, next: Option<&Arc<Object>>) {
        let value = |object: &Object| -> Box<str> { object.field(self.field).into() };
        let (before, after) = (previous.map(value), next.map(|object| value(object)));
        if before == after {
            return;
        }
        if let (Some(previous), Some(before)) = (previous, before)
            && let Some(paths) = self.paths.get_mut(&before)
        {
            paths.remove(previous.path());
            if paths.is_empty() {
                self.paths.remove(&before);
            }
        }
        if let (Some(next), Some(after)) = (next, after) {
            self.paths.entry(after).or_default().insert(next.path().clone());
        }
    }

    /// The paths of objects with a value, after a path.
    pub(crate) fn paths<'a>(&'a self, value: &str, after: &'a str) -> impl Iterator<Item = &'a Arc<str>> {
        let paths = self.paths.get(value).into_iter();
        paths.flat_map(move |paths| paths.range::<str, _>((Bound::Excluded(after), Bound::Unbounded)))
    }
}
