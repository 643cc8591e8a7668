//! Upstream's apiserver under the same questions, where `PEER_BIN` names a folder that has it.

use crate::world::World;
use std::fs::File;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use testing::{EtcdServer, Port};

/// A kube-apiserver and its etcd; they end with this.
pub struct Peer {
    pub world: World,
    process: Child,
    _etcd: EtcdServer,
    _port: Port,
    _keys: TempDir,
}

impl Peer {
    /// Starts one, if there is one.
    pub async fn start() -> Option<Peer> {
        let program = std::path::PathBuf::from(std::env::var_os("PEER_BIN")?).join("kube-apiserver");
        let (keys, port, etcd) = (tempfile::tempdir().unwrap(), Port::reserve(), EtcdServer::start());
        let config =
            pki::Config { names: vec!["127.0.0.1".into()], service_ip: Some("10.96.0.1".parse().unwrap()) };
        pki::ensure(keys.path(), &config, jiff::Timestamp::now()).unwrap();
        let file = |name: &str| keys.path().join(name).display().to_string();
        let process = Command::new(program)
            .args([
                format!("--etcd-servers={}", etcd.url()),
                "--bind-address=127.0.0.1".into(),
                "--advertise-address=127.0.0.1".into(),
                format!("--secure-port={}", port.number()),
                format!("--client-ca-file={}", file("ca.crt")),
                format!("--tls-cert-file={}", file("apiserver.crt")),
                format!("--tls-private-key-file={}", file("apiserver.key")),
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
                format!("--service-account-key-file={}", file("sa.pub")),
                format!("--service-account-signing-key-file={}", file("sa.key")),
                format!("--kubelet-client-certificate={}", file("apiserver-kubelet-client.crt")),
                format!("--kubelet-client-key={}", file("apiserver-kubelet-client.key")),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                // It is to refuse for the question, never for how many there are.
                "--enable-priority-and-fairness=false".into(),
                "--max-requests-inflight=0".into(),
                "--max-mutating-requests-inflight=0".into(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(keys.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
        let world = World::make(address, keys.path()).await;
        Some(Peer { world, process, _etcd: etcd, _port: port, _keys: keys })
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
