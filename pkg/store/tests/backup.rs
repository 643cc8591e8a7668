//! Backups: from either engine to either engine, while the store is written to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::sync::Arc;
use store::{Entry, Error, Etcd, Expect, Range, Revision, Store, backup};
use support::{Engine, changes_until, contract, delete, list, next, put, set};

contract! {
    a_backup_moves_to_any_engine
    a_restore_needs_an_empty_place
    a_damaged_backup_is_refused
}

const POD: &str = "/registry/pods/default/a";

async fn a_backup_moves_to_any_engine(engine: Engine) {
    let store = engine.open().await;
    for i in 0..600 {
        let key = format!("/registry/moving/{i:03}");
        store.commit(vec![put(&key, Expect::Any, &format!("{i}"))]).await.unwrap();
    }
    set(&*store, "/minik8s/own", "kept").await;
    store.commit(vec![delete("/registry/moving/300", Expect::Any)]).await.unwrap();
    let before = list(&*store, "", None).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");

    // It is consistent while others write: both keys of a pair are always equal.
    let writing = async {
        for i in 0..30 {
            let pair = ["/registry/zz/a", "/registry/zz/b"];
            let writes = pair.map(|key| put(key, Expect::Any, &i.to_string()));
            store.commit(writes.to_vec()).await.unwrap();
        }
    };
    let (summary, ()) = futures::join!(backup::backup(&*store, &file), writing);
    let summary = summary.unwrap();
    assert_eq!(backup::verify(&file).unwrap(), summary);
    let old_last = store.revision().await.unwrap();
    let saved = list(&*store, "", Some(summary.revision)).await;
    assert_eq!(saved.len() as u64, summary.entries);
    assert!(saved.len() >= before.len());

    for target in [Engine::embedded(), Engine::etcd()] {
        match &target {
            Engine::Embedded(dir) => {
                assert_eq!(backup::restore_embedded(&file, &dir.path().join("store")).unwrap(), summary);
            }
            Engine::Etcd(server) => {
                let etcd = Etcd::connect(&[server.url()], None).await.unwrap();
                assert_eq!(backup::restore_etcd(&file, &etcd).await.unwrap(), summary);
            }
        }
        check_restored(&target, &saved, summary.revision, old_last).await;
    }
}

async fn check_restored(target: &Engine, saved: &[String], backup: Revision, old_last: Revision) {
    let store = target.open().await;
    assert_eq!(list(&*store, "", None).await, saved);
    let base = store.revision().await.unwrap();
    assert!(base >= backup + backup::REVISION_GAP);
    // Whoever comes with an old revision must read everything anew.
    for old in [0, backup, old_last] {
        let told = match store.changes("/registry/", old).await {
            Ok(mut feed) => next(&mut *feed).await.map(|news| format!("{news:?}")),
            Err(error) => Err(error),
        };
        assert!(matches!(told, Err(Error::Compacted { .. })), "after {old}: {told:?}");
        let range = Range { revision: Some(old), ..Range::default() };
        assert!(matches!(store.range(range).await, Err(Error::Compacted { .. })));
    }
    let entry: Entry = store.get("/registry/moving/000").await.unwrap().unwrap();
    assert!(entry.modified <= base);
    let mut feed = store.changes("/registry/", base).await.unwrap();
    let update = put(&entry.key, Expect::Revision(entry.modified), "new");
    let revision = store.commit(vec![update]).await.unwrap();
    assert!(revision > base && revision > old_last);
    let changes = changes_until(&mut *feed, revision).await;
    assert_eq!((changes.len(), changes[0].created), (1, entry.created));
    drop((feed, store));
    let store = target.open().await;
    assert_eq!(store.revision().await.unwrap().max(revision), store.revision().await.unwrap());
    assert_eq!(store.get(&entry.key).await.unwrap().unwrap().modified, revision);
}

async fn a_restore_needs_an_empty_place(engine: Engine) {
    let store = engine.open().await;
    let revision = set(&*store, POD, "1").await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    backup::backup(&*store, &file).await.unwrap();
    assert!(backup::backup(&*store, &file).await.is_err(), "a backup replaced another file");
    let refused = match &engine {
        Engine::Embedded(dir) => backup::restore_embedded(&file, &dir.path().join("store")),
        Engine::Etcd(server) => {
            let etcd = Etcd::connect(&[server.url()], None).await.unwrap();
            backup::restore_etcd(&file, &etcd).await
        }
    };
    assert!(refused.is_err());
    assert_eq!(store.get(POD).await.unwrap().unwrap().modified, revision);
    assert_eq!(engine_revision(&engine, store).await, revision);
}

async fn engine_revision(engine: &Engine, store: Arc<dyn Store>) -> Revision {
    drop(store);
    engine.open().await.revision().await.unwrap()
}

async fn a_damaged_backup_is_refused(engine: Engine) {
    let store = engine.open().await;
    for i in 0..5 {
        set(&*store, &format!("/registry/d/{i}"), "value").await;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("backup");
    backup::backup(&*store, &file).await.unwrap();
    let good = std::fs::read(&file).unwrap();
    let check = |bytes: &[u8], what: String| {
        std::fs::write(&file, bytes).unwrap();
        assert!(backup::verify(&file).is_err(), "{what}");
        let target = dir.path().join("target");
        assert!(backup::restore_embedded(&file, &target).is_err(), "{what}");
        assert!(!target.exists(), "{what}: something was written");
    };
    for i in 0..good.len() {
        let mut bad = good.clone();
        bad[i] ^= 0x10;
        check(&bad, format!("byte {i} flipped"));
        check(&good[..i], format!("cut at {i}"));
    }
    check(&[&good[..], b"x"].concat(), "something added".to_owned());
}
