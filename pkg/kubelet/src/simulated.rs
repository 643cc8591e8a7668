//! A runtime without containers: pods start, end and crash as a script says. A thousand nodes fit into one process.
//!
//! It keeps the door's promises: calls may be made again, what is gone is no error, events tell of every change.

use crate::runtime::{
    ContainerId, ContainerSpec, ContainerState, ContainerView, Credentials, Error, Event, ExecSpec, Image,
    ImageId, PodRef, PodView, Progress, Pulled, Resources, Runtime, SandboxId, SandboxSpec, SandboxView,
    Session, Usage,
};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// Events that a slow listener may be behind; then it is told that some were lost.
const EVENTS: usize = 256;

/// What a simulated container does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Act {
    /// How long it takes to start.
    pub start: Duration,
    /// How long it runs, and the code it ends with; `None`: until it is stopped.
    pub ends: Option<(Duration, i32)>,
    /// How long it takes to end once it is told to; longer than the grace, it is killed.
    pub stop: Duration,
    /// It cannot be started, for this reason.
    pub fails: Option<String>,
}

/// Decides what each container does: by its pod, its name and how often it ran before.
pub type Script = dyn Fn(&PodRef, &str, u32) -> Act + Send + Sync;

struct State {
    pods: BTreeMap<String, PodView>,
    stops: BTreeMap<ContainerId, CancellationToken>,
    images: BTreeMap<String, Image>,
}

/// The simulation.
pub struct Simulated {
    script: Box<Script>,
    state: Arc<Mutex<State>>,
    events: broadcast::Sender<Event>,
    count: AtomicU64,
}

impl Simulated {
    /// A runtime where containers run until they are stopped.
    pub fn new() -> Simulated {
        Simulated::with(|_, _, _| Act::default())
    }

    /// A runtime that follows a script.
    pub fn with(script: impl Fn(&PodRef, &str, u32) -> Act + Send + Sync + 'static) -> Simulated {
        let state = State { pods: BTreeMap::new(), stops: BTreeMap::new(), images: BTreeMap::new() };
        Simulated {
            script: Box::new(script),
            state: Arc::new(Mutex::new(state)),
            events: broadcast::channel(EVENTS).0,
            count: AtomicU64::new(0),
        }
    }

    /// Ends a container as if it had crashed.
    pub fn crash(&self, pod_uid: &str, container: &str, code: i32) {
        let mut found = None;
        if let Some(pod) = self.state.lock().pods.get_mut(pod_uid) {
            for view in pod.containers.iter_mut().filter(|view| view.name == container) {
                end(view, code);
                found = Some(pod.pod.clone());
            }
        }
        if let Some(pod) = found {
            self.tell(&pod);
        }
    }

    /// Forgets everything, as a machine that was started anew.
    pub fn reboot(&self) {
        let mut state = self.state.lock();
        state.stops.values().for_each(CancellationToken::cancel);
        state.stops.clear();
        state.pods.clear();
        drop(state);
        let _ = self.events.send(Event::Lost);
    }

    fn tell(&self, pod: &PodRef) {
        let _ = self.events.send(Event::Changed(pod.clone()));
    }

    fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends a container by itself after a while.
    fn end_later(&self, pod: &PodRef, id: &ContainerId, after: Duration, code: i32) {
        let cancel = CancellationToken::new();
        self.state.lock().stops.insert(id.clone(), cancel.clone());
        let (state, events, pod, id) = (self.state.clone(), self.events.clone(), pod.clone(), id.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(after) => {}
                () = cancel.cancelled() => return,
            }
            let mut state = state.lock();
            state.stops.remove(&id);
            let view =
                state.pods.get_mut(&pod.uid).and_then(|p| p.containers.iter_mut().find(|c| c.id == id));
            if let Some(view) = view {
                end(view, code);
                let _ = events.send(Event::Changed(pod));
            }
        });
    }
}

impl Default for Simulated {
    fn default() -> Simulated {
        Simulated::new()
    }
}

fn end(view: &mut ContainerView, code: i32) {
    if let ContainerState::Running { started_at, .. } = view.state {
        view.state = ContainerState::Exited {
            started_at: Some(started_at),
            finished_at: Timestamp::now(),
            code,
            out_of_memory: false,
            message: None,
        };
    }
}

fn unsupported(what: &str) -> Error {
    Error::Container(format!("a simulated container cannot {what}"))
}

#[async_trait]
impl Runtime for Simulated {
    async fn version(&self) -> Result<String, Error> {
        Ok("simulated://1.0".into())
    }

    fn events(&self) -> BoxStream<'static, Event> {
        let receiver = self.events.subscribe();
        let first = futures::stream::once(async { Event::Lost });
        let rest = futures::stream::unfold(receiver, |mut receiver| async move {
            match receiver.recv().await {
                Ok(event) => Some((event, receiver)),
                Err(broadcast::error::RecvError::Lagged(_)) => Some((Event::Lost, receiver)),
                Err(broadcast::error::RecvError::Closed) => None,
            }
        });
        first.chain(rest).boxed()
    }

    async fn pods(&self) -> Result<Vec<PodView>, Error> {
        Ok(self.state.lock().pods.values().cloned().collect())
    }

    async fn pod(&self, pod: &PodRef) -> Result<PodView, Error> {
        let found = self.state.lock().pods.get(&pod.uid).cloned();
        Ok(found.unwrap_or_else(|| PodView { pod: pod.clone(), sandboxes: vec![], containers: vec![] }))
    }

    async fn start_sandbox(&self, pod: &PodRef, spec: &SandboxSpec) -> Result<SandboxView, Error> {
        let number = self.next();
        let view = {
            let mut state = self.state.lock();
            let entry = state.pods.entry(pod.uid.clone()).or_insert_with(|| PodView {
                pod: pod.clone(),
                sandboxes: vec![],
                containers: vec![],
            });
            match entry.sandboxes.iter().find(|sandbox| sandbox.spec.attempt == spec.attempt) {
                Some(view) => view.clone(),
                None => {
                    let view = SandboxView {
                        id: SandboxId(format!("{}-{number}", pod.uid)),
                        spec: spec.clone(),
                        pid: u32::try_from(number).ok(),
                        created_at: Timestamp::now(),
                    };
                    entry.sandboxes.push(view.clone());
                    view
                }
            }
        };
        self.tell(pod);
        Ok(view)
    }

    async fn remove_sandbox(&self, sandbox: &SandboxId) -> Result<(), Error> {
        let mut state = self.state.lock();
        let found =
            state.pods.values_mut().find(|pod| pod.sandboxes.iter().any(|other| other.id == *sandbox));
        let Some(found) = found else { return Ok(()) };
        let pod = found.pod.clone();
        found.sandboxes.retain(|other| other.id != *sandbox);
        let gone: Vec<ContainerId> =
            found.containers.iter().filter(|c| c.sandbox == *sandbox).map(|c| c.id.clone()).collect();
        found.containers.retain(|container| container.sandbox != *sandbox);
        if found.sandboxes.is_empty() {
            state.pods.remove(&pod.uid);
        }
        for id in gone {
            if let Some(stop) = state.stops.remove(&id) {
                stop.cancel();
            }
        }
        drop(state);
        self.tell(&pod);
        Ok(())
    }

    async fn start_container(
        &self,
        pod: &PodRef,
        sandbox: &SandboxId,
        spec: &ContainerSpec,
    ) -> Result<ContainerView, Error> {
        let act = (self.script)(pod, &spec.name, spec.attempt);
        if let Some(why) = act.fails {
            return Err(Error::Container(why));
        }
        if !act.start.is_zero() {
            tokio::time::sleep(act.start).await;
        }
        let number = self.next();
        let view = {
            let mut state = self.state.lock();
            let entry = state.pods.get_mut(&pod.uid).ok_or_else(|| Error::NotFound(sandbox.0.clone()))?;
            let known = entry.containers.iter().find(|c| c.name == spec.name && c.attempt == spec.attempt);
            if let Some(known) = known {
                return Ok(known.clone());
            }
            let view = ContainerView {
                id: ContainerId(format!("{}-{number}", spec.name)),
                sandbox: sandbox.clone(),
                name: spec.name.clone(),
                attempt: spec.attempt,
                image: spec.image.clone(),
                image_ref: spec.image_ref.clone(),
                state: ContainerState::Running { started_at: Timestamp::now(), pid: 1 },
                labels: spec.labels.clone(),
                annotations: spec.annotations.clone(),
                log_path: spec.log_path.clone(),
                user: None,
                created_at: Timestamp::now(),
            };
            entry.containers.push(view.clone());
            view
        };
        if let Some((after, code)) = act.ends {
            self.end_later(pod, &view.id, after, code);
        }
        self.tell(pod);
        Ok(view)
    }

    async fn stop_container(&self, container: &ContainerId, grace: Duration) -> Result<(), Error> {
        let found = {
            let state = self.state.lock();
            state.pods.values().find_map(|pod| {
                let view = pod.containers.iter().find(|view| view.id == *container)?;
                Some((pod.pod.clone(), view.name.clone(), view.attempt))
            })
        };
        let Some((pod, name, attempt)) = found else { return Ok(()) };
        let stop = (self.script)(&pod, &name, attempt).stop;
        tokio::time::sleep(stop.min(grace)).await;
        let mut state = self.state.lock();
        if let Some(cancel) = state.stops.remove(container) {
            cancel.cancel();
        }
        let view =
            state.pods.get_mut(&pod.uid).and_then(|p| p.containers.iter_mut().find(|c| c.id == *container));
        if let Some(view) = view {
            end(view, if stop > grace { 137 } else { 0 });
        }
        drop(state);
        self.tell(&pod);
        Ok(())
    }

    async fn signal_container(&self, _container: &ContainerId, _signal: i32) -> Result<(), Error> {
        Ok(())
    }

    async fn remove_container(&self, container: &ContainerId) -> Result<(), Error> {
        for pod in self.state.lock().pods.values_mut() {
            pod.containers.retain(|view| view.id != *container);
        }
        Ok(())
    }

    async fn update_container(&self, _container: &ContainerId, _resources: &Resources) -> Result<(), Error> {
        Ok(())
    }

    async fn annotate_container(
        &self,
        container: &ContainerId,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        let mut views = state.pods.values_mut().flat_map(|pod| pod.containers.iter_mut());
        let view = views.find(|view| view.id == *container);
        let view = view.ok_or_else(|| Error::NotFound(container.0.clone()))?;
        view.annotations.extend(annotations.clone());
        Ok(())
    }

    async fn update_sandbox(
        &self,
        sandbox: &SandboxId,
        resources: &Resources,
        annotations: &BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        let mut views = state.pods.values_mut().flat_map(|pod| pod.sandboxes.iter_mut());
        let view = views.find(|view| view.id == *sandbox);
        let view = view.ok_or_else(|| Error::NotFound(sandbox.0.clone()))?;
        view.spec.resources = resources.clone();
        view.spec.annotations.extend(annotations.clone());
        Ok(())
    }

    async fn exec(&self, _container: &ContainerId, _spec: &ExecSpec) -> Result<Session, Error> {
        Err(unsupported("execute anything"))
    }

    async fn attach(&self, _container: &ContainerId, _stdin: bool) -> Result<Session, Error> {
        Err(unsupported("be attached to"))
    }

    async fn reopen_log(&self, _container: &ContainerId) -> Result<(), Error> {
        Ok(())
    }

    async fn usage(&self, _pod: &PodRef) -> Result<BTreeMap<String, Usage>, Error> {
        Ok(BTreeMap::new())
    }

    async fn image(&self, reference: &str) -> Result<Option<Image>, Error> {
        Ok(self.state.lock().images.get(reference).cloned())
    }

    async fn images(&self) -> Result<Vec<Image>, Error> {
        Ok(self.state.lock().images.values().cloned().collect())
    }

    async fn pull(
        &self,
        reference: &str,
        _credentials: &[Credentials],
        progress: &(dyn Fn(Progress) + Send + Sync),
    ) -> Result<Pulled, Error> {
        progress(Progress { done_bytes: 1, total_bytes: 1 });
        let image = Image {
            id: ImageId(format!("sha256:{:064x}", crate::hash::fnv(reference.as_bytes()))),
            tags: vec![reference.to_owned()],
            digests: vec![],
            size_bytes: 1,
            user: None,
            user_name: None,
            is_pinned: false,
        };
        self.state.lock().images.insert(reference.to_owned(), image.clone());
        Ok(Pulled { image, by: None })
    }

    async fn remove_image(&self, image: &ImageId) -> Result<(), Error> {
        self.state.lock().images.retain(|_, known| known.id != *image);
        Ok(())
    }
}
