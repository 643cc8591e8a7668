//! A folder whose files change all at once.
//!
//! ```text
//! volume/key -> ..data/key        links for those who read
//! volume/..data -> ..2026_11_16…  replaced by one rename
//! volume/..2026_11_16…/key        the files themselves
//! ```

use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// A file of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    /// What is in it.
    pub content: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// Its owner, if not root.
    pub owner: Option<u32>,
}

/// The files of a volume by their relative paths.
pub(super) type Files = BTreeMap<PathBuf, File>;

/// Whether a folder has been written before.
pub(super) fn is_written(dir: &Path) -> bool {
    dir.join(DATA).exists()
}

/// Makes a folder hold these files, if it does not already.
pub(super) fn write(dir: &Path, files: &Files, now: Timestamp) -> Result<()> {
    fs::create_dir_all(dir)?;
    for path in files.keys() {
        check(path)?;
    }
    let old = fs::read_link(dir.join(DATA)).ok();
    if let Some(old) = &old
        && is_same(&dir.join(old), files)?
    {
        return link(dir, files);
    }
    let stamp = now.strftime("..%Y_%m_%d_%H_%M_%S").to_string();
    let name = format!("{stamp}.{:010}", now.subsec_nanosecond());
    let new = dir.join(&name);
    fs::create_dir(&new)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    for (path, file) in files {
        let target = new.join(path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        // Never more than it is to have, not even for a moment.
        let mut made =
            fs::OpenOptions::new().write(true).create_new(true).mode(file.mode & 0o600).open(&target)?;
        made.write_all(&file.content)?;
        fs::set_permissions(&target, fs::Permissions::from_mode(file.mode))?;
        if let Some(owner) = file.owner {
            chown(&target, Some(owner), None)?;
        }
    }
    let _ = fs::remove_file(dir.join(NEW_DATA));
    symlink(&name, dir.join(NEW_DATA))?;
    fs::rename(dir.join(NEW_DATA), dir.join(DATA))?;
    link(dir, files)?;
    remove_others(dir, &name)
}

fn check(path: &Path) -> Result<()> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_ours = path.to_string_lossy().starts_with("..");
    if plain && !is_ours && !path.as_os_str().is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("invalid path {}", path.display())))
}

fn is_same(dir: &Path, files: &Files) -> Result<bool> {
    let mut there = BTreeSet::new();
    collect(dir, dir, &mut there)?;
    if !there.iter().eq(files.keys()) {
        return Ok(false);
    }
    for (path, file) in files {
        if fs::read(dir.join(path))? != file.content {
            return Ok(false);
        }
    }
    Ok(true)
}

fn collect(root: &Path, dir: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, found)?;
        } else if let Ok(relative) = path.strip_prefix(root) {
            found.insert(relative.to_path_buf());
        }
    }
    Ok(())
}

/// The links that readers follow: one per first part of a path.
fn link(dir: &Path, files: &Files) -> Result<()> {
    let wanted: BTreeSet<PathBuf> = files
        .keys()
        .filter_map(|path| path.components().next())
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect();
    for name in &wanted {
        let at = dir.join(name);
        if fs::symlink_metadata(&at).is_err() {
            symlink(Path::new(DATA).join(name), at)?;
        }
    }
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        let is_ours = name.to_string_lossy().starts_with("..");
        if !is_ours && entry.file_type()?.is_symlink() && !wanted.contains(&name) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Removes what earlier writes left, finished or not.
fn remove_others(dir: &Path, keep: &str) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("..") && name != DATA && name != keep && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |content: &str| File { content: content.into(), mode: 0o640, owner: None };
        list.iter().map(|(path, content)| (PathBuf::from(path), file(content))).collect()
    }

    #[test]
    fn files_change_all_at_once_and_only_when_they_differ() {
        let dir = tempfile::tempdir().expect("a folder");
        let read = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
        let at = |second| Timestamp::from_second(second).expect("a time");
        write(dir.path(), &files(&[("a", "1"), ("d/b", "2")]), at(1)).expect("written");
        assert_eq!((read("a").as_deref(), read("d/b").as_deref()), (Some("1"), Some("2")));
        let first = fs::read_link(dir.path().join(DATA)).expect("a link");
        write(dir.path(), &files(&[("a", "1"), ("d/b", "2")]), at(2)).expect("written");
        assert_eq!(fs::read_link(dir.path().join(DATA)).expect("a link"), first, "nothing has changed");
        write(dir.path(), &files(&[("a", "3")]), at(3)).expect("written");
        assert_eq!((read("a").as_deref(), read("d/b")), (Some("3"), None));
        let left = fs::read_dir(dir.path()).expect("a folder").count();
        assert_eq!(left, 3, "a, ..data and the newest files");
        let mode = fs::metadata(dir.path().join("a")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        for bad in ["../x", "/x", "..data", "a/../../b"] {
            assert!(write(dir.path(), &files(&[(bad, "")]), Timestamp::UNIX_EPOCH).is_err(), "{bad}");
        }
    }

    #[test]
    fn nothing_at_all_is_a_payload_too() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), &Files::new(), Timestamp::UNIX_EPOCH).expect("written");
        assert!(is_written(dir.path()));
    }
}
