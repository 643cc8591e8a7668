//! The nodes as users of Redis: made when a node is admitted, removed with it.
//!
//! ```text
//! Node ──> its name and uid ──> password (made of the cluster's own key, kept nowhere)
//!              │                   ├──> SHA-256 ──> ACL SETUSER
//!              └── GET nodes/<name>/redis, which the Node authorizer lets only that node ask
//! ```
//!
//! A password that is computed needs no object for each node, is the same for every apiserver, and is another one when the
//! node is another, by its uid.

use super::outlet::{Outlet, Purpose};
use crate::answer::{self, Answer};
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::handler::Call;
use crate::registry::Resource;
use crate::server::{Server, StartError};
use crate::storage::parse;
use bus::{Connection, RedisUser, Reply, command, node_user, password_hash};
use http::StatusCode;
use listwatch::{Event, EventType, Object};
use ring::hmac;
use serde_json::json;
use std::collections::HashSet;

/// Makes the passwords of nodes.
#[derive(Clone)]
pub struct NodePasswords(hmac::Key);

impl NodePasswords {
    /// Of what all apiservers of a cluster have, and nobody else: the key that signs tokens.
    pub fn new(config: &Config) -> std::result::Result<NodePasswords, StartError> {
        let path = match &config.service_account_signing_key_file {
            Some(path) => path.clone(),
            None => config.cert_dir().join("sa.key"),
        };
        let key = std::fs::read(&path).map_err(|source| StartError::File { path, source })?;
        Ok(NodePasswords(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The password of the node of this name and uid.
    pub fn of(&self, name: &str, uid: &str) -> String {
        let text = format!("redis password of a node\n{name}\n{uid}");
        let tag = hmac::sign(&self.0, text.as_bytes());
        tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// `nodes/redis`: who the node is at Redis, and by which password.
pub async fn handle(server: &Server, nodes: &Resource, call: &Call<'_>) -> Result<Answer> {
    let Some(redis) = &server.config.redis else {
        return Err(ApiError::not_found_text("this cluster has no Redis (apiserver --redis-url)"));
    };
    let name = &*call.target.name;
    let node = server.read(nodes, "", name).await?.object;
    let uid = node["metadata"]["uid"].as_str().unwrap_or_default();
    Ok(answer::json(
        StatusCode::OK,
        &json!({
            "kind": "RedisCredentials", "apiVersion": "minik8s.io/v1",
            "metadata": {"name": name},
            "spec": {
                "user": node_user(&redis.server.cluster, name),
                "password": server.node_passwords.of(name, uid),
            },
        }),
    ))
}

/// Makes and removes the users of nodes.
#[derive(Clone)]
pub struct NodeUsers {
    cluster: String,
    passwords: NodePasswords,
}

impl NodeUsers {
    /// Of a cluster.
    pub fn new(cluster: &str, passwords: NodePasswords) -> NodeUsers {
        NodeUsers { cluster: cluster.to_owned(), passwords }
    }

    /// Users of nodes that Redis knows and the cluster does not. A Redis that does not tell has none to remove.
    pub async fn stale(&self, connection: &mut Connection, nodes: &[std::sync::Arc<Object>]) -> Vec<String> {
        let Ok(Reply::Parts(users)) = connection.call(&["ACL", "USERS"]).await else { return Vec::new() };
        let known: HashSet<String> = nodes.iter().map(|node| node_user(&self.cluster, node.name())).collect();
        let prefix = node_user(&self.cluster, "");
        let users = users.iter().filter_map(Reply::text);
        users.filter(|user| user.starts_with(&prefix) && !known.contains(*user)).map(str::to_owned).collect()
    }

    /// Makes the users of these nodes as they are to be, and removes the others.
    pub async fn make_all(&self, outlet: &Outlet, nodes: &[std::sync::Arc<Object>], stale: Vec<String>) {
        for user in stale {
            outlet.send(command(&["ACL", "DELUSER", &user]), Purpose::User).await;
        }
        for node in nodes {
            self.make(outlet, node).await;
        }
    }

    /// A node has come, changed or gone.
    pub async fn changed(&self, outlet: &Outlet, event: &Event) -> bool {
        match event.kind {
            EventType::Added => self.make(outlet, &event.object).await,
            EventType::Modified => true,
            EventType::Deleted => {
                let user = node_user(&self.cluster, event.object.name());
                outlet.send(command(&["ACL", "DELUSER", &user]), Purpose::User).await
            }
        }
    }

    async fn make(&self, outlet: &Outlet, node: &Object) -> bool {
        let object = parse(node.as_json()).unwrap_or_default();
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let hash = password_hash(&self.passwords.of(node.name(), uid));
        match RedisUser::node(node.name(), &self.cluster, hash) {
            Some(user) => outlet.send(command(&user.set()), Purpose::User).await,
            None => true,
        }
    }
}
