//! The parent of a pod's processes: it carries out the scripts that set them up, waits for them, and writes down how they
//! ended, whether or not a shim is there to hear it.
//!
//! ```text
//! shim ── script, descriptors ──> keeper ── clone ──> process ── the script's calls ──> execve
//!      <── pid, status, time ────    └── the same, appended to a file (descriptor 1)
//! ```
//!
//! It is in no namespace of its containers, is not dumpable, and runs from a sealed memfd: no container can trace it, see
//! its files or change its program. It ends when it has neither a child nor a shim.
//!
//! Not a crate but one file, without any library: a few kilobytes for each pod.

#![no_std]
#![no_main]

#[path = "../src/script.rs"]
#[allow(dead_code)]
mod script;

use core::arch::{asm, global_asm};
use script::*;

/// Whoever starts a keeper connects at once.
const FIRST_SHIM_WITHIN_S: u64 = 10;
const LISTENER: i64 = 0;
const ENDS: i64 = 1;
const NONE: i64 = -1;
/// Processes that carry out the first part of a script, at one time.
const MOST_STAGES: usize = 64;
const ECHILD: i64 = -10;
const EINTR: i64 = -4;
const WNOHANG: u64 = 1;
const SIGCHLD: u64 = 17;
const CLONE_PARENT: u64 = 0x8000;
const POLLIN: u16 = 1;
const CLOEXEC: u64 = 0o2000000;
const NONBLOCK: u64 = 0o4000;
const MSG_CMSG_CLOEXEC: u64 = 0x4000_0000;
const MSG_NOSIGNAL: u64 = 0x4000;
const MSG_DONTWAIT: u64 = 0x40;
const SOL_SOCKET: u64 = 1;
const ACCEPTS: u64 = 30;
const SIGNAL_SET_BYTES: u64 = 8;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const CLOSE: u64 = 3;
    pub const MMAP: u64 = 9;
    pub const SIGPROCMASK: u64 = 14;
    pub const SENDTO: u64 = 44;
    pub const RECVMSG: u64 = 47;
    pub const GETSOCKOPT: u64 = 55;
    pub const CLONE: u64 = 56;
    pub const WAIT4: u64 = 61;
    pub const SETSID: u64 = 112;
    pub const PRCTL: u64 = 157;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const EXIT: u64 = 231;
    pub const PPOLL: u64 = 271;
    pub const ACCEPT4: u64 = 288;
    pub const SIGNALFD4: u64 = 289;
    pub const CLOSE_RANGE: u64 = 436;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const READ: u64 = 63;
    pub const WRITE: u64 = 64;
    pub const CLOSE: u64 = 57;
    pub const MMAP: u64 = 222;
    pub const SIGPROCMASK: u64 = 135;
    pub const SENDTO: u64 = 206;
    pub const RECVMSG: u64 = 212;
    pub const GETSOCKOPT: u64 = 209;
    pub const CLONE: u64 = 220;
    pub const WAIT4: u64 = 260;
    pub const SETSID: u64 = 157;
    pub const PRCTL: u64 = 167;
    pub const CLOCK_GETTIME: u64 = 113;
    pub const EXIT: u64 = 94;
    pub const PPOLL: u64 = 73;
    pub const ACCEPT4: u64 = 242;
    pub const SIGNALFD4: u64 = 74;
    pub const CLOSE_RANGE: u64 = 436;
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor %ebp, %ebp", "and $-16, %rsp", "call {main}", main = sym main, options(att_syntax));

#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "bl {main}", main = sym main);

#[repr(C)]
struct PollFd {
    fd: i32,
    events: u16,
    revents: u16,
}

#[repr(C)]
struct Vector {
    base: u64,
    length: u64,
}

#[repr(C)]
struct Message {
    name: u64,
    name_length: u64,
    vectors: u64,
    vector_count: u64,
    control: u64,
    control_length: u64,
    flags: u64,
}

/// What comes with a message: descriptors, and nothing else is asked for.
#[repr(C)]
struct Control {
    length: u64,
    level: i32,
    kind: i32,
    fds: [i32; MOST_FDS + 1],
}

struct Keeper {
    signals: i64,
    shim: i64,
    had_shim: bool,
    has_children: bool,
    stages: [i64; MOST_STAGES],
}

extern "C" fn main() -> ! {
    // Where it is run as anything else, as by a container that was told to run what sets it up, it does nothing.
    if option_of(LISTENER, ACCEPTS) != 1 {
        exit(1);
    }
    call(number::CLOSE_RANGE, [3, u32::MAX as u64, 0, 0, 0, 0]);
    call(number::SETSID, [0; 6]);
    const SET_DUMPABLE: u64 = 4;
    call(number::PRCTL, [SET_DUMPABLE, 0, 0, 0, 0, 0]);
    let all = u64::MAX;
    set_mask(all);
    let children: u64 = 1 << (SIGCHLD - 1);
    let signals = call(
        number::SIGNALFD4,
        [NONE as u64, &raw const children as u64, SIGNAL_SET_BYTES, CLOEXEC | NONBLOCK, 0, 0],
    );
    let mut keeper =
        Keeper { signals, shim: NONE, had_shim: false, has_children: false, stages: [0; MOST_STAGES] };
    while !(keeper.had_shim && keeper.shim == NONE && !keeper.has_children) {
        keeper.turn();
    }
    exit(0)
}

impl Keeper {
    fn turn(&mut self) {
        let mut polled = [
            PollFd { fd: self.signals as i32, events: POLLIN, revents: 0 },
            PollFd { fd: LISTENER as i32, events: POLLIN, revents: 0 },
            // A negative descriptor is passed over.
            PollFd { fd: self.shim as i32, events: POLLIN, revents: 0 },
        ];
        let patience = [FIRST_SHIM_WITHIN_S, 0u64];
        let patience = if self.had_shim { 0 } else { &raw const patience as u64 };
        match call(number::PPOLL, [&raw mut polled as u64, 3, patience, 0, 0, 0]) {
            // The shim that started it was killed before it could connect.
            0 => exit(0),
            failed if failed < 0 => return,
            _ => {}
        }
        if polled[0].revents != 0 {
            let mut told = [0u8; 128];
            call(number::READ, [self.signals as u64, &raw mut told as u64, 128, 0, 0, 0]);
        }
        if polled[2].revents != 0 {
            self.obey();
        }
        if polled[1].revents != 0 {
            self.accept();
        }
        self.reap();
    }

    /// The next shim takes the place of the last.
    fn accept(&mut self) {
        let came = call(number::ACCEPT4, [LISTENER as u64, 0, 0, CLOEXEC, 0, 0]);
        if came < 0 {
            return;
        }
        const PEERCRED: u64 = 17;
        let mut peer = [0u32; 3];
        let mut length = 12u32;
        let asked = call(
            number::GETSOCKOPT,
            [came as u64, SOL_SOCKET, PEERCRED, &raw mut peer as u64, &raw mut length as u64, 0],
        );
        if asked < 0 || peer[1] != 0 {
            close(came);
            return;
        }
        if self.shim != NONE {
            close(self.shim);
        }
        self.shim = came;
        self.had_shim = true;
    }

    fn obey(&mut self) {
        let mut order = Order { kind: 0, length: 0 };
        let mut control = Control { length: 0, level: 0, kind: 0, fds: [-1; MOST_FDS + 1] };
        let vector = Vector { base: &raw mut order as u64, length: size_of::<Order>() as u64 };
        let mut message = Message {
            name: 0,
            name_length: 0,
            vectors: &raw const vector as u64,
            vector_count: 1,
            control: &raw mut control as u64,
            control_length: size_of::<Control>() as u64,
            flags: 0,
        };
        let came = call(
            number::RECVMSG,
            [self.shim as u64, &raw mut message as u64, MSG_CMSG_CLOEXEC | MSG_DONTWAIT, 0, 0, 0],
        );
        const EAGAIN: i64 = -11;
        if came == EAGAIN || came == EINTR {
            return;
        }
        if came < size_of::<Order>() as i64 {
            close(self.shim);
            self.shim = NONE;
            return;
        }
        if order.kind == QUIT {
            exit(0);
        }
        let given = if message.control_length >= 16 { (control.length as usize - 16) / 4 } else { 0 };
        if order.kind == RUN && given >= 2 {
            self.run(&control.fds, given, order.length);
        }
        let mut index = 0;
        while index < given {
            close(control.fds[index] as i64);
            index += 1;
        }
    }

    fn run(&mut self, fds: &[i32; MOST_FDS + 1], given: usize, length: u32) {
        let mut free = 0;
        while free < MOST_STAGES && self.stages[free] != 0 {
            free += 1;
        }
        if free == MOST_STAGES {
            return;
        }
        let pid = call(number::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]);
        if pid == 0 {
            close(self.signals);
            close(self.shim);
            set_mask(0);
            carry_out(fds, given, length);
        }
        if pid > 0 {
            self.stages[free] = pid;
            self.has_children = true;
        }
    }

    fn reap(&mut self) {
        loop {
            let mut status = 0u32;
            let pid = call(number::WAIT4, [u64::MAX, &raw mut status as u64, WNOHANG, 0, 0, 0]);
            if pid == EINTR {
                continue;
            }
            self.has_children = pid != ECHILD;
            if pid <= 0 {
                return;
            }
            let mut index = 0;
            while index < MOST_STAGES && self.stages[index] != pid {
                index += 1;
            }
            if index < MOST_STAGES {
                self.stages[index] = 0;
                continue;
            }
            let mut now = [0u64; 2];
            call(number::CLOCK_GETTIME, [0, &raw mut now as u64, 0, 0, 0, 0]);
            let ended = Ended { pid: pid as u32, status, at_ns: now[0] * 1_000_000_000 + now[1] };
            let (at, length) = (&raw const ended as u64, size_of::<Ended>() as u64);
            call(number::WRITE, [ENDS as u64, at, length, 0, 0, 0]);
            if self.shim != NONE {
                // One that does not read finds it in the file.
                call(number::SENDTO, [self.shim as u64, at, length, MSG_NOSIGNAL | MSG_DONTWAIT, 0, 0]);
            }
        }
    }
}

/// Carries a script out. Nothing here allocates, and nothing is read but the script.
fn carry_out(fds: &[i32; MOST_FDS + 1], given: usize, length: u32) -> ! {
    const READ_WRITE: u64 = 3;
    const PRIVATE: u64 = 2;
    let mut registers = [0i64; REGISTERS];
    let mut index = 1;
    while index < given {
        registers[index - 1] = fds[index] as i64;
        index += 1;
    }
    let base = call(number::MMAP, [0, length as u64, READ_WRITE, PRIVATE, fds[0] as u64, 0]);
    if base < 0 && base > -4096 {
        fail(&registers, u32::MAX, -base);
    }
    close(fds[0] as i64);
    let base = base as u64;
    // SAFETY: the shim wrote a header there, and the mapping is this process' own.
    let header = unsafe { *(base as *const Header) };
    let data = base + header.data as u64;
    let mut at = 0u32;
    while at < header.ops {
        let place = base + size_of::<Header>() as u64 + at as u64 * size_of::<Op>() as u64;
        // SAFETY: as many ops follow the header as it says.
        let op = unsafe { &*(place as *const Op) };
        let mut args = [0u64; 6];
        let mut index = 0;
        while index < 6 {
            args[index] = match op.kinds >> (2 * index) & 3 {
                POINTER => data + op.args[index],
                REGISTER => registers[op.args[index] as usize] as u64,
                _ => op.args[index],
            };
            index += 1;
        }
        let result = match op.number {
            STORE => {
                // SAFETY: the offset is in the data, which is private and writable.
                unsafe { *((data + args[0]) as *mut u64) = args[1] };
                args[1] as i64
            }
            RELOCATE => {
                let mut index = 0;
                while index < args[1] {
                    let place = (data + args[0] + 8 * index) as *mut u64;
                    // SAFETY: as many offsets lie in the data, which is private and writable.
                    unsafe { *place += data };
                    index += 1;
                }
                0
            }
            CHECK => {
                // SAFETY: the offset is in the data.
                let found = unsafe { *((data + args[0]) as *const u64) };
                if found & args[1] == args[2] { 0 } else { -(args[3] as i64) }
            }
            SPLIT => split(&registers, args[0]),
            number => call(number as u64, args),
        };
        let failed = result < 0 && result > -4096;
        if op.out != NOWHERE {
            registers[op.out as usize] = result;
        }
        at = if !failed {
            if op.after_success == 0 { at + 1 } else { op.after_success as u32 }
        } else if op.allowed.contains(&(-result as u16)) {
            if op.after_error == 0 { at + 1 } else { op.after_error as u32 }
        } else {
            fail(&registers, at, -result)
        };
    }
    exit(FAILED_CODE as u64)
}

fn split(registers: &[i64; REGISTERS], flags: u64) -> i64 {
    let pid = call(number::CLONE, [CLONE_PARENT | SIGCHLD | flags, 0, 0, 0, 0, 0]);
    if pid > 0 {
        tell(registers, &News { kind: PID, op: 0, value: pid });
        exit(0);
    }
    pid
}

fn fail(registers: &[i64; REGISTERS], op: u32, errno: i64) -> ! {
    tell(registers, &News { kind: FAILED, op, value: errno });
    exit(FAILED_CODE as u64)
}

fn tell(registers: &[i64; REGISTERS], news: &News) {
    let to = registers[STATUS as usize] as u64;
    call(number::WRITE, [to, &raw const *news as u64, size_of::<News>() as u64, 0, 0, 0]);
}

fn option_of(socket: i64, option: u64) -> u32 {
    let (mut value, mut length) = (0u32, 4u32);
    let (at, length) = (&raw mut value as u64, &raw mut length as u64);
    call(number::GETSOCKOPT, [socket as u64, SOL_SOCKET, option, at, length, 0]);
    value
}

fn set_mask(mask: u64) {
    const SETMASK: u64 = 2;
    call(number::SIGPROCMASK, [SETMASK, &raw const mask as u64, 0, SIGNAL_SET_BYTES, 0, 0]);
}

fn close(fd: i64) {
    call(number::CLOSE, [fd as u64, 0, 0, 0, 0, 0]);
}

fn exit(code: u64) -> ! {
    loop {
        call(number::EXIT, [code, 0, 0, 0, 0, 0]);
    }
}

#[cfg(target_arch = "x86_64")]
fn call(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: callers give addresses of memory that lives longer than the call and is as long as they say.
    unsafe {
        asm!("syscall", inlateout("rax") number as i64 => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             in("r8") e, in("r9") f, out("rcx") _, out("r11") _);
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn call(number: u64, [a, b, c, d, e, f]: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: callers give addresses of memory that lives longer than the call and is as long as they say.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as i64 => result, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
             in("x5") f);
    }
    result
}

/// The compiler asks for these. Volatile, so that it does not make calls of themselves of them.
///
/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    let mut index = 0;
    while index < count {
        // SAFETY: the caller's memory is that long.
        unsafe { to.add(index).write_volatile(value as u8) };
        index += 1;
    }
    to
}

/// # Safety
/// As C has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    let mut index = 0;
    while index < count {
        // SAFETY: the caller's memory is that long.
        unsafe { to.add(index).write_volatile(*from.add(index)) };
        index += 1;
    }
    to
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(1)
}

/// The compiler's own library names it where it checks bounds. Nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
