//! Header blocks: names and values, in one zlib stream for the whole life of a connection.
//!
//! zlib would take SPDY's dictionary by a call that not every implementation has. A stored block that holds the
//! dictionary, put before the other side's data, does the same: what follows may refer to it.

use super::dictionary::dictionary;
use super::frame::Malformed;
use bytes::{Buf, BufMut, Bytes};
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::collections::BTreeMap;

/// Headers are small; more than this is an attack.
const LARGEST: usize = 64 * 1024;
/// Two bytes begin a zlib stream; four more name its dictionary, where the second byte says that it has one.
const ZLIB_HEAD: usize = 2;
const ZLIB_DICTIONARY: usize = 4;
const HAS_DICTIONARY: u8 = 0x20;

/// Reads the other side's headers.
pub struct Reader {
    inflate: Decompress,
    /// It is at its very beginning, before zlib's own head.
    is_new: bool,
}

/// Writes our own headers, as they are: they are few, and need no dictionary.
pub struct Writer(Compress);

impl Reader {
    /// At the beginning of a connection.
    pub fn new() -> Reader {
        let mut inflate = Decompress::new(false);
        let dictionary = dictionary();
        let length = u16::try_from(dictionary.len()).expect("the dictionary is short");
        let mut block = vec![0];
        block.extend_from_slice(&length.to_le_bytes());
        block.extend_from_slice(&(!length).to_le_bytes());
        block.extend_from_slice(&dictionary);
        let mut known = Vec::with_capacity(dictionary.len());
        inflate
            .decompress_vec(&block, &mut known, FlushDecompress::Sync)
            .expect("a stored block is always good");
        debug_assert_eq!(known, dictionary);
        Reader { inflate, is_new: true }
    }

    /// Names (in lower case) and values of a block.
    pub fn read(&mut self, mut block: &[u8]) -> Result<BTreeMap<String, String>, Malformed> {
        if std::mem::take(&mut self.is_new) {
            let flags = block.get(1).ok_or(Malformed("headers that are cut short"))?;
            let head = if flags & HAS_DICTIONARY == 0 { ZLIB_HEAD } else { ZLIB_HEAD + ZLIB_DICTIONARY };
            block = block.get(head..).ok_or(Malformed("headers that are cut short"))?;
        }
        let mut plain = Vec::new();
        while !block.is_empty() {
            if plain.len() >= LARGEST {
                return Err(Malformed("headers that are too large"));
            }
            plain.reserve(4096);
            let before = (self.inflate.total_in(), plain.len());
            let status = self.inflate.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            let status = status.map_err(|_| Malformed("headers that cannot be decompressed"))?;
            let used = usize::try_from(self.inflate.total_in() - before.0).unwrap_or(usize::MAX);
            block = &block[used.min(block.len())..];
            if status == Status::StreamEnd || (used == 0 && plain.len() == before.1) {
                return Err(Malformed("headers that cannot be decompressed"));
            }
        }
        parse(plain.into()).ok_or(Malformed("headers that are cut short"))
    }
}

fn parse(mut plain: Bytes) -> Option<BTreeMap<String, String>> {
    let count = plain.try_get_u32().ok()?;
    let mut text = || {
        let length = plain.try_get_u32().ok()? as usize;
        (length <= plain.len()).then(|| String::from_utf8_lossy(&plain.split_to(length)).into_owned())
    };
    (0..count).map(|_| Some((text()?.to_ascii_lowercase(), text()?))).collect()
}

impl Writer {
    /// At the beginning of a connection.
    pub fn new() -> Writer {
        Writer(Compress::new(Compression::none(), true))
    }

    /// A block of headers.
    pub fn write(&mut self, headers: &[(&str, &str)]) -> Bytes {
        let mut plain = Vec::new();
        plain.put_u32(headers.len() as u32);
        for text in headers.iter().flat_map(|(name, value)| [name.to_ascii_lowercase(), (*value).to_owned()])
        {
            plain.put_u32(text.len() as u32);
            plain.put_slice(text.as_bytes());
        }
        let mut block = Vec::with_capacity(plain.len() + 64);
        self.0.compress_vec(&plain, &mut block, FlushCompress::Sync).expect("memory takes everything");
        block.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by zlib itself with the dictionary: two blocks of one stream.
    const FIRST: &str = "78f9e3c6a7c202253a48f95b044eea16061606409ab308125f99a074cc68004e892545a989b9d0c2863515141500000000ffff";
    const SECOND: &str = "225333a8a44a04000000ffff";

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn what_zlib_made_with_the_dictionary_is_read() {
        let mut reader = Reader::new();
        for (block, kind) in [(FIRST, "error"), (SECOND, "data")] {
            let headers = reader.read(&bytes(block)).unwrap();
            let expected = [("port", "8080"), ("requestid", "0"), ("streamtype", kind)];
            assert_eq!(headers, expected.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect());
        }
        assert!(reader.read(&[0xff; 20]).is_err());
    }

    #[test]
    fn none_is_written_again_and_again() {
        let mut writer = Writer::new();
        let mut inflate = Decompress::new(true);
        for _ in 0..3 {
            let mut plain = Vec::with_capacity(64);
            inflate.decompress_vec(&writer.write(&[]), &mut plain, FlushDecompress::Sync).unwrap();
            assert_eq!(plain, [0; 4]);
        }
    }
}
