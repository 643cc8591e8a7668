//! The log of a container of a job, read through the door, to its end or as it grows.

use super::door::spawn;
use super::logs::{NO_LOG, READ, Stamper};
use super::node::SlurmNode;
use super::records::Record;
use crate::provider::{Log, LogRequest};
use crate::runtime::Error;
use bytes::Bytes;
use futures::StreamExt;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout};
use tokio::sync::mpsc;

const BLOCK: usize = 32 * 1024;
/// Pieces on their way.
const PIECES: usize = 8;
/// The last of what a container wrote is there by then.
const SETTLE: Duration = Duration::from_millis(500);

/// The log, by the id of its container: `<job>/<container>/<restart>`.
pub(super) async fn logs(
    node: Arc<SlurmNode>,
    record: Record,
    container_id: &str,
    asked: LogRequest,
) -> Result<Log, Error> {
    let not_found = || Error::NotFound(format!("container {container_id}"));
    let mut parts = container_id.split('/');
    let (Some(_job), Some(container), Some(restart), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(not_found());
    };
    let restart: u32 = restart.parse().map_err(|_| not_found())?;
    let container = container.to_owned();
    let lines = asked.tail_lines.map_or("all".to_owned(), |lines| lines.to_string());
    let (mut child, mut stdout) = open(&node, &record, &container, restart, &lines, asked.follow).await?;
    let mut first = vec![0; BLOCK];
    let count = stdout.read(&mut first).await.map_err(|source| unavailable(source.into()))?;
    if count == 0 {
        let ended = child.wait().await.map_err(|source| unavailable(source.into()))?;
        if ended.code() == Some(NO_LOG) {
            // It has written nothing that is there to be read: an empty log.
            return Ok(Log::Stream(futures::stream::empty().boxed()));
        }
        return Err(unavailable("the site did not give it".into()));
    }
    first.truncate(count);
    let (send, receive) = mpsc::channel(PIECES);
    let tracker = node.tasks.clone();
    tracker.spawn(async move {
        let shutdown = node.shutdown.clone();
        let mut tailing = Tailing { node, record, container, restart, stamper: Stamper::default(), send };
        let work = async {
            let mut out = Vec::new();
            tailing.stamper.take(&first, Timestamp::now(), &mut out);
            if tailing.give(out).await.is_ok() {
                let _ = tailing.run(child, stdout, asked.follow).await;
            }
        };
        tokio::select! { () = work => {}, () = shutdown.cancelled() => {} }
    });
    let stream = futures::stream::unfold(receive, |mut receive| async {
        receive.recv().await.map(|piece| (Ok(piece), receive))
    });
    Ok(Log::Stream(stream.boxed()))
}

struct Tailing {
    node: Arc<SlurmNode>,
    record: Record,
    container: String,
    restart: u32,
    stamper: Stamper,
    send: mpsc::Sender<Bytes>,
}

impl Tailing {
    async fn give(&self, out: Vec<u8>) -> Result<(), mpsc::error::SendError<Bytes>> {
        if out.is_empty() { Ok(()) } else { self.send.send(out.into()).await }
    }

    async fn run(
        &mut self,
        mut child: Child,
        mut stdout: ChildStdout,
        follow: bool,
    ) -> Result<(), mpsc::error::SendError<Bytes>> {
        let mut block = vec![0; BLOCK];
        let (node, record, container, restart) =
            (self.node.clone(), self.record.clone(), self.container.clone(), self.restart);
        let mut ended = Box::pin(async move { has_ended(&node, &record, &container, restart).await });
        let mut is_ended = !follow;
        loop {
            let client = self.send.clone();
            tokio::select! {
                count = stdout.read(&mut block) => {
                    let count = count.unwrap_or(0);
                    if count == 0 {
                        break;
                    }
                    let mut out = Vec::new();
                    self.stamper.take(&block[..count], Timestamp::now(), &mut out);
                    self.give(out).await?;
                }
                () = &mut ended, if !is_ended => is_ended = true,
                () = tokio::time::sleep(SETTLE), if is_ended && follow => break,
                () = client.closed() => break,
            }
        }
        let _ = child.kill().await;
        let mut out = Vec::new();
        self.stamper.finish(Timestamp::now(), &mut out);
        self.give(out).await
    }
}

/// Waits until the container has ended.
async fn has_ended(node: &SlurmNode, record: &Record, container: &str, restart: u32) {
    let mut turns = node.turned.subscribe();
    loop {
        let runs = {
            let table = node.table.lock();
            table.get(&record.uid).is_some_and(|entry| {
                let run = entry.journal.runs.get(&restart);
                let ended =
                    run.and_then(|run| run.containers.get(container)).is_some_and(|run| run.end.is_some());
                let is_last = entry.journal.last().is_none_or(|(last, _)| last <= restart);
                !ended && is_last && !entry.is_over() && !entry.finished
            })
        };
        if !runs || turns.changed().await.is_err() {
            return;
        }
    }
}

async fn open(
    node: &SlurmNode,
    record: &Record,
    container: &str,
    restart: u32,
    lines: &str,
    follow: bool,
) -> Result<(Child, ChildStdout), Error> {
    let folder = record.folder();
    let log = format!("{container}.{restart}");
    let follow = if follow { "follow" } else { "" };
    let words = ["sh", "-c", READ, "sh", &folder, &log, lines, follow];
    let words = node.site.as_user(record.user.as_deref(), &words);
    let command = node.site.door.command(&words, false).await.map_err(|error| unavailable(error.into()))?;
    let mut child = spawn(command).map_err(|source| unavailable(source.into()))?;
    drop(child.stdin.take());
    let stdout = child.stdout.take().ok_or_else(|| unavailable("it has no output".into()))?;
    Ok((child, stdout))
}

fn unavailable(source: Box<dyn std::error::Error + Send + Sync>) -> Error {
    Error::Unavailable { doing: "read a log at the site".into(), source }
}
