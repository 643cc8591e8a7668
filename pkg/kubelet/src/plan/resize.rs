//! Another size for containers that run: what is in force, what is to be, and in which order one becomes the other.
//!
//! ```text
//! the pod's group: the larger of both ──> containers, who gives back first ──> the pod's group: what it is to be
//! ```
//!
//! So no container is ever allowed more than its pod. Containers whose policy says so are started again instead.

use super::{Action, Plan, Situation, Work, containers_of, is_running};
use crate::allocation::{self, ALLOCATED, RESIZABLE, is_resizable, is_same, limit, request};
use crate::host::{Capacity, resources};
use crate::runtime::{ContainerId, ContainerView, Resources, SandboxId, Usage};
use k8s_openapi::api::core::v1::{Container, ResourceRequirements};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of a container that holds the resources that are in force for it.
pub const IN_FORCE: &str = "minik8s.io/resources";

/// One thing to change.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// What all containers may use together.
    Pod {
        /// Whose.
        sandbox: SandboxId,
        /// From now on.
        resources: Resources,
        /// What the pod has been given, to be written down with it.
        allocated: String,
        /// Less memory than before.
        lowers_memory: bool,
    },
    /// What one of them may use.
    Container {
        /// Which.
        id: ContainerId,
        /// Its name.
        name: String,
        /// From now on.
        resources: Resources,
        /// The same as the pod has it, to be written down with it.
        in_force: ResourceRequirements,
        /// Less memory than before.
        lowers_memory: bool,
    },
}

/// All that is to change.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// In this order.
    pub steps: Vec<Step>,
    /// The containers that have to be started again.
    pub restarts: BTreeSet<String>,
}

impl Changes {
    /// Whether something is not as it was allocated.
    pub fn in_progress(&self) -> bool {
        !self.steps.is_empty() || !self.restarts.is_empty()
    }
}

/// The resources that are in force for a container; nothing if that was never written down.
pub(super) fn in_force(view: &ContainerView) -> Option<ResourceRequirements> {
    serde_json::from_str(view.annotations.get(IN_FORCE)?).ok()
}

/// Asks for what is to change, unless that is being done or has just failed.
pub(super) fn plan(situation: Situation<'_>, changes: &Changes, plan: &mut Plan) {
    let (memory, steps) = (situation.memory, &changes.steps);
    if steps.is_empty() || memory.busy.contains(&Work::Resize) {
        return;
    }
    let failed = memory.resize.failed.as_ref().filter(|failed| failed.steps == *steps);
    match failed.map(|failed| failed.retry_at).filter(|at| *at > situation.now) {
        Some(at) => plan.at(at),
        None => plan.actions.push(Action::Resize(steps.clone())),
    }
}

/// Works out what is to change.
pub(super) fn changes(situation: Situation<'_>) -> Changes {
    let Some(sandbox) = situation.sandbox() else { return Changes::default() };
    let mut changes = Changes::default();
    let mut in_place = Vec::new();
    for (kind, container) in containers_of(situation.pod) {
        let running = situation.present(&container.name).filter(|view| is_running(view));
        let Some(view) = running.filter(|_| is_resizable(kind)) else { continue };
        let Some(now) = in_force(view) else { continue };
        let wanted = container.resources.clone().unwrap_or_default();
        if is_same(&now, &wanted) {
            continue;
        }
        if needs_restart(&container, &now, &wanted) {
            changes.restarts.insert(container.name.clone());
        } else {
            in_place.push(container_step(situation, &container, view, now, wanted));
        }
    }
    in_place.sort_by_key(|(grows, _)| *grows);
    let containers = in_place.into_iter().map(|(_, step)| step);
    let recorded = sandbox.spec.annotations.get(ALLOCATED);
    if recorded.is_none() && situation.memory.resize.generation.is_none() {
        // Made by somebody who did not write down what the pod has, and it has not changed since.
        changes.steps.extend(containers);
        return changes;
    }
    let allocated = allocation::written(&allocation::of(situation.pod));
    let now = &sandbox.spec.resources;
    let wanted =
        Resources { unified: now.unified.clone(), ..resources::of_pod(situation.pod, now.pids_limit) };
    let step = |from: &Resources, to: &Resources| Step::Pod {
        sandbox: sandbox.id.clone(),
        resources: to.clone(),
        allocated: allocated.clone(),
        lowers_memory: lowers(from.memory_limit_bytes, to.memory_limit_bytes),
    };
    let first = larger(now, &wanted);
    if first != *now || recorded != Some(&allocated) {
        changes.steps.push(step(now, &first));
    }
    changes.steps.extend(containers);
    // Those that have to be started again have more than they shall until they have ended.
    if changes.restarts.is_empty() && first != wanted {
        changes.steps.push(step(&first, &wanted));
    }
    changes
}

fn container_step(
    situation: Situation<'_>,
    container: &Container,
    view: &ContainerView,
    now: ResourceRequirements,
    wanted: ResourceRequirements,
) -> (bool, Step) {
    let of = |resources: ResourceRequirements| {
        let container = Container { resources: Some(resources), ..container.clone() };
        // Who is killed first when memory runs out was settled when it was started.
        let resources = resources::of_container(situation.pod, &container, &Capacity::default());
        Resources { oom_score_adj: None, ..resources }
    };
    let (from, to) = (of(now), of(wanted.clone()));
    let grows =
        lowers(to.memory_limit_bytes, from.memory_limit_bytes) || lowers(to.cpu_quota_us, from.cpu_quota_us);
    let step = Step::Container {
        id: view.id.clone(),
        name: container.name.clone(),
        lowers_memory: lowers(from.memory_limit_bytes, to.memory_limit_bytes),
        resources: to,
        in_force: wanted,
    };
    (grows, step)
}

/// Whether a resource that changes can only change for a container that is started anew.
fn needs_restart(container: &Container, now: &ResourceRequirements, wanted: &ResourceRequirements) -> bool {
    let policies = container.resize_policy.iter().flatten();
    policies.filter(|policy| policy.restart_policy == "RestartContainer").any(|policy| {
        let name = policy.resource_name.as_str();
        RESIZABLE.contains(&name)
            && (limit(now, name) != limit(wanted, name) || request(now, name) != request(wanted, name))
    })
}

/// Whether a limit becomes smaller. Zero: there is none.
fn lowers(from: i64, to: i64) -> bool {
    to > 0 && (from <= 0 || to < from)
}

/// What is enough for either.
fn larger(one: &Resources, other: &Resources) -> Resources {
    let limit = |one: i64, other: i64| if one <= 0 || other <= 0 { 0 } else { one.max(other) };
    let cpu_quota_us = limit(one.cpu_quota_us, other.cpu_quota_us);
    Resources {
        cpu_shares: one.cpu_shares.max(other.cpu_shares),
        cpu_quota_us,
        cpu_period_us: if cpu_quota_us > 0 { one.cpu_period_us } else { 0 },
        memory_limit_bytes: limit(one.memory_limit_bytes, other.memory_limit_bytes),
        ..other.clone()
    }
}

/// Why limits cannot be lowered as far as these steps would, in upstream's words.
pub(crate) fn below_usage(steps: &[Step], usage: &BTreeMap<String, Usage>) -> Option<String> {
    let used = |name: &str| usage.get(name).map(|usage| usage.memory_bytes);
    let below = |what: String, limit: i64, used: Option<u64>| match used {
        None => Some(format!("missing {what} memory usage")),
        Some(used) if used >= u64::try_from(limit).unwrap_or(0) => {
            Some(format!("attempting to set {what} memory limit ({limit}) below current usage ({used})"))
        }
        Some(_) => None,
    };
    let errors: Vec<String> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Pod { resources, lowers_memory: true, .. } => {
                let all = usage.values().map(|usage| usage.memory_bytes).sum();
                below("pod".to_owned(), resources.memory_limit_bytes, Some(all))
            }
            Step::Container { name, resources, lowers_memory: true, .. } => {
                below(format!("container {name:?}"), resources.memory_limit_bytes, used(name))
            }
            _ => None,
        })
        .collect();
    match errors.as_slice() {
        [] => None,
        [one] => Some(format!("cannot decrease memory limits: {one}")),
        more => Some(format!("cannot decrease memory limits: [{}]", more.join(", "))),
    }
}
