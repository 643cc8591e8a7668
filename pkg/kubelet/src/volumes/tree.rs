//! Folders of volumes: memory mounted into them, paths below them, and how they are removed without touching what is
//! mounted there.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

/// Mounts memory at a folder, unless some is mounted there.
pub(super) fn mount_tmpfs(dir: &Path, size_bytes: Option<i64>) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    if mounts_below(dir)?.iter().any(|mounted| mounted == dir) {
        return Ok(());
    }
    let options = size_bytes.map_or("mode=0777".to_owned(), |size| format!("mode=0777,size={size}"));
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), dir, Some("tmpfs"), flags, Some(options.as_str())).map_err(Error::from)
}

/// What is mounted at a folder or below it, deepest first.
pub(super) fn mounts_below(dir: &Path) -> Result<Vec<PathBuf>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    let mut found: Vec<PathBuf> = text
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
        .filter(|path| path.starts_with(dir))
        .collect();
    found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    Ok(found)
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

/// Unmounts all below a folder and removes it. What cannot be unmounted is not removed.
pub(crate) fn remove_tree(dir: &Path) -> Result<()> {
    for mounted in mounts_below(dir)? {
        umount2(&mounted, MntFlags::MNT_DETACH).map_err(Error::from)?;
    }
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// A path below a volume, made if it is not there. It never leads out of the volume, whatever links are in it.
pub(crate) fn sub_path(volume: &Path, path: &str, read_only: bool) -> std::result::Result<PathBuf, String> {
    let relative = Path::new(path);
    if relative.components().any(|part| matches!(part, Component::ParentDir | Component::RootDir)) {
        return Err(format!("must not be absolute or contain '..': {path}"));
    }
    let root = volume.canonicalize().map_err(|error| format!("{}: {error}", volume.display()))?;
    let mut at = root.clone();
    for part in relative.components() {
        let Component::Normal(name) = part else { continue };
        let next = at.join(name);
        at = match next.canonicalize() {
            Ok(resolved) => resolved,
            Err(error) if error.kind() == ErrorKind::NotFound && !read_only => {
                let made = std::fs::DirBuilder::new().mode(0o750).create(&next);
                made.map_err(|error| format!("{}: {error}", next.display()))?;
                next
            }
            Err(error) => return Err(format!("{}: {error}", next.display())),
        };
        if !at.starts_with(&root) {
            return Err(format!("{path} leads out of the volume"));
        }
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sub_path_stays_in_its_volume() {
        let dir = tempfile::tempdir().expect("a folder");
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).expect("a volume");
        std::os::unix::fs::symlink("/etc", volume.join("out")).expect("a link");
        std::os::unix::fs::symlink("in", volume.join("link")).expect("a link");
        std::fs::create_dir(volume.join("in")).expect("a folder");
        assert!(sub_path(&volume, "a/b", false).expect("made").ends_with("volume/a/b"));
        assert!(sub_path(&volume, "link/x", false).expect("made").ends_with("volume/in/x"));
        for bad in ["out", "out/passwd", "../x", "/etc"] {
            assert!(sub_path(&volume, bad, false).is_err(), "{bad}");
        }
        assert!(sub_path(&volume, "none", true).is_err(), "nothing is made in a read-only mount");
    }

    #[test]
    fn the_kernels_escapes() {
        assert_eq!(unescape(br"/a\040b\134c"), PathBuf::from("/a b\\c"));
    }
}
