//! Claims of generic ephemeral volumes: made for a pod, owned by it.

use crate::runtime::{Write, controlled_by, owner_reference};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The claims that a pod lacks, and the names of those that are somebody else's.
pub fn plan(
    pod: &Pod,
    find: impl Fn(&str) -> Option<std::sync::Arc<PersistentVolumeClaim>>,
) -> (Vec<Write>, Vec<String>) {
    let (mut writes, mut foreign) = (Vec::new(), Vec::new());
    if pod.metadata.deletion_timestamp.is_some() {
        return (writes, foreign);
    }
    let pod_name = pod.metadata.name.as_deref().unwrap_or_default();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
        let Some(template) = template else { continue };
        let name = format!("{pod_name}-{}", volume.name);
        match find(&name) {
            Some(claim) => {
                let own = controlled_by(claim.as_ref(), pod.metadata.uid.as_deref().unwrap_or_default());
                foreign.extend((!own).then_some(name));
            }
            None => {
                let given = template.metadata.clone().unwrap_or_default();
                let claim = PersistentVolumeClaim {
                    metadata: ObjectMeta {
                        name: Some(name),
                        namespace: pod.metadata.namespace.clone(),
                        labels: given.labels,
                        annotations: given.annotations,
                        owner_references: Some(vec![owner_reference(pod)]),
                        ..ObjectMeta::default()
                    },
                    spec: Some(template.spec.clone()),
                    status: None,
                };
                writes.push(Write::create(&claim).tolerating(409));
            }
        }
    }
    (writes, foreign)
}
