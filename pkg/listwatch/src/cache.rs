//! The cache of one resource: the door to its objects, lists and watches.

use crate::Error;
use crate::hub::Progress;
use crate::object::Object;
use crate::resource::{Resource, ResourceConfig};
use crate::ring::{Reach, Ring};
use crate::scope::Scope;
use crate::state::State;
use crate::watcher::{Initial, Watcher};
use parking_lot::RwLock;
use std::sync::Arc;
use store::{Change, Entry, Revision};

/// The objects of one resource, encoded, and the window of their last changes.
///
/// # Guarantees
/// What one call returns is of one revision. Revisions only grow. A watch from the revision of a list tells every
/// change after it exactly once, in order.
pub struct Cache {
    pub(crate) resource: Resource,
    pub(crate) reach: Reach,
    pub(crate) progress: Arc<Progress>,
    state: RwLock<State>,
}

/// Which part of a list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page<'a> {
    /// Only objects after this path: the `next` of the page before. Empty: from the beginning.
    pub after: &'a str,
    /// At most so many; 0 is no limit.
    pub limit: usize,
    /// As of this revision, which must be in the window; `None`: as of now.
    pub revision: Option<Revision>,
}

/// A page of objects in the order of their paths.
#[derive(Debug)]
pub struct Listing {
    /// The revision that this is the state of.
    pub revision: Revision,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// Where the next page begins ([`Page::after`]), if there is one.
    pub next: Option<Arc<str>>,
    /// How many objects come after this page. Unknown where there are selectors.
    pub remaining: Option<u64>,
}

/// Where a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// With the next change.
    Now,
    /// With all present objects as added, and then changes.
    Any,
    /// With the first change after a revision.
    Revision(Revision),
    /// With all present objects as added, then the mark that these were all, and then changes.
    InitialEvents,
}

impl Cache {
    /// The object with this name; the namespace is empty for cluster-scoped resources.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Object>> {
        if !self.resource.config.namespaced {
            return self.state.read().get(name).cloned();
        }
        let path = format!("{namespace}/{name}");
        self.state.read().get(&path).cloned()
    }

    /// The objects of a scope.
    pub fn list(&self, scope: &Scope, page: Page<'_>) -> Result<Listing, Error> {
        let state = self.state.read();
        let now = self.revision_of(&state);
        let revision = page.revision.unwrap_or(now);
        check_window(revision, &state, now)?;
        if revision < now && revision < state.revision {
            let objects = state.select_at(revision, scope, page.after, &self.resource);
            return Ok(take_page(objects.iter(), revision, page.limit, !scope.has_selectors()));
        }
        let objects = state.select(scope, page.after, &self.resource);
        Ok(take_page(objects, revision, page.limit, !scope.has_selectors()))
    }

    /// Watches a scope.
    ///
    /// # Errors
    /// [`Error::TooOld`] and [`Error::Future`] if the window does not have the revision, [`Error::Closed`] if the
    /// resource is gone, [`Error::Replaced`] if another cache has taken the place of this one.
    pub fn watch(self: &Arc<Self>, scope: Scope, since: Since) -> Result<Watcher, Error> {
        let scope = scope.normalized(&self.resource);
        if scope.is_everything() {
            let state = self.state.read();
            let start = self.start(&state, &scope, since)?;
            return Ok(Watcher::new(self.clone(), None, state.ring.clone(), start));
        }
        let mut state = self.state.write();
        let start = self.start(&state, &scope, since)?;
        let (now, main) = (self.revision_of(&state), state.ring.clone());
        let (scope, ring) = state.views.subscribe(scope, &self.resource, &main, start.revision, now);
        Ok(Watcher::new(self.clone(), Some(scope), ring, start))
    }

    /// The value of a selectable field of one of its objects; `None` if the resource has no such field.
    pub fn field<'a>(&self, object: &'a Object, name: &str) -> Option<&'a str> {
        self.resource.field(name).map(|index| object.field(index))
    }

    /// How far the cache is: everything up to this revision is in it.
    pub fn revision(&self) -> Revision {
        self.revision_of(&self.state.read())
    }

    /// The oldest revision from which a watch can start.
    pub fn oldest(&self) -> Revision {
        self.state.read().floor
    }

    /// Forgets the changes up to a revision: nobody can watch or list from before it any more. What is asked for by number
    /// and size alone ([`ResourceConfig::window`]) would be kept however long nothing happens.
    pub fn forget(&self, revision: Revision) {
        self.state.write().forget(revision, &self.resource, &self.reach);
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many distinct scopes are being watched, beyond "everything".
    pub fn views(&self) -> usize {
        self.state.read().views.len()
    }

    /// The resource as it was registered.
    pub fn config(&self) -> &ResourceConfig {
        &self.resource.config
    }

    /// A cache that has not been loaded: it holds back changes until it is.
    pub(crate) fn new(config: ResourceConfig, progress: Arc<Progress>) -> Self {
        let resource = Resource::new(config);
        let state = RwLock::new(State::new(&resource));
        Cache { resource, reach: Reach::default(), progress, state }
    }

    pub(crate) fn hold(&self) {
        self.state.write().hold();
    }

    pub(crate) fn load(&self, entries: &[Entry], revision: Revision) -> bool {
        self.state.write().load(entries, revision, &self.resource, &self.reach)
    }

    pub(crate) fn apply(&self, changes: &[Change], revision: Revision) {
        self.state.write().apply(changes, revision, &self.resource, &self.reach);
    }

    pub(crate) fn retire(&self) {
        self.state.write().retire();
    }

    pub(crate) fn close(&self) {
        self.state.write().close();
    }

    pub(crate) fn is_live(&self) -> bool {
        self.state.read().is_live()
    }

    pub(crate) fn unsubscribe(&self, scope: &Scope, ring: &Arc<Ring>) {
        self.state.write().views.unsubscribe(scope, ring, &self.resource);
    }

    /// The state's own revision is that of the last change here. If the hub is further, nothing was changed here
    /// since: it could not have gone on while the state is locked.
    fn revision_of(&self, state: &State) -> Revision {
        if state.is_live() { state.revision.max(self.progress.applied()) } else { state.revision }
    }

    fn start(&self, state: &State, scope: &Scope, since: Since) -> Result<Start, Error> {
        if state.is_closed() {
            return Err(Error::Closed);
        }
        if state.is_retired {
            return Err(Error::Replaced);
        }
        let now = self.revision_of(state);
        let present = |mark: bool| {
            let objects: Vec<_> = state.select(scope, "", &self.resource).cloned().collect();
            Some(Initial { objects: objects.into_iter(), mark, within: None })
        };
        let (revision, initial) = match since {
            Since::Now => (now, None),
            Since::Any => (now, present(false)),
            Since::InitialEvents => (now, present(true)),
            Since::Revision(revision) => {
                check_window(revision, state, now)?;
                (revision, None)
            }
        };
        let cursor = state.ring.first_after(revision).unwrap_or(state.next_seq);
        Ok(Start { revision, cursor, initial })
    }
}

/// Where a watcher begins.
pub(crate) struct Start {
    pub(crate) revision: Revision,
    pub(crate) cursor: u64,
    pub(crate) initial: Option<Initial>,
}

fn check_window(revision: Revision, state: &State, now: Revision) -> Result<(), Error> {
    match revision {
        _ if revision < state.floor => Err(Error::TooOld { asked: revision, oldest: state.floor }),
        _ if revision > now => Err(Error::Future { asked: revision, current: now }),
        _ => Ok(()),
    }
}

fn take_page<'a>(
    mut objects: impl Iterator<Item = &'a Arc<Object>>,
    revision: Revision,
    limit: usize,
    count: bool,
) -> Listing {
    if limit == 0 {
        return Listing { revision, objects: objects.cloned().collect(), next: None, remaining: None };
    }
    let page: Vec<Arc<Object>> = objects.by_ref().take(limit).cloned().collect();
    let more = objects.next().is_some();
    let next = page.last().filter(|_| more).map(|last| last.path().clone());
    let remaining = (more && count).then(|| 1 + objects.count() as u64);
    Listing { revision, objects: page, next, remaining }
}
