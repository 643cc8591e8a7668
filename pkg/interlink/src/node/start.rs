//! Puts a virtual node together: from the kubelet's own flags and InterLinkConfig.yaml to a kubelet with this provider.

use super::VirtualNode;
use super::credential::Handover;
use super::link::Link;
use crate::caller::Caller;
use crate::config::{Config, ConfigError, read_size};
use crate::secure::SecureError;
use client::Recorder;
use k8s_openapi::api::core::v1::Taint;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubelet::config::ApiConfig;
use kubelet::host::Capacity;
use parking_lot::{Mutex, RwLock};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const TAINT: &str = "virtual-node.interlink/no-schedule";
const LABEL: (&str, &str) = ("virtual-node.interlink/type", "virtual-kubelet");
const IN_POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const USER_AGENT: &str = concat!("kubelet/v1.35.0 minik8s/", env!("CARGO_PKG_VERSION"));

/// Why a virtual node does not start, or has ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Tokens and certificates.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// It needs an apiserver.
    #[error("reach the apiserver")]
    Client(#[from] client::ConnectError),
    /// The kubelet itself.
    #[error(transparent)]
    Kubelet(#[from] kubelet::Error),
}

/// What a virtual node is told beside its kubelet.
#[derive(Debug, Clone, Default)]
pub struct NodeOptions {
    /// InterLinkConfig.yaml; none: where the environment says.
    pub config: Option<PathBuf>,
    /// How whoever runs the pods reaches the apiserver, if not as this node does.
    pub server: Option<String>,
}

/// Runs a virtual node until shutdown.
pub async fn run(
    mut kubelet: kubelet::Config,
    options: NodeOptions,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let config = Config::load(options.config.as_deref(), |name| std::env::var(name).ok())?;
    let size = match &config.vk_config {
        Some(path) => read_size(path, &kubelet.node_name)?,
        None => default_size(kubelet.max_pods),
    };
    let kubeconfig = match &kubelet.api {
        ApiConfig::Kubeconfig(path) => Some(path.clone()),
        _ => None,
    };
    if let Some(certificates) = &kubelet.certificates {
        certificates.bootstrap(&shutdown).await?;
    }
    let client = client::connect(kubeconfig.as_deref(), USER_AGENT).await?;
    if kubeconfig.is_none() {
        kubelet.api = ApiConfig::Client(client.clone());
        let in_pod = PathBuf::from(IN_POD).join("ca.crt");
        if let Some(server) = &mut kubelet.server
            && server.client_ca.is_none()
            && in_pod.exists()
        {
            server.client_ca = Some(in_pod);
        }
    }
    let (recorder, sending) =
        Recorder::new(client.clone(), "virtual-kubelet", kubelet.node_name.clone(), shutdown.clone());
    let events = tokio::spawn(sending);
    let url = if config.interlink_url.is_empty() { "http://127.0.0.1" } else { &config.interlink_url };
    let address = kubelet.node_ips.first().map_or_else(own_address, ToString::to_string);
    let node = Arc::new(VirtualNode {
        name: kubelet.node_name.clone(),
        address,
        api: Caller::new(url, config.interlink_port, &config.tls, config.token_file.as_deref())?,
        handover: handover(&client, &config, &kubelet.node_name, kubeconfig.as_deref(), options.server).await,
        client,
        recorder,
        size,
        link: Link::default(),
        table: Mutex::default(),
        asking: Mutex::default(),
        outbox: Arc::default(),
        wake: tokio::sync::Notify::new(),
        is_settled: RwLock::new(false),
        seen: RwLock::default(),
    });
    kubelet.labels.entry(LABEL.0.into()).or_insert_with(|| LABEL.1.into());
    if !kubelet.taints.iter().any(|taint| taint.key == TAINT) {
        kubelet.taints.push(Taint {
            key: TAINT.into(),
            value: Some("true".into()),
            effect: "NoSchedule".into(),
            time_added: None,
        });
    }
    tracing::info!(node = node.name, api = node.api.base(), "virtual node");
    kubelet.provider = Some(node);
    let ended = kubelet::run(kubelet, shutdown).await;
    events.abort();
    Ok(ended?)
}

/// A node that nobody has said anything of, until its pings do.
fn default_size(max_pods: u32) -> Capacity {
    let amounts = [("cpu", "1".to_owned()), ("memory", "1Gi".to_owned()), ("pods", max_pods.to_string())];
    amounts.into_iter().filter_map(|(name, amount)| Some((name.to_owned(), amount.parse().ok()?))).collect()
}

/// The address that packets to elsewhere would leave from. Nothing is sent.
fn own_address() -> String {
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip().to_string())
    });
    outward.unwrap_or_else(|_| "127.0.0.1".into())
}

/// What is handed over to a server of the first generation, if the configuration names an account for it.
async fn handover(
    client: &kube::Client,
    config: &Config,
    node: &str,
    kubeconfig: Option<&Path>,
    server: Option<String>,
) -> Option<Handover> {
    let cluster = match kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).ok()?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.ok()?
        }
        None => kube::Config::incluster().ok()?,
    };
    let authority = match kubeconfig {
        None => std::fs::read_to_string(PathBuf::from(IN_POD).join("ca.crt")).unwrap_or_default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).ok()?;
            pki::Kubeconfig::parse(&text).map(|read| read.ca_pem).unwrap_or_default()
        }
    };
    let account = if config.service_account.is_empty() {
        format!("interlink-{node}")
    } else {
        config.service_account.clone()
    };
    let namespace = if config.namespace.is_empty() {
        client.default_namespace().to_owned()
    } else {
        config.namespace.clone()
    };
    let server = server.unwrap_or_else(|| cluster.cluster_url.to_string());
    Some(Handover::new(
        client.clone(),
        account,
        namespace,
        server.trim_end_matches('/').to_owned(),
        authority,
    ))
}
