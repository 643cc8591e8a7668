//! The way to the program that writes the logs (`programs/logger.rs`), which is started when there is none.

use super::super::Error;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

/// A connection after a question was answered.
pub(super) type Answered = BufReader<UnixStream>;

/// Talks to the logger.
pub(super) struct Logger {
    program: PathBuf,
    socket: PathBuf,
    /// One at a time starts it.
    starting: Mutex<()>,
}

impl Logger {
    pub(super) fn new(program: PathBuf, socket: PathBuf) -> Self {
        Logger { program, socket, starting: Mutex::default() }
    }

    /// Asks, and expects `ok`.
    pub(super) async fn ask(&self, fields: &[&str]) -> Result<(), Error> {
        match self.answer(fields).await?.1.as_str() {
            "ok" => Ok(()),
            other => Err(Error::Container(format!("write the container's log: {other}"))),
        }
    }

    /// Asks about a container that may have ended.
    pub(super) async fn ask_if_known(&self, fields: &[&str]) -> Result<(), Error> {
        match self.answer(fields).await?.1 {
            answer if answer == "ok" || answer.ends_with(" not found") => Ok(()),
            other => Err(Error::Container(format!("write the container's log: {other}"))),
        }
    }

    /// Frames of what a container writes from now on.
    pub(super) async fn attach(&self, id: &str) -> Result<Answered, Error> {
        match self.answer(&["attach", id]).await? {
            (connection, answer) if answer == "ok" => Ok(connection),
            _ => Err(Error::NotFound(format!("running container {id}"))),
        }
    }

    /// Keeps the logger, which otherwise ends when it has nothing to do. Ends when the logger does.
    pub(super) async fn hold(&self) -> Result<Answered, Error> {
        Ok(self.answer(&["hold"]).await?.0)
    }

    async fn answer(&self, fields: &[&str]) -> Result<(Answered, String), Error> {
        let failed = |source: std::io::Error| Error::Unavailable {
            doing: format!("talk to the logger at {}", self.socket.display()),
            source: source.into(),
        };
        if fields.iter().any(|field| field.contains(['\0', '\n'])) {
            return Err(Error::Container("a path with a newline cannot be logged to".to_owned()));
        }
        // It may be about to end, having nothing to do: then another is started.
        let mut last = None;
        for _ in 0..3 {
            match self.try_answer(fields).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = Some(error),
            }
        }
        Err(failed(last.expect("tried")))
    }

    async fn try_answer(&self, fields: &[&str]) -> std::io::Result<(Answered, String)> {
        let mut connection = BufReader::new(self.connect().await?);
        connection.write_all(format!("{}\n", fields.join("\0")).as_bytes()).await?;
        let mut answer = String::new();
        if connection.read_line(&mut answer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok((connection, answer.trim_end().to_owned()))
    }

    async fn connect(&self) -> std::io::Result<UnixStream> {
        if let Ok(connection) = UnixStream::connect(&self.socket).await {
            return Ok(connection);
        }
        let _starting = self.starting.lock().await;
        if let Ok(connection) = UnixStream::connect(&self.socket).await {
            return Ok(connection);
        }
        match std::fs::remove_file(&self.socket) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = std::os::unix::net::UnixListener::bind(&self.socket)?;
        // It outlives us, and what stops us by the terminal must not stop it.
        let child = tokio::process::Command::new(&self.program)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        tracing::debug!(pid = child.id(), "started the logger");
        UnixStream::connect(&self.socket).await
    }
}

/// One piece of what a container wrote: which stream, and what; nothing when all streams have ended.
pub(super) async fn frame(connection: &mut Answered) -> std::io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    match connection.read_exact(&mut head).await {
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or_default()];
    connection.read_exact(&mut bytes).await?;
    Ok(Some((head[0], bytes)))
}
