//! Programs of both kinds as processes, and the files that they share.

use jiff::Timestamp;
use pki::ServerPki;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Whose a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Ours,
    Upstreams,
}

/// The folder of upstream's programs; `None`, said aloud, where there is none.
pub fn peer(test: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("PEER_BIN").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: {test}: PEER_BIN does not name a folder of upstream's v1.35 programs");
    }
    folder
}

/// A process that ends with whoever holds it. What it said is shown where a test fails.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it says goes to a file in this folder.
    pub fn start(name: &str, mut command: Command, logs: &Path) -> Process {
        let log = logs.join(format!("{name}.log"));
        let file = File::create(&log).expect("its log");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("its log")).stderr(file);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        Process { name: name.to_owned(), child, log }
    }

    /// Ends it as a supervisor would, and waits until it is gone.
    pub fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").arg(pid).status().expect("kill runs").success());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = said.lines().collect();
            eprintln!("{}:\n{}", self.name, lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The keys and certificates of a cluster, in a folder, for apiservers of either kind.
pub struct Keys {
    folder: PathBuf,
    pki: ServerPki,
}

impl Keys {
    /// New ones, for an apiserver that is reached at this address.
    pub fn make(folder: &Path, address: &str) -> Keys {
        let service_ip = Some("10.96.0.1".parse().expect("an address"));
        let config = pki::Config { names: vec![address.to_owned()], service_ip };
        let pki = pki::ensure(folder, &config, Timestamp::now()).expect("keys");
        Keys { folder: folder.to_owned(), pki }
    }

    /// Writes a kubeconfig of this user beside the keys.
    pub fn kubeconfig(&self, server: &str, user: &str, groups: &[&str]) -> PathBuf {
        let authority = &self.pki.authority;
        let identity = authority.client(user, groups, Timestamp::now()).expect("a certificate");
        let text = pki::kubeconfig(server, authority.pem(), user, &identity.certificate, &identity.key);
        let path = self.folder.join(format!("{}.conf", user.replace(':', "-")));
        std::fs::write(&path, text).expect("write the kubeconfig");
        path
    }
}

/// Flags of upstream's apiserver, whose keys are in this folder.
pub fn upstreams_apiserver(keys: &str, etcd: &str, bind: &str, port: u16) -> Vec<String> {
    let issuer = "https://kubernetes.default.svc.cluster.local";
    [
        format!("--etcd-servers={etcd}"),
        format!("--bind-address={bind}"),
        format!("--advertise-address={bind}"),
        format!("--secure-port={port}"),
        format!("--client-ca-file={keys}/ca.crt"),
        format!("--tls-cert-file={keys}/apiserver.crt"),
        format!("--tls-private-key-file={keys}/apiserver.key"),
        format!("--service-account-issuer={issuer}"),
        format!("--service-account-key-file={keys}/sa.pub"),
        format!("--service-account-signing-key-file={keys}/sa.key"),
        format!("--kubelet-client-certificate={keys}/apiserver-kubelet-client.crt"),
        format!("--kubelet-client-key={keys}/apiserver-kubelet-client.key"),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--service-cluster-ip-range=10.96.0.0/16".into(),
    ]
    .into()
}

/// Flags that controller-managers of both kinds have.
pub fn any_controller_manager(keys: &str, kubeconfig: &str) -> Vec<String> {
    [
        format!("--kubeconfig={kubeconfig}"),
        format!("--root-ca-file={keys}/ca.crt"),
        format!("--service-account-private-key-file={keys}/sa.key"),
        format!("--cluster-signing-cert-file={keys}/ca.crt"),
        format!("--cluster-signing-key-file={keys}/ca.key"),
        "--use-service-account-credentials=true".into(),
    ]
    .into()
}

/// Flags that let one take over quickly from another.
pub const QUICK_LEASES: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=500ms",
];
