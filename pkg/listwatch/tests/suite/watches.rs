//! Watching.

use super::*;

/// What a change is depends on whether the object was, and is, in scope.
pub async fn selectors_turn_changes_into_what_they_are_to_a_watcher(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    let mut revisions = Vec::new();
    for (labels, node) in [("a=1", "n1"), ("a=1", "n2"), ("a=2", "n2"), ("a=1", "n1")] {
        revisions.push(bed.put("ns/p", labels, node).await);
    }
    revisions.push(bed.delete("ns/p").await);
    let [r1, r2, r3, r4, r5] = revisions[..] else { unreachable!() };
    let pods = &bed.pods;
    let check = async |text: &str, expected: &[String]| {
        let mut watcher = pods.watch(scope(text), Since::Revision(r1 - 1)).unwrap();
        let events = told(&mut watcher, r5).await;
        assert_eq!(events.iter().map(|event| short(event)).collect::<Vec<_>>(), expected, "{text}");
        for event in events {
            let line: Value = serde_json::from_slice(&event.line()).unwrap();
            assert_eq!(line["type"], event.kind.as_str());
            assert_eq!(line["object"]["metadata"]["resourceVersion"], event.revision.to_string());
            assert!(event.line().ends_with(b"}\n"));
        }
    };
    let all = [
        format!("ADDED ns/p@{r1} on n1"),
        format!("MODIFIED ns/p@{r2} on n2"),
        format!("MODIFIED ns/p@{r3} on n2"),
        format!("MODIFIED ns/p@{r4} on n1"),
        format!("DELETED ns/p@{r5} on n1"),
    ];
    check("", &all).await;
    check("ns", &all).await;
    check("??metadata.name=p", &all).await;
    check("other", &[]).await;
    let labelled = [
        format!("ADDED ns/p@{r1} on n1"),
        format!("MODIFIED ns/p@{r2} on n2"),
        format!("DELETED ns/p@{r3} on n2"),
        format!("ADDED ns/p@{r4} on n1"),
        format!("DELETED ns/p@{r5} on n1"),
    ];
    check("?a=1", &labelled).await;
    check("ns?a=1", &labelled).await;
    check("?a=2", &[format!("ADDED ns/p@{r3} on n2"), format!("DELETED ns/p@{r4} on n2")]).await;
    let placed = [
        format!("ADDED ns/p@{r1} on n1"),
        format!("DELETED ns/p@{r2} on n1"),
        format!("ADDED ns/p@{r4} on n1"),
        format!("DELETED ns/p@{r5} on n1"),
    ];
    check("??spec.nodeName=n1", &placed).await;
    check("ns?a=1?spec.nodeName=n2", &[format!("ADDED ns/p@{r2} on n2"), format!("DELETED ns/p@{r3} on n2")])
        .await;
}

/// A watch can be resumed from every revision in the window, and from none before it.
pub async fn watches_resume_from_every_revision_of_the_window(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 8).await;
    let mut last = 0;
    for round in 0..20 {
        last = bed.put(&format!("ns/p{}", round % 3), "", "").await;
    }
    let oldest = bed.pods.oldest();
    assert_eq!(oldest, last - 8);
    for text in ["", "ns", "ns?!x"] {
        for since in oldest..=last {
            let mut watcher = bed.watch(&scope(text), Since::Revision(since));
            let revisions: Vec<Revision> =
                told(&mut watcher, last).await.iter().map(|e| e.revision).collect();
            assert_eq!(revisions, (since + 1..=last).collect::<Vec<_>>(), "{text} since {since}");
        }
        let error = |since| bed.pods.watch(scope(text), Since::Revision(since)).err();
        assert_eq!(error(oldest - 1), Some(Error::TooOld { asked: oldest - 1, oldest }));
        assert_eq!(error(last + 1), Some(Error::Future { asked: last + 1, current: last }));
    }
    let list =
        |revision| bed.pods.list(&Scope::default(), Page { revision: Some(revision), ..Page::default() });
    assert!(matches!(list(oldest - 1), Err(Error::TooOld { .. })));
    assert!(matches!(list(last + 1), Err(Error::Future { .. })));
}

/// A watcher that does not read is ended while its client can still resume.
pub async fn a_slow_watcher_is_ended_and_can_resume(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 16).await;
    bed.put("ns/p", "", "").await;
    for text in ["", "ns"] {
        let mut slow = bed.watch(&scope(text), Since::Now);
        let seen = slow.revision().unwrap();
        let mut fast = bed.watch(&scope(text), Since::Now);
        for _ in 0..12 {
            let last = bed.put("ns/p", "", "").await;
            assert_eq!(told(&mut fast, last).await.len(), 1);
        }
        assert!(futures::poll!(std::pin::pin!(slow.fallen_behind())).is_pending());
        let last = bed.put("ns/p", "", "").await;
        slow.fallen_behind().await;
        assert_eq!(slow.next().await.unwrap_err(), Ended::Slow);
        assert_eq!(slow.next_bytes().await.unwrap_err(), Ended::Slow);
        let mut resumed = bed.watch(&scope(text), Since::Revision(seen));
        assert_eq!(told(&mut resumed, last).await.len(), 13);
    }
}

/// A watcher that begins at the oldest revision is not ended for that.
pub async fn a_late_watcher_may_catch_up(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 16).await;
    let mut last = 0;
    for _ in 0..40 {
        last = bed.put("ns/p", "", "").await;
    }
    let oldest = bed.pods.oldest();
    let mut watcher = bed.watch(&Scope::default(), Since::Revision(oldest));
    assert_eq!(told(&mut watcher, last).await.len(), 16);
    let mut lost = bed.watch(&Scope::default(), Since::Revision(oldest));
    bed.put("ns/p", "", "").await;
    lost.fallen_behind().await;
    assert_eq!(lost.next().await.unwrap_err(), Ended::Slow);
}

/// Many writers, one watcher: every revision once, in order.
pub async fn every_change_is_told_once_and_in_order(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 10_000).await;
    let mut all = bed.watch(&Scope::default(), Since::Now);
    let mut some = bed.watch(&scope("ns1"), Since::Now);
    let mut lines = bed.watch(&Scope::default(), Since::Now);
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut written = Vec::new();
                for round in 0..100 {
                    let path = format!("ns{}/p{}", writer % 2, round % 7);
                    written.push(put(&*store, &path, "", "").await);
                }
                written
            })
        })
        .collect();
    let mut written: Vec<(Revision, usize)> = Vec::new();
    for (writer, task) in writers.into_iter().enumerate() {
        written.extend(task.await.unwrap().into_iter().map(|revision| (revision, writer % 2)));
    }
    written.sort_unstable();
    let last = written.last().unwrap().0;
    bed.hub.wait(last).await;
    let seen = |events: Vec<Arc<Event>>| events.iter().map(|event| event.revision).collect::<Vec<_>>();
    assert_eq!(seen(told(&mut all, last).await), written.iter().map(|w| w.0).collect::<Vec<_>>());
    let ours = written.iter().filter(|w| w.1 == 1).map(|w| w.0);
    assert_eq!(seen(told(&mut some, last).await), ours.collect::<Vec<_>>());
    let mut text = Vec::new();
    while lines.revision().unwrap() < last {
        match lines.next_bytes().await.unwrap() {
            Chunk::Events(bytes) => text.extend_from_slice(&bytes),
            Chunk::InitialEventsEnd(_) => panic!("no initial events were asked for"),
        }
    }
    let lines = serde_json::Deserializer::from_slice(&text).into_iter::<Value>().map(Result::unwrap);
    let revisions =
        lines.map(|line| line["object"]["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap());
    assert_eq!(revisions.collect::<Vec<Revision>>(), written.iter().map(|w| w.0).collect::<Vec<_>>());
}

/// Equal scopes share a view, and it goes with the last of them.
pub async fn views_are_shared_and_dropped(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    let one = bed.watch(&scope("ns?a=1,b=2"), Since::Now);
    let mut two = bed.watch(&scope("ns?b=2,a=1"), Since::Now);
    let _everything = bed.watch(&Scope::default(), Since::Now);
    assert_eq!(bed.pods.views(), 1);
    let three = bed.watch(&scope("??spec.nodeName=n1"), Since::Now);
    let four = bed.watch(&scope("??metadata.name=n1"), Since::Now);
    assert_eq!(bed.pods.views(), 3);
    drop((one, three));
    assert_eq!(bed.pods.views(), 2);
    let last = bed.put("ns/p", "a=1,b=2", "n1").await;
    assert_eq!(told(&mut two, last).await.len(), 1);
    drop((two, four));
    assert_eq!(bed.pods.views(), 0);
}

/// Watchers of one scope that are at the same place send the same memory.
pub async fn lines_are_shared_between_watchers(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 100).await;
    for text in ["", "ns"] {
        let mut one = bed.watch(&scope(text), Since::Now);
        let mut two = bed.watch(&scope(text), Since::Now);
        for changes in [1, 3] {
            for _ in 0..changes {
                bed.put("ns/p", "", "").await;
            }
            let (Chunk::Events(one), Chunk::Events(two)) =
                (one.next_bytes().await.unwrap(), two.next_bytes().await.unwrap())
            else {
                panic!("events");
            };
            assert_eq!(one.as_ptr(), two.as_ptr());
            assert_eq!(one.iter().filter(|byte| **byte == b'\n').count(), changes);
        }
    }
}

/// A watch without matching events still knows how far it is.
pub async fn quiet_watches_make_progress(store: Arc<dyn Store>) {
    let bed = Bed::new(store, 8).await;
    let mut quiet = bed.watch(&scope("quiet"), Since::Now);
    let mut last = 0;
    for _ in 0..1_200 {
        last = put(&*bed.store, "busy/p", "", "").await;
    }
    bed.hub.wait(last).await;
    assert_eq!(quiet.revision(), Some(last));
    assert!(futures::poll!(std::pin::pin!(quiet.next())).is_pending());
    let told_at = bed.put("quiet/p", "", "").await;
    let unread = quiet.revision().unwrap();
    assert!(last <= unread && unread < told_at, "an event that was not told cannot be behind a bookmark");
    assert_eq!(told(&mut quiet, told_at).await.len(), 1);
    assert_eq!(quiet.revision(), Some(told_at));
}

/// The present state, the mark, and then every change after it, while others write.
pub async fn initial_events_are_consistent(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 10_000).await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            let mut last = 0;
            for round in 0..600 {
                let path = format!("ns{}/p{}", round % 2, round % 13);
                last = match round % 5 {
                    4 => commit(&*store, &format!("{PODS}{path}"), None).await,
                    _ => put(&*store, &path, ["a=1", "a=2"][round % 2], "").await,
                };
                tokio::task::yield_now().await;
            }
            last
        })
    };
    let mut watchers = Vec::new();
    while !writer.is_finished() {
        for text in ["", "ns1", "?a=1"] {
            let mut watcher = bed.watch(&scope(text), Since::InitialEvents);
            assert_eq!(watcher.revision(), None);
            let mut state: BTreeMap<String, Revision> = BTreeMap::new();
            let marked = loop {
                match watcher.next().await.unwrap() {
                    Batch::Events(events) => events.iter().for_each(|event| replay(&mut state, event)),
                    Batch::InitialEventsEnd(revision) => break revision,
                }
            };
            assert!(state.values().all(|revision| *revision <= marked));
            watchers.push((text, watcher, state));
        }
        tokio::task::yield_now().await;
    }
    let last = writer.await.unwrap();
    bed.hub.wait(last).await;
    for (text, mut watcher, mut state) in watchers {
        for event in told(&mut watcher, last).await {
            replay(&mut state, &event);
        }
        assert_eq!(state, listed(&bed.pods, &scope(text), None), "{text}");
    }
}

/// Changes of one commit are told together.
pub async fn commits_are_not_split(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 2_000).await;
    let mut watcher = bed.watch(&scope("ns"), Since::Now);
    let writes = (0..700).map(|n| Write {
        key: format!("{PODS}ns/p{n}"),
        expect: Expect::Absent,
        value: Some(pod(&format!("ns/p{n}"), "", "")),
    });
    let revision = store.commit(writes.collect()).await.unwrap();
    bed.hub.wait(revision).await;
    let Batch::Events(events) = watcher.next().await.unwrap() else { panic!("events") };
    assert_eq!(events.len(), 700);
    assert_eq!(watcher.revision(), Some(revision));
}
