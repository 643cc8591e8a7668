//! Nodes on one cable, and the overlay between their pods.

use crate::host::Host;
use crate::{Node, pod};
use network::Attachment;
use network::overlay::{Local, Peer, sync};

struct OverlayNode {
    node: Node,
    local: Local,
    attachment: Attachment,
}

impl OverlayNode {
    fn new(host: Host, n: u8) -> OverlayNode {
        let range = format!("10.244.{n}.0/24");
        let node = Node::on(host, &range);
        let address = [192, 168, 77, n].into();
        let local = Local::of_node(&[address], &[range.parse().expect("a range")]).expect("a node");
        let attachment = node.attach(&pod(&format!("pod-on-{n}")), &[]);
        OverlayNode { node, local, attachment }
    }

    fn sync(&self, others: &[&OverlayNode]) -> usize {
        let peers: Vec<Peer> = others.iter().map(|other| other.peer()).collect();
        let local = self.local.clone();
        self.node.host.block_on(move || async move { sync(&local, &peers).await.expect("sync") })
    }

    fn peer(&self) -> Peer {
        let (address, range) = (self.local.public_ip.into(), self.local.range.into());
        Peer::of_node(Some(&self.local.annotations()), &[address], &[range]).expect("a node")
    }

    fn inside(&self) -> Host {
        self.node.pod(&self.attachment)
    }

    fn address(&self) -> String {
        self.attachment.addresses[0].to_string()
    }
}

#[test]
fn pods_of_three_nodes_reach_each_other_without_translation() {
    let hosts = [Host::new(), Host::new(), Host::new()];
    let _cable = Host::connect(&hosts.each_ref());
    let mut n = 0;
    let nodes = hosts.map(|host| {
        n += 1;
        OverlayNode::new(host, n)
    });
    let [a, b, c] = &nodes;
    assert!(a.sync(&[a, b, c]) > 0);
    b.sync(&[a, b, c]);
    c.sync(&[a, b, c]);
    assert_eq!(a.sync(&[a, b, c]), 0, "in step");

    for (from, to) in [(a, b), (b, c), (c, a)] {
        let (inside_from, inside_to) = (from.inside(), to.inside());
        let seen = inside_to.run(|| std::net::TcpListener::bind("0.0.0.0:80").unwrap());
        let address = to.address();
        let (mine, seen) = inside_from.run(move || {
            let stream = std::net::TcpStream::connect((address.as_str(), 80)).expect("across nodes");
            (stream.local_addr().unwrap(), seen.accept().unwrap().1)
        });
        assert_eq!(mine, seen, "the pod's own address is seen");
    }
    // From the node itself too: its packets carry the device's address.
    let inside = b.inside();
    let _server = inside.serve(81, "b");
    assert_eq!(a.node.host.ask(&format!("{}:81", b.address())).unwrap(), "b");

    // What fits the overlay fits the cable: full-sized packets, which TCP forbids to fragment.
    let device = a.inside().sh("ip link show eth0");
    assert!(device.contains("mtu 1450"), "{device}");
    let full = "x".repeat(1 << 20);
    let _bulk = inside.serve(82, &full);
    assert_eq!(a.inside().ask(&format!("{}:82", b.address())).unwrap().len(), full.len());

    // A node moves to another address, and another one leaves.
    b.node.host.sh("ip addr flush dev eth0 && ip addr add 192.168.77.22/24 dev eth0");
    let moved = Local { public_ip: [192, 168, 77, 22].into(), ..b.local.clone() };
    let peer = Peer { public_ip: moved.public_ip, ..b.peer() };
    let (local, others) = (a.local.clone(), vec![peer]);
    a.node.host.block_on(move || async move { sync(&local, &others).await.expect("sync") });
    let others = vec![a.peer()];
    b.node.host.block_on(move || async move { sync(&moved, &others).await.expect("sync") });
    assert_eq!(a.inside().ask(&format!("{}:81", b.address())).unwrap(), "b");
    let routes = a.node.host.sh("ip route show dev flannel.1");
    assert_eq!(routes.trim(), "10.244.2.0/24 via 10.244.2.0 proto static onlink");
    assert!(!a.node.host.sh("bridge fdb show dev flannel.1").contains("192.168.77.3"));

    drop((_server, _bulk, inside));
    a.node.cleanup();
    assert_eq!(a.node.traces(), "eth0");
}

#[test]
fn a_device_that_is_in_the_way_is_replaced() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    host.sh("ip link add flannel.1 type vxlan id 7 dstport 4789 && ip link set flannel.1 up");
    let local = Local::of_node(&[[192, 168, 77, 1].into()], &["10.244.1.0/24".parse().unwrap()]).unwrap();
    host.block_on(move || async move { sync(&local, &[]).await.expect("sync") });
    let device = host.sh("ip -d link show flannel.1");
    assert!(device.contains("vxlan id 1 local 192.168.77.1") && device.contains("dstport 8472"), "{device}");
    assert!(device.contains("nolearning") && device.contains("mtu 1450"), "{device}");
}
