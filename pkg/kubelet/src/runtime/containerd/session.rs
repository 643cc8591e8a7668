//! What is executed in a container, and attaching to one.

use super::super::{ContainerId, Error, ExecSpec, Session};
use super::Engine;
use super::connection::{Lenient, failed};
use super::container::make_fifo;
use super::logger::frame;
use super::record::{self, ContainerRecord};
use super::sandbox::refused;
use crate::runtime::spec;
use containerd_client::services::v1 as api;
use futures::FutureExt;
use nix::sys::signal::Signal;
use oci_spec::runtime::Spec;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// By this containerd knows what the bytes of a process are.
const PROCESS_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
/// Sizes of the terminal that wait; only the last one matters.
const RESIZES: usize = 8;
/// What one who attached may be behind before the container waits.
const BEHIND_BYTES: usize = 64 * 1024;
/// A shim opens its end of the input within this time, or never.
const OPENED: Duration = Duration::from_secs(10);
const OPENED_AGAIN: Duration = Duration::from_millis(1);

type Input = Box<dyn AsyncWrite + Send + Unpin>;
type Output = Box<dyn AsyncRead + Send + Unpin>;

impl Engine {
    /// Executes something in a container.
    pub(super) async fn exec(
        self: Arc<Self>,
        container: &ContainerId,
        spec: &ExecSpec,
    ) -> Result<Session, Error> {
        let id = container.0.clone();
        let missing = || Error::NotFound(format!("container {id}"));
        let found = self.container(&id).await?.ok_or_else(missing)?;
        let oci: Spec =
            found.spec.and_then(|any| serde_json::from_slice(&any.value).ok()).ok_or_else(missing)?;
        let process = spec::exec(&oci, &spec.command, spec.tty)?;
        let exec_id = uuid::Uuid::new_v4().simple().to_string();
        let folder = self.config.state_dir.join("exec").join(&exec_id);
        // From here on, whoever gives up cleans up.
        let running = Running {
            engine: self.clone(),
            id: id.clone(),
            exec_id: exec_id.clone(),
            folder,
            is_done: false,
        };
        let streams = Streams::open(&running.folder, spec).map_err(|source| Error::Unavailable {
            doing: format!("prepare the streams of a process in {id}: {source}"),
            source: source.into(),
        })?;
        let text =
            |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let mut request = api::ExecProcessRequest {
            container_id: id.clone(),
            exec_id: exec_id.clone(),
            stdin: text(&streams.stdin),
            stdout: text(&streams.stdout_path),
            stderr: text(&streams.stderr_path),
            terminal: spec.tty,
            ..Default::default()
        };
        let any = request.spec.get_or_insert_default();
        any.type_url = PROCESS_TYPE.to_owned();
        any.value = serde_json::to_vec(&process).expect("processes are plain data");
        let mut tasks = self.connection.tasks();
        let created = tasks.exec(request).await.if_found();
        let created = created.map_err(|status| refused("failed to exec in container", &id, &status))?;
        created.ok_or_else(|| Error::Container(format!("container {id} is not running")))?;
        let request = api::StartRequest { container_id: id.clone(), exec_id: exec_id.clone() };
        let started = tasks.start(request).await;
        started.map_err(|status| refused(&format!("failed to start exec {exec_id:?}"), &id, &status))?;
        let stdin = match &streams.stdin {
            Some(path) => {
                let closes = Some(Closes { engine: self.clone(), id: id.clone(), exec_id: exec_id.clone() });
                let detached = CancellationToken::new();
                Some(Box::new(Stdin { pipe: Some(sender(path).await?), closes, detached }) as Input)
            }
            None => None,
        };
        let (resize, resizes) = mpsc::channel(RESIZES);
        Ok(Session {
            stdin,
            stdout: streams.stdout.map(|stream| Box::new(stream) as Output),
            stderr: streams.stderr.map(|stream| Box::new(stream) as Output),
            resize,
            exit: running.exit(resizes).boxed(),
        })
    }

    /// Attaches to a container. Whoever does not ask for its input cannot end it, either.
    pub(super) async fn attach(
        self: Arc<Self>,
        container: &ContainerId,
        stdin: bool,
    ) -> Result<Session, Error> {
        let id = container.0.clone();
        let missing = || Error::NotFound(format!("container {id}"));
        let found = self.container(&id).await?.ok_or_else(missing)?;
        let record: ContainerRecord = record::read(&found).ok_or_else(missing)?;
        let mut frames = self.logger.attach(&id).await?;
        let (stdout, mut to_stdout) = tokio::io::duplex(BEHIND_BYTES);
        let (stderr, mut to_stderr) = tokio::io::duplex(BEHIND_BYTES);
        let detached = CancellationToken::new();
        let copy = async move {
            // Ends when the container does, or when nobody reads any more.
            while let Ok(Some((stream, bytes))) = frame(&mut frames).await {
                let to: &mut DuplexStream = if stream == 2 { &mut to_stderr } else { &mut to_stdout };
                if to.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        };
        self.tasks.spawn(detached.clone().run_until_cancelled_owned(copy));
        let stdin = if stdin && record.stdin {
            let pipe = sender(&self.io_folder(&id).join("stdin")).await?;
            let ends = Closes { engine: self.clone(), id: id.clone(), exec_id: String::new() };
            let closes = record.stdin_once.then_some(ends);
            Some(Box::new(Stdin { pipe: Some(pipe), closes, detached: detached.clone() }) as Input)
        } else {
            None
        };
        let (resize, resizes) = mpsc::channel(RESIZES);
        let engine = self.clone();
        let exit = async move {
            let ended = detached.run_until_cancelled(engine.wait(&id, "", resizes)).await;
            // Who leaves it running has not failed.
            ended.unwrap_or(Ok(0))
        };
        Ok(Session {
            stdin,
            stdout: Some(Box::new(stdout)),
            stderr: (!record.tty).then(|| Box::new(stderr) as Output),
            resize,
            exit: exit.boxed(),
        })
    }

    /// Waits for a process, and resizes its terminal meanwhile.
    async fn wait(
        &self,
        id: &str,
        exec_id: &str,
        mut resizes: mpsc::Receiver<(u16, u16)>,
    ) -> Result<i32, Error> {
        let mut waiter = self.connection.tasks();
        let mut resizer = waiter.clone();
        let request = api::WaitRequest { container_id: id.to_owned(), exec_id: exec_id.to_owned() };
        let mut waiting = std::pin::pin!(waiter.wait(request));
        loop {
            tokio::select! {
                ended = &mut waiting => {
                    return match ended.if_found().map_err(failed(format!("wait for a process in {id}")))? {
                        Some(ended) => Ok(i32::try_from(ended.exit_status).unwrap_or(i32::MAX)),
                        None => self.written_exit(id, exec_id).await,
                    };
                }
                Some((width, height)) = resizes.recv() => {
                    let request = api::ResizePtyRequest {
                        container_id: id.to_owned(),
                        exec_id: exec_id.to_owned(),
                        width: width.into(),
                        height: height.into(),
                    };
                    // One that has ended has no size.
                    let _ = resizer.resize_pty(request).await;
                }
            }
        }
    }

    /// The end of a container whose task is deleted already.
    async fn written_exit(&self, id: &str, exec_id: &str) -> Result<i32, Error> {
        let missing = || Error::NotFound(format!("process of container {id}"));
        if !exec_id.is_empty() {
            return Err(missing());
        }
        let found = self.container(id).await?.ok_or_else(missing)?;
        record::exit(&found).map(|exit| exit.code).ok_or_else(missing)
    }
}

/// The ends of the FIFOs that are ours.
struct Streams {
    stdin: Option<PathBuf>,
    stdout_path: Option<PathBuf>,
    stderr_path: Option<PathBuf>,
    stdout: Option<pipe::Receiver>,
    stderr: Option<pipe::Receiver>,
}

impl Streams {
    fn open(folder: &std::path::Path, spec: &ExecSpec) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let fifo = |name: &str, is_wanted: bool| -> io::Result<Option<PathBuf>> {
            let path = folder.join(name);
            if !is_wanted {
                return Ok(None);
            }
            make_fifo(&path)?;
            Ok(Some(path))
        };
        // Before the shim opens its ends, which waits for ours.
        let receive =
            |path: &Option<PathBuf>| path.as_ref().map(|path| pipe::OpenOptions::new().open_receiver(path));
        let stdin = fifo("stdin", spec.stdin)?;
        let stdout_path = fifo("stdout", spec.stdout || spec.tty)?;
        let stderr_path = fifo("stderr", spec.stderr && !spec.tty)?;
        let stdout = receive(&stdout_path).transpose()?;
        let stderr = receive(&stderr_path).transpose()?;
        Ok(Streams { stdin, stdout_path, stderr_path, stdout, stderr })
    }
}

/// Our end of a FIFO that the shim reads. What is written before the shim has opened its end would be lost.
async fn sender(path: &std::path::Path) -> Result<pipe::Sender, Error> {
    let failed = |source: io::Error| Error::Unavailable {
        doing: format!("open {}", path.display()),
        source: source.into(),
    };
    let ends = tokio::time::Instant::now() + OPENED;
    loop {
        match pipe::OpenOptions::new().open_sender(path) {
            Err(error)
                if error.raw_os_error() == Some(nix::libc::ENXIO) && tokio::time::Instant::now() < ends =>
            {
                tokio::time::sleep(OPENED_AGAIN).await;
            }
            opened => return opened.map_err(failed),
        }
    }
}

/// Something that is executed. Dropped before its end, it is killed.
struct Running {
    engine: Arc<Engine>,
    id: String,
    exec_id: String,
    folder: PathBuf,
    is_done: bool,
}

impl Running {
    async fn exit(mut self, resizes: mpsc::Receiver<(u16, u16)>) -> Result<i32, Error> {
        let code = self.engine.wait(&self.id, &self.exec_id, resizes).await?;
        self.is_done = true;
        Ok(code)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (engine, id, exec_id) = (self.engine.clone(), self.id.clone(), self.exec_id.clone());
        let (folder, is_done) = (self.folder.clone(), self.is_done);
        let clean_up = async move {
            let cleaned = async {
                let mut tasks = engine.connection.tasks();
                if !is_done {
                    let signal = Signal::SIGKILL as u32;
                    let request = api::KillRequest {
                        container_id: id.clone(),
                        exec_id: exec_id.clone(),
                        signal,
                        all: false,
                    };
                    let killed = tasks.kill(request).await.if_found().map_err(failed("kill a process"))?;
                    if killed.is_some() {
                        let request = api::WaitRequest { container_id: id.clone(), exec_id: exec_id.clone() };
                        let _ = tasks.wait(request).await;
                    }
                }
                let request =
                    api::DeleteProcessRequest { container_id: id.clone(), exec_id: exec_id.clone() };
                tasks.delete_process(request).await.if_found().map_err(failed("delete a process"))
            };
            if let Err(error) = cleaned.await {
                tracing::debug!(container = id, %error, "a process was not cleaned up");
            }
            let _ = std::fs::remove_dir_all(folder);
        };
        // Outside of a runtime, as when the program ends, the next start finds nothing that matters.
        if tokio::runtime::Handle::try_current().is_ok() {
            self.engine.tasks.spawn(clean_up);
        }
    }
}

/// The standard input of a process, of which this is shut down or dropped when there is no more.
struct Stdin {
    pipe: Option<pipe::Sender>,
    /// What then ends; nothing where others may attach later.
    closes: Option<Closes>,
    /// Cancelled where nothing ends but the session, by whoever has no more to say.
    detached: CancellationToken,
}

/// An input that ends with us.
struct Closes {
    engine: Arc<Engine>,
    id: String,
    /// Empty: the container's own process.
    exec_id: String,
}

impl Stdin {
    /// The process reads until nobody has the other end of the pipe: not we, not the logger, and not the shim.
    fn close(&mut self) {
        self.pipe = None;
        let Some(Closes { engine, id, exec_id }) = self.closes.take() else { return };
        let tasks = engine.tasks.clone();
        let close = async move {
            let closed = async {
                if exec_id.is_empty() {
                    engine.logger.ask_if_known(&["close-stdin", &id]).await?;
                }
                let request = api::CloseIoRequest { container_id: id.clone(), exec_id, stdin: true };
                engine.connection.tasks().close_io(request).await.if_found().map_err(failed("close an input"))
            };
            if let Err(error) = closed.await {
                // One that has ended reads no more.
                tracing::debug!(container = id, %error, "its input was not closed");
            }
        };
        if tokio::runtime::Handle::try_current().is_ok() {
            tasks.spawn(close);
        }
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.close();
    }
}

impl AsyncWrite for Stdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.pipe {
            Some(pipe) => Pin::new(pipe).poll_write(cx, bytes),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A pipe has nothing to flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.closes.is_none() {
            self.detached.cancel();
        }
        self.close();
        Poll::Ready(Ok(()))
    }
}
