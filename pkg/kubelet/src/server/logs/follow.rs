//! Reading a log to its end, and on as it grows, is rotated, and until its container has ended. What was written before
//! the last rotation is read first: a log that was rotated just now is not empty.

use super::filter::{Filter, More};
use super::tail;
use crate::log_rotation;
use crate::pod_logs;
use crate::provider::LogFile;
use bytes::Bytes;
use notify::{RecursiveMode, Watcher};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{Error, ErrorKind, Result, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{Notify, mpsc};

const BLOCK: usize = 32 * 1024;
/// A line without an end grows no further in memory: it is none of the format.
const LONGEST_LINE: usize = 1024 * 1024;
/// A log is not rotated so often that its files change more than this while they are looked for.
const LOOKS: usize = 5;

/// Reads whole lines.
pub struct Reader {
    file: File,
    read: u64,
    /// What is read after it.
    newer: VecDeque<(File, u64)>,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    block: Vec<u8>,
}

impl Reader {
    /// From the beginning, or only the last lines.
    pub async fn open(path: &Path, tail_lines: Option<u64>) -> Result<Reader> {
        let path = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || chosen(open_files(&path)?, tail_lines));
        Reader::of(opened.await.map_err(Error::other)??)
    }

    /// Of what follows a file that was moved aside.
    async fn of_present(path: &Path) -> Result<Reader> {
        let log = path.to_owned();
        let opened = tokio::task::spawn_blocking(move || pod_logs::open(&log));
        Reader::of(VecDeque::from([(File::from_std(opened.await.map_err(Error::other)??), 0)]))
    }

    fn of(mut files: VecDeque<(File, u64)>) -> Result<Reader> {
        let (file, read) = files.pop_front().ok_or(ErrorKind::NotFound)?;
        Ok(Reader { file, read, newer: files, rest: Vec::new(), block: vec![0; BLOCK] })
    }

    /// Reads on; false at what is the end for now. Lines go through the filter into `said`.
    async fn read(&mut self, filter: &mut Filter, said: &mut Vec<u8>) -> Result<(bool, More)> {
        let count = self.file.read(&mut self.block).await?;
        self.read += count as u64;
        let mut bytes = &self.block[..count];
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, after) = (&bytes[..end], &bytes[end + 1..]);
            let more = if self.rest.is_empty() {
                filter.line(line, said)
            } else {
                self.rest.extend_from_slice(line);
                let more = filter.line(&self.rest, said);
                self.rest.clear();
                more
            };
            bytes = after;
            if more == More::No {
                return Ok((false, More::No));
            }
        }
        if self.rest.len() + bytes.len() <= LONGEST_LINE {
            self.rest.extend_from_slice(bytes);
        }
        if count == 0
            && let Some(newer) = self.newer.pop_front()
        {
            (self.file, self.read) = newer;
            return Ok((true, More::Yes));
        }
        Ok((count > 0, More::Yes))
    }

    /// Whether the path leads to another file now: the log was rotated.
    async fn is_replaced(&self, path: &Path) -> Result<bool> {
        let own = self.file.metadata().await?;
        match tokio::fs::metadata(path).await {
            Ok(now) => Ok((now.dev(), now.ino()) != (own.dev(), own.ino())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A file that was cut is read again from its beginning.
    async fn notice_cut(&mut self) -> Result<()> {
        if self.file.metadata().await?.len() < self.read {
            self.read = self.file.seek(SeekFrom::Start(0)).await?;
            self.rest.clear();
        }
        Ok(())
    }
}

/// The files of a log that are not packed, the newest first. Between two rotations they are looked for once.
fn open_files(path: &Path) -> Result<Vec<std::fs::File>> {
    let folder = pod_logs::folder(path)?;
    let name = path.file_name().and_then(OsStr::to_str).ok_or(ErrorKind::InvalidInput)?;
    let open = |name: &str| match folder.read(name.as_ref()) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    };
    let mut files = Vec::new();
    for _ in 0..LOOKS {
        let before = log_rotation::before_rotation(&folder, name);
        let older = before.as_deref().map(open).transpose()?.flatten();
        files = [open(name)?, older].into_iter().flatten().collect();
        if log_rotation::before_rotation(&folder, name) == before {
            break;
        }
    }
    Ok(files)
}

/// The oldest first, each from where it is read.
fn chosen(newest_first: Vec<std::fs::File>, tail_lines: Option<u64>) -> Result<VecDeque<(File, u64)>> {
    let mut chosen = VecDeque::new();
    let mut left = tail_lines;
    for mut file in newest_first {
        let mut at = 0;
        if let Some(lines) = &mut left {
            (at, *lines) = tail::start(&mut file, *lines)?;
            file.seek(SeekFrom::Start(at))?;
        }
        chosen.push_front((File::from_std(file), at));
        if left == Some(0) {
            break;
        }
    }
    Ok(chosen)
}

/// Sends what the filter lets through, to the end of the file or, with `follow`, of the container.
pub async fn copy(
    log: LogFile,
    mut reader: Reader,
    mut filter: Filter,
    follow: bool,
    client: &mpsc::Sender<Bytes>,
) -> Result<()> {
    // Watched before anything is read: nothing can happen unseen in between.
    let changes = if follow { Some(Changes::watch(&log.path)?) } else { None };
    let LogFile { path, mut ended } = log;
    let mut has_ended = false;
    loop {
        if drain(&mut reader, &mut filter, client).await? == More::No {
            return Ok(());
        }
        let Some(changes) = &changes else { return Ok(()) };
        if reader.is_replaced(&path).await? {
            // What was written before the change is still in the old file.
            if drain(&mut reader, &mut filter, client).await? == More::No {
                return Ok(());
            }
            reader = Reader::of_present(&path).await?;
            continue;
        }
        if has_ended {
            return Ok(());
        }
        reader.notice_cut().await?;
        // What was written last is read once more.
        tokio::select! {
            () = &mut ended => has_ended = true,
            () = changes.next() => {}
        }
    }
}

async fn drain(reader: &mut Reader, filter: &mut Filter, client: &mpsc::Sender<Bytes>) -> Result<More> {
    let gone = || Error::new(ErrorKind::BrokenPipe, "the client is gone");
    loop {
        let mut said = Vec::new();
        let (goes_on, more) = reader.read(filter, &mut said).await?;
        if !said.is_empty() {
            client.send(said.into()).await.map_err(|_| gone())?;
        }
        if !goes_on || more == More::No {
            return Ok(more);
        }
    }
}

/// Tells when the file may have changed.
struct Changes {
    happened: Arc<Notify>,
    _files: notify::RecommendedWatcher,
}

impl Changes {
    fn watch(path: &Path) -> Result<Changes> {
        let happened = Arc::new(Notify::new());
        let tell = happened.clone();
        // Reading is no change; what cannot be understood may be one.
        let seen = move |event: notify::Result<notify::Event>| {
            if !event.is_ok_and(|event| event.kind.is_access()) {
                tell.notify_one();
            }
        };
        let mut files = notify::recommended_watcher(seen).map_err(Error::other)?;
        let dir = path.parent().unwrap_or(path);
        files.watch(dir, RecursiveMode::NonRecursive).map_err(Error::other)?;
        Ok(Changes { happened, _files: files })
    }

    async fn next(&self) {
        self.happened.notified().await;
    }
}
