//! The streams of a process: FIFOs that containerd's client made. A process has them itself, so that it goes on printing
//! while no shim is there; only a terminal's are copied.

use crate::setup::Streams;
use nix::libc;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

const CHUNK: usize = 16 * 1024;

/// Where the streams of a process are; empty: nowhere.
#[derive(Debug, Clone, Default)]
pub struct Paths {
    /// Its input.
    pub stdin: String,
    /// Its output.
    pub stdout: String,
    /// Its errors.
    pub stderr: String,
    /// It has a terminal instead.
    pub terminal: bool,
}

/// What the shim holds of a process' streams.
#[derive(Default)]
pub struct Held {
    /// While it is open, an input whose writers come and go does not end.
    stdin: Mutex<Option<File>>,
    console: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
}

impl Held {
    /// The input ends when nobody else has it open.
    pub fn close_stdin(&self) {
        if let Ok(mut stdin) = self.stdin.lock() {
            *stdin = None;
        }
    }

    /// The process has ended.
    pub fn close(&self) {
        self.close_stdin();
        if let Ok(mut console) = self.console.lock() {
            *console = None;
        }
    }

    /// Changes a terminal's size.
    pub fn resize(&self, width: u16, height: u16) -> io::Result<()> {
        let console = self.console.lock().ok().and_then(|console| console.clone());
        let console = console.ok_or_else(|| io::Error::other("it has no terminal"))?;
        let size = libc::winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the size lives longer than the call, which reads it.
        let done = unsafe { libc::ioctl(console.get_ref().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Opens the streams of a process.
pub fn open(paths: &Paths, held: &Held) -> io::Result<Streams> {
    if paths.terminal {
        return Ok(Streams::Terminal);
    }
    let stdin = if paths.stdin.is_empty() {
        null()?
    } else {
        // Ours first: without a writer, opening it would wait for one.
        let ours = OpenOptions::new().read(true).write(true).open(&paths.stdin).map_err(of(&paths.stdin))?;
        let its = File::open(&paths.stdin).map_err(of(&paths.stdin))?;
        if let Ok(mut stdin) = held.stdin.lock() {
            *stdin = Some(ours);
        }
        its
    };
    Ok(Streams::Plain([stdin.into(), output(&paths.stdout)?.into(), output(&paths.stderr)?.into()]))
}

/// Copies between a terminal and its FIFOs until the process has closed it.
pub fn copy_terminal(master: OwnedFd, paths: &Paths, held: &Held) -> io::Result<()> {
    nix::fcntl::fcntl(&master, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))?;
    let console = Arc::new(crate::keeper::watched(master, Interest::READABLE | Interest::WRITABLE)?);
    if let Ok(mut known) = held.console.lock() {
        *known = Some(console.clone());
    }
    let open = || pipe::OpenOptions::new().read_write(true).clone();
    let sender = if paths.stdout.is_empty() { None } else { Some(open().open_sender(&paths.stdout)?) };
    let receiver = if paths.stdin.is_empty() { None } else { Some(open().open_receiver(&paths.stdin)?) };
    let input = receiver.map(|receiver| tokio::spawn(to_terminal(receiver, Arc::downgrade(&console))));
    tokio::spawn(async move {
        from_terminal(console, sender).await;
        if let Some(input) = input {
            input.abort();
        }
    });
    Ok(())
}

async fn from_terminal(console: Arc<AsyncFd<OwnedFd>>, mut sender: Option<pipe::Sender>) {
    let mut bytes = vec![0; CHUNK];
    loop {
        let read = console.async_io(Interest::READABLE, |console| {
            nix::unistd::read(console, &mut bytes).map_err(io::Error::from)
        });
        // Nobody has the other end: an error, for terminals.
        let Ok(length @ 1..) = read.await else { return };
        if let Some(to) = &mut sender
            && to.write_all(&bytes[..length]).await.is_err()
        {
            sender = None;
        }
    }
}

async fn to_terminal(mut receiver: pipe::Receiver, console: std::sync::Weak<AsyncFd<OwnedFd>>) {
    let mut bytes = vec![0; CHUNK];
    loop {
        let Ok(length @ 1..) = receiver.read(&mut bytes).await else { return };
        let Some(console) = console.upgrade() else { return };
        let mut rest = &bytes[..length];
        while !rest.is_empty() {
            let written = console.async_io(Interest::WRITABLE, |console| {
                nix::unistd::write(console, rest).map_err(io::Error::from)
            });
            let Ok(length) = written.await else { return };
            rest = &rest[length..];
        }
    }
}

/// A FIFO is opened so that it neither waits for a reader nor breaks when one goes: what is in it waits for the next.
fn output(path: &str) -> io::Result<File> {
    if path.is_empty() {
        return null();
    }
    let plain = path.strip_prefix("file://").unwrap_or(path);
    if let Some((scheme, _)) = plain.split_once("://") {
        return Err(io::Error::other(format!("output by {scheme} is not supported: use a FIFO, or file://")));
    }
    if plain.len() < path.len() {
        return OpenOptions::new().create(true).append(true).mode(0o644).open(plain).map_err(of(plain));
    }
    let is_fifo = std::fs::metadata(plain).map_err(of(plain))?.file_type().is_fifo();
    OpenOptions::new().read(is_fifo).write(true).custom_flags(libc::O_NOCTTY).open(plain).map_err(of(plain))
}

fn null() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

fn of(path: &str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("open {}: {error}", Path::new(path).display()))
}
