//! What holds a pod's namespaces: it sleeps, reaps the orphans of a shared process namespace, and ends on SIGTERM.
//!
//! Not a crate but one file: the kubelet's build script compiles it without any library, so that it is a few kilobytes,
//! and embeds it. It speaks to the kernel directly.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

const SIGINT: u64 = 2;
const SIGTERM: u64 = 15;
const SIGCHLD: u64 = 17;
const SIG_BLOCK: u64 = 0;
const WNOHANG: u64 = 1;
const SIGSET_BYTES: u64 = 8;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const SIGPROCMASK: u64 = 14;
    pub const WAIT: u64 = 61;
    pub const SIGTIMEDWAIT: u64 = 128;
    pub const EXIT: u64 = 231;
}

#[cfg(target_arch = "aarch64")]
mod number {
    pub const SIGPROCMASK: u64 = 135;
    pub const WAIT: u64 = 260;
    pub const SIGTIMEDWAIT: u64 = 137;
    pub const EXIT: u64 = 94;
}

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor %ebp, %ebp", "and $-16, %rsp", "call {main}", main = sym main, options(att_syntax));

#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "bl {main}", main = sym main);

/// The signals are blocked before they are waited for: a blocked signal is kept even for process 1, whose unhandled
/// signals the kernel drops.
extern "C" fn main() -> ! {
    let signals: u64 = bit(SIGINT) | bit(SIGTERM) | bit(SIGCHLD);
    let set = &raw const signals as u64;
    call(number::SIGPROCMASK, [SIG_BLOCK, set, 0, SIGSET_BYTES]);
    loop {
        match call(number::SIGTIMEDWAIT, [set, 0, 0, SIGSET_BYTES]) as u64 {
            SIGCHLD => while call(number::WAIT, [u64::MAX, 0, WNOHANG, 0]) > 0 {},
            SIGINT | SIGTERM => {
                call(number::EXIT, [0; 4]);
            }
            // Interrupted, as by a debugger.
            _ => {}
        }
    }
}

const fn bit(signal: u64) -> u64 {
    1 << (signal - 1)
}

#[cfg(target_arch = "x86_64")]
fn call(number: u64, [a, b, c, d]: [u64; 4]) -> i64 {
    let result: i64;
    // SAFETY: none of the calls above writes to memory of ours.
    unsafe {
        asm!("syscall", inlateout("rax") number as i64 => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
             out("rcx") _, out("r11") _);
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn call(number: u64, [a, b, c, d]: [u64; 4]) -> i64 {
    let result: i64;
    // SAFETY: none of the calls above writes to memory of ours.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a as i64 => result, in("x1") b, in("x2") c, in("x3") d);
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        call(number::EXIT, [1, 0, 0, 0]);
    }
}
