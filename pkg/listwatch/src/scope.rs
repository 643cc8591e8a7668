//! The part of a resource that a list or a watch is about.

use crate::event::{Event, EventType};
use crate::object::{ByName, Object};
use crate::resource::Resource;
use api::selector::{FieldSelector, LabelSelector};
use std::sync::Arc;

/// A namespace (or all of them) and selectors. Two watches of equal scopes share their work.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Scope {
    /// Only this namespace; of no effect on cluster-scoped resources.
    pub namespace: Option<Box<str>>,
    /// Only objects with such labels.
    pub labels: LabelSelector,
    /// Only objects with such fields.
    pub fields: FieldSelector,
}

/// What an object must have to be in a scope at all: how views are found without asking all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pin<'a> {
    Name(&'a str),
    Field(usize, &'a str),
    Namespace(&'a str),
    Nothing,
}

impl Scope {
    /// All objects of one namespace.
    pub fn namespace(namespace: &str) -> Self {
        Scope { namespace: Some(namespace.into()), ..Scope::default() }
    }

    /// Whether it leaves nothing out.
    pub fn is_everything(&self) -> bool {
        self.namespace.is_none() && !self.has_selectors()
    }

    /// Whether selectors leave anything out.
    pub fn has_selectors(&self) -> bool {
        !self.labels.is_everything() || !self.fields.is_everything()
    }

    /// The same scope, with nothing in it that cannot matter.
    pub(crate) fn normalized(mut self, resource: &Resource) -> Self {
        if !resource.config.namespaced {
            self.namespace = None;
        }
        self
    }

    /// The one namespace its objects can be in.
    pub(crate) fn only_namespace(&self) -> Option<&str> {
        self.namespace.as_deref().or_else(|| self.fields.pinned("metadata.namespace"))
    }

    pub(crate) fn pin(&self, resource: &Resource) -> Pin<'_> {
        if let Some(name) = self.fields.pinned("metadata.name") {
            return Pin::Name(name);
        }
        let pinned = |term: &api::selector::Term| term.equal.then(|| resource.field(&term.field)).flatten();
        let mut terms = self.fields.terms().iter();
        if let Some((field, value)) = terms.find_map(|term| Some((pinned(term)?, &*term.value))) {
            return Pin::Field(field, value);
        }
        self.only_namespace().map_or(Pin::Nothing, Pin::Namespace)
    }

    pub(crate) fn matches(&self, object: &Object, resource: &Resource) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| namespace == object.namespace())
            && self.fields.matches(&ByName(object, resource))
            && self.labels.matches(object.labels())
    }

    /// What an event is to those who see only this scope; nothing if it is none of theirs.
    pub(crate) fn transform(&self, event: &Arc<Event>, resource: &Resource) -> Option<Arc<Event>> {
        let before = event.previous.as_ref().is_some_and(|object| self.matches(object, resource));
        let after = event.kind != EventType::Deleted && self.matches(&event.object, resource);
        match (before, after) {
            (false, false) => None,
            (false, true) => Some(event.appeared()),
            (true, true) => Some(event.clone()),
            (true, false) => Some(event.departed()),
        }
    }
}
