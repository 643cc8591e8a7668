//! The shim's side of a pod's keeper: starts it, gives it scripts, hears how processes ended.
//!
//! ```text
//! Keeper ── Order + memfd + descriptors ──> keeper (programs/keeper.rs) ── clone ──> process
//!        <── Ended ─────────────────────────   └── appends Ended to `ended`
//! ```
//!
//! Its socket and file lie in a folder that only root of the node can enter.

use crate::assembly::Script;
use crate::script::{Ended, FAILED, News, Order, PID, QUIT, READY, RUN};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, bind, connect, listen,
    recv, sendmsg, socket,
};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// The keeper's program.
const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/keeper"));
/// What a process returned that nobody waited for.
const UNKNOWN: u32 = 255;
/// A flag of `memfd_create`, since 6.3.
const MAY_BE_EXECUTED: libc::c_uint = 0x10;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// As a shell says it.
    pub code: u32,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
}

/// What hears of an end.
pub type Exits = watch::Receiver<Option<Exit>>;

/// A pod's keeper.
pub struct Keeper {
    socket: AsyncFd<OwnedFd>,
    process: Mutex<Child>,
    folder: PathBuf,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    by_pid: HashMap<u32, watch::Sender<Option<Exit>>>,
    /// Ends of processes that nobody has asked for yet.
    early: HashMap<u32, Exit>,
    is_gone: bool,
}

/// A process whose script has come to "ready".
pub struct Prepared {
    /// As the node sees it.
    pub pid: u32,
    /// The number of the terminal's other end in that process; zero: it has none.
    pub terminal: RawFd,
    /// More news, or its end, which is success.
    pub news: AsyncFd<OwnedFd>,
    /// What each op was for.
    pub labels: Vec<String>,
    /// Hears of its end.
    pub exits: Exits,
}

impl Keeper {
    /// Starts one with its own folder.
    pub fn start(folder: &Path) -> io::Result<Arc<Self>> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join("k");
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let address = UnixAddr::new(&path)?;
        let open = || socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None);
        let listener = open()?;
        bind(listener.as_raw_fd(), &address)?;
        listen(&listener, Backlog::new(4)?)?;
        let ends = OpenOptions::new().create(true).append(true).mode(0o600).open(folder.join("ended"))?;
        let program = program()?;
        let process = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(listener))
            .stdout(Stdio::from(ends))
            .stderr(Stdio::null())
            .spawn()?;
        let client = open()?;
        connect(client.as_raw_fd(), &address)?;
        nix::sys::socket::setsockopt(&client, nix::sys::socket::sockopt::SndBuf, &65536)?;
        fcntl(&client, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let keeper = Arc::new(Keeper {
            socket: watched(client, Interest::READABLE | Interest::WRITABLE)?,
            process: Mutex::new(process),
            folder: folder.to_owned(),
            waiting: Mutex::default(),
        });
        tokio::spawn(keeper.clone().listen());
        Ok(keeper)
    }

    /// Carries a script out until it is ready.
    pub async fn run(&self, script: Script, status: OwnedFd) -> Result<Prepared, String> {
        let labels = script.labels();
        self.send(script).await.map_err(|error| format!("give a script to the keeper: {error}"))?;
        let failed = |error: io::Error| error.to_string();
        fcntl(&status, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(|error| error.to_string())?;
        let status = watched(status, Interest::READABLE).map_err(failed)?;
        // The process and the one that made it tell their news in whatever order.
        let (mut pid, mut terminal) = (None, None);
        loop {
            if let (Some(pid), Some(terminal)) = (pid, terminal) {
                return Ok(Prepared { pid, terminal, news: status, labels, exits: self.exits(pid) });
            }
            match next(&status).await.map_err(failed)? {
                Some(News { kind: PID, value, .. }) => pid = u32::try_from(value).ok(),
                Some(News { kind: READY, value, .. }) => terminal = Some(value as RawFd),
                Some(news) => {
                    self.forget(pid);
                    return Err(failure(&labels, news));
                }
                None => {
                    self.forget(pid);
                    return Err("it was killed while it was set up".to_owned());
                }
            }
        }
    }

    /// Hears of a process' end, whether it has ended already or not.
    fn exits(&self, pid: u32) -> Exits {
        let Ok(mut waiting) = self.waiting.lock() else { return watch::channel(None).1 };
        let known = waiting.early.remove(&pid).or(waiting.is_gone.then(lost));
        let (tell, hear) = watch::channel(known);
        if known.is_none() {
            waiting.by_pid.insert(pid, tell);
        }
        hear
    }

    /// Nobody will ask how a process ended whose script failed.
    fn forget(&self, pid: Option<u32>) {
        if let (Some(pid), Ok(mut waiting)) = (pid, self.waiting.lock())
            && waiting.early.remove(&pid).is_none()
        {
            waiting.by_pid.insert(pid, watch::channel(None).0);
        }
    }

    /// Whether it has ended, or was killed.
    pub fn is_gone(&self) -> bool {
        self.waiting.lock().is_ok_and(|waiting| waiting.is_gone)
    }

    async fn send(&self, script: Script) -> io::Result<()> {
        let (bytes, fds) = script.assembled();
        let mut memory = File::from(memfd_create(c"script", MFdFlags::MFD_CLOEXEC)?);
        memory.write_all(&bytes)?;
        let order = order(RUN, bytes.len());
        let mut all = vec![memory.as_raw_fd()];
        all.extend(fds.iter().map(|fd| fd.as_raw_fd()));
        if all.len() > crate::script::MOST_FDS {
            return Err(io::Error::other("too many files go with it"));
        }
        self.socket
            .async_io(Interest::WRITABLE, |socket| {
                let control = [ControlMessage::ScmRights(&all)];
                let flags = MsgFlags::MSG_NOSIGNAL;
                sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(&order)], &control, flags, None)
                    .map_err(io::Error::from)
            })
            .await
            .map(drop)
    }

    async fn listen(self: Arc<Self>) {
        let mut bytes = [0; size_of::<Ended>()];
        loop {
            let came = self
                .socket
                .async_io(Interest::READABLE, |socket| {
                    recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).map_err(io::Error::from)
                })
                .await;
            match came {
                Ok(length) if length == bytes.len() => self.ended(decode(&bytes)),
                _ => break,
            }
        }
        // It is gone, and with it who could have waited.
        if let Ok(mut waiting) = self.waiting.lock() {
            waiting.is_gone = true;
            for (_, tell) in waiting.by_pid.drain() {
                tell.send_replace(Some(lost()));
            }
        }
        if let Ok(mut process) = self.process.lock() {
            let _ = process.wait();
        }
    }

    fn ended(&self, ended: Ended) {
        let exit = Exit { code: code(ended.status), at_ns: ended.at_ns };
        if let Ok(mut waiting) = self.waiting.lock() {
            match waiting.by_pid.remove(&ended.pid) {
                Some(tell) => drop(tell.send_replace(Some(exit))),
                None => drop(waiting.early.insert(ended.pid, exit)),
            }
        }
    }

    /// Lets it end: nobody is left in the pod.
    pub fn quit(&self) {
        let order = order(QUIT, 0);
        let _ = sendmsg::<()>(
            self.socket.get_ref().as_raw_fd(),
            &[IoSlice::new(&order)],
            &[],
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Prepared {
    /// Whether it became its program, after it was told to.
    pub async fn started(&self) -> Result<(), String> {
        match next(&self.news).await.map_err(|error| error.to_string())? {
            Some(news) => Err(failure(&self.labels, news)),
            None => Ok(()),
        }
    }
}

/// How a process ended, by what its keeper wrote down there.
pub fn written_end(folder: &Path, pid: u32, since_ns: u64) -> Option<Exit> {
    let bytes = std::fs::read(folder.join("ended")).ok()?;
    let records = bytes.chunks_exact(size_of::<Ended>()).filter_map(|bytes| bytes.try_into().ok());
    let all = records.map(|bytes: &[u8; 16]| decode(bytes));
    // A number may have been another's before.
    all.rev()
        .find(|ended| ended.pid == pid && ended.at_ns >= since_ns)
        .map(|ended| Exit { code: code(ended.status), at_ns: ended.at_ns })
}

/// The time now, as the keeper has it.
pub fn now_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// An end of which nothing is known but that it was.
pub fn lost() -> Exit {
    Exit { code: UNKNOWN, at_ns: now_ns() }
}

/// The program, where nobody can change it: not even who runs it.
fn program() -> io::Result<&'static File> {
    static SEALED: OnceLock<File> = OnceLock::new();
    if let Some(sealed) = SEALED.get() {
        return Ok(sealed);
    }
    // Nodes may forbid what does not say that it will be executed; older kernels do not know how to say it.
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let memory = match memfd_create(c"keeper", flags | MFdFlags::from_bits_retain(MAY_BE_EXECUTED)) {
        Err(Errno::EINVAL) => memfd_create(c"keeper", flags),
        other => other,
    };
    let mut file = File::from(memory?);
    file.write_all(PROGRAM)?;
    let seals =
        SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(SEALED.get_or_init(|| file))
}

/// Tells when there is something to read or room to write.
pub fn watched(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and the same, until it is dropped with what is made of it here.
    let watched = unsafe { AsyncFd::register_with_interest(fd, interest) };
    watched.map_err(|error| error.into_parts().1)
}

async fn next(status: &AsyncFd<OwnedFd>) -> io::Result<Option<News>> {
    let mut bytes = [0; size_of::<News>()];
    let length = status
        .async_io(Interest::READABLE, |status| nix::unistd::read(status, &mut bytes).map_err(io::Error::from))
        .await?;
    let part =
        |from: usize| u32::from_ne_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
    let value = i64::from(part(8)) | i64::from(part(12)) << 32;
    Ok((length == bytes.len()).then(|| News { kind: part(0), op: part(4), value }))
}

fn failure(labels: &[String], news: News) -> String {
    debug_assert_eq!(news.kind, FAILED);
    let label = labels.get(news.op as usize).map_or("read the script", String::as_str);
    let errno = Errno::from_raw(i32::try_from(news.value).unwrap_or_default());
    if label.ends_with("$PATH") { label.to_owned() } else { format!("{label}: {}", spoken(errno)) }
}

/// As Go says it, which clients look for.
fn spoken(errno: Errno) -> String {
    errno.desc().to_lowercase()
}

fn order(kind: u32, length: usize) -> [u8; size_of::<Order>()] {
    let mut bytes = [0; size_of::<Order>()];
    bytes[..4].copy_from_slice(&kind.to_ne_bytes());
    bytes[4..].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes
}

fn decode(bytes: &[u8; 16]) -> Ended {
    let part =
        |from: usize| u32::from_ne_bytes([bytes[from], bytes[from + 1], bytes[from + 2], bytes[from + 3]]);
    Ended { pid: part(0), status: part(4), at_ns: u64::from(part(8)) | u64::from(part(12)) << 32 }
}

fn code(status: u32) -> u32 {
    let signal = status & 0x7f;
    if signal == 0 { status >> 8 & 0xff } else { 128 + signal }
}

/// The other end of a process' terminal, taken from it while it waits.
pub fn taken(pid: u32, fd: RawFd) -> io::Result<OwnedFd> {
    let process = pidfd(pid)?;
    // SAFETY: both descriptors are only looked at, and what is returned is new.
    let got = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_fd().as_raw_fd(), fd, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(got as RawFd) })
}

/// A process, whatever becomes of its number.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two numbers.
    let got = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if got < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(got as RawFd) })
}

/// Sends a signal to a process that is certainly that one.
pub fn signal(process: &OwnedFd, signal: u32) -> io::Result<()> {
    let none: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: without further information the call takes three numbers.
    let sent =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, none, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_as_a_shell_says_them() {
        for (status, expected) in [(0, 0), (7 << 8, 7), (9, 137), (15, 143), (0x80 | 11, 139)] {
            assert_eq!(code(status), expected);
        }
    }

    #[test]
    fn the_last_end_of_a_number_since_then_is_meant() {
        let dir = tempfile::tempdir().expect("a folder");
        let record = |pid: u32, status: u32, at_ns: u64| {
            [&pid.to_ne_bytes()[..], &status.to_ne_bytes(), &at_ns.to_ne_bytes()].concat()
        };
        let text = [record(5, 1 << 8, 10), record(6, 0, 11), record(5, 2 << 8, 20)].concat();
        std::fs::write(dir.path().join("ended"), text).expect("written");
        let end = |pid, since| written_end(dir.path(), pid, since).map(|exit| exit.code);
        assert_eq!((end(5, 0), end(6, 5), end(5, 21), end(7, 0)), (Some(2), Some(0), None, None));
    }

    #[test]
    fn nobody_can_write_to_the_keepers_program() {
        let sealed = program().expect("a memfd");
        let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
        let opened = OpenOptions::new().write(true).open(path);
        let written = opened.and_then(|mut file| file.write_all(b"x"));
        assert_eq!(written.expect_err("it is sealed").raw_os_error(), Some(libc::EPERM));
    }
}
