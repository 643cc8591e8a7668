//! Folders of volumes: memory mounted into them, and how they are removed without touching what is mounted there.

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Mounts memory at a folder, unless some is mounted there.
pub(super) fn mount_tmpfs(dir: &Path, mode: u32, size_bytes: Option<i64>) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    if is_mounted(dir)? {
        return Ok(());
    }
    let size = size_bytes.map(|size| format!(",size={size}")).unwrap_or_default();
    let options = format!("mode={mode:04o}{size}");
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some(options.as_str())).map_err(Error::from)
}

/// Whether something is mounted at a folder.
pub(super) fn is_mounted(dir: &Path) -> Result<bool> {
    Ok(mounts_below(dir)?.iter().any(|mounted| mounted == dir))
}

/// What is mounted at a folder or below it, deepest first.
pub(super) fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let all = mounts(&table).into_iter().map(|mount| mount.at);
    let mut found: Vec<PathBuf> = all.filter(|path| path.starts_with(dir)).collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    Ok(found)
}

/// A line of the kernel's table of mounts.
struct MountEntry {
    id: String,
    parent: String,
    device: String,
    at: PathBuf,
    is_shared: bool,
}

fn mounts(table: &[u8]) -> Vec<MountEntry> {
    let lines = table.split(|byte| *byte == b'\n');
    let entries = lines.filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let [id, parent, device, _, at, _, tags @ ..] = &fields[..] else { return None };
        let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
        let mut tags = tags.iter().take_while(|tag| **tag != b"-");
        Some(MountEntry {
            id: text(id),
            parent: text(parent),
            device: text(device),
            at: unescape(at),
            is_shared: tags.any(|tag| tag.starts_with(b"shared:")),
        })
    });
    entries.collect()
}

/// The kernel writes blanks and the like as `\040`.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\')
            .then(|| std::str::from_utf8(after.get(..3)?).ok())
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

/// Unmounts all these, deepest first, and nothing anywhere else.
fn unmount(mounted: &[PathBuf]) -> Result<()> {
    for at in mounted {
        // What is mounted in a mount that is shared would be unmounted where that comes from, too.
        let _ = mount(None::<&str>, at, None::<&str>, MsFlags::MS_PRIVATE, None::<&str>);
    }
    for at in mounted {
        match umount2(at, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            // Gone with another, or covered by one.
            Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Has what is mounted below a folder cross into containers, and back where they ask for that, also on nodes whose root
/// lets nothing cross.
pub(crate) fn share(dir: &Path) -> Result<()> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    let all = mounts(&table);
    let above = all.iter().filter(|mount| dir.starts_with(&mount.at));
    // Of two at one place, the later covers the earlier.
    if above.max_by_key(|mount| mount.at.components().count()).is_some_and(|mount| mount.is_shared) {
        return Ok(());
    }
    let nothing = None::<&str>;
    mount(Some(dir), dir, nothing, MsFlags::MS_BIND | MsFlags::MS_REC, nothing)?;
    Ok(mount(nothing, dir, nothing, MsFlags::MS_SHARED | MsFlags::MS_REC, nothing)?)
}

/// Unmounts all below a folder, and what [`share`] has mounted at it, but no disk that somebody has mounted there.
pub(crate) fn unshare(dir: &Path) -> Result<()> {
    unmount(&mounts_below(dir)?.into_iter().filter(|at| at != dir).collect::<Vec<_>>())?;
    let table = std::fs::read("/proc/self/mountinfo")?;
    let own = own_binds(&mounts(&table), dir);
    unmount(&vec![dir.to_owned(); own])
}

/// How many times a folder is mounted on itself.
fn own_binds(all: &[MountEntry], dir: &Path) -> usize {
    let device = |id: &str| all.iter().find(|mount| mount.id == id).map(|mount| &mount.device);
    all.iter().filter(|mount| mount.at == dir && device(&mount.parent) == Some(&mount.device)).count()
}

/// Unmounts all below a folder and removes it. What cannot be unmounted is not removed.
pub(crate) fn remove_tree(dir: &Path) -> Result<()> {
    unmount(&mounts_below(dir)?)?;
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_not_mistaken_for_a_mount_of_our_own() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
                      2 1 8:2 / /disk rw - ext4 /dev/b rw\n\
                      3 2 8:2 / /disk rw shared:9 - ext4 /dev/b rw\n\
                      4 1 8:1 /plain /plain rw shared:8 - ext4 /dev/a rw\n";
        let count = |dir: &str| own_binds(&mounts(table), Path::new(dir));
        assert_eq!((count("/disk"), count("/plain"), count("/")), (1, 1, 0));
    }

    #[test]
    fn a_folder_is_shared_once_and_given_back() {
        let dir = tempfile::tempdir().expect("a folder");
        // Wherever the test runs: on a mount that lets nothing cross.
        mount_tmpfs(dir.path(), 0o755, None).expect("mounted");
        let private = MsFlags::MS_PRIVATE;
        mount(None::<&str>, dir.path(), None::<&str>, private, None::<&str>).expect("private");
        let root = dir.path().join("root");
        std::fs::create_dir(&root).expect("a folder");
        for _ in 0..2 {
            share(&root).expect("shared");
            assert_eq!(mounts_below(&root).expect("mounts"), std::slice::from_ref(&root));
        }
        mount_tmpfs(&root.join("volume"), 0o755, None).expect("mounted");
        unshare(&root).expect("given back");
        assert_eq!(mounts_below(&root).expect("mounts"), [] as [PathBuf; 0]);
        remove_tree(dir.path()).expect("removed");
    }

    #[test]
    fn the_kernels_escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), PathBuf::from("/a b\\c"));
    }
}
