//! Services over UDP: what the kernel remembers must not outlive an endpoint.

use crate::host::Host;
use crate::{Node, service};
use network::Protocol;
use proxy::services::ServicePort;
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Answers datagrams until it is dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(pod: &Host, answer: &'static str) -> Echo {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = pod.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:53").expect("a free port");
            socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while !stopped.load(Ordering::SeqCst) {
                    if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(answer.as_bytes(), from);
                    }
                }
            })
        });
        Echo { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn a_client_that_goes_on_sending_finds_the_new_endpoint() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    let node = Node::new(host, "iptables-nft");
    let (first, pod_first) = node.pod("first");
    let (second, pod_second) = node.pod("second");
    let (_, client) = node.pod("client");
    let _echoes = [Echo::start(&pod_first, "first"), Echo::start(&pod_second, "second")];
    let dns = |address: IpAddr| ServicePort {
        protocol: Protocol::Udp,
        port: 53,
        ..service("dns", "10.96.0.9", &[(address, 53).into()])
    };
    node.sync(&[dns(first)]);
    // One socket, so one remembered way.
    let socket = Arc::new(client.run(|| UdpSocket::bind("0.0.0.0:0").expect("a socket")));
    let ask = |socket: Arc<UdpSocket>| {
        client.run(move || {
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            let mut buffer = [0; 64];
            socket.send_to(b"?", "10.96.0.9:53").ok()?;
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
    };
    let until = |expected: &str| {
        let ends = Instant::now() + Duration::from_secs(60);
        while ask(socket.clone()).as_deref() != Some(expected) {
            assert!(Instant::now() < ends, "waited in vain for {expected}");
        }
    };
    until("first");
    node.sync(&[dns(second)]);
    // The first still answers, so whoever is remembered would be seen.
    until("second");
    assert_eq!(ask(socket.clone()).unwrap_or_else(|| "second".to_owned()), "second");
}

#[test]
fn what_nobody_serves_is_refused_at_once() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    let node = Node::new(host, "iptables-nft");
    let (_, client) = node.pod("client");
    node.sync(&[ServicePort { protocol: Protocol::Udp, port: 53, ..service("nobody", "10.96.0.9", &[]) }]);
    // The first error that somebody who sends and waits for an answer gets.
    let refusal = |from: &Host, address: &'static str| {
        from.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
            socket.connect(address).expect("a route");
            let answer = socket.send(b"?").and_then(|_| socket.recv(&mut [0; 64]));
            answer.expect_err("nobody answers").kind()
        })
    };
    for address in ["10.96.0.9:53", "10.96.0.77:53"] {
        assert_eq!(refusal(&client, address), ErrorKind::ConnectionRefused, "from a pod to {address}");
        assert_eq!(refusal(&node.host, address), ErrorKind::PermissionDenied, "from the node to {address}");
    }
}
