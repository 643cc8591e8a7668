//! One command, or one attachment, over one socket, whatever it speaks.

use super::channels::{ERROR, Protocol, RESIZE, Received, STDERR, STDIN, STDOUT};
use super::websocket::goodbye;
use crate::runtime::{Error, ExecSpec, Session};
use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// What is read from a process at once.
const BLOCK: usize = 32 * 1024;
/// Messages on their way to the client, and pieces of its input on their way to the process.
const WAITING: usize = 8;
/// How long a client gets to say goodbye.
const FAREWELL: Duration = Duration::from_secs(10);

/// What to do.
pub struct Task {
    /// What is executed, and which streams the client wants.
    pub spec: ExecSpec,
    /// The process is the container's own: how it ends is told by the pod's status.
    pub is_attached: bool,
}

type Input = Box<dyn AsyncWrite + Send + Unpin>;

/// Carries bytes both ways until the process has ended and all was said, or the client is gone.
pub async fn run(
    mut sink: impl Sink<Message> + Unpin,
    mut source: impl Stream<Item = Received> + Unpin,
    protocol: Protocol,
    session: Result<Session, Error>,
    task: Task,
    idle_timeout: Duration,
) {
    let (to_client, mut messages) = mpsc::channel::<Message>(WAITING);
    let working = async {
        let to_client = to_client;
        let end = match session {
            Ok(session) => work(session, &mut source, protocol, &task, &to_client, idle_timeout).await,
            Err(error) => Some(status(&task, Err(error))),
        };
        if let Some(end) = end {
            let _ = to_client.send(protocol.message(ERROR, &told(protocol, &end))).await;
        }
    };
    let writing = async {
        while let Some(message) = messages.recv().await {
            sink.send(message).await.ok()?;
        }
        sink.send(goodbye()).await.ok()
    };
    // A client that cannot be written to is gone, and so is what was executed for it.
    let has_said_all = {
        tokio::pin!(working, writing);
        tokio::select! {
            () = &mut working => writing.await.is_some(),
            _ = &mut writing => false,
        }
    };
    if has_said_all {
        // Whatever the client still sends is read: closing on it would take back what was said last.
        let farewell = async { while source.next().await.is_some_and(|said| said != Received::Gone) {} };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }
}

/// How it ended; `None` if the client went before.
async fn work(
    session: Session,
    source: &mut (impl Stream<Item = Received> + Unpin),
    protocol: Protocol,
    task: &Task,
    to_client: &mpsc::Sender<Message>,
    idle_timeout: Duration,
) -> Option<Value> {
    // Tells the client that the connection is established.
    let first =
        [(task.spec.stdout, STDOUT), (task.spec.stderr, STDERR)].into_iter().find(|(wanted, _)| *wanted);
    let first = first.map_or(ERROR, |(_, channel)| channel);
    to_client.send(protocol.message(first, b"")).await.ok()?;
    let (to_process, input) = mpsc::channel(WAITING);
    let stdin = session.stdin.filter(|_| task.spec.stdin);
    let stdout = session.stdout.filter(|_| task.spec.stdout);
    let stderr = session.stderr.filter(|_| task.spec.stderr);
    let mut output = std::pin::pin!(async {
        tokio::join!(said(stdout, STDOUT, protocol, to_client), said(stderr, STDERR, protocol, to_client));
    });
    let mut feeding = std::pin::pin!(feed(stdin, input));
    let mut listening = std::pin::pin!(listen(source, to_process, session.resize, idle_timeout));
    let mut exit = session.exit;
    let (mut code, mut has_said_all, mut is_fed) = (None, false, false);
    loop {
        tokio::select! {
            ended = &mut exit, if code.is_none() => code = Some(ended),
            () = &mut output, if !has_said_all => has_said_all = true,
            () = &mut feeding, if !is_fed => is_fed = true,
            () = &mut listening => return None,
        }
        if has_said_all && let Some(code) = code.take_if(|_| has_said_all) {
            return Some(status(task, code));
        }
    }
}

/// Carries what a process says to the client, to its end.
async fn said(
    stream: Option<Box<dyn AsyncRead + Send + Unpin>>,
    channel: u8,
    protocol: Protocol,
    to_client: &mpsc::Sender<Message>,
) {
    let Some(mut stream) = stream else { return };
    let mut block = vec![0; BLOCK];
    while let Ok(count) = stream.read(&mut block).await {
        if count == 0 || to_client.send(protocol.message(channel, &block[..count])).await.is_err() {
            return;
        }
    }
}

/// Carries what the client says to the process. A process that no longer listens is no reason to end: it may go on
/// talking.
async fn feed(stdin: Option<Input>, mut input: mpsc::Receiver<Bytes>) {
    let mut stdin = stdin;
    while let Some(bytes) = input.recv().await {
        if let Some(open) = &mut stdin
            && (open.write_all(&bytes).await.is_err() || open.flush().await.is_err())
        {
            stdin = None;
        }
    }
    if let Some(mut open) = stdin {
        let _ = open.shutdown().await;
    }
}

/// Hears the client until it goes. Its input ends when it says so, or goes.
async fn listen(
    source: &mut (impl Stream<Item = Received> + Unpin),
    to_process: mpsc::Sender<Bytes>,
    resize: mpsc::Sender<(u16, u16)>,
    idle_timeout: Duration,
) {
    let mut to_process = Some(to_process);
    while let Ok(Some(received)) = tokio::time::timeout(idle_timeout, source.next()).await {
        match received {
            Received::Data(STDIN, bytes) => {
                if let Some(open) = &to_process
                    && !bytes.is_empty()
                {
                    let _ = open.send(bytes).await;
                }
            }
            Received::Data(RESIZE, bytes) => {
                if let Some(size) = terminal_size(&bytes) {
                    let _ = resize.send(size).await;
                }
            }
            Received::Closed(STDIN) => to_process = None,
            Received::Gone => return,
            Received::Data(..) | Received::Closed(_) | Received::Nothing => {}
        }
    }
}

/// Columns and rows.
fn terminal_size(bytes: &[u8]) -> Option<(u16, u16)> {
    let size: Value = serde_json::from_slice(bytes).ok()?;
    let number = |name: &str| size[name].as_u64().and_then(|number| u16::try_from(number).ok());
    Some((number("Width")?, number("Height")?))
}

/// How it ended, as a `Status`.
fn status(task: &Task, ended: Result<i32, Error>) -> Value {
    match ended {
        Ok(code) if code == 0 || task.is_attached => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => {
            let command = task.spec.command.join(" ");
            let text = format!(
                "command terminated with non-zero exit code: error executing command [{command}], exit code {code}"
            );
            json!({
                "metadata": {}, "status": "Failure", "message": text, "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
            })
        }
        Err(error) => {
            let doing =
                if task.is_attached { "attaching to container" } else { "executing command in container" };
            let mut why = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(cause) = source {
                why = format!("{why}: {cause}");
                source = cause.source();
            }
            let text = format!("error {doing}: {why}");
            json!({
                "metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {text}"),
                "reason": "InternalError", "details": {"causes": [{"message": text}]}, "code": 500,
            })
        }
    }
}

/// A status as the protocol tells it: older ones say nothing of success, and only the sentence otherwise.
fn told(protocol: Protocol, status: &Value) -> Vec<u8> {
    match (protocol.has_status(), status["message"].as_str()) {
        (true, _) => status.to_string().into_bytes(),
        (false, text) => text.unwrap_or_default().into(),
    }
}
