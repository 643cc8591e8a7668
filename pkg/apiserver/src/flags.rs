//! The apiserver's flags, under upstream's names wherever upstream has the flag.

use crate::admission::DENY_SERVICE_EXTERNAL_IPS;
use crate::config::{Config, EtcdConfig};
use crate::services::ServiceRanges;
use clap::Parser;
use daemon::ConnectionLimits;
use jiff::SignedDuration;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Serves the Kubernetes API.
///
/// With nothing but a data directory it makes its own CA, keys and store, and leaves an admin.kubeconfig there.
#[derive(Parser)]
#[command(
    name = "apiserver",
    version,
    after_help = "Example:\n  apiserver --data-dir /var/lib/minik8s &\n  kubectl --kubeconfig /var/lib/minik8s/admin.kubeconfig get namespaces"
)]
pub struct Flags {
    /// The address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// The port to listen on; 0 takes a free one.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Where keys, certificates and the embedded store are kept.
    #[arg(long, default_value = "/var/lib/minik8s")]
    data_dir: PathBuf,
    /// Where keys and certificates are kept, if not in the data directory.
    #[arg(long)]
    cert_dir: Option<PathBuf>,
    /// Renew the certificates of the control plane's kubeconfigs in this directory before they end.
    #[arg(long)]
    kubeconfig_dir: Option<PathBuf>,
    /// The address that others are told to reach this server at.
    #[arg(long)]
    advertise_address: Option<IpAddr>,
    /// More names and addresses for the serving certificate.
    #[arg(long, value_delimiter = ',')]
    tls_san: Vec<String>,
    /// Use etcd at these URLs instead of the embedded store.
    #[arg(long, value_delimiter = ',')]
    etcd_servers: Vec<String>,
    /// The CA of etcd's certificate.
    #[arg(long)]
    etcd_cafile: Option<PathBuf>,
    /// The certificate to show to etcd.
    #[arg(long, requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    #[command(flatten)]
    redis: bus::RedisFlags,
    /// Where ClusterIPs come from; a second range, of the other family, after a comma.
    #[arg(long, default_value = "10.96.0.0/12")]
    service_cluster_ip_range: ServiceRanges,
    /// Where node ports come from.
    #[arg(long, default_value = "30000-32767", value_parser = port_range)]
    service_node_port_range: RangeInclusive<u16>,
    /// The serving certificate.
    #[arg(long, requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The key of the serving certificate.
    #[arg(long, requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
    /// The certificate to show to kubelets.
    #[arg(long, requires = "kubelet_client_key")]
    kubelet_client_certificate: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, requires = "kubelet_client_certificate")]
    kubelet_client_key: Option<PathBuf>,
    /// The CA of kubelets' serving certificates; without it they are not verified.
    #[arg(long)]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Which of a node's addresses to use, the first that it has.
    #[arg(long, value_delimiter = ',', default_value = "InternalIP,ExternalIP,Hostname")]
    kubelet_preferred_address_types: Vec<String>,
    /// The CA of client certificates.
    #[arg(long)]
    client_ca_file: Option<PathBuf>,
    /// Who service-account tokens are from.
    #[arg(long, default_value = "https://kubernetes.default.svc.cluster.local")]
    service_account_issuer: String,
    /// Keys to check service-account tokens with (may be given more than once).
    #[arg(long)]
    service_account_key_file: Vec<PathBuf>,
    /// The key to sign service-account tokens with.
    #[arg(long)]
    service_account_signing_key_file: Option<PathBuf>,
    /// What tokens must be for; the issuer if nothing is given.
    #[arg(long, value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// The longest that a service-account token may live, such as 24h.
    #[arg(long)]
    service_account_max_token_expiration: Option<SignedDuration>,
    /// Encrypt Secrets with a new key from now on, and those in the store again.
    #[arg(long)]
    rotate_encryption_key: bool,
    /// How long events are kept.
    #[arg(long, default_value = "1h")]
    event_ttl: SignedDuration,
    /// Plug-ins of admission to leave out. Only DenyServiceExternalIPs can be: then whoever may write a service chooses
    /// addresses whose traffic is led to it
    #[arg(long, value_delimiter = ',', value_parser = [DENY_SERVICE_EXTERNAL_IPS])]
    disable_admission_plugins: Vec<String>,
    /// Answer requests as FlowSchemas and PriorityLevelConfigurations say: each level has its share of the seats that the
    /// next two flags make together. Without, they limit reads and writes, whoever asks.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    enable_priority_and_fairness: bool,
    /// How many reads are answered at once.
    #[arg(long, default_value_t = 400)]
    max_requests_inflight: usize,
    /// How many writes are answered at once.
    #[arg(long, default_value_t = 200)]
    max_mutating_requests_inflight: usize,
    /// How much memory requests in flight may take: a quarter for bodies on their way in, a quarter for requests and lists
    /// whose answers nobody has taken yet, and half for what is encoded and not yet sent (tables, YAML, gzip). One user, or
    /// the service accounts of one namespace, gets at most three eighths of each; who asks for more waits, or is told to
    /// try again. Not counted are the objects themselves, which are all held in memory, what is made of a body while it is
    /// worked on (some times its length), and connections (about 40 KB each, see --max-connections).
    #[arg(long, default_value_t = 256 * 1024 * 1024)]
    max_inflight_bytes: usize,
    /// How many connections there may be beside those of the cluster's own programs and administrators. Clients that
    /// have not said who they are get an eighth of them, one address of these 1/32; one user, or the service accounts of
    /// one namespace, a quarter. Who comes then takes the place of the oldest of whoever holds the most. Never more than
    /// half of the files that the server may open.
    #[arg(long, default_value_t = ConnectionLimits::default().most)]
    max_connections: usize,
    /// Requests at once on one HTTP/2 connection of a client with a certificate; others get a quarter of it.
    #[arg(long, default_value_t = ConnectionLimits::default().streams)]
    http2_max_streams_per_connection: u32,
    /// How long a request may take that does not last by its nature, as watches, logs and exec do.
    #[arg(long, default_value = "1m")]
    request_timeout: SignedDuration,
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Config {
        let etcd = (!flags.etcd_servers.is_empty()).then_some(EtcdConfig {
            servers: flags.etcd_servers,
            ca_file: flags.etcd_cafile,
            cert_file: flags.etcd_certfile,
            key_file: flags.etcd_keyfile,
        });
        Config {
            cert_dir: flags.cert_dir,
            kubeconfig_dir: flags.kubeconfig_dir,
            advertise_address: flags.advertise_address,
            tls_sans: flags.tls_san,
            etcd,
            redis: flags.redis.config(),
            service_cluster_ip_range: flags.service_cluster_ip_range,
            kubelet_client: flags.kubelet_client_certificate.zip(flags.kubelet_client_key),
            kubelet_certificate_authority: flags.kubelet_certificate_authority,
            kubelet_preferred_address_types: flags.kubelet_preferred_address_types,
            tls: flags.tls_cert_file.zip(flags.tls_private_key_file),
            client_ca_file: flags.client_ca_file,
            service_account_issuer: flags.service_account_issuer,
            service_account_key_files: flags.service_account_key_file,
            service_account_signing_key_file: flags.service_account_signing_key_file,
            api_audiences: flags.api_audiences,
            event_ttl: flags.event_ttl.unsigned_abs(),
            service_account_max_token_expiration: flags
                .service_account_max_token_expiration
                .map(SignedDuration::unsigned_abs),
            rotate_encryption_key: flags.rotate_encryption_key,
            service_node_port_range: flags.service_node_port_range,
            deny_service_external_ips: flags.disable_admission_plugins.is_empty(),
            enable_priority_and_fairness: flags.enable_priority_and_fairness,
            max_requests_in_flight: flags.max_requests_inflight,
            max_mutating_requests_in_flight: flags.max_mutating_requests_inflight,
            max_bytes_in_flight: flags.max_inflight_bytes,
            connections: ConnectionLimits {
                most: flags.max_connections,
                streams: flags.http2_max_streams_per_connection,
                ..ConnectionLimits::default()
            },
            request_timeout: flags.request_timeout.unsigned_abs(),
            ..Config::new(flags.data_dir)
        }
    }
}

/// `30000-32767`.
fn port_range(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text.split_once('-').and_then(|(from, to)| Some(from.parse().ok()?..=to.parse().ok()?));
    range
        .filter(|range| !range.is_empty())
        .ok_or_else(|| format!("{text:?} is not a range such as 30000-32767"))
}
