//! A talk with a process in a container: this program's input, output and terminal on one side, a WebSocket on the other.
//!
//! The terminal is raw while the talk lasts, and as it was before when it ends, however it ends.

use anyhow::{Context, Result, bail};
use futures::FutureExt;
use futures::future::{Either, select};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{AttachedProcess, TerminalSize};
use nix::sys::termios::{self, SetArg, Termios};
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::unconstrained;

/// How much is read at once.
pub const BLOCK: usize = 32 << 10;
/// Blocks on their way from standard input.
const WAITING: usize = 4;

/// Whether there is a terminal to give to the process; says so where one was asked for in vain.
pub fn can_use_terminal(wanted: bool, stdin: bool, quiet: bool) -> bool {
    if !wanted || !stdin {
        return false;
    }
    let is_terminal = std::io::stdin().is_terminal();
    if !is_terminal && !quiet {
        eprintln!("Unable to use a TTY - input is not a terminal or the right kind of file");
    }
    is_terminal
}

/// Carries everything to and fro until the process ends; gives back how it ended.
pub async fn run(mut process: AttachedProcess, tty: bool) -> Result<Option<Status>> {
    let _raw = tty.then(Raw::new).transpose()?;
    let status = process.take_status().context("the status was taken")?;
    let input = process.stdin().map(|writer| tokio::spawn(send_input(writer)));
    let sizes = process.terminal_size().map(|sender| tokio::spawn(send_sizes(sender)));
    let (stdout, stderr) = (process.stdout(), process.stderr());
    let streams =
        async { tokio::try_join!(copy(stdout, std::io::stdout()), copy(stderr, std::io::stderr())) };
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let ended = tokio::select! {
        (copied, status) = until_over(status, streams) => match copied {
            Some(Err(error)) => Err(anyhow::Error::from(error)),
            _ => Ok(status),
        },
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
        _ = hang_up.recv() => Err(anyhow::anyhow!("the terminal is gone")),
    };
    for task in [input, sizes].into_iter().flatten() {
        task.abort();
    }
    ended
}

/// Does what the streams of a process want until the talk with it is over, and gives back how it ended; nothing, if it broke
/// off (its kubelet died). Then nobody ends the streams, and what has come of them is all there is.
pub async fn until_over<T>(
    status: impl Future<Output = Option<Status>>,
    streams: impl Future<Output = T>,
) -> (Option<T>, Option<Status>) {
    let (status, streams) = (std::pin::pin!(status), std::pin::pin!(streams));
    match select(status, streams).await {
        Either::Left((Some(status), streams)) => (Some(streams.await), Some(status)),
        Either::Left((None, streams)) => (unconstrained(streams).now_or_never(), None),
        Either::Right((done, status)) => (Some(done), status.await),
    }
}

/// The exit code that a status means, as upstream's kubectl takes it over; an error where the process could not be run.
pub fn exit_code(status: Option<Status>) -> Result<ExitCode> {
    let Some(status) = status else { bail!("the connection ended before the command did") };
    if status.status.as_deref() == Some("Success") {
        return Ok(ExitCode::SUCCESS);
    }
    match code_of(&status) {
        Some(code) => {
            eprintln!("command terminated with exit code {code}");
            Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
        }
        None => bail!("{}", status.message.unwrap_or_else(|| "the command failed".to_owned())),
    }
}

/// The exit code that a status names.
fn code_of(status: &Status) -> Option<i32> {
    if status.reason.as_deref() != Some("NonZeroExitCode") {
        return None;
    }
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

async fn copy(from: Option<impl AsyncRead + Unpin>, mut to: impl Write) -> std::io::Result<()> {
    let Some(mut from) = from else { return Ok(()) };
    let mut block = vec![0; BLOCK];
    loop {
        let count = from.read(&mut block).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&block[..count])?;
        to.flush()?;
    }
}

/// Standard input, block by block. A thread of its own reads it: it may wait for ever, and nobody waits for it.
pub fn input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, blocks) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin();
        let mut block = vec![0; BLOCK];
        while let Ok(count @ 1..) = stdin.read(&mut block) {
            if sender.blocking_send(block[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    blocks
}

async fn send_input(mut writer: impl AsyncWriteExt + Unpin) {
    let mut blocks = input();
    while let Some(block) = blocks.recv().await {
        if writer.write_all(&block).await.is_err() {
            return;
        }
    }
    // The end of the input is the end of the process's input, too.
    let _ = writer.shutdown().await;
}

async fn send_sizes(mut sender: futures::channel::mpsc::Sender<TerminalSize>) {
    let Ok(mut changes) = signal(SignalKind::window_change()) else { return };
    loop {
        let (height, width) = cli::terminal_size();
        let number = |lines: usize| u16::try_from(lines).unwrap_or(u16::MAX);
        let size = TerminalSize { width: number(width), height: number(height) };
        if futures::SinkExt::send(&mut sender, size).await.is_err() {
            return;
        }
        if changes.recv().await.is_none() {
            return;
        }
    }
}

/// A raw terminal, for as long as this lives.
struct Raw(Termios);

impl Raw {
    fn new() -> Result<Raw> {
        let before = termios::tcgetattr(std::io::stdin()).context("look at the terminal")?;
        let mut raw = before.clone();
        termios::cfmakeraw(&mut raw);
        termios::tcsetattr(std::io::stdin(), SetArg::TCSANOW, &raw).context("set the terminal up")?;
        Ok(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = termios::tcsetattr(std::io::stdin(), SetArg::TCSANOW, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_talk_that_breaks_off_is_over_although_its_streams_are_not() {
        let (mut reader, mut writer) = tokio::io::simplex(64);
        writer.write_all(b"said before").await.expect("written");
        let mut heard = Vec::new();
        let listening = async { while reader.read_buf(&mut heard).await.is_ok_and(|count| count > 0) {} };
        let (done, status) = until_over(std::future::ready(None), listening).await;
        assert_eq!((done, status), (None, None));
        assert_eq!(heard, b"said before");
    }

    #[test]
    fn the_processes_exit_code_is_ours() {
        let check = |status: serde_json::Value, expected: Option<i32>| {
            let status: Status = serde_json::from_value(status).expect("a status");
            assert_eq!(code_of(&status), expected);
        };
        let causes = json!({"causes": [{"reason": "ExitCode", "message": "7"}]});
        check(json!({"status": "Failure", "reason": "NonZeroExitCode", "details": causes}), Some(7));
        check(json!({"status": "Failure", "reason": "InternalError", "message": "no such file"}), None);
        assert!(exit_code(None).is_err());
    }
}
