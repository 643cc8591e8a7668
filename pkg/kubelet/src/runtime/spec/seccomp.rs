//! Which system calls a container may make.

use super::super::{Error, Seccomp};
use oci_spec::runtime::{
    Arch, LinuxSeccomp, LinuxSeccompAction, LinuxSeccompArgBuilder, LinuxSeccompBuilder,
    LinuxSeccompOperator, LinuxSyscall, LinuxSyscallBuilder,
};

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
/// Flags of `clone` that make namespaces.
const NEW_NAMESPACES: u64 = 0x7e02_0000;

/// Every program may make these.
#[rustfmt::skip]
const ORDINARY: &[&str] = &[
    "accept", "accept4", "access", "adjtimex", "alarm", "arch_prctl", "bind", "brk", "cachestat", "capget", "capset",
    "chdir", "chmod", "chown", "chown32", "clock_adjtime", "clock_adjtime64", "clock_getres", "clock_getres_time64",
    "clock_gettime", "clock_gettime64", "clock_nanosleep", "clock_nanosleep_time64", "close", "close_range", "connect",
    "copy_file_range", "creat", "dup", "dup2", "dup3", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_ctl_old",
    "epoll_pwait", "epoll_pwait2", "epoll_wait", "epoll_wait_old", "eventfd", "eventfd2", "execve", "execveat", "exit",
    "exit_group", "faccessat", "faccessat2", "fadvise64", "fadvise64_64", "fallocate", "fanotify_mark", "fchdir",
    "fchmod", "fchmodat", "fchmodat2", "fchown", "fchown32", "fchownat", "fcntl", "fcntl64", "fdatasync", "fgetxattr",
    "flistxattr", "flock", "fork", "fremovexattr", "fsetxattr", "fstat", "fstat64", "fstatat64", "fstatfs",
    "fstatfs64", "fsync", "ftruncate", "ftruncate64", "futex", "futex_requeue", "futex_time64", "futex_wait",
    "futex_waitv", "futex_wake", "futimesat", "getcpu", "getcwd", "getdents", "getdents64", "getegid", "getegid32",
    "geteuid", "geteuid32", "getgid", "getgid32", "getgroups", "getgroups32", "getitimer", "getpeername", "getpgid",
    "getpgrp", "getpid", "getppid", "getpriority", "getrandom", "getresgid", "getresgid32", "getresuid",
    "getresuid32", "getrlimit", "get_robust_list", "getrusage", "getsid", "getsockname", "getsockopt",
    "get_thread_area", "gettid", "gettimeofday", "getuid", "getuid32", "getxattr", "inotify_add_watch",
    "inotify_init", "inotify_init1", "inotify_rm_watch", "io_cancel", "ioctl", "io_destroy", "io_getevents",
    "io_pgetevents", "io_pgetevents_time64", "ioprio_get", "ioprio_set", "io_setup", "io_submit", "ipc", "kill",
    "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self", "lchown", "lchown32", "lgetxattr",
    "link", "linkat", "listen", "listxattr", "llistxattr", "_llseek", "lremovexattr", "lseek", "lsetxattr", "lstat",
    "lstat64", "madvise", "map_shadow_stack", "membarrier", "memfd_create", "memfd_secret", "mincore", "mkdir",
    "mkdirat", "mknod", "mknodat", "mlock", "mlock2", "mlockall", "mmap", "mmap2", "modify_ldt", "mprotect",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedreceive_time64", "mq_timedsend",
    "mq_timedsend_time64", "mq_unlink", "mremap", "mseal", "msgctl", "msgget", "msgrcv", "msgsnd", "msync", "munlock",
    "munlockall", "munmap", "name_to_handle_at", "nanosleep", "newfstatat", "_newselect", "open", "openat", "openat2",
    "pause", "pidfd_open", "pidfd_send_signal", "pipe", "pipe2", "pkey_alloc", "pkey_free", "pkey_mprotect", "poll",
    "ppoll", "ppoll_time64", "prctl", "pread64", "preadv", "preadv2", "prlimit64", "process_mrelease", "pselect6",
    "pselect6_time64", "ptrace", "process_vm_readv", "process_vm_writev", "pwrite64", "pwritev", "pwritev2", "read",
    "readahead", "readlink", "readlinkat", "readv", "recv", "recvfrom", "recvmmsg", "recvmmsg_time64", "recvmsg",
    "remap_file_pages", "removexattr", "rename", "renameat", "renameat2", "restart_syscall", "rmdir", "rseq",
    "rt_sigaction", "rt_sigpending", "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend",
    "rt_sigtimedwait", "rt_sigtimedwait_time64", "rt_tgsigqueueinfo", "sched_getaffinity", "sched_getattr",
    "sched_getparam", "sched_get_priority_max", "sched_get_priority_min", "sched_getscheduler",
    "sched_rr_get_interval", "sched_rr_get_interval_time64", "sched_setaffinity", "sched_setattr", "sched_setparam",
    "sched_setscheduler", "sched_yield", "seccomp", "select", "semctl", "semget", "semop", "semtimedop",
    "semtimedop_time64", "send", "sendfile", "sendfile64", "sendmmsg", "sendmsg", "sendto", "setfsgid", "setfsgid32",
    "setfsuid", "setfsuid32", "setgid", "setgid32", "setgroups", "setgroups32", "setitimer", "setpgid", "setpriority",
    "setregid", "setregid32", "setresgid", "setresgid32", "setresuid", "setresuid32", "setreuid", "setreuid32",
    "setrlimit", "set_robust_list", "setsid", "setsockopt", "set_thread_area", "set_tid_address", "setuid",
    "setuid32", "setxattr", "shmat", "shmctl", "shmdt", "shmget", "shutdown", "sigaltstack", "signalfd", "signalfd4",
    "sigprocmask", "sigreturn", "socketcall", "socketpair", "splice", "stat", "stat64", "statfs", "statfs64", "statx",
    "symlink", "symlinkat", "sync", "sync_file_range", "syncfs", "sysinfo", "tee", "tgkill", "time", "timer_create",
    "timer_delete", "timer_getoverrun", "timer_gettime", "timer_gettime64", "timer_settime", "timer_settime64",
    "timerfd_create", "timerfd_gettime", "timerfd_gettime64", "timerfd_settime", "timerfd_settime64", "times", "tkill",
    "truncate", "truncate64", "ugetrlimit", "umask", "uname", "unlink", "unlinkat", "utime", "utimensat",
    "utimensat_time64", "utimes", "vfork", "vmsplice", "wait4", "waitid", "waitpid", "write", "writev",
];

/// What a capability lets a program do besides.
#[rustfmt::skip]
const BY_CAPABILITY: &[(&str, &[&str])] = &[
    ("BPF", &["bpf"]),
    ("DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("PERFMON", &["perf_event_open"]),
    ("SYSLOG", &["syslog"]),
    ("SYS_ADMIN", &[
        "bpf", "clone", "clone3", "fanotify_init", "fsconfig", "fsmount", "fsopen", "fspick", "lookup_dcookie",
        "mount", "mount_setattr", "move_mount", "open_tree", "perf_event_open", "quotactl", "quotactl_fd",
        "setdomainname", "sethostname", "setns", "syslog", "umount", "umount2", "unshare",
    ]),
    ("SYS_BOOT", &["reboot"]),
    ("SYS_CHROOT", &["chroot"]),
    ("SYS_MODULE", &["delete_module", "init_module", "finit_module"]),
    ("SYS_NICE", &["get_mempolicy", "mbind", "set_mempolicy", "set_mempolicy_home_node"]),
    ("SYS_PACCT", &["acct"]),
    ("SYS_PTRACE", &["kcmp", "pidfd_getfd", "process_madvise"]),
    ("SYS_RAWIO", &["iopl", "ioperm"]),
    ("SYS_TIME", &["settimeofday", "stime", "clock_settime", "clock_settime64"]),
    ("SYS_TTY_CONFIG", &["vhangup"]),
];

/// The filter for a container with these capabilities; none: all calls.
pub(crate) fn filter(seccomp: &Seccomp, capabilities: &[String]) -> Result<Option<LinuxSeccomp>, Error> {
    match seccomp {
        Seccomp::Unconfined => Ok(None),
        Seccomp::RuntimeDefault => Ok(Some(ordinary(capabilities))),
        Seccomp::Localhost(path) => {
            let wrong = |why: String| {
                Error::Container(format!(
                    "cannot load seccomp profile {:?}: {why}",
                    path.display().to_string()
                ))
            };
            let text = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
            serde_json::from_slice(&text).map(Some).map_err(|error| wrong(error.to_string()))
        }
    }
}

fn ordinary(capabilities: &[String]) -> LinuxSeccomp {
    let has = |name: &str| capabilities.iter().any(|capability| capability == name);
    let mut calls = vec![allow(ORDINARY)];
    calls.extend(
        BY_CAPABILITY.iter().filter(|(capability, _)| has(capability)).map(|(_, names)| allow(names)),
    );
    // Sockets of every family but that of the host's virtual machines.
    calls.push(compare(allow(&["socket"]), 0, 40, None, LinuxSeccompOperator::ScmpCmpNe));
    for persona in [0, 8, 0x2_0000, 0x2_0008, 0xffff_ffff] {
        calls.push(compare(allow(&["personality"]), 0, persona, None, LinuxSeccompOperator::ScmpCmpEq));
    }
    if !has("SYS_ADMIN") {
        let clone =
            compare(allow(&["clone"]), 0, NEW_NAMESPACES, Some(0), LinuxSeccompOperator::ScmpCmpMaskedEq);
        calls.push(clone);
        // Its flags lie in memory, where a filter cannot look: programs then use `clone`.
        let clone3 = LinuxSyscallBuilder::default()
            .names(vec!["clone3".to_owned()])
            .action(LinuxSeccompAction::ScmpActErrno)
            .errno_ret(ENOSYS);
        calls.push(clone3.build().expect("names and action are set"));
    }
    LinuxSeccompBuilder::default()
        .default_action(LinuxSeccompAction::ScmpActErrno)
        .default_errno_ret(EPERM)
        .architectures(architectures())
        .syscalls(calls)
        .build()
        .expect("the default action is set")
}

fn architectures() -> Vec<Arch> {
    match std::env::consts::ARCH {
        "x86_64" => vec![Arch::ScmpArchX86_64, Arch::ScmpArchX86, Arch::ScmpArchX32],
        "aarch64" => vec![Arch::ScmpArchAarch64, Arch::ScmpArchArm],
        _ => vec![Arch::ScmpArchNative],
    }
}

fn allow(names: &[&str]) -> LinuxSyscall {
    LinuxSyscallBuilder::default()
        .names(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .action(LinuxSeccompAction::ScmpActAllow)
        .build()
        .expect("names and action are set")
}

fn compare(
    call: LinuxSyscall,
    index: usize,
    value: u64,
    two: Option<u64>,
    op: LinuxSeccompOperator,
) -> LinuxSyscall {
    let mut argument = LinuxSeccompArgBuilder::default().index(index).value(value).op(op);
    if let Some(two) = two {
        argument = argument.value_two(two);
    }
    let mut call = call;
    call.set_args(Some(vec![argument.build().expect("index, value and operator are set")]));
    call
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(capabilities: &[&str]) -> String {
        let capabilities: Vec<String> = capabilities.iter().map(|name| (*name).to_owned()).collect();
        serde_json::to_string(&filter(&Seccomp::RuntimeDefault, &capabilities).expect("built in"))
            .expect("JSON")
    }

    #[test]
    fn capabilities_open_further_calls() {
        assert!(allowed(&[]).contains("\"openat\""));
        assert!(!allowed(&[]).contains("\"mount\""));
        assert!(allowed(&["SYS_ADMIN"]).contains("\"mount\""));
        assert!(!allowed(&[]).contains("\"chroot\""));
        assert!(allowed(&["SYS_CHROOT"]).contains("\"chroot\""));
    }

    #[test]
    fn a_profile_of_the_node_is_read_and_a_missing_one_named() {
        assert_eq!(filter(&Seccomp::Unconfined, &[]).expect("no filter"), None);
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("deny.json");
        std::fs::write(&path, r#"{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[]}"#).expect("written");
        assert!(filter(&Seccomp::Localhost(path), &[]).expect("a profile").is_some());
        let error = filter(&Seccomp::Localhost("/nowhere.json".into()), &[]).expect_err("no file");
        assert!(error.to_string().starts_with("cannot load seccomp profile \"/nowhere.json\""));
    }
}
