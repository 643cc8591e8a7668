//! What a cache knows: the objects as they are now, and how they came to be.
//!
//! A plain synchronous structure: changes go in, events come out. Everything in it is of one and the same revision.

use crate::event::{Event, EventType};
use crate::index::Index;
use crate::object::Object;
use crate::resource::Resource;
use crate::ring::{Reach, Ring};
use crate::scope::{Pin, Scope};
use crate::view::Views;
use crate::watcher::Ended;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use store::{Change, Entry, Revision};

/// See the module's documentation.
pub(crate) struct State {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    /// One for each indexed field.
    indexes: Vec<Index>,
    /// All changes up to here are in.
    pub(crate) revision: Revision,
    /// All events after this revision are in `ring`.
    pub(crate) floor: Revision,
    pub(crate) ring: Arc<Ring>,
    pub(crate) views: Views,
    pub(crate) next_seq: u64,
    /// Where the ring begins.
    edge: u64,
    trimmed_since_sweep: u64,
    phase: Phase,
    /// Whether another has taken its place: it is read from, but not watched any more.
    pub(crate) is_retired: bool,
}

enum Phase {
    /// Being read from the store. Changes that come meanwhile wait here; `None`: too many came, read again.
    Loading(Option<Vec<Change>>),
    Live,
    Closed,
}

/// More changes than this while a resource is being read make reading it again cheaper.
const MOST_WAITING_CHANGES: usize = 50_000;
/// How many events leave the window before quiet views are made to forget them too.
const SWEEP_EVENTS: u64 = 1024;

impl State {
    pub(crate) fn new(resource: &Resource) -> Self {
        let fields = resource.config.fields.iter().enumerate();
        State {
            objects: BTreeMap::new(),
            indexes: fields.filter(|(_, field)| field.indexed).map(|(field, _)| Index::new(field)).collect(),
            revision: 0,
            floor: 0,
            ring: Arc::new(Ring::new()),
            views: Views::default(),
            next_seq: 1,
            edge: 1,
            trimmed_since_sweep: 0,
            phase: Phase::Loading(Some(Vec::new())),
            is_retired: false,
        }
    }

    /// Holds back changes from now on, until [`State::load`].
    pub(crate) fn hold(&mut self) {
        if !self.is_closed() {
            self.phase = Phase::Loading(Some(Vec::new()));
        }
    }

    /// Takes the objects as they were at a revision, and all changes held back since. Everybody who watched is sent
    /// away, because what happened in between is not known. Returns false if it must be done again.
    pub(crate) fn load(
        &mut self,
        entries: &[Entry],
        revision: Revision,
        resource: &Resource,
        reach: &Reach,
    ) -> bool {
        let changes = match &mut self.phase {
            Phase::Loading(None) => return false,
            Phase::Loading(Some(changes)) => std::mem::take(changes),
            Phase::Live => Vec::new(),
            Phase::Closed => return true,
        };
        self.end(Ended::Reset);
        self.objects.clear();
        self.indexes.iter_mut().for_each(Index::clear);
        for entry in entries {
            let Some(path) = entry.key.strip_prefix(&resource.config.prefix) else { continue };
            match Object::new(resource, path.into(), &entry.value, entry.modified, EventType::Added) {
                Ok(object) => self.put(None, Arc::new(object)),
                Err(error) => {
                    tracing::error!(key = entry.key, %error, "left out an object that cannot be read")
                }
            };
        }
        self.revision = revision;
        self.floor = revision;
        self.edge = self.next_seq;
        self.phase = Phase::Live;
        reach.update(self.next_seq, &self.ring, resource.config.window);
        if let Some(last) = changes.last() {
            self.apply(&changes, last.revision, resource, reach);
        }
        true
    }

    /// Takes the changes of a batch that concern this resource. The batch as a whole goes up to `revision`.
    pub(crate) fn apply(
        &mut self,
        changes: &[Change],
        revision: Revision,
        resource: &Resource,
        reach: &Reach,
    ) {
        match &mut self.phase {
            Phase::Closed => return,
            Phase::Loading(held) => {
                match held {
                    Some(held_changes) if held_changes.len() + changes.len() <= MOST_WAITING_CHANGES => {
                        held_changes.extend_from_slice(changes);
                    }
                    _ => *held = None,
                }
                return;
            }
            Phase::Live => {}
        }
        let mut events = Vec::with_capacity(changes.len());
        // What was read from the store may be ahead of the feed.
        let known = self.revision;
        for change in changes.iter().filter(|change| change.revision > known) {
            if let Some(event) = self.change(change, resource) {
                self.next_seq += 1;
                events.push(Arc::new(event));
            }
        }
        self.revision = self.revision.max(revision);
        if events.is_empty() {
            return;
        }
        self.ring.publish(events.clone());
        if let Some(last) = self.ring.trim_to(resource.config.window) {
            self.trimmed_since_sweep += last.seq + 1 - self.edge;
            self.edge = last.seq + 1;
            self.floor = last.revision;
        }
        reach.update(self.next_seq, &self.ring, resource.config.window);
        self.views.publish(&events, resource, self.edge);
        if self.trimmed_since_sweep >= SWEEP_EVENTS {
            self.trimmed_since_sweep = 0;
            self.views.trim_before(self.edge);
        }
    }

    /// Forgets the changes up to a revision.
    pub(crate) fn forget(&mut self, revision: Revision, resource: &Resource, reach: &Reach) {
        let Some(last) = self.ring.trim_until(revision) else { return };
        self.edge = last.seq + 1;
        self.floor = last.revision;
        self.trimmed_since_sweep = 0;
        self.views.trim_before(self.edge);
        reach.update(self.next_seq, &self.ring, resource.config.window);
    }

    /// Sends everybody away who watches.
    fn end(&mut self, why: Ended) {
        self.views.end(why);
        std::mem::replace(&mut self.ring, Arc::new(Ring::new())).end(why);
    }

    /// Another takes its place: who watches goes there.
    pub(crate) fn retire(&mut self) {
        self.is_retired = true;
        self.end(Ended::Reset);
    }

    /// The end of the resource.
    pub(crate) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.end(Ended::Closed);
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    pub(crate) fn get(&self, path: &str) -> Option<&Arc<Object>> {
        self.objects.get(path)
    }

    /// The objects of a scope after a path, in the order of their paths.
    pub(crate) fn select<'a>(
        &'a self,
        scope: &'a Scope,
        after: &'a str,
        resource: &'a Resource,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        let candidates = self.candidates(scope, after, resource);
        // Without selectors there is nothing left to ask.
        if !scope.has_selectors() && (scope.namespace.is_none() || resource.config.namespaced) {
            return candidates;
        }
        Box::new(candidates.filter(move |object| scope.matches(object, resource)))
    }

    /// [`State::select`] as it was at a revision of the window.
    pub(crate) fn select_at(
        &self,
        revision: Revision,
        scope: &Scope,
        after: &str,
        resource: &Resource,
    ) -> Vec<Arc<Object>> {
        // The first change of an object after the revision tells what it was then.
        let mut then: BTreeMap<Arc<str>, Option<Arc<Object>>> = BTreeMap::new();
        for event in self.ring.between(revision, Revision::MAX) {
            then.entry(event.object.path().clone()).or_insert_with(|| event.previous.clone());
        }
        let unchanged =
            self.select(scope, after, resource).filter(|object| !then.contains_key(object.path()));
        let mut objects: Vec<Arc<Object>> = unchanged.cloned().collect();
        let changed = then
            .values()
            .flatten()
            .filter(|object| &**object.path() > after && scope.matches(object, resource));
        objects.extend(changed.cloned());
        objects.sort_by(|a, b| a.path().cmp(b.path()));
        objects
    }

    /// A superset of the objects of a scope, as small as can be had cheaply.
    fn candidates<'a>(
        &'a self,
        scope: &'a Scope,
        after: &'a str,
        resource: &'a Resource,
    ) -> Box<dyn Iterator<Item = &'a Arc<Object>> + 'a> {
        let namespace = scope.only_namespace().filter(|_| resource.config.namespaced);
        let pin = scope.pin(resource);
        if let Pin::Name(name) = pin
            && (namespace.is_some() || !resource.config.namespaced)
        {
            let object = match namespace {
                Some(namespace) => self.objects.get(&*format!("{namespace}/{name}")),
                None => self.objects.get(name),
            };
            return Box::new(object.filter(|object| &**object.path() > after).into_iter());
        }
        if let Pin::Field(field, value) = pin
            && let Some(index) = self.indexes.iter().find(|index| index.field == field)
        {
            return Box::new(index.paths(value, after).filter_map(|path| self.objects.get(path)));
        }
        let Some(namespace) = namespace else {
            let range = self.objects.range::<str, _>((Bound::Excluded(after), Bound::Unbounded));
            return Box::new(range.map(|(_, object)| object));
        };
        // A range, and no look at each object: they are all over the memory. What follows `/` is `0`.
        let (start, end) = (format!("{namespace}/"), format!("{namespace}0"));
        let from = if after > &*start { after } else { &*start };
        if from >= &*end {
            return Box::new(std::iter::empty());
        }
        let range = self.objects.range::<str, _>((Bound::Excluded(from), Bound::Excluded(&*end)));
        Box::new(range.map(|(_, object)| object))
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    /// Changes one object, and says what that was.
    fn change(&mut self, change: &Change, resource: &Resource) -> Option<Event> {
        let path = change.key.strip_prefix(&resource.config.prefix)?;
        let known = self.objects.get_key_value(path);
        let (path, previous) = match known {
            Some((path, previous)) => (path.clone(), Some(previous.clone())),
            None => (Arc::from(path), None),
        };
        let kind = if previous.is_some() { EventType::Modified } else { EventType::Added };
        let object = change.value.as_ref().and_then(|value| {
            let object = Object::new(resource, path.clone(), value, change.revision, kind);
            // Serving the version before would be a lie that lasts: it is gone, as far as anybody can tell.
            let complain = |error: &_| tracing::error!(key = change.key, %error, "left out an object that cannot be read");
            object.inspect_err(complain).ok()
        });
        let Some(object) = object else {
            let previous = previous?;
            self.indexes.iter_mut().for_each(|index| index.replace(Some(&previous), None));
            self.objects.remove(&path);
            let object = Arc::new(previous.deleted_at(change.revision));
            return Some(Event::new(self.next_seq, EventType::Deleted, object, Some(previous)));
        };
        let object = Arc::new(object);
        self.put(previous.as_deref(), object.clone());
        Some(Event::new(self.next_seq, kind, object, previous))
    }

    fn put(&mut self, previous: Option<&Object>, object: Arc<Object>) {
        self.indexes.iter_mut().for_each(|index| index.replace(previous, Some(&object)));
        self.objects.insert(object.path().clone(), object);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceConfig;

    fn change(revision: Revision) -> Change {
        let value = Some("{\"metadata\":{}}".into());
        Change { key: "/registry/core/nodes/n".into(), value, revision, created: revision }
    }

    fn loading() -> (State, Resource, Reach) {
        let resource = Resource::new(ResourceConfig::new("/registry/core/nodes/", false));
        (State::new(&resource), resource, Reach::default())
    }

    #[test]
    fn changes_that_the_list_had_already_are_not_applied_again() {
        let (mut state, resource, reach) = loading();
        state.apply(&[change(3), change(4), change(5)], 6, &resource, &reach);
        assert!(!state.is_live() && state.len() == 0);
        assert!(state.load(&[], 4, &resource, &reach));
        let events = state.ring.between(0, Revision::MAX);
        assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), [5]);
        assert_eq!((state.floor, state.revision), (4, 5));
    }

    #[test]
    fn too_many_changes_while_loading_mean_loading_again() {
        let (mut state, resource, reach) = loading();
        let flood: Vec<Change> = (1..=MOST_WAITING_CHANGES as Revision + 1).map(change).collect();
        let last = flood.len() as Revision;
        state.apply(&flood, last, &resource, &reach);
        state.apply(&[change(last + 1)], last + 1, &resource, &reach);
        assert!(!state.load(&[], last, &resource, &reach), "what was not held back would be missing");
        state.hold();
        assert!(state.load(&[], last + 1, &resource, &reach));
        assert!(state.is_live());
    }

    #[test]
    fn what_is_forgotten_by_age_is_gone_and_the_rest_goes_on() {
        let (mut state, resource, reach) = loading();
        assert!(state.load(&[], 2, &resource, &reach));
        state.apply(&[change(3), change(4), change(7)], 9, &resource, &reach);
        let kept = |state: &State| {
            let events = state.ring.between(0, Revision::MAX);
            (state.floor, events.iter().map(|event| event.revision).collect::<Vec<_>>())
        };
        state.forget(2, &resource, &reach);
        assert_eq!(kept(&state), (2, vec![3, 4, 7]));
        state.forget(6, &resource, &reach);
        assert_eq!(kept(&state), (4, vec![7]), "after 4 nothing was until 7");
        state.forget(9, &resource, &reach);
        assert_eq!((kept(&state), state.ring.size()), ((7, vec![]), (0, 0)));
        state.apply(&[change(11)], 11, &resource, &reach);
        assert_eq!((kept(&state), state.len()), ((7, vec![11]), 1));
        assert_eq!(state.ring.first_after(7), Some(state.next_seq - 1));
    }

    #[test]
    fn a_closed_resource_stays_closed() {
        let (mut state, resource, reach) = loading();
        state.close();
        state.hold();
        state.apply(&[change(1)], 1, &resource, &reach);
        assert!(state.load(&[], 1, &resource, &reach));
        assert!(state.is_closed() && state.len() == 0);
    }
}
