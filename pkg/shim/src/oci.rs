//! The OCI runtime specification, as far as it is done here. What else a specification says is found by
//! [`crate::plan`], which knows every field by name.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Its first process.
    pub process: Process,
    /// Its file system.
    pub root: Root,
    /// The name of its UTS namespace.
    pub hostname: String,
    /// What is mounted, in this order.
    pub mounts: Vec<Mount>,
    /// By which its pod is known.
    pub annotations: BTreeMap<String, String>,
    /// What is Linux' own.
    pub linux: Linux,
}

/// A process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    /// Whether it has a terminal.
    pub terminal: bool,
    /// The terminal's size.
    pub console_size: Option<ConsoleSize>,
    /// Who it is.
    pub user: User,
    /// The program and its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<String>,
    /// Its working directory.
    pub cwd: String,
    /// What it may do.
    pub capabilities: Option<Capabilities>,
    /// Its limits.
    pub rlimits: Vec<Rlimit>,
    /// Whether a program may give it more than it has.
    pub no_new_privileges: bool,
    /// How soon it is killed for want of memory.
    pub oom_score_adj: Option<i32>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct ConsoleSize {
    /// Lines.
    pub height: u16,
    /// Columns.
    pub width: u16,
}

/// A user with groups.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// What new files do not get.
    pub umask: Option<u32>,
    /// More groups.
    pub additional_gids: Vec<u32>,
}

/// Sets of capabilities, by name.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// What can ever be had.
    pub bounding: Vec<String>,
    /// What is had now.
    pub effective: Vec<String>,
    /// What can be had by asking.
    pub permitted: Vec<String>,
    /// What is kept by programs that say so.
    pub inheritable: Vec<String>,
    /// What is kept by all programs.
    pub ambient: Vec<String>,
}

/// A limit of a process.
#[derive(Debug, Clone, Deserialize)]
pub struct Rlimit {
    /// Such as `RLIMIT_NOFILE`.
    #[serde(rename = "type")]
    pub kind: String,
    /// It may not raise it above this.
    pub hard: u64,
    /// It has this now.
    pub soft: u64,
}

/// The root of the file system.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Root {
    /// Where it is, from the bundle.
    pub path: PathBuf,
    /// Whether nothing in it can be changed.
    pub readonly: bool,
}

/// Something mounted.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Mount {
    /// Where.
    pub destination: PathBuf,
    /// Of which file system.
    #[serde(rename = "type")]
    pub kind: String,
    /// What.
    pub source: PathBuf,
    /// How.
    pub options: Vec<String>,
}

/// What is Linux' own.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Linux {
    /// Those made, and those joined.
    pub namespaces: Vec<Namespace>,
    /// Devices besides those that every container has.
    pub devices: Vec<Device>,
    /// Its control group.
    pub cgroups_path: String,
    /// Its limits.
    pub resources: Resources,
    /// How mounts of the node come to it.
    pub rootfs_propagation: String,
    /// Which calls it may make.
    pub seccomp: Option<Seccomp>,
    /// What it does not see.
    pub masked_paths: Vec<String>,
    /// What it cannot change.
    pub readonly_paths: Vec<String>,
    /// Settings of its namespaces.
    pub sysctl: BTreeMap<String, String>,
}

/// A namespace.
#[derive(Debug, Clone, Deserialize)]
pub struct Namespace {
    /// Such as `pid`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The one to join; without it, a new one.
    #[serde(default)]
    pub path: PathBuf,
}

/// A device node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// `c`, `b`, `u` or `p`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where.
    pub path: PathBuf,
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
    /// Who may open it.
    pub file_mode: Option<u32>,
    /// Whose it is.
    pub uid: Option<u32>,
    /// Of which group it is.
    pub gid: Option<u32>,
}

/// Limits. Of an update, only what it says is changed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// Which devices may be opened.
    pub devices: Vec<DeviceRule>,
    /// Memory.
    pub memory: Option<Memory>,
    /// Processors.
    pub cpu: Option<Cpu>,
    /// How many processes.
    pub pids: Option<Pids>,
}

/// Whether devices may be opened.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct DeviceRule {
    /// They may, or may not.
    pub allow: bool,
    /// `c`, `b` or `a`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Without it, all.
    pub major: Option<i64>,
    /// Without it, all.
    pub minor: Option<i64>,
    /// `r`, `w`, `m`.
    pub access: String,
}

/// Limits of memory, in bytes; -1: none.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Memory {
    /// Memory.
    pub limit: Option<i64>,
    /// When memory is short.
    pub reservation: Option<i64>,
    /// Memory and swap together.
    pub swap: Option<i64>,
}

/// Limits of processors.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Cpu {
    /// Its weight among others.
    pub shares: Option<u64>,
    /// Microseconds in each period.
    pub quota: Option<i64>,
    /// Microseconds.
    pub period: Option<u64>,
    /// On which processors.
    pub cpus: Option<String>,
    /// On which nodes of memory.
    pub mems: Option<String>,
}

/// How many processes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pids {
    /// At most; none if not above zero.
    pub limit: i64,
}

/// A filter of system calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Seccomp {
    /// What befalls a call that nothing is said of.
    pub default_action: String,
    /// The error it gets.
    pub default_errno_ret: Option<u32>,
    /// The machine languages that are meant.
    pub architectures: Vec<String>,
    /// What is said of calls.
    pub syscalls: Vec<Syscall>,
}

/// What befalls some calls.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Syscall {
    /// Which.
    pub names: Vec<String>,
    /// What befalls them.
    pub action: String,
    /// The error they get.
    pub errno_ret: Option<u32>,
    /// If all of this is true of their arguments.
    pub args: Vec<SyscallArg>,
}

/// Something that may be true of an argument.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SyscallArg {
    /// Which argument.
    pub index: u32,
    /// With what it is compared.
    pub value: u64,
    /// The second value, of a masked comparison.
    pub value_two: u64,
    /// How.
    pub op: String,
}
