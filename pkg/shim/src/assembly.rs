//! Writes scripts: one method for each thing that a set-up does often. What is written here is only carried out in the
//! process that becomes the container.

use crate::script::{
    CHECK, Header, IMMEDIATE, NOWHERE, Op, POINTER, REGISTER, REGISTERS, RELOCATE, SPLIT, STATUS, STORE,
};
use nix::libc;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// An argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg {
    /// As it stands.
    Is(u64),
    /// The address of what lies there in the data.
    At(u64),
    /// The result of an earlier call.
    Of(Reg),
}

/// A place for a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg(pub u8);

/// "Nothing" as an address, and zero as a number.
pub const NULL: Arg = Arg::Is(0);
/// The folder that relative paths begin at is given by nobody: paths are absolute.
pub const NO_FOLDER: Arg = Arg::Is(libc::AT_FDCWD as u64);

/// Paths are followed as if that folder were the root, and never by what procfs calls links.
pub const IN_ROOT: u64 = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
/// The same, and no link is followed.
pub const IN_ROOT_NO_LINKS: u64 = IN_ROOT | libc::RESOLVE_NO_SYMLINKS;

const MOVE_BY_FDS: u64 = 0x04 | 0x40;
const OPEN_TREE_CLONE: u64 = 1;
const OPEN_TREE_CLOEXEC: u64 = libc::O_CLOEXEC as u64;
const AT_RECURSIVE: u64 = 0x8000;
const AT_EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;
const FSCONFIG_SET_FLAG: u64 = 0;
const FSCONFIG_SET_STRING: u64 = 1;
const FSCONFIG_CREATE: u64 = 6;

/// A script that is being written.
pub struct Script {
    ops: Vec<Op>,
    data: Vec<u8>,
    labels: Vec<String>,
    fds: Vec<OwnedFd>,
    used: u8,
    /// For what is closed again at once.
    passing: Option<Reg>,
    passing_folder: Option<Reg>,
    /// What is being done, for who reads the error.
    label: String,
}

impl Script {
    /// A script that tells its news there.
    pub fn new(status: OwnedFd) -> Self {
        let mut script = Script {
            ops: Vec::new(),
            data: Vec::new(),
            labels: Vec::new(),
            fds: Vec::new(),
            used: 0,
            passing: None,
            passing_folder: None,
            label: String::new(),
        };
        let first = script.give(status);
        debug_assert_eq!(first.0, STATUS);
        script
    }

    /// Gives it a descriptor. All are given before anything else is asked for.
    pub fn give(&mut self, fd: OwnedFd) -> Reg {
        self.fds.push(fd);
        self.register()
    }

    /// A new place for results.
    pub fn register(&mut self) -> Reg {
        assert!(usize::from(self.used) < REGISTERS, "plans are bounded");
        self.used += 1;
        Reg(self.used - 1)
    }

    /// A place for a result that is of no use a few calls later.
    fn passing(&mut self) -> Reg {
        let register = match self.passing {
            Some(register) => register,
            None => self.register(),
        };
        self.passing = Some(register);
        register
    }

    /// The folder of what is made at this moment.
    pub fn passing_folder(&mut self) -> Reg {
        let register = match self.passing_folder {
            Some(register) => register,
            None => self.register(),
        };
        self.passing_folder = Some(register);
        register
    }

    /// A place to skip from, whatever came before.
    pub fn jump(&mut self) -> usize {
        self.call(libc::SYS_getpid, &[])
    }

    /// What the following calls are for.
    pub fn doing(&mut self, what: impl Into<String>) {
        self.label = what.into();
    }

    /// Puts bytes into the data, at a multiple of eight.
    pub fn bytes(&mut self, bytes: &[u8]) -> Arg {
        while !self.data.len().is_multiple_of(8) {
            self.data.push(0);
        }
        let at = self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        Arg::At(at)
    }

    /// Text as C has it. What has a NUL byte in it ends there: who plans has looked.
    pub fn text(&mut self, text: impl AsRef<std::ffi::OsStr>) -> Arg {
        let at = self.bytes(text.as_ref().as_bytes());
        self.data.push(0);
        at
    }

    /// Numbers of eight bytes, one after the other.
    pub fn words(&mut self, words: &[u64]) -> Arg {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.bytes(&bytes)
    }

    /// A call. Gives its place in the script.
    pub fn call(&mut self, number: libc::c_long, args: &[Arg]) -> usize {
        self.push(number as u32, args)
    }

    /// A call whose result is kept.
    pub fn call_into(&mut self, out: Reg, number: libc::c_long, args: &[Arg]) -> usize {
        let at = self.call(number, args);
        self.ops[at].out = out.0;
        at
    }

    fn push(&mut self, number: u32, args: &[Arg]) -> usize {
        let mut op = Op {
            number,
            out: NOWHERE,
            pad: 0,
            kinds: 0,
            args: [0; 6],
            allowed: [0; 4],
            after_success: 0,
            after_error: 0,
            pad2: 0,
        };
        for (index, arg) in args.iter().enumerate() {
            let (kind, value) = match arg {
                Arg::Is(value) => (IMMEDIATE, *value),
                Arg::At(offset) => (POINTER, *offset),
                Arg::Of(register) => (REGISTER, u64::from(register.0)),
            };
            op.kinds |= kind << (2 * index);
            op.args[index] = value;
        }
        self.ops.push(op);
        self.labels.push(self.label.clone());
        self.ops.len() - 1
    }

    /// These errors of a call are no failure.
    pub fn allow(&mut self, at: usize, errors: &[i32]) {
        for (place, error) in self.ops[at].allowed.iter_mut().zip(errors) {
            *place = *error as u16;
        }
    }

    /// After these errors, what comes next is what will be written next.
    pub fn skip_to_here_after(&mut self, at: usize, errors: &[i32]) {
        self.allow(at, errors);
        self.ops[at].after_error = self.ops.len() as u16;
    }

    /// After success, what comes next is what will be written next.
    pub fn skip_to_here(&mut self, at: usize) {
        self.ops[at].after_success = self.ops.len() as u16;
    }

    /// Puts a value, which is only known then, into the data.
    pub fn store(&mut self, at: Arg, offset: u64, value: Arg) {
        let Arg::At(start) = at else { return };
        self.push(STORE, &[Arg::Is(start + offset), value]);
    }

    /// The address of a piece of data, in a register.
    pub fn choose(&mut self, out: Reg, slot: Arg, chosen: Arg) -> usize {
        let Arg::At(start) = slot else { return 0 };
        let at = self.push(STORE, &[Arg::Is(start), chosen]);
        self.ops[at].out = out.0;
        at
    }

    /// A list of texts as C has it, with nothing at its end.
    pub fn list(&mut self, texts: &[String]) -> Arg {
        let offsets: Vec<u64> = texts
            .iter()
            .filter_map(|text| match self.text(text) {
                Arg::At(offset) => Some(offset),
                _ => None,
            })
            .collect();
        let list = self.words(&[offsets.as_slice(), &[0]].concat());
        if let Arg::At(start) = list {
            self.push(RELOCATE, &[Arg::Is(start), Arg::Is(offsets.len() as u64)]);
        }
        list
    }

    /// Fails with this error unless what a call wrote into the data is so.
    pub fn check(&mut self, at: Arg, offset: u64, mask: u64, expected: u64, errno: i32) -> usize {
        let Arg::At(start) = at else { return 0 };
        self.push(CHECK, &[Arg::Is(start + offset), Arg::Is(mask), Arg::Is(expected), Arg::Is(errno as u64)])
    }

    /// Goes on in a new process, with new namespaces.
    pub fn split(&mut self, flags: libc::c_int) {
        self.push(SPLIT, &[Arg::Is(flags as u64)]);
    }

    /// `openat2`.
    pub fn open(&mut self, out: Reg, folder: Arg, path: &Path, flags: libc::c_int, resolve: u64) -> usize {
        let path = self.text(path);
        let how = self.words(&[(flags | libc::O_CLOEXEC) as u64, 0, resolve]);
        self.call_into(out, libc::SYS_openat2, &[folder, path, how, Arg::Is(24)])
    }

    /// Closes a descriptor.
    pub fn close(&mut self, fd: Reg) {
        self.call(libc::SYS_close, &[Arg::Of(fd)]);
    }

    /// Opens a place in a root for something to be mounted on; makes it, if it is not there.
    pub fn open_target(&mut self, out: Reg, root: Reg, path: &Path, is_folder: bool, resolve: u64) {
        let relative = relative(path);
        let flags = if is_folder { libc::O_PATH | libc::O_DIRECTORY } else { libc::O_PATH };
        let found = self.open(out, Arg::Of(root), &relative, flags, resolve);
        self.allow(found, &[libc::ENOENT]);
        let parts: Vec<Component<'_>> = relative.components().collect();
        let parent = self.passing();
        let mut above = PathBuf::new();
        for (index, part) in parts.iter().enumerate() {
            let at = if index == 0 { Path::new(".") } else { above.as_path() };
            self.open(parent, Arg::Of(root), at, libc::O_PATH | libc::O_DIRECTORY, resolve);
            let name = self.text(part);
            let made = if is_folder || index + 1 < parts.len() {
                self.call(libc::SYS_mkdirat, &[Arg::Of(parent), name, Arg::Is(0o755)])
            } else {
                let plain = u64::from(libc::S_IFREG) | 0o644;
                self.call(libc::SYS_mknodat, &[Arg::Of(parent), name, Arg::Is(plain), NULL])
            };
            // What is not there and cannot be made is not found in the end.
            self.allow(made, &[libc::EEXIST, libc::EROFS, libc::EACCES]);
            self.close(parent);
            above.push(part);
        }
        self.open(out, Arg::Of(root), &relative, flags, resolve);
        self.skip_to_here(found);
    }

    /// A tree of mounts like that one, which is nowhere yet.
    pub fn clone_tree(&mut self, out: Reg, folder: Arg, path: &Path, is_recursive: bool) -> usize {
        let empty = path.as_os_str().is_empty();
        let path = self.text(path);
        let flags = OPEN_TREE_CLONE
            | OPEN_TREE_CLOEXEC
            | if is_recursive { AT_RECURSIVE } else { 0 }
            | if empty { AT_EMPTY_PATH } else { 0 };
        self.call_into(out, libc::SYS_open_tree, &[folder, path, Arg::Is(flags)])
    }

    /// Changes how something is mounted.
    pub fn set_attributes(
        &mut self,
        tree: Reg,
        set: u64,
        clear: u64,
        propagation: libc::c_ulong,
        recursive: bool,
    ) {
        let empty = self.text("");
        let attributes = self.words(&[set, clear, propagation, 0]);
        let flags = AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
        self.call(libc::SYS_mount_setattr, &[Arg::Of(tree), empty, Arg::Is(flags), attributes, Arg::Is(32)]);
    }

    /// Mounts what is nowhere yet.
    pub fn attach(&mut self, tree: Reg, target: Reg) {
        let empty = self.text("");
        self.call(
            libc::SYS_move_mount,
            &[Arg::Of(tree), empty, Arg::Of(target), empty, Arg::Is(MOVE_BY_FDS)],
        );
    }

    /// A new file system, which is nowhere yet.
    pub fn new_mount(&mut self, out: Reg, kind: &str, options: &[(String, Option<String>)], attributes: u64) {
        let context = self.passing();
        let kind = self.text(kind);
        self.call_into(context, libc::SYS_fsopen, &[kind, Arg::Is(1)]);
        for (key, value) in options {
            let key = self.text(key);
            match value {
                Some(value) => {
                    let value = self.text(value);
                    let set = Arg::Is(FSCONFIG_SET_STRING);
                    self.call(libc::SYS_fsconfig, &[Arg::Of(context), set, key, value, NULL]);
                }
                None => {
                    let set = Arg::Is(FSCONFIG_SET_FLAG);
                    self.call(libc::SYS_fsconfig, &[Arg::Of(context), set, key, NULL, NULL]);
                }
            }
        }
        self.call(libc::SYS_fsconfig, &[Arg::Of(context), Arg::Is(FSCONFIG_CREATE), NULL, NULL, NULL]);
        self.call_into(out, libc::SYS_fsmount, &[Arg::Of(context), Arg::Is(1), Arg::Is(attributes)]);
        self.close(context);
    }

    /// What each op is for, to be kept when the script is gone.
    pub fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// The script as it is read, and what goes with it.
    pub fn assembled(&self) -> (Vec<u8>, Vec<BorrowedFd<'_>>) {
        assert!(self.ops.len() < usize::from(u16::MAX), "plans are bounded");
        let ops_end = size_of::<Header>() + self.ops.len() * size_of::<Op>();
        let mut bytes = Vec::with_capacity(ops_end + self.data.len());
        bytes.extend_from_slice(&(self.ops.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(&(ops_end as u32).to_ne_bytes());
        for op in &self.ops {
            bytes.extend_from_slice(&op.number.to_ne_bytes());
            bytes.extend_from_slice(&[op.out, op.pad]);
            bytes.extend_from_slice(&op.kinds.to_ne_bytes());
            op.args.iter().for_each(|arg| bytes.extend_from_slice(&arg.to_ne_bytes()));
            op.allowed.iter().for_each(|errno| bytes.extend_from_slice(&errno.to_ne_bytes()));
            bytes.extend_from_slice(&op.after_success.to_ne_bytes());
            bytes.extend_from_slice(&op.after_error.to_ne_bytes());
            bytes.extend_from_slice(&op.pad2.to_ne_bytes());
        }
        bytes.extend_from_slice(&self.data);
        (bytes, self.fds.iter().map(AsFd::as_fd).collect())
    }
}

/// A path of a container, from its root: without `.` and `..`.
pub fn relative(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => tidy.push(part),
            Component::ParentDir => drop(tidy.pop()),
            _ => {}
        }
    }
    tidy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_never_leave_their_root() {
        for (path, expected) in
            [("/a/b", "a/b"), ("/../../etc", "etc"), ("/a/./../b/", "b"), ("a//b", "a/b"), ("/", "")]
        {
            assert_eq!(relative(Path::new(path)), Path::new(expected), "{path}");
        }
    }

    #[test]
    fn what_is_written_is_what_both_sides_know() {
        assert_eq!(size_of::<Op>(), 72);
        let null = std::fs::File::open("/dev/null").expect("it is there");
        let mut script = Script::new(null.into());
        let kept = script.register();
        let path = script.text("/x");
        script.call_into(kept, 7, &[Arg::Is(9), path, Arg::Of(Reg(0))]);
        let (bytes, fds) = script.assembled();
        assert_eq!(fds.len(), 1);
        assert_eq!(bytes[..4], 1u32.to_ne_bytes());
        assert_eq!(bytes[4..8], 80u32.to_ne_bytes());
        assert_eq!(bytes[8..16], [7, 0, 0, 0, 1, 0, 0b10_0100, 0]);
        assert_eq!(&bytes[80..], b"/x\0");
    }
}
