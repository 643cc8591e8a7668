//! A log that comes from elsewhere, through the filter to the client.

use super::filter::{Filter, More};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use std::io::{Error, ErrorKind, Result};
use tokio::sync::mpsc;

/// A line without an end grows no further in memory: it is none of the format.
const LONGEST_LINE: usize = 1024 * 1024;

/// Sends what the filter lets through, to the end of the stream.
pub async fn copy(
    mut lines: BoxStream<'static, Result<Bytes>>,
    mut filter: Filter,
    client: &mpsc::Sender<Bytes>,
) -> Result<()> {
    let gone = |_| Error::new(ErrorKind::BrokenPipe, "the client is gone");
    let mut rest: Vec<u8> = Vec::new();
    while let Some(piece) = lines.next().await {
        rest.extend_from_slice(&piece?);
        let mut said = Vec::new();
        let mut from = 0;
        while let Some(length) = rest[from..].iter().position(|byte| *byte == b'\n') {
            let more = filter.line(&rest[from..from + length], &mut said);
            from += length + 1;
            if more == More::No {
                return client.send(said.into()).await.map_err(gone);
            }
        }
        rest.drain(..from);
        rest.truncate(LONGEST_LINE);
        if !said.is_empty() {
            client.send(said.into()).await.map_err(gone)?;
        }
    }
    Ok(())
}
