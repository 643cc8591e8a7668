//! A script: the system calls that set a container up, laid out flat. It is written by the shim, which may allocate, and
//! carried out by a process that may not ([`Op`] by [`Op`], in `programs/keeper.rs`).
//!
//! ```text
//! memfd: | Header | Op, Op, Op … | data: paths, structures, the seccomp filter |
//! ```
//!
//! This file is compiled into both, without the standard library: it is what they agree on, and nothing more.

/// How many values a script can remember. The descriptors it is given are the first.
pub const REGISTERS: usize = 160;
/// Where failures and news are written to: a pipe whose other end the shim reads.
pub const STATUS: u8 = 0;
/// "Keep no result."
pub const NOWHERE: u8 = u8::MAX;
/// As many descriptors go with one script.
pub const MOST_FDS: usize = 60;

/// Writes a value (second) as eight bytes into the data at an offset (first). Its result is the value.
pub const STORE: u32 = 0xffff_0001;
/// Fails with an errno (fourth) unless the eight bytes at an offset (first), masked (second), are this (third).
pub const CHECK: u32 = 0xffff_0002;
/// Makes addresses of so many (second) offsets, which lie in the data at an offset (first).
pub const RELOCATE: u32 = 0xffff_0004;
/// Becomes two: with these flags (first), the new one being the keeper's child, too. The old one tells its pid and ends.
pub const SPLIT: u32 = 0xffff_0003;

/// The argument is as it stands.
pub const IMMEDIATE: u16 = 0;
/// The argument is an offset into the data.
pub const POINTER: u16 = 1;
/// The argument is the value of a register.
pub const REGISTER: u16 = 2;

/// What comes first.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    /// How many [`Op`]s follow.
    pub ops: u32,
    /// Where the data begins.
    pub data: u32,
}

/// One system call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Op {
    /// The number of the call, or [`STORE`], [`CHECK`], [`SPLIT`].
    pub number: u32,
    /// The register for its result, or [`NOWHERE`].
    pub out: u8,
    /// Unused.
    pub pad: u8,
    /// Two bits for each argument: what it is.
    pub kinds: u16,
    /// What it is called with.
    pub args: [u64; 6],
    /// Errors that are no failure.
    pub allowed: [u16; 4],
    /// Which op is next after success; zero: the following one.
    pub after_success: u16,
    /// The same after an error that is allowed.
    pub after_error: u16,
    /// Unused.
    pub pad2: u32,
}

/// A message on the status pipe.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct News {
    /// [`PID`], [`READY`] or [`FAILED`].
    pub kind: u32,
    /// Which op failed.
    pub op: u32,
    /// The pid as the node sees it, what the script says, or the errno.
    pub value: i64,
}

/// The process that goes on has this pid.
pub const PID: u32 = 1;
/// All is set up; the script waits.
pub const READY: u32 = 2;
/// An op failed, and the process ends.
pub const FAILED: u32 = 3;
/// What a process returns whose script failed.
pub const FAILED_CODE: u32 = 127;

/// A message to the keeper. The descriptors that go with it are the script's memfd and its registers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Order {
    /// [`RUN`] or [`QUIT`].
    pub kind: u32,
    /// How many bytes the script has.
    pub length: u32,
}

/// Carry out a script in a new process.
pub const RUN: u32 = 1;
/// End: nobody is left.
pub const QUIT: u32 = 2;

/// How a child of the keeper ended: what it writes down, and tells the shim.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Who.
    pub pid: u32,
    /// As `wait` gives it.
    pub status: u32,
    /// When, in nanoseconds since 1970.
    pub at_ns: u64,
}
