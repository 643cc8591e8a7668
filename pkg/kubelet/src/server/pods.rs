//! What is said of pods, and how a request finds one.

use super::Server;
use super::answer::{self, Answer, Refusal};
use super::route::PodPath;
use crate::runtime::{Error, PodRef};
use http::StatusCode;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;
use std::sync::Arc;

/// `/pods`: what this node is to run.
pub fn all(server: &Server) -> Answer {
    let items = server.provider.list();
    let items: Vec<&Pod> = items.iter().map(|pod| &**pod).collect();
    answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// `/runningpods`: what really runs, whoever wanted it.
pub async fn running(server: &Server) -> Result<Answer, Refusal> {
    let running = server.provider.running().await.map_err(|error| failed(&error))?;
    let items: Vec<_> = running
        .iter()
        .map(|(pod, containers)| {
            let containers: Vec<_> = containers
                .iter()
                .map(|(name, image)| json!({"name": name, "image": image, "resources": {}}))
                .collect();
            json!({
                "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
                "spec": {"containers": containers},
                "status": {},
            })
        })
        .collect();
    Ok(answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})))
}

/// `/healthz`: whether pods are still looked after.
pub fn health(server: &Server) -> Result<Answer, Refusal> {
    match (server.health)() {
        Ok(()) => Ok(answer::text("ok")),
        Err(why) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("[+]ping ok\n[+]log ok\n[-]syncloop failed: {why}\nhealthz check failed\n"),
        )),
    }
}

/// What the provider could not do.
pub fn failed(error: &Error) -> Refusal {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}

/// The pod of that name: one that is on its way out may have a successor already.
pub fn named(server: &Server, namespace: &str, name: &str) -> Option<Arc<Pod>> {
    let is_it = |pod: &Arc<Pod>| {
        pod.metadata.namespace.as_deref() == Some(namespace) && pod.metadata.name.as_deref() == Some(name)
    };
    let age =
        |pod: &Arc<Pod>| (pod.metadata.deletion_timestamp.is_none(), pod.metadata.creation_timestamp.clone());
    server.provider.list().into_iter().filter(is_it).max_by_key(age)
}

/// The pod that a path names, and the provider's name for it.
pub fn find(server: &Server, path: &PodPath) -> Result<(Arc<Pod>, PodRef), Refusal> {
    let not_found = |text: &str| (StatusCode::NOT_FOUND, text.to_owned());
    let pod = named(server, &path.namespace, &path.pod).ok_or_else(|| not_found("pod does not exist"))?;
    let found = reference(&pod);
    match &path.uid {
        Some(uid) if *uid != found.uid => Err(not_found("pod not found")),
        _ => Ok((pod, found)),
    }
}

/// The provider's name for a pod.
pub fn reference(pod: &Pod) -> PodRef {
    crate::worker::pod_ref(pod)
}

/// The statuses of all containers of a pod.
pub fn statuses(pod: &Pod) -> impl Iterator<Item = &ContainerStatus> {
    let lists = pod.status.iter().flat_map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    lists.flatten().flatten()
}

/// Refuses where a pod has no container of that name that runs.
pub fn must_run(pod: &Pod, name: &str) -> Result<(), Refusal> {
    let runs = |status: &ContainerStatus| status.state.as_ref().is_some_and(|state| state.running.is_some());
    if statuses(pod).any(|status| status.name == name && runs(status)) {
        return Ok(());
    }
    Err((StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({name:?})")))
}
