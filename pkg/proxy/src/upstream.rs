//! Who is asked for names outside the cluster: whom the flags name, or whom the host itself asks.

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use parking_lot::{Mutex, MutexGuard};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Names from upstream that are remembered.
const REMEMBERED: u64 = 4096;
/// The host's name servers come and go with its networks. They are looked up again when somebody asks for a name and the
/// last look is so long ago: a node that nobody asks does nothing.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Without anybody to ask, names outside the cluster are refused.
pub struct Upstream {
    /// Where the host's name servers stand, if it is them that are asked, and who of them is ourselves.
    host: Option<(PathBuf, IpAddr)>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    servers: Vec<SocketAddr>,
    resolver: Option<TokioResolver>,
}

impl Upstream {
    /// Always these.
    pub fn fixed(servers: Vec<SocketAddr>) -> Upstream {
        let resolver = resolver(servers.clone());
        Upstream { host: None, known: Mutex::new(Known { looked: None, servers, resolver }) }
    }

    /// Those that this `resolv.conf` names at the time, but for `ours`.
    pub fn of_host(resolv_conf: impl Into<PathBuf>, ours: IpAddr) -> Upstream {
        Upstream { host: Some((resolv_conf.into(), ours)), known: Mutex::default() }
    }

    /// Whether there is anybody to ask.
    pub fn is_there(&self) -> bool {
        self.known_at(Instant::now()).resolver.is_some()
    }

    /// Asks them, and remembers what they say.
    pub fn resolver(&self) -> Option<TokioResolver> {
        self.known_at(Instant::now()).resolver.clone()
    }

    fn known_at(&self, now: Instant) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        if let Some((path, ours)) = &self.host
            && known.looked.is_none_or(|looked| now.duration_since(looked) >= LOOK_EVERY)
        {
            known.looked = Some(now);
            let servers = servers(&std::fs::read_to_string(path).unwrap_or_default(), *ours);
            // What others have said is forgotten with them.
            if servers != known.servers {
                known.resolver = resolver(servers.clone());
                known.servers = servers;
            }
        }
        known
    }
}

/// The name servers that a `resolv.conf` names, without ourselves.
fn servers(resolv_conf: &str, ours: IpAddr) -> Vec<SocketAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    let servers = servers.filter_map(|rest| rest.trim().parse::<IpAddr>().ok());
    servers.filter(|address| *address != ours).map(at_port).collect()
}

/// Where a name server listens.
pub fn at_port(address: IpAddr) -> SocketAddr {
    SocketAddr::new(address, 53)
}

fn resolver(servers: Vec<SocketAddr>) -> Option<TokioResolver> {
    if servers.is_empty() {
        return None;
    }
    let server = |address: SocketAddr| {
        let mut server = NameServerConfig::udp_and_tcp(address.ip());
        server.connections.iter_mut().for_each(|connection| connection.port = address.port());
        server
    };
    let config = ResolverConfig::from_name_servers(servers.into_iter().map(server).collect());
    let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
    let options = builder.options_mut();
    options.cache_size = REMEMBERED;
    // Names come whole; the host's own file is not the cluster's business.
    options.ndots = 0;
    options.use_hosts_file = ResolveHosts::Never;
    match builder.build() {
        Ok(resolver) => Some(resolver),
        Err(error) => {
            tracing::warn!(%error, "names outside the cluster cannot be looked up");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_do_not_ask_ourselves() {
        let text = "# made by hand\nnameserver 10.96.0.10\n nameserver 192.0.2.1\nsearch example.org\nnameserver nonsense\n";
        let ours = "10.96.0.10".parse().unwrap();
        assert_eq!(servers(text, ours), ["192.0.2.1:53".parse::<SocketAddr>().unwrap()]);
    }

    #[tokio::test]
    async fn the_hosts_name_servers_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("resolv.conf");
        let upstream = Upstream::of_host(&path, "10.96.0.10".parse().unwrap());
        let start = Instant::now();
        let is_there = |looks: u32| upstream.known_at(start + LOOK_EVERY * looks).resolver.is_some();
        assert!(!is_there(0), "there is no network yet");
        std::fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        assert!(!is_there(0), "one look serves many who ask");
        assert!(is_there(1));
        std::fs::write(&path, "nameserver 10.96.0.10\n").unwrap();
        assert!(!is_there(2), "that is ourselves");
    }
}
