//! Sub-paths of volumes: what is at the path is opened once, and mounted at a place of the kubelet's own.
//!
//! ```text
//! volume/some/path ── Root ──> open file ── bind ──> pods/<uid>/volume-subpaths/<volume>/<container>/<index> ──> runtime
//! ```
//!
//! Whoever writes to the volume can move what is in it at any moment, but not what is open, and nothing at that place.

use crate::beneath::{Root, path_of};
use crate::runtime::Propagation;
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::DirBuilder;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path};

/// Mounts a sub-path of a volume at a place. Folders of it that are missing are made, and look as the volume does.
pub(crate) fn prepare(volume: &Path, path: &str, place: &Path, propagation: Propagation) -> Result<()> {
    bind(&find(volume, path)?, place, propagation)
}

/// What is at a sub-path of a volume.
fn find(volume: &Path, path: &str) -> Result<OwnedFd> {
    let relative = Path::new(path);
    if relative.components().any(|part| matches!(part, Component::ParentDir | Component::RootDir)) {
        let message = format!("must not be absolute or contain '..': {path}");
        return Err(Error::new(ErrorKind::InvalidInput, message));
    }
    let root = Root::with_links(volume)?;
    root.find_or_make(relative, root.looks()?)
}

/// Mounts what is open at a place, in place of what was there.
fn bind(found: &OwnedFd, place: &Path, propagation: Propagation) -> Result<()> {
    let source = path_of(found);
    clear(place)?;
    if let Some(parent) = place.parent() {
        DirBuilder::new().recursive(true).mode(0o750).create(parent)?;
    }
    if std::fs::metadata(&source)?.is_dir() {
        DirBuilder::new().mode(0o750).create(place)?;
    } else {
        drop(std::fs::File::create_new(place)?);
    }
    mount(Some(&source), place, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
    let own = match propagation {
        Propagation::None => MsFlags::MS_PRIVATE,
        Propagation::HostToContainer => MsFlags::MS_SLAVE,
        Propagation::Bidirectional => return Ok(()),
    };
    Ok(mount(None::<&str>, place, None::<&str>, own, None::<&str>)?)
}

/// Leaves nothing at a place: neither what an earlier container was given, nor what a crash left.
fn clear(place: &Path) -> Result<()> {
    loop {
        // Unmounting it must not unmount anything where it comes from.
        let _ = mount(None::<&str>, place, None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>);
        match umount2(place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => break,
            Err(error) => return Err(error.into()),
        }
    }
    // Not a mount any more, so empty: whatever else it is, stays, and is an error.
    match std::fs::remove_file(place) {
        Err(error) if error.kind() == ErrorKind::IsADirectory => std::fs::remove_dir(place),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beneath::is_same;
    use crate::volumes::remove_tree;
    use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Preparations raced by somebody who moves things; a twentieth of them unless `SOAK` is set.
    const RACES: usize = 100_000;

    #[test]
    fn a_sub_path_stays_in_its_volume_and_looks_like_it() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::os::unix::fs::chown(&volume, Some(7), Some(8)).unwrap();
        std::fs::set_permissions(&volume, std::os::unix::fs::PermissionsExt::from_mode(0o2770)).unwrap();
        symlink("/etc", volume.join("out")).unwrap();
        symlink("in", volume.join("link")).unwrap();
        std::fs::create_dir(volume.join("in")).unwrap();
        assert!(is_same(&find(&volume, "a/b").unwrap(), &volume.join("a/b")));
        assert!(is_same(&find(&volume, "link/x").unwrap(), &volume.join("in/x")));
        let seen = std::fs::metadata(volume.join("a/b")).unwrap();
        assert_eq!((seen.mode() & 0o7777, seen.uid(), seen.gid()), (0o2770, 7, 8));
        for bad in ["out", "out/passwd", "../x", "/etc"] {
            assert!(find(&volume, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_holds_what_was_mounted_last_and_is_left_clean() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, pod) = (dir.path().join("volume"), dir.path().join("pod"));
        let place = pod.join("volume-subpaths/v/c/0");
        std::fs::create_dir_all(volume.join("folder")).unwrap();
        std::fs::write(volume.join("file"), "text").unwrap();
        for _ in 0..2 {
            prepare(&volume, "folder", &place, Propagation::HostToContainer).unwrap();
            std::fs::write(place.join("written"), "").unwrap();
            prepare(&volume, "file", &place, Propagation::None).unwrap();
            assert_eq!(std::fs::read_to_string(&place).unwrap(), "text");
        }
        prepare(&volume, "folder", &place, Propagation::Bidirectional).unwrap();
        remove_tree(&pod).unwrap();
        assert!(!pod.exists());
        assert!(volume.join("folder/written").exists(), "only the mount is gone");
        assert!(volume.join("file").exists());
    }

    /// Somebody exchanges the folder with a link to elsewhere as fast as they can.
    #[test]
    fn nobody_wins_the_race_for_a_sub_path() {
        let dir = tempfile::tempdir().unwrap();
        let (volume, outside) = (dir.path().join("volume"), dir.path().join("outside"));
        std::fs::create_dir_all(volume.join("a/data")).unwrap();
        std::fs::create_dir_all(outside.join("data")).unwrap();
        symlink("../outside", volume.join("b")).unwrap();
        let place = dir.path().join("pod/volume-subpaths/v/c/0");
        let races = if std::env::var_os("SOAK").is_some() { RACES } else { RACES / 20 };
        let done = AtomicBool::new(false);
        let (mut inside, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (a, b) = (volume.join("a"), volume.join("b"));
                while !done.load(Ordering::Relaxed) {
                    renameat2(AT_FDCWD, &a, AT_FDCWD, &b, RenameFlags::RENAME_EXCHANGE).unwrap();
                }
            });
            for _ in 0..races {
                match prepare(&volume, "a/data", &place, Propagation::None) {
                    Ok(()) => {
                        inside += 1;
                        let of = |path: &Path| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).unwrap();
                        assert_ne!(of(&place), of(&outside.join("data")), "won by the attacker");
                    }
                    Err(_) => refused += 1,
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        remove_tree(&dir.path().join("pod")).unwrap();
        assert!(inside > 0 && refused > 0, "both were seen: {inside} inside, {refused} refused");
        println!("{races} preparations: {inside} inside, {refused} refused, 0 outside");
    }
}
