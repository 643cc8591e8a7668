//! Resources that come and go, and hubs that do.

use super::*;

/// Resources come and go while others write.
pub async fn resources_are_registered_and_removed(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 100).await;
    let writer = {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..300 {
                let value = Bytes::from(format!(r#"{{"metadata":{{"name":"n{}"}}}}"#, round % 17));
                let value = Some(value).filter(|_| round % 3 != 2);
                commit(&*store, &format!("{NODES}n{}", round % 17), value).await;
                tokio::task::yield_now().await;
            }
        })
    };
    let mut rounds = 0;
    while !writer.is_finished() || rounds == 0 {
        let nodes = bed.hub.register(ResourceConfig::new(NODES, false)).await.unwrap();
        let mut state = BTreeMap::new();
        let mut watcher = nodes.watch(Scope::default(), Since::Any).unwrap();
        let until = bed.store.revision().await.unwrap();
        bed.hub.wait(until).await;
        for event in told(&mut watcher, until).await {
            replay(&mut state, &event);
        }
        let revision = watcher.revision().unwrap();
        assert_eq!(state, listed(&nodes, &Scope::default(), Some(revision)));
        let entries = bed.store.range(store::Range {
            prefix: NODES.into(),
            revision: Some(revision),
            ..Default::default()
        });
        let entries = entries.await.unwrap().entries;
        let stored = entries.iter().map(|e| (e.key[NODES.len()..].to_owned(), e.modified));
        assert_eq!(state, stored.collect());
        if rounds % 2 == 0 {
            bed.hub.remove(NODES);
            assert!(bed.hub.cache(NODES).is_none());
            while watcher.next().await.is_ok() {}
            assert_eq!(watcher.next().await.unwrap_err(), Ended::Closed);
            assert_eq!(nodes.watch(Scope::default(), Since::Now).err(), Some(Error::Closed));
        }
        rounds += 1;
    }
    writer.await.unwrap();
}

/// A restart does not end the window: watches from before it can be resumed.
pub async fn watches_resume_across_a_restart(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 100).await;
    let first = bed.put("ns/p", "", "n1").await;
    bed.put("ns/q", "", "n1").await;
    let last = bed.delete("ns/p").await;
    bed.hub.stop().await;
    assert_eq!(bed.pods.watch(Scope::default(), Since::Now).err(), Some(Error::Closed));
    let bed = Bed::new(store, 100).await;
    let mut watcher = bed.watch(&scope("ns"), Since::Revision(first));
    let kinds: Vec<&str> = told(&mut watcher, last).await.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["ADDED", "DELETED"]);
    assert_eq!(bed.paths(&Scope::default(), None), ["ns/q"]);
}

/// Writes elsewhere in the store do not keep anybody waiting.
pub async fn waiting_does_not_depend_on_our_own_keys(store: Arc<dyn Store>) {
    let bed = Bed::new(store.clone(), 100).await;
    let revision = commit(&*store, "/elsewhere", Some(Bytes::from_static(b"x"))).await;
    bed.hub.wait(revision).await;
    assert!(bed.pods.revision() >= revision);
}
