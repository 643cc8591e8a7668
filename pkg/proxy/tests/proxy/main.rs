//! Rules in a real kernel: connections through them, with both backends of iptables, each test on a host of its own.

#[path = "../../../network/tests/network/host.rs"]
mod host;
mod ipv6;
mod rules;
mod udp;

use client::Key;
use host::Host;
use network::iptables::IptablesError;
use network::{Config, HostPort, Network, PodId, Protocol};
use proxy::iptables::Iptables;
use proxy::record::More;
use proxy::rules::Settings;
use proxy::services::{Endpoint, PortName, ServicePort};
use proxy::syncer::{Synced, Syncer};
use std::fs::Permissions;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::Mutex;

/// A host with pods and rules.
struct Node {
    host: Host,
    network: Arc<Network>,
    syncer: Arc<Mutex<Syncer>>,
    dir: TempDir,
}

const NODE: &str = "192.168.77.1";
const PROGRAMS: [&str; 2] = ["iptables-nft", "iptables-legacy"];

impl Node {
    fn new(host: Host, program: &str) -> Node {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let config = Config { iptables: program.to_owned(), ..Config::below(dir.path()) };
        let network = Arc::new(Network::new(config).expect("the state"));
        let attached = network.clone();
        host.block_on(move || async move {
            attached.set_ranges(&["10.244.1.0/24".parse().expect("an address")]).await.expect("the bridge");
            let range = "10.96.0.0/12".parse().expect("an address");
            network::claims::claim_range(range, NODE.parse().expect("an address"))
                .await
                .expect("the services' route");
        });
        let syncer = Arc::new(Mutex::new(new_syncer(&host, program)));
        Node { host, network, syncer, dir }
    }

    /// A pod, and a thread in it.
    fn pod(&self, name: &str) -> (IpAddr, Host) {
        let id = PodId { namespace: "default".into(), name: name.into(), uid: name.into() };
        let network = self.network.clone();
        let attached = self.host.block_on(move || async move {
            network.attach(&id, &Vec::<HostPort>::new()).await.expect("attach")
        });
        (attached.addresses[0], self.host.inside(&attached.netns))
    }

    fn sync(&self, services: &[ServicePort]) -> Synced {
        self.change(services.iter().map(|port| (key(port), vec![port.clone()])).collect())
    }

    fn change(&self, changes: Vec<(Key, Vec<ServicePort>)>) -> Synced {
        self.try_change(changes).expect("sync")
    }

    fn try_change(&self, changes: Vec<(Key, Vec<ServicePort>)>) -> Result<Synced, IptablesError> {
        let syncer = self.syncer.clone();
        self.host.block_on(move || async move { syncer.lock().await.sync(changes).await })
    }

    /// From now on rules are written by programs that do something of their own first with the `$text` to restore.
    fn write_by(&mut self, program: &str, first: &str) {
        let dir = self.dir.path();
        let script = |name: &str, body: &str| {
            let path = dir.join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("made a program");
        };
        script("odd", &format!("exec {program} \"$@\""));
        script("odd-save", &format!("exec {program}-save \"$@\""));
        let restore = format!("text=$(cat)\n{first}\nprintf '%s\\n' \"$text\" | {program}-restore \"$@\"");
        script("odd-restore", &restore);
        let program = dir.join("odd").display().to_string();
        self.syncer = Arc::new(Mutex::new(new_syncer(&self.host, &program)));
    }
}

fn key(port: &ServicePort) -> Key {
    Key::new(&port.name.namespace, &port.name.service)
}

fn new_syncer(host: &Host, program: &str) -> Syncer {
    let settings = Settings {
        pods: Some("10.244.0.0/16".parse().expect("an address")),
        service_ranges: vec!["10.96.0.0/12".parse().expect("an address")],
        ..Settings::new(false)
    };
    let program = program.to_owned();
    let iptables = host.block_on(move || async move { Iptables::find(&program).await.expect("iptables") });
    Syncer::new(iptables, settings)
}

fn service(name: &str, cluster_ip: &str, endpoints: &[SocketAddr]) -> ServicePort {
    ServicePort {
        name: PortName { namespace: "default".into(), service: name.into(), port: "http".into() },
        protocol: Protocol::Tcp,
        port: 80,
        node_port: None,
        cluster_ips: vec![cluster_ip.parse().expect("an address")],
        more: More::default(),
        endpoints: endpoints.iter().map(|socket| endpoint(*socket)).collect(),
    }
}

fn endpoint(socket: SocketAddr) -> Endpoint {
    Endpoint {
        address: socket.ip(),
        port: socket.port(),
        ready: true,
        serving: true,
        terminating: false,
        local: true,
        hints: (None, None),
    }
}
