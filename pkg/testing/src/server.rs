//! A real apiserver in this process, on a free port, with a directory of its own.
//!
//! It runs on a thread with a runtime of its own, so that it can be ended from anywhere, also in `Drop`, and so that
//! ending it the hard way leaves as little behind as a crash does.

use crate::{EtcdServer, Http, Port, eventually, in_time};
use apiserver::{Config, EtcdConfig};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use pki::{Authority, Identity};
use serde_json::json;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use store::{Expect, Store, Write};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Where a server keeps its objects.
#[derive(Clone)]
pub enum Engine {
    /// In its own directory.
    Embedded,
    /// In an etcd that others may use too.
    Etcd(Arc<EtcdServer>),
}

impl Engine {
    /// Both engines, for tests that must hold on each.
    pub fn both() -> [Engine; 2] {
        [Engine::Embedded, Engine::etcd()]
    }

    /// A new etcd.
    pub fn etcd() -> Engine {
        Engine::Etcd(Arc::new(EtcdServer::start()))
    }
}

/// An apiserver, running until it is stopped or dropped.
pub struct TestServer {
    config: Config,
    engine: Engine,
    address: SocketAddr,
    client: kube::Config,
    running: Option<Running>,
    dir: TempDir,
    /// Kept, so that it can be started again where it was.
    port: Port,
}

struct Running {
    drain: CancellationToken,
    kill: CancellationToken,
    thread: JoinHandle<()>,
    ended: oneshot::Receiver<Result<(), String>>,
}

impl TestServer {
    /// A new server on the embedded store; when this returns it serves.
    pub async fn start() -> TestServer {
        Self::start_on(Engine::Embedded).await
    }

    /// A new server on an engine.
    pub async fn start_on(engine: Engine) -> TestServer {
        Self::start_with(engine, |_| {}).await
    }

    /// A new server with a configuration that differs from the default.
    pub async fn start_with(engine: Engine, configure: impl FnOnce(&mut Config)) -> TestServer {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Self::start_in(dir, engine, configure).await
    }

    /// Another server with the same keys on the same etcd: together they are one control plane.
    pub async fn twin(&self) -> TestServer {
        self.twin_with(|_| {}).await
    }

    /// The same, with a configuration that differs from the default.
    pub async fn twin_with(&self, configure: impl FnOnce(&mut Config)) -> TestServer {
        assert!(matches!(self.engine, Engine::Etcd(_)), "only etcd can be shared");
        let dir = tempfile::tempdir().expect("a temporary directory");
        for file in std::fs::read_dir(self.data_dir()).expect("the data directory").flatten() {
            if file.path().is_file() {
                std::fs::copy(file.path(), dir.path().join(file.file_name())).expect("copy a key");
            }
        }
        let range = self.config.service_cluster_ip_range;
        let configure = |config: &mut Config| {
            config.service_cluster_ip_range = range;
            configure(config);
        };
        Self::start_in(dir, self.engine.clone(), configure).await
    }

    async fn start_in(dir: TempDir, engine: Engine, configure: impl FnOnce(&mut Config)) -> TestServer {
        let mut config = Config::new(dir.path());
        if let Engine::Etcd(etcd) = &engine {
            config.etcd = Some(EtcdConfig { servers: vec![etcd.url()], ..EtcdConfig::default() });
        }
        configure(&mut config);
        let port = Port::reserve();
        let (running, address) = launch(config.clone(), &port).await;
        let client = client_config(dir.path()).await;
        TestServer { config, engine, address, client, running: Some(running), dir, port }
    }

    /// Where keys, and objects if the engine is the embedded one, are.
    pub fn data_dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts it again, on the same data and the same address, after stopping it if it runs.
    pub async fn restart(&mut self) {
        self.stop().await;
        let (running, address) = launch(self.config.clone(), &self.port).await;
        self.address = address;
        self.running = Some(running);
    }

    /// Starts it again with a history that begins after all that anybody has seen of it: nobody can go on from there.
    pub async fn forget(&mut self) {
        self.stop().await;
        let store: Arc<dyn Store> = match &self.engine {
            Engine::Embedded => {
                Arc::new(store::Embedded::open(&self.data_dir().join("store")).expect("the store"))
            }
            Engine::Etcd(etcd) => {
                Arc::new(store::Etcd::connect(&[etcd.url()], None).await.expect("the store"))
            }
        };
        let write = Write { key: "/minik8s/forgotten".into(), expect: Expect::Any, value: Some("".into()) };
        let now = store.commit(vec![write]).await.expect("a later revision");
        store.compact(now).await.expect("no history");
        drop(store);
        self.restart().await;
    }

    /// Tells it to end, as SIGTERM does, and waits until it has answered everybody.
    pub async fn stop(&mut self) {
        let Some(running) = self.running.take() else { return };
        running.drain.cancel();
        let ended = in_time("the server ends", running.ended).await;
        ended
            .expect("the server says how it ended")
            .unwrap_or_else(|error| panic!("the server failed: {error}"));
        running.thread.join().expect("the server's thread");
    }

    /// Ends it without letting it finish anything.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill.cancel();
            // A panic in it has been reported already; another one here would hide it.
            let _ = running.thread.join();
        }
    }

    /// A client that may do everything.
    pub fn admin(&self) -> Client {
        self.client(self.client.auth_info.clone())
    }

    /// A client with a certificate of the cluster's authority.
    pub fn user(&self, name: &str, groups: &[&str]) -> Client {
        let read = |file: &str| std::fs::read_to_string(self.data_dir().join(file)).expect("the authority");
        let authority = Authority::load(&read("ca.crt"), &read("ca.key")).expect("the authority");
        self.certified(&authority, name, groups)
    }

    /// A client with a certificate of an authority that the cluster does not know.
    pub fn stranger(&self, name: &str, groups: &[&str]) -> Client {
        let authority = Authority::create("elsewhere", jiff::Timestamp::now()).expect("an authority");
        self.certified(&authority, name, groups)
    }

    /// A kubeconfig with a certificate of the cluster's authority, for a server that is reached at this address.
    pub fn kubeconfig(&self, address: SocketAddr, name: &str, groups: &[&str]) -> PathBuf {
        let read = |file: &str| std::fs::read_to_string(self.data_dir().join(file)).expect("the authority");
        let (certificate, key) = (read("ca.crt"), read("ca.key"));
        let authority = Authority::load(&certificate, &key).expect("the authority");
        let identity = authority.client(name, groups, jiff::Timestamp::now()).expect("a certificate");
        let server = format!("https://{address}");
        let text = pki::kubeconfig(&server, &certificate, name, &identity.certificate, &identity.key);
        let path = self.data_dir().join(format!("{}.kubeconfig", name.replace(':', "-")));
        std::fs::write(&path, text).expect("write the kubeconfig");
        path
    }

    /// A client that is a node, as its kubelet is.
    pub fn node(&self, name: &str) -> Client {
        self.user(&format!("system:node:{name}"), &["system:nodes"])
    }

    /// A client with a bearer token.
    pub fn token(&self, token: &str) -> Client {
        self.client(AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() })
    }

    /// A client that says nothing of who it is.
    pub fn anonymous(&self) -> Client {
        self.client(AuthInfo::default())
    }

    /// A token of a service account, asked for as its pods would have it.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let answer = Http::new(self.admin()).post(&path, &request).await.expect(201);
        answer["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// Raw requests as admin.
    pub fn http(&self) -> Http {
        Http::new(self.admin())
    }

    fn certified(&self, authority: &Authority, name: &str, groups: &[&str]) -> Client {
        let Identity { certificate, key, .. } =
            authority.client(name, groups, jiff::Timestamp::now()).expect("a certificate");
        self.client(AuthInfo {
            client_certificate_data: Some(BASE64_STANDARD.encode(certificate)),
            client_key_data: Some(BASE64_STANDARD.encode(key).into()),
            ..AuthInfo::default()
        })
    }

    fn client(&self, auth_info: AuthInfo) -> Client {
        let mut config = self.client.clone();
        config.auth_info = auth_info;
        Client::try_from(config).expect("a client")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What clients know of the server: what it left in its directory for its admin.
async fn client_config(dir: &Path) -> kube::Config {
    let kubeconfig = Kubeconfig::read_from(dir.join("admin.kubeconfig")).expect("the admin's kubeconfig");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let mut config = config.expect("the admin's kubeconfig");
    // A refusal is what some tests want to see.
    config.default_retry = false;
    config
}

async fn launch(config: Config, port: &Port) -> (Running, SocketAddr) {
    let listener = listen(port).await;
    let (drain, kill) = (CancellationToken::new(), CancellationToken::new());
    let (tell_ended, mut ended) = oneshot::channel();
    let (tell_ready, ready) = oneshot::channel();
    let tokens = (drain.clone(), kill.clone());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (drain, kill) = tokens;
        let end = runtime.block_on(async {
            let serving = async {
                let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
                let ready = |server: &apiserver::Server| {
                    let _ = tell_ready.send(server.address);
                };
                apiserver::run(config, listener, drain, ready).await.map_err(|error| chain(&error))
            };
            tokio::select! {
                end = serving => end,
                () = kill.cancelled() => Ok(()),
            }
        });
        runtime.shutdown_timeout(Duration::from_secs(5));
        let _ = tell_ended.send(end);
    });
    match in_time("the server starts", ready).await {
        Ok(address) => (Running { drain, kill, thread, ended }, address),
        Err(_) => {
            let end = in_time("the server says why it did not start", &mut ended).await;
            panic!("the server did not start: {end:?}");
        }
    }
}

/// Listens on a port, which somebody else may have for a moment.
async fn listen(port: &Port) -> std::net::TcpListener {
    let address = SocketAddr::from(([127, 0, 0, 1], port.number()));
    let listen = || async move { TcpListener::bind(address).await.ok()?.into_std().ok() };
    eventually("the server's port is free", listen).await
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}
