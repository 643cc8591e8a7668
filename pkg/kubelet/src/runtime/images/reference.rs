//! Names of images: `nginx` is `docker.io/library/nginx:latest`.

use super::super::Error;
use oci_client::Reference;

const LONGEST_NAME: usize = 255;
const LONGEST_TAG: usize = 128;
/// Digests by the names of their algorithms, and how many letters each has.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// Understands a name as people write it. The library's own parser is a regular expression that takes 30 MB.
pub fn parse(name: &str) -> Result<Reference, Error> {
    understand(name).ok_or_else(|| {
        Error::ImageNotFound(format!("couldn't parse image name {name:?}: invalid reference format"))
    })
}

fn understand(name: &str) -> Option<Reference> {
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest.to_owned())),
        None => (name, None),
    };
    // A colon before the last slash is a port's.
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (path, tag) = match rest[last..].split_once(':') {
        Some((end, tag)) => (&rest[..last + end.len()], Some(tag.to_owned())),
        None => (rest, None),
    };
    let is_right = digest.as_deref().is_none_or(is_digest) && tag.as_deref().is_none_or(is_tag);
    let (registry, repository) = place_of(path).filter(|_| is_right)?;
    Some(match (tag, digest) {
        (Some(tag), Some(digest)) => Reference::with_tag_and_digest(registry, repository, tag, digest),
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest),
        (tag, None) => Reference::with_tag(registry, repository, tag.unwrap_or_else(|| "latest".into())),
    })
}

/// Where an image is, and what it is called there.
fn place_of(path: &str) -> Option<(String, String)> {
    let parts: Vec<&str> = path.split('/').collect();
    // No repository has capitals, so what has them is a host.
    let is_host = |part: &str| {
        part.contains(['.', ':'])
            || part == "localhost"
            || part.contains(|letter: char| letter.is_ascii_uppercase())
    };
    let (host, path) = match parts.split_first() {
        Some((host, rest)) if !rest.is_empty() && is_host(host) => (*host, rest),
        _ => ("docker.io", &parts[..]),
    };
    if !is_domain(host) || !path.iter().all(|part| is_part(part)) {
        return None;
    }
    let host = if host == "index.docker.io" { "docker.io" } else { host };
    let official = if host == "docker.io" && path.len() == 1 { "library/" } else { "" };
    let path = format!("{official}{}", path.join("/"));
    (path.len() <= LONGEST_NAME).then(|| (host.to_owned(), path))
}

fn is_domain(host: &str) -> bool {
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let is_label = |label: &str| {
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && label.bytes().all(is_inside) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.split('.').all(is_label) && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit())
}

/// Small letters and digits, separated by a dot, one or two underscores, or any number of dashes.
fn is_part(part: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let is_separator = |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|b| b == b'-');
    part.starts_with(is_letter) && part.ends_with(is_letter) && part.split(is_letter).all(is_separator)
}

fn is_tag(tag: &str) -> bool {
    let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !tag.starts_with(['.', '-']) && (1..=LONGEST_TAG).contains(&tag.len()) && tag.bytes().all(is_inside)
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    DIGESTS.contains(&(algorithm, hex.len())) && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The whole name, by which containerd knows the image: with a digest, the tag does not matter.
pub fn normalize(name: &str) -> Result<String, Error> {
    Ok(stored_name(&parse(name)?))
}

/// The whole name without its tag or digest.
pub fn repository(name: &str) -> Option<String> {
    understand(name).map(|reference| format!("{}/{}", reference.registry(), reference.repository()))
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
            ("Host/app", "Host/app:latest"),
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

    #[test]
    fn names_mean_what_the_library_understands_by_them() {
        let (digest, long) = ("a".repeat(64), "a".repeat(128));
        let mut names: Vec<String> = [
            "",
            "a",
            "A",
            "a b",
            "ä",
            "a/",
            "/a",
            "a//b",
            "a:",
            ":a",
            "a:b:c",
            "a:b/c",
            "a:5/b",
            "a:5/b:c",
            "a.b",
            "a.b/c",
            "a..b/c",
            "a.b/C",
            "A.b/c",
            "a/b/c",
            "-a.b/c",
            "a-.b/c",
            "a-b.c/d",
            "a.b:/c",
            "localhost/a",
            "localhost",
            "index.docker.io/a",
            "docker.io/a/b",
            "a_b",
            "a__b",
            "a___b",
            "a-b",
            "a---b",
            "a._b",
            "a-",
            "_a",
            "a.",
            "a:1.2-3_4",
            "a:.1",
            "a:-1",
            "a:_1",
            "a@",
            "a@sha256",
            "a@sha256:12",
            "a@b@c",
            "[::1]:5/a",
            "a:b@",
            "a.b/c@d:e",
        ]
        .map(str::to_owned)
        .into();
        names.extend([
            format!("a:{long}"),
            format!("a:{long}1"),
            format!("a.b/{long}{long}"),
            format!("a.b/{long}{}", &long[1..]),
        ]);
        for algorithm in ["sha256", "sha512", "md5", "SHA256"] {
            names.extend([format!("a@{algorithm}:{digest}"), format!("a:b@{algorithm}:{digest}{digest}")]);
        }
        names.push(format!("a@sha256:{}g", &digest[1..]));
        for name in names {
            assert_eq!(understand(&name), name.parse().ok(), "{name:?}");
        }
    }
}
