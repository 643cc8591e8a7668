//! Reading a log file to its end, and on as it grows, is rotated, and until its container has ended.

use super::filter::{Filter, More};
use super::tail;
use crate::provider::Log;
use bytes::Bytes;
use notify::{RecursiveMode, Watcher};
use std::io::{Error, ErrorKind, Result, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{Notify, mpsc};

const BLOCK: usize = 32 * 1024;
/// A line without an end grows no further in memory: it is none of the format.
const LONGEST_LINE: usize = 1024 * 1024;

/// Reads whole lines.
pub struct Reader {
    file: File,
    read: u64,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
    block: Vec<u8>,
}

impl Reader {
    /// From the beginning, or only the last lines.
    pub async fn open(path: &Path, tail_lines: Option<u64>) -> Result<Reader> {
        let mut file = File::open(path).await?;
        let mut at = 0;
        if let Some(lines) = tail_lines {
            let mut own = file.try_clone().await?.into_std().await;
            at = tokio::task::spawn_blocking(move || tail::start(&mut own, lines))
                .await
                .map_err(Error::other)??;
            file.seek(SeekFrom::Start(at)).await?;
        }
        Ok(Reader { file, read: at, rest: Vec::new(), block: vec![0; BLOCK] })
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

/// Sends what the filter lets through, to the end of the file or, with `follow`, of the container.
pub async fn copy(
    log: Log,
    mut reader: Reader,
    mut filter: Filter,
    follow: bool,
    client: &mpsc::Sender<Bytes>,
) -> Result<()> {
    // Watched before anything is read: nothing can happen unseen in between.
    let changes = if follow { Some(Changes::watch(&log.path)?) } else { None };
    let Log { path, mut ended } = log;
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
            reader = Reader::open(&path, None).await?;
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
