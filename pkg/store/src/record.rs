//! How entries stand in files: the log, its snapshots and backups are all made of these records.
//!
//! ```text
//! file   = magic 8 | revision u64 | crc32 u32 | record*
//! record = crc32 u32 | len u32 | batch u32 | flags u8 | key_len u16 | revision u64 | created u64 | key | value
//! ```
//!
//! Integers are little-endian; `len` counts the whole record; the checksum covers all that follows it.
//! `batch` is where in the file the write that carried this record began, modulo 2³²: everything before that
//! place was on disk by then. That tells a tail torn by a crash from damage done to what was once durable.
//!
//! This module knows bytes and files; which records mean what is the business of its users.

use crate::Revision;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The length of a file's header.
pub const FILE_HEADER: usize = 20;
/// The length of a record without its key and value.
pub const RECORD_HEADER: usize = 31;
/// Longer than any record: commits are bounded well below it.
pub const RECORD_MAX: usize = 32 << 20;

/// The key is deleted by this record.
pub const DELETE: u8 = 1;
/// The last record of its commit.
pub const END: u8 = 2;
/// No write: history before `revision` is forgotten.
pub const COMPACT: u8 = 4;
/// No write: the end of a snapshot; `created` is the count of entries, the value the checksum of all before.
pub const FOOTER: u8 = 8;

const READ_CHUNK: usize = 256 << 10;

/// A record, borrowed from the buffer that it was read into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where the write that carried it began.
    pub batch: u32,
    /// What it is.
    pub flags: u8,
    /// The revision of its commit.
    pub revision: Revision,
    /// The revision that first wrote a value under the key.
    pub created: Revision,
    /// The key.
    pub key: &'a str,
    /// The value.
    pub value: &'a [u8],
}

impl Record<'_> {
    /// The length that it takes in a file.
    pub fn len(&self) -> usize {
        RECORD_HEADER + self.key.len() + self.value.len()
    }

    /// Appends it to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let (len, key_len) = (self.len() as u32, self.key.len() as u16);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
        out.push(self.flags);
        out.extend_from_slice(&key_len.to_le_bytes());
        out.extend_from_slice(&self.revision.to_le_bytes());
        out.extend_from_slice(&self.created.to_le_bytes());
        out.extend_from_slice(self.key.as_bytes());
        out.extend_from_slice(self.value);
        let crc = crc32fast::hash(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Damage in a file: what is wrong, and where.
#[derive(Debug, thiserror::Error)]
#[error("{} is damaged at offset {offset}: {what}", path.display())]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The disk said no.
    #[error("read {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the disk said.
        #[source]
        source: io::Error,
    },
    /// The disk gave bytes, but not those that were written.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// At least this many bytes are needed to tell.
    Short(usize),
    /// They can never become one.
    Bad(&'static str),
}

/// The record at the beginning of `bytes`.
pub fn decode(bytes: &[u8]) -> Result<Record<'_>, Malformed> {
    let len = measure(bytes)?;
    if crc32fast::hash(&bytes[4..len]) != u32_at(bytes, 0) {
        return Err(Malformed::Bad("checksum mismatch"));
    }
    let (key, value) = bytes[RECORD_HEADER..len].split_at(key_len(bytes));
    let key = std::str::from_utf8(key).map_err(|_| Malformed::Bad("a key that is not UTF-8"))?;
    let (revision, created) = (u64_at(bytes, 15), u64_at(bytes, 23));
    Ok(Record { batch: u32_at(bytes, 8), flags: bytes[12], revision, created, key, value })
}

/// The header of a file.
pub fn encode_file_header(magic: &[u8; 8], revision: Revision) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..8].copy_from_slice(magic);
    header[8..16].copy_from_slice(&revision.to_le_bytes());
    let crc = crc32fast::hash(&header[..16]);
    header[16..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The revision in the header of a file of that magic, or what is wrong with it.
pub fn decode_file_header(magic: &[u8; 8], header: &[u8]) -> Result<Revision, &'static str> {
    match header {
        h if h.len() < FILE_HEADER => Err("too short"),
        h if crc32fast::hash(&h[..16]) != u32_at(h, 16) => Err("checksum mismatch in the header"),
        h if h[..8] != magic[..] => Err("not a file of this kind and version"),
        h => Ok(u64_at(h, 8)),
    }
}

/// Reads the header of a file.
pub fn read_file_header(file: &File, path: &Path, magic: &[u8; 8]) -> Result<Revision, ReadError> {
    let mut header = [0; FILE_HEADER];
    let len = read_up_to(file, &mut header, 0).map_err(|source| io_error(path, source))?;
    decode_file_header(magic, &header[..len]).map_err(|what| damaged(path, 0, what))
}

/// Reads records one after the other from part of a file.
pub struct Scanner<'a> {
    file: &'a File,
    path: &'a Path,
    /// What was read: `buffer[start..]` stands at `offset` in the file.
    buffer: Vec<u8>,
    start: usize,
    offset: u64,
    end: u64,
}

impl<'a> Scanner<'a> {
    /// From `offset` to `end`.
    pub fn new(file: &'a File, path: &'a Path, offset: u64, end: u64) -> Self {
        Self { file, path, buffer: Vec::new(), start: 0, offset, end }
    }

    /// Where the next record begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next record, or `None` at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Record<'_>)>, ReadError> {
        if self.offset >= self.end {
            return Ok(None);
        }
        let mut need = RECORD_HEADER;
        let len = loop {
            self.fill(need)?;
            match measure(&self.buffer[self.start..]) {
                Ok(len) => break len,
                // Everything up to the end is in the buffer: there will be no more.
                Err(Malformed::Short(n)) if self.offset + n as u64 > self.end => {
                    return Err(damaged(self.path, self.offset, "a record that ends beyond the file"));
                }
                Err(Malformed::Short(n)) => need = n,
                Err(Malformed::Bad(what)) => return Err(damaged(self.path, self.offset, what)),
            }
        };
        match decode(&self.buffer[self.start..self.start + len]) {
            Ok(record) => {
                let at = self.offset;
                self.start += len;
                self.offset += len as u64;
                Ok(Some((at, record)))
            }
            Err(Malformed::Bad(what)) => Err(damaged(self.path, self.offset, what)),
            Err(Malformed::Short(_)) => Err(damaged(self.path, self.offset, "a length that changes")),
        }
    }

    /// Makes at least `need` bytes available at `start`, or all there are up to the end.
    fn fill(&mut self, need: usize) -> Result<(), ReadError> {
        let have = self.buffer.len() - self.start;
        let left = (self.end - self.offset) as usize;
        if have >= need.min(left) {
            return Ok(());
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.resize(need.max(READ_CHUNK).min(left), 0);
        let read = read_up_to(self.file, &mut self.buffer[have..], self.offset + have as u64)
            .map_err(|source| io_error(self.path, source))?;
        if have + read < self.buffer.len() {
            return Err(damaged(self.path, self.offset, "the file is shorter than it was"));
        }
        Ok(())
    }
}

/// Whether what stands at `bad` is only the unfinished end of the last write: true unless some record further
/// on belongs to a later write, which was begun only when `bad` was already on disk.
pub fn is_torn_tail(tail: &[u8], bad: u64) -> bool {
    (1..tail.len().saturating_sub(RECORD_HEADER - 1)).all(|i| {
        let batch = u64::from(u32_at(tail, i + 8));
        let plausible = batch > bad && batch <= bad + i as u64;
        !(plausible && decode(&tail[i..]).is_ok())
    })
}

/// The error for damage.
pub fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> ReadError {
    Damage { path: path.to_owned(), offset, what: what.into() }.into()
}

/// The error for a failed read.
pub fn io_error(path: &Path, source: io::Error) -> ReadError {
    ReadError::Io { path: path.to_owned(), source }
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// The length of the record at the beginning of `bytes`, if all of it is there.
fn measure(bytes: &[u8]) -> Result<usize, Malformed> {
    if bytes.len() < RECORD_HEADER {
        return Err(Malformed::Short(RECORD_HEADER));
    }
    let len = u32_at(bytes, 4) as usize;
    if !(RECORD_HEADER + key_len(bytes)..=RECORD_MAX).contains(&len) {
        return Err(Malformed::Bad("a length that no record has"));
    }
    if bytes.len() < len { Err(Malformed::Short(len)) } else { Ok(len) }
}

fn key_len(bytes: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([bytes[13], bytes[14]]))
}

fn read_up_to(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(batch: u32, key: &str, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Record { batch, flags: END, revision: 7, created: 3, key, value }.encode(&mut out);
        out
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let written = bytes(20, "/registry/pods/a", b"value");
        let record = decode(&written).unwrap();
        assert_eq!(record.len(), written.len());
        let expect = Record {
            batch: 20,
            flags: END,
            revision: 7,
            created: 3,
            key: "/registry/pods/a",
            value: b"value",
        };
        assert_eq!(record, expect);
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_noticed() {
        let good = bytes(20, "/registry/k", b"v");
        for i in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(decode(&bad).is_err(), "bit {i}");
        }
        for len in 0..good.len() {
            assert!(matches!(decode(&good[..len]), Err(Malformed::Short(_))), "length {len}");
        }
    }

    #[test]
    fn a_tail_is_torn_unless_a_later_write_follows() {
        let check = |later_batch: u32, expect: bool| {
            let mut tail = b"garbage".to_vec();
            tail.extend(bytes(later_batch, "/registry/k", b"v"));
            assert_eq!(is_torn_tail(&tail, 100), expect, "batch {later_batch}");
        };
        check(90, true); // the write that was torn itself
        check(100, true); // begins exactly at the damage
        check(107, false); // begun after the damaged place was durable
        assert!(is_torn_tail(&[], 100));
        assert!(is_torn_tail(&[0; 500], 100));
    }
}
