//! Carries actions out. What takes time becomes a future; nothing is decided here.

use super::outcome::{Change, Outcome};
use super::{hooks, start};
use crate::allocation::{self, ALLOCATED, event_message};
use crate::error::chain;
use crate::host::resources;
use crate::plan::resize::below_usage;
use crate::plan::{
    ADDRESSES, Action, Ending, IN_FORCE, Memory, Step, Work, container_of, is_running, is_static,
};
use crate::runtime::{ContainerId, PodRef, PodView, SandboxId, SandboxSpec, SandboxView};
use crate::shared::Shared;
use crate::wake::Wake;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// After a failure that nothing announces the end of, work takes this long, so that it is not repeated at once.
const FAILED: Duration = Duration::from_secs(1);
/// However long a preStop hook takes, this much grace is left.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// What work needs.
#[derive(Clone)]
pub(super) struct Execution {
    /// The node.
    pub shared: Arc<Shared>,
    /// As wanted.
    pub pod: Arc<Pod>,
    /// Which.
    pub pod_ref: PodRef,
    /// Wakes the pod's worker.
    pub wake: Arc<Wake>,
}

impl Execution {
    /// Does what can be done at once, or gives the work that has to be done.
    pub fn begin(
        self,
        action: &Action,
        view: &PodView,
        memory: &mut Memory,
        cancels: &mut BTreeMap<String, CancellationToken>,
        now: Timestamp,
    ) -> Option<(Work, BoxFuture<'static, Outcome>)> {
        let (work, change): (Work, BoxFuture<'static, Change>) = match action.clone() {
            Action::TellBackOff { name, after, of_image } => {
                self.tell_back_off(&name, of_image);
                let own = view.containers.iter().filter(|one| one.name == name);
                let said = own.max_by_key(|one| one.attempt).and_then(|one| memory.messages.get(&one.id));
                if let Some(said) = said.filter(|said| is_static(&self.pod) && !said.is_empty()) {
                    // Without it there may be no API that could tell.
                    tracing::error!(
                        pod = self.pod_ref.name,
                        container = name,
                        "a static pod does not run: {said}"
                    );
                }
                memory.containers.entry(name).or_default().told = Some(after);
                return None;
            }
            Action::TellResized { generation } => {
                let message = event_message("Pod resize completed", &self.pod, generation, None);
                self.shared.events.normal(&self.pod, "ResizeCompleted", message);
                return None;
            }
            Action::CancelStart(name) => {
                if let Some(cancel) = cancels.get(&name) {
                    cancel.cancel();
                }
                return None;
            }
            Action::MountVolumes => {
                memory.refresh_at = None;
                (Work::Volumes, self.mount_volumes().boxed())
            }
            Action::StartSandbox { attempt } => (Work::Sandbox, self.start_sandbox(attempt).boxed()),
            Action::StartContainer { name, attempt, backoff } => {
                memory.containers.entry(name.clone()).or_default().backoff = backoff;
                let cancel = CancellationToken::new();
                cancels.insert(name.clone(), cancel.clone());
                let sandbox = running_sandbox(view)?;
                let work = Work::Start(name.clone());
                (work, start::start(self, sandbox, name, attempt, cancel).boxed())
            }
            Action::Resize(steps) => {
                let told = memory.resize.failed.as_ref().map(|failed| failed.message.clone());
                let generation = memory.resize.generation.or(self.pod.metadata.generation);
                (Work::Resize, self.resize(steps, generation, told).boxed())
            }
            Action::StopContainer { id, name, grace_s, message, hook, anew } => {
                if anew {
                    memory.containers.entry(name.clone()).or_default().anew = Some(id.clone());
                }
                let grace = Duration::from_secs(u64::try_from(grace_s).unwrap_or(0));
                memory.stopping.insert(id.clone(), now + SignedDuration::from_secs(grace_s));
                (Work::Stop(id.clone()), self.stop(id, name, grace, message, hook).boxed())
            }
            Action::ForgetContainer { id, name, attempt } => {
                (Work::Forget(id.clone()), self.forget(id, name, attempt).boxed())
            }
            Action::RemoveSandbox(id) => {
                let is_over = match &memory.ending {
                    Some(Ending::Gone) => false,
                    // It is wanted as long as its file is there.
                    Some(Ending::Failed { .. }) => !is_static(&self.pod),
                    _ => memory.ending_since.is_some(),
                };
                let status = is_over.then(|| memory.status.clone());
                if memory.ending.is_none() && memory.ending_since.is_none() {
                    self.tell_replaced(&id, view);
                }
                (Work::RemoveSandbox(id.clone()), self.remove_sandbox(id, status).boxed())
            }
            Action::CleanUp => (Work::CleanUp, self.clean_up().boxed()),
        };
        let done = work.clone();
        Some((work, change.map(|change| Outcome { work: done, change }).boxed()))
    }

    fn tell_back_off(&self, name: &str, of_image: bool) {
        let events = &self.shared.events;
        if of_image {
            let image = container_of(&self.pod, name).and_then(|(_, container)| container.image.clone());
            let image = image.unwrap_or_default();
            events.container(&self.pod, name, "BackOff", format!("Back-off pulling image \"{image}\""));
            events.container_warning(&self.pod, name, "Failed", "Error: ImagePullBackOff");
        } else {
            let PodRef { namespace, name: pod, uid } = &self.pod_ref;
            let message =
                format!("Back-off restarting failed container {name} in pod {pod}_{namespace}({uid})");
            events.container_warning(&self.pod, name, "BackOff", message);
        }
    }

    /// The sandbox of a pod that runs on has died: what runs in it still ends with it.
    fn tell_replaced(&self, id: &SandboxId, view: &PodView) {
        let (events, pod) = (&self.shared.events, &self.pod_ref.name);
        if !view.sandboxes.iter().any(|sandbox| sandbox.id == *id) {
            return;
        }
        tracing::info!(pod, sandbox = id.0, "a sandbox has died, and is replaced");
        events.normal(&self.pod, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.");
        for container in view.containers.iter().filter(|one| one.sandbox == *id && is_running(one)) {
            tracing::info!(pod, container = container.name, "end a container with its sandbox");
            let message = format!("Stopping container {}", container.name);
            events.container(&self.pod, &container.name, "Killing", message);
        }
    }

    async fn mount_volumes(self) -> Change {
        let Some(host) = &self.shared.host else { return Change::VolumesReady(None) };
        match host.mount(&self.pod, &self.wake).await {
            Ok(refresh_at) => Change::VolumesReady(refresh_at),
            Err(error) => {
                self.shared.events.warning(&self.pod, "FailedMount", error.to_string());
                Change::VolumesFailed
            }
        }
    }

    async fn start_sandbox(self, attempt: u32) -> Change {
        match self.try_start_sandbox(attempt).await {
            Ok(()) => Change::Nothing,
            Err(message) => {
                let message = format!("Failed to create pod sandbox: {message}");
                self.shared.events.warning(&self.pod, "FailedCreatePodSandBox", message);
                Change::SandboxFailed
            }
        }
    }

    async fn try_start_sandbox(&self, attempt: u32) -> Result<(), String> {
        let Shared { host, network, runtime, .. } = &*self.shared;
        let mut spec = match host {
            Some(host) => host.sandbox_spec(&self.pod).await?,
            None => SandboxSpec::default(),
        };
        spec.attempt = attempt;
        if host.is_none() {
            spec.resources = resources::of_pod(&self.pod, 0);
        }
        spec.annotations.insert(ALLOCATED.into(), allocation::written(&allocation::of(&self.pod)));
        let is_host = self.pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if !is_host {
            let attached = network.attach(&self.pod_ref, &self.pod).await.map_err(|error| chain(&error))?;
            spec.network_namespace = attached.namespace;
            spec.annotations.insert(ADDRESSES.into(), attached.addresses.join(","));
        }
        runtime.start_sandbox(&self.pod_ref, &spec).await.map_err(|error| chain(&error))?;
        Ok(())
    }

    async fn stop(self, id: ContainerId, name: String, grace: Duration, why: String, hook: bool) -> Change {
        if hook {
            let pod = &self.pod_ref.name;
            tracing::info!(pod, container = name, ?grace, why, "end a container");
            self.shared.events.container(&self.pod, &name, "Killing", why);
        }
        let began = Instant::now();
        if hook && !grace.is_zero() {
            hooks::pre_stop(&self.shared, &self.pod, &name, &id, grace).await;
        }
        let mut left = grace.saturating_sub(began.elapsed());
        if hook && began.elapsed() > Duration::from_millis(100) {
            left = left.max(LEAST_GRACE);
        }
        if let Err(error) = self.shared.runtime.stop_container(&id, left).await {
            tracing::warn!(
                pod = self.pod_ref.name,
                container = name,
                error = chain(&error),
                "stop a container"
            );
            tokio::time::sleep(FAILED).await;
        }
        Change::Stopped(id)
    }

    async fn resize(self, steps: Vec<Step>, generation: Option<i64>, told: Option<String>) -> Change {
        let done = self.try_resize(&steps).await;
        if let Err(message) = &done
            && told.as_ref() != Some(message)
        {
            let text = event_message("Pod resize error", &self.pod, generation, Some(message));
            self.shared.events.warning(&self.pod, "ResizeError", text);
        }
        Change::Resized(done.map_err(|message| (steps, message)))
    }

    async fn try_resize(&self, steps: &[Step]) -> Result<(), String> {
        let runtime = &self.shared.runtime;
        let usage = runtime.usage(&self.pod_ref).await.map_err(|error| chain(&error))?;
        below_usage(steps, &usage).map_or(Ok(()), Err)?;
        for step in steps {
            let done = match step {
                Step::Pod { sandbox, resources, allocated, .. } => {
                    let annotations = [(ALLOCATED.to_owned(), allocated.clone())].into();
                    runtime.update_sandbox(sandbox, resources, &annotations).await
                }
                Step::Container { id, resources, in_force, .. } => {
                    let in_force = serde_json::to_string(in_force).expect("amounts are plain data");
                    match runtime.update_container(id, resources).await {
                        Ok(()) => {
                            runtime.annotate_container(id, &[(IN_FORCE.to_owned(), in_force)].into()).await
                        }
                        failed => failed,
                    }
                }
            };
            done.map_err(|error| chain(&error))?;
        }
        Ok(())
    }

    async fn forget(self, id: ContainerId, name: String, attempt: u32) -> Change {
        match self.shared.runtime.remove_container(&id).await {
            Ok(()) => {
                if let Some(host) = &self.shared.host {
                    host.remove_log(&self.pod_ref, &name, attempt, &id);
                }
            }
            Err(error) => {
                tracing::warn!(pod = self.pod_ref.name, container = name, error = chain(&error), "remove");
                tokio::time::sleep(FAILED).await;
            }
        }
        Change::Nothing
    }

    async fn remove_sandbox(self, id: SandboxId, status: Option<PodStatus>) -> Change {
        if let (Some(host), Some(status)) = (&self.shared.host, status) {
            host.keep_status(&self.pod_ref, status).await;
        }
        if let Err(error) = self.shared.runtime.remove_sandbox(&id).await {
            tracing::warn!(pod = self.pod_ref.name, error = chain(&error), "remove a sandbox");
            tokio::time::sleep(FAILED).await;
            return Change::Nothing;
        }
        // A new sandbox begins with a new place in the network.
        self.detach().await;
        Change::Nothing
    }

    async fn detach(&self) -> bool {
        match self.shared.network.detach(&self.pod_ref).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(pod = self.pod_ref.name, error = chain(&error), "take a pod off the network");
                false
            }
        }
    }

    async fn clean_up(self) -> Change {
        let mut is_clean = self.detach().await;
        if let Some(host) = &self.shared.host
            && let Err(error) = host.clean(&self.pod_ref).await
        {
            tracing::warn!(pod = self.pod_ref.name, error = chain(&error), "remove what a pod left");
            is_clean = false;
        }
        if is_clean {
            return Change::Cleaned;
        }
        tokio::time::sleep(FAILED).await;
        Change::Nothing
    }
}

fn running_sandbox(view: &PodView) -> Option<SandboxView> {
    let running = view.sandboxes.iter().filter(|sandbox| sandbox.pid.is_some());
    running.max_by_key(|sandbox| sandbox.spec.attempt).cloned()
}
