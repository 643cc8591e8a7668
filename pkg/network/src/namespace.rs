//! Network namespaces with names: files on which a namespace is mounted.
//!
//! A namespace is entered by a thread of its own, never by a thread that does anything else afterwards.

use crate::{Error, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::{self, File};
use std::future::Future;
use std::io;
use std::path::Path;

/// The magic number of the file system that namespaces live in.
const NSFS_MAGIC: libc::c_long = 0x6e73_6673;

/// Makes a namespace there, unless there is one; its loopback is up.
pub async fn create(path: &Path) -> Result<()> {
    let path = path.to_owned();
    let what = format!("create network namespace {}", path.display());
    on_a_thread(what, move || {
        if is_namespace(&path) {
            return Ok(());
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        // A file without a mount is what a crash leaves.
        match File::options().write(true).create(true).truncate(false).open(&path) {
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        unshare(CloneFlags::CLONE_NEWNET)?;
        block_on(async {
            let netlink = crate::netlink::Netlink::open()?;
            let index = netlink.index_of("lo").await?.unwrap_or(1);
            netlink.up(index).await
        })?;
        mount(Some("/proc/thread-self/ns/net"), &path, None::<&str>, MsFlags::MS_BIND, None::<&str>)?;
        Ok(())
    })
    .await
}

/// Whether a namespace is mounted there.
pub fn is_namespace(path: &Path) -> bool {
    nix::sys::statfs::statfs(path).is_ok_and(|stat| stat.filesystem_type().0 == NSFS_MAGIC)
}

/// Removes the name. The namespace itself goes with the last process in it.
pub fn remove(path: &Path) -> Result<()> {
    let what = || format!("remove network namespace {}", path.display());
    // Mounted more than once, if somebody else also mounted there: all of it goes.
    while is_namespace(path) {
        umount2(path, MntFlags::MNT_DETACH)
            .map_err(|errno| Error::Io { what: what(), source: errno.into() })?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::Io { what: what(), source: error })
        }
        _ => Ok(()),
    }
}

/// Runs `work` inside the namespace.
pub async fn inside<T, Work, Working>(path: &Path, work: Work) -> Result<T>
where
    T: Send + 'static,
    Work: FnOnce() -> Working + Send + 'static,
    Working: Future<Output = Result<T>>,
{
    let path = path.to_owned();
    let what = format!("enter network namespace {}", path.display());
    let done = on_a_thread(what, move || {
        let file = File::open(&path)?;
        setns(file, CloneFlags::CLONE_NEWNET)?;
        Ok(block_on_result(work))
    });
    done.await?
}

/// Runs `work` in the present namespace, on a thread that it may block.
pub async fn apart<T, Work, Working>(work: Work) -> Result<T>
where
    T: Send + 'static,
    Work: FnOnce() -> Working + Send + 'static,
    Working: Future<Output = Result<T>>,
{
    on_a_thread("work on a thread".to_owned(), move || Ok(block_on_result(work))).await?
}

/// Runs `work` on a thread that ends with it, since it leaves its network namespace.
async fn on_a_thread<T: Send + 'static>(
    what: String,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let thread = std::thread::Builder::new().name("netns".to_owned()).spawn(move || {
        // The receiver is gone if nobody waits any more.
        let _ = tell.send(work());
    });
    thread.map_err(Error::io("start a thread"))?;
    match told.await {
        Ok(result) => result.map_err(|source| Error::Io { what, source }),
        Err(_) => Err(Error::Io { what, source: io::Error::other("the thread panicked") }),
    }
}

fn block_on<Working: Future<Output = Result<()>>>(work: Working) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work).map_err(io::Error::other)
}

fn block_on_result<T, Working: Future<Output = Result<T>>>(work: impl FnOnce() -> Working) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Error::io("start a runtime"))?;
    runtime.block_on(work())
}
