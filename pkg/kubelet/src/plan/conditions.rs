//! The conditions of a pod that the kubelet owns.

use super::{Ending, Situation, is_sidecar, resize};
use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// It asks for another size, and does not have it yet.
const RESIZE_PENDING: &str = "PodResizePending";
/// It has been given another size that is not in force yet.
const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
/// The conditions that are not there when they do not hold.
pub(crate) const PASSING: [&str; 2] = [RESIZE_PENDING, RESIZE_IN_PROGRESS];
/// The conditions that the kubelet alone says.
const OURS: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    RESIZE_PENDING,
    RESIZE_IN_PROGRESS,
];
/// A pod that the node had to end is said to be disrupted, with this reason.
const ENDED_BY_NODE: &str = "TerminationByKubelet";

/// Whether a condition is the kubelet's word; others belong to whoever said them.
pub(crate) fn is_ours(condition: &PodCondition) -> bool {
    OURS.contains(&condition.type_.as_str()) || condition.reason.as_deref() == Some(ENDED_BY_NODE)
}

/// What is said of one condition.
struct Said {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

const YES: Said = Said { holds: true, reason: None, message: None };

fn no(reason: &'static str, message: Option<String>) -> Said {
    Said { holds: false, reason: Some(reason), message }
}

/// Sets the conditions in a status that has its phase and the statuses of containers.
pub(super) fn set(
    situation: Situation<'_>,
    ending: Option<&Ending>,
    changes: &resize::Changes,
    status: &mut PodStatus,
) {
    let old = &situation.memory.status;
    let theirs = situation.pod.status.as_ref().and_then(|status| status.conditions.clone());
    let mut conditions: Vec<PodCondition> = theirs
        .unwrap_or_default()
        .into_iter()
        .filter(|condition| !OURS.contains(&condition.type_.as_str()))
        .collect();
    for kept in old.conditions.iter().flatten().filter(|condition| condition.type_ == "DisruptionTarget") {
        conditions.retain(|condition| condition.type_ != kept.type_);
        conditions.push(kept.clone());
    }
    if let Some(Ending::Failed { message, for_the_node: true, .. }) = ending
        && !conditions.iter().any(|condition| condition.type_ == "DisruptionTarget")
    {
        let said = Said { holds: true, reason: Some(ENDED_BY_NODE), message: Some(message.clone()) };
        conditions.push(condition(situation, "DisruptionTarget", said));
    }
    if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        conditions.extend(resizes(situation, changes));
    }
    let sandbox = Said { holds: situation.sandbox().is_some(), reason: None, message: None };
    let containers_ready = containers_ready(situation, status);
    let ready = ready(situation, &containers_ready, &conditions);
    let initialized = initialized(situation, status);
    for (name, said) in [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized),
        ("Ready", ready),
        ("ContainersReady", containers_ready),
        ("PodScheduled", YES),
    ] {
        conditions.push(condition(situation, name, said));
    }
    status.conditions = Some(conditions);
}

fn condition(situation: Situation<'_>, name: &str, said: Said) -> PodCondition {
    let value = if said.holds { "True" } else { "False" };
    let before = |status: Option<&PodStatus>| {
        let condition = status?.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)?;
        (condition.status == value).then(|| condition.last_transition_time.clone()).flatten()
    };
    let since = before(Some(&situation.memory.status)).or_else(|| before(situation.pod.status.as_ref()));
    PodCondition {
        type_: name.into(),
        status: value.into(),
        reason: said.reason.map(Into::into),
        message: said.message,
        last_transition_time: Some(since.unwrap_or(Time(situation.now))),
        last_probe_time: None,
        observed_generation: situation.pod.metadata.generation,
    }
}

/// What there is to say of the pod's size.
fn resizes(situation: Situation<'_>, changes: &resize::Changes) -> Vec<PodCondition> {
    let memory = &situation.memory.resize;
    let pending = memory.pending.as_ref().map(|pending| {
        resize_condition(
            situation,
            RESIZE_PENDING,
            Some(pending.reason),
            Some(&pending.message),
            pending.generation,
        )
    });
    let in_progress = changes.in_progress().then(|| {
        let failed = memory.failed.as_ref().filter(|failed| failed.steps == changes.steps);
        let before = old(situation, RESIZE_IN_PROGRESS).and_then(|condition| condition.observed_generation);
        let generation = memory.generation.or(before).or(situation.pod.metadata.generation);
        let message = failed.map(|failed| &failed.message);
        resize_condition(situation, RESIZE_IN_PROGRESS, failed.map(|_| "Error"), message, generation)
    });
    pending.into_iter().chain(in_progress).collect()
}

fn old<'a>(situation: Situation<'a>, name: &str) -> Option<&'a PodCondition> {
    situation.memory.status.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)
}

/// One that holds; it is another one when its reason is.
fn resize_condition(
    situation: Situation<'_>,
    name: &str,
    reason: Option<&str>,
    message: Option<&String>,
    observed_generation: Option<i64>,
) -> PodCondition {
    let now = Some(Time(situation.now));
    let condition = PodCondition {
        type_: name.into(),
        status: "True".into(),
        reason: reason.map(Into::into),
        message: message.cloned(),
        last_transition_time: now.clone(),
        last_probe_time: now,
        observed_generation,
    };
    let Some(before) = old(situation, name).filter(|before| before.reason == condition.reason) else {
        return condition;
    };
    let is_same = before.message == condition.message && before.observed_generation == observed_generation;
    let probed = if is_same { &before.last_probe_time } else { &condition.last_probe_time };
    PodCondition {
        last_transition_time: before.last_transition_time.clone(),
        last_probe_time: probed.clone(),
        ..condition
    }
}

/// The generation of the pod that asked for a size that is in force now, and was not before.
pub(super) fn resized(situation: Situation<'_>, status: &PodStatus) -> Option<Option<i64>> {
    let before = old(situation, RESIZE_IN_PROGRESS)?;
    let now = status.conditions.iter().flatten().any(|condition| condition.type_ == RESIZE_IN_PROGRESS);
    (!now).then_some(before.observed_generation)
}

fn find<'a>(list: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    list.into_iter().flatten().find(|status| status.name == name)
}

fn listed(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

fn containers_ready(situation: Situation<'_>, status: &PodStatus) -> Said {
    let Some(spec) = &situation.pod.spec else { return no("UnknownContainerStatuses", None) };
    let sidecars = spec.init_containers.iter().flatten().filter(|container| is_sidecar(container));
    let sidecars = sidecars.map(|c| (&c.name, find(status.init_container_statuses.as_ref(), &c.name)));
    let regular =
        spec.containers.iter().map(|c| (&c.name, find(status.container_statuses.as_ref(), &c.name)));
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for (name, found) in sidecars.chain(regular) {
        match found {
            None => unknown.push(name.as_str()),
            Some(status) if !status.ready => unready.push(name.as_str()),
            Some(_) => {}
        }
    }
    match status.phase.as_deref() {
        Some("Succeeded") if unknown.is_empty() => return no("PodCompleted", None),
        Some("Failed") => return no("PodFailed", None),
        _ => {}
    }
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!("containers with unknown status: {}", listed(&unknown)));
    }
    if !unready.is_empty() {
        messages.push(format!("containers with unready status: {}", listed(&unready)));
    }
    if messages.is_empty() { YES } else { no("ContainersNotReady", Some(messages.join(", "))) }
}

fn ready(situation: Situation<'_>, containers: &Said, conditions: &[PodCondition]) -> Said {
    if !containers.holds {
        return Said { holds: false, reason: containers.reason, message: containers.message.clone() };
    }
    let gates = situation.pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let messages: Vec<String> = gates
        .into_iter()
        .flatten()
        .filter_map(|gate| {
            let name = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *name) {
                None => {
                    Some(format!("corresponding condition of pod readiness gate \"{name}\" does not exist."))
                }
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate \"{name}\" is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if messages.is_empty() { YES } else { no("ReadinessGatesNotReady", Some(messages.join(", "))) }
}

fn initialized(situation: Situation<'_>, status: &PodStatus) -> Said {
    let init = situation.pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in init.into_iter().flatten() {
        match find(status.init_container_statuses.as_ref(), &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(found) => {
                let done = if is_sidecar(container) { found.started == Some(true) } else { found.ready };
                if !done {
                    incomplete.push(container.name.as_str());
                }
            }
        }
    }
    if status.phase.as_deref() == Some("Succeeded") && unknown.is_empty() {
        return Said { holds: true, reason: Some("PodCompleted"), message: None };
    }
    let regular_started = status.container_statuses.iter().flatten().any(|status| {
        let ran = |state: &k8s_openapi::api::core::v1::ContainerState| {
            state.running.is_some() || state.terminated.is_some()
        };
        status.state.as_ref().is_some_and(ran) || status.last_state.as_ref().is_some_and(ran)
    });
    if regular_started {
        return YES;
    }
    let mut messages = Vec::new();
    if !unknown.is_empty() {
        messages.push(format!("containers with unknown status: {}", listed(&unknown)));
    }
    if !incomplete.is_empty() {
        messages.push(format!("containers with incomplete status: {}", listed(&incomplete)));
    }
    if messages.is_empty() { YES } else { no("ContainersNotInitialized", Some(messages.join(", "))) }
}
