//! Images from a file: an archive as `docker save` writes it, or an OCI layout in a tar file.

use super::super::containerd::{Config, connection::Connection};
use super::super::{Error, Image};
use super::content::{self, Blob, digest_of, whole};
use super::manifest::{Descriptor, Manifest, OCI_MANIFEST};
use super::reference;
use super::store::{Images, references};
use bytes::Bytes;
use futures::StreamExt;
use ring::digest::{Context, SHA256};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PIECE_BYTES: usize = 256 * 1024;
const LARGEST_DOCUMENT_BYTES: u64 = 8 << 20;

/// Imports all images of an archive, under the names that it gives them, and unpacks them. Needs no registry.
pub async fn import(config: &Config, archive: &Path) -> Result<Vec<Image>, Error> {
    let connection = Connection::new(&config.socket, &config.namespace)?;
    Images::new(connection, &config.snapshotter).import(archive).await
}

/// The names of the images of an archive of which everything is there that they are made of.
pub fn look(archive: &Path) -> Result<Vec<Vec<String>>, Error> {
    let archive = Archive::open(archive)?;
    let images = archive.images()?;
    images.iter().try_for_each(|image| archive.check(&image.target))?;
    Ok(images.into_iter().map(|image| image.names).collect())
}

impl Images {
    /// As [`import`].
    pub(crate) async fn import(&self, archive: &Path) -> Result<Vec<Image>, Error> {
        let path = archive.to_owned();
        let opened = tokio::task::spawn_blocking(move || Archive::open(&path)).await;
        let archive = Arc::new(opened.expect("reading an archive does not panic")?);
        self.leased(|images| async move {
            let mut imported = Vec::new();
            for Named { target, names } in archive.images()? {
                images.take(&archive, &target).await?;
                imported.push(images.publish(&target, &names).await?);
            }
            Ok(imported)
        })
        .await
    }

    /// Writes a manifest and all that belongs to it.
    async fn take(&self, archive: &Arc<Archive>, target: &Descriptor) -> Result<(), Error> {
        let bytes = archive.document(&target.digest)?;
        let manifest = Manifest::parse(&bytes)?;
        if manifest.is_list() {
            Box::pin(self.take(archive, manifest.for_this_platform()?)).await?;
        }
        for part in manifest.config.iter().chain(&manifest.layers) {
            if !content::label(&self.connection, &part.digest, &content::Labels::new()).await? {
                let blob = archive.blob(&part.digest)?;
                content::write(&self.connection, &part.digest, part.size, content::Labels::new(), blob)
                    .await?;
            }
        }
        let size = i64::try_from(bytes.len()).expect("documents are small");
        content::write(&self.connection, &target.digest, size, references(&manifest), whole(bytes)).await
    }
}

/// An image of an archive.
struct Named {
    target: Descriptor,
    names: Vec<String>,
}

/// Where the parts of an archive are.
struct Archive {
    path: PathBuf,
    file: File,
    entries: BTreeMap<String, Entry>,
    /// By digest: the parts, and what was made for those that `docker save` wrote without a manifest.
    digests: BTreeMap<String, Content>,
    images: Vec<Named>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    offset: u64,
    size: u64,
}

#[derive(Clone)]
enum Content {
    InFile(Entry),
    InMemory(Vec<u8>),
}

/// One image as `docker save` lists it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

impl Archive {
    fn open(path: &Path) -> Result<Self, Error> {
        let wrong =
            |why: String| Error::Container(format!("{} is not an image archive: {why}", path.display()));
        let file = File::open(path).map_err(|error| {
            Error::Container(format!("cannot open image archive {}: {error}", path.display()))
        })?;
        let mut entries = BTreeMap::new();
        let mut links = Vec::new();
        let mut tar = tar::Archive::new(&file);
        for entry in tar.entries().map_err(|error| wrong(error.to_string()))? {
            let entry = entry.map_err(|error| wrong(error.to_string()))?;
            let name = entry.path().map_err(|error| wrong(error.to_string()))?.to_string_lossy().into_owned();
            let name = name.trim_start_matches("./").to_owned();
            // Layers that two images share are links in what older dockers save.
            if let Ok(Some(link)) = entry.link_name() {
                let folder = Path::new(&name).parent().unwrap_or(Path::new("")).join(link);
                links.push((name, folder));
            } else if entry.header().entry_type().is_file() {
                entries.insert(name, Entry { offset: entry.raw_file_position(), size: entry.size() });
            }
        }
        for (name, link) in links {
            if let Some(entry) = entries.get(&tidy(&link)).copied() {
                entries.insert(name, entry);
            }
        }
        let mut archive =
            Archive { path: path.to_owned(), file, entries, digests: BTreeMap::new(), images: Vec::new() };
        if archive.entries.contains_key("index.json") {
            archive.read_layout()?;
        } else if archive.entries.contains_key("manifest.json") {
            archive.read_saved()?;
        } else {
            return Err(wrong("it has neither index.json nor manifest.json".to_owned()));
        }
        Ok(archive)
    }

    fn images(&self) -> Result<Vec<Named>, Error> {
        if self.images.is_empty() {
            return Err(Error::Container(format!("{} holds no images", self.path.display())));
        }
        Ok(self
            .images
            .iter()
            .map(|image| Named { target: image.target.clone(), names: image.names.clone() })
            .collect())
    }

    /// An OCI layout: everything is where its digest says.
    fn read_layout(&mut self) -> Result<(), Error> {
        for (name, entry) in &self.entries {
            if let Some(digest) = name.strip_prefix("blobs/") {
                self.digests.insert(digest.replacen('/', ":", 1), Content::InFile(*entry));
            }
        }
        let index = Manifest::parse(&self.bytes("index.json")?)?;
        let mut seen: HashSet<String> = HashSet::new();
        for target in &index.manifests {
            let names = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
            let name = names.iter().find_map(|name| target.annotations.get(*name));
            let names: Vec<String> =
                name.and_then(|name| reference::normalize(name).ok()).into_iter().collect();
            if let Some(image) = self.images.iter_mut().find(|image| image.target.digest == target.digest) {
                image.names.extend(names);
            } else if seen.insert(target.digest.clone()) {
                self.images.push(Named { target: target.clone(), names });
            }
        }
        Ok(())
    }

    /// What older dockers save has no manifests: we write them.
    fn read_saved(&mut self) -> Result<(), Error> {
        let saved: Vec<Saved> = serde_json::from_slice(&self.bytes("manifest.json")?)
            .map_err(|error| Error::Container(format!("{}: manifest.json: {error}", self.path.display())))?;
        for Saved { config, repo_tags, layers } in saved {
            let config = self.describe(&config, "application/vnd.oci.image.config.v1+json")?;
            let mut described = Vec::new();
            for layer in layers {
                let entry = self.entry(&layer)?;
                let mut magic = [0; 2];
                let is_gzip =
                    self.file.read_exact_at(&mut magic, entry.offset).is_ok() && magic == [0x1f, 0x8b];
                let kind = if is_gzip { "tar+gzip" } else { "tar" };
                described.push(self.describe(&layer, &format!("application/vnd.oci.image.layer.v1.{kind}"))?);
            }
            let manifest = Manifest {
                schema_version: 2,
                media_type: Some(OCI_MANIFEST.to_owned()),
                config: Some(config),
                layers: described,
                manifests: Vec::new(),
            };
            let bytes = serde_json::to_vec(&manifest).expect("manifests are plain data");
            let target = Descriptor {
                media_type: OCI_MANIFEST.to_owned(),
                digest: digest_of(&bytes),
                size: i64::try_from(bytes.len()).expect("manifests are small"),
                ..Descriptor::default()
            };
            self.digests.insert(target.digest.clone(), Content::InMemory(bytes));
            let names = repo_tags.unwrap_or_default();
            let names = names.iter().filter_map(|name| reference::normalize(name).ok()).collect();
            self.images.push(Named { target, names });
        }
        Ok(())
    }

    fn describe(&mut self, name: &str, media_type: &str) -> Result<Descriptor, Error> {
        let entry = self.entry(name)?;
        let mut hash = Context::new(&SHA256);
        let mut piece = vec![0; PIECE_BYTES];
        let mut done = 0;
        while done < entry.size {
            let wanted = piece.len().min(usize::try_from(entry.size - done).unwrap_or(usize::MAX));
            self.read_at(&mut piece[..wanted], entry.offset + done)?;
            hash.update(&piece[..wanted]);
            done += wanted as u64;
        }
        let mut digest = "sha256:".to_owned();
        for byte in hash.finish().as_ref() {
            write!(digest, "{byte:02x}").expect("strings take everything");
        }
        self.digests.insert(digest.clone(), Content::InFile(entry));
        let size = i64::try_from(entry.size).unwrap_or(i64::MAX);
        Ok(Descriptor { media_type: media_type.to_owned(), digest, size, ..Descriptor::default() })
    }

    fn entry(&self, name: &str) -> Result<Entry, Error> {
        self.entries
            .get(name)
            .copied()
            .ok_or_else(|| Error::Container(format!("image archive {} lacks {name}", self.path.display())))
    }

    fn bytes(&self, name: &str) -> Result<Vec<u8>, Error> {
        self.read(self.entry(name)?)
    }

    fn read(&self, entry: Entry) -> Result<Vec<u8>, Error> {
        if entry.size > LARGEST_DOCUMENT_BYTES {
            return Err(Error::Container(format!(
                "image archive {}: too large a manifest",
                self.path.display()
            )));
        }
        let mut bytes = vec![0; usize::try_from(entry.size).unwrap_or_default()];
        self.read_at(&mut bytes, entry.offset)?;
        Ok(bytes)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), Error> {
        self.file.read_exact_at(bytes, offset).map_err(|source| Error::Unavailable {
            doing: format!("read image archive {}", self.path.display()),
            source: source.into(),
        })
    }

    /// A part that is read here: it is what its digest says, so none leads back to itself.
    fn document(&self, digest: &str) -> Result<Vec<u8>, Error> {
        let bytes = match self.content(digest)? {
            Content::InFile(entry) => self.read(entry)?,
            Content::InMemory(bytes) => bytes,
        };
        if digest_of(&bytes) != digest {
            let path = self.path.display();
            return Err(Error::Container(format!("image archive {path}: {digest} is something else")));
        }
        Ok(bytes)
    }

    /// Whether a manifest and all that belongs to it are there.
    fn check(&self, target: &Descriptor) -> Result<(), Error> {
        let manifest = Manifest::parse(&self.document(&target.digest)?)?;
        if manifest.is_list() {
            self.check(manifest.for_this_platform()?)?;
        }
        let mut parts = manifest.config.iter().chain(&manifest.layers);
        parts.try_for_each(|part| self.content(&part.digest).map(drop))
    }

    fn content(&self, digest: &str) -> Result<Content, Error> {
        self.digests
            .get(digest)
            .cloned()
            .ok_or_else(|| Error::Container(format!("image archive {} lacks {digest}", self.path.display())))
    }

    /// A part in pieces; a layer may be larger than memory.
    fn blob(self: &Arc<Self>, digest: &str) -> Result<Blob, Error> {
        let entry = match self.content(digest)? {
            Content::InMemory(bytes) => return Ok(whole(bytes)),
            Content::InFile(entry) => entry,
        };
        let archive = self.clone();
        let pieces = futures::stream::unfold(0, move |done| {
            let archive = archive.clone();
            async move {
                let left = entry.size - done;
                let wanted = PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
                if wanted == 0 {
                    return None;
                }
                let read = tokio::task::spawn_blocking(move || {
                    let mut piece = vec![0; wanted];
                    archive.file.read_exact_at(&mut piece, entry.offset + done).map(|()| Bytes::from(piece))
                });
                Some((
                    read.await.unwrap_or_else(|error| Err(std::io::Error::other(error))),
                    done + wanted as u64,
                ))
            }
        });
        Ok(pieces.boxed())
    }
}

fn tidy(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(parts.pop()),
            std::path::Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            _ => {}
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An OCI layout of these files.
    fn archive(files: &[(&str, &[u8])]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut tar = tar::Builder::new(file.as_file());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *content).expect("written");
        }
        tar.finish().expect("whole");
        drop(tar);
        file
    }

    fn blob(content: &[u8]) -> (String, String) {
        let digest = digest_of(content);
        (format!("blobs/{}", digest.replacen(':', "/", 1)), digest)
    }

    fn index(digest: &str) -> String {
        let annotations = r#"{"org.opencontainers.image.ref.name": "web:1"}"#;
        format!(r#"{{"manifests": [{{"digest": "{digest}", "size": 1, "annotations": {annotations}}}]}}"#)
    }

    #[test]
    fn archives_that_are_not_what_they_say_are_refused() {
        let (config, config_digest) = blob(b"{}");
        let manifest = format!(r#"{{"config": {{"digest": "{config_digest}", "size": 2}}}}"#);
        let (name, digest) = blob(manifest.as_bytes());
        let index = index(&digest);
        let (index, manifest): (&[u8], &[u8]) = (index.as_bytes(), manifest.as_bytes());
        let check = |files: &[(&str, &[u8])], expected: Result<(), &str>| {
            let found = look(archive(files).path()).map_err(|error| error.to_string());
            match expected {
                Ok(()) => assert_eq!(found, Ok(vec![vec!["docker.io/library/web:1".to_owned()]])),
                Err(part) => assert!(found.as_ref().is_err_and(|error| error.contains(part)), "{found:?}"),
            }
        };
        check(&[("index.json", index), (&name, manifest), (&config, b"{}")], Ok(()));
        check(&[("index.json", index), (&name, manifest)], Err("lacks sha256:"));
        check(&[("index.json", index)], Err("lacks sha256:"));
        check(&[("index.json", index), (&name, b"{}"), (&config, b"{}")], Err("is something else"));
        check(&[("index.json", b"{}")], Err("holds no images"));
        check(&[("other", b"")], Err("neither index.json nor manifest.json"));
        // A list that leads to itself would be read for ever.
        let itself = format!(r#"{{"manifests": [{{"digest": "{digest}", "size": 1}}]}}"#);
        check(&[("index.json", index), (&name, itself.as_bytes())], Err("is something else"));
    }
}
