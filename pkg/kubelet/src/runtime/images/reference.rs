//! Names of images: `nginx` is `docker.io/library/nginx:latest`.

use super::super::Error;
use oci_client::Reference;

/// Understands a name as people write it.
pub fn parse(name: &str) -> Result<Reference, Error> {
    name.parse().map_err(|_| {
        Error::ImageNotFound(format!("couldn't parse image name {name:?}: invalid reference format"))
    })
}

/// The whole name, by which containerd knows the image: with a digest, the tag does not matter.
pub fn normalize(name: &str) -> Result<String, Error> {
    Ok(stored_name(&parse(name)?))
}

pub(super) fn stored_name(reference: &Reference) -> String {
    let repository = format!("{}/{}", reference.registry(), reference.repository());
    match (reference.digest(), reference.tag()) {
        (Some(digest), _) => format!("{repository}@{digest}"),
        (None, tag) => format!("{repository}:{}", tag.unwrap_or("latest")),
    }
}

/// Whether it is a digest of an image's configuration rather than a name.
pub(super) fn as_id(name: &str) -> Option<String> {
    let hex = name.strip_prefix("sha256:").unwrap_or(name);
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| format!("sha256:{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_mean_whole_ones() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let cases = [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.25", "docker.io/library/nginx:1.25"),
            ("me/app", "docker.io/me/app:latest"),
            ("localhost:5000/app:v1", "localhost:5000/app:v1"),
            ("127.0.0.1:5000/a/b", "127.0.0.1:5000/a/b:latest"),
            ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
            ("index.docker.io/library/nginx", "docker.io/library/nginx:latest"),
        ];
        for (name, whole) in cases {
            assert_eq!(normalize(name).expect("a name"), whole, "{name}");
        }
        assert_eq!(
            normalize(&format!("app:v1@{digest}")).expect("a name"),
            format!("docker.io/library/app@{digest}")
        );
        assert_eq!(as_id(&digest), Some(digest.clone()));
        assert_eq!(as_id("nginx"), None);
        let error = normalize("Not A Name").expect_err("spaces");
        assert_eq!(error.to_string(), "couldn't parse image name \"Not A Name\": invalid reference format");
    }
}
