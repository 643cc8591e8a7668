//! Starts one container: its image, its configuration, its process, its postStart hook.

use super::execute::Execution;
use super::outcome::{Change, StartFailure};
use super::{hooks, image};
use crate::error::chain;
use crate::host::ContainerContext;
use crate::plan::{ADDRESSES, HASH, IN_FORCE, container_of};
use crate::runtime::{ContainerSpec, ContainerState, SandboxView};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The labels and annotations that upstream's kubelet and CRI tools know.
pub mod labels {
    /// A label: the pod's name.
    pub const POD_NAME: &str = "io.kubernetes.pod.name";
    /// A label: the pod's namespace.
    pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
    /// A label: the pod's uid.
    pub const POD_UID: &str = "io.kubernetes.pod.uid";
    /// A label: the container's name.
    pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
    /// An annotation: how often it was restarted.
    pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
    /// An annotation: where in the container its last words are.
    pub const MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
    /// An annotation: whether its log stands in for them.
    pub const MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    /// An annotation: how long it may take to end.
    pub const GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
}

/// Starts it.
pub(super) async fn start(
    execution: Execution,
    sandbox: SandboxView,
    name: String,
    attempt: u32,
    cancel: CancellationToken,
) -> Change {
    match try_start(&execution, &sandbox, &name, attempt, &cancel).await {
        Ok(true) => Change::Started,
        Ok(false) => Change::Nothing,
        Err(failure) => {
            let Execution { shared, pod, .. } = &execution;
            match failure.reason.as_str() {
                // Said already, in its own words.
                "PostStartHookError" => {}
                "ErrImagePull" | "ErrImageNeverPull" | "InvalidImageName" => {
                    let message = format!("Error: {}", failure.reason);
                    shared.events.container_warning(pod, &name, "Failed", message);
                }
                _ => {
                    let message = format!("Error: {}", failure.message);
                    shared.events.container_warning(pod, &name, "Failed", message);
                }
            }
            Change::StartFailed(failure)
        }
    }
}

/// Whether it was started; not if that was cancelled.
async fn try_start(
    execution: &Execution,
    sandbox: &SandboxView,
    name: &str,
    attempt: u32,
    cancel: &CancellationToken,
) -> Result<bool, StartFailure> {
    let Execution { shared, pod, pod_ref, wake } = execution;
    let Some((_, container)) = container_of(pod, name) else { return Ok(false) };
    let image = tokio::select! {
        image = image::ensure(execution, &container) => image?,
        () = cancel.cancelled() => return Ok(false),
    };
    let mut spec = match &shared.host {
        None => ContainerSpec::default(),
        Some(host) => {
            let addresses = addresses(sandbox);
            let features = shared.runtime.handlers().await.get(&sandbox.spec.handler).copied();
            let features = features.unwrap_or_default();
            let container = &container;
            let context = ContainerContext { pod, container, attempt, addresses, image: &image, features };
            let configured = host.container_spec(context, wake).await;
            configured.map_err(|message| failed("CreateContainerConfigError", message))?
        }
    };
    name.clone_into(&mut spec.name);
    spec.attempt = attempt;
    spec.image = image.id.clone();
    spec.image_ref = container.image.clone().unwrap_or_default();
    spec.annotations.insert(HASH.into(), crate::hash::of_container(&container));
    let resources = container.resources.clone().unwrap_or_default();
    let in_force = serde_json::to_string(&resources).expect("amounts are plain data");
    spec.annotations.insert(IN_FORCE.into(), in_force);
    if cancel.is_cancelled() {
        return Ok(false);
    }
    let view = match shared.runtime.start_container(pod_ref, &sandbox.id, &spec).await {
        Ok(view) => view,
        Err(error) => {
            let view = shared.runtime.pod(pod_ref).await.ok();
            let half = view.and_then(|view| {
                view.containers.into_iter().find(|other| other.name == name && other.attempt == attempt)
            });
            let made = half.as_ref().is_some_and(|half| half.state != ContainerState::Created);
            if made {
                shared.events.container(pod, name, "Created", "Container created");
            } else if let Some(half) = half {
                // What could not be started begins anew.
                if let Err(error) = shared.runtime.remove_container(&half.id).await {
                    tracing::warn!(pod = pod_ref.name, container = name, error = chain(&error), "remove");
                }
            }
            let reason = if made { "RunContainerError" } else { "CreateContainerError" };
            return Err(failed(reason, chain(&error)));
        }
    };
    shared.events.container(pod, name, "Created", "Container created");
    shared.events.container(pod, name, "Started", "Container started");
    if let Some(host) = &shared.host {
        host.link_log(pod_ref, name, &view.id, &spec.log_path);
    }
    let hook = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.post_start.as_ref());
    let Some(hook) = hook else { return Ok(true) };
    let ran = tokio::select! {
        ran = hooks::run(shared, pod, &container, &view.id, hook) => ran,
        () = cancel.cancelled() => return Ok(true),
    };
    if let Err(message) = ran {
        tracing::warn!(pod = pod_ref.name, container = name, message, "postStart hook");
        shared.events.container_warning(pod, name, "FailedPostStartHook", "PostStartHook failed");
        shared.events.container(pod, name, "Killing", "FailedPostStartHook");
        let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(30));
        if let Err(error) = shared.runtime.stop_container(&view.id, grace).await {
            tracing::warn!(pod = pod_ref.name, container = name, error = chain(&error), "stop a container");
        }
        return Err(failed("PostStartHookError", message));
    }
    Ok(true)
}

fn addresses(sandbox: &SandboxView) -> Vec<String> {
    let list = sandbox.spec.annotations.get(ADDRESSES);
    list.into_iter().flat_map(|list| list.split(',')).filter(|ip| !ip.is_empty()).map(Into::into).collect()
}

fn failed(reason: &str, message: String) -> StartFailure {
    StartFailure { reason: reason.into(), message, of_pull: false }
}
