//! What the kernel remembers of connectionless protocols: a datagram follows the way of the one before it, also when
//! the endpoint is gone. So that is forgotten when endpoints go.

use std::net::IpAddr;
use std::process::Stdio;
use tokio::process::Command;

/// A remembered way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// To which address of the service; any of the node's if none.
    pub address: Option<IpAddr>,
    /// To which port.
    pub port: u16,
    /// To which endpoint; if none, all ways.
    pub endpoint: Option<IpAddr>,
}

/// Forgets them. What cannot be forgotten times out after half a minute of silence, so failures are only logged.
pub async fn flush(stale: &[Stale]) {
    for stale in stale {
        let mut command = Command::new("conntrack");
        command.args(arguments(stale)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match command.kill_on_drop(true).output().await {
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                if !output.status.success() && !said.contains("0 flow entries") {
                    tracing::warn!(?stale, %said, "conntrack");
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot run conntrack: is the package installed? UDP clients may wait");
                return;
            }
        }
    }
}

fn arguments(stale: &Stale) -> Vec<String> {
    let mut arguments: Vec<String> = ["-D", "-p", "udp"].map(str::to_owned).into();
    if let Some(address) = stale.address {
        arguments.extend(["--orig-dst".to_owned(), address.to_string()]);
    }
    arguments.extend(["--orig-port-dst".to_owned(), stale.port.to_string()]);
    if let Some(endpoint) = stale.endpoint {
        arguments.extend(["--dst-nat".to_owned(), endpoint.to_string()]);
    }
    if stale.address.or(stale.endpoint).is_some_and(|address| address.is_ipv6()) {
        arguments.extend(["-f".to_owned(), "ipv6".to_owned()]);
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_named_as_conntrack_wants_them() {
        let check = |address: Option<&str>, endpoint: Option<&str>, expected: &str| {
            let parse = |text: &str| text.parse().unwrap();
            let stale = Stale { address: address.map(parse), port: 53, endpoint: endpoint.map(parse) };
            assert_eq!(arguments(&stale).join(" "), expected);
        };
        check(
            Some("10.96.0.10"),
            Some("10.1.1.1"),
            "-D -p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --dst-nat 10.1.1.1",
        );
        check(Some("fd00::a"), None, "-D -p udp --orig-dst fd00::a --orig-port-dst 53 -f ipv6");
        check(None, Some("10.1.1.1"), "-D -p udp --orig-port-dst 53 --dst-nat 10.1.1.1");
    }
}
