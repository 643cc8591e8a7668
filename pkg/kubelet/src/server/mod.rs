//! The kubelet's own HTTPS API, as upstream's: what `kubectl logs`, `exec`, `attach`, `cp`, `port-forward` and `top`
//! come down to on the node.
//!
//! ```text
//! apiserver ── TLS ──> identity (who, may they) ──> route ─┬─ logs    files in CRI format, followed by inotify
//!                                                          ├─ node_logs  files of the node's own
//!                                                          ├─ stream  WebSocket <──> PodProvider::exec, attach
//!                                                          ├─ forward WebSocket, SPDY <──> a port in the pod's network
//!                                                          └─ stats   PodProvider::usage ──> summary, metrics
//! ```
//!
//! It reads what the provider of pods knows and never changes a pod. Everybody but `system:masters` is asked
//! about at the apiserver; nobody is anonymous.

mod answer;
mod connections;
mod forward;
mod identity;
mod logs;
mod node_logs;
mod pods;
mod route;
mod samples;
mod stats;
mod stream;
mod summary;
mod tls;

use crate::provider::PodProvider;
use daemon::ConnectionLimits;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use logs::{Options as LogQuery, Since, container_log};
pub use tls::{Serving, TlsError};

/// The port that upstream's kubelet listens on.
pub const PORT: u16 = 10250;

/// Says whether pods are looked after; an error where they have not been for too long.
pub type Health = dyn Fn() -> Result<(), String> + Send + Sync;

/// How to serve.
pub struct Config {
    /// This node.
    pub node_name: String,
    /// The certificate to show.
    pub serving: Serving,
    /// Who is asked about tokens and permissions; without one only client certificates of `system:masters` get in.
    pub client: Option<kube::Client>,
    /// Whether pods are looked after.
    pub health: Arc<Health>,
    /// The configuration, as `/configz` shows it under `kubeletconfig`.
    pub configz: Value,
    /// A stream on which nothing happens for this long is ended; upstream's is four hours.
    pub idle_timeout: Duration,
    /// The node's own logs, as `/logs/` shows them.
    pub logs: PathBuf,
    /// How many connections there are, and how long each may keep the kubelet waiting.
    pub connections: ConnectionLimits,
}

impl Config {
    /// The defaults.
    pub fn new(node_name: impl Into<String>, serving: Serving, client: Option<kube::Client>) -> Config {
        Config {
            node_name: node_name.into(),
            serving,
            client,
            health: Arc::new(|| Ok(())),
            configz: Value::Null,
            idle_timeout: Duration::from_secs(4 * 60 * 60),
            logs: PathBuf::from("/var/log"),
            connections: ConnectionLimits { most: 2048, ..ConnectionLimits::default() },
        }
    }
}

/// What all requests share.
pub(crate) struct Server {
    node_name: String,
    provider: Arc<dyn PodProvider>,
    health: Arc<Health>,
    configz: Value,
    identity: identity::Identity,
    samples: samples::Samples,
    idle_timeout: Duration,
    logs: PathBuf,
    connections: ConnectionLimits,
    /// Logs that are followed and streams that were upgraded.
    streams: TaskTracker,
    /// Cancelled when they are to end.
    shutdown: CancellationToken,
}

/// Serves until `shutdown` is cancelled; streams that are open then end.
pub async fn run(
    config: Config,
    listener: TcpListener,
    provider: Arc<dyn PodProvider>,
    shutdown: CancellationToken,
) {
    let server = Arc::new(Server {
        identity: identity::Identity::new(config.client, config.node_name.clone()),
        node_name: config.node_name,
        provider,
        health: config.health,
        configz: config.configz,
        samples: samples::Samples::default(),
        idle_timeout: config.idle_timeout,
        logs: config.logs,
        connections: config.connections,
        streams: TaskTracker::new(),
        shutdown,
    });
    connections::serve(server, config.serving, listener).await;
}
