//! `kubectl cp`: files and folders, through `tar` in the container.
//!
//! What comes out of a container is not believed: no entry is written outside of the target, and links are left out.

use super::exec::{api, params};
use crate::connection::{ClusterFlags, Connection};
use crate::pods;
use crate::session;
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

/// Blocks between the archive and the container.
const WAITING: usize = 4;

/// What `cp` is told.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  kubectl cp ./site web:/usr/share/html\n  kubectl cp default/web:/var/log/app.log ./app.log"
)]
pub struct Flags {
    /// A path, or [NAMESPACE/]POD:PATH.
    from: String,
    /// A path, or [NAMESPACE/]POD:PATH.
    to: String,
    /// The container.
    #[arg(long, short)]
    container: Option<String>,
    /// Without owner and permissions.
    #[arg(long)]
    no_preserve: bool,
    /// Accepted as upstream's: a copy that breaks off is an error.
    #[arg(long, hide = true, default_value_t = 0, allow_negative_numbers = true)]
    retries: i32,
}

/// One side of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Side {
    Here(PathBuf),
    There { namespace: Option<String>, pod: String, path: String },
}

/// Copies.
pub async fn run(cluster: &ClusterFlags, flags: Flags) -> Result<ExitCode> {
    match (side(&flags.from)?, side(&flags.to)?) {
        (Side::Here(from), Side::There { namespace, pod, path }) => {
            let place = Place::find(cluster, namespace, &pod, flags.container.as_deref()).await?;
            up(&place, &from, &path, flags.no_preserve).await
        }
        (Side::There { namespace, pod, path }, Side::Here(to)) => {
            let place = Place::find(cluster, namespace, &pod, flags.container.as_deref()).await?;
            down(&place, &path, &to).await
        }
        (Side::There { .. }, Side::There { .. }) => {
            bail!("one of src or dest must be a local file specification")
        }
        (Side::Here(_), Side::Here(_)) => bail!("one of src or dest must be a remote file specification"),
    }
}

fn side(text: &str) -> Result<Side> {
    let is_path = text.starts_with(['.', '/']);
    let Some((pod, path)) = text.split_once(':').filter(|_| !is_path) else {
        return Ok(Side::Here(PathBuf::from(text)));
    };
    if path.is_empty() || pod.is_empty() {
        bail!("filepath can not be empty");
    }
    let path = path.to_owned();
    match pod.split('/').collect::<Vec<_>>().as_slice() {
        [pod] => Ok(Side::There { namespace: None, pod: (*pod).to_owned(), path }),
        [namespace, pod] => {
            Ok(Side::There { namespace: Some((*namespace).to_owned()), pod: (*pod).to_owned(), path })
        }
        _ => bail!("{text}: expected [NAMESPACE/]POD:PATH"),
    }
}

/// A container.
struct Place {
    connection: Connection,
    pod: String,
    container: String,
}

impl Place {
    async fn find(
        cluster: &ClusterFlags,
        namespace: Option<String>,
        pod: &str,
        container: Option<&str>,
    ) -> Result<Place> {
        let mut connection = Connection::open(cluster).await?;
        if let Some(namespace) = namespace {
            connection.namespace = namespace;
        }
        let container = match container {
            Some(container) => container.to_owned(),
            None => {
                let found = pods::of_word(&connection, pod).await?;
                let found = found.first().with_context(|| format!("{pod} is not there"))?;
                pods::default_container(found, false)?
            }
        };
        Ok(Place { connection, pod: pod.to_owned(), container })
    }

    async fn start(&self, command: &[&str], stdin: bool) -> Result<kube::api::AttachedProcess> {
        let params = params(&self.container, stdin, false);
        let process = api(&self.connection).exec(&self.pod, command.iter().copied(), &params).await;
        process.map_err(|error| self.connection.not_upgraded(error))
    }

    /// Whether a command says yes; what it writes is not shown.
    async fn asks(&self, command: &[&str]) -> Result<bool> {
        let mut process = self.start(command, false).await?;
        let status = process.take_status().context("the status was taken")?;
        let (mut out, mut err) = (process.stdout(), process.stderr());
        let drain = async |stream: &mut Option<_>| {
            if let Some(stream) = stream {
                let _ = AsyncReadExt::read_to_end(stream, &mut Vec::new()).await;
            }
        };
        let drained = async { tokio::join!(drain(&mut out), drain(&mut err)) };
        let (_, status) = session::until_over(status, drained).await;
        Ok(status.and_then(|status| status.status).as_deref() == Some("Success"))
    }
}

async fn up(place: &Place, from: &Path, to: &str, no_preserve: bool) -> Result<ExitCode> {
    let about = std::fs::symlink_metadata(from);
    about.with_context(|| format!("{} doesn't exist in local filesystem", from.display()))?;
    let mut to = to.trim_end_matches('/').to_owned();
    if to.is_empty() || place.asks(&["test", "-d", &to]).await? {
        let from = from.canonicalize().context("find the file")?;
        let name = from.file_name().context("a copy needs a name")?.to_string_lossy().into_owned();
        to = format!("{to}/{name}");
    }
    let (folder, name) =
        to.rsplit_once('/').map_or((None, to.as_str()), |(folder, name)| (Some(folder), name));
    let mut command = vec!["tar"];
    if no_preserve {
        command.extend(["--no-same-permissions", "--no-same-owner"]);
    }
    command.extend(["-xmf", "-"]);
    if let Some(folder) = folder {
        command.extend(["-C", if folder.is_empty() { "/" } else { folder }]);
    }
    let mut process = place.start(&command, true).await?;
    let mut stdin = process.stdin().context("there is no way in")?;
    let (sender, mut blocks) = mpsc::channel(WAITING);
    let (from, name) = (from.to_owned(), name.to_owned());
    let packing = std::thread::spawn(move || pack(&from, &name, Pipe(sender)));
    let sending = async {
        while let Some(block) = blocks.recv().await {
            stdin.write_all(&block).await?;
        }
        stdin.shutdown().await
    };
    let status = process.take_status().context("the status was taken")?;
    let (mut out, mut err) = (process.stdout(), process.stderr());
    let shown = async { tokio::join!(show(&mut out, std::io::stdout()), show(&mut err, std::io::stderr())) };
    // Whoever has ended takes no more, and nobody says so.
    let status = tokio::select! {
        (_, status) = session::until_over(status, shown) => status,
        Err(error) = sending => return Err(error).context("sending broke off"),
    };
    drop(blocks);
    let packed = packing.join().map_err(|_| anyhow::anyhow!("packing broke off"))?;
    if status.as_ref().and_then(|status| status.status.as_deref()) == Some("Success") {
        packed.or_else(|error| if is_enough(&error) { Ok(()) } else { Err(error) })?;
    }
    session::exit_code(status)
}

/// Whether somebody ended before the archive did: what fills up its last block is of no use to anybody.
fn is_enough(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

async fn show(stream: &mut Option<impl AsyncReadExt + Unpin>, mut to: impl Write) {
    let Some(stream) = stream else { return };
    let mut block = vec![0; session::BLOCK];
    while let Ok(count @ 1..) = stream.read(&mut block).await {
        let _ = to.write_all(&block[..count]);
    }
}

/// Packs a file or a folder under a name; links stay links.
fn pack(from: &Path, name: &str, to: impl Write) -> Result<()> {
    let mut archive = tar::Builder::new(to);
    archive.follow_symlinks(false);
    let about = std::fs::symlink_metadata(from)?;
    if about.is_dir() {
        archive.append_dir_all(name, from)?;
    } else {
        archive.append_path_with_name(from, name)?;
    }
    archive.into_inner()?.flush()?;
    Ok(())
}

async fn down(place: &Place, from: &str, to: &Path) -> Result<ExitCode> {
    let from = from.trim_end_matches('/');
    let from = if from.is_empty() { "/" } else { from };
    let mut process = place.start(&["tar", "cf", "-", from], false).await?;
    let (mut stdout, mut stderr) = (process.stdout().context("there is no way out")?, process.stderr());
    let status = process.take_status().context("the status was taken")?;
    let (sender, blocks) = std::sync::mpsc::sync_channel(WAITING);
    let (prefix, target) = (from.trim_start_matches('/').to_owned(), to.to_owned());
    let unpacking = std::thread::spawn(move || unpack(Blocks::new(blocks), &prefix, &target));
    let receiving = async {
        let mut block = vec![0; session::BLOCK];
        while let Ok(count @ 1..) = stdout.read(&mut block).await {
            // Whoever unpacks says itself why it takes no more.
            if sender.send(block[..count].to_vec()).is_err() {
                break;
            }
        }
        drop(sender);
    };
    let received = async { tokio::join!(receiving, show(&mut stderr, std::io::stderr())) };
    let (_, status) = session::until_over(status, received).await;
    let unpacked = unpacking.join().map_err(|_| anyhow::anyhow!("unpacking broke off"))?;
    if status.is_none() {
        return session::exit_code(status);
    }
    let found = unpacked?;
    if found == 0 && status.as_ref().is_some_and(|status| status.status.as_deref() == Some("Success")) {
        bail!("{from} no such file or directory");
    }
    session::exit_code(status)
}

/// Unpacks what has the prefix, as `target`; gives back how many entries that were.
fn unpack(archive: impl Read, prefix: &str, target: &Path) -> Result<usize> {
    let mut archive = tar::Archive::new(archive);
    let mut count = 0;
    let mut warned = false;
    let name = Path::new(prefix).file_name().unwrap_or_default();
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(rest) = below(&path, prefix) else {
            bail!("tar contents corrupted: {} is not in {prefix}", path.display());
        };
        count += 1;
        let Some(rest) = rest else {
            eprintln!("warning: file \"{}\" is outside target destination, skipping", path.display());
            continue;
        };
        // A file that is copied into a folder keeps its name.
        let is_file = rest.as_os_str().is_empty() && !entry.header().entry_type().is_dir();
        let place = match (is_file, target.is_dir()) {
            (true, true) => target.join(name),
            // Joined with nothing a path ends in a slash, and no file has such a name.
            (true, false) => target.to_owned(),
            (false, _) => target.join(rest),
        };
        match entry.header().entry_type() {
            kind if kind.is_dir() => {
                std::fs::create_dir_all(&place).with_context(|| format!("make {}", place.display()))?;
            }
            kind if kind.is_file() => write(&mut entry, &place)?,
            _ => {
                if !warned {
                    eprintln!(
                        "warning: skipping symlink: {place:?} -> {:?} (consider using \"kubectl exec POD -- tar cf - {path:?} | tar xf -\")",
                        entry.link_name()?.unwrap_or_default(),
                    );
                }
                warned = true;
            }
        }
    }
    Ok(count)
}

fn write(entry: &mut tar::Entry<'_, impl Read>, place: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(folder) = place.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let mut file = std::fs::File::create(place).with_context(|| format!("write {}", place.display()))?;
    std::io::copy(entry, &mut file).with_context(|| format!("write {}", place.display()))?;
    let mode = entry.header().mode().unwrap_or(0o644) & 0o777;
    let _ = file.set_permissions(std::fs::Permissions::from_mode(mode));
    Ok(())
}

/// The rest of a path behind a prefix: `None` if it has not the prefix, `Some(None)` if it leads out of it.
fn below(path: &Path, prefix: &str) -> Option<Option<PathBuf>> {
    let plain = |path: &Path| -> PathBuf {
        path.components().filter(|part| !matches!(part, Component::CurDir | Component::RootDir)).collect()
    };
    let (path, prefix) = (plain(path), plain(Path::new(prefix)));
    let rest = path.strip_prefix(&prefix).ok()?;
    let leads_out = rest.components().any(|part| !matches!(part, Component::Normal(_)));
    Some((!leads_out).then(|| rest.to_owned()))
}

/// A writer whose blocks go to a task.
struct Pipe(mpsc::Sender<Vec<u8>>);

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let sent = self.0.blocking_send(bytes.to_vec());
        sent.map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A reader of a task's blocks.
struct Blocks {
    blocks: std::sync::mpsc::Receiver<Vec<u8>>,
    rest: std::io::Cursor<Vec<u8>>,
}

impl Blocks {
    fn new(blocks: std::sync::mpsc::Receiver<Vec<u8>>) -> Blocks {
        Blocks { blocks, rest: std::io::Cursor::default() }
    }
}

impl Read for Blocks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let count = Read::read(&mut self.rest, buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            match self.blocks.recv() {
                Ok(block) => self.rest = std::io::Cursor::new(block),
                Err(_) => return Ok(0),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_paths_or_pods() {
        let there = |namespace: Option<&str>, pod: &str, path: &str| Side::There {
            namespace: namespace.map(str::to_owned),
            pod: pod.to_owned(),
            path: path.to_owned(),
        };
        assert_eq!(side("web:/tmp").expect("a pod"), there(None, "web", "/tmp"));
        assert_eq!(side("ns/web:tmp/a:b").expect("a pod"), there(Some("ns"), "web", "tmp/a:b"));
        assert_eq!(side("./a:b").expect("a file"), Side::Here("./a:b".into()));
        assert_eq!(side("/tmp/x").expect("a file"), Side::Here("/tmp/x".into()));
        assert!(side("web:").is_err());
        assert!(side("a/b/c:d").is_err());
    }

    #[test]
    fn nothing_is_written_outside_of_the_target() {
        let check = |path: &str, prefix: &str, expected: Option<Option<&str>>| {
            let found = below(Path::new(path), prefix);
            assert_eq!(found, expected.map(|rest| rest.map(PathBuf::from)), "{path} in {prefix}");
        };
        check("tmp/a/b", "tmp/a", Some(Some("b")));
        check("tmp/a", "tmp/a", Some(Some("")));
        check("./tmp/a/./b", "tmp/a", Some(Some("b")));
        check("tmp/a/../../etc/passwd", "tmp/a", Some(None));
        check("etc/passwd", "tmp/a", None);
        check("../etc/passwd", "tmp/a", None);
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("from/deep")).expect("made");
        std::fs::write(path("from/deep/file"), "text").expect("written");
        std::os::unix::fs::symlink("/etc/passwd", path("from/link")).expect("linked");
        let mut archive = Vec::new();
        pack(&path("from"), "data", &mut archive).expect("packed");
        assert!(unpack(archive.as_slice(), "data", &path("to")).expect("unpacked") >= 3);
        assert_eq!(std::fs::read_to_string(path("to/deep/file")).expect("there"), "text");
        assert!(!path("to/link").exists());
        assert!(unpack(archive.as_slice(), "other", &path("to")).is_err());
    }

    #[test]
    fn a_file_copied_into_a_folder_keeps_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("file"), "text").expect("written");
        let mut archive = Vec::new();
        pack(&folder.path().join("file"), "tmp/file", &mut archive).expect("packed");
        let target = folder.path().join("target");
        unpack(archive.as_slice(), "tmp/file", &target).expect("unpacked");
        assert_eq!(std::fs::read_to_string(&target).expect("there"), "text");
        std::fs::remove_file(&target).expect("removed");
        std::fs::create_dir(&target).expect("made");
        unpack(archive.as_slice(), "tmp/file", &target).expect("unpacked");
        assert_eq!(std::fs::read_to_string(target.join("file")).expect("there"), "text");
    }
}
