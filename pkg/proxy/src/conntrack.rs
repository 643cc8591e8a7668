//! What the kernel remembers of connectionless protocols: a datagram follows the way of the one before it, also when
//! the endpoint is gone, or when there was none. Such ways are forgotten; all others stay.
//!
//! ```text
//! conntrack -L ──> [Way] ── is its end still an endpoint of the service? ── no ──> conntrack -D
//! ```

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Where datagrams are sent to: an address of a service, or any of the node's, and a port.
pub type Target = (Option<IpAddr>, u16);

/// Who answers there now.
pub type Endpoints = HashMap<Target, HashSet<SocketAddr>>;

/// A remembered way: where datagrams were sent to, and where answers come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Way {
    address: IpAddr,
    port: u16,
    end: SocketAddr,
}

/// Forgets what leads to somebody else than these. What cannot be forgotten times out after half a minute of silence, so
/// failures are only logged.
pub async fn clean(endpoints: &Endpoints, ipv6: bool) {
    if let Err(error) = forget(endpoints, ipv6).await {
        tracing::warn!(%error, "cannot run conntrack: is the package installed? UDP clients may wait");
    }
}

async fn forget(endpoints: &Endpoints, ipv6: bool) -> io::Result<()> {
    for way in stale(endpoints, ipv6).await? {
        let output = conntrack("-D", ipv6).args(place_of(&way).split(' ')).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        // It may have ended by itself.
        if !output.status.success() && !said.contains("0 flow entries") {
            tracing::warn!(?way, %said, "conntrack");
        }
    }
    Ok(())
}

/// There may be very many, so they are read line by line.
async fn stale(endpoints: &Endpoints, ipv6: bool) -> io::Result<BTreeSet<Way>> {
    let local = local_addresses();
    let mut command = conntrack("-L", ipv6);
    let mut running = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut lines = BufReader::new(running.stdout.take().expect("piped above")).lines();
    let mut stale = BTreeSet::new();
    while let Some(line) = lines.next_line().await? {
        stale.extend(read(&line).filter(|way| is_stale(way, endpoints, &local)));
    }
    running.wait().await?;
    Ok(stale)
}

fn conntrack(verb: &str, ipv6: bool) -> Command {
    let mut command = Command::new("conntrack");
    command.args([verb, "-p", "udp", "-f", if ipv6 { "ipv6" } else { "ipv4" }]);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// A way of a service whose end is none of its endpoints; whatever is no service's is nobody's business.
fn is_stale(way: &Way, endpoints: &Endpoints, local: &HashSet<IpAddr>) -> bool {
    let of_service = endpoints.get(&(Some(way.address), way.port));
    let of_node = || endpoints.get(&(None, way.port)).filter(|_| local.contains(&way.address));
    let found = of_service.or_else(of_node);
    found.is_some_and(|endpoints| !endpoints.contains(&way.end))
}

/// A line such as `udp 17 29 src=10.0.0.1 dst=10.96.0.10 sport=1234 dport=53 src=10.244.0.5 dst=10.0.0.1 sport=5353 …`:
/// there, and back.
fn read(line: &str) -> Option<Way> {
    let values = |name: &'static str| {
        line.split_whitespace().filter_map(move |word| word.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Way {
        address: values("dst").next()?.parse().ok()?,
        port: values("dport").next()?.parse().ok()?,
        end: SocketAddr::new(values("src").nth(1)?.parse().ok()?, values("sport").nth(1)?.parse().ok()?),
    })
}

/// The addresses of this node, at which node ports are.
fn local_addresses() -> HashSet<IpAddr> {
    let of = |interface: InterfaceAddress| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    };
    getifaddrs().map(|interfaces| interfaces.filter_map(of).collect()).unwrap_or_default()
}

fn place_of(Way { address, port, end }: &Way) -> String {
    let (end, end_port) = (end.ip(), end.port());
    format!("--orig-dst {address} --orig-port-dst {port} --reply-src {end} --reply-port-src {end_port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ways_of_services_to_somebody_else_are_stale() {
        let parse = |text: &str| text.parse::<IpAddr>().unwrap();
        let endpoint = || [SocketAddr::new(parse("10.244.0.5"), 5353)].into();
        let endpoints: Endpoints = [
            ((Some(parse("10.96.0.10")), 53), endpoint()),
            ((Some(parse("10.96.0.11")), 53), HashSet::new()),
            ((None, 30053), endpoint()),
        ]
        .into();
        let check = |line: &str, expected: &str| {
            let way = read(line).filter(|way| is_stale(way, &endpoints, &[parse("192.168.1.1")].into()));
            assert_eq!(way.map(|way| place_of(&way)).unwrap_or_default(), expected, "{line}");
        };
        let line_to = |dst: &str, port: u16, end: &str, end_port: u16| {
            format!(
                "udp      17 29 src=10.0.0.1 dst={dst} sport=1234 dport={port} [UNREPLIED] src={end} dst=10.0.0.1 sport={end_port} dport=1234 mark=0 use=1"
            )
        };
        let line = |dst: &str, port: u16, end: &str| line_to(dst, port, end, 5353);
        check(&line("10.96.0.10", 53, "10.244.0.5"), "");
        check(
            &line("10.96.0.10", 53, "10.244.0.6"),
            "--orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.0.6 --reply-port-src 5353",
        );
        // The same endpoint, which was reached at another port.
        check(
            &line_to("10.96.0.10", 53, "10.244.0.5", 53),
            "--orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.244.0.5 --reply-port-src 53",
        );
        // It began before anybody answered, and was led nowhere.
        check(
            &line_to("10.96.0.10", 53, "10.96.0.10", 53),
            "--orig-dst 10.96.0.10 --orig-port-dst 53 --reply-src 10.96.0.10 --reply-port-src 53",
        );
        check(
            &line("10.96.0.11", 53, "10.244.0.5"),
            "--orig-dst 10.96.0.11 --orig-port-dst 53 --reply-src 10.244.0.5 --reply-port-src 5353",
        );
        check(
            &line("192.168.1.1", 30053, "10.244.0.9"),
            "--orig-dst 192.168.1.1 --orig-port-dst 30053 --reply-src 10.244.0.9 --reply-port-src 5353",
        );
        check(&line("192.168.1.1", 30053, "10.244.0.5"), "");
        check(&line("10.96.0.77", 30053, "10.244.0.9"), "");
        check(&line("8.8.8.8", 53, "8.8.8.8"), "");
        check("conntrack v1.4.7 (conntrack-tools): 0 flow entries have been shown.", "");
    }
}
