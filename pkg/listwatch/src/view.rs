//! Views: one stream of events per distinct scope that somebody watches.
//!
//! ```text
//! event ──by name──────> View, View       A view is kept in one place, by the value its objects must have.
//!       ──by field─────> View             So an event is shown to the few views it can concern,
//!       ──by namespace─> View, …          however many there are.
//!       ──rest─────────> View, …
//! ```

use crate::event::Event;
use crate::object::Object;
use crate::resource::Resource;
use crate::ring::Ring;
use crate::scope::{Pin, Scope};
use crate::watcher::Ended;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::Revision;

/// The events of one scope.
pub(crate) struct View {
    pub(crate) scope: Arc<Scope>,
    pub(crate) ring: Arc<Ring>,
    /// Events of the batch that is being applied.
    pending: Mutex<Vec<Arc<Event>>>,
}

/// All views of a resource.
#[derive(Default)]
pub(crate) struct Views {
    all: HashMap<Arc<Scope>, Entry>,
    by_name: Lists,
    by_field: HashMap<usize, Lists>,
    by_namespace: Lists,
    rest: Vec<Arc<View>>,
}

struct Entry {
    view: Arc<View>,
    watchers: usize,
    /// The view's ring has all its events after this revision.
    since: Revision,
}

type Lists = HashMap<Box<str>, Vec<Arc<View>>>;

impl Views {
    /// The ring of a scope, made if nobody watches it yet, that has all events after `since`. `main` is the ring of
    /// all events, up to the revision `now`.
    pub(crate) fn subscribe(
        &mut self,
        scope: Scope,
        resource: &Resource,
        main: &Ring,
        since: Revision,
        now: Revision,
    ) -> (Arc<Scope>, Arc<Ring>) {
        if !self.all.contains_key(&scope) {
            let view = Arc::new(View {
                scope: Arc::new(scope.clone()),
                ring: Arc::new(Ring::new()),
                pending: Mutex::default(),
            });
            self.list(view.scope.pin(resource)).push(view.clone());
            self.all.insert(view.scope.clone(), Entry { view, watchers: 0, since: now });
        }
        let entry = self.all.get_mut(&scope).expect("inserted above");
        if since < entry.since {
            let older = main.between(since, entry.since);
            let older = older.iter().filter_map(|event| scope.transform(event, resource));
            entry.view.ring.prepend(older.collect());
            entry.since = since;
        }
        entry.watchers += 1;
        (entry.view.scope.clone(), entry.view.ring.clone())
    }

    /// Takes note that a watcher is gone, and its view with it if it was the last. `ring` tells whether it was one
    /// of ours: after a reset the scope may have a view that is not the watcher's.
    pub(crate) fn unsubscribe(&mut self, scope: &Scope, ring: &Arc<Ring>, resource: &Resource) {
        let Some(entry) = self.all.get_mut(scope) else { return };
        if !Arc::ptr_eq(&entry.view.ring, ring) {
            return;
        }
        entry.watchers -= 1;
        if entry.watchers > 0 {
            return;
        }
        self.all.remove(scope);
        let keep = |view: &Arc<View>| !Arc::ptr_eq(&view.ring, ring);
        let prune = |lists: &mut Lists, value: &str| {
            if let Some(views) = lists.get_mut(value) {
                views.retain(keep);
                if views.is_empty() {
                    lists.remove(value);
                }
            }
        };
        match scope.pin(resource) {
            Pin::Name(name) => prune(&mut self.by_name, name),
            Pin::Namespace(namespace) => prune(&mut self.by_namespace, namespace),
            Pin::Nothing => self.rest.retain(keep),
            Pin::Field(field, value) => {
                if let Some(lists) = self.by_field.get_mut(&field) {
                    prune(lists, value);
                    if lists.is_empty() {
                        self.by_field.remove(&field);
                    }
                }
            }
        }
    }

    /// Shows events to the views they concern. `edge` is where the main ring begins now.
    pub(crate) fn publish(&self, events: &[Arc<Event>], resource: &Resource, edge: u64) {
        let mut touched: Vec<&Arc<View>> = Vec::new();
        for event in events {
            self.concerned(event, |view| {
                let Some(event) = view.scope.transform(event, resource) else { return };
                let mut pending = view.pending.lock();
                if pending.is_empty() {
                    touched.push(view);
                }
                pending.push(event);
            });
        }
        for view in touched {
            view.ring.publish(std::mem::take(&mut view.pending.lock()));
            view.ring.trim_before(edge);
        }
    }

    /// Forgets in all views what the main ring has forgotten.
    pub(crate) fn trim_before(&self, edge: u64) {
        for entry in self.all.values() {
            entry.view.ring.trim_before(edge);
        }
    }

    /// Ends all views and forgets them.
    pub(crate) fn end(&mut self, why: Ended) {
        for entry in std::mem::take(self).all.into_values() {
            entry.view.ring.end(why);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Every view that an event can concern, each once: a view is in one list only.
    fn concerned<'a>(&'a self, event: &Event, mut show: impl FnMut(&'a Arc<View>)) {
        let object = &*event.object;
        let lists = [self.by_name.get(object.name()), self.by_namespace.get(object.namespace())];
        lists.into_iter().flatten().chain([&self.rest]).flatten().for_each(&mut show);
        for (&field, lists) in &self.by_field {
            let value = object.field(field);
            lists.get(value).into_iter().flatten().for_each(&mut show);
            let before = event.previous.as_deref().map(|previous: &Object| previous.field(field));
            if let Some(before) = before.filter(|before| *before != value) {
                lists.get(before).into_iter().flatten().for_each(&mut show);
            }
        }
    }

    fn list(&mut self, pin: Pin<'_>) -> &mut Vec<Arc<View>> {
        match pin {
            Pin::Name(name) => self.by_name.entry(name.into()).or_default(),
            Pin::Field(field, value) => {
                self.by_field.entry(field).or_default().entry(value.into()).or_default()
            }
            Pin::Namespace(namespace) => self.by_namespace.entry(namespace.into()).or_default(),
            Pin::Nothing => &mut self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventType;
    use crate::resource::{ResourceConfig, SelectableField};
    use api::selector::FieldSelector;

    fn pods() -> Resource {
        let fields = vec![SelectableField::from("spec.nodeName"), SelectableField::from("status.phase")];
        Resource::new(ResourceConfig { fields, ..ResourceConfig::new("/registry/core/pods/", true) })
    }

    fn pod(resource: &Resource, revision: Revision, node: &str) -> Arc<Object> {
        let json = format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"nodeName":"{node}"}}}}"#).into();
        Arc::new(Object::new(resource, "ns/p".into(), &json, revision, EventType::Modified).unwrap())
    }

    fn watch(views: &mut Views, resource: &Resource, namespace: Option<&str>, fields: &str) {
        let fields = FieldSelector::parse(fields).unwrap();
        let scope = Scope { namespace: namespace.map(Box::from), fields, ..Scope::default() };
        views.subscribe(scope, resource, &Ring::new(), 0, 0);
    }

    #[test]
    fn an_event_is_shown_to_the_views_it_can_concern_and_no_others() {
        let resource = pods();
        let mut views = Views::default();
        for n in 0..5_000 {
            watch(&mut views, &resource, None, &format!("spec.nodeName=n{n}"));
            watch(&mut views, &resource, Some("ns"), &format!("metadata.name=p{n}"));
            watch(&mut views, &resource, Some(&format!("ns{n}")), "");
        }
        watch(&mut views, &resource, Some("ns"), "");
        watch(&mut views, &resource, None, "spec.nodeName!=n1");
        watch(&mut views, &resource, None, "metadata.name=p");
        assert_eq!(views.len(), 15_003);
        let check = |before: Option<&str>, after: &str, expected: &[&str]| {
            let previous = before.map(|node| pod(&resource, 1, node));
            let event = Event::new(1, EventType::Modified, pod(&resource, 2, after), previous);
            let mut shown = Vec::new();
            views.concerned(&event, |view| {
                let Scope { namespace, fields, .. } = &*view.scope;
                shown.push(format!("{}?{fields}", namespace.as_deref().unwrap_or_default()));
            });
            shown.sort_unstable();
            assert_eq!(shown, expected);
        };
        let always = ["?metadata.name=p", "?spec.nodeName!=n1", "ns?"];
        check(None, "n9", &["?metadata.name=p", "?spec.nodeName!=n1", "?spec.nodeName=n9", "ns?"]);
        check(Some("n9"), "n9", &["?metadata.name=p", "?spec.nodeName!=n1", "?spec.nodeName=n9", "ns?"]);
        check(Some(""), "other", &always);
        check(
            Some("n1"),
            "n2",
            &["?metadata.name=p", "?spec.nodeName!=n1", "?spec.nodeName=n1", "?spec.nodeName=n2", "ns?"],
        );
    }

    #[test]
    fn nothing_is_left_of_a_view_that_nobody_watches() {
        let resource = pods();
        let mut views = Views::default();
        let mut rings = Vec::new();
        for (namespace, fields) in [
            (None, "spec.nodeName=n1"),
            (None, "metadata.name=p"),
            (Some("ns"), ""),
            (None, "status.phase!=x"),
        ] {
            let fields = FieldSelector::parse(fields).unwrap();
            let scope = Scope { namespace: namespace.map(Box::from), fields, ..Scope::default() };
            rings.push(views.subscribe(scope, &resource, &Ring::new(), 0, 0));
        }
        for (scope, ring) in &rings {
            views.unsubscribe(scope, ring, &resource);
        }
        let Views { all, by_name, by_field, by_namespace, rest } = views;
        assert!(all.is_empty() && by_name.is_empty() && by_field.is_empty());
        assert!(by_namespace.is_empty() && rest.is_empty());
    }

    #[test]
    fn quiet_views_forget_what_has_left_the_window() {
        let resource = pods();
        let mut views = Views::default();
        let scope = Scope::namespace("ns");
        let (_, ring) = views.subscribe(scope, &resource, &Ring::new(), 0, 0);
        let events: Vec<_> =
            (1..=3).map(|n| Arc::new(Event::new(n, EventType::Added, pod(&resource, n, ""), None))).collect();
        views.publish(&events, &resource, 1);
        assert_eq!(ring.size().0, 3);
        views.trim_before(3);
        assert_eq!(ring.size().0, 1);
        assert_eq!(ring.unread(2), crate::ring::Unread::Lost);
        assert_eq!(ring.unread(3), crate::ring::Unread::From(3));
        views.trim_before(100);
        assert_eq!(ring.unread(4), crate::ring::Unread::Nothing, "who has read everything has lost nothing");
    }
}
