//! Nothing that was acknowledged is ever lost: writers and servers are killed, over and over, at any moment.
//!
//! ```text
//! this test ──spawns──> itself as writer ──"ack key value revision ."──> pipe ──> this test
//!     └── kill -9 after some acks, then: is every ack in the feed, at its revision? does the feed make the state?
//! ```

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use futures::future::join_all;
use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::embedded::Options;
use store::{Change, Embedded, Error, Etcd, Expect, News, Range, Revision, Store, Write};
use support::{EtcdServer, PATIENCE, changes_until, set};

const ROUNDS: usize = 32;
const SOAK_ROUNDS: usize = 500;
const WRITERS: usize = 8;
/// So small that snapshots are written and segments removed in every round.
const SMALL: Options = Options { segment_bytes: 32 << 10, garbage_bytes_min: 32 << 10 };

const ENGINE: &str = "STORE_TEST_KILL_ENGINE";
const ROUND: &str = "STORE_TEST_KILL_ROUND";
const COMPACT: &str = "STORE_TEST_KILL_COMPACT";

/// A commit that was answered.
#[derive(Debug)]
struct Ack {
    key: String,
    value: String,
    revision: Revision,
}

/// Not a test: what the tests below start in a process of its own, and kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer() {
    let Ok(engine) = std::env::var(ENGINE) else { return };
    let round = std::env::var(ROUND).unwrap();
    let compact: Revision = std::env::var(COMPACT).unwrap().parse().unwrap();
    let store: Arc<dyn Store> = match engine.split_once(' ').unwrap() {
        ("embedded", dir) => Arc::new(Embedded::open_with(Path::new(dir), SMALL).unwrap()),
        (_, url) => Arc::new(Etcd::connect(&[url.to_owned()], None).await.unwrap()),
    };
    store.compact(compact).await.unwrap();
    let write = async |n: usize| {
        for i in 0.. {
            let key = format!("/registry/kill/{n}/{}", i % 20);
            let value = format!("{round}.{n}.{i}.{}", "x".repeat(i * 37 % 1000));
            let bytes = Some(value.clone().into());
            match store.commit(vec![Write { key: key.clone(), expect: Expect::Any, value: bytes }]).await {
                Ok(revision) => println!("ack {key} {value} {revision} ."),
                // It may have happened or not: nobody was told.
                Err(Error::Unavailable { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    join_all((0..WRITERS).map(write)).await;
}

/// A running writer, and what it has said so far.
struct Writer {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    acks: Vec<Ack>,
}

impl Writer {
    fn start(engine: &str, round: usize, compact: Revision) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer", "--nocapture"])
            .env(ENGINE, engine)
            .env(ROUND, round.to_string())
            .env(COMPACT, compact.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, acks: Vec::new() }
    }

    /// Listens until there are this many more acks, or the end.
    fn listen(&mut self, acks: usize) {
        let goal = self.acks.len().saturating_add(acks);
        while self.acks.len() < goal {
            let Some(Ok(line)) = self.lines.next() else { return };
            // The harness speaks on the same pipe, and the last line may be cut off.
            if let ["ack", key, value, revision, "."] = line.split(' ').collect::<Vec<_>>()[..] {
                let revision = revision.parse().unwrap();
                self.acks.push(Ack { key: key.to_owned(), value: value.to_owned(), revision });
            }
        }
    }

    /// Kills it, and hears what was still in the pipe.
    fn kill(mut self) -> Vec<Ack> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.listen(usize::MAX);
        self.acks
    }
}

/// What must be there.
#[derive(Default)]
struct Witness {
    state: BTreeMap<String, (String, Revision)>,
    revisions: HashSet<Revision>,
    changes: Vec<Change>,
    verified: Revision,
}

impl Witness {
    /// Compares what was acknowledged since the last time with what the feed tells, and that with the state.
    async fn verify(&mut self, store: &dyn Store, acks: Vec<Ack>) {
        let mut feed = store.changes("/registry/", self.verified).await.unwrap();
        let end = set(store, "/registry/end", "").await;
        let changes = changes_until(&mut *feed, end).await;
        let mut told = BTreeMap::new();
        for change in &changes {
            let value = String::from_utf8(change.value.clone().unwrap().to_vec()).unwrap();
            self.state.insert(change.key.clone(), (value.clone(), change.revision));
            let twice = told.insert(change.revision, (change.key.clone(), value));
            assert!(twice.is_none(), "two commits of revision {}", change.revision);
        }
        for ack in acks {
            assert!(self.revisions.insert(ack.revision), "two acks of revision {}", ack.revision);
            assert_eq!(told.get(&ack.revision), Some(&(ack.key, ack.value)), "revision {}", ack.revision);
        }
        let page = store.range(Range { prefix: "/registry/".into(), ..Range::default() }).await.unwrap();
        let state: BTreeMap<_, _> = page
            .entries
            .into_iter()
            .map(|e| (e.key, (String::from_utf8(e.value.to_vec()).unwrap(), e.modified)))
            .collect();
        assert_eq!(state, self.state, "the state is not what the feed tells");
        self.verified = end;
        self.changes.extend(changes);
    }
}

#[test]
fn the_embedded_engine_keeps_what_it_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut witness = Witness::default();
    for round in 0..rounds() {
        let engine = format!("embedded {}", dir.path().display());
        let mut writer = Writer::start(&engine, round, witness.verified);
        writer.listen(random(1, 400));
        let acks = writer.kill();
        let (count, before) = (acks.len(), witness.changes.len());
        let store = Embedded::open_with(dir.path(), SMALL).unwrap();
        runtime.block_on(witness.verify(&store, acks));
        // Each writer may have had one commit that was written and not answered; then there is our own.
        assert!(witness.changes.len() - before <= count + WRITERS + 1);
    }
    let revisions: Vec<_> = witness.changes.iter().map(|change| change.revision).collect();
    assert_eq!(revisions, (1..=witness.verified).collect::<Vec<_>>(), "the feed has gaps");
}

#[test]
fn etcd_keeps_what_it_acknowledged() {
    let mut server = EtcdServer::start();
    let url = server.url();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut witness = Witness::default();
    let begin = runtime.block_on(async {
        let store = Etcd::connect(std::slice::from_ref(&url), None).await.unwrap();
        store.revision().await.unwrap()
    });
    witness.verified = begin;
    let followed = Arc::new(AtomicU64::new(begin));
    let follower = runtime.spawn(follow(url.clone(), followed.clone()));
    for round in 0..rounds() {
        // What the follower has not seen yet must stay.
        let compact = witness.verified.min(followed.load(Ordering::SeqCst));
        let mut writer = Writer::start(&format!("etcd {url}"), round, compact);
        writer.listen(random(1, 100));
        server.kill();
        server.restart();
        // It goes on by itself.
        writer.listen(random(1, 100));
        let acks = writer.kill();
        runtime.block_on(async {
            let store = Etcd::connect(std::slice::from_ref(&url), None).await.unwrap();
            witness.verify(&store, acks).await;
        });
    }
    // Somebody who followed from the beginning, through all of it, has seen the same.
    let followed = runtime.block_on(async {
        let store = Etcd::connect(&[url], None).await.unwrap();
        let end = set(&store, "/registry/finished", "").await;
        let mut followed = tokio::time::timeout(PATIENCE, follower).await.unwrap().unwrap();
        assert_eq!(followed.pop().unwrap().revision, end);
        followed
    });
    assert!(followed == witness.changes, "a feed that lived through it all has missed something");
}

/// Follows changes until the last, beginning again wherever a feed ends.
async fn follow(url: String, after: Arc<AtomicU64>) -> Vec<Change> {
    let store = Etcd::connect(&[url], None).await.unwrap();
    let mut all: Vec<Change> = Vec::new();
    loop {
        let mut feed = match store.changes("/registry/", after.load(Ordering::SeqCst)).await {
            Ok(feed) => feed,
            Err(Error::Unavailable { .. }) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        loop {
            match feed.next().await {
                Ok(News::Changes(changes)) => all.extend(changes),
                Ok(News::Progress(_)) => {}
                Err(Error::Unavailable { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            let Some(last) = all.last() else { continue };
            after.store(last.revision, Ordering::SeqCst);
            if last.key == "/registry/finished" {
                return all;
            }
        }
    }
}

/// Another number each time.
fn random(from: usize, to: usize) -> usize {
    from + RandomState::new().hash_one(0) as usize % (to - from)
}

/// `make soak` looks longer.
fn rounds() -> usize {
    if std::env::var_os("SOAK").is_some() { SOAK_ROUNDS } else { ROUNDS }
}
