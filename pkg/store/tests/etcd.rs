//! What only the engine over etcd can get wrong: the server going away, and revisions that are not its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use etcd_client::Client;
use std::time::Duration;
use store::{Error, Etcd, Expect, News, Store};
use support::{EtcdServer, PATIENCE, Port, changes_until, next, put, set};
use tokio::time::{sleep, timeout};

async fn connect(server: &EtcdServer) -> Result<Etcd, Error> {
    Etcd::connect(&[server.url()], None).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_is_unavailable_and_comes_back() {
    let server = EtcdServer::start();
    let store = connect(&server).await.unwrap();
    let begin = set(&store, "/registry/a", "1").await;
    let mut feed = store.changes("/registry/", begin).await.unwrap();

    server.freeze(true);
    let (commit, get, revision, refused) =
        tokio::join!(store.commit(vec![]), store.get("/registry/a"), store.revision(), connect(&server));
    assert!(matches!(commit, Err(Error::Unavailable { .. })), "{commit:?}");
    assert!(matches!(get, Err(Error::Unavailable { .. })), "{get:?}");
    assert!(matches!(revision, Err(Error::Unavailable { .. })), "{revision:?}");
    assert!(matches!(refused, Err(Error::Unavailable { .. })));

    server.freeze(false);
    let later = set(&store, "/registry/a", "2").await;
    assert_eq!(changes_until(&mut *feed, later).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feeds_end_when_the_server_is_gone_and_go_on_when_it_is_back() {
    let mut server = EtcdServer::start();
    let store = connect(&server).await.unwrap();
    let begin = set(&store, "/registry/a", "1").await;
    let mut feed = store.changes("/registry/", begin).await.unwrap();
    server.kill();
    assert!(matches!(next(&mut *feed).await, Err(Error::Unavailable { .. })));
    assert!(matches!(store.changes("/registry/", begin).await, Err(Error::Unavailable { .. })));
    server.restart();
    let later = set(&store, "/registry/a", "2").await;
    let mut feed = store.changes("/registry/", begin).await.unwrap();
    // The watch that all feeds share may not be back yet, and then says so.
    let news = loop {
        match next(&mut *feed).await {
            Ok(news) => break news,
            Err(Error::Unavailable { .. }) => feed = store.changes("/registry/", begin).await.unwrap(),
            Err(error) => panic!("{error}"),
        }
    };
    let News::Changes(changes) = news else { panic!("{news:?}") };
    assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), [later]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_told_past_the_keys_of_others() {
    let server = EtcdServer::start();
    let store = connect(&server).await.unwrap();
    let begin = set(&store, "/registry/a", "1").await;
    let mut feed = store.changes("/registry/", begin).await.unwrap();
    let mut others = Client::connect([server.url()], None).await.unwrap();
    others.put("/zebra", "", None).await.unwrap();
    others.put("/aardvark", "", None).await.unwrap();
    let present = store.revision().await.unwrap();
    store.request_progress().await.unwrap();
    match next(&mut *feed).await.unwrap() {
        News::Progress(progress) => assert!(progress >= present),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_restore_is_not_served() {
    let server = EtcdServer::start();
    let mut client = Client::connect([server.url()], None).await.unwrap();
    client.put("/minik8s.store/restoring", "", None).await.unwrap();
    match connect(&server).await {
        Err(Error::Unavailable { source, .. }) => assert!(source.to_string().contains("has not finished")),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it connected"),
    }
    client.delete("/minik8s.store/restoring", None).await.unwrap();
    connect(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revisions_are_moved_by_the_offset() {
    let server = EtcdServer::start();
    let mut client = Client::connect([server.url()], None).await.unwrap();
    client.put("/minik8s.store/revision-offset", "5000", None).await.unwrap();
    let store = connect(&server).await.unwrap();
    let revision = set(&store, "/registry/a", "1").await;
    assert!(revision > 5000);
    assert_eq!(store.get("/registry/a").await.unwrap().unwrap().modified, revision);
    let mut feed = store.changes("/registry/", revision - 1).await.unwrap();
    assert_eq!(changes_until(&mut *feed, revision).await[0].created, revision);
    store.compact(revision).await.unwrap();
    assert!(matches!(store.changes("/registry/", 5000).await, Err(Error::Compacted { .. })));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_cannot_be_reached_is_passed_over() {
    let (server, nobody) = (EtcdServer::start(), [Port::reserve(), Port::reserve()]);
    let [first, second] = nobody.each_ref().map(|port| format!("http://127.0.0.1:{}", port.number()));
    let store = Etcd::connect(&[first, second, server.url()], None).await.unwrap();
    for round in 0..10 {
        let revision = set(&store, "/registry/a", &round.to_string()).await;
        assert_eq!(store.get("/registry/a").await.unwrap().unwrap().modified, revision);
    }
    let begin = store.revision().await.unwrap();
    let mut feed = store.changes("/registry/", begin).await.unwrap();
    let last = set(&store, "/registry/b", "").await;
    assert_eq!(changes_until(&mut *feed, last).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_is_not_missed() {
    let mut members = EtcdServer::start_cluster(3);
    let urls: Vec<String> = members.iter().map(EtcdServer::url).collect();
    let store = Etcd::connect(&urls, None).await.unwrap();
    let mut seen = set(&store, "/registry/a", "begin").await;
    let mut feed = store.changes("/registry/", seen).await.unwrap();
    for (victim, member) in members.iter_mut().enumerate() {
        member.kill();
        let value = format!("without {victim}");
        // A write may be cut off, and while the others elect a leader nothing is written.
        let written = timeout(PATIENCE, async {
            loop {
                match store.commit(vec![put("/registry/a", Expect::Any, &value)]).await {
                    Ok(revision) => break revision,
                    Err(Error::Unavailable { .. }) => sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let written = written.await.expect("writes go on");
        let read = timeout(PATIENCE, async {
            loop {
                match store.get("/registry/a").await {
                    Ok(entry) => break entry.unwrap(),
                    Err(Error::Unavailable { .. }) => sleep(Duration::from_millis(20)).await,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        let entry = read.await.expect("reads go on");
        assert_eq!((&entry.value[..], entry.modified), (value.as_bytes(), written));
        // Commits that were cut off may have happened too: only the last is known.
        while seen < written {
            match next(&mut *feed).await {
                Ok(News::Changes(changes)) => seen = changes.last().unwrap().revision,
                Ok(News::Progress(_)) => {}
                Err(Error::Unavailable { .. }) => feed = again(&store, seen).await,
                Err(error) => panic!("{error}"),
            }
        }
        member.restart();
    }
}

/// Another feed after one that has ended, as soon as there can be one.
async fn again(store: &Etcd, after: u64) -> Box<dyn store::Feed> {
    let open = async {
        loop {
            match store.changes("/registry/", after).await {
                Ok(feed) => break feed,
                Err(Error::Unavailable { .. }) => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    timeout(PATIENCE, open).await.expect("feeds go on")
}
