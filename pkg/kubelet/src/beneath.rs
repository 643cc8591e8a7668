//! Files and folders below a folder that others may write to, found without ever leaving it.
//!
//! ```text
//! path ── openat2, beneath the root ──> open file ──> read it, list it, bind it: never by its path again
//! ```
//!
//! A path that is checked and then used again can lead elsewhere the second time: whoever may write below the root
//! exchanges a folder and a link in between. So the kernel resolves a path once, and what it found stays open.

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, unlinkat};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// How often a path is looked up again while others move what it leads through.
const TRIES: usize = 64;
/// A folder that is being made is nobody else's until it looks as it should.
const WHILE_MADE: Mode = Mode::S_IRWXU;

/// A folder below which files are found.
pub(crate) struct Root {
    folder: OwnedFd,
    resolve: ResolveFlag,
}

/// How a folder that is made looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looks {
    /// Its permissions.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Looks {
    /// Of a folder of our own.
    pub fn own(mode: u32) -> Looks {
        Looks { mode, uid: geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() }
    }
}

impl Root {
    /// A folder in which links may lead to other places of it.
    pub fn with_links(path: &Path) -> Result<Root> {
        Root::open(path, ResolveFlag::RESOLVE_NO_MAGICLINKS)
    }

    /// A folder below which there is no link that we would follow.
    pub fn without_links(path: &Path) -> Result<Root> {
        Root::open(path, ResolveFlag::RESOLVE_NO_SYMLINKS)
    }

    fn open(path: &Path, links: ResolveFlag) -> Result<Root> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(Root { folder, resolve: links | ResolveFlag::RESOLVE_BENEATH })
    }

    /// How the root itself looks.
    pub fn looks(&self) -> Result<Looks> {
        let seen = fstat(&self.folder)?;
        Ok(Looks { mode: seen.st_mode & 0o7777, uid: seen.st_uid, gid: seen.st_gid })
    }

    /// What is at a path, of whatever kind. It is not opened for reading: devices and pipes notice nothing.
    pub fn find(&self, path: &Path) -> Result<OwnedFd> {
        self.open_as(path, OFlag::O_PATH)
    }

    /// The same, but of a link the link itself.
    pub fn find_itself(&self, path: &Path) -> Result<OwnedFd> {
        self.open_as(path, OFlag::O_PATH | OFlag::O_NOFOLLOW)
    }

    /// A file, to be read. Nothing else: a pipe would keep whoever reads it for ever.
    pub fn read(&self, path: &Path) -> Result<File> {
        let found = self.find(path)?;
        if fstat(&found)?.st_mode & nix::libc::S_IFMT != nix::libc::S_IFREG {
            return Err(Error::new(ErrorKind::InvalidInput, format!("{} is not a file", path.display())));
        }
        File::open(path_of(&found))
    }

    /// A file that is not there yet, to be written.
    pub fn create_new(&self, path: &Path, mode: u32) -> Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
        Ok(self.open_how(path, OpenHow::new().flags(flags).mode(Mode::from_bits_truncate(mode)))?.into())
    }

    /// Whether a name in the folder itself is a folder's, or a link's to one: nothing is opened.
    pub fn leads_to_folder(&self, name: &OsStr) -> bool {
        let seen = fstatat(&self.folder, name, AtFlags::empty());
        seen.is_ok_and(|seen| seen.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)
    }

    /// A folder below it, as a root of its own.
    pub fn folder(&self, path: &Path) -> Result<Root> {
        let folder = self.open_as(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Ok(Root { folder, resolve: self.resolve })
    }

    /// Gives something in the folder itself another name there.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<()> {
        Ok(renameat(&self.folder, plain(from)?, &self.folder, plain(to)?)?)
    }

    /// Removes something from the folder itself, but no folder.
    pub fn remove(&self, name: &OsStr) -> Result<()> {
        Ok(unlinkat(&self.folder, plain(name)?, UnlinkatFlags::NoRemoveDir)?)
    }

    /// The names in a folder.
    pub fn names(&self, path: &Path) -> Result<Vec<std::ffi::OsString>> {
        let folder = self.open_as(path, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        std::fs::read_dir(path_of(&folder))?.map(|entry| Ok(entry?.file_name())).collect()
    }

    /// What is at a path; folders that are missing are made, and look as asked.
    pub fn find_or_make(&self, path: &Path, looks: Looks) -> Result<OwnedFd> {
        if path.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(Errno::EINVAL.into());
        }
        for _ in 0..TRIES {
            match self.find(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => self.make_missing(path, looks)?,
                found => return found,
            }
        }
        Err(Errno::EAGAIN.into())
    }

    fn make_missing(&self, path: &Path, looks: Looks) -> Result<()> {
        let (mut folder, mut at) = (self.find(Path::new(""))?, PathBuf::new());
        let mut made = false;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            at.push(name);
            if !made {
                match self.find(&at) {
                    Ok(found) => {
                        folder = found;
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::NotFound => made = true,
                    Err(error) => return Err(error),
                }
            }
            folder = make_folder(&folder, name, looks)?;
        }
        Ok(())
    }

    fn open_as(&self, path: &Path, flags: OFlag) -> Result<OwnedFd> {
        self.open_how(path, OpenHow::new().flags(flags | OFlag::O_CLOEXEC))
    }

    fn open_how(&self, path: &Path, how: OpenHow) -> Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = how.resolve(self.resolve);
        for _ in 0..TRIES {
            match openat2(&self.folder, path, how) {
                // Something on the way was moved meanwhile.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                found => return Ok(found?),
            }
        }
        Err(Errno::EAGAIN.into())
    }
}

/// A name, and no path that leads elsewhere.
fn plain(name: &OsStr) -> Result<&OsStr> {
    match Path::new(name).components().collect::<Vec<_>>()[..] {
        [Component::Normal(only)] => Ok(only),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Makes a folder, or opens the one that is there.
fn make_folder(parent: &OwnedFd, name: &OsStr, looks: Looks) -> Result<OwnedFd> {
    let is_made = match mkdirat(parent, name, WHILE_MADE) {
        Ok(()) => true,
        Err(Errno::EEXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let folder = openat(parent, name, flags, Mode::empty())?;
    let seen = fstat(&folder)?;
    // One that somebody has put in its place meanwhile stays as it is.
    if is_made && seen.st_uid == geteuid().as_raw() && seen.st_mode & 0o777 == WHILE_MADE.bits() {
        fchown(&folder, Some(Uid::from_raw(looks.uid)), Some(Gid::from_raw(looks.gid)))?;
        fchmod(&folder, Mode::from_bits_truncate(looks.mode))?;
    }
    Ok(folder)
}

/// A path that leads to what is open, and to nothing else, as long as it is open.
pub(crate) fn path_of(open: &impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()))
}

/// A file that no link leads to and that is none, to be read: of our own folders, which somebody may have been given.
pub(crate) fn read_own(path: &Path) -> Result<File> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, format!("{} is not a file", path.display()))),
    }
}

/// Whether two open files are the same one.
#[cfg(test)]
pub(crate) fn is_same(one: &impl AsFd, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let one = std::fs::metadata(path_of(one)).map(|seen| (seen.dev(), seen.ino())).ok();
    one == std::fs::metadata(other).map(|seen| (seen.dev(), seen.ino())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    struct Tree {
        dir: tempfile::TempDir,
    }

    impl Tree {
        /// `root` with a file, a folder, a pipe, and links of every kind; `secret` beside it.
        fn new() -> Tree {
            let tree = Tree { dir: tempfile::tempdir().unwrap() };
            std::fs::create_dir_all(tree.root().join("in/deep")).unwrap();
            std::fs::write(tree.root().join("in/file"), "inside").unwrap();
            std::fs::write(tree.dir.path().join("secret"), "outside").unwrap();
            nix::unistd::mkfifo(&tree.root().join("pipe"), Mode::S_IRWXU).unwrap();
            for (to, link) in [
                ("in", "inside"),
                ("../file", "in/deep/up"),
                ("..", "up"),
                ("../secret", "near"),
                ("/etc", "far"),
                ("/proc/self/root", "magic"),
                ("nowhere", "dangling"),
            ] {
                symlink(to, tree.root().join(link)).unwrap();
            }
            tree
        }

        fn root(&self) -> PathBuf {
            self.dir.path().join("root")
        }
    }

    #[test]
    fn nothing_leads_out() {
        let tree = Tree::new();
        let check = |root: &Root, path: &str, expected: bool| {
            assert_eq!(root.find(Path::new(path)).is_ok(), expected, "{path}");
        };
        let links = Root::with_links(&tree.root()).unwrap();
        let plain = Root::without_links(&tree.root()).unwrap();
        for (path, through_links, without) in [
            ("", true, true),
            ("in/file", true, true),
            ("in/../in/file", true, true),
            ("pipe", true, true),
            ("inside/file", true, false),
            ("in/deep/up", true, false),
            ("up", false, false),
            ("near", false, false),
            ("far", false, false),
            ("far/passwd", false, false),
            ("magic/etc", false, false),
            ("dangling", false, false),
            ("..", false, false),
            ("../secret", false, false),
            ("/etc/passwd", false, false),
        ] {
            check(&links, path, through_links);
            check(&plain, path, without);
        }
    }

    #[test]
    fn only_files_are_read() {
        let tree = Tree::new();
        let root = Root::with_links(&tree.root()).unwrap();
        let text = |path: &str| root.read(Path::new(path)).and_then(std::io::read_to_string).ok();
        assert_eq!(text("in/deep/up").as_deref(), Some("inside"));
        for bad in ["pipe", "in", "near", "missing"] {
            assert_eq!(text(bad), None, "{bad}");
        }
        assert!(read_own(&tree.root().join("in/file")).is_ok());
        for bad in ["pipe", "in", "near", "in/deep/up"] {
            assert!(read_own(&tree.root().join(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_missing_is_made_to_look_as_asked() {
        let tree = Tree::new();
        let root = Root::with_links(&tree.root()).unwrap();
        let looks = Looks { mode: 0o2777, uid: 1000, gid: 2000 };
        let made = root.find_or_make(Path::new("inside/new/newer"), looks).unwrap();
        assert!(is_same(&made, &tree.root().join("in/new/newer")));
        for path in ["in/new", "in/new/newer"] {
            let seen = std::fs::metadata(tree.root().join(path)).unwrap();
            assert_eq!((seen.mode() & 0o7777, seen.uid(), seen.gid()), (0o2777, 1000, 2000), "{path}");
        }
        assert_ne!(std::fs::metadata(tree.root().join("in")).unwrap().uid(), 1000, "it was there");
        for bad in
            ["far/new", "near/new", "dangling/new", "dangling", "../new", "/new", "in/../../new", "in/file/x"]
        {
            assert!(root.find_or_make(Path::new(bad), looks).is_err(), "{bad}");
        }
        assert!(!tree.dir.path().join("new").exists());
    }
}
