//! What people ask of containers, on a runtime.

use crate::provider::{LogFile, Running};
use crate::runtime::{
    ContainerState, ContainerView, Error, Event, ExecSpec, PodRef, Runtime, Session, Usage,
};
use futures::{FutureExt, StreamExt};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Logs, commands and figures of the containers of a runtime.
#[derive(Clone)]
pub struct Sessions {
    runtime: Arc<dyn Runtime>,
}

impl Sessions {
    /// Of this runtime.
    pub fn new(runtime: Arc<dyn Runtime>) -> Sessions {
        Sessions { runtime }
    }

    /// The log of a container.
    pub async fn logs(&self, pod: &PodRef, container_id: &str) -> Result<LogFile, Error> {
        let view = self.runtime.pod(pod).await?;
        let found = view.containers.into_iter().find(|container| container.id.0 == container_id);
        let found = found.ok_or_else(|| Error::NotFound(format!("container {container_id}")))?;
        let (runtime, pod, id) = (self.runtime.clone(), pod.clone(), found.id);
        let ended = async move {
            // Listened to before looking: nothing can happen unseen in between.
            let mut events = runtime.events();
            loop {
                match runtime.pod(&pod).await {
                    Ok(view) => {
                        let own = view.containers.iter().find(|container| container.id == id);
                        if !own.is_some_and(is_running) {
                            return;
                        }
                    }
                    // The runtime is away; its containers are not.
                    Err(error) => tracing::debug!(%error, "look at a container whose log is followed"),
                }
                loop {
                    match events.next().await {
                        Some(Event::Changed(changed)) if changed != pod => {}
                        Some(Event::Images) => {}
                        Some(Event::Changed(_) | Event::Lost) => break,
                        None => return,
                    }
                }
            }
        };
        Ok(LogFile { path: found.log_path, ended: ended.boxed() })
    }

    /// Executes something.
    pub async fn exec(&self, pod: &PodRef, container: &str, spec: &ExecSpec) -> Result<Session, Error> {
        let container = self.container(pod, container).await?;
        self.runtime.exec(&container.id, spec).await
    }

    /// Attaches to a container.
    pub async fn attach(&self, pod: &PodRef, container: &str, stdin: bool) -> Result<Session, Error> {
        let container = self.container(pod, container).await?;
        self.runtime.attach(&container.id, stdin).await
    }

    /// The network that a pod's ports are in.
    pub async fn ports(&self, pod: &PodRef) -> Result<Option<PathBuf>, Error> {
        let view = self.runtime.pod(pod).await?;
        let sandbox = view.sandboxes.into_iter().rev().find(|sandbox| sandbox.pid.is_some());
        let missing = || Error::Container(format!("sandbox of pod {} is not running", pod.name));
        Ok(sandbox.ok_or_else(missing)?.spec.network_namespace)
    }

    /// What the containers of a pod use.
    pub async fn usage(&self, pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        self.runtime.usage(pod).await
    }

    /// The containers that run, of each pod with a sandbox that runs.
    pub async fn running(&self) -> Result<Vec<(PodRef, Vec<Running>)>, Error> {
        let views = self.runtime.pods().await?;
        let running = views.into_iter().filter(|view| view.sandboxes.iter().any(|s| s.pid.is_some()));
        let names = |containers: Vec<ContainerView>| {
            let running = containers.into_iter().filter(is_running);
            running.map(|container| (container.name, container.image_ref)).collect()
        };
        Ok(running.map(|view| (view.pod, names(view.containers))).collect())
    }

    /// The container that runs under a name in a pod.
    async fn container(&self, pod: &PodRef, name: &str) -> Result<ContainerView, Error> {
        let view = self.runtime.pod(pod).await?;
        let found = view.containers.into_iter().rev().find(|c| c.name == name && is_running(c));
        found.ok_or_else(|| Error::Container(format!("container not found ({name:?})")))
    }
}

fn is_running(container: &ContainerView) -> bool {
    matches!(container.state, ContainerState::Running { .. })
}
