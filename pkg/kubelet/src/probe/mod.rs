//! Probes: whether containers have started, are ready, are alive.
//!
//! ```text
//! container that runs ──> one task per probe: wait, ask (exec, http, tcp, grpc), count ──> Found ──> the pod's worker
//! ```
//!
//! Counting is [`Count`], a pure state machine; asking is thin I/O. A result is told when it changes, not each time.

mod count;
pub(crate) mod exec;
mod grpc;
pub(crate) mod http;
mod task;

pub use count::Count;

use crate::plan::{Plan, container_of, containers_of};
use crate::runtime::{ContainerId, ContainerState, PodView};
use crate::shared::Shared;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Results wait here until the worker looks; more than a pod has probes is not needed.
const QUEUE: usize = 64;

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `startupProbe`.
    Startup,
    /// `readinessProbe`.
    Readiness,
    /// `livenessProbe`.
    Liveness,
}

impl Kind {
    /// As events call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }

    fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
        }
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Of which container.
    pub container: ContainerId,
    /// By which probe.
    pub kind: Kind,
    /// Whether it succeeds.
    pub success: bool,
}

/// The probes of one pod.
pub(crate) struct Probes {
    shared: Arc<Shared>,
    running: BTreeMap<(ContainerId, Kind), AbortOnDropHandle<()>>,
    results: mpsc::Receiver<Found>,
    tell: mpsc::Sender<Found>,
}

impl Probes {
    /// None at first.
    pub fn new(shared: Arc<Shared>) -> Probes {
        let (tell, results) = mpsc::channel(QUEUE);
        Probes { shared, running: BTreeMap::new(), results, tell }
    }

    /// The next result that differs from the one before.
    pub async fn next(&mut self) -> Option<Found> {
        self.results.recv().await
    }

    /// Starts and ends probes so that they are those of the containers that run.
    pub fn sync(&mut self, pod: &Arc<Pod>, view: &PodView, plan: &Plan) {
        let has_probes = containers_of(pod).iter().any(|(_, container)| {
            [Kind::Startup, Kind::Readiness, Kind::Liveness].iter().any(|kind| kind.of(container).is_some())
        });
        if !has_probes {
            return;
        }
        let is_ending = plan.ending.is_some();
        let mut wanted: BTreeMap<(ContainerId, Kind), &crate::runtime::ContainerView> = BTreeMap::new();
        for running in view.containers.iter().filter(|c| matches!(c.state, ContainerState::Running { .. })) {
            let Some((_, container)) = container_of(pod, &running.name) else { continue };
            let statuses = &plan.status;
            let all = [&statuses.container_statuses, &statuses.init_container_statuses];
            let status = all.into_iter().flatten().flatten().find(|status| status.name == running.name);
            let started = status.is_some_and(|status| status.started == Some(true));
            for kind in [Kind::Startup, Kind::Readiness, Kind::Liveness] {
                // A pod that ends may become unready, but is neither started nor killed for its health.
                let is_due = match kind {
                    Kind::Startup => !started && !is_ending,
                    Kind::Readiness => started,
                    Kind::Liveness => started && !is_ending,
                };
                if is_due && kind.of(&container).is_some() {
                    wanted.insert((running.id.clone(), kind), running);
                }
            }
        }
        self.running.retain(|key, _| wanted.contains_key(key));
        for (key, running) in wanted {
            if !self.running.contains_key(&key) {
                let task = task::Task {
                    shared: self.shared.clone(),
                    pod: pod.clone(),
                    name: running.name.clone(),
                    id: key.0.clone(),
                    kind: key.1,
                    started_at: match running.state {
                        ContainerState::Running { started_at, .. } => started_at,
                        _ => continue,
                    },
                    address: plan.status.pod_ip.clone(),
                    tell: self.tell.clone(),
                };
                self.running.insert(key, AbortOnDropHandle::new(tokio::spawn(task.run())));
            }
        }
    }
}
