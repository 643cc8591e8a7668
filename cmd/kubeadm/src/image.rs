//! Images made of programs of this machine, without a registry: our own static one, and etcd's.
//!
//! ```text
//! program (+ the libraries it needs) ──> one layer ──> OCI archive ──> containerd
//! ```

use anyhow::{Context, Result, bail};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The image of our own programs.
pub const OWN: &str = concat!("minik8s.io/minik8s:v", env!("CARGO_PKG_VERSION"));
/// Where the program stands in it.
pub const PROGRAM: &str = "/minik8s";
/// The image of etcd, made of Debian's program.
pub const ETCD: &str = "minik8s.io/etcd:debian";

/// The image of Redis, made of Debian's program.
pub const REDIS: &str = "minik8s.io/redis:debian";

/// A program to make an image of.
pub struct Program<'a> {
    /// The program's file.
    pub file: &'a Path,
    /// Where it stands in the image.
    pub target: &'a str,
    /// Further names for it there.
    pub links: &'a [&'a str],
}

/// Writes an OCI archive with an image of one layer that holds the program and what it is linked to.
pub fn write_archive(program: &Program<'_>, name: &str, to: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("make a temporary folder")?;
    let layer_path = folder.path().join("layer.tar");
    write_layer(program, &layer_path).context("write the layer")?;
    let (layer, layer_size) = (digest(&layer_path)?, fs::metadata(&layer_path)?.len());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = json!({
        "architecture": architecture, "os": "linux",
        "config": {"Env": ["PATH=/"], "Entrypoint": [program.target]},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
    })
    .to_string();
    let config_digest = digest_of(config.as_bytes());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": layer_size,
        }],
    })
    .to_string();
    let manifest_digest = digest_of(manifest.as_bytes());
    let index = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest_digest,
            "size": manifest.len(), "platform": {"architecture": architecture, "os": "linux"},
            "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name},
        }],
    })
    .to_string();
    let mut archive = tar::Builder::new(File::create(to).with_context(|| format!("make {}", to.display()))?);
    append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    append(&mut archive, "index.json", index.as_bytes())?;
    append(&mut archive, &blob(&manifest_digest), manifest.as_bytes())?;
    append(&mut archive, &blob(&config_digest), config.as_bytes())?;
    archive.append_path_with_name(&layer_path, blob(&layer))?;
    archive.into_inner()?.flush()?;
    Ok(())
}

fn write_layer(program: &Program<'_>, to: &Path) -> Result<()> {
    let mut layer = tar::Builder::new(File::create(to)?);
    layer.mode(tar::HeaderMode::Deterministic);
    let inside = program.target.trim_start_matches('/');
    let mut file = File::open(program.file).with_context(|| format!("open {}", program.file.display()))?;
    append_program(&mut layer, inside, &mut file)?;
    for link in program.links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        layer.append_link(&mut header, link.trim_start_matches('/'), program.target)?;
    }
    for library in libraries(program.file)? {
        let inside = library.strip_prefix("/").unwrap_or(&library).to_owned();
        append_program(&mut layer, &inside.to_string_lossy(), &mut File::open(&library)?)?;
    }
    layer.into_inner()?.flush()?;
    Ok(())
}

fn append_program(layer: &mut tar::Builder<File>, path: &str, file: &mut File) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(file.metadata()?.len());
    header.set_mode(0o755);
    header.set_entry_type(tar::EntryType::Regular);
    layer.append_data(&mut header, path, file)?;
    Ok(())
}

fn append(archive: &mut tar::Builder<File>, path: &str, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, path, content)?;
    Ok(())
}

/// What a program is linked to at run time, its loader among them; nothing of a static one.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_ldd(&text, output.status.success()).with_context(|| format!("ldd {}", program.display()))
}

fn parse_ldd(text: &str, succeeded: bool) -> Result<Vec<PathBuf>> {
    if !succeeded || text.contains("statically linked") {
        return Ok(Vec::new());
    }
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!("{}", missing.trim());
    }
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter_map(path).collect())
}

fn blob(digest: &str) -> String {
    format!("blobs/{}", digest.replace(':', "/"))
}

fn digest(path: &Path) -> Result<String> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match std::io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(hex(context.finish().as_ref())),
            read => context.update(&buffer[..read]),
        }
    }
}

fn digest_of(content: &[u8]) -> String {
    hex(ring::digest::digest(&ring::digest::SHA256, content).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_what_ldd_says() {
        let text =
            "\tlinux-vdso.so.1 (0x00)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x00)\n\t/lib64/ld.so.2 (0x00)\n";
        let found = parse_ldd(text, true).expect("all found");
        assert_eq!(found, [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld.so.2")]);
        assert!(parse_ldd("\tnot a dynamic executable\n", false).expect("static").is_empty());
        assert!(parse_ldd("\tstatically linked\n", true).expect("static").is_empty());
        assert!(parse_ldd("\tlibx.so => not found\n", true).is_err());
    }

    #[test]
    fn an_archive_has_what_its_digests_say() {
        let folder = tempfile::tempdir().expect("a folder");
        let (program, archive) = (folder.path().join("program"), folder.path().join("image.tar"));
        fs::write(&program, "#!/bin/sh\n").expect("written");
        let program = Program { file: &program, target: "/program", links: &["/other"] };
        write_archive(&program, "example.com/program:v1", &archive).expect("an archive");
        let mut names = Vec::new();
        for entry in tar::Archive::new(File::open(&archive).expect("open")).entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let name = entry.path().expect("a path").display().to_string();
            if let Some(expected) = name.strip_prefix("blobs/sha256/") {
                let mut content = Vec::new();
                std::io::Read::read_to_end(&mut entry, &mut content).expect("content");
                assert_eq!(digest_of(&content), format!("sha256:{expected}"));
            }
            names.push(name);
        }
        assert_eq!(names.iter().filter(|name| name.starts_with("blobs/")).count(), 3);
        assert!(names.contains(&"index.json".to_owned()) && names.contains(&"oci-layout".to_owned()));
    }
}
