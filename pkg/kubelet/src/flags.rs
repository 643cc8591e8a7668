//! The flags of the kubelet, under upstream's names.

use crate::admission::is_label;
use crate::certificates::Certificates;
use crate::config::{ApiConfig, Config, NetworkConfig, RuntimeConfig, ServerConfig};
use crate::eviction::{HARD, Thresholds};
use crate::image_access::ImageVerification;
use crate::isolation::is_namespaced;
use clap::Parser;
use ipnet::IpNet;
use k8s_openapi::api::core::v1::Taint;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const CONTAINERD: &str = "containerd";
const SLURM: &str = "slurm";
const INTERLINK: &str = "interlink";
const NEVER: &str = "NeverVerify";
const NEVER_PRELOADED: &str = "NeverVerifyPreloadedImages";
const NEVER_LISTED: &str = "NeverVerifyAllowlistedImages";
const ALWAYS: &str = "AlwaysVerify";

const EXAMPLES: &str = "Examples:
  kubelet --kubeconfig /etc/kubernetes/kubelet.conf
      registers this machine as a node and runs the pods that are bound to it
  kubelet --pod-manifest-path /etc/kubernetes/manifests
      runs the pods of a folder, without any cluster
  kubelet --kubeconfig /etc/kubernetes/slurm.conf --hostname-override hpc --provider slurm --config site.yaml
      makes a SLURM site a node, whose pods are its jobs
  kubelet --kubeconfig /etc/kubernetes/vk.conf --hostname-override vk --provider interlink --config InterLinkConfig.yaml
      makes a node of whatever an interLink API has behind it";

/// Runs the pods of one node.
#[derive(Debug, Parser)]
#[command(name = "kubelet", version, about, after_help = EXAMPLES)]
pub struct Flags {
    /// How to reach the apiserver; without it only static pods run.
    #[arg(long)]
    pub kubeconfig: Option<PathBuf>,
    /// A kubeconfig to ask for a certificate with, if the one of --kubeconfig does not exist yet.
    #[arg(long, requires = "kubeconfig")]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Ask for a new client certificate before the present one ends.
    #[arg(long)]
    pub rotate_certificates: bool,
    /// What runs the pods: this machine, or a SLURM site or an interLink API that --config describes.
    #[arg(long, default_value = "containerd", value_parser = [CONTAINERD, SLURM, INTERLINK])]
    pub provider: String,
    /// The description of the site with --provider slurm; InterLinkConfig.yaml with --provider interlink, which is
    /// looked for where INTERLINKCONFIGPATH says if it is not given.
    #[arg(long, required_if_eq("provider", SLURM))]
    pub config: Option<PathBuf>,
    /// How an interLink API of the first generation is told to reach this cluster, if not as this node does.
    #[arg(long)]
    pub interlink_apiserver: Option<String>,
    /// A folder of pod manifests, watched.
    #[arg(long)]
    pub pod_manifest_path: Option<PathBuf>,
    /// The node's name, instead of the host name.
    #[arg(long)]
    pub hostname_override: Option<String>,
    /// The node's addresses, at most one per family.
    #[arg(long, value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Labels of the node: key=value.
    #[arg(long, value_delimiter = ',', value_parser = label)]
    pub node_labels: Vec<(String, String)>,
    /// Taints that the node is registered with: key=value:effect.
    #[arg(long, value_delimiter = ',', value_parser = taint)]
    pub register_with_taints: Vec<Taint>,
    /// Register the node with the apiserver.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub register_node: bool,
    /// Where containerd listens.
    #[arg(long, default_value = "unix:///run/containerd/containerd.sock")]
    pub container_runtime_endpoint: String,
    /// Where volumes and other things of pods are kept.
    #[arg(long, default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Where things are kept that need not survive a reboot.
    #[arg(long, default_value = "/run/kubelet")]
    pub state_dir: PathBuf,
    /// Where the logs of pods are kept.
    #[arg(long, default_value = "/var/log/pods")]
    pub pod_logs_dir: PathBuf,
    /// Where links to the logs of containers are kept.
    #[arg(long, default_value = "/var/log/containers")]
    pub container_logs_dir: PathBuf,
    /// The address to serve the node's API on.
    #[arg(long, default_value = "0.0.0.0")]
    pub address: IpAddr,
    /// The port to serve the node's API on; 0 takes a free one.
    #[arg(long, default_value_t = 10250)]
    pub port: u16,
    /// Not served: there is no way to ask without saying who asks.
    #[arg(long, default_value_t = 0, value_parser = no_port)]
    pub read_only_port: u16,
    /// The certificate of the node's API; made here if not given.
    #[arg(long, requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Its key.
    #[arg(long, requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Where certificates are kept.
    #[arg(long, default_value = "/var/lib/kubelet/pki")]
    pub cert_dir: PathBuf,
    /// The CA of clients' certificates; the kubeconfig's if not given.
    #[arg(long)]
    pub client_ca_file: Option<PathBuf>,
    /// The cluster's DNS servers.
    #[arg(long, value_delimiter = ',')]
    pub cluster_dns: Vec<IpAddr>,
    /// The cluster's domain.
    #[arg(long, default_value = "cluster.local")]
    pub cluster_domain: String,
    /// The resolver's configuration that pods inherit from the node.
    #[arg(long, default_value = "/etc/resolv.conf")]
    pub resolv_conf: PathBuf,
    /// The range of pod addresses, where no apiserver gives one.
    #[arg(long, value_delimiter = ',')]
    pub pod_cidr: Vec<IpNet>,
    /// Where CNI configurations are looked for.
    #[arg(long, default_value = "/etc/cni/net.d")]
    pub cni_conf_dir: PathBuf,
    /// Pods that the node runs at most.
    #[arg(long, default_value_t = 110)]
    pub max_pods: u32,
    /// Processes of a pod at most; -1: no limit.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    pub pod_max_pids: i64,
    /// Kernel parameters that pods may set beside the safe ones: names, or what they begin with and `*`.
    #[arg(long, value_delimiter = ',', value_parser = sysctl)]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// The cgroup above those of pods.
    #[arg(long, default_value = "")]
    pub cgroup_root: String,
    /// A log file is rotated when it has this size.
    #[arg(long, default_value = "10Mi", value_parser = bytes)]
    pub container_log_max_size: u64,
    /// Log files of a container at most.
    #[arg(long, default_value_t = 5)]
    pub container_log_max_files: usize,
    /// Images are removed when the disk is fuller than this, in percent.
    #[arg(long, default_value_t = 85, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub image_gc_high_threshold: u64,
    /// ... until it is less full than this.
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub image_gc_low_threshold: u64,
    /// Of which images it is verified that a pod has the credentials that brought them.
    #[arg(long, default_value = "NeverVerifyPreloadedImages", value_parser = [NEVER, NEVER_PRELOADED, NEVER_LISTED, ALWAYS])]
    pub image_pull_credentials_verification_policy: String,
    /// Images that need no credentials with NeverVerifyAllowlistedImages: names without a tag, or what is before `/*`.
    #[arg(long, value_delimiter = ',')]
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Pods have to go when less than this is left of the node; said twice, the last counts.
    #[arg(long, default_value = HARD, overrides_with = "eviction_hard")]
    pub eviction_hard: Thresholds,
    /// How long the node says that it is short of something after it has ceased to be, in seconds.
    #[arg(long, default_value = "5m", value_parser = duration)]
    pub eviction_pressure_transition_period: Duration,
}

impl Flags {
    /// Pods run behind an interLink API.
    pub fn is_interlink(&self) -> bool {
        self.provider == INTERLINK
    }
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Config {
        let hostname = nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned());
        let hostname = flags.hostname_override.clone().unwrap_or_else(|| hostname.unwrap_or_default());
        let hostname = hostname.trim().to_lowercase();
        let defaults = Config::new(&hostname);
        let socket = flags.container_runtime_endpoint;
        let socket = socket.strip_prefix("unix://").unwrap_or(&socket).into();
        let network = network::Config {
            state_dir: flags.root_dir.join("network"),
            netns_dir: flags.state_dir.join("netns"),
            cni_conf_dir: flags.cni_conf_dir,
            ..network::Config::default()
        };
        let certificates = flags.kubeconfig.as_ref().map(|kubeconfig| Certificates {
            node_name: hostname.clone(),
            dir: flags.cert_dir.clone(),
            kubeconfig: kubeconfig.clone(),
            bootstrap: flags.bootstrap_kubeconfig,
            rotate: flags.rotate_certificates,
        });
        let certificate = flags.tls_cert_file.zip(flags.tls_private_key_file);
        Config {
            node_ips: flags.node_ip,
            labels: flags.node_labels.into_iter().collect(),
            taints: flags.register_with_taints,
            register: flags.register_node,
            api: flags.kubeconfig.map_or(ApiConfig::None, ApiConfig::Kubeconfig),
            certificates,
            manifests: flags.pod_manifest_path,
            slurm: flags.config.filter(|_| flags.provider == SLURM),
            runtime: RuntimeConfig::Containerd { socket },
            network: NetworkConfig::Node(Box::new(network)),
            pod_cidrs: flags.pod_cidr,
            paths: crate::host::Paths {
                root: flags.root_dir,
                pod_logs: flags.pod_logs_dir,
                container_logs: flags.container_logs_dir,
            },
            state_dir: flags.state_dir.join("runtime"),
            dns: crate::host::Dns {
                servers: flags.cluster_dns.iter().map(ToString::to_string).collect(),
                domain: flags.cluster_domain,
                resolv_conf: flags.resolv_conf,
            },
            cgroup_root: flags.cgroup_root,
            max_pods: flags.max_pods,
            pod_pids_limit: flags.pod_max_pids.max(0),
            allowed_unsafe_sysctls: flags.allowed_unsafe_sysctls,
            image_verification: match flags.image_pull_credentials_verification_policy.as_str() {
                NEVER => ImageVerification::Never,
                NEVER_LISTED => {
                    ImageVerification::NeverAllowlisted(flags.preloaded_images_verification_allowlist)
                }
                ALWAYS => ImageVerification::Always,
                _ => ImageVerification::NeverPreloaded,
            },
            server: Some(ServerConfig {
                address: SocketAddr::new(flags.address, flags.port),
                certificate,
                client_ca: flags.client_ca_file,
                cert_dir: flags.cert_dir,
            }),
            log_max_bytes: flags.container_log_max_size,
            log_max_files: flags.container_log_max_files,
            image_gc_high_percent: flags.image_gc_high_threshold,
            image_gc_low_percent: flags.image_gc_low_threshold,
            eviction_hard: flags.eviction_hard,
            pressure_stays: flags.eviction_pressure_transition_period,
            ..defaults
        }
    }
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').unwrap_or((text, ""));
    if is_label(key, value) {
        Ok((key.into(), value.into()))
    } else {
        Err(format!("{text} is not a label: write key=value"))
    }
}

fn taint(text: &str) -> Result<Taint, String> {
    let wrong =
        || format!("{text} is not a taint: write key=value:NoSchedule, PreferNoSchedule or NoExecute");
    let (pair, effect) = text.rsplit_once(':').ok_or_else(wrong)?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") || !is_label(key, value) {
        return Err(wrong());
    }
    Ok(Taint {
        key: key.into(),
        value: (!value.is_empty()).then(|| value.into()),
        effect: effect.into(),
        time_added: None,
    })
}

fn sysctl(text: &str) -> Result<String, String> {
    if is_namespaced(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "the sysctls {text:?} are not known to be namespaced: those that begin with kernel.shm, kernel.msg, fs.mqueue. or net., and kernel.sem, are"
    ))
}

fn no_port(text: &str) -> Result<u16, String> {
    if text == "0" { Ok(0) } else { Err("the read-only port is not served: leave it 0".into()) }
}

/// As Go writes one: `90s`, `5m`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text} is not a duration: write 5m0s");
    let friendly: jiff::SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(friendly).map_err(|_| wrong())
}

fn bytes(text: &str) -> Result<u64, String> {
    let amount: api::Quantity = text.parse().map_err(|_| format!("{text} is not a size: write 10Mi"))?;
    u64::try_from(amount.value()).ok().filter(|size| *size > 0).ok_or("must be more than 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_a_config() {
        let flags = Flags::try_parse_from([
            "kubelet",
            "--hostname-override=Node-1",
            "--node-labels=a=b,c=d",
            "--register-with-taints=k=v:NoSchedule",
            "--container-runtime-endpoint=unix:///x.sock",
            "--container-log-max-size=1Mi",
            "--pod-cidr=10.9.0.0/24",
            "--eviction-hard=memory.available<1Gi",
            "--eviction-pressure-transition-period=1m30s",
        ]);
        let config = Config::from(flags.expect("flags"));
        assert_eq!(config.node_name, "node-1");
        assert_eq!(config.labels["c"], "d");
        assert_eq!(config.taints[0].effect, "NoSchedule");
        assert_eq!(config.log_max_bytes, 1 << 20);
        assert_eq!(config.eviction_hard, "memory.available<1Gi".parse().expect("thresholds"));
        assert_eq!(config.pressure_stays, Duration::from_secs(90));
        assert!(
            matches!(config.runtime, RuntimeConfig::Containerd { socket } if socket == std::path::Path::new("/x.sock"))
        );
    }

    #[test]
    fn wrong_flags_say_what_is_right() {
        for (flag, said) in [
            ("--register-with-taints=k:Often", "NoSchedule"),
            ("--node-labels=-x=1", "key=value"),
            ("--read-only-port=10255", "leave it 0"),
            ("--allowed-unsafe-sysctls=kernel.msg*,vm.swappiness", "not known to be namespaced"),
            ("--eviction-hard=memory<1Gi", "memory.available<100Mi"),
        ] {
            let error = Flags::try_parse_from(["kubelet", flag]).expect_err("refused").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
