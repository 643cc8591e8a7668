//! Files that are whole or not there at all.

use crate::Error;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Who may read a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Everybody (0644).
    Public,
    /// The owner only (0600).
    Secret,
}

/// Writes a file beside its place and moves it there: readers see the old content or the new, a crash leaves
/// one of them. It is on disk when this returns.
pub fn write(path: &Path, content: &[u8], mode: Mode) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let bits = match mode {
        Mode::Public => 0o644,
        Mode::Secret => 0o600,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(name);
    let written = (|| {
        // A leftover of a crash may have other permissions.
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(bits).open(&beside)?;
        file.set_permissions(Permissions::from_mode(bits))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&beside, path)?;
        match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)?.sync_all(),
            None => Ok(()),
        }
    })();
    if written.is_err() {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&beside);
    }
    written.map_err(failed)
}

/// The content of a file, `None` where there is none.
pub fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_for_its_owner_only_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sa.key");
        for content in ["one", "two"] {
            write(&path, content.as_bytes(), Mode::Secret).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(read(&dir.path().join("none")).unwrap(), None);
    }
}
