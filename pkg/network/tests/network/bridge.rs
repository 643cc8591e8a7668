//! The built-in bridge.

use crate::host::Host;
use crate::{Node, config, host_port, pod};
use network::{Error, Network};
use std::collections::BTreeSet;
use std::io::ErrorKind;

#[test]
fn without_a_range_the_node_is_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let network = Network::new(config(dir.path())).unwrap();
    let why = network.status().unwrap_err().to_string();
    assert_eq!(
        why,
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
         message:Network plugin returns error: cni plugin not initialized"
    );
}

#[test]
fn pods_reach_each_other_and_the_node_and_keep_what_they_have() {
    let node = Node::new("10.244.1.0/24");
    let a = node.attach(&pod("a"), &[]);
    let b = node.attach(&pod("b"), &[]);
    assert_eq!(a.addresses, ["10.244.1.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(node.attach(&pod("a"), &[]), a, "attaching again changes nothing");
    let (inside_a, inside_b) = (node.pod(&a), node.pod(&b));
    let _server = inside_b.serve(80, "b");
    let to_b = format!("{}:80", b.addresses[0]);
    assert_eq!(inside_a.ask(&to_b).unwrap(), "b");
    assert_eq!(node.host.ask(&to_b).unwrap(), "b");
    let _on_node = node.host.serve(8000, "node");
    assert_eq!(inside_a.ask("10.244.1.1:8000").unwrap(), "node");
    let _local = inside_a.serve(81, "itself");
    assert_eq!(inside_a.ask("127.0.0.1:81").unwrap(), "itself");
    // There is no default route on this host, and nothing pretends otherwise.
    assert_eq!(node.host.sh("ip route show default"), "");

    // Another process of the kubelet: the same pods, and new addresses are new.
    let again = Network::new(config(node.dir.path())).unwrap();
    assert_eq!(again.list().unwrap().len(), 2);
    node.detach(&pod("a"));
    node.detach(&pod("a"));
    let c = node.attach(&pod("c"), &[]);
    assert!(c.addresses[0] != b.addresses[0]);
    assert_eq!(
        inside_b.ask(&format!("{}:80", c.addresses[0])).unwrap_err().kind(),
        ErrorKind::ConnectionRefused
    );
    drop((inside_a, inside_b));
    node.cleanup();
    assert_eq!(node.traces(), "");
    assert!(!node.dir.path().join("network").exists());
}

#[test]
fn no_address_is_given_twice_to_many_at_once() {
    let node = Node::new("10.244.2.0/27");
    let network = node.network.clone();
    let given: Vec<_> = node.host.block_on(move || async move {
        let all = (0..29).map(|n| {
            let network = network.clone();
            async move { network.attach(&pod(&format!("p{n}")), &[]).await }
        });
        futures::future::join_all(all).await
    });
    let addresses: BTreeSet<_> = given.into_iter().map(|pod| pod.expect("attached").addresses[0]).collect();
    assert_eq!(addresses.len(), 29);
    assert!(matches!(node.try_attach(&pod("late"), &[]), Err(Error::Exhausted(_))));
    node.detach(&pod("p7"));
    assert!(addresses.contains(&node.attach(&pod("late"), &[]).addresses[0]));
    // All that go at once are gone when it is said so; the others stay.
    let network = node.network.clone();
    node.host.block_on(move || async move {
        let all: Vec<_> = (0..29).map(|n| pod(&format!("p{n}"))).collect();
        let gone = futures::future::join_all(all.iter().map(|pod| network.detach(pod))).await;
        assert!(gone.into_iter().all(|gone| gone.is_ok()));
    });
    assert_eq!(node.host.sh("ip -o link show type veth | wc -l").trim(), "1");
    node.cleanup();
    assert_eq!(node.traces(), "");
}

#[test]
fn host_ports_lead_to_the_pod_from_everywhere() {
    let outside = Host::new();
    let host = Host::new();
    let _cable = Host::connect(&[&host, &outside]);
    let node = Node::on(host, "10.244.3.0/24");
    let web = node.attach(&pod("web"), &[host_port(8080, 80)]);
    let other = node.attach(&pod("other"), &[]);
    let (inside_web, inside_other) = (node.pod(&web), node.pod(&other));
    let _server = inside_web.serve(80, "web");
    assert_eq!(outside.ask("192.168.77.1:8080").unwrap(), "web");
    assert_eq!(node.host.ask("192.168.77.1:8080").unwrap(), "web");
    assert_eq!(node.host.ask("127.0.0.1:8080").unwrap(), "web");
    assert_eq!(inside_other.ask("192.168.77.1:8080").unwrap(), "web");
    assert_eq!(inside_web.ask("192.168.77.1:8080").unwrap(), "web", "its own");
    // Pods reach the outside with the node's address: the outside has no route to them.
    let _far = outside.serve(9000, "outside");
    assert_eq!(inside_other.ask("192.168.77.2:9000").unwrap(), "outside");
    // Rules that somebody flushed are back after a restart.
    node.host.sh("iptables -t nat -F MINIK8S-HOSTPORT");
    node.set_range("10.244.3.0/24");
    assert_eq!(outside.ask("192.168.77.1:8080").unwrap(), "web");
    // And without one, when it is looked after.
    assert!(!node.heal());
    for flushed in ["nat -F PREROUTING", "nat -F MINIK8S-MASQ", "filter -F FORWARD"] {
        node.host.sh(&format!("iptables -t {flushed}"));
        assert!(node.heal(), "{flushed}");
        assert!(!node.heal(), "{flushed}");
    }
    assert_eq!(outside.ask("192.168.77.1:8080").unwrap(), "web");
    node.detach(&pod("web"));
    assert_eq!(outside.ask("192.168.77.1:8080").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    node.host.sh("iptables -t nat -A POSTROUTING -s 1.2.3.4 -j ACCEPT");
    drop((inside_web, inside_other));
    node.cleanup();
    assert_eq!(node.traces(), "eth0");
    let rules = node.host.sh("iptables-save -t nat");
    assert!(
        rules.contains("-A POSTROUTING -s 1.2.3.4/32 -j ACCEPT"),
        "the rule of others is still there: {rules}"
    );
}

#[test]
fn a_new_range_leaves_the_pods_of_the_old_one_alone() {
    let node = Node::new("10.244.4.0/24");
    let old = node.attach(&pod("old"), &[]);
    node.set_range("10.244.5.0/24");
    let new = node.attach(&pod("new"), &[]);
    assert_eq!(new.addresses[0].to_string(), "10.244.5.2");
    let (inside_old, inside_new) = (node.pod(&old), node.pod(&new));
    let _server = inside_old.serve(80, "old");
    assert_eq!(inside_new.ask("10.244.4.2:80").unwrap(), "old");
    assert_eq!(node.host.ask("10.244.4.2:80").unwrap(), "old");
    node.detach(&pod("old"));
    node.set_range("10.244.5.0/24");
    assert_eq!(node.host.sh("ip -4 -o addr show minik8s0 | awk '{print $4}'"), "10.244.5.1/24");
}

#[test]
fn both_families_of_addresses() {
    let node = Node::new("10.244.6.0/24");
    let network = node.network.clone();
    node.host.block_on(move || async move {
        let ranges = ["10.244.6.0/24".parse().unwrap(), "fd00:6::/64".parse().unwrap()];
        network.set_ranges(&ranges).await.unwrap();
    });
    let a = node.attach(&pod("a"), &[]);
    let inside = node.pod(&a);
    assert_eq!(a.addresses.len(), 2);
    let _server = inside.run(|| std::net::TcpListener::bind("[::]:80").unwrap());
    let (v6, v4) = (a.addresses[1], a.addresses[0]);
    node.host.run(move || {
        std::net::TcpStream::connect((v6, 80)).expect("over IPv6");
        std::net::TcpStream::connect((v4, 80)).expect("over IPv4");
    });
}
