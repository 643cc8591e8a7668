//! The services' addresses: which are kept here, and which are given back.

use crate::host::Host;
use ipnet::IpNet;
use network::claims::{claim_address, claim_range, release_others};

#[test]
fn only_what_was_claimed_and_is_no_longer_wanted_is_given_back() {
    let host = Host::new();
    host.sh("ip address add 192.0.2.1/32 dev lo; ip -6 address add fd00::1/128 dev lo nodad");
    host.sh("ip address add 10.50.0.1/32 dev lo; ip route add 10.50.0.0/16 dev lo");
    let routes = || host.sh("ip route; ip -6 route | grep 108 || true");
    let addresses = || host.sh("ip -o address show dev lo | awk '{print $4}' | sort");
    let (routes_before, addresses_before) = (routes(), addresses());
    let claim = |range: &str, source: &str, address: &str| {
        let range = range.parse().expect("a range");
        let (source, address) = (source.parse().expect("an address"), address.parse().expect("an address"));
        host.block_on(move || async move {
            claim_range(range, source).await.expect("claimed");
            claim_address(address).await.expect("claimed");
        });
    };
    let release = |kept: &[&str]| {
        let kept: Vec<IpNet> = kept.iter().map(|range| range.parse().expect("a range")).collect();
        host.block_on(move || async move { release_others(&kept).await.expect("released") });
    };

    // Somebody chooses another range: of the former one all goes but what is in both.
    claim("10.96.0.0/12", "192.0.2.1", "10.100.0.10");
    claim("fd00:96::/108", "fd00::1", "fd00:96::a");
    claim("10.96.0.0/16", "192.0.2.1", "10.96.0.10");
    release(&["10.96.0.0/16", "fd00:96::/108"]);
    assert!(routes().contains("10.96.0.0/16") && routes().contains("fd00:96::/108"), "{}", routes());
    assert!(!routes().contains("10.96.0.0/12"), "{}", routes());
    assert!(
        addresses().contains("10.96.0.10/32") && addresses().contains("fd00:96::a/128"),
        "{}",
        addresses()
    );
    assert!(!addresses().contains("10.100.0.10"), "{}", addresses());

    release(&[]);
    assert_eq!((routes(), addresses()), (routes_before, addresses_before));
}
