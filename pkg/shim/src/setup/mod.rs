//! How a container comes to be, written as a script for its keeper.
//!
//! ```text
//! keeper's child: descriptors, joined namespaces ── split ──> in the new ones: root, mounts, masks, pivot_root,
//! sysctls, groups ──> user, capabilities ──> "ready" … start ──> seccomp, execve
//! ```
//!
//! All of a container's paths are followed inside its root, by the kernel (`openat2`); nothing of its files is trusted.
//! Masks are put on before the root is changed, with the node's own `/dev/null`; settings are written through a procfs of
//! our own that nobody can mount upon.

mod mounts;
mod program;

pub(crate) use program::START;

use crate::assembly::{Arg, IN_ROOT_NO_LINKS, NO_FOLDER, NULL, Reg, Script};
use crate::cgroups::Cgroups;
use crate::oci::Process;
use crate::plan::Setup;
use nix::libc;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// What kernels call the kinds of namespaces.
const NEW: [(&str, libc::c_int); 5] = [
    ("mount", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("network", libc::CLONE_NEWNET),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
];
/// "Of which kind is this namespace?"
const NS_GET_NSTYPE: libc::c_ulong = 0xb703;

/// The standard streams of a process.
pub enum Streams {
    /// Input, output, errors.
    Plain([OwnedFd; 3]),
    /// A terminal, made where the process is.
    Terminal,
}

/// A mount of the container's root, as containerd names it.
#[derive(Debug, Clone, Default)]
pub struct RootMount {
    /// `overlay` or `bind`.
    pub kind: String,
    /// What.
    pub source: String,
    /// How.
    pub options: Vec<String>,
}

/// What a container is made of, besides its specification.
pub struct Parts<'a> {
    /// Where its root is mounted: only it ever sees it.
    pub rootfs: PathBuf,
    /// What is mounted there.
    pub root_mounts: Vec<RootMount>,
    /// The control groups of the node.
    pub cgroups: &'a Cgroups,
    /// Its streams.
    pub streams: Streams,
    /// Where it tells how far it is.
    pub status: OwnedFd,
    /// Where it waits until it is to start.
    pub start: OwnedFd,
}

/// The script of a container's first process.
pub fn container(setup: &Setup, parts: Parts<'_>) -> io::Result<Script> {
    let linux = &setup.spec.linux;
    let mut script = Script::new(parts.status);
    let start = script.give(parts.start);
    let streams = give_streams(&mut script, parts.streams);
    let mut doors = Vec::new();
    for door in parts.cgroups.doors(&linux.cgroups_path)? {
        doors.push(script.give(door));
    }
    let (mut new, mut joined) = (0, Vec::new());
    for namespace in &linux.namespaces {
        let (_, flag) = NEW.iter().find(|(kind, _)| *kind == namespace.kind).copied().unwrap_or_default();
        if namespace.path.as_os_str().is_empty() {
            new |= flag;
        } else {
            joined.push((script.give(namespace_of(&namespace.path, flag)?), flag));
        }
    }
    use_streams(&mut script, streams.as_ref());
    for (namespace, flag) in joined {
        script.doing("join a namespace of the pod");
        script.call(libc::SYS_setns, &[Arg::Of(namespace), Arg::Is(flag as u64)]);
        script.close(namespace);
    }
    script.doing("make the container's namespaces");
    script.split(new);
    script.call(libc::SYS_setsid, &[]);
    mounts::propagation(&mut script, &linux.rootfs_propagation);
    let root = mounts::root(&mut script, &parts.rootfs, &parts.root_mounts)?;
    let has_terminal = streams.is_none();
    let pts = mounts::all(&mut script, root, setup, parts.cgroups)?;
    if setup.has_own_dev {
        mounts::devices(&mut script, root, &linux.devices);
    }
    let terminal = pts.filter(|_| has_terminal);
    let master = terminal.map(|pts| program::console(&mut script, root, pts, &setup.spec.process));
    mounts::hide(&mut script, root, &linux.masked_paths, &linux.readonly_paths);
    if Path::new(&setup.spec.process.cwd) != Path::new("/") {
        let target = script.register();
        script.doing(format!("make the working directory {:?}", setup.spec.process.cwd));
        let cwd = Path::new(&setup.spec.process.cwd);
        script.open_target(target, root, cwd, true, crate::assembly::IN_ROOT);
        script.close(target);
    }
    mounts::enter(&mut script, root, setup.spec.root.readonly);
    name(&mut script, &setup.spec.hostname);
    sysctls(&mut script, &setup.spec.linux.sysctl);
    join_groups(&mut script, &doors);
    program::become_it(&mut script, &setup.spec.process, setup.filter.as_deref(), Some(start), master);
    Ok(script)
}

/// What a process is executed in.
pub struct Inside<'a> {
    /// The container's first process.
    pub container: OwnedFd,
    /// Which of its namespaces are not the node's.
    pub namespaces: libc::c_int,
    /// The control groups of the node.
    pub cgroups: &'a Cgroups,
    /// The container's.
    pub group: &'a str,
    /// Its filter of system calls.
    pub filter: Option<&'a [u64]>,
    /// The process' streams.
    pub streams: Streams,
    /// Where it tells how far it is.
    pub status: OwnedFd,
    /// Where it waits until it is to start.
    pub start: OwnedFd,
}

/// The script of a process that is executed in a container. It has none of the node's files when it first shows there.
pub fn exec(process: &Process, inside: Inside<'_>) -> io::Result<Script> {
    let mut script = Script::new(inside.status);
    let start = script.give(inside.start);
    let container = script.give(inside.container);
    let streams = give_streams(&mut script, inside.streams);
    let mut doors = Vec::new();
    for door in inside.cgroups.doors(inside.group)? {
        doors.push(script.give(door));
    }
    use_streams(&mut script, streams.as_ref());
    join_groups(&mut script, &doors);
    script.doing("join the container's namespaces: it has ended");
    script.call(libc::SYS_setns, &[Arg::Of(container), Arg::Is(inside.namespaces as u64)]);
    script.close(container);
    script.doing("make a process in the container");
    script.split(0);
    script.call(libc::SYS_setsid, &[]);
    let master = streams.is_none().then(|| program::terminal_of(&mut script, process));
    program::become_it(&mut script, process, inside.filter, Some(start), master);
    Ok(script)
}

/// The namespaces of a container that are not the node's, as flags.
pub fn flags_of(namespaces: &[crate::oci::Namespace]) -> libc::c_int {
    NEW.iter()
        .filter(|(kind, _)| namespaces.iter().any(|namespace| namespace.kind == *kind))
        .fold(0, |flags, (_, flag)| flags | flag)
}

/// Opens a namespace, and makes sure that it is one, and of this kind.
fn namespace_of(path: &Path, flag: libc::c_int) -> io::Result<OwnedFd> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("namespace {}: {error}", path.display()));
    let file = std::fs::File::open(path).map_err(named)?;
    // SAFETY: the call takes no argument and changes nothing.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE as _) };
    if kind != flag {
        return Err(named(io::Error::other("it is not a namespace of that kind")));
    }
    Ok(file.into())
}

fn give_streams(script: &mut Script, streams: Streams) -> Option<[Reg; 3]> {
    match streams {
        Streams::Plain(streams) => Some(streams.map(|stream| script.give(stream))),
        Streams::Terminal => None,
    }
}

/// First of all: what the keeper had there is the keeper's.
fn use_streams(script: &mut Script, streams: Option<&[Reg; 3]>) {
    script.doing("open the standard streams");
    for (number, stream) in (0..3).zip(streams.map_or([None; 3], |streams| streams.map(Some))) {
        match stream {
            Some(stream) => {
                script.call(libc::SYS_dup3, &[Arg::Of(stream), Arg::Is(number), NULL]);
                script.close(stream);
            }
            None => {
                script.call(libc::SYS_close, &[Arg::Is(number)]);
            }
        }
    }
    if streams.is_none() {
        // The numbers must be taken, or the next files would have them.
        let null = script.text("/dev/null");
        for _ in 0..3 {
            script.call(libc::SYS_openat, &[NO_FOLDER, null, Arg::Is(libc::O_RDWR as u64), NULL]);
        }
    }
}

fn name(script: &mut Script, hostname: &str) {
    if !hostname.is_empty() {
        script.doing("set the host name");
        let name = script.text(hostname);
        script.call(libc::SYS_sethostname, &[name, Arg::Is(hostname.len() as u64)]);
    }
}

/// Through a procfs that is mounted nowhere, so that nothing can be mounted upon it, either.
fn sysctls(script: &mut Script, settings: &std::collections::BTreeMap<String, String>) {
    if settings.is_empty() {
        return;
    }
    let (proc, file) = (script.register(), script.register());
    script.doing("mount a procfs for settings");
    script.new_mount(proc, "proc", &[], 0);
    for (key, value) in settings {
        script.doing(format!("set {key} to {value:?}"));
        let path = PathBuf::from("sys").join(key.replace('.', "/"));
        let resolve = IN_ROOT_NO_LINKS | libc::RESOLVE_NO_XDEV;
        script.open(file, Arg::Of(proc), &path, libc::O_WRONLY, resolve);
        let value_at = script.text(value);
        script.call(libc::SYS_write, &[Arg::Of(file), value_at, Arg::Is(value.len() as u64)]);
        script.close(file);
    }
    script.close(proc);
}

fn join_groups(script: &mut Script, doors: &[Reg]) {
    script.doing("join the control groups");
    let myself = script.text("0");
    for door in doors {
        script.call(libc::SYS_write, &[Arg::Of(*door), myself, Arg::Is(1)]);
        script.close(*door);
    }
}
