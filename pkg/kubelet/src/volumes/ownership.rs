//! `fsGroup`: what is in a volume belongs to the group, and the group may use it.

use crate::beneath::{Root, path_of};
use k8s_openapi::api::core::v1::Pod;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FileStat, fstat};
use nix::unistd::{Gid, fchownat};
use std::fs;
use std::io::Result;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the group may do with a folder beside reading or writing: go in; and new files belong to the group, too.
const FOLDER: u32 = 0o2110;

/// Gives a volume to the pod's group, if it has one. `read_only`: the group may not write.
///
/// Containers may be running that write to it: each file is opened once, without following a link, and what is open is
/// looked at and changed.
pub(super) fn apply(dir: &Path, pod: &Pod, read_only: bool) -> Result<()> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let Some(group) = context.and_then(|context| context.fs_group) else { return Ok(()) };
    let Ok(group) = u32::try_from(group) else { return Ok(()) };
    let bits = if read_only { 0o440 } else { 0o660 };
    let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
    let root = Root::without_links(dir)?;
    let found = fstat(root.find(Path::new(""))?)?;
    if policy == Some("OnRootMismatch") && is_given(&found, group, bits) {
        return Ok(());
    }
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for name in root.names(&folder)? {
            let path = folder.join(name);
            match root.find_itself(&path) {
                Ok(found) if give(&found, group, bits)? => folders.push(path),
                // It was moved or removed meanwhile.
                Ok(_) | Err(_) => {}
            }
        }
    }
    // The root last: it says that all the rest is done.
    give(&root.find(Path::new(""))?, group, bits).map(drop)
}

/// Whether the root of a volume says that it has been given to the group.
fn is_given(root: &FileStat, group: u32, bits: u32) -> bool {
    let wanted = bits | FOLDER;
    root.st_gid == group && root.st_mode & wanted == wanted
}

/// Gives one file; says whether it is a folder.
fn give(found: &OwnedFd, group: u32, bits: u32) -> Result<bool> {
    let seen = fstat(found)?;
    fchownat(found, c"", None, Some(Gid::from_raw(group)), AtFlags::AT_EMPTY_PATH)?;
    let kind = seen.st_mode & nix::libc::S_IFMT;
    if kind == nix::libc::S_IFLNK {
        return Ok(false);
    }
    let is_folder = kind == nix::libc::S_IFDIR;
    let more = if is_folder { bits | FOLDER } else { bits };
    fs::set_permissions(path_of(found), fs::Permissions::from_mode(seen.st_mode & 0o7777 | more))?;
    Ok(is_folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn pod(policy: Option<&str>) -> Pod {
        let context = json!({"fsGroup": 4242, "fsGroupChangePolicy": policy});
        serde_json::from_value(json!({"spec": {"containers": [], "securityContext": context}}))
            .expect("a pod")
    }

    fn of(path: &Path) -> (u32, u32) {
        fs::metadata(path).map(|seen| (seen.gid(), seen.mode() & 0o7777)).expect("there")
    }

    #[test]
    fn the_group_owns_what_is_in_the_volume() {
        let dir = tempfile::tempdir().expect("a folder");
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        fs::create_dir_all(volume.join("deep")).expect("a folder");
        for file in [volume.join("file"), volume.join("deep/file"), outside.clone()] {
            fs::write(&file, "").expect("a file");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
        }
        symlink("../outside", volume.join("link")).expect("a link");
        let before = of(&outside);
        apply(&volume, &pod(None), false).expect("given");
        assert_eq!(of(&volume.join("file")), (4242, 0o660));
        assert_eq!(of(&volume.join("deep/file")), (4242, 0o660));
        assert_eq!((of(&volume).1 & 0o2770, of(&volume.join("deep")).1 & 0o2770), (0o2770, 0o2770));
        assert_eq!(of(&outside), before, "links lead nowhere");
    }

    #[test]
    fn what_the_root_says_is_believed_where_that_is_asked_for() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("file");
        apply(dir.path(), &pod(Some("OnRootMismatch")), false).expect("given");
        fs::write(&file, "").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("permissions");
        apply(dir.path(), &pod(Some("OnRootMismatch")), false).expect("given");
        assert_eq!(of(&file).1, 0o600, "the root says that it is done");
        apply(dir.path(), &pod(Some("Always")), false).expect("given");
        assert_eq!(of(&file).1, 0o660);
    }
}
