//! Manifests and configurations, as far as we read them.

use super::super::{Error, ImageId};
use super::content::digest_of;
use containerd_client::types::Descriptor as ContainerdDescriptor;
use serde::{Deserialize, Serialize};

pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Where some content is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    #[serde(default)]
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(super) annotations: std::collections::BTreeMap<String, String>,
}

/// What an image runs on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Platform {
    pub(super) architecture: String,
    pub(super) os: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) variant: Option<String>,
}

/// One image, or a list of images for different platforms.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default)]
    pub(super) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<Descriptor>,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) manifests: Vec<Descriptor>,
}

/// How an image's containers are started.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImageConfig {
    pub(crate) id: ImageId,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) cmd: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) working_dir: String,
    pub(crate) user: String,
    pub(crate) stop_signal: String,
    /// The digests of the layers' contents, lowest first.
    pub(crate) diff_ids: Vec<String>,
    /// The manifest of this platform.
    pub(crate) manifest: String,
    pub(crate) size_bytes: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ConfigFile {
    config: Option<ConfigFields>,
    rootfs: RootFs,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct ConfigFields {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    stop_signal: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl Descriptor {
    pub(super) fn for_containerd(&self) -> ContainerdDescriptor {
        ContainerdDescriptor {
            media_type: self.media_type.clone(),
            digest: self.digest.clone(),
            size: self.size,
            ..ContainerdDescriptor::default()
        }
    }
}

impl Manifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(bytes)
            .map_err(|error| Error::Container(format!("not an image manifest: {error}")))
    }

    pub(super) fn is_list(&self) -> bool {
        self.config.is_none() && !self.manifests.is_empty()
    }

    pub(super) fn media_type(&self) -> String {
        let otherwise = if self.is_list() { OCI_INDEX } else { OCI_MANIFEST };
        self.media_type.clone().unwrap_or_else(|| otherwise.to_owned())
    }

    /// The image for this machine.
    pub(super) fn for_this_platform(&self) -> Result<&Descriptor, Error> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let fits = |descriptor: &&Descriptor| match &descriptor.platform {
            Some(platform) => platform.os == "linux" && platform.architecture == architecture,
            None => true,
        };
        self.manifests.iter().find(fits).ok_or_else(|| {
            Error::ImageNotFound(format!(
                "no match for platform in manifest: linux/{architecture}: not found"
            ))
        })
    }
}

impl ImageConfig {
    /// From the bytes of the configuration, and what is known of the manifest.
    pub(super) fn parse(bytes: &[u8], manifest: &str, size_bytes: u64) -> Result<Self, Error> {
        let file: ConfigFile = serde_json::from_slice(bytes)
            .map_err(|error| Error::Container(format!("not an image configuration: {error}")))?;
        let fields = file.config.unwrap_or_default();
        Ok(ImageConfig {
            id: ImageId(digest_of(bytes)),
            entrypoint: fields.entrypoint.unwrap_or_default(),
            cmd: fields.cmd.unwrap_or_default(),
            env: fields.env.unwrap_or_default(),
            working_dir: fields.working_dir.unwrap_or_default(),
            user: fields.user.unwrap_or_default(),
            stop_signal: fields.stop_signal.unwrap_or_default(),
            diff_ids: file.rootfs.diff_ids,
            manifest: manifest.to_owned(),
            size_bytes,
        })
    }

    /// The names of the snapshots of the first one, two, … layers.
    pub(crate) fn chain_ids(&self) -> Vec<String> {
        let mut chain: Vec<String> = Vec::new();
        for diff in &self.diff_ids {
            let next = match chain.last() {
                Some(below) => digest_of(format!("{below} {diff}").as_bytes()),
                None => diff.clone(),
            };
            chain.push(next);
        }
        chain
    }

    /// The number of the signal that asks it to end: SIGTERM unless the image says otherwise.
    pub(crate) fn stop_signal(&self) -> i32 {
        use nix::sys::signal::Signal;
        let name = self.stop_signal.trim().to_ascii_uppercase();
        let by_name = |name: &str| name.parse::<Signal>().ok().map(|signal| signal as i32);
        name.parse::<i32>()
            .ok()
            .or_else(|| by_name(&name))
            .or_else(|| by_name(&format!("SIG{name}")))
            .unwrap_or(Signal::SIGTERM as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_are_digests_of_all_layers_below() {
        let config =
            ImageConfig { diff_ids: vec!["sha256:a".into(), "sha256:b".into()], ..ImageConfig::default() };
        let chain = config.chain_ids();
        assert_eq!(chain, ["sha256:a".to_owned(), digest_of(b"sha256:a sha256:b")]);
    }

    #[test]
    fn stop_signals_have_names_and_numbers() {
        for (text, signal) in [("", 15), ("SIGQUIT", 3), ("quit", 3), ("9", 9), ("SIGWHAT", 15)] {
            let config = ImageConfig { stop_signal: text.into(), ..ImageConfig::default() };
            assert_eq!(config.stop_signal(), signal, "{text}");
        }
    }

    #[test]
    fn a_list_is_searched_for_this_machine() {
        let list = r#"{"manifests": [
            {"digest": "sha256:1", "size": 1, "platform": {"os": "windows", "architecture": "amd64"}},
            {"digest": "sha256:2", "size": 1, "platform": {"os": "linux", "architecture": "amd64"}},
            {"digest": "sha256:3", "size": 1, "platform": {"os": "linux", "architecture": "arm64"}}
        ]}"#;
        let list = Manifest::parse(list.as_bytes()).expect("a list");
        let expected = if cfg!(target_arch = "x86_64") { "sha256:2" } else { "sha256:3" };
        assert_eq!(list.for_this_platform().expect("there").digest, expected);
    }
}
