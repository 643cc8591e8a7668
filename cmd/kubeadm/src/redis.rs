//! Redis beside the control plane: the one that runs here as a static pod, or one that somebody else runs.
//!
//! ```text
//! --datastore etcd ──> Own: redis.conf, users.acl, a certificate of the cluster's, a password per program
//! --redis-url …    ──> Outside: passwords; its users are made by `kubeadm redis-users | redis-cli`
//! ```
//!
//! Passwords stand in files that only root reads; Redis, manifests and arguments have none of them. Nodes have no file: each asks
//! the API, by its own certificate.

use crate::host::Host;
use crate::layout;
use anyhow::{Context, Result};
use bus::{COMPONENTS, RedisConfig, RedisFlags, RedisServer, RedisUser, password_hash};
use pki::file::Mode;
use pki::{Authority, BootstrapToken};
use std::net::IpAddr;
use std::path::PathBuf;

/// The port of a Redis of ours: over TLS only.
pub const PORT: u16 = 6379;
const CLUSTER: &str = "minik8s";
/// What its certificate is called.
pub const CERTIFICATE: &str = "redis";

/// The Redis of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Redis {
    /// It runs here, as a pod of ours.
    Own {
        /// Where it is reached.
        server: RedisServer,
    },
    /// Somebody else runs it.
    Outside(RedisConfig),
}

impl Redis {
    /// What is said about it: a Redis that is named, or our own where etcd is.
    pub fn choose(flags: RedisFlags, has_own_etcd: bool, address: IpAddr) -> Option<Redis> {
        if let Some(config) = flags.config() {
            return Some(Redis::Outside(config));
        }
        let (host, cluster) = (address.to_string(), CLUSTER.to_owned());
        let server = RedisServer { host, port: PORT, user: None, cluster, tls: true };
        has_own_etcd.then_some(Redis::Own { server })
    }

    /// Whether it runs here.
    pub fn is_own(&self) -> bool {
        matches!(self, Redis::Own { .. })
    }

    fn server(&self) -> &RedisServer {
        match self {
            Redis::Own { server } => server,
            Redis::Outside(config) => &config.server,
        }
    }

    /// The authority that has signed its certificate.
    fn ca_file(&self) -> Option<PathBuf> {
        match self {
            Redis::Own { .. } => Some(layout::pki().join("ca.crt")),
            Redis::Outside(config) => config.ca_file.clone(),
        }
    }

    /// What nodes are told.
    pub fn arguments_of_nodes(&self) -> Vec<String> {
        let mut arguments = vec![format!("--redis-url={}", self.server().url_of(None))];
        arguments.extend(self.ca_file().map(|file| format!("--redis-cafile={}", file.display())));
        arguments
    }

    /// What a program of the control plane is told.
    pub fn arguments_of(&self, component: &str) -> Vec<String> {
        let cluster = &self.server().cluster;
        let mut user = format!("{cluster}:{component}");
        let mut password = password_file(component);
        if let (Redis::Outside(config), "kube-apiserver") = (self, component) {
            // Who may publish and make users there is somebody else's to say.
            user = config.server.user.clone().unwrap_or(user);
            password = config.password_file.clone().unwrap_or(password);
        }
        let mut arguments = vec![
            format!("--redis-url={}", self.server().url_of(Some(&user))),
            format!("--redis-password-file={}", password.display()),
        ];
        arguments.extend(self.ca_file().map(|file| format!("--redis-cafile={}", file.display())));
        arguments
    }

    /// Files that are not in the folders that the control plane's pods have anyway.
    pub fn foreign_files(&self) -> Vec<String> {
        let Redis::Outside(config) = self else { return Vec::new() };
        let files = [&config.password_file, &config.ca_file].into_iter().flatten();
        files.filter(|file| !file.starts_with(layout::ETC)).map(|file| file.display().to_string()).collect()
    }

    /// Makes the passwords, and of our own Redis its users, its certificate and its configuration.
    pub fn prepare(&self, host: &Host, authority: &Authority) -> Result<()> {
        let mut users = "user default off\n".to_owned();
        for (component, permission) in COMPONENTS {
            let file = password_file(component);
            let password = match pki::file::read(&file)? {
                Some(password) => password,
                None => {
                    let password = random_password()?;
                    host.write(&file, &password, Mode::Secret)?;
                    password
                }
            };
            let hash = password_hash(password.trim_end());
            users += &RedisUser::component(component, *permission, &self.server().cluster, hash).line();
        }
        let Redis::Own { server } = self else { return Ok(()) };
        host.write(&folder().join("users.acl"), &users, Mode::Secret)?;
        host.write(&folder().join("redis.conf"), &configuration(server), Mode::Secret)?;
        if !host.would("make the certificate of Redis") {
            let names = [server.host.clone(), "127.0.0.1".to_owned()];
            pki::ensure_server(&layout::pki(), CERTIFICATE, authority, &names, jiff::Timestamp::now())?;
        }
        Ok(())
    }
}

/// Where Redis' configuration and the passwords are.
pub fn folder() -> PathBuf {
    layout::etc("redis")
}

/// The command of the pod.
pub fn command() -> [String; 2] {
    ["/redis-server".to_owned(), folder().join("redis.conf").display().to_string()]
}

/// The password of a program of the control plane.
pub fn password_file(component: &str) -> PathBuf {
    folder().join(component)
}

/// The commands that make the users of the control plane's programs, by the passwords that stand here.
pub fn users_of_components(cluster: &str) -> Result<Vec<RedisUser>> {
    let user = |(component, permission): &(&str, bus::Permission)| -> Result<RedisUser> {
        let file = password_file(component);
        let password = std::fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        Ok(RedisUser::component(component, *permission, cluster, password_hash(password.trim_end())))
    };
    COMPONENTS.iter().map(user).collect()
}

fn random_password() -> Result<String> {
    // Three tokens have more than 200 bits.
    let tokens = [BootstrapToken::generate()?, BootstrapToken::generate()?, BootstrapToken::generate()?];
    Ok(tokens.map(|token| token.to_string().replace('.', "")).concat())
}

/// It keeps nothing: the store has everything. Who does not read what it is told is cut off, and asks the API.
fn configuration(server: &RedisServer) -> String {
    let pki = layout::pki();
    let file = |name: &str| pki.join(name).display().to_string();
    let settings = [
        format!("bind {} 127.0.0.1", server.host),
        "port 0".to_owned(),
        format!("tls-port {}", server.port),
        format!("tls-cert-file {}", file("redis.crt")),
        format!("tls-key-file {}", file("redis.key")),
        "tls-auth-clients no".to_owned(),
        format!("aclfile {}", folder().join("users.acl").display()),
        "save \"\"".to_owned(),
        "appendonly no".to_owned(),
        "maxclients 20000".to_owned(),
        "tcp-backlog 1024".to_owned(),
        "client-output-buffer-limit pubsub 32mb 8mb 20".to_owned(),
        "daemonize no".to_owned(),
        "logfile \"\"".to_owned(),
    ];
    settings.join("\n") + "\n"
}

/// What a cluster's configuration says of its Redis, for machines that join: as flags of the API server, as upstream's form
/// has them.
pub fn is_for_nodes(argument: &str) -> Option<(&str, &str)> {
    let (name, value) = argument.strip_prefix("--")?.split_once('=')?;
    ["redis-url", "redis-cafile"].contains(&name).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(url: Option<&str>, has_own_etcd: bool) -> Option<Redis> {
        let redis_url = url.map(|url| url.parse().expect("a URL"));
        let redis_password_file = Some("/root/password".into());
        let flags = RedisFlags { redis_url, redis_password_file, redis_cafile: None };
        Redis::choose(flags, has_own_etcd, [192, 0, 2, 1].into())
    }

    #[test]
    fn etcd_has_a_redis_beside_it_and_a_named_one_is_taken() {
        assert_eq!(choose(None, false), None);
        let own = choose(None, true).expect("our own");
        let expected =
            "--redis-url=rediss://192.0.2.1:6379/minik8s --redis-cafile=/etc/kubernetes/pki/ca.crt";
        assert_eq!(own.arguments_of_nodes().join(" "), expected);
        let scheduler = own.arguments_of("kube-scheduler").join(" ");
        assert!(
            scheduler.starts_with("--redis-url=rediss://minik8s:kube-scheduler@192.0.2.1:6379/minik8s "),
            "{scheduler}"
        );
        assert!(
            scheduler.contains("--redis-password-file=/etc/kubernetes/redis/kube-scheduler"),
            "{scheduler}"
        );
        let outside = choose(Some("redis://me@cache/blue"), true).expect("the one that is named");
        assert!(!outside.is_own());
        let apiserver = outside.arguments_of("kube-apiserver").join(" ");
        assert_eq!(apiserver, "--redis-url=redis://me@cache:6379/blue --redis-password-file=/root/password");
        assert_eq!(outside.foreign_files(), ["/root/password"]);
        assert!(outside.arguments_of("knative")[0].contains("//blue:knative@cache:6379/blue"));
    }

    #[test]
    fn our_own_speaks_tls_alone_and_keeps_nothing() {
        let Some(Redis::Own { server }) = choose(None, true) else { panic!("our own") };
        let text = configuration(&server);
        for line in
            ["port 0\n", "tls-port 6379\n", "save \"\"\n", "aclfile /etc/kubernetes/redis/users.acl\n"]
        {
            assert!(text.contains(line), "{text}");
        }
    }
}
