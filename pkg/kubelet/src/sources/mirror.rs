//! Mirror pods: what the apiserver shows of static pods.

use super::manifest::{HASH, MIRROR};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Whether a pod of the API stands for a static one.
pub(crate) fn is_mirror(pod: &Pod) -> bool {
    hash_of(pod, MIRROR).is_some()
}

fn hash_of<'a>(pod: &'a Pod, annotation: &str) -> Option<&'a String> {
    pod.metadata.annotations.as_ref()?.get(annotation)
}

/// What to do about mirrors.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    /// Make one.
    Create(Arc<Pod>),
    /// Remove one that stands for nothing, or for something else.
    Delete(Arc<Pod>),
}

/// Namespace and name.
pub(crate) type Name = (String, String);

/// Compares static pods with the mirrors that there are.
pub(crate) fn plan(statics: &[Arc<Pod>], mirrors: &BTreeMap<Name, Arc<Pod>>) -> Vec<Action> {
    let mut actions = Vec::new();
    for (name, mirror) in mirrors {
        let of = statics.iter().find(|pod| name_of(pod) == *name);
        let matches = of.is_some_and(|pod| hash_of(pod, HASH) == hash_of(mirror, MIRROR));
        if !matches || mirror.metadata.deletion_timestamp.is_some() {
            actions.push(Action::Delete(mirror.clone()));
        }
    }
    for pod in statics {
        if !mirrors.contains_key(&name_of(pod)) {
            actions.push(Action::Create(pod.clone()));
        }
    }
    actions
}

/// Namespace and name of a pod.
pub(crate) fn name_of(pod: &Pod) -> Name {
    let meta = &pod.metadata;
    (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// Does it. An error is told and tried again later.
pub(crate) async fn execute(
    client: Client,
    action: Action,
    owner: Option<OwnerReference>,
) -> Result<(), kube::Error> {
    match action {
        Action::Create(pod) => {
            let mut mirror = (*pod).clone();
            let hash = hash_of(&mirror, HASH).cloned().unwrap_or_default();
            mirror.metadata.annotations.get_or_insert_default().insert(MIRROR.into(), hash);
            mirror.metadata.uid = None;
            mirror.metadata.owner_references = owner.map(|owner| vec![owner]);
            let api: Api<Pod> =
                Api::namespaced(client, mirror.metadata.namespace.as_deref().unwrap_or_default());
            match api.create(&PostParams::default(), &mirror).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                Err(error) => Err(error),
            }
        }
        Action::Delete(mirror) => {
            let (namespace, name) = name_of(&mirror);
            let api: Api<Pod> = Api::namespaced(client, &namespace);
            let only_it = Preconditions { uid: mirror.metadata.uid.clone(), resource_version: None };
            let params =
                DeleteParams { preconditions: Some(only_it), ..DeleteParams::default().grace_period(0) };
            match api.delete(&name, &params).await {
                Ok(_) => Ok(()),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
                Err(error) => Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, annotations: Value, deleted: bool) -> Arc<Pod> {
        let deletion = deleted.then_some("2026-01-01T00:00:00Z");
        Arc::new(
            serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name,
                "annotations": annotations, "deletionTimestamp": deletion}}))
            .expect("a pod"),
        )
    }

    #[test]
    fn mirrors_follow_static_pods() {
        let statics: Vec<Arc<Pod>> =
            ["new", "same", "changed", "deleted"].map(|name| pod(name, json!({HASH: "1"}), false)).into();
        let mirrors: BTreeMap<Name, Arc<Pod>> = [
            pod("same", json!({MIRROR: "1"}), false),
            pod("changed", json!({MIRROR: "0"}), false),
            pod("deleted", json!({MIRROR: "1"}), true),
            pod("old", json!({MIRROR: "1"}), false),
        ]
        .into_iter()
        .map(|pod| (name_of(&pod), pod))
        .collect();
        let said: Vec<String> = plan(&statics, &mirrors)
            .into_iter()
            .map(|action| match action {
                Action::Create(pod) => format!("create {}", name_of(&pod).1),
                Action::Delete(pod) => format!("delete {}", name_of(&pod).1),
            })
            .collect();
        assert_eq!(said, ["delete changed", "delete deleted", "delete old", "create new"]);
    }
}
