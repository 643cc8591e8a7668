//! Where Redis is, and the flags that say so, the same for every program.

use crate::channel::is_name;
use crate::connection::{Login, RedisError};
use clap::Args;
use std::path::{Path, PathBuf};
use std::str::FromStr;

const PORT: u16 = 6379;
/// The cluster's name where the URL has none.
const CLUSTER: &str = "minik8s";

/// Flags about Redis.
#[derive(Debug, Clone, Default, Args)]
pub struct RedisFlags {
    /// Tell and hear changes over this Redis, as redis://[user@]host[:port][/cluster], or rediss:// for TLS. What it does not
    /// tell is asked of the API server, so it may be away at any time.
    #[arg(long, value_name = "URL")]
    pub redis_url: Option<RedisServer>,
    /// The file with the password of that user.
    #[arg(long, requires = "redis_url", value_name = "FILE")]
    pub redis_password_file: Option<PathBuf>,
    /// The CA of that Redis' certificate, for rediss://; the cluster's own where the program knows it.
    #[arg(long, requires = "redis_url", value_name = "FILE")]
    pub redis_cafile: Option<PathBuf>,
}

/// A Redis, and by which files it lets us in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisConfig {
    /// Where it is.
    pub server: RedisServer,
    /// The file with our password.
    pub password_file: Option<PathBuf>,
    /// The authority that has signed its certificate.
    pub ca_file: Option<PathBuf>,
}

impl RedisFlags {
    /// What they mean; nothing where there is no Redis.
    pub fn config(self) -> Option<RedisConfig> {
        let (password_file, ca_file) = (self.redis_password_file, self.redis_cafile);
        self.redis_url.map(|server| RedisConfig { server, password_file, ca_file })
    }
}

impl RedisConfig {
    /// Who we are there. Files are read anew each time, since others may have written them.
    pub fn login(&self) -> Result<Login, RedisError> {
        let read = |path: &Path| {
            let failed = |error| RedisError::File(format!("read {}: {error}", path.display()));
            std::fs::read_to_string(path).map_err(failed)
        };
        let password = self.password_file.as_deref().map(read).transpose()?;
        let authorities = self.ca_file.as_deref().map(read).transpose()?;
        let password = password.map(|password| password.trim_end().to_owned());
        Ok(Login { user: self.server.user.clone(), password, authorities })
    }
}

/// A Redis, and whose channels there are ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServer {
    /// Its host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Who we are there, where the URL says it.
    pub user: Option<String>,
    /// What names of channels begin with.
    pub cluster: String,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// A URL that does not say where a Redis is. It never shows a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}: expected redis://[user@]host[:port][/cluster], or rediss:// for TLS")]
pub struct BadUrl(&'static str);

impl FromStr for RedisServer {
    type Err = BadUrl;

    fn from_str(text: &str) -> Result<RedisServer, BadUrl> {
        let (tls, rest) = match (text.strip_prefix("redis://"), text.strip_prefix("rediss://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(BadUrl("it does not begin with redis:// or rediss://")),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user.to_owned()), place),
            None => (None, authority),
        };
        // Users are called so: minik8s:kube-scheduler. A password is not a part of a name.
        if user.as_ref().is_some_and(|user| user.is_empty() || user.starts_with(':')) {
            return Err(BadUrl("it has a password, which belongs into --redis-password-file"));
        }
        let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:_".contains(&byte);
        if user.as_ref().is_some_and(|user| !user.bytes().all(fine)) {
            return Err(BadUrl("its user is none"));
        }
        let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| BadUrl("its port is none")))?;
        if host.is_empty() {
            return Err(BadUrl("it has no host"));
        }
        let cluster = if path.is_empty() { CLUSTER } else { path };
        if !is_name(cluster) {
            return Err(BadUrl("the cluster's name may have small letters, digits, - and . only"));
        }
        Ok(RedisServer { host: host.to_owned(), port, user, cluster: cluster.to_owned(), tls })
    }
}

impl RedisServer {
    /// The URL, for somebody who is called otherwise there.
    pub fn url_of(&self, user: Option<&str>) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{scheme}://{user}{host}:{}/{}", self.port, self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_say_where_redis_is() {
        let check = |text: &str, expected: &str| {
            let server: RedisServer = text.parse().expect("a good URL");
            assert_eq!(server.url_of(server.user.as_deref()), expected);
            assert_eq!(expected.parse(), Ok(server));
        };
        check("redis://127.0.0.1", "redis://127.0.0.1:6379/minik8s");
        check(
            "rediss://blue:kube-scheduler@cache.example.com:6380/blue",
            "rediss://blue:kube-scheduler@cache.example.com:6380/blue",
        );
        check("redis://[fd00::1]:1", "redis://[fd00::1]:1/minik8s");
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said() {
        let check = |text: &str, expected: &str| {
            let error = text.parse::<RedisServer>().expect_err(text).to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        check("http://a", "it does not begin");
        check("redis://", "it has no host");
        check("redis://a:x", "its port");
        check("redis://:secret@a", "it has a password");
        check("redis://me me@a", "its user");
        check("redis://a/*", "the cluster's name");
    }
}
