//! This machine as a node of a cluster, as its kubelet's kubeconfig tells it.

use crate::layout;
use anyhow::{Context, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use std::path::Path;

/// A node of a cluster.
pub struct Member {
    /// Its name.
    pub name: String,
    /// The URL at which it looks for the API.
    pub server: String,
    config: Kubeconfig,
}

impl Member {
    /// What this machine is, if it is a node.
    pub fn of_this_machine() -> Result<Option<Member>> {
        let path = layout::etc("kubelet.conf");
        match std::fs::read_to_string(&path) {
            Err(_) => Ok(None),
            Ok(text) => Member::parse(&text).with_context(|| path.display().to_string()).map(Some),
        }
    }

    fn parse(text: &str) -> Result<Member> {
        let config = Kubeconfig::from_yaml(text).context("it is no kubeconfig")?;
        let user = config.contexts.iter().find_map(|named| named.context.as_ref()?.user.as_deref());
        let name = user.and_then(|user| user.strip_prefix("system:node:")).context("it names no node")?;
        let server = config.clusters.iter().find_map(|named| named.cluster.as_ref()?.server.clone());
        Ok(Member { name: name.to_owned(), server: server.context("it names no server")?, config })
    }

    /// A client that is this node.
    pub async fn client(&self) -> Result<Client> {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(self.config.clone(), &options).await;
        Client::try_from(config.context("understand the kubeconfig")?).context("make a client")
    }

    /// Tells the cluster that its kubelet has ended for good. Whether the node was its own.
    pub async fn gives_back(&self, why: &str) -> Result<bool> {
        let client = self.client().await?;
        Ok(kubelet::node::give_back(&client, &self.name, Path::new(layout::KUBELET), why).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_kubeconfig_says_whose_it_is() {
        let text = pki::kubeconfig("https://192.0.2.1:6443", "ca", "system:node:m2", "cert", "key");
        let member = Member::parse(&text).expect("a node's");
        assert_eq!((member.name.as_str(), member.server.as_str()), ("m2", "https://192.0.2.1:6443"));
        let text = pki::kubeconfig("https://192.0.2.1:6443", "ca", "admin", "cert", "key");
        assert!(Member::parse(&text).is_err());
    }
}
