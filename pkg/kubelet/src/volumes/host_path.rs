//! hostPath: what must be there, or is made.

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks a path against its type, and makes it where the type says so.
pub(super) fn check(path: &Path, kind: &str) -> Result<(), String> {
    let shown = path.display();
    let failed = |what: &str| Err(format!("hostPath type check failed: {shown} is not {what}"));
    match kind {
        "DirectoryOrCreate" if !path.exists() => {
            let made = DirBuilder::new().mode(0o755).recursive(true).create(path);
            return made.map_err(|error| format!("mkdir {shown}: {error}"));
        }
        "FileOrCreate" if !path.exists() => {
            let made = std::fs::OpenOptions::new().create(true).append(true).mode(0o644).open(path);
            return made.map(drop).map_err(|error| format!("open {shown}: {error}"));
        }
        _ => {}
    }
    let found = std::fs::metadata(path);
    let Ok(found) = found else {
        return match kind {
            // As Docker did: what is missing becomes a folder.
            "" => DirBuilder::new()
                .mode(0o755)
                .recursive(true)
                .create(path)
                .map_err(|error| format!("mkdir {shown}: {error}")),
            "Directory" => failed("a directory"),
            "File" => failed("a file"),
            "Socket" => failed("a socket file"),
            "CharDevice" => failed("a character device"),
            "BlockDevice" => failed("a block device"),
            _ => failed("present"),
        };
    };
    let is = found.file_type();
    match kind {
        "" => Ok(()),
        "Directory" | "DirectoryOrCreate" if !is.is_dir() => failed("a directory"),
        "File" | "FileOrCreate" if !is.is_file() => failed("a file"),
        "Socket" if !is.is_socket() => failed("a socket file"),
        "CharDevice" if !is.is_char_device() => failed("a character device"),
        "BlockDevice" if !is.is_block_device() => failed("a block device"),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_and_made() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        check(&at("made/deep"), "DirectoryOrCreate").expect("made");
        check(&at("file"), "FileOrCreate").expect("made");
        check(&at("made"), "Directory").expect("is one");
        check(&at("file"), "File").expect("is one");
        check(Path::new("/dev/null"), "CharDevice").expect("is one");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        check(&at("socket"), "Socket").expect("is one");
        for (name, kind) in [
            ("file", "Directory"),
            ("made", "File"),
            ("none", "Directory"),
            ("none", "File"),
            ("file", "Socket"),
            ("file", "BlockDevice"),
            ("file", "DirectoryOrCreate"),
        ] {
            let error = check(&at(name), kind).expect_err("refused");
            assert!(error.starts_with("hostPath type check failed: "), "{error}");
        }
    }
}
