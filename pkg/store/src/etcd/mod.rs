//! The engine over etcd (3.4 and later), for more than one control-plane machine.
//!
//! ```text
//! commit ─> one transaction: compare mod_revisions, then write, else read what stands in the way
//! changes ─> one watch for all feeds ─> window ─> feeds        (behind the window: a watch of their own)
//! ```
//!
//! # Revisions
//! A revision of the store is etcd's plus an offset, which is kept under [`OFFSET_KEY`] and is 0 unless a
//! backup was restored: then it is so large that no revision is ever given out twice.
//!
//! # Errors
//! No call waits forever: after a few seconds without an answer it is [`Error::Unavailable`]. Of a commit that
//! says nothing about whether it happened.
//!
//! # Keys
//! Besides the callers' keyspaces the engine keeps some keys of its own, which callers never see.

mod members;
mod range;
mod restore;
mod revision;
mod watch;

use crate::window::WindowFeed;
use crate::{Entry, Error, Expect, Feed, Page, Range, Revision, Store, Write, check_writes, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use etcd_client::{
    Certificate, Compare, CompareOp, ConnectOptions, GetResponse, Identity, KeyValue, KvClient,
    ResponseHeader, TlsOptions, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use members::Members;
use revision::SharedRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;
use watch::{Follower, WatchHistory};

/// Where the engine's own keys begin. They sort before every keyspace, so that one watch sees all.
const OWN_KEYS: &str = "/minik8s.store/";
/// The offset between etcd's revisions and ours, in decimal.
const OFFSET_KEY: &str = "/minik8s.store/revision-offset";
/// There while a backup is being restored.
const RESTORING_KEY: &str = "/minik8s.store/restoring";
/// Written when there must be a change for the watch to see.
const MARK_KEY: &str = "/minik8s.store/mark";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection is asked for a sign of life this often (etcd allows no more than every 5 s), …
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// … and given up when it does not answer.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);

const COMPACTED: &str = "required revision has been compacted";
const FUTURE: &str = "required revision is a future revision";

/// How to prove to each other who is who; all PEM.
#[derive(Clone)]
pub struct Tls {
    /// Certificates of those who sign for etcd's servers.
    pub ca: Vec<u8>,
    /// Our certificate and its key, where etcd asks for them.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// The engine over etcd.
pub struct Etcd {
    link: Arc<Link>,
    reads: SharedRead,
    /// Begun with the first feed.
    follower: OnceCell<Follower>,
}

/// The connections, and how revisions are to be read.
struct Link {
    members: Members,
    offset: AtomicU64,
    /// The highest revision that we know to be compacted.
    compacted: AtomicU64,
}

impl Etcd {
    /// Connects to the members of a cluster, given as URLs.
    pub async fn connect(endpoints: &[String], tls: Option<Tls>) -> Result<Self, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_keep_alive(KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT)
            .with_keep_alive_while_idle(true)
            // A member that is cut off from the others must not keep a watch waiting.
            .with_require_leader(true);
        if let Some(Tls { ca, identity }) = tls {
            let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
            if let Some((certificate, key)) = identity {
                tls = tls.identity(Identity::from_pem(certificate, key));
            }
            options = options.with_tls(tls);
        }
        let members =
            Members::new(endpoints, &options).await.map_err(|error| unavailable("connect to etcd", error))?;
        let link = Link { members, offset: AtomicU64::new(0), compacted: AtomicU64::new(0) };
        link.offset.store(link.read_offset().await?, Ordering::Relaxed);
        Ok(Self { link: Arc::new(link), reads: SharedRead::default(), follower: OnceCell::new() })
    }

    async fn follower(&self) -> Result<&Follower, Error> {
        self.follower.get_or_try_init(|| Follower::start(self.link.clone())).await
    }
}

#[async_trait]
impl Store for Etcd {
    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, Error> {
        check_writes(&writes)?;
        let compares: Vec<_> =
            writes.iter().filter_map(|write| self.link.compare(&write.key, write.expect)).collect();
        let expecting = || writes.iter().filter(|write| write.expect != Expect::Any);
        let gets: Vec<_> = expecting().map(|write| TxnOp::get(write.key.as_str(), None)).collect();
        let ops: Vec<_> = writes
            .iter()
            .filter(|write| !write.only_expects())
            .map(|write| match &write.value {
                Some(value) => TxnOp::put(write.key.as_str(), value.to_vec(), None),
                None => TxnOp::delete(write.key.as_str(), None),
            })
            .collect();
        let txn = Txn::new().when(compares).and_then(ops).or_else(gets);
        let response = self.link.transact("commit to etcd", &txn).await?;
        if response.succeeded() {
            return self.link.header(response.header());
        }
        for (write, response) in expecting().zip(response.op_responses()) {
            let current = match response {
                TxnOpResponse::Get(mut get) => self.link.entries(&mut get)?.pop(),
                _ => return Err(unavailable("commit to etcd", "it answered something else")),
            };
            if !write.expect.holds(current.as_ref().map(|entry| entry.modified)) {
                return Err(Error::Conflict { key: write.key.clone(), current });
            }
        }
        Err(unavailable("commit to etcd", "it refused without a reason"))
    }

    async fn get(&self, key: &str) -> Result<Option<Entry>, Error> {
        let get = |mut kv: KvClient| async move { kv.get(key, None).await };
        let mut response = self.link.members.read("read from etcd", get).await?;
        Ok(self.link.entries(&mut response)?.pop())
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        range::read(&self.link, range).await
    }

    async fn revision(&self) -> Result<Revision, Error> {
        let link = self.link.clone();
        self.reads.read(move || async move { link.revision().await }).await
    }

    async fn changes(&self, prefix: &str, after: Revision) -> Result<Box<dyn Feed>, Error> {
        let current = self.revision().await?;
        if after > current {
            return Err(Error::Future { asked: after, current });
        }
        // Revisions up to the offset are those of the store that a backup was made of.
        let offset = self.link.offset();
        if after <= offset && offset > 0 {
            return Err(Error::Compacted { asked: after, oldest: self.link.oldest() });
        }
        let window = self.follower().await?.window.clone();
        let history = WatchHistory::new(self.link.clone());
        Ok(Box::new(WindowFeed::open(window, prefix, after, history)))
    }

    async fn request_progress(&self) -> Result<(), Error> {
        match self.follower.get() {
            Some(follower) => follower.request_progress(self.revision().await?).await,
            None => Ok(()),
        }
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let Some(physical) = self.link.physical(revision) else { return Ok(()) };
        let compact = |mut kv: KvClient| async move { kv.compact(physical, None).await };
        match self.link.members.write("compact etcd", compact).await {
            Ok(_) => {}
            Err(error) if says(&error, COMPACTED) => {}
            Err(error) if says(&error, FUTURE) => {
                return Err(Error::Future { asked: revision, current: self.revision().await? });
            }
            Err(error) => return Err(error),
        }
        self.link.compacted.fetch_max(revision, Ordering::Relaxed);
        Ok(())
    }
}

impl Link {
    fn offset(&self) -> u64 {
        self.offset.load(Ordering::Relaxed)
    }

    /// The store's revision for one of etcd's.
    fn logical(&self, revision: i64) -> Revision {
        revision.max(0) as u64 + self.offset()
    }

    /// Etcd's revision for one of the store's, if etcd has such a one.
    fn physical(&self, revision: Revision) -> Option<i64> {
        let physical = revision.checked_sub(self.offset())?;
        i64::try_from(physical).ok().filter(|physical| *physical > 0)
    }

    /// The oldest revision that can be read, as far as we know.
    fn oldest(&self) -> Revision {
        let offset = self.offset();
        self.compacted.load(Ordering::Relaxed).max(if offset > 0 { offset + 1 } else { 0 })
    }

    fn compare(&self, key: &str, expect: Expect) -> Option<Compare> {
        // No value has a negative revision, while "no value" compares as 0.
        let revision = match expect {
            Expect::Any => return None,
            Expect::Absent => 0,
            Expect::Revision(revision) | Expect::Unchanged(revision) => self.physical(revision).unwrap_or(-1),
        };
        Some(Compare::mod_revision(key, CompareOp::Equal, revision))
    }

    fn header(&self, header: Option<&ResponseHeader>) -> Result<Revision, Error> {
        match header {
            Some(header) => Ok(self.logical(header.revision())),
            None => Err(unavailable("read etcd's answer", "it has no header")),
        }
    }

    fn entries(&self, response: &mut GetResponse) -> Result<Vec<Entry>, Error> {
        response.take_kvs().into_iter().map(|kv| self.entry(kv)).collect()
    }

    fn entry(&self, kv: KeyValue) -> Result<Entry, Error> {
        let (modified, created) = (self.logical(kv.mod_revision()), self.logical(kv.create_revision()));
        let (key, value) = kv.into_key_value();
        let key = String::from_utf8(key).map_err(|e| unavailable("read a key from etcd", e))?;
        Ok(Entry { key, value: Bytes::from(value), modified, created })
    }

    /// The present revision, by a linearizable read.
    async fn revision(&self) -> Result<Revision, Error> {
        let get = |mut kv: KvClient| async move { kv.get(OFFSET_KEY, None).await };
        let response = self.members.read("read the revision of etcd", get).await?;
        self.header(response.header())
    }

    /// Does a transaction that writes.
    async fn transact(&self, doing: &str, txn: &Txn) -> Result<TxnResponse, Error> {
        let transact = |mut kv: KvClient| {
            let txn = txn.clone();
            async move { kv.txn(txn).await }
        };
        self.members.write(doing, transact).await
    }

    /// Makes a change that the watch must see.
    async fn mark(&self) -> Result<Revision, Error> {
        let put = |mut kv: KvClient| async move { kv.put(MARK_KEY, "", None).await };
        let response = self.members.write("write to etcd", put).await?;
        self.header(response.header())
    }
}

/// Whether an error is what etcd says in these words.
fn says(error: &Error, words: &str) -> bool {
    let Error::Unavailable { source, .. } = error else { return false };
    match source.downcast_ref() {
        Some(etcd_client::Error::GRpcStatus(status)) => status.message().contains(words),
        _ => false,
    }
}
