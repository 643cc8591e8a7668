//! Debian's docker-registry on a free port of this machine.

use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use oci_client::{Reference, RegistryOperation};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The password `secret`, as registries store it.
const PASSWORD: &str = "me:$2b$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";

/// A registry that ends when this is dropped.
pub struct Registry {
    process: Child,
    pub address: String,
    _dir: tempfile::TempDir,
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
            .unwrap_or_else(|error| panic!("start docker-registry: {error}; apt-get install docker-registry"));
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
        Registry { process, address, _dir: dir }
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
            } else if let Some((_, digest)) = path.split_once("blobs/sha256/").filter(|(_, digest)| !digest.is_empty()) {
                blobs.insert(format!("sha256:{digest}"), bytes);
            }
        }
        let client = Client::new(ClientConfig { protocol: ClientProtocol::Http, ..ClientConfig::default() });
        let reference: Reference = format!("{}/{name}", self.address).parse().expect("a name");
        client.auth(&reference, auth, RegistryOperation::Push).await.expect("let in");
        let digest = index["manifests"][0]["digest"].as_str().expect("a digest").to_owned();
        let manifest = blobs.remove(&digest).expect("a manifest");
        for (digest, bytes) in blobs {
            client.push_blob(&reference, bytes, &digest).await.expect("pushed");
        }
        let kind = "application/vnd.oci.image.manifest.v1+json".parse().expect("a media type");
        client.push_manifest_raw(&reference, manifest, kind).await.expect("pushed");
        digest
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // It may have ended, which is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
