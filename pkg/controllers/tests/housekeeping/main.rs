//! The controllers that keep the cluster itself in order, against a real apiserver, as user `system:kube-controller-manager` with the
//! roles that every cluster starts with.

mod collection;
mod endpoints;
mod identity;
mod nodes;
mod volumes;

use controllers::Config;
use serde_json::Value;
use std::path::PathBuf;
use testing::{Http, TestServer, eventually, in_time};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// An apiserver and some controllers.
pub struct Cluster {
    /// The apiserver.
    pub server: TestServer,
    /// Requests as admin.
    pub http: Http,
    config: Config,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Cluster {
    /// With these controllers.
    pub async fn start(controllers: &[&str]) -> Cluster {
        Self::start_with(controllers, |_| {}).await
    }

    /// With these controllers, configured otherwise than by default.
    pub async fn start_with(controllers: &[&str], configure: impl FnOnce(&mut Config)) -> Cluster {
        let server = TestServer::start().await;
        let authority = |file: &str| server.data_dir().join(file);
        let mut config = Config {
            kubeconfig: Some(kubeconfig(&server)),
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            leader: client::LeaderConfig::alone(),
            cluster_signing_cert_file: Some(authority("ca.crt")),
            cluster_signing_key_file: Some(authority("ca.key")),
            root_ca_file: Some(authority("ca.crt")),
            ..Config::default()
        };
        configure(&mut config);
        let http = server.http();
        let mut cluster = Cluster { server, http, config, running: None };
        cluster.run();
        cluster
    }

    /// Lets the controllers run.
    pub fn run(&mut self) {
        let shutdown = CancellationToken::new();
        let (config, token) = (self.config.clone(), shutdown.clone());
        let task = tokio::spawn(async move {
            controllers::run(config, token).await.expect("the controllers run");
        });
        self.running = Some((shutdown, task));
    }

    /// Ends the controllers.
    pub async fn stop(&mut self) {
        if let Some((shutdown, task)) = self.running.take() {
            shutdown.cancel();
            in_time("the controllers end", task).await.expect("they did not panic");
        }
    }

    /// Creates an object.
    pub async fn create(&self, path: &str, object: Value) -> Value {
        self.http.post(path, &object).await.expect(201)
    }

    /// Waits until what is at a path is as it should be; nothing there is `null`.
    pub async fn until(&self, what: &str, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let last = parking_lot::Mutex::new(Value::Null);
        let found = tokio::time::timeout(testing::PATIENCE - std::time::Duration::from_secs(1), async {
            eventually(what, || async {
                let answer = self.http.get(path).await;
                let found = if answer.code == 404 { Value::Null } else { answer.expect(200) };
                *last.lock() = found.clone();
                is_so(&found).then_some(found)
            })
            .await
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("{what}, in vain; at last {path} was {}", last.lock()),
        }
    }

    /// Waits until there is nothing at a path.
    pub async fn gone(&self, path: &str) {
        self.until("it goes", path, Value::is_null).await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some((shutdown, _)) = &self.running {
            shutdown.cancel();
        }
    }
}

fn kubeconfig(server: &TestServer) -> PathBuf {
    let read = |file: &str| std::fs::read_to_string(server.data_dir().join(file)).expect("the authority");
    let authority = pki::Authority::load(&read("ca.crt"), &read("ca.key")).expect("the authority");
    let user = "system:kube-controller-manager";
    let identity = authority.client(user, &[], jiff::Timestamp::now()).expect("a certificate");
    let url = format!("https://{}", server.address());
    let text = pki::kubeconfig(&url, &read("ca.crt"), user, &identity.certificate, &identity.key);
    let path = server.data_dir().join("controller-manager.kubeconfig");
    std::fs::write(&path, text).expect("write the kubeconfig");
    path
}
