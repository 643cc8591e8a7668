//! What is mounted in a container: what every container has, what its pod shares, what it asks for.

use super::super::{ContainerSpec, Error, Mount as Asked, Propagation};
use super::Sandbox;
use oci_spec::runtime::{Mount, MountBuilder};
use std::path::{Component, Path, PathBuf};

/// All mounts of a container, parents before children.
pub(super) fn all(sandbox: &Sandbox<'_>, spec: &ContainerSpec) -> Result<Vec<Mount>, Error> {
    let mut mounts = ordinary(spec.security.privileged);
    mounts.push(bind(sandbox.shm, Path::new("/dev/shm"), &["rbind", "rprivate", "rw"]));
    if !sandbox.spec.hostname.is_empty() {
        let access = if spec.security.read_only_root { "ro" } else { "rw" };
        mounts.push(bind(sandbox.hostname_file, Path::new("/etc/hostname"), &["rbind", "rprivate", access]));
    }
    for asked in &spec.mounts {
        if !asked.container_path.is_absolute() {
            let path = asked.container_path.display();
            return Err(Error::Container(format!("invalid mount path {path}: it must begin with /")));
        }
        // What is asked for replaces what everybody has at that place.
        mounts.retain(|mount| mount.destination() != &tidy(&asked.container_path));
    }
    mounts.extend(spec.mounts.iter().map(of_pod));
    mounts.sort_by_key(|mount| mount.destination().components().count());
    Ok(mounts)
}

/// The pause program needs next to nothing.
pub(super) fn of_pause() -> Vec<Mount> {
    vec![proc(), dev()]
}

/// How the container's root must be for mounts to cross.
pub(super) fn root_propagation(mounts: &[Asked]) -> Option<&'static str> {
    let has = |propagation| mounts.iter().any(|mount| mount.propagation == propagation);
    if has(Propagation::Bidirectional) {
        Some("rshared")
    } else {
        has(Propagation::HostToContainer).then_some("rslave")
    }
}

fn of_pod(asked: &Asked) -> Mount {
    let propagation = match asked.propagation {
        Propagation::None => "rprivate",
        Propagation::HostToContainer => "rslave",
        Propagation::Bidirectional => "rshared",
    };
    let access = match (asked.read_only, asked.recursive_read_only) {
        (true, true) => "rro",
        (true, false) => "ro",
        (false, _) => "rw",
    };
    bind(&asked.host_path, &tidy(&asked.container_path), &["rbind", propagation, access])
}

fn ordinary(is_privileged: bool) -> Vec<Mount> {
    let access = if is_privileged { "rw" } else { "ro" };
    vec![
        proc(),
        dev(),
        mount(
            "/dev/pts",
            "devpts",
            "devpts",
            &["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        ),
        mount("/dev/mqueue", "mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", "sysfs", &["nosuid", "noexec", "nodev", access]),
        mount("/sys/fs/cgroup", "cgroup", "cgroup", &["nosuid", "noexec", "nodev", "relatime", access]),
    ]
}

fn proc() -> Mount {
    mount("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"])
}

fn dev() -> Mount {
    mount("/dev", "tmpfs", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])
}

fn bind(source: &Path, destination: &Path, options: &[&str]) -> Mount {
    build(destination, "bind", source, options)
}

fn mount(destination: &str, kind: &str, source: &str, options: &[&str]) -> Mount {
    build(Path::new(destination), kind, Path::new(source), options)
}

fn build(destination: &Path, kind: &str, source: &Path, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(destination)
        .typ(kind)
        .source(source)
        .options(options.iter().map(|option| (*option).to_owned()).collect::<Vec<_>>())
        .build()
        .expect("all fields have defaults")
}

/// Without a slash at the end, and without `.` and `..`.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(part) => tidy.push(part),
            Component::ParentDir => drop(tidy.pop()),
            _ => {}
        }
    }
    tidy
}
