//! Kernel parameters that pods may set: those of their own namespaces that harm nobody else, and those that the node's
//! administrator allows.

use k8s_openapi::api::core::v1::PodSpec;

/// Upstream's, which every pod may set.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// The kernel parameters that pods may set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedSysctls {
    /// Beside the safe ones; with `*` at the end all that begin so.
    more: Vec<String>,
}

impl AllowedSysctls {
    /// The safe ones and these.
    pub fn new(more: &[String]) -> AllowedSysctls {
        AllowedSysctls { more: more.iter().map(|name| dotted(name)).collect() }
    }

    /// Whether a pod may set what it sets.
    pub(super) fn check(&self, spec: &PodSpec) -> Result<(), String> {
        let set = spec.security_context.iter().flat_map(|context| context.sysctls.iter().flatten());
        for sysctl in set {
            let name = dotted(&sysctl.name);
            if !self.allows(&name) {
                return Err(format!("{name:?} not allowlisted"));
            }
            let shared = match namespace(&name) {
                Some(Namespace::Ipc) if spec.host_ipc == Some(true) => "IPC",
                Some(Namespace::Net) if spec.host_network == Some(true) => "Net",
                _ => continue,
            };
            return Err(format!("{name:?} not allowed with host {shared} enabled"));
        }
        Ok(())
    }

    fn allows(&self, name: &str) -> bool {
        let allowed = |pattern: &String| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        };
        namespace(name).is_some() && (SAFE.contains(&name) || self.more.iter().any(allowed))
    }
}

/// Whether a parameter, or all that begin with it (`*` at the end), is each namespace's own: others are the node's.
pub fn is_namespaced(pattern: &str) -> bool {
    namespace(dotted(pattern).trim_end_matches('*')).is_some()
}

/// Which namespace a parameter is of.
fn namespace(name: &str) -> Option<Namespace> {
    let has = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if name == "kernel.sem" || has(&["kernel.shm", "kernel.msg", "fs.mqueue."]) {
        Some(Namespace::Ipc)
    } else {
        has(&["net."]).then_some(Namespace::Net)
    }
}

/// With dots between its parts: `net/ipv4/conf/eth0.1/x` is `net.ipv4.conf.eth0/1.x`, as for `sysctl`.
fn dotted(name: &str) -> String {
    match name.find(['.', '/']).map(|at| name.as_bytes()[at]) {
        Some(b'/') => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(more: &[&str], host: bool, name: &str) -> Result<(), String> {
        let more: Vec<String> = more.iter().map(|name| (*name).to_owned()).collect();
        let spec = json!({"containers": [], "hostIPC": host, "hostNetwork": host,
            "securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        AllowedSysctls::new(&more).check(&serde_json::from_value(spec).expect("a spec"))
    }

    #[test]
    fn safe_ones_and_those_that_are_allowed() {
        for name in SAFE {
            assert_eq!(check(&[], false, name), Ok(()), "{name}");
        }
        assert_eq!(check(&[], false, "net/ipv4/tcp_rmem"), Ok(()));
        assert_eq!(check(&["kernel.msg*"], false, "kernel.msgmax"), Ok(()));
        assert_eq!(check(&["net/core/somaxconn"], false, "net.core.somaxconn"), Ok(()));
        for (more, name) in [
            (&[][..], "kernel.msgmax"),
            (&["kernel.msg*"], "kernel.sem"),
            (&["net.core.somaxconn"], "net.core.somaxconn.more"),
            (&["*"], "kernel.panic"),
            (&[], "vm.swappiness"),
        ] {
            assert_eq!(check(more, false, name), Err(format!("{name:?} not allowlisted")));
        }
    }

    #[test]
    fn nobody_sets_what_is_the_nodes() {
        let said = check(&[], true, "net.ipv4.tcp_syncookies").expect_err("the node's network");
        assert_eq!(said, "\"net.ipv4.tcp_syncookies\" not allowed with host Net enabled");
        let said = check(&[], true, "kernel.shm_rmid_forced").expect_err("the node's IPC");
        assert_eq!(said, "\"kernel.shm_rmid_forced\" not allowed with host IPC enabled");
    }

    #[test]
    fn names_have_dots_between_their_parts() {
        for (name, expected) in [
            ("net.ipv4.conf.eth0/1.x", "net.ipv4.conf.eth0/1.x"),
            ("net/ipv4/conf/eth0.1/x", "net.ipv4.conf.eth0/1.x"),
            ("plain", "plain"),
        ] {
            assert_eq!(dotted(name), expected);
        }
        assert!(is_namespaced("kernel.shm*") && !is_namespaced("kernel.*") && !is_namespaced("*"));
    }
}
