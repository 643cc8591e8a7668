//! The file system of a container: its root, what is mounted in it, what is hidden from it.

use super::RootMount;
use crate::assembly::{Arg, IN_ROOT, IN_ROOT_NO_LINKS, NO_FOLDER, NULL, Reg, Script};
use crate::cgroups::{self, Cgroups};
use crate::oci::Device;
use crate::plan::{MountPlan, Setup, What};
use nix::libc;
use std::io;
use std::path::{Path, PathBuf};

const RDONLY: u64 = 0x1;
const NOSUID_NODEV_NOEXEC: u64 = 0x2 | 0x4 | 0x8;
/// Options of `mount` fit into one page of the kernel's.
const LONGEST_OPTIONS: usize = 4000;
/// What the kernel has of `/dev/null`, as `fstat` tells it.
const NULL_DEVICE: u64 = 1 << 8 | 3;
#[cfg(target_arch = "aarch64")]
const DEVICE_IN_STAT: u64 = 32;
#[cfg(not(target_arch = "aarch64"))]
const DEVICE_IN_STAT: u64 = 40;
const STAT_BYTES: usize = 256;
/// What `fstatfs` says of a procfs.
const PROC: u64 = 0x9fa0;

/// The devices that every container has: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] =
    [("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// The links that every container has.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("core", "/proc/kcore"),
];

/// Nothing that is mounted from here on is seen on the node.
pub(super) fn propagation(script: &mut Script, wanted: &str) {
    script.doing("leave the node's mounts");
    let flag = if wanted.ends_with("private") { libc::MS_PRIVATE } else { libc::MS_SLAVE };
    let root = script.text("/");
    script.call(libc::SYS_mount, &[NULL, root, NULL, Arg::Is(flag | libc::MS_REC), NULL]);
}

/// The root, mounted where only the container sees it.
pub(super) fn root(script: &mut Script, at: &Path, mounts: &[RootMount]) -> io::Result<Reg> {
    let (root, tree) = (script.register(), script.register());
    for mount in mounts {
        script.doing(format!("mount the root of type {}", mount.kind));
        let is_read_only = mount.options.iter().any(|option| option == "ro");
        let is_bind = mount.options.iter().any(|option| option == "bind" || option == "rbind");
        if is_bind || mount.kind == "bind" {
            let is_recursive = mount.options.iter().any(|option| option == "rbind");
            script.clone_tree(tree, NO_FOLDER, Path::new(&mount.source), is_recursive);
            if is_read_only {
                script.set_attributes(tree, RDONLY, 0, 0, is_recursive);
            }
            script.open(root, NO_FOLDER, at, libc::O_PATH | libc::O_DIRECTORY, 0);
            script.attach(tree, root);
            script.close(root);
            script.close(tree);
        } else {
            classic(script, at, mount, is_read_only)?;
        }
    }
    script.doing("open the root");
    script.open(root, NO_FOLDER, at, libc::O_PATH | libc::O_DIRECTORY, 0);
    if mounts.is_empty() {
        // A root that somebody else has laid out becomes a mount, as it must be to be changed to.
        script.clone_tree(tree, NO_FOLDER, at, true);
        script.attach(tree, root);
        script.close(root);
        script.close(tree);
        script.open(root, NO_FOLDER, at, libc::O_PATH | libc::O_DIRECTORY, 0);
    }
    script.set_attributes(root, 0, 0, libc::MS_PRIVATE, false);
    Ok(root)
}

/// By the one call that takes options of any length, up to a page: layers are named from the folder that all are in.
fn classic(script: &mut Script, at: &Path, mount: &RootMount, is_read_only: bool) -> io::Result<()> {
    const FLAGS: [(&str, u64); 6] = [
        ("ro", libc::MS_RDONLY),
        ("nosuid", libc::MS_NOSUID),
        ("nodev", libc::MS_NODEV),
        ("noexec", libc::MS_NOEXEC),
        ("noatime", libc::MS_NOATIME),
        ("rw", 0),
    ];
    let mut flags = if is_read_only { libc::MS_RDONLY } else { 0 };
    let mut own = Vec::new();
    for option in &mount.options {
        match FLAGS.iter().find(|(name, _)| name == option) {
            Some((_, flag)) => flags |= flag,
            None => own.push(option.clone()),
        }
    }
    let mut options = own.join(",");
    if options.len() > LONGEST_OPTIONS {
        let shorter = shortened(&own).filter(|(_, options)| options.len() <= LONGEST_OPTIONS);
        let (folder, short) = shorter.ok_or_else(|| io::Error::other("its root has too many layers"))?;
        let folder = script.text(folder);
        script.call(libc::SYS_chdir, &[folder]);
        options = short;
    }
    let (source, target, kind, options) =
        (script.text(&mount.source), script.text(at), script.text(&mount.kind), script.text(options));
    script.call(libc::SYS_mount, &[source, target, kind, Arg::Is(flags), options]);
    Ok(())
}

/// Layers by their names in the folder that all of them are in.
fn shortened(options: &[String]) -> Option<(PathBuf, String)> {
    let lower = options.iter().find_map(|option| option.strip_prefix("lowerdir="))?;
    let layers: Vec<&Path> = lower.split(':').map(Path::new).collect();
    let mut folder = layers.first()?.parent()?.to_owned();
    while !layers.iter().all(|layer| layer.starts_with(&folder)) {
        folder = folder.parent()?.to_owned();
    }
    let names: Vec<String> = layers
        .iter()
        .filter_map(|layer| Some(layer.strip_prefix(&folder).ok()?.display().to_string()))
        .collect();
    let others = options.iter().filter(|option| !option.starts_with("lowerdir=")).cloned();
    let all: Vec<String> = others.chain([format!("lowerdir={}", names.join(":"))]).collect();
    Some((folder, all.join(",")))
}

/// All mounts of a specification. Gives its devpts, if it has one.
pub(super) fn all(
    script: &mut Script,
    root: Reg,
    setup: &Setup,
    cgroups: &Cgroups,
) -> io::Result<Option<Reg>> {
    let mut pts = None;
    let places = (script.register(), script.register());
    for mount in &setup.mounts {
        let place = mount.destination.display();
        match &mount.what {
            What::Bind { source, is_recursive } => {
                script.doing(format!(
                    "error mounting {:?} to rootfs at {place:?}",
                    source.display().to_string()
                ));
                bind(script, root, mount, source, *is_recursive, places)?;
            }
            What::New { kind, options } => {
                script.doing(format!("error mounting {kind:?} to rootfs at {place:?}"));
                // Kept, where a terminal is to be made in it.
                let tree = if kind == "devpts" { script.register() } else { places.0 };
                script.new_mount(tree, kind, options, mount.attributes | mount.recursive_attributes);
                // What the kernel shows of itself is never put where an image's link leads.
                script.open_target(places.1, root, &mount.destination, true, IN_ROOT_NO_LINKS);
                script.attach(tree, places.1);
                script.close(places.1);
                if kind == "devpts" && mount.destination == Path::new("/dev/pts") {
                    pts = Some(tree);
                } else {
                    script.close(tree);
                }
            }
            What::Cgroups => {
                script.doing(format!("error mounting \"cgroup\" to rootfs at {place:?}"));
                groups(script, root, mount, &setup.spec.linux.cgroups_path, cgroups, places);
            }
        }
    }
    Ok(pts)
}

fn bind(
    script: &mut Script,
    root: Reg,
    mount: &MountPlan,
    source: &Path,
    is_recursive: bool,
    (tree, target): (Reg, Reg),
) -> io::Result<()> {
    let found = std::fs::metadata(source).map_err(|error| {
        let (source, place) = (source.display().to_string(), mount.destination.display().to_string());
        io::Error::new(error.kind(), format!("error mounting {source:?} to rootfs at {place:?}: {error}"))
    })?;
    script.clone_tree(tree, NO_FOLDER, source, is_recursive);
    if mount.attributes != 0 || mount.cleared != 0 {
        script.set_attributes(tree, mount.attributes, mount.cleared, 0, false);
    }
    if mount.recursive_attributes != 0 {
        script.set_attributes(tree, mount.recursive_attributes, 0, 0, true);
    }
    if let Some((flag, all)) = mount.propagation {
        script.set_attributes(tree, 0, 0, flag, all);
    }
    script.open_target(target, root, &mount.destination, found.is_dir(), IN_ROOT);
    refuse_proc(script, target);
    script.attach(tree, target);
    script.close(target);
    script.close(tree);
    Ok(())
}

/// Nothing of a pod's is mounted upon what the kernel shows of processes, whatever link of an image led there.
fn refuse_proc(script: &mut Script, target: Reg) {
    let found = script.bytes(&[0; STAT_BYTES]);
    script.call(libc::SYS_fstatfs, &[Arg::Of(target), found]);
    let is_proc = script.check(found, 0, u64::MAX, PROC, libc::EXDEV);
    script.check(found, 0, 0, 1, libc::EPERM);
    script.skip_to_here_after(is_proc, &[libc::EXDEV]);
}

/// A folder for each hierarchy, in which the container sees its own groups.
fn groups(
    script: &mut Script,
    root: Reg,
    mount: &MountPlan,
    group: &str,
    cgroups: &Cgroups,
    (tree, target): (Reg, Reg),
) {
    let (own, folder) = (script.register(), script.register());
    let mode = [("mode".to_owned(), Some("755".to_owned()))];
    script.new_mount(own, "tmpfs", &mode, mount.attributes & !RDONLY);
    script.open_target(target, root, &mount.destination, true, IN_ROOT_NO_LINKS);
    script.attach(own, target);
    script.close(target);
    script.open(
        folder,
        Arg::Of(root),
        &crate::assembly::relative(&mount.destination),
        libc::O_PATH,
        IN_ROOT_NO_LINKS,
    );
    for hierarchy in cgroups.hierarchies() {
        let name = script.text(&hierarchy.name);
        script.call(libc::SYS_mkdirat, &[Arg::Of(folder), name, Arg::Is(0o755)]);
        script.clone_tree(tree, NO_FOLDER, &cgroups::folder(hierarchy, group), false);
        script.set_attributes(tree, mount.attributes | NOSUID_NODEV_NOEXEC, 0, libc::MS_PRIVATE, false);
        script.open(target, Arg::Of(folder), Path::new(&hierarchy.name), libc::O_PATH, IN_ROOT_NO_LINKS);
        script.attach(tree, target);
        script.close(target);
        script.close(tree);
        for alias in hierarchy.name.split(',').filter(|alias| *alias != hierarchy.name) {
            let alias = script.text(alias);
            script.call(libc::SYS_symlinkat, &[name, Arg::Of(folder), alias]);
        }
    }
    if mount.attributes & RDONLY != 0 {
        script.set_attributes(own, RDONLY, 0, 0, false);
    }
    script.close(folder);
    script.close(own);
}

/// Device nodes and links, in a `/dev` that was mounted just now and is empty but for mounts.
pub(super) fn devices(script: &mut Script, root: Reg, more: &[Device]) {
    let folder = script.register();
    script.doing("make the devices");
    script.open(folder, Arg::Of(root), Path::new("dev"), libc::O_PATH | libc::O_DIRECTORY, IN_ROOT_NO_LINKS);
    script.call(libc::SYS_umask, &[NULL]);
    for (name, major, minor) in DEVICES {
        node(script, folder, Path::new(name), libc::S_IFCHR | 0o666, (major, minor), (0, 0));
    }
    for (name, to) in LINKS.iter().chain(&[("ptmx", "pts/ptmx")]) {
        let (name, to) = (script.text(name), script.text(to));
        let linked = script.call(libc::SYS_symlinkat, &[to, Arg::Of(folder), name]);
        script.allow(linked, &[libc::EEXIST]);
    }
    for device in more {
        let path = device.path.strip_prefix("/dev").unwrap_or(&device.path);
        script.doing(format!("make device {}", device.path.display()));
        let kind = match device.kind.as_str() {
            "b" => libc::S_IFBLK,
            "p" => libc::S_IFIFO,
            _ => libc::S_IFCHR,
        };
        let mode = kind | device.file_mode.unwrap_or(0o666) & 0o7777;
        let owner = (device.uid.unwrap_or(0), device.gid.unwrap_or(0));
        node(script, folder, path, mode, (device.major, device.minor), owner);
    }
    script.close(folder);
}

fn node(
    script: &mut Script,
    dev: Reg,
    path: &Path,
    mode: u32,
    (major, minor): (u32, u32),
    (uid, gid): (u32, u32),
) {
    let Some(name) = path.file_name() else { return };
    let folder = script.passing_folder();
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => script.open_target(folder, dev, parent, true, IN_ROOT_NO_LINKS),
        None => {
            script.open(
                folder,
                Arg::Of(dev),
                Path::new("."),
                libc::O_PATH | libc::O_DIRECTORY,
                IN_ROOT_NO_LINKS,
            );
        }
    }
    let name = script.text(name);
    let device = libc::makedev(major, minor);
    let made =
        script.call(libc::SYS_mknodat, &[Arg::Of(folder), name, Arg::Is(mode.into()), Arg::Is(device)]);
    if (uid, gid) != (0, 0) {
        let no_links = Arg::Is(libc::AT_SYMLINK_NOFOLLOW as u64);
        script.call(
            libc::SYS_fchownat,
            &[Arg::Of(folder), name, Arg::Is(uid.into()), Arg::Is(gid.into()), no_links],
        );
    }
    // Something of the pod's is mounted there, or a device is named twice.
    script.skip_to_here_after(made, &[libc::EEXIST]);
    script.close(folder);
}

/// Paths that cannot be read, and those that cannot be changed. One that is not there needs nothing.
pub(super) fn hide(script: &mut Script, root: Reg, masked: &[String], read_only: &[String]) {
    const ABSENT: [i32; 2] = [libc::ENOENT, libc::ENOTDIR];
    let (target, tree) = (script.register(), script.register());
    for path in read_only {
        script.doing(format!("make {path} read-only"));
        let path = crate::assembly::relative(Path::new(path));
        let found = script.open(target, Arg::Of(root), &path, libc::O_PATH, IN_ROOT);
        script.clone_tree(tree, Arg::Of(target), Path::new(""), true);
        script.set_attributes(tree, RDONLY, 0, 0, true);
        script.attach(tree, target);
        script.close(tree);
        script.close(target);
        script.skip_to_here_after(found, &ABSENT);
    }
    if masked.is_empty() {
        return;
    }
    let null = script.register();
    // The node's own, and it is looked at: whatever the container has by that name is not used.
    script.doing("open the node's /dev/null");
    script.open(null, NO_FOLDER, Path::new("/dev/null"), libc::O_PATH, libc::RESOLVE_NO_SYMLINKS);
    let stat = script.bytes(&[0; STAT_BYTES]);
    script.call(libc::SYS_fstat, &[Arg::Of(null), stat]);
    script.check(stat, DEVICE_IN_STAT, u64::MAX, NULL_DEVICE, libc::ENODEV);
    for path in masked {
        script.doing(format!("mask {path}"));
        let path = crate::assembly::relative(Path::new(path));
        let folder = script.open(target, Arg::Of(root), &path, libc::O_PATH | libc::O_DIRECTORY, IN_ROOT);
        script.new_mount(tree, "tmpfs", &[], RDONLY | NOSUID_NODEV_NOEXEC);
        script.attach(tree, target);
        script.close(tree);
        script.close(target);
        // Errors of the look at a folder lead to the look at a file; success there ends here.
        let done = script.jump();
        script.skip_to_here_after(folder, &ABSENT);
        let file = script.open(target, Arg::Of(root), &path, libc::O_PATH, IN_ROOT);
        script.clone_tree(tree, Arg::Of(null), Path::new(""), false);
        script.attach(tree, target);
        script.close(tree);
        script.close(target);
        script.skip_to_here_after(file, &ABSENT);
        script.skip_to_here(done);
    }
    script.close(null);
}

/// Makes the root the root, and forgets the node's.
pub(super) fn enter(script: &mut Script, root: Reg, is_read_only: bool) {
    let old = script.register();
    if is_read_only {
        script.doing("make the root read-only");
        script.set_attributes(root, RDONLY, 0, 0, false);
    }
    script.doing("change the root");
    script.open(old, NO_FOLDER, Path::new("/"), libc::O_DIRECTORY, 0);
    script.call(libc::SYS_fchdir, &[Arg::Of(root)]);
    let here = script.text(".");
    script.call(libc::SYS_pivot_root, &[here, here]);
    script.call(libc::SYS_fchdir, &[Arg::Of(old)]);
    let slave = Arg::Is(libc::MS_SLAVE | libc::MS_REC);
    script.call(libc::SYS_mount, &[NULL, here, NULL, slave, NULL]);
    script.call(libc::SYS_umount2, &[here, Arg::Is(libc::MNT_DETACH as u64)]);
    let top = script.text("/");
    script.call(libc::SYS_chdir, &[top]);
    script.close(old);
    script.close(root);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_layers_are_named_from_the_folder_that_all_are_in() {
        let options = ["lowerdir=/s/2/fs:/s/1/fs".to_owned(), "upperdir=/s/3/fs".to_owned()];
        let expected = (PathBuf::from("/s"), "upperdir=/s/3/fs,lowerdir=2/fs:1/fs".to_owned());
        assert_eq!(shortened(&options), Some(expected));
    }
}
