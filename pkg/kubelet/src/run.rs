//! Puts a kubelet together and runs it.

use crate::config::{ApiConfig, Config, NetworkConfig, RuntimeConfig};
use crate::error::Error;
use crate::events::Events;
use crate::eviction::Evictions;
use crate::health::Pulse;
use crate::host::{Host, make_private};
use crate::image_access::ImageAccess;
use crate::image_gc::{ImageGc, Thresholds};
use crate::isolation::{AppArmor, Isolation};
use crate::local::{self, LocalNode};
use crate::log_rotation;
use crate::node::{Claimant, NodeAgent, Settings};
use crate::objects::Objects;
use crate::plan::NodeFacts;
use crate::pod_network::{self, NodeNetwork, PodNetwork};
use crate::pods::{Known, Pods};
use crate::provider::PodProvider;
use crate::providers::slurm::{self, SlurmNode};
use crate::runtime::Runtime;
use crate::runtime::containerd::{self, Containerd};
use crate::serve;
use crate::server;
use crate::services::Services;
use crate::shared::Shared;
use crate::sources;
use crate::volumes::{self, Volumes};
use kube::Client;
use parking_lot::RwLock;
use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Pods that a source has told of and nobody has taken up yet.
const TOLD: usize = 256;

/// Runs until the token is cancelled. Pods stay as they are: the next kubelet takes them up.
pub async fn run(mut config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let shutdown = shutdown.child_token();
    if let Some(certificates) = &config.certificates {
        certificates.bootstrap(&shutdown).await?;
    }
    let client = client(&config).await?;
    let mut tasks: JoinSet<()> = JoinSet::new();
    let events = match &client {
        None => Events::default(),
        Some(client) => {
            let (recorder, send) =
                client::Recorder::new(client.clone(), "kubelet", config.node_name.clone(), shutdown.clone());
            tasks.spawn(send);
            Events::new(Some(recorder))
        }
    };
    let addresses = addresses(&config);
    let listener = match &config.server {
        Some(server) => Some(serve::bind(server).await?),
        None => None,
    };
    let provider: Arc<dyn PodProvider> = match (&config.provider, &config.slurm) {
        (Some(given), _) => given.clone(),
        (None, Some(file)) => slurm_site(&config, file, &client, &events, &shutdown).await?,
        (None, None) => {
            let parts = Parts { client: &client, events: &events, addresses: &addresses };
            local_node(&config, parts, &mut tasks, &shutdown).await?
        }
    };
    if config.slurm.is_some() {
        config.taints.extend(slurm::taints());
    }
    let taken = CancellationToken::new();
    let kubelet = Kubelet { config, client, events, addresses, provider, taken: taken.clone() };
    kubelet.start(listener, &mut tasks, &shutdown)?;
    tracing::info!(node = kubelet.config.node_name, "kubelet runs");
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = taken.cancelled() => shutdown.cancel(),
    }
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a part of the kubelet ended badly");
        }
    }
    if taken.is_cancelled() { Err(Error::Taken(kubelet.config.node_name)) } else { Ok(()) }
}

/// What is the same whatever runs the pods.
struct Kubelet {
    config: Config,
    client: Option<Client>,
    events: Events,
    addresses: Vec<String>,
    provider: Arc<dyn PodProvider>,
    /// Cancelled when another kubelet has the node.
    taken: CancellationToken,
}

impl Kubelet {
    /// Starts everything: the sources of pods, the statuses, the node, its API, and the provider itself.
    fn start(
        &self,
        listener: Option<TcpListener>,
        tasks: &mut JoinSet<()>,
        shutdown: &CancellationToken,
    ) -> Result<(), Error> {
        let Kubelet { config, client, events, provider, .. } = self;
        let (tell, told) = mpsc::channel(TOLD);
        let port = listener.as_ref().and_then(|at| at.local_addr().ok()).map_or(0, |at| at.port());
        let mut pods = Pods {
            provider: provider.clone(),
            statuses: Arc::default(),
            node: watch::channel(None).1,
            node_name: config.node_name.clone(),
            client: client.clone(),
            awaited: BTreeSet::new(),
            node_changed: Arc::default(),
            pulse: Arc::default(),
            known: Known::default(),
        };
        if let Some(path) = config.manifests.clone() {
            pods.awaited.insert("files");
            let folder = sources::files::Folder::new(path, config.node_name.clone(), events.clone())?;
            tasks.spawn(folder.run(tell.clone(), shutdown.clone()));
        }
        if let Some(client) = client {
            pods.awaited.insert("api");
            let (node, shutdown_of_source) = (config.node_name.clone(), shutdown.clone());
            let pods_of_node = sources::api::run(client.clone(), node, tell.clone(), shutdown_of_source);
            let (claimed, mut is_claimed) = watch::channel(!config.register);
            tasks.spawn(async move {
                // Pods of a node are run by the one kubelet that has it.
                if is_claimed.wait_for(|is| *is).await.is_ok() {
                    pods_of_node.await;
                }
            });
            tasks.spawn(pods.statuses.clone().run(client.clone(), shutdown.clone()));
            if let Some(certificates) = config.certificates.clone().filter(|own| own.rotate) {
                tasks.spawn(certificates.renew(client.clone(), shutdown.clone()));
            }
            if config.register {
                let agent = NodeAgent {
                    settings: settings(config, &self.addresses, port),
                    client: client.clone(),
                    provider: provider.clone(),
                    events: events.clone(),
                    node: watch::channel(None).0,
                    changed: pods.node_changed.clone(),
                    claimant: claimant(config),
                    claimed,
                    taken: self.taken.clone(),
                };
                pods.node = agent.node.subscribe();
                tasks.spawn(agent.run(shutdown.clone()));
            }
        }
        if let (Some(listener), Some(server)) = (listener, &config.server) {
            let serving = serve::serving(config, server, &self.addresses)?;
            let mut api = server::Config::new(config.node_name.clone(), serving, client.clone());
            api.health = health(pods.pulse.clone(), provider.clone());
            api.configz = serve::shown(config);
            tasks.spawn(server::run(api, listener, provider.clone(), shutdown.clone()));
        }
        tasks.spawn(provider.clone().run(shutdown.clone()));
        tasks.spawn(pods.run(told, shutdown.clone()));
        Ok(())
    }
}

/// A SLURM site, whose jobs are the node's pods.
async fn slurm_site(
    config: &Config,
    file: &Path,
    client: &Option<Client>,
    events: &Events,
    shutdown: &CancellationToken,
) -> Result<Arc<SlurmNode>, Error> {
    let site = slurm::SiteConfig::read(file)?;
    let folder = config.paths.root.join("slurm").join(&config.node_name);
    let failed = |source| Error::File { doing: "open", path: folder.clone(), source };
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let parts = slurm::NodeParts {
        site: slurm::SlurmSite::open(site, &SlurmNode::sockets(&folder)).await.map_err(failed)?,
        folder: folder.clone(),
        node_name: config.node_name.clone(),
        objects: Arc::new(slurm::ApiObjects(client.clone())),
        events: events.clone(),
    };
    SlurmNode::new(parts, shutdown.clone()).map_err(failed)
}

/// Those that run no containers of this machine have no disk to remember by.
fn claimant(config: &Config) -> Claimant {
    match config.simulated.is_some() || config.provider.is_some() {
        true => Claimant::named(&config.node_name),
        // A machine may have a kubelet of its own beside those of sites.
        false if config.slurm.is_some() => {
            Claimant::of(&config.paths.root.join("slurm").join(&config.node_name))
        }
        false => Claimant::of(&config.paths.root),
    }
}

fn health(pulse: Arc<Pulse>, provider: Arc<dyn PodProvider>) -> Arc<server::Health> {
    Arc::new(move || {
        if pulse.is_stuck(Instant::now()) {
            return Err("sync Loop took longer than expected".into());
        }
        provider.health()
    })
}

/// What the local node is made of.
struct Parts<'a> {
    client: &'a Option<Client>,
    events: &'a Events,
    addresses: &'a [String],
}

/// This machine as a provider of pods for whoever is not a kubelet, and what has to run beside it. No apiserver is asked.
pub async fn local(
    config: &Config,
    shutdown: &CancellationToken,
) -> Result<(Arc<dyn PodProvider>, JoinSet<()>), Error> {
    let mut tasks = JoinSet::new();
    let parts = Parts { client: &None, events: &Events::default(), addresses: &addresses(config) };
    let node = local_node(config, parts, &mut tasks, shutdown).await?;
    Ok((node, tasks))
}

/// This machine, with what goes on beside its pods: logs that grow, images that nobody uses, pods that have to go.
async fn local_node(
    config: &Config,
    parts: Parts<'_>,
    tasks: &mut JoinSet<()>,
    shutdown: &CancellationToken,
) -> Result<Arc<LocalNode>, Error> {
    let Parts { client, events, addresses } = parts;
    if config.simulated.is_none() {
        lay_out(&config.paths.root)?;
    }
    let services = Arc::new(Services::new(client.is_some()));
    let host = config.simulated.is_none().then(|| host(config, client, &services, addresses, shutdown));
    let shared = Arc::new(Shared {
        runtime: runtime(config)?,
        network: network(config).await?,
        events: events.clone(),
        outbox: Arc::default(),
        facts: RwLock::new(NodeFacts {
            addresses: addresses.to_vec(),
            runtime: "containerd".into(),
            ..NodeFacts::default()
        }),
        pressure: RwLock::default(),
        room: tokio::sync::Notify::new(),
        host,
    });
    let own = local::Settings {
        max_pods: config.max_pods,
        isolation: Isolation::of_this_machine(&config.allowed_unsafe_sysctls),
        eviction: config.eviction_hard.clone(),
        root: config.paths.root.clone(),
        has_ranges: !config.pod_cidrs.is_empty(),
        machine: config.simulated.clone(),
    };
    let node = LocalNode::new(shared.clone(), own, shutdown.clone());
    if shared.host.is_none() {
        return Ok(node);
    }
    if let Some(client) = client.clone() {
        let shutdown = shutdown.clone();
        tasks.spawn(async move { services.run(client, shutdown).await });
    }
    tasks.spawn(pod_network::keep(shared.network.clone(), shutdown.clone()));
    let limits = log_rotation::Limits { bytes: config.log_max_bytes, files: config.log_max_files };
    tasks.spawn(log_rotation::run(shared.clone(), node.table.clone(), limits, shutdown.clone()));
    let images = Arc::new(ImageGc {
        runtime: shared.runtime.clone(),
        access: shared.host.as_ref().map(|host| host.image_access.clone()),
        events: shared.events.clone(),
        node_name: config.node_name.clone(),
        root: config.paths.root.clone(),
        thresholds: Thresholds { high: config.image_gc_high_percent, low: config.image_gc_low_percent },
    });
    tasks.spawn(images.clone().run(shutdown.clone()));
    let evictions = Evictions {
        shared,
        table: node.table.clone(),
        node_name: config.node_name.clone(),
        root: config.paths.root.clone(),
        thresholds: config.eviction_hard.clone(),
        stays: config.pressure_stays.try_into().unwrap_or(jiff::SignedDuration::MAX),
        images,
    };
    tasks.spawn(evictions.run(shutdown.clone()));
    Ok(node)
}

/// The folder of all that pods have: no other user of the node gets in, and mounts can cross from it into containers.
fn lay_out(root: &Path) -> Result<(), Error> {
    let failed = |doing| move |source| Error::File { doing, path: root.to_owned(), source };
    make_private(root).and_then(|()| make_private(&root.join("pods"))).map_err(failed("make"))?;
    volumes::share(root).map_err(failed("share the mounts below"))
}

fn runtime(config: &Config) -> Result<Arc<dyn Runtime>, Error> {
    match &config.runtime {
        RuntimeConfig::Given(runtime) => Ok(runtime.clone()),
        RuntimeConfig::Containerd { socket } => Ok(Arc::new(containerd(socket, config)?)),
    }
}

async fn client(config: &Config) -> Result<Option<Client>, Error> {
    match &config.api {
        ApiConfig::None => Ok(None),
        ApiConfig::Client(client) => Ok(Some(client.clone())),
        ApiConfig::Kubeconfig(path) => {
            let client =
                client::connect(Some(path), concat!("kubelet/v1.35.0 minik8s/", env!("CARGO_PKG_VERSION")));
            client.await.map(Some).map_err(|error| Error::Client(error.into()))
        }
    }
}

async fn network(config: &Config) -> Result<Arc<dyn PodNetwork>, Error> {
    match &config.network {
        NetworkConfig::Given(network) => Ok(network.clone()),
        NetworkConfig::Node(node) => {
            let network =
                network::Network::new((**node).clone()).map_err(|error| Error::Network(error.into()))?;
            let network = NodeNetwork::new(network);
            if !config.pod_cidrs.is_empty() {
                let set = network.set_ranges(&config.pod_cidrs).await;
                set.map_err(|error| Error::Network(error.into()))?;
            }
            Ok(Arc::new(network))
        }
    }
}

fn host(
    config: &Config,
    client: &Option<Client>,
    services: &Arc<Services>,
    addresses: &[String],
    shutdown: &CancellationToken,
) -> Host {
    Host {
        paths: config.paths.clone(),
        node_name: config.node_name.clone(),
        client: client.clone(),
        objects: Arc::new(Objects::new(client.clone(), shutdown.clone())),
        services: services.clone(),
        dns: config.dns.clone(),
        cgroup_root: config.cgroup_root.clone(),
        allocatable: RwLock::default(),
        capacity: RwLock::default(),
        addresses: RwLock::new(addresses.to_vec()),
        pod_pids_limit: config.pod_pids_limit,
        volumes: Volumes::default(),
        app_armor: AppArmor::of_this_machine(),
        image_access: Arc::new(ImageAccess::new(&config.paths.root, config.image_verification.clone())),
    }
}

fn settings(config: &Config, addresses: &[String], port: u16) -> Settings {
    Settings {
        name: config.node_name.clone(),
        addresses: addresses.to_vec(),
        hostname: config.hostname.clone(),
        labels: config.labels.clone(),
        taints: config.taints.clone(),
        port,
        pod_cidrs: config.pod_cidrs.clone(),
    }
}

/// The node's addresses: as given, or the one that packets to elsewhere would leave from. Nothing is sent.
fn addresses(config: &Config) -> Vec<String> {
    if !config.node_ips.is_empty() {
        return config.node_ips.iter().map(ToString::to_string).collect();
    }
    let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip())
    });
    // Without a default route there is at least the machine itself.
    vec![outward.unwrap_or(IpAddr::from([127, 0, 0, 1])).to_string()]
}

/// containerd, as this node uses it.
pub(crate) fn containerd(socket: &std::path::Path, config: &Config) -> Result<Containerd, Error> {
    let defaults = containerd::Config::default();
    let runtime = Containerd::new(containerd::Config {
        socket: socket.to_owned(),
        root_dir: config.paths.root.join("runtime"),
        state_dir: config.state_dir.clone(),
        ..defaults
    });
    runtime.map_err(Error::Runtime)
}
