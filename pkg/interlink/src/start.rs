//! The flags of the interlink program, and what each of its roles starts with.

use crate::api::{self, Error};
use crate::config::Config;
use crate::plugin::{self, Site, container, slurm};
use clap::{Args, Parser, Subcommand};
use ipnet::IpNet;
use kubelet::eviction::{HARD, Thresholds};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const EXAMPLES: &str = "Examples:
  interlink api --config InterLinkConfig.yaml
      takes pods of virtual nodes (kubelet --provider interlink, or anybody's) and passes them to a plugin
  interlink plugin container --config InterLinkConfig.yaml
      runs them on the containerd of this machine
  interlink plugin slurm --config InterLinkConfig.yaml
      runs them as jobs of the SLURM of this machine";

/// The API server and the plugins of interLink.
#[derive(Debug, Parser)]
#[command(name = "interlink", version, about, after_help = EXAMPLES)]
pub struct Flags {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Take pods of virtual nodes and pass them to a plugin.
    Api(Common),
    /// Run pods that an API server passes on.
    #[command(subcommand)]
    Plugin(Plugin),
}

#[derive(Debug, Subcommand)]
enum Plugin {
    /// On the containerd of this machine.
    Container {
        #[command(flatten)]
        common: Common,
        /// Where containerd listens.
        #[arg(long, default_value = "/run/containerd/containerd.sock")]
        containerd: PathBuf,
        /// The range of pods' addresses.
        #[arg(long, default_value = "10.250.0.0/24")]
        pod_cidr: IpNet,
        /// Pods that run at most.
        #[arg(long, default_value_t = 200)]
        max_pods: u32,
        /// Where things are kept that need not survive a reboot.
        #[arg(long, default_value = "/run/interlink")]
        state_dir: PathBuf,
        /// The cgroup above those of pods.
        #[arg(long, default_value = "")]
        cgroup_root: String,
        /// Pods have to go when less than this is left of the machine.
        #[arg(long, default_value = HARD)]
        eviction_hard: Thresholds,
    },
    /// As jobs of a SLURM site.
    Slurm {
        #[command(flatten)]
        common: Common,
        /// The site in the words of the SLURM node (kubelet --provider slurm), for what InterLinkConfig.yaml does not say.
        #[arg(long)]
        site: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
struct Common {
    /// InterLinkConfig.yaml; without it INTERLINKCONFIGPATH says where it is.
    #[arg(long)]
    config: Option<PathBuf>,
    /// The address to listen on. Others than this machine's own need a token or client certificates.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

impl Common {
    fn load(&self) -> Result<Config, Error> {
        Ok(Config::load(self.config.as_deref(), |name| std::env::var(name).ok())?)
    }
}

/// Runs what the flags say until shutdown.
pub async fn run(flags: Flags, shutdown: CancellationToken) -> Result<(), Error> {
    match flags.role {
        Role::Api(common) => {
            let config = common.load()?;
            let listen = SocketAddr::new(common.address, config.interlink_port);
            api::run(config, listen, shutdown).await
        }
        Role::Plugin(Plugin::Container {
            common,
            containerd,
            pod_cidr,
            max_pods,
            state_dir,
            cgroup_root,
            eviction_hard,
        }) => {
            let config = common.load()?;
            let options = container::ContainerOptions {
                socket: containerd,
                pod_cidr,
                max_pods,
                state_dir,
                cgroup_root,
                eviction_hard,
            };
            let (site, tasks) = container::start(config.data_root()?, &options, &shutdown).await?;
            serve(&config, common.address, site, tasks, shutdown).await
        }
        Role::Plugin(Plugin::Slurm { common, site }) => {
            let config = common.load()?;
            let (site, tasks) = slurm::start(&config, site.as_deref(), &shutdown).await?;
            serve(&config, common.address, site, tasks, shutdown).await
        }
    }
}

async fn serve(
    config: &Config,
    address: IpAddr,
    site: Arc<dyn Site>,
    mut tasks: JoinSet<()>,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let listen = SocketAddr::new(address, config.sidecar_port);
    let served = plugin::serve(config, site, listen, shutdown.clone()).await;
    shutdown.cancel();
    while tasks.join_next().await.is_some() {}
    served
}
