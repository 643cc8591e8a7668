//! Hashes that tell whether something is still what it was made from.

use k8s_openapi::api::core::v1::Container;

/// Of what a running container cannot change without being made again: its name and image, as upstream.
pub fn of_container(container: &Container) -> String {
    let text = format!("{}\0{}", container.name, container.image.as_deref().unwrap_or_default());
    format!("{:x}", fnv(text.as_bytes()) as u32)
}

/// Of a file or an object: 32 hexadecimal digits, the form that upstream's hash of a manifest has.
pub fn of_bytes(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// FNV-1a, for hashes that need no secrecy.
pub fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_another_when_its_image_is() {
        let of = |image: &str| {
            of_container(&Container { name: "c".into(), image: Some(image.into()), ..Container::default() })
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
    }

    #[test]
    fn a_hash_of_bytes_looks_like_upstreams() {
        assert_eq!(of_bytes(b"x").len(), 32);
    }
}
