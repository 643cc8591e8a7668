//! Objects that say how others are treated, understood once for each of their states.

use crate::registry::Resource;
use crate::storage::parse;
use api::Value;
use parking_lot::Mutex;
use std::sync::Arc;
use store::Revision;

/// The objects of a kind, as they were understood last.
pub struct Understood<T> {
    resource: Arc<Resource>,
    understand: fn(&Value) -> T,
    last: Mutex<Last<T>>,
}

struct Last<T> {
    /// Names and revisions, in the order of the names.
    of: Vec<(String, Revision)>,
    all: Arc<[Arc<T>]>,
}

impl<T> Understood<T> {
    /// Those in the cache of a resource.
    pub fn new(resource: Arc<Resource>, understand: fn(&Value) -> T) -> Understood<T> {
        let last = Mutex::new(Last { of: Vec::new(), all: Arc::new([]) });
        Understood { resource, understand, last }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.resource.cache.is_empty()
    }

    /// All of them, by name. Those that have not changed since are what they were the last time.
    pub fn all(&self) -> Arc<[Arc<T>]> {
        let objects = self.resource.objects(None);
        let mut last = self.last.lock();
        let is_last = |((name, revision), object): (&(String, Revision), &Arc<listwatch::Object>)| {
            *revision == object.revision() && name == object.name()
        };
        if last.of.len() == objects.len() && last.of.iter().zip(&objects).all(is_last) {
            return last.all.clone();
        }
        let (mut of, mut all) = (Vec::new(), Vec::new());
        for object in &objects {
            let state = (object.name().to_owned(), object.revision());
            let known = last.of.binary_search(&state).ok().map(|index| last.all[index].clone());
            let known = known
                .or_else(|| parse(object.as_json()).ok().map(|object| Arc::new((self.understand)(&object))));
            if let Some(known) = known {
                of.push(state);
                all.push(known);
            }
        }
        *last = Last { of, all: all.into() };
        last.all.clone()
    }
}
