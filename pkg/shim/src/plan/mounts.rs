//! What a mount of a specification asks for, in the words of the kernel.

use crate::oci::Mount;
use nix::libc;
use std::path::PathBuf;

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlan {
    /// Where.
    pub destination: PathBuf,
    /// What.
    pub what: What,
    /// `MOUNT_ATTR_*` that it gets.
    pub attributes: u64,
    /// Those that it loses.
    pub cleared: u64,
    /// Those that it gets with all that is mounted in it.
    pub recursive_attributes: u64,
    /// How mounts of the node come to it; nothing: as before.
    pub propagation: Option<(u64, bool)>,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A folder or file of the node.
    Bind {
        /// Which.
        source: PathBuf,
        /// With what is mounted in it.
        is_recursive: bool,
    },
    /// A new file system.
    New {
        /// Which.
        kind: String,
        /// Its own options.
        options: Vec<(String, Option<String>)>,
    },
    /// The container's own control groups.
    Cgroups,
}

const RDONLY: u64 = 0x1;
const NOSUID: u64 = 0x2;
const NODEV: u64 = 0x4;
const NOEXEC: u64 = 0x8;
/// Of the kinds of times that are kept, one is: they are one field of the kernel's.
const ATIME: u64 = 0x70;
const NOATIME: u64 = 0x10;
const STRICTATIME: u64 = 0x20;
const NODIRATIME: u64 = 0x80;

/// What each kind of file system may be told.
const OWN_OPTIONS: &[(&str, &[&str])] = &[
    ("proc", &[]),
    ("sysfs", &[]),
    ("mqueue", &[]),
    ("tmpfs", &["mode", "size", "uid", "gid", "nr_inodes", "nr_blocks"]),
    ("devpts", &["newinstance", "ptmxmode", "mode", "uid", "gid"]),
];

pub(super) fn plan(mount: &Mount) -> Result<MountPlan, String> {
    let destination = PathBuf::from("/").join(crate::assembly::relative(&mount.destination));
    let not = |what: &str| Err(format!("mount {} with {what}", destination.display()));
    let is_in_proc = destination.starts_with("/proc") && destination != std::path::Path::new("/proc");
    if !mount.destination.is_absolute() || destination.parent().is_none() || is_in_proc {
        return not("this place");
    }
    let is_bind =
        mount.kind == "bind" || mount.options.iter().any(|option| option == "bind" || option == "rbind");
    let mut plan = MountPlan {
        destination: destination.clone(),
        what: What::Cgroups,
        attributes: 0,
        cleared: 0,
        recursive_attributes: 0,
        propagation: None,
    };
    let (mut own, mut is_recursive) = (Vec::new(), false);
    for option in &mount.options {
        match option.as_str() {
            "bind" | "rw" | "suid" | "dev" | "exec" | "async" | "defaults" | "atime" | "diratime" => {}
            "rbind" => is_recursive = true,
            "ro" => plan.attributes |= RDONLY,
            "rro" => plan.recursive_attributes |= RDONLY,
            "nosuid" => plan.attributes |= NOSUID,
            "nodev" => plan.attributes |= NODEV,
            "noexec" => plan.attributes |= NOEXEC,
            "nodiratime" => plan.attributes |= NODIRATIME,
            "relatime" => plan.cleared |= ATIME,
            "noatime" => (plan.attributes, plan.cleared) = (plan.attributes | NOATIME, plan.cleared | ATIME),
            "strictatime" => {
                (plan.attributes, plan.cleared) = (plan.attributes | STRICTATIME, plan.cleared | ATIME);
            }
            "private" | "slave" | "rprivate" | "rslave" => {
                let flag = if option.ends_with("private") { libc::MS_PRIVATE } else { libc::MS_SLAVE };
                plan.propagation = Some((flag, option.starts_with('r')));
            }
            other => {
                let (key, value) = match other.split_once('=') {
                    Some((key, value)) => (key, Some(value.to_owned())),
                    None => (other, None),
                };
                let may = OWN_OPTIONS
                    .iter()
                    .any(|(kind, options)| !is_bind && *kind == mount.kind && options.contains(&key));
                if !may {
                    return not(&format!("option {other}"));
                }
                own.push((key.to_owned(), value));
            }
        }
    }
    plan.what = match mount.kind.as_str() {
        _ if is_bind && mount.source.is_absolute() => {
            What::Bind { source: mount.source.clone(), is_recursive }
        }
        "cgroup" if !is_bind && own.is_empty() => What::Cgroups,
        kind if !is_bind && OWN_OPTIONS.iter().any(|(known, _)| *known == kind) => {
            let source = mount.source.to_str().filter(|source| !source.is_empty()).unwrap_or(kind);
            own.push(("source".to_owned(), Some(source.to_owned())));
            What::New { kind: kind.to_owned(), options: own }
        }
        kind => return not(&format!("type {kind:?}")),
    };
    let is_tmpfs = matches!(&plan.what, What::New { kind, .. } if kind == "tmpfs");
    if is_tmpfs && (plan.attributes | plan.recursive_attributes) & RDONLY != 0 {
        // It must be written to first, for what is mounted in it.
        return not("a tmpfs that cannot be changed");
    }
    if !is_bind && plan.propagation.is_some_and(|(flag, _)| flag != libc::MS_PRIVATE) {
        return not("propagation");
    }
    Ok(plan)
}
