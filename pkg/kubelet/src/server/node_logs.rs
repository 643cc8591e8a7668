//! `/logs/`: the node's own logs, the files and folders of `/var/log`.
//!
//! Nothing outside of it is shown: a pod that may write there could otherwise lay a link to any file of the node.

use super::Server;
use super::answer::{self, Answer, Refusal};
use crate::beneath::Root;
use bytes::{Bytes, BytesMut};
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

/// Pieces on their way to the client, and how long each is at most.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 << 10;
/// What stands otherwise in a link than in a name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Answers with what a folder holds, or with a file.
pub async fn handle(server: &Arc<Server>, parts: &[String]) -> Result<Answer, Refusal> {
    let refusal = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => (StatusCode::FORBIDDEN, "403 Forbidden".to_owned()),
        _ => (StatusCode::NOT_FOUND, "404 page not found".to_owned()),
    };
    let path = parts.iter().fold(server.logs.clone(), |path, part| path.join(part));
    let (root, own) = (server.logs.clone(), path.clone());
    let found = tokio::task::spawn_blocking(move || find(&root, &own)).await;
    let file = match found.map_err(io::Error::other).flatten().map_err(refusal)? {
        Found::Folder(listing) => return Ok(answer::html(listing)),
        Found::File(file) => File::from_std(file),
    };
    let (pieces, receiver) = mpsc::channel(PIECES);
    let shutdown = server.shutdown.clone();
    server.streams.spawn(async move {
        tokio::select! {
            sent = send(file, &pieces) => {
                if let Err(error) = sent {
                    tracing::warn!(%error, path = %path.display(), "a file ended early");
                }
            }
            () = pieces.closed() => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(answer::stream(receiver))
}

enum Found {
    /// A page that lists it.
    Folder(String),
    File(std::fs::File),
}

/// The file or folder at a path. Links are followed to see what is meant, as upstream's kubelet does; that is then opened
/// without following any: nothing outside, and nothing that is put in its place meanwhile. What is neither file nor
/// folder, such as a pipe, nobody could read to its end.
fn find(root: &Path, path: &Path) -> io::Result<Found> {
    let root = root.canonicalize()?;
    let path = path.canonicalize()?;
    let own = path.strip_prefix(&root).map_err(|_| io::ErrorKind::NotFound)?;
    let below = Root::without_links(&root)?;
    match below.folder(own) {
        Ok(folder) => listing(&folder).map(Found::Folder),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => below.read(own).map(Found::File),
        Err(error) => Err(error),
    }
}

/// Names, each a link, as upstream's kubelet shows them.
fn listing(folder: &Root) -> io::Result<String> {
    let name = |name: std::ffi::OsString| {
        let slash = if folder.leads_to_folder(&name) { "/" } else { "" };
        format!("{}{slash}", name.to_string_lossy())
    };
    let mut names: Vec<String> = folder.names(Path::new(""))?.into_iter().map(name).collect();
    names.sort();
    let mut text =
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n".to_owned();
    for name in names {
        let link = utf8_percent_encode(&name, ENCODED);
        let _ = writeln!(text, "<a href=\"{link}\">{}</a>", escaped(&name));
    }
    Ok(text + "</pre>\n")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn send(mut file: File, pieces: &mpsc::Sender<Bytes>) -> io::Result<()> {
    // As long as it is now: it may be written to faster than it is read.
    let mut left = file.metadata().await?.len();
    while left > 0 {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(left.min(PIECE_BYTES as u64)).read_buf(&mut piece).await?;
        if read == 0 || pieces.send(piece.freeze()).await.is_err() {
            break;
        }
        left -= read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("log");
        std::fs::create_dir_all(root.join("pods")).unwrap();
        std::fs::write(dir.path().join("secret"), "s").unwrap();
        std::fs::write(root.join("a <b>"), "a").unwrap();
        std::os::unix::fs::symlink("pods", root.join("inside")).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("outside")).unwrap();
        std::os::unix::fs::symlink("/", root.join("root")).unwrap();
        nix::unistd::mkfifo(&root.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let check = |parts: &[&str], expected: Option<&str>| {
            let path = parts.iter().fold(root.clone(), |path, part| path.join(part));
            let found = match find(&root, &path) {
                Ok(Found::Folder(_)) => Some("a folder".to_owned()),
                Ok(Found::File(file)) => io::read_to_string(file).ok(),
                Err(_) => None,
            };
            assert_eq!(found.as_deref(), expected, "{parts:?}");
        };
        check(&[], Some("a folder"));
        check(&["pods"], Some("a folder"));
        check(&["inside"], Some("a folder"));
        check(&["a <b>"], Some("a"));
        check(&["missing"], None);
        check(&["outside"], None);
        check(&["root", "etc"], None);
        check(&["..", "secret"], None);
        check(&["../secret"], None);
        check(&["/etc/passwd"], None);
        check(&["pipe"], None);
        let Ok(Found::Folder(listed)) = find(&root, &root) else { panic!("no listing") };
        assert!(
            listed.contains("<a href=\"a%20%3Cb%3E\">a &lt;b&gt;</a>\n<a href=\"inside/\">inside/</a>\n"),
            "{listed}"
        );
    }
}
