//! Putting a backup into an etcd that has none of our keys, so that it is seen whole or not at all.
//!
//! ```text
//! begin: no keys of ours? ─> mark as restoring ─> entries … ─> compact ─> { offset, unmark } in one transaction
//! ```
//!
//! While the mark stands, [`Etcd::connect`] refuses: nobody ever serves half a backup.

use super::{Etcd, Link, OFFSET_KEY, OWN_KEYS, RESTORING_KEY};
use crate::{Entry, Error, KEYSPACES, Revision, unavailable};
use etcd_client::{Compare, CompareOp, KvClient, ResponseHeader, Txn, TxnOp, TxnOpResponse};
use std::sync::atomic::Ordering;

/// One transaction takes no more entries …
const TXN_ENTRIES: usize = 100;
/// … and no more bytes than etcd takes by default (1.5 MiB), unless a single entry is bigger.
const TXN_BYTES: usize = 1 << 20;

/// Entries on their way into an etcd.
pub struct Restore<'a> {
    link: &'a Link,
    waiting: Vec<Entry>,
    bytes: usize,
}

impl Etcd {
    /// Begins a restore; refuses if there are keys already.
    pub(crate) async fn begin_restore(&self) -> Result<Restore<'_>, Error> {
        let doing = "begin a restore into etcd";
        let empty = |prefix: &&str| Compare::create_revision(*prefix, CompareOp::Equal, 0).with_prefix();
        let compares: Vec<_> = KEYSPACES.iter().chain([&OWN_KEYS]).map(empty).collect();
        let txn = Txn::new().when(compares).and_then([TxnOp::put(RESTORING_KEY, "", None)]);
        if !self.link.transact(doing, &txn).await?.succeeded() {
            let taken = format!("it has keys under one of {KEYSPACES:?} or {OWN_KEYS:?}");
            return Err(unavailable(doing, taken));
        }
        Ok(Restore { link: &self.link, waiting: Vec::new(), bytes: 0 })
    }
}

impl Restore<'_> {
    /// Adds an entry.
    pub async fn put(&mut self, entry: Entry) -> Result<(), Error> {
        let bytes = entry.key.len() + entry.value.len();
        if self.waiting.len() >= TXN_ENTRIES || self.bytes + bytes > TXN_BYTES {
            self.flush().await?;
        }
        self.bytes += bytes;
        self.waiting.push(entry);
        Ok(())
    }

    /// Makes it a store, whose revisions are all later than `base`.
    pub async fn finish(mut self, base: Revision) -> Result<(), Error> {
        self.flush().await?;
        let doing = "finish a restore into etcd";
        // The steps of the restore are nobody's history.
        let get = |mut kv: KvClient| async move { kv.get(RESTORING_KEY, None).await };
        let current = self.link.members.read(doing, get).await?;
        if let Some(revision) = current.header().map(ResponseHeader::revision) {
            let compact = |mut kv: KvClient| async move { kv.compact(revision, None).await };
            self.link.members.write(doing, compact).await?;
        }
        let ops = [TxnOp::put(OFFSET_KEY, base.to_string(), None), TxnOp::delete(RESTORING_KEY, None)];
        self.link.transact(doing, &Txn::new().and_then(ops)).await?;
        self.link.offset.store(base, Ordering::Relaxed);
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Error> {
        let put = |entry: Entry| TxnOp::put(entry.key, Vec::from(entry.value), None);
        let ops: Vec<_> = self.waiting.drain(..).map(put).collect();
        self.bytes = 0;
        if !ops.is_empty() {
            let txn = Txn::new().and_then(ops);
            self.link.transact("write a backup to etcd", &txn).await?;
        }
        Ok(())
    }
}

impl Link {
    /// The offset of an etcd's revisions; refuses an etcd with half a backup in it.
    pub(super) async fn read_offset(&self) -> Result<Revision, Error> {
        let doing = "read the revision offset from etcd";
        let gets = [TxnOp::get(OFFSET_KEY, None), TxnOp::get(RESTORING_KEY, None)];
        let txn = Txn::new().and_then(gets);
        let get = |mut kv: KvClient| {
            let txn = txn.clone();
            async move { kv.txn(txn).await }
        };
        let response = self.members.read(doing, get).await?;
        let responses = response.op_responses();
        let [TxnOpResponse::Get(offset), TxnOpResponse::Get(restoring)] = responses.as_slice() else {
            return Err(unavailable(doing, "it answered something else"));
        };
        if !restoring.kvs().is_empty() {
            let what = format!(
                "a restore into it has not finished; if none is running, delete all keys under {KEYSPACES:?} \
                 and {OWN_KEYS:?} and restore again"
            );
            return Err(unavailable(doing, what));
        }
        match offset.kvs().first() {
            None => Ok(0),
            Some(kv) => {
                let text = kv.value_str().map_err(|e| unavailable(doing, e))?;
                text.parse().map_err(|e| unavailable(doing, e))
            }
        }
    }
}
