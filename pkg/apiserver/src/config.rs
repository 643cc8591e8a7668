//! What an apiserver is told when it starts. Flags become this; nothing else does.

use crate::services::ServiceRanges;
use bus::RedisConfig;
use daemon::ConnectionLimits;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How to run an apiserver.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where keys, certificates and the embedded store live.
    pub data_dir: PathBuf,
    /// Where keys and certificates live instead, if they do.
    pub cert_dir: Option<PathBuf>,
    /// Where the control plane's kubeconfigs are, if this server is to renew their certificates.
    pub kubeconfig_dir: Option<PathBuf>,
    /// The address that others are told to reach this server at; found out where it is not given.
    pub advertise_address: Option<IpAddr>,
    /// Names and addresses that the serving certificate is good for, beyond the usual ones.
    pub tls_sans: Vec<String>,
    /// etcd, where it is the store.
    pub etcd: Option<EtcdConfig>,
    /// Where changes are told, for those who hear of them there.
    pub redis: Option<RedisConfig>,
    /// Where ClusterIPs come from.
    pub service_cluster_ip_range: ServiceRanges,
    /// Where node ports come from.
    pub service_node_port_range: RangeInclusive<u16>,
    /// The certificate and key that kubelets know this server by; its own where none is given.
    pub kubelet_client: Option<(PathBuf, PathBuf)>,
    /// Who signs kubelets' serving certificates. Without it they are not verified, as upstream's default is.
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Which of a node's addresses is tried, by type.
    pub kubelet_preferred_address_types: Vec<String>,
    /// The serving certificate and key, where they are given.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The CA of client certificates, where it is given.
    pub client_ca_file: Option<PathBuf>,
    /// Who service-account tokens say they are from.
    pub service_account_issuer: String,
    /// Keys that service-account tokens are checked with; those of the signing key where none is given.
    pub service_account_key_files: Vec<PathBuf>,
    /// The key that service-account tokens are signed with.
    pub service_account_signing_key_file: Option<PathBuf>,
    /// What tokens are for; the issuer where nothing is given.
    pub api_audiences: Vec<String>,
    /// No token lives longer than this, whatever is asked for.
    pub service_account_max_token_expiration: Option<Duration>,
    /// Begin to encrypt Secrets with a new key.
    pub rotate_encryption_key: bool,
    /// How long events are kept.
    pub event_ttl: Duration,
    /// How often history is forgotten: what is older than this cannot be watched from any more.
    pub compaction_interval: Duration,
    /// Whether nobody may add external addresses to services.
    pub deny_service_external_ips: bool,
    /// Whether requests are answered as FlowSchemas and PriorityLevelConfigurations say.
    pub enable_priority_and_fairness: bool,
    /// How many reads are answered at once. With priority and fairness, this and the next together are the seats that
    /// levels have shares of.
    pub max_requests_in_flight: usize,
    /// How many writes are answered at once.
    pub max_mutating_requests_in_flight: usize,
    /// How long a request may take that does not last by its nature.
    pub request_timeout: Duration,
    /// How much memory requests in flight may take: their bodies, and what is made of them and for them.
    pub max_bytes_in_flight: usize,
    /// How many connections there are, and how long each may keep the server waiting.
    pub connections: ConnectionLimits,
}

/// How to reach etcd.
#[derive(Debug, Clone, Default)]
pub struct EtcdConfig {
    /// URLs.
    pub servers: Vec<String>,
    /// The CA of etcd's certificate.
    pub ca_file: Option<PathBuf>,
    /// The client certificate.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
}

impl Config {
    /// The defaults, for a server with its data in one directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Config {
        Config {
            data_dir: data_dir.into(),
            cert_dir: None,
            kubeconfig_dir: None,
            advertise_address: None,
            tls_sans: Vec::new(),
            etcd: None,
            redis: None,
            service_cluster_ip_range: "10.96.0.0/12".parse().expect("a valid range"),
            service_node_port_range: 30000..=32767,
            kubelet_client: None,
            kubelet_certificate_authority: None,
            kubelet_preferred_address_types: ["InternalIP", "ExternalIP", "Hostname"]
                .map(str::to_owned)
                .into(),
            tls: None,
            client_ca_file: None,
            service_account_issuer: "https://kubernetes.default.svc.cluster.local".into(),
            service_account_key_files: Vec::new(),
            service_account_signing_key_file: None,
            api_audiences: Vec::new(),
            service_account_max_token_expiration: None,
            rotate_encryption_key: false,
            event_ttl: Duration::from_secs(3600),
            compaction_interval: Duration::from_secs(300),
            deny_service_external_ips: true,
            enable_priority_and_fairness: true,
            max_requests_in_flight: 400,
            max_mutating_requests_in_flight: 200,
            request_timeout: Duration::from_secs(60),
            max_bytes_in_flight: 256 * 1024 * 1024,
            connections: ConnectionLimits::default(),
        }
    }

    /// Where keys and certificates live.
    pub fn cert_dir(&self) -> &Path {
        self.cert_dir.as_ref().unwrap_or(&self.data_dir)
    }

    /// The address to tell others; `None` where there is none worth telling.
    pub fn advertised_address(&self, bound: SocketAddr) -> Option<IpAddr> {
        match (self.advertise_address, bound.ip()) {
            (Some(given), _) => Some(given),
            (None, ip) if ip.is_unspecified() => outgoing_address(),
            // Others cannot reach a loopback address.
            (None, ip) => (!ip.is_loopback()).then_some(ip),
        }
    }

    /// How much of [`Config::max_bytes_in_flight`] bodies may take that are on their way in.
    pub fn max_body_bytes(&self) -> usize {
        self.max_bytes_in_flight / 4
    }

    /// How much of it requests may take that wait for their answers to be taken, whatever they are.
    pub fn max_waiting_bytes(&self) -> usize {
        self.max_bytes_in_flight / 4
    }

    /// How much of it may be encoded and not yet sent.
    pub fn max_encoded_bytes(&self) -> usize {
        self.max_bytes_in_flight / 2
    }

    /// The audiences that tokens must be for.
    pub fn audiences(&self) -> Vec<String> {
        if self.api_audiences.is_empty() {
            vec![self.service_account_issuer.clone()]
        } else {
            self.api_audiences.clone()
        }
    }
}

/// The address that this host's default route leaves from. Nothing is sent: a UDP socket only looks the route up. A
/// host without a default route has none, which is fine.
fn outgoing_address() -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified())
}
