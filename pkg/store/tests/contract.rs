//! What every engine promises, tried on each of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Change, Error, Expect, MAX_WRITES, News, Range, Revision, Store};
use support::{Engine, changes_until, contract, delete, list, next, put, set, texts};

contract! {
    expectations_are_checked
    what_is_only_expected_stays
    created_and_modified_tell_history
    a_commit_is_all_or_nothing
    bad_commits_are_refused
    deleting_nothing_changes_nothing
    answered_commits_are_visible
    racing_writers_never_overwrite_each_other
    pages_add_up
    the_past_can_be_read
    prefixes_are_exact
    a_feed_begins_anywhere
    feeds_miss_nothing_while_many_write
    a_slow_feed_catches_up
    feeds_tell_progress
    compaction_forgets
    the_present_survives_compaction
    a_reopened_store_goes_on
}

const POD: &str = "/registry/pods/default/a";

async fn expectations_are_checked(engine: Engine) {
    let store = engine.open().await;
    let check = async |write, expect: Result<(), Option<&str>>| -> Revision {
        match (store.commit(vec![write]).await, expect) {
            (Ok(revision), Ok(())) => revision,
            (Err(Error::Conflict { key, current }), Err(expect)) => {
                assert_eq!(key, POD);
                assert_eq!(current.as_ref().map(|entry| &entry.value[..]), expect.map(str::as_bytes));
                current.map_or(0, |entry| entry.modified)
            }
            (result, expect) => panic!("{result:?} instead of {expect:?}"),
        }
    };
    check(put(POD, Expect::Revision(1), "x"), Err(None)).await;
    check(put(POD, Expect::Revision(0), "x"), Err(None)).await;
    check(delete(POD, Expect::Revision(1)), Err(None)).await;
    let first = check(put(POD, Expect::Absent, "1"), Ok(())).await;
    assert_eq!(check(put(POD, Expect::Absent, "x"), Err(Some("1"))).await, first);
    let second = check(put(POD, Expect::Revision(first), "2"), Ok(())).await;
    assert!(second > first);
    check(put(POD, Expect::Revision(first), "x"), Err(Some("2"))).await;
    check(delete(POD, Expect::Revision(first)), Err(Some("2"))).await;
    check(delete(POD, Expect::Absent), Err(Some("2"))).await;
    let third = check(put(POD, Expect::Any, "3"), Ok(())).await;
    check(delete(POD, Expect::Revision(third)), Ok(())).await;
    check(put(POD, Expect::Revision(third), "x"), Err(None)).await;
    check(delete(POD, Expect::Unchanged(third)), Err(None)).await;
    check(put(POD, Expect::Any, "4"), Ok(())).await;
    check(delete(POD, Expect::Any), Ok(())).await;
    assert_eq!(store.get(POD).await.unwrap(), None);
}

async fn what_is_only_expected_stays(engine: Engine) {
    let store = engine.open().await;
    let first = set(&*store, POD, "1").await;
    let only = || delete(POD, Expect::Unchanged(first));
    assert_eq!(store.commit(vec![only()]).await.unwrap(), first, "nothing changes");
    let other = || put("/registry/other", Expect::Any, "x");
    let second = store.commit(vec![other(), only()]).await.unwrap();
    let mut feed = store.changes("/registry/", first).await.unwrap();
    let changes = changes_until(&mut *feed, second).await;
    assert_eq!(changes.iter().map(|change| change.key.as_str()).collect::<Vec<_>>(), ["/registry/other"]);
    assert_eq!(store.get(POD).await.unwrap().unwrap().modified, first);
    set(&*store, POD, "2").await;
    let refused = store.commit(vec![other(), only()]).await;
    assert!(matches!(refused, Err(Error::Conflict { key, .. }) if key == POD));
    assert_eq!(store.get("/registry/other").await.unwrap().unwrap().modified, second);
}

async fn created_and_modified_tell_history(engine: Engine) {
    let store = engine.open().await;
    let ends = async || store.get(POD).await.unwrap().map(|entry| (entry.created, entry.modified));
    let first = set(&*store, POD, "1").await;
    assert_eq!(ends().await, Some((first, first)));
    let second = set(&*store, POD, "2").await;
    assert_eq!(ends().await, Some((first, second)));
    let gone = store.commit(vec![delete(POD, Expect::Any)]).await.unwrap();
    assert_eq!(ends().await, None);
    let again = set(&*store, POD, "").await;
    assert_eq!(ends().await, Some((again, again)));

    let mut feed = store.changes("/registry/", first - 1).await.unwrap();
    let told: Vec<_> = changes_until(&mut *feed, again)
        .await
        .into_iter()
        .map(|change| (change.revision, change.created, change.value.map(|value| value.len())))
        .collect();
    let expect =
        [(first, first, Some(1)), (second, first, Some(1)), (gone, gone, None), (again, again, Some(0))];
    assert_eq!(told, expect);
}

async fn a_commit_is_all_or_nothing(engine: Engine) {
    let store = engine.open().await;
    let keys: Vec<String> = (0..MAX_WRITES).map(|i| format!("/registry/k/{i:03}")).collect();
    let all = |value: &str| keys.iter().map(|key| put(key, Expect::Any, value)).collect::<Vec<_>>();
    let revision = store.commit(all("1")).await.unwrap();
    let page = store.range(Range { prefix: "/registry/k/".into(), ..Range::default() }).await.unwrap();
    assert_eq!(page.entries.len(), MAX_WRITES);
    assert!(page.entries.iter().all(|entry| entry.modified == revision));

    let mut writes = all("2");
    writes[70].expect = Expect::Absent;
    writes[90].expect = Expect::Revision(revision - 1);
    match store.commit(writes).await {
        Err(Error::Conflict { key, current: Some(current) }) => {
            assert_eq!((key, current.modified), (keys[70].clone(), revision));
        }
        other => panic!("{other:?}"),
    }
    assert!(list(&*store, "/registry/k/", None).await.iter().all(|text| text.ends_with("=1")));
    assert_eq!(store.revision().await.unwrap(), revision);
}

async fn bad_commits_are_refused(engine: Engine) {
    let store = engine.open().await;
    let before = store.revision().await.unwrap();
    let twice = vec![put(POD, Expect::Any, "1"), delete(POD, Expect::Any)];
    let stays = vec![put(POD, Expect::Unchanged(before), "1")];
    let outside = vec![put("/other/a", Expect::Any, "1")];
    let many = (0..=MAX_WRITES).map(|i| put(&format!("{POD}{i}"), Expect::Any, "")).collect();
    let bad = [(twice, "twice"), (stays, "stays"), (outside, "outside"), (many, "at most 128")];
    for (writes, complaint) in bad {
        match store.commit(writes).await {
            Err(Error::Unavailable { source, .. }) => {
                assert!(source.to_string().contains(complaint), "{source}")
            }
            other => panic!("{complaint}: {other:?}"),
        }
    }
    assert_eq!(store.revision().await.unwrap(), before);
}

async fn deleting_nothing_changes_nothing(engine: Engine) {
    let store = engine.open().await;
    let before = set(&*store, POD, "1").await;
    assert_eq!(store.commit(vec![delete("/registry/none", Expect::Any)]).await.unwrap(), before);
    assert_eq!(store.commit(vec![delete("/registry/none", Expect::Absent)]).await.unwrap(), before);
    assert_eq!(store.commit(vec![]).await.unwrap(), before);
    let both = vec![delete("/registry/none", Expect::Any), put(POD, Expect::Any, "2")];
    let after = store.commit(both).await.unwrap();
    let mut feed = store.changes("/registry/", before).await.unwrap();
    assert_eq!(changes_until(&mut *feed, after).await.len(), 1);
}

async fn answered_commits_are_visible(engine: Engine) {
    let store = engine.open().await;
    let writer = async |n: usize| {
        let key = format!("/registry/w/{n}");
        for i in 0..30 {
            let revision = set(&*store, &key, &i.to_string()).await;
            assert!(store.revision().await.unwrap() >= revision);
            assert_eq!(store.get(&key).await.unwrap().unwrap().modified, revision);
            assert_eq!(list(&*store, &key, Some(revision)).await, [format!("{key}={i}")]);
        }
    };
    join_all((0..8).map(writer)).await;
}

async fn racing_writers_never_overwrite_each_other(engine: Engine) {
    let store = engine.open().await;
    set(&*store, POD, "0").await;
    let increment = async |_| {
        for _ in 0..10 {
            let mut current = store.get(POD).await.unwrap().unwrap();
            loop {
                let count: u32 = std::str::from_utf8(&current.value).unwrap().parse().unwrap();
                let write = put(POD, Expect::Revision(current.modified), &(count + 1).to_string());
                match store.commit(vec![write]).await {
                    Ok(_) => break,
                    Err(Error::Conflict { current: Some(newer), .. }) => current = newer,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    join_all((0..8).map(increment)).await;
    assert_eq!(list(&*store, POD, None).await, [format!("{POD}=80")]);
}

async fn pages_add_up(engine: Engine) {
    let store = engine.open().await;
    let key = |i: usize| format!("/registry/page/{i:04}");
    for some in (0..1250).collect::<Vec<_>>().chunks(100) {
        store.commit(some.iter().map(|i| put(&key(*i), Expect::Absent, "v")).collect()).await.unwrap();
    }
    let revision = store.revision().await.unwrap();
    for limit in [0, 1, 499, 500, 501, 1249, 1250, 2000] {
        let range = Range { prefix: "/registry/page/".into(), limit, ..Range::default() };
        let page = store.range(range).await.unwrap();
        let expect = if limit == 0 { 1250 } else { limit.min(1250) };
        assert_eq!((page.entries.len(), page.remaining as usize), (expect, 1250 - expect), "limit {limit}");
        assert_eq!(page.revision, revision);
    }
    let (mut after, mut seen) = (None, 0);
    loop {
        // Writes behind the revision of the first page do not show.
        set(&*store, &key(2000 + seen), "new").await;
        let range = Range {
            prefix: "/registry/page/".into(),
            after: after.clone(),
            limit: 300,
            revision: Some(revision),
        };
        let page = store.range(range).await.unwrap();
        assert_eq!(page.entries[0].key, key(seen));
        seen += page.entries.len();
        assert_eq!((page.remaining as usize, page.revision), (1250 - seen, revision));
        if page.remaining == 0 {
            break;
        }
        after = page.entries.last().map(|entry| entry.key.clone());
    }
    assert_eq!(seen, 1250);
}

async fn the_past_can_be_read(engine: Engine) {
    let store = engine.open().await;
    let mut model = BTreeMap::new();
    let mut past = Vec::new();
    for i in 0..60_u32 {
        let key = format!("/registry/past/{}", i * 7 % 10);
        let revision = if i % 4 == 3 {
            model.remove(&key);
            store.commit(vec![delete(&key, Expect::Any)]).await.unwrap()
        } else {
            model.insert(key.clone(), i);
            set(&*store, &key, &i.to_string()).await
        };
        past.push((revision, model.iter().map(|(key, i)| format!("{key}={i}")).collect::<Vec<_>>()));
    }
    for (revision, state) in past {
        assert_eq!(list(&*store, "/registry/past/", Some(revision)).await, state, "at {revision}");
    }
    let current = store.revision().await.unwrap();
    let range = Range { prefix: "/registry/".into(), revision: Some(current + 1), ..Range::default() };
    match store.range(range).await {
        Err(Error::Future { asked, current: now }) => assert_eq!((asked, now), (current + 1, current)),
        other => panic!("{other:?}"),
    }
    assert!(matches!(store.changes("/registry/", current + 1).await, Err(Error::Future { .. })));
}

async fn prefixes_are_exact(engine: Engine) {
    let store = engine.open().await;
    for key in ["/registry/pods/a", "/registry/pods0", "/registry/pod", "/registry/pods/", "/minik8s/x"] {
        set(&*store, key, "").await;
    }
    let last = set(&*store, "/registry/pods/\u{10ffff}", "").await;
    let pods = ["/registry/pods/=", "/registry/pods/a=", "/registry/pods/\u{10ffff}="];
    assert_eq!(list(&*store, "/registry/pods/", None).await, pods);
    assert_eq!(list(&*store, "/registry/pods/\u{10ffff}", None).await, pods[2..]);
    assert_eq!(list(&*store, "/registry/", None).await.len(), 5);
    let all = list(&*store, "", None).await;
    assert_eq!((all.len(), all[0].as_str()), (6, "/minik8s/x="));
    assert!(list(&*store, "/nothing/", None).await.is_empty());
    let outside =
        Range { prefix: "/registry/pods/".into(), after: Some("/registry/z".into()), ..Range::default() };
    assert_eq!(texts(&store.range(outside).await.unwrap()), [""; 0]);

    let mut feed = store.changes("/registry/pods/", last - 5).await.unwrap();
    let keys: Vec<_> = changes_until(&mut *feed, last).await.into_iter().map(|change| change.key).collect();
    assert_eq!(keys, ["/registry/pods/", "/registry/pods/\u{10ffff}"]);
}

async fn a_feed_begins_anywhere(engine: Engine) {
    let store = engine.open().await;
    let first = set(&*store, "/registry/feed/0", "").await;
    for i in 1..40_u32 {
        let key = |n| format!("/registry/feed/{}", n % 6);
        let writes = match i % 3 {
            0 => vec![delete(&key(i), Expect::Any), put(&key(i + 1), Expect::Any, "both")],
            _ => vec![put(&key(i), Expect::Any, &i.to_string())],
        };
        store.commit(writes).await.unwrap();
    }
    let last = set(&*store, "/registry/feed/end", "").await;
    let mut feed = store.changes("/registry/", first - 1).await.unwrap();
    let whole = changes_until(&mut *feed, last).await;
    assert_eq!(whole[0].revision, first);
    // On the same store, and on one that has just been opened and must look at its history.
    drop((feed, store));
    let store = engine.open().await;
    for after in first - 1..last {
        let mut feed = store.changes("/registry/", after).await.unwrap();
        let expect: Vec<Change> = whole.iter().filter(|change| change.revision > after).cloned().collect();
        assert_eq!(changes_until(&mut *feed, last).await, expect, "after {after}");
    }
}

async fn feeds_miss_nothing_while_many_write(engine: Engine) {
    let store = engine.open().await;
    let begin = set(&*store, "/registry/begin", "").await;
    let writer = |n: usize| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut mine = Vec::new();
            for i in 0..40 {
                let key = format!("/registry/many/{n}");
                let twin = format!("/registry/twin/{n}");
                let value = format!("{n}.{i}");
                let writes = vec![put(&key, Expect::Any, &value), put(&twin, Expect::Any, &value)];
                mine.push((store.commit(writes).await.unwrap(), value));
            }
            mine
        })
    };
    let writers: Vec<_> = (0..8).map(writer).collect();
    let reader = |prefix: &'static str, after: Revision| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut feed = store.changes(prefix, after).await.unwrap();
            let mut seen = Vec::new();
            loop {
                if let News::Changes(changes) = next(&mut *feed).await.unwrap() {
                    seen.extend(changes);
                }
                if seen.last().is_some_and(|change: &Change| change.key.ends_with("/end")) {
                    return seen;
                }
            }
        })
    };
    let mut readers = vec![reader("/registry/", begin), reader("/registry/many/", begin)];
    for _ in 0..5 {
        let present = store.revision().await.unwrap();
        readers.push(reader("/registry/many/", present));
    }
    let mut written: Vec<(Revision, String)> =
        join_all(writers).await.into_iter().flat_map(|mine| mine.unwrap()).collect();
    written.sort();
    let revisions: Vec<_> = written.iter().map(|(revision, _)| *revision).collect();
    assert!(revisions.windows(2).all(|pair| pair[0] < pair[1]), "a revision was given out twice");
    set(&*store, "/registry/many/end", "").await;

    let seen: Vec<Vec<Change>> = join_all(readers).await.into_iter().map(|seen| seen.unwrap()).collect();
    let pairs = seen[0][..seen[0].len() - 1].chunks(2);
    let told: Vec<(Revision, String)> = pairs
        .map(|pair| {
            assert_eq!((pair[0].revision, &pair[0].value), (pair[1].revision, &pair[1].value));
            (pair[0].revision, String::from_utf8_lossy(pair[0].value.as_ref().unwrap()).into_owned())
        })
        .collect();
    assert_eq!(told, written);
    for some in &seen[1..] {
        let from = some[0].revision;
        let expect: Vec<_> = seen[0]
            .iter()
            .filter(|change| change.key.starts_with("/registry/many/") && change.revision >= from)
            .cloned()
            .collect();
        assert_eq!(*some, expect);
    }
    assert_eq!(seen[1].len(), 8 * 40 + 1);
}

async fn a_slow_feed_catches_up(engine: Engine) {
    let store = engine.open().await;
    let begin = set(&*store, "/registry/slow/begin", "").await;
    let mut slow = store.changes("/registry/slow/", begin).await.unwrap();
    let mut quiet = store.changes("/registry/quiet/", begin).await.unwrap();
    // More than any engine keeps in memory for feeds.
    let value = "x".repeat(100 << 10);
    let mut revisions = Vec::new();
    for i in 0..90 {
        revisions.push(set(&*store, &format!("/registry/slow/{}", i % 7), &value).await);
    }
    let last = *revisions.last().unwrap();
    let told: Vec<_> = changes_until(&mut *slow, last).await.iter().map(|change| change.revision).collect();
    assert_eq!(told, revisions);
    let wake = set(&*store, "/registry/quiet/a", "").await;
    assert_eq!(changes_until(&mut *quiet, wake).await.len(), 1);
    let after = set(&*store, "/registry/slow/end", "").await;
    assert_eq!(changes_until(&mut *slow, after).await.len(), 1);
}

async fn feeds_tell_progress(engine: Engine) {
    let store = engine.open().await;
    let begin = set(&*store, "/registry/busy", "").await;
    let mut quiet = store.changes("/registry/quiet/", begin).await.unwrap();
    let mut busy = store.changes("/registry/busy", begin).await.unwrap();
    for i in 0..20 {
        let revision = set(&*store, "/registry/busy", &i.to_string()).await;
        store.request_progress().await.unwrap();
        match next(&mut *quiet).await.unwrap() {
            News::Progress(progress) => assert!(progress >= revision, "{progress} < {revision}"),
            other => panic!("{other:?}"),
        }
    }
    let mut seen = 0;
    let last = store.revision().await.unwrap();
    loop {
        match next(&mut *busy).await.unwrap() {
            News::Changes(changes) => seen += changes.len(),
            News::Progress(progress) => {
                assert!(progress >= last);
                break;
            }
        }
    }
    assert_eq!(seen, 20, "progress was told before the changes");
    // Nothing has happened since: it is told all the same.
    store.request_progress().await.unwrap();
    assert!(matches!(next(&mut *busy).await.unwrap(), News::Progress(_)));
}

async fn compaction_forgets(engine: Engine) {
    let store = engine.open().await;
    let mut revisions = Vec::new();
    for i in 0..10 {
        revisions.push(set(&*store, POD, &i.to_string()).await);
    }
    let gone = store.commit(vec![delete(POD, Expect::Any)]).await.unwrap();
    let last = set(&*store, "/registry/other", "").await;
    let compacted = revisions[6];
    store.compact(compacted).await.unwrap();
    store.compact(compacted).await.unwrap();
    store.compact(revisions[2]).await.unwrap();
    assert!(matches!(store.compact(last + 1000).await, Err(Error::Future { .. })));

    let check = async |store: &Arc<dyn Store>| {
        for &revision in &revisions {
            let range = Range { prefix: POD.into(), revision: Some(revision), ..Range::default() };
            match store.range(range).await {
                Ok(_) => assert!(revision >= compacted),
                Err(Error::Compacted { asked, .. }) => assert!(asked == revision && revision < compacted),
                Err(error) => panic!("{error}"),
            }
            // Some engines can tell at once, others when they look.
            let told = match store.changes(POD, revision).await {
                Ok(mut feed) => next(&mut *feed).await,
                Err(error) => Err(error),
            };
            match told {
                Ok(News::Changes(changes)) => {
                    assert!(revision >= compacted, "{changes:?}");
                    assert!(changes[0].revision > revision);
                }
                Err(Error::Compacted { oldest, .. }) => {
                    assert!(revision < compacted);
                    assert_eq!(oldest, compacted);
                }
                other => panic!("{other:?}"),
            }
        }
    };
    check(&store).await;
    assert_eq!(list(&*store, POD, Some(compacted)).await, [format!("{POD}=6")]);
    assert_eq!(list(&*store, POD, Some(gone - 1)).await, [format!("{POD}=9")]);
    drop(store);
    check(&engine.open().await).await;
}

async fn the_present_survives_compaction(engine: Engine) {
    let store = engine.open().await;
    for i in 0..50 {
        set(&*store, &format!("/registry/present/{}", i % 5), &i.to_string()).await;
        let last = store.commit(vec![delete("/registry/present/3", Expect::Any)]).await.unwrap();
        store.compact(last).await.unwrap();
    }
    let expect =
        [("0", 45), ("1", 46), ("2", 47), ("4", 49)].map(|(k, v)| format!("/registry/present/{k}={v}"));
    assert_eq!(list(&*store, "/registry/present/", None).await, expect);
    let present = store.revision().await.unwrap();
    let mut feed = store.changes("/registry/", present).await.unwrap();
    let next = set(&*store, POD, "").await;
    assert_eq!(changes_until(&mut *feed, next).await.len(), 1);
}

async fn a_reopened_store_goes_on(engine: Engine) {
    let store = engine.open().await;
    let mut revisions = vec![set(&*store, "/registry/again/0", "").await];
    let mut store = store;
    for i in 1..5 {
        drop(store);
        store = engine.open().await;
        let last = *revisions.last().unwrap();
        assert_eq!(store.get(&format!("/registry/again/{}", i - 1)).await.unwrap().unwrap().modified, last);
        let mut feed = store.changes("/registry/", revisions[0] - 1).await.unwrap();
        let told: Vec<_> = changes_until(&mut *feed, last).await.iter().map(|c| c.revision).collect();
        assert_eq!(told, revisions);
        revisions.push(set(&*store, &format!("/registry/again/{i}"), "").await);
        assert!(revisions[i] > last);
        assert_eq!(changes_until(&mut *feed, revisions[i]).await.len(), 1);
    }
}
