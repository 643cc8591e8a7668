//! Whether a container is set up here or by runc. Pure: decided by its specification and what the node is, before
//! anything is made of it.
//!
//! ```text
//! config.json ── decide() ──> Setup(what to do)
//!                        └──> HandToRunc(why)
//! ```
//!
//! What is not surely right is runc's: a field that is not in [`fields`], a value that is not listed below.

mod fields;
mod mounts;

pub use mounts::{MountPlan, What};

use crate::capabilities;
use crate::oci::{Device, DeviceRule, Linux, Process, Resources, Spec};
use crate::seccomp;
use fields::{Who, who};
use serde_json::Value;
use std::path::{Component, Path};

/// The namespaces that we make or join.
pub const NAMESPACES: [&str; 5] = ["mount", "pid", "network", "ipc", "uts"];
/// By number, as the kernel has them.
pub const RLIMITS: [&str; 16] = [
    "RLIMIT_CPU",
    "RLIMIT_FSIZE",
    "RLIMIT_DATA",
    "RLIMIT_STACK",
    "RLIMIT_CORE",
    "RLIMIT_RSS",
    "RLIMIT_NPROC",
    "RLIMIT_NOFILE",
    "RLIMIT_MEMLOCK",
    "RLIMIT_AS",
    "RLIMIT_LOCKS",
    "RLIMIT_SIGPENDING",
    "RLIMIT_MSGQUEUE",
    "RLIMIT_NICE",
    "RLIMIT_RTPRIO",
    "RLIMIT_RTTIME",
];
/// More than this do not fit into one script.
const MOST_MOUNTS: usize = 200;
const MOST_PATHS: usize = 100;

/// What the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Control groups have a hierarchy for each controller.
    pub is_cgroup_v1: bool,
    /// The kernel mounts trees that are nowhere, and sets their attributes whole (since 5.12).
    pub moves_mounts: bool,
}

/// Who sets a container up.
#[derive(Debug)]
pub enum Decision {
    /// We do.
    Setup(Box<Setup>),
    /// runc does, for this reason.
    HandToRunc(String),
}

/// What is to be done for a container.
#[derive(Debug)]
pub struct Setup {
    /// What it is.
    pub spec: Spec,
    /// Its mounts, in their order.
    pub mounts: Vec<MountPlan>,
    /// Its filter of system calls, as the kernel wants it.
    pub filter: Option<Vec<u64>>,
    /// Whether device nodes are made in its `/dev`.
    pub has_own_dev: bool,
}

/// Decides by a container's specification.
pub fn decide(config: &[u8], facts: Facts) -> Decision {
    match set_up(config, facts) {
        Ok(setup) => Decision::Setup(Box::new(setup)),
        Err(reason) => Decision::HandToRunc(reason),
    }
}

/// A process to execute in a container, if it asks for nothing that only runc does.
pub fn process(text: &[u8]) -> Result<Process, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    every_field(&value, "process")?;
    let process: Process = serde_json::from_value(value).map_err(|error| error.to_string())?;
    check_process(&process)?;
    Ok(process)
}

/// New limits, if they ask for nothing that only runc does.
pub fn update(text: &[u8]) -> Result<Resources, String> {
    let value: Value = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    every_field(&value, "linux.resources").map_err(|field| format!("{field} cannot be changed"))?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn set_up(config: &[u8], facts: Facts) -> Result<Setup, String> {
    let value: Value = serde_json::from_slice(config).map_err(|error| error.to_string())?;
    if !facts.is_cgroup_v1 {
        return Err("control groups of version 2".to_owned());
    }
    if !facts.moves_mounts {
        return Err("the kernel is older than 5.12".to_owned());
    }
    every_field(&value, "")?;
    let spec: Spec = serde_json::from_value(value).map_err(|error| error.to_string())?;
    check_process(&spec.process)?;
    if spec.root.path.as_os_str().is_empty() {
        return Err("no root".to_owned());
    }
    check_linux(&spec.linux)?;
    let has_uts = spec.linux.namespaces.iter().any(|namespace| namespace.kind == "uts");
    if !spec.hostname.is_empty() && !has_uts {
        return Err("a host name without a namespace for it".to_owned());
    }
    if spec.mounts.len() > MOST_MOUNTS {
        return Err("very many mounts".to_owned());
    }
    let mounts: Vec<MountPlan> = spec.mounts.iter().map(mounts::plan).collect::<Result<_, _>>()?;
    let dev = mounts.iter().find(|mount| mount.destination == Path::new("/dev"));
    let has_own_dev = match dev.map(|mount| &mount.what) {
        Some(What::New { kind, .. }) if kind == "tmpfs" => true,
        Some(What::Bind { .. }) if !spec.process.terminal => false,
        _ => return Err("no /dev of its own".to_owned()),
    };
    let pts = mounts.iter().find(|mount| mount.destination == Path::new("/dev/pts"));
    let has_pts = pts.is_some_and(|pts| matches!(&pts.what, What::New { kind, .. } if kind == "devpts"));
    if spec.process.terminal && !has_pts {
        return Err("a terminal without devpts".to_owned());
    }
    let filter = spec.linux.seccomp.as_ref().map(seccomp::compile).transpose()?;
    Ok(Setup { spec, mounts, filter, has_own_dev })
}

/// That nothing is said which we do not do.
fn every_field(value: &Value, path: &str) -> Result<(), String> {
    match value {
        Value::Null => Ok(()),
        Value::Object(members) => members.iter().try_for_each(|(name, member)| {
            every_field(member, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") })
        }),
        Value::Array(elements) => {
            elements.iter().try_for_each(|element| every_field(element, &format!("{path}[]")))
        }
        leaf => {
            let says_nothing = match leaf {
                Value::Bool(yes) => !yes,
                Value::Number(number) => number.as_i64() == Some(0),
                Value::String(text) => text.is_empty(),
                _ => false,
            };
            if leaf.as_str().is_some_and(|text| text.contains('\0')) {
                return Err(format!("{path} has a NUL byte in it"));
            }
            match who(path) {
                Some(Who::Shim | Who::Nobody) => Ok(()),
                Some(Who::Runc) if says_nothing => Ok(()),
                Some(Who::Runc) => Err(path.to_owned()),
                None => Err(format!("{path} is not known")),
            }
        }
    }
}

fn check_process(process: &Process) -> Result<(), String> {
    if process.args.first().is_none_or(String::is_empty) {
        return Err("no command".to_owned());
    }
    if !process.cwd.starts_with('/') {
        return Err("a working directory that does not begin with /".to_owned());
    }
    if let Some(limit) = process.rlimits.iter().find(|limit| !RLIMITS.contains(&limit.kind.as_str())) {
        return Err(format!("limit {}", limit.kind));
    }
    if process.user.additional_gids.len() > MOST_PATHS * 100 {
        return Err("very many groups".to_owned());
    }
    let sets = process.capabilities.iter();
    for name in sets.flat_map(|sets| {
        [&sets.bounding, &sets.effective, &sets.permitted, &sets.inheritable, &sets.ambient]
            .into_iter()
            .flatten()
    }) {
        capabilities::number(name).ok_or_else(|| format!("capability {name}"))?;
    }
    Ok(())
}

fn check_linux(linux: &Linux) -> Result<(), String> {
    for (index, namespace) in linux.namespaces.iter().enumerate() {
        let kind = namespace.kind.as_str();
        let is_second = linux.namespaces[..index].iter().any(|earlier| earlier.kind == kind);
        let has_path = !namespace.path.as_os_str().is_empty();
        if !NAMESPACES.contains(&kind) || is_second || (kind == "mount" && has_path) {
            return Err(format!("namespace {kind}"));
        }
    }
    let has = |kind: &str| linux.namespaces.iter().any(|namespace| namespace.kind == kind);
    if !has("mount") {
        return Err("no namespace of mounts".to_owned());
    }
    check_cgroup(Path::new(&linux.cgroups_path))?;
    if !["", "rslave", "slave", "rprivate", "private"].contains(&linux.rootfs_propagation.as_str()) {
        return Err(format!("propagation {}", linux.rootfs_propagation));
    }
    if linux.masked_paths.len() > MOST_PATHS || linux.readonly_paths.len() > MOST_PATHS {
        return Err("very many paths to hide".to_owned());
    }
    let paths = linux.masked_paths.iter().chain(&linux.readonly_paths);
    if let Some(path) = paths.into_iter().find(|path| !path.starts_with('/') || path.as_str() == "/") {
        return Err(format!("path {path:?}"));
    }
    for name in linux.sysctl.keys() {
        check_sysctl(name, has("ipc"), has("network"))?;
    }
    linux.devices.iter().try_for_each(check_device)?;
    check_device_rules(&linux.resources.devices)
}

fn check_cgroup(path: &Path) -> Result<(), String> {
    let mut parts = path.components();
    let is_plain = parts.next() == Some(Component::RootDir) && path != Path::new("/");
    if !is_plain || !parts.all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("control group {}", path.display()));
    }
    Ok(())
}

/// Only what belongs to a namespace of the container's.
fn check_sysctl(name: &str, has_ipc: bool, has_network: bool) -> Result<(), String> {
    const OF_IPC: [&str; 8] = [
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
    ];
    let is_plain = !name.contains('/')
        && !name.split('.').any(str::is_empty)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
    let may = (has_ipc && (OF_IPC.contains(&name) || name.starts_with("fs.mqueue.")))
        || (has_network && name.starts_with("net."));
    if is_plain && may { Ok(()) } else { Err(format!("sysctl {name}")) }
}

fn check_device(device: &Device) -> Result<(), String> {
    let mut parts = device.path.components();
    let is_in_dev = parts.next() == Some(Component::RootDir)
        && parts.next() == Some(Component::Normal("dev".as_ref()))
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)));
    if !is_in_dev || !["c", "u", "b", "p"].contains(&device.kind.as_str()) {
        return Err(format!("device {}", device.path.display()));
    }
    Ok(())
}

/// Nothing may be opened but what follows, or everything may: anything else is thought through by runc.
fn check_device_rules(rules: &[DeviceRule]) -> Result<(), String> {
    let is_all = |rule: &DeviceRule| {
        matches!(rule.kind.as_str(), "" | "a") && rule.major.is_none() && rule.minor.is_none()
    };
    let is_good = match rules {
        [] => false,
        [all] if all.allow => is_all(all),
        [first, rest @ ..] => {
            let known = |rule: &DeviceRule| {
                matches!(rule.kind.as_str(), "c" | "b")
                    && rule.allow
                    && !rule.access.is_empty()
                    && rule.access.chars().all(|access| "rwm".contains(access))
            };
            is_all(first) && !first.allow && rest.iter().all(known)
        }
    };
    if is_good { Ok(()) } else { Err("rules of devices".to_owned()) }
}

#[cfg(test)]
mod tests;
