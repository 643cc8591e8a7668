//! Hears from the kernel that somebody removes rules, so that ours are looked for at once and not at the next turn.
//!
//! nf_tables tells of every change to whoever listens; the older tables tell nobody. We listen only while we change nothing
//! ourselves: our own changes are no news, and the kernel need not tell of thousands of them.

use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use std::io::Result;
use std::os::fd::AsRawFd;
use tokio::net::UnixDatagram;

/// The group of those who are told of nf_tables, as a mask.
const NFTABLES_GROUP: u32 = 1 << (7 - 1);
/// The high byte of the type of a message about nf_tables.
const NFTABLES: u16 = 10;
/// Its low byte, where a table, a chain or a rule is gone.
const GONE: [u16; 3] = [2, 5, 8];
/// What stands before each message: its length with this, its type, and more that does not matter here.
const HEADER: usize = 16;
/// Messages begin at multiples of this.
const ALIGNMENT: usize = 4;

/// Listens from when it is made.
pub struct Removals(UnixDatagram);

impl Removals {
    /// In the network namespace of the thread that calls.
    pub fn listen() -> Result<Removals> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let protocol = SockProtocol::NetlinkNetFilter;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, protocol)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, NFTABLES_GROUP))?;
        // Datagrams of another family, to be waited for and received like these.
        Ok(Removals(UnixDatagram::from_std(socket.into())?))
    }

    /// Returns when something was removed, or may have been.
    pub async fn next(&self) -> Result<()> {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match self.0.recv(&mut buffer).await {
                Ok(length) if tells_of_removal(&buffer[..length]) => return Ok(()),
                Ok(_) => {}
                // More was told than there is room for: who knows what.
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOBUFS) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

fn tells_of_removal(mut messages: &[u8]) -> bool {
    while let Some((header, _)) = messages.split_at_checked(HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        if kind >> 8 == NFTABLES && GONE.contains(&(kind & 0xff)) {
            return true;
        }
        let next = length.max(HEADER).next_multiple_of(ALIGNMENT);
        messages = messages.get(next..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, body: usize) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADER + body).expect("short").to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.resize((HEADER + body).next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    #[test]
    fn only_removals_are_heard_wherever_they_stand() {
        let check = |messages: &[Vec<u8>], expected: bool| {
            assert_eq!(tells_of_removal(&messages.concat()), expected, "{messages:?}");
        };
        let (new_rule, gone_rule, generation) =
            (message(NFTABLES << 8 | 6, 33), message(NFTABLES << 8 | 8, 20), message(NFTABLES << 8 | 15, 4));
        check(&[], false);
        check(&[new_rule.clone(), generation.clone()], false);
        check(&[new_rule, gone_rule, generation], true);
        check(&[message(8, 0)], false);
        check(&[vec![0; 20]], false);
        check(&[vec![1, 2, 3]], false);
    }
}
