//! What is said of pods, and how a request finds one.

use super::Server;
use super::answer::{self, Answer, Refusal};
use super::route::PodPath;
use crate::runtime::{ContainerState, ContainerView, PodRef, PodView};
use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;

/// `/pods`: what this node is to run.
pub fn all(server: &Server) -> Answer {
    let items = server.pods.pods();
    let items: Vec<&Pod> = items.iter().map(|pod| &**pod).collect();
    answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
}

/// `/runningpods`: what really runs, whoever wanted it.
pub async fn running(server: &Server) -> Result<Answer, Refusal> {
    let views = server
        .runtime
        .pods()
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let items: Vec<_> = views
        .iter()
        .filter(|view| runs(view))
        .map(|view| {
            let containers: Vec<_> = view
                .containers
                .iter()
                .filter(|c| is_running(c))
                .map(|c| json!({"name": c.name, "image": c.image_ref, "resources": {}}))
                .collect();
            json!({
                "metadata": {"name": view.pod.name, "namespace": view.pod.namespace, "uid": view.pod.uid},
                "spec": {"containers": containers},
                "status": {},
            })
        })
        .collect();
    Ok(answer::json(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})))
}

/// `/healthz`: whether pods are still looked after.
pub fn health(server: &Server) -> Result<Answer, Refusal> {
    match server.pods.sync_loop() {
        Ok(()) => Ok(answer::text("ok")),
        Err(why) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("[+]ping ok\n[+]log ok\n[-]syncloop failed: {why}\nhealthz check failed\n"),
        )),
    }
}

fn runs(view: &PodView) -> bool {
    view.sandboxes.iter().any(|sandbox| sandbox.pid.is_some())
}

/// Whether a container runs now.
pub fn is_running(container: &ContainerView) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}

/// The pod that a path names, and the runtime's name for it.
pub fn find(server: &Server, path: &PodPath) -> Result<(Arc<Pod>, PodRef), Refusal> {
    let not_found = |text: &str| (StatusCode::NOT_FOUND, text.to_owned());
    let pod = server.pods.pod(&path.namespace, &path.pod).ok_or_else(|| not_found("pod does not exist"))?;
    let found = reference(&pod);
    match &path.uid {
        Some(uid) if *uid != found.uid => Err(not_found("pod not found")),
        _ => Ok((pod, found)),
    }
}

/// The runtime's name for a pod.
pub fn reference(pod: &Pod) -> PodRef {
    PodRef {
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        uid: pod.metadata.uid.clone().unwrap_or_default(),
    }
}

/// The container that runs under a name in a pod.
pub async fn running_container(server: &Server, pod: &PodRef, name: &str) -> Result<ContainerView, Refusal> {
    let view = server
        .runtime
        .pod(pod)
        .await
        .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let found =
        view.containers.into_iter().rev().find(|container| container.name == name && is_running(container));
    found.ok_or_else(|| (StatusCode::INTERNAL_SERVER_ERROR, format!("container not found ({name:?})")))
}
