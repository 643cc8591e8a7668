//! What the tests of the store share: both engines, ready to use, and ways to look at them.
#![allow(dead_code, unused_imports, unused_macros, reason = "each test program uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::{Change, Embedded, Error, Etcd, Expect, Feed, News, Page, Range, Revision, Store, Write};
use tempfile::TempDir;

/// Longer than anything takes; a test that waits this long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// An etcd of our own on free ports, gone when dropped.
pub struct EtcdServer {
    dir: TempDir,
    client_url: String,
    peer_url: String,
    process: Child,
}

impl EtcdServer {
    /// Starts one; when this returns it serves.
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [client_url, peer_url] = free_urls();
        let process = launch(dir.path(), &client_url, &peer_url);
        Self { dir, client_url, peer_url, process }
    }

    /// Where clients connect.
    pub fn endpoints(&self) -> Vec<String> {
        vec![self.client_url.clone()]
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops it where it stands, connections and all, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { "-STOP" } else { "-CONT" };
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status();
        assert!(status.unwrap().success());
        // The signal reaches one thread; the others stop a moment later, and could answer until then.
        let patience = Instant::now() + PATIENCE;
        while frozen && !is_stopped(self.process.id()) {
            assert!(Instant::now() < patience, "etcd does not stop");
            std::thread::yield_now();
        }
    }

    /// Starts it again on the same data.
    pub fn restart(&mut self) {
        self.kill();
        self.process = launch(self.dir.path(), &self.client_url, &self.peer_url);
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether every thread of a process is stopped.
fn is_stopped(process: u32) -> bool {
    std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_none_or(|(_, fields)| fields.trim_start().starts_with('T'))
    })
}

fn launch(dir: &Path, client_url: &str, peer_url: &str) -> Child {
    let mut process = Command::new("etcd")
        .args(["--name", "test", "--logger", "zap", "--log-level", "info"])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(["--listen-client-urls", client_url, "--advertise-client-urls", client_url])
        .args(["--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url])
        .args(["--initial-cluster", &format!("test={peer_url}")])
        .args(["--heartbeat-interval", "20", "--election-timeout", "100"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("start etcd: {error}; apt-get install etcd-server"));
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut log = String::new();
    loop {
        match lines.next() {
            Some(Ok(line)) if line.contains("serving client") => break,
            Some(Ok(line)) => log.push_str(&(line + "\n")),
            _ => panic!("etcd ended before it was ready:\n{log}"),
        }
    }
    // It must not block on a full pipe.
    std::thread::spawn(move || lines.for_each(drop));
    process
}

/// Two different ones: both ports are taken before either is let go.
fn free_urls() -> [String; 2] {
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    ports.map(|port| format!("http://{}", port.local_addr().unwrap()))
}

/// Something that a store can be opened on, again and again.
pub enum Engine {
    /// A directory.
    Embedded(TempDir),
    /// A server.
    Etcd(EtcdServer),
}

impl Engine {
    /// A new, empty embedded store.
    pub fn embedded() -> Self {
        Self::Embedded(tempfile::tempdir().unwrap())
    }

    /// A new, empty etcd.
    pub fn etcd() -> Self {
        Self::Etcd(EtcdServer::start())
    }

    /// Opens the store.
    pub async fn open(&self) -> Arc<dyn Store> {
        match self {
            Self::Embedded(dir) => Arc::new(Embedded::open(&dir.path().join("store")).unwrap()),
            Self::Etcd(server) => Arc::new(self.connect(server).await),
        }
    }

    async fn connect(&self, server: &EtcdServer) -> Etcd {
        Etcd::connect(&server.endpoints(), None).await.unwrap()
    }
}

/// Runs each promise on each engine.
macro_rules! contract {
    ($($promise:ident)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($crate::support::Engine::embedded()).await;
            })*
        }
        mod etcd {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $promise() {
                super::$promise($crate::support::Engine::etcd()).await;
            })*
        }
    };
}
pub(crate) use contract;

/// A write.
pub fn put(key: &str, expect: Expect, value: &str) -> Write {
    Write { key: key.to_owned(), expect, value: Some(value.to_owned().into()) }
}

/// A deletion.
pub fn delete(key: &str, expect: Expect) -> Write {
    Write { key: key.to_owned(), expect, value: None }
}

/// Commits one write that must succeed.
pub async fn set(store: &dyn Store, key: &str, value: &str) -> Revision {
    store.commit(vec![put(key, Expect::Any, value)]).await.unwrap()
}

/// All values under a prefix, as `key=value`.
pub async fn list(store: &dyn Store, prefix: &str, revision: Option<Revision>) -> Vec<String> {
    let range = Range { prefix: prefix.to_owned(), revision, ..Range::default() };
    texts(&store.range(range).await.unwrap())
}

/// The entries of a page, as `key=value`.
pub fn texts(page: &Page) -> Vec<String> {
    let text = |entry: &store::Entry| format!("{}={}", entry.key, String::from_utf8_lossy(&entry.value));
    page.entries.iter().map(text).collect()
}

/// The next news, or a failed test.
pub async fn next(feed: &mut dyn Feed) -> Result<News, Error> {
    tokio::time::timeout(PATIENCE, feed.next()).await.expect("the feed says nothing")
}

/// Changes until there is one of a revision at least. Checks order, and that no commit is split.
pub async fn changes_until(feed: &mut dyn Feed, revision: Revision) -> Vec<Change> {
    let mut all: Vec<Change> = Vec::new();
    while all.last().is_none_or(|last| last.revision < revision) {
        if let News::Changes(some) = next(feed).await.unwrap() {
            let before = all.last().map_or(0, |last| last.revision);
            assert!(
                some.first().is_none_or(|first| first.revision > before),
                "a commit is split or repeated"
            );
            all.extend(some);
            assert!(all.is_sorted_by_key(|change| change.revision), "out of order");
        }
    }
    all
}
