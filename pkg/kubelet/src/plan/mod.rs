//! What to do for one pod now: a pure function of what is wanted, what is seen and what is remembered.
//!
//! ```text
//! Pod (wanted) ─┐
//! PodView ──────┼─> plan_pod(…, now) ─> actions + status + when to look again
//! Memory ───────┘
//! ```
//!
//! Nothing here waits, reads a clock or talks to anybody. Work that is under way is in [`Memory::busy`], and is not
//! asked for twice.

mod backoff;
mod conditions;
mod containers;
mod end;
mod phase;
pub(crate) mod resize;
mod status;

#[cfg(test)]
mod tests;

use crate::allocation::Pending;
use crate::runtime::{ContainerId, ContainerState, ContainerView, Handlers, PodView, SandboxId, SandboxView};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use std::collections::{BTreeMap, BTreeSet};

pub use backoff::{BackOff, CRASH_FIRST_S, LONGEST_S, STATIC_FIRST_S};
pub(crate) use conditions::{PASSING, is_ours as is_own_condition};
pub use containers::{container_of, containers_of, is_sidecar, should_restart};
pub use resize::{IN_FORCE, Step};

/// The annotation of a sandbox that holds the pod's addresses, separated by commas.
pub const ADDRESSES: &str = "minik8s.io/pod-ips";
/// The annotation of a container that holds the hash of what it was made from.
pub const HASH: &str = "io.kubernetes.container.hash";

/// Why a pod has to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Somebody deleted it.
    Deleted,
    /// It is not wanted here any more, and nobody asks what became of it.
    Gone,
    /// It may not run on; the reason and message of its status.
    Failed {
        /// Such as `Evicted`.
        reason: String,
        /// For people.
        message: String,
        /// Replaces the pod's own.
        grace_s: Option<i64>,
        /// It is the node that needs what the pod has.
        for_the_node: bool,
    },
    /// All its containers are done.
    Completed,
}

/// Which of a pod's lists a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `initContainers`, those that run to their end.
    Init,
    /// `initContainers` that run beside the others.
    Sidecar,
    /// `containers`.
    Regular,
    /// `ephemeralContainers`.
    Ephemeral,
}

/// Work that takes time. At most one of each is under way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Volumes are mounted.
    Volumes,
    /// A sandbox is made.
    Sandbox,
    /// A container is started: image, container, postStart.
    Start(String),
    /// A container is stopped.
    Stop(ContainerId),
    /// A container is forgotten.
    Forget(ContainerId),
    /// The containers get another size.
    Resize,
    /// A sandbox is removed.
    RemoveSandbox(SandboxId),
    /// What the pod leaves on the node is removed.
    CleanUp,
}

impl Work {
    /// The container that is being started.
    pub(crate) fn starts(&self) -> Option<&String> {
        match self {
            Work::Start(name) => Some(name),
            _ => None,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Mount the pod's volumes.
    MountVolumes,
    /// Make a sandbox.
    StartSandbox {
        /// How many there were before.
        attempt: u32,
    },
    /// Make and start a container.
    StartContainer {
        /// Its name.
        name: String,
        /// How many of that name there were before.
        attempt: u32,
        /// What is remembered of its crashes from now on.
        backoff: BackOff,
    },
    /// Say that a container waits before it is started, or its image pulled, again.
    TellBackOff {
        /// Its name.
        name: String,
        /// What it waits after.
        after: Timestamp,
        /// It waits for its image.
        of_image: bool,
    },
    /// Give up starting a container.
    CancelStart(String),
    /// Stop a container.
    StopContainer {
        /// Which.
        id: ContainerId,
        /// Its name.
        name: String,
        /// How long it may take.
        grace_s: i64,
        /// Why, for people.
        message: String,
        /// Run its preStop hook first.
        hook: bool,
        /// It is started again whatever it ends with.
        anew: bool,
    },
    /// Give the containers another size, in this order.
    Resize(Vec<Step>),
    /// Say that they have it.
    TellResized {
        /// The generation of the pod that asked for it.
        generation: Option<i64>,
    },
    /// Forget an ended container.
    ForgetContainer {
        /// Which.
        id: ContainerId,
        /// Its name.
        name: String,
        /// Which of that name.
        attempt: u32,
    },
    /// Remove a sandbox and what is in it.
    RemoveSandbox(SandboxId),
    /// Remove what the pod leaves on the node: network, volumes, folders.
    CleanUp,
}

/// Where the volumes are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Volumes {
    /// Not mounted.
    #[default]
    None,
    /// Mounted.
    Ready,
    /// Could not be mounted; try again then.
    Failed(Timestamp),
}

/// What probes found of one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Probed {
    /// The startup probe: succeeded, failed for good, or not yet.
    pub startup: Option<bool>,
    /// The readiness probe.
    pub readiness: Option<bool>,
    /// The liveness probe.
    pub liveness: Option<bool>,
}

/// What is remembered of a container by its name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ContainerMemory {
    /// Its crashes.
    pub backoff: BackOff,
    /// Why it could not be started: reason and message.
    pub waiting: Option<(String, String)>,
    /// Not before then.
    pub retry_at: Option<Timestamp>,
    /// The exit, or the failed pull, that was told to wait.
    pub told: Option<Timestamp>,
    /// How long a failed pull waits.
    pub pull_delay_s: i64,
    /// From then on a failed pull is a pull that waits.
    pub next_waiting: Option<Timestamp>,
    /// The one that was stopped only to be started again.
    pub anew: Option<ContainerId>,
}

impl ContainerMemory {
    /// Why it waits, now: reason and message.
    pub fn waits(&self, image: &str, now: Timestamp) -> Option<(String, String)> {
        let (reason, message) = self.waiting.clone()?;
        if self.next_waiting.is_some_and(|at| now >= at) {
            let message = format!("Back-off pulling image \"{image}\": {reason}: {message}");
            return Some(("ImagePullBackOff".into(), message));
        }
        Some((reason, message))
    }
}

/// What is remembered of the pod's size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResizeMemory {
    /// The generation of the pod that was given what it has, if that is not what it was let in with.
    pub generation: Option<i64>,
    /// Why it does not have what it asks for.
    pub pending: Option<Pending>,
    /// The last try to bring what it has into force, if that failed.
    pub failed: Option<ResizeFailure>,
}

/// A try to give containers another size that failed.
#[derive(Debug, Clone, PartialEq)]
pub struct ResizeFailure {
    /// What was tried.
    pub steps: Vec<Step>,
    /// Why it failed.
    pub message: String,
    /// The same is not tried before then.
    pub retry_at: Timestamp,
}

/// What is remembered of a pod between looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// Why it has to end, if it has to.
    pub ending: Option<Ending>,
    /// Since when it has to end.
    pub ending_since: Option<Timestamp>,
    /// The work under way.
    pub busy: BTreeSet<Work>,
    /// Its volumes.
    pub volumes: Volumes,
    /// When a volume has to be brought up to date.
    pub refresh_at: Option<Timestamp>,
    /// Its containers, by name.
    pub containers: BTreeMap<String, ContainerMemory>,
    /// What ended containers left as their last words.
    pub messages: BTreeMap<ContainerId, String>,
    /// What probes found.
    pub probed: BTreeMap<ContainerId, Probed>,
    /// When containers that are being stopped are killed.
    pub stopping: BTreeMap<ContainerId, Timestamp>,
    /// A sandbox could not be made; not before then.
    pub sandbox_retry_at: Option<Timestamp>,
    /// Its size.
    pub resize: ResizeMemory,
    /// The status so far: at first the one that the API has.
    pub status: PodStatus,
    /// What it left has been removed.
    pub cleaned: bool,
}

/// What is the same for all pods of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's addresses, best first.
    pub addresses: Vec<String>,
    /// What container ids begin with, such as `containerd`.
    pub runtime: String,
    /// What the runtime can do, by the handler of a RuntimeClass.
    pub handlers: Handlers,
}

/// All that a plan is made from.
#[derive(Clone, Copy)]
pub struct Situation<'a> {
    /// As wanted, with the resources that it has been given.
    pub pod: &'a Pod,
    /// As seen.
    pub view: &'a PodView,
    /// As remembered.
    pub memory: &'a Memory,
    /// The node.
    pub node: &'a NodeFacts,
    /// The time.
    pub now: Timestamp,
}

/// What follows from a situation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// To do, in any order.
    pub actions: Vec<Action>,
    /// How the pod is.
    pub status: PodStatus,
    /// Why it has to end, if it has to.
    pub ending: Option<Ending>,
    /// When to plan again even if nothing happens.
    pub look_again: Option<Timestamp>,
    /// Nothing of it is left on the node.
    pub finished: bool,
}

impl Plan {
    pub(crate) fn at(&mut self, time: Timestamp) {
        self.look_again = Some(self.look_again.map_or(time, |earlier| earlier.min(time)));
    }
}

/// Decides.
pub fn plan_pod(situation: Situation<'_>) -> Plan {
    let mut plan = Plan::default();
    let mut changes = resize::Changes::default();
    let ending = match ending(situation, &mut plan) {
        Some(ending) => Some(ending),
        None => {
            changes = resize::changes(situation);
            containers::plan(situation, &changes, &mut plan).then_some(Ending::Completed)
        }
    };
    if let Some(ending) = &ending {
        plan.actions.clear();
        plan.look_again = None;
        end::plan(situation, ending, &mut plan);
    }
    plan.status = status::pod_status(situation, ending.as_ref(), &changes);
    if ending.is_none()
        && let Some(generation) = conditions::resized(situation, &plan.status)
    {
        plan.actions.push(Action::TellResized { generation });
    }
    plan.ending = ending;
    plan
}

fn ending(situation: Situation<'_>, plan: &mut Plan) -> Option<Ending> {
    let Situation { pod, memory, now, .. } = situation;
    if memory.ending == Some(Ending::Gone) {
        return Some(Ending::Gone);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        return Some(Ending::Deleted);
    }
    if let Some(ending) = &memory.ending {
        return Some(ending.clone());
    }
    let is_terminal = |status: Option<&PodStatus>| {
        matches!(status.and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
    };
    if is_terminal(pod.status.as_ref()) || is_terminal(Some(&memory.status)) {
        return Some(Ending::Completed);
    }
    let deadline = pod.spec.as_ref()?.active_deadline_seconds?;
    let of_api = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let started = memory.status.start_time.as_ref().or(of_api)?;
    let ends = started.0 + jiff::SignedDuration::from_secs(deadline);
    if now >= ends {
        return Some(Ending::Failed {
            reason: "DeadlineExceeded".into(),
            message: "Pod was active on the node longer than the specified deadline".into(),
            grace_s: None,
            for_the_node: false,
        });
    }
    plan.at(ends);
    None
}

impl<'a> Situation<'a> {
    /// The newest container of a name.
    pub fn newest(&self, name: &str) -> Option<&'a ContainerView> {
        self.view.containers.iter().filter(|container| container.name == name).max_by_key(|c| c.attempt)
    }

    /// The newest container of a name in the present sandbox.
    pub(crate) fn present(&self, name: &str) -> Option<&'a ContainerView> {
        let sandbox = self.sandbox()?;
        self.newest(name).filter(|container| container.sandbox == sandbox.id)
    }

    /// The sandbox that runs.
    pub fn sandbox(&self) -> Option<&'a SandboxView> {
        self.view.sandboxes.iter().filter(|sandbox| sandbox.pid.is_some()).max_by_key(|s| s.spec.attempt)
    }

    pub(crate) fn is_started(&self, container: &Container, view: &ContainerView) -> bool {
        is_running(view)
            && (container.startup_probe.is_none()
                || self.memory.probed.get(&view.id).is_some_and(|probed| probed.startup == Some(true)))
    }

    pub(crate) fn is_static(&self) -> bool {
        is_static(self.pod)
    }
}

/// Whether a pod comes from a file of this node.
pub fn is_static(pod: &Pod) -> bool {
    pod.metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get("kubernetes.io/config.source"))
        .is_some_and(|source| source != "api")
}

pub(crate) fn is_running(view: &ContainerView) -> bool {
    matches!(view.state, ContainerState::Running { .. })
}

pub(crate) fn after(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
