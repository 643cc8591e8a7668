//! What phases do to this machine: files and programs. With `--dry-run` they only say what they would do.

use anyhow::{Context, Result, bail};
use pki::file::{self, Mode};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// This machine, or what would be done to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// Only says what it would do.
    pub dry_run: bool,
}

impl Host {
    /// Writes a file whole, and the folders above it; one that says the same already stays. Whether it wrote.
    pub fn write(&self, path: &Path, content: &str, mode: Mode) -> Result<bool> {
        if file::read(path)?.as_deref() == Some(content) {
            return Ok(false);
        }
        if self.would(&format!("write {} ({} bytes)", path.display(), content.len())) {
            return Ok(true);
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        }
        file::write(path, content.as_bytes(), mode)?;
        Ok(true)
    }

    /// Makes a folder that only root may look into.
    pub fn private_folder(&self, path: &Path) -> Result<()> {
        if path.is_dir() || self.would(&format!("make {}", path.display())) {
            return Ok(());
        }
        fs::create_dir_all(path).with_context(|| format!("make {}", path.display()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .with_context(|| format!("protect {}", path.display()))
    }

    /// Removes a file or a whole folder; what is not there is fine. Of a file system of its own (a disk that somebody has
    /// mounted there for it) all that is in it is removed.
    pub fn remove(&self, path: &Path) -> Result<bool> {
        let Ok(metadata) = path.symlink_metadata() else { return Ok(false) };
        if self.would(&format!("remove {}", path.display())) {
            return Ok(true);
        }
        let removed = if metadata.is_dir() { remove_folder(path) } else { fs::remove_file(path) };
        removed.with_context(|| format!("remove {}", path.display()))?;
        Ok(true)
    }

    /// Runs a program that must succeed. What it prints.
    pub fn call(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let line = format!("{program} {}", arguments.join(" "));
        if self.would(&format!("run {line}")) {
            return Ok(String::new());
        }
        let output = Command::new(program).args(arguments).output().with_context(|| format!("run {line}"))?;
        if !output.status.success() {
            bail!("{line}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Says what would be done, if that is all that is to be done.
    pub fn would(&self, what: &str) -> bool {
        if self.dry_run {
            println!("would {what}");
        }
        self.dry_run
    }
}

fn remove_folder(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        // Empty by now, if it is what is busy: something is mounted there.
        Err(error) if error.kind() == ErrorKind::ResourceBusy && fs::read_dir(path)?.next().is_none() => {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::mount::{MntFlags, MsFlags, mount, umount2};

    #[test]
    fn a_file_system_of_its_own_is_emptied() {
        let dir = tempfile::tempdir().expect("a folder");
        let (disk, folder) = (dir.path().join("disk"), dir.path().join("folder"));
        fs::create_dir_all(&disk).expect("made");
        mount(Some("logs"), &disk, Some("tmpfs"), MsFlags::empty(), None::<&str>).expect("mounted");
        for folder in [&disk, &folder] {
            fs::create_dir_all(folder.join("kube-system_etcd/etcd")).expect("made");
            fs::write(folder.join("kube-system_etcd/etcd/0.log"), "line").expect("written");
        }
        let host = Host { dry_run: false };
        let removed =
            [&disk, &folder].map(|folder| host.remove(folder).map_err(|error| format!("{error:#}")));
        let left = fs::read_dir(&disk).expect("it is there").count();
        umount2(&disk, MntFlags::MNT_DETACH).expect("unmounted");
        assert_eq!(removed, [Ok(true), Ok(true)]);
        assert_eq!(left, 0);
        assert!(!folder.exists());
    }
}
