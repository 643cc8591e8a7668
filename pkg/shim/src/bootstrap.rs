//! How containerd comes to a shim: it runs this program in a container's folder.
//!
//! ```text
//! start:  ours? ──> the node's one shim, started if there is none ──> its address
//!         else  ──> becomes containerd-shim-runc-v2
//! delete: the shim is gone: ends what it left, and tells how it ended
//! ```

use crate::cgroups::Cgroups;
use crate::container;
use crate::events::{Events, timestamp};
use crate::plan::Decision;
use crate::service::Service;
use crate::state::Folder;
use containerd_shim_protos::api::DeleteResponse;
use containerd_shim_protos::protobuf::{Message, MessageField};
use containerd_shim_protos::shim_async::create_task;
use containerd_shim_protos::ttrpc::asynchronous::Server;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Who does what we do not.
const RUNC_SHIM: &str = "containerd-shim-runc-v2";
/// A shim that has nothing to do stays so long, since the next pod may come.
const IDLE: Duration = Duration::from_secs(10);
/// containerd says by these what it understands, since it understands more than an address.
const NEWEST: &str = "MAX_SHIM_VERSION";
const SERVE: &str = "serve";

/// How containerd calls a shim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Flags {
    namespace: String,
    address: String,
    id: String,
    bundle: Option<PathBuf>,
    action: String,
}

/// Runs the program with its arguments, its own name first.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let texts: Vec<String> =
        arguments.iter().skip(1).map(|argument| argument.to_string_lossy().into_owned()).collect();
    let flags = match flags(&texts) {
        Ok(flags) => flags,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let done = match flags.action.as_str() {
        "start" => start(&flags, &arguments),
        "delete" => delete(&flags, &arguments),
        SERVE => serve(&flags),
        _ => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("containerd-shim-minik8s: {error}");
            ExitCode::FAILURE
        }
    }
}

const HELP: &str = "\
Runs the containers of all pods of a node: one process, which containerd starts.

Usage: containerd-shim-minik8s-v1 -namespace NAME -address SOCKET -id CONTAINER [-bundle FOLDER] start|delete

It is not called by people. To run a container with it:
  ctr run --runtime /usr/local/bin/containerd-shim-minik8s-v1 docker.io/library/busybox:latest test
";

fn flags(texts: &[String]) -> Result<Flags, String> {
    let mut flags = Flags::default();
    let mut rest = texts.iter();
    while let Some(text) = rest.next() {
        let Some(name) = text.strip_prefix("--").or_else(|| text.strip_prefix('-')) else {
            flags.action = text.clone();
            continue;
        };
        let (name, value) = match name.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (name, None),
        };
        if matches!(name, "debug" | "v" | "info" | "h" | "help") {
            continue;
        }
        let value = value.or_else(|| rest.next().cloned()).ok_or(format!("-{name} needs a value"))?;
        match name {
            "namespace" => flags.namespace = value,
            "address" => flags.address = value,
            "id" => flags.id = value,
            "bundle" => flags.bundle = Some(value.into()),
            "publish-binary" | "socket" => {}
            _ => return Err(format!("unknown flag -{name}; see --help")),
        }
    }
    Ok(flags)
}

/// Answers with the address of the shim for the container in this folder.
fn start(flags: &Flags, arguments: &[OsString]) -> io::Result<()> {
    let cgroups = Cgroups::of_this_machine();
    if let Decision::HandToRunc(_) = container::decide(Path::new("."), &cgroups)? {
        return become_runc(arguments);
    }
    let folder = Folder::of(&flags.address, &flags.namespace)?;
    let address = format!("unix://{}", folder.socket().display());
    let lock = lock(&folder.lock(), FlockArg::LockExclusive)?;
    // By its time, the shim sees that somebody is about to come.
    lock.set_modified(SystemTime::now())?;
    if UnixStream::connect(folder.socket()).is_err() {
        let _ = std::fs::remove_file(folder.socket());
        let listener = UnixListener::bind(folder.socket())?;
        let program = std::env::current_exe()?;
        Command::new(&program)
            .arg0(program.with_file_name("containerd-shim-minik8s-v1"))
            .args(["-namespace", &flags.namespace, "-address", &flags.address, SERVE])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
    }
    std::fs::write("address", &address)?;
    io::stdout().write_all(&answer(&address, std::env::var(NEWEST).ok().as_deref()))
}

/// What containerd expects: an address alone (1.6, 1.7), or what to make of it (2.0 and later).
fn answer(address: &str, newest: Option<&str>) -> Vec<u8> {
    match newest.and_then(|newest| newest.parse::<u32>().ok()) {
        Some(newest @ 3..) => {
            let version = newest.min(3);
            format!(r#"{{"version":{version},"address":"{address}","protocol":"ttrpc"}}"#).into_bytes()
        }
        _ => address.as_bytes().to_vec(),
    }
}

fn become_runc(arguments: &[OsString]) -> io::Result<()> {
    let error = Command::new(RUNC_SHIM).args(arguments.iter().skip(1)).exec();
    Err(io::Error::new(error.kind(), format!("run {RUNC_SHIM}, whose container this is: {error}")))
}

/// Ends what is left of a container whose shim is gone.
fn delete(flags: &Flags, arguments: &[OsString]) -> io::Result<()> {
    let folder = Folder::of(&flags.address, &flags.namespace)?;
    let cgroups = Cgroups::of_this_machine();
    let ended = folder.end(&flags.id, &cgroups);
    if UnixStream::connect(folder.socket()).is_err()
        && let Ok(_lock) = lock(&folder.lock(), FlockArg::LockExclusiveNonblock)
        && UnixStream::connect(folder.socket()).is_err()
    {
        // Nobody serves, and nobody is about to: where nothing is left in it, it goes.
        folder.remove();
    }
    let Some((pid, exit)) = ended else {
        let bundle = flags.bundle.clone().unwrap_or_else(|| ".".into());
        if matches!(container::decide(&bundle, &cgroups), Ok(Decision::HandToRunc(_))) {
            return become_runc(arguments);
        }
        // It was never made.
        let nothing = DeleteResponse { exit_status: 137, ..DeleteResponse::default() };
        return print(&nothing);
    };
    print(&DeleteResponse {
        pid,
        exit_status: exit.code,
        exited_at: MessageField::some(timestamp(exit.at_ns)),
        ..DeleteResponse::default()
    })
}

fn print(response: &DeleteResponse) -> io::Result<()> {
    io::stdout().write_all(&response.write_to_bytes().map_err(io::Error::other)?)
}

/// The node's shim: serves on its standard input until it has nothing to do.
fn serve(flags: &Flags) -> io::Result<()> {
    let folder = Folder::of(&flags.address, &flags.namespace)?;
    let events = std::env::var("TTRPC_ADDRESS").unwrap_or_else(|_| format!("{}.ttrpc", flags.address));
    // The program's own file and memory are no container's business, however it got near.
    // SAFETY: the call takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    runtime.block_on(async {
        let events = Events::to(format!("unix://{events}"), flags.namespace.clone());
        let service = Arc::new(Service::new(Cgroups::of_this_machine(), events, folder.clone()));
        let mut services = create_task(service.clone());
        let older = create_task(service.clone())
            .into_values()
            .map(|methods| ("containerd.task.v2.Task".to_owned(), methods));
        services.extend(older);
        let listener = io::stdin();
        let listener = nix::unistd::dup(&listener)?;
        // SAFETY: it was made just now, and nobody else has it.
        let server = unsafe { Server::new().add_unix_listener(listener.into_raw_fd()) };
        let mut server = server.map_err(io::Error::other)?.register_service(services);
        server.start().await.map_err(io::Error::other)?;
        until_idle(&service, &folder).await;
        Ok(())
    })
}

async fn until_idle(service: &Service, folder: &Folder) {
    loop {
        if !service.is_idle() {
            service.deleted.notified().await;
            continue;
        }
        let was_quiet = tokio::time::timeout(IDLE, service.deleted.notified()).await.is_err();
        if !was_quiet || !service.is_idle() {
            continue;
        }
        // Whoever holds the lock is about to come.
        let Ok(lock) = lock(&folder.lock(), FlockArg::LockExclusiveNonblock) else { continue };
        let age = lock.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age >= IDLE) {
            folder.remove();
            return;
        }
    }
}

/// Locks a file that is there when it is locked: the one before it may have been removed meanwhile.
fn lock(path: &Path, how: FlockArg) -> io::Result<Flock<File>> {
    loop {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder.join("containers"))?;
        }
        let file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
        let locked = Flock::lock(file, how).map_err(|(_, error)| io::Error::from(error))?;
        let is_same = std::fs::metadata(path).is_ok_and(|now| {
            locked.metadata().is_ok_and(|own| (own.dev(), own.ino()) == (now.dev(), now.ino()))
        });
        if is_same {
            return Ok(locked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_containerd_gives_them() {
        let line =
            "-namespace k8s.io -address /run/c.sock -publish-binary /usr/bin/containerd -id abc -debug start";
        let texts: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let expected = Flags {
            namespace: "k8s.io".into(),
            address: "/run/c.sock".into(),
            id: "abc".into(),
            bundle: None,
            action: "start".into(),
        };
        assert_eq!(flags(&texts), Ok(expected));
        assert!(flags(&["-fly".to_owned(), "1".to_owned()]).is_err());
    }

    #[test]
    fn each_containerd_gets_the_answer_that_it_understands() {
        let text = |newest| String::from_utf8(answer("unix:///s", newest)).expect("text");
        assert_eq!(text(None), "unix:///s");
        assert_eq!(text(Some("2")), "unix:///s");
        assert_eq!(text(Some("3")), r#"{"version":3,"address":"unix:///s","protocol":"ttrpc"}"#);
    }
}
