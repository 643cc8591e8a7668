//! What has been attached, in files: one per pod. The record is the reservation of the pod's addresses.
//!
//! ```text
//! <state>/lock                 held while records change
//! <state>/last-<range>         the address given last, so that the next one is another
//! <state>/pods/<uid>.json      written before anything is made, removed after everything is gone
//! ```
//!
//! A record is replaced as a whole (write, rename). There is no second place that knows which addresses are taken, so
//! nothing can disagree with it, whatever is killed when.

use crate::{Error, HostPort, PodId, Result};
use ipnet::IpNet;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What is known of an attached pod.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    pub pod: PodId,
    pub netns: PathBuf,
    pub host_ports: Vec<HostPort>,
    pub by: By,
}

/// Who made it, and so who removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum By {
    /// The built-in bridge.
    #[serde(rename_all = "camelCase")]
    Bridge {
        /// The device on the node's side.
        veth: String,
        addresses: Vec<IpAddr>,
    },
    /// CNI plugins.
    #[serde(rename_all = "camelCase")]
    Cni {
        /// The configuration list as it was.
        list: serde_json::Value,
        /// The last plugin's result; none until all have succeeded.
        result: Option<serde_json::Value>,
    },
}

/// The directory of records.
pub struct Records {
    dir: PathBuf,
}

/// The right to change records. Held by one process at a time, and lost with it.
pub struct Locked<'a> {
    records: &'a Records,
    _lock: Flock<File>,
}

impl Records {
    pub fn open(dir: &Path) -> Result<Records> {
        let what = || format!("open the network state in {}", dir.display());
        fs::create_dir_all(dir.join("pods")).map_err(Error::io(what()))?;
        Ok(Records { dir: dir.to_owned() })
    }

    /// Waits for the right to change records. Blocks only as long as somebody writes one file.
    pub fn lock(&self) -> Result<Locked<'_>> {
        let path = self.dir.join("lock");
        let what = format!("lock {}", path.display());
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::io(what.clone()))?;
        let lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Error::Io { what, source: errno.into() })?;
        Ok(Locked { records: self, _lock: lock })
    }

    /// The record of a pod.
    pub fn get(&self, uid: &str) -> Result<Option<Record>> {
        read(&self.path_of(uid))
    }

    /// All records.
    pub fn all(&self) -> Result<Vec<Record>> {
        let dir = self.dir.join("pods");
        let what = format!("list {}", dir.display());
        let mut records = Vec::new();
        for entry in fs::read_dir(&dir).map_err(Error::io(what.clone()))? {
            let path = entry.map_err(Error::io(what.clone()))?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                records.extend(read(&path)?);
            }
        }
        Ok(records)
    }

    fn path_of(&self, uid: &str) -> PathBuf {
        // A uid is the apiserver's; that of a static pod may be anything that its author wrote.
        let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let name: String = uid.chars().map(|c| if safe(c) { c } else { '_' }).collect();
        self.dir.join("pods").join(format!("{name}.json"))
    }
}

impl Locked<'_> {
    pub fn put(&self, record: &Record) -> Result<()> {
        let path = self.records.path_of(&record.pod.uid);
        let bytes = serde_json::to_vec(record).expect("a record is JSON");
        let temporary = path.with_extension("tmp");
        let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(Error::io(format!("write {}", path.display())))
    }

    pub fn remove(&self, uid: &str) -> Result<()> {
        let path = self.records.path_of(uid);
        // A crash between write and rename leaves this.
        let _ = fs::remove_file(path.with_extension("tmp"));
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io(format!("remove {}", path.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// An address of each range that no record has.
    pub fn free_addresses(&self, ranges: &[IpNet]) -> Result<Vec<IpAddr>> {
        let taken: BTreeSet<IpAddr> = self.records.all()?.iter().flat_map(addresses).collect();
        let mut found = Vec::new();
        for range in ranges {
            let path = self.records.dir.join(format!("last-{}", range.to_string().replace(['/', ':'], "_")));
            let last = fs::read_to_string(&path).ok().and_then(|text| text.parse().ok());
            let address = next_free(*range, &taken, last).ok_or(Error::Exhausted(*range))?;
            // Only a preference: if it is lost, an address is used again a little sooner.
            let _ = fs::write(&path, address.to_string());
            found.push(address);
        }
        Ok(found)
    }
}

/// The addresses a record holds.
pub fn addresses(record: &Record) -> Vec<IpAddr> {
    match &record.by {
        By::Bridge { addresses, .. } => addresses.clone(),
        By::Cni { result, .. } => result.as_ref().map(crate::cni::addresses).unwrap_or_default(),
    }
}

/// The gateway of a range: its first address, on the bridge.
pub fn gateway(range: IpNet) -> IpAddr {
    nth(range, 1)
}

fn read(path: &Path) -> Result<Option<Record>> {
    let what = format!("read {}", path.display());
    match fs::read(path) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(record) => Ok(Some(record)),
            Err(error) => {
                // Renames are whole unless the machine lost power, and then nothing of the pod is left either.
                tracing::warn!(path = %path.display(), %error, "a record that cannot be read is ignored");
                Ok(None)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(what)(error)),
    }
}

/// The first free address after `last`, around the end if need be. The network's own address, the gateway and the
/// last address (broadcast, in IPv4) are nobody's.
fn next_free(range: IpNet, taken: &BTreeSet<IpAddr>, last: Option<IpAddr>) -> Option<IpAddr> {
    // A range of more than this many addresses has a free one among the first ones for sure.
    const MOST: u128 = 1 << 20;
    let bits = u32::from(range.max_prefix_len() - range.prefix_len());
    let size = 1u128.checked_shl(bits).unwrap_or(u128::MAX).min(MOST);
    let usable = size.checked_sub(3).filter(|usable| *usable > 0)?;
    let last = last.filter(|last| range.contains(last));
    let start = last.and_then(|last| offset(range, last)).map_or(0, |offset| offset.saturating_sub(1));
    (0..usable).map(|step| nth(range, 2 + (start + step) % usable)).find(|address| !taken.contains(address))
}

fn nth(range: IpNet, n: u128) -> IpAddr {
    match range.network() {
        IpAddr::V4(base) => {
            IpAddr::V4(u32::from(base).wrapping_add(u32::try_from(n).unwrap_or(u32::MAX)).into())
        }
        IpAddr::V6(base) => IpAddr::V6(u128::from(base).wrapping_add(n).into()),
    }
}

fn offset(range: IpNet, address: IpAddr) -> Option<u128> {
    match (range.network(), address) {
        (IpAddr::V4(base), IpAddr::V4(address)) => {
            u32::from(address).checked_sub(u32::from(base)).map(u128::from)
        }
        (IpAddr::V6(base), IpAddr::V6(address)) => u128::from(address).checked_sub(u128::from(base)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn addresses_are_given_in_turn_and_come_around() {
        let none = BTreeSet::new();
        let check = |net: &str, last: Option<&str>, expected: Option<&str>| {
            assert_eq!(next_free(range(net), &none, last.map(ip)), expected.map(ip), "{net} after {last:?}");
        };
        check("10.244.1.0/24", None, Some("10.244.1.2"));
        check("10.244.1.0/24", Some("10.244.1.2"), Some("10.244.1.3"));
        check("10.244.1.0/24", Some("10.244.1.254"), Some("10.244.1.2"));
        check("10.244.1.0/24", Some("192.168.0.1"), Some("10.244.1.2"));
        check("10.0.0.0/30", Some("10.0.0.2"), Some("10.0.0.2"));
        check("10.0.0.0/31", None, None);
        check("10.0.0.0/32", None, None);
        check("fd00:1::/64", Some("fd00:1::7"), Some("fd00:1::8"));
    }

    proptest! {
        /// Whatever is taken, what is found is free, inside, and neither gateway nor broadcast; nothing only if all is taken.
        #[test]
        fn what_is_found_is_free(taken in proptest::collection::btree_set(0u8..=255, 0..256), last in any::<u8>()) {
            let net = range("10.1.2.0/24");
            let taken: BTreeSet<IpAddr> = taken.iter().map(|n| IpAddr::from([10, 1, 2, *n])).collect();
            match next_free(net, &taken, Some(IpAddr::from([10, 1, 2, last]))) {
                Some(IpAddr::V4(address)) => {
                    prop_assert!(!taken.contains(&IpAddr::V4(address)));
                    prop_assert!((2..=254).contains(&address.octets()[3]));
                }
                _ => prop_assert!((2..=254u8).all(|n| taken.contains(&IpAddr::from([10, 1, 2, n])))),
            }
        }
    }

    #[test]
    fn a_record_holds_its_addresses_until_it_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::open(dir.path()).unwrap();
        let net = range("10.9.0.0/29");
        let mut given = Vec::new();
        for n in 0..5 {
            let locked = records.lock().unwrap();
            let addresses = locked.free_addresses(&[net]).unwrap();
            given.extend(addresses.clone());
            let pod = PodId { namespace: "default".into(), name: format!("p{n}"), uid: format!("u/{n}") };
            let by = By::Bridge { veth: "veth0".into(), addresses };
            locked.put(&Record { pod, netns: "/x".into(), host_ports: vec![], by }).unwrap();
        }
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 5);
        let full = records.lock().unwrap().free_addresses(&[net]).unwrap_err();
        assert_eq!(full.to_string(), "no addresses available in range 10.9.0.0/29");

        // Another process sees the same.
        let records = Records::open(dir.path()).unwrap();
        assert_eq!(records.all().unwrap().len(), 5);
        records.lock().unwrap().remove("u/3").unwrap();
        records.lock().unwrap().remove("u/3").unwrap();
        assert_eq!(records.lock().unwrap().free_addresses(&[net]).unwrap(), vec![ip("10.9.0.5")]);
    }
}
