//! Names of chains: short, and the same for the same service or endpoint, as upstream makes them.

use crate::services::PortName;
use network::Protocol;
use ring::digest::{SHA256, digest};

/// What the names of chains of single services and endpoints begin with.
pub const PREFIXES: [&str; 5] = ["KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-SEP-", "KUBE-FW-"];

/// Whether a chain is of a single service or endpoint.
pub fn is_service_chain(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The chain of a port: `prefix` says which of them.
pub fn of_port(prefix: &str, name: &PortName, protocol: Protocol) -> String {
    format!("{prefix}{}", hash(&format!("{name}{}", protocol.lower())))
}

/// The chain of an endpoint of a port.
pub fn of_endpoint(name: &PortName, protocol: Protocol, endpoint: &str) -> String {
    format!("KUBE-SEP-{}", hash(&format!("{name}{}{endpoint}", protocol.lower())))
}

/// Sixteen characters of base32 of SHA-256: what fits into the name of a chain.
fn hash(text: &str) -> String {
    const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let digest = digest(&SHA256, text.as_bytes());
    let bits = digest.as_ref()[..10].iter().fold(0u128, |bits, byte| (bits << 8) | u128::from(*byte));
    (0..16).map(|n| char::from(ALPHABET[((bits >> (75 - 5 * n)) & 31) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_upstreams() {
        // As upstream's kube-proxy names them in its own tests.
        let name = PortName { namespace: "ns1".into(), service: "svc1".into(), port: "p80".into() };
        assert_eq!(of_port("KUBE-SVC-", &name, Protocol::Tcp), "KUBE-SVC-XPGD46QRK7WJZT7O");
        assert_eq!(of_endpoint(&name, Protocol::Tcp, "10.180.0.1:80"), "KUBE-SEP-SXIVWICOYRO3J4NJ");
    }
}
