//! Redis' users: one for each program and each node of a cluster.
//!
//! ```text
//! minik8s:kube-apiserver             publishes, makes the users of nodes
//! minik8s:kube-controller-manager    hears of everything
//! minik8s:kube-scheduler …           hears of what it reads
//! minik8s:node:worker-1              hears of its own pods, itself, and what every node may read
//! ```
//!
//! Redis only ever learns a password's hash. Patterns are not used by anybody: a user may subscribe to these channels by name, and
//! do nothing else.

use crate::Channel;
use ring::digest::{SHA256, digest};

/// What of the API every node may list and watch, and its kubelet and kube-proxy do.
pub const EVERY_NODE: &[&str] = &[
    "services",
    "nodes",
    "endpointslices.discovery.k8s.io",
    "servicecidrs.networking.k8s.io",
    "ingressclasses.networking.k8s.io",
    "ingresses.networking.k8s.io",
    "dnses.minik8s.io",
];

const SCHEDULER: &[&str] = &[
    "nodes",
    "pods",
    "namespaces",
    "services",
    "replicasets.apps",
    "statefulsets.apps",
    "replicationcontrollers",
    "poddisruptionbudgets.policy",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "csinodes.storage.k8s.io",
];

const KNATIVE: &[&str] = &[
    "pods",
    "jobs.batch",
    "controllerrevisions.apps",
    "functions.minik8s.io",
    "functioncalls.minik8s.io",
    "workflows.minik8s.io",
    "workflowruns.minik8s.io",
];

/// The programs of a control plane: their users, and what each may do.
pub const COMPONENTS: &[(&str, Permission)] = &[
    ("kube-apiserver", Permission::Publish),
    ("kube-controller-manager", Permission::HearAll),
    ("kube-scheduler", Permission::Hear(SCHEDULER)),
    ("knative", Permission::Hear(KNATIVE)),
];

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Publish on the cluster's channels, and make users.
    Publish,
    /// Subscribe to all of the cluster's channels.
    HearAll,
    /// Subscribe to the channels of these resources.
    Hear(&'static [&'static str]),
}

/// A user, with what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisUser {
    /// As it is called.
    pub name: String,
    /// The SHA-256 of its password, in hexadecimal.
    pub password_hash: String,
    commands: Vec<&'static str>,
    channels: Vec<String>,
}

/// What Redis keeps of a password.
pub fn password_hash(password: &str) -> String {
    digest(&SHA256, password.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

impl RedisUser {
    /// A program of the control plane.
    pub fn component(name: &str, permission: Permission, cluster: &str, password_hash: String) -> RedisUser {
        let all = format!("&{cluster}:*");
        let (commands, channels) = match permission {
            Permission::Publish => {
                let commands = vec!["+publish", "+ping", "+acl|setuser", "+acl|deluser", "+acl|users"];
                (commands, vec![all])
            }
            Permission::HearAll => (hears(), vec![all]),
            Permission::Hear(resources) => (hears(), channels_of(resources, cluster)),
        };
        RedisUser { name: format!("{cluster}:{name}"), password_hash, commands, channels }
    }

    /// A node: its kubelet and its kube-proxy. None if it has a name that Redis could take for a pattern.
    pub fn node(node: &str, cluster: &str, password_hash: String) -> Option<RedisUser> {
        let own = ["pods", "nodes"].map(|resource| Channel::of_node(node, resource));
        let mut channels = channels_of(EVERY_NODE, cluster);
        for channel in own {
            channels.push(format!("&{}", channel?.name(cluster)));
        }
        Some(RedisUser { name: node_user(cluster, node), password_hash, commands: hears(), channels })
    }

    /// The command that makes Redis know it so, whatever it knew before.
    pub fn set(&self) -> Vec<String> {
        let mut words = ["ACL", "SETUSER", &self.name, "reset", "on"].map(str::to_owned).to_vec();
        words.push(format!("#{}", self.password_hash));
        words.extend(self.commands.iter().map(|&command| command.to_owned()));
        words.extend(self.channels.iter().cloned());
        words
    }

    /// As a line of Redis' ACL file.
    pub fn line(&self) -> String {
        let mut words = self.set();
        words.drain(..2);
        format!("user {}\n", words.join(" "))
    }
}

/// What a node is called.
pub fn node_user(cluster: &str, node: &str) -> String {
    format!("{cluster}:node:{node}")
}

fn hears() -> Vec<&'static str> {
    vec!["+subscribe", "+unsubscribe", "+ping"]
}

fn channels_of(resources: &[&str], cluster: &str) -> Vec<String> {
    let all = resources.iter().map(|resource| Channel::All((*resource).to_owned()));
    all.chain([Channel::Heartbeat]).map(|channel| format!("&{}", channel.name(cluster))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_hears_of_its_own_and_of_what_all_may_read() {
        let user = RedisUser::node("n1", "blue", password_hash("secret")).expect("a good name");
        let line = user.line();
        assert!(
            line.starts_with("user blue:node:n1 reset on #2bb80d537b1da3e38bd30361aa855686bde0eacd"),
            "{line}"
        );
        assert!(line.contains(" &blue:node:n1:pods ") && line.contains(" &blue:all:services "), "{line}");
        for forbidden in ["all:pods", "secrets", "publish", "*", "node:n2:", "@", "secret "] {
            assert!(!line.contains(forbidden), "{forbidden} in {line}");
        }
        assert_eq!(RedisUser::node("*", "blue", String::new()), None);
    }

    #[test]
    fn only_the_apiserver_publishes() {
        for (name, permission) in COMPONENTS {
            let line = RedisUser::component(name, *permission, "blue", password_hash("a")).line();
            assert_eq!(line.contains("+publish"), *name == "kube-apiserver", "{line}");
            assert!(!line.contains("secrets"), "{line}");
        }
    }
}
