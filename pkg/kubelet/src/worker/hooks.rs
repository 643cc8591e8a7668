//! Lifecycle hooks: postStart and preStop.

use crate::plan::container_of;
use crate::probe::{exec, http};
use crate::runtime::ContainerId;
use crate::shared::Shared;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Pod};
use std::time::Duration;

/// No hook may take longer than the longest grace.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs a hook to its end. An error: its message.
pub(super) async fn run(
    shared: &Shared,
    pod: &Pod,
    container: &Container,
    id: &ContainerId,
    hook: &LifecycleHandler,
) -> Result<(), String> {
    if let Some(action) = &hook.exec {
        let command = action.command.clone().unwrap_or_default();
        return match exec::run(&*shared.runtime, id, command, LONGEST).await {
            Ok((0, _)) => Ok(()),
            Ok((code, output)) => Err(format!("exited with {code}: {output}")),
            Err(error) => Err(error),
        };
    }
    if let Some(action) = &hook.http_get {
        let address = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let address = match address {
            Some(address) => address,
            None => shared.pod_address(pod).await.ok_or("the pod has no address")?,
        };
        let request = http::Request::of(action, container, &address)?;
        let answer = request.send(LONGEST).await?;
        return if answer.status < 400 { Ok(()) } else { Err(format!("answered {}", answer.status)) };
    }
    if let Some(action) = &hook.sleep {
        tokio::time::sleep(Duration::from_secs(u64::try_from(action.seconds).unwrap_or(0))).await;
    }
    Ok(())
}

/// Runs a container's preStop hook, for no longer than its grace.
pub(super) async fn pre_stop(shared: &Shared, pod: &Pod, name: &str, id: &ContainerId, grace: Duration) {
    let Some((_, container)) = container_of(pod, name) else { return };
    let Some(hook) = container.lifecycle.as_ref().and_then(|lifecycle| lifecycle.pre_stop.as_ref()) else {
        return;
    };
    match tokio::time::timeout(grace, run(shared, pod, &container, id, hook)).await {
        Ok(Ok(())) => {}
        Ok(Err(message)) => {
            tracing::warn!(pod = pod.metadata.name, container = name, message, "preStop hook");
            shared.events.container_warning(pod, name, "FailedPreStopHook", "PreStopHook failed");
        }
        Err(_) => tracing::info!(container = name, "preStop hook not completed in grace period"),
    }
}
