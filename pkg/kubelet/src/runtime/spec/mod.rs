//! What a container is, in the words of the Open Container Initiative. Pure, but for looking at devices.
//!
//! ```text
//! ContainerSpec + image's config + sandbox ── container() ──> Spec ──> containerd ──> shim ──> runc
//! ```

mod capabilities;
mod mounts;
mod seccomp;
mod users;

pub(crate) use capabilities::Available;
pub(crate) use users::{Accounts, User, resolve as resolve_user, verify_non_root};

use super::images::ImageConfig;
use super::{ContainerSpec, Error, Resources, SandboxSpec};
use oci_spec::runtime::{
    LinuxBuilder, LinuxCpuBuilder, LinuxDevice, LinuxDeviceBuilder, LinuxDeviceCgroup,
    LinuxDeviceCgroupBuilder, LinuxDeviceType, LinuxMemoryBuilder, LinuxNamespace, LinuxNamespaceBuilder,
    LinuxNamespaceType as Namespace, LinuxPidsBuilder, LinuxResources, LinuxResourcesBuilder, Process,
    ProcessBuilder, RootBuilder, Spec, SpecBuilder, UserBuilder,
};
use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// By these annotations shims find out that they belong to one pod.
const GROUP: &str = "io.containerd.runc.v2.group";
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The user of the pause program: nobody in particular.
const PAUSE_USER: u32 = 65535;
/// The pause program is killed last.
const PAUSE_OOM_SCORE_ADJ: i32 = -998;

#[rustfmt::skip]
const MASKED: [&str; 11] = [
    "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
];
#[rustfmt::skip]
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What this node can do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Node {
    pub(crate) capabilities: Available,
    /// No process may have less than this.
    pub(crate) lowest_oom_score_adj: i32,
    /// Control groups of version 2 can have namespaces of their own.
    pub(crate) is_cgroup_v2: bool,
    /// Swap can be limited, too.
    pub(crate) limits_swap: bool,
}

impl Node {
    /// What this process can do: where it may not lower `oom_score_adj`, containers get what it has itself.
    pub(crate) fn of_this_process(is_cgroup_v2: bool) -> Self {
        let capabilities = Available::of_this_process();
        let own = std::fs::read_to_string("/proc/self/oom_score_adj")
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let lowest_oom_score_adj = if capabilities.lowers_oom_score() { -1000 } else { own.unwrap_or(0) };
        let has = |file: &str| Path::new("/sys/fs/cgroup").join(file).exists();
        let limits_swap = is_cgroup_v2 || has("memory/memory.memsw.limit_in_bytes");
        Node { capabilities, lowest_oom_score_adj, is_cgroup_v2, limits_swap }
    }
}

/// The sandbox that a container joins.
pub(crate) struct Sandbox<'a> {
    pub(crate) id: &'a str,
    pub(crate) spec: &'a SandboxSpec,
    /// Its pause process.
    pub(crate) pid: u32,
    /// What the pod's containers share as `/dev/shm`.
    pub(crate) shm: &'a Path,
    /// The file with its host name.
    pub(crate) hostname_file: &'a Path,
}

/// A container in it.
pub(crate) fn container(
    node: Node,
    sandbox: &Sandbox<'_>,
    spec: &ContainerSpec,
    image: &ImageConfig,
    user: &User,
    cgroup: &str,
) -> Result<Spec, Error> {
    let security = &spec.security;
    let capabilities = capabilities::names(security, node.capabilities)?;
    let devices = devices(spec)?;
    let mut resources = resources(node, &spec.resources);
    resources.set_devices(Some(device_rules(security.privileged, &devices)));
    let hides_proc = !security.privileged && !security.unmasked_proc;
    let paths = |paths: &[&str]| {
        if hides_proc { paths.iter().map(|path| (*path).to_owned()).collect() } else { Vec::new() }
    };
    let mut linux = LinuxBuilder::default()
        .namespaces(joined_namespaces(node, sandbox, security.privileged))
        .resources(resources)
        .cgroups_path(cgroup)
        .masked_paths(paths(&MASKED))
        .readonly_paths(paths(&READ_ONLY));
    if let Some(propagation) = mounts::root_propagation(&spec.mounts) {
        linux = linux.rootfs_propagation(propagation);
    }
    if !devices.is_empty() {
        linux = linux.devices(devices);
    }
    if !security.privileged
        && let Some(filter) = seccomp::filter(&security.seccomp, &capabilities)?
    {
        linux = linux.seccomp(filter);
    }
    let process = process(node, sandbox, spec, image, user, &capabilities)?;
    let root = RootBuilder::default().path("rootfs").readonly(security.read_only_root);
    let mut annotations = HashMap::from([(GROUP.to_owned(), sandbox.id.to_owned())]);
    annotations.insert("io.kubernetes.cri.container-type".to_owned(), "container".to_owned());
    annotations.insert("io.kubernetes.cri.sandbox-id".to_owned(), sandbox.id.to_owned());
    let built = SpecBuilder::default()
        .version("1.0.2")
        .process(process)
        .root(root.build().map_err(wrong)?)
        .mounts(mounts::all(sandbox, spec)?)
        .annotations(annotations)
        .linux(linux.build().map_err(wrong)?);
    let mut built = built.build().map_err(wrong)?;
    // The builder gives a host name to those that have none.
    built.set_hostname(None);
    Ok(built)
}

/// The pause container, which makes the namespaces that the others join.
pub(crate) fn pause(node: Node, id: &str, spec: &SandboxSpec, cgroup: &str) -> Result<Spec, Error> {
    let mut namespaces = vec![namespace(Namespace::Mount, None)];
    if let Some(path) = &spec.network_namespace {
        namespaces.push(namespace(Namespace::Network, Some(path.clone())));
    }
    if !spec.host_pid {
        namespaces.push(namespace(Namespace::Pid, None));
    }
    if !spec.host_ipc {
        namespaces.push(namespace(Namespace::Ipc, None));
    }
    if !spec.hostname.is_empty() {
        namespaces.push(namespace(Namespace::Uts, None));
    }
    let user = UserBuilder::default().uid(PAUSE_USER).gid(PAUSE_USER).build().map_err(wrong)?;
    let process = ProcessBuilder::default()
        .user(user)
        .args(vec!["/pause".to_owned()])
        .env(vec![DEFAULT_PATH.to_owned()])
        .cwd("/")
        .capabilities(capabilities::sets(&[]))
        .no_new_privileges(true)
        .oom_score_adj(PAUSE_OOM_SCORE_ADJ.max(node.lowest_oom_score_adj))
        .build()
        .map_err(wrong)?;
    let resources = LinuxResourcesBuilder::default()
        .cpu(LinuxCpuBuilder::default().shares(2u64).build().map_err(wrong)?)
        .devices(device_rules(false, &[]));
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let linux = LinuxBuilder::default()
        .namespaces(namespaces)
        .resources(resources.build().map_err(wrong)?)
        .cgroups_path(cgroup)
        .sysctl(spec.sysctls.clone().into_iter().collect::<HashMap<_, _>>())
        .masked_paths(paths(&MASKED))
        .readonly_paths(paths(&READ_ONLY));
    let mut annotations = HashMap::from([(GROUP.to_owned(), id.to_owned())]);
    annotations.insert("io.kubernetes.cri.container-type".to_owned(), "sandbox".to_owned());
    annotations.insert("io.kubernetes.cri.sandbox-id".to_owned(), id.to_owned());
    let mut built = SpecBuilder::default()
        .version("1.0.2")
        .process(process)
        .root(RootBuilder::default().path("rootfs").readonly(true).build().map_err(wrong)?)
        .mounts(mounts::of_pause())
        .annotations(annotations)
        .linux(linux.build().map_err(wrong)?)
        .build()
        .map_err(wrong)?;
    built.set_hostname((!spec.hostname.is_empty()).then(|| spec.hostname.clone()));
    Ok(built)
}

/// What to execute in a container: as its own process, but for what is executed.
pub(crate) fn exec(spec: &Spec, command: &[String], tty: bool) -> Result<Process, Error> {
    let mut process =
        spec.process().clone().ok_or_else(|| Error::Container("it has no process".to_owned()))?;
    process.set_args(Some(command.to_vec())).set_terminal(Some(tty));
    let mut env = process.env().clone().unwrap_or_default();
    if tty && !env.iter().any(|variable| variable.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    process.set_env(Some(env));
    Ok(process)
}

/// Limits, as runc wants them. Zero: no limit.
pub(crate) fn resources(node: Node, resources: &Resources) -> LinuxResources {
    let mut cpu = LinuxCpuBuilder::default();
    if resources.cpu_shares > 0 {
        cpu = cpu.shares(resources.cpu_shares);
    }
    if resources.cpu_quota_us != 0 {
        cpu = cpu.quota(resources.cpu_quota_us);
    }
    if resources.cpu_period_us > 0 {
        cpu = cpu.period(resources.cpu_period_us);
    }
    let mut built = LinuxResourcesBuilder::default().cpu(cpu.build().expect("all fields have defaults"));
    if resources.memory_limit_bytes > 0 {
        let limit = resources.memory_limit_bytes;
        let mut memory = LinuxMemoryBuilder::default().limit(limit);
        if node.limits_swap {
            // Memory and swap together, so there is no swap.
            memory = memory.swap(limit);
        }
        built = built.memory(memory.build().expect("all fields have defaults"));
    }
    if resources.pids_limit > 0 {
        let pids = LinuxPidsBuilder::default().limit(resources.pids_limit).build();
        built = built.pids(pids.expect("all fields have defaults"));
    }
    if !resources.unified.is_empty() {
        built = built.unified(resources.unified.clone().into_iter().collect::<HashMap<_, _>>());
    }
    built.build().expect("all fields have defaults")
}

fn process(
    node: Node,
    sandbox: &Sandbox<'_>,
    spec: &ContainerSpec,
    image: &ImageConfig,
    user: &User,
    capabilities: &[String],
) -> Result<Process, Error> {
    let args = arguments(spec, image);
    if args.is_empty() {
        return Err(Error::Container("no command specified".to_owned()));
    }
    let cwd = [spec.working_dir.as_str(), image.working_dir.as_str()].into_iter().find(|dir| !dir.is_empty());
    let built_user = UserBuilder::default()
        .uid(user.uid)
        .gid(user.gid)
        .additional_gids(user.additional_gids.clone())
        .build();
    let mut built = ProcessBuilder::default()
        .terminal(spec.tty)
        .user(built_user.map_err(wrong)?)
        .args(args)
        .env(environment(sandbox, spec, image, user))
        .cwd(cwd.unwrap_or("/"))
        .capabilities(capabilities::sets(capabilities))
        .no_new_privileges(spec.security.no_new_privileges);
    if let Some(adjustment) = spec.resources.oom_score_adj {
        built = built.oom_score_adj(adjustment.max(node.lowest_oom_score_adj));
    }
    let mut process = built.build().map_err(wrong)?;
    process.set_apparmor_profile(spec.security.app_armor.clone());
    // The builder has limits of its own; ours are those of the runtime.
    process.set_rlimits(None);
    Ok(process)
}

/// The pod's command replaces the image's entrypoint and arguments; its arguments only the latter.
fn arguments(spec: &ContainerSpec, image: &ImageConfig) -> Vec<String> {
    let entrypoint = if spec.command.is_empty() { &image.entrypoint } else { &spec.command };
    let args = match (spec.args.is_empty(), spec.command.is_empty()) {
        (true, true) => &image.cmd,
        _ => &spec.args,
    };
    entrypoint.iter().chain(args).cloned().collect()
}

fn environment(sandbox: &Sandbox<'_>, spec: &ContainerSpec, image: &ImageConfig, user: &User) -> Vec<String> {
    let mut env: Vec<String> = Vec::new();
    let mut set = |name: &str, value: &str| {
        env.retain(|variable| variable.split('=').next() != Some(name));
        env.push(format!("{name}={value}"));
    };
    if let Some(path) = DEFAULT_PATH.strip_prefix("PATH=") {
        set("PATH", path);
    }
    if !sandbox.spec.hostname.is_empty() {
        set("HOSTNAME", &sandbox.spec.hostname);
    }
    if spec.tty {
        set("TERM", "xterm");
    }
    set("HOME", user.home.as_deref().unwrap_or("/"));
    for variable in &image.env {
        let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
        set(name, value);
    }
    for (name, value) in &spec.env {
        set(name, value);
    }
    env
}

fn joined_namespaces(node: Node, sandbox: &Sandbox<'_>, is_privileged: bool) -> Vec<LinuxNamespace> {
    let of_pause = |name: &str| Some(PathBuf::from(format!("/proc/{}/ns/{name}", sandbox.pid)));
    let mut namespaces = vec![namespace(Namespace::Mount, None)];
    if sandbox.spec.network_namespace.is_some() {
        namespaces.push(namespace(Namespace::Network, of_pause("net")));
    }
    if !sandbox.spec.host_ipc {
        namespaces.push(namespace(Namespace::Ipc, of_pause("ipc")));
    }
    if !sandbox.spec.hostname.is_empty() {
        namespaces.push(namespace(Namespace::Uts, of_pause("uts")));
    }
    match (sandbox.spec.host_pid, sandbox.spec.share_processes) {
        (true, _) => {}
        (false, true) => namespaces.push(namespace(Namespace::Pid, of_pause("pid"))),
        (false, false) => namespaces.push(namespace(Namespace::Pid, None)),
    }
    if node.is_cgroup_v2 && !is_privileged {
        namespaces.push(namespace(Namespace::Cgroup, None));
    }
    namespaces
}

fn namespace(kind: Namespace, path: Option<PathBuf>) -> LinuxNamespace {
    let mut built = LinuxNamespaceBuilder::default().typ(kind);
    if let Some(path) = path {
        built = built.path(path);
    }
    built.build().expect("the kind is set")
}

/// Those asked for; of a privileged container all that the node has.
fn devices(spec: &ContainerSpec) -> Result<Vec<LinuxDevice>, Error> {
    let mut devices = Vec::new();
    for path in &spec.devices {
        let found =
            device(path).ok_or_else(|| Error::Container(format!("{} is not a device", path.display())))?;
        devices.push(found);
    }
    if spec.security.privileged {
        let mut all = Vec::new();
        collect_devices(Path::new("/dev"), &mut all);
        all.retain(|found| !devices.iter().any(|device| device.path() == found.path()));
        devices.append(&mut all);
    }
    Ok(devices)
}

fn collect_devices(folder: &Path, found: &mut Vec<LinuxDevice>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        // Terminals, shared memory and queues are the container's own.
        if ["pts", "shm", "fd", "mqueue", ".lxc", ".lxd-mounts", ".udev", "console"]
            .iter()
            .any(|own| name == *own)
        {
            continue;
        }
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_devices(&entry.path(), found),
            Ok(kind) if kind.is_char_device() || kind.is_block_device() => {
                found.extend(device(&entry.path()))
            }
            _ => {}
        }
    }
}

fn device(path: &Path) -> Option<LinuxDevice> {
    let metadata = std::fs::metadata(path).ok()?;
    let kind = match metadata.file_type() {
        kind if kind.is_block_device() => LinuxDeviceType::B,
        kind if kind.is_char_device() => LinuxDeviceType::C,
        _ => return None,
    };
    let built = LinuxDeviceBuilder::default()
        .path(path)
        .typ(kind)
        .major(i64::try_from(nix::sys::stat::major(metadata.rdev())).ok()?)
        .minor(i64::try_from(nix::sys::stat::minor(metadata.rdev())).ok()?)
        .file_mode(metadata.mode() & 0o7777)
        .uid(metadata.uid())
        .gid(metadata.gid());
    built.build().ok()
}

/// Nothing but the given devices; runc adds what every container has, such as `/dev/null`.
fn device_rules(is_privileged: bool, devices: &[LinuxDevice]) -> Vec<LinuxDeviceCgroup> {
    let rule = |allow| LinuxDeviceCgroupBuilder::default().allow(allow).access("rwm");
    let mut rules = vec![rule(is_privileged).build().expect("all fields have defaults")];
    if !is_privileged {
        rules.extend(devices.iter().map(|device| {
            let rule = rule(true).typ(device.typ()).major(device.major()).minor(device.minor());
            rule.build().expect("all fields have defaults")
        }));
    }
    rules
}

fn wrong(error: oci_spec::OciSpecError) -> Error {
    Error::Container(format!("failed to generate container spec: {error}"))
}

#[cfg(test)]
mod tests;
