//! What is in use stays: a claim while a pod has it, a volume while a claim has it.

use crate::runtime::Write;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use std::sync::Arc;

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// What to do about a claim, given the pods of its namespace.
pub fn plan_claim(claim: &PersistentVolumeClaim, pods: &[Arc<Pod>]) -> Option<Write> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    // A kubelet learns of a pod when it has a node.
    let has_node = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| !node.is_empty())
    };
    let used = pods.iter().any(|pod| has_node(pod) && super::claims(pod).iter().any(|used| used == name));
    Write::hold(claim, CLAIM, used)
}

/// What to do about a volume.
pub fn plan_volume(volume: &PersistentVolume) -> Option<Write> {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    Write::hold(volume, VOLUME, phase == Some("Bound"))
}
