//! Debian's docker-registry on a free port of this machine.

use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The password `secret`, as registries store it.
const PASSWORD: &str = "me:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry that ends when this is dropped.
pub struct Registry {
    process: Child,
    pub address: String,
    dir: tempfile::TempDir,
}

impl Registry {
    /// One that lets everybody in, or only `me` with `secret`.
    pub fn start(asks_for_password: bool) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config = format!(
            "version: 0.1\nlog:\n  level: info\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:0\n",
            dir.path().join("data").display()
        );
        if asks_for_password {
            let file = dir.path().join("htpasswd");
            std::fs::write(&file, PASSWORD).expect("written");
            config += &format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", file.display());
        }
        let path = dir.path().join("config.yml");
        std::fs::write(&path, config).expect("written");
        let mut process = Command::new("docker-registry")
            .arg("serve")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("start docker-registry: {error}; apt-get install docker-registry")
            });
        let mut lines = BufReader::new(process.stderr.take().expect("piped above")).lines();
        let mut log = String::new();
        let address = loop {
            match lines.next() {
                Some(Ok(line)) => match line.split_once("listening on 127.0.0.1:") {
                    Some((_, rest)) => {
                        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                        break format!("127.0.0.1:{port}");
                    }
                    None => log.push_str(&(line + "\n")),
                },
                _ => panic!("docker-registry ended before it was ready:\n{log}"),
            }
        };
        // It must not block on a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Registry { process, address, dir }
    }

    /// Puts an image of an archive of ours there, and says its digest.
    pub async fn push(&self, archive: &Path, name: &str, auth: &RegistryAuth) -> String {
        let mut blobs = BTreeMap::new();
        let mut index = serde_json::Value::Null;
        let file = std::fs::File::open(archive).expect("an archive");
        for entry in tar::Archive::new(file).entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let path = entry.path().expect("a path").display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("bytes");
            if path.ends_with("index.json") {
                index = serde_json::from_slice(&bytes).expect("JSON");
            } else if let Some((_, digest)) =
                path.split_once("blobs/sha256/").filter(|(_, digest)| !digest.is_empty())
            {
                blobs.insert(format!("sha256:{digest}"), bytes);
            }
        }
        let digest = index["manifests"][0]["digest"].as_str().expect("a digest").to_owned();
        let manifest = blobs.remove(&digest).expect("a manifest");
        self.push_parts(name, blobs, manifest, auth).await;
        digest
    }

    /// Puts an image of one layer there, whatever the bytes of the layer are and its configuration says of them. Says the
    /// digest of the layer.
    pub async fn push_layer(&self, name: &str, layer: &[u8], diff_id: Option<&str>) -> String {
        let digest = digest_of(layer);
        let rootfs = json!({"type": "layers", "diff_ids": [diff_id.unwrap_or(&digest)]});
        let config = json!({"architecture": "amd64", "os": "linux", "rootfs": rootfs}).to_string();
        let part = |kind: &str, bytes: &[u8]| {
            let kind = format!("application/vnd.oci.image.{kind}");
            json!({"mediaType": kind, "digest": digest_of(bytes), "size": bytes.len()})
        };
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("config.v1+json", config.as_bytes()), "layers": [part("layer.v1.tar+gzip", layer)],
        });
        let blobs = [layer.to_vec(), config.into_bytes()].map(|bytes| (digest_of(&bytes), bytes));
        let manifest = manifest.to_string().into_bytes();
        self.push_parts(name, blobs.into(), manifest, &RegistryAuth::Anonymous).await;
        digest
    }

    /// Replaces the bytes of a blob, as a bad disk would.
    pub fn damage(&self, digest: &str) {
        let hex = digest.trim_start_matches("sha256:");
        let blobs = self.dir.path().join("data/docker/registry/v2/blobs/sha256");
        let path = blobs.join(&hex[..2]).join(hex).join("data");
        let bytes = std::fs::read(&path).expect("a blob");
        std::fs::write(&path, vec![b'x'; bytes.len()]).expect("written");
    }

    async fn push_parts(
        &self,
        name: &str,
        blobs: BTreeMap<String, Vec<u8>>,
        manifest: Vec<u8>,
        auth: &RegistryAuth,
    ) {
        let client = Client::new(ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() });
        let reference: Reference = format!("{}/{name}", self.address).parse().expect("a name");
        client.auth(&reference, auth, RegistryOperation::Push).await.expect("let in");
        for (digest, bytes) in blobs {
            client.push_blob(&reference, bytes, &digest).await.expect("pushed");
        }
        let kind = MANIFEST.parse().expect("a media type");
        client.push_manifest_raw(&reference, manifest, kind).await.expect("pushed");
    }
}

fn digest_of(bytes: &[u8]) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    let told = Command::new("sha256sum").arg(file.path()).output().expect("sha256sum");
    let text = String::from_utf8(told.stdout).expect("text");
    format!("sha256:{}", text.split_whitespace().next().expect("a digest"))
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
