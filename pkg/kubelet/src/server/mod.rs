//! The kubelet's own HTTPS API, as upstream's: what `kubectl logs`, `exec`, `attach`, `cp`, `port-forward` and `top`
//! come down to on the node.
//!
//! ```text
//! apiserver ── TLS ──> identity (who, may they) ──> route ─┬─ logs    files in CRI format, followed by inotify
//!                                                          ├─ stream  WebSocket <──> Runtime::exec, attach
//!                                                          ├─ forward WebSocket, SPDY <──> a port in the pod's network
//!                                                          └─ stats   Runtime::usage ──> summary, metrics
//! ```
//!
//! It reads what the kubelet and the runtime know and never changes a pod. Everybody but `system:masters` is asked
//! about at the apiserver; nobody is anonymous.

mod answer;
mod connections;
mod forward;
mod identity;
mod logs;
mod pods;
mod route;
mod samples;
mod spdy;
mod stats;
mod stream;
mod summary;
mod tls;

use crate::runtime::Runtime;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use tls::{Serving, TlsError};

/// The port that upstream's kubelet listens on.
pub const PORT: u16 = 10250;

/// What the kubelet knows of its pods.
pub trait Pods: Send + Sync + 'static {
    /// All pods of this node, static ones too, with the status that the kubelet would report now.
    fn pods(&self) -> Vec<Arc<Pod>>;

    /// The pod of that name. Its uid is the one that the runtime knows it by.
    fn pod(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let is_it = |pod: &Arc<Pod>| {
            pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
        };
        self.pods().into_iter().find(is_it)
    }

    /// An error where the loop that looks after the pods has not come round for too long.
    fn sync_loop(&self) -> Result<(), String>;

    /// The configuration, as `/configz` shows it under `kubeletconfig`.
    fn config(&self) -> Value;
}

/// How to serve.
pub struct Config {
    /// This node.
    pub node_name: String,
    /// The certificate to show.
    pub serving: Serving,
    /// Who is asked about tokens and permissions; without one only client certificates of `system:masters` get in.
    pub client: Option<kube::Client>,
    /// A stream on which nothing happens for this long is ended; upstream's is four hours.
    pub idle_timeout: Duration,
}

impl Config {
    /// The defaults.
    pub fn new(node_name: impl Into<String>, serving: Serving, client: Option<kube::Client>) -> Config {
        Config {
            node_name: node_name.into(),
            serving,
            client,
            idle_timeout: Duration::from_secs(4 * 60 * 60),
        }
    }
}

/// What all requests share.
pub(crate) struct Server {
    node_name: String,
    runtime: Arc<dyn Runtime>,
    pods: Arc<dyn Pods>,
    identity: identity::Identity,
    samples: samples::Samples,
    idle_timeout: Duration,
    /// Logs that are followed and streams that were upgraded.
    streams: TaskTracker,
    /// Cancelled when they are to end.
    shutdown: CancellationToken,
}

/// Serves until `shutdown` is cancelled; streams that are open then end.
pub async fn run(
    config: Config,
    listener: TcpListener,
    runtime: Arc<dyn Runtime>,
    pods: Arc<dyn Pods>,
    shutdown: CancellationToken,
) {
    let server = Arc::new(Server {
        identity: identity::Identity::new(config.client, config.node_name.clone()),
        node_name: config.node_name,
        runtime,
        pods,
        samples: samples::Samples::default(),
        idle_timeout: config.idle_timeout,
        streams: TaskTracker::new(),
        shutdown,
    });
    connections::serve(server, config.serving, listener).await;
}
