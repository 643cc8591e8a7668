//! `kubeadm redis-users`: the commands that make a cluster's users at a Redis that somebody else runs.

use super::admin_client;
use crate::redis;
use anyhow::{Context, Result};
use bus::{RedisUser, password_hash};
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

/// What it is told.
#[derive(Args)]
#[command(
    after_help = "Example, where the API server itself may not make users at that Redis:\n  kubeadm redis-users | redis-cli -h cache.example.com"
)]
pub struct Flags {
    /// What the names of the cluster's channels and users begin with: the path of --redis-url.
    #[arg(long, default_value = "minik8s")]
    cluster: String,
    /// Only the users of the control plane's programs, before there is an API to ask for nodes.
    #[arg(long)]
    without_nodes: bool,
}

/// Prints a line for each user. Passwords are not among it, only what Redis keeps of them.
pub async fn run(flags: Flags) -> Result<()> {
    let mut users = redis::users_of_components(&flags.cluster)?;
    if !flags.without_nodes {
        let client = admin_client().await?;
        let nodes: Api<Node> = Api::all(client.clone());
        for node in nodes.list(&ListParams::default()).await.context("list the nodes")? {
            let name = node.metadata.name.unwrap_or_default();
            let request = http::Request::get(format!("/api/v1/nodes/{name}/redis")).body(Vec::new())?;
            let answer: Value =
                client.request(request).await.with_context(|| format!("ask who {name} is"))?;
            let password = answer["spec"]["password"].as_str().context("the answer has no password")?;
            users.extend(RedisUser::node(&name, &flags.cluster, password_hash(password)));
        }
    }
    for user in users {
        println!("{}", user.set().join(" "));
    }
    Ok(())
}
