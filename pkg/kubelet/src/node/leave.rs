//! A Node's name is given back, so that another machine (or this one, made anew) may come by it at once.
//!
//! ```text
//! kubeadm reset ──> Node: GIVEN_BACK, not Ready    Lease: nobody's word
//! the next kubelet of that name registers ──> takes GIVEN_BACK away
//! ```
//!
//! A machine gives back only what its own kubelet has: another may have taken the Node over meanwhile.

use super::claim::{CLAIM, Claimant, NAMESPACE};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::path::Path;

/// The annotation of a Node that no machine has any more, although it is there still: why.
pub const GIVEN_BACK: &str = "minik8s.io/given-back";

/// Whose a Node is, as seen from a kubelet's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The kubelet of this folder has it.
    Own,
    /// Another kubelet's.
    Another,
    /// Nobody has said.
    Nobody,
}

/// Whose a Node is by its lease.
pub async fn holder(client: &Client, node: &str, root: &Path) -> Result<Holder, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    Ok(leases.get_opt(node).await?.map_or(Holder::Nobody, |lease| holder_of(&lease, root)))
}

fn holder_of(lease: &Lease, root: &Path) -> Holder {
    let annotations = lease.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(CLAIM)) {
        None => Holder::Nobody,
        Some(word) if Claimant::known(root).is_some_and(|own| own.said(word)) => Holder::Own,
        Some(_) => Holder::Another,
    }
}

/// Gives a Node back whose kubelet, with this folder, has ended. Whether it was that one's.
pub async fn give_back(client: &Client, node: &str, root: &Path, why: &str) -> Result<bool, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(lease) = leases.get_opt(node).await? else { return Ok(false) };
    if holder_of(&lease, root) != Holder::Own {
        return Ok(false);
    }
    mark(client, node, "False", "KubeletStopped", why).await?;
    forget_claim(&leases, lease).await?;
    Ok(true)
}

/// Gives back a Node whose machine cannot be asked: it looks for the cluster elsewhere.
pub async fn leave_behind(client: &Client, node: &str, reason: &str, why: &str) -> Result<(), kube::Error> {
    mark(client, node, "Unknown", reason, why).await?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(lease) = leases.get_opt(node).await? else { return Ok(()) };
    match forget_claim(&leases, lease).await {
        // It has just been renewed: its kubelet has found the cluster after all.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other,
    }
}

/// Only over what was seen: who has taken it since keeps it.
async fn forget_claim(leases: &Api<Lease>, lease: Lease) -> Result<(), kube::Error> {
    let (name, version) = (lease.metadata.name.unwrap_or_default(), lease.metadata.resource_version);
    let patch = json!({"metadata": {"resourceVersion": version, "annotations": {CLAIM: null}}});
    leases.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn mark(client: &Client, node: &str, ready: &str, reason: &str, why: &str) -> Result<(), kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let parameters = PatchParams::default();
    let annotation = json!({"metadata": {"annotations": {GIVEN_BACK: why}}});
    nodes.patch(node, &parameters, &Patch::Merge(annotation)).await?;
    let now = Time(Timestamp::now());
    let status = json!({"status": {"conditions": [{
        "type": "Ready", "status": ready, "reason": reason, "message": why,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}});
    nodes.patch_status(node, &parameters, &Patch::Strategic(status)).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ones_own_node_is_given_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let check = |word: Option<&str>, expected: Holder| {
            let annotations = word.map(|word| json!({CLAIM: word}));
            let lease = json!({"metadata": {"annotations": annotations}});
            let lease = serde_json::from_value(lease).expect("a lease");
            assert_eq!(holder_of(&lease, dir.path()), expected, "{word:?}");
        };
        // There was no kubelet here.
        check(Some("disk.boot/process"), Holder::Another);
        let own = Claimant::of(dir.path()).word();
        check(None, Holder::Nobody);
        check(Some(&own), Holder::Own);
        let before = format!("{}/before", own.split_once('/').expect("a word").0);
        check(Some(&before), Holder::Own);
        // The same disk, booted since.
        let booted = format!("{}.another/process", own.split_once('.').expect("a word").0);
        check(Some(&booted), Holder::Own);
        check(Some("disk.boot/process"), Holder::Another);
    }
}
