//! From a process that may do everything to the program that may do what it is given: in the order that lets nothing be
//! taken back.

use crate::assembly::{Arg, IN_ROOT_NO_LINKS, NO_FOLDER, NULL, Reg, Script};
use crate::capabilities::{self, LAST};
use crate::oci::Process;
use crate::plan::RLIMITS;
use crate::script::{READY, STATUS};
use nix::libc;
use std::path::Path;

const CAPABILITY_VERSION: u64 = 0x2008_0522;
const AMBIENT_RAISE: u64 = 2;
const AMBIENT_CLEAR: u64 = 4;
const CLOEXEC_RANGE: u64 = 4;
const JOIN_SESSION_KEYRING: u64 = 1;
const SET_FILTER: u64 = 1;
const MAY_EXECUTE: u64 = 1;
/// What a process is told that is to start.
pub(crate) const START: u8 = b'g';
const NEW_FILES: u32 = 0o022;
/// `ioctl`s of terminals.
const UNLOCK: u64 = 0x4004_5431;
const OPEN_PEER: u64 = 0x5441;
const TAKE: u64 = 0x540e;
/// What `fstatfs` says of a devpts, and `fstat` of its multiplexer.
const DEVPTS: u64 = 0x1cd1;
const PTMX: u64 = 5 << 8 | 2;
#[cfg(target_arch = "aarch64")]
const DEVICE_IN_STAT: u64 = 32;
#[cfg(not(target_arch = "aarch64"))]
const DEVICE_IN_STAT: u64 = 40;
const STAT_BYTES: usize = 256;

/// Gives everything up that the program is not to have, tells that it is ready, waits for the start, and becomes it.
pub(super) fn become_it(
    script: &mut Script,
    process: &Process,
    filter: Option<&[u64]>,
    start: Option<Reg>,
    master: Option<Reg>,
) {
    script.doing("get a keyring of its own");
    let joined = script.call(libc::SYS_keyctl, &[Arg::Is(JOIN_SESSION_KEYRING), NULL]);
    script.allow(joined, &[libc::ENOSYS]);
    script.call(libc::SYS_umask, &[Arg::Is(u64::from(process.user.umask.unwrap_or(NEW_FILES)))]);
    limits(script, process);
    own_streams(script, process);
    if process.no_new_privileges {
        script.doing("give up new privileges");
        prctl(script, libc::PR_SET_NO_NEW_PRIVS, 1, 0);
    } else if let Some(filter) = filter {
        // Without that, only who may administer the system can set a filter.
        set_filter(script, filter);
    }
    let cwd = script.text(&process.cwd);
    let label = format!("chdir to cwd ({:?}) set in config.json failed", process.cwd);
    script.doing(label.clone());
    let entered = script.call(libc::SYS_chdir, &[cwd]);
    script.allow(entered, &[libc::EACCES, libc::EPERM]);
    // What is not marked already: no file of ours may be there when the program is.
    script.doing("close all files");
    script.call(libc::SYS_close_range, &[Arg::Is(3), Arg::Is(u32::MAX.into()), Arg::Is(CLOEXEC_RANGE)]);
    user(script, process);
    script.doing(label);
    script.call(libc::SYS_chdir, &[cwd]);
    let here = script.bytes(&[0; 4096]);
    script.call(libc::SYS_getcwd, &[here, Arg::Is(4096)]);
    // A folder outside of the root is said to be unreachable.
    script.check(here, 0, 0xff, u64::from(b'/'), libc::EXDEV);
    let program = find(script, process);
    let args = script.list(&process.args);
    let env = script.list(&process.env);
    script.doing("tell that it is ready");
    let news = script.words(&[u64::from(READY), 0]);
    if let Some(master) = master {
        script.store(news, 8, Arg::Of(master));
    }
    script.call(libc::SYS_write, &[Arg::Of(Reg(STATUS)), news, Arg::Is(16)]);
    if let Some(start) = start {
        let told = script.bytes(&[0; 8]);
        script.doing("wait for the start");
        script.call(libc::SYS_read, &[Arg::Of(start), told, Arg::Is(1)]);
        // Whoever could have said it is gone: nothing runs that nobody started.
        script.check(told, 0, 0xff, u64::from(START), libc::ECANCELED);
    }
    if let Some(filter) = filter.filter(|_| process.no_new_privileges) {
        set_filter(script, filter);
    }
    script.doing(format!("exec {}", process.args[0]));
    script.call(libc::SYS_execve, &[Arg::Of(program), args, env]);
}

/// The terminal of a container's first process: of its own devpts, whatever is mounted where, and known there as
/// `/dev/console`. Gives the other end.
pub(super) fn console(script: &mut Script, root: Reg, pts: Reg, process: &Process) -> Reg {
    let (master, target, tree) = (script.register(), script.register(), script.register());
    script.doing("make a terminal");
    script.open(
        master,
        Arg::Of(pts),
        Path::new("ptmx"),
        libc::O_RDWR | libc::O_NOCTTY,
        libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV,
    );
    let peer = peer(script, master);
    script.open_target(target, root, Path::new("/dev/console"), false, IN_ROOT_NO_LINKS);
    script.clone_tree(tree, Arg::Of(peer), Path::new(""), false);
    script.attach(tree, target);
    script.close(target);
    script.close(tree);
    use_terminal(script, peer, process);
    master
}

/// The terminal of a process that is executed: the container's devpts, if it is one.
pub(super) fn terminal_of(script: &mut Script, process: &Process) -> Reg {
    let master = script.register();
    script.doing("open the container's /dev/pts/ptmx");
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NOFOLLOW;
    script.open(master, NO_FOLDER, Path::new("/dev/pts/ptmx"), flags, libc::RESOLVE_NO_SYMLINKS);
    let found = script.bytes(&[0; STAT_BYTES]);
    script.call(libc::SYS_fstatfs, &[Arg::Of(master), found]);
    script.check(found, 0, u64::MAX, DEVPTS, libc::ENOTTY);
    script.call(libc::SYS_fstat, &[Arg::Of(master), found]);
    script.check(found, DEVICE_IN_STAT, u64::MAX, PTMX, libc::ENOTTY);
    let peer = peer(script, master);
    use_terminal(script, peer, process);
    master
}

/// The other end of a terminal, by the kernel and not by its name.
fn peer(script: &mut Script, master: Reg) -> Reg {
    let peer = script.register();
    let no = script.words(&[0]);
    script.call(libc::SYS_ioctl, &[Arg::Of(master), Arg::Is(UNLOCK), no]);
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    script.call_into(peer, libc::SYS_ioctl, &[Arg::Of(master), Arg::Is(OPEN_PEER), Arg::Is(flags as u64)]);
    peer
}

fn use_terminal(script: &mut Script, peer: Reg, process: &Process) {
    if let Some(size) = process.console_size.filter(|size| size.height > 0 && size.width > 0) {
        let size = script.words(&[u64::from(size.height) | u64::from(size.width) << 16]);
        script.call(libc::SYS_ioctl, &[Arg::Of(peer), Arg::Is(libc::TIOCSWINSZ), size]);
    }
    for number in 0..3 {
        script.call(libc::SYS_dup3, &[Arg::Of(peer), Arg::Is(number), NULL]);
    }
    script.close(peer);
    script.call(libc::SYS_ioctl, &[Arg::Is(0), Arg::Is(TAKE), NULL]);
}

/// Whoever the program is may open its streams anew.
fn own_streams(script: &mut Script, process: &Process) {
    script.doing("own the standard streams");
    for number in 0..3 {
        // The node's /dev/null stays the node's.
        let skip = script.call(libc::SYS_lseek, &[Arg::Is(number), NULL, Arg::Is(1)]);
        script.allow(skip, &[libc::ESPIPE]);
        let none = u64::from(u32::MAX);
        let owned = script
            .call(libc::SYS_fchown, &[Arg::Is(number), Arg::Is(process.user.uid.into()), Arg::Is(none)]);
        script.allow(owned, &[libc::EINVAL, libc::EPERM, libc::EROFS]);
        // What can be sought is no stream.
        script.skip_to_here(skip);
    }
}

fn limits(script: &mut Script, process: &Process) {
    for limit in &process.rlimits {
        script.doing(format!("set {}", limit.kind));
        let number = RLIMITS.iter().position(|known| *known == limit.kind).unwrap_or_default();
        let values = script.words(&[limit.soft, limit.hard]);
        script.call(libc::SYS_prlimit64, &[NULL, Arg::Is(number as u64), values, NULL]);
    }
}

/// The bounding set while it may still be changed, then the user, then what is left of the capabilities.
fn user(script: &mut Script, process: &Process) {
    let sets = capabilities::sets(process.capabilities.as_ref());
    script.doing("drop capabilities");
    for number in (0..=LAST).filter(|number| sets.bounding >> number & 1 == 0) {
        let dropped = prctl(script, libc::PR_CAPBSET_DROP, number, 0);
        // The kernel does not have as many.
        script.allow(dropped, &[libc::EINVAL]);
    }
    prctl(script, libc::PR_SET_KEEPCAPS, 1, 0);
    script.doing("become the container's user");
    let groups: Vec<u8> = process.user.additional_gids.iter().flat_map(|gid| gid.to_ne_bytes()).collect();
    let list = script.bytes(&groups);
    let count = process.user.additional_gids.len() as u64;
    script.call(libc::SYS_setgroups, &[Arg::Is(count), list]);
    let (uid, gid) = (Arg::Is(process.user.uid.into()), Arg::Is(process.user.gid.into()));
    script.call(libc::SYS_setresgid, &[gid, gid, gid]);
    script.call(libc::SYS_setresuid, &[uid, uid, uid]);
    script.doing("drop capabilities");
    prctl(script, libc::PR_SET_KEEPCAPS, 0, 0);
    let header = script.words(&[CAPABILITY_VERSION]);
    let half = |shift: u32| {
        [sets.effective, sets.permitted, sets.inheritable]
            .map(|set| (set >> shift) as u32)
            .map(u32::to_ne_bytes)
    };
    let data: Vec<u8> = [half(0), half(32)].into_iter().flatten().flatten().collect();
    let data = script.bytes(&data);
    script.call(libc::SYS_capset, &[header, data]);
    prctl(script, libc::PR_CAP_AMBIENT, AMBIENT_CLEAR, 0);
    for number in (0..=LAST).filter(|number| sets.ambient >> number & 1 == 1) {
        prctl(script, libc::PR_CAP_AMBIENT, AMBIENT_RAISE, number);
    }
}

fn prctl(script: &mut Script, what: libc::c_int, first: u64, second: u64) -> usize {
    script.call(libc::SYS_prctl, &[Arg::Is(what as u64), Arg::Is(first), Arg::Is(second), NULL, NULL])
}

fn set_filter(script: &mut Script, filter: &[u64]) {
    script.doing("set the seccomp filter");
    let program = script.words(filter);
    let described = script.words(&[filter.len() as u64, 0]);
    script.store(described, 8, program);
    script.call(libc::SYS_seccomp, &[Arg::Is(SET_FILTER), NULL, described]);
}

/// The program's file, as who will run it finds it.
fn find(script: &mut Script, process: &Process) -> Reg {
    let (found, slot) = (script.register(), script.words(&[0]));
    let name = &process.args[0];
    if name.contains('/') {
        script.doing(format!("exec: {name:?}: stat {name}"));
        let path = script.text(name);
        script.call(libc::SYS_faccessat, &[NO_FOLDER, path, Arg::Is(MAY_EXECUTE)]);
        script.choose(found, slot, path);
        return found;
    }
    script.doing(format!("exec: {name:?}: executable file not found in $PATH"));
    let path = process.env.iter().rev().find_map(|variable| variable.strip_prefix("PATH=")).unwrap_or("");
    let mut chosen = Vec::new();
    for folder in path.split(':').filter(|folder| folder.starts_with('/')) {
        let candidate = script.text(Path::new(folder).join(name));
        let looked = script.call(libc::SYS_faccessat, &[NO_FOLDER, candidate, Arg::Is(MAY_EXECUTE)]);
        chosen.push(script.choose(found, slot, candidate));
        script.skip_to_here_after(looked, &[libc::ENOENT, libc::EACCES, libc::ENOTDIR, libc::ELOOP]);
    }
    script.check(slot, 0, u64::MAX, u64::MAX, libc::ENOENT);
    chosen.into_iter().for_each(|at| script.skip_to_here(at));
    found
}
