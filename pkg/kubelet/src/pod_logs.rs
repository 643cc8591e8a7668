//! The log files of containers, which are found without following a link.
//!
//! A pod that may write to `/var/log` could otherwise lay a link there, and have any file of the node read to it, packed
//! for it or written to.

use crate::beneath::{Looks, Root};
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// `<namespace>_<name>_<uid>/<container>/<attempt>.log`: what we make in the folder of all logs.
const OWN_PARTS: usize = 3;

/// Opens a log for reading.
pub(crate) fn open(log: &Path) -> Result<File> {
    let (root, own) = split(log)?;
    Root::without_links(&root)?.read(&own)
}

/// The folder that a log and those rotated before it are in.
pub(crate) fn folder(log: &Path) -> Result<Root> {
    let (root, own) = split(log)?;
    Root::without_links(&root)?.folder(own.parent().unwrap_or(&own))
}

/// Makes the folder of a log.
pub(crate) fn make_folder(log: &Path) -> Result<()> {
    let (root, own) = split(log)?;
    std::fs::create_dir_all(&root)?;
    let folder = own.parent().unwrap_or(&own);
    Root::without_links(&root)?.find_or_make(folder, Looks::own(0o755)).map(drop)
}

/// The folder of all logs, and the rest.
fn split(log: &Path) -> Result<(PathBuf, PathBuf)> {
    let root = log.ancestors().nth(OWN_PARTS);
    let own = root.and_then(|root| Some((root.to_owned(), log.strip_prefix(root).ok()?.to_owned())));
    own.ok_or_else(|| Error::new(ErrorKind::InvalidInput, format!("{} is not a log", log.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_pipes_are_no_logs() {
        let dir = tempfile::tempdir().unwrap();
        let logs = dir.path().join("pods");
        let log = logs.join("ns_pod_uid/main/0.log");
        make_folder(&log).unwrap();
        std::fs::write(&log, "line").unwrap();
        assert_eq!(std::io::read_to_string(open(&log).unwrap()).unwrap(), "line");
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        symlink(dir.path().join("secret"), logs.join("ns_pod_uid/main/1.log")).unwrap();
        nix::unistd::mkfifo(&logs.join("ns_pod_uid/main/2.log"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        symlink("main", logs.join("ns_pod_uid/other")).unwrap();
        symlink("/etc", logs.join("ns_pod_away")).unwrap();
        for bad in ["ns_pod_uid/main/1.log", "ns_pod_uid/main/2.log", "ns_pod_uid/other/0.log"] {
            assert!(open(&logs.join(bad)).is_err(), "{bad}");
        }
        assert!(make_folder(&logs.join("ns_pod_uid/other/0.log")).is_err());
        assert!(make_folder(&logs.join("ns_pod_away/main/0.log")).is_err());
        assert!(!Path::new("/etc/main").exists());
    }
}
