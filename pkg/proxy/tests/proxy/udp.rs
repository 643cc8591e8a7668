//! Services over UDP: what the kernel remembers must not outlive an endpoint.

use crate::host::Host;
use crate::{Node, endpoint, key, new_syncer, service};
use network::Protocol;
use proxy::services::{Endpoint, ServicePort};
use std::io::ErrorKind;
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Answers datagrams until it is dropped.
struct Echo {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(pod: &Host, answer: &'static str) -> Echo {
        Echo::start_at(pod, 53, answer)
    }

    fn start_at(pod: &Host, port: u16, answer: &'static str) -> Echo {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = pod.run(move || {
            let socket = UdpSocket::bind(("0.0.0.0", port)).expect("a free port");
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

/// A client with one socket, so one remembered way.
struct Client<'a> {
    pod: &'a Host,
    socket: Arc<UdpSocket>,
}

impl Client<'_> {
    fn new(pod: &Host) -> Client<'_> {
        let socket = pod.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
            socket
        });
        Client { pod, socket: Arc::new(socket) }
    }

    /// Who answers.
    fn ask(&self) -> Option<String> {
        let socket = self.socket.clone();
        self.pod.run(move || {
            let mut buffer = [0; 64];
            // What came late is an answer to an earlier question.
            socket.set_nonblocking(true).ok()?;
            while socket.recv(&mut buffer).is_ok() {}
            socket.set_nonblocking(false).ok()?;
            socket.send_to(b"?", "10.96.0.9:53").ok()?;
            let length = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
        })
    }

    /// Who answers in the end.
    fn answered(&self) -> String {
        let ends = Instant::now() + Duration::from_secs(60);
        loop {
            assert!(Instant::now() < ends, "waited in vain for an answer");
            if let Some(name) = self.ask() {
                return name;
            }
        }
    }

    fn until(&self, expected: &str) {
        let ends = Instant::now() + Duration::from_secs(60);
        while self.answered() != expected {
            assert!(Instant::now() < ends, "waited in vain for {expected}");
        }
    }
}

fn dns(endpoints: Vec<Endpoint>) -> ServicePort {
    ServicePort { protocol: Protocol::Udp, port: 53, endpoints, ..service("dns", "10.96.0.9", &[]) }
}

fn at(address: IpAddr) -> Endpoint {
    endpoint((address, 53).into())
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
    node.sync(&[dns(vec![at(first)])]);
    let client = Client::new(&client);
    client.until("first");
    node.sync(&[dns(vec![at(second)])]);
    // The first still answers, so whoever is remembered would be seen.
    client.until("second");
    assert_eq!(client.answered(), "second");
}

#[test]
fn a_client_that_goes_on_sending_finds_the_new_port() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    let node = Node::new(host, "iptables-nft");
    let (address, pod) = node.pod("both");
    let (_, client) = node.pod("client");
    let _echoes = [Echo::start_at(&pod, 53, "old"), Echo::start_at(&pod, 5353, "new")];
    node.sync(&[dns(vec![at(address)])]);
    let client = Client::new(&client);
    client.until("old");
    node.sync(&[dns(vec![endpoint((address, 5353).into())])]);
    assert_eq!(client.answered(), "new");
}

#[test]
fn a_client_that_is_served_goes_on_being_so() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    let mut node = Node::new(host, "iptables-nft");
    let (first, pod_first) = node.pod("first");
    let (second, pod_second) = node.pod("second");
    let (_, client) = node.pod("client");
    let _echoes = [Echo::start(&pod_first, "first"), Echo::start(&pod_second, "second")];
    let both = || dns(vec![at(first), at(second)]);
    node.sync(&[both()]);
    let client = Client::new(&client);
    let served_by = client.answered();
    let stays = |why: &str| (0..4).for_each(|_| assert_eq!(client.answered(), served_by, "{why}"));
    stays("nothing has changed");
    // Another process, which knows nothing of what was.
    node.syncer = Arc::new(Mutex::new(new_syncer(&node.host, "iptables-nft")));
    node.sync(&[both()]);
    stays("a restart");
    // On its way out, but not gone.
    let leaving = |address: IpAddr| Endpoint { ready: false, terminating: true, ..at(address) };
    node.sync(&[match served_by.as_str() {
        "first" => dns(vec![leaving(first), at(second)]),
        _ => dns(vec![at(first), leaving(second)]),
    }]);
    stays("it drains");
}

#[test]
fn nobody_is_served_by_a_service_that_went_while_rules_could_not_be_written() {
    let host = Host::new();
    let _cable = Host::connect(&[&host]);
    let mut node = Node::new(host, "iptables-nft");
    let refusing = node.dir.path().join("refusing");
    node.write_by("iptables-nft", &format!("[ ! -e {} ] || exit 1", refusing.display()));
    let (first, pod) = node.pod("first");
    let (_, client) = node.pod("client");
    let _echo = Echo::start(&pod, "first");
    let service = dns(vec![at(first)]);
    node.sync(std::slice::from_ref(&service));
    let client = Client::new(&client);
    client.until("first");

    std::fs::write(&refusing, "").expect("written");
    node.try_change(vec![(key(&service), vec![])]).expect_err("nothing can be written");
    std::fs::remove_file(&refusing).expect("it was there");
    node.sync(&[]);
    assert_eq!(client.ask(), None);
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
