//! A loopback port that stays free until whoever it is for listens on it, also while that one is restarted.
//!
//! Port 0 does not give such a one: what the system hands out there it soon hands out again, to anybody's listener or as
//! the source of anybody's connection. So ports are taken from outside the range that the system hands out, and each is
//! reserved among tests by an abstract socket of that name, which goes with the process that holds it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::TcpListener;
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// Ports below are for well-known services.
const LOWEST: u16 = 10_000;

/// A port of the loopback that no other test uses, until this is dropped.
pub struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// One that nobody listens on.
    pub fn reserve() -> Port {
        let handed_out = handed_out();
        let numbers = std::iter::repeat_with(random);
        let outside = numbers.filter(|number| {
            *number >= LOWEST && !handed_out.as_ref().is_some_and(|range| range.contains(number))
        });
        outside.take(100_000).find_map(reserve).expect("a free port outside of what the system hands out")
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn reserve(number: u16) -> Option<Port> {
    let name = SocketAddr::from_abstract_name(format!("minik8s-test-port-{number}")).ok()?;
    let reservation = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(("127.0.0.1", number)).ok()?;
    Some(Port { number, _reservation: reservation })
}

/// What the system hands out by itself; nothing is taken for that where it would leave nothing.
fn handed_out() -> Option<RangeInclusive<u16>> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let ends: Vec<u16> = text.split_whitespace().flat_map(str::parse).collect();
    match ends[..] {
        [first, last] if first > LOWEST + 1000 || last < u16::MAX - 1000 => Some(first..=last),
        _ => None,
    }
}

fn random() -> u16 {
    RandomState::new().hash_one(0) as u16
}
