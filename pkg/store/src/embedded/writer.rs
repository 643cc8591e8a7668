//! The one thread that writes: it takes all requests that wait, decides them in order, appends what they
//! write, waits once for the disk, publishes, and only then answers.
//!
//! A request is decided against the index and what the same batch wrote before it. If the batch cannot be
//! written nobody in it is told anything but that, not even of conflicts: they might be with what failed.

use super::files::{self, DataFile};
use super::index::{FileId, Place, Version};
use super::state::{Found, Shared};
use crate::record::{COMPACT, DELETE, END, Record};
use crate::{Change, Entry, Error, Revision, Write, unavailable};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// A batch that has grown to this is written; one more commit may still fit above it.
const BATCH_BYTES: usize = 4 << 20;
/// A buffer that was once needed for a big batch is not kept.
const BUFFER_KEPT: usize = 1 << 20;
/// The part of the disk's time that the writer may wait for more to write.
const GATHER_SHARE: u32 = 4;
const GATHER_MAX: Duration = Duration::from_millis(1);
const GATHER_POLL: Duration = Duration::from_micros(20);

/// What the writer is asked.
pub enum Request {
    /// Write all or nothing.
    Commit {
        /// What.
        writes: Vec<Write>,
        /// Answers the revision.
        reply: oneshot::Sender<Result<Revision, Refusal>>,
    },
    /// Forget history before a revision.
    Compact {
        /// That revision.
        revision: Revision,
        /// Answers when it is forgotten.
        reply: oneshot::Sender<Result<(), Refusal>>,
    },
}

/// Why not.
pub enum Refusal {
    /// An expectation did not hold.
    Conflict {
        /// Of the write to this key.
        key: String,
        /// What stands there.
        current: Option<Standing>,
    },
    /// Something else.
    Error(Error),
}

/// A value that stood in the way.
pub enum Standing {
    /// In a file.
    Stored(Found),
    /// In the same batch.
    Fresh(Entry),
}

impl Standing {
    /// Reads it.
    pub fn read(self) -> Result<Entry, crate::record::ReadError> {
        match self {
            Standing::Stored(found) => found.read(),
            Standing::Fresh(entry) => Ok(entry),
        }
    }
}

/// Serves until all senders of requests are gone.
pub fn run(shared: &Shared, mut queue: mpsc::Receiver<Request>) {
    let mut writer = Writer { shared, buffer: Vec::new(), poison: None, sync_time: Duration::ZERO };
    let mut expected = 1;
    while let Some(first) = queue.blocking_recv() {
        writer.gather(&queue, expected);
        let mut batch = Batch::begin(shared);
        batch.add(shared, &mut writer.buffer, first);
        while writer.buffer.len() < BATCH_BYTES {
            let Ok(next) = queue.try_recv() else { break };
            batch.add(shared, &mut writer.buffer, next);
        }
        expected = writer.finish(batch, &queue);
    }
}

struct Writer<'a> {
    shared: &'a Shared,
    buffer: Vec<u8>,
    /// Why nothing can be written any more.
    poison: Option<String>,
    /// How long the disk took the last time.
    sync_time: Duration,
}

/// Requests that are decided but not yet written.
struct Batch {
    file: FileId,
    /// Where in the file it begins.
    start: u64,
    revision: Revision,
    compacted: Revision,
    changes: Vec<Change>,
    places: Vec<Option<Place>>,
    /// The last change of each key; an index into `changes`.
    latest: HashMap<String, usize>,
    /// Where each commit begins.
    commits: Vec<(Revision, u64)>,
    answers: Vec<Answer>,
}

enum Answer {
    Commit(oneshot::Sender<Result<Revision, Refusal>>, Result<Revision, Refusal>),
    Compact(oneshot::Sender<Result<(), Refusal>>, Result<(), Refusal>),
}

impl Writer<'_> {
    /// Waits a moment for those who were answered last and are likely to come back. Without it, writers fall
    /// into two groups of which one always waits for the disk of the other: twice the work for it.
    fn gather(&self, queue: &mpsc::Receiver<Request>, expected: usize) {
        let deadline = Instant::now() + (self.sync_time / GATHER_SHARE).min(GATHER_MAX);
        while queue.len() + 1 < expected && Instant::now() < deadline {
            std::thread::sleep(GATHER_POLL);
        }
    }

    /// Writes, publishes and answers; says how many requests are likely to be there next time.
    fn finish(&mut self, batch: Batch, queue: &mpsc::Receiver<Request>) -> usize {
        let len = self.buffer.len() as u64;
        let written = if len == 0 { Ok(()) } else { self.write(batch.start) };
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT);
        let expected = batch.answers.len() + queue.len();
        match written {
            Ok(()) => batch.publish(self.shared, len),
            Err(reason) => batch.fail(self.shared, &reason),
        }
        expected
    }

    /// Makes the buffer durable at the end of the log, or leaves the log as it was.
    fn write(&mut self, start: u64) -> Result<(), String> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        let active = match self.shared.state.read().segments.back() {
            Some(active) => active.open.clone(),
            None => return Err("the log has no segment".to_owned()),
        };
        let name = active.path.display();
        if let Err(error) = active.file.write_all_at(&self.buffer, start) {
            let why = format!("append to {name}: {error}");
            // Whatever part of it is there must go, also from the disk, before anything else is appended.
            if let Err(error) = active.file.set_len(start).and_then(|()| active.file.sync_all()) {
                return Err(self.poison(format!("{why}; cut it back to {start} bytes: {error}")));
            }
            tracing::warn!(error = why, "store cannot write; will try again with the next write");
            return Err(why);
        }
        let begin = Instant::now();
        if let Err(error) = active.file.sync_data() {
            return Err(self.poison(format!("sync {name}: {error}")));
        }
        self.sync_time = begin.elapsed();
        Ok(())
    }

    fn poison(&mut self, reason: String) -> String {
        let reason = format!("{reason}; the store takes no writes until it is opened anew");
        tracing::error!(reason, "store is read-only");
        self.poison = Some(reason.clone());
        reason
    }
}

impl Batch {
    fn begin(shared: &Shared) -> Self {
        roll(shared);
        let state = shared.state.read();
        let (file, start) = state.segments.back().map_or((0, 0), |active| (active.id, active.size));
        Self {
            file,
            start,
            revision: state.revision,
            compacted: state.compacted,
            changes: Vec::new(),
            places: Vec::new(),
            latest: HashMap::new(),
            commits: Vec::new(),
            answers: Vec::new(),
        }
    }

    fn add(&mut self, shared: &Shared, buffer: &mut Vec<u8>, request: Request) {
        match request {
            Request::Commit { writes, reply } => {
                let decision = self.commit(shared, buffer, writes);
                self.answers.push(Answer::Commit(reply, decision));
            }
            Request::Compact { revision, reply } => {
                let decision = self.compact(buffer, revision);
                self.answers.push(Answer::Compact(reply, decision));
            }
        }
    }

    fn commit(
        &mut self,
        shared: &Shared,
        buffer: &mut Vec<u8>,
        writes: Vec<Write>,
    ) -> Result<Revision, Refusal> {
        let state = shared.state.read();
        // What stands under each key now: the batch's own word counts for more than the index's.
        let standing: Vec<Option<(Revision, Revision)>> = writes
            .iter()
            .map(|write| match self.latest.get(&write.key) {
                Some(&i) => {
                    let change = &self.changes[i];
                    change.value.is_some().then_some((change.revision, change.created))
                }
                None => state.index.latest(&write.key).map(|version| (version.revision, version.created)),
            })
            .collect();
        for (write, standing) in writes.iter().zip(&standing) {
            if !write.expect.holds(standing.map(|(revision, _)| revision)) {
                let current = match self.latest.get(&write.key) {
                    Some(&i) => fresh(&self.changes[i]),
                    None => state.latest(&write.key).map(Standing::Stored),
                };
                return Err(Refusal::Conflict { key: write.key.clone(), current });
            }
        }
        drop(state);
        // Deleting what is not there is no change.
        let changing = |(write, standing): &(Write, Option<_>)| {
            write.value.is_some() || (standing.is_some() && !write.only_expects())
        };
        let changing: Vec<_> = writes.into_iter().zip(standing).filter(changing).collect();
        let Some(last) = changing.len().checked_sub(1) else { return Ok(self.revision) };
        self.revision += 1;
        self.commits.push((self.revision, self.start + buffer.len() as u64));
        for (i, (write, standing)) in changing.into_iter().enumerate() {
            let end = if i == last { END } else { 0 };
            self.append(buffer, write, standing.map(|(_, created)| created), end);
        }
        Ok(self.revision)
    }

    fn append(&mut self, buffer: &mut Vec<u8>, write: Write, created: Option<Revision>, end: u8) {
        let revision = self.revision;
        let created = if write.value.is_some() { created.unwrap_or(revision) } else { revision };
        let record = Record {
            batch: self.start as u32,
            flags: end | if write.value.is_some() { 0 } else { DELETE },
            revision,
            created,
            key: &write.key,
            value: write.value.as_deref().unwrap_or_default(),
        };
        let offset = self.start + buffer.len() as u64;
        let place = Place { file: self.file, len: record.len() as u32, offset };
        record.encode(buffer);
        self.places.push(write.value.is_some().then_some(place));
        self.latest.insert(write.key.clone(), self.changes.len());
        self.changes.push(Change { key: write.key, value: write.value, revision, created });
    }

    fn compact(&mut self, buffer: &mut Vec<u8>, revision: Revision) -> Result<(), Refusal> {
        if revision > self.revision {
            return Err(Refusal::Error(Error::Future { asked: revision, current: self.revision }));
        }
        if revision > self.compacted {
            self.compacted = revision;
            let batch = self.start as u32;
            Record { batch, flags: COMPACT | END, revision, created: 0, key: "", value: b"" }.encode(buffer);
        }
        Ok(())
    }

    /// Makes everything visible, to readers first, then to feeds, then to those who asked.
    fn publish(self, shared: &Shared, len: u64) {
        let mut state = shared.state.write();
        if let Some(active) = state.segments.back_mut() {
            active.size = self.start + len;
            self.commits.iter().for_each(|(revision, offset)| active.mark(*revision, *offset));
        }
        for (change, place) in self.changes.iter().zip(self.places) {
            let version = Version { revision: change.revision, created: change.created, place };
            state.index.apply(&change.key, version);
        }
        let compacting = state.compacted < self.compacted;
        (state.revision, state.compacted) = (self.revision, self.compacted);
        drop(state);
        shared.window.publish(self.changes, self.revision);
        if compacting {
            shared.compaction_done();
        }
        self.answers.into_iter().for_each(Answer::send);
    }

    /// Nothing was written. A compaction counts all the same: it may be what makes room on a full disk, and
    /// if it is forgotten in a crash nothing is lost.
    fn fail(self, shared: &Shared, reason: &str) {
        let compacting = {
            let mut state = shared.state.write();
            let compacted = self.compacted.min(state.revision);
            std::mem::replace(&mut state.compacted, compacted) < compacted
        };
        if compacting {
            shared.compaction_done();
        }
        for answer in self.answers {
            match answer {
                Answer::Commit(reply, _) => {
                    let error = unavailable("write to disk", reason.to_owned());
                    drop(reply.send(Err(Refusal::Error(error))));
                }
                compact @ Answer::Compact(..) => compact.send(),
            }
        }
    }
}

impl Answer {
    /// Whoever asked may have gone away meanwhile.
    fn send(self) {
        match self {
            Answer::Commit(reply, decision) => drop(reply.send(decision)),
            Answer::Compact(reply, decision) => drop(reply.send(decision)),
        }
    }
}

/// What a change of the same batch left under its key.
fn fresh(change: &Change) -> Option<Standing> {
    let Change { key, value, revision, created } = change.clone();
    value.map(|value| Standing::Fresh(Entry { key, value, modified: revision, created }))
}

/// Begins another segment if the last is big enough. If that fails, say on a full disk, the last one grows.
fn roll(shared: &Shared) {
    let (id, first) = {
        let mut state = shared.state.write();
        let big = |active: &DataFile| {
            active.size >= shared.options.segment_bytes && active.revision <= state.revision
        };
        if !state.segments.back().is_some_and(big) {
            return;
        }
        (state.name_file(), state.revision + 1)
    };
    match files::create_segment(&shared.dir, id, first) {
        Ok(segment) => shared.state.write().segments.push_back(segment),
        Err(error) => tracing::warn!(%error, "store cannot begin a new log segment"),
    }
}
