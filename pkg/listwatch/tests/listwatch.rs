//! The suite on a store in memory, and what needs a store that can be told to fail.

// All of this crate is tests, helpers included.
#![allow(clippy::unwrap_used)]

mod fake;
mod suite;

use bytes::Bytes;
use fake::Fake;
use listwatch::{Ended, Error, Hub, ResourceConfig, Scope, Since, Window};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Expect, Store, Write};
use suite::{Bed, PODS, commit, listed, pod, put, replay, scope, told};

/// Makes a test of each promise of the suite, on a new store each.
macro_rules! on_store {
    ($store:expr; $($promise:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                suite::$promise($store).await;
            }
        )*
    };
}

on_store!(Arc::new(Fake::default());
    objects_are_served_with_their_revision,
    lists_are_of_their_scope,
    lists_come_in_pages_of_one_revision,
    selectors_turn_changes_into_what_they_are_to_a_watcher,
    watches_resume_from_every_revision_of_the_window,
    a_slow_watcher_is_ended_and_can_resume,
    a_late_watcher_may_catch_up,
    every_change_is_told_once_and_in_order,
    views_are_shared_and_dropped,
    lines_are_shared_between_watchers,
    quiet_watches_make_progress,
    initial_events_are_consistent,
    resources_are_registered_and_removed,
    watches_resume_across_a_restart,
    waiting_does_not_depend_on_our_own_keys,
    commits_are_not_split,
);

#[tokio::test]
async fn a_broken_feed_is_taken_up_where_it_broke_off() {
    let fake = Arc::new(Fake::default());
    let bed = Bed::new(fake.clone(), 100).await;
    let mut watcher = bed.watch(&Scope::default(), Since::Now);
    let first = bed.put("ns/p", "", "").await;
    fake.pause(true);
    put(&*fake, "ns/q", "", "").await;
    fake.break_feeds(2);
    let last = put(&*fake, "ns/r", "", "").await;
    fake.pause(false);
    bed.hub.wait(last).await;
    let revisions: Vec<u64> = told(&mut watcher, last).await.iter().map(|event| event.revision).collect();
    assert_eq!(revisions, [first, first + 1, last]);
}

#[tokio::test]
async fn a_gap_in_the_feed_ends_watches_and_raises_the_floor() {
    let fake = Arc::new(Fake::default());
    let bed = Bed::new(fake.clone(), 100).await;
    let mut everything = bed.watch(&Scope::default(), Since::Now);
    let mut view = bed.watch(&scope("ns"), Since::Now);
    let first = bed.put("ns/p", "", "n1").await;
    fake.pause(true);
    put(&*fake, "ns/q", "", "").await;
    commit(&*fake, &format!("{PODS}ns/p"), None).await;
    let last = put(&*fake, "ns/r", "", "").await;
    fake.compact(last).await.unwrap();
    fake.break_feeds(0);
    fake.pause(false);
    bed.hub.wait(last).await;
    for watcher in [&mut everything, &mut view] {
        assert!(watcher.next().await.is_ok(), "what was told before the gap is still told");
        assert_eq!(watcher.next().await.unwrap_err(), Ended::Reset);
        assert_eq!(watcher.revision(), Some(first), "nothing after the gap was told");
    }
    assert_eq!(bed.paths(&Scope::default(), None), ["ns/q", "ns/r"]);
    assert!(bed.paths(&scope("??spec.nodeName=n1"), None).is_empty());
    let error = bed.pods.watch(Scope::default(), Since::Revision(first)).err();
    assert_eq!(error, Some(Error::TooOld { asked: first, oldest: last }));
    let mut again = bed.watch(&scope("ns"), Since::Revision(last));
    drop(view);
    assert_eq!(bed.pods.views(), 1, "the view of before does not take the new one with it");
    let next = bed.put("ns/s", "", "").await;
    assert_eq!(told(&mut again, next).await.len(), 1);
}

#[tokio::test]
async fn a_resource_is_registered_ahead_of_the_feed() {
    let fake = Arc::new(Fake::default());
    let bed = Bed::new(fake.clone(), 100).await;
    fake.pause(true);
    let nodes = "/registry/core/nodes/";
    for name in ["a", "b"] {
        commit(&*fake, &format!("{nodes}{name}"), Some(Bytes::from_static(b"{\"metadata\":{}}"))).await;
    }
    let cache = bed.hub.register(ResourceConfig::new(nodes, false)).await.unwrap();
    let revision = cache.revision();
    assert!(bed.hub.revision() < revision);
    let mut watcher = cache.watch(Scope::default(), Since::Now).unwrap();
    fake.pause(false);
    let last = commit(&*fake, &format!("{nodes}a"), None).await;
    bed.hub.wait(last).await;
    let kinds: Vec<&str> = told(&mut watcher, last).await.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["DELETED"], "changes that the list had already are not told again");
}

#[tokio::test]
async fn a_resource_that_is_registered_again_is_stale_for_nobody() {
    let bed = Bed::new(Arc::new(Fake::default()), 100).await;
    bed.put("ns/a", "", "").await;
    let mut watcher = bed.watch(&Scope::default(), Since::Now);
    let decode: listwatch::Decode =
        Arc::new(|_, _| Ok(Bytes::from_static(b"{\"metadata\":{},\"anew\":true}")));
    let anew = bed.hub.register(ResourceConfig { decode, ..ResourceConfig::new(PODS, true) }).await.unwrap();
    assert!(Arc::ptr_eq(&bed.hub.cache(PODS).unwrap(), &anew));
    assert_eq!(watcher.next().await.unwrap_err(), Ended::Reset);
    assert_eq!(bed.pods.watch(Scope::default(), Since::Now).err(), Some(Error::Replaced));
    bed.put("ns/b", "", "").await;
    let everything = Scope::default();
    assert_eq!(listed(&anew, &everything, None).len(), 2);
    assert_eq!(
        listed(&bed.pods, &everything, None),
        listed(&anew, &everything, None),
        "who still has the old one"
    );
    let text = String::from_utf8_lossy(anew.get("ns", "a").unwrap().as_json()).into_owned();
    assert!(text.contains("anew"), "all are read as it says: {text}");
}

#[tokio::test]
async fn history_that_was_compacted_is_not_replayed() {
    let fake = Arc::new(Fake::default());
    for name in ["a", "b", "c"] {
        put(&*fake, &format!("ns/{name}"), "", "").await;
    }
    fake.compact(2).await.unwrap();
    let bed = Bed::new(fake.clone(), 100).await;
    assert_eq!(bed.pods.oldest(), 2);
    let mut watcher = bed.watch(&Scope::default(), Since::Revision(2));
    assert_eq!(told(&mut watcher, 3).await.len(), 1);
}

#[tokio::test]
async fn the_window_is_bounded_by_size_too() {
    let store = Arc::new(Fake::default());
    let check = async |bytes: usize, kept: std::ops::RangeInclusive<usize>| {
        let window = Window { events: 1_000, bytes };
        let config = ResourceConfig { window, ..ResourceConfig::new(PODS, true) };
        let hub = Hub::start(store.clone(), Vec::new()).await.unwrap();
        let pods = hub.register(config).await.unwrap();
        let mut last = 0;
        for _ in 0..40 {
            last = put(&*store, "ns/p", "", "").await;
        }
        hub.wait(last).await;
        let mut watcher = pods.watch(Scope::default(), Since::Revision(pods.oldest())).unwrap();
        let events = told(&mut watcher, last).await.len();
        assert!(kept.contains(&events), "{events} events in {bytes} bytes");
    };
    check(1 << 20, 40..=40).await;
    check(8_000, 10..=20).await;
    check(0, 1..=1).await;
}

#[tokio::test]
async fn what_cannot_be_decoded_is_left_out() {
    let fake = Arc::new(Fake::default());
    let config = ResourceConfig {
        decode: Arc::new(|key, stored| match stored.strip_prefix(b"sealed:") {
            Some(json) => Ok(stored.slice_ref(json)),
            None => Err(format!("{key} is not sealed").into()),
        }),
        ..ResourceConfig::new("/registry/core/secrets/", true)
    };
    let seal = |json: &str| Some(Bytes::from(format!("sealed:{json}")));
    commit(&*fake, "/registry/core/secrets/ns/bad", Some(Bytes::from_static(b"{}"))).await;
    commit(&*fake, "/registry/core/secrets/ns/cut", seal("{")).await;
    let last = commit(&*fake, "/registry/core/secrets/ns/good", seal("{\"metadata\":{}}")).await;
    let hub = Hub::start(fake.clone(), vec![config]).await.unwrap();
    let secrets = hub.cache("/registry/core/secrets/").unwrap();
    assert_eq!(secrets.len(), 1);
    let json = secrets.get("ns", "good").unwrap().json();
    assert_eq!(json, format!("{{\"metadata\":{{\"resourceVersion\":\"{last}\"}}}}"));
    let mut watcher = secrets.watch(Scope::default(), Since::Now).unwrap();
    let broken = commit(&*fake, "/registry/core/secrets/ns/good", Some(Bytes::from_static(b"garbage"))).await;
    hub.wait(broken).await;
    assert!(secrets.is_empty());
    assert_eq!(told(&mut watcher, broken).await[0].kind.as_str(), "DELETED");
}

/// What one step of a random history does.
#[derive(Debug, Clone)]
struct Step {
    writes: Vec<(usize, Option<(usize, usize)>)>,
}

const PATHS: [&str; 5] = ["a/p", "a/q", "a-b/p", "b/p", "b/r"];
const LABELS: [&str; 3] = ["", "app=web", "app=db,tier=x"];
const NODES: [&str; 3] = ["", "n1", "n2"];
const SCOPES: [&str; 12] = [
    "",
    "a",
    "b?app",
    "?app=web",
    "?app!=web",
    "?app in (web,db),tier",
    "??spec.nodeName=n1",
    "a??spec.nodeName=",
    "??spec.nodeName!=n2",
    "??metadata.name=p",
    "b?app=db?metadata.name=p",
    "?!app?metadata.namespace=a-b",
];

fn history() -> impl Strategy<Value = Vec<Step>> {
    let object = proptest::option::weighted(0.75, (0..LABELS.len(), 0..NODES.len()));
    let writes = proptest::collection::btree_map(0..PATHS.len(), object, 1..3);
    let step = writes.prop_map(|writes| Step { writes: writes.into_iter().collect() });
    proptest::collection::vec(step, 1..24)
}

/// Replaying a watch from any revision on top of the list at that revision gives the list at the end.
async fn watches_complete_lists(steps: Vec<Step>, window: usize) {
    let store = Arc::new(Fake::default());
    let bed = Bed::new(store.clone(), window).await;
    let mut model: Vec<BTreeMap<String, u64>> = vec![BTreeMap::new()];
    let mut early: Vec<_> =
        SCOPES.iter().map(|text| (text, bed.watch(&scope(text), Since::Any), BTreeMap::new())).collect();
    let mut last = 0;
    for step in steps {
        let writes = step.writes.iter().map(|&(path, object)| Write {
            key: format!("{PODS}{}", PATHS[path]),
            expect: Expect::Any,
            value: object.map(|(labels, node)| pod(PATHS[path], LABELS[labels], NODES[node])),
        });
        last = store.commit(writes.collect()).await.unwrap();
        let mut state = model.last().cloned().unwrap_or_default();
        for (path, object) in step.writes {
            match object {
                Some(_) => state.insert(PATHS[path].to_owned(), last),
                None => state.remove(PATHS[path]),
            };
        }
        model.push(state);
        bed.hub.wait(last).await;
        for (_, watcher, state) in &mut early {
            told(watcher, last).await.iter().for_each(|event| replay(state, event));
        }
    }
    for (text, _, state) in &early {
        assert_eq!(*state, listed(&bed.pods, &scope(text), None), "{text}");
    }
    for revision in bed.pods.oldest()..=last {
        assert_eq!(listed(&bed.pods, &Scope::default(), Some(revision)), model[revision as usize]);
        for text in SCOPES {
            let mut state = listed(&bed.pods, &scope(text), Some(revision));
            let mut watcher = bed.watch(&scope(text), Since::Revision(revision));
            told(&mut watcher, last).await.iter().for_each(|event| replay(&mut state, event));
            assert_eq!(state, listed(&bed.pods, &scope(text), None), "{text} since {revision}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn a_list_and_the_watch_after_it_give_the_list_at_the_end(steps in history(), window in 4..40usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(watches_complete_lists(steps, window));
    }
}
