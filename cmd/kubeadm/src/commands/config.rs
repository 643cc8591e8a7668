//! `kubeadm config`: what the cluster was told.

use super::admin_client;
use anyhow::{Context, Result};
use clap::Subcommand;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

/// What can be done with the configuration.
#[derive(Subcommand)]
pub enum Command {
    /// Print the cluster's configuration.
    Print,
}

/// Does it.
pub async fn run(command: Command) -> Result<()> {
    let Command::Print = command;
    let api: Api<ConfigMap> = Api::namespaced(admin_client().await?, "kube-system");
    let config = api.get("kubeadm-config").await.context("read kubeadm-config")?;
    let text = config.data.and_then(|mut data| data.remove("ClusterConfiguration"));
    print!("{}", text.context("kubeadm-config is empty")?);
    Ok(())
}
