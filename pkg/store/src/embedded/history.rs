//! The past as feeds read it: the log, from any revision that is not compacted.

use super::state::Shared;
use crate::record::{COMPACT, DELETE, END, ReadError, Scanner};
use crate::window::{History, NEWS_CHANGES};
use crate::{Change, Error, Revision, unavailable};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;

/// A feed looks at about this much of the log at once.
const READ_BYTES: u64 = 1 << 20;

/// Reads the log.
pub struct LogHistory {
    shared: Arc<Shared>,
}

impl LogHistory {
    /// The history of an engine.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

#[async_trait]
impl History for LogHistory {
    async fn read(&mut self, prefix: &str, after: Revision) -> Result<(Vec<Change>, Revision), Error> {
        let (shared, prefix) = (self.shared.clone(), prefix.to_owned());
        match tokio::task::spawn_blocking(move || read(&shared, &prefix, after)).await {
            Ok(result) => result,
            Err(error) => Err(unavailable("read the log", error)),
        }
    }

    fn rest(&mut self) {}
}

fn read(shared: &Shared, prefix: &str, after: Revision) -> Result<(Vec<Change>, Revision), Error> {
    let (file, offset, end) = {
        let state = shared.state.read();
        state.check(after)?;
        let i = state.segments.partition_point(|segment| segment.revision <= after + 1);
        // The log reaches back to the compaction revision at least, so there is such a segment.
        let segment = &state.segments[i.saturating_sub(1)];
        (segment.open.clone(), segment.offset_after(after), segment.size)
    };
    scan(Scanner::new(&file.file, &file.path, offset, end), prefix, after)
        .map_err(|error| unavailable("read the log", error))
}

/// Collects changes until there are enough, always up to the end of a commit.
fn scan(
    mut scanner: Scanner<'_>,
    prefix: &str,
    after: Revision,
) -> Result<(Vec<Change>, Revision), ReadError> {
    let start = scanner.offset();
    let (mut changes, mut upto) = (Vec::new(), after);
    loop {
        let Some((offset, record)) = scanner.next()? else { return Ok((changes, upto)) };
        if record.flags & COMPACT != 0 || record.revision <= after {
            continue;
        }
        if record.key.starts_with(prefix) {
            changes.push(Change {
                key: record.key.to_owned(),
                value: (record.flags & DELETE == 0).then(|| Bytes::copy_from_slice(record.value)),
                revision: record.revision,
                created: record.created,
            });
        }
        if record.flags & END != 0 {
            upto = record.revision;
            if changes.len() >= NEWS_CHANGES || offset - start >= READ_BYTES {
                return Ok((changes, upto));
            }
        }
    }
}
