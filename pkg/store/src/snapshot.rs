//! A file of all entries at one revision: the embedded engine's snapshots and everybody's backups.
//!
//! ```text
//! header(magic, revision) | one record per entry | footer(count, checksum of all before)
//! ```
//!
//! It is written under another name, made durable and only then renamed: a file with its proper name is whole.

use crate::Revision;
use crate::record::{
    self, FILE_HEADER, FOOTER, RECORD_HEADER, ReadError, Record, Scanner, damaged, io_error, sync_dir,
};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The end of the name of a file that is still being written.
pub const UNFINISHED: &str = ".tmp";

const WRITE_CHUNK: usize = 1 << 20;

/// Writes a file of entries.
pub struct Writer {
    file: File,
    path: PathBuf,
    unfinished: PathBuf,
    buffer: Vec<u8>,
    /// How much is in the file; what is in the buffer comes on top.
    written: u64,
    crc: crc32fast::Hasher,
    count: u64,
    revision: Revision,
    renamed: bool,
}

impl Writer {
    /// Begins a file that shall be named `path`.
    pub fn create(path: &Path, magic: &[u8; 8], revision: Revision) -> io::Result<Self> {
        let mut unfinished = path.as_os_str().to_owned();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&unfinished)?;
        let mut buffer = Vec::with_capacity(WRITE_CHUNK + (64 << 10));
        buffer.extend_from_slice(&record::encode_file_header(magic, revision));
        let crc = crc32fast::Hasher::new();
        let path = path.to_owned();
        Ok(Self { file, path, unfinished, buffer, written: 0, crc, count: 0, revision, renamed: false })
    }

    /// Adds an entry, and says where it stands.
    pub fn put(&mut self, key: &str, value: &[u8], modified: Revision, created: Revision) -> io::Result<u64> {
        let offset = self.written + self.buffer.len() as u64;
        self.count += 1;
        Record { batch: 0, flags: 0, revision: modified, created, key, value }.encode(&mut self.buffer);
        if self.buffer.len() >= WRITE_CHUNK {
            self.flush()?;
        }
        Ok(offset)
    }

    /// Completes the file: when this returns it is durable under its name. Answers it, and its length.
    pub fn finish(mut self) -> io::Result<(File, u64)> {
        self.flush()?;
        let crc = self.crc.clone().finalize().to_le_bytes();
        let (revision, created) = (self.revision, self.count);
        Record { batch: 0, flags: FOOTER, revision, created, key: "", value: &crc }.encode(&mut self.buffer);
        self.flush()?;
        self.file.sync_all()?;
        fs::rename(&self.unfinished, &self.path)?;
        self.renamed = true;
        sync_dir(parent(&self.path))?;
        Ok((self.file.try_clone()?, self.written))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all_at(&self.buffer, self.written)?;
        self.crc.update(&self.buffer);
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if !self.renamed {
            // Nobody looks at it; the next open of the store would remove it as well.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

/// Reads a file of entries, calling `visit` with each and the place where it stands. Answers the revision.
///
/// What `visit` has seen is to be believed only when this returns `Ok`: the checksum comes last.
pub fn read(
    file: &File,
    path: &Path,
    magic: &[u8; 8],
    mut visit: impl FnMut(u64, Record<'_>),
) -> Result<Revision, ReadError> {
    let revision = record::read_file_header(file, path, magic)?;
    let size = file.metadata().map_err(|source| io_error(path, source))?.len();
    let footer_at = size.saturating_sub(RECORD_HEADER as u64 + 4);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&record::encode_file_header(magic, revision));
    let mut encoded = Vec::new();
    let mut count = 0;
    let mut scanner = Scanner::new(file, path, FILE_HEADER as u64, size);
    while let Some((offset, found)) = scanner.next()? {
        if found.flags == FOOTER {
            let whole = offset == footer_at
                && found.created == count
                && found.revision == revision
                && found.value == crc.finalize().to_le_bytes();
            return if whole {
                Ok(revision)
            } else {
                Err(damaged(path, offset, "the footer does not match"))
            };
        }
        encoded.clear();
        found.encode(&mut encoded);
        crc.update(&encoded);
        count += 1;
        visit(offset, found);
    }
    Err(damaged(path, size, "the footer is missing"))
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    }
}
