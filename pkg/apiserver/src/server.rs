//! The server as a whole: what all requests share, and its life from start to drained.

use crate::admission::policy::Policies;
use crate::admission::webhook::Webhooks;
use crate::apiservices::ApiServices;
use crate::auth::User;
use crate::budget::Budget;
use crate::config::{Config, EtcdConfig};
use crate::encoding::{Maker, Workers};
use crate::encryption::Keys;
use crate::error::ApiError;
use crate::flowcontrol::FlowControl;
use crate::identity::{self, Auth};
use crate::metrics::ServerMetrics;
use crate::nodes::Usages;
use crate::openapi;
use crate::publish::{NodePasswords, PublisherMetrics};
use crate::registry::Registry;
use crate::{
    account_tokens, aggregated_roles, apiservices, bootstrap, compaction, connections, crds, flowcontrol,
    peers, publish, reseal, storage,
};
use api::{Kind, Value};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use crate::connections::Connection;

/// What all requests share.
pub struct Server {
    /// What it was told.
    pub config: Config,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// The kinds and their caches.
    pub registry: Registry,
    /// Who may do what.
    pub auth: Auth,
    /// Who is asked before something is written.
    pub webhooks: Webhooks,
    /// What is demanded of what is written.
    pub policies: Policies,
    /// What seals secrets.
    pub encryption: Arc<Keys>,
    /// What it counts.
    pub metrics: ServerMetrics,
    /// Memory for bodies of requests, while they come and are worked on.
    pub bodies: Arc<Budget>,
    /// Memory for requests that wait for their answers to be taken.
    pub waiting: Arc<Budget>,
    /// Memory for what is encoded and not yet sent.
    pub encoded: Arc<Budget>,
    /// Who encodes what is not small.
    pub workers: Workers,
    /// What is counted of what is told over Redis.
    pub publisher: Arc<PublisherMetrics>,
    /// The passwords of nodes there.
    pub node_passwords: NodePasswords,
    /// Which requests are worked on now, and which wait.
    pub flows: FlowControl,
    /// OpenAPI documents that were asked for.
    pub documents: openapi::Cache,
    /// What kubelets said of the usage of nodes and pods.
    pub usages: Usages,
    /// Connections to kubelets and pods, and what was upgraded.
    pub streams: TaskTracker,
    /// Cancelled when it is to end.
    pub shutdown: CancellationToken,
    /// Lists of moments before this are not gone on with: what the store has forgotten no cache remembers either, so
    /// that all apiservers of a cluster say the same.
    pub oldest_page: AtomicU64,
    bootstrapped: AtomicBool,
    /// What is served of the definitions, by which of them.
    pub custom_kinds: Mutex<crds::CustomKinds>,
    /// What other servers answer for.
    pub api_services: ApiServices,
}

/// Why a server did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Keys and certificates.
    #[error("prepare keys and certificates in {}", dir.display())]
    Pki {
        /// The data directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: pki::Error,
    },
    /// The store.
    #[error("open the store")]
    Store(#[from] store::Error),
    /// The encryption keys.
    #[error("open the encryption keys")]
    Encryption(#[from] crate::encryption::Error),
    /// A file that was named by a flag.
    #[error("read {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// TLS.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// The socket.
    #[error("listen")]
    Listen(#[source] std::io::Error),
    /// What every cluster has.
    #[error("make the cluster's first objects: {0}")]
    Bootstrap(String),
}

/// Runs a server on a socket until `shutdown` is cancelled and all requests are answered. `ready` is called once it
/// really serves.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: CancellationToken,
    ready: impl FnOnce(&Server),
) -> Result<(), StartError> {
    let address = listener.local_addr().map_err(StartError::Listen)?;
    let credentials = identity::credentials(&config, address)?;
    let store = open_store(&config).await?;
    let mut encryption = Keys::load(config.cert_dir())?;
    if config.rotate_encryption_key {
        encryption.rotate(config.cert_dir())?;
    }
    let encryption = Arc::new(encryption);
    let registry = Registry::start(store.clone(), storage::decoder(encryption.clone())).await?;
    let auth = Auth::new(&config)?;
    let server = Arc::new(Server {
        address,
        store,
        webhooks: Webhooks::new(&registry),
        policies: Policies::new(&registry),
        registry,
        auth,
        encryption,
        metrics: ServerMetrics::default(),
        bodies: Budget::new(config.max_body_bytes()),
        waiting: Budget::new(config.max_waiting_bytes()),
        encoded: Budget::new(config.max_encoded_bytes()),
        workers: Workers::default(),
        publisher: Arc::default(),
        node_passwords: NodePasswords::new(&config)?,
        flows: FlowControl::new(config.max_requests_in_flight + config.max_mutating_requests_in_flight),
        documents: openapi::Cache::new(),
        usages: Usages::default(),
        streams: TaskTracker::new(),
        shutdown: shutdown.clone(),
        oldest_page: AtomicU64::new(0),
        bootstrapped: AtomicBool::new(false),
        custom_kinds: Mutex::default(),
        api_services: ApiServices::default(),
        config,
    });
    let tasks = TaskTracker::new();
    identity::follow(&server, &tasks).await;
    server.catch_up().await.map_err(not_bootstrapped)?;
    crds::load(&server).await.map_err(not_bootstrapped)?;
    bootstrap::run(&server).await.map_err(not_bootstrapped)?;
    // Whoever comes finds it healthy. What could not be written is written later.
    apiservices::register(&server, &credentials).await;
    let url = server.url();
    credentials
        .pki
        .write_admin_kubeconfig(&url)
        .map_err(|source| StartError::Pki { dir: server.config.cert_dir().to_owned(), source })?;
    server.bootstrapped.store(true, Relaxed);
    tasks.spawn(bootstrap::keep_default_accounts(server.clone(), shutdown.clone()));
    let authority = credentials.pki.authority.pem().to_owned();
    tasks.spawn(account_tokens::keep(server.clone(), authority, shutdown.clone()));
    tasks.spawn(peers::keep(server.clone(), shutdown.clone()));
    tasks.spawn(publish::keep(server.clone(), shutdown.clone()));
    tasks.spawn(reseal::run(server.clone()));
    tasks.spawn(aggregated_roles::keep(server.clone(), shutdown.clone()));
    tasks.spawn(flowcontrol::keep(server.clone(), shutdown.clone()));
    tasks.spawn(flowcontrol::lend(server.clone(), shutdown.clone()));
    tasks.spawn(crds::keep(server.clone(), shutdown.clone()));
    tasks.spawn(apiservices::keep(server.clone(), credentials.clone(), shutdown.clone()));
    tasks.spawn(compaction::keep(server.clone(), shutdown.clone()));
    connections::serve(server, credentials, listener, tasks, ready).await
}

fn not_bootstrapped(error: ApiError) -> StartError {
    StartError::Bootstrap(error.message)
}

async fn open_store(config: &Config) -> Result<Arc<dyn Store>, StartError> {
    match &config.etcd {
        Some(etcd) => Ok(Arc::new(store::Etcd::connect(&etcd.servers, tls(etcd)?).await?)),
        None => {
            let dir = config.data_dir.join("store");
            let opened = tokio::task::spawn_blocking(move || store::Embedded::open(&dir)).await;
            Ok(Arc::new(opened.expect("opening does not panic")?))
        }
    }
}

fn tls(etcd: &EtcdConfig) -> Result<Option<store::Tls>, StartError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| StartError::File { path: path.to_owned(), source })
    };
    let Some(ca) = &etcd.ca_file else { return Ok(None) };
    let identity = match (&etcd.cert_file, &etcd.key_file) {
        (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
        _ => None,
    };
    Ok(Some(store::Tls { ca: read(ca)?, identity }))
}

impl Server {
    /// Where clients on this machine reach it.
    pub fn url(&self) -> String {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        format!("https://{}", SocketAddr::new(ip, self.address.port()))
    }

    /// Who encodes for this user what is not small.
    pub fn maker(&self, user: &Arc<User>) -> Maker {
        Maker::new(self.workers.clone(), self.encoded.clone(), user)
    }

    /// Whether the first objects are there.
    pub fn is_bootstrapped(&self) -> bool {
        self.bootstrapped.load(Relaxed)
    }

    /// An object of a built-in kind as the cache shows it.
    pub fn lookup(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.registry.built_in(group, plural);
        serde_json::from_slice(resource.cache.get(namespace, name)?.as_json()).ok()
    }

    /// The kind of a built-in resource.
    pub fn kind(&self, group: &str, plural: &str) -> Arc<Kind> {
        self.registry.built_in(group, plural).kind.clone()
    }
}
