//! Writes what containers print into their log files, for one node, and hands it to those who attach.
//!
//! ```text
//! container ──> shim ══ FIFO ══> logger ──> 0.log
//!                                   └─────> attached
//! ```
//!
//! A program of its own, so that containers go on printing while no kubelet runs. It is started by the kubelet, which
//! gives it a listening socket as its standard input, and outlives it: it ends when it has neither a container nor a
//! connection. Should it be killed, the shims keep the FIFOs and what is in them until a new one opens them.
//!
//! A request is a line of fields between NUL bytes: `add ID LOG STDOUT STDERR STDIN`, `reopen ID`, `attach ID`,
//! `drain ID`, `close-stdin ID`, `remove ID`, or `hold`. The answer is a line: `ok`, or what is wrong. After the answer to `attach`
//! come frames: a byte (1: output, 2: errors), a length of four bytes, big end first, and so many bytes.
//!
//! Not a crate but one file: the kubelet's build script compiles it with nothing but the standard library and embeds it.

#[path = "../src/runtime/cri_log.rs"]
#[allow(dead_code)]
mod cri_log;

use cri_log::{Lines, timestamp};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, c_char};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

const O_WRONLY: i32 = 0o1;
const O_CREAT: i32 = 0o100;
const O_APPEND: i32 = 0o2000;
const O_NONBLOCK: i32 = 0o4000;
const O_CLOEXEC: i32 = 0o2000000;
const O_PATH: i32 = 0o10000000;
// Of these each machine has its own.
#[cfg(target_arch = "aarch64")]
const O_DIRECTORY: i32 = 0o40000;
#[cfg(not(target_arch = "aarch64"))]
const O_DIRECTORY: i32 = 0o200000;
#[cfg(target_arch = "aarch64")]
const O_NOFOLLOW: i32 = 0o100000;
#[cfg(not(target_arch = "aarch64"))]
const O_NOFOLLOW: i32 = 0o400000;
/// A log is `<pod>/<container>/<attempt>.log` in the folder of all logs.
const OWN_PARTS: usize = 3;
const POLLIN: i16 = 1;
const POLLOUT: i16 = 4;
const SIGPIPE: i32 = 13;
const SIG_IGN: usize = 1;
const NAMES: [&str; 2] = ["stdout", "stderr"];
/// Whoever attached and is this far behind holds the container up, as a terminal does.
const BEHIND: usize = 256 * 1024;

#[repr(C)]
struct PollFd {
    fd: RawFd,
    events: i16,
    revents: i16,
}

unsafe extern "C" {
    fn poll(fds: *mut PollFd, count: u64, timeout_ms: i32) -> i32;
    fn signal(number: i32, handler: usize) -> usize;
    fn openat(folder: RawFd, path: *const c_char, flags: i32, ...) -> RawFd;
}

struct Container {
    path: String,
    log: Option<File>,
    streams: [Option<Stream>; 2],
    /// Held open, so that the container's input does not end with the first who attached.
    stdin: Option<File>,
}

struct Stream {
    fifo: File,
    lines: Lines,
}

struct Client {
    socket: UnixStream,
    request: Vec<u8>,
    out: Vec<u8>,
    attached: Option<String>,
    drains: Option<String>,
    is_gone: bool,
}

#[derive(Default)]
struct Logger {
    containers: BTreeMap<String, Container>,
    clients: Vec<Client>,
}

/// Opens a log for writing. Its file and the two folders that it is in are never reached by a link: a pod that may write
/// to the folder of all logs could have us write to any file of the node.
fn open_log(path: &str) -> std::io::Result<File> {
    let path = Path::new(path);
    let root = path.ancestors().nth(OWN_PARTS).ok_or(ErrorKind::InvalidInput)?;
    let mut at = OpenOptions::new().read(true).custom_flags(O_PATH | O_DIRECTORY).open(root)?;
    for part in path.strip_prefix(root).map_err(std::io::Error::other)?.parent().into_iter().flatten() {
        at = open_in(&at, part, O_PATH | O_DIRECTORY)?;
    }
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let file = open_in(&at, name, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK)?;
    // A pipe that nobody reads would hold up all containers of the node.
    if file.metadata()?.is_file() { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
}

fn open_in(folder: &File, name: &OsStr, flags: i32) -> std::io::Result<File> {
    let name = CString::new(name.as_bytes())?;
    // SAFETY: the name ends with a NUL byte and lives longer than the call.
    let opened = unsafe { openat(folder.as_raw_fd(), name.as_ptr(), flags | O_NOFOLLOW | O_CLOEXEC, 0o640) };
    if opened < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { File::from_raw_fd(opened) })
}

/// What a place in the list of polled files stands for.
enum Source {
    Listener,
    Client(usize),
    Stream(String, usize),
}

fn main() {
    // SAFETY: ignoring a signal runs no code of ours. Files and sockets say by themselves that nobody reads.
    unsafe { signal(SIGPIPE, SIG_IGN) };
    // SAFETY: the kubelet gives the socket as descriptor 0, and nothing else here uses it.
    let listener = unsafe { UnixListener::from_raw_fd(0) };
    listener.set_nonblocking(true).expect("a socket can be set so");
    let mut logger = Logger::default();
    let mut had_client = false;
    while !(had_client && logger.clients.is_empty() && logger.containers.is_empty()) {
        logger.turn(&listener, &mut had_client);
    }
}

impl Logger {
    fn turn(&mut self, listener: &UnixListener, had_client: &mut bool) {
        let (mut polled, sources) = self.sources(listener);
        // SAFETY: the array is as long as is said, and lives longer than the call.
        let ready = unsafe { poll(polled.as_mut_ptr(), polled.len() as u64, -1) };
        if ready < 0 {
            return;
        }
        for (entry, source) in polled.iter().zip(sources) {
            if entry.revents == 0 {
                continue;
            }
            match source {
                Source::Listener => {
                    while let Ok((socket, _)) = listener.accept() {
                        *had_client = true;
                        if socket.set_nonblocking(true).is_ok() {
                            self.clients.push(Client {
                                socket,
                                request: Vec::new(),
                                out: Vec::new(),
                                attached: None,
                                drains: None,
                                is_gone: false,
                            });
                        }
                    }
                }
                Source::Client(index) => self.serve(index, entry.revents & POLLIN != 0 || entry.revents & !POLLOUT != 0),
                Source::Stream(id, which) => self.read(&id, which),
            }
        }
        self.sweep();
    }

    fn sources(&self, listener: &UnixListener) -> (Vec<PollFd>, Vec<Source>) {
        let mut polled = vec![PollFd { fd: listener.as_raw_fd(), events: POLLIN, revents: 0 }];
        let mut sources = vec![Source::Listener];
        for (index, client) in self.clients.iter().enumerate() {
            let events = POLLIN | if client.out.is_empty() { 0 } else { POLLOUT };
            polled.push(PollFd { fd: client.socket.as_raw_fd(), events, revents: 0 });
            sources.push(Source::Client(index));
        }
        for (id, container) in &self.containers {
            if self.clients.iter().any(|client| client.attached.as_ref() == Some(id) && client.out.len() > BEHIND) {
                continue;
            }
            for (which, stream) in container.streams.iter().enumerate() {
                if let Some(stream) = stream {
                    polled.push(PollFd { fd: stream.fifo.as_raw_fd(), events: POLLIN, revents: 0 });
                    sources.push(Source::Stream(id.clone(), which));
                }
            }
        }
        (polled, sources)
    }

    /// Reads from a container, writes to its log and to those who attached.
    fn read(&mut self, id: &str, which: usize) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(stream) = &mut container.streams[which] else { return };
        let now = timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let mut bytes = vec![0; 64 * 1024];
        let mut out = Vec::new();
        let came = match stream.fifo.read(&mut bytes) {
            Ok(came) => came,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return,
            Err(_) => 0,
        };
        if came == 0 {
            stream.lines.end(NAMES[which], &now, &mut out);
            container.streams[which] = None;
        } else {
            stream.lines.push(&bytes[..came], NAMES[which], &now, &mut out);
        }
        container.write(&out);
        for client in self.clients.iter_mut().filter(|client| client.attached.as_deref() == Some(id)) {
            client.out.push(which as u8 + 1);
            client.out.extend_from_slice(&(came as u32).to_be_bytes());
            client.out.extend_from_slice(&bytes[..came]);
        }
    }

    fn serve(&mut self, index: usize, may_read: bool) {
        let mut bytes = [0; 4096];
        if may_read {
            let client = &mut self.clients[index];
            match client.socket.read(&mut bytes) {
                Ok(0) => client.is_gone = true,
                Ok(came) => client.request.extend_from_slice(&bytes[..came]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => client.is_gone = true,
            }
        }
        while let Some(end) = self.clients[index].request.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.clients[index].request.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            let fields: Vec<&str> = line.split('\0').collect();
            let answer = self.answer(index, &fields);
            if let Some(answer) = answer {
                self.clients[index].out.extend_from_slice(format!("{answer}\n").as_bytes());
            }
        }
    }

    /// What to say to a request; nothing when that comes later.
    fn answer(&mut self, index: usize, fields: &[&str]) -> Option<String> {
        let id = fields.get(1).copied().unwrap_or_default();
        let done = match fields {
            ["hold"] => Ok(()),
            ["add", id, log, stdout, stderr, stdin] => self.add(id, log, [stdout, stderr], stdin),
            ["drain", _] => {
                self.clients[index].drains = Some(id.to_owned());
                return None;
            }
            ["remove", id] => {
                self.containers.remove(*id);
                Ok(())
            }
            _ => match (fields[0], self.containers.get_mut(id)) {
                (_, None) => Err(format!("{id} not found")),
                ("reopen", Some(container)) => container.open().map_err(|error| error.to_string()),
                ("close-stdin", Some(container)) => {
                    container.stdin = None;
                    Ok(())
                }
                ("attach", Some(_)) => {
                    self.clients[index].attached = Some(id.to_owned());
                    Ok(())
                }
                _ => Err("no such request".to_owned()),
            },
        };
        Some(done.map_or_else(|error| error.replace('\n', " "), |()| "ok".to_owned()))
    }

    fn add(&mut self, id: &str, log: &str, fifos: [&str; 2], stdin: &str) -> Result<(), String> {
        if self.containers.contains_key(id) {
            return Ok(());
        }
        let open = |path: &str, writes: bool| {
            if path.is_empty() {
                return Ok(None);
            }
            let file = OpenOptions::new().read(true).write(writes).custom_flags(O_NONBLOCK).open(path);
            file.map(Some).map_err(|error| format!("open {path}: {error}"))
        };
        let stream = |path: &str| Ok::<_, String>(open(path, false)?.map(|fifo| Stream { fifo, lines: Lines::default() }));
        let streams = [stream(fifos[0])?, stream(fifos[1])?];
        let mut container = Container { path: log.to_owned(), log: None, streams, stdin: open(stdin, true)? };
        container.open().map_err(|error| format!("open {log}: {error}"))?;
        self.containers.insert(id.to_owned(), container);
        Ok(())
    }

    /// Sends what is to be sent, and forgets what has ended.
    fn sweep(&mut self) {
        self.containers.retain(|_, container| container.streams.iter().any(Option::is_some));
        for client in &mut self.clients {
            if client.drains.as_ref().is_some_and(|id| !self.containers.contains_key(id)) {
                client.drains = None;
                client.out.extend_from_slice(b"ok\n");
            }
            while !client.out.is_empty() && !client.is_gone {
                match client.socket.write(&client.out) {
                    Ok(sent) => drop(client.out.drain(..sent)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => client.is_gone = true,
                }
            }
            let has_ended = client.attached.as_ref().is_some_and(|id| !self.containers.contains_key(id));
            client.is_gone |= has_ended && client.out.is_empty();
        }
        self.clients.retain(|client| !client.is_gone);
    }
}

impl Container {
    fn open(&mut self) -> std::io::Result<()> {
        self.log = Some(open_log(&self.path)?);
        Ok(())
    }

    /// What cannot be written, as on a full disk, is lost: a container must not stand still because of its log.
    fn write(&mut self, out: &[u8]) {
        if self.log.is_none() {
            // The folder may have come back.
            let _ = self.open();
        }
        if let Some(log) = &mut self.log {
            let _ = log.write_all(out);
        }
    }
}
